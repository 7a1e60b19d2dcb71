"""Interleaved timing: the contenders take turns, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import gc
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial, wraps
from time import perf_counter, thread_time
from typing import Any

Work = Callable[[], object]
Maker = Callable[[], Work]


def interleaved(contenders: Mapping[str, Maker], repeats: int) -> dict[str, float]:
    """Best CPU seconds of `repeats` turns per contender: right for work on one thread, whoever else is busy.

    A contender makes its work anew for each turn, off the clock. Trust ratios, not seconds.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(repeats):
        for name, make in contenders.items():
            best[name] = min(best[name], once(make(), thread_time))
    return best


def always(work: Callable[..., object], *arguments: object) -> Maker:
    """A contender that begins afresh by itself: nothing to make beforehand."""
    return lambda: partial(work, *arguments)


def once(work: Work, clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of one call, with the garbage collector off and its debts paid before."""
    gc.collect()
    gc.disable()
    try:
        begin = clock()
        work()
        return clock() - begin
    finally:
        gc.enable()


class Clocks:
    """CPU seconds by part. The clock of a part is that of its thread, and stands still while a part inside is timed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._local = threading.local()
        self._lock = threading.Lock()

    def timed(self, part: str | Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a clock around it. Where `part` is a function, it gives the part of the arguments."""

        @wraps(function)
        def run_it(*arguments: Any, **named: Any) -> Any:
            outside, self._local.inside = getattr(self._local, "inside", 0.0), 0.0
            began = thread_time()
            try:
                return function(*arguments, **named)
            finally:
                took = thread_time() - began
                with self._lock:
                    self.seconds[part if isinstance(part, str) else part(*arguments)] += took - self._local.inside
                self._local.inside = outside + took

        return run_it

    def each(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that yields, with a clock around each step."""

        @wraps(function)
        def run_it(*arguments: Any) -> Any:
            steps = iter(function(*arguments))
            step = self.timed(part, lambda: next(steps, steps))
            while (found := step()) is not steps:
                yield found

        return run_it
