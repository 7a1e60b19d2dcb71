"""Columns from Arrow as numbers, outcomes and keys. Arrow's kernels do the work; Python sees only what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from calibeat._util.times import EARLIEST, LATEST, MISSING, OK, UNREADABLE, States, Times, moment, read_dates
from calibeat._util.types import Flags, Ints
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .guess import Columns, is_other
from .rows import Codes, LogBatch, Numbers, number_of, outcome_of

if TYPE_CHECKING:
    from .classes import Classes

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def plain(column: Any) -> Any:
    """A column without a dictionary, and text of the usual kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.cast(column, pa.string()) if str(column.type) == "string_view" else column


def first_of(column: Any) -> str:
    """The first text that is there, without spaces around it; nothing if there is none."""
    valid = column.drop_null()
    return str(valid[0].as_py()).strip() if len(valid) else ""


def numbers_of_text(column: Any, *, decimal: str = ".", percent: bool = False) -> Numbers:
    """Text as float64. What Arrow refuses is looked at again: spaces, a percent sign, words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column if decimal == "." else pc.replace_substring(column, pattern=decimal, replacement=".")
    values = None
    if re.match(NUMBER, first_of(text)):  # Arrow takes long to refuse a column
        with suppress(pa.ArrowInvalid):
            values = float64(pc.cast(text, pa.float64()))
    if values is None:
        return _one_by_one_where_needed(column, text, decimal=decimal, percent=percent)
    return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))


def _one_by_one_where_needed(column: Any, text: Any, *, decimal: str, percent: bool) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    if percent:
        text = pc.replace_substring_regex(text, pattern=r"\s*%$", replacement="")
    usual = pc.fill_null(pc.match_substring_regex(text, pattern=NUMBER), fill_value=False)
    values = float64(pc.cast(pc.if_else(usual, text, pa.scalar(None, text.type)), pa.float64()))
    states = np.where(np.isnan(values), MISSING, OK).astype(np.int8)
    empty = pc.equal(pc.utf8_length(text), 0)
    rest = pc.and_(pc.invert(usual), pc.invert(pc.fill_null(empty, fill_value=True)))
    odd = np.flatnonzero(rest.to_numpy(zero_copy_only=False))
    for row, word in zip(odd.tolist(), column.take(pa.array(odd)).to_pylist(), strict=True):
        found = number_of(word, decimal=decimal, percent=percent)
        if found is not None:
            values[row], states[row] = found, OK
        elif word.strip().lower() not in {"nan", "+nan", "-nan"}:
            states[row] = UNREADABLE
    return Numbers(values, states)


def float64(column: Any) -> Any:
    """NaN where there is nothing; a copy, since Arrow's memory is not to be written."""
    return np.require(column.to_numpy(zero_copy_only=False), np.float64, ["C", "A", "W"])


def indices_of(encoded: Any) -> tuple[Ints, States]:
    """The indices of a column with a dictionary, and which of them are missing."""
    missing = is_null(encoded.indices)
    return encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64), missing


def is_null(column: Any) -> Any:
    """Which values are missing."""
    return column.is_null().to_numpy(zero_copy_only=False)


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
    far = (whole < EARLIEST) | (whole > LATEST)
    states = np.where(is_null(column), MISSING, np.where(far, UNREADABLE, OK)).astype(np.int8)
    return Times(whole, states, dated=True, naive=column.type.tz is None)


def _microseconds(column: Any) -> Ints:
    """0 where there is nothing; a copy, since Arrow's memory is not to be written."""
    import pyarrow as pa

    whole = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.require(whole, np.int64, ["C", "A", "W"])


def batch_of(part: Any, columns: Columns, name: str, rows: Ints, file: int, options: Options) -> LogBatch:
    """A batch of an Arrow record batch; `rows` are counted from 1, without the header."""
    found = {role: part.column(column["name"]) for role, column in columns.chosen.items()}

    def where(row: int) -> str:
        return f"row {rows[row]:,} of {name}"

    def show(role: str, row: int) -> str:
        if not role.isdigit() or columns.classes is None:
            return shown(found[role][row])
        given = [part.column(each) for each in columns.classes.columns]
        if len(given) > 1:
            return shown(given[int(role)][row])
        return f"{given[0][row].as_py()[int(role)]!r:.60}"

    if columns.classes is None:
        scores, told = numbers(found["score"], "score", options), outcomes(found["outcome"], options)
    else:
        scores = class_scores(part, columns.classes, where, options)
        columns.classes.begin(scores.values.shape[1])
        told = columns.classes.labels(codes(found["label"]))
    return LogBatch(
        scores,
        told,
        show,
        where,
        rows,
        file,
        times(found["time"], "time", options) if "time" in found else None,
        times(found["outcome time"], "outcome time", options) if "outcome time" in found else None,
        codes(found["key"]) if "key" in found else None,
        flat(found["id"], "id").to_pylist() if "id" in found else None,
        {role: numbers(column, role, options) for role, column in found.items() if is_other(role)},
    )


def class_scores(part: Any, classes: Classes, where: Callable[[int], str], options: Options) -> Numbers:
    """The scores of many classes as a matrix: several columns, or one column of lists of as many numbers each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(classes.columns) > 1:
        read = [numbers(part.column(name), "score", options) for name in classes.columns]
        return Numbers(np.stack([one.values for one in read], axis=1), np.stack([one.states for one in read], axis=1))
    column = part.column(classes.columns[0])
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InvalidInput(
            "scores must be several columns, one for each class, or one column of lists, got "
            f"{classes.columns[0]!r} of {kind}"
        )
    sizes = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    there = sizes >= 0
    K = classes.count or int(sizes[there.argmax()] if there.any() else 0)
    odd = there & (sizes != K)
    if odd.any():
        row = int(odd.argmax())
        raise InvalidInput(f"scores must be {K} numbers, as in the rows before, got {sizes[row]} - at {where(row)}")
    values = np.full((len(sizes), K), np.nan)
    states = np.full(values.shape, MISSING, dtype=np.int8)
    inner = numbers(pc.list_flatten(column), "score", options)
    values[there] = inner.values.reshape(int(there.sum()), K)
    states[there] = inner.states.reshape(int(there.sum()), K)
    return Numbers(values, states)


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
