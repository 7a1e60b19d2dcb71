"""Outcomes that stand for more than one event: weights, and counts of trials.

A log keeps one negative in r, a sample is labelled with a known probability, a row stands for n trials. So an outcome
has a `weight` w, how many events like it the sample stands for, and `trials` n, how many events it is. They tell
different things: weight 20 is one piece of news, 20 trials are twenty. Only ratios of weights within a stream matter.
An outcome learns with::

    omega = trials (w kappa),   kappa = sum w v trials / sum w^2 v trials    over the last 1,000 to 2,000 outcomes

v = y (1 - p)^2 + (1 - y) p^2 is the mean squared residual of the events behind y, the share of ones. So the information
that the outcomes claim, sum omega v, is the variance of what they say. Where all weights are equal, kappa is one over
the weight.

**Clip.** An outcome tells at most ten times as much as (the root of) all others of the window together.

**Portions.** A learner that steps by what it knows learns omega in portions 1, 1, 2, 4, ...: none tells more than those
before it.

In a row these sums stand from `SUM` on. While each outcome was one event of weight 1, only `SUM` and `SUM_BEFORE`
move.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from calibeat._util.types import Vector

from .algebra import exp, ln
from .layout import CLIPPED, SQUARES, SUM, SUM_BEFORE, SUM_SQUARED, SUM_SQUARED_BEFORE, TOTAL, N
from .subset import kernel, large_kernel

BLOCK = 1000  # outcomes
MOST_SURPRISE = 10.0  # a weight tells at most so many times what all others of the window do
LEAST_SPREAD = 1e-12  # of v
SPENT = 1e-9  # a rest of omega this small is joined to the portion before it
EQUAL = 1e-11  # an omega this near to the number of trials is that number: what differs is rounding
MOST_DRIFT = 100.0  # an outcome of many trials brings the drift of at most so many events


class Outcome(NamedTuple):
    """What came of a forecast: the share of ones among `trials` events, each of which stands for `weight`."""

    y: float
    weight: float
    trials: float


class Lesson(NamedTuple):
    """An outcome as the parts of a method learn it: omega is how many events it is worth, `weight` was clipped.

    `is_share`: y is neither 0 nor 1. `is_bet`: every outcome of the stream had weight 1, so evidence is a fair bet.
    """

    y: float
    omega: float
    weight: float
    trials: float
    is_share: bool
    is_bet: bool


@kernel
def in_log(odds: float, p: float) -> float:
    """A probability in the odds of the log, which are so many times larger; 0 and 1 stay."""
    return p * odds / (p * odds + (1.0 - p)) if odds != 1.0 else p


@kernel
def in_truth(odds: float, p: float) -> float:
    """The inverse of `in_log`."""
    return p / (p + (1.0 - p) * odds) if odds != 1.0 else p


@kernel
def one_event(y: float) -> Lesson:
    """An outcome of one event, in a stream that never had another weight."""
    return Lesson(y, 1.0, 1.0, 1.0, False, True)


@kernel
def is_plain(row: Vector, outcome: Outcome) -> bool:
    """Whether an outcome, and every one before it, is one event of weight 1."""
    return outcome.weight == 1.0 and outcome.trials == 1.0 and row[TOTAL] == 0.0


@kernel
def is_nothing(outcome: Outcome) -> bool:
    """Whether an outcome stands for no event: it is settled, and nothing is learnt."""
    return outcome.weight == 0.0 or outcome.trials == 0.0


@kernel
def spread(y: float, p: float) -> float:
    """v, the mean squared residual of the events behind y under forecast p."""
    return max(LEAST_SPREAD, y * (1.0 - p) * (1.0 - p) + (1.0 - y) * p * p)


@kernel
def turn_block(row: Vector, n: int) -> None:
    """After a block of outcomes, n in all, its sums become those of the block before."""
    if n % BLOCK == 0 and n > 0:
        row[SUM_BEFORE], row[SUM_SQUARED_BEFORE] = row[SUM], row[SUM_SQUARED]
        row[SUM] = row[SUM_SQUARED] = 0.0


@kernel
def note_event(row: Vector, n: float, v: float) -> None:
    """Add an outcome after n others, one event of weight 1, to the sums of a stream that never had another one."""
    turn_block(row, int(n))
    row[SUM] += v


@kernel
def pace(row: Vector, outcome: Outcome, v: float) -> Lesson:
    """Add an outcome to the sums -> what is to be learnt of it."""
    y, w, trials, n = outcome.y, outcome.weight, outcome.trials, row[N]
    if row[TOTAL] == 0.0:  # so far all weights were 1
        row[SUM_SQUARED], row[SUM_SQUARED_BEFORE] = row[SUM], row[SUM_BEFORE]
        row[TOTAL] = row[SQUARES] = n
    turn_block(row, int(n))
    before, squared = row[SUM] + row[SUM_BEFORE], row[SUM_SQUARED] + row[SUM_SQUARED_BEFORE]
    if w * before > MOST_SURPRISE * squared:  # no smaller weight is ever clipped
        kappa = before / squared if squared > 0.0 else 0.0
        most = MOST_SURPRISE * max(1.0, math.sqrt(before * kappa / (trials * v)))
        if w * kappa > most:
            w = most / kappa
            row[CLIPPED] += 1.0
    row[SUM] += w * v * trials
    row[SUM_SQUARED] += w * w * v * trials
    row[TOTAL] += w * trials
    row[SQUARES] += w * w * trials
    omega = trials * (w * scale_of_weights(row))
    if abs(omega - trials) <= EQUAL * trials:
        omega = trials
    return Lesson(y, omega, w, trials, 0.0 < y < 1.0, w == 1.0 and row[TOTAL] == row[SQUARES])


@kernel
def scale_of_weights(row: Vector) -> float:
    """kappa, 1 while all weights were 1."""
    if row[TOTAL] == 0.0:
        return 1.0
    squared = row[SUM_SQUARED] + row[SUM_SQUARED_BEFORE]
    return (row[SUM] + row[SUM_BEFORE]) / squared if squared > 0.0 else 1.0


@kernel
def portion(left: float, done: float) -> float:
    """The next portion of omega, of which so much is left and so much done."""
    part = min(left, max(1.0, done))
    return left if left - part < SPENT else part


@kernel
def events_of_drift(lesson: Lesson) -> float:
    """How many events of drift an outcome brings."""
    return min(MOST_DRIFT, lesson.trials)


@large_kernel
def likelihood_of_share(p: float, y: float) -> float:
    """p^y (1 - p)^(1 - y)"""
    return exp(y * ln(p) + (1.0 - y) * ln(1.0 - p))


@kernel
def likelihood_of(p: float, lesson: Lesson) -> float:
    """The probability that p gave to an outcome."""
    if lesson.is_share:
        return likelihood_of_share(p, lesson.y)
    return p if lesson.y == 1.0 else 1.0 - p


@kernel
def lump(temper: float, total: float, top: float, fresh: float, omega: float) -> float:
    """What an outcome with omega > T costs the certificate, in nats.

    The mixture is judged once, the parts omega times: T ln sum w L^(omega/T) - omega ln sum w L. The first sum was
    taken of L/top, where ln(top) is given; `fresh` is ln sum w L.
    """
    return max(0.0, temper * ln(total) + omega * top - omega * fresh)
