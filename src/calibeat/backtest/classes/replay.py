"""The replay of a whole log of many classes through the methods: chunks in, tallies out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Any

import numpy as np

from calibeat._util.processes import usable_cores
from calibeat._util.types import Flags, Ints, Vector
from calibeat.backtest.judge.verdict import typical_delay
from calibeat.backtest.read.batch import FIRST_EVENTS, Chunk
from calibeat.backtest.replay.engine import default_warmup
from calibeat.backtest.replay.late import Delays, LearningPlan, Underway
from calibeat.backtest.replay.tally import Blocks

from .intervals import ClassIntervals
from .methods import ClassReplay, columns_of, replay_of
from .tally import ClassTally, Stretches

NUMBERS_IN_PART = 1 << 20  # scores that go through the methods at a time ...
LEAST_IN_PART = 256  # ... or of so many events
LABELS, SCORES, FORECASTS = 0, 1, 2  # rows of `Stretches`

OnForecasts = Callable[[Chunk, dict[str, Vector], Ints], None]


@dataclass(eq=False)
class ClassRunner:
    """A method, and what is kept of its way through the log."""

    name: str
    replay: ClassReplay
    tally: ClassTally
    at_once: tuple[ClassReplay, ClassTally] | None  # the same with labels that arrive at once, where they are late
    age: str = ""
    seconds: float = 0.0


@dataclass(eq=False)
class ClassReplayed:
    """What a replay leaves behind: as `Replayed` has it for measures and delays, and what is counted by class."""

    runners: list[ClassRunner]
    blocks: Blocks
    bins: int
    K: int
    delays: Delays | None
    sums: ClassIntervals
    stretches: Stretches
    ages: None = None
    maturity: None = None
    events: int = 0
    never: int = 0  # events without a label
    too_late: int = 0  # events whose label arrived after the last forecast
    span: tuple[int, int] | None = None
    counts: Vector = field(default_factory=lambda: np.zeros(0))  # of the labels of judged events


def replay_log(
    chunks: Iterator[Chunk],
    methods: Sequence[str],
    *,
    K: int,
    bins: int,
    warmup: int | None,
    on_forecasts: OnForecasts | None = None,
) -> ClassReplayed:
    """Replay every chunk through every method. The first chunk must be the whole log or at least 20,000 events."""
    first = next(chunks)
    late = first.clock is not None
    runners = [
        ClassRunner(
            name, replay_of(name, K), ClassTally(bins, K), (replay_of(name, K), ClassTally(bins, K)) if late else None
        )
        for name in methods
    ]
    known = np.count_nonzero(~np.isnan(first.outcomes[:FIRST_EVENTS]))  # the same however the log is cut
    replayed = ClassReplayed(
        runners,
        Blocks(default_warmup(int(known)) if warmup is None else warmup),
        bins,
        K,
        Delays(timed=first.clock_is_time) if late else None,
        ClassIntervals(len(runners), K, bins, typical_delay(first)),
        Stretches(FORECASTS + len(runners), K),
        counts=np.zeros(K),
    )
    _warm_kernels(first, K)
    with ThreadPoolExecutor(min(len(runners), usable_cores())) as pool:
        loop = _Loop(replayed, on_forecasts, pool.map)
        loop.feed_all(first)
        for chunk in chunks:
            loop.feed_all(chunk)
    replayed.too_late = loop.too_late
    return replayed


def _warm_kernels(first: Chunk, K: int) -> None:
    """Compile or load the kernels before any clock runs: the first part goes through, and nothing of it is kept."""
    part = _part(first, slice(0, max(LEAST_IN_PART, NUMBERS_IN_PART // K)))
    nothing, labels = np.empty(0, dtype=np.int64), columns_of(part.outcomes)
    plan = None if part.clock is None else Underway().plan(replace(part, scores=part.scores[:, 1]))
    for name in ("raw", "fts"):
        forecasts = replay_of(name, K).feed(part, labels, plan, nothing)
    ClassTally(2, K).count_classes(forecasts, labels, np.where(labels < 0, -1, 0), part.scores)


class _Loop:
    """What goes on from chunk to chunk."""

    def __init__(self, replayed: ClassReplayed, on_forecasts: OnForecasts | None, over: Any) -> None:
        self._to, self._on_forecasts, self._map = replayed, on_forecasts, over
        self._underway = Underway()

    @property
    def too_late(self) -> int:
        """How many labels arrived after the last forecast so far."""
        return len(self._underway)

    def feed_all(self, chunk: Chunk) -> None:
        """A chunk in parts, so that forecasts of many classes have room."""
        size = max(LEAST_IN_PART, NUMBERS_IN_PART // self._to.K)
        for at in range(0, len(chunk), size):
            self.feed(_part(chunk, slice(at, at + size)))

    def feed(self, chunk: Chunk) -> None:
        """One part through every method."""
        to, n = self._to, len(chunk)
        labelled = ~np.isnan(chunk.outcomes)
        labels = columns_of(chunk.outcomes)
        plan = self._plan(chunk)
        axis = np.arange(to.events + 1, to.events + n + 1) if chunk.times is None else chunk.times
        tallies = [tally for r in to.runners for tally in (r.tally, *(r.at_once[1:] if r.at_once else ()))]
        place = to.blocks.place(labelled, axis, list(tallies))
        marks = self._marks(axis)

        def through(runner: ClassRunner) -> Vector:
            began = thread_time()
            forecasts = runner.replay.feed(chunk, labels, plan, marks)
            runner.tally.count_classes(forecasts, labels, place, chunk.scores)
            runner.seconds += thread_time() - began
            if runner.at_once is not None:
                _at_once(*runner.at_once, chunk, labels, place, marks)
            return forecasts

        forecasts = list(self._map(through, to.runners))
        to.sums.add_classes(np.array(forecasts), labels, place)
        self._count(chunk, labels, labelled, place, forecasts)
        if self._on_forecasts is not None:
            names = [runner.name for runner in to.runners]
            self._on_forecasts(chunk, dict(zip(names, forecasts, strict=True)), place)

    def _plan(self, chunk: Chunk) -> LearningPlan | None:
        if self._to.delays is None:
            return None
        # Two classes are served by AUTO, which wants the scores of the second.
        plan = self._underway.plan(replace(chunk, scores=np.ascontiguousarray(chunk.scores[:, 1])))
        self._to.delays.count(chunk, self._underway.waited)
        return plan

    def _marks(self, axis: Ints) -> Ints:
        """Events of the part at which biases are noted: where a stretch begins."""
        to, stretches = self._to, self._to.stretches
        for _ in range(stretches.room_for(to.events + len(axis))):
            for runner in to.runners:
                for replay in (runner.replay, *(runner.at_once[:1] if runner.at_once else ())):
                    replay.thin()
        starts = stretches.starts(to.events, len(axis))
        stretches.begin += axis[starts].tolist()
        return starts

    def _count(self, chunk: Chunk, labels: Ints, labelled: Flags, place: Ints, forecasts: list[Vector]) -> None:
        to, first = self._to, self._to.events
        judged = labels[place > 0]
        to.counts += np.bincount(judged, minlength=to.K)
        came = np.zeros(chunk.scores.shape)
        came[np.flatnonzero(labelled), labels[labelled]] = 1.0
        to.stretches.add(LABELS, first, came)
        # Scores and forecasts of events without a label are left out: shares are compared with those of the labels.
        for row, matrix in enumerate([chunk.scores, *forecasts], start=SCORES):
            to.stretches.add(row, first, matrix * labelled[:, None])
        if chunk.times is not None and len(chunk):
            begin = to.span[0] if to.span else int(chunk.times[0])
            to.span = begin, int(chunk.times[-1])
        to.events += len(chunk)
        to.never += len(chunk) - int(np.count_nonzero(labelled))


def _at_once(replay: ClassReplay, tally: ClassTally, chunk: Chunk, labels: Ints, place: Ints, marks: Ints) -> None:
    """As if each label had been known at once."""
    forecasts = replay.feed(chunk, labels, None, marks)
    tally.count_classes(forecasts, labels, place, chunk.scores)


def _part(chunk: Chunk, rows: slice) -> Chunk:
    trace = chunk.trace
    if trace is not None:
        trace = replace(
            trace, rows=trace.rows[rows], files=trace.files[rows], ids=None if trace.ids is None else trace.ids[rows]
        )
    return Chunk(
        chunk.scores[rows],
        chunk.outcomes[rows],
        chunk.slots[rows],
        None if chunk.clock is None else chunk.clock[rows],
        None if chunk.arrivals is None else chunk.arrivals[rows],
        None if chunk.times is None else chunk.times[rows],
        trace,
        chunk.clock_is_time,
    )
