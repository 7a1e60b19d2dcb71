"""The replay of a log of many classes: the methods, their tallies, and the loop over chunks.

Forecasts have the same bits as those of `MultiCalibrator.run` over the whole log, however it is cut into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Any, Protocol

import numpy as np

from calibeat._util.processes import usable_cores
from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.backtest.read.rows import FIRST_EVENTS, Chunk, Origin
from calibeat.core import vector
from calibeat.core.auto import EPS
from calibeat.core.calibeating import bin_of
from calibeat.core.method import AUTO, params_of
from calibeat.core.subset import entry, kernel, large_kernel
from calibeat.core.vector import softmax
from calibeat.errors import InvalidInput, UnknownMethod
from calibeat.metrics import calibration_error_of_gaps

from .contenders import Context, MethodReplay
from .engine import OnForecasts, default_warmup
from .late import Delays, LearningPlan, Underway
from .tally import Blocks, Tally

# ---- temperature scaling -----------------------------------------------------------------------------------------
#
# The forecast is softmax(A x), x_k = ln max(score_k, 1e-7), A = 1/temperature. A has the least log-loss over the labels
# in a window, the derivative of which rises with A:
#
#     g(A) = sum_i  E_{softmax(A x_i)} x - x_{i, y_i}

MOST_SLOPE = 100.0  # of A: where every label is the top class, nothing else would end the fit
SLOPE, LEARNT = 0, 1  # of the state


@dataclass(frozen=True)
class Refits:
    """When a temperature is fitted: after so many labels, then every so many (0: never again), on the last of them."""

    after: int
    every: int
    window: int


FIXED = Refits(after=1000, every=0, window=1000)
SLIDING = Refits(after=1000, every=500, window=2000)


@kernel
def scaled(A: float, x: Vector, p: Vector) -> None:
    """p <- softmax(A x)."""
    for k in range(len(x)):
        p[k] = A * x[k]
    softmax(p)


@large_kernel
def fit_slope(K: int, X: Vector, Y: Ints, count: int, A: float, p: Vector) -> float:
    """The A of least log-loss over `count` events, by Newton's steps inside a bracket; A is where it starts."""
    low, high = 0.0, MOST_SLOPE
    for _ in range(60):
        g = h = 0.0
        for i in range(count):
            x = X[i * K : (i + 1) * K]
            scaled(A, x, p)
            origin = x[Y[i]]
            mean = square = 0.0
            for k in range(K):
                d = x[k] - origin
                mean += p[k] * d
                square += p[k] * d * d
            g += mean
            h += square - mean * mean
        if g > 0.0:
            high = A
        else:
            low = A
        newton = A - g / h if h > 0.0 else low
        to = newton if low < newton < high else 0.5 * (low + high)
        step = to - A
        A = to
        if -1e-9 < step < 1e-9 or high - low < 1e-9:
            break
    return A


@entry
def replay_temperature(
    K: int,
    state: Vector,
    X: Vector,
    Y: Ints,
    after: int,
    every: int,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    first: int,
    due: Ints,
    order: Ints,
    work: Vector,
) -> None:
    """Forecast the events from `first` on; those before it are under way. Label i is learnt just before event due[i].

    `order` sorts by `due`. X and Y hold the last labels that were learnt, in a ring.
    """
    window = len(Y)
    x, p = work[:K], work[K : 2 * K]
    arrived = 0
    for i in range(first, len(labels) + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            at = int(state[LEARNT]) % window
            for k in range(K):
                X[at * K + k] = math.log(max(scores[j * K + k], EPS))
            Y[at] = labels[j]
            state[LEARNT] += 1.0
            n = int(state[LEARNT])
            if n == after or (every > 0 and n > after and (n - after) % every == 0):
                state[SLOPE] = fit_slope(K, X, Y, min(n, window), state[SLOPE], p)
        if i == len(labels):
            break
        for k in range(K):
            x[k] = math.log(max(scores[i * K + k], EPS))
        scaled(state[SLOPE], x, forecasts[(i - first) * K : (i - first + 1) * K])


# ---- methods on their way through the log ------------------------------------------------------------------------

RAW_METHOD = "raw"
CLASS_METHODS = (RAW_METHOD, "fts", "swts", "ots", "multi")
METHOD_LABELS = {RAW_METHOD: "raw", "fts": "FTS", "swts": "SWTS", "ots": "OTS", "multi": "MULTI"}
METHOD_ABOUT = {
    RAW_METHOD: "The model's scores as they came, with a floor of 1e-7.",
    "fts": "Temperature scaling fitted once, on the first 1,000 labels: what most people deploy.",
    "swts": "Temperature scaling fitted again every 500 labels on the last 2,000.",
    "ots": "Online temperature scaling: one number, one Newton step per label.",
    "multi": "calibeat's own: temperature, class priors and confusions at several speeds of drift, mixed by log-loss.",
}
ABOUT_PAIR = "calibeat's own: two classes are served by AUTO."


def chosen_methods(asked: Any) -> list[str]:
    """The methods asked for, the raw scores first; all of them if none were named.

    >>> chosen_methods("multi,ots")
    ['raw', 'multi', 'ots']
    """
    if asked is None:
        return list(CLASS_METHODS)
    names = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(names, Iterable):
        raise InvalidInput(f"methods must be names, got {type(names).__name__} {names!r:.60}")
    found = [str(name).strip().lower() for name in names]
    if not found:
        raise InvalidInput("methods must name one at least, got none")
    for name in found:
        if name not in CLASS_METHODS:
            known = ", ".join(CLASS_METHODS)
            raise UnknownMethod(f"method must be one of {known}, got {name!r}{did_you_mean(name, CLASS_METHODS)}")
    return list(dict.fromkeys([RAW_METHOD, *found]))


@dataclass(frozen=True, eq=False)
class ClassContext:
    """A chunk, the column of each label (-1 where it is never known), and what the engine knows about them.

    `plan` says when labels are learnt, None where each arrives at once. Before each event in `marks` the biases are
    noted.
    """

    chunk: Chunk
    labels: Ints
    plan: LearningPlan | None
    marks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class ClassReplay(Protocol):
    """A method on its way through the log."""

    def feed(self, context: ClassContext) -> Vector:
        """The forecasts of a chunk, a matrix."""
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
        self.method, self.K = vector.CODES[name], K
        self.row = vector.initial_row(self.method, K)
        self.trail: list[Vector] = []
        self._work = vector.scratch(K)
        self._width = vector.receipt_width(self.method, K)
        self._made = 0
        self._receipts, self._forecasts = np.empty((0, self._width)), np.empty((0, K))

    def feed(self, context: ClassContext) -> Vector:
        forecasts = self._at_once(context) if context.plan is None else self._late(context, context.plan)
        self._made += len(context.chunk)
        return forecasts

    def _at_once(self, context: ClassContext) -> Vector:
        scores, labels = context.chunk.scores, context.labels
        forecasts, receipt = np.empty(scores.shape), np.empty(self._width)
        slots = np.zeros(len(scores), dtype=np.int64)
        run = vector.run_rows
        for begin, end in self._parts(context.marks, 0, len(scores)):
            part = scores[begin:end].reshape(-1), labels[begin:end], forecasts[begin:end].reshape(-1)
            run(self.method, self.K, self.row, len(self.row), slots[begin:end], *part, receipt, self._work)
        return forecasts

    def _late(self, context: ClassContext, plan: LearningPlan) -> Vector:
        scores, first, total, K = context.chunk.scores, plan.first, len(plan.outcomes), self.K
        forecasts, receipts = np.empty((total, K)), np.empty((total, self._width))
        forecasts[:first], receipts[:first] = self._forecasts, self._receipts
        run = vector.run_late
        events = scores.reshape(-1), columns_of(plan.outcomes), forecasts.reshape(-1), receipts.reshape(-1)
        arrived = 0
        for begin, end in self._parts(context.marks + first, first, total):
            row, late = (self.method, K, self.row, float(self._made)), (plan.due, plan.order)
            arrived = run(*row, *events, self._work, *late, first, begin, end, arrived)
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
        if self.method == vector.MULTI:
            lanes = self.row[vector.BIAS : vector.BIAS + 8 * self.K].reshape(4, 2, self.K)[:, 0]
            self.trail.append(self.row[vector.W : vector.W + 4] @ lanes)


class TemperatureReplay:
    """Temperature scaling that is fitted once, or again and again on a window."""

    def __init__(self, refits: Refits, K: int) -> None:
        self.refits, self.K = refits, K
        self.trail: list[Vector] = []
        self.state = np.array([1.0, 0.0])
        self._x, self._y = np.zeros(refits.window * K), np.zeros(refits.window, dtype=np.int64)
        self._scores = np.empty((0, K))

    def feed(self, context: ClassContext) -> Vector:
        chunk, plan = context.chunk, context.plan
        if plan is None:
            first, scores, columns = 0, chunk.scores, context.labels
            due, order = np.arange(1, len(columns) + 1), np.flatnonzero(columns >= 0)
        else:
            first, scores = plan.first, np.concatenate([self._scores, chunk.scores])
            columns, due, order = columns_of(plan.outcomes), plan.due, plan.order
        forecasts = np.empty((len(columns) - first, self.K))
        learnt = self.K, self.state, self._x, self._y, self.refits.after, self.refits.every
        events = scores.reshape(-1), columns, forecasts.reshape(-1), first, due, order
        replay_temperature(*learnt, *events, np.empty(2 * self.K))
        if plan is not None:
            self._scores = scores[plan.left]
        return forecasts

    def thin(self) -> None:
        """It has no trail."""


class PairReplay:
    """Two classes: AUTO on the second column."""

    def __init__(self) -> None:
        self._replay = MethodReplay(AUTO)

    def feed(self, context: ClassContext) -> Vector:
        chunk = context.chunk
        one = Chunk(np.ascontiguousarray(chunk.scores[:, 1]), chunk.outcomes, np.zeros(len(chunk), dtype=np.int64))
        p = self._replay.feed(Context(one, context.plan, np.zeros(len(chunk)), 1, context.marks))
        return np.stack([1.0 - p, p], axis=1)

    @property
    def trail(self) -> list[Vector]:
        return [np.array([0.0, float(params_of(AUTO, row.tolist())["b"])]) for row in self._replay.trail]

    def thin(self) -> None:
        del self._replay.trail[1::2]


def columns_of(outcomes: Vector) -> Ints:
    """The column of each label; -1 where there is none."""
    return np.where(np.isnan(outcomes), -1.0, outcomes).astype(np.int64)


# ---- tallies -----------------------------------------------------------------------------------------------------
#
# Blocks, bins and sums are those of `Tally`, with the confidence of the top class as the forecast and "it was right" as
# the outcome. Beside them stands what each class got, over the whole log and in stretches of it. Memory does not grow
# with the log.

MOST_STRETCHES = 256  # of the log: an even number, because neighbours are merged


@entry
def tally_classes(
    K: int,
    P: Vector,
    labels: Ints,
    place: Ints,
    raw: Vector,
    bins: int,
    cells: Vector,
    sums: Vector,
    by_class: Vector,
    running: Vector,
) -> None:
    """Count each event in the block `place` (none if negative). `raw` are the scores as they came.

    `running` is the log e-value, its maximum, and what the clip took off the log-loss.
    """
    m = float(bins)
    for i in range(len(labels)):
        block = place[i]
        if block < 0:
            continue
        p, y = P[i * K : (i + 1) * K], labels[i]
        top, squares = 0, 0.0
        for k in range(K):
            squares += p[k] * p[k]
            if p[k] > p[top]:
                top = k
        hit = 1.0 if top == y else 0.0
        at = 3 * (block * bins + bin_of(p[top], m))
        cells[at] += 1.0
        cells[at + 1] += p[top]
        cells[at + 2] += hit
        loss = -math.log(p[y])
        # Against true probabilities a score that counts as at least 1e-7 makes no bet that wins in the mean.
        log_e = -math.log(max(raw[i * K + y], EPS)) - loss
        clipped = min(loss, -math.log(EPS))
        running[2] += loss - clipped
        at = 4 * block
        sums[at] += clipped
        sums[at + 1] += squares - 2.0 * p[y] + 1.0
        sums[at + 2] += hit
        sums[at + 3] += log_e
        if block > 0:
            running[0] += log_e
            running[1] = max(running[0], running[1])
            for k in range(K):
                at = 3 * (k * bins + bin_of(p[k], m))
                by_class[at] += 1.0
                by_class[at + 1] += p[k]
            by_class[3 * (y * bins + bin_of(p[y], m)) + 2] += 1.0


class ClassTally(Tally):
    """The tally of one method; `by_class` is classes x bins x (count, sum of forecasts, labels), of judged events."""

    def __init__(self, bins: int, K: int) -> None:
        super().__init__(bins)
        self.K = K
        self._by_class = np.zeros(K * bins * 3)

    def count_classes(self, P: Vector, labels: Ints, place: Ints, raw: Vector) -> None:
        """Count a chunk: forecasts and scores are matrices of K columns."""
        sums = self.bins, self._cells, self._sums, self._by_class, self.running
        tally_classes(self.K, P.reshape(-1), labels, place, raw.reshape(-1), *sums)

    @property
    def by_class(self) -> Vector:
        return self._by_class.reshape(self.K, self.bins, 3)

    @property
    def errors(self) -> Vector:
        """The calibration error of "is it this class?" for each class."""
        count, forecast, outcome = np.moveaxis(self.by_class, 2, 0)
        return np.asarray(calibration_error_of_gaps(forecast - outcome, np.maximum(count.sum(axis=1), 1.0)))

    @property
    def classwise_error(self) -> float:
        """The mean of `errors`."""
        return float(self.errors.mean())


class Stretches:
    """Sums by class over stretches of as many events each, which double when there are too many of them.

    `sums` is rows x stretches x classes: the labels, the raw scores, then the forecasts of each method.
    """

    def __init__(self, rows: int, K: int) -> None:
        self.length = 1
        self.sums = np.zeros((rows, MOST_STRETCHES, K))
        self.begin: list[int] = []  # number or time of the first event of each

    def room_for(self, events: int) -> int:
        """How often neighbours had to be merged so that so many events have room."""
        merged = 0
        while events > self.length * MOST_STRETCHES:
            half = MOST_STRETCHES // 2
            self.sums[:, :half] = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums[:, half:] = 0.0
            self.begin = self.begin[::2]
            self.length *= 2
            merged += 1
        return merged

    def starts(self, first: int, count: int) -> Ints:
        """Which events of a chunk, the first of which has the number `first`, begin a stretch."""
        return np.arange(-(-first // self.length) * self.length, first + count, self.length) - first

    def add(self, row: int, first: int, values: Vector) -> None:
        """Add a matrix with a row for each event from number `first` on."""
        if len(values):
            cuts = np.union1d([0], self.starts(first, len(values))).astype(np.int64)
            stretch = (first + cuts) // self.length
            self.sums[row, stretch] += np.add.reduceat(values, cuts, axis=0)

    @property
    def used(self) -> int:
        return len(self.begin)


# ---- the loop over chunks ----------------------------------------------------------------------------------------

NUMBERS_IN_PART = 1 << 20  # scores that go through the methods at a time ...
LEAST_IN_PART = 256  # ... or of so many events
CAME, SCORES, FORECASTS = 0, 1, 2  # rows of `Stretches`: labels, raw scores, and a row for each method


@dataclass(eq=False)
class ClassRunner:
    """A method, and what is kept of its way through the log."""

    name: str
    replay: ClassReplay
    tally: ClassTally
    at_once: tuple[ClassReplay, ClassTally] | None  # the same with labels that arrive at once, where they are late
    seconds: float = 0.0


@dataclass(eq=False)
class ClassReplayed:
    """What a replay leaves behind: as `Replayed` has it for measures and delays, and what is counted by class."""

    runners: list[ClassRunner]
    blocks: Blocks
    bins: int
    K: int
    delays: Delays | None
    stretches: Stretches
    ages: None = None
    maturity: None = None
    events: int = 0
    never: int = 0  # events without a label
    too_late: int = 0  # events whose label arrived after the last forecast
    span: tuple[int, int] | None = None
    counts: Vector = field(default_factory=lambda: np.zeros(0))  # of the labels of judged events


def replay_classes(
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
        Stretches(FORECASTS + len(runners), K),
        counts=np.zeros(K),
    )
    with ThreadPoolExecutor(min(len(runners), usable_cores())) as pool:
        loop = _ClassLoop(replayed, on_forecasts, pool.map)
        loop.feed_all(first)
        for chunk in chunks:
            loop.feed_all(chunk)
    return replayed


class _ClassLoop:
    """What goes on from chunk to chunk."""

    def __init__(self, replayed: ClassReplayed, on_forecasts: OnForecasts | None, over: Any) -> None:
        self._to, self._on_forecasts, self._map = replayed, on_forecasts, over
        self._underway = Underway()

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
        context = ClassContext(chunk, labels, plan, self._marks(axis))

        def through(runner: ClassRunner) -> Vector:
            began = thread_time()
            forecasts = runner.replay.feed(context)
            runner.tally.count_classes(forecasts, labels, place, chunk.scores)
            runner.seconds += thread_time() - began
            if runner.at_once is not None:
                replay, tally = runner.at_once
                tally.count_classes(replay.feed(replace(context, plan=None)), labels, place, chunk.scores)
            return forecasts

        forecasts = list(self._map(through, to.runners))
        self._count(chunk, labels, labelled, place, forecasts)
        if self._on_forecasts is not None:
            names = [runner.name for runner in to.runners]
            self._on_forecasts(chunk, dict(zip(names, forecasts, strict=True)), place)

    def _plan(self, chunk: Chunk) -> LearningPlan | None:
        if self._to.delays is None:
            return None
        # Two classes are served by AUTO, which wants the scores of the second.
        plan = self._underway.plan(replace(chunk, scores=np.ascontiguousarray(chunk.scores[:, 1])))
        self._to.too_late = len(self._underway)
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
        to.stretches.add(CAME, first, came)
        # Scores and forecasts of events without a label are left out: shares are compared with those of the labels.
        for row, matrix in enumerate([chunk.scores, *forecasts], start=SCORES):
            to.stretches.add(row, first, matrix * labelled[:, None])
        if chunk.times is not None and len(chunk):
            begin = to.span[0] if to.span else int(chunk.times[0])
            to.span = begin, int(chunk.times[-1])
        to.events += len(chunk)
        to.never += len(chunk) - int(np.count_nonzero(labelled))


def _part(chunk: Chunk, rows: slice) -> Chunk:
    def part(column: Any) -> Any:
        return None if column is None else column[rows]

    at = chunk.trace
    return Chunk(
        chunk.scores[rows],
        chunk.outcomes[rows],
        chunk.slots[rows],
        part(chunk.clock),
        part(chunk.arrivals),
        part(chunk.times),
        None if at is None else Origin(at.rows[rows], at.files[rows], part(at.ids)),
        chunk.clock_is_time,
    )
