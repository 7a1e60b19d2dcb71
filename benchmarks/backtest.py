"""The backtest end to end: logs are read, and the command on a Parquet log beside its kernels alone and beside river.

Logs are made in a temporary folder and thrown away. The command runs in a process of its own, whose CPU seconds (all
threads, start-up and report included) and largest resident size are those that the system reports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import table
from benchmarks.reading import reading
from benchmarks.stream import drifting
from benchmarks.timing import once
from calibeat import Calibrator, Method
from calibeat.backtest.replay.contenders import chosen

# By name, so that types are checked alike where river is installed and where it is not.
CLASSIFIER: Any = import_module("river.base").Classifier
evaluate, metrics = import_module("river.evaluate"), import_module("river.metrics")

PIECE = 1_000_000
RIVER_ROWS = 100_000
MOST_SECONDS = 480.0  # a log that would take longer is left out, and said so
MOST_MEMORY_MB, MOST_OVERHEAD, LEAST_SPEEDUP = 1500.0, 3.0, 200.0
MOST_FIXED, MOST_KEYED_US, MOST_BESIDE_KERNELS = 0.8, 0.5, 1.15
TINY, KEYS = 500, 1000
NO_TIMES = ("--time", "none", "--outcome-time", "none")


class Run(NamedTuple):
    """What one run of the command took."""

    rows: int
    wall: float
    cpu: float
    memory_mb: float
    report_mb: float


def write_log(path: Path, rows: int) -> None:
    """A drifting log, piece by piece, so that the benchmark itself stays small."""
    writer = None
    for at in range(0, rows, PIECE):
        stream = drifting(min(PIECE, rows - at), seed=at // PIECE)
        part = pa.table({"score": stream.scores, "outcome": stream.outcomes.astype("int8")})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def command(folder: Path, rows: int) -> Run:
    """`calibeat backtest log.parquet --report report.html`, with its ten methods of constant cost."""
    log = folder / f"{rows}.parquet"
    write_log(log, rows)
    found = process(log, rows)
    log.unlink()
    return found


def process(log: Path, rows: int, *more: str) -> Run:
    """The command in a process of its own: all threads, start-up and page included."""
    report = log.parent / "report.html"
    arguments = [sys.executable, "-m", "calibeat", "backtest", str(log), *more, "--report", str(report), "--json"]
    began = perf_counter()
    cpu, memory = cpu_of(arguments)
    seconds = perf_counter() - began
    return Run(rows, seconds, cpu, memory, report.stat().st_size / 1e6)


def cpu_of(arguments: list[str]) -> tuple[float, float]:
    """CPU seconds of a process, and its largest resident size in MB."""
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"the command ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def kernels(rows: int) -> float:
    """CPU seconds of `Calibrator.run` alone for the same methods and as many rows."""
    part = drifting(min(rows, PIECE))
    methods = [each.method for each in chosen(None, keyed=False)[0] if isinstance(each.method, Method)]
    for method in methods:
        Calibrator(method).run(part.scores[:1000], part.outcomes[:1000])
    seconds = 0.0
    for method in methods:
        seconds += once(partial(Calibrator(method).run, part.scores, part.outcomes), thread_time)
    return seconds * rows / len(part.scores)


class Wrapped(CLASSIFIER):  # type: ignore[misc]  # see above
    """A method as a river classifier."""

    def __init__(self, method: Method) -> None:
        self._calibrator = Calibrator(method)
        self._forecast = self._calibrator.predict(0.5)

    def predict_proba_one(self, x: dict[str, float]) -> dict[bool, float]:
        """The forecast is kept for the outcome, which comes next."""
        self._forecast = self._calibrator.predict(x["score"])
        p = self._forecast.probability
        return {True: p, False: 1.0 - p}

    def learn_one(self, _: dict[str, float], y: bool) -> None:
        """The outcome of the latest forecast."""
        self._calibrator.update(self._forecast, y)


def by_river(rows: int) -> float:
    """CPU seconds of the same ten methods by river's progressive validation, with its log-loss, accuracy and AUC."""
    stream = drifting(rows)
    scores, outcomes = stream.scores.tolist(), (stream.outcomes == 1.0).tolist()
    events = [({"score": score}, outcome) for score, outcome in zip(scores, outcomes, strict=True)]

    methods = [each.method for each in chosen(None, keyed=False)[0] if isinstance(each.method, Method)]

    def compare() -> None:
        for method in methods:
            measures = metrics.base.Metrics([metrics.LogLoss(), metrics.Accuracy(), metrics.ROCAUC()])
            evaluate.progressive_val_score(events, Wrapped(method), measures)

    return once(compare, thread_time)


def end_to_end(*, quick: bool) -> None:
    """Tables: time and memory of the command, and its time beside the kernels and beside river."""
    sizes = [100_000, 1_000_000] if quick else [1_000_000, 10_000_000, 100_000_000]
    runs: list[Run] = []
    notes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in sizes:
            if runs and runs[-1].wall * rows / runs[-1].rows > MOST_SECONDS:
                notes.append(f"{rows:,} rows left out: more than {MOST_SECONDS:.0f} s at the pace of the last run.")
            elif shutil.disk_usage(folder).free < 3 * 10 * rows:
                notes.append(f"{rows:,} rows left out: no room for the log.")
            else:
                runs.append(command(folder, rows))
        # Last: the memory of a command counts from what this process had when it was started.
        reading(folder, 200_000 if quick else 1_000_000)
    table.show(
        "calibeat backtest log.parquet --report report.html, ten methods",
        ["rows", "wall s", "CPU s", "ns per row (CPU)", "peak memory MB", "report MB", f"< {MOST_MEMORY_MB:.0f} MB"],
        [
            [
                f"{run.rows:,}",
                f"{run.wall:.1f}",
                f"{run.cpu:.1f}",
                table.nanoseconds(run.cpu, run.rows),
                f"{run.memory_mb:.0f}",
                f"{run.report_mb:.2f}",
                table.verdict(met=run.memory_mb < MOST_MEMORY_MB),
            ]
            for run in runs
        ],
        notes,
    )
    last = next((run for run in reversed(runs) if run.rows <= 10_000_000), runs[-1])
    sample = RIVER_ROWS // (10 if quick else 1)
    alone, river = kernels(last.rows), by_river(sample) * last.rows / sample
    table.show(
        f"{last.rows:,} rows, CPU seconds",
        ["what", "CPU s", "beside the command", "goal", ""],
        [
            ["the command, end to end", f"{last.cpu:.1f}", "1.00", "", ""],
            [
                "the kernels alone (Calibrator.run)",
                f"{alone:.1f}",
                f"1 / {last.cpu / alone:.2f}",
                f">= 1 / {MOST_OVERHEAD:.0f}",
                table.verdict(met=last.cpu <= MOST_OVERHEAD * alone),
            ],
            [
                "river, the same methods wrapped, three measures",
                f"{river:.0f}",
                f"{river / last.cpu:.0f}",
                f">= {LEAST_SPEEDUP:.0f}",
                table.verdict(met=river >= LEAST_SPEEDUP * last.cpu),
            ],
        ],
        [
            f"river: progressive_val_score on {sample:,} rows, scaled.",
            f"By the clock the command takes {last.wall:.1f} s: {river / last.wall:.0f} times less than river's CPU.",
            "The command runs a method a thread; these are the CPU seconds of all threads.",
        ],
    )


def write_keyed_log(path: Path, rows: int) -> None:
    """A drifting log with a text key and a time for each event."""
    stream, rng = drifting(rows), np.random.default_rng(1)
    times = np.datetime64("2024-01-01", "us") + np.cumsum(rng.integers(1, 60_000_000, rows)).astype("timedelta64[us]")
    keys = np.array([f"key-{k}" for k in range(KEYS)])[rng.zipf(1.3, rows) % KEYS]
    columns = {"score": stream.scores, "outcome": stream.outcomes.astype("int8"), "key": keys, "time": times}
    pq.write_table(pa.table(columns), path)


def goals(*, quick: bool) -> None:
    """A table of three goals: what a tiny log costs, what keys and times add, and ten methods beside their kernels."""
    rows, long, turns = (100_000, 200_000, 2) if quick else (1_000_000, 10_000_000, 4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny, keyed, log = (folder / f"{each}.parquet" for each in ("tiny", "keyed", "log"))
        write_log(tiny, TINY)
        write_keyed_log(keyed, rows)
        write_log(log, long)
        fixed, imports, bare, with_keys = [], [], [], []
        for _ in range(turns):
            fixed.append(process(tiny, TINY).cpu)
            imports.append(cpu_of([sys.executable, "-c", "import numpy, pyarrow.parquet, pyarrow.compute"])[0])
            bare.append(process(keyed, rows, *NO_TIMES).cpu)
            with_keys.append(process(keyed, rows, "--key", "key", "--time", "time", "--outcome-time", "none").cpu)
        alone = [kernels(long)]
        whole = []
        for _ in range(1 if quick else 2):
            whole.append(process(log, long).cpu)
            alone.append(kernels(long))
    added = 1e6 * (min(with_keys) - min(bare)) / rows
    ratio = min(whole) / min(alone)
    table.show(
        "calibeat backtest log.parquet --report report.html, CPU seconds of the whole process, least of all turns",
        ["what", "ours", "anchor", "ratio", "goal", ""],
        [
            [
                f"a log of {TINY} rows",
                f"{min(fixed):.2f}",
                f"{min(imports):.2f}",
                f"{min(fixed) / min(imports):.2f}",
                f"<= {MOST_FIXED} s",
                table.verdict(met=min(fixed) <= MOST_FIXED),
            ],
            [
                f"{rows:,} rows with --key --time, beside without",
                f"{min(with_keys):.2f}",
                f"{min(bare):.2f}",
                f"+ {added:.2f} us a row",
                f"<= {MOST_KEYED_US} us",
                table.verdict(met=added <= MOST_KEYED_US),
            ],
            [
                f"{long:,} rows, ten methods, beside their Calibrator.run",
                f"{min(whole):.2f}",
                f"{min(alone):.2f}",
                f"{ratio:.2f}",
                f"<= {MOST_BESIDE_KERNELS}",
                table.verdict(met=ratio <= MOST_BESIDE_KERNELS),
            ],
        ],
        [
            "Anchor of the first line: Python that imports NumPy and Arrow.",
            "With keys two methods more are replayed and judged (AUTO without keys, and with a pooled start), not FPS.",
        ],
    )
