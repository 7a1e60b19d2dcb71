"""What a process counts of itself, in memory, since it was started; and `/metrics`: the same for Prometheus."""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from calibeat._version import __version__

from .store.queries import Totals

if TYPE_CHECKING:
    from .plan import Plan


PREFIX = "calibeat_"
COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
REQUEST_SECONDS = (*COMMIT_SECONDS, 5.0, 10.0)
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
    late: int = 0  # of them: learnt after their forecast had been given up
    held: int = 0  # outcomes that were taken and wait for their age
    expired: int = 0  # forecasts that were given up
    corrections: int = 0
    alarms: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # outcomes and batches that were not taken, by reason
    groups: int = 0
    queued: int = 0  # events that wait now
    commit_seconds: BucketCounts = field(default_factory=lambda: BucketCounts(COMMIT_SECONDS))
    group_size: BucketCounts = field(default_factory=lambda: BucketCounts(GROUP_SIZES))

    def count(self, plan: Plan, size: int) -> None:
        """Add what a group has done, once it is committed."""
        self.forecasts += len(plan.changes.inserted)
        self.repeated_forecasts += plan.repeated
        self.outcomes += plan.learnt
        self.late += plan.late
        self.held += plan.held
        self.expired += plan.expired
        self.corrections += plan.corrected
        self.alarms += len(plan.changes.alarms)
        self.rejected.update(plan.rejected)
        self.groups += 1
        self.group_size.add(size)


OTHER = "other"  # the route of a request that has none


@dataclass
class Traffic:
    """Requests by route, method and status, and how long they took by route.

    >>> traffic = Traffic()
    >>> traffic.add("/healthz", "GET", 200, 0.002)
    >>> traffic.requests
    Counter({('/healthz', 'GET', 200): 1})
    """

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seconds: dict[str, BucketCounts] = field(default_factory=dict)

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[route, method, status] += 1
        buckets = self.seconds.get(route)
        if buckets is None:
            buckets = self.seconds[route] = BucketCounts(REQUEST_SECONDS)
        buckets.add(seconds)


METRICS_TYPE = CONTENT_TYPE_LATEST


@dataclass(frozen=True, eq=False)  # a registry keeps it by its identity
class Metrics:
    r"""Everything that `/metrics` shows, in the library's families, which writes them.

    Counters are of this process since its start. Gauges are of the store; without it they are missing. There is never a
    series for each stream: there may be a million of them. Requests and events are counted in plain integers, because
    the library takes a lock for each number.

    >>> from calibeat.service.store.queries import Totals
    >>> text = metrics_text(EngineCounters(forecasts=2), Totals(1, 2, 0, 2, 0, 0, 0, None, None, None), {}).decode()
    >>> print(*text.splitlines()[:3], sep="\n")
    # HELP calibeat_forecasts_total Forecasts that were made and committed; repeats are not counted.
    # TYPE calibeat_forecasts_total counter
    calibeat_forecasts_total 2.0
    """

    numbers: EngineCounters
    totals: Totals | None
    refused: Mapping[str, int]
    traffic: Traffic
    build: Mapping[str, str]

    def collect(self) -> Iterator[Metric]:
        """All families."""
        n = self.numbers
        yield _counter("forecasts", "Forecasts that were made and committed; repeats are not counted.", n.forecasts)
        again = "Forecasts that were asked for again and answered from the store."
        yield _counter("forecasts_repeated", again, n.repeated_forecasts)
        yield _counter("outcomes", "Outcomes that were learnt and committed; repeats are not counted.", n.outcomes)
        yield _counter("outcomes_late", "Of them: learnt after their forecast had expired.", n.late)
        rejected = {"conflict": 0, "expired": 0, "unknown": 0} | n.rejected
        yield _counters("outcomes_rejected", "Outcomes and batches that were not taken, by reason.", "reason", rejected)
        refused = {"full": 0, "invalid": 0, "unauthorized": 0, **self.refused}
        yield _counters("requests_refused", "Requests that were refused, by the code of the error.", "code", refused)
        yield _counter("expired", "Forecasts that were given up without an outcome.", n.expired)
        kept = "Other outcomes for forecasts that were learnt, which their streams are replayed with."
        yield _counter("corrections", kept, n.corrections)
        yield _counter("alarms", "Alarms of the monitor.", n.alarms)
        yield _histogram("commit_seconds", "Time to write and sync one group.", {(): n.commit_seconds})
        yield _histogram("group_size", "Events in one group.", {(): n.group_size})
        yield _gauge("queued", "Events that wait for their group.", n.queued)
        yield from self._traffic()
        runs = {"version": __version__, "python": platform.python_version(), **self.build}
        build = GaugeMetricFamily(f"{PREFIX}build_info", "Always 1; the labels say what runs.", labels=list(runs))
        build.add_metric(list(runs.values()), 1.0)
        yield build
        yield _gauge("store_up", "Whether the store can be read.", float(self.totals is not None))
        if self.totals is not None:
            yield from self._store(self.totals)

    def _traffic(self) -> Iterator[Metric]:
        about = "Requests that were answered, by route, method and status."
        requests = CounterMetricFamily(f"{PREFIX}http_requests", about, labels=["route", "method", "status"])
        for (route, method, status), count in sorted(self.traffic.requests.items()):
            requests.add_metric([route, method, str(status)], count)
        yield requests
        seconds: dict[tuple[str, ...], BucketCounts] = {
            (route,): found for route, found in sorted(self.traffic.seconds.items())
        }
        about = "From the head of a request to its answer, by route."
        yield _histogram("http_request_seconds", about, seconds, ["route"])

    def _store(self, totals: Totals) -> Iterator[Metric]:
        """The gauges of the store."""
        oldest = totals.oldest_pending
        yield _gauge("streams", "Streams in the store.", totals.streams)
        yield _gauge("pending", "Forecasts in the store without an outcome.", totals.pending)
        yield _gauge("held", "Outcomes that wait until they are mature.", totals.held)
        age = 0.0 if oldest is None else time.time() - oldest
        yield _gauge("oldest_pending_seconds", "Age of the oldest forecast without an outcome; 0 without any.", age)
        if totals.raw_log_loss is not None and totals.log_loss is not None:
            about = "Mean log-loss over all learnt outcomes."
            losses = GaugeMetricFamily(f"{PREFIX}log_loss", about, labels=["kind"])
            losses.add_metric(["raw"], totals.raw_log_loss)
            losses.add_metric(["calibrated"], totals.log_loss)
            yield losses


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, about, value=value)  # the library adds `_total`


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, about, value=value)


def _counters(name: str, about: str, label: str, values: Mapping[str, int]) -> Metric:
    """A counter with a sample for each value of a label."""
    family = CounterMetricFamily(PREFIX + name, about, labels=[label])
    for text in sorted(values):
        family.add_metric([text], values[text])
    return family


def _histogram(
    name: str, about: str, found: Mapping[tuple[str, ...], BucketCounts], labels: Sequence[str] = ()
) -> Metric:
    """Counts up to each bound, for each value of the labels."""
    family = HistogramMetricFamily(PREFIX + name, about, labels=labels)
    for values, counts in found.items():
        sums = zip((*map(str, counts.bounds), "+Inf"), accumulate(counts.counts), strict=True)
        family.add_metric(list(values), list(sums), counts.sum)
    return family


def metrics_text(
    numbers: EngineCounters,
    totals: Totals | None,
    refused: Mapping[str, int],
    traffic: Traffic | None = None,
    build: Mapping[str, str] | None = None,
) -> bytes:
    """All metrics, and those of the process, in the format of `METRICS_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(numbers, totals, refused, traffic or Traffic(), build or {}))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
