# One stream, one event at a time. A method written here is one step to Python: no signal and no other thread comes between
# its lines. All that can fail comes before the first line that changes something. In a free-threaded Python, methods that read
# or move the row are critical sections of their stream; they cost nothing in any other. No section calls another one of the
# same stream before it is done: the inner one would let other threads in.

import json
import math
import numpy
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from _queue import SimpleQueue
from _thread import get_ident, start_new_thread
from numbers import Real
from time import sleep

from calibeat._util.check import check_number, check_outcome, check_score, check_trials, check_weight, check_whole
from calibeat.errors import InvalidInput, OutcomeConflict, WithoutBand

cdef object ZERO_OBJECT = 0, ONE_OBJECT = 1  # Python has one object for each
cdef str MIXED_UP = "a call must not be interrupted by another one on the same rows in its own thread"
NOT_MADE = "calibrator must be made by its __init__, got none: a subclass must call super().__init__()"
_HEAD = struct.Struct("<BBHIqqqq8s7d")  # see `Forecast.to_bytes`
_FIELDS = ("probability", "score", "expert", "bin", "cell", "event", "seen", "issuer", "lanes")
_OPTIONS = ("hedge", "words", "band")
_BAND = ("low", "high", "outcomes", "reason")
REASONS = ("", "too few outcomes", "untested", "drifting", "uneven")


# ---- a forecast -----------------------------------------------------------------------------------------------------

@cython.no_gc  # it holds a string and an origin, which hold nothing
cdef class Forecast(float):
    r"""What `Calibrator.predict` gives: a probability, and the receipt that `Calibrator.update` wants back.

    Attributes
    ----------
    probability : the forecast as a plain float; ``float(forecast)`` is the same.
    score : the score it was made from; of several models a tuple of theirs, None where one is missing.
    expert : the scaled probability before calibeating.
    bin : the expert's bin, counted from 0.
    candidates : the points that could have been said and their probabilities; more than one only when hedging.
    event : the number of this forecast in its stream, from 0.
    seen : how many outcomes had been learnt when it was made.
    cell : which cell of the calibeater it played.
    issuer : a fingerprint of the calibrator's method, seed and stream, and of its generation after a restart.
    lanes : what each part of a mixture said (`Lanes`, `Spline`); empty for the methods that have no such parts.
    hedge : the candidates if there are two, or nothing.
    words : hashes of the event's groups, one for each attribute; empty where the calibrator has no groups.
    low, high : an interval for the share of ones among events with a score like this one, where the calibrator has
        ``band=True``: about 9 times in 10. docs/how-to/how-sure.md.
    outcomes : how many outcomes of exactly this score would make the forecast as good, in a world that stands still.
    reason : why it may be worse: ``"too few outcomes"``, ``"untested"``, ``"drifting"``, ``"uneven"``; empty if nothing is.
    band : these four, or nothing.

    It is a float. None of its fields can be changed. It equals a number that is its probability, and another forecast
    if all their fields are equal.

    >>> import json
    >>> from calibeat import Calibrator, Forecast, TOPS
    >>> cal = Calibrator(TOPS)
    >>> f = cal.predict(0.83)
    >>> f > 0.5, f == 0.85, 100 * f, f"{f:.1%}", json.dumps({"p": f})
    (True, True, 85.0, '85.0%', '{"p": 0.85}')

    A receipt is data. Keep it as JSON or as bytes until the outcome comes, and bring it back. If it is delivered
    twice, it is learnt once:

    >>> text = f.to_json()
    >>> cal.update(Forecast.from_json(text), 1), cal.update(Forecast.from_json(text), 1), cal.outcomes
    ('learnt', 'repeated', 1)

    The JSON has a version, ``"v": 2``. Any other version is refused; fields that this version does not know are
    ignored.
    """

    cdef readonly double watched_score  # what monitors see as the score; of several models the forecast
    cdef readonly double expert
    cdef readonly Index bin
    cdef readonly Index cell
    cdef readonly int64_t event
    cdef readonly int64_t seen
    cdef uint64_t name  # of the stream that has issued it
    cdef uint32_t generation
    cdef uint64_t seal  # of one that has travelled: what it was sealed with
    cdef object origin  # of one that was made here: whose it is, so that nothing about it need be checked
    cdef bint is_made
    cdef Index width
    cdef int has  # HEDGED, BANDED, or neither
    cdef double[4] extra  # what it has
    cdef double[MOST_RECEIPT] receipt
    cdef bytes wide  # of several models: the numbers of the receipt, which has no room for them; else None
    cdef bytes groups  # the words, 8 bytes each; None where there are none

    def __init__(
        self, double probability, score, double expert, Index bin, Index cell, Index event, Index seen,
        str issuer not None, lanes=(), hedge=(), words=(), band=(),
    ):
        cdef Index i
        if self.is_made or self.origin is not None:  # a stream believes what its own forecasts say
            raise TypeError("a forecast cannot be made again, make another one")
        name, generation = _signature_of(issuer)
        if len(lanes) > MOST_RECEIPT and not _is_of_several(len(lanes)):
            wanted = f"those of several models, or at most {MOST_RECEIPT} numbers"
            raise InvalidInput(f"forecast lanes must be {wanted}, got {len(lanes)}")
        if len(hedge) not in (0, 2):
            raise InvalidInput(f"forecast hedge must be two pairs or nothing, got {len(hedge)}")
        if len(words) > MOST_ATTRIBUTES:
            raise InvalidInput(f"forecast words must be at most {MOST_ATTRIBUTES}, got {len(words)}")
        for word in words:
            if type(word) is not int or not 0 < word < 2**64:
                raise InvalidInput(f"forecast words must be whole numbers of 64 bits, not 0, got {word!r:.60}")
        if len(words) > 0:
            self.groups = struct.pack(f"={len(words)}Q", *words)
        (<PyFloatObject*>self).ob_fval = probability
        self.watched_score = probability if isinstance(score, tuple) else score
        self.expert, self.bin, self.cell = expert, bin, cell
        self.event, self.seen, self.width = event, seen, len(lanes)
        self.name, self.generation, self.is_made = name, generation, True
        if self.width > MOST_RECEIPT:
            self.wide = struct.pack(f"={self.width}d", *lanes)
        else:
            for i in range(self.width):
                self.receipt[i] = lanes[i]
        if len(hedge) > 0:
            self.has = HEDGED
            (self.extra[0], self.extra[1]), (self.extra[2], self.extra[3]) = hedge
        elif len(band) > 0:
            self.has = BANDED
            self.extra[0], self.extra[1], self.extra[2], reason = band
            self.extra[3] = _place_of(reason)

    @property
    def issuer(self):
        """The name of the stream that has issued it, and its generation."""
        return _issuer_of(self.name, self.generation)

    @property
    def probability(self):
        """The forecast, as a plain float."""
        return PyFloat_AS_DOUBLE(self)

    @property
    def score(self):
        """The score it was made from; of several models a tuple, None where one is missing."""
        return self.watched_score if self.wide is None else tuple([
            None if score < 0.0 else score for score in self.lanes[SEVERAL_OWN + RECEIPT_SCORE :: RECEIPT_NUMBERS]
        ])

    @property
    def lanes(self):
        """What each part of a mixture said."""
        cdef Index i
        if self.wide is not None:
            return struct.unpack(f"={self.width}d", self.wide)
        return tuple([self.receipt[i] for i in range(self.width)])


    @property
    def words(self):
        """Hashes of the event's groups, one for each attribute."""
        return () if self.groups is None else struct.unpack(f"={len(self.groups) // 8}Q", self.groups)

    @property
    def hedge(self):
        """The candidates if there are two, or nothing."""
        return ((self.extra[0], self.extra[1]), (self.extra[2], self.extra[3])) if self.has == HEDGED else ()

    @property
    def band(self):
        """Low, high, outcomes and reason, or nothing."""
        if self.has != BANDED:
            return ()
        return self.extra[0], self.extra[1], self.extra[2], REASONS[<Index>self.extra[3]]

    @property
    def low(self):
        """The lower end of the interval."""
        return self.number_of_band(0)

    @property
    def high(self):
        """Its upper end."""
        return self.number_of_band(1)

    @property
    def outcomes(self):
        """How many outcomes of exactly this score would make the forecast as good."""
        return self.number_of_band(2)

    @property
    def reason(self):
        """Why it may be worse than the interval says; empty if nothing is known."""
        return REASONS[<Index>self.number_of_band(3)]

    cdef double number_of_band(self, int at) except? -1.0:
        if self.has != BANDED:
            raise WithoutBand(f"f.{_BAND[at]} requires Calibrator(band=True)")
        return self.extra[at]

    @property
    def candidates(self):
        """The points that could have been said, and their probabilities."""
        return self.hedge or ((self.probability, 1.0),)

    def __repr__(self):
        values = {name: getattr(self, name) for name in (*_FIELDS, "hedge")}
        values.update({name: value for name in ("words", "band") if (value := getattr(self, name))})
        return f"Forecast({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __reduce__(self):
        return Forecast.from_bytes, (self.to_bytes(),)

    cdef tuple fields(self):
        return tuple([getattr(self, name) for name in (*_FIELDS, *_OPTIONS)])

    def __replace__(self, **changes):
        """A receipt with other fields: ``copy.replace(forecast, event=3)`` of Python 3.13."""
        fields = {name: getattr(self, name) for name in (*_FIELDS, *_OPTIONS)}
        if unknown := changes.keys() - fields.keys():
            raise TypeError(f"a forecast has no field {min(unknown)!r}")
        return Forecast(**{**fields, **changes})

    # ---- as a number ------------------------------------------------------------------------------------------------

    def __hash__(self):
        return hash(self.probability)

    def __richcmp__(self, other, int operation):
        """As the probability; two forecasts are equal if all their fields are."""
        if isinstance(other, Forecast) and (operation == Py_EQ or operation == Py_NE):
            return (self.fields() == (<Forecast>other).fields()) == (operation == Py_EQ)
        return PyObject_RichCompare(self.probability, other, operation)

    # ---- as JSON ----------------------------------------------------------------------------------------------------

    def to_dict(self):
        """The fields by name, JSON-able."""
        data = {"v": RECEIPT_FORMAT, **{name: getattr(self, name) for name in _FIELDS}, "candidates": self.candidates}
        if self.groups is not None:  # 64 bits are more than a number of JSON holds everywhere
            data["words"] = [f"{word:016x}" for word in self.words]
        if self.has == BANDED:
            data.update({name: value for name, value in zip(_BAND, self.band) if value != ""})
        data["seal"] = f"{self.sealed():016x}"
        return data

    def to_json(self):
        """One line of JSON; `from_json` is the inverse, to the last bit."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text):
        """The inverse of `to_json`.

        Raises
        ------
        InvalidInput : the text is no JSON, or `from_dict` refuses what it holds.
        """
        return cls.from_dict(_parsed(text))

    @classmethod
    def from_dict(cls, data):
        """The inverse of `to_dict`.

        Raises
        ------
        InvalidInput : the receipt has another version, a field is missing, or a field holds what no receipt can hold.
        """
        if not isinstance(data, Mapping):
            raise InvalidInput(f"forecast must be an object, got {data!r:.60}")
        _check_version(data.get("v"))
        needed = (*_FIELDS, "candidates", "seal")
        if missing := [name for name in needed if name not in data]:
            raise InvalidInput(f"forecast must have {', '.join(needed)}, got none for {missing[0]!r} - in {data!r:.80}")
        probability, expert = [check_number(f"forecast {name}", data[name]) for name in ("probability", "expert")]
        score = _score_in(data["score"])
        places = [check_whole(f"forecast {name}", data[name], 0, 2**63 - 1) for name in ("bin", "cell", "event", "seen")]
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {data['issuer']!r:.60}")
        if isinstance(data["lanes"], str) or not isinstance(data["lanes"], Sequence):
            raise InvalidInput(f"forecast lanes must be a list of numbers, got {data['lanes']!r:.60}")
        lanes = tuple([check_number("forecast lane", number) for number in data["lanes"]])
        words, seal = _words(data.get("words", ())), _seal_in(data["seal"])
        hedge, band = _pairs(data["candidates"]), ()
        if "low" in data and not hedge:
            band = tuple([check_number(f"forecast {name}", data.get(name)) for name in _BAND[:3]])
            band = (*band, data.get("reason", ""))
        made = Forecast(probability, score, expert, *places, str(data["issuer"]), lanes, hedge, words, band)
        if type(score) is tuple and made.score != score:
            raise InvalidInput(f"forecast score must be that of its lanes, {made.score}, got {data['score']!r:.60}")
        (<Forecast>made).seal = seal
        return made

    # ---- as bytes ---------------------------------------------------------------------------------------------------

    def to_bytes(self):
        """As bytes of one length for each method: 112, and 8 more for each lane (AUTO: 208) and each word of its groups.

        All little-endian. `from_bytes` is the inverse, to the last bit.

        ======  ==============================================================================
        bytes   hold
        ======  ==============================================================================
        0       the version, 2
        1       what bytes 72 to 103 hold: 2 two candidates, 4 a band, 0 nothing
        2       how many lanes follow
        3       how many words follow
        4-7     the generation: the number behind the issuer's name, 0 if it has none
        8-39    bin, cell, event, seen: whole numbers of 8 bytes
        40-47   the issuer's name: 16 hexadecimal digits
        48-71   probability, score, expert: floats of 8 bytes
        72-103  the two candidates, each a point and its weight: floats, 0 if there are none; or low, high, outcomes,
                and the reason: 0 none, 1 too few outcomes, 2 untested, 3 drifting, 4 uneven
        104-    the lanes: floats; then the words: whole numbers of 8 bytes, without a sign
        last 8  the seal, a checksum of all that stands before it
        ======  ==============================================================================

        >>> from calibeat import Calibrator, Forecast
        >>> f = Calibrator("ops").predict(0.25)
        >>> len(f.to_bytes()), Forecast.from_bytes(f.to_bytes()) == f
        (112, True)
        """
        return self.contents() + self.sealed().to_bytes(8, "little")

    cdef bytes contents(self):
        """All but the seal."""
        head = _HEAD.pack(
            RECEIPT_FORMAT, self.has, self.width + 256 * len(self.words), self.generation, self.bin, self.cell,
            self.event, self.seen, self.name.to_bytes(8, "big"), self.probability, self.watched_score, self.expert,
            self.extra[0], self.extra[1], self.extra[2], self.extra[3],
        )
        return head + struct.pack(f"<{self.width}d{len(self.words)}Q", *self.lanes, *self.words)

    cdef object sealed(self):
        """The seal: one that has travelled keeps its own, and one that was made by hand has none."""
        return seal_of(self.contents()) if self.origin is not None else self.seal

    cdef bint is_whole(self):
        """Whether it says what a stream has issued."""
        return self.origin is not None or seal_of(self.contents()) == self.seal

    @classmethod
    def from_bytes(cls, data):
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
        lanes, words = int.from_bytes(data[2:3], "little"), int.from_bytes(data[3:4], "little")
        if len(data) != _HEAD.size + 8 * (lanes + words) + 8:
            raise InvalidInput(f"forecast must have {_HEAD.size + 8 * (lanes + words) + 8} bytes, got {len(data)}")
        _, has, _, generation, *counts, name, probability, score, expert, p, u, q, v = _HEAD.unpack_from(data)
        if has not in (0, HEDGED, BANDED) or (has == 0 and data[72:104] != bytes(32)):
            raise InvalidInput(f"forecast must have no candidates or two, got damaged ones - at event {counts[2]}")
        issuer = _issuer_of(int.from_bytes(name, "big"), generation)
        numbers = struct.unpack_from(f"<{lanes}d{words}Q", data, _HEAD.size)
        hedge, seal = ((p, u), (q, v)) if has == HEDGED else (), int.from_bytes(data[len(data) - 8 :], "little")
        if not words and not has and min(counts) >= 0 and math.isfinite(sum(numbers, probability + score + expert)):
            made = Forecast(probability, score, expert, *counts, issuer, numbers)
            (<Forecast>made).seal = seal
            return made
        named = dict(zip(_FIELDS, (probability, score, expert, *counts, issuer, numbers[:lanes])))
        if words:
            named["words"] = [f"{word:016x}" for word in numbers[lanes:]]
        if has == BANDED:
            named.update(zip(_BAND, (p, u, q, REASONS[int(v)] if v in range(len(REASONS)) else v)))
        return cls.from_dict({**named, "candidates": hedge, "v": RECEIPT_FORMAT, "seal": f"{seal:016x}"})


# `float` takes one argument and a forecast takes many, which are for `__init__` to read.

cdef newfunc _new_forecast = (<PyTypeObject*>Forecast).tp_new

cdef object _new_of_many(type kind, PyObject* arguments, PyObject* names):
    return _new_forecast(kind, <PyObject*>(), NULL)

(<PyTypeObject*>Forecast).tp_new = <newfunc>_new_of_many


def _place_of(reason):
    """Where a reason stands among all."""
    if reason not in REASONS:
        raise InvalidInput(f"forecast reason must be one of {', '.join(map(repr, REASONS))}, got {reason!r:.60}")
    return REASONS.index(reason)


cdef bint _is_hexadecimal(str text, Index digits):
    return len(text) == digits and not text.strip("0123456789abcdef")


def _check_version(version):
    if type(version) is not int or version != RECEIPT_FORMAT:
        raise InvalidInput(
            f"forecast must be a receipt of version {RECEIPT_FORMAT}, got version {version!r:.20} - "
            "another version of calibeat may have made it"
        )


cdef object seal_of(bytes contents):
    """The seal of a receipt: it finds damage. It is no signature: who wants to forge one, can."""
    return checksum_from(<const uint8_t*>PyBytes_AS_STRING(contents), PyBytes_GET_SIZE(contents), RECEIPT_FORMAT)


def seal_receipts(receipts, Index size):
    """Put the seal at the end of each receipt of so many bytes, one behind the other."""
    cdef Index[4] shape
    cdef uint8_t* first = <uint8_t*>look_at(receipts, "receipts", 1, b"B", 1, shape)
    cdef uint64_t version = RECEIPT_FORMAT, seal
    cdef Index at
    for at in range(0, shape[0] - size + 1, size):
        seal = checksum_from(first + at, size - 8, version)
        memcpy(first + at + size - 8, &seal, 8)


def are_sealed(receipts, Index size, good):
    """Whether the seal of each receipt is that of its content; written to `good`, a byte each."""
    cdef Index[4] shape
    cdef uint8_t* first = <uint8_t*>look_at(receipts, "receipts", 1, b"B", 1, shape)
    cdef U8 found = U8_of(good, "good")
    cdef uint64_t version = RECEIPT_FORMAT, seal
    cdef Index i
    for i in range(found.n):
        memcpy(&seal, first + (i + 1) * size - 8, 8)
        found.data[i] = checksum_from(first + i * size, size - 8, version) == seal


def _seal_in(given):
    """The seal of a receipt from outside."""
    if type(given) is not str or not _is_hexadecimal(given, 16):
        raise InvalidInput(f"forecast seal must be 16 hexadecimal digits, got {given!r:.60}")
    return int(given, 16)


def _words(given):
    """The words of a receipt from outside."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"forecast words must be a list, got {given!r:.60}")
    for word in given:
        if type(word) is not str or not _is_hexadecimal(word, 16):
            raise InvalidInput(f"forecast words must be 16 hexadecimal digits each, got {word!r:.60}")
    return tuple([int(word, 16) for word in given])


def _score_in(given):
    """The score of a receipt from outside; of several models a list, whose numbers are among its lanes."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return check_number("forecast score", given)
    return tuple([None if score is None else check_number("forecast score", score) for score in given])


cdef bint _is_of_several(Index width):
    """Whether a receipt of several models has so many numbers."""
    return width <= MOST_SEVERAL and width > SEVERAL_OWN + RECEIPT_NUMBERS and (width - SEVERAL_OWN) % RECEIPT_NUMBERS == 0


def _pairs(candidates):
    """The candidates of a receipt from outside, if there are two."""
    try:
        pairs = [(point, share) for point, share in candidates]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"forecast candidates must be pairs, got {candidates!r:.60}") from error
    if len(pairs) > 2:
        raise InvalidInput(f"forecast candidates must be one or two pairs, got {len(pairs)}")
    checked = [(check_number("forecast candidate", point), check_number("forecast candidate", share)) for point, share in pairs]
    return tuple(checked) if len(checked) > 1 else ()


# ---- a forecast of many classes -------------------------------------------------------------------------------------

_FIELDS_OF_CLASSES = ("probabilities", "label", "score", "lanes", "event", "seen", "issuer", "binary")
_CLASSES_FOLLOW = 255  # where a receipt of two classes says how many candidates are given


@cython.no_gc  # its arrays hold numbers, its label is a string or a number
cdef class MultiForecast:
    r"""What `MultiCalibrator.predict` gives: K probabilities, and the receipt that `MultiCalibrator.update` wants back.

    Attributes
    ----------
    probabilities : the forecast, in the order of the classes; positive, of sum 1.
    label : the class with the largest probability (the first of them).
    confidence : that probability.
    score : the K scores it was made from, normalised.
    lanes : what each part of the mixture said: what the learning of a late label needs.
    event : the number of this forecast in its stream, from 0.
    seen : the number of labels that were learnt before it.
    issuer : a fingerprint of the calibrator that made it, and of its generation after a restart.
    binary : the receipt of AUTO, which serves two classes; None for more.

    It can wait anywhere for its label, as JSON or as bytes:

    >>> from calibeat import MultiCalibrator, MultiForecast
    >>> cal = MultiCalibrator(["cat", "dog", "bird"])
    >>> forecast = cal.predict([0.2, 0.5, 0.3])
    >>> forecast.label, round(forecast.confidence, 6)
    ('dog', 0.5)
    >>> text = forecast.to_json()                          # keep it as long as it takes ...
    >>> cal.update(MultiForecast.from_json(text), "bird")  # ... and bring it back
    'learnt'
    """

    cdef readonly object probabilities
    cdef readonly object label
    cdef readonly object score
    cdef readonly object lanes
    cdef readonly int64_t event
    cdef readonly int64_t seen
    cdef readonly Forecast binary
    cdef uint64_t name  # of the stream that has issued it
    cdef uint32_t generation
    cdef uint64_t seal  # of one that has travelled: what it was sealed with
    cdef object origin  # of one that was made here: whose it is, so that nothing about it need be checked

    def __init__(
        self, probabilities, label, score, lanes, Index event, Index seen, str issuer not None, Forecast binary=None
    ):
        if self.probabilities is not None:  # a stream believes what its own forecasts say
            raise TypeError("a forecast cannot be made again, make another one")
        self.name, self.generation = _signature_of(issuer)
        self.probabilities, self.score, self.lanes = _fixed(probabilities), _fixed(score), _fixed(lanes)
        self.label, self.event, self.seen, self.binary = label, event, seen, binary

    @property
    def issuer(self):
        """The name of the stream that has issued it, and its generation."""
        return _issuer_of(self.name, self.generation)

    @property
    def column(self):
        """The column of `label`."""
        return int(self.probabilities.argmax())

    @property
    def confidence(self):
        """The largest probability."""
        return float(self.probabilities.max())

    def __repr__(self):
        return f"MultiForecast(label={self.label!r}, confidence={self.confidence!r}, event={self.event}, seen={self.seen})"

    def __reduce__(self):
        """Copies are made of the data, and so are checked when they come back."""
        return MultiForecast.from_dict, (self.to_dict(),)

    def __replace__(self, **changes):
        """A receipt with other fields: ``copy.replace(forecast, event=3)`` of Python 3.13."""
        fields = {name: getattr(self, name) for name in _FIELDS_OF_CLASSES}
        if unknown := changes.keys() - fields.keys():
            raise TypeError(f"a forecast has no field {min(unknown)!r}")
        return MultiForecast(**{**fields, **changes})

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(forecast)`` is the probabilities."""
        return numpy.array(self.probabilities, dtype=dtype) if copy else numpy.asarray(self.probabilities, dtype=dtype)

    def __eq__(self, other):
        """Whether all that travels is the same."""
        return isinstance(other, MultiForecast) and self.to_dict() == other.to_dict()

    def __hash__(self):
        """By the event."""
        return hash((self.issuer, self.event))

    # ---- as JSON ----------------------------------------------------------------------------------------------------

    def to_dict(self):
        """The fields by name, JSON-able, with a version."""
        return {
            "v": RECEIPT_FORMAT,
            "probabilities": self.probabilities.tolist(),
            "label": self.label,
            "score": self.score.tolist(),
            "lanes": self.lanes.tolist(),
            "event": self.event,
            "seen": self.seen,
            "issuer": self.issuer,
            "binary": None if self.binary is None else self.binary.to_dict(),
            "seal": f"{self.sealed():016x}",
        }

    def to_json(self):
        """One line of JSON; `from_json` is the inverse, to the last bit."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text):
        """The inverse of `to_json`.

        Raises
        ------
        InvalidInput : the text is no JSON, or `from_dict` refuses what it holds.
        """
        return cls.from_dict(_parsed(text))

    @classmethod
    def from_dict(cls, data):
        """The inverse of `to_dict`. Fields that this version does not know are ignored.

        Raises
        ------
        InvalidInput : the receipt has another version, a field is missing, or a field holds what no receipt can hold.
        """
        if not isinstance(data, Mapping):
            raise InvalidInput(f"forecast must be an object, got {type(data).__name__}")
        _check_version(data.get("v"))
        if missing := [name for name in (*_FIELDS_OF_CLASSES, "seal") if name not in data]:
            raise InvalidInput(f"forecast must have the field {missing[0]!r}, got {', '.join(map(str, data)):.200}")
        probabilities, score = _shares("probabilities", data["probabilities"]), _shares("score", data["score"])
        if len(score) != len(probabilities):
            raise InvalidInput(f"forecast must have as many scores as probabilities, got {len(score)}")
        if not isinstance(data["lanes"], list):
            raise InvalidInput(f"forecast lanes must be a list of numbers, got {data['lanes']!r:.60}")
        lanes = numpy.array([check_number("forecast lane", number) for number in data["lanes"]], dtype=numpy.float64)
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {data['issuer']!r:.60}")
        counts = [check_whole(f"forecast {name}", data[name], 0, 2**53) for name in ("event", "seen")]
        binary, seal = None if data["binary"] is None else Forecast.from_dict(data["binary"]), _seal_in(data["seal"])
        made = MultiForecast(probabilities, data["label"], score, lanes, *counts, str(data["issuer"]), binary)
        (<MultiForecast>made).seal = seal
        return made

    # ---- as bytes ---------------------------------------------------------------------------------------------------

    def to_bytes(self):
        """As bytes of one length for each method and number of classes; little-endian, to the last bit.

        Laid out as `Forecast.to_bytes` says, with 255 in byte 1, the column of `label` as bin, and the number of
        classes as cell. Behind byte 103 stand the probabilities, the scores, the lanes and the seal. Two classes give
        the receipt of AUTO.

        >>> from calibeat import MultiCalibrator, MultiForecast
        >>> f = MultiCalibrator(3, method="raw").predict([0.5, 0.25, 0.25])
        >>> MultiForecast.from_bytes(f.to_bytes()) == f
        True
        """
        return self.binary.to_bytes() if self.binary is not None else self.contents() + self.sealed().to_bytes(8, "little")

    cdef bytes contents(self):
        """All but the seal."""
        if self.binary is not None:
            return self.binary.contents()
        column, K = self.column, len(self.probabilities)
        numbers = numpy.concatenate([self.probabilities, self.score, self.lanes])
        head = _HEAD.pack(
            RECEIPT_FORMAT, _CLASSES_FOLLOW, len(numbers) % 65536, self.generation, column, K, self.event, self.seen,
            self.name.to_bytes(8, "big"), self.probabilities[column], self.score[column], 0.0, 0.0, 0.0, 0.0, 0.0,
        )
        return head + numbers.astype("<f8").tobytes()

    cdef object sealed(self):
        return seal_of(self.contents()) if self.origin is not None else self.seal

    cdef bint is_whole(self):
        """Whether it says what a stream has issued."""
        if self.origin is not None:
            return True
        if self.binary is None:
            return seal_of(self.contents()) == self.seal
        said = MultiForecast._of_binary(self.binary, (self.label, self.label))
        return self.binary.is_whole() and (
            (self.probabilities == said.probabilities).all() and (self.score == said.score).all()
            and (self.event, self.seen, self.issuer) == (said.event, said.seen, said.issuer)
        )

    @classmethod
    def from_bytes(cls, data, classes=None):
        """The inverse of `to_bytes`. `classes` are the labels; without them `label` is the number of the column.

        Raises
        ------
        InvalidInput : the bytes have another version or length, or a field holds what no receipt can hold.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidInput(f"forecast must be bytes made by to_bytes, got {type(data).__name__}")
        data = bytes(data)
        if data:
            _check_version(data[0])
        if len(data) < _HEAD.size + 8 or data[1] != _CLASSES_FOLLOW:
            return cls._of_binary(Forecast.from_bytes(data), range(2) if classes is None else classes)
        _, _, count, generation, column, K, event, seen, name, *_ = _HEAD.unpack_from(data)
        length = len(data) - _HEAD.size - 8
        if length % 8 or length // 8 % 65536 != count or not 2 <= K <= length // 16 or not 0 <= column < K:
            raise InvalidInput(f"forecast must have the numbers of its classes, got {len(data)} bytes")
        labels = range(K) if classes is None else classes
        if len(labels) != K:
            raise InvalidInput(f"classes must be those of the forecast, {K}, got {len(labels)}")
        numbers = numpy.frombuffer(data[: len(data) - 8], dtype="<f8", offset=_HEAD.size).tolist()
        issuer, seal = _issuer_of(int.from_bytes(name, "big"), generation), int.from_bytes(data[len(data) - 8 :], "little")
        fields = (numbers[:K], labels[column], numbers[K : 2 * K], numbers[2 * K :], event, seen, issuer, None)
        named = dict(zip(_FIELDS_OF_CLASSES, fields))
        return cls.from_dict({**named, "v": RECEIPT_FORMAT, "seal": f"{seal:016x}"})

    @classmethod
    def _of_binary(cls, Forecast forecast not None, labels):
        """The receipt of AUTO, which serves two classes, as one of both."""
        cdef MultiForecast made = MultiForecast.__new__(MultiForecast)
        cdef double p = PyFloat_AS_DOUBLE(forecast)
        made.probabilities = _fixed([1.0 - p, p])
        made.score = _fixed([1.0 - forecast.watched_score, forecast.watched_score])
        made.lanes, made.label = _fixed([]), labels[1 if p > 1.0 - p else 0]
        made.event, made.seen, made.binary = forecast.event, forecast.seen, forecast
        made.name, made.generation = forecast.name, forecast.generation
        made.seal, made.origin = forecast.seal, forecast.origin
        return made


cdef object _fixed(values):
    """A read-only array of numbers."""
    array = numpy.array(values, dtype=numpy.float64)
    array.flags.writeable = False
    return array


def _shares(what, values):
    """Numbers of a receipt that must be probabilities of sum 1."""
    good = isinstance(values, list) and len(values) >= 2 and all(type(p) in (float, int) and 0 <= p <= 1 for p in values)
    if not good or abs(math.fsum(values) - 1.0) > 1e-9:
        raise InvalidInput(f"forecast {what} must be a list of probabilities of sum 1, got {values!r:.60}")
    return numpy.array(values, dtype=numpy.float64)


def _parsed(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error


def _signature_of(issuer):
    """The name and the generation of a stream, as numbers."""
    name, _, generation = issuer.partition("-")
    if not _is_hexadecimal(name, 16) or not (generation == "" and "-" not in issuer or _is_hexadecimal(generation, 8)):
        raise InvalidInput(f"forecast issuer must be a name made by a calibrator, got {issuer!r:.60}")
    return int(name, 16), int(generation or "0", 16)


cdef str _issuer_of(uint64_t name, uint32_t generation):
    return f"{name:016x}-{generation:08x}" if generation else f"{name:016x}"


def examine(given, uint64_t name, int64_t begun, uint32_t generation, int64_t events):
    """What is wrong with a receipt that has travelled: 0 nothing, else what `hosts.rows` calls it.

    The stream has this name; its receipts from event `begun` on have this generation. It has made so many forecasts.
    """
    cdef bint classes = type(given) is MultiForecast
    cdef int64_t event = (<MultiForecast>given).event if classes else (<Forecast>given).event
    if ((<MultiForecast>given).name if classes else (<Forecast>given).name) != name:
        return 1
    if not ((<MultiForecast>given).is_whole() if classes else (<Forecast>given).is_whole()):
        return 2
    if event >= begun and ((<MultiForecast>given).generation if classes else (<Forecast>given).generation) != generation:
        return 3
    return 0 if 0 <= event < events else 4


# ---- rows, and the streams that they are ----------------------------------------------------------------------------

cdef enum:  # why a single event has to take the long way: what is to be done first, or afterwards
    HELD = 1  # a call of several steps is at work
    FORKED = 2  # this is a copy in a new process
    PENDING = 4  # watchers have not been told of everything yet
    UNSIGNED = 8  # receipts have no generation yet
    WATCHED = 16  # there are watchers to be told
    REFITS = 32  # the method fits its past again
    CROWDED = 64  # not said yet: groups have forgotten many cells
    SHUT = 128  # rows that must not change


@cython.auto_pickle(False)
cdef class StreamRows:
    """The rows of a host in one piece of memory, and all that its streams share. `hosts.rows.Rows` has the rest.

    A row is the state of a stream, and behind it its stats. Single events are served where the row lies.

    ``with rows:`` holds them: single events of other threads wait until it is left.
    """

    cdef Spec spec
    cdef F64 memory
    cdef readonly object flat  # the rows one behind the other: it keeps that memory
    cdef readonly Index stride, width  # numbers of a row, and of its state
    cdef public Index count  # rows that are there; memory has room for more
    cdef public int64_t clock  # forecasts of all streams
    cdef public int64_t moves  # how often rows have changed their places: streams compare it
    cdef public object watch  # monitors and notices, or None
    cdef bint counts_losses
    cdef int unusual
    cdef object lock
    cdef int depth  # how often it is held
    cdef bint is_moving  # a step is at work
    cdef object pending  # what watchers are to be told
    cdef uint32_t generation  # on the receipts; 0 for streams that are named, until they are copied
    cdef object origin  # of forecasts that were made here, in this generation
    cdef double[MOST_RECEIPT] receipt  # of the latest forecast
    cdef F64 scratch
    cdef Asked asked
    cdef int64_t latest  # the number of that forecast, if nothing was learnt since; -1 if there is none
    cdef Index latest_slot
    cdef bint small, is_auto
    cdef Cells cells  # where there are groups
    cdef EventWords maker  # of their words; None where there are none
    cdef Pool pool  # that new keys start from
    cdef object kept_pool, kept_work, kept_receipt  # they keep memory of the kernels
    cdef readonly tuple labels  # of K classes, in the order of their columns; None of two that are 0 and 1
    cdef dict columns
    cdef Index K  # numbers of a score
    cdef Index models  # how many scores an event has; 0: one
    cdef bint logits, is_pair
    cdef F64 remembered, work
    cdef object kept_past  # of a method that fits its past again: it keeps the memory of these columns
    cdef F64 past_x0, past_x1, past_y
    cdef int64_t past_dropped, past_until

    def __cinit__(self, *arguments, **settings):
        self.origin = object()  # whose forecasts it would make: none is of rows that serve nothing yet
        self.latest, self.unusual = -1, UNSIGNED

    def _serve(self, spec, Index width, Index stride, bint counts_losses, bint refits, lock):
        self.spec = Spec_of(spec)
        self.models = self.spec.models
        if self.spec.classes == 0 and self.spec.receipt > (MOST_SEVERAL if self.models else MOST_RECEIPT):  # there would be no room for it
            raise ValueError(f"a receipt must have at most {MOST_RECEIPT} numbers, got {self.spec.receipt}")
        self.width, self.stride, self.counts_losses, self.lock = width, stride, counts_losses, lock
        self.scratch, self.small, self.K = F64(&self.receipt[0], self.spec.receipt), self.spec.receipt == 0, 1
        self.is_auto = k_core_kernel_is_auto(self.spec)
        if self.models > 0:
            self.K, self.kept_receipt, self.kept_work = self.models, numpy.zeros(self.spec.receipt), numpy.zeros(SEVERAL_ROOM)
            self.scratch, self.work = F64_of(self.kept_receipt, "receipt"), F64_of(self.kept_work, "work")
        if refits:
            self.unusual |= REFITS

    def _serve_groups(self, EventWords maker, cells):
        """After `_serve`: look at groups too. The caller keeps the arrays of the cells."""
        self.cells, self.maker = Cells_of(cells), maker
        self.unusual |= CROWDED
        self.scratch = F64(&self.receipt[0], self.cells.receipt + GROUPED_NUMBERS)

    def _serve_classes(self, tuple labels, dict columns, bint logits, bint is_pair, work):
        """After `_serve`: the labels in the order of their columns, and room for the kernels to work in."""
        self.labels, self.columns, self.K, self.logits, self.is_pair = labels, columns, len(labels), logits, is_pair
        self.kept_receipt, self.kept_work = numpy.zeros(max(1, self.spec.receipt)), work
        self.remembered, self.work = F64_of(self.kept_receipt, "receipt"), F64_of(work, "work")

    def _serve_pool(self, pool):
        """After `_serve`: have a pool learn from every outcome. The caller keeps its arrays."""
        self.pool, self.kept_pool = Pool_of(pool), pool

    def _remember_in(self, past, int64_t until):
        """Note the outcomes of single events in these columns, while fewer than `until` are learnt and they are the
        refitter's."""
        self.past_until = 0
        self.kept_past = past
        self.past_x0, self.past_x1, self.past_y = F64_of(past.x0, "x0"), F64_of(past.x1, "x1"), F64_of(past.y, "y")
        self.past_dropped, self.past_until = past.dropped, until

    def _hold(self, flat):
        """Take other memory for the rows, which has what was there."""
        self.memory, self.flat = F64_of(flat, "rows"), flat
        self.latest = -1

    @cython.final
    cdef inline F64 row_of(self, Index slot) noexcept:
        return F64(self.memory.data + slot * self.stride, self.width)

    @cython.final
    cdef inline double* stats_of(self, Index slot) noexcept:
        return self.memory.data + slot * self.stride + self.width

    def _check_outermost(self):
        """Raise unless this is the only call that holds the rows: a handler of signals may not go on with its own."""
        if self.depth > 1:
            raise RuntimeError(MIXED_UP)

    # ---- held by one call -------------------------------------------------------------------------------------------

    def __enter__(self):
        self.lock.acquire()
        if self.is_moving:  # only the thread that moves the rows gets here: a handler of signals
            self.lock.release()
            raise RuntimeError(MIXED_UP)
        self.depth += 1
        self.unusual |= HELD
        return self

    def __exit__(self, *error):
        self.depth -= 1
        if self.depth == 0:
            self.unusual &= ~HELD
        self.lock.release()

    def _seen(self, Index slot=-1):
        """What a plan stands on: `_do` compares it. With a slot also the outcomes that it has learnt."""
        return self.clock, self.moves, self.count, self.row_of(slot).data[N] if slot >= 0 else 0.0

    def _do(self, list calls, seen=None, Index slot=-1):
        """Make calls that were planned, as `all_at_once` does. The caller holds the rows.

        Raises
        ------
        RuntimeError : a handler of signals has changed the rows since they were `seen`.
        """
        if seen is not None and seen != self._seen(slot):
            raise RuntimeError(MIXED_UP)
        self.is_moving = True
        try:
            all_at_once(calls)
        finally:
            self.is_moving = False

    def _forked(self):
        """In a child process: the first call begins a new generation. Threads that held the rows are gone."""
        self.unusual |= FORKED
        if not self.lock._is_owned():
            self.depth, self.unusual, self.is_moving = 0, self.unusual & ~HELD, False

    @property
    def _is_forked(self):
        return self.unusual & FORKED != 0

    def _sign(self, uint32_t generation):
        """Receipts of now carry this generation; those made before are examined like any that have travelled."""
        self.origin, self.generation, self.latest = object(), generation, -1
        self.unusual &= ~(UNSIGNED | FORKED)

    def _begin_generation(self):
        """The next forecast begins a new generation."""
        self.origin, self.latest = object(), -1
        self.unusual = (self.unusual | UNSIGNED) & ~FORKED

    def _shut(self):
        """Rows that must not change: a file that other processes read too."""
        self.unusual |= SHUT

    @property
    def _is_crowded(self):
        """Whether it was said that the groups have forgotten many cells."""
        return self.unusual & CROWDED == 0

    @_is_crowded.setter
    def _is_crowded(self, bint is_crowded):
        self.unusual = self.unusual & ~CROWDED if is_crowded else self.unusual | CROWDED

    @property
    def _is_signed(self):
        return self.unusual & UNSIGNED == 0

    @property
    def _generation(self):
        return self.generation

    def _watched_by(self, watch):
        """Have watchers told of single events; None: nobody."""
        self.watch = watch
        self.unusual = self.unusual | WATCHED if watch is not None else self.unusual & ~WATCHED

    @property
    def _pending(self):
        """What the watchers are to be told: a function and its arguments, or None."""
        return self.pending

    @_pending.setter
    def _pending(self, pending):
        self.pending = pending
        self.unusual = self.unusual | PENDING if pending is not None else self.unusual & ~PENDING

    # ---- what comes in ----------------------------------------------------------------------------------------------

    @cython.final
    cdef int read_words(self, groups, int64_t* words) except -1:
        """Put the words of an event's groups where `words` begins."""
        if groups is None:
            raise InvalidInput(f"groups must be {', '.join(self.maker.attributes)}, got none")
        return self.maker.read(groups, words)

    @cython.final
    cdef bytes words_as_bytes(self, int64_t* words):
        return PyBytes_FromStringAndSize(<char*>words, self.cells.attributes * sizeof(int64_t))

    def _words(self, groups):
        """The words of an event's groups, as `_forecast` and `_peek` take them; None where there are none."""
        cdef int64_t[MOST_ATTRIBUTES] words
        if self.maker is None:
            if groups is not None:
                self._refuse_groups()
            return None
        self.read_words(groups, &words[0])
        return self.words_as_bytes(&words[0])

    @cython.final
    cdef int64_t* checked_words(self, bytes words) except? NULL:
        if self.maker is None:
            return NULL
        if words is None or PyBytes_GET_SIZE(words) != <Index>(self.cells.attributes * sizeof(int64_t)):
            raise ValueError(f"the event needs {self.cells.attributes} words")
        return <int64_t*>PyBytes_AS_STRING(words)

    def _read(self, scores):
        """The K scores of an event as a new array, normalised; of several models with NaN where one is missing."""
        cdef object score
        cdef F64 out
        cdef Index k, given = 0
        if self.models > 0:
            if type(scores) is not list or len(<list>scores) != self.K:
                return self._check_score(scores)
            score = numpy.empty(self.K)
            out = F64_of(score, "scores")
            for k in range(self.K):
                out.data[k] = NAN
                if (<list>scores)[k] is not None:
                    if not PyFloat_CheckExact((<list>scores)[k]):
                        return self._check_score(scores)
                    out.data[k] = PyFloat_AS_DOUBLE((<list>scores)[k])
                given += 0.0 <= out.data[k] <= 1.0
                if out.data[k] < 0.0 or out.data[k] > 1.0:
                    given = -self.K
            return score if given > 0 else self._check_score(scores)  # it says what is wrong
        if type(scores) is list and len(<list>scores) == self.K:
            score = numpy.empty(self.K)
            out = F64_of(score, "scores")
            for k in range(self.K):
                if not PyFloat_CheckExact((<list>scores)[k]):
                    return self._check_score(scores)
                out.data[k] = PyFloat_AS_DOUBLE((<list>scores)[k])
        elif type(scores) is numpy.ndarray and scores.shape == (self.K,) and scores.dtype == numpy.float64:
            score = numpy.array(scores)
            out = F64_of(score, "scores")
        else:
            return self._check_score(scores)
        if k_core_vector_ready(self.K, out, self.logits)[0] != 0:
            return self._check_score(scores)  # it says what is wrong
        return score

    # ---- a forecast -------------------------------------------------------------------------------------------------

    @cython.critical_section
    def _forecast(self, Stream stream, score, bytes words=None):
        """Make a forecast, and count it; the watchers are told later.

        `score` is a number, or of K classes a checked array.
        """
        cdef object pending = None
        cdef int64_t events = <int64_t>self.stats_of(stream._slot)[EVENTS] + 1
        if self.watch is not None:
            watched = score[1] if self.is_pair else score
            if self.models > 0:
                watched = self.peeked_models(stream, F64_of(score, "score"))
            pending = self.watch.forecast, (stream._slot, events, watched)
        forecast = self.forecast_of(stream, score, self.checked_words(words))
        if pending is not None:
            self._pending = pending
        return forecast

    # ---- parts of a step that happens whole: see `all_at_once` -------------------------------------------------------

    def _take(self, Stream stream, state, int64_t more, pending=None):
        """Take the state that so many more events have left (None: it was moved where it lies)."""
        cdef F64 row = self.row_of(stream._slot), learnt
        cdef double* stats = self.stats_of(stream._slot)
        if state is not None:
            learnt = F64_of(state, "state")
            memcpy(row.data, learnt.data, row.n * sizeof(double))
        self.clock += more
        stats[EVENTS] += <double>more
        stats[LAST] = <double>self.clock
        self.latest = -1
        if pending is not None:
            self._pending = pending

    def _publish(self, Index count, int64_t clock):
        """So many rows are there, and so many forecasts were made of them."""
        self.count, self.clock, self.latest = count, clock, -1

    def _settle_all(self, list ledgers, slots, events, outcomes, statuses, bint strict, weights, trials):
        """Mark the outcomes of operations, each with the ledger of its slot; where the outcome is NaN it is a forecast.

        A status is 0 where the outcome is to be learnt, 1 where it is learnt already, 2 where another one is, 3 where
        nobody knows any more; slots of those that are not to be learnt become -1. If it is strict, they are an error,
        and nothing has happened.
        """
        cdef I32 places = I32_of(slots, "slots")
        cdef I64 numbers = I64_of(events, "events")
        cdef F64 y = F64_of(outcomes, "outcomes")
        cdef I64 found = I64_of(statuses, "statuses")
        cdef F64 w = F64_of(weights, "weights"), n = F64_of(trials, "trials")
        cdef Ledger ledger
        cdef Index i, k
        cdef int mark
        cdef double weight = 1.0, count = 1.0
        for i in range(y.n):
            ledger = ledgers[i]
            ledger.close_until(<int64_t>self.stats_of(places.data[i])[EVENTS])
            ledger.left = <int64_t>(self.stats_of(places.data[i])[EVENTS] - self.row_of(places.data[i]).data[N])
        for i in range(y.n):
            ledger = ledgers[i]
            if y.data[i] != y.data[i]:
                ledger.left += 1
                continue
            if found.data[i] == 0:
                mark = ledger.mark_of(numbers.data[i])
                if w.n > 0:
                    weight = w.data[i]
                if n.n > 0:
                    count = n.data[i]
                if mark == OPEN_MARK and ledger.left > 0:
                    ledger.reserve(numbers.data[i], weight != 1.0 or count != 1.0)
                    ledger.note(numbers.data[i], y.data[i], weight, count)
                    ledger.left -= 1
                    continue
                if mark == CLOSED_MARK:
                    found.data[i] = 3 if numbers.data[i] < ledger.given_up else 1
                elif mark == OPEN_MARK:
                    found.data[i] = 2
                else:
                    found.data[i] = 1 if ledger.is_same_as(numbers.data[i], y.data[i], weight, count) else 2
            if strict:
                for k in range(i):
                    if y.data[k] == y.data[k]:
                        (<Ledger>ledgers[k]).open_again(numbers.data[k])
                raise OutcomeConflict(f"receipt must be brought once, got one whose outcome is learnt - at row {i}")
            places.data[i] = -1

    def _account(self, list ledgers, slots, Index count, int64_t clock):
        """Each ledger accounts for all forecasts of its slot."""
        cdef I32 places = I32_of(slots, "slots")
        cdef Index i
        self._publish(count, clock)
        for i in range(places.n):
            if places.data[i] >= 0:
                (<Ledger>ledgers[i]).known = <int64_t>self.stats_of(places.data[i])[EVENTS]

    @cython.critical_section
    def _open_and_forecast(self, Stream stream, score, Index count):
        """The first forecast of a new stream, whose row was made ready: from here on it is there."""
        cdef Index before = self.count
        self.count = count
        try:
            return self._forecast(stream, score, None)
        except BaseException:
            self.count = before
            raise

    @cython.final
    cdef forecast_of(self, Stream stream, score, int64_t* words):
        if self.K == 1:
            return self.forecast(stream, score, words)
        if self.is_pair:
            return MultiForecast._of_binary(self.forecast(stream, score[1], NULL), self.labels)
        if self.models > 0:
            return self.forecast_models(stream, F64_of(score, "score"))
        return self.forecast_classes(stream, score)

    @cython.final
    cdef Forecast forecast(self, Stream stream, double score, int64_t* words):
        cdef Played played
        cdef Forecast forecast = Forecast.__new__(Forecast)
        cdef F64 row = self.row_of(stream._slot)
        cdef int64_t event = <int64_t>self.stats_of(stream._slot)[EVENTS]
        if stream._ledger.known != event:
            stream._ledger.close_until(event)
        if self.maker is not None:
            forecast.groups = self.words_as_bytes(words)
        self.latest = -1
        played = self.ask(row, score, 0.0, words, self.scratch)
        if self.spec.draws and played.low != played.high:  # the draw matters: only now is it worth making
            forecast.has = HEDGED
            forecast.extra[0], forecast.extra[1], forecast.extra[2], forecast.extra[3] = (
                played.low, played.weight, played.high, 1.0 - played.weight
            )
            played = self.ask(row, score, uniform_of(stream._draws_key, <uint64_t>event), words, self.scratch)
        if self.spec.band > 0:
            forecast.has = BANDED
            ask_how_sure(&self.spec, row, &self.asked, played.forecast, self.scratch, F64(&forecast.extra[0], 4))
        (<PyFloatObject*>forecast).ob_fval = played.forecast
        forecast.watched_score, forecast.expert = score, k_core_weights_in_truth(self.spec.odds, self.asked.expert)
        forecast.bin, forecast.cell = played.bin, played.cell
        memcpy(forecast.receipt, self.receipt, self.scratch.n * sizeof(double))
        self.sign(stream, forecast, event)
        return forecast

    @cython.final
    cdef Forecast forecast_models(self, Stream stream, F64 scores):
        cdef Forecast forecast = Forecast.__new__(Forecast)
        cdef F64 row = self.row_of(stream._slot)
        cdef int64_t event = <int64_t>self.stats_of(stream._slot)[EVENTS]
        if stream._ledger.known != event:
            stream._ledger.close_until(event)
        forecast.wide = PyBytes_FromStringAndSize(NULL, self.scratch.n * sizeof(double))
        self.latest = -1
        k_core_several_put_scores(self.models, scores, self.scratch)
        (<PyFloatObject*>forecast).ob_fval = forecast.watched_score = k_core_several_ask(self.models, row, self.scratch, self.work)
        memcpy(PyBytes_AS_STRING(forecast.wide), self.scratch.data, self.scratch.n * sizeof(double))
        forecast.expert = self.scratch.data[SEVERAL_MIXED]
        forecast.bin = forecast.cell = k_core_calibeating_bin_of(forecast.expert, self.spec.bins)
        self.sign(stream, forecast, event)
        return forecast

    @cython.final
    cdef inline void sign(self, Stream stream, Forecast forecast, int64_t event) noexcept:
        """Whose forecast it is, and which one; it is counted."""
        forecast.event, forecast.seen = event, <int64_t>self.row_of(stream._slot).data[N]
        forecast.name, forecast.generation, forecast.width = stream._name, self.generation, self.scratch.n
        forecast.origin = self.origin
        self.count_forecast(stream, event)

    @cython.final
    cdef inline void count_forecast(self, Stream stream, int64_t event) noexcept:
        cdef double* stats = self.stats_of(stream._slot)
        self.latest, self.latest_slot = event, stream._slot
        self.clock += 1
        stream._ledger.known = event + 1
        stats[EVENTS] = <double>(event + 1)
        stats[LAST] = <double>self.clock

    @cython.final
    cdef Played ask(self, F64 row, double score, double u, int64_t* words, F64 receipt) noexcept:
        cdef Played played
        if self.maker is not None:
            ask_grouped(
                &self.spec, &self.cells, row, score, u, I64(words, self.cells.attributes), receipt, &self.asked, &played
            )
            return played
        if self.is_auto:
            return ask_auto(&self.spec, row, score, receipt, &self.asked)
        if self.small:
            return ask_small(&self.spec, row, score, u, receipt, &self.asked)
        return ask_any(&self.spec, row, score, u, receipt, &self.asked)

    @cython.final
    cdef MultiForecast forecast_classes(self, Stream stream, score):
        cdef MultiForecast forecast = MultiForecast.__new__(MultiForecast)
        cdef F64 asked, probabilities, lanes, row = self.row_of(stream._slot)
        cdef Index k, best = 0
        cdef int64_t event = <int64_t>self.stats_of(stream._slot)[EVENTS]
        if stream._ledger.known != event:
            stream._ledger.close_until(event)
        forecast.probabilities, forecast.score = numpy.empty(self.K), score
        forecast.lanes = numpy.empty(self.spec.receipt)
        asked, probabilities = F64_of(score, "score"), F64_of(forecast.probabilities, "probabilities")
        lanes = F64_of(forecast.lanes, "lanes")
        # From here to the count no other thread runs: NumPy, which may let go of the interpreter's lock, is not called.
        self.latest = -1
        k_core_vector_predict(self.spec.vector, self.K, row, asked, self.remembered, self.work, probabilities)
        for k in range(self.spec.receipt):
            lanes.data[k] = self.remembered.data[k]
        forecast.event, forecast.seen = event, <int64_t>row.data[N]
        forecast.name, forecast.generation, forecast.origin = stream._name, self.generation, self.origin
        self.count_forecast(stream, event)
        for k in range(1, self.K):
            if probabilities.data[k] > probabilities.data[best]:
                best = k
        forecast.label = self.labels[best]
        forecast.probabilities.flags.writeable = forecast.score.flags.writeable = forecast.lanes.flags.writeable = False
        return forecast

    @cython.critical_section
    def _peek(self, Stream stream, score, bytes words=None):
        """What `_forecast` would say of one event: a number, or K of them; where it says how sure it is, that too."""
        cdef object probabilities
        cdef F64 out
        cdef double[4] extra
        if self.spec.band > 0:
            probability = self.peeked(stream, score, NULL, F64(&extra[0], 4))
            return probability, extra[0], extra[1], extra[2], REASONS[<Index>extra[3]]
        if self.K == 1:
            return self.peeked(stream, score, self.checked_words(words), F64(NULL, 0))
        if self.models > 0:
            return self.peeked_models(stream, F64_of(score, "score"))
        probabilities = numpy.empty(self.K)
        out = F64_of(probabilities, "probabilities")
        if self.is_pair:
            out.data[1] = self.peeked(stream, score[1], NULL, F64(NULL, 0))
            out.data[0] = 1.0 - out.data[1]
        else:
            self.latest = -1
            k_core_vector_predict(
                self.spec.vector, self.K, self.row_of(stream._slot), F64_of(score, "score"), self.remembered, self.work, out
            )
        return probabilities

    @cython.final
    cdef double peeked_models(self, Stream stream, F64 scores) noexcept:
        self.latest = -1
        k_core_several_put_scores(self.models, scores, self.scratch)
        return k_core_several_ask(self.models, self.row_of(stream._slot), self.scratch, self.work)

    @cython.final
    cdef double peeked(self, Stream stream, double score, int64_t* words, F64 extra) noexcept:
        cdef double[MOST_RECEIPT] receipt
        cdef Played played
        cdef F64 asked = F64(&receipt[0], self.scratch.n), row = self.row_of(stream._slot)
        cdef uint64_t event = <uint64_t>self.stats_of(stream._slot)[EVENTS]
        cdef double u = uniform_of(stream._draws_key, event) if self.spec.draws else 0.0
        self.latest = -1
        played = self.ask(row, score, u, words, asked)
        if extra.n > 0:
            ask_how_sure(&self.spec, row, &self.asked, played.forecast, asked, extra)
        return played.forecast

    # ---- its outcome ------------------------------------------------------------------------------------------------

    @cython.critical_section
    def _learn(self, Stream stream, forecast, double y, double weight, double trials):
        """Learn the outcome of a forecast of this stream, and mark it; the watchers are told later."""
        cdef object pending = None
        if self.watch is not None:
            given = (<MultiForecast?>forecast).binary if self.is_pair else forecast
            pending = self.watch.outcome, (stream._slot, given, y, *self.watch.moment(stream._slot))
        self.learn(stream, forecast, Outcome(y, weight, trials))
        if pending is not None:
            self._pending = pending

    @cython.final
    cdef int learn(self, Stream stream, given, Outcome outcome) except -1:
        cdef Ledger ledger = stream._ledger
        cdef Forecast forecast
        cdef bint is_weighted = outcome.weight != 1.0 or outcome.trials != 1.0
        if self.labels is None or self.is_pair:
            forecast = (<MultiForecast?>given).binary if self.is_pair else given
            ledger.reserve(forecast.event, is_weighted)
            self.move(stream._slot, forecast, outcome)
            ledger.note(forecast.event, outcome.y, outcome.weight, outcome.trials)
        else:
            ledger.reserve((<MultiForecast?>given).event, is_weighted)
            self.move_classes(stream._slot, <MultiForecast>given, outcome)
            ledger.note((<MultiForecast>given).event, outcome.y, outcome.weight, outcome.trials)
        self.latest = -1
        return 0

    @cython.final
    cdef int remember(self, Index slot, Forecast forecast, double y) except -1:
        """Note an outcome that is about to be learnt, for a later fit. False: more is due, such as the fit itself.

        What stands in the columns behind as many outcomes as the row has learnt is not there yet.
        """
        cdef int64_t learnt = <int64_t>self.row_of(slot).data[N], at = learnt - self.past_dropped
        cdef F64 x1 = self.past_x1
        cdef double score = k_core_weights_in_log(self.spec.odds, forecast.watched_score)
        if learnt + 1 >= self.past_until or (<object>self).refitter.past is not self.kept_past:
            return False
        if at < self.past_y.n:
            if x1.n > 0:
                x1 = F64_part(x1, at, at + 1)
            k_core_features_features_of_all(
                self.spec.features, self.spec.clip, F64(&score, 1), F64_part(self.past_x0, at, at + 1), x1
            )
            self.past_y.data[at] = y
        return True

    @cython.final
    cdef void move(self, Index slot, Forecast forecast, Outcome outcome) noexcept:
        """Learn on the row."""
        cdef double[MOST_RECEIPT] receipt
        cdef F64 row = self.row_of(slot)
        cdef double t = self.stats_of(slot)[EVENTS]
        if self.pool.learns:
            teach_pool(&self.spec, &self.pool, F64(&forecast.watched_score, 1), outcome)
        if self.models > 0:
            self.move_models(row, t, forecast, outcome.y)
        elif self.maker is not None:
            learn_grouped(
                &self.spec, &self.cells, row, t, forecast.watched_score, forecast.cell, outcome,
                I64(<int64_t*>PyBytes_AS_STRING(forecast.groups), self.cells.attributes),
                F64(&forecast.receipt[0], forecast.width),
            )
        elif self.is_latest(slot, forecast.event, forecast.seen, forecast.origin):  # nothing has moved since it was asked
            if self.is_auto:
                settle_auto(&self.spec, row, t, &self.asked, outcome, self.scratch)
            else:
                settle_any(&self.spec, row, t, &self.asked, forecast.cell, outcome, self.scratch, self.small)
        else:
            memcpy(receipt, forecast.receipt, forecast.width * sizeof(double))
            learn_late(
                &self.spec, row, t, forecast.watched_score, forecast.cell, outcome, F64(&receipt[0], self.spec.receipt), self.small
            )
        if self.counts_losses:
            row.n = self.stride
            k_core_stats_add_losses(
                row, self.width, self.spec.odds, forecast.watched_score, PyFloat_AS_DOUBLE(forecast), outcome
            )

    @cython.final
    cdef void move_models(self, F64 row, double t, Forecast forecast, double y) noexcept:
        """Of several models. A receipt of fewer, before one more was added, has none of its scores."""
        cdef double[MOST_SEVERAL] receipt
        cdef bint is_fresh = self.is_latest(0, forecast.event, forecast.seen, forecast.origin)
        cdef Index at
        memcpy(receipt, PyBytes_AS_STRING(forecast.wide), forecast.width * sizeof(double))
        for at in range(forecast.width, self.spec.receipt):
            receipt[at] = -1.0 if (at - SEVERAL_OWN) % RECEIPT_NUMBERS == RECEIPT_SCORE else 0.0
        k_core_several_settle(self.models, row, t, y, F64(&receipt[0], self.spec.receipt), self.work, is_fresh)

    @cython.final
    cdef inline bint is_latest(self, Index slot, int64_t event, int64_t seen, origin) noexcept:
        return (
            event == self.latest and slot == self.latest_slot and origin is self.origin
            and seen == <int64_t>self.row_of(slot).data[N]
        )

    @cython.final
    cdef int move_classes(self, Index slot, MultiForecast forecast, Outcome outcome) except -1:
        cdef F64 probabilities = F64_of(forecast.probabilities, "probabilities")
        cdef F64 lanes = F64_of(forecast.lanes, "lanes"), score = F64_of(forecast.score, "score")
        cdef F64 row = self.row_of(slot)
        cdef double t = self.stats_of(slot)[EVENTS]
        if self.is_latest(slot, forecast.event, forecast.seen, forecast.origin):  # the scratch is still about it
            k_core_vector_settle(self.spec.vector, self.K, row, t, outcome, self.remembered, self.work, probabilities)
        else:
            k_core_vector_update(self.spec.vector, self.K, row, t, outcome, lanes, self.work, probabilities)
        if self.pool.learns:
            teach_pool(&self.spec, &self.pool, score, outcome)
        if self.counts_losses:
            row.n = self.stride
            k_core_stats_add_class_losses(row, self.width, score, probabilities, outcome)
        return 0


@cython.auto_pickle(False)  # `Calibrator` knows how
cdef class Stream:
    """One stream: a row of a host, its ledger, and what is on its receipts. It serves single events."""

    cdef readonly StreamRows _rows
    cdef public Index _slot
    cdef public int64_t _moves  # that the slot is right for
    cdef public object _key  # of the stream in a bank; None alone
    cdef public Ledger _ledger
    cdef readonly uint64_t _name  # on its receipts
    cdef uint64_t _draws_key
    cdef public int64_t _begun  # the first event of this generation: earlier receipts may be of any one

    def _stand_on(self, StreamRows rows not None, Index slot, Ledger ledger not None, uint64_t name, uint64_t draws_key, int64_t begun=0, key=None):
        """Be the stream of this row."""
        self._rows, self._ledger, self._name, self._draws_key = rows, ledger, name, draws_key
        self._slot, self._moves, self._begun, self._key = slot, rows.moves, begun, key

    @cython.critical_section
    def predict(self, score, groups=None):
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        `groups` has the values of the attributes, where the calibrator has groups: a dict, or a sequence in their order,
        which is faster. Of many classes `score` has K numbers, and there are no groups.

        Raises
        ------
        InvalidInput : the score is no number in [0, 1] (or no K probabilities of sum 1, or K finite logits); a group is
            missing or unknown, or its value is none that it can have.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        cdef double s = 0.0
        cdef StreamRows rows = self._rows
        cdef int64_t[MOST_ATTRIBUTES] words
        if rows is None:
            raise InvalidInput(NOT_MADE)
        if rows.K == 1:
            if PyFloat_CheckExact(score) and 0.0 <= PyFloat_AS_DOUBLE(score) <= 1.0:
                s = PyFloat_AS_DOUBLE(score)
            else:
                score = s = check_score(score)
            if rows.maker is not None:
                if rows.maker._gathers:
                    return rows._predict_gathering(self, s, groups)
                rows.read_words(groups, &words[0])
            elif groups is not None:
                rows._refuse_groups()
        else:
            if groups is not None:
                rows._refuse_groups()
            score = rows._read(score)
        if rows.unusual & ~(REFITS | CROWDED) or self._moves != rows.moves:  # the lock is held from the first line to the last
            return rows._predict_slowly(self, score, rows.words_as_bytes(&words[0]) if rows.maker is not None else None)
        if rows.K == 1:
            return rows.forecast(self, s, &words[0])
        return rows.forecast_of(self, score, NULL)

    @cython.critical_section
    def update(self, forecast, outcome, weight=None, of=None):
        """Learn the outcome of a forecast, now or any time later, in any order -> "learnt" or "repeated".

        The same outcome a second time changes nothing ("repeated"), and another one is an `OutcomeConflict`; it does
        not matter whether the receipt is the object itself or was read from JSON, nor whether the calibrator was
        restored from a snapshot in between. How far back this reaches: docs/receipts.md. Of many classes the outcome is
        the label.

        Parameters
        ----------
        forecast : what `predict` gave.
        outcome : 0 or 1; the label, of many classes; the number of ones, with `of`.
        weight : how many events like this one the sample stands for, where the log kept only some. Only ratios within a
            stream matter. With weight 0 the event is settled, and nothing is learnt. docs/how-to/sampled-logs.md.
        of : how many events of this forecast the outcome is: ``update(f, 3, of=50)`` is three ones among fifty.

        Raises
        ------
        InvalidInput : the outcome is not 0 or 1 (or no class), the weight or the count is impossible, the method cannot
            learn weights, or the forecast is no receipt or a damaged one.
        OutcomeConflict : another outcome was learnt for this forecast.
        UnknownForecast : the forecast was made by another calibrator, or is so old that nobody knows whether its
            outcome was learnt.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> first, second = cal.predict(0.9), cal.predict(0.4)
        >>> cal.update(second, 0), cal.update(first, 1), cal.update(first, 1)
        ('learnt', 'learnt', 'repeated')
        >>> cal.outcomes
        2
        >>> cal.update(cal.predict(0.2), 0, weight=20.0), cal.update(cal.predict(0.2), 3, of=50)
        ('learnt', 'learnt')
        """
        cdef double y, w = 1.0, trials = 1.0
        cdef StreamRows rows = self._rows
        cdef int64_t event
        cdef bint is_own
        if rows is None:
            raise InvalidInput(NOT_MADE)
        if weight is not None or of is not None:
            if weight is not None:
                w = check_weight(weight)
            if of is not None:
                if rows.labels is not None:
                    rows._check_weights(False, True)
                trials = check_trials(outcome, of)
            rows._check_weights(w != 1.0, trials != 1.0)
        if rows.labels is None:
            if type(forecast) is not Forecast:
                raise not_a_receipt(forecast, "Forecast", outcome)
            event = (<Forecast>forecast).event
            is_own = (<Forecast>forecast).origin is rows.origin and (<Forecast>forecast).name == self._name
            if trials != 1.0:
                y = outcome / trials if trials > 0.0 else 0.0
            elif PyLong_CheckExact(outcome) and (outcome is ZERO_OBJECT or outcome is ONE_OBJECT):
                y = 1.0 if outcome is ONE_OBJECT else 0.0
            else:
                y = check_outcome(outcome)
        else:
            if type(forecast) is not MultiForecast:
                raise not_a_receipt(forecast, "MultiForecast", outcome)
            event = (<MultiForecast>forecast).event
            is_own = (<MultiForecast>forecast).origin is rows.origin and (<MultiForecast>forecast).name == self._name
            found = rows.columns.get(outcome) if type(outcome) is str or type(outcome) is int else None
            y = rows._check_label(outcome) if found is None else found
        if (
            is_own and rows.unusual & ~(CROWDED | REFITS) == 0 and self._moves == rows.moves
            and self._ledger.mark_of(event) == OPEN_MARK
            and (rows.unusual & REFITS == 0 or (rows.K == 1 and w == trials == 1.0 and rows.remember(self._slot, forecast, y)))
        ):
            rows.learn(self, forecast, Outcome(y, w, trials))
            if rows.unusual & CROWDED and rows.row_of(self._slot).data[rows.cells.start + EVICTED] >= rows.cells.slots:
                rows.after_learning()
            return "learnt"
        return rows._update_slowly(self, forecast, y, is_own, w, trials)


# ---- steps that happen whole -----------------------------------------------------------------------------------------

cdef set threads_at_work = set()  # that are in the middle of a step: a fork waits for their end
cdef Index tasks_at_work = 0  # of such steps, in threads of their own
cdef bint is_forking = False


def before_fork():
    """Wait until no step of another thread is at work, and let none begin.

    A handler of signals may fork in the middle of a step of its own thread: then the tasks of that step are waited for.
    """
    global is_forking
    is_forking = True
    while tasks_at_work > 0 or len(threads_at_work - {get_ident()}) > 0:
        sleep(0.0005)


def after_fork():
    """Let steps begin again."""
    global is_forking
    is_forking = False


def all_at_once(list calls):
    """Make calls of compiled functions, one after another: no signal is heard before the last one has returned.

    Only the first may fail: then nothing has happened. A signal that `outside_of_signals` has heard is raised at the end.
    """
    cdef tuple call
    cdef object signal = None, thread = get_ident()
    cdef bint is_first = True, is_inner = thread in threads_at_work
    while is_forking and not is_inner:
        sleep(0.0005)
    threads_at_work.add(thread)
    try:
        for call in calls:
            try:
                call[0](*<tuple>call[1])
            except BaseException as error:
                if is_first:
                    raise
                signal = error
            is_first = False
    finally:
        if not is_inner:
            threads_at_work.discard(thread)
    if signal is not None:
        raise signal


def outside_of_signals(list tasks):
    """Do each task (a function and its arguments) in a thread of its own, and wait for all of them.

    Python tells other threads of no signal. One that comes meanwhile is raised in the caller when all is done. Where the
    system has no more threads to give, the caller does the work. An error of a task is raised after all have ended.
    It is called by `all_at_once` only.
    """
    global tasks_at_work
    cdef object ended = SimpleQueue()
    cdef list errors = []
    cdef object signal = None
    cdef Index left = 0
    for task in tasks:
        tasks_at_work += 1
        try:
            start_new_thread(_do_task, (task, ended, errors))
        except Exception:
            _do_task(task, ended, errors)
        left += 1
    while left > 0:
        try:
            ended.get()
            left -= 1
        except BaseException as error:  # a signal: its handler runs while the queue is waited for
            signal = error
    if errors:
        raise errors[0]
    if signal is not None:
        raise signal


def _do_task(tuple task, ended, list errors):
    global tasks_at_work
    if threading.gettrace() is not None:  # debuggers and `coverage` follow these threads like those of `threading`
        sys.settrace(threading.gettrace())
    try:
        task[0](*<tuple>task[1])
    except BaseException as error:
        errors.append(error)
    tasks_at_work -= 1
    ended.put(True)


def not_a_receipt(given, str kind, outcome):
    """The error of an `update` with something else than a forecast."""
    if isinstance(outcome, (Forecast, MultiForecast)):
        hint = " - the order is update(forecast, outcome)"
    elif isinstance(given, (str, bytes, bytearray)):
        hint = f" - {kind}.from_json(text) makes one of it"
    elif isinstance(given, Mapping):
        hint = f" - {kind}.from_dict(data) makes one of it, as {kind}.from_json(text) does of its text"
    elif isinstance(given, (Real, numpy.ndarray, Sequence)):
        hint = " - keep what predict gave until its outcome comes, not its number alone"
    else:
        hint = ""
    return InvalidInput(f"forecast must be a {kind} made by predict, got {type(given).__name__}{hint}")


# For AUTO, and for methods without a receipt, what a kernel does not need is a constant: the compiler leaves it out.

cdef Played ask_small(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    cdef Spec small = spec[0]
    small.receipt, small.mixes, small.guard = 0, False, 0
    asked[0] = k_core_kernel_ask(small, row, score, receipt)
    return k_core_kernel_play(small, row, asked[0], u, receipt)


cdef Played ask_any(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    asked[0] = k_core_kernel_ask(spec[0], row, score, receipt)
    return k_core_kernel_play(spec[0], row, asked[0], u, receipt)


cdef Played ask_auto(Spec* spec, F64 row, double score, F64 receipt, Asked* asked) noexcept nogil:
    cdef Spec auto = k_core_kernel_as_auto(spec[0])
    asked[0] = k_core_kernel_ask(auto, row, score, receipt)
    return k_core_kernel_play(auto, row, asked[0], 0.0, receipt)


cdef apart_void ask_how_sure(
    Spec* spec, F64 row, Asked* asked, double forecast, F64 receipt, F64 numbers
) noexcept nogil:
    k_core_kernel_note_how_sure(spec[0], row, asked[0], forecast, receipt, numbers)


# With groups. They stand apart: calls without groups shall not pay for their room on the stack.

cdef apart_void ask_grouped(
    Spec* spec, Cells* cells, F64 row, double score, double u, I64 words, F64 receipt, Asked* asked, Played* played
) noexcept nogil:
    asked[0] = k_core_kernel_ask(spec[0], row, score, receipt)
    played[0] = k_core_groups_play_grouped(spec[0], cells[0], row, asked[0], u, words, cells.found, receipt)
    asked.expert = receipt.data[cells.receipt + GROUPED_EXPERT]  # the one before calibeating


cdef apart_void teach_pool(Spec* spec, Pool* pool, F64 score, Outcome outcome) noexcept nogil:
    k_hosts_pool_learn(spec[0], pool[0], score, outcome)


cdef apart_void learn_grouped(
    Spec* spec, Cells* cells, F64 row, double t, double score, Index cell, Outcome outcome, I64 words, F64 issued
) noexcept nogil:
    cdef double[MOST_RECEIPT] receipt  # kernels write to it
    cdef Asked asked = k_core_kernel_ask_again(spec[0], row, score)
    memcpy(receipt, issued.data, issued.n * sizeof(double))
    k_core_groups_settle_grouped(spec[0], cells[0], row, t, asked, cell, outcome, words, F64(&receipt[0], issued.n))


cdef void settle_any(
    Spec* spec, F64 row, double t, Asked* asked, Index cell, Outcome outcome, F64 receipt, bint small
) noexcept nogil:
    cdef Spec less = spec[0]
    if not k_core_weights_is_plain(row, outcome):
        k_core_kernel_settle_apart(spec[0], row, t, asked[0], cell, outcome, receipt)
    elif small:
        less.receipt, less.mixes, less.guard = 0, False, 0
        k_core_kernel_settle_plain(less, row, t, asked[0], cell, outcome.y, receipt)
    else:
        k_core_kernel_settle_plain(spec[0], row, t, asked[0], cell, outcome.y, receipt)


cdef void settle_auto(Spec* spec, F64 row, double t, Asked* asked, Outcome outcome, F64 receipt) noexcept nogil:
    if k_core_weights_is_plain(row, outcome):
        k_core_kernel_settle_plain(k_core_kernel_as_auto(spec[0]), row, t, asked[0], 0, outcome.y, receipt)
    else:  # which would copy the spec of the line above
        k_core_kernel_settle_apart(spec[0], row, t, asked[0], 0, outcome, receipt)


cdef void learn_late(
    Spec* spec, F64 row, double t, double score, Index cell, Outcome outcome, F64 receipt, bint small
) noexcept nogil:
    cdef Asked asked = k_core_kernel_ask_again(spec[0], row, score)
    settle_any(spec, row, t, &asked, cell, outcome, receipt, small)


# ---- draws ----------------------------------------------------------------------------------------------------------

cdef inline double uniform_of(uint64_t key, uint64_t event) noexcept nogil:
    """The draw of one event: SplitMix64 at position `event`, 53 bits of it."""
    cdef uint64_t x = key + event * <uint64_t>0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return <double>((x ^ (x >> 31)) >> 11) * 1.1102230246251565e-16  # 2^-53


def draw_in_order(uint64_t key, uint64_t first, double[::1] draws):
    """The draws of the events from `first` on."""
    cdef Index i
    with nogil:
        for i in range(draws.shape[0]):
            draws[i] = uniform_of(key, first + <uint64_t>i)


def draw_next(const uint64_t[:] keys, double[::1] counts, const int32_t[:] slots, double[::1] draws):
    """The draw of each event, the next of the stream at its slot; `counts` has how many each stream has had."""
    cdef Index i, slot
    with nogil:
        for i in range(draws.shape[0]):
            slot = slots[i]
            draws[i] = uniform_of(keys[slot], <uint64_t>counts[slot])
            counts[slot] += 1.0


def draw_each(const uint64_t[:] keys, const uint64_t[:] events, double[::1] draws):
    """The draws of these events, each of the stream with its key."""
    cdef Index i
    with nogil:
        for i in range(draws.shape[0]):
            draws[i] = uniform_of(keys[i], events[i])
