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

from .columns import Column, read_column, to_matrix
from .types import Flags, Ints, Vector

MOST_TRIALS = 10**9  # events that one outcome may be
HEAVIEST = 1e12  # the largest weight: sums of them, and of their squares, stay exact enough

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


def _hint_for_others(shape: tuple[int, ...]) -> str:
    """How to make one dimension of another shape, as the end of a message."""
    if len(shape) == 2 and shape[1] == 2:
        return " - of predict_proba take the second column, [:, 1]"
    if len(shape) == 2 and shape[1] > 2:
        return " - many classes? MultiCalibrator takes a column for each"
    return " - .ravel() makes one dimension of it" if len(shape) > 1 else ""


def _hint_for_scores(shape: tuple[int, ...]) -> str:
    return _hint_for_others(shape) or " - one event? use predict(score)"


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


def check_weight(weight: Any) -> float:
    """A finite number from 0 to 1e12 as a Python float: how many events one outcome stands for."""
    if type(weight) is not float:
        if not _is_number(weight):
            got = f"{type(weight).__name__} {shown(weight)}"
            raise InvalidInput(f"weight must be a finite number >= 0, got {got}")
        weight = _float(weight)
    if not 0.0 <= weight <= HEAVIEST:
        raise InvalidInput(f"weight must be {_wanted_weight(weight)}, got {weight!r}")
    return weight


def check_trials(ones: Any, of: Any) -> float:
    """How many events an outcome is, as a Python float: at least as many as are 1, which are checked too."""
    trials = check_whole("of", of, 0, MOST_TRIALS)
    check_whole(f"outcome, the number of ones of {trials},", ones, 0, trials)
    return float(trials)


def _wanted_weight(weight: float) -> str:
    """What a weight must be, in the words that fit one that is refused."""
    return f"a finite number in [0, {HEAVIEST:g}]" if HEAVIEST < weight < math.inf else "a finite number >= 0"


# ---- arrays ------------------------------------------------------------------------------------------------------


def check_scores(scores: Any, name: str = "score", needed: Flags | None = None) -> Vector:
    """A one-dimensional array of probabilities; names the first bad row.

    Rows that are not `needed` may hold anything and come back as 0.
    """
    column = read_column(f"{name}s", scores, hint=_hint_for_scores if name == "score" else _hint_for_others)
    if needed is not None:
        column = column.only(needed)
    array = _numbers(column, name, "a number in [0, 1]")
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(
            f"{name} must be in [0, 1], got {_got(column, array, row)} - at row {row}{_other_scale(array[row])}"
        )
    return array


def check_outcomes(outcomes: Any, needed: Flags | None = None, *, optional: bool = False) -> Vector:
    """A one-dimensional array of 0 and 1; names the first bad row.

    Rows that are not `needed` may hold anything and come back as 0. If outcomes are `optional`, those that are missing
    or not needed come back as NaN.

    >>> check_outcomes([1, float("nan"), False], optional=True)
    array([ 1., nan,  0.])
    """
    column, known = _plain(read_column("outcomes", outcomes, hint=_hint_for_others)), needed
    if optional:
        absent = column.absent()
        if absent.any():
            known = ~absent if needed is None or len(needed) != len(absent) else needed & ~absent
    if known is not None:
        column = column.only(known)
    array = _numbers(column, "outcome", "0 or 1", booleans=True)
    bad = (array != 0.0) & (array != 1.0)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"outcome must be 0 or 1, got {_got(column, array, row)} - at row {row}")
    if optional and known is not None and len(known) == len(array):
        array = np.where(known, array, math.nan)
    return array


def check_weights(weights: Any, count: int | None, needed: Flags | None = None) -> Vector:
    """A one-dimensional array of finite numbers from 0 to 1e12; names the first bad row.

    There must be one for each of `count` events; None is any number of them. Where none is needed there may be
    anything.

    >>> check_weights([1, 20.0], 2)
    array([ 1., 20.])
    """
    column = read_column("weights", weights, hint=_hint_for_others)
    check_lengths(events=len(column) if count is None else count, weights=len(column))
    array = _numbers(column, "weight", "a finite number >= 0")
    if needed is not None:
        array = np.where(needed, array, 1.0)
    bad = ~((array >= 0.0) & (array <= HEAVIEST))
    if bad.any():
        row = int(bad.argmax())
        wanted, got = _wanted_weight(float(array[row])), _got(column, array, row)
        raise InvalidInput(f"weight must be {wanted}, got {got} - at row {row}")
    return array


def check_values(values: Any) -> Vector:
    """A one-dimensional array of finite numbers; names the first bad row."""
    column = read_column("values", values, hint=_hint_for_others)
    check_lengths(values=len(column))
    array = _numbers(column, "value", "a finite number")
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"value must be a finite number, got {_got(column, array, row)} - at row {row}")
    return array


def check_counts(ones: Any, of: Any, needed: Flags | None = None, *, optional: bool = False) -> tuple[Vector, Vector]:
    """The share of ones of each row, and its trials: whole numbers of ones among whole numbers of events, up to 1e9.

    Where none is needed there may be anything: there the share is NaN, and so it is of `optional` ones that are
    missing.

    >>> check_counts([3, 0, 1], [50, 2, 1])
    (array([0.06, 0.  , 1.  ]), array([50.,  2.,  1.]))
    """
    column, totals = read_column("outcomes", ones, hint=_hint_for_others), read_column("of", of, hint=_hint_for_others)
    check_lengths(outcomes=len(column), of=len(totals))
    found = _numbers(column, "outcome", "a whole number of ones")
    trials = _numbers(totals, "of", "a whole number of events")
    wanted = np.ones(len(found), dtype=np.bool_) if needed is None else needed
    if optional:
        wanted = wanted & ~np.isnan(found)
    for name, read, most in (("of", trials, np.full(len(found), float(MOST_TRIALS))), ("outcome", found, trials)):
        with np.errstate(invalid="ignore"):
            bad = wanted & ~((read >= 0.0) & (read <= most) & (np.floor(read) == read))
        if bad.any():
            row = int(bad.argmax())
            least = f"a whole number from 0 to {int(most[row]):,}" if name == "of" else "a whole number of ones"
            limit = "" if name == "of" else f", at most {int(most[row])}"
            source = totals if name == "of" else column
            raise InvalidInput(f"{name} must be {least}{limit}, got {_got(source, read, row)} - at row {row}")
    trials = np.where(wanted, trials, 1.0)
    shares = np.where(wanted, found, np.nan) / np.maximum(trials, 1.0)
    return shares, trials


def _got(column: Column, array: Vector, row: int) -> str:
    """What stands in a row, for a message."""
    return "a missing value" if column.missing is not None and column.missing[row] else repr(float(array[row]))


def check_due(due: Any, length: int) -> npt.NDArray[np.int64]:
    """For each event the position of the prediction just before which its outcome arrives: later than its own."""
    array = read_column("due", due, "a one-dimensional array of whole numbers").as_array()
    if array.dtype.kind == "M" or (array.dtype.kind in "OU" and array.size and isinstance(array.flat[0], (date, str))):
        raise InvalidInput(
            "due must be positions in this batch, whole numbers, got dates - say times= and outcome_times= instead, "
            "the times of scores and outcomes"
        )
    if array.dtype.kind not in "iu":
        raise InvalidInput(f"due must be a one-dimensional array of whole numbers, got {array.dtype}")
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


def _numbers(column: Column, name: str, wanted: str, *, booleans: bool = False) -> Vector:
    """The numbers of a column, NaN where one is missing, as the one kind of array that each kernel is compiled for.

    That is: contiguous, aligned, writeable.
    """
    column = _plain(column, booleans=booleans)
    values, missing = column.values, column.missing
    if isinstance(values, list):
        values = values if missing is None else np.where(missing, math.nan, np.array(values, dtype=object)).tolist()
        for row, value in enumerate(values):
            if not (_is_number(value) or (booleans and isinstance(value, (bool, np.bool_)))):
                got = f"{type(value).__name__} {shown(value)}"
                raise InvalidInput(f"{name} must be {wanted}, got {got} - at row {row}")
        return np.array([_float(value) for value in values])
    if values.dtype.kind not in ("biuf" if booleans else "iuf"):
        first = shown(values[0].item()) if len(values) else "nothing"
        got = f"an array of {values.dtype} that starts with {first}"
        raise InvalidInput(f"{name} must be {wanted}, got {got} - at row 0")
    numbers = np.require(values, np.float64, ["C", "A", "W"])
    return numbers if missing is None else np.where(missing, math.nan, numbers)


def _plain(column: Column, *, booleans: bool = True) -> Column:
    """The column as an array if it is a list of plain numbers; if not, itself: NumPy would make numbers of mistakes."""
    from calibeat._compiled import numbers_of  # which imports this module

    if not isinstance(column.values, list):
        return column
    numbers = np.empty(len(column))
    return Column(numbers, column.missing) if numbers_of(column.values, numbers, booleans) else column


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


def check_shares(what: str, values: Any) -> tuple[float, float]:
    """The shares of the ones and of the zeros that a log kept, each in (0, 1]."""
    wanted = "two numbers in (0, 1], the shares of ones and of zeros that the log kept"
    if not isinstance(values, Sequence) or len(values) != 2:
        raise InvalidInput(f"{what} must be {wanted}, got {shown(values)}")
    ones, zeros = (_real(what, value, wanted) for value in values)
    if not (0.0 < ones <= 1.0 and 0.0 < zeros <= 1.0):
        raise InvalidInput(f"{what} must be {wanted}, got {shown(values)}")
    return ones, zeros


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
    column = read_column("labels", labels)
    check_lengths(labels=len(column), forecasts=length)
    known = list(range(K)) if classes is None else list(classes)
    if len(known) != K:
        raise InvalidInput(f"classes must be as many as the {K} columns, got {len(known)}")
    places = column.places({label: place for place, label in enumerate(known)})
    if (places < 0).any():
        row = int((places < 0).argmax())
        wanted = f"a column number from 0 to {K - 1}" if classes is None else "one of the classes"
        raise InvalidInput(f"label must be {wanted}, got {shown(column.value(row))} - at row {row}")
    return places
