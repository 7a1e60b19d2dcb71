"""How many files a reader of calibeat passes through: the files of a call, and the changes from one file to another.

`python -m benchmarks walks` prints this checkout; `python -m benchmarks.walks --source ../old/src` puts another one
beside it. A change of file is a Python call in another file of the package than the call before it. The kernels are
one call of the compiled core, which is no change of file; `predict` and `update` of a calibrator are nothing else. The
calls are counted in a process of its own. Each is made once before it is counted: imports and start-up are no part of a
walk.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks import table

HERE = Path(__file__).parents[1]
HTTP, PARQUET = "HTTP forecast, socket to disk and back", "Parquet log to page"
GOALS = {"Bank.run of two events, AUTO": ("10", "50"), HTTP: ("10", "30"), PARQUET: ("45", "-")}  # files, changes
WIDTH = 100
Walk = list[str]  # the files in the order of the calls, without repeats: one change of file from each to the next
Call = tuple[str, Callable[[], Any], Callable[[Any], object]]  # name, makes the argument, takes it and is traced


def walks(*, quick: bool) -> None:
    """Print the walks of this checkout."""
    del quick  # it takes seconds anyway
    show(HERE / "src")


def show(source: Path, before: Path | None = None, trail: str = "") -> None:
    """Print the walks of a checkout's `src`, behind those of an older one; whole where the name contains `trail`."""
    found = [walked for walked in (before and traced(before), traced(source)) if walked]
    rows = []
    for name in found[-1]:
        cells = [cell for walked in found for cell in counts(name, walked)]
        rows.append([name, *cells, *GOALS.get(name, ("", ""))])
    head = ["call", *["files", "changes"] * len(found), "goal", "goal"]
    lines = []
    for name, walk in found[-1].items():
        kept = wrapped(" ", walk) if trail and trail in name else wrapped(", ", list(dict.fromkeys(walk)))
        lines += ["", f"{name}:", *(kept or ["    one call of the compiled core"])]
    table.show("Files that a call passes through, and changes of file on the way", head, rows, lines)


def wrapped(separator: str, files: list[str]) -> list[str]:
    """Names of files as indented lines."""
    lines = textwrap.wrap(separator.join(files), WIDTH - 4, break_on_hyphens=False, break_long_words=False)
    return [f"    {line}" for line in lines]


def counts(name: str, found: dict[str, Walk]) -> tuple[str, str]:
    """Files and changes of file; a backtest changes files with every event, which says nothing."""
    if name not in found:
        return "-", "-"
    walk = found[name]
    return str(len(set(walk))), "-" if name == PARQUET else str(max(0, len(walk) - 1))


def traced(source: Path) -> dict[str, Walk]:
    """The walks of a checkout's `src`, traced in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "walks.json"
        path = os.pathsep.join((str(source.resolve()), str(HERE)))
        # The setting is for older checkouts, whose kernels are then Python calls.
        env = {**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"}
        command = [sys.executable, "-m", "benchmarks.walks", "--trace", str(answer)]
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Walk] = json.loads(answer.read_text())
    return found


# ---- in the process that traces ----------------------------------------------------------------------------------


class Tracer:
    """Notes the package's calls in every thread that was started after it, while it is on."""

    def __init__(self) -> None:
        package = importlib.import_module("calibeat")
        self.root = str(Path(str(package.__file__)).parent) + os.sep
        self.on = False
        self.trails: dict[int, list[str]] = {}
        threading.setprofile(self.look)
        sys.setprofile(self.look)

    def look(self, frame: FrameType, event: str, _: Any) -> None:
        """The hook of `sys.setprofile`."""
        if not self.on or event != "call":
            return
        file = frame.f_code.co_filename
        if file.startswith(self.root) and "<" not in frame.f_code.co_name:
            self.trails.setdefault(threading.get_ident(), []).append(file[len(self.root) : -3])

    def walk(self, call: Callable[[], object]) -> Walk:
        """Make a call and return its walk: the threads' ways one behind the other."""
        self.trails = {}
        self.on = True
        try:
            call()
        finally:
            self.on = False
        return [file for file, _ in groupby(file for way in self.trails.values() for file in way)]


def trace_all() -> dict[str, Walk]:
    """Every walk of the table."""
    tracer = Tracer()
    found: dict[str, Walk] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, prepare, call in [
            *calibrator_calls("ops"),
            *calibrator_calls("auto"),
            *bank_calls(),
            backtest_call(Path(folder)),
        ]:
            call(prepare())
            found[name] = tracer.walk(partial(call, prepare()))
        found[HTTP] = http_walk(tracer, Path(folder) / "store.db")
    return found


def calibrator_calls(method: str) -> Iterator[Call]:
    """Calls of one `Calibrator`."""
    from calibeat import Calibrator

    cal, shown = Calibrator(method), method.upper()

    def forecast_of_before() -> Any:
        made = cal.predict(0.83)
        cal.predict(0.83)
        return made

    yield f"Calibrator.predict, {shown}", lambda: 0.83, cal.predict
    yield f"Calibrator.update, {shown}", lambda: cal.predict(0.83), lambda made: cal.update(made, 1)
    yield f"Calibrator.update, late, {shown}", forecast_of_before, lambda made: cal.update(made, 1)
    yield f"Calibrator.run of one event, {shown}", lambda: [0.83], lambda scores: cal.run(scores, [1])


def bank_calls() -> Iterator[Call]:
    """Calls of one `Bank`."""
    from calibeat import Bank

    bank, keys = Bank("auto"), ["paris", "rome"]
    yield "Bank.run of two events, AUTO", lambda: keys, lambda keys: bank.run(keys, [0.83, 0.2], [1, 0])
    yield "Bank.predict, AUTO", lambda: "paris", lambda key: bank.predict(key, 0.83)
    yield "Bank.update, AUTO", lambda: bank.predict("paris", 0.83), lambda made: bank.update("paris", made, 1)


def backtest_call(folder: Path) -> Call:
    """`calibeat backtest log.parquet --report page.html`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from calibeat.cli.main import main

    rng = np.random.default_rng(0)
    scores = rng.random(400)
    columns = {"score": scores, "outcome": (rng.random(400) < scores).astype(int)}
    pq.write_table(pa.table(columns), folder / "log.parquet")
    command = ["backtest", str(folder / "log.parquet"), "--report", str(folder / "page.html")]
    return PARQUET, lambda: command, main


def http_walk(tracer: Tracer, store: Path) -> Walk:
    """One forecast over a socket, of a `calibeat serve` in this process and thread."""
    from calibeat.cli.main import main

    found: list[Walk] = []

    def ask(port: int) -> None:
        """Be the client. The shortest walk counts: now and then an engine looks for work of its own."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                for i in range(2):
                    exchange(connection, f"warm-{i}")
                found.extend(tracer.walk(partial(exchange, connection, f"counted-{i}")) for i in range(4))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    class Output:
        """Takes what the service prints, and starts the client when the address has come."""

        text = ""

        def write(self, text: str) -> None:
            self.text += text
            if address := re.search(r"at http://127\.0\.0\.1:(\d+)", text):
                threading.Thread(target=ask, args=(int(address[1]),)).start()

        def flush(self) -> None:
            """Nothing is buffered."""

    with contextlib.redirect_stdout(Output()):  # type: ignore[type-var]  # the service needs no more of a file
        main(["serve", "--store", str(store), "--port", "0"])
    return min(found, key=len)


def exchange(connection: socket.socket, event: str) -> None:
    """Send one forecast and wait for its answer, and a moment longer for what the service does behind it."""
    body = json.dumps({"stream": "paris", "id": event, "score": 0.83})
    head = f"POST /v1/forecasts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
    answer = connection.recv(65536)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the service must answer 200, got {answer!r}")
    time.sleep(0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.walks", description=__doc__)
    parser.add_argument("--source", type=Path, help="the src of another checkout, to be shown beside this one")
    parser.add_argument("--trail", default="", help="print every change of file of the calls whose names contain this")
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace is None:
        show(HERE / "src", arguments.source, arguments.trail)
    else:
        arguments.trace.write_text(json.dumps(trace_all()))
