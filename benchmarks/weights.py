"""What weights and counts cost: `run` with them beside `run` without; CPU time, best of several, in turns."""

from __future__ import annotations

from functools import partial
from time import thread_time

import numpy as np

from benchmarks import table
from benchmarks.timing import once
from calibeat import AUTO, OPS, TOPS, Calibrator

GOAL = 1.5  # times the time without weights


def cost(*, quick: bool) -> None:
    """Table: nanoseconds an event without weights, and how many times that with four kinds of them."""
    events, repeats = (100_000, 3) if quick else (500_000, 7)
    rng = np.random.default_rng(1)
    scores = rng.random(events)
    outcomes = (rng.random(events) < scores).astype(float)
    kinds: dict[str, dict[str, object]] = {
        "none": {},
        "equal": {"weights": np.full(events, 20.0)},
        "zeros 1 in 20": {"weights": np.where(outcomes == 1.0, 1.0, 20.0)},
        "lognormal": {"weights": rng.lognormal(0.0, 1.0, events)},
        "counts of 5": {"of": np.full(events, 5)},
    }
    rows = []
    for name, method in (("OPS", OPS), ("TOPS", TOPS), ("AUTO", AUTO)):
        spent = dict.fromkeys(kinds, np.inf)
        for _ in range(repeats):
            for kind, told in kinds.items():
                work = partial(Calibrator(method).run, scores, outcomes, **told)  # type: ignore[arg-type]
                spent[kind] = min(spent[kind], once(work, thread_time))
        ratios = {kind: seconds / spent["none"] for kind, seconds in spent.items() if kind != "none"}
        worst = max(ratio for kind, ratio in ratios.items() if kind != "counts of 5")
        cells = [f"{ratio:.2f}" for ratio in ratios.values()]
        rows.append([name, table.nanoseconds(spent["none"], events), *cells, table.verdict(met=worst <= GOAL)])
    head = ["method", "none ns", *(kind for kind in kinds if kind != "none"), f"weights <= {GOAL:g}"]
    table.show(f"what weights cost, {events:,} events of one stream", head, rows)
