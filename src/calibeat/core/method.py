"""A method is `Method(features, learner, calibeater, guard=None)`. It fixes the row's layout and the kernels' spec."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from calibeat._util.check import check_shares
from calibeat._util.types import Vector
from calibeat._util.words import did_you_mean
from calibeat.errors import InvalidInput, UnknownMethod

from .algebra import ln
from .auto import Lanes
from .band import columns_of_records, new_record, params_of_record, record_limits
from .calibeating import Hedging, Tracking
from .features import Beta, Platt
from .guard import Guard
from .layout import CLIPPED, SQUARES, THETA, TOTAL, WEIGHT_SUMS, Spec
from .learners import ONS
from .limits import NATS_PER_OUTCOME, Block, evidence
from .parts import PARTS, READ, Calibeater, Columns, Features, Learner, Part
from .receipt import GUARD_RECEIPT_WIDTH, RECEIPT_WIDTH
from .refit import FTL, Fixed, Histogram
from .spline import Spline
from .weights import scale_of_weights

NO_WORK: Vector = np.empty(0)
_MOST_READ = 64  # methods that are remembered when they were read from data


@dataclass(frozen=True, repr=False)
class Method:
    r"""Up to four parts that make a calibrator: score -> features -> learner -> expert -> calibeater -> forecast.

    Parameters
    ----------
    features : what the learner sees: `Platt`, `Beta`, `Temperature`, `Histogram`; None is the score itself.
    learner : moves the parameters: `ONS`, `OGD`, `AIOLI`, `Lanes`, `Fixed`, `FTL`; None leaves them at their start.
        `Lanes` needs `Beta` features.
    calibeater : corrects the expert by its past residuals: `Tracking`, `Hedging`, `Spline`; None does not.
    guard : a last stage with a guarantee against any opponent: `Guard`; None issues the calibeater's forecast.
    kept : the shares of ones and of zeros that the log kept, such as ``(1.0, 0.05)``; None: it kept all. Scores and
        forecasts are true probabilities. What stands between them, and what is learnt, is in the odds of the log.
    band : whether forecasts say how sure they are: `low`, `high`, `outcomes`, `reason`. AUTO's only.

    Raises
    ------
    InvalidInput : a part is in the wrong place, or two parts do not fit together. The message names them.

    A variant of a preset replaces a part:

    >>> from dataclasses import replace
    >>> from calibeat import TOPS, Method, Platt, ONS, Tracking
    >>> TOPS == Method(Platt(), ONS(), Tracking())
    True
    >>> replace(TOPS, calibeater=Tracking(bins=20)).width     # numbers of state per stream
    54

    >>> Method(None, ONS())
    Traceback (most recent call last):
    ...
    calibeat.errors.InvalidInput: ONS needs features to learn parameters for (Platt, Beta or Temperature), got None
    """

    features: Features | None = None
    learner: Learner | None = None
    calibeater: Calibeater | None = None
    guard: Guard | None = None
    kept: tuple[float, float] | None = None
    band: bool = False

    def __post_init__(self) -> None:
        if self.kept is not None:
            object.__setattr__(self, "kept", check_shares("kept", self.kept))
        for slot, parts in PARTS.items():
            part = getattr(self, slot)
            if part is not None and type(part) not in parts.values():
                raise InvalidInput(_misplaced(slot, part))
        if self.learner is not None:
            self.learner.check_features(self.features)
        if self.features is not None:
            self.features.check_learner(self.learner)
        if self.calibeater is not None:
            self.calibeater.check_features(self.features)
        if self.guard is not None and self.calibeater is not None and self.calibeater.draws:
            raise InvalidInput("Guard needs an expert that is not drawn at random, got Hedging as calibeater")
        if type(self.band) is not bool:
            raise InvalidInput(f"band must be True or False (only one level was measured), got {self.band!r:.60}")
        if self.band and [getattr(self, slot) for slot in PARTS] != [Beta(), Lanes(), Spline(), None]:
            got = name_of(dataclasses.replace(self, kept=None, band=False)) or "another method"
            raise InvalidInput(f"the interval requires AUTO: Calibrator('auto', band=True), got {got}")

    @cached_property
    def parts(self) -> list[Part]:
        """The parts that are there."""
        return [part for slot in PARTS if (part := getattr(self, slot)) is not None]

    # ---- layout ---------------------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """d, the number of parameters; 0 where there is no theta."""
        return 0 if self.features is None else self.features.dimension

    numbers: ClassVar[int] = 1  # of a score; methods of K classes have K, those of several models one for each
    answers: ClassVar[int] = 1  # numbers of a forecast; methods of K classes have K

    @cached_property
    def needs_history(self) -> bool:
        """Whether the host has to keep past events for this method."""
        return self.learner is not None and self.learner.refits

    @cached_property
    def draws(self) -> bool:
        """Whether forecasts are drawn at random."""
        return self.guard is not None or (self.calibeater is not None and self.calibeater.draws)

    @cached_property
    def mixes(self) -> bool:
        """Whether it mixes forecasters by their likelihood, and so keeps evidence against the raw score."""
        return any(part.receipt for part in self.parts)

    @cached_property
    def receipt_width(self) -> int:
        """How many numbers an event must remember, beside its score and cell, until its outcome comes."""
        return RECEIPT_WIDTH * self.mixes + GUARD_RECEIPT_WIDTH * (self.guard is not None)

    @cached_property
    def width(self) -> int:
        """How many float64 numbers the state of one stream takes: AUTO 178, OPS 14, TOPS 34, HOPS 214."""
        return len(self.initial_row())

    @cached_property
    def cells(self) -> int:
        """How many cells (sum of outcomes, count) the calibeater has; no receipt names another."""
        return 0 if self.calibeater is None else len(self.calibeater.initial()) // 2

    @property
    def odds(self) -> float:
        """How many times larger the odds are in the log than in truth."""
        return 1.0 if self.kept is None else self.kept[0] / self.kept[1]

    @property
    def _tail(self) -> list[float]:
        return [] if self.learner is None else self.learner.tail()

    @property
    def _record(self) -> list[float]:
        return new_record() if self.band else []

    @property
    def plain_width(self) -> int:
        """The width of a row without the record of the band."""
        return self.width - len(self._record)

    def initial_row(self) -> Vector:
        """The row of a stream that has seen nothing: [t, n, weights, theta, matrix, cells, guard, evidence, tail, ...].

        The record of the band is its end.
        """
        cells = [] if self.calibeater is None else self.calibeater.initial()
        guard = [] if self.guard is None else self.guard.initial()
        evidence = [0.0, 1.0] if self.mixes else []
        counts = [0.0] * (2 + WEIGHT_SUMS)
        return np.array([*counts, *self._initial_parameters(), *cells, *guard, *evidence, *self._tail, *self._record])

    def _initial_parameters(self) -> list[float]:
        if self.features is None:
            return []
        return self.features.initial() if self.learner is None else self.learner.initial(self.features)

    def scratch(self) -> Vector:
        """Room for the kernels to work in: none is needed."""
        return NO_WORK

    @cached_property
    def spec(self) -> Spec:
        """The method as the kernels read it."""
        numbers: dict[str, Any] = {}
        for part in self.parts:
            numbers.update(part.numbers())
        end, cells = self.plain_width - len(self._tail), THETA + len(self._initial_parameters())
        numbers.update(
            cells=cells,
            receipt=self.receipt_width,
            evidence=end - 2,
            horizon=end if self._tail else 0,
            mixes=self.mixes,
            draws=self.draws,
            odds=self.odds,
            band=self.plain_width if self.band else 0,
        )
        if self.guard is not None:
            guard = end - 2 * self.mixes - len(self.guard.initial())
            numbers.update(guard=guard, guard_receipt=RECEIPT_WIDTH * self.mixes)
        return Spec(**numbers)

    # ---- what comes from outside ----------------------------------------------------------------------------------

    def limits(self) -> list[Block]:
        """What the numbers of a row behind its counts can be; `limits.check_rows` checks rows from outside."""
        blocks: list[Block] = []
        if self.features is not None:
            blocks += self.features.limits(0.0) if self.learner is None else self.learner.limits(self.features)
        blocks += [] if self.calibeater is None else self.calibeater.limits()
        blocks += [] if self.guard is None else self.guard.limits()
        blocks += [evidence(NATS_PER_OUTCOME, 35.0)] if self.mixes else []  # a clip of 1e-15 is 34.5 nats from 1
        blocks += [] if self.learner is None else self.learner.tail_limits()
        return blocks + (record_limits() if self.band else [])

    # ---- as data --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """As a dataclass shows itself, but without an empty guard. A stream's receipts are named after this text."""
        shown = [slot for slot in (*PARTS, "kept") if slot not in ("guard", "kept") or getattr(self, slot) is not None]
        shown += ["band"] if self.band else []
        return f"Method({', '.join(f'{slot}={getattr(self, slot)!r}' for slot in shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the parts only: the rest is made from them."""
        return Method, (*(getattr(self, slot) for slot in PARTS), self.kept, self.band)

    def to_dict(self) -> dict[str, Any]:
        """The method as JSON-able data; `from_dict` is the inverse.

        >>> from calibeat import OPS
        >>> OPS.to_dict()["learner"]
        {'kind': 'ons', 'gamma': 0.1, 'rho': 100.0, 'radius': 100.0}
        """
        kept = {} if self.kept is None else {"kept": list(self.kept)}
        band = {"band": True} if self.band else {}
        return {**{slot: _part_to_dict(getattr(self, slot)) for slot in PARTS}, **kept, **band}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Method:
        """The inverse of `to_dict`.

        Raises
        ------
        InvalidInput : a slot is missing or unknown, or a part has other fields than this version knows.
        """
        described = repr(data)
        method: Method | None = READ.get(described)  # with all that follows from its parts
        if method is None:
            if not isinstance(data, Mapping) or set(data) - {"kept", "band"} != set(PARTS):
                raise InvalidInput(f"method must be an object with {', '.join(PARTS)}, got {data!r:.60}")
            parts = {slot: _part_from_dict(slot, data[slot]) for slot in PARTS}
            method = cls(**parts, kept=data.get("kept"), band=data.get("band", False))
            if len(READ) >= _MOST_READ:
                READ.clear()
            READ[described] = method
        return method


def _misplaced(slot: str, part: object) -> str:
    for other, parts in PARTS.items():
        if type(part) in parts.values():
            return f"{type(part).__name__} belongs in the {other} of a method, got it as {slot}"
    wanted = ", ".join(kind.__name__ for kind in PARTS[slot].values())
    return f"{slot} must be one of {wanted} or None, got {part!r:.60}"


def _part_to_dict(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    names = [field.name for field in dataclasses.fields(part)]  # type: ignore[arg-type]  # every part is a dataclass
    values = {name: list(value) if isinstance(value := getattr(part, name), tuple) else value for name in names}
    return {"kind": type(part).__name__.lower(), **values}


def _part_from_dict(slot: str, data: Any) -> Any:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str) or data["kind"] not in PARTS[slot]:
        raise InvalidInput(f"{slot} must name one of {', '.join(PARTS[slot])} as its kind, got {data!r:.60}")
    kind = PARTS[slot][data["kind"]]
    arguments = {name: value for name, value in data.items() if name != "kind"}
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # every part is a dataclass
    if set(arguments) != known:
        raise InvalidInput(f"{kind.__name__} must have {', '.join(sorted(known))}, got {', '.join(sorted(arguments))}")
    return kind(**arguments)


def params_of(method: Any, row: Any) -> dict[str, Any]:
    """The parameters that a row of this method holds: what `Calibrator.params` shows.

    >>> from calibeat import OPS
    >>> from calibeat.core.method import params_of
    >>> params_of(OPS, OPS.initial_row().tolist())
    {'a': 1.0, 'b': 0.0}
    """
    if not isinstance(method, Method):  # of many classes
        return dict(method.params(row))
    params: dict[str, Any] = {}
    record, row = row[method.plain_width :], row[: method.plain_width]
    if method.features is not None:
        learner = method.learner
        params = method.features.params(row) if learner is None else learner.params(row, method.features)
    if method.guard is not None:
        at = method.spec.guard
        params = {**params, "guard": method.guard.params(row[at : at + len(method.guard.initial())])}
    params = _in_truth(method, params)
    if method.band:
        params["band"] = params_of_record(record)
    return {**params, "weights": params_of_weights(method, row)} if row[TOTAL] > 0.0 else params


def params_of_weights(method: Method, row: Any) -> dict[str, float]:
    """What a row says of the weights of its outcomes.

    ``scale``: kappa, by which weights become events; ``clipped``: how many were clipped; ``effective``: the effective
    number of outcomes, (sum w)^2 / sum w^2; ``gain``, of mixtures: the log-loss of the score less that of the forecast,
    nats per event.
    """
    found = {
        "scale": float(scale_of_weights(row)),
        "clipped": int(row[CLIPPED]),
        "effective": float(row[TOTAL] * row[TOTAL] / row[SQUARES]) if row[SQUARES] > 0.0 else 0.0,
    }
    if method.mixes:
        at = method.spec.evidence
        found["gain"] = float((row[at] + ln(float(row[at + 1]))) / row[TOTAL])
    return found


def _in_truth(method: Method, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of true odds: with z the logit, a (z + ln odds) + b - ln odds = a z + b + (a - 1) ln odds."""
    if method.odds == 1.0 or "b" not in params:
        return params
    return {**params, "b": params["b"] + (params["a"] - 1.0) * ln(method.odds)}


def params_of_rows(method: Any, rows: Vector) -> Columns:
    """The parameters of many rows, one row a stream: a column for each."""
    if not isinstance(method, Method):  # of many classes
        return dict(method.params_of_rows(rows))
    if method.features is None:
        return {}
    if method.learner is None:
        return _in_truth(method, dict(method.features.params(rows.T)))
    record, rows = rows[:, method.plain_width :], rows[:, : method.plain_width]
    found = _in_truth(method, dict(method.learner.params_of_rows(rows, method.features)))
    return {**found, **columns_of_records(record)} if method.band else found


def on_the_ball(method: Method, row: Any) -> bool:
    """Whether the parameters in a row lie on the ball that bounds them."""
    ball = None if method.learner is None else method.learner.ball
    if ball is None or method.dimension == 0:
        return False
    return math.hypot(*row[THETA : THETA + method.dimension]) >= ball * (1.0 - 1e-9)


AUTO = Method(Beta(), Lanes(), Spline())

BM = Method()

OPS = Method(Platt(), ONS())
TOPS = Method(Platt(), ONS(), Tracking())
HOPS = Method(Platt(), ONS(), Hedging())

OBS = Method(Beta(), ONS(rho=25.0))
TOBS = Method(Beta(), ONS(rho=25.0), Tracking())
HOBS = Method(Beta(), ONS(rho=25.0), Hedging())

FPS = Method(Platt(), Fixed())
WPS = Method(Platt(), FTL())
FBS = Method(Beta(), Fixed())
WBS = Method(Beta(), FTL())
SWPS = Method(Platt(), FTL(every=100, window=1000))
SWBS = Method(Beta(), FTL(every=100, window=1000))

WHB = Method(Histogram(), FTL())
TWHB = Method(Histogram(), FTL(), Tracking())

F99 = Method(None, None, Hedging(start="first", groups=1))

GAUTO = Method(Beta(), Lanes(), Spline(), Guard())
GOPS = Method(Platt(), ONS(), None, Guard())
GTOPS = Method(Platt(), ONS(), Tracking(), Guard())

PRESETS = {name.lower(): value for name, value in tuple(globals().items()) if isinstance(value, Method)}  # all above


OTHERS = {  # methods that people know from elsewhere
    "isotonic": "that is a rival of the backtest, calibeat.rivals.Isotonic; 'whb' bins, 'auto' is the default",
    "sigmoid": "online it is 'ops', fitted once 'fps'; scikit-learn's own is a rival of the backtest",
    "platt": "online it is 'ops', fitted once 'fps'",
    "beta": "online it is 'obs', fitted once 'fbs'",
    "temperature": 'Method(Temperature(), ONS()) is that online; of many classes MultiCalibrator(K, method="ots")',
    "histogram": "fitted again now and then it is 'whb'",
    "raw": "that is 'bm', the base model",
}


def method_named(name: Any) -> Method:
    """A preset by its name, in any case.

    Raises
    ------
    UnknownMethod : no preset has that name. The message names the nearest one.

    >>> method_named("tops") is TOPS
    True
    >>> method_named("topps")
    Traceback (most recent call last):
    ...
    calibeat.errors.UnknownMethod: method must be one of the presets, got 'topps' - did you mean 'tops'?
    """
    if not isinstance(name, str):
        own = hasattr(name, "predict") and hasattr(name, "update")
        hint = " - calibeat.rivals.Host serves a method of your own" if own else ""
        got = f"{type(name).__name__} {name!r:.60}"
        raise UnknownMethod(f"method must be a Method or the name of a preset, got {got}{hint}")
    if name.lower() in PRESETS:
        return PRESETS[name.lower()]
    hint = f" - {OTHERS[name.lower()]}" if name.lower() in OTHERS else did_you_mean(name, PRESETS)
    hint = hint or f" - there are {', '.join(PRESETS)}"
    raise UnknownMethod(f"method must be one of the presets, got {name!r:.60}{hint}")


def name_of(method: Method) -> str | None:
    """The preset's name, or None for a method that has none."""
    return next((name for name, preset in PRESETS.items() if preset == method), None)


def described(method: Any) -> str:
    """A method in few words: the name of its preset, if it has one, and the shares that the log kept.

    >>> described(dataclasses.replace(OPS, kept=(1.0, 0.05)))
    'OPS, kept=(1.0, 0.05)'
    """
    kept, band = getattr(method, "kept", None), getattr(method, "band", False)
    name = name_of(dataclasses.replace(method, kept=None, band=False) if kept is not None or band else method)
    if name is None:
        return repr(method)
    return name.upper() + ("" if kept is None else f", kept={kept}") + (", band=True" if band else "")
