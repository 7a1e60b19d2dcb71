"""Receipts in columns: `issue` and `learn` of a million events beside `run` of the same; CPU time, best of several."""

from __future__ import annotations

from functools import partial
from time import thread_time

import numpy as np

from benchmarks import table
from benchmarks.timing import once
from calibeat import AUTO, OPS, Calibrator
from calibeat._util.types import Vector
from calibeat.hosts.receipts import Receipts

GOAL = 5.0  # times the time of `run`


def issue_into(made: list[Receipts], calibrator: Calibrator, scores: Vector) -> None:
    """Keep what is issued."""
    made.append(calibrator.issue(scores))


def columns(*, quick: bool) -> None:
    """Table: nanoseconds an event of `run`, of `issue` and of `learn`, and how many times that of `run`."""
    events, repeats = (200_000, 3) if quick else (1_000_000, 5)
    rng = np.random.default_rng(1)
    scores = rng.random(events)
    outcomes = (rng.random(events) < scores).astype(float)
    rows = []
    for name, method in (("OPS", OPS), ("AUTO", AUTO)):
        spent = np.full(3, np.inf)
        for _ in range(repeats):
            whole, parts, made = Calibrator(method), Calibrator(method), list[Receipts]()
            run = once(partial(whole.run, scores, outcomes), thread_time)
            issue = once(partial(issue_into, made, parts, scores), thread_time)
            spent = np.minimum(spent, [run, issue, once(partial(parts.learn, made[0], outcomes), thread_time)])
        alone, *others = spent.tolist()
        cells = [table.nanoseconds(seconds, events) for seconds in (alone, *others)]
        ratios = [seconds / alone for seconds in others]
        rows.append([name, *cells, *(f"{ratio:.2f}" for ratio in ratios), table.verdict(met=max(ratios) <= GOAL)])
    head = ["method", "run ns", "issue ns", "learn ns", "issue / run", "learn / run", f"both <= {GOAL:g}"]
    table.show(f"receipts in columns, {events:,} events of one stream", head, rows)
