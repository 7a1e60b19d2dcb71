"""Monitors along a replay: the alarms of one monitor, a trail that stays short, the same however the log is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import calibeat
from calibeat import Monitor
from calibeat.backtest.judge import paging as module
from calibeat.backtest.judge.paging import MOST_POINTS, Trails
from calibeat.backtest.read.rows import Chunk

N, BREAK = 3000, 1800
RNG = np.random.default_rng(1)
SCORES = RNG.uniform(0.05, 0.95, N)
OUTCOMES = (RNG.random(N) < np.where(np.arange(N) < BREAK, SCORES, 0.5 * SCORES)).astype(float)
PLACE = np.ones(N, dtype=np.int64)


def chunk(part=slice(None), outcomes=OUTCOMES, times=None):
    s = SCORES[part]
    return Chunk(s, outcomes[part], np.zeros(len(s), dtype=np.int64), times=None if times is None else times[part])


def watched(cuts=(), **more):
    watch = Trails(arl=10_000)
    edges = [0, *cuts, N]
    for a, b in pairwise(edges):
        part = slice(a, b)
        watch.add(chunk(part, **more), {"raw": SCORES[part], "half": 0.5 * SCORES[part]}, PLACE[part])
    return watch


def test_the_alarms_are_those_of_one_monitor():
    watch, monitor = watched(), Monitor(arl=10_000)
    alarms = monitor.run(SCORES, OUTCOMES, SCORES)
    trail = watch.trails["raw"]
    assert trail.monitor.alarms == alarms and trail.monitor.counts == monitor.counts == (len(alarms), 1)
    (episode,) = trail.episodes
    assert episode.first == alarms[0] and episode.at == alarms[0].at > BREAK and episode.first.what == "too high"
    assert episode.alarms == len(alarms) and episode.last == alarms[-1].at and episode.heard is None
    assert abs(trail.axis_of(alarms[0].since) - alarms[0].since) <= 2 * trail.stride
    assert np.array_equal(trail.monitor.row, monitor.row)


def test_the_trail_is_short_and_shows_every_alarm(monkeypatch):
    monkeypatch.setattr(module, "FIRST_STRIDE", 2)
    trail = watched().trails["raw"]
    outcomes, axis, level, gain, low, high = map(np.array, zip(*trail.path, strict=True))
    assert len(outcomes) < MOST_POINTS and trail.stride == 16 and outcomes[0] == 16 and outcomes[-1] == N
    assert np.array_equal(outcomes, axis) and np.all(np.diff(outcomes)[:-1] == 16)
    assert level.max() == 1.0 and np.all((level >= 0.0) & (level <= 1.0))
    assert np.all((low <= gain) & (gain <= high))


def test_however_the_log_is_cut_the_trail_is_the_same():
    whole, cut = watched(), watched((1, 700, 1999))
    for name in whole.trails:
        assert whole.trails[name].episodes == cut.trails[name].episodes
        assert whole.trails[name].points == cut.trails[name].points


def test_events_without_an_outcome_are_not_read_and_times_are_the_axis():
    outcomes = OUTCOMES.copy()
    outcomes[::3] = np.nan
    times = 1_000_000 * np.arange(N)
    trail = watched(outcomes=outcomes, times=times).trails["raw"]
    assert trail.monitor.outcomes == 2000
    assert trail.stride == 128 and len(trail.points) == 2000 // 128
    at, axis = trail.path[-1][:2]
    assert axis == times[~np.isnan(outcomes)][at - 1]


def test_many_episodes_keep_their_first_and_their_latest(monkeypatch):
    """An arl of 20 outcomes and a quiet of 5: the raw score pages again and again."""
    monkeypatch.setattr(module, "Monitor", lambda **_: Monitor(arl=20, warm=0, quiet=5))
    monkeypatch.setattr(module, "MOST_EPISODES", 4)
    watch = Trails()
    watch.add(chunk(), {"raw": np.full(N, 0.9)}, PLACE)
    trail = watch.trails["raw"]
    paged = [alarm for alarm in trail.monitor.alarms if alarm.page]
    assert len(paged) > 4 and len(trail.episodes) == 4
    assert trail.episodes[0].first == paged[0] and trail.episodes[-1].first == paged[-1]
    told = watch.for_report("raw", {"raw": "raw"})
    assert told["methods"]["raw"]["pages"] == len(paged) and len(told["methods"]["raw"]["shown"]) == 4


def test_the_path_ends_where_the_log_does():
    watch = Trails()
    watch.add(chunk(slice(0, 256)), {"raw": SCORES[:256]}, PLACE[:256])
    assert [point[0] for point in watch.trails["raw"].path] == [128, 256]
    watch.add(chunk(slice(256, 300)), {"raw": SCORES[256:300]}, PLACE[256:300])
    assert [point[:2] for point in watch.trails["raw"].path] == [(128, 128), (256, 256), (300, 300)]


# ---- who has a monitor -----------------------------------------------------------------------------------------------


def test_the_raw_score_auto_and_the_leader_have_monitors():
    forecasts = {"raw": SCORES, "auto": 0.9 * SCORES, "good": 0.8 * SCORES, "bad": 1.0 - SCORES}
    watch = Trails(named="auto")
    watch.add(chunk(), forecasts, PLACE)
    assert list(watch.trails) == ["raw", "auto", "good"]
    only = Trails(named="auto")
    only.add(chunk(slice(0, BREAK)), {"raw": SCORES[:BREAK]}, PLACE[:BREAK])
    assert list(only.trails) == ["raw"]
    told = watch.for_report("auto", _labels(forecasts))["sentence"]
    assert told == "A monitor of AUTO would have paged once. A monitor of the raw score would have paged once."
    assert only.for_report("raw", {"raw": "raw"})["sentence"] == "A monitor of the raw score would have paged nobody."
    assert "BAD had no monitor" in watch.for_report("bad", _labels(forecasts))["sentence"]


def _labels(names):
    return {name: name if name == "raw" else name.upper() for name in names}


def test_before_the_warm_up_ends_all_outcomes_tell_who_leads():
    watch = Trails()
    watch.add(chunk(), {"raw": SCORES, "bad": 1.0 - SCORES, "good": 0.8 * SCORES}, np.zeros(N, dtype=np.int64))
    assert list(watch.trails) == ["raw", "good"]


# ---- in a backtest ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paging():
    rng = np.random.default_rng(3)
    n, at = 6000, 4000
    scores = rng.uniform(0.05, 0.95, n)
    outcomes = (rng.random(n) < np.where(np.arange(n) < at, scores, 0.4 * scores)).astype(float)
    return scores, outcomes, calibeat.backtest(scores, outcomes, methods="ops").payload["paging"]


def test_a_backtest_tells_who_would_have_been_paged(paging):
    scores, outcomes, told = paging
    monitor = Monitor()
    alarms = monitor.run(scores, outcomes, scores)
    raw = told["methods"]["raw"]
    assert (raw["alarms"], raw["pages"]) == monitor.counts and raw["pages"] >= 1
    assert told["by"] == "event" and told["arl"] == 1_000_000 and told["outcomes"] == 6000
    first = raw["shown"][0]
    assert first["at"] == alarms[0].at and first["what"] == alarms[0].what.split(" from ")[0]
    assert (first["low"], first["high"]) == (alarms[0].low, alarms[0].high)
    assert abs(first["since"] - alarms[0].since) <= 256 and first["since"] <= first["at"]
    assert first["heard"] is None  # outcomes came at once
    assert raw["gain"] == [0.0, 0.0, 0.0]
    assert max(raw["level"]) == 1.0 and len(raw["x"]) == len(raw["level"]) == len(raw["gains"])


def test_late_outcomes_are_read_in_the_order_of_forecasts(paging):
    """Ones come at once, zeros much later: by arrival the monitor would page for nothing; here nothing changes."""
    scores, outcomes, told = paging
    times = np.arange(len(scores), dtype=float)
    known = times + np.where(outcomes == 1.0, 1.0, 900.0)
    late = calibeat.backtest(scores, outcomes, times=times, outcome_times=known, methods="ops").payload["paging"]
    raw, before = late["methods"]["raw"], told["methods"]["raw"]
    assert (raw["alarms"], raw["pages"], raw["level"]) == (before["alarms"], before["pages"], before["level"])
    assert [page["at"] for page in raw["shown"]] == [page["at"] for page in before["shown"]]


def test_a_page_is_heard_when_its_last_outcome_has_arrived(paging):
    scores, outcomes, told = paging
    at = told["methods"]["raw"]["shown"][0]["at"]
    by_events = calibeat.backtest(scores, outcomes, delay=500, methods="ops").payload["paging"]
    assert by_events["methods"]["raw"]["shown"][0]["heard"] == at + 500
    start = np.datetime64("2026-01-01T00:00:00")
    times = start + np.arange(len(scores)).astype("timedelta64[m]")
    known = times + np.where(np.arange(len(scores)) == 17, 10_000, 30).astype("timedelta64[m]")
    dated = calibeat.backtest(scores, outcomes, times=times, outcome_times=known, methods="ops").payload["paging"]
    page = dated["methods"]["raw"]["shown"][0]
    assert dated["by"] == "time" and page["at"] == str(times[at - 1])
    assert page["heard"] == str(known[17])  # everybody waits for one outcome
