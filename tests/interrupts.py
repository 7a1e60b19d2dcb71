"""Interrupts at every moment at which Python could hear a signal, one after the other, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import calibeat

SOURCES = str(Path(calibeat.__file__).parent)
ELSEWHERE = ("_util/check.py", "_util/columns.py")  # they change nothing

Thing = TypeVar("Thing")


class Interrupts:
    """While it is used, an error is raised at the n-th moment, from 0: before a line of calibeat, or after its call of
    something written in C. Python stops watching when it has raised one.

    The compiled core is a single step: no signal is heard inside of it.
    """

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
            self._moment()
        return self._trace

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_return" and _is_ours(frame):
            self._moment()

    def _moment(self) -> None:
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


def _is_ours(frame: FrameType) -> bool:
    return _is_of_ours(frame.f_code.co_filename)


@cache
def _is_of_ours(name: str) -> bool:
    return name.startswith(SOURCES) and not name.endswith(ELSEWHERE)
