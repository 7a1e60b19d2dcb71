"""Mixtures: several learners side by side, weighted by how well each has forecast.

Nobody knows beforehand how fast a stream will drift. `Lanes` runs a learner for each answer and lets the outcomes
choose. In a row, from `THETA` on: 36 numbers of the Kalman lanes, 6 weights, and theta and A of the paper's ONS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .features import sigmoid
from .jit import kernel, large_kernel
from .learners import LANES, THETA, ons_step

LANE_NAMES = ("still", "slow", "fast", "level only", "raw score", "paper's OPS")

EPS, LARGEST = 1e-7, 1.0 - 1e-7  # every probability inside is in [EPS, 1 - EPS]: a surprise costs at most 16 nats
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
SHARE = 0.5  # of the weights, SHARE/n is shared out evenly after the n-th outcome, so that no lane is ever lost
LAG_TEMPER, LAG_PULL, MOST_PULL = 10.0, 0.05, 0.5

# ---- the row, lane-minor so that each field of the four Kalman lanes is one vector ---------------------------------
SLOPE, BEND, OFFSET = THETA, THETA + 4, THETA + 8
PAA, PAC, PAB, PCC, PCB, PBB = THETA + 12, THETA + 16, THETA + 20, THETA + 24, THETA + 28, THETA + 32
WEIGHT = THETA + 36
OA, OB, H00, H01, H11 = THETA + 42, THETA + 43, THETA + 44, THETA + 45, THETA + 46  # as `ons_step` lays them

# ---- the receipt: what an event must remember from its forecast to its outcome -----------------------------------
SEEN = 0  # outcomes learnt when the forecast was made
F = 1  # the clipped score
E = 2  # the four Kalman lanes
PAPER = 6  # the paper's ONS
M = 7  # the expert
S, R = 8, 9  # spline on the score, spline on the expert
P = 10  # the forecast
SCORE = 11  # the score as it came
RECEIPT_WIDTH = 12


@dataclass(frozen=True)
class Lanes:
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

    A late outcome judges what was issued and moves what is there now; the later it is (in outcomes learnt since),
    the less it moves the weights, and the more it pulls them towards the paper's OPS.

    >>> from calibeat import Beta, Calibrator, Lanes, Method
    >>> cal = Calibrator(Method(Beta(), Lanes()))
    >>> p = cal.run([0.8, 0.6, 0.9, 0.7] * 50, [1, 0, 0, 0] * 50)      # a score that is far too high
    >>> lanes = cal.params["lanes"]
    >>> max(lanes, key=lanes.get), round(lanes["raw score"], 3)
    ('still', 0.001)

    References: Herbster & Warmuth (1998), fixed share; Vovk (1990); Fahrmeir (1992), Kalman filters for logits;
    Gupta & Ramdas (2023), Algorithm 1.
    """

    code: ClassVar[float] = LANES

    @property
    def initial(self) -> list[float]:
        """The numbers of this part in the row of a stream that has seen nothing."""
        theta, P = (1.0, 0.0, 0.0), (PRIOR_AC, 0.0, 0.0, PRIOR_AC, 0.0, PRIOR_B)
        kalman = [number for number in (*theta, *P) for _ in range(4)]
        return [*kalman, *[1.0 / 6.0] * 6, 1.0, 0.0, ONS_RHO, 0.0, ONS_RHO]


def lanes_params(row: Any) -> dict[str, Any]:
    """Weighted means over the lanes of slope a, offset b and bend c, and the weight of each lane by its name.

    The elements of the row are numbers, or arrays with an element for each of many streams.
    """
    weights = list(row[WEIGHT : WEIGHT + 6])
    means = {
        name: _sum(w * value for w, value in zip(weights, [*row[at : at + 4], *others], strict=True))
        for name, at, others in (
            ("a", SLOPE, (1.0, row[OA])), ("b", OFFSET, (0.0, row[OB])), ("c", BEND, (0.0, 0.0)),
        )
    }  # fmt: skip
    return {**means, "lanes": dict(zip(LANE_NAMES, weights, strict=True))}


def _sum(terms: Iterable[Any]) -> Any:
    """A sum with its rounding errors added back (Knuth's two-sum): as good as math.fsum here, and good for arrays."""
    total = lost = 0.0
    for term in terms:
        after = total + term
        came = after - total
        lost += (total - (after - came)) + (term - came)
        total = after
    return total + lost


def check_lanes(row: Sequence[float], n: float) -> None:
    """Raise `InvalidInput` unless the weights, parameters and variances of a row from outside are such."""
    weights = row[WEIGHT : WEIGHT + 6]
    if not all(0.01 / (n + 1.0) <= w <= 1.0 for w in weights) or abs(math.fsum(weights) - 1.0) > 1e-9:
        raise InvalidInput(f"row must have weights of lanes that sum to one, none of them lost, got {list(weights)}")
    if not all(abs(value) <= 1e6 for value in (*row[SLOPE:PAA], row[OA], row[OB])):
        raise InvalidInput("row must have lanes with parameters in [-1e+06, 1e+06], got others")
    for k in range(4):
        aa, cc, bb = row[PAA + k], row[PCC + k], row[PBB + k]
        bounded = 0.0 < aa <= 1.1 * CAP_AC and 0.0 < cc <= 1.1 * CAP_AC and 0.0 < bb <= 1.1 * CAP_B
        covariances = ((row[PAC + k], aa * cc), (row[PAB + k], aa * bb), (row[PCB + k], cc * bb))
        if not bounded or not all(c * c <= product * (1.0 + 1e-6) for c, product in covariances):
            raise InvalidInput("row must have lanes with positive variances up to their cap, got others")
    h00, h01, h11 = row[H00], row[H01], row[H11]
    if not (0.0 < h00 < 1e150 and 0.0 < h11 < 1e150 and h01 * h01 < h00 * h11):
        raise InvalidInput("row must have a lane of OPS with a positive definite matrix, got another")


def receipt_is_sound(receipt: Sequence[float], *, lanes: bool, spline: bool) -> bool:
    """Whether each probability that a mixture will look at again is one that it can have issued."""
    issued = [*(range(E, M) if lanes else ()), M, *((S, R) if spline else ())]
    return all(EPS <= receipt[at] <= LARGEST for at in issued)


# ---- small things ------------------------------------------------------------------------------------------------


@kernel
def inside(p: float) -> float:
    """p clipped to [EPS, 1 - EPS]."""
    p = p if p > EPS else EPS
    return p if p < LARGEST else LARGEST


@kernel
def squashed(z: float) -> float:
    """inside(sigmoid(z)), without a branch on the sign of z, which would be a coin toss for the processor."""
    p = 1.0 / (1.0 + math.exp(-z if z > -700.0 else 700.0))
    p = p if p > EPS else EPS
    return p if p < LARGEST else LARGEST


@kernel
def lane_features(clip: float, f: float, x0: float, x1: float) -> tuple[float, float]:
    """(x, g) of the Kalman lanes."""
    if f <= clip:
        return -X_ATOM, G_ATOM
    if f >= 1.0 - clip:
        return X_ATOM, G_ATOM
    return x0 - x1, x0 + x1 + LN4


# ---- forecast ----------------------------------------------------------------------------------------------------


@kernel
def ask_lanes(row: Vector, x: float, g: float, logit: float, q: Vector, at: int) -> None:
    """What the five lanes that learn say now, into the receipt."""
    q[at + E] = squashed(row[SLOPE] * x + row[BEND] * g + row[OFFSET])
    q[at + E + 1] = squashed(row[SLOPE + 1] * x + row[BEND + 1] * g + row[OFFSET + 1])
    q[at + E + 2] = squashed(row[SLOPE + 2] * x + row[BEND + 2] * g + row[OFFSET + 2])
    q[at + E + 3] = squashed(row[SLOPE + 3] * x + row[BEND + 3] * g + row[OFFSET + 3])
    q[at + PAPER] = squashed(row[OA] * logit + row[OB])


@large_kernel
def mix(row: Vector, clip: float, x0: float, x1: float, q: Vector, at: int) -> float:
    """The expert, for a receipt that holds f; what each lane says is put in the receipt."""
    f = q[at + F]
    x, g = lane_features(clip, f, x0, x1)
    ask_lanes(row, x, g, x0 - x1, q, at)
    return inside(
        row[WEIGHT] * q[at + E]
        + row[WEIGHT + 1] * q[at + E + 1]
        + row[WEIGHT + 2] * q[at + E + 2]
        + row[WEIGHT + 3] * q[at + E + 3]
        + row[WEIGHT + 4] * f
        + row[WEIGHT + 5] * q[at + PAPER]
    )


# ---- learning ----------------------------------------------------------------------------------------------------


@large_kernel
def lanes_step(row: Vector, clip: float, x0: float, x1: float, n: float, y: float, q: Vector, at: int) -> None:
    """Learn y, the n-th outcome: the weights judge what was issued, the lanes move from where they are now."""
    x, g = lane_features(clip, q[at + F], x0, x1)
    lag = n - 1.0 - q[at + SEEN]
    weigh_lanes(row, n, lag, y, q, at)
    if lag > 0.0:  # else nothing has moved, and what was issued is what they say now
        ask_lanes(row, x, g, x0 - x1, q, at)
    e0, e1, e2, e3 = q[at + E], q[at + E + 1], q[at + E + 2], q[at + E + 3]
    kalman(row, 0, x, g, e0, y, 0.0, 0.0)
    kalman(row, 1, x, g, e1, y, SLOW * PRIOR_AC, SLOW * PRIOR_B)
    kalman(row, 2, x, g, e2, y, FAST * PRIOR_AC, FAST * PRIOR_B)
    kalman(row, 3, x, g, e3, y, 0.0, LEVEL * PRIOR_B)
    paper_step(row, x0 - x1, q[at + PAPER], y)


@kernel
def likelihood(p: float, y: float) -> float:
    """The probability that p gave to y."""
    return p if y == 1.0 else 1.0 - p


@kernel
def weigh_lanes(row: Vector, n: float, lag: float, y: float, q: Vector, at: int) -> None:
    """w_k <- (1 - alpha) w_k L_k / sum + alpha/6;  L_k tempered, and all pulled towards ONS, when the label is late."""
    l0, l1, l2 = likelihood(q[at + E], y), likelihood(q[at + E + 1], y), likelihood(q[at + E + 2], y)
    l3, l4, l5 = likelihood(q[at + E + 3], y), likelihood(q[at + F], y), likelihood(q[at + PAPER], y)
    pull = 0.0
    if lag > 0.0:  # while a label was under way, as many events as the lag shared one mistake
        t = 1.0 / (1.0 + lag / LAG_TEMPER)
        l0, l1, l2 = math.pow(l0, t), math.pow(l1, t), math.pow(l2, t)
        l3, l4, l5 = math.pow(l3, t), math.pow(l4, t), math.pow(l5, t)
        pull = pull_of(lag, n)
    u0, u1, u2 = row[WEIGHT] * l0, row[WEIGHT + 1] * l1, row[WEIGHT + 2] * l2
    u3, u4, u5 = row[WEIGHT + 3] * l3, row[WEIGHT + 4] * l4, row[WEIGHT + 5] * l5
    alpha = SHARE / n
    keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1 + u2 + u3 + u4 + u5)
    gift = (1.0 - pull) * (alpha / 6.0)
    row[WEIGHT] = keep * u0 + gift
    row[WEIGHT + 1] = keep * u1 + gift
    row[WEIGHT + 2] = keep * u2 + gift
    row[WEIGHT + 3] = keep * u3 + gift
    row[WEIGHT + 4] = keep * u4 + gift
    row[WEIGHT + 5] = keep * u5 + gift + pull


@kernel
def pull_of(lag: float, n: float) -> float:
    """How far a late label pulls the weights back to the paper's method: by how few lags fit in the past."""
    pull = LAG_PULL * lag / n
    return pull if pull < MOST_PULL else MOST_PULL


@kernel
def kalman(row: Vector, k: int, x: float, g: float, e: float, y: float, drift_ac: float, drift_b: float) -> None:
    """One outcome for lane k, which says e: without branches, so that the four lanes can go together as vectors."""
    aa, ac, ab = row[PAA + k], row[PAC + k], row[PAB + k]
    cc, cb, bb = row[PCC + k], row[PCB + k], row[PBB + k]
    ka = aa * x + ac * g + ab
    kc = ac * x + cc * g + cb
    kb = ab * x + cb * g + bb
    var = ka * x + kc * g + kb
    var = var if var > 0.0 else 0.0
    h = e * (1.0 - e)
    d = 1.0 / (1.0 + h * var)
    step = (y - e) * d
    # if |step var| > STEP: step *= STEP / |step var|
    move = abs(step * var)
    step *= STEP / (move if move > STEP else STEP)
    row[SLOPE + k] += ka * step
    row[BEND + k] += kc * step
    row[OFFSET + k] += kb * step
    d *= h
    da, dc = d * ka, d * kc
    aa -= da * ka
    cc -= dc * kc
    bb -= d * kb * kb
    row[PAA + k] = aa + drift_ac if aa < CAP_AC else aa
    row[PAC + k] = ac - da * kc
    row[PAB + k] = ab - da * kb
    row[PCC + k] = cc + drift_ac if cc < CAP_AC else cc
    row[PCB + k] = cb - dc * kb
    row[PBB + k] = bb + drift_b if bb < CAP_B else bb


@kernel
def paper_step(row: Vector, x: float, o: float, y: float) -> None:
    """The paper's step on (x, 1) with its hyper-parameters; o is what this lane says now."""
    if o <= EPS or o >= 1.0 - EPS:  # the gradient is that of the lane itself, unclipped
        o = sigmoid(row[OA] * x + row[OB])
    ons_step(row, OA, 2.0, x, 1.0, 0.0, o - y, ONS_GAIN, ONS_RADIUS)


# ---- evidence ----------------------------------------------------------------------------------------------------


@kernel
def weigh_evidence(row: Vector, at: int, y: float, p: float, f: float, score: float) -> None:
    """Multiply the likelihood ratio of forecast p over the score into row[at + 1]; overflow goes to row[at] as a log.

    Of the score and its clipped self f, the one that did better counts: finite, and if the score is the true
    probability s < clip, then s p/clip + (1 - s) (1 - p)/(1 - s) <= 1, so the product is still no winning bet.
    The logarithm of every ratio would be dearer than a product that is folded away now and then.
    """
    raw, clipped = likelihood(score, y), likelihood(f, y)
    product = row[at + 1] * (likelihood(inside(p), y) / (raw if raw > clipped else clipped))
    if product < 1e-100 or product > 1e100:
        row[at] += math.log(product)
        product = 1.0
    row[at + 1] = product
