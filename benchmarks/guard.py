"""The guard: its bounds beside HOPS's, what it costs on benign streams, and games against opponents.

Benign: streams that the benchmark makes (a too sure model, a drift of the base rate, jumps, rare events), and the
development streams where they lie beside the repository. Opponents see everything but the draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks import development, table
from benchmarks.quality import Vector
from benchmarks.stream import CLIP, Stream
from benchmarks.timing import Maker, interleaved
from calibeat import AUTO, F99, GAUTO, GOPS, GTOPS, HOPS, OPS, TOPS, Calibrator, Guard, Method, bounds, metrics

METHODS: dict[str, Method] = {
    "OPS": OPS,
    "AUTO": AUTO,
    "TOPS": TOPS,
    "HOPS": HOPS,
    "F99": F99,
    "GOPS": GOPS,
    "GTOPS": GTOPS,
    "GAUTO": GAUTO,
    "GAUTO c=2": replace(AUTO, guard=Guard(slack=2.0)),
}
WARM_UP = 1000
SEEDS = (0, 1, 2)


def numbers() -> None:
    """The table of bounds in docs/guard.md."""
    rows = []
    for T in (10**3, 10**4, 10**5, 10**6):
        eps = bounds.best_epsilon(T)
        calibration = [
            bounds.guard_calibration(T),
            bounds.guard_calibration(T, brier=0.25),
            bounds.guard_calibration(T, brier=0.15),
            bounds.guard_calibration(T, slack=0.0),
            bounds.guard_calibration(T, slack=2.0),
            bounds.guard_calibration(T, bins=50),
        ]
        hops = f"{bounds.hops_calibration(0.1, T):.3f} ({bounds.hops_calibration(eps, T):.3f})"
        excess = [f"{bounds.guard_log_loss(T):.1f}", f"{bounds.guard_brier(T):.1f}"]
        sharpness = f"{bounds.guard_sharpness(0.1, T):.3f}, {bounds.hops_sharpness(0.1, T):.3f}"
        rows.append([f"{T:,}", hops, *[f"{value:.4f}" for value in calibration], *excess, sharpness])
    head = [
        "T",
        "HOPS CE (best m)",
        "any",
        "Brier .25",
        ".15",
        "c=0",
        "c=2",
        "m=50",
        "log-loss",
        "Brier",
        "SHP G, HOPS",
    ]
    table.show("Bounds of the guard, m = 10, c = 1", head, rows)


def made() -> list[development.Named]:
    """Streams with a known truth: what the model says, and a world that is not so, or moves."""
    found = []
    for seed in SEEDS:
        for name, n in (("sure", 10_000), ("drift", 10_000), ("jumps", 10_000), ("rare", 10_000)):
            rng = np.random.default_rng((seed, len(name)))
            logits, t = rng.normal(-3.0 if name == "rare" else 0.0, 1.5, n), np.arange(n)
            truth = {
                "sure": 0.5 * logits,
                "drift": logits + 1.5 * np.sin(t / 1500),
                "jumps": logits + np.where(t // 2000 % 2, 1.0, -1.0),
                "rare": 0.8 * logits - 0.3,
            }[name]
            outcomes = (rng.random(n) < 1.0 / (1.0 + np.exp(-truth))).astype(np.float64)
            scores = np.clip(1.0 / (1.0 + np.exp(-logits)), CLIP, 1.0 - CLIP)
            found.append(development.Named(name, Stream(scores, outcomes, logits)))
    return found


def benign(*, quick: bool) -> None:
    """Log-loss, Brier, CE (times 1000), means over streams, with the share of forecasts that the guard moved."""
    groups = {"made here": made()}
    if development.STREAMS.exists():
        groups["development streams"] = development.read(SEEDS[:1], 20_000) if quick else development.read(SEEDS, 10**9)
    for title, found in groups.items():
        rows = []
        for name, method in METHODS.items():
            measures = []
            for named in found:
                p = Calibrator(method, seed=0).run(named.stream.scores, named.stream.outcomes)[named.warm_up :]
                y = named.stream.outcomes[named.warm_up :]
                loss = metrics.log_loss(y, p, clip=CLIP)
                measures.append(
                    [1000.0 * v for v in (loss, metrics.brier_score(y, p), metrics.calibration_error(y, p))]
                )
            rows.append([name, *[f"{value:.2f}" for value in np.mean(measures, axis=0)]])
        table.show(f"Benign, {title}: {len(found)} streams", ["method", "log-loss", "Brier", "CE"], rows)


Play = Callable[[int, Sequence[tuple[float, float]], dict[int, float]], int]


def _greedy(measure: Callable[[float], float]) -> Play:
    """The outcome that makes the calibration error larger, one step ahead, on average over the draw."""

    def play(_: int, candidates: Sequence[tuple[float, float]], sums: dict[int, float]) -> int:
        gains = []
        for y in (0, 1):
            gain = 0.0
            for point, probability in candidates:
                s = sums.get(min(9, int(10.0 * point)), 0.0)
                gain += probability * (measure(s + y - point) - measure(s))
            gains.append(gain)
        return int(gains[1] > gains[0])

    return play


def _mean(candidates: Sequence[tuple[float, float]]) -> float:
    return sum(point * probability for point, probability in candidates)


OPPONENTS: dict[str, Play] = {
    "y = 1{E q <= .5}": lambda _, c, __: int(_mean(c) <= 0.5),
    "greedy, sum |S|": _greedy(abs),
    "greedy, sum S^2": _greedy(lambda s: s * s),
    "y = 1{E q <= .5 + .4 sin(t/200)}": lambda t, c, _: int(_mean(c) <= 0.5 + 0.4 * math.sin(t / 200)),
    "rate jumps .1/.9 every 200": lambda t, _, __: int((0.618034 * t) % 1.0 < (0.1 if t // 200 % 2 else 0.9)),
}


def opponents(*, quick: bool) -> None:
    """Calibration error after 1,000 and 10,000 events against somebody who chooses the outcomes."""
    lengths = (1000,) if quick else (1000, 10_000)
    names = ("OPS", "AUTO", "TOPS", "HOPS", "F99", "GOPS", "GTOPS", "GAUTO", "GAUTO c=2")
    rows = []
    for opponent, play in OPPONENTS.items():
        row = [opponent]
        for name in names:
            cal, sums = Calibrator(METHODS[name], seed=1), dict[int, float]()
            errors = []
            for t in range(max(lengths)):
                forecast = cal.predict(0.5)
                y = play(t, forecast.candidates, sums)
                cal.update(forecast, y)
                b = min(9, int(10.0 * forecast.probability))
                sums[b] = sums.get(b, 0.0) + y - forecast.probability
                if t + 1 in lengths:
                    errors.append(sum(map(abs, sums.values())) / (t + 1))
            row.append(" ".join(f"{error:.3f}" for error in errors))
        rows.append(row)
    table.show(f"Calibration error against opponents, {lengths} events, score .5", ["opponent", *names], rows)


def cost(*, quick: bool) -> None:
    """Nanoseconds per event of `run`, with and without a guard."""
    n = 100_000 if quick else 1_000_000
    rng = np.random.default_rng(0)
    scores = rng.random(n)
    outcomes = (rng.random(n) < 0.3 + 0.4 * scores).astype(np.float64)
    rows = []
    for name, guarded, plain in (("OPS", GOPS, OPS), ("TOPS", GTOPS, TOPS), ("AUTO", GAUTO, AUTO)):
        turns = {kind: _run(method, scores, outcomes) for kind, method in (("plain", plain), ("guarded", guarded))}
        seconds = list(interleaved(turns, 5).values())
        ns = [table.nanoseconds(s, n) for s in seconds]
        rows.append([name, *ns, table.nanoseconds(seconds[1] - seconds[0], n), str(guarded.width - plain.width)])
    table.show("Cost of the guard", ["over", "ns/event", "guarded", "added", "numbers in the row"], rows)


def _run(method: Method, scores: Vector, outcomes: Vector) -> Maker:
    return lambda: partial(Calibrator(method, seed=0).run, scores, outcomes)


def guard(*, quick: bool) -> None:
    """All four tables."""
    numbers()
    benign(quick=quick)
    opponents(quick=quick)
    cost(quick=quick)
