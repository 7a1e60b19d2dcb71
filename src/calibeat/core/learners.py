"""Online learners: what moves theta after each outcome.

A learner's numbers lie in the row from index `THETA` on: theta (d numbers; for AIOLI the vector c), then the upper
triangle of its symmetric matrix A (for AIOLI: Q), row by row. All kernels here take and give scalars: with d <= 3
that is faster than any small array, and nothing is allocated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from calibeat._util.check import check_interval, check_scale
from calibeat._util.types import Vector

from .jit import kernel

NONE, ONS_STEP, OGD_STEP, AIOLI_STEP, REFIT, LANES = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0

THETA = 2  # where theta starts in a row; before it stand t and n
ROUNDING = 2.0**-52


@dataclass(frozen=True)
class ONS:
    r"""Online Newton Step, the paper's Algorithm 1 (Hazan 2016, Algorithm 12).

    A_0 = rho I;  g = (expert - y) x;  A <- A + g g';  theta~ = theta - (1/gamma) A^-1 g;
    theta = argmin over |theta| <= R of (theta~ - theta)' A (theta~ - theta).

    Parameters
    ----------
    gamma : the paper's gamma; a smaller one takes larger steps.
    rho : the paper's rho; a larger one trusts the start for longer. The paper takes 100 for Platt, 25 for Beta.
    radius : the paper's R, the ball that theta must not leave. The projection is exact.

    >>> from calibeat import Calibrator, OPS
    >>> ops = Calibrator(OPS)
    >>> ops.update(ops.predict(0.9), 0)      # a confident score, and wrong
    >>> {name: round(value, 4) for name, value in ops.params.items()}
    {'a': 0.8112, 'b': -0.0859}

    References: Hazan, Agarwal & Kale (2007); Gupta & Ramdas (2023), Algorithm 1 and Theorem 2.1.
    """

    gamma: float = 0.1
    rho: float = 100.0
    radius: float = 100.0

    code: ClassVar[float] = ONS_STEP

    def __post_init__(self) -> None:
        for name in ("gamma", "rho", "radius"):
            object.__setattr__(self, name, check_scale(f"ONS {name}", getattr(self, name)))

    @classmethod
    def of_theorem(cls, B: float) -> ONS:
        """The hyper-parameters under which the regret theorem is proved, for scores in [0.01, 0.99].

        With G = 5, D = 2B and alpha = e^-B: gamma = min(1/(4 G D), alpha)/2, rho = 1/(gamma D)^2, R = B.

        >>> from calibeat import ONS
        >>> learner = ONS.of_theorem(2.0)
        >>> learner.gamma, round(learner.rho), learner.radius
        (0.00625, 1600, 2.0)
        """
        B = check_interval("ONS.of_theorem B", B, 1.0, 14.0)  # beyond, e^B leaves nothing to guarantee
        gamma = 0.5 * min(1.0 / (40.0 * B), math.exp(-B))
        return cls(gamma=gamma, rho=1.0 / (gamma * 2.0 * B) ** 2, radius=B)


@dataclass(frozen=True)
class OGD:
    r"""Projected online gradient descent (Zinkevich 2003).

    theta <- projection on |theta| <= R of theta - D/(G sqrt t) g,  g = (expert - y) x, t = 1, 2, ...

    Parameters
    ----------
    radius : R, the ball that theta must not leave.
    diameter : D, how far apart the parameters to be compared with may lie; a larger one takes larger steps.
        The theorem wants 2R; this default, 2B for parameters of norm B <= 2, serves better.
    gradient : G, the largest gradient that is expected; 5 covers scores in [0.01, 0.99], as in the paper.

    >>> from calibeat import Calibrator, Method, OGD, Platt
    >>> cal = Calibrator(Method(Platt(), OGD()))
    >>> cal.update(cal.predict(0.9), 0)
    >>> {name: round(value, 4) for name, value in cal.params.items()}
    {'a': -0.582, 'b': -0.72}

    References: Zinkevich (2003); Gupta & Ramdas (2023), Table 1.
    """

    radius: float = 100.0
    diameter: float = 4.0
    gradient: float = 5.0

    code: ClassVar[float] = OGD_STEP

    def __post_init__(self) -> None:
        for name in ("radius", "diameter", "gradient"):
            object.__setattr__(self, name, check_scale(f"OGD {name}", getattr(self, name)))


@dataclass(frozen=True)
class AIOLI:
    r"""AIOLI (Jezequel, Gaillard & Rudi 2020): logarithmic regret without the e^B of ONS.

    theta_t depends on the score at hand: it minimises 1/2 theta' Q theta + c . theta + log(1 + e^z) + log(1 + e^-z),
    z = theta . x_t. The gradient is zero where z = u - v tanh(z/2), u = -x' Q^-1 c, v = x' Q^-1 x: one monotone
    scalar root. After the outcome, with p = sigmoid(z) and h = p (1 - p) / (1 + B R_x):
    Q <- Q + h x x',  c <- c + (p - y - h z) x.  (h x x' is the paper's eta g g'.)

    Parameters
    ----------
    lam : lambda, Q_0 = 2 lambda I pulls theta towards 0; features' `start` plays no part.
    radius : B, the norm of the parameters to be compared with; a larger one takes larger steps.
    bound : R_x, a bound on |x|; the paper takes 10.

    >>> from calibeat import AIOLI, Calibrator, Method, Platt
    >>> cal = Calibrator(Method(Platt(), AIOLI()))
    >>> cal.predict(0.9).probability      # it starts at theta = 0, and learns within a few events
    0.5
    >>> p = cal.run([0.9, 0.2, 0.8, 0.1] * 5, [1, 0, 1, 0] * 5)
    >>> cal.predict(0.9).probability > 0.9
    True

    References: Jezequel, Gaillard & Rudi (2020), Algorithm 1; Gupta & Ramdas (2023), Theorem 2.1.
    """

    lam: float = 1.0
    radius: float = 1.0
    bound: float = 10.0

    code: ClassVar[float] = AIOLI_STEP

    def __post_init__(self) -> None:
        for name in ("lam", "radius", "bound"):
            object.__setattr__(self, name, check_scale(f"AIOLI {name}", getattr(self, name)))

    @classmethod
    def of_theorem(cls, B: float) -> AIOLI:
        """The hyper-parameters under which the regret theorem is proved: lambda = 1/B^2, R_x = 10.

        >>> from calibeat import AIOLI
        >>> AIOLI.of_theorem(2.0)
        AIOLI(lam=0.25, radius=2.0, bound=10.0)
        """
        B = check_interval("AIOLI.of_theorem B", B, 1.0, 1e5)
        return cls(lam=1.0 / (B * B), radius=B, bound=10.0)


# ---- linear algebra in d <= 3 ------------------------------------------------------------------------------------


@kernel
def solve(
    d: float,
    a00: float, a01: float, a02: float, a11: float, a12: float, a22: float,
    g0: float, g1: float, g2: float,
) -> tuple[float, float, float]:  # fmt: skip
    """A^-1 g for a symmetric positive definite A of d rows, by LDL'; numbers beyond d are not read.

    A pivot that rounding has eaten up is put back to where rounding ends, so that nothing is divided by zero.
    """
    if d == 1.0:
        return g0 / a00, 0.0, 0.0
    l10 = a01 / a00
    d1 = a11 - l10 * a01
    if d1 < ROUNDING * a11:
        d1 = ROUNDING * a11
    z1 = g1 - l10 * g0
    if d == 2.0:
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
def matrix(row: Vector, d: float) -> tuple[float, float, float, float, float, float]:
    """The packed matrix of a row: a00, a01, a02, a11, a12, a22, zeros beyond d."""
    a01 = a02 = a11 = a12 = a22 = 0.0
    if d == 2.0:
        a00, a01, a11 = row[THETA + 2], row[THETA + 3], row[THETA + 4]
    elif d == 1.0:
        a00 = row[THETA + 1]
    else:
        a00, a01, a02, a11, a12, a22 = (
            row[THETA + 3], row[THETA + 4], row[THETA + 5], row[THETA + 6], row[THETA + 7], row[THETA + 8]
        )  # fmt: skip
    return a00, a01, a02, a11, a12, a22


@kernel
def theta_dot(row: Vector, d: float, x0: float, x1: float, x2: float) -> float:
    """theta . x"""
    z = row[THETA] * x0
    if d > 1.0:
        z += row[THETA + 1] * x1
    if d > 2.0:
        z += row[THETA + 2] * x2
    return z


@kernel
def store_theta(row: Vector, d: float, t0: float, t1: float, t2: float) -> None:
    row[THETA] = t0
    if d > 1.0:
        row[THETA + 1] = t1
    if d > 2.0:
        row[THETA + 2] = t2


@kernel
def project(
    d: float,
    a00: float, a01: float, a02: float, a11: float, a12: float, a22: float,
    t0: float, t1: float, t2: float,
    radius: float,
) -> tuple[float, float, float]:  # fmt: skip
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


# ---- one step of each learner ------------------------------------------------------------------------------------


@kernel
def ons_step(
    row: Vector, at: int, d: float, x0: float, x1: float, x2: float, error: float, gain: float, radius: float
) -> None:  # fmt: skip
    """g = error x;  A += g g';  theta = projection of theta - gain A^-1 g,  gain = 1/gamma.

    theta and then A lie in the row from `at` on.
    """
    g0, g1, g2 = error * x0, error * x1, error * x2
    t1 = t2 = a01 = a02 = a11 = a12 = a22 = 0.0
    if d == 2.0:
        t0, t1 = row[at], row[at + 1]
        row[at + 2] = a00 = row[at + 2] + g0 * g0
        row[at + 3] = a01 = row[at + 3] + g0 * g1
        row[at + 4] = a11 = row[at + 4] + g1 * g1
    elif d == 3.0:
        t0, t1, t2 = row[at], row[at + 1], row[at + 2]
        row[at + 3] = a00 = row[at + 3] + g0 * g0
        row[at + 4] = a01 = row[at + 4] + g0 * g1
        row[at + 5] = a02 = row[at + 5] + g0 * g2
        row[at + 6] = a11 = row[at + 6] + g1 * g1
        row[at + 7] = a12 = row[at + 7] + g1 * g2
        row[at + 8] = a22 = row[at + 8] + g2 * g2
    else:
        t0 = row[at]
        row[at + 1] = a00 = row[at + 1] + g0 * g0
    s0, s1, s2 = solve(d, a00, a01, a02, a11, a12, a22, g0, g1, g2)
    t0, t1, t2 = t0 - gain * s0, t1 - gain * s1, t2 - gain * s2
    if t0 * t0 + t1 * t1 + t2 * t2 > radius * radius:
        t0, t1, t2 = project(d, a00, a01, a02, a11, a12, a22, t0, t1, t2, radius)
    row[at] = t0
    if d > 1.0:
        row[at + 1] = t1
        if d > 2.0:
            row[at + 2] = t2


@kernel
def ogd_step(
    row: Vector, d: float, x0: float, x1: float, x2: float, error: float, step: float, radius: float
) -> None:  # fmt: skip
    """theta = projection on the Euclidean ball of theta - step error x."""
    t0 = row[THETA] - step * (error * x0)
    t1 = row[THETA + 1] - step * (error * x1) if d > 1.0 else 0.0
    t2 = row[THETA + 2] - step * (error * x2) if d > 2.0 else 0.0
    norm = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
    if norm > radius:
        t0, t1, t2 = t0 * (radius / norm), t1 * (radius / norm), t2 * (radius / norm)
    store_theta(row, d, t0, t1, t2)


@kernel
def aioli_logit(row: Vector, d: float, x0: float, x1: float, x2: float) -> float:
    """The root of z = u - v tanh(z/2), u = -x' Q^-1 c, v = x' Q^-1 x."""
    q00, q01, q02, q11, q12, q22 = matrix(row, d)
    w0, w1, w2 = solve(d, q00, q01, q02, q11, q12, q22, x0, x1, x2)
    v = x0 * w0 + x1 * w1 + x2 * w2
    u = -theta_dot(row, d, w0, w1, w2)
    # z - u + v tanh(z/2) rises in z with a slope that falls away from 0, so Newton's method from 0 walks to the
    # root from its near side and never passes it; the loop ends when rounding stops the walk.
    z = 0.0
    for _ in range(200):
        h = math.tanh(0.5 * z)
        step = (u - v * h - z) / (1.0 + 0.5 * v * (1.0 - h * h))
        z += step
        if abs(step) <= 2.0 * ROUNDING * abs(z):
            break
    return z


@kernel
def aioli_step(
    row: Vector, d: float, x0: float, x1: float, x2: float, p: float, z: float, y: float, share: float
) -> None:  # fmt: skip
    """h = p (1 - p) share, share = 1/(1 + B R_x);  Q += h x x';  c += (p - y - h z) x."""
    h = p * (1.0 - p) * share
    k = p - y - h * z
    row[THETA] += k * x0
    if d == 2.0:
        row[THETA + 1] += k * x1
        row[THETA + 2] += h * x0 * x0
        row[THETA + 3] += h * x0 * x1
        row[THETA + 4] += h * x1 * x1
    elif d == 3.0:
        row[THETA + 1] += k * x1
        row[THETA + 2] += k * x2
        row[THETA + 3] += h * x0 * x0
        row[THETA + 4] += h * x0 * x1
        row[THETA + 5] += h * x0 * x2
        row[THETA + 6] += h * x1 * x1
        row[THETA + 7] += h * x1 * x2
        row[THETA + 8] += h * x2 * x2
    else:
        row[THETA + 1] += h * x0 * x0
