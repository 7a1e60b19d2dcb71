"""The horizon lane: a logistic regression of the late outcome on what the lanes had said when the forecast was made.

phi = (1, x, o, l_0, ..., l_3): one, the logit of the score, and the logits that the paper's OPS and the four Kalman
lanes issued. A receipt holds exactly this, and the outcome comes with it. So the lane learns how far what was said
then can be trusted for what happens now: direct forecasting over the delay. It is a Kalman filter like the other lanes.
The later outcomes are on average, the slower it moves. It sleeps, with weight 0, until the first late outcome comes.
"""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .jit import compilable
from .layout import HORIZON_COVARIANCE, HORIZON_THETA, HORIZON_WEIGHT, MEAN_LAG, WEIGHT
from .weights import squashed

HORIZON_PRIOR = 0.3  # variance of each of its seven parameters
HORIZON_DRIFT = 1e-4 * HORIZON_PRIOR  # of each variance per outcome, at a mean lag of 0
HORIZON_CAP = 4.0 * HORIZON_PRIOR  # a variance beyond it receives no more drift
HORIZON_STEP = 2.0  # no outcome moves its logit by more
HALF_TRUST = 30.0  # the mean lag at which an outcome counts half
DELAY_MEMORY = 1000.0  # outcomes that the mean lag looks back on
MOST_SCORE_LOGIT, MOST_LANE_LOGIT = 6.0, 8.0  # beyond these, logits count as these
SIZE = 7


def horizon_initial() -> list[float]:
    """Weight 0, theta = (0, 1/6, ..., 1/6): the mean logit of the six lanes; covariance 0.3 I."""
    covariance = [HORIZON_PRIOR if i == j else 0.0 for i in range(SIZE) for j in range(i, SIZE)]
    return [0.0, 0.0, *[1.0 / 6.0] * 6, *covariance]


@compilable
def bounded(z: float, most: float) -> float:
    """z clipped to [-most, most]."""
    z = min(most, z)
    return max(-most, z)


@compilable
def issued_logit(p: float) -> float:
    """The logit of what a lane said, as the horizon lane looks at it."""
    return bounded(math.log(p / (1.0 - p)), MOST_LANE_LOGIT)


@compilable
def horizon_says(row: Vector, lane: int, x: float, o: float, l0: float, l1: float, l2: float, l3: float) -> float:
    """sigmoid(theta . phi), with the theta of now; the lane begins at row[lane]."""
    t = lane + HORIZON_THETA
    return squashed(
        row[t] + row[t + 1] * x + row[t + 2] * o + row[t + 3] * l0 + row[t + 4] * l1 + row[t + 5] * l2 + row[t + 6] * l3
    )


@compilable
def note_lag(row: Vector, n: float, lag: float) -> None:
    """The mean lag: exactly 0 while no outcome was ever late."""
    if lag > 0.0 or row[MEAN_LAG] > 0.0:
        row[MEAN_LAG] += (lag - row[MEAN_LAG]) / (min(DELAY_MEMORY, n))


@compilable
def wake(row: Vector, lane: int) -> None:
    """The horizon lane takes a seventh of the weights."""
    for k in range(WEIGHT, WEIGHT + 6):
        row[k] *= 6.0 / 7.0
    row[lane + HORIZON_WEIGHT] = 1.0 / 7.0


@compilable
def dot(
    row: Vector,
    i0: int,
    i1: int,
    i2: int,
    i3: int,
    i4: int,
    i5: int,
    i6: int,
    x: float,
    o: float,
    l0: float,
    l1: float,
    l2: float,
    l3: float,
) -> float:
    """One line of the covariance times phi, its numbers by their places in the row."""
    return row[i0] + row[i1] * x + row[i2] * o + row[i3] * l0 + row[i4] * l1 + row[i5] * l2 + row[i6] * l3  # phi_0 is 1


@compilable
def horizon_step(
    row: Vector, lane: int, y: float, x: float, o: float, l0: float, l1: float, l2: float, l3: float
) -> None:
    """One outcome; K = P phi;  d = 1/(1 + h var);  theta += eta (y - e) d K;  P -= h d K K';  P_ii += drift."""
    e = horizon_says(row, lane, x, o, l0, l1, l2, l3)
    p0 = lane + HORIZON_COVARIANCE  # where the lines of the triangle begin
    p1, p2, p3, p4, p5, p6 = p0 + 7, p0 + 13, p0 + 18, p0 + 22, p0 + 25, p0 + 27
    eta = 1.0 / (
        1.0 + row[MEAN_LAG] / HALF_TRUST
    )  # the same for all outcomes: an outcome's own lag may tell what it is
    k0 = dot(row, p0, p0 + 1, p0 + 2, p0 + 3, p0 + 4, p0 + 5, p0 + 6, x, o, l0, l1, l2, l3)
    k1 = dot(row, p0 + 1, p1, p1 + 1, p1 + 2, p1 + 3, p1 + 4, p1 + 5, x, o, l0, l1, l2, l3)
    k2 = dot(row, p0 + 2, p1 + 1, p2, p2 + 1, p2 + 2, p2 + 3, p2 + 4, x, o, l0, l1, l2, l3)
    k3 = dot(row, p0 + 3, p1 + 2, p2 + 1, p3, p3 + 1, p3 + 2, p3 + 3, x, o, l0, l1, l2, l3)
    k4 = dot(row, p0 + 4, p1 + 3, p2 + 2, p3 + 1, p4, p4 + 1, p4 + 2, x, o, l0, l1, l2, l3)
    k5 = dot(row, p0 + 5, p1 + 4, p2 + 3, p3 + 2, p4 + 1, p5, p5 + 1, x, o, l0, l1, l2, l3)
    k6 = dot(row, p0 + 6, p1 + 5, p2 + 4, p3 + 3, p4 + 2, p5 + 1, p6, x, o, l0, l1, l2, l3)
    var = k0 + x * k1 + o * k2 + l0 * k3 + l1 * k4 + l2 * k5 + l3 * k6
    var = max(0.0, var)
    h = eta * e * (1.0 - e)
    d = 1.0 / (1.0 + h * var)
    step = eta * (y - e) * d
    # if |step var| > STEP: step *= STEP / |step var|
    move = abs(step * var)
    step *= HORIZON_STEP / (max(HORIZON_STEP, move))
    t = lane + HORIZON_THETA
    row[t] += k0 * step
    row[t + 1] += k1 * step
    row[t + 2] += k2 * step
    row[t + 3] += k3 * step
    row[t + 4] += k4 * step
    row[t + 5] += k5 * step
    row[t + 6] += k6 * step
    d *= h
    drift = eta * HORIZON_DRIFT
    narrow(row, p0, 7, drift, d * k0, k0, k1, k2, k3, k4, k5, k6)
    narrow(row, p1, 6, drift, d * k1, k1, k2, k3, k4, k5, k6, 0.0)
    narrow(row, p2, 5, drift, d * k2, k2, k3, k4, k5, k6, 0.0, 0.0)
    narrow(row, p3, 4, drift, d * k3, k3, k4, k5, k6, 0.0, 0.0, 0.0)
    narrow(row, p4, 3, drift, d * k4, k4, k5, k6, 0.0, 0.0, 0.0, 0.0)
    narrow(row, p5, 2, drift, d * k5, k5, k6, 0.0, 0.0, 0.0, 0.0, 0.0)
    narrow(row, p6, 1, drift, d * k6, k6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@compilable
def narrow(
    row: Vector,
    at: int,
    size: int,
    drift: float,
    dk: float,
    a: float,
    b: float,
    c: float,
    d: float,
    e: float,
    f: float,
    g: float,
) -> None:
    """One line of the triangle, `size` numbers from `at` on: P_ij -= d K_i K_j, and drift on the diagonal."""
    variance = row[at] - dk * a
    row[at] = variance + drift if variance < HORIZON_CAP else variance
    if size > 1:
        row[at + 1] -= dk * b
    if size > 2:
        row[at + 2] -= dk * c
    if size > 3:
        row[at + 3] -= dk * d
    if size > 4:
        row[at + 4] -= dk * e
    if size > 5:
        row[at + 5] -= dk * f
    if size > 6:
        row[at + 6] -= dk * g
