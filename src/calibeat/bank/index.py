"""From keys to slots: which row of a bank belongs to which key, for columns of any length at once.

An open-addressing table of int32 slots with linear probing, filled to between one half and 0.6: 8 bytes a key, beside
the keys themselves. The tables are plain arrays, so a bank is saved as they are and can be read where it lies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.core.jit import for_size, kernel
from calibeat.core.prefetch import prefetch
from calibeat.core.randomness import mix_words

from .keys import IntColumn, Key, KeyColumn, StringColumn

Slots = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]

MOST_KEYS = 2**31 - 2
_LEAST = 16
_FULLEST, _GROWTH = 0.6, 1.15
AHEAD = 6  # how many keys before its turn, and before the step before, memory is asked for
_AT_ONCE = 2**16  # keys hashed together: few enough to stay in the cache


class Keys(ABC):
    """The keys of a bank in the order of their slots."""

    def __init__(self) -> None:
        self.count = 0
        self.table: Slots = np.full(_LEAST, -1, dtype=np.int32)

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _AT_ONCE):
            self._find(column, first, min(first + _AT_ONCE, len(column)), slots)
        return slots

    def add(self, column: KeyColumn) -> Slots:
        """The slot of each key; one that is not here yet gets the next free slot."""
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _AT_ONCE):
            at, last = first, min(first + _AT_ONCE, len(column))
            while at < last:
                # How many more keys fit before the table or the list of keys has to grow.
                room = int(_FULLEST * len(self.table))
                self._reserve(min(room, self.count + last - at), column, at, last)
                at, self.count = self._add(column, at, last, slots, room)
                if at < last:
                    self._resize(int(_GROWTH * len(self.table)) + _LEAST, for_size(link, len(column)))
        return slots

    def remove(self, slot: int) -> None:
        """Forget the key of a slot; the key of the last slot moves there."""
        self._unlink(slot)
        self._drop(slot)
        last = self.count - 1
        if slot != last:
            self.table[self._place(last)] = slot
            self._move(last, slot)
        self.count = last

    def truncate(self, count: int) -> None:
        """Forget the keys from slot `count` on."""
        for slot in range(count, self.count):
            self._drop(slot)
        self.count = count
        self._resize(len(self.table), for_size(link, count, few=100_000))

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

    def _resize(self, size: int, link_all: Callable[..., None]) -> None:
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
    def names(self) -> npt.NDArray[Any]:
        """All keys, in the order of their slots."""

    @abstractmethod
    def column(self, chosen: npt.NDArray[np.bool_] | None = None) -> KeyColumn:
        """The keys of all slots, or of some, as they would come in."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """What a file has to hold."""

    @abstractmethod
    def restore(self, count: int, arrays: Arrays) -> None:
        """The inverse of `arrays`, without a copy."""

    @abstractmethod
    def _find(self, column: Any, first: int, last: int, slots: Slots) -> None: ...

    @abstractmethod
    def _add(self, column: Any, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]: ...

    @abstractmethod
    def _reserve(self, room: int, column: Any, first: int, last: int) -> None: ...

    @abstractmethod
    def _hashes(self, first: int, last: int) -> npt.NDArray[np.int32]: ...

    @abstractmethod
    def _move(self, source: int, target: int) -> None: ...

    @abstractmethod
    def _drop(self, slot: int) -> None: ...


class IntKeys(Keys):
    """Keys that are 64-bit integers."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return 8 * self.count + self.table.nbytes

    def key(self, slot: int) -> int:
        return int(self._keys[slot])

    def names(self) -> npt.NDArray[np.int64]:
        return self._keys[: self.count].copy()

    def column(self, chosen: npt.NDArray[np.bool_] | None = None) -> IntColumn:
        return IntColumn(self.names() if chosen is None else self._keys[: self.count][chosen])

    def arrays(self) -> Arrays:
        return {"keys": self._keys[: self.count], "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        self.count, self._keys, self.table = count, arrays["keys"], arrays["table"]

    def _find(self, column: IntColumn, first: int, last: int, slots: Slots) -> None:
        wanted = column.keys[first:last]
        for_size(find_ints, len(column))(self._keys, self.table, wanted, hash_ints(wanted), slots[first:last])

    def _add(self, column: IntColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        wanted = column.keys[first:last]
        done, count = for_size(add_ints, len(column))(
            self._keys, self.table, self.count, room, wanted, hash_ints(wanted), slots[first:last]
        )
        return first + int(done), int(count)

    def _reserve(self, room: int, column: IntColumn, first: int, last: int) -> None:  # noqa: ARG002 - as for strings
        self._keys = with_room(self._keys, self.count, room)

    def _hashes(self, first: int, last: int) -> npt.NDArray[np.int32]:
        return hash_ints(self._keys[first:last])

    def _move(self, source: int, target: int) -> None:
        self._keys[target] = self._keys[source]

    def _drop(self, slot: int) -> None:
        """Nothing has to be done: a number takes no room of its own."""


class StringKeys(Keys):
    """Keys that are strings, one behind the other as UTF-8; marks hold the start of each, then its length and hash."""

    def __init__(self) -> None:
        super().__init__()
        self._text: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._marks: npt.NDArray[np.int64] = np.empty((0, 2), dtype=np.int64)
        self._used = self._gaps = 0  # bytes of text, and how many of them belong to keys that were removed

    @property
    def nbytes(self) -> int:
        return 16 * self.count + self._used + self.table.nbytes

    def key(self, slot: int) -> str:
        start, mark = self._marks[slot].tolist()
        return bytes(self._text[start : start + (mark >> 31)]).decode()

    def names(self) -> npt.NDArray[np.object_]:
        return np.array([*self, None], dtype=object)[:-1]  # the None keeps NumPy from looking into a lone string

    def column(self, chosen: npt.NDArray[np.bool_] | None = None) -> StringColumn:
        slots = range(self.count) if chosen is None else np.flatnonzero(chosen).tolist()
        return StringColumn.of([self.key(slot) for slot in slots])

    def arrays(self) -> Arrays:
        if self._gaps:  # who was forgotten must not live on in a file
            self._close_gaps()
        return {"text": self._text[: self._used], "marks": self._marks[: self.count].reshape(-1), "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        self.count, self._text, self.table = count, arrays["text"], arrays["table"]
        self._marks, self._used = arrays["marks"].reshape(-1, 2), len(self._text)

    def _find(self, column: StringColumn, first: int, last: int, slots: Slots) -> None:
        for_size(find_strings, len(column))(
            self._text, self._marks.reshape(-1), self.table,
            column.text, column.offsets[first : last + 1], column.hashes(first, last), slots[first:last],
        )  # fmt: skip

    def _add(self, column: StringColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        done, count, self._used = for_size(add_strings, len(column))(
            self._text, self._marks.reshape(-1), self.table, self.count, self._used, room,
            column.text, column.offsets[first : last + 1], column.hashes(first, last), slots[first:last],
        )  # fmt: skip
        return first + int(done), int(count)

    def _reserve(self, room: int, column: StringColumn, first: int, last: int) -> None:
        if 2 * self._gaps > self._used:
            self._close_gaps()
        self._text = with_room(self._text, self._used, self._used + int(column.offsets[last] - column.offsets[first]))
        self._marks = with_room(self._marks, self.count, room)

    def _hashes(self, first: int, last: int) -> npt.NDArray[np.int32]:
        return (self._marks[first:last, 1] & 0x7FFFFFFF).astype(np.int32)

    def _move(self, source: int, target: int) -> None:
        self._marks[target] = self._marks[source]

    def _drop(self, slot: int) -> None:
        """The text stays as a gap, until gaps are more than half of it or the bank is saved."""
        self._gaps += int(self._marks[slot, 1]) >> 31

    def _close_gaps(self) -> None:
        parts = [self._text[start : start + (mark >> 31)] for start, mark in self._marks[: self.count].tolist()]
        text = np.concatenate([*parts, np.empty(0, dtype=np.uint8)])
        self._marks[: self.count, 0] = np.cumsum([0, *map(len, parts)])[:-1]
        self._text, self._used, self._gaps = text, len(text), 0


def with_room(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array itself, or a larger one with the same beginning; memory that nobody touches is not resident."""
    if wanted <= len(array):
        return array
    larger = np.empty((max(wanted, len(array) * 3 // 2), *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


def hash_ints(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """31 well mixed bits of each key."""
    words: npt.NDArray[np.uint64] = mix_words(keys.view(np.uint64))
    return (words >> np.uint64(33)).astype(np.int32)


# ---- kernels -----------------------------------------------------------------------------------------------------


@kernel
def home(word: int, size: int) -> int:
    """The place in a table of any size where a hash of 31 bits belongs (Lemire 2019)."""
    return (word * size) >> 31


@kernel
def link(table: Slots, hashes: npt.NDArray[np.int32], first: int) -> None:
    """Put the slots first, first + 1, ... in the table, where there is room for them."""
    size = len(table)
    for i in range(len(hashes)):
        at = home(hashes[i], size)
        while table[at] >= 0:
            at = at + 1 if at + 1 < size else 0
        table[at] = first + i


@kernel
def place_of_int(keys: npt.NDArray[np.int64], table: Slots, key: int, word: int) -> int:
    """Where the slot of a key stands in the table, or the free place where it would stand."""
    size = len(table)
    at = home(word, size)
    while table[at] >= 0 and keys[table[at]] != key:
        at = at + 1 if at + 1 < size else 0
    return at


@kernel
def find_ints(
    keys: npt.NDArray[np.int64], table: Slots,
    wanted: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32], slots: Slots,
) -> None:  # fmt: skip
    """The slot of each wanted key, or -1."""
    for i in range(len(wanted)):
        slots[i] = table[place_of_int(keys, table, wanted[i], hashes[i])]


@kernel
def add_ints(
    keys: npt.NDArray[np.int64], table: Slots, count: int, room: int,
    wanted: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32], slots: Slots,
) -> tuple[int, int]:  # fmt: skip
    """The slot of each wanted key, new ones added while there is room -> (how many were served, keys now)."""
    for i in range(len(wanted)):
        at = place_of_int(keys, table, wanted[i], hashes[i])
        if table[at] < 0:
            if count >= room:
                return i, count
            keys[count] = wanted[i]
            table[at] = count
            count += 1
        slots[i] = table[at]
    return len(wanted), count


@kernel
def place_of_string(
    text: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64], table: Slots,
    wanted: npt.NDArray[np.uint8], start: int, end: int, word: int,
) -> int:  # fmt: skip
    """Where the slot of the key wanted[start:end] stands in the table, or the free place where it would stand."""
    size = len(table)
    at = home(word, size)
    mark = ((end - start) << 31) | word
    while table[at] >= 0:
        slot = table[at]
        if marks[2 * slot + 1] == mark:
            i, same = marks[2 * slot], start
            while same < end and text[i] == wanted[same]:
                i += 1
                same += 1
            if same == end:
                break
        at = at + 1 if at + 1 < size else 0
    return at


@kernel
def look_ahead(
    text: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64], table: Slots, hashes: npt.NDArray[np.int32], i: int
) -> None:  # fmt: skip
    """Three steps lead to a key, table, marks and text, each in another place: ask for them well before its turn.

    The first slot that a hash leads to is mostly the right one.
    """
    if i + 3 * AHEAD < len(hashes):
        prefetch(table, home(hashes[i + 3 * AHEAD], len(table)))
        slot = table[home(hashes[i + 2 * AHEAD], len(table))]
        if slot >= 0:
            prefetch(marks, 2 * slot)
        slot = table[home(hashes[i + AHEAD], len(table))]
        if slot >= 0:
            prefetch(text, marks[2 * slot])


@kernel
def find_strings(
    text: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64], table: Slots,
    wanted: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32], slots: Slots,
) -> None:  # fmt: skip
    """The slot of each wanted key, or -1."""
    for i in range(len(hashes)):
        look_ahead(text, marks, table, hashes, i)
        slots[i] = table[place_of_string(text, marks, table, wanted, offsets[i], offsets[i + 1], hashes[i])]


@kernel
def add_strings(
    text: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64], table: Slots, count: int, used: int, room: int,
    wanted: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32], slots: Slots,
) -> tuple[int, int, int]:  # fmt: skip
    """The slot of each wanted key, new ones added while there is room -> (how many were served, keys, text used)."""
    for i in range(len(hashes)):
        look_ahead(text, marks, table, hashes, i)
        at = place_of_string(text, marks, table, wanted, offsets[i], offsets[i + 1], hashes[i])
        if table[at] < 0:
            if count >= room:
                return i, count, used
            marks[2 * count] = used
            marks[2 * count + 1] = ((offsets[i + 1] - offsets[i]) << 31) | hashes[i]
            for j in range(offsets[i], offsets[i + 1]):
                text[used] = wanted[j]
                used += 1
            table[at] = count
            count += 1
        slots[i] = table[at]
    return len(hashes), count, used
