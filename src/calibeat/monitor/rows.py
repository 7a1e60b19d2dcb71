"""Kernels over a matrix of monitor rows: outcomes of many streams, and what the rows say as columns."""

from __future__ import annotations

import math

from calibeat._util.types import Slots, Vector
from calibeat.core.jit import kernel
from calibeat.core.prefetch import prefetch

from .bets import compare, region_of, step
from .layout import BRIER, FORECASTS, KINDS, PAIRS, REGION, REGIONS, SCOPE, N
from .readout import evidence, level, radius

LINE = 8  # numbers in a cache line
AHEAD = 6  # how many events before its turn a row is asked for
LEVEL, EVIDENCE, GAIN_LOW, GAIN_HIGH, READOUTS = 0, 1, 2, 3, 4


@kernel
def fetch(spec: Vector, rows: Vector, at: int, p: float) -> None:
    """Ask for the parts of a row that an outcome of forecast p touches."""
    kinds, b = int(spec[KINDS]), region_of(spec, p)
    for line in range(at, at + REGIONS, LINE):
        prefetch(rows, line)
    region = at + REGIONS + REGION * b
    prefetch(rows, region)
    prefetch(rows, region + REGION - 1)
    scopes = at + REGIONS + REGION * kinds
    prefetch(rows, scopes)
    prefetch(rows, scopes + SCOPE)
    prefetch(rows, scopes + 2 * SCOPE - 1)
    prefetch(rows, scopes + SCOPE * (2 + b))
    prefetch(rows, scopes + SCOPE * (3 + b) - 1)


@kernel
def read_rows(
    spec: Vector, rows: Vector, stride: int, slots: Slots, first: int, last: int, p: Vector, y: Vector, s: Vector
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
            row = rows[slots[i] * stride : (slots[i] + 1) * stride]
            row[FORECASTS] += 1.0
            if y[i] == y[i]:
                compare(row, p[i], y[i], s[i])
                step(spec, row, p[i], y[i])


@kernel
def read_out(spec: Vector, rows: Vector, stride: int, slots: Slots, alpha: float, out: Vector) -> None:
    """Level, evidence and the ends of the Brier gain of each slot, one behind the other."""
    for i in range(len(slots)):
        row = rows[slots[i] * stride : (slots[i] + 1) * stride]
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


@kernel
def bets_made(rows: Vector, stride: int, count: int, warm: float) -> float:
    """How many outcomes of the first `count` rows came after their warm-up."""
    total = 0.0
    for at in range(0, count * stride, stride):
        total += max(0.0, rows[at + N] - warm)
    return total
