"""Monitors along a replay: the alarms of one monitor, a trail that stays short, the same however the log is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from calibeat import Monitor
from calibeat.backtest.judge.watch import MOST_POINTS, Watch
from calibeat.backtest.read.batch import Chunk

N, BREAK = 3000, 1800
RNG = np.random.default_rng(1)
SCORES = RNG.uniform(0.05, 0.95, N)
OUTCOMES = (RNG.random(N) < np.where(np.arange(N) < BREAK, SCORES, 0.5 * SCORES)).astype(float)
PLACE = np.ones(N, dtype=np.int64)


def chunk(part=slice(None), outcomes=OUTCOMES, times=None):
    s = SCORES[part]
    return Chunk(s, outcomes[part], np.zeros(len(s), dtype=np.int64), times=None if times is None else times[part])


def watched(cuts=(), **more):
    watch = Watch(arl=10_000)
    edges = [0, *cuts, N]
    for a, b in pairwise(edges):
        part = slice(a, b)
        watch.add(chunk(part, **more), {"raw": SCORES[part], "half": 0.5 * SCORES[part]}, PLACE[part])
    return watch


def test_the_alarms_are_those_of_one_monitor():
    watch, monitor = watched(), Monitor(arl=10_000)
    alarms = monitor.run(SCORES, OUTCOMES, SCORES)
    trail = watch.trails["raw"]
    assert [alarm for alarm, _ in trail.alarms] == alarms and trail.monitor.counts == monitor.counts
    first, at = trail.alarms[0]
    assert at == first.at > BREAK and first.what == "too high" and first.page
    assert abs(trail.axis_of(first.since) - first.since) <= 2 * trail.stride
    assert np.array_equal(trail.monitor.row, monitor.row)


def test_the_trail_is_short_and_shows_every_alarm():
    trail = watched().trails["raw"]
    outcomes, axis, level, gain, low, high = map(np.array, zip(*trail.points, strict=True))
    assert len(outcomes) < MOST_POINTS and trail.stride == 16 and outcomes[0] == 16
    assert np.array_equal(outcomes, axis) and np.all(np.diff(outcomes) == 16)
    assert level.max() == 1.0 and np.all((level >= 0.0) & (level <= 1.0))
    assert np.all((low <= gain) & (gain <= high))


def test_however_the_log_is_cut_the_trail_is_the_same():
    whole, cut = watched(), watched((1, 700, 1999))
    for name in whole.trails:
        assert whole.trails[name].alarms == cut.trails[name].alarms
        assert whole.trails[name].points == cut.trails[name].points


def test_events_without_an_outcome_are_not_read_and_times_are_the_axis():
    outcomes = OUTCOMES.copy()
    outcomes[::3] = np.nan
    times = 1_000_000 * np.arange(N)
    trail = watched(outcomes=outcomes, times=times).trails["raw"]
    assert trail.monitor.outcomes == 2000
    at, axis = trail.points[-1][:2]
    assert axis == times[~np.isnan(outcomes)][at - 1]
