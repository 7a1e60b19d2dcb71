"""scikit-learn's classifiers of more than two classes behind a `MultiCalibrator`."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from classifiers import Said, last_rows
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC, LinearSVC

from calibeat import OPS, MultiCalibrator
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator

CLASSES = np.array(["bird", "cat", "dog"])


def events(n: int = 900) -> tuple[Any, Any]:
    X, y = make_classification(n, n_classes=3, n_informative=6, n_redundant=8, flip_y=0.2, random_state=0)
    return X, CLASSES[y]


def test_probabilities_of_the_base_are_calibrated() -> None:
    X, y = events()
    cv = last_rows(300, 700)
    model = OnlineCalibratedClassifier(GaussianNB(), cv=cv, order="time").fit(X[:700], y[:700])
    base, clone = GaussianNB().fit(X[:700], y[:700]), GaussianNB().fit(X[:300], y[:300])
    by_hand = MultiCalibrator(CLASSES)
    due = np.arange(400) + 101  # a label comes a quarter of the rows late
    by_hand.run(clone.predict_proba(X[300:700]), y[300:700], due=due, finish=True)
    mean = np.mean([each.predict_proba(X[700:]) for each in (base, clone)], axis=0)
    want = by_hand.predict_many(mean)
    P = model.predict_proba(X[700:])
    np.testing.assert_allclose(P, want, rtol=0, atol=1e-12)
    assert model.classes_.tolist() == CLASSES.tolist() and model.score_method_ == "predict_proba"
    assert np.array_equal(model.predict(X[700:]), CLASSES[P.argmax(axis=1)])
    assert log_loss(y[700:], P) < log_loss(y[700:], base.predict_proba(X[700:]))
    assert model.calibrator_.outcomes == 400 and set(model.calibrator_.params["bias"]) == set(CLASSES)


def test_labels_arrive_bit_by_bit() -> None:
    X, y = events()
    base = FrozenEstimator(LogisticRegression().fit(X[:300], y[:300]))
    model = OnlineCalibratedClassifier(base, order="time", delay=0)
    for i in range(300, 340):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=CLASSES)
    in_turn = OnlineCalibratedClassifier(base, order="time", delay=0).fit(X[300:340], y[300:340])
    assert np.allclose(model.calibrator_.row, in_turn.calibrator_.row, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"previously unseen labels: \['fish'\]"):
        model.partial_fit(X[:2], ["cat", "fish"])
    with pytest.raises(ValueError, match="classes must be"):
        model.partial_fit(X[:2], y[:2], classes=["cat", "dog"])
    assert model.calibrator_.outcomes == 40


@pytest.mark.parametrize("base", [LinearSVC(), RidgeClassifier(), SVC()])
def test_margins_go_through_softmax(base: Any) -> None:
    X, y = events()
    model = OnlineCalibratedClassifier(base).fit(X, y)
    assert model.score_method_ == "decision_function"
    P = model.predict_proba(X)
    assert P.shape == (900, 3) and np.allclose(P.sum(axis=1), 1.0)
    assert model.score(X, y) > 0.5


class Far(Said):
    """Margins in the hundreds."""

    def decision_function(self, X: Any) -> Any:
        return 100.0 * np.asarray(X)[:, :3]


def test_large_margins_are_scaled() -> None:
    X, y = events()
    model = OnlineCalibratedClassifier(Far()).fit(X, y)
    margins = model.estimator_.decision_function(X)
    sizes = np.abs(margins - margins.mean(axis=1, keepdims=True)) / model.margin_scale_
    assert np.quantile(sizes, 0.99) == pytest.approx(6.0)


def test_one_against_one_margins_are_refused() -> None:
    X, y = make_classification(400, n_classes=4, n_informative=6, random_state=0)
    with pytest.raises(ValueError, match=r"SVC.decision_function must give an array of shape .* got"):
        OnlineCalibratedClassifier(SVC(decision_function_shape="ovo")).fit(X, y)


@pytest.mark.parametrize("method", ["auto", "multi", "ots", "raw"])
def test_methods(method: str) -> None:
    X, y = events(300)
    model = OnlineCalibratedClassifier(LogisticRegression(), method).fit(X, y)
    assert model.calibrator_.method == ("multi" if method == "auto" else method)
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert np.array_equal(twin.predict_proba(X), model.predict_proba(X))
    assert clone(model).method == method


@pytest.mark.parametrize("method", ["tops", OPS, 3])
def test_methods_for_two_classes_are_refused(method: Any) -> None:
    X, y = events(300)
    with pytest.raises(ValueError, match=r"method must be 'auto' .* for 3 classes, got"):
        OnlineCalibratedClassifier(LogisticRegression(), method).fit(X, y)


def test_the_base_must_have_seen_every_class() -> None:
    X, y = events(300)
    with pytest.raises(ValueError, match="must fit the base on all 3 classes"):
        OnlineCalibratedClassifier(LogisticRegression(), cv=last_rows(150, 300)).fit(X, np.sort(y))
    assert OnlineCalibratedClassifier(LogisticRegression()).fit(X, np.sort(y)).calibrator_.outcomes == 300
    with pytest.raises(ValueError, match=r"two classes or more\. Nameless has no classes_"):
        OnlineCalibratedClassifier(FrozenEstimator(Nameless())).fit(X, y)


class Nameless(Far):
    """Fitted, and silent about its classes."""

    def __sklearn_is_fitted__(self) -> bool:
        return True


class OddSums(Said):
    """Probabilities in single precision, or some that are none."""

    def __init__(self, excess: float = 0.0, hole: float = 1.0) -> None:
        self.excess, self.hole = excess, hole

    def predict_proba(self, X: Any) -> Any:
        p = np.full((len(X), 3), (1.0 + self.excess) / 3.0)
        p[1, 0] *= self.hole
        return p


def test_rounding_is_forgiven_and_more_is_not() -> None:
    X, y = events(300)
    assert OnlineCalibratedClassifier(OddSums(1e-5)).fit(X, y).calibrator_.outcomes == 300
    with pytest.raises(ValueError, match=r"sum to 1 within 1e-06, got 1\.1 - at row 0"):
        OnlineCalibratedClassifier(OddSums(0.1)).fit(X, y)
    with pytest.raises(ValueError, match=r"predict_proba contains NaN - at row 1"):
        OnlineCalibratedClassifier(OddSums(0.0, np.nan)).fit(X, y)


# ---- the transformer of scores -----------------------------------------------------------------------------------


def test_scores_of_many_classes() -> None:
    X, y = events()
    P = GaussianNB().fit(X[:300], y[:300]).predict_proba(X[300:])
    calibrator = ScoreCalibrator(order="time", delay=0).fit(P[:400], y[300:700])
    by_hand = MultiCalibrator(CLASSES)
    by_hand.run(P[:400], y[300:700])
    np.testing.assert_allclose(calibrator.transform(P[400:]), by_hand.predict_many(P[400:]), rtol=0, atol=1e-12)
    assert calibrator.classes_.tolist() == CLASSES.tolist()
    mixed = ScoreCalibrator().fit(P[:400], y[300:700]).transform(P[400:])
    assert log_loss(y[700:], mixed) < log_loss(y[700:], P[400:])
    assert calibrator.partial_fit(P[400:], y[700:]).update(calibrator.forecast(P[:2]), y[300:302]) == ["learnt"] * 2
    assert calibrator.calibrator_.outcomes == 602
    margins = ScoreCalibrator(scale="logit").fit(np.log(P[:400].clip(1e-9)), y[300:700])
    assert margins.transform(np.log(P[400:].clip(1e-9))).shape == (200, 3)
    named = ScoreCalibrator().partial_fit(P[:2], y[300:302], classes=CLASSES)
    assert named.classes_.tolist() == CLASSES.tolist()
    with pytest.raises(ValueError, match=r"X has 3 columns, one for each class, .* got \['bird', 'cat'\]"):
        ScoreCalibrator().fit(P[:2], ["bird", "cat"])
    with pytest.raises(ValueError, match="sum to 1"):
        ScoreCalibrator().fit(P[:3] * 1.1, CLASSES)
    with pytest.raises(ValueError, match="3 features"):
        calibrator.transform(P[:, :2])
