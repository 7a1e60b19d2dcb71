"""Streams that tests run over: random, drifting, adversarial and on the edge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibeat import (
    AIOLI,
    FTL,
    OGD,
    ONS,
    Beta,
    Calibrator,
    Fixed,
    Guard,
    Hedging,
    Histogram,
    Lanes,
    Method,
    Platt,
    Spline,
    Temperature,
    Tracking,
)
from calibeat.core.method import PRESETS

Vector = NDArray[np.float64]


def small(method: Method) -> Method:
    """A method that refits, with its first fit early enough for a short stream."""
    match method.learner:
        case Fixed():
            return Method(method.features, Fixed(after=40), method.calibeater)
        case FTL(window=window):
            return Method(method.features, FTL(every=25, after=40, window=window and 60), method.calibeater)
    return method


def variants() -> dict[str, Method]:
    """Every preset, and parts and hyper-parameters that no preset has."""
    return {
        **{name: small(method) for name, method in PRESETS.items()},
        "ogd": Method(Platt(), OGD()),
        "ogd in a small ball": Method(Beta(), OGD(radius=1.5)),
        "aioli": Method(Platt(), AIOLI()),
        "aioli of three": Method(Beta(), AIOLI(), Tracking()),
        "aioli of one": Method(Temperature(), AIOLI(), Hedging()),
        "temperature": Method(Temperature(), ONS(), Tracking(bins=7, prior=2.0)),
        "temperature refitted": Method(Temperature(), FTL(every=10, after=10)),
        "ons in a small ball": Method(Platt(), ONS(gamma=0.01, rho=1.0, radius=1.2)),
        "ons of three in a small ball": Method(Beta(), ONS(gamma=0.01, rho=1.0, radius=1.6)),
        "ons of one in a small ball": Method(Temperature(), ONS(gamma=0.01, rho=1.0, radius=1.1)),
        "never moving": Method(Platt(start=(0.5, 0.3)), None, Tracking()),
        "raw tracked": Method(None, None, Tracking(bins=3)),
        "raw hedged": Method(None, None, Hedging(bins=4, groups=3)),
        "first": Method(Platt(), ONS(), Hedging(bins=5, start="first")),
        "one bin": Method(Platt(), ONS(), Hedging(bins=1)),
        "histogram once": Method(Histogram(bins=5), Fixed(after=30), Hedging()),
        "histogram sliding": Method(Histogram(bins=5), FTL(every=7, after=9, window=20)),
        **mixtures(),
        **guarded(),
    }


def guarded() -> dict[str, Method]:
    """A guard over every kind of expert."""
    return {
        "raw guarded": Method(None, None, None, Guard(bins=4)),
        "raw tracked and guarded": Method(None, None, Tracking(bins=3), Guard(slack=0.0)),
        "ons guarded in many bins": Method(Beta(), ONS(), None, Guard(bins=100)),
        "tops guarded loosely": Method(Platt(), ONS(), Tracking(), Guard(bins=7, slack=2.0, spring=0.5)),
        "aioli guarded": Method(Temperature(), AIOLI(), None, Guard()),
        "ftl guarded": Method(Platt(), FTL(every=25, after=40, window=60), None, Guard()),
        "histogram guarded": Method(Histogram(bins=5), Fixed(after=30), Tracking(), Guard()),
        "lanes guarded": Method(Beta(), Lanes(), None, Guard(slack=0.5)),
        "auto guarded in many bins": Method(Beta(), Lanes(), Spline(), Guard(bins=50)),
    }


def mixtures() -> dict[str, Method]:
    """What the paper's oracle does not know: `Lanes`, `Spline`, and both."""
    return {
        "auto": Method(Beta(), Lanes(), Spline()),
        "auto with a wide clip": Method(Beta(clip=0.002), Lanes(), Spline()),
        "lanes": Method(Beta(), Lanes()),
        "lanes tracked": Method(Beta(), Lanes(), Tracking()),
        "lanes hedged": Method(Beta(), Lanes(), Hedging()),
        "ons with a spline": Method(Platt(), ONS(), Spline()),
        "ons in a small ball with a spline": Method(Beta(), ONS(gamma=0.01, rho=1.0, radius=1.6), Spline()),
        "ogd with a spline": Method(Platt(), OGD(), Spline()),
        "aioli with a spline": Method(Temperature(), AIOLI(), Spline()),
        "ftl with a spline": Method(Platt(), FTL(every=25, after=40, window=60), Spline()),
        "never moving with a spline": Method(Temperature(start=(0.5,)), None, Spline()),
    }


def extremes() -> dict[str, Method]:
    """Hyper-parameters at the ends of what is allowed."""
    least, most = 1e-10, 1e10
    return {
        "ons leaping": Method(Platt(), ONS(gamma=least, rho=least, radius=most)),
        "ons leaping in a ball": Method(Beta(), ONS(gamma=least, rho=least)),
        "ons of one leaping": Method(Temperature(), ONS(gamma=least, rho=least)),
        "ons creeping": Method(Beta(), ONS(gamma=most, rho=most, radius=most)),
        "ons from far away": Method(Platt(start=(most / 2, -most / 2)), ONS(radius=most), Tracking()),
        "ogd leaping": Method(Platt(), OGD(radius=most, diameter=most, gradient=least)),
        "ogd at home": Method(Platt(start=(0.0, 0.0)), OGD(radius=least)),
        "aioli free": Method(Platt(), AIOLI(lam=least, radius=least, bound=least)),
        "aioli free of three": Method(Beta(), AIOLI(lam=least, radius=most, bound=most), Hedging()),
        "aioli bound": Method(Beta(), AIOLI(lam=most)),
        "hardly clipped": Method(Beta(clip=1e-15), ONS(rho=25.0)),
        "mostly clipped": Method(Platt(clip=0.499), FTL(every=7, after=9)),
        "tiny ball": Method(Beta(), FTL(every=7, after=9, radius=least)),
        "huge ball": Method(Beta(), FTL(every=7, after=9, radius=1e4)),
        "fit from far away": Method(Platt(start=(most, most)), Fixed(after=30)),
        "prior": Method(None, None, Tracking(bins=10_000, prior=least)),
        "heavy prior": Method(None, None, Tracking(bins=1, prior=most)),
    }


def random(n: int = 300) -> tuple[Vector, Vector]:
    rng = np.random.default_rng(7)
    scores = rng.random(n)
    return scores, (rng.random(n) < 0.2 + 0.6 * scores**2).astype(float)


def drifting(n: int = 300) -> tuple[Vector, Vector]:
    rng = np.random.default_rng(8)
    logit = rng.normal(0, 2, n)
    a, b = np.linspace(1.5, -1, n), np.sin(np.linspace(0, 9, n))
    return 1 / (1 + np.exp(-logit)), (rng.random(n) < 1 / (1 + np.exp(-a * logit - b))).astype(float)


def adversarial(n: int = 300) -> tuple[Vector, Vector]:
    """y = 1{p <= 0.5} against OPS itself."""
    scores = np.random.default_rng(9).random(n)
    ops, outcomes = Calibrator("ops"), np.empty(n)
    for i, score in enumerate(scores):
        forecast = ops.predict(float(score))
        outcomes[i] = forecast.probability <= 0.5
        ops.update(forecast, int(outcomes[i]))
    return scores, outcomes


def extreme(n: int = 300) -> tuple[Vector, Vector]:
    """Exact 0 and 1, denormals, neighbours of the bin edges; outcomes in runs."""
    rng = np.random.default_rng(10)
    points = [0.0, 1.0, 5e-324, 1e-300, 1 - 2**-53, 0.1, 0.3, np.nextafter(0.3, 0), 0.7, 0.5, 1e-5, 1 - 1e-5]
    return rng.choice(points, n), (np.arange(n) // 17 % 2).astype(float)


STREAMS: dict[str, Callable[[], tuple[Vector, Vector]]] = {
    "random": random,
    "drifting": drifting,
    "adversarial": adversarial,
    "extreme": extreme,
    "all ones": lambda: (random(120)[0], np.ones(120)),
    "all zeros": lambda: (random(120)[0], np.zeros(120)),
    "constant score": lambda: (np.full(300, 0.5), random()[1]),
    "other constant score": lambda: (np.full(300, 0.83), random()[1]),
    "always wrong": lambda: ((np.arange(60) % 2).astype(float), ((np.arange(60) + 1) % 2).astype(float)),
    "T = 1": lambda: (np.array([0.7]), np.array([1.0])),
    "T = 2": lambda: (np.array([0.7, 0.2]), np.array([1.0, 1.0])),
    "T = 3": lambda: (np.array([0.7, 0.2, 1.0]), np.array([1.0, 0.0, 0.0])),
}
