"""AUTO's learner: forecasters at different speeds of drift, side by side, weighted by how well each has forecast.

Nobody knows beforehand how fast a stream will drift. `Lanes` runs a learner for each answer and lets the outcomes
choose. In a row, from `THETA` on (`layout`): 36 numbers of the Kalman lanes, 6 weights, theta and A of the paper's ONS,
and three numbers about late outcomes; at the end of the row, 36 numbers of the horizon lane.

**Weights.** With outcomes at once, after the n-th of them::

    w_k <- (1 - alpha) w_k L_k / sum + alpha w0,    alpha = 0.5/n, w0 = 1 / how many they are

A late outcome judges what was issued. Weights that follow such judgements chase the past. What that has cost so far is
the staleness G: the sum of ``log(sum w_k L_k / L of the issued mixture)``, at the weights of now, where it is positive.
Likelihoods are tempered by it: ``L_k^(1/T)``. When 1 + G exceeds T by a tenth, the weights are flattened and T = 1 + G.

An outcome that is worth omega events (`weights`) counts omega times: ``L_k^(omega/T)``. One with omega > T is a lump:
the mixture is judged once and the lanes omega times, and what that can cost is added to G.

**The horizon lane** is a logistic regression of the late outcome on what the lanes had said when the forecast was made.
phi = (1, x, o, l_0, ..., l_3): one, the logit of the score, and the logits that the paper's OPS and the four Kalman
lanes issued. A receipt holds exactly this, and the outcome comes with it. So the lane learns how far what was said
then can be trusted for what happens now: direct forecasting over the delay. It is a Kalman filter like the other lanes.
The later outcomes are on average, the slower it moves. It sleeps, with weight 0, until the first late outcome comes.

**Beginners.** What stands behind the lanes learns what they leave open: the splines, and the cells of groups, learn
around the expert m as it was issued. While the first outcomes are under way, m is little more than the raw score. The
lanes then learn the score's error from these outcomes, and splines around m would learn the same error and correct it
again. So a forecast is a *beginner's* if it was made when less than a twentieth of the outcomes of now had been learnt:
``20 n_receipt < n``. From its outcome the splines learn around what the lanes, without the horizon lane, say now::

    b = (sum_{k<6} w_k e_k)/(1 - w_6)

Weights, records and evidence judge what was issued, also here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .algebra import exp, ln, power, scaled_identity, sigmoid
from .features import Beta
from .layout import (
    BEND,
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_COVARIANCE,
    HORIZON_THETA,
    HORIZON_WEIGHT,
    HORIZON_WIDTH,
    MEAN_LAG,
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
    N,
)
from .learners import LANES, ons_step
from .limits import MOST_PARAMETER, ROUNDED, Block, Limit, matrices, tempering, weights
from .parts import LARGEST_EXPONENT, Columns, Expression, Features, Formula, Learner, at_the_clip, sigmoid_of
from .receipt import EXPERT, HORIZON_LANE, LANE, PAPER_LANE, SCORE, SEEN
from .subset import kernel, large_kernel, scratch, unrolled
from .weights import Lesson, events_of_drift, likelihood_of, lump, portion

# ---- weights --------------------------------------------------------------------------------------------------------

EPS, LARGEST = 1e-7, 1.0 - 1e-7  # every probability inside is in [EPS, 1 - EPS]: a surprise costs at most 16 nats
SHARE = 0.5  # of the weights, SHARE/n is shared out evenly after the n-th outcome, so that no part is ever lost
AT_ONCE = 8  # numbers whose exponentials are taken together: seven lanes, and one place that nobody needs
LAZY = 1.1  # weights are flattened when 1 + G has grown to this many times the temper in force
BEGINNER = 20.0  # a forecast is a beginner's once more than so many times the outcomes that it knew have been learnt


@kernel
def inside(p: float) -> float:
    """p clipped to [EPS, 1 - EPS]."""
    p = max(EPS, p)
    return min(LARGEST, p)


@kernel
def clipped(score: float, clip: float) -> float:
    """f, the score inside [clip, 1 - clip]."""
    f = max(clip, score)
    return min(1.0 - clip, f)


@kernel
def squashed(z: float) -> float:
    """inside(sigmoid(z)), without a branch on the sign of z, which would be a coin toss for the processor."""
    p = 1.0 / (1.0 + exp(-z))
    p = max(EPS, p)
    return min(LARGEST, p)


@kernel
def squash(z: Vector) -> None:
    """The same for the logits of the lanes that learn, in place."""
    for k in range(AT_ONCE):
        z[k] = squashed(z[k])


@kernel
def exponents(z: Vector) -> None:
    """Minus the logits of the lanes that learn."""
    for k in range(AT_ONCE):
        z[k] = -z[k]


@kernel
def sigmoids(z: Vector) -> None:
    """What the lanes say, from the exponentials of `exponents`."""
    for k in range(AT_ONCE):
        z[k] = inside(1.0 / (1.0 + z[k]))


@kernel
def likelihood(p: float, y: float) -> float:
    """The probability that p gave to y."""
    return p if y == 1.0 else 1.0 - p


@kernel
def staleness(fresh: float, issued: float) -> float:
    """What the weights of now would have saved, in nats: 0 if nothing."""
    cost = ln(fresh / issued)
    return max(0.0, cost)


@large_kernel
def flatten(row: Vector, weight: int, count: int, last: int, temper: int, prior: float) -> None:
    """Flatten the weights to the temper 1 + G: w_k <- w_k^c w0^(1 - c), normalised, c = T/(1 + G).

    `count` weights stand from `weight` on, and one more at `last` if that is not 0; G stands before `temper`.
    """
    after = 1.0 + row[temper - 1]
    c = row[temper] / after
    scale = power(prior, 1.0 - c)
    total = 0.0
    for k in range(count + (1 if last else 0)):
        at = weight + k if k < count else last
        row[at] = power(row[at], c) * scale
        total += row[at]
    for k in range(count + (1 if last else 0)):
        row[weight + k if k < count else last] /= total
    row[temper] = after


# ---- evidence that forecasts are better than raw scores: a likelihood ratio, two numbers of the row -----------------


@kernel
def weigh_evidence(row: Vector, at: int, lesson: Lesson, p: float, f: float, score: float) -> None:
    """Multiply the likelihood ratio of forecast p over the score into row[at + 1]; overflow goes to row[at] as a log.

    Of the score and its clipped self f, the one that did better counts: finite, and if the score is the true
    probability s < clip, then s p/clip + (1 - s) (1 - p)/(1 - s) <= 1, so the product is still no winning bet.
    The logarithm of every ratio would be dearer than a product that is folded away now and then.
    """
    if lesson.weight != 1.0 or lesson.trials != 1.0:
        row[at] += weighted_evidence(lesson, p, f, score)
        return
    y = lesson.y
    raw, clipped = likelihood(score, y), likelihood(f, y)
    product = row[at + 1] * (likelihood(inside(p), y) / (max(clipped, raw)))
    if product < 1e-100 or product > 1e100:
        row[at] += ln(product)
        product = 1.0
    row[at + 1] = product


@large_kernel
def weighted_evidence(lesson: Lesson, p: float, f: float, score: float) -> float:
    """What an outcome of many events brings, as a logarithm: each of them counts by its weight."""
    p, gain = inside(p), 0.0
    if lesson.y > 0.0:
        gain += lesson.y * ln(p / (max(f, score)))
    if lesson.y < 1.0:
        gain += (1.0 - lesson.y) * ln((1.0 - p) / (max(1.0 - f, 1.0 - score)))
    return lesson.weight * lesson.trials * gain


# ---- the horizon lane -----------------------------------------------------------------------------------------------

HORIZON_PRIOR = 0.3  # variance of each of its seven parameters
HORIZON_DRIFT = 1e-4 * HORIZON_PRIOR  # of each variance per outcome, at a mean lag of 0
HORIZON_CAP = 4.0 * HORIZON_PRIOR  # a variance beyond it receives no more drift
HORIZON_STEP = 2.0  # no outcome moves its logit by more
HALF_TRUST = 30.0  # the mean lag at which an outcome counts half
DELAY_MEMORY = 1000.0  # outcomes that the mean lag looks back on
MOST_SCORE_LOGIT, MOST_LANE_LOGIT = 6.0, 8.0  # beyond these, logits count as these
SIZE = 7


@kernel
def bounded(z: float, most: float) -> float:
    """z clipped to [-most, most]."""
    z = min(most, z)
    return max(-most, z)


@kernel
def odds(p: float) -> float:
    """How many times likelier 1 is than 0."""
    return p / (1.0 - p)


@kernel
def issued_logit(p: float) -> float:
    """The logit of what a lane said, as the horizon lane looks at it."""
    return bounded(ln(odds(p)), MOST_LANE_LOGIT)


@kernel
def horizon_features(logit: float, z: Vector, phi: Vector) -> None:
    """phi_1, ..., phi_6: the logit of the score, and the logits z of the paper's OPS and of the Kalman lanes."""
    phi[1], phi[2] = bounded(logit, MOST_SCORE_LOGIT), bounded(z[KALMAN_LANES], MOST_LANE_LOGIT)
    for k in range(KALMAN_LANES):
        phi[3 + k] = bounded(z[k], MOST_LANE_LOGIT)


@kernel
def horizon_logit(row: Vector, lane: int, phi: Vector) -> float:
    """theta . phi, with the theta of now; the lane begins at row[lane]."""
    z = row[lane + HORIZON_THETA]  # phi_0 is 1
    for i in unrolled(1, SIZE):
        z += row[lane + HORIZON_THETA + i] * phi[i]
    return z


@kernel
def note_lag(row: Vector, n: float, lag: float) -> None:
    """The mean lag: exactly 0 while no outcome was ever late."""
    if lag > 0.0 or row[MEAN_LAG] > 0.0:
        row[MEAN_LAG] += (lag - row[MEAN_LAG]) / (min(DELAY_MEMORY, n))


@kernel
def wake(row: Vector, lane: int) -> None:
    """The horizon lane takes a seventh of the weights."""
    for k in range(WEIGHT, WEIGHT + 6):
        row[k] *= 6.0 / 7.0
    row[lane + HORIZON_WEIGHT] = 1.0 / 7.0


@kernel
def horizon_steps(row: Vector, lane: int, lesson: Lesson, phi: Vector, e: float) -> None:
    """One outcome for the lane, which says e now, in portions."""
    if lesson.omega == 1.0:
        horizon_step(row, lane, lesson.y, phi, e, 1.0, events_of_drift(lesson))
    else:
        left, done = lesson.omega, 0.0
        while left > 0.0:
            part = portion(left, done)
            said = e if done == 0.0 else squashed(horizon_logit(row, lane, phi))
            left -= part
            done += part
            horizon_step(row, lane, lesson.y, phi, said, part, 0.0 if left > 0.0 else events_of_drift(lesson))


@kernel
def drifted(variance: float, drift: float, cap: float, events: float) -> float:
    """A variance after the drift of some events; from the cap on it grows no more."""
    grown = variance + events * drift
    if events > 1.0:
        grown = min(cap + drift, grown)
    return grown if variance < cap else variance


@kernel
def horizon_step(row: Vector, lane: int, y: float, phi: Vector, e: float, part: float, events: float) -> None:
    """One portion of an outcome for the lane, which says e now, and then the drift of some events:

    K = P phi;  d = 1/(1 + h var);  theta += eta (y - e) d K;  P -= h d K K';  P_ii += drift
    """
    # The same for all outcomes: an outcome's own lag may tell what it is.
    eta = 1.0 / (1.0 + row[MEAN_LAG] / HALF_TRUST)
    K = scratch(SIZE)
    P = lane + HORIZON_COVARIANCE
    for i in unrolled(SIZE):
        k = row[P + entry_of(0, i)]  # phi_0 is 1
        for j in unrolled(1, SIZE):
            k += row[P + (entry_of(i, j) if i <= j else entry_of(j, i))] * phi[j]
        K[i] = k
    var = K[0]
    for j in unrolled(1, SIZE):
        var += phi[j] * K[j]
    var = max(0.0, var)
    h = eta * part * e * (1.0 - e)
    d = 1.0 / (1.0 + h * var)
    step = eta * part * (y - e) * d
    # if |step var| > STEP: step *= STEP / |step var|
    move = abs(step * var)
    step *= HORIZON_STEP / (max(HORIZON_STEP, move))
    d *= h
    drift = eta * HORIZON_DRIFT
    for i in unrolled(SIZE):
        row[lane + HORIZON_THETA + i] += K[i] * step
        dk = d * K[i]
        variance = row[P + entry_of(i, i)] - dk * K[i]
        row[P + entry_of(i, i)] = drifted(variance, drift, HORIZON_CAP, events)
        for j in unrolled(i + 1, SIZE):
            row[P + entry_of(i, j)] -= dk * K[j]


@kernel
def entry_of(i: int, j: int) -> int:
    """Where P_ij, i <= j, stands in the upper triangle, which is kept by rows."""
    return i * SIZE - i * (i - 1) // 2 + j - i


LN4 = 1.3862943611198906  # ln 4, so that the bend is zero at a score of one half
MOST_CLIP = 0.002  # of the features: below the score whose logit is -6, or the next line would make a score more sure
X_ATOM = 6.0  # a score at the clip, however extreme, enters the Kalman lanes as if its logit were 6
G_ATOM = LN4 - 6.0 - 2.0 * 0.002475685137730357  # the last is ln(1 + e^-6)

PRIOR_AC, PRIOR_B = 0.25, 1.0  # prior variances of slope and bend, and of the offset
SLOW, FAST, LEVEL = 1e-4, 1e-3, 1e-2  # drift per event, in units of the prior variance
KALMAN_LANES = 4
HORIZON = 5  # among the lanes that learn: the Kalman lanes, the paper's OPS, and this
DRIFT_AC = (0.0, SLOW * PRIOR_AC, FAST * PRIOR_AC, 0.0)
DRIFT_B = (0.0, SLOW * PRIOR_B, FAST * PRIOR_B, LEVEL * PRIOR_B)
# A variance of four times its prior receives no more drift, or a direction never seen would grow for ever.
CAP_AC, CAP_B = 4.0 * PRIOR_AC, 4.0 * PRIOR_B
STEP = 2.0  # no outcome moves a lane's own logit by more
ONS_GAIN, ONS_RHO, ONS_RADIUS = 10.0, 100.0, 100.0  # the paper's 1/gamma, rho and R
BLEND = 0.3  # of the way from a pool's variances, which are too small for one stream, to those of a new stream


# ---- the lanes: forecast ---------------------------------------------------------------------------------------------


@kernel
def lane_features(clip: float, f: float, x0: float, x1: float) -> tuple[float, float]:
    """(x, g) of the Kalman lanes."""
    if f <= clip:
        return -X_ATOM, G_ATOM
    if f >= 1.0 - clip:
        return X_ATOM, G_ATOM
    return x0 - x1, x0 + x1 + LN4


@kernel
def lane_logits(row: Vector, x: float, g: float, logit: float, z: Vector) -> None:
    """The logits of the five lanes that learn: four Kalman lanes and the paper's OPS."""
    for k in range(KALMAN_LANES):
        z[k] = row[SLOPE + k] * x + row[BEND + k] * g + row[OFFSET + k]
    z[KALMAN_LANES] = row[OPS_A] * logit + row[OPS_B]


@kernel
def mix(row: Vector, clip: float, x0: float, x1: float, horizon: int, receipt: Vector) -> float:
    """The expert, for a receipt that holds the score; what each lane says is put in the receipt."""
    f = clipped(receipt[SCORE], clip)
    x, g = lane_features(clip, f, x0, x1)
    says = scratch(AT_ONCE)
    lane_logits(row, x, g, x0 - x1, says)
    is_awake = awake(row, horizon)
    if is_awake:
        phi = scratch(AT_ONCE)
        horizon_features(x0 - x1, says, phi)
        says[HORIZON] = horizon_logit(row, horizon, phi)
    squash(says)
    for k in range(KALMAN_LANES + 1):
        receipt[LANE + k] = says[k]
    m = row[WEIGHT] * says[0]
    for k in range(1, KALMAN_LANES):
        m += row[WEIGHT + k] * says[k]
    m = m + row[WEIGHT + 4] * f + row[WEIGHT + 5] * says[KALMAN_LANES]
    receipt[HORIZON_LANE] = says[HORIZON] if is_awake else 0.0
    if is_awake:
        m += row[horizon + HORIZON_WEIGHT] * says[HORIZON]
    return inside(m)


# ---- the lanes: learning ---------------------------------------------------------------------------------------------


@kernel
def lanes_step(
    row: Vector,
    clip: float,
    x0: float,
    x1: float,
    n: float,
    lesson: Lesson,
    horizon: int,
    receipt: Vector,
    back: Hindsight,
) -> None:
    """Learn the n-th outcome: the weights judge what was issued, the lanes move from where they are now."""
    f = clipped(receipt[SCORE], clip)
    x, g = lane_features(clip, f, x0, x1)
    lag = n - 1.0 - receipt[SEEN]
    says = scratch(AT_ONCE)
    note_lag(row, n, lag)
    if back.lanes:
        late_step(row, f, n, lag, lesson, horizon, receipt, back.late)
        for k in range(KALMAN_LANES + 1):
            says[k] = back.late[SAYS + k]
    else:
        weigh_lanes(row, n, lesson.y, f, receipt)
    if lag == 0.0:  # nothing has moved, and what was issued is what they say now
        for k in range(KALMAN_LANES + 1):
            says[k] = receipt[LANE + k]
    if lesson.omega == 1.0:
        events = events_of_drift(lesson)
        for k in range(KALMAN_LANES):
            kalman(row, k, x, g, says[k], lesson.y, 1.0, DRIFT_AC[k], DRIFT_B[k], events)
    else:
        kalman_portions(row, x, g, says, lesson)
    paper_step(row, x0 - x1, says[KALMAN_LANES], lesson)


@kernel
def kalman_portions(row: Vector, x: float, g: float, says: Vector, lesson: Lesson) -> None:
    """One outcome for the four Kalman lanes, in portions; `says` has what they say now, and is scratch."""
    left, done, events = lesson.omega, 0.0, events_of_drift(lesson)
    while left > 0.0:
        part = portion(left, done)
        if done > 0.0:
            for k in range(KALMAN_LANES):
                says[k] = squashed(row[SLOPE + k] * x + row[BEND + k] * g + row[OFFSET + k])
        left -= part
        done += part
        of_drift = 0.0 if left > 0.0 else events
        for k in range(KALMAN_LANES):
            kalman(row, k, x, g, says[k], lesson.y, part, DRIFT_AC[k], DRIFT_B[k], of_drift)


@kernel
def weigh_lanes(row: Vector, n: float, y: float, f: float, receipt: Vector) -> None:
    """w_k <- (1 - alpha) w_k L_k / sum + alpha/6: six lanes, none of whose outcomes was ever late."""
    w, e = WEIGHT, LANE
    u0, u1 = row[w] * likelihood(receipt[e], y), row[w + 1] * likelihood(receipt[e + 1], y)
    u2, u3 = row[w + 2] * likelihood(receipt[e + 2], y), row[w + 3] * likelihood(receipt[e + 3], y)
    u4, u5 = row[w + 4] * likelihood(f, y), row[w + 5] * likelihood(receipt[PAPER_LANE], y)
    alpha = SHARE / n
    keep, gift = (1.0 - alpha) / (u0 + u1 + u2 + u3 + u4 + u5), alpha / 6.0
    row[w] = keep * u0 + gift
    row[w + 1] = keep * u1 + gift
    row[w + 2] = keep * u2 + gift
    row[w + 3] = keep * u3 + gift
    row[w + 4] = keep * u4 + gift
    row[w + 5] = keep * u5 + gift


# ---- late outcomes ---------------------------------------------------------------------------------------------------

# A late outcome needs sixteen logarithms and eighteen exponentials, of the lanes and of the splines behind them. One
# after another they would take a third of its time. So each part writes into the array `late` what it needs logarithms
# of, then what it needs exponentials of, and `kernel.look_back` takes all of a kind together. Places in `late`:
SPLINE_LOGS = 0  # of the likelihoods of the expert and the two splines, and of what `staleness` compares
LANE_LOGS = 4  # of the likelihoods of the six lanes that learn
LANE_STALE = 10  # of what `staleness` compares
LANE_ODDS = 11  # of the odds that the paper's OPS and the Kalman lanes issued
SPLINE_EXPONENTS = 16  # minus the offsets of the splines, and three tempered likelihoods
TEMPERED = 21  # likelihoods of the six lanes that learn, and of the score
SAYS = 28  # what the lanes that learn say now
PHI = SAYS + AT_ONCE  # of the horizon lane
ISSUED_HORIZON = PHI + SIZE  # what the horizon lane said, or would have said
LARGEST_LOG = ISSUED_HORIZON + 1  # of what the lanes gave to a lump
LATE = LARGEST_LOG + 1


class Hindsight(NamedTuple):
    """Whether the lanes and the splines treat an outcome as late, and what was taken together for them.

    The splines learn `around` this probability: the expert as it was issued, or that of now if the forecast was a
    beginner's.
    """

    lanes: bool
    splines: bool
    beginner: bool
    around: float
    late: Vector


@kernel
def is_beginner(n: float, seen: float) -> bool:
    """Whether a forecast, made when `seen` outcomes had been learnt, is a beginner's now that n are; never at once."""
    return BEGINNER * seen < n


@kernel
def lanes_are_late(row: Vector, n: float, horizon: int, receipt: Vector) -> bool:
    """Whether the n-th outcome is late, or an earlier one was and has left its traces."""
    at_once = n - 1.0 - receipt[SEEN] == 0.0
    return not (at_once and row[TEMPER] == 1.0 and (horizon == 0 or row[horizon + HORIZON_WEIGHT] == 0.0))


@kernel
def awake(row: Vector, horizon: int) -> bool:
    """Whether there is a horizon lane, and an outcome was ever late."""
    return horizon > 0 and row[horizon + HORIZON_WEIGHT] > 0.0


@kernel
def lane_likelihoods(lesson: Lesson, receipt: Vector, late: Vector) -> None:
    """What the lanes had given to an outcome, without the horizon lane."""
    for k in range(KALMAN_LANES):
        late[LANE_LOGS + k] = likelihood_of(receipt[LANE + k], lesson)
    late[LANE_LOGS + 4] = likelihood_of(receipt[PAPER_LANE], lesson)


@kernel
def lanes_logarithms(
    row: Vector, clip: float, x0: float, x1: float, lesson: Lesson, horizon: int, receipt: Vector, late: Vector
) -> None:
    """What the lanes need logarithms of."""
    w6, h = 0.0, 0.5
    late[PHI + 1] = bounded(x0 - x1, MOST_SCORE_LOGIT)
    if horizon > 0 and row[horizon + HORIZON_WEIGHT] == 0.0 and row[N] > receipt[SEEN]:  # it is the first late one
        wake(row, horizon)
    if awake(row, horizon):
        w6, h = row[horizon + HORIZON_WEIGHT], receipt[HORIZON_LANE]
        if h == 0.0:  # it was asleep: what it would have said at its prior, the mean logit of the six lanes
            z = late[PHI + 1] + issued_logit(receipt[PAPER_LANE])
            for k in range(KALMAN_LANES):
                z += issued_logit(receipt[LANE + k])
            h = squashed(z / 6.0)
    late[ISSUED_HORIZON] = h
    L, w = LANE_LOGS, WEIGHT
    lane_likelihoods(lesson, receipt, late)
    for k in range(KALMAN_LANES):
        late[LANE_ODDS + 1 + k] = odds(receipt[LANE + k])
    late[LANE_ODDS] = odds(receipt[PAPER_LANE])
    late[L + 5] = likelihood_of(h, lesson)
    fresh = row[w] * late[L] + row[w + 1] * late[L + 1] + row[w + 2] * late[L + 2] + row[w + 3] * late[L + 3]
    fresh += row[w + 4] * likelihood_of(clipped(receipt[SCORE], clip), lesson)
    fresh = fresh + row[w + 5] * late[L + 4] + w6 * late[L + 5]
    late[LANE_STALE] = fresh / likelihood_of(receipt[EXPERT], lesson)


@kernel
def lanes_exponents(
    row: Vector, clip: float, x0: float, x1: float, lesson: Lesson, horizon: int, receipt: Vector, late: Vector
) -> None:
    """What the lanes need exponentials of."""
    x, g = lane_features(clip, clipped(receipt[SCORE], clip), x0, x1)
    says = late[SAYS : SAYS + AT_ONCE]
    if awake(row, horizon):
        for k in range(KALMAN_LANES + 1):
            late[PHI + 2 + k] = bounded(late[LANE_ODDS + k], MOST_LANE_LOGIT)
        says[HORIZON] = horizon_logit(row, horizon, late[PHI : PHI + SIZE])
    lane_logits(row, x, g, x0 - x1, says)
    exponents(says)
    temper_lanes(row, x0, x1, lesson, horizon, late)


@kernel
def temper_lanes(row: Vector, x0: float, x1: float, lesson: Lesson, horizon: int, late: Vector) -> None:
    """The exponents of L_k^(omega/T), from the logarithms."""
    if row[TEMPER] != lesson.omega:
        s = lesson.omega / row[TEMPER]
        score = lesson.y * x0 + (1.0 - lesson.y) * x1 if lesson.is_share else x0 if lesson.y == 1.0 else x1
        top = 0.0
        if s > 1.0:  # of L_k over the largest of them, or all might be 0
            top = score
            for k in range(6 if awake(row, horizon) else 5):
                top = max(top, late[LANE_LOGS + k])
        late[LARGEST_LOG] = top
        for k in range(6):
            late[TEMPERED + k] = s * (late[LANE_LOGS + k] - top)
        late[TEMPERED + 6] = s * (score - top)


@large_kernel
def lanes_now(row: Vector, f: float, horizon: int, late: Vector) -> float:
    """b, what the lanes say now without the horizon lane; `late` has the exponentials that `lanes_exponents` needs."""
    w6 = row[horizon + HORIZON_WEIGHT] if horizon > 0 else 0.0
    b = row[WEIGHT + 4] * f + row[WEIGHT + 5] * inside(1.0 / (1.0 + late[SAYS + KALMAN_LANES]))
    for k in range(KALMAN_LANES):
        b += row[WEIGHT + k] * inside(1.0 / (1.0 + late[SAYS + k]))
    return inside(b / (1.0 - w6))


@kernel
def mixed(row: Vector, f: float, last: int, lesson: Lesson, receipt: Vector, late: Vector) -> float:
    """What the lanes had given to an outcome, by their weights of now."""
    fresh = row[WEIGHT + 4] * likelihood_of(f, lesson) + row[WEIGHT + 5] * likelihood_of(receipt[PAPER_LANE], lesson)
    for k in range(KALMAN_LANES):
        fresh += row[WEIGHT + k] * likelihood_of(receipt[LANE + k], lesson)
    return fresh + row[last] * likelihood_of(late[ISSUED_HORIZON], lesson) if last > 0 else fresh


@kernel
def late_step(
    row: Vector, f: float, n: float, lag: float, lesson: Lesson, horizon: int, receipt: Vector, late: Vector
) -> None:
    """The weights, and the horizon lane, of a stream that has had late outcomes (the module has the formulas).

    What the lanes say now is put in `late`.
    """
    says, temper, omega = late[SAYS : SAYS + AT_ONCE], row[TEMPER], lesson.omega
    parts, last = 6.0, 0
    if awake(row, horizon):
        parts, last = 7.0, horizon + HORIZON_WEIGHT
    if lag > 0.0 or last > 0:
        sigmoids(says)
    l0, l1, l2, l3 = late[TEMPERED], late[TEMPERED + 1], late[TEMPERED + 2], late[TEMPERED + 3]
    l5, l6, l4 = late[TEMPERED + 4], late[TEMPERED + 5], late[TEMPERED + 6]
    if temper == omega:
        l0, l1 = likelihood_of(receipt[LANE], lesson), likelihood_of(receipt[LANE + 1], lesson)
        l2, l3 = likelihood_of(receipt[LANE + 2], lesson), likelihood_of(receipt[LANE + 3], lesson)
        l4, l5 = likelihood_of(f, lesson), likelihood_of(receipt[PAPER_LANE], lesson)
        l6 = likelihood_of(late[ISSUED_HORIZON], lesson)
    w0, w1, w2 = row[WEIGHT] * l0, row[WEIGHT + 1] * l1, row[WEIGHT + 2] * l2
    w3, w4, w5 = row[WEIGHT + 3] * l3, row[WEIGHT + 4] * l4, row[WEIGHT + 5] * l5
    w6 = row[last] * l6 if last > 0 else 0.0
    alpha, total = SHARE / n, w0 + w1 + w2 + w3 + w4 + w5 + w6
    if omega > temper:
        row[STALENESS] += lump(temper, total, late[LARGEST_LOG], ln(mixed(row, f, last, lesson, receipt, late)), omega)
    keep, gift = (1.0 - alpha) / total, alpha / parts
    row[WEIGHT], row[WEIGHT + 1], row[WEIGHT + 2] = keep * w0 + gift, keep * w1 + gift, keep * w2 + gift
    row[WEIGHT + 3], row[WEIGHT + 4], row[WEIGHT + 5] = keep * w3 + gift, keep * w4 + gift, keep * w5 + gift
    if last > 0:
        row[last] = keep * w6 + gift
    if lag > 0.0:
        row[STALENESS] += omega * max(0.0, late[LANE_STALE])
    if 1.0 + row[STALENESS] > LAZY * temper:
        flatten(row, WEIGHT, 6, last, TEMPER, 1.0 / parts)
    if last > 0:
        horizon_steps(row, horizon, lesson, late[PHI : PHI + SIZE], says[HORIZON])


# ---- the lanes: one step each ----------------------------------------------------------------------------------------


@kernel
def kalman(
    row: Vector,
    k: int,
    x: float,
    g: float,
    e: float,
    y: float,
    part: float,
    drift_ac: float,
    drift_b: float,
    events: float,
) -> None:
    """A portion of an outcome for lane k, which says e, and then the drift of some events.

    Without branches, so that the four lanes can go together as vectors.
    """
    aa, ac, ab = row[VAR_A + k], row[COV_AC + k], row[COV_AB + k]
    cc, cb, bb = row[VAR_C + k], row[COV_CB + k], row[VAR_B + k]
    ka = aa * x + ac * g + ab
    kc = ac * x + cc * g + cb
    kb = ab * x + cb * g + bb
    var = ka * x + kc * g + kb
    var = max(0.0, var)
    h = part * (e * (1.0 - e))
    d = 1.0 / (1.0 + h * var)
    step = part * (y - e) * d
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
    row[VAR_A + k] = drifted(aa, drift_ac, CAP_AC, events)
    row[COV_AC + k] = ac - da * kc
    row[COV_AB + k] = ab - da * kb
    row[VAR_C + k] = drifted(cc, drift_ac, CAP_AC, events)
    row[COV_CB + k] = cb - dc * kb
    row[VAR_B + k] = drifted(bb, drift_b, CAP_B, events)


@kernel
def paper_step(row: Vector, x: float, o: float, lesson: Lesson) -> None:
    """The paper's step on (x, 1) with its hyper-parameters; o is what this lane says now."""
    if o <= EPS or o >= 1.0 - EPS:  # the gradient is that of the lane itself, unclipped
        o = sigmoid(row[OPS_A] * x + row[OPS_B])
    ons_step(row, OPS_A, 2, x, 1.0, 0.0, o, lesson, ONS_GAIN, ONS_RADIUS)


@kernel
def lanes_start(pool: Vector, row: Vector) -> None:
    """A new stream starts at the pool's parameters with variances between the pool's and its own; weights as new.

    So is its horizon lane: a pool learns every outcome at once.
    """
    for i in range(SLOPE, VAR_A):
        row[i] = pool[i]
    for i in range(VAR_A, WEIGHT):
        row[i] = pool[i] + BLEND * (row[i] - pool[i])
    row[OPS_A], row[OPS_B] = pool[OPS_A], pool[OPS_B]


# ---- the part of a method -------------------------------------------------------------------------------------------

LANE_NAMES = ("still", "slow", "fast", "level only", "raw score", "paper's OPS")
HORIZON_NAME = "horizon"


@dataclass(frozen=True)
class Lanes(Learner):
    r"""Six forecasters at different speeds of drift, mixed by log-loss; nothing to choose.

    With x = logit f and g = log f + log(1 - f) + log 4 (zero at f = 1/2), four lanes forecast
    e_k = sigmoid(a_k x + c_k g + b_k), each with a Gaussian belief about (a, c, b) that an outcome sharpens and
    drift blurs (a Kalman filter for a random walk, one Newton step per outcome):

    K = P (x, g, 1)';  d = 1/(1 + e (1 - e) var);  theta += (y - e) d K;  P -= e (1 - e) d K K';  P_ii += drift

    ===============  ================================================================
    lane             what it believes
    ===============  ================================================================
    ``still``        the relation of score and outcome never changes
    ``slow``         it drifts by 1e-4 of the prior variance per outcome
    ``fast``         it drifts by 1e-3
    ``level only``   the offset drifts by 1e-2, the rest never
    ``raw score``    the score is right as it is
    ``paper's OPS``  ONS on (x, 1), the paper's Algorithm 1
    ===============  ================================================================

    The expert is their mean m = sum w_k e_k. After the n-th outcome w_k <- (1 - alpha) w_k L_k / sum + alpha/6,
    L_k the probability that lane k gave to it and alpha = 0.5/n: so m loses at most ln 6 + (5/12) ln T + 0.425 nats
    to the best lane, whatever happens (`bounds.lanes_loss`).

    **Late outcomes.** A late outcome judges what was issued and moves what is there now. Weights that follow such
    judgements chase the past: they are tempered by what this has cost so far (`calibeat.core.auto`). A seventh
    lane, ``horizon``, wakes with the first late outcome. It regresses the outcome on the logits that the lanes had
    issued with the forecast (`calibeat.core.auto`). `bounds.auto_late` says what all of this can have lost. With
    outcomes at once, nothing of it happens.

    Parameters
    ----------
    horizon : whether there is a horizon lane. Without it a row is 36 numbers shorter, for banks of many millions;
        the temper stays.

    Raises
    ------
    InvalidInput : horizon is neither True nor False.

    >>> from calibeat import Beta, Calibrator, Lanes, Method
    >>> cal = Calibrator(Method(Beta(), Lanes()))
    >>> p = cal.run([0.8, 0.6, 0.9, 0.7] * 50, [1, 0, 0, 0] * 50)      # a score that is far too high
    >>> lanes = cal.params["lanes"]
    >>> max(lanes, key=lanes.get), round(lanes["raw score"], 3)
    ('still', 0.001)

    References: Herbster & Warmuth (1998), fixed share; Vovk (1990); Fahrmeir (1992), Kalman filters for logits;
    Gupta & Ramdas (2023), Algorithm 1.
    """

    horizon: bool = True

    code: ClassVar[int] = LANES
    receipt: ClassVar[tuple[int, ...]] = (*range(LANE, LANE + 4), PAPER_LANE, EXPERT)

    def __post_init__(self) -> None:
        if not isinstance(self.horizon, (bool, np.bool_)):
            raise InvalidInput(f"Lanes horizon must be True or False, got {self.horizon!r:.60}")
        object.__setattr__(self, "horizon", bool(self.horizon))

    def check_features(self, features: Features | None) -> None:
        if type(features) is not Beta or features.start != Beta.start:
            raise InvalidInput(f"Lanes needs Beta features that start at the identity {Beta.start}, got {features}")
        if features.clip > MOST_CLIP:
            raise InvalidInput(f"Lanes needs Beta features with a clip of at most {MOST_CLIP:g}, got {features.clip:g}")

    def initial(self, features: Features) -> list[float]:  # noqa: ARG002 - they all start at the identity
        theta, P = (1.0, 0.0, 0.0), (PRIOR_AC, 0.0, 0.0, PRIOR_AC, 0.0, PRIOR_B)
        kalman = [number for number in (*theta, *P) for _ in range(4)]
        return [*kalman, *[1.0 / 6.0] * 6, 1.0, 0.0, ONS_RHO, 0.0, ONS_RHO, 0.0, 1.0, 0.0]

    def tail(self) -> list[float]:
        """Weight 0, theta = (0, 1/6, ..., 1/6): the mean logit of the six lanes; covariance 0.3 I."""
        return [0.0, 0.0, *[1.0 / 6.0] * 6, *scaled_identity(SIZE, HORIZON_PRIOR)] if self.horizon else []

    def limits(self, features: Features) -> list[Block]:
        ball, logit = ONS_RADIUS * ROUNDED, features.reach[0]
        return [
            Block((Limit("parameters of lanes", -MOST_PARAMETER, MOST_PARAMETER),), VAR_A - SLOPE),
            matrices("covariances of lanes", [(0.0, 1.1 * cap, 0.0) for cap in (CAP_AC, CAP_AC, CAP_B)], KALMAN_LANES),
            weights("lanes", 6),
            Block((Limit("parameters of OPS", -ball, ball),), 2),
            matrices("A of OPS", [(ONS_RHO, ONS_RHO, logit * logit), (ONS_RHO, ONS_RHO, 1.0)]),
            tempering(),
            Block((Limit("a mean lag", 0.0, 0.0, rises=1.0),)),
        ]

    def tail_limits(self) -> list[Block]:
        if not self.horizon:
            return []
        return [
            weights("lanes", 1, 0.0),  # while it sleeps
            Block((Limit("parameters of the horizon lane", -MOST_PARAMETER, MOST_PARAMETER),), SIZE),
            matrices("covariances of the horizon lane", [(0.0, 1.1 * HORIZON_CAP, 0.0)] * SIZE),
        ]

    def params(self, row: Any, features: Features) -> dict[str, Any]:  # noqa: ARG002 - one signature
        """Weighted means over the first six lanes of slope a, offset b and bend c; the weight of each lane by its name;
        how late outcomes are on average, and by how much the weights are tempered for it (1: not at all)."""
        weights = [*row[WEIGHT : WEIGHT + 6], *([row[len(row) - HORIZON_WIDTH]] if self.horizon else ())]
        lanes = {
            "a": [*row[SLOPE : SLOPE + 4], 1.0, row[OPS_A]],
            "b": [*row[OFFSET : OFFSET + 4], 0.0, row[OPS_B]],
            "c": [*row[BEND : BEND + 4], 0.0, 0.0],
        }
        known = _sum(weights[:6])
        means = {
            name: _sum(w * value for w, value in zip(weights, values, strict=False)) / known
            for name, values in lanes.items()
        }
        names = (*LANE_NAMES, HORIZON_NAME)[: len(weights)]
        return {
            **means,
            "lanes": dict(zip(names, weights, strict=True)),
            "mean_lag": row[MEAN_LAG],
            "temper": row[TEMPER],
        }

    def params_of_rows(self, rows: Vector, features: Features) -> Columns:
        """The weight of each lane is a column of its own."""
        params = self.params(rows.T, features)
        lanes = params.pop("lanes")
        return {name: np.array(column) for name, column in (params | lanes).items()}

    def export(self, formula: Formula, row: list[float], features: Features, *, exact: bool) -> None:  # noqa: ARG002
        """`mix` on the frozen row."""
        if not isinstance(features, Beta):  # pragma: no cover - `check_features` has seen to it
            raise TypeError(features)
        clip, weights = features.clip, row[WEIGHT : WEIGHT + 6]
        slope, bend, offset = (row[at : at + 4] for at in (SLOPE, BEND, OFFSET))
        ops_a, ops_b = row[OPS_A], row[OPS_B]
        formula.numbers.update(slope=slope, bend=bend, offset=offset, weight=weights, ops=[ops_a, ops_b], clip=clip)
        formula.add("f", ("clamp", "score", clip, 1.0 - clip))
        formula.add("lf", ("ln", "f"))
        formula.add("lg", ("ln", ("-", 1.0, "f")))
        formula.add("logit", ("-", "lf", "lg"))
        formula.add("x", at_the_clip(clip, -X_ATOM, X_ATOM, "logit"))
        formula.add("g", at_the_clip(clip, G_ATOM, G_ATOM, ("+", "lf", "lg", LN4)))
        logits = [("+", ("*", slope[k], "x"), ("*", bend[k], "g"), offset[k]) for k in range(4)]
        for k, z in enumerate(logits):
            formula.add(f"lane{k}", _squashed(z))
        formula.add("ops", _squashed(("+", ("*", ops_a, "logit"), ops_b)))
        names = ["lane0", "lane1", "lane2", "lane3", "f", "ops"]
        lane = row[len(row) - HORIZON_WIDTH :]
        if self.horizon and lane[HORIZON_WEIGHT] > 0.0:
            _export_horizon(formula, lane, [("+", ("*", ops_a, "logit"), ops_b), *logits])
            weights, names = [*weights, lane[HORIZON_WEIGHT]], [*names, "horizon"]
        mean = ("+", *(("*", w, name) for w, name in zip(weights, names, strict=True)))
        formula.add("expert", ("clamp", mean, EPS, LARGEST))


def _export_horizon(formula: Formula, lane: list[float], logits: list[Expression]) -> None:
    """The horizon lane of a frozen row, which looks at the logits of the score, of OPS and of the Kalman lanes."""
    theta = lane[HORIZON_THETA:HORIZON_COVARIANCE]
    formula.numbers.update(horizon=theta, horizon_weight=lane[HORIZON_WEIGHT])
    terms: list[Expression] = [theta[0], ("*", theta[1], ("clamp", "logit", -MOST_SCORE_LOGIT, MOST_SCORE_LOGIT))]
    for parameter, z in zip(theta[2:], logits, strict=True):
        terms.append(("*", parameter, ("clamp", z, -MOST_LANE_LOGIT, MOST_LANE_LOGIT)))
    formula.add("horizon", _squashed(("+", *terms)))


def _squashed(z: Expression) -> Expression:
    least = -LARGEST_EXPONENT
    return ("clamp", sigmoid_of(("if<=", z, least, least, z)), EPS, LARGEST)


def _sum(terms: Iterable[Any]) -> Any:
    """A sum with its rounding errors added back (Knuth's two-sum): as good as math.fsum here, and good for arrays."""
    total = lost = 0.0
    for term in terms:
        after = total + term
        came = after - total
        lost += (total - (after - came)) + (term - came)
        total = after
    return total + lost
