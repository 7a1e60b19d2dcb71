"""Where each number stands: in the row of a stream, and in the spec of a method.

A row is [t, n, weights, parameters..., cells..., guard..., evidence, tail]; `Method` fixes its width. A spec is the
method as a struct of named numbers, which is what the kernels read.
"""

from __future__ import annotations

from typing import NamedTuple

# ---- the row -----------------------------------------------------------------------------------------------------
T = 0  # forecasts made when the row last moved
N = 1  # outcomes learnt
# Of the weights of outcomes (see `weights`). While each outcome was one event of weight 1, `TOTAL` is 0.
SUM, SUM_SQUARED = 2, 3  # sums of w v and w^2 v over this block of outcomes
SUM_BEFORE, SUM_SQUARED_BEFORE = 4, 5  # over the block before
TOTAL, SQUARES = 6, 7  # sums of w and w^2 over all events
CLIPPED = 8  # outcomes whose weight was clipped
WEIGHT_SUMS = 7  # how many numbers they are
THETA = 9  # where the learner's numbers start

# ---- a row with `Lanes`, lane-minor so that each field of the four Kalman lanes is one vector -----------------------
SLOPE, BEND, OFFSET = THETA, THETA + 4, THETA + 8
VAR_A, COV_AC, COV_AB = THETA + 12, THETA + 16, THETA + 20
VAR_C, COV_CB, VAR_B = THETA + 24, THETA + 28, THETA + 32
WEIGHT = THETA + 36  # of the Kalman lanes, of the raw score, of the paper's OPS
OPS_A, OPS_B, OPS_MATRIX = THETA + 42, THETA + 43, THETA + 44  # as `ons_step` lays them
STALENESS, TEMPER = THETA + 47, THETA + 48  # nats that stale weights have cost; the temper in force
MEAN_LAG = THETA + 49  # of the last 1000 outcomes, in outcomes

# The horizon lane is the end of the row, where it is in nobody's way while no outcome is late. From `Spec.horizon` on:
HORIZON_WEIGHT = 0  # 0 while no outcome was ever late
HORIZON_THETA = 1  # 7 numbers
HORIZON_COVARIANCE = 8  # 28 numbers, the upper triangle by rows
HORIZON_WIDTH = 36

# ---- the spec ----------------------------------------------------------------------------------------------------


class Spec(NamedTuple):
    """A method as the kernels read it. Each part says its own numbers (`Part.numbers`); 0 where a part is not there."""

    features: int = 0
    d: int = 0  # parameters
    clip: float = 0.0  # of the score
    odds: float = 1.0  # how many times larger the odds are in the log than in truth, where it kept more of the ones
    histogram_bins: int = 0
    learner: int = 0
    gain: float = 0.0  # ONS: 1/gamma.  OGD: D/G.  AIOLI: 1/(1 + B R_x)
    radius: float = 0.0  # of the ball: R
    after: float = 0.0  # of a learner that fits again: how many outcomes before its first fit
    calibeater: int = 0
    bins: float = 10.0  # without a calibeater too: `Forecast.bin` speaks of tenths
    groups: float = 0.0  # bins of the expert, for hedging
    prior: float = 0.0
    own: bool = False  # whether hedging tries the expert's bin first
    cells: int = 0  # where the calibeater stands in the row
    receipt: int = 0  # the width of a receipt; 0: none is needed
    evidence: int = 0  # where the evidence stands in the row
    mixes: bool = False  # whether the receipt is that of a mixture
    draws: bool = False  # whether forecasts may be drawn
    guard: int = 0  # where the guard stands in the row; 0: there is none
    guard_bins: float = 0.0
    slack: float = 0.0
    spring: float = 0.0
    guard_receipt: int = 0  # where its two numbers stand in the receipt
    horizon: int = 0  # where the horizon lane begins in the row; 0: there is none
    classes: int = 0  # K; 0: two classes, and a score is one number
    vector: int = 0  # of K classes: which method (`vector.CODES`)
    models: int = 0  # how many scores an event has, one of each model (`several`); 0: one
    band: int = 0  # where the record of the band begins, behind the rest of the row; 0: there is none
