"""Several engines on one PostgreSQL: any event to any worker, and each stream to a worker of its own.

No HTTP. Groups of 100 operations, half forecasts and half outcomes, over 1,000 streams. Trust ratios.
"""

from __future__ import annotations

import importlib
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from calibeat.service.engine import Engine, Settings
from calibeat.service.operations import ForecastEvent, OutcomeEvent

STREAMS, GROUP = 1000, 100


def workers(*, quick: bool) -> None:
    """Operations a second of 1, 2 and 4 workers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    server = importlib.import_module("postgres").start(durable=True)
    seconds, rounds = (2.0, 1) if quick else (4.0, 3)
    try:
        found = {
            (routed, count): [_measure(server.database(), count, seconds, routed=routed) for _ in range(rounds)]
            for count in (1, 2, 4)
            for routed in (False, True)
        }
    finally:
        server.close()
    rows = [
        [name, *(f"{np.median(found[routed, count]):,.0f}" for count in (1, 2, 4))]
        for name, routed in (("any event to any worker", False), ("each stream to its own worker", True))
    ]
    notes = [f"median of {rounds} rounds of {seconds:g} s; operations a second, all workers together"]
    table.show("Workers on PostgreSQL (row locks)", ("routing", "1", "2", "4"), rows, notes)


def _measure(url: str, count: int, seconds: float, *, routed: bool) -> float:
    context = get_context("spawn")
    start, results = context.Barrier(count), context.Queue()
    made = [
        context.Process(target=_work, args=(url, at, count, seconds, routed, start, results)) for at in range(count)
    ]
    for process in made:
        process.start()
    total = sum(results.get(timeout=300) for _ in made)
    for process in made:
        process.join()
    return float(total / seconds)


def _work(url: str, at: int, count: int, seconds: float, routed: bool, start: Any, results: Any) -> None:
    engine = Engine.open(url, Settings(method="tops"))
    rng = np.random.default_rng(at)
    own = np.arange(at, STREAMS, count) if routed else np.arange(STREAMS)
    start.wait()
    end, done, number = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        streams = [f"s{stream}" for stream in rng.choice(own, GROUP // 2)]
        asked = [ForecastEvent(s, f"{at}-{number + i}", float(rng.random())) for i, s in enumerate(streams)]
        known = [OutcomeEvent(event.stream, event.id, 1) for event in asked]
        number += GROUP // 2
        for events in (asked, known):
            while True:
                try:
                    engine.process([(0, events)])
                    break
                except engine.store.retries:
                    engine.forget()
        done += GROUP
    results.put(done)
    engine.store.close()
