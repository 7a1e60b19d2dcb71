"""Rows in the order of time: how late the labels of `fit` come, as told, or a quarter of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from classifiers import events
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from calibeat import Calibrator
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator


@pytest.mark.parametrize("method", ["auto", "tops", "ops"])
def test_labels_of_fit_can_be_late(method: str) -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(120)
    labels = rng.random(120) < scores**2
    late = Calibrator(method)  # 11 more forecasts, of which nothing is learnt, until the last outcome has come
    due = np.concatenate([np.arange(120) + 11, np.full(11, 999)])
    late.run(np.append(scores, np.full(11, 0.5)), np.append(labels, np.zeros(11)), due=due)
    fitted = ScoreCalibrator(method, order="time", delay=10).fit(scores, labels)
    assert np.array_equal(fitted.calibrator_.row[1:], late.row[1:]) and late.outcomes == 120
    if method == "ops":  # its parameters do not mind when an outcome comes, only in which order
        assert np.allclose(
            fitted.calibrator_.row, ScoreCalibrator(method, order="time").fit(scores, labels).calibrator_.row
        )
    in_turn = Calibrator(method)
    in_turn.run(scores, labels)
    assert np.array_equal(
        ScoreCalibrator(method, order="time", delay=0).fit(scores, labels).calibrator_.row, in_turn.row
    )


@pytest.mark.parametrize("method", ["auto", "tops", "hops", "ops"])
def test_labels_that_come_at_the_end_are_those_of_partial_fit(method: str) -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(120)
    labels = rng.random(120) < scores**2
    by_receipts = Calibrator(method)
    receipts = [by_receipts.predict(score) for score in scores]
    for receipt, label in zip(receipts, labels, strict=True):
        by_receipts.update(receipt, int(label))
    for calibrator in (
        ScoreCalibrator(method, order="time", delay=120).fit(scores, labels),
        ScoreCalibrator(method, order="time", delay=500).fit(scores, labels),
        ScoreCalibrator(method).partial_fit(scores, labels),
    ):
        assert np.allclose(calibrator.calibrator_.row, by_receipts.row, rtol=0, atol=1e-9)
        assert calibrator.calibrator_.events == calibrator.calibrator_.outcomes == 120
        assert np.array_equal(calibrator.transform(scores), by_receipts.predict_many(scores))
    X, y = events(200)
    base = FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))
    fitted = OnlineCalibratedClassifier(base, method, order="time", delay=100).fit(X[100:], y[100:])
    twin = OnlineCalibratedClassifier(base, method).partial_fit(X[100:], y[100:])
    assert np.array_equal(fitted.calibrator_.row, twin.calibrator_.row)
    assert np.array_equal(fitted.predict_proba(X), twin.predict_proba(X))


def test_unless_told_otherwise_labels_of_fit_come_a_quarter_of_the_rows_late() -> None:
    rng = np.random.default_rng(3)
    for n, late in ((3, 1), (123, 30)):
        scores, labels = rng.random(n), np.arange(n) % 2
        told = ScoreCalibrator(order="time", delay=late).fit(scores, labels)
        assert np.array_equal(ScoreCalibrator(order="time").fit(scores, labels).calibrator_.row, told.calibrator_.row)
    X, y = events(320)
    base = FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))
    told = OnlineCalibratedClassifier(base, order="time", delay=55).fit(X[100:], y[100:])
    default = OnlineCalibratedClassifier(base, order="time").fit(X[100:], y[100:])
    assert np.array_equal(default.predict_proba(X), told.predict_proba(X))


def test_the_default_is_not_too_careful() -> None:
    """Labels all at the end leave AUTO near the share of ones: 0.47 and 0.53, where 0.32 and 0.68 are true."""
    rng = np.random.default_rng(0)
    scores = rng.random(4000)
    labels = rng.random(4000) < 0.3 + 0.4 * scores
    for order in ("shuffled", "time"):
        low, high = ScoreCalibrator(order=order).fit(scores, labels).transform([0.05, 0.95])
        assert abs(low - 0.32) < 0.07 and abs(high - 0.68) < 0.07


def test_the_default_does_not_lose_to_its_base_where_the_world_moves() -> None:
    """Fit on a stretch, forecast the whole of the next one, again and again: labels are far from what is asked."""
    n, stretch = 4000, 500
    losses = []
    for flips_every in (30, 45, 60, 90, 150):  # delays of just one period are the worst that can happen
        rate = np.linspace(-1.5, 1.5, n) + 2.5 * np.sign(np.sin(np.arange(n) * np.pi / flips_every))
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 1))
        y = (rng.random(n) < 1 / (1 + np.exp(-(X[:, 0] + rate)))).astype(int)
        base = FrozenEstimator(LogisticRegression().fit(X[:stretch], y[:stretch]))
        for at in range(stretch, n - stretch, stretch):
            past, ahead = slice(at, at + stretch), slice(at + stretch, at + 2 * stretch)
            shuffled = OnlineCalibratedClassifier(base).fit(X[past], y[past])
            default = OnlineCalibratedClassifier(base, order="time").fit(X[past], y[past])
            in_turn = OnlineCalibratedClassifier(base, order="time", delay=0).fit(X[past], y[past])
            losses.append(
                [log_loss(y[ahead], m.predict_proba(X[ahead])[:, 1]) for m in (shuffled, default, base, in_turn)]
            )
    of_shuffled, of_default, of_base, of_in_turn = np.mean(losses, axis=0)
    assert of_shuffled < of_base and of_default < of_base < of_in_turn
