r"""Temperature scaling that is fitted again, or once: what most people deploy for many classes.

The forecast is softmax(A x), x_k = ln max(score_k, 1e-7), A = 1/temperature. A has the least log-loss over the labels
in a window, the derivative of which rises with A::

    g(A) = sum_i  E_{softmax(A x_i)} x - x_{i, y_i}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibeat._util.types import Ints, Vector
from calibeat.core.auto import EPS
from calibeat.core.jit import compilable, large_kernel
from calibeat.core.vector import softmax

MOST = 100.0  # of A: where every label is the top class, nothing else would end the fit
SLOPE, LEARNT = 0, 1  # of the state


@dataclass(frozen=True)
class Refits:
    """When a temperature is fitted: after so many labels, then every so many (0: never again), on the last of them."""

    after: int
    every: int
    window: int


FIXED = Refits(after=1000, every=0, window=1000)
SLIDING = Refits(after=1000, every=500, window=2000)


@compilable
def scaled(A: float, x: Vector, p: Vector) -> None:
    """p <- softmax(A x)."""
    for k in range(len(x)):
        p[k] = A * x[k]
    softmax(p)


@large_kernel
def fit(K: int, X: Vector, Y: Ints, count: int, A: float, p: Vector) -> float:
    """The A of least log-loss over `count` events, by Newton's steps inside a bracket; A is where it starts."""
    low, high = 0.0, MOST
    for _ in range(60):
        g = h = 0.0
        for i in range(count):
            x = X[i * K : (i + 1) * K]
            scaled(A, x, p)
            origin = x[Y[i]]
            mean = square = 0.0
            for k in range(K):
                d = x[k] - origin
                mean += p[k] * d
                square += p[k] * d * d
            g += mean
            h += square - mean * mean
        if g > 0.0:
            high = A
        else:
            low = A
        newton = A - g / h if h > 0.0 else low
        to = newton if low < newton < high else 0.5 * (low + high)
        step = to - A
        A = to
        if -1e-9 < step < 1e-9 or high - low < 1e-9:
            break
    return A


@compilable
def replay(
    K: int,
    state: Vector,
    X: Vector,
    Y: Ints,
    after: int,
    every: int,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    first: int,
    due: Ints,
    order: Ints,
    work: Vector,
) -> None:
    """Forecast the events from `first` on; those before it are under way. Label i is learnt just before event due[i].

    `order` sorts by `due`. X and Y hold the last labels that were learnt, in a ring.
    """
    window = len(Y)
    x, p = work[:K], work[K : 2 * K]
    arrived = 0
    for i in range(first, len(labels) + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            at = int(state[LEARNT]) % window
            for k in range(K):
                X[at * K + k] = math.log(max(scores[j * K + k], EPS))
            Y[at] = labels[j]
            state[LEARNT] += 1.0
            n = int(state[LEARNT])
            if n == after or (every > 0 and n > after and (n - after) % every == 0):
                state[SLOPE] = fit(K, X, Y, min(n, window), state[SLOPE], p)
        if i == len(labels):
            break
        for k in range(K):
            x[k] = math.log(max(scores[i * K + k], EPS))
        scaled(state[SLOPE], x, forecasts[(i - first) * K : (i - first + 1) * K])
