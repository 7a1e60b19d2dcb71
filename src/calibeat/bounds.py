r"""The paper's theorems and AUTO's as functions: what is guaranteed for any sequence of scores and outcomes.

B is the radius of the ball of parameters compared with, T the number of events, eps = 1/m the width of a bin.

>>> from calibeat import bounds
>>> round(bounds.hops_calibration(eps=0.1, T=10_000), 3)      # an adversary cannot push HOPS's expected CE above this
0.25

Every function raises `InvalidInput` if an argument is out of its range, or not a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_whole
from calibeat._util.words import made_here
from calibeat.core.auto import EPS, Lanes
from calibeat.core.guard import DELTA, FLOOR
from calibeat.core.layout import STALENESS, N
from calibeat.core.method import AUTO, Method, name_of
from calibeat.core.several import MOST_MODELS, parts_of
from calibeat.core.spline import SPLINE_STALENESS, Spline
from calibeat.core.vector import HORIZON_WEIGHT, LATE_WIDTH, MOST_CONFUSED, late_at
from calibeat.errors import InvalidInput

LEAN = replace(AUTO, learner=Lanes(horizon=False))  # AUTO without a horizon lane

_LONGEST = 10**15
_MOST_CLASSES = 1_000_000


def __dir__() -> list[str]:
    """For whoever presses the tab key."""
    return made_here(globals())


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


def lanes_loss(T: int) -> float:
    """Log-loss of the expert of `Lanes` <= that of any one of its lanes + this: ln 6 + (5/12) ln T + 0.425.

    Six forecasters mixed by likelihood with a share of 0.5/t: to stay with one of them from the start costs ln 6, and
    prod over t of 1/(1 - (5/12)/t) <= Gamma(7/12) T^(5/12) (Herbster & Warmuth 1998). Total nats, outcomes at once.

    >>> from calibeat import bounds
    >>> round(bounds.lanes_loss(10_000), 2)
    6.05
    """
    T = check_whole("T", T, 1, _LONGEST)
    return math.log(6.0) + 5.0 / 12.0 * math.log(T) + 0.425


def spline_loss(T: int) -> float:
    """Log-loss with a `Spline` <= that of its expert + this: ln 3 + (1/3) ln T + 0.304.

    The same, for three forecasters: the expert and its two corrections. The expert is meant clipped to
    [1e-7, 1 - 1e-7]. Total nats, outcomes at once.

    >>> from calibeat import bounds
    >>> round(bounds.spline_loss(10_000), 2)
    4.47
    """
    T = check_whole("T", T, 1, _LONGEST)
    return math.log(3.0) + math.log(T) / 3.0 + 0.304


def auto_loss(T: int) -> float:
    """Log-loss of AUTO <= that of OPS, or of the clipped raw score, + this: ln 18 + (3/4) ln T + 0.73 + 1.01e-7 T.

    The sum of the two above; the last term is for lanes that are clipped to [1e-7, 1 - 1e-7]. So every regret bound
    of OPS holds for AUTO with this added. Total nats, outcomes at once.

    >>> from calibeat import bounds
    >>> [round(bounds.auto_loss(T), 1) for T in (10_000, 100_000, 1_000_000)]
    [10.5, 12.3, 14.1]
    """
    T = check_whole("T", T, 1, _LONGEST)
    return math.log(18.0) + 0.75 * math.log(T) + 0.73 + 1.01e-7 * T


def groups_loss(T: int) -> float:
    """Log-loss of the expert with groups <= that without + this: ln 2 + (1/4) ln T + ln Gamma(3/4).

    Total nats, outcomes at once, whoever chooses scores, attributes and outcomes. So AUTO with groups loses at most
    ``auto_loss(T) + groups_loss(T)`` more than OPS, or the clipped raw score. It is no bound against AUTO's forecast.

    >>> from calibeat import bounds
    >>> [round(bounds.groups_loss(T), 1) for T in (10_000, 100_000, 1_000_000)]
    [3.2, 3.8, 4.4]
    """
    return mixture_loss(2, check_whole("T", T, 1, _LONGEST))


def groups_late(calibrator: Any) -> float:
    """Log-loss of the expert with groups <= that without, as issued, + this, however late the outcomes came.

    (1 + G) groups_loss(T) + G, where G is the staleness of the groups: ``cal.params["groups"]["staleness"]``.

    >>> from calibeat import Calibrator, bounds
    >>> cal = Calibrator(groups=["country"])
    >>> p = cal.run([0.3, 0.7] * 50, [0, 1] * 50, groups={"country": ["fr", "it"] * 50})
    >>> round(bounds.groups_late(cal) - bounds.groups_loss(100), 12)      # outcomes came at once
    0.0
    """
    groups = getattr(calibrator, "params", {}).get("groups")
    if groups is None:
        raise InvalidInput(f"groups_late needs a Calibrator with groups, got {type(calibrator).__name__} without")
    return _late(2, calibrator.outcomes, groups["staleness"])


def lanes_late(row_or_calibrator: Any) -> float:
    """Log-loss of the expert of `Lanes` <= that of any one lane + this, however late the outcomes came.

    (1 + G) (ln K + c ln T + ln Gamma(1 - c)) + G,  c = (1 - 1/K)/2,  K = 7 lanes, or 6 while no outcome was late

    G is the staleness that the row has counted (`calibeat.core.auto`): a certificate that can be printed at any
    time, not a bound that is known beforehand. T is the number of outcomes learnt, and losses are over their events.
    A lane's loss is that of what it issued: for OPS, that of OPS which learns each outcome when AUTO does. Total nats.

    >>> from calibeat import Calibrator, bounds
    >>> cal = Calibrator()
    >>> p = cal.run([0.3, 0.7] * 50, [0, 1] * 50)
    >>> round(bounds.lanes_late(cal), 2)      # outcomes came at once
    4.14
    """
    method, row = _late_row(row_or_calibrator)
    at = method.spec.horizon
    return float(_late(7 if at > 0 and row[at] > 0.0 else 6, row[N], row[STALENESS]))


def spline_late(row_or_calibrator: Any) -> float:
    """Log-loss of AUTO <= that of its expert + this, however late the outcomes came.

    The same as `lanes_late`, for K = 3: the expert and its two corrections.

    >>> from calibeat import Calibrator, bounds
    >>> cal = Calibrator()
    >>> p = cal.run([0.3, 0.7] * 50, [0, 1] * 50)
    >>> round(bounds.spline_late(cal), 2)
    2.94
    """
    method, row = _late_row(row_or_calibrator)
    return float(_late(3, row[N], row[method.spec.cells + SPLINE_STALENESS]))


def auto_late(row_or_calibrator: Any) -> float:
    """Log-loss of AUTO <= that of any one of its lanes, OPS with the same delays included, + this.

    The sum of the two above, and 1.01e-7 T for lanes that are clipped to [1e-7, 1 - 1e-7]; of a calibrator with groups
    also `groups_late`. It holds for outcomes in any order, at any time or never. With outcomes at once it is
    `auto_loss`, and `groups_loss` where there are groups.

    Parameters
    ----------
    row_or_calibrator : a `Calibrator` of AUTO, or its row.

    Raises
    ------
    InvalidInput : it is neither.

    >>> from calibeat import Calibrator, bounds
    >>> cal = Calibrator()
    >>> p = cal.run([0.8, 0.6] * 50, [1, 0] * 50)                                    # outcomes at once
    >>> round(bounds.auto_late(cal), 2), round(bounds.auto_loss(100), 2)
    (7.07, 7.07)
    >>> p = cal.run([0.8, 0.6] * 50, [1, 0] * 50, due=[i + 20 for i in range(100)])  # 19 forecasts late
    >>> bounds.auto_late(cal) < 20.0
    True
    """
    _, row = _late_row(row_or_calibrator)
    total = lanes_late(row_or_calibrator) + spline_late(row_or_calibrator) + 1.01e-7 * row[N]
    has_groups = "groups" in getattr(row_or_calibrator, "params", {})
    return float(total + groups_late(row_or_calibrator) if has_groups else total)


def several(k: int, T: int, changes: int = 0) -> float:
    """Log-loss with k models <= that of AUTO on any one of them + this: mixture_loss(k + 2, T) + mixture_loss(2, T).

    The first mixture is of an AUTO for each model and two regressions over all scores; the second is of the first and
    its spline. Against the best sequence of models with this many `changes`, each adds ln(2 (k + 2) T). Against OPS, or
    the clipped raw score, of any one model add ``auto_loss(T)``. Total nats, outcomes at once, no score missing.

    >>> from calibeat import bounds
    >>> [round(bounds.several(2, T), 1) for T in (10_000, 100_000, 1_000_000)]
    [8.4, 9.8, 11.3]
    >>> [round(bounds.several(k, 10_000), 1) for k in (3, 8)]
    [8.9, 10.1]
    """
    k, T = check_whole("k", k, 2, MOST_MODELS), check_whole("T", T, 1, _LONGEST)
    changes = check_whole("changes", changes, 0, _LONGEST)
    return mixture_loss(k + 2, T) + mixture_loss(2, T) + changes * math.log(2.0 * (k + 2) * T)


def several_late(calibrator: Any) -> float:
    """Log-loss with several models <= that of AUTO on any one of them, as issued, + this, however late outcomes came.

    The sum of (1 + G) c + G over the two mixtures of `several`: c is `mixture_loss`, G the staleness that the mixture
    has counted. It is a certificate that can be printed at any time, not a bound that is known beforehand. T is the
    number of outcomes learned, and losses are over their events. Total nats.

    Where scores are missing, the first mixture is compared with a model over the events that have its score, the
    second over all events: the certificate bounds the sum of both losses.

    Raises
    ------
    InvalidInput : it is no `Calibrator` with models.

    >>> from calibeat import Calibrator, bounds
    >>> S, y = [[0.8, 0.7], [0.6, 0.2]] * 50, [1, 0] * 50
    >>> cal = Calibrator(models=2)
    >>> p = cal.run(S, y)                                                 # outcomes at once
    >>> round(bounds.several_late(cal) - bounds.several(2, 100), 12)
    0.0
    >>> late = Calibrator(models=2)
    >>> p = late.run(S, y, due=[i + 20 for i in range(100)])              # 19 forecasts late
    >>> bounds.several_late(late) < 20.0
    True
    """
    names = getattr(calibrator, "models", None)
    if names is None:
        raise InvalidInput(f"several_late needs a Calibrator with models, got {type(calibrator).__name__} without")
    parts, T = parts_of(calibrator.row, len(names)), calibrator.outcomes
    return float(_late(len(names) + 2, T, parts.stale) + _late(2, T, parts.spline_stale))


def _late_row(row_or_calibrator: Any) -> tuple[Method, Sequence[float]]:
    """The method and the row: of a calibrator, or of a row of AUTO with or without a horizon lane."""
    if getattr(row_or_calibrator, "models", None) is not None:
        raise InvalidInput("bounds of AUTO need a Calibrator without models - several_late(calibrator) has theirs")
    method, row = getattr(row_or_calibrator, "method", None), getattr(row_or_calibrator, "row", row_or_calibrator)
    if method is None:
        method = next((known for known in (AUTO, LEAN) if np.shape(row) == (known.width,)), None)
    if method is None or not isinstance(method.learner, Lanes) or not isinstance(method.calibeater, Spline):
        got = np.shape(row) if method is None else name_of(method) or method
        raise InvalidInput(
            f"bounds of late outcomes need a Calibrator with Lanes and a Spline, or a row of AUTO, got {got}"
        )
    return method, row


def _late(parts: int, T: float, stale: float) -> float:
    """(1 + G) (ln K + c ln T + ln Gamma(1 - c)) + G with c = (1 - 1/K)/2; 0 before the first outcome."""
    return (1.0 + stale) * mixture_loss(parts, int(T)) + stale if T else 0.0


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

    Raises
    ------
    InvalidInput : no bound has that name.

    >>> from calibeat import bounds
    >>> 1 / bounds.best_epsilon(10_000), 1 / bounds.best_epsilon(1_000_000)      # how many bins T events can pay for
    (5.0, 16.0)
    """
    _, T = _bins(1.0, T)
    if isinstance(bound, str) and bound in _BY_NAME:
        bound = _BY_NAME[bound]
    if not callable(bound):
        raise InvalidInput(f"bound must be one of {', '.join(_BY_NAME)} or a function, got {bound!r:.60}")
    # Each bound falls and then rises in m, with its minimum below sqrt T: search with ever smaller strides.
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


# ---- the guard (docs/guard.md has the proofs) ---------------------------------------------------------------------


def guard_calibration(
    T: int, bins: int = 10, slack: float = 1.0, spring: float = 10.0, brier: float | None = None
) -> float:
    """E CE of a `Guard` over its own bins, for any expert and any adaptive opponent (Theorem 1 and Lemma 3).

    `brier` is a Brier score that the forecasts are known to have; without it the bound holds whatever happens.

    >>> from calibeat import bounds
    >>> round(bounds.guard_calibration(10_000), 3), round(bounds.guard_calibration(10_000, brier=0.15), 3)
    (0.034, 0.028)
    """
    bins = check_whole("bins", bins, 1, 1000)
    return _guarded(T, bins, slack, spring, brier, width=1.0 / bins, centre=1.0 - 1.0 / bins)


def guard_log_loss(T: int, spring: float = 10.0, brier: float | None = None) -> float:
    """E total log-loss of a `Guard` <= that of its expert, clipped to [1e-7, 1 - 1e-7], + this: ln(G / 2 lam) nats.

    The excess reaches this + x with probability at most exp(-x) (Theorem 2).

    >>> from calibeat import bounds
    >>> round(bounds.guard_log_loss(10_000), 1), round(bounds.guard_log_loss(10_000, brier=0.25), 1)
    (6.2, 4.9)
    """
    spring = check_interval("spring", spring, 1e-3, 1e6)
    return math.log(_guard_potential(T, spring, brier) / (2.0 * spring))


def guard_brier(T: int, spring: float = 10.0, brier: float | None = None) -> float:
    """E total Brier score of a `Guard` <= that of its clipped expert + this: 2 ln(G / 2 mu) (Theorem 2).

    >>> from calibeat import bounds
    >>> round(bounds.guard_brier(10_000), 1)
    12.4
    """
    return 2.0 * guard_log_loss(T, spring, brier)


def guard_sharpness(eps: float, T: int, spring: float = 10.0) -> float:
    """E SHP of a `Guard` over TOPS >= SHP(OPS) - this (Theorem 3); eps = 1/m for both.

    >>> from calibeat import bounds
    >>> round(bounds.guard_sharpness(eps=0.1, T=10_000), 3)
    0.065
    """
    eps, T = _bins(eps, T)
    r = (math.log(T) + 1.0) / (eps * T) + guard_brier(T, spring) / T + 2e-7
    return r + eps * math.sqrt(0.25 + r) + eps * eps / 4.0


def _guard_potential(T: int, spring: float, brier: float | None) -> float:
    """G_T = (sqrt(4 lam (1 + floor T) + X) + delta T)^2, with X = T times the Brier score, at most T (Lemma 2)."""
    T = check_whole("T", T, 1, _LONGEST)
    x = 1.0 if brier is None else check_interval("brier", brier, 0.0, 1.0)
    return (math.sqrt(4.0 * spring * (1.0 + FLOOR * T) + x * T) + DELTA * T) ** 2


def _guarded(
    T: int, bins: int, slack: float, spring: float, brier: float | None, *, width: float, centre: float
) -> float:
    """Theorem 1; without a Brier score by the iteration of Lemma 3, each step of which is a bound."""
    T = check_whole("T", T, 1, _LONGEST)
    slack = check_interval("slack", slack, 0.0, 100.0)
    spring = check_interval("spring", spring, 1e-3, 1e6)

    def theorem(x: float) -> float:
        return (slack * math.sqrt(bins * T) / 2.0 + math.sqrt(bins * _guard_potential(T, spring, x))) / T

    if brier is not None:
        return min(1.0, theorem(brier))
    x = 1.0
    for _ in range(200):
        x = min(x, 0.25 + centre * theorem(x) + width * math.sqrt(x))
    return min(1.0, theorem(x))


# ---- MULTI: total nats, T events, K classes; labels at once where the name does not say late -------------------------
# A mixture of J parts that shares 0.5/t of its weights loses to any part at most
# ln J + (1/2)(1 - 1/J) ln T + ln Gamma(1/2 + 1/(2J)) (Herbster & Warmuth 1998).
# MULTI is four of them, one on the other.


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
    return mixture_loss(2, T) + K * T * EPS


def multi_loss(K: int, T: int, changes: int = 0) -> float:
    """Log-loss of MULTI <= that of the raw scores, or of any lane, + this: ln 72 + (5/4) ln T + 1.14 + (K + 1) T 1e-7.

    The raw scores are meant with a floor of 1e-7, and normalised. For K > 64 (no confusions): ln 48 + (7/6) ln T +
    1.04 + (K + 1) T 1e-7. Against the best sequence of lanes with this many `changes`, each adds ln(12 T).

    >>> from calibeat import bounds
    >>> round(bounds.multi_loss(10, 10_000), 1), round(bounds.multi_loss(10, 10_000, changes=3), 1)
    (16.9, 52.0)
    """
    K, changes = check_whole("K", K, 2, _MOST_CLASSES), check_whole("changes", changes, 0, _LONGEST)
    stages = 3 if K <= MOST_CONFUSED else 2
    mixtures = mixture_loss(6, T) + mixture_loss(stages, T) + 2.0 * mixture_loss(2, T)
    return mixtures + changes * math.log(12.0 * T) + (K + 1) * T * EPS


def multi_guard_late(row: npt.ArrayLike, K: int) -> float:
    """The same as `multi_guard` for labels that came in any order, at any time or never: T_g c_2(n) + G_g + K n 1e-7.

    c_J is `mixture_loss`; n, G_g and T_g are in the row: the labels that were learnt, what stale weights have cost,
    and the temper that it led to. The online temperature is meant with the same delays. Labels at once: `multi_guard`.

    Parameters
    ----------
    row : of a `MultiCalibrator` with method ``"multi"`` and K classes.

    Raises
    ------
    InvalidInput : it is no such row.

    >>> from calibeat import MultiCalibrator, bounds
    >>> cal = MultiCalibrator(3)
    >>> P = cal.run([[0.2, 0.5, 0.3]] * 100, [0, 1, 2, 0] * 25)
    >>> round(bounds.multi_guard_late(cal.row, 3) - bounds.multi_guard(3, 100), 12)          # all labels came at once
    0.0
    """
    n, _, _, _, guard = _tempered(row, K)
    return guard + K * n * EPS


def multi_late(row: npt.ArrayLike, K: int) -> float:
    """The same as `multi_loss`: the sum of T c_J(n) + G over lanes, stages, spline and guard, + (K + 1) n 1e-7.

    Raises
    ------
    InvalidInput : it is no such row.

    >>> from calibeat import bounds
    >>> from calibeat.core.vector import VectorMethod
    >>> bounds.multi_late(VectorMethod("multi", 3).initial_row(), 3)         # nothing was learnt, nothing was lost
    0.0
    """
    n, *parts = _tempered(row, K)
    return sum(parts) + (K + 1) * n * EPS


def _tempered(row: npt.ArrayLike, K: int) -> list[float]:
    """The labels of a row, and T c_J + G of its lanes, stages, spline and guard."""
    values, late = np.asarray(row, dtype=np.float64), late_at(check_whole("K", K, 2, _MOST_CLASSES))
    if values.ndim != 1 or len(values) < late + LATE_WIDTH:
        raise InvalidInput(f"row must be one of MULTI with {K} classes, got {np.shape(values)}")
    n = int(values[N])
    J = (7 if values[late + HORIZON_WEIGHT] > 0.0 else 6), (3 if K <= MOST_CONFUSED else 2), 2, 2
    pairs = values[late : late + 2 * len(J)].reshape(-1, 2).tolist()
    return [n, *(T * mixture_loss(j, n) + G if n else 0.0 for j, (G, T) in zip(J, pairs, strict=True))]
