"""Text in Arrow as numbers, by Arrow's kernels; and what every reader of an Arrow column needs."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from calibeat._util.times import MISSING, OK, UNREADABLE, States
from calibeat._util.types import Ints

from .batch import Numbers
from .values import number_of

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
