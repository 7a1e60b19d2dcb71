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
from calibeat.core.randomness import mix_word, stream_keys
from calibeat.core.subset import entry, kernel, prefetch
from calibeat.errors import InvalidInput

Key = int | str
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]
Chosen = npt.NDArray[np.bool_] | None
Wanted = tuple[Bytes, Ints, Ints]  # keys: strings text[start:end], or the integers that stand in place of the starts

EVERY = slice(None)
MOST_KEYS = 2**31 - 2
DAMAGED, FREE = -2, -3  # in place of a slot
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
class KeyColumn:
    """Keys that are all 64-bit integers or all strings.

    kind : "ints" or "strings".
    numbers : the integers; of strings where each begins in `text`, and where the last ends.
    text : of strings the UTF-8, one behind the other: key i is text[numbers[i]:numbers[i + 1]].
    """

    kind: str
    numbers: Ints
    text: Bytes

    def __len__(self) -> int:
        return len(self.numbers) - (self.kind == "strings")

    @classmethod
    def of_ints(cls, keys: Ints) -> KeyColumn:
        """From an array of 64-bit integers."""
        return cls("ints", keys, np.empty(0, dtype=np.uint8))

    @classmethod
    def of_strings(cls, strings: Sequence[str]) -> KeyColumn:
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
        return cls("strings", offsets, np.frombuffer(bytearray().join(parts), dtype=np.uint8))

    @classmethod
    def of_array(cls, strings: npt.NDArray[np.str_]) -> KeyColumn:
        """From NumPy's strings of a fixed width, which need not become Python strings if they are plain ASCII."""
        strings = np.require(strings, strings.dtype.newbyteorder("="), ["C", "A"])
        width = strings.dtype.itemsize // 4
        text, offsets = np.empty(strings.size * width, dtype=np.uint8), np.zeros(strings.size + 1, dtype=np.int64)
        codes = strings.view(np.uint32) if text.size else np.empty(0, dtype=np.uint32)
        if narrow(np.require(codes, requirements=["W"]), width, text, offsets):
            return cls("strings", offsets, text)
        return cls.of_strings(strings.tolist())

    def plain(self) -> list[Key]:
        """The keys as a list."""
        if self.kind == "ints":
            return self.numbers.tolist()
        text = self.text.tobytes()
        return [text[start:end].decode() for start, end in pairwise(self.numbers.tolist())]

    def part(self, first: int, last: int) -> Wanted:
        """Some of the keys, as the table looks them up."""
        ends = self.numbers[first + 1 : last + 1] if self.kind == "strings" else self.numbers[first:last]
        return self.text, self.numbers[first:last], ends

    def stream_keys(self, seed: int) -> npt.NDArray[np.uint64]:
        """The `stream_key` of each key."""
        return stream_keys(seed, self.kind == "strings", *self.part(0, len(self)))


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


def kind_of(key: int | bytes) -> str:
    """Of which kind the keys beside this one are."""
    return "ints" if isinstance(key, int) else "strings"


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
        return KeyColumn.of_ints(_int64(values))
    if values.dtype.kind == "U":
        return KeyColumn.of_array(values)
    if len(values):
        raise InvalidInput(_not_a_key(values))
    return KeyColumn.of_ints(np.empty(0, dtype=np.int64))


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
            return KeyColumn.of_strings(keys)
    if len(keys) and set(map(type, keys)) == {int} and min(keys) >= _LEAST_INT and max(keys) <= _MOST_INT:
        return KeyColumn.of_ints(np.array(keys, dtype=np.int64))
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
    return KeyColumn.of_ints(np.array(checked, dtype=np.int64))


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

    def of_int(self, key: int) -> int:
        """The hash of one integer."""
        return int_hash(key, *self.words)

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


@entry
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


# Each slot has an entry: of an integer the key itself; of a string two numbers, where its text starts and
# (length << 31) | hash. A wanted key is wanted[start:end], or the integer `start`.


@kernel
def holds(strings: bool, text: Bytes, entries: Ints, slot: int, wanted: Bytes, start: int, end: int, word: int) -> bool:
    """Whether the key of a slot is the wanted one, whose hash is `word`."""
    if not strings:
        return entries[slot] == start
    if entries[2 * slot + 1] != ((end - start) << 31) | word:
        return False
    i, same = entries[2 * slot], start
    if i < 0 or i + end - start > len(text):
        return False
    while same < end and text[i] == wanted[same]:
        i += 1
        same += 1
    return same == end


@kernel
def search(
    strings: bool, text: Bytes, entries: Ints, table: Slots, count: int, wanted: Bytes, start: int, end: int, word: int
) -> int:
    """The slot of a key; `FREE` - place if it is not here, with the free place in the table where it would stand.

    `DAMAGED` if the table points elsewhere or has no free place, as in a file that nobody has checked.
    """
    size = len(table)
    at = home(word, size)
    for _ in range(size):
        slot = table[at] + 0
        if slot < 0:
            return FREE - at
        if slot >= count:
            return DAMAGED
        if holds(strings, text, entries, slot, wanted, start, end, word):
            return slot
        at = at + 1 if at + 1 < size else 0
    return DAMAGED


@kernel
def look_ahead(text: Bytes, entries: Ints, table: Slots, count: int, hashes: Hashes, i: int) -> None:
    """Three steps lead to a string, table, entries and text, each in another place: ask for them before its turn.

    The first slot that a hash leads to is mostly the right one.
    """
    if i + 3 * KEYS_AHEAD < len(hashes):
        prefetch(table, home(hashes[i + 3 * KEYS_AHEAD], len(table)))
        slot = table[home(hashes[i + 2 * KEYS_AHEAD], len(table))] + 0
        if slot >= 0:
            prefetch(entries, 2 * slot)
        slot = table[home(hashes[i + KEYS_AHEAD], len(table))] + 0
        if 0 <= slot < count:
            prefetch(text, entries[2 * slot])


@entry
def find_key(
    strings: bool, text: Bytes, entries: Ints, table: Slots, count: int, wanted: Bytes, start: int, end: int, word: int
) -> int:
    """The slot of one key; -1 if it is not here."""
    slot = search(strings, text, entries, table, count, wanted, start, end, word)
    return slot if slot > FREE else -1


@kernel
def look_up(
    strings: bool,
    text: Bytes,
    entries: Ints,
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
    """The slot of each wanted key -> (how many were served or `DAMAGED`, keys now, bytes of text now).

    A key that is not here is -1 if there is no `room` at all, or gets the next slot while there are fewer keys.
    """
    for i in range(len(hashes)):
        if strings:
            look_ahead(text, entries, table, count, hashes, i)
        slot = search(strings, text, entries, table, count, wanted, starts[i], ends[i], hashes[i])
        if slot < 0:
            if slot == DAMAGED:
                return DAMAGED, count, used
            at = FREE - slot
            slot = -1
            if room > 0:
                if count >= room:
                    return i, count, used
                slot = count
                if strings:
                    entries[2 * slot] = used
                    entries[2 * slot + 1] = ((ends[i] - starts[i]) << 31) | hashes[i]
                    for j in range(starts[i], ends[i]):
                        text[used] = wanted[j]
                        used += 1
                else:
                    entries[slot] = starts[i]
                table[at] = slot
                count += 1
        slots[i] = slot
    return len(hashes), count, used


@entry
def find_keys(
    strings: bool,
    text: Bytes,
    entries: Ints,
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
    """`look_up`, compiled for each kind of keys."""
    if strings:
        return look_up(True, text, entries, table, count, used, room, wanted, starts, ends, hashes, slots)
    return look_up(False, text, entries, table, count, used, room, wanted, starts, ends, hashes, slots)


# ---- the index ---------------------------------------------------------------------------------------------------


class Index:
    """The keys of a bank in the order of their slots, and the table that finds them.

    kind : "ints" or "strings".
    seed : of the hashes; by default a random one.
    """

    def __init__(self, kind: str, seed: Seed | None = None) -> None:
        self.kind, self.seed = kind, seed or Seed.random()
        self.count = 0
        self.table: Slots = np.full(_SMALLEST_TABLE, -1, dtype=np.int32)
        self._strings = kind == "strings"
        self._width = 2 if self._strings else 1  # numbers of an entry
        self._entries: Ints = np.empty(0, dtype=np.int64)
        self._text: Bytes = np.empty(0, dtype=np.uint8)
        self._used = 0  # bytes of text

    def __iter__(self) -> Iterator[Key]:
        return (self.key(slot) for slot in range(self.count))

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and of the table."""
        return 8 * self._width * self.count + self._used + self.table.nbytes

    # ---- look-ups ------------------------------------------------------------------------------------------------

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        slots = np.empty(len(column), dtype=np.int32)
        for first in range(0, len(column), _HASHED_AT_ONCE):
            last = min(first + _HASHED_AT_ONCE, len(column))
            self._find(column.part(first, last), slots[first:last])
        return slots

    def add(self, column: KeyColumn) -> Slots:
        """The slot of each key; one that is not here yet gets the next free slot."""
        slots, before = np.empty(len(column), dtype=np.int32), self.table
        for first in range(0, len(column), _HASHED_AT_ONCE):
            at, last = first, min(first + _HASHED_AT_ONCE, len(column))
            while at < last:
                wanted = column.part(at, last)
                # How many more keys fit before the table or the list of keys has to grow.
                room = int(_FULLEST * len(self.table))
                size = int(wanted[2][-1] - wanted[1][0]) if self._strings else 0  # bytes of text
                self._reserve(min(room, self.count + last - at), size)
                done, self.count, self._used = self._find(wanted, slots[at:last], room)
                at += done
                if at < last:  # make room for all that are left, or for twice as many as there are
                    left = min(len(column) - at, max(last - at, self.count))
                    self._resize(max(int((self.count + left) / _FULLEST) + 1, self._larger()))
        if self.table is not before and 2 * self.count < len(self.table):  # it has grown for keys that were not new
            self._resize(int(_GROWTH * self.count / _FULLEST))
        return slots

    def _find(self, wanted: Wanted, slots: Slots, room: int = 0) -> tuple[int, int, int]:
        done, count, used = find_keys(
            self._strings,
            self._text,
            self._entries,
            self.table,
            self.count,
            self._used,
            room,
            *wanted,
            self._hash(wanted),
            slots,
        )
        return _undamaged(done), count, used

    def _hash(self, wanted: Wanted) -> Hashes:
        return self.seed.of_strings(*wanted) if self._strings else self.seed.of_ints(wanted[1])

    def find_one(self, key: int | bytes) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        if isinstance(key, bytes):
            text, start, end, word = key, 0, len(key), self.seed.of_bytes(key)
        else:
            text, start, end, word = b"", key, key, self.seed.of_int(key)
        find: Any = find_key  # bytes are read like an array
        return _undamaged(
            find(self._strings, self._text, self._entries, self.table, self.count, text, start, end, word)
        )

    def add_one(self, key: int | bytes) -> int:
        """The slot of one key, which is new or not."""
        numbers = [0, len(key)] if isinstance(key, bytes) else [key]
        text = np.frombuffer(key if isinstance(key, bytes) else b"", dtype=np.uint8)
        return int(self.add(KeyColumn(self.kind, np.array(numbers, dtype=np.int64), text.copy()))[0])

    # ---- keys that leave, and tables that grow ---------------------------------------------------------------------

    def remove(self, slot: int) -> None:
        """Forget the key of a slot; the key of the last slot moves there.

        The text of a string stays as a gap, until its room is needed or the bank is saved.
        """
        self._unlink(slot)
        last = self.count - 1
        if slot != last:
            self.table[self._place(last, last)] = slot
        self.entry(slot)[:] = self.entry(last)
        self.count = last

    def relink(self, count: int) -> None:
        """Make the table anew for the keys before slot `count`, whatever state it is in; forget the keys behind."""
        self.count = count
        if self._strings:
            _, _, ends = self._own(0, count)
            self._used = int(ends.max(initial=0))
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

    def _larger(self) -> int:
        return int(_GROWTH * len(self.table)) + _SMALLEST_TABLE

    def _resize(self, size: int) -> None:
        size = max(size, int(self.count / _FULLEST) + _SMALLEST_TABLE)
        table: Slots = np.full(size, -1, dtype=np.int32)
        for first in range(0, self.count, _HASHED_AT_ONCE):
            link(table, self._hashes(first, min(first + _HASHED_AT_ONCE, self.count)), first)
        self.table = table

    def _reserve(self, room: int, size: int) -> None:
        """Make room for so many keys, and so many more bytes of text."""
        if self._used + size > len(self._text) and self._has_gaps():
            column, entries = self.column(), self._entries.copy()
            entries[: 2 * self.count : 2] = column.numbers[:-1]
            self._text, self._entries, self._used = column.text, entries, len(column.text)
        self._text = with_room(self._text, self._used, self._used + size)
        self._entries = with_room(self._entries, self._width * self.count, self._width * room)

    def _has_gaps(self) -> bool:
        return self._strings and int((self._entries[1 : 2 * self.count : 2] >> 31).sum()) != self._used

    # ---- the keys ------------------------------------------------------------------------------------------------

    def key(self, slot: int) -> Key:
        """The key of a slot."""
        if not self._strings:
            return self._entries.item(slot)
        start, mark = self.entry(slot).tolist()
        return self._text[start : start + (mark >> 31)].tobytes().decode()

    def entry(self, slot: int) -> Ints:
        """What the list of keys holds of a slot, as a view."""
        return self._entries[self._width * slot : self._width * (slot + 1)]

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[Any]:
        """The keys of some slots, or of all."""
        if not self._strings:
            return self._entries[: self.count][slots].copy()
        chosen = range(self.count)[slots] if isinstance(slots, slice) else slots.tolist()
        names = [*map(self.key, chosen), None]  # the None keeps NumPy from looking into a lone string
        return np.array(names, dtype=object)[:-1]

    def column(self, chosen: Chosen = None) -> KeyColumn:
        """The keys of all slots, or of some, as they would come in."""
        text, starts, ends = self._own(0, self.count)
        if chosen is not None:
            starts, ends = starts[chosen], ends[chosen]
        if not self._strings:
            return KeyColumn.of_ints(starts)
        offsets = np.append(0, np.cumsum(ends - starts))
        places = np.repeat(starts - offsets[:-1], ends - starts) + np.arange(offsets[-1])
        return KeyColumn(self.kind, offsets, text[places])

    def stream_keys(self, seed: int, first: int, last: int) -> npt.NDArray[np.uint64]:
        """The `stream_key` of the keys of some slots."""
        return stream_keys(seed, self._strings, *self._own(first, last))

    def _own(self, first: int, last: int) -> Wanted:
        """The keys of some slots."""
        entries = self._entries[self._width * first : self._width * last]
        if not self._strings:
            return self._text, entries.copy(), entries
        starts = entries[::2].copy()
        return self._text, starts, starts + (entries[1::2] >> 31)

    def _hashes(self, first: int, last: int) -> Hashes:
        """The hashes of the keys of some slots; of strings as they are written down."""
        if not self._strings:
            return self._hash(self._own(first, last))
        return (self._entries[2 * first + 1 : 2 * last : 2] & 0x7FFFFFFF).astype(np.int32)

    def find_own(self, first: int, last: int) -> Slots:
        """What `find` would return for the keys of some slots, by the hashes of their text."""
        slots = np.empty(last - first, dtype=np.int32)
        self._find(self._own(first, last), slots)
        return slots

    # ---- as a file -----------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """What a file has to hold: without the text of keys that were forgotten."""
        entries, text = self._entries[: self._width * self.count], self._text[: self._used]
        if not self._strings:
            return {"keys": entries, "table": self.table}
        if self._has_gaps():
            column, entries = self.column(), entries.copy()
            entries[::2], text = column.numbers[:-1], column.text
        return {"text": text, "marks": entries, "table": self.table}

    def restore(self, count: int, arrays: Arrays) -> None:
        """The inverse of `arrays`, without a copy."""
        self.count, self.table = count, arrays["table"]
        self._entries = arrays["marks" if self._strings else "keys"]
        if self._strings:
            self._text, self._used = arrays["text"], len(arrays["text"])


def _undamaged(found: int) -> int:
    if found == DAMAGED:
        raise IndexError("the table points at keys that are not here")
    return found


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
