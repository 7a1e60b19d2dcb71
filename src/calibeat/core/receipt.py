"""A forecast is a number, or K of them, and a receipt: what an event must remember until its outcome comes.

`Forecast` and `MultiForecast` are what users hold. The constants are the layout of `Forecast.lanes`, as the kernels
write it; methods without `Lanes`, `Spline` and `Guard` leave it empty.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_number, check_whole, shown
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
    issuer : a fingerprint of the calibrator's method, seed and stream, and of its generation after a restart.
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
        """The inverse of `to_json`.

        Raises
        ------
        InvalidInput : the text is no JSON, or `from_dict` refuses what it holds.
        """
        data = _parsed(text)
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
        4-7     the generation: the number behind the issuer's name, 0 if it has none
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

        Raises
        ------
        InvalidInput : the receipt was made by hand, with an issuer that is no name of a calibrator.
        """
        if not _SIGNATURE.fullmatch(self.issuer):
            raise InvalidInput(f"forecast issuer must be a name made by a calibrator, got {self.issuer!r:.60}")
        name, _, generation = self.issuer.partition("-")
        first, second = self.hedge or ((0.0, 0.0), (0.0, 0.0))
        head = _HEAD.pack(
            FORMAT,
            len(self.hedge),
            len(self.lanes),
            int(generation or "0", 16),
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
        """The inverse of `to_bytes`.

        Raises
        ------
        InvalidInput : the bytes have another version or length, or a field holds what no receipt can hold.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidInput(f"forecast must be bytes made by to_bytes, got {type(data).__name__}")
        data = bytes(data)
        if data:
            _check_version(data[0])
        lanes = int.from_bytes(data[2:4], "little")
        if len(data) != _HEAD.size + 8 * lanes:
            raise InvalidInput(f"forecast must have {_HEAD.size + 8 * lanes} bytes, got {len(data)}")
        _, pairs, _, generation, *counts, name, probability, score, expert, p, u, q, v = _HEAD.unpack_from(data)
        issuer = name.hex() + (f"-{generation:08x}" if generation else "")
        fields = (probability, score, expert, *counts, issuer, struct.unpack_from(f"<{lanes}d", data, _HEAD.size))
        named = dict(zip(cls._fields, fields, strict=False))
        return cls.from_dict({**named, "candidates": ((p, u), (q, v))[:pairs], "v": FORMAT})


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error


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
