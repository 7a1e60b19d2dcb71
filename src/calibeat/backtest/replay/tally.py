"""Tallies of forecasts, outcomes and scores. Memory does not grow with the log.

Judged events are counted in blocks of consecutive events. When there are too many blocks, neighbours are merged.
The report's numbers over time and the bootstrap are made of these blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from calibeat._util.types import Flags, Ints, Vector
from calibeat.core.algebra import ln, scale_of, whole_part
from calibeat.core.auto import EPS
from calibeat.core.calibeating import bin_among, bin_of, edges_of
from calibeat.core.features import Beta, Scaling
from calibeat.core.fit import fit
from calibeat.core.method import Method
from calibeat.core.stats import LOSS_FLOOR
from calibeat.core.subset import entry, kernel, loop, scratch
from calibeat.metrics import calibration_error_of_gaps

MOST_BLOCKS = 4096
WARM_UP_BLOCK, FIRST_BLOCK = 0, 1  # block 0 takes the warm-up, which only the certificates look at

COUNT, FORECAST, OUTCOME = 0, 1, 2  # of a bin
LOSS, BRIER, HITS, LOG_E = 0, 1, 2, 3  # sums of a block

OCTAVES = 20  # of ranks, towards 0 and towards 1
STEPS = 256  # in each octave
RANKS = 2 * (2 + OCTAVES * STEPS)
SMALLEST_NORMAL, SCALE = 2.0**-1022, 2.0**54
LN_SCALE = 37.42994775023705  # ln SCALE
LEAST_RANKED = 0.5 ** (1 + OCTAVES)


def floor_of(numbers: int) -> float:
    """What was said of an outcome counts as at least this: of two classes, and of many."""
    return LOSS_FLOOR if numbers == 1 else EPS


@kernel
def rank_of(p: float, steps: int) -> int:
    """A bin of p that rises with it: relative steps of at most 1/steps towards 0 and towards 1."""
    return int(rank_number(p, float(steps)))


@kernel
def rank_number(p: float, steps: float) -> float:
    """The same as a float and without a branch, so that processors take the ranks of several numbers at once."""
    least = min(p, 1.0 - p)
    m, e = scale_of(least)
    rank = 1.0 + (e + (1.0 + OCTAVES)) * steps + whole_part((m - 1.0) * steps)
    rank = rank if least >= LEAST_RANKED else 0.0
    return rank if p <= 0.5 else 2.0 * (2.0 + OCTAVES * steps) - 1.0 - rank


# ---- what a forecast is judged by --------------------------------------------------------------------------------
#
# Of two classes a forecast is one number. Of many it is K of them: then the judge looks at the top class (the first of
# the largest), at the confidence in it as the forecast, and at whether it was right as the outcome.


class Mark(NamedTuple):
    """What one forecast is judged by."""

    forecast: float  # p, or the confidence in the top class
    outcome: float  # y, or whether the top class was right
    chance: float  # that was given to what happened
    square: float  # the Brier score, of many classes summed over them
    hit: float  # whether the likelier class came
    top: int  # the class that `forecast` is about; 0 of two classes


@kernel
def mark(p: Vector, y: float) -> Mark:
    """Of a forecast, one number or K, and the outcome or the column of the label."""
    K = len(p)
    if K == 1:
        # Without a branch, which processors would guess wrong: p if y == 1.0 else 1.0 - p
        chance = y * p[0] + (1.0 - y) * (1.0 - p[0])
        right = (p[0] >= 0.5) == (y == 1.0)
        return Mark(p[0], y, chance, (y - p[0]) * (y - p[0]), float(right), 0)
    top, squares = 0, 0.0
    for k in range(K):
        squares += p[k] * p[k]
        if p[k] > p[top]:
            top = k
    chance = p[int(y)]
    hit = 1.0 if top == int(y) else 0.0
    return Mark(p[top], hit, chance, squares - 2.0 * chance + 1.0, hit, top)


@entry
def marks(
    K: int,
    forecasts: Vector,
    outcomes: Vector,
    confidence: Vector,
    hits: Vector,
    chances: Vector,
    squares: Vector,
    tops: Ints,
) -> None:
    """The marks of many forecasts, K numbers each. Where an outcome is NaN, so is all that depends on it."""
    for i in range(len(outcomes)):
        known = not math.isnan(outcomes[i])
        one = mark(forecasts[i * K : (i + 1) * K], outcomes[i] if known else 0.0)
        confidence[i] = one.forecast
        hits[i] = one.outcome if known else math.nan
        chances[i] = one.chance if known else math.nan
        squares[i] = one.square if known else math.nan
        tops[i] = one.top


@dataclass(frozen=True, eq=False)
class Judged:
    """What the forecasts of a method are judged by, one number an event; see `Mark`."""

    forecasts: Vector
    outcomes: Vector
    tops: Ints | None = None  # of many classes, as the next
    marked: tuple[Vector, Vector] | None = None

    @property
    def chances(self) -> Vector:
        """That were given to what happened."""
        p = self.forecasts
        return np.where(self.outcomes == 1.0, p, 1.0 - p) if self.marked is None else self.marked[0]

    @property
    def squares(self) -> Vector:
        """The Brier scores."""
        return np.square(self.outcomes - self.forecasts) if self.marked is None else self.marked[1]

    def of_same(self, scores: Vector) -> Vector:
        """What other scores, one number an event or K, say of the same class."""
        return scores if self.tops is None else scores[np.arange(len(scores)), self.tops]


def judged(forecasts: Vector, outcomes: Vector) -> Judged:
    """Of forecasts, one number an event or K.

    >>> found = judged(np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]), np.array([1.0, 2.0]))
    >>> found.forecasts, found.outcomes, found.chances
    (array([0.5, 0.6]), array([1., 0.]), array([0.5, 0.1]))
    """
    if forecasts.ndim == 1:
        return Judged(forecasts, outcomes)
    confidence, hits, chances, squares = np.empty((4, len(outcomes)))
    tops = np.empty(len(outcomes), dtype=np.int64)
    marks(forecasts.shape[1], forecasts.reshape(-1), outcomes, confidence, hits, chances, squares, tops)
    return Judged(confidence, hits, tops, (chances, squares))


# ---- tallies of forecasts ----------------------------------------------------------------------------------------


@loop
def losses(K: int, forecasts: Vector, outcomes: Vector, place: Ints, floor: float, loss: Vector, slope: Vector) -> None:
    """The log-loss of each event, and of two classes its slope; where no outcome is known, anything (`Lost`)."""
    if K == 1:
        losses_of_two(forecasts, outcomes, floor, loss, slope)
    else:
        for i in range(len(outcomes)):
            if place[i] >= 0:
                loss[i] = -ln(max(floor, mark(forecasts[i * K : (i + 1) * K], outcomes[i]).chance))


@kernel
def losses_of_two(forecasts: Vector, outcomes: Vector, floor: float, loss: Vector, slope: Vector) -> None:
    """Of two classes. The loop becomes one over vectors: `ln` takes no branch."""
    for i in range(len(outcomes)):
        p, y = forecasts[i], outcomes[i]
        came = ln(max(floor, y * p + (1.0 - y) * (1.0 - p)))
        other = ln(max(floor, y * (1.0 - p) + (1.0 - y) * p))
        loss[i] = -came
        slope[i] = (2.0 * y - 1.0) * (other - came)


class Lost(NamedTuple):
    """Of each event that has a place: the log-loss of a method and, of two classes, its slope l(p, 1) - l(p, 0)."""

    loss: Vector
    slope: Vector

    @classmethod
    def empty(cls, *shape: int, numbers: int) -> Lost:
        """Room for so many events of forecasts with so many numbers."""
        return cls(np.empty(shape), np.empty(shape if numbers == 1 else 0))


def lost(forecasts: Vector, outcomes: Vector, place: Ints, into: Lost | None = None) -> Lost:
    """Of forecasts, one number an event or K."""
    numbers = 1 if forecasts.ndim == 1 else forecasts.shape[1]
    found = into or Lost.empty(len(outcomes), numbers=numbers)
    losses(numbers, np.ascontiguousarray(forecasts).reshape(-1), outcomes, place, floor_of(numbers), *found)
    return found


class Issued(NamedTuple):
    """What all methods forecast and lost: a row for each method."""

    forecasts: Vector
    lost: Lost

    @classmethod
    def empty(cls, methods: int, shape: tuple[int, ...]) -> Issued:
        """Room for forecasts of this shape."""
        return cls(np.empty((methods, *shape)), Lost.empty(methods, shape[0], numbers=(*shape, 1)[1]))

    def of(self, method: int) -> Lost:
        """Where one of them lost."""
        return Lost(self.lost.loss[method], self.lost.slope[method] if self.lost.slope.ndim > 1 else self.lost.slope)


class TallySums(NamedTuple):
    """What a tally counts; see `Tally`."""

    cells: Vector
    sums: Vector
    ranks: Vector
    running: Vector  # the log e-value, its maximum, and what the clip took off the log-loss of all events


class Counted(NamedTuple):
    """A chunk of forecasts, one number an event or K, with the block of each event (none if negative)."""

    forecasts: Vector
    outcomes: Vector
    place: Ints
    loss: Vector  # what was lost, and of two classes the slope: they are written here
    slope: Vector
    raw_loss: Vector  # by the score

    @classmethod
    def of(
        cls, forecasts: Vector, outcomes: Vector, place: Ints, raw_loss: Vector, into: Lost | None = None
    ) -> Counted:
        """Forecasts of one number an event, or of K; what was lost goes into `into`."""
        room = into or Lost.empty(len(outcomes), numbers=(*forecasts.shape, 1)[1])
        return cls(np.ascontiguousarray(forecasts).reshape(-1), outcomes, place, *room, raw_loss)


TOGETHER = 128  # events of two classes whose losses and ranks are taken together


@loop
def tally(K: int, events: Counted, floor: float, edges: Vector, to: TallySums) -> None:
    """Count each event in its block, with its log-loss and that of its score."""
    if K == 1:
        tally_two(events, floor, edges, to)
    else:
        tally_many(K, events, floor, edges, to)


@kernel
def tally_two(events: Counted, floor: float, edges: Vector, to: TallySums) -> None:
    """Of two classes."""
    n, bins, least = len(events.outcomes), len(edges) - 1, -ln(1.0 - floor)
    ranks = scratch(TOGETHER)
    loss, brier, hits, log_e, block = 0.0, 0.0, 0.0, 0.0, -1  # sums of a block: it has many events in a row
    evidence, most = to.running[0], to.running[1]
    for begin in range(0, n, TOGETHER):
        end = min(n, begin + TOGETHER)
        forecasts, outcomes = events.forecasts[begin:end], events.outcomes[begin:end]
        losses_of_two(forecasts, outcomes, floor, events.loss[begin:end], events.slope[begin:end])
        for i in range(end - begin):
            ranks[i] = rank_number(forecasts[i], float(STEPS))
        for i in range(end - begin):
            if events.place[begin + i] != block:
                put_block(to.sums, block, loss, brier, hits, log_e)
                block = events.place[begin + i]
                if block >= 0:
                    at = 4 * block
                    loss, brier, hits, log_e = to.sums[at], to.sums[at + 1], to.sums[at + 2], to.sums[at + 3]
            if block < 0:
                continue
            p, y, mine = forecasts[i], outcomes[i], events.loss[begin + i]
            one = mark(events.forecasts[begin + i : begin + i + 1], y)
            at = 3 * (block * bins + bin_among(edges, p))
            to.cells[at] += 1.0
            to.cells[at + 1] += p
            to.cells[at + 2] += y
            if one.chance < floor:
                to.running[2] += surprise(one.chance) - mine
            # Against a true probability, a forecast inside the clip and a score that counts at least the clip make no
            # bet that wins in the mean.
            e = events.raw_loss[begin + i] - max(mine, least)
            loss += mine
            brier += one.square
            hits += one.hit
            log_e += e
            if block > 0:
                at = 3 * int(ranks[i])
                to.ranks[at + int(y)] += 1.0
                to.ranks[at + 2] += p
                evidence += e
                most = max(most, evidence)
    put_block(to.sums, block, loss, brier, hits, log_e)
    to.running[0], to.running[1] = evidence, most


@kernel
def surprise(chance: float) -> float:
    """-ln of a probability, which may be subnormal or 0."""
    if chance < SMALLEST_NORMAL:
        return LN_SCALE - ln(chance * SCALE) if chance > 0.0 else math.inf
    return -ln(chance)


@kernel
def put_block(sums: Vector, block: int, loss: float, brier: float, hits: float, log_e: float) -> None:
    """Put the sums of a block where they belong, if there is a block."""
    if block >= 0:
        at = 4 * block
        sums[at] = loss
        sums[at + 1] = brier
        sums[at + 2] = hits
        sums[at + 3] = log_e


@kernel
def tally_many(K: int, events: Counted, floor: float, edges: Vector, to: TallySums) -> None:
    """Of K classes. Their forecasts sum to one, and none is 0: a bet on them as they are wins nothing in the mean."""
    bins = len(edges) - 1
    for i in range(len(events.outcomes)):
        block = events.place[i]
        if block < 0:
            continue
        one = mark(events.forecasts[i * K : (i + 1) * K], events.outcomes[i])
        p, y = one.forecast, one.outcome
        loss = -ln(max(floor, one.chance))
        events.loss[i] = loss
        at = 3 * (block * bins + bin_among(edges, p))
        to.cells[at] += 1.0
        to.cells[at + 1] += p
        to.cells[at + 2] += y
        full = loss
        if one.chance < floor:
            full = surprise(one.chance)
            to.running[2] += full - loss
        log_e = events.raw_loss[i] - full
        at = 4 * block
        to.sums[at] += loss
        to.sums[at + 1] += one.square
        to.sums[at + 2] += one.hit
        to.sums[at + 3] += log_e
        if block > 0:
            at = 3 * rank_of(p, STEPS)
            to.ranks[at + int(y)] += 1.0
            to.ranks[at + 2] += p
            to.running[0] += log_e
            to.running[1] = max(to.running[1], to.running[0])


KEY_COUNT, KEY_LOSS, KEY_BRIER, KEY_ONES, KEY_SQUARES, KEY_SUMS = range(6)  # of a stream


@entry
def tally_keys(
    K: int,
    forecasts: Vector,
    outcomes: Vector,
    place: Ints,
    slots: Ints,
    loss: Vector,
    edges: Vector,
    sums: Vector,
    gaps: Vector,
) -> None:
    """The sums of each stream, and where `gaps` has room the sum of forecast - outcome of each bin."""
    bins = len(edges) - 1
    room = len(gaps) // bins
    for i in range(len(outcomes)):
        if place[i] > 0:
            one, slot = mark(forecasts[i * K : (i + 1) * K], outcomes[i]), slots[i]
            gap = one.forecast - one.outcome
            at = KEY_SUMS * slot
            sums[at + KEY_COUNT] += 1.0
            sums[at + KEY_LOSS] += loss[i]
            sums[at + KEY_BRIER] += one.square
            sums[at + KEY_ONES] += one.outcome
            sums[at + KEY_SQUARES] += gap * gap
            if slot < room:
                gaps[slot * bins + bin_among(edges, one.forecast)] += gap


@entry
def tally_classes(K: int, P: Vector, labels: Vector, place: Ints, bins: int, by_class: Vector) -> None:
    """Count each judged event in a bin of each class, by the forecast of the class."""
    m = float(bins)
    for i in range(len(labels)):
        if place[i] > 0:
            p, y = P[i * K : (i + 1) * K], int(labels[i])
            for k in range(K):
                at = 3 * (k * bins + bin_of(p[k], m))
                by_class[at] += 1.0
                by_class[at + 1] += p[k]
            by_class[3 * (y * bins + bin_of(p[y], m)) + 2] += 1.0


class Merging(Protocol):
    """What counts in blocks."""

    def merge(self) -> None:
        """Merge the blocks by pairs."""


class Blocks:
    """Which block a judged event falls in: the same for every method, and when it happened."""

    def __init__(self, warmup: int) -> None:
        self.warmup = warmup
        self.length = 1
        self.labelled = self.judged = 0
        self.begin, self.end = np.zeros(MOST_BLOCKS, dtype=np.int64), np.zeros(MOST_BLOCKS, dtype=np.int64)

    @property
    def used(self) -> int:
        """How many blocks hold events; the last may not be full."""
        return -(-self.judged // self.length)

    def place(self, labelled: Flags, axis: Ints | None, tallies: Sequence[Merging]) -> Ints:
        """The block of each event of a chunk, -1 for one that has no outcome; merges blocks first if need be.

        `axis` rises with the events: their times, or their numbers.
        """
        number = self.labelled + np.cumsum(labelled)  # from 1
        judged = labelled & (number > self.warmup)
        count = int(np.count_nonzero(judged))
        while self.judged + count > self.length * MOST_BLOCKS:
            self._merge()
            for one in tallies:
                one.merge()
        nth = self.judged + np.arange(count)
        place = np.where(labelled, WARM_UP_BLOCK, -1)
        place[judged] = FIRST_BLOCK + nth // self.length
        if axis is not None and count:
            block, when = nth // self.length, axis[judged]
            starts = nth % self.length == 0
            self.begin[block[starts]] = when[starts]
            self.end[block] = when  # the last one stays
        self.labelled += int(np.count_nonzero(labelled))
        self.judged += count
        return place

    def _merge(self) -> None:
        half, last = MOST_BLOCKS // 2, self.used
        end = self.end[: last + last % 2].copy()
        if last % 2:
            end[last] = end[last - 1]
        self.begin[: (last + 1) // 2] = self.begin[:last:2]
        self.end[: len(end) // 2] = end[1::2]
        self.begin[half:] = self.end[half:] = 0
        self.length *= 2


class Tally:
    """The tally of one method: of forecasts with one number each, or with K.

    `by_class`, of K numbers: classes x bins x (count, sum of forecasts, labels) of judged events.
    """

    def __init__(self, bins: int, numbers: int = 1) -> None:
        self.bins, self.numbers, self._floor, self._edges = bins, numbers, floor_of(numbers), edges_of(bins)
        self._cells = np.zeros((MOST_BLOCKS + 1) * bins * 3)
        self._sums = np.zeros((MOST_BLOCKS + 1) * 4)
        self._ranks = np.zeros(3 * RANKS)  # of each rank: zeros, ones, sum of forecasts
        self.running = np.zeros(3)
        self._key_sums, self._key_gaps = np.empty(0), np.empty(0)
        self.by_class = np.zeros((numbers if numbers > 1 else 0, bins, 3))

    def count(self, events: Counted) -> None:
        """Count a chunk; what was lost is written there."""
        sums = TallySums(self._cells, self._sums, self._ranks, self.running)
        tally(self.numbers, events, self._floor, self._edges, sums)
        if len(self.by_class):
            of = self.numbers, events.forecasts, events.outcomes, events.place
            tally_classes(*of, self.bins, self.by_class.reshape(-1))

    def count_keys(self, events: Counted, slots: Ints, streams: int, most: int) -> None:
        """Count a chunk by stream, behind `count`; calibration errors only for the first `most` of them."""
        self._key_sums = _grown(self._key_sums, KEY_SUMS, streams)
        self._key_gaps = _grown(self._key_gaps, self.bins, min(streams, most), most)
        of = self.numbers, events.forecasts, events.outcomes, events.place, slots
        tally_keys(*of, events.loss, self._edges, self._key_sums, self._key_gaps)

    @property
    def ranks(self) -> Vector:
        """Zeros, ones and the sum of forecasts of each rank: three times `RANKS` numbers."""
        return self._ranks.reshape(RANKS, 3).T.reshape(-1)

    def merge(self) -> None:
        """Merge the blocks by pairs; the warm-up stays by itself."""
        for array, width in ((self._cells, 3 * self.bins), (self._sums, 4)):
            blocks = array.reshape(MOST_BLOCKS + 1, width)
            merged = blocks[1::2] + blocks[2::2]
            blocks[1 : 1 + len(merged)] = merged
            blocks[1 + len(merged) :] = 0.0

    def cells(self, used: int) -> Vector:
        """Blocks x bins x (count, sum of forecasts, sum of outcomes); the first block is the warm-up."""
        return self._cells.reshape(MOST_BLOCKS + 1, self.bins, 3)[: used + 1]

    def sums(self, used: int) -> Vector:
        """Blocks x (log-loss, Brier, hits, log e-value); the first block is the warm-up."""
        return self._sums.reshape(MOST_BLOCKS + 1, 4)[: used + 1]

    def by_key(self, streams: int) -> tuple[Vector, Vector]:
        """Streams x `KEY_SUMS`, and streams x bins of sums of forecast - outcome for the first streams."""
        sums = self._key_sums[: KEY_SUMS * streams].reshape(-1, KEY_SUMS)
        return sums, self._key_gaps.reshape(-1, self.bins)[:streams]

    @property
    def errors(self) -> Vector:
        """The calibration error of "is it this class?" for each class."""
        count, forecast, outcome = np.moveaxis(self.by_class, 2, 0)
        return np.asarray(calibration_error_of_gaps(forecast - outcome, np.maximum(count.sum(axis=1), 1.0)))


def _grown(array: Vector, width: int, streams: int, most: int | None = None) -> Vector:
    """Make room for `streams` and half as many again, up to `most`."""
    if streams * width <= len(array):
        return array
    room = streams + streams // 2
    grown = np.zeros(width * (room if most is None else min(room, most)))
    grown[: len(array)] = array
    return grown


# ---- the best fixed parameters in hindsight ----------------------------------------------------------------------
#
# Scores are counted by rank, so the log is read once. Scores of one rank and one outcome (whose logits are within 1/512
# of one another) are taken at their mean x, with their number as a weight. The logistic function bends by at most 1/4:
# this understates the loss, and overstates a regret, by at most n (|theta| / 512)^2 / 32 nats, n the number of events:
# 0.12 for a million events and |theta| = 1.

HINDSIGHT_RADIUS = 100.0  # as the learners and `metrics.regret` have it
SCORE_CLIP = 1e-5  # as the features have it
SCORE_STEPS = 1024  # in an octave
SCORE_RANKS = 2 * (2 + OCTAVES * SCORE_STEPS)


@loop
def tally_scores(scores: Vector, outcomes: Vector, place: Ints, cells: Vector) -> None:
    """Count, sum of log f and sum of log(1 - f) of each rank: warm-up and the rest, zeros and ones apart."""
    n = len(scores)
    ranks = scratch(TOGETHER)
    logs = scratch(TOGETHER)
    others = scratch(TOGETHER)
    for begin in range(0, n, TOGETHER):
        count = min(TOGETHER, n - begin)
        for i in range(count):
            f = min(max(SCORE_CLIP, scores[begin + i]), 1.0 - SCORE_CLIP)
            ranks[i] = rank_number(f, float(SCORE_STEPS))
            logs[i] = ln(f)
            others[i] = ln(1.0 - f)
        for i in range(count):
            block = place[begin + i]
            if block >= 0:
                part = (0 if block == 0 else 2) + int(outcomes[begin + i])
                at = 3 * (part * SCORE_RANKS + int(ranks[i]))
                cells[at] += 1.0
                cells[at + 1] += logs[i]
                cells[at + 2] += others[i]


class ScoreTally:
    """Scores by rank with the sums of their features, apart for the warm-up and for what is judged."""

    def __init__(self) -> None:
        self._cells = np.zeros(4 * SCORE_RANKS * 3)
        self._found: dict[tuple[type, bool], tuple[float, tuple[float, ...]] | None] = {}

    def count(self, scores: Vector, outcomes: Vector, place: Ints) -> None:
        """Count a chunk: place 0 is the warm-up, a negative one is left out."""
        tally_scores(scores, outcomes, place, self._cells)

    @property
    def distinct(self) -> int:
        """How many ranks of scores were seen: 1 if the score is all but constant."""
        return int(np.count_nonzero(self._cells.reshape(4, SCORE_RANKS, 3)[:, :, 0].sum(axis=0)))

    def least_loss(self, method: Method | None, *, warmup: bool = False) -> tuple[float, tuple[float, ...]] | None:
        """The least total log-loss of fixed parameters of the method's features, and the parameters.

        Over the judged events, or with `warmup` over all, once the log has ended; None for a method without such
        features.
        """
        family = None if method is None else method.features
        if not isinstance(family, Scaling):
            return None
        wanted = type(family), warmup
        if wanted not in self._found:
            self._found[wanted] = self._fit(family, warmup=warmup)
        return self._found[wanted]

    def _fit(self, family: Scaling, *, warmup: bool) -> tuple[float, tuple[float, ...]] | None:
        cells = self._cells.reshape(2, 2 * SCORE_RANKS, 3)[slice(0, 2) if warmup else slice(1, 2)].reshape(-1, 3)
        used = cells[:, 0] > 0
        if not used.any():
            return None
        y = np.resize(np.repeat([0.0, 1.0], SCORE_RANKS), len(cells))[used]
        weight, x0, x1 = cells[used].T.copy()
        x0, x1 = x0 / weight, x1 / weight
        if not isinstance(family, Beta):
            x0 = x0 - x1
        d = family.dimension
        start = 0.0, 0.0, 0.0
        theta = fit(d, x0, x1, y, weight, 0, len(y), *start, HINDSIGHT_RADIUS)[:d]
        z = theta[0] * x0
        if d > 1:
            z += theta[1] * x1 + theta[2] if d == 3 else theta[1]
        return float((weight * np.logaddexp(0.0, np.where(y == 1.0, -z, z))).sum()), theta
