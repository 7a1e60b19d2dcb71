r"""The paper's metrics, on plain arrays: outcomes first, forecasts second.

Bins are B_1 = [0, e), ..., B_m = [1 - e, 1] with e = 1/m; N_b events fall in bin b, with mean forecast p_b and mean
outcome y_b. All sums run over the bins that are not empty.

>>> from calibeat import metrics
>>> y, p = [0, 1, 1, 0], [0.15, 0.85, 0.75, 0.25]
>>> round(metrics.calibration_error(y, p), 3), round(metrics.brier_score(y, p), 4)
(0.2, 0.0425)

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
    """One number per bin: `mean_forecast` (the mid-point where empty), `mean_outcome` (NaN where empty), `count`."""

    mean_forecast: Vector
    mean_outcome: Vector
    count: npt.NDArray[np.int64]  # type: ignore[assignment]  # the tuple's own count() is of no use here


def reliability_curve(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10) -> ReliabilityCurve:
    """Mean forecast, mean outcome and count of each bin: the numbers behind a reliability diagram.

    >>> from calibeat import metrics
    >>> metrics.reliability_curve([0, 1, 1], [0.2, 0.7, 0.8], bins=2)
    ReliabilityCurve(mean_forecast=array([0.2 , 0.75]), mean_outcome=array([0., 1.]), count=array([1, 2]))
    """
    y, p = _pair(outcomes, forecasts)
    m = check_whole("bins", bins, 1, 10**7)
    count, sum_p, sum_y = _binned(y, p, m)
    empty = count == 0
    divisor = np.where(empty, 1, count)
    middle = (np.arange(m) + 0.5) / m
    return ReliabilityCurve(np.where(empty, middle, sum_p / divisor), np.where(empty, np.nan, sum_y / divisor), count)


def confidence_reliability_curve(
    labels: Any, forecasts: Any, bins: int = 10, *, classes: Sequence[Any] | None = None
) -> ReliabilityCurve:
    """The reliability curve of the top class: mean confidence, share of hits and count of each bin of confidence.

    Parameters
    ----------
    labels : column numbers, or labels of `classes`.
    forecasts : an (n, K) matrix of probabilities.

    >>> from calibeat import metrics
    >>> curve = metrics.confidence_reliability_curve([0, 2], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], bins=2)
    >>> curve.mean_forecast[1], curve.mean_outcome[1], curve.count[1]
    (np.float64(0.75), np.float64(0.5), np.int64(2))
    """
    hits, confidence, _ = top_label(labels, forecasts, classes=classes)
    return reliability_curve(hits, np.minimum(confidence, 1.0), bins)


def calibration_error(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10, norm: str = "l1") -> float:
    r"""How far the mean forecast of a bin is from its mean outcome: the paper's CE.

    l1 (the paper): (1/T) sum_b N_b |p_b - y_b|;  l2: sqrt((1/T) sum_b N_b (p_b - y_b)^2);  max: max_b |p_b - y_b|.

    >>> from calibeat import metrics
    >>> metrics.calibration_error([1, 1, 0, 0], [0.5, 0.5, 0.5, 0.5])
    0.0
    """
    y, p = _pair(outcomes, forecasts)
    norm = check_choice("norm", norm, ("l1", "l2", "max"))
    count, sum_p, sum_y = _binned(y, p, check_whole("bins", bins, 1, 10**7))
    if norm == "l1":
        return float(of_bins(count, sum_p, sum_y).calibration_error)
    used = count > 0
    gap = np.abs(sum_p - sum_y)[used] / count[used]
    if norm == "l2":
        return math.sqrt(float((count[used] * gap * gap).sum()) / len(y))
    return float(gap.max())


def sharpness(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10) -> float:
    r"""SHP = (1/T) sum_b N_b y_b^2: how well the bins tell ones from zeros; higher is better.

    >>> from calibeat import metrics
    >>> metrics.sharpness([0, 1], [0.0, 1.0]), metrics.sharpness([0, 1], [0.5, 0.5])
    (0.5, 0.25)
    """
    y, p = _pair(outcomes, forecasts)
    return float(of_bins(*_binned(y, p, check_whole("bins", bins, 1, 10**7))).sharpness)


def refinement(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, bins: int = 10) -> float:
    r"""R = (1/T) sum_b N_b y_b (1 - y_b) = mean(y) - SHP: what is left unexplained inside the bins; lower is better.

    >>> from calibeat import metrics
    >>> metrics.refinement([0, 1], [0.5, 0.5])
    0.25
    """
    y, p = _pair(outcomes, forecasts)
    return float(of_bins(*_binned(y, p, check_whole("bins", bins, 1, 10**7))).refinement)


class OfBins(NamedTuple):
    """What the sums of bins say; numbers, or arrays where there is more than one row of bins."""

    calibration_error: Any
    sharpness: Any
    refinement: Any


def of_bins(count: npt.ArrayLike, sum_p: npt.ArrayLike, sum_y: npt.ArrayLike) -> OfBins:
    """Calibration error (l1), sharpness and refinement from count, sum of forecasts and sum of outcomes of each bin.

    The bins are along the last axis. Use it where the bins have been tallied already.

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


def brier_score(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, *, classes: Sequence[Any] | None = None) -> float:
    r"""(1/T) sum_t (y_t - p_t)^2.

    For many classes (labels, and an (n, K) matrix of forecasts) summed over the classes: between 0 and 2, and twice
    the binary score for two classes. Labels are column numbers, or those of `classes`.

    >>> from calibeat import metrics
    >>> metrics.brier_score([1, 0], [0.5, 0.5]), metrics.brier_score([1, 0], [[0.5, 0.5], [0.5, 0.5]])
    (0.25, 0.5)
    """
    if _is_matrix(forecasts):
        labels, P = check_labelled(outcomes, forecasts, classes)
        return float((P**2).sum(axis=1).mean() + (1.0 - 2.0 * P[np.arange(len(labels)), labels]).mean())
    y, p = _pair(outcomes, forecasts)
    return float(np.mean((y - p) ** 2))


def log_loss(
    outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, clip: float = 0.0, *, classes: Sequence[Any] | None = None
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
        labels, P = check_labelled(outcomes, forecasts, classes)
        with np.errstate(divide="ignore"):
            losses = -np.log(np.maximum(P[np.arange(len(labels)), labels], check_interval("clip", clip, 0.0, 0.499)))
        return float(losses.mean())
    y, p = _pair(outcomes, forecasts)
    clip = check_interval("clip", clip, 0.0, 0.499)
    return float(_losses(y, p, clip).mean())


def accuracy(outcomes: npt.ArrayLike, forecasts: npt.ArrayLike, threshold: float = 0.5) -> float:
    """The share of events where "forecast >= threshold" agrees with the outcome.

    >>> from calibeat import metrics
    >>> metrics.accuracy([1, 0, 1, 1], [0.9, 0.2, 0.4, 0.5])
    0.75
    """
    y, p = _pair(outcomes, forecasts)
    return float(np.mean((p >= check_interval("threshold", threshold, 0.0, 1.0)) == (y == 1.0)))


# ---- against what is known only of synthetic data ---------------------------------------------------------------


def true_calibration_error(probabilities: npt.ArrayLike, forecasts: npt.ArrayLike) -> float:
    r"""(1/T) sum_t |p_t - Pr(Y_t = 1 | x_t)|, where the true probabilities are known (the paper's Section 1).

    >>> from calibeat import metrics
    >>> round(metrics.true_calibration_error([0.1, 0.9], [0.2, 0.9]), 3)
    0.05
    """
    truth, p = _truth(probabilities, forecasts)
    return float(np.abs(p - truth).mean())


def true_accuracy(probabilities: npt.ArrayLike, forecasts: npt.ArrayLike, threshold: float = 0.5) -> float:
    """The expected accuracy of "forecast >= threshold", where the true probabilities are known.

    >>> from calibeat import metrics
    >>> metrics.true_accuracy([0.1, 0.9], [0.2, 0.9])
    0.9
    """
    truth, p = _truth(probabilities, forecasts)
    positive = p >= check_interval("threshold", threshold, 0.0, 1.0)
    return float(np.where(positive, truth, 1.0 - truth).mean())


# ---- regret -----------------------------------------------------------------------------------------------------


def regret(
    method_or_features: Method | Scaling | str,
    scores: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    forecasts: npt.ArrayLike,
    radius: float = 100.0,
) -> float:
    r"""R_T = sum_t l(p_t, y_t) - min over |theta| <= B of sum_t l(sigmoid(theta . x_t), y_t).

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
    theta = best_parameters(method_or_features, scores, outcomes, radius)
    z = _design(_scaling(method_or_features), check_scores(scores)) @ np.array(theta)
    return float(_losses(y, p).sum() - np.logaddexp(0.0, np.where(y == 1.0, -z, z)).sum())


def best_parameters(
    method_or_features: Method | Scaling | str, scores: npt.ArrayLike, outcomes: npt.ArrayLike, radius: float = 100.0
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
    radius = check_scale("radius", radius)
    x = _design(family, f)
    d = len(family.names)
    x0, x1 = np.ascontiguousarray(x[:, 0]), np.ascontiguousarray(x[:, 1]) if d == 3 else np.empty(0)
    return tuple(fit(d, x0, x1, y, np.empty(0), 0, len(y), 0.0, 0.0, 0.0, radius)[:d])


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


def _truth(probabilities: npt.ArrayLike, forecasts: npt.ArrayLike) -> tuple[Vector, Vector]:
    truth, p = check_scores(probabilities, "probability"), check_scores(forecasts, "forecast")
    check_lengths(probabilities=len(truth), forecasts=len(p))
    return truth, p


def _binned(y: Vector, p: Vector, m: int) -> tuple[npt.NDArray[np.int64], Vector, Vector]:
    """Count, sum of forecasts and sum of outcomes of each bin; an edge k/m falls to the right."""
    b = np.searchsorted(np.arange(1, m) / m, p, side="right")
    count = np.bincount(b, minlength=m).astype(np.int64)
    return count, np.bincount(b, p, minlength=m).astype(np.float64), np.bincount(b, y, minlength=m).astype(np.float64)


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
    labels: Any, forecasts: Any, bins: int = 10, *, given_class: bool = False, classes: Sequence[Any] | None = None
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

    >>> from calibeat import metrics
    >>> P = [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]] * 10
    >>> labels = ([0] * 15 + [1] * 5)
    >>> metrics.top_label_calibration_error(labels, P), metrics.top_label_calibration_error(labels, P, given_class=True)
    (0.2, 0.25)

    References: Gupta & Ramdas (2022), Top-label calibration and multiclass-to-binary reductions; Guo et al. (2017).
    """
    hits, confidence, named = top_label(labels, forecasts, classes=classes)
    m = check_whole("bins", bins, 1, 10**7)
    if not given_class:
        return _bin_gaps(hits, confidence, m) / len(hits)
    return sum(_bin_gaps(hits[named == k], confidence[named == k], m) for k in np.unique(named)) / len(hits)


def classwise_calibration_error(
    labels: Any, forecasts: Any, bins: int = 10, *, classes: Sequence[Any] | None = None
) -> float:
    r"""Mean over the classes of the calibration error of "is it this class?".

    With many classes most columns are near 0 and right to be so: it shrinks like 1/K. Compare it only at the same K.

    >>> from calibeat import metrics
    >>> P = [[0.5, 0.5, 0.0]] * 4
    >>> round(metrics.classwise_calibration_error([0, 0, 0, 1], P), 6)      # (0.25 + 0.25 + 0)/3
    0.166667

    References: Kull et al. (2019); Nixon et al. (2019).
    """
    y, P = check_labelled(labels, forecasts, classes)
    m = check_whole("bins", bins, 1, 10**7)
    errors = [_bin_gaps((y == k).astype(np.float64), P[:, k], m) for k in range(P.shape[1])]
    return float(np.mean(errors)) / len(y)


def _bin_gaps(y: Vector, p: Vector, m: int) -> float:
    """sum_b |sum of p - sum of y|; an edge k/m falls to the right."""
    b = np.searchsorted(np.arange(1, m) / m, p, side="right")
    return float(np.abs(np.bincount(b, p - y, minlength=m)).sum())
