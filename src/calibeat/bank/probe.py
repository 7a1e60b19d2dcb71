"""Looking keys up in an open-addressing table of slots, with linear probing: the compiled loops of the index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots
from calibeat.core.jit import compilable
from calibeat.core.prefetch import prefetch

from .hashing import Bytes, Hashes, Offsets

Numbers = npt.NDArray[np.int64]

AHEAD = 6  # how many keys before its turn, and before the step before, memory is asked for


@compilable
def home(word: int, size: int) -> int:
    """The place in a table of any size where a hash of 31 bits belongs (Lemire 2019)."""
    return (word * size) >> 31


@compilable
def link(table: Slots, hashes: Hashes, first: int) -> None:
    """Put the slots first, first + 1, ... in the table, where there is room for them."""
    size = len(table)
    for i in range(len(hashes)):
        at = home(hashes[i], size)
        while table[at] >= 0:
            at = at + 1 if at + 1 < size else 0
        table[at] = first + i


# ---- integers ----------------------------------------------------------------------------------------------------


@compilable
def place_of_int(keys: Numbers, table: Slots, key: int, word: int) -> int:
    """Where the slot of a key stands in the table, or the free place where it would stand."""
    size = len(table)
    at = home(word, size)
    while table[at] >= 0 and keys[table[at]] != key:
        at = at + 1 if at + 1 < size else 0
    return at


@compilable
def find_ints(keys: Numbers, table: Slots, wanted: Numbers, hashes: Hashes, slots: Slots) -> None:
    """The slot of each wanted key, or -1."""
    for i in range(len(wanted)):
        slots[i] = table[place_of_int(keys, table, wanted[i], hashes[i])]


@compilable
def add_ints(
    keys: Numbers, table: Slots, count: int, room: int, wanted: Numbers, hashes: Hashes, slots: Slots
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


@compilable
def place_of_string(text: Bytes, marks: Numbers, table: Slots, wanted: Bytes, start: int, end: int, word: int) -> int:
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


@compilable
def look_ahead(text: Bytes, marks: Numbers, table: Slots, hashes: Hashes, i: int) -> None:
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


@compilable
def find_strings(
    text: Bytes,
    marks: Numbers,
    table: Slots,
    wanted: Bytes,
    starts: Offsets,
    ends: Offsets,
    hashes: Hashes,
    slots: Slots,
) -> None:
    """The slot of each wanted key, or -1."""
    for i in range(len(hashes)):
        look_ahead(text, marks, table, hashes, i)
        slots[i] = table[place_of_string(text, marks, table, wanted, starts[i], ends[i], hashes[i])]


@compilable
def add_strings(
    text: Bytes,
    marks: Numbers,
    table: Slots,
    count: int,
    used: int,
    room: int,
    wanted: Bytes,
    starts: Offsets,
    ends: Offsets,
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
