"""Keys: columns of them as they come in, their hashes, and the index from keys to slots.

A column of keys (a list, NumPy, Arrow, pandas, polars) is checked once and laid out for the kernels. A slot is the row
of a key in its bank. The index is an open-addressing table of int32 slots with linear probing, filled to between one
half and 0.6: 8 bytes a key, beside the keys themselves. All of it is plain arrays: a bank file holds them as they are,
and `mmap` reads them where they lie.

Hashes have 31 bits and are the same in plain Python, NumPy and compiled code. Each bank has a random seed, which its
file holds. Nobody can choose keys that collide without knowing the seed. Only the order of the table depends on it.

- An integer is mixed twice (SplitMix64's finaliser), with a part of the seed before each.
- A string of up to 64 bytes is a polynomial in a secret point, modulo 2^31 - 1, with three bytes in each coefficient:
  two different strings collide with a probability of at most 23 in 2^31 (Carter & Wegman 1979). Then it is mixed.
- A longer string is hashed by BLAKE2b with the seed as its key.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import shown
from calibeat._util.columns import Column, read_column
from calibeat._util.types import Ints, Slots
from calibeat.core.randomness import mix_word
from calibeat.core.subset import entry, kernel, prefetch
from calibeat.errors import InvalidInput

Key = int | str
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]
Chosen = npt.NDArray[np.bool_] | None

EVERY = slice(None)
MOST_KEYS = 2**31 - 2
DAMAGED = -2  # in place of a slot
MOST_SEED = 2**64 - 1
LONG_STRING = 64  # bytes; longer strings are hashed one by one
PRIME = 2**31 - 1
KEYS_AHEAD = 6  # how many keys before its turn, and before the step before, memory is asked for
_MASK = 0xFFFFFFFFFFFFFFFF
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1
_STRINGS_AT_ONCE = 4096  # strings encoded together, so that each is fetched from memory once
_HASHED_AT_ONCE = 2**16  # keys hashed together: few enough to stay in the cache
_SMALLEST_TABLE = 16
_FULLEST, _GROWTH = 0.6, 1.15


# ---- columns of keys ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntColumn:
    """Keys that are 64-bit integers."""

    keys: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def plain(self) -> list[int]:
        """The keys as a list."""
        return self.keys.tolist()


@dataclass(frozen=True)
class StringColumn:
    """Keys that are strings: UTF-8, one behind the other; key i is text[offsets[i]:offsets[i + 1]]."""

    text: Bytes
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringColumn:
        """From Python strings; a few thousand at once, so that each is fetched from memory once and not thrice."""
        parts: list[bytes] = []
        offsets = np.zeros(len(strings) + 1, dtype=np.int64)
        for first in range(0, len(strings), _STRINGS_AT_ONCE):
            chunk = list(strings[first : first + _STRINGS_AT_ONCE])
            joined = "".join(chunk)
            try:
                parts.append(joined.encode())
            except UnicodeEncodeError:
                row = next(row for row, string in enumerate(strings) if not _is_text(string))
                got = shown(strings[row])
                raise InvalidInput(f"key must be text that can be written as UTF-8, got {got} - at row {row}") from None
            # In plain ASCII a string has as many bytes as characters.
            ascii_only = len(parts[-1]) == len(joined)
            sizes = map(len, chunk) if ascii_only else (len(string.encode()) for string in chunk)
            offsets[first + 1 : first + 1 + len(chunk)] = np.fromiter(sizes, dtype=np.int64, count=len(chunk))
        np.cumsum(offsets, out=offsets)
        return cls(np.frombuffer(bytearray().join(parts), dtype=np.uint8), offsets)

    @classmethod
    def of_array(cls, strings: npt.NDArray[np.str_]) -> StringColumn:
        """From NumPy's strings of a fixed width, which need not become Python strings if they are plain ASCII."""
        strings = np.require(strings, strings.dtype.newbyteorder("="), ["C", "A"])
        width = strings.dtype.itemsize // 4
        text, offsets = np.empty(strings.size * width, dtype=np.uint8), np.zeros(strings.size + 1, dtype=np.int64)
        codes = strings.view(np.uint32) if text.size else np.empty(0, dtype=np.uint32)
        if narrow(np.require(codes, requirements=["W"]), width, text, offsets):
            return cls(text, offsets)
        return cls.of(strings.tolist())

    def plain(self) -> list[bytes]:
        """The keys as a list."""
        text, offsets = self.text.tobytes(), self.offsets.tolist()
        return [text[start:end] for start, end in pairwise(offsets)]


KeyColumn = IntColumn | StringColumn


@entry
def narrow(codes: npt.NDArray[np.uint32], width: int, text: Bytes, offsets: Ints) -> bool:
    """Strings of a fixed width, filled up with zeros, one behind the other; False if one is not plain ASCII."""
    used = 0
    for i in range(len(offsets) - 1):
        last = width
        while last > 0 and codes[i * width + last - 1] == 0:
            last -= 1
        for j in range(i * width, i * width + last):
            if codes[j] > 127:
                return False
            text[used] = codes[j]
            used += 1
        offsets[i + 1] = used
    return True


def check_key(key: Any) -> Key:
    """One key: an integer of 64 bits or a string."""
    if isinstance(key, str):
        if not _is_text(key):
            raise InvalidInput(f"key must be text that can be written as UTF-8, got {shown(key)}")
        return str.__str__(key)  # the text itself, also of an enumeration
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not _LEAST_INT <= key <= _MOST_INT:
            raise InvalidInput(f"key must fit into 64 bits, got {shown(key)}")
        return int(key)
    raise InvalidInput(f"key must be an int or a string, got {type(key).__name__} {shown(key)}")


def plain_key(key: Any) -> int | bytes:
    """One key as an index takes it: an int, or the UTF-8 of a string."""
    checked = check_key(key)
    return checked if isinstance(checked, int) else checked.encode()


def check_keys(keys: Any) -> KeyColumn:
    """A column of keys, all ints or all strings; names the first bad row."""
    wanted = "a one-dimensional array of ints or strings"
    if isinstance(keys, (bytearray, memoryview)):  # whose bytes would be read as numbers
        raise InvalidInput(f"keys must be {wanted}, got {type(keys).__name__}")
    column = read_column("keys", keys, wanted)
    values = column.values
    if column.missing is not None:
        row = int(column.missing.argmax())
        raise InvalidInput(f"key must be an int or a string, got a missing value - at row {row}")
    if isinstance(values, list):
        return _of_objects(values)
    if values.dtype.kind in "iu":
        return IntColumn(_int64(values))
    if values.dtype.kind == "U":
        return StringColumn.of_array(values)
    if len(values):
        raise InvalidInput(_not_a_key(values))
    return IntColumn(np.empty(0, dtype=np.int64))


def _int64(keys: npt.NDArray[Any]) -> Ints:
    if keys.dtype == np.uint64 and (keys > np.uint64(_MOST_INT)).any():
        row = int((keys > np.uint64(_MOST_INT)).argmax())
        raise InvalidInput(f"key must fit into 64 bits with a sign, got {int(keys[row])} - at row {row}")
    return np.require(keys, np.int64, ["C", "A", "W"])


def _not_a_key(keys: npt.NDArray[Any]) -> str:
    """What is wrong with an array of floats, booleans, dates, bytes: a missing key first, it is the likely cause."""
    row = int(Column(keys).absent().argmax())
    return f"key must be an int or a string, got {keys.dtype} {shown(keys[row].item())} - at row {row}"


def _of_objects(keys: list[Any]) -> KeyColumn:
    if len(keys) and isinstance(keys[0], str):
        with suppress(TypeError):  # one of them is no string; the loop below finds it
            return StringColumn.of(keys)
    if len(keys) and set(map(type, keys)) == {int} and min(keys) >= _LEAST_INT and max(keys) <= _MOST_INT:
        return IntColumn(np.array(keys, dtype=np.int64))
    checked: list[Any] = []
    for row, key in enumerate(keys):
        try:
            checked.append(check_key(key))
        except InvalidInput as error:
            raise InvalidInput(f"{error} - at row {row}") from None
        if type(checked[row]) is not type(checked[0]):
            raise InvalidInput(
                f"keys must be all ints or all strings, got {type(checked[row]).__name__} {shown(key)} after "
                f"{type(checked[0]).__name__} {shown(checked[0])} - at row {row}"
            )
    return IntColumn(np.array(checked, dtype=np.int64))


def _is_text(string: str) -> bool:
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- hashes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seed:
    """The secret of one bank's hash table; `value` is what a file holds."""

    value: int

    @classmethod
    def random(cls) -> Seed:
        """A seed that cannot be guessed."""
        return cls(secrets.randbits(64))

    @cached_property
    def words(self) -> tuple[int, int]:
        """Two numbers of 64 bits, for integers."""
        return mix_word(self.value + 1), mix_word(self.value + 2)

    @cached_property
    def point(self) -> tuple[int, int, int]:
        """Point, start and mask of the polynomial, for strings."""
        a, b, c = (mix_word(self.value + i) & _MASK for i in (3, 4, 5))
        return 256 + a % (PRIME - 256), b % PRIME, c & 0xFFFFFFFF

    def of_ints(self, keys: Ints) -> Hashes:
        """The hash of each integer."""
        hashes = np.empty(len(keys), dtype=np.int32)
        hash_ints(keys, *self.words, hashes)
        return hashes

    def of_bytes(self, key: bytes) -> int:
        """The hash of one string, given as UTF-8."""
        if len(key) > LONG_STRING:
            return self._of_long(key)
        return short_hash(key, 0, len(key), *self.point)  # type: ignore[arg-type]  # bytes are read like an array

    def of_strings(self, text: Bytes, starts: Ints, ends: Ints) -> Hashes:
        """The hash of each string text[start:end]."""
        hashes = np.empty(len(starts), dtype=np.int32)
        hash_strings(text, starts, ends, *self.point, hashes)
        for i in np.flatnonzero(ends - starts > LONG_STRING):
            hashes[i] = self._of_long(text[starts[i] : ends[i]].tobytes())
        return hashes

    def _of_long(self, key: bytes) -> int:
        digest = hashlib.blake2b(key, digest_size=4, key=self.value.to_bytes(8, "little")).digest()
        return int.from_bytes(digest, "little") >> 1


@kernel
def int_hash(key: int, first: int, second: int) -> int:
    """The hash of an integer: 31 bits."""
    return (mix_word(mix_word(key ^ first) ^ second) >> 33) & 0x7FFFFFFF


@entry
def hash_ints(keys: Ints, first: int, second: int, hashes: Hashes) -> None:
    """The hash of each integer."""
    for i in range(len(hashes)):
        hashes[i] = int_hash(keys[i], first, second)


@kernel
def folded(x: int) -> int:
    """A number below 2^63 modulo 2^31 - 1, up to a few more than that: 2^31 is 1."""
    x = (x & PRIME) + (x >> 31)
    return (x & PRIME) + (x >> 31)


@entry
def short_hash(text: Bytes, start: int, end: int, point: int, begin: int, mask: int) -> int:
    """The hash of text[start:end], in numbers that never leave 63 bits: the same in every host."""
    h = begin
    j = start
    while j + 3 <= end:
        h = folded(h * point + text[j] + text[j + 1] * 256 + text[j + 2] * 65536)
        j += 3
    rest = 0
    if j < end:
        rest = text[j] + 0
    if j + 1 < end:
        rest += text[j + 1] * 256
    h = folded(h * point + rest)
    h = (h * point + (end - start)) % PRIME
    h ^= mask
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return (h ^ (h >> 16)) & 0x7FFFFFFF


@entry
def hash_strings(text: Bytes, starts: Ints, ends: Ints, point: int, begin: int, mask: int, hashes: Hashes) -> None:
    """The hash of each string that is not long."""
    for i in range(len(hashes)):
        if ends[i] - starts[i] <= LONG_STRING:
            hashes[i] = short_hash(text, starts[i], ends[i], point, begin, mask)


# ---- the table: compiled loops -----------------------------------------------------------------------------------


@kernel
def home(word: int, size: int) -> int:
    """The place in a table of any size where a hash of 31 bits belongs (Lemire 2019)."""
    return (word * size) >> 31


@entry
def link(table: Slots, hashes: Hashes, first: int) -> None:
    """Put the slots first, first + 1, ... in the table, where there is room for them."""
    size = len(table)
    for i in range(len(hashes)):
        at = home(hashes[i], size)
        while table[at] >= 0:
            at = at + 1 if at + 1 < size else 0
        table[at] = first + i


# ---- integers ----------------------------------------------------------------------------------------------------


@kernel
def place_of_int(keys: Ints, table: Slots, key: int, word: int) -> int:
    """Where the slot of a key stands in the table, or the free place where it would stand."""
    size = len(table)
    at = home(word, size)
    while table[at] >= 0 and keys[table[at]] != key:
        at = at + 1 if at + 1 < size else 0
    return at


@entry
def find_int(keys: Ints, table: Slots, count: int, key: int, first: int, second: int) -> int:
    """The slot of one key; -1 if it is not here, `DAMAGED` if the table points elsewhere."""
    size = len(table)
    at = home(int_hash(key, first, second), size)
    for _ in range(size):  # in a file that was not checked no place may be free
        slot = table[at] + 0
        if slot >= count:
            return DAMAGED
        if slot < 0 or keys[slot] == key:
            return slot
        at = at + 1 if at + 1 < size else 0
    return -1


@entry
def find_ints(keys: Ints, table: Slots, wanted: Ints, hashes: Hashes, slots: Slots) -> None:
    """The slot of each wanted key, or -1."""
    for i in range(len(wanted)):
        slots[i] = table[place_of_int(keys, table, wanted[i], hashes[i])]


@entry
def add_ints(
    keys: Ints, table: Slots, count: int, room: int, wanted: Ints, hashes: Hashes, slots: Slots
) -> tuple[int, int]:
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


# ---- strings -----------------------------------------------------------------------------------------------------
# Slot s has two marks: marks[2 s] is where its text starts, marks[2 s + 1] is (length << 31) | hash.


@kernel
def place_of_string(text: Bytes, marks: Ints, table: Slots, wanted: Bytes, start: int, end: int, word: int) -> int:
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
def look_ahead(text: Bytes, marks: Ints, table: Slots, hashes: Hashes, i: int) -> None:
    """Three steps lead to a key, table, marks and text, each in another place: ask for them well before its turn.

    The first slot that a hash leads to is mostly the right one.
    """
    if i + 3 * KEYS_AHEAD < len(hashes):
        prefetch(table, home(hashes[i + 3 * KEYS_AHEAD], len(table)))
        slot = table[home(hashes[i + 2 * KEYS_AHEAD], len(table))]
        if slot >= 0:
            prefetch(marks, 2 * slot)
        slot = table[home(hashes[i + KEYS_AHEAD], len(table))]
        if slot >= 0:
            prefetch(text, marks[2 * slot])


@entry
def find_string(text: Bytes, marks: Ints, table: Slots, count: int, key: Bytes, word: int) -> int:
    """The slot of one key, whose hash is given; -1 if it is not here, `DAMAGED` if the table points elsewhere."""
    size = len(table)
    at = home(word, size)
    mark = (len(key) << 31) | word
    for _ in range(size):  # in a file that was not checked no place may be free
        slot = table[at] + 0
        if slot >= count:
            return DAMAGED
        if slot < 0:
            return slot
        if marks[2 * slot + 1] == mark:
            start, same = marks[2 * slot], 0
            if start < 0 or start + len(key) > len(text):
                return DAMAGED
            while same < len(key) and text[start + same] == key[same]:
                same += 1
            if same == len(key):
                return slot
        at = at + 1 if at + 1 < size else 0
    return -1


@entry
def find_strings(
    text: Bytes, marks: Ints, table: Slots, wanted: Bytes, starts: Ints, ends: Ints, hashes: Hashes, slots: Slots
) -> None:
    """The slot of each wanted key, or -1."""
    for i in range(len(hashes)):
        look_ahead(text, marks, table, hashes, i)
        slots[i] = table[place_of_string(text, marks, table, wanted, starts[i], ends[i], hashes[i])]


@entry
def add_strings(
    text: Bytes,
    marks: Ints,
    table: Slots,
    count: int,
    used: int,
    room: int,
    wanted: Bytes,
    starts: Ints,
    ends: Ints,
    hashes: Hashes,
    slots: Slots,
) -> tuple[int, int, int]:
    """The slot of each wanted key, new ones added while there is room -> (how many were served, keys, text used)."""
    for i in range(len(hashes)):
        look_ahead(text, marks, table, hashes, i)
        at = place_of_string(text, marks, table, wanted, starts[i], ends[i], hashes[i])
        if table[at] < 0:
            if count >= room:
                return i, count, used
            marks[2 * count] = used
            marks[2 * count + 1] = ((ends[i] - starts[i]) << 31) | hashes[i]
            for j in range(starts[i], ends[i]):
                text[used] = wanted[j]
                used += 1
            table[at] = count
            count += 1
        slots[i] = table[at]
    return len(hashes), count, used


# ---- the index ---------------------------------------------------------------------------------------------------


class Index(ABC):
    """The keys of a bank in the order of their slots, and the table that finds them."""

    def __init__(self, seed: Seed | None = None) -> None:
        self.seed = seed or Seed.random()
        self.count = 0
        self.table: Slots = np.full(_SMALLEST_TABLE, -1, dtype=np.int32)

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _HASHED_AT_ONCE):
            self._find(column, first, min(first + _HASHED_AT_ONCE, len(column)), slots)
        return slots

    def add(self, column: KeyColumn) -> Slots:
        """The slot of each key; one that is not here yet gets the next free slot."""
        slots, before = np.empty(len(column), dtype=np.int32), self.table
        for first in range(0, len(column), _HASHED_AT_ONCE):
            at, last = first, min(first + _HASHED_AT_ONCE, len(column))
            while at < last:
                # How many more keys fit before the table or the list of keys has to grow.
                room = int(_FULLEST * len(self.table))
                self._reserve(min(room, self.count + last - at), column, at, last)
                at, self.count = self._add(column, at, last, slots, room)
                if at < last:  # make room for all that are left, or for twice as many as there are
                    left = min(len(column) - at, max(last - at, self.count))
                    self._grow(int((self.count + left) / _FULLEST) + 1)
        if self.table is not before and 2 * self.count < len(self.table):  # it has grown for keys that were not new
            self._resize(int(_GROWTH * self.count / _FULLEST))
        return slots

    def find_one(self, key: Any) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        slot = self._find_one(key)
        if slot == DAMAGED:
            raise IndexError("the table points at keys that are not here")
        return slot

    def add_one(self, key: Any) -> int:
        """The slot of one key, which is new or not."""
        slot = self.find_one(key)
        if slot >= 0:
            return slot
        if self.count >= int(_FULLEST * len(self.table)):
            self._grow()
        self._append(key)
        self.table[self._place(self.count, -1)] = self.count
        self.count += 1
        return self.count - 1

    def remove(self, slot: int) -> None:
        """Forget the key of a slot; the key of the last slot moves there."""
        self._unlink(slot)
        last = self.count - 1
        if slot != last:
            self.table[self._place(last, last)] = slot
        self._move(last, slot)
        self.count = last

    def relink(self, count: int) -> None:
        """Make the table anew for the keys before slot `count`, whatever state it is in; forget the keys behind."""
        self.count = count
        self._resize(len(self.table))

    def _unlink(self, slot: int) -> None:
        """Take a slot out of the table, and set those behind it anew: a search must not end at the gap."""
        table = self.table
        at = self._place(slot, slot)
        table[at] = -1
        at = (at + 1) % len(table)
        while table[at] >= 0:
            moved, table[at] = int(table[at]), -1
            table[self._place(moved, -1)] = moved
            at = (at + 1) % len(table)

    def _place(self, slot: int, entry: int) -> int:
        """The first place in the table, from where the key of a slot belongs, that holds this entry: a slot or -1."""
        at = home(int(self._hashes(slot, slot + 1)[0]), len(self.table))
        while self.table[at] != entry:
            at = (at + 1) % len(self.table)
        return at

    def _grow(self, size: int = 0) -> None:
        self._resize(max(size, int(_GROWTH * len(self.table)) + _SMALLEST_TABLE))

    def _resize(self, size: int) -> None:
        size = max(size, int(self.count / _FULLEST) + _SMALLEST_TABLE)
        table: Slots = np.full(size, -1, dtype=np.int32)
        for first in range(0, self.count, _HASHED_AT_ONCE):
            link(table, self._hashes(first, min(first + _HASHED_AT_ONCE, self.count)), first)
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
    def find_own(self, first: int, last: int) -> Slots:
        """What `find` would say of the keys of some slots."""

    @abstractmethod
    def entry(self, slot: int) -> Ints:
        """What the list of keys holds of a slot, as a view."""

    @abstractmethod
    def _find_one(self, key: Any) -> int: ...

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
        self._keys: Ints = np.empty(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return 8 * self.count + self.table.nbytes

    def key(self, slot: int) -> int:
        return int(self._keys[slot])

    def names(self, slots: Slots | slice = EVERY) -> Ints:
        return self._keys[: self.count][slots].copy()

    def column(self, chosen: Chosen = None) -> IntColumn:
        return IntColumn(self.names() if chosen is None else self._keys[: self.count][chosen])

    def arrays(self) -> Arrays:
        return {"keys": self._keys[: self.count], "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        self.count, self._keys, self.table = count, arrays["keys"], arrays["table"]

    def find_own(self, first: int, last: int) -> Slots:
        slots = np.empty(last - first, dtype=np.int32)
        find_ints(self._keys, self.table, self._keys[first:last], self._hashes(first, last), slots)
        return slots

    def entry(self, slot: int) -> Ints:
        return self._keys[slot : slot + 1]

    def _find_one(self, key: int) -> int:
        return find_int(self._keys, self.table, self.count, key, *self.seed.words)

    def _append(self, key: int) -> None:
        self._keys = with_room(self._keys, self.count, self.count + 1)
        self._keys[self.count] = key

    def _find(self, column: IntColumn, first: int, last: int, slots: Slots) -> None:
        wanted = column.keys[first:last]
        find = find_ints
        find(self._keys, self.table, wanted, self.seed.of_ints(wanted), slots[first:last])

    def _add(self, column: IntColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        wanted = column.keys[first:last]
        done, count = add_ints(
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
        self._text: Bytes = np.empty(0, dtype=np.uint8)
        self._marks: Ints = np.empty((0, 2), dtype=np.int64)
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

    def find_own(self, first: int, last: int) -> Slots:
        """By the hashes of the text: those that are written down may be wrong."""
        starts, slots = self._marks[first:last, 0].copy(), np.empty(last - first, dtype=np.int32)
        ends = starts + (self._marks[first:last, 1] >> 31)
        hashes = self.seed.of_strings(self._text, starts, ends)
        find_strings(self._text, self._marks.reshape(-1), self.table, self._text, starts, ends, hashes, slots)
        return slots

    def entry(self, slot: int) -> Ints:
        return self._marks[slot]

    def _find_one(self, key: bytes) -> int:
        find: Any = find_string
        return int(find(self._text, self._marks.reshape(-1), self.table, self.count, key, self.seed.of_bytes(key)))

    def _append(self, key: bytes) -> None:
        self._make_room(self.count + 1, len(key))
        self._text[self._used : self._used + len(key)] = np.frombuffer(key, dtype=np.uint8)
        self._marks[self.count] = self._used, (len(key) << 31) | self.seed.of_bytes(key)
        self._used += len(key)

    def _find(self, column: StringColumn, first: int, last: int, slots: Slots) -> None:
        find: Any = find_strings
        find(self._text, self._marks.reshape(-1), self.table, *self._wanted(column, first, last), slots[first:last])

    def _add(self, column: StringColumn, first: int, last: int, slots: Slots, room: int) -> tuple[int, int]:
        add: Any = add_strings
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
        hashes = self.seed.of_strings(column.text, starts, ends)
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

    def _gathered(self, marks: Ints) -> tuple[Bytes, Ints]:
        """The text of some keys, one behind the other, and where each starts."""
        sizes = marks[:, 1] >> 31
        starts = np.cumsum(sizes) - sizes
        places = np.repeat(marks[:, 0] - starts, sizes) + np.arange(int(sizes.sum()))
        return self._text[places], starts


def with_room(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array itself, or a larger one with the same beginning; memory that is not touched is not resident."""
    if wanted <= len(array):
        return array
    larger = np.empty((max(wanted, len(array) * 3 // 2), *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


# ---- tables that come from a file --------------------------------------------------------------------------------


def check_text(text: Bytes, marks: Ints) -> None:
    """Raise unless each pair of marks cuts whole characters out of the text, which is UTF-8."""
    starts, sizes = marks[::2], marks[1::2] >> 31
    if not ((starts >= 0) & (sizes >= 0) & (starts <= len(text) - sizes)).all():
        raise InvalidInput("marks must point into the text, got others")
    bytes(text).decode()  # raises a ValueError that says where
    padded = np.append(text, np.uint8(0))
    if ((padded[starts] & 0xC0) == 0x80).any() or ((padded[starts + sizes] & 0xC0) == 0x80).any():
        raise InvalidInput("marks must point at whole characters of the text, got others")


def check_table(table: npt.NDArray[np.int32], count: int) -> None:
    """Raise unless a table has a free place, and points at as many slots as there are, and at no others.

    That it points at each of them is for `check_index` to find.
    """
    used = int(np.count_nonzero(table != -1))
    if len(table) <= count or used != count or table.min() < -1 or table.max(initial=-1) >= count:
        raise InvalidInput(f"table must point once at each of the {count} slots and have places left, got another")


def check_index(index: Index) -> None:
    """Raise unless each key is found in its own slot: no key is there twice, and none is lost."""
    for first in range(0, index.count, _HASHED_AT_ONCE):
        last = min(first + _HASHED_AT_ONCE, index.count)
        found = index.find_own(first, last)
        wrong = found != np.arange(first, last)
        if wrong.any():
            at = int(wrong.argmax())
            what = "a key that is not found" if found[at] < 0 else "the same key twice"
            raise InvalidInput(f"index must find each key in its own slot, got {what} - at slot {first + at}")
