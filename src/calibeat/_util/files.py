"""Files that are whole or not there, and folders that are ours alone."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_ABANDONED = 3600.0  # seconds after which an unfinished file has no writer any more


@contextmanager
def atomic(
    path: str | os.PathLike[str], mode: str = "wb", *, check: Any = None, sync: bool = True
) -> Iterator[IO[Any]]:
    """Write a file under a temporary name; it takes its own name, in one step, only when the block ends well.

    The temporary name is ``.NAME.<random>.part`` in the same folder, made with O_EXCL, so that no planted link is
    followed. What was written is on the disk before the old file goes (unless `sync` is False, for files with a
    checksum that can be made again). `check`, if given, is called with the temporary path and may raise: then the old
    file stays. Unfinished files of writers that were killed are removed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic(folder / "a.txt", "w") as file:
    ...     _ = file.write("whole")
    >>> (folder / "a.txt").read_text(), [path.name for path in folder.iterdir()]
    ('whole', ['a.txt'])
    """
    target = Path(path)
    sweep(target)
    part = _part_of(target)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        with os.fdopen(handle, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if check is not None:
            check(part)
        with suppress(FileNotFoundError):  # a file that is replaced keeps its permissions
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if sync:
        _sync_folder(target.parent)


def sweep(target: Path) -> None:
    """Remove unfinished files of this target that nobody has touched for an hour: their writers were killed."""
    pattern = re.compile(re.escape(f".{_short(target.name)}.") + r"[0-9a-f]{16}\.part")
    with suppress(OSError):
        for path in target.parent.iterdir():
            if pattern.fullmatch(path.name):
                with suppress(OSError):
                    if time.time() - path.lstat().st_mtime > _ABANDONED:
                        path.unlink()


def _part_of(target: Path) -> Path:
    return target.with_name(f".{_short(target.name)}.{secrets.token_hex(8)}.part")


def _short(name: str) -> str:
    """A part of a long name, so that the temporary name is no longer than a file system allows."""
    return os.fsdecode(os.fsencode(name)[:200])


def _sync_folder(folder: Path) -> None:
    """The new name is on the disk too. Not every system can do this to a folder; none needs it to be whole."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cache_folder(name: str) -> Path | None:
    """A folder below the user's cache (XDG_CACHE_HOME, else ~/.cache); None where there is no home.

    A shared folder such as the system's temporary one is never taken: others could put files there.
    """
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "calibeat" / name
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "calibeat" / name
    return None


def is_private(folder: Path, *owners: int) -> bool:
    """Whether a folder, not a link to one, is ours (or of one of these owners), and nobody else may write to it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True  # Windows: a profile belongs to its user
    return found.st_uid in (os.getuid(), *owners) and not found.st_mode & 0o022
