"""Cold start: what `Bank(method, prior="pooled")` buys, on keys with few events and on a real stream by carrier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from calibeat import AUTO, OPS, TOPS, Bank, Calibrator, metrics

Floats = NDArray[np.float64]

CLIP = 1e-5


def synthetic(keys: int, each: int, spread: float) -> tuple[Any, Floats, Floats]:
    """Keys whose logit is a x + b, with a and b scattered around a common (0.6, -0.5); the score says sigmoid(x)."""
    rng = np.random.default_rng(1)
    names = rng.permutation(np.repeat(np.arange(keys), each))
    x = rng.normal(0.0, 1.5, len(names))
    a, b = rng.normal(0.6, 0.4 * spread, keys), rng.normal(-0.5, spread, keys)
    chance = 1.0 / (1.0 + np.exp(-(a[names] * x + b[names])))
    return names, 1.0 / (1.0 + np.exp(-x)), (rng.random(len(names)) < chance).astype(np.float64)


def flights(by: str) -> tuple[Any, Floats, Floats]:
    """The flights of the demo that arrived, in the order of departure, each outcome at once, with a column as keys."""
    from calibeat.examples import flights as stream
    from calibeat.examples import read_flights

    events, frame = stream(), read_flights()
    keys = frame.loc[frame["month"] != 1, by]
    known = events.labelled & keys.notna().to_numpy()
    return keys.to_numpy(dtype=object)[known], events.scores[known], events.outcomes[known]


def loss(outcomes: Floats, forecasts: Floats) -> float:
    """Log-loss with probabilities clipped as in a bank's own table."""
    return float(metrics.log_loss(outcomes, np.clip(forecasts, CLIP, 1.0 - CLIP)))


def early(keys: Any, first: int) -> NDArray[np.bool_]:
    """The first so many events of each key."""
    seen: dict[Any, int] = {}
    chosen = np.empty(len(keys), dtype=bool)
    for i, key in enumerate(keys.tolist()):
        seen[key] = seen.get(key, 0) + 1
        chosen[i] = seen[key] <= first
    return chosen


def cold_start(*, quick: bool) -> None:
    """Log-loss of each key alone, with the pooled start, and of one calibrator for all keys."""
    count = 10_000 if quick else 100_000
    streams = {
        f"{count:,} keys x 20, alike": (*synthetic(count, 20, 0.1), 20),
        f"{count:,} keys x 20, different": (*synthetic(count, 20, 0.7), 20),
        f"{count:,} keys x 20, very different": (*synthetic(count, 20, 1.5), 20),
        "flights by carrier": (*flights("carrier"), None),
        "flights by carrier, first 200 of each": (*flights("carrier"), 200),
        "flights by aircraft": (*flights("tailnum"), None),
        "flights by aircraft, first 20 of each": (*flights("tailnum"), 20),
    }
    lines = []
    for name, (keys, scores, outcomes, first) in streams.items():
        judged = np.ones(len(keys), dtype=bool) if first is None else early(keys, first)
        for label, method in (("OPS", OPS), ("TOPS", TOPS), ("AUTO", AUTO)):
            alone = Bank(method).run(keys, scores, outcomes)
            pooled = Bank(method, prior="pooled").run(keys, scores, outcomes)
            together = Calibrator(method).run(scores, outcomes)
            losses = [loss(outcomes[judged], said[judged]) for said in (scores, together, alone, pooled)]
            lines.append([name, label, *(f"{value:.4f}" for value in losses)])
    head = ["stream", "method", "raw", "one for all", "a key alone", "pooled start"]
    table.show(
        "prior: log-loss of young keys", head, lines, ["Lower is better; probabilities clipped to [1e-5, 1 - 1e-5]."]
    )
