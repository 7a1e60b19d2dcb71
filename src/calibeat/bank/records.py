"""What a bank knows of the receipts of its keys: which wait for their outcome, and which were learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from calibeat.core.layout import N
from calibeat.core.randomness import stream_key
from calibeat.core.stats import EVENTS
from calibeat.errors import OutcomeConflict, UnknownForecast
from calibeat.hosts.ledger import DIGITS, OPEN, Issuer, Ledger, SettledEvents, new_generation

from .keys import Key, check_keys

if TYPE_CHECKING:
    from .bank import Bank

KEEP = 64  # events of a key, before its oldest one without an outcome, whose outcomes are remembered


class Records:
    """The records of keys that were served one event at a time.

    A key that is only served in batches has no receipts, and nothing is kept for it. A key that was served one event at
    a time has a record: as long as an outcome is open, and for the `RECORDS` keys served last also afterwards, so that
    contradictions are noticed. Without a record a repeat still changes nothing.
    """

    RECORDS = 65_536

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._records: dict[Key, Ledger] = {}
        self._alive: WeakValueDictionary[Key, Any] = WeakValueDictionary()  # the members that somebody holds
        self._many = self.RECORDS
        self._described = repr(bank._method)
        self._fingerprints: dict[Key, int] = {}  # of the keys that were asked for lately
        self._shared: int | None = None  # the fingerprint of keys that share their draws, before their own is added
        # On the receipts of records that begin from now on: nothing in a bank that has all keys that it ever had.
        self.life: str | None = None
        # Whether a key without a record has no open events: unknown after `fold`.
        self.complete = True

    def fingerprint(self, key: Key) -> int:
        """64 bits on each receipt of a key: method, seed, draws and key. Two keys may share draws, but not receipts."""
        found = self._fingerprints.get(key)
        if found is None:
            if len(self._fingerprints) >= self.RECORDS:
                self._fingerprints.clear()
            found = self._fingerprints[key] = self._fingerprint(key)
        return found

    def _fingerprint(self, key: Key) -> int:
        shared = self._shared
        if shared is None:
            bank = self._bank  # as `issuer_name`, without describing the method each time
            shared = stream_key(stream_key(bank._seed, bank._stream(key)), self._described)
            if not bank._independent:
                self._shared = shared
        return stream_key(shared, key)

    def receipts(self, key: Key, slot: int) -> Ledger:
        """The record of a key, made if there is none."""
        found = self._records.get(key)
        if found is None:
            if len(self._records) >= self._many:
                self._sweep()
            found = self._records[key] = self._made(key, slot)
        return found

    def _made(self, key: Key, slot: int) -> Ledger:
        store = self._bank._store
        at = slot * store.stride
        events = int(store.view[at + store.method.width + EVENTS])
        # A bank that has all keys that it ever had signs with the name alone. `fold` may have issued receipts already.
        life = "" if self.life is None else None if self.complete else self.life
        issuer = Issuer(self._name(key), ((store.foreign_until(slot), life),))
        outcomes = events if self.complete else int(store.view[at + N])
        return Ledger(self._bank._method, issuer, SettledEvents.unknown(events, outcomes, keep=KEEP), events)

    def _name(self, key: Key) -> str:
        return f"{self.fingerprint(key):016x}"

    def _sweep(self) -> None:
        """Let go of the records of keys without an open event."""
        for key, events in self._counts():
            if key not in self._alive and not self._records[key].is_open(events):
                del self._records[key]
        self._many = max(self.RECORDS, 2 * len(self._records))

    def _counts(self) -> list[tuple[Key, int]]:
        """The keys with a record, and how many forecasts each has had."""
        keys = list(self._records)
        if not keys:
            return []
        slots = self._bank._store.find(check_keys(keys))
        return list(zip(keys, self._bank._store.stats(EVENTS)[slots].astype(int).tolist(), strict=True))

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their receipts are not those of a later namesake."""
        for key in keys:
            self._records.pop(key, None)
        if keys:
            if not self.complete:  # what `fold` has issued for the others is good for what it was
                self._bank._store.accept_foreign()
            self.life = new_generation()

    def forget_strangers(self) -> None:
        """Let go of the records of keys that are not here."""
        for key in [key for key in self._records if self._bank._slot(key) < 0]:
            del self._records[key]

    def begin_life(self) -> None:
        """Begin a new life, in a process that is a copy of another: what was issued before is good in both."""
        if self._bank._writable:  # a bank that cannot learn takes no receipts, and its rows are not to be looked at
            for key, events in self._counts():
                self._records[key].catch_up(events)
                self._records[key].issuer.begin_generation(events)
            self._bank._store.accept_foreign()
        self._bank._store.moves += 1  # so that members look again
        self.life = new_generation()

    def take(self, other: Records) -> None:
        """The records of another bank, for keys that are here now. Both begin a new life."""
        for key, events in other._counts():
            if self._bank._slot(key) >= 0:
                self._records[key] = other._records[key].copy(events)
        self.life = new_generation()
        self.complete = self.complete and other.complete

    # ---- receipts of `Bank.fold`, which come and go as bytes --------------------------------------------------------

    def life_of(self, key: Key) -> int:
        """The number of the life that issues the receipts of a key; 0 if it has none."""
        record = self._records.get(key)
        life = self.life if record is None else record.issuer.ensure_signature(self.life)[DIGITS + 1 :]
        return int(life or "0", 16)

    def check_given(self, row: int, key: Key, slot: int, event: int, life: int) -> None:
        """Raise if a receipt was issued in another life, or if its outcome is known to have been learnt."""
        record = self._records.get(key)
        if record is None:
            issued = event < self._bank._store.foreign_until(slot) or life == self.life_of(key)
        else:
            issued = record.issuer.issued(event, f"{self._name(key)}-{life:08x}" if life else self._name(key))
        if not issued:
            raise UnknownForecast(
                "receipt must come from this bank, got one that a copy of it has made, or that it made itself after "
                f"the snapshot from which it continues - at row {row}"
            )
        if record is not None and event < record.known and record.settled.mark(event) != OPEN:
            raise OutcomeConflict(f"receipt must be brought once, got one whose outcome is learnt - at row {row}")

    def fold(self, key: Key, events: int, settled: list[tuple[int, float]]) -> None:
        """Some forecasts of a key, up to so many, have been given receipts, and some outcomes were learnt."""
        self.complete = False
        record = self._records.get(key)
        if record is not None:
            record.known = events
            for event, y in settled:
                if record.settled.mark(event) == OPEN:
                    record.settled.settle(event, int(y))

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> list[list[Any]]:
        """The records with an open event, as JSON-able data, in the order of their keys' slots."""
        found = []
        for key, events in self._counts():
            self._records[key].catch_up(events)
            if self._records[key].is_open(events):
                found.append([key, self._records[key].dump(events)])
        return sorted(found, key=lambda record: self._bank._slot(record[0]))

    def load(self, data: Any, *, complete: bool) -> None:
        """The inverse of `dump`, in a new life."""
        self.life, self.complete = new_generation(), complete
        for key, state in data:
            slot = self._bank._known(key)
            events = int(self._bank._store.stats(EVENTS)[slot])
            outcomes = int(self._bank._store.matrix[slot, N])
            self._records[key] = Ledger.load(self._bank._method, self._name(key), state, events, outcomes, keep=KEEP)
