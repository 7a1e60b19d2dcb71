"""Mixtures: several learners side by side, weighted by how well each has forecast.

Nobody knows beforehand how fast a stream will drift. `Lanes` runs a learner for each answer and lets the outcomes
choose. In a row, from `THETA` on: 36 numbers of the Kalman lanes, 6 weights, and theta and A of the paper's ONS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .algebra import sigmoid
from .features import Beta
from .formula import LARGEST_EXPONENT, Expression, Formula, at_the_clip, clamped, not_below, sigmoid_of
from .jit import kernel, large_kernel
from .layout import THETA
from .learners import LANES, ons_step
from .parts import Columns, Features, Learner
from .receipt import CLIPPED_SCORE, EXPERT, LANE, PAPER_LANE, SEEN

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

BLEND = 0.3  # of the way from a pool's variances, which are too small for one stream, to those of a new stream

# ---- the row, lane-minor so that each field of the four Kalman lanes is one vector ---------------------------------
SLOPE, BEND, OFFSET = THETA, THETA + 4, THETA + 8
VAR_A, COV_AC, COV_AB = THETA + 12, THETA + 16, THETA + 20
VAR_C, COV_CB, VAR_B = THETA + 24, THETA + 28, THETA + 32
WEIGHT = THETA + 36
OPS_A, OPS_B, OPS_MATRIX = THETA + 42, THETA + 43, THETA + 44  # as `ons_step` lays them


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
    receipt: ClassVar[tuple[int, ...]] = (*range(LANE, LANE + 4), PAPER_LANE, EXPERT)

    def check_features(self, features: Features | None) -> None:
        if type(features) is not Beta or features.start != Beta.start:
            raise InvalidInput(f"Lanes needs Beta features that start at the identity {Beta.start}, got {features}")
        if features.clip > MOST_CLIP:
            raise InvalidInput(f"Lanes needs Beta features with a clip of at most {MOST_CLIP:g}, got {features.clip:g}")

    def initial(self, features: Features) -> list[float]:  # noqa: ARG002 - they all start at the identity
        theta, P = (1.0, 0.0, 0.0), (PRIOR_AC, 0.0, 0.0, PRIOR_AC, 0.0, PRIOR_B)
        kalman = [number for number in (*theta, *P) for _ in range(4)]
        return [*kalman, *[1.0 / 6.0] * 6, 1.0, 0.0, ONS_RHO, 0.0, ONS_RHO]

    def check(self, row: Sequence[float], features: Features, n: float) -> None:  # noqa: ARG002 - one signature
        weights = row[WEIGHT : WEIGHT + 6]
        if not all(0.01 / (n + 1.0) <= w <= 1.0 for w in weights) or abs(math.fsum(weights) - 1.0) > 1e-9:
            raise InvalidInput(
                f"row must have weights of lanes that sum to one, none of them lost, got {list(weights)}"
            )
        if not all(abs(value) <= 1e6 for value in (*row[SLOPE:VAR_A], row[OPS_A], row[OPS_B])):
            raise InvalidInput("row must have lanes with parameters in [-1e+06, 1e+06], got others")
        for k in range(4):
            aa, cc, bb = row[VAR_A + k], row[VAR_C + k], row[VAR_B + k]
            bounded = 0.0 < aa <= 1.1 * CAP_AC and 0.0 < cc <= 1.1 * CAP_AC and 0.0 < bb <= 1.1 * CAP_B
            covariances = ((row[COV_AC + k], aa * cc), (row[COV_AB + k], aa * bb), (row[COV_CB + k], cc * bb))
            if not bounded or not all(c * c <= product * (1.0 + 1e-6) for c, product in covariances):
                raise InvalidInput("row must have lanes with positive variances up to their cap, got others")
        h00, h01, h11 = row[OPS_MATRIX : OPS_MATRIX + 3]
        if not (0.0 < h00 < 1e150 and 0.0 < h11 < 1e150 and h01 * h01 < h00 * h11):
            raise InvalidInput("row must have a lane of OPS with a positive definite matrix, got another")

    def params(self, row: Any, features: Features) -> dict[str, Any]:  # noqa: ARG002 - one signature
        """Weighted means over the lanes of slope a, offset b and bend c, and the weight of each lane by its name."""
        weights = list(row[WEIGHT : WEIGHT + 6])
        lanes = {
            "a": [*row[SLOPE : SLOPE + 4], 1.0, row[OPS_A]],
            "b": [*row[OFFSET : OFFSET + 4], 0.0, row[OPS_B]],
            "c": [*row[BEND : BEND + 4], 0.0, 0.0],
        }
        means = {
            name: _sum(w * value for w, value in zip(weights, values, strict=True)) for name, values in lanes.items()
        }
        return {**means, "lanes": dict(zip(LANE_NAMES, weights, strict=True))}

    def params_of_rows(self, rows: Vector, features: Features) -> Columns:
        """The weight of each lane is a column of its own."""
        params = self.params(rows.T, features)
        return {name: np.array(column) for name, column in (params | params.pop("lanes")).items() if name != "lanes"}

    def export(self, formula: Formula, row: list[float], features: Features, *, exact: bool) -> None:  # noqa: ARG002
        """`mix` on the frozen row."""
        if not isinstance(features, Beta):  # pragma: no cover - `check_features` has seen to it
            raise TypeError(features)
        clip, weights = features.clip, row[WEIGHT : WEIGHT + 6]
        slope, bend, offset = (row[at : at + 4] for at in (SLOPE, BEND, OFFSET))
        ops_a, ops_b = row[OPS_A], row[OPS_B]
        formula.numbers.update(slope=slope, bend=bend, offset=offset, weight=weights, ops=[ops_a, ops_b], clip=clip)
        formula.add("f", clamped("score", clip, 1.0 - clip))
        formula.add("lf", ("ln", "f"))
        formula.add("lg", ("ln", ("-", 1.0, "f")))
        formula.add("logit", ("-", "lf", "lg"))
        formula.add("x", at_the_clip(clip, -X_ATOM, X_ATOM, "logit"))
        formula.add("g", at_the_clip(clip, G_ATOM, G_ATOM, ("+", "lf", "lg", LN4)))
        for k in range(4):
            formula.add(f"lane{k}", _squashed(("+", ("*", slope[k], "x"), ("*", bend[k], "g"), offset[k])))
        formula.add("ops", _squashed(("+", ("*", ops_a, "logit"), ops_b)))
        said = ("lane0", "lane1", "lane2", "lane3", "f", "ops")
        mean = ("+", *(("*", w, name) for w, name in zip(weights, said, strict=True)))
        formula.add("expert", clamped(mean, EPS, LARGEST))


def _squashed(z: Expression) -> Expression:
    return clamped(sigmoid_of(not_below(z, -LARGEST_EXPONENT)), EPS, LARGEST)


def _sum(terms: Iterable[Any]) -> Any:
    """A sum with its rounding errors added back (Knuth's two-sum): as good as math.fsum here, and good for arrays."""
    total = lost = 0.0
    for term in terms:
        after = total + term
        came = after - total
        lost += (total - (after - came)) + (term - came)
        total = after
    return total + lost


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
def ask_lanes(row: Vector, x: float, g: float, logit: float, receipt: Vector, at: int) -> None:
    """What the five lanes that learn say now, into the receipt."""
    receipt[at + LANE] = squashed(row[SLOPE] * x + row[BEND] * g + row[OFFSET])
    receipt[at + LANE + 1] = squashed(row[SLOPE + 1] * x + row[BEND + 1] * g + row[OFFSET + 1])
    receipt[at + LANE + 2] = squashed(row[SLOPE + 2] * x + row[BEND + 2] * g + row[OFFSET + 2])
    receipt[at + LANE + 3] = squashed(row[SLOPE + 3] * x + row[BEND + 3] * g + row[OFFSET + 3])
    receipt[at + PAPER_LANE] = squashed(row[OPS_A] * logit + row[OPS_B])


@large_kernel
def mix(row: Vector, clip: float, x0: float, x1: float, receipt: Vector, at: int) -> float:
    """The expert, for a receipt that holds f; what each lane says is put in the receipt."""
    f = receipt[at + CLIPPED_SCORE]
    x, g = lane_features(clip, f, x0, x1)
    ask_lanes(row, x, g, x0 - x1, receipt, at)
    return inside(
        row[WEIGHT] * receipt[at + LANE]
        + row[WEIGHT + 1] * receipt[at + LANE + 1]
        + row[WEIGHT + 2] * receipt[at + LANE + 2]
        + row[WEIGHT + 3] * receipt[at + LANE + 3]
        + row[WEIGHT + 4] * f
        + row[WEIGHT + 5] * receipt[at + PAPER_LANE]
    )


# ---- learning ----------------------------------------------------------------------------------------------------


@large_kernel
def lanes_step(row: Vector, clip: float, x0: float, x1: float, n: float, y: float, receipt: Vector, at: int) -> None:
    """Learn y, the n-th outcome: the weights judge what was issued, the lanes move from where they are now."""
    x, g = lane_features(clip, receipt[at + CLIPPED_SCORE], x0, x1)
    lag = n - 1.0 - receipt[at + SEEN]
    weigh_lanes(row, n, lag, y, receipt, at)
    if lag > 0.0:  # else nothing has moved, and what was issued is what they say now
        ask_lanes(row, x, g, x0 - x1, receipt, at)
    e0, e1, e2, e3 = receipt[at + LANE], receipt[at + LANE + 1], receipt[at + LANE + 2], receipt[at + LANE + 3]
    kalman(row, 0, x, g, e0, y, 0.0, 0.0)
    kalman(row, 1, x, g, e1, y, SLOW * PRIOR_AC, SLOW * PRIOR_B)
    kalman(row, 2, x, g, e2, y, FAST * PRIOR_AC, FAST * PRIOR_B)
    kalman(row, 3, x, g, e3, y, 0.0, LEVEL * PRIOR_B)
    paper_step(row, x0 - x1, receipt[at + PAPER_LANE], y)


@kernel
def likelihood(p: float, y: float) -> float:
    """The probability that p gave to y."""
    return p if y == 1.0 else 1.0 - p


@kernel
def weigh_lanes(row: Vector, n: float, lag: float, y: float, receipt: Vector, at: int) -> None:
    """w_k <- (1 - alpha) w_k L_k / sum + alpha/6;  L_k tempered, and all pulled towards ONS, when the label is late."""
    l0, l1 = likelihood(receipt[at + LANE], y), likelihood(receipt[at + LANE + 1], y)
    l2, l3 = likelihood(receipt[at + LANE + 2], y), likelihood(receipt[at + LANE + 3], y)
    l4, l5 = likelihood(receipt[at + CLIPPED_SCORE], y), likelihood(receipt[at + PAPER_LANE], y)
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
    aa, ac, ab = row[VAR_A + k], row[COV_AC + k], row[COV_AB + k]
    cc, cb, bb = row[VAR_C + k], row[COV_CB + k], row[VAR_B + k]
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
    row[VAR_A + k] = aa + drift_ac if aa < CAP_AC else aa
    row[COV_AC + k] = ac - da * kc
    row[COV_AB + k] = ab - da * kb
    row[VAR_C + k] = cc + drift_ac if cc < CAP_AC else cc
    row[COV_CB + k] = cb - dc * kb
    row[VAR_B + k] = bb + drift_b if bb < CAP_B else bb


@kernel
def paper_step(row: Vector, x: float, o: float, y: float) -> None:
    """The paper's step on (x, 1) with its hyper-parameters; o is what this lane says now."""
    if o <= EPS or o >= 1.0 - EPS:  # the gradient is that of the lane itself, unclipped
        o = sigmoid(row[OPS_A] * x + row[OPS_B])
    ons_step(row, OPS_A, 2.0, x, 1.0, 0.0, o - y, ONS_GAIN, ONS_RADIUS)


@kernel
def lanes_start(pool: Vector, row: Vector) -> None:
    """A new stream starts at the pool's parameters with variances between the pool's and its own; weights as new."""
    for i in range(SLOPE, VAR_A):
        row[i] = pool[i]
    for i in range(VAR_A, WEIGHT):
        row[i] = pool[i] + BLEND * (row[i] - pool[i])
    row[OPS_A], row[OPS_B] = pool[OPS_A], pool[OPS_B]
