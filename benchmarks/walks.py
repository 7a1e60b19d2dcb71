"""How many modules of calibeat a call passes through: the walks of CONTRIBUTING's map."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks import table
from calibeat import Bank, Calibrator
from calibeat.cli.main import main
from calibeat.core import jit

PACKAGE = str(Path(jit.__file__).parents[1])


def modules_of(call: Callable[[], object]) -> list[str]:
    """The modules whose functions run during a call, in the order of their first use."""
    seen: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and "<" not in frame.f_code.co_name:
            seen.setdefault(file[len(PACKAGE) + 1 : -3].replace("/", "."), None)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def walks(*, quick: bool) -> None:
    """Count, and name them."""
    del quick  # it takes a second anyway
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    outcomes = (rng.random(400) < scores).astype(int)
    cal, bank = Calibrator("tops"), Bank("tops")
    calls: dict[str, Callable[[], object]] = {
        "Calibrator.run, a batch": lambda: cal.run(scores, outcomes),
        "Calibrator.predict and update": lambda: cal.update(cal.predict(0.3), 1),
        "Bank.run, a batch": lambda: bank.run(rng.integers(0, 9, 400), scores, outcomes),
    }
    for call in calls.values():  # what only a first call does, such as imports and compiling, is no part of a walk
        call()
    found = {name: modules_of(call) for name, call in calls.items()}
    with tempfile.TemporaryDirectory() as folder:
        log, page = Path(folder) / "log.csv", Path(folder) / "page.html"
        rows = [f"{score},{outcome}" for score, outcome in zip(scores, outcomes, strict=True)]
        log.write_text("score,outcome\n" + "\n".join(rows) + "\n")
        stdout, sys.stdout = sys.stdout, io.StringIO()
        try:
            command = ["backtest", str(log), "--methods", "tops", "--report", str(page)]
            main(command)
            found["calibeat backtest log --report page"] = modules_of(lambda: main(command))
        finally:
            sys.stdout = stdout
    rows_shown = [[name, str(len(modules)), ", ".join(modules)] for name, modules in found.items()]
    title = "Modules that a call passes through (NUMBA_DISABLE_JIT=1 shows the kernels too)"
    table.show(title, ["call", "modules", "which"], rows_shown)
