"""A forecast is a number and a receipt: what an event must remember between its forecast and its outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from calibeat._util.check import check_number, check_whole
from calibeat.core.method import Method
from calibeat.core.receipt import adopted
from calibeat.errors import InvalidInput


class Issuer(str):
    """The name of a calibrator on its live receipts; a receipt that travelled carries a plain string."""

    __slots__ = ("__weakref__",)  # a bank finds the issuer of a key as long as receipts of it are about

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """A copy is no longer alive."""
        return str, (str(self),)


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

    # Who has learnt which outcome of it, so that a second one can be recognised.
    _learnt: tuple[tuple[Issuer, float], ...] = ()

    def __new__(cls, *fields: Any, **named: Any) -> Forecast:
        """By hand, or as a copy: whatever it is made from, such a receipt is not alive."""
        receipt = super().__new__(cls, *fields, **named)
        if not isinstance(receipt.issuer, Issuer):
            return receipt
        return super().__new__(cls, **{**receipt._asdict(), "issuer": str(receipt.issuer)})

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Forecast:  # type: ignore[override]
        return cls(*iterable)

    def __float__(self) -> float:
        return self.probability

    def _remembers(self, method: Method) -> bool:
        """Whether what the mixture said is complete, possible, and agrees with the rest of the receipt."""
        return method.receipt_is_sound(self.lanes, self.score, self.seen, self.probability)

    def __format__(self, spec: str) -> str:
        """As the probability, where a format is asked for: ``f"{forecast:.1%}"``."""
        return format(self.probability, spec) if spec else str(self)

    def _replace(self, **changes: Any) -> Forecast:
        """An edited receipt is no longer alive: it is looked at as one that travelled."""
        return self.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        return {**self._asdict(), "issuer": str(self.issuer)}

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or set(data) != set(cls._fields):
            raise InvalidInput(f"forecast must be an object with {', '.join(cls._fields)}, got {data!r:.80}")
        receipt = dict(data)
        for name in ("probability", "score", "expert"):
            receipt[name] = check_number(f"forecast {name}", data[name])
        for name in ("bin", "event", "seen", "cell"):
            receipt[name] = check_whole(f"forecast {name}", data[name], 0, 2**63 - 1)
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {data['issuer']!r:.60}")
        receipt["issuer"] = str(data["issuer"])  # not alive, whatever it was
        try:
            pairs = [(point, share) for point, share in data["candidates"]]
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"forecast candidates must be pairs, got {data['candidates']!r:.60}") from error
        receipt["candidates"] = tuple(
            (check_number("forecast candidate", point), check_number("forecast candidate", share))
            for point, share in pairs
        )
        if isinstance(data["lanes"], str) or not isinstance(data["lanes"], Sequence):
            raise InvalidInput(f"forecast lanes must be a list of numbers, got {data['lanes']!r:.60}")
        receipt["lanes"] = adopted([check_number("forecast lane", said) for said in data["lanes"]])
        return cls(**receipt)

    @classmethod
    def from_json(cls, text: str | bytes) -> Forecast:
        """The inverse of `to_json`."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error
        return cls.from_dict(data)
