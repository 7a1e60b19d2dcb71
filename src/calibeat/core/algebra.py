"""Arithmetic that several parts need: exp and ln, the sigmoid, and linear algebra in d <= 3 with scalars.

`exp` and `ln` are the only ones that kernels have. They take no branch and call nothing: a loop over many numbers
becomes one over vectors, and the bits are the same with every processor, compiler and C library.

With so few dimensions scalars are faster than any small array, and nothing is allocated. A symmetric matrix is six
numbers, its upper triangle by rows; in a row of state it follows theta.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal

from calibeat._util.types import Vector

from .layout import THETA
from .subset import bits_of, entry, float_of, kernel

Triple = tuple[float, float, float]
Matrix = tuple[float, float, float, float, float, float]

ROUNDING = 2.0**-52
TWO_52 = 2.0**52  # from here on floats are whole

# e^x = 2^k 2^(i/64) e^r, with whole k and i. Behind k come six bits for i, in a float whose last bit is worth 1.
STEPS = 92.33248261689366  # 64/ln 2
STEP_HIGH, STEP_LOW = 0.010830424695996044, 2.5310172166650877e-13  # ln 2/64 in two parts; n STEP_HIGH is exact
WHOLE = 1.5 * 2.0**52 + 64.0 * 1023.0  # added, it leaves the nearest whole number of steps, and the exponent of 2^k
_EXACT = Context(prec=40)
_ROOTS = tuple(_EXACT.power(2, _EXACT.divide(i, 64)) for i in range(64))
POWERS = tuple(float(root) for root in _ROOTS)  # 2^(i/64), and what these floats lack, as a share
LACKS = tuple(float(_EXACT.subtract(_EXACT.divide(root, Decimal(float(root))), 1)) for root in _ROOTS)
# e^r = 1 + r + r^2 q(r) for |r| <= ln(2)/128: q interpolates (e^r - 1 - r)/r^2 at four Chebyshev nodes.
Q0, Q1, Q2, Q3 = 0.4999999999998506, 0.16666666666664534, 0.041666707403338075, 0.008333339152857227
LEAST_EXPONENT, MOST_EXPONENT = -708.0, 709.0  # beyond, e^x is that of these: neither subnormal nor infinite
LEAST_POWER, MOST_POWER = 3.307553003638408e-308, 8.218407461554972e307

LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 in two parts: n LN2_HIGH is exact, n < 2^20

# ln x = k ln 2 + ln c + ln(1 + r), c the middle of the part of [11/16, 11/8) that x/2^k lies in; 1 around 1.
START, ABOVE = 0x3FE6000000000000, 0x000A000000000000  # the bits of 11/16, and those from there to 1
CENTERS = tuple(
    1.0 if 158 <= i < 162 else 0.6875 + (i + 0.5) / 512.0 if i < 160 else 1.0 + (i - 159.5) / 256.0 for i in range(256)
)
INVERSES = tuple(1.0 / c for c in CENTERS)
LOGS = tuple(
    math.floor(_EXACT.multiply(_EXACT.ln(Decimal(c)), 2**42)) / 2.0**42 for c in CENTERS
)  # n LN2_HIGH + ln c is exact
LOGS_LOW = tuple(float(_EXACT.subtract(_EXACT.ln(Decimal(CENTERS[i])), Decimal(LOGS[i]))) for i in range(256))
# ln(1 + r) = r + r^2 q(r) for r in [-1/256, 1/128]: interpolated at six Chebyshev nodes.
L0, L1, L2 = -0.49999999999999994, 0.33333333333317283, -0.25000000003264256
L3, L4, L5 = 0.20000003211529455, -0.16666635280823464, 0.14143582483486225


@kernel
def exp(x: float) -> float:
    """e^x, to within a unit of the last place, for x in [-708, 709]; beyond, as at the ends."""
    steps = x * STEPS + WHOLE
    bits = bits_of(steps)
    n = steps - WHOLE
    r = (x - n * STEP_HIGH) - n * STEP_LOW
    r2 = r * r
    rest = (LACKS[bits & 63] + r) + (r2 * (Q0 + Q1 * r) + (r2 * r2) * (Q2 + Q3 * r))
    power = POWERS[bits & 63] * float_of(((bits >> 6) & 2047) << 52)
    return LEAST_POWER if x < LEAST_EXPONENT else MOST_POWER if x > MOST_EXPONENT else power + power * rest


@kernel
def scale_of(x: float) -> tuple[float, float]:
    """m and e of a normal positive number m 2^e, 1 <= m < 2."""
    bits = bits_of(x)
    m = float_of((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000)
    e = float_of(((bits >> 52) & 2047) | 0x4330000000000000)  # 2^52 + e: written down, not converted
    return m, e - 4503599627371519.0  # 2^52 + 1023


@kernel
def whole_part(x: float) -> float:
    """The whole part of a number that is not negative, as a float."""
    nearest = (x + TWO_52) - TWO_52
    return x if x >= TWO_52 else nearest - 1.0 if nearest > x else nearest


@kernel
def ln(x: float) -> float:
    """The natural logarithm of a normal positive number, to within a unit of the last place."""
    bits = bits_of(x) + ABOVE
    n = float_of(((bits >> 52) & 2047) | 0x4330000000000000) - 4503599627371519.0  # as in `scale_of`
    i = (bits >> 44) & 255
    r = (float_of((bits & 0xFFFFFFFFFFFFF) + START) - CENTERS[i]) * INVERSES[i]
    r2 = r * r
    q = (L0 + L1 * r) + ((L2 + L3 * r) + (L4 + L5 * r) * r2) * r2
    return (n * LN2_HIGH + LOGS[i]) + (r + (r2 * q + (n * LN2_LOW + LOGS_LOW[i])))


@entry
def exps(x: Vector) -> None:
    """The exponentials of many numbers, in place."""
    for k in range(len(x)):
        x[k] = exp(x[k])


@entry
def lns(x: Vector) -> None:
    """The logarithms of many numbers, in place."""
    for k in range(len(x)):
        x[k] = ln(x[k])


@kernel
def power(x: float, exponent: float) -> float:
    """x^exponent for x in [0, 1], by the logarithm; of 0 it is not quite 0."""
    return exp(exponent * ln(x))


@kernel
def sigmoid(z: float) -> float:
    """1 / (1 + e^-z), from the exponential that cannot overflow, without a branch that the processor has to guess."""
    e = exp(-abs(z))
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
    per_a00 = 1.0 / a00
    l10 = a01 * per_a00
    d1 = a11 - l10 * a01
    if d1 < ROUNDING * a11:
        d1 = ROUNDING * a11
    z1 = g1 - l10 * g0
    if d == 2:
        s1 = z1 / d1
        return (g0 - a01 * s1) * per_a00, s1, 0.0
    l20 = a02 * per_a00
    c21, per_d1 = a12 - l20 * a01, 1.0 / d1
    l21 = c21 * per_d1
    d2 = a22 - l20 * a02 - l21 * c21
    if d2 < ROUNDING * a22:
        d2 = ROUNDING * a22
    s2 = (g2 - l20 * g0 - l21 * z1) / d2
    s1 = (z1 - c21 * s2) * per_d1
    return (g0 - a01 * s1 - a02 * s2) * per_a00, s1, s2


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
