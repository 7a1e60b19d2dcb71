"""Calibeating: what binning does to the expert's forecast.

The expert only chooses a bin; inside the bin the forecast is made from the bin's own past outcomes. The cells lie
behind the learner's numbers in the row, each a pair (sum of outcomes, count).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibeat._util.check import check_choice, check_scale, check_whole
from calibeat._util.types import Vector

from .limits import Block, tallies
from .parts import Calibeater, Features, Formula
from .subset import kernel, small_int

KEEP, TRACK, HEDGE, SPLINE = 0, 1, 2, 3

MOST_BINS = 10_000
MOST_IMAGINED = 20.0  # events that a cell of a stream may start with that starts from a pool (`tracking_start`)


@dataclass(frozen=True)
class Tracking(Calibeater):
    r"""Forecast the average outcome of the past events whose expert fell in the same bin (the paper's eq. for TOPS).

    forecast = (S_b + prior mid_b) / (N_b + prior);  the mid-point of the bin while there is nothing to average.

    Parameters
    ----------
    bins : m = 1/epsilon bins [0, e), [e, 2e), ..., [1 - e, 1].
    prior : how many imaginary events at the mid-point each bin starts with; the paper has none.

    Raises
    ------
    InvalidInput : bins not in [1, 10,000], or a prior that is neither 0 nor in [1e-10, 1e10].

    >>> from calibeat import Calibrator, TOPS
    >>> tops = Calibrator(TOPS)
    >>> tops.run([0.72, 0.74, 0.71, 0.73], [1, 0, 1, 1]).tolist()
    [0.75, 1.0, 0.65, 0.5]

    (The second forecast repeats the only outcome that its bin has seen: a few events of patience are needed. The third
    comes from another bin, for the expert has moved.)

    References: Foster & Hart (2023), Section 4; Gupta & Ramdas (2023), Section 3.1 and Theorem 3.1.
    """

    bins: int = 10
    prior: float = 0.0

    code: ClassVar[int] = TRACK

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", check_whole("Tracking bins", self.bins, 1, MOST_BINS))
        if self.prior != 0.0:
            object.__setattr__(self, "prior", check_scale("Tracking prior, if not 0,", self.prior))

    def initial(self) -> list[float]:
        return [0.0] * (2 * self.bins)

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "bins": float(self.bins), "prior": self.prior}

    def limits(self) -> list[Block]:
        return [tallies(self.bins, MOST_IMAGINED)]

    def export(self, formula: Formula, cells: list[float], features: Features | None, scale: float) -> None:  # noqa: ARG002
        """The mean of each bin of the expert, as a table."""
        means = [track(cells, 0, b, float(self.bins), self.prior / scale) for b in range(self.bins)]  # type: ignore[arg-type]
        formula.numbers.update(bins=[b / self.bins for b in range(1, self.bins)], forecasts=means)
        formula.add("tracked", ("lookup", formula.steps[-1][0], formula.numbers["bins"], means))


@dataclass(frozen=True)
class Hedging(Calibeater):
    r"""One F99 forecaster per expert bin, hedging between neighbouring mid-points (the paper's eq. for HOPS).

    F99 keeps, for each point m_b that it may say, p_b = mean outcome when it said m_b (m_b if never),
    d_b = l_b - p_b, e_b = p_b - r_b. If some b has d_b <= 0 and e_b <= 0, it says m_b; else there is a b with
    e_b > 0 and d_{b+1} > 0, and it says m_b with probability d_{b+1}/(d_{b+1} + e_b), m_{b+1} otherwise.

    Parameters
    ----------
    bins : m = 1/epsilon, the number of mid-points.
    start : which b is tried first: "expert", the expert's own bin (keeps sharpness), or "first", the lowest.
    groups : the number of expert bins, one F99 each; as many as `bins` if not given. 1 is plain F99.

    Raises
    ------
    InvalidInput : bins or groups not in [1, 1000], or another start.

    The forecast is drawn at random. `Forecast.candidates` holds the two points and their probabilities; the guarantee
    is about these.

    >>> from calibeat import Calibrator, HOPS
    >>> hops = Calibrator(HOPS, seed=1)
    >>> hops.predict(0.62).candidates
    ((0.65, 1.0),)

    References: Foster (1999); Foster & Hart (2023), Section 5; Gupta & Ramdas (2023), Section 3.3 and Appendix C.
    """

    bins: int = 10
    start: str = "expert"
    groups: int | None = None

    code: ClassVar[int] = HEDGE
    draws: ClassVar[bool] = True
    no_formula: ClassVar[str] = (
        "a map from score to forecast, got {}, whose Hedging draws its forecast at random - export the method without "
        "its calibeater"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", check_whole("Hedging bins", self.bins, 1, 1000))
        object.__setattr__(self, "start", check_choice("Hedging start", self.start, ("expert", "first")))
        if self.groups is not None:
            object.__setattr__(self, "groups", check_whole("Hedging groups", self.groups, 1, 1000))

    @property
    def expert_bins(self) -> int:
        """How many F99 there are."""
        return self.bins if self.groups is None else self.groups

    def initial(self) -> list[float]:
        return [0.0] * (2 * self.bins * self.expert_bins)

    def numbers(self) -> dict[str, float]:
        groups, own = float(self.expert_bins), self.start == "expert"
        return {**super().numbers(), "bins": float(self.bins), "groups": groups, "own": own}

    def limits(self) -> list[Block]:
        return [tallies(self.bins * self.expert_bins)]


@kernel
def bin_of(p: float, m: float) -> int:
    """The bin of p among B_1 = [0, 1/m), ..., B_m = [1 - 1/m, 1], counted from 0; an edge k/m falls to the right."""
    b = int(p * m)
    if b >= m:
        b = int(m) - 1
    # p * m is rounded, the edges b / m are rounded otherwise: compare with the edges themselves.
    if p < b / m:
        b -= 1
    elif b + 1 < m and p >= (b + 1) / m:
        b += 1
    return b


def edges_of(bins: int) -> Vector:
    """The edges of the bins of `bin_among`; nothing is at the last one or above it."""
    return np.array([*(np.arange(bins) / bins), math.inf])


@kernel
def bin_among(edges: Vector, p: float) -> int:
    """The same as `bin_of` without a division: edges[b] <= p < edges[b + 1], edges[b] = b / m."""
    m = len(edges) - 1
    b = min(small_int(p * float(m)), m - 1)
    if p < edges[b]:
        b -= 1
    elif p >= edges[b + 1]:
        b += 1
    return b


@kernel
def track(row: Vector, cells: int, b: int, m: float, prior: float) -> float:
    """The average outcome of bin b."""
    middle = (b + 0.5) / m
    count = row[cells + 2 * b + 1] + prior
    return (row[cells + 2 * b] + prior * middle) / count if count > 0.0 else middle


@kernel
def tracking_start(pool: Vector, row: Vector, cells: int, m: float, most: float) -> None:
    """Each cell of a new stream has seen up to so many imaginary events of the pool's mean outcome."""
    for at in range(cells, cells + 2 * int(m), 2):
        count = pool[at + 1]
        if count > 0.0:
            seen = min(most, count)
            row[at] = seen * (pool[at] / count)
            row[at + 1] = seen


@kernel
def hedge(row: Vector, cells: int, m: float, own: int) -> tuple[int, int, float, float]:
    """F99 on the cells that start at `cells` -> (b, b', d, e): say m_b with probability d/(d + e), m_b' otherwise.

    `own` is the bin to try first, or -1 for the lowest. Where nothing is drawn, b' = b, d = 1 and e = 0.
    """
    if own >= 0:
        p = mean_when_said(row, cells, own, m)
        if own / m <= p <= (own + 1) / m:
            return own, own, 1.0, 0.0
    high, d, e = -1, 1.0, 0.0
    for b in range(int(m)):
        p = mean_when_said(row, cells, b, m)
        if b / m <= p <= (b + 1) / m:
            return b, b, 1.0, 0.0
        if p < b / m and high < 0:
            # The lowest deficit; its left neighbour has neither a deficit nor condition A, so it has an excess.
            high = b
            d = b / m - p
            e = mean_when_said(row, cells, b - 1, m) - b / m
    return high - 1, high, d, e


@kernel
def mean_when_said(row: Vector, cells: int, b: int, m: float) -> float:
    """p_b: the mean outcome when m_b was said, m_b if it never was."""
    count = row[cells + 2 * b + 1]
    return row[cells + 2 * b] / count if count > 0.0 else (b + 0.5) / m
