"""Late outcomes: when each is learnt, how late they were, and whether ones and zeros come at different ages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from calibeat._util.times import LONGEST, NEVER, duration_named
from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Maturity
from calibeat.backtest.read.rows import FIRST_EVENTS, Chunk

# ---- when each outcome is learnt ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LearningPlan:
    """What is learnt when, within one chunk. Events still under way come first, then those of the chunk.

    Outcome i is learnt just before prediction ``due[i]``. `order` lists the outcomes that are due in this chunk in the
    order in which they are learnt: by `due`, then by arrival, then by row. `left` are the events that are still under
    way when the chunk ends.
    """

    first: int
    scores: Vector
    outcomes: Vector
    slots: Ints
    due: Ints
    order: Ints
    left: Ints

    @property
    def arrival_lists(self) -> tuple[Ints, Ints]:
        """Before event i the outcomes of arriving[i], following[arriving[i]], ... arrive; -1 ends the list."""
        arriving, following = np.full((2, len(self.scores)), -1)
        due = self.due[self.order]
        again = due[1:] == due[:-1]
        following[self.order[:-1][again]] = self.order[1:][again]
        begins = np.concatenate([[True], ~again])[: len(due)]
        arriving[due[begins]] = self.order[begins]
        return arriving, following


def plan_at_once(chunk: Chunk) -> LearningPlan:
    """Each outcome is learnt before the next event."""
    known, due = np.flatnonzero(~np.isnan(chunk.outcomes)), np.arange(1, len(chunk) + 1)
    return LearningPlan(0, chunk.scores, chunk.outcomes, chunk.slots, due, known, np.empty(0, dtype=np.int64))


class Underway:
    """The events whose outcomes have not arrived yet, or are not old enough. Every method keeps its own receipts."""

    def __init__(self, maturity: Maturity | None = None) -> None:
        self._maturity = maturity or Maturity()
        self._scores: Vector | None = None  # until the first chunk shows how many numbers a score has
        self._outcomes = np.empty(0)
        self._slots, self._arrivals, self._numbers = (np.empty(0, dtype=np.int64) for _ in range(3))
        self._seen = 0
        self.waited = np.empty(0, dtype=np.int64)  # of the outcomes that arrived in the latest chunk: in events

    def __len__(self) -> int:
        return len(self._outcomes)

    def plan(self, chunk: Chunk) -> LearningPlan:
        """When the outcomes under way and those of the chunk arrive. The next call continues from here."""
        if chunk.clock is None or chunk.arrivals is None:
            raise TypeError("a chunk without a clock has nothing under way")
        first, n = len(self), len(chunk)
        scores = chunk.scores if self._scores is None else np.concatenate([self._scores, chunk.scores])
        outcomes = np.concatenate([self._outcomes, chunk.outcomes])
        slots = np.concatenate([self._slots, chunk.slots])
        known = chunk.arrivals
        if self._maturity.microseconds:
            known = np.where(known == NEVER, NEVER, np.maximum(known, chunk.clock + self._maturity.microseconds))
        arrivals = np.concatenate([self._arrivals, known])
        numbers = np.concatenate([self._numbers, np.arange(self._seen, self._seen + n)])
        # The first prediction at or after the arrival, and later than the event's own.
        due = first + np.searchsorted(chunk.clock, arrivals, side="left").astype(np.int64)
        np.maximum(due[first:], np.arange(first + 1, first + n + 1), out=due[first:])
        moment = arrivals  # at which an outcome is learnt, for the order
        if self._maturity.events and n:
            ripe = first + numbers - self._seen + 1 + self._maturity.events
            at = chunk.clock[np.clip(ripe - first, 0, n - 1)]
            moment = np.where(ripe > due, at, arrivals)
            due = np.maximum(due, ripe)
        arrives = arrivals != NEVER
        soon = np.flatnonzero(arrives & (due < first + n))
        order = soon[np.lexsort((moment[soon], due[soon]))]  # stable: equal arrivals stay in the order of the rows
        left = np.flatnonzero(arrives & (due >= first + n))
        self.waited = due[order] - first + self._seen - numbers[order]
        self._scores, self._outcomes, self._slots = scores[left], outcomes[left], slots[left]
        self._arrivals, self._numbers = arrivals[left], numbers[left]
        self._seen += n
        return LearningPlan(first, scores, outcomes, slots, due, order, left)

    def rest(self) -> Ints:
        """The events that are left when the log has ended, in the order in which their outcomes arrive."""
        return np.argsort(self._arrivals, kind="stable")


# ---- how late outcomes were --------------------------------------------------------------------------------------

_STEPS = 64  # in an octave
LEAST_BARS = 6  # of a histogram, each with 1 % of the numbers
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def typical_delay(chunk: Chunk) -> int:
    """The median delay in events among the first 20,000 events; 0 where outcomes arrive at once.

    A delay that ends beyond those events counts as if it ended with them.
    """
    if chunk.clock is None or chunk.arrivals is None:
        return 0
    clock, arrivals = chunk.clock[:FIRST_EVENTS], chunk.arrivals[:FIRST_EVENTS]
    known = np.flatnonzero(~np.isnan(chunk.outcomes[:FIRST_EVENTS]))
    if not len(known):
        return 0
    due = np.searchsorted(clock, arrivals[known], side="left")
    return int(np.median(np.maximum(due - known, 1)))


class Sizes:
    """A histogram of numbers >= 0 in steps of at most 1/64 of their size."""

    def __init__(self) -> None:
        self._count = np.zeros(65 * _STEPS, dtype=np.int64)
        self._least, self._most = np.inf, -np.inf

    def count(self, values: Ints) -> None:
        """Count whole numbers; negative ones count as 0."""
        values = np.maximum(values, 0)
        self._least = min(self._least, values.min(initial=2**63 - 1))
        self._most = max(self._most, values.max(initial=-1))
        mantissa, exponent = np.frexp(values + 1.0)  # from 0.5 and 1
        place = (exponent - 1) * _STEPS + ((mantissa - 0.5) * 2 * _STEPS).astype(np.int64)
        self._count += np.bincount(place, minlength=len(self._count))

    @property
    def total(self) -> int:
        """How many were counted."""
        return int(self._count.sum())

    def share_above(self, other: Sizes) -> float:
        """Of all pairs of a number of these and one of the others, the share in which the former is larger.

        Pairs within a step count half.
        """
        below = np.cumsum(other._count) - other._count / 2.0
        return float(self._count @ below) / max(1.0, float(self.total) * other.total)

    def quantiles(self) -> dict[str, float | None]:
        """By name: the number that a share of the values does not exceed, up to the width of a step."""
        total = self._count.sum()
        steps = np.cumsum(self._count)
        edges = np.clip(self._edges(), self._least, self._most)
        at = [int(np.searchsorted(steps, q * total, side="left")) for q in QUANTILES]
        return {f"{q:.0%}": float(edges[i]) if total else None for q, i in zip(QUANTILES, at, strict=True)}

    def histogram(self) -> tuple[list[float], list[int]]:
        """Edges from the least to the largest number counted, and the counts between them.

        A bar is an octave (0, 1, 3, 7, ...), or a half, a quarter, ... of one where that makes too few bars.
        """
        edges, counts = [0.0], [0]
        for parts in (1, 2, 4, 8, 16):
            size = _STEPS // parts
            starts, first = np.unique(self._edges()[::size], return_index=True)  # small numbers have no finer bars
            counted = np.add.reduceat(self._count, first * size)
            used = np.flatnonzero(counted)
            if not len(used):
                return [], []
            begin, end = int(used[0]), int(used[-1]) + 1
            edges, counts = starts[begin : end + 1].tolist(), counted[begin:end].tolist()
            if np.count_nonzero(counted > 0.01 * self.total) >= LEAST_BARS:
                break
        return edges, counts

    def _edges(self) -> Vector:
        octave, step = np.divmod(np.arange(len(self._count)), _STEPS)
        return np.floor(2.0**octave * (1.0 + step / _STEPS)) - 1.0


class Delays:
    """Delays in events, and in microseconds where there are times."""

    def __init__(self, *, timed: bool) -> None:
        self.timed = timed
        self.learnt = 0
        self.events, self.time = Sizes(), Sizes()

    def count(self, chunk: Chunk, waited: Ints) -> None:
        """Count the outcomes that arrived in this chunk, and when those of its events will."""
        self.learnt += len(waited)
        self.events.count(waited - 1)  # forecasts in between: the next event's is none
        if self.timed and chunk.clock is not None and chunk.arrivals is not None:
            known = chunk.arrivals != NEVER
            self.time.count(chunk.arrivals[known] - chunk.clock[known])


# ---- the ages of ones and of zeros --------------------------------------------------------------------------------

LEAST_EACH = 30  # ones, and as many zeros
CLEARLY = 0.75  # of the pairs of a one and a zero, the one (or the zero) comes at the higher age
ERRORS = 4.0  # standard errors of the rank statistic beyond one half
LEAST_FORECASTS = 10  # made between the two median ages
MATURE_BY = "95%"  # of the ones and of the zeros are known by the age that is tried
_UNITS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000, 1)  # of a typed time, in microseconds


@dataclass(eq=False)
class Ages:
    """The ages of ones and of zeros at their arrival, in microseconds, and the pace of the log."""

    ones: Sizes = field(default_factory=Sizes)
    zeros: Sizes = field(default_factory=Sizes)
    events: int = 0
    begin: int | None = None
    end: int = 0

    def count(self, chunk: Chunk) -> None:
        """Count the outcomes of a chunk whose clock is a time, also those that arrive after its end."""
        if chunk.clock is None or chunk.arrivals is None or not len(chunk):
            return
        known = chunk.arrivals != NEVER
        for sizes, outcome in ((self.zeros, 0.0), (self.ones, 1.0)):
            which = known & (chunk.outcomes == outcome)
            sizes.count(chunk.arrivals[which] - chunk.clock[which])
        self.events += len(chunk)
        self.begin = int(chunk.clock[0]) if self.begin is None else self.begin
        self.end = int(chunk.clock[-1])

    @property
    def share_later(self) -> float:
        """Of all pairs of a one and a zero, the share in which the one has the higher age; equal ages count half."""
        return self.ones.share_above(self.zeros)

    @property
    def differ(self) -> bool:
        """Whether the ages are clearly different.

        There are 30 ones and 30 zeros at least; in three of four pairs of them the same kind has the higher age, which
        is four standard errors of Mann and Whitney's statistic from one half at least; and at the mean pace of the log
        ten forecasts are made between the median ages.
        """
        n, m = self.ones.total, self.zeros.total
        if min(n, m) < LEAST_EACH:
            return False
        beyond = abs(self.share_later - 0.5)
        if beyond < CLEARLY - 0.5 or beyond < ERRORS * math.sqrt((n + m + 1.0) / (12.0 * n * m)):
            return False
        return self.forecasts_between >= LEAST_FORECASTS

    @property
    def forecasts_between(self) -> float:
        """How many forecasts are made between the two median ages, at the mean pace of the log."""
        one, zero = (sizes.quantiles()["50%"] or 0.0 for sizes in (self.ones, self.zeros))
        span = self.end - (self.begin or 0)
        return abs(one - zero) * self.events / span if span > 0 else math.inf

    @property
    def maturity(self) -> tuple[Maturity, str]:
        """An age by which 95 % of the ones and 95 % of the zeros are known, as a person would type it."""
        age = min(max(sizes.quantiles()[MATURE_BY] or 0.0 for sizes in (self.ones, self.zeros)), LONGEST)
        unit = next((size for size in _UNITS if age >= 10 * size), 1)
        typed = duration_named(max(1, math.ceil(age / unit)) * unit)
        return Maturity.of(typed), typed


def ages_of(chunk: Chunk) -> Ages:
    """The ages in one chunk."""
    ages = Ages()
    ages.count(chunk)
    return ages
