"""Every method equals the paper transcribed naively, to 1e-12, on every kind of stream, immediate and late."""

from __future__ import annotations

from typing import Any

import golden
import numpy as np
import oracle
import pytest
from conformance import delays
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import STREAMS, variants

from calibeat import FTL, ONS, Beta, Calibrator, Fixed, Hedging, Histogram, Method, Platt, Tracking, metrics
from calibeat.core.algebra import project
from calibeat.core.randomness import stream_key, uniforms

METHODS = [name for name, method in variants().items() if not (method.mixes or method.guard)]
GRID = [(name, stream, late) for name in METHODS for stream in STREAMS for late in (False, True)]
# Each method meets a quarter of the streams, at once and late, and each stream a quarter of the methods.
SAMPLE = [
    (name, stream, late)
    for at, name in enumerate(METHODS)
    for place, stream in enumerate(STREAMS)
    for late in (False, True)
    if (at + place + 2 * late) % 4 == 0
]


@pytest.mark.parametrize(("name", "stream", "late"), SAMPLE)
def test_equal_to_the_oracle(name: str, stream: str, late: bool) -> None:
    compare_on_a_stream(name, stream, late)


@pytest.mark.parametrize(("name", "stream", "late"), [case for case in GRID if case not in SAMPLE])
def test_equal_to_the_oracle_on_all_other_streams(name: str, stream: str, late: bool) -> None:
    compare_on_a_stream(name, stream, late)


@pytest.mark.parametrize("stem", golden.STREAMS)
def test_equal_to_the_oracle_on_the_golden_streams(stem: str) -> None:
    """On the beginning of longer ones, for the naive code is slow: every recursion is causal."""
    g = golden.load(stem)
    scores, outcomes = g["scores"][:3000], g["y"][:3000].astype(float)
    methods = [
        Method(Platt(start=(0.0, 0.0)), ONS(), Tracking(prior=1.0)),
        Method(Beta(start=(0.0, 0.0, 0.0)), ONS(rho=25.0), Hedging()),
        Method(None, None, Tracking(bins=20)),
        Method(None, None, Hedging(bins=5)),
    ]
    if stem in golden.BATCHED:
        every, after = int(g["spacing"]), int(g["n_val"])
        methods += [
            Method(Platt(), FTL(every, after)),
            Method(Beta(), Fixed(after)),
            Method(Histogram(), FTL(every, after)),
        ]
    for method in methods:
        compare(method, scores, outcomes, seed=4)


def compare_on_a_stream(name: str, stream: str, late: bool) -> None:
    scores, outcomes = STREAMS[stream]()
    compare(variants()[name], scores, outcomes, delays(len(scores)) if late else None, seed=4)


def compare(method: Method, scores: Any, outcomes: Any, due: Any = None, seed: int = 0) -> None:
    forecasts = Calibrator(method, seed=seed).run(scores, outcomes, due=due)
    draws = uniforms(stream_key(seed, 0), 0, len(scores))
    naive = oracle.run(method, scores, outcomes, due=due, draws=draws)
    np.testing.assert_allclose(forecasts, naive.forecasts, rtol=0, atol=1e-12)


unit = st.floats(0.0, 1.0)
events = st.lists(st.tuples(unit, st.booleans(), st.integers(1, 9)), min_size=1, max_size=60)


@pytest.mark.parametrize("name", ["ops", "obs", "tops", "hobs", "aioli", "ogd in a small ball"])
@given(events=events)
def test_equal_to_the_oracle_whatever_comes(name: str, events: list[tuple[float, bool, int]]) -> None:
    compare_events(variants()[name], events)


@pytest.mark.parametrize(
    "method",
    [Method(Platt(), FTL(every=9, after=11, window=20)), Method(Histogram(bins=4), FTL(every=3, after=5))],
    ids=["swps", "whb"],
)
@settings(max_examples=15)  # the naive fit of separable events takes its time
@given(events=events)
def test_refits_equal_the_oracle_whatever_comes(method: Method, events: list[tuple[float, bool, int]]) -> None:
    compare_events(method, events)


def compare_events(method: Method, events: list[tuple[float, bool, int]]) -> None:
    scores, outcomes, delay = map(np.array, zip(*events, strict=True))
    compare(method, scores, outcomes.astype(float), np.arange(len(scores)) + delay)


@given(
    entries=st.lists(st.floats(-3, 3), min_size=9, max_size=9),
    point=st.lists(st.floats(-50, 50), min_size=3, max_size=3),
    d=st.sampled_from([1, 2, 3]),
    radius=st.floats(0.1, 20.0),
)
def test_projection_equals_the_oracle(entries: list[float], point: list[float], d: int, radius: float) -> None:
    root = np.array(entries).reshape(3, 3)[:d, :d]
    A = root @ root.T + 0.1 * np.eye(d)
    padded = np.zeros((3, 3))
    padded[:d, :d] = A
    theta = project(d, *padded[np.triu_indices(3)].tolist(), *(point[:d] + [0.0] * (3 - d)), radius)[:d]
    np.testing.assert_allclose(theta, oracle.project(np.array(point[:d]), A, radius), rtol=0, atol=1e-9)
    assert np.linalg.norm(theta) <= radius * (1 + 1e-15)


@given(st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=50), st.sampled_from([1, 3, 10, 20]))
def test_metrics_equal_the_oracle(pairs: list[tuple[float, bool]], bins: int) -> None:
    p, y = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    for ours, naive in (
        (metrics.calibration_error, oracle.calibration_error),
        (metrics.sharpness, oracle.sharpness),
        (metrics.refinement, oracle.refinement),
    ):
        assert ours(y, p, bins) == pytest.approx(naive(y, p, bins), abs=1e-12)
    assert metrics.brier_score(y, p) == pytest.approx(oracle.brier(y, p), abs=1e-15)
