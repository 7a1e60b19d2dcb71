"""The layout of a receipt: what an event of a mixture must remember from its forecast to its outcome.

Methods without `Lanes`, `Spline` and `Guard` need no receipt beside the score and the cell.
"""

from __future__ import annotations

SEEN = 0  # outcomes learnt when the forecast was made
SCORE = 1  # as it came
LANE = 2  # what the four Kalman lanes said: LANE, ..., LANE + 3
PAPER_LANE = 6  # what the paper's OPS said
EXPERT = 7  # the expert, inside [EPS, 1 - EPS]
SCORE_SPLINE, EXPERT_SPLINE = 8, 9  # what the spline on the score and the spline on the expert said
FORECAST = 10
HORIZON_LANE = 11  # what the horizon lane said, 0 while it was asleep
UNCONTROLLED = 12  # the forecast before residual control
RECEIPT_WIDTH = 13

# A guard puts two more behind them, or only these two where nothing mixes.
GUARDED, ISSUED = 0, 1  # the forecast that it was given, clipped, and what it said (of a strict guard: before rounding)
GUARD_RECEIPT_WIDTH = 2
