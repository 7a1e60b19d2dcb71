"""Single events by the compiled kernels: at the first batch if they lie in the cache, or when somebody asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat.core import kernel, loops
from calibeat.core.jit import compiled, is_cached, is_compiled
from calibeat.core.presets import AUTO, HOPS

SINGLE = (kernel.predict, kernel.settle, kernel.update)

_EMPTY = np.empty(0)
_ONE = np.array([0.5])
_looked = [False]  # whether this process has looked into the cache


def warm_up(*, bank: bool = False) -> None:
    """Load every compiled kernel now; calibrators made from then on serve single events by them too.

    With ``bank=True`` also those of a `Bank`.

    Single events run as plain Python at first: there at once, and fast enough for most. By the compiled kernels predict
    and update together take some 2 microseconds whatever the method (AUTO: 18 as plain Python), and the bits do not
    change. To load them takes half a second; on a machine that has never compiled them it takes a dozen seconds or
    more, so do it when an image is built, and again when a service starts. (A first batch loads them as well, where
    they lie compiled in the cache.)

    >>> import calibeat
    >>> calibeat.warm_up()
    >>> float(calibeat.Calibrator("ops").predict(0.25))
    0.25
    """
    spec, row, receipt = AUTO.spec, AUTO.initial_row(), np.zeros(AUTO.receipt_width)  # one signature serves all methods
    run: Any = compiled(loops.run)
    run_late: Any = compiled(loops.run_late)
    stream = spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, 0.0
    batch = _ONE, np.ones(1), _EMPTY, np.empty(1), receipt, *loops.NO_HISTORY
    one, none = np.ones(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    run(*stream, *batch, loops.place_before(), 1)
    run_late(*stream, *batch, loops.place_before(), 1, 0, one, one, none)
    compiled(loops.predict_many)(spec, row, len(row), row, loops.NO_SLOTS, _ONE, _EMPTY, np.empty(1), receipt)
    _load_single()
    if bank:
        _load_bank()


def load_single_if_cached() -> None:
    """What a batch does, which has loaded Numba anyway: take what the cache has, and leave it if it has nothing."""
    if not _looked[0]:
        _looked[0] = True
        if is_cached(*SINGLE):  # pragma: no cover - the leg that measures coverage has the JIT off
            _load_single()


def single_is_compiled() -> bool:
    """Whether single events can be served by the compiled kernels."""
    return is_compiled(*SINGLE)


def _load_single() -> None:
    spec, row, receipt = AUTO.spec, AUTO.initial_row(), np.zeros(AUTO.receipt_width)
    compiled(kernel.predict)(spec, row, 0.5, 0.0, receipt, 0)
    compiled(kernel.settle)(spec, row, 1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0, 1.0, receipt, 0)
    compiled(kernel.update)(spec, row, 2.0, 0.5, 0, 1.0, receipt, 0, _EMPTY, _EMPTY, _EMPTY, 0)


def _load_bank() -> None:
    from calibeat.bank.bank import Bank  # which makes calibrators, which look here

    scores, outcomes, keys = np.full(100, 0.5), np.ones(100), np.arange(100)
    for column in (keys, keys.astype("U")):
        made = Bank(AUTO, prior="pooled")
        made.run(column, scores, outcomes)
        made.predict_many(column, scores)
    made = Bank(HOPS)
    made.run(keys, scores, outcomes)
