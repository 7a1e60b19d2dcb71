"""Kill -9 under load: engines on SQLite and on PostgreSQL, and PostgreSQL itself. The clients and the verdict are those
of the tests (tests/kills.py), with more kills.

Clients send forecasts and late, doubled and contradicting outcomes, retry with the same ids after a kill, and remember
what they were told. At the end the store must hold all of it, and its state must be that of a replay, bit for bit.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from benchmarks import table

METHODS = ("tops", "auto")
HEAD = (
    "service",
    "method",
    "kills",
    "forecasts",
    "outcomes",
    "repeats",
    "lost",
    "doubled",
    "changed",
    "streams differ",
)


def kill(*, quick: bool) -> None:
    """Print one row for each service and method; every column from "lost" on must be 0."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    kills, postgres = importlib.import_module("kills"), importlib.import_module("postgres")
    few = 10 if quick else 1
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for method in METHODS:
            for name, most in (("SQLite", 5), ("SQLite, large groups", 50)):
                url = f"{folder}/{method}-{most}.db"
                clients = kills.run(url, method, 100 // few, most=most, log=DEVNULL)
                rows.append(_row(name, method, 100 // few, clients, url, kills))
    server = postgres.start()
    try:
        for method in METHODS:
            url = server.database()
            clients = kills.run(url, method, 50 // few, workers=2, log=DEVNULL)
            rows.append(_row("PostgreSQL, 2 workers, rows", method, 50 // few, clients, url, kills))
        for method in METHODS:
            url = server.database()
            with tempfile.TemporaryDirectory() as folder:
                clients = kills.run(url, method, 50 // few, workers=2, log=DEVNULL, folder=Path(folder))
            rows.append(_row("PostgreSQL, 2 workers, own", method, 50 // few, clients, url, kills))
        for method in METHODS:
            url = server.database()
            clients = kills.run_with_server(url, method, 20 // few, server, log=DEVNULL)
            rows.append(_row("PostgreSQL itself", method, 20 // few, clients, url, kills))
    finally:
        server.close()
    table.show("Kill -9 at random moments under load", HEAD, rows)


def _row(name: str, method: str, count: int, clients: Any, url: str, kills: Any) -> list[str]:
    found = kills.compare(clients, url)
    numbers = [f"{found[column]:,}" for column in ("forecasts", "outcomes", "repeats", "lost", "doubled", "changed")]
    for sentence in (*found["wrong"], *found["differences"]):
        sys.stdout.write(f"{name}, {method}: {sentence}\n")
    sys.stderr.write(f"{name}, {method}: {count} kills done, {found['lost']} lost\n")
    return [name, method.upper(), str(count), *numbers, f"{len(found['differences'])} of {found['streams']}"]
