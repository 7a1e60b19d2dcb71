"""One stream of a bank: a calibrator that works on a copy of its row and puts it back in one step."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_scores, shown
from calibeat._util.types import Vector
from calibeat.core.randomness import stream_key
from calibeat.core.receipt import Forecast
from calibeat.core.stats import EVENTS, LAST, add_losses
from calibeat.errors import UnknownKey
from calibeat.hosts.calibrator import Calibrator, Number
from calibeat.hosts.ledger import OPEN, ZERO, SettledEvents
from calibeat.monitor.monitor import Monitor

from .keys import Key, check_key
from .records import Records
from .start import pool_after

if TYPE_CHECKING:
    from .bank import Bank


class Member(Calibrator):
    """What ``bank[key]`` gives. Whatever happens to it has happened to the bank, and the other way round.

    A copy, a pickle or `to_json` gives a calibrator of its own.
    """

    def __init__(self, bank: Bank, key: Key, slot: int) -> None:
        self._bank = bank
        self._gone = False
        self._whole = memoryview(array("d", bytes(8 * bank._store.stride)))
        self._stats = self._whole[bank._method.width :]
        row = self._whole[: bank._method.width]
        self._mark = bytearray(2)  # what a compiled kernel marks instead of the record, which is marked with the bank
        self._marks = np.frombuffer(self._mark, dtype=np.uint8)
        self._begin(bank._method, bank._seed, 0, row, row)
        self._lock = bank._lock
        self._aim(key, slot)

    def _aim(self, key: Key, slot: int) -> None:
        """Be the member of a key."""
        bank = self._bank
        self._moves, self._latest = -1, None  # until all of it is there
        self._key_of_bank, self._slot = key, slot
        if bank._independent:
            self._stream, self._key = key, stream_key(bank._seed, key)
        self._receipts = bank._members.receipts(key, slot)
        self._signature = self._receipts.issuer.signature
        self._take_row()
        self._moves = bank._store.moves

    def _take_row(self) -> None:
        store = self._bank._store
        at = self._slot * store.stride
        self._whole[:] = store.view[at : at + store.stride]
        self._events = int(self._stats[EVENTS])
        if self._receipts.known != self._events:
            self._receipts.catch_up(self._events)

    def _take_kernels(self) -> None:
        super()._take_kernels()
        self._short: Any = self._fast_update
        self._fast_update = None  # the calibrator would mark the record before the bank has learnt

    def _refresh(self) -> None:
        with self._lock:
            self._bank._check_not_broken()
            if self._gone:
                key = shown(self._key_of_bank)
                raise UnknownKey(f"key must be one of the bank's, got {key}, which it has forgotten")
            if self._moves != self._bank._store.moves:
                self._aim(self._key_of_bank, self._bank._known(self._key_of_bank))
            else:
                self._take_row()

    def _sign(self) -> str:
        self._signature = self._receipts.issuer.ensure_signature(self._bank._members.life)
        return self._signature

    def predict(self, score: Number) -> Forecast:
        with self._lock:
            self._refresh()
            return self._predict_taken(score)

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        with self._lock:
            self._bank._check_writable("learn")
            self._refresh()
            self._update_taken(forecast, outcome)

    def _predict_taken(self, score: Number) -> Forecast:
        """Forecast from the copy of the row; then count the event, in one step."""
        bank, view, receipts = self._bank, self._bank._store.view, self._receipts
        forecast = super().predict(score)
        if bank._writable:
            monitors, clock, events = bank._store.monitors, bank._clock + 1, forecast.event + 1
            at = self._slot * bank._store.stride + len(self._row)
            count, time = events + 0.0, clock + 0.0
            owed = None if monitors is None else (monitors.catch_up, self._slot, events)
            # One line, without a call: an interrupt comes before all of it or after all of it.
            view[at + EVENTS], view[at + LAST], bank._clock, receipts.known, bank._owed = (
                count, time, clock, events, owed,
            )  # fmt: skip
            if owed is not None:
                bank._tell()
        return forecast

    def _update_taken(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn on the copy of the row; then put it back, in one step."""
        short = self._short is not None and forecast is self._latest and type(outcome) is int and 0 <= outcome <= 1
        if short:  # pragma: no cover - the leg that measures coverage has the JIT off
            kernels, spec, row, asked, receipt = self._short
            event, y, settled = forecast.event, float(outcome), self._receipts.settled
            first, marks, _ = settled.span
            at, self._mark[0] = event - first, 0
            is_open = 0 <= at < len(marks) - 1 and marks[at] == OPEN
            if is_open and kernels.settle_one(spec, row, event, y, asked, receipt, self._marks, event):
                self._take_over(forecast, y, settled, marks, at, marks, 0)
                return
        super().update(forecast, outcome)

    def _take_over(
        self,
        forecast: Forecast,
        y: float,
        settled: SettledEvents,
        marks: bytearray,
        at: int,
        old: bytearray,
        sealed: int,
    ) -> None:
        """Put the copy of the row back, with the pool and the mark, in one step."""
        bank, store, receipts, whole = self._bank, self._bank._store, self._receipts, self._whole
        score, probability, mark = forecast.score, forecast.probability, ZERO + (y == 1.0)
        first, last = self._slot * store.stride, (self._slot + 1) * store.stride
        add_losses(self._stats, 0, score, probability, y)  # type: ignore[arg-type]
        pool, owed = pool_after(bank, score, y), None
        if store.monitors is not None:
            owed = store.monitors.update, self._slot, forecast.event, (probability, y, score)
        # One line, without a call: an interrupt comes before all of it or after all of it.
        store.view[first:last], bank._pool, marks[at], receipts.settled, old[-1], bank._owed = (
            whole, pool, mark, settled, sealed, owed,
        )  # fmt: skip
        if owed is not None:
            bank._tell()

    def run(
        self,
        scores: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        *,
        due: npt.ArrayLike | None = None,
        mature: Any = None,
        times: Any = None,
        finish: bool = False,
    ) -> Vector:
        with self._lock:
            self._bank._check_writable("learn")
            self._refresh()
            keys = [self._key_of_bank] * len(check_scores(scores))
            return self._bank.run(keys, scores, outcomes, due=due, mature=mature, times=times, finish=finish)

    @property
    def monitor(self) -> Monitor | None:
        """A copy of the key's monitor as it is now, if the bank has monitors; of its alarms it knows the last."""
        with self._lock:
            self._refresh()
            monitors = self._bank._store.monitors
            return None if monitors is None else monitors.monitor(self._slot)

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """As `Calibrator.from_json`: a calibrator of its own."""
        return Calibrator.from_json(text)


class Members(Records):
    """The members of a bank: one object a key, as long as somebody holds it, and one that serves single events."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank)
        self._serving: Member | None = None

    def of(self, key: Any) -> Member:
        """The member of a key."""
        key = check_key(key) if type(key) not in (int, str) else key
        member: Member | None = self._alive.get(key)
        if member is None:
            member = self._alive[key] = Member(self._bank, key, self._bank._known(key))
        return member

    def serving(self, key: Key, slot: int) -> Member:
        """The member that serves single events, at a key."""
        member = self._serving
        if member is None:
            member = self._serving = Member(self._bank, key, slot)
        elif member._key_of_bank != key or member._moves != self._bank._store.moves:
            member._aim(key, slot)
        else:
            member._take_row()
        return member

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their members are of no more use, and their receipts are not those of a later namesake."""
        super().forget(keys)
        self._serving = None
        for key in keys:
            member = self._alive.pop(key, None)
            if member is not None:
                member._gone = True
