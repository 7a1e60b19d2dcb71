"""Would it have paged? A monitor for each method of a replay, and a trail of its numbers. Memory does not grow.

Outcomes are read in the order of forecasts, also where they came late: an alarm is then about the forecasts up to its
event, and would have been raised once their outcomes had arrived.
"""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.read.batch import Chunk
from calibeat.monitor import Alarm, Monitor

MOST_POINTS = 300  # of a trail; an even number, so that points are thinned by pairs


class Trail:
    """One monitor along a log: its level and gain at every stride-th outcome, with a stride that doubles."""

    def __init__(self, arl: float) -> None:
        self.monitor = Monitor(arl=arl)
        self.stride = 1
        self._raised = False  # since the last point
        self.points: list[tuple[int, int, float, float, float, float]] = []  # outcomes, axis, level, gain, low, high
        self.alarms: list[tuple[Alarm, int]] = []  # the last 1,000, with their place on the axis

    def add(self, forecasts: Vector, outcomes: Vector, scores: Vector, axis: Ints) -> None:
        """Read events with their outcomes; `axis` rises with them: times, or numbers of events."""
        first, begun = 0, self.monitor.outcomes
        while first < len(forecasts):
            last = min(len(forecasts), first + self.stride - (begun + first) % self.stride)
            part = slice(first, last)
            raised = self.monitor.run(forecasts[part], outcomes[part], scores[part])
            self.alarms = [*self.alarms, *((alarm, int(axis[alarm.at - begun - 1])) for alarm in raised)][-1000:]
            self._raised = self._raised or bool(raised)
            if (begun + last) % self.stride == 0:
                level = 1.0 if self._raised else self.monitor.level
                self._raised = False
                self.points.append((begun + last, int(axis[last - 1]), level, *self.monitor.gain))
                self._thin()
            first = last

    def _thin(self) -> None:
        """Every other point where there are too many. A level stands for the largest of those it takes the place of."""
        if len(self.points) < MOST_POINTS:
            return
        self.stride *= 2
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.points = [(*b[:2], max(a[2], b[2]), *b[3:]) for a, b in pairs]

    def axis_of(self, outcome: float) -> int:
        """Where an outcome stands on the axis, to within a stride: the estimated start of a fault."""
        return int(np.interp(outcome, [p[0] for p in self.points], [p[1] for p in self.points]))


class Watch:
    """A trail for each method; the hook of a replay."""

    def __init__(self, arl: float = 1_000_000) -> None:
        self.arl = arl
        self.trails: dict[str, Trail] = {}
        self._events = 0

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        """Take a chunk in the order of its events; those without an outcome are not read."""
        known = ~np.isnan(chunk.outcomes)
        number = np.arange(self._events + 1, self._events + len(chunk) + 1)
        axis = (number if chunk.times is None else chunk.times)[known]
        self._events += len(chunk)
        for name, values in forecasts.items():
            trail = self.trails.setdefault(name, Trail(self.arl))
            trail.add(values[known], chunk.outcomes[known], chunk.scores[known], axis)
