r"""The paper's theorems as functions: what is guaranteed for any sequence of scores and outcomes.

B is the radius of the ball of parameters compared with, T the number of events, eps = 1/m the width of a bin.

>>> from calibeat import bounds
>>> round(bounds.hops_calibration(eps=0.1, T=10_000), 3)      # an adversary cannot push HOPS's expected CE above this
0.25
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ._check import check_interval, check_whole
from .errors import InvalidInput

_LONGEST = 10**15


def ons_regret(B: float, T: int) -> float:
    """regret(ONS) <= 2 (e^B + 10 B) log T + 1, for scores in [0.01, 0.99], B >= 1 and T >= 10 (Theorem 2.1).

    >>> from calibeat import bounds
    >>> round(bounds.ons_regret(B=1.0, T=1000), 1)
    176.7
    """
    B, T = _ball(B, T)
    return 2.0 * (math.exp(B) + 10.0 * B) * math.log(T) + 1.0


def aioli_regret(B: float, T: int) -> float:
    """regret(AIOLI) <= 22 B log(B T), for scores in [0.01, 0.99], B >= 1 and T >= 10 (Theorem 2.1).

    >>> from calibeat import bounds
    >>> round(bounds.aioli_regret(B=1.0, T=1000), 1)
    152.0
    """
    B, T = _ball(B, T)
    return 22.0 * B * math.log(B * T)


def ogd_regret(B: float, T: int) -> float:
    """regret(OGD) <= (3/2) G D sqrt T with G = 5 and D = 2B (Zinkevich 2003, as in Hazan 2016, Theorem 3.1).

    >>> from calibeat import bounds
    >>> round(bounds.ogd_regret(B=1.0, T=1000), 1)
    474.3
    """
    B, T = _ball(B, T)
    return 1.5 * 5.0 * 2.0 * B * math.sqrt(T)


def tops_sharpness(eps: float, T: int) -> float:
    """SHP(TOPS) >= SHP(OPS) - this: e + e^2/4 + (log T + 1)/(e T) (Theorem 3.1).

    >>> from calibeat import bounds
    >>> round(bounds.tops_sharpness(eps=0.1, T=10_000), 4)
    0.1127
    """
    eps, T = _bins(eps, T)
    return eps + eps * eps / 4.0 + (math.log(T) + 1.0) / (eps * T)


def hops_sharpness(eps: float, T: int) -> float:
    """E SHP(HOPS) >= SHP(OPS) - this: e + (log T + 1)/(e^2 T) (Theorem 3.2).

    >>> from calibeat import bounds
    >>> round(bounds.hops_sharpness(eps=0.1, T=10_000), 4)
    0.2021
    """
    eps, T = _bins(eps, T)
    return eps + (math.log(T) + 1.0) / (eps * eps * T)


def hops_calibration(eps: float, T: int) -> float:
    """E CE(HOPS) <= e/2 + 2 sqrt(1/(e^2 T)) (Theorem 3.2).

    >>> from calibeat import bounds
    >>> bounds.hops_calibration(eps=0.1, T=1_000_000)
    0.07
    """
    eps, T = _bins(eps, T)
    return eps / 2.0 + 2.0 * math.sqrt(1.0 / (eps * eps * T))


def hops_brier(eps: float, T: int) -> float:
    """E Brier(HOPS) <= Brier(OPS) + this: 2e + e^2/4 + (log T + 1)/(e^2 T) (Theorem D.3).

    >>> from calibeat import bounds
    >>> round(bounds.hops_brier(eps=0.1, T=10_000), 4)
    0.3046
    """
    eps, T = _bins(eps, T)
    return 2.0 * eps + eps * eps / 4.0 + (math.log(T) + 1.0) / (eps * eps * T)


def refinement_over_brier(eps: float) -> float:
    """R <= Brier + this: e^2/4 + e, for any forecasts (Lemma D.2).

    >>> from calibeat import bounds
    >>> round(bounds.refinement_over_brier(eps=0.1), 6)
    0.1025
    """
    eps, _ = _bins(eps, 1)
    return eps * eps / 4.0 + eps


_BY_NAME: dict[str, Callable[[float, int], float]] = {
    "tops_sharpness": tops_sharpness,
    "hops_sharpness": hops_sharpness,
    "hops_calibration": hops_calibration,
    "hops_brier": hops_brier,
}


def best_epsilon(T: int, bound: str | Callable[[float, int], float] = "hops_calibration") -> float:
    """The width eps = 1/m, m a whole number, with the least bound for a stream of T events.

    Parameters
    ----------
    bound : "tops_sharpness", "hops_sharpness", "hops_calibration", "hops_brier", or such a function of (eps, T).

    >>> from calibeat import bounds
    >>> 1 / bounds.best_epsilon(10_000), 1 / bounds.best_epsilon(1_000_000)      # how many bins T events can pay for
    (5.0, 16.0)
    """
    _, T = _bins(1.0, T)
    if isinstance(bound, str) and bound in _BY_NAME:
        bound = _BY_NAME[bound]
    if not callable(bound):
        raise InvalidInput(f"bound must be one of {', '.join(_BY_NAME)} or a function, got {bound!r:.60}")
    # Each bound falls and then rises in m, and its bottom lies below sqrt T: walk there in ever smaller strides.
    least, best = math.inf, 1
    stride = max(1, math.isqrt(T) // 100)
    low, high = 1, math.isqrt(T) + 1
    while True:
        for m in range(low, high + 1, stride):
            value = bound(1.0 / m, T)
            if value < least:
                least, best = value, m
        if stride == 1:
            return 1.0 / best
        low, high, stride = max(1, best - stride), best + stride, max(1, stride // 100)


def _ball(B: float, T: int) -> tuple[float, int]:
    return check_interval("B", B, 1.0, 700.0), check_whole("T", T, 10, _LONGEST)


def _bins(eps: float, T: int) -> tuple[float, int]:
    return check_interval("eps", eps, 1e-12, 1.0), check_whole("T", T, 1, _LONGEST)
