"""Interrupts at every moment at which Python could hear a signal, one after the other, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import calibeat
from calibeat.core import jit
from calibeat.hosts import keys

SOURCES = str(Path(calibeat.__file__).parent)
# They change nothing. And tracing sees a line where `with` gives a lock back, before which no real signal is taken: a
# lock that cannot be taken twice, as that of the compiler, would stay taken.
ELSEWHERE = ("_util/check.py", "_util/columns.py", "core/jit.py")
# They have many lines, alike in this: of these a few are enough.
KERNELS = ("/core/", "/monitor/bets.py", "/hosts/pool.py")
OTHER_KERNELS = {kernel.__code__ for kernel in jit._KERNELS if kernel.__module__ == keys.__name__}

Thing = TypeVar("Thing")


class Interrupts:
    """While it is used, an error is raised at the n-th moment, from 0: before a line of calibeat, or after its call of
    something written in C. Python stops watching when it has raised one."""

    def __init__(self, at: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.left, self.error, self.fired = at, error, False

    def __enter__(self) -> Interrupts:
        self._before = sys.gettrace(), sys.getprofile()  # who measures coverage
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not _is_ours(frame):
            return None
        if event == "line":
            self._moment(frame)
        return self._trace

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_return" and _is_ours(frame):
            self._moment(frame)

    def _moment(self, frame: FrameType) -> None:
        if frame.f_lineno % 7 and _is_kernel(frame.f_code):
            return
        if self.left == 0:
            self.left, self.fired = -1, True
            raise self.error
        self.left -= 1


def interrupted_everywhere(
    make: Callable[[], Thing], act: Callable[[Thing], Any], error: type[BaseException] = KeyboardInterrupt
) -> Iterator[Thing]:
    """Things on which the work was begun, and broken off at the first moment, at the second, and so on to the last."""
    for at in count():
        thing = make()
        with Interrupts(at, error) as interrupts:
            try:
                act(thing)
            except error:
                assert interrupts.fired
        if not interrupts.fired:
            assert at > 10
            return
        yield thing


def _is_kernel(code: CodeType) -> bool:
    return code in OTHER_KERNELS or any(kernels in code.co_filename for kernels in KERNELS)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(SOURCES) and not name.endswith(ELSEWHERE)
