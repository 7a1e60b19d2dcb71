"""Several workers on one PostgreSQL: by row locks, with any event to any worker or each stream to a worker of its own,
and with ownership. First engines alone, then `calibeat serve` behind HTTP.

Engines: groups of 50 forecasts and of their 50 outcomes in turn, over 1,000 streams. HTTP: the load of `benchmarks
serve`, where any event goes to any worker. The load and the workers share the machine: trust ratios.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.serve import free_port
from benchmarks.serve_load import load
from calibeat.service.engine import Engine, Settings
from calibeat.service.operations import ForecastEvent, OutcomeEvent
from calibeat.service.store.ownership import PARTITIONS, ROWS, Member, partition

STREAMS, GROUP = 1000, 100
COUNTS = (1, 2, 4)
ANY, ROUTED, OWN = "rows, any event to any worker", "rows, each stream to its own worker", "own"
LOADS = {"1 event": (64, 1), "100 events": (16, 100)}  # connections, events in a request


def workers(*, quick: bool) -> None:
    """Operations and requests a second of 1, 2 and 4 workers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    server = importlib.import_module("postgres").start(durable=True)
    seconds, rounds = (2.0, 1) if quick else (4.0, 3)
    try:
        engines = {
            (way, count, turn): _engines(server.database(), count, seconds, way)
            for turn in range(rounds)
            for count in COUNTS
            for way in (ANY, ROUTED, OWN)
        }
        note = f"median of {rounds} rounds of {seconds:g} s, all workers together"
        _show("Engines on PostgreSQL: operations a second", (ANY, ROUTED, OWN), engines, rounds, note)
        for title, (connections, batch) in LOADS.items():
            served = {
                (sharing, count, turn): _served(server.database(), count, seconds, sharing, connections, batch)
                for turn in range(rounds)
                for count in COUNTS
                for sharing in ("rows", "own")
            }
            head = f"calibeat serve on PostgreSQL, {title} a request, {connections} connections: requests a second"
            _show(head, ("rows", "own"), served, rounds, note)
    finally:
        server.close()


def _show(title: str, ways: tuple[str, ...], found: dict[Any, float], rounds: int, note: str) -> None:
    medians = {
        (way, count): float(np.median([found[way, count, turn] for turn in range(rounds)]))
        for way in ways
        for count in COUNTS
    }
    base = {count: medians[ways[0], count] for count in COUNTS}
    rows = [
        [way, *(f"{medians[way, count]:,.0f} ({medians[way, count] / base[count]:.2f})" for count in COUNTS)]
        for way in ways
    ]
    head = ("sharing", *(f"{count} worker{'s' * (count > 1)}" for count in COUNTS))
    table.show(title, head, rows, [note, "in brackets: of the first row"])


# ---- engines --------------------------------------------------------------------------------------------------------


def _engines(url: str, count: int, seconds: float, way: str) -> float:
    context = get_context("spawn")
    start, results = context.Barrier(count), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        made = [
            context.Process(target=_work, args=(url, at, count, seconds, way, folder, start, results))
            for at in range(count)
        ]
        for process in made:
            process.start()
        total = sum(results.get(timeout=300) for _ in made)
        for process in made:
            process.join()
    return float(total / seconds)


def _work(url: str, at: int, count: int, seconds: float, way: str, folder: str, start: Any, results: Any) -> None:
    engine = Engine.open(url, Settings(method="tops"), member=Member.of(Path(folder)) if way == OWN else ROWS)
    rng = np.random.default_rng(at)
    own = np.arange(at, STREAMS, count) if way == ROUTED else np.arange(STREAMS)
    if engine.owner is not None:
        while len(engine.owner.mine) != PARTITIONS // count:
            engine.look()
            engine.turn([])
            time.sleep(0.02)
        own = np.array([stream for stream in own if partition(f"s{stream}") in engine.owner.mine])
    start.wait()
    end, done, number = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        streams = [f"s{stream}" for stream in rng.choice(own, GROUP // 2)]
        asked = [ForecastEvent(s, f"{at}-{number + i}", float(rng.random())) for i, s in enumerate(streams)]
        known = [OutcomeEvent(event.stream, event.id, 1) for event in asked]
        number += GROUP // 2
        for events in (asked, known):
            engine._try(engine.turn([(0, events)]))
        done += GROUP
    results.put(done)
    start.wait()  # a worker that ends hands its streams over
    engine.store.close()


# ---- the service ----------------------------------------------------------------------------------------------------


def _served(url: str, count: int, seconds: float, sharing: str, connections: int, batch: int) -> float:
    """Requests a second of `calibeat serve`."""
    port = free_port()
    typed = ["serve", "--store", url, "--method", "tops", "--port", str(port), "--workers", str(count)]
    command = [sys.executable, "-m", "calibeat", *typed, "--sharing", sharing]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            next(iter(service.stdout or ()))  # it is printed when all workers are ready
            load(f"http://127.0.0.1:{port}", connections, 2.0, batch)  # the streams are made and shared out
            found = load(f"http://127.0.0.1:{port}", connections, seconds, batch)
        finally:
            service.terminate()
    if found.errors:
        sys.stderr.write(f"{count} workers, {sharing}: {found.errors} of {found.requests} requests were refused\n")
    return found.rate
