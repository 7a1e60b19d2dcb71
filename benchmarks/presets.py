"""Time per event of `Calibrator.run` for every preset. The site's pages of the methods show this table."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

from benchmarks import table
from benchmarks.speed import batch
from benchmarks.stream import drifting
from benchmarks.timing import always, interleaved
from calibeat.core.method import PRESETS

KEPT = Path(__file__).parents[1] / "docs" / "_site" / "cost.csv"


def cost(*, quick: bool) -> None:
    """All presets on one stream; a whole run also writes docs/_site/cost.csv."""
    events = 20_000 if quick else 100_000
    stream = drifting(events)
    contenders = {name.upper(): always(partial(batch, method, stream)) for name, method in PRESETS.items()}
    best = interleaved(contenders, repeats=1 if quick else 5)
    rows = [[name, table.nanoseconds(best[name], events), f"{best[name] / best['OPS']:.1f}"] for name in contenders]
    head = ["preset", "run ns", "times OPS"]
    table.show(f"run of every preset, {events:,} events", head, rows, ["CPU time per event, best of 5 interleaved."])
    if not quick:
        with KEPT.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([[*head, "events"], *([*row, str(events)] for row in rows)])
