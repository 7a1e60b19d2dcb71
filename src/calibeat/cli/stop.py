"""A command that takes long: Ctrl-C and SIGTERM, outputs that are all there when it ends or none."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from calibeat._util.files import atomic_files, obstacle
from calibeat.errors import InvalidInput


class Stopped(KeyboardInterrupt):
    """A signal came; the argument is the status to end with.

    CPython ends with a signal of its own, whatever the status, once a plain KeyboardInterrupt has left code that a C
    library had run. A class of our own is not taken for it.
    """


class Stop:
    """The signals that came during a command, and whether one may still stop it."""

    def __init__(self) -> None:
        self._came: list[int] = []
        self._held = False
        self.is_done = False

    def check(self) -> None:
        """Raise `Stopped` if a signal has come. A long command calls this between its steps."""
        if self._came and not self.is_done:
            raise Stopped(self._came[0])

    def checked(self, step: Callable[[int], None]) -> Callable[[int], None]:
        """A step that looks for a signal first."""

        def checked(count: int) -> None:
            self.check()
            step(count)

        return checked

    def hold(self) -> None:
        """From here on a signal is only remembered: a step has begun that must not be broken off."""
        self._held = True

    def done(self) -> None:
        """The command has left its results: it ends with 0. A signal is ignored; a second one stops it even so.

        What is left is to print, and that may wait for a reader for ever.
        """
        self._came.clear()
        self.is_done, self._held = True, False

    def hear(self, number: int, _: FrameType | None) -> None:
        """The handler of a signal."""
        self._came.append(128 + number)
        if not self._held and (not self.is_done or len(self._came) > 1):
            raise Stopped(self._came[0])


@contextmanager
def stopped_by_signals(*, last: bool = False) -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the block as an exception does, so that it can clean up; their status is 130 and 143.

    A signal can get lost, or become another error: a module that is being imported may catch the exception. So the
    block is given a `Stop`, whose check it calls between its steps. `last` says that nothing but the end of the process
    follows: the signals of a command that is done then stay ignored, so that it ends with 0.
    """
    stop = Stop()
    main = threading.current_thread() is threading.main_thread()
    taken = [signal.SIGTERM, signal.SIGINT] if main else []
    # A shell lets the programs in its background ignore Ctrl-C: that stays so.
    ours = [number for number in taken if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.hear) for number in ours}
    try:
        yield stop
        stop.check()
    except Exception:
        stop.check()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last and stop.is_done else handler)


# ---- outputs --------------------------------------------------------------------------------------------------------


def check_place(option: str, path: Path) -> None:
    """Refuse a path where no file can be put."""
    found = obstacle(path)
    if found is not None:
        raise InvalidInput(f"{option} must be a file, got {found} {str(path)!r}")
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InvalidInput(f"{option} must be in a folder, got {str(path)!r}, and {str(there)!r} is a file")
    if not os.access(there, os.W_OK):
        raise InvalidInput(f"{option} must be in a folder that can be written, got {str(path)!r}")


@contextmanager
def outputs(paths: Sequence[Path], stop: Stop) -> Iterator[dict[Path, IO[bytes]]]:
    """Open files that take their names together when the block ends well, and then the command is done.

    If the block fails or a signal stops it, no file and no new folder is left.
    """
    if not paths:
        yield {}
        return

    def commit(*_: Path) -> None:
        stop.check()
        stop.hold()

    with _folders(paths), atomic_files(paths, check=commit) as files:
        try:
            yield dict(zip(paths, files, strict=True))
        except BaseException:
            stop.hold()  # a second signal must not break off the cleaning up
            raise
    stop.done()


@contextmanager
def _folders(paths: Sequence[Path]) -> Iterator[None]:
    """The folders of these files; those made here are taken away again where the run fails."""
    made: list[Path] = []
    try:
        for path in paths:
            missing = [parent for parent in path.absolute().parents if not parent.exists()]
            for folder in reversed(missing):
                made.append(folder)  # first, as a signal may come right after it is made
                folder.mkdir()
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):  # not made, or no longer empty
                folder.rmdir()
        raise
