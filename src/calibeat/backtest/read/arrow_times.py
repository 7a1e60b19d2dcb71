"""Times in Arrow: dates, ISO 8601 text, text of a format that was given, numbers in text."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import numpy as np

from calibeat._util.times import FIRST, LAST, MISSING, OK, UNREADABLE, Times, moment, read_dates
from calibeat._util.types import Flags, Ints
from calibeat.backtest.options import Options

from .arrow_text import first_of, is_null, numbers_of_text

# What Arrow reads as a date. A zone ends it, or none does.
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?)?"
_FINER = r"(\.[0-9]{6})[0-9]+"  # nanoseconds are cut off
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_KINDS = ((_DATE + "$", None), (_DATE + _ZONE, "UTC"))
_LAST_OF_A_WRONG_DATE = 3  # Arrow takes February 31 for March 2 or 3: days up to this one are looked at again


def times_of_dates(column: Any) -> Times:
    """A column of Arrow's dates or timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = pa.timestamp("us", getattr(column.type, "tz", None))
    return _dates(pc.cast(column, options=pc.CastOptions(microseconds, allow_time_truncate=True)))


def times_of_text(column: Any, options: Options) -> Times:
    """A column of text. Where all of it is numbers, they are numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.time_format is not None:
        return _of_format(column, options.time_format)
    # Arrow takes 20 times as long to refuse a column as to read it: the first value tells which kind to try.
    first = first_of(column)
    for pattern, zone in _KINDS:
        if re.search(pattern, first):
            try:
                return _dates(pc.cast(column, pa.timestamp("us", zone)))
            except pa.ArrowInvalid:
                return _of_many_kinds(column)
    as_numbers = numbers_of_text(column, decimal=options.decimal)
    if not (as_numbers.states == UNREADABLE).any() and (as_numbers.states == OK).any():
        return Times(as_numbers.values, as_numbers.states, dated=False)
    return _of_many_kinds(column)


def _of_many_kinds(column: Any) -> Times:
    """Dates with a zone and dates without, each by Arrow; what is left one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = len(column)
    whole, naive = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    states, left = np.where(is_null(column), MISSING, OK).astype(np.int8), ~is_null(column)
    text = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), pattern=_FINER, replacement=r"\1")
    for pattern, zone in _KINDS:
        usual = pc.fill_null(pc.match_substring_regex(text, pattern=pattern), fill_value=False)
        try:
            dates = pc.cast(pc.if_else(usual, text, pa.scalar(None, text.type)), pa.timestamp("us", zone))
        except pa.ArrowInvalid:  # a day that no month has, somewhere
            continue
        rows = usual.to_numpy(zero_copy_only=False)
        whole[rows] = _microseconds(dates)[rows]
        naive[rows], left = zone is None, left & ~rows
    rest = read_dates(_listed(column, left))
    whole[left], naive[left], states[left] = rest.values, rest.naive, rest.states
    return Times(whole, states, dated=True, naive=naive)


def _of_format(column: Any, form: str) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    missing = is_null(pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text))
    found = pc.strptime(text, format=form, unit="us", error_is_null=True)
    days = pc.fill_null(pc.day(found), 0).to_numpy(zero_copy_only=False)
    zoned = found.type.tz is not None
    whole, naive = _microseconds(found), np.full(len(text), not zoned)
    states = np.where(missing, MISSING, OK).astype(np.int8)
    again = ~missing & (days <= _LAST_OF_A_WRONG_DATE)  # 0: Arrow could not read it
    by_text: dict[str, tuple[int, bool] | None] = {}
    for row, value in zip(np.flatnonzero(again).tolist(), _listed(text, again), strict=True):
        if value not in by_text:
            by_text[value] = _moment(value, form)
        if (read := by_text[value]) is None:
            states[row] = UNREADABLE
        else:
            whole[row], naive[row] = read
    return Times(whole, states, dated=True, naive=naive)


def _moment(text: str, form: str) -> tuple[int, bool] | None:
    try:
        return moment(datetime.strptime(text, form))  # noqa: DTZ007 - `moment` tells whether it has a zone
    except ValueError:
        return None


def _listed(column: Any, rows: Flags) -> list[Any]:
    import pyarrow as pa

    return column.filter(pa.array(rows)).to_pylist()


def _dates(column: Any) -> Times:
    whole = _microseconds(column)
    far = (whole < FIRST) | (whole > LAST)
    states = np.where(is_null(column), MISSING, np.where(far, UNREADABLE, OK)).astype(np.int8)
    return Times(whole, states, dated=True, naive=column.type.tz is None)


def _microseconds(column: Any) -> Ints:
    """0 where there is nothing; a copy, since Arrow's memory is not to be written."""
    import pyarrow as pa

    whole = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.require(whole, np.int64, ["C", "A", "W"])
