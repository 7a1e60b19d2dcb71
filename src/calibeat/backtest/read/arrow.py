"""Columns from Arrow as numbers, outcomes and keys. Arrow's kernels do the work; Python sees only what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.times import MISSING, OK, UNREADABLE, Times
from calibeat._util.types import Ints
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .arrow_text import float64, indices_of, is_text, numbers_of_text, plain
from .arrow_times import times_of_dates, times_of_text
from .batch import Batch, Codes, Numbers
from .guess import is_other
from .values import outcome_of


def batch_of(columns: dict[str, Any], name: str, rows: Ints, file: int, options: Options) -> Batch:
    """A batch from Arrow columns by role; `rows` are counted from 1, without the header."""
    return Batch(
        numbers(columns["score"], "score", options),
        outcomes(columns["outcome"], options),
        lambda role, row: shown(columns[role][row]),
        lambda row: f"row {rows[row]:,} of {name}",
        rows,
        file,
        times(columns["time"], "time", options) if "time" in columns else None,
        times(columns["outcome time"], "outcome time", options) if "outcome time" in columns else None,
        codes(columns["key"]) if "key" in columns else None,
        flat(columns["id"], "id").to_pylist() if "id" in columns else None,
        {role: numbers(column, role, options) for role, column in columns.items() if is_other(role)},
    )


def shown(value: Any) -> str:
    """An Arrow scalar as an error message shows it."""
    try:
        return f"{value.as_py()!r:.60}"
    except (OverflowError, ValueError):  # a moment that Python has no date for
        return f"{value.cast('string')!s:.60}"


def numbers(column: Any, role: str, options: Options) -> Numbers:
    """A column as float64; where scores are percent, text may end in the sign."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    kind = column.type
    if is_text(kind):
        percent = options.score_kind == "percent" and not role.endswith("time")
        return numbers_of_text(column, decimal=options.decimal, percent=percent)
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise InvalidInput(f"{role} column must hold numbers, got {kind}")
    values = float64(pc.cast(column, pa.float64(), safe=False))
    return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))


def outcomes(column: Any, options: Options) -> Numbers:
    """A column of 0 and 1 (or -1 and 1), false and true, or words; or whatever holds the positive value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    if options.positive is None:
        if pa.types.is_boolean(column.type):
            return numbers(pc.cast(column, pa.uint8()), "outcome", options)
        if not is_text(column.type):
            return numbers(column, "outcome", options)
    encoded = flat(column, "outcome").dictionary_encode()
    found = [outcome_of(word, options.positive, options.decimal) for word in encoded.dictionary.to_pylist()]
    indices, missing = indices_of(encoded)
    values = np.array([*(np.nan if value is None else value for value in found), np.nan])[indices]
    if is_text(column.type):
        blank = [not word.strip() for word in encoded.dictionary.to_pylist()]
        missing = missing | np.array([*blank, False])[indices]
        values[missing] = np.nan
    states = np.where(missing, MISSING, np.where(np.isnan(values), UNREADABLE, OK))
    return Numbers(values, states.astype(np.int8))


def times(column: Any, role: str, options: Options) -> Times:
    """Dates, text (ISO 8601 or of the format that was given), or numbers."""
    import pyarrow as pa

    column = plain(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return times_of_dates(column)
    if is_text(column.type):
        return times_of_text(column, options)
    found = numbers(column, role, options)
    return Times(found.values, found.states, dated=False)


def codes(column: Any) -> Codes:
    """Keys as indices into those of this batch; text of nothing but spaces is no key."""
    encoded = plain(flat(column, "key")).dictionary_encode()
    indices, missing = indices_of(encoded)
    names = encoded.dictionary.to_pylist()
    if is_text(encoded.dictionary.type):
        missing = missing | np.array([*(not name.strip() for name in names), False])[indices]
    return Codes(np.where(missing, -1, indices), names)


def flat(column: Any, role: str) -> Any:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise InvalidInput(f"{role} column must hold text or numbers, got {column.type}")
    return column
