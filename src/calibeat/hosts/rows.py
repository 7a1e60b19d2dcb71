"""Rows: the streams of a host, a row of numbers each, and what they share. Every host stands on them.

===============  ===========================================================================================
a host           stands on
===============  ===========================================================================================
`Calibrator`     one row
`Bank`           a row for each key, and an index that finds it
``bank[key]``    the same rows as its bank
===============  ===========================================================================================

A row is the state of a stream, and behind it its stats. A call is planned first: that may fail, and changes nothing
that can be seen. Then it is done in one compiled step (`all_at_once`): a signal, an error or a fork comes before all of
it or after all of it. Rows and keys behind the last one may be written while a call is planned: they are there once
`count` says so.

A receipt is what an outcome needs to be learnt, any time later and in any process that has the row of its key. It has
the layout of `Forecast.to_bytes`: `Forecast.from_bytes` reads it, and what `to_bytes` wrote may be brought to `fold`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from calibeat._compiled import (
    CLOSED,
    OPEN,
    Ledger,
    Stream,
    StreamRows,
    are_sealed,
    bytes_of,
    examine,
    outside_of_signals,
    seal_receipts,
)
from calibeat._util import processes
from calibeat._util.check import shown
from calibeat._util.types import Flags, Ints, Slots, UpdateStatus, Vector
from calibeat.core import loops
from calibeat.core.calibeating import bin_of
from calibeat.core.groups import GROUPED_RECEIPT_WIDTH, NO_CELLS, Cells
from calibeat.core.kernel import ask, note_how_sure
from calibeat.core.layout import TOTAL, N, Spec
from calibeat.core.loops import NO_INTS, NO_NUMBERS, Call, learn_late, play_any
from calibeat.core.method import name_of
from calibeat.core.randomness import numbered, uniforms
from calibeat.core.receipt import BANDED, FORMAT, HEDGED, RECEIPT_WIDTH, watched_columns
from calibeat.core.receipt import SCORE as SCORE_OF_AUTO
from calibeat.core.several import MISSING, MIXED, OWN
from calibeat.core.several import ask as ask_models
from calibeat.core.several import settle as settle_models
from calibeat.core.stats import EVENTS, LAST, STATS, add_class_losses, add_losses
from calibeat.core.subset import kernel, loop
from calibeat.core.vector import predict as predict_classes
from calibeat.core.vector import update as update_label
from calibeat.core.weights import Outcome, in_truth
from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast
from calibeat.late import Schedule, in_order

from .keys import EVERY, with_room
from .pool import Pool, learn, start_row

AnyMethod = Any  # a `Method` or, of many classes, a `VectorMethod`
AnyForecast = Any  # a `Forecast` or, of many classes, a `MultiForecast`
Matrix = npt.NDArray[np.float64]
CLASSES_FOLLOW = 255  # in place of the number of candidates: a receipt of many classes
Columns = dict[str, npt.NDArray[Any]]
ReceiptArray = npt.NDArray[np.void]  # of `receipt_type`, or as bytes of that width

Names = npt.NDArray[np.uint64]

MOST_ROWS = 2**31 - 1
ANOTHER, BROKEN, OF_A_COPY, TOO_LATE = 1, 2, 3, 4  # what `examine` finds
LEARNT, REPEATED, CONFLICT, TOO_OLD, NOT_OURS, DAMAGED = range(6)  # what becomes of an outcome
_JUDGED_AT_ONCE = 2048  # receipts
STATUSES = np.array(["learnt", "repeated", "conflict", "unknown", "unknown", "invalid"])
_FROM_A_COPY = (
    "receipt must come from this bank, got one that a copy of it has made, or that it made itself after the snapshot "
    "from which it continues"
)


class RowWatcher(Protocol):
    """Monitors and notices behind the rows of a host, told by slot. A single event that is told twice counts once."""

    def forecast(self, slot: int, events: int, score: Any) -> None:
        """A slot has made so many forecasts, the last one of this score."""

    def moment(self, slot: int) -> tuple[float, float]:
        """The time of an outcome that arrives now, and how many outcomes of the slot were told before."""

    def check_weights(self, weighted: bool, counted: bool) -> None:
        """Raise if a monitor cannot judge outcomes with weights, or counts of trials."""

    def outcome(self, slot: int, forecast: AnyForecast, y: float, now: float, told: float) -> None:
        """The outcome of a forecast of a slot has arrived."""

    def fold(self, count: int, columns: FoldColumns, slots: Slots, numbers: int, times: Vector) -> None:
        """Operations in their order, on so many slots; those of a slot below 0 have not happened."""


def new_generation() -> int:
    """A random number of 32 bits, 0 left out."""
    return secrets.randbelow(2**32 - 1) + 1


class StreamBatch(NamedTuple):
    """Events of one stream, checked: K scores each (of several models one for each, NaN where it is missing), one
    behind the other, and the column of the label."""

    scores: Vector
    outcomes: Vector
    planned: Schedule | None  # when late outcomes arrive; None: each at once
    raw_first: bool  # whether forecasts are the raw scores until the first outcome is learnt
    words: Any  # of the groups of each event, as `Rows.words_of` takes them
    issued: Vector | None  # when each score was issued, if that is known
    weights: Vector = NO_NUMBERS  # of the outcomes; none where all are 1
    trials: Vector = (
        NO_NUMBERS  # how many events each outcome is, which then is the share of ones; none where all are 1
    )
    bands: Vector = NO_NUMBERS  # room for how sure each forecast is, if that is asked

    def late(self) -> loops.Late | None:
        """When outcomes are learnt, as the loop takes it."""
        if self.planned is None:
            return None
        n, due = len(self.outcomes), self.planned.due
        order = in_order(due, self.planned.in_turn(np.flatnonzero(due <= n)), n)
        return loops.Late(0, np.empty(n, dtype=np.int64), due, order, int(self.raw_first))


class Rows(StreamRows):
    """The rows of a host: the state of each stream, its stats, its ledger, and what is on its receipts.

    Parameters
    ----------
    method : a `Method`, or a `VectorMethod` of many classes.
    identity : the name and the key of the draws of a stream, by its key in a bank (None alone).
    generation : of the first receipts, where it is given; else a random one.
    counts_losses : whether the losses of scores and forecasts are added up behind each row.
    keep : how many events before the oldest one without an outcome have their outcomes remembered.
    table : of the groups, if there are any.
    classes : of the labels.
    """

    refitter: Any = None  # of a method that fits its past again

    def __init__(
        self,
        method: AnyMethod,
        identity: Callable[[Any], tuple[int, int]],
        *,
        generation: int | None = None,
        counts_losses: bool = False,
        keep: int | None = None,
        table: Any = None,
        classes: int = 2,
    ) -> None:
        self.method, self.table, self.identity = method, table, identity
        width = method.width if table is None else table.width
        refits = bool(method.needs_history)
        self._serve(method.spec, width, width + STATS, counts_losses, refits, processes.new_lock())
        self.initial = method.initial_row() if table is None else table.initial_row()
        if table is not None:
            self._serve_groups(table.maker, table.cells)
        self._opened = np.append(self.initial, np.zeros(STATS))
        self._hold(np.empty(0))
        self.ledgers: dict[int, Ledger] = {}
        self._of_ledger: dict[str, Any] = {"classes": classes} if keep is None else {"classes": classes, "keep": keep}
        # Of each row: its receipts before this event may have been issued by any copy; and whether nobody knows which
        # of them have their outcomes.
        self.imported: Ints = np.empty(0, dtype=np.int64)
        self.uncertain: Flags = np.empty(0, dtype=np.bool_)
        self._next_generation = generation
        processes.register(self)

    def __len__(self) -> int:
        return self.count

    @property
    def matrix(self) -> Matrix:
        """The rows, those that are there and room for more."""
        found: Matrix = self.flat.reshape(-1, self.stride)
        return found

    def row(self, slot: int) -> Vector:
        """The state of a row; a view."""
        return self.matrix[slot, : self.width]

    def stats(self, at: int) -> Vector:
        """One of the numbers behind the state, of all rows; a view."""
        return self.matrix[: self.count, self.width + at]

    def events_of(self, slot: int) -> int:
        """How many forecasts a stream has made."""
        return int(self.flat[slot * self.stride + self.width + EVENTS])

    def make_room(self, count: int) -> None:
        """Write new rows behind those that are there, so that there are this many. They count once `count` says so."""
        if count > MOST_ROWS:  # pragma: no cover - terabytes
            raise InvalidInput(f"a bank must have at most {MOST_ROWS} keys, got {count}")
        matrix, before = self.matrix, self.count
        room = with_room(matrix, before, count)
        room[before:count] = self._opened
        if room is not matrix:
            self._hold(room.reshape(-1))
        self.imported = with_room(self.imported, before, len(room))
        self.uncertain = with_room(self.uncertain, before, len(room))
        self.imported[before:count], self.uncertain[before:count] = 0, False

    # ---- the streams ------------------------------------------------------------------------------------------------

    def ledger(self, slot: int) -> Ledger:
        """The ledger of a row. One that is not there has every event settled, unless nobody knows."""
        found = self.ledgers.get(slot)
        if found is None:
            events = self.events_of(slot)
            if self.uncertain[slot]:
                found = Ledger.unknown(events, int(self.row(slot)[N]), **self._of_ledger)
            else:
                found = Ledger(events, known=events, **self._of_ledger)
            self.ledgers[slot] = found
        return found

    def bind(self, stream: Stream, slot: int, key: Any = None) -> None:
        """Have a stream be that of a row."""
        name, draws = self.identity(key)
        stream._stand_on(self, slot, self.ledger(slot), name, draws, int(self.imported[slot]), key)

    def aim(self, stream: Stream) -> None:
        """Find the row of a stream again, if rows have moved. The caller holds the rows."""
        if stream._moves != self.moves:
            self.bind(stream, self.slot_of(stream._key), stream._key)

    def slot_of(self, key: Any) -> int:  # noqa: ARG002 - a bank has keys
        """The row of a stream."""
        return 0

    def ready(self) -> None:
        """Finish what an interrupted call or a fork has left. The caller holds the rows."""
        if self._pending is not None:
            self.notify()
        if self._is_forked:
            self.begin_generation()

    def notify(self) -> None:
        """Tell the watchers what they do not know yet. After an interrupt the next call does it again."""
        if self._pending is not None:
            tell, arguments = self._pending
            tell(*arguments)
            self._pending = None

    def sign(self) -> None:
        """Give this generation its number, before its first receipt."""
        if not self._is_signed:
            self._sign(new_generation() if self._next_generation is None else self._next_generation)

    def begin_generation(self) -> None:
        """From now on this is a copy, whose receipts no other has issued. What was issued before is good in all."""
        self.imported[: self.count] = self.stats(EVENTS)
        self._next_generation = None
        self.moves += 1  # streams look again
        self._begin_generation()

    # ---- single events that take more than a compiled call: `Stream` has the others ---------------------------------

    def uninterrupted(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Do several lines of Python so that no signal comes between them; one that comes is raised afterwards."""
        self._do([(outside_of_signals, ([(function, arguments)],))])

    def _refuse_groups(self) -> None:
        raise InvalidInput("groups must be left out, the calibrator has none")

    def _predict_slowly(self, stream: Stream, score: Any, words: bytes | None = None) -> Any:
        with self:
            self.ready()
            self.sign()
            self.aim(stream)
            forecast = self._forecast(stream, score, words)
            self.notify()
            return forecast

    def _check_weights(self, weighted: bool, counted: bool) -> None:
        """Raise if the method or a watcher cannot learn outcomes with weights, or counts of trials."""
        if weighted or counted:
            check_learns(self.method, weighted=weighted, counted=counted, has_labels=self.labels is not None)
            if self.watch is not None:
                self.watch.check_weights(weighted, counted)

    def _update_slowly(
        self, stream: Stream, forecast: AnyForecast, y: float, is_own: bool, weight: float, trials: float
    ) -> UpdateStatus:
        with self:
            self.ready()
            self.aim(stream)
            event, events = forecast.event, self.events_of(stream._slot)
            stream._ledger.catch_up(events)
            if not is_own:
                self.check_receipt(stream, forecast, events)
            if self.is_repeat(stream._ledger, event, y, weight, trials):
                return "repeated"
            if self.row(stream._slot)[N] >= events:  # rows from elsewhere: nobody knows which events are settled
                raise OutcomeConflict(
                    f"outcome must be of a forecast that has none yet, got one more than the {events} "
                    f"forecasts - at event {event}"
                )
            self.learn_one(stream, forecast, y, weight, trials)
            self.notify()
        self.after_learning()
        return "learnt"

    def learn_one(self, stream: Stream, forecast: AnyForecast, y: float, weight: float, trials: float) -> None:
        """Learn an outcome that is new."""
        self._learn(stream, forecast, y, weight, trials)

    # ---- many events of one stream ----------------------------------------------------------------------------------

    def run_stream(self, stream: Stream, batch: StreamBatch) -> Vector:
        """The forecasts of a batch, which is learnt: all its events or none.

        Without groups the loop moves a copy of the state, so that Ctrl-C is heard within some ten milliseconds; with
        them, the rows and cells themselves, and it is heard at the end.
        """
        with self:
            self.ready()
            self.aim(stream)
            n, events = len(batch.outcomes), self.events_of(stream._slot)
            forecasts = np.empty(n * self.method.answers)
            late, end = batch.late(), n if batch.planned is None else n + 1
            seen = self._seen(stream._slot)
            words, gathered = self.words_of(batch.words)
            batch = batch._replace(words=words)
            state, moves = self._moved(stream, batch, late, end, forecasts)
            pending = None
            if self.watch is not None:
                watched = batch._replace(scores=forecasts) if self.method.spec.models else batch
                columns = watched_columns(self.method.answers, forecasts, batch.outcomes, watched.scores)
                pending = self.watch.batch, (events, watched, late, end, columns)
            due = None if late is None else late.due
            self._do(
                [
                    (stream._ledger.batch, (events, batch.outcomes, due, end, batch.weights, batch.trials)),
                    *moves,
                    *gathered,
                    (self._take, (stream, state, n, pending)),
                ],
                seen,
                stream._slot,
            )
            self.notify()
        self.after_learning()
        return forecasts

    def _moved(
        self, stream: Stream, batch: StreamBatch, late: loops.Late | None, end: int, forecasts: Vector
    ) -> tuple[Vector | None, list[Call]]:
        """The state that a batch leaves, and its forecasts; or the calls that make both, where there are groups."""
        row, n, numbers = self.row(stream._slot), len(batch.outcomes), self.method.numbers
        state = row.copy() if self.table is None else row
        held = loops.receipts_under_way(late.due, late.order, n) if late else 0
        width = self.method.receipt_width if self.table is None else self.table.receipt_width
        played = loops.one_stream(state, self.events_of(stream._slot))
        room = batch.scores, batch.outcomes, self._draws(stream, n), forecasts, np.empty(held * width)
        words = NO_INTS if batch.words is None else batch.words
        learnt = NO_NUMBERS
        if self.refitter is not None and (len(batch.weights) or len(batch.trials) or row[TOTAL] > 0.0):
            learnt = np.ones(n)  # an outcome of weight 1 is clipped too, where the others had smaller ones
            batch = batch._replace(weights=batch.weights if len(batch.weights) else np.ones(n))
        weights = batch.weights, batch.trials, learnt
        played_batch = loops.Batch(*room, self.method.scratch(), words, *weights, bands=batch.bands)
        if self.table is not None:
            place, cells = loops.place_before(), self.table.cells
            return None, [loops.call_of(self.method.spec, played, played_batch, late, place, end, cells)]
        place, refitter = loops.place_before(), self.refitter
        for stop in (end,) if refitter is None else refitter.stretches(state, played_batch, late, end):
            for part in loops.pieces(stop, numbers, int(place[loops.EVENT])):
                loops.run_batch(self.method.spec, played, played_batch, late, place, part.stop)
            if late is not None and len(learnt) and stop < end:
                # The fit needs the weights, as they are clipped, of what arrives just before the next forecast.
                short = played_batch._replace(outcomes=batch.outcomes[:stop])
                loops.run_batch(self.method.spec, played, short, late, place, stop + 1)
                place[loops.EVENT] = stop
        return state, []

    def words_of(self, given: Any, *, in_turn: bool = True) -> tuple[Ints | None, list[Call]]:
        """The words of the groups of events, and the calls that note their numbers while these are gathered.

        `given` are words, or a `PendingWords`: the caller holds the rows, so no other event comes between. Not in turn,
        each event is the next one.
        """
        if given is None or isinstance(given, np.ndarray):
            return given, []
        words, known = self.table.maker.after(given, in_turn=in_turn)
        return words, [(self.table.maker._know, (known,))]

    def bands_for(self, events: int, asked: bool) -> Vector:
        """Room for how sure the forecasts of so many events are, if that is asked.

        Raises
        ------
        InvalidInput : the method does not know.
        """
        if asked is False:
            return NO_NUMBERS
        if asked is not True:
            raise InvalidInput(f"band must be True or False, got {shown(asked)}")
        if not self.method.spec.band:
            raise InvalidInput("band requires Calibrator(band=True) or Bank(band=True)")
        return np.empty(4 * events)

    def predict_many(self, stream: Stream, scores: Vector, words: Any, bands: Vector = NO_NUMBERS) -> Vector:
        """Forecast many scores from the present state of a stream."""
        n = len(scores) // self.method.numbers
        forecasts = np.empty(n * self.method.answers)
        with self:
            self.ready()
            self.aim(stream)
            draws, state = self._draws(stream, n), self.row(stream._slot).copy()
            if self.table is not None:  # the cells must stay as they are
                self._forecast_all(state, scores, draws, self.words_of(words, in_turn=False)[0], forecasts)
                return forecasts
        self._forecast_all(state, scores, draws, None, forecasts, bands)
        return forecasts

    def _forecast_all(
        self,
        state: Vector,
        scores: Vector,
        draws: Vector,
        words: Ints | None,
        forecasts: Vector,
        bands: Vector = NO_NUMBERS,
    ) -> None:
        """Forecast each score as the next event of this state."""
        K, numbers = self.method.answers, self.method.numbers
        work, cells, played = self.method.scratch(), NO_CELLS, loops.one_stream(state, 0)
        if self.table is not None:
            cells = self.table.cells._replace(found=np.empty_like(self.table.cells.found))
        for part in loops.pieces(len(forecasts) // K, numbers):
            given, made = (slice(part.start * size, part.stop * size) for size in (numbers, K))
            own = NO_INTS if words is None else words[part.start * cells.attributes : part.stop * cells.attributes]
            batch = loops.Batch(scores[given], NO_NUMBERS, draws[part], forecasts[made], NO_NUMBERS, work, own)
            batch = batch._replace(bands=bands[4 * part.start : 4 * part.stop])
            loops.predict_many(self.method.spec, cells, played, state, batch)

    def _draws(self, stream: Stream, count: int) -> Vector:
        """The draws of the next events of a stream."""
        if not self.method.draws:
            return np.empty(0)
        return uniforms(self.identity(stream._key)[1], self.events_of(stream._slot), count)

    # ---- forecasts and outcomes in any order ------------------------------------------------------------------------

    def issue(self, slots: Slots, scores: Vector, words: Any = None) -> ReceiptArray:
        """Make forecasts in their order -> their receipts. The caller holds the rows."""
        n = len(slots)
        nothing, own = np.full(n, np.nan), np.full(n, -1)
        given = np.empty(0, dtype=receipt_type(self._shape, self._words_given))
        return self.fold(slots, scores, nothing, own, given, self._times(n), words)[1]

    def learn(self, slots: Slots, outcomes: Vector, given: ReceiptArray, weights: Vector, trials: Vector) -> Ints:
        """Learn outcomes in their order, each with its receipt -> what becomes of each. The caller holds the rows."""
        seen, ledgers = self.begin(slots)
        columns = FoldColumns.of_receipts(self._shape, slots, outcomes, given, self._words_given)
        columns.weights, columns.trials = weights, trials
        found = np.zeros(len(slots), dtype=np.int64)
        names = self.issuers(slots)
        for first in range(0, len(slots), _JUDGED_AT_ONCE):  # as many as a cache holds
            part = slice(first, first + _JUDGED_AT_ONCE)
            self._judge(columns.receipts[part], part, slots, names, found[part], strict=False)
        self._play(columns, ledgers, seen, found, self._times(len(slots)), strict=False)
        return found

    def fold(
        self,
        slots: Slots,
        scores: Vector,
        outcomes: Vector,
        own: Ints,
        given: ReceiptArray,
        times: Vector,
        words: Any = None,
        weights: Vector = NO_NUMBERS,
        trials: Vector = NO_NUMBERS,
    ) -> tuple[FoldColumns, ReceiptArray]:
        """Do operations in their order -> their columns, and the receipts of the forecasts. The caller holds the rows.

        `own` is where in this call the forecast of an outcome is; -1: it comes with a receipt of `given`. An outcome
        that is not to be learnt is an error. `words` are those of the groups of each operation.
        """
        self.sign()
        seen, ledgers = self.begin(slots)
        words, gathered = self.words_of(words)
        columns = FoldColumns(self._shape, slots, scores, outcomes, own, words)
        columns.weights, columns.trials, columns.gathered = weights, trials, gathered
        names = self.issuers(slots)
        asked, found = columns.asked, np.zeros(len(slots), dtype=np.int64)
        columns.receipts["event"][asked] = self.numbers_of_next(slots[asked])
        if len(given):
            columns.bring(given)
            self._judge(given, columns.brought, slots, names, found, strict=True)
        self._play(columns, ledgers, seen, found, times, strict=True)
        return columns, columns.made(names, self._generation)

    def _play(
        self, columns: FoldColumns, ledgers: list[Ledger], seen: Any, found: Ints, times: Vector, *, strict: bool
    ) -> None:
        """Do the operations in one step; outcomes with a status in `found` are left out, and others may get one."""
        asked, count = columns.asked, self.count_after
        if self.table is not None:
            columns.cells = self.table.cells
        work = columns.work(columns.slots.copy(), self.draws(columns.slots[asked]))
        state = self.flat, self.stride, float(self.clock)
        told = ledgers, work.slots, columns.events(), columns.outcomes, found, strict, columns.weights, columns.trials
        calls: list[Call] = [
            (self._settle_all, told),
            (fold_rows, (self.method.spec, columns.cells, *state, work, self.pool_of(work.work))),
            *columns.gathered,
            (self._account, (ledgers, work.slots, count, self.clock + int(asked.sum()))),
        ]
        if self.watch is not None:
            heard = count, columns, work.slots, self.method.answers, times
            calls.append((outside_of_signals, ([(self.watch.fold, heard)],)))
        self._do(calls, seen)

    def _judge(
        self, given: ReceiptArray, rows: Ints | slice, slots: Slots, names: Names, found: Ints, *, strict: bool
    ) -> None:
        """Note which receipts these streams have not issued, or are damaged; raise for the first, if it is strict."""
        events, at = given["event"], slots[rows]
        made, sealed = self.matrix[at, self.width + EVENTS], are_whole(given)
        is_of_now = given["generation"] == self._generation
        checks: list[tuple[Flags, int, type[CalibeatError], str]] = [
            (
                given["issuer"] == names[rows],
                NOT_OURS,
                UnknownForecast,
                "receipt must be of this bank and this key, got another's",
            ),
            (
                check_layout(self._shape, given, self._words_given),
                DAMAGED,
                InvalidInput,
                "receipt must be of this version and this method, got another",
            ),
            (sealed, DAMAGED, InvalidInput, "receipt must be as it was issued, got a damaged one"),
            (is_of_now | (events < self.imported[at]), NOT_OURS, UnknownForecast, _FROM_A_COPY),
            (
                (events >= 0) & (events < made),
                NOT_OURS,
                UnknownForecast,
                "receipt must be of a forecast that was made, got a later one",
            ),
        ]
        for good, status, error, sentence in checks:
            if good.all():
                continue
            if strict:
                row = int((~good).argmax())
                raise error(f"{sentence} - at row {int(np.arange(len(slots))[rows][row])}")
            found[~good & (found == LEARNT)] = status
        if not strict:  # what a damaged receipt says of its issuer is nothing to go by
            found[~sealed] = DAMAGED

    @property
    def _shape(self) -> AnyMethod:
        """The method, as `FoldColumns` asks for it: with groups, rows and receipts are wider."""
        return self.method if self.table is None else self.table.grouped

    @property
    def _words_given(self) -> int:
        """How many words are on a receipt."""
        return 0 if self.table is None else int(self.table.cells.attributes)

    @property
    def receipt_type(self) -> np.dtype[np.void]:
        """The layout of the receipts."""
        return receipt_type(self._shape, self._words_given)

    def _times(self, count: int) -> Vector:
        """The times of so many events that happen now, where they are noticed."""
        return np.full(count, np.nan if self.watch is None else self.watch.now())

    @property
    def count_after(self) -> int:
        """How many rows there are once a call is done."""
        return self.count

    def numbers_of_next(self, slots: Slots) -> npt.NDArray[np.uint64]:
        """Which event of its own stream each of these is, if they come next and in this order."""
        _, events, places = self.few_of(slots)
        return numbered(events, places)

    def few_of(self, slots: Slots) -> tuple[Slots | slice, Vector, Slots]:
        """The rows of these slots, how many forecasts each has made, and which of them is that of each slot.

        All rows, unless there are fewer slots.
        """
        events = self.matrix[: self.count_after, self.width + EVENTS]
        if len(slots) >= len(events):
            return EVERY, events.copy(), slots
        used, places = np.unique(slots, return_inverse=True)
        return used, events[used], places.astype(np.int32)

    def issuers(self, slots: Slots) -> Names:
        """The names on the receipts of these slots."""
        return np.full(len(slots), self.identity(None)[0], dtype=np.uint64)

    def draws(self, slots: Slots) -> Vector:
        """The draw of each event, whose slots are given in the order of the events; none where nothing is drawn."""
        return uniforms(self.identity(None)[1], self.events_of(0), len(slots)) if self.method.draws else np.empty(0)

    def begin(self, slots: Slots) -> tuple[Any, list[Ledger]]:
        """What the plan of a call stands on, and the ledger of each of these slots."""
        return self._seen(), [self.ledger(0)] * len(slots)

    def pool_of(self, work: Vector) -> Pool:
        """The pool that new streams start from, for a kernel that works in this room."""
        return Pool(False, NO_NUMBERS, NO_NUMBERS, 0, work)

    def check_writable(self, what: str) -> None:
        """Raise unless the rows may change: those of a file may not."""

    def after_learning(self) -> None:
        """What a host has to say once something was learnt."""

    def check_receipt(self, stream: Stream, forecast: AnyForecast, events: int) -> None:
        """Raise unless a receipt that has travelled is as this stream has issued it, for one of so many events."""
        event, fault = forecast.event, examine(forecast, stream._name, stream._begun, self._generation, events)
        if fault == ANOTHER:
            others = (
                "by another method, seed or stream"
                if self.labels is None
                else "with other classes or by another method"
            )
            raise UnknownForecast(
                f"forecast must come from this calibrator, got one that was made {others} - at event {event}"
            )
        if fault == OF_A_COPY:
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
                f"after the snapshot from which it continues - at event {event}"
            )
        if fault == TOO_LATE:
            raise UnknownForecast(
                f"forecast must be one of the {events} that this calibrator has made, got event {event}"
            )
        if fault == BROKEN or not self._has_room_for(forecast):
            raise InvalidInput(f"forecast must be as it was issued, got a damaged one - at event {event}")

    def _has_room_for(self, forecast: AnyForecast) -> bool:
        """Whether a receipt points only at what is there: a forged one has the right seal too."""
        method, numbers = self.method, self.method.receipt_width if self.table is None else self.table.receipt_width
        if method.spec.classes:
            K = method.spec.classes
            return bool(len(forecast.probabilities) == len(forecast.score) == K and len(forecast.lanes) == numbers)
        if method.spec.models:
            lanes = np.array([forecast.lanes])  # of fewer models, if one was added since
            is_whole = (lanes.shape[1] - OWN) % RECEIPT_WIDTH == 0 and OWN < lanes.shape[1] <= numbers
            return is_whole and not forecast.words and bool(_are_of_models(lanes)[0])
        given = forecast if self.labels is None else forecast.binary
        words = 0 if self.table is None else self.table.cells.attributes
        return (
            given is not None
            and (len(given.lanes), len(given.words)) == (numbers, words)
            and (not method.cells or 0 <= given.cell < method.cells)
        )

    def is_repeat(self, ledger: Ledger, event: int, y: float, weight: float, trials: float) -> bool:
        """Whether the outcome of an event is known already; raise if another one is, or if nobody knows any more."""
        mark = ledger.mark(event)
        what = "outcome" if self.labels is None else "label"
        if mark == CLOSED and event < ledger.given_up:
            raise UnknownForecast(
                f"forecast must be young enough to know whether its {what} was learnt, got one from before event "
                f"{ledger.given_up} - at event {event}"
            )
        if mark not in (OPEN, CLOSED) and not ledger.is_same(event, y, weight, trials):
            heavy, of, ones = ledger.describe(event)
            learnt = self._told(ledger.column(event) if of == 1 else ones, heavy, of)
            got = self._told(round(y * trials), weight, int(trials))
            raise OutcomeConflict(f"{what} must be the one already learnt, {learnt}, got {got} - at event {event}")
        return mark != OPEN

    def _told(self, outcome: int, weight: float, of: int) -> str:
        """An outcome in words."""
        shown = str(outcome) if of == 1 else f"{outcome} of {of}"
        if self.labels is not None:
            shown = repr(self.labels[outcome])
        return shown if weight == 1.0 else f"{shown} with weight {weight!r}"


def check_learns(method: AnyMethod, *, weighted: bool, counted: bool, has_labels: bool) -> None:
    """Raise if a method cannot learn outcomes with weights, or counts of trials.

    Raises
    ------
    InvalidInput : it cannot; the message says why.
    """
    what = "weight" if weighted else "of"
    if method.spec.models:
        raise InvalidInput(f"{what} must be left out with models: several models learn single events, each once")
    if method.draws:
        name = name_of(method) or "a method with Hedging or Guard"
        raise InvalidInput(
            f"{what} must be left out with {name}: what it promises is about single events - use AUTO, OPS or TOPS"
        )
    if counted and has_labels:
        raise InvalidInput("of must be left out with many classes: a label is one event")


# ---- receipts ----------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """What `Bank.fold` gives back."""

    forecasts: Vector  # for each operation: the forecast, NaN where it was an outcome
    receipts: ReceiptArray  # for each forecast, in order: its receipt; ``.tolist()`` gives bytes


def receipt_type(method: AnyMethod, words: int = 0) -> np.dtype[np.void]:
    """The layout of a receipt, as `Forecast.to_bytes` documents it; `issuer` is the name as a number.

    Of K classes it is that of `MultiForecast.to_bytes`.
    """
    return _receipt_type(method.receipt_width, method.spec.classes, words)


@cache
def _receipt_type(width: int, K: int, words: int) -> np.dtype[np.void]:
    head: list[Any] = [("version", "u1"), ("candidates", "u1"), ("numbers", "<u2"), ("generation", "<u4")]
    counts = [(name, "<i8") for name in ("bin", "cell", "event", "seen")]
    numbers = [(name, "<f8") for name in ("probability", "score", "expert")]
    classes: list[Any] = [("probabilities", "<f8", (K,)), ("scores", "<f8", (K,))] if K else []
    lanes = [("hedge", "<f8", (4,)), *classes, ("lanes", "<f8", (width,)), ("words", "<i8", (words,))]
    return np.dtype([*head, *counts, ("issuer", ">u8"), *numbers, *lanes, ("seal", "<u8")])


# The same layout in numbers of 8 bytes, as the kernel has it: those before the issuer are whole. For K classes their
# probabilities and scores come next; then the lanes, the words of groups, and the seal.
BIN, CELL, EVENT, SEEN = 1, 2, 3, 4
PROBABILITY, SCORE, EXPERT = 6, 7, 8
HEDGE = 9
HEAD = 13


def read_receipts(method: AnyMethod, receipts: Any, count: int) -> ReceiptArray:
    """Receipts as records: from a list of bytes, or from an array of them."""
    kind = receipt_type(method)
    joined: bytes | npt.NDArray[np.uint8]
    if isinstance(receipts, np.ndarray):
        if receipts.dtype.itemsize != kind.itemsize or receipts.dtype.kind != "V" or receipts.ndim != 1:
            raise InvalidInput(f"receipts must be {kind.itemsize} bytes each, got an array of {receipts.dtype}")
        joined = receipts.tobytes()
    elif isinstance(receipts, Sequence) and not isinstance(receipts, (str, bytes)):
        whole = np.empty(len(receipts) * kind.itemsize, dtype=np.uint8)
        is_plain = type(receipts) is list and bytes_of(receipts, kind.itemsize, whole)
        for row, receipt in enumerate(() if is_plain else receipts):
            if not isinstance(receipt, (bytes, bytearray, memoryview)) or len(receipt) != kind.itemsize:
                raise InvalidInput(f"receipt must be {kind.itemsize} bytes, got {shown(receipt)} - at receipt {row}")
        joined = whole if is_plain else b"".join(receipts)
    else:
        raise InvalidInput(f"receipts must be a list of bytes, got {type(receipts).__name__}")
    found = np.frombuffer(joined, dtype=kind)
    if len(found) != count:
        raise InvalidInput(f"receipts must be one for each outcome of an earlier call, {count}, got {len(found)}")
    return found


def numbers_on(method: AnyMethod, words: int) -> int:
    """What a receipt says of how many numbers it has."""
    return int((method.receipt_width + 2 * method.spec.classes + 256 * words) % 65536)


def check_layout(method: AnyMethod, given: ReceiptArray, words: int = 0) -> Flags:
    """Which receipts have the version and the numbers of this method, and point only at what is there.

    A forged one has the right seal too: so its numbers must be finite, or they would reach the row.
    """
    good = (given["version"] == FORMAT) & (given["numbers"] == numbers_on(method, words))
    if method.receipt_width:
        good &= np.isfinite(given["lanes"]).all(axis=1)
    if method.spec.classes:
        good &= (given["candidates"] == CLASSES_FOLLOW) & (given["cell"] == method.spec.classes)
        shares = given["probabilities"], given["scores"]
    else:
        good &= (given["cell"] >= 0) & ((given["cell"] < method.cells) | (method.cells == 0))
        shares = given["probability"], given["score"]
    if method.spec.models:
        good &= _are_of_models(given["lanes"])
    for share in shares:
        possible = (share >= 0.0) & (share <= 1.0)
        good &= possible.all(axis=1) if method.spec.classes else possible
    return np.asarray(good)


def _are_of_models(lanes: Matrix) -> Flags:
    """Which receipts of several models have a score, and only possible ones."""
    scores = scores_on(lanes)
    possible = (scores == MISSING) | ((scores >= 0.0) & (scores <= 1.0))
    found: Flags = possible.all(axis=1) & (scores >= 0.0).any(axis=1)
    return found


def scores_on(lanes: Matrix) -> Matrix:
    """The scores on receipts of several models, -1 where they are missing; a view."""
    return lanes[:, OWN + SCORE_OF_AUTO :: RECEIPT_WIDTH]


def are_whole(given: ReceiptArray) -> Flags:
    """Whether each receipt has the seal of its content."""
    good = np.empty(len(given), dtype=np.uint8)
    are_sealed(np.ascontiguousarray(given).view(np.uint8), given.itemsize, good)
    return good.view(np.bool_)


# ---- forecasts and outcomes in any order -------------------------------------------------------------------------


class FoldWork(NamedTuple):
    """The operations of a fold as the kernel has them. Each has a receipt: it is made, or brought by an outcome.

    `counts` is the memory of `receipts` read as whole numbers, and `size` the numbers of each. `work` and `words` are
    as in `Batch`.
    """

    slots: Slots
    outcomes: Vector  # NaN: a forecast is asked for
    u: Vector
    sources: Ints  # of an outcome: the operation that holds its receipt
    receipts: Vector
    counts: Ints
    size: int
    work: Vector = NO_NUMBERS
    words: Ints = NO_INTS
    weights: Vector = NO_NUMBERS
    trials: Vector = NO_NUMBERS


@kernel
def outcome_in(work: FoldWork, i: int) -> Outcome:
    """The outcome that an operation brings."""
    weight = work.weights[i] if len(work.weights) > 0 else 1.0
    return Outcome(work.outcomes[i], weight, work.trials[i] if len(work.trials) > 0 else 1.0)


@loop
def fold_rows(  # noqa: C901, PLR0915 - one loop for all hosts
    spec: Spec, cells: Cells, rows: Vector, stride: int, clock: float, work: FoldWork, pool: Pool
) -> int:
    """Operation after operation: a forecast where the outcome is NaN, else the outcome of the forecast at sources[i].

    -> -1, or the operation whose stream had no forecast left without an outcome.
    """
    K, stats, opened, attributes = spec.classes, stride - STATS, pool.opened, cells.attributes
    grouped = cells.columns > 0
    lanes = HEAD + 2 * K
    end = lanes + (cells.receipt + GROUPED_RECEIPT_WIDTH if grouped else spec.receipt)
    for i in range(len(work.slots)):
        slot = work.slots[i]
        if slot < 0:  # an outcome that is not to be learnt
            continue
        row = rows[slot * stride : (slot + 1) * stride]
        outcome = outcome_in(work, i)
        is_learnt = outcome.y == outcome.y
        at = (work.sources[i] if is_learnt else i) * work.size
        lane = work.receipts[at + lanes : at + end]
        forecast = work.receipts[at + PROBABILITY : at + SCORE]
        score = work.receipts[at + SCORE : at + EXPERT]
        words = work.words[i * attributes : (i + 1) * attributes]
        if K > 0:
            forecast, score = work.receipts[at + HEAD : at + HEAD + K], work.receipts[at + HEAD + K : at + lanes]
        if is_learnt:
            t = row[stats + EVENTS]
            if row[N] >= t:
                return i
            if pool.learns:
                learn(spec, pool, score, outcome)
            if K > 0:
                update_label(spec.vector, K, row, t, outcome, lane, work.work, forecast)
                add_class_losses(row, stats, score, forecast, outcome)
            elif spec.models > 0:
                settle_models(spec.models, row, t, outcome.y, lane, work.work, False)
            else:
                learn_late(spec, cells, row, t, score[0], work.counts[at + CELL], outcome, words, lane, grouped)
                add_losses(row, stats, spec.odds, score[0], forecast[0], outcome)
        else:
            if pool.learns and slot == opened:
                start_row(spec, pool, row)
                opened += 1
            work.counts[at + SEEN], work.counts[at + EVENT] = int(row[N]), int(row[stats + EVENTS])
            if K > 0:
                predict_classes(spec.vector, K, row, score, lane, work.work, forecast)
                top = 0
                for k in range(1, K):
                    if forecast[k] > forecast[top]:
                        top = k
                work.counts[at + BIN], work.counts[at + CELL] = top, K
                work.receipts[at + PROBABILITY], work.receipts[at + SCORE] = forecast[top], score[top]
            elif spec.models > 0:
                p = ask_models(spec.models, row, lane, work.work)
                work.receipts[at + PROBABILITY], work.receipts[at + SCORE] = p, p
                work.receipts[at + EXPERT] = lane[MIXED]
                work.counts[at + BIN] = work.counts[at + CELL] = bin_of(lane[MIXED], spec.bins)
            else:
                asked = ask(spec, row, score[0], lane)
                u = work.u[i] if spec.draws else 0.0
                played = play_any(spec, cells, row, asked, u, words, lane, grouped)
                work.counts[at + CELL], work.counts[at + BIN] = played.cell, played.bin
                work.receipts[at + PROBABILITY] = played.forecast
                work.receipts[at + EXPERT] = in_truth(spec.odds, asked.expert)
                if spec.band > 0:
                    extra = work.receipts[at + HEDGE : at + HEAD]
                    note_how_sure(spec, row, asked, played.forecast, lane, extra)
                elif played.low != played.high:
                    work.receipts[at + HEDGE], work.receipts[at + HEDGE + 1] = played.low, played.weight
                    work.receipts[at + HEDGE + 2], work.receipts[at + HEDGE + 3] = played.high, 1.0 - played.weight
            clock += 1.0
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock
    return -1


class FoldColumns:
    """The columns of a call: what is asked, what is brought, and a receipt for each operation.

    A stream with groups has `cells`, and `words` for each operation; they are on its receipts, if so many are given.
    While numbers are gathered, calls of `gathered` note those of the forecasts.
    """

    cells: Cells = NO_CELLS
    words: Ints = NO_INTS
    weights: Vector = NO_NUMBERS
    trials: Vector = NO_NUMBERS
    gathered: Sequence[Call] = ()

    def __init__(
        self, method: AnyMethod, slots: Slots, scores: Vector, outcomes: Vector, own: Ints, words: Ints | None = None
    ) -> None:
        n, K = len(slots), method.spec.classes
        self._words_given = 0 if words is None else len(words) // n
        asked, earlier = np.isnan(outcomes), own < 0
        sources = np.where(earlier, np.arange(n), own)
        self._hold(method, slots, outcomes, asked, sources, np.zeros(n, dtype=receipt_type(method, self._words_given)))
        self.brought = (earlier > asked).nonzero()[0]
        if words is not None:
            self.words = words
            self.receipts["words"] = words.reshape(n, -1)
        if K:
            self.receipts["scores"] = scores.reshape(n, K)
        elif method.spec.models:
            given = scores.reshape(n, -1)
            scores_on(self.receipts["lanes"])[:] = np.where(np.isnan(given), MISSING, given)
        else:
            self._numbers[SCORE :: self.receipts.itemsize // 8] = scores

    @classmethod
    def of_receipts(
        cls, method: AnyMethod, slots: Slots, outcomes: Vector, given: ReceiptArray, words: int
    ) -> FoldColumns:
        """Of outcomes alone, each with its receipt."""
        columns, n = cls.__new__(cls), len(slots)
        columns._words_given = words
        columns._hold(method, slots, outcomes, np.zeros(n, dtype=np.bool_), np.arange(n), given.copy())
        if words:
            columns.words = columns.receipts["words"].reshape(-1)
        return columns

    def _hold(
        self, method: AnyMethod, slots: Slots, outcomes: Vector, asked: Flags, sources: Ints, receipts: ReceiptArray
    ) -> None:
        self._method, self.slots, self.outcomes, self.asked, self.sources = method, slots, outcomes, asked, sources
        self.receipts, self._numbers = receipts, receipts.view(np.float64)

    @property
    def forecasts(self) -> Vector:
        """The forecast of each operation; NaN where it was an outcome."""
        made: Vector = self.receipts["probabilities" if self._method.spec.classes else "probability"].copy()
        if len(made) > 1 or not self.asked[0]:
            made[~self.asked] = np.nan
        return made

    def bring(self, given: ReceiptArray) -> None:
        """The receipts of outcomes whose forecasts were made in earlier calls."""
        # As rows of numbers: NumPy moves these in one piece.
        self._rows()[_all_of(self.brought, self.asked)] = given.view(np.float64).reshape(len(given), -1)

    def _rows(self) -> Matrix:
        return self._numbers.reshape(len(self.receipts), -1)

    def run(self, rows: Vector, draws: Vector) -> None:
        """All operations, on rows one behind the other; `draws` are those of the forecasts, if they need any."""
        work = self.work(self.slots, draws)
        start = Pool(False, NO_NUMBERS, NO_NUMBERS, 0, work.work)
        stopped = fold_rows(self._method.spec, self.cells, rows, self._method.width + STATS, 0.0, work, start)
        if stopped >= 0:
            raise OutcomeConflict(
                "outcome must be of a forecast that has none yet, got one more than the forecasts of its key - "
                f"at row {stopped}"
            )

    def work(self, slots: Slots, draws: Vector) -> FoldWork:
        """The operations as the kernel takes them; those of a slot below 0 are left out."""
        u = draws
        if len(draws):
            u = np.zeros(len(slots))
            u[self.asked] = draws
        receipts = self._numbers, self._numbers.view(np.int64), self.receipts.itemsize // 8
        work: Vector = self._method.scratch()
        told = self.words, self.weights, self.trials
        return FoldWork(slots, self.outcomes, u, self.sources, *receipts, work, *told)

    def watched(self) -> tuple[Vector, Vector, Vector]:
        """Forecast, outcome and score of each operation, as monitors read them."""
        j, K = self.sources, self._method.spec.classes
        forecasts = self.receipts["probabilities" if K else "probability"][j].reshape(-1)
        return watched_columns(self._method.answers, forecasts, self.outcomes, self.scores())

    def scores(self) -> Vector:
        """The score of each operation: K numbers, one operation behind the other; of several models the forecast."""
        found: Vector = self.receipts["scores" if self._method.spec.classes else "score"][self.sources].reshape(-1)
        return found

    def events(self) -> Ints:
        """The number of each operation's event in its stream."""
        found: Ints = self.receipts["event"][self.sources]
        return found

    def made(self, issuers: Any = None, generation: int = 0) -> ReceiptArray:
        """The receipts of the forecasts, sealed; `issuers` are the names of the streams of all operations."""
        chosen, method = self.asked.nonzero()[0], self._method
        asked, K = _all_of(chosen, self.asked), method.spec.classes
        made = self._rows()[asked].reshape(-1).view(self.receipts.dtype)
        made["version"], made["numbers"] = FORMAT, numbers_on(method, self._words_given)
        if K:
            made["candidates"] = CLASSES_FOLLOW
        elif method.spec.band:
            made["candidates"] = BANDED
        elif method.draws:
            made["candidates"] = HEDGED * (made["hedge"][:, 3] + made["hedge"][:, 1] > 0.0)
        if issuers is not None:
            made["issuer"], made["generation"] = issuers[asked], generation
        seal_receipts(made.view(np.uint8), made.itemsize)
        return made


def _all_of(places: Ints, column: Flags) -> Ints | slice:
    """The places, as a slice where they are all of a column: NumPy then copies nothing to look them up."""
    return EVERY if len(places) == len(column) else places


def new_rows(method: AnyMethod, count: int) -> Matrix:
    """Rows of streams that have seen nothing: state, and stats behind it."""
    rows = np.zeros((count, method.width + STATS))
    rows[:, : method.width] = method.initial_row()
    return rows


def fold_on_rows(
    method: AnyMethod,
    rows: Matrix,
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    own: Ints,
    receipts: Any,
    draws: Vector,
    columns: FoldColumns | None = None,
    weights: Vector = NO_NUMBERS,
) -> Fold:
    """What `Bank.fold` does, on a matrix of rows, in place, for a host that keeps rows and receipts in its own store.

    `slots` is the row of each operation. `own` is where in this call the forecast of an outcome is; -1: it comes with a
    receipt. `draws` are those of the forecasts in order, if the method draws. `weights` are those of the outcomes, if
    they have some. Receipts
    name no issuer: the host knows whose they are. Rows are left without the moment of their last event, as rows that
    travel are. `columns` are made of the other arguments, unless the host has a loop of its own.

    Raises
    ------
    InvalidInput : a receipt has not the layout of this method. Otherwise values are not checked.
    OutcomeConflict : a stream has more outcomes than forecasts. The rows are then to be thrown away.
    """
    columns = FoldColumns(method, slots, scores, outcomes, own) if columns is None else columns
    columns.weights = weights
    if len(columns.brought):
        columns.bring(read_receipts(method, receipts, len(columns.brought)))
        whole = columns.receipts[columns.brought]
        if not (check_layout(method, whole) & are_whole(whole)).all():
            raise InvalidInput("receipt must be as it was issued, got a damaged one")
    columns.run(rows.reshape(-1), draws)
    made = columns.made()
    rows[:, method.width + LAST] = 0.0
    return Fold(columns.forecasts, made.view(f"V{made.itemsize}"))
