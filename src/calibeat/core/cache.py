"""Compiled kernels on the disk: where they lie, under which names, and whose files are believed.

Compiled kernels are code. Whoever can write such a file can run code in the process that reads it. So a folder is
used only if it is no link and nobody can have written to it but the user who runs the process, the superuser, or,
beside the package, the owner of the package's sources, who can run code here anyway. The places are the folder
that the user chose (``NUMBA_CACHE_DIR``); else beside the package, where Python keeps its own compiled files; else
the user's cache. A shared temporary folder is never used. Without a place, kernels are compiled in each process.

One folder serves all kernels of one environment. Its name is a hash of the versions of Python, Numba and llvmlite and
of everything else that decides what Numba makes of a kernel. The name of a file in it holds a hash of the kernel's
own code and of all that it calls, so it does not matter what was imported before, and an edit elsewhere costs nothing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from calibeat._util.files import atomic, cache_folder, is_private
from calibeat.errors import InvalidInput

_HERE = Path(__file__).parent
_BESIDE = _HERE / "__pycache__"  # as readable as the package: one user may compile for the others
_COMPILER = ("cache.py", "compiler.py", "jit.py", "link.py", "prefetch.py")  # they decide how kernels are compiled
# What of Numba's settings changes the code that it makes. The processor is in the name of each file.
_SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO", "LOOP_VECTORIZE", "SLP_VECTORIZE", "LLVM_REFPRUNE_PASS")
_DAY = 86400.0
_OLD = 30 * _DAY  # without use; then a folder, or a file in it, is removed
_NAME = re.compile(r"kernels-[0-9a-f]{16}")
_CHECKSUM = 32  # bytes at the beginning of a file


class Place(NamedTuple):
    """Where the folder may lie."""

    path: Path
    made: tuple[Path, ...]  # the folders on the way that we make ourselves
    mode: int  # of the folder
    owners: tuple[int, ...]  # whom we believe, besides ourselves


@cache
def environment() -> str:
    """The name of this environment's folder."""
    parts = [
        sys.version,
        sys.implementation.cache_tag,
        platform.machine(),
        *(_version(package) for package in ("numba", "llvmlite", "numpy")),
        *(f"{name}={os.environ.get(f'NUMBA_{name}', '')}" for name in _SETTINGS),
        *((_HERE / name).read_text(encoding="utf-8") for name in _COMPILER),
    ]
    return f"kernels-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def read(name: str) -> bytes | None:
    """What the file of this name holds, or None if there is none or it is damaged."""
    for folder in readable():
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(data[_CHECKSUM:]).digest() == data[:_CHECKSUM]:
            for used in (folder, folder / name):
                _mark_as_used(used)
            return data[_CHECKSUM:]
    return None


def holds(beginning: str) -> bool:
    """Whether there is a file whose name begins so."""
    return any(name.startswith(beginning) for folder in readable() for name in _names_in(folder))


def write(name: str, data: bytes) -> None:
    """Keep a file, if there is a place for it; who reads it sees all of it or nothing."""
    folder = writable()
    if folder is None:
        return
    _remove_old_files(folder)
    # On a full disk, or where something else has this name: it will be compiled again.
    with suppress(OSError, InvalidInput), atomic(folder / name, sync=False) as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o644)  # whatever the umask says: nobody else writes here
        file.write(hashlib.sha256(data).digest())
        file.write(data)


def readable() -> Iterator[Path]:
    """The folders of this environment that exist and can be believed."""
    for place in _places():
        folder = place.path / environment()
        if all(is_private(each, *place.owners) for each in (*place.made, folder)):
            yield folder


def writable() -> Path | None:
    """The folder to write to, made if need be; None where no place is ours."""
    for place in _places():
        folder = place.path / environment()
        for each in place.made:
            _make(each, 0o700)
        if _make(folder, place.mode):
            _remove_old_folders(place.path)
        if all(is_private(each, *place.owners) for each in (*place.made, folder)) and os.access(folder, os.W_OK):
            return folder
    return None


def _places() -> list[Place]:
    chosen = _chosen_by_user()
    if chosen:
        return [Place(Path(chosen), (), 0o700, (0,))]
    places = [Place(_BESIDE, (), 0o755, (0, _HERE.stat().st_uid))]
    users = cache_folder("kernels")
    return places if users is None else [*places, Place(users, (users.parent, users), 0o700, (0,))]


def _chosen_by_user() -> str:
    """Numba's own setting, also where a program or a configuration file has changed it."""
    numba = sys.modules.get("numba")
    if numba is not None and hasattr(numba, "config"):
        return str(numba.config.CACHE_DIR or "")
    return os.environ.get("NUMBA_CACHE_DIR", "")


def _make(folder: Path, mode: int) -> bool:
    """Whether the folder was made just now; the folders above it are made as any others."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode)
    except OSError:
        return False
    return True


def _remove_old_folders(place: Path) -> None:
    """Remove our folders of other environments that nobody has used for a month.

    A folder in use is marked once a day, so what another version needs stays.
    """
    for name in _names_in(place):
        if _NAME.fullmatch(name) and is_private(place / name) and _is_old(place / name):
            shutil.rmtree(place / name, ignore_errors=True)


@cache
def _remove_old_files(folder: Path) -> None:
    """Remove files that nobody has used for a month: kernels of older sources. Once in a process that compiles."""
    for name in _names_in(folder):
        if _is_old(folder / name):
            with suppress(OSError):
                (folder / name).unlink()


def _mark_as_used(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _OLD
    except OSError:
        return False


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
