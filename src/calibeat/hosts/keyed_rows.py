"""The rows of a `Bank`: a stream for each key, the index that finds it, the pool that new keys start from, watchers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import Ledger, Stream, outside_of_signals
from calibeat._util.types import Flags, Ints, Slots, UpdateStatus, Vector
from calibeat.core import loops
from calibeat.core.groups import NO_CELLS
from calibeat.core.layout import N
from calibeat.core.loops import NO_INTS, NO_NUMBERS, Call
from calibeat.core.method import params_of_rows
from calibeat.core.randomness import stream_key, uniforms_next
from calibeat.core.receipt import watched_columns, watched_event
from calibeat.core.stats import EVENTS, LAST, LOSSES, WEIGHTS
from calibeat.errors import CalibeatError, InvalidInput, UnknownKey
from calibeat.late import Arrivals
from calibeat.monitor.bets import RaisedAlarm, Settings
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.monitors import Monitors
from calibeat.monitor.notice import Notice
from calibeat.monitor.notices import Notices, NoticeSettings, heard_of

from .calibrator import NOTICE, OURS, Watch, noticed_score, noticed_scores, tell_notices
from .keys import EVERY, Index, Key, KeyColumn, Seed, kind_of, plain_key
from .pool import Pool, pool_rows, start_row
from .rows import AnyForecast, AnyMethod, Columns, FoldColumns, Matrix, Names, Rows, StreamBatch

NO_GROUPS = (
    "a bank has no groups: a table for each key would splinter the data - pass the key as an attribute, "
    'Calibrator(groups=["key", ...])'
)
NO_NAMES: Names = np.empty(0, dtype=np.uint64)
OUTCOMES_KEPT = 64  # events of a key, before its oldest one without an outcome, whose outcomes are remembered
MOST_LEDGERS = 65_536  # of keys; of more, those without an open event are let go of
_WORTH_A_THREAD = 20_000  # scores; fewer are done before another thread has begun


class SlotWatch:
    """The monitors and the notices of many slots: each is a matrix with a row for each slot."""

    def __init__(self, monitored: Settings | None, noticed: NoticeSettings | None, now: Callable[[], float]) -> None:
        self.monitors = None if monitored is None else Monitors(monitored)
        self.notices = None if noticed is None else Notices(noticed)
        self.now = now  # the time of an event

    @property
    def parts(self) -> list[Monitors | Notices]:
        """Those that there are."""
        return [part for part in (self.monitors, self.notices) if part is not None]

    @property
    def notices_times(self) -> bool:
        """Whether it wants to know when each score was issued."""
        return self.notices is not None

    def resize(self, count: int) -> None:
        """Have a row for each of so many slots."""
        for part in self.parts:
            if part.count < count:
                part.resize(count)

    def forecast(self, slot: int, events: int, score: Any) -> None:
        """A slot has made so many forecasts, the last one of this score; it may be told twice."""
        self.resize(slot + 1)
        if self.monitors is not None:
            self.monitors.catch_up(slot, events)
        if self.notices is not None:
            self.notices.forecast(slot, events - 1, self.now(), noticed_score(score))

    def check_weights(self, weighted: bool, counted: bool) -> None:  # noqa: ARG002 - a watcher is asked so
        """Raise if the monitors cannot judge outcomes with weights, or counts of trials."""
        if self.monitors is not None:
            self.monitors.settings.check_weights(counts=counted)

    def moment(self, slot: int) -> tuple[float, float]:
        """The time of an outcome that arrives now, and how many outcomes of the slot were told before."""
        return self.now(), 0.0 if self.notices is None else self.notices.told(slot)

    def outcome(self, slot: int, forecast: AnyForecast, y: float, now: float, told: float) -> None:
        """The outcome of a forecast of a slot has arrived; it may be told twice."""
        if self.monitors is not None:
            self.monitors.update(slot, forecast.event, watched_event(forecast, y))
        if self.notices is not None:
            self.notices.outcome(slot, forecast.event, now, told)

    def fold(self, count: int, columns: FoldColumns, slots: Slots, numbers: int, times: Vector) -> None:
        """Operations in their order, on so many slots; those of a slot below 0 have not happened."""
        self.resize(count)
        done = slots >= 0
        events, (p, y, s) = columns.events()[done], (column[done] for column in columns.watched())
        slots, asked = slots[done], columns.asked[done]
        if self.monitors is not None:
            self.monitors.fold(slots, asked, events, p, y, s)
        if self.notices is not None:
            heard = noticed_scores(numbers, columns.scores())[done]
            tell_notices(self.notices, slots, asked, events, times[done], heard)

    def of_slot(self, slot: int) -> Watch:
        """Copies of the monitor and of the notice of a slot, as they are now."""
        watch = Watch(None)
        if self.monitors is not None:
            watch.monitors[OURS] = Monitor._copied(self.monitors, slot)
        watch.notice = None if self.notices is None else Notice._copied(self.notices, slot)
        return watch

    def columns(self, slots: Slots) -> Columns:
        """What a table shows of some slots."""
        return {name: column for part in self.parts for name, column in part.columns(slots).items()}

    def new_alarms(self, slots: Slots | None = None) -> list[tuple[int, RaisedAlarm]]:
        """The alarms raised since the last call, with their slots: those of monitors, then those of notices."""
        found: list[tuple[int, RaisedAlarm]] = []
        for source, part in ((OURS, self.monitors), (NOTICE, self.notices)):
            if part is not None:
                found += [(slot, RaisedAlarm.of(alarm, source)) for slot, alarm in part.new_alarms(slots)]
        return found


class KeyedRows(Rows):
    """Rows found by key.

    Keys are put in the index while a call is planned, and are there once `count` says so: what an interrupted call has
    left in the index is taken out by the next one.

    `seeds` are those of the names on receipts, and of the draws.
    """

    watching: SlotWatch

    def __init__(
        self,
        method: AnyMethod,
        seeds: tuple[int, int],
        watching: SlotWatch,
        *,
        pooled: bool,
        generation: int | None,
        classes: int = 2,
        face: Callable[[Rows], None] = lambda _: None,
    ) -> None:
        name, draws = self._name_seed, self._draw_seed = seeds
        super().__init__(
            method,
            lambda key: (stream_key(name, key), stream_key(draws, key)),
            generation=generation,
            counts_losses=True,
            keep=OUTCOMES_KEPT,
            classes=classes,
        )
        self.index: Index | None = None  # ints or strings: the first key tells
        self.face = face
        face(self)
        self.pooled, self.pool = pooled, method.initial_row()
        self.writable = True
        self.torn = ""  # why, if an error broke off a batch in its middle
        self._is_adding = False  # keys that are not there yet may be in the index
        self._stream_keys: dict[int, tuple[int, Names]] = {}  # by seed: those of the first slots, while `moves` is this
        self._by_name: tuple[int, int, Names, Ints] | None = None
        self._most_ledgers = MOST_LEDGERS
        self.watching = watching
        if watching.parts:
            self._watched_by(watching)
        if pooled:
            self.hold_pool(self.pool)

    def hold_pool(self, pool: Vector) -> None:
        """Take a row as that of the pool."""
        self.pool = pool
        if self.pooled:
            self._serve_pool(Pool(True, pool, self.initial, 0, self.method.scratch()))

    # ---- keys -------------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """What the keys are: "none", "ints" or "strings"."""
        return "none" if self.index is None else self.index.kind

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        keys = 0 if self.index is None else self.index.nbytes
        return self.count * self.stride * 8 + keys + sum(part.nbytes for part in self.watching.parts)

    def ready(self) -> None:
        if self.torn:
            raise CalibeatError(f"a bank must be loaded anew after an error in the middle of a batch, got {self.torn}")
        if self._is_adding:
            self._check_outermost()
            self._take_out()
        super().ready()

    def _take_out(self) -> None:
        """Take keys out of the index that were never there."""
        if self.index is not None:
            if self.count:
                self.index.relink(self.count)
            else:
                self.index = None
        self._stream_keys = {}
        self._is_adding = False

    def begin_generation(self) -> None:
        if self.writable:
            super().begin_generation()
        else:  # it takes no receipts, and its rows are not to be looked at one by one
            self._begin_generation()

    def check_kind(self, column: KeyColumn) -> KeyColumn:
        """The column, if its keys are of the kind that is here."""
        if len(column):
            self._check_kind(column.kind, " - at row 0")
        return column

    def _check_kind(self, kind: str, where: str = "") -> None:
        if self.index is not None and kind != self.index.kind:
            raise InvalidInput(f"keys must be {self.index.kind} like those of the bank, got {kind}{where}")

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def find_one(self, key: int | bytes) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        self._check_kind(kind_of(key))
        return -1 if self.index is None else self.index.find_one(key)

    def slot_of(self, key: Any) -> int:
        """The row of a key.

        Raises
        ------
        UnknownKey : it is not here any more.
        """
        slot = self.find_one(plain_key(key))
        if slot < 0:
            raise UnknownKey(f"key must be one of the bank's, got {key!r:.60}, which it has forgotten")
        return slot

    def add(self, column: KeyColumn) -> Slots:
        """The slot of each key; new keys get a row that is not there yet: see `count_after`."""
        self._is_adding = True
        if self.index is None:
            self.index = Index(column.kind)
        slots = self.index.add(column)
        self.make_room(self.index.count)
        return slots

    @property
    def count_after(self) -> int:
        """How many rows there are once those of `add` are."""
        return 0 if self.index is None else self.index.count

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[Any]:
        """The keys, of all rows or of some."""
        return np.empty(0, dtype=np.int64) if self.index is None else self.index.names(slots)

    def ledger(self, slot: int) -> Any:
        if len(self.ledgers) >= self._most_ledgers and slot not in self.ledgers:
            self._let_go()
        return super().ledger(slot)

    def _let_go(self) -> None:
        """Let go of the ledgers of keys without an open event."""
        for slot, ledger in list(self.ledgers.items()):
            ledger.catch_up(self.events_of(slot))
            if not ledger.is_open(ledger.known):
                del self.ledgers[slot]
        self.moves += 1  # streams look again
        self._most_ledgers = max(MOST_LEDGERS, 2 * len(self.ledgers))

    def issuers(self, slots: Slots) -> Names:
        return self._keys_until(slots, self._name_seed)[slots]

    def _keys_until(self, slots: Slots, seed: int) -> Names:
        """The `stream_key` of the key of each row, at least of those up to the last of these slots."""
        moves, known = self._stream_keys.get(seed, (-1, NO_NAMES))
        count = int(slots.max(initial=-1)) + 1
        if moves != self.moves:
            known = NO_NAMES
        if len(known) < count and self.index is not None:
            known = np.append(known, self.index.stream_keys(seed, len(known), count))
            self._stream_keys[seed] = self.moves, known
        return known

    # ---- as columns -------------------------------------------------------------------------------------------------

    def params(self, slots: Slots | slice = EVERY) -> Columns:
        """The parameters of all rows, or of some."""
        return params_of_rows(self.method, self.matrix[: self.count, : self.width][slots])

    def columns(self, slots: Slots | slice = EVERY) -> Columns:
        """What `Bank.table` gives, of all rows, or of some."""
        learnt = self.matrix[: self.count, N][slots]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {name: self.stats(at)[slots] / self.stats(WEIGHTS)[slots] for name, at in LOSSES.items()}
        self.watching.resize(self.count)
        return {
            "key": self.names(slots),
            "events": self.stats(EVENTS)[slots].astype(np.int64),
            "outcomes": learnt.astype(np.int64),
            "idle": self.clock - self.stats(LAST)[slots].astype(np.int64),
            **self.params(slots),
            **means,
            **self.watching.columns(np.arange(self.count, dtype=np.int32)[slots]),
        }

    def watch_of(self, slot: int) -> Watch:
        """Copies of the monitor and of the notice of a slot, as they are now."""
        return self.watching.of_slot(slot)

    def new_alarms(self, slot: int) -> list[RaisedAlarm]:
        """The alarms of a slot since the last call."""
        self.check_writable("be asked")
        return [alarm for _, alarm in self.watching.new_alarms(np.array([slot], dtype=np.int32))]

    def check_writable(self, what: str) -> None:
        """Raise unless the rows may change."""
        if not self.writable:
            raise InvalidInput(f"a bank that was opened with mmap=True cannot {what}, load it without")

    # ---- single events ----------------------------------------------------------------------------------------------

    def initial_row(self) -> Vector:
        """The row that a new key would get now."""
        row = np.empty(self.width)
        if self.pooled:
            start_row(self.method.spec, Pool(True, self.pool, self.initial, 0), row)
        else:
            row[:] = self.initial
        return row

    def predict_first(self, stream: Stream, key: Key, score: Any) -> Any:
        """The first forecast of a new key, of a checked score. The caller holds the rows."""
        self._is_adding = True
        if self.index is None:
            self.index = Index(kind_of(plain_key(key)))
        slot = self.index.add_one(plain_key(key))
        self.make_room(slot + 1)
        self.row(slot)[:] = self.initial_row()
        self.sign()
        self.bind(stream, slot, key)
        forecast = self._open_and_forecast(stream, score, slot + 1)
        self._is_adding = False
        self.notify()
        return forecast

    def _predict_slowly(self, stream: Stream, score: Any, words: bytes | None = None) -> Any:
        if self.writable:
            return super()._predict_slowly(stream, score, words)
        with self:
            self.ready()
            self.aim(stream)
            alone = self.apart(stream._key, stream._slot)
            return alone._rows._predict_slowly(alone, score)  # which is read already

    def _update_slowly(
        self, stream: Stream, forecast: AnyForecast, y: float, is_own: bool, weight: float, trials: float
    ) -> UpdateStatus:
        self.check_writable("learn")
        return super()._update_slowly(stream, forecast, y, is_own, weight, trials)

    def _refuse_groups(self) -> None:
        raise InvalidInput(NO_GROUPS)

    def apart(self, key: Key, slot: int) -> Stream:
        """A stream of its own, as that of a key is now; of a new key (slot -1) as it would begin."""
        rows, stream = Rows(self.method, self.identity, generation=self._generation, **self._of_ledger), Stream()
        self.face(rows)
        rows.make_room(1)
        if slot < 0:
            rows.row(0)[:] = self.initial_row()
        else:
            rows.matrix[0] = self.matrix[slot]
        rows._publish(1, 0)
        rows.bind(stream, 0, key)
        return stream

    # ---- many events ------------------------------------------------------------------------------------------------

    def run_stream(self, stream: Stream, batch: StreamBatch) -> Vector:
        with self:
            self.ready()
            self.check_writable("learn")
            self.aim(stream)
            slots = np.full(len(batch.outcomes), stream._slot, dtype=np.int32)
            return self.run(slots, batch, 1)

    def run(self, slots: Slots, batch: StreamBatch, workers: int) -> Vector:
        """The forecasts of a batch, which is learnt: all its events or none. The caller holds the rows.

        Threads share the slots of a large batch. A signal is heard when all of it is done.
        """
        n, before, count, parts = len(slots), self.count, self.count_after, list[SlotRange]()
        seen = self._seen()
        forecasts = np.empty(len(batch.scores))
        if n:
            most = max(1, min(workers, len(batch.scores) // _WORTH_A_THREAD))
            parts = slot_ranges(slots, count, most)
        arrivals = None if batch.planned is None else Arrivals(batch.planned, batch.outcomes, slots, count)
        loop = self._loop(slots, batch, arrivals, forecasts, count)
        calls: list[Call] = [(self._publish, (count, self.clock + n))]
        if self.pooled:
            calls.append(self._pool_call(before, slots, batch, arrivals))
        begun, served = list[SlotRange](), list[SlotRange]()
        if self.watching.parts or len(parts) > 1:
            self.watching.resize(count)
            serve = self._told_after(loop, slots, batch, arrivals, forecasts)

            def task(part: SlotRange) -> None:
                begun.append(part)
                serve(part)
                served.append(part)

            calls.append((outside_of_signals, ([(task, (part,)) for part in parts],)))
        else:
            calls += [loop(part) for part in parts]
        try:
            self._do(calls, seen)
        except BaseException as error:
            if len(served) < len(begun):
                self.torn = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._is_adding = self.count < count
        return forecasts

    def _loop(
        self, slots: Slots, batch: StreamBatch, arrivals: Arrivals | None, forecasts: Vector, count: int
    ) -> Callable[[SlotRange], Call]:
        """The call that plays the events of a range of slots. All that it needs is made here."""
        method, n = self.method, len(slots)
        late, end, receipts = None, n, loops.NO_NUMBERS
        if arrivals is not None:
            end, receipts = n + 1, np.empty(n * method.receipt_width)  # of all ranges
            raw_below = self._raw_below(slots, arrivals, count) if batch.raw_first else 0
            late = loops.Late(0, np.empty(n, dtype=np.int64), arrivals.moments, arrivals.order, raw_below)
        columns = batch.scores, batch.outcomes, self.draws(slots), forecasts, receipts
        weights = batch.weights, batch.trials
        rows, clock = (self.flat, self.stride, slots), float(self.clock)

        def call(part: SlotRange) -> Call:
            streams = loops.Streams(*rows, *part, self.width, clock)
            played = loops.Batch(*columns, method.scratch(), NO_INTS, *weights, bands=batch.bands)
            return loops.call_of(method.spec, streams, played, late, loops.place_before(), end)

        return call

    def _told_after(
        self,
        loop: Callable[[SlotRange], Call],
        slots: Slots,
        batch: StreamBatch,
        arrivals: Arrivals | None,
        forecasts: Vector,
    ) -> Callable[[SlotRange], None]:
        """A function that serves a range of slots, and then tells the watchers of its events."""

        def played(part: SlotRange) -> None:
            play, arguments = loop(part)
            play(*arguments)

        serve: Callable[[SlotRange], None] = played
        watching, numbers = self.watching, self.method.numbers
        if watching.monitors is not None:
            watched = partial(watched_columns, numbers, forecasts, batch.outcomes, batch.scores)
            due = None if batch.planned is None else batch.planned.due
            serve = watching.monitors.after(serve, slots, watched, due)
        if watching.notices is not None:
            times = np.full(len(slots), watching.now()) if batch.issued is None else batch.issued
            heard = slots, times, noticed_scores(numbers, batch.scores), batch.outcomes
            late = () if arrivals is None else (arrivals.moments, arrivals.order)
            serve = watching.notices.after(serve, heard_of(*heard, *late))
        return serve

    def draws(self, slots: Slots) -> Vector:
        """The draw of each event, whose slots are given in the order of the events; none where nothing is drawn."""
        if not self.method.draws:
            return np.empty(0)
        used, events, places = self.few_of(slots)
        return uniforms_next(self._keys_until(slots, self._draw_seed)[used], events, places)

    def _raw_below(self, slots: Slots, arrivals: Arrivals, count: int) -> int:
        """Streams of slots below this forecast the raw score until they have learnt an outcome.

        Those that start from a pool that has learnt something do not. Slots are given in the order of first events.
        """
        if not self.pooled:
            return count
        if self.pool[N] > 0.0:
            return 0
        first = int((arrivals.heads >= 0).argmax()) if (arrivals.heads >= 0).any() else len(slots)
        return int(slots[:first].max(initial=-1)) + 1

    def _pool_call(self, opened: int, slots: Slots, batch: StreamBatch, arrivals: Arrivals | None) -> Call:
        """The pool's way through the batch; it also starts the rows from slot `opened` on."""
        pool = Pool(True, self.pool, self.initial, opened, self.method.scratch())
        events = loops.Batch(
            batch.scores, batch.outcomes, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, weights=batch.weights, trials=batch.trials
        )
        where = self.method.spec, pool, self.flat, self.stride, slots, events
        lists = (NO_INTS, NO_INTS) if arrivals is None else (arrivals.heads, arrivals.following)
        return pool_rows, (*where, *lists)

    def predict_keys(self, slots: Slots, column: KeyColumn, scores: Vector, bands: Vector = NO_NUMBERS) -> Vector:
        """Forecast scores of keys, known and new, from the present state. Those of new keys have slot -1."""
        K, n = self.method.numbers, len(slots)
        forecasts, work, fresh = np.empty(n * K), self.method.scratch(), self.initial_row()
        draws = self._draws_of_all(slots, column)
        for part in loops.pieces(n, K):
            rows = loops.Streams(self.flat, self.stride, slots[part], 0, self.count, 0, 0.0)
            numbers = slice(part.start * K, part.stop * K)
            batch = loops.Batch(scores[numbers], NO_NUMBERS, draws[part], forecasts[numbers], NO_NUMBERS, work)
            batch = batch._replace(bands=bands[4 * part.start : 4 * part.stop])
            loops.predict_many(self.method.spec, NO_CELLS, rows, fresh, batch)
        return forecasts

    def _draws_of_all(self, slots: Slots, column: KeyColumn) -> Vector:
        """The draws of the next event of each key; of new ones that of their first."""
        known = slots >= 0
        if not self.method.draws or known.all():
            return self.draws(slots)
        draws = np.empty(len(slots))
        draws[known] = self.draws(slots[known])
        index = Index(column.kind)
        new = index.add(column)
        keys = index.stream_keys(self._draw_seed, 0, index.count)
        draws[~known] = uniforms_next(keys, np.zeros(index.count), new[~known])
        return draws

    # ---- forecasts and outcomes in any order ------------------------------------------------------------------------

    def _play(
        self, columns: FoldColumns, ledgers: list[Ledger], seen: Any, found: Ints, times: Vector, *, strict: bool
    ) -> None:
        try:
            super()._play(columns, ledgers, seen, found, times, strict=strict)
        finally:
            self._is_adding = self.count < self.count_after

    def begin(self, slots: Slots) -> tuple[Any, list[Ledger]]:
        listed = slots.tolist()
        if not all(map(self.ledgers.__contains__, listed)):
            distinct = set(listed)
            if len(self.ledgers) + len(distinct) > self._most_ledgers:  # now, and none of these while they are made
                self._let_go()
            for slot in distinct:
                super().ledger(slot)
        return self._seen(), list(map(self.ledgers.__getitem__, listed))

    def pool_of(self, work: Vector) -> Pool:
        return Pool(self.pooled, self.pool, self.initial, self.count, work)

    def issued_by(self, names: Names) -> Slots:
        """The slot of each name on a receipt; -1 for one that is not here."""
        known, count = self._by_name, self.count
        if known is None or known[:2] != (self.moves, count):
            own = self.issuers(np.arange(count, dtype=np.int32))
            order = own.argsort()
            self._by_name = known = self.moves, count, own[order], order
        _, _, ordered, slots = known
        if not count:
            return np.full(len(names), -1)
        place = np.minimum(ordered.searchsorted(names), count - 1)
        return np.where(ordered[place] == names, slots[place], -1)

    # ---- growing and shrinking; each is done outside of signals -----------------------------------------------------

    def remove(self, slot: int) -> None:
        """Forget a row; the last one takes its place. Receipts of a later namesake are others."""
        assert self.index is not None  # noqa: S101 - there is a slot, so there are keys
        last = self.count - 1
        self.watching.resize(self.count)
        self.matrix[slot] = self.matrix[last]
        self.imported[slot], self.uncertain[slot] = self.imported[last], self.uncertain[last]
        self.ledgers.pop(slot, None)
        if last in self.ledgers:
            self.ledgers[slot] = self.ledgers.pop(last)
        for part in self.watching.parts:
            part.remove(slot)
        self.index.remove(slot)
        if last == 0:
            self.index = None
        self._publish(last, self.clock)
        self.begin_generation()

    def put(self, column: KeyColumn, rows: Matrix, clock: int) -> None:
        """Put rows in place, of old and of new keys, whose receipts may have been issued elsewhere."""
        slots = self.add(column)
        self._publish(self.count_after, clock)
        self._is_adding = False
        self.matrix[slots] = rows
        events = self.matrix[slots, self.width + EVENTS]
        self.imported[slots] = events
        self.uncertain[slots] = True
        for slot in slots.tolist():
            self.ledgers.pop(slot, None)
        self.watching.resize(self.count)
        for part in self.watching.parts:
            part.restart_changed(slots, events)
        self.moves += 1  # streams look again

    def take(self, other: KeyedRows) -> None:
        """Take the rows of another bank, whose keys are not here yet. Both kinds of receipts are good from now on."""
        first, clock = self.count, max(self.clock, other.clock)
        self.stats(LAST)[:] += clock - self.clock
        other.watching.resize(other.count)
        if other.index is not None:
            for slot, ledger in other.ledgers.items():
                ledger.catch_up(other.events_of(slot))
            self.add(other.index.column())
            count = self.count_after
            self.matrix[first:count] = other.matrix[: other.count]
            self._publish(count, clock)
            self._is_adding = False
            self.stats(LAST)[first:] += clock - other.clock
            self.uncertain[first:count] = other.uncertain[: other.count]
            self.ledgers |= {first + slot: ledger.copy() for slot, ledger in other.ledgers.items()}
            self.watching.resize(first)
            for own, theirs in zip(self.watching.parts, other.watching.parts, strict=True):
                own.truncate(first)
                own.take(theirs)  # type: ignore[arg-type]  # both are monitors, or both are notices
        self._publish(self.count, clock)
        if self.pool[N] == 0.0:
            self.pool[:] = other.pool
        self.begin_generation()

    def copy_to(self, other: KeyedRows, chosen: Flags) -> None:
        """Put some rows into other rows, which have none yet."""
        self.watching.resize(self.count)
        if self.index is not None and chosen.any():
            other.index = Index(self.index.kind, self.index.seed)
            other.add(self.index.column(chosen))
            count = other.count_after
            other.matrix[:count] = self.matrix[: self.count][chosen]
            other._publish(count, self.clock)
            other._is_adding = False
            other.imported[:count], other.uncertain[:count] = (
                self.imported[: self.count][chosen],
                self.uncertain[: self.count][chosen],
            )
            places = np.cumsum(chosen) - 1
            for slot, ledger in self.ledgers.items():
                if chosen[slot]:
                    ledger.catch_up(self.events_of(slot))
                    other.ledgers[int(places[slot])] = ledger.copy()
        if self.watching.monitors is not None:
            other.watching.monitors = self.watching.monitors.selected(chosen)
        if self.watching.notices is not None:
            other.watching.notices = self.watching.notices.selected(chosen)
        other._watched_by(self.watch and other.watching)
        other._publish(other.count, self.clock)
        other.hold_pool(self.pool.copy())

    def become(self, other: KeyedRows) -> None:
        """Have the rows of another, in a new generation."""
        self.index, self.ledgers, self.imported, self.uncertain = (
            other.index,
            other.ledgers,
            other.imported,
            other.uncertain,
        )
        self._hold(other.flat)
        for part in ("monitors", "notices"):
            setattr(self.watching, part, getattr(other.watching, part))
        self._publish(other.count, self.clock)
        self.begin_generation()

    # ---- as a file --------------------------------------------------------------------------------------------------

    def arrays(self) -> Columns:
        """What a file has to hold."""
        arrays = {} if self.index is None else self.index.arrays()
        arrays |= {"pool": self.pool, "rows": self.matrix[: self.count].reshape(-1)}
        self.watching.resize(self.count)
        if self.watching.monitors is not None:
            arrays["monitors"] = self.watching.monitors.matrix[: self.count].reshape(-1)
            arrays["waiting"] = self.watching.monitors.queues_as_bytes()
        if self.watching.notices is not None:
            arrays["notices"] = self.watching.notices.matrix[: self.count].reshape(-1)
            arrays["open"] = self.watching.notices.queues_as_bytes()
        return arrays

    def restore(self, kind: str, seed: Seed | None, count: int, clock: int, arrays: Columns) -> None:
        """The inverse of `arrays`, without a copy."""
        if kind != "none":
            self.index = Index(kind, seed)
            self.index.restore(count, arrays)
        self._hold(arrays["rows"].reshape(-1))
        self._publish(count, clock)
        self.imported, self.uncertain = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
        self.hold_pool(arrays["pool"].copy())
        monitors, notices = self.watching.monitors, self.watching.notices
        if monitors is not None:
            self.watching.monitors = Monitors.restored(monitors.settings, arrays["monitors"], arrays["waiting"], count)
        if notices is not None:
            self.watching.notices = Notices.restored(notices.settings, arrays["notices"], arrays["open"], count)

    def open_ledgers(self) -> Columns:
        """The ledgers with an open event, in two arrays: four numbers each, and their marks."""
        numbers, marks = list[tuple[int, int, int, int]](), list[bytes]()
        for slot, ledger in sorted(self.ledgers.items()):
            ledger.catch_up(self.events_of(slot))
            if ledger.is_open(ledger.known):
                first, given_up, written = ledger.packed()
                numbers.append((slot, first, given_up, len(written)))
                marks.append(written)
        arrays: Columns = {}
        if numbers:
            arrays["ledgers"] = np.array(numbers, dtype=np.int64).reshape(-1)
            arrays["settled"] = np.frombuffer(b"".join(marks), dtype=np.uint8)
        if self.uncertain[: self.count].any():
            arrays["uncertain"] = self.uncertain[: self.count].view(np.uint8)
        return arrays

    def restore_ledgers(self, arrays: Columns) -> None:
        """The inverse of `open_ledgers`, in a new generation."""
        if "uncertain" in arrays:
            self.uncertain[:] = arrays["uncertain"] != 0
        marks, at = arrays.get("settled", np.empty(0, dtype=np.uint8)), 0
        for slot, first, given_up, length in arrays.get("ledgers", np.empty(0, dtype=np.int64)).reshape(-1, 4).tolist():
            if not 0 <= slot < self.count or length < 0 or at + length > len(marks):
                raise InvalidInput(f"ledgers must be of {self.count} keys and fit their marks, got another")
            events, outcomes = self.events_of(slot), int(self.row(slot)[N])
            written = marks[at : at + length].tobytes()
            self.ledgers[slot] = Ledger.unpacked(first, given_up, written, events, outcomes, **self._of_ledger)
            at += length
        if at != len(marks):
            raise InvalidInput(f"ledgers must have {at} marks, got {len(marks)}")


SlotRange = tuple[int, int]  # the slots from the first to before the second


def slot_ranges(slots: Slots, count: int, workers: int) -> list[SlotRange]:
    """Ranges of slots, one a worker, with about as many events in each."""
    if workers == 1:
        return [(0, count)]
    sample = np.sort(slots[:: 1 + len(slots) // 65_536])
    cuts = [0, *(int(sample[len(sample) * i // workers]) for i in range(1, workers)), count]
    return [(first, last) for first, last in pairwise(cuts) if first < last]
