"""The monitor by definition: no recursions, everything summed anew from the list of outcomes. Slow on purpose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

SIZES = (0.25, 1.0)  # tilts, in logits
SCALES = (128, 1024, 8192)  # blocks of the dispersion, in outcomes
K0 = 8.0  # weight of phi = 1 beforehand, in blocks
SHARE = 3.0  # thirds: whole, sure, all regions
PIVOT = 0.5  # "sure" turns the tilt round below it
EDGES = {2: (0.5,), 6: (0.05, 0.2, 0.5, 0.8, 0.95)}

Floats = Sequence[float]


def region(p: float, edges: Floats) -> int:
    return sum(p >= edge for edge in edges)


def dispersion(P: Floats, Y: Floats, n: int) -> float:
    """From the first n outcomes."""
    phi = 1.0
    for size in SCALES:
        z = []
        for k in range(n // size):
            block = range(k * size, (k + 1) * size)
            a, v = sum(Y[i] - P[i] for i in block), sum(P[i] * (1 - P[i]) for i in block)
            z.append(a / math.sqrt(v) if v > 0 else 0.0)
        h = [0.5 * (a - b) ** 2 for a, b in zip(z[1:], z, strict=False)]
        phi = max(phi, (K0 + sum(h)) / (K0 + len(h)))
    return phi


def logit(q: float) -> float:
    if q <= 0.0 or q >= 1.0:
        return -math.inf if q <= 0.0 else math.inf
    return math.log(q / (1 - q))


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def bets(p: float, y: float, phi: float, tol: float, edges: Floats) -> dict[tuple[Any, int, float], float]:
    """(scope, direction, size) -> log L."""
    out = {}
    for d in SIZES:
        q, r = sigmoid(logit(p) + tol), sigmoid(logit(p) - tol)
        up = (d * y - math.log(1 - q + q * math.exp(d))) / phi
        down = (-d * y - math.log(1 - r + r * math.exp(-d))) / phi
        for scope in ("whole", "sure", region(p, edges)):
            turned = scope == "sure" and p < PIVOT
            out[scope, 0, d], out[scope, 1, d] = (down, up) if turned else (up, down)
    return out


def replay(
    P: Floats, Y: Floats, arl: float, tol: float = 0.0, warm: int = 0, regions: int = 6
) -> tuple[list[tuple[int, float, int]], dict[tuple[Any, int], float], float, float, list[float]]:
    """-> alarms (t, start, cell), log e-values by (scope, direction), overall log e, level, phis."""
    edges = EDGES[regions]
    scopes: list[Any] = ["whole", "sure", *range(regions)]
    alarms, since, logs, phis, level = [], 0, [], [], 0.0
    for t in range(1, len(P) + 1):
        phi = dispersion(P, Y, t - 1)
        phis.append(phi)
        logs.append(bets(P[t - 1], Y[t - 1], phi, tol, edges) if t > warm else {})
        R, S = {}, {}
        for key in [(s, h, d) for s in scopes for h in (0, 1) for d in SIZES]:
            w = R[key] = S[key] = 0.0
            for j in range(t, since, -1):  # every start since the last alarm at which this scope bet
                if key in logs[j - 1]:
                    w += logs[j - 1][key]
                    R[key] += math.exp(w)
                    S[key] += j * math.exp(w)
        sums = {(s, h): sum(R[s, h, d] for d in SIZES) for s in scopes for h in (0, 1)}
        (s, h), x = max(sums.items(), key=lambda pair: pair[1])
        level = x / len(SIZES) / 2 / SHARE / arl
        if t > warm and level >= 1.0:
            alarms.append((t, sum(S[s, h, d] for d in SIZES) / x, 2 * scopes.index(s) + h))
            since, level = t, 0.0
    e = {}
    for s in scopes:
        for h in (0, 1):
            wealth = [math.exp(sum(bet.get((s, h, d), 0.0) for bet in logs)) for d in SIZES]
            e[s, h] = math.log(sum(wealth) / len(SIZES))
    total = sum(math.exp(e[s, h]) / 2 / SHARE / (1 if isinstance(s, str) else regions) for s, h in e)
    return alarms, e, math.log(total), level, phis


def gain(P: Floats, Y: Floats, S: Floats) -> tuple[float, float, float]:
    """Sum, V, c of the Brier gain."""
    d = [(s - y) ** 2 - (p - y) ** 2 for p, y, s in zip(P, Y, S, strict=True)]
    b = [2 * (p - s) for p, s in zip(P, S, strict=True)]
    return sum(d), sum((k * (y - p)) ** 2 for k, p, y in zip(b, P, Y, strict=True)), max(map(abs, b))


def log_gain(P: Floats, Y: Floats, S: Floats) -> tuple[float, float, float]:
    """Sum, V, c of the log-loss gain, with clipped scores."""
    P, S = ([min(max(q, 1e-5), 1 - 1e-5) for q in column] for column in (P, S))
    d = [math.log(p if y else 1 - p) - math.log(s if y else 1 - s) for p, y, s in zip(P, Y, S, strict=True)]
    b = [logit(p) - logit(s) for p, s in zip(P, S, strict=True)]
    return sum(d), sum((k * (y - p)) ** 2 for k, p, y in zip(b, P, Y, strict=True)), max(map(abs, b))


def radius(v: float, c: float, a: float) -> float:
    """By bisection of its definition."""

    def mixture(s: float) -> float:
        total = 0.0
        for k in range(-10, 7):
            x = 2.0**k * c
            if x <= 0.75:
                total += math.exp(min(700.0, 2.0**k * s - (-math.log(1 - x) - x) * v / c**2))
        return total / 17

    low, high = 0.0, 1.0
    while mixture(high) < 1 / a:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mixture(middle) < 1 / a else (low, middle)
    return high
