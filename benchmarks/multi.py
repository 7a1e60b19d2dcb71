"""Many classes: what `MultiCalibrator.run` costs beside a plain compiled softmax, and a long march over bad streams."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.timing import always, interleaved
from calibeat import MultiCalibrator
from calibeat.core.jit import compiled
from calibeat.multi import kernel, layout

GOALS = {3: 8.0, 10: 7.0, 26: None, 64: None, 100: 6.0, 1000: 6.0}  # times the plain softmax
WORK = 2_000_000  # classes times events in a turn

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]


def stream(K: int, events: int, seed: int = 0) -> tuple[Vector, Ints]:
    """Over-confident scores: the truth is their square root, normalised."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 2.0, (events, K))
    truth = np.exp(0.5 * logits)
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (rng.random(events)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    scores = np.exp(logits)
    return scores / scores.sum(axis=1, keepdims=True), labels.astype(np.int64)


@cache
def plain_softmax() -> Any:
    """What one would write by hand: softmax(a ln score), and one online Newton step on a."""
    import numba

    @numba.njit(error_model="numpy")
    def run(scores: Vector, labels: Ints) -> Vector:
        events, K = scores.shape
        forecasts, x = np.empty((events, K)), np.empty(K)
        a, information = 1.0, 100.0
        for i in range(events):
            top = -1e300
            for k in range(K):
                x[k] = math.log(max(scores[i, k], 1e-7))
                top = max(top, a * x[k])
            total = 0.0
            for k in range(K):
                forecasts[i, k] = math.exp(a * x[k] - top)
                total += forecasts[i, k]
            g = -x[labels[i]]
            for k in range(K):
                forecasts[i, k] /= total
                g += forecasts[i, k] * x[k]
            information += g * g
            a = min(max(a - 10.0 * g / information, -100.0), 100.0)
        return forecasts

    return run


def cost(*, quick: bool) -> None:
    """Table: ns per event of the plain softmax and of `run`, immediate and 100 labels late."""
    repeats = 3 if quick else 9
    rows = []
    for K, goal in GOALS.items():
        events = max(300, (WORK // 10 if quick else WORK) // (K + 10))
        scores, labels = stream(K, events)
        due = np.arange(events) + 100
        sides = {
            "plain": always(plain_softmax(), scores, labels),
            "run": always(lambda K, s, y: MultiCalibrator(K).run(s, y), K, scores, labels),
            "late": always(lambda K, s, y, d: MultiCalibrator(K).run(s, y, due=d), K, scores, labels, due),
        }
        for make in sides.values():
            make()()  # compiled before anybody's clock runs
        best = interleaved(sides, repeats)
        ratio = best["run"] / best["plain"]
        rows.append(
            [
                str(K),
                *(f"{1e9 * best[name] / events:.0f}" for name in ("plain", "run")),
                f"{ratio:.1f}",
                "" if goal is None else f"{goal:.0f}",
                "" if goal is None else table.verdict(met=ratio <= goal),
                f"{1e9 * best['late'] / events:.0f}",
                str(layout.width(layout.MULTI, K)),
            ]
        )
    table.show(
        "MULTI beside a plain compiled softmax with one online Newton step",
        ["K", "plain ns", "run ns", "times", "goal", "", "100 late ns", "numbers a stream"],
        rows,
        [f"CPU time per event, best of {repeats} interleaved; `run` includes the checks of the scores."],
    )


# ---- the long march ----------------------------------------------------------------------------------------------


def marches(K: int, events: int) -> Iterator[tuple[str, Vector, Ints]]:
    """Streams that nobody should have."""
    rng = np.random.default_rng(0)
    at, coins, one = rng.integers(0, K, events), rng.integers(0, K, events), np.eye(K)
    yield "one-hot, coins", one[at], coins
    yield "uniform", np.full((events, K), 1.0 / K), coins
    yield "constant, then another label", np.full((events, K), 1.0 / K), (np.arange(events) >= events // 2).astype(int)
    yield "sure and always wrong", one[np.zeros(events, dtype=int)], np.ones(events, dtype=np.int64)
    yield "rotating, off by one", one[np.arange(events) % K], (np.arange(events) + 1) % K


def adversary(K: int, events: int) -> tuple[Vector, float, float]:
    """A row after labels that were always the least probable class, the largest loss, and how far a sum was off."""
    predict, settle = compiled(kernel.predict), compiled(kernel.settle)
    row, receipt, work = layout.initial_row(layout.MULTI, K), np.zeros(2 * K + 2), layout.scratch(K)
    forecast, worst, off = np.empty(K), 0.0, 0.0
    for score in stream(K, events, seed=1)[0]:
        predict(layout.MULTI, K, row, score, receipt, work, forecast)
        y = int(forecast.argmin())
        worst, off = max(worst, -math.log(forecast[y])), max(off, abs(float(forecast.sum()) - 1.0))
        settle(layout.MULTI, K, row, y, receipt, work, float(forecast[y]))
    return row, worst, off


def march(*, quick: bool) -> None:
    """Table: what is left after a million labels of each kind."""
    rows = []
    for K, events in ((3, 20_000), (10, 6_000)) if quick else ((3, 1_000_000), (10, 300_000)):
        for name, scores, labels in marches(K, events):
            cal = MultiCalibrator(K)
            P = cal.run(scores, labels)
            off = np.abs(P.sum(axis=1) - 1.0).max()
            loss = -float(np.log(P[np.arange(events), labels].min()))
            rows.append(_line(f"K = {K}, {name}", cal.row, events, loss, sums=bool(off <= 1e-12)))
        row, worst, off = adversary(K, events)
        rows.append(_line(f"K = {K}, adversary", row[:-2], events, worst, sums=off <= 1e-12))
    table.show(
        "MULTI after a million labels of each kind (300,000 for K = 10)",
        ["stream", "largest loss", "least eigenvalue of H", "largest |theta|", "largest |bias|", "least weight n", ""],
        rows,
        ["met: finite, positive definite, sums of forecasts 1 within 1e-12."],
    )


def _line(name: str, row: Vector, events: int, loss: float, *, sums: bool) -> list[str]:
    K = next(K for K in (3, 10) if layout.width(layout.MULTI, K) == len(row))
    lanes = row[layout.THETA : layout.OFFSET].reshape(4, layout.THETA_WIDTH)
    H = lanes[:, [3, 4, 5, 4, 6, 7, 5, 7, 8]].reshape(4, 3, 3)
    biases = row[layout.BIAS : layout.BIAS + 8 * K].reshape(4, 2, K)[:, 0]
    least = float(np.linalg.eigvalsh(H).min())
    met = bool(np.isfinite(row).all() and least > 0.0 and sums)
    return [
        name,
        f"{loss:.1f}",
        f"{least:.2f}",
        f"{np.abs(lanes[:, :3]).max():.1f}",
        f"{np.abs(biases).max():.1f}",
        f"{row[layout.W : layout.W + 6].min() * events:.3f}",
        table.verdict(met=met),
    ]
