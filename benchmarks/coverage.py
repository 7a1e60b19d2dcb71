"""How often the 95 % intervals of a backtest hold the truth, and how often a verdict takes a slow regime for a gain.

The printed interval is for the difference in expectation on this log's events. The block bootstrap, which is a check
and never printed as the interval, is for the difference that very long logs have.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

import calibeat
from calibeat.backtest.judge.intervals import LOG_LOSS, Bootstrap, Intervals
from calibeat.backtest.replay.tally import Blocks, Counted, Tally

from .table import show

Vector = NDArray[np.float64]


def coverage(*, quick: bool) -> None:
    """Both tables; --quick has fewer logs."""
    logs = 20 if quick else 100
    rows = [
        [f"{n:,}", f"{rho:g}", *(f"{share:.0%}" for share in _covered(n, rho, logs))]
        for n in (1000, 30_000)
        for rho in (0.0, 0.9, 0.99, 0.999)
    ]
    show(
        f"Coverage of 95 % intervals of a difference in log-loss, {logs} logs each",
        ["events", "rho", "this log", "elsewhere"],
        rows,
        ["rho: correlation of the hidden state of one event with that of the next."],
    )
    rows = []
    for n, rho in ((3000, 0.999), (10_000, 0.9995)):
        found = Counter(_verdict(n, rho, seed) for seed in range(logs))
        rows.append([f"{n:,}", f"{rho:g}", *(str(found[key]) for key in ("sure", "likely", "raw"))])
    show(
        f"Verdicts on FPS where the raw score is right in the long run, {logs} logs each",
        ["events", "rho", "use FPS, sure", "use FPS, likely", "keep raw"],
        rows,
    )


def _wave(rng: np.random.Generator, n: int, rho: float) -> Vector:
    """An autoregression of first order with a variance of one, from its stationary start."""
    z, now = np.empty(n), float(rng.normal())
    for i, step in enumerate((rng.normal(size=n) * np.sqrt(1.0 - rho * rho)).tolist()):
        now = rho * now + step
        z[i] = now
    return z


def _log(rng: np.random.Generator, n: int, rho: float) -> tuple[Vector, Vector, Vector, Vector]:
    """Two fixed forecasts, the chances of the outcomes, which depend on a hidden state, and the outcomes."""
    base = rng.normal(size=n)
    mu = 1.0 / (1.0 + np.exp(-(base + _wave(rng, n, rho))))
    y = (rng.random(n) < mu).astype(float)
    return 1.0 / (1.0 + np.exp(-base)), 1.0 / (1.0 + np.exp(-(0.8 * base + 0.3))), mu, y


def _expected(p: Vector, q: Vector, mu: Vector) -> float:
    """The mean difference in log-loss of q and p in expectation."""
    return float(np.mean(mu * np.log(p / q) + (1.0 - mu) * np.log((1.0 - p) / (1.0 - q))))


def _covered(n: int, rho: float, logs: int) -> tuple[float, float]:
    """The share of logs whose interval holds its difference: on these events, and that of very long logs."""
    rng = np.random.default_rng(9)
    # The hidden state is normal whatever rho is: events far apart are as good as a long log.
    p, q, mu, _ = _log(rng, 4_000_000, 0.0)
    truth = _expected(p, q, mu)
    here = elsewhere = 0
    for _ in range(logs):
        p, q, mu, y = _log(rng, n, rho)
        sums = Intervals(2)
        sums.add(np.array([p, q]), y)
        _, low, high = sums.difference(LOG_LOSS, 1)
        here += low <= _expected(p, q, mu) <= high
        blocks, mine, other = Blocks(0), Tally(10), Tally(10)
        place = blocks.place(np.ones(n, dtype=bool), None, [mine, other])
        mine.count(Counted.of(q, y, place, np.zeros(n)))
        other.count(Counted.of(p, y, place, np.zeros(n)))
        _, low, high = Bootstrap({"p": other, "q": mine}, blocks.used, blocks.length).difference("q", "p", "log_loss")
        elsewhere += low <= truth <= high
    return here / logs, elsewhere / logs


def _verdict(n: int, rho: float, seed: int) -> str:
    """A score that is right in the long run, and for long stretches is not."""
    rng = np.random.default_rng(seed)
    hidden, base = _wave(rng, n, rho), rng.normal(size=n)
    scores = 1.0 / (1.0 + np.exp(-1.702 * base / np.sqrt(1.25)))  # the normal distribution function, within 0.01
    said = calibeat.backtest(scores, base + 0.5 * hidden + rng.normal(size=n) > 0, methods="fps").payload["verdict"]
    return "raw" if said["method"] == "raw" else said["confidence"]
