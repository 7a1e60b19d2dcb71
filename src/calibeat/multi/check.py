"""Checks of what comes in: a matrix of scores, labels, classes. The first bad place is named by row and column."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_whole, shown
from calibeat._util.columns import to_array, to_matrix
from calibeat._util.types import Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.core.jit import for_cost
from calibeat.errors import InvalidInput

from . import loops

MOST_CLASSES = 1_000_000

Label = str | int | float | bool


class Classes:
    """The labels in the order of the columns, and where each stands."""

    def __init__(self, classes: Any) -> None:
        if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
            self.given: int | list[Label] = check_whole("classes", classes, 2, MOST_CLASSES)
            self.labels: tuple[Label, ...] = tuple(range(self.given))
        else:
            self.labels = _labels(classes)
            self.given = list(self.labels)
        self.count = len(self.labels)
        self.index: dict[Hashable, int] = {label: column for column, label in enumerate(self.labels)}

    def column(self, label: Any) -> int:
        """The column of one label."""
        found = self.index.get(label, -1) if isinstance(label, Hashable) else -1
        if found < 0:
            raise InvalidInput(f"label must be one of {self.words()}, got {shown(label)}{self._hint(label)}")
        return found

    def columns(self, labels: Any, length: int, needed: npt.NDArray[np.bool_] | None = None) -> Ints:
        """The columns of many labels; where none is needed, 0."""
        values = to_array(labels)
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InvalidInput(
                f"labels must be a one-dimensional array, got a ragged {type(labels).__name__}"
            ) from error
        if array.ndim != 1:
            raise InvalidInput(f"labels must be a one-dimensional array, got shape {array.shape}")
        if len(array) != length:
            raise InvalidInput(f"arrays must have the same length, got scores {length}, labels {len(array)}")
        if isinstance(self.given, int) and array.dtype.kind in "iu" and needed is None:
            bad = (array < 0) | (array >= self.count)
            if bad.any():
                self._refuse(array[bad.argmax()].item(), int(bad.argmax()))
            return np.array(array, dtype=np.int64)
        # A list keeps the type of each element, which NumPy would change: [1, "a"] is no list of strings.
        items = list(values) if isinstance(values, (list, tuple)) else array.tolist()
        columns = np.zeros(length, dtype=np.int64)
        for row, label in enumerate(items):
            if needed is None or needed[row]:
                found = self.index.get(label, -1) if isinstance(label, Hashable) else -1
                if found < 0:
                    self._refuse(label, row)
                columns[row] = found
        return columns

    def words(self) -> str:
        """The classes as a message shows them."""
        if isinstance(self.given, int):
            return f"the column numbers 0 to {self.count - 1}"
        shown = ", ".join(map(repr, self.labels[:5]))
        return f"the {self.count} classes {shown}{', ...' if self.count > 5 else ''}"

    def name(self, column: int) -> str:
        """A column as a message shows it."""
        return f"column {column}" if isinstance(self.given, int) else f"column {column} ({self.labels[column]!r:.40})"

    def _refuse(self, label: Any, row: int) -> None:
        raise InvalidInput(f"label must be one of {self.words()}, got {shown(label)} - at row {row}{self._hint(label)}")

    def _hint(self, label: Any) -> str:
        strings = [known for known in self.labels if isinstance(known, str)]
        return did_you_mean(label, strings, 0.6) if isinstance(label, str) and strings else ""


def _labels(classes: Any) -> tuple[Label, ...]:
    values = to_array(classes)
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not isinstance(values, Iterable):
        raise InvalidInput(
            f"classes must be a number of classes, or their labels in the order of the columns, got {shown(classes)}"
        )
    labels = tuple(label.item() if isinstance(label, np.generic) else label for label in values)
    for column, label in enumerate(labels):
        if not isinstance(label, (str, int, float)) or (isinstance(label, float) and not math.isfinite(label)):
            raise InvalidInput(f"class must be a string or a number, got {shown(label)} - at column {column}")
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise InvalidInput(f"classes must be at least 2 and at most {MOST_CLASSES}, got {len(labels)}")
    seen: set[Label] = set()
    for column, label in enumerate(labels):
        if label in seen:
            raise InvalidInput(f"classes must be different from one another, got {label!r} again - at column {column}")
        seen.add(label)
    return labels


def check_scores(scores: Any, classes: Classes, logits: bool, *, one: bool = False) -> Vector:
    """n x K probabilities, each row of sum 1, from scores or logits; a fresh array. `one`: K numbers of one event."""
    K = classes.count
    values = scores if one else to_matrix(scores)
    try:
        array = np.asarray(to_array(values) if one else values)
    except ValueError as error:
        raise InvalidInput(f"scores must be {_shape(K, one)}, got a ragged {type(scores).__name__}") from error
    if array.ndim != (1 if one else 2):
        raise InvalidInput(f"scores must be {_shape(K, one)}, got shape {array.shape}")
    if array.shape[-1] != K:
        many = "numbers" if one else "columns"
        raise InvalidInput(f"scores must have {K} {many}, one for each class, got {array.shape[-1]}")
    if array.dtype.kind not in "iuf" or isinstance(values, (list, tuple)):
        array = _numbers(array, values, classes, one)
    matrix = np.array(array, dtype=np.float64, order="C")
    if len(matrix) == 0:
        raise InvalidInput("arrays must not be empty, got length 0 for scores")
    flat = matrix.reshape(-1)
    wrong, row, column = for_cost(loops.ready, 0.3e-6 * flat.size)(K, flat, 1 if logits else 0)
    if wrong:
        given = float(array[column]) if one else float(array[row, column])
        event = array if one else array[row]
        _refuse(wrong, given, event, classes.name(column), "" if one else f"row {row}")
    return matrix


def _shape(K: int, one: bool) -> str:
    return f"{K} numbers, one for each class" if one else f"a matrix of {K} columns, one for each class"


def _numbers(array: npt.NDArray[Any], values: Any, classes: Classes, one: bool) -> Vector:
    """Elements of a list or of an array of objects, looked at one by one: NumPy would make numbers of mistakes."""
    if array.dtype.kind not in "iufO" and not isinstance(values, (list, tuple)):
        raise InvalidInput(f"score must be a number, got an array of {array.dtype}")
    rows: Sequence[Any] = [values] if one else values
    for row, event in enumerate(rows):
        for column, value in enumerate(event):
            if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
                place = classes.name(column) if one else f"row {row}, {classes.name(column)}"
                raise InvalidInput(f"score must be a number, got {type(value).__name__} {shown(value)} - at {place}")
    return np.asarray(array, dtype=np.float64)


def _refuse(wrong: int, given: float, event: npt.NDArray[Any], column: str, row: str) -> None:
    place = f"{row}, {column}" if row else column
    if wrong == loops.NOT_A_NUMBER:
        raise InvalidInput(f"score must be a finite number, got {given!r} - at {place}")
    if wrong == loops.NEGATIVE:
        raise InvalidInput(f"score must be 0 or more, got {given!r} - at {place} - logits want logits=True")
    got = math.fsum(event.tolist())
    where = f" - at {row}" if row else ""
    raise InvalidInput(f"scores of an event must sum to 1 within {loops.TOLERANCE:g}, got {got:.9g}{where}")
