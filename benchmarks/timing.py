"""Interleaved timing: the contenders take turns, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, thread_time

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
