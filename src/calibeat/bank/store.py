"""The rows of a bank and the keys they belong to: opening, finding, moving and dropping them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots, Vector
from calibeat.core.layout import N
from calibeat.core.method import Method, params_of_rows
from calibeat.core.stats import EVENTS, LAST, LOSSES, STATS
from calibeat.errors import InvalidInput
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import Monitors

from .hashing import Seed
from .index import EVERY, MOST_KEYS, Index, IntIndex, StringIndex, with_room
from .keys import IntColumn, KeyColumn

Columns = dict[str, npt.NDArray[Any]]
KINDS: dict[str, type[Index]] = {"ints": IntIndex, "strings": StringIndex}


class RowStore:
    """A matrix with a row for each key: the state of a stream, and behind it its stats."""

    def __init__(self, method: Method, watched: Settings | None = None) -> None:
        self.method = method
        self.monitors = None if watched is None else Monitors(watched)  # a second matrix, with a row for each slot
        self.fresh = method.initial_row()
        self.stride = method.width + STATS
        self.matrix = np.empty((0, self.stride))
        self.index: Index | None = None  # ints or strings: the first key tells
        # Of the first rows: below which event receipts of other banks are valid. It is replaced, never changed.
        self.foreign = np.empty(0)
        self.moves = 0  # how often rows have changed their place, so that those who look at one notice

    def __len__(self) -> int:
        return 0 if self.index is None else self.index.count

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """The rows, and room for more."""
        return self._matrix

    @matrix.setter
    def matrix(self, matrix: npt.NDArray[np.float64]) -> None:
        flat: Vector = matrix.reshape(-1)
        view: Any = flat.data
        # All rows one behind the other, as the kernels take them, and as plain Python reads and writes them fastest.
        # One line, so that no interrupt leaves them apart.
        self._matrix, self.flat, self.view = matrix, flat, view

    @property
    def watched(self) -> Settings | None:
        """What the monitors are asked for, if there are any."""
        return None if self.monitors is None else self.monitors.settings

    @property
    def kind(self) -> str:
        """What the keys are: "none", "ints" or "strings"."""
        return "none" if self.index is None else "ints" if isinstance(self.index, IntIndex) else "strings"

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        keys = 0 if self.index is None else self.index.nbytes
        return len(self) * self.stride * 8 + keys + (0 if self.monitors is None else self.monitors.nbytes)

    def check(self, column: KeyColumn) -> KeyColumn:
        """The column, if its keys are of the kind that is here."""
        if len(column):
            self._check_kind(ints=isinstance(column, IntColumn), where=" - at row 0")
        return column

    def _check_kind(self, *, ints: bool, where: str = "") -> None:
        if self.index is not None and ints != isinstance(self.index, IntIndex):
            wanted, got = ("strings", "ints") if ints else ("ints", "strings")
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got}{where}")

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def find_one(self, key: int | bytes) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        self._check_kind(ints=isinstance(key, int))
        return -1 if self.index is None else self.index.find_one(key)

    def open(self, column: KeyColumn) -> Slots:
        """The slot of each key; new keys get a row, which is that of a stream that has seen nothing."""
        if self.index is None:
            self.index = IntIndex() if isinstance(column, IntColumn) else StringIndex()
        before = len(self)
        slots = self.index.add(column)
        self._open_from(before)
        return slots

    def open_one(self, key: int | bytes) -> int:
        """The slot of one new key."""
        if self.index is None:
            self.index = IntIndex() if isinstance(key, int) else StringIndex()
        before = len(self)
        self.index.add_one(key)
        self._open_from(before)
        return before

    def _open_from(self, before: int) -> None:
        count = len(self)
        if count > MOST_KEYS:  # pragma: no cover - hundreds of gigabytes of keys
            raise InvalidInput(f"a bank must have at most {MOST_KEYS} keys, got {count}")
        if count > before:
            room = with_room(self.matrix, before, count)
            room[before:count, : self.method.width] = self.fresh
            room[before:count, self.method.width :] = 0.0
            if room is not self.matrix:
                self.matrix = room
            if self.monitors is not None:
                self.monitors.resize(count)

    def truncate(self, index: Index | None, count: int, foreign: Vector) -> None:
        """Back to the keys that were in an index, whatever has happened to its table since."""
        if index is not None:
            index.relink(count)
        self.index, self.foreign = index, foreign
        self.moves += 1
        if self.monitors is not None:
            self.monitors.truncate(count)

    def remove(self, slot: int) -> None:
        """Forget a row; the last one takes its place."""
        assert self.index is not None  # noqa: S101 - there is a slot, so there are keys
        last = len(self) - 1
        self.matrix[slot] = self.matrix[last]
        if self.monitors is not None:
            self.monitors.remove(slot)
        if slot < len(self.foreign):
            foreign = self.foreign[:last].copy()
            foreign[slot:][:1] = self.foreign_until(last)
            self.foreign = foreign
        self.index.remove(slot)
        if last == 0:
            self.index = None
        self.moves += 1

    def take(self, column: KeyColumn, other: RowStore) -> None:
        """Rows of another store, whose keys are the column and not here yet."""
        first = len(self)
        foreign = np.concatenate([self._foreign_of_all(), other.stats(EVENTS)])
        self.open(column)
        self.matrix[first : len(self)] = other.matrix[: len(other)]
        if self.monitors is not None and other.monitors is not None:
            self.monitors.truncate(first)
            self.monitors.take(other.monitors)
        self.foreign = foreign

    def accept_foreign_rows(self) -> None:
        """All rows come from another bank or from a file: so may the receipts of the forecasts made so far."""
        self.foreign = self.stats(EVENTS).copy()
        if self.monitors is not None:
            self.monitors.realign()

    def accept_foreign(self, slots: Slots | slice = EVERY) -> None:
        """Accept receipts of other banks for the forecasts that these rows have made so far."""
        foreign = self._foreign_of_all()
        foreign[slots] = self.stats(EVENTS)[slots]
        self.foreign = foreign

    def foreign_until(self, slot: int) -> int:
        """Receipts of other banks are valid for the events of a row below this one."""
        return int(self.foreign[slot]) if slot < len(self.foreign) else 0

    def _foreign_of_all(self) -> Vector:
        return np.concatenate([self.foreign, np.zeros(len(self) - len(self.foreign))])

    def selected(self, chosen: npt.NDArray[np.bool_]) -> RowStore:
        """A copy of some rows."""
        other = RowStore(self.method, self.watched)
        if self.index is not None and chosen.any():
            other.index = type(self.index)(self.index.seed)
            other.open(self.index.column(chosen))
            other.matrix[: len(other)] = self.matrix[: len(self)][chosen]
            other.foreign = self._foreign_of_all()[chosen]
            if self.monitors is not None:
                other.monitors = self.monitors.selected(chosen)
        return other

    # ---- as columns -----------------------------------------------------------------------------------------------

    def stats(self, at: int) -> Vector:
        """One of the numbers behind the state, of all rows; a view."""
        return self.matrix[: len(self), self.method.width + at]

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[Any]:
        """The keys, of all rows or of some."""
        return np.empty(0, dtype=np.int64) if self.index is None else self.index.names(slots)

    def params(self, slots: Slots | slice = EVERY) -> Columns:
        """The parameters of all rows, or of some."""
        return params_of_rows(self.method, self.matrix[: len(self), : self.method.width][slots])

    def table(self, clock: int, slots: Slots | slice = EVERY) -> Columns:
        """What `Bank.table` gives, of all rows, or of some."""
        learnt = self.matrix[: len(self), N][slots]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {name: self.stats(at)[slots] / learnt for name, at in LOSSES.items()}
        return {
            "key": self.names(slots),
            "events": self.stats(EVENTS)[slots].astype(np.int64),
            "outcomes": learnt.astype(np.int64),
            "idle": clock - self.stats(LAST)[slots].astype(np.int64),
            **self.params(slots),
            **means,
            **({} if self.monitors is None else self.monitors.columns(np.arange(len(self), dtype=np.int32)[slots])),
        }

    # ---- as a file ------------------------------------------------------------------------------------------------

    def arrays(self) -> Columns:
        """What a file has to hold."""
        keys = {} if self.index is None else self.index.arrays()
        return {**keys, "rows": self.matrix[: len(self)].reshape(-1), **self._monitor_arrays()}

    def _monitor_arrays(self) -> Columns:
        if self.monitors is None:
            return {}
        rows, queues = self.monitors.matrix[: len(self)].reshape(-1), self.monitors.queues_as_bytes()
        return {"monitors": rows, "waiting": queues}

    def restore(self, kind: str, seed: Seed | None, count: int, arrays: Columns) -> None:
        """The inverse of `arrays`, without a copy."""
        if kind != "none":
            self.index = KINDS[kind](seed)
            self.index.restore(count, arrays)
        self.matrix = arrays["rows"].reshape(-1, self.stride)
        if self.monitors is not None:
            self.monitors = Monitors.restored(self.monitors.settings, arrays["monitors"], arrays["waiting"], count)
