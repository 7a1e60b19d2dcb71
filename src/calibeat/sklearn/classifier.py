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

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from calibeat._util.types import Vector
from calibeat.core.method import Method
from calibeat.hosts.calibrator import Calibrator
from calibeat.hosts.multi import MultiCalibrator

from .labels import Labels, check_classes, checked_labels, classes_of, outcomes_of, refuse_weights
from .learning import delay_of_fit, learn_late, new_calibrator, take_features
from .scores import as_probability, margin_scale, outputs, score_method


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

    References: scikit-learn's issue 34312 on what goes wrong when probabilities are taken for logits.
    """

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
            new_calibrator(self, seen)  # a method that is none is refused before the base is fitted
            if len(early := np.unique(y[:first])) < len(seen):
                every = "both" if len(seen) == 2 else f"all {len(seen)}"
                raise ValueError(
                    f"The base is fitted on the first {first} of {n} rows, which must have {every} classes "
                    f"{seen.tolist()}, got {early.tolist()} - give it more rows by train_size, or fit it yourself "
                    "and pass it in a FrozenEstimator"
                )
            model.fit(_safe_indexing(X, slice(0, first)), y[:first])
            classes = classes_of(model, seen)
        calibrator, K = new_calibrator(self, classes), len(classes)
        outcomes = outcomes_of(y, classes)
        method = score_method(model, _safe_indexing(X, slice(0, 100)), K)
        answers = outputs(model, method, _safe_indexing(X, slice(first, n)), K)
        known = outputs(model, method, _safe_indexing(X, slice(0, first)), K) if first else answers
        margin = method == "decision_function"
        scale = margin_scale(known) if margin else 1.0
        delay = delay_of_fit(self.delay, n - first)
        learn_late(calibrator, as_probability(answers, margin=margin, scale=scale), outcomes[first:], delay)
        self._take(model, classes, method, scale, calibrator)
        return self

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
        if started:
            model, labels, method, calibrator = self.estimator_, self.classes_, self.score_method_, self.calibrator_
        elif isinstance(self.estimator, FrozenEstimator):
            model = clone(self.estimator)
            check_is_fitted(model)
            labels = classes_of(model, None)
            calibrator = new_calibrator(self, labels)
            method = score_method(model, _safe_indexing(X, slice(0, 100)), len(labels))
        else:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet: partial_fit leaves the base as it is, so "
                "call 'fit' first, or pass a fitted base in a FrozenEstimator."
            )
        check_classes(classes, labels)
        outcomes = outcomes_of(y, labels)
        answers = outputs(model, method, X, len(labels))
        margin = method == "decision_function"
        scale = self.margin_scale_ if started else margin_scale(answers) if margin else 1.0
        learn_late(calibrator, as_probability(answers, margin=margin, scale=scale), outcomes, None)
        if not started:  # only now: what was refused leaves nothing behind
            self._take(model, labels, method, scale, calibrator)
        return self

    def predict_proba(self, X: Any) -> Vector:
        """Probabilities of the classes, from what is known now; nothing is learnt."""
        check_is_fitted(self)
        answers, margin = outputs(self.estimator_, self.score_method_, X, len(self.classes_)), self._has_margins
        p: Vector = self.calibrator_.predict_many(as_probability(answers, margin=margin, scale=self.margin_scale_))
        return p if p.ndim == 2 else np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> Labels:
        """The most probable class."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    @property
    def _has_margins(self) -> bool:
        return bool(self.score_method_ == "decision_function")

    def _take(
        self, model: Any, classes: Labels, method: str, scale: float, calibrator: Calibrator | MultiCalibrator
    ) -> None:
        self.estimator_, self.classes_, self.calibrator_ = model, classes, calibrator
        self.score_method_, self.margin_scale_ = method, scale
        take_features(self, model)

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
