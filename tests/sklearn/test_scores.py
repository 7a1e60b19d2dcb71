"""calibeat in scikit-learn: which score of a model is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from classifiers import Disguised, Said, Sure, by_hand, events, last_rows
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_gaussian_quantiles
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from calibeat import OPS
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator, estimators

# ---- the score of a model ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [Sure(), Disguised()])
def test_probabilities_enter_by_their_logit(base: Any) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 1))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    model = OnlineCalibratedClassifier(base, "ops").fit(X, y)
    assert model.score_method_ == "predict_proba"
    params = model.calibrator_.params
    assert abs(params["a"] - 0.5) < 0.05 and abs(params["b"]) < 0.05  # taken for logits, no slope could undo it
    assert np.allclose(model.predict_proba([[1.0]])[0, 1], 1 / (1 + np.exp(-1)), atol=0.02)


@pytest.mark.parametrize(
    ("base", "used"),
    [
        (LogisticRegression(), "decision_function"),
        (LinearSVC(), "decision_function"),
        (SVC(), "decision_function"),
        (RandomForestClassifier(5, random_state=0), "predict_proba"),
    ],
)
def test_the_real_score_of_a_model(base: Any, used: str) -> None:
    X, y = events(300)
    wrapped = OnlineCalibratedClassifier(base, OPS, cv=last_rows(150, 300), order="time", ensemble=False)
    model, fold = wrapped.fit(X, y), clone(base).fit(X[:150], y[:150])
    assert model.score_method_ == used
    if used == "decision_function":
        assert model.margin_scale_ == 1.0
        seen, score = (1 / (1 + np.exp(-each.decision_function(X))) for each in (fold, model.estimator_))
    else:
        answers = (each.predict_proba(X)[:, 1] for each in (fold, model.estimator_))
        seen, score = (np.clip(p, *model.score_range_) for p in answers)
    assert np.allclose(model.predict_proba(X)[:, 1], by_hand(seen[150:], y[150:] == "yes", score, OPS), atol=1e-12)


class Told(Said):
    """A logistic regression that tells its probability, or its margin, in a way of its own."""

    def __init__(self, way: str = "p") -> None:
        self.way = way

    def fit(self, X: Any, y: Any) -> Told:
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)

    def decision_function(self, X: Any) -> Any:
        p, margin = self.predict_proba(X)[:, 1], self.model_.decision_function(X)
        ways = {
            "2p - 1": 2 * p - 1,
            "p - 1/2": p - 0.5,
            "half": p.astype(np.float16),
            "single": p.astype(np.float32),
            "3p + 7": 3 * p + 7,
            "logit": margin,
            "3 logits": 3 * margin,
            "column": margin[:, None],
            "two columns": np.column_stack([-margin, margin]),
            "nan": np.full(len(p), np.nan),
        }
        return ways[self.way]


@pytest.mark.parametrize("way", ["2p - 1", "p - 1/2", "half", "single", "3p + 7", "column", "two columns"])
def test_a_margin_that_is_a_probability_or_no_vector_is_not_the_score(way: str) -> None:
    X, y = events(400)
    model = OnlineCalibratedClassifier(Told(way), "ops").fit(X, y)
    assert model.score_method_ == "predict_proba" and model.margin_scale_ == 1.0
    honest = OnlineCalibratedClassifier(LogisticRegression(), "ops").fit(X, y)
    assert np.allclose(model.predict_proba(X), honest.predict_proba(X), atol=1e-6)


def test_a_real_margin_is_the_score_however_few_or_alike_the_rows() -> None:
    X, y = events(400)
    for way in ("logit", "3 logits"):
        base = FrozenEstimator(Told(way).fit(X, y))
        for rows in (slice(0, 1), slice(0, 2), slice(0, 3), slice(0, 400)):
            model = OnlineCalibratedClassifier(base, "ops").partial_fit(X[rows], y[rows])
            assert model.score_method_ == "decision_function"
        alike = X[:50] * 1e-3  # probabilities so close that their logit, too, is nearly a line through them
        assert OnlineCalibratedClassifier(base, "ops").partial_fit(alike, y[:50]).score_method_ == "decision_function"
    with pytest.raises(ValueError, match=r"Told.decision_function contains NaN - at row 0"):
        OnlineCalibratedClassifier(Told("nan")).fit(X, y)


def test_margins_larger_than_logits_are_scaled_and_keep_their_order() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    base = SGDClassifier(random_state=0).fit(X[:200], y[:200])
    margin = base.decision_function(X)
    assert np.mean(np.abs(margin[400:]) > 11.5) > 0.9
    model = OnlineCalibratedClassifier(FrozenEstimator(base), "ops").fit(X[200:400], y[200:400])
    assert model.margin_scale_ == np.quantile(np.abs(margin[200:400]), 0.99) / 6.0
    p = model.predict_proba(X[400:])[:, 1]
    assert len(np.unique(p)) > 160
    assert roc_auc_score(y[400:], p) == pytest.approx(roc_auc_score(y[400:], margin[400:]), abs=0.002)
    first = model.margin_scale_
    assert model.partial_fit(X[:200], y[:200]).margin_scale_ == first  # it stands
    scored_by_clone = OnlineCalibratedClassifier(SGDClassifier(random_state=0), "ops", cv=last_rows(200, 400))
    assert scored_by_clone.fit(X[:400], y[:400]).margin_scale_ == first
    bare = ScoreCalibrator("ops", scale="logit").fit(margin[200:400], y[200:400])
    assert bare.margin_scale_ == first and np.array_equal(bare.transform(margin[400:]), p)
    assert ScoreCalibrator("ops", scale="logit").fit([-9.0, 9.0], [0, 1]).margin_scale_ == 1.0  # logits stay


def test_margins_without_end() -> None:
    X, y = events(100)

    class Endless(Told):
        def decision_function(self, X: Any) -> Any:
            return np.where(self.model_.decision_function(X) > 0, np.inf, -np.inf)

    model = OnlineCalibratedClassifier(Endless(), "ops").fit(X, y)
    assert model.margin_scale_ == 1.0 and np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    "base",
    [KNeighborsClassifier(7), DecisionTreeClassifier(min_samples_leaf=5, random_state=0)],
    ids=["votes", "leaves"],
)
def test_votes_are_not_believed_to_the_end(base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_gaussian_quantiles(n_samples=1500, n_features=6, n_classes=2, random_state=3)
    train, test = slice(0, 900), slice(900, 1500)
    model = OnlineCalibratedClassifier(base).fit(X[train], y[train])
    low, high = model.score_range_
    assert 0.01 < low < 0.2 and 0.7 < high < 0.99
    loss = log_loss(y[test], model.predict_proba(X[test]))
    assert model.partial_fit(X[test], y[test]).score_range_ == (low, high)  # it stands
    monkeypatch.setattr(estimators, "score_range", lambda *_: (0.0, 1.0))
    believed = OnlineCalibratedClassifier(base).fit(X[train], y[train])
    assert loss < log_loss(y[test], believed.predict_proba(X[test]))


def test_probabilities_that_come_near_the_ends_stay_as_they_are() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = OnlineCalibratedClassifier(GaussianNB()).fit(X, y)
    assert model.score_range_ == (0.0, 1.0)
    frozen = FrozenEstimator(KNeighborsClassifier().fit(X, y))
    assert OnlineCalibratedClassifier(frozen).partial_fit(X, y).score_range_ == (0.0, 1.0)  # labels come later
    assert estimators.score_range(np.array([0.0, 0.5]), np.array([1.0, 1.0])) == (0.5, 1.0)
