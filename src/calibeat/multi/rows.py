"""The rows of a bank of many classes, and the keys they belong to: batches, single events, files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_whole, shown
from calibeat._util.types import Ints, Vector
from calibeat.core.jit import for_cost
from calibeat.errors import InvalidInput, UnknownKey
from calibeat.hosts.bank import Arrivals
from calibeat.hosts.keys import (
    MOST_SEED,
    Index,
    IntColumn,
    IntIndex,
    Key,
    KeyColumn,
    Seed,
    StringIndex,
    check_index,
    check_table,
    check_text,
    with_room,
)

from . import layout, loops
from .check import Classes
from .forecast import MultiForecast
from .receipts import PENDING
from .records import Records
from .vector import PLAIN_SECONDS, VectorStream


class Rows:
    """The rows of "raw", "ots" and "multi", one for each key.

    Single events are served by one stream, which takes a copy of the key's row and puts it back in one step.
    """

    def __init__(self, method: str, classes: Classes, identity: str) -> None:
        self.method, self.K, self.classes = layout.CODES[method], classes.count, classes
        self.fresh = layout.initial_row(self.method, self.K)
        self.matrix = np.empty((0, len(self.fresh)))
        self.index: Index | None = None  # ints or strings: the first key tells
        self.records = Records(identity)
        self._serving = VectorStream(method, self.K)
        self._latest: tuple[Key, MultiForecast] | None = None  # the forecast that the scratch is about

    def __len__(self) -> int:
        return 0 if self.index is None else self.index.count

    def check(self, column: KeyColumn) -> None:
        """Raise if the keys are of another kind than those that are here."""
        self.check_kind(ints=isinstance(column, IntColumn))

    def check_kind(self, *, ints: bool) -> None:
        """Raise if ints, or strings, are no keys of this bank."""
        if self.index is not None and ints != isinstance(self.index, IntIndex):
            wanted, got = ("strings", "ints") if ints else ("ints", "strings")
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got} - at row 0")

    def run(self, column: KeyColumn, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        """On copies of the rows that are touched, which then take their place: all of it happens, or nothing."""
        index = self.index or (IntIndex() if isinstance(column, IntColumn) else StringIndex())
        before, self._latest = index.count, None
        try:
            slots = index.add(column)
            used, places = np.unique(slots, return_inverse=True)
            rows = np.empty((len(used), len(self.fresh)))
            rows[used < before] = self.matrix[used[used < before]]
            rows[used >= before] = self.fresh
            forecasts = self._run(rows, places.astype(np.int64), scores, labels, due)
            matrix = with_room(self.matrix, before, index.count)
        except BaseException:
            index.relink(before)
            raise
        matrix[used] = rows
        self.index, self.matrix = index, matrix
        return forecasts

    def _run(self, rows: Vector, slots: Ints, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        forecasts, work = np.empty(scores.shape), layout.scratch(self.K)
        width, seconds = layout.receipt_width(self.method, self.K), PLAIN_SECONDS * scores.size
        streams = self.method, self.K, rows.reshape(-1), rows.shape[1], slots
        batch = scores.reshape(-1), labels, forecasts.reshape(-1)
        if due is None:
            for_cost(loops.run_rows, seconds)(*streams, *batch, np.empty(width), work)
        else:
            known = np.where(labels == PENDING, np.nan, 0.0)
            late = Arrivals(due, known, slots.astype(np.int32), len(rows))
            run = for_cost(loops.run_rows_late, seconds)
            run(*streams, *batch, np.empty(len(labels) * width), work, late.moments, late.order)
        return forecasts

    def predict_many(self, column: KeyColumn, scores: Vector) -> Vector:
        """From copies of the rows, which are thrown away."""
        found = self._find(column)
        used, places = np.unique(found, return_inverse=True)
        rows = np.where(used[:, None] >= 0, self.matrix[used] if len(self) else self.fresh, self.fresh)
        unknown = np.full(len(scores), PENDING, dtype=np.int64)
        return self._run(rows, places.astype(np.int64), scores, unknown, None)

    def _find(self, column: KeyColumn) -> npt.NDArray[np.int32]:
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def has(self, key: int | bytes) -> bool:
        """Whether a key is here."""
        same = isinstance(key, int) == isinstance(self.index, IntIndex)
        return self.index is not None and same and self.index.find_one(key) >= 0

    def row(self, key: Key, name: int | bytes) -> Vector:
        return self.matrix[self._slot(key, name), :-2].copy()

    def table(self) -> dict[str, npt.NDArray[Any]]:
        rows = self.matrix[: len(self)]
        keys: npt.NDArray[Any] = np.empty(0, dtype=np.int64) if self.index is None else self.index.names()
        events, outcomes = rows[:, layout.T].astype(np.int64), rows[:, layout.N].astype(np.int64)
        evidence = np.array([log + math.log(product) for log, product in rows[:, -2:].tolist()], dtype=np.float64)
        return {"key": keys, "events": events, "outcomes": outcomes, "evidence": evidence}

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, key: Key, name: int | bytes, score: Vector) -> MultiForecast:
        """Forecast one event of a key, which is new or not."""
        self.check_kind(ints=isinstance(name, int))
        slot = -1 if self.index is None else self.index.find_one(name)
        row = self.fresh if slot < 0 else self.matrix[slot]
        events = int(row[layout.T])
        receipts = self.records.of(key, events)
        signature = receipts.issuer.sign(self.records.life)
        self._latest, self._serving.row[:] = None, row
        forecast = self._serving.predict(score, events, self.classes.labels, signature)
        if slot < 0:
            slot = self._open(name)
        # To forecast counts the event, and moves nothing else of a row.
        self.matrix[slot, layout.T], receipts.known, self._latest = events + 1.0, events + 1, (key, forecast)
        return forecast

    def _open(self, name: int | bytes) -> int:
        """A fresh row for a new key."""
        index = self.index or (IntIndex() if isinstance(name, int) else StringIndex())
        before = index.count
        try:
            slot = index.add_one(name)
            matrix = with_room(self.matrix, before, index.count)
            matrix[slot] = self.fresh
        except BaseException:
            index.relink(before)
            raise
        self.index, self.matrix = index, matrix
        return slot

    def update(self, key: Key, name: int | bytes, forecast: MultiForecast, y: int) -> None:
        """Learn column y of a forecast of a key."""
        row = self.matrix[self._slot(key, name)]
        events, outcomes = int(row[layout.T]), int(row[layout.N])
        receipts = self.records.of(key, events)
        latest = self._latest is not None and self._latest[0] == key and self._latest[1] is forecast
        if not latest:
            receipts.check(forecast, events, outcomes, self.K, expert=self.method == layout.MULTI)
        if receipts.is_repeat(forecast.event, y, self.classes):
            return
        self._latest, self._serving.row[:] = None, row
        try:
            receipts.settle(forecast.event, y)
            self._serving.update(forecast, y, latest=latest)
            row[:] = self._serving.row
        except BaseException:  # also an interrupt: the label is learnt and settled, or neither
            if row[layout.N] == outcomes:
                receipts.settled.reopen(forecast.event)
            raise

    def _slot(self, key: Key, name: int | bytes) -> int:
        if self.index is None or not self.has(name):
            raise UnknownKey(f"key must be one of the {len(self)} in the bank, got {shown(key)}")
        return self.index.find_one(name)

    # ---- keys of another bank -------------------------------------------------------------------------------------

    def merge(self, other: Rows) -> None:
        """Take the rows and the records of another bank."""
        if other.index is None:
            return
        column = other.index.column()
        self.check(column)
        common = self._find(column) >= 0
        if common.any():
            key = other.index.key(int(common.argmax()))
            raise InvalidInput(f"banks must have no key in common, got {shown(key)} in both")
        index = self.index or (IntIndex() if isinstance(column, IntColumn) else StringIndex())
        before = index.count
        try:
            slots = index.add(column)
            matrix = with_room(self.matrix, before, index.count)
            matrix[slots] = other.matrix[: len(other)]
            records = self.records.merged(other.records, self._events(), other._events())
        except BaseException:
            index.relink(before)
            raise
        self.index, self.matrix, self.records, self._latest = index, matrix, records, None

    def _events(self) -> dict[Key, int]:
        """How many forecasts each key with a record has had; a key that broke off at its first forecast is not here."""
        if self.index is None:
            return {}
        found = ((key, self.index.find_one(key if isinstance(key, int) else key.encode())) for key in self.records.keys)
        return {key: int(self.matrix[slot, layout.T]) for key, slot in found if slot >= 0}

    # ---- as a file ------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        index = self.index
        kind = "none" if index is None else "ints" if isinstance(index, IntIndex) else "strings"
        seed = None if index is None else index.seed.value
        return {"count": len(self), "keys": kind, "hash_seed": seed, "records": self.records.dump(self._events())}

    def sections(self) -> dict[str, npt.NDArray[Any]]:
        keys = {} if self.index is None else self.index.arrays()
        return {"pool": np.empty(0), **keys, "rows": self.matrix[: len(self)].reshape(-1)}

    def restore(self, header: dict[str, Any], sections: dict[str, npt.NDArray[Any]]) -> None:
        """The inverse of `header` and `sections`, checked."""
        count = check_whole("count", header["count"], 0, 2**31)
        matrix = sections["rows"].reshape(-1, len(self.fresh)).copy()
        if len(matrix) != count or not np.isfinite(matrix).all():
            raise InvalidInput(f"rows must be {count} of finite numbers, got {len(matrix)}")
        for row in matrix:
            layout.check_row(self.method, self.K, row, int(row[layout.T]))
        if header["keys"] != "none":
            lengths = {"keys": count, "marks": 2 * count}
            if any(len(sections[name]) != size for name, size in lengths.items() if name in sections):
                raise InvalidInput(f"keys must be {count}, got others")
            check_table(sections["table"], count)
            if "marks" in sections:
                check_text(sections["text"], sections["marks"])
            seed = Seed(check_whole("hash_seed", header["hash_seed"], 0, MOST_SEED))
            index: Index = IntIndex(seed) if header["keys"] == "ints" else StringIndex(seed)
            index.restore(count, {name: array.copy() for name, array in sections.items()})
            check_index(index)
            self.index = index
        self.matrix = matrix
        self._load_records(header["records"])

    def _load_records(self, data: Any) -> None:
        counts = {}
        for key, _ in data:
            row = self.matrix[self._slot(key, key if isinstance(key, int) else key.encode())]
            counts[key] = int(row[layout.T]), int(row[layout.N])
        self.records.load(data, counts, self.K)
