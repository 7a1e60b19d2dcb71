"""calibeat in river: a wrapper that calibrates a model's probabilities, and the metrics of calibration.

>>> from river import datasets, evaluate, linear_model, preprocessing
>>> from calibeat.river import Brier, CalibrationError, OnlineCalibrated
>>> model = preprocessing.StandardScaler() | OnlineCalibrated(linear_model.LogisticRegression())
>>> evaluate.progressive_val_score(datasets.Phishing(), model, CalibrationError() + Brier())
CalibrationError: 0.0223
Brier: 0.0847
"""

from __future__ import annotations

import abc
import inspect
import math
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ._compiled import Forecast, MultiForecast
from ._util.check import check_score, check_weight, check_whole, shown
from ._util.extras import missing
from .core.calibeating import bin_of
from .core.method import Method
from .errors import InvalidInput
from .hosts.groups import Attributes, Groups
from .hosts.multi import calibrator_of
from .metrics import of_bins

try:
    from river import base, compose, linear_model, metrics
except ImportError as error:
    raise missing("river", "river", "calibeat.river") from error

Label = bool | str | int

__all__ = ["Brier", "CalibrationError", "OnlineCalibrated", "Sharpness"]


class OnlineCalibrated(base.Wrapper[base.Classifier], base.Classifier):
    """A classifier behind a `Calibrator` (a `MultiCalibrator`); both learn from every label.

    Parameters
    ----------
    model
        A classifier, or a pipeline that ends with one, with `predict_proba_one`.
    method
        The name of a preset, such as `"auto"` or `"tops"`, or a `Method`; of more than two labels `"auto"` (which is
        `"multi"`), `"ots"` or `"raw"`.
    labels
        The negative and the positive label; or all the labels, if there are more than two.
    seed
        For the draws of a hedging method.
    remember
        For late labels: how many forecasts that wait for theirs to keep, so that a label teaches by what was said of
        its event (found by its features, or by what it is where that is no dict; they must be hashable). Those asked
        for longest ago are forgotten first. With 0, prediction changes nothing.
    groups
        Names of features that are attributes of the event, such as country and device, a `Number` for one such as age,
        or a `Groups`: forecasts then hold within their values too. For two labels, and a method with lanes
        (``"auto"``). The model is given all features, these too; begin it with ``compose.Discard("country", "device")``
        where it cannot read them.

    When a label comes, the model is asked for its score first, then it learns, and the calibrator learns from the
    score: so that is never one of a model that knows the answer. If the model raises, neither has learnt. If labels
    are late and the forecast is not remembered, that score, and the forecast that is judged, are those of the moment
    when the label comes: OPS does not mind, AUTO and the methods with bins are the worse for it the later labels are.

    `learn_one(x, y, w=20.0)` is a label that stands for 20 events, for example because one in 20 is kept. The model
    learns with this weight too if its `learn_one` takes `w`; if not, a warning says so. Only ratios matter to the
    calibrator. At weight 0 it learns nothing.

    Raises
    ------
    ValueError
        The model has no `predict_proba_one`, or gives no probabilities of the labels; a label is none of `labels`; a
        weight is negative or not finite, or the method takes none; with `remember`, features are not hashable; a
        feature that `groups` names is missing, or is no string, whole number, bool or None (of a `Number`: no number or
        None); there are `groups` and more than two labels.

    Examples
    --------
    >>> from river import naive_bayes
    >>> from calibeat.river import OnlineCalibrated
    >>> model = OnlineCalibrated(naive_bayes.GaussianNB(), method="ops")
    >>> model.predict_proba_one({"x": 1.0})     # the base knows nothing yet
    {False: 0.5, True: 0.5}
    >>> for x, y in [(1.0, True), (2.0, False), (1.5, True), (2.5, False)] * 20:
    ...     model.learn_one({"x": x}, y)
    >>> model.predict_one({"x": 1.2}), model.calibrator.outcomes
    (True, 80)

    Three classes:

    >>> model = OnlineCalibrated(naive_bayes.GaussianNB(), labels=("cat", "dog", "bird"))
    >>> for x, y in [(1.0, "cat"), (2.0, "dog"), (3.0, "bird"), (2.5, "dog")] * 20:
    ...     model.learn_one({"x": x}, y)
    >>> model.predict_one({"x": 1.1}), len(model.predict_proba_one({"x": 1.1}))
    ('cat', 3)

    Groups: the score does not know the country.

    >>> from river import compose, linear_model
    >>> blind = compose.Discard("country") | linear_model.LogisticRegression()
    >>> model = OnlineCalibrated(blind, groups=["country"])
    >>> for x, c, y in [(1.0, "fr", True), (1.0, "it", False)] * 200:
    ...     model.learn_one({"x": x, "country": c}, y)
    >>> [round(model.predict_proba_one({"x": 1.0, "country": c})[True], 2) for c in ("fr", "it", "es")]
    [0.98, 0.02, 0.51]

    """

    def __init__(
        self,
        model: base.Classifier,
        method: str | Method = "auto",
        labels: tuple[Label, ...] = (False, True),
        seed: int = 0,
        remember: int = 0,
        groups: Groups | Attributes | None = None,
    ) -> None:
        if not hasattr(model, "predict_proba_one"):
            raise ValueError(f"model must have predict_proba_one, got {type(model).__name__}")
        if not isinstance(labels, (tuple, list)) or len(labels) < 2 or len(set(labels)) != len(labels):
            raise ValueError(f"labels must be two different ones, (negative, positive), or more, got {labels!r}")
        self.model = model
        self.method = method
        self.labels = labels
        self.seed = seed
        self.remember = check_whole("remember", remember, 0, 10**9)
        self.groups = groups
        self.calibrator: Any = calibrator_of(labels, method, seed, groups)
        self._attributes = () if groups is None else Groups.of(groups).attributes
        self._weighs = False  # whether the method is known to take weights
        self._waiting: OrderedDict[Any, Forecast | MultiForecast] = OrderedDict()

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.model

    @property
    def _multiclass(self) -> bool:
        return len(self.labels) > 2

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        for method in ("auto", "tops", "hops"):
            yield {"model": linear_model.LogisticRegression(), "method": method}
        yield {"model": linear_model.LogisticRegression(), "remember": 50}

    def learn_one(self, x: Any, y: Any, w: float = 1.0, **kwargs: Any) -> None:
        """Let the model learn, and calibrate by the score that it gave before."""
        if "sample_weight" in kwargs:
            raise ValueError("sample_weight must be given as w, as in river")
        weight = check_weight(w)
        if y not in self.labels:
            raise ValueError(
                f"y must be one of the labels {self.labels!r}, got {y!r} - name them by "
                f"{type(self).__name__}(model, labels=(negative, positive)), or name all of them if there are more"
            )
        key = _key(x) if self._waiting else None
        score = None if key in self._waiting else self._score(x, **kwargs)
        own = self._groups_of(x)
        if isinstance(score, float):
            self.calibrator.peek(score, **own)  # refuses what `predict` would refuse
        self._expect_weight(weight)
        self.model.learn_one(x, y, **self._weight_of_model(w), **kwargs)  # before anything of ours moves: it may refuse
        forecast = self._waiting.pop(key) if score is None else self.calibrator.predict(score, **own)
        happened = y if self._multiclass else int(y == self.labels[1])
        if weight == 1.0:
            self.calibrator.update(forecast, happened)
        else:
            self.calibrator.update(forecast, happened, weight)

    def predict_proba_one(self, x: Any, **kwargs: Any) -> dict[Any, float]:
        """The calibrated probabilities of all labels."""
        score, own = self._score(x, **kwargs), self._groups_of(x)
        if self.remember:
            key = _key(x)
            forecast = self._waiting[key] = self.calibrator.predict(score, **own)
            self._waiting.move_to_end(key)  # asked again, it is the newest
            answer: Any = forecast.probabilities if isinstance(forecast, MultiForecast) else forecast.probability
            if len(self._waiting) > self.remember:
                self._waiting.popitem(last=False)
        else:
            answer = self.calibrator.peek(score, **own)
        if self._multiclass:
            return dict(zip(self.labels, answer.tolist(), strict=True))
        return {self.labels[0]: 1.0 - answer, self.labels[1]: answer}

    def _expect_weight(self, weight: float) -> None:
        """Raise, before anything has learnt, if the method takes no weights: a calibrator of its own tries one."""
        if weight == 1.0 or self._weighs:
            return
        probe: Any = calibrator_of(self.labels, self.method, self.seed, None)
        score = [1.0 / len(self.labels)] * len(self.labels) if self._multiclass else 0.5
        probe.update(probe.predict(score), self.labels[1] if self._multiclass else 1, weight)
        self._weighs = True

    def _weight_of_model(self, w: float) -> dict[str, float]:
        """The weight as an argument of the model's `learn_one`, if it takes one."""
        if w == 1.0:
            return {}
        if takes_weights(self.model):
            return {"w": w}
        warnings.warn(
            f"learn_one of {type(last_step(self.model)).__name__} takes no w: the model learns without the weights, "
            "and only the calibration uses them",
            stacklevel=3,
        )
        return {}

    def _groups_of(self, x: Any) -> dict[str, Any]:
        """The features that are groups, as an argument of the calibrator."""
        if self.groups is None:
            return {}
        if not isinstance(x, Mapping) or not all(name in x for name in self._attributes):
            raise InvalidInput(f"x must have the features {', '.join(self._attributes)}, got {shown(x)}")
        return {"groups": tuple([x[name] for name in self._attributes])}

    def _score(self, x: Any, **kwargs: Any) -> Any:
        """The model's probability of the positive label, or of each of many; all alike while it has none."""
        try:
            answer = self.model.predict_proba_one(x, **kwargs)
        except NotImplementedError:
            raise NotImplementedError(f"{self.model} has no predict_proba_one, which a calibrator needs") from None
        if self._multiclass:
            return self._score_of_many(answer)
        negative, positive = self.labels
        if not answer:
            return 0.5
        if positive not in answer and negative not in answer:
            raise ValueError(
                f"predict_proba_one of {self.model} must speak of the labels {self.labels!r}, got {answer!r} - "
                "a model of False and True wants these as y"
            )
        p = float(answer[positive] if positive in answer else 1.0 - answer[negative])
        if math.isnan(p):
            raise ValueError(f"predict_proba_one of {self.model} must give probabilities, got {answer!r}")
        return min(max(p, 0.0), 1.0) if -1e-6 < p < 1.0 + 1e-6 else p

    def _score_of_many(self, answer: dict[Any, float]) -> list[float]:
        """A probability for each label; 0 for one that the model has not met."""
        if unknown := [label for label, p in answer.items() if label not in self.labels and p > 0.0]:
            raise ValueError(
                f"predict_proba_one of {self.model} must speak of the labels {self.labels!r}, got {unknown[0]!r}"
            )
        scores = [float(answer.get(label, 0.0)) for label in self.labels]
        total = math.fsum(scores)
        if not answer or total == 0.0:
            return [1.0 / len(scores)] * len(scores)
        if not (min(scores) > -1e-6 and abs(total - 1.0) < 1e-3):
            raise ValueError(f"predict_proba_one of {self.model} must give probabilities of sum 1, got {answer!r}")
        return [max(p, 0.0) / total for p in scores]


def last_step(model: Any) -> Any:
    """The model at the end of a pipeline."""
    while isinstance(model, compose.Pipeline):
        model = next(reversed(model.steps.values()))
    return model


def takes_weights(model: Any) -> bool:
    """Whether `learn_one` has a `w`, or hands all its arguments on."""
    parameters = inspect.signature(last_step(model).learn_one).parameters
    return "w" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _key(x: Any) -> Any:
    """By what the forecast of an event is found again."""
    try:
        key = frozenset(x.items()) if isinstance(x, dict) else x
        hash(key)
    except TypeError as error:
        raise ValueError(f"x must be hashable, or a dict of what is, to be remembered, got {shown(x)}") from error
    return key


# ---- metrics -----------------------------------------------------------------------------------------------------


class _ProbabilityMetric(metrics.base.BinaryMetric):
    """Sums over events that can be taken back, so that `utils.Rolling` works."""

    _fmt = ".4f"

    def __init__(self, pos_val: Label = True) -> None:
        super().__init__(pos_val=pos_val)  # type: ignore[no-untyped-call]  # river's metrics have no types yet

    @property
    def requires_labels(self) -> bool:
        return False

    @property
    def bigger_is_better(self) -> bool:
        return False

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        self._take(y_true, y_pred, w, 1)

    def revert(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        self._take(y_true, y_pred, w, -1)

    def _take(self, y_true: Any, y_pred: Any, w: float, times: int) -> None:
        p = self._probability(y_pred)
        if not 0.0 <= w < math.inf:
            raise ValueError(f"w must be a weight of 0 or more, got {w!r}")
        if w > 0.0:
            self._add(float(y_true == self.pos_val), p, times * w, times)

    def _probability(self, y_pred: Any) -> float:
        if not isinstance(y_pred, dict):
            return check_score(float(y_pred))
        if len(y_pred) > 1 and self.pos_val not in y_pred:
            raise ValueError(
                f"y_pred must have a probability of the positive label {self.pos_val!r}, got {y_pred!r} - name it by "
                f"{type(self).__name__}(pos_val=...)"
            )
        return check_score(float(y_pred.get(self.pos_val, 0.0)))  # of one label only, if a model knows no other yet

    @abc.abstractmethod
    def _add(self, y: float, p: float, w: float, times: int) -> None:
        """Count an event of weight w once, or take back one: then the weight is negative and times is -1."""


class _BinnedMetric(_ProbabilityMetric):
    """Count, sum of forecasts and sum of outcomes of equal bins [0, 1/m), ..., [1 - 1/m, 1]."""

    _which: ClassVar[str]  # the field of `metrics.of_bins`

    def __init__(self, bins: int = 10, pos_val: Label = True) -> None:
        super().__init__(pos_val=pos_val)
        self.bins = check_whole("bins", bins, 1, 10**7)
        self._counts: dict[int, int] = {}  # bin -> events
        self._sums: dict[int, list[float]] = {}  # bin -> weight, forecasts, outcomes

    def _add(self, y: float, p: float, w: float, times: int) -> None:
        b = bin_of(p, float(self.bins))
        count = self._counts.get(b, 0) + times
        weight, forecasts, outcomes = self._sums.get(b, (0.0, 0.0, 0.0))
        if count > 0 and weight + w > 0.0:
            self._counts[b], self._sums[b] = count, [weight + w, forecasts + w * p, outcomes + w * y]
        else:  # the last event of this bin was taken back, and all that is left is rounding
            self._counts.pop(b, None)
            self._sums.pop(b, None)

    def get(self) -> float:
        """The number so far; 0 before the first event."""
        return float(getattr(of_bins(*zip(*self._sums.values(), strict=True)), self._which)) if self._sums else 0.0


class CalibrationError(_BinnedMetric):
    """The paper's calibration error: (1/T) sum over bins of N |mean forecast - mean outcome|.

    Parameters
    ----------
    bins
        How many equal bins.
    pos_val
        The positive label.

    Examples
    --------
    >>> from calibeat.river import CalibrationError
    >>> metric = CalibrationError()
    >>> for y, p in zip([False, True, True, False], [0.15, 0.85, 0.75, 0.25]):
    ...     metric.update(y, p)
    >>> metric
    CalibrationError: 0.2

    """

    _which = "calibration_error"


class Sharpness(_BinnedMetric):
    """The paper's sharpness: (1/T) sum over bins of N (mean outcome)^2; higher is better.

    Parameters
    ----------
    bins
        How many equal bins.
    pos_val
        The positive label.

    Examples
    --------
    >>> from calibeat.river import Sharpness
    >>> metric = Sharpness()
    >>> for y, p in zip([False, True], [0.0, 1.0]):
    ...     metric.update(y, p)
    >>> metric
    Sharpness: 0.5

    """

    _which = "sharpness"

    @property
    def bigger_is_better(self) -> bool:
        return True


class Brier(_ProbabilityMetric):
    """The Brier score: the mean of (outcome - forecast)^2.

    Parameters
    ----------
    pos_val
        The positive label.

    Examples
    --------
    >>> from calibeat.river import Brier
    >>> metric = Brier()
    >>> for y, p in zip([True, False], [0.5, 0.5]):
    ...     metric.update(y, p)
    >>> metric
    Brier: 0.25

    """

    def __init__(self, pos_val: Label = True) -> None:
        super().__init__(pos_val=pos_val)
        self._count = 0
        self._weight = self._loss = 0.0

    def _add(self, y: float, p: float, w: float, times: int) -> None:
        self._count, self._weight = max(self._count + times, 0), self._weight + w
        self._loss += w * (y - p) ** 2
        if self._count == 0:  # all that is left is rounding
            self._weight = self._loss = 0.0

    def get(self) -> float:
        """The score so far; 0 before the first event."""
        return max(self._loss, 0.0) / (self._weight or 1.0)
