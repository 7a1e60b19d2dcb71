"""A forecast is a number and a receipt: what an event must remember between its forecast and its outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import InvalidInput
from .mixtures import SEEN, F, M, P


class Issuer(str):
    """The name of a calibrator on its live receipts; a receipt that travelled as JSON carries a plain string."""

    __slots__ = ()


class _Receipt(NamedTuple):
    probability: float
    score: float
    expert: float
    bin: int
    candidates: tuple[tuple[float, float], ...]
    event: int
    seen: int
    cell: int
    issuer: str
    lanes: tuple[float, ...] = ()


class Forecast(_Receipt):
    r"""What `Calibrator.predict` gives: a probability, and the receipt that `Calibrator.update` wants back.

    Attributes
    ----------
    probability : the forecast; ``float(forecast)`` is the same.
    score : the score it was made from.
    expert : the scaled probability before calibeating.
    bin : the expert's bin, counted from 0.
    candidates : the points that could have been said and their probabilities; more than one only when hedging.
    event : the number of this forecast in its stream, from 0.
    seen : how many outcomes had been learnt when it was made.
    cell : which cell of the calibeater it played.
    issuer : a fingerprint of the calibrator's method, seed and stream.
    lanes : what each part of a mixture said (`Lanes`, `Spline`); empty for the methods that have no such parts.

    It is a tuple, so it can be stored as it is, as JSON or in a database, until the outcome comes:

    >>> from calibeat import Calibrator, Forecast, TOPS
    >>> cal = Calibrator(TOPS)
    >>> text = cal.predict(0.83).to_json()       # keep it as long as it takes ...
    >>> cal.update(Forecast.from_json(text), 1)  # ... and bring it back
    >>> cal.predict(0.83).probability
    1.0
    """

    # The outcome, once learnt, so that a second one for the same forecast can be recognised.
    _outcome: float | None = None

    def __float__(self) -> float:
        return self.probability

    def _remembers(self, width: int) -> bool:
        """Whether what the mixture said is complete, possible, and agrees with the rest of the receipt."""
        lanes = self.lanes
        return len(lanes) == width and (
            width == 0
            or (lanes[SEEN] == self.seen and lanes[P] == self.probability and 0.0 < lanes[F] < 1.0 and
                0.0 < lanes[M] < 1.0 and all(0.0 <= e <= 1.0 for e in lanes[F:]))
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        return self._asdict()

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or set(data) != set(cls._fields):
            raise InvalidInput(f"forecast must be an object with {', '.join(cls._fields)}, got {data!r:.80}")
        try:
            receipt = dict(data, candidates=tuple((float(point), float(share)) for point, share in data["candidates"]))
            for name in ("probability", "score", "expert"):
                receipt[name] = float(receipt[name])
            for name in ("bin", "event", "seen", "cell"):
                receipt[name] = int(receipt[name])
            receipt["issuer"] = str(receipt["issuer"])
            receipt["lanes"] = tuple(map(float, receipt["lanes"]))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"forecast must hold numbers in every field but issuer, got {data!r:.80}") from error
        return cls(**receipt)

    @classmethod
    def from_json(cls, text: str | bytes) -> Forecast:
        """The inverse of `to_json`."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error
        return cls.from_dict(data)
