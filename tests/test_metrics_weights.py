"""Metrics with weights: what they mean, their bits, their errors, and the effective number of outcomes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import multi_streams
import numpy as np
import pandas as pd
import pytest

from calibeat import InvalidInput, metrics

N = 300


def binary() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(8)
    p = np.round(rng.random(N), 2)
    return (rng.random(N) < p**1.5).astype(float), p, np.exp(rng.normal(size=N))


Metric = Callable[..., Any]


def cases() -> dict[str, tuple[Metric, tuple[Any, Any]]]:
    """Each metric as a function of outcomes, forecasts and weights, with columns of events for it."""
    y, p, _ = binary()
    truth = np.clip(p + 0.1, 0.0, 1.0)
    P, labels = multi_streams.random(N, 4)
    found: dict[str, tuple[Metric, tuple[Any, Any]]] = {
        metric.__name__: (metric, (y, p))
        for metric in (metrics.sharpness, metrics.refinement, metrics.brier_score, metrics.log_loss, metrics.accuracy)
    }
    for norm in ("l1", "l2", "max"):
        found[f"calibration_error {norm}"] = (
            lambda y, p, norm=norm, **w: metrics.calibration_error(y, p, norm=norm, **w),
            (y, p),
        )
    for metric in (metrics.true_calibration_error, metrics.true_accuracy):
        found[metric.__name__] = (metric, (truth, p))
    for metric in (
        metrics.brier_score,
        metrics.log_loss,
        metrics.top_label_calibration_error,
        metrics.classwise_calibration_error,
    ):
        found[f"{metric.__name__} of classes"] = (metric, (labels, P))
    found["top label given the class"] = (
        lambda y, P, **w: metrics.top_label_calibration_error(y, P, given_class=True, **w),
        (labels, P),
    )
    return found


CASES = cases()
BY_NAME = pytest.mark.parametrize(("metric", "columns"), CASES.values(), ids=CASES)


def test_every_function_of_events_takes_weights() -> None:
    # Of these the first three take tallies, top_label gives a row for each event, and the last takes weights alone.
    others = {"of_bins", "calibration_error_of_gaps", "wilson", "top_label", "effective_number"}
    functions = {name: f for name, f in inspect.getmembers(metrics, inspect.isfunction) if name in dir(metrics)}
    lacking = {name for name, f in functions.items() if "sample_weight" not in inspect.signature(f).parameters}
    assert lacking == others - {"effective_number"}
    for name in functions.keys() - others:
        assert inspect.signature(functions[name]).parameters["sample_weight"].default is None


@BY_NAME
def test_weights_of_one_give_the_bits_of_no_weights(metric: Metric, columns: tuple[Any, Any]) -> None:
    plain = metric(*columns)
    assert metric(*columns, sample_weight=None) == plain
    assert metric(*columns, sample_weight=np.ones(N)) == plain
    assert metric(*columns, sample_weight=[1] * N) == plain


@BY_NAME
def test_only_ratios_matter(metric: Metric, columns: tuple[Any, Any]) -> None:
    w = binary()[2]
    found = metric(*columns, sample_weight=w)
    assert found != metric(*columns)
    assert metric(*columns, sample_weight=w * 2.0**20) == found == metric(*columns, sample_weight=w * 2.0**-60)
    assert metric(*columns, sample_weight=10 * w) == pytest.approx(found, rel=1e-12)


@BY_NAME
def test_a_mean_with_whole_weights_is_that_of_repeated_events(metric: Metric, columns: tuple[Any, Any]) -> None:
    """A mean does not tell a weight from repetitions; its error does."""
    w = np.random.default_rng(2).integers(0, 5, N)
    repeated = metric(*(np.repeat(column, w, axis=0) for column in columns))
    assert metric(*columns, sample_weight=w) == pytest.approx(repeated, rel=1e-12)
    assert metric(*columns, sample_weight=pd.Series(w, index=np.arange(N) + 7)) == pytest.approx(repeated, rel=1e-12)


@BY_NAME
def test_events_of_weight_0_are_as_good_as_gone(metric: Metric, columns: tuple[Any, Any]) -> None:
    w = binary()[2] * (np.arange(N) % 3 > 0)
    kept = w > 0
    assert metric(*columns, sample_weight=w) == metric(*(column[kept] for column in columns), sample_weight=w[kept])


def test_by_hand() -> None:
    y, p, w = [1, 0, 1, 0], [0.9, 0.3, 0.2, 0.2], [1.0, 4.0, 2.0, 3.0]
    assert metrics.brier_score(y, p, sample_weight=w) == pytest.approx((0.01 + 4 * 0.09 + 2 * 0.64 + 3 * 0.04) / 10)
    loss = -math.log(0.9) - 4 * math.log(0.7) - 2 * math.log(0.2) - 3 * math.log(0.8)
    assert metrics.log_loss(y, p, sample_weight=w) == pytest.approx(loss / 10)
    assert metrics.accuracy(y, p, sample_weight=w) == pytest.approx(0.8)
    # two bins: [0, 0.5) has weight 9, forecasts 2.2 and outcomes 2; [0.5, 1] has weight 1, forecasts 0.9 and outcomes 1
    assert metrics.calibration_error(y, p, bins=2, sample_weight=w) == pytest.approx((0.2 + 0.1) / 10)
    assert metrics.calibration_error(y, p, bins=2, norm="max", sample_weight=w) == pytest.approx(0.1)
    assert metrics.sharpness(y, p, bins=2, sample_weight=w) == pytest.approx((4 / 9 + 1) / 10)
    assert metrics.refinement(y, p, bins=2, sample_weight=w) == pytest.approx((2 * 7 / 9) / 10)


def test_an_event_of_weight_0_costs_nothing_however_wrong() -> None:
    assert metrics.log_loss([1, 1], [0.0, 0.5], sample_weight=[0, 1]) == pytest.approx(math.log(2))
    assert metrics.log_loss([1, 1], [0.0, 0.5], sample_weight=[1e-9, 1]) == math.inf


def test_against_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

    y, p, w = binary()
    p = np.clip(p, 0.01, 0.99)
    assert metrics.log_loss(y, p, sample_weight=w) == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-12)
    assert metrics.brier_score(y, p, sample_weight=w) == pytest.approx(brier_score_loss(y, p, sample_weight=w))
    assert metrics.accuracy(y, p, sample_weight=w) == pytest.approx(accuracy_score(y, p >= 0.5, sample_weight=w))
    P, labels = multi_streams.random(N, 4)
    theirs = log_loss(labels, P, labels=range(4), sample_weight=w)
    assert metrics.log_loss(labels, P, sample_weight=w) == pytest.approx(theirs, rel=1e-12)


def test_curves_have_the_weight_and_the_effective_number_of_each_bin() -> None:
    y, p, w = [1, 0, 1, 0, 1], [0.9, 0.3, 0.2, 0.2, 0.1], [1.0, 4.0, 2.0, 3.0, 0.0]
    curve = metrics.reliability_curve(y, p, bins=3, sample_weight=w)
    assert curve.mean_forecast == pytest.approx([2.2 / 9, 0.5, 0.9])
    assert curve.mean_outcome == pytest.approx([2 / 9, math.nan, 1.0], nan_ok=True)
    assert curve.count.tolist() == [3, 0, 1] and curve.count.dtype == np.int64  # events, without the one of weight 0
    assert curve.weight.tolist() == [9.0, 0.0, 1.0]
    assert curve.effective == pytest.approx([81 / 29, 0.0, 1.0])
    plain = metrics.reliability_curve(y, p, bins=3)
    assert plain.weight.tolist() == plain.effective.tolist() == plain.count.tolist() == [4, 0, 1]
    ones = metrics.reliability_curve(y, p, bins=3, sample_weight=np.ones(5))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(plain, ones, strict=True))


def test_the_weighted_curve_gives_the_error() -> None:
    y, p, w = binary()
    P, labels = multi_streams.random(N, 4)
    for curve, error in (
        (metrics.reliability_curve(y, p, sample_weight=w), metrics.calibration_error(y, p, sample_weight=w)),
        (
            metrics.confidence_reliability_curve(labels, P, sample_weight=w),
            metrics.top_label_calibration_error(labels, P, sample_weight=w),
        ),
    ):
        gaps = curve.weight * np.abs(curve.mean_forecast - curve.mean_outcome)
        assert np.nansum(gaps) / w.sum() == pytest.approx(error, rel=1e-12)


def test_effective_number() -> None:
    assert metrics.effective_number(np.ones(50)) == 50.0
    assert metrics.effective_number([20.0] * 50) == pytest.approx(50.0)
    assert metrics.effective_number([1.0, 1e12]) == pytest.approx(1.0)
    assert metrics.effective_number([3.0, 4.0, 0.0]) == pytest.approx(49 / 25)
    tiny = np.array([3.0, 4.0]) * 2.0**-900  # whose squares are no floats
    assert metrics.effective_number(tiny) == metrics.effective_number([3.0, 4.0])


def test_the_error_of_a_mean() -> None:
    losses = np.array([0.1, 0.4, 0.2, 0.7])
    plain = metrics.mean_with_error(losses)
    assert plain.mean == losses.mean() and plain.effective == 4.0
    assert plain.error == pytest.approx(losses.std() / math.sqrt(4))
    assert metrics.mean_with_error(losses, sample_weight=np.ones(4)) == plain
    w = np.array([1.0, 5.0, 2.0, 0.0])
    found = metrics.mean_with_error(losses, sample_weight=w)
    assert found.mean == pytest.approx((0.1 + 2.0 + 0.4) / 8)
    assert found.error == pytest.approx(math.sqrt(((w * (losses - found.mean)) ** 2).sum()) / 8)
    assert found.effective == pytest.approx(64 / 30)
    assert metrics.mean_with_error(losses, sample_weight=w * 2.0**-700) == found
    with pytest.raises(InvalidInput, match=r"value must be a finite number, got inf - at row 1"):
        metrics.mean_with_error([0.5, math.inf])


def test_the_error_is_that_of_the_draw() -> None:
    """Over many samples of one population: the errors that the formula says are those that are made."""
    rng = np.random.default_rng(3)
    losses = rng.exponential(size=20_000)
    kept = np.where(losses > 1.0, 0.2, 0.02)
    found = []
    for _ in range(200):
        seen = rng.random(20_000) < kept
        found.append(metrics.mean_with_error(losses[seen], sample_weight=1 / kept[seen]))
    means = np.array([each.mean for each in found])
    assert abs(means.mean() - losses.mean()) < 4 * means.std() / math.sqrt(200)
    assert means.std() == pytest.approx(np.mean([each.error for each in found]), rel=0.2)


def test_regret_is_a_sum_of_weights_times_losses() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(N)
    outcomes = (rng.random(N) < 0.3 + 0.4 * scores).astype(float)
    forecasts = np.clip(scores, 0.02, 0.98)
    whole = rng.integers(0, 4, N)
    repeated = [np.repeat(column, whole) for column in (scores, outcomes, forecasts)]
    best = metrics.best_parameters("ops", scores, outcomes, sample_weight=whole)
    assert best == pytest.approx(metrics.best_parameters("ops", *repeated[:2]), abs=1e-9)
    weighted = metrics.regret("ops", scores, outcomes, forecasts, sample_weight=whole)
    assert weighted == pytest.approx(metrics.regret("ops", *repeated), abs=1e-8)
    for function, columns in (
        (metrics.best_parameters, (scores, outcomes)),
        (metrics.regret, (scores, outcomes, forecasts)),
    ):
        assert function("ops", *columns, sample_weight=np.ones(N)) == function("ops", *columns)
    small = whole * 2.0**-900
    assert metrics.best_parameters("ops", scores, outcomes, sample_weight=small) == best
    assert metrics.regret("ops", scores, outcomes, forecasts, sample_weight=whole * 8.0) == 8.0 * weighted


# ---- refusals ------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Any, str]] = [
    ([1.0, -1.0], "weight must be a finite number >= 0, got -1.0 - at row 1"),
    ([1.0, math.nan], "weight must be a finite number >= 0, got nan - at row 1"),
    ([math.inf, 1.0], "weight must be a finite number >= 0, got inf - at row 0"),
    ([1.0, 2e12], "weight must be a finite number in [0, 1e+12], got 2000000000000.0 - at row 1"),
    ([1.0, True], "weight must be a finite number >= 0, got bool True - at row 1"),
    (np.array([True, True]), "weight must be a finite number >= 0, got an array of bool"),
    (["a", "b"], "weight must be a finite number >= 0, got str 'a' - at row 0"),
    ([1.0, None], "weight must be a finite number >= 0, got NoneType None - at row 1"),
    (pd.Series([1, None], dtype="Int64"), "weight must be a finite number >= 0, got a missing value - at row 1"),
    ([1.0], "arrays must have the same length, got events 2, weights 1"),
    (np.ones((2, 2)), "weights must be a one-dimensional array, got shape (2, 2)"),
    (1.0, "weights must be a one-dimensional array, got float"),
    ([0.0, 0.0], "weights must not all be zero"),
]


@pytest.mark.parametrize(("weights", "message"), REFUSED)
def test_bad_weights(weights: Any, message: str) -> None:
    P = [[0.5, 0.5], [0.2, 0.8]]
    for call in (
        lambda: metrics.calibration_error([0, 1], [0.5, 0.5], sample_weight=weights),
        lambda: metrics.log_loss([0, 1], P, sample_weight=weights),
        lambda: metrics.classwise_calibration_error([0, 1], P, sample_weight=weights),
        lambda: metrics.true_accuracy([0.5, 0.5], [0.5, 0.5], sample_weight=weights),
        lambda: metrics.regret("ops", [0.5, 0.5], [0, 1], [0.5, 0.5], sample_weight=weights),
        lambda: metrics.best_parameters("ops", [0.5, 0.5], [0, 1], sample_weight=weights),
        lambda: metrics.mean_with_error([0.5, 0.5], sample_weight=weights),
    ):
        with pytest.raises(InvalidInput) as error:
            call()
        assert message in str(error.value)


def test_a_bad_row_is_named_by_its_place_among_all() -> None:
    with pytest.raises(InvalidInput, match=r"forecast must be in .* got 1.5 - at row 1"):
        metrics.brier_score([0, 1], [0.5, 1.5], sample_weight=[0.0, 1.0])
