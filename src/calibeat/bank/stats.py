"""Six numbers behind the state of each stream: what was forecast, when, and what it cost."""

from __future__ import annotations

import math

from calibeat._util.types import Vector
from calibeat.core.jit import kernel

EVENTS = 0  # forecasts made
LAST = 1  # the bank's own count of events when the last of them was made
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = 2, 3, 4, 5  # sums over the outcomes learnt, of the scores and the forecasts
STATS = 6  # how many they are

LOSSES = {"raw_log_loss": RAW_LOG_LOSS, "log_loss": LOG_LOSS, "raw_brier": RAW_BRIER, "brier": BRIER}


CLIP = 1e-5  # no logarithm sees a smaller probability: a bin that has seen one outcome says 0 or 1


@kernel
def log_loss(p: float, y: float) -> float:
    """-log of the probability that p gave to y; a probability below `CLIP` counts as `CLIP`."""
    p = p if y == 1.0 else 1.0 - p
    return -math.log(max(CLIP, p))


@kernel
def add_losses(row: Vector, at: int, score: float, forecast: float, y: float) -> None:
    """Add what outcome y cost the score and the forecast to the stats that start at row[at]."""
    row[at + RAW_LOG_LOSS] += log_loss(score, y)
    row[at + LOG_LOSS] += log_loss(forecast, y)
    row[at + RAW_BRIER] += (score - y) * (score - y)
    row[at + BRIER] += (forecast - y) * (forecast - y)
