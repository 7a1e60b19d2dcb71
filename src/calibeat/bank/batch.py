"""`Bank.run`: all events of a batch or none, by one thread or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core import loops
from calibeat.core.jit import is_compiled
from calibeat.core.layout import N
from calibeat.hosts.dispatch import for_batch

from .keys import KeyColumn
from .late import Arrivals
from .start import pool_late_rows, pool_rows
from .threads import Gate, Part, Serve, parts_of, run_in_threads
from .undo import Undo
from .watch import Watching

if TYPE_CHECKING:
    from .bank import Bank

_WORTH_A_THREAD = 20_000  # events; fewer are done before another thread has begun


def run_batch(
    bank: Bank,
    column: KeyColumn,
    scores: Vector,
    outcomes: Vector,
    due: Ints | None,
    workers: int,
    *,
    raw_first: bool = False,
) -> Vector:
    """The forecasts of a batch, which is learnt. The caller holds the lock.

    A small batch is undone if it is broken off: its rows are put aside before. A large one, which is compiled, runs in
    threads that no Ctrl-C reaches; once they have begun it is finished, and the interrupt is raised then.
    """
    store, gate = bank._store, Gate()
    forecasts = np.empty(len(scores))
    loop: Any = loops.run if due is None else loops.run_late
    with Undo(bank) as undo:
        slots = store.open(column)
        arrivals = None if due is None else Arrivals(due, outcomes, slots, len(store))
        raw_below = _raw_below(bank, slots, arrivals if raw_first else None)
        serve = _server(bank, slots, scores, outcomes, arrivals, forecasts, raw_below)
        watch = Watching(store.monitors, slots, scores, forecasts, outcomes, due)
        large = len(scores) >= _WORTH_A_THREAD and is_compiled(loop)
        if not large:
            undo.remember(slots)
        if bank._prior:
            _teach_pool(bank, undo.count, slots, scores, outcomes, arrivals)
        done = False
        if large:
            workers = max(1, min(workers, len(slots) // _WORTH_A_THREAD))
            undo.leave_to(gate, len(scores))
            done = run_in_threads(watch.beside(serve), parts_of(slots, len(store), workers), gate)
        if not done:
            if large:
                undo.remember(slots)
            watch.beside(serve)((0, len(store)))
        bank._clock = undo.clock + len(scores)
        undo.keep()
    return forecasts


def _server(
    bank: Bank,
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    arrivals: Arrivals | None,
    forecasts: Vector,
    raw_below: int,
) -> Serve:
    """What serves the slots of a part. Everything that it needs is made here."""
    store, method, n = bank._store, bank._method, len(scores)
    rows = method.spec, store.flat, store.stride, slots
    events = method.width, float(bank._clock), scores, outcomes, bank._draws.of(store, slots), forecasts
    loop: Any = for_batch(loops.run if arrivals is None else loops.run_late, method, n)
    if arrivals is None:

        def serve(part: Part) -> None:
            loop(*rows, *part, *events, np.empty(method.receipt_width), *loops.NO_HISTORY, loops.place_before(), n)
    else:
        receipts, cells = np.empty(n * method.receipt_width), np.empty(n, dtype=np.int64)
        late = n + 1, 0, cells, arrivals.moments, arrivals.order, raw_below

        def serve(part: Part) -> None:
            loop(*rows, *part, *events, receipts, *loops.NO_HISTORY, loops.place_before(), *late)

    if len(scores) >= _WORTH_A_THREAD:
        serve((0, 0))  # a first compilation happens here, before anything has changed
    return serve


def _raw_below(bank: Bank, slots: Slots, arrivals: Arrivals | None) -> int:
    """Streams of slots below this forecast the raw score until they have learnt an outcome.

    Those that start from a pool that has learnt something do not. Slots are given in the order of first events.
    """
    if arrivals is None or (bank._prior and bank._pool[N] > 0.0):
        return 0
    if not bank._prior:
        return len(bank._store)
    first = int((arrivals.heads >= 0).argmax()) if (arrivals.heads >= 0).any() else len(slots)
    return int(slots[:first].max(initial=-1)) + 1


def _teach_pool(
    bank: Bank, opened: int, slots: Slots, scores: Vector, outcomes: Vector, arrivals: Arrivals | None
) -> None:
    """The pool's way through the batch; it also starts the rows from slot `opened` on."""
    store, receipt = bank._store, np.empty(bank._method.receipt_width)
    where = bank._method.spec, bank._pool, store.fresh, store.flat, store.stride, slots, opened, scores, outcomes
    if arrivals is None:
        for_batch(pool_rows, bank._method, len(scores))(*where, receipt)
    else:
        for_batch(pool_late_rows, bank._method, len(scores))(*where, arrivals.heads, arrivals.following, receipt)
