"""What a host of many streams keeps of each beside its state: counts, and sums of losses, behind the row."""

from __future__ import annotations

from calibeat._util.types import Vector

from .algebra import ln
from .subset import kernel

LOSS_FLOOR = 1e-5  # what was said of an outcome counts as at least this: a bin that has seen one outcome says just that


@kernel
def log_loss(p: float, y: float) -> float:
    """-log of the probability that p gave to y, which counts as at least `LOSS_FLOOR`."""
    p = p if y == 1.0 else 1.0 - p
    return -ln(max(LOSS_FLOOR, p))


EVENTS = 0  # forecasts made
LAST = 1  # the host's own count of events when the last of them was made
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = 2, 3, 4, 5  # sums over the outcomes learnt, of the scores and the forecasts
STATS = 6  # how many they are
LOSSES = {"raw_log_loss": RAW_LOG_LOSS, "log_loss": LOG_LOSS, "raw_brier": RAW_BRIER, "brier": BRIER}


@kernel
def add_losses(row: Vector, at: int, score: float, forecast: float, y: float) -> None:
    """Add what an outcome cost the score and the forecast; the stats stand in the row from `at` on."""
    row[at + RAW_LOG_LOSS] += log_loss(score, y)
    row[at + LOG_LOSS] += log_loss(forecast, y)
    row[at + RAW_BRIER] += (score - y) * (score - y)
    row[at + BRIER] += (forecast - y) * (forecast - y)


@kernel
def add_class_losses(row: Vector, at: int, score: Vector, forecast: Vector, y: int) -> None:
    """The same for K classes and the column of the label; the Brier score is summed over the classes."""
    row[at + RAW_LOG_LOSS] += log_loss(score[y], 1.0)
    row[at + LOG_LOSS] += log_loss(forecast[y], 1.0)
    raw = own = 0.0
    for k in range(len(score)):
        hit = 1.0 if k == y else 0.0
        raw += (score[k] - hit) * (score[k] - hit)
        own += (forecast[k] - hit) * (forecast[k] - hit)
    row[at + RAW_BRIER] += raw
    row[at + BRIER] += own
