"""A method is three parts: `Method(features, learner, calibeater)`. It fixes the row's layout and the kernels' spec."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from . import kernel
from .calibeating import KEEP, MOST_IMAGINED, Hedging, Tracking
from .features import RAW, Beta, Platt, Temperature
from .learners import AIOLI, NONE, OGD, ONS, THETA
from .mixtures import MOST_CLIP, RECEIPT_WIDTH, Lanes, check_lanes
from .refit import FTL, Fixed, Histogram
from .spline import Spline, check_spline

Features = Platt | Beta | Temperature | Histogram
Learner = ONS | OGD | AIOLI | Lanes | Fixed | FTL
Calibeater = Tracking | Hedging | Spline

_PARTS: dict[str, dict[str, type]] = {
    "features": {"platt": Platt, "beta": Beta, "temperature": Temperature, "histogram": Histogram},
    "learner": {"ons": ONS, "ogd": OGD, "aioli": AIOLI, "lanes": Lanes, "fixed": Fixed, "ftl": FTL},
    "calibeater": {"tracking": Tracking, "hedging": Hedging, "spline": Spline},
}
_DEFAULT_BINS = 10.0


@dataclass(frozen=True)
class Method:
    r"""Three parts that make a calibrator: score -> features -> learner -> expert -> calibeater -> forecast.

    Parameters
    ----------
    features : what the learner sees: `Platt`, `Beta`, `Temperature`, `Histogram`; None is the score itself.
    learner : what moves the parameters: `ONS`, `OGD`, `AIOLI`, `Lanes`, `Fixed`, `FTL`; None leaves them where they
        start. `Lanes` wants `Beta` features.
    calibeater : what its past residuals do to the expert: `Tracking`, `Hedging`, `Spline`; None leaves it alone.

    A variant of a preset replaces a part:

    >>> from dataclasses import replace
    >>> from calibeat import TOPS, Method, Platt, ONS, Tracking
    >>> TOPS == Method(Platt(), ONS(), Tracking())
    True
    >>> replace(TOPS, calibeater=Tracking(bins=20)).width     # numbers of state per stream
    47

    Parts that make no sense together are refused with a sentence:

    >>> Method(None, ONS())
    Traceback (most recent call last):
    ...
    calibeat.errors.InvalidInput: ONS needs features to learn parameters for (Platt, Beta or Temperature), got None
    """

    features: Features | None = None
    learner: Learner | None = None
    calibeater: Calibeater | None = None

    def __post_init__(self) -> None:
        for slot, parts in _PARTS.items():
            part = getattr(self, slot)
            if part is not None and type(part) not in parts.values():
                raise InvalidInput(_misplaced(slot, part))
        if isinstance(self.learner, Lanes):
            _check_features_of_lanes(self.features)
        learner = type(self.learner).__name__
        if self.learner is not None and self.features is None:
            raise InvalidInput(
                f"{learner} needs features to learn parameters for (Platt, Beta or Temperature), got None"
            )
        if isinstance(self.learner, (ONS, OGD)) and isinstance(self.features, (Platt, Beta, Temperature)):
            size = math.hypot(*self.features.start)
            if size > self.learner.radius:
                raise InvalidInput(
                    f"{learner} keeps the parameters in a ball of radius {self.learner.radius:g}, which must hold the "
                    f"start, got {self.features.start} of norm {size:g}"
                )
        if isinstance(self.features, Histogram) and not isinstance(self.learner, (Fixed, FTL)):
            got = "None" if self.learner is None else learner
            raise InvalidInput(f"Histogram has to be told when to fit by a Fixed or an FTL learner, got {got}")
        if isinstance(self.calibeater, Spline) and self.dimension == 0:
            got = "None" if self.features is None else "Histogram"
            raise InvalidInput(f"Spline needs a scaling to correct (Platt, Beta or Temperature), got {got}")

    # ---- layout ---------------------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """d, the number of parameters; 0 where there is no theta."""
        return 0 if self.features is None or isinstance(self.features, Histogram) else len(self.features.names)

    @property
    def needs_history(self) -> bool:
        """Whether the host has to keep past events for this method."""
        return isinstance(self.learner, (Fixed, FTL))

    @property
    def receipt_width(self) -> int:
        """How many numbers an event must remember, beside its score and cell, until its outcome comes."""
        return RECEIPT_WIDTH if isinstance(self.learner, Lanes) or isinstance(self.calibeater, Spline) else 0

    @cached_property
    def width(self) -> int:
        """How many float64 numbers the state of one stream takes: AUTO 150, OPS 7, TOPS 27, HOPS 207."""
        return len(self.initial_row())

    def initial_row(self) -> Vector:
        """The row of a stream that has seen nothing: [t, n, theta..., matrix..., cells..., evidence]."""
        cells = [] if self.calibeater is None else self.calibeater.initial
        evidence = [0.0, 1.0] if self.receipt_width else []
        return np.array([0.0, 0.0, *self._initial_parameters(), *cells, *evidence])

    def _initial_parameters(self) -> list[float]:
        if self.features is None:
            return []
        if isinstance(self.features, Histogram):
            return [0.0] * (2 * self.features.bins)
        d = self.dimension
        if isinstance(self.learner, Lanes):
            return self.learner.initial
        if isinstance(self.learner, ONS):
            return [*self.features.start, *_scaled_identity(d, self.learner.rho)]
        if isinstance(self.learner, AIOLI):
            return [*[0.0] * d, *_scaled_identity(d, 2.0 * self.learner.lam)]
        return list(self.features.start)

    @cached_property
    def spec(self) -> Vector:
        """The method as the kernels read it (indices: `calibeat.core.kernel`)."""
        spec = np.zeros(kernel.SPEC_WIDTH)
        spec[kernel.FEATURES] = RAW if self.features is None else self.features.code
        spec[kernel.D] = self.dimension
        if isinstance(self.features, Histogram):
            spec[kernel.HISTOGRAM_BINS] = self.features.bins
        elif self.features is not None:
            spec[kernel.CLIP] = self.features.clip
        spec[kernel.LEARNER] = NONE if self.learner is None else self.learner.code
        match self.learner:
            case ONS(gamma=gamma, radius=radius):
                spec[[kernel.GAIN, kernel.RADIUS]] = 1.0 / gamma, radius
            case OGD(diameter=diameter, gradient=gradient, radius=radius):
                spec[[kernel.GAIN, kernel.RADIUS]] = diameter / gradient, radius
            case AIOLI(radius=radius, bound=bound):
                spec[kernel.GAIN] = 1.0 / (1.0 + radius * bound)
            case Fixed() | FTL() as learner:
                spec[kernel.RADIUS] = learner.radius
                spec[[kernel.AFTER, kernel.EVERY, kernel.WINDOW]] = learner.after, learner.every, learner.window or 0
        spec[kernel.CALIBEATER] = KEEP if self.calibeater is None else self.calibeater.code
        spec[kernel.BINS] = _DEFAULT_BINS if self.calibeater is None else self.calibeater.bins
        spec[kernel.CELLS] = THETA + len(self._initial_parameters())
        match self.calibeater:
            case Tracking(prior=prior):
                spec[kernel.PRIOR] = prior
            case Hedging(start=start, expert_bins=groups):
                spec[[kernel.GROUPS, kernel.OWN]] = groups, start == "expert"
            case Spline(control=control):
                spec[kernel.CONTROL] = control
        spec[kernel.RECEIPT] = self.receipt_width
        spec[kernel.EVIDENCE] = self.width - 2
        spec.flags.writeable = False
        return spec

    def check_row(self, row: Sequence[float], events: int) -> None:
        """Raise `InvalidInput` unless a row of the right width, of finite numbers, is one that this method can have.

        The kernels trust a row blindly; one that comes from outside is looked at here, once.
        """
        t, n = row[kernel.T], row[kernel.N]
        if not (0 <= n <= t <= events and n == int(n) and t == int(t)):
            raise InvalidInput(f"row must count outcomes in whole numbers up to {events} events, got {n!r} of {t!r}")
        self._check_cells(row, n)
        if isinstance(self.features, Histogram):
            bins, used = self.features.bins, row[THETA]
            edges, means = row[THETA + 1 : THETA + int(used)], row[THETA + bins : THETA + bins + int(used)]
            fitted = self.learner is not None and n >= self.spec[kernel.AFTER]
            if not (fitted <= used <= bins and used == int(used)):
                raise InvalidInput(f"row must have 1 to {bins} bins in use, got {used!r} - at row[{THETA}]")
            if list(edges) != sorted(set(edges)) or not all(0 <= mean <= 1 for mean in means):
                raise InvalidInput("row must have rising edges and means in [0, 1], got others")
        elif isinstance(self.learner, Lanes):
            check_lanes(row, n)
        elif isinstance(self.learner, (ONS, AIOLI)):
            d = self.dimension
            diagonal = [THETA + d + i * d - i * (i - 1) // 2 for i in range(d)]
            if not all(row[at] > 0.0 for at in diagonal):
                raise InvalidInput("row must have a matrix with a positive diagonal, got another")

    def _check_cells(self, row: Sequence[float], n: float) -> None:
        """The part of `check_row` behind the parameters: the calibeater's cells, and the evidence."""
        cells = int(self.spec[kernel.CELLS])
        end = len(row)
        if self.receipt_width:
            end -= 2
            if not 1e-100 <= row[end + 1] <= 1e100:
                raise InvalidInput(f"row must hold its evidence as a ratio in [1e-100, 1e+100], got {row[end + 1]!r}")
        if isinstance(self.calibeater, Spline):
            check_spline(row[cells:end], n)
            end = cells
        imagined = MOST_IMAGINED if isinstance(self.calibeater, Tracking) else 0.0
        for at in range(cells, end, 2):
            total, count = row[at], row[at + 1]
            whole = count == int(count) and (imagined > 0.0 or total == int(total))
            if not (0 <= total <= count <= n + imagined and whole):
                raise InvalidInput(f"row must count ones among outcomes, got {total!r} of {count!r} - at row[{at}]")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made of the parts: a copied spec could be written to, and be of another kind to the compiler."""
        return Method, (self.features, self.learner, self.calibeater)

    # ---- as data --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The method as JSON-able data; `from_dict` is the inverse.

        >>> from calibeat import OPS
        >>> OPS.to_dict()["learner"]
        {'kind': 'ons', 'gamma': 0.1, 'rho': 100.0, 'radius': 100.0}
        """
        return {slot: _part_to_dict(getattr(self, slot)) for slot in _PARTS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Method:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or set(data) != set(_PARTS):
            raise InvalidInput(f"method must be an object with {', '.join(_PARTS)}, got {data!r:.60}")
        return cls(**{slot: _part_from_dict(slot, data[slot]) for slot in _PARTS})


def _check_features_of_lanes(features: Features | None) -> None:
    if type(features) is not Beta or features.start != Beta.start:
        raise InvalidInput(f"Lanes needs Beta features that start at the identity {Beta.start}, got {features}")
    if features.clip > MOST_CLIP:
        raise InvalidInput(f"Lanes needs Beta features with a clip of at most {MOST_CLIP:g}, got {features.clip:g}")


def _scaled_identity(d: int, scale: float) -> list[float]:
    return [scale if i == j else 0.0 for i in range(d) for j in range(i, d)]


def _misplaced(slot: str, part: object) -> str:
    for other, parts in _PARTS.items():
        if type(part) in parts.values():
            return f"{type(part).__name__} belongs in the {other} of a method, got it as {slot}"
    wanted = ", ".join(kind.__name__ for kind in _PARTS[slot].values())
    return f"{slot} must be one of {wanted} or None, got {part!r:.60}"


def _part_to_dict(part: Any) -> dict[str, Any] | None:
    if part is None:
        return None
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {
        "kind": type(part).__name__.lower(),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
    }


def _part_from_dict(slot: str, data: Any) -> Any:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str) or data["kind"] not in _PARTS[slot]:
        raise InvalidInput(f"{slot} must name one of {', '.join(_PARTS[slot])} as its kind, got {data!r:.60}")
    kind = _PARTS[slot][data["kind"]]
    arguments = {name: value for name, value in data.items() if name != "kind"}
    known = {field.name for field in dataclasses.fields(kind)}
    if set(arguments) != known:
        raise InvalidInput(f"{kind.__name__} must have {', '.join(sorted(known))}, got {', '.join(sorted(arguments))}")
    return kind(**arguments)
