"""A forecast is a number, or K of them, and a receipt: what an event must remember until its outcome comes.

`Forecast` and `MultiForecast` are what users hold. The constants are the layout of `Forecast.lanes`, as the kernels
write it; methods without `Lanes`, `Spline` and `Guard` leave it empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._compiled import Forecast
from calibeat._util.types import Vector

SEEN = 0  # outcomes learnt when the forecast was made
SCORE = 1  # as it came
LANE = 2  # what the four Kalman lanes said: LANE, ..., LANE + 3
PAPER_LANE = 6  # what the paper's OPS said
EXPERT = 7  # the expert, inside [EPS, 1 - EPS]
SCORE_SPLINE, EXPERT_SPLINE = 8, 9  # what the spline on the score and the spline on the expert said
FORECAST = 10
HORIZON_LANE = 11  # what the horizon lane said, 0 while it was asleep
RECEIPT_WIDTH = 12

# A guard puts two more behind them, or only these two where nothing mixes.
GUARDED, ISSUED = 0, 1  # the forecast that it was given, clipped, and what it said
GUARD_RECEIPT_WIDTH = 2
MOST_RECEIPT = RECEIPT_WIDTH + GUARD_RECEIPT_WIDTH

FORMAT = 2  # the version of receipts, as JSON and as bytes
# What a receipt has beside its lanes: two candidates with their weights; or low, high, outcomes and the reason.
HEDGED, BANDED = 2, 4


# ---- what monitors read ------------------------------------------------------------------------------------------


def watched_columns(K: int, forecasts: Vector, outcomes: Vector, scores: Vector) -> tuple[Vector, Vector, Vector]:
    """What monitors read of a batch: forecasts, outcomes and scores; of many classes those of the class named.

    Of several models the forecast stands for the score.

    That is the class with the largest probability: its probability, whether it came, and its score.
    """
    if K == 1:
        return forecasts, outcomes, scores
    matrix = forecasts.reshape(-1, K)
    named, rows = matrix.argmax(axis=1), np.arange(len(matrix))
    hits = np.where(np.isnan(outcomes), np.nan, named == outcomes)
    return matrix[rows, named], hits, scores.reshape(-1, K)[rows, named]


def receipt_of(forecast: Any) -> Any:
    """What the host knows of a forecast: of two classes the receipt of AUTO, which serves them."""
    return getattr(forecast, "binary", None) or forecast


def watched_event(forecast: Any, y: float) -> tuple[float, float, float]:
    """What monitors read of one event: its forecast, its outcome and its score; see `watched_columns`."""
    if isinstance(forecast, Forecast):
        return forecast.probability, y, forecast.watched_score
    named = forecast.column
    return forecast.confidence, float(y == named), float(forecast.score[named])
