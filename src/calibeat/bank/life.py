"""Keys and rows that come and go: opening one, forgetting, merging, rows out and rows in. Each happens whole or not."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from calibeat._util.check import shown
from calibeat._util.types import Slots, Vector
from calibeat.core.layout import N
from calibeat.core.method import Method
from calibeat.core.receipt import Forecast
from calibeat.core.stats import EVENTS, LAST
from calibeat.errors import InvalidInput
from calibeat.hosts.calibrator import Calibrator

from .check import check_rows
from .keys import Key, KeyColumn
from .start import fresh_row
from .undo import Undo

if TYPE_CHECKING:
    from .bank import Bank


# ---- one new key -------------------------------------------------------------------------------------------------


def open_and_predict(bank: Bank, key: Key, name: int | bytes, score: float) -> Forecast:
    """The first forecast of a key, whose row is made as `run` would have made it."""
    with Undo(bank) as undo:
        slot = bank._store.open_one(name)
        bank._store.matrix[slot, : bank._method.width] = fresh_row(bank)
        forecast = bank._members.serving(key, slot)._predict_taken(score)
        undo.keep()
    return forecast


def stranger(bank: Bank, key: Key) -> Calibrator:
    """What a new key would get, without a row for it."""
    calibrator = Calibrator(bank._method, bank._seed, bank._stream(key))
    calibrator._row[:] = array("d", fresh_row(bank))
    return calibrator


# ---- keys that go ------------------------------------------------------------------------------------------------


def remove(bank: Bank, key: Key, slot: int) -> None:
    """Forget one key."""
    with Undo(bank) as undo:
        undo.remember_key(slot)
        bank._draws.forget_from(slot)
        bank._store.remove(slot)
        undo.keep(lambda: bank._members.forget([key]))


def drop_idle(bank: Bank, before: int) -> Bank:
    """Forget the keys without an event among the last `before`, and return them as a bank."""
    store = bank._store
    idle = store.stats(LAST) <= bank._clock - before
    dropped = type(bank)(
        bank._method, bank._seed, prior=bank._prior, independent=bank._independent, threads=bank._threads
    )
    dropped._clock, dropped._pool = bank._clock, bank._pool.copy()
    dropped._store = store.selected(idle)
    dropped._store.accept_foreign_rows()
    dropped._members.take(bank._members)
    if idle.any():
        kept, gone = store.selected(~idle), list(dropped)
        kept.moves += store.moves + 1  # so that members look again
        with Undo(bank) as undo:
            bank._draws.forget_from(0)
            bank._store = kept
            undo.keep(lambda: bank._members.forget(gone))
    return dropped


# ---- keys that come ----------------------------------------------------------------------------------------------


def merge(bank: Bank, other: Bank) -> None:
    """Take the keys of another bank."""
    for what in ("method", "seed", "prior", "independent", "watched"):
        our, their = getattr(bank, what), getattr(other, what)
        if our != their:
            raise InvalidInput(f"banks must have the same {what}, got {shown(our)} and {shown(their)}")
    store, theirs, first = bank._store, other._store, len(bank)
    column = None if theirs.index is None else store.check(theirs.index.column())
    if column is not None and theirs.index is not None:
        common = store.find(column) >= 0
        if common.any():
            key = theirs.index.key(int(common.argmax()))
            raise InvalidInput(f"banks must have no key in common, got {shown(key)} in both")
    with Undo(bank) as undo:
        if bank._clock < other._clock:
            undo.remember(np.arange(first, dtype=np.int32))
        if column is not None:
            store.take(column, theirs)
        bank._members.take(other._members)
        clock = max(bank._clock, other._clock)
        store.stats(LAST)[:first] += clock - bank._clock
        store.stats(LAST)[first:] += clock - other._clock
        bank._clock = clock
        if bank._pool[N] == 0.0:
            bank._pool[:] = other._pool
        undo.keep()


def set_rows(bank: Bank, column: KeyColumn, rows: Any) -> None:
    """Put rows in place."""
    store = bank._store
    matrix = np.asarray(rows)
    if matrix.dtype != np.float64 or matrix.shape != (len(column), store.stride):
        wanted = f"float64 of shape ({len(column)}, {store.stride})"
        raise InvalidInput(f"rows must be {wanted}, got {matrix.dtype} of shape {matrix.shape}")
    clock = max(bank._clock, int(np.nanmax(matrix[:, bank._method.width + LAST], initial=0.0)))
    check_rows(bank._method, matrix, clock)
    with Undo(bank) as undo:
        slots = store.open(column)
        _check_different(slots)
        undo.remember(slots)
        store.matrix[slots] = matrix
        store.accept_foreign(slots)
        if store.monitors is not None:
            store.monitors.adopt(slots, store.stats(EVENTS)[slots])
        bank._clock = clock
        store.moves += 1  # so that members look again
        undo.keep()


def _check_different(slots: Slots) -> None:
    if len(np.unique(slots)) != len(slots):
        raise InvalidInput("keys must be different, got one of them twice")


def checked_pool(method: Method, row: Any) -> Vector:
    """A row for the pool, if this method can have it."""
    pool = np.array(row, dtype=np.float64)
    if pool.shape != (method.width,) or not np.isfinite(pool).all():
        raise InvalidInput(f"pool must be {method.width} finite numbers, got shape {pool.shape}")
    method.check_row(pool.tolist(), int(pool[N]))
    return pool
