"""The engine: warm-up in outcomes, clocks that time no compiler, threads within the affinity mask."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat._util import cores
from calibeat.backtest.read import arrays, rows
from calibeat.backtest.replay import engine
from calibeat.stream import history


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
    monkeypatch.setattr(arrays, "CHUNK", 7000)
    monkeypatch.setattr(rows, "CHUNK", 7000)
    assert calibeat.backtest(scores, outcomes, methods="raw").payload["data"] == whole


def test_no_method_is_charged_for_the_compiler(monkeypatch):
    """Whatever the first call of a kernel costs is spent before the clocks run."""
    real, called = engine.Replay.feed, []

    def slow_at_first(self, *arguments):
        kind = arguments[1] is None
        if kind not in called:
            called.append(kind)
            until = time.thread_time() + 0.5
            while time.thread_time() < until:
                pass
        return real(self, *arguments)

    monkeypatch.setattr(engine.Replay, "feed", slow_at_first)
    scores, outcomes = drifting(300)
    for options in ({}, {"delay": 3}):
        called.clear()
        result = calibeat.backtest(scores, outcomes, ["a", "b"] * 150, methods="ops", **options)
        assert called and max(method["seconds"] for method in result.payload["methods"]) < 0.4


def test_no_method_is_charged_for_the_compiler_of_refits(monkeypatch):
    real, called = history.History.refit, []

    def slow_at_first(self, *arguments):
        if not called:
            until = time.thread_time() + 0.5
            while time.thread_time() < until:
                pass
        called.append(self)
        return real(self, *arguments)

    monkeypatch.setattr(history.History, "refit", slow_at_first)
    scores, outcomes = drifting(300)
    once = calibeat.Method(calibeat.Platt(), calibeat.Fixed(after=100))
    result = calibeat.backtest(scores, outcomes, methods={"once": once})
    assert len(called) == 2 and max(method["seconds"] for method in result.payload["methods"]) < 0.4


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity mask")
def test_threads_respect_the_affinity_mask(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert cores.usable_cores() == 2
    asked = []
    real = engine.ThreadPoolExecutor
    monkeypatch.setattr(engine, "ThreadPoolExecutor", lambda workers: asked.append(workers) or real(workers))
    scores, outcomes = drifting(100)
    calibeat.backtest(scores, outcomes)
    assert asked == [2]
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores.usable_cores() == 64
