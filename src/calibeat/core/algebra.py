"""Arithmetic that several parts need: the sigmoid, and linear algebra in d <= 3 with scalars.

With so few dimensions scalars are faster than any small array, and nothing is allocated. A symmetric matrix is six
numbers, its upper triangle by rows; in a row of state it follows theta.
"""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .layout import THETA
from .subset import kernel, scale_of

Triple = tuple[float, float, float]
Matrix = tuple[float, float, float, float, float, float]

ROUNDING = 2.0**-52

# Of log((1 + s) / (1 - s)) = 2 s + s R(s^2), and log 2 in two parts: those of fdlibm (Sun Microsystems, 1993).
LG1, LG2, LG3, LG4 = 0.6666666666666735, 0.3999999999940942, 0.2857142874366239, 0.22222198432149784
LG5, LG6, LG7 = 0.1818357216161805, 0.15313837699209373, 0.14798198605116586
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
SQRT_2 = 1.4142135623730951


@kernel
def ln(x: float) -> float:
    """The natural logarithm of a normal positive number, to within a unit of the last place.

    It takes no branch and calls nothing, so a loop over many numbers becomes one over vectors, three times as fast as
    the C library. Its bits are not the library's, but they are the same everywhere.
    """
    m, e = scale_of(x)
    large = m > SQRT_2
    f = (0.5 * m if large else m) - 1.0
    k = e + 1.0 if large else e
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    R = w * (LG2 + w * (LG4 + w * LG6)) + z * (LG1 + w * (LG3 + w * (LG5 + w * LG7)))
    half = 0.5 * f * f
    return k * LN2_HIGH - ((half - (s * (half + R) + k * LN2_LOW)) - f)


@kernel
def sigmoid(z: float) -> float:
    """1 / (1 + e^-z), from the exponential that cannot overflow, without a branch that the processor has to guess."""
    e = math.exp(-abs(z))
    return (1.0 if z >= 0.0 else e) / (1.0 + e)


@kernel
def solve(
    d: int, a00: float, a01: float, a02: float, a11: float, a12: float, a22: float, g0: float, g1: float, g2: float
) -> Triple:
    """A^-1 g for a symmetric positive definite A of d rows, by LDL'; numbers beyond d are not read.

    A pivot that rounding has eaten up is put back to where rounding ends, so that nothing is divided by zero.
    """
    if d == 1:
        return g0 / a00, 0.0, 0.0
    l10 = a01 / a00
    d1 = a11 - l10 * a01
    if d1 < ROUNDING * a11:
        d1 = ROUNDING * a11
    z1 = g1 - l10 * g0
    if d == 2:
        s1 = z1 / d1
        return (g0 - a01 * s1) / a00, s1, 0.0
    l20 = a02 / a00
    c21 = a12 - l20 * a01
    l21 = c21 / d1
    d2 = a22 - l20 * a02 - l21 * c21
    if d2 < ROUNDING * a22:
        d2 = ROUNDING * a22
    s2 = (g2 - l20 * g0 - l21 * z1) / d2
    s1 = (z1 - c21 * s2) / d1
    return (g0 - a01 * s1 - a02 * s2) / a00, s1, s2


@kernel
def matrix(row: Vector, d: int) -> Matrix:
    """The packed matrix of a row: a00, a01, a02, a11, a12, a22, zeros beyond d."""
    a01 = a02 = a11 = a12 = a22 = 0.0
    if d == 2:
        a00, a01, a11 = row[THETA + 2], row[THETA + 3], row[THETA + 4]
    elif d == 1:
        a00 = row[THETA + 1]
    else:
        a00, a01, a02 = row[THETA + 3], row[THETA + 4], row[THETA + 5]
        a11, a12, a22 = row[THETA + 6], row[THETA + 7], row[THETA + 8]
    return a00, a01, a02, a11, a12, a22


@kernel
def theta_dot(row: Vector, d: int, x0: float, x1: float, x2: float) -> float:
    """theta . x"""
    z = row[THETA] * x0
    if d > 1:
        z += row[THETA + 1] * x1
    if d > 2:
        z += row[THETA + 2] * x2
    return z


@kernel
def store_theta(row: Vector, d: int, t0: float, t1: float, t2: float) -> None:
    """The first d numbers of theta into the row."""
    row[THETA] = t0
    if d > 1:
        row[THETA + 1] = t1
    if d > 2:
        row[THETA + 2] = t2


@kernel
def project(
    d: int,
    a00: float,
    a01: float,
    a02: float,
    a11: float,
    a12: float,
    a22: float,
    t0: float,
    t1: float,
    t2: float,
    radius: float,
) -> Triple:
    """The point of the ball |theta| <= R nearest to t in the norm of A.

    theta(lambda) = (A + lambda I)^-1 A t has |theta| falling in lambda; the one lambda with |theta| = R is found by
    Newton's method on 1/|theta|, which is nearly straight in lambda and is approached from below without overshoot.
    """
    if t0 * t0 + t1 * t1 + t2 * t2 <= radius * radius:
        return t0, t1, t2
    # Divided by its trace, A is of order one and the step lambda has a scale.
    scale = 1.0 / (a00 + a11 + a22)
    a00, a01, a02, a11, a12, a22 = a00 * scale, a01 * scale, a02 * scale, a11 * scale, a12 * scale, a22 * scale
    r0 = a00 * t0 + a01 * t1 + a02 * t2
    r1 = a01 * t0 + a11 * t1 + a12 * t2
    r2 = a02 * t0 + a12 * t1 + a22 * t2
    lam = 0.0
    for _ in range(200):
        norm = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
        w0, w1, w2 = solve(d, a00 + lam, a01, a02, a11 + lam, a12, a22 + lam, t0, t1, t2)
        step = norm * norm / (t0 * w0 + t1 * w1 + t2 * w2) * ((norm - radius) / radius)
        if not step > 1e-16 * lam:
            break
        lam += step
        t0, t1, t2 = solve(d, a00 + lam, a01, a02, a11 + lam, a12, a22 + lam, r0, r1, r2)
    norm = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
    if norm > radius:  # what rounding left outside
        t0, t1, t2 = t0 * (radius / norm), t1 * (radius / norm), t2 * (radius / norm)
    return t0, t1, t2


@kernel
def theta_start(d: int, pool: Vector, row: Vector) -> None:
    """A new stream takes the parameters that all streams have taught, and stays as ready to learn as a new one is."""
    for i in range(THETA, THETA + d):
        row[i] = pool[i]


def scaled_identity(d: int, scale: float) -> list[float]:
    """scale I as its packed upper triangle."""
    return [scale if i == j else 0.0 for i in range(d) for j in range(i, d)]
