"""Changes that happen whole or not at all, also if Ctrl-C, a fork or a lack of memory breaks them off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots
from calibeat.monitor.monitors import Aside

if TYPE_CHECKING:
    from .bank import Bank
    from .threads import Gate


class Undo:
    """A change of a bank, which happens whole or not at all. The caller holds the bank's lock.

    The pattern::

        with Undo(bank) as undo:
            ...                      # change the bank
            undo.keep()              # from here on it has happened

    An interrupt may come while it is undone, and another one then. So the bank knows of the change until it is
    finished, and the next call finishes it before it does anything else. So does a process that was forked meanwhile.
    """

    def __init__(self, bank: Bank) -> None:
        store, members = bank._store, bank._members
        self._bank, self._store, self._index = bank, store, store.index
        self.count, self.clock, self._pool = len(store), bank._clock, bank._pool.copy()
        self._foreign = store.foreign
        self._life = members.life, members.complete
        self._aside: tuple[Slots, npt.NDArray[np.float64]] | None = None
        self._watched: Aside | None = None
        self._entry: tuple[int, npt.NDArray[np.int64]] | None = None
        self._threads: tuple[Gate, int] | None = None
        self._then: Callable[[], None] | None = None
        self.kept = False

    def __enter__(self) -> Undo:
        self._bank._undo = self
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

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

    def leave_to(self, gate: Gate, events: int) -> None:
        """Threads behind a gate make the change. Once it is open they finish it, and so many events are taken."""
        self._threads = gate, events

    def keep(self, then: Callable[[], None] | None = None) -> None:
        """The change has happened. What is to be done then is done, once or twice, whatever comes between."""
        self._then, self.kept = then, True

    def finish(self) -> None:
        """Put everything back, unless the change has happened. It is called again if it was broken off itself."""
        if self._threads is not None:
            self._wait(*self._threads)
        if not self.kept:
            self._restore()
        elif self._then is not None:
            self._then()
        self._bank._undo = None

    def _wait(self, gate: Gate, events: int) -> None:
        if gate.is_open:
            insist(gate.finish)
            if gate.served or gate.is_lost:  # if not, each failed before it began
                self._bank._clock = self.clock + events
                if gate.failures:
                    error = gate.failures[0]
                    self._bank._broken = f"{type(error).__name__}: {error}"
                self.kept = True

    def _restore(self) -> None:
        bank, store = self._bank, self._store
        if self._aside is not None:
            slots, rows = self._aside
            store.matrix[slots] = rows
        if self._entry is not None and self._index is not None:
            slot, entry = self._entry
            self._index.entry(slot)[:] = entry
        if store.monitors is not None and self._watched is not None:
            store.monitors.restore(self._watched)
        store.truncate(self._index, self.count, self._foreign)
        bank._draws.forget_from(self.count)
        bank._store, bank._clock, bank._owed = store, self.clock, None
        bank._pool[:] = self._pool
        bank._members.life, bank._members.complete = self._life
        bank._members.forget_strangers()


def insist(work: Callable[[], None]) -> None:
    """Wait for something that comes to an end by itself, however many signals come meanwhile, whatever they raise."""
    while True:
        try:
            work()
        except BaseException:  # noqa: BLE001, S112 - the caller has an interrupt to raise already
            continue
        return
