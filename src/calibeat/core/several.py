r"""Several models: the scores of k models for the same event become one probability.

Each model has a row of AUTO. Around them lies one layer: two regressions over all scores, the *lanes*, and a mixture.
With p_j what AUTO forecasts from the score of model j, z_j = logit p_j and x_j the logit of the score itself::

    phi   = (1; z_1..z_k; x_1..x_k; u_1..u_k)      u_j = 1, z_j = mean of the other z, x_j = 0 where score j is missing
    e_l   = sigmoid(theta_l . phi)                 l = still, fast: a Kalman filter each, as AUTO's horizon lane
    m     = sum w_i (p_1..p_k, e_still, e_fast)_i / sum w_i         over those that are there
    t     = sigmoid(logit m + offset(m))           eleven knots, as AUTO's spline on the expert
    p     = v_0 m + v_1 t

The weights w and v follow the likelihoods, as AUTO's do; a part whose score is missing sleeps and keeps its weight.
So m loses little to AUTO on the best single score, whatever happens (`bounds.several`), and the lanes find the best
combination where there is one.

**Late outcomes.** Weights are tempered as AUTO's. The lanes learn from what was issued, more slowly the later outcomes
are. Of a *beginner's* forecast (`auto`) they learn from what AUTO forecasts now.

In a row the numbers of the layer stand behind the counts, from `THETA` on; then come the k rows of AUTO. A receipt is
[n, m, t, p, e_still, e_fast] and the k receipts of AUTO. A score that is missing is -1 there, and all else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.types import Table, Vector

from .algebra import exp, exps, lns
from .auto import (
    HORIZON_CAP,
    HORIZON_PRIOR,
    HORIZON_STEP,
    LAZY,
    MOST_LANE_LOGIT,
    MOST_SCORE_LOGIT,
    SHARE,
    bounded,
    flatten,
    inside,
    is_beginner,
    likelihood,
    odds,
    squashed,
    staleness,
)
from .calibeating import SPLINE
from .features import BETA, features_of
from .kernel import Asked, play, settle_plain
from .kernel import ask as ask_auto
from .layout import HORIZON_WIDTH, THETA, N, Spec, T
from .learners import LANES
from .limits import MOST_COUNT, MOST_PARAMETER, Block, Limit, matrices, tempering, weights
from .method import AUTO, params_of
from .receipt import FORECAST, RECEIPT_WIDTH, SCORE, SEEN
from .spline import EXPERT_KNOTS, INFORMATION, knot, knot_limits, move_knots, shifted
from .subset import blank, kernel, large_kernel, loop

MOST_MODELS = 16
PRIOR, CAP, STEP = HORIZON_PRIOR, HORIZON_CAP, HORIZON_STEP  # of each coefficient, as of the horizon lane
FAST_DRIFT = 1e-3 * HORIZON_PRIOR  # of each variance of the fast lane per outcome; the still lane has none
STACK_LAG = 100.0  # the mean lag at which the lanes learn half as fast
LAG_MEMORY = 1000.0  # outcomes that the mean lag looks back on
MISSING = -1.0  # as a score of a receipt

# ---- the layer in a row ----------------------------------------------------------------------------------------------
STALENESS, TEMPER = THETA, THETA + 1  # of the weights w
SPLIT = THETA + 2  # v, of m and of the spline
SPLIT_STALENESS, SPLIT_TEMPER = THETA + 4, THETA + 5
LAG = THETA + 6  # mean lag
OFFSETS, KNOWN = THETA + 7, THETA + 18  # of the spline's knots, and their information
WEIGHTS = THETA + 29  # w: of the k models, still, fast; then come theta and the covariances, lane-minor

# ---- a receipt -------------------------------------------------------------------------------------------------------
MIXED, CORRECTED, ISSUED, STILL, FAST = 1, 2, 3, 4, 5  # behind `SEEN`: m, t, p and what the lanes said
OWN = 6  # AUTO's receipts
MOST_NUMBERS = OWN + RECEIPT_WIDTH * MOST_MODELS

# ---- room to work in: what an event is to the lanes, and AUTO's features of each score ------------------------------
MOST_TERMS = 3 * MOST_MODELS + 1  # of phi
FEATURES = MOST_TERMS  # x0 and x1 of each model
NOW = FEATURES + 2 * MOST_MODELS  # what each AUTO forecasts now, for a beginner's forecast
ROOM = NOW + MOST_MODELS

# ---- AUTO's rows: constants, so that the compiler leaves out all that AUTO does not do ------------------------------
AUTO_CLIP = 1e-5
AUTO_WIDTH, AUTO_CELLS, AUTO_EVIDENCE = 178, 59, 140
AUTO_HORIZON = AUTO_WIDTH - HORIZON_WIDTH


@kernel
def auto_spec() -> Spec:
    """The spec of AUTO, number by number in the order of `Spec`."""
    return Spec(
        BETA, 3, AUTO_CLIP, 1.0, 0, LANES, 0.0, 0.0, 0.0, SPLINE, 10.0, 0.0, 0.0, False, AUTO_CELLS, RECEIPT_WIDTH,
        AUTO_EVIDENCE, True, False, 0, 0.0, 0.0, 0.0, 0, AUTO_HORIZON, 0, 0, 0, 0,
    )  # fmt: skip


# ---- places ----------------------------------------------------------------------------------------------------------


@kernel
def terms(k: int) -> int:
    """d, how many numbers phi has."""
    return 3 * k + 1


@kernel
def thetas(k: int) -> int:
    """Where the coefficients stand: theta_i of still, theta_i of fast."""
    return WEIGHTS + k + 2


@kernel
def covariances(k: int) -> int:
    """Where the upper triangles of the covariances stand, by rows: an entry of still, the same of fast."""
    return thetas(k) + 2 * terms(k)


@kernel
def autos(k: int) -> int:
    """Where the rows of AUTO begin."""
    return covariances(k) + terms(k) * (terms(k) + 1)


@kernel
def is_given(receipt: Vector, j: int) -> bool:
    """Whether model j had a score."""
    return receipt[OWN + RECEIPT_WIDTH * j + SCORE] >= 0.0


@kernel
def issued_by(receipt: Vector, j: int) -> float:
    """What AUTO forecast from the score of model j."""
    return receipt[OWN + RECEIPT_WIDTH * j + FORECAST]


@kernel
def put_scores(k: int, scores: Vector, receipt: Vector) -> None:
    """The scores of an event into its receipt; NaN is missing."""
    for j in range(k):
        own = OWN + RECEIPT_WIDTH * j
        if scores[j] == scores[j]:
            receipt[own + SCORE] = scores[j]
        else:
            for i in range(RECEIPT_WIDTH):
                receipt[own + i] = 0.0
            receipt[own + SCORE] = MISSING


# ---- forecast --------------------------------------------------------------------------------------------------------


@loop
def ask(k: int, row: Vector, receipt: Vector, room: Vector) -> float:
    """The forecast, for a receipt that holds the scores; the rest of the receipt is written.

    `room` is left as `settle` wants it of an event whose outcome comes at once.
    """
    at = autos(k)
    for j in range(k):
        if is_given(receipt, j):
            own = receipt[OWN + RECEIPT_WIDTH * j : OWN + RECEIPT_WIDTH * (j + 1)]
            mine = row[at + AUTO_WIDTH * j : at + AUTO_WIDTH * (j + 1)]
            asked = ask_auto(auto_spec(), mine, own[SCORE], own)
            play(auto_spec(), mine, asked, 0.0, own)
            room[FEATURES + 2 * j], room[FEATURES + 2 * j + 1] = asked.x0, asked.x1
            room[NOW + j] = own[FORECAST]
    look(k, receipt, room)
    e0, e1 = lanes_say(k, row, room)
    m = mixture(k, row, receipt, room, e0, e1)
    t = spline(row, m)
    receipt[SEEN], receipt[MIXED], receipt[CORRECTED] = row[N], m, t
    receipt[STILL], receipt[FAST] = e0, e1
    p = inside(row[SPLIT] * m + row[SPLIT + 1] * t)
    receipt[ISSUED] = p
    return p


@kernel
def look(k: int, receipt: Vector, room: Vector) -> None:
    """phi of an event, from what the AUTOs forecast (`NOW`) and their features."""
    logits = blank(MOST_MODELS)
    for j in range(k):
        logits[j] = odds(room[NOW + j]) if is_given(receipt, j) else 1.0
    lns(logits[0:k])
    total, count = 0.0, 0.0
    for j in range(k):
        logits[j] = bounded(logits[j], MOST_LANE_LOGIT)  # 0 where it is missing
        total += logits[j]
        count += 1.0 if is_given(receipt, j) else 0.0
    mean = total / count
    room[0] = 1.0
    for j in range(k):
        given = is_given(receipt, j)
        x = bounded(room[FEATURES + 2 * j] - room[FEATURES + 2 * j + 1], MOST_SCORE_LOGIT)
        room[1 + j] = logits[j] if given else mean
        room[1 + k + j] = x if given else 0.0
        room[1 + 2 * k + j] = 0.0 if given else 1.0


@kernel
def lanes_say(k: int, row: Vector, phi: Vector) -> tuple[float, float]:
    """What still and fast say."""
    theta = thetas(k)
    z0, z1 = row[theta], row[theta + 1]  # phi_0 is 1
    for i in range(1, terms(k)):
        z0 += row[theta + 2 * i] * phi[i]
        z1 += row[theta + 2 * i + 1] * phi[i]
    return squashed(z0), squashed(z1)


@kernel
def mixture(k: int, row: Vector, receipt: Vector, room: Vector, e0: float, e1: float) -> float:
    """m, of what the AUTOs forecast (`NOW`) and what the lanes say."""
    w0, w1 = row[WEIGHTS + k], row[WEIGHTS + k + 1]
    m, awake = w0 * e0 + w1 * e1, w0 + w1
    for j in range(k):
        if is_given(receipt, j):
            m += row[WEIGHTS + j] * room[NOW + j]
            awake += row[WEIGHTS + j]
    return inside(m / awake)


@kernel
def spline(row: Vector, m: float) -> float:
    """t, what the spline says of m."""
    j, right = knot(m * 10.0, EXPERT_KNOTS - 1)
    return shifted(m, exp(-((1.0 - right) * row[OFFSETS + j] + right * row[OFFSETS + j + 1])))


# ---- learning --------------------------------------------------------------------------------------------------------


@loop
def settle(k: int, row: Vector, t: float, y: float, receipt: Vector, room: Vector, is_fresh: bool) -> None:
    """Learn the outcome of a forecast; t is the number of forecasts made so far.

    `is_fresh`: the room is as `ask` left it for this very event, and nothing was learnt since.
    """
    lag, n = row[N] - receipt[SEEN], row[N] + 1.0
    beginner = is_beginner(row[N], receipt[SEEN])
    if not is_fresh:
        look_again(k, row, receipt, room, beginner)
    if lag > 0.0 or row[LAG] > 0.0:
        row[LAG] += (lag - row[LAG]) / (min(LAG_MEMORY, n))
    e0, e1, b, corrected = receipt[STILL], receipt[FAST], receipt[MIXED], receipt[CORRECTED]
    if lag > 0.0:
        e0, e1 = lanes_say(k, row, room)
    weigh(k, row, y, lag, SHARE / n, receipt)
    if beginner:
        b = mixture(k, row, receipt, room, e0, e1)
    if lag > 0.0:
        corrected = spline(row, b)
    j, right = knot(b * 10.0, EXPERT_KNOTS - 1)
    move_knots(row, OFFSETS + j, KNOWN + j, right, corrected, y, 1.0)
    lanes_step(k, row, y, room, e0, e1)
    at = autos(k)
    for i in range(k):
        if is_given(receipt, i):
            own = receipt[OWN + RECEIPT_WIDTH * i : OWN + RECEIPT_WIDTH * (i + 1)]
            mine = row[at + AUTO_WIDTH * i : at + AUTO_WIDTH * (i + 1)]
            asked = Asked(room[FEATURES + 2 * i], room[FEATURES + 2 * i + 1], 1.0, 0.0, 0.0)
            settle_plain(auto_spec(), mine, t, asked, 0, y, own)
    row[T], row[N] = t, n


@large_kernel
def look_again(k: int, row: Vector, receipt: Vector, room: Vector, beginner: bool) -> None:
    """The room of an earlier event: as its forecast was issued; of a beginner's, as the AUTOs forecast now."""
    at = autos(k)
    now = blank(RECEIPT_WIDTH)
    for j in range(k):
        if is_given(receipt, j):
            score = receipt[OWN + RECEIPT_WIDTH * j + SCORE]
            if beginner:
                mine = row[at + AUTO_WIDTH * j : at + AUTO_WIDTH * (j + 1)]
                play(auto_spec(), mine, ask_auto(auto_spec(), mine, score, now), 0.0, now)
                room[NOW + j] = now[FORECAST]
            else:
                room[NOW + j] = issued_by(receipt, j)
            room[FEATURES + 2 * j], room[FEATURES + 2 * j + 1], _ = features_of(BETA, AUTO_CLIP, score)
    look(k, receipt, room)


@kernel
def weigh(k: int, row: Vector, y: float, lag: float, alpha: float, receipt: Vector) -> None:
    """The weights w of those that were awake, who share what they had together, and v; as AUTO's weights."""
    parts = k + 2
    L = blank(MOST_MODELS + 4)
    awake, fresh = row[WEIGHTS + k] + row[WEIGHTS + k + 1], 0.0
    for j in range(k):
        L[j] = likelihood(issued_by(receipt, j), y) if is_given(receipt, j) else 1.0
        if is_given(receipt, j):
            awake += row[WEIGHTS + j]
            fresh += row[WEIGHTS + j] * L[j]
    L[k], L[k + 1] = likelihood(receipt[STILL], y), likelihood(receipt[FAST], y)
    L[parts], L[parts + 1] = likelihood(receipt[MIXED], y), likelihood(receipt[CORRECTED], y)
    fresh += row[WEIGHTS + k] * L[k] + row[WEIGHTS + k + 1] * L[k + 1]
    total, stale, split_stale = fresh, 0.0, 0.0
    if lag > 0.0:
        stale = staleness(fresh / awake, L[parts])
        split_stale = staleness(row[SPLIT] * L[parts] + row[SPLIT + 1] * L[parts + 1], likelihood(receipt[ISSUED], y))
    if row[TEMPER] != 1.0 or row[SPLIT_TEMPER] != 1.0:
        temper(k, row, L)
        total = row[WEIGHTS + k] * L[k] + row[WEIGHTS + k + 1] * L[k + 1]
        for j in range(k):
            total += row[WEIGHTS + j] * L[j] if is_given(receipt, j) else 0.0
    keep, gift = (1.0 - alpha) * awake / total, alpha / parts
    for j in range(k):
        row[WEIGHTS + j] = (keep * L[j] if is_given(receipt, j) else 1.0 - alpha) * row[WEIGHTS + j] + gift
    row[WEIGHTS + k] = keep * L[k] * row[WEIGHTS + k] + gift
    row[WEIGHTS + k + 1] = keep * L[k + 1] * row[WEIGHTS + k + 1] + gift
    u0, u1 = row[SPLIT] * L[parts], row[SPLIT + 1] * L[parts + 1]
    keep, gift = (1.0 - alpha) / (u0 + u1), alpha / 2.0
    row[SPLIT], row[SPLIT + 1] = keep * u0 + gift, keep * u1 + gift
    row[STALENESS] += stale
    row[SPLIT_STALENESS] += split_stale
    if 1.0 + row[STALENESS] > LAZY * row[TEMPER]:
        flatten(row, WEIGHTS, parts, 0, TEMPER, 1.0 / parts)
    if 1.0 + row[SPLIT_STALENESS] > LAZY * row[SPLIT_TEMPER]:
        flatten(row, SPLIT, 2, 0, SPLIT_TEMPER, 0.5)


@large_kernel
def temper(k: int, row: Vector, L: Vector) -> None:
    """The likelihoods of the parts to the power 1/T, and those of m and the spline likewise."""
    lns(L[0 : k + 4])
    for i in range(k + 2):
        L[i] /= row[TEMPER]
    L[k + 2] /= row[SPLIT_TEMPER]
    L[k + 3] /= row[SPLIT_TEMPER]
    exps(L[0 : k + 4])


@kernel
def lanes_step(k: int, row: Vector, y: float, phi: Vector, e0: float, e1: float) -> None:
    """One Newton step of each lane, which say e0 and e1 now, and the drift of fast:

    g = P phi;  c = 1/(1 + h phi.g);  theta += eta (y - e) c g;  P -= h c g g'    with h = eta e (1 - e)
    """
    d, theta, first = terms(k), thetas(k), covariances(k)
    g = blank(2 * MOST_TERMS)
    for i in range(2 * d):
        g[i] = 0.0
    at, var0, var1 = first, 0.0, 0.0
    for i in range(d):
        s0, s1 = g[2 * i] + row[at] * phi[i], g[2 * i + 1] + row[at + 1] * phi[i]
        at += 2
        for j in range(i + 1, d):
            s0 += row[at] * phi[j]
            s1 += row[at + 1] * phi[j]
            g[2 * j] += row[at] * phi[i]
            g[2 * j + 1] += row[at + 1] * phi[i]
            at += 2
        g[2 * i], g[2 * i + 1] = s0, s1
        var0 += phi[i] * s0
        var1 += phi[i] * s1
    eta = 1.0 / (1.0 + row[LAG] / STACK_LAG)
    step0, c0 = lane_step(eta, y, e0, var0)
    step1, c1 = lane_step(eta, y, e1, var1)
    drift = eta * FAST_DRIFT
    at = first
    for i in range(d):
        row[theta + 2 * i] += step0 * g[2 * i]
        row[theta + 2 * i + 1] += step1 * g[2 * i + 1]
        a0, a1 = c0 * g[2 * i], c1 * g[2 * i + 1]
        row[at] -= a0 * g[2 * i]
        variance = row[at + 1] - a1 * g[2 * i + 1]
        row[at + 1] = variance + drift if variance < CAP else variance
        at += 2
        for j in range(i + 1, d):
            row[at] -= a0 * g[2 * j]
            row[at + 1] -= a1 * g[2 * j + 1]
            at += 2


@kernel
def lane_step(eta: float, y: float, e: float, variance: float) -> tuple[float, float]:
    """By how much a lane moves along g, and h c."""
    var = max(0.0, variance)
    h = eta * e * (1.0 - e)
    c = 1.0 / (1.0 + h * var)
    step = eta * (y - e) * c
    step *= STEP / (max(STEP, abs(step * var)))  # no outcome moves a lane's own logit by more
    return step, h * c


# ---- the method ------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """The numbers of a row by name."""

    weights: Vector  # of the models, still, fast
    stale: float
    temper: float
    spline_weights: Vector  # of the mixture, of the spline
    spline_stale: float
    spline_temper: float
    mean_lag: float
    offsets: Vector
    information: Vector
    theta: Table  # of still, of fast
    covariance: Table  # of still, of fast: d x d
    autos: Table  # a row of AUTO for each model


def parts_of(row: Any, k: int) -> Parts:
    """The parts of a row of k models."""
    row = np.asarray(row, dtype=np.float64)
    d, theta, first, own = terms(k), thetas(k), covariances(k), autos(k)
    packed = row[first:own].reshape(-1, 2)
    covariance, above = np.zeros((2, d, d)), np.triu_indices(d)
    for lane in range(2):
        covariance[lane][above] = packed[:, lane]
        covariance[lane].T[above] = packed[:, lane]
    return Parts(
        weights=row[WEIGHTS:theta],
        stale=float(row[STALENESS]),
        temper=float(row[TEMPER]),
        spline_weights=row[SPLIT : SPLIT + 2],
        spline_stale=float(row[SPLIT_STALENESS]),
        spline_temper=float(row[SPLIT_TEMPER]),
        mean_lag=float(row[LAG]),
        offsets=row[OFFSETS:KNOWN],
        information=row[KNOWN:WEIGHTS],
        theta=row[theta:first].reshape(d, 2).T,
        covariance=covariance,
        autos=row[own:].reshape(k, AUTO_WIDTH),
    )


def row_of(parts: Parts, counts: Vector) -> Vector:
    """The inverse of `parts_of`; `counts` are the numbers before the layer."""
    above = np.triu_indices(parts.theta.shape[1])
    return np.concatenate(
        [
            counts,
            [parts.stale, parts.temper],
            parts.spline_weights,
            [parts.spline_stale, parts.spline_temper, parts.mean_lag],
            parts.offsets,
            parts.information,
            parts.weights,
            parts.theta.T.reshape(-1),
            np.stack([lane[above] for lane in parts.covariance], axis=1).reshape(-1),
            parts.autos.reshape(-1),
        ]
    )


def with_one_more(row: Vector, k: int) -> Vector:
    """The row of k models with one more, as if it had been missing so far.

    Its weight is 1/(k + 3). Its coefficients are 0: the lanes say what they said, also where it is missing.
    """
    parts, K = parts_of(row, k), k + 2
    weights = np.insert(parts.weights * (K / (K + 1.0)), k, 1.0 / (K + 1.0))
    places = [1 + k, 1 + 2 * k, 1 + 3 * k]  # behind the others of its kind
    covariance = np.insert(np.insert(parts.covariance, places, 0.0, axis=1), places, 0.0, axis=2)
    for i, place in enumerate(places):
        covariance[:, place + i, place + i] = PRIOR
    return row_of(
        parts._replace(
            weights=weights,
            theta=np.insert(parts.theta, places, 0.0, axis=1),
            covariance=covariance,
            autos=np.concatenate([parts.autos, AUTO.initial_row()[None]]),
        ),
        row[:THETA],
    )


@dataclass(frozen=True)
class SeveralMethod:
    """AUTO for the scores of several models, as hosts ask a `Method` for it.

    >>> SeveralMethod(2).width, SeveralMethod(2).receipt_width
    (468, 30)
    """

    models: int

    def __post_init__(self) -> None:
        check_whole("models", self.models, 2, MOST_MODELS)

    draws: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    cells: ClassVar[int] = 0
    answers: ClassVar[int] = 1  # numbers of a forecast
    kept: ClassVar[None] = None

    @property
    def numbers(self) -> int:
        """How many scores an event has."""
        return self.models

    @cached_property
    def width(self) -> int:
        """How many numbers a stream is."""
        return autos(self.models) + AUTO_WIDTH * self.models

    @property
    def receipt_width(self) -> int:
        """How many numbers an event must remember."""
        return OWN + RECEIPT_WIDTH * self.models

    @cached_property
    def spec(self) -> Spec:
        """The method as the kernels read it."""
        return auto_spec()._replace(models=self.models, receipt=self.receipt_width, evidence=0)

    def scratch(self) -> Vector:
        """Room for the kernels to work in, and behind it for the receipt of an event whose outcome comes at once."""
        return np.zeros(ROOM + self.receipt_width)

    def initial_row(self) -> Vector:
        """The row of a stream that has seen nothing: equal weights, and lanes that say the mean calibrated logit."""
        k, d = self.models, terms(self.models)
        theta = np.zeros((2, d))
        theta[:, 1 : k + 1] = 1.0 / k
        start = Parts(
            weights=np.full(k + 2, 1.0 / (k + 2)),
            stale=0.0,
            temper=1.0,
            spline_weights=np.full(2, 0.5),
            spline_stale=0.0,
            spline_temper=1.0,
            mean_lag=0.0,
            offsets=np.zeros(EXPERT_KNOTS),
            information=np.full(EXPERT_KNOTS, INFORMATION),
            theta=theta,
            covariance=np.stack([PRIOR * np.eye(d)] * 2),
            autos=np.stack([AUTO.initial_row()] * k),
        )
        return row_of(start, np.zeros(THETA))

    def limits(self) -> list[Block]:
        """What the numbers of a row behind its counts can be."""
        k, d = self.models, terms(self.models)
        coefficient = Limit("coefficients of models", -MOST_PARAMETER, MOST_PARAMETER)
        layer = [
            tempering(),
            weights("the spline on the models", 2),
            tempering(),
            Block((Limit("a mean lag", 0.0, 0.0, rises=1.0),)),
            *knot_limits(EXPERT_KNOTS),
            weights("models", k + 2),
            Block((coefficient,), 2 * d),
            matrices("covariances of models", [(0.0, 1.1 * CAP, 0.0)] * d, 2),
        ]
        return [*layer, *(block for j in range(k) for block in _limits_of_auto(j))]

    def params(self, row: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
        """What a row has learnt, by the names of the models."""
        k = self.models
        names = default_names(k) if names is None else names
        parts = parts_of(row, k)
        return {
            "weights": dict(zip((*names, *LANE_NAMES), parts.weights.tolist(), strict=True)),
            "spline": dict(zip(("expert", "spline"), parts.spline_weights.tolist(), strict=True)),
            "mean_lag": parts.mean_lag,
            "temper": parts.temper,
            "scores": {name: params_of(AUTO, own.tolist()) for name, own in zip(names, parts.autos, strict=True)},
            "together": {lane: _coefficients(names, parts.theta[i]) for i, lane in enumerate(LANE_NAMES)},
        }


LANE_NAMES = ("still", "fast")


def default_names(count: int) -> tuple[str, ...]:
    """The names of so many models that have none.

    >>> default_names(2)
    ('model 1', 'model 2')
    """
    return tuple(f"model {number}" for number in range(1, count + 1))


def _coefficients(names: Sequence[str], theta: Vector) -> dict[str, Any]:
    """The coefficients of a lane by what they multiply."""
    by_kind = zip(("calibrated", "raw", "missing"), theta[1:].reshape(3, len(names)).tolist(), strict=True)
    found: dict[str, Any] = {kind: dict(zip(names, own, strict=True)) for kind, own in by_kind}
    return {"constant": float(theta[0]), **found}


def _limits_of_auto(j: int) -> list[Block]:
    """What AUTO's row of one model can be; its mixtures sum to 1 by themselves."""
    nothing = Limit("weights of outcomes", 0.0, 0.0)
    counts = (
        Limit("events of a model", 0.0, MOST_COUNT, whole=True),
        Limit("outcomes of a model", 0.0, 0.0, rises=1.0, whole=True),
        *[Limit("sums of a model", 0.0, 0.0, rises=1.0)] * 4,
        *[nothing] * 3,
    )
    own = [
        block._replace(
            columns=tuple(
                limit._replace(mixture=f"{limit.mixture} of model {j + 1}") if limit.mixture else limit
                for limit in block.columns
            )
        )
        for block in AUTO.limits()
    ]
    return [Block(counts), *own]
