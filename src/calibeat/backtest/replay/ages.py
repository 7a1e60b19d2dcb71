"""Whether ones and zeros come at clearly different ages, which misleads whoever learns each outcome as it comes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from calibeat._util.times import LONGEST, NEVER, duration_named
from calibeat.backtest.options import Maturity
from calibeat.backtest.read.batch import Chunk

from .delays import Sizes

LEAST_EACH = 30  # ones, and as many zeros
CLEARLY = 0.75  # of the pairs of a one and a zero, the one (or the zero) comes at the higher age
ERRORS = 4.0  # standard errors of the rank statistic beyond one half
LEAST_FORECASTS = 10  # made between the two median ages
KNOWN = "95%"  # of the ones and of the zeros are known by the age that is tried
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
        age = min(max(sizes.quantiles()[KNOWN] or 0.0 for sizes in (self.ones, self.zeros)), LONGEST)
        unit = next((size for size in _UNITS if age >= 10 * size), 1)
        typed = duration_named(max(1, math.ceil(age / unit)) * unit)
        return Maturity.of(typed), typed


def ages_of(chunk: Chunk) -> Ages:
    """The ages in one chunk."""
    ages = Ages()
    ages.count(chunk)
    return ages


__all__ = ["Ages", "ages_of"]
