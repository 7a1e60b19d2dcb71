"""A bank as one file: a page of JSON that says what follows, then its arrays as they lie in memory.

===========  ===============================================================================================
bytes        hold
===========  ===============================================================================================
0 - 7        the magic word
8 - 11       the version of the format, 12 - 15 the length of the header
16 - 47      SHA-256 of the header
48 -         the header, JSON up to the end of a page of 4096 bytes: method, seed, clock, count, and for each array its
             place, length and checksum
then         the arrays, little-endian, each from the beginning of a page, with zeros behind it up to the end of one
===========  ===============================================================================================

The checksums find damage: any one of these bytes that has changed, whichever it is. They are no signature.
"""

from __future__ import annotations

import hashlib
import json
import mmap as memory
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import checksum
from calibeat._util.check import check_choice, check_whole
from calibeat._util.files import atomic, checked_path, open_regular, refuse_obstacle
from calibeat.core.layout import N
from calibeat.core.limits import check_row, check_rows
from calibeat.core.stats import STATS
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.notice import Notice

from .keys import MOST_SEED, Seed, check_index, check_table, check_text

if TYPE_CHECKING:
    from .bank import Bank

Sections = dict[str, npt.NDArray[Any]]

MAGIC, FORMAT, PAGE = b"calibank", 3, 4096
_BYTES_AT_ONCE = 2**23  # a part of an array: each checksum goes on from the one before. Large writes are read faster
_MOST_HEADER = 2**20  # bytes: ours have a thousand
_START = struct.Struct("<8sII32s")
_TYPES = {"pool": "<f8", "rows": "<f8", "keys": "<i8", "table": "<i4", "text": "|u1", "marks": "<i8"}
_TYPES |= {"ledgers": "<i8", "settled": "|u1", "uncertain": "|u1"}
_TYPES |= {"monitors": "<f8", "waiting": "|u1", "notices": "<f8", "open": "|u1"}
_OPTIONAL = ("ledgers", "settled", "uncertain", "monitors", "waiting", "notices", "open")  # not in every file
_PLACE = {"offset", "bytes", "checksum"}  # what the header says of an array
_NOT_A_BANK = (InvalidInput, KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
_SECTIONS_OF_KEYS = {"none": (), "ints": ("keys", "table"), "strings": ("text", "marks", "table")}


# ---- writing -----------------------------------------------------------------------------------------------------


def save(bank: Bank, path: Path) -> None:
    """Write to a file beside the target, read that again, and put it in its place if it holds what was written.

    Rows and keys are the bank's own. They are checked when they come from outside: by `load`.
    """
    check = partial(_load, type(bank), mmap=True, checksums=True, content=False, threads=1)
    with atomic(_behind_links(path), check=check) as file, bank._rows:
        _write(file, header_of(bank), sections_of(bank))


def _behind_links(path: Path) -> Path:
    """The file that is replaced: that of a link, which stays."""
    refuse_obstacle(checked_path(path))
    return Path(os.path.realpath(path))


def _write(file: Any, header: dict[str, Any], sections: Sections) -> None:
    arrays = {name: np.ascontiguousarray(array, dtype=_TYPES[name]) for name, array in sections.items()}
    places: dict[str, dict[str, Any]] = {
        name: {"offset": 0, "bytes": array.nbytes, "checksum": "0" * 16} for name, array in arrays.items()
    }
    # The header's own length depends on the offsets, which depend on its length: leave room for the largest ones.
    first = at = _pages(_START.size + len(json.dumps({**header, "arrays": places})) + 20 * len(places))
    for name, array in arrays.items():
        places[name]["offset"] = at
        at += _pages(array.nbytes)
        file.seek(places[name]["offset"])
        places[name]["checksum"] = _written(file, array)
    text = json.dumps({**header, "arrays": places}).encode().ljust(first - _START.size)
    file.seek(0)
    file.write(_START.pack(MAGIC, FORMAT, len(text), hashlib.sha256(text).digest()) + text)


def _written(file: Any, array: npt.NDArray[Any]) -> str:
    """Write whole pages; the checksum of what was written."""
    total = 0
    for part in _parts(array.data.cast("B") if array.nbytes else memoryview(b"")):
        pages = bytes(part).ljust(_pages(len(part)), b"\0") if len(part) % PAGE else part
        total = checksum(pages, total)
        file.write(pages)
    return f"{total:016x}"


def _parts(content: memoryview) -> Iterator[memoryview]:
    return (content[first : first + _BYTES_AT_ONCE] for first in range(0, len(content), _BYTES_AT_ONCE))


# ---- reading -----------------------------------------------------------------------------------------------------


def load(kind: type[Bank], path: Path, *, mmap: bool, verify: bool, threads: int) -> Bank:
    """The bank of a file; anything that is not one, whole and undamaged, is a `SnapshotMismatch`."""
    bank = _load(kind, path, mmap=mmap, checksums=verify, content=verify, threads=threads)
    rows = bank._rows
    rows.writable = not mmap
    if mmap:
        rows._shut()
    else:
        _begin_generation(bank)
    return bank


def _begin_generation(bank: Bank) -> None:
    for part in bank._rows.watching.parts:
        part.realign()
    bank._rows.begin_generation()


def _load(kind: type[Bank], path: Path, *, mmap: bool, checksums: bool, content: bool, threads: int) -> Bank:
    """A bank whose arrays are those of a file, of which the checksums are compared, and every row and key checked."""
    with open_regular(path, "bank file") as file:
        header = _header(path, file)
        size = os.fstat(file.fileno()).st_size
        try:
            bank = _empty(kind, header, threads)
            sizes = {
                name: place["bytes"] // np.dtype(_TYPES[name]).itemsize for name, place in header["arrays"].items()
            }
            _check_lengths(bank._rows.method, header, sizes)  # before memory is asked for
            arrays = _arrays(path, header, _mapped(file) if mmap else _read(file), verify=checksums)
            _fill(bank, header, arrays, verify=content)
        except _NOT_A_BANK as error:
            raise SnapshotMismatch(f"bank file must hold what a bank can hold: {error} - in {path}") from error
        except MemoryError:
            raise _too_large(path, size, "" if mmap else ", open it with mmap=True") from None
    return bank


def holds_classes(path: Path) -> bool:
    """Whether a file holds a `MultiBank`."""
    with open_regular(path, "bank file") as file:
        return "multi" in _header(path, file)


def copied(kind: type[Bank], header: dict[str, Any], sections: Sections, threads: int) -> Bank:
    """A bank of its own, with what is under way."""
    bank = revived(kind, header, sections, threads, verify=False)
    _begin_generation(bank)
    return bank


def header_of(bank: Bank) -> dict[str, Any]:
    """What a bank is, without its arrays."""
    index = bank._rows.index
    return {
        **bank._header(),
        "clock": bank._rows.clock,
        "count": len(bank),
        "keys": bank._rows.kind,
        "hash_seed": None if index is None else index.seed.value,
        **({} if bank.watched is None else {"monitor": asdict(bank.watched)}),
        **({} if bank.noticed is None else {"notice": asdict(bank.noticed)}),
    }


def sections_of(bank: Bank) -> Sections:
    """The arrays of a bank, with the ledgers of keys that wait for an outcome."""
    rows = bank._rows
    return {"pool": rows.pool, **rows.arrays(), **rows.open_ledgers()}


def revived(kind: type[Bank], header: dict[str, Any], sections: Sections, threads: int, *, verify: bool) -> Bank:
    """The bank that `header_of` and `sections_of` were taken of; its arrays are these, not copies."""
    bank = _empty(kind, header, threads)
    _fill(bank, header, sections, verify=verify)
    return bank


def _empty(kind: type[Bank], header: dict[str, Any], threads: int) -> Bank:
    kinds: dict[str, Any] = {"monitor": Monitor, "notice": Notice}
    watched = {name: made(**header[name]) for name, made in kinds.items() if name in header}
    return kind._of_header(header, threads, watched)


def _fill(bank: Bank, header: dict[str, Any], sections: Sections, *, verify: bool) -> None:
    rows = bank._rows
    _check_lengths(rows.method, header, {name: len(array) for name, array in sections.items()})
    if verify:
        _check_content(rows.method, header, sections)
    seed = Seed(header["hash_seed"]) if "table" in sections else None
    rows.restore(header["keys"], seed, header["count"], header["clock"], sections)
    if verify and rows.index is not None:
        check_index(rows.index)
    for part in rows.watching.parts if verify else ():
        part.settings.check_rows(part.matrix)
    rows.restore_ledgers(sections)


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _mapped(file: Any) -> Any:
    # Private pages make arrays that the kernels take like all others. Nothing is written, so nothing is copied. The
    # system must not set memory aside for copies either, or it would refuse a file that is larger than memory.
    if os.name == "posix":
        flags = memory.MAP_PRIVATE | getattr(memory, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
        return memory.mmap(file.fileno(), 0, flags=flags, prot=memory.PROT_READ | memory.PROT_WRITE)
    return memory.mmap(file.fileno(), 0, access=memory.ACCESS_COPY)  # pragma: no cover - other systems


def _read(file: Any) -> npt.NDArray[np.uint8]:
    file.seek(0)
    # Memory of NumPy's: large pages, and not filled with zeros first. That is most of the time of a read.
    buffer = np.empty(os.fstat(file.fileno()).st_size, dtype=np.uint8)
    if file.readinto(buffer) != len(buffer):
        raise InvalidInput("a file that is being cut")
    return buffer


def _header(path: Path, file: Any) -> dict[str, Any]:
    start, size = file.read(_START.size), os.fstat(file.fileno()).st_size
    if len(start) < _START.size or not start.startswith(MAGIC):
        raise SnapshotMismatch(f"bank file must begin with {MAGIC.decode()!r}, got {start[:8]!r} - in {path}")
    _, version, length, digest = _START.unpack(start)
    if version != FORMAT:
        raise SnapshotMismatch(f"bank file must be of version {FORMAT}, got {version} - in {path}")
    text = file.read(min(length, size, _MOST_HEADER))
    if hashlib.sha256(text).digest() != digest:
        raise SnapshotMismatch(f"bank file must have an undamaged header, got another checksum - in {path}")
    try:
        header: dict[str, Any] = json.loads(text)
        end = _end_of_all(header["arrays"], size)
    except (InvalidInput, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SnapshotMismatch(
            f"bank file must have a header that can be read, got {error!r:.200} - in {path}"
        ) from error
    if size != end:
        raise SnapshotMismatch(f"bank file must have {end} bytes, got {size} - in {path}, it was cut or damaged")
    return header


def _too_large(path: Path, size: int, advice: str = "") -> InvalidInput:
    return InvalidInput(f"bank file must fit in memory, got {size} bytes - in {path}{advice}")


def _end_of_all(places: dict[str, dict[str, Any]], size: int) -> int:
    """Where the last array ends. They follow one another, so that no header makes us read what no array holds."""
    unknown = next((name for name in places if name not in _TYPES), None)
    if unknown is not None:
        raise InvalidInput(f"arrays must be of {', '.join(_TYPES)}, got {unknown!r:.50}")
    other = next((place for place in places.values() if set(place) != _PLACE), None)
    if other is not None:
        raise InvalidInput(f"arrays must have an offset, bytes and a checksum, got {', '.join(other)!r:.80}")
    end = 0
    for place in sorted(places.values(), key=lambda place: (place["offset"], place["bytes"])):
        if end and place["offset"] != end:
            raise InvalidInput(f"arrays must follow one another, got one at {place['offset']} after the end at {end}")
        first = check_whole("offset", place["offset"], 0, size)
        if first % PAGE:
            raise InvalidInput(f"offset must be a multiple of {PAGE}, got {first}")
        end = _pages(first + check_whole("bytes", place["bytes"], 0, size))
    return end


def _arrays(path: Path, header: dict[str, Any], buffer: Any, *, verify: bool) -> Sections:
    check_choice("keys", header["keys"], tuple(_SECTIONS_OF_KEYS))
    arrays: Sections = {}
    for name in (
        "pool",
        *_SECTIONS_OF_KEYS[header["keys"]],
        "rows",
        *(name for name in _OPTIONAL if name in header["arrays"]),
    ):
        place = header["arrays"][name]
        pages = memoryview(buffer)[place["offset"] : _pages(place["offset"] + place["bytes"])]
        if verify and _checksum(pages) != place["checksum"]:
            raise SnapshotMismatch(f"bank file must have its {name} undamaged, got another checksum - in {path}")
        arrays[name] = np.frombuffer(pages[: place["bytes"]], dtype=_TYPES[name])
    return arrays


def _checksum(content: memoryview) -> str:
    total = 0
    for part in _parts(content):
        total = checksum(part, total)
    return f"{total:016x}"


def _check_lengths(method: Any, header: dict[str, Any], lengths: dict[str, int]) -> None:
    """Lengths that fit together."""
    count, width = check_whole("count", header["count"], 0, 2**31), method.width
    check_whole("clock", header["clock"], 0, 2**53)
    if "table" in lengths:
        check_whole("hash_seed", header["hash_seed"], 0, MOST_SEED)
    wanted = {"pool": width, "rows": count * (width + STATS), "keys": count, "marks": 2 * count, "uncertain": count}
    for watcher in ("monitor", "notice"):
        if (watcher in header) != (f"{watcher}s" in lengths):
            raise InvalidInput(f"{watcher}s must be there where the header has a {watcher}, got one without the other")
    for name, length in lengths.items():
        if name in wanted and length != wanted[name]:
            raise InvalidInput(f"{name} must have {wanted[name]} numbers, got {length}")
    if "table" in lengths and lengths["table"] <= count:
        raise InvalidInput(f"table must have more than {count} places, got {lengths['table']}")


def _check_content(method: Any, header: dict[str, Any], arrays: Sections) -> None:
    """What the kernels rely on: slots that exist, numbers that a method can have."""
    check_rows(method, arrays["rows"].reshape(-1, method.width + STATS), header["clock"])
    pool = arrays["pool"]
    check_row(method, pool, pool[N])
    if "table" in arrays:
        check_table(arrays["table"], header["count"])
    if "marks" in arrays:
        check_text(arrays["text"], arrays["marks"])
