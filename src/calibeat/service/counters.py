"""What a process counts of itself, in memory, since it was started; and `/metrics`: the same as Prometheus text."""

from __future__ import annotations

import os
import platform
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from calibeat._version import __version__

from .store.queries import Totals

if TYPE_CHECKING:
    from .plan import Plan


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


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STARTED = time.time()


def metrics_text(
    numbers: EngineCounters,
    totals: Totals | None,
    refused: Mapping[str, int],
    traffic: Traffic | None = None,
    build: Mapping[str, str] | None = None,
) -> str:
    r"""All metrics. Counters are of this process since its start, gauges are of the store, or missing without it.

    There is never a series for each stream: there may be a million of them.

    >>> from calibeat.service.store.queries import Totals
    >>> text = metrics_text(EngineCounters(forecasts=2), Totals(1, 2, 0, 2, 0, 0, 0, None, None, None), {})
    >>> print(*text.splitlines()[:3], sep="\n")
    # HELP calibeat_forecasts_total Forecasts that were made and committed; repeats are not counted.
    # TYPE calibeat_forecasts_total counter
    calibeat_forecasts_total 2
    """
    n, page = numbers, _Page()
    rejected = {"conflict": 0, "expired": 0, "unknown": 0} | n.rejected
    refusals = {"full": 0, "invalid": 0, "unauthorized": 0} | dict(refused)
    page.add("forecasts_total", n.forecasts, "Forecasts that were made and committed; repeats are not counted.")
    again = "Forecasts that were asked for again and answered from the store."
    page.add("forecasts_repeated_total", n.repeated_forecasts, again)
    page.add("outcomes_total", n.outcomes, "Outcomes that were learnt and committed; repeats are not counted.")
    page.add_each("outcomes_rejected_total", "reason", rejected, "Outcomes and batches that were not taken, by reason.")
    page.add_each("requests_refused_total", "code", refusals, "Requests that were refused, by the code of the error.")
    page.add("expired_total", n.expired, "Forecasts that were given up without an outcome.")
    kept = "Other outcomes for forecasts that were learnt, which their streams are replayed with."
    page.add("corrections_total", n.corrections, kept)
    page.add("alarms_total", n.alarms, "Alarms of the monitor.")
    page.add_buckets("commit_seconds", n.commit_seconds, "Time to write and sync one group.")
    page.add_buckets("group_size", n.group_size, "Events in one group.")
    page.add("queued", n.queued, "Events that wait for their group.")
    _add_traffic(page, traffic or Traffic())
    page.begin("build_info", "gauge", "Always 1; the labels say what runs.")
    page.value("build_info", 1, version=__version__, python=platform.python_version(), **(build or {}))
    _add_process(page)
    page.add("store_up", float(totals is not None), "Whether the store can be read.")
    if totals is not None:
        _add_totals(page, totals)
    return "\n".join(page.lines) + "\n"


def _add_traffic(page: _Page, traffic: Traffic) -> None:
    page.begin("http_requests_total", "counter", "Requests that were answered, by route, method and status.")
    for (route, method, status), count in sorted(traffic.requests.items()):
        page.value("http_requests_total", count, route=route, method=method, status=str(status))
    page.begin("http_request_seconds", "histogram", "From the head of a request to its answer, by route.")
    for route, buckets in sorted(traffic.seconds.items()):
        page.buckets("http_request_seconds", buckets, route=route)


def _add_process(page: _Page) -> None:
    """The numbers that Prometheus has names for, as far as the system tells them."""
    used = os.times()
    found = {
        "cpu_seconds_total": (used.user + used.system, "User and system CPU time."),
        "start_time_seconds": (STARTED, "Start of the process since 1970."),
    }
    with suppress(OSError, ValueError, IndexError):  # Linux
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE"), "Resident memory."
        found["open_fds"] = len(list(Path("/proc/self/fd").iterdir())), "Open file descriptors."
    if sys.platform != "win32":
        import resource

        found["max_fds"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0], "Most file descriptors that may be open."
    for name, (value, words) in found.items():
        page.add(name, value, words, prefix="process_")


def _add_totals(page: _Page, totals: Totals) -> None:
    """The gauges of the store."""
    oldest = totals.oldest_pending
    page.add("streams", totals.streams, "Streams in the store.")
    page.add("pending", totals.pending, "Forecasts in the store without an outcome.")
    page.add("held", totals.held, "Outcomes that wait until they are mature.")
    age = 0.0 if oldest is None else time.time() - oldest
    page.add("oldest_pending_seconds", age, "Age of the oldest forecast without an outcome; 0 without any.")
    if totals.raw_log_loss is not None and totals.log_loss is not None:
        page.begin("log_loss", "gauge", "Mean log-loss over all learnt outcomes.")
        page.value("log_loss", totals.raw_log_loss, kind="raw")
        page.value("log_loss", totals.log_loss, kind="calibrated")


class _Page:
    def __init__(self) -> None:
        self.lines: list[str] = []

        self.prefix = "calibeat_"

    def begin(self, name: str, kind: str, help: str) -> None:  # noqa: A002 - the word of the format
        """A metric begins."""
        self.lines += [f"# HELP {self.prefix}{name} {help}", f"# TYPE {self.prefix}{name} {kind}"]

    def value(self, name: str, value: float, **labels: str) -> None:
        """One sample."""
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        self.lines.append(
            f"{self.prefix}{name}{{{inside}}} {value:.17g}" if inside else f"{self.prefix}{name} {value:.17g}"
        )

    def add(self, name: str, value: float, help: str, *, prefix: str = "calibeat_") -> None:  # noqa: A002
        """A counter, whose name ends with `_total`, or a gauge."""
        self.prefix = prefix
        self.begin(name, "counter" if name.endswith("_total") else "gauge", help)
        self.value(name, value)
        self.prefix = "calibeat_"

    def add_each(self, name: str, label: str, values: Mapping[str, int], help: str) -> None:  # noqa: A002
        """A counter with a sample for each value of a label."""
        self.begin(name, "counter", help)
        for text in sorted(values):
            self.value(name, values[text], **{label: text})

    def add_buckets(self, name: str, found: BucketCounts, help: str) -> None:  # noqa: A002
        """Counts up to each bound."""
        self.begin(name, "histogram", help)
        self.buckets(name, found)

    def buckets(self, name: str, found: BucketCounts, **labels: str) -> None:
        """The samples of a histogram that has begun."""
        total = 0
        for bound, count in zip(found.bounds, found.counts, strict=False):
            total += count
            self.value(f"{name}_bucket", total, **labels, le=f"{bound:g}")
        self.value(f"{name}_bucket", found.count, **labels, le="+Inf")
        self.value(f"{name}_sum", found.sum, **labels)
        self.value(f"{name}_count", found.count, **labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
