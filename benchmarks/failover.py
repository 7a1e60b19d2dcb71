"""How long nobody is answered when the service that leads a PostgreSQL ends, hangs or loses its session.

Two services share one database. A client sends one forecast after the other, and turns to the other service when it is
refused or hears nothing for a second. The pause is the longest time between two answers.

``python -m benchmarks.failover --rounds 5`` prints the median and the longest pause of each fault.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import httpx

from benchmarks import table

PATIENCE = 1.0  # seconds for an answer
HEAD = ("the leader", "rounds", "median pause, s", "longest pause, s")


class Caller:
    """A thread that asks without a pause, and notes when it was answered."""

    def __init__(self, services: list[Any]) -> None:
        self._services, self._is_over = services, threading.Event()
        self.answered = [time.monotonic()]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        with httpx.Client(timeout=PATIENCE) as http:
            for at in count():
                if self._is_over.is_set():
                    return
                event = {"stream": "paris", "id": f"e{time.monotonic_ns()}-{at}", "score": 0.3}
                try:
                    url = f"http://127.0.0.1:{self._services[turn % len(self._services)].port}/v1/forecasts"
                    is_answered = http.post(url, json=event).status_code == 200
                except httpx.TransportError:
                    is_answered = False
                if is_answered:
                    self.answered.append(time.monotonic())
                else:
                    turn += 1
                    time.sleep(0.01)

    def close(self) -> None:
        """Ask nothing more."""
        self._is_over.set()
        self._thread.join()


def main() -> int:
    """Print a row for each fault."""
    parser = argparse.ArgumentParser(prog="benchmarks.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each fault (%(default)s)")
    rounds = parser.parse_args().rounds
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    harness, checks, postgres = (importlib.import_module(name) for name in ("faults", "kills", "postgres"))
    server, nursery = postgres.start(), harness.Nursery(subprocess.DEVNULL)
    try:
        load = harness.Load(nursery, ["--store", server.database(), "--method", "tops"], 2, checks.Clients(1))
        faults: dict[str, Callable[[Any], None]] = {
            "is stopped (SIGTERM)": lambda leader: load.end(leader, signal.SIGTERM),
            "is killed (SIGKILL)": lambda leader: leader.end(signal.SIGKILL),
            "hangs (SIGSTOP)": lambda leader: leader.signal(signal.SIGSTOP),
            "loses all sessions": lambda _: server.cut_sessions(),
        }
        rows = list[list[str]]()
        for name, fault in faults.items():
            pauses = [_pause(load, fault) for _ in range(rounds)]
            rows.append([name, str(rounds), f"{statistics.median(pauses):.1f}", f"{max(pauses):.1f}"])
    finally:
        nursery.close()
        server.close()
    table.show("Pause of the answers when a leader fails", HEAD, rows)
    return 0


def _pause(load: Any, fault: Callable[[Any], None]) -> float:
    """The longest time without an answer around a fault."""
    caller = Caller(load.services)
    try:
        time.sleep(1.0)
        victim = load.leader()
        at = time.monotonic()
        fault(victim)
        while caller.answered[-1] < at + 0.5:
            time.sleep(0.05)
        time.sleep(1.0)
        found = [moment for moment in caller.answered if moment > at - 0.5]
        if victim.is_alive:
            victim.signal(signal.SIGCONT)
    finally:
        caller.close()
    load.mend()
    time.sleep(2.0)
    return max(later - earlier for earlier, later in pairwise(found))


if __name__ == "__main__":
    sys.exit(main())
