"""One stream of a bank: a calibrator whose row lies in the bank's matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_outcome, check_scores, said
from calibeat._util.types import Vector
from calibeat.core.jit import compiled
from calibeat.core.layout import N
from calibeat.core.randomness import stream_key
from calibeat.core.stats import EVENTS, LAST, add_losses
from calibeat.errors import UnknownKey
from calibeat.stream.calibrator import Calibrator, Number
from calibeat.stream.forecast import Forecast
from calibeat.stream.issuer import Issuer, issuer_name, new_life
from calibeat.stream.receipts import Receipts
from calibeat.stream.settled import Settled

from .keys import Key, check_key, check_keys
from .loops import add_late_losses
from .start import learn_late

if TYPE_CHECKING:
    from .bank import Bank

KEEP = 64  # events of a key, before its oldest one without an outcome, whose outcomes are remembered


class Member(Calibrator):
    """What ``bank[key]`` gives. Whatever happens to it has happened to the bank, and the other way round.

    A copy, a pickle or `to_json` gives a calibrator of its own.
    """

    def __init__(self, bank: Bank, key: Key, members: Members) -> None:
        self._bank, self._key_of_bank, self._members = bank, key, members
        self._moves = bank._store.moves
        self._books: Any = None
        self._gone = False
        slot = bank._known(key)
        self._begin(bank._method, bank._seed, bank._stream(key), self._row_at(slot))
        self._lock = bank._lock
        self._receipts = members.receipts(key, slot)
        self._signature = self._receipts.issuer.signature
        self._refresh()

    def _row_at(self, slot: int) -> Any:
        whole = memoryview(self._bank._store.matrix[slot])
        width = self._bank._method.width
        self._books = whole[width:]
        return whole[:width]

    def _refresh(self) -> None:
        if self._gone:
            raise UnknownKey(f"key must be one of the bank's, got {said(self._key_of_bank)}, which it has forgotten")
        if self._moves != self._bank._store.moves:
            self._row = self._row_at(self._bank._known(self._key_of_bank))
            self._moves = self._bank._store.moves
            self._take_kernels()
        self._events = int(self._books[EVENTS])
        self._receipts.catch_up(self._events)

    def _sign(self) -> str:
        self._signature = self._receipts.issuer.sign(self._members.life)
        return self._signature

    def predict(self, score: Number) -> Forecast:
        bank = self._bank
        with self._lock:
            self._refresh()
            forecast = super().predict(score)
            if bank._writable:
                bank._clock += 1
                self._books[LAST] = float(bank._clock)
                self._receipts.known = self._events
                self._books[EVENTS] = float(self._events)
            return forecast

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        bank = self._bank
        with self._lock:
            bank._check_writable("learn")
            self._refresh()
            before, books, pool = self._row.tobytes(), self._books.tobytes(), bank._pool.copy()
            learnt = self._row[N]
            try:
                super().update(forecast, outcome)
                if self._row[N] > learnt:  # else it was known already
                    y = check_outcome(outcome)
                    add_losses(self._books, 0, forecast.score, forecast.probability, y)
                    bank._learn_together(forecast.score, y)
            except BaseException:
                if self._row[N] > learnt:
                    self._receipts.settled.reopen(forecast.event)
                self._row[:], self._books[:] = _doubles(before), _doubles(books)
                bank._pool = pool
                raise

    def run(
        self, scores: npt.ArrayLike, outcomes: npt.ArrayLike, *, due: npt.ArrayLike | None = None, finish: bool = False
    ) -> Vector:  # fmt: skip
        self._bank._check_writable("learn")
        if due is None:
            self._refresh()
            return self._bank.run([self._key_of_bank] * len(check_scores(scores)), scores, outcomes)
        return super().run(scores, outcomes, due=due, finish=finish)

    def _run(self, loop: Any, end: int, scores: Vector, outcomes: Vector, *late: Any) -> Vector:
        """Late outcomes; those in turn go to the bank."""
        bank, order = self._bank, late[-1]
        with self._lock:
            self._refresh()
            before, books, pool = self._row.tobytes(), self._books.tobytes(), bank._pool.copy()
            settled, clock = self._receipts.settled, bank._clock
            try:
                forecasts = super()._run(loop, end, scores, outcomes, *late)
                compiled(add_late_losses)(np.frombuffer(self._books), scores, forecasts, outcomes, order)
                if bank._prior:
                    receipt = np.empty(self._method.receipt_width)
                    compiled(learn_late)(self._method.spec, bank._pool, scores, outcomes, order, receipt)
                bank._clock = clock + len(scores)
                self._books[LAST] = float(bank._clock)
                self._receipts.known = self._events
                self._books[EVENTS] = float(self._events)
            except BaseException:
                self._row[:], self._books[:] = _doubles(before), _doubles(books)
                self._receipts.settled, self._receipts.known = settled, int(self._books[EVENTS])
                bank._pool, bank._clock = pool, clock
                raise
            return forecasts

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """As `Calibrator.from_json`: a calibrator of its own."""
        return Calibrator.from_json(text)


def _doubles(content: bytes) -> Any:
    return memoryview(content).cast("d")


class Members:
    """The members of a bank: one object a key, as long as somebody holds it, and some at hand for single events.

    And what is known of the receipts of its keys. A key that is only served in batches has no receipts, and nothing is
    kept for it. A key that was served one event at a time has a record: as long as an outcome is open, and for the
    `RECORDS` keys served last also afterwards, so that contradictions are noticed. Without a record a repeat still
    changes nothing.
    """

    MOST = 4096  # kept at hand
    RECORDS = 65_536

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._at_hand: dict[Key, Member] = {}
        self._alive: WeakValueDictionary[Key, Member] = WeakValueDictionary()
        self._records: dict[Key, Receipts] = {}
        self._many = self.RECORDS
        # On the receipts of records that begin from now on: nothing in a bank that has all keys that it ever had.
        self.life: str | None = None
        self.complete = True  # whether a key without a record has no open events; of a file of calibeat 0.1.0 unknown

    def at_hand(self, key: Any) -> Member | None:
        """The member of a key, if it is near."""
        return self._at_hand.get(key) if type(key) in (int, str) else None

    def of(self, key: Any) -> Member:
        """The member of a key."""
        member = self.at_hand(key)
        if member is None:
            self._bank._known(key)
            key = check_key(key)
            member = self._alive.get(key)
            if member is None:
                member = self._alive[key] = Member(self._bank, key, self)
            if len(self._at_hand) >= self.MOST:
                self._at_hand.clear()
            self._at_hand[key] = member
        return member

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their members are of no more use, and their receipts are not those of a later namesake."""
        for key in keys:
            self._at_hand.pop(key, None)
            self._records.pop(key, None)
            member = self._alive.pop(key, None)
            if member is not None:
                member._gone = True
        if keys:
            self.life = new_life()

    # ---- receipts -------------------------------------------------------------------------------------------------

    def receipts(self, key: Key, slot: int) -> Receipts:
        """The record of a key, made if there is none."""
        found = self._records.get(key)
        if found is None:
            if len(self._records) >= self._many:
                self._sweep()
            found = self._records[key] = self._made(key, slot)
        return found

    def _made(self, key: Key, slot: int) -> Receipts:
        store = self._bank._store
        events, adopted = int(store.books(EVENTS)[slot]), store.adopted(slot)
        issuer = Issuer(self._name(key), ((0, ""),) if self.life is None else ((adopted, None),))
        outcomes = events if self.complete else int(store.matrix[slot, N])
        return Receipts(self._bank._method, issuer, Settled.unknown(events, outcomes, keep=KEEP), events)

    def _name(self, key: Key) -> str:
        """Two keys may share their draws, but not their receipts."""
        bank = self._bank
        return f"{stream_key(int(issuer_name(bank._method, bank._seed, bank._stream(key)), 16), key):016x}"

    def _sweep(self) -> None:
        """Let go of the records of keys without an open event."""
        for key, events in self._counts():
            if key not in self._alive and not self._records[key].is_open(events):
                del self._records[key]
        self._many = max(self.RECORDS, 2 * len(self._records))

    def _counts(self) -> list[tuple[Key, int]]:
        """The keys with a record, and how many forecasts each has had."""
        keys = list(self._records)
        slots = self._bank._store.find(check_keys(keys)) if keys else []
        return list(zip(keys, self._bank._store.books(EVENTS)[slots].astype(int).tolist(), strict=True))

    def take(self, other: Members) -> None:
        """The records of another bank, for keys that are here now. Both begin a new life."""
        for key, events in other._counts():
            if key in self._bank:
                self._records[key] = other._records[key].copy(events)
        self.life = new_life()
        self.complete = self.complete and other.complete

    def dump(self) -> list[list[Any]]:
        """The records with an open event, as JSON-able data, in the order of their keys' slots."""
        found = []
        for key, events in self._counts():
            self._records[key].catch_up(events)
            if self._records[key].is_open(events):
                found.append([key, self._records[key].dump(events)])
        return sorted(found, key=lambda record: self._bank._slot(record[0]))

    def load(self, data: Any) -> None:
        """The inverse of `dump`, in a new life; None for a file of calibeat 0.1.0, which has no such data."""
        self.life, self.complete = new_life(), data is not None
        for key, state in data or []:
            slot = self._bank._known(key)
            events = int(self._bank._store.books(EVENTS)[slot])
            outcomes = int(self._bank._store.matrix[slot, N])
            self._records[key] = Receipts.load(
                self._bank._method, self._name(key), state, events, outcomes, keep=KEEP
            )  # fmt: skip
