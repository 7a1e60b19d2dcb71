"""What an engine counts of itself, for `/metrics`: since it was started, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Plan


COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


@dataclass
class Histogram:
    """How often a number was at most each of some bounds, as Prometheus counts, and the sum of the numbers.

    >>> sizes = Histogram((1, 10))
    >>> for size in (1, 4, 40):
    ...     sizes.add(size)
    >>> sizes.counts, sizes.count, sizes.sum
    ([1, 1, 1], 3, 45.0)
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)  # of each bound alone, and one more for what is above all
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        """How many numbers were added."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count one number."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass
class EngineNumbers:
    """Counters and gauges of one engine. The engine's thread writes them, any thread may read them."""

    forecasts: int = 0  # made and committed, without repeats
    repeated_forecasts: int = 0
    outcomes: int = 0  # learnt and committed
    held: int = 0  # outcomes that were taken and wait for their age
    expired: int = 0  # forecasts that were given up
    corrections: int = 0
    alarms: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # outcomes and batches that were not taken, by reason
    groups: int = 0
    pending: int = 0  # forecasts in the store without an outcome; of this engine's own view
    queued: int = 0  # events that wait now
    commit_seconds: Histogram = field(default_factory=lambda: Histogram(COMMIT_SECONDS))
    group_size: Histogram = field(default_factory=lambda: Histogram(GROUP_SIZES))

    def count(self, plan: Plan, size: int) -> None:
        """Add what a group has done, once it is committed."""
        self.forecasts += len(plan.changes.inserted)
        self.repeated_forecasts += plan.repeated
        self.outcomes += plan.learnt
        self.held += plan.held
        self.expired += plan.expired
        self.corrections += len(plan.changes.corrections)
        self.alarms += len(plan.changes.alarms)
        self.rejected.update(plan.rejected)
        self.groups += 1
        self.group_size.add(size)
        self.pending += plan.pending
