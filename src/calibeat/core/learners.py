"""Online learners: what moves theta after each outcome.

A learner's numbers lie in the row from `THETA` on: theta (d numbers; for AIOLI the vector c), then the upper
triangle of its symmetric matrix A (for AIOLI: Q), row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from calibeat._util.check import check_interval, check_scale
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .algebra import ROUNDING, exp, matrix, project, scaled_identity, solve, store_theta, theta_dot
from .features import Scaling
from .layout import THETA
from .limits import Block, Limit, matrices
from .parts import Columns, Features, Learner
from .subset import kernel
from .weights import Lesson, spread

MOST_STEP = 10.0  # outcomes that one of OGD counts as, at most
MOST_SUM = 1e18  # of AIOLI's c: less than 50 per outcome, of the stream or of the pool that it started from

NONE, ONS_STEP, OGD_STEP, AIOLI_STEP, REFIT, LANES = 0, 1, 2, 3, 4, 5


class OnlineLearner(Learner):
    """A learner whose hyper-parameters are all positive numbers."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):  # type: ignore[arg-type]  # every part is a dataclass
            object.__setattr__(self, name, check_scale(f"{type(self).__name__} {name}", getattr(self, name)))


class BoundLearner(OnlineLearner):
    """A learner that keeps theta in a ball."""

    radius: float

    @property
    def ball(self) -> float:
        return self.radius

    def check_features(self, features: Features | None) -> None:
        super().check_features(features)
        if isinstance(features, Scaling) and (size := math.hypot(*features.start)) > self.radius:
            raise InvalidInput(
                f"{type(self).__name__} keeps the parameters in a ball of radius {self.radius:g}, which must hold the "
                f"start, got {features.start} of norm {size:g}"
            )


def growing_matrix(start: float, features: Features) -> Block:
    """A matrix that starts at a multiple of I; an outcome adds at most x x' to it."""
    return matrices("A", [(start, start, x * x) for x in features.reach])


@dataclass(frozen=True)
class ONS(BoundLearner):
    r"""Online Newton Step, the paper's Algorithm 1 (Hazan 2016, Algorithm 12).

    A_0 = rho I;  g = (expert - y) x;  A <- A + g g';  theta~ = theta - (1/gamma) A^-1 g;
    theta = argmin over |theta| <= R of (theta~ - theta)' A (theta~ - theta).

    Parameters
    ----------
    gamma : the paper's gamma; a smaller one takes larger steps.
    rho : the paper's rho; a larger one trusts the start for longer. The paper takes 100 for Platt, 25 for Beta.
    radius : the paper's R, the ball that theta must not leave. The projection is exact.

    Raises
    ------
    InvalidInput : a parameter is not in [1e-10, 1e10].

    >>> from calibeat import Calibrator, OPS
    >>> ops = Calibrator(OPS)
    >>> ops.update(ops.predict(0.9), 0)      # a confident score, and wrong
    'learnt'
    >>> {name: round(value, 4) for name, value in ops.params.items()}
    {'a': 0.8112, 'b': -0.0859}

    References: Hazan, Agarwal & Kale (2007); Gupta & Ramdas (2023), Algorithm 1 and Theorem 2.1.
    """

    gamma: float = 0.1
    rho: float = 100.0
    radius: float = 100.0

    code: ClassVar[int] = ONS_STEP

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
        gamma = 0.5 * min(1.0 / (40.0 * B), exp(-B))
        return cls(gamma=gamma, rho=1.0 / (gamma * 2.0 * B) ** 2, radius=B)

    def initial(self, features: Features) -> list[float]:
        return [*features.initial(), *scaled_identity(features.dimension, self.rho)]

    def limits(self, features: Features) -> list[Block]:
        return [*features.limits(self.radius), growing_matrix(self.rho, features)]

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "gain": 1.0 / self.gamma, "radius": self.radius}


@dataclass(frozen=True)
class OGD(BoundLearner):
    r"""Projected online gradient descent (Zinkevich 2003).

    theta <- projection on |theta| <= R of theta - D/(G sqrt t) g,  g = (expert - y) x, t = 1, 2, ...

    Parameters
    ----------
    radius : R, the ball that theta must not leave.
    diameter : D, how far apart the parameters to be compared with may lie; a larger one takes larger steps.
        The theorem wants 2R; this default, 2B for parameters of norm B <= 2, serves better.
    gradient : G, the largest gradient that is expected; 5 covers scores in [0.01, 0.99], as in the paper.

    Raises
    ------
    InvalidInput : a parameter is not in [1e-10, 1e10].

    >>> from calibeat import Calibrator, Method, OGD, Platt
    >>> cal = Calibrator(Method(Platt(), OGD()))
    >>> cal.update(cal.predict(0.9), 0)
    'learnt'
    >>> {name: round(value, 4) for name, value in cal.params.items()}
    {'a': -0.582, 'b': -0.72}

    References: Zinkevich (2003); Gupta & Ramdas (2023), Table 1.
    """

    radius: float = 100.0
    diameter: float = 4.0
    gradient: float = 5.0

    code: ClassVar[int] = OGD_STEP

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "gain": self.diameter / self.gradient, "radius": self.radius}

    def limits(self, features: Features) -> list[Block]:
        return features.limits(self.radius)


@dataclass(frozen=True)
class AIOLI(OnlineLearner):
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

    Raises
    ------
    InvalidInput : a parameter is not in [1e-10, 1e10].

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

    code: ClassVar[int] = AIOLI_STEP
    no_formula: ClassVar[str] = "a formula, got {}, whose AIOLI solves an equation for every score"

    @classmethod
    def of_theorem(cls, B: float) -> AIOLI:
        """The hyper-parameters under which the regret theorem is proved: lambda = 1/B^2, R_x = 10.

        >>> from calibeat import AIOLI
        >>> AIOLI.of_theorem(2.0)
        AIOLI(lam=0.25, radius=2.0, bound=10.0)
        """
        B = check_interval("AIOLI.of_theorem B", B, 1.0, 1e5)
        return cls(lam=1.0 / (B * B), radius=B, bound=10.0)

    def initial(self, features: Features) -> list[float]:
        d = features.dimension
        return [*[0.0] * d, *scaled_identity(d, 2.0 * self.lam)]

    def limits(self, features: Features) -> list[Block]:
        c = Limit("c", -MOST_SUM, MOST_SUM)
        return [Block((c,), features.dimension), growing_matrix(2.0 * self.lam, features)]

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "gain": 1.0 / (1.0 + self.radius * self.bound)}

    def params(self, row: Any, features: Features) -> dict[str, Any]:
        """-Q^-1 c: the part of the parameters that does not depend on the score at hand."""
        d = features.dimension
        c = [*row[THETA : THETA + d], 0.0, 0.0][:3]
        theta = solve(d, *matrix(row, d), *c)[:d]
        return dict(zip(features.names, (0.0 - value for value in theta), strict=True))

    def params_of_rows(self, rows: Vector, features: Features) -> Columns:
        """A small linear system for each row."""
        found = [self.params(row.tolist(), features) for row in rows]
        return {name: np.array([params[name] for params in found]) for name in features.names}


# ---- one step of each learner ------------------------------------------------------------------------------------


@kernel
def ons_step(
    row: Vector, at: int, d: int, x0: float, x1: float, x2: float, p: float, lesson: Lesson, gain: float, radius: float
) -> None:
    """g = (p - y) x;  A += omega g g';  theta = projection of theta - gain A^-1 omega g,  gain = 1/gamma.

    Of many trials A gets the sum of their g g'. Not omega^2: one large weight would freeze the learner. theta and then
    A lie in the row from `at` on.
    """
    error, omega = p - lesson.y, lesson.omega
    size = math.sqrt(spread(lesson.y, p)) if lesson.is_share else error
    g0, g1, g2 = size * x0, size * x1, size * x2
    t1 = t2 = a01 = a02 = a11 = a12 = a22 = 0.0
    if d == 2:
        t0, t1 = row[at], row[at + 1]
        row[at + 2] = a00 = row[at + 2] + omega * (g0 * g0)
        row[at + 3] = a01 = row[at + 3] + omega * (g0 * g1)
        row[at + 4] = a11 = row[at + 4] + omega * (g1 * g1)
    elif d == 3:
        t0, t1, t2 = row[at], row[at + 1], row[at + 2]
        row[at + 3] = a00 = row[at + 3] + omega * (g0 * g0)
        row[at + 4] = a01 = row[at + 4] + omega * (g0 * g1)
        row[at + 5] = a02 = row[at + 5] + omega * (g0 * g2)
        row[at + 6] = a11 = row[at + 6] + omega * (g1 * g1)
        row[at + 7] = a12 = row[at + 7] + omega * (g1 * g2)
        row[at + 8] = a22 = row[at + 8] + omega * (g2 * g2)
    else:
        t0 = row[at]
        row[at + 1] = a00 = row[at + 1] + omega * (g0 * g0)
    g0, g1, g2 = omega * (error * x0), omega * (error * x1), omega * (error * x2)
    s0, s1, s2 = solve(d, a00, a01, a02, a11, a12, a22, g0, g1, g2)
    t0, t1, t2 = t0 - gain * s0, t1 - gain * s1, t2 - gain * s2
    if t0 * t0 + t1 * t1 + t2 * t2 > radius * radius:
        t0, t1, t2 = project(d, a00, a01, a02, a11, a12, a22, t0, t1, t2, radius)
    row[at] = t0
    if d > 1:
        row[at + 1] = t1
        if d > 2:
            row[at + 2] = t2


@kernel
def ogd_step(
    row: Vector, d: int, x0: float, x1: float, x2: float, p: float, lesson: Lesson, step: float, radius: float
) -> None:
    """theta = projection on the Euclidean ball of theta - step omega (p - y) x, where omega counts as at most ten."""
    error = p - lesson.y
    step *= min(MOST_STEP, lesson.omega)
    t0 = row[THETA] - step * (error * x0)
    t1 = row[THETA + 1] - step * (error * x1) if d > 1 else 0.0
    t2 = row[THETA + 2] - step * (error * x2) if d > 2 else 0.0
    norm = math.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
    if norm > radius:
        t0, t1, t2 = t0 * (radius / norm), t1 * (radius / norm), t2 * (radius / norm)
    store_theta(row, d, t0, t1, t2)


@kernel
def half_tanh(z: float) -> float:
    """tanh(z/2) for z >= 0 or z < 0, with all its digits where z is small: there a continued fraction, cut."""
    if abs(z) < 1.0:
        s = 0.25 * z * z
        above = 135135.0 + s * (17325.0 + s * (378.0 + s))
        return 0.5 * z * above / (135135.0 + s * (62370.0 + s * (3150.0 + s * 28.0)))
    e = exp(-abs(z))
    return ((1.0 - e) if z > 0.0 else (e - 1.0)) / (1.0 + e)


@kernel
def aioli_logit(row: Vector, d: int, x0: float, x1: float, x2: float) -> float:
    """The root of z = u - v tanh(z/2), u = -x' Q^-1 c, v = x' Q^-1 x."""
    q00, q01, q02, q11, q12, q22 = matrix(row, d)
    w0, w1, w2 = solve(d, q00, q01, q02, q11, q12, q22, x0, x1, x2)
    v = x0 * w0 + x1 * w1 + x2 * w2
    u = -theta_dot(row, d, w0, w1, w2)
    # z - u + v tanh(z/2) rises in z with a slope that falls away from 0, so Newton's method from 0 walks to the
    # root from its near side and never passes it; the loop ends when rounding stops the walk.
    z = 0.0
    for _ in range(200):
        h = half_tanh(z)
        step = (u - v * h - z) / (1.0 + 0.5 * v * (1.0 - h * h))
        z += step
        if abs(step) <= 2.0 * ROUNDING * abs(z):
            break
    return z


@kernel
def aioli_step(
    row: Vector, d: int, x0: float, x1: float, x2: float, p: float, z: float, lesson: Lesson, share: float
) -> None:
    """h = p (1 - p) share, share = 1/(1 + B R_x);  Q += omega h x x';  c += omega (p - y - h z) x."""
    h = p * (1.0 - p) * share
    k = lesson.omega * (p - lesson.y - h * z)
    h *= lesson.omega
    row[THETA] += k * x0
    if d == 2:
        row[THETA + 1] += k * x1
        row[THETA + 2] += h * x0 * x0
        row[THETA + 3] += h * x0 * x1
        row[THETA + 4] += h * x1 * x1
    elif d == 3:
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


@kernel
def aioli_start(d: int, pool: Vector, row: Vector) -> None:
    """theta_start, where theta is -Q^-1 c: the c that gives the pool's parameters with the Q = scale I of a new row."""
    a00, a01, a02, a11, a12, a22 = matrix(pool, d)
    c1 = pool[THETA + 1] if d > 1 else 0.0
    c2 = pool[THETA + 2] if d > 2 else 0.0
    w0, w1, w2 = solve(d, a00, a01, a02, a11, a12, a22, pool[THETA], c1, c2)
    scale = row[THETA + d]
    store_theta(row, d, scale * w0, scale * w1, scale * w2)
