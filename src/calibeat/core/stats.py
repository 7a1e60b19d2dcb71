"""What a host of many streams keeps of each beside its state: counts, and sums of losses, behind the row."""

from __future__ import annotations

from calibeat._util.types import Vector

from .algebra import ln
from .subset import kernel, large_kernel
from .weights import Outcome, is_nothing

LOSS_FLOOR = 1e-5  # what was said of an outcome counts as at least this: a bin that has seen one outcome says just that


@kernel
def log_loss(p: float, y: float) -> float:
    """-log of the probability that p gave to y, which counts as at least `LOSS_FLOOR`."""
    p = p if y == 1.0 else 1.0 - p
    return -ln(max(LOSS_FLOOR, p))


EVENTS = 0  # forecasts made
LAST = 1  # the host's own count of events when the last of them was made
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = 2, 3, 4, 5  # sums over the outcomes learnt, of the scores and the forecasts
WEIGHTS = 6  # the sum of weights: of the events behind these outcomes
STATS = 7  # how many they are
LOSSES = {"raw_log_loss": RAW_LOG_LOSS, "log_loss": LOG_LOSS, "raw_brier": RAW_BRIER, "brier": BRIER}


@kernel
def add_losses(row: Vector, at: int, odds: float, score: float, forecast: float, outcome: Outcome) -> None:
    """Add what an outcome cost the score and the forecast; the stats stand in the row from `at` on.

    Where the odds of the log are so many times larger than the true ones, each zero stands for as many events more.
    """
    y = outcome.y
    if outcome.weight == 1.0 and outcome.trials == 1.0 and odds == 1.0:
        row[at + RAW_LOG_LOSS] += log_loss(score, y)
        row[at + LOG_LOSS] += log_loss(forecast, y)
        row[at + RAW_BRIER] += (score - y) * (score - y)
        row[at + BRIER] += (forecast - y) * (forecast - y)
        row[at + WEIGHTS] += 1.0
    elif not is_nothing(outcome):
        add_weighted_losses(row, at, odds, score, forecast, outcome)


@large_kernel
def add_weighted_losses(row: Vector, at: int, odds: float, score: float, forecast: float, outcome: Outcome) -> None:
    """The same of events that are not one of weight 1: ones and zeros each by their weight."""
    weight = outcome.weight * outcome.trials
    one, zero = weight * outcome.y, weight * (1.0 - outcome.y) * odds
    row[at + RAW_LOG_LOSS] += one * log_loss(score, 1.0) + zero * log_loss(score, 0.0)
    row[at + LOG_LOSS] += one * log_loss(forecast, 1.0) + zero * log_loss(forecast, 0.0)
    row[at + RAW_BRIER] += one * (score - 1.0) * (score - 1.0) + zero * score * score
    row[at + BRIER] += one * (forecast - 1.0) * (forecast - 1.0) + zero * forecast * forecast
    row[at + WEIGHTS] += one + zero


@kernel
def add_class_losses(row: Vector, at: int, score: Vector, forecast: Vector, outcome: Outcome) -> None:
    """The same for K classes and the column of the label; the Brier score is summed over the classes."""
    y, weight = int(outcome.y), outcome.weight
    row[at + RAW_LOG_LOSS] += weight * log_loss(score[y], 1.0)
    row[at + LOG_LOSS] += weight * log_loss(forecast[y], 1.0)
    raw = own = 0.0
    for k in range(len(score)):
        hit = 1.0 if k == y else 0.0
        raw += (score[k] - hit) * (score[k] - hit)
        own += (forecast[k] - hit) * (forecast[k] - hit)
    row[at + RAW_BRIER] += weight * raw
    row[at + BRIER] += weight * own
    row[at + WEIGHTS] += weight
