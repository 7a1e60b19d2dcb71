"""Many monitors as the rows of one matrix: their outcomes, and what they say as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.subset import entry, kernel, loop, prefetch, scratch
from calibeat.errors import InvalidInput

from .bets import (
    ALARM_AT,
    ALARMS,
    BRIER,
    CELL,
    DETECTOR,
    FORECASTS,
    GIVEN,
    PAGES,
    REGION,
    REGIONS,
    SINCE,
    SURE,
    TOGETHER,
    WAITING,
    WHOLE,
    Alarm,
    N,
    Ready,
    Settings,
    evidence,
    gain_of,
    level,
    prepare,
    read,
    region_of,
    step,
)
from .slots import CACHE_LINE, SlotRows
from .waiting import Event, Queue, Step

AHEAD = 6  # how many events before its turn a row is asked for
LEVEL, EVIDENCE, GAIN_LOW, GAIN_HIGH, READOUTS = 0, 1, 2, 3, 4
KEPT = 1000  # alarms of a slot that are remembered one by one


@kernel
def fetch(spec: Vector, rows: Vector, at: int, p: float) -> None:
    """Ask for the cache lines of a row that an outcome of forecast p touches."""
    prefetch(rows, at)
    prefetch(rows, at + CACHE_LINE)
    prefetch(rows, at + WHOLE)
    prefetch(rows, at + SURE)
    region = at + REGIONS + REGION * region_of(spec, p)
    prefetch(rows, region)
    prefetch(rows, region + DETECTOR)


@loop
def read_rows(
    spec: Vector,
    rows: Vector,
    stride: int,
    width: int,
    slots: Slots,
    first: int,
    last: int,
    p: Vector,
    y: Vector,
    s: Vector,
) -> None:
    """Announce and read each outcome on the row of its slot; only the slots from first to last.

    p are the forecasts, s the raw scores, NaN where there is none. An outcome of NaN never comes; one that is negative
    is not for this loop.
    """
    n = len(slots)
    means = scratch(4 * TOGETHER)
    logs = scratch(4 * TOGETHER)
    ratios = scratch(2 * TOGETHER)
    ready = Ready(means, logs, ratios)
    for begin in range(0, n, TOGETHER):
        end = min(n, begin + TOGETHER)
        prepare(spec, p[begin:end], s[begin:end], ready)
        for i in range(begin, end):
            ahead = slots[i + AHEAD] if i + AHEAD < n else -1
            if first <= ahead < last:
                fetch(spec, rows, ahead * stride, p[i + AHEAD])
            if first <= slots[i] < last and not y[i] < 0.0:
                row = rows[slots[i] * stride : slots[i] * stride + width]
                row[FORECASTS] += 1.0
                if y[i] == y[i]:
                    step(spec, row, p[i], y[i], s[i], i - begin, ready)


@entry
def read_out(spec: Vector, rows: Vector, stride: int, width: int, slots: Slots, alpha: float, out: Vector) -> None:
    """Level, evidence and the ends of the Brier gain of each slot, one behind the other."""
    for i in range(len(slots)):
        row = rows[slots[i] * stride : slots[i] * stride + width]
        at = READOUTS * i
        out[at + LEVEL] = level(spec, row)
        out[at + EVIDENCE] = evidence(spec, row)
        _, out[at + GAIN_LOW], out[at + GAIN_HIGH] = gain_of(row, BRIER, alpha)


Columns = dict[str, npt.NDArray[Any]]
Flags = npt.NDArray[np.bool_]
Serve = Callable[[tuple[int, int]], None]  # of the slots from first to last


class Broken(NamedTuple):
    """Which streams look broken now, the worst first.

    Attributes
    ----------
    keys : of `Bank.broken` the keys, of `Monitors.broken` the slots.
    levels : the detector as a share of the alarm line, and 1 more after an alarm within the last `quiet` outcomes.
    bound : the expected share of wrong names on such a list is at most this.
    """

    keys: npt.NDArray[Any]
    levels: Vector
    bound: float


class Alarms(NamedTuple):
    """How many alarms a slot has had, how many of them paged, and the last one."""

    alarms: int
    pages: int
    last: Alarm | None


class Monitors(SlotRows):
    """One row of a monitor for each slot, from 0 to `count`.

    A batch of many slots is read by `after`, one of a single slot by `run`, operations by `fold`, and single events by
    `announce` and `update`. If `detailed`, alarms are kept one by one, and what was given up is remembered.
    """

    NAME = "monitors"
    RAISED_AT, GIVEN_AT = ALARMS, GIVEN

    def __init__(self, settings: Settings, *, detailed: bool = False) -> None:
        super().__init__(settings)
        self.detailed, self.spec, self._cells = detailed, settings.spec, settings.cells
        self.queues: dict[int, Queue] = {}  # of the slots where something waits; if detailed, of all

    # ---- outcomes: `read_many` and `_read` are the only ways to the kernels -----------------------------------------

    def read_many(self, slots: Slots, part: tuple[int, int], p: Vector, y: Vector, s: Vector) -> None:
        """Announce and read each outcome on the row of its slot, as `read_rows` does."""
        p, s = self.settings.seen(p), self.settings.seen(s)
        read_rows(self.spec, self.flat, self.stride, self.settings.width, slots, *part, p, y, s)

    def restart_changed(self, slots: Slots, events: Vector) -> None:
        """Start the monitors anew of slots whose rows were replaced by rows with another number of events."""
        for slot, count in zip(slots.tolist(), events.tolist(), strict=True):
            if self.matrix[slot, FORECASTS] != count:
                self.matrix[slot] = self._fresh
                self.matrix[slot, FORECASTS] = count
                self.queues.pop(slot, None)

    def after(
        self, serve: Serve, slots: Slots, watched: Callable[[], tuple[Vector, Vector, Vector]], due: Ints | None
    ) -> Serve:
        """Serve the slots from first to last, then read their forecasts and outcomes, in the same thread.

        `watched` then gives forecasts, outcomes and scores of the batch.
        Outcome i arrives before event due[i]; NaN never comes. At the end of a batch all its outcomes have come or
        never will, so most are read at once, in the order of events. Slots where something waits, or where an outcome
        may come too late, are read one by one.
        """
        busy = np.zeros(self.count, dtype=bool)
        busy[list(self.queues)] = True
        if due is not None and len(slots) > self.settings.patience:
            busy |= np.bincount(slots, minlength=self.count) > self.settings.patience
        others = np.flatnonzero(busy[slots])
        others = others[np.argsort(slots[others], kind="stable")]

        def both(part: tuple[int, int]) -> None:
            serve(part)
            p, y, s = watched()
            at_once = np.where(busy[slots], -1.0, y)
            self.read_many(slots, part, p, at_once, s)
            begin, end = np.searchsorted(slots[others], part)
            own = others[begin:end]
            for events in np.split(own, np.flatnonzero(np.diff(slots[own])) + 1) if len(own) else ():
                # An outcome arrives before the slot's own event that is the first at or after its due position.
                arrivals = np.arange(1, len(events) + 1) if due is None else np.searchsorted(events, due[events])
                arrivals = np.where(np.isnan(y[events]), len(events) + 1, arrivals)
                self.run(int(slots[events[0]]), p[events], y[events], s[events], arrivals, closed=True)

        return both

    def run(self, slot: int, p: Vector, y: Vector, s: Vector, due: Ints | None, *, closed: bool = False) -> list[Alarm]:
        """A batch of one slot -> the alarms raised. If it is closed, outcomes that are due after its end never come."""
        # Copies: an interrupted loop changes nothing.
        queue, row, n = self.queue(slot).copy(), self.matrix[slot].copy(), len(p)
        if due is None and queue.next == queue.announced:  # nothing waits, nothing will
            queue.announced += n
            queue.next = queue.announced
        else:
            p, y, s = queue.take_many(p, y, s, np.arange(1, n + 1) if due is None else due, closed=closed)
        row[FORECASTS] = queue.announced
        row[WAITING] = queue.sum_of_waiting
        raised = self._read(row, p, y, s)
        queue.alarms = self._with(queue, raised)
        self.matrix[slot], self.queues[slot] = row, queue
        self._release(slot, queue)
        return raised

    def fold(self, slots: Slots, asked: Flags, numbers: Ints, p: Vector, y: Vector, s: Vector) -> None:
        """Operations in their order: forecasts that are asked for, and outcomes of forecasts by their numbers."""
        events = zip(p.tolist(), y.tolist(), s.tolist(), strict=True)
        fold_together([self], slots.tolist(), np.where(asked, -1, numbers).tolist(), events)

    def catch_up(self, slot: int, events: int) -> None:
        """Announce forecasts of a slot until there are this many."""
        while self.matrix[slot, FORECASTS] < events:
            self.announce(slot)

    def announce(self, slot: int) -> int:
        """Say that a forecast of a slot is made -> its number."""
        queue, row = self.queue(slot), self.matrix[slot].copy()
        self._keep(slot, queue, row, queue.step(row))
        return queue.announced - 1

    def update(self, slot: int, number: int, event: Event | None) -> None:
        """Take the outcome of a forecast of a slot, or None if it will never come; a second outcome is ignored."""
        queue = self.queue(slot)
        if queue.is_open(number):
            row = self.matrix[slot].copy()
            self._keep(slot, queue, row, queue.step(row, number, event))
        elif queue.gave_up(number):
            queue.count_late(number=number)
        self._release(slot, queue)

    def _keep(self, slot: int, queue: Queue, row: Vector, step: Step) -> None:
        """Read what can be read into a copy of the row, and publish it."""
        announced, following, given_up, came, ready = step
        alarms = queue.alarms
        if ready:
            alarms = self._with(queue, self._read(row, *np.array(ready).T.copy()))
        self.matrix[slot], self.queues[slot], queue.announced, queue.next, queue.given_up, queue.came, queue.alarms = (
            row, queue, announced, following, given_up, came, alarms,
        )  # fmt: skip
        queue.finish()

    def _read(self, row: Vector, p: Vector, y: Vector, s: Vector) -> list[Alarm]:
        """Read outcomes into a row, in the order of their forecasts -> the alarms raised."""
        raised, first = list[Alarm](), 0
        p, s = self.settings.seen(p), self.settings.seen(s)
        while first < len(p):
            alarms, pages = row[ALARMS], row[PAGES]
            first = read(self.spec, row, p, y, s, first)
            if row[ALARMS] > alarms:
                raised.append(self._last_alarm(row, page=bool(row[PAGES] > pages)))
        return raised

    def _with(self, queue: Queue, raised: list[Alarm]) -> list[Alarm]:
        """The alarms that are kept of a slot after these."""
        return [*queue.alarms, *raised][-KEPT:] if raised and self.detailed else queue.alarms

    def queue(self, slot: int) -> Queue:
        """What waits in a slot. If nothing does, the row says the rest."""
        queue = self.queues.get(slot)
        if queue is None:
            queue, row = Queue(self.settings.patience), self.matrix[slot]
            queue.announced = queue.next = int(row[FORECASTS])
            queue.given_up = queue.announced - int(row[N])
        return queue

    def _release(self, slot: int, queue: Queue) -> None:
        if queue.next == queue.announced and not self.detailed:
            self.queues.pop(slot, None)

    # ---- what they say --------------------------------------------------------------------------------------------

    def columns(self, slots: Slots) -> Columns:
        """What a table shows of some slots."""
        rows = self.matrix[slots]
        out = self.read_out(slots)
        cells, ever = rows[:, CELL].astype(np.int64), rows[:, ALARMS] > 0
        return {
            "alarms": rows[:, ALARMS].astype(np.int64),
            "pages": rows[:, PAGES].astype(np.int64),
            "alarm_at": rows[:, ALARM_AT].astype(np.int64),
            "since": np.where(ever, rows[:, SINCE], np.nan),
            "what": np.where(ever, np.array(self._cells)[cells], ""),
            "level": out[:, LEVEL],
            "log_e": out[:, EVIDENCE],
            "gain_low": out[:, GAIN_LOW],
            "gain_high": out[:, GAIN_HIGH],
        }

    def alarms(self, slots: Slots) -> list[Alarms]:
        """The alarms of some slots."""
        rows = [(row, int(row[ALARMS]), int(row[PAGES])) for row in self.matrix[slots]]
        return [Alarms(n, pages, self._last_alarm(row, page=pages == n) if n else None) for row, n, pages in rows]

    def _kept_alarms(self, slot: int) -> list[Alarm]:
        return self.queue(slot).alarms

    def _last_alarm(self, row: Vector, *, page: bool) -> Alarm:
        return Alarm(int(row[ALARM_AT]), float(row[SINCE]), self._cells[int(row[CELL])], page)

    def broken(self) -> Broken:
        """The longest list of r slots whose level is at least 1/r each."""
        every = np.arange(self.count, dtype=np.int32)
        rows, levels = self.matrix[: self.count], self.read_out(every)[:, LEVEL]
        levels = levels + ((rows[:, ALARMS] > 0) & (rows[:, N] - rows[:, ALARM_AT] <= self.settings.quiet))
        order = np.argsort(-levels, kind="stable").astype(np.int32)
        enough = levels[order] * np.arange(1, self.count + 1) >= 1.0
        length = int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0
        made = float(np.maximum(rows[:, N] - self.settings.warm, 0.0).sum())  # bets, after the warm-up
        return Broken(order[:length], levels[order[:length]], min(1.0, made / self.settings.arl))

    def miscalibrated(self, alpha: float) -> Slots:
        """e-BH over the evidence since the start: slots whose forecasts were not calibrated, the clearest first."""
        every = np.arange(self.count, dtype=np.int32)
        evidence = self.read_out(every)[:, EVIDENCE]
        order = np.argsort(-evidence, kind="stable").astype(np.int32)
        ranks = np.arange(1, self.count + 1)
        enough = evidence[order] >= np.log(max(1, self.count) / (alpha * ranks))
        return order[: int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0]

    def read_out(self, slots: Slots) -> npt.NDArray[np.float64]:
        """Level, evidence and the ends of the Brier gain of some slots."""
        out = np.empty(READOUTS * len(slots))
        width, alpha = self.settings.width, self.settings.alpha
        read_out(self.spec, self.flat, self.stride, width, slots.astype(np.int32), alpha, out)
        return out.reshape(-1, READOUTS)

    # ---- as data --------------------------------------------------------------------------------------------------

    def _queue_as_data(self, queue: Queue) -> Any:
        return queue.to_dict()

    def set_queue(self, slot: int, state: Any) -> None:
        """What waits in a slot, as `Queue.to_dict` gave it."""
        queue, n = Queue.from_dict(self.settings.patience, state), self.matrix[slot, N]
        if queue.announced != self.matrix[slot, FORECASTS] or queue.next != n + queue.given_up:
            raise InvalidInput(
                f"queue must fit the row, got {queue.next} forecasts done, {n:.0f} outcomes read - at row {slot}"
            )
        self.queues[slot] = queue

    # The bytes of a monitor are its row and the number of the first forecast that it has not read. They leave out the
    # outcomes that it holds because an earlier one is missing: the database that stores the events has them already.

    def states(self, slots: Slots) -> list[bytes]:
        """Some slots as bytes."""
        rows, numbers = self.matrix[slots], self.matrix[slots, FORECASTS].astype(np.int64)
        for at, slot in enumerate(slots.tolist()) if self.queues else ():
            if slot in self.queues:
                numbers[at] = self.queues[slot].next
        whole, size = np.column_stack([rows.view(np.int64), numbers]).tobytes(), 8 * self.settings.width + 8
        return [whole[at : at + size] for at in range(0, len(whole), size)]

    def set_states(self, slots: Slots, states: Sequence[bytes], held: Sequence[Mapping[int, Event | None]]) -> None:
        """The inverse of `states`; `held` are the events settled after the first unread one, None: without an outcome.

        Raises
        ------
        InvalidInput : a state is not one of a monitor with these settings.
        """
        width = self.settings.width
        if any(len(state) != 8 * width + 8 for state in states):
            raise InvalidInput(f"monitor states must be {8 * width + 8} bytes each, got others")
        rows = np.array([np.frombuffer(state, count=width) for state in states]).reshape(len(states), width)
        self.settings.check_rows(rows)
        for slot, row, state, waiting in zip(slots.tolist(), rows, states, held, strict=True):
            self.matrix[slot] = row
            self.queues.pop(slot, None)
            queue, following = self.queue(slot), first_unread(state)
            if following < queue.announced:
                queue.next, queue.given_up = following, following - int(row[N])
                queue.held = {number: event for number, event in waiting.items() if number > following}
                # Something may have been given up since these bytes were written.
                self.matrix[slot, WAITING] = queue.sum_of_waiting
                self.queues[slot] = queue


def fold_together(
    parts: Sequence[Monitors], slots: Sequence[int], numbers: Sequence[int], events: Iterable[Any]
) -> None:
    """Operations in their order, on the same slots of several monitors that wait for the same outcomes.

    A number of -1 is a forecast that is made, others are those of outcomes. An event has three numbers for each part,
    or is None if it will never come. The queues are those of the first part, with such events in them.

    The same as `announce` and `update` one by one: first the queues take their steps, then each part reads all outcomes
    that can be read in one call. Alarms are counted in the rows and not kept one by one.
    """
    first = parts[0]
    queues, touched = first.queues, np.unique(np.array(slots, dtype=np.int64))
    counts = zip(touched.tolist(), *first.matrix[touched][:, [FORECASTS, WAITING]].T.tolist(), strict=True)
    rows = {slot: {FORECASTS: forecasts, WAITING: waiting} for slot, forecasts, waiting in counts}
    places, ready = list[int](), list[Any]()
    for slot, number, event in zip(slots, numbers, events, strict=True):
        queue = queues.get(slot)
        if queue is None:
            queue = queues[slot] = first.queue(slot)
        if number >= 0 and not queue.is_open(number):
            continue
        outcome = event if number >= 0 else None  # a forecast brings none
        queue.announced, queue.next, queue.given_up, queue.came, read = queue.step(rows[slot], number, outcome)
        if queue.came is not None:
            queue.finish()
        if read:
            ready += read
            places += [slot] * len(read)
    every, columns = np.array(places, dtype=np.int32), np.array(ready).reshape(-1, 3 * len(parts)).T.copy()
    told = np.array([tuple(row.values()) for row in rows.values()]).reshape(-1, 2)
    for at, part in enumerate(parts):
        own = columns[3 * at : 3 * at + 3]
        part.read_many(every, (0, part.count), *own)
        part.matrix[touched[:, None], [FORECASTS, WAITING]] = told
    for slot in rows:
        queue = queues[slot]
        if queue.next == queue.announced:  # nothing waits: the row says the rest
            del queues[slot]


def first_unread(state: bytes) -> int:
    """The number of the first forecast that a monitor has not read; outcomes of later ones are held."""
    return int.from_bytes(state[-8:], "little")


def readings(settings: Settings, state: bytes) -> dict[str, Any]:
    """What the bytes of a monitor say, by the names of `Bank.table`: alarms, level, evidence, gain."""
    monitors, slots = Monitors(settings), np.zeros(1, dtype=np.int32)
    monitors.resize(1)
    monitors.matrix[0] = np.frombuffer(state, count=settings.width)
    return {name: column[0].item() for name, column in monitors.columns(slots).items()}
