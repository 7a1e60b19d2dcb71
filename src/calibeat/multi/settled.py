"""Which label each event has learnt, so that a repeat changes nothing and a contradiction is noticed."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from calibeat._util.types import Ints
from calibeat.errors import InvalidInput

PENDING = -1


class Settled:
    """The column of the label of every event; `PENDING` where none has come."""

    def __init__(self) -> None:
        self._columns = array("i")

    def get(self, event: int) -> int:
        return self._columns[event] if event < len(self._columns) else PENDING

    def put(self, event: int, column: int) -> None:
        self.reach(event + 1)
        self._columns[event] = column

    def extend(self, first: int, columns: Ints) -> None:
        """The labels of events first, first + 1, ...; `PENDING` where none came."""
        self.reach(first)
        self._columns.frombytes(columns.astype(np.int32).tobytes())

    def reach(self, events: int) -> None:
        """Have a place for so many events."""
        self._columns.extend([PENDING] * (events - len(self._columns)))

    def to_list(self) -> list[int]:
        return self._columns.tolist()

    def restore(self, columns: Any, events: int, outcomes: int, classes: int) -> None:
        """The inverse of `to_list`, checked."""
        good = isinstance(columns, list) and len(columns) <= events
        good = good and all(type(column) is int and PENDING <= column < classes for column in columns)
        if not good or sum(column != PENDING for column in columns) != outcomes:
            raise InvalidInput(f"settled must hold the labels of the {outcomes} events that have one, got others")
        self._columns = array("i", columns)
