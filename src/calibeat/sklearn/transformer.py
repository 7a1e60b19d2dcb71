"""A transformer of bare scores: calibeat as a step of a scikit-learn pipeline."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import ClassifierTags
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from calibeat._util.columns import like
from calibeat._util.types import Vector
from calibeat.core.method import Method
from calibeat.hosts.calibrator import Calibrator

from .labels import Labels, check_classes, checked_labels, outcomes_of, refuse_weights, two_classes
from .learning import binary_calibrator, delay_of_fit, learn_late, take_features
from .scores import ROUNDING, as_probability, margin_scale


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
        calibrator = binary_calibrator(self) if reset else self.calibrator_
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
        delay = None if together else delay_of_fit(self.delay, len(scores))
        learn_late(calibrator, self._as_probability(scores, scale), outcomes, delay)
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
