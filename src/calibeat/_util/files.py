"""Files that are whole or not there, and folders that are ours alone."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from calibeat.errors import InvalidInput

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

    A link to a file is replaced; the file that it leads to stays. A target that is no file (`obstacle`), or a link to
    one, is refused with `InvalidInput`, before the block and again right before the file takes its name.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic(folder / "a.txt", "w") as file:
    ...     _ = file.write("whole")
    >>> (folder / "a.txt").read_text(), [path.name for path in folder.iterdir()]
    ('whole', ['a.txt'])
    """
    with atomic_files([path], mode, check=check, sync=sync) as files:
        yield files[0]


@contextmanager
def atomic_files(
    paths: Sequence[str | os.PathLike[str]], mode: str = "wb", *, check: Any = None, sync: bool = True
) -> Iterator[list[IO[Any]]]:
    """Several files as `atomic` writes one: they take their names one right after another, when all are whole.

    `check` is called with all temporary paths just before. If a file cannot take its name, those before it are undone:
    new ones are removed and old ones come back. (An old one stays replaced on a file system without hard links.)
    """
    parts: list[_Part] = []
    named: list[_Part] = []
    try:
        for path in paths:
            parts.append(_Part(path, mode))
            parts[-1].open()
        yield [part.file for part in parts]
        for part in parts:
            part.close(sync=sync)
        if check is not None:
            check(*(part.path for part in parts))
        for part in parts:
            part.take_name(keep_old=part is not parts[-1])
            named.append(part)
    except BaseException:
        for part in reversed(named):
            part.give_back()
        raise
    finally:
        for part in parts:
            part.clean()
    if sync:
        for folder in {part.target.parent for part in parts}:
            _sync_folder(folder)


class _Part:
    """A file under its temporary name."""

    file: IO[Any]

    def __init__(self, path: str | os.PathLike[str], mode: str) -> None:
        self.target = checked_path(path)
        self.path, self._old = _part_of(self.target), _part_of(self.target)
        self._mode, self._is_new = mode, False

    def open(self) -> None:
        refuse_obstacle(self.target)
        sweep(self.target)
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:  # name the file that was asked for, not the temporary one
            folder = self.target.parent
            why = error.strerror if folder.exists() else f"the folder {folder} does not exist, make it first"
            raise OSError(error.errno, why, str(self.target)) from None
        encoding, newline = (None, None) if "b" in self._mode else ("utf-8", "\n")
        self.file = os.fdopen(handle, self._mode, encoding=encoding, newline=newline)

    def close(self, *, sync: bool) -> None:
        with self.file:
            self.file.flush()
            if sync:
                os.fsync(self.file.fileno())

    def take_name(self, *, keep_old: bool) -> None:
        with suppress(FileNotFoundError):  # a file that is replaced keeps its permissions
            self.path.chmod(stat.S_IMODE(self.target.stat().st_mode))
        if keep_old:
            with suppress(OSError, NotImplementedError):  # nothing there, or no hard links
                os.link(self.target, self._old, follow_symlinks=False)
        self._is_new = not os.path.lexists(self.target)
        refuse_obstacle(self.target)
        self.path.replace(self.target)

    def give_back(self) -> None:
        """Undo `take_name`."""
        with suppress(OSError):
            self.target.unlink() if self._is_new else self._old.replace(self.target)

    def clean(self) -> None:
        if hasattr(self, "file"):
            with suppress(OSError):
                self.file.close()
        for path in (self.path, self._old):
            with suppress(OSError):
                path.unlink()


# ---- what lies at a path -------------------------------------------------------------------------------------------

_KINDS = {
    stat.S_IFDIR: "the folder",
    stat.S_IFIFO: "the FIFO",
    stat.S_IFSOCK: "the socket",
    stat.S_IFCHR: "the device",
    stat.S_IFBLK: "the device",
}


def checked_path(path: str | os.PathLike[str]) -> Path:
    """A path that the system can be asked about.

    Raises
    ------
    InvalidInput : it is no text and no `os.PathLike`, or has a NUL in it.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"path must be a string or a pathlib.Path, got {type(path).__name__} {path!r:.60}")
    if "\0" in os.fspath(path):
        raise InvalidInput(f"path must have no NUL, got {os.fspath(path)!r}")
    return Path(path)


def obstacle(path: Path) -> str | None:
    """What lies at `path`, or where its link leads, that a file must not replace; None for a file, or nothing.

    That is a folder, a device, a FIFO, a socket, or a name such as /dev/stdout, which stands for what a process has
    open: it would be replaced for everybody.

    >>> obstacle(Path("/")), obstacle(Path("/dev/stdout")), obstacle(Path("new.txt"))
    ('the folder', 'the open stream', None)
    """
    if _is_open_stream(path):
        return "the open stream"
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing there, or a link that leads nowhere; if it is worse, opening it says so
        return None
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a special file")


def refuse_obstacle(path: Path) -> None:
    """Raise `InvalidInput` where a file must not take the place of what is there."""
    found = obstacle(path)
    if found is not None:
        raise InvalidInput(f"output must be a file, got {found} {str(path)!r}")


def _is_open_stream(path: Path) -> bool:
    """Whether a path, or a link on its way, lies where the system lists what processes have open."""
    for _ in range(40):  # as many links as Linux follows
        path = Path(os.path.realpath(path.parent), path.name)
        if path.parts[:2] == ("/", "proc") or path.parts[:3] == ("/", "dev", "fd"):
            return True
        try:
            path = path.parent / path.readlink()
        except OSError:
            return False
    return False


def open_regular(path: str | os.PathLike[str], what: str) -> IO[bytes]:
    """Open a file for reading; a FIFO, which would wait for a writer, and all else that is no file is refused."""
    target = checked_path(path)
    _check_regular(target.stat().st_mode, target, what)  # opening a device may set it in motion
    # Somebody may have put a FIFO there since: do not wait for its writer.
    handle = os.open(target, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_regular(os.fstat(handle).st_mode, target, what)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _check_regular(mode: int, path: Path, what: str) -> None:
    if not stat.S_ISREG(mode):
        raise InvalidInput(
            f"{what} must be a file, got {_KINDS.get(stat.S_IFMT(mode), 'a special file')} {str(path)!r}"
        )


# ---- temporary names -----------------------------------------------------------------------------------------------


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
