r"""How sure is a forecast: an interval, the evidence behind it as a count of outcomes, and a reason to doubt it.

The row of AUTO knows how far its lanes are sure and disagree, and what its splines have seen. A **record** behind the
row checks this by blocks of later outcomes. It compares them with the forecasts as they were when the block began, and
widens the interval until at most one block in twenty lies outside. All variances are of the logit::

    lanes   = sum_k w_k (v_k + (z_k - z_m)^2)          v_k = x' P_k x; the raw score and OPS have that of the still lane
    splines = V0 (z_m - z)^2 + V1 ((z_s - z)^2 + d_s) + V2 ((z_r - z)^2 + d_r)
    base    = lanes + splines
    ahead   = D (1e-4 w_1 q + 1e-3 w_2 q + 1e-2 w_3)   what drifts in D, the mean lag;  q the prior variance
    doubt   = max(base max(kappa, 1), kappa (base + ahead))
    local   = d^2 + 1/(H_c + 1/tau2)                   what neighboring scores leave open: d = S_c/(H_c + 1/tau2)
    low, high = sigmoid(z -+ 1.96 sqrt(doubt + local))

z_m, z_s, z_r, z are the logits of the expert, of both splines and of the forecast; tau2 is the variance of the cells of
the score, c, beyond their noise. kappa is what the blocks say of doubt::

    S += y - e,  H += e (1 - e)        e: the forecast without what was learnt since the block opened
    the block is full when H >= clip(1/s0^2, 2.5, 6), and outside if (S/H)^2 > 1.96^2 (s^2 + 1/H)
    ln kappa += max(0.1, 0.5/(1 + K/10)) (outside - 0.05)      after the K-th block

**The record never moves a forecast.** It is read only for a band, and written only beside the row.

**Weights.** An outcome that is worth omega events (`weights`) counts omega times, in blocks and in cells. The scale of
the weights makes the information that outcomes claim, sum omega h, the variance of what they say: the noise of a block
is 1/H here too. (The sum of omega^2 h is not that variance where the weight depends on the outcome.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._compiled import REASONS
from calibeat._util.types import Vector

from .algebra import exp, ln
from .auto import (
    AT_ONCE,
    EPS,
    FAST,
    KALMAN_LANES,
    LARGEST,
    LEVEL,
    PRIOR_AC,
    PRIOR_B,
    SIZE,
    SLOW,
    awake,
    bounded,
    clipped,
    entry_of,
    horizon_features,
    horizon_logit,
    inside,
    lane_features,
    lane_logits,
    mix,
    odds,
)
from .layout import (
    BEND,
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_COVARIANCE,
    HORIZON_WEIGHT,
    MEAN_LAG,
    OFFSET,
    OPS_A,
    OPS_B,
    SLOPE,
    VAR_A,
    VAR_B,
    VAR_C,
    WEIGHT,
    N,
)
from .limits import MOST_PARAMETER, Block, Limit
from .receipt import EXPERT, FORECAST, RECEIPT_WIDTH, SCORE, SCORE_SPLINE, SEEN
from .spline import (
    ATOM_PRIOR,
    ATOMS,
    EXPERT_KNOTS,
    EXPERT_OFFSETS,
    KNOTS,
    SCORE_OFFSETS,
    SPLINE_WEIGHT,
    X_MAX,
    knot,
    spline,
)
from .subset import kernel, large_kernel, scratch, unrolled
from .weights import Lesson

HALF_WIDTH = 1.96  # standard deviations; the promise is 9 of 10
MISSES = 0.05  # share of blocks that may lie outside
FIRST_STEP, LAST_STEP = 0.5, 0.1  # of ln kappa
LEAST_KAPPA, MOST_KAPPA = math.log(0.1), math.log(400.0)
LEAST_BLOCK, MOST_BLOCK = 2.5, 6.0  # information of a block
KNOWN, KNOWN_SHARE = 20.0, 0.05  # outcomes behind a forecast whose block counts as a test
MOST_LOGIT = 14.0  # of a lane
MOST_INSIDE = math.log(LARGEST / EPS)  # of every other probability
MOST_HALF = 600.0  # of a width in logits, so that nothing overflows
CELLS = 27  # of the score's logit: half a unit each from -6 to 6, and one for each score at the clip
MOST_TAU2 = 4.0  # one surprise at a tiny probability is not an infinite doubt
FEW, FEW_OF_A_KIND, UNTESTED, DRIFTING = 10.0, 1.0, 10.0, 3.0

# ---- the record, behind the row -------------------------------------------------------------------------------------
LN_KAPPA, BLOCKS, TESTS, OUTSIDE = 0, 1, 2, 3  # TESTS: blocks of forecasts that were made with knowledge
# The open block: its sums; n when it opened, -1 if none is open; whether it is a test; the mean map of the lanes and
# the root of `doubt` at that moment.
BLOCK_S, BLOCK_H, OPENED, IS_TEST, MAP_A, MAP_C, MAP_B, OPENING = 4, 5, 6, 7, 8, 9, 10, 11
SPREAD, SQUARES = 12, 13  # over the cells: sums of S^2 less its noise, and of H^2
CELL_S, CELL_H = 14, 14 + CELLS
RECORD = 14 + 2 * CELLS  # how many numbers it has

NOT_YET = REASONS[1:3]  # the reasons that mean: there is not enough evidence yet


class Band(NamedTuple):
    """The answer, as kernels give it; `reason` is its place in `REASONS`."""

    low: float
    high: float
    outcomes: float
    reason: float


class Doubts(NamedTuple):
    """What the row knows of its own error at a score."""

    base: float
    ahead: float
    prior: float


class Bands(NamedTuple):
    """What `run` and `predict_many` give with ``band=True``: a column of each, as `Forecast` has them of one event.

    >>> from calibeat import Calibrator
    >>> bands = Calibrator(band=True).run([0.9] * 200, [1, 0] * 100, band=True)
    >>> [round(float(column[-1]), 3) for column in bands[:3]], str(bands.reason[-1])
    ([0.518, 0.372, 0.661], 'untested')
    """

    probabilities: Any
    low: Vector
    high: Vector
    outcomes: Vector
    reason: npt.NDArray[np.str_]

    @classmethod
    def of(cls, probabilities: Any, numbers: Vector) -> Bands:
        """Of four numbers an event, as the kernels leave them."""
        low, high, outcomes, reason = numbers.reshape(-1, 4).T
        return cls(probabilities, low.copy(), high.copy(), outcomes.copy(), reasons_of(reason))


def reasons_of(codes: Any) -> npt.NDArray[np.str_]:
    """The words of the places in `REASONS`."""
    return np.array(REASONS).take(np.asarray(codes).astype(np.int64))


class Estimate(float):
    """A probability that says how sure it is; it is no receipt.

    >>> from calibeat import Calibrator
    >>> p = Calibrator(band=True).peek(0.25)
    >>> round(p, 6), round(p.low, 3), round(p.high, 3), p.outcomes, p.reason
    (0.25, 0.033, 0.767, 0.0, 'too few outcomes')
    """

    __slots__ = ("high", "low", "outcomes", "reason")
    low: float
    high: float
    outcomes: float
    reason: str

    def __new__(cls, probability: float, low: float, high: float, outcomes: float, reason: str) -> Estimate:
        made = super().__new__(cls, probability)
        made.low, made.high, made.outcomes, made.reason = low, high, outcomes, reason
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.low, self.high, self.outcomes, self.reason

    @property
    def probability(self) -> float:
        """The same as a plain float."""
        return float(self)


# ---- what the row knows ---------------------------------------------------------------------------------------------


@kernel
def doubts_of(row: Vector, clip: float, cells: int, horizon: int, x0: float, x1: float, receipt: Vector) -> Doubts:
    """The variances at a score, for the receipt of a forecast that this row would make now."""
    x, f, m = x0 - x1, clipped(receipt[SCORE], clip), receipt[EXPERT]
    xk, g = lane_features(clip, f, x0, x1)
    z = scratch(AT_ONCE)
    lane_logits(row, xk, g, x, z)
    zm, zp, lanes, still = ln(odds(m)), ln(odds(receipt[FORECAST])), 0.0, 0.0
    for k in range(KALMAN_LANES):
        ka = row[VAR_A + k] * xk + row[COV_AC + k] * g + row[COV_AB + k]
        kc = row[COV_AC + k] * xk + row[VAR_C + k] * g + row[COV_CB + k]
        kb = row[COV_AB + k] * xk + row[COV_CB + k] * g + row[VAR_B + k]
        v = ka * xk + kc * g + kb
        v = max(0.0, v)
        if k == 0:
            still = v
        lanes += row[WEIGHT + k] * (v + squared_gap(z[k], zm))
    lanes += row[WEIGHT + 4] * (still + squared_gap(x, zm))
    lanes += row[WEIGHT + 5] * (still + squared_gap(z[KALMAN_LANES], zm))
    if awake(row, horizon):
        lanes += row[horizon + HORIZON_WEIGHT] * doubt_of_horizon(row, horizon, x, z, zm)
    weight = cells + SPLINE_WEIGHT
    splines = row[weight] * (zm - zp) * (zm - zp)
    if f <= clip or f >= 1.0 - clip:
        s, count = receipt[SCORE_SPLINE], row[cells + ATOMS + (3 if f > 0.5 else 1)]
        gap = ln(odds(s)) - zp
        splines += row[weight + 1] * (gap * gap + 1.0 / ((count + ATOM_PRIOR) * s * (1.0 - s)))
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1)
        splines += row[weight + 1] * doubt_of_knots(row, cells + SCORE_OFFSETS + j, KNOTS, t, zm, zp)
    j, t = knot(m * 10.0, EXPERT_KNOTS - 1)
    splines += row[weight + 2] * doubt_of_knots(row, cells + EXPERT_OFFSETS + j, EXPERT_KNOTS, t, zm, zp)
    prior = PRIOR_AC * (xk * xk + g * g) + PRIOR_B
    drift = (row[WEIGHT + 1] * SLOW + row[WEIGHT + 2] * FAST) * prior + row[WEIGHT + 3] * LEVEL
    return Doubts(lanes + splines, row[MEAN_LAG] * drift, prior)


@kernel
def squared_gap(z: float, zm: float) -> float:
    """How far a lane is from the expert, squared."""
    gap = bounded(z, MOST_LOGIT) - zm
    return gap * gap


@kernel
def doubt_of_knots(row: Vector, left: int, knots: int, t: float, zm: float, zp: float) -> float:
    """(1 - t)^2/I_j + t^2/I_{j+1} between two knots, and how far sigmoid(z_m + offset) is from the forecast."""
    offset = (1.0 - t) * row[left] + t * row[left + 1]
    gap = bounded(zm + offset, MOST_INSIDE) - zp
    near, far = row[left + knots], row[left + knots + 1]
    return gap * gap + ((1.0 - t) * (1.0 - t) * far + t * t * near) / (near * far)


@large_kernel
def doubt_of_horizon(row: Vector, horizon: int, x: float, z: Vector, zm: float) -> float:
    """The variance of the horizon lane, and how far it is from the expert; z are the logits of the other lanes."""
    phi = scratch(AT_ONCE)
    var, at = 0.0, horizon + HORIZON_COVARIANCE
    phi[0] = 1.0
    horizon_features(x, z, phi)
    for i in unrolled(SIZE):
        var += row[at + entry_of(i, i)] * phi[i] * phi[i]
        for j in unrolled(i + 1, SIZE):
            var += 2.0 * row[at + entry_of(i, j)] * phi[i] * phi[j]
    return max(0.0, var) + squared_gap(horizon_logit(row, horizon, phi), zm)


@kernel
def doubt_of(found: Doubts, kappa: float) -> float:
    """The variance as the blocks have corrected it: they may widen all, and shrink only the guess about the delay."""
    return max(found.base * max(1.0, kappa), kappa * (found.base + found.ahead))


@kernel
def cell_of(clip: float, f: float, x: float) -> int:
    """The cell of a score."""
    if f <= clip:
        return 0
    if f >= 1.0 - clip:
        return CELLS - 1
    x = bounded(x, 5.999)
    return int((x + X_MAX) * 2.0) + 1


@kernel
def uneven(row: Vector, band: int, cell: int) -> float:
    """What neighboring scores leave open: the shrunken residual of the cell."""
    squares = row[band + SQUARES]
    excess = row[band + SPREAD] - math.sqrt(2.0 * squares)
    if excess <= 1e-9 * squares:  # and so while there are none
        return 0.0
    known = squares / excess
    variance = 1.0 / (row[band + CELL_H + cell] + max(1.0 / MOST_TAU2, known))
    d = row[band + CELL_S + cell] * variance
    return d * d + variance


@large_kernel
def band_of(
    row: Vector, band: int, clip: float, cells: int, horizon: int, x0: float, x1: float, receipt: Vector
) -> Band:
    """The band of a forecast that was just made, in the odds of the log."""
    found, kappa = doubts_of(row, clip, cells, horizon, x0, x1, receipt), exp(row[band + LN_KAPPA])
    f, p = clipped(receipt[SCORE], clip), receipt[FORECAST]
    lanes, local = doubt_of(found, kappa), uneven(row, band, cell_of(clip, f, x0 - x1))
    var = lanes + local
    half = HALF_WIDTH * math.sqrt(var)
    outcomes = (found.prior - var) / (var * found.prior * p * (1.0 - p))  # (1/var - 1/prior) / (p (1 - p))
    outcomes = min(row[N], outcomes)
    outcomes = max(0.0, outcomes)
    reason = 0.0
    if outcomes < FEW or outcomes * min(p, 1.0 - p) < FEW_OF_A_KIND:
        reason = 1.0
    elif row[band + TESTS] < UNTESTED:
        reason = 2.0
    elif kappa > DRIFTING or kappa * found.ahead > found.base or row[WEIGHT + 2] + row[WEIGHT + 3] > 0.5:
        reason = 3.0
    elif local > lanes:
        reason = 4.0
    wide, likelier = exp(min(MOST_HALF, half)), odds(p)
    low, high = likelier / (likelier + wide), likelier * wide / (1.0 + likelier * wide)
    return Band(inside(low), inside(high), outcomes, reason)


# ---- what the outcomes say of it ------------------------------------------------------------------------------------


@kernel
def mean_map(row: Vector, horizon: int) -> tuple[float, float, float]:
    """(a, c, b) of the mean of the six lanes: logit = a x + c g + b."""
    a = row[WEIGHT + 4] + row[WEIGHT + 5] * row[OPS_A]
    c, b = 0.0, row[WEIGHT + 5] * row[OPS_B]
    for k in range(KALMAN_LANES):
        w = row[WEIGHT + k]
        a += w * row[SLOPE + k]
        c += w * row[BEND + k]
        b += w * row[OFFSET + k]
    if awake(row, horizon):  # the weights of all seven sum to 1
        share = 1.0 / (1.0 - row[horizon + HORIZON_WEIGHT])
        a, c, b = a * share, c * share, b * share
    return a, c, b


@large_kernel
def doubt_now(
    row: Vector, band: int, clip: float, cells: int, horizon: int, x0: float, x1: float, receipt: Vector
) -> float:
    """The root of `doubt` of what the row forecasts now for the score of a receipt."""
    now = scratch(RECEIPT_WIDTH)
    for k in range(RECEIPT_WIDTH):
        now[k] = receipt[k]
    if row[N] != receipt[SEEN]:  # else nothing has moved since
        now[EXPERT] = mix(row, clip, x0, x1, horizon, now)
        now[FORECAST] = spline(row, clip, x0 - x1, cells, now)
    return math.sqrt(doubt_of(doubts_of(row, clip, cells, horizon, x0, x1, now), exp(row[band + LN_KAPPA])))


@large_kernel
def judge_block(row: Vector, band: int, s: float) -> None:
    """A block is full: compare it with the half-width s it was promised, and close it."""
    H = row[band + BLOCK_H]
    mean, noise = row[band + BLOCK_S] / H, 1.0 / H
    miss = 1.0 if mean * mean > HALF_WIDTH * HALF_WIDTH * (s * s + noise) else 0.0
    row[band + BLOCKS] += 1.0
    row[band + TESTS] += row[band + IS_TEST]
    row[band + OUTSIDE] += miss
    step = FIRST_STEP / (1.0 + row[band + BLOCKS] / 10.0)
    moved = row[band + LN_KAPPA] + max(LAST_STEP, step) * (miss - MISSES)
    moved = max(LEAST_KAPPA, moved)
    row[band + LN_KAPPA] = min(MOST_KAPPA, moved)
    row[band + OPENED] = -1.0


@large_kernel
def record_outcome(
    row: Vector, band: int, clip: float, cells: int, horizon: int, x0: float, x1: float, lesson: Lesson, receipt: Vector
) -> None:
    """One outcome for the record, with the row as the outcome finds it: before AUTO learns it."""
    n, seen, x, omega = row[N], receipt[SEEN], x0 - x1, lesson.omega
    f, p = clipped(receipt[SCORE], clip), inside(receipt[FORECAST])
    _, g = lane_features(clip, f, x0, x1)
    a, c, b = mean_map(row, horizon)
    opened = row[band + OPENED]
    if opened < 0.0:
        opened = n
        row[band + BLOCK_S] = row[band + BLOCK_H] = 0.0
        row[band + OPENED], row[band + IS_TEST] = n, 1.0 if seen >= max(KNOWN, KNOWN_SHARE * n) else 0.0
        row[band + MAP_A], row[band + MAP_C], row[band + MAP_B] = a, c, b
        row[band + OPENING] = doubt_now(row, band, clip, cells, horizon, x0, x1, receipt)
    e = p
    if seen > opened and n > opened:  # issued since: what was learnt since is taken back, all of it if n = seen
        part = 1.0 if seen >= n else (seen - opened) / (n - opened)
        learnt = (a - row[band + MAP_A]) * x + (c - row[band + MAP_C]) * g + (b - row[band + MAP_B])
        # sigmoid(logit p - part learnt), without the logarithm
        e = inside(p / (p + (1.0 - p) * exp(part * learnt)))
    row[band + BLOCK_S] += omega * (lesson.y - e)
    row[band + BLOCK_H] += omega * (e * (1.0 - e))
    H, s = row[band + BLOCK_H], row[band + OPENING]
    if H >= MOST_BLOCK or (H >= LEAST_BLOCK and H * s * s >= 1.0):
        now = doubt_now(row, band, clip, cells, horizon, x0, x1, receipt)
        judge_block(row, band, 0.5 * (s + now))
    cell = cell_of(clip, f, x)
    r, h = omega * (lesson.y - p), omega * (p * (1.0 - p))
    s_c, h_c = row[band + CELL_S + cell], row[band + CELL_H + cell]
    row[band + SPREAD] += 2.0 * s_c * r + r * r - h
    row[band + SQUARES] += 2.0 * h_c * h + h * h
    row[band + CELL_S + cell] = s_c + r
    row[band + CELL_H + cell] = h_c + h


# ---- for hosts ------------------------------------------------------------------------------------------------------


def new_record() -> list[float]:
    """The record of a stream that has seen nothing."""
    record = [0.0] * RECORD
    record[OPENED] = -1.0
    return record


def record_limits() -> list[Block]:
    """What the numbers of a record can be."""
    far = 1e300  # sums of squares, which no line of n bounds
    few = Limit("a block's sum of residuals", 0.0, 0.0, 1.0, 1.0), Limit("information of a block", 0.0, 0.0, rises=0.26)
    return [
        Block((Limit("ln kappa", LEAST_KAPPA, MOST_KAPPA), Limit("blocks", 0.0, 0.0, rises=1.0, whole=True))),
        Block((Limit("blocks of the record", 0.0, 0.0, rises=1.0, whole=True, under=-1),)),
        Block((Limit("blocks outside", 0.0, 0.0, rises=1.0, whole=True, under=-2),)),
        Block((*few, Limit("an open block", -1.0, 0.0, rises=1.0, whole=True), Limit("a test", 0.0, 1.0, whole=True))),
        Block((Limit("a mean map", -MOST_PARAMETER, MOST_PARAMETER),), 3),
        Block((Limit("half a width", 0.0, 1e9, rises=1e3),)),
        Block((Limit("spread of cells", -far, far), Limit("squares of cells", 0.0, far))),
        Block((Limit("residuals of cells", 0.0, 0.0, 1.0, 1.0),), CELLS),
        Block((Limit("information of cells", 0.0, 0.0, rises=0.26),), CELLS),
    ]


def params_of_record(record: Any) -> dict[str, Any]:
    """What `params` shows of one record."""
    return {"blocks": int(record[BLOCKS]), "outside": int(record[OUTSIDE]), "kappa": exp(float(record[LN_KAPPA]))}


def columns_of_records(records: Any) -> dict[str, Any]:
    """The same of many, a column for each."""
    kappa = np.array([exp(number) for number in records[:, LN_KAPPA].tolist()])
    return {
        "blocks": records[:, BLOCKS].astype(np.int64),
        "outside": records[:, OUTSIDE].astype(np.int64),
        "kappa": kappa,
    }
