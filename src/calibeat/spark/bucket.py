"""One bucket of keys of a stream: scores and outcomes in, forecasts out; rows and what waits for outcomes in pages.

An event is known by its key and its id. Within one micro-batch operations are taken in the order of their times. At the
same time outcomes come before scores, and equals in the order of their ids. An outcome that comes before its score
waits for it. Nothing depends on how the rows of a micro-batch were ordered or cut: a batch that is run again gives the
same.

All of it is done by columns: a micro-batch of a bucket costs a few calls of NumPy and Arrow, however many rows it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.extras import LazyModule
from calibeat._util.types import Flags, Ints, Slots, Vector
from calibeat.core.randomness import numbered as numbered_events
from calibeat.core.randomness import stream_key, uniforms_at
from calibeat.core.stats import EVENTS
from calibeat.hosts.bank import Bank, rows_in
from calibeat.hosts.rows import fold_on_rows, new_rows, receipt_type

from .eventtable import (
    EARLY,
    EXPIRED,
    HELD,
    HOLDS,
    LEARNT,
    OPEN,
    SETTLED,
    UNKNOWN,
    Events,
    Output,
    Pages,
    PageStore,
    SettledIds,
    bytes_of,
    in_order,
    matrix_of,
    numbered,
)
from .state import bank_of, from_bytes

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

TICKS = 64  # moments in the age of maturity at which outcomes become mature
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Rules:
    """What a bucket is to do, to be sent to the workers."""

    described: str
    strings: bool  # whether keys are strings
    pages: int = 16
    expire: int | None = None  # microseconds after the time of a score
    expire_as: int | None = None  # learn this in the place of an outcome that did not come
    learnt: bool = False  # whether each outcome that is learnt or held is reported
    mature: int | None = None  # microseconds after the time of a score: outcomes are learnt then, and not before

    def due(self, time: Ints) -> Ints:
        """When events of these times are mature: at the first of a number of moments from then on."""
        grain = max(1000, (self.mature or 0) // TICKS // 1000 * 1000)
        return -(-(time + (self.mature or 0)) // grain) * grain


class Bucket:
    """The keys of one bucket, as far as one micro-batch touches them."""

    def __init__(self, rules: Rules, rows: PageStore, events: PageStore) -> None:
        self.rules = rules
        key = ("key", pa.string() if rules.strings else pa.int64())
        self._rows = Pages(rows, pa.schema([("hash", pa.int64()), key, ("row", pa.binary())]), rules.pages)
        named = [key, ("key_hash", pa.int64()), ("id", pa.string()), ("time", pa.int64())]
        numbers = [(name, pa.float64()) for name in ("score", "forecast", "outcome")]
        stored = [*numbers, ("state", pa.int8()), ("receipt", pa.binary())]
        stored += [] if rules.mature is None else [("known", pa.int64())]
        schema = pa.schema([("hash", pa.int64()), *named, *stored])
        self._events = Pages(events, schema, rules.pages)  # those that wait
        self._settled = SettledIds(events, schema, rules.pages, forgets=rules.expire is not None)
        self._nothing = pa.schema([*named, *numbers, ("event_hash", pa.int64())]).empty_table()
        self._bank: Bank = bank_of(rules.described)
        self._method = self._bank.method
        self._size = receipt_type(self._method).itemsize

    # ---- one micro-batch ------------------------------------------------------------------------------------------

    def serve(self, batch: Any, now: int | None = None) -> tuple[Any, Ints]:
        """Operations as a table: key, id, time, score (NaN: an outcome), outcome, and hashes of key and of both.

        -> the output rows, and at which moments outcomes that are held become mature. `now` is the watermark.
        """
        batch = in_order(batch)
        hashes = batch["event_hash"].to_numpy()
        waiting, taken = self._events.take(hashes)
        settled, places = self._settled.find(hashes)
        events = Events(pa.concat_tables([waiting, settled]), batch, self._size)
        complete = events.complete
        due = self.rules.due(events.time[complete])
        wait = (due > (_NEVER if now is None else now)) & (self.rules.mature is not None)
        held, complete, due = complete[wait], complete[~wait], np.unique(due[wait])
        output = Output(events)
        self._learn(events, complete, output)
        events.state[complete], events.state[held] = SETTLED, HELD
        if self.rules.learnt:
            output.outcomes(held, HOLDS)
        output.repeats()
        unchanged = np.zeros(len(events.state), dtype=bool)
        unchanged[events.stored[len(waiting) :]] = True
        table, done = events.table(self._events.schema), events.state == SETTLED
        self._events.put(table.filter(pa.array(~done)), taken)
        self._settled.add(table.filter(pa.array(done & ~unchanged)), places)
        return output.table(), due

    def _learn(self, events: Events, complete: Ints, output: Output) -> None:
        """Forecasts that are asked for, and outcomes to be learnt, in their order."""
        asked = events.asked
        of = np.concatenate([asked, complete])
        order = np.argsort(np.concatenate([2 * events.score_at[asked], events.place(complete)]), kind="stable")
        of, is_asked = of[order], order < len(asked)
        place = np.full(len(events.state), -1)
        place[of[is_asked]] = np.flatnonzero(is_asked)
        own = np.where(is_asked, -1, place[of])
        forecasts, receipts = self._fold(events, of, is_asked, own)
        # In the order of `asked`.
        back = np.argsort(order[is_asked])
        events.keep_receipts(receipts[back], forecasts[place[asked]])
        output.forecasts()
        if self.rules.learnt:
            output.outcomes(complete, LEARNT)

    def _fold(self, events: Events, of: Ints, is_asked: Flags, own: Ints) -> tuple[Vector, npt.NDArray[np.void]]:
        """Operations on the rows of their keys, which are read and written."""
        if not len(of):
            return np.empty(0), np.empty(0, dtype=f"V{self._size}")
        used, places = np.unique(of, return_inverse=True)
        mine = events.names.select(["key_hash", "key"]).take(pa.array(used)).rename_columns(["hash", "key"])
        found, taken = self._rows.take(mine["hash"].to_numpy())
        both = pa.concat_tables([found.select(["hash", "key"]), mine]).combine_chunks()
        first, codes = numbered(both["hash"].to_numpy(), [both["key"]])
        rows = new_rows(self._method, len(first))
        stored, _ = matrix_of(found["row"], 8 * rows.shape[1], f"a row of {self.rules.described} in the state")
        rows[codes[: len(found)]] = np.ascontiguousarray(stored).view("<f8")
        slots = codes[len(found) :][places].astype(np.int32)
        names = both.take(pa.array(first))
        brought = events.receipt[of[~is_asked & (own < 0)]]
        made = fold_on_rows(
            self._method,
            rows,
            slots,
            np.where(is_asked, events.score[of], np.nan),
            np.where(is_asked, np.nan, events.outcome[of]),
            own,
            np.ascontiguousarray(events.receipts[brought]).view(f"V{self._size}").reshape(-1),
            self._draws(rows, slots[is_asked], names["key"]),
        )
        content = bytes_of(np.ascontiguousarray(rows, dtype="<f8"))
        self._rows.put(pa.table([names["hash"], names["key"], content], schema=self._rows.schema), taken)
        return made.forecasts, made.receipts

    def _draws(self, rows: npt.NDArray[np.float64], slots: Slots, keys: Any) -> Vector:
        """The draws of forecasts, as the bank would draw them."""
        bank = self._bank
        if not self._method.draws:
            return np.empty(0)
        streams: Any = np.uint64(stream_key(bank.seed, 0))
        if bank.independent:
            streams = np.array([stream_key(bank.seed, key) for key in keys.to_pylist()], dtype=np.uint64)[slots]
        counts = rows[:, self._method.width + EVENTS].copy()
        return uniforms_at(streams, numbered_events(counts, slots))

    # ---- what comes of age ----------------------------------------------------------------------------------------

    def aged(self, now: int) -> Any:
        """Learn held outcomes that are mature by now, and forget events whose time is over; -> what is output.

        All in the order of the moments at which they were due, then by the times of the outcomes, then by id and key.
        """
        rules = self.rules
        limit = _NEVER if rules.expire is None else now - rules.expire

        def leave(table: Any) -> Flags:
            time, state = table["time"].to_numpy(), table["state"].to_numpy()
            leaves: Flags = (time <= limit) | ((state == HELD) & (rules.due(time) <= now))
            return leaves

        found, taken = self._events.sweep(leave)
        events = Events(found, in_order(self._nothing), self._size)
        gone, mature = events.time <= limit, events.state == HELD
        given_up = gone & (events.state == OPEN)
        of = self._by_age(events, np.flatnonzero(mature | given_up | (gone & (events.state == EARLY))))
        output = Output(events)
        learnt, unknown = mature[of], events.state[of] == EARLY
        time = np.where(learnt, rules.due(events.time[of]), events.time[of])
        status = np.where(learnt, LEARNT, np.where(unknown, UNKNOWN, EXPIRED))
        if rules.expire_as is not None:
            events.outcome[given_up] = float(rules.expire_as)
            learnt |= given_up[of]
        self._fold(events, of[learnt], np.zeros(int(learnt.sum()), dtype=bool), np.full(int(learnt.sum()), -1))
        events.state[of[learnt]] = SETTLED
        shown = (status != LEARNT) | rules.learnt
        output.due(of[shown], time[shown], status[shown])
        table, done = events.table(self._events.schema), events.state == SETTLED
        self._events.put(table.filter(pa.array(~gone & ~done)), taken)
        newly = table.filter(pa.array(~gone & done))
        self._settled.add(newly, self._settled.find(newly["hash"].to_numpy())[1])
        if rules.expire is not None:
            self._settled.forget(limit)
        return output.table()

    def _by_age(self, events: Events, of: Ints) -> Ints:
        """Events in the order in which they come of age."""
        rules, names = self.rules, events.names.take(pa.array(of))
        age = np.where(events.state[of] == HELD, rules.mature or 0, rules.expire or 0)
        by = {"due": events.time[of] + age, "known": events.known[of], "id": names["id"], "key": names["key"]}
        order = pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])
        return of[order.to_numpy()]

    # ---- a state to go on from ------------------------------------------------------------------------------------

    def start(self, frame: Any) -> None:
        """Rows of a state to go on from, as a frame of pandas."""
        if not len(frame):
            return
        keys, hashes = frame["key"].tolist(), frame["key_hash"].to_numpy().astype("int64")
        rows, bank = [bytes(row) for row in frame["row"]], bank_of(self.rules.described)
        rows_in(bank, keys, from_bytes(bank, rows, keys))  # looks at them
        _, taken = self._rows.take(hashes)
        self._rows.put(pa.table([hashes, keys, rows], schema=self._rows.schema), taken)
