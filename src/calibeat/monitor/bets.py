"""One row of a monitor: its layout, the kernels that read an outcome into it, and the kernels that read it out.

The row, with R regions::

    n, phi, Brier (S, V, c), log-loss (S, V, c), pairs, forecasts     counts, dispersion, gain over the raw score
    3 x (sum g, sum v)                                                dispersion, blocks of 128, 1024, 8192
    2 x (4 R, 4 S)                                                    detectors of all events and of "sure"
    R x (count, sum p, sum y, sum (y-p)^2, 4 W, 4 R, 4 S)             regions; W = log wealth since the start
    alarms, pages, last alarm, since, cell, sum of waiting numbers    the last alarm, and what waits
    3 x (last z, sum of half d^2)                                     dispersion, closed blocks
    alarms given, pages given                                         what `new_alarms` has taken out

The four bets are in the order +0.25, +1, -0.25, -1. Six regions take 142 numbers, two take 78. What every outcome
touches comes first, in groups of eight, which is a cache line. What it seldom touches is counted from the end.

Letters as in docs/monitor.md: forecast p, outcome y, tilt d, dispersion phi, log bet g, bet L = e^g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_shares, check_whole, shown
from calibeat._util.columns import Table
from calibeat._util.types import Vector
from calibeat.core.algebra import exp, exps, ln
from calibeat.core.subset import kernel, large_kernel, loop, scratch, unrolled
from calibeat.errors import InvalidInput

# ---- the row -----------------------------------------------------------------------------------------------------
N, PHI = 0, 1
BRIER, LOG, PAIRS, FORECASTS = 2, 5, 8, 9  # BRIER and LOG are followed by V and c
BLOCKS = 10  # three pairs
WHOLE, SURE = 16, 24  # detectors: four R, four S
REGIONS, REGION = 32, 16  # where the regions start, and how many numbers one takes
COUNT, SUM_P, SUM_Y, SQUARES, WEALTH, DETECTOR = 0, 1, 2, 3, 4, 8  # in a region
# CLOSED: three pairs. GIVEN: how many alarms `new_alarms` has given; behind it, how many of them paged.
ALARMS, PAGES, ALARM_AT, SINCE, CELL, WAITING, CLOSED = range(-14, -7)
GIVEN = -2
TAIL = 14

# ---- the spec ----------------------------------------------------------------------------------------------------
ALARM_LINE, UP, DOWN, QUIET, WARM, REGION_COUNT, EDGE = range(7)  # from EDGE on: the inner edges of the regions
SPEC_WIDTH = EDGE + 5

EDGES = {2: (0.5,), 6: (0.05, 0.2, 0.5, 0.8, 0.95)}  # 0.5 is always one: "sure" turns round there
THIRDS, DIRECTIONS, SIZES = 3.0, 2.0, 2.0  # an alarm's line is their product times arl
WORDS = ("too low", "too high", "not sure enough", "too sure")  # of all events, and of "sure"

WEIGHTED = (
    "a monitor cannot judge weighted outcomes: a weight does not tell how often the log keeps the other outcome - "
    "give Monitor(sampled=(k1, k0)), the shares of ones and zeros that the log kept, or leave the monitor out"
)
COUNTED = (
    "a monitor cannot judge counts: one row is many outcomes, and it reads one at a time - "
    "give it a row for each outcome, or leave the monitor out"
)


@dataclass(frozen=True)
class Settings:
    """The parameters of `Monitor`."""

    arl: float = 1_000_000.0
    alpha: float = 0.05
    tolerance: float = 0.0
    quiet: int = 1000
    warm: int = 1024
    patience: int = 100_000
    regions: int = 6
    sampled: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("arl", 1.0, 1e15), ("alpha", 1e-12, 0.5), ("tolerance", 0.0, 10.0)):
            object.__setattr__(self, name, check_interval(name, getattr(self, name), least, most))
        for name, fewest, highest in (("quiet", 0, 2**53), ("warm", 0, 2**53), ("patience", 1, 2**31)):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), fewest, highest))
        if type(self.regions) is not int or self.regions not in EDGES:
            raise InvalidInput(f"regions must be {' or '.join(map(str, EDGES))}, got {shown(self.regions)}")
        if self.sampled is not None:
            object.__setattr__(self, "sampled", check_shares("sampled", self.sampled))

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the regions, 0 and 1 included."""
        return 0.0, *EDGES[self.regions], 1.0

    @property
    def cells(self) -> tuple[str, ...]:
        """What the alarm of each cell says. A cell is 2 x scope + direction: all events, "sure", then the regions."""
        regions = pairwise(self.edges)
        return (*WORDS, *(f"{word} from {low:g} to {high:g}" for low, high in regions for word in WORDS[:2]))

    @property
    def width(self) -> int:
        """How many numbers a row takes."""
        return REGIONS + REGION * self.regions + TAIL

    @property
    def spec(self) -> Vector:
        """The settings as the kernels read them."""
        spec = np.zeros(SPEC_WIDTH)
        spec[ALARM_LINE] = THIRDS * DIRECTIONS * SIZES * self.arl
        spec[UP], spec[DOWN] = exp(self.tolerance), exp(-self.tolerance)
        spec[QUIET], spec[WARM], spec[REGION_COUNT] = self.quiet, self.warm, self.regions
        inner = EDGES[self.regions]
        spec[EDGE : EDGE + len(inner)] = inner
        return spec

    def seen(self, p: Vector) -> Vector:
        """Return the probabilities that an event of the log is 1, given that the log kept it; NaN stays.

        p' = p k1 / (p k1 + (1 - p) k0), with ``sampled=(k1, k0)``. Without it the log kept all, and p' is p itself.
        """
        if self.sampled is None:
            return p
        # Only their ratio matters. One of them is 1 here, so nothing overflows and the sum below is never 0.
        k1, k0 = np.array(self.sampled) / max(self.sampled)
        ones: Vector = p * k1
        return ones / (ones + (1.0 - p) * k0)

    def of_log(self, kept: tuple[float, float] | None) -> Settings:
        """Return the settings behind a host whose log kept these shares.

        Raises
        ------
        InvalidInput : they name other shares.
        """
        if kept is None or self.sampled == kept:
            return self
        if self.sampled is not None:
            raise InvalidInput(f"sampled must be left out, or be the kept {kept}, got {self.sampled}")
        return replace(self, sampled=kept)

    def check_weights(self, *, counts: bool = False) -> None:
        """Raise if such a monitor cannot judge outcomes with weights, or with counts."""
        if counts:
            raise InvalidInput(COUNTED)
        if self.sampled is None:
            raise InvalidInput(WEIGHTED)

    def initial_row(self) -> Vector:
        """The row before the first outcome."""
        row = np.zeros(self.width)
        row[PHI] = 1.0
        return row

    def check_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """Raise unless a monitor with these settings can hold each of the rows."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InvalidInput(f"row must have {self.width} numbers, got {rows.shape[-1]}")
        n = rows[:, N]
        regions = rows[:, REGIONS:-TAIL].reshape(-1, self.regions, REGION)
        own = regions[:, :, DETECTOR:].reshape(len(rows), DETECTOR * self.regions)
        detectors = np.hstack([rows[:, WHOLE:REGIONS], own])
        whole = rows[:, [N, ALARMS, PAGES, ALARM_AT, CELL, PAIRS, FORECASTS, GIVEN, GIVEN + 1]]
        counted = (whole >= 0.0) & (whole <= 2.0**53) & (whole == np.floor(whole))
        sums, most = regions[:, :, :WEALTH], (1.0 + 1e-6) * regions[:, :, [COUNT]]
        V, c = rows[:, [BRIER + 1, LOG + 1]], rows[:, [BRIER + 2, LOG + 2]]
        steps = np.array([2.0, 24.0])  # no c is larger: of the Brier score, and of the log-loss of clipped numbers
        sound = {
            "finite numbers below 1e150": (abs(rows) <= 1e150).all(axis=1),
            "counts that are whole numbers": counted.all(axis=1),
            "phi of at least 1": rows[:, PHI] >= 1.0,
            "pages <= alarms <= n": (rows[:, PAGES] <= rows[:, ALARMS]) & (rows[:, ALARMS] <= n),
            "no more alarms given than raised": (rows[:, GIVEN:] <= rows[:, [ALARMS, PAGES]]).all(axis=1),
            "its last alarm and its start within the outcomes": (rows[:, SINCE] >= 0.0)
            & (rows[:, SINCE] <= n)
            & (rows[:, ALARM_AT] <= n),
            "a cell that exists": rows[:, CELL] < 2 * (2 + self.regions),
            "no more outcomes than forecasts": (rows[:, PAIRS] <= n) & (n <= rows[:, FORECASTS]),
            "as many outcomes in the regions as in all": regions[:, :, COUNT].sum(axis=1) == n,
            "sums from 0 to their counts": ((sums >= 0.0) & (sums <= most)).all(axis=(1, 2)),
            "gains that are possible": ((V >= 0.0) & (c >= 0.0) & (c <= steps)).all(axis=1)
            & ((1.0 + 1e-6) * rows[:, [PAIRS]] * np.minimum(c, steps) ** 2 + 1e-300 >= V).all(axis=1),
            "detectors that are not negative": (detectors >= 0.0).all(axis=1),
        }
        for wanted, met in sound.items():
            if not met.all():
                row = int((~met).argmax())
                got = shown(rows[row, :REGIONS].tolist())
                raise InvalidInput(f"monitor row must have {wanted}, got {got} - at row {row}")


# ---- read one outcome --------------------------------------------------------------------------------------------
SMALL, LARGE = 0.25, 1.0  # the sizes of the tilts, in logits
E_SMALL, E_LARGE = 1.2840254166877414, 2.718281828459045  # e^SMALL, e^LARGE
I_SMALL, I_LARGE = 0.7788007830714049, 0.36787944117144233  # e^-SMALL, e^-LARGE
SHORTEST = 128
SCALES = (SHORTEST, 1024, 8192)  # block lengths of the dispersion, in outcomes
K0 = 8.0  # weight of phi = 1 beforehand, in blocks
CLIP = 1e-5  # for the logarithms of the gain
TOGETHER = 32  # outcomes whose logarithms are taken together


@kernel
def region_of(spec: Vector, p: float) -> int:
    """The region of a forecast, from 0."""
    b = 0
    for i in range(int(spec[REGION_COUNT]) - 1):
        if p >= spec[EDGE + i]:
            b += 1
    return b


@kernel
def tilted(p: float, odds: float) -> float:
    """p with its odds multiplied: sigmoid(logit p + log odds), also for p = 0 and p = 1."""
    return p if odds == 1.0 else p * odds / (1.0 - p + p * odds)


class Ready(NamedTuple):
    """What some outcomes mean for a monitor, whatever its row: numbers of each outcome, one behind the other."""

    means: Vector  # of the four bets
    logs: Vector  # of the means
    ratios: Vector  # log(p / s) and log((1 - p) / (1 - s))


@kernel
def prepare(spec: Vector, p: Vector, s: Vector, ready: Ready) -> None:
    """The logarithms of some outcomes together: a loop over many numbers becomes one over vectors (`ln`)."""
    n = len(p)
    compared = 0
    for i in range(n):
        q = tilted(p[i], spec[UP])
        r = tilted(p[i], spec[DOWN])
        at = 4 * i
        # 1 - q + q e^d, the mean of e^(d y) under the null, for d = +0.25, +1, -0.25, -1.
        ready.means[at] = 1.0 - q + q * E_SMALL
        ready.means[at + 1] = 1.0 - q + q * E_LARGE
        ready.means[at + 2] = 1.0 - r + r * I_SMALL
        ready.means[at + 3] = 1.0 - r + r * I_LARGE
        if s[i] == s[i] and p[i] != s[i]:
            compared += 1
    for k in range(4 * n):
        ready.logs[k] = ln(ready.means[k])
    if compared > 0:
        for i in range(n):
            ours, raw = clipped(p[i]), clipped(s[i])
            ready.ratios[2 * i] = ours / raw
            ready.ratios[2 * i + 1] = (1.0 - ours) / (1.0 - raw)
        for k in range(2 * n):
            ready.ratios[k] = ln(ready.ratios[k])


@kernel
def clipped(p: float) -> float:
    """p as the logarithms of the gain take it."""
    return min(max(p, CLIP), 1.0 - CLIP)


@kernel
def log_bets(logs: Vector, y: float, phi: float, g: Vector) -> None:
    """g = (d y - log m) / phi, with the logarithms of the four means m."""
    w = 1.0 / phi
    g[0] = (SMALL * y - logs[0]) * w
    g[1] = (LARGE * y - logs[1]) * w
    g[2] = (-SMALL * y - logs[2]) * w
    g[3] = (-LARGE * y - logs[3]) * w


@kernel
def detect(row: Vector, at: int, t: float, L: Vector) -> float:
    """R <- (1 + R) L and S <- (t + S) L for four bets -> the larger sum over sizes of R of the two directions."""
    for k in unrolled(4):
        row[at + k] = (1.0 + row[at + k]) * L[k]
    for k in unrolled(4):
        row[at + 4 + k] = (t + row[at + 4 + k]) * L[k]
    return max(row[at] + row[at + 1], row[at + 2] + row[at + 3])


@kernel
def bet(spec: Vector, row: Vector, t: float, region: int, p: float, y: float, m: Vector, logs: Vector) -> bool:
    """Play the bets of one outcome -> whether an alarm is raised."""
    phi = row[PHI]
    g = scratch(4)
    L = scratch(4)
    log_bets(logs, y, phi, g)
    home = REGIONS + REGION * region
    for k in unrolled(4):
        row[home + WEALTH + k] += g[k]
    # Always L = e^g. Where phi is 1, a division says the same four times as fast.
    if phi > 1.0:
        exps(g)
        for k in unrolled(4):
            L[k] = g[k]
    else:  # (e^d if y == 1.0 else 1.0) / m, without a branch that the processor has to guess
        L[0] = (y * E_SMALL + (1.0 - y)) / m[0]
        L[1] = (y * E_LARGE + (1.0 - y)) / m[1]
        L[2] = (y * I_SMALL + (1.0 - y)) / m[2]
        L[3] = (y * I_LARGE + (1.0 - y)) / m[3]
    best = max(detect(row, WHOLE, t, L), detect(row, home + DETECTOR, t, L))
    below = p < 0.5  # "sure" turns the tilt round below one half
    g[0] = L[2] if below else L[0]
    g[1] = L[3] if below else L[1]
    g[2] = L[0] if below else L[2]
    g[3] = L[1] if below else L[3]
    best = max(best, detect(row, SURE, t, g))
    if best < spec[ALARM_LINE]:
        return False
    raise_alarm(spec, row, t, region)
    return True


@large_kernel
def raise_alarm(spec: Vector, row: Vector, t: float, region: int) -> None:
    """Note the alarm of the highest cell (2 x scope + direction), and start all detectors again."""
    best, cell, at = 0.0, 0, WHOLE
    for i in range(6):
        scope = i // 2
        side = (WHOLE if scope == 0 else SURE if scope == 1 else REGIONS + REGION * region + DETECTOR) + 2 * (i % 2)
        if row[side] + row[side + 1] > best:
            best, cell, at = row[side] + row[side + 1], i + (2 * region if scope == 2 else 0), side
    if row[ALARMS] == 0.0 or t - row[ALARM_AT] > spec[QUIET]:
        row[PAGES] += 1.0
    row[ALARMS] += 1.0
    row[ALARM_AT] = t
    row[SINCE] = (row[at + 4] + row[at + 5]) / (row[at] + row[at + 1])
    row[CELL] = cell
    for i in range(WHOLE, REGIONS):
        row[i] = 0.0
    for b in range(int(spec[REGION_COUNT])):
        for i in range(REGIONS + REGION * b + DETECTOR, REGIONS + REGION * (b + 1)):
            row[i] = 0.0


@kernel
def scatter(row: Vector, t: float, p: float, r: float) -> None:
    """Add a residual r = y - p to the blocks; at the end of a block measure the dispersion again."""
    v = p * (1.0 - p)
    row[BLOCKS] += r
    row[BLOCKS + 1] += v
    row[BLOCKS + 2] += r
    row[BLOCKS + 3] += v
    row[BLOCKS + 4] += r
    row[BLOCKS + 5] += v
    if int(t) % SHORTEST == 0:
        close_blocks(row, int(t))


@large_kernel
def close_blocks(row: Vector, n: int) -> None:
    """phi = max(1, max over scales of (8 + sum of half squared differences of neighbouring z) / (8 + how many))."""
    phi = 1.0
    for i in range(3):
        at, closed, count = BLOCKS + 2 * i, len(row) + CLOSED + 2 * i, n // int(SCALES[i]) - 1
        if n % int(SCALES[i]) == 0:
            z = row[at] / math.sqrt(row[at + 1]) if row[at + 1] > 0.0 else 0.0
            if count > 0:
                row[closed + 1] += 0.5 * (z - row[closed]) * (z - row[closed])
            row[at] = 0.0
            row[at + 1] = 0.0
            row[closed] = z
        if count > 0:
            phi = max(phi, (K0 + row[closed + 1]) / (K0 + count))
    row[PHI] = phi


@kernel
def step(spec: Vector, row: Vector, p: float, y: float, s: float, i: int, ready: Ready) -> bool:
    """Read one outcome y of forecast p, the i-th of those that are ready -> whether an alarm is raised.

    `s` is the raw score, NaN if there is none.
    """
    if s == s:  # noqa: PLR0124 - not NaN
        compare(row, p, y, s, ready.ratios[2 * i], ready.ratios[2 * i + 1])
    t = row[N] + 1.0
    r = y - p
    b = region_of(spec, p)
    at = REGIONS + REGION * b
    row[N] = t
    row[at] += 1.0
    row[at + 1] += p
    row[at + 2] += y
    row[at + 3] += r * r
    part = 4 * i
    alarm = t > spec[WARM] and bet(spec, row, t, b, p, y, ready.means[part : part + 4], ready.logs[part : part + 4])
    scatter(row, t, p, r)
    return alarm


@kernel
def compare(row: Vector, p: float, y: float, s: float, one: float, zero: float) -> None:
    """Add what the forecast p gained over the raw score s: Brier score, and log-loss: `one` or `zero` by outcome."""
    row[PAIRS] += 1.0
    if p == s:  # nothing is gained, and nothing moves
        return
    add_gain(row, BRIER, (s - y) * (s - y) - (p - y) * (p - y), 2.0 * (p - s), y - p)
    add_gain(row, LOG, one if y == 1.0 else zero, one - zero, y - clipped(p))


@kernel
def add_gain(row: Vector, at: int, d: float, b: float, r: float) -> None:
    """S + d, V + (b r)^2, c = max |b|; b = d(1) - d(0) is known before the outcome."""
    row[at] += d
    row[at + 1] += b * r * (b * r)
    row[at + 2] = max(row[at + 2], abs(b))


@loop
def read(spec: Vector, row: Vector, p: Vector, y: Vector, s: Vector, first: int) -> int:
    """Read outcomes from `first` on, up to and including the first alarm -> the position behind it, or the length.

    `s` holds the raw scores, NaN where there is none.
    """
    n = len(p)
    means = scratch(4 * TOGETHER)
    logs = scratch(4 * TOGETHER)
    ratios = scratch(2 * TOGETHER)
    ready = Ready(means, logs, ratios)
    for begin in range(first, n, TOGETHER):
        end = min(n, begin + TOGETHER)
        prepare(spec, p[begin:end], s[begin:end], ready)
        for i in range(begin, end):
            if step(spec, row, p[i], y[i], s[i], i - begin, ready):
                return i + 1
    return n


# ---- what a row says: these kernels change nothing -----------------------------------------------------------------
TILTS = 17
LAST_TERM = 16  # of the series of `psi`
LAMBDAS = tuple(2.0**i for i in range(-10, TILTS - 10))


@dataclass(frozen=True)
class Alarm:
    """One alarm of a monitor, or of a `Shift`, `Silence` or `Notice`.

    Attributes
    ----------
    at : how many outcomes had been read when it was raised, that one included. Of a `Shift` the number of the score,
        from 0; of a `Silence` or a `Notice` a time, in seconds since 1970.
    since : where the fault began, in the same unit: an estimate; of a silence the last arrival.
    what : which bet won: "too low", "too high", "too sure", "not sure enough", or "too low from 0.8 to 0.95"; of the
        others what was noticed.
    page : False if another alarm was raised within the last `quiet` outcomes or scores: the same episode. Also for a
        silence of outcomes where none is missing.
    low, high : the forecasts that it concerns, [low, high).
    """

    at: float
    since: float
    what: str
    page: bool

    @property
    def low(self) -> float:
        return float(self.what.split(" ")[-3]) if " from " in self.what else 0.0

    @property
    def high(self) -> float:
        return float(self.what.split(" ")[-1]) if " from " in self.what else 1.0


@dataclass(frozen=True)
class RaisedAlarm(Alarm):
    """An alarm as `new_alarms` gives it.

    Attributes
    ----------
    source : what raised it. "ours" or "raw" is a monitor, by what it watches; "notice" a notice.
    """

    source: str

    @classmethod
    def of(cls, alarm: Alarm, source: str) -> RaisedAlarm:
        return cls(alarm.at, alarm.since, alarm.what, alarm.page, source)


class Gain(NamedTuple):
    """Mean gain over the raw score with an interval that holds at every moment; positive is better than raw."""

    mean: float
    low: float
    high: float


@kernel
def level(spec: Vector, row: Vector) -> float:
    """The highest detector as a share of the alarm line."""
    best = max(row[WHOLE] + row[WHOLE + 1], row[WHOLE + 2] + row[WHOLE + 3])
    best = max(best, row[SURE] + row[SURE + 1], row[SURE + 2] + row[SURE + 3])
    for b in range(int(spec[REGION_COUNT])):
        at = REGIONS + REGION * b + DETECTOR
        best = max(best, row[at] + row[at + 1], row[at + 2] + row[at + 3])
    return best / spec[ALARM_LINE]


@kernel
def add_logs(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high = max(a, b)
    return high + ln(1.0 + exp(min(a, b) - high))


@kernel
def region_log_e(row: Vector, region: int, direction: int) -> float:
    """Log e-value since the start of a region: the mean over sizes of e^W. Direction 0 is "too low"."""
    at = REGIONS + REGION * region + WEALTH + 2 * direction
    return add_logs(row[at], row[at + 1]) - ln(2.0)


@kernel
def wide_log_e(row: Vector, regions: int, direction: int, sure: bool) -> float:
    """Log e-value since the start of all events, or of "sure": signs turned round below one half."""
    small, large = 0.0, 0.0
    for b in range(regions):
        side = 1 - direction if sure and b < regions // 2 else direction
        at = REGIONS + REGION * b + WEALTH + 2 * side
        small += row[at]
        large += row[at + 1]
    return add_logs(small, large) - ln(2.0)


@kernel
def evidence(spec: Vector, row: Vector) -> float:
    """Log of the overall e-value: a third each for all events, "sure" and the regions together."""
    regions = int(spec[REGION_COUNT])
    total = add_logs(wide_log_e(row, regions, 0, False), wide_log_e(row, regions, 1, False))
    total = add_logs(total, add_logs(wide_log_e(row, regions, 0, True), wide_log_e(row, regions, 1, True)))
    for b in range(regions):
        both = add_logs(region_log_e(row, b, 0), region_log_e(row, b, 1))
        total = add_logs(total, both - ln(float(regions)))
    return total - ln(6.0)


@kernel
def psi(x: float) -> float:
    """-ln(1 - x) - x for x in [0, 3/4], with all its digits where x is small: there by its series."""
    if x > 0.1:
        return -ln(1.0 - x) - x
    total = 0.0
    for k in range(LAST_TERM, 1, -1):
        total = (total + 1.0 / k) * x
    return total * x


@kernel
def radius(v: float, c: float, a: float) -> float:
    """The s with mean over lambda of [lambda c <= 3/4] exp(lambda s - psi(lambda c) v / c^2) = 1/a.

    psi(x) = -log(1 - x) - x. The sum of martingale differences with |b| <= c and variance sum v is ever further than s
    from its mean with probability at most a (Fan, Grama & Liu 2015; Howard et al. 2021). The equation is
    solved by Newton's method from the right: the function is convex and rises.
    """
    if c <= 0.0:
        return 0.0
    goal = ln(TILTS / a)
    s = math.inf
    for i in range(TILTS):
        x = LAMBDAS[i] * c
        if x <= 0.75:
            s = min(s, (goal + psi(x) * (v / c / c)) / LAMBDAS[i])
    for _ in range(60):
        top, total, slope = -math.inf, 0.0, 0.0
        for i in range(TILTS):
            x = LAMBDAS[i] * c
            if x <= 0.75:
                top = max(top, LAMBDAS[i] * s - psi(x) * (v / c / c))
        for i in range(TILTS):
            x = LAMBDAS[i] * c
            if x <= 0.75:
                w = exp(LAMBDAS[i] * s - psi(x) * (v / c / c) - top)
                total += w
                slope += LAMBDAS[i] * w
        move = (top + ln(total) - goal) * total / slope
        if not move > 1e-15 * s:
            break
        s -= move
    return s


@kernel
def gain_of(row: Vector, at: int, alpha: float) -> tuple[float, float, float]:
    """The mean gain at BRIER or LOG, and its interval: the numbers of a `Gain`."""
    pairs = row[PAIRS]
    if pairs == 0.0:
        return math.nan, -math.inf, math.inf
    mean = row[at] / pairs
    half = radius(row[at + 1], row[at + 2], alpha / 2.0) / pairs
    return mean, mean - half, mean + half


def table_of(settings: Settings, row: Vector) -> Table:
    """The regions, one element each; columns as `Monitor.table` lists them."""
    regions, edges = settings.regions, settings.edges
    states = row[REGIONS:-TAIL].reshape(regions, REGION)
    count = states[:, COUNT]
    some = np.where(count > 0.0, count, np.nan)
    forecast, outcome = states[:, SUM_P] / some, states[:, SUM_Y] / some
    halves = [radius(row[PHI] * state[SQUARES], 1.0, settings.alpha / (2 * regions)) for state in states]
    gap, half = outcome - forecast, np.array(halves) / some
    log_e = [[region_log_e(row, b, side) for b in range(regions)] for side in (0, 1)]
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
