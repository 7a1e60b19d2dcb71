"""What a bank of many classes knows of the receipts of its keys: which wait for their label, and which were learnt."""

from __future__ import annotations

import hashlib
from collections.abc import KeysView
from typing import Any

from calibeat._util.check import shown
from calibeat.errors import InvalidInput
from calibeat.hosts.keys import Key
from calibeat.stream.receipts import Issuer, new_life

from .receipts import Receipts

KEEP = 64  # events of a key, before its oldest one without a label, whose labels are remembered


class Records:
    """The receipts of keys that were served one event at a time; see `calibeat.hosts.bank`, whose rules these are.

    A key without a record has no open events. `identity` describes classes and method: receipts of another bank, or of
    another key, are told from those of this one.
    """

    RECORDS = 65_536

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._records: dict[Key, Receipts] = {}
        self._many = self.RECORDS
        self.life: str | None = None  # of a bank that continues from a file, or that took keys of another

    @property
    def keys(self) -> KeysView[Key]:
        return self._records.keys()

    def of(self, key: Key, events: int) -> Receipts:
        """The record of a key that has made so many forecasts, made if there is none."""
        found = self._records.get(key)
        if found is None:
            if len(self._records) >= self._many:
                self._sweep()
            lives = ((0, ""),) if self.life is None else ((events, None),)
            found = self._records[key] = Receipts(Issuer(self._name(key), lives), events, keep=KEEP)
        found.catch_up(events)
        return found

    def _name(self, key: Key) -> str:
        return hashlib.blake2b(repr((self._identity, key)).encode(), digest_size=8).hexdigest()

    def _sweep(self) -> None:
        """Let go of the records of keys without an open event."""
        self._records = {key: record for key, record in self._records.items() if record.is_open()}
        self._many = max(self.RECORDS, 2 * len(self._records))

    def merged(self, other: Records, events: dict[Key, int], others: dict[Key, int]) -> Records:
        """The records of both banks, in a new life; `events` and `others` are the forecasts of each key so far."""
        both = Records(self._identity)
        both._records = {
            **{key: self._records[key].copy(count) for key, count in events.items()},
            **{key: other._records[key].copy(count) for key, count in others.items()},
        }
        both.life = new_life()
        return both

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: dict[Key, int]) -> list[list[Any]]:
        """The records with an open event, as JSON-able data."""
        found = []
        for key, count in events.items():
            self._records[key].catch_up(count)
            if self._records[key].is_open():
                found.append([key, self._records[key].dump(count)])
        return found

    def load(self, data: Any, counts: dict[Key, tuple[int, int]], K: int) -> None:
        """The inverse of `dump`, in a new life; `counts` are the forecasts and the labels of each key."""
        self.life = new_life()
        for key, state in data:
            if not isinstance(state, dict):
                raise InvalidInput(f"record must be an object, got {shown(state)}")
            self._records[key] = Receipts.load(self._name(key), state, *counts[key], K, keep=KEEP)
