"""calibeat in scikit-learn: its own checks, its conventions, and what it says when it is misused."""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from classifiers import Said, Sure, by_hand, events, last_rows
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from calibeat import HOPS, OPS, TOPS, Calibrator, Forecast, MissingExtra, OutcomeConflict
from calibeat.core.method import PRESETS
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator

# ---- scikit-learn's own checks -----------------------------------------------------------------------------------

FIRST_FIT = "partial_fit on a base that was never fitted is a NotFittedError: it leaves the base as it is"
ONE_COLUMN = "a score is one column: the check gives (n,) and then counts, cuts or swaps columns of its own data"
NO_REPETITION = (
    "an outcome of weight 3 is one piece of news, and three outcomes are three: they are scaled to what they tell, so "
    "weights teach less than the same rows again"
)
NO_PROBABILITIES = "the check gives normal deviates where probabilities are wanted, or cuts columns of (n,)"

CLASSIFIER_FAILS = {
    "check_n_features_in_after_fitting": FIRST_FIT,
    "check_estimators_partial_fit_n_features": FIRST_FIT,
    "check_sample_weight_equivalence_on_dense_data": NO_REPETITION,
    "check_sample_weight_equivalence_on_sparse_data": NO_REPETITION,
}
LOGIT_FAILS = {
    **dict.fromkeys(
        (
            "check_dont_overwrite_parameters",
            "check_n_features_in_after_fitting",
            "check_dtype_object",
            "check_estimator_sparse_array",
            "check_f_contiguous_array_estimator",
            "check_transformer_data_not_an_array",
            "check_transformer_general",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_fit2d_1sample",
            "check_fit2d_1feature",
            "check_dict_unchanged",
            "check_n_features_in",
            "check_fit2d_predict1d",
            "check_sample_weights_not_an_array",  # these of weights pass with scores, in test_weights.py
            "check_sample_weights_shape",
            "check_sample_weights_not_overwritten",
            "check_sample_weight_equivalence_on_dense_data",
        ),
        ONE_COLUMN,
    ),
    "check_fit1d": "the check wants one-dimensional input to be refused, and here it is a score for each event",
}
PROBABILITY_FAILS = {
    **{name: NO_PROBABILITIES for name in LOGIT_FAILS if name != "check_fit1d"},
    **dict.fromkeys(
        (
            "check_estimators_overwrite_params",
            "check_estimators_fit_returns_self",
            "check_readonly_memmap_input",
            "check_positive_only_tag_during_fit",
            "check_sample_weights_pandas_series",
            "check_estimators_dtypes",
            "check_pipeline_consistency",
            "check_estimators_pickle",
            "check_transformer_preserve_dtypes",
            "check_fit_idempotent",
            "check_fit_check_is_fitted",
        ),
        NO_PROBABILITIES,
    ),
}


def expected_failures(estimator: Any) -> dict[str, str]:
    if isinstance(estimator, OnlineCalibratedClassifier):
        return CLASSIFIER_FAILS
    if isinstance(estimator, ScoreCalibrator):
        return LOGIT_FAILS if estimator.scale == "logit" else PROBABILITY_FAILS
    return PIPELINE_FAILS


class Squashed(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A column of probabilities, made of whatever the checks send."""

    def fit(self, X: Any, y: Any = None) -> Squashed:  # noqa: ARG002 - scikit-learn's signature
        validate_data(self, X)
        self._n_features_out = 1
        return self

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return 1.0 / (1.0 + np.exp(-validate_data(self, X, reset=False, dtype=np.float64)[:, :1]))


PIPELINE = make_pipeline(Squashed(), ScoreCalibrator())  # with probabilities, the transformer passes all of them
PIPELINE_FAILS = dict.fromkeys(
    ("check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
    "scikit-learn's Pipeline fits its steps in place",
)


@parametrize_with_checks(
    [OnlineCalibratedClassifier(LogisticRegression()), PIPELINE],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@parametrize_with_checks(
    [ScoreCalibrator(scale="logit"), ScoreCalibrator()], expected_failed_checks=expected_failures, xfail_strict=True
)
def test_the_checks_of_scikit_learn_on_data_that_are_no_scores(estimator: Any, check: Any) -> None:
    check(estimator)


# ---- the classifier ----------------------------------------------------------------------------------------------


def test_every_row_is_scored_by_a_clone_that_has_not_seen_it_and_the_base_has_seen_all() -> None:
    X, y = events()
    folds = list(StratifiedKFold(4).split(X, y))
    model = OnlineCalibratedClassifier(LogisticRegression(), cv=folds, order="time").fit(X, y)
    base = LogisticRegression().fit(X, y)
    assert np.array_equal(model.estimator_.coef_, base.coef_)
    assert model.calibrator_.outcomes == 600
    assert model.classes_.tolist() == ["no", "yes"] and model.n_features_in_ == 3
    clones, margin = [LogisticRegression().fit(X[train], y[train]) for train, _ in folds], np.empty(600)
    for fold, (_, test) in zip(clones, folds, strict=True):
        margin[test] = fold.decision_function(X[test])
    mean = np.mean([each.predict_proba(X)[:, 1] for each in (base, *clones)], axis=0)
    want = by_hand(1 / (1 + np.exp(-margin)), y == "yes", mean)
    assert np.allclose(model.predict_proba(X)[:, 1], want, rtol=0, atol=1e-12)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X), np.where(want > 0.5, "yes", "no"))
    assert model.score(X, y) > 0.7
    alone = OnlineCalibratedClassifier(LogisticRegression(), cv=folds, order="time", ensemble=False).fit(X, y)
    assert alone.fold_estimators_ == [] and len(model.fold_estimators_) == 4
    want = by_hand(1 / (1 + np.exp(-margin)), y == "yes", 1 / (1 + np.exp(-base.decision_function(X))))
    assert np.allclose(alone.predict_proba(X)[:, 1], want, rtol=0, atol=1e-12)


def test_rows_that_no_fold_tests_calibrate_nothing() -> None:
    X, y = events()
    model = OnlineCalibratedClassifier(LogisticRegression(), cv=TimeSeriesSplit(5), order="time").fit(X, y)
    assert model.calibrator_.outcomes == 500


def test_sorted_labels_are_no_error_and_give_what_shuffled_ones_do() -> None:
    X, y = load_iris(return_X_y=True)
    model = OnlineCalibratedClassifier(GaussianNB()).fit(X, y)  # as it comes: 50, 50 and 50
    assert model.score(X, y) > 0.95 and log_loss(y, model.predict_proba(X)) < 0.15
    X, y = events()
    by_label = np.argsort(y, kind="stable")
    losses = [
        log_loss(y, OnlineCalibratedClassifier(LogisticRegression()).fit(X[rows], y[rows]).predict_proba(X))
        for rows in (np.arange(600), by_label)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)


def test_a_class_with_few_rows_makes_fewer_folds() -> None:
    X, _ = events(40)
    few = np.where(np.arange(40) < 3, "yes", "no")
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(X, few)
    assert len(model.fold_estimators_) == 3 and model.calibrator_.outcomes == 40
    with pytest.raises(ValueError, match=r"each class twice or more, .* got one row of .*yes.* FrozenEstimator"):
        OnlineCalibratedClassifier(LogisticRegression()).fit(X, np.where(np.arange(40) < 1, "yes", "no"))
    with pytest.raises(ValueError, match=r"got one row of 1 \(n_samples=40\)"):  # the label as a person writes it
        OnlineCalibratedClassifier(LogisticRegression()).fit(X, (np.arange(40) < 1).astype(int))


@pytest.mark.parametrize("method", ["fps", "wps", "swps", "whb", "fbs", "wbs", "twhb"])
@pytest.mark.parametrize("rows", [60, 1300])
def test_methods_that_fit_a_batch_fit_at_the_end_of_fit(method: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 1))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    model = OnlineCalibratedClassifier(FrozenEstimator(Sure().fit(X, y)), method).fit(X, y)
    raw = model.estimator_.predict_proba(X)
    assert log_loss(y, model.predict_proba(X)) < log_loss(y, raw)  # twice too sure
    if method == "fps" and rows < 1000:  # all of them count
        fitted = LogisticRegression(C=np.inf).fit(2 * X, y)
        assert model.calibrator_.params["a"] == pytest.approx(fitted.coef_[0, 0], rel=1e-3)
    bare = ScoreCalibrator(method).fit(raw, y)
    assert not np.allclose(bare.transform(raw), raw, atol=0.01)
    if rows > 1000:  # enough for the method as it is
        assert bare.calibrator_.method == PRESETS[method]


def test_receipts_for_labels_that_come_later() -> None:
    X, y = events()
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(X[:300], y[:300])
    said = model.predict_proba(X[300:400])[:, 1]
    receipts = model.forecast(X[300:400])
    assert np.array_equal([float(f) for f in receipts], said) and model.calibrator_.outcomes == 300
    travelled = [Forecast.from_json(f.to_json()) for f in receipts]
    restored = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    order = np.random.default_rng(0).permutation(100)
    twin = Calibrator.from_json(model.calibrator_.to_json())
    for row in order.tolist():
        twin.update(travelled[row], int(y[300 + row] == "yes"))
    assert restored.update([travelled[row] for row in order[1:]], y[300 + order[1:]]) == ["learnt"] * 99
    assert restored.update(travelled[order[0]], y[300 + order[0]]) == "learnt"
    assert restored.calibrator_.outcomes == 400
    assert restored.update(travelled, y[300:400]) == ["repeated"] * 100  # which change nothing
    assert restored.calibrator_.outcomes == 400
    model.update(receipts, y[300:400])
    assert np.array_equal(model.calibrator_.row, ordered_twin(model, X, y).row)
    with pytest.raises(OutcomeConflict):
        model.update(receipts[0], "yes" if y[300] == "no" else "no")
    for forecasts, labels, message in (
        (receipts[:2], ["yes"], "as many as labels, got 2 and 1"),
        (receipts[:1], ["maybe"], "unseen labels"),
        (["{}"], ["yes"], "Forecast.from_json"),
        ([0.5], ["yes"], "must be receipts"),
        (0.5, ["yes"], "a receipt of forecast"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(forecasts, labels)
    scores = ScoreCalibrator().fit([0.1, 0.6, 0.9], ["a", "b", "b"])
    assert scores.update(scores.forecast([0.2, 0.3]), ["a", "b"]) == ["learnt"] * 2
    assert scores.calibrator_.outcomes == 5


def test_names_of_other_estimators() -> None:
    """Not there, as scikit-learn asks with hasattr; the message says what is."""
    model, scores = OnlineCalibratedClassifier(LogisticRegression()), ScoreCalibrator()
    for host, name, said in (
        (model, "decision_function", r"has no attribute 'decision_function': use predict_proba\(X\)"),
        (model, "transform", r"use predict_proba\(X\)"),
        (scores, "predict_proba", r"use transform\(scores\), or OnlineCalibratedClassifier"),
        (scores, "predict", r"use transform\(scores\)"),
        (scores, "other", "'ScoreCalibrator' object has no attribute 'other'$"),
    ):
        assert not hasattr(host, name)
        with pytest.raises(AttributeError, match=said):
            getattr(host, name)


def ordered_twin(model: Any, X: Any, y: Any) -> Calibrator:
    """A model that has learnt the same labels by `partial_fit`, which forecasts all rows first, too."""
    twin = clone(model).fit(X[:300], y[:300])
    return twin.partial_fit(X[300:400], y[300:400]).calibrator_


def test_labels_that_arrive_later_are_learnt_and_the_base_stays() -> None:
    X, y = events()
    base = FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))
    at_once = OnlineCalibratedClassifier(base, "ops", order="time").fit(X[100:], y[100:])
    bit_by_bit = OnlineCalibratedClassifier(base, "ops", order="time").fit(X[100:300], y[100:300])
    coefficients = bit_by_bit.estimator_.coef_.copy()
    before = bit_by_bit.predict_proba(X)
    assert np.array_equal(bit_by_bit.predict_proba(X), before)  # asking changes nothing
    for i in range(300, 600, 50):
        assert bit_by_bit.partial_fit(X[i : i + 50], y[i : i + 50]) is bit_by_bit
    assert np.array_equal(bit_by_bit.estimator_.coef_, coefficients)
    assert np.array_equal(bit_by_bit.predict_proba(X), at_once.predict_proba(X))
    bit_by_bit.partial_fit(X[:5], ["yes"] * 5, classes=["no", "yes"])  # one class only, once both are known
    assert bit_by_bit.calibrator_.outcomes == 505


@pytest.mark.parametrize("method", ["auto", "tops", "hops", "ops"])
def test_one_row_a_call_is_a_run_and_more_rows_have_arrived_together(method: str) -> None:
    X, y = events(260)
    base = FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))
    one_by_one, together = OnlineCalibratedClassifier(base, method), OnlineCalibratedClassifier(base, method)
    in_turn = OnlineCalibratedClassifier(base, method, order="time", delay=0).fit(X[100:], y[100:])
    for i in range(100, 260):
        one_by_one.partial_fit(X[i : i + 1], y[i : i + 1])
    assert np.allclose(one_by_one.calibrator_.row, in_turn.calibrator_.row, rtol=0, atol=1e-9)
    by_receipts = Calibrator(method)
    scores = 1 / (1 + np.exp(-base.decision_function(X[100:])))
    for i in range(100, 260, 40):
        together.partial_fit(X[i : i + 40], y[i : i + 40])
        receipts = [by_receipts.predict(score) for score in scores[i - 100 : i - 60]]
        for receipt, label in zip(receipts, y[i : i + 40], strict=True):
            by_receipts.update(receipt, int(label == "yes"))
    assert np.allclose(together.calibrator_.row, by_receipts.row, rtol=0, atol=1e-9)
    if method in ("auto", "tops"):
        assert not np.allclose(together.calibrator_.row, in_turn.calibrator_.row)


def test_a_frozen_base_is_calibrated_on_every_row_and_can_start_with_partial_fit() -> None:
    X, y = events()
    base = FrozenEstimator(LogisticRegression().fit(X[:200], y[:200]))
    fitted = OnlineCalibratedClassifier(base, method=OPS, order="time").fit(X[200:], y[200:])
    assert fitted.calibrator_.outcomes == 400
    started = OnlineCalibratedClassifier(base, method="ops").partial_fit(X[200:], y[200:])
    assert np.array_equal(fitted.predict_proba(X), started.predict_proba(X))
    # A base knows both classes; so far only one of them may have arrived.
    one = OnlineCalibratedClassifier(base).fit(X[:20], ["no"] * 20)
    assert one.classes_.tolist() == ["no", "yes"]
    assert one.predict_proba(X)[:, 1].mean() < fitted.predict_proba(X)[:, 1].mean()


def test_clone_pickle_set_params_and_pipelines() -> None:
    X, y = events()
    model = OnlineCalibratedClassifier(LogisticRegression(C=0.5), method=TOPS).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert np.array_equal(copy.predict_proba(X), model.predict_proba(X))
    copy.partial_fit(X, y)
    model.partial_fit(X, y)
    assert np.array_equal(copy.predict_proba(X), model.predict_proba(X))
    fresh = clone(model)
    assert fresh.method == TOPS and fresh.estimator.C == 0.5 and not hasattr(fresh, "calibrator_")
    fresh.set_params(method="ops", estimator__C=2.0, cv=3)
    assert fresh.get_params()["estimator__C"] == 2.0 and fresh.fit(X, y).calibrator_.method == OPS
    outside = make_pipeline(StandardScaler(), OnlineCalibratedClassifier(LogisticRegression())).fit(X, y)
    inside = OnlineCalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y)
    assert np.allclose(outside.predict_proba(X), inside.predict_proba(X), atol=0.02)
    assert inside.partial_fit(X, y).calibrator_.outcomes == 1200


def test_grid_search_over_methods() -> None:
    X, y = events(400)
    search = GridSearchCV(
        OnlineCalibratedClassifier(LogisticRegression(), cv=2),
        {"method": ["bm", "ops", "auto", TOPS, HOPS], "estimator__C": [0.1, 1.0]},
        cv=TimeSeriesSplit(2),
        scoring="neg_log_loss",
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_["method"] in ("bm", "ops", "auto", TOPS, HOPS)
    assert np.isfinite(search.cv_results_["mean_test_score"][[0, 2, 4]]).all()
    scores = GridSearchCV(ScoreCalibrator(), {"method": ["ops", TOPS]}, cv=2, scoring=lambda *_: 0.0)
    assert scores.fit(np.linspace(0, 1, 100), [0, 1] * 50).best_params_ == {"method": "ops"}


def test_data_frames_keep_their_names() -> None:
    X, y = events()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.allclose(model.predict_proba(frame), clone(model).fit(X, y).predict_proba(X), atol=1e-12)
    assert model.partial_fit(pl.DataFrame(X, schema=["a", "b", "c"]), pl.Series(y)).calibrator_.outcomes == 1200


class Reversed(Said):
    """One that names its classes in an order of its own."""

    def fit(self, X: Any, y: Any) -> Reversed:
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_[::-1]
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)[:, ::-1]


def test_the_order_of_the_classes_is_that_of_the_base() -> None:
    X, y = events(400)
    plain = OnlineCalibratedClassifier(LogisticRegression(), "bm").fit(X, y)
    for base in (Reversed(), FrozenEstimator(Reversed().fit(X, y))):
        model = OnlineCalibratedClassifier(base, "bm").fit(X, y)
        assert model.classes_.tolist() == ["yes", "no"]
        assert np.array_equal(model.predict(X), plain.predict(X))
        atol = 0.02 if isinstance(base, FrozenEstimator) else 1e-9  # one base alone, or with those of the folds
        assert np.allclose(model.predict_proba(X), plain.predict_proba(X)[:, ::-1], atol=atol)


def test_names_of_features_do_not_outlive_a_fit() -> None:
    X, y = events(200)
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_") and model.n_features_in_ == 3


def test_a_seed_of_none_is_zero() -> None:
    X, y = events(200)
    asked = [OnlineCalibratedClassifier(LogisticRegression(), "hops", random_state=r).fit(X, y) for r in (None, 0)]
    assert np.array_equal(*(model.predict_proba(X) for model in asked))


# ---- bad input ---------------------------------------------------------------------------------------------------


class Broken(Said):
    """A model whose answers have a hole in the second row."""

    def __init__(self, hole: float = np.nan, shape: int = 2) -> None:
        self.hole, self.shape = hole, shape

    def predict_proba(self, X: Any) -> Any:
        p = np.full((len(X), self.shape), 0.5)
        p[1:2, -1] = self.hole
        return p


def test_what_a_classifier_refuses() -> None:
    X, y = events(100)
    wrap = OnlineCalibratedClassifier
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    three = FrozenEstimator(LogisticRegression().fit(X, np.arange(100) % 3))
    fitted = wrap(LogisticRegression()).fit(X, y)
    for error, message, work in (
        (ValueError, r"previously unseen labels: \['no', 'yes'\]", lambda: wrap(three).fit(X, y)),
        (ValueError, "two classes, got one class only so far", lambda: wrap(LogisticRegression()).fit(X, ["no"] * 100)),
        (
            ValueError,
            r"Each fold of cv must fit the base on both classes \['a', 'b'\], got \['a'\] in 50 of 100 rows",
            lambda: wrap(LogisticRegression(), cv=last_rows(50, 100)).fit(X, ["a"] * 50 + ["b"] * 50),
        ),
        (ValueError, "each row at most once", lambda: wrap(LogisticRegression(), cv=last_rows(50, 100) * 2).fit(X, y)),
        (ValueError, "comes in a FrozenEstimator", lambda: wrap(LogisticRegression(), cv="prefit").fit(X, y)),
        (ValueError, "cv must be a whole number", lambda: wrap(LogisticRegression(), cv=1).fit(X, y)),
        (ValueError, "order must be 'shuffled' or 'time'", lambda: wrap(frozen, order="random").fit(X, y)),
        (ValueError, "a rival in calibeat backtest", lambda: wrap(frozen, "isotonic").fit(X, y)),
        (ValueError, r"one label 'no' - one row is X\[:1\], y\[:1\]", lambda: fitted.partial_fit(X[0], "no")),
        (ValueError, "requires y", lambda: fitted.partial_fit(X, None)),
        (ValueError, r"previously unseen labels: \['maybe'\]", lambda: fitted.partial_fit(X[:2], ["yes", "maybe"])),
        (ValueError, r"previously unseen labels: \[0, 1\]", lambda: wrap(frozen).fit(X, np.arange(100) % 2)),
        (ValueError, "classes must be", lambda: fitted.partial_fit(X, y, classes=["a", "b"])),
        (ValueError, "Broken.predict_proba contains NaN - at row 1", lambda: wrap(Broken()).fit(X, y)),
        (ValueError, r"score must be in \[0, 1\], got 1.5 - at row \d+", lambda: wrap(Broken(1.5)).fit(X, y)),
        (ValueError, r"shape \(20, 2\), got \(20, 3\)", lambda: wrap(Broken(0.5, 3)).fit(X, y)),
        (ValueError, "events 100, weights 99", lambda: wrap(frozen).fit(X, y, sample_weight=np.ones(99))),
        (TypeError, "unexpected arguments: weights", lambda: wrap(frozen).fit(X, y, weights=1)),
        (
            AttributeError,
            "Said has none of the following attributes: decision_function, predict_proba",
            lambda: wrap(Said()).fit(X, y),
        ),
        (NotFittedError, "call 'fit' first", lambda: wrap(LogisticRegression()).partial_fit(X, y)),
        (NotFittedError, "not fitted", lambda: wrap(FrozenEstimator(LogisticRegression())).fit(X, y)),
        (NotFittedError, "not fitted", lambda: wrap(frozen).predict_proba(X)),
        (ValueError, "did you mean 'tops'", lambda: wrap(LogisticRegression(), "topps").fit(X, y)),
        (ValueError, "Method or the name of a preset", lambda: wrap(LogisticRegression(), 3).fit(X, y)),
        (ValueError, "delay must be a whole number", lambda: wrap(LogisticRegression(), delay=-1).fit(X, y)),
        (ValueError, "inconsistent numbers of samples", lambda: wrap(LogisticRegression()).fit(X, y[:50])),
        (ValueError, "Unknown label type", lambda: wrap(LogisticRegression()).fit(X, X[:, 0])),
        (ValueError, "features", lambda: fitted.partial_fit(X[:, :2], y)),
    ):
        with pytest.raises(error, match=message):
            work()
    assert fitted.calibrator_.outcomes == 100  # nothing of what was refused was learnt


def test_a_first_call_that_is_refused_leaves_nothing_behind() -> None:
    X, y = events(100)
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    model = OnlineCalibratedClassifier(frozen)
    for rows, labels, classes in ((X, np.arange(100) % 2, None), (X, y, ["a", "b"]), (X[:, :2], y, None)):
        with pytest.raises(ValueError, match=r"unseen labels|classes must be|features"):
            model.partial_fit(rows, labels, classes)
        with pytest.raises(NotFittedError):
            model.predict_proba(X)
    assert model.partial_fit(X, y).calibrator_.outcomes == 100


def test_rounding_is_forgiven() -> None:
    X, y = events(100)
    assert OnlineCalibratedClassifier(Broken(1.0 + 1e-9)).fit(X, y).calibrator_.outcomes == 100


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("calibeat.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[sklearn\]'"):
        importlib.import_module("calibeat.sklearn")


class Turned(Sure):
    """One that names its classes in another order when it has seen fewer rows."""

    def fit(self, X: Any, y: Any) -> Any:
        super().fit(X, y)
        self.classes_ = self.classes_[:: -1 if len(y) < 400 else 1]
        return self


def test_a_base_that_turns_its_classes_round_is_refused() -> None:
    X, y = events(480)
    with pytest.raises(ValueError, match="The base must name its classes in one order, got"):
        OnlineCalibratedClassifier(Turned(), cv=5).fit(X, y)
