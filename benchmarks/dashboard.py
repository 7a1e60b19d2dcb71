"""The dashboard on a store of a million events: how long until its first answer is on the screen, in Chromium; and what
lists of very many streams cost.

For the first, the engine writes a tenth of the events. The others are copies of these, further back in time, so that
filling takes two minutes and not twenty.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from benchmarks.table import show, verdict
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_reader
from calibeat.service.store.queries import ORDERS, PAGE_ROWS, overview

EVENTS, QUICK_EVENTS = 1_000_000, 50_000
SHAPES = {1: 36, 1_000: 6, 100_000: 6}  # streams: days of the events that are written
COPIES = 9
APART = 10_000_000  # between the numbers of an event and of its copy
GOAL = 1.0  # seconds
REPEATS = 5
ALARMED = 500  # streams with an open alarm
STREAMS, QUICK_STREAMS = 200_000, 10_000
PAGE = 100
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


def _fill(store: Path, streams: int, events: int, days: int) -> str:
    """-> the name of the largest stream."""
    filled = importlib.import_module("service_fill")
    made = filled.cities(streams)
    begin = time.perf_counter()
    filled.fill(store, made, events // (COPIES + 1), days, end=time.time(), monitor=None, expire=None)
    _copy(store, days)
    sys.stderr.write(f"{events:,} events in {streams:,} streams stored in {time.perf_counter() - begin:.0f} s\n")
    return str(max(made, key=lambda stream: stream.share).name)


_COUNTS = "kind, tenth, forecasts, outcomes, sum_p, sum_y, log_loss, weight"


def _copy(store: Path, days: int) -> None:
    """Learnt events and all hours again, `days` earlier each time; the streams count them."""
    database = sqlite3.connect(store, isolation_level=None)
    database.execute("BEGIN")
    ((last,),) = database.execute("SELECT max(position) FROM op").fetchall()
    for copy in range(1, COPIES + 1):
        more = {"seconds": 86_400.0 * days * copy, "hours": 24 * days * copy}
        moved = {"apart": APART * copy, "copy": f"-{copy}", "moved": last * copy, "seconds": more["seconds"]}
        database.execute(
            "INSERT INTO op (position, stream, kind, nth, id, at, time, x, told, given, issued, corrects) "
            "SELECT position + :moved, stream, kind, nth + :apart, id || :copy, at - :seconds, "
            "time - :seconds, x, told, given, issued, corrects FROM op WHERE position <= :last AND kind < 2",
            {"last": last, **moved},
        )
        database.execute(
            "INSERT INTO event (stream, nth, id, position, time, status, outcome, outcome_time, learnt) "
            "SELECT stream, nth + :apart, id || :copy, position + :moved, time - :seconds, "
            "status, outcome, outcome_time - :seconds, learnt + :moved "
            "FROM event WHERE nth < :limit AND status = 2",
            {"limit": APART, **moved},
        )
        # Hours overlap at the ends of a copy by what was late; the first one there stays.
        database.execute(
            f"INSERT OR IGNORE INTO rollup (stream, hour, {_COUNTS}) SELECT stream, hour - :hours, {_COUNTS} "  # noqa: S608
            "FROM rollup WHERE hour > (SELECT max(hour) FROM rollup) - :days",
            {"hours": more["hours"], "days": 24 * days},
        )
    database.execute("UPDATE meta SET value = (SELECT max(position) FROM op) WHERE name = 'flushed'")
    counts = "events = events + :copies * outcomes, outcomes = outcomes * (1 + :copies)"
    database.execute(f"UPDATE stream SET {counts}", {"copies": COPIES})  # noqa: S608
    database.execute("COMMIT")
    database.close()


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
        met = verdict(met=median(times) < GOAL)
        rows.append([streams, screen, opens, f"{1e3 * median(asked):.0f}", f"{length / 1e3:.0f}", size, met])
    return rows


# ---- very many streams ----------------------------------------------------------------------------------------------


def lists(*, quick: bool) -> None:
    """The CPU of a scrape and of pages of streams."""
    count = QUICK_STREAMS if quick else STREAMS
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "calibeat.db"
        _many_streams(store, count)
        reader = open_reader(str(store))
        middle, page, now = f"s{count // 2}", count // PAGE_ROWS // 2, time.time()
        rows = [["totals, as /metrics asks for them", _cpu(reader.totals)]]
        for order in ORDERS:
            first, later = (_cpu(lambda: reader.streams(after, PAGE, order)) for after in (None, middle))  # noqa: B023
            rows.append([f"/v1/streams by {order}", f"{first} {later}"])
        for order in ORDERS:
            first, later = (_cpu(lambda: overview(reader, now, order, page=at)) for at in (1, page))  # noqa: B023
            rows.append([f"the dashboard by {order}", f"{first} {later}"])
        for state in ("silent", "learning"):
            asked_for = (_cpu(lambda: overview(reader, now, page=at, state=state)) for at in (1, page))  # noqa: B023
            rows.append([f"the dashboard, only {state}", " ".join(asked_for)])
        rows.append(
            ["/v1/streams, a search with one match", _cpu(lambda: reader.streams(None, PAGE, "events", middle))]
        )
        reader.close()
    head = ["question", "CPU, ms"]
    notes = [
        f"Best of {REPEATS}. Pages: the first, and one in the middle; {PAGE} streams, {PAGE_ROWS} on the dashboard."
    ]
    show(f"Lists of {count:,} streams", head, rows, notes)


def _many_streams(store: Path, count: int) -> None:
    engine = Engine.open(str(store), EngineSettings(method="tops"))
    for first in range(0, count, 10_000):
        here = range(first, first + 10_000)
        engine.process([(None, [ForecastEvent(f"s{i}", f"e{i}", i * 0.618 % 1.0) for i in here])])
        engine.process([(None, [OutcomeEvent(f"s{i}", f"e{i}", i // 3 % 2) for i in here if i % 3])])
    with_alarm = (
        "INSERT INTO alarm (stream, time, at, since, what, page, part) VALUES (?, ?, 1, ?, 'no forecasts', 1, -1)"
    )
    now = time.time()
    engine.store.connection.run_many(with_alarm, [(number, now, now) for number in range(1, count, count // ALARMED)])
    engine.store.close()


def _cpu(question: Callable[[], Any]) -> str:
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.process_time()
        question()
        best = min(best, time.process_time() - begin)
    return f"{1e3 * best:.2f}"
