"""The layout of a receipt: what an event of a mixture must remember from its forecast to its outcome.

Methods without `Lanes`, `Spline` and `Guard` need no receipt beside the score and the cell.
"""

from __future__ import annotations

from collections.abc import Sequence

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

_WIDTH_OF_0_1 = 12  # seen, clipped score, lanes, OPS, expert, splines, forecast, score


def adopted(receipt: Sequence[float]) -> tuple[float, ...]:
    """A receipt in today's layout, also if version 0.1 wrote it: nothing was said by a lane that did not exist.

    >>> adopted([0.0, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25, 0.22, 0.3, 0.31, 0.26, 0.19])[:3]
    (0.0, 0.19, 0.21)
    """
    if len(receipt) != _WIDTH_OF_0_1:
        return tuple(receipt)
    seen, _, *lanes, score = receipt
    return (seen, score, *lanes, 0.0, lanes[FORECAST - LANE])
