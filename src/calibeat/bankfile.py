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
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._check import check_choice, check_whole
from .errors import InvalidInput, SnapshotMismatch
from .method import Method
from .rows import BOOKS, EVENTS

if TYPE_CHECKING:
    from .bank import Bank

Sections = dict[str, npt.NDArray[Any]]

MAGIC, VERSION, PAGE = b"calibank", 1, 4096
_START = struct.Struct("<8sII32s")
_TYPES = {
    "pool": "<f8", "rows": "<f8", "keys": "<i8", "table": "<i4", "text": "|u1", "marks": "<i8",
}  # fmt: skip
_OF_KEYS = {"none": (), "ints": ("keys", "table"), "strings": ("text", "marks", "table")}


def save(path: Path, header: dict[str, Any], sections: Sections) -> None:
    """Write to a file beside the target, and put it in its place when it is whole."""
    arrays = {name: np.ascontiguousarray(array, dtype=_TYPES[name]) for name, array in sections.items()}
    places: dict[str, dict[str, Any]] = {
        name: {"offset": 0, "bytes": array.nbytes, "sha256": hashlib.sha256(array.data).hexdigest()}
        for name, array in arrays.items()
    }
    # The header's own length depends on the offsets, which depend on its length: leave room for the largest ones.
    at = _pages(_START.size + len(json.dumps({**header, "arrays": places})) + 20 * len(places))
    for name, array in arrays.items():
        places[name]["offset"] = at
        at += _pages(array.nbytes)
    text = json.dumps({**header, "arrays": places}).encode()
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_START.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text)
            for name, array in arrays.items():
                file.seek(places[name]["offset"])
                file.write(array.data)
            file.truncate(at)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode_of(path))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(bank: type[Bank], path: Path, *, mmap: bool, verify: bool, threads: int | None) -> Bank:
    """The bank of a file; anything that is not one, whole and undamaged, is a `SnapshotMismatch`."""
    with path.open("rb") as file:
        header = _header(path, file.read(PAGE), file)
        buffer = _mapped(file) if mmap else _read(file)
    try:
        made = bank(
            header["method"], header["seed"], prior=header["prior"], independent=header["independent"], threads=threads
        )  # fmt: skip
        arrays = _arrays(path, header, buffer, verify=verify)
        _check(made.method, header, arrays, verify=verify)
    except InvalidInput as error:
        raise SnapshotMismatch(f"bank file must hold what a bank can hold: {error} - in {path}") from error
    made._restore(header, arrays, writable=not mmap)
    return made


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _mode_of(path: Path) -> int:
    """The permissions of the file that is replaced, or those of a new one."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _mapped(file: Any) -> Any:
    # "Copy on write" makes arrays that the kernels take as they take all others; nobody writes, so nothing is copied.
    return memory.mmap(file.fileno(), 0, access=memory.ACCESS_COPY)


def _read(file: Any) -> bytearray:
    file.seek(0)
    buffer = bytearray(os.fstat(file.fileno()).st_size)
    file.readinto(buffer)
    return buffer


def _header(path: Path, start: bytes, file: Any) -> dict[str, Any]:
    if len(start) < _START.size or not start.startswith(MAGIC):
        raise SnapshotMismatch(f"bank file must begin with {MAGIC.decode()!r}, got {start[:8]!r} - in {path}")
    _, version, length, digest = _START.unpack_from(start)
    if version != VERSION:
        raise SnapshotMismatch(f"bank file must be of version {VERSION}, got {version} - in {path}")
    file.seek(_START.size)
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise SnapshotMismatch(f"bank file must have an undamaged header, got another checksum - in {path}")
    header: dict[str, Any] = json.loads(text)
    size = os.fstat(file.fileno()).st_size
    end = max((_pages(place["offset"] + place["bytes"]) for place in header["arrays"].values()), default=0)
    if size != end:
        raise SnapshotMismatch(f"bank file must have {end} bytes, got {size} - in {path}, it was cut or damaged")
    try:
        header["method"] = Method.from_dict(header["method"])
    except InvalidInput as error:
        raise SnapshotMismatch(f"bank file must hold a method that this version knows: {error} - in {path}") from error
    return header


def _arrays(path: Path, header: dict[str, Any], buffer: Any, *, verify: bool) -> Sections:
    check_choice("keys", header["keys"], tuple(_OF_KEYS))
    arrays: Sections = {}
    for name in ("pool", *_OF_KEYS[header["keys"]], "rows"):
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
    lengths = {"pool": width, "rows": count * (width + BOOKS), "keys": count, "marks": 2 * count}
    for name, array in arrays.items():
        if name in lengths and len(array) != lengths[name]:
            raise InvalidInput(f"{name} must have {lengths[name]} numbers, got {len(array)}")
    if not verify:
        return
    rows = arrays["rows"].reshape(-1, width + BOOKS)
    if not np.isfinite(rows).all() or not np.isfinite(arrays["pool"]).all():
        raise InvalidInput("rows must be finite numbers, got others")
    t, n, events = rows[:, 0], rows[:, 1], rows[:, width + EVENTS]
    if not ((n >= 0) & (n <= t) & (t <= events)).all():
        raise InvalidInput("rows must count no more outcomes than forecasts, got others")
    if count and not ((arrays["table"] >= -1) & (arrays["table"] < count)).all():
        raise InvalidInput(f"table must point at slots below {count}, got others")
