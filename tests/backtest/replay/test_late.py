"""`backtest(mature=)`, and ones and zeros that come at clearly different ages: noticed, said, and replayed beside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import Calibrator, InvalidInput, report
from calibeat.backtest.read import rows as row_reader
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.late import Sizes, ages_of

N = 900


def timed(n: int = N) -> Any:
    return np.datetime64("2024-01-01") + (np.arange(n) * 7).astype("timedelta64[s]")


def clicks(n: int = N, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """A one comes soon, a zero only after half an hour."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    outcomes = (rng.random(n) < scores).astype(float)
    waits = np.where(outcomes == 1.0, rng.exponential(60, n), 1800).astype("timedelta64[s]")
    return scores, outcomes, timed(n), timed(n) + waits


@pytest.mark.parametrize("name", ["auto", "hops", "fps", "tobs"])
@pytest.mark.parametrize("cut", [10**6, 350])
def test_a_backtest_equals_a_calibrator(name: str, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "CHUNK", cut)
    monkeypatch.setattr(row_reader, "FIRST_EVENTS", cut)
    scores, outcomes = drifting(N)

    def replayed(**options: Any) -> Any:
        return calibeat.backtest(scores, outcomes, methods=name, keep_forecasts=True, **options).forecasts[name]

    alone = Calibrator(name)
    assert (replayed(mature=40) == alone.run(scores, outcomes, mature=40)).all()
    alone = Calibrator(name)
    assert (replayed(mature=40, times=timed()) == alone.run(scores, outcomes, mature=40)).all()
    alone = Calibrator(name)
    assert (replayed(mature="5min", times=timed()) == alone.run(scores, outcomes, mature="5min", times=timed())).all()
    alone = Calibrator(name)
    due = np.arange(N) + 61
    assert (replayed(mature=40, delay=60) == alone.run(scores, outcomes, due=due, mature=40)).all()


@pytest.mark.parametrize("mature", [40, "280s"])
@pytest.mark.parametrize("cut", [10**6, 350])
def test_the_later_of_arrival_and_age(mature: Any, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals are apart by whole steps of the clock: outcomes that arrive together are learnt in the order of rows."""
    monkeypatch.setattr(row_reader, "CHUNK", cut)
    monkeypatch.setattr(row_reader, "FIRST_EVENTS", cut)
    scores, outcomes = drifting(N)
    steps = np.random.default_rng(0).choice([1, 3, 50, 80], N)
    known = timed() + (7 * steps).astype("timedelta64[s]")
    found = calibeat.backtest(
        scores, outcomes, times=timed(), outcome_times=known, methods="tops", keep_forecasts=True, mature=mature
    ).forecasts["tops"]
    due, options = np.arange(N) + steps, {} if mature == 40 else {"times": timed()}
    assert (found == Calibrator("tops").run(scores, outcomes, due=due, mature=mature, **options)).all()


def test_each_key_is_a_calibrator() -> None:
    scores, outcomes = drifting(N)
    keys = np.array(["a", "b", "c"] * (N // 3))
    found = calibeat.backtest(
        scores, outcomes, keys, timed(), methods="hops", keep_forecasts=True, mature="5min"
    ).forecasts["hops"]
    for key in "abc":
        mine = keys == key
        alone = Calibrator("hops", stream=key).run(scores[mine], outcomes[mine], mature="5min", times=timed()[mine])
        assert (found[mine] == alone).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mature": "soon"}, "mature must be a number of events or a time"),
        ({"mature": "7d"}, "an age in time needs the time of each event, got none; say times="),
        ({"mature": "7d", "delay": 5}, "mature must be a number of events where delay is one, got '7d' and 5"),
    ],
)
def test_wrong_ages(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        calibeat.backtest([0.5] * 9, [0, 1, 1] * 3, **options)


# ---- ages that differ --------------------------------------------------------------------------------------------


def test_it_is_noticed_said_and_replayed_beside(tmp_path: Path) -> None:
    scores, outcomes, times, known = clicks()
    result = calibeat.backtest(
        scores, outcomes, times=times, outcome_times=known, methods=["ops", "auto"], keep_forecasts=True
    )
    payload = result.payload
    assert [method["label"] for method in payload["methods"]] == ["raw", "OPS", "AUTO", "AUTO, mature 30min"]
    assert "Every outcome is learnt at an age of 30min" in payload["methods"][-1]["about"]
    said = " ".join(payload["verdict"]["sentences"])
    assert "Ones and zeros come at clearly different ages: half of the ones are known after " in said
    assert "half of the zeros after 30 min" in said
    assert "sees too many ones at first. AUTO, mature 30min learns both at the same age. On this log that is be" in said
    ages = payload["delay"]["ages"]
    assert ages["differ"] and ages["mature"] == "30min" and ages["zeros"]["50%"] == 1800.0 and ages["ones_later"] < 0.1
    due = np.maximum(np.searchsorted(times, known), np.arange(N) + 1)
    alone = Calibrator("auto").run(scores, outcomes, due=due, mature="30min", times=times)
    assert (result.forecasts["auto, mature 30min"] == alone).all()
    losses = dict(zip(result.table["method"].tolist(), result.table["log_loss"].tolist(), strict=True))
    assert losses["auto, mature 30min"] < losses["auto"]
    worth = f"better (log-loss {losses['auto, mature 30min']:.4f}, as they come {losses['auto']:.4f}). If you deploy "
    worth += "AUTO, hold each"
    assert worth in said and worth in ages["advice"] and "until it is 30min old (--mature 30min)" in ages["advice"]
    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Ones and zeros come at clearly different ages" in page and "AUTO, mature 30min" in page
    assert "Delay of zeros" in page


def test_there_is_one_age_however_the_log_is_cut_and_no_advice_against_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three ages were told of for one thing, and the advice was to hold back where that was worse."""
    n = 45_000
    rng = np.random.default_rng(1)
    scores, times = rng.random(n), timed(n)
    outcomes = (rng.random(n) < 0.5 + 0.4 * np.sin(np.arange(n) / 400)).astype(float)  # what is new is worth most
    wait = np.where(outcomes == 1.0, 300, 100) * (1 + np.arange(n) // 20_000) + rng.integers(0, 30, n)
    log = {"times": times, "outcome_times": times + wait.astype("timedelta64[s]"), "methods": "auto"}
    whole = calibeat.backtest(scores, outcomes, **log).payload
    monkeypatch.setattr(row_reader, "CHUNK", 10_000)
    monkeypatch.setattr(row_reader, "LEAST_EVENTS", 20_000)
    cut = calibeat.backtest(scores, outcomes, **log).payload
    assert [row["method"] for row in cut["table"]] == [row["method"] for row in whole["table"]]
    age = whole["delay"]["ages"]["mature"]
    assert whole["table"][-1]["method"] == f"auto, mature {age}" and cut["delay"]["ages"]["mature"] == age
    said, shown = " ".join(whole["verdict"]["sentences"]), report.html(whole)
    assert "On this log that is no better" in said and "If you deploy AUTO, learn outcomes as they come." in said
    assert "hold each outcome back" not in said + shown and "Learn both at the same age" not in shown
    section = shown[shown.index('id="ages"') :][:600]
    assert f"By an age of {age} 95" in section and "learn outcomes as they come" in section
    assert set(re.findall(r"\b\d+(?:s|min|h)\b", said + section.split("</p>")[0])) == {age}


def test_without_auto_the_first_method_matures() -> None:
    scores, outcomes, times, known = clicks()
    payload = calibeat.backtest(scores, outcomes, times=times, outcome_times=known, methods="tops,ops").payload
    assert [method["label"] for method in payload["methods"]] == ["raw", "TOPS", "OPS", "TOPS, mature 30min"]
    payload = calibeat.backtest(scores, outcomes, times=times, outcome_times=known, methods="raw").payload
    assert [method["label"] for method in payload["methods"]] == ["raw"]
    assert "--mature 30min (mature='30min' in Python)" in " ".join(payload["verdict"]["sentences"])


def test_an_age_that_was_asked_for_is_not_replayed_twice() -> None:
    scores, outcomes, times, known = clicks()
    for mature, noticed in (("30min", False), ("10min", True)):
        payload = calibeat.backtest(
            scores, outcomes, times=times, outcome_times=known, methods="ops", mature=mature
        ).payload
        assert [method["name"] for method in payload["methods"]] == ["raw", "ops"]
        assert ("clearly different ages" in " ".join(payload["verdict"]["sentences"])) is noticed
        assert "reached the age" in " ".join(payload["data"]["notes"])
        assert "was old enough" in payload["delay"]["sentence"]


def ages(ones: Any, zeros: Any, step: int = 1_000_000) -> Any:
    delays = np.concatenate([ones, zeros]).astype(np.int64)
    clock = np.arange(len(delays)) * step
    outcomes = np.repeat([1.0, 0.0], [len(ones), len(zeros)])
    return ages_of(Chunk(np.full(len(delays), 0.5), outcomes, np.zeros(len(delays), np.int64), clock, clock + delays))


def test_the_rule() -> None:
    """Thirty of each; three pairs of four; four standard errors; ten forecasts between the medians."""
    soon, late = np.full(30, 10**6), np.full(30, 60 * 10**6)
    assert ages(soon, late).differ and ages(late, soon).differ
    assert ages(soon, late).share_later == 0.0 and ages(late, soon).share_later == 1.0
    assert not ages(soon[:29], late).differ and not ages(soon, late[:29]).differ
    assert not ages(soon, soon).differ and ages(soon, soon).share_later == 0.5
    assert not ages(soon, late, step=7_000_000).differ  # 59 seconds, a forecast every seven
    mixed = np.concatenate([np.full(160, 10**6), np.full(140, 60 * 10**6)])  # 77 % of pairs, then 70 %
    assert ages(mixed, np.full(300, 60 * 10**6)).share_later == pytest.approx(140 / 600)
    assert ages(mixed, np.full(300, 60 * 10**6)).differ
    assert not ages(mixed[40:], np.full(300, 60 * 10**6)).differ


def test_equal_distributions_are_not_noticed() -> None:
    rng = np.random.default_rng(0)
    assert not any(ages(rng.exponential(1e9, 40), rng.exponential(1e9, 4000)).differ for _ in range(200))


def test_the_age_is_one_that_people_type() -> None:
    for zero, typed in ((7 * 86_400, "7d"), (7 * 86_400 + 3, "169h"), (1000, "17min"), (1800, "30min"), (0.5, "500ms")):
        found = ages(np.full(30, 1000), np.full(30, zero * 1e6))
        assert found.maturity[1] == typed


def test_a_log_of_one_moment_has_no_pace() -> None:
    assert ages(np.full(30, 10**6), np.full(30, 60 * 10**6), step=0).differ
    assert not ages_of(Chunk(np.empty(0), np.empty(0), np.empty(0, np.int64))).differ


EVENTS = 1200
SCORES, OUTCOMES = drifting(EVENTS)


def test_delays_are_counted():
    times = np.arange(EVENTS) * 60
    result = calibeat.backtest(
        SCORES, OUTCOMES, times=times, outcome_times=times + 3600, methods=["ops"], warmup=100
    ).payload["delay"]
    assert result["unit"] == "time" and set(result["quantiles"].values()) == {3600.0}
    assert set(result["events_quantiles"].values()) == {59.0}
    assert (result["never"], result["too_late"]) == (0, 60) and "60 arrived after the last" in result["sentence"]
    assert sum(result["histogram"]["count"]) == EVENTS
    assert len(result["histogram"]["edges"]) == len(result["histogram"]["count"]) + 1
    at_once = calibeat.backtest(SCORES, OUTCOMES, methods=["ops"], warmup=100)
    assert result["immediate"]["ops"]["log_loss"] == at_once.table["log_loss"][1]
    assert result["immediate"]["ops"]["ce"] == at_once.table["ce"][1]
    assert at_once.payload["delay"] is None
    never = calibeat.backtest(SCORES[:50], OUTCOMES[:50], delay=10_000, methods=["ops"]).payload["delay"]
    assert never["too_late"] == 50 and never["quantiles"]["50%"] is None and "No outcome arrived" in never["sentence"]
    assert never["histogram"] == {"edges": [], "count": []}


def test_sizes_know_quantiles_to_a_percent_or_two():
    values = np.random.default_rng(0).lognormal(6, 2, 10_000).astype(np.int64)
    sizes = Sizes()
    for part in np.array_split(values, 3):
        sizes.count(part)
    for name, found in sizes.quantiles().items():
        assert found == pytest.approx(np.quantile(values, float(name[:-1]) / 100), rel=0.02, abs=1)
    edges, counts = sizes.histogram()
    np.testing.assert_array_equal(np.histogram(values, [*edges[:-1], np.inf])[0], counts)
    assert all(edge in {2.0**k - 1.0 for k in range(40)} for edge in edges)


@pytest.mark.parametrize("low", [0, 1, 9000])
def test_a_histogram_of_delays_has_more_than_two_bars(low):
    values = np.random.default_rng(0).integers(low, 2 * low + 20, 10_000)
    sizes = Sizes()
    sizes.count(values)
    edges, counts = sizes.histogram()
    np.testing.assert_array_equal(np.histogram(values, [*edges[:-1], np.inf])[0], counts)
    assert len(counts) >= 6 and edges == sorted(set(edges))


def test_delays_count_the_forecasts_in_between():
    for delay, said in ((1, "half did so with one forecast or fewer"), (20, "with 20 forecasts or fewer made")):
        found = calibeat.backtest(SCORES, OUTCOMES, methods="ops", delay=delay).payload["delay"]
        assert found["events_quantiles"]["50%"] == delay and said in found["sentence"]
        assert f"{delay + 1} arrived after the last forecast" in found["sentence"]
    times = np.arange(EVENTS)
    known, outcomes = times + 0.5, OUTCOMES.copy()
    known[-3:], outcomes[-3:] = np.nan, np.nan
    found = calibeat.backtest(SCORES, outcomes, times=times, outcome_times=known, methods="ops").payload["delay"]
    assert "with no forecast made meanwhile" in found["sentence"] and "3 have not arrived at all" in found["sentence"]
    assert (found["never"], found["too_late"]) == (3, 0)
