"""Folders that name a column and its value, as Hive, Spark and pyarrow write them: ``country=DE/part-0.parquet``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from calibeat._util.types import Ints

NOTHING = "__HIVE_DEFAULT_PARTITION__"

Part = tuple[Any, Ints]


def partitions_of(path: str) -> dict[str, str | None]:
    """The columns that the folders of a file name, with their values; None where the folder stands for no value.

    >>> partitions_of("log/country=DE/day=2024-01-01/part-0.parquet"), partitions_of("log/a%20b=x%2Fy/p.csv")
    ({'country': 'DE', 'day': '2024-01-01'}, {'a b': 'x/y'})
    """
    pairs = (folder.partition("=") for folder in Path(path).parts[:-1])
    return {
        unquote(name): None if value == NOTHING else unquote(value) for name, equal, value in pairs if name and equal
    }


def with_partitions(parts: Iterator[Part], values: dict[str, str | None], wanted: set[str]) -> Iterator[Part]:
    """The parts with a column more for each partition that is wanted, once the header of the file is known."""
    import pyarrow as pa

    for part, rows in parts:
        for name in sorted(wanted):
            part = part.append_column(name, pa.repeat(pa.scalar(values[name], pa.string()), part.num_rows))  # noqa: PLW2901
        yield part, rows
