"""The log-loss that books and tallies keep: no single event costs more than 11.5 nats."""

from __future__ import annotations

import math

from .jit import compilable

LOSS_FLOOR = 1e-5  # what was said of an outcome counts as at least this: a bin that has seen one outcome says just that


@compilable
def log_loss(p: float, y: float) -> float:
    """-log of the probability that p gave to y, which counts as at least `LOSS_FLOOR`."""
    p = p if y == 1.0 else 1.0 - p
    return -math.log(max(LOSS_FLOOR, p))
