"""A bank as one file: a page of JSON that says what follows, then its arrays as they lie in memory.

===========  ===============================================================================================
bytes        hold
===========  ===============================================================================================
0 - 7        the magic word
8 - 11       the version of the format, 12 - 15 the length of the header
16 - 47      SHA-256 of the header
48 -         the header, JSON: method, seed, clock, count, and for each array its type, place, length and SHA-256
then         the arrays, little-endian, each from the beginning of a page of 4096 bytes
===========  ===============================================================================================
"""

from __future__ import annotations

import hashlib
import json
import mmap as memory
import os
import secrets
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_whole
from calibeat.core.method import Method
from calibeat.core.stats import EVENTS, STATS
from calibeat.errors import InvalidInput, SnapshotMismatch

if TYPE_CHECKING:
    from .bank import Bank

Sections = dict[str, npt.NDArray[Any]]

MAGIC, VERSION, PAGE = b"calibank", 1, 4096
_AT_ONCE = 2**20  # bytes
_START = struct.Struct("<8sII32s")
_TYPES = {
    "pool": "<f8", "rows": "<f8", "keys": "<i8", "table": "<i4", "text": "|u1", "marks": "<i8", "receipts": "|u1",
}  # fmt: skip
_OF_KEYS = {"none": (), "ints": ("keys", "table"), "strings": ("text", "marks", "table")}


def save(bank: Bank, path: Path) -> None:
    """Write to a file beside the target, and put it in its place when it is whole."""
    target = Path(os.path.realpath(path))
    arrays = {name: np.ascontiguousarray(array, dtype=_TYPES[name]) for name, array in sections_of(bank).items()}
    places: dict[str, dict[str, Any]] = {
        name: {"offset": 0, "bytes": array.nbytes, "sha256": "0" * 64} for name, array in arrays.items()
    }
    header = header_of(bank)
    # The header's own length depends on the offsets, which depend on its length: leave room for the largest ones.
    at = _pages(_START.size + len(json.dumps({**header, "arrays": places})) + 20 * len(places))
    for name, array in arrays.items():
        places[name]["offset"] = at
        at += _pages(array.nbytes)
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            for name, array in arrays.items():
                file.seek(places[name]["offset"])
                places[name]["sha256"] = _written(file, array)
            file.truncate(at)
            text = json.dumps({**header, "arrays": places}).encode()
            file.seek(0)
            file.write(_START.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _written(file: Any, array: npt.NDArray[Any]) -> str:
    """Write, and hash what was written: a copy, so that it is the same even if somebody learns meanwhile."""
    digest = hashlib.sha256()
    content = array.data.cast("B") if array.nbytes else memoryview(b"")
    for first in range(0, len(content), _AT_ONCE):
        part = bytes(content[first : first + _AT_ONCE])
        digest.update(part)
        file.write(part)
    return digest.hexdigest()


def load(kind: type[Bank], path: Path, *, mmap: bool, verify: bool, threads: int) -> Bank:
    """The bank of a file; anything that is not one, whole and undamaged, is a `SnapshotMismatch`."""
    with path.open("rb") as file:
        header = _header(path, file)
        buffer = _mapped(file) if mmap else _read(file)
    try:
        arrays = _arrays(path, header, buffer, verify=verify)
        bank = revived(kind, header, arrays, threads, lambda method: _check(method, header, arrays, verify=verify))
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise SnapshotMismatch(f"bank file must hold what a bank can hold: {error} - in {path}") from error
    bank._writable = not mmap
    if bank._writable:  # a bank that cannot learn takes no receipts; and its rows are not to be looked at one by one
        bank._store.adopt()
    return bank


def copied(kind: type[Bank], header: dict[str, Any], sections: Sections, threads: int) -> Bank:
    """A bank of its own, with what is under way."""
    bank = revived(kind, header, sections, threads)
    bank._store.adopt()
    return bank


def header_of(bank: Bank) -> dict[str, Any]:
    """What a bank is, without its arrays."""
    return {
        "method": bank._method.to_dict(),
        "seed": bank._seed,
        "prior": bank._prior,
        "independent": bank._independent,
        "clock": bank._clock,
        "count": len(bank),
        "keys": bank._store.kind,
        "receipts": True,  # those that wait for their outcome are written down; calibeat 0.1.0 did not
    }


def sections_of(bank: Bank) -> Sections:
    """The arrays of a bank, and as JSON what it knows of receipts that wait for their outcome, if there are any."""
    receipts = bank._members.dump()
    text = np.frombuffer(json.dumps(receipts).encode(), dtype=np.uint8)
    return {"pool": bank._pool, **bank._store.arrays(), **({"receipts": text} if receipts else {})}


def revived(
    kind: type[Bank], header: dict[str, Any], sections: Sections, threads: int,
    check: Callable[[Method], None] | None = None,
) -> Bank:  # fmt: skip
    """The bank that `header_of` and `sections_of` were taken of; its arrays are these, not copies."""
    try:
        method = Method.from_dict(header["method"])
    except InvalidInput as error:
        raise InvalidInput(f"a method that this version does not know: {error}") from error
    bank = kind(method, header["seed"], prior=header["prior"], independent=header["independent"], threads=threads)
    if check is not None:
        check(method)
    bank._clock, bank._pool = header["clock"], sections["pool"].copy()
    bank._store.restore(header["keys"], header["count"], sections)
    receipts = json.loads(bytes(sections["receipts"])) if "receipts" in sections else []
    bank._members.load(receipts if header.get("receipts") is True else None)
    return bank


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _mapped(file: Any) -> Any:
    # Private pages make arrays that the kernels take as they take all others; nobody writes, so nothing is copied. The
    # system must not set memory aside for copies either, or it would refuse a file that is larger than memory.
    if os.name == "posix":
        flags = memory.MAP_PRIVATE | getattr(memory, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
        return memory.mmap(file.fileno(), 0, flags=flags, prot=memory.PROT_READ | memory.PROT_WRITE)
    return memory.mmap(file.fileno(), 0, access=memory.ACCESS_COPY)  # pragma: no cover - other systems


def _read(file: Any) -> bytearray:
    file.seek(0)
    buffer = bytearray(os.fstat(file.fileno()).st_size)
    file.readinto(buffer)
    return buffer


def _header(path: Path, file: Any) -> dict[str, Any]:
    start, size = file.read(_START.size), os.fstat(file.fileno()).st_size
    if len(start) < _START.size or not start.startswith(MAGIC):
        raise SnapshotMismatch(f"bank file must begin with {MAGIC.decode()!r}, got {start[:8]!r} - in {path}")
    _, version, length, digest = _START.unpack(start)
    if version != VERSION:
        raise SnapshotMismatch(f"bank file must be of version {VERSION}, got {version} - in {path}")
    text = file.read(min(length, size))
    if hashlib.sha256(text).digest() != digest:
        raise SnapshotMismatch(f"bank file must have an undamaged header, got another checksum - in {path}")
    try:
        header: dict[str, Any] = json.loads(text)
        end = max(_pages(place["offset"] + place["bytes"]) for place in header["arrays"].values())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotMismatch(f"bank file must have a header that can be read, got {error!r} - in {path}") from error
    if size != end:
        raise SnapshotMismatch(f"bank file must have {end} bytes, got {size} - in {path}, it was cut or damaged")
    return header


def _arrays(path: Path, header: dict[str, Any], buffer: Any, *, verify: bool) -> Sections:
    check_choice("keys", header["keys"], tuple(_OF_KEYS))
    arrays: Sections = {}
    for name in ("pool", *_OF_KEYS[header["keys"]], "rows", *(("receipts",) if "receipts" in header["arrays"] else ())):
        place = header["arrays"][name]
        content = memoryview(buffer)[place["offset"] : place["offset"] + place["bytes"]]
        if verify and hashlib.sha256(content).hexdigest() != place["sha256"]:
            raise SnapshotMismatch(f"bank file must have its {name} undamaged, got another checksum - in {path}")
        arrays[name] = np.frombuffer(content, dtype=_TYPES[name])
    return arrays


def _check(method: Method, header: dict[str, Any], arrays: Sections, *, verify: bool) -> None:
    """What the kernels rely on: lengths that fit together, slots that exist, numbers that are numbers."""
    count, width = check_whole("count", header["count"], 0, 2**31), method.width
    check_whole("clock", header["clock"], 0, 2**53)
    lengths = {"pool": width, "rows": count * (width + STATS), "keys": count, "marks": 2 * count}
    for name, array in arrays.items():
        if name in lengths and len(array) != lengths[name]:
            raise InvalidInput(f"{name} must have {lengths[name]} numbers, got {len(array)}")
    if not verify:
        return
    _check_rows(arrays["rows"].reshape(-1, width + STATS), width)
    if not np.isfinite(arrays["pool"]).all():
        raise InvalidInput("pool must hold finite numbers, got others")
    if "table" in arrays:
        slots = np.sort(arrays["table"][arrays["table"] != -1])
        if len(arrays["table"]) <= count or not np.array_equal(slots, np.arange(count)):
            raise InvalidInput(f"table must point once at each of the {count} slots and have places left, got another")
    if "marks" in arrays:
        starts, sizes = arrays["marks"][::2], arrays["marks"][1::2] >> 31
        if not ((starts >= 0) & (sizes >= 0) & (starts <= len(arrays["text"]) - sizes)).all():
            raise InvalidInput("marks must point into the text, got others")
        bytes(arrays["text"]).decode()  # raises a ValueError that says where


def _check_rows(rows: npt.NDArray[np.float64], width: int) -> None:
    """A few thousand at once: the file may be larger than memory."""
    for first in range(0, len(rows), 4096):
        part = rows[first : first + 4096]
        if not np.isfinite(part).all():
            raise InvalidInput("rows must hold finite numbers, got others")
        t, n, events = part[:, 0], part[:, 1], part[:, width + EVENTS]
        if not ((n >= 0) & (n <= t) & (t <= events)).all():
            raise InvalidInput("rows must count no more outcomes than forecasts, got others")
