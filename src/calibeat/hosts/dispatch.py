"""Plain or compiled: which way a batch or a single event runs. The bits are the same, so only time is at stake.

A batch runs compiled where the kernels are in memory or in the cache. With nothing compiled, batches run as plain
Python until that has taken a tenth of what it would take to compile; from then on it pays to compile (`for_batch`).

A single event runs as plain Python at first, which is there at once, and never waits for a compilation. It runs
compiled as soon as the kernels have been loaded: by `warm_up`, at the end of a batch (`load_single_if_cached`), or
after some thousand plain events (`loaded_after`), if they lie in the cache.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, TypeVar

import numpy as np

from calibeat.core import jit, kernel, loops
from calibeat.core.auto import Lanes
from calibeat.core.calibeating import Hedging
from calibeat.core.jit import compiled, entry_point, is_cached, is_compiled
from calibeat.core.method import AUTO, Method

SINGLE = (kernel.predict_one, kernel.settle_one, kernel.predict, kernel.update)
BATCH = (loops.run, loops.run_late, loops.predict_many)

LOOK_EVERY = 1024  # single events between two looks at whether the compiled kernels are worth loading
_WORTH_LOADING = 8 * LOOK_EVERY  # plain events in a process; to load Numba and the kernels takes some 0.4 s

_EMPTY = np.empty(0)
_ONE = np.array([0.5])
_looked = [False]  # whether this process has looked into the cache
_entry_points: list[Any] = []
_plain_events = [0]  # single events that ran as plain Python in this process

Loop = TypeVar("Loop")


def for_batch(loop: Loop, method: Method, events: int) -> Loop:
    """A loop over so many events of a method, compiled or plain, whichever ends sooner.

    >>> from calibeat import OPS
    >>> from calibeat.core import loops
    >>> callable(for_batch(loops.run, OPS, 10))
    True
    """
    return jit.for_cost(loop, events * plain_seconds(method))  # type: ignore[type-var]  # a loop is a function


def plain_seconds(method: Method) -> float:
    """About what an event of a batch takes as plain Python (predict and update, without the refits)."""
    if isinstance(method.learner, Lanes):
        return 16e-6
    return 4e-6 if isinstance(method.calibeater, Hedging) else 3e-6


def loaded_after(events: int) -> bool:
    """Count so many more plain single events; whether the compiled kernels are in memory now.

    They are loaded when enough events were counted and they lie in the cache; nothing is ever compiled here. A host
    calls this after every `LOOK_EVERY` plain events.
    """
    _plain_events[0] += events
    if _plain_events[0] >= _WORTH_LOADING or "numba" in sys.modules:
        load_single_if_cached()
    return single_is_compiled()


def load_single_if_cached() -> None:
    """What a batch does, which has loaded Numba anyway: take what the cache has, and leave it if it has nothing."""
    if not _looked[0]:
        _looked[0] = True
        if is_cached(*SINGLE) and all(  # pragma: no cover - the leg that measures coverage has the JIT off
            jit.can_load(function, *arguments) for function, arguments in _single_calls()
        ):
            _load_single()


def single_is_compiled() -> bool:
    """Whether single events can be served by the compiled kernels."""
    return is_compiled(*SINGLE)


def warm_streams() -> None:
    """Load, or compile, the kernels of a `Calibrator`: see `calibeat.warm_up`."""
    jit.announce(*SINGLE, *BATCH)
    spec, row, receipt = AUTO.spec, AUTO.initial_row(), np.zeros(AUTO.receipt_width)  # one signature serves all methods
    run: Any = compiled(loops.run)
    run_late: Any = compiled(loops.run_late)
    stream = spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, 0.0
    batch = _ONE, np.ones(1), _EMPTY, np.empty(1), receipt, *loops.NO_HISTORY
    one, none = np.ones(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    run(*stream, *batch, loops.place_before(), 1)
    run_late(*stream, *batch, loops.place_before(), 1, 0, one, one, none, 0)
    compiled(loops.predict_many)(spec, row, len(row), row, loops.NO_SLOTS, _ONE, _EMPTY, np.empty(1), receipt)
    _load_single()


def _load_single() -> None:
    for function, arguments in _single_calls():
        compiled(function)(*arguments)


def _single_calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """A call of each kernel of single events: one signature serves all methods."""
    spec, row, receipt = AUTO.spec, AUTO.initial_row(), np.zeros(AUTO.receipt_width)
    asked = np.zeros(kernel.ASKED)
    return [
        (kernel.predict_one, (spec, row, 0.5, asked, receipt)),
        (kernel.settle_one, (spec, row, 0, 1.0, asked, receipt, np.zeros(2, dtype=np.uint8), 0)),
        (kernel.predict, (spec, row, 0.5, 0.0, receipt, 0)),
        (kernel.update, (spec, row, 2.0, 0.5, 0, 1.0, receipt, 0, *loops.NO_HISTORY)),
    ]


def single_kernels() -> tuple[Any, ...]:
    """The kernels of single events, in the order of `SINGLE`: without Numba's dispatch, or as plain Python.

    The former want NumPy's arrays and the types of `_single_calls`, and check nothing.
    """
    if not single_is_compiled():
        return SINGLE
    if not _entry_points:  # pragma: no cover - the leg that measures coverage has the JIT off
        _entry_points.extend(entry_point(function, *arguments) for function, arguments in _single_calls())
    return tuple(_entry_points)  # pragma: no cover - as above


@cache
def box(kernels: tuple[Any, ...]) -> Any:
    """The kernels of single events as the attributes of a class, by the names in `SINGLE`.

    A calibrator keeps this class. What counts the memory of an object, as river does for its models, leaves classes
    out; a compiled kernel by itself would count with all that the compiler knows of it.
    """
    return type("Kernels", (), {function.__name__: each for function, each in zip(SINGLE, kernels, strict=True)})
