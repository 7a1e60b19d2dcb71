"""The monitors of a calibrator: what they watch, and how they are fed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibeat._util.check import shown
from calibeat._util.types import Ints, Vector
from calibeat.core.auto import Lanes
from calibeat.core.method import Method
from calibeat.core.receipt import LANE
from calibeat.errors import InvalidInput
from calibeat.monitor.monitor import Monitor

from .forecast import Forecast

OURS, RAW, STILL = "ours", "raw", "still"
COLUMNS = (OURS, RAW, STILL)  # the forecasts, the scores, and the lane of AUTO that never moves

Watched = Monitor | Mapping[str, Monitor] | None


class Watch:
    """The monitors of one stream by the column that they watch. Forecast number n is event n of the calibrator."""

    def __init__(self, method: Method, monitor: Watched) -> None:
        given: Any = {OURS: monitor} if isinstance(monitor, Monitor) else {} if monitor is None else monitor
        if not isinstance(given, Mapping) or not all(isinstance(value, Monitor) for value in given.values()):
            raise InvalidInput(f"monitor must be a Monitor or a mapping of Monitors, got {shown(monitor)}")
        for column in given:
            if column not in COLUMNS:
                raise InvalidInput(f"monitor must watch {', '.join(map(repr, COLUMNS))}, got {shown(column)}")
        if STILL in given and not isinstance(method.learner, Lanes):
            raise InvalidInput("monitor of 'still' must have a method with Lanes, such as AUTO, got another method")
        if len({id(value) for value in given.values()}) < len(given):
            raise InvalidInput("monitors must be different objects, got one for two columns")
        self.monitors: dict[str, Monitor] = {column: value._serve() for column, value in given.items()}

    def __bool__(self) -> bool:
        return bool(self.monitors)

    def room(self, events: int) -> Vector:
        """Where a batch notes what the lane that never moves says of each event; none if nobody watches it."""
        return np.empty(events if STILL in self.monitors else 0)

    def announce(self, events: int) -> None:
        """So many forecasts have been made."""
        for monitor in self.monitors.values():
            with monitor._lock:
                monitor._catch_up(events)

    def update(self, forecast: Forecast, y: float) -> None:
        """The outcome of a forecast."""
        for column, monitor in self.monitors.items():
            p, s = forecast.probability, forecast.score
            if column == RAW:
                p, s = s, math.nan  # it has no gain over itself
            elif column == STILL:
                p = forecast.lanes[LANE]
            with monitor._lock:
                monitor._learn(forecast.event, p, y, s)

    def run(
        self,
        events: int,
        scores: Vector,
        forecasts: Vector,
        outcomes: Vector,
        still: Vector,
        due: Ints | None,
        end: int,
    ) -> None:
        """A batch after so many events; of late outcomes those that are due at `end` or after it never come.

        Like `announce` and `update` it may be called again: a monitor that knows of it is left as it is.
        """
        due = None if due is None else np.where(due < end, due, len(scores) + 1)
        columns = {OURS: (forecasts, scores), RAW: (scores, np.full(len(scores), np.nan)), STILL: (still, scores)}
        for column, monitor in self.monitors.items():
            with monitor._lock:
                monitor._catch_up(events)
                p, s = columns[column]
                if monitor._queue.announced == events:
                    monitor._run(p, outcomes, s, due, closed=True)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """For a snapshot."""
        return {"monitors": {column: monitor._state() for column, monitor in self.monitors.items()}}

    @classmethod
    def load(cls, method: Method, data: Any, events: int) -> Watch:
        """The inverse of `dump`, for a stream that has made so many forecasts."""
        if not isinstance(data, dict):
            raise InvalidInput(f"monitors must be an object, got {shown(data)}")
        watch = cls(method, {column: Monitor() for column in data})
        watch.monitors = {column: Monitor._restored(state) for column, state in data.items()}
        for monitor in watch.monitors.values():
            if monitor.waiting.forecasts > events:
                raise InvalidInput(f"monitors must have at most {events} forecasts, got {monitor.waiting.forecasts}")
            monitor._hosted = True
        return watch
