"""Where each number stands: in the row of a stream, and in the spec of a method.

A row is [t, n, parameters..., cells..., guard..., evidence, tail]; `Method` fixes its width. A spec is the method as a
vector of float64, which is what the kernels read; each part fills in its own numbers (`Part.fill`).
"""

from __future__ import annotations

# ---- the row -----------------------------------------------------------------------------------------------------
T = 0  # forecasts made when the row last moved
N = 1  # outcomes learnt
THETA = 2  # where the learner's numbers start

# ---- a row with `Lanes`, lane-minor so that each field of the four Kalman lanes is one vector -----------------------
SLOPE, BEND, OFFSET = THETA, THETA + 4, THETA + 8
VAR_A, COV_AC, COV_AB = THETA + 12, THETA + 16, THETA + 20
VAR_C, COV_CB, VAR_B = THETA + 24, THETA + 28, THETA + 32
WEIGHT = THETA + 36  # of the Kalman lanes, of the raw score, of the paper's OPS
OPS_A, OPS_B, OPS_MATRIX = THETA + 42, THETA + 43, THETA + 44  # as `ons_step` lays them
STALENESS, TEMPER = THETA + 47, THETA + 48  # nats that stale weights have cost; the temper in force
MEAN_LAG = THETA + 49  # of the last 1000 outcomes, in outcomes

# The horizon lane is the end of the row, where it is in nobody's way while no outcome is late. From spec[HORIZON] on:
HORIZON_WEIGHT = 0  # 0 while no outcome was ever late
HORIZON_THETA = 1  # 7 numbers
HORIZON_COVARIANCE = 8  # 28 numbers, the upper triangle by rows
HORIZON_WIDTH = 36

# ---- the spec ----------------------------------------------------------------------------------------------------
FEATURES, D, SCORE_CLIP, HISTOGRAM_BINS = 0, 1, 2, 3
LEARNER = 4
GAIN, BALL = 5, 6  # ONS: 1/gamma, R.  OGD: D/G, R.  AIOLI: 1/(1 + B R_x).  Refits: R
AFTER, EVERY, WINDOW = 7, 8, 9  # refits: T_cal, W (0 = once), window (0 = all)
CALIBEATER, BINS, GROUPS, PRIOR, OWN, CELLS = 10, 11, 12, 13, 14, 15  # OWN: hedging tries the expert's bin first
CONTROL = 16  # of the spline
RECEIPT, EVIDENCE = 17, 18  # the width of a receipt (0: none is needed), where the evidence stands in the row
MIXES, DRAWS = 19, 20  # whether the receipt is that of a mixture; whether forecasts may be drawn
GUARD, GUARD_CELLS, SLACK, SPRING, STRICT = 21, 22, 23, 24, 25  # where the guard stands in the row (0: there is none)
GUARD_RECEIPT = 26  # where its two numbers stand in the receipt
HORIZON = 27  # where the horizon lane begins in the row, 0 if there is none
SPEC_WIDTH = 28
