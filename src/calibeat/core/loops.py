"""The event loops of every host, over (rows, slots): a calibrator has one row, a bank and a backtest have many.

``rows`` holds rows of ``stride`` numbers one behind the other, and ``slots`` says which row an event belongs to; with
no slots (length 0) all events belong to row 0. Where there are slots and ``stats`` is not 0, the six numbers of `stats`
stand at that place of each row. Only events of slots from ``first`` to ``last - 1`` are played: the others belong to
another thread.

A loop goes on from ``place`` and leaves there how far it came. It returns True where a refit is due: the host refits
and calls again. ``t`` forecasts were made before the batch, in all streams.

Each loop is written once and compiled three times into its kernel: for slots, for one row of a small method (`kernel`),
and for one row of any method. What differs are constants, so a method that does little pays for none of the others:
with one instance for all, BM took 1.7 times as long and TOBS an eighth longer.
"""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Slots, Vector

from .jit import compilable
from .kernel import ask, ask_again, is_small, play, predict, remember, settle
from .layout import DRAWS, LEARNER, RECEIPT, N
from .learners import REFIT
from .prefetch import prefetch
from .stats import EVENTS, LAST, STATS, add_losses

Stream = tuple[Vector, Vector, int, Slots, int, int, int, float]
Batch = tuple[Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector, int, Ints, int]
Late = tuple[int, Ints, Ints, Ints, int]

LINE = 8  # numbers in a cache line
AHEAD = 6  # how many events before its turn a row is asked for
MOST_FETCHED = 160  # numbers of a row: of a longer one (HOPS) an event needs only a part

EVENT, ARRIVED = 0, 1  # of `place`: the next event, and how many outcomes of `order` have been learnt

NO_SLOTS: Slots = np.empty(0, dtype=np.int32)
NO_LANE: Vector = np.empty(0)
NO_HISTORY: tuple[Vector, Vector, Vector, int] = np.empty(0), np.empty(0), np.empty(0), 0


def receipts_under_way(due: Ints, order: Ints, events: int) -> int:
    """How many receipts `run_late` has to keep at once: as many as the longest delay, and one at least.

    >>> receipts_under_way(np.array([1, 5, 3]), np.array([0, 2]), 3)
    1
    """
    return min(max(1, int((due[order] - order).max(initial=1))), events)


def place_before(event: int = 0) -> Ints:
    """The place of a loop that has not begun: the first event to play."""
    return np.array([event, 0])


@compilable
def fetch_row(rows: Vector, stride: int, slot: int) -> None:
    """Have a row brought near before it is needed."""
    begin = slot * stride
    for at in range(begin, begin + min(stride, MOST_FETCHED), LINE):
        prefetch(rows, at)
    prefetch(rows, begin + stride - STATS)
    prefetch(rows, begin + stride - 1)


@compilable
def run(
    spec: Vector,
    rows: Vector,
    stride: int,
    slots: Slots,
    first: int,
    last: int,
    stats: int,
    t: float,
    scores: Vector,
    outcomes: Vector,
    u: Vector,
    forecasts: Vector,
    receipt: Vector,
    h0: Vector,
    h1: Vector,
    hy: Vector,
    dropped: int,
    place: Ints,
    end: int,
) -> bool:
    """Predict, then learn, event after event up to `end`; an outcome that is NaN is not learnt."""
    stream = spec, rows, stride, slots, first, last, stats, t
    batch = scores, outcomes, u, forecasts, receipt, h0, h1, hy, dropped, place, end
    if len(slots) > 0:
        return event_loop(stream, batch, True, False)
    if is_small(spec):
        return event_loop(stream, batch, False, True)
    return event_loop(stream, batch, False, False)


@compilable
def event_loop(stream: Stream, batch: Batch, many: bool, small: bool) -> bool:
    """The loop of `run`, for slots or one row (`many`), for a small method or any: `run` passes both as constants."""
    spec, rows, stride, slots, first, last, stats, t = stream
    scores, outcomes, u, forecasts, receipt, h0, h1, hy, dropped, place, end = batch
    if not many:
        stats = 0
    draws, refits = spec[DRAWS] == 1.0, spec[LEARNER] == REFIT
    slot = 0
    for i in range(place[EVENT], end):
        if many:
            ahead = slots[i + AHEAD] if i + AHEAD < end else -1
            if first <= ahead < last:
                fetch_row(rows, stride, ahead)
            slot = slots[i]
            if not first <= slot < last:
                continue
        row = rows[slot * stride : (slot + 1) * stride]
        score, y, now = scores[i], outcomes[i], t + i + 1.0
        x0, x1, x2, p, z = ask(spec, row, score, receipt, 0, small)
        forecast, cell, _, _, _, _ = play(spec, row, p, x0, x1, u[i] if draws else 0.0, receipt, 0, small)
        forecasts[i] = forecast
        if stats > 0:
            row[stats + LAST] = now
            row[stats + EVENTS] += 1.0
            now = row[stats + EVENTS]
        if y == y:  # noqa: PLR0124 - not NaN
            settle(spec, row, now, x0, x1, x2, p, z, cell, y, receipt, 0, small)
            if stats > 0:
                add_losses(row, stats, score, forecast, y)
            if refits and remember(spec, row, x0, x1, y, h0, h1, hy, dropped):
                place[EVENT] = i + 1
                return True
    place[EVENT] = end
    return False


@compilable
def run_late(
    spec: Vector,
    rows: Vector,
    stride: int,
    slots: Slots,
    first: int,
    last: int,
    stats: int,
    t: float,
    scores: Vector,
    outcomes: Vector,
    u: Vector,
    forecasts: Vector,
    receipts: Vector,
    h0: Vector,
    h1: Vector,
    hy: Vector,
    dropped: int,
    place: Ints,
    end: int,
    begin: int,
    cells: Ints,
    due: Ints,
    order: Ints,
    raw_below: int,
) -> bool:
    """Predict the events from `begin` on; outcome i, also of an event before `begin`, is learnt just before
    prediction due[i]. `order` sorts the outcomes that arrive by (due, i); `cells` are the cells that were played. A
    stream of a slot below `raw_below` forecasts the raw score until it has learnt its first outcome.

    Where `receipts` has room for fewer than all events, it is a ring: event i has place i modulo that room, which must
    be at least the longest delay."""
    stream = spec, rows, stride, slots, first, last, stats, t
    batch = scores, outcomes, u, forecasts, receipts, h0, h1, hy, dropped, place, end
    late = begin, cells, due, order, raw_below
    if len(slots) > 0:
        return late_loop(stream, batch, late, True, False)
    if is_small(spec):
        return late_loop(stream, batch, late, False, True)
    return late_loop(stream, batch, late, False, False)


@compilable
def late_loop(  # noqa: C901 - one loop for all hosts
    stream: Stream, batch: Batch, late: Late, many: bool, small: bool
) -> bool:
    """The loop of `run_late`, in the same way."""
    spec, rows, stride, slots, first, last, stats, t = stream
    scores, outcomes, u, forecasts, receipts, h0, h1, hy, dropped, place, end = batch
    begin, cells, due, order, raw_below = late
    if not many:
        stats = 0
    draws, refits, width = spec[DRAWS] == 1.0, spec[LEARNER] == REFIT, 0 if small else int(spec[RECEIPT])
    room = len(receipts) // width if width > 0 else len(scores)
    ring = room < len(scores)
    arrived = place[ARRIVED]
    slot = 0
    for i in range(place[EVENT], end):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            if many:
                slot = slots[j]
                if not first <= slot < last:
                    continue
            row = rows[slot * stride : (slot + 1) * stride]
            score, y, now = scores[j], outcomes[j], t + (i - begin)
            if stats > 0:
                now = row[stats + EVENTS]
                add_losses(row, stats, score, forecasts[j], y)
            at = (j % room if ring else j) * width
            x0, x1, x2, p, z = ask_again(spec, row, score)
            settle(spec, row, now, x0, x1, x2, p, z, cells[j], y, receipts, at, small)
            if refits and remember(spec, row, x0, x1, y, h0, h1, hy, dropped):
                place[EVENT], place[ARRIVED] = i, arrived
                return True
        if i == len(scores):  # one step behind the last event: only what arrives there is learnt
            break
        if many:
            slot = slots[i]
            if not first <= slot < last:
                continue
        row = rows[slot * stride : (slot + 1) * stride]
        at = (i % room if ring else i) * width
        x0, x1, _, p, _ = ask(spec, row, scores[i], receipts, at, small)
        draw = u[i - begin] if draws else 0.0
        forecasts[i], cells[i], _, _, _, _ = play(spec, row, p, x0, x1, draw, receipts, at, small)
        if slot < raw_below and row[N] == 0.0:
            forecasts[i] = scores[i]
        if stats > 0:
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = t + (i - begin) + 1.0
    place[EVENT], place[ARRIVED] = end, arrived
    return False


@compilable
def predict_many(
    spec: Vector,
    rows: Vector,
    stride: int,
    fresh: Vector,
    slots: Slots,
    scores: Vector,
    u: Vector,
    forecasts: Vector,
    receipt: Vector,
) -> None:
    """Forecast each score from the row of its slot, or from the fresh row where that is negative."""
    draws, many = spec[DRAWS] == 1.0, len(slots) > 0
    slot = 0
    for i in range(len(scores)):
        if many:
            slot = slots[i]
        row = rows[slot * stride : (slot + 1) * stride] if slot >= 0 else fresh
        forecasts[i] = predict(spec, row, scores[i], u[i] if draws else 0.0, receipt, 0)[0]
