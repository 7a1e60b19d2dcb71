"""The event loop of every host, over (rows, slots): a calibrator has one row, a bank and a backtest have many.

A loop goes on from ``place`` and leaves there how far it came.

The loop is written once and compiled several times: for many rows or one, with groups or without, for outcomes that
come at once or late, for two classes or K, and for the methods that most people use. What differs are constants, so a
method that does little pays for none of the others. What is known of an event before its outcome, such as its score,
stands in `Batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.types import Ints, Slots, Vector

from .calibeating import SPLINE
from .features import PLATT
from .groups import (
    GROUPED_RECEIPT_WIDTH,
    MOST_GROUPED_RECEIPT,
    NO_CELLS,
    Cells,
    play_grouped,
    settle_found,
    settle_grouped,
)
from .kernel import Asked, Played, as_auto, ask, ask_again, is_auto, note_how_sure, play, settle, settle_weighted
from .layout import N, Spec
from .learners import ONS_STEP
from .several import ROOM, put_scores
from .several import ask as ask_models
from .several import settle as settle_models
from .stats import EVENTS, LAST, STATS, add_class_losses, add_losses
from .subset import kernel, loop, prefetch, scratch
from .vector import ask as ask_classes
from .vector import play as play_classes
from .vector import predict as predict_classes
from .vector import update as update_label
from .weights import Outcome

CACHE_LINE = 8  # numbers
AHEAD = 6  # how many events before its turn a row is asked for; of K classes the next one
MOST_FETCHED = 160  # numbers of a row: of a longer one (HOPS) an event needs only a part

PIECE = 65_536  # events that a host plays before it looks for signals: some ten milliseconds
# Of the loop: outcomes have no weights; they are learnt by a call apart, or inside the loop.
NO_WEIGHTS, APART, INSIDE = 0, 1, 2
TWO, MANY, MODELS = 0, 1, 2  # of the loop: two classes, K classes, or two classes and the scores of several models
EVENT, ARRIVED = 0, 1  # of `place`: the next event, and how many outcomes of `order` have been learnt


NO_NUMBERS: Vector = np.empty(0)
NO_INTS: Ints = np.empty(0, dtype=np.int64)
NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class Streams(NamedTuple):
    """Rows of `stride` numbers one behind the other. `slots` says which row an event belongs to.

    Without slots all events belong to row 0. With slots, and if `stats` is not 0, the numbers of `stats` stand at
    that place of each row. Only events of slots from `first` to `last - 1` are played: the others belong to another
    thread. `t` forecasts were made before the batch, in all streams.
    """

    rows: Vector
    stride: int
    slots: Slots
    first: int
    last: int
    stats: int
    t: float


class Batch(NamedTuple):
    """The events, the draws that they may need, and where their forecasts and their late receipts go.

    For K classes scores and forecasts have K numbers an event, one event behind the other, an outcome is the column of
    the label, and `work` is scratch (`vector.scratch`), which no other thread may use. Of several models scores have a
    number for each, NaN where it is missing, and `work` is scratch too. With groups `words` has those of
    the attributes of each event, one event behind the other. `weights` and `trials` are those of the outcomes: none
    where all are 1. With trials an outcome is the share of ones. `learnt` gets the weights as they were clipped, if it
    has room. `bands` gets four numbers for each event (`band.Band`), if it has room.
    """

    scores: Vector
    outcomes: Vector
    u: Vector
    forecasts: Vector
    receipts: Vector
    work: Vector = NO_NUMBERS
    words: Ints = NO_INTS
    weights: Vector = NO_NUMBERS
    trials: Vector = NO_NUMBERS
    learnt: Vector = NO_NUMBERS
    bands: Vector = NO_NUMBERS


class Late(NamedTuple):
    """When outcomes arrive: outcome i, also of an event before `begin`, is learnt just before prediction due[i].

    `order` sorts the outcomes that arrive by (due, i); `cells` are the cells that were played. A stream of a slot below
    `raw_below` forecasts the raw score until it has learnt its first outcome.
    """

    begin: int
    cells: Ints
    due: Ints
    order: Ints
    raw_below: int


AT_ONCE = Late(-1, NO_INTS, NO_INTS, NO_INTS, 0)  # each outcome is learnt with its event


def receipts_under_way(due: Ints, order: Ints, events: int) -> int:
    """How many receipts the loop has to keep at once: as many as the longest delay, and one at least.

    >>> receipts_under_way(np.array([1, 5, 3]), np.array([0, 2]), 3)
    1
    """
    return min(max(1, int((due[order] - order).max(initial=1))), events)


def one_stream(row: Vector, events: int) -> Streams:
    """The row of a calibrator that has made so many forecasts."""
    return Streams(row, len(row), NO_SLOTS, 0, 1, 0, float(events))


Call = tuple[Callable[..., Any], tuple[Any, ...]]  # of a compiled function, with its arguments


def call_of(
    spec: Spec, streams: Streams, batch: Batch, late: Late | None, place: Ints, end: int, cells: Cells = NO_CELLS
) -> Call:
    """The call that predicts and learns, event after event up to `end`.

    Without `late` each outcome is learnt with its event, unless it is NaN. With it, the events from `late.begin` on are
    predicted, and outcomes learnt when they arrive. Where `batch.receipts` has room for fewer than all events, it is a
    ring: event i has place i modulo that room, which must be at least the longest delay.
    """
    if spec.classes:
        play = run_classes
    elif spec.models:
        play = run_models
    elif len(batch.weights) or len(batch.trials):
        play = run_weighted
    elif cells.columns:
        play = run_grouped if late is None else run_grouped_late
    else:
        play = run if late is None else run_late
    return play, (spec, cells, streams, batch, AT_ONCE if late is None else late, place, end)


def run_batch(
    spec: Spec, streams: Streams, batch: Batch, late: Late | None, place: Ints, end: int, cells: Cells = NO_CELLS
) -> None:
    """Make the call of `call_of`."""
    play, arguments = call_of(spec, streams, batch, late, place, end, cells)
    play(*arguments)


def place_before(event: int = 0) -> Ints:
    """The place of a loop that has not begun: the first event to play."""
    return np.array([event, 0])


def pieces(events: int, classes: int = 1, begin: int = 0) -> Iterator[slice]:
    """The parts of a batch. A host plays them one after another: between two of them a signal is heard.

    >>> list(pieces(100_000))
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    size = max(1, PIECE // classes)
    for first in range(begin, events, size):
        yield slice(first, min(events, first + size))


@kernel
def fetch_row(rows: Vector, stride: int, slot: int) -> None:
    """Have a row brought near before it is needed."""
    begin = slot * stride
    for line in range(min(stride, MOST_FETCHED) // CACHE_LINE + 1):
        prefetch(rows, begin + line * CACHE_LINE)
    prefetch(rows, begin + stride - STATS)
    prefetch(rows, begin + stride - 1)


# ---- the loop --------------------------------------------------------------------------------------------------------


@loop
def run(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Two classes, no groups, and outcomes at once."""
    many, guarded = len(streams.slots) > 0, spec._replace(mixes=False, draws=True)
    small = spec._replace(mixes=False, receipt=0, guard=0)
    if many and is_auto(spec):
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, True, False, False, TWO, NO_WEIGHTS)
    elif many and spec.mixes:
        event_loop(spec, cells, streams, batch, late, place, end, True, False, False, TWO, NO_WEIGHTS)
    elif many and spec.guard > 0:
        event_loop(guarded, cells, streams, batch, late, place, end, True, False, False, TWO, NO_WEIGHTS)
    elif many:
        event_loop(small, cells, streams, batch, late, place, end, True, False, False, TWO, NO_WEIGHTS)
    elif is_auto(spec):
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, False, False, False, TWO, NO_WEIGHTS)
    elif spec.mixes:
        event_loop(spec, cells, streams, batch, late, place, end, False, False, False, TWO, NO_WEIGHTS)
    elif spec.guard > 0:
        event_loop(guarded, cells, streams, batch, late, place, end, False, False, False, TWO, NO_WEIGHTS)
    elif spec.features == PLATT and spec.learner == ONS_STEP and spec.odds == 1.0:
        ops = small._replace(features=PLATT, d=2, learner=ONS_STEP, odds=1.0)
        event_loop(ops, cells, streams, batch, late, place, end, False, False, False, TWO, NO_WEIGHTS)
    else:
        event_loop(small, cells, streams, batch, late, place, end, False, False, False, TWO, NO_WEIGHTS)


@loop
def run_late(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Two classes, no groups, and late outcomes."""
    if len(streams.slots) > 0:
        event_loop(spec, cells, streams, batch, late, place, end, True, False, True, TWO, NO_WEIGHTS)
    elif is_auto(spec):
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, False, False, True, TWO, NO_WEIGHTS)
    elif spec.mixes:
        event_loop(spec, cells, streams, batch, late, place, end, False, False, True, TWO, NO_WEIGHTS)
    elif spec.guard > 0:
        guarded = spec._replace(mixes=False, draws=True)
        event_loop(guarded, cells, streams, batch, late, place, end, False, False, True, TWO, NO_WEIGHTS)
    else:
        small = spec._replace(receipt=0, mixes=False, guard=0)
        event_loop(small, cells, streams, batch, late, place, end, False, False, True, TWO, NO_WEIGHTS)


@loop
def run_grouped(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Two classes and groups, on one row, and outcomes at once."""
    if is_auto(spec):
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, False, True, False, TWO, NO_WEIGHTS)
    else:
        event_loop(spec, cells, streams, batch, late, place, end, False, True, False, TWO, NO_WEIGHTS)


@loop
def run_grouped_late(
    spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int
) -> None:
    """Two classes and groups, on one row, and late outcomes."""
    if is_auto(spec):
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, False, True, True, TWO, NO_WEIGHTS)
    else:
        event_loop(spec, cells, streams, batch, late, place, end, False, True, True, TWO, NO_WEIGHTS)


@loop
def run_weighted(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Two classes, and outcomes with weights."""
    many, grouped, delayed = len(streams.slots) > 0, cells.columns > 0, late.begin >= 0
    if is_auto(spec) and not many and not grouped and not delayed:
        event_loop(as_auto(spec), cells, streams, batch, late, place, end, False, False, False, TWO, INSIDE)
    else:
        event_loop(spec, cells, streams, batch, late, place, end, many, grouped, delayed, TWO, APART)


@loop
def run_classes(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """K classes."""
    many, weighted = len(streams.slots) > 0, APART if len(batch.weights) > 0 else NO_WEIGHTS
    if late.begin >= 0:
        event_loop(spec, cells, streams, batch, late, place, end, many, False, True, MANY, weighted)
    else:
        event_loop(spec, cells, streams, batch, late, place, end, many, False, False, MANY, weighted)


@loop
def run_models(spec: Spec, cells: Cells, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Two classes and the scores of several models, on one row."""
    if late.begin >= 0:
        event_loop(spec, cells, streams, batch, late, place, end, False, False, True, MODELS, NO_WEIGHTS)
    else:
        event_loop(spec, cells, streams, batch, late, place, end, False, False, False, MODELS, NO_WEIGHTS)


@kernel
def event_loop(  # noqa: C901, PLR0915 - one loop for all hosts
    spec: Spec,
    cells: Cells,
    streams: Streams,
    batch: Batch,
    late: Late,
    place: Ints,
    end: int,
    many: bool,
    grouped: bool,
    delayed: bool,
    kind: int,
    weighted: int,
) -> None:
    """The loop: for slots or one row (`many`), with groups or without, with late outcomes or not, of each kind."""
    classes, K, attributes = kind == MANY, spec.classes if kind == MANY else 1, cells.attributes if grouped else 0
    scores = spec.models if kind == MODELS else K  # of an event
    width = cells.receipt + GROUPED_RECEIPT_WIDTH if grouped else spec.receipt
    events, stats = len(batch.outcomes), streams.stats if many else 0
    room = len(batch.receipts) // width if delayed and width > 0 else events
    ring = room < events
    unseen = scratch(MOST_GROUPED_RECEIPT)  # the compiler knows that nothing else can see it
    receipt, row, slot = unseen[0:MOST_GROUPED_RECEIPT], streams.rows, 0
    if kind == MODELS:
        receipt = batch.work[ROOM : ROOM + width]
    begin, arrived = late.begin if delayed else 0, place[ARRIVED]
    for i in range(place[EVENT], end):
        if delayed:
            while arrived < len(late.order) and late.due[late.order[arrived]] <= i:
                j = late.order[arrived]
                arrived += 1
                if many:
                    slot = streams.slots[j]
                    if not streams.first <= slot < streams.last:
                        continue
                    row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
                at = (j % room if ring else j) * width
                receipt, outcome = batch.receipts[at : at + width], outcome_of(batch, j, weighted != NO_WEIGHTS)
                score, forecast = batch.scores[j * scores : (j + 1) * scores], batch.forecasts[j * K : (j + 1) * K]
                now = row[stats + EVENTS] if stats > 0 else streams.t + (i - begin)
                if classes:
                    update_label(spec.vector, K, row, now, outcome, receipt, batch.work, forecast)
                    if stats > 0:
                        add_class_losses(row, stats, score, forecast, outcome)
                elif kind == MODELS:
                    settle_models(scores, row, now, outcome.y, receipt, batch.work, False)
                else:
                    words = batch.words[j * attributes : (j + 1) * attributes]
                    if stats > 0:
                        add_losses(row, stats, spec.odds, score[0], forecast[0], outcome)
                    weight = learn_late(
                        spec, cells, row, now, score[0], late.cells[j], outcome, words, receipt, grouped
                    )
                    if weighted == APART and len(batch.learnt) > 0:
                        batch.learnt[j] = weight
            if i == events:  # one step behind the last event: only what arrives there is learnt
                break
        if many:
            if not delayed:
                next_one = i + 1 if classes else i + AHEAD
                ahead = streams.slots[next_one] if next_one < end else -1
                if streams.first <= ahead < streams.last:
                    fetch_row(streams.rows, streams.stride, ahead)
            slot = streams.slots[i]
            if not streams.first <= slot < streams.last:
                continue
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
        if delayed:
            at = (i % room if ring else i) * width
            receipt = batch.receipts[at : at + width]
        score, forecast = batch.scores[i * scores : (i + 1) * scores], batch.forecasts[i * K : (i + 1) * K]
        outcome, now = outcome_of(batch, i, weighted != NO_WEIGHTS), streams.t + (i - begin) + 1.0
        if stats > 0:
            row[stats + LAST] = now
            row[stats + EVENTS] += 1.0
            now = row[stats + EVENTS]
        if classes and delayed:
            predict_classes(spec.vector, K, row, score, receipt, batch.work, forecast)
        elif classes:
            play_classes(spec.vector, K, row, now, score, outcome, batch.work, forecast)
            if stats > 0 and outcome.y == outcome.y:
                add_class_losses(row, stats, score, forecast, outcome)
        elif kind == MODELS:
            put_scores(scores, score, receipt)
            forecast[0] = ask_models(scores, row, receipt, batch.work)
            if not delayed and outcome.y == outcome.y:
                settle_models(scores, row, now, outcome.y, receipt, batch.work, True)
        else:
            words = batch.words[i * attributes : (i + 1) * attributes]
            asked = ask(spec, row, score[0], receipt)
            u = batch.u[i - begin] if spec.draws else 0.0
            played = play_any(spec, cells, row, asked, u, words, receipt, grouped)
            forecast[0] = played.forecast
            if spec.mixes and spec.band > 0 and len(batch.bands) > 0:
                note_how_sure(spec, row, asked, played.forecast, receipt, batch.bands[4 * i : 4 * i + 4])
            if delayed:
                if spec.calibeater != SPLINE:  # which plays no cell
                    late.cells[i] = played.cell
            elif outcome.y == outcome.y:
                if grouped:
                    settle_found(spec, cells, row, now, asked, played.cell, outcome, words, receipt)
                elif weighted == INSIDE:
                    settle_weighted(spec, row, now, asked, played.cell, outcome, receipt)
                else:
                    weight = settle(spec, row, now, asked, played.cell, outcome, receipt)
                    if weighted == APART and len(batch.learnt) > 0:
                        batch.learnt[i] = weight
                if stats > 0:
                    add_losses(row, stats, spec.odds, score[0], played.forecast, outcome)
        if kind != MODELS and delayed and slot < late.raw_below and row[N] == 0.0:
            for k in range(K):
                forecast[k] = score[k]
            if spec.mixes and spec.band > 0 and len(batch.bands) > 0:
                batch.bands[4 * i] = min(batch.bands[4 * i], score[0])
                batch.bands[4 * i + 1] = max(batch.bands[4 * i + 1], score[0])
    place[EVENT], place[ARRIVED] = end, arrived


@kernel
def outcome_of(batch: Batch, i: int, weighted: bool) -> Outcome:
    """The outcome of an event of a batch; `weighted` is a constant."""
    if not weighted:
        return Outcome(batch.outcomes[i], 1.0, 1.0)
    weight = batch.weights[i] if len(batch.weights) > 0 else 1.0
    return Outcome(batch.outcomes[i], weight, batch.trials[i] if len(batch.trials) > 0 else 1.0)


@kernel
def play_any(
    spec: Spec, cells: Cells, row: Vector, asked: Asked, u: float, words: Ints, receipt: Vector, grouped: bool
) -> Played:
    """`play`, with groups or without."""
    if grouped:
        return play_grouped(spec, cells, row, asked, u, words, cells.found, receipt)
    return play(spec, row, asked, u, receipt)


@kernel
def learn_late(
    spec: Spec,
    cells: Cells,
    row: Vector,
    t: float,
    score: float,
    cell: int,
    outcome: Outcome,
    words: Ints,
    receipt: Vector,
    grouped: bool,
) -> float:
    """Learn the outcome of an earlier event, for which the expert is asked again -> its weight, as it was clipped."""
    asked = ask_again(spec, row, score)
    if grouped:
        settle_grouped(spec, cells, row, t, asked, cell, outcome, words, receipt)
        return outcome.weight
    return settle(spec, row, t, asked, cell, outcome, receipt)


@loop
def predict_many(spec: Spec, cells: Cells, streams: Streams, fresh: Vector, batch: Batch) -> None:
    """Forecast each score from the row of its slot, or from the fresh row where that is negative.

    `batch.work` and `cells.found` are scratch: several threads may forecast at once, each with its own.
    """
    row, K, attributes, models = streams.rows, max(1, spec.classes), cells.attributes, spec.models
    receipt = scratch(MOST_GROUPED_RECEIPT)
    for i in range(len(batch.forecasts) // K):
        if len(streams.slots) > 0:
            slot = streams.slots[i]
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride] if slot >= 0 else fresh
        score, forecast = batch.scores[i * K : (i + 1) * K], batch.forecasts[i * K : (i + 1) * K]
        if spec.classes > 0:
            ask_classes(spec.vector, K, row, score, batch.work, forecast)
        elif models > 0:
            issued = batch.work[ROOM : ROOM + spec.receipt]
            put_scores(models, batch.scores[i * models : (i + 1) * models], issued)
            forecast[0] = ask_models(models, row, issued, batch.work)
        else:
            asked, words = ask(spec, row, score[0], receipt), batch.words[i * attributes : (i + 1) * attributes]
            u, grouped = batch.u[i] if spec.draws else 0.0, cells.columns > 0
            forecast[0] = play_any(spec, cells, row, asked, u, words, receipt, grouped).forecast
            if spec.band > 0 and len(batch.bands) > 0:
                note_how_sure(spec, row, asked, forecast[0], receipt, batch.bands[4 * i : 4 * i + 4])
