"""`/metrics`: Prometheus text, written by hand. Never a series for each stream: there may be a million of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .counters import EngineNumbers, Histogram
from .store.reader import Totals

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(numbers: EngineNumbers, totals: Totals, refused: Mapping[str, int]) -> str:
    r"""All metrics. Counters are of this process since its start, gauges are of the store.

    >>> from calibeat.service.store.reader import Totals
    >>> text = render(EngineNumbers(forecasts=2), Totals(1, 2, 0, 2, 0, 0, 0, None, None, None), {})
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

    def histogram(self, name: str, found: Histogram) -> None:
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
