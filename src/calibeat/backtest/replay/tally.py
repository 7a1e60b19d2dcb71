"""Tallies of forecasts, outcomes and scores. Memory does not grow with the log.

Judged events are counted in blocks of consecutive events. When there are too many blocks, neighbours are merged.
The report's numbers over time and the bootstrap are made of these blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from calibeat._util.types import Flags, Ints, Vector
from calibeat.core.calibeating import bin_of
from calibeat.core.features import Beta, Scaling
from calibeat.core.fit import fit
from calibeat.core.method import Method
from calibeat.core.stats import LOSS_FLOOR, log_loss
from calibeat.core.subset import entry, kernel

LEAST_LOSS = -math.log1p(-LOSS_FLOOR)  # an outcome counts as forecast with at least LOSS_FLOOR
MOST_LOSS = -math.log(LOSS_FLOOR)
MOST_BLOCKS = 4096
WARM_UP_BLOCK, FIRST_BLOCK = 0, 1  # block 0 takes the warm-up, which only the certificates look at

COUNT, FORECAST, OUTCOME = 0, 1, 2  # of a bin
LOSS, BRIER, HITS, LOG_E = 0, 1, 2, 3  # sums of a block

OCTAVES = 20  # of ranks, towards 0 and towards 1
STEPS = 256  # in each octave
RANKS = 2 * (2 + OCTAVES * STEPS)


@kernel
def rank_of(p: float, steps: int) -> int:
    """A bin of p that rises with it: relative steps of at most 1/steps towards 0 and towards 1."""
    least = p if p <= 0.5 else 1.0 - p
    rank = 0
    if least >= 0.5**21:
        mantissa, exponent = math.frexp(least)
        rank = 1 + (exponent + OCTAVES) * steps + int((mantissa - 0.5) * 2.0 * steps)
    return rank if p <= 0.5 else 2 * (2 + OCTAVES * steps) - 1 - rank


@entry
def losses(scores: Vector, outcomes: Vector, place: Ints, loss: Vector) -> None:
    """The log-loss of the raw score of each event that has a place."""
    for i in range(len(scores)):
        loss[i] = log_loss(scores[i], outcomes[i]) if place[i] >= 0 else 0.0


@entry
def tally(
    forecasts: Vector,
    outcomes: Vector,
    place: Ints,
    raw_loss: Vector,
    bins: int,
    cells: Vector,
    sums: Vector,
    ranks: Vector,
    running: Vector,
) -> None:
    """Count each event in the block `place` (none if negative).

    `running` is the log e-value, its maximum, and what the clip took off the log-loss of all events.
    """
    m = float(bins)
    for i in range(len(forecasts)):
        block = place[i]
        if block < 0:
            continue
        p, y = forecasts[i], outcomes[i]
        at = 3 * (block * bins + bin_of(p, m))
        cells[at] += 1.0
        cells[at + 1] += p
        cells[at + 2] += y
        loss = log_loss(p, y)
        if loss >= MOST_LOSS:
            chance = p if y == 1.0 else 1.0 - p
            running[2] += (-math.log(chance) if chance > 0.0 else math.inf) - loss
        # Against a true probability, a forecast inside the clip and a score that counts at least the clip make no bet
        # that wins in the mean.
        log_e = raw_loss[i] - (loss if loss > LEAST_LOSS else LEAST_LOSS)
        at = 4 * block
        sums[at] += loss
        sums[at + 1] += (y - p) * (y - p)
        sums[at + 2] += 1.0 if (p >= 0.5) == (y == 1.0) else 0.0
        sums[at + 3] += log_e
        if block > 0:
            rank = rank_of(p, STEPS)
            ranks[rank + (RANKS if y == 1.0 else 0)] += 1.0
            ranks[rank + 2 * RANKS] += p
            running[0] += log_e
            if running[0] > running[1]:
                running[1] = running[0]


@entry
def tally_keys(
    forecasts: Vector, outcomes: Vector, place: Ints, slots: Ints, bins: int, sums: Vector, gaps: Vector
) -> None:
    """Per stream: log-loss and Brier sums, and where `gaps` has room the sum of forecast - outcome of each bin."""
    m = float(bins)
    room = len(gaps) // bins
    for i in range(len(forecasts)):
        if place[i] > 0:
            p, y, slot = forecasts[i], outcomes[i], slots[i]
            sums[2 * slot] += log_loss(p, y)
            sums[2 * slot + 1] += (y - p) * (y - p)
            if slot < room:
                gaps[slot * bins + bin_of(p, m)] += p - y


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
    """The tally of one method."""

    def __init__(self, bins: int) -> None:
        self.bins = bins
        self._cells = np.zeros((MOST_BLOCKS + 1) * bins * 3)
        self._sums = np.zeros((MOST_BLOCKS + 1) * 4)
        self.ranks = np.zeros(3 * RANKS)  # zeros, ones, sum of forecasts of each rank
        self.running = np.zeros(3)
        self._key_sums, self._key_gaps = np.empty(0), np.empty(0)

    def count(self, forecasts: Vector, outcomes: Vector, place: Ints, raw_loss: Vector) -> None:
        """Count a chunk."""
        tally(forecasts, outcomes, place, raw_loss, self.bins, self._cells, self._sums, self.ranks, self.running)

    def count_keys(
        self, forecasts: Vector, outcomes: Vector, place: Ints, slots: Ints, streams: int, most: int
    ) -> None:
        """Count a chunk by stream; calibration errors only for the first `most` of them."""
        self._key_sums = _grown(self._key_sums, 2, streams)
        self._key_gaps = _grown(self._key_gaps, self.bins, min(streams, most), most)
        tally_keys(forecasts, outcomes, place, slots, self.bins, self._key_sums, self._key_gaps)

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
        """Streams x (log-loss, Brier), and streams x bins of sums of forecast - outcome for the first streams."""
        return self._key_sums[: 2 * streams].reshape(-1, 2), self._key_gaps.reshape(-1, self.bins)[:streams]


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


@entry
def tally_scores(scores: Vector, outcomes: Vector, place: Ints, cells: Vector) -> None:
    """Count, sum of log f and sum of log(1 - f) of each rank: warm-up and the rest, zeros and ones apart."""
    for i in range(len(scores)):
        if place[i] < 0:
            continue
        part = (0 if place[i] == 0 else 2) + int(outcomes[i])
        f = max(SCORE_CLIP, scores[i])
        f = min(1.0 - SCORE_CLIP, f)
        at = 3 * (part * SCORE_RANKS + rank_of(f, SCORE_STEPS))
        cells[at] += 1.0
        cells[at + 1] += math.log(f)
        cells[at + 2] += math.log1p(-f)


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
