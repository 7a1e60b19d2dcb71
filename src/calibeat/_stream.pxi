# One stream, one event at a time. A method written here is one step to Python: no signal and no other thread comes between
# its lines. All that can fail comes before the first line that changes something.

import json
import numpy
import struct
from collections.abc import Mapping, Sequence
from numbers import Real

from calibeat._util.check import check_number, check_outcome, check_score, check_whole
from calibeat.errors import InvalidInput

cdef extern from *:
    """
    #define CALIBEAT_MOST_RECEIPT 15 /* as core/receipt.py */
    #define CALIBEAT_N 1 /* of a row: the outcomes learnt, as core/layout.py */
    #define CALIBEAT_LEARNT_ZERO 2 /* marks, as hosts/ledger.py */
    #define CALIBEAT_LEARNT_ONE 3
    """
    enum: MOST_RECEIPT "CALIBEAT_MOST_RECEIPT"
    enum: N "CALIBEAT_N"
    enum: LEARNT_ZERO "CALIBEAT_LEARNT_ZERO"
    enum: LEARNT_ONE "CALIBEAT_LEARNT_ONE"

cdef object ZERO = 0, ONE = 1  # Python has one object for each
RECEIPT_FORMAT = 1  # the version of receipts, as JSON and as bytes
_HEAD = struct.Struct("<BBHIqqqq8s7d")  # see `Forecast.to_bytes`
_FIELDS = ("probability", "score", "expert", "bin", "cell", "event", "seen", "issuer", "lanes")


# ---- a forecast -----------------------------------------------------------------------------------------------------

@cython.no_gc  # it holds a string and an origin, which hold nothing
@cython.freelist(64)
cdef class Forecast:
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

    It is a number where numbers are used. None of its fields can be changed.

    >>> from calibeat import Calibrator, Forecast, TOPS
    >>> cal = Calibrator(TOPS)
    >>> f = cal.predict(0.83)
    >>> f > 0.5, f == 0.85, 100 * f, f"{f:.1%}"
    (True, True, 85.0, '85.0%')

    A receipt is data. Keep it as JSON or as bytes until the outcome comes, and bring it back. If it is delivered
    twice, it is learnt once:

    >>> text = f.to_json()
    >>> cal.update(Forecast.from_json(text), 1)
    >>> cal.update(Forecast.from_json(text), 1)
    >>> cal.outcomes
    1

    The JSON has a version, ``"v": 1``. Any other version is refused; fields that this version does not know are
    ignored.
    """

    cdef readonly double probability
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

    def __init__(
        self, double probability, double score, double expert, Index bin, Index cell, Index event, Index seen,
        str issuer not None, lanes=(), hedge=(),
    ):
        cdef Index i
        if self.issuer is not None:  # a stream believes what its own forecasts say
            raise TypeError("a forecast cannot be made again, make another one")
        if len(lanes) > MOST_RECEIPT:
            raise InvalidInput(f"forecast lanes must be at most {MOST_RECEIPT} numbers, got {len(lanes)}")
        if len(hedge) not in (0, 2):
            raise InvalidInput(f"forecast hedge must be two pairs or nothing, got {len(hedge)}")
        self.probability, self.score, self.expert, self.bin, self.cell = probability, score, expert, bin, cell
        self.event, self.seen, self.issuer, self.width, self.hedges = event, seen, issuer, len(lanes), len(hedge) > 0
        for i in range(self.width):
            self.receipt[i] = lanes[i]
        if self.hedges:
            (self.low, self.weight_low), (self.high, self.weight_high) = hedge

    @property
    def lanes(self):
        """What each part of a mixture said."""
        cdef Index i
        return tuple([self.receipt[i] for i in range(self.width)])

    @property
    def hedge(self):
        """The candidates if there are two, or nothing."""
        return ((self.low, self.weight_low), (self.high, self.weight_high)) if self.hedges else ()

    @property
    def candidates(self):
        """The points that could have been said, and their probabilities."""
        return self.hedge or ((self.probability, 1.0),)

    def __repr__(self):
        values = {name: getattr(self, name) for name in (*_FIELDS, "hedge")}
        return f"Forecast({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __reduce__(self):
        return Forecast, tuple(getattr(self, name) for name in (*_FIELDS, "hedge"))

    def __replace__(self, **changes):
        """A receipt with other fields: ``copy.replace(forecast, event=3)`` of Python 3.13."""
        fields = {name: getattr(self, name) for name in (*_FIELDS, "hedge")}
        if unknown := changes.keys() - fields.keys():
            raise TypeError(f"a forecast has no field {min(unknown)!r}")
        return Forecast(**{**fields, **changes})

    # ---- as a number ------------------------------------------------------------------------------------------------

    def __float__(self):
        return self.probability

    def __bool__(self):
        return self.probability != 0.0

    def __hash__(self):
        return hash(self.probability)

    def __format__(self, spec):
        return format(self.probability, spec) if spec else str(self)

    def __richcmp__(self, other, int operation):
        """As the probability; two forecasts are equal if all their fields are."""
        if isinstance(other, Forecast):
            if operation == Py_EQ or operation == Py_NE:
                return (self.__reduce__() == other.__reduce__()) == (operation == Py_EQ)
            other = (<Forecast>other).probability
        elif not isinstance(other, Real):
            return NotImplemented
        return PyObject_RichCompare(self.probability, other, operation)

    def __add__(self, other):
        return self.probability + _plain(other)

    def __radd__(self, other):
        return other + self.probability

    def __sub__(self, other):
        return self.probability - _plain(other)

    def __rsub__(self, other):
        return other - self.probability

    def __mul__(self, other):
        return self.probability * _plain(other)

    def __rmul__(self, other):
        return other * self.probability

    def __truediv__(self, other):
        return PyNumber_TrueDivide(self.probability, _plain(other))

    def __rtruediv__(self, other):
        return PyNumber_TrueDivide(other, self.probability)

    def __pow__(self, other, modulo):
        return PyNumber_Power(self.probability, _plain(other), modulo)

    def __rpow__(self, other, modulo):
        return PyNumber_Power(other, self.probability, modulo)

    def __neg__(self):
        return -self.probability

    def __pos__(self):
        return self.probability

    def __abs__(self):
        return abs(self.probability)

    def __round__(self, digits=None):
        return round(self.probability, digits)

    def __array__(self, dtype=None, copy=None):
        """``numpy.asarray(forecast)`` is the probability: arrays of numbers stay arrays of numbers."""
        return numpy.array(self.probability, dtype=dtype)

    # ---- as JSON ----------------------------------------------------------------------------------------------------

    def to_dict(self):
        """The fields by name, JSON-able."""
        return {"v": RECEIPT_FORMAT, **{name: getattr(self, name) for name in _FIELDS}, "candidates": self.candidates}

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
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"forecast must be JSON made by to_json, got {text!r:.60}") from error
        if isinstance(data, list):  # the fields in their order, as calibeat 0.2 also wrote them
            data = {**dict(zip((*_FIELDS, "candidates"), data)), "v": RECEIPT_FORMAT}
        return cls.from_dict(data)

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
        return Forecast(*numbers, *places, str(data["issuer"]), lanes, _pairs(data["candidates"]))

    # ---- as bytes ---------------------------------------------------------------------------------------------------

    def to_bytes(self):
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
        name, _, generation = self.issuer.partition("-")
        if not _is_hexadecimal(name, 16) or not (generation == "" and "-" not in self.issuer or _is_hexadecimal(generation, 8)):
            raise InvalidInput(f"forecast issuer must be a name made by a calibrator, got {self.issuer!r:.60}")
        head = _HEAD.pack(
            RECEIPT_FORMAT, 2 * self.hedges, self.width, int(generation or "0", 16), self.bin, self.cell, self.event,
            self.seen, bytes.fromhex(name), self.probability, self.score, self.expert,
            self.low, self.weight_low, self.high, self.weight_high,
        )
        return head + struct.pack(f"<{self.width}d", *self.lanes)

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
        lanes = int.from_bytes(data[2:4], "little")
        if len(data) != _HEAD.size + 8 * lanes:
            raise InvalidInput(f"forecast must have {_HEAD.size + 8 * lanes} bytes, got {len(data)}")
        _, pairs, _, generation, *counts, name, probability, score, expert, p, u, q, v = _HEAD.unpack_from(data)
        issuer = name.hex() + (f"-{generation:08x}" if generation else "")
        fields = (probability, score, expert, *counts, issuer, struct.unpack_from(f"<{lanes}d", data, _HEAD.size))
        named = dict(zip(_FIELDS, fields))
        return cls.from_dict({**named, "candidates": ((p, u), (q, v))[:pairs], "v": RECEIPT_FORMAT})


Real.register(Forecast)


cdef object _plain(object number):
    return (<Forecast>number).probability if isinstance(number, Forecast) else number


cdef bint _is_hexadecimal(str text, Index digits):
    return len(text) == digits and not text.strip("0123456789abcdef")


def _check_version(version):
    if type(version) is not int or version != RECEIPT_FORMAT:
        raise InvalidInput(
            f"forecast must be a receipt of version {RECEIPT_FORMAT}, got version {version!r:.20} - "
            "another version of calibeat may have made it"
        )


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


# ---- which events are settled ---------------------------------------------------------------------------------------

cdef class Marks:
    """What `SettledEvents` keeps: the first event that has a mark, and one byte for each event from there on."""

    cdef public tuple span


cdef class LedgerOfStream:
    """What `Ledger` keeps that a single event needs."""

    cdef public Marks settled


# ---- a stream -------------------------------------------------------------------------------------------------------

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
    cdef public int64_t _events
    cdef public bint _is_busy, _is_forked, _is_watched, _is_member, _needs_history
    cdef public object _row, _lock, _owed, _announce
    cdef public str _signature
    cdef public LedgerOfStream _receipts

    def __cinit__(self, *arguments, **settings):
        self.origin = object()  # whose forecasts it would make: none is of a stream that serves nothing yet

    def _serve(self, spec, row, bint needs_history):
        """Serve this row, which stays where it is."""
        self.spec = Spec_of(spec)
        if self.spec.receipt > MOST_RECEIPT:  # there would be no room for it
            raise ValueError(f"a receipt must have at most {MOST_RECEIPT} numbers, got {self.spec.receipt}")
        self.row = F64_of(row, "row")
        self.scratch = F64(&self.receipt[0], self.spec.receipt)
        self.small = self.spec.receipt == 0
        self._row, self._needs_history = row, needs_history
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

    def predict(self, score):
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        Raises
        ------
        InvalidInput : the score is no number in [0, 1].

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        cdef double s
        if PyFloat_CheckExact(score) and 0.0 <= PyFloat_AS_DOUBLE(score) <= 1.0:
            s = PyFloat_AS_DOUBLE(score)
        else:
            s = check_score(score)
        if self._is_busy or self._is_forked or self._is_watched or self._owed is not None or not self._signature:
            return self._predict_alone(s)  # the lock is held from the first line to the last
        return self._forecast(s)

    cpdef Forecast _forecast(self, double score):
        """Make a forecast, and count it."""
        cdef Played played
        cdef Forecast forecast = Forecast.__new__(Forecast)
        cdef object owed = (self._announce, self._events + 1) if self._is_watched else None
        forecast.issuer = self._signature or self._sign()
        self.latest = -1
        played = self.ask(score, 0.0, self.scratch)
        if self.spec.draws and played.low != played.high:  # the draw matters: only now is it worth making
            forecast.hedges = True
            forecast.low, forecast.weight_low, forecast.high, forecast.weight_high = (
                played.low, played.weight, played.high, 1.0 - played.weight
            )
            played = self.ask(score, uniform_of(self.draws_key, <uint64_t>self._events), self.scratch)
        forecast.probability, forecast.score, forecast.expert = played.forecast, score, self.asked.expert
        forecast.bin, forecast.cell = played.bin, played.cell
        forecast.event, forecast.seen = self._events, <int64_t>self.row.data[N]
        forecast.width, forecast.origin = self.spec.receipt, self.origin
        memcpy(forecast.receipt, self.receipt, self.spec.receipt * sizeof(double))
        self.latest = self._events
        self._events += 1
        self._owed = owed
        return forecast

    cdef Played ask(self, double score, double u, F64 receipt) noexcept:
        if self.small:
            return ask_small(&self.spec, self.row, score, u, receipt, &self.asked)
        return ask_any(&self.spec, self.row, score, u, receipt, &self.asked)

    def _peek(self, double score):
        """What `_forecast` would say."""
        cdef double[MOST_RECEIPT] receipt
        cdef double u = uniform_of(self.draws_key, <uint64_t>self._events) if self.spec.draws else 0.0
        self.latest = -1
        return self.ask(score, u, F64(&receipt[0], self.spec.receipt)).forecast

    # ---- its outcome ------------------------------------------------------------------------------------------------

    def update(self, forecast, outcome):
        """Learn the outcome of a forecast, now or any time later, in any order.

        The same outcome a second time changes nothing, and another one is an `OutcomeConflict`; it does not matter
        whether the receipt is the object itself or was read from JSON, nor whether the calibrator was restored from a
        snapshot in between. How far back this reaches: docs/receipts.md.

        Raises
        ------
        InvalidInput : the outcome is not 0 or 1, or the forecast is no receipt or a damaged one.
        OutcomeConflict : another outcome was learnt for this forecast.
        UnknownForecast : the forecast was made by another calibrator, or is so old that nobody knows whether its
            outcome was learnt.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> first, second = cal.predict(0.9), cal.predict(0.4)
        >>> cal.update(second, 0)
        >>> cal.update(first, 1)
        >>> cal.update(first, 1)     # a repeat
        >>> cal.outcomes
        2
        """
        cdef double y
        cdef Forecast given
        cdef int64_t at
        cdef uint8_t* marks
        cdef tuple span
        if type(forecast) is not Forecast:
            raise InvalidInput(f"forecast must be a Forecast made by predict, got {type(forecast).__name__}")
        given = forecast
        if PyLong_CheckExact(outcome) and (outcome is ZERO or outcome is ONE):
            y = 1.0 if outcome is ONE else 0.0
        else:
            y = check_outcome(outcome)
        if not (
            self._is_busy or self._is_forked or self._is_watched or self._is_member or self._needs_history
            or self._owed is not None
            or given.origin is not self.origin
        ):
            span = self._receipts.settled.span
            at = given.event - <int64_t>span[0]
            if 0 <= at < PyByteArray_GET_SIZE(span[1]):
                marks = <uint8_t*>PyByteArray_AS_STRING(span[1])
                if marks[at] == 0:
                    self.move(given, y)
                    marks[at] = LEARNT_ONE if y == 1.0 else LEARNT_ZERO
                    return
        self._update_alone(given, y)

    cdef void move(self, Forecast forecast, double y) noexcept:
        """Learn on the row."""
        cdef double[MOST_RECEIPT] receipt
        if self.is_fresh(forecast):  # nothing has moved since it was asked
            settle_any(&self.spec, self.row, <double>self._events, &self.asked, forecast.cell, y, self.scratch, self.small)
        else:
            memcpy(receipt, forecast.receipt, forecast.width * sizeof(double))
            learn_late(&self.spec, self.row, <double>self._events, forecast.score, forecast.cell, y, F64(&receipt[0], self.spec.receipt), self.small)
        self.latest = -1

    def _learn(self, Forecast forecast, double y):
        """Learn on the row, and nothing else."""
        self.move(forecast, y)

    def _settle(self, Forecast forecast, double y, Marks settled, owed, row=None):
        """Learn the outcome, or take the row in which it was learnt; mark it; and note what the monitors are owed."""
        cdef F64 learnt = F64_of(row, "row") if row is not None else self.row
        cdef int64_t at = forecast.event - <int64_t>settled.span[0]
        cdef bytearray marks = settled.span[1]
        if row is None:
            self.move(forecast, y)
        else:
            memcpy(self.row.data, learnt.data, self.row.n * sizeof(double))
            self.latest = -1
        marks[at] = LEARNT_ONE if y == 1.0 else LEARNT_ZERO
        self._receipts.settled = settled
        self._owed = owed

    def _take_batch(self, row, int64_t events, Marks settled, owed):
        """Take the row that a batch has left, and all that goes with it."""
        cdef F64 learnt = F64_of(row, "row")
        memcpy(self.row.data, learnt.data, self.row.n * sizeof(double))
        self._events, self._receipts.settled, self._owed = events, settled, owed
        self.latest = -1


cdef Played ask_small(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    cdef Spec small = spec[0]
    small.receipt, small.mixes, small.guard = 0, False, 0
    asked[0] = k_core_kernel_ask(small, row, score, receipt)
    return k_core_kernel_play(small, row, asked[0], u, receipt)


cdef Played ask_any(Spec* spec, F64 row, double score, double u, F64 receipt, Asked* asked) noexcept nogil:
    asked[0] = k_core_kernel_ask(spec[0], row, score, receipt)
    return k_core_kernel_play(spec[0], row, asked[0], u, receipt)


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
