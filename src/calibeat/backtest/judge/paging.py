"""Would it have paged? Monitors along a replay, and a trail of their numbers. Memory does not grow with the log.

Outcomes are read in the order of forecasts, also where they came late: an alarm is then about the forecasts up to its
event. It is raised once their outcomes have arrived, at `Episode.heard`. Of many classes a monitor reads the confidence
in the top class, and whether it was right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import counted
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.tally import floor_of, judged
from calibeat.monitor import Alarm, Monitor
from calibeat.report.schema import Axis, Page, Paging, Watched

from .measures import iso, number

MOST_POINTS = 300  # of a trail; an even number, so that points are thinned by pairs
FIRST_STRIDE = 128  # outcomes from point to point: enough for the compiled kernels
MOST_EPISODES = 200  # kept: the first half of them, and the latest


@dataclass
class Episode:
    """An alarm that pages, and those that follow within `quiet` outcomes of one another. Places are on the axis."""

    first: Alarm
    at: int
    heard: int | None  # when the last outcome that it rests on had arrived
    alarms: int
    last: int


class Trail:
    """One monitor along a log: its level and gain at every stride-th outcome, with a stride that doubles."""

    def __init__(self, arl: float) -> None:
        self.monitor = Monitor(arl=arl)
        self.stride = FIRST_STRIDE
        self._raised = False  # since the last point
        self.points: list[tuple[int, int, float, float, float, float]] = []  # outcomes, axis, level, gain, low, high
        self.episodes: list[Episode] = []
        self._begin: int | None = None
        self._end = 0

    def add(self, forecasts: Vector, outcomes: Vector, scores: Vector, axis: Ints, heard: Ints | None = None) -> None:
        """Read events with their outcomes; `axis` rises with them: times, or numbers of events."""
        first, begun = 0, self.monitor.outcomes
        if self._begin is None and len(axis):
            self._begin = int(axis[0])
        self._end = int(axis[-1]) if len(axis) else self._end
        while first < len(forecasts):
            last = min(len(forecasts), first + self.stride - (begun + first) % self.stride)
            part = slice(first, last)
            raised = self.monitor.run(forecasts[part], outcomes[part], scores[part])
            for alarm in raised:
                at = int(alarm.at) - begun - 1
                self._note(alarm, int(axis[at]), None if heard is None else int(heard[at]))
            self._raised = self._raised or bool(raised)
            if (begun + last) % self.stride == 0:
                level = 1.0 if self._raised else self.monitor.level
                self._raised = False
                self.points.append((begun + last, int(axis[last - 1]), level, *self.monitor.gain))
                self._thin()
            first = last

    def _note(self, alarm: Alarm, at: int, heard: int | None) -> None:
        if alarm.page:
            self.episodes.append(Episode(alarm, at, heard, 0, at))
            if len(self.episodes) > MOST_EPISODES:
                del self.episodes[MOST_EPISODES // 2]
        self.episodes[-1].alarms += 1
        self.episodes[-1].last = at

    def _thin(self) -> None:
        """Every other point where there are too many. A level stands for the largest of those it takes the place of."""
        if len(self.points) < MOST_POINTS:
            return
        self.stride *= 2
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.points = [(*b[:2], max(a[2], b[2]), *b[3:]) for a, b in pairs]

    @property
    def path(self) -> list[tuple[int, int, float, float, float, float]]:
        """The points, and where the monitor stands now."""
        n = self.monitor.outcomes
        if not n or (self.points and self.points[-1][0] == n):
            return self.points
        level = 1.0 if self._raised else self.monitor.level
        return [*self.points, (n, self._end, level, *self.monitor.gain)]

    def axis_of(self, outcome: float) -> int:
        """Where an outcome stands on the axis, to within a stride: the estimated start of a fault."""
        begin = 0 if self._begin is None else self._begin
        return int(np.interp(outcome, [0, *(p[0] for p in self.path)], [begin, *(p[1] for p in self.path)]))


class Trails:
    """The hook of a replay: a trail for the raw score, for the method `named`, and for the leader of the first chunk.

    A monitor costs about as much as a method, so not every method has one. If the log fits in the first chunk, the
    leader is the method with the least log-loss of all.
    """

    def __init__(self, arl: float = 1_000_000, named: str | None = None) -> None:
        self.arl, self.named = arl, named
        self.trails: dict[str, Trail] = {}
        self._events = 0
        self._timed: bool | None = None
        self._heard = np.iinfo(np.int64).min

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Take a chunk in the order of its events; those without an outcome are not read."""
        for task in self.tasks(chunk, forecasts, place):
            task()

    def tasks(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> list[Callable[[], None]]:
        """The same as one task for each monitor, which may run at the same time."""
        if self._timed is None:
            self._timed = chunk.times is not None
            self.trails = {name: Trail(self.arl) for name in _watched(chunk, forecasts, place, self.named)}
        there = ~np.isnan(chunk.outcomes)
        known = slice(None) if there.all() else there  # nothing is copied where all are
        event = np.arange(self._events + 1, self._events + len(chunk) + 1)
        axis = (event if chunk.times is None else chunk.times)[known]
        heard = self._when_heard(chunk, known)
        self._events += len(chunk)
        outcomes, scores = chunk.outcomes[known], chunk.scores[known]

        def read(name: str, trail: Trail) -> None:
            found = judged(forecasts[name][known], outcomes)
            trail.add(found.forecasts, found.outcomes, found.of_same(scores), axis, heard)

        return [partial(read, name, trail) for name, trail in self.trails.items()]

    def _when_heard(self, chunk: Chunk, known: Flags | slice) -> Ints | None:
        """When the outcomes of each event and of all before it had arrived; None if that is not on the axis."""
        if chunk.arrivals is None or chunk.clock_is_time != self._timed or not len(chunk.outcomes[known]):
            return None
        heard = np.maximum.accumulate(np.maximum(chunk.arrivals[known], self._heard))
        self._heard = int(heard[-1])
        return heard

    def for_report(self, chosen: str, labels: dict[str, str]) -> Paging:
        """What they found; `chosen` is the method of the verdict."""
        timed = bool(self._timed)
        by: Axis = "time" if timed else "event"
        watched = {name: _trail(trail, timed=timed) for name, trail in self.trails.items()}
        outcomes = max((trail.monitor.outcomes for trail in self.trails.values()), default=0)
        return {
            "by": by,
            "arl": self.arl,
            "outcomes": outcomes,
            "sentence": _sentence(watched, chosen, labels),
            "methods": watched,
        }


def _watched(chunk: Chunk, forecasts: dict[str, Vector], place: Ints, named: str | None) -> list[str]:
    raw, *others = forecasts
    outcomes, floor = chunk.outcomes, floor_of(chunk.numbers)
    rows = place > 0
    rows = rows if rows.any() else ~np.isnan(outcomes)

    def loss(name: str) -> float:
        return float(-np.log(np.maximum(judged(forecasts[name][rows], outcomes[rows]).chances, floor)).sum())

    leader = [min(others, key=loss)] if others else []
    return list(dict.fromkeys([raw, *([named] if named in others else []), *leader]))


def _trail(trail: Trail, *, timed: bool) -> Watched:
    def moment(at: int) -> str | int:
        return iso(at) if timed else at

    path = trail.path
    alarms, pages = trail.monitor.counts
    mean, low, high = trail.monitor.gain
    shown: list[Page] = [
        {
            "at": moment(episode.at),
            "heard": None if episode.heard is None else moment(episode.heard),
            "since": moment(min(trail.axis_of(episode.first.since), episode.at)),
            "what": episode.first.what.split(" from ")[0],
            "low": episode.first.low,
            "high": episode.first.high,
            "alarms": episode.alarms,
            "last": moment(episode.last),
        }
        for episode in trail.episodes
    ]
    return {
        "alarms": alarms,
        "pages": pages,
        "shown": shown,
        "gain": [number(mean), number(low), number(high)],
        "x": [moment(point[1]) for point in path],
        "level": [number(point[2]) for point in path],
        "gains": [[number(value) for value in point[3:]] for point in path],
    }


def _sentence(watched: dict[str, Watched], chosen: str, labels: dict[str, str]) -> str:
    raw, *others = watched
    beside = chosen if chosen in others else next(iter(others), raw)
    sentences = [
        f"A monitor of {_named(raw, name, labels)} would have paged {_often(watched[name]['pages'])}."
        for name in dict.fromkeys([beside, raw])
    ]
    if chosen not in watched:
        sentences.append(f"{labels[chosen]} had no monitor: it led only later in the log.")
    return " ".join(sentences)


def _named(raw: str, name: str, labels: dict[str, str]) -> str:
    return "the raw score" if name == raw else labels[name]


def _often(times: int) -> str:
    return ("nobody", "once", "twice")[times] if times < 3 else counted(times, "time")
