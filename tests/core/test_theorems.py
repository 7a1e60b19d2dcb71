"""The paper's theorems, held against any sequence that Hypothesis finds and against an adversary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibeat import (
    AIOLI,
    HOPS,
    OBS,
    OGD,
    ONS,
    OPS,
    TOPS,
    Calibrator,
    Forecast,
    Hedging,
    Method,
    Platt,
    Tracking,
    bounds,
    metrics,
)

Vector = NDArray[np.float64]

# Theorem 2.1 speaks of scores in [0.01, 0.99] and T >= 10.
inner_events = st.lists(st.tuples(st.floats(0.01, 0.99), st.booleans()), min_size=10, max_size=200)
events = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=200)


def columns(pairs: list[tuple[float, bool]]) -> tuple[Vector, Vector]:
    scores, outcomes = zip(*pairs, strict=True)
    return np.array(scores), np.array(outcomes, dtype=float)


def against_adversary(
    method: Method, n: int, answer: Callable[[Forecast], bool], seed: int = 0
) -> tuple[Vector, Vector, Vector, Vector]:
    """Scores, outcomes, experts and forecasts of a run in which the outcome is chosen after seeing the forecast."""
    scores = np.random.default_rng(3).uniform(0.01, 0.99, n)
    calibrator, outcomes, experts, forecasts = Calibrator(method, seed=seed), np.empty(n), np.empty(n), np.empty(n)
    for i, score in enumerate(scores.tolist()):
        forecast = calibrator.predict(score)
        experts[i], forecasts[i], outcomes[i] = forecast.expert, forecast.probability, answer(forecast)
        calibrator.update(forecast, int(outcomes[i]))
    return scores, outcomes, experts, forecasts


def opposite(forecast: Forecast) -> bool:
    """y = 1{p <= 0.5}"""
    return forecast.probability <= 0.5


def opposite_in_the_mean(forecast: Forecast) -> bool:
    """The same for a hedging forecaster, whose distribution the adversary sees but not the draw."""
    return sum(point * share for point, share in forecast.candidates) <= 0.5


# ---- regret ------------------------------------------------------------------------------------------------------

LEARNERS: dict[str, tuple[Callable[[float], ONS | AIOLI | OGD], Callable[[float, int], float]]] = {
    "ons": (ONS.of_theorem, bounds.ons_regret),
    "aioli": (AIOLI.of_theorem, bounds.aioli_regret),
    "ogd": (lambda B: OGD(radius=B, diameter=2 * B, gradient=5.0), bounds.ogd_regret),
}


@pytest.mark.parametrize("name", LEARNERS)
@given(pairs=inner_events, B=st.floats(1.0, 4.0))
def test_regret_of_any_sequence(name: str, pairs: list[tuple[float, bool]], B: float) -> None:
    learner, bound = LEARNERS[name]
    scores, outcomes = columns(pairs)
    forecasts = Calibrator(Method(Platt(), learner(B))).run(scores, outcomes)
    assert metrics.regret(Platt(), scores, outcomes, forecasts, radius=B) <= bound(B, len(scores))


@pytest.mark.parametrize("B", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("name", LEARNERS)
def test_regret_against_the_adversary(name: str, B: float) -> None:
    learner, bound = LEARNERS[name]
    scores, outcomes, _, forecasts = against_adversary(Method(Platt(), learner(B)), 2000, opposite)
    assert metrics.regret(Platt(), scores, outcomes, forecasts, radius=B) <= bound(B, 2000)


@given(pairs=inner_events)
def test_the_papers_own_hyper_parameters_keep_the_bound_too(pairs: list[tuple[float, bool]]) -> None:
    scores, outcomes = columns(pairs)
    forecasts = Calibrator(OPS).run(scores, outcomes)
    assert metrics.regret(OPS, scores, outcomes, forecasts, radius=1.0) <= bounds.ons_regret(1.0, len(scores))


def test_regret_is_measured_against_the_best_of_the_ball() -> None:
    scores = np.random.default_rng(1).uniform(0.01, 0.99, 500)
    outcomes = (scores > np.random.default_rng(2).uniform(0.3, 0.7, 500)).astype(float)  # steeper than the identity
    forecasts = Calibrator(OBS).run(scores, outcomes)
    values = [metrics.regret(OBS, scores, outcomes, forecasts, radius=B) for B in (0.1, 1.0, 3.0, 100.0)]
    assert values == sorted(values)  # a larger ball has better parameters in it
    theta = metrics.best_parameters(OBS, scores, outcomes, radius=1.0)
    assert np.linalg.norm(theta) == pytest.approx(1.0, abs=1e-9)
    for nudge in np.random.default_rng(0).normal(0, 1e-3, (50, 3)):
        other = np.array(theta) + nudge
        other *= min(1.0, 1.0 / np.linalg.norm(other))
        forced = Calibrator(Method(type(OBS.features)(start=tuple(other)), None)).predict_many(scores)
        assert metrics.regret(OBS, scores, outcomes, forced, radius=1.0) >= -1e-9


# ---- calibeating -------------------------------------------------------------------------------------------------


@given(pairs=events, bins=st.sampled_from([2, 5, 10, 20]))
def test_tracking_keeps_sharpness(pairs: list[tuple[float, bool]], bins: int) -> None:
    scores, outcomes = columns(pairs)
    experts = Calibrator(OPS).run(scores, outcomes)
    forecasts = Calibrator(Method(TOPS.features, TOPS.learner, Tracking(bins=bins))).run(scores, outcomes)
    loss = bounds.tops_sharpness(1 / bins, len(scores))
    assert metrics.sharpness(outcomes, forecasts, bins) >= metrics.sharpness(outcomes, experts, bins) - loss - 1e-12


def test_tracking_keeps_sharpness_against_the_adversary() -> None:
    _, outcomes, experts, forecasts = against_adversary(TOPS, 3000, opposite)
    loss = bounds.tops_sharpness(0.1, 3000)
    assert metrics.sharpness(outcomes, forecasts) >= metrics.sharpness(outcomes, experts) - loss


def hedged(method: Method, scores: Vector, outcomes: Vector, runs: int) -> NDArray[np.float64]:
    return np.array([Calibrator(method, seed=seed).run(scores, outcomes) for seed in range(runs)])


@settings(max_examples=25)
@given(pairs=events, bins=st.sampled_from([2, 5, 10]), start=st.sampled_from(["expert", "first"]))
def test_hedging_in_expectation(pairs: list[tuple[float, bool]], bins: int, start: str) -> None:
    scores, outcomes = columns(pairs)
    experts = Calibrator(OPS).run(scores, outcomes)
    method = Method(HOPS.features, HOPS.learner, Hedging(bins=bins, start=start))
    forecasts = hedged(method, scores, outcomes, runs=20)
    hold_in_expectation(outcomes, experts, list(forecasts), bins)


def test_hedging_against_the_adversary() -> None:
    """The adversary sees the two candidates and their probabilities. Each seed is a run of its own."""
    for seed in range(5):
        _, outcomes, experts, forecasts = against_adversary(HOPS, 4000, opposite_in_the_mean, seed=seed)
        hold_in_expectation(outcomes, experts, [forecasts], 10)
        # What no deterministic forecaster can do: OPS meets the same adversary and is far off.
        _, deterministic, _, p = against_adversary(OPS, 4000, opposite)
        assert metrics.calibration_error(outcomes, forecasts) < 0.1
        assert metrics.calibration_error(deterministic, p) > 0.3


def hold_in_expectation(outcomes: Vector, experts: Vector, runs: list[Vector], bins: int) -> None:
    """Theorem 3.2 and the Brier theorem for the mean over runs, with four standard errors for chance."""
    eps, T = 1 / bins, len(outcomes)

    def mean_and_margin(metric: Callable[..., float], *options: int) -> tuple[float, float]:
        values = [metric(outcomes, forecasts, *options) for forecasts in runs]
        return float(np.mean(values)), 1e-12 + 4 * float(np.std(values)) / np.sqrt(len(values))

    mean, margin = mean_and_margin(metrics.sharpness, bins)
    assert mean >= metrics.sharpness(outcomes, experts, bins) - bounds.hops_sharpness(eps, T) - margin
    mean, margin = mean_and_margin(metrics.calibration_error, bins)
    assert mean <= bounds.hops_calibration(eps, T) + margin
    mean, margin = mean_and_margin(metrics.brier_score)
    assert mean <= metrics.brier_score(outcomes, experts) + bounds.hops_brier(eps, T) + margin


# ---- lemmas ------------------------------------------------------------------------------------------------------


@given(pairs=events, bins=st.integers(1, 30))
def test_lemmas(pairs: list[tuple[float, bool]], bins: int) -> None:
    forecasts, outcomes = columns(pairs)
    refinement = metrics.refinement(outcomes, forecasts, bins)
    assert refinement == pytest.approx(outcomes.mean() - metrics.sharpness(outcomes, forecasts, bins), abs=1e-12)
    brier = metrics.brier_score(outcomes, forecasts)
    assert refinement <= brier + bounds.refinement_over_brier(1 / bins) + 1e-12


@pytest.mark.parametrize("name", ["tops_sharpness", "hops_sharpness", "hops_calibration", "hops_brier"])
@pytest.mark.parametrize("T", [1, 2, 10, 997, 50_000, 3_000_000])
def test_best_epsilon_is_best(name: str, T: int) -> None:
    bound = getattr(bounds, name)
    best = bounds.best_epsilon(T, name)
    assert best == bounds.best_epsilon(T, bound)
    assert all(bound(best, T) <= bound(1 / m, T) for m in range(1, 3000))
