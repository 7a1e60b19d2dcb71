"""What if outcomes come later? The same numbers as a replay that says how late they are."""

from __future__ import annotations

import numpy as np
import pytest
from class_logs import stream
from group_streams import world
from report_payload import with_later

import calibeat
from calibeat.backtest.judge import later
from calibeat.report.page import html
from calibeat.report.text import page

N = 3000
RNG = np.random.default_rng(11)
SCORES = RNG.uniform(0.2, 0.8, N)
STATE = 1.5 * np.sin(np.arange(N) / 150.0) + 0.5
OUTCOMES = (RNG.random(N) < 1.0 / (1.0 + (1.0 / SCORES - 1.0) * np.exp(-STATE))).astype(float)
OUTCOMES[::41] = np.nan
TIMES = np.datetime64("2024-02-01T00:00:00", "us") + np.arange(N) * np.timedelta64(10, "m")


def losses(**options):
    table = calibeat.backtest(SCORES, OUTCOMES, **options).table
    return dict(zip(table["method"].tolist(), table["log_loss"].tolist(), strict=True))


@pytest.mark.parametrize("more", [{"methods": "auto"}, {"methods": "auto", "keys": np.arange(N) % 2}])
def test_the_numbers_of_a_replay_with_that_delay(more):
    result = calibeat.backtest(SCORES, OUTCOMES, times=TIMES, **more)
    found, best = result.payload["later"], result.best
    assert found["method"] == best != "raw" and found["whole"] and found["events"] == N
    assert [row["delay"] for row in found["rows"]] == ["at once", "100 events late", "a day late"]
    for row, delay in zip(found["rows"], (0, 100, "1d"), strict=True):
        wanted = losses(times=TIMES, delay=delay, **more)
        assert row["log_loss"] == pytest.approx(wanted[best], abs=1e-12)
        assert row["gain"] == pytest.approx(1.0 - wanted[best] / wanted["raw"], abs=1e-12)
    assert found["raw_log_loss"] == pytest.approx(wanted["raw"], abs=1e-12)
    hundred, day = (100 * row["gain"] for row in found["rows"][1:])
    assert found["sentence"].startswith("This assumes that each outcome is known before the next score.")
    assert f"100 events late, {hundred:.1f} % less log-loss; a day late, {abs(day):.1f} % " in found["sentence"]


def test_groups_and_many_classes():
    scores, outcomes, codes = world(N, 2, 5)
    groups = {"a": codes[:, 0], "b": codes[:, 1]}
    result = calibeat.backtest(scores, outcomes, groups=groups, methods="ops")
    late = calibeat.backtest(scores, outcomes, groups=groups, methods="ops", delay=100)
    row = late.table["method"].tolist().index("AUTO + groups")
    assert result.best == "AUTO + groups"
    assert result.payload["later"]["rows"][1]["log_loss"] == pytest.approx(late.table["log_loss"][row], abs=1e-12)
    assert result.payload["later"]["rows"][2]["delay"] == "1,000 events late"
    P, y = stream(N)
    result, late = (calibeat.backtest(P, y, methods="multi", delay=delay) for delay in (0, 100))
    assert result.payload["later"]["rows"][1]["log_loss"] == pytest.approx(late.table["log_loss"][1], abs=1e-12)


def test_only_where_outcomes_were_taken_to_be_known_at_once_and_a_method_was_chosen():
    for options in ({"delay": 5}, {"mature": 5}, {"times": TIMES, "outcome_times": TIMES + np.timedelta64(1, "h")}):
        assert "later" not in calibeat.backtest(SCORES, OUTCOMES, methods="auto", **options).payload
    assert "later" not in calibeat.backtest(SCORES, OUTCOMES, methods="raw").payload


def test_the_first_events_are_enough(monkeypatch):
    monkeypatch.setattr(later, "MOST_KEPT", 2000)
    found = calibeat.backtest(SCORES, OUTCOMES, methods="auto").payload["later"]
    short = calibeat.backtest(SCORES[:2000], OUTCOMES[:2000], methods="auto", delay=100, warmup=146)
    assert found["events"] == 2000 and not found["whole"]
    assert "on the first 2,000 events, where it is" in found["sentence"]
    whole = calibeat.backtest(SCORES, OUTCOMES, methods="auto").payload["data"]["warmup"]
    assert whole == 146
    assert found["rows"][1]["log_loss"] == pytest.approx(short.table["log_loss"][1], abs=1e-12)


def test_the_page_and_the_terminal_say_it_beside_the_headline():
    told = with_later()
    shown = html(told)
    assert shown.index("<h1>") < shown.index('id="assumes"') < shown.index('id="example"')
    assert "What if outcomes come later?" in shown and "3.0\u00a0% less" in shown and "1.2\u00a0% more" in shown
    lines = page(told)
    assert lines.index("This assumes") < lines.index("judged after a warm-up")


def test_a_log_that_is_too_short_and_a_loss_of_nothing(monkeypatch):
    monkeypatch.setattr(later, "MOST_KEPT", 150)  # of which no half would arrive
    assert "later" not in calibeat.backtest(SCORES, OUTCOMES, methods="auto").payload
    rows = [{"delay": name, "log_loss": 0.0, "gain": np.nan} for name in ("at once", "100 events late")]
    assert later.sentence(rows, "AUTO", None).endswith("100 events late, as much log-loss.")
