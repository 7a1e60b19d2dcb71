"""Outcomes in the order of their forecasts: what came early is held until everything before it has come.

The monitor reads outcomes in the order of forecasts, because an order of arrival that depends on the outcome looks like
a fault (docs/monitor.md). A forecast whose outcome is missing holds up those behind it, but not for ever: it is given
up when `patience` further forecasts have been announced. So at most `patience` outcomes are held.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.check import check_interval, check_outcome, check_whole
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast

from .bets import FORECASTS, WAITING, Alarm, N

Event = tuple[float, float, float]  # forecast, outcome, raw score or NaN
Came = tuple[int, int, Event | None]  # what `next` was before, the number that came, and its outcome
Step = tuple[int, int, int, Came | None, list[Event]]  # announced, next, given_up and came afterwards, what can be read


class Waiting(NamedTuple):
    """Forecasts and outcomes, counted.

    Attributes
    ----------
    forecasts : announced so far.
    outcomes : received so far; those that came too late are not counted.
    waiting : forecasts that have no outcome yet and are not given up.
    mean_age, oldest : how many forecasts ago these were announced; NaN and 0 if nothing waits.
    held : outcomes that are known and not yet read, because an earlier one is missing.
    given_up : forecasts whose outcome did not come within `patience` forecasts.
    too_late : outcomes that came after their forecast was given up; they are ignored. None in the monitor of a bank's
        key, which does not count them.
    """

    forecasts: int
    outcomes: int
    waiting: int
    mean_age: float
    oldest: int
    held: int
    given_up: int
    too_late: int | None


class Queue:
    """The announced forecasts from the first unread one on.

    `step` returns what an event does, and changes only the copy of a row that it is given. The host then assigns this
    and everything else that changes in one statement without a call: an interrupt comes before all of it or after all
    of it. `finish` does the rest. If it is interrupted, the next call repeats it.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.announced = 0
        self.next = 0  # the first number that is neither read nor given up
        self.held: dict[int, Event | None] = {}  # None: it will never come
        self.given_up = 0
        self.too_late: int | None = 0  # None: not counted
        self.last_late = -1  # the number of the one counted last
        self.lost: dict[int, None] = {}  # numbers given up lately, in order
        self.came: Came | None = None  # until `finish` has put it away
        self.alarms: list[Alarm] = []  # the last ones, where they are kept; it is replaced, never changed

    # ---- one by one -----------------------------------------------------------------------------------------------

    def is_open(self, number: int) -> bool:
        """Whether an announced number waits for its outcome."""
        if self.came is not None:
            self.finish()
        return self.next <= number < self.announced and number not in self.held

    def counts(self, number: int) -> bool:
        """Whether an outcome of this number counts; raise if it has one already, or was never announced."""
        if number >= self.announced:
            raise UnknownForecast(
                f"forecast must be announced before its outcome, got number {number} after {self.announced} forecasts"
            )
        if self.is_open(number):
            return True
        if self.gave_up(number):
            return False
        raise OutcomeConflict(f"outcome must be the first of its forecast, got another - at number {number}")

    def gave_up(self, number: int) -> bool:
        """Whether an announced number, which does not wait, was given up."""
        return number in self.lost or number < self._remembered_from()

    def count_late(self, outcomes: int = 1, number: int = -1) -> None:
        """Count outcomes of numbers that were given up. One that is told again, by its number, counts once."""
        if self.too_late is not None and (number < 0 or number != self.last_late):
            self.too_late, self.last_late = self.too_late + outcomes, number

    def step(self, row: Any, number: int = -1, event: Event | None = None) -> Step:
        """One more forecast, or the outcome of an open number (None: it will never come).

        A forecast that has waited too long is given up.
        """
        if self.came is not None:
            self.finish()
        announced, first, held, given_up = self.announced, self.next, self.held, self.given_up
        at, ready = first, list[Event]()
        if number < 0:
            row[FORECASTS] += 1.0
            row[WAITING] += announced
            announced += 1
            number = announced - 1 - self.patience  # the one that has waited too long now, if it still waits
        if number >= first:
            row[WAITING] -= number
        while at == number or at in held:
            found = event if at == number else held[at]
            if found is None:
                given_up += 1
            else:
                ready.append(found)
            at += 1
        is_done = not held and (number < first or len(ready) > 0)  # nothing to be put away
        return announced, at, given_up, None if is_done else (first, number, event), ready

    def finish(self) -> None:
        """Bring `held` and `lost` up to date with the last step. It may be done twice."""
        if self.came is not None:
            first, number, event = self.came
            if number >= first:
                self.held[number] = event
            done = range(first, self.next)
            self._lose([n for n in done if self.held.get(n, ()) is None])
            for n in done:
                self.held.pop(n, None)
            self.came = None

    def _lose(self, numbers: list[int]) -> None:
        """Remember what was given up lately."""
        self.lost |= dict.fromkeys(numbers)
        start = self._remembered_from()
        while self.lost and (first := next(iter(self.lost))) < start:
            del self.lost[first]

    # ---- many at once ---------------------------------------------------------------------------------------------

    def take_many(
        self, p: Vector, y: Vector, s: Vector, due: Ints, *, closed: bool = False
    ) -> tuple[Vector, Vector, Vector]:
        """Announce len(p) forecasts; outcome i comes just before the forecast due[i], if that is at most len(p).

        The same as one by one -> what can be read at the end, in the order of forecasts. If the batch is `closed`,
        outcomes that are due later never come.
        """
        self.finish()
        n, old = len(p), self.announced - self.next
        columns = np.full((3, old + n), np.nan)
        known, never = np.zeros(old + n, dtype=bool), np.zeros(old + n, dtype=bool)
        for number, event in self.held.items():
            if event is None:
                never[number - self.next] = True
            else:
                columns[:, number - self.next] = event
                known[number - self.next] = True
        columns[:, old:] = p, y, s
        came, in_time = due <= n, due - np.arange(n) <= self.patience
        known[old:] = came & in_time
        never[old:] = ~came & closed
        lost = never | (~known & (old + n - 1 - np.arange(old + n) >= self.patience))
        stuck = ~known & ~lost
        stop = int(stuck.argmax()) if stuck.any() else old + n
        self.count_late(int((came & ~in_time).sum()))
        first, self.announced = self.next, self.announced + n
        self.next = first + stop
        gave = (first + np.flatnonzero(lost[:stop])).tolist()
        later = {first + i: _event(columns[:, i]) for i in (stop + np.flatnonzero(known[stop:])).tolist()}
        self.held = {**later, **dict.fromkeys((first + stop + np.flatnonzero(never[stop:])).tolist())}
        self.given_up += len(gave)
        self._lose(gave)
        read = np.flatnonzero(known[:stop])
        return columns[0, read], columns[1, read], columns[2, read]

    # ---- state ----------------------------------------------------------------------------------------------------

    @property
    def sum_of_waiting(self) -> int:
        """The numbers that wait for their outcomes, added up."""
        return sum(range(self.next, self.announced)) - sum(self.held)

    def count(self, row: Vector) -> Waiting:
        """In numbers, beside the row of its monitor."""
        self.finish()
        read = int(row[N])
        held = sum(event is not None for event in self.held.values())
        waiting = self.announced - read - len(self.held) - self.given_up
        now = self.announced - 1
        return Waiting(
            forecasts=self.announced,
            outcomes=read + held,
            waiting=waiting,
            mean_age=now - float(row[WAITING]) / waiting if waiting else math.nan,
            oldest=now - self.next if waiting else 0,
            held=held,
            given_up=self.given_up + len(self.held) - held,
            too_late=self.too_late,
        )

    def copy(self) -> Queue:
        """Another one that is the same."""
        self.finish()
        made = Queue(self.patience)
        made.announced, made.next = self.announced, self.next
        made.given_up, made.too_late, made.last_late = self.given_up, self.too_late, self.last_late
        made.held, made.lost, made.alarms = dict(self.held), dict(self.lost), self.alarms
        return made

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        self.finish()
        held = [[number, *_as_json(event)] for number, event in sorted(self.held.items())]
        return {
            "announced": self.announced,
            "next": self.next,
            "held": held,
            "given_up": self.given_up,
            "too_late": self.too_late,
            "lost": list(self.lost),
        }

    @classmethod
    def from_dict(cls, patience: int, state: Any) -> Queue:
        """The inverse of `to_dict`."""
        queue = cls(patience)
        if not isinstance(state, dict) or set(state) != set(queue.to_dict()):
            raise InvalidInput(f"queue must have {', '.join(queue.to_dict())}, got {state!r:.60}")
        queue.announced = check_whole("announced", state["announced"], 0, 2**53)
        queue.next = check_whole("next", state["next"], max(0, queue.announced - patience), queue.announced)
        queue.given_up = check_whole("given_up", state["given_up"], 0, queue.next)
        late = state["too_late"]
        queue.too_late = None if late is None else check_whole("too_late", late, 0, 2**53)
        for what in ("held", "lost"):
            if not isinstance(state[what], list):
                raise InvalidInput(f"{what} must be a list, got {state[what]!r:.60}")
        for entry in state["held"]:
            if not isinstance(entry, list) or len(entry) != 4:
                raise InvalidInput(f"held must be lists of number, forecast, outcome and score, got {entry!r:.60}")
            number = check_whole("held number", entry[0], queue.next + 1, queue.announced - 1)
            if entry[1] is None:
                queue.held[number] = None
                continue
            score = math.nan if entry[3] is None else check_interval("held score", entry[3], 0.0, 1.0)
            forecast = check_interval("held forecast", entry[1], 0.0, 1.0)
            queue.held[number] = forecast, check_outcome(entry[2]), score
        for number in state["lost"]:
            queue.lost[check_whole("lost number", number, 0, queue.next - 1)] = None
        return queue

    def _remembered_from(self) -> int:
        """Given-up numbers below it are forgotten, so that what is kept stays bounded."""
        return max(0, self.announced - 2 * self.patience)


def _event(column: Vector) -> Event:
    return column[0].item(), column[1].item(), column[2].item()


def _as_json(event: Event | None) -> tuple[float | None, ...]:
    if event is None:
        return None, None, None
    return event[0], event[1], None if math.isnan(event[2]) else event[2]
