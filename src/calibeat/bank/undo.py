"""Changes that happen whole or not at all, also if Ctrl-C or a lack of memory breaks them off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots
from calibeat.monitor.many import Aside

if TYPE_CHECKING:
    from .bank import Bank


class Undo:
    """What a bank was before a change. The caller holds the bank's lock.

    The pattern::

        undo = Undo(bank)
        try:
            ...                      # change the bank
            undo.keep()              # from here on it has happened
        except BaseException:
            insist(undo.restore)     # does nothing once it is kept
            raise
    """

    def __init__(self, bank: Bank) -> None:
        store = bank._store
        self._bank, self._store, self._index = bank, store, store.index
        self.count, self.clock, self._pool = len(store), bank._clock, bank._pool.copy()
        self._adopted = store.all_adopted()
        self._aside: tuple[Slots, npt.NDArray[np.float64]] | None = None
        self._watched: Aside | None = None
        self._entry: tuple[int, npt.NDArray[np.int64]] | None = None
        self.kept = False

    def remember(self, slots: Slots) -> None:
        """Put rows aside that are about to change."""
        slots = np.unique(slots)
        self._aside = slots, self._store.matrix[slots]
        if self._store.monitors is not None:
            self._watched = self._store.monitors.remember(slots[slots < self.count])

    def remember_key(self, slot: int) -> None:
        """Put a key aside that is about to be forgotten, with its row."""
        self.remember(np.array([slot], dtype=np.int32))
        if self._index is not None:
            self._entry = slot, self._index.entry(slot).copy()
        if self._store.monitors is not None:  # the last takes its place
            self._watched = self._store.monitors.remember(np.unique([slot, self.count - 1]).astype(np.int32))

    def keep(self) -> None:
        """The change has happened."""
        self.kept = True

    def restore(self) -> None:
        """Put everything back, unless the change has happened. It may be called again if it was broken off itself."""
        if self.kept:
            return
        bank, store = self._bank, self._store
        if self._aside is not None:
            slots, rows = self._aside
            store.matrix[slots] = rows
        if self._entry is not None and self._index is not None:
            slot, entry = self._entry
            self._index.entry(slot)[:] = entry
        if store.monitors is not None and self._watched is not None:
            store.monitors.restore(self._watched)
        store.truncate(self._index, self.count, self._adopted)
        bank._draws.forget_from(self.count)
        bank._store, bank._clock = store, self.clock
        bank._pool[:] = self._pool
        bank._members.forget_strangers()


def insist(work: Callable[[], None]) -> None:
    """Do some work that may be repeated, however often somebody presses Ctrl-C meanwhile."""
    while True:
        try:
            work()
        except KeyboardInterrupt:
            continue
        return
