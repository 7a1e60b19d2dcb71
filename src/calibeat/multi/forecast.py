"""A forecast of many classes is K probabilities and a receipt: what an event must remember until its label comes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput
from calibeat.stream.forecast import Forecast

FORMAT = 1  # the version of receipts
_FIELDS = ("probabilities", "label", "score", "expert", "slope", "event", "seen", "issuer", "binary")


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
        """A copy has travelled: it is checked when it comes back."""
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
        """The inverse of `to_dict`. Fields that this version does not know are ignored."""
        if not isinstance(data, Mapping):
            raise InvalidInput(f"forecast must be an object, got {type(data).__name__}")
        if data.get("v") != FORMAT or isinstance(data["v"], bool):
            raise InvalidInput(f"forecast must be of version {FORMAT}, got {shown(data.get('v'))}")
        if missing := [name for name in _FIELDS if name not in data]:
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
            str(data["issuer"]),  # not alive, whatever it was
            None if data["binary"] is None else Forecast.from_dict(data["binary"]),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> MultiForecast:
        """The inverse of `to_json`."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error
        return cls.from_dict(data)


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
