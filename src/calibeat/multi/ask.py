"""What each stage of MULTI says of a score. The equations are in the docstring of `kernel`."""

from __future__ import annotations

import math

from calibeat._util.types import Vector
from calibeat.core.auto import EPS, inside
from calibeat.core.jit import compilable
from calibeat.core.spline import EXPERT_KNOTS, knot

from .layout import (
    BIAS,
    HEAD,
    MOST_CONFUSED,
    NAMED,
    OFFSET,
    REST_SHARE,
    REST_SPLINE,
    SLOPE,
    THETA,
    THETA_WIDTH,
    TOP,
    TOP_SHARE,
    TOP_SPLINE,
    V,
    W,
    Z,
)
from .softmax import exponentials, largest, lower_to_zero, softmax, total


@compilable
def read(K: int, score: Vector, work: Vector) -> None:
    """f, x, u and the named class of a score."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    named, best = 0, -1.0
    for k in range(K):
        given = score[k]
        if given > best:
            best, named = given, k
        floored = given if given > EPS else EPS
        f[k] = floored
        u[k] = 1.0 if given <= EPS else 0.0
        x[k] = math.log(floored)
    scale = 1.0 / total(f)
    for k in range(K):
        f[k] *= scale
    work[NAMED] = named


@compilable
def online_temperature(K: int, A: float, work: Vector, at: int) -> None:
    """softmax(A x), into work from `at` on."""
    x, o = work[HEAD : HEAD + K], work[at : at + K]
    for k in range(K):
        o[k] = A * x[k]
    softmax(o)


@compilable
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


@compilable
def place(m: float) -> tuple[int, float]:
    """The knot to the left of m among (0, .01, .1, .5, .9, 1), and the weight of the one to its right."""
    j, left, per_width = 0, 0.0, 100.0
    if m > 0.01:
        j, left, per_width = 1, 0.01, 1.0 / 0.09
    if m > 0.1:
        j, left, per_width = 2, 0.1, 2.5
    if m > 0.5:
        j, left, per_width = 3, 0.5, 2.5
    if m > 0.9:
        j, left, per_width = 4, 0.9, 10.0
    h = (m - left) * per_width
    return j, h if h < 1.0 else 1.0


@compilable
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


@compilable
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
