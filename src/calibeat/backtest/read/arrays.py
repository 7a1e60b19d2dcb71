"""Columns from Python: NumPy arrays and lists, and the series of pandas, polars and Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths
from calibeat._util.columns import read_column
from calibeat._util.extras import need
from calibeat._util.times import MISSING, OK, UNREADABLE, Times, is_missing, read_dates, read_times
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .batch import CHUNK, Batch, Codes, Numbers, number_of, outcome_of
from .guess import check_column

NEEDED = ("scores", "outcomes")
ARGUMENTS = {"score": "scores", "outcome": "outcomes", "key": "keys", "time": "times", "outcome time": "outcome_times"}
Column = npt.NDArray[Any]


def batches(
    scores: Any,
    outcomes: Any,
    keys: Any = None,
    times: Any = None,
    outcome_times: Any = None,
    others: Mapping[str, Any] | None = None,
    *,
    options: Options,
) -> Iterator[Batch]:
    """The columns, checked for their lengths, in batches. `others` are by role: forecasts of rivals, other scores."""
    given = {"scores": scores, "outcomes": outcomes, "keys": keys, "times": times, "outcome_times": outcome_times}
    given |= others or {}
    read = {name: read_column(name, values) for name, values in given.items() if values is not None or name in NEEDED}
    columns = {name: column for name, (column, _) in read.items()}
    zoned = {name: zone for name, (_, zone) in read.items()}
    check_lengths(**{name: len(column) for name, column in columns.items()})
    percent = options.score_kind == "percent"

    def number(value: Any) -> float | None:
        return number_of(value, decimal=options.decimal, percent=percent)

    def batch(at: int) -> Batch:
        part = {name: column[at : at + CHUNK] for name, column in columns.items()}

        def show(role: str, row: int) -> str:
            value = part[ARGUMENTS.get(role, role)][row]
            if isinstance(value, np.datetime64):  # which Python may have no date for
                return str(value)
            return repr(value.item() if isinstance(value, np.generic) else value)[:60]

        def moments(name: str) -> Any:
            return times_by(part[name], options, zoned=zoned[name]) if name in part else None

        return Batch(
            numbers_by(part["scores"], number),
            _outcomes(part["outcomes"], options),
            show,
            lambda row: f"row {at + row}",
            np.arange(at, at + len(part["scores"])),
            0,
            moments("times"),
            moments("outcome_times"),
            codes(part["keys"], at) if "keys" in part else None,
            None,
            {role: numbers_by(part[role], number) for role in others or {}},
        )

    return (batch(at) for at in range(0, len(columns["scores"]), CHUNK))


def numbers_by(column: Column, read: Callable[[Any], float | None]) -> Numbers:
    """A column as float64; `read` is for what is no number yet."""
    if column.dtype.kind in "iuf":
        values = column.astype(np.float64)
        return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))
    return _one_by_one(column, read)


def _outcomes(column: Column, options: Options) -> Numbers:
    def read(value: Any) -> float | None:
        return outcome_of(value, options.positive, options.decimal)

    if options.positive is not None:
        return _one_by_one(column, read)
    return numbers_by(column.astype(np.float64) if column.dtype.kind == "b" else column, read)


def times_by(column: Column, options: Options, *, zoned: bool) -> Times:
    """A column of times, by the format of the options if there is one."""
    if options.time_format is None or column.dtype.kind in "Miuf":
        return read_times(column, zoned=zoned)
    return read_dates([_moment(value, options.time_format) for value in column.tolist()])


def _moment(value: Any, form: str) -> Any:
    """Text of the format as a moment; anything else as it is."""
    if not isinstance(value, str) or is_missing(value):
        return value
    try:
        return datetime.strptime(value.strip(), form)  # noqa: DTZ007 - it may have a zone or none
    except ValueError:
        return "not a time of the format"


def _one_by_one(column: Column, read: Callable[[Any], float | None]) -> Numbers:
    values, states = np.full(len(column), np.nan), np.full(len(column), UNREADABLE, dtype=np.int8)
    for row, value in enumerate(column):
        if is_missing(value):
            states[row] = MISSING
        elif (found := read(value)) is not None:
            values[row], states[row] = found, OK
    return Numbers(values, states)


def codes(column: Column, first: int, role: str = "key") -> Codes:
    """Keys or labels as indices into those of this part."""
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
                got = f"got {value!r:.60} - at row {first + row}"
                raise InvalidInput(f"{role} must be text or a number, {got}") from None
    return Codes(found, list(seen))


_PLAIN = (list, tuple)


def is_frame(values: Any) -> bool:
    """Whether this is a table of named columns, and no column.

    >>> import numpy as np, polars
    >>> is_frame(polars.DataFrame({"p": [0.5]})), is_frame({"p": [0.5]}), is_frame(np.array([0.5])), is_frame([0.5])
    (True, True, False, False)
    """
    if isinstance(values, Mapping):
        return True
    kind = type(values)  # a lazy frame would warn if its own columns were asked for
    return not isinstance(values, _PLAIN) and (hasattr(kind, "columns") or hasattr(kind, "column_names"))


def columns_of(frame: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a frame by role, from their names by role."""
    if isinstance(frame, Mapping):
        header = [str(name) for name in frame]
        _check(names, header)
        return {role: frame[name] for role, name in names.items()}
    nw = need("narwhals", extra="frames", what="data frames")
    try:
        table = nw.from_native(frame)
    except TypeError:
        raise InvalidInput(f"scores must be a column or a data frame, got {type(frame).__name__}") from None
    _check(names, [str(name) for name in table.collect_schema().names()])
    table = table.select(*dict.fromkeys(names.values()))
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return {role: table[name].to_native() for role, name in names.items()}


def _check(names: Mapping[str, str], header: list[str]) -> None:
    for role, name in names.items():
        check_column(role, name, header, "the frame")
