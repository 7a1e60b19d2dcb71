"""The batch fits of the oracle: logistic regression in a ball, and bins of equal mass; slow, and as exact as can be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import qr_multiply, solve_triangular
from scipy.optimize import brentq
from scipy.special import logsumexp

Vector = NDArray[Any]
TIGHT = {"xtol": 1e-30, "rtol": 4 * np.finfo(float).eps, "maxiter": 1000}


def vector(values: ArrayLike) -> Vector:
    return np.asarray(values, dtype=float)


def fit(X: ArrayLike, y: ArrayLike, radius: float) -> Vector:
    """argmin over |theta| <= radius of sum -y log p - (1 - y) log(1 - p), p = sigmoid(x . theta) (eq. ops-optimal-t).

    Where the optimum is not unique (features not of full rank) the answer is the one of least norm.
    """
    # Equal events are one row: where both labels meet at the boundary of separable data, rounding between equal rows
    # would drown the others.
    x, index = np.unique(vector(X), axis=0, return_inverse=True)
    ones = np.bincount(index.ravel(), weights=vector(y))
    zeros = np.bincount(index.ravel()) - ones
    _, sizes, basis = np.linalg.svd(x, full_matrices=False)
    basis = basis[sizes > 1e-13 * max(x.shape) * sizes[0]]
    if len(basis) == 0:
        return np.zeros(x.shape[1])
    if len(basis) == x.shape[1]:
        return constrained(x, ones, zeros, radius)
    return basis.T @ constrained(x @ basis.T, ones, zeros, radius)


def constrained(x: Vector, ones: Vector, zeros: Vector, radius: float) -> Vector:
    """The optimum of the whole space if it is in the ball; otherwise (or if there is none: separable data) it is on the
    sphere, and is the ridge optimum theta(mu) whose norm is the radius: |theta(mu)| falls as mu grows.
    """
    theta, found = newton(x, ones, zeros, np.zeros(x.shape[1]), log_mu=-np.inf, leave=radius)
    if found and np.linalg.norm(theta) <= radius:
        return theta
    lengths = np.linalg.norm(x, axis=1)
    log_mu = np.log(((ones + zeros) * lengths).sum() / radius)  # mu |theta(mu)| = |gradient| < sum |x|: inside the ball
    theta = np.zeros(x.shape[1])
    while True:  # walk down the path, each solution being the start of the next
        lower = log_mu - 4
        after, _ = newton(x, ones, zeros, theta, lower)
        if np.linalg.norm(after) >= radius:
            break
        if lower < -radius * lengths.max() - 100:  # below every e^-|z| of the ball: the limit of the path is inside
            return after
        log_mu, theta = lower, after

    def on_path(log_mu: float) -> Vector:
        return newton(x, ones, zeros, theta, log_mu)[0]

    return on_path(brentq(lambda log_mu: np.linalg.norm(on_path(log_mu)) - radius, lower, log_mu, **TIGHT))


def newton(
    x: Vector, ones: Vector, zeros: Vector, theta: Vector, log_mu: float, leave: float = np.inf
) -> tuple[Vector, bool]:
    """Damped Newton (IRLS) for the log-loss + mu/2 |theta|^2; False if there is none or it is out of the ball `leave`.

    With z = x . theta, n = ones + zeros and w = n sigmoid(z) sigmoid(-z), a step is the least squares solution of
    sqrt(w) x . step = (ones e^(-z/2) - zeros e^(z/2)) / sqrt(n) for each x, and sqrt(mu) (theta + step) = 0.
    On separable data w reaches e^-1000, so it is kept as a logarithm and scaled by its largest, and the rows are sorted
    and the columns pivoted, which makes QR accurate however different the rows' sizes are.
    """
    n = ones + zeros

    def log_objective(theta: Vector) -> float:
        z = x @ theta
        with np.errstate(divide="ignore"):
            losses = [np.log(ones) + log_softplus(-z), np.log(zeros) + log_softplus(z)]
            return float(logsumexp(np.append(losses, log_mu + np.log(theta @ theta / 2))))

    size = np.inf
    for _ in range(1500):
        z = x @ theta
        log_w = np.log(n) - np.logaddexp(0, z) - np.logaddexp(0, -z)
        top = max(float(log_w.max()), log_mu)
        ridge = np.exp((log_mu - top) / 2) * np.eye(len(theta))
        rows = np.vstack([np.exp((log_w - top) / 2)[:, None] * x, ridge])
        # np.where: e^(z/2) may overflow exactly where there are no zeros to be multiplied with it.
        down, up = (np.exp(np.where(k > 0, v - top, -np.inf) / 2) for k, v in ((ones, -z), (zeros, z)))
        right = np.concatenate([(ones * down - zeros * up) / np.sqrt(n), -ridge @ theta])
        order = np.argsort(-np.abs(rows).max(axis=1), kind="stable")
        image, r, pivot = qr_multiply(rows[order], right[order], mode="right", pivoting=True)
        step = np.empty_like(theta)
        step[pivot] = solve_triangular(r, image)
        last, size = size, float(np.linalg.norm(step) / (1 + np.linalg.norm(theta)))
        if size <= 1e-10 or last <= size <= 1e-6:  # quadratic convergence: the next step is lost in rounding
            return theta + step, True
        here = log_objective(theta)
        while log_objective(theta + step) > here + 1e-12 and np.linalg.norm(step) > 1e-12:
            step = step / 2
        theta = theta + step
        separates = np.all((ones == 0) | (x @ theta > 0)) and np.all((zeros == 0) | (x @ theta < 0))
        if leave < np.inf and (separates or np.linalg.norm(theta) > leave):
            return theta, False
    return theta, False


def log_softplus(v: Vector) -> Vector:
    """log log(1 + e^v), which tends to v on the left."""
    return np.where(v < -40, v, np.log(np.logaddexp(0, np.maximum(v, -40))))


def uniform_mass(scores: Vector, outcomes: Vector, k: int) -> tuple[Vector, Vector]:
    """Histogram binning: the edges (first score of each bin but the first) and the mean outcome of each bin."""
    order = np.argsort(scores, kind="stable")
    scores, outcomes, n = scores[order], outcomes[order], len(scores)
    cuts = set()
    for j in range(1, k):
        cut = j * n // k
        while 0 < cut < n and scores[cut - 1] == scores[cut]:
            cut += 1
        if 0 < cut < n:
            cuts.add(cut)
    ends = [0, *sorted(cuts), n]
    means = [outcomes[a:b].mean() for a, b in pairwise(ends)]
    return scores[ends[1:-1]], np.array(means)
