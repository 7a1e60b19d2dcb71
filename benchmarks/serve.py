"""How much a durable answer costs: bare Starlette, the service on SQLite, the service on PostgreSQL, in one run."""

from __future__ import annotations

import importlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serve_load import Measured, load
from benchmarks.table import show, verdict

LOADS = {
    "1 event, 64 connections": (64, 1),
    "1 event, 256 connections": (256, 1),
    "100 events, 64 connections": (64, 100),
}
GOAL, LATENCY = 0.5, 50.0
LEARNS = "bare, learns"  # the same work as the service, in memory only


class Contender:
    """A service in a process of its own."""

    def __init__(self, command: list[str], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"{command} must listen, got nothing in two minutes")

    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident MiB."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def contenders(*, bare: bool = True) -> Iterator[dict[str, Contender]]:
    """The services, all of them up; PostgreSQL where it is installed."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = {"SQLite": f"{folder}/calibeat.db"}
        if address := _postgres(stack):
            stores["PostgreSQL"] = address
        found = {}
        if bare:
            for name, more in (("bare", []), (LEARNS, ["learn"])):
                port = free_port()
                found[name] = Contender([sys.executable, "-m", "benchmarks.serve_bare", str(port), *more], port)
                stack.callback(found[name].close)
        for name, store in stores.items():
            port = free_port()
            serve = ["serve", "--store", store, "--method", "tops", "--port", str(port)]
            found[name] = Contender([sys.executable, "-m", "calibeat", *serve], port)
            stack.callback(found[name].close)
        for contender in found.values():  # kernels, connections, first pages
            load(contender.url, 8, 1.0, 1)
        yield found


def _postgres(stack: ExitStack) -> str | None:
    """The address of a PostgreSQL database: CALIBEAT_POSTGRES, or a server of the tests."""
    if address := os.environ.get("CALIBEAT_POSTGRES"):
        return address
    server = postgres_server(stack)
    return None if server is None else str(server.database())


def postgres_server(stack: ExitStack) -> Any:
    """A PostgreSQL server of the tests; None where it is not installed."""
    sys.path.insert(0, "tests")
    try:
        server = importlib.import_module("postgres").start()
    except BaseException as reason:  # noqa: BLE001 - a test that skips raises an exception of its own
        sys.stdout.write(f"PostgreSQL is left out: {reason}\n")
        return None
    stack.callback(server.close)
    return server


def throughput(*, quick: bool) -> None:
    """Requests per second and latency of each, taking turns."""
    rounds, seconds = (2, 1.0) if quick else (5, 3.0)
    with contenders() as found:
        peak = 0.0
        for title, (connections, batch) in LOADS.items():
            results: dict[str, list[tuple[Measured, float]]] = {name: [] for name in found}
            for _ in range(rounds):
                for name, contender in found.items():
                    before = contender.cpu()
                    measured = load(contender.url, connections, seconds if batch == 1 else 3 * seconds, batch)
                    results[name].append((measured, (contender.cpu() - before) / max(1, measured.requests)))
            _table(title, results, found)
            if batch == 1:
                peak = max(peak, *(measured.rate for measured, _ in results["SQLite"]))
        _paced(found, peak / 2, seconds)


def _table(title: str, results: dict[str, list[tuple[Measured, float]]], found: dict[str, Contender]) -> None:
    rates = {name: statistics.median(m.rate for m, _ in turns) for name, turns in results.items()}
    cpu = {name: min(cpu for _, cpu in turns) for name, turns in results.items()}
    rows = []
    for name, turns in results.items():
        rows.append(
            [
                name,
                f"{rates[name]:,.0f}",
                f"{statistics.median(m.p50 for m, _ in turns):.2f}",
                f"{statistics.median(m.p99 for m, _ in turns):.2f}",
                f"{1e6 * cpu[name]:.0f}",
                f"{rates[name] / rates['bare']:.2f}",
                f"{rates[name] / rates[LEARNS]:.2f}",
                str(sum(m.errors for m, _ in turns)),
                f"{found[name].memory():.0f}",
            ]
        )
    against = {"bare": rates["SQLite"] / rates["bare"], "bare that learns": rates["SQLite"] / rates[LEARNS]}
    notes = [f"SQLite at least {GOAL} of {name}: {r:.2f}, {verdict(met=r >= GOAL)}" for name, r in against.items()]
    head = ["service", "requests/s", "p50 ms", "p99 ms", "CPU us", "of bare", "of bare that learns", "errors", "MiB"]
    show(f"{title}, half forecasts, half outcomes", head, rows, notes)


def _paced(found: dict[str, Contender], rate: float, seconds: float) -> None:
    rows, worst = [], 0.0
    for name in [name for name in found if not name.startswith("bare")]:
        measured = load(found[name].url, 64, 2 * seconds, 1, rate)
        if name == "SQLite":
            worst = measured.p99
        rows.append([name, f"{measured.rate:,.0f}", f"{measured.p50:.2f}", f"{measured.p99:.2f}", str(measured.errors)])
    show(
        f"1 event, 64 connections, at {rate:,.0f} requests/s (half of the peak on SQLite)",
        ["service", "requests/s", "p50 ms", "p99 ms", "errors"],
        rows,
        [f"p99 below {LATENCY:.0f} ms on SQLite: {worst:.1f} ms, {verdict(met=worst < LATENCY)}"],
    )


def soak(*, quick: bool) -> None:
    """Memory over an hour at half of the peak load (over a minute with --quick)."""
    turns, seconds = (6, 10.0) if quick else (60, 60.0)
    with contenders(bare=False) as found:
        contender = found["SQLite"]
        rate = load(contender.url, 64, 2.0, 1).rate / 2
        rows = []
        for turn in range(turns):
            measured = load(contender.url, 64, seconds, 1, rate)
            rows.append(
                [
                    f"{(turn + 1) * seconds:.0f}",
                    f"{measured.rate:,.0f}",
                    f"{measured.p99:.1f}",
                    f"{contender.memory():.0f}",
                    str(measured.errors),
                ]
            )
        step = max(1, len(rows) // 12)
        show(
            f"Soak at {rate:,.0f} requests/s",
            ["seconds", "requests/s", "p99 ms", "MiB", "errors"],
            rows[step - 1 :: step],
        )


def abandoned(*, quick: bool) -> None:
    """Connections that are opened, half used and abandoned; then ones that are held. The service must not notice."""
    count = 1_000 if quick else 10_000
    head = b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    start = head + b"content-length: 50\r\n\r\n{"
    with contenders(bare=False) as found:
        contender = found["SQLite"]
        place = ("127.0.0.1", int(contender.url.rpartition(":")[2]))
        rows = [["before", "", f"{contender.memory():.0f}", _asked(contender)]]
        for number in range(count):
            with socket.create_connection(place) as connection:
                connection.sendall(start[: number % len(start)])
        rows.append(["opened and abandoned", f"{count:,}", f"{contender.memory():.0f}", _asked(contender)])
        held = [socket.create_connection(place) for _ in range(min(count, 3_000))]
        for number, connection in enumerate(held):
            connection.sendall(start[: number % len(start)])
        rows.append(["held half open", f"{len(held):,}", f"{contender.memory():.0f}", _asked(contender)])
        for connection in held:
            connection.close()
        rows.append(["after", "", f"{contender.memory():.0f}", _asked(contender)])
        show("Abandoned connections", ["moment", "connections", "MiB", "a forecast takes ms"], rows)


def _asked(contender: Contender) -> str:
    """Milliseconds of one forecast, the median of many."""
    return f"{load(contender.url, 1, 1.0, 1).p50:.2f}"
