"""Columns from Python: NumPy arrays and lists, and the series of pandas, polars and Arrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths
from calibeat._util.columns import read_column
from calibeat._util.times import MISSING, OK, UNREADABLE, is_missing, read_times
from calibeat.errors import InvalidInput

from .batch import CHUNK, Batch, Codes, Numbers

WORDS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0, "f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}
NEEDED = ("scores", "outcomes")
ARGUMENTS = {"score": "scores", "outcome": "outcomes", "key": "keys", "time": "times", "outcome time": "outcome_times"}
Column = npt.NDArray[Any]


def batches(
    scores: Any, outcomes: Any, keys: Any = None, times: Any = None, outcome_times: Any = None, *, percent: bool = False
) -> Iterator[Batch]:
    """The columns, checked for their lengths, in batches."""
    given = {"scores": scores, "outcomes": outcomes, "keys": keys, "times": times, "outcome_times": outcome_times}
    read = {name: read_column(name, values) for name, values in given.items() if values is not None or name in NEEDED}
    columns = {name: column for name, (column, _) in read.items()}
    zoned = {name: zone for name, (_, zone) in read.items()}
    check_lengths(**{name: len(column) for name, column in columns.items()})

    def batch(at: int) -> Batch:
        part = {name: column[at : at + CHUNK] for name, column in columns.items()}

        def show(role: str, row: int) -> str:
            value = part[ARGUMENTS[role]][row]
            if isinstance(value, np.datetime64):  # which Python may have no date for
                return str(value)
            return repr(value.item() if isinstance(value, np.generic) else value)[:60]

        def moments(name: str) -> Any:
            return read_times(part[name], zoned=zoned[name]) if name in part else None

        return Batch(
            numbers(part["scores"], percent=percent),
            _outcomes(part["outcomes"]),
            show,
            lambda row: f"row {at + row}",
            np.arange(at, at + len(part["scores"])),
            0,
            moments("times"),
            moments("outcome_times"),
            codes(part["keys"], at) if "keys" in part else None,
        )

    return (batch(at) for at in range(0, len(columns["scores"]), CHUNK))


def numbers(column: Column, *, percent: bool = False) -> Numbers:
    if column.dtype.kind in "iuf":
        values = column.astype(np.float64)
        return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))
    return _one_by_one(column, _percent if percent else _number)


def _outcomes(column: Column) -> Numbers:
    if column.dtype.kind == "b":
        column = column.astype(np.float64)
    return numbers(column) if column.dtype.kind in "iuf" else _one_by_one(column, outcome_of)


def _one_by_one(column: Column, read: Callable[[Any], float | None]) -> Numbers:
    values, states = np.full(len(column), np.nan), np.full(len(column), UNREADABLE, dtype=np.int8)
    for row, value in enumerate(column):
        if is_missing(value):
            states[row] = MISSING
        elif (found := read(value)) is not None:
            values[row], states[row] = found, OK
    return Numbers(values, states)


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _percent(value: Any) -> float | None:
    return _number(value.strip().removesuffix("%") if isinstance(value, str) else value)


def outcome_of(value: Any) -> float | None:
    """A number, a boolean, or a word such as yes and no; None for anything else."""
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS[word] if word in WORDS else _number(word)
    return float(value) if isinstance(value, (bool, np.bool_)) else _number(value)


def codes(column: Column, first: int, role: str = "key") -> Codes:
    if column.dtype.kind in "iubUS":
        names, indices = np.unique(column, return_inverse=True)
        return Codes(indices.astype(np.int64), names.tolist())
    seen: dict[Any, int] = {}
    found = np.full(len(column), -1, dtype=np.int64)
    for row, value in enumerate(column.tolist()):
        if not is_missing(value):
            try:
                found[row] = seen.setdefault(value, len(seen))
            except TypeError:
                raise InvalidInput(
                    f"{role} must be text or a number, got {value!r:.60} - at row {first + row}"
                ) from None
    return Codes(found, list(seen))
