"""The service of this checkout and of an older one: `CALIBEAT_BEFORE=OLD_CHECKOUT python -m benchmarks serve-before`.

Two services take turns, each on a store of its own: first SQLite files, then PostgreSQL where it is installed. What
counts is the CPU time of the whole process for one request. The ratio is that of two turns, one after the other: the
median of all pairs, for other programs make both slower. A ratio of 1 or more means that this checkout does at least
as much with the same CPU. The ratio of the rates, of requests a second, is beside it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serve import Contender, free_port, postgres_server
from benchmarks.serve_load import load
from benchmarks.table import show, verdict

HERE = Path(__file__).parents[1]
LOADS = {  # connections, events in a request, goals for SQLite and PostgreSQL
    "1 event, 1 connection": (1, 1, 1.5, 1.1),
    "1 event, 16 connections": (16, 1, 0.85, 1.1),
    "1 event, 64 connections": (64, 1, 0.85, 1.1),
    "100 events, 8 connections": (8, 100, 0.8, 1.1),
}


def compare(*, quick: bool) -> None:
    """CPU of a request, before and now, taking turns."""
    older = os.environ.get("CALIBEAT_BEFORE")
    if not older:
        sys.stdout.write("CALIBEAT_BEFORE must be the path of an older checkout, with its compiled core\n")
        return
    checkouts = {"before": Path(older), "now": HERE}
    with tempfile.TemporaryDirectory() as folder:
        _compare("SQLite", checkouts, {name: f"{folder}/{name}.db" for name in checkouts}, quick=quick)
    with ExitStack() as stack:
        if server := postgres_server(stack):
            _compare("PostgreSQL", checkouts, {name: server.database() for name in checkouts}, quick=quick)


def _compare(kind: str, checkouts: dict[str, Path], stores: dict[str, str], *, quick: bool) -> None:
    turns, seconds = (5, 0.7) if quick else (20, 0.7)
    rows, notes = [], []
    with ExitStack() as stack:
        found = {}
        for name, checkout in checkouts.items():
            port = free_port()
            serve = ["serve", "--store", stores[name], "--method", "tops", "--port", str(port)]
            command = ["env", f"PYTHONPATH={checkout.resolve() / 'src'}", sys.executable, "-m", "calibeat", *serve]
            found[name] = Contender(command, port)
            stack.callback(found[name].close)
            load(found[name].url, 8, 1.0, 1)
        for title, (connections, batch, *goals) in LOADS.items():
            goal = goals[kind == "PostgreSQL"]
            cpu: dict[str, list[float]] = {name: [] for name in found}
            rate: dict[str, list[float]] = {name: [] for name in found}
            errors = 0
            for turn in range(turns):
                for name in found if turn % 2 else reversed(found):
                    before = found[name].cpu()
                    measured = load(found[name].url, connections, seconds, batch)
                    cpu[name].append((found[name].cpu() - before) / measured.requests)
                    rate[name].append(measured.rate)
                    errors += measured.errors
            ratio = statistics.median(b / n for b, n in zip(cpu["before"], cpu["now"], strict=True))
            rates = statistics.median(n / b for b, n in zip(rate["before"], rate["now"], strict=True))
            each = [1e6 * of(cpu[name]) for of in (min, statistics.median) for name in ("before", "now")]
            rows.append([title, *(f"{us:.0f}" for us in each), f"{ratio:.2f}", f"{rates:.2f}", str(errors)])
            notes.append(f"{title}: at least {goal}: {verdict(met=ratio >= goal)}")
    head = ["load", "before us", "now us", "median before", "median now", "ratio", "of rates", "errors"]
    show(f"CPU of a request, half forecasts, half outcomes, {kind}", head, rows, notes)
