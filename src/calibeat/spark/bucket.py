"""One bucket of keys of a stream: scores and outcomes in, forecasts out; rows and what waits for outcomes in pages.

An event is known by its key and its id. Within one micro-batch operations are taken in the order of their times. At the
same time outcomes come before scores, and equals in the order of their ids. An outcome that comes before its score
waits for it. Nothing depends on how the rows of a micro-batch were ordered or cut: a batch that is run again gives the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.bank.travel import rows_in, rows_out

from .pages import Pages, Store
from .state import bank_of, from_bytes, to_bytes

OPEN, SETTLED, EARLY = 0, 1, 2  # waits for its outcome; has it; has an outcome and no score yet


@dataclass(frozen=True)
class Rules:
    """What a bucket is to do, to be sent to the workers."""

    described: str
    strings: bool  # whether keys are strings
    pages: int = 16
    expire: int | None = None  # microseconds after the time of a score
    expire_as: int | None = None  # learn this in the place of an outcome that did not come
    learnt: bool = False  # whether each outcome that is learnt is reported


@dataclass(slots=True)
class Entry:
    """An event that is remembered."""

    hash: int  # of key and id
    key: Any
    key_hash: int
    id: str
    state: int
    time: int  # of the score; while there is none, of the outcome
    score: float = nan
    forecast: float = nan
    outcome: float = nan
    receipt: bytes | None = None
    at: int = -1  # its forecast's place in the fold of this batch


class Bucket:
    """The keys of one bucket, as far as one micro-batch touches them."""

    def __init__(self, rules: Rules, rows: Store, events: Store) -> None:
        import pyarrow as pa

        self.rules = rules
        key = ("key", pa.string() if rules.strings else pa.int64())
        self._rows = Pages(rows, pa.schema([("hash", pa.int64()), key, ("row", pa.binary())]), rules.pages)
        numbers = [(name, pa.float64()) for name in ("score", "forecast", "outcome")]
        known = [
            ("key_hash", pa.int64()),
            ("id", pa.string()),
            ("state", pa.int8()),
            ("time", pa.int64()),
            *numbers,
            ("receipt", pa.binary()),
        ]
        self._events = Pages(events, pa.schema([("hash", pa.int64()), key, *known]), rules.pages)

    # ---- one micro-batch ------------------------------------------------------------------------------------------

    def serve(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Operations as columns: key, id, time, score (NaN: an outcome), outcome, and hashes of key and of both."""
        order = np.lexsort((np.array(batch["id"], dtype=np.str_), ~np.isnan(batch["score"]), batch["time"]))
        found, stay = self._events.take(batch["event_hash"])
        entries = {(entry.key, entry.id): entry for entry in _entries(found)}
        fold = _Fold()
        columns = ("key", "id", "time", "score", "outcome", "key_hash", "event_hash")
        operations = zip(*(_listed(batch[name], order) for name in columns), strict=True)
        for key, name, time, score, outcome, key_hash, event_hash in operations:
            entry = entries.get((key, name))
            if isnan(score):
                if entry is None:
                    entries[key, name] = Entry(event_hash, key, key_hash, name, EARLY, time, outcome=outcome)
                elif entry.state == OPEN:
                    fold.settle(entry, time, outcome)
                else:
                    status = "repeated" if entry.outcome == outcome else "conflict"
                    fold.tell(entry, time, status, outcome)
            elif entry is None or entry.state == EARLY:
                early = entry
                entry = entries[key, name] = Entry(event_hash, key, key_hash, name, OPEN, time, score)
                fold.ask(entry)
                if early is not None:
                    fold.settle(entry, max(time, early.time), early.outcome)
            else:
                fold.tell(entry, time, "repeated" if entry.score == score else "conflict", nan, score)
        told = self._run(fold)
        self._events.put(_table(self._events.schema, list(entries.values())), stay)
        return told

    def expired(self, now: int) -> dict[str, list[Any]]:
        """Forget events whose time is over by now, and tell which of them had no outcome, or no score."""
        limit = now - (self.rules.expire or 0)
        gone = [
            entry for table in self._events.sweep(lambda t: t["time"].to_numpy() <= limit) for entry in _entries(table)
        ]
        fold = _Fold()
        for entry in sorted(gone, key=lambda entry: (entry.time, str(entry.key), entry.id)):
            if entry.state == EARLY:
                fold.tell(entry, entry.time, "unknown", entry.outcome)
            elif entry.state == OPEN and self.rules.expire_as is not None:
                fold.settle(entry, entry.time, float(self.rules.expire_as), "expired")
            elif entry.state == OPEN:
                fold.tell(entry, entry.time, "expired", nan)
        return self._run(fold)

    def start(self, keys: list[Any], hashes: Ints, rows: list[bytes]) -> None:
        """Rows of a state to go on from."""
        import pyarrow as pa

        bank = bank_of(self.rules.described)
        rows_in(bank, keys, from_bytes(bank, rows, keys))  # looks at them
        _, stay = self._rows.take(hashes)
        self._rows.put(pa.table([hashes, keys, rows], schema=self._rows.schema), stay)

    def _run(self, fold: _Fold) -> dict[str, list[Any]]:
        """The fold on the rows of its keys; -> what is told, with the forecasts."""
        if not fold.keys:
            return fold.told(self.rules)
        import pyarrow as pa

        bank = bank_of(self.rules.described)
        hashes = dict(zip(fold.keys, fold.hashes, strict=True))
        found, stay = self._rows.take(np.fromiter(hashes.values(), dtype=np.int64, count=len(hashes)))
        mine = np.array([key in hashes for key in found["key"].to_pylist()], dtype=bool)
        others, found = found.filter(pa.array(~mine)), found.filter(pa.array(mine))
        if len(found):
            keys = found["key"].to_pylist()
            rows_in(bank, keys, from_bytes(bank, found["row"].to_pylist(), keys))
        # Arrays, whose values need not be looked at one by one.
        numbers = np.array(fold.scores), np.array(fold.outcomes)
        made = bank.fold(fold.keys, *numbers, fold.receipts, of=np.array(fold.sources))
        fold.finish(made.forecasts, made.receipts.tolist())
        names, rows = rows_out(bank)
        names = names.tolist()
        columns = [[hashes[name] for name in names], names, to_bytes(rows)]
        self._rows.put(pa.concat_tables([others, pa.table(columns, schema=self._rows.schema)]), stay)
        return fold.told(self.rules)


class _Fold:
    """Operations for `Bank.fold`, and what is told of them."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.hashes: list[int] = []
        self.scores: list[float] = []
        self.outcomes: list[float] = []
        self.sources: list[int] = []
        self.receipts: list[bytes] = []
        self._asked: list[Entry] = []
        self._told: list[tuple[Entry, int, str, float, float]] = []

    def ask(self, entry: Entry) -> None:
        """A forecast."""
        entry.at = len(self.keys)
        self._add(entry, entry.score, nan, -1)
        self._asked.append(entry)
        self.tell(entry, entry.time, "forecast", nan)

    def settle(self, entry: Entry, time: int, outcome: float, status: str = "learnt") -> None:
        """The outcome of a forecast."""
        self._add(entry, nan, outcome, entry.at)
        if entry.at < 0:
            assert entry.receipt is not None  # noqa: S101 - it is open and of an earlier batch
            self.receipts.append(entry.receipt)
        entry.state, entry.outcome, entry.receipt = SETTLED, outcome, None
        self.tell(entry, time, status, outcome)

    def _add(self, entry: Entry, score: float, outcome: float, source: int) -> None:
        self.keys.append(entry.key)
        self.hashes.append(entry.key_hash)
        self.scores.append(score)
        self.outcomes.append(outcome)
        self.sources.append(source)

    def tell(self, entry: Entry, time: int, status: str, outcome: float, score: float | None = None) -> None:
        """Say something of an event."""
        self._told.append((entry, time, status, outcome, entry.score if score is None else score))

    def finish(self, forecasts: Vector, receipts: list[bytes]) -> None:
        """The forecasts are made."""
        for entry, receipt in zip(self._asked, receipts, strict=True):
            entry.forecast = forecasts[entry.at].item()
            if entry.state == OPEN:
                entry.receipt = receipt

    def told(self, rules: Rules) -> dict[str, list[Any]]:
        """What was said, as columns."""
        told = [row for row in self._told if rules.learnt or row[2] != "learnt"]
        return {
            "key": [entry.key for entry, *_ in told],
            "id": [entry.id for entry, *_ in told],
            "time": [time for _, time, *_ in told],
            "status": [status for _, _, status, *_ in told],
            "score": [score for *_, score in told],
            "forecast": [entry.forecast for entry, *_ in told],
            "outcome": [outcome for *_, outcome, _ in told],
            "reason": [None] * len(told),
        }


def _listed(column: Any, order: Ints) -> list[Any]:
    """In that order, as plain Python."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column[order].tolist()
    return [column[i] for i in order.tolist()]


def _entries(table: Any) -> list[Entry]:
    columns = (table[name].to_pylist() for name in _STORED)
    return [Entry(*row) for row in zip(*columns, strict=True)]


def _table(schema: Any, entries: list[Entry]) -> Any:
    import pyarrow as pa

    return pa.table({name: [getattr(entry, name) for entry in entries] for name in schema.names}, schema=schema)


_STORED = ("hash", "key", "key_hash", "id", "state", "time", "score", "forecast", "outcome", "receipt")
