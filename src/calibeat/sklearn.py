"""calibeat in scikit-learn: a classifier that keeps its probabilities honest, and a transformer of bare scores.

>>> import numpy as np
>>> from sklearn.linear_model import LogisticRegression
>>> from calibeat.sklearn import OnlineCalibratedClassifier
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(2000, 3))
>>> y = np.where(rng.random(2000) < 1 / (1 + np.exp(-X[:, 0])), "on time", "late")
>>> model = OnlineCalibratedClassifier(LogisticRegression()).fit(X[:1500], y[:1500])
>>> model.classes_, model.predict_proba(X[1500:1503]).shape
(array(['late', 'on time'], dtype='<U7'), (3, 2))
>>> model.partial_fit(X[1500:], y[1500:]).calibrator_.outcomes      # 750 in fit, and 500 that have arrived since
1250
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ._check import Vector, check_scores, check_whole
from .calibrator import Calibrator
from .errors import MissingExtra
from .forecast import Forecast
from .frames import like
from .method import Method

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import ClassifierTags, _safe_indexing, get_tags, indexable
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import (
        _num_samples,
        assert_all_finite,
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError as error:
    raise MissingExtra("calibeat.sklearn needs scikit-learn 1.6 or newer: pip install 'calibeat[sklearn]'") from error

__all__ = ["OnlineCalibratedClassifier", "ScoreCalibrator"]

ROUNDING = 1e-6  # a sum of probabilities may miss 1, and a certain event be forecast at 1.0000001, by as much

Labels = npt.NDArray[Any]


class OnlineCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A binary classifier behind a `Calibrator` that learns from every label that arrives.

    Parameters
    ----------
    estimator : a binary classifier. One that is fitted already comes in a `sklearn.frozen.FrozenEstimator`.
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`.
    train_size : of the rows given to `fit`, in the order of time, the first part (a share, or a number of rows) fits
        the base and the rest calibrates it. A frozen estimator is not fitted: all the rows calibrate it.
    delay : of `fit`: how many further rows are forecast before the label of one is known. Between labels forecasts
        stand still; a method that weighs what it has said, as AUTO does, must know if it will be asked far ahead.
    random_state : a whole number, the seed of the draws of a hedging method.

    Attributes
    ----------
    classes_ : the two labels; probabilities are of the second one.
    estimator_ : the base, fitted.
    calibrator_ : the `Calibrator`.
    score_method_ : which method of the base gives its scores.

    The score of a model is its `decision_function` m, a logit or margin, which enters as sigmoid(m), so that the logit
    of the score is m again; or, where the model has no such function (or one that only repeats its probabilities),
    its `predict_proba`, whose logit the scaling takes. Scores are clipped to [1e-5, 1 - 1e-5]: margins beyond 11.5 on
    either side count as 11.5, so scale the features of a model whose margins are in the hundreds.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.svm import LinearSVC
    >>> X, y = make_classification(3000, random_state=0)
    >>> base = LinearSVC().fit(X[:1000], y[:1000])
    >>> model = OnlineCalibratedClassifier(FrozenEstimator(base), method="ops").fit(X[1000:2000], y[1000:2000])
    >>> model.score_method_, model.predict_proba(X[2000:]).shape
    ('decision_function', (1000, 2))

    References: scikit-learn's issue 34312 on what goes wrong when probabilities are taken for logits.
    """

    def __init__(
        self,
        estimator: Any,
        method: str | Method = "auto",
        *,
        train_size: float = 0.5,
        delay: int = 0,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.train_size = train_size
        self.delay = delay
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the base on the first part of the rows, which are in the order of time, and calibrate it on the rest.

        Calibration goes row after row, forecast, then update, as `Calibrator.run` does, or `delay` rows later.
        """
        _refuse(self, params)
        calibrator = Calibrator(self.method, self.random_state)
        X, y = indexable(X, y)
        y = _checked_labels(y)
        n = _num_samples(X)
        model, first = clone(self.estimator), 0
        if isinstance(model, FrozenEstimator):
            classes = _classes_of(model)
        else:
            _check_binary(y)
            classes, first = np.unique(y), self._rows_of_base(n)
            if len(classes) < 2:
                raise ValueError(f"y must have two classes, got one class only so far: {classes.tolist()}")
            if len(seen := np.unique(y[:first])) < 2:
                raise ValueError(
                    f"The base is fitted on the first {first} of {n} rows, which must have both classes "
                    f"{classes.tolist()}, got {seen.tolist()} - give it more rows by train_size, or fit it yourself "
                    "and pass it in a FrozenEstimator"
                )
            model.fit(_safe_indexing(X, slice(0, first)), y[:first])
        outcomes = _outcomes(y, classes)
        score_method = _score_method(model, _safe_indexing(X, slice(0, 100)))
        scores = _scores(model, score_method, classes, _safe_indexing(X, slice(first, n)))
        _learn_late(calibrator, scores, outcomes[first:], self.delay)
        self._take(model, classes, score_method, calibrator)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, **params: Any) -> Self:
        """Learn labels that have arrived. The base is not touched.

        The rows of one call arrive together: all of them are forecast, and then all of them are learnt, as it was when
        `predict_proba` was asked for them. (For methods that weigh what they have said, AUTO first, that matters: with
        labels once a week, taken as if each had come before the next forecast, they would trust what has only seen
        the answer.) One row a call is the same as `Calibrator.run`, and so is any call for OPS.

        A frozen estimator can start here, without `fit`. `classes` need not be given; if it is, it must be the two.
        """
        _refuse(self, params)
        X, y = indexable(X, y)
        y = _checked_labels(y)
        if not hasattr(self, "calibrator_"):
            if not isinstance(self.estimator, FrozenEstimator):
                raise NotFittedError(
                    f"This {type(self).__name__} instance is not fitted yet: partial_fit leaves the base as it is, so "
                    "call 'fit' first, or pass a fitted base in a FrozenEstimator."
                )
            model, labels = clone(self.estimator), _classes_of(self.estimator)
            fresh = Calibrator(self.method, self.random_state)
            start = labels, _score_method(model, _safe_indexing(X, slice(0, 100)))
            _scores(model, start[1], labels, X)  # what is wrong with the rows is said before anything is kept
            self._take(model, *start, fresh)
        if classes is not None and not np.array_equal(np.unique(classes), np.unique(self.classes_)):
            raise ValueError(f"classes must be {self.classes_.tolist()}, got {np.asarray(classes).tolist()}")
        outcomes = _outcomes(y, self.classes_)
        scores = _scores(self.estimator_, self.score_method_, self.classes_, X)
        _learn_late(self.calibrator_, scores, outcomes, len(scores))
        return self

    def predict_proba(self, X: Any) -> Vector:
        """Probabilities of the two classes, from what is known now; nothing is learnt."""
        check_is_fitted(self)
        p = self.calibrator_.predict_many(_scores(self.estimator_, self.score_method_, self.classes_, X))
        return np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> Labels:
        """The class that is the more probable one."""
        p = self.predict_proba(X)
        return self.classes_[(p[:, 1] > p[:, 0]).astype(np.intp)]

    def _take(self, model: Any, classes: Labels, score_method: str, calibrator: Calibrator) -> None:
        self.estimator_, self.classes_ = model, classes
        self.score_method_, self.calibrator_ = score_method, calibrator
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def _rows_of_base(self, n: int) -> int:
        size = self.train_size
        share = isinstance(size, (float, np.floating)) and 0.0 < size < 1.0
        if not share and (isinstance(size, bool) or not isinstance(size, (int, np.integer))):
            raise ValueError(f"train_size must be a share in (0, 1) or a number of rows, got {size!r}")
        if n < 2:
            raise ValueError(f"Found array with {n} sample(s) while a minimum of 2 is required: n_samples = {n}")
        first = max(1, int(size * n)) if share else int(size)
        if not 1 <= first < n:
            raise ValueError(f"train_size must leave rows for the base and for calibration, got {size!r} of {n}")
        return first

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = base.sparse, base.allow_nan
        tags.input_tags.pairwise = base.pairwise
        tags.classifier_tags.multi_class = False
        return tags


class ScoreCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer of bare scores: of shape (n,) or (n, 1), or the two columns of a `predict_proba`.

    Parameters
    ----------
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`.
    scale : "probability", or "logit" for the values of a `decision_function` (clipped to 11.5 on either side).
    delay : of `fit`: how many further rows are forecast before the label of one is known.
    random_state : a whole number, the seed of the draws of a hedging method.

    Attributes
    ----------
    classes_ : the two labels; scores and forecasts are of the second one.
    calibrator_ : the `Calibrator`.

    `fit` goes through the rows in the order of time and forecasts each before it learns; `partial_fit` takes labels
    that have arrived together; `transform` gives forecasts from what is known now, in the shape in which the scores
    came. (So does `fit_transform`, which has then seen the labels of what it forecasts: to judge a method, transform
    the rows that come next.)

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(2000)
    >>> labels = rng.random(2000) < 0.3 + 0.4 * scores
    >>> calibrator = ScoreCalibrator().fit(scores, labels)
    >>> calibrator.transform([[0.05], [0.95]]).round(1).tolist()
    [[0.3], [0.7]]
    """

    calibrator_: Calibrator
    classes_: Labels

    def __init__(
        self, method: str | Method = "auto", *, scale: str = "probability", delay: int = 0, random_state: int = 0
    ) -> None:
        self.method = method
        self.scale = scale
        self.delay = delay
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Forget what was learnt, and learn from these rows, one after the other."""
        return self._learn(X, y, None, params, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, **params: Any) -> Self:
        """Learn labels that have arrived together: forecast all the rows, then learn all of them.

        `classes` names the two if the first rows have only one of them.
        """
        return self._learn(X, y, classes, params, reset=not hasattr(self, "calibrator_"), together=True)

    def transform(self, X: Any) -> Vector:
        """Forecasts, in the shape of X; a column of a data frame if X is one."""
        check_is_fitted(self)
        scores, shape = self._read(X, reset=False)
        p = self.calibrator_.predict_many(scores)
        if len(shape) == 1:
            return like(X, p)
        return np.column_stack([1.0 - p, p]) if shape[1] == 2 else p.reshape(shape)

    def _learn(
        self, X: Any, y: Any, classes: Any, params: dict[str, Any], *, reset: bool, together: bool = False
    ) -> Self:
        _refuse(self, params)
        if self.scale not in ("probability", "logit"):
            raise ValueError(f"scale must be 'probability' or 'logit', got {self.scale!r}")
        calibrator = Calibrator(self.method, self.random_state) if reset else self.calibrator_
        scores, _ = self._read(X, reset=reset)
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        y = _checked_labels(y)
        check_consistent_length(scores, y)
        labels = _two_classes(y, classes) if reset else self.classes_
        outcomes = _outcomes(y, labels)
        _learn_late(calibrator, scores, outcomes, len(scores) if together else self.delay)
        self.calibrator_, self.classes_ = calibrator, labels
        return self

    def _read(self, X: Any, *, reset: bool) -> tuple[Vector, tuple[int, ...]]:
        """Scores as probabilities, and the shape in which they came."""
        if np.ndim(X) == 1:
            X = check_array(X, ensure_2d=False, dtype=np.float64, input_name="X", estimator=self)
            shape = X.shape
            X = validate_data(self, X.reshape(-1, 1), reset=reset, dtype=np.float64)
        else:
            X = validate_data(self, X, reset=reset, dtype=np.float64)
            shape = X.shape
        if shape[1:] == (2,) and self.scale == "probability":
            off = np.abs(X.sum(axis=1) - 1.0) > ROUNDING
            if off.any():
                row = int(off.argmax())
                raise ValueError(
                    f"Two columns must be probabilities that sum to 1, got {X[row].tolist()} - at row {row}"
                )
        elif X.shape[1] != 1:
            wanted = "one column" + (" or the two of predict_proba" if self.scale == "probability" else " of logits")
            raise ValueError(f"X must have {wanted}, got {X.shape[1]} columns")
        column = X[:, -1]
        return (_sigmoid(column) if self.scale == "logit" else _rounded(column)), shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags(multi_class=False)  # it classifies nothing, but its y has two classes
        tags.input_tags.one_d_array = True
        return tags


# ---- scores ------------------------------------------------------------------------------------------------------


def _score_method(model: Any, X: Any) -> str:
    """Which method gives the model's real score: a margin, unless there is none, or it is a probability in disguise."""
    margins, probabilities = hasattr(model, "decision_function"), hasattr(model, "predict_proba")
    if margins and probabilities:
        margin, p = np.asarray(model.decision_function(X)), np.asarray(model.predict_proba(X))
        in_disguise = p.ndim == 2 and margin.shape == p[:, -1].shape and np.allclose(margin, p[:, -1])
        return "predict_proba" if in_disguise else "decision_function"
    if margins or probabilities:
        return "decision_function" if margins else "predict_proba"
    raise AttributeError(
        f"{type(model).__name__} has none of the following attributes: decision_function, predict_proba."
    )


def _scores(model: Any, method: str, classes: Labels, X: Any) -> Vector:
    """The model's scores as probabilities of the second class, the logit of which is the model's own."""
    said = np.asarray(getattr(model, method)(X), dtype=np.float64)
    wanted = (_num_samples(X),) if method == "decision_function" else (_num_samples(X), len(classes))
    if said.shape != wanted:
        raise ValueError(f"{type(model).__name__}.{method} must give an array of shape {wanted}, got {said.shape}")
    score = said if method == "decision_function" else said[:, 1]
    if np.isnan(score).any():
        row = int(np.isnan(score).argmax())
        raise ValueError(f"The output of {type(model).__name__}.{method} contains NaN - at row {row}")
    return _sigmoid(score) if method == "decision_function" else _rounded(score)


def _sigmoid(margin: Vector) -> Vector:
    tame = np.exp(-np.abs(margin))
    return np.where(margin >= 0.0, 1.0, tame) / (1.0 + tame)


def _rounded(p: Vector) -> Vector:
    """Without what rounding has put outside [0, 1]; more than that is left, for others to complain about."""
    return np.where((p > -ROUNDING) & (p < 1.0 + ROUNDING), np.clip(p, 0.0, 1.0), p)


def _learn_late(calibrator: Calibrator, scores: Vector, outcomes: Vector, delay: int) -> None:
    """Forecast row after row and learn the outcome of each `delay` rows later; those still under way at the end."""
    if check_whole("delay", delay, 0, sys.maxsize) == 0:
        calibrator.run(scores, outcomes)
        return
    waiting: deque[tuple[Forecast, float]] = deque()
    for score, outcome in zip(check_scores(scores).tolist(), outcomes.tolist(), strict=True):
        if len(waiting) > delay:
            calibrator.update(*waiting.popleft())
        waiting.append((calibrator.predict(score), outcome))
    for forecast, outcome in waiting:
        calibrator.update(forecast, outcome)


# ---- labels ------------------------------------------------------------------------------------------------------


def _refuse(estimator: BaseEstimator, params: dict[str, Any]) -> None:
    name = type(estimator).__name__
    if params.pop("sample_weight", None) is not None:
        raise TypeError(f"{name} does not support sample_weight: each outcome happened once, and is learnt once.")
    if params:
        raise TypeError(f"{name} got unexpected arguments: {', '.join(params)}")


def _checked_labels(y: Any) -> Labels:
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    return np.asarray(y)


def _check_binary(y: Labels) -> None:
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")


def _classes_of(model: Any) -> Labels:
    """The two classes of a fitted model."""
    check_is_fitted(model)
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) != 2:
        got = "no classes_" if classes is None else f"{len(classes)} classes"
        raise ValueError(f"Only binary classification is supported. {type(model.estimator).__name__} has {got}.")
    return np.asarray(classes)


def _two_classes(y: Labels, classes: Any) -> Labels:
    """The two labels that are named, or seen, or known by custom from the one that is seen."""
    seen = np.unique(y if classes is None else column_or_1d(classes))
    if len(seen) == 1:
        for custom in ([0, 1], [-1, 1]):
            if seen.dtype.kind in "biuf" and seen[0] in custom:
                return np.array(custom).astype(seen.dtype)
        raise ValueError(f"y has one class only so far, {seen.tolist()}: name both by classes=, in partial_fit")
    _check_binary(seen)
    return seen


def _outcomes(y: Labels, classes: Labels) -> Vector:
    known = np.isin(y, classes)
    if not known.all():
        raise ValueError(f"y contains previously unseen labels: {np.unique(y[~known]).tolist()}")
    return (y == classes[1]).astype(np.float64)
