"""Where everything lies: the row of a stream, the receipt of an event, and the scratch of the kernels.

A row of MULTI with K classes, float64::

    0 t    1 n    2-7 w (four lanes, raw score, ONS)    8-10 v (mean, factors, confusion)    11-12 z (plain, spline)
    13-14 g (expert, ONS)    15-16 A, its information    17-52 four times (theta 3, H 00 01 02 11 12 22)
    53-63 offsets    64-74 information of the offsets    75.. four times (b K, I K)
    then rho (K x 6), its information (K x 6), and for K <= 64 kappa (K x K, row = named class), its information

It is 75 + 20 K wide, and 2 K^2 wider for K <= 64. The online temperature alone has the row t, n, A, information; the
raw scores have t, n. Behind the row stand two numbers of the evidence, which is no part of the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibeat._util.types import Vector
from calibeat.core.auto import ONS_RADIUS, ONS_RHO
from calibeat.core.spline import EXPERT_KNOTS, INFORMATION
from calibeat.errors import InvalidInput

RAW, ONLINE_TEMPERATURE, MULTI = 0, 1, 2
CODES = {"raw": RAW, "ots": ONLINE_TEMPERATURE, "multi": MULTI}
LANE_NAMES = ("still", "slow", "fast", "priors only", "raw score", "online temperature")
MOST_CONFUSED = 64  # classes with a table of confusions; beyond, 2 K^2 numbers are too many

# ---- the row -----------------------------------------------------------------------------------------------------
T, N = 0, 1
W, V, Z, G = 2, 8, 11, 13
SLOPE, SLOPE_INFORMATION = 15, 16
THETA, THETA_WIDTH = 17, 9
OFFSET, KNOWN = 53, 64
BIAS = 75
FACTOR_KNOTS = 6

BIAS_VARIANCES = (0.1, 1.0, 1.0, 1.0)
THETA_INFORMATION = (4.0, 0.0, 0.0, 1.0, 0.0, 0.25)  # of a, c, d: the upper triangle of H_0
FACTOR_INFORMATION, CONFUSION_INFORMATION = 3.0, 2.0

# ---- the receipt: n, A, the K scores, and for MULTI the K probabilities of the expert -----------------------------
SEEN, ISSUED_SLOPE, SCORE = 0, 1, 2

# ---- scratch: a few numbers, then K each of x, f, u, five times K of the lanes that learn, K of m, s, r, c, p ------
NAMED, TOP, TOP_SHARE, TOP_SPLINE, REST_SHARE, REST_SPLINE, HEAD = 0, 1, 2, 3, 4, 5, 6


def width(method: int, K: int) -> int:
    """How many numbers a stream is; the two of the evidence come on top."""
    if method != MULTI:
        return 4 if method == ONLINE_TEMPERATURE else 2
    return BIAS + 20 * K + (2 * K * K if K <= MOST_CONFUSED else 0)


def receipt_width(method: int, K: int) -> int:
    """How many numbers an event must remember."""
    return SCORE + (2 * K if method == MULTI else K)


def scratch(K: int) -> Vector:
    """Room for the kernels to work in."""
    return np.zeros(HEAD + 13 * K)


def initial_row(method: int, K: int) -> Vector:
    """The row, and the evidence behind it, of a stream that has seen nothing: the identity."""
    size = width(method, K)
    row = np.zeros(size + 2)
    row[size + 1] = 1.0
    if method == ONLINE_TEMPERATURE:
        row[2:4] = 1.0, ONS_RHO
    if method != MULTI:
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
        row[kappa + K * K : size] = CONFUSION_INFORMATION
    return row


# ---- a row from outside -------------------------------------------------------------------------------------------


def check_row(method: int, K: int, row: Sequence[float] | Vector, events: int) -> None:
    """Raise `InvalidInput` unless a row (with its evidence) is one that a stream can have."""
    values = np.asarray(row, dtype=np.float64)
    size = width(method, K)
    t, n = values[T], values[N]
    if t != events or not (0 <= n <= t and n == math.floor(n)):
        raise InvalidInput(f"row must have no more labels than its {events} forecasts, got t {t!r} and n {n!r}")
    if not 1e-101 <= values[size + 1] <= 1e101:
        raise InvalidInput(f"row must have an evidence in [1e-101, 1e101], got {values[size + 1]!r}")
    if method == RAW:
        return
    slope = SLOPE if method == MULTI else 2
    if not (abs(values[slope]) <= ONS_RADIUS and ONS_RHO <= values[slope + 1] < 1e150):
        raise InvalidInput(f"row must have a slope in [-{ONS_RADIUS:g}, {ONS_RADIUS:g}], got {values[slope]!r}")
    if method == MULTI:
        _check_multi(K, values[:size], float(n))


def _check_multi(K: int, row: Vector, n: float) -> None:
    stages = 3 if K <= MOST_CONFUSED else 2
    for what, at, count in (("lanes", W, 6), ("stages", V, stages), ("spline", Z, 2), ("guard", G, 2)):
        weights = row[at : at + count].tolist()
        if not all(0.01 / (n + 1.0) <= w <= 1.0 for w in weights) or abs(math.fsum(weights) - 1.0) > 1e-9:
            raise InvalidInput(f"row must have weights of {what} that sum to one, none of them lost, got {weights}")
    for lane in range(4):
        a, c, d, *H = row[THETA + THETA_WIDTH * lane : THETA + THETA_WIDTH * (lane + 1)].tolist()
        if not all(abs(value) <= 1e6 for value in (a, c, d)):
            raise InvalidInput(f"row must have shared numbers in [-1e+06, 1e+06], got {[a, c, d]} - in lane {lane}")
        h00, h01, h02, h11, h12, h22 = H
        matrix = np.array([[h00, h01, h02], [h01, h11, h12], [h02, h12, h22]])
        if not (np.abs(matrix) < 1e150).all() or np.linalg.eigvalsh(matrix)[0] <= 0.0:
            raise InvalidInput(f"row must have a positive definite matrix, got another - in lane {lane}")
        bias = BIAS + 2 * lane * K
        _check_span("biases", row[bias : bias + K], -1e6, 1e6)
        _check_span("information of biases", row[bias + K : bias + 2 * K], 0.01, 1e15)
    _check_span("offsets", row[OFFSET:KNOWN], -700.0, 700.0)
    _check_span("information of offsets", row[KNOWN:BIAS], INFORMATION, 1e15)
    rho = BIAS + 8 * K
    _check_span("factors", row[rho : rho + 6 * K], 1e-300, 1e300)
    _check_span("information of factors", row[rho + 6 * K : rho + 12 * K], FACTOR_INFORMATION, 1e15)
    if K <= MOST_CONFUSED:
        kappa = BIAS + 20 * K
        _check_span("confusion factors", row[kappa : kappa + K * K], 1e-300, 1e300)
        _check_span("information of confusions", row[kappa + K * K :], CONFUSION_INFORMATION, 1e15)


def _check_span(what: str, values: Vector, low: float, high: float) -> None:
    bad = ~((values >= low) & (values <= high))
    if bad.any():
        got = float(values[bad.argmax()])
        raise InvalidInput(f"row must have {what} in [{low:g}, {high:g}], got {got!r}")
