"""AUTO: what it costs beside OPS, and a long march over streams that no one should have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.speed import batch, loop
from benchmarks.stream import drifting
from benchmarks.timing import always, interleaved
from calibeat import AUTO, OPS, Calibrator, Lanes, Method
from calibeat.core import layout

LEAN = replace(AUTO, learner=Lanes(horizon=False))
METHODS = {"OPS": OPS, "AUTO": AUTO, "AUTO, late labels": AUTO, "AUTO, late labels, no horizon lane": LEAN}
BATCH_GOAL, LATE_GOAL, EVENT_GOAL = 8.0, 11.0, 10.0  # times OPS; us from Python

Vector = NDArray[np.float64]


def late(method: Method, events: int, scores: Vector, outcomes: Vector) -> Vector:
    """Every outcome 100 events late."""
    return Calibrator(method).run(scores, outcomes, due=np.arange(events) + 100)


def cost(*, quick: bool) -> None:
    """Table: ns per event of `run`, us per event of predict + update; best of interleaved repeats."""
    events, repeats = (100_000, 3) if quick else (500_000, 9)
    stream = drifting(events)
    sides = {name: always(batch, method, stream) for name, method in METHODS.items() if "late" not in name}
    for name, method in METHODS.items():
        if "late" in name:
            sides[name] = always(late, method, events, stream.scores, stream.outcomes)
    best = interleaved(sides, repeats)
    single, times = (2_000, 2) if quick else (20_000, 5)
    short = drifting(single)
    scores, outcomes = short.scores.tolist(), short.outcomes.astype(int).tolist()
    by_one = interleaved(
        {"OPS": always(loop, OPS, scores, outcomes), "AUTO": always(loop, AUTO, scores, outcomes)}, times
    )
    rows = []
    for name in METHODS:
        row = [name, "", "", "", "", "", ""]
        if name in best:
            ratio = best[name] / best["OPS"]
            row[1:3] = table.nanoseconds(best[name], events), f"{ratio:.2f}"
            goal = LATE_GOAL if "late" in name else BATCH_GOAL
            row[3:5] = ("", "") if name == "OPS" else (f"{goal:.0f}", table.verdict(met=ratio <= goal))
        if name in by_one:
            us = 1e6 * by_one[name] / single
            row[5:7] = f"{us:.2f}", "" if name == "OPS" else table.verdict(met=us < EVENT_GOAL)
        rows.append(row)
    table.show(
        f"AUTO beside OPS, {events:,} events in a batch, {single:,} one by one",
        ["method", "run ns", "times OPS", "goal", "", "predict + update us", f"under {EVENT_GOAL:.0f}"],
        rows,
        [f"CPU time per event, best of {repeats} and {times} interleaved. Late labels: 100 events late."],
    )


# ---- the long march ----------------------------------------------------------------------------------------------


def marches(events: int) -> Iterator[tuple[str, Vector, Vector]]:
    """Streams that have broken filters before."""
    rng = np.random.default_rng(0)
    scores, coins = rng.random(events), (rng.random(events) < 0.5).astype(np.float64)
    yield "iid", scores, (rng.random(events) < scores).astype(np.float64)
    yield "scores 0 and 1, coins", (scores < 0.5).astype(np.float64), coins
    yield "always 1", scores, np.ones(events)
    yield "score 1, always 0", np.ones(events), np.zeros(events)
    yield "all scores 0.3", np.full(events, 0.3), coins
    yield "0.5, alternating", np.full(events, 0.5), (np.arange(events) % 2).astype(np.float64)
    yield "5e-324, 1 - 1e-16, 2e-5", rng.choice([5e-324, 1 - 1e-16, 2e-5], events), coins
    yield "rare", np.full(events, 1e-4), (rng.random(events) < 1e-4).astype(np.float64)
    yield "1.1e-5, coins", np.full(events, 1.1e-5), coins
    yield "half ones, then zeros", scores, (np.arange(events) < events // 2).astype(np.float64)
    yield "two neighbours", np.where(coins == 1.0, 0.3, np.nextafter(0.3, 1.0)), 1.0 - coins


def adversary(events: int) -> Vector:
    """A row after `events` outcomes that contradicted every forecast: y = 1{p <= 0.5}."""
    calibrator = Calibrator(AUTO)
    for score in np.random.default_rng(1).random(events).tolist():
        forecast = calibrator.predict(score)
        calibrator.update(forecast, 1 if forecast.probability <= 0.5 else 0)
    return calibrator.row


def covariances(row: Vector) -> NDArray[np.float64]:
    """P of the four Kalman lanes, from their upper triangles."""
    upper = row[layout.VAR_A : layout.WEIGHT].reshape(6, 4).T
    return upper[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(4, 3, 3)


def march(*, quick: bool) -> None:
    """Table: what is left of the filters after ten million outcomes of each kind, looked at every 10,000."""
    events, slices = (200_000, 10_000) if quick else (10_000_000, 10_000)
    rows = []
    for name, scores, outcomes in marches(events):
        cal, lowest, low, high, sound = Calibrator(AUTO), np.inf, 1.0, 0.0, True
        for i in range(0, events, slices):
            p = cal.run(scores[i : i + slices], outcomes[i : i + slices])
            low, high = min(low, p.min()), max(high, p.max())
            sound &= bool(np.isfinite(p).all() and np.isfinite(cal.row).all())
            lowest = min(lowest, np.linalg.eigvalsh(covariances(cal.row)).min())
        met = sound and lowest > 0.0 and low >= 0.0 and high <= 1.0
        rows.append(
            [
                name,
                f"{low:.1e}",
                f"{1.0 - high:.1e}",
                f"{lowest:.1e}",
                f"{np.abs(cal.row[layout.SLOPE : layout.VAR_A]).max():.1f}",
                f"{cal.row[layout.WEIGHT : layout.OPS_A].min():.1e}",
                table.verdict(met=met),
            ]
        )
    steps = events // 20
    row = adversary(steps)
    lowest = np.linalg.eigvalsh(covariances(row)).min()
    rows.append(
        [
            f"adversary, {steps:,}",
            "",
            "",
            f"{lowest:.1e}",
            f"{np.abs(row[layout.SLOPE : layout.VAR_A]).max():.1f}",
            f"{row[layout.WEIGHT : layout.OPS_A].min():.1e}",
            table.verdict(met=bool(np.isfinite(row).all() and lowest > 0.0)),
        ]
    )
    table.show(
        f"AUTO after {events:,} outcomes of each kind",
        ["stream", "least forecast", "1 - largest", "least eigenvalue of P", "largest |theta|", "least weight", ""],
        rows,
        [f"met: finite, in [0, 1], every P positive definite, looked at every {slices:,} outcomes."],
    )
