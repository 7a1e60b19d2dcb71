"""The paper transcribed naively: slow, obvious, and the only second copy of each algorithm.

Nothing here is shared with the library. A method is any object with `features`, `learner` and `calibeater`, and a part
is recognised by the name of its class. State is the full history wherever the paper speaks of averages of the past.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from oracle_fits import TIGHT, Vector, fit, uniform_mass, vector
from scipy.optimize import brentq


@dataclass(frozen=True)
class Result:
    """What a run showed, one entry per event; `params` is the theta used there, None for a raw score or a histogram."""

    forecasts: Vector
    experts: Vector
    params: list[tuple[float, ...] | None]
    bins: list[int | None]
    played: list[int | None]


def name(part: Any) -> str:
    return type(part).__name__


# ---------------------------------------------------------------------------------------------------------- features


def sigmoid(z: float) -> float:
    """1 / (1 + e^-z), without overflow."""
    return float(1 / (1 + np.exp(-z)) if z >= 0 else np.exp(z) / (1 + np.exp(z)))


def features_of(features: Any, score: float) -> Vector:
    """x of eq. ps-model-class (Platt), eq. bs-model-class (Beta); the score is clipped before the logarithms."""
    f = min(max(score, features.clip), 1 - features.clip)
    logit = np.log(f) - np.log1p(-f)
    return {
        "Platt": np.array([logit, 1.0]),
        "Beta": np.array([np.log(f), np.log1p(-f), 1.0]),
        "Temperature": np.array([logit]),
    }[name(features)]


# ---------------------------------------------------------------------------------------------------------- learners


def residual(z: float, y: float) -> float:
    """sigmoid(z) - y, without cancellation: the gradient of the log-loss is residual * x."""
    return sigmoid(z) if y == 0 else -sigmoid(-z)


def project(theta: ArrayLike, A: ArrayLike, radius: float) -> Vector:
    """argmin over |x| <= radius of (theta - x)' A (theta - x): (A + lam I)^-1 A theta, lam by the secular equation."""
    tilde, metric = vector(theta), vector(A)
    if np.linalg.norm(tilde) <= radius:
        return tilde
    target = metric @ tilde

    def point(lam: float) -> Vector:
        return np.linalg.solve(metric + lam * np.eye(len(tilde)), target)

    # |(A + lam I)^-1 A theta| < |A theta| / lam, so the root is below |A theta| / radius.
    lam = brentq(lambda lam: np.linalg.norm(point(lam)) - radius, 0.0, np.linalg.norm(target) / radius, **TIGHT)
    return point(lam)


class Still:
    """No learner: theta stays at the start."""

    def __init__(self, features: Any) -> None:
        self.features = features
        self.theta = np.array(features.start, dtype=float)

    def params(self, score: float) -> Vector | None:  # noqa: ARG002 - AIOLI's theta depends on the score
        return self.theta

    def expert(self, score: float) -> float:
        theta = self.params(score)
        return score if theta is None else sigmoid(float(theta @ features_of(self.features, score)))

    def learn(self, score: float, y: float) -> None:
        pass


class NewtonStep(Still):
    """Algorithm 1 (alg:ops-ons), ONS."""

    def __init__(self, features: Any, learner: Any) -> None:
        super().__init__(features)
        self.gamma, self.radius = learner.gamma, learner.radius
        self.A = learner.rho * np.eye(len(self.theta))

    def learn(self, score: float, y: float) -> None:
        x = features_of(self.features, score)
        g = residual(float(self.theta @ x), y) * x
        self.A = self.A + np.outer(g, g)
        self.theta = project(self.theta - np.linalg.solve(self.A, g) / self.gamma, self.A, self.radius)


class GradientStep(Still):
    """OGD: step D / (G sqrt t), Euclidean projection."""

    def __init__(self, features: Any, learner: Any) -> None:
        super().__init__(features)
        self.learner, self.t = learner, 0

    def learn(self, score: float, y: float) -> None:
        self.t += 1
        x = features_of(self.features, score)
        step = self.learner.diameter / (self.learner.gradient * np.sqrt(self.t))
        theta = self.theta - step * residual(float(self.theta @ x), y) * x
        norm = np.linalg.norm(theta)
        self.theta = theta if norm <= self.learner.radius else theta * (self.learner.radius / norm)


class Aioli(Still):
    """AIOLI: theta_t minimises 1/2 theta' Q theta + c . theta + log(1 + e^z) + log(1 + e^-z), z = theta . x_t."""

    def __init__(self, features: Any, learner: Any) -> None:
        super().__init__(features)
        d = len(self.theta)
        self.Q, self.c = 2 * learner.lam * np.eye(d), np.zeros(d)
        self.scale = 1 + learner.radius * learner.bound

    def params(self, score: float) -> Vector:
        x = features_of(self.features, score)
        u, v = -x @ np.linalg.solve(self.Q, self.c), x @ np.linalg.solve(self.Q, x)
        z = brentq(lambda z: z - u + v * np.tanh(z / 2), u - v - 1, u + v + 1, **TIGHT)
        return -np.linalg.solve(self.Q, self.c + np.tanh(z / 2) * x)

    def learn(self, score: float, y: float) -> None:
        theta, x = self.params(score), features_of(self.features, score)
        z = float(theta @ x)
        g = residual(z, y) * x
        eta = np.exp((2 * y - 1) * z) / self.scale
        self.Q = self.Q + eta * np.outer(g, g)
        self.c = self.c + (1 - eta * (g @ theta)) * g


class Refit(Still):
    """Fixed and FTL (eq. ops-optimal-t, Collection 1): the raw score until the first fit; history as it arrived."""

    def __init__(self, features: Any, learner: Any) -> None:
        self.features, self.learner = features, learner
        self.past: list[tuple[float, float]] = []
        self.fitted: Vector | None = None
        self.table: tuple[Vector, Vector] | None = None

    def params(self, score: float) -> Vector | None:  # noqa: ARG002 - see Still
        return self.fitted

    def expert(self, score: float) -> float:
        if self.table is None:
            return super().expert(score)
        edges, means = self.table
        return float(means[sum(edge <= score for edge in edges)])

    def learn(self, score: float, y: float) -> None:
        self.past.append((score, y))
        beyond = len(self.past) - self.learner.after
        if name(self.learner) == "Fixed":
            if beyond != 0:
                return
            past = self.past
        else:
            if beyond < 0 or beyond % self.learner.every != 0:
                return
            past = self.past if self.learner.window is None else self.past[-self.learner.window :]
        scores, outcomes = (np.array(column, dtype=float) for column in zip(*past, strict=True))
        if name(self.features) == "Histogram":
            self.table = uniform_mass(scores, outcomes, self.features.bins)
        else:
            X = np.array([features_of(self.features, s) for s in scores])
            self.fitted = fit(X, outcomes, self.learner.radius)


def learner_of(features: Any, learner: Any) -> Still:
    if learner is None:
        return Still(features)
    kinds = {"ONS": NewtonStep, "OGD": GradientStep, "AIOLI": Aioli, "Fixed": Refit, "FTL": Refit}
    return kinds[name(learner)](features, learner)


# ------------------------------------------------------------------------------------------------------- calibeating


def bin_of(p: float, m: int) -> int:
    """0-based index of p among B_1 = [0, e), ..., B_m = [1 - e, 1] (eq. B-bins)."""
    return sum(k / m <= p for k in range(1, m))


def midpoint(b: int, m: int) -> float:
    return (b + 0.5) / m


def tracking(past: list[float], b: int, m: int, prior: float) -> float:
    """Eq. tops: Average{y_s : s < t, p_s in B_b}, the mid-point if there are none; `prior` more at the mid-point."""
    count = len(past) + prior
    return midpoint(b, m) if count == 0 else (sum(past) + prior * midpoint(b, m)) / count


def f99(past: list[tuple[int | None, float]], m: int, prefer: int | None, u: float | None) -> int:
    """Appendix F99: the index of the mid-point to forecast, from the (played, outcome) pairs of one expert bin."""
    p = []
    for b in range(m):
        outcomes = [y for played, y in past if played == b]
        p.append(sum(outcomes) / len(outcomes) if outcomes else midpoint(b, m))
    d = [b / m - p[b] for b in range(m)]
    e = [p[b] - (b + 1) / m for b in range(m)]
    fulfil = [b for b in range(m) if d[b] <= 0 and e[b] <= 0]  # condition A
    if fulfil:
        return prefer if prefer in fulfil else fulfil[0]
    above = next(b for b in range(m) if d[b] > 0)  # condition B
    b = above - 1
    assert e[b] > 0
    if u is None or np.isnan(u):
        raise ValueError("this step is random and has no draw")
    return b if u * (d[above] + e[b]) <= d[above] else above


# --------------------------------------------------------------------------------------------------------------- run


def run(
    method: Any, scores: ArrayLike, outcomes: ArrayLike, *, due: ArrayLike | None = None, draws: ArrayLike | None = None
) -> Result:
    """Forecast every event in turn; outcome i is applied just before event due[i], in order (due, i)."""
    f, y = vector(scores).tolist(), vector(outcomes).tolist()
    T = len(f)
    arrivals: dict[int, list[int]] = defaultdict(list)
    for i, when in enumerate(range(1, T + 1) if due is None else np.asarray(due).tolist()):
        assert when > i, "an outcome comes after its forecast"
        arrivals[when].append(i)
    learner = None if method.features is None else learner_of(method.features, method.learner)
    calibeater, kind = method.calibeater, name(method.calibeater)
    tracked: dict[int | None, list[float]] = defaultdict(list)  # expert bin -> outcomes
    hedged: dict[int | None, list[tuple[int | None, float]]] = defaultdict(list)  # expert bin -> (played, outcome)
    result = Result(np.empty(T), np.empty(T), [], [], [])
    for t in range(T):
        for i in arrivals[t]:
            if learner is not None:
                learner.learn(f[i], y[i])
            tracked[result.bins[i]].append(y[i])
            hedged[result.bins[i]].append((result.played[i], y[i]))
        theta = None if learner is None else learner.params(f[t])
        expert = f[t] if learner is None else learner.expert(f[t])
        forecast, group, played = expert, None, None
        if kind == "Tracking":
            group = bin_of(expert, calibeater.bins)
            forecast = tracking(tracked[group], group, calibeater.bins, calibeater.prior)
        elif kind == "Hedging":
            m = calibeater.bins
            group = bin_of(expert, m if calibeater.groups is None else calibeater.groups)
            prefer = bin_of(expert, m) if calibeater.start == "expert" else None
            played = f99(hedged[group], m, prefer, None if draws is None else vector(draws)[t])
            forecast = midpoint(played, m)
        result.forecasts[t], result.experts[t] = forecast, expert
        result.params.append(None if theta is None else tuple(float(value) for value in theta))
        result.bins.append(group)
        result.played.append(played)
    return result


# ----------------------------------------------------------------------------------------------------------- metrics


def cells(y: ArrayLike, p: ArrayLike, bins: int) -> list[tuple[int, float, float]]:
    """(N_b, mean forecast, mean outcome) of the non-empty bins."""
    y, p = vector(y), vector(p)
    index = np.array([bin_of(q, bins) for q in p])
    return [(int(np.sum(index == b)), p[index == b].mean(), y[index == b].mean()) for b in np.unique(index)]


def calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 10) -> float:
    """CE (eq. ce-definition): (1/T) sum N_b |mean p_b - mean y_b|."""
    return float(sum(n * abs(q - o) for n, q, o in cells(y, p, bins)) / np.size(y))


def sharpness(y: ArrayLike, p: ArrayLike, bins: int = 10) -> float:
    """SHP: (1/T) sum N_b (mean y_b)^2."""
    return float(sum(n * o**2 for n, _, o in cells(y, p, bins)) / np.size(y))


def refinement(y: ArrayLike, p: ArrayLike, bins: int = 10) -> float:
    """R: (1/T) sum N_b mean y_b (1 - mean y_b)."""
    return float(sum(n * o * (1 - o) for n, _, o in cells(y, p, bins)) / np.size(y))


def brier(y: ArrayLike, p: ArrayLike) -> float:
    """(1/T) sum (y - p)^2."""
    return float(np.mean((vector(y) - vector(p)) ** 2))


def log_loss(y: ArrayLike, p: ArrayLike) -> float:
    """(1/T) sum -y log p - (1 - y) log(1 - p); the log of the outcome's own probability, so 0 log 0 never appears."""
    y, p = vector(y), vector(p)
    with np.errstate(divide="ignore"):
        return float(np.mean(-np.log1p(np.where(y == 1, p - 1, -p))))
