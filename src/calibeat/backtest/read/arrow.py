"""Columns from Arrow as numbers, times and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.times import FIRST, LAST, MISSING, OK, UNREADABLE, States, Times, read_dates
from calibeat._util.types import Ints
from calibeat.errors import InvalidInput

from .arrays import outcome_of
from .batch import Batch, Codes, Numbers


def batch_of(columns: dict[str, Any], name: str, rows: Ints, file: int = 0, *, percent: bool = False) -> Batch:
    """A batch from Arrow columns by role; `rows` are counted from 1, without the header."""
    return Batch(
        numbers(columns["score"], "score", percent=percent),
        outcomes(columns["outcome"]),
        lambda role, row: shown(columns[role][row]),
        lambda row: f"row {rows[row]:,} of {name}",
        rows,
        file,
        times(columns["time"], "time") if "time" in columns else None,
        times(columns["outcome time"], "outcome time") if "outcome time" in columns else None,
        codes(columns["key"]) if "key" in columns else None,
        flat(columns["id"], "id").to_pylist() if "id" in columns else None,
    )


def shown(value: Any) -> str:
    """An Arrow scalar as an error message shows it."""
    try:
        return f"{value.as_py()!r:.60}"
    except (OverflowError, ValueError):  # a moment that Python has no date for
        return f"{value.cast('string')!s:.60}"


def numbers(column: Any, role: str, *, percent: bool = False) -> Numbers:
    """A column as float64; with `percent` text may end in its sign."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _numbers_of_text(column, percent=percent)
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise InvalidInput(f"{role} column must hold numbers, got {kind}")
    values = _float64(pc.cast(column, pa.float64(), safe=False))
    return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))


def outcomes(column: Any) -> Numbers:
    """A column of 0 and 1, false and true, or such words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(column)
    if pa.types.is_boolean(column.type):
        return numbers(pc.cast(column, pa.uint8()), "outcome")
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return numbers(column, "outcome")
    encoded = column.dictionary_encode()
    meanings = [np.nan if (found := outcome_of(word)) is None else found for word in encoded.dictionary.to_pylist()]
    indices, missing = _indices(encoded)
    values = np.array([*meanings, np.nan])[indices]
    states = np.where(missing, MISSING, np.where(np.isnan(values), UNREADABLE, OK))
    return Numbers(values, states.astype(np.int8))


def times(column: Any, role: str) -> Times:
    """Dates, ISO 8601 text, or numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(column)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        microseconds = pa.timestamp("us", getattr(kind, "tz", None))
        return _dates(pc.cast(column, options=pc.CastOptions(microseconds, allow_time_truncate=True)))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        found = numbers(column, role)
        return Times(found.values, found.states, dated=False)
    as_numbers = _numbers_of_text(column)
    if not (as_numbers.states == UNREADABLE).any() and (as_numbers.states == OK).any():
        return Times(as_numbers.values, as_numbers.states, dated=False)
    for zone in (None, "UTC"):
        try:
            return _dates(pc.cast(column, pa.timestamp("us", zone)))
        except pa.ArrowInvalid:
            continue
    return read_dates(column.to_pylist())


def codes(column: Any) -> Codes:
    """Keys as indices into those of this batch."""
    encoded = _plain(flat(column, "key")).dictionary_encode()
    indices, missing = _indices(encoded)
    return Codes(np.where(missing, -1, indices), encoded.dictionary.to_pylist())


def flat(column: Any, role: str) -> Any:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise InvalidInput(f"{role} column must hold text or numbers, got {column.type}")
    return column


def _plain(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return pc.cast(column, column.type.value_type)
    return pc.cast(column, pa.string()) if str(column.type) == "string_view" else column


def _numbers_of_text(column: Any, *, percent: bool = False) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        values = _float64(pc.cast(column, pa.float64()))
    except pa.ArrowInvalid:
        texts = column.to_pylist()
        values, states = np.full(len(texts), np.nan), np.full(len(texts), UNREADABLE, dtype=np.int8)
        for row, text in enumerate(texts):
            if text is None or not text.strip():
                states[row] = MISSING
                continue
            try:
                values[row] = float(text.strip().removesuffix("%") if percent else text)
            except ValueError:
                continue
            states[row] = MISSING if np.isnan(values[row]) else OK
        return Numbers(values, states)
    states = np.where(np.isnan(values), MISSING, OK).astype(np.int8)
    return Numbers(values, states)


def _float64(column: Any) -> Any:
    """NaN where there is nothing; a copy, since Arrow's memory is not to be written."""
    return np.require(column.to_numpy(zero_copy_only=False), np.float64, ["C", "A", "W"])


def _dates(column: Any) -> Times:
    import pyarrow as pa

    missing = _is_null(column)
    whole: Ints = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    far = (whole < FIRST) | (whole > LAST)
    states = np.where(missing, MISSING, np.where(far, UNREADABLE, OK)).astype(np.int8)
    return Times(whole, states, dated=True, naive=column.type.tz is None)


def _indices(encoded: Any) -> tuple[Ints, States]:
    missing = _is_null(encoded.indices)
    return encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64), missing


def _is_null(column: Any) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)
