"""What others notice of a correction: `python -m benchmarks corrections`.

One outcome is corrected of a stream with many forecasts whose outcomes have not come. That stream is replayed, and all
of its receipts are stored anew. Meanwhile another stream is asked for a forecast every few milliseconds. What counts
is the longest wait for an answer, beside that of the same time without a correction: other programs make both longer.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.serve import postgres_server
from calibeat.cli.serve import few_collections
from calibeat.service.engine import Engine
from calibeat.service.events import CorrectionEvent, ForecastEvent, OutcomeEvent
from calibeat.service.settings import EngineSettings

OPEN, GOAL = 200_000, 0.3  # forecasts, seconds
PAUSE = 0.003  # seconds from an answer to the next request
AT_ONCE = 1_000


def corrections(*, quick: bool) -> None:
    """The longest wait of another stream."""
    size, turns = (OPEN // 10, 2) if quick else (OPEN, 3)
    rows, notes = [], []
    with ExitStack() as stack:
        stores = {"SQLite": stack.enter_context(tempfile.TemporaryDirectory()) + "/calibeat.db"}
        if server := postgres_server(stack):
            stores["PostgreSQL"] = server.database()
        for kind, store in stores.items():
            worst = 0.0
            for turn, (seconds, waits, quiet) in enumerate(_measured(store, size, turns)):
                longest = float(max(waits))
                worst = max(worst, longest)
                ms = [f"{1e3 * each:.0f}" for each in (longest, np.quantile(waits, 0.99), np.median(waits), max(quiet))]
                rows.append([kind, str(turn + 1), f"{seconds:.1f}", *ms])
            notes.append(f"{kind}: at most {GOAL} s: {worst:.2f} s, {table.verdict(met=worst <= GOAL)}")
    head = ["store", "turn", "applied in s", "longest ms", "p99 ms", "median ms", "longest without"]
    table.show(f"one correction of a stream with {size:,} open forecasts: waits of another one", head, rows, notes)


def _measured(store: str, size: int, turns: int) -> Any:
    """Seconds until a correction is applied, the waits of the other stream meanwhile, and the waits without one."""
    engine, names = Engine.open(store, EngineSettings(method="tops")), count()
    answered = threading.Event()
    engine.start(lambda _: answered.set())

    def ask(*events: Any) -> float:
        answered.clear()
        begun = time.perf_counter()
        engine.submit(None, list(events))
        answered.wait()
        return time.perf_counter() - begun

    def ask_other() -> float:
        wait = ask(ForecastEvent("other", f"o{next(names)}", 0.4))
        time.sleep(PAUSE)
        return wait

    def applied() -> int:
        return int(engine.store.connection.all("SELECT max(applied) FROM stream")[0][0])

    with few_collections():
        scores = np.random.default_rng(0).random(size).tolist()
        for first in range(0, size, AT_ONCE):
            ask(*(ForecastEvent("paris", f"e{at}", scores[at]) for at in range(first, min(first + AT_ONCE, size))))
        ask(OutcomeEvent("paris", "e0", 1))
        engine.wait_until_written()
        for turn in range(turns):
            before = engine.between(applied)
            ask(CorrectionEvent("paris", "e0", turn % 2))
            begun, waits = time.perf_counter(), list[float]()
            looked = begun
            while True:
                waits.append(ask_other())
                if time.perf_counter() - looked > 0.2:
                    looked = time.perf_counter()
                    if engine.between(applied) > before:
                        break
            seconds = time.perf_counter() - begun
            time.sleep(1.0)
            quiet = list[float]()
            end = time.perf_counter() + min(seconds, 5.0)
            while time.perf_counter() < end:
                quiet.append(ask_other())
            yield seconds, waits, quiet
    engine.stop()
