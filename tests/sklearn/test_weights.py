"""Weights in scikit-learn: what they teach, who receives them, and how they are routed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from classifiers import Said, Sure, events
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from calibeat import Calibrator, InvalidInput, MultiCalibrator, OutcomeConflict
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator
from calibeat.sklearn.estimators import score_range, sigmoid


def weighted(n: int = 300) -> tuple[Any, Any, Any]:
    X, y = events(n)
    return X, y, np.exp(np.random.default_rng(9).normal(size=n))


def frozen(X: Any, y: Any) -> Any:
    return FrozenEstimator(LogisticRegression().fit(X, y))


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# ---- what weights teach --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "ops", "tops"])
def test_the_bits_of_a_run(method: str) -> None:
    X, y, w = weighted()
    base = frozen(X[:100], y[:100])
    scores, outcomes = sigmoid(base.decision_function(X)), y == "yes"
    in_turn = Calibrator(method)
    in_turn.run(scores, outcomes, weights=w)
    want = in_turn.predict_many(scores)
    fitted = OnlineCalibratedClassifier(base, method, order="time", delay=0).fit(X, y, sample_weight=w)
    assert np.array_equal(fitted.predict_proba(X)[:, 1], want)
    bare = ScoreCalibrator(method, order="time", delay=0).fit(scores, outcomes, sample_weight=w)
    assert np.array_equal(bare.transform(scores), want)
    one_by_one = OnlineCalibratedClassifier(base, method)
    for i in range(300):
        one_by_one.partial_fit(X[i : i + 1], y[i : i + 1], sample_weight=w[i : i + 1])
    assert np.allclose(one_by_one.predict_proba(X)[:, 1], want, rtol=0, atol=1e-9)
    ignored = OnlineCalibratedClassifier(base, method, order="time", delay=0).fit(X, y)
    assert not np.allclose(ignored.predict_proba(X)[:, 1], want, atol=1e-3)


def test_the_bits_of_a_run_of_many_classes() -> None:
    X, y = load_iris(return_X_y=True)
    w = np.exp(np.random.default_rng(9).normal(size=150))
    base = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X, y))
    multi = MultiCalibrator([0, 1, 2])
    multi.run(base.predict_proba(X), y, weights=w)
    fitted = OnlineCalibratedClassifier(base, order="time", delay=0).fit(X, y, sample_weight=w)
    assert np.allclose(fitted.predict_proba(X), multi.predict_many(base.predict_proba(X)), rtol=0, atol=1e-12)


def test_rows_that_arrive_together() -> None:
    X, y, w = weighted()
    base = frozen(X[:100], y[:100])
    scores = sigmoid(base.decision_function(X))
    by_receipts = Calibrator()
    receipts = [by_receipts.predict(score) for score in scores.tolist()]
    for receipt, label, weight in zip(receipts, y, w.tolist(), strict=True):
        by_receipts.update(receipt, int(label == "yes"), weight)
    want = by_receipts.predict_many(scores)
    for calibrator in (
        ScoreCalibrator().partial_fit(scores, y, None, w),  # by position, as scikit-learn has it
        ScoreCalibrator(order="time", delay=300).fit(scores, y, w),
    ):
        assert np.allclose(calibrator.transform(scores), want, rtol=0, atol=1e-9)
    model = OnlineCalibratedClassifier(base).partial_fit(X, y, sample_weight=w)
    assert np.allclose(model.predict_proba(X)[:, 1], want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", ["shuffled", "time"])
def test_weights_of_one_are_no_weights_and_only_ratios_matter(order: str) -> None:
    X, y, w = weighted()
    scores = sigmoid(2 * X[:, 0])
    plain = ScoreCalibrator(order=order).fit(scores, y)
    ones = ScoreCalibrator(order=order).fit(scores, y, sample_weight=np.ones(300))
    assert np.array_equal(plain.transform(scores), ones.transform(scores))
    once = ScoreCalibrator(order=order).fit(scores, y, sample_weight=w)
    eight = ScoreCalibrator(order=order).fit(scores, y, sample_weight=8.0 * w)
    assert np.array_equal(once.transform(scores), eight.transform(scores))
    X_plain = OnlineCalibratedClassifier(LogisticRegression(), order=order).fit(X, y).predict_proba(X)
    X_ones = OnlineCalibratedClassifier(LogisticRegression(), order=order).fit(X, y, np.ones(300)).predict_proba(X)
    assert np.allclose(X_plain, X_ones, rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", ["shuffled", "time"])
def test_fit_leaves_out_rows_of_weight_0(order: str) -> None:
    X, y, w = weighted()
    w[::4] = 0.0
    kept = w > 0
    base = frozen(X[:100], y[:100])
    scores = sigmoid(base.decision_function(X))
    some = ScoreCalibrator(order=order).fit(scores, y, sample_weight=w)
    fewer = ScoreCalibrator(order=order).fit(scores[kept], y[kept], sample_weight=w[kept])
    assert np.array_equal(some.transform(scores), fewer.transform(scores))
    assert some.calibrator_.outcomes == kept.sum()
    for estimator in (base, LogisticRegression(tol=1e-10)):
        model = OnlineCalibratedClassifier(estimator, order=order)
        with_zeros, without = (
            clone(model).fit(X[rows], y[rows], sample_weight=w[rows]) for rows in (slice(None), kept)
        )
        assert np.allclose(with_zeros.predict_proba(X), without.predict_proba(X), rtol=0, atol=1e-6)
    # Rows of weight 0 that were forecast are settled: what comes later is as far away as it was.
    late = ScoreCalibrator().partial_fit(scores, y, sample_weight=w)
    assert late.calibrator_.events == 300
    before = late.transform(scores)
    assert np.array_equal(late.partial_fit(scores[:3], y[:3], sample_weight=[0, 0, 0]).transform(scores), before)


def test_zeros_of_which_one_in_twenty_is_kept() -> None:
    rng = np.random.default_rng(5)
    n = 20_000
    X = rng.normal(size=(n, 2))
    y = (rng.random(n) < sigmoid(X[:, 0])).astype(int)
    seen = (y == 1) | (rng.random(n) < 0.05)
    w = np.where(y == 1, 1.0, 20.0)[seen]
    test = rng.normal(size=(4000, 2))
    truth = (rng.random(4000) < sigmoid(test[:, 0])).astype(int)
    losses = {}
    for name, weights in (("weighted", w), ("ignored", None)):
        model = OnlineCalibratedClassifier(LogisticRegression()).fit(X[seen], y[seen], sample_weight=weights)
        losses[name] = log_loss(truth, model.predict_proba(test))
    best = log_loss(truth, sigmoid(test[:, 0]))
    assert losses["weighted"] < best + 0.05 and losses["ignored"] > best + 0.5


def test_receipts_have_weights_of_their_own() -> None:
    X, y, w = weighted()
    model = OnlineCalibratedClassifier(frozen(X[:100], y[:100])).fit(X[:200], y[:200])
    twin = Calibrator.from_json(model.calibrator_.to_json())
    receipts = model.forecast(X[200:])
    scores = sigmoid(model.estimator_.decision_function(X[200:]))
    own = [twin.predict(score) for score in scores.tolist()]
    for receipt, label, weight in zip(own, y[200:], w[200:].tolist(), strict=True):
        twin.update(receipt, int(label == "yes"), weight)
    for bad, message in (([1.0] * 99 + [-1.0], "got -1.0 - at row 99"), ([1.0] * 3, "weights 3")):
        with pytest.raises(InvalidInput, match=message):
            model.update(receipts, y[200:], sample_weight=bad)
    with pytest.raises(InvalidInput, match=r"weight must be a finite number >= 0, got -2\.0"):
        model.update(receipts[0], y[200], sample_weight=-2.0)
    assert model.calibrator_.outcomes == 200  # of what was refused nothing was learnt
    assert model.update(receipts[0], y[200], sample_weight=w[200]) == "learnt"
    assert model.update(receipts[1:], y[201:], sample_weight=pl.Series(w[201:])) == ["learnt"] * 99
    assert np.array_equal(model.calibrator_.predict_many(scores), twin.predict_many(scores))
    assert model.update(receipts, y[200:], sample_weight=w[200:]) == ["repeated"] * 100
    with pytest.raises(OutcomeConflict):
        model.update(receipts[0], y[200], sample_weight=2 * w[200])
    bare = ScoreCalibrator().fit([0.1, 0.6, 0.9], ["a", "b", "b"])
    assert bare.update(bare.forecast([0.2, 0.3]), ["a", "b"], sample_weight=[5, 1]) == ["learnt"] * 2


def test_the_range_of_votes_is_a_weighted_share() -> None:
    p = np.array([0.0] * 8 + [0.4, 0.6] + [1.0] * 8)
    outcomes = np.array([0, 0, 0, 1] * 2 + [0, 1] + [1] * 8, dtype=float)
    assert score_range(p, outcomes, np.full(18, 7.0)) == pytest.approx(score_range(p, outcomes))
    weights = np.where(outcomes == 1, 1.0, 20.0)
    low, high = score_range(p, outcomes, weights)
    assert low == pytest.approx((2 * 122 / 2402 + 1) / (122**2 / 2402 + 2)) and high == pytest.approx(0.9)


class Votes(Said):
    """One that says 0 or 1 of most rows."""

    def predict_proba(self, X: Any) -> Any:
        p = np.clip(np.round(0.5 + np.asarray(X)[:, 0], 1), 0.0, 1.0)
        return np.column_stack([1 - p, p])


def test_the_range_of_a_model_that_votes_is_measured_with_the_weights() -> None:
    X, y, w = weighted()
    base = FrozenEstimator(Votes().fit(X, y))
    model = OnlineCalibratedClassifier(base).fit(X, y, sample_weight=w)
    p, outcomes = base.predict_proba(X)[:, 1], (y == "yes").astype(float)
    assert model.score_range_ == score_range(p, outcomes, w) != score_range(p, outcomes)


# ---- the base ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [4, KFold(4), "pairs"])
def test_the_base_and_its_clones_are_fitted_with_the_weights(cv: Any) -> None:
    X, y, w = weighted()
    w[::7] = 0.0
    if cv == "pairs":
        cv = list(StratifiedKFold(4).split(X, y))
    model = OnlineCalibratedClassifier(LogisticRegression(), cv=cv).fit(X, y, sample_weight=list(w))
    whole = LogisticRegression().fit(X, y, sample_weight=w)
    assert np.allclose(model.estimator_.coef_, whole.coef_, rtol=0, atol=1e-6)
    assert not np.allclose(model.estimator_.coef_, LogisticRegression().fit(X, y).coef_, atol=1e-3)
    assert model.calibrator_.outcomes == np.count_nonzero(w)
    if not isinstance(cv, int):
        folds = cv if isinstance(cv, list) else list(cv.split(X, y))
        for fold, (train, _) in zip(model.fold_estimators_, folds, strict=True):
            want = LogisticRegression().fit(X[train], y[train], sample_weight=w[train])
            assert np.allclose(fold.coef_, want.coef_, rtol=0, atol=1e-4)


def test_a_base_that_takes_no_weights_is_fitted_without_them_and_a_warning_says_so() -> None:
    X, y, w = weighted()
    said = (
        r"Sure.fit takes no sample_weight: the base is fitted without the weights, and only the calibration uses them"
    )
    with pytest.warns(UserWarning, match=said):
        model = OnlineCalibratedClassifier(Sure(), order="time", delay=0).fit(X, y, sample_weight=w)
    outside = OnlineCalibratedClassifier(FrozenEstimator(Sure().fit(X, y)), order="time", delay=0)
    outside.fit(X, y, sample_weight=w)  # a frozen base is not fitted: no warning
    assert model.calibrator_.outcomes == outside.calibrator_.outcomes == 300
    OnlineCalibratedClassifier(Sure()).fit(X, y)


def test_a_class_without_weight_is_a_class_without_rows() -> None:
    X, y, _ = weighted(100)
    model = OnlineCalibratedClassifier(LogisticRegression())
    with pytest.raises(ValueError, match=r"one class only so far in rows of positive weight: \['yes'\]"):
        model.fit(X, y, sample_weight=(y == "yes").astype(float))
    one = np.where(y == "yes", 1.0, 0.0)
    one[np.flatnonzero(y == "no")[0]] = 1.0
    with pytest.raises(ValueError, match="got one row of 'no'"):
        model.fit(X, y, sample_weight=one)
    alone = OnlineCalibratedClassifier(frozen(X, y)).fit(X, y, sample_weight=(y == "yes").astype(float))
    assert alone.calibrator_.outcomes == (y == "yes").sum()  # a frozen base has both


# ---- pipelines, cross-validation and searches ----------------------------------------------------------------------


def test_without_routing_pipelines_and_searches_pass_weights_to_fit() -> None:
    X, y, w = weighted()
    model = OnlineCalibratedClassifier(LogisticRegression(), cv=2)
    scaled = StandardScaler().fit_transform(X)
    want = clone(model).fit(scaled, y, sample_weight=w).predict_proba(scaled)
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline.fit(X, y, onlinecalibratedclassifier__sample_weight=w)
    assert np.allclose(pipeline.predict_proba(X), want, rtol=0, atol=1e-12)
    found = cross_val_score(model, X, y, cv=2, scoring="neg_log_loss", params={"sample_weight": w})
    by_hand = [
        -log_loss(y[test], clone(model).fit(X[train], y[train], sample_weight=w[train]).predict_proba(X[test]))
        for train, test in StratifiedKFold(2).split(X, y)
    ]
    assert np.allclose(found, by_hand, rtol=0, atol=1e-9)  # scikit-learn weighs scores only if it routes
    search = GridSearchCV(model, {"method": ["ops", "auto"]}, cv=2, error_score="raise").fit(X, y, sample_weight=w)
    best = clone(search.best_estimator_).fit(X, y, sample_weight=w)
    assert np.array_equal(search.predict_proba(X), best.predict_proba(X))


@pytest.mark.usefixtures("routing")
def test_with_routing_scores_are_weighted_too() -> None:
    X, y, w = weighted()
    base = LogisticRegression().set_fit_request(sample_weight=True)
    model = OnlineCalibratedClassifier(base, cv=2)
    model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    found = cross_val_score(model, X, y, cv=2, params={"sample_weight": w})
    by_hand = []
    for train, test in StratifiedKFold(2).split(X, y):
        fold = clone(model).fit(X[train], y[train], sample_weight=w[train])
        assert np.allclose(
            fold.estimator_.coef_, LogisticRegression().fit(X[train], y[train], sample_weight=w[train]).coef_
        )
        by_hand.append(accuracy_score(y[test], fold.predict(X[test]), sample_weight=w[test]))
    assert np.allclose(found, by_hand, rtol=0, atol=1e-12)
    search = GridSearchCV(model, {"method": ["ops", "auto"]}, cv=2, error_score="raise").fit(X, y, sample_weight=w)
    auto = search.cv_results_["params"].index({"method": "auto"})
    assert search.cv_results_["mean_test_score"][auto] == pytest.approx(np.mean(by_hand), abs=1e-12)


@pytest.mark.usefixtures("routing")
def test_weights_are_routed_through_pipelines_to_the_calibrator_and_to_the_base() -> None:
    X, y, w = weighted()
    base = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), LogisticRegression())
    base[-1].set_fit_request(sample_weight=True)
    model = OnlineCalibratedClassifier(base, cv=2).set_fit_request(sample_weight=True)
    model.set_partial_fit_request(sample_weight=True)
    outer = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model).fit(X, y, sample_weight=w)
    scaled = StandardScaler().fit_transform(X)
    want = LogisticRegression().fit(StandardScaler().fit_transform(scaled), y, sample_weight=w)
    assert np.allclose(outer[-1].estimator_[-1].coef_, want.coef_, rtol=0, atol=1e-6)
    assert np.array_equal(outer[-1].predict_proba(scaled), clone(model).fit(scaled, y, w).predict_proba(scaled))
    # A base may ask for its own weights by another name.
    apart = LogisticRegression().set_fit_request(sample_weight="of_base")
    model = OnlineCalibratedClassifier(apart, cv=2).set_fit_request(sample_weight=True)
    ours = model.fit(X, y, sample_weight=w, of_base=np.ones(300))
    assert np.allclose(ours.estimator_.coef_, LogisticRegression().fit(X, y).coef_)
    # One that wants none gets none, and one that says nothing is asked to.
    without = OnlineCalibratedClassifier(LogisticRegression().set_fit_request(sample_weight=False), cv=2)
    assert np.allclose(without.fit(X, y, sample_weight=w).estimator_.coef_, LogisticRegression().fit(X, y).coef_)
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        OnlineCalibratedClassifier(LogisticRegression(), cv=2).fit(X, y, sample_weight=w)
    with pytest.raises(TypeError, match="wights"):
        without.fit(X, y, wights=w)
    assert OnlineCalibratedClassifier(KNeighborsClassifier(), cv=2).fit(X, y, sample_weight=w).score(X, y) > 0.7
    assert OnlineCalibratedClassifier(frozen(X, y)).fit(X, y, sample_weight=w).calibrator_.outcomes == 300


@pytest.mark.usefixtures("routing")
def test_the_weights_of_a_transformer_are_routed() -> None:
    X, y, w = weighted()
    scores = sigmoid(X[:, :1])
    model = ScoreCalibrator().set_fit_request(sample_weight=True).set_partial_fit_request(sample_weight=True)
    pipeline = make_pipeline(model, LogisticRegression().set_fit_request(sample_weight=True))
    pipeline.fit(scores, y, sample_weight=w)
    want = ScoreCalibrator().fit(scores, y, sample_weight=w)
    assert np.array_equal(pipeline[0].transform(scores), want.transform(scores))


def test_the_score_is_weighted() -> None:
    X, y, w = weighted()
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(X, y)
    right = model.predict(X) == y
    assert model.score(X, y, sample_weight=w) == pytest.approx((w * right).sum() / w.sum())


# ---- scikit-learn's checks of weights, for the transformer ----------------------------------------------------------


class Squashing(ScoreCalibrator):
    """A transformer that makes one column of scores of whatever the checks send."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(
            sigmoid(np.asarray(X, dtype=float).reshape(len(np.asarray(y)), -1)[:, 0]), np.asarray(y), sample_weight
        )


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_sample_weights_pandas_series,
        estimator_checks.check_sample_weights_not_an_array,
        estimator_checks.check_sample_weights_list,
        estimator_checks.check_sample_weights_shape,
        estimator_checks.check_sample_weights_not_overwritten,
    ],
    ids=lambda check: check.__name__,
)
def test_the_checks_of_scikit_learn_with_scores(check: Any) -> None:
    check("Squashing", Squashing())


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1.0, 1.0, 1.0], "weight must be a finite number >= 0, got -1.0 - at row 0"),
        ([1.0, np.nan, 1.0], "weight must be a finite number >= 0, got nan - at row 1"),
        ([1.0, 1.0, np.inf], "weight must be a finite number >= 0, got inf - at row 2"),
        ([True, True, False], "weight must be a finite number >= 0, got bool True - at row 0"),
        (["a", "b", "c"], "weight must be a finite number >= 0, got str 'a' - at row 0"),
        ([1.0, 1.0], "events 3, weights 2"),
        (np.ones((3, 2)), r"weights must be a one-dimensional array, got shape \(3, 2\)"),
        (pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": 1.0}), "weights must be a one-dimensional array"),
    ],
)
def test_bad_weights(weights: Any, message: str) -> None:
    X, y = np.array([[0.1], [0.5], [0.9]]), ["a", "b", "b"]
    model, bare = OnlineCalibratedClassifier(frozen(X, y)).fit(X, y), ScoreCalibrator().fit(X, y)
    before = model.predict_proba(X), bare.transform(X)
    for call in (model.fit, model.partial_fit, bare.fit, bare.partial_fit):
        with pytest.raises(InvalidInput, match=message):
            call(X, y, sample_weight=weights)
    assert np.array_equal(model.predict_proba(X), before[0]) and np.array_equal(bare.transform(X), before[1])
    for call in (model.fit, bare.fit):
        with pytest.raises(InvalidInput, match="sample_weight must not be zero for all rows"):
            call(X, y, sample_weight=[0, 0, 0])


@pytest.mark.parametrize("method", ["hops", "gauto"])
def test_methods_that_take_no_weights(method: str) -> None:
    X, y, w = weighted(100)
    model = OnlineCalibratedClassifier(frozen(X, y), method).fit(X, y)
    for call in (model.fit, model.partial_fit):
        with pytest.raises(InvalidInput, match="weight"):
            call(X, y, sample_weight=w)
    assert model.calibrator_.outcomes == 100
