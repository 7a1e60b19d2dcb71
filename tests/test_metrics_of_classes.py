"""Metrics of many classes: by hand, against scikit-learn, and against pycalib where the definitions agree."""

from __future__ import annotations

import math
from typing import Any

import multi_streams
import numpy as np
import pandas as pd
import pytest

from calibeat import InvalidInput, metrics


@pytest.fixture
def stream() -> multi_streams.Stream:
    return multi_streams.drifting(700, 5)


def test_by_hand() -> None:
    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.35, 0.25]])
    labels = [0, 1, 0]
    assert metrics.log_loss(labels, P) == pytest.approx(-(math.log(0.7) + math.log(0.1) + math.log(0.4)) / 3)
    brier = (0.09 + 0.04 + 0.01) + (0.01 + 0.81 + 0.64) + (0.36 + 0.35**2 + 0.0625)
    assert metrics.brier_score(labels, P) == pytest.approx(brier / 3)
    # bins of a tenth: the confidences 0.7 and 0.8 may share no bin
    assert metrics.top_label_calibration_error(labels, P) == pytest.approx((0.3 + 0.8 + 0.6) / 3)
    assert metrics.top_label_calibration_error(labels, P, bins=1) == pytest.approx(abs(1.9 - 2) / 3)
    # given the named class: 0 twice (0.7 and 0.4, both hits), 2 once (0.8, a miss)
    given = metrics.top_label_calibration_error(labels, P, bins=1, given_class=True)
    assert given == pytest.approx((0.9 + 0.8) / 3)
    per_class = abs(1.2 - 2) + abs(0.65 - 1) + abs(1.15 - 0)
    assert metrics.classwise_calibration_error(labels, P, bins=1) == pytest.approx(per_class / 9)


def test_a_wrong_zero_costs_infinity_unless_clipped() -> None:
    assert metrics.log_loss([1], [[1.0, 0.0]]) == math.inf
    assert metrics.log_loss([1], [[1.0, 0.0]], clip=1e-5) == pytest.approx(-math.log(1e-5))


def test_against_sklearn(stream: multi_streams.Stream) -> None:
    from sklearn.metrics import brier_score_loss, log_loss

    P, y = stream
    assert metrics.log_loss(y, P) == pytest.approx(log_loss(y, P, labels=range(5)), abs=1e-12)
    theirs = brier_score_loss(y, P, labels=range(5), scale_by_half=False)
    assert metrics.brier_score(y, P) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("bins", [5, 10, 15])
def test_against_pycalib(stream: multi_streams.Stream, bins: int) -> None:
    theirs = pytest.importorskip("pycalib.metrics")
    P, y = stream
    onehot = np.eye(5)[y]
    assert metrics.top_label_calibration_error(y, P, bins) == pytest.approx(theirs.conf_ECE(y, P, bins), abs=1e-12)
    ours = metrics.classwise_calibration_error(y, P, bins)
    assert ours == pytest.approx(theirs.classwise_ECE(onehot, P, bins=bins), abs=1e-7)
    assert metrics.brier_score(y, P) == pytest.approx(5 * theirs.brier_score(onehot, P), abs=1e-12)


def test_given_the_class_is_never_less(stream: multi_streams.Stream) -> None:
    P, y = stream
    assert metrics.top_label_calibration_error(y, P, given_class=True) >= metrics.top_label_calibration_error(y, P)


def test_two_classes_are_the_binary_metrics() -> None:
    P, y = multi_streams.random(300, 2)
    assert metrics.log_loss(y, P) == pytest.approx(metrics.log_loss(y, P[:, 1]), abs=1e-12)
    assert metrics.brier_score(y, P) == pytest.approx(2 * metrics.brier_score(y, P[:, 1]), abs=1e-12)


def test_the_confidence_curve_gives_the_error(stream: multi_streams.Stream) -> None:
    P, y = stream
    curve = metrics.confidence_reliability_curve(y, P)
    used = curve.count > 0
    gaps = curve.count * np.abs(curve.mean_forecast - curve.mean_outcome)
    assert gaps[used].sum() / len(y) == pytest.approx(metrics.top_label_calibration_error(y, P), abs=1e-12)
    assert curve.count.sum() == len(y)


def test_labels_of_classes_and_frames(stream: multi_streams.Stream) -> None:
    P, y = stream
    classes = list("abcde")
    words, frame = [classes[k] for k in y], pd.DataFrame(P, columns=classes)
    for metric in (
        metrics.log_loss,
        metrics.brier_score,
        metrics.top_label_calibration_error,
        metrics.classwise_calibration_error,
    ):
        assert metric(words, frame, classes=classes) == metric(y, P)
        assert metric(pd.Series(words), P, classes=classes) == metric(y.tolist(), P.tolist())


@pytest.mark.parametrize(
    ("labels", "forecasts", "message"),
    [
        ([0], [[0.5, 0.6]], "forecasts of an event must sum to 1, got 1.1 - at row 0"),
        ([0, 0], [[0.5, 0.5], [1.5, -0.5]], "forecast must be in .* got 1.5 - at row 1, column 0"),
        ([0, 0], [[0.5, 0.5], [np.nan, 0.5]], "got nan - at row 1, column 0"),
        ([0, 2], [[0.5, 0.5]] * 2, "label must be a column number from 0 to 1, got 2 - at row 1"),
        ([0, None], [[0.5, 0.5]] * 2, "got None - at row 1"),
        ([0], [[0.5, 0.5]] * 2, "same length, got labels 1, forecasts 2"),
        ([], np.empty((0, 3)), "arrays must not be empty"),
        ([0], [[1.0]], "forecasts must be a matrix of numbers"),
    ],
)
def test_bad_input(labels: Any, forecasts: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        metrics.top_label_calibration_error(labels, forecasts)


def test_bad_classes() -> None:
    with pytest.raises(InvalidInput, match="classes must be as many as the 2 columns, got 3"):
        metrics.log_loss(["a"], [[0.5, 0.5]], classes=["a", "b", "c"])
    with pytest.raises(InvalidInput, match="label must be one of the classes, got 'z' - at row 0"):
        metrics.log_loss(["z"], [[0.5, 0.5]], classes=["a", "b"])
