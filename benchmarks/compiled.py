"""The compiled core: what a fresh process pays, and the time of an event beside the same arithmetic in C."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import floor, table
from benchmarks.stream import Stream, drifting
from benchmarks.timing import always, interleaved
from calibeat import AUTO, HOPS, OPS, TOPS, Calibrator, Method

METHODS = {"OPS": OPS, "TOPS": TOPS, "HOPS": HOPS, "AUTO": AUTO}
FLOOR_GOAL = 1.1  # times the C loop, at most
NATIVE_GOALS = {"AUTO": 1.25}  # times the C loop that was compiled for this processor alone, at most
LATE_GOAL = 320.0  # ns an event of AUTO whose outcomes come 100 forecasts late
LATE_GOAL_OF_C = 2.4  # the same beside the C loop of AUTO at once, which took 133 ns on the machine of that goal
SINGLE_GOALS = {"OPS": 200.0, "AUTO": 350.0}  # ns, predict + update

DATA = """
import numpy
scores, outcomes = numpy.linspace(0.01, 0.99, 100_000), numpy.arange(100_000) % 2.0
"""
CLASSES = """
import calibeat, numpy
rng = numpy.random.default_rng(0)
calibeat.MultiCalibrator(10).run(rng.dirichlet(numpy.ones(10), 10_000), rng.integers(0, 10, 10_000))
"""
# What a fresh interpreter does, with an empty HOME; CPU seconds of the whole process, and the most that they may be.
FIRST: dict[str, tuple[str, float | None]] = {
    "python": ("", None),
    "import numpy": ("import numpy", None),
    "import calibeat": ("import calibeat", 0.4),
    "first run of 100,000 events, AUTO": (DATA + "import calibeat; calibeat.Calibrator().run(scores, outcomes)", 0.8),
    "first run of a bank of 1,000 keys": (
        DATA + "import calibeat; calibeat.Bank().run(numpy.arange(100_000) % 1000, scores, outcomes)",
        1.0,
    ),
    "first run of 10 classes, 10,000 events": (CLASSES, 1.0),
}
BACKTEST_GOAL = 2.5


def process_time(*command: str) -> float:
    """CPU seconds of a command and of what it starts, in a fresh process with an empty HOME."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "TMPDIR": home}
        before = os.times()
        subprocess.run(command, check=True, cwd=home, env=environment, stdout=subprocess.DEVNULL)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def first(*, quick: bool) -> None:
    """Table: the CPU seconds of fresh processes."""
    repeats, rows = 2 if quick else 5, []
    for title, (code, goal) in FIRST.items():
        best = min(process_time(sys.executable, "-c", code) for _ in range(repeats))
        rows.append([title, f"{best:.2f}", "" if goal is None else f"{goal:.1f} {table.verdict(met=best <= goal)}"])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        stream = drifting(100_000)
        np.savetxt(
            log, np.column_stack([stream.scores, stream.outcomes]), "%.6g", ",", header="score,outcome", comments=""
        )
        command = sys.executable, "-m", "calibeat", "backtest", str(log), "--report", str(Path(folder) / "page.html")
        best = min(process_time(*command) for _ in range(repeats))
    rows.append(
        [
            "calibeat backtest of 100,000 rows, with its page",
            f"{best:.2f}",
            f"{BACKTEST_GOAL} {table.verdict(met=best <= BACKTEST_GOAL)}",
        ]
    )
    table.show("A fresh process with an empty HOME", ["what", "CPU s", "goal"], rows)


def batch(method: Method, stream: Stream, due: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None) -> object:
    """The stream through a fresh calibrator in one call."""
    return Calibrator(method).run(stream.scores, stream.outcomes, due=due)


def single(method: Method, scores: list[float], outcomes: list[int], delay: int = 0) -> None:
    """The stream through a fresh calibrator, one event at a time; an outcome comes so many forecasts late."""
    calibrator = Calibrator(method)
    predict, update = calibrator.predict, calibrator.update
    if delay == 0:
        for score, outcome in zip(scores, outcomes, strict=True):
            update(predict(score), outcome)
        return
    waiting = [predict(score) for score in scores[:delay]]
    for i, score in enumerate(scores[delay:]):
        update(waiting[i % delay], outcomes[i])
        waiting[i % delay] = predict(score)


def _late(stream: Stream, repeats: int) -> str:
    """What AUTO takes if every outcome comes 100 forecasts late, in words."""
    events = len(stream.scores)
    sides = {
        "late": always(batch, AUTO, stream, np.arange(events) + 101),
        "C": floor.contenders("AUTO", stream)["gcc -O3"],
    }
    best = interleaved(sides, repeats)
    late, ratio = best["late"] / events * 1e9, best["late"] / best["C"]
    met, met_of_c = table.verdict(met=late <= LATE_GOAL), table.verdict(met=ratio <= LATE_GOAL_OF_C)
    return (
        f"AUTO, outcomes 100 forecasts late: {late:.0f} ns (goal {LATE_GOAL:.0f} {met}), "
        f"{ratio:.2f} of AUTO at once in C (goal {LATE_GOAL_OF_C} {met_of_c})."
    )


def compiled(*, quick: bool) -> None:
    """Tables: fresh processes, batches beside C, single events."""
    first(quick=quick)
    events, repeats = (200_000, 5) if quick else (2_000_000, 7)
    stream, rows = drifting(events), []
    for name, method in METHODS.items():
        difference = np.abs(np.asarray(batch(method, stream)) - floor.run(name, stream)).max()
        best = interleaved({"run": always(batch, method, stream)} | floor.contenders(name, stream), repeats)
        c, native = (best["run"] / best[flags] for flags in floor.FLAGS)
        goal = NATIVE_GOALS.get(name)
        rows.append(
            [
                name,
                *(table.nanoseconds(seconds, events) for seconds in best.values()),
                f"{c:.2f}",
                f"{FLOOR_GOAL} {table.verdict(met=c <= FLOOR_GOAL)}",
                f"{native:.2f}",
                "" if goal is None else f"{goal} {table.verdict(met=native <= goal)}",
                f"{difference:.0e}",
            ]
        )
    head = ["method", "run, ns", "C -O3", "C native", "of C", "goal", "of native", "goal", "largest difference"]
    table.show(f"Batches of {events:,} events, CPU time of an event", head, rows, [_late(stream, repeats)])
    events = 20_000 if quick else 200_000
    scores, outcomes = stream.scores[:events].tolist(), stream.outcomes[:events].astype(int).tolist()
    rows = []
    for name, method in METHODS.items():
        best = interleaved(
            {"now": always(single, method, scores, outcomes), "late": always(single, method, scores, outcomes, 20)},
            repeats,
        )
        now, late, goal = best["now"] / events * 1e9, best["late"] / events * 1e9, SINGLE_GOALS.get(name)
        rows.append(
            [name, f"{now:.0f}", "" if goal is None else f"{goal:.0f} {table.verdict(met=now <= goal)}", f"{late:.0f}"]
        )
    head = ["method", "predict + update, ns", "goal", "the same, 20 forecasts late"]
    table.show("Single events, nothing warmed up, the loop included", head, rows)
