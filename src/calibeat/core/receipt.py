"""A forecast is a number, or K of them, and a receipt: what an event must remember until its outcome comes.

`Forecast` and `MultiForecast` are what users hold. The constants are the layout of `Forecast.lanes`, as the kernels
write it; methods without `Lanes`, `Spline` and `Guard` leave it empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import RECEIPT_FORMAT, Forecast
from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

SEEN = 0  # outcomes learnt when the forecast was made
SCORE = 1  # as it came
LANE = 2  # what the four Kalman lanes said: LANE, ..., LANE + 3
PAPER_LANE = 6  # what the paper's OPS said
EXPERT = 7  # the expert, inside [EPS, 1 - EPS]
SCORE_SPLINE, EXPERT_SPLINE = 8, 9  # what the spline on the score and the spline on the expert said
FORECAST = 10
HORIZON_LANE = 11  # what the horizon lane said, 0 while it was asleep
UNCONTROLLED = 12  # the forecast before residual control
RECEIPT_WIDTH = 13

# A guard puts two more behind them, or only these two where nothing mixes.
GUARDED, ISSUED = 0, 1  # the forecast that it was given, clipped, and what it said (of a strict guard: before rounding)
GUARD_RECEIPT_WIDTH = 2
MOST_RECEIPT = RECEIPT_WIDTH + GUARD_RECEIPT_WIDTH

FORMAT = RECEIPT_FORMAT  # the version of receipts, as JSON and as bytes


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error


_MULTI_FIELDS = ("probabilities", "label", "score", "expert", "slope", "event", "seen", "issuer", "binary")


@dataclass(frozen=True, eq=False)
class MultiForecast:
    r"""What `MultiCalibrator.predict` gives: K probabilities, and the receipt that `MultiCalibrator.update` wants back.

    Attributes
    ----------
    probabilities : the forecast, in the order of the classes; positive, of sum 1.
    label : the class with the largest probability (the first of them).
    confidence : that probability.
    score : the K scores it was made from, normalised.
    expert : what the method said before the guard; None for ``"raw"`` and ``"ots"``.
    slope : what the online temperature multiplied logarithms by (1/temperature); None where there is none.
    event : the number of this forecast in its stream, from 0.
    seen : the number of labels that were learnt before it.
    issuer : a fingerprint of the calibrator that made it.
    binary : the receipt of AUTO, which serves two classes; None for more.

    It can wait anywhere for its label, as JSON too:

    >>> from calibeat import MultiCalibrator, MultiForecast
    >>> cal = MultiCalibrator(["cat", "dog", "bird"])
    >>> forecast = cal.predict([0.2, 0.5, 0.3])
    >>> forecast.label, round(forecast.confidence, 6)
    ('dog', 0.5)
    >>> text = forecast.to_json()                          # keep it as long as it takes ...
    >>> cal.update(MultiForecast.from_json(text), "bird")  # ... and bring it back
    """

    probabilities: Vector = field(repr=False)
    label: Any
    score: Vector = field(repr=False)
    expert: Vector | None = field(repr=False)
    slope: float | None = field(repr=False)
    event: int
    seen: int
    issuer: str = field(repr=False)
    binary: Forecast | None = field(repr=False, default=None)

    @property
    def confidence(self) -> float:
        """The largest probability."""
        return float(self.probabilities.max())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """``numpy.asarray(forecast)`` is the probabilities."""
        return np.array(self.probabilities, dtype=dtype) if copy else np.asarray(self.probabilities, dtype=dtype)

    def __eq__(self, other: object) -> bool:
        """Whether all that travels is the same."""
        return isinstance(other, MultiForecast) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """By the event."""
        return hash((str(self.issuer), self.event))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made of the data, and so are checked when they come back."""
        return MultiForecast.from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able, with a version."""
        return {
            "v": FORMAT,
            "probabilities": self.probabilities.tolist(),
            "label": self.label,
            "score": self.score.tolist(),
            "expert": None if self.expert is None else self.expert.tolist(),
            "slope": self.slope,
            "event": self.event,
            "seen": self.seen,
            "issuer": str(self.issuer),
            "binary": None if self.binary is None else self.binary.to_dict(),
        }

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MultiForecast:
        """The inverse of `to_dict`. Fields that this version does not know are ignored.

        Raises
        ------
        InvalidInput : the receipt has another version, a field is missing, or a field holds what no receipt can hold.
        """
        if not isinstance(data, Mapping):
            raise InvalidInput(f"forecast must be an object, got {type(data).__name__}")
        if data.get("v") != FORMAT or isinstance(data["v"], bool):
            raise InvalidInput(f"forecast must be of version {FORMAT}, got {shown(data.get('v'))}")
        if missing := [name for name in _MULTI_FIELDS if name not in data]:
            raise InvalidInput(f"forecast must have the field {missing[0]!r}, got {', '.join(map(str, data)):.200}")
        probabilities = _shares("probabilities", data["probabilities"])
        score = _shares("score", data["score"])
        expert = None if data["expert"] is None else _shares("expert", data["expert"])
        if len(score) != len(probabilities) or (expert is not None and len(expert) != len(score)):
            raise InvalidInput(f"forecast must have as many scores as probabilities, got {len(score)}")
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {shown(data['issuer'])}")
        return cls(
            probabilities,
            data["label"],
            score,
            expert,
            None if data["slope"] is None else check_interval("forecast slope", data["slope"], -100.0, 100.0),
            check_whole("forecast event", data["event"], 0, 2**53),
            check_whole("forecast seen", data["seen"], 0, 2**53),
            str(data["issuer"]),
            None if data["binary"] is None else Forecast.from_dict(data["binary"]),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> MultiForecast:
        """The inverse of `to_json`.

        Raises
        ------
        InvalidInput : the text is no JSON, or `from_dict` refuses what it holds.
        """
        return cls.from_dict(_parsed(text))


def _shares(what: str, values: Any) -> Vector:
    """Numbers of a receipt that must be probabilities of sum 1."""
    good = (
        isinstance(values, list) and len(values) >= 2 and all(type(p) in (float, int) and 0 <= p <= 1 for p in values)
    )
    if not good or abs(math.fsum(values) - 1.0) > 1e-9:
        raise InvalidInput(f"forecast {what} must be a list of probabilities of sum 1, got {shown(values)}")
    return frozen(np.array(values, dtype=np.float64))


def frozen(values: Vector) -> Vector:
    """The same array, read-only."""
    values.flags.writeable = False
    return values
