"""What an engine counts of itself, in memory, since it was started; and `/metrics`: the same as Prometheus text."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .store.queries import Totals

if TYPE_CHECKING:
    from .plan import Plan


COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


@dataclass
class BucketCounts:
    """How often a number was at most each of some bounds, as Prometheus counts, and the sum of the numbers.

    >>> sizes = BucketCounts((1, 10))
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
class EngineCounters:
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
    commit_seconds: BucketCounts = field(default_factory=lambda: BucketCounts(COMMIT_SECONDS))
    group_size: BucketCounts = field(default_factory=lambda: BucketCounts(GROUP_SIZES))

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


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(numbers: EngineCounters, totals: Totals, refused: Mapping[str, int]) -> str:
    r"""All metrics. Counters are of this process since its start, gauges are of the store.

    >>> from .store.queries import Totals
    >>> text = metrics_text(EngineCounters(forecasts=2), Totals(1, 2, 0, 2, 0, 0, 0, None, None, None), {})
    >>> print(*text.splitlines()[:3], sep="\n")
    # HELP calibeat_forecasts_total Forecasts that were made and committed; repeats are not counted.
    # TYPE calibeat_forecasts_total counter
    calibeat_forecasts_total 2
    """
    page = _Page()
    page.add("forecasts_total", "counter", "Forecasts that were made and committed; repeats are not counted.")
    page.value("forecasts_total", numbers.forecasts)
    page.add("forecasts_repeated_total", "counter", "Forecasts that were asked for again and answered from the store.")
    page.value("forecasts_repeated_total", numbers.repeated_forecasts)
    page.add("outcomes_total", "counter", "Outcomes that were learnt and committed; repeats are not counted.")
    page.value("outcomes_total", numbers.outcomes)
    page.add("outcomes_rejected_total", "counter", "Outcomes and batches that were not taken, by reason.")
    for reason in sorted({"conflict", "expired", "unknown", *numbers.rejected}):
        page.value("outcomes_rejected_total", numbers.rejected.get(reason, 0), reason=reason)
    page.add("requests_refused_total", "counter", "Requests that were refused, by the code of the error.")
    for code in sorted({"full", "invalid", "unauthorized", *refused}):
        page.value("requests_refused_total", refused.get(code, 0), code=code)
    page.add("expired_total", "counter", "Forecasts that were given up without an outcome.")
    page.value("expired_total", numbers.expired)
    page.add("corrections_total", "counter", "Other outcomes for forecasts that were learnt, kept for the next replay.")
    page.value("corrections_total", numbers.corrections)
    page.add("alarms_total", "counter", "Alarms of the monitor.")
    page.value("alarms_total", numbers.alarms)
    page.add("commit_seconds", "histogram", "Time to write and sync one group.")
    page.histogram("commit_seconds", numbers.commit_seconds)
    page.add("group_size", "histogram", "Events in one group.")
    page.histogram("group_size", numbers.group_size)
    page.add("queued", "gauge", "Events that wait for their group.")
    page.value("queued", numbers.queued)
    page.add("streams", "gauge", "Streams in the store.")
    page.value("streams", totals.streams)
    page.add("pending", "gauge", "Forecasts in the store without an outcome.")
    page.value("pending", totals.pending)
    page.add("held", "gauge", "Outcomes that wait until they are mature.")
    page.value("held", totals.held)
    page.add("oldest_pending_seconds", "gauge", "Age of the oldest forecast without an outcome; 0 without any.")
    page.value("oldest_pending_seconds", 0.0 if totals.oldest_pending is None else time.time() - totals.oldest_pending)
    if totals.raw_log_loss is not None and totals.log_loss is not None:
        page.add("log_loss", "gauge", "Mean log-loss over all learnt outcomes.")
        page.value("log_loss", totals.raw_log_loss, kind="raw")
        page.value("log_loss", totals.log_loss, kind="calibrated")
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, help: str) -> None:  # noqa: A002 - the word of the format
        """A metric begins."""
        self._lines += [f"# HELP calibeat_{name} {help}", f"# TYPE calibeat_{name} {kind}"]

    def value(self, name: str, value: float, **labels: str) -> None:
        """One sample."""
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        self._lines.append(f"calibeat_{name}{{{inside}}} {value:.17g}" if inside else f"calibeat_{name} {value:.17g}")

    def histogram(self, name: str, found: BucketCounts) -> None:
        """Counts up to each bound."""
        total = 0
        for bound, count in zip(found.bounds, found.counts, strict=False):
            total += count
            self.value(f"{name}_bucket", total, le=f"{bound:g}")
        self.value(f"{name}_bucket", found.count, le="+Inf")
        self.value(f"{name}_sum", found.sum)
        self.value(f"{name}_count", found.count)

    def text(self) -> str:
        """The whole page."""
        return "\n".join(self._lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
