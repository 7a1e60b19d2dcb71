"""The event loops of every host, over (rows, slots): a calibrator has one row, a bank and a backtest have many.

A loop goes on from ``place`` and leaves there how far it came.

Each loop is written once and compiled several times, for many rows or one, and for the methods that most people use.
What differs are constants, so a method that does little pays for none of the others. Methods of K classes have a loop
of each kind of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from calibeat._util.types import Ints, Slots, Vector

from .calibeating import SPLINE
from .features import BETA, PLATT
from .kernel import ask, ask_again, play, settle
from .layout import N, Spec
from .learners import LANES, ONS_STEP
from .receipt import MOST_RECEIPT
from .stats import EVENTS, LAST, STATS, add_class_losses, add_losses
from .subset import kernel, large_kernel, loop, prefetch, scratch
from .vector import ask as ask_classes
from .vector import play as play_classes
from .vector import predict as predict_classes
from .vector import update as update_label

CACHE_LINE = 8  # numbers
AHEAD = 6  # how many events before its turn a row is asked for
MOST_FETCHED = 160  # numbers of a row: of a longer one (HOPS) an event needs only a part

PIECE = 65_536  # events that a host plays before it looks for signals: some ten milliseconds
EVENT, ARRIVED = 0, 1  # of `place`: the next event, and how many outcomes of `order` have been learnt


NO_NUMBERS: Vector = np.empty(0)


class Streams(NamedTuple):
    """Rows of `stride` numbers one behind the other. `slots` says which row an event belongs to.

    Without slots all events belong to row 0. With slots, and if `stats` is not 0, the six numbers of `stats` stand at
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
    the label, and `work` is scratch (`vector.scratch`), which no other thread may use.
    """

    scores: Vector
    outcomes: Vector
    u: Vector
    forecasts: Vector
    receipts: Vector
    work: Vector = NO_NUMBERS


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


NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


def receipts_under_way(due: Ints, order: Ints, events: int) -> int:
    """How many receipts `run_late` has to keep at once: as many as the longest delay, and one at least.

    >>> receipts_under_way(np.array([1, 5, 3]), np.array([0, 2]), 3)
    1
    """
    return min(max(1, int((due[order] - order).max(initial=1))), events)


def one_stream(row: Vector, events: int) -> Streams:
    """The row of a calibrator that has made so many forecasts."""
    return Streams(row, len(row), NO_SLOTS, 0, 1, 0, float(events))


def run_batch(spec: Spec, streams: Streams, batch: Batch, late: Late | None, place: Ints, end: int) -> None:
    """`run`, or `run_late` where outcomes are late."""
    if late is None:
        run(spec, streams, batch, place, end)
    else:
        run_late(spec, streams, batch, late, place, end)


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


@kernel
def is_auto(spec: Spec) -> bool:
    """Whether the method is AUTO."""
    return spec.features == BETA and spec.learner == LANES and spec.calibeater == SPLINE and spec.guard == 0


@kernel
def as_auto(spec: Spec) -> Spec:
    """The same spec with what makes it AUTO as constants, so that the compiler leaves out all else."""
    parts = spec._replace(features=BETA, d=3, learner=LANES, calibeater=SPLINE)
    return parts._replace(mixes=True, draws=False, guard=0)


@loop
def run(spec: Spec, streams: Streams, batch: Batch, place: Ints, end: int) -> None:
    """Predict, then learn, event after event up to `end`; an outcome that is NaN is not learnt."""
    small = spec._replace(receipt=0, mixes=False, guard=0)
    if spec.classes > 0:
        class_event_loop(spec, streams, batch, place, end)
    elif len(streams.slots) > 0 and is_auto(spec):
        event_loop(as_auto(spec), streams, batch, place, end, True)
    elif len(streams.slots) > 0:
        event_loop(spec, streams, batch, place, end, True)
    elif is_auto(spec):
        event_loop(as_auto(spec), streams, batch, place, end, False)
    elif spec.receipt > 0:
        event_loop(spec, streams, batch, place, end, False)
    elif spec.features == PLATT and spec.learner == ONS_STEP:
        ops = small._replace(features=PLATT, d=2, learner=ONS_STEP)
        event_loop(ops, streams, batch, place, end, False)
    else:
        event_loop(small, streams, batch, place, end, False)


@kernel
def event_loop(spec: Spec, streams: Streams, batch: Batch, place: Ints, end: int, many: bool) -> None:
    """The loop of `run`, for slots or one row (`many`)."""
    stats = streams.stats if many else 0
    row = streams.rows
    receipt = scratch(MOST_RECEIPT)  # the compiler knows that nothing else can see it
    for i in range(place[EVENT], end):
        if many:
            ahead = streams.slots[i + AHEAD] if i + AHEAD < end else -1
            if streams.first <= ahead < streams.last:
                fetch_row(streams.rows, streams.stride, ahead)
            slot = streams.slots[i]
            if not streams.first <= slot < streams.last:
                continue
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
        score, y, now = batch.scores[i], batch.outcomes[i], streams.t + i + 1.0
        asked = ask(spec, row, score, receipt)
        played = play(spec, row, asked, batch.u[i] if spec.draws else 0.0, receipt)
        batch.forecasts[i] = played.forecast
        if stats > 0:
            row[stats + LAST] = now
            row[stats + EVENTS] += 1.0
            now = row[stats + EVENTS]
        if y == y:  # noqa: PLR0124 - not NaN
            settle(spec, row, now, asked, played.cell, y, receipt)
            if stats > 0:
                add_losses(row, stats, score, played.forecast, y)
    place[EVENT] = end


@loop
def run_late(spec: Spec, streams: Streams, batch: Batch, late: Late, place: Ints, end: int) -> None:
    """Predict the events from `late.begin` on, and learn outcomes when they arrive.

    Where `batch.receipts` has room for fewer than all events, it is a ring: event i has place i modulo that room, which
    must be at least the longest delay.
    """
    small = spec._replace(receipt=0, mixes=False, guard=0)
    if spec.classes > 0:
        class_late_loop(spec, streams, batch, late, place, end)
    elif len(streams.slots) > 0:
        late_loop(spec, streams, batch, late, place, end, True)
    elif is_auto(spec):
        late_loop(as_auto(spec), streams, batch, late, place, end, False)
    elif spec.receipt > 0:
        late_loop(spec, streams, batch, late, place, end, False)
    else:
        late_loop(small, streams, batch, late, place, end, False)


@kernel
def late_loop(  # noqa: C901 - one loop for all hosts
    spec: Spec, streams: Streams, batch: Batch, late: Late, place: Ints, end: int, many: bool
) -> None:
    """The loop of `run_late`, in the same way."""
    stats = streams.stats if many else 0
    width, events = spec.receipt, len(batch.scores)
    room = len(batch.receipts) // width if width > 0 else events
    ring = room < events
    row = streams.rows
    arrived = place[ARRIVED]
    slot = 0
    for i in range(place[EVENT], end):
        while arrived < len(late.order) and late.due[late.order[arrived]] <= i:
            j = late.order[arrived]
            arrived += 1
            if many:
                slot = streams.slots[j]
                if not streams.first <= slot < streams.last:
                    continue
                row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
            score, y, now = batch.scores[j], batch.outcomes[j], streams.t + (i - late.begin)
            if stats > 0:
                now = row[stats + EVENTS]
                add_losses(row, stats, score, batch.forecasts[j], y)
            at = (j % room if ring else j) * width
            asked = ask_again(spec, row, score)
            settle(spec, row, now, asked, late.cells[j], y, batch.receipts[at : at + width])
        if i == events:  # one step behind the last event: only what arrives there is learnt
            break
        if many:
            slot = streams.slots[i]
            if not streams.first <= slot < streams.last:
                continue
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
        at = (i % room if ring else i) * width
        receipt = batch.receipts[at : at + width]
        asked = ask(spec, row, batch.scores[i], receipt)
        played = play(spec, row, asked, batch.u[i - late.begin] if spec.draws else 0.0, receipt)
        batch.forecasts[i] = played.forecast
        if spec.calibeater != SPLINE:  # which plays no cell
            late.cells[i] = played.cell
        if slot < late.raw_below and row[N] == 0.0:
            batch.forecasts[i] = batch.scores[i]
        if stats > 0:
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = streams.t + (i - late.begin) + 1.0
    place[EVENT], place[ARRIVED] = end, arrived


@loop
def predict_many(
    spec: Spec, streams: Streams, fresh: Vector, scores: Vector, u: Vector, forecasts: Vector, work: Vector
) -> None:
    """Forecast each score from the row of its slot, or from the fresh row where that is negative."""
    row, K = streams.rows, spec.classes
    receipt = scratch(MOST_RECEIPT)
    for i in range(len(scores) // max(1, K)):
        if len(streams.slots) > 0:
            slot = streams.slots[i]
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride] if slot >= 0 else fresh
        if K > 0:
            score, forecast = scores[i * K : (i + 1) * K], forecasts[i * K : (i + 1) * K]
            ask_classes(spec.vector, K, row, score, work, forecast)
        else:
            asked = ask(spec, row, scores[i], receipt)
            forecasts[i] = play(spec, row, asked, u[i] if spec.draws else 0.0, receipt).forecast


# ---- K classes ---------------------------------------------------------------------------------------------------


@loop
def class_event_loop(spec: Spec, streams: Streams, batch: Batch, place: Ints, end: int) -> None:
    """The loop of `run`."""
    K, many = spec.classes, len(streams.slots) > 0
    stats = streams.stats if many else 0
    row = streams.rows
    for i in range(place[EVENT], end):
        if many:
            ahead = streams.slots[i + 1] if i + 1 < end else -1
            if streams.first <= ahead < streams.last:
                fetch_row(streams.rows, streams.stride, ahead)
            slot = streams.slots[i]
            if not streams.first <= slot < streams.last:
                continue
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
        score, forecast, y = batch.scores[i * K : (i + 1) * K], batch.forecasts[i * K : (i + 1) * K], batch.outcomes[i]
        now = streams.t + i + 1.0
        if stats > 0:
            row[stats + LAST] = now
            row[stats + EVENTS] += 1.0
            now = row[stats + EVENTS]
        play_classes(spec.vector, K, row, now, score, y, batch.work, forecast)
        if stats > 0 and y == y:  # noqa: PLR0124 - not NaN
            add_class_losses(row, stats, score, forecast, int(y))
    place[EVENT] = end


@large_kernel
def class_late_loop(  # noqa: C901 - one loop for all hosts
    spec: Spec, streams: Streams, batch: Batch, late: Late, place: Ints, end: int
) -> None:
    """The loop of `run_late`. The score of a late label is that of its receipt."""
    K, many, width, events = spec.classes, len(streams.slots) > 0, spec.receipt, len(batch.outcomes)
    stats = streams.stats if many else 0
    room = len(batch.receipts) // width
    row = streams.rows
    arrived = place[ARRIVED]
    slot = 0
    for i in range(place[EVENT], end):
        while arrived < len(late.order) and late.due[late.order[arrived]] <= i:
            j = late.order[arrived]
            arrived += 1
            if many:
                slot = streams.slots[j]
                if not streams.first <= slot < streams.last:
                    continue
                row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
            receipt = batch.receipts[(j % room) * width : (j % room + 1) * width]
            forecast, y = batch.forecasts[j * K : (j + 1) * K], int(batch.outcomes[j])
            now = streams.t + (i - late.begin)
            if stats > 0:
                now = row[stats + EVENTS]
                add_class_losses(row, stats, batch.scores[j * K : (j + 1) * K], forecast, y)
            update_label(spec.vector, K, row, now, y, receipt, batch.work, forecast[y])
        if i == events:  # one step behind the last event: only what arrives there is learnt
            break
        if many:
            slot = streams.slots[i]
            if not streams.first <= slot < streams.last:
                continue
            row = streams.rows[slot * streams.stride : (slot + 1) * streams.stride]
        receipt = batch.receipts[(i % room) * width : (i % room + 1) * width]
        score, forecast = batch.scores[i * K : (i + 1) * K], batch.forecasts[i * K : (i + 1) * K]
        predict_classes(spec.vector, K, row, score, receipt, batch.work, forecast)
        if slot < late.raw_below and row[N] == 0.0:
            for k in range(K):
                forecast[k] = score[k]
        if stats > 0:
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = streams.t + (i - late.begin) + 1.0
    place[EVENT], place[ARRIVED] = end, arrived
