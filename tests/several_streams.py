"""Streams with the scores of several models: NaN where a score is missing. And the loop that a person would write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibeat import Calibrator, Forecast

Vector = NDArray[np.float64]
Due = NDArray[np.int64]


def sigmoid(x: Vector) -> Vector:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def holes(scores: Vector, share: float, seed: int = 0) -> Vector:
    """The scores with so many of them missing at random; one of each event stays."""
    rng = np.random.default_rng(seed)
    n, k = scores.shape
    gone = rng.random((n, k)) < share
    gone[np.arange(n), rng.integers(0, k, n)] &= ~gone.all(axis=1)
    return np.where(gone, np.nan, scores)


def coins(chances: Vector, seed: int = 0) -> Vector:
    return (np.random.default_rng(seed).random(len(chances)) < chances).astype(np.float64)


def halves(n: int, k: int = 2, seed: int = 0, missing: float = 0.0) -> tuple[Vector, Vector]:
    """Each model sees its own part of the truth; what they weigh drifts, and each is off in its own way."""
    rng = np.random.default_rng(seed)
    seen, at = rng.normal(size=(n, k)), np.arange(n)[:, None]
    weigh = 1.0 + 0.8 * np.sin(at / 150.0 + np.arange(k))
    outcomes = coins(sigmoid((weigh * seen).sum(axis=1) - 0.4), seed + 1)
    scores = sigmoid((1.0 + 0.5 * np.arange(k)) * seen + 0.3 * np.arange(k))
    return (holes(scores, missing, seed) if missing else scores), outcomes


def turns(n: int, k: int = 2, period: int = 60) -> tuple[Vector, Vector]:
    """One model after the other is right, and the others are wrong."""
    rng = np.random.default_rng(5)
    outcomes, block = (rng.random(n) < 0.5).astype(np.float64), np.arange(n) // period % k
    right = (block[:, None] == np.arange(k)) == (outcomes[:, None] == 1.0)
    return np.where(right, 0.9, 0.1) + rng.uniform(-0.05, 0.05, (n, k)), outcomes


def useless(n: int, k: int = 2) -> tuple[Vector, Vector]:
    """The best model turns into noise in the middle."""
    scores, outcomes = halves(n, k, seed=2)
    scores[n // 2 :, -1] = np.random.default_rng(3).random(n - n // 2)
    return scores, outcomes


def rotating(n: int, k: int = 2) -> tuple[Vector, Vector]:
    """Outcomes in long runs, whatever the scores: in resonance with the delay."""
    return np.random.default_rng(6).uniform(0.05, 0.95, (n, k)), (np.arange(n) // 80 % 2).astype(np.float64)


def equal(n: int, k: int = 2) -> tuple[Vector, Vector]:
    scores, outcomes = halves(n, k, seed=4)
    return np.repeat(scores[:, :1], k, axis=1), outcomes


def extreme(n: int, k: int = 2) -> tuple[Vector, Vector]:
    """Scores of exactly 0 and 1, and the outcome is a coin."""
    rng = np.random.default_rng(7)
    return rng.integers(0, 2, (n, k)).astype(np.float64), rng.integers(0, 2, n).astype(np.float64)


def sure(n: int, k: int = 2) -> tuple[Vector, Vector]:
    """Models that are sure and wrong, until the outcomes turn."""
    scores = np.random.default_rng(8).choice([1e-6, 0.01, 0.99, 1.0], (n, k))
    outcomes = (scores[:, 0] < 0.5).astype(np.float64)
    outcomes[n // 2 :] = 1.0 - outcomes[n // 2 :]
    return scores, outcomes


STREAMS: dict[str, Callable[[int, int], tuple[Vector, Vector]]] = {
    "halves": halves,
    "turns": turns,
    "useless": useless,
    "rotating": rotating,
    "equal": equal,
    "extreme": extreme,
    "sure": sure,
}


def given(scores: Any) -> list[float | None]:
    """An event as a person would give it."""
    return [None if np.isnan(score) else float(score) for score in scores]


def play(
    cal: Calibrator, scores: Vector, outcomes: Vector, due: Due | None = None
) -> tuple[list[Forecast], NDArray[np.int64]]:
    """Predict and update event by event, outcome i just before prediction due[i], or at once.

    -> the forecasts, and the events whose outcomes were learned, in their order.
    """
    n = len(scores)
    when = np.arange(n) + 1 if due is None else due
    order, arrived, issued = np.argsort(when, kind="stable"), 0, list[Forecast]()
    for i in range(n + 1):
        while arrived < n and when[order[arrived]] <= i and (due is None or i < n):
            cal.update(issued[order[arrived]], int(outcomes[order[arrived]]))
            arrived += 1
        if i < n:
            issued.append(cal.predict(given(scores[i])))
    return issued, order[:arrived]
