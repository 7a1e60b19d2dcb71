"""Maximum likelihood on the ball, the one damped Newton method of the package."""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .algebra import Triple, exp, project, solve, store_theta
from .layout import THETA, Spec
from .subset import entry, kernel

FLAT = 1e-290  # a Hessian below this is as good as zero: divisions by it overflow

Derivatives = tuple[float, float, float, float, float, float, float, float, float]


@entry
def fit(
    d: int,
    h0: Vector,
    h1: Vector,
    hy: Vector,
    weights: Vector,
    first: int,
    last: int,
    t0: float,
    t1: float,
    t2: float,
    radius: float,
) -> Triple:
    """argmin over |theta| <= R of sum w_i l(sigmoid(theta . x_i), y_i), i = first .. last - 1, by damped Newton from t.

    Columns h0 and, where d = 3, h1 are the features, hy the outcomes; the last feature of d > 1 is 1. Without weights
    (a vector of length 0) each event counts once.

    The Newton point is projected on the ball in the norm of the Hessian, which is exactly the minimum of the
    quadratic model over the ball; so the same steps end at the optimum inside and on the boundary.
    """
    g0, g1, g2, a00, a01, a02, a11, a12, a22 = derivatives(d, h0, h1, hy, weights, first, last, t0, t1, t2)
    if a00 + a11 + a22 < FLAT:  # so sure of everything that no curvature is left: begin again, sure of nothing
        t0 = t1 = t2 = 0.0
        g0, g1, g2, a00, a01, a02, a11, a12, a22 = derivatives(d, h0, h1, hy, weights, first, last, t0, t1, t2)
    # Separable events gain about one unit of logit per step, and a score at the clip has 1150 of them on the ball.
    for _ in range(2000):
        trace = a00 + a11 + a22
        norm = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
        if trace < FLAT:
            if norm > 0.0:  # separated beyond what floats can tell: the same direction, on the ball
                t0, t1, t2 = t0 * (radius / norm), t1 * (radius / norm), t2 * (radius / norm)
            break
        # A ridge far below the curvature keeps a constant score, which leaves one direction undetermined, solvable.
        ridge = 1e-8 * trace
        a00, a11, a22 = a00 + ridge, a11 + ridge, a22 + ridge
        s0, s1, s2 = solve(d, a00, a01, a02, a11, a12, a22, g0, g1, g2)
        n0, n1, n2 = project(d, a00, a01, a02, a11, a12, a22, t0 - s0, t1 - s1, t2 - s2, radius)
        s0, s1, s2 = n0 - t0, n1 - t1, n2 - t2
        slope = g0 * s0 + g1 * s1 + g2 * s2
        size = math.sqrt(s0 * s0 + s1 * s1 + s2 * s2)
        # The loss cannot go down by more than rounding moves it. A short step is still worth taking, for Newton's
        # method doubles the digits; a long one is noise along a direction that the events leave undetermined.
        if not slope < -1e-22 * trace:
            return (n0, n1, n2) if size <= 1e-6 * (1.0 + norm) else (t0, t1, t2)
        # Along the step the loss is convex: while its slope at the end is not well above zero, it went down.
        share = 1.0
        for _ in range(60):
            n0, n1, n2 = t0 + share * s0, t1 + share * s1, t2 + share * s2
            g0, g1, g2, a00, a01, a02, a11, a12, a22 = derivatives(d, h0, h1, hy, weights, first, last, n0, n1, n2)
            if g0 * s0 + g1 * s1 + g2 * s2 <= -0.5 * slope:
                break
            share *= 0.5
        t0, t1, t2 = n0, n1, n2
    return t0, t1, t2


@kernel
def derivatives(
    d: int, h0: Vector, h1: Vector, hy: Vector, weights: Vector, first: int, last: int, t0: float, t1: float, t2: float
) -> Derivatives:
    """Gradient and packed Hessian of the log-loss at theta."""
    weighted = len(weights) > 0
    g0 = g1 = g2 = a00 = a01 = a02 = a11 = a12 = a22 = 0.0
    for i in range(first, last):
        x0 = h0[i]
        x1 = 1.0
        z = t0 * x0
        if d == 3:
            x1 = h1[i]
            z += t1 * x1 + t2
        elif d == 2:
            z += t1
        # p = sigmoid(z) and q = 1 - p from one exponential, neither by a subtraction that loses its digits.
        w = exp(-abs(z))
        large, small = 1.0 / (1.0 + w), w / (1.0 + w)
        p, q = (large, small) if z >= 0.0 else (small, large)
        e = (1.0 - hy[i]) * p - hy[i] * q
        h = p * q
        if weighted:
            e *= weights[i]
            h *= weights[i]
        g0 += e * x0
        a00 += h * x0 * x0
        if d > 1:
            g1 += e * x1
            a01 += h * x0 * x1
            a11 += h * x1 * x1
        if d > 2:
            g2 += e
            a02 += h * x0
            a12 += h * x1
            a22 += h
    return g0, g1, g2, a00, a01, a02, a11, a12, a22


@entry
def refit_scaling(spec: Spec, row: Vector, x0: Vector, x1: Vector, y: Vector, weights: Vector) -> None:
    """Fit theta to these outcomes, from where it is; without weights each counts once."""
    d = spec.d
    t0 = row[THETA]
    t1 = row[THETA + 1] if d > 1 else 0.0
    t2 = row[THETA + 2] if d > 2 else 0.0
    t0, t1, t2 = fit(d, x0, x1, y, weights, 0, len(y), t0, t1, t2, spec.radius)
    store_theta(row, d, t0, t1, t2)
