"""The replay has the bits of `Calibrator.run` however the log is cut, one row a key, and no outcome before its time.

Warm-up is counted in outcomes, threads respect the affinity mask.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from streams import drifting, variants

import calibeat
from calibeat import AUTO, HOPS, OPS, SWPS, TOPS, Calibrator
from calibeat._util import processes
from calibeat._util.times import NEVER
from calibeat.backtest.read import rows as row_reader
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay import engine
from calibeat.backtest.replay.contenders import Context, MethodReplay
from calibeat.backtest.replay.late import Underway
from calibeat.core.method import PRESETS
from calibeat.core.randomness import stream_key, uniforms

N = 240
SCORES, OUTCOMES = drifting(N)
SIZES = (5, 64, N)
KEY = stream_key(0, 0)


def replayed(method, size, clock=None, arrivals=None, outcomes=OUTCOMES, marks=False):
    """The forecasts of one stream, cut into chunks of a size."""
    replay, underway, said = MethodReplay(method), Underway(), []
    draws = uniforms(KEY, 0, N)
    for at in range(0, N, size):
        part = slice(at, at + size)
        n = len(SCORES[part])
        late = (None, None) if clock is None else (clock[part], arrivals[part])
        chunk = Chunk(SCORES[part], outcomes[part], np.zeros(n, dtype=np.int64), *late)
        plan = None if clock is None else underway.plan(chunk)
        places = np.arange(0, n, 3) if marks else np.empty(0, dtype=np.int64)
        said.append(replay.feed(Context(chunk, plan, draws[part], 1, places)))
    return np.concatenate(said), replay


def late_log(seed=0):
    """Times with ties, and outcomes that arrive before, at and after later events, and some never."""
    rng = np.random.default_rng(seed)
    clock = np.sort(rng.integers(0, N // 2, N))
    arrivals = clock + rng.integers(-2, 40, N)
    arrivals[rng.random(N) < 0.1] = NEVER
    due = np.maximum(np.searchsorted(clock, arrivals), np.arange(N) + 1)
    return clock, arrivals, np.where(arrivals == NEVER, N, due)


@pytest.mark.parametrize("name", variants())
def test_outcomes_at_once_have_the_bits_of_run(name):
    method = variants()[name]
    told = Calibrator(method).run(SCORES, OUTCOMES)
    for size in SIZES:
        np.testing.assert_array_equal(replayed(method, size)[0], told)


def in_order_of_arrival(due, arrivals):
    """Outcomes as they are learnt: before the forecast that is due, by arrival, equal arrivals by row."""
    return sorted(np.flatnonzero(due < N).tolist(), key=lambda i: (due[i], arrivals[i], i))


def one_by_one(calibrators, due, arrivals, last=N):
    """The forecasts of whoever predicts and updates event after event; `calibrators` has one for each event."""
    receipts, order = [], in_order_of_arrival(due, arrivals)
    for i in range(last):
        while order and due[order[0]] <= i:
            j = order.pop(0)
            calibrators[j].update(receipts[j], int(OUTCOMES[j]))
        receipts.append(calibrators[i].predict(float(SCORES[i])))
    return np.array([float(receipt) for receipt in receipts])


@pytest.mark.parametrize("name", variants())
def test_late_outcomes_are_learnt_as_they_arrive(name):
    method = variants()[name]
    clock, arrivals, due = late_log()
    told = one_by_one([Calibrator(method)] * N, due, arrivals)
    for size in SIZES:
        np.testing.assert_array_equal(replayed(method, size, clock, arrivals)[0], told)


def test_outcomes_between_two_forecasts_are_learnt_in_the_order_of_arrival():
    """Three forecasts at once, whose outcomes arrive in another order before the fourth; equal ones by row."""
    times, known, outcomes = np.array([0, 0, 0, 100]), np.array([30, 10, 10, 101]), np.array([1, 0, 1, 0])
    scores = np.array([0.9, 0.4, 0.7, 0.5])
    for method in (OPS, TOPS, AUTO):
        cal = Calibrator(method)
        receipts = [cal.predict(float(score)) for score in scores[:3]]
        for i in (1, 2, 0):
            cal.update(receipts[i], int(outcomes[i]))
        expected = float(cal.predict(0.5))
        found = calibeat.backtest(
            scores, outcomes, times=times, outcome_times=known, methods={"it": method}, keep_forecasts=True, warmup=0
        )
        assert found.forecasts["it"][3] == expected


def test_rows_are_noted_before_the_marked_events():
    _, replay = replayed(OPS, 60, marks=True)
    cal = Calibrator(OPS)
    cal.run(SCORES[:3], OUTCOMES[:3])
    np.testing.assert_array_equal(replay.trail[1], cal.row)
    assert len(replay.trail) == N // 3
    clock, arrivals, due = late_log()
    _, late = replayed(OPS, 60, clock, arrivals, marks=True)
    cal = Calibrator(OPS)
    one_by_one([cal] * N, due, arrivals, last=31)
    np.testing.assert_array_equal(late.trail[10][2:], cal.row[2:])  # what was learnt before event 30


def test_waiting_is_counted_in_forecasts():
    clock, arrivals, due = late_log()
    underway, waited = Underway(), []
    for at in range(0, N, 50):
        part = slice(at, at + 50)
        n = len(clock[part])
        underway.plan(Chunk(SCORES[part], OUTCOMES[part], np.zeros(n, dtype=np.int64), clock[part], arrivals[part]))
        waited += underway.waited.tolist()
    assert sorted(waited) == sorted((due - np.arange(N))[due < N].tolist())
    assert len(underway) == np.count_nonzero((due >= N) & (arrivals != NEVER))
    with pytest.raises(TypeError, match="clock"):
        underway.plan(Chunk(SCORES, OUTCOMES, np.zeros(N, dtype=np.int64)))


# ---- the whole engine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [50, 100_000])
def test_backtest_forecasts_as_run_does(size, monkeypatch):
    monkeypatch.setattr(row_reader, "CHUNK", size)
    monkeypatch.setattr(row_reader, "FIRST_EVENTS", 0)
    names = ["auto", "hops", "swps", "f99"]
    result = calibeat.backtest(SCORES, OUTCOMES, methods=names, keep_forecasts=True, warmup=20)
    for name in names:
        np.testing.assert_array_equal(result.forecasts[name], Calibrator(PRESETS[name]).run(SCORES, OUTCOMES))
    np.testing.assert_array_equal(result.forecasts["raw"], SCORES)
    late = calibeat.backtest(SCORES, OUTCOMES, methods=names, keep_forecasts=True, warmup=20, delay=9)
    due = np.arange(N) + 10
    for name in names:
        np.testing.assert_array_equal(late.forecasts[name], Calibrator(PRESETS[name]).run(SCORES, OUTCOMES, due=due))


@pytest.mark.parametrize("method", [OPS, TOPS, HOPS, AUTO])
@pytest.mark.parametrize("size", [60, 100_000])
def test_every_key_is_a_calibrator_of_its_own(method, size, monkeypatch):
    monkeypatch.setattr(row_reader, "CHUNK", size)
    monkeypatch.setattr(row_reader, "FIRST_EVENTS", 0)
    rng = np.random.default_rng(1)
    keys = rng.choice(["a", "b", "c", "d"], N, p=[0.6, 0.3, 0.08, 0.02])
    result = calibeat.backtest(SCORES, OUTCOMES, keys, methods={"it": method}, keep_forecasts=True, warmup=10)
    told = np.empty(N)
    for key in np.unique(keys):
        told[keys == key] = Calibrator(method, stream=str(key)).run(SCORES[keys == key], OUTCOMES[keys == key])
    np.testing.assert_array_equal(result.forecasts["it"], told)
    # with late outcomes: whoever predicts and updates one by one in the order of arrival
    clock, arrivals, due = late_log()
    missing = arrivals == NEVER
    arrivals = np.maximum(arrivals, clock)  # what is known before its event is refused
    outcomes = np.where(missing, np.nan, OUTCOMES)
    late = calibeat.backtest(
        SCORES,
        outcomes,
        keys,
        clock,
        np.where(missing, np.nan, arrivals),
        methods={"it": method},
        keep_forecasts=True,
        warmup=10,
    )
    calibrators = {key: Calibrator(method) for key in np.unique(keys)}
    told = one_by_one([calibrators[key] for key in keys], due, arrivals)
    np.testing.assert_array_equal(late.forecasts["it"], told)


@pytest.mark.parametrize("name", ["auto", "tops", "hops", "swps"])
def test_no_forecast_knows_an_outcome_before_its_time(name):
    """Whatever an outcome is, what was forecast before it arrived stays."""
    clock, arrivals, due = late_log()
    arrivals = np.maximum(np.where(arrivals == NEVER, clock + 30, arrivals), clock)
    due = np.maximum(np.searchsorted(clock, arrivals), np.arange(N) + 1)
    told = calibeat.backtest(SCORES, OUTCOMES, times=clock, outcome_times=arrivals, methods=[name], keep_forecasts=True)
    for i in (0, 57, 130):
        other = OUTCOMES.copy()
        other[i] = 1.0 - other[i]
        retold = calibeat.backtest(
            SCORES, other, times=clock, outcome_times=arrivals, methods=[name], keep_forecasts=True
        )
        np.testing.assert_array_equal(told.forecasts[name][: due[i]], retold.forecasts[name][: due[i]])
        if name == "auto":
            assert not np.array_equal(told.forecasts[name][due[i] :], retold.forecasts[name][due[i] :])


def test_methods_that_look_back_are_left_out_where_there_are_keys():
    result = calibeat.backtest(SCORES, OUTCOMES, ["x", "y"] * (N // 2), methods=["ops", "swps"])
    assert result.table["method"].tolist() == ["raw", "ops", "OPS without keys", "OPS with a pooled start"]
    assert any("SWPS left out" in note for note in result.payload["data"]["notes"])
    assert SWPS.needs_history


def test_the_default_warm_up_is_counted_in_outcomes():
    """Few outcomes among many events: it must not be larger than what there is to judge."""
    rng = np.random.default_rng(0)
    for events, labels in ((1000, 40), (25_000, 962)):
        scores = rng.random(events)
        outcomes, known = np.full(events, np.nan), np.full(events, np.nan)
        which = rng.choice(events, labels, replace=False)
        outcomes[which], known[which] = rng.random(labels) < scores[which], which + 1.0
        data = calibeat.backtest(scores, outcomes, times=np.arange(events), outcome_times=known, methods="ops").payload[
            "data"
        ]
        among = np.count_nonzero(which < 20_000)
        assert (data["warmup"], data["judged"]) == (among // 20, labels - among // 20)


def test_the_default_warm_up_does_not_depend_on_how_a_log_is_cut(monkeypatch):
    scores, outcomes = drifting(24_000)
    whole = calibeat.backtest(scores, outcomes, methods="raw").payload["data"]
    assert whole["warmup"] == 1000
    monkeypatch.setattr(row_reader, "CHUNK", 7000)
    assert calibeat.backtest(scores, outcomes, methods="raw").payload["data"] == whole


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity mask")
def test_threads_respect_the_affinity_mask(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert processes.usable_cores() == 2
    asked = []
    real = engine.ThreadPoolExecutor
    monkeypatch.setattr(engine, "ThreadPoolExecutor", lambda workers: asked.append(workers) or real(workers))
    scores, outcomes = drifting(100)
    calibeat.backtest(scores, outcomes)
    assert asked == [2]
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processes.usable_cores() == 64
