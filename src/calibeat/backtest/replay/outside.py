"""Contenders that are no method of one stream per key: rivals, columns of the log, other scores, other kinds of keys.

Each is replayed chunk after chunk as a `Replay` is, and learns each outcome when it is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.bank.start import pool_late_rows, pool_rows
from calibeat.core.jit import for_size
from calibeat.core.method import Method
from calibeat.rivals.play import Rival, maker_of, play

from .chunk import Chunk, Plan
from .replay import Replay

_NOTHING: Ints = np.empty(0, dtype=np.int64)


class AnyReplay(Protocol):
    """What the engine and the judge ask of a replay."""

    hedges: bool
    trail: list[Vector]

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, streams: int, marks: Ints = ...) -> Vector:
        """The forecasts of a chunk."""


@dataclass(frozen=True, eq=False, repr=False)
class Outside(Method):
    """Stands where a method stands, and has no parts: there is no regret and no guarantee to tell of it."""

    about: str = ""
    make: Callable[[bool], AnyReplay] | None = None  # with True: a stream forecasts the raw score before it has learnt
    base: Method | None = None  # the method that is replayed in another way, where there is one:
    one_stream: bool = False  # without keys, or ...
    pooled: bool = False  # ... with a pooled start

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.about


def replay_of(method: Method, *, raw_first: bool) -> AnyReplay:
    """The replay of a method, or of what stands where one stands."""
    if isinstance(method, Outside) and method.make is not None:
        return method.make(raw_first)
    return Replay(method, raw_first=raw_first)


# ---- rivals ------------------------------------------------------------------------------------------------------


def rival_method(thing: Any, name: str, about: str = "") -> Outside:
    """An object with `predict` and `update`, or what makes one; each stream gets its own."""
    make = maker_of(thing, name)
    shown = about or f"A rival: {getattr(thing, '__qualname__', type(thing).__qualname__)}."
    return Outside(about=shown, make=lambda raw_first: RivalReplay(make, name, raw_first=raw_first))


class RivalReplay:
    """A rival on its way through the log, one object a stream."""

    hedges = False

    def __init__(self, make: Callable[[], Rival], name: str, *, raw_first: bool = False) -> None:
        self._make, self._name, self._raw_first = make, name, raw_first
        self._rivals: list[Rival] = [make()]  # what cannot be made is told before the log is read
        self._learnt = np.zeros(1, dtype=np.int64)
        self._made = 0
        self.trail: list[Vector] = []

    def feed(self, chunk: Chunk, plan: Plan | None, _: Vector, streams: int, __: Ints = _NOTHING) -> Vector:
        """The forecasts of a chunk; `plan` where outcomes are late."""
        self._rivals += [self._make() for _ in range(streams - len(self._rivals))]
        self._learnt = np.concatenate([self._learnt, np.zeros(streams - len(self._learnt), dtype=np.int64)])
        if plan is None:
            n = len(chunk)
            order = np.flatnonzero(~np.isnan(chunk.outcomes))
            plan = Plan(0, chunk.scores, chunk.outcomes, chunk.slots, np.arange(1, n + 1), order, _NOTHING)
        forecasts = play(
            self._rivals.__getitem__,
            plan.slots.tolist(),
            plan.scores,
            plan.outcomes,
            plan.due.tolist(),
            plan.order.tolist(),
            first=plan.first,
            name=self._name,
            begin=self._made,
        )
        if self._raw_first:
            self._raw_until_learnt(plan, forecasts)
        self._made += len(chunk)
        return forecasts

    def _raw_until_learnt(self, plan: Plan, forecasts: Vector) -> None:
        """A stream that had learnt nothing when an event came has forecast its raw score."""
        when = np.where(self._learnt > 0, -1, len(plan.scores) + 1)
        np.minimum.at(when, plan.slots[plan.order], plan.due[plan.order])
        events = np.arange(plan.first, len(plan.scores))
        early = when[plan.slots[plan.first :]] > events
        forecasts[early] = plan.scores[plan.first :][early]
        np.add.at(self._learnt, plan.slots[plan.order], 1)


# ---- columns of the log ------------------------------------------------------------------------------------------


def column_method(at: int, about: str) -> Outside:
    """Forecasts that stand in the log."""
    return Outside(about=about, make=lambda _: ColumnReplay(at))


class ColumnReplay:
    """The forecasts of a column: nothing is learnt."""

    hedges = False

    def __init__(self, at: int) -> None:
        self._at = at
        self.trail: list[Vector] = []

    def feed(self, chunk: Chunk, _: Plan | None, __: Vector, ___: int, ____: Ints = _NOTHING) -> Vector:
        """The column."""
        return other_column(chunk, self._at)


def other_column(chunk: Chunk, at: int) -> Vector:
    """A column of the chunk that is neither score nor outcome."""
    if chunk.others is None:  # pragma: no cover - who asks for a column has told the reader to read it
        raise TypeError("a chunk without other columns has none to give")
    return np.ascontiguousarray(chunk.others[:, at])


def other_score_method(method: Method, at: int, about: str) -> Outside:
    """A method that sees the scores of another model."""
    return Outside(about=about, make=lambda raw_first: OtherScore(method, at, raw_first=raw_first), base=method)


class OtherScore(Replay):
    """A method whose scores stand in another column."""

    def __init__(self, method: Method, at: int, *, raw_first: bool = False) -> None:
        super().__init__(method, raw_first=raw_first)
        self._at = at
        self._waiting = np.empty(0)  # the scores of events under way

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, streams: int, marks: Ints = _NOTHING) -> Vector:
        """The forecasts of a chunk."""
        scores = other_column(chunk, self._at)
        if plan is not None:
            waiting = np.concatenate([self._waiting, scores])
            plan, self._waiting = replace(plan, scores=waiting), waiting[plan.left]
        return super().feed(replace(chunk, scores=scores), plan, draws, streams, marks)


# ---- other kinds of keys -----------------------------------------------------------------------------------------


class OneStream(Replay):
    """A method that does not look at keys."""

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, _: int, marks: Ints = _NOTHING) -> Vector:
        """The forecasts of a chunk."""
        mine = replace(chunk, slots=np.zeros_like(chunk.slots))
        plan = None if plan is None else replace(plan, slots=np.zeros_like(plan.slots))
        return super().feed(mine, plan, draws, 1, marks)


class PooledStart(Replay):
    """A method whose new keys start from what all keys have taught, as ``Bank(prior="pooled")`` has it."""

    def __init__(self, method: Method, *, raw_first: bool = False) -> None:
        super().__init__(method, raw_first=raw_first)
        self._pool = method.initial_row()
        self._slot_of = np.empty(0, dtype=np.int64)  # of a stream: its slot, in the order of first events; -1: none yet
        self._opened = 0

    def feed(self, chunk: Chunk, plan: Plan | None, draws: Vector, streams: int, marks: Ints = _NOTHING) -> Vector:
        """The forecasts of a chunk."""
        opened = self._opened
        mine = replace(chunk, slots=self._slots(chunk.slots, streams))
        self._open(self._opened)
        rows = self.method.spec, self._pool, self._initial, self._rows, len(self._initial)
        receipt = np.empty(self.method.receipt_width)
        if plan is None:
            slots = mine.slots.astype(np.int32)
            for_size(pool_rows, len(chunk))(*rows, slots, opened, chunk.scores, chunk.outcomes, receipt)
        else:
            plan = replace(plan, slots=self._slot_of[plan.slots])
            slots, lists = plan.slots.astype(np.int32), _arrivals(plan)
            for_size(pool_late_rows, len(chunk))(*rows, slots, opened, plan.scores, plan.outcomes, *lists, receipt)
        return super().feed(mine, plan, draws, self._opened, marks)

    def _slots(self, streams_of: Ints, streams: int) -> Ints:
        """Slots in the order of first events, as the pool's loop wants them."""
        self._slot_of = np.concatenate([self._slot_of, np.full(max(0, streams - len(self._slot_of)), -1)])
        seen, first = np.unique(streams_of, return_index=True)
        new = self._slot_of[seen] < 0
        order = seen[new][np.argsort(first[new], kind="stable")]
        self._slot_of[order] = self._opened + np.arange(len(order))
        self._opened += len(order)
        return self._slot_of[streams_of]


def _arrivals(plan: Plan) -> tuple[Ints, Ints]:
    """Before event i the outcomes of arriving[i], following[arriving[i]], ... arrive; -1 ends the list."""
    arriving, following = np.full((2, len(plan.scores)), -1)
    due = plan.due[plan.order]
    again = due[1:] == due[:-1]
    following[plan.order[:-1][again]] = plan.order[1:][again]
    begins = np.concatenate([[True], ~again])[: len(due)]
    arriving[due[begins]] = plan.order[begins]
    return arriving, following
