"""Many classes: what `MultiCalibrator.run` costs beside C, single events, and bad streams."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import floor, table
from benchmarks.timing import always, interleaved
from calibeat import MultiBank, MultiCalibrator
from calibeat.core import vector
from calibeat.core.vector import VectorMethod
from calibeat.core.weights import Outcome

GOALS = {3: 8.0, 10: 7.0, 26: None, 64: None, 100: 6.0, 1000: 6.0}  # times the softmax in C
C_GOAL = 1.6  # times MULTI in C
WORK = 2_000_000  # classes times events in a turn

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]
Stream = tuple[Vector, Ints]


def stream(K: int, events: int, seed: int = 0) -> tuple[Vector, Ints]:
    """Over-confident scores: the truth is their square root, normalised."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 2.0, (events, K))
    truth = np.exp(0.5 * logits)
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (rng.random(events)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    scores = np.exp(logits)
    return scores / scores.sum(axis=1, keepdims=True), labels.astype(np.int64)


def plain_softmax(scores: Vector, labels: Ints) -> Vector:
    """What one would write by hand, in C: softmax(a ln score), and one online Newton step on a."""
    events, K = scores.shape
    forecasts, x = np.empty((events, K)), np.empty(K)
    sizes, told = (ctypes.c_int64(events), ctypes.c_int64(K)), labels.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
    floor.library(()).softmax(*sizes, floor.address(scores), told, floor.address(x), floor.address(forecasts))
    return forecasts


def cost(*, quick: bool) -> None:
    """Table: ns per event of the softmax in C and of `run`, immediate and 100 labels late."""
    repeats = 3 if quick else 9
    rows = []
    for K, goal in GOALS.items():
        events = max(300, (WORK // 10 if quick else WORK) // (K + 10))
        scores, labels = stream(K, events)
        due = np.arange(events) + 100
        sides = {
            "C": always(plain_softmax, scores, labels),
            "run": always(lambda K, s, y: MultiCalibrator(K).run(s, y), K, scores, labels),
            "late": always(lambda K, s, y, d: MultiCalibrator(K).run(s, y, due=d), K, scores, labels, due),
        }
        floor.library(())  # compiled before anybody's clock runs
        best = interleaved(sides, repeats)
        ratio = best["run"] / best["C"]
        rows.append(
            [
                str(K),
                *(f"{1e9 * best[name] / events:.0f}" for name in ("C", "run")),
                f"{ratio:.1f}",
                "" if goal is None else f"{goal:.0f}",
                "" if goal is None else table.verdict(met=ratio <= goal),
                f"{1e9 * best['late'] / events:.0f}",
                str(VectorMethod("multi", K).width),
            ]
        )
    table.show(
        "MULTI beside a softmax in C with one online Newton step",
        ["K", "C ns", "run ns", "times", "goal", "", "100 late ns", "numbers a stream"],
        rows,
        [f"CPU time per event, best of {repeats} interleaved; `run` includes the checks of the scores."],
    )


def in_c(scores: Vector, labels: Ints, flags: tuple[str, ...]) -> Vector:
    """MULTI by multi_floor.c."""
    (events, K), forecasts = scores.shape, np.empty(scores.shape)
    sizes, told = (ctypes.c_int64(events), ctypes.c_int64(K)), labels.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
    loop = floor.library(flags, "multi_floor.c").multi
    if loop(*sizes, floor.address(scores), told, floor.address(forecasts)) != 0:
        raise MemoryError
    return forecasts


def against_c(*, quick: bool) -> None:
    """Table: `run` beside MULTI in C, labels at once."""
    repeats = 5 if quick else 15
    rows = []
    for K in (3, 10, 64, 100):
        events = (WORK // 10 if quick else WORK) // (K + 10)
        scores, labels = stream(K, events)
        sides = {"run": always(lambda K, s, y: MultiCalibrator(K).run(s, y), K, scores, labels)}
        sides |= {name: always(in_c, scores, labels, flags) for name, flags in floor.FLAGS.items()}
        difference = np.abs(MultiCalibrator(K).run(scores, labels) - in_c(scores, labels, ())).max()
        in_c(scores, labels, ("-march=native",))  # compiled before anybody's clock runs
        best = interleaved(sides, repeats)
        c, native = (best["run"] / best[name] for name in floor.FLAGS)
        numbers = [f"{1e9 * best[name] / events:.0f}" for name in sides]
        ratios = [f"{c:.2f}", f"{native:.2f}", f"{C_GOAL:g}", table.verdict(met=c <= C_GOAL)]
        rows.append([str(K), *numbers, *ratios, f"{difference:.0e}"])
    table.show(
        "MULTI beside the same arithmetic in C, labels at once",
        ["K", "run ns", "C -O3", "C native", "of C", "of native", "goal", "", "largest difference"],
        rows,
        [f"CPU time per event, best of {repeats} interleaved; `run` includes the checks of the scores."],
    )


# ---- stress ------------------------------------------------------------------------------------------------------

PIECE = 50_000  # events that are made and run at a time


def stresses(K: int, events: int) -> dict[str, Callable[[int], Stream]]:
    """Streams that nobody should have: a function gives the events from its argument on, `PIECE` of them."""
    one = np.eye(K)

    def coins(first: int) -> Ints:
        return np.random.default_rng([1, first]).integers(0, K, PIECE)

    def numbers(first: int) -> Ints:
        return np.arange(first, first + PIECE)

    uniform = np.full((PIECE, K), 1.0 / K)
    zeros, ones = np.zeros(PIECE, dtype=np.int64), np.ones(PIECE, dtype=np.int64)
    return {
        "one-hot, coins": lambda first: (one[np.random.default_rng([2, first]).integers(0, K, PIECE)], coins(first)),
        "uniform, coins": lambda first: (uniform, coins(first)),
        "constant, then another label": lambda first: (uniform, (numbers(first) >= events // 2).astype(np.int64)),
        "sure and always wrong": lambda _: (one[zeros], ones),
        "rotating, off by one": lambda first: (one[numbers(first) % K], (numbers(first) + 1) % K),
    }


def stressed(K: int, events: int, make: Callable[[int], Stream], *, late: bool = False) -> tuple[Vector, float, float]:
    """The row at the end, the largest loss, and how far a sum of forecasts was off 1."""
    calibrator, worst, off = MultiCalibrator(K), 0.0, 0.0
    due = np.arange(PIECE) + np.random.default_rng(3).integers(1, 2000, PIECE) if late else None
    for first in range(0, events, PIECE):
        scores, labels = make(first)
        P = calibrator.run(scores, labels, due=due, finish=late)
        worst = max(worst, -float(np.log(P[np.arange(PIECE), labels].min())))
        off = max(off, float(np.abs(P.sum(axis=1) - 1.0).max()))
    return calibrator.row, worst, off


def adversary(K: int, events: int) -> tuple[Vector, float, float]:
    """The same where the label is always the least probable class."""
    method, work = VectorMethod("multi", K), vector.scratch(K)
    row, receipt, forecast, worst, off = method.initial_row(), np.zeros(method.receipt_width), np.empty(K), 0.0, 0.0
    scores = stream(K, PIECE, seed=1)[0]
    for i in range(events):
        vector.predict(*method.code, row, scores[i % PIECE], receipt, work, forecast)
        y = int(forecast.argmin())
        worst, off = max(worst, -math.log(forecast[y])), max(off, abs(float(forecast.sum()) - 1.0))
        vector.settle(*method.code, row, i + 1.0, Outcome(float(y), 1.0, 1.0), receipt, work, forecast)
    return row[:-2], worst, off


def stress(*, quick: bool) -> None:
    """Table: what is left after a million labels of each kind."""
    events, rows = PIECE if quick else 1_000_000, []
    for K in (3, 10):
        for name, make in stresses(K, events).items():
            rows.append(_line(f"K = {K}, {name}", K, events, stressed(K, events, make)))
        late = stresses(K, events)["one-hot, coins"]
        rows.append(_line(f"K = {K}, one-hot, coins, late", K, events, stressed(K, events, late, late=True)))
        rows.append(_line(f"K = {K}, adversary", K, events, adversary(K, events)))
    table.show(
        f"MULTI after {events:,} labels of each kind",
        ["stream", "largest loss", "least eigenvalue of H", "largest |theta|", "largest |bias|", "least weight n", ""],
        rows,
        ["met: finite, positive definite, sums of forecasts 1 within 1e-12. Late: by up to 2,000 events, reordered."],
    )


def _line(name: str, K: int, events: int, found: tuple[Vector, float, float]) -> list[str]:
    row, worst, off = found
    lanes = row[vector.THETA : vector.OFFSET].reshape(4, vector.THETA_WIDTH)
    H = lanes[:, [3, 4, 5, 4, 6, 7, 5, 7, 8]].reshape(4, 3, 3)
    biases = row[vector.BIAS : vector.BIAS + 8 * K].reshape(4, 2, K)[:, 0]
    least = float(np.linalg.eigvalsh(H).min())
    met = bool(np.isfinite(row).all() and np.isfinite(worst) and least > 0.0 and off <= 1e-12)
    return [
        name,
        f"{worst:.1f}",
        f"{least:.2f}",
        f"{np.abs(lanes[:, :3]).max():.1f}",
        f"{np.abs(biases).max():.1f}",
        f"{row[vector.W : vector.W + 6].min() * events:.3f}",
        table.verdict(met=met),
    ]


# ---- single events -----------------------------------------------------------------------------------------------


class _InBank:
    """A bank of one key in the shape of a calibrator."""

    def __init__(self, K: int) -> None:
        self.bank = MultiBank(K)

    def predict(self, score: Vector) -> Any:
        return self.bank.predict(7, score)

    def update(self, forecast: Any, label: int) -> None:
        self.bank.update(7, forecast, label)


def _serving(make: Callable[[int], Any], scores: Vector, labels: Ints) -> Callable[[], Callable[[], None]]:
    def begin() -> Callable[[], None]:
        calibrator = make(scores.shape[1])

        def serve() -> None:
            for score, label in zip(scores, labels.tolist(), strict=True):
                calibrator.update(calibrator.predict(score), label)

        return serve

    return begin


def single(*, quick: bool) -> None:
    """Table: microseconds of a forecast and an update from Python, one event at a time."""
    repeats, rows = 3 if quick else 7, []
    makers: dict[str, Callable[[int], Any]] = {"calibrator": MultiCalibrator, "bank": _InBank}
    for K in (3, 10, 100):
        scores, labels = stream(K, 200_000 // (K + 100))
        best = interleaved({name: _serving(make, scores, labels) for name, make in makers.items()}, repeats)
        rows.append([str(K), *(f"{1e6 * best[name] / len(labels):.1f}" for name in makers)])
    table.show(
        "One event of many classes from Python: predict and update, in microseconds",
        ["K", "MultiCalibrator", "in a MultiBank"],
        rows,
        [f"CPU time, best of {repeats} interleaved."],
    )
