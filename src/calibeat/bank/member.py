"""One stream of a bank: a calibrator that works on a copy of its row and puts it back in one step."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_outcome, check_scores, said
from calibeat._util.types import Vector
from calibeat.core import kernel
from calibeat.core.randomness import stream_key
from calibeat.errors import UnknownKey
from calibeat.stream.calibrator import Calibrator, Number
from calibeat.stream.forecast import Forecast, Issuer

from .keys import Key, check_key
from .start import pool_after
from .stats import EVENTS, LAST, add_losses

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
        self._begin(bank._method, bank._seed, 0, self._whole[: bank._method.width])
        self._aim(key, slot)

    def _aim(self, key: Key, slot: int) -> None:
        """Be the member of a key."""
        bank = self._bank
        self._key_of_bank, self._slot, self._moves = key, slot, bank._store.moves
        if bank._independent:
            self._stream, self._key = key, stream_key(bank._seed, key)
        self._issuer = bank._members.issuer(key)
        self._adopted = bank._store.adopted(slot)
        self._last_event = -1
        self._take_row()

    def _take_row(self) -> None:
        store = self._bank._store
        at = self._slot * store.stride
        self._whole[:] = store.view[at : at + store.stride]
        self._events = int(self._stats[EVENTS])

    def _refresh(self) -> None:
        with self._bank._lock:
            if self._gone:
                key = said(self._key_of_bank)
                raise UnknownKey(f"key must be one of the bank's, got {key}, which it has forgotten")
            if self._moves != self._bank._store.moves:
                self._slot = self._bank._known(self._key_of_bank)
                self._moves = self._bank._store.moves
                self._adopted = self._bank._store.adopted(self._slot)
            self._take_row()

    def predict(self, score: Number) -> Forecast:
        with self._bank._lock:
            self._refresh()
            return self._predict_taken(score)

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        self._bank._check_writable("learn")
        with self._bank._lock:
            self._refresh()
            self._update_taken(forecast, outcome)

    def _predict_taken(self, score: Number) -> Forecast:
        """Forecast from the copy of the row; then count the event, in one step."""
        bank, view = self._bank, self._bank._store.view
        try:
            forecast = super().predict(score)
            if bank._writable:
                clock = bank._clock + 1
                at = self._slot * bank._store.stride + len(self._row)
                # One line, without a call: an interrupt comes before all of it or after all of it.
                view[at + EVENTS], view[at + LAST], bank._clock = forecast.event + 1.0, clock + 0.0, clock
        except BaseException:
            self._last_event = -1
            raise
        return forecast

    def _update_taken(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn on the copy of the row; then put it back, with the pool, in one step."""
        bank, row = self._bank, self._row
        store, before, known = bank._store, row[kernel.N], getattr(forecast, "_learnt", ())
        at = self._slot * store.stride
        try:
            super().update(forecast, outcome)
            if row[kernel.N] > before:  # else it was known already
                y = check_outcome(outcome)
                add_losses(self._stats, 0, forecast.score, forecast.probability, y)  # type: ignore[arg-type]
                pool = pool_after(bank, forecast.score, y)
                # One line, without a call in it: an interrupt comes before all of it or after all of it.
                store.view[at : at + store.stride], bank._pool = self._whole, pool
        except BaseException:
            self._last_event = -1
            if isinstance(forecast, Forecast) and store.view[at + kernel.N] == before:
                forecast._learnt = known
            raise

    def run(self, scores: npt.ArrayLike, outcomes: npt.ArrayLike, *, due: npt.ArrayLike | None = None) -> Vector:
        with self._bank._lock:
            self._bank._check_writable("learn")
            self._refresh()
            return self._bank.run([self._key_of_bank] * len(check_scores(scores)), scores, outcomes, due=due)

    def predict_many(self, scores: npt.ArrayLike) -> Vector:
        with self._bank._lock:
            return super().predict_many(scores)

    @property
    def params(self) -> dict[str, Any]:
        with self._bank._lock:
            return super().params

    def to_json(self) -> str:
        with self._bank._lock:
            return super().to_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """As `Calibrator.from_json`: a calibrator of its own."""
        return Calibrator.from_json(text)


class Members:
    """The members of a bank: one object a key, as long as somebody holds it, and one that serves single events."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._method = repr(bank._method)
        self._shared: int | None = None  # of keys that share their draws
        self._serving: Member | None = None
        self._alive: WeakValueDictionary[Key, Member] = WeakValueDictionary()
        self._issuers: WeakValueDictionary[Key, Issuer] = WeakValueDictionary()  # of receipts that are about

    def of(self, key: Any) -> Member:
        """The member of a key."""
        key = check_key(key) if type(key) not in (int, str) else key
        member = self._alive.get(key)
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
            member._slot = slot
            member._take_row()
        return member

    def fingerprint(self, key: Key) -> int:
        """64 bits on each receipt of a key: method, seed, draws and key. Two keys may share draws, but not receipts."""
        shared = self._shared
        if shared is None:
            bank = self._bank
            shared = stream_key(stream_key(bank._seed, bank._stream(key)), self._method)
            if not bank._independent:
                self._shared = shared
        return stream_key(shared, key)

    def issuer(self, key: Key) -> Issuer:
        """The same, on receipts that are alive."""
        issuer = self._issuers.get(key)
        if issuer is None:
            issuer = self._issuers[key] = Issuer(f"{self.fingerprint(key):016x}")
        return issuer

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their members are of no more use, and their receipts are not those of a later namesake."""
        self._serving = None
        for key in keys:
            self._issuers.pop(key, None)
            member = self._alive.pop(key, None)
            if member is not None:
                member._gone = True
