"""Learners that fit a batch of the past: maximum likelihood (Fixed, FTL) and uniform-mass histograms.

They need the past itself. The host keeps it (`History`), hands it to the kernels, and never puts it in the row. The
event loops stop where a refit is due, and the host calls the kernel that the features name (`Features.refit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from calibeat._util.check import check_scale, check_whole
from calibeat._util.types import Flags, Ints, Table, Vector
from calibeat.errors import InvalidInput

from .features import HISTOGRAM
from .layout import THETA, N, Spec
from .learners import REFIT
from .parts import Check, Features, Formula, Learner
from .subset import entry, kernel

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
        when = {"after": float(self.after), "every": float(self.every), "window": self.window or 0}
        return {**super().numbers(), "radius": self.radius, **when}

    def check(self, rows: Table, features: Features, n: Vector) -> Iterable[Check]:
        return features.check(rows, n >= self.after)

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


def refit_histogram(spec: Spec, row: Vector, h0: Vector, h1: Vector, hy: Vector, last: int) -> None:  # noqa: ARG001
    """Cut the sorted scores into `bins` equal parts; a cut between equal scores moves right until they differ."""
    first = max(0, last - spec.window) if spec.window > 0 else 0
    cut_into_bins(spec.histogram_bins, row, h0[first:last], hy[first:last], np.argsort(h0[first:last], kind="stable"))


@entry
def cut_into_bins(bins: int, row: Vector, scores: Vector, outcomes: Vector, order: Ints) -> None:
    """The bins of the scores, whose order is given, and the mean outcome of each."""
    n = len(scores)
    edges, means = THETA + 1, THETA + bins
    used = 0
    start = 0
    for j in range(1, bins + 1):
        cut = (j * n) // bins
        while 0 < cut < n and scores[order[cut]] == scores[order[cut - 1]]:
            cut += 1
        if cut > start:
            total = 0.0
            for i in range(start, cut):
                total += outcomes[order[i]]
            row[means + used] = total / (cut - start)
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

    def check(self, rows: Table, fitted: Flags) -> Iterator[Check]:
        bins, used = self.bins, rows[:, THETA]
        good = (used >= fitted) & (used <= bins) & (used == np.floor(used))
        yield good, f"row must have 1 to {bins} bins in use, got {{}} - at row[{THETA}]", used
        edges, means = rows[:, THETA + 1 : THETA + bins], rows[:, THETA + bins : THETA + 2 * bins]
        unused = np.arange(bins) >= used[:, None]
        sentence = "row must have rising edges and means in [0, 1], got others"
        yield (edges[:, 1:] > edges[:, :-1]) | unused[:, 2:], sentence
        yield ((means >= 0.0) & (means <= 1.0)) | unused, sentence

    def params(self, row: Any) -> dict[str, Any]:
        used, edges, means = int(row[THETA]), THETA + 1, THETA + self.bins
        return {"edges": list(row[edges : edges + max(0, used - 1)]), "means": list(row[means : means + used])}

    def export(self, formula: Formula, params: dict[str, Any], *, exact: bool) -> None:  # noqa: ARG002 - one signature
        formula.numbers.update(params)
        formula.add("expert", ("lookup", "score", params["edges"], params["means"]))


# ---- when to fit -------------------------------------------------------------------------------------------------


@kernel
def wants_history(spec: Spec, n: float) -> bool:
    """Whether the event learnt after n others will be looked at again: Fixed needs only the first ones."""
    return spec.every > 0.0 or n < spec.after


@kernel
def wants_refit(spec: Spec, n: float) -> bool:
    """Whether a refit falls on the n-th outcome."""
    since = n - spec.after
    return since == 0.0 or (spec.every > 0.0 and since > 0.0 and since % spec.every == 0.0)
