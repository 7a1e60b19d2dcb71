r"""The theorems of MULTI, for any sequence of scores and labels: labels at once, total nats, T events, K classes.

A mixture of J parts that shares 0.5/t of its weights loses to any part at most
ln J + (1/2)(1 - 1/J) ln T + ln Gamma(1/2 + 1/(2J)) (Herbster & Warmuth 1998). MULTI is four of them, one on the other.
"""

from __future__ import annotations

import math

from calibeat._util.check import check_whole

_LONGEST = 10**15
_FLOOR = 1e-7
_MOST_CLASSES = 1_000_000
_MOST_CONFUSED = 64


def mixture_loss(J: int, T: int) -> float:
    """Log-loss of a mixture of J parts <= that of any part + this: ln J + (1/2)(1 - 1/J) ln T + ln Gamma(1/2 + 1/(2J)).

    >>> from calibeat import bounds
    >>> [round(bounds.mixture_loss(J, 10_000), 2) for J in (2, 3, 6)]      # guard or spline, stages, lanes
    [3.2, 4.47, 6.05]
    """
    J, T = check_whole("J", J, 1, 10**6), check_whole("T", T, 1, _LONGEST)
    return math.log(J) + 0.5 * (1.0 - 1.0 / J) * math.log(T) + math.lgamma(0.5 + 0.5 / J)


def multi_guard(K: int, T: int) -> float:
    """Log-loss of MULTI <= that of the online temperature (``"ots"``) + this: ln 2 + (1/4) ln T + 0.204 + K T 1e-7.

    >>> from calibeat import bounds
    >>> round(bounds.multi_guard(10, 10_000), 1), round(bounds.multi_guard(10, 100_000), 1)
    (3.2, 3.9)
    """
    K = check_whole("K", K, 2, _MOST_CLASSES)
    return mixture_loss(2, T) + K * T * _FLOOR


def multi_loss(K: int, T: int, changes: int = 0) -> float:
    """Log-loss of MULTI <= that of the raw scores, or of any lane, + this: ln 72 + (5/4) ln T + 1.14 + (K + 1) T 1e-7.

    The raw scores are meant with a floor of 1e-7, and normalised. For K > 64 (no confusions): ln 48 + (7/6) ln T +
    1.04 + (K + 1) T 1e-7. Against the best sequence of lanes with so many changes, each adds ln(12 T).

    >>> from calibeat import bounds
    >>> round(bounds.multi_loss(10, 10_000), 1), round(bounds.multi_loss(10, 10_000, changes=3), 1)
    (16.9, 52.0)
    """
    K, changes = check_whole("K", K, 2, _MOST_CLASSES), check_whole("changes", changes, 0, _LONGEST)
    stages = 3 if K <= _MOST_CONFUSED else 2
    mixtures = mixture_loss(6, T) + mixture_loss(stages, T) + 2.0 * mixture_loss(2, T)
    return mixtures + changes * math.log(12.0 * T) + (K + 1) * T * _FLOOR
