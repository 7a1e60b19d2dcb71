"""The dashboard on a store of a million events: how long until its first answer is on the screen, in Chromium."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from benchmarks.table import show, verdict

EVENTS, QUICK_EVENTS = 1_000_000, 50_000
SHAPES = {1: 365.0, 1_000: 60.0, 100_000: 60.0}  # streams: days
GOAL = 1.0  # seconds
REPEATS = 5
OPENED = "return performance.getEntriesByName('ready')[0].startTime / 1000"


def opening(*, quick: bool) -> None:
    """Fill a store for each shape, serve it, open the list and the largest stream."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    browser, served = importlib.import_module("browser"), importlib.import_module("served")
    rows = []
    with browser.browser() as chrome:
        chrome.execute_cdp_cmd("Network.enable", {})
        chrome.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        for streams, days in SHAPES.items():
            with tempfile.TemporaryDirectory() as folder:
                store = Path(folder) / "calibeat.db"
                name = _fill(store, streams, QUICK_EVENTS if quick else EVENTS, days)
                with served.service_apart(store) as service:
                    rows += _measure(chrome, service.url, f"{streams:,}", name, store)
    head = ["streams", "screen", "opens in, ms", "the question, ms", "answer, kB", "store, MB", f"goal {GOAL:g} s"]
    notes = [
        f"Opens: from the request of the page to the drawn screen, nothing cached, median of {REPEATS} (the worst).",
        "The question: the one request for data that the screen makes, alone.",
    ]
    show(f"The dashboard with {QUICK_EVENTS if quick else EVENTS:,} stored events", head, rows, notes)


def _fill(store: Path, streams: int, events: int, days: float) -> str:
    """-> the name of the largest stream."""
    filled = importlib.import_module("service_fill")
    made = filled.cities(streams)
    begin = time.perf_counter()
    filled.fill(store, made, events, days, end=time.time(), monitor=None, expire=None)
    sys.stderr.write(f"{events:,} events in {streams:,} streams stored in {time.perf_counter() - begin:.0f} s\n")
    return str(max(made, key=lambda stream: stream.share).name)


def _measure(chrome: Any, url: str, streams: str, name: str, store: Path) -> list[list[str]]:
    dashboards = importlib.import_module("dashboards")
    size = f"{store.stat().st_size / 1e6:.0f}"
    rows = []
    stream = quote(name, safe="")
    for screen, place, question in (
        ("list", "/", "/v1/overview?order=attention&page=1"),
        ("largest stream", f"/#/stream/{stream}", f"/v1/view?stream={stream}&span=month"),
        ("the same, all time", f"/#/stream/{stream}?span=all", f"/v1/view?stream={stream}&span=all"),
    ):
        times, asked = [], []
        for _ in range(REPEATS):
            dashboards.open_dashboard(chrome, url + place)
            times.append(float(chrome.execute_script(OPENED)))
            begin = time.perf_counter()
            with urllib.request.urlopen(url + question) as answer:  # noqa: S310 - our own service
                length = len(answer.read())
            asked.append(time.perf_counter() - begin)
        opens = f"{1e3 * median(times):.0f} ({1e3 * max(times):.0f})"
        met = verdict(met=max(times) < GOAL)
        rows.append([streams, screen, opens, f"{1e3 * median(asked):.0f}", f"{length / 1e3:.0f}", size, met])
    return rows
