r"""Features: what the learner sees of a score, d numbers x with expert = sigmoid(theta . x).

=============  =========================  ===  ===========
part           x                          d    identity
=============  =========================  ===  ===========
`Platt`        (logit f, 1)               2    (1, 0)
`Beta`         (log f, log(1 - f), 1)     3    (1, -1, 0)
`Temperature`  (logit f)                  1    (1)
=============  =========================  ===  ===========

f is the score clipped to [clip, 1 - clip], so that the logarithms stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from calibeat._util.check import check_interval, check_start
from calibeat._util.types import Vector

from .algebra import ln, lns
from .fit import refit_scaling
from .limits import ROUNDED, Block, Limit
from .parts import LARGEST_EXPONENT, Expression, Features, Formula, sigmoid_of
from .subset import blank, entry, kernel

RAW, PLATT, BETA, TEMPERATURE, HISTOGRAM = 0, 1, 2, 3, 4

# 1 - clip must differ from 1, or the logarithm of 1 - f is minus infinity again.
SMALLEST_CLIP = 1e-15


class Scaling(Features):
    """What the three families of curves share: a start, a clip, and theta . x as the logit of the expert."""

    start: Sequence[float]
    clip: float

    refit = staticmethod(refit_scaling)

    def __post_init__(self) -> None:
        label = type(self).__name__
        object.__setattr__(self, "start", check_start(f"{label} start", self.start, len(self.names)))
        object.__setattr__(self, "clip", check_interval(f"{label} clip", self.clip, SMALLEST_CLIP, 0.499))

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "d": self.dimension, "clip": self.clip}

    def initial(self) -> list[float]:
        return list(self.start)

    @property
    def reach(self) -> tuple[float, ...]:
        return (1.01 * math.log((1.0 - self.clip) / self.clip), 1.01)[: self.dimension]

    def limits(self, radius: float) -> list[Block]:
        most = max(radius * ROUNDED, *map(abs, self.start))
        return [Block((Limit("theta", -most, most),), self.dimension)]

    @property
    def logit(self) -> Expression:
        """The logit of f, as the kernel makes it of the features."""
        return ("ln", ("/", "f", ("-", 1.0, "f")))

    def terms(self, theta: list[float]) -> list[Expression]:
        """The terms of theta . x."""
        return [("*", theta[0], self.logit), *theta[1:]]

    def export(self, formula: Formula, params: dict[str, Any], *, exact: bool) -> None:
        """f, z = theta . x, sigmoid(z); `exact` makes the sigmoid as the kernel does, to the last bit."""
        formula.numbers.update(params, clip=self.clip)
        formula.add("f", ("clamp", "score", self.clip, 1.0 - self.clip))
        theta, furthest = list(params.values()), math.log((1.0 - self.clip) / self.clip)
        terms = self.terms(theta)
        z: Expression = ("+", *terms) if len(terms) > 1 else terms[0]
        if math.fsum(abs(number) for number in theta) * max(furthest, 1.0) > LARGEST_EXPONENT:
            z = ("clamp", z, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        if not exact:
            formula.add("expert", sigmoid_of(z))
            return
        formula.add("z", z)
        formula.add("e", ("exp", ("if>=", "z", 0.0, ("-", 0.0, "z"), "z")))
        formula.add("expert", ("/", ("if>=", "z", 0.0, 1.0, "e"), ("+", 1.0, "e")))


@dataclass(frozen=True)
class Platt(Scaling):
    r"""Platt scaling: m(f) = sigmoid(a logit f + b) (the paper's eq. for m^{a,b}).

    Parameters
    ----------
    start : (a, b), the parameters before the first outcome; (1, 0) leaves the score as it is.
    clip : scores are clipped to [clip, 1 - clip] before the logarithm.

    Raises
    ------
    InvalidInput : not two numbers within 1e10, or a clip outside [1e-15, 0.499].

    a < 1 tempers an over-confident score, a > 1 sharpens an under-confident one, b shifts the level, a < 0 reverses it.

    >>> from calibeat import Calibrator, Method, ONS, Platt
    >>> sure = Calibrator(Method(Platt(start=(2.0, 0.0)), ONS()))
    >>> round(sure.predict(0.75).probability, 3)
    0.9

    References: Platt (1999); Gupta & Ramdas (2023), eq. (2).
    """

    start: Sequence[float] = (1.0, 0.0)
    clip: float = 1e-5

    code: ClassVar[int] = PLATT
    names: ClassVar[tuple[str, ...]] = ("a", "b")


@dataclass(frozen=True)
class Beta(Scaling):
    r"""Beta scaling: m(f) = sigmoid(a log f + b log(1 - f) + c).

    Parameters
    ----------
    start : (a, b, c), the parameters before the first outcome; (1, -1, 0) is the identity.
    clip : scores are clipped to [clip, 1 - clip] before the logarithms.

    Raises
    ------
    InvalidInput : not three numbers within 1e10, or a clip outside [1e-15, 0.499].

    b = -a is Platt scaling; the third parameter lets the two ends of the scale bend differently.

    >>> from calibeat import Beta, Calibrator, Method, ONS
    >>> round(Calibrator(Method(Beta(), ONS(rho=25.0))).predict(0.3).probability, 12)
    0.3

    References: Kull, Silva Filho & Flach (2017); Gupta & Ramdas (2023), Section 5.
    """

    start: Sequence[float] = (1.0, -1.0, 0.0)
    clip: float = 1e-5

    code: ClassVar[int] = BETA
    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")

    @property
    def reach(self) -> tuple[float, ...]:
        return (-1.01 * math.log(self.clip), -1.01 * math.log(self.clip), 1.01)

    @property
    def logit(self) -> Expression:
        return ("-", ("ln", "f"), ("ln", ("-", 1.0, "f")))

    def terms(self, theta: list[float]) -> list[Expression]:
        return [("*", theta[0], ("ln", "f")), ("*", theta[1], ("ln", ("-", 1.0, "f"))), theta[2]]


@dataclass(frozen=True)
class Temperature(Scaling):
    r"""Temperature scaling: m(f) = sigmoid(a logit f), one number, 1/a is the temperature.

    Parameters
    ----------
    start : (a,), the parameter before the first outcome; 1 is the identity.
    clip : scores are clipped to [clip, 1 - clip] before the logarithm.

    Raises
    ------
    InvalidInput : not one number within 1e10, or a clip outside [1e-15, 0.499].

    It never moves a score across one half, so accuracy at that threshold cannot change while a > 0.

    >>> from calibeat import Calibrator, Method, ONS, Temperature
    >>> Calibrator(Method(Temperature(), ONS())).predict(0.5).probability
    0.5

    References: Guo, Pleiss, Sun & Weinberger (2017).
    """

    start: Sequence[float] = (1.0,)
    clip: float = 1e-5

    code: ClassVar[int] = TEMPERATURE
    names: ClassVar[tuple[str, ...]] = ("a",)


@kernel
def features_of(kind: int, clip: float, score: float) -> tuple[float, float, float]:
    """Score -> x, padded with zeros to three numbers."""
    if kind == RAW or kind == HISTOGRAM:  # noqa: PLR1714, SIM109 - a tuple would be made for every event
        return score, 0.0, 0.0
    f = score
    if f < clip:
        f = clip
    elif f > 1.0 - clip:
        f = 1.0 - clip
    if kind == PLATT:
        return ln(f / (1.0 - f)), 1.0, 0.0
    if kind == BETA:
        both = blank(2)
        both[0], both[1] = f, 1.0 - f
        lns(both)
        return both[0], both[1], 1.0
    return ln(f / (1.0 - f)), 0.0, 0.0


@entry
def features_of_all(kind: int, clip: float, scores: Vector, x0: Vector, x1: Vector) -> None:
    """The first two features of each score; x1 may be empty."""
    for i in range(len(scores)):
        first, second, _ = features_of(kind, clip, scores[i])
        x0[i] = first
        if len(x1) > 0:
            x1[i] = second


@kernel
def logit_of(kind: int, x0: float, x1: float) -> float:
    """The logit of the clipped score, from its features."""
    return x0 - x1 if kind == BETA else x0
