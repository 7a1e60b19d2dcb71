r"""MULTI: the calibration of K classes, as kernels on one row of float64. The loops over batches are in `loops`.

What each stage says of a score, and how the forecast comes of it::

    READ       f_k = max(score_k, 1e-7) / sum;  x_k = ln max(score_k, 1e-7);  u_k = 1[score_k <= 1e-7];  j = argmax
    LANES      e_l = softmax(a_l x + c_l f + d_l u + b_l), l = 0..3;   o = softmax(A x)
    HORIZON    e_6 ~ softmax(phi eta) + 1e-7;  phi_l = max(ln e_l - max ln e_l, -8), l = 0..3;  phi_4 the same of x
               m = sum_l w_l e_l + w_4 f + w_5 o + w_6 e_6                        (w_6 = 0 while no label was ever late)
    FACTORS    s_k ~ m_k interp(rho_k, m_k), knots (0, .01, .1, .5, .9, 1)
    CONFUSION  r_k ~ s_k kappa[j, k]                                              (K <= 64)
               c = v_0 m + v_1 s + v_2 r
    TOP        i = argmax c;  C = c_i, D = 1 - C;  offset = interp(offsets, 10 C)
               t = C/(C + D e^-offset);  p_i = z_0 C + z_1 t, the others c_k scaled
    GUARD      forecast = (g_0 p + g_1 o + 1e-7) / (1 + K 1e-7)

A label y comes as the n-th, ``lag`` labels after its forecast: alpha = .5/n. What judges looks at what was issued, what
moves moves from now. So the weights w, v, z, g learn from the receipt, lanes, factors, confusion and spline from what
the row of now says of the same score. While weights wait for labels they are stale. What that has cost, G, tempers
them: T is the largest 1 + G so far, and a part counts with its likelihood to the power 1/T.

A row of MULTI::

    0 t    1 n    2-8 sums of weights    9-14 w (four lanes, raw score, ONS)    15-17 v (mean, factors, confusion)
    18-19 z (plain, spline)    20-21 g (expert, ONS)    22-23 A, its information
    24-59 four times (theta 3, H 00 01 02 11 12 22)    60-70 offsets    71-81 information of the offsets
    82.. four times (b K, I K)
    then rho (K x 6), its information (K x 6), and for K <= 64 kappa (K x K, row = named class), its information
    then what late labels need, 30 numbers that do not move while labels come at once:
    0-7 G and T of w, of v, of z, of g    8 w_6    9 mean lag    10-14 eta    15-29 its information, the upper triangle

It is 112 + 20 K wide, and 2 K^2 wider for K <= 64. The online temperature alone has behind t, n and the sums A and its
information; the raw scores have nothing. Behind them stand two numbers of the evidence. As for two classes, t is the
number of forecasts that were made when the last label was learnt: a forecast does not touch the row.

A receipt is n, A, the K scores. That of MULTI goes on with what was in force: the spline's offset, w 7, v 3, z 2, g 2,
eta 5; and with what the stages said: the logits of the four lanes, their largest at 0 (4 K), s (K), for K <= 64 r (K).
It is 22 + 7 K wide, 22 + 6 K beyond 64 classes. All else that was issued follows from these.

A label with a weight (`weights`) is learnt in portions; after each the row is asked again. What it forgets, it forgets
once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.types import Table, Vector
from calibeat.errors import InvalidInput, UnknownMethod

from .algebra import exp, ln, power
from .auto import EPS, ONS_GAIN, ONS_RADIUS, ONS_RHO, SHARE, STEP, inside
from .layout import THETA as FIRST
from .layout import TOTAL, N, Spec, T
from .limits import MOST_PARAMETER, NATS_PER_OUTCOME, ROUNDED, Block, Limit, evidence, matrices, tempering, weights
from .spline import EXPERT_KNOTS, INFORMATION, knot, knot_limits, move_knots
from .subset import entry, kernel, large_kernel, loop
from .subset import scratch as small_scratch
from .weights import LEAST_SPREAD, Lesson, Outcome, is_nothing, is_plain, lump, note_event, one_event, pace, portion

RAW_SCORES, ONLINE_TEMPERATURE, MULTI = 0, 1, 2
CODES = {"raw": RAW_SCORES, "ots": ONLINE_TEMPERATURE, "multi": MULTI}
LANE_NAMES = ("still", "slow", "fast", "priors only", "raw score", "online temperature", "horizon")
MOST_CONFUSED = 64  # classes with a table of confusions; beyond, 2 K^2 numbers are too many

# ---- the row -------------------------------------------------------------------------------------------------------
W, V, Z, G = FIRST, FIRST + 6, FIRST + 9, FIRST + 11
SLOPE, SLOPE_INFORMATION = FIRST + 13, FIRST + 14  # those of the online temperature alone stand at FIRST
THETA, THETA_WIDTH = FIRST + 15, 9
OFFSET, KNOWN = FIRST + 51, FIRST + 62
BIAS = FIRST + 73

BIAS_VARIANCES = (0.1, 1.0, 1.0, 1.0)
THETA_INFORMATION = (4.0, 0.0, 0.0, 1.0, 0.0, 0.25)  # of a, c, d: the upper triangle of H_0
FACTOR_INFORMATION, CONFUSION_INFORMATION = 3.0, 2.0
ETA_START, ETA_VARIANCE = 0.2, 0.3

# What late labels need, from `late_at` on.
STALENESS, TEMPER = 0, 1  # G and T: of the lanes, and two further on each of the stages, the spline, the guard
OF_LANES, OF_STAGES, OF_SPLINE, OF_GUARD = 0, 2, 4, 6
HORIZON_WEIGHT, MEAN_LAG, ETA, ETA_INFORMATION, LATE_WIDTH = 8, 9, 10, 15, 30

# ---- the receipt ---------------------------------------------------------------------------------------------------
SEEN, ISSUED_SLOPE, SCORE = 0, 1, 2
# Behind the scores:
ISSUED_OFFSET, ISSUED_W, ISSUED_V, ISSUED_Z, ISSUED_G, ISSUED_ETA, ISSUED_LOGITS = 0, 1, 8, 11, 13, 15, 20

# ---- scratch: a few numbers, then blocks of K ----------------------------------------------------------------------
NAMED, TOP, TOP_SHARE, TOP_SPLINE, REST_SHARE, REST_SPLINE, TOP_OFFSET, HEAD = 0, 1, 2, 3, 4, 5, 6, 8
X, F, U = 0, 1, 2
LOGIT = 3  # of the four lanes and of the online temperature, the largest of each at 0
LANE, ONLINE, HORIZON = 8, 12, 13  # what the lanes say, the online temperature, the horizon lane
MEAN, FACTORED, CONFUSED, MIXED, EXPERT = 14, 15, 16, 17, 18  # m, s, r, c, p
PHI, WEIGHTED = 19, 24  # of the horizon lane
FORECAST, BLOCKS = 25, 26

# ---- what was said of a label: by each part, and by the mixture of them --------------------------------------------
SAID_LANES, SAID_STAGES, SAID_MIXED = (
    0,
    7,
    10,
)  # e_0, ..., e_3, f, o, e_6; m, which mixes them, s, r; c, which mixes those
SAID_TOP, SAID_GUARD, SAID = 11, 14, 17  # plain, spline, their mixture; expert, online temperature, their mixture


@kernel
def late_at(K: int) -> int:
    """Where the numbers for late labels stand in a row of MULTI."""
    return BIAS + 20 * K + (2 * K * K if K <= MOST_CONFUSED else 0)


@kernel
def evidence_at(method: int, K: int) -> int:
    """Where the evidence stands: behind the numbers of the method."""
    if method != MULTI:
        return FIRST + 2 if method == ONLINE_TEMPERATURE else FIRST
    return late_at(K) + LATE_WIDTH


def scratch(K: int) -> Vector:
    """Room for the kernels to work in."""
    return np.zeros(HEAD + BLOCKS * K)


@kernel
def block(K: int, work: Vector, number: int) -> Vector:
    """One of the blocks of K numbers in the scratch."""
    return work[HEAD + number * K : HEAD + (number + 1) * K]


# ---- the method ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorMethod:
    """A method for K classes, as hosts ask a `Method` for it.

    Parameters
    ----------
    name : ``"multi"``; ``"ots"``, the online temperature alone; ``"raw"``, the scores as they are.
    classes : K, at least 2.

    Raises
    ------
    UnknownMethod : there is no such name.
    InvalidInput : fewer than two classes.

    >>> VectorMethod("multi", 3).width, VectorMethod("ots", 3).width
    (192, 13)
    """

    name: str
    classes: int

    def __post_init__(self) -> None:
        if self.name not in CODES:
            raise UnknownMethod(f"method must be one of {', '.join(CODES)}, got {self.name!r:.60}")
        check_whole("classes", self.classes, 2, 2**31)

    draws: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    mixes: ClassVar[bool] = True  # there is evidence against the raw scores
    cells: ClassVar[int] = 0

    @property
    def numbers(self) -> int:
        """How many numbers a score is."""
        return self.classes

    @property
    def answers(self) -> int:
        """How many numbers a forecast is."""
        return self.classes

    @property
    def code(self) -> tuple[int, int]:
        """What `predict`, `settle` and `update` take first: the method as a number, and K."""
        return CODES[self.name], self.classes

    @cached_property
    def width(self) -> int:
        """How many numbers a stream is, with the two of the evidence."""
        return evidence_at(*self.code) + 2

    @property
    def receipt_width(self) -> int:
        """How many numbers an event must remember."""
        K = self.classes
        if self.name != "multi":
            return SCORE + K
        return SCORE + ISSUED_LOGITS + (7 if K <= MOST_CONFUSED else 6) * K

    @cached_property
    def spec(self) -> Spec:
        """The method as the kernels read it."""
        return Spec(
            classes=self.classes,
            vector=CODES[self.name],
            receipt=self.receipt_width,
            evidence=self.width - 2,
            mixes=True,
        )

    def initial_row(self) -> Vector:
        """The row of a stream that has seen nothing: the identity."""
        K = self.classes
        row = np.zeros(self.width)
        row[-1] = 1.0
        if self.name == "ots":
            row[FIRST : FIRST + 2] = 1.0, ONS_RHO
        if self.name != "multi":
            return row
        row[W : W + 6] = 1.0 / 6.0
        stages = 3 if K <= MOST_CONFUSED else 2
        row[V : V + stages] = 1.0 / stages
        row[Z : Z + 4] = 0.5
        row[SLOPE], row[SLOPE_INFORMATION] = 1.0, ONS_RHO
        for lane, variance in enumerate(BIAS_VARIANCES):
            at = THETA + THETA_WIDTH * lane
            row[at : at + THETA_WIDTH] = 1.0, 0.0, 0.0, *THETA_INFORMATION
            row[BIAS + (2 * lane + 1) * K : BIAS + (2 * lane + 2) * K] = 1.0 / variance
        row[KNOWN : KNOWN + EXPERT_KNOTS] = INFORMATION
        rho = BIAS + 8 * K
        row[rho : rho + 6 * K] = 1.0
        row[rho + 6 * K : rho + 12 * K] = FACTOR_INFORMATION
        if K <= MOST_CONFUSED:
            kappa = BIAS + 20 * K
            row[kappa : kappa + K * K] = 1.0
            row[kappa + K * K : kappa + 2 * K * K] = CONFUSION_INFORMATION
        late = row[late_at(K) : -2]
        late[TEMPER:HORIZON_WEIGHT:2] = 1.0
        late[ETA:ETA_INFORMATION] = ETA_START
        late[[ETA_INFORMATION + packed(i, i) for i in range(5)]] = 1.0 / ETA_VARIANCE
        return row

    # ---- what comes from outside ----------------------------------------------------------------------------------

    def limits(self) -> list[Block]:
        """What the numbers of a row behind its counts can be; `limits.check_rows` checks rows from outside."""
        ball = ONS_RADIUS * ROUNDED
        slope = Limit("a slope", -ball, ball), Limit("information of the slope", ONS_RHO, ONS_RHO, rises=270.0)
        parts = {"raw": [], "ots": [Block(slope)], "multi": self._limits_of_parts(Block(slope))}[self.name]
        return [*parts, evidence(1.0 - LOWEST, NATS_PER_OUTCOME)]

    def _limits_of_parts(self, slope: Block) -> list[Block]:
        K, confused = self.classes, self.classes <= MOST_CONFUSED
        shared = Limit("shared parameters", -MOST_PARAMETER, MOST_PARAMETER)
        # Half of what is there at first: the means that a covariance is made of are rounded.
        covariances = [(0.5 * at_first, at_first, rise) for at_first, rise in ((4.0, 300.0), (1.0, 2.0), (0.25, 2.0))]
        blocks = [weights("lanes", 6), weights("stages", 3 if confused else 2)]
        blocks += [] if confused else [Block((Limit("nothing", 0.0, 0.0),))]
        blocks += [weights("the spline", 2), weights("the guard", 2), slope]
        blocks += [Block((shared,), 3), matrices("H", covariances)] * 4
        blocks += knot_limits(EXPERT_KNOTS)
        for variance in BIAS_VARIANCES:
            blocks += [
                Block((Limit("biases", -MOST_PARAMETER, MOST_PARAMETER),), K),
                _information("biases", K, 1.0 / variance, 0.5),
            ]
        factor = Block((Limit("factors", 1e-300, 1e300),))
        blocks += [factor._replace(times=6 * K), _information("factors", 6 * K, FACTOR_INFORMATION)]
        if confused:
            blocks += [factor._replace(times=K * K), _information("confusions", K * K, CONFUSION_INFORMATION)]
        eta = Limit("eta", -MOST_PARAMETER, MOST_PARAMETER)
        return [
            *blocks,
            *[tempering(1.0 - LOWEST, 1.0 - LOWEST)] * 4,
            weights("lanes", 1, 0.0),  # of the horizon lane, while it sleeps
            Block((Limit("a mean lag", 0.0, 0.0, rises=1.0),)),
            Block((eta,), 5),
            matrices("information of eta", [(0.5 / ETA_VARIANCE, 1.0 / ETA_VARIANCE, 65.0)] * 5),
        ]

    def scratch(self) -> Vector:
        """Room for the kernels to work in."""
        return scratch(self.classes)

    # ---- what was learnt ------------------------------------------------------------------------------------------

    def params(self, row: Sequence[float] | Vector) -> dict[str, Any]:
        """What was learnt, in words: see `MultiCalibrator.params`. Biases are a list, by columns."""
        found = self.params_of_rows(np.array(row, dtype=np.float64)[None], named=True)
        if self.name != "multi":
            return {name: float(column[0]) for name, column in found.items()}
        values = np.array(row)
        stages = ("lanes", "factors", "confusion") if self.classes <= MOST_CONFUSED else ("lanes", "factors")
        return {
            "lanes": dict(zip(LANE_NAMES, lane_weights(self, values), strict=False)),
            **{name: float(found[name][0]) for name in ("a", "c", "d")},
            "bias": found["bias"][0].tolist(),
            "online temperature": float(values[SLOPE]),
            "stages": _named(stages, values[V:]),
            "top": _named(("plain", "spline"), values[Z:]),
            "guard": _named(("expert", "online temperature"), values[G:]),
        }

    def params_of_rows(self, rows: Table, *, named: bool = False) -> dict[str, Any]:
        """The parameters of many rows, a column each; those of single classes (`named`) only if asked for."""
        if self.name != "multi":
            return {"a": rows[:, FIRST].copy()} if self.name == "ots" else {}
        w = rows[:, W : W + 6] / rows[:, W : W + 6].sum(
            axis=1, keepdims=True
        )  # the horizon lane has no parameters of its own
        shared = rows[:, THETA:OFFSET].reshape(-1, 4, THETA_WIDTH)[:, :, :3]
        a, c, d = np.einsum("ij,ijk->ki", w[:, :4], shared)
        found = {"a": a + w[:, 4] + w[:, 5] * rows[:, SLOPE], "c": c, "d": d}
        if named:
            biases = rows[:, BIAS : BIAS + 8 * self.classes].reshape(-1, 4, 2, self.classes)[:, :, 0]
            found["bias"] = np.einsum("ij,ijk->ik", w[:, :4], biases)
        return found

    # ---- as data --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The method as JSON-able data; `from_dict` is the inverse."""
        return {"name": self.name, "classes": self.classes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VectorMethod:
        """The inverse of `to_dict`.

        Raises
        ------
        InvalidInput : it is not an object with a name and a number of classes.
        """
        if not isinstance(data, Mapping) or set(data) != {"name", "classes"}:
            raise InvalidInput(f"method must be an object with name, classes, got {data!r:.60}")
        return cls(data["name"], data["classes"])


def _named(names: Sequence[str], values: Vector) -> dict[str, float]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))


def _information(of: str, count: int, at_first: float, least: float = 1.0) -> Block:
    """What is known of parameters: an outcome brings 1/4 at most. `least`: what a lane may forget of it."""
    return Block((Limit(f"information of {of}", least * at_first, at_first, rises=0.26),), count)


def lane_weights(method: VectorMethod, row: Vector) -> list[float]:
    """The weights of the lanes of MULTI; the horizon lane, which sleeps until a label is late, is the seventh."""
    horizon = float(row[late_at(method.classes) + HORIZON_WEIGHT])
    return [*row[W : W + 6].tolist(), *([horizon] if horizon > 0.0 else [])]


def frozen_numbers(method: VectorMethod, row: Vector) -> dict[str, Any]:
    """The numbers of a row that a forecast needs, by name."""
    K = method.classes
    if method.name == "raw":
        return {}
    if method.name == "ots":
        return {"slope": float(row[FIRST])}
    rho, kappa, late = BIAS + 8 * K, BIAS + 20 * K, late_at(K)
    confusion = row[kappa : kappa + K * K].reshape(K, K).tolist() if K <= MOST_CONFUSED else []
    return {
        "slope": float(row[SLOPE]),
        "lane_weights": lane_weights(method, row),
        "horizon": row[late + ETA : late + ETA_INFORMATION].tolist() if row[late + HORIZON_WEIGHT] > 0.0 else [],
        "shared": row[THETA:OFFSET].reshape(4, THETA_WIDTH)[:, :3].tolist(),
        "biases": row[BIAS:rho].reshape(4, 2, K)[:, 0].tolist(),
        "knots": [0.0, 0.01, 0.1, 0.5, 0.9, 1.0],
        "factors": row[rho : rho + 6 * K].reshape(K, 6).tolist(),
        "confusion": confusion,
        "stage_weights": row[V : V + (3 if confusion else 2)].tolist(),
        "offsets": row[OFFSET:KNOWN].tolist(),
        "top_weights": row[Z : Z + 2].tolist(),
        "guard_weights": row[G : G + 2].tolist(),
    }


# ---- softmax -------------------------------------------------------------------------------------------------------
# Sums in four parts, so that the compiler can use vector instructions.

LOWEST = -700.0  # exp(-700) is 1e-304: never zero, so that a forecast is always positive


@kernel
def largest(z: Vector) -> float:
    """max(z), in four interleaved parts."""
    size = len(z)
    whole = size - size % 4
    m0 = m1 = m2 = m3 = z[0]
    for k in range(0, whole, 4):
        z0, z1, z2, z3 = z[k], z[k + 1], z[k + 2], z[k + 3]
        m0 = max(m0, z0)
        m1 = max(m1, z1)
        m2 = max(m2, z2)
        m3 = max(m3, z3)
    for k in range(whole, size):
        z0 = z[k]
        m0 = max(m0, z0)
    m0 = max(m0, m1)
    m2 = max(m2, m3)
    return max(m0, m2)


@kernel
def total(z: Vector) -> float:
    """sum(z), in four interleaved parts."""
    size = len(z)
    whole = size - size % 4
    s0 = s1 = s2 = s3 = 0.0
    for k in range(0, whole, 4):
        s0 += z[k]
        s1 += z[k + 1]
        s2 += z[k + 2]
        s3 += z[k + 3]
    for k in range(whole, size):
        s0 += z[k]
    return (s0 + s1) + (s2 + s3)


@kernel
def dot(a: Vector, b: Vector) -> float:
    """The sum of a b, in four interleaved parts."""
    size = len(a)
    whole = size - size % 4
    s0 = s1 = s2 = s3 = 0.0
    for k in range(0, whole, 4):
        s0 += a[k] * b[k]
        s1 += a[k + 1] * b[k + 1]
        s2 += a[k + 2] * b[k + 2]
        s3 += a[k + 3] * b[k + 3]
    for k in range(whole, size):
        s0 += a[k] * b[k]
    return (s0 + s1) + (s2 + s3)


@kernel
def lower_to_zero(z: Vector) -> None:
    """z <- max(z - max(z), LOWEST): so that no exponential is lost."""
    top = largest(z)
    for k in range(len(z)):
        d = z[k] - top
        z[k] = max(LOWEST, d)


@kernel
def softmax(z: Vector) -> None:
    """z <- softmax(z)."""
    lower_to_zero(z)
    for k in range(len(z)):
        z[k] = exp(z[k])
    scale = 1.0 / total(z)
    for k in range(len(z)):
        z[k] *= scale


# ---- what each stage says ------------------------------------------------------------------------------------------


@entry
def read(K: int, score: Vector, work: Vector) -> None:
    """f, x, u and the named class of a score."""
    x, f, u = block(K, work, X), block(K, work, F), block(K, work, U)
    named, best = 0, -1.0
    for k in range(K):
        given = score[k]
        if given > best:
            best, named = given, k
        floored = max(EPS, given)
        f[k] = floored
        u[k] = 1.0 if given <= EPS else 0.0
        x[k] = ln(floored)
    scale = 1.0 / total(f)
    for k in range(K):
        f[k] *= scale
    work[NAMED] = named


@kernel
def slope_logits(K: int, A: float, work: Vector) -> None:
    """The logits of the online temperature: A x."""
    x, z = block(K, work, X), block(K, work, LOGIT + 4)
    for k in range(K):
        z[k] = A * x[k]
    lower_to_zero(z)


@kernel
def lane_logits(K: int, row: Vector, work: Vector) -> None:
    """The logits of the four lanes: a_l x + c_l f + d_l u + b_l."""
    x, f, u = block(K, work, X), block(K, work, F), block(K, work, U)
    for lane in range(4):
        at = THETA + THETA_WIDTH * lane
        a, c, d = row[at], row[at + 1], row[at + 2]
        at = BIAS + 2 * lane * K
        b, z = row[at : at + K], block(K, work, LOGIT + lane)
        for k in range(K):
            z[k] = a * x[k] + c * f[k] + d * u[k] + b[k]
        lower_to_zero(z)


@kernel
def mix_lanes(K: int, w: Vector, work: Vector) -> None:
    """e_0, ..., e_3 and o from their logits, and the mixture m of the six."""
    logits, lanes = work[HEAD + LOGIT * K : HEAD + (LOGIT + 5) * K], work[HEAD + LANE * K : HEAD + (LANE + 5) * K]
    for k in range(5 * K):
        lanes[k] = exp(logits[k])
    f, m, weight = block(K, work, F), block(K, work, MEAN), w[4]
    for k in range(K):
        m[k] = weight * f[k]
    for lane in range(5):
        e, weight = block(K, work, LANE + lane), w[lane if lane < 4 else 5]
        scale = 1.0 / total(e)
        for k in range(K):
            p = e[k] * scale
            e[k] = p
            m[k] += weight * p


@loop  # apart from those who never need it
def ask_horizon(K: int, eta: Vector, logits: Vector, work: Vector) -> None:
    """phi, from the logits of the four lanes, and e_6 = (softmax(phi eta) + 1e-7)/(1 + K 1e-7)."""
    x, h, phi = block(K, work, X), block(K, work, HORIZON), work[HEAD + PHI * K : HEAD + (PHI + 5) * K]
    top = x[int(work[NAMED])]
    for k in range(4 * K):
        phi[k] = max(LOWEST_PHI, logits[k])
    for k in range(K):
        phi[4 * K + k] = max(LOWEST_PHI, x[k] - top)
        h[k] = 0.0
    for j in range(5):
        n, column = eta[j], phi[j * K : (j + 1) * K]
        for k in range(K):
            h[k] += n * column[k]
    softmax(h)
    scale = 1.0 / (1.0 + K * EPS)
    for k in range(K):
        h[k] = (h[k] + EPS) * scale


@kernel
def add_horizon(K: int, weight: float, work: Vector) -> None:
    """The mixture m with the horizon lane in it."""
    h, m = block(K, work, HORIZON), block(K, work, MEAN)
    for k in range(K):
        m[k] += weight * h[k]


LOWEST_PHI = -8.0  # or scores of exactly 0 would carry the horizon lane away
KNOT_AT = (0.0, 0.01, 0.1, 0.5, 0.9)  # and 1
PER_WIDTH = (100.0, 1.0 / 0.09, 2.5, 2.5, 10.0)


@kernel
def place(m: float) -> tuple[int, float]:
    """The knot to the left of m among (0, .01, .1, .5, .9, 1), and the weight of the one to its right.

    Counted, not branched: nobody can guess on which side of a knot a probability lies.
    """
    j = int(m > 0.01) + int(m > 0.1) + int(m > 0.5) + int(m > 0.9)
    h = (m - KNOT_AT[j]) * PER_WIDTH[j]
    return j, min(1.0, h)


@kernel
def ask_stages(K: int, row: Vector, work: Vector) -> None:
    """s, r and their mixture c with m."""
    m, s, r, c = block(K, work, MEAN), block(K, work, FACTORED), block(K, work, CONFUSED), block(K, work, MIXED)
    rho = row[BIAS + 8 * K : BIAS + 14 * K]
    for k in range(K):
        j, h = place(m[k])
        s[k] = m[k] * ((1.0 - h) * rho[6 * k + j] + h * rho[6 * k + j + 1])
    scale = 1.0 / total(s)
    v0, v1, v2 = row[V], row[V + 1], row[V + 2]
    if K <= MOST_CONFUSED:
        at = BIAS + 20 * K + int(work[NAMED]) * K
        kappa = row[at : at + K]
        for k in range(K):
            s[k] *= scale
            r[k] = s[k] * kappa[k]
        scale = 1.0 / total(r)
        for k in range(K):
            r[k] *= scale
            c[k] = v0 * m[k] + v1 * s[k] + v2 * r[k]
    else:
        for k in range(K):
            s[k] *= scale
            c[k] = v0 * m[k] + v1 * s[k]


@kernel
def find_top(c: Vector) -> tuple[int, float, float, float]:
    """The top class of c, its share and that of the rest, and the sum of the rest."""
    best = largest(c)
    i = 0
    while c[i] != best and i < len(c) - 1:  # NaN is equal to nothing
        i += 1
    c[i] = 0.0
    rest = total(c)
    c[i] = best
    # 1 - C would have lost the digits of a small rest.
    return i, inside(best / (best + rest)), inside(rest / (best + rest)), rest


@kernel
def spline_top(C: float, D: float, offset: float) -> tuple[float, float]:
    """What the spline says of the top class and of the rest."""
    odds = D * exp(-offset)
    return inside(C / (C + odds)), inside(odds / (C + odds))


@kernel
def ask_top(K: int, row: Vector, work: Vector) -> None:
    """The expert p, from c: the share of the top class by the spline, the others scaled."""
    c, p = block(K, work, MIXED), block(K, work, EXPERT)
    i, C, D, rest = find_top(c)
    j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
    offset = (1.0 - h) * row[OFFSET + j] + h * row[OFFSET + j + 1]
    t, t_rest = spline_top(C, D, offset)
    scale = (row[Z] * D + row[Z + 1] * t_rest) / rest
    for k in range(K):
        p[k] = c[k] * scale
    p[i] = row[Z] * C + row[Z + 1] * t
    work[TOP], work[TOP_OFFSET] = i, offset
    work[TOP_SHARE], work[TOP_SPLINE], work[REST_SHARE], work[REST_SPLINE] = C, t, D, t_rest


# ---- how the weights learn a label ---------------------------------------------------------------------------------

LAZY = 1.1  # weights are flattened when what staleness has cost has grown by a tenth


@kernel
def said_now(K: int, y: int, work: Vector, said: Vector) -> None:
    """What the scratch says of y. The mixtures are left out: weights that are not stale do not need them."""
    at = HEAD + y
    for lane in range(4):
        said[SAID_LANES + lane] = work[at + (LANE + lane) * K]
    said[SAID_LANES + 4], said[SAID_LANES + 5] = work[at + F * K], work[at + ONLINE * K]
    said[SAID_LANES + 6] = work[at + HORIZON * K]
    for stage in range(3):
        said[SAID_STAGES + stage] = work[at + (MEAN + stage) * K]
    hit = y == int(work[TOP])
    said[SAID_TOP] = work[TOP_SHARE] if hit else work[REST_SHARE]
    said[SAID_TOP + 1] = work[TOP_SPLINE] if hit else work[REST_SPLINE]
    said[SAID_GUARD], said[SAID_GUARD + 1] = work[at + EXPERT * K], work[at + ONLINE * K]


@kernel
def said_then(K: int, y: int, receipt: Vector, work: Vector, said: Vector) -> None:
    """What was said of y when the forecast was made, by the receipt; the scratch holds x, f and the named class."""
    then = receipt[SCORE + K :]
    s, r = then[ISSUED_LOGITS + 4 * K : ISSUED_LOGITS + 5 * K], then[ISSUED_LOGITS + 5 * K :]
    logits, m, c = work[HEAD + LOGIT * K :], block(K, work, MEAN), block(K, work, MIXED)
    for k in range(4 * K):
        logits[k] = then[ISSUED_LOGITS + k]
    slope_logits(K, receipt[ISSUED_SLOPE], work)
    mix_lanes(K, then[ISSUED_W:], work)
    # If the receipt was made while this lane slept, it says what it would have said at its start; its weight was 0.
    ask_horizon(K, then[ISSUED_ETA:], logits, work)
    add_horizon(K, then[ISSUED_W + 6], work)
    v0, v1, v2 = then[ISSUED_V], then[ISSUED_V + 1], then[ISSUED_V + 2]
    for k in range(K):
        c[k] = v0 * m[k] + v1 * s[k]
    if K <= MOST_CONFUSED:
        for k in range(K):
            c[k] += v2 * r[k]
    i, C, D, rest = find_top(c)
    t, t_rest = spline_top(C, D, then[ISSUED_OFFSET])
    at = HEAD + y
    for lane in range(4):
        said[SAID_LANES + lane] = work[at + (LANE + lane) * K]
    o = work[at + ONLINE * K]
    said[SAID_LANES + 4], said[SAID_LANES + 5], said[SAID_LANES + 6] = work[at + F * K], o, work[at + HORIZON * K]
    said[SAID_STAGES], said[SAID_STAGES + 1], said[SAID_MIXED] = m[y], s[y], c[y]
    said[SAID_STAGES + 2] = r[y] if K <= MOST_CONFUSED else 0.0
    if y != i:
        C, t = D, t_rest
    top = then[ISSUED_Z] * C + then[ISSUED_Z + 1] * t
    said[SAID_TOP], said[SAID_TOP + 1], said[SAID_TOP + 2] = C, t, top
    p = top if y == i else c[y] * (top / rest)
    said[SAID_GUARD], said[SAID_GUARD + 1] = p, o
    said[SAID_GUARD + 2] = then[ISSUED_G] * p + then[ISSUED_G + 1] * o


@kernel
def weigh_at_once(K: int, row: Vector, alpha: float, y: int, work: Vector) -> None:
    """w <- (1 - alpha) w L/sum + alpha/6, L what each part says of y in the scratch; v, z and g likewise.

    All that a stream whose labels come at once needs. `weigh` would do the same, with the same bits, in more time.
    """
    at = HEAD + y
    o, m, s, r = work[at + ONLINE * K], work[at + MEAN * K], work[at + FACTORED * K], work[at + CONFUSED * K]
    u0, u1 = row[W] * work[at + LANE * K], row[W + 1] * work[at + (LANE + 1) * K]
    u2, u3 = row[W + 2] * work[at + (LANE + 2) * K], row[W + 3] * work[at + (LANE + 3) * K]
    u4, u5 = row[W + 4] * work[at + F * K], row[W + 5] * o
    keep, gift = (1.0 - alpha) / (((u0 + u1) + (u2 + u3)) + (u4 + u5)), alpha / 6.0
    row[W], row[W + 1], row[W + 2] = keep * u0 + gift, keep * u1 + gift, keep * u2 + gift
    row[W + 3], row[W + 4], row[W + 5] = keep * u3 + gift, keep * u4 + gift, keep * u5 + gift
    if K <= MOST_CONFUSED:
        u0, u1, u2 = row[V] * m, row[V + 1] * s, row[V + 2] * r
        keep, gift = (1.0 - alpha) / (u0 + u1 + u2), alpha / 3.0
        row[V], row[V + 1], row[V + 2] = keep * u0 + gift, keep * u1 + gift, keep * u2 + gift
    else:
        weigh_two(row, V, m, s, alpha)
    if y == int(work[TOP]):
        weigh_two(row, Z, work[TOP_SHARE], work[TOP_SPLINE], alpha)
    else:
        weigh_two(row, Z, work[REST_SHARE], work[REST_SPLINE], alpha)
    weigh_two(row, G, work[at + EXPERT * K], o, alpha)


@kernel
def weigh_two(row: Vector, at: int, first: float, second: float, alpha: float) -> None:
    """Two weights by two likelihoods."""
    u0, u1 = row[at] * first, row[at + 1] * second
    keep, gift = (1.0 - alpha) / (u0 + u1), alpha / 2.0
    row[at], row[at + 1] = keep * u0 + gift, keep * u1 + gift


@kernel
def weigh(K: int, row: Vector, alpha: float, lag: float, omega: float, said: Vector) -> None:
    """w, v, z and g learn what each part had said of the label."""
    late = late_at(K)
    if lag > 0.0 and row[late + HORIZON_WEIGHT] == 0.0:  # the first late label wakes the horizon lane
        for lane in range(6):
            row[W + lane] *= 6.0 / 7.0
        row[late + HORIZON_WEIGHT] = 1.0 / 7.0
    w = small_scratch(7)
    for lane in range(6):
        w[lane] = row[W + lane]
    w[6] = row[late + HORIZON_WEIGHT]
    lanes = 7 if w[6] > 0.0 else 6
    reweigh(row, late + OF_LANES, w, lanes, said[SAID_LANES:], said[SAID_STAGES], lag, alpha, omega)
    for lane in range(6):
        row[W + lane] = w[lane]
    row[late + HORIZON_WEIGHT] = w[6]
    stages = 3 if K <= MOST_CONFUSED else 2
    reweigh(row, late + OF_STAGES, row[V:], stages, said[SAID_STAGES:], said[SAID_MIXED], lag, alpha, omega)
    reweigh(row, late + OF_SPLINE, row[Z:], 2, said[SAID_TOP:], said[SAID_TOP + 2], lag, alpha, omega)
    reweigh(row, late + OF_GUARD, row[G:], 2, said[SAID_GUARD:], said[SAID_GUARD + 2], lag, alpha, omega)


@kernel
def reweigh(  # noqa: C901 - one rule for four mixtures
    row: Vector, at: int, w: Vector, J: int, L: Vector, mixed: float, lag: float, alpha: float, omega: float
) -> None:
    """w <- (1 - alpha) w L^(omega/T)/sum + alpha/J, L the likelihoods of J parts; G and T stand in the row at `at`.

    A late label adds omega ln(sum w L / mixed) to G, signed: what the weights of now would have saved. One that counts
    for more than T adds `lump`. When 1 + G is a tenth above T, T <- 1 + G, and the weights are flattened to match:
    w <- w^c/sum, c = T_before/T.
    """
    stale, T = row[at + STALENESS], row[at + TEMPER]
    u = small_scratch(8)
    for k in range(J):
        u[k] = w[k] * L[k]
    fresh = sum_of_eight(u)
    if lag > 0.0:
        stale += omega * ln(fresh / mixed)
    if omega > T:
        best = L[0]
        for k in range(1, J):
            best = max(best, L[k])
        for k in range(J):
            u[k] = w[k] * power(L[k] / best, omega / T)
        stale += lump(T, sum_of_eight(u), ln(best), ln(fresh), omega)
    elif omega != T:
        for k in range(J):
            u[k] = w[k] * power(L[k], omega / T)
    keep, gift = (1.0 - alpha) / sum_of_eight(u), alpha / J
    for k in range(J):
        w[k] = keep * u[k] + gift
    if 1.0 + stale > LAZY * T:
        for k in range(J):
            u[k] = power(w[k], T / (1.0 + stale))
        scale = 1.0 / sum_of_eight(u)
        for k in range(J):
            w[k] = u[k] * scale
        row[at + TEMPER] = 1.0 + stale
    row[at + STALENESS] = stale


@kernel
def sum_of_eight(u: Vector) -> float:
    """The sum of up to eight numbers, with zeros behind them."""
    return ((u[0] + u[1]) + (u[2] + u[3])) + ((u[4] + u[5]) + (u[6] + u[7]))


# ---- how the horizon lane learns a label ---------------------------------------------------------------------------
# It asks: given what the lanes said then, and how late labels are, what should have been said?

LAG_TEMPER, HORIZON_WINDOW, LAG_WINDOW = 100.0, 1000.0, 1000.0


@kernel
def packed(i: int, j: int) -> int:
    """Where the element of row i, column j >= i stands in the upper triangle of a 5 x 5 matrix."""
    return i * (9 - i) // 2 + j


@kernel
def learn_horizon(K: int, row: Vector, late: int, y: int, omega: float, work: Vector) -> None:
    """P <- k P + (1 - k) I/.3 + q Cov(phi);  step = q P^-1 r, r = phi_y - mean;  eta += step min(1, 2/(step r)).

    Under e_6; the scratch holds it, and phi. q = omega/(1 + D/100), D the mean lag; k = 1 - 1/(1 + D/100)/1000.
    """
    h, weighted, P = block(K, work, HORIZON), block(K, work, WEIGHTED), row[late + ETA_INFORMATION : late + LATE_WIDTH]
    q = 1.0 / (1.0 + row[late + MEAN_LAG] / LAG_TEMPER)
    keep = 1.0 - q / HORIZON_WINDOW
    q *= omega
    mean = small_scratch(5)
    step = small_scratch(5)
    for i in range(5):
        phi = block(K, work, PHI + i)
        for k in range(K):
            weighted[k] = h[k] * phi[k]
        mean[i] = total(weighted)
        step[i] = q * (phi[y] - mean[i])
        for j in range(i + 1):
            at = packed(j, i)
            P[at] = keep * P[at] + q * (dot(weighted, block(K, work, PHI + j)) - mean[j] * mean[i])
        P[packed(i, i)] += (1.0 - keep) / ETA_VARIANCE
    solve_five(P, step)
    gain = 0.0
    for i in range(5):
        gain += step[i] * (work[HEAD + (PHI + i) * K + y] - mean[i])
    gain = STEP / max(STEP, gain)
    for i in range(5):
        row[late + ETA + i] += step[i] * gain


@kernel
def solve_five(P: Vector, r: Vector) -> None:
    """r <- P^-1 r for a positive definite P, by Cholesky: P = R'R, R an upper triangle."""
    R = small_scratch(15)
    for i in range(5):
        for j in range(i, 5):
            left = P[packed(i, j)]
            for k in range(i):
                left -= R[packed(k, i)] * R[packed(k, j)]
            R[packed(i, j)] = math.sqrt(left) if i == j else left / R[packed(i, i)]
    for i in range(5):
        for k in range(i):
            r[i] -= R[packed(k, i)] * r[k]
        r[i] = r[i] / R[packed(i, i)]
    for back in range(5):
        i = 4 - back
        for j in range(i + 1, 5):
            r[i] -= R[packed(i, j)] * r[j]
        r[i] = r[i] / R[packed(i, i)]


# ---- how everything else learns a label: it moves from what the row of now says -------------------------------------

# How much of the past a lane keeps at each label: of the shared numbers, and of the biases.
KEEP_1, KEEP_2, KEEP_BIAS_3 = 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0 - 1.0 / 50.0


@kernel
def moments(
    e: Vector, x: Vector, f: Vector, u: Vector, x_y: float, f_y: float
) -> tuple[float, float, float, float, float, float]:
    """Means over e of X, F, XX, XF, FF and u, with X = x - x_y and F = f - f_y: around the label nothing cancels."""
    mx = mf = mxx = mxf = mff = mu = 0.0
    for k in range(len(e)):
        p, X, F = e[k], x[k] - x_y, f[k] - f_y
        pX, pF = p * X, p * F
        mx += pX
        mf += pF
        mxx += pX * X
        mxf += pX * F
        mff += pF * F
        mu += p * u[k]
    return mx, mf, mxx, mxf, mff, mu


@kernel
def learn_shared(K: int, row: Vector, lane: int, y: int, part: float, forgets: bool, work: Vector) -> None:
    """H <- keep H + (1 - keep) H_0 + b Cov(x, f, u);  theta += H^-1 b r min(1, 2/(b r H^-1 r)), r = (x, f, u)_y - mean.

    b is the portion; the first one of a label `forgets`.
    """
    x, f, u, e = block(K, work, X), block(K, work, F), block(K, work, U), block(K, work, LANE + lane)
    x_y, f_y, u_y = x[y], f[y], u[y]
    mx, mf, mxx, mxf, mff, mu = moments(e, x, f, u, x_y, f_y)
    # All classes at the floor have the same x and f, so the moments of u - u_y follow from those at hand.
    if u_y == 0.0:
        mux, muf, muu = 0.0, 0.0, mu
        if mu > 0.0:
            k = 0
            while u[k] == 0.0:
                k += 1
            mux, muf = mu * (x[k] - x_y), mu * (f[k] - f_y)
    else:
        muu = 1.0 - mu
        mu, mux, muf = -muu, -mx, -mf
    at = THETA + THETA_WIDTH * lane
    keep = 1.0 if not forgets else KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else 1.0
    h00 = keep * row[at + 3] + (1.0 - keep) * 4.0 + part * (mxx - mx * mx)
    h01 = keep * row[at + 4] + part * (mxf - mx * mf)
    h02 = keep * row[at + 5] + part * (mux - mx * mu)
    h11 = keep * row[at + 6] + (1.0 - keep) + part * (mff - mf * mf)
    h12 = keep * row[at + 7] + part * (muf - mf * mu)
    h22 = keep * row[at + 8] + (1.0 - keep) * 0.25 + part * (muu - mu * mu)
    row[at + 3], row[at + 4], row[at + 5] = h00, h01, h02
    row[at + 6], row[at + 7], row[at + 8] = h11, h12, h22
    s0, s1, s2 = solved(h00, h01, h02, h11, h12, h22, -mx, -mf, -mu)
    gain = -part * (s0 * mx + s1 * mf + s2 * mu)
    gain = part * (STEP / (max(STEP, gain)))
    row[at] += s0 * gain
    row[at + 1] += s1 * gain
    row[at + 2] += s2 * gain


@kernel
def learn_biases(K: int, row: Vector, lane: int, y: int, part: float, forgets: bool, work: Vector) -> None:
    """old = keep I, gift = (1 - keep)/variance;  b *= old/(old+gift);  I = old + gift + e(1-e);  b += (1[y] - e)/I.

    Of a portion: I gets that much of e(1-e), and b of its step, which is at most 2.
    """
    e, at = block(K, work, LANE + lane), BIAS + 2 * lane * K
    b, information = row[at : at + K], row[at + K : at + 2 * K]
    if part != 1.0 or not forgets:
        keep = 1.0 if lane == 0 or not forgets else KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else KEEP_BIAS_3
        for k in range(K):
            p, old = e[k], keep * information[k]
            known = old + (1.0 - keep) + part * p * (1.0 - p)
            information[k] = known
            b[k] = b[k] * (old / (old + (1.0 - keep))) - min(STEP, part * p / known)
        b[y] += min(STEP, part / information[y])
        return
    if lane == 0:
        for k in range(K):
            p = e[k]
            known = information[k] + p * (1.0 - p)
            information[k] = known
            b[k] -= p / known
    else:
        keep = KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else KEEP_BIAS_3
        gift = 1.0 - keep
        for k in range(K):
            p = e[k]
            old = keep * information[k]
            anchored = old + gift
            known = anchored + p * (1.0 - p)
            information[k] = known
            # b * old/anchored - p/known, with one division
            b[k] = (b[k] * (old * known) - p * anchored) / (anchored * known)
    b[y] += 1.0 / information[y]


@kernel
def solved(
    h00: float, h01: float, h02: float, h11: float, h12: float, h22: float, r0: float, r1: float, r2: float
) -> tuple[float, float, float]:
    """H^-1 r for a symmetric positive definite H, by LDL'."""
    i0 = 1.0 / h00
    l1, l2 = h01 * i0, h02 * i0
    g = h12 - l1 * h02
    i1 = 1.0 / (h11 - l1 * h01)
    l3 = g * i1
    r1 -= l1 * r0
    r2 -= l2 * r0 + l3 * r1
    s2 = r2 / (h22 - l2 * h02 - l3 * g)
    s1 = r1 * i1 - l3 * s2
    return r0 * i0 - l1 * s1 - l2 * s2, s1, s2


@kernel
def slope_step(K: int, row: Vector, at: int, y: int, omega: float, work: Vector) -> None:
    """Online Newton: g = mean of x under o, minus x_y;  H += omega g^2;  A = clip(A - 10 omega g/H)."""
    x, o = block(K, work, X), block(K, work, ONLINE)
    x_y, g = x[y], 0.0
    for k in range(K):
        g += o[k] * (x[k] - x_y)
    row[at + 1] += omega * (g * g)
    A = row[at] - ONS_GAIN * (omega * g) / row[at + 1]
    A = min(ONS_RADIUS, A)
    row[at] = max(-ONS_RADIUS, A)


LEAST_STEP = -0.5  # of a factor


@kernel
def learn_factors(K: int, row: Vector, y: int, part: float, work: Vector) -> None:
    """At the two knots around m_k, with weight h: ell += h s(1 - s), rho *= 1 + h (1[y] - s)/ell; kappa likewise.

    With a portion in h. No step more than halves a factor, which those of portion 1 never do.
    """
    m, s, r = block(K, work, MEAN), block(K, work, FACTORED), block(K, work, CONFUSED)
    rho, ell = row[BIAS + 8 * K : BIAS + 14 * K], row[BIAS + 14 * K : BIAS + 20 * K]
    for k in range(K):
        j, h = place(m[k])
        p = s[k]
        j += 6 * k
        left, variance, error = 1.0 - h, part * (p * (1.0 - p)), part * ((1.0 if k == y else 0.0) - p)
        known, known_right = ell[j] + left * variance, ell[j + 1] + h * variance
        ell[j], ell[j + 1] = known, known_right
        rho[j] *= 1.0 + max(LEAST_STEP, left * error / known)
        rho[j + 1] *= 1.0 + max(LEAST_STEP, h * error / known_right)
    if K <= MOST_CONFUSED:
        at = BIAS + 20 * K + int(work[NAMED]) * K
        kappa, info = row[at : at + K], row[at + K * K : at + K * K + K]
        for k in range(K):
            p = r[k]
            known = info[k] + part * (p * (1.0 - p))
            info[k] = known
            kappa[k] *= 1.0 + max(LEAST_STEP, part * ((1.0 if k == y else 0.0) - p) / known)


@kernel
def compound(row: Vector, at: int, ratio: float) -> None:
    """Multiply a likelihood ratio into row[at + 1]; what leaves [1e-100, 1e100] goes to row[at], as a logarithm."""
    product = row[at + 1] * ratio if ratio > 1e-100 else row[at + 1]
    if ratio <= 1e-100:
        row[at] += ln(ratio)
    if product < 1e-100 or product > 1e100:
        row[at] += ln(product)
        product = 1.0
    row[at + 1] = product


# ---- one event -----------------------------------------------------------------------------------------------------


@kernel
def ask_read(method: int, K: int, row: Vector, work: Vector) -> None:
    """Everything that the row of now says of the score that was read, into the scratch."""
    if method == RAW_SCORES:
        return
    slope_logits(K, row[SLOPE if method == MULTI else FIRST], work)
    if method == ONLINE_TEMPERATURE:
        o, logits = block(K, work, ONLINE), block(K, work, LOGIT + 4)
        for k in range(K):
            o[k] = exp(logits[k])
        scale = 1.0 / total(o)
        for k in range(K):
            o[k] *= scale
        return
    lane_logits(K, row, work)
    mix_lanes(K, row[W:], work)
    late = late_at(K)
    if row[late + HORIZON_WEIGHT] > 0.0:
        ask_horizon(K, row[late + ETA :], work[HEAD + LOGIT * K :], work)
        add_horizon(K, row[late + HORIZON_WEIGHT], work)
    ask_stages(K, row, work)
    ask_top(K, row, work)


@kernel
def ask(method: int, K: int, row: Vector, score: Vector, work: Vector, forecast: Vector) -> None:
    """Forecast one event; the row is read only. The scratch keeps what a label that comes at once needs."""
    read(K, score, work)
    ask_read(method, K, row, work)
    if method == MULTI:
        p, o = block(K, work, EXPERT), block(K, work, ONLINE)
        g0, g1, scale = row[G], row[G + 1], 1.0 / (1.0 + K * EPS)
        for k in range(K):
            forecast[k] = (g0 * p[k] + g1 * o[k] + EPS) * scale
    else:
        said = block(K, work, ONLINE if method == ONLINE_TEMPERATURE else F)
        for k in range(K):
            forecast[k] = said[k]


@loop
def predict(method: int, K: int, row: Vector, score: Vector, receipt: Vector, work: Vector, forecast: Vector) -> None:
    """The same; what a late label needs goes into the receipt."""
    ask(method, K, row, score, work, forecast)
    receipt[SEEN], receipt[ISSUED_SLOPE] = row[N], 1.0
    for k in range(K):
        receipt[SCORE + k] = score[k]
    if method == ONLINE_TEMPERATURE:
        receipt[ISSUED_SLOPE] = row[FIRST]
    elif method == MULTI:
        receipt[ISSUED_SLOPE] = row[SLOPE]
        remember(K, row, work, receipt[SCORE + K :])


@kernel
def remember(K: int, row: Vector, work: Vector, then: Vector) -> None:
    """What was in force, and what the stages of MULTI said."""
    late = late_at(K)
    then[ISSUED_OFFSET] = work[TOP_OFFSET]
    for lane in range(6):
        then[ISSUED_W + lane] = row[W + lane]
    then[ISSUED_W + 6] = row[late + HORIZON_WEIGHT]
    for k in range(7):  # v, z and g
        then[ISSUED_V + k] = row[V + k]
    for k in range(5):
        then[ISSUED_ETA + k] = row[late + ETA + k]
    logits, stages = work[HEAD + LOGIT * K :], work[HEAD + FACTORED * K :]
    for k in range(4 * K):
        then[ISSUED_LOGITS + k] = logits[k]
    for k in range(2 * K if K <= MOST_CONFUSED else K):
        then[ISSUED_LOGITS + 4 * K + k] = stages[k]


@loop  # apart from those who never need it
def learn_late(
    K: int, row: Vector, y: int, lag: float, omega: float, logits: Vector, said: Vector, work: Vector
) -> None:
    """The weights and the horizon lane learn y: what each part had said of it, and the logits the lanes had then."""
    late, n = late_at(K), row[N] + 1.0
    weigh(K, row, SHARE / n, lag, omega, said)
    D = row[late + MEAN_LAG]
    D += (lag - D) / min(n, LAG_WINDOW)
    row[late + MEAN_LAG] = D
    # Else the lane sleeps, or the lanes had not learnt yet what they have learnt since.
    if row[late + HORIZON_WEIGHT] > 0.0 and row[N] - lag >= D:
        if lag > 0.0:
            ask_horizon(K, row[late + ETA :], logits, work)
        learn_horizon(K, row, late, y, omega, work)


@kernel
def learn_now(K: int, row: Vector, y: int, omega: float, work: Vector) -> None:
    """The same where the scratch still holds what was said."""
    late = late_at(K)
    if row[TOTAL] == 0.0 and row[late + HORIZON_WEIGHT] == 0.0:
        weigh_at_once(K, row, SHARE / (row[N] + 1.0), y, work)
    else:
        said = small_scratch(SAID)
        said_now(K, y, work, said)
        learn_late(K, row, y, 0.0, omega, work, said, work)


@kernel
def move(K: int, row: Vector, y: int, part: float, forgets: bool, work: Vector) -> None:
    """Everything that moves from what the row of now says learns a portion of y."""
    for lane in range(4):
        learn_shared(K, row, lane, y, part, forgets, work)
    for lane in range(4):
        learn_biases(K, row, lane, y, part, forgets, work)
    slope_step(K, row, SLOPE, y, part, work)
    learn_factors(K, row, y, part, work)
    C, t = work[TOP_SHARE], work[TOP_SPLINE]
    j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
    move_knots(row, OFFSET + j, KNOWN + j, h, t, 1.0 if y == int(work[TOP]) else 0.0, part)


@large_kernel
def move_by_portions(K: int, row: Vector, y: int, omega: float, work: Vector) -> None:
    """`move` for an omega that is not 1. The scratch holds what the row says of the score that was read."""
    left, done = omega, 0.0
    while left > 0.0:
        part = portion(left, done)
        if done > 0.0:
            ask_read(MULTI, K, row, work)
        move(K, row, y, part, done == 0.0, work)
        left -= part
        done += part


@kernel
def move_all(method: int, K: int, row: Vector, lesson: Lesson, work: Vector) -> None:
    """What moves learns a label."""
    y = int(lesson.y)
    if method == ONLINE_TEMPERATURE:
        slope_step(K, row, FIRST, y, lesson.omega, work)
    elif method == MULTI:
        if lesson.omega == 1.0:
            move(K, row, y, 1.0, True, work)
        else:
            move_by_portions(K, row, y, lesson.omega, work)


@kernel
def paced(row: Vector, outcome: Outcome, forecast: Vector) -> Lesson:
    """What is to be learnt of a label; v = 1 - 2 p_y + sum p^2, p the forecast as it was issued."""
    v = max(LEAST_SPREAD, 1.0 - 2.0 * forecast[int(outcome.y)] + dot(forecast, forecast))
    if is_plain(row, outcome):
        note_event(row, row[N], v)
        return one_event(outcome.y)
    return pace(row, outcome, v)


@kernel
def count(method: int, K: int, row: Vector, t: float, given: float, lesson: Lesson, forecast: Vector) -> None:
    """Evidence and counts: the score gave so much to the label."""
    issued = forecast[int(lesson.y)]
    likelihood = issued if issued > 0.0 else EPS  # a raw score, while nothing has matured, may say 0
    at = evidence_at(method, K)
    if lesson.weight == 1.0:
        compound(row, at, likelihood / (max(EPS, given)))
    else:
        row[at] += lesson.weight * ln(likelihood / (max(EPS, given)))
    row[T] = t
    row[N] += 1.0


@kernel
def settle_at_once(
    method: int, K: int, row: Vector, t: float, outcome: Outcome, given: float, work: Vector, forecast: Vector
) -> None:
    """Learn a label after t forecasts, of which its own was the last: the scratch is as `ask` left it.

    `given` is what the score gave to y, `forecast` was issued.
    """
    if is_nothing(outcome):
        return
    lesson = paced(row, outcome, forecast)
    if method == MULTI:
        learn_now(K, row, int(outcome.y), lesson.omega, work)
    move_all(method, K, row, lesson, work)
    count(method, K, row, t, given, lesson, forecast)


@kernel
def play(
    method: int, K: int, row: Vector, t: float, score: Vector, outcome: Outcome, work: Vector, forecast: Vector
) -> None:
    """Forecast the t-th event, and learn its label at once; NaN: it is not known."""
    ask(method, K, row, score, work, forecast)
    if outcome.y == outcome.y:
        settle_at_once(method, K, row, t, outcome, score[int(outcome.y)], work, forecast)


@entry
def settle(
    method: int, K: int, row: Vector, t: float, outcome: Outcome, receipt: Vector, work: Vector, forecast: Vector
) -> None:
    """Learn a label after t forecasts, of which its own was the last and `predict` the last to use the scratch."""
    settle_at_once(method, K, row, t, outcome, receipt[SCORE + int(outcome.y)], work, forecast)


@loop
def update(
    method: int, K: int, row: Vector, t: float, outcome: Outcome, receipt: Vector, work: Vector, forecast: Vector
) -> None:
    """Learn a label, which may be late, after t forecasts; `forecast` is its own, as it was issued."""
    if is_nothing(outcome):
        return
    lag, y = row[N] - receipt[SEEN], int(outcome.y)
    said = small_scratch(SAID)
    read(K, receipt[SCORE : SCORE + K], work)
    if method == MULTI and lag > 0.0:
        said_then(K, y, receipt, work, said)
    ask_read(method, K, row, work)
    lesson = paced(row, outcome, forecast)
    if method == MULTI:
        if lag > 0.0:
            learn_late(K, row, y, lag, lesson.omega, receipt[SCORE + K + ISSUED_LOGITS :], said, work)
        else:
            learn_now(K, row, y, lesson.omega, work)
    move_all(method, K, row, lesson, work)
    count(method, K, row, t, receipt[SCORE + y], lesson, forecast)


@kernel
def start_from(method: int, K: int, pool: Vector, row: Vector) -> None:
    """A new row takes the parameters of the lanes and the slope from the pool; the rest, also what is known of them,
    is new."""
    if method == ONLINE_TEMPERATURE:
        row[FIRST] = pool[FIRST]
    elif method == MULTI:
        row[SLOPE] = pool[SLOPE]
        for lane in range(4):
            at = THETA + THETA_WIDTH * lane
            row[at], row[at + 1], row[at + 2] = pool[at], pool[at + 1], pool[at + 2]
            at = BIAS + 2 * lane * K
            for k in range(at, at + K):
                row[k] = pool[k]


# ---- scores from outside: matrices by rows, laid out flat, K numbers for each event --------------------------------

TOLERANCE = 1e-6  # how far from 1 the sum of given probabilities may be
ROUNDING = 1e-12  # a sum this near to 1 is 1: the scores stay as they came, to the last bit
GOOD, NOT_A_NUMBER, NEGATIVE, WRONG_SUM = 0, 1, 2, 3


@entry
def ready(K: int, scores: Vector, logits: int) -> tuple[int, int, int]:
    """Turn rows of logits, or of almost normalised probabilities, into probabilities, in place.

    Returns what is wrong with the first bad row, that row, and the column. Rows before it are changed already.
    """
    for i in range(len(scores) // K):
        score = scores[i * K : (i + 1) * K]
        for k in range(K):
            if not -1e300 < score[k] < 1e300:
                return NOT_A_NUMBER, i, k
        if logits == 1:
            softmax(score)
        else:
            for k in range(K):
                if score[k] < 0.0:
                    return NEGATIVE, i, k
            mass = total(score)
            if not -TOLERANCE <= mass - 1.0 <= TOLERANCE:
                return WRONG_SUM, i, 0
            if not -ROUNDING <= mass - 1.0 <= ROUNDING:
                for k in range(K):
                    score[k] /= mass
    return GOOD, 0, 0
