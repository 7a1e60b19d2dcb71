"""The best fixed parameters in hindsight, from scores counted by rank: the log is not looked at twice.

The loss of theta is sum log(1 + exp(theta . x)) - theta . sum y x. The second term is exact; in the first, scores of
one rank (whose logits are within 1/512 of one another) are taken at their mean x. The logistic function bends by at
most 1/4, so this understates the loss, and overstates a regret, by at most n (|theta| / 512)^2 / 32 nats, n the number
of events: 0.12 for a million events and |theta| = 1.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Vector
from calibeat.core.features import Beta, Platt, Temperature
from calibeat.core.learners import project
from calibeat.core.method import Method

from .tally import SCORE_RANKS

RADIUS = 100.0  # as the learners and `metrics.regret` have it


class ScoreTally:
    """Scores by rank with the sums of their features, apart for the warm-up and for what is judged."""

    def __init__(self) -> None:
        self.cells, self.totals = np.zeros(2 * SCORE_RANKS * 3), np.zeros(2 * 3)
        self._found: dict[tuple[type, bool], tuple[float, tuple[float, ...]] | None] = {}

    def least_loss(self, method: Method, *, warmup: bool = False) -> tuple[float, tuple[float, ...]] | None:
        """The least total log-loss of fixed parameters of the method's features, and the parameters.

        Over the judged events, or with `warmup` over all, once the log has ended; None for a method without such
        features.
        """
        family = method.features
        if not isinstance(family, (Platt, Beta, Temperature)):
            return None
        wanted = type(family), warmup
        if wanted not in self._found:
            self._found[wanted] = self._fit(family, slice(0, 2) if warmup else slice(1, 2))
        return self._found[wanted]

    def _fit(self, family: Platt | Beta | Temperature, part: slice) -> tuple[float, tuple[float, ...]] | None:
        cells = self.cells.reshape(2, SCORE_RANKS, 3)[part].reshape(-1, 3)
        s0, s1, s2 = self.totals.reshape(2, 3)[part].sum(axis=0).tolist()
        cells = cells[cells[:, 0] > 0]
        if not len(cells):
            return None
        count, x0, x1 = cells[:, 0].copy(), cells[:, 1] / cells[:, 0], cells[:, 2] / cells[:, 0]
        if isinstance(family, Beta):
            problem = _Problem(count, [x0, x1, np.ones(len(count))], [s0, s1, s2])
        elif isinstance(family, Platt):
            problem = _Problem(count, [x0 - x1, np.ones(len(count))], [s0 - s1, s2])
        else:
            problem = _Problem(count, [x0 - x1], [s0 - s1])
        theta = problem.minimum()
        return problem.loss(theta), tuple(theta.tolist())


class _Problem:
    """The loss of theta for scores in cells, column by column: the threads of a matrix product would be in the way."""

    def __init__(self, count: Vector, x: list[Vector], s: list[float]) -> None:
        self._count, self._x, self._s = count, x, np.array(s)

    def _logits(self, theta: Vector) -> Vector:
        z = theta[0] * self._x[0]
        for t, x in zip(theta[1:], self._x[1:], strict=True):
            z += t * x
        return z

    def loss(self, theta: Vector) -> float:
        """sum n log(1 + exp z) - theta . s."""
        z = self._logits(theta)
        softplus = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))
        return float((self._count * softplus).sum() - (self._s * theta).sum())

    def minimum(self) -> Vector:
        """Damped Newton on the ball, as `refit.fit` does it, with counts for weights."""
        d = len(self._x)
        theta = np.zeros(d)
        loss = self.loss(theta)
        for _ in range(500):
            p = 0.5 * (1.0 + np.tanh(0.5 * self._logits(theta)))
            weight = self._count * p * (1.0 - p)
            gradient = np.array([(self._count * p * x).sum() for x in self._x]) - self._s
            hessian = np.array([[(weight * a * b).sum() for b in self._x] for a in self._x])
            hessian += (1e-10 * np.trace(hessian) + 1e-300) * np.eye(d)
            step = _on_the_ball(theta - np.linalg.solve(hessian, gradient), hessian) - theta
            share = 1.0
            while share > 1e-9 and not self.loss(theta + share * step) < loss:
                share *= 0.5
            if share <= 1e-9:
                break
            theta = theta + share * step
            before, loss = loss, self.loss(theta)
            if before - loss < 1e-10 * max(1.0, loss):
                break
        return theta


def _on_the_ball(theta: Vector, hessian: Vector) -> Vector:
    if math.hypot(*theta) <= RADIUS:
        return theta
    d = len(theta)
    full = np.zeros((3, 3))
    full[:d, :d] = hessian
    (a00, a01, a02), (_, a11, a12), (_, _, a22) = full.tolist()
    t0, t1, t2 = [*theta.tolist(), 0.0, 0.0][:3]
    nearest = project(float(d), a00, a01, a02, a11, a12, a22, t0, t1, t2, RADIUS)
    return np.array(nearest)[:d]
