"""Learners that fit a batch of the past: maximum likelihood (Fixed, FTL) and uniform-mass histograms.

They need the past itself. The host keeps it (`History`), hands it to the kernels, and never puts it in the row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibeat._util.check import check_scale, check_whole
from calibeat._util.types import Vector

from .features import HISTOGRAM
from .jit import kernel, rare_kernel
from .learners import REFIT, THETA, project, solve

MOST_EVENTS = 10**9
FLAT = 1e-290  # a Hessian below this is as good as zero: divisions by it overflow


@dataclass(frozen=True)
class Fixed:
    r"""Fit once by maximum likelihood on the first outcomes, then never again (the paper's FPS and FBS).

    theta = argmin over |theta| <= R of sum over the first T_cal events of l(sigmoid(theta . x_s), y_s)

    Parameters
    ----------
    after : the paper's T_cal, the number of outcomes to fit on. Until then the forecast is the raw score.
    radius : R. Separable data has no finite optimum; the fit then ends on this ball (`Calibrator.on_the_ball`).

    The host keeps the first `after` events until the fit, and nothing afterwards.

    >>> from calibeat import Calibrator, Fixed, Method, Platt
    >>> fps = Calibrator(Method(Platt(), Fixed(after=4)))
    >>> fps.run([0.9, 0.9, 0.9, 0.9, 0.9], [1, 1, 0, 1, 0])[-1].round(4)
    np.float64(0.75)

    References: Platt (1999); Gupta & Ramdas (2023), Collection 1.
    """

    after: int = 1000
    radius: float = 100.0

    code: ClassVar[float] = REFIT
    every: ClassVar[int] = 0
    window: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", check_whole("Fixed after", self.after, 1, MOST_EVENTS))
        object.__setattr__(self, "radius", check_scale("Fixed radius", self.radius))


@dataclass(frozen=True)
class FTL:
    r"""Follow the leader: fit again by maximum likelihood every so often (the paper's WPS and WBS).

    theta = argmin over |theta| <= R of sum over the past of l(sigmoid(theta . x_s), y_s)

    Parameters
    ----------
    every : the paper's W, the number of outcomes from one fit to the next.
    after : the paper's T_cal, the number of outcomes before the first fit. Until then the forecast is the raw score.
    window : fit on so many most recent outcomes; None takes all the past, as the paper does.
    radius : R, as for `Fixed`.

    The host keeps 16 bytes per remembered outcome (24 with `Beta`), in columns that grow by doubling: all of the past
    without a window, at most about twice the window with one. Fits start from the last optimum and take two or three
    Newton steps over what is remembered; where events come one by one and nothing is compiled, that takes about a
    hundred times as long as in `run`.

    >>> from calibeat import Calibrator, FTL, Method, Platt
    >>> cal = Calibrator(Method(Platt(), FTL(every=2, after=2, window=4)))
    >>> p = cal.run([0.8, 0.6, 0.7, 0.4, 0.8, 0.6], [1, 0, 0, 1, 1, 0])
    >>> sorted(cal.params)
    ['a', 'b']

    References: Gupta & Ramdas (2023), Section 2.3.
    """

    every: int = 500
    after: int = 1000
    window: int | None = None
    radius: float = 100.0

    code: ClassVar[float] = REFIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_whole("FTL every", self.every, 1, MOST_EVENTS))
        object.__setattr__(self, "after", check_whole("FTL after", self.after, 1, MOST_EVENTS))
        if self.window is not None:
            object.__setattr__(self, "window", check_whole("FTL window", self.window, 1, MOST_EVENTS))
        object.__setattr__(self, "radius", check_scale("FTL radius", self.radius))


@dataclass(frozen=True)
class Histogram:
    r"""Histogram binning: uniform-mass bins on the past scores, forecast = mean outcome of the score's bin.

    It takes the place of the features, with `Fixed` or `FTL` as the learner that says when to fit (the paper's WHB).

    Parameters
    ----------
    bins : the number of bins asked for. Equal scores stay together, so there may be fewer.

    >>> from calibeat import Calibrator, Fixed, Histogram, Method
    >>> hb = Calibrator(Method(Histogram(bins=2), Fixed(after=4)))
    >>> p = hb.run([0.1, 0.2, 0.8, 0.9], [0, 1, 1, 1])
    >>> hb.params["edges"], hb.params["means"]
    ([0.8], [0.5, 1.0])

    References: Zadrozny & Elkan (2001); Gupta & Ramdas (2023), Appendix A.3.
    """

    bins: int = 20

    code: ClassVar[float] = HISTOGRAM

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", check_whole("Histogram bins", self.bins, 1, 10_000))


# ---- maximum likelihood ------------------------------------------------------------------------------------------


@rare_kernel
def fit(
    d: float, h0: Vector, h1: Vector, hy: Vector, first: int, last: int,
    t0: float, t1: float, t2: float, radius: float,
) -> tuple[float, float, float]:  # fmt: skip
    """argmin over |theta| <= R of the log-loss of events first .. last - 1, by damped Newton from t.

    The Newton point is projected on the ball in the norm of the Hessian, which is exactly the minimum of the
    quadratic model over the ball; so the same steps end at the optimum inside and on the boundary.
    """
    g0, g1, g2, a00, a01, a02, a11, a12, a22 = _derivatives(d, h0, h1, hy, first, last, t0, t1, t2)
    if a00 + a11 + a22 < FLAT:  # so sure of everything that no curvature is left: begin again, sure of nothing
        t0 = t1 = t2 = 0.0
        g0, g1, g2, a00, a01, a02, a11, a12, a22 = _derivatives(d, h0, h1, hy, first, last, t0, t1, t2)
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
            g0, g1, g2, a00, a01, a02, a11, a12, a22 = _derivatives(d, h0, h1, hy, first, last, n0, n1, n2)
            if g0 * s0 + g1 * s1 + g2 * s2 <= -0.5 * slope:
                break
            share *= 0.5
        t0, t1, t2 = n0, n1, n2
    return t0, t1, t2


@kernel
def _derivatives(
    d: float, h0: Vector, h1: Vector, hy: Vector, first: int, last: int, t0: float, t1: float, t2: float
) -> tuple[float, float, float, float, float, float, float, float, float]:  # fmt: skip
    """Gradient and packed Hessian of the log-loss at theta."""
    g0 = g1 = g2 = a00 = a01 = a02 = a11 = a12 = a22 = 0.0
    for i in range(first, last):
        x0 = h0[i]
        x1 = 1.0
        z = t0 * x0
        if d == 3.0:
            x1 = h1[i]
            z += t1 * x1 + t2
        elif d == 2.0:
            z += t1
        # p = sigmoid(z) and q = 1 - p from one exponential, neither by a subtraction that loses its digits.
        w = math.exp(-abs(z))
        p, q = (1.0 / (1.0 + w), w / (1.0 + w)) if z >= 0.0 else (w / (1.0 + w), 1.0 / (1.0 + w))
        e = p if hy[i] == 0.0 else -q
        h = p * q
        g0 += e * x0
        a00 += h * x0 * x0
        if d > 1.0:
            g1 += e * x1
            a01 += h * x0 * x1
            a11 += h * x1 * x1
        if d > 2.0:
            g2 += e
            a02 += h * x0
            a12 += h * x1
            a22 += h
    return g0, g1, g2, a00, a01, a02, a11, a12, a22


# ---- histogram ---------------------------------------------------------------------------------------------------
# In a row: the number of bins in use, then bins - 1 edges, then bins means.


@rare_kernel
def fit_histogram(row: Vector, bins: int, h0: Vector, hy: Vector, first: int, last: int) -> None:
    """Cut the sorted scores into `bins` equal parts; a cut between equal scores moves right until they differ."""
    order = np.argsort(np.asarray(h0[first:last]), kind="mergesort")
    n = last - first
    edges, means = THETA + 1, THETA + bins
    used = 0
    start = 0
    for j in range(1, bins + 1):
        cut = (j * n) // bins
        while 0 < cut < n and h0[first + order[cut]] == h0[first + order[cut - 1]]:
            cut += 1
        if cut > start:
            total = 0.0
            for i in range(start, cut):
                total += hy[first + order[i]]
            row[means + used] = total / (cut - start)
            if cut < n:
                row[edges + used] = h0[first + order[cut]]
            used += 1
            start = cut
    row[THETA] = float(used)


@kernel
def histogram_mean(row: Vector, bins: int, score: float) -> float:
    """The mean outcome of the score's bin: as many edges as are <= score lie to its left."""
    edges, means = THETA + 1, THETA + bins
    low, high = 0, int(row[THETA]) - 1
    while low < high:
        middle = (low + high) // 2
        if row[edges + middle] <= score:
            low = middle + 1
        else:
            high = middle
    return row[means + low]
