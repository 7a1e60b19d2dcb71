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
>>> model.partial_fit(X[1500:], y[1500:]).calibrator_.outcomes      # 1500 in fit, and 500 that have arrived since
2000
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn import get_config
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
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import ClassifierTags, _safe_indexing, get_tags, indexable
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    _check_method_params,
    _num_samples,
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from calibeat._compiled import Forecast, MultiForecast
from calibeat._util.check import check_choice, check_weight, check_weights, check_whole
from calibeat._util.columns import as_frame, as_series, like
from calibeat._util.types import Ints, Vector
from calibeat.core.method import Method, method_named
from calibeat.core.refit import FTL, Fixed
from calibeat.errors import InvalidInput
from calibeat.hosts.calibrator import Calibrator, add_hints
from calibeat.hosts.groups import Attributes, Groups
from calibeat.hosts.multi import MultiCalibrator, calibrator_of
from calibeat.late import due_of

Labels = npt.NDArray[Any]

ORDERS = ("shuffled", "time")
ROUNDING = 1e-6  # a sum of probabilities may miss 1, and a certain event be forecast at 1.0000001, by as much
STRAIGHT = 1e-3  # a margin no further than this share of its spread off a line through p, as half floats are, is p
WHOLE = (0.0, 1.0)  # the range of scores
EXTREME = 0.01  # share of rows with a score of exactly 0, or 1, that are not believed
TOLERATED, USUAL = 10.0, 6.0  # sizes of logits; the clip of the scores is at 11.5
GOLDEN = (5.0**0.5 - 1.0) / 2.0
OTHERS = {  # what people ask for by the names of scikit-learn
    "isotonic": "that is a method of CalibratedClassifierCV, and a rival in calibeat backtest",
    "sigmoid": "that is a method of CalibratedClassifierCV; online it is 'ops', fitted once 'fps'",
    "temperature": "that is a method of CalibratedClassifierCV; of many classes online it is 'ots'",
}


class OnlineCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier behind a `Calibrator` (a `MultiCalibrator`) that learns from every label that arrives.

    Parameters
    ----------
    estimator : a classifier of two classes or more. One that is fitted already comes in a
        `sklearn.frozen.FrozenEstimator`: it is not fitted again, and all the rows of `fit` calibrate it.
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`; of more than two classes ``"auto"``
        (which is ``"multi"``), ``"ots"`` or ``"raw"``.
    cv : who scores the rows of `fit`. A number of folds, stratified and shuffled (fewer if a class has fewer rows):
        a clone of the base that was fitted without a row scores it. Or a splitter of scikit-learn, or pairs of indices;
        rows that no fold tests calibrate nothing.
    ensemble : whether the score of a new row is the mean of those of the base, fitted on all the rows, and of the
        clones of the folds. False keeps the base alone, which is faster to ask.
    order : what the order of the rows of `fit` means. ``"shuffled"``: nothing, they may also be sorted by label; they
        are learnt in an order that mixes labels and scores well. ``"time"``: they are learnt as they come, the last
        ones count most, and each label comes `delay` rows late.
    delay : of `fit`: how many further rows are forecast before the label of one is known. None: 0 for shuffled rows,
        and a quarter of the rows in the order of time. As many as there are rows: all come together at the end, as in
        `partial_fit`. A method that weighs what it has said, as AUTO does, should be told how far ahead it will be
        asked, and 0 only if a label comes after each row.
    groups : names of attributes of each row, such as country and device, a `Number` for one such as age, or a `Groups`:
        forecasts then hold within each of their values. The values are columns of X with these names, or come as
        ``group_values=`` of each method, a data frame or an array, also by scikit-learn's metadata routing. (There
        ``groups=`` belongs to splitters such as `GroupKFold`.) Two classes, and methods with `Lanes` (AUTO).
    random_state : a whole number, the seed of the folds, of the order of shuffled rows, and of the draws of a hedging
        method; None is 0.

    Attributes
    ----------
    classes_ : the labels, in the order of the base.
    estimator_ : the base, fitted on all the rows.
    fold_estimators_ : the clones that speak with it, see `ensemble`.
    calibrator_ : the `Calibrator`, of more than two classes the `MultiCalibrator`.
    score_method_ : which method of the base gives its scores.
    margin_scale_ : by what its margins are divided: 1 unless they are larger than logits are.
    score_range_ : the range that its probabilities are clipped to: (0, 1) unless it says exactly 0 or 1 of many rows.

    The score of a model is its `decision_function` m, a logit or margin, which enters as sigmoid(m), so that the logit
    of the score is m again; or, where the model has no such function (or one that only repeats its probabilities),
    its `predict_proba`, whose logit the scaling takes. Scores are clipped to [1e-5, 1 - 1e-5], which is a logit of
    11.5. So that margins in the hundreds, as of an SVM, do not all end there, they are divided by `margin_scale_`:
    q / 6 where q, the 99 % quantile of their size, is beyond 10, and 1 where it is not, so that logits stay as they
    are. It is taken over the scores of the first call (which should be more than a few), and stands from then on.

    A tree, a forest or neighbours say exactly 0 where none of a few rows was a one. They do not mean it. Where more
    than 1 in 100 rows of `fit` get such a score and none comes near it, the range of the scores ends at the share of
    these rows that were ones, which the clones have not seen; likewise for 1 (`score_range_`).

    Of more than two classes the scores are the base's `predict_proba`; without it softmax of its `decision_function`,
    which must have a column for each class.

    Methods that fit a batch of the past (FPS, WPS, SWPS, WHB and their like) wait for 1000 outcomes, or as many as they
    are told. In `fit` they fit at the end of fewer rows, or, if a calibeater follows as in TWHB, in the middle.

    Weights: `sample_weight` of `fit`, `partial_fit`, `update` and `score` is how many events a row stands for, such as
    1 / (the probability that its label was recorded). `fit` gives them to the base and to the clones too; it warns if
    the base does not take them. Only ratios matter to the calibrator, and a row of weight 20 is one piece of news, not
    20 rows. `fit` leaves out rows of weight 0. With scikit-learn's metadata routing the base must request them, too.
    Methods with a `Hedging` or a `Guard` refuse weights.

    Labels that come later: `partial_fit` takes rows again, `update` the receipts that `forecast` has given.

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

    With groups, given beside the rows:

    >>> country = np.array([["fr"], ["it"]])[np.arange(3000) % 2]
    >>> model = OnlineCalibratedClassifier(FrozenEstimator(base), groups=["country"])
    >>> model = model.fit(X[:2000], y[:2000], group_values=country[:2000])
    >>> model.predict_proba(X[2000:], group_values=country[2000:]).shape
    (1000, 2)

    Raises
    ------
    ValueError : labels, classes, rows or parameters are not what they must be; `InvalidInput` is one, too.
    TypeError : unknown arguments are given.
    NotFittedError : `partial_fit` before `fit`, and the estimator is not frozen.

    References: scikit-learn's issue 34312 on what goes wrong when probabilities are taken for logits.
    """

    calibrator_: Any
    fold_estimators_: list[Any]
    score_method_: str
    margin_scale_: float
    score_range_: tuple[float, float]

    def __init__(
        self,
        estimator: Any,
        method: str | Method = "auto",
        *,
        cv: Any = 5,
        ensemble: bool = True,
        order: str = "shuffled",
        delay: int | None = None,
        groups: Groups | Attributes | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.order = order
        self.delay = delay
        self.groups = groups
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, group_values: Any = None, **params: Any) -> Self:
        """Fit the base on all the rows, and calibrate it by scores of clones that have not seen the row they score.

        With scikit-learn's metadata routing, further arguments are those that the base requests.
        """
        X, y, weights = self._checked(X, y, sample_weight)
        model, clones = clone(self.estimator), list[Any]()
        frozen = isinstance(model, FrozenEstimator)
        of_base = self._params_of_base(model, weights, group_values, params)
        columns = group_columns(self, X, group_values)
        counted = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
        if frozen:
            check_is_fitted(model)
            classes = classes_of(model, None)
            method = score_method(model, _safe_indexing(X, slice(0, 100)), len(classes))
            answers, rows = outputs(model, method, X, len(classes))[counted], counted
        else:
            seen = np.unique(y)
            if len(present := np.unique(y[counted])) < 2:
                heavy = "" if weights is None else " in rows of positive weight"
                raise ValueError(f"y must have two classes, got one class only so far{heavy}: {present.tolist()}")
            new_calibrator(self, seen)  # refuses a bad method before the base is fitted
            folds = [
                (counted_of(train, weights), counted_of(test, weights)) for train, test in folds_of(self, X, y, counted)
            ]
            model.fit(X, y, **of_base)
            classes = classes_of(model, seen)
            method = score_method(model, _safe_indexing(X, slice(0, 100)), len(classes))
            answers, rows, clones = self._scored_by_clones(X, y, folds, method, classes, of_base)
        outcomes, kept = outcomes_of(y, classes)[rows], None if weights is None else weights[rows]
        calibrator = new_calibrator(self, classes, rows=len(rows))
        margin = method == "decision_function"
        scale = margin_scale(answers) if margin else 1.0
        within = WHOLE if margin or len(classes) > 2 else score_range(answers, outcomes, kept)
        scores = as_probability(answers, margin=margin, scale=scale, within=within)
        learn_rows(self, calibrator, scores, outcomes, None if columns is None else rows_of(columns, rows), kept)
        return self._take(model, clones, classes, calibrator, method, scale, within)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, group_values: Any = None
    ) -> Self:
        """Learn labels that have arrived. The base is not touched.

        The rows of one call arrive together: all of them are forecast, and then all of them are learnt, as it was when
        `predict_proba` was asked for them. (For methods that weigh what they have said, AUTO first, that matters: with
        labels once a week, taken as if each had come before the next forecast, they would trust what has only seen
        the answer.) One row a call is the same as `Calibrator.run`, and so is any call for OPS.

        A frozen estimator can start here, without `fit`. `classes` need not be given; if it is, it must be the base's.
        """
        X, y, weights = self._checked(X, y, sample_weight, every=False)
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
        columns, outcomes = group_columns(self, X, group_values), outcomes_of(y, labels)
        if started:
            learn_together(self.calibrator_, self._scores(X), outcomes, columns, weights)
            return self
        calibrator = new_calibrator(self, labels)
        method = score_method(model, _safe_indexing(X, slice(0, 100)), len(labels))
        answers, margin = outputs(model, method, X, len(labels)), method == "decision_function"
        scale = margin_scale(answers) if margin else 1.0
        learn_together(calibrator, as_probability(answers, margin=margin, scale=scale), outcomes, columns, weights)
        return self._take(model, [], labels, calibrator, method, scale, WHOLE)

    def predict_proba(self, X: Any, group_values: Any = None) -> Vector:
        """Probabilities of the classes, from what is known now; nothing is learnt."""
        check_is_fitted(self)
        p: Vector = self.calibrator_.predict_many(self._scores(X), **as_argument(group_columns(self, X, group_values)))
        return p if p.ndim == 2 else np.column_stack([1.0 - p, p])

    def predict(self, X: Any, group_values: Any = None) -> Labels:
        """The most probable class."""
        p = self.predict_proba(X, group_values)
        return self.classes_[p.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, group_values: Any = None) -> float:
        """The share of rows whose class `predict` names."""
        return float(accuracy_score(y, self.predict(X, group_values), sample_weight=sample_weight))

    # ---- labels that come later, by receipts ----------------------------------------------------------------------

    def forecast(self, X: Any, group_values: Any = None) -> list[Any]:
        """Forecast rows one after the other: a receipt for each, to be kept until its label is known.

        A receipt is the `Forecast` of `Calibrator.predict` (a `MultiForecast` of more than two classes). As a number it
        is the probability of ``classes_[1]``; `to_json` and `from_json` take it through a queue or a database. What
        `predict_proba` says at this moment is the same for every method that does not draw.

        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = make_classification(400, random_state=0)
        >>> model = OnlineCalibratedClassifier(LogisticRegression()).fit(X[:300], y[:300])
        >>> receipts = model.forecast(X[300:])
        >>> model.update(receipts[50:], y[350:])[:2], model.update(receipts[50], y[350])
        (['learnt', 'learnt'], 'repeated')
        """
        check_is_fitted(self)
        return forecast_rows(self, self._scores(X), group_columns(self, X, group_values))

    def update(self, forecasts: Any, y: Any, sample_weight: Any = None) -> str | list[str]:
        """Learn the labels of receipts that `forecast` has given: one or many, in any order, at any time.

        Says what happened, of each receipt: "learnt", or "repeated" if its label came before. If a receipt is refused,
        those before it have been learnt; all of them may be sent again, each with the same weight.

        Raises
        ------
        ValueError : a label is none of the classes, a receipt is none, or a weight is bad; no label is learnt then.
        UnknownForecast : another model has issued the receipt, or it is too old.
        OutcomeConflict : another label, or another weight, of this row was learnt.
        """
        check_is_fitted(self)
        return update_rows(self.calibrator_, forecasts, y, self.classes_, sample_weight)

    # ---- the parts of it --------------------------------------------------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """What is requested: by this estimator itself, and for `fit` by its base."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, every: bool = True) -> tuple[Any, Labels, Vector | None]:
        check_choice("order", self.order, ORDERS)
        require_labels(self, y)
        X, y = indexable(X, y)
        return X, checked_labels(y), weights_of(sample_weight, _num_samples(y), some=every)

    def _params_of_base(
        self, model: Any, weights: Vector | None, group_values: Any, params: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments of the base's `fit`: with metadata routing those that it requests, without it the weights."""
        frozen = isinstance(model, FrozenEstimator)
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": weights, "group_values": group_values, **params}
            given = {name: value for name, value in given.items() if value is not None}
            of_base: dict[str, Any] = dict(process_routing(self, "fit", **given).estimator.fit) if given else {}
            return {} if frozen else of_base
        if params:
            hint = (
                " - values of groups are group_values=, as groups= belongs to splitters" if "groups" in params else ""
            )
            raise TypeError(f"{type(self).__name__} got unexpected arguments: {', '.join(params)}{hint}")
        if weights is None or frozen:
            return {}
        if has_fit_parameter(model, "sample_weight"):
            return {"sample_weight": weights}
        warnings.warn(
            f"{type(model).__name__}.fit takes no sample_weight: the base is fitted without the weights, and only the "
            "calibration uses them - a pipeline passes them on with scikit-learn's metadata routing",
            stacklevel=3,
        )
        return {}

    def _scored_by_clones(
        self, X: Any, y: Labels, folds: list[tuple[Ints, Ints]], method: str, classes: Labels, of_base: dict[str, Any]
    ) -> tuple[Vector, Ints, list[Any]]:
        """What clones say of rows that they have not seen; which rows these are; and the clones, if they are kept."""
        n, K, kept = len(y), len(classes), []
        answers, tested = np.empty((n, K) if K > 2 else n), np.zeros(n, dtype=np.bool_)
        for train, test in folds:
            if tested[test].any():
                raise ValueError("cv must test each row at most once, got folds that overlap")
            if len(early := np.unique(y[train])) < len(classes):
                every = "both" if len(classes) == 2 else f"all {len(classes)}"
                raise ValueError(
                    f"Each fold of cv must fit the base on {every} classes {classes.tolist()}, got {early.tolist()} in "
                    f"{len(train)} of {n} rows - a number of folds is stratified"
                )
            own = _check_method_params(X, of_base, indices=train)
            model = clone(self.estimator).fit(_safe_indexing(X, train), y[train], **own)
            if not np.array_equal(classes_of(model, classes), classes):
                raise ValueError(f"The base must name its classes in one order, got {classes_of(model, classes)} too")
            answers[test] = outputs(model, method, _safe_indexing(X, test), K)
            tested[test] = True
            if self.ensemble:
                kept.append(model)
        rows = np.flatnonzero(tested)
        return answers[rows], rows, kept

    def _scores(self, X: Any) -> Vector:
        """The score of each row: the mean of those of the base and of the clones of the folds."""
        method, K = self.score_method_, len(self.classes_)
        how: Any = {"margin": method == "decision_function", "scale": self.margin_scale_, "within": self.score_range_}
        models = (self.estimator_, *self.fold_estimators_)
        scores = [as_probability(outputs(model, method, X, K), **how) for model in models]
        return scores[0] if len(scores) == 1 else np.mean(scores, axis=0)

    def _take(
        self,
        model: Any,
        clones: list[Any],
        classes: Labels,
        calibrator: Any,
        method: str,
        scale: float,
        within: tuple[float, float],
    ) -> Self:
        """What was refused before leaves nothing behind."""
        self.estimator_, self.fold_estimators_, self.classes_, self.calibrator_ = model, clones, classes, calibrator
        self.score_method_, self.margin_scale_, self.score_range_ = method, scale, within
        take_features(self, model)
        return self

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
    """A transformer of bare scores: of shape (n,) or (n, 1), or the columns of a `predict_proba`, one for each class.

    Parameters
    ----------
    method : the name of a preset, such as ``"auto"`` or ``"tops"``, or a `Method`; of more than two classes ``"auto"``
        (which is ``"multi"``), ``"ots"`` or ``"raw"``.
    scale : "probability", or "logit" for the values of a `decision_function`.
    order, delay : of `fit`, as of `OnlineCalibratedClassifier`.
    groups : names of attributes of each row, a `Number` for one such as age, or a `Groups`. The values are columns of X
        with these names, beside the scores, or come as ``group_values=`` of each method.
    random_state : a whole number, the seed of the order of shuffled rows and of the draws of a hedging method; None
        is 0.

    Attributes
    ----------
    classes_ : the labels, sorted; of two classes scores and forecasts are of the second one.
    calibrator_ : the `Calibrator`, of more than two classes the `MultiCalibrator`.
    margin_scale_ : by what values on the scale "logit" are divided: 1 unless those of the first call were larger than
        logits are, see `OnlineCalibratedClassifier`.

    `fit` starts anew; `partial_fit` goes on with labels that have arrived together; `transform` gives forecasts from
    what is known now, in the shape in which the scores came. (So does `fit_transform`, which has then seen the labels
    of what it forecasts: to judge a method, transform other rows.) `sample_weight` means what it means for
    `OnlineCalibratedClassifier`.

    Raises
    ------
    ValueError : scores, labels, weights or parameters are not what they must be; `InvalidInput` is one, too.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(2000)
    >>> labels = rng.random(2000) < 0.3 + 0.4 * scores
    >>> calibrator = ScoreCalibrator().fit(scores, labels)
    >>> calibrator.transform([[0.05], [0.95]]).round(1).tolist()
    [[0.3], [0.7]]
    """

    calibrator_: Any
    classes_: Labels
    margin_scale_: float

    def __init__(
        self,
        method: str | Method = "auto",
        *,
        scale: str = "probability",
        order: str = "shuffled",
        delay: int | None = None,
        groups: Groups | Attributes | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.method = method
        self.scale = scale
        self.order = order
        self.delay = delay
        self.groups = groups
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, group_values: Any = None) -> Self:
        """Forget what was learnt, and learn from these rows; those of weight 0 are left out."""
        return self._learn(X, y, None, sample_weight, group_values, together=False, reset=True)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, group_values: Any = None
    ) -> Self:
        """Learn labels that have arrived together: forecast all the rows, then learn all of them.

        `classes` names all of them if the first rows do not have each.
        """
        first = not hasattr(self, "calibrator_")
        return self._learn(X, y, classes, sample_weight, group_values, together=True, reset=first)

    def transform(self, X: Any, group_values: Any = None) -> Vector:
        """Forecasts, in the shape of the scores; a column of a data frame if X is one."""
        check_is_fitted(self)
        columns = group_columns(self, X, group_values)
        scores, shape, X = self._read(X, reset=False)
        p = self.calibrator_.predict_many(self._as_probability(scores, self.margin_scale_), **as_argument(columns))
        if len(shape) > 1:
            return np.column_stack([1.0 - p, p]) if shape[1] == 2 else p.reshape(shape)
        kind = _get_output_config("transform", self)["dense"]
        # scikit-learn makes a frame of what it gets; a column of another library would not fit into it.
        return like(X, p) if kind == "default" or type(X).__module__.startswith(kind) else p.reshape(-1, 1)

    def forecast(self, X: Any, group_values: Any = None) -> list[Any]:
        """Forecast rows one after the other, a receipt for each: see `OnlineCalibratedClassifier.forecast`."""
        check_is_fitted(self)
        columns = group_columns(self, X, group_values)
        scores = self._as_probability(self._read(X, reset=False)[0], self.margin_scale_)
        return forecast_rows(self, scores, columns)

    def update(self, forecasts: Any, y: Any, sample_weight: Any = None) -> str | list[str]:
        """Learn the labels of receipts, in any order, at any time: see `OnlineCalibratedClassifier.update`."""
        check_is_fitted(self)
        return update_rows(self.calibrator_, forecasts, y, self.classes_, sample_weight)

    def _learn(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, group_values: Any, *, together: bool, reset: bool
    ) -> Self:
        check_choice("order", self.order, ORDERS)
        if self.scale not in ("probability", "logit"):
            raise ValueError(f"scale must be 'probability' or 'logit', got {self.scale!r}")
        columns = group_columns(self, X, group_values)
        reader = copy(self)  # which takes down the features; they are ours once everything has been looked at
        scores, shape, _ = reader._read(X, reset=reset)  # noqa: SLF001 - a copy of itself
        require_labels(self, y)
        y = checked_labels(y)
        check_consistent_length(scores, y)
        weights = weights_of(sample_weight, len(y), some=not together)
        if not reset:
            check_classes(classes, self.classes_)
        labels = named_classes(y, classes, 2 if scores.ndim == 1 else shape[1]) if reset else self.classes_
        outcomes = outcomes_of(y, labels)
        if weights is not None and not together and not weights.all():
            counted = np.flatnonzero(weights)
            scores, outcomes, weights = scores[counted], outcomes[counted], weights[counted]
            columns = None if columns is None else rows_of(columns, counted)
        rows = None if together else len(scores)
        calibrator = new_calibrator(self, labels, rows=rows) if reset else self.calibrator_
        scale = (margin_scale(scores) if self.scale == "logit" else 1.0) if reset else self.margin_scale_
        probabilities = self._as_probability(scores, scale)
        if together:
            learn_together(calibrator, probabilities, outcomes, columns, weights)
        else:
            learn_rows(self, calibrator, probabilities, outcomes, columns, weights)
        self.calibrator_, self.classes_, self.margin_scale_ = calibrator, labels, scale
        take_features(self, reader)
        return self

    def _as_probability(self, scores: Vector, scale: float) -> Vector:
        return as_probability(scores, margin=self.scale == "logit", scale=scale)

    def _read(self, X: Any, *, reset: bool) -> tuple[Vector, tuple[int, ...], Any]:
        """Scores as they came, without those of the first of two classes; their shape; and X without groups."""
        X = without_groups(self, X)
        given = X
        if np.ndim(X) == 1:
            X = check_array(X, ensure_2d=False, dtype=np.float64, input_name="X", estimator=self)
            shape = X.shape
            X = validate_data(self, X.reshape(-1, 1), reset=reset, dtype=np.float64)
        else:
            X = validate_data(self, X, reset=reset, dtype=np.float64)
            shape = X.shape
        if X.shape[1] > 2:
            return X, shape, given  # of many classes, and looked at by their calibrator
        if shape[1:] == (2,) and self.scale == "probability":
            off = np.abs(X.sum(axis=1) - 1.0) > ROUNDING
            if off.any():
                row = int(off.argmax())
                raise ValueError(
                    f"Two columns must be probabilities that sum to 1, got {X[row].tolist()} - at row {row}"
                )
        elif X.shape[1] != 1:
            raise ValueError(f"X must have one column of logits, or one for each of many classes, got {X.shape[1]}")
        return X[:, -1], shape, given

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # It classifies nothing, but its y has classes: as many as X has columns, and two if that is one.
        tags.classifier_tags = ClassifierTags(multi_class=False)
        tags.input_tags.one_d_array = True
        return tags


# ---- what both share ----------------------------------------------------------------------------------------------


def new_calibrator(estimator: Any, classes: Any, rows: int | None = None) -> Any:
    """The calibrator of an estimator that has seen nothing, for two classes or more.

    A method that fits a batch of the past is made to fit by the time that so many `rows` are learnt: its own number of
    outcomes, 1000 for FPS, may never come, and until then the base would come back unchanged.
    """
    method, seed = estimator.method, seed_of(estimator)
    if isinstance(method, str) and method in OTHERS:
        raise InvalidInput(f"method must be a preset of calibeat, such as 'auto', got {method!r}: {OTHERS[method]}")
    if rows is not None and len(classes) == 2:
        method = method if isinstance(method, Method) else method_named(method)
        if isinstance(method.learner, (Fixed, FTL)) and method.learner.after > rows:
            is_last = method.calibeater is None and method.guard is None  # what follows must see forecasts, too
            method = replace(method, learner=replace(method.learner, after=rows if is_last else max(1, rows // 2)))
    return calibrator_of(classes, method, seed, estimator.groups)


def seed_of(estimator: Any) -> int:
    """The seed, of folds and draws alike."""
    return 0 if estimator.random_state is None else estimator.random_state


def folds_of(estimator: Any, X: Any, y: Labels, counted: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Which rows fit each clone of the base, and which ones it scores; a number of folds is of the `counted` rows."""
    cv = estimator.cv
    if isinstance(cv, str) or cv is None:
        hint = " - a base that is fitted already comes in a FrozenEstimator" if cv == "prefit" else ""
        raise InvalidInput(f"cv must be a number of folds, a splitter or pairs of indices, got {cv!r}{hint}")
    if not isinstance(cv, (int, np.integer)):
        yield from check_cv(cv, y, classifier=True).split(X, y)
        return
    y = y[counted]
    classes, counts = np.unique(y, return_counts=True)
    most = check_whole("cv", cv, 2, sys.maxsize)
    if counts.min() < 2:
        rare = classes.tolist()[counts.argmin()]
        raise ValueError(
            "y must have each class twice or more, so that no row is scored by a base that has seen it, got one row "
            f"of {rare!r} (n_samples={len(y)}) - or pass a fitted base in a FrozenEstimator"
        )
    splitter = StratifiedKFold(min(most, int(counts.min())), shuffle=True, random_state=seed_of(estimator) % 2**32)
    for train, test in splitter.split(np.zeros(len(y)), y):
        yield counted[train], counted[test]


def learn_rows(
    estimator: Any,
    calibrator: Calibrator | MultiCalibrator,
    scores: Vector,
    outcomes: Any,
    columns: Any,
    weights: Vector | None,
) -> None:
    """The rows of `fit`: forecast one after the other, each outcome learnt `delay` rows later.

    Nothing tells `fit` how far ahead it will be asked, if `delay` is None. In the order of time all labels at the end
    make AUTO too careful, each in turn too bold; a quarter of the rows is better than both on most streams
    (docs/gallery.md). Where order says nothing, each row may know all rows before it.
    """
    n, delay = len(scores), estimator.delay
    if estimator.order == "shuffled":
        calibrator.predict_many(scores, **as_argument(columns))  # names a bad row by its place before the shuffle
        rows = well_mixed(scores, outcomes, np.random.default_rng(seed_of(estimator) % 2**64))
        scores, outcomes = scores[rows], outcomes[rows]
        columns = None if columns is None else rows_of(columns, rows)
        weights = None if weights is None else weights[rows]
    usual = 0 if estimator.order == "shuffled" else max(1, n // 4)
    late = usual if delay is None else check_whole("delay", delay, 0, sys.maxsize)
    due = due_of(n, mature=min(late, n)) if late else None
    calibrator.run(scores, outcomes, due=due, finish=True, **as_argument(columns), **as_weights(weights))


def learn_together(
    calibrator: Calibrator | MultiCalibrator, scores: Vector, outcomes: Any, columns: Any, weights: Vector | None
) -> None:
    """The rows of `partial_fit`: all of them are forecast, and then all are learnt."""
    n = len(scores)
    due = due_of(n, mature=n) if n else None
    calibrator.run(scores, outcomes, due=due, finish=True, **as_argument(columns), **as_weights(weights))


def well_mixed(scores: Vector, outcomes: Any, rng: np.random.Generator) -> Ints:
    """An order of the rows in which every stretch has the labels and the scores of the whole.

    Rows of one label are spread evenly, and so are their scores: the k-th of them has the score of rank frac(k phi).
    What an online method knows at the end then depends less on the luck of the order than after a plain shuffle.
    """
    when = np.empty(len(scores))
    for label in np.unique(outcomes):
        rows = rng.permutation(np.flatnonzero(outcomes == label))  # equal scores in any order
        own = scores[rows] if scores.ndim == 1 else scores[rows].max(axis=1)
        ranked, k = rows[np.argsort(own, kind="stable")], np.arange(len(rows))
        turn = np.argsort(np.argsort(np.mod(rng.random() + k * GOLDEN, 1.0)))
        when[ranked[turn]] = (k + 0.5) / len(rows)
    return np.argsort(when, kind="stable")


def take_features(estimator: Any, other: Any) -> None:
    """What is known of the columns is what the other knows; nothing stays of an earlier fit."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(other, name):
            setattr(estimator, name, getattr(other, name))
        elif hasattr(estimator, name):
            delattr(estimator, name)


# ---- receipts -----------------------------------------------------------------------------------------------------


def forecast_rows(estimator: Any, scores: Vector, columns: Any) -> list[Any]:
    """A receipt for each score."""
    predict = estimator.calibrator_.predict
    if columns is None:
        return [predict(score) for score in (scores.tolist() if scores.ndim == 1 else scores)]
    events = events_of(Groups.of(estimator.groups), columns)
    return [predict(score, groups=values) for score, values in zip(scores.tolist(), events, strict=True)]


def update_rows(calibrator: Any, forecasts: Any, y: Any, classes: Labels, sample_weight: Any = None) -> str | list[str]:
    """Learn the labels of receipts -> what happened, of one or of each."""
    if alone := isinstance(forecasts, (Forecast, MultiForecast)):
        forecasts, y = [forecasts], [y]
        sample_weight = None if sample_weight is None else [check_weight(sample_weight)]
    outcomes = outcomes_of(checked_labels(y), classes).tolist()
    if isinstance(forecasts, (str, bytes)) or not isinstance(forecasts, Sequence):
        raise InvalidInput(f"forecasts must be a receipt of forecast(X), or a list of them, got {forecasts!r:.60}")
    if len(forecasts) != len(outcomes):
        raise InvalidInput(f"forecasts must be as many as labels, got {len(forecasts)} and {len(outcomes)}")
    for forecast in forecasts:
        if not isinstance(forecast, (Forecast, MultiForecast)):
            hint = " - Forecast.from_json(text) makes one" if isinstance(forecast, (str, bytes)) else ""
            raise InvalidInput(f"forecasts must be receipts of forecast(X), got {forecast!r:.60}{hint}")
    if sample_weight is None:
        happened = [calibrator.update(forecast, outcome) for forecast, outcome in zip(forecasts, outcomes, strict=True)]
    else:
        weights = check_weights(sample_weight, len(outcomes)).tolist()
        happened = [calibrator.update(*event) for event in zip(forecasts, outcomes, weights, strict=True)]
    return happened[0] if alone else happened


# ---- groups -------------------------------------------------------------------------------------------------------


def group_columns(estimator: Any, X: Any, given: Any) -> Any:
    """The values of the groups: as they are given, or the columns of X with their names. None without groups."""
    if estimator.groups is None:
        if given is not None:
            name = type(estimator).__name__
            raise InvalidInput(
                f"groups must be named first, {name}(..., groups=[...]), got group_values of a model without"
            )
        return None
    if given is None:
        names, frame = Groups.of(estimator.groups).attributes, as_frame(X)
        lacking = [name for name in names if frame is None or name not in frame.columns]
        if lacking:
            raise InvalidInput(
                f"groups must be columns of X, or be given by group_values=: {', '.join(names)}; "
                f"got none for {lacking[0]!r}"
            )
        given = {name: frame[name].to_native() for name in names}
    check_consistent_length(X, *(given.values() if isinstance(given, Mapping) else [given]))
    return given


def as_argument(columns: Any) -> dict[str, Any]:
    """Of a calibrator; of many classes there is none."""
    return {} if columns is None else {"groups": columns}


def without_groups(estimator: Any, X: Any) -> Any:
    """A data frame of scores without the columns of the groups; anything else as it came."""
    frame = None if estimator.groups is None else as_frame(X)
    if frame is None:
        return X
    names = set(Groups.of(estimator.groups).attributes)
    return frame.select([name for name in frame.columns if name not in names]).to_native()


def rows_of(columns: Any, rows: Ints) -> Any:
    """Some rows of the values of groups, whatever holds them."""
    if isinstance(columns, Mapping):
        return {name: rows_of(column, rows) for name, column in columns.items()}
    if isinstance(columns, np.ndarray):
        return columns[rows]
    if isinstance(columns, (list, tuple)):
        return [columns[row] for row in rows.tolist()]
    kept = as_frame(columns)
    kept = as_series(columns) if kept is None else kept
    return columns if kept is None else kept[rows].to_native()  # what is no column is refused where it is read


def events_of(groups: Groups, columns: Any) -> list[Any]:
    """The values of groups, one event after the other, as `Calibrator.predict` takes them."""
    if isinstance(columns, np.ndarray):
        return [tuple(row) for row in columns.tolist()]
    if isinstance(columns, (list, tuple)):
        return list(columns)
    frame = columns if isinstance(columns, Mapping) else as_frame(columns)
    if frame is None:
        raise InvalidInput(f"groups must be a data frame or columns by name, got {type(columns).__name__}")
    groups.check_names(frame if isinstance(frame, Mapping) else frame.columns)
    return list(zip(*(values_of(frame[name]) for name in groups.attributes), strict=True))


def values_of(column: Any) -> list[Any]:
    """The values of one column, each of its own type."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    series = as_series(column)
    return list(column if series is None else series.to_list())


# ---- weights ------------------------------------------------------------------------------------------------------


def weights_of(sample_weight: Any, rows: int, *, some: bool) -> Vector | None:
    """The weights of rows, if they are given; with `some`, not all of them 0."""
    if sample_weight is None:
        return None
    weights = check_weights(sample_weight, rows)
    if some and not weights.any():
        raise InvalidInput(f"sample_weight must not be zero for all rows, got {rows} weights of zero")
    return weights


def as_weights(weights: Vector | None) -> dict[str, Any]:
    """Of a calibrator's `run`."""
    return {} if weights is None else {"weights": weights}


def counted_of(rows: Any, weights: Vector | None) -> Ints:
    """Those of some rows whose weight is not 0."""
    return rows if weights is None else np.asarray(rows)[weights[rows] > 0.0]


# ---- labels -------------------------------------------------------------------------------------------------------


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


def require_labels(estimator: BaseEstimator, y: Any) -> None:
    """Raise unless there is a label for each of several rows."""
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    if np.isscalar(y):
        raise ValueError(f"{name} takes rows and their labels, got one label {y!r:.60} - one row is X[:1], y[:1]")


def named_classes(y: Labels, classes: Any, count: int) -> Labels:
    """The labels that are named, or seen; of two classes also known by custom from the one that is seen."""
    seen = np.unique(y if classes is None else column_or_1d(classes))
    if count > 2:
        if len(seen) != count:
            raise ValueError(
                f"X has {count} columns, one for each class, and y must have as many classes, got {seen.tolist()} - "
                "name all of them by classes=, in partial_fit"
            )
        return seen
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


def as_probability(score: Vector, *, margin: bool, scale: float, within: tuple[float, float] = WHOLE) -> Vector:
    """The score as calibeat takes it, so that its logit is the margin divided by its scale."""
    if score.ndim == 2:
        return softmax(score / scale) if margin else shares(score)
    if margin:
        return sigmoid(score / scale)
    p = rounded(score)
    # What is no probability is left as it is, for others to complain about.
    return p if within == WHOLE else np.where((p >= 0.0) & (p <= 1.0), np.clip(p, *within), p)


def score_range(p: Vector, outcomes: Vector, weights: Vector | None = None) -> tuple[float, float]:
    """Where scores that are votes, or the shares of a leaf, end: at how often exactly 0, and exactly 1, comes true.

    >>> p, outcomes = np.array([0.0] * 8 + [0.4, 0.6] + [1.0] * 8), np.array([0, 0, 0, 1] * 2 + [0, 1] + [1] * 8)
    >>> score_range(p, outcomes)
    (0.3, 0.9)
    """
    near = 1.0 / (1.0 + np.exp(TOLERATED))
    w = np.ones(len(p)) if weights is None else weights
    ends = []
    for q, happened in ((p, outcomes), (1.0 - p, 1.0 - outcomes)):
        extreme = q == 0.0
        if extreme.mean() > EXTREME and not ((q > 0.0) & (q < near)).any():
            own = w[extreme] / w[extreme].max()
            own *= float(own.sum()) / float((own * own).sum())  # so that they add up to the effective number of rows
            ends.append(min(0.5, float(own @ happened[extreme] + 1.0) / float(own.sum() + 2.0)))
        else:
            ends.append(0.0)
    return ends[0], 1.0 - ends[1]


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


# What people look for by the names of other estimators is told where it is.
add_hints(OnlineCalibratedClassifier, dict.fromkeys(("decision_function", "transform"), "predict_proba(X)"))
add_hints(
    ScoreCalibrator,
    dict.fromkeys(
        ("predict", "predict_proba"), "transform(scores), or OnlineCalibratedClassifier around the model itself"
    ),
)
