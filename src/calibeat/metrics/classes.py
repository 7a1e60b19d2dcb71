r"""Metrics of forecasts with many classes: labels first, an (n, K) matrix of probabilities second.

Labels are column numbers, or, with ``classes=``, the labels in the order of the columns. `calibeat.metrics` has all of
this under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.columns import to_array
from calibeat._util.matrix import to_matrix
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

TOLERANCE = 1e-6


def is_matrix(forecasts: Any) -> bool:
    """Whether forecasts have a column for each class."""
    return np.ndim(to_matrix(forecasts)) == 2


def labelled(labels: Any, forecasts: Any, classes: Sequence[Any] | None) -> tuple[Ints, Vector]:
    """Column numbers of the labels, and the probabilities; the first bad place is named."""
    P = np.asarray(to_matrix(forecasts))
    if P.ndim != 2 or P.shape[1] < 2 or P.dtype.kind not in "iuf":
        raise InvalidInput(f"forecasts must be a matrix of numbers, a column for each class, got shape {P.shape}")
    P = P.astype(np.float64)
    if len(P) == 0:
        raise InvalidInput("arrays must not be empty, got length 0 for forecasts")
    bad = ~((P >= 0.0) & (P <= 1.0 + TOLERANCE))
    if bad.any():
        row, column = np.unravel_index(bad.argmax(), P.shape)
        raise InvalidInput(f"forecast must be in [0, 1], got {float(P[row, column])!r} - at row {row}, column {column}")
    sums = P.sum(axis=1)
    bad_row = np.abs(sums - 1.0) > TOLERANCE
    if bad_row.any():
        first = int(bad_row.argmax())
        raise InvalidInput(f"forecasts of an event must sum to 1, got {sums[first]:.9g} - at row {first}")
    return _columns(labels, len(P), P.shape[1], classes), P


def _columns(labels: Any, length: int, K: int, classes: Sequence[Any] | None) -> Ints:
    values = to_array(labels)
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(items) != length:
        raise InvalidInput(f"arrays must have the same length, got labels {len(items)}, forecasts {length}")
    known = list(range(K)) if classes is None else list(classes)
    if len(known) != K:
        raise InvalidInput(f"classes must be as many as the {K} columns, got {len(known)}")
    index = {label: column for column, label in enumerate(known)}
    columns = np.empty(length, dtype=np.int64)
    for row, label in enumerate(items):
        found = index.get(label, -1) if isinstance(label, (str, int, float)) else -1
        if found < 0:
            wanted = f"a column number from 0 to {K - 1}" if classes is None else "one of the classes"
            raise InvalidInput(f"label must be {wanted}, got {shown(label)} - at row {row}")
        columns[row] = found
    return columns


def log_loss(labels: Any, forecasts: Any, clip: float, classes: Sequence[Any] | None) -> float:
    y, P = labelled(labels, forecasts, classes)
    with np.errstate(divide="ignore"):
        losses = -np.log(np.maximum(P[np.arange(len(y)), y], check_interval("clip", clip, 0.0, 0.499)))
    return float(losses.mean())


def brier_score(labels: Any, forecasts: Any, classes: Sequence[Any] | None) -> float:
    y, P = labelled(labels, forecasts, classes)
    return float((P**2).sum(axis=1).mean() + (1.0 - 2.0 * P[np.arange(len(y)), y]).mean())


def top_label(labels: Any, forecasts: Any, classes: Sequence[Any] | None) -> tuple[Vector, Vector, Ints]:
    """For each event: whether the top class was right (0 or 1), its probability, and which it was."""
    y, P = labelled(labels, forecasts, classes)
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
    hits, confidence, named = top_label(labels, forecasts, classes)
    m = check_whole("bins", bins, 1, 10**7)
    if not given_class:
        return _gaps(hits, confidence, m) / len(hits)
    return sum(_gaps(hits[named == k], confidence[named == k], m) for k in np.unique(named)) / len(hits)


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
    y, P = labelled(labels, forecasts, classes)
    m = check_whole("bins", bins, 1, 10**7)
    errors = [_gaps((y == k).astype(np.float64), P[:, k], m) for k in range(P.shape[1])]
    return float(np.mean(errors)) / len(y)


def _gaps(y: Vector, p: Vector, m: int) -> float:
    """sum_b |sum of p - sum of y|; an edge k/m falls to the right."""
    b = np.searchsorted(np.arange(1, m) / m, p, side="right")
    return float(np.abs(np.bincount(b, p - y, minlength=m)).sum())
