"""Where each number stands: in the row of a stream, and in the spec of a method.

A row is [t, n, parameters..., cells..., guard..., evidence]; `Method` fixes its width. A spec is the method as a
vector of float64, which is what the kernels read; each part fills in its own numbers (`Part.fill`).
"""

from __future__ import annotations

# ---- the row -----------------------------------------------------------------------------------------------------
T = 0  # forecasts made when the row last moved
N = 1  # outcomes learnt
THETA = 2  # where the learner's numbers start

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
SPEC_WIDTH = 27
