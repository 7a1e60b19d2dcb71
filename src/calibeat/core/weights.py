"""How forecasters are weighed against each other by likelihood, also when outcomes come late.

With outcomes at once, after the n-th of them::

    w_k <- (1 - alpha) w_k L_k / sum + alpha w0,    alpha = 0.5/n, w0 = 1 / how many they are

A late outcome judges what was issued. Weights that follow such judgements chase the past. What that has cost so far is
the staleness G: the sum of ``log(sum w_k L_k / L of the issued mixture)``, at the weights of now, where it is positive.
Likelihoods are tempered by it: ``L_k^(1/T)``. When 1 + G exceeds T by a tenth, the weights are flattened and T = 1 + G.
"""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .jit import compilable, large_kernel

EPS, LARGEST = 1e-7, 1.0 - 1e-7  # every probability inside is in [EPS, 1 - EPS]: a surprise costs at most 16 nats
SHARE = 0.5  # of the weights, SHARE/n is shared out evenly after the n-th outcome, so that no part is ever lost
LAZY = 1.1  # weights are flattened when 1 + G has grown to this many times the temper in force


@compilable
def inside(p: float) -> float:
    """p clipped to [EPS, 1 - EPS]."""
    p = max(EPS, p)
    return min(LARGEST, p)


@compilable
def clipped(score: float, clip: float) -> float:
    """f, the score inside [clip, 1 - clip]."""
    f = max(clip, score)
    return min(1.0 - clip, f)


@compilable
def squashed(z: float) -> float:
    """inside(sigmoid(z)), without a branch on the sign of z, which would be a coin toss for the processor."""
    p = 1.0 / (1.0 + math.exp(-z if z > -700.0 else 700.0))
    p = max(EPS, p)
    return min(LARGEST, p)


@compilable
def likelihood(p: float, y: float) -> float:
    """The probability that p gave to y."""
    return p if y == 1.0 else 1.0 - p


@compilable
def power(x: float, exponent: float) -> float:
    """x^exponent for x in (0, 1], by the logarithm: as good here as `pow`, and faster."""
    return math.exp(exponent * math.log(x))


@compilable
def staleness(fresh: float, issued: float) -> float:
    """What the weights of now would have saved, in nats: 0 if nothing."""
    cost = math.log(fresh / issued)
    return max(0.0, cost)


@large_kernel
def flatten(row: Vector, weight: int, count: int, last: int, temper: int, prior: float) -> None:
    """Flatten the weights to the temper 1 + G: w_k <- w_k^c w0^(1 - c), normalised, c = T/(1 + G).

    `count` weights stand from `weight` on, and one more at `last` if that is not 0; G stands before `temper`.
    """
    after = 1.0 + row[temper - 1]
    c = row[temper] / after
    scale = power(prior, 1.0 - c)
    total = 0.0
    for k in range(count + (1 if last else 0)):
        at = weight + k if k < count else last
        row[at] = power(row[at], c) * scale
        total += row[at]
    for k in range(count + (1 if last else 0)):
        row[weight + k if k < count else last] /= total
    row[temper] = after
