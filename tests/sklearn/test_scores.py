"""calibeat in scikit-learn: which score of a model is taken, and the transformer of bare scores."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from classifiers import Disguised, Said, Sure, by_hand, events
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from calibeat import OPS
from calibeat.sklearn.classifier import OnlineCalibratedClassifier, ScoreCalibrator

# ---- the score of a model ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [Sure(), Disguised()])
def test_probabilities_enter_by_their_logit(base: Any) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 1))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    model = OnlineCalibratedClassifier(base, "ops", train_size=10).fit(X, y)
    assert model.score_method_ == "predict_proba"
    params = model.calibrator_.params
    assert abs(params["a"] - 0.5) < 0.05 and abs(params["b"]) < 0.05  # taken for logits, no slope could undo it
    assert np.allclose(model.predict_proba([[1.0]])[0, 1], 1 / (1 + np.exp(-1)), atol=0.02)


@pytest.mark.parametrize(("base", "used"), [
    (LogisticRegression(), "decision_function"), (LinearSVC(), "decision_function"), (SVC(), "decision_function"),
    (RandomForestClassifier(5, random_state=0), "predict_proba"),
])  # fmt: skip
def test_the_real_score_of_a_model(base: Any, used: str) -> None:
    X, y = events(300)
    model = OnlineCalibratedClassifier(base, OPS).fit(X, y)
    assert model.score_method_ == used
    fitted = model.estimator_
    if used == "decision_function":
        margin = fitted.decision_function(X)
        assert model.margin_scale_ == 1.0
        score = 1 / (1 + np.exp(-margin))
    else:
        score = fitted.predict_proba(X)[:, 1]
    assert np.allclose(model.predict_proba(X)[:, 1], by_hand(score[150:], y[150:] == "yes", score, OPS), atol=1e-12)


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
            "2p - 1": 2 * p - 1, "p - 1/2": p - 0.5, "half": p.astype(np.float16), "single": p.astype(np.float32),
            "3p + 7": 3 * p + 7, "logit": margin, "3 logits": 3 * margin, "column": margin[:, None],
            "two columns": np.column_stack([-margin, margin]), "nan": np.full(len(p), np.nan),
        }  # fmt: skip
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
    of_base_rows = OnlineCalibratedClassifier(SGDClassifier(random_state=0), "ops", train_size=200).fit(
        X[:400], y[:400]
    )
    assert of_base_rows.margin_scale_ == np.quantile(np.abs(margin[:200]), 0.99) / 6.0
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


# ---- the transformer ---------------------------------------------------------------------------------------------


def test_scores_in_three_shapes() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(500)
    labels = rng.random(500) < scores**2
    want = by_hand(scores, labels, scores)
    for given in (scores, scores[:, None], np.column_stack([1 - scores, scores])):
        calibrator = ScoreCalibrator().fit(given, labels)
        got = calibrator.transform(given)
        assert got.shape == given.shape
        assert np.allclose(got if got.ndim == 1 else got[:, -1], want, atol=1e-12)
    assert np.allclose(got.sum(axis=1), 1.0)
    halves = ScoreCalibrator("ops").partial_fit(scores[:250], labels[:250]).partial_fit(scores[250:], labels[250:])
    want = by_hand(scores, labels, scores, OPS)
    assert np.array_equal(halves.transform(scores), want)
    logits = ScoreCalibrator("ops", scale="logit").fit(np.log(scores / (1 - scores)), labels)
    assert np.allclose(logits.transform([0.0]), by_hand(scores, labels, [0.5], OPS), atol=1e-9)
    assert np.array_equal(pickle.loads(pickle.dumps(halves)).transform(scores), want)  # noqa: S301 - our own bytes


def test_labels_of_the_transformer() -> None:
    scores = [0.2, 0.4, 0.6]
    for first, both in (([0] * 3, [0, 1]), ([True] * 3, [False, True]), ([-1] * 3, [-1, 1]), ([1.0] * 3, [0.0, 1.0])):
        assert ScoreCalibrator().fit(scores, first).classes_.tolist() == both
    named = ScoreCalibrator().partial_fit(scores, ["a"] * 3, classes=["b", "a"])
    assert named.classes_.tolist() == ["a", "b"]
    assert named.partial_fit(scores, ["b"] * 3).calibrator_.outcomes == 6


def test_a_column_comes_back_as_a_column() -> None:
    calibrator = ScoreCalibrator().fit(pl.Series([0.1, 0.6, 0.9]), pl.Series([0, 1, 1]))
    assert isinstance(calibrator.transform(pl.Series([0.2])), pl.Series)
    assert calibrator.transform(pd.Series([0.2, 0.3], index=["a", "b"])).index.tolist() == ["a", "b"]
    assert isinstance(calibrator.transform([0.2, 0.3]), np.ndarray)


def test_set_output() -> None:
    calibrator = ScoreCalibrator().set_output(transform="pandas")
    frame = pd.DataFrame({"score": [0.1, 0.6, 0.9]}, index=[7, 8, 9])
    assert calibrator.fit(frame, [0, 1, 1]).transform(frame).index.tolist() == [7, 8, 9]
    assert calibrator.get_feature_names_out().tolist() == ["score"]


def test_set_output_for_another_library() -> None:
    scores, labels = pd.Series([0.1, 0.6, 0.9], index=["a", "b", "c"]), [0, 1, 1]
    plain = ScoreCalibrator().fit(scores, labels)
    want = plain.transform(scores).tolist()
    frame = ScoreCalibrator().set_output(transform="polars").fit(scores, labels).transform(scores)
    assert isinstance(frame, pl.DataFrame) and frame["x0"].to_list() == want
    frame = ScoreCalibrator().set_output(transform="pandas").fit(scores, labels).transform(scores)
    assert frame["x0"].tolist() == want and frame.index.tolist() == ["a", "b", "c"]
    frame = ScoreCalibrator().set_output(transform="pandas").fit(scores, labels).transform(pl.Series(scores))
    assert isinstance(frame, pd.DataFrame) and frame["x0"].tolist() == want


def test_a_fit_that_is_refused_leaves_a_calibrator_as_it_was() -> None:
    calibrator = ScoreCalibrator().fit(pd.DataFrame({"score": [0.1, 0.6, 0.9]}), [0, 1, 1])
    before, asked = dict(vars(calibrator)), pd.DataFrame({"score": [0.3, 0.5]})
    for scores, labels in (([[0.5, 0.6]], [1]), ([[0.5, 0.5]], ["a"]), ([0.1, 2.0], [0, 1]), ([0.1, 0.2], None)):
        with pytest.raises(ValueError, match=r"sum to 1|one class only|score must be|requires y"):
            calibrator.fit(scores, labels)
        assert vars(calibrator) == before
    assert calibrator.transform(asked).shape == (2, 1)
    calibrator.fit(np.array([[0.1], [0.6]]), [0, 1])
    assert not hasattr(calibrator, "feature_names_in_")


def test_classes_are_looked_at_in_every_call() -> None:
    calibrator = ScoreCalibrator().partial_fit([0.1, 0.6], [0, 1])
    with pytest.raises(ValueError, match=r"classes must be \[0, 1\], got \['x', 'y'\]"):
        calibrator.partial_fit([0.1], [0], classes=["x", "y"])
    assert calibrator.partial_fit([0.1], [0], classes=[1, 0]).calibrator_.outcomes == 3


def test_what_a_transformer_refuses() -> None:
    y = [0, 1, 1]
    fitted = ScoreCalibrator().fit([0.1, 0.5, 0.7], y)
    for error, message, work in (
        (ValueError, r"score must be in \[0, 1\], got 1.3 - at row 2",
         lambda: ScoreCalibrator().fit([0.1, 0.2, 1.3], y)),
        (ValueError, "contains NaN", lambda: ScoreCalibrator().fit([0.1, 0.2, np.nan], y)),
        (ValueError, "sum to 1, got .* at row 1", lambda: ScoreCalibrator().fit([[0.5, 0.5], [0.5, 0.6]], [0, 1])),
        (ValueError, "one column or the two of predict_proba, got 3", lambda: ScoreCalibrator().fit(np.eye(3), y)),
        (ValueError, "one column of logits, got 2", lambda: ScoreCalibrator(scale="logit").fit(np.eye(3)[:, :2], y)),
        (ValueError, "scale must be", lambda: ScoreCalibrator(scale="odds").fit([0.1, 0.5, 0.7], y)),
        (ValueError, "1 features", lambda: fitted.transform([[0.5, 0.5]])),
        (ValueError, "requires y", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], None)),
        (ValueError, "one class only so far, \\['a'\\]", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], ["a"] * 3)),
        (ValueError, "Only binary", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], ["a", "b", "c"])),
        (ValueError, "unseen labels", lambda: fitted.partial_fit([0.1], [2])),
        (TypeError, "sample_weight", lambda: fitted.fit([0.1, 0.5, 0.7], y, sample_weight=[1, 2, 3])),
        (NotFittedError, "not fitted", lambda: ScoreCalibrator().transform([0.5])),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            work()
