"""Outcomes of which some are not known: NaN, or not needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_outcomes
from calibeat._util.columns import to_array
from calibeat._util.types import Vector

Flags = npt.NDArray[np.bool_]


def check_labels(outcomes: Any, needed: Flags | None = None) -> Vector:
    """A one-dimensional array of 0, 1 and NaN: where an outcome is missing, or is not `needed` whatever stands there.

    >>> check_labels([1, float("nan"), False])
    array([ 1., nan,  0.])
    """
    outcomes = to_array(outcomes)
    missing = _missing(outcomes)
    if missing is None or (needed is not None and missing.shape != needed.shape):
        return check_outcomes(outcomes)
    known = ~missing if needed is None else needed & ~missing
    if known.all():
        return check_outcomes(outcomes)
    labels = check_outcomes(outcomes, needed=known)
    labels[~known] = np.nan
    return labels


def blanked(values: Any, known: Flags) -> Any:
    """The values with 0 where none is known, if they are as many."""
    values = to_array(values)
    found = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    return np.where(known, found, 0.0) if found.shape == known.shape else values


def _missing(outcomes: Any) -> Flags | None:
    """Where there is no outcome; None for what is no column of them."""
    try:
        values = outcomes if isinstance(outcomes, np.ndarray) else np.array(outcomes, dtype=object)
    except ValueError:
        return None
    if values.ndim != 1:
        return None
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=np.bool_)
    return np.array([isinstance(value, (float, np.floating)) and value != value for value in values], dtype=np.bool_)  # noqa: PLR0124
