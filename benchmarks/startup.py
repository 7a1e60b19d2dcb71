"""Start: what a fresh interpreter pays to import calibeat, to serve its first event and to make its first run."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import table

IMPORT_GOAL = 0.3  # seconds

# Each program prints {"label": seconds, ..., "numba": whether Numba was loaded by then}; a fresh interpreter runs it.
PROGRAMS = {
    "import numpy": """
import sys, json, time
begin = time.perf_counter()
import numpy
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
    "import calibeat": """
import sys, json, time
begin = time.perf_counter()
import calibeat
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
    "first predict + update, after the import": """
import sys, json, time
from calibeat import Calibrator, TOPS
begin = time.perf_counter()
calibrator = Calibrator(TOPS)
calibrator.update(calibrator.predict(0.8), 1)
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
    "next predict + update": """
import sys, json, time
from calibeat import Calibrator, TOPS
calibrator = Calibrator(TOPS)
calibrator.update(calibrator.predict(0.8), 1)
begin = time.perf_counter()
calibrator.update(calibrator.predict(0.8), 1)
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
    "import numba, after numpy": """
import sys, json, time
import numpy
begin = time.perf_counter()
import numba
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
    "first run of 1,000 events, kernels cached": """
import sys, json, time
import numpy
from calibeat import Calibrator, TOPS
scores, outcomes = numpy.linspace(0.01, 0.99, 1_000), numpy.arange(1_000) % 2.0
begin = time.perf_counter()
Calibrator(TOPS).run(scores, outcomes)
print(json.dumps({"seconds": time.perf_counter() - begin, "numba": "numba" in sys.modules}))
""",
}


def fresh(program: str) -> tuple[float, bool]:
    """Seconds and whether Numba was loaded, as a fresh interpreter reports them."""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    return float(answer["seconds"]), bool(answer["numba"])


def start(*, quick: bool) -> None:
    """Table: each program's best and median time over interleaved fresh interpreters, after one that warms caches."""
    rounds = 3 if quick else 9
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in PROGRAMS}
    for turn in range(rounds + 1):
        for name, program in PROGRAMS.items():
            answer = fresh(program)
            if turn:
                found[name].append(answer)
    rows = []
    for name, answers in found.items():
        seconds = sorted(s for s, _ in answers)
        goal = ["", ""]
        loaded = answers[0][1]
        if name == "import calibeat":
            goal = [f"< {IMPORT_GOAL} s, no numba", table.verdict(met=seconds[0] < IMPORT_GOAL and not loaded)]
        elif "predict" in name:
            goal = ["no numba", table.verdict(met=not loaded)]
        rows.append([name, *(f"{1e3 * s:.3f}" for s in (seconds[0], seconds[rounds // 2])), str(loaded), *goal])
    table.show(
        "start of a fresh interpreter",
        ["step", "best ms", "median ms", "numba loaded", "goal", ""],
        rows,
        [f"{rounds} fresh interpreters per line, interleaved, after a round that fills the caches."],
    )
