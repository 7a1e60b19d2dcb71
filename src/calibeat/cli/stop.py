"""Ctrl-C and SIGTERM during a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A signal came; the argument is the status to end with.

    CPython ends with a signal of its own, whatever the status, once a plain KeyboardInterrupt has left code that a C
    library had run. A class of our own is not taken for it.
    """


@contextmanager
def stopped_by_signals() -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM end the block as an exception does, so that it can clean up; their status is 130 and 143.

    A signal can get lost, or become another error: a module that is being imported may catch the exception. So the
    block is given a check to call between its steps, which stops it if a signal has come.
    """
    came: list[int] = []

    def check() -> None:
        if came:
            raise Stopped(came[0])

    def stop(number: int, _: FrameType | None) -> None:
        came.append(128 + number)
        check()

    main = threading.current_thread() is threading.main_thread()
    taken = [signal.SIGTERM, signal.SIGINT] if main else []
    # A shell lets the programs in its background ignore Ctrl-C: that stays so.
    ours = [number for number in taken if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in ours}
    try:
        yield check
        check()
    except Exception:
        check()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
