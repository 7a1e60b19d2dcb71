"""Kernels over a matrix of monitor rows: outcomes of many streams, and what the rows say as columns."""

from __future__ import annotations

import math

from calibeat._util.types import Slots, Vector
from calibeat.core.jit import compilable
from calibeat.core.prefetch import prefetch

from .bets import compare, region_of, step
from .layout import BRIER, DETECTOR, FORECASTS, PAIRS, REGION, REGIONS, SURE, WHOLE, N
from .readout import evidence, level, radius

LINE = 8  # numbers in a cache line
AHEAD = 6  # how many events before its turn a row is asked for
LEVEL, EVIDENCE, GAIN_LOW, GAIN_HIGH, READOUTS = 0, 1, 2, 3, 4


@compilable
def fetch(spec: Vector, rows: Vector, at: int, p: float) -> None:
    """Ask for the cache lines of a row that an outcome of forecast p touches."""
    prefetch(rows, at)
    prefetch(rows, at + LINE)
    prefetch(rows, at + WHOLE)
    prefetch(rows, at + SURE)
    region = at + REGIONS + REGION * region_of(spec, p)
    prefetch(rows, region)
    prefetch(rows, region + DETECTOR)


@compilable
def read_rows(
    spec: Vector,
    rows: Vector,
    stride: int,
    width: int,
    slots: Slots,
    first: int,
    last: int,
    p: Vector,
    y: Vector,
    s: Vector,
) -> None:
    """Announce and read each outcome on the row of its slot; only the slots from first to last.

    p are the forecasts, s the raw scores. An outcome of NaN never comes; one that is negative is not for this loop.
    """
    n = len(slots)
    for i in range(n):
        ahead = slots[i + AHEAD] if i + AHEAD < n else -1
        if first <= ahead < last:
            fetch(spec, rows, ahead * stride, p[i + AHEAD])
        if first <= slots[i] < last and not y[i] < 0.0:
            row = rows[slots[i] * stride : slots[i] * stride + width]
            row[FORECASTS] += 1.0
            if y[i] == y[i]:
                compare(row, p[i], y[i], s[i])
                step(spec, row, p[i], y[i])


@compilable
def read_out(spec: Vector, rows: Vector, stride: int, width: int, slots: Slots, alpha: float, out: Vector) -> None:
    """Level, evidence and the ends of the Brier gain of each slot, one behind the other."""
    for i in range(len(slots)):
        row = rows[slots[i] * stride : slots[i] * stride + width]
        at = READOUTS * i
        out[at + LEVEL] = level(spec, row)
        out[at + EVIDENCE] = evidence(spec, row)
        out[at + GAIN_LOW] = -math.inf
        out[at + GAIN_HIGH] = math.inf
        if row[PAIRS] > 0.0:
            mean = row[BRIER] / row[PAIRS]
            half = radius(row[BRIER + 1], row[BRIER + 2], alpha / 2.0) / row[PAIRS]
            out[at + GAIN_LOW] = mean - half
            out[at + GAIN_HIGH] = mean + half


@compilable
def bets_made(rows: Vector, stride: int, count: int, warm: float) -> float:
    """How many outcomes of the first `count` rows came after their warm-up."""
    total = 0.0
    for at in range(0, count * stride, stride):
        total += max(0.0, rows[at + N] - warm)
    return total
