"""A forecast is a number and a receipt: what an event must remember between its forecast and its outcome."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

from calibeat._util.check import check_number, check_whole
from calibeat.errors import InvalidInput

FORMAT = 1  # the version of receipts, as JSON and as bytes

_HEAD = struct.Struct("<BBHIqqqq8s7d")  # see `Forecast.to_bytes`
_SIGNATURE = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{8})?")


class _Receipt(NamedTuple):
    probability: float
    score: float
    expert: float
    bin: int
    cell: int
    event: int
    seen: int
    issuer: str
    lanes: tuple[float, ...] = ()
    hedge: tuple[tuple[float, float], ...] = ()


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
    issuer : a fingerprint of the calibrator's method, seed and stream, and of its life after a restart.
    lanes : what each part of a mixture said (`Lanes`, `Spline`); empty for the methods that have no such parts.
    hedge : the candidates if there are two, or nothing.

    It compares like its probability:

    >>> from calibeat import Calibrator, Forecast, TOPS
    >>> cal = Calibrator(TOPS)
    >>> f = cal.predict(0.83)
    >>> f > 0.5, f == 0.85, f"{f:.1%}"
    (True, True, '85.0%')

    A receipt is data. Keep it as JSON or as bytes until the outcome comes, and bring it back. If it is delivered
    twice, it is learnt once:

    >>> text = f.to_json()
    >>> cal.update(Forecast.from_json(text), 1)
    >>> cal.update(Forecast.from_json(text), 1)
    >>> cal.outcomes
    1

    The JSON has a version, ``"v": 1``. Any other version is refused; fields that this version does not know are
    ignored. (``json.dumps(forecast)`` writes the fields as a list, which `from_json` reads as well.)
    """

    __slots__ = ()

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """The points that could have been said, and their probabilities."""
        return self.hedge or ((self.probability, 1.0),)

    def __float__(self) -> float:
        return self.probability

    def __format__(self, spec: str) -> str:
        """As the probability, where a format is asked for: ``f"{forecast:.1%}"``."""
        return format(self.probability, spec) if spec else str(self)

    # ---- as a number ----------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> bool:
        return _compared(self, other, float.__lt__)

    def __le__(self, other: Any) -> bool:
        return _compared(self, other, float.__le__)

    def __gt__(self, other: Any) -> bool:
        return _compared(self, other, float.__gt__)

    def __ge__(self, other: Any) -> bool:
        return _compared(self, other, float.__ge__)

    def __eq__(self, other: object) -> bool:
        """Two receipts are equal if all their fields are; a number is compared with the probability."""
        return _compared(self, other, float.__eq__) if isinstance(other, Real) else tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.probability)

    # ---- as JSON --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        receipt = self._asdict()
        del receipt["hedge"]
        return {"v": FORMAT, **receipt, "candidates": self.candidates}

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse, to the last bit."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> Forecast:
        """The inverse of `to_json`."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error
        if isinstance(data, list):
            data = {**dict(zip(cls._fields, data, strict=False)), "v": FORMAT}
            data["candidates"] = data.pop("hedge", None)
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast:
        """The inverse of `to_dict`.

        Raises
        ------
        InvalidInput : the receipt has another version, a field is missing, or a field holds what no receipt can hold.
        """
        if not isinstance(data, Mapping):
            raise InvalidInput(f"forecast must be an object, got {data!r:.60}")
        _check_version(data.get("v"))
        needed = (*cls._fields[:-1], "candidates")
        if missing := [name for name in needed if name not in data]:
            raise InvalidInput(f"forecast must have {', '.join(needed)}, got none for {missing[0]!r} - in {data!r:.80}")
        p, score, expert = (check_number(f"forecast {name}", data[name]) for name in ("probability", "score", "expert"))
        places = ("bin", "cell", "event", "seen")
        b, cell, event, seen = (check_whole(f"forecast {name}", data[name], 0, 2**63 - 1) for name in places)
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {data['issuer']!r:.60}")
        if isinstance(data["lanes"], str) or not isinstance(data["lanes"], Sequence):
            raise InvalidInput(f"forecast lanes must be a list of numbers, got {data['lanes']!r:.60}")
        lanes = tuple(check_number("forecast lane", number) for number in data["lanes"])
        return cls(p, score, expert, b, cell, event, seen, str(data["issuer"]), lanes, _hedge(data["candidates"]))

    # ---- as bytes -------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """As bytes of one length for each method: 104, and 8 more for each lane (AUTO: 208).

        All little-endian. `from_bytes` is the inverse, to the last bit.

        ======  ==============================================================================
        bytes   hold
        ======  ==============================================================================
        0       the version, 1
        1       how many candidates are given: 0 or 2
        2-3     how many lanes follow
        4-7     the life: the number behind the issuer's name, 0 if it has none
        8-39    bin, cell, event, seen: whole numbers of 8 bytes
        40-47   the issuer's name: 16 hexadecimal digits
        48-71   probability, score, expert: floats of 8 bytes
        72-103  the two candidates, each a point and its weight: floats, 0 if there are none
        104-    the lanes: floats
        ======  ==============================================================================

        >>> from calibeat import Calibrator, Forecast
        >>> f = Calibrator("ops").predict(0.25)
        >>> len(f.to_bytes()), Forecast.from_bytes(f.to_bytes()) == f
        (104, True)
        """
        if not _SIGNATURE.fullmatch(self.issuer):
            raise InvalidInput(f"forecast issuer must be a name made by a calibrator, got {self.issuer!r:.60}")
        name, _, life = self.issuer.partition("-")
        first, second = self.hedge or ((0.0, 0.0), (0.0, 0.0))
        head = _HEAD.pack(
            FORMAT,
            len(self.hedge),
            len(self.lanes),
            int(life or "0", 16),
            self.bin,
            self.cell,
            self.event,
            self.seen,
            bytes.fromhex(name),
            self.probability,
            self.score,
            self.expert,
            *first,
            *second,
        )
        return head + struct.pack(f"<{len(self.lanes)}d", *self.lanes)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Forecast:
        """The inverse of `to_bytes`."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidInput(f"forecast must be bytes made by to_bytes, got {type(data).__name__}")
        data = bytes(data)
        if data:
            _check_version(data[0])
        lanes = int.from_bytes(data[2:4], "little")
        if len(data) != _HEAD.size + 8 * lanes:
            raise InvalidInput(f"forecast must have {_HEAD.size + 8 * lanes} bytes, got {len(data)}")
        _, pairs, _, life, *counts, name, probability, score, expert, p, u, q, v = _HEAD.unpack_from(data)
        issuer = name.hex() + (f"-{life:08x}" if life else "")
        fields = (probability, score, expert, *counts, issuer, struct.unpack_from(f"<{lanes}d", data, _HEAD.size))
        named = dict(zip(cls._fields, fields, strict=False))
        return cls.from_dict({**named, "candidates": ((p, u), (q, v))[:pairs], "v": FORMAT})


def _compared(forecast: Forecast, other: Any, compare: Callable[[float, float], bool]) -> bool:
    if isinstance(other, Forecast):
        return compare(forecast.probability, other.probability)
    if isinstance(other, Real):
        return compare(forecast.probability, float(other))
    return NotImplemented


def _check_version(version: Any) -> None:
    if type(version) is not int or version != FORMAT:
        raise InvalidInput(
            f"forecast must be a receipt of version {FORMAT}, got version {version!r:.20} - "
            "another version of calibeat may have made it"
        )


def _hedge(candidates: Any) -> tuple[tuple[float, float], ...]:
    """The candidates of a receipt from outside, if there are two."""
    try:
        pairs = [(point, share) for point, share in candidates]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"forecast candidates must be pairs, got {candidates!r:.60}") from error
    checked = tuple(
        (check_number("forecast candidate", point), check_number("forecast candidate", share)) for point, share in pairs
    )
    return checked if len(checked) > 1 else ()
