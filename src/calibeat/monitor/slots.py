"""A matrix with a row for each slot of a host, and beside it what waits in some of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_whole
from calibeat._util.types import Slots, Vector
from calibeat.errors import InvalidInput

if TYPE_CHECKING:
    from .bets import Alarm

CACHE_LINE = 8  # numbers in a cache line


class SlotRows(ABC):
    """Rows of a detector for the slots from 0 to `count`: they come and go with those of the host."""

    NAME: ClassVar[str]  # in sentences
    RAISED_AT: ClassVar[int]  # where a row has the alarms raised, and the pages among them
    GIVEN_AT: ClassVar[int]  # where it has those that `new_alarms` has given
    detailed: bool  # whether alarms are kept one by one
    count: int
    stride: int
    flat: Vector  # all rows one behind the other
    matrix: npt.NDArray[np.float64]
    queues: dict[int, Any]  # what waits, of the slots where something does; each can be copied

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._fresh: Vector = settings.initial_row()
        self.stride, self.flat, self.matrix = 0, np.empty(0), np.empty((0, settings.width))
        self._make_room(0, 0)
        self.count = 0
        self.queues = {}

    def _make_room(self, rows: int, kept: int) -> None:
        """Allocate rows that begin with a cache line each, and copy the first `kept`."""
        width = self.settings.width
        stride = -(-width // CACHE_LINE) * CACHE_LINE
        whole = np.empty(rows * stride + CACHE_LINE)
        first = -(whole.ctypes.data // whole.itemsize) % CACHE_LINE
        flat = whole[first : first + rows * stride]  # all rows one behind the other
        matrix = flat.reshape(rows, stride)[:, :width]
        if kept:
            matrix[:kept] = self.matrix[:kept]
        # One statement without a call: an interrupt comes before or after all of it. The same below.
        self.stride, self.flat, self.matrix = stride, flat, matrix

    def realign(self) -> None:
        """Copy rows that lie packed, as in a file, to cache lines of their own."""
        self._make_room(self.count, self.count)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows take."""
        return self.count * self.stride * 8

    def resize(self, count: int) -> None:
        """Have `count` slots: new ones are fresh, and later ones are forgotten."""
        if count > len(self.matrix):
            self._make_room(max(count, 2 * len(self.matrix)), self.count)
        if count > self.count:
            self.matrix[self.count : count] = self._fresh
        self.truncate(count)

    def remove(self, slot: int) -> None:
        """Forget a slot; the last one takes its place."""
        last = self.count - 1
        self.matrix[slot] = self.matrix[last]
        moved = self.queues.pop(last, None)
        self.queues.pop(slot, None)
        if moved is not None and slot != last:
            self.queues[slot] = moved
        self.count = last

    def selected(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Some of the slots, in order, as rows of their own."""
        made = type(self)(self.settings)
        rows = self.matrix[: self.count][chosen]
        made.resize(len(rows))
        made.matrix[:] = rows
        places = np.cumsum(chosen) - 1
        made.queues = {int(places[slot]): q.copy() for slot, q in self.queues.items() if chosen[slot]}
        return made

    def take(self, other: Self) -> None:
        """The slots of others, behind those here."""
        first = self.count
        self.resize(first + other.count)
        self.matrix[first : self.count] = other.matrix[: other.count]
        self.queues |= {first + slot: queue.copy() for slot, queue in other.queues.items()}

    def truncate(self, count: int) -> None:
        """Forget the slots after the first `count`, or take back those that were there."""
        self.count = count
        for slot in [slot for slot in self.queues if slot >= count]:
            del self.queues[slot]

    # ---- alarms ---------------------------------------------------------------------------------------------------

    def new_alarms(self, slots: Slots | None = None) -> list[tuple[int, Alarm]]:
        """The alarms that these slots (None: all) have raised since the last call, each with its slot.

        If they are not kept one by one, a slot gives its last one, which pages if one of them did.
        """
        asked = np.arange(self.count, dtype=np.int32) if slots is None else slots
        raised, given = slice(self.RAISED_AT, self.RAISED_AT + 2), slice(self.GIVEN_AT, self.GIVEN_AT + 2 or None)
        asked = asked[self.matrix[asked, self.RAISED_AT] > self.matrix[asked, self.GIVEN_AT]]
        found: list[tuple[int, Alarm]] = []
        for slot, row in zip(asked.tolist(), self.matrix[asked], strict=True):
            new, pages = (row[raised] - row[given]).tolist()
            last = self._kept_alarms(slot)[-int(new) :] if self.detailed else [self._last_alarm(row, page=pages > 0)]
            found += [(slot, alarm) for alarm in last]
        self.matrix[asked, given] = self.matrix[asked, raised]  # one statement, as above
        return found

    @abstractmethod
    def _last_alarm(self, row: Vector, *, page: bool) -> Alarm:
        """The last alarm of a row that has one."""

    @abstractmethod
    def _kept_alarms(self, slot: int) -> list[Alarm]:
        """The alarms that are kept of a slot, oldest first."""

    # ---- as data --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _queue_as_data(self, queue: Any) -> Any:
        """What waits in a slot, JSON-able."""

    @abstractmethod
    def set_queue(self, slot: int, data: Any) -> None:
        """The inverse of `_queue_as_data`, of what may hold anything."""

    def queues_as_bytes(self) -> npt.NDArray[np.uint8]:
        """What waits as JSON, in the order of slots."""
        text = json.dumps([[slot, self._queue_as_data(queue)] for slot, queue in sorted(self.queues.items())])
        return np.frombuffer(text.encode(), dtype=np.uint8)

    @classmethod
    def restored(cls, settings: Any, rows: Vector, queues: npt.NDArray[np.uint8], count: int) -> Self:
        """From the rows of all slots, without a copy, and `queues_as_bytes`."""
        made = cls(settings)
        if len(rows) != count * settings.width:
            raise InvalidInput(f"{cls.NAME} must have {count * settings.width} numbers, got {len(rows)}")
        made.flat, made.stride, made.count = rows, settings.width, count
        made.matrix = rows.reshape(-1, settings.width)
        for slot, data in json.loads(queues.tobytes()):
            made.set_queue(check_whole("slot", slot, 0, count - 1), data)
        return made
