"""Several models: what they cost, as a multiple of one AUTO in the same run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.stream import drifting
from benchmarks.timing import Maker, always, interleaved
from calibeat import Calibrator

GOALS = {2: 4.5, 3: 6.5, 8: None}  # times one AUTO in a batch, outcomes at once
HOLES = 0.3  # of the scores, in the column with holes
DELAY = 100

Vector = NDArray[np.float64]


def _models(events: int, k: int) -> tuple[Vector, Vector]:
    """The scores of k models that see the score of a drifting stream with noise of their own, and the outcomes."""
    stream = drifting(events)
    noise = np.random.default_rng(k).normal(0.0, 0.7, (events, k))
    return 1.0 / (1.0 + np.exp(-stream.logits[:, None] - noise)), stream.outcomes


def _holes(scores: Vector) -> Vector:
    """The same with missing scores; one of each event stays."""
    rng = np.random.default_rng(0)
    gone = rng.random(scores.shape) < HOLES
    gone[np.arange(len(scores)), rng.integers(0, scores.shape[1], len(scores))] = False
    return np.where(gone, np.nan, scores)


def _calibrator(k: int) -> Calibrator:
    return Calibrator() if k == 1 else Calibrator(models=k)


def _batch(k: int, scores: Vector, outcomes: Vector, due: NDArray[np.int64] | None = None) -> Vector:
    return _calibrator(k).run(scores, outcomes, due=due)


def _singly(k: int, events: list[object], outcomes: list[int]) -> None:
    cal = _calibrator(k)
    for event, outcome in zip(events, outcomes, strict=True):
        cal.update(cal.predict(event), outcome)


def cost(*, quick: bool) -> None:
    """Table: ns an event of `run`, at once, with holes and late, us of predict + update, and times one AUTO."""
    events, repeats = (50_000, 3) if quick else (200_000, 9)
    single, times = (2_000, 3) if quick else (20_000, 7)
    due = np.arange(events) + DELAY
    batches: dict[str, Maker] = {}
    singles: dict[str, Maker] = {}
    for k in (1, *GOALS):
        scores, outcomes = _models(events, k)
        given = scores[:, 0].copy() if k == 1 else scores
        batches[f"{k} at once"] = always(_batch, k, given, outcomes)
        batches[f"{k} late"] = always(_batch, k, given, outcomes, due)
        if k > 1:
            batches[f"{k} holes"] = always(_batch, k, _holes(scores), outcomes)
        singles[f"{k}"] = always(_singly, k, given[:single].tolist(), outcomes[:single].astype(int).tolist())
    best, one_by_one = interleaved(batches, repeats), interleaved(singles, times)
    rows = []
    for k in (1, *GOALS):
        at_once, late = (best[f"{k} {how}"] / best[f"1 {how}"] for how in ("at once", "late"))
        goal = GOALS.get(k)
        rows.append(
            [
                "one AUTO" if k == 1 else f"{k} models",
                table.nanoseconds(best[f"{k} at once"], events),
                f"{at_once:.2f}",
                "" if goal is None else f"{goal:.1f}",
                "" if goal is None else table.verdict(met=at_once <= goal),
                "" if k == 1 else f"{best[f'{k} holes'] / best['1 at once']:.2f}",
                table.nanoseconds(best[f"{k} late"], events),
                f"{late:.2f}",
                table.microseconds(one_by_one[f"{k}"], single),
                f"{one_by_one[f'{k}'] / one_by_one['1']:.2f}",
            ]
        )
    head = ["", "run ns", "x AUTO", "goal", "", f"{HOLES:.0%} missing, x AUTO", "late ns", "x AUTO, late"]
    table.show(
        f"several models beside one AUTO, {events:,} events in a batch, {single:,} one by one",
        [*head, "predict + update us", "x AUTO"],
        rows,
        [f"CPU time per event, best of {repeats} and {times} interleaved. Late: every outcome {DELAY} events late."],
    )
