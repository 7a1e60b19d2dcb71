"""From keys to slots: which row of a bank belongs to which key, for columns of any length at once.

An open-addressing table of int32 slots with linear probing, filled to between one half and 0.6: 8 bytes a key, beside
the keys themselves. The tables are plain arrays, so a bank is saved as they are and can be read where it lies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots
from calibeat.core.jit import for_size

from .hashing import Hashes, Seed, hash_strings
from .keys import FEW, IntColumn, Key, KeyColumn, StringColumn
from .probe import add_ints, add_strings, find_ints, find_strings, home, link

Arrays = dict[str, npt.NDArray[Any]]
EVERY = slice(None)
Chosen = npt.NDArray[np.bool_] | None

MOST_KEYS = 2**31 - 2
_LEAST = 16
_FULLEST, _GROWTH = 0.6, 1.15
_AT_ONCE = 2**16  # keys hashed together: few enough to stay in the cache


class Index(ABC):
    """The keys of a bank in the order of their slots, and the table that finds them."""

    def __init__(self, seed: Seed | None = None) -> None:
        self.seed = seed or Seed.random()
        self.count = 0
        self.table: Slots = np.full(_LEAST, -1, dtype=np.int32)

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        if len(column) <= FEW:
            return np.array([self.find_one(key) for key in column.plain()], dtype=np.int32)
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _AT_ONCE):
            self._find(column, first, min(first + _AT_ONCE, len(column)), slots)
        return slots

    def add(self, column: KeyColumn) -> Slots:
        """The slot of each key; one that is not here yet gets the next free slot."""
        if len(column) <= FEW:
            return np.array([self.add_one(key) for key in column.plain()], dtype=np.int32)
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _AT_ONCE):
            at, last = first, min(first + _AT_ONCE, len(column))
            while at < last:
                # How many more keys fit before the table or the list of keys has to grow.
                room = int(_FULLEST * len(self.table))
                self._reserve(min(room, self.count + last - at), column, at, last)
                at, self.count = self._add(column, at, last, slots, room)
                if at < last:
                    self._grow(for_size(link, self.count, few=FEW))
        return slots

    def find_one(self, key: Any) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        return self._probe(key)[0]

    def add_one(self, key: Any) -> int:
        """The slot of one key, which is new or not."""
        slot, place = self._probe(key)
        if slot >= 0:
            return slot
        if self.count >= int(_FULLEST * len(self.table)):
            self._grow(self._link())
            place = self._probe(key)[1]
        self._append(key)
        self.table[place] = self.count
        self.count += 1
        return self.count - 1

    def remove(self, slot: int) -> None:
        """Forget the key of a slot; the key of the last slot moves there."""
        self._unlink(slot)
        last = self.count - 1
        if slot != last:
            self.table[self._place(last)] = slot
        self._move(last, slot)
        self.count = last

    def relink(self, count: int) -> None:
        """Make the table anew for the keys before slot `count`, whatever state it is in; forget the keys behind."""
        self.count = count
        self._resize(len(self.table), self._link())

    def _probe(self, key: Any) -> tuple[int, int]:
        """The slot of a key and its place in the table; or -1 and the free place where it would stand."""
        table, size, word = self.table, len(self.table), self._hash(key)
        first = at = home(word, size)
        while (slot := table.item(at)) >= 0:
            if self._is(slot, key, word):
                return slot, at
            at = at + 1 if at + 1 < size else 0
            if at == first:  # a table without a free place, in a file that nobody has checked
                return -1, -1
        return -1, at

    def _unlink(self, slot: int) -> None:
        """Take a slot out of the table, and set those behind it anew: a search must not end at the gap."""
        table = self.table
        at = self._place(slot)
        table[at] = -1
        at = (at + 1) % len(table)
        while table[at] >= 0:
            moved, table[at] = int(table[at]), -1
            table[self._free_place(moved)] = moved
            at = (at + 1) % len(table)

    def _place(self, slot: int) -> int:
        """Where in the table a slot stands."""
        at = self._home(slot)
        while self.table[at] != slot:
            at = (at + 1) % len(self.table)
        return at

    def _free_place(self, slot: int) -> int:
        at = self._home(slot)
        while self.table[at] >= 0:
            at = (at + 1) % len(self.table)
        return at

    def _home(self, slot: int) -> int:
        return home(int(self._hashes(slot, slot + 1)[0]), len(self.table))

    def _grow(self, link_all: Any) -> None:
        self._resize(int(_GROWTH * len(self.table)) + _LEAST, link_all)

    def _link(self) -> Any:
        """Plain for so many keys that plain Python is done before Numba is loaded: single events never wait for it."""
        return for_size(link, self.count, few=100_000)

    def _resize(self, size: int, link_all: Any) -> None:
        size = max(size, int(self.count / _FULLEST) + _LEAST)
        table: Slots = np.full(size, -1, dtype=np.int32)
        for first in range(0, self.count, _AT_ONCE):
            link_all(table, self._hashes(first, min(first + _AT_ONCE, self.count)), first)
        self.table = table

    def __iter__(self) -> Iterator[Key]:
        return (self.key(slot) for slot in range(self.count))

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the keys and of the table."""

    @abstractmethod
    def key(self, slot: int) -> Key:
        """The key of a slot."""

    @abstractmethod
    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[Any]:
        """The keys of some slots, or of all."""

    @abstractmethod
    def column(self, chosen: Chosen = None) -> KeyColumn:
        """The keys of all slots, or of some, as they would come in."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """What a file has to hold."""

    @abstractmethod
    def restore(self, count: int, arrays: Arrays) -> None:
        """The inverse of `arrays`, without a copy."""

    @abstractmethod
    def entry(self, slot: int) -> npt.NDArray[np.int64]:
        """What the list of keys holds of a slot, as a view."""

    @abstractmethod
    def _hash(self, key: Any) -> int: ...

    @abstractmethod
    def _is(self, slot: int, key: Any, word: int) -> bool: ...

    @abstractmethod
    def _append(self, key: Any) -> None: ...

    @abstractmethod
    def _find(self, column: Any, first: int, last: int, slots: Slots) -> None: ...

    @abstractmethod
    def _add(self, column: Any, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]: ...

    @abstractmethod
    def _reserve(self, room: int, column: Any, first: int, last: int) -> None: ...

    @abstractmethod
    def _hashes(self, first: int, last: int) -> Hashes: ...

    @abstractmethod
    def _move(self, source: int, target: int) -> None: ...


class IntIndex(Index):
    """Keys that are 64-bit integers."""

    def __init__(self, seed: Seed | None = None) -> None:
        super().__init__(seed)
        self._keys: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return 8 * self.count + self.table.nbytes

    def key(self, slot: int) -> int:
        return int(self._keys[slot])

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[np.int64]:
        return self._keys[: self.count][slots].copy()

    def column(self, chosen: Chosen = None) -> IntColumn:
        return IntColumn(self.names() if chosen is None else self._keys[: self.count][chosen])

    def arrays(self) -> Arrays:
        return {"keys": self._keys[: self.count], "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        self.count, self._keys, self.table = count, arrays["keys"], arrays["table"]

    def entry(self, slot: int) -> npt.NDArray[np.int64]:
        return self._keys[slot : slot + 1]

    def _hash(self, key: int) -> int:
        return self.seed.of_int(key)

    def _is(self, slot: int, key: int, word: int) -> bool:  # noqa: ARG002 - as for strings
        return self._keys.item(slot) == key

    def _append(self, key: int) -> None:
        self._keys = with_room(self._keys, self.count, self.count + 1)
        self._keys[self.count] = key

    def _find(self, column: IntColumn, first: int, last: int, slots: Slots) -> None:
        wanted = column.keys[first:last]
        find = for_size(find_ints, last - first)
        find(self._keys, self.table, wanted, self.seed.of_ints(wanted), slots[first:last])

    def _add(self, column: IntColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        wanted = column.keys[first:last]
        done, count = for_size(add_ints, last - first)(
            self._keys, self.table, self.count, room, wanted, self.seed.of_ints(wanted), slots[first:last]
        )
        return first + int(done), int(count)

    def _reserve(self, room: int, column: IntColumn, first: int, last: int) -> None:  # noqa: ARG002 - as for strings
        self._keys = with_room(self._keys, self.count, room)

    def _hashes(self, first: int, last: int) -> Hashes:
        return self.seed.of_ints(self._keys[first:last])

    def _move(self, source: int, target: int) -> None:
        self._keys[target] = self._keys[source]


class StringIndex(Index):
    """Keys that are strings, one behind the other as UTF-8; marks hold the start of each, then its length and hash."""

    def __init__(self, seed: Seed | None = None) -> None:
        super().__init__(seed)
        self._text: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._marks: npt.NDArray[np.int64] = np.empty((0, 2), dtype=np.int64)
        self._used = 0  # bytes of text

    @property
    def nbytes(self) -> int:
        return 16 * self.count + self._used + self.table.nbytes

    def key(self, slot: int) -> str:
        return self._raw(slot).decode()

    def _raw(self, slot: int) -> bytes:
        start, mark = self._marks.item(slot, 0), self._marks.item(slot, 1)
        return self._text[start : start + (mark >> 31)].tobytes()

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[np.object_]:
        chosen = range(self.count)[slots] if isinstance(slots, slice) else slots.tolist()
        names = [*map(self.key, chosen), None]  # the None keeps NumPy from looking into a lone string
        return np.array(names, dtype=object)[:-1]

    def column(self, chosen: Chosen = None) -> StringColumn:
        marks = self._marks[: self.count]
        text, starts = self._gathered(marks if chosen is None else marks[chosen])
        return StringColumn(text, np.append(starts, len(text)))

    def arrays(self) -> Arrays:
        """Without the text of keys that were forgotten: it must not live on in a file."""
        marks, text = self._marks[: self.count], self._text[: self._used]
        if self._has_gaps():
            text, starts = self._gathered(marks)
            marks = np.stack([starts, marks[:, 1]], axis=1)
        return {"text": text, "marks": marks.reshape(-1), "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        self.count, self._text, self._marks = count, arrays["text"], arrays["marks"].reshape(-1, 2)
        self._used, self.table = len(self._text), arrays["table"]

    def relink(self, count: int) -> None:
        super().relink(count)
        ends = self._marks[:count, 0] + (self._marks[:count, 1] >> 31)
        self._used = int(ends.max(initial=0))

    def entry(self, slot: int) -> npt.NDArray[np.int64]:
        return self._marks[slot]

    def _hash(self, key: bytes) -> int:
        return self.seed.of_bytes(key)

    def _is(self, slot: int, key: bytes, word: int) -> bool:
        return self._marks.item(slot, 1) == (len(key) << 31) | word and self._raw(slot) == key

    def _append(self, key: bytes) -> None:
        self._make_room(self.count + 1, len(key))
        self._text[self._used : self._used + len(key)] = np.frombuffer(key, dtype=np.uint8)
        self._marks[self.count] = self._used, (len(key) << 31) | self._hash(key)
        self._used += len(key)

    def _find(self, column: StringColumn, first: int, last: int, slots: Slots) -> None:
        find: Any = for_size(find_strings, last - first)
        find(self._text, self._marks.reshape(-1), self.table, *self._wanted(column, first, last), slots[first:last])

    def _add(self, column: StringColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        add: Any = for_size(add_strings, last - first)
        done, count, self._used = add(
            self._text,
            self._marks.reshape(-1),
            self.table,
            self.count,
            self._used,
            room,
            *self._wanted(column, first, last),
            slots[first:last],
        )
        return first + int(done), int(count)

    def _wanted(self, column: StringColumn, first: int, last: int) -> tuple[npt.NDArray[Any], ...]:
        starts, ends = column.offsets[first:last], column.offsets[first + 1 : last + 1]
        hashes = self.seed.of_strings(for_size(hash_strings, last - first), column.text, starts, ends)
        return column.text, starts, ends, hashes

    def _reserve(self, room: int, column: StringColumn, first: int, last: int) -> None:
        self._make_room(room, int(column.offsets[last] - column.offsets[first]))

    def _make_room(self, room: int, size: int) -> None:
        if self._used + size > len(self._text) and self._has_gaps():
            text, starts = self._gathered(self._marks[: self.count])
            marks = self._marks.copy()
            marks[: self.count, 0] = starts
            self._text, self._marks, self._used = text, marks, len(text)
        self._text = with_room(self._text, self._used, self._used + size)
        self._marks = with_room(self._marks, self.count, room)

    def _hashes(self, first: int, last: int) -> Hashes:
        return (self._marks[first:last, 1] & 0x7FFFFFFF).astype(np.int32)

    def _move(self, source: int, target: int) -> None:
        """The text of the key that was there stays as a gap, until its room is needed or the bank is saved."""
        self._marks[target] = self._marks[source]

    def _has_gaps(self) -> bool:
        return int((self._marks[: self.count, 1] >> 31).sum()) != self._used

    def _gathered(self, marks: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The text of some keys, one behind the other, and where each starts."""
        sizes = marks[:, 1] >> 31
        starts = np.cumsum(sizes) - sizes
        places = np.repeat(marks[:, 0] - starts, sizes) + np.arange(int(sizes.sum()))
        return self._text[places], starts


def with_room(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array itself, or a larger one with the same beginning; memory that nobody touches is not resident."""
    if wanted <= len(array):
        return array
    larger = np.empty((max(wanted, len(array) * 3 // 2), *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
