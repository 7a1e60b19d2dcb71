"""Interrupts at every moment at which Python could hear a signal, one after the other, without a clock."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import calibeat

SOURCES = str(Path(calibeat.__file__).parent)
ELSEWHERE = ("_util/check.py", "_util/columns.py")  # they change nothing

Thing = TypeVar("Thing")


class Interrupts:
    """While it is used, an error is raised at the n-th moment, from 0, at which Python runs the handlers of signals in
    a function of calibeat: where it begins or goes on, behind a call, and where a loop begins anew.

    The compiled core is a single step: no signal is heard inside of it. Nor do other threads hear any.
    """

    def __init__(self, at: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.left, self.error, self.fired = at, error, False

    def __enter__(self) -> Interrupts:
        self._before = sys.gettrace()  # who measures coverage
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not _is_of_ours(frame.f_code.co_filename):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode" and frame.f_lasti in _moments(frame.f_code):
            self._moment()
        return self._trace

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
            assert at > 0
            return
        yield thing


@cache
def _moments(code: CodeType) -> frozenset[int]:
    """Where the instructions are before which Python looks for signals."""
    found = list(dis.get_instructions(code))
    behind = {two.offset for one, two in pairwise(found) if one.opname.startswith("CALL") or one.opname == "RESUME"}
    return frozenset(behind | {one.offset for one in found if one.opname.startswith("JUMP_BACKWARD")})


@cache
def _is_of_ours(name: str) -> bool:
    return name.startswith(SOURCES) and not name.endswith(ELSEWHERE)
