"""Checks at the boundary: kernels assume good input, so everything is looked at once, here.

Messages have one shape: ``score must be in [0, 1], got 1.3 - at row 17``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.errors import InvalidInput

from .columns import to_array, to_matrix
from .types import Ints, Vector

# Hyper-parameters stay where squares and quotients of them, added up over any stream, are still numbers.
SMALLEST, LARGEST = 1e-10, 1e10


def shown(value: Any) -> str:
    """A value as an error message should show it: short, and with its type where the type is the problem."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- one event ---------------------------------------------------------------------------------------------------


def check_score(score: Any) -> float:
    """A probability in [0, 1] as a Python float."""
    if type(score) is not float:
        if not _is_number(score):
            got = f"{type(score).__name__} {shown(score)}"
            raise InvalidInput(f"score must be a number in [0, 1], got {got}{_other_kind(score)}")
        score = _float(score)
    if not 0.0 <= score <= 1.0:
        raise InvalidInput(f"score must be in [0, 1], got {score!r}{_other_scale(score)}")
    return score


def _other_kind(score: Any) -> str:
    """What something that is no number may be, as the end of a message."""
    if isinstance(score, (str, bytes)):
        return " - float(score) makes a number of text"
    shape = getattr(score, "shape", None)
    if shape is None and isinstance(score, (list, tuple)):
        shape = (len(score),)
    if shape in ((2,), (1, 2)):
        return " - a row of predict_proba? its last number is the score"
    return " - many events? use run(scores, outcomes) or predict_many(scores)" if shape else ""


def _other_shape(name: str, shape: tuple[int, ...]) -> str:
    """How to make one dimension of another shape, as the end of a message."""
    if len(shape) == 2 and shape[1] == 2:
        return " - of predict_proba take the second column, [:, 1]"
    if len(shape) == 2 and shape[1] > 2:
        return " - many classes? MultiCalibrator takes a column for each"
    if len(shape) > 1:
        return " - .ravel() makes one dimension of it"
    return " - one event? use predict(score)" if name == "score" else ""


def _other_scale(score: float) -> str:
    """What a score outside [0, 1] may be, as the end of a message."""
    if 2.0 < score <= 100.0:
        return " - a percentage? divide by 100"
    if math.isfinite(score) and not -1.0 < score <= 2.0:
        return " - a logit? 1 / (1 + exp(-score)) is its probability"
    return ""


def check_outcome(outcome: Any) -> float:
    """0 or 1 (or False or True) as a Python float."""
    # The type first: asking whether something is a Real costs more than the rest of the event.
    if type(outcome) is int or isinstance(outcome, (Real, np.bool_, Decimal)):
        if outcome == 1:
            return 1.0
        if outcome == 0:
            return 0.0
    raise InvalidInput(f"outcome must be 0 or 1, got {shown(outcome)}")


# ---- arrays ------------------------------------------------------------------------------------------------------


def check_scores(scores: Any, name: str = "score") -> Vector:
    """A one-dimensional array of probabilities; names the first bad row."""
    array = _numbers(scores, name, "a number in [0, 1]")
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        row = int(bad.argmax())
        got = float(array[row])
        raise InvalidInput(f"{name} must be in [0, 1], got {got!r} - at row {row}{_other_scale(got)}")
    return array


def check_outcomes(outcomes: Any, needed: npt.NDArray[np.bool_] | None = None) -> Vector:
    """A one-dimensional array of 0 and 1; rows that are not `needed` may hold anything and come back as 0."""
    if type(outcomes) is not np.ndarray:
        outcomes = to_array(outcomes)
    if needed is not None:
        outcomes = _blanked(outcomes, needed)
    array = _numbers(outcomes, "outcome", "0 or 1", booleans=True)
    bad = (array != 0.0) & (array != 1.0)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"outcome must be 0 or 1, got {float(array[row])!r} - at row {row}")
    return array


def _blanked(outcomes: Any, needed: npt.NDArray[np.bool_]) -> Any:
    """The outcomes with 0 where none is needed, if they are as many; if not, the caller will say so."""
    values = outcomes if isinstance(outcomes, np.ndarray) else np.array(outcomes, dtype=object)
    if values.shape != needed.shape:
        return outcomes
    return np.where(needed, values, 0)


def check_due(due: Any, length: int) -> npt.NDArray[np.int64]:
    """For each event the position of the prediction just before which its outcome arrives: later than its own."""
    due = to_array(due)
    try:
        array = np.asarray(due)
    except ValueError as error:
        raise InvalidInput(f"due must be a one-dimensional array of whole numbers, got {shown(due)}") from error
    if array.dtype.kind == "M" or (array.dtype.kind in "OU" and array.size and isinstance(array.flat[0], (date, str))):
        raise InvalidInput(
            "due must be positions in this batch, whole numbers, got dates - say times= and outcome_times= instead, "
            "the times of scores and outcomes"
        )
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
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInput(f"arrays must have the same length, got {listed}")
    if 0 in lengths.values():
        raise InvalidInput(f"arrays must not be empty, got length 0 for {', '.join(lengths)}")


def _numbers(values: Any, name: str, wanted: str, *, booleans: bool = False) -> Vector:
    if type(values) is not np.ndarray:
        values = to_array(values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name}s must be a one-dimensional array, got a ragged {type(values).__name__}") from error
    if array.ndim != 1:
        raise InvalidInput(
            f"{name}s must be a one-dimensional array, got shape {array.shape}{_other_shape(name, array.shape)}"
        )
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = int(np.ma.getmaskarray(values).argmax())
        raise InvalidInput(f"{name} must be {wanted}, got a masked value - at row {row}")
    if array.dtype == object or isinstance(values, (list, tuple)):
        # NumPy makes one kind of all the elements, and with it an innocent number of a mistake.
        for row, value in enumerate(values):
            if not (_is_number(value) or (booleans and isinstance(value, (bool, np.bool_)))):
                got = f"{type(value).__name__} {shown(value)}"
                raise InvalidInput(f"{name} must be {wanted}, got {got} - at row {row}")
        if array.dtype == object:
            array = np.array([_float(value) for value in values])
    elif array.dtype.kind not in ("biuf" if booleans else "iuf"):
        first = shown(array[0].item()) if len(array) else "nothing"
        got = f"an array of {array.dtype} that starts with {first}"
        raise InvalidInput(f"{name} must be {wanted}, got {got} - at row 0")
    # One kind of array, so that each kernel is compiled once: contiguous, aligned, writeable.
    return np.require(array, np.float64, ["C", "A", "W"])


# ---- hyper-parameters --------------------------------------------------------------------------------------------


def check_scale(what: str, value: Any) -> float:
    """A positive number of a size that kernels can work with."""
    return check_interval(what, value, SMALLEST, LARGEST)


def check_number(what: str, value: Any) -> float:
    """A finite number."""
    number = _real(what, value, "a finite number")
    if not math.isfinite(number):
        raise InvalidInput(f"{what} must be a finite number, got {shown(value)}")
    return number


def check_numbers(what: str, values: Sequence[Any]) -> Vector:
    """An array of finite numbers; names the first other value by its place."""
    if {*map(type, values)} <= {float, int}:  # as JSON has them: all at once
        with suppress(OverflowError):
            array = np.array(values, dtype=np.float64)
            if np.isfinite(array).all():
                return array
    return np.array([check_number(f"{what}[{i}]", value) for i, value in enumerate(values)])


def check_interval(what: str, value: Any, low: float, high: float) -> float:
    """A number between low and high, ends included."""
    number = _real(what, value, f"in [{low:g}, {high:g}]")
    if not (low <= number <= high):
        raise InvalidInput(f"{what} must be in [{low:g}, {high:g}], got {shown(value)}")
    return number


def check_whole(what: str, value: Any, low: int, high: int) -> int:
    """A whole number between low and high, ends included."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise InvalidInput(f"{what} must be a whole number in [{low}, {high}], got {shown(value)}")
    return int(value)


def check_choice(what: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(f"{what} must be {' or '.join(map(repr, choices))}, got {shown(value)}")
    return str(value)


def check_start(what: str, values: Any, length: int) -> tuple[float, ...]:
    """`length` numbers of a size that kernels can work with."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} must be {length} numbers, got {shown(values)}")
    numbers = tuple(_real(what, value, f"{length} numbers") for value in values)
    if len(numbers) != length or not all(abs(number) <= LARGEST for number in numbers):
        raise InvalidInput(f"{what} must be {length} numbers in [-{LARGEST:g}, {LARGEST:g}], got {shown(values)}")
    return numbers


def _is_number(value: Any) -> bool:
    """Python counts True as a number; for us it is a mistake, in a score or a hyper-parameter."""
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_))


def _float(number: Any) -> float:
    """A number as a float; one that is too large for it is infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except ValueError:  # a signalling NaN of decimal
        return math.nan


def _real(what: str, value: Any, wanted: str) -> float:
    if not _is_number(value):
        raise InvalidInput(f"{what} must be {wanted}, got {shown(value)}")
    return _float(value)


_SUM_TOLERANCE = 1e-6  # of the forecasts of one event


def check_labelled(labels: Any, forecasts: Any, classes: Sequence[Any] | None) -> tuple[Ints, Vector]:
    """Column numbers of the labels, and the probabilities; the first bad place is named."""
    P = np.asarray(to_matrix(forecasts))
    if P.ndim != 2 or P.shape[1] < 2 or P.dtype.kind not in "iuf":
        raise InvalidInput(f"forecasts must be a matrix of numbers, a column for each class, got shape {P.shape}")
    P = P.astype(np.float64)
    if len(P) == 0:
        raise InvalidInput("arrays must not be empty, got length 0 for forecasts")
    bad = ~((P >= 0.0) & (P <= 1.0 + _SUM_TOLERANCE))
    if bad.any():
        row, column = np.unravel_index(bad.argmax(), P.shape)
        raise InvalidInput(f"forecast must be in [0, 1], got {float(P[row, column])!r} - at row {row}, column {column}")
    sums = P.sum(axis=1)
    bad_row = np.abs(sums - 1.0) > _SUM_TOLERANCE
    if bad_row.any():
        first = int(bad_row.argmax())
        raise InvalidInput(f"forecasts of an event must sum to 1, got {sums[first]:.9g} - at row {first}")
    return _label_columns(labels, len(P), P.shape[1], classes), P


def _label_columns(labels: Any, length: int, K: int, classes: Sequence[Any] | None) -> Ints:
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
