"""The monitors of a stream, one behind the other in its bytes: they need outcomes.

    OURS    the forecasts, as they were made by the method; of K classes the one with the largest probability
    RAW     the scores in the same way. Its alarms are no news where a score was never calibrated, so nobody is paged
    CLASS   and behind it: each of up to ten classes. All of them read every outcome, so each has K times the `arl`

All of them wait for the same outcomes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.types import Slots, Vector
from calibeat.core.receipt import watched_columns
from calibeat.errors import InvalidInput
from calibeat.monitor.bets import ALARMS, FORECASTS, PAGES, Alarm, Settings
from calibeat.monitor.monitors import Monitors, fold_together
from calibeat.monitor.waiting import Queue

SEGMENT, NOTICED, OURS, RAW, CLASS = range(-2, 3)  # who has raised an alarm: below 0 it is no monitor
MOST_CLASSES = 10
RAW_SCORE = "raw score "  # how its alarms begin
_WIDTH = Settings(1e6).width + 1


class Settled(NamedTuple):
    """An event whose outcome is learnt. Of K classes `issued` are the forecasts, `given` the scores, as bytes."""

    forecast: float
    outcome: int
    score: float
    issued: Any
    given: Any


class Raised(NamedTuple):
    """The last alarm that a fold has raised in a monitor of a stream. It pages if any of them did."""

    slot: int
    part: int
    alarm: Alarm
    page: bool


def part_count(numbers: int) -> int:
    """How many monitors a stream of so many classes has; 1 stands for two classes with one score."""
    return CLASS + (numbers if 1 < numbers <= MOST_CLASSES else 0)


def alarms_of(state: bytes | None) -> int:
    """How many alarms the monitors of a stream have raised, without those of the raw score."""
    counts = np.frombuffer(state or b"").reshape(-1, _WIDTH)[:, :-1][:, ALARMS]  # behind a row is a whole number
    return int(counts[:RAW].sum() + counts[CLASS:].sum())


class StreamMonitors:
    """The monitors of streams that have one shape, as long as a fold takes."""

    def __init__(self, settings: Settings, numbers: int, announced: Vector, *, has_raw: bool = True) -> None:
        """Monitors that begin with the next forecast; so many were `announced` of each stream.

        Without a raw score its monitor reads the forecasts too, and what it raises is left out.
        """
        self._numbers, count, self._has_raw = numbers, part_count(numbers), has_raw
        self.parts = [Monitors(settings) for _ in range(CLASS)]
        if count > CLASS:
            of_class = replace(settings, arl=settings.arl * numbers)
            self.parts += [Monitors(of_class) for _ in range(CLASS, count)]
        for monitors in self.parts:
            monitors.resize(len(announced))
            monitors.matrix[:, FORECASTS] = announced
            monitors.queues = self.parts[OURS].queues  # one for all: an event in it has three numbers for each part
        self._every: Slots = np.arange(len(announced), dtype=np.int32)

    def resume(self, states: Sequence[bytes | None], queues: Sequence[Queue | None]) -> None:
        """Go on from what was stored and checked."""
        known = [slot for slot, state in enumerate(states) if state is not None]
        joined = np.frombuffer(b"".join([states[slot] or b"" for slot in known]))
        rows = joined.reshape(len(known), len(self.parts), _WIDTH)
        for part, monitors in enumerate(self.parts):
            monitors.matrix[known] = rows[:, part, :-1]
        self.queues.update((slot, queue) for slot, queue in enumerate(queues) if queue is not None)
        self._before = [monitors.matrix[:, [ALARMS, PAGES]] for monitors in self.parts]

    def load(self, states: Sequence[bytes], unread: Sequence[Mapping[int, Settled | None]]) -> None:
        """Check what a store has.

        Raises
        ------
        InvalidInput : a state is not one of such monitors.
        """
        size = 8 * _WIDTH
        if any(len(state) != size * len(self.parts) for state in states):
            raise InvalidInput(f"monitor states must be {size * len(self.parts)} bytes each, got others")
        held = [{number: self._event(event) for number, event in events.items()} for events in unread]
        for part, monitors in enumerate(self.parts):
            own = [state[part * size : (part + 1) * size] for state in states]
            monitors.set_states(self._every, own, held)

    def _event(self, event: Settled | None) -> Any:
        """An event as the monitors read it."""
        if event is None:
            return None
        K = self._numbers
        forecasts, scores = (np.array([event.forecast]), np.array([event.score])) if K == 1 else (
            np.frombuffer(bytes(event.issued)), np.frombuffer(bytes(event.given))
        )  # fmt: skip
        return next(self._events(forecasts, np.array([float(event.outcome)]), scores))

    def _events(self, forecasts: Vector, outcomes: Vector, scores: Vector) -> Iterator[tuple[float, ...]]:
        """The events of a batch: three numbers for each part."""
        columns = [self._columns(part, forecasts, outcomes, scores) for part in range(len(self.parts))]
        return zip(*(column.tolist() for part in columns for column in part), strict=True)

    def _columns(self, part: int, forecasts: Vector, outcomes: Vector, scores: Vector) -> tuple[Vector, Vector, Vector]:
        """What a monitor reads of a batch; of K classes there are K numbers an event."""
        K = self._numbers
        if part == OURS:
            return watched_columns(K, forecasts, outcomes, scores)
        if part == RAW:
            p, y, _ = watched_columns(K, scores, outcomes, scores)
            return p, y, np.full(len(p), np.nan)
        k = part - CLASS
        hits = np.where(np.isnan(outcomes), np.nan, outcomes == k)
        return forecasts.reshape(-1, K)[:, k], hits, scores.reshape(-1, K)[:, k]

    def read(self, columns: Any, given_up: Collection[tuple[int, int]] = ()) -> None:
        """What a fold has done: `columns` are its `FoldColumns`.

        Outcomes of forecasts that are given up (slot, number) come late, and are not read.
        """
        source, K = columns.sources, self._numbers
        names = ("probabilities", "scores") if K > 1 else ("probability", "score")
        forecasts, scores = (columns.receipts[name][source].reshape(-1) for name in names)
        numbers = np.where(columns.asked, -1, columns.receipts["event"][source]).tolist()
        slots: list[int] = columns.slots.tolist()
        events: Iterable[Any] = self._events(forecasts, columns.outcomes, scores)
        if late := set(given_up):
            which = zip(slots, numbers, events, strict=True)
            events = (None if (slot, number) in late else event for slot, number, event in which)
        fold_together(self.parts, slots, numbers, events)

    def give_up(self, forecasts: Iterable[tuple[int, int]]) -> None:
        """The outcomes of these never come: (slot, number)."""
        found = list(forecasts)
        if found:
            slots, numbers = zip(*found, strict=True)
            fold_together(self.parts, slots, numbers, [None] * len(found))

    def states(self) -> list[bytes]:
        """The bytes of each stream."""
        return [b"".join(parts) for parts in zip(*(each.states(self._every) for each in self.parts), strict=True)]

    @property
    def queues(self) -> dict[int, Queue]:
        """What waits in the monitors of streams, by slot; of a stream all wait for the same."""
        return self.parts[OURS].queues

    def raised(self) -> tuple[list[int], list[Raised]]:
        """How many alarms each stream has had since `resume`, as `alarms_of` counts; and the last of each monitor."""
        counts, found = np.zeros(len(self._every)), list[Raised]()
        for part, (monitors, before) in enumerate(zip(self.parts, self._before, strict=True)):
            more = monitors.matrix[:, [ALARMS, PAGES]] - before
            if part == RAW and not self._has_raw:
                continue
            if part != RAW:
                counts += more[:, 0]
            new = np.flatnonzero(more[:, 0]).astype(np.int32)
            for slot, alarms in zip(new.tolist(), monitors.alarms(new), strict=True):
                is_page = bool(more[slot, 1])
                # Of a score that was never right only the beginning of an episode is told, and nobody is woken for it.
                if alarms.last is not None and (part != RAW or is_page):
                    found.append(Raised(slot, part, alarms.last, is_page and part != RAW))
        return counts.astype(int).tolist(), found
