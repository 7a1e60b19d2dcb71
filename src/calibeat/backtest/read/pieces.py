"""Rows that can be used, put together until there is enough for a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector

from .batch import CHUNK, FIRST_EVENTS

LEAST_EVENTS = max(CHUNK // 2, FIRST_EVENTS)  # in a chunk


@dataclass(eq=False)
class Piece:
    """Rows that can be used."""

    scores: Vector
    outcomes: Vector
    slots: Ints
    times: Ints | None
    arrivals: Ints | None  # outcome times
    others: Vector | None = None  # a column for each rival and each other score
    rows: Ints | None = None  # where they came from, if that is asked for
    files: Ints | None = None
    ids: Any = None

    def take(self, rows: Any) -> Piece:
        """Some of the rows."""
        columns: Any = (getattr(self, name) for name in _COLUMNS)
        taken: Any = [None if column is None else column[rows] for column in columns]
        return Piece(*taken)


_COLUMNS = tuple(column.name for column in fields(Piece))


def gathered(pieces: Iterable[Piece], least: int = LEAST_EVENTS) -> Iterator[Piece]:
    """Pieces put together until there is enough for a chunk."""
    waiting: list[Piece] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(len(one.scores) for one in waiting) >= least:
            yield joined(waiting)
            waiting = []
    if sum(len(one.scores) for one in waiting):
        yield joined(waiting)


def joined(pieces: list[Piece]) -> Piece:
    """One piece of many."""

    def column(name: str) -> Any:
        columns = [getattr(piece, name) for piece in pieces]
        return None if columns[0] is None else np.concatenate(columns)

    return Piece(*(column(name) for name in _COLUMNS))
