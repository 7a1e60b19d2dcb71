"""The replay of a whole log through many contenders: chunks in, tallies out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from time import thread_time
from typing import Any

import numpy as np

from calibeat._util.processes import usable_cores
from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Maturity
from calibeat.backtest.read.rows import FIRST_EVENTS, Chunk
from calibeat.core.randomness import numbered, stream_key, uniforms_at

from .contenders import (
    AnyMethod,
    AnyReplay,
    Contender,
    Context,
    KeyVariants,
    MethodReplay,
    PooledReplay,
    auto_or_first,
    parted,
)
from .late import Ages, Delays, LearningPlan, Underway, ages_of
from .tally import Blocks, Counted, Issued, ScoreTally, Tally, judged

MOST_MARKS = 300  # points of a trajectory
MOST_KEYS_WITH_CE = 20_000  # a calibration error per key takes bins x 8 bytes a method
MOST_WARM_UP = 1000  # outcomes
NUMBERS_IN_PART = 1 << 20  # scores that go through the methods at a time ...
LEAST_IN_PART = 256  # ... or of so many events

OnForecasts = Callable[[Chunk, dict[str, Vector], Ints, Issued], None]


def default_warmup(outcomes: int) -> int:
    """A twentieth of the outcomes among the first 20,000 events: 1,000 where each has one.

    >>> default_warmup(20_000), default_warmup(962)
    (1000, 48)
    """
    return min(MOST_WARM_UP, outcomes // 20)


@dataclass(eq=False)
class Runner:
    """A contender, and what is kept of its way through the log."""

    contender: Contender
    replay: AnyReplay
    tally: Tally
    at_once: tuple[AnyReplay, Tally] | None  # the same with outcomes that arrive at once, where they are late
    underway: Underway | None = None  # where it learns outcomes at another age than the rest of the replay
    expert: Runner | None = None  # whose forecasts are the scores of this replay: of a calibeater alone
    pool: Runner | None = None  # whose stream new keys of this replay start from
    own_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Of the contender."""
        return self.contender.name

    @property
    def method(self) -> AnyMethod | None:
        """Of the contender; None where it is no method with a stream for each key."""
        return self.contender.method

    @property
    def trail(self) -> list[Vector]:
        """What its parameters were at the marks."""
        return (self.expert or self).replay.trail

    @property
    def seconds(self) -> float:
        """That the method took, with its expert or its pool."""
        first = self.expert or self.pool
        return self.own_seconds + (first.own_seconds if first else 0.0)


@dataclass(eq=False)
class Replayed:
    """What a replay leaves behind."""

    runners: list[Runner]
    blocks: Blocks
    bins: int
    keyed: bool
    delays: Delays | None
    maturity: Maturity | None = None  # the age at which every method learns outcomes
    ages: Ages | None = None  # of ones and of zeros, where outcomes have times of arrival
    scores: ScoreTally = field(default_factory=ScoreTally)
    events: int = 0
    never: int = 0  # events without an outcome
    too_late: int = 0  # events whose outcome arrived after the last forecast
    totals: Vector = field(default_factory=lambda: np.zeros(2))  # of judged events: raw forecasts, outcomes (`Judged`)
    streams: int = 1
    numbers: int = 1  # of a forecast: K, where there are many classes
    marks: list[int] = field(default_factory=list)  # events at which the rows were noted ...
    mark_times: list[int] = field(default_factory=list)  # ... and when they were
    span: tuple[int, int] | None = None
    key_variants: KeyVariants | None = None  # one method with keys, without, and with a pooled start


def replay_log(
    chunks: Iterator[Chunk],
    contenders: Sequence[Contender],
    *,
    bins: int,
    warmup: int | None,
    keyed: bool,
    seed: int,
    names: Sequence[str],
    maturity: Maturity | None = None,
    on_forecasts: OnForecasts | None = None,
) -> Replayed:
    """Replay every chunk through every contender. The first chunk must be the whole log or at least 20,000 events.

    `names` are those of the streams so far: the list grows while the log is read. `on_forecasts` gets each chunk with
    its forecasts, the block in which each event was counted, and all of `Issued`: memory that the next chunk uses
    again. With a maturity all contenders learn outcomes at that age. Without, if ones and zeros come at clearly
    different ages in the first 20,000 events, one contender more is replayed: AUTO (or the first method) with such an
    age.
    """
    first = next(chunks)
    late, numbers = first.clock is not None, first.numbers
    runners = []
    for contender in contenders:
        at_once = None
        ours = contender.method is not None and not contender.needs_history
        if late and (ours or contender.refits is not None or contender.is_base_rate):
            at_once = contender.start(False), Tally(bins, numbers)
        runners.append(Runner(contender, contender.start(maturity is not None), Tally(bins, numbers), at_once))
    ages = Ages() if first.clock_is_time and numbers == 1 else None
    if maturity is None and ages is not None:
        runners += _with_maturity(first, contenders, bins)
    if not late:
        _share_experts(runners)
        _share_pool(runners)
    known = np.count_nonzero(~np.isnan(first.outcomes[:FIRST_EVENTS]))  # the same however the log is cut
    blocks = Blocks(default_warmup(int(known)) if warmup is None else warmup)
    delays = Delays(timed=first.clock_is_time) if late else None
    replayed = Replayed(runners, blocks, bins, keyed, delays, maturity, ages, numbers=numbers)
    # Contenders share no state, and compiled kernels release the interpreter: each thread takes a contender.
    with ThreadPoolExecutor(min(len(runners), usable_cores())) as pool:
        loop = _ReplayLoop(replayed, seed, names, on_forecasts, pool.map)
        for chunk in chain([first], chunks):
            size = max(LEAST_IN_PART, NUMBERS_IN_PART // numbers)  # forecasts of many classes need room
            for at in range(0, len(chunk), size):
                loop.feed(chunk if len(chunk) <= size else chunk.part(slice(at, at + size)))
    return replayed


def _with_maturity(first: Chunk, contenders: Sequence[Contender], bins: int) -> list[Runner]:
    """AUTO, or the first method, with outcomes of one age, if ones and zeros come at clearly different ages."""
    ages = ages_of(first.part(slice(0, FIRST_EVENTS)))  # the same however the log is cut
    contender = auto_or_first(contenders)
    if contender is None or not ages.differ:
        return []
    maturity, age = ages.maturity
    return [Runner(contender.maturing(age), contender.start(True), Tally(bins), None, Underway(maturity))]


def _share_experts(runners: list[Runner]) -> None:
    """Of TOPS and HOPS only the calibeaters are replayed, on the forecasts of OPS, where that is replayed too."""
    for runner in runners:
        parts = parted(runner.method)
        expert = next((each for each in runners if parts and each.method == parts[0]), None)
        if parts and expert and isinstance(runner.replay, MethodReplay):
            runner.expert, runner.replay = expert, MethodReplay(parts[1])


def _share_pool(runners: list[Runner]) -> None:
    """A pool is a stream that learns from all events: the one without keys, where that is replayed too."""
    for runner in runners:
        if isinstance(runner.replay, PooledReplay):
            lean_on = runner.replay.lean_on
            runner.pool = next((each for each in runners if lean_on(each.replay)), None)


class _ReplayLoop:
    """What goes on from chunk to chunk."""

    def __init__(
        self, replayed: Replayed, seed: int, names: Sequence[str], on_forecasts: OnForecasts | None, over: Any
    ) -> None:
        self._to, self._seed, self._names, self._on_forecasts, self._map = replayed, seed, names, on_forecasts, over
        self._underway = None if replayed.delays is None else Underway(replayed.maturity)
        self._stride = 1
        self._issued: Issued | None = None
        self._made = np.empty(0)  # forecasts per stream, for the draws ...
        self._keys = np.empty(0, dtype=np.uint64)  # ... which these keys name

    def feed(self, chunk: Chunk) -> None:
        """One chunk through every contender."""
        to, streams = self._to, max(1, len(self._names))
        labelled = ~np.isnan(chunk.outcomes)
        plan = self._plan(chunk)
        tallies = [tally for r in to.runners for tally in (r.tally, *(r.at_once[1:] if r.at_once else ()))]
        axis = np.arange(to.events + 1, to.events + len(chunk) + 1) if chunk.times is None else chunk.times
        place = to.blocks.place(labelled, axis, tallies)
        marks = self._marks(chunk)
        draws = self._draws(chunk)
        if to.numbers == 1:
            to.scores.count(chunk.scores, chunk.outcomes, place)
        context, issued = Context(chunk, plan, draws, streams, marks), self._room(chunk)
        self._family(0, context, place, issued)  # the raw score goes first: the others are compared with it
        heads = [at for at, runner in enumerate(to.runners) if at and runner.expert is None and runner.pool is None]
        list(self._map(lambda at: self._family(at, context, place, issued), heads))
        self._count(chunk, issued.forecasts[0], place, streams)
        if self._on_forecasts is not None:
            forecasts = {runner.name: issued.forecasts[at] for at, runner in enumerate(to.runners)}
            self._on_forecasts(chunk, forecasts, place, issued)

    def _family(self, at: int, context: Context, place: Ints, issued: Issued) -> None:
        """A runner, then those that it is the expert or the pool of."""
        runners = self._to.runners
        self._through(at, context, place, issued)
        for follower, runner in enumerate(runners):
            if runner.expert is runners[at]:
                expert = replace(context.chunk, scores=issued.forecasts[at])
                self._through(follower, Context(expert, None, context.draws, context.streams), place, issued)
            elif runner.pool is runners[at]:
                self._through(follower, context, place, issued)

    def _through(self, at: int, context: Context, place: Ints, issued: Issued) -> None:
        """A chunk through one contender: its forecasts, and what they lost."""
        keyed, runner, forecasts, began = self._to.keyed, self._to.runners[at], issued.forecasts[at], thread_time()
        chunk, raw_loss = context.chunk, issued.of(0).loss
        mine = replace(context, into=forecasts)
        if runner.underway is not None:
            mine = replace(mine, plan=runner.underway.plan(chunk))
        made = runner.replay.feed(mine)
        if made is not forecasts:
            forecasts[:] = made
        events = Counted.of(forecasts, chunk.outcomes, place, raw_loss, issued.of(at))
        runner.tally.count(events)
        if keyed:
            runner.tally.count_keys(events, chunk.slots, context.streams, MOST_KEYS_WITH_CE)
        runner.own_seconds += thread_time() - began
        if runner.at_once is not None:
            # As if each outcome had been known at once; a forecast without an outcome changes nothing.
            labelled, (replay, tally) = ~np.isnan(chunk.outcomes), runner.at_once
            known = Chunk(chunk.scores[labelled], chunk.outcomes[labelled], chunk.slots[labelled])
            at_once = replay.feed(Context(known, None, context.draws[labelled], context.streams))
            tally.count(Counted.of(at_once, known.outcomes, place[labelled], raw_loss[labelled]))

    def _room(self, chunk: Chunk) -> Issued:
        """The same memory for each chunk."""
        if self._issued is None or len(chunk) != self._issued.forecasts.shape[1]:
            self._issued = Issued.empty(len(self._to.runners), chunk.scores.shape)
        return self._issued

    def _plan(self, chunk: Chunk) -> LearningPlan | None:
        if self._underway is None or self._to.delays is None:
            return None
        plan = self._underway.plan(chunk)
        self._to.too_late = len(self._underway)
        self._to.delays.count(chunk, self._underway.waited)
        if self._to.ages is not None:
            self._to.ages.count(chunk)
        return plan

    def _count(self, chunk: Chunk, raw: Vector, place: Ints, streams: int) -> None:
        to, found = self._to, judged(raw, chunk.outcomes)
        to.totals += found.forecasts[place > 0].sum(), found.outcomes[place > 0].sum()
        if chunk.times is not None and len(chunk):
            begin = to.span[0] if to.span else int(chunk.times[0])
            to.span = begin, int(chunk.times[-1])
        to.events += len(chunk)
        to.streams = streams
        to.never += int(np.count_nonzero(np.isnan(chunk.outcomes)))

    def _draws(self, chunk: Chunk) -> Vector:
        """The draws of the events: those of a calibrator, or of one for each key."""
        to = self._to
        if not any(runner.contender.hedges for runner in to.runners):
            return np.empty(len(chunk))
        if not to.keyed:
            numbers = np.arange(to.events, to.events + len(chunk), dtype=np.uint64)
            return uniforms_at(np.uint64(stream_key(self._seed, 0)), numbers)
        new = [stream_key(self._seed, name) for name in self._names[len(self._keys) :]]
        self._keys = np.append(self._keys, np.array(new, dtype=np.uint64))
        self._made = np.append(self._made, np.zeros(len(self._keys) - len(self._made)))
        return uniforms_at(self._keys[chunk.slots], numbered(self._made, chunk.slots.astype(np.int32)))

    def _marks(self, chunk: Chunk) -> Ints:
        """Events of the chunk at which rows are noted: every stride-th, with a stride that doubles as the log grows."""
        to = self._to
        if to.keyed:
            return np.empty(0, dtype=np.int64)
        begin, end = to.events, to.events + len(chunk)
        while -(-end // self._stride) > MOST_MARKS:
            self._stride *= 2
            kept = [at for at, event in enumerate(to.marks) if event % self._stride == 0]
            to.marks = [to.marks[at] for at in kept]
            to.mark_times = [to.mark_times[at] for at in kept] if to.mark_times else []
            for runner in to.runners:
                trail = runner.replay.trail
                trail[:] = [trail[at] for at in kept] if trail else []
        marks = np.arange(-(-begin // self._stride) * self._stride, end, self._stride) - begin
        to.marks += (marks + begin).tolist()
        if chunk.times is not None:
            to.mark_times += chunk.times[marks].tolist()
        return marks
