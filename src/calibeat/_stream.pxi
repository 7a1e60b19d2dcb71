# One stream, one event at a time. A method written here is one step to Python: no signal and no other thread comes between
# its lines. All that can fail comes before the first line that changes something. In a free-threaded Python, methods that read
# or move the row are critical sections of their stream; they cost nothing in any other. No section calls another one of the
# same stream before it is done: the inner one would let other threads in.

import json
import math
import numpy
import struct
from collections.abc import Mapping, Sequence
from numbers import Real

from calibeat._util.check import check_number, check_outcome, check_score, check_whole
from calibeat.errors import InvalidInput

cdef object ZERO = 0, ONE = 1  # Python has one object for each
cdef str NO_GROUPS = "groups must be left out, the calibrator has none"
_HEAD = struct.Struct("<BBHIqqqq8s7d")  # see `Forecast.to_bytes`
_FIELDS = ("probability", "score", "expert", "bin", "cell", "event", "seen", "issuer", "lanes")


# ---- a forecast -----------------------------------------------------------------------------------------------------

@cython.no_gc  # it holds a string and an origin, which hold nothing
cdef class Forecast(float):
    r"""What `Calibrator.predict` gives: a probability, and the receipt that `Calibrator.update` wants back.

    Attributes
    ----------
    probability : the forecast as a plain float; ``float(forecast)`` is the same.
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
    words : hashes of the event's groups, one for each attribute; empty where the calibrator has no groups.

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

    The JSON has a version, ``"v": 1``. Any other version is refused; fields that this version does not know are
    ignored.
    """

    cdef readonly double score
    cdef readonly double expert
    cdef readonly Index bin
    cdef readonly Index cell
    cdef readonly int64_t event
    cdef readonly int64_t seen
    cdef readonly str issuer
    cdef object origin  # of one that was made here: whose it is, so that nothing about it need be checked
    cdef Index width
    cdef bint hedges
    cdef double low, high, weight_low, weight_high
    cdef double[MOST_RECEIPT] receipt
    cdef bytes groups  # the words, 8 bytes each; None where there are none

    def __init__(
        self, double probability, double score, double expert, Index bin, Index cell, Index event, Index seen,
        str issuer not None, lanes=(), hedge=(), words=(),
    ):
        cdef Index i
        if self.issuer is not None:  # a stream believes what its own forecasts say
            raise TypeError("a forecast cannot be made again, make another one")
        if len(lanes) > MOST_RECEIPT:
            raise InvalidInput(f"forecast lanes must be at most {MOST_RECEIPT} numbers, got {len(lanes)}")
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
        self.score, self.expert, self.bin, self.cell = score, expert, bin, cell
        self.event, self.seen, self.issuer, self.width, self.hedges = event, seen, issuer, len(lanes), len(hedge) > 0
        for i in range(self.width):
            self.receipt[i] = lanes[i]
        if self.hedges:
            (self.low, self.weight_low), (self.high, self.weight_high) = hedge

    @property
    def probability(self):
        """The forecast, as a plain float."""
        return PyFloat_AS_DOUBLE(self)

    @property
    def lanes(self):
        """What each part of a mixture said."""
        cdef Index i
        return tuple([self.receipt[i] for i in range(self.width)])

    @property
    def words(self):
        """Hashes of the event's groups, one for each attribute."""
        return () if self.groups is None else struct.unpack(f"={len(self.groups) // 8}Q", self.groups)

    @property
    def hedge(self):
        """The candidates if there are two, or nothing."""
        return ((self.low, self.weight_low), (self.high, self.weight_high)) if self.hedges else ()

    @property
    def candidates(self):
        """The points that could have been said, and their probabilities."""
        return self.hedge or ((self.probability, 1.0),)

    def __repr__(self):
        values = {name: getattr(self, name) for name in (*_FIELDS, "hedge", "words") if name != "words" or self.words}
        return f"Forecast({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __reduce__(self):
        return Forecast, tuple(getattr(self, name) for name in (*_FIELDS, "hedge", "words"))

    def __replace__(self, **changes):
        """A receipt with other fields: ``copy.replace(forecast, event=3)`` of Python 3.13."""
        fields = {name: getattr(self, name) for name in (*_FIELDS, "hedge", "words")}
        if unknown := changes.keys() - fields.keys():
            raise TypeError(f"a forecast has no field {min(unknown)!r}")
        return Forecast(**{**fields, **changes})

    # ---- as a number ------------------------------------------------------------------------------------------------

    def __hash__(self):
        return hash(self.probability)

    def __richcmp__(self, other, int operation):
        """As the probability; two forecasts are equal if all their fields are."""
        if isinstance(other, Forecast) and (operation == Py_EQ or operation == Py_NE):
            return (self.__reduce__() == other.__reduce__()) == (operation == Py_EQ)
        return PyObject_RichCompare(self.probability, other, operation)

    # ---- as JSON ----------------------------------------------------------------------------------------------------

    def to_dict(self):
        """The fields by name, JSON-able."""
        data = {"v": RECEIPT_FORMAT, **{name: getattr(self, name) for name in _FIELDS}, "candidates": self.candidates}
        if self.groups is not None:  # 64 bits are more than a number of JSON holds everywhere
            data["words"] = [f"{word:016x}" for word in self.words]
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
        needed = (*_FIELDS, "candidates")
        if missing := [name for name in needed if name not in data]:
            raise InvalidInput(f"forecast must have {', '.join(needed)}, got none for {missing[0]!r} - in {data!r:.80}")
        numbers = [check_number(f"forecast {name}", data[name]) for name in ("probability", "score", "expert")]
        places = [check_whole(f"forecast {name}", data[name], 0, 2**63 - 1) for name in ("bin", "cell", "event", "seen")]
        if not isinstance(data["issuer"], str):
            raise InvalidInput(f"forecast issuer must be a string, got {data['issuer']!r:.60}")
        if isinstance(data["lanes"], str) or not isinstance(data["lanes"], Sequence):
            raise InvalidInput(f"forecast lanes must be a list of numbers, got {data['lanes']!r:.60}")
        lanes = tuple([check_number("forecast lane", number) for number in data["lanes"]])
        words = _words(data.get("words", ()))
        return Forecast(*numbers, *places, str(data["issuer"]), lanes, _pairs(data["candidates"]), words)

    # ---- as bytes ---------------------------------------------------------------------------------------------------

    def to_bytes(self):
        """As bytes of one length for each method: 104, and 8 more for each lane (AUTO: 208) and each word of its groups.

        All little-endian. `from_bytes` is the inverse, to the last bit.

        ======  ==============================================================================
        bytes   hold
        ======  ==============================================================================
        0       the version, 1
        1       how many candidates are given: 0 or 2
        2       how many lanes follow
        3       how many words follow
        4-7     the generation: the number behind the issuer's name, 0 if it has none
        8-39    bin, cell, event, seen: whole numbers of 8 bytes
        40-47   the issuer's name: 16 hexadecimal digits
        48-71   probability, score, expert: floats of 8 bytes
        72-103  the two candidates, each a point and its weight: floats, 0 if there are none
        104-    the lanes: floats; then the words: whole numbers of 8 bytes, without a sign
        ======  ==============================================================================

        >>> from calibeat import Calibrator, Forecast
        >>> f = Calibrator("ops").predict(0.25)
        >>> len(f.to_bytes()), Forecast.from_bytes(f.to_bytes()) == f
        (104, True)

        Raises
        ------
        InvalidInput : the receipt was made by hand, with an issuer that is no name of a calibrator.
        """
        name, generation = _signature_of(self.issuer)
        head = _HEAD.pack(
            RECEIPT_FORMAT, 2 * self.hedges, self.width + 256 * len(self.words), generation, self.bin, self.cell, self.event,
            self.seen, name, self.probability, self.score, self.expert,
            self.low, self.weight_low, self.high, self.weight_high,
        )
        return head + struct.pack(f"<{self.width}d{len(self.words)}Q", *self.lanes, *self.words)

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
        if len(data) != _HEAD.size + 8 * (lanes + words):
            raise InvalidInput(f"forecast must have {_HEAD.size + 8 * (lanes + words)} bytes, got {len(data)}")
        _, pairs, _, generation, *counts, name, probability, score, expert, p, u, q, v = _HEAD.unpack_from(data)
        issuer = name.hex() + (f"-{generation:08x}" if generation else "")
        numbers = struct.unpack_from(f"<{lanes}d{words}Q", data, _HEAD.size)
        hedge = ((p, u), (q, v))[:pairs]
        if not words and not pairs and min(counts) >= 0 and math.isfinite(sum(numbers, probability + score + expert)):
            return Forecast(probability, score, expert, *counts, issuer, numbers)
        named = dict(zip(_FIELDS, (probability, score, expert, *counts, issuer, numbers[:lanes])))
        if words:
            named["words"] = [f"{word:016x}" for word in numbers[lanes:]]
        return cls.from_dict({**named, "candidates": hedge, "v": RECEIPT_FORMAT})


# `float` takes one argument and a forecast takes many, which are for `__init__` to read.

cdef newfunc _new_forecast = (<PyTypeObject*>Forecast).tp_new

cdef object _new_of_many(type kind, PyObject* arguments, PyObject* names):
    return _new_forecast(kind, <PyObject*>(), NULL)

(<PyTypeObject*>Forecast).tp_new = <newfunc>_new_of_many


cdef bint _is_hexadecimal(str text, Index digits):
    return len(text) == digits and not text.strip("0123456789abcdef")


def _check_version(version):
    if type(version) is not int or version != RECEIPT_FORMAT:
        raise InvalidInput(
            f"forecast must be a receipt of version {RECEIPT_FORMAT}, got version {version!r:.20} - "
            "another version of calibeat may have made it"
        )


def _words(given):
    """The words of a receipt from outside."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"forecast words must be a list, got {given!r:.60}")
    for word in given:
        if type(word) is not str or not _is_hexadecimal(word, 16):
            raise InvalidInput(f"forecast words must be 16 hexadecimal digits each, got {word!r:.60}")
    return tuple([int(word, 16) for word in given])


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
    cdef readonly str issuer
    cdef readonly Forecast binary
    cdef object origin  # of one that was made here: whose it is, so that nothing about it need be checked

    def __init__(
        self, probabilities, label, score, lanes, Index event, Index seen, str issuer not None, Forecast binary=None
    ):
        if self.issuer is not None:  # a stream believes what its own forecasts say
            raise TypeError("a forecast cannot be made again, make another one")
        self.probabilities, self.score, self.lanes = _fixed(probabilities), _fixed(score), _fixed(lanes)
        self.label, self.event, self.seen, self.issuer, self.binary = label, event, seen, issuer, binary

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
        if missing := [name for name in _FIELDS_OF_CLASSES if name not in data]:
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
        binary = None if data["binary"] is None else Forecast.from_dict(data["binary"])
        return MultiForecast(probabilities, data["label"], score, lanes, *counts, str(data["issuer"]), binary)

    # ---- as bytes ---------------------------------------------------------------------------------------------------

    def to_bytes(self):
        """As bytes of one length for each method and number of classes; little-endian, to the last bit.

        Laid out as `Forecast.to_bytes` says, with 255 in byte 1, the column of `label` as bin, and the number of
        classes as cell. Behind byte 103 stand the probabilities, the scores and the lanes. Two classes give the
        receipt of AUTO.

        >>> from calibeat import MultiCalibrator, MultiForecast
        >>> f = MultiCalibrator(3, method="raw").predict([0.5, 0.25, 0.25])
        >>> MultiForecast.from_bytes(f.to_bytes()) == f
        True

        Raises
        ------
        InvalidInput : the receipt was made by hand, with an issuer that is no name of a calibrator.
        """
        if self.binary is not None:
            return self.binary.to_bytes()
        name, generation = _signature_of(self.issuer)
        column, K = self.column, len(self.probabilities)
        numbers = numpy.concatenate([self.probabilities, self.score, self.lanes])
        head = _HEAD.pack(
            RECEIPT_FORMAT, _CLASSES_FOLLOW, len(numbers) % 65536, generation, column, K, self.event, self.seen,
            name, self.probabilities[column], self.score[column], 0.0, 0.0, 0.0, 0.0, 0.0,
        )
        return head + numbers.astype("<f8").tobytes()

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
        if len(data) < _HEAD.size or data[1] != _CLASSES_FOLLOW:
            return cls._of_binary(Forecast.from_bytes(data), range(2) if classes is None else classes)
        _, _, count, generation, column, K, event, seen, name, *_ = _HEAD.unpack_from(data)
        length = len(data) - _HEAD.size
        if length % 8 or length // 8 % 65536 != count or not 2 <= K <= length // 16 or not 0 <= column < K:
            raise InvalidInput(f"forecast must have the numbers of its classes, got {len(data)} bytes")
        labels = range(K) if classes is None else classes
        if len(labels) != K:
            raise InvalidInput(f"classes must be those of the forecast, {K}, got {len(labels)}")
        numbers = numpy.frombuffer(data, dtype="<f8", offset=_HEAD.size).tolist()
        issuer = name.hex() + (f"-{generation:08x}" if generation else "")
        fields = (numbers[:K], labels[column], numbers[K : 2 * K], numbers[2 * K :], event, seen, issuer, None)
        return cls.from_dict({**dict(zip(_FIELDS_OF_CLASSES, fields)), "v": RECEIPT_FORMAT})

    @classmethod
    def _of_binary(cls, Forecast forecast not None, labels):
        """The receipt of AUTO, which serves two classes, as one of both."""
        cdef MultiForecast made = MultiForecast.__new__(MultiForecast)
        cdef double p = PyFloat_AS_DOUBLE(forecast)
        made.probabilities = _fixed([1.0 - p, p])
        made.score = _fixed([1.0 - forecast.score, forecast.score])
        made.lanes, made.label = _fixed([]), labels[1 if p > 1.0 - p else 0]
        made.event, made.seen, made.issuer, made.binary = forecast.event, forecast.seen, forecast.issuer, forecast
        made.origin = forecast.origin
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
    """The name of a calibrator as bytes, and the number of its generation."""
    name, _, generation = issuer.partition("-")
    if not _is_hexadecimal(name, 16) or not (generation == "" and "-" not in issuer or _is_hexadecimal(generation, 8)):
        raise InvalidInput(f"forecast issuer must be a name made by a calibrator, got {issuer!r:.60}")
    return bytes.fromhex(name), int(generation or "0", 16)



# ---- which events are settled ---------------------------------------------------------------------------------------

cdef class Marks:
    """What `SettledEvents` keeps: the first event that has a mark, and one byte for each event from there on."""

    cdef public tuple span
    cdef public dict others  # the columns of labels that no byte has room for, by event

    cdef void mark_as(self, int64_t event, Index column):
        """An event, which has room for its mark, has learnt this label."""
        (<bytearray>self.span[1])[event - <int64_t>self.span[0]] = min(LEARNT_ZERO + column, LEARNT_OTHER)
        if LEARNT_ZERO + column >= LEARNT_OTHER:
            self.others[event] = column


cdef class LedgerOfStream:
    """What `Ledger` keeps that a single event needs."""

    cdef public Marks settled


# ---- a stream -------------------------------------------------------------------------------------------------------

class NotMade:
    """In the place of the lock of a calibrator whose `__init__` was not called: the first call says so."""

    def __enter__(self):
        raise InvalidInput("calibrator must be made by its __init__, got none: a subclass must call super().__init__()")

    def __exit__(self, *error):
        pass


cdef class Stream:
    """The part of a `Calibrator` that serves single events."""

    cdef Spec spec
    cdef F64 row
    cdef F64 scratch
    cdef double[MOST_RECEIPT] receipt  # of the latest forecast
    cdef Asked asked
    cdef int64_t latest  # the number of that forecast, if nothing was learnt since; -1 if there is none
    cdef uint64_t draws_key
    cdef object origin
    cdef bint small
    cdef Cells cells  # where there are groups
    cdef EventWords maker  # of their words; None where there are none
    cdef public int64_t _events
    cdef bint is_busy
    cdef public bint _is_forked, _is_watched, _is_member, _needs_history
    cdef public bint _has_batch  # cells may hold what a batch has done that was not taken: undo it first
    cdef public bint _is_crowded  # the groups have forgotten many cells, which was said
    cdef public object _row, _lock, _owed, _announce
    cdef public str _signature
    cdef public LedgerOfStream _receipts

    def __cinit__(self, *arguments, **settings):
        self.origin = object()  # whose forecasts it would make: none is of a stream that serves nothing yet
        self._lock = NotMade()

    @property
    def _is_busy(self):
        """Whether a call that takes several steps is at work."""
        return self.is_busy

    @_is_busy.setter
    def _is_busy(self, bint is_busy):
        with cython.critical_section(self):  # what others have begun is done when this is set
            self.is_busy = is_busy

    def _serve(self, spec, row, bint needs_history):
        """Serve this row, which stays where it is."""
        self.spec = Spec_of(spec)
        if self.spec.classes == 0 and self.spec.receipt > MOST_RECEIPT:  # there would be no room for it
            raise ValueError(f"a receipt must have at most {MOST_RECEIPT} numbers, got {self.spec.receipt}")
        self.row = F64_of(row, "row")
        self.scratch = F64(&self.receipt[0], self.spec.receipt)
        self.small = self.spec.receipt == 0
        self._row, self._needs_history = row, needs_history
        self.latest = -1

    def _serve_groups(self, EventWords maker, cells):
        """After `_serve`: look at groups too. The caller keeps the arrays of the cells."""
        self.cells, self.maker, self._is_crowded = Cells_of(cells), maker, False
        self.scratch = F64(&self.receipt[0], self.cells.receipt + GROUPED_NUMBERS)
        self.latest = -1

    def _begin_generation(self, str signature, uint64_t key):
        """Receipts of now carry this signature; those made before are examined like any that have travelled."""
        self.origin, self._signature, self.draws_key = object(), signature, key
        self.latest = -1

    def _is_own(self, Forecast forecast):
        """Whether a forecast was made by this very object, in this generation: then it is sound."""
        return forecast.origin is self.origin

    def _is_latest(self, Forecast forecast):
        """Whether it is the latest one, and nothing was learnt since."""
        return self.is_fresh(forecast)

    cdef bint is_fresh(self, Forecast forecast) noexcept:
        return (
            forecast.event == self.latest and forecast.origin is self.origin
            and forecast.seen == <int64_t>self.row.data[N]
        )

    # ---- a forecast -------------------------------------------------------------------------------------------------

    @cython.critical_section
    def predict(self, score, groups=None):
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        `groups` has the values of the attributes, where the calibrator has groups: a dict, or a sequence in their order,
        which is faster.

        Raises
        ------
        InvalidInput : the score is no number in [0, 1]; a group is missing or unknown, or its value is none that it can
            have.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        cdef double s
        cdef int64_t[MOST_ATTRIBUTES] words
        if PyFloat_CheckExact(score) and 0.0 <= PyFloat_AS_DOUBLE(score) <= 1.0:
            s = PyFloat_AS_DOUBLE(score)
        else:
            s = check_score(score)
        if self.maker is not None:
            self.read_words(groups, &words[0])
        elif groups is not None:
            raise InvalidInput(NO_GROUPS)
        if (
            self.is_busy or self._is_forked or self._is_watched or self._has_batch or self._owed is not None
            or not self._signature
        ):
            if self.maker is not None:
                return self._predict_alone(s, self.words_as_bytes(&words[0]))
            return self._predict_alone(s)  # the lock is held from the first line to the last
        return self.forecast(s, &words[0])

    cdef int read_words(self, groups, int64_t* words) except -1:
        """Put the words of an event's groups where `words` begins."""
        if groups is None:
            raise InvalidInput(f"groups must be {', '.join(self.maker.attributes)}, got none")
        return self.maker.read(groups, words)

    cdef bytes words_as_bytes(self, int64_t* words):
        return PyBytes_FromStringAndSize(<char*>words, self.cells.attributes * sizeof(int64_t))

    def _words(self, groups):
        """The words of an event's groups, as `_forecast` and `_peek` take them; None where there are none."""
        cdef int64_t[MOST_ATTRIBUTES] words
        if self.maker is None:
            if groups is not None:
                raise InvalidInput(NO_GROUPS)
            return None
        self.read_words(groups, &words[0])
        return self.words_as_bytes(&words[0])

    @cython.critical_section
    def _forecast(self, score, bytes words=None):
        """Make a forecast, and count it."""
        return self.forecast(score, self.checked_words(words))

    cdef int64_t* checked_words(self, bytes words) except? NULL:
        if self.maker is None:
            return NULL
        if words is None or PyBytes_GET_SIZE(words) != <Index>(self.cells.attributes * sizeof(int64_t)):
            raise ValueError(f"the event needs {self.cells.attributes} words")
        return <int64_t*>PyBytes_AS_STRING(words)

    cdef Forecast forecast(self, double score, int64_t* words):
        cdef Played played
        cdef Forecast forecast = Forecast.__new__(Forecast)
        cdef object owed = (self._announce, self._events + 1, score) if self._is_watched else None
        forecast.issuer = self._signature or self._sign()
        self.latest = -1
        if self.maker is not None:
            forecast.groups = self.words_as_bytes(words)
        played = self.ask(score, 0.0, words, self.scratch)
        if self.spec.draws and played.low != played.high:  # the draw matters: only now is it worth making
            forecast.hedges = True
            forecast.low, forecast.weight_low, forecast.high, forecast.weight_high = (
                played.low, played.weight, played.high, 1.0 - played.weight
            )
            played = self.ask(score, uniform_of(self.draws_key, <uint64_t>self._events), words, self.scratch)
        (<PyFloatObject*>forecast).ob_fval = played.forecast
        forecast.score, forecast.expert = score, self.asked.expert
        forecast.bin, forecast.cell = played.bin, played.cell
        forecast.event, forecast.seen = self._events, <int64_t>self.row.data[N]
        forecast.width, forecast.origin = self.scratch.n, self.origin
        memcpy(forecast.receipt, self.receipt, self.scratch.n * sizeof(double))
        self.latest = self._events
        self._events += 1
        self._owed = owed
        return forecast

    cdef Played ask(self, double score, double u, int64_t* words, F64 receipt) noexcept:
        cdef Played played
        if self.maker is not None:
            ask_grouped(
                &self.spec, &self.cells, self.row, score, u, I64(words, self.cells.attributes), receipt, &self.asked,
                &played,
            )
            return played
        if self.small:
            return ask_small(&self.spec, self.row, score, u, receipt, &self.asked)
        return ask_any(&self.spec, self.row, score, u, receipt, &self.asked)

    @cython.critical_section
    def _peek(self, double score, bytes words=None):
        """What `_forecast` would say."""
        return self.peeked(score, self.checked_words(words))

    cdef double peeked(self, double score, int64_t* words) noexcept:
        cdef double[MOST_RECEIPT] receipt
        cdef double u = uniform_of(self.draws_key, <uint64_t>self._events) if self.spec.draws else 0.0
        self.latest = -1
        return self.ask(score, u, words, F64(&receipt[0], self.scratch.n)).forecast

    # ---- its outcome ------------------------------------------------------------------------------------------------

    @cython.critical_section
    def update(self, forecast, outcome):
        """Learn the outcome of a forecast, now or any time later, in any order -> "learnt" or "repeated".

        The same outcome a second time changes nothing ("repeated"), and another one is an `OutcomeConflict`; it does
        not matter whether the receipt is the object itself or was read from JSON, nor whether the calibrator was
        restored from a snapshot in between. How far back this reaches: docs/receipts.md.

        Raises
        ------
        InvalidInput : the outcome is not 0 or 1, or the forecast is no receipt or a damaged one.
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
        """
        cdef double y
        cdef Forecast given
        cdef int64_t at
        cdef uint8_t* marks
        cdef tuple span
        if type(forecast) is not Forecast:
            raise not_a_receipt(forecast, "Forecast", outcome)
        given = forecast
        if PyLong_CheckExact(outcome) and (outcome is ZERO or outcome is ONE):
            y = 1.0 if outcome is ONE else 0.0
        else:
            y = check_outcome(outcome)
        if not (
            self.is_busy or self._is_forked or self._is_watched or self._is_member or self._needs_history
            or self._has_batch or self._owed is not None
            or given.origin is not self.origin
        ):
            span = self._receipts.settled.span
            at = given.event - <int64_t>span[0]
            if 0 <= at < PyByteArray_GET_SIZE(span[1]):
                marks = <uint8_t*>PyByteArray_AS_STRING(span[1])
                if marks[at] == 0:
                    self.move(given, y)
                    marks[at] = LEARNT_ZERO + (y == 1.0)
                    if (
                        self.maker is not None and not self._is_crowded
                        and self.row.data[self.cells.start + EVICTED] >= self.cells.slots
                    ):
                        self._warn_of_crowd()
                    return "learnt"
        return self._update_alone(given, y)

    cdef void move(self, Forecast forecast, double y) noexcept:
        """Learn on the row."""
        cdef double[MOST_RECEIPT] receipt
        if self.maker is not None:
            learn_grouped(
                &self.spec, &self.cells, self.row, <double>self._events, forecast.score, forecast.cell, y,
                I64(<int64_t*>PyBytes_AS_STRING(forecast.groups), self.cells.attributes),
                F64(&forecast.receipt[0], forecast.width),
            )
        elif self.is_fresh(forecast):  # nothing has moved since it was asked
            settle_any(&self.spec, self.row, <double>self._events, &self.asked, forecast.cell, y, self.scratch, self.small)
        else:
            memcpy(receipt, forecast.receipt, forecast.width * sizeof(double))
            learn_late(&self.spec, self.row, <double>self._events, forecast.score, forecast.cell, y, F64(&receipt[0], self.spec.receipt), self.small)
        self.latest = -1

    @cython.critical_section
    def _learn(self, forecast, double y):
        """Learn on the row, and nothing else."""
        self.learn(forecast, y)

    cdef int learn(self, forecast, double y) except -1:
        self.move(<Forecast?>forecast, y)
        return 0

    @cython.critical_section
    def _settle(self, forecast, double y, Marks settled, owed, row=None):
        """Learn the outcome, or take the row in which it was learnt; mark it; and note what the monitors are owed."""
        cdef F64 learnt = F64_of(row, "row") if row is not None else self.row
        cdef int64_t event = forecast.event
        if row is None:
            self.learn(forecast, y)
        else:
            memcpy(self.row.data, learnt.data, self.row.n * sizeof(double))
            self.latest = -1
        settled.mark_as(event, <Index>y)
        self._receipts.settled = settled
        self._owed = owed

    @cython.critical_section
    def _take_batch(self, row, int64_t events, Marks settled, owed):
        """Take the row that a batch has left, and all that goes with it. Cells that it changed stay as they are."""
        cdef F64 learnt = F64_of(row, "row")
        memcpy(self.row.data, learnt.data, self.row.n * sizeof(double))
        if self.maker is not None:
            k_core_groups_forget_touched(self.cells)
            self._has_batch = False
        self._events, self._receipts.settled, self._owed = events, settled, owed
        self.latest = -1


# ---- a stream of many classes -----------------------------------------------------------------------------------------

@cython.auto_pickle(False)  # `Calibrator` knows how
cdef class VectorStream(Stream):
    """The part of a `MultiCalibrator` that serves single events. Two classes are served by AUTO, as `Stream` does it."""

    cdef Index K
    cdef bint logits
    cdef dict columns  # of the labels
    cdef tuple labels
    cdef object kept, worked  # hold the memory of the next two
    cdef F64 remembered, work

    def _serve_classes(self, tuple labels, dict columns, bint logits, work):
        """After `_serve`: the labels in the order of their columns, and room for the kernels to work in."""
        self.labels, self.columns, self.K, self.logits = labels, columns, len(labels), logits
        self.kept, self.worked = numpy.zeros(max(1, self.spec.receipt)), work
        self.remembered, self.work = F64_of(self.kept, "receipt"), F64_of(work, "work")

    def _is_own(self, MultiForecast forecast):
        return forecast.origin is self.origin

    def _is_latest(self, MultiForecast forecast):
        return self.is_new(forecast)

    cdef bint is_new(self, MultiForecast forecast) noexcept:
        return (
            forecast.event == self.latest and forecast.origin is self.origin
            and forecast.seen == <int64_t>self.row.data[N]
        )

    # ---- a forecast -------------------------------------------------------------------------------------------------

    @cython.critical_section
    def predict(self, scores, groups=None):
        """Forecast one event of K scores. Nothing is learnt; keep the forecast until the label is known.

        Raises
        ------
        InvalidInput : the scores are not K probabilities of sum 1 (or K finite logits).

        >>> from calibeat import MultiCalibrator
        >>> MultiCalibrator(3, method="raw").predict([0.5, 0.25, 0.25]).probabilities.tolist()
        [0.5, 0.25, 0.25]
        """
        if groups is not None:
            raise InvalidInput(NO_GROUPS)
        score = self._read(scores)
        if self.is_busy or self._is_forked or self._is_watched or self._owed is not None or not self._signature:
            return self._predict_alone(score)
        return self.forecast_classes(score)

    def _read(self, scores):
        """The K scores of an event as a new array, normalised."""
        cdef object score
        cdef F64 out
        cdef Index k
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

    @cython.critical_section
    def _forecast(self, score, words=None):
        """Make a forecast, and count it."""
        return self.forecast_classes(score)

    cdef MultiForecast forecast_classes(self, score):
        cdef MultiForecast forecast
        cdef object owed
        cdef F64 asked, probabilities, lanes
        cdef Index k, best = 0
        if self.spec.classes == 0:
            return MultiForecast._of_binary(self.forecast(score[1], NULL), self.labels)
        forecast = MultiForecast.__new__(MultiForecast)
        owed = (self._announce, self._events + 1, score) if self._is_watched else None
        forecast.issuer = self._signature or self._sign()
        forecast.probabilities, forecast.score = numpy.empty(self.K), score
        forecast.lanes = numpy.empty(self.spec.receipt)
        asked, probabilities = F64_of(score, "score"), F64_of(forecast.probabilities, "probabilities")
        lanes = F64_of(forecast.lanes, "lanes")
        # From here to the count no other thread runs: NumPy, which may let go of the interpreter's lock, is not called.
        self.latest = -1
        k_core_vector_predict(self.spec.vector, self.K, self.row, asked, self.remembered, self.work, probabilities)
        for k in range(self.spec.receipt):
            lanes.data[k] = self.remembered.data[k]
        forecast.event, forecast.seen, forecast.origin = self._events, <int64_t>self.row.data[N], self.origin
        self.latest = self._events
        self._events += 1
        self._owed = owed
        for k in range(1, self.K):
            if probabilities.data[k] > probabilities.data[best]:
                best = k
        forecast.label = self.labels[best]
        forecast.probabilities.flags.writeable = forecast.score.flags.writeable = forecast.lanes.flags.writeable = False
        return forecast

    @cython.critical_section
    def _peek(self, score, words=None):
        """What `_forecast` would say: the probabilities alone."""
        cdef object probabilities = numpy.empty(self.K)
        cdef F64 out = F64_of(probabilities, "probabilities")
        if self.spec.classes == 0:
            out.data[1] = self.peeked(score[1], NULL)
            out.data[0] = 1.0 - out.data[1]
        else:
            self.latest = -1
            k_core_vector_predict(
                self.spec.vector, self.K, self.row, F64_of(score, "score"), self.remembered, self.work, out
            )
        return probabilities

    # ---- its label --------------------------------------------------------------------------------------------------

    @cython.critical_section
    def update(self, forecast, label):
        """Learn the label of a forecast, now or any time later, in any order -> "learnt" or "repeated".

        The same label a second time changes nothing ("repeated"); another one is an `OutcomeConflict`, also when the
        receipt travelled as JSON or the calibrator was restored in between. docs/receipts.md says how far back that
        reaches.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(["cat", "dog", "bird"])
        >>> first, second = cal.predict([0.1, 0.1, 0.8]), cal.predict([0.3, 0.3, 0.4])
        >>> cal.update(second, "cat"), cal.update(first, "bird"), cal.update(first, "bird")
        ('learnt', 'learnt', 'repeated')

        Raises
        ------
        InvalidInput : the label is no class, or the receipt is damaged.
        UnknownForecast : another stream has issued the receipt, or it is too old.
        OutcomeConflict : another label of this event was learnt.
        """
        cdef MultiForecast given
        cdef int64_t at
        cdef Index column
        cdef tuple span
        if type(forecast) is not MultiForecast:
            raise not_a_receipt(forecast, "MultiForecast", label)
        given = forecast
        found = self.columns.get(label) if type(label) is str or type(label) is int else None
        column = self._check_label(label) if found is None else found
        if not (
            self.is_busy or self._is_forked or self._is_watched or self._is_member or self._owed is not None
            or given.origin is not self.origin
        ):
            span = self._receipts.settled.span
            at = given.event - <int64_t>span[0]
            if 0 <= at < PyByteArray_GET_SIZE(span[1]) and (<bytearray>span[1])[at] == 0:
                self.learn(given, column)
                self._receipts.settled.mark_as(given.event, column)
                return "learnt"
        return self._update_alone(given, <double>column)

    cdef int learn(self, given, double y) except -1:
        cdef MultiForecast forecast = <MultiForecast?>given
        cdef Index column = <Index>y
        cdef double issued
        if self.spec.classes == 0:
            self.move(forecast.binary, y)
            return 0
        issued = F64_of(forecast.probabilities, "probabilities").data[column]
        if self.is_new(forecast):  # the scratch is still about it
            k_core_vector_settle(
                self.spec.vector, self.K, self.row, <double>self._events, column, self.remembered, self.work, issued
            )
        else:
            k_core_vector_update(
                self.spec.vector, self.K, self.row, <double>self._events, column, F64_of(forecast.lanes, "lanes"),
                self.work, issued,
            )
        self.latest = -1
        return 0


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


cdef Played ask_small(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    cdef Spec small = spec[0]
    small.receipt, small.mixes, small.guard = 0, False, 0
    asked[0] = k_core_kernel_ask(small, row, score, receipt)
    return k_core_kernel_play(small, row, asked[0], u, receipt)


cdef Played ask_any(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    asked[0] = k_core_kernel_ask(spec[0], row, score, receipt)
    return k_core_kernel_play(spec[0], row, asked[0], u, receipt)


# With groups. They stand apart: calls without groups shall not pay for their room on the stack.

cdef apart_void ask_grouped(
    Spec* spec, Cells* cells, F64 row, double score, double u, I64 words, F64 receipt, Asked* asked, Played* played
) noexcept nogil:
    asked[0] = k_core_kernel_ask(spec[0], row, score, receipt)
    played[0] = k_core_groups_play_grouped(spec[0], cells[0], row, asked[0], u, words, cells.found, receipt)
    asked.expert = receipt.data[cells.receipt + GROUPED_EXPERT]  # the one before calibeating


cdef apart_void learn_grouped(
    Spec* spec, Cells* cells, F64 row, double t, double score, Index cell, double y, I64 words, F64 issued
) noexcept nogil:
    cdef double[MOST_RECEIPT] receipt  # kernels write to it
    cdef Asked asked = k_core_kernel_ask_again(spec[0], row, score)
    memcpy(receipt, issued.data, issued.n * sizeof(double))
    k_core_groups_settle_grouped(spec[0], cells[0], row, t, asked, cell, y, words, F64(&receipt[0], issued.n))


cdef void settle_any(Spec* spec, F64 row, double t, Asked* asked, Index cell, double y, F64 receipt, bint small) noexcept nogil:
    cdef Spec less = spec[0]
    if small:
        less.receipt, less.mixes, less.guard = 0, False, 0
        k_core_kernel_settle(less, row, t, asked[0], cell, y, receipt)
    else:
        k_core_kernel_settle(spec[0], row, t, asked[0], cell, y, receipt)


cdef void learn_late(Spec* spec, F64 row, double t, double score, Index cell, double y, F64 receipt, bint small) noexcept nogil:
    cdef Asked asked = k_core_kernel_ask_again(spec[0], row, score)
    settle_any(spec, row, t, &asked, cell, y, receipt, small)


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


def draw_each(const uint64_t[:] keys, const uint64_t[:] events, double[::1] draws):
    """The draws of these events, each of the stream with its key."""
    cdef Index i
    with nogil:
        for i in range(draws.shape[0]):
            draws[i] = uniform_of(keys[i], events[i])
