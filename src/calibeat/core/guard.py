"""The guard: a last stage that says the expert's own number unless its record demands otherwise.

Bins are [k/m, (k+1)/m). The guard keeps, for each bin, S = sum of (y - q) and
V = sum of q (1 - q) over what it said there, and two wealths M and N of somebody who bets on the expert against it, in
log-loss and in Brier score. With D_b = sign(S_b) max(|S_b| - c sqrt(V_b), 0), the part of S_b outside a dead zone, and
the stiffness K(q) = lam M / (q (1 - q)) + lam N of a spring that holds q to the expert p::

    h_b(q) = D_b - (q - p) K(q)          falls in q inside a bin
    D_b = 0 in the expert's bin:         say p
    otherwise walk from p towards the deficit and say the first q where h comes down through zero; where it does so
    only across an edge e, draw between e - delta and e so that h is zero on average

    after y:  S_b += y - q,  V_b += q (1 - q)          in the bin of q
              M <- max(floor, M p / q),                for y = 1; (1 - p) / (1 - q) for y = 0
              N <- max(floor, N (1 + (q - p) (q - y)))

docs/guard.md has the theorems and their proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from calibeat._util.check import check_interval, check_whole
from calibeat._util.types import Vector

from .calibeating import bin_of
from .limits import Block, Limit
from .parts import Part
from .subset import kernel, large_kernel

DELTA = 1e-6  # between the two points of a draw
FLOOR = 1e-4  # of the wealths: whoever bets on the expert never loses all, so that every stretch has a bound
INSIDE = 1e-7  # experts are clipped to [INSIDE, 1 - INSIDE]
MOST_WEALTH = 1e300

# ---- behind the calibeater's cells in the row --------------------------------------------------------------------
WEALTH, BRIER_WEALTH = 0, 1  # M, N
SUMS = 2  # then S and V of each bin


@dataclass(frozen=True)
class Guard(Part):
    r"""Calibration against any opponent: moves a forecast no further than the record of its bin demands.

    Parameters
    ----------
    bins : m, the bins that are guarded. The promise is for these bins and unions of them.
    slack : c, the width of the dead zone in standard deviations. Take 1 against an opponent who chooses outcomes, 2 for
        a safety net that moves few forecasts.
    spring : lam = mu, how firmly a forecast is held to the expert's.

    Raises
    ------
    InvalidInput : bins not in [1, 1000], slack not in [0, 100], or spring not in [0.001, 1e6].

    >>> from dataclasses import replace
    >>> from calibeat import AUTO, Calibrator, Guard
    >>> cal = Calibrator(replace(AUTO, guard=Guard()))
    >>> p = cal.run([0.5] * 40, [1, 1, 1, 0] * 10)
    >>> round(cal.predict(0.5).probability, 4)
    0.7182
    """

    bins: int = 10
    slack: float = 1.0
    spring: float = 10.0

    slot: ClassVar[str] = "guard"
    code: ClassVar[int] = 1
    no_formula: ClassVar[str] = (
        "a map from score to forecast, got {}, whose Guard may draw its forecast at random - export the method without "
        "its guard"
    )

    def __post_init__(self) -> None:
        """Check what was given."""
        object.__setattr__(self, "bins", check_whole("bins", self.bins, 1, 1000))
        object.__setattr__(self, "slack", check_interval("slack", self.slack, 0.0, 100.0))
        object.__setattr__(self, "spring", check_interval("spring", self.spring, 1e-3, 1e6))

    def initial(self) -> list[float]:
        """M = N = 1, and nothing in any bin."""
        return [1.0, 1.0, *[0.0] * (2 * self.bins)]

    def numbers(self) -> dict[str, float]:
        return {"guard_bins": float(self.bins), "slack": self.slack, "spring": self.spring}

    def limits(self) -> list[Block]:
        """What its numbers can be."""
        wealth = Limit("wealth", FLOOR, MOST_WEALTH)
        residuals, spread = Limit("a sum of residuals", 0.0, 0.0, 1.0, 1.0), Limit("a spread", 0.0, 0.0, rises=0.26)
        return [Block((wealth,), 2), Block((residuals, spread), self.bins)]

    def params(self, numbers: Any) -> dict[str, Any]:
        """Wealth of the expert, and the bins that are out of balance: bin, its edges, the debt D."""
        out = []
        for b in range(self.bins):
            d = debt(numbers, 0, b, self.slack)
            if d != 0.0:
                out.append({"from": b / self.bins, "to": (b + 1) / self.bins, "debt": d})
        return {"log_loss_wealth": numbers[WEALTH], "brier_wealth": numbers[BRIER_WEALTH], "out_of_balance": out}


@kernel
def clip_expert(p: float) -> float:
    """An expert inside [INSIDE, 1 - INSIDE]."""
    p = max(INSIDE, p)
    return min(1.0 - INSIDE, p)


@kernel
def debt(row: Vector, at: int, b: int, slack: float) -> float:
    """D_b, the part of S_b outside the dead zone."""
    s = row[at + SUMS + 2 * b]
    tau = slack * math.sqrt(row[at + SUMS + 2 * b + 1])
    if s > tau:
        return s - tau
    if s < -tau:
        return s + tau
    return 0.0


@kernel
def pull(d: float, p: float, q: float, m: float, n: float) -> float:
    """h(q), what an outcome 1 instead of 0 adds to half the potential; m = lam M and n = lam N."""
    return d - (q - p) * (m / (q * (1.0 - q)) + n)


@kernel
def balance(d: float, p: float, m: float, n: float, low: float, high: float) -> float:
    """The q between low and high where h comes down through zero.

    Newton on q (1 - q) h(q), a cubic that has the sign of h; a step that leaves the bracket becomes a halving.
    """
    q = 0.5 * (low + high)
    for _ in range(200):
        v = q * (1.0 - q)
        g = d * v - (q - p) * (m + n * v)
        if g > 0.0:
            low = q
        else:
            high = q
        slope = (1.0 - 2.0 * q) * (d - n * (q - p)) - m - n * v
        step = q - g / slope if slope < 0.0 else low
        if abs(step - q) <= 1e-16:
            return step
        if not low < step < high:
            step = 0.5 * (low + high)
            if not low < step < high:
                return q
        q = step
    return q  # pragma: no cover - a dozen steps are enough; the end of the loop is for the compiler


@large_kernel
def guard(row: Vector, at: int, bins: float, slack: float, spring: float, p: float) -> tuple[float, float, float]:
    """What is said of an expert p in [INSIDE, 1 - INSIDE] -> (low, high, probability of low); low == high: no draw."""
    b = bin_of(p, bins)
    d = debt(row, at, b, slack)
    if d == 0.0:
        return p, p, 1.0
    m, n = spring * row[at + WEALTH], spring * row[at + BRIER_WEALTH]
    here = p
    if d > 0.0:
        while b < bins - 1.0:
            edge = (b + 1.0) / bins
            below = max(here, edge - DELTA)
            left = pull(d, p, below, m, n)
            if left <= 0.0:
                q = balance(d, p, m, n, here, below)
                return q, q, 1.0
            d = debt(row, at, b + 1, slack)
            right = pull(d, p, edge, m, n)
            if right <= 0.0:
                return below, edge, -right / (left - right)
            b, here = b + 1, edge
        q = balance(d, p, m, n, here, 1.0)
        return q, q, 1.0
    while b > 0:
        edge = b / bins
        right = pull(d, p, edge, m, n)
        if right >= 0.0:
            q = balance(d, p, m, n, edge, here)
            return q, q, 1.0
        below = edge - DELTA
        d = debt(row, at, b - 1, slack)
        left = pull(d, p, below, m, n)
        if left >= 0.0:
            return below, edge, -right / (left - right)
        b, here = b - 1, below
    q = balance(d, p, m, n, 0.0, here)
    return q, q, 1.0


@kernel
def guard_step(row: Vector, at: int, bins: float, p: float, q: float, y: float) -> None:
    """Learn outcome y of an event where the expert said p and the guard q."""
    b = at + SUMS + 2 * bin_of(q, bins)
    row[b] += y - q
    row[b + 1] += q * (1.0 - q)
    wealth = row[at + WEALTH] * (p / q if y == 1.0 else (1.0 - p) / (1.0 - q))
    row[at + WEALTH] = max(FLOOR, wealth)
    wealth = row[at + BRIER_WEALTH] * (1.0 + (q - p) * (q - y))
    row[at + BRIER_WEALTH] = max(FLOOR, wealth)
