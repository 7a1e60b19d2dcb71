"""One bucket of keys of a stream: scores and outcomes in, forecasts out; rows and what waits for outcomes in pages.

An event is known by its key and its id. It has one score and one outcome: the first of each that comes. All others are
repeats or contradictions. Within one micro-batch operations are taken in the order of their times. At the same time
outcomes come before scores, and equals in the order of their ids. An outcome that comes before its score waits for it.
Nothing depends on how the rows of a micro-batch were ordered or cut: a batch that is run again gives the same.

All of it is done by columns: a micro-batch of a bucket costs a few calls of NumPy and Arrow, however many rows it has.
Open events lie in pages: a page is found by a hash that comes with the data, and is written again only when one of its
rows changes. Settled events are written once, in segments, and found by their hash where one comes again.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.extras import LazyModule
from calibeat._util.types import Flags, Ints, Slots, Vector
from calibeat.core.loops import NO_NUMBERS
from calibeat.core.randomness import numbered as numbered_events
from calibeat.core.randomness import uniforms_at
from calibeat.core.stats import EVENTS
from calibeat.errors import SnapshotMismatch
from calibeat.hosts.bank import Bank, rows_in
from calibeat.hosts.keys import check_keys
from calibeat.hosts.multi import Door
from calibeat.hosts.rows import fold_on_rows, new_rows, receipt_type

from .columns import lists_of, matrix_of_lists
from .state import bank_of, door_of, from_bytes

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

OPEN, SETTLED, EARLY, HELD = 0, 1, 2, 3  # waits for its outcome; has it; has no score yet; waits to be mature
NEW = -1
NAMES = ("hash", "key", "key_hash", "id")
COLUMNS = ("key", "id", "time", "status", "score", "forecast", "outcome", "reason")
STATUSES = ("forecast", "learnt", "held", "repeated", "conflict", "expired", "unknown", "late", "bad")
FORECAST, LEARNT, HOLDS, REPEATED, CONFLICT, EXPIRED, UNKNOWN, LATE, BAD = range(len(STATUSES))
# Places in the store of events: its own pages are below.
INDEX, META, SEGMENTS = 1 << 12, 1 << 13, 1 << 20
_SWEPT = -1  # the line of the table of segments that says up to which time events are forgotten
TICKS = 64  # moments in the age of maturity at which outcomes become mature
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Rules:
    """What a bucket is to do, to be sent to the workers."""

    described: str
    strings: bool  # whether keys are strings
    pages: int = 16
    expire: int | None = None  # microseconds after the time of a score
    expire_as: int | None = None  # learn this in the place of an outcome that did not come; of many classes a column
    learnt: bool = False  # whether each outcome that is learnt or held is reported
    mature: int | None = None  # microseconds after the time of a score: outcomes are learnt then, and not before
    weights: bool = False  # whether outcomes have weights

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
        self._bank: Bank = bank_of(rules.described)
        self._door = door_of(self._bank)
        self._method: Any = self._bank.method if self._door is None else self._door.method
        self._size = receipt_type(self._method).itemsize
        self._width = self._method.spec.classes or 1  # numbers of a score
        named = [key, ("key_hash", pa.int64()), ("id", pa.string()), ("time", pa.int64())]
        kind = pa.float64() if self._width == 1 else pa.list_(pa.float64(), self._width)
        numbers = [("score", kind), ("forecast", kind), ("outcome", pa.float64())]
        stored = [*numbers, ("state", pa.int8()), ("receipt", pa.binary())]
        stored += [] if rules.mature is None else [("known", pa.int64())]
        stored += [("weight", pa.float64())] if rules.weights else []
        schema = pa.schema([("hash", pa.int64()), *named, *stored])
        self._events = Pages(events, schema, rules.pages)  # those that wait
        self._settled = SettledIds(events, schema, rules.pages, forgets=rules.expire is not None)
        self._nothing = pa.schema([*named, *numbers, ("event_hash", pa.int64())]).empty_table()

    # ---- one micro-batch ------------------------------------------------------------------------------------------

    def serve(self, batch: Any, now: int | None = None) -> tuple[Any, Ints]:
        """Operations as a table: key, id, time, score (NaN: an outcome), outcome, and hashes of key and of both.

        There may be a column of weights, which are those of outcomes.
        Of many classes a score is a list of numbers (nothing: an outcome), and an outcome the column of a label.
        -> the output rows, and at which moments outcomes that are held become mature. `now` is the watermark.
        """
        batch = in_order(batch.set_column(batch.column_names.index("score"), "score", self._scores(batch["score"])))
        hashes = batch["event_hash"].to_numpy()
        waiting, taken = self._events.take(hashes)
        settled, places = self._settled.find(hashes)
        events = Events(pa.concat_tables([waiting, settled]), batch, self._size)
        complete = events.complete
        due = self.rules.due(events.time[complete])
        wait = (due > (_NEVER if now is None else now)) & (self.rules.mature is not None)
        held, complete, due = complete[wait], complete[~wait], np.unique(due[wait])
        output = Output(events, self._door)
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

    def _scores(self, column: Any) -> Any:
        """Scores as they are stored: probabilities, NaN where there is an outcome."""
        if self._door is None:
            return column.fill_null(float("nan"))
        asked = np.asarray(one_array(column).is_valid())
        scores = np.full((len(column), self._width), np.nan)
        if asked.any():
            given = matrix_of_lists(column.filter(pa.array(asked)), self._door.classes.count)
            scores[asked] = self._door.scores(given).reshape(-1, self._width)
        return column_of(scores)

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
            return np.empty((0, self._width)), np.empty(0, dtype=f"V{self._size}")
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
        weights = np.where(is_asked, 1.0, events.weight[of]) if self.rules.weights else NO_NUMBERS
        made = fold_on_rows(
            self._method,
            rows,
            slots,
            np.where(is_asked[:, None], events.score[of], np.nan).reshape(-1),
            np.where(is_asked, np.nan, events.outcome[of]),
            own,
            np.ascontiguousarray(events.receipts[brought]).view(f"V{self._size}").reshape(-1),
            self._draws(rows, slots[is_asked], names["key"]),
            weights=weights,
        )
        content = bytes_of(np.ascontiguousarray(rows, dtype="<f8"))
        self._rows.put(pa.table([names["hash"], names["key"], content], schema=self._rows.schema), taken)
        return made.forecasts.reshape(-1, self._width), made.receipts

    def _draws(self, rows: npt.NDArray[np.float64], slots: Slots, keys: Any) -> Vector:
        """The draws of forecasts, as the bank would draw them."""
        bank = self._bank
        if not self._method.draws:
            return np.empty(0)
        streams = check_keys(keys).stream_keys(bank.seed)[slots]
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
        output = Output(events, self._door)
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


# ---- the events of a micro-batch ----------------------------------------------------------------------------------


def in_order(batch: Any) -> Any:
    """Operations by time; at one time outcomes before scores; equals by id, then by value."""
    time, score = batch["time"].to_numpy(), matrix_in(batch["score"])
    is_score = ~np.isnan(score[:, 0])
    order = np.lexsort((is_score, time))
    same = (np.diff(time[order]) == 0) & (np.diff(is_score[order].view(np.int8)) == 0)
    if same.any():
        rank = np.asarray(pc.rank(one_array(batch["id"]), tiebreaker="dense"))
        order = np.lexsort((weights_in(batch), batch["outcome"].to_numpy(), *score.T[::-1], rank, is_score, time))
    return batch.take(pa.array(order))


def weights_in(table: Any) -> Vector:
    """The weight of each outcome, 1 where none is given."""
    if "weight" not in table.column_names:
        return np.ones(len(table))
    weights: Vector = table["weight"].fill_null(1.0).to_numpy()
    return weights


class Events:
    """Columns with a value for each event. `score_at` and `outcome_at` are positions in the micro-batch.

    A position is -1 for what was known before, and the length of the batch for what has not come. Scores and forecasts
    are rows of a matrix: of one number, or of one for each class.
    """

    def __init__(self, found: Any, batch: Any, size: int) -> None:
        """Stored events and the operations of a batch, in order; `size` is that of a receipt."""
        m, n = len(found), len(batch)
        named = [batch[name] for name in ("event_hash", "key", "key_hash", "id")]
        both = pa.concat_tables([found.select(NAMES), pa.table(named, names=NAMES)]).combine_chunks()
        first, codes = numbered(both["hash"].to_numpy(), [both["key"], both["id"]])
        self.names = both.take(pa.array(first)).combine_chunks()
        self.stored, self.of = codes[:m], codes[m:]  # the event of each stored row, and of each operation
        count = len(first)
        self.state = self._spread(found["state"].to_numpy(), count, NEW)
        self.time = self._spread(found["time"].to_numpy(), count, 0)  # of the score; while there is none, the outcome's
        self.score, self.forecast = (
            self._spread(matrix_in(found[name]), count, np.nan) for name in ("score", "forecast")
        )
        self.outcome = self._spread(found["outcome"].to_numpy(), count, np.nan)
        self.weight = self._spread(weights_in(found), count, 1.0)
        self.known = self.time.copy()  # the time of the outcome
        if "known" in found.column_names:
            known = found["known"].fill_null(0).to_numpy()
            self.known = np.where(self.state == HELD, self._spread(known, count, 0), self.known)
        self.receipts, row = matrix_of(found["receipt"], size, "a receipt of the state")
        self.receipt = self._spread(row, count, -1)  # its row in `receipts`
        self._take(batch, n)

    def _spread(self, values: npt.NDArray[Any], count: int, missing: float) -> npt.NDArray[Any]:
        spread = np.full((count, *values.shape[1:]), missing, dtype=values.dtype)
        spread[self.stored] = values
        return spread

    def _take(self, batch: Any, n: int) -> None:
        """The first score and the first outcome of each event."""
        self.op_time, self.op_score = batch["time"].to_numpy(), matrix_in(batch["score"])
        self.op_outcome, self.op_weight = batch["outcome"].to_numpy(), weights_in(batch)
        self.is_score: Flags = ~np.isnan(self.op_score[:, 0])
        had_score = (self.state == OPEN) | (self.state == SETTLED) | (self.state == HELD)
        had_outcome = (self.state == SETTLED) | (self.state == EARLY) | (self.state == HELD)
        self.score_at = np.where(had_score, -1, self._first(self.is_score))
        self.outcome_at = np.where(had_outcome, -1, self._first(~self.is_score))
        self.asked = np.flatnonzero((self.score_at >= 0) & (self.score_at < n))
        came = np.flatnonzero((self.outcome_at >= 0) & (self.outcome_at < n))
        self.outcome[came] = self.op_outcome[self.outcome_at[came]]
        self.weight[came] = self.op_weight[self.outcome_at[came]]
        self.known[came] = self.op_time[self.outcome_at[came]]
        only = (self.state == NEW) & (self.score_at == n)
        self.time[only] = self.known[only]
        self.score[self.asked] = self.op_score[self.score_at[self.asked]]
        self.time[self.asked] = self.op_time[self.score_at[self.asked]]
        both = (self.score_at < n) & (self.outcome_at < n)
        # Those that have all they need now, and had not before.
        self.complete = np.flatnonzero(both & (self.state != SETTLED) & (self.state != HELD))
        self.state = np.where(both, self.state, np.where(self.score_at < n, OPEN, EARLY)).astype(np.int8)

    def _first(self, mask: Flags) -> Ints:
        """The position of the first such operation of each event."""
        found, at = np.full(len(self.state), len(mask)), np.flatnonzero(mask)[::-1]
        found[self.of[at]] = at  # the last that is written is the first in order
        return found

    def place(self, events: Ints) -> Ints:
        """Where these become complete: in the middle between two operations if the outcome came before the score."""
        score, outcome = self.score_at[events], self.outcome_at[events]
        return 2 * np.maximum(score, outcome) + (outcome < score)

    def repeats(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Positions of operations that are not the first of their event, and whether they bring the same value."""
        at = np.arange(len(self.of))
        others = np.flatnonzero(np.where(self.is_score, self.score_at[self.of], self.outcome_at[self.of]) != at)
        of, is_score = self.of[others], self.is_score[others]
        same = (self.op_score[others] == self.score[of]).all(axis=1)
        same_outcome = (self.op_outcome[others] == self.outcome[of]) & (self.op_weight[others] == self.weight[of])
        return others, np.where(is_score, same, same_outcome)

    def table(self, schema: Any) -> Any:
        """All of them, as they are stored."""
        waits = (self.state == OPEN) | (self.state == HELD)
        columns = {name: self.names[name] for name in NAMES}
        columns |= {"state": self.state, "time": self.time}
        columns |= {"score": column_of(self.score), "forecast": column_of(self.forecast), "outcome": self.outcome}
        columns["receipt"] = bytes_of(self.receipts[self.receipt[waits]], waits)
        if "known" in schema.names:
            columns["known"] = pa.array(self.known, mask=self.state != HELD)
        if "weight" in schema.names:
            columns["weight"] = pa.array(self.weight, mask=self.weight == 1.0)
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def keep_receipts(self, made: npt.NDArray[np.void], forecasts: Vector) -> None:
        """The forecasts that were asked for, in the order of `asked`."""
        fresh = made.view(np.uint8).reshape(len(made), self.receipts.shape[1])
        self.receipt[self.asked] = len(self.receipts) + np.arange(len(made))
        self.receipts = np.concatenate([self.receipts, fresh])
        self.forecast[self.asked] = forecasts


# ---- rows of output -----------------------------------------------------------------------------------------------


class Output:
    """Output rows of a bucket (forecasts and statuses of events), each with its place among the others."""

    def __init__(self, events: Events, door: Door | None) -> None:
        self._events, self._door = events, door
        self._pieces: list[tuple[npt.NDArray[Any], ...]] = []

    def forecasts(self) -> None:
        """Each score that is new."""
        e, of = self._events, self._events.asked
        self._add(of, 2 * e.score_at[of], e.time[of], FORECAST, outcome=np.full(len(of), np.nan))

    def outcomes(self, of: Ints, status: int) -> None:
        """Outcomes of the batch that are learnt or held."""
        e = self._events
        early = e.outcome_at[of] < e.score_at[of]
        self._add(of, e.place(of), np.where(early, np.maximum(e.time[of], e.known[of]), e.known[of]), status)

    def repeats(self) -> None:
        """Scores and outcomes that came before."""
        e = self._events
        at, same = e.repeats()
        of, is_score = e.of[at], e.is_score[at]
        known = (is_score | (e.score_at[of] < at))[:, None]
        numbers = {
            "score": np.where(is_score[:, None], e.op_score[at], np.where(known, e.score[of], np.nan)),
            "forecast": np.where(known, e.forecast[of], np.nan),
            "outcome": np.where(is_score, np.nan, e.op_outcome[at]),
        }
        self._add(of, 2 * at, e.op_time[at], np.where(same, REPEATED, CONFLICT), **numbers)

    def due(self, of: Ints, time: Ints, status: npt.NDArray[Any]) -> None:
        """Events that have come of age, in this order."""
        self._add(of, np.arange(len(of)), time, status)

    def _add(self, of: Ints, place: Ints, time: Ints, status: Any, **given: Vector) -> None:
        """Rows of these events. Numbers that are not given are the events' own."""
        numbers = [given.get(name, getattr(self._events, name)[of]) for name in ("score", "forecast", "outcome")]
        self._pieces.append((of, place, time, np.broadcast_to(status, len(of)), *numbers))

    def table(self) -> Any:
        """All rows, in order."""
        merged = [np.concatenate(parts) for parts in zip(*self._pieces, strict=True)]
        order = np.argsort(merged[1], kind="stable")
        of, _, time, status, score, forecast, outcome = (column[order] for column in merged)
        names = self._events.names.select(["key", "id"]).take(pa.array(of))
        columns = [
            names["key"],
            names["id"],
            time,
            statuses(status),
            self._shown(score),
            self._shown(forecast),
            outcome,
        ]
        return pa.table([*columns, pa.nulls(len(of), pa.string())], names=list(COLUMNS))

    def _shown(self, numbers: Vector) -> Any:
        """Scores or forecasts as they go out: a number, or one for each class, and nothing where there is none."""
        if self._door is None:
            return numbers[:, 0]
        return lists_of(self._door.forecasts(numbers.reshape(-1)), ~np.isnan(numbers[:, 0]))


def statuses(codes: npt.NDArray[Any]) -> Any:
    """Codes as the words they stand for."""
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), list(STATUSES)).cast(pa.string())


# ---- settled events -----------------------------------------------------------------------------------------------


class SettledIds:
    """The settled events of a bucket, in a store that it shares with those that wait."""

    def __init__(self, store: PageStore, schema: Any, pages: int, *, forgets: bool) -> None:
        self._store, self._schema, self._forgets = store, schema, forgets
        kinds = pa.schema([("hash", pa.int64()), ("segment", pa.int32())])
        self._index = Pages(store, kinds, pages, begin=INDEX)
        self._segments = pa.schema([("segment", pa.int32()), ("latest", pa.int64())])

    def find(self, hashes: Ints) -> tuple[Any, tuple[Any, Taken]]:
        """The events with one of these hashes; and their places in the index, to be given back to `add`."""
        places, taken = self._index.take(hashes)
        found = [self._schema.empty_table()]
        if len(places):
            segments = np.unique(places["segment"].to_numpy())
            swept = int(self._latest()[_SWEPT])
            for segment in segments.tolist():
                content = self._store.get(SEGMENTS + segment)
                if content is not None:
                    table = with_columns(unpacked(content), self._schema)
                    mask = is_in(table["hash"].to_numpy(), np.unique(hashes)) & (table["time"].to_numpy() > swept)
                    found.append(table.filter(pa.array(mask)))
        return pa.concat_tables(found), (places, taken)

    def add(self, rows: Any, places: tuple[Any, Taken]) -> None:
        """Events that are settled now."""
        if not len(rows):
            return
        latest = self._latest()
        segment = max(latest) + 1
        stored = [name for name in rows.column_names if name not in ("receipt", "known")]
        self._store[SEGMENTS + segment] = packed(rows.select(stored).combine_chunks())
        new = pa.table([rows["hash"], pa.array(np.full(len(rows), segment, dtype=np.int32))], names=["hash", "segment"])
        known, taken = places
        self._index.put(pa.concat_tables([known, new]), taken)
        # Where nothing is ever forgotten, only the last number is needed.
        before = latest if self._forgets else {_SWEPT: latest[_SWEPT]}
        self._note({**before, segment: int(rows["time"].to_numpy().max())})

    def forget(self, limit: int) -> None:
        """Forget events up to a time. Segments go when all of their events are that old."""
        latest = self._latest()
        if not latest.keys() - {_SWEPT}:
            return
        gone = [segment for segment, time in latest.items() if segment != _SWEPT and time <= limit]
        for segment in gone:
            self._store.pop(SEGMENTS + segment, None)
        if gone:
            _, taken = self._index.sweep(lambda table: np.isin(table["segment"].to_numpy(), gone))
            self._index.put(self._index.schema.empty_table(), taken)
        # The last one stays in the table, so that no number is given twice.
        kept = {segment: time for segment, time in latest.items() if segment not in gone or segment == max(latest)}
        self._note({**kept, _SWEPT: max(limit, latest[_SWEPT])})

    def _latest(self) -> dict[int, int]:
        """By segment, the latest time of its events."""
        content = self._store.get(META)
        if content is None:
            return {_SWEPT: np.iinfo(np.int64).min}
        table = unpacked(content)
        return dict(zip(table["segment"].to_pylist(), table["latest"].to_pylist(), strict=True))

    def _note(self, latest: dict[int, int]) -> None:
        self._store[META] = packed(pa.table([list(latest), list(latest.values())], schema=self._segments))


# ---- pages: a batch rewrites those that it touches and no more ----------------------------------------------------


PageStore = MutableMapping[int, bytes]  # pages by number


class Taken(NamedTuple):
    """Pages that were taken, to be given back to `put`: which they are, and the rows in them that stay."""

    pages: Ints
    rest: Any


class Pages:
    """Rows of one schema, whose first column is `hash`, in `count` pages of a store, from number `begin` on."""

    def __init__(self, store: PageStore, schema: Any, count: int, begin: int = 0) -> None:
        self._store, self.schema, self._count, self._begin = store, schema, count, begin

    def take(self, hashes: Ints) -> tuple[Any, Taken]:
        """The rows with one of these hashes, out of their pages."""
        wanted = np.sort(hashes)
        pages = np.flatnonzero(np.bincount(self._page_of(hashes), minlength=self._count))
        table = self._read(pages.tolist())
        mask = is_in(table["hash"].to_numpy(), wanted) if len(table) else np.empty(0, dtype=bool)
        return self._split(table, mask, pages)

    def sweep(self, leave: Callable[[Any], Flags]) -> tuple[Any, Taken]:
        """Look at every page: the rows that are to leave, out of their pages."""
        used = [page - self._begin for page in self._store]
        tables = {page: self._read([page]) for page in used if 0 <= page < self._count}
        masks = {page: leave(table) for page, table in tables.items()}
        pages = [page for page, mask in masks.items() if mask.any()]
        if not pages:
            return self.schema.empty_table(), Taken(np.empty(0, dtype=np.int64), self.schema.empty_table())
        table = pa.concat_tables([tables[page] for page in pages])
        return self._split(table, np.concatenate([masks[page] for page in pages]), np.array(pages))

    def _split(self, table: Any, mask: Flags, pages: Ints) -> tuple[Any, Taken]:
        if not mask.any():
            return self.schema.empty_table(), Taken(pages, table)
        return table.filter(pa.array(mask)), Taken(pages, table.filter(pa.array(~mask)))

    def put(self, rows: Any, taken: Taken) -> None:
        """Write the pages that were taken, with these rows in them."""
        table = pa.concat_tables([taken.rest, rows])
        page_of = self._page_of(table["hash"].to_numpy()) if len(table) else np.empty(0, dtype=np.int64)
        order = np.argsort(page_of.astype(np.uint16), kind="stable")  # by counting
        table, page_of = table.take(pa.array(order)).combine_chunks(), page_of[order]
        begins, ends = (np.searchsorted(page_of, taken.pages, side=side).tolist() for side in ("left", "right"))
        for page, begin, end in zip(taken.pages.tolist(), begins, ends, strict=True):
            if begin < end:
                self._store[self._begin + page] = packed(table.slice(begin, end - begin))
            else:
                self._store.pop(self._begin + page, None)

    def _page_of(self, hashes: Ints) -> Ints:
        # The lowest bits chose the bucket.
        return (hashes >> np.int64(32)) % self._count

    def _read(self, pages: list[int]) -> Any:
        contents = [self._store.get(self._begin + page) for page in pages]
        tables = [with_columns(unpacked(content), self.schema) for content in contents if content is not None]
        return pa.concat_tables(tables).combine_chunks() if tables else self.schema.empty_table()


def is_in(values: Ints, wanted: Ints) -> Flags:
    """Which values are among the wanted ones, which are sorted."""
    at = np.searchsorted(wanted, values)
    found: Flags = wanted[np.minimum(at, len(wanted) - 1)] == values
    return found


def with_columns(table: Any, schema: Any) -> Any:
    """A table with the columns of a schema, empty where it has none of that name."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names)


def packed(table: Any) -> bytes:
    """A table as bytes: a stream of Arrow's IPC, compressed: Spark needs longer for the bytes that this saves."""
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: Any) -> Any:
    """The inverse."""
    return pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()


# ---- columns of Arrow as arrays of NumPy and back, without an object for each value -------------------------------


def matrix_in(column: Any) -> Vector:
    """Scores as the rows of a matrix: a column of numbers, or of lists of as many numbers each."""
    array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
    width = array.type.list_size if pa.types.is_fixed_size_list(array.type) else 1
    values: Vector = (array if width == 1 else array.flatten()).to_numpy()
    return values.reshape(-1, width)


def column_of(matrix: Vector) -> Any:
    """The inverse."""
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return values if matrix.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(values, matrix.shape[1])


def one_array(column: Any) -> Any:
    """A column of a table in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbered(hashes: Ints, names: list[Any]) -> tuple[Ints, Ints]:
    """Number what has the same names: where each number is first, and the number of each row.

    Rows are told apart by their hashes first. Where two names share a hash, the names themselves decide.
    """
    names = [one_array(name) for name in names]
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    representative = pa.array(first[codes])
    if all(pc.all(pc.equal(name, name.take(representative))).as_py() is not False for name in names):
        return first, codes
    numbers: dict[Any, int] = {}
    rows = zip(*(name.to_pylist() for name in names), strict=True)
    codes = np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)
    return np.unique(codes, return_index=True)[1], codes


def matrix_of(column: Any, size: int, what: str) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Values of bytes that all have one size, as the rows of a matrix; and of each value its row, -1 for nothing."""
    array = one_array(column)
    n = len(array)
    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    if not there.any():
        return np.empty((0, size), dtype=np.uint8), np.full(n, -1)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
    wrong = there & (np.diff(ends) != size)
    if wrong.any():
        got = int(np.diff(ends)[int(wrong.argmax())])
        raise SnapshotMismatch(f"{what} must have {size} bytes, got {got}; is the state of another method?")
    content = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]].reshape(-1, size)
    return content, np.where(there, np.cumsum(there) - 1, -1)


def bytes_of(matrix: npt.NDArray[Any], there: Flags | None = None) -> Any:
    """The rows of a matrix as a column of bytes; with `there`, nothing where it is False, and a row for each True."""
    size = matrix.dtype.itemsize * (matrix.shape[1] if matrix.ndim > 1 else 1)
    n = len(matrix) if there is None else len(there)
    sizes = np.full(n, size) if there is None else there * size
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    valid = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(matrix).tobytes())
    return pa.Array.from_buffers(pa.binary(), n, [valid, pa.py_buffer(offsets.tobytes()), data])
