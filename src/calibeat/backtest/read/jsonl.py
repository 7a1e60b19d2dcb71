"""JSON Lines: an object a line. Arrow parses blocks of lines; a block that it refuses is parsed line by line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calibeat.errors import InvalidInput

from .rows import CHUNK

BLOCK = 8 << 20  # bytes that are parsed at once
_LOOKED_AT = 1000  # lines from which the columns and their kinds are known

OnBadRow = Callable[[str], None]
Pick = Callable[[list[str], str], list[str]]
Row = dict[str, Any]


def looks_like_json(head: bytes) -> bool:
    """Whether a file begins with a JSON object, and is no CSV.

    >>> looks_like_json(b' {"p": 0.5}'), looks_like_json(b"p,y"), looks_like_json(b"{a},b")
    (True, False, False)
    """
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b'{"', b"{ ", b"{}"))


def read_json_lines(source: Any, name: str, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Any]:
    """Record batches of the columns that `pick` chooses, and the numbers of their rows from 1 (blank lines are none).

    A column of an object within an object has both names: ``prediction.score``. A line that is no object is handed to
    `on_bad_row` if there is one, and ends the run if not.
    """
    reader: _Reader | None = None
    first = 0
    for block in _blocks(source, name):
        if reader is None:
            rows = [row for line in block.splitlines()[:_LOOKED_AT] if (row := _flat_row(line)) is not None]
            if not rows:
                _check_beginning(block, name)
            header = list(dict.fromkeys(column for row in rows for column in row))
            reader = _Reader(pick(header, name), name, on_bad_row, _kinds(rows))
        part, numbers, lines = reader.parse(block, first)
        first += lines
        for at in range(0, part.num_rows, CHUNK):
            yield part.slice(at, CHUNK), numbers[at : at + CHUNK]
        if reader.broken is not None:  # what comes before the broken row may be wrong too, and is then named
            raise InvalidInput(reader.broken)


def _check_beginning(block: bytes, name: str) -> None:
    line = next((line for line in block.splitlines() if line.strip()), b"")
    got = f"got {line.decode(errors='replace')[:60]!r}"
    if line.lstrip().startswith(b"["):
        raise InvalidInput(f"{name} must hold an object a line (JSON Lines), {got}: convert it with jq -c '.[]'")
    raise InvalidInput(f"{name} must hold an object a line (JSON Lines), {got} - at row 1 of {name}")


def _blocks(source: Any, name: str) -> Iterator[bytes]:
    """The bytes in blocks that end where a line does."""
    left = b""
    while part := source.read(BLOCK):
        end = part.rfind(b"\n") + 1
        if end:
            yield left + part[:end]
            left = part[end:]
        else:
            left += part
            if len(left) > 4 * BLOCK:
                raise InvalidInput(f"{name} must hold an object a line, got a line of more than {4 * BLOCK:,} bytes")
    if left.strip():
        yield left


class _Reader:
    """The columns to read, and the kind that each had when it was last looked at."""

    def __init__(self, columns: list[str], name: str, on_bad_row: OnBadRow | None, kinds: dict[str, Any]) -> None:
        self._columns, self._name, self._on_bad_row = columns, name, on_bad_row
        self._kinds = kinds
        self.broken: str | None = None  # what is wrong with the row that ends the run

    def parse(self, block: bytes, first: int) -> tuple[Any, Any, int]:
        """A record batch, the numbers of its rows, and how many rows the block has. `first` rows came before it."""
        import pyarrow as pa

        table = None
        # A block that begins with another value than an object, such as null, would end the process in Arrow.
        if re.match(rb"\s*\{", block) and not any("." in column for column in self._columns):
            try:
                table = self._by_arrow(block)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                table = None
        if table is None:
            return self._line_by_line(block, first)
        return table, np.arange(first + 1, first + table.num_rows + 1), table.num_rows

    def _by_arrow(self, block: bytes) -> Any:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        schema = pa.schema([(column, self._kinds.get(column, pa.string())) for column in self._columns])
        table = arrow_json.read_json(
            io.BytesIO(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        return table.select(self._columns).combine_chunks().to_batches()[0] if table.num_rows else None

    def _line_by_line(self, block: bytes, first: int) -> tuple[Any, Any, int]:
        import pyarrow as pa

        rows: list[Row] = []
        numbers: list[int] = []
        number = first
        for line in block.splitlines():
            if not line.strip():
                continue
            number += 1
            row = _flat_row(line)
            if row is not None:
                rows.append(row)
                numbers.append(number)
                continue
            where = f"row {number:,} of {self._name}"
            if self._on_bad_row is None:
                got = f"{line.decode(errors='replace')[:60]!r}"
                self.broken = f"row must be a JSON object with each name once, got {got} - at {where}"
                break
            self._on_bad_row(where)
        self._kinds |= _kinds(rows)
        part = pa.record_batch({column: _column([row.get(column) for row in rows]) for column in self._columns})
        return part, np.array(numbers, dtype=np.int64), number - first


def _flat_row(line: bytes) -> Row | None:
    """The object of a line with those within it laid flat; None if it is none, or has a name twice.

    >>> _flat_row(b'{"a": {"b": 1}, "c": [2]}'), _flat_row(b"[1]")
    ({'a.b': 1, 'c': '[2]'}, None)
    """
    try:
        found = json.loads(line, object_pairs_hook=_with_each_name_once)
        return dict(_laid_flat("", found)) if isinstance(found, dict) else None
    except (ValueError, RecursionError):  # no JSON, a name twice, or nested too deeply
        return None


def _with_each_name_once(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _laid_flat(before: str, found: Row) -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _laid_flat(f"{before}{name}.", value)
        else:
            yield before + name, json.dumps(value) if isinstance(value, list) else value


def _kinds(rows: list[Row]) -> dict[str, Any]:
    """The Arrow type of each column, where its values are of one kind."""
    found: dict[str, set[type]] = {}
    for row in rows:
        for column, value in row.items():
            if value is not None:
                found.setdefault(column, set()).add(type(value))
    return {column: _type_of(kinds) for column, kinds in found.items()}


def _type_of(kinds: set[type]) -> Any:
    import pyarrow as pa

    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _column(values: list[Any]) -> Any:
    """The values as an Arrow array; as text where they are of several kinds."""
    import pyarrow as pa

    kind = _type_of({type(value) for value in values if value is not None})
    if kind != pa.string():
        try:
            return pa.array(values, kind)
        except (OverflowError, pa.ArrowInvalid):  # a whole number beyond 64 bits
            pass
    return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values], pa.string())
