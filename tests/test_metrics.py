"""Metrics on cases that can be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibeat import BM, OPS, Beta, InvalidInput, Platt, Temperature, metrics


def test_an_edge_falls_to_the_right_in_metrics_and_in_kernels() -> None:
    from calibeat.core.calibeating import bin_of

    for m in (1, 2, 3, 7, 10, 20, 49, 100, 1000):
        for k in range(m):
            for p in {k / m, np.nextafter(k / m, 1.0), np.nextafter((k + 1) / m, 0.0)}:
                assert bin_of(float(p), float(m)) == k
                assert metrics.reliability_curve([1], [p], bins=m).count[k] == 1
        assert bin_of(1.0, float(m)) == m - 1


def test_norms() -> None:
    y, p = [1, 0, 0, 1], [0.9, 0.2, 0.2, 0.6]
    gaps = np.array([0.1, 0.2, 0.4])
    assert metrics.calibration_error(y, p) == pytest.approx((0.1 + 2 * 0.2 + 0.4) / 4)
    assert metrics.calibration_error(y, p, norm="l2") == pytest.approx(math.sqrt((0.01 + 2 * 0.04 + 0.16) / 4))
    assert metrics.calibration_error(y, p, norm="max") == pytest.approx(gaps.max())


def test_sharpness_lies_between_its_bounds() -> None:
    y = np.array([0, 1, 1, 0, 1])
    assert metrics.sharpness(y, y) == pytest.approx(y.mean())
    assert metrics.sharpness(y, np.full(5, 0.5)) == pytest.approx(y.mean() ** 2)


def test_log_loss_of_extreme_forecasts() -> None:
    assert metrics.log_loss([1], [5e-324]) == pytest.approx(-math.log(5e-324))
    assert metrics.log_loss([0], [1e-300]) == pytest.approx(1e-300, rel=1e-12)
    assert metrics.log_loss([0], [1.0 - 2**-53]) == pytest.approx(53 * math.log(2))
    assert metrics.log_loss([0, 1], [0.0, 1.0]) == 0.0
    assert metrics.log_loss([1], [0.0]) == math.inf
    assert metrics.log_loss([0], [1.0], clip=1e-300) == pytest.approx(-math.log(1e-300))
    assert metrics.log_loss([1, 0], [1.0, 0.0], clip=1e-5) == 0.0


def test_reliability_curve_of_an_empty_bin() -> None:
    mean_forecast, mean_outcome, count, *_ = metrics.reliability_curve([1, 1], [0.9, 0.9], bins=2)
    assert mean_forecast.tolist() == [0.25, 0.9]
    assert math.isnan(mean_outcome[0])
    assert mean_outcome[1] == 1.0
    assert count.tolist() == [0, 2]


@pytest.mark.parametrize("family", [Platt(), Beta(), Temperature()])
def test_regret_of_the_best_parameters_is_zero(family: Platt | Beta | Temperature) -> None:
    from calibeat import Calibrator, Method

    rng = np.random.default_rng(0)
    scores = rng.random(400)
    outcomes = rng.random(400) < 0.3 + 0.4 * scores
    theta = metrics.best_parameters(family, scores, outcomes)
    forecasts = Calibrator(Method(type(family)(start=theta), None)).predict_many(scores)
    assert metrics.regret(family, scores, outcomes, forecasts) == pytest.approx(0.0, abs=1e-9)


def test_booleans_and_bytes_are_outcomes_too() -> None:
    assert metrics.brier_score([True, False], [1.0, 0.0]) == 0.0
    assert metrics.brier_score(np.array([1, 0], dtype=np.uint8), np.array([1, 0], dtype=np.float32)) == 0.0
    assert metrics.brier_score(np.array([True, 0], dtype=object), [1.0, 0.0]) == 0.0


def test_of_bins_is_what_the_metrics_say() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(float)
    b = np.minimum((p * 10).astype(int), 9)
    sums = [np.bincount(b, weights, minlength=12) for weights in (np.ones(500), p, y)]  # two bins are empty
    found = metrics.of_bins(*sums)
    assert found.calibration_error == pytest.approx(metrics.calibration_error(y, p), abs=1e-15)
    assert found.sharpness == pytest.approx(metrics.sharpness(y, p), abs=1e-15)
    assert found.refinement == pytest.approx(metrics.refinement(y, p), abs=1e-15)
    rows = metrics.of_bins(*(np.stack([column, 2 * column]) for column in sums))  # twice the events: the same means
    np.testing.assert_allclose(rows.calibration_error, found.calibration_error)
    assert metrics.calibration_error_of_gaps(sums[1] - sums[2], 500) == found.calibration_error


# ---- refusals ------------------------------------------------------------------------------------------------------

FUNCTIONS = [
    metrics.calibration_error,
    metrics.sharpness,
    metrics.refinement,
    metrics.brier_score,
    metrics.log_loss,
    metrics.accuracy,
    metrics.reliability_curve,
    metrics.true_calibration_error,
    metrics.true_accuracy,
]


MANY = [metrics.brier_score, metrics.log_loss]  # which take the forecasts of many classes too


@pytest.mark.parametrize("metric", FUNCTIONS, ids=lambda metric: metric.__name__)
def test_metrics(metric: Callable[..., Any]) -> None:
    for arguments, message in [
        (([0, 1], [0.5]), "arrays must have the same length, got"),
        (([], []), "arrays must not be empty"),
        (([0, 1], [0.5, 1.5]), "forecast must be in [0, 1], got 1.5 - at row 1"),
        (([0, 7], [0.5, 0.5]), "got 7.0 - at row 1"),
        (([0, 1], [[0.5, 0.5]]), "arrays must have the same length" if metric in MANY else "must be a one-dimensional"),
    ]:
        with pytest.raises(InvalidInput) as error:
            metric(*arguments)
        assert message in str(error.value)


WRONG_OPTIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: metrics.calibration_error([0], [0.5], bins=0), "bins must be a whole number in [1, 10000000], got 0"),
    (lambda: metrics.calibration_error([0], [0.5], norm="l3"), "norm must be 'l1' or 'l2' or 'max', got 'l3'"),
    (lambda: metrics.log_loss([0], [0.5], clip=0.5), "clip must be in [0, 0.499], got 0.5"),
    (lambda: metrics.accuracy([0], [0.5], threshold=2), "threshold must be in [0, 1], got 2"),
    (lambda: metrics.regret(BM, [0.5], [0], [0.5], 1.0), "regret is against the parameters of a Platt()"),
    (lambda: metrics.regret(OPS, [0.5], [0], [0.5], 0.0), "radius must be in [1e-10, 1e+10], got 0.0"),
    (lambda: metrics.regret(OPS, [0.5, 0.5], [0], [0.5], 1.0), "arrays must have the same length, got scores 2"),
    (lambda: metrics.regret(Platt, [0.5], [0], [0.5], 1.0), "regret is against the parameters of a Platt()"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_OPTIONS)
def test_wrong_options(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call()
    assert message in str(error.value)
