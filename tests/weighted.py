"""Streams whose outcomes have weights, or are counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Weighted(NamedTuple):
    """Scores, numbers of ones, weights and trials; NaN is one that never comes. Weights or trials may be None."""

    scores: Vector
    ones: Vector
    weights: Vector | None = None
    trials: Vector | None = None

    @property
    def shares(self) -> Vector:
        """The share of ones of each outcome."""
        return self.ones if self.trials is None else self.ones / np.maximum(self.trials, 1.0)

    def part(self, span: Any) -> Weighted:
        """Some of the events."""
        return Weighted(*(None if column is None else column[span] for column in self))  # type: ignore[arg-type]

    def weightless(self) -> Weighted:
        """The same, where an outcome that never comes is one of weight 0: to a row they are the same."""
        if not np.isnan(self.ones).any():
            return self
        weights = np.ones(len(self.ones)) if self.weights is None else self.weights
        return self._replace(ones=np.nan_to_num(self.ones), weights=np.where(np.isnan(self.ones), 0.0, weights))

    def how(self) -> dict[str, Any]:
        """The arguments of `run`."""
        named = {"weights": self.weights, "of": self.trials}
        return {name: column for name, column in named.items() if column is not None}

    def one(self, i: int) -> dict[str, Any]:
        """The arguments of `update`."""
        found: dict[str, Any] = {} if self.weights is None else {"weight": float(self.weights[i])}
        return found if self.trials is None else {**found, "of": int(self.trials[i])}


def world(n: int, seed: int = 0) -> tuple[Vector, Vector, Any]:
    """Scores, some of them 0 and 1, the probabilities of ones, and chance."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.0, 1.5, n)
    scores = 1.0 / (1.0 + np.exp(-x))
    scores[::97], scores[5::211] = 0.0, 1.0
    drift = 0.8 * np.sin(np.arange(n) / 300.0)
    return scores, 1.0 / (1.0 + np.exp(0.4 - 0.7 * x - drift)), rng


def thinned(n: int, seed: int = 0, keep: int = 20) -> Weighted:
    """All ones, and one zero in `keep`, which stands for so many."""
    scores, p, rng = world(n, seed)
    outcomes = (rng.random(n) < p).astype(float)
    outcomes[(outcomes == 0.0) & (rng.random(n) >= 1.0 / keep)] = np.nan
    return Weighted(scores, outcomes, np.where(outcomes == 0.0, float(keep), 1.0))


def heavy(n: int, seed: int = 0, sigma: float = 2.0, zeros: float = 0.05) -> Weighted:
    """Weights that are drawn, some of them 0."""
    scores, p, rng = world(n, seed)
    weights = np.exp(rng.normal(0.0, sigma, n))
    weights[rng.random(n) < zeros] = 0.0
    return Weighted(scores, (rng.random(n) < p).astype(float), weights)


def counted(n: int, seed: int = 0, most: int = 60) -> Weighted:
    """Rows of many trials, and of one, and of none."""
    scores, p, rng = world(n, seed)
    trials = rng.integers(0, most + 1, n)
    trials[rng.random(n) < 0.3] = 1
    return Weighted(scores, rng.binomial(trials, p).astype(float), None, trials.astype(float))


def both(n: int, seed: int = 0) -> Weighted:
    """Counts with weights."""
    found = counted(n, seed, 5)
    weights = np.exp(np.random.default_rng(seed + 1).normal(0.0, 1.0, n))
    return found._replace(weights=weights)


def first_later(n: int, seed: int = 0) -> Weighted:
    """Weights that begin in the middle of a stream without any."""
    found = heavy(n, seed, 1.0)
    assert found.weights is not None
    found.weights[: n // 2] = 1.0
    return found


STREAMS = {"thinned": thinned, "heavy": heavy, "counted": counted, "both": both, "first later": first_later}


def delays(n: int, mean: float = 40.0, seed: int = 7) -> Any:
    """When outcomes arrive, in any order."""
    return np.arange(n) + 1 + np.random.default_rng(seed).geometric(1.0 / mean, n)


def one_by_one(host: Any, stream: Weighted, due: Any = None, begin: int = 0, end: int | None = None) -> Vector:
    """The forecasts of `predict`, and `update` in the order of `due`; what is due at the end or later never comes."""
    n = len(stream.scores) if end is None else end
    made = np.empty(n - begin)
    waiting: dict[int, Any] = {}
    order = [] if due is None else sorted(range(begin, n), key=lambda i: (due[i], i))
    next_one = 0
    for i in range(begin, n):
        while next_one < len(order) and due[order[next_one]] <= i:
            settle(host, stream, order[next_one], waiting.pop(order[next_one]))
            next_one += 1
        waiting[i] = host.predict(float(stream.scores[i]))
        made[i - begin] = waiting[i].probability
        if due is None:
            settle(host, stream, i, waiting.pop(i))
    return made


def settle(host: Any, stream: Weighted, i: int, forecast: Any) -> None:
    """Learn the outcome of an event, if one comes."""
    if not np.isnan(stream.ones[i]):
        assert host.update(forecast, int(stream.ones[i]), **stream.one(i)) == "learnt"
