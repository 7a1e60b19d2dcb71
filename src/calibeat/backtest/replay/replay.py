"""Replay: a log through one method, chunk after chunk, each outcome learnt when it arrived.

Forecasts have the same bits as those of `Calibrator.run` over the whole log, however it is cut into chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.core.layout import CELLS, N
from calibeat.core.loops import NO_SLOTS, place_before, run, run_late
from calibeat.core.method import Method
from calibeat.stream.dispatch import for_batch
from calibeat.stream.history import History

from .chunk import Chunk, Plan

_NOTHING = np.empty(0, dtype=np.int64)


class Replay:
    """One method on its way through the log: a row for every stream, and the receipts of what is under way."""

    def __init__(self, method: Method, *, raw_first: bool = False) -> None:
        self.method = method
        self.raw_first = raw_first  # whether a stream forecasts the raw score until it has learnt an outcome
        self.hedges = method.draws
        self.trail: list[Vector] = []  # the row without its cells, at the marks asked for
        self._initial = method.initial_row()
        self._rows = self._initial.copy()
        self._history = History(method)
        self._made = 0
        self._cells, self._receipts = _NOTHING, np.empty(0)

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, streams: int, marks: Ints = _NOTHING) -> Vector:
        """The forecasts of a chunk; `plan` where outcomes are late; `marks` are events at which to note the row."""
        self._open(streams)
        learnt = int(self._rows[N])
        self._history.reserve(learnt, len(chunk) if plan is None else len(plan.order))
        forecasts = self._feed_now(chunk, draws, marks) if plan is None else self._feed_late(plan, draws, marks)
        self._history.forget(int(self._rows[N]))
        self._made += len(chunk)
        return forecasts

    def _feed_now(self, chunk: Chunk, draws: Vector, marks: Ints) -> Vector:
        forecasts, receipt = np.empty(len(chunk)), np.empty(self.method.receipt_width)
        events = chunk.scores, chunk.outcomes, draws, forecasts, receipt
        self._play(run, chunk.slots, events, (0, len(chunk)), marks)
        return forecasts

    def _feed_late(self, plan: Plan, draws: Vector, marks: Ints) -> Vector:
        width, total = self.method.receipt_width, len(plan.scores)
        forecasts, cells, receipts = np.empty(total), np.empty(total, dtype=np.int64), np.empty((total, width))
        cells[: plan.first] = self._cells
        receipts[: plan.first] = self._receipts.reshape(plan.first, width)
        events = plan.scores, plan.outcomes, draws, forecasts, receipts.reshape(-1)
        streams = len(self._rows) // len(self._initial)
        late = plan.first, cells, plan.due, plan.order, streams if self.raw_first else 0
        # To forecast does not move a row: a row is noted after its event, so after the outcomes that came before it.
        self._play(run_late, plan.slots, events, (plan.first, total), plan.first + marks + 1, *late)
        self._cells, self._receipts = cells[plan.left], receipts[plan.left].reshape(-1)
        return forecasts[plan.first :]

    def _play(
        self, loop: Any, slots: Ints, events: tuple[Vector, ...], span: tuple[int, int], stops: Ints, *late: Any
    ) -> None:
        """The loop over the span of events; it stops where a row is to be noted and where a refit is due."""
        width = len(self._initial)
        streams = len(self._rows) // width
        known = slots.astype(np.int32) if streams > 1 else NO_SLOTS
        rows: tuple[Any, ...] = self._rows, width, known, 0, streams, 0
        play = for_batch(loop, self.method, span[1] - span[0])
        place, history = place_before(span[0]), self._history
        for at, stop in enumerate([*stops.tolist(), span[1]]):
            while play(self.method.spec, *rows, float(self._made), *events, *history.columns, place, stop, *late):
                history.refit(self._rows)
            if at < len(stops):
                self.trail.append(self._noted())

    def _noted(self) -> Vector:
        """The row without its cells, which say nothing of the parameters."""
        tail = [] if self.method.learner is None else self.method.learner.tail()
        row = self._rows[: len(self._initial)]
        return np.concatenate([row[: int(self.method.spec[CELLS])], row[len(row) - len(tail) :]])

    def _open(self, streams: int) -> None:
        """Room for so many streams, each starting from nothing."""
        width = len(self._initial)
        have = len(self._rows) // width
        if streams > have:
            more = max(streams, have + have // 2) - have
            self._rows = np.concatenate([self._rows, np.tile(self._initial, more)])
