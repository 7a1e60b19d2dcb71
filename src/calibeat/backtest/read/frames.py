"""Columns by name from any data frame: pandas, polars (also lazy), Arrow, or a mapping of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibeat._util.extras import need
from calibeat.errors import InvalidInput

from .guess import check_column

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
