"""Rows that leave a bank for another host and come back: state, stats, and the monitor's numbers behind them.

The clock of a bank counts events of all its keys, and no clock spans many machines. So a row leaves without the moment
of its last event (0), and every row that comes back counts as just seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibeat.core.stats import EVENTS, LAST
from calibeat.errors import InvalidInput

from .keys import check_keys

if TYPE_CHECKING:
    from .bank import Bank

Matrix = npt.NDArray[np.float64]


def row_width(bank: Bank) -> int:
    """How many numbers such a row has."""
    monitors = bank._store.monitors
    return bank._store.stride + (0 if monitors is None else monitors.settings.width)


def rows_out(bank: Bank) -> tuple[npt.NDArray[Any], Matrix]:
    """The keys and their rows, in the order of the bank."""
    with bank._lock:
        bank._check_not_broken()
        store = bank._store
        rows = store.matrix[: len(store)].copy()
        rows[:, store.method.width + LAST] = 0.0
        if store.monitors is not None:
            if store.monitors.queues:
                slot = min(store.monitors.queues)
                raise InvalidInput(
                    "a bank with monitors must have no outcome under way when its rows leave, got one of key "
                    f"{store.names(np.array([slot], dtype=np.int32))[0]!r}"
                )
            rows = np.hstack([rows, store.monitors.matrix[: len(store)]])
        return store.names(), rows


def rows_in(bank: Bank, keys: Any, rows: Matrix, *, seen: bool = False) -> None:
    """Put such rows in place. With `seen` the bank's clock becomes the events of all of them, and they are of now."""
    store = bank._store
    if rows.ndim != 2 or rows.shape[1] != row_width(bank):
        raise InvalidInput(f"rows must have {row_width(bank)} numbers each, got shape {rows.shape}")
    own = np.ascontiguousarray(rows[:, : store.stride])
    if seen:
        own[:, store.method.width + LAST] = own[:, store.method.width + EVENTS].sum()
    bank.set_rows(keys, own)
    if store.monitors is not None:
        watched = rows[:, store.stride :]
        store.monitors.settings.check_rows(watched)
        with bank._lock:
            store.monitors.matrix[store.find(check_keys(keys))] = watched
