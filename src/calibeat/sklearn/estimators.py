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
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
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
from sklearn.utils._set_output import _get_output_config
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

from calibeat._util.check import check_whole
from calibeat._util.columns import like
from calibeat._util.types import Vector
from calibeat.core.method import Method
from calibeat.hosts.calibrator import Calibrator
from calibeat.hosts.multi import MultiCalibrator, calibrator_of
from calibeat.late import due_of

Labels = npt.NDArray[Any]

ROUNDING = 1e-6  # a sum of probabilities may miss 1, and a certain event be forecast at 1.0000001, by as much
STRAIGHT = 1e-3  # a margin no further than this share of its spread off a line through p, as half floats are, is p
TOLERATED, USUAL = 10.0, 6.0  # sizes of logits; the clip of the scores is at 11.5


class OnlineCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier behind a `Calibrator` (a `MultiCalibrator`) that learns from every label that arrives.

    Parameters
    ----------
    estimator : a classifier of two classes or more. One that is fitted already comes in a
        `sklearn.frozen.FrozenEstimator`.
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`; of more than two classes ``"auto"``
        (which is ``"multi"``), ``"ots"`` or ``"raw"``.
    train_size : of the rows given to `fit`, in the order of time, the first part (a share, or a number of rows) fits
        the base and the rest calibrates it. A frozen estimator is not fitted: all the rows calibrate it.
    delay : of `fit`: how many further rows are forecast before the label of one is known. None: a quarter of the rows
        that calibrate; 0: each comes in turn, before the next forecast; as many as there are rows: all come together
        at the end, as in `partial_fit`. A method that weighs what it has said, as AUTO does, should be told how far
        ahead it will be asked, and 0 only if a label comes after each row.
    random_state : a whole number, the seed of the draws of a hedging method; None is 0.

    Attributes
    ----------
    classes_ : the labels, in the order of the base.
    estimator_ : the base, fitted.
    calibrator_ : the `Calibrator`, of more than two classes the `MultiCalibrator`.
    score_method_ : which method of the base gives its scores.
    margin_scale_ : by what its margins are divided: 1 unless they are larger than logits are.

    The score of a model is its `decision_function` m, a logit or margin, which enters as sigmoid(m), so that the logit
    of the score is m again; or, where the model has no such function (or one that only repeats its probabilities),
    its `predict_proba`, whose logit the scaling takes. Scores are clipped to [1e-5, 1 - 1e-5], which is a logit of
    11.5. So that margins in the hundreds, as of an SVM, do not all end there, they are divided by `margin_scale_`:
    q / 6 where q, the 99 % quantile of their size, is beyond 10, and 1 where it is not, so that logits stay as they
    are. It is taken over the rows that fitted the base, or, for a frozen one, over those of the first call (which
    should be more than a few), and stands from then on.

    Of more than two classes the scores are the base's `predict_proba`; without it softmax of its `decision_function`,
    which must have a column for each class.

    A hedging method draws: `predict_proba` takes the draws of the forecasts that would come next, the first row the
    first one, so that its answer for a row depends on where the row stands. Asking twice gives the same.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.svm import LinearSVC
    >>> X, y = make_classification(3000, random_state=0)
    >>> base = LinearSVC().fit(X[:1000], y[:1000])
    >>> model = OnlineCalibratedClassifier(FrozenEstimator(base), method="ops").fit(X[1000:2000], y[1000:2000])
    >>> model.score_method_, model.predict_proba(X[2000:]).shape
    ('decision_function', (1000, 2))

    Raises
    ------
    ValueError : labels, classes, rows or parameters are not what they must be; `InvalidInput` is one, too.
    TypeError : weights or unknown arguments are given.
    NotFittedError : `partial_fit` before `fit`, and the estimator is not frozen.

    References: scikit-learn's issue 34312 on what goes wrong when probabilities are taken for logits.
    """

    calibrator_: Any
    score_method_: str
    margin_scale_: float

    def __init__(
        self,
        estimator: Any,
        method: str | Method = "auto",
        *,
        train_size: float = 0.5,
        delay: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.train_size = train_size
        self.delay = delay
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *args: Any, **params: Any) -> Self:
        """Fit the base on the first part of the rows, which are in the order of time, and calibrate it on the rest.

        The rest is forecast and learnt, each row `delay` rows after its forecast.
        """
        refuse_weights(self, args, params)
        X, y = indexable(X, y)
        y = checked_labels(y)
        n = _num_samples(X)
        model, first = clone(self.estimator), 0
        if isinstance(model, FrozenEstimator):
            check_is_fitted(model)
            classes = classes_of(model, None)
        else:
            seen, first = np.unique(y), self._rows_of_base(n)
            if len(seen) < 2:
                raise ValueError(f"y must have two classes, got one class only so far: {seen.tolist()}")
            new_calibrator(self, seen)  # refuses a bad method before the base is fitted
            if len(early := np.unique(y[:first])) < len(seen):
                every = "both" if len(seen) == 2 else f"all {len(seen)}"
                raise ValueError(
                    f"The base is fitted on the first {first} of {n} rows, which must have {every} classes "
                    f"{seen.tolist()}, got {early.tolist()} - give it more rows by train_size, or fit it yourself "
                    "and pass it in a FrozenEstimator"
                )
            model.fit(_safe_indexing(X, slice(0, first)), y[:first])
            classes = classes_of(model, seen)
        return self._learn(X, y, model, classes, first=first, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, *args: Any, **params: Any) -> Self:
        """Learn labels that have arrived. The base is not touched.

        The rows of one call arrive together: all of them are forecast, and then all of them are learnt, as it was when
        `predict_proba` was asked for them. (For methods that weigh what they have said, AUTO first, that matters: with
        labels once a week, taken as if each had come before the next forecast, they would trust what has only seen
        the answer.) One row a call is the same as `Calibrator.run`, and so is any call for OPS.

        A frozen estimator can start here, without `fit`. `classes` need not be given; if it is, it must be the base's.
        """
        refuse_weights(self, args, params)
        X, y = indexable(X, y)
        y = checked_labels(y)
        started = hasattr(self, "calibrator_")
        if not started and not isinstance(self.estimator, FrozenEstimator):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet: partial_fit leaves the base as it is, so "
                "call 'fit' first, or pass a fitted base in a FrozenEstimator."
            )
        model = self.estimator_ if started else clone(self.estimator)
        check_is_fitted(model)
        labels = self.classes_ if started else classes_of(model, None)
        check_classes(classes, labels)
        return self._learn(X, y, model, labels, together=True, reset=not started)

    def _learn(
        self, X: Any, y: Labels, model: Any, classes: Labels, *, first: int = 0, together: bool = False, reset: bool
    ) -> Self:
        """Forecast and learn the rows from `first` on; what was refused leaves nothing behind."""
        calibrator, K = new_calibrator(self, classes) if reset else self.calibrator_, len(classes)
        outcomes = outcomes_of(y, classes)
        method = score_method(model, _safe_indexing(X, slice(0, 100)), K) if reset else self.score_method_
        answers = outputs(model, method, _safe_indexing(X, slice(first, None)), K)
        margin, scale = method == "decision_function", 1.0 if reset else self.margin_scale_
        if reset and margin:
            scale = margin_scale(outputs(model, method, _safe_indexing(X, slice(0, first)), K) if first else answers)
        scores = as_probability(answers, margin=margin, scale=scale)
        learn_late(calibrator, scores, outcomes[first:], self.delay, together=together)
        self.estimator_, self.classes_, self.calibrator_ = model, classes, calibrator
        self.score_method_, self.margin_scale_ = method, scale
        take_features(self, model)
        return self

    def predict_proba(self, X: Any) -> Vector:
        """Probabilities of the classes, from what is known now; nothing is learnt."""
        check_is_fitted(self)
        answers = outputs(self.estimator_, self.score_method_, X, len(self.classes_))
        margin = self.score_method_ == "decision_function"
        p: Vector = self.calibrator_.predict_many(as_probability(answers, margin=margin, scale=self.margin_scale_))
        return p if p.ndim == 2 else np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> Labels:
        """The most probable class."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

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
        of_base = get_tags(self.estimator)
        base = of_base.input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = base.sparse, base.allow_nan
        tags.input_tags.pairwise = base.pairwise
        if of_base.classifier_tags is not None:
            tags.classifier_tags.multi_class = of_base.classifier_tags.multi_class
        return tags


class ScoreCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer of bare scores: of shape (n,) or (n, 1), or the two columns of a `predict_proba`.

    Parameters
    ----------
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`.
    scale : "probability", or "logit" for the values of a `decision_function`.
    delay : of `fit`: how many further rows are forecast before the label of one is known. None: a quarter of the
        rows; 0: each comes in turn, before the next forecast; as many as there are rows: all come together at the end,
        as in `partial_fit`.
    random_state : a whole number, the seed of the draws of a hedging method; None is 0.

    Attributes
    ----------
    classes_ : the two labels; scores and forecasts are of the second one.
    calibrator_ : the `Calibrator`.
    margin_scale_ : by what values on the scale "logit" are divided: 1 unless those of the first call were larger than
        logits are, see `OnlineCalibratedClassifier`.

    `fit` starts anew and takes rows in the order of time; `partial_fit` goes on with labels that have arrived
    together; `transform` gives forecasts from what is known now, in the shape in which the scores
    came. (So does `fit_transform`, which has then seen the labels of what it forecasts: to judge a method, transform
    the rows that come next.)

    Raises
    ------
    ValueError : scores, labels or parameters are not what they must be; `InvalidInput` is one, too.
    TypeError : weights or unknown arguments are given.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(2000)
    >>> labels = rng.random(2000) < 0.3 + 0.4 * scores
    >>> calibrator = ScoreCalibrator(delay=0).fit(scores, labels)
    >>> calibrator.transform([[0.05], [0.95]]).round(1).tolist()
    [[0.3], [0.7]]
    """

    calibrator_: Calibrator
    classes_: Labels
    margin_scale_: float

    def __init__(
        self,
        method: str | Method = "auto",
        *,
        scale: str = "probability",
        delay: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.method = method
        self.scale = scale
        self.delay = delay
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *args: Any, **params: Any) -> Self:
        """Forget what was learnt, and learn from these rows, which are in the order of time."""
        refuse_weights(self, args, params)
        return self._learn(X, y, None, together=False, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, *args: Any, **params: Any) -> Self:
        """Learn labels that have arrived together: forecast all the rows, then learn all of them.

        `classes` names the two if the first rows have only one of them.
        """
        refuse_weights(self, args, params)
        return self._learn(X, y, classes, together=True, reset=not hasattr(self, "calibrator_"))

    def transform(self, X: Any) -> Vector:
        """Forecasts, in the shape of X; a column of a data frame if X is one."""
        check_is_fitted(self)
        scores, shape = self._read(X, reset=False)
        p = self.calibrator_.predict_many(self._as_probability(scores, self.margin_scale_))
        if len(shape) > 1:
            return np.column_stack([1.0 - p, p]) if shape[1] == 2 else p.reshape(shape)
        kind = _get_output_config("transform", self)["dense"]
        # scikit-learn makes a frame of what it gets; a column of another library would not fit into it.
        return like(X, p) if kind == "default" or type(X).__module__.startswith(kind) else p.reshape(-1, 1)

    def _learn(self, X: Any, y: Any, classes: Any, *, together: bool, reset: bool) -> Self:
        if self.scale not in ("probability", "logit"):
            raise ValueError(f"scale must be 'probability' or 'logit', got {self.scale!r}")
        calibrator = new_calibrator(self, (0, 1)) if reset else self.calibrator_
        reader = copy(self)  # which takes down the features; they are ours once everything has been looked at
        scores, _ = reader._read(X, reset=reset)  # noqa: SLF001 - a copy of itself
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        y = checked_labels(y)
        check_consistent_length(scores, y)
        if not reset:
            check_classes(classes, self.classes_)
        labels = two_classes(y, classes) if reset else self.classes_
        outcomes = outcomes_of(y, labels)
        scale = (margin_scale(scores) if self.scale == "logit" else 1.0) if reset else self.margin_scale_
        learn_late(calibrator, self._as_probability(scores, scale), outcomes, self.delay, together=together)
        self.calibrator_, self.classes_, self.margin_scale_ = calibrator, labels, scale
        take_features(self, reader)
        return self

    def _as_probability(self, scores: Vector, scale: float) -> Vector:
        return as_probability(scores, margin=self.scale == "logit", scale=scale)

    def _read(self, X: Any, *, reset: bool) -> tuple[Vector, tuple[int, ...]]:
        """Scores as they came, without those of the first of two classes, and the shape in which they came."""
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
        return X[:, -1], shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags(multi_class=False)  # it classifies nothing, but its y has two classes
        tags.input_tags.one_d_array = True
        return tags


# ---- what both share ----------------------------------------------------------------------------------------------


def new_calibrator(estimator: Any, classes: Any) -> Any:
    """The calibrator of an estimator that has seen nothing, for two classes or more."""
    return calibrator_of(classes, estimator.method, 0 if estimator.random_state is None else estimator.random_state)


def learn_late(
    calibrator: Calibrator | MultiCalibrator, scores: Vector, outcomes: Any, delay: int | None, *, together: bool
) -> None:
    """Forecast row after row and learn the outcome of each `delay` rows later, or all of them together at the end.

    Nothing tells `fit` how far ahead it will be asked, if `delay` is None. All labels at the end make AUTO too careful,
    each in turn too bold; a quarter of the rows is better than both on most streams (docs/gallery.md).
    """
    n = len(scores)
    late = n if together else max(1, n // 4) if delay is None else check_whole("delay", delay, 0, sys.maxsize)
    calibrator.run(scores, outcomes, due=due_of(n, mature=min(late, n)) if late else None, finish=True)


def take_features(estimator: Any, other: Any) -> None:
    """What is known of the columns is what the other knows; nothing stays of an earlier fit."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(other, name):
            setattr(estimator, name, getattr(other, name))
        elif hasattr(estimator, name):
            delattr(estimator, name)


# ---- labels -------------------------------------------------------------------------------------------------------


def refuse_weights(estimator: BaseEstimator, args: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Raise if there are weights, or unknown arguments."""
    name = type(estimator).__name__
    # By scikit-learn's custom what comes next by position are weights.
    if params.pop("sample_weight", None) is not None or any(value is not None for value in args):
        raise TypeError(f"{name} does not support sample_weight: each outcome happened once, and is learnt once.")
    if params:
        raise TypeError(f"{name} got unexpected arguments: {', '.join(params)}")


def checked_labels(y: Any) -> Labels:
    """Labels as an array of one dimension, without missing ones."""
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    return np.asarray(y)


def classes_of(model: Any, seen: Labels | None) -> Labels:
    """The classes of a fitted model, in its own order; those seen if it does not say."""
    classes = getattr(model, "classes_", seen)
    if classes is None or len(classes) < 2:
        got = "no classes_" if classes is None else f"{len(classes)} classes"
        name = type(getattr(model, "estimator", model)).__name__
        raise ValueError(f"The base must have two classes or more. {name} has {got}.")
    return np.asarray(classes)


def check_classes(classes: Any, known: Labels) -> None:
    """Raise unless the classes that are named, if any are, are the known ones."""
    if classes is not None and not np.array_equal(np.unique(classes), np.unique(known)):
        raise ValueError(f"classes must be {known.tolist()}, got {np.asarray(classes).tolist()}")


def two_classes(y: Labels, classes: Any) -> Labels:
    """The two labels that are named, or seen, or known by custom from the one that is seen."""
    seen = np.unique(y if classes is None else column_or_1d(classes))
    if len(seen) == 1:
        for custom in ([0, 1], [-1, 1]):
            if seen.dtype.kind in "biuf" and seen[0] in custom:
                return np.array(custom).astype(seen.dtype)
        raise ValueError(f"y has one class only so far, {seen.tolist()}: name both by classes=, in partial_fit")
    kind = type_of_target(seen, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
    return seen


def outcomes_of(y: Labels, classes: Labels) -> Vector | Labels:
    """Of two classes 1 for the second and 0 for the first; of more the labels as they are, if the base knows them."""
    known = np.isin(y, classes)
    if not known.all():
        raise ValueError(f"y contains previously unseen labels: {np.unique(y[~known]).tolist()}")
    return (y == classes[1]).astype(np.float64) if len(classes) == 2 else y


# ---- the score of a model: of two classes a probability of the second one, of more a matrix ------------------------


def score_method(model: Any, X: Any, K: int = 2) -> str:
    """Which method gives the model's real score: a margin, unless there is none, or it only repeats the probability.

    Of more than two classes the probabilities, if there are some: margins of one class against the rest, or of one
    against one, are no logits of a softmax.
    """
    margins, probabilities = hasattr(model, "decision_function"), hasattr(model, "predict_proba")
    if margins and probabilities and K > 2:
        return "predict_proba"
    if margins and probabilities:
        margin, p = np.asarray(model.decision_function(X)), np.asarray(model.predict_proba(X))
        usable = margin.ndim == 1 and not (p.ndim == 2 and looks_like_probability(margin, p[:, -1]))
        return "decision_function" if usable else "predict_proba"
    if margins or probabilities:
        return "decision_function" if margins else "predict_proba"
    raise AttributeError(
        f"{type(model).__name__} has none of the following attributes: decision_function, predict_proba."
    )


def looks_like_probability(margin: npt.NDArray[Any], p: npt.NDArray[Any]) -> bool:
    """Whether the margin is p, or lies on a line through it, such as 2p - 1, and not on one through the logit of p."""
    m, p = margin.astype(np.float64), p.astype(np.float64)
    if not (np.isfinite(m).all() and np.isfinite(p).all()):
        return False  # refused later, with a sentence
    if np.allclose(m, p) or np.allclose(m, 2.0 * p - 1.0) or np.allclose(m, p - 0.5):
        return True  # also of one row, through which every line goes
    inside = np.clip(p, 1e-12, 1.0 - 1e-12)
    off = _off_the_line(p, m)
    return off <= STRAIGHT * float(np.ptp(m)) and off < 0.5 * _off_the_line(np.log(inside / (1.0 - inside)), m)


def _off_the_line(x: Vector, y: Vector) -> float:
    """The largest distance of y from its straight line of least squares through x."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy) / max(float(dx @ dx), 1e-300)
    return float(np.abs(dy - slope * dx).max())


def outputs(model: Any, method: str, X: Any, K: int = 2) -> Vector:
    """What the model's score method says of the second class, or of each of K: margins, or probabilities."""
    output = np.asarray(getattr(model, method)(X), dtype=np.float64)
    wanted = (_num_samples(X),) if method == "decision_function" and K == 2 else (_num_samples(X), K)
    if output.shape != wanted:
        raise ValueError(f"{type(model).__name__}.{method} must give an array of shape {wanted}, got {output.shape}")
    score = output if method == "decision_function" or K > 2 else output[:, 1]
    missing = np.isnan(score) if score.ndim == 1 else np.isnan(score).any(axis=1)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"The output of {type(model).__name__}.{method} contains NaN - at row {row}")
    return score


def as_probability(score: Vector, *, margin: bool, scale: float) -> Vector:
    """The score as calibeat takes it, so that its logit is the margin divided by its scale."""
    if score.ndim == 2:
        return softmax(score / scale) if margin else shares(score)
    return sigmoid(score / scale) if margin else rounded(score)


def margin_scale(margins: Vector) -> float:
    """1 for margins of the size of logits; if more than 1 in 100 is beyond 10, what brings 99 in 100 of them within 6.

    Scores are clipped at a logit of 11.5: margins in the hundreds would all become one score.
    """
    if margins.ndim == 2:
        margins = margins - margins.mean(axis=1, keepdims=True)
    sizes = np.abs(margins[np.isfinite(margins)])
    most = float(np.quantile(sizes, 0.99)) if len(sizes) else 0.0
    return most / USUAL if most > TOLERATED else 1.0


def sigmoid(margin: Vector) -> Vector:
    """1 / (1 + exp(-margin)), for margins of any size."""
    tame = np.exp(-np.abs(margin))
    return np.where(margin >= 0.0, 1.0, tame) / (1.0 + tame)


def softmax(margins: Vector) -> Vector:
    """Rows of sum 1, for finite margins of any size."""
    e = np.exp(margins - margins.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def shares(p: Vector) -> Vector:
    """Rows of sum 1 from those that miss it by rounding (of single precision); more is left, to be complained about."""
    p = rounded(p)
    total = p.sum(axis=1, keepdims=True)
    return np.where(np.abs(total - 1.0) < 1e-3, p / np.where(total > 0.0, total, 1.0), p)


def rounded(p: Vector) -> Vector:
    """Without what rounding has put outside [0, 1]; more than that is left, for others to complain about."""
    return np.where((p > -ROUNDING) & (p < 1.0 + ROUNDING), np.clip(p, 0.0, 1.0), p)
