"""How far events depend on one another: whether the spread of a mean still grows where runs get longer.

A moving-block bootstrap is right when a run is long beside what depends on each other. Where it is not, the spread seen
in longer runs is larger; then the interval is stretched to the largest, with Student's quantile for the few runs there
are. Dependence as long as the log itself cannot be seen from it.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Vector

Z = 1.959963984540054  # of 95 %
GROWS = 1.25  # the spread is so much larger: more than the noise of a few runs
FEWEST_RUNS, SEEN_RUNS = 4, 8
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, 1 to 9 degrees of freedom


def stretch(series: Vector, run: int) -> tuple[float, bool]:
    """By how much to stretch an interval from runs of `run` blocks, and whether dependence outlives them.

    >>> rng = np.random.default_rng(0)
    >>> stretch(rng.normal(size=2500), 50)[1], stretch(np.repeat(rng.normal(size=10), 250), 50)[1]
    (False, True)
    """
    n = len(series)
    if n < SEEN_RUNS * run:
        return 1.0, False
    base = _spread(series, run)
    if base <= 1e-12 * max(1.0, float(np.abs(series).max())):  # the same difference everywhere, up to rounding
        return 1.0, False
    whitened = _whitened(series, run)
    lengths = {run * 2**k for k in range(1, 12)} | {n // 4}
    longer = {length: _spread(series, length) for length in lengths if run < length <= n // FEWEST_RUNS}
    seen = [spread for length, spread in longer.items() if length <= n // SEEN_RUNS]
    half = max(Z * base, student(n / run - 2.0) * whitened)
    grows = max([whitened, *seen]) > GROWS * base
    if grows:
        half = max([half, *(student(n / length - 1.0) * spread for length, spread in longer.items())])
    return half / (Z * base), grows


def student(freedom: float) -> float:
    """The 97.5 % quantile of Student's t.

    >>> student(3), round(student(10), 2), round(student(1000), 2)
    (3.182, 2.23, 1.96)
    """
    whole = max(1, math.floor(freedom))
    if whole <= len(_STUDENT):
        return _STUDENT[whole - 1]
    return Z + (Z**3 + Z) / (4.0 * whole) + (5.0 * Z**5 + 16.0 * Z**3 + 3.0 * Z) / (96.0 * whole * whole)


def _spread(series: Vector, run: int) -> float:
    """The standard error of the mean as runs of a length show it; runs of one log miss what they share."""
    n = len(series)
    path = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    means = (path[run:] - path[:-run]) / run
    return float(np.sqrt(np.mean(means**2) * run / n / (1.0 - run / n)))


def _whitened(series: Vector, run: int) -> float:
    """The standard error if the means of runs follow an autoregression of first order.

    Its coefficient is that of least squares with Kendall's correction for the few runs, and 0.97 at most.
    """
    runs = len(series) // run
    means = series[: runs * run].reshape(runs, run).mean(axis=1)
    means -= means.mean()
    squares = float(means[:-1] @ means[:-1])
    if squares == 0.0:
        return 0.0
    rho = float(means[1:] @ means[:-1]) / squares
    rho = min(0.97, rho + (1.0 + 3.0 * rho) / runs)
    left = means[1:] - rho * means[:-1]
    return math.sqrt(float(left @ left) / (runs - 2) / runs) / (1.0 - rho)
