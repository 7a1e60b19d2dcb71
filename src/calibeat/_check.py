"""Checks at the boundary: kernels assume good input, so everything is looked at once, here.

Messages have one shape: ``score must be in [0, 1], got 1.3 - at row 17``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidInput

Vector = npt.NDArray[np.float64]


def _said(value: Any) -> str:
    """A value as an error message should show it: short, and with its type where the type is the problem."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- one event ---------------------------------------------------------------------------------------------------


def check_score(score: Any) -> float:
    """A probability in [0, 1] as a Python float."""
    if type(score) is not float:
        if not _is_number(score):
            raise InvalidInput(f"score must be a number in [0, 1], got {type(score).__name__} {_said(score)}")
        score = float(score)
    if not 0.0 <= score <= 1.0:
        raise InvalidInput(f"score must be in [0, 1], got {score!r}")
    return score


def check_outcome(outcome: Any) -> float:
    """0 or 1 (or False or True) as a Python float."""
    # The type first: asking whether something is a Real costs more than the rest of the event.
    if type(outcome) is int or isinstance(outcome, (Real, np.bool_)):
        if outcome == 1:
            return 1.0
        if outcome == 0:
            return 0.0
    raise InvalidInput(f"outcome must be 0 or 1, got {_said(outcome)}")


# ---- arrays ------------------------------------------------------------------------------------------------------


def check_scores(scores: Any, name: str = "score") -> Vector:
    """A one-dimensional array of probabilities; names the first bad row."""
    array = _numbers(scores, name, "a number in [0, 1]")
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"{name} must be in [0, 1], got {float(array[row])!r} - at row {row}")
    return array


def check_outcomes(outcomes: Any, needed: npt.NDArray[np.bool_] | None = None) -> Vector:
    """A one-dimensional array of 0 and 1; rows that are not `needed` may hold anything and come back as 0."""
    array = _numbers(outcomes, "outcome", "0 or 1", booleans=True)
    bad = (array != 0.0) & (array != 1.0)
    if needed is not None:
        if needed.shape != array.shape:
            return array  # the caller compares lengths next, and says so better than a broadcast error
        array = np.where(bad & ~needed, 0.0, array)
        bad &= needed
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"outcome must be 0 or 1, got {float(array[row])!r} - at row {row}")
    return array


def check_due(due: Any, length: int) -> npt.NDArray[np.int64]:
    """For each event the position of the prediction just before which its outcome arrives: later than its own."""
    try:
        array = np.asarray(due)
    except ValueError as error:
        raise InvalidInput(f"due must be a one-dimensional array of whole numbers, got {_said(due)}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"due must be a one-dimensional array of whole numbers, got {array.ndim} dimensions of {array.dtype}"
        )
    check_lengths(scores=length, due=len(array))
    if array.dtype == np.uint64:  # what does not fit is far in the future
        array = np.minimum(array, np.uint64(np.iinfo(np.int64).max))
    array = array.astype(np.int64)
    bad = array <= np.arange(length)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"due must be later than its own position {row}, got {int(array[row])} - at row {row}")
    return array


def check_lengths(**lengths: int) -> None:
    """All the same and not zero."""
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInput(f"arrays must have the same length, got {said}")
    if 0 in lengths.values():
        raise InvalidInput(f"arrays must not be empty, got length 0 for {', '.join(lengths)}")


def _numbers(values: Any, name: str, wanted: str, *, booleans: bool = False) -> Vector:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name}s must be a one-dimensional array, got a ragged {type(values).__name__}") from error
    if array.ndim != 1:
        raise InvalidInput(f"{name}s must be a one-dimensional array, got shape {array.shape}")
    if array.dtype == object:
        for row, value in enumerate(array):
            if not (_is_number(value) or (booleans and isinstance(value, (bool, np.bool_)))):
                got = f"{type(value).__name__} {_said(value)}"
                raise InvalidInput(f"{name} must be {wanted}, got {got} - at row {row}")
    elif array.dtype.kind not in ("biuf" if booleans else "iuf"):
        first = _said(array[0].item()) if len(array) else "nothing"
        got = f"an array of {array.dtype} that starts with {first}"
        raise InvalidInput(f"{name} must be {wanted}, got {got} - at row 0")
    # One kind of array, so that each kernel is compiled once: contiguous, aligned, and writeable though nobody writes.
    return np.require(array, np.float64, ["C", "A", "W"])


# ---- hyper-parameters --------------------------------------------------------------------------------------------


def check_positive(what: str, value: Any) -> float:
    """A finite number above zero."""
    number = _real(what, value, "a positive number")
    if not (0.0 < number < math.inf):
        raise InvalidInput(f"{what} must be a positive number, got {value!r}")
    return number


def check_not_negative(what: str, value: Any) -> float:
    """A finite number, zero or above."""
    number = _real(what, value, "zero or a positive number")
    if not (0.0 <= number < math.inf):
        raise InvalidInput(f"{what} must be zero or a positive number, got {value!r}")
    return number


def check_interval(what: str, value: Any, low: float, high: float) -> float:
    """A number between low and high, ends included."""
    number = _real(what, value, f"in [{low:g}, {high:g}]")
    if not (low <= number <= high):
        raise InvalidInput(f"{what} must be in [{low:g}, {high:g}], got {value!r}")
    return number


def check_whole(what: str, value: Any, low: int, high: int) -> int:
    """A whole number between low and high, ends included."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise InvalidInput(f"{what} must be a whole number in [{low}, {high}], got {_said(value)}")
    return int(value)


def check_choice(what: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        raise InvalidInput(f"{what} must be {' or '.join(map(repr, choices))}, got {_said(value)}")
    return str(value)


def check_finite_tuple(what: str, values: Any, length: int) -> tuple[float, ...]:
    """So many finite numbers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} must be {length} numbers, got {_said(values)}")
    numbers = tuple(_real(what, value, f"{length} numbers") for value in values)
    if len(numbers) != length or not all(math.isfinite(number) for number in numbers):
        raise InvalidInput(f"{what} must be {length} finite numbers, got {_said(values)}")
    return numbers


def _is_number(value: Any) -> bool:
    """Python counts True as a number; for us it is a mistake, in a score or a hyper-parameter."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _real(what: str, value: Any, wanted: str) -> float:
    if not _is_number(value):
        raise InvalidInput(f"{what} must be {wanted}, got {_said(value)}")
    return float(value)
