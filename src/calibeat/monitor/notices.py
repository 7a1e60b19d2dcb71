"""One row of a `Notice`, its kernels, and many as the rows of one matrix.

The row::

    a silence of the forecasts, a silence of the outcomes       monitor/silence.py
    a shift of the score, a shift of the delay of outcomes      monitor/shift.py
    asked, told, first                                          forecasts since an outcome, outcomes, the first forecast
    alarms, pages, at, since, what                              the last alarm
    alarms given, pages given                                   what `new_alarms` has taken out

Here `since` of a shift is a time too: its detectors weight the times of the scores, not their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_whole
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.subset import entry, kernel
from calibeat.errors import InvalidInput

from .bets import Alarm
from .detector import KEPT, check_sound
from .shift import ALARM_AT, SEEN, UNTIL, ShiftSettings, ShiftSpec, restart, shift_step
from .shift import ALARMS as SHIFT_ALARMS
from .shift import DELAY as OF_DELAYS
from .shift import PAGES as SHIFT_PAGES
from .shift import SINCE as SHIFT_SINCE
from .shift import WHAT as SHIFT_WHAT
from .shift import WORDS as SHIFT_WORDS
from .silence import DEADLINE, FROM, LIVE, NEVER, NONE, OPEN, SAME, SilenceSettings, arrive, check_time, leave, ring
from .silence import LAST as LAST_ARRIVAL
from .slots import SlotRows

# ---- the row -------------------------------------------------------------------------------------------------------
SILENCE = 51
FORECASTS, OUTCOMES = 0, SILENCE
SCORE, SCORE_WIDTH = 2 * SILENCE, 70
DELAY, DELAY_WIDTH = SCORE + SCORE_WIDTH, 38
ASKED, TOLD, FIRST, ALARMS, PAGES, AT, SINCE, WHAT, GIVEN = range(DELAY + DELAY_WIDTH, DELAY + DELAY_WIDTH + 9)
WIDTH = GIVEN + 2

NO_FORECASTS, NO_OUTCOMES, NEVER_AN_OUTCOME, LATER, MOVED = range(5)  # MOVED: and which bet won
WORDS = (
    "no forecasts",
    "no outcomes",
    "never an outcome",
    "outcomes later",
    *(f"score {word}" for word in SHIFT_WORDS),
)
MANY = 1000.0  # forecasts without any outcome
LINE = 5  # numbers of an alarm in a log: slot, at, since, what, page
MOST_LOGGED = 4096  # alarms of one call
PATIENCE = 100_000  # open forecasts of a stream whose times are kept
STATES = ("learning", "good", "outcomes later", "score moved", "no outcomes", "never an outcome", "silent")

Pending = dict[int, float]  # when the forecasts were made that wait for their outcome, by their numbers
Noticed = tuple[int, Alarm]  # a slot and its alarm
NO_LOG = np.empty(0)
UNKNOWN = np.full(1, np.nan)
ONLY: Slots = np.zeros(1, dtype=np.int32)  # the slot of a row that is alone
Change = Callable[[Vector, Slots, Vector], None]  # of rows one behind the other, at these slots, with a log


@dataclass(frozen=True)
class NoticeSettings:
    """The parameters of `Notice`."""

    every: float = SilenceSettings().every
    arl: float = 1_000_000.0
    warm: int = 1024
    quiet: int = 4096

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", SilenceSettings(self.every).every)
        object.__setattr__(self, "arl", self.score.arl)

    @property
    def silence(self) -> SilenceSettings:
        """Of the forecasts, and of the outcomes."""
        return SilenceSettings(self.every)

    @property
    def score(self) -> ShiftSettings:
        """Of the score."""
        return ShiftSettings(self.arl, self.warm, self.quiet)

    @property
    def delay(self) -> ShiftSettings:
        """Of the delay of outcomes. They are fewer than scores, so a quarter of the warm-up has to do."""
        return ShiftSettings(self.arl, self.warm // 4, self.quiet, OF_DELAYS)

    @property
    def width(self) -> int:
        """How many numbers a row takes."""
        return WIDTH

    def initial_row(self) -> Vector:
        """The row before the first forecast."""
        silence = self.silence.initial_row()
        tail = np.zeros(WIDTH - ASKED)
        tail[FIRST - ASKED] = NONE
        return np.concatenate([silence, silence, self.score.initial_row(), self.delay.initial_row(), tail])

    def check_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """Raise unless a notice with these settings can hold each of the rows."""
        if rows.ndim != 2 or rows.shape[1] != WIDTH:
            raise InvalidInput(f"row must have {WIDTH} numbers, got {rows.shape[-1]}")
        self.silence.check_rows(rows[:, FORECASTS:OUTCOMES])
        self.silence.check_rows(rows[:, OUTCOMES:SCORE])
        self.score.check_rows(rows[:, SCORE:DELAY])
        self.delay.check_rows(rows[:, DELAY:ASKED])
        tail = rows[:, ASKED:]
        counts = rows[:, [ASKED, ALARMS, PAGES, WHAT, GIVEN, GIVEN + 1]]
        check_sound(
            "notice",
            tail,
            {
                "finite numbers": np.isfinite(tail).all(axis=1),
                "counts that are whole numbers": ((counts >= 0.0) & (counts == np.floor(counts))).all(axis=1),
                "pages <= alarms": rows[:, PAGES] <= rows[:, ALARMS],
                "no more alarms given than raised": (rows[:, GIVEN:] <= rows[:, ALARMS:AT]).all(axis=1),
                "an alarm that exists": rows[:, WHAT] < len(WORDS),
            },
        )


# ---- one event -----------------------------------------------------------------------------------------------------


@kernel
def note(row: Vector, log: Vector, slot: int, at: float, since: float, what: int, page: bool) -> None:
    """An alarm. Of more than the log has room for it keeps the last."""
    row[ALARMS] += 1.0
    row[PAGES] += 1.0 if page else 0.0
    row[AT] = at
    row[SINCE] = since
    row[WHAT] = what
    if len(log) > 0:
        place = 1 + LINE * (int(log[0]) % ((len(log) - 1) // LINE))
        log[place] = slot
        log[place + 1] = at
        log[place + 2] = since
        log[place + 3] = what
        log[place + 4] = 1.0 if page else 0.0
        log[0] += 1.0


@kernel
def ask(row: Vector, log: Vector, slot: int, now: float) -> None:
    """The clock: is it silent for too long? It is asked before anything that happens."""
    forecasts, outcomes = row[FORECASTS : FORECASTS + SILENCE], row[OUTCOMES : OUTCOMES + SILENCE]
    if ring(forecasts, now):
        note(row, log, slot, forecasts[DEADLINE], forecasts[LAST_ARRIVAL], NO_FORECASTS, True)
    if ring(outcomes, now):  # it pages only if an outcome is missing, and somebody asks
        page = row[ASKED] > 0.0 and forecasts[OPEN] == 0.0
        note(row, log, slot, outcomes[DEADLINE], outcomes[LAST_ARRIVAL], NO_OUTCOMES, page)
    if row[TOLD] == 0.0 and row[ASKED] == MANY and now - row[FIRST] >= LIVE:
        note(row, log, slot, now, row[FIRST], NEVER_AN_OUTCOME, True)
        row[TOLD] = -1.0


@kernel
def hear_forecast(every: float, shift: ShiftSpec, row: Vector, log: Vector, slot: int, t: float, score: float) -> None:
    """A forecast of this score was made at t."""
    ask(row, log, slot, t)
    arrive(every, row[FORECASTS : FORECASTS + SILENCE], t)
    if row[FIRST] == NONE:
        row[FIRST] = t
    if row[TOLD] > 0.0 or (row[TOLD] == 0.0 and row[ASKED] < MANY):
        row[ASKED] += 1.0
    watched = row[SCORE : SCORE + SCORE_WIDTH]
    pages = watched[SHIFT_PAGES]
    if shift_step(shift, watched, score, t):
        what = MOVED + int(watched[SHIFT_WHAT])
        note(row, log, slot, t, watched[SHIFT_SINCE], what, watched[SHIFT_PAGES] > pages)


@kernel
def hear_outcome(every: float, shift: ShiftSpec, row: Vector, log: Vector, slot: int, t: float, lag: float) -> None:
    """An outcome came at t, so long after its forecast; NaN: nobody knows."""
    ask(row, log, slot, t)
    outcomes = row[OUTCOMES : OUTCOMES + SILENCE]
    fresh = outcomes[LAST_ARRIVAL] == NONE or t - outcomes[LAST_ARRIVAL] >= SAME
    arrive(every, outcomes, t)
    row[ASKED] = 0.0
    row[TOLD] = max(row[TOLD], 0.0) + 1.0
    if fresh and not math.isnan(lag):
        watched = row[DELAY : DELAY + DELAY_WIDTH]
        pages = watched[SHIFT_PAGES]
        if shift_step(shift, watched, max(lag, 0.0), t):
            note(row, log, slot, t, watched[SHIFT_SINCE], LATER, watched[SHIFT_PAGES] > pages)


# ---- many events: each entry works on rows one behind the other ----------------------------------------------------


class Heard(NamedTuple):
    """A batch. Outcome j comes before event moments[j], at came[j], in this order; if there is no order, at once."""

    slots: Slots
    times: Vector
    scores: Vector
    outcomes: Vector  # NaN where none comes
    moments: Ints
    order: Ints
    came: Vector
    late: bool


def heard_of(
    slots: Slots,
    times: Vector,
    scores: Vector,
    outcomes: Vector,
    moments: Ints | None = None,
    order: Ints | None = None,
) -> Heard:
    """A batch of one or more events; outcomes come at once, or before the events `moments` of their slots, in order.

    Those that come behind all events of their slot come at the time of its last one.
    """
    if moments is None or order is None:
        none = np.empty(0, dtype=np.int64)
        return Heard(slots, times, scores, outcomes, none, none, np.empty(0), False)
    n = len(slots)
    ends = np.zeros(int(slots.max()) + 1)
    ends[slots] = times  # of equal places the last one is kept
    came = np.where(moments < n, times[np.clip(moments, 0, n - 1)], ends[slots])
    return Heard(slots, times, scores, outcomes, moments, order, came, True)


@entry
def hear_events(
    every: float,
    score: ShiftSpec,
    delay: ShiftSpec,
    rows: Vector,
    stride: int,
    first: int,
    last: int,
    heard: Heard,
    log: Vector,
) -> None:
    """Forecasts and their outcomes; only the slots from first to last."""
    n, k = len(heard.slots), 0
    for i in range(n + 1):
        while k < len(heard.order) and (i == n or heard.moments[heard.order[k]] <= i):
            j = heard.order[k]
            slot = int(heard.slots[j])
            if first <= slot < last:
                row = rows[slot * stride : slot * stride + WIDTH]
                hear_outcome(every, delay, row, log, slot, heard.came[j], heard.came[j] - heard.times[j])
            k += 1
        if i < n:
            slot = int(heard.slots[i])
            if first <= slot < last:
                row = rows[slot * stride : slot * stride + WIDTH]
                hear_forecast(every, score, row, log, slot, heard.times[i], heard.scores[i])
                if not heard.late and heard.outcomes[i] == heard.outcomes[i]:
                    hear_outcome(every, delay, row, log, slot, heard.times[i], 0.0)


@entry
def hear_rows(
    every: float,
    score: ShiftSpec,
    delay: ShiftSpec,
    rows: Vector,
    stride: int,
    slots: Slots,
    times: Vector,
    scores: Vector,
    lags: Vector,
    log: Vector,
) -> None:
    """Forecasts and outcomes in their order; the score of an outcome is NaN."""
    for i in range(len(slots)):
        row = rows[slots[i] * stride : slots[i] * stride + WIDTH]
        if scores[i] == scores[i]:
            hear_forecast(every, score, row, log, int(slots[i]), times[i], scores[i])
        else:
            hear_outcome(every, delay, row, log, int(slots[i]), times[i], lags[i])


@entry
def ask_rows(rows: Vector, stride: int, slots: Slots, now: float, log: Vector) -> None:
    """The clock."""
    for i in range(len(slots)):
        ask(rows[slots[i] * stride : slots[i] * stride + WIDTH], log, int(slots[i]), now)


@entry
def leave_rows(rows: Vector, stride: int, slots: Slots, a: float, b: float, log: Vector) -> None:
    """Nobody listened from a to b."""
    for i in range(len(slots)):
        row = rows[slots[i] * stride : slots[i] * stride + WIDTH]
        ask(row, log, int(slots[i]), a)
        forecasts, outcomes = row[FORECASTS : FORECASTS + SILENCE], row[OUTCOMES : OUTCOMES + SILENCE]
        if row[FIRST] != NONE and row[TOLD] == 0.0:  # the first forecast ages by what was listened to
            begin = max(a, row[FIRST], forecasts[FROM])
            row[FIRST] += max(b - begin, 0.0)
        leave(forecasts, a, b)
        leave(outcomes, a, b)


@kernel
def deadline_of(row: Vector) -> float:
    """The moment at which a row is to be asked next; `NEVER` while nothing can be missed."""
    found = NEVER
    if row[FORECASTS + OPEN] == 0.0:
        found = min(found, row[FORECASTS + DEADLINE])
    if row[OUTCOMES + OPEN] == 0.0:
        found = min(found, row[OUTCOMES + DEADLINE])
    if row[TOLD] == 0.0 and row[ASKED] == MANY:
        found = min(found, row[FIRST] + LIVE)
    return found


@entry
def find_deadlines(rows: Vector, stride: int, slots: Slots, found: Vector) -> None:
    """The deadline of each slot."""
    for i in range(len(slots)):
        found[i] = deadline_of(rows[slots[i] * stride : slots[i] * stride + WIDTH])


# ---- many streams --------------------------------------------------------------------------------------------------

Serve = Callable[[tuple[int, int]], None]  # of the slots from first to last


class Notices(SlotRows):
    """One row of a `Notice` for each slot, from 0 to `count`.

    A host that keeps the times of its forecasts itself, as a service does in its database, calls `observe`, `check`
    when the earliest of `deadlines` has passed, and `away` for the time that it was down.
    One that does not calls `forecast` and `outcome` with the number of the event; the times of forecasts that wait for
    their outcome are then kept here, of the last 100,000 of a stream. Batches go through `after`.

    Each call changes only the slots that it is given: tell a stream's events in their order, and its row has the same
    bits, whatever else is in the batches. If `detailed`, the alarms are kept one by one.
    """

    NAME = "notices"
    RAISED_AT, GIVEN_AT = ALARMS, GIVEN
    queues: dict[int, Pending]

    def __init__(self, settings: NoticeSettings, *, detailed: bool = False) -> None:
        super().__init__(settings)
        self.detailed = detailed
        self.kept: list[Alarm] = []  # the last alarms, where they are kept; it is replaced, never changed
        self._every, self._score, self._delay = settings.every, settings.score.watched, settings.delay.watched

    # ---- for hosts that keep the times of forecasts themselves ----------------------------------------------------

    def observe(self, slots: Slots, times: Vector, scores: Vector, lags: Vector) -> list[Noticed]:
        """Forecasts of these scores were made, outcomes came -> the alarms raised, in order, with their slots.

        The score of an outcome is NaN. It came so many seconds after its forecast (`lags_of`; NaN: unknown).
        """

        def hear(rows: Vector, own: Slots, log: Vector) -> None:
            hear_rows(self._every, self._score, self._delay, rows, WIDTH, own, times, scores, lags, log)

        return self._changed(slots, hear)

    def check(self, now: float, slots: Slots | None = None) -> list[Noticed]:
        """Ask the clock, of all slots or of some -> the alarms raised: one for each silence."""
        every = np.arange(self.count, dtype=np.int32) if slots is None else slots
        due = every[self.deadlines(every) <= now]
        return self._changed(due, lambda rows, own, log: ask_rows(rows, WIDTH, own, now, log))

    def away(self, a: float, b: float, slots: Slots | None = None) -> list[Noticed]:
        """Nobody listened from a to b: no silence of these slots, of all if none are named -> alarms of before a.

        The same downtime may be said again, so a host may say all that it knows of to rows that it loads.
        """
        every = np.arange(self.count, dtype=np.int32) if slots is None else slots
        queues = dict(self.queues)
        for slot in every[self.matrix[every, FORECASTS + FROM] < b].tolist() if queues else ():
            if slot in queues:  # so that their delays are without it
                queues[slot] = {event: t + (b - a) if t <= a else t for event, t in queues[slot].items()}
        return self._changed(every, lambda rows, own, log: leave_rows(rows, WIDTH, own, a, b, log), queues)

    def _changed(self, slots: Slots, change: Change, queues: dict[int, Pending] | None = None) -> list[Noticed]:
        """Let a kernel work on copies of the rows, and put them in place in one step."""
        if len(slots) == 1:
            return self._changed_one(int(slots[0]), 1, change, queues)
        used, own = np.unique(slots, return_inverse=True)
        rows, log = self.matrix[used], room_for(len(slots))
        change(rows.reshape(-1), own.astype(np.int32), log)
        return self._put(used, rows, logged(log, used), queues)

    def _changed_one(
        self, slot: int, events: int, change: Change, queues: dict[int, Pending] | None = None
    ) -> list[Noticed]:
        """The same of one row, for so many events."""
        row, log = self.matrix[slot].copy(), room_for(events)
        change(row, ONLY, log)
        return self._put(slot, row, logged(log, [slot]) if log[0] else [], queues)

    def _put(self, slots: Any, rows: Vector, raised: list[Noticed], queues: dict[int, Pending] | None) -> list[Noticed]:
        kept = [*self.kept, *(alarm for _, alarm in raised)][-KEPT:] if raised and self.detailed else self.kept
        queues = self.queues if queues is None else queues
        # One statement without a call: an interrupt comes before or after all of it.
        self.matrix[slots], self.kept, self.queues = rows, kept, queues
        return raised

    # ---- for hosts that number their events -----------------------------------------------------------------------

    def forecast(self, slot: int, event: int, time: float, score: float) -> list[Noticed]:
        """Forecast number `event` of a slot was made; one that is known already changes nothing."""
        if self.matrix[slot, SCORE + SEEN] != event:
            return []
        pending = self.queues.setdefault(slot, {})
        pending[event] = time
        if len(pending) > PATIENCE:
            del pending[next(iter(pending))]
        return self.observe(np.array([slot], dtype=np.int32), np.array([time]), np.array([score]), UNKNOWN)

    def told(self, slot: int) -> float:
        """How many outcomes of a slot it was told of."""
        return max(float(self.matrix[slot, TOLD]), 0.0)

    def outcome(self, slot: int, event: int, time: float, told: float | None = None) -> list[Noticed]:
        """The outcome of forecast number `event` of a slot came, after so many; one more of them changes nothing."""
        pending, raised = self.queues.get(slot, {}), []
        if told is None or self.told(slot) == told:
            lag = time - pending.get(event, np.nan)
            raised = self.observe(np.array([slot], dtype=np.int32), np.array([time]), UNKNOWN, np.array([lag]))
        pending.pop(event, None)
        if not pending:
            self.queues.pop(slot, None)
        return raised

    def after(self, serve: Serve, heard: Heard) -> Serve:
        """Serve the slots from first to last, then hear their events, in the same thread."""

        def both(part: tuple[int, int]) -> None:
            serve(part)
            hear_events(self._every, self._score, self._delay, self.flat, self.stride, *part, heard, NO_LOG)

        return both

    def run(self, slot: int, events: int, heard: Heard) -> list[Noticed]:
        """A batch of one slot, which it calls 0, after so many events; one that is known already changes nothing."""
        if self.matrix[slot, SCORE + SEEN] != events:
            return []

        def hear(row: Vector, _: Slots, log: Vector) -> None:
            hear_events(self._every, self._score, self._delay, row, WIDTH, 0, 1, heard, log)

        return self._changed_one(slot, len(heard.slots), hear)

    def restart_changed(self, slots: Slots, events: Vector) -> None:
        """Start anew at slots whose rows were replaced by rows with another number of events."""
        for slot, count in zip(slots.tolist(), events.tolist(), strict=True):
            if self.matrix[slot, SCORE + SEEN] != count:
                self.matrix[slot] = self._fresh
                self.matrix[slot, SCORE + SEEN] = count
                self.matrix[slot, SCORE + UNTIL] += count
                self.queues.pop(slot, None)

    def restart(self, slot: int) -> None:
        """A new version of the model goes live: learn its scores anew."""
        row = self.matrix[slot].copy()
        restart(self.settings.score, row[SCORE:DELAY])
        self.matrix[slot] = row

    # ---- what they say --------------------------------------------------------------------------------------------

    def deadlines(self, slots: Slots) -> Vector:
        """The moment at which each slot is to be asked next; infinity where nothing can be missed yet."""
        found = np.empty(len(slots))
        find_deadlines(self.flat, self.stride, slots.astype(np.int32), found)
        return np.where(found >= NEVER, np.inf, found)

    def states(self, slots: Slots) -> list[bytes]:
        """Some slots as bytes: their rows."""
        return [row.tobytes() for row in self.matrix[slots]]

    def set_states(self, slots: Slots, states: Sequence[bytes]) -> None:
        """The inverse of `states`.

        Raises
        ------
        InvalidInput : a state is not one of a notice with these settings.
        """
        if any(len(state) != 8 * WIDTH for state in states):
            raise InvalidInput(f"notice states must be {8 * WIDTH} bytes each, got others")
        rows = np.array([np.frombuffer(state) for state in states]).reshape(len(states), WIDTH)
        self.settings.check_rows(rows)
        self.matrix[slots] = rows

    def columns(self, slots: Slots) -> dict[str, npt.NDArray[Any]]:
        """What a table shows of some slots."""
        rows = self.matrix[slots]
        ever = rows[:, ALARMS] > 0
        return {
            "state": self.words(slots),
            "notices": rows[:, ALARMS].astype(np.int64),
            "noticed": np.where(ever, np.array(WORDS, dtype=object)[rows[:, WHAT].astype(np.int64)], ""),
            "noticed_at": np.where(ever, rows[:, AT], np.nan),
            "noticed_since": np.where(ever, rows[:, SINCE], np.nan),
            "next_check": self.deadlines(slots),
        }

    def words(self, slots: Slots) -> npt.NDArray[Any]:
        """The state of some slots in a word, the worst that holds; "good" only where all four detectors watch."""
        rows, moved = self.matrix[slots], self.moved(slots)
        watched = self.watching(slots).all(axis=1)
        found = np.where(watched, STATES.index("good"), STATES.index("learning"))
        found[moved[:, 1]] = STATES.index("outcomes later")
        found[moved[:, 0]] = STATES.index("score moved")
        found[(rows[:, OUTCOMES + OPEN] == 1.0) & (rows[:, ASKED] > 0.0)] = STATES.index("no outcomes")
        found[rows[:, TOLD] < 0.0] = STATES.index("never an outcome")
        found[rows[:, FORECASTS + OPEN] == 1.0] = STATES.index("silent")
        return np.array(STATES, dtype=object)[found]

    def moved(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Of each slot whether its score, and the delay of its outcomes, have moved within the last `quiet` values."""
        rows = self.matrix[slots]
        seen, at = rows[:, [SCORE + SEEN, DELAY + SEEN]], rows[:, [SCORE + ALARM_AT, DELAY + ALARM_AT]]
        ever = rows[:, [SCORE + SHIFT_ALARMS, DELAY + SHIFT_ALARMS]] > 0
        return np.asarray(ever & (seen - at <= self.settings.quiet))

    def watching(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Of each slot what can be noticed by now: no forecasts, no outcomes, a score that moved, outcomes later."""
        rows = self.matrix[slots]
        silent = rows[:, [FORECASTS + DEADLINE, OUTCOMES + DEADLINE]] < NEVER
        moved = rows[:, [SCORE + SEEN, DELAY + SEEN]] >= rows[:, [SCORE + UNTIL, DELAY + UNTIL]]
        return np.hstack([silent, moved])

    def last_alarm(self, slot: int) -> Alarm | None:
        """The last alarm of a slot; whether it paged is not kept."""
        row = self.matrix[slot]
        return self._last_alarm(row, page=True) if row[ALARMS] else None

    def _last_alarm(self, row: Vector, *, page: bool) -> Alarm:
        return Alarm(float(row[AT]), float(row[SINCE]), WORDS[int(row[WHAT])], page)

    def _kept_alarms(self, slot: int) -> list[Alarm]:  # noqa: ARG002 - where they are kept there is one slot
        return self.kept

    # ---- as data --------------------------------------------------------------------------------------------------

    def _queue_as_data(self, queue: Pending) -> Any:
        return list(queue.items())

    def set_queue(self, slot: int, pending: Any) -> None:
        """The times of a slot's open forecasts, as a list of number and time."""
        most = int(self.matrix[slot, SCORE + SEEN]) - 1
        found = {check_whole("event", event, 0, most): check_time("time", time) for event, time in pending}
        if found:
            self.queues[slot] = found


# ---- the log of a call -----------------------------------------------------------------------------------------------


def room_for(events: int) -> Vector:
    """A log for the alarms of so many events; of more than 4,096 it keeps the last."""
    return np.zeros(1 + LINE * min(4 * events + 4, MOST_LOGGED))


def logged(log: Vector, slots: Sequence[int] | Slots) -> list[Noticed]:
    """The alarms of a log, oldest first; `slots` are those of its rows."""
    count, room = int(log[0]), (len(log) - 1) // LINE
    lines = log[1:].reshape(room, LINE)
    order = np.arange(max(0, count - room), count) % room
    return [
        (int(slots[int(slot)]), Alarm(at, since, WORDS[int(what)], bool(page)))
        for slot, at, since, what, page in lines[order].tolist()
    ]


def lags_of(made: Vector, came: Vector, downtimes: Sequence[tuple[float, float]] = ()) -> Vector:
    """How long each outcome took, in seconds, without the time in which nobody could take it.

    >>> lags_of(np.array([100.0, 150.0]), np.array([400.0, 160.0]), [(200.0, 300.0)])
    array([200.,  10.])
    """
    lags = came - made
    for a, b in downtimes:
        lags = lags - np.maximum(np.minimum(came, b) - np.maximum(made, a), 0.0)
    return np.asarray(lags)
