"""The monitors of a bank beside its batches: each part of the slots is served, then watched, by the same thread."""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.monitor.monitors import Monitors

from .threads import Part, Serve


class Watching:
    """A batch as the monitors see it; without monitors, nothing."""

    def __init__(
        self,
        monitors: Monitors | None,
        slots: Slots,
        scores: Vector,
        forecasts: Vector,
        outcomes: Vector,
        due: Ints | None,
    ) -> None:
        self._monitors, self._slots, self._due = monitors, slots, due
        self._scores, self._forecasts, self._outcomes = scores, forecasts, outcomes
        if monitors is not None:
            at_once = monitors.at_once(slots, due)
            self._read_at_once = np.where(at_once, outcomes, -1.0)
            self._others = np.flatnonzero(~at_once)
            self._watch(monitors, (0, 0))  # a first compilation happens here, before anything has changed

    def beside(self, serve: Serve) -> Serve:
        """What serves a part and then watches it."""
        monitors = self._monitors
        if monitors is None:
            return serve

        def both(part: Part) -> None:
            serve(part)
            self._watch(monitors, part)

        return both

    def _watch(self, monitors: Monitors, part: Part) -> None:
        slots = self._slots
        monitors.read(slots, *part, self._forecasts, self._read_at_once, self._scores)
        inside = (slots[self._others] >= part[0]) & (slots[self._others] < part[1])
        monitors.read_late(slots, self._forecasts, self._outcomes, self._scores, self._due, self._others[inside])
