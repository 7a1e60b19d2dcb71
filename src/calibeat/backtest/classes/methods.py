"""The methods of a backtest of many classes, each on its way through a log, chunk after chunk.

Forecasts have the same bits as those of `MultiCalibrator.run` over the whole log, however it is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.backtest.read.batch import Chunk
from calibeat.backtest.replay.contenders import Context, MethodReplay
from calibeat.backtest.replay.late import LearningPlan
from calibeat.core import vector as layout
from calibeat.core import vector as loops
from calibeat.core.jit import for_cost
from calibeat.core.method import AUTO, params_of
from calibeat.errors import InvalidInput, UnknownMethod
from calibeat.hosts.multi import PLAIN_SECONDS

from . import temperature
from .temperature import FIXED, SLIDING, Refits

RAW = "raw"
METHODS = (RAW, "fts", "swts", "ots", "multi")
LABELS = {RAW: "raw", "fts": "FTS", "swts": "SWTS", "ots": "OTS", "multi": "MULTI"}
ABOUT = {
    RAW: "The model's scores as they came, with a floor of 1e-7.",
    "fts": "Temperature scaling fitted once, on the first 1,000 labels: what most people deploy.",
    "swts": "Temperature scaling fitted again every 500 labels on the last 2,000.",
    "ots": "Online temperature scaling: one number, one Newton step per label.",
    "multi": "calibeat's own: temperature, class priors and confusions at several speeds of drift, mixed by log-loss.",
}
PAIR = "calibeat's own: two classes are served by AUTO."


def chosen(asked: Any) -> list[str]:
    """The methods asked for, the raw scores first; all of them if nobody asked.

    >>> chosen("multi,ots")
    ['raw', 'multi', 'ots']
    """
    if asked is None:
        return list(METHODS)
    names = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(names, Iterable):
        raise InvalidInput(f"methods must be names, got {type(names).__name__} {names!r:.60}")
    found = [str(name).strip().lower() for name in names]
    if not found:
        raise InvalidInput("methods must name one at least, got none")
    for name in found:
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise UnknownMethod(f"method must be one of {known}, got {name!r}{did_you_mean(name, METHODS)}")
    return list(dict.fromkeys([RAW, *found]))


class ClassReplay(Protocol):
    """A method on its way through the log."""

    def feed(self, chunk: Chunk, labels: Ints, plan: LearningPlan | None, marks: Ints) -> Vector:
        """The forecasts of a chunk, a matrix; `plan` where labels are late, -1 where one is never known.

        `marks` are events of the chunk: before each, the biases are noted.
        """
        ...

    @property
    def trail(self) -> list[Vector]:
        """The bias of each class at the marks; empty for a method that has none."""
        ...

    def thin(self) -> None:
        """Forget every other point of the trail."""
        ...


def replay_of(name: str, K: int) -> ClassReplay:
    """A method at its start."""
    if name == "multi" and K == 2:
        return PairReplay()
    if name in ("fts", "swts"):
        return TemperatureReplay(FIXED if name == "fts" else SLIDING, K)
    return VectorReplay(name, K)


class VectorReplay:
    """The methods of a `MultiCalibrator` ("raw", "ots" and "multi"), by the loops of `MultiBank`."""

    def __init__(self, name: str, K: int) -> None:
        self.method, self.K = layout.CODES[name], K
        self.row = layout.initial_row(self.method, K)
        self.trail: list[Vector] = []
        self._work = layout.scratch(K)
        self._width = layout.receipt_width(self.method, K)
        self._made = 0
        self._receipts, self._forecasts = np.empty((0, self._width)), np.empty((0, K))

    def feed(self, chunk: Chunk, labels: Ints, plan: LearningPlan | None, marks: Ints) -> Vector:
        forecasts = self._at_once(chunk.scores, labels, marks) if plan is None else self._late(chunk, plan, marks)
        self._made += len(chunk)
        return forecasts

    def _at_once(self, scores: Vector, labels: Ints, marks: Ints) -> Vector:
        forecasts, receipt = np.empty(scores.shape), np.empty(self._width)
        slots = np.zeros(len(scores), dtype=np.int64)
        run = for_cost(loops.run_rows, PLAIN_SECONDS * scores.size)
        for begin, end in self._parts(marks, 0, len(scores)):
            run(
                self.method,
                self.K,
                self.row,
                len(self.row),
                slots[begin:end],
                scores[begin:end].reshape(-1),
                labels[begin:end],
                forecasts[begin:end].reshape(-1),
                receipt,
                self._work,
            )
        return forecasts

    def _late(self, chunk: Chunk, plan: LearningPlan, marks: Ints) -> Vector:
        first, total, K = plan.first, len(plan.outcomes), self.K
        forecasts, receipts = np.empty((total, K)), np.empty((total, self._width))
        forecasts[:first], receipts[:first] = self._forecasts, self._receipts
        run = for_cost(loops.run_late, PLAIN_SECONDS * chunk.scores.size)
        arrived = 0
        for begin, end in self._parts(marks + first, first, total):
            arrived = run(
                self.method,
                K,
                self.row,
                float(self._made),
                chunk.scores.reshape(-1),
                columns_of(plan.outcomes),
                forecasts.reshape(-1),
                receipts.reshape(-1),
                self._work,
                plan.due,
                plan.order,
                first,
                begin,
                end,
                arrived,
            )
        self._forecasts, self._receipts = forecasts[plan.left], receipts[plan.left]
        return forecasts[first:]

    def _parts(self, marks: Ints, begin: int, end: int) -> Iterable[tuple[int, int]]:
        """The stretches between the marks; the biases are noted before each but the first."""
        for mark in marks.tolist():
            yield begin, mark
            self._note()
            begin = mark
        yield begin, end

    def thin(self) -> None:
        del self.trail[1::2]

    def _note(self) -> None:
        if self.method == layout.MULTI:
            lanes = self.row[layout.BIAS : layout.BIAS + 8 * self.K].reshape(4, 2, self.K)[:, 0]
            self.trail.append(self.row[layout.W : layout.W + 4] @ lanes)


class TemperatureReplay:
    """Temperature scaling that is fitted once, or again and again on a window."""

    def __init__(self, refits: Refits, K: int) -> None:
        self.refits, self.K = refits, K
        self.trail: list[Vector] = []
        self.state = np.array([1.0, 0.0])
        self._x, self._y = np.zeros(refits.window * K), np.zeros(refits.window, dtype=np.int64)
        self._scores = np.empty((0, K))

    def feed(self, chunk: Chunk, labels: Ints, plan: LearningPlan | None, marks: Ints) -> Vector:  # noqa: ARG002 - no biases
        if plan is None:
            first, scores, columns = 0, chunk.scores, labels
            due, order = np.arange(1, len(labels) + 1), np.flatnonzero(labels >= 0)
        else:
            first, scores = plan.first, np.concatenate([self._scores, chunk.scores])
            columns, due, order = columns_of(plan.outcomes), plan.due, plan.order
        forecasts = np.empty((len(columns) - first, self.K))
        for_cost(temperature.replay, PLAIN_SECONDS * scores.size)(
            self.K,
            self.state,
            self._x,
            self._y,
            self.refits.after,
            self.refits.every,
            scores.reshape(-1),
            columns,
            forecasts.reshape(-1),
            first,
            due,
            order,
            np.empty(2 * self.K),
        )
        if plan is not None:
            self._scores = scores[plan.left]
        return forecasts

    def thin(self) -> None:
        """It has no trail."""


class PairReplay:
    """Two classes: AUTO on the second column."""

    def __init__(self) -> None:
        self._replay = MethodReplay(AUTO)

    def feed(self, chunk: Chunk, labels: Ints, plan: LearningPlan | None, marks: Ints) -> Vector:  # noqa: ARG002 - as others
        one = Chunk(np.ascontiguousarray(chunk.scores[:, 1]), chunk.outcomes, np.zeros(len(chunk), dtype=np.int64))
        p = self._replay.feed(Context(one, plan, np.zeros(len(chunk)), 1, marks))
        return np.stack([1.0 - p, p], axis=1)

    @property
    def trail(self) -> list[Vector]:
        return [np.array([0.0, float(params_of(AUTO, row.tolist())["b"])]) for row in self._replay.trail]

    def thin(self) -> None:
        del self._replay.trail[1::2]


def columns_of(outcomes: Vector) -> Ints:
    """The column of each label; -1 where there is none."""
    return np.where(np.isnan(outcomes), -1.0, outcomes).astype(np.int64)
