r"""The paper's metrics, on plain arrays: outcomes first, forecasts second.

Bins are B_1 = [0, e), ..., B_m = [1 - e, 1] with e = 1/m; N_b events fall in bin b, with mean forecast p_b and mean
outcome y_b. All sums run over the bins that are not empty.

>>> from calibeat import metrics
>>> y, p = [0, 1, 1, 0], [0.15, 0.85, 0.75, 0.25]
>>> round(metrics.calibration_error(y, p), 3), round(metrics.brier_score(y, p), 4)
(0.2, 0.0425)

Every function of events takes `sample_weight`, a number for each event: how many events it stands for, such as 1 / (the
probability that its outcome was recorded). Means are then sum w l / sum w, and bins add up weights. Only ratios matter,
except in `regret`, which is a sum. Events of weight 0 are left out. A few heavy events make a mean less certain:
`effective_number` and `mean_with_error` show by how much.

Every function raises `InvalidInput` if an array is empty, ragged or of another length than its partner, if a value is
not what it must be (the message names the first bad row), or if a parameter is out of its range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_choice,
    check_interval,
    check_labelled,
    check_lengths,
    check_outcomes,
    check_scale,
    check_scores,
    check_values,
    check_weights,
    check_whole,
)
from calibeat._util.columns import to_matrix
from calibeat._util.types import Ints, Vector
from calibeat._util.words import made_here
from calibeat.core.features import Beta, Platt, Scaling
from calibeat.core.fit import fit
from calibeat.core.method import Method, method_named
from calibeat.errors import InvalidInput

ELSEWHERE = {  # names of other libraries, and what to use here
    "ece": "calibration_error(outcomes, forecasts)",
    "expected_calibration_error": "calibration_error(outcomes, forecasts)",
    "ce": "calibration_error(outcomes, forecasts)",
    "brier": "brier_score(outcomes, forecasts)",
    "brier_score_loss": "brier_score(outcomes, forecasts)",
    "logloss": "log_loss(outcomes, forecasts)",
    "nll": "log_loss(outcomes, forecasts)",
    "calibration_curve": "reliability_curve(outcomes, forecasts)",
    "auc": "roc_auc_score of scikit-learn; a backtest prints it",
    "roc_auc_score": "roc_auc_score of scikit-learn; a backtest prints it",
}

if not TYPE_CHECKING:  # a type checker shall know the names that there are

    def __getattr__(name: str) -> Any:
        """What people look for by the names of other libraries is told where it is."""
        hint = f": use {ELSEWHERE[name]}" if name in ELSEWHERE else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """For whoever presses the tab key."""
    return made_here(globals())


class ReliabilityCurve(NamedTuple):
    """One number per bin: `mean_forecast` (the mid-point where empty), `mean_outcome` (NaN where empty), `count`.

    `weight` is the sum of the weights. `effective` is the effective number of events, which `wilson` takes. Without
    weights both equal `count`.
    """

    mean_forecast: Vector
    mean_outcome: Vector
    count: npt.NDArray[np.int64]  # type: ignore[assignment]  # the tuple's own count() is of no use here
    weight: Vector
    effective: Vector


def reliability_curve(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10, *, sample_weight: Any = None
) -> ReliabilityCurve:
    """Mean forecast, mean outcome and count of each bin: the numbers behind a reliability diagram.

    >>> from calibeat import metrics
    >>> curve = metrics.reliability_curve([0, 1, 1], [0.2, 0.7, 0.8], bins=2)
    >>> curve.mean_forecast, curve.mean_outcome, curve.count
    (array([0.2 , 0.75]), array([0., 1.]), array([1, 2]))

    With weights, an interval for each bin takes the effective numbers:

    >>> curve = metrics.reliability_curve([0, 1, 1], [0.2, 0.7, 0.8], bins=2, sample_weight=[20, 1, 3])
    >>> curve.weight.tolist(), curve.effective.tolist()
    ([20.0, 4.0], [1.0, 1.6])
    >>> low, high = metrics.wilson(curve.mean_outcome, curve.effective)
    """
    y, p, w = _events(outcomes, forecasts, sample_weight)
    m = check_whole("bins", bins, 1, 10**7)
    weight, sum_p, sum_y = _binned(y, p, m, w)
    b = _bins(p, m)
    count = np.bincount(b, minlength=m).astype(np.int64)
    effective = weight.copy()
    if w is not None:
        unit = _of_size_one(w)
        sums, squares = (np.bincount(b, values, minlength=m) for values in (unit, unit * unit))
        effective = sums * sums / np.where(count == 0, 1.0, squares)
    empty = count == 0
    divisor = np.where(empty, 1.0, weight)
    middle = (np.arange(m) + 0.5) / m
    return ReliabilityCurve(
        np.where(empty, middle, sum_p / divisor), np.where(empty, np.nan, sum_y / divisor), count, weight, effective
    )


def confidence_reliability_curve(
    labels: Any, forecasts: Any, bins: int = 10, *, classes: Sequence[Any] | None = None, sample_weight: Any = None
) -> ReliabilityCurve:
    """The reliability curve of the top class: mean confidence, share of hits and count of each bin of confidence.

    Parameters
    ----------
    labels : column numbers, or labels of `classes`.
    forecasts : an (n, K) matrix of probabilities.
    sample_weight : one weight for each event.

    >>> from calibeat import metrics
    >>> curve = metrics.confidence_reliability_curve([0, 2], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], bins=2)
    >>> curve.mean_forecast[1], curve.mean_outcome[1], curve.count[1]
    (np.float64(0.75), np.float64(0.5), np.int64(2))
    """
    hits, confidence, _ = top_label(labels, forecasts, classes=classes)
    return reliability_curve(hits, np.minimum(confidence, 1.0), bins, sample_weight=sample_weight)


def calibration_error(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10, norm: str = "l1", *, sample_weight: Any = None
) -> float:
    r"""How far the mean forecast of a bin is from its mean outcome: the paper's CE.

    l1 (the paper): (1/T) sum_b N_b |p_b - y_b|;  l2: sqrt((1/T) sum_b N_b (p_b - y_b)^2);  max: max_b |p_b - y_b|.
    With weights N_b and T are sums of weights, p_b and y_b weighted means.

    >>> from calibeat import metrics
    >>> metrics.calibration_error([1, 1, 0, 0], [0.5, 0.5, 0.5, 0.5])
    0.0
    >>> metrics.calibration_error([1, 1, 0], [0.5, 0.5, 0.5], sample_weight=[1, 1, 2])     # half of the zeros
    0.0
    """
    y, p, w = _events(outcomes, forecasts, sample_weight)
    norm = check_choice("norm", norm, ("l1", "l2", "max"))
    weight, sum_p, sum_y = _binned(y, p, check_whole("bins", bins, 1, 10**7), w)
    if norm == "l1":
        return float(of_bins(weight, sum_p, sum_y).calibration_error)
    used = weight > 0
    gap = np.abs(sum_p - sum_y)[used] / weight[used]
    if norm == "l2":
        return math.sqrt(float((weight[used] * gap * gap).sum()) / _total(y, w))
    return float(gap.max())


def sharpness(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10, *, sample_weight: Any = None) -> float:
    r"""SHP = (1/T) sum_b N_b y_b^2: how well the bins tell ones from zeros; higher is better.

    >>> from calibeat import metrics
    >>> metrics.sharpness([0, 1], [0.0, 1.0]), metrics.sharpness([0, 1], [0.5, 0.5])
    (0.5, 0.25)
    """
    y, p, w = _events(outcomes, forecasts, sample_weight)
    return float(of_bins(*_binned(y, p, check_whole("bins", bins, 1, 10**7), w)).sharpness)


def refinement(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10, *, sample_weight: Any = None
) -> float:
    r"""R = (1/T) sum_b N_b y_b (1 - y_b) = mean(y) - SHP: what is left unexplained inside the bins; lower is better.

    >>> from calibeat import metrics
    >>> metrics.refinement([0, 1], [0.5, 0.5])
    0.25
    """
    y, p, w = _events(outcomes, forecasts, sample_weight)
    return float(of_bins(*_binned(y, p, check_whole("bins", bins, 1, 10**7), w)).refinement)


class OfBins(NamedTuple):
    """What the sums of bins say; numbers, or arrays where there is more than one row of bins."""

    calibration_error: Any
    sharpness: Any
    refinement: Any


def of_bins(count: npt.ArrayLike, sum_p: npt.ArrayLike, sum_y: npt.ArrayLike) -> OfBins:
    """Calibration error (l1), sharpness and refinement from count, sum of forecasts and sum of outcomes of each bin.

    The bins are along the last axis. Use it where the bins have been tallied already. With weights, `count` is
    the sum of the weights of each bin, and the sums are of weights times forecasts and outcomes.

    >>> from calibeat import metrics
    >>> found = metrics.of_bins([2, 0, 2], [0.5, 0.0, 1.5], [0, 0, 2])
    >>> float(found.calibration_error), float(found.sharpness), float(found.refinement)
    (0.25, 0.5, 0.0)
    """
    n, p, y = (np.asarray(column, dtype=np.float64) for column in (count, sum_p, sum_y))
    total, divisor = n.sum(axis=-1), np.where(n > 0, n, 1.0)
    sharp, left = (y * y / divisor).sum(axis=-1), (y * (n - y) / divisor).sum(axis=-1)
    return OfBins(calibration_error_of_gaps(p - y, total), sharp / total, left / total)


def calibration_error_of_gaps(gaps: npt.ArrayLike, count: npt.ArrayLike) -> Any:
    """The calibration error from the sum of forecast - outcome of each bin and the number of events of all bins.

    >>> from calibeat import metrics
    >>> float(metrics.calibration_error_of_gaps([1.0, -2.0], 10))
    0.3
    """
    return np.abs(np.asarray(gaps)).sum(axis=-1) / count


def brier_score(
    outcomes: npt.ArrayLike,
    forecasts: npt.ArrayLike,
    *,
    classes: Sequence[Any] | None = None,
    sample_weight: Any = None,
) -> float:
    r"""(1/T) sum_t (y_t - p_t)^2.

    For many classes (labels, and an (n, K) matrix of forecasts) summed over the classes: between 0 and 2, and twice
    the binary score for two classes. Labels are column numbers, or those of `classes`.

    >>> from calibeat import metrics
    >>> metrics.brier_score([1, 0], [0.5, 0.5]), metrics.brier_score([1, 0], [[0.5, 0.5], [0.5, 0.5]])
    (0.25, 0.5)
    >>> metrics.brier_score([1, 0], [0.5, 0.0], sample_weight=[1, 3])
    0.0625
    """
    if _is_matrix(forecasts):
        labels, P, w = _labelled(outcomes, forecasts, classes, sample_weight)
        return _mean((P**2).sum(axis=1), w) + _mean(1.0 - 2.0 * P[np.arange(len(labels)), labels], w)
    y, p, w = _events(outcomes, forecasts, sample_weight)
    return _mean((y - p) ** 2, w)


def log_loss(
    outcomes: npt.ArrayLike,
    forecasts: npt.ArrayLike,
    clip: float = 0.0,
    *,
    classes: Sequence[Any] | None = None,
    sample_weight: Any = None,
) -> float:
    r"""(1/T) sum_t -y_t log p_t - (1 - y_t) log(1 - p_t), exact for any forecast.

    In nats. A forecast of exactly 0 or 1 that turns out wrong costs infinity. So does a probability within 1e-16 of 1,
    which is rounded to 1. ``clip=1e-5`` counts the probability given to the outcome as at least 1e-5.

    >>> from calibeat import metrics
    >>> round(metrics.log_loss([1, 0], [0.5, 0.5]), 6), round(metrics.log_loss([1], [1e-300]), 3)
    (0.693147, 690.776)
    >>> metrics.log_loss([1], [0.0]), round(metrics.log_loss([1], [0.0], clip=1e-5), 3)
    (inf, 11.513)

    For many classes: labels (column numbers, or those of `classes`), and an (n, K) matrix of forecasts.

    >>> round(metrics.log_loss(["cat", "dog"], [[0.5, 0.25, 0.25]] * 2, classes=["cat", "dog", "bird"]), 6)
    1.039721
    """
    if _is_matrix(forecasts):
        labels, P, w = _labelled(outcomes, forecasts, classes, sample_weight)
        with np.errstate(divide="ignore"):
            losses = -np.log(np.maximum(P[np.arange(len(labels)), labels], check_interval("clip", clip, 0.0, 0.499)))
        return _mean(losses, w)
    y, p, w = _events(outcomes, forecasts, sample_weight)
    clip = check_interval("clip", clip, 0.0, 0.499)
    return _mean(_losses(y, p, clip), w)


def accuracy(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, threshold: float = 0.5, *, sample_weight: Any = None
) -> float:
    """The share of events where "forecast >= threshold" agrees with the outcome.

    >>> from calibeat import metrics
    >>> metrics.accuracy([1, 0, 1, 1], [0.9, 0.2, 0.4, 0.5])
    0.75
    """
    y, p, w = _events(outcomes, forecasts, sample_weight)
    return _mean(((p >= check_interval("threshold", threshold, 0.0, 1.0)) == (y == 1.0)).astype(np.float64), w)


# ---- how certain a mean is --------------------------------------------------------------------------------------


class MeanWithError(NamedTuple):
    """A `mean`, its standard `error`, and the `effective` number of events behind it."""

    mean: float
    error: float
    effective: float


def mean_with_error(values: npt.ArrayLike, *, sample_weight: Any = None) -> MeanWithError:
    r"""The mean of a number of each event, such as its loss: sum w l / sum w, with its standard error.

    The error is sqrt(sum w^2 (l - mean)^2) / sum w: an outcome of weight 20 is one piece of news, and its luck counts
    twenty times. It takes events to be independent.

    >>> import numpy as np
    >>> from calibeat import metrics
    >>> y, p = np.array([1, 0, 0, 1]), np.array([0.9, 0.2, 0.1, 0.6])
    >>> found = metrics.mean_with_error((y - p) ** 2, sample_weight=[1, 20, 20, 1])
    >>> round(found.mean, 3), round(found.error, 3), round(found.effective, 1)
    (0.028, 0.011, 2.2)
    """
    x = check_values(values)
    w = _weights(sample_weight, len(x))
    if w is None:
        mean = _mean(x, None)
        return MeanWithError(mean, math.sqrt(float(((x - mean) ** 2).sum())) / len(x), float(len(x)))
    (x,), w = _seen(w, x)
    unit = _of_size_one(w)
    mean = _mean(x, unit)
    error = math.sqrt(float(((unit * (x - mean)) ** 2).sum())) / float(unit.sum())
    return MeanWithError(mean, error, effective_number(w))


def effective_number(sample_weight: npt.ArrayLike) -> float:
    r"""(sum w)^2 / sum w^2: how many events of equal weight would make a mean as certain (Kish).

    >>> from calibeat import metrics
    >>> metrics.effective_number([1, 1, 1, 1]), round(metrics.effective_number([20, 1, 1, 1]), 2)
    (4.0, 1.31)

    References: Kish (1965), Survey Sampling.
    """
    w = _of_size_one(_some_weights(sample_weight, None))
    return float(w.sum()) ** 2 / float((w * w).sum())


# ---- against what is known only of synthetic data ---------------------------------------------------------------


def true_calibration_error(
    probabilities: npt.ArrayLike, forecasts: npt.ArrayLike, *, sample_weight: Any = None
) -> float:
    r"""(1/T) sum_t |p_t - Pr(Y_t = 1 | x_t)|, where the true probabilities are known (the paper's Section 1).

    >>> from calibeat import metrics
    >>> round(metrics.true_calibration_error([0.1, 0.9], [0.2, 0.9]), 3)
    0.05
    """
    truth, p, w = _truth(probabilities, forecasts, sample_weight)
    return _mean(np.abs(p - truth), w)


def true_accuracy(
    probabilities: npt.ArrayLike, forecasts: npt.ArrayLike, threshold: float = 0.5, *, sample_weight: Any = None
) -> float:
    """The expected accuracy of "forecast >= threshold", where the true probabilities are known.

    >>> from calibeat import metrics
    >>> metrics.true_accuracy([0.1, 0.9], [0.2, 0.9])
    0.9
    """
    truth, p, w = _truth(probabilities, forecasts, sample_weight)
    positive = p >= check_interval("threshold", threshold, 0.0, 1.0)
    return _mean(np.where(positive, truth, 1.0 - truth), w)


# ---- regret -----------------------------------------------------------------------------------------------------


def regret(
    method_or_features: Method | Scaling | str,
    scores: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    forecasts: npt.ArrayLike,
    radius: float = 100.0,
    *,
    sample_weight: Any = None,
) -> float:
    r"""R_T = sum_t l(p_t, y_t) - min over |theta| <= B of sum_t l(sigmoid(theta . x_t), y_t).

    With weights both sums are of w_t l: the regret of the events that the weights stand for.

    Parameters
    ----------
    method_or_features : gives the family of curves to compare with: a method, a preset's name, or `Platt`, `Beta`,
        `Temperature`.
    radius : the paper's B.

    Raises
    ------
    UnknownMethod : no preset has that name.
    InvalidInput : also where the method's features are not `Platt`, `Beta` or `Temperature`.

    >>> from calibeat import Calibrator, OPS, metrics
    >>> scores, outcomes = [0.2, 0.8] * 100, [0, 1] * 100
    >>> forecasts = Calibrator(OPS).run(scores, outcomes)
    >>> 0.0 < metrics.regret(OPS, scores, outcomes, forecasts, radius=2.0) < 20.0
    True
    """
    y, p = _pair(outcomes, forecasts)
    w = _weights(sample_weight, len(y))
    theta = best_parameters(method_or_features, scores, outcomes, radius, sample_weight=sample_weight)
    z = _design(_scaling(method_or_features), check_scores(scores)) @ np.array(theta)
    losses, least = _losses(y, p), np.logaddexp(0.0, np.where(y == 1.0, -z, z))
    if w is not None:
        (losses, least), w = _seen(w, losses, least)
        losses, least = w * losses, w * least
    return float(losses.sum() - least.sum())


def best_parameters(
    method_or_features: Method | Scaling | str,
    scores: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    radius: float = 100.0,
    *,
    sample_weight: Any = None,
) -> tuple[float, ...]:
    """The parameters of the ball |theta| <= radius with the least log-loss in hindsight.

    >>> from calibeat import metrics
    >>> a, b = metrics.best_parameters("ops", [0.5, 0.5, 0.5, 0.5], [1, 1, 1, 0])
    >>> round(b, 12)      # log 3
    1.098612288668
    """
    family = _scaling(method_or_features)
    f, y = check_scores(scores), check_outcomes(outcomes)
    check_lengths(scores=len(f), outcomes=len(y))
    w = _weights(sample_weight, len(y))
    weights = np.empty(0)
    if w is not None:
        (f, y), w = _seen(w, f, y)
        weights = _of_size_one(w)
    radius = check_scale("radius", radius)
    x = _design(family, f)
    d = len(family.names)
    x0, x1 = np.ascontiguousarray(x[:, 0]), np.ascontiguousarray(x[:, 1]) if d == 3 else np.empty(0)
    return tuple(fit(d, x0, x1, y, weights, 0, len(y), 0.0, 0.0, 0.0, radius)[:d])


def _design(family: Scaling, scores: Vector) -> Vector:
    """The features of many scores, one row each."""
    f = np.clip(scores, family.clip, 1.0 - family.clip)
    if isinstance(family, Beta):
        return np.column_stack([np.log(f), np.log1p(-f), np.ones_like(f)])
    logit = np.log(f / (1.0 - f))
    return np.column_stack([logit, np.ones_like(f)]) if isinstance(family, Platt) else logit[:, None]


def _scaling(method_or_features: Any) -> Scaling:
    if isinstance(method_or_features, str):
        method_or_features = method_named(method_or_features)
    family = method_or_features.features if isinstance(method_or_features, Method) else method_or_features
    if not isinstance(family, Scaling):
        raise InvalidInput(
            f"regret is against the parameters of a Platt(), Beta() or Temperature(), got {method_or_features!r:.60}"
        )
    return family


# ---- inner ------------------------------------------------------------------------------------------------------


def _pair(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike) -> tuple[Vector, Vector]:
    y, p = check_outcomes(outcomes), check_scores(forecasts, "forecast")
    check_lengths(outcomes=len(y), forecasts=len(p))
    return y, p


def _events(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, sample_weight: Any
) -> tuple[Vector, Vector, Vector | None]:
    """Outcomes, forecasts and weights of the events that count."""
    y, p = _pair(outcomes, forecasts)
    w = _weights(sample_weight, len(y))
    if w is not None:
        (y, p), w = _seen(w, y, p)
    return y, p, w


def _truth(
    probabilities: npt.ArrayLike, forecasts: npt.ArrayLike, sample_weight: Any
) -> tuple[Vector, Vector, Vector | None]:
    truth, p = check_scores(probabilities, "probability"), check_scores(forecasts, "forecast")
    check_lengths(probabilities=len(truth), forecasts=len(p))
    w = _weights(sample_weight, len(p))
    if w is not None:
        (truth, p), w = _seen(w, truth, p)
    return truth, p, w


def _labelled(
    labels: Any, forecasts: Any, classes: Sequence[Any] | None, sample_weight: Any
) -> tuple[Ints, Vector, Vector | None]:
    """The same of many classes."""
    y, P = check_labelled(labels, forecasts, classes)
    w = _weights(sample_weight, len(y))
    if w is not None:
        (y, P), w = _seen(w, y, P)
    return y, P, w


def _weights(sample_weight: Any, count: int) -> Vector | None:
    """The weights of events, if there are some."""
    return None if sample_weight is None else _some_weights(sample_weight, count)


def _some_weights(sample_weight: Any, count: int | None) -> Vector:
    w = check_weights(sample_weight, count)
    if not w.any():
        raise InvalidInput(f"weights must not all be zero, got {len(w)} zeros")
    return w


def _seen(w: Vector, *columns: Any) -> tuple[tuple[Any, ...], Vector]:
    """The columns and weights without events of weight 0: their losses may be infinite, and must not count."""
    if w.all():
        return columns, w
    kept = w > 0.0
    return tuple(column[kept] for column in columns), w[kept]


def _of_size_one(w: Vector) -> Vector:
    """The weights times a power of two, so that the largest is in [1, 2): no square of them is lost."""
    return np.ldexp(w, 1 - int(np.frexp(w.max())[1]))


def _mean(values: Vector, w: Vector | None) -> float:
    return float(values.mean() if w is None else (w * values).sum() / w.sum())


def _total(y: npt.NDArray[Any], w: Vector | None) -> float:
    """What the events weigh together."""
    return float(len(y) if w is None else w.sum())


def _bins(p: Vector, m: int) -> Ints:
    """The bin of each forecast; an edge k/m falls to the right."""
    return np.asarray(np.searchsorted(np.arange(1, m) / m, p, side="right"))


def _binned(y: Vector, p: Vector, m: int, w: Vector | None) -> tuple[Vector, Vector, Vector]:
    """Weight (the count, if there are no weights), sum of forecasts and sum of outcomes of each bin."""
    b = _bins(p, m)
    columns = (None, p, y) if w is None else (w, w * p, w * y)
    weight, sum_p, sum_y = (np.bincount(b, column, minlength=m).astype(np.float64) for column in columns)
    return weight, sum_p, sum_y


def _losses(y: Vector, p: Vector, clip: float = 0.0) -> Vector:
    with np.errstate(divide="ignore"):
        return -np.maximum(np.where(y == 1.0, np.log(p), np.log1p(-p)), np.log(clip))


def wilson(share: npt.ArrayLike, count: npt.ArrayLike, confidence: float = 0.95) -> tuple[Vector, Vector]:
    """Wilson's interval for the probability behind a `share` of `count` events; NaN where there is no event.

    >>> from calibeat.metrics import wilson
    >>> low, high = wilson(0.5, 100)
    >>> round(float(low), 3), round(float(high), 3)
    (0.404, 0.596)

    References: Wilson (1927).
    """
    from statistics import NormalDist  # which brings half of the standard library with it

    z = NormalDist().inv_cdf(0.5 + check_interval("confidence", confidence, 0.0, 0.999999) / 2.0)
    p, n = np.asarray(share, dtype=np.float64), np.asarray(count, dtype=np.float64)
    n = np.where(n > 0, n, np.nan)
    middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z / (1.0 + z * z / n) * np.sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n))
    # At a share of 0 or 1 the interval begins there, in spite of rounding.
    return np.minimum(np.maximum(middle - half, 0.0), p), np.maximum(np.minimum(middle + half, 1.0), p)


# ---- many classes: labels first, an (n, K) matrix of probabilities second --------------------------------------------


def _is_matrix(forecasts: Any) -> bool:
    """Whether forecasts have a column for each class."""
    return np.ndim(to_matrix(forecasts)) == 2


def top_label(labels: Any, forecasts: Any, *, classes: Sequence[Any] | None = None) -> tuple[Vector, Vector, Ints]:
    """For each event: whether the top class was right (0 or 1), its probability, and which it was.

    The first two are a column of outcomes and one of forecasts, which a `Monitor` can watch.

    >>> from calibeat import Monitor, metrics
    >>> hits, confidence, named = metrics.top_label([0, 2], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]])
    >>> Monitor().run(confidence.clip(max=1.0), hits), hits.tolist()
    ([], [1.0, 0.0])
    """
    y, P = check_labelled(labels, forecasts, classes)
    named = P.argmax(axis=1)
    return (named == y).astype(np.float64), P[np.arange(len(y)), named], named


def top_label_calibration_error(
    labels: Any,
    forecasts: Any,
    bins: int = 10,
    *,
    given_class: bool = False,
    classes: Sequence[Any] | None = None,
    sample_weight: Any = None,
) -> float:
    r"""How far the confidence of the top class is from how often it is right: (1/T) sum_b N_b |conf_b - hits_b|.

    Parameters
    ----------
    labels : column numbers, or labels of `classes`.
    forecasts : an (n, K) matrix of probabilities.
    bins : of equal width, on the confidence.
    given_class : bin the events of each named class apart and take the mean over the events: "when it says cat with
        80 %, is it a cat 80 % of the time?" This is stricter, and what Gupta & Ramdas call top-label calibration;
        without it this is the usual ECE of a multiclass model (confidence calibration).
    sample_weight : one weight for each event.

    >>> from calibeat import metrics
    >>> P = [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]] * 10
    >>> labels = ([0] * 15 + [1] * 5)
    >>> metrics.top_label_calibration_error(labels, P), metrics.top_label_calibration_error(labels, P, given_class=True)
    (0.2, 0.25)

    References: Gupta & Ramdas (2022), Top-label calibration and multiclass-to-binary reductions; Guo et al. (2017).
    """
    hits, confidence, named = top_label(labels, forecasts, classes=classes)
    w = _weights(sample_weight, len(hits))
    if w is not None:
        (hits, confidence, named), w = _seen(w, hits, confidence, named)
    m, total = check_whole("bins", bins, 1, 10**7), _total(hits, w)
    if not given_class:
        return _bin_gaps(hits, confidence, m, w) / total
    rows = [named == k for k in np.unique(named)]
    return sum(_bin_gaps(hits[of], confidence[of], m, None if w is None else w[of]) for of in rows) / total


def classwise_calibration_error(
    labels: Any, forecasts: Any, bins: int = 10, *, classes: Sequence[Any] | None = None, sample_weight: Any = None
) -> float:
    r"""Mean over the classes of the calibration error of "is it this class?".

    With many classes most columns are near 0 and right to be so: it shrinks like 1/K. Compare it only at the same K.

    >>> from calibeat import metrics
    >>> P = [[0.5, 0.5, 0.0]] * 4
    >>> round(metrics.classwise_calibration_error([0, 0, 0, 1], P), 6)      # (0.25 + 0.25 + 0)/3
    0.166667

    References: Kull et al. (2019); Nixon et al. (2019).
    """
    y, P, w = _labelled(labels, forecasts, classes, sample_weight)
    m = check_whole("bins", bins, 1, 10**7)
    errors = [_bin_gaps((y == k).astype(np.float64), P[:, k], m, w) for k in range(P.shape[1])]
    return float(np.mean(errors)) / _total(y, w)


def _bin_gaps(y: Vector, p: Vector, m: int, w: Vector | None) -> float:
    """sum_b |sum of p - sum of y|, each times its weight."""
    gaps = p - y if w is None else w * (p - y)
    return float(np.abs(np.bincount(_bins(p, m), gaps, minlength=m)).sum())
