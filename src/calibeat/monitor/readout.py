"""What a row says: level, evidence, gain, gaps. Kernels that change nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calibeat._util.columns import Table
from calibeat._util.types import Vector
from calibeat.core.jit import compilable, plain

from .layout import (
    COUNT,
    DETECTOR,
    KINDS,
    LINE,
    PAIRS,
    PHI,
    REGION,
    REGIONS,
    SQUARES,
    SUM_P,
    SUM_Y,
    SURE,
    WEALTH,
    WHOLE,
    Settings,
)

LEAST, TILTS = -10, 17  # lambda = 2^-10 .. 2^6


class Gain(NamedTuple):
    """Mean gain over the raw score with an interval that holds at every moment; positive is better than raw."""

    mean: float
    low: float
    high: float


@compilable
def level(spec: Vector, row: Vector) -> float:
    """The highest detector as a share of the alarm line."""
    best = max(row[WHOLE] + row[WHOLE + 1], row[WHOLE + 2] + row[WHOLE + 3])
    best = max(best, row[SURE] + row[SURE + 1], row[SURE + 2] + row[SURE + 3])
    for b in range(int(spec[KINDS])):
        at = REGIONS + REGION * b + DETECTOR
        best = max(best, row[at] + row[at + 1], row[at + 2] + row[at + 3])
    return best / spec[LINE]


@compilable
def add_logs(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high = max(a, b)
    return high + math.log1p(math.exp(min(a, b) - high))


@compilable
def region_log_e(row: Vector, region: int, direction: int) -> float:
    """Log e-value since the start of a region: the mean over sizes of e^W. Direction 0 is "too low"."""
    at = REGIONS + REGION * region + WEALTH + 2 * direction
    return add_logs(row[at], row[at + 1]) - math.log(2.0)


@compilable
def wide_log_e(row: Vector, kinds: int, direction: int, sure: bool) -> float:
    """Log e-value since the start of all events, or of "sure": signs turned round below one half."""
    small, large = 0.0, 0.0
    for b in range(kinds):
        side = 1 - direction if sure and b < kinds // 2 else direction
        at = REGIONS + REGION * b + WEALTH + 2 * side
        small += row[at]
        large += row[at + 1]
    return add_logs(small, large) - math.log(2.0)


@compilable
def evidence(spec: Vector, row: Vector) -> float:
    """Log of the overall e-value: a third each for all events, "sure" and the regions together."""
    kinds = int(spec[KINDS])
    total = add_logs(wide_log_e(row, kinds, 0, False), wide_log_e(row, kinds, 1, False))
    total = add_logs(total, add_logs(wide_log_e(row, kinds, 0, True), wide_log_e(row, kinds, 1, True)))
    for b in range(kinds):
        both = add_logs(region_log_e(row, b, 0), region_log_e(row, b, 1))
        total = add_logs(total, both - math.log(float(kinds)))
    return total - math.log(6.0)


@compilable
def radius(v: float, c: float, a: float) -> float:
    """The s with mean over lambda of [lambda c <= 3/4] exp(lambda s - psi(lambda c) v / c^2) = 1/a.

    psi(x) = -log(1 - x) - x. The sum of martingale differences with |b| <= c and variance sum v is ever further than s
    from its mean with probability at most a (Fan, Grama & Liu 2015; Howard et al. 2021). The equation is
    solved by Newton's method from the right: the function is convex and rises.
    """
    if c <= 0.0:
        return 0.0
    goal = math.log(TILTS / a)
    s = math.inf
    for i in range(TILTS):
        x = math.ldexp(c, LEAST + i)
        if x <= 0.75:
            s = min(s, (goal + (-math.log1p(-x) - x) * (v / c / c)) / math.ldexp(1.0, LEAST + i))
    for _ in range(60):
        top, total, slope = -math.inf, 0.0, 0.0
        for i in range(TILTS):
            x = math.ldexp(c, LEAST + i)
            if x <= 0.75:
                top = max(top, math.ldexp(s, LEAST + i) - (-math.log1p(-x) - x) * (v / c / c))
        for i in range(TILTS):
            x = math.ldexp(c, LEAST + i)
            if x <= 0.75:
                w = math.exp(math.ldexp(s, LEAST + i) - (-math.log1p(-x) - x) * (v / c / c) - top)
                total += w
                slope += math.ldexp(w, LEAST + i)
        move = (top + math.log(total) - goal) * total / slope
        if not move > 1e-15 * s:
            break
        s -= move
    return s


def gain_of(row: Vector, at: int, alpha: float) -> Gain:
    """The mean gain at BRIER or LOG, and its interval."""
    pairs = row[PAIRS]
    if pairs == 0.0:
        return Gain(math.nan, -math.inf, math.inf)
    mean, half = row[at] / pairs, plain(radius)(row[at + 1], row[at + 2], alpha / 2.0) / pairs
    return Gain(mean, mean - half, mean + half)


def table_of(settings: Settings, row: Vector) -> Table:
    """The regions, one element each; columns as `Monitor.table` lists them."""
    regions, edges = settings.regions, settings.edges
    states = [row[REGIONS + REGION * b : REGIONS + REGION * (b + 1)] for b in range(regions)]
    count = np.array([state[COUNT] for state in states])
    some = np.where(count > 0.0, count, np.nan)
    forecast, outcome = (np.array([state[at] for state in states]) / some for at in (SUM_P, SUM_Y))
    halves = [plain(radius)(row[PHI] * state[SQUARES], 1.0, settings.alpha / (2 * regions)) for state in states]
    gap, half = outcome - forecast, np.array(halves) / some
    log_e = [[plain(region_log_e)(row, b, side) for b in range(regions)] for side in (0, 1)]
    return Table(
        {
            "low": np.array(edges[:-1]),
            "high": np.array(edges[1:]),
            "count": count.astype(np.int64),
            "forecast": forecast,
            "outcome": outcome,
            "gap": gap,
            "gap_low": gap - half,
            "gap_high": gap + half,
            "log_e_too_low": np.array(log_e[0]),
            "log_e_too_high": np.array(log_e[1]),
        }
    )
