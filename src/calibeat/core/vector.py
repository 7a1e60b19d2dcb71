r"""MULTI: the calibration of K classes, as kernels on one row of float64. The loops over batches are in `loops`.

What each stage says of a score, and how the forecast comes of it::

    READ       f_k = max(score_k, 1e-7) / sum;  x_k = ln max(score_k, 1e-7);  u_k = 1[score_k <= 1e-7];  j = argmax
    LANES      e_l = softmax(a_l x + c_l f + d_l u + b_l), l = 0..3;   o = softmax(A x)
               m = sum_l w_l e_l + w_4 f + w_5 o
    FACTORS    s_k ~ m_k interp(rho_k, m_k), knots (0, .01, .1, .5, .9, 1)
    CONFUSION  r_k ~ s_k kappa[j, k]                                              (K <= 64)
               c = v_0 m + v_1 s + v_2 r
    TOP        i = argmax c;  C = c_i, D = 1 - C;  offset = interp(offsets, 10 C)
               t = C/(C + D e^-offset);  p_i = z_0 C + z_1 t, the others c_k scaled
    GUARD      forecast = (g_0 p + g_1 o + 1e-7) / (1 + K 1e-7)

A label y comes ``lag`` labels after its forecast, as the n-th: alpha = .5/n, tau = 1/(1 + lag/10). Each stage is asked
again at the row of now, so the receipt is small; only the guard judges what was issued.

A row of MULTI::

    0 t    1 n    2-7 w (four lanes, raw score, ONS)    8-10 v (mean, factors, confusion)    11-12 z (plain, spline)
    13-14 g (expert, ONS)    15-16 A, its information    17-52 four times (theta 3, H 00 01 02 11 12 22)
    53-63 offsets    64-74 information of the offsets    75.. four times (b K, I K)
    then rho (K x 6), its information (K x 6), and for K <= 64 kappa (K x K, row = named class), its information

It is 75 + 20 K wide, and 2 K^2 wider for K <= 64. The online temperature alone has the row t, n, A, information; the
raw scores have t, n. Behind them stand two numbers of the evidence. As for two classes, t is the number of forecasts
that were made when the last label was learnt: a forecast does not touch the row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.types import Flags, Ints, Table, Vector
from calibeat.errors import InvalidInput, UnknownMethod

from .auto import EPS, ONS_GAIN, ONS_RADIUS, ONS_RHO, SHARE, STEP, inside
from .layout import N, Spec, T
from .parts import check_all
from .spline import EXPERT_KNOTS, INFORMATION, knot, move_knots
from .subset import entry, kernel, loop, small_int

RAW_SCORES, ONLINE_TEMPERATURE, MULTI = 0, 1, 2
CODES = {"raw": RAW_SCORES, "ots": ONLINE_TEMPERATURE, "multi": MULTI}
LANE_NAMES = ("still", "slow", "fast", "priors only", "raw score", "online temperature")
MOST_CONFUSED = 64  # classes with a table of confusions; beyond, 2 K^2 numbers are too many

# ---- the row -------------------------------------------------------------------------------------------------------
W, V, Z, G = 2, 8, 11, 13
SLOPE, SLOPE_INFORMATION = 15, 16
THETA, THETA_WIDTH = 17, 9
OFFSET, KNOWN = 53, 64
BIAS = 75

BIAS_VARIANCES = (0.1, 1.0, 1.0, 1.0)
THETA_INFORMATION = (4.0, 0.0, 0.0, 1.0, 0.0, 0.25)  # of a, c, d: the upper triangle of H_0
FACTOR_INFORMATION, CONFUSION_INFORMATION = 3.0, 2.0

# ---- the receipt: n, A, the K scores, and for MULTI the K probabilities of the expert ------------------------------
SEEN, ISSUED_SLOPE, SCORE = 0, 1, 2

# ---- scratch: a few numbers, then K each of x, f, u, five times K of the lanes that learn, K of m, s, r, c, p ------
NAMED, TOP, TOP_SHARE, TOP_SPLINE, REST_SHARE, REST_SPLINE, HEAD = 0, 1, 2, 3, 4, 5, 6


@kernel
def evidence_at(method: int, K: int) -> int:
    """Where the evidence stands: behind the numbers of the method."""
    if method != MULTI:
        return 4 if method == ONLINE_TEMPERATURE else 2
    return BIAS + 20 * K + (2 * K * K if K <= MOST_CONFUSED else 0)


def scratch(K: int) -> Vector:
    """Room for the kernels to work in; behind it a forecast, and a receipt, of an event that is settled at once."""
    return np.zeros(HEAD + 14 * K + SCORE + 2 * K)


@kernel
def forecast_in(K: int, work: Vector) -> Vector:
    """The forecast in the scratch."""
    return work[HEAD + 13 * K : HEAD + 14 * K]


@kernel
def receipt_in(K: int, work: Vector) -> Vector:
    """The receipt in the scratch."""
    return work[HEAD + 14 * K :]


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
    (155, 6)
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
        return SCORE + (2 if self.name == "multi" else 1) * self.classes

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
            row[2:4] = 1.0, ONS_RHO
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
            row[kappa + K * K : -2] = CONFUSION_INFORMATION
        return row

    # ---- what comes from outside ----------------------------------------------------------------------------------

    def check_rows(self, rows: Table, events: Vector | Ints, first: int | None = None) -> None:
        """Check rows, one stream each, and how many forecasts each has made, as `Method.check_rows` does.

        Raises
        ------
        InvalidInput : this method cannot have one of them. The message has its number if that of the first is given.
        """
        check_all(
            ((good, f"row must {what}, got another") for what, good in self._checks(rows, np.asarray(events))), first
        )

    def _checks(self, rows: Table, events: Vector | Ints) -> Iterator[tuple[str, Flags]]:
        """What a row must do, and which rows do it."""
        t, n = rows[:, T], rows[:, N]
        counts = (n >= 0.0) & (n <= t) & (t <= events) & (n == np.floor(n)) & (t == np.floor(t))
        yield "count labels in whole numbers up to its forecasts", counts
        yield "have an evidence in [1e-101, 1e+101]", _within(rows[:, -1:], 1e-101, 1e101)
        if self.name == "raw":
            return
        slope = SLOPE if self.name == "multi" else 2
        yield f"have a slope in [-{ONS_RADIUS:g}, {ONS_RADIUS:g}]", _within(rows[:, slope], -ONS_RADIUS, ONS_RADIUS)
        yield "have information of the slope", _within(rows[:, slope + 1], ONS_RHO, 1e150)
        if self.name == "multi":
            yield from self._checks_of_parts(rows, n)

    def _checks_of_parts(self, rows: Table, n: Vector) -> Iterator[tuple[str, Flags]]:
        K = self.classes
        stages = 3 if K <= MOST_CONFUSED else 2
        for what, at, count in (("lanes", W, 6), ("stages", V, stages), ("spline", Z, 2), ("guard", G, 2)):
            weights = rows[:, at : at + count]
            sums = np.abs(weights.sum(axis=1) - 1.0) <= 1e-9
            yield (
                f"have weights of {what} that sum to one, none of them lost",
                sums & (weights >= 0.01 / (n[:, None] + 1.0)).all(axis=1),
            )
        for lane in range(4):
            at = THETA + THETA_WIDTH * lane
            yield f"have shared numbers in [-1e+06, 1e+06] in lane {lane}", _within(rows[:, at : at + 3], -1e6, 1e6)
            good = _positive_definite(rows[:, at + 3 : at + THETA_WIDTH], 3)
            yield f"have a positive definite matrix in lane {lane}", good
        rho, kappa = BIAS + 8 * K, BIAS + 20 * K
        lanes = rows[:, BIAS:rho].reshape(-1, 4, 2, K)
        confusion = rows[:, kappa : kappa + 2 * K * K] if K <= MOST_CONFUSED else rows[:, :0]
        for what, values, low, high in (
            ("biases", lanes[:, :, 0], -1e6, 1e6),
            ("information of biases", lanes[:, :, 1], 0.01, 1e15),
            ("offsets", rows[:, OFFSET:KNOWN], -700.0, 700.0),
            ("information of offsets", rows[:, KNOWN:BIAS], INFORMATION, 1e15),
            ("factors", rows[:, rho : rho + 6 * K], 1e-300, 1e300),
            ("information of factors", rows[:, rho + 6 * K : kappa], FACTOR_INFORMATION, 1e15),
            ("confusion factors", confusion[:, : K * K], 1e-300, 1e300),
            ("information of confusions", confusion[:, K * K :], CONFUSION_INFORMATION, 1e15),
        ):
            yield f"have {what} in [{low:g}, {high:g}]", _within(values, low, high)

    def receipts_are_sound(self, lanes: Table, scores: Table, seen: Ints, probabilities: Table) -> Flags:
        """Which receipts from outside hold numbers that can have been issued, which agree where they stand twice."""
        issued = lanes[:, SCORE + self.classes :]
        good = _within(scores, 0.0, 1.0) & _within(probabilities, 0.0, 1.0) & (probabilities > 0.0).all(axis=1)
        good &= (lanes[:, SEEN] == seen) & (lanes[:, SCORE : SCORE + self.classes] == scores).all(axis=1)
        return good & _within(lanes[:, ISSUED_SLOPE], -ONS_RADIUS, ONS_RADIUS) & _within(issued, 1e-300, 1.0)

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
            "lanes": _named(LANE_NAMES, values[W:]),
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
            return {"a": rows[:, 2].copy()} if self.name == "ots" else {}
        w = rows[:, W : W + 6]
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


def _within(values: Table, low: float, high: float) -> Flags:
    """Which rows have all these numbers in the range."""
    good: Any = ((values >= low) & (values <= high)).all(axis=tuple(range(1, values.ndim)))
    return np.asarray(good)


def _positive_definite(packed: Table, d: int) -> Flags:
    """Which of these symmetric matrices, given by their upper triangles, are positive definite and of possible size."""
    full = np.empty((len(packed), d, d))
    above = np.triu_indices(d)
    full[:, above[0], above[1]] = full[:, above[1], above[0]] = packed
    good = _within(packed, -1e150, 1e150)
    full[~good] = np.eye(d)
    return good & (np.linalg.eigvalsh(full)[:, 0] > 0.0)


def frozen_numbers(method: VectorMethod, row: Vector) -> dict[str, Any]:
    """The numbers of a row that a forecast needs, by name."""
    K = method.classes
    if method.name == "raw":
        return {}
    if method.name == "ots":
        return {"slope": float(row[2])}
    rho, kappa = BIAS + 8 * K, BIAS + 20 * K
    confusion = row[kappa : kappa + K * K].reshape(K, K).tolist() if K <= MOST_CONFUSED else []
    return {
        "slope": float(row[SLOPE]),
        "lane_weights": row[W : W + 6].tolist(),
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
# An exponential of plain arithmetic, and sums in four parts: both let the compiler use vector instructions. `math.exp`
# is a call for each number. `exp_of_negative` is a polynomial and a table, correct to 2e-16, with the same bits in
# Python and compiled, and takes a third of the time in a compiled loop.

LOWEST = -700.0  # exp(-700) is 1e-304: never zero, so that a forecast is always positive

_POWERS = tuple(2.0**-n for n in range(1024))
_PER_LN2 = 1.0 / math.log(2.0)
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # n times it is exact for n < 2^20
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # ln 2 - _LN2_HIGH

# e^r = 1 + r + r^2 q(r) for |r| <= ln(2)/2: q interpolates (e^r - 1 - r)/r^2 at ten Chebyshev nodes.
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5, _Q6, _Q7, _Q8, _Q9 = (
    0.5000000000000001,
    0.16666666666666669,
    0.04166666666662413,
    0.008333333333330062,
    0.0013888888917213717,
    0.00019841269863053618,
    2.4801521295954376e-05,
    2.7557268459997064e-06,
    2.7620088445409746e-07,
    2.510038549551032e-08,
)


@kernel
def exp_of_negative(z: float) -> float:
    """e^z for LOWEST <= z <= 0."""
    whole = small_int(0.5 - z * _PER_LN2)
    n = float(whole)
    r = (z + n * _LN2_HIGH) + n * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    high = (_Q4 + _Q5 * r) + (_Q6 + _Q7 * r) * r2 + (_Q8 + _Q9 * r) * r4
    q = ((_Q0 + _Q1 * r) + (_Q2 + _Q3 * r) * r2) + high * r4
    return (1.0 + (r + r2 * q)) * _POWERS[whole]


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
def lower_to_zero(z: Vector) -> None:
    """z <- max(z - max(z), LOWEST): what `exp_of_negative` takes."""
    top = largest(z)
    for k in range(len(z)):
        d = z[k] - top
        z[k] = max(LOWEST, d)


@kernel
def exponentials(z: Vector) -> None:
    """z <- e^z."""
    for k in range(len(z)):
        z[k] = exp_of_negative(z[k])


@kernel
def softmax(z: Vector) -> None:
    """z <- softmax(z)."""
    lower_to_zero(z)
    exponentials(z)
    scale = 1.0 / total(z)
    for k in range(len(z)):
        z[k] *= scale


# ---- what each stage says ------------------------------------------------------------------------------------------


@entry
def read(K: int, score: Vector, work: Vector) -> None:
    """f, x, u and the named class of a score."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    named, best = 0, -1.0
    for k in range(K):
        given = score[k]
        if given > best:
            best, named = given, k
        floored = max(EPS, given)
        f[k] = floored
        u[k] = 1.0 if given <= EPS else 0.0
        x[k] = math.log(floored)
    scale = 1.0 / total(f)
    for k in range(K):
        f[k] *= scale
    work[NAMED] = named


@kernel
def online_temperature(K: int, A: float, work: Vector, at: int) -> None:
    """softmax(A x), into work from `at` on."""
    x, o = work[HEAD : HEAD + K], work[at : at + K]
    for k in range(K):
        o[k] = A * x[k]
    softmax(o)


@kernel
def ask_lanes(K: int, row: Vector, work: Vector) -> None:
    """e_0, ..., e_3, o and their mixture m."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    first = HEAD + 3 * K
    for lane in range(4):
        at = THETA + THETA_WIDTH * lane
        a, c, d = row[at], row[at + 1], row[at + 2]
        at = BIAS + 2 * lane * K
        b, z = row[at : at + K], work[first + lane * K : first + (lane + 1) * K]
        for k in range(K):
            z[k] = a * x[k] + c * f[k] + d * u[k] + b[k]
        lower_to_zero(z)
    a, z = row[SLOPE], work[first + 4 * K : first + 5 * K]
    for k in range(K):
        z[k] = a * x[k]
    lower_to_zero(z)
    exponentials(work[first : first + 5 * K])
    m, w = work[first + 5 * K : first + 6 * K], row[W + 4]
    for k in range(K):
        m[k] = w * f[k]
    for lane in range(5):
        e, w = work[first + lane * K : first + (lane + 1) * K], row[W + lane if lane < 4 else W + 5]
        scale = 1.0 / total(e)
        for k in range(K):
            p = e[k] * scale
            e[k] = p
            m[k] += w * p


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
    at = HEAD + 8 * K
    m, s, r, c = (
        work[at : at + K],
        work[at + K : at + 2 * K],
        work[at + 2 * K : at + 3 * K],
        work[at + 3 * K : at + 4 * K],
    )
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
def ask_top(K: int, row: Vector, work: Vector, p: Vector) -> None:
    """The expert p, from c: the share of the top class by the spline, the others scaled."""
    c = work[HEAD + 11 * K : HEAD + 12 * K]
    best = largest(c)
    i = 0
    while c[i] != best:
        i += 1
    c[i] = 0.0
    rest = total(c)
    c[i] = best
    # 1 - C would have lost the digits of a small rest.
    C, D = inside(best / (best + rest)), inside(rest / (best + rest))
    j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
    odds = D * math.exp(-((1.0 - h) * row[OFFSET + j] + h * row[OFFSET + j + 1]))
    t, t_rest = inside(C / (C + odds)), inside(odds / (C + odds))
    scale = (row[Z] * D + row[Z + 1] * t_rest) / rest
    for k in range(K):
        p[k] = c[k] * scale
    p[i] = row[Z] * C + row[Z + 1] * t
    work[TOP] = i
    work[TOP_SHARE], work[TOP_SPLINE], work[REST_SHARE], work[REST_SPLINE] = C, t, D, t_rest


# ---- how each stage learns a label ---------------------------------------------------------------------------------

LAG_TEMPER, LAG_PULL, MOST_PULL = 10.0, 0.05, 0.5  # late labels: L^(1/(1 + lag/10)), and a pull of 0.05 lag/n
# How much of the past a lane keeps at each label: of the shared numbers, and of the biases.
KEEP_1, KEEP_2, KEEP_BIAS_3 = 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0 - 1.0 / 50.0


@kernel
def pull_of(lag: float, n: float) -> float:
    """How far a late label pulls the weights towards the plain parts: by how few lags fit in the past."""
    pull = LAG_PULL * lag / n
    return min(MOST_PULL, pull)


@kernel
def weigh(K: int, row: Vector, n: float, lag: float, y: int, receipt: Vector, work: Vector) -> None:
    """w <- (1 - pull) ((1 - alpha) w L/sum + alpha/6) + pull 1[ONS], L the probability that each part gave to y.

    v, z and g likewise. A late label counts less (L^tau), and pulls towards the plain parts.
    """
    at = HEAD + 3 * K + y
    e0, e1, e2, e3 = work[at], work[at + K], work[at + 2 * K], work[at + 3 * K]
    f, o, issued_o = work[HEAD + K + y], work[at + 4 * K], work[at + 4 * K]
    m, s, r = work[at + 5 * K], work[at + 6 * K], work[at + 7 * K]
    p = receipt[SCORE + K + y]
    alpha, pull = SHARE / n, 0.0
    if lag > 0.0:
        # The mixture c has done its duty: its place holds what ONS said when the forecast was made.
        online_temperature(K, receipt[ISSUED_SLOPE], work, HEAD + 11 * K)
        issued_o = work[HEAD + 11 * K + y]
        tau, pull = 1.0 / (1.0 + lag / LAG_TEMPER), pull_of(lag, n)
        e0, e1, e2, e3 = math.pow(e0, tau), math.pow(e1, tau), math.pow(e2, tau), math.pow(e3, tau)
        f, o, p, issued_o = math.pow(f, tau), math.pow(o, tau), math.pow(p, tau), math.pow(issued_o, tau)
    u0, u1, u2, u3 = row[W] * e0, row[W + 1] * e1, row[W + 2] * e2, row[W + 3] * e3
    u4, u5 = row[W + 4] * f, row[W + 5] * o
    keep = (1.0 - pull) * (1.0 - alpha) / (((u0 + u1) + (u2 + u3)) + (u4 + u5))
    gift = (1.0 - pull) * (alpha / 6.0)
    row[W], row[W + 1], row[W + 2] = keep * u0 + gift, keep * u1 + gift, keep * u2 + gift
    row[W + 3], row[W + 4], row[W + 5] = keep * u3 + gift, keep * u4 + gift, keep * u5 + gift + pull
    if K <= MOST_CONFUSED:
        u0, u1, u2 = row[V] * m, row[V + 1] * s, row[V + 2] * r
        keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1 + u2)
        gift = (1.0 - pull) * (alpha / 3.0)
        row[V], row[V + 1], row[V + 2] = keep * u0 + gift + pull, keep * u1 + gift, keep * u2 + gift
    else:
        weigh_two(row, V, m, s, alpha, pull)
    if y == int(work[TOP]):
        weigh_two(row, Z, work[TOP_SHARE], work[TOP_SPLINE], alpha, pull)
    else:
        weigh_two(row, Z, work[REST_SHARE], work[REST_SPLINE], alpha, pull)
    weigh_two(row, G, p, issued_o, alpha, 0.0)


@kernel
def weigh_two(row: Vector, at: int, first: float, second: float, alpha: float, pull: float) -> None:
    """Two weights by two likelihoods; the pull is towards the first."""
    u0, u1 = row[at] * first, row[at + 1] * second
    keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1)
    gift = (1.0 - pull) * (alpha / 2.0)
    row[at], row[at + 1] = keep * u0 + gift + pull, keep * u1 + gift


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
def learn_shared(K: int, row: Vector, lane: int, y: int, work: Vector) -> None:
    """H <- keep H + (1 - keep) H_0 + Cov(x, f, u);  theta += H^-1 r min(1, 2/(r H^-1 r)), r = (x, f, u)_y - mean."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    at = HEAD + (3 + lane) * K
    e = work[at : at + K]
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
    keep = KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else 1.0
    h00 = keep * row[at + 3] + (1.0 - keep) * 4.0 + (mxx - mx * mx)
    h01 = keep * row[at + 4] + (mxf - mx * mf)
    h02 = keep * row[at + 5] + (mux - mx * mu)
    h11 = keep * row[at + 6] + (1.0 - keep) + (mff - mf * mf)
    h12 = keep * row[at + 7] + (muf - mf * mu)
    h22 = keep * row[at + 8] + (1.0 - keep) * 0.25 + (muu - mu * mu)
    row[at + 3], row[at + 4], row[at + 5] = h00, h01, h02
    row[at + 6], row[at + 7], row[at + 8] = h11, h12, h22
    s0, s1, s2 = solved(h00, h01, h02, h11, h12, h22, -mx, -mf, -mu)
    gain = -(s0 * mx + s1 * mf + s2 * mu)
    gain = STEP / (max(STEP, gain))
    row[at] += s0 * gain
    row[at + 1] += s1 * gain
    row[at + 2] += s2 * gain


@kernel
def learn_biases(K: int, row: Vector, lane: int, y: int, work: Vector) -> None:
    """old = keep I, gift = (1 - keep)/variance;  b *= old/(old+gift);  I = old + gift + e(1-e);  b += (1[y] - e)/I."""
    at = HEAD + (3 + lane) * K
    e = work[at : at + K]
    at = BIAS + 2 * lane * K
    b, information = row[at : at + K], row[at + K : at + 2 * K]
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
def slope_step(K: int, row: Vector, at: int, y: int, work: Vector) -> None:
    """Online Newton on the temperature: g = mean of x under o, minus x_y;  H += g^2;  A = clip(A - 10 g/H)."""
    x, o = work[HEAD : HEAD + K], work[HEAD + 7 * K : HEAD + 8 * K]
    x_y, g = x[y], 0.0
    for k in range(K):
        g += o[k] * (x[k] - x_y)
    row[at + 1] += g * g
    A = row[at] - ONS_GAIN * g / row[at + 1]
    A = min(ONS_RADIUS, A)
    row[at] = max(-ONS_RADIUS, A)


@kernel
def learn_factors(K: int, row: Vector, y: int, work: Vector) -> None:
    """At the two knots around m_k, with weight h: ell += h s(1 - s), rho *= 1 + h (1[y] - s)/ell; kappa likewise."""
    at = HEAD + 8 * K
    m, s, r = work[at : at + K], work[at + K : at + 2 * K], work[at + 2 * K : at + 3 * K]
    rho, ell = row[BIAS + 8 * K : BIAS + 14 * K], row[BIAS + 14 * K : BIAS + 20 * K]
    for k in range(K):
        j, h = place(m[k])
        p = s[k]
        j += 6 * k
        left, variance, error = 1.0 - h, p * (1.0 - p), (1.0 if k == y else 0.0) - p
        known, known_right = ell[j] + left * variance, ell[j + 1] + h * variance
        ell[j], ell[j + 1] = known, known_right
        rho[j] *= 1.0 + left * error / known
        rho[j + 1] *= 1.0 + h * error / known_right
    if K <= MOST_CONFUSED:
        at = BIAS + 20 * K + int(work[NAMED]) * K
        kappa, info = row[at : at + K], row[at + K * K : at + K * K + K]
        for k in range(K):
            p = r[k]
            known = info[k] + p * (1.0 - p)
            info[k] = known
            kappa[k] *= 1.0 + ((1.0 if k == y else 0.0) - p) / known


@kernel
def compound(row: Vector, at: int, ratio: float) -> None:
    """Multiply a likelihood ratio into row[at + 1]; what leaves [1e-100, 1e100] goes to row[at], as a logarithm."""
    product = row[at + 1] * ratio if ratio > 1e-100 else row[at + 1]
    if ratio <= 1e-100:
        row[at] += math.log(ratio)
    if product < 1e-100 or product > 1e100:
        row[at] += math.log(product)
        product = 1.0
    row[at + 1] = product


# ---- one event -----------------------------------------------------------------------------------------------------


@kernel
def ask(method: int, K: int, row: Vector, score: Vector, work: Vector, p: Vector) -> None:
    """Everything that the row of now says of a score, into the scratch; the expert into p."""
    read(K, score, work)
    if method == ONLINE_TEMPERATURE:
        online_temperature(K, row[2], work, HEAD + 7 * K)
    elif method == MULTI:
        ask_lanes(K, row, work)
        ask_stages(K, row, work)
        ask_top(K, row, work, p)


@loop
def predict(method: int, K: int, row: Vector, score: Vector, receipt: Vector, work: Vector, forecast: Vector) -> None:
    """Forecast one event; the row is read only. What a late label needs goes into the receipt."""
    p = receipt[SCORE + K :]
    receipt[SEEN] = row[N]
    for k in range(K):
        receipt[SCORE + k] = score[k]
    ask(method, K, row, score, work, p)
    if method == MULTI:
        receipt[ISSUED_SLOPE] = row[SLOPE]
        o = work[HEAD + 7 * K : HEAD + 8 * K]
        g0, g1, scale = row[G], row[G + 1], 1.0 / (1.0 + K * EPS)
        for k in range(K):
            forecast[k] = (g0 * p[k] + g1 * o[k] + EPS) * scale
    else:
        receipt[ISSUED_SLOPE] = row[2] if method == ONLINE_TEMPERATURE else 1.0
        at = HEAD + 7 * K if method == ONLINE_TEMPERATURE else HEAD + K
        ours = work[at : at + K]
        for k in range(K):
            forecast[k] = ours[k]


@loop
def settle(method: int, K: int, row: Vector, t: float, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn label y, after t forecasts; the scratch holds what the row of now says, `issued` is what was said of y."""
    if method == MULTI:
        n = row[N] + 1.0
        lag = row[N] - receipt[SEEN]
        weigh(K, row, n, lag, y, receipt, work)
        for lane in range(4):
            learn_shared(K, row, lane, y, work)
        for lane in range(4):
            learn_biases(K, row, lane, y, work)
        slope_step(K, row, SLOPE, y, work)
        learn_factors(K, row, y, work)
        C, s = work[TOP_SHARE], work[TOP_SPLINE]
        j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
        move_knots(row, OFFSET + j, KNOWN + j, h, s, 1.0 if y == int(work[TOP]) else 0.0)
    elif method == ONLINE_TEMPERATURE:
        slope_step(K, row, 2, y, work)
    given = receipt[SCORE + y]
    compound(row, evidence_at(method, K), issued / (max(EPS, given)))
    row[T] = t
    row[N] += 1.0


@loop
def update(method: int, K: int, row: Vector, t: float, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn a label that may be late: everything is asked again at the row of now."""
    # Nobody needs the expert of now; the receipt keeps the issued one.
    ask(method, K, row, receipt[SCORE : SCORE + K], work, work[HEAD + 12 * K : HEAD + 13 * K])
    settle(method, K, row, t, y, receipt, work, issued)


@kernel
def start_from(method: int, K: int, pool: Vector, row: Vector) -> None:
    """A new row takes the parameters of the lanes and the slope from the pool; the rest, also what is known of them,
    is new."""
    if method == ONLINE_TEMPERATURE:
        row[2] = pool[2]
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
