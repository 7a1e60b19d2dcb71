"""Start: what a fresh interpreter pays to import calibeat, and for its first event, run and backtest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks import table

IMPORT_GOAL = 0.3  # seconds

PROLOGUE = "import json, sys, time\n"
EPILOGUE = """
print(json.dumps({"seconds": time.process_time() - begin, "numba": "numba" in sys.modules}))
"""
STREAM = """
import numpy
from calibeat import AUTO, TOPS, Calibrator, backtest, warm_up
scores, outcomes = numpy.linspace(0.01, 0.99, 200_000), numpy.arange(200_000) % 2.0
"""

# What comes before the clock starts, and what is timed, each in a fresh interpreter.
STEPS = {
    "import numpy": ("", "import numpy"),
    "import calibeat": ("", "import calibeat"),
    "first predict + update, after the import": (
        STREAM,
        "calibrator = Calibrator(TOPS); calibrator.update(calibrator.predict(0.8), 1)",
    ),
    "next predict + update": (
        STREAM + "calibrator = Calibrator(TOPS); calibrator.update(calibrator.predict(0.8), 1)",
        "calibrator.update(calibrator.predict(0.8), 1)",
    ),
    "import numba, after numpy": ("import numpy", "import numba"),
    "first run of 1,000 events, kernels cached": (STREAM, "Calibrator(TOPS).run(scores[:1000], outcomes[:1000])"),
}

# The same with nothing cached: a folder that is empty at the first step of each line. Goals are CPU seconds.
FIRSTS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "first run of 1,000 events (TOPS)": (("Calibrator(TOPS).run(scores[:1000], outcomes[:1000])",), None),
    "first run of 1,000 events (AUTO)": (("Calibrator(AUTO).run(scores[:1000], outcomes[:1000])",), None),
    "first run of 200,000 events": (("Calibrator().run(scores, outcomes)",), 4.0),
    "warm_up()": (("warm_up()",), 6.5),
    "first backtest of 200,000 events": (("backtest(scores, outcomes)",), 6.6),
    "the same after a run, in another process": (
        ("Calibrator().run(scores, outcomes)", "backtest(scores, outcomes)"),
        2.6,
    ),
}

Answer = tuple[float, bool]


def fresh(before: str, timed: str, **settings: str) -> Answer:
    """CPU seconds and whether Numba was loaded, as a fresh interpreter reports them."""
    program = f"{PROLOGUE}{before}\nbegin = time.process_time()\n{timed}\n{EPILOGUE}"
    command, environment = [sys.executable, "-c", program], {**os.environ, **settings}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    return float(answer["seconds"]), bool(answer["numba"])


def with_nothing_cached(steps: Sequence[str]) -> Answer:
    """The last of these steps, each in an interpreter of its own, which share a cache that was empty."""
    with tempfile.TemporaryDirectory() as folder:
        return [fresh(STREAM, step, NUMBA_CACHE_DIR=folder) for step in steps][-1]


def interleaved(rounds: int, lines: Mapping[str, Callable[[], Answer]]) -> dict[str, list[Answer]]:
    """The answers of each line, round after round."""
    found: dict[str, list[Answer]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name, measure in lines.items():
            found[name].append(measure())
    return found


def start(*, quick: bool) -> None:
    """Tables: CPU time of each step over interleaved fresh interpreters, with the kernels cached and without."""
    rounds = 3 if quick else 9
    steps = {name: partial(fresh, *step) for name, step in STEPS.items()}
    fresh(STREAM, "warm_up()")  # fills the caches
    interleaved(1, steps)
    rows = []
    for name, answers in interleaved(rounds, steps).items():
        seconds = sorted(s for s, _ in answers)
        goal, loaded = ["", ""], answers[0][1]
        if name == "import calibeat":
            goal = [f"< {IMPORT_GOAL} s, no numba", table.verdict(met=seconds[0] < IMPORT_GOAL and not loaded)]
        elif "predict" in name:
            goal = ["no numba", table.verdict(met=not loaded)]
        rows.append([name, *(f"{1e3 * s:.3f}" for s in (seconds[0], seconds[rounds // 2])), str(loaded), *goal])
    table.show(
        "start of a fresh interpreter",
        ["step", "best ms", "median ms", "numba loaded", "goal", ""],
        rows,
        [f"CPU time of {rounds} fresh interpreters per line, interleaved, after a round that fills the caches."],
    )
    rounds = 1 if quick else 3
    firsts = {name: partial(with_nothing_cached, steps) for name, (steps, _) in FIRSTS.items()}
    rows = []
    for name, answers in interleaved(rounds, firsts).items():
        seconds, wanted = sorted(s for s, _ in answers), FIRSTS[name][1]
        goal = ["", ""] if wanted is None else [f"{wanted} s", table.verdict(met=seconds[0] <= wanted)]
        rows.append([name, *(f"{s:.2f}" for s in (seconds[0], seconds[-1])), str(answers[0][1]), *goal])
    table.show(
        "the first time on a machine: nothing cached",
        ["step", "best s", "worst s", "numba loaded", "goal", ""],
        rows,
        [f"CPU time of {rounds} fresh interpreters per line, interleaved, each with an empty cache."],
    )
