"""Replay: a log through one method, chunk after chunk, each outcome learnt when it arrived.

Forecasts have the same bits as those of `Calibrator.run` over the whole log, however it is cut into chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.types import Vector
from calibeat.core import kernel as kernels
from calibeat.core.calibeating import HEDGE, Hedging
from calibeat.core.jit import compiled, kernel
from calibeat.core.kernel import CALIBEATER, CELLS, RECEIPT, predict, remember, settle, update
from calibeat.core.learners import REFIT
from calibeat.core.method import Method
from calibeat.stream.history import History

from .chunk import Chunk, Plan, Whole

_NOTHING = np.empty(0, dtype=np.int64)


class Replay:
    """One method on its way through the log: a row for every stream, and the receipts of what is under way."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.hedges = isinstance(method.calibeater, Hedging)
        self.trail: list[Vector] = []  # the row before its calibeater's cells, at the marks asked for
        self._initial = method.initial_row()
        self._rows = self._initial.copy()
        self._history = History(method)
        self._made = 0
        self._played, self._receipts = _NOTHING, np.empty(0)

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, streams: int, marks: Whole = _NOTHING) -> Vector:
        """The forecasts of a chunk; `plan` where outcomes are late; `marks` are events at which to note the row."""
        self._open(streams)
        forecasts = np.empty(len(chunk))
        trail = np.empty(len(marks) * int(self.method.spec[CELLS]))
        learnt = int(self._rows[kernels.N])
        self._history.reserve(learnt, len(chunk) if plan is None else len(plan.order))
        common: tuple[Any, ...] = self.method.spec, self._rows, len(self._initial), float(self._made)
        if plan is None:
            loop: Any = compiled(replay_now)
            loop(
                *common, chunk.slots, chunk.scores, chunk.outcomes, draws, forecasts,
                np.empty(self.method.receipt_width), *self._history.columns, marks, trail,
            )  # fmt: skip
        else:
            self._feed_late(common, plan, draws, forecasts, marks, trail)
        self._history.forget(int(self._rows[kernels.N]))
        self._made += len(chunk)
        if len(marks):
            self.trail.extend(trail.reshape(len(marks), -1))
        return forecasts

    def _feed_late(
        self, common: tuple[Any, ...], plan: Plan, draws: Vector, forecasts: Vector, marks: Whole, trail: Vector
    ) -> None:
        width, total = self.method.receipt_width, len(plan.scores)
        played = np.empty(total, dtype=np.int64)
        played[: plan.first] = self._played
        receipts = np.empty((total, width))
        receipts[: plan.first] = self._receipts.reshape(plan.first, width)
        loop: Any = compiled(replay_late)
        loop(
            *common, plan.slots, plan.scores, plan.outcomes, draws, forecasts, receipts.reshape(-1),
            *self._history.columns, marks, trail, plan.first, played, plan.due, plan.order,
        )  # fmt: skip
        self._played, self._receipts = played[plan.left], receipts[plan.left].reshape(-1)

    def _open(self, streams: int) -> None:
        """Room for so many streams, each starting from nothing."""
        width = len(self._initial)
        have = len(self._rows) // width
        if streams > have:
            more = max(streams, have + have // 2) - have
            self._rows = np.concatenate([self._rows, np.tile(self._initial, more)])


@kernel
def replay_now(
    spec: Vector, rows: Vector, width: int, t: float, slots: Whole, scores: Vector, outcomes: Vector, u: Vector,
    forecasts: Vector, q: Vector, h0: Vector, h1: Vector, hy: Vector, dropped: int, marks: Whole, trail: Vector,
) -> None:  # fmt: skip
    """Predict, then learn, each event on the row of its stream; t forecasts were made before, in all streams."""
    hedged = spec[CALIBEATER] == HEDGE
    marked = 0
    for i in range(len(scores)):
        row = rows[slots[i] * width : (slots[i] + 1) * width]
        if marked < len(marks) and marks[marked] == i:
            note(spec, row, trail, marked)
            marked += 1
        said = predict(spec, row, scores[i], u[i] if hedged else 0.0, q, 0)
        forecasts[i] = said[0]
        settle(spec, row, t + i + 1.0, said[2], said[3], said[4], said[5], said[6], said[1], outcomes[i], q, 0)
        if spec[kernels.LEARNER] == REFIT:
            remember(spec, row, said[2], said[3], outcomes[i], h0, h1, hy, dropped)


@kernel
def replay_late(
    spec: Vector, rows: Vector, width: int, t: float, slots: Whole, scores: Vector, outcomes: Vector, u: Vector,
    forecasts: Vector, q: Vector, h0: Vector, h1: Vector, hy: Vector, dropped: int, marks: Whole, trail: Vector,
    first: int, played: Whole, due: Whole, order: Whole,
) -> None:  # fmt: skip
    """Predict every event from `first` on; outcome i, also of an event before `first`, is learnt just before
    prediction due[i]. `order` sorts by (due, i)."""
    hedged = spec[CALIBEATER] == HEDGE
    receipt = int(spec[RECEIPT])
    arrived = marked = 0
    for i in range(first, len(scores)):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            row = rows[slots[j] * width : (slots[j] + 1) * width]
            update(
                spec, row, t + (i - first), scores[j], played[j], outcomes[j], q, j * receipt, h0, h1, hy, dropped
            )  # fmt: skip
            arrived += 1
        row = rows[slots[i] * width : (slots[i] + 1) * width]
        if marked < len(marks) and marks[marked] == i - first:
            note(spec, row, trail, marked)
            marked += 1
        said = predict(spec, row, scores[i], u[i - first] if hedged else 0.0, q, i * receipt)
        forecasts[i - first], played[i] = said[0], said[1]


@kernel
def note(spec: Vector, row: Vector, trail: Vector, at: int) -> None:
    """Copy the row up to the calibeater's cells to place `at` of the trail."""
    kept = int(spec[CELLS])
    for k in range(kept):
        trail[at * kept + k] = row[k]
