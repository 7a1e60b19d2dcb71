"""The kernels that read one outcome: bets, detector, dispersion, gain.

Letters as in docs/monitor.md: forecast p, outcome y, tilt d, dispersion phi, log bet g, bet L = e^g.
"""

from __future__ import annotations

import math

from calibeat._util.types import Vector
from calibeat.core.jit import compilable, large_kernel

from .layout import (
    ALARMS,
    BLOCKS,
    BRIER,
    CELL,
    CLOSED,
    DETECTOR,
    DOWN,
    EDGE,
    KINDS,
    LAST,
    LINE,
    LOG,
    PAGES,
    PAIRS,
    PHI,
    QUIET,
    REGION,
    REGIONS,
    SINCE,
    SURE,
    UP,
    WARM,
    WEALTH,
    WHOLE,
    N,
)

SMALL, LARGE = 0.25, 1.0  # the sizes of the tilts, in logits
E_SMALL, E_LARGE = math.exp(SMALL), math.exp(LARGE)
I_SMALL, I_LARGE = math.exp(-SMALL), math.exp(-LARGE)
SCALES = (128, 1024, 8192)  # block lengths of the dispersion, in outcomes
K0 = 8.0  # weight of phi = 1 beforehand, in blocks
CLIP = 1e-5  # for the logarithms of the gain


@compilable
def region_of(spec: Vector, p: float) -> int:
    """The region of a forecast, from 0."""
    b = 0
    for i in range(int(spec[KINDS]) - 1):
        if p >= spec[EDGE + i]:
            b += 1
    return b


@compilable
def tilted(p: float, odds: float) -> float:
    """p with its odds multiplied: sigmoid(logit p + log odds), also for p = 0 and p = 1."""
    return p if odds == 1.0 else p * odds / (1.0 - p + p * odds)


@compilable
def means(spec: Vector, p: float) -> tuple[float, float, float, float]:
    """1 - q + q e^d, the mean of e^(d y) under the null, for d = +0.25, +1, -0.25, -1."""
    q = tilted(p, spec[UP])
    r = tilted(p, spec[DOWN])
    return 1.0 - q + q * E_SMALL, 1.0 - q + q * E_LARGE, 1.0 - r + r * I_SMALL, 1.0 - r + r * I_LARGE


@compilable
def log_bets(m0: float, m1: float, m2: float, m3: float, y: float, phi: float) -> tuple[float, float, float, float]:
    """g = (d y - log m) / phi, with the four means m."""
    w = 1.0 / phi
    return (
        (SMALL * y - math.log(m0)) * w,
        (LARGE * y - math.log(m1)) * w,
        (-SMALL * y - math.log(m2)) * w,
        (-LARGE * y - math.log(m3)) * w,
    )


@compilable
def detect(row: Vector, at: int, t: float, a: float, b: float, c: float, d: float) -> tuple[float, float]:
    """R <- (1 + R) L and S <- (t + S) L for four bets -> the sums over sizes of R, per direction."""
    row[at] = (1.0 + row[at]) * a
    row[at + 1] = (1.0 + row[at + 1]) * b
    row[at + 2] = (1.0 + row[at + 2]) * c
    row[at + 3] = (1.0 + row[at + 3]) * d
    row[at + 4] = (t + row[at + 4]) * a
    row[at + 5] = (t + row[at + 5]) * b
    row[at + 6] = (t + row[at + 6]) * c
    row[at + 7] = (t + row[at + 7]) * d
    return row[at] + row[at + 1], row[at + 2] + row[at + 3]


@compilable
def bet(spec: Vector, row: Vector, t: float, region: int, p: float, y: float) -> bool:
    """Play the bets of one outcome -> whether an alarm is raised."""
    phi = row[PHI]
    m0, m1, m2, m3 = means(spec, p)
    g0, g1, g2, g3 = log_bets(m0, m1, m2, m3, y, phi)
    home = REGIONS + REGION * region
    wealth = home + WEALTH
    row[wealth] += g0
    row[wealth + 1] += g1
    row[wealth + 2] += g2
    row[wealth + 3] += g3
    # Always a = e^g0 and so on. Where phi is 1, a division says the same four times as fast.
    if phi > 1.0:
        a, b, c, d = math.exp(g0), math.exp(g1), math.exp(g2), math.exp(g3)
    elif y == 1.0:
        a, b, c, d = E_SMALL / m0, E_LARGE / m1, I_SMALL / m2, I_LARGE / m3
    else:
        a, b, c, d = 1.0 / m0, 1.0 / m1, 1.0 / m2, 1.0 / m3
    low, high = detect(row, WHOLE, t, a, b, c, d)
    best, cell = low, 0
    if high > best:
        best, cell = high, 1
    if p < 0.5:  # "sure" turns the tilt round below one half
        low, high = detect(row, SURE, t, c, d, a, b)
    else:
        low, high = detect(row, SURE, t, a, b, c, d)
    if low > best:
        best, cell = low, 2
    if high > best:
        best, cell = high, 3
    low, high = detect(row, home + DETECTOR, t, a, b, c, d)
    if low > best:
        best, cell = low, 4 + 2 * region
    if high > best:
        best, cell = high, 5 + 2 * region
    if best < spec[LINE]:
        return False
    raise_alarm(spec, row, t, cell)
    return True


@large_kernel
def raise_alarm(spec: Vector, row: Vector, t: float, cell: int) -> None:
    """Note the alarm of a cell (2 x scope + direction), and start all detectors again."""
    scope = cell // 2
    at = (WHOLE if scope == 0 else SURE if scope == 1 else REGIONS + REGION * (scope - 2) + DETECTOR) + 2 * (cell % 2)
    if row[ALARMS] == 0.0 or t - row[LAST] > spec[QUIET]:
        row[PAGES] += 1.0
    row[ALARMS] += 1.0
    row[LAST] = t
    row[SINCE] = (row[at + 4] + row[at + 5]) / (row[at] + row[at + 1])
    row[CELL] = cell
    for i in range(WHOLE, REGIONS):
        row[i] = 0.0
    for b in range(int(spec[KINDS])):
        for i in range(REGIONS + REGION * b + DETECTOR, REGIONS + REGION * (b + 1)):
            row[i] = 0.0


@compilable
def scatter(row: Vector, t: float, p: float, r: float) -> None:
    """Add a residual r = y - p to the blocks; at the end of a block measure the dispersion again."""
    v = p * (1.0 - p)
    row[BLOCKS] += r
    row[BLOCKS + 1] += v
    row[BLOCKS + 2] += r
    row[BLOCKS + 3] += v
    row[BLOCKS + 4] += r
    row[BLOCKS + 5] += v
    if int(t) % SCALES[0] == 0:
        close_blocks(row, int(t))


@large_kernel
def close_blocks(row: Vector, n: int) -> None:
    """phi = max(1, max over scales of (8 + sum of half squared differences of neighbouring z) / (8 + how many))."""
    phi = 1.0
    for i in range(3):
        at, closed, count = BLOCKS + 2 * i, CLOSED + 2 * i, n // SCALES[i] - 1
        if n % SCALES[i] == 0:
            z = row[at] / math.sqrt(row[at + 1]) if row[at + 1] > 0.0 else 0.0
            if count > 0:
                row[closed + 1] += 0.5 * (z - row[closed]) * (z - row[closed])
            row[at] = 0.0
            row[at + 1] = 0.0
            row[closed] = z
        if count > 0:
            phi = max(phi, (K0 + row[closed + 1]) / (K0 + count))
    row[PHI] = phi


@compilable
def step(spec: Vector, row: Vector, p: float, y: float) -> bool:
    """Read one outcome y of forecast p -> whether an alarm is raised."""
    t = row[N] + 1.0
    r = y - p
    b = region_of(spec, p)
    at = REGIONS + REGION * b
    row[N] = t
    row[at] += 1.0
    row[at + 1] += p
    row[at + 2] += y
    row[at + 3] += r * r
    alarm = t > spec[WARM] and bet(spec, row, t, b, p, y)
    scatter(row, t, p, r)
    return alarm


@compilable
def compare(row: Vector, p: float, y: float, s: float) -> None:
    """Add what the forecast p gained over the raw score s: Brier score and log-loss."""
    row[PAIRS] += 1.0
    add_gain(row, BRIER, (s - y) * (s - y) - (p - y) * (p - y), 2.0 * (p - s), y - p)
    p = min(max(p, CLIP), 1.0 - CLIP)
    s = min(max(s, CLIP), 1.0 - CLIP)
    one = math.log(p / s)
    zero = math.log((1.0 - p) / (1.0 - s))
    add_gain(row, LOG, one if y == 1.0 else zero, one - zero, y - p)


@compilable
def add_gain(row: Vector, at: int, d: float, b: float, r: float) -> None:
    """S + d, V + (b r)^2, c = max |b|; b = d(1) - d(0) is known before the outcome."""
    row[at] += d
    row[at + 1] += b * r * (b * r)
    if abs(b) > row[at + 2]:
        row[at + 2] = abs(b)


@compilable
def read(spec: Vector, row: Vector, p: Vector, y: Vector, s: Vector, first: int) -> int:
    """Read outcomes from `first` on, up to and including the first alarm -> the position behind it, or the length.

    `s` holds the raw scores, NaN where there is none.
    """
    n = len(p)
    for i in range(first, n):
        if s[i] == s[i]:
            compare(row, p[i], y[i], s[i])
        if step(spec, row, p[i], y[i]):
            return i + 1
    return n
