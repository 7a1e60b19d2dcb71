"""Learners that fit a batch of the past: maximum likelihood (Fixed, FTL) and uniform-mass histograms.

They need the past itself, which is in no row: a host has a `Refitter` beside the row. It cuts a batch into stretches of
events, plays each by the loop of all methods, and fits between them. No kernel knows of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from calibeat._util.check import check_scale, check_whole
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

from .features import HISTOGRAM, features_of_all
from .layout import THETA, TOTAL, N, Spec
from .learners import REFIT
from .limits import ROUNDED, Block, Limit
from .parts import Features, Formula, Learner
from .subset import entry, kernel
from .weights import in_log

if TYPE_CHECKING:
    from .loops import Batch, Late
    from .method import Method

MOST_EVENTS = 10**9


class Refitting(Learner):
    """What `Fixed` and `FTL` share: when they fit."""

    after: int
    every: int
    window: int | None
    radius: float

    refits: ClassVar[bool] = True

    @property
    def ball(self) -> float:
        return self.radius

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "radius": self.radius, "after": float(self.after)}

    def limits(self, features: Features) -> list[Block]:
        return features.limits(self.radius)

    def export(self, formula: Formula, row: list[float], features: Features, *, exact: bool) -> None:
        if row[N] < self.after:  # a refit that has not come yet leaves the score alone
            formula.add("expert", "score")
        else:
            super().export(formula, row, features, exact=exact)


@dataclass(frozen=True)
class Fixed(Refitting):
    r"""Fit once by maximum likelihood on the first outcomes, then never again (the paper's FPS and FBS).

    theta = argmin over |theta| <= R of sum over the first T_cal events of l(sigmoid(theta . x_s), y_s)

    Parameters
    ----------
    after : the paper's T_cal, the number of outcomes to fit on. Until then the forecast is the raw score.
    radius : R. Separable data has no finite optimum; the fit then ends on this ball (`Calibrator.on_the_ball`).

    Raises
    ------
    InvalidInput : after not in [1, 1e9], or radius not in [1e-10, 1e10].

    The host keeps the first `after` events until the fit, and nothing afterwards.

    >>> from calibeat import Calibrator, Fixed, Method, Platt
    >>> fps = Calibrator(Method(Platt(), Fixed(after=4)))
    >>> fps.run([0.9, 0.9, 0.9, 0.9, 0.9], [1, 1, 0, 1, 0])[-1].round(4)
    np.float64(0.75)

    References: Platt (1999); Gupta & Ramdas (2023), Collection 1.
    """

    after: int = 1000
    radius: float = 100.0

    code: ClassVar[int] = REFIT
    every: ClassVar[int] = 0  # type: ignore[misc]  # never again
    window: ClassVar[int | None] = None  # type: ignore[misc]  # all of it

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", check_whole("Fixed after", self.after, 1, MOST_EVENTS))
        object.__setattr__(self, "radius", check_scale("Fixed radius", self.radius))


@dataclass(frozen=True)
class FTL(Refitting):
    r"""Follow the leader: fit by maximum likelihood after every `every` outcomes (the paper's WPS and WBS).

    theta = argmin over |theta| <= R of sum over the past of l(sigmoid(theta . x_s), y_s)

    Parameters
    ----------
    every : the paper's W, the number of outcomes from one fit to the next.
    after : the paper's T_cal, the number of outcomes before the first fit. Until then the forecast is the raw score.
    window : fit on this many of the latest outcomes; None takes all the past, as the paper does.
    radius : R, as for `Fixed`.

    Raises
    ------
    InvalidInput : every, after or window not in [1, 1e9], or radius not in [1e-10, 1e10].

    The host keeps 16 bytes per remembered outcome (24 with `Beta`), in columns that grow by doubling: all of the past
    without a window, at most about twice the window with one. A fit starts from the last optimum and takes two or three
    Newton steps over the remembered outcomes.

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

    code: ClassVar[int] = REFIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_whole("FTL every", self.every, 1, MOST_EVENTS))
        object.__setattr__(self, "after", check_whole("FTL after", self.after, 1, MOST_EVENTS))
        if self.window is not None:
            object.__setattr__(self, "window", check_whole("FTL window", self.window, 1, MOST_EVENTS))
        object.__setattr__(self, "radius", check_scale("FTL radius", self.radius))


def refit_histogram(
    spec: Spec,
    row: Vector,
    x0: Vector,
    x1: Vector,  # noqa: ARG001 - one signature
    y: Vector,
    weights: Vector,
) -> None:
    """Cut the sorted scores into `bins` parts of equal weight; a cut between equal scores moves right."""
    order = np.argsort(x0, kind="stable")
    cuts = np.arange(1, spec.histogram_bins + 1) * len(x0) // spec.histogram_bins
    if len(weights):
        mass = np.cumsum(weights[order])
        ends = np.arange(1, spec.histogram_bins + 1) / spec.histogram_bins * mass[-1]
        cuts = mass.searchsorted(ends * ROUNDED, side="right")  # as without weights, where all are equal
    cut_into_bins(spec.histogram_bins, row, x0, y, weights, order, cuts)


@entry
def cut_into_bins(
    bins: int, row: Vector, scores: Vector, outcomes: Vector, weights: Vector, order: Ints, cuts: Ints
) -> None:
    """The bins of the scores, whose order is given, and where to cut, and the mean outcome of each."""
    n = len(scores)
    edges, means = THETA + 1, THETA + bins
    used = 0
    start = 0
    for j in range(bins):
        cut = cuts[j]
        while 0 < cut < n and scores[order[cut]] == scores[order[cut - 1]]:
            cut += 1
        if cut > start:
            total, mass = 0.0, 0.0
            for i in range(start, cut):
                weight = weights[order[i]] if len(weights) > 0 else 1.0
                total += weight * outcomes[order[i]]
                mass += weight
            row[means + used] = total / mass
            if cut < n:
                row[edges + used] = scores[order[cut]]
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


@dataclass(frozen=True)
class Histogram(Features):
    r"""Histogram binning: uniform-mass bins on the past scores, forecast = mean outcome of the score's bin.

    It takes the place of the features, with `Fixed` or `FTL` as the learner that says when to fit (the paper's WHB).

    Parameters
    ----------
    bins : the number of bins asked for. Equal scores stay together, so there may be fewer.

    Raises
    ------
    InvalidInput : bins not in [1, 10,000].

    >>> from calibeat import Calibrator, Fixed, Histogram, Method
    >>> hb = Calibrator(Method(Histogram(bins=2), Fixed(after=4)))
    >>> p = hb.run([0.1, 0.2, 0.8, 0.9], [0, 1, 1, 1])
    >>> hb.params["edges"], hb.params["means"]
    ([0.8], [0.5, 1.0])

    References: Zadrozny & Elkan (2001); Gupta & Ramdas (2023), Appendix A.3.
    """

    bins: int = 20

    code: ClassVar[int] = HISTOGRAM
    refit = staticmethod(refit_histogram)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", check_whole("Histogram bins", self.bins, 1, 10_000))

    def check_learner(self, learner: Learner | None) -> None:
        if learner is None or not learner.refits:
            got = "None" if learner is None else type(learner).__name__
            raise InvalidInput(f"Histogram has to be told when to fit by a Fixed or an FTL learner, got {got}")

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "histogram_bins": self.bins}

    def initial(self) -> list[float]:
        """The number of bins in use, bins - 1 edges, bins means."""
        return [0.0] * (2 * self.bins)

    def limits(self, radius: float) -> list[Block]:  # noqa: ARG002 - one signature
        used = Limit("bins in use", 0.0, self.bins, whole=True)
        return [Block((used,)), Block((Limit("edges and means", 0.0, 1.0),), 2 * self.bins - 1)]

    def params(self, row: Any) -> dict[str, Any]:
        used, edges, means = int(row[THETA]), THETA + 1, THETA + self.bins
        return {"edges": list(row[edges : edges + max(0, used - 1)]), "means": list(row[means : means + used])}

    def export(self, formula: Formula, params: dict[str, Any], *, exact: bool) -> None:  # noqa: ARG002 - one signature
        formula.numbers.update(params)
        formula.add("expert", ("lookup", "score", params["edges"], params["means"]))


# ---- fits between stretches of events ------------------------------------------------------------------------------

NEVER = 2**62  # a number of outcomes
STALE_EVENTS = 1024  # with a window, columns move to the front only when so many events (or a window) are stale


class Past(NamedTuple):
    """Features and outcomes, oldest first, in the order in which they were learnt; `dropped` more were before them."""

    x0: Vector
    x1: Vector  # empty where features have fewer than three numbers
    y: Vector
    weights: Vector  # of all events behind an outcome, as clipped; empty while each outcome was one event of weight 1
    dropped: int


NO_PAST = Past(np.empty(0), np.empty(0), np.empty(0), np.empty(0), 0)


class Refitter:
    """Remembers the outcomes that a later fit of a `Fixed` or an `FTL` learner reads, and fits when it is due.

    An outcome moves no parameter of such a learner, and what it moves behind the learner depends on none. So a fit may
    take place at any time between the outcome before it and the next forecast.

    The row counts the outcomes learnt. What stands in the columns behind that many is not there yet: a batch that was
    broken off leaves nothing.
    """

    def __init__(self, method: Method) -> None:
        self._learner: Any = method.learner
        self._features: Any = method.features
        self._spec = method.spec
        self._wide = method.dimension == 3
        self.past = NO_PAST  # one attribute, so that an interrupt finds columns and `dropped` of one time

    def stretches(self, row: Vector, batch: Batch, late: Late | None, end: int) -> Iterator[int]:
        """The stretches of a batch: play the events before each number, then go on. Between two it fits the row.

        `late` and `end` are those of the loop; without `late` an outcome that is not NaN is learnt with its event. The
        loop leaves in `batch.learnt` the weights as it has clipped them.
        """
        learnt, outcomes = int(row[N]), batch.outcomes
        if late is None:
            order = np.flatnonzero(~np.isnan(outcomes[:end]))
            moments = order + 1
        else:
            order = late.order[late.due[late.order] < end]
            moments = late.due[order]
        trials = batch.trials[order] if len(batch.trials) else np.ones(len(order))
        if len(batch.learnt):  # an outcome of weight 0 is settled, and not learnt
            something = trials * (batch.weights[order] if len(batch.weights) else 1.0) > 0.0
            order, moments, trials = order[something], moments[something], trials[something]
        noted = self._remember(learnt, batch.scores[order], outcomes[order], np.ones(len(batch.learnt) and len(order)))
        for count in self._due(learnt, learnt + len(order)):
            yield int(moments[count - learnt - 1])
            self._weigh(learnt, batch.learnt[order[:noted]] * trials[:noted] if len(batch.learnt) else batch.learnt)
            self._fit(row, count)
        yield end
        self._weigh(learnt, batch.learnt[order[:noted]] * trials[:noted] if len(batch.learnt) else batch.learnt)

    def learn(self, row: Vector, score: float, y: float, weight: float) -> None:
        """One outcome that the row has just learnt."""
        learnt = int(row[N])
        given = np.array([weight]) if row[TOTAL] > 0.0 else np.empty(0)
        self._remember(learnt - 1, np.array([score]), np.array([y]), given)
        if learnt in self._due(learnt - 1, learnt):
            self._fit(row, learnt)

    def until(self, learnt: int, *, weighted: bool) -> int:
        """The number of outcomes, after the first `learnt`, with which more is due than a line in the columns.

        In a stream that had weights each outcome is more: also one of weight 1 may be clipped.
        """
        after, every = self._learner.after, self._learner.every
        if learnt >= after and every == 0:  # nothing is remembered any more
            return NEVER
        if weighted or len(self.past.weights):  # which a compiled call does not know
            return 0
        due = after if learnt < after else learnt + every - (learnt - after) % every
        return int(min(due, self.past.dropped + len(self.past.y) + 1))

    def _due(self, learnt: int, count: int) -> range:
        """The numbers of outcomes, after the first `learnt` and up to `count`, at which a fit is due."""
        after, every = self._learner.after, self._learner.every
        if every == 0:
            return range(after, after + 1) if learnt < after <= count else range(0)
        return range(after + max(0, -(-(learnt + 1 - after) // every)) * every, count + 1, every)

    def _fit(self, row: Vector, count: int) -> None:
        """Fit the first `count` outcomes, or the last of them, from where the row is."""
        x0, x1, y, weights, dropped = self.past
        last = count - dropped
        span = slice(0 if self._learner.window is None else max(0, last - self._learner.window), last)
        heavy = weights[span]
        if len(heavy):  # where all are equal, the fit has the bits of a fit without weights
            heavy = heavy / heavy.max()
        self._features.refit(self._spec, row, x0[span], x1[span], y[span], heavy)

    def _remember(self, learnt: int, scores: Vector, outcomes: Vector, weights: Vector) -> int:
        """Note outcomes behind the first `learnt` -> how many of them a fit will read. Without `weights` all are 1."""
        more = len(outcomes)
        if self._learner.every == 0:
            more = max(0, min(more, self._learner.after - learnt))
        if more == 0:
            return 0
        x0, x1, y, known, dropped = self.past
        filled = learnt - dropped
        if len(weights) and not len(known):
            known = np.ones(len(y))
        if filled + more > len(y):
            size = max(filled + more, 2 * len(y), 64)
            x0, y = _grown(x0, filled, size), _grown(y, filled, size)
            x1 = _grown(x1, filled, size) if self._wide else x1
            known = _grown(known, filled, size) if len(weights) or len(known) else known
        new = slice(filled, filled + more)
        seen: Any = in_log(self._spec.odds, scores[:more])  # type: ignore[arg-type]  # it takes arrays too
        features_of_all(self._spec.features, self._spec.clip, seen, x0[new], x1[new])
        y[new] = outcomes[:more]
        if len(known):
            known[new] = weights[:more] if len(weights) else 1.0
        self.past = Past(x0, x1, y, known, dropped)
        return more

    def _weigh(self, learnt: int, weights: Vector) -> None:
        """Put the weights of outcomes behind the first `learnt` in place."""
        if len(weights):
            first = learnt - self.past.dropped
            self.past.weights[first : first + len(weights)] = weights

    def forget(self, learnt: int) -> None:
        """Drop what no later fit reads."""
        x0, x1, y, weights, dropped = self.past
        if self._learner.every == 0:
            if learnt >= self._learner.after:
                self.past = NO_PAST
        elif self._learner.window is not None:
            filled = learnt - dropped
            stale = filled - self._learner.window
            if stale > max(self._learner.window, STALE_EVENTS):
                x0, x1, y, weights = (column[stale:filled].copy() for column in (x0, x1, y, weights))
                self.past = Past(x0, x1, y, weights, dropped + stale)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, learnt: int) -> dict[str, list[float]]:
        """What a snapshot must hold: exactly the outcomes that a later fit can read."""
        x0, x1, y, weights, dropped = self.past
        last = learnt - dropped
        first = last - self._count(learnt)
        columns = {"x0": x0, "x1": x1, "y": y} if self._wide else {"x0": x0, "y": y}
        columns |= {"weights": weights} if (weights[first:last] != 1.0).any() else {}
        return {name: column[first:last].tolist() for name, column in columns.items() if last > first}

    def load(self, learnt: int, columns: Any) -> None:
        """The inverse of `dump`.

        Raises
        ------
        InvalidInput : the columns are not what such a stream remembers after so many outcomes.
        """
        count = self._count(learnt)
        names = {"x0", "x1", "y"} if self._wide else {"x0", "y"}
        if not isinstance(columns, dict) or set(columns) - {"weights"} != (names if count else set()):
            raise InvalidInput(f"history must hold the columns {', '.join(sorted(names))}, got {columns!r:.60}")
        for name, column in columns.items():
            if not isinstance(column, list) or len(column) != count or not all(map(_is_finite, column)):
                raise InvalidInput(f"history must hold {count} numbers in {name}, got {column!r:.60}")
        if count:
            x0, x1, y, weights = (np.array(columns.get(name, [])) for name in ("x0", "x1", "y", "weights"))
            if ((y < 0.0) | (y > 1.0)).any() or (weights < 0.0).any():
                raise InvalidInput("history must hold shares of ones in [0, 1], and weights of 0 or more, got others")
            self.past = Past(x0, x1, y, weights, learnt - count)

    def _count(self, learnt: int) -> int:
        """How many of the outcomes learnt a later fit can read."""
        if self._learner.every == 0:
            return learnt if learnt < self._learner.after else 0
        return learnt if self._learner.window is None else min(learnt, self._learner.window)


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _grown(column: Vector, filled: int, size: int) -> Vector:
    grown = np.empty(size)
    grown[:filled] = column[:filled]
    return grown
