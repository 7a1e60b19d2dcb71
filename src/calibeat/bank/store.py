"""The rows of a bank and the keys they belong to: opening, finding, moving and dropping them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots, Vector
from calibeat.core.layout import N
from calibeat.core.method import Method
from calibeat.core.params import params_of_rows
from calibeat.core.stats import EVENTS, LAST, LOSSES, STATS
from calibeat.errors import InvalidInput

from .index import MOST_KEYS, IntKeys, Keys, StringKeys, with_room
from .keys import IntColumn, KeyColumn

Columns = dict[str, npt.NDArray[Any]]


class RowStore:
    """A matrix with a row for each key: the state of a stream, and behind it the books."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.fresh = method.initial_row()
        self.stride = method.width + STATS
        self.matrix: npt.NDArray[np.float64] = np.empty((0, self.stride))
        self.keys: Keys | None = None  # ints or strings: the first key tells
        self._adopted = np.empty(0)  # of the first rows: forecasts that were made in another bank
        self.moves = 0  # how often rows have changed their place, so that those who look at one notice

    def __len__(self) -> int:
        return 0 if self.keys is None else self.keys.count

    @property
    def kind(self) -> str:
        """What the keys are."""
        return "none" if self.keys is None else "ints" if isinstance(self.keys, IntKeys) else "strings"

    @property
    def flat(self) -> Vector:
        """All rows one behind the other, as the kernels take them."""
        return self.matrix.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        return len(self) * self.stride * 8 + (0 if self.keys is None else self.keys.nbytes)

    def check(self, column: KeyColumn) -> KeyColumn:
        """The column, if its keys are of the kind that is here."""
        if self.keys is not None and len(column) and isinstance(column, IntColumn) != isinstance(self.keys, IntKeys):
            wanted, got = ("ints", "strings") if isinstance(self.keys, IntKeys) else ("strings", "ints")
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got} - at row 0")
        return column

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        return np.full(len(column), -1, dtype=np.int32) if self.keys is None else self.keys.find(column)

    def open(self, column: KeyColumn) -> Slots:
        """The slot of each key; new keys get a row, which is that of a stream that has seen nothing."""
        if self.keys is None:
            self.keys = IntKeys() if isinstance(column, IntColumn) else StringKeys()
        before = len(self)
        slots = self.keys.add(column)
        if len(self) > MOST_KEYS:  # pragma: no cover - hundreds of gigabytes of keys
            raise InvalidInput(f"a bank must have at most {MOST_KEYS} keys, got {len(self)}")
        if len(self) > before:
            room = with_room(self.matrix, before, len(self))
            room[before : len(self), : self.method.width] = self.fresh
            room[before : len(self), self.method.width :] = 0.0
            self.matrix = room
            self.moves += 1
        return slots

    def truncate(self, count: int) -> None:
        """Forget the rows from `count` on."""
        if self.keys is not None:
            self.keys.truncate(count)
            if count == 0:
                self.keys = None
        self._adopted = self._adopted[:count]
        self.moves += 1

    def remove(self, slot: int) -> None:
        """Forget a row; the last one takes its place."""
        assert self.keys is not None  # noqa: S101 - there is a slot, so there are keys
        last = len(self) - 1
        self.matrix[slot] = self.matrix[last]
        if slot < len(self._adopted):
            self._adopted[slot] = self.adopted(last)
            self._adopted = self._adopted[:last]
        self.keys.remove(slot)
        if last == 0:
            self.keys = None
        self.moves += 1

    def take(self, column: KeyColumn, other: RowStore) -> None:
        """Rows of another store, whose keys are the column and not here yet."""
        first = len(self)
        adopted = np.concatenate([self._all_adopted(), other.books(EVENTS)])
        self.open(column)
        self.matrix[first : len(self)] = other.matrix[: len(other)]
        self._adopted = adopted

    def adopt(self) -> None:
        """From now on: receipts of the forecasts that have been made are accepted, whoever made them."""
        self._adopted = self.books(EVENTS).copy()

    def adopted(self, slot: int) -> int:
        """Below which number forecasts of a row may have been made in another bank."""
        return int(self._adopted[slot]) if slot < len(self._adopted) else 0

    def _all_adopted(self) -> Vector:
        return np.concatenate([self._adopted, np.zeros(len(self) - len(self._adopted))])

    def selected(self, chosen: npt.NDArray[np.bool_]) -> RowStore:
        """A copy of some rows."""
        other = RowStore(self.method)
        if self.keys is not None and chosen.any():
            other.open(self.keys.column(chosen))
            other.matrix[: len(other)] = self.matrix[: len(self)][chosen]
            other._adopted = self._all_adopted()[chosen]
        return other

    # ---- as columns -----------------------------------------------------------------------------------------------

    def books(self, at: int) -> Vector:
        """One of the numbers behind the state, of all rows; a view."""
        return self.matrix[: len(self), self.method.width + at]

    def names(self) -> npt.NDArray[Any]:
        """The keys."""
        return np.empty(0, dtype=np.int64) if self.keys is None else self.keys.names()

    def params(self) -> Columns:
        """The parameters of all rows."""
        return params_of_rows(self.method, self.matrix[: len(self), : self.method.width])

    def table(self, clock: int) -> Columns:
        """What `Bank.table` gives."""
        learnt = self.matrix[: len(self), N]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {name: self.books(at) / learnt for name, at in LOSSES.items()}
        return {
            "key": self.names(),
            "events": self.books(EVENTS).astype(np.int64),
            "outcomes": learnt.astype(np.int64),
            "idle": clock - self.books(LAST).astype(np.int64),
            **self.params(),
            **means,
        }

    # ---- as a file ------------------------------------------------------------------------------------------------

    def arrays(self) -> Columns:
        """What a file has to hold."""
        keys = {} if self.keys is None else self.keys.arrays()
        return {**keys, "rows": self.matrix[: len(self)].reshape(-1)}

    def restore(self, kind: str, count: int, arrays: Columns) -> None:
        """The inverse of `arrays`, without a copy."""
        if kind != "none":
            self.keys = IntKeys() if kind == "ints" else StringKeys()
            self.keys.restore(count, arrays)
        self.matrix = arrays["rows"].reshape(-1, self.stride)
