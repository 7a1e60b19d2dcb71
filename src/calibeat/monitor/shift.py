"""Has the score moved, before its outcomes are in? `Shift` bets on the rank of each score in the stream's own memory.

The row, with B bets (five for scores, one for delays)::

    20 counts by bin, their weight                                    the memory
    seen, last, share of repeats, until                               scores so far; the last one; no bets before that
    alarms, pages, last alarm, since, what                            of the last alarm
    B x (R, S, mean, variance, 2 block sums, 2 phi)                   detector and dispersion of each bet

Letters as in docs/explanation/notice.md: memory h of weight w, rank [low, high), log bet g, detector R and S,
dispersion phi.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_interval, check_scores, check_whole, shown
from calibeat._util.types import Vector
from calibeat.core.algebra import exp, ln, power, scale_of
from calibeat.core.subset import entry, kernel, large_kernel, scratch
from calibeat.errors import InvalidInput

from .bets import Alarm
from .detector import KEPT, Detector, check_sound

# ---- the row -------------------------------------------------------------------------------------------------------
BINS = 20
WEIGHT, SEEN, LAST, SHARE, UNTIL, ALARMS, PAGES, ALARM_AT, SINCE, WHAT = range(BINS, BINS + 10)
BETS, BET = BINS + 10, 8  # where the bets start, and how many numbers one takes
R, S, MEAN, VARIANCE, SUMS, PHI = 0, 1, 2, 3, 4, 6  # in a bet; SUMS and PHI for both blocks

MEMORY = 8192.0  # scores that the memory holds
POWER = 0.4  # how strongly a bet is tilted
BLOCKS = (64, 1024)  # block lengths of the dispersion, in scores
PHI_FIRST, WEIGHT_FIRST, MOST_BLOCKS, GROWTH = 4.0, 8.0, 1000.0, 2.0
SETTLE = 64  # scores before the dispersion is measured
NONE = -1.0  # no score yet

SCORE, DELAY = "score", "delay"
WORDS = ("lower", "higher", "wider", "narrower", "stuck")
STUCK = 4
TOP = 3.4791096631953624  # asinh(16.2): the ends of the bins: 1e-7 and 1 - 1e-7
OCTAVES = 1.25  # a bin of delays, from a second to a year


class ShiftSpec(NamedTuple):
    """The settings of a shift, as the kernels read them."""

    arl: float
    warm: float
    quiet: float
    first: int  # the first bet, and how many follow
    bets: int
    edges: Vector  # the smallest value of each bin but the first


def asinh(x: float) -> float:
    """Its inverse hyperbolic sine: as good here as the C library's, and the same everywhere."""
    return math.copysign(ln(abs(x) + math.sqrt(x * x + 1.0)), x)


def score_bin(score: float) -> int:
    """The bin of a score: equal steps of asinh(logit)."""
    s = min(max(score, 1e-7), 1.0 - 1e-7)
    return min(max(int((asinh(ln(s / (1.0 - s))) + TOP) / (2.0 * TOP / BINS)), 0), BINS - 1)


def delay_bin(seconds: float) -> int:
    """The bin of a delay: equal steps of its logarithm."""
    m, e = scale_of(1.0 + max(seconds, 0.0))  # so that powers of two are exact
    return min(int((e + ln(m) / ln(2.0)) / OCTAVES), BINS - 1)


@cache
def edges_of(bin_of: Callable[[float], int], most: float) -> tuple[float, ...]:
    """The smallest value of each bin but the first, to the last bit: looking up a bin then needs no logarithm."""
    edges = []
    for b in range(1, BINS):
        below, above = 0.0, most
        while below < (middle := (below + above) / 2.0) < above:
            below, above = (below, middle) if bin_of(middle) >= b else (middle, above)
        edges.append(above)
    return tuple(edges)


@dataclass(frozen=True)
class ShiftSettings:
    """The parameters of `Shift`."""

    arl: float = 1_000_000.0
    warm: int = 1024
    quiet: int = 4096
    of: str = SCORE

    def __post_init__(self) -> None:
        object.__setattr__(self, "arl", check_interval("arl", self.arl, 1.0, 1e15))
        for name in ("warm", "quiet"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), 0, 2**53))
        check_choice("of", self.of, (SCORE, DELAY))

    @property
    def words(self) -> tuple[str, ...]:
        """What each bet says."""
        return WORDS if self.of == SCORE else WORDS[1:2]

    @property
    def width(self) -> int:
        """How many numbers a row takes."""
        return BETS + BET * len(self.words)

    @property
    def watched(self) -> ShiftSpec:
        """The settings as the kernels read them."""
        edges = edges_of(score_bin, 1.0) if self.of == SCORE else edges_of(delay_bin, 2.0**26)
        first = WORDS.index(self.words[0])
        return ShiftSpec(self.arl, float(self.warm), float(self.quiet), first, len(self.words), np.array(edges))

    def initial_row(self) -> Vector:
        """The row before the first score."""
        row = np.zeros(self.width)
        row[LAST], row[UNTIL] = NONE, self.warm
        row[BETS:].reshape(-1, BET)[:, PHI:] = PHI_FIRST
        return row

    def check_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """Raise unless a shift with these settings can hold each of the rows."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InvalidInput(f"row must have {self.width} numbers, got {rows.shape[-1]}")
        bets = rows[:, BETS:].reshape(len(rows), (self.width - BETS) // BET, BET)
        whole = rows[:, [SEEN, UNTIL, ALARMS, PAGES, ALARM_AT, WHAT]]
        check_sound(
            "shift",
            rows,
            {
                "finite numbers below 1e150": (abs(rows) <= 1e150).all(axis=1),
                "counts that are whole numbers": ((whole >= 0.0) & (whole <= 2.0**54) & (whole == np.floor(whole))).all(
                    axis=1
                ),
                "a memory that is not negative": (rows[:, : WEIGHT + 1] >= 0.0).all(axis=1),
                "a memory that adds up": abs(rows[:, :WEIGHT].sum(axis=1) - rows[:, WEIGHT]) <= 1e-6 * rows[:, SEEN],
                "a share of repeats": (rows[:, SHARE] >= 0.0) & (rows[:, SHARE] <= 1.0),
                "pages <= alarms <= scores": (rows[:, PAGES] <= rows[:, ALARMS]) & (rows[:, ALARMS] <= rows[:, SEEN]),
                "a bet that exists": rows[:, WHAT] < len(self.words),
                "detectors and variances that are not negative": (bets[:, :, [R, S, VARIANCE]] >= 0.0).all(axis=(1, 2)),
                "a dispersion above 0": (bets[:, :, PHI:] > 0.0).all(axis=(1, 2)),
            },
        )


# ---- one score -----------------------------------------------------------------------------------------------------


@kernel
def bin_of(shift: ShiftSpec, value: float) -> int:
    """The bin of a value, from 0."""
    b = 0
    for k in range(BINS - 1):
        if value >= shift.edges[k]:
            b += 1
    return b


@kernel
def to_ends(u: float) -> float:
    """A density on [0, 1] with its mass at both ends, as a distribution function."""
    return 0.5 * power(2.0 * u, POWER) if u <= 0.5 else 1.0 - 0.5 * power(2.0 * (1.0 - u), POWER)


@kernel
def to_middle(u: float) -> float:
    """A density on [0, 1] with its mass in the middle, as a distribution function."""
    return 0.5 - 0.5 * power(1.0 - 2.0 * u, POWER) if u <= 0.5 else 0.5 + 0.5 * power(2.0 * u - 1.0, POWER)


@kernel
def tilt(bet: int, low: float, high: float) -> float:
    """The mass that the tilted density of a bet gives the ranks from low to high."""
    if bet == 0:
        return power(high, POWER) - power(low, POWER)
    if bet == 1:
        return 1.0 - power(1.0 - high, POWER) - (1.0 - power(1.0 - low, POWER))
    if bet == 2:
        return to_ends(high) - to_ends(low)
    return to_middle(high) - to_middle(low)


@kernel
def log_bets(shift: ShiftSpec, row: Vector, b: int, again: float, g: Vector) -> None:
    """g = log(bet) of each bet; the memory and the share of repeats include the new value."""
    total, below = row[WEIGHT] + 1.0, 0.0
    for k in range(b):
        below += row[k]
    low = below / total
    high = min(low + (row[b] + 1.0) / total, 1.0)
    for j in range(shift.bets):
        if shift.first + j < STUCK:
            g[j] = ln(tilt(shift.first + j, low, high) / (high - low))
        else:
            k_seen = min(row[SEEN], MEMORY)
            share = (row[SHARE] * k_seen + again) / (k_seen + 1.0)
            g[j] = ln((0.5 + 0.5 * share) / share) if again == 1.0 else ln(0.5)


@kernel
def shift_level(shift: ShiftSpec, row: Vector) -> float:
    """The mean of the detectors as a share of the alarm line."""
    total = 0.0
    for j in range(shift.bets):
        total += row[BETS + BET * j + R]
    return total / shift.bets / shift.arl


@large_kernel
def raise_shift(shift: ShiftSpec, row: Vector) -> None:
    """Note the alarm, start the detectors again, and cut the memory."""
    best = 0
    for j in range(1, shift.bets):
        if row[BETS + BET * j + R] > row[BETS + BET * best + R]:
            best = j
    t, at = row[SEEN], BETS + BET * best
    if row[ALARMS] == 0.0 or t - row[ALARM_AT] > shift.quiet:
        row[PAGES] += 1.0
    row[ALARMS] += 1.0
    row[ALARM_AT] = t
    row[SINCE] = row[at + S] / row[at + R]
    row[WHAT] = best
    for j in range(shift.bets):
        row[BETS + BET * j + R] = 0.0
        row[BETS + BET * j + S] = 0.0
    f = min(1.0, shift.warm / row[WEIGHT]) if row[WEIGHT] > 0.0 else 1.0
    for k in range(WEIGHT + 1):
        row[k] *= f
    row[UNTIL] = t + shift.warm


@large_kernel
def close_block(row: Vector, at: int, i: int, n: int) -> None:
    """At the end of a block, X = (sum g - k mean)^2 / (k variance) moves phi; no block more than triples it."""
    size = BLOCKS[i]
    if row[at + VARIANCE] > 1e-12:
        m, phi = min(n // int(size) + WEIGHT_FIRST, MOST_BLOCKS), row[at + PHI + i]
        d = row[at + SUMS + i] - size * row[at + MEAN]
        x = d * d / (size * row[at + VARIANCE])
        row[at + PHI + i] = phi + (min(x, phi * (1.0 + GROWTH * m)) - phi) / m
    row[at + SUMS + i] = 0.0


@kernel
def disperse(shift: ShiftSpec, row: Vector, g: Vector) -> None:
    """Mean and variance of each log bet, and how much more its block sums vary."""
    n = int(row[SEEN]) - SETTLE + 1
    k = min(float(n), MEMORY)
    for j in range(shift.bets):
        at = BETS + BET * j
        d = g[j] - row[at + MEAN]
        row[at + MEAN] += d / k
        row[at + VARIANCE] += (d * (g[j] - row[at + MEAN]) - row[at + VARIANCE]) / k
        row[at + SUMS] += g[j]
        row[at + SUMS + 1] += g[j]
        if n % 64 == 0:
            close_block(row, at, 0, n)
            if n % 1024 == 0:
                close_block(row, at, 1, n)


@kernel
def shift_step(shift: ShiftSpec, row: Vector, value: float, stamp: float) -> bool:
    """Read one value -> whether an alarm is raised. `since` is counted in stamps: numbers of scores, or times."""
    g = scratch(5)
    b = bin_of(shift, value)
    again = 1.0 if value == row[LAST] else 0.0
    log_bets(shift, row, b, again, g)
    alarm = False
    if row[SEEN] >= row[UNTIL]:
        for j in range(shift.bets):
            at = BETS + BET * j
            bet = exp(g[j] / max(1.0, row[at + PHI], row[at + PHI + 1]))
            row[at + R] = (1.0 + row[at + R]) * bet
            row[at + S] = (stamp + row[at + S]) * bet
        if shift_level(shift, row) >= 1.0:
            raise_shift(shift, row)
            alarm = True
    if row[SEEN] >= SETTLE:
        disperse(shift, row, g)
    if row[WEIGHT] >= MEMORY:
        for k in range(WEIGHT + 1):
            row[k] *= 1.0 - 1.0 / MEMORY
    row[WEIGHT] += 1.0
    row[b] += 1.0
    row[SHARE] += (again - row[SHARE]) / min(row[SEEN] + 1.0, MEMORY)
    row[SEEN] += 1.0
    row[LAST] = value
    return alarm


@entry
def read_values(shift: ShiftSpec, row: Vector, values: Vector, first: int) -> int:
    """Read values from `first` on, up to and including the first alarm -> the position behind it, or the length."""
    n = len(values)
    for i in range(first, n):
        if shift_step(shift, row, values[i], row[SEEN]):
            return i + 1
    return n


def restart(settings: ShiftSettings, row: Vector) -> None:
    """Forget what scores looked like, and bet on nothing until they are known again."""
    row[: WEIGHT + 1] = 0.0
    row[UNTIL] = row[SEEN] + settings.warm
    row[BETS:].reshape(-1, BET)[:, [R, S]] = 0.0


# ---- one stream ----------------------------------------------------------------------------------------------------


class Shift(Detector):
    r"""Watches one column of scores and raises an alarm when they are not what they were. It needs no outcomes.

    A score divided by 100, stuck at a constant, from another model, in another unit. Each score is ranked in the memory
    of the last 8,192, and five bets are made on its rank: lower, higher, wider, narrower, stuck. They are as careful as
    the stream's own clustering has made necessary. docs/explanation/notice.md says what is proved and where it fails.

    Parameters
    ----------
    arl : scores between false alarms, on average, where scores are exchangeable; from 1 to 1e15.
    warm : scores before the first bet, and after an alarm.
    quiet : a further alarm within this many scores belongs to the same episode, and does not page.
    of : "score", a probability; or "delay", in seconds, where only "higher" is an alarm (give ``warm=256`` then).

    Raises
    ------
    InvalidInput : a parameter is outside its range.

    >>> import numpy as np
    >>> from calibeat import Shift
    >>> scores = np.random.default_rng(0).beta(2, 5, size=6000)
    >>> scores[5000:] /= 100                                              # a wrong unit
    >>> shift = Shift()
    >>> [(alarm.at, round(alarm.since), alarm.what, alarm.page) for alarm in shift.run(scores)]
    [(5010, 4994, 'lower', True)]
    >>> shift.update(0.3), shift.counts                                   # one score at a time: the same bits
    (None, (1, 1))

    Several threads may use one. `to_json`, copies and pickles continue with the same bits.
    """

    KIND = "calibeat/shift"
    SETTINGS = ShiftSettings

    def __init__(self, arl: float = 1_000_000, warm: int = 1024, quiet: int = 4096, of: str = SCORE) -> None:
        self._begin(ShiftSettings(arl, warm, quiet, of))
        self._watched = self.settings.watched

    def update(self, score: float) -> Alarm | None:
        """Read one score -> the alarm that it raises, or None. Alarms count scores from 0.

        Raises
        ------
        InvalidInput : the score is not a number in [0, 1]; of delays: not one of at least 0.
        """
        raised = self.run([score])
        return raised[0] if raised else None

    def run(self, scores: npt.ArrayLike) -> list[Alarm]:
        """Read many scores; the same bits as one by one -> the alarms raised.

        Raises
        ------
        InvalidInput : a score is not a number in [0, 1]; the message names the row. No score is read then.
        """
        values = check_scores(scores) if self.settings.of == SCORE else check_delays(scores)
        with self._lock:
            row, raised, first = self._row.copy(), list[Alarm](), 0
            while first < len(values):
                alarms, pages = row[ALARMS], row[PAGES]
                first = read_values(self._watched, row, values, first)
                if row[ALARMS] > alarms:
                    raised.append(last_alarm(self.settings, row, page=bool(row[PAGES] > pages)))
            self._row, self._alarms = row, [*self._alarms, *raised][-KEPT:]
            return raised

    def restart(self) -> None:
        """Say that a new version goes live: learn anew, page nobody.

        >>> from calibeat import Shift
        >>> shift = Shift()
        >>> shift.restart()
        """
        with self._lock:
            row = self._row.copy()
            restart(self.settings, row)
            self._row = row

    @property
    def level(self) -> float:
        """The detector as a share of the alarm line: an alarm is raised at 1, and then it is 0 again."""
        with self._lock:
            return float(shift_level(self._watched, self._row))

    @property
    def counts(self) -> tuple[int, int]:
        """How many alarms were raised ever, and how many of them paged."""
        with self._lock:
            return int(self._row[ALARMS]), int(self._row[PAGES])

    @property
    def scores(self) -> int:
        """How many scores were read."""
        return int(self._row[SEEN])

    @property
    def dispersion(self) -> dict[str, float]:
        """phi of each bet: how many times as much its block sums vary as with independent scores; at least 1."""
        with self._lock:
            phi = self._row[BETS:].reshape(-1, BET)[:, PHI:].max(axis=1)
            return dict(zip(self.settings.words, np.maximum(phi, 1.0).tolist(), strict=True))

    def __repr__(self) -> str:
        alarms, pages = self.counts
        return f"Shift(arl={self.settings.arl:,.0f}, scores={self.scores:,}, alarms={alarms}, pages={pages})"


def last_alarm(settings: ShiftSettings, row: Vector, *, page: bool) -> Alarm:
    """The last alarm of a row."""
    return Alarm(int(row[ALARM_AT]), float(row[SINCE]), settings.words[int(row[WHAT])], page)


def check_delays(delays: Any) -> Vector:
    """A column of seconds; those below 0 count as 0."""
    try:
        values = np.array(delays, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"delays must be numbers of seconds, got {shown(delays)}") from None
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InvalidInput(f"delays must be a column of finite numbers of seconds, got {shown(delays)}")
    return np.maximum(values, 0.0)
