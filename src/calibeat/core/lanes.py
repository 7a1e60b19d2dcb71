"""The kernels of `Lanes`: four Kalman lanes, the raw score, the paper's OPS and the horizon lane, and their weights."""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .algebra import sigmoid
from .horizon import (
    MOST_LANE_LOGIT,
    MOST_SCORE_LOGIT,
    bounded,
    horizon_says,
    horizon_step,
    issued_logit,
    note_lag,
    wake,
)
from .jit import compilable, large_kernel
from .layout import (
    BEND,
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_WEIGHT,
    OFFSET,
    OPS_A,
    OPS_B,
    SLOPE,
    STALENESS,
    TEMPER,
    VAR_A,
    VAR_B,
    VAR_C,
    WEIGHT,
)
from .learners import ons_step
from .receipt import EXPERT, HORIZON_LANE, LANE, PAPER_LANE, SCORE, SEEN
from .weights import EPS, LAZY, SHARE, clipped, flatten, inside, likelihood, power, squashed, staleness

LN4 = math.log(4.0)  # so that the bend is zero at a score of one half
MOST_CLIP = 0.002  # of the features: below the score whose logit is -6, or the next line would make a score more sure
X_ATOM = 6.0  # a score at the clip, however extreme, enters the Kalman lanes as if its logit were 6
G_ATOM = LN4 - 6.0 - 2.0 * math.log(1.0 + math.exp(-6.0))

PRIOR_AC, PRIOR_B = 0.25, 1.0  # prior variances of slope and bend, and of the offset
SLOW, FAST, LEVEL = 1e-4, 1e-3, 1e-2  # drift per event, in units of the prior variance
# A variance of four times its prior receives no more drift, or a direction never seen would grow for ever.
CAP_AC, CAP_B = 4.0 * PRIOR_AC, 4.0 * PRIOR_B
STEP = 2.0  # no outcome moves a lane's own logit by more
ONS_GAIN, ONS_RHO, ONS_RADIUS = 10.0, 100.0, 100.0  # the paper's 1/gamma, rho and R
BLEND = 0.3  # of the way from a pool's variances, which are too small for one stream, to those of a new stream


# ---- forecast ----------------------------------------------------------------------------------------------------


@compilable
def lane_features(clip: float, f: float, x0: float, x1: float) -> tuple[float, float]:
    """(x, g) of the Kalman lanes."""
    if f <= clip:
        return -X_ATOM, G_ATOM
    if f >= 1.0 - clip:
        return X_ATOM, G_ATOM
    return x0 - x1, x0 + x1 + LN4


@compilable
def lane_logits(row: Vector, x: float, g: float, logit: float) -> tuple[float, float, float, float, float]:
    """The logits of the five lanes that learn: four Kalman lanes and the paper's OPS."""
    z0 = row[SLOPE] * x + row[BEND] * g + row[OFFSET]
    z1 = row[SLOPE + 1] * x + row[BEND + 1] * g + row[OFFSET + 1]
    z2 = row[SLOPE + 2] * x + row[BEND + 2] * g + row[OFFSET + 2]
    z3 = row[SLOPE + 3] * x + row[BEND + 3] * g + row[OFFSET + 3]
    return z0, z1, z2, z3, row[OPS_A] * logit + row[OPS_B]


@compilable
def mix(row: Vector, clip: float, x0: float, x1: float, horizon: int, receipt: Vector, at: int) -> float:
    """The expert, for a receipt that holds the score; what each lane says is put in the receipt."""
    f = clipped(receipt[at + SCORE], clip)
    x, g = lane_features(clip, f, x0, x1)
    z0, z1, z2, z3, o = lane_logits(row, x, g, x0 - x1)
    receipt[at + LANE] = e0 = squashed(z0)
    receipt[at + LANE + 1] = e1 = squashed(z1)
    receipt[at + LANE + 2] = e2 = squashed(z2)
    receipt[at + LANE + 3] = e3 = squashed(z3)
    receipt[at + PAPER_LANE] = paper = squashed(o)
    w = WEIGHT
    m = row[w] * e0 + row[w + 1] * e1 + row[w + 2] * e2 + row[w + 3] * e3 + row[w + 4] * f + row[w + 5] * paper
    receipt[at + HORIZON_LANE] = 0.0
    if horizon > 0 and row[horizon + HORIZON_WEIGHT] > 0.0:
        most = MOST_LANE_LOGIT
        z0, z1, z2, z3 = bounded(z0, most), bounded(z1, most), bounded(z2, most), bounded(z3, most)
        h = horizon_says(row, horizon, bounded(x0 - x1, MOST_SCORE_LOGIT), bounded(o, most), z0, z1, z2, z3)
        receipt[at + HORIZON_LANE] = h
        m += row[horizon + HORIZON_WEIGHT] * h
    return inside(m)


# ---- learning ----------------------------------------------------------------------------------------------------


@large_kernel  # and what it calls is inlined into it: a call that is not inlined passes two arrays, some 20 ns
def lanes_step(
    row: Vector, clip: float, x0: float, x1: float, n: float, y: float, horizon: int, receipt: Vector, at: int
) -> None:
    """Learn y, the n-th outcome: the weights judge what was issued, the lanes move from where they are now."""
    f = clipped(receipt[at + SCORE], clip)
    x, g = lane_features(clip, f, x0, x1)
    lag = n - 1.0 - receipt[at + SEEN]
    e0, e1, e2, e3 = receipt[at + LANE], receipt[at + LANE + 1], receipt[at + LANE + 2], receipt[at + LANE + 3]
    paper = receipt[at + PAPER_LANE]
    note_lag(row, n, lag)
    if lag == 0.0 and row[TEMPER] == 1.0 and (horizon == 0 or row[horizon + HORIZON_WEIGHT] == 0.0):
        weigh_lanes(row, n, y, f, e0, e1, e2, e3, paper)
    else:
        late_step(row, f, x0, x1, n, lag, y, horizon, receipt, at)
    if lag > 0.0:  # else nothing has moved, and what was issued is what they say now
        z0, z1, z2, z3, o = lane_logits(row, x, g, x0 - x1)
        e0, e1, e2, e3, paper = squashed(z0), squashed(z1), squashed(z2), squashed(z3), squashed(o)
    kalman(row, 0, x, g, e0, y, 0.0, 0.0)
    kalman(row, 1, x, g, e1, y, SLOW * PRIOR_AC, SLOW * PRIOR_B)
    kalman(row, 2, x, g, e2, y, FAST * PRIOR_AC, FAST * PRIOR_B)
    kalman(row, 3, x, g, e3, y, 0.0, LEVEL * PRIOR_B)
    paper_step(row, x0 - x1, paper, y)


@compilable
def weigh_lanes(
    row: Vector, n: float, y: float, f: float, e0: float, e1: float, e2: float, e3: float, paper: float
) -> None:
    """w_k <- (1 - alpha) w_k L_k / sum + alpha/6: six lanes, none of whose outcomes was ever late."""
    w = WEIGHT
    u0, u1, u2 = row[w] * likelihood(e0, y), row[w + 1] * likelihood(e1, y), row[w + 2] * likelihood(e2, y)
    u3, u4, u5 = row[w + 3] * likelihood(e3, y), row[w + 4] * likelihood(f, y), row[w + 5] * likelihood(paper, y)
    alpha = SHARE / n
    keep, gift = (1.0 - alpha) / (u0 + u1 + u2 + u3 + u4 + u5), alpha / 6.0
    row[w] = keep * u0 + gift
    row[w + 1] = keep * u1 + gift
    row[w + 2] = keep * u2 + gift
    row[w + 3] = keep * u3 + gift
    row[w + 4] = keep * u4 + gift
    row[w + 5] = keep * u5 + gift


@compilable
def late_step(
    row: Vector, f: float, x0: float, x1: float, n: float, lag: float, y: float, horizon: int, receipt: Vector, at: int
) -> None:
    """The weights, and the horizon lane, of a stream that has had late outcomes (`weights` has the formulas)."""
    e0, e1, e2, e3 = receipt[at + LANE], receipt[at + LANE + 1], receipt[at + LANE + 2], receipt[at + LANE + 3]
    paper, h = receipt[at + PAPER_LANE], receipt[at + HORIZON_LANE]
    w6, l6, parts, last = 0.0, 1.0, 6.0, 0
    x = o = z0 = z1 = z2 = z3 = 0.0
    if horizon > 0:
        last = horizon + HORIZON_WEIGHT
        if row[last] == 0.0:  # this outcome is the first late one
            wake(row, horizon)
        x, o = bounded(x0 - x1, MOST_SCORE_LOGIT), issued_logit(paper)
        z0, z1, z2, z3 = issued_logit(e0), issued_logit(e1), issued_logit(e2), issued_logit(e3)
        if h == 0.0:  # it was asleep: what it would have said at its prior, the mean logit of the six lanes
            h = squashed((x + o + z0 + z1 + z2 + z3) / 6.0)
        w6, l6, parts = row[last], likelihood(h, y), 7.0
    l0, l1, l2, l3 = likelihood(e0, y), likelihood(e1, y), likelihood(e2, y), likelihood(e3, y)
    l4, l5 = likelihood(f, y), likelihood(paper, y)
    w0, w1, w2 = row[WEIGHT], row[WEIGHT + 1], row[WEIGHT + 2]
    w3, w4, w5 = row[WEIGHT + 3], row[WEIGHT + 4], row[WEIGHT + 5]
    stale, temper = 0.0, row[TEMPER]
    if lag > 0.0:
        fresh = w0 * l0 + w1 * l1 + w2 * l2 + w3 * l3 + w4 * l4 + w5 * l5 + w6 * l6
        stale = staleness(fresh, likelihood(receipt[at + EXPERT], y))
    if temper != 1.0:
        s = 1.0 / temper
        l0, l1, l2, l3 = power(l0, s), power(l1, s), power(l2, s), power(l3, s)
        l4, l5, l6 = math.exp(s * (x0 if y == 1.0 else x1)), power(l5, s), power(l6, s)
    w0, w1, w2, w3, w4, w5, w6 = w0 * l0, w1 * l1, w2 * l2, w3 * l3, w4 * l4, w5 * l5, w6 * l6
    alpha = SHARE / n
    keep, gift = (1.0 - alpha) / (w0 + w1 + w2 + w3 + w4 + w5 + w6), alpha / parts
    row[WEIGHT], row[WEIGHT + 1], row[WEIGHT + 2] = keep * w0 + gift, keep * w1 + gift, keep * w2 + gift
    row[WEIGHT + 3], row[WEIGHT + 4], row[WEIGHT + 5] = keep * w3 + gift, keep * w4 + gift, keep * w5 + gift
    if last > 0:
        row[last] = keep * w6 + gift
    row[STALENESS] += stale
    if 1.0 + row[STALENESS] > LAZY * temper:
        flatten(row, WEIGHT, 6, last, TEMPER, 1.0 / parts)
    if last > 0:
        horizon_step(row, horizon, y, x, o, z0, z1, z2, z3)


@compilable
def kalman(row: Vector, k: int, x: float, g: float, e: float, y: float, drift_ac: float, drift_b: float) -> None:
    """One outcome for lane k, which says e: without branches, so that the four lanes can go together as vectors."""
    aa, ac, ab = row[VAR_A + k], row[COV_AC + k], row[COV_AB + k]
    cc, cb, bb = row[VAR_C + k], row[COV_CB + k], row[VAR_B + k]
    ka = aa * x + ac * g + ab
    kc = ac * x + cc * g + cb
    kb = ab * x + cb * g + bb
    var = ka * x + kc * g + kb
    var = max(0.0, var)
    h = e * (1.0 - e)
    d = 1.0 / (1.0 + h * var)
    step = (y - e) * d
    # if |step var| > STEP: step *= STEP / |step var|
    move = abs(step * var)
    step *= STEP / (max(STEP, move))
    row[SLOPE + k] += ka * step
    row[BEND + k] += kc * step
    row[OFFSET + k] += kb * step
    d *= h
    da, dc = d * ka, d * kc
    aa -= da * ka
    cc -= dc * kc
    bb -= d * kb * kb
    row[VAR_A + k] = aa + drift_ac if aa < CAP_AC else aa
    row[COV_AC + k] = ac - da * kc
    row[COV_AB + k] = ab - da * kb
    row[VAR_C + k] = cc + drift_ac if cc < CAP_AC else cc
    row[COV_CB + k] = cb - dc * kb
    row[VAR_B + k] = bb + drift_b if bb < CAP_B else bb


@compilable
def paper_step(row: Vector, x: float, o: float, y: float) -> None:
    """The paper's step on (x, 1) with its hyper-parameters; o is what this lane says now."""
    if o <= EPS or o >= 1.0 - EPS:  # the gradient is that of the lane itself, unclipped
        o = sigmoid(row[OPS_A] * x + row[OPS_B])
    ons_step(row, OPS_A, 2.0, x, 1.0, 0.0, o - y, ONS_GAIN, ONS_RADIUS)


@compilable
def lanes_start(pool: Vector, row: Vector) -> None:
    """A new stream starts at the pool's parameters with variances between the pool's and its own; weights as new.

    So is its horizon lane: a pool learns every outcome at once.
    """
    for i in range(SLOPE, VAR_A):
        row[i] = pool[i]
    for i in range(VAR_A, WEIGHT):
        row[i] = pool[i] + BLEND * (row[i] - pool[i])
    row[OPS_A], row[OPS_B] = pool[OPS_A], pool[OPS_B]
