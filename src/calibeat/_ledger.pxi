# Which events of a stream are settled, and by which outcome. Each method is one step to Python: no signal and no other
# thread comes between its lines. What can fail, the memory, comes before the first line that changes something.

import base64
import binascii

from libc.stdlib cimport calloc, free
from libc.string cimport memchr

cdef enum:  # the mark of an event
    OPEN_MARK = 0  # no outcome yet
    CLOSED_MARK = 1  # no outcome will be learnt any more; which one was learnt is not known
    ZERO_MARK = 2  # outcome 0 was learnt, or the label of column 0; the columns behind it have the next numbers
    OTHER_MARK = 255  # a label was learnt whose column is so large that it stands in `others`
    FIRST_ROOM = 32  # marks that there is room for at first

OPEN, CLOSED, ZERO, OTHER = OPEN_MARK, CLOSED_MARK, ZERO_MARK, OTHER_MARK
KEPT_EVENTS = 4096  # before the oldest open event, whose outcomes are remembered
cdef int64_t MOST_MARKS = 4_194_304  # of a stream; open events before them are given up


cdef struct Told:  # of an outcome, beside its mark
    double weight
    uint64_t count  # of many trials: 2^32 (trials + 1) + ones; 0 of one event

cdef inline uint64_t count_of(double y, double trials) noexcept nogil:
    """The trials of an outcome and its share of ones, as `Told` has them."""
    return 0 if trials == 1.0 else (<uint64_t>trials + 1) << 32 | <uint64_t>(y * trials + 0.5)


@cython.no_gc
@cython.final
cdef class Ledger:
    """The settled events of one stream, and their outcomes: a byte for each event of a bounded past.

    Outcomes of the `keep` events before the oldest open one are remembered, so that a contradiction is noticed. `known`
    is how many forecasts of the stream are accounted for here. Once an outcome had another weight than 1, or was of many
    trials, there are 16 bytes more for each event.

    >>> from calibeat._compiled import Ledger
    >>> ledger = Ledger()
    >>> ledger.settle(0, 1)
    >>> ledger.settle(2, 0)
    >>> [ledger.mark(event) for event in range(4)]
    [3, 0, 2, 0]
    >>> ledger.dump()
    {'first': 0, 'given_up': 0, 'marks': 'AwAAAAAAAAAAAwAC'}
    """

    cdef readonly int64_t first  # the first event that has a mark; those before it are closed
    cdef readonly int64_t given_up  # events before this one may have been given up
    cdef public int64_t known
    cdef readonly int64_t keep
    cdef readonly Index classes
    cdef uint8_t* marks
    cdef Told* told  # as many as marks; NULL while each outcome was one event of weight 1
    cdef Index room  # marks behind the last settled event are 0: open
    cdef int64_t left  # of a call: forecasts that may still get an outcome
    cdef dict others  # the columns of labels that no byte has room for, by event; None while there are none

    def __cinit__(self, int64_t first=0, *, int64_t keep=KEPT_EVENTS, Index classes=2, int64_t known=0):
        self.first, self.keep, self.classes, self.known = first, keep, classes, known

    def __dealloc__(self):
        free(self.marks)
        free(self.told)

    @staticmethod
    def unknown(int64_t events, int64_t outcomes, *, int64_t keep=KEPT_EVENTS, Index classes=2):
        """Of a stream whose outcomes were learnt elsewhere: all events are settled if there are as many as outcomes.

        If not, each of the last `MOST_MARKS` events may still get an outcome, once; the host counts them.
        """
        return Ledger(events if outcomes >= events else max(0, events - MOST_MARKS), keep=keep, classes=classes, known=events)

    # ---- one event --------------------------------------------------------------------------------------------------

    def mark(self, int64_t event):
        """What is known of an event: OPEN, CLOSED, or ZERO and the column of its label (at most OTHER)."""
        return self.mark_of(event)

    cdef inline int mark_of(self, int64_t event) noexcept:
        cdef int64_t at = event - self.first
        if at < 0:
            return CLOSED_MARK
        return self.marks[at] if at < self.room else OPEN_MARK

    def column(self, int64_t event):
        """The column of the label that an event has learnt."""
        cdef int mark = self.mark_of(event)
        return mark - ZERO_MARK if mark < OTHER_MARK else self.others[event]

    def settle(self, int64_t event, double y, double weight=1.0, double trials=1.0):
        """Mark an open event: y is the column of its label, or the share of ones among its trials.

        Raises
        ------
        MemoryError : there is no room for it.
        """
        self.reserve(event, weight != 1.0 or trials != 1.0)
        self.note(event, y, weight, trials)

    def is_same(self, int64_t event, double y, double weight=1.0, double trials=1.0):
        """Whether this is the outcome that an event has learnt, which is known."""
        return self.is_same_as(event, y, weight, trials)

    cdef inline bint is_same_as(self, int64_t event, double y, double weight, double trials) noexcept:
        cdef uint64_t count = count_of(y, trials)
        if self.told == NULL:
            if weight != 1.0 or count != 0:
                return False
        elif self.told[event - self.first].weight != weight or self.told[event - self.first].count != count:
            return False
        return count != 0 or self.column(event) == <Index>y

    def describe(self, int64_t event):
        """Weight, trials and ones of an outcome that is known; of one event its mark has the outcome, and ones is 0."""
        cdef Told told
        if self.told == NULL:
            return 1.0, 1, 0
        told = self.told[event - self.first]
        return told.weight, <int64_t>(told.count >> 32) - 1 if told.count else 1, <int64_t>(told.count & 0xFFFFFFFF)

    cdef inline int reserve(self, int64_t event, bint is_weighted=False) except -1:
        """Have room for the mark of an event, and for its weight."""
        if event - self.first >= self.room:
            self.extend(event - self.first + 1, 0, NULL, NULL, 0)
        if is_weighted and self.told == NULL:
            self.tell_all()
        return 0

    cdef int tell_all(self) except -1:
        """Room for weights; those of the outcomes so far are 1."""
        cdef Index at
        cdef Told* told = <Told*>calloc(max(1, self.room), sizeof(Told))
        if told == NULL:
            raise MemoryError
        for at in range(self.room):
            told[at].weight = 1.0
        self.told = told
        return 0

    cdef inline void note(self, int64_t event, double y, double weight=1.0, double trials=1.0):
        """Mark an event, which has room."""
        cdef Index column = 0 if trials != 1.0 else <Index>y
        if self.told != NULL:
            self.told[event - self.first] = Told(weight, count_of(y, trials))
        self.marks[event - self.first] = <uint8_t>min(ZERO_MARK + column, <Index>OTHER_MARK)
        if ZERO_MARK + column >= OTHER_MARK:
            if self.others is None:
                self.others = {}
            self.others[event] = column

    cdef void open_again(self, int64_t event):
        """Take back the mark of an event."""
        self.marks[event - self.first] = OPEN_MARK
        if self.others is not None:
            self.others.pop(event, None)

    # ---- many events ------------------------------------------------------------------------------------------------

    def batch(self, int64_t event, outcomes, due=None, int64_t end=0, weights=None, trials=None):
        """Settle the events from `event` on, none of which has a mark yet, by these outcomes.

        NaN leaves an event open, and so does an outcome that is due at `end` or later, if there is `due`. Weights and trials
        are 1, or there is one for each outcome.
        """
        cdef F64 y = F64_of(outcomes, "outcomes")
        cdef F64 w = F64_of(weights, "weights") if weights is not None else F64(NULL, 0)
        cdef F64 t = F64_of(trials, "trials") if trials is not None else F64(NULL, 0)
        cdef int64_t* arrives = NULL
        cdef Index i, last = -1
        cdef int64_t at = event - self.first
        if due is not None:
            arrives = <int64_t*>I64_of(due, "due").data
        for i in range(y.n):
            if not is_open_outcome(y.data, arrives, end, i):
                last = i
        self.known = event + y.n
        if last < 0:
            return
        if at + last + 1 > self.room:
            self.extend(at + last + 1, at, y.data, arrives, end)
            at = event - self.first
        if (w.n > 0 or t.n > 0) and self.told == NULL:
            self.tell_all()
        for i in range(max(0, -at), last + 1):
            if not is_open_outcome(y.data, arrives, end, i):
                self.note(event + i, y.data[i], w.data[i] if w.n > 0 else 1.0, t.data[i] if t.n > 0 else 1.0)

    def catch_up(self, int64_t events):
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        self.close_until(events)

    cdef int close_until(self, int64_t events) except -1:
        cdef int64_t at
        if events <= self.known:
            return 0
        if events - self.first > self.room:
            if not self.is_open_before(self.known):  # nothing before them is open, so none of them need be written down
                free(self.marks)
                free(self.told)
                self.marks, self.told = NULL, NULL
                self.room, self.first, self.others, self.known = 0, events, None, events
                return 0
            self.extend(events - self.first, self.known - self.first, NULL, NULL, 0)
        for at in range(max(self.known - self.first, 0), events - self.first):
            self.marks[at] = CLOSED_MARK
        self.known = events
        return 0

    cdef int extend(self, int64_t wanted, int64_t begin, const double* y, const int64_t* due, int64_t end) except -1:
        """Room for the marks of so many events from `first` on. Marks that are too old go.

        The outcomes y, if there are any, are those of the events from `first + begin` on.
        """
        cdef int64_t used = self.room, oldest, stale, kept, room
        cdef void* found
        cdef uint8_t* marks
        cdef Told* told = NULL
        while used > 0 and self.marks[used - 1] == OPEN_MARK:
            used -= 1
        found = memchr(self.marks, OPEN_MARK, used) if used > 0 else NULL
        oldest = <uint8_t*>found - self.marks if found != NULL else used
        if found == NULL and y != NULL and used >= begin:  # then some of the new ones may be settled without a gap too
            while oldest < wanted and not is_open_outcome(y, due, end, oldest - begin):
                oldest += 1
        stale = oldest - self.keep
        if wanted - MOST_MARKS > stale:
            stale = wanted - MOST_MARKS
            self.given_up = max(self.given_up, self.first + self.last_open(stale, used, begin, y, due, end) + 1)
        stale = max(stale, 0)
        kept, wanted = max(used - stale, 0), wanted - stale
        room = wanted + min(max(wanted, FIRST_ROOM), self.keep)
        marks = <uint8_t*>calloc(room, 1)
        if self.told != NULL:
            told = <Told*>calloc(room, sizeof(Told))
        if marks == NULL or (told == NULL and self.told != NULL):
            free(marks)
            free(told)
            raise MemoryError
        if kept > 0:
            memcpy(marks, self.marks + stale, kept)
            if told != NULL:
                memcpy(told, self.told + stale, kept * sizeof(Told))
        free(self.marks)
        free(self.told)
        self.marks, self.told, self.room, self.first = marks, told, room, self.first + stale
        if self.others and stale > 0:
            self.others = {event: column for event, column in self.others.items() if event >= self.first}
        return 0

    cdef int64_t last_open(
        self, int64_t stale, int64_t used, int64_t begin, const double* y, const int64_t* due, int64_t end
    ) noexcept:
        """The last open event before this one, counted from `first`; -1 if there is none."""
        cdef int64_t at = stale - 1
        while at >= 0:
            if at < used:
                if self.marks[at] == OPEN_MARK:
                    return at
            elif y == NULL or at < begin or is_open_outcome(y, due, end, at - begin):
                return at
            at -= 1
        return -1

    def is_open(self, int64_t events):
        """Whether a forecast among the first so many waits for its outcome."""
        return self.is_open_before(min(events, self.known))

    cdef bint is_open_before(self, int64_t event) noexcept:
        cdef int64_t used = min(event - self.first, <int64_t>self.room)
        if event - self.first > self.room:
            return True
        return used > 0 and memchr(self.marks, OPEN_MARK, used) != NULL

    # ---- as data ----------------------------------------------------------------------------------------------------

    cdef bytes written(self):
        """The marks up to the last settled event."""
        return PyBytes_FromStringAndSize(<char*>self.marks, self.room).rstrip(b"\0") if self.room else b""

    def copy(self):
        """The same, on its own."""
        cdef Ledger made = Ledger(self.first, keep=self.keep, classes=self.classes, known=self.known)
        made.given_up, made.others = self.given_up, dict(self.others) if self.others else None
        if self.room:
            made.marks = <uint8_t*>calloc(self.room, 1)
            if made.marks == NULL:
                raise MemoryError
            memcpy(made.marks, self.marks, self.room)
            made.room = self.room
        if self.told != NULL:
            made.tell_all()
            memcpy(made.told, self.told, self.room * sizeof(Told))
        return made

    def packed(self):
        """The first event that has a mark, the first that was not given up, and the marks as bytes.

        These are: how many marks there are and whether they have weights, 8 and 1 bytes; the marks, a byte each; the columns
        that no byte has room for, 4 bytes each; with weights, for each outcome its weight as a float and its count.
        """
        cdef Index at
        marks = self.written()
        first, oldest = self.first, marks.find(OPEN_MARK)
        stale = (len(marks) if oldest < 0 else oldest) - self.keep
        if stale > 0:
            first, marks = first + stale, marks[stale:]
        parts = [struct.pack("<qB", len(marks), self.told != NULL), marks]
        parts += [struct.pack("<I", column) for event, column in sorted((self.others or {}).items()) if event >= first]
        if self.told != NULL:
            for at in range(first - self.first, first - self.first + len(marks)):
                if self.marks[at] >= ZERO_MARK:
                    parts.append(struct.pack("<dQ", self.told[at].weight, self.told[at].count))
        return first, self.given_up, b"".join(parts)

    @staticmethod
    def unpacked(first, given_up, packed, int64_t events, int64_t outcomes, *, int64_t keep=KEPT_EVENTS, Index classes=2):
        """The inverse of `packed`, for a stream that has made so many forecasts and learnt so many outcomes.

        Raises
        ------
        InvalidInput : it is not what such a stream can have.
        """
        cdef Ledger made
        cdef Index at
        check_whole("settled first", first, 0, events)
        check_whole("settled given_up", given_up, 0, first)
        length, has_weights = struct.unpack_from("<qB", packed) if len(packed) >= 9 else (-1, 0)
        marks = packed[9 : 9 + max(0, length)]
        if len(marks) != length or has_weights > 1 or marks.endswith(b"\0"):
            raise InvalidInput(f"settled marks must be as many as they say, got {len(packed)} bytes")
        found = numpy.frombuffer(marks, dtype=numpy.uint8)
        is_known, is_wide = found >= ZERO_MARK, found == OTHER_MARK
        end = 9 + length + 4 * int(is_wide.sum())
        if len(packed) != end + 16 * has_weights * int(is_known.sum()):
            raise InvalidInput(f"settled marks must be as long as they say, got {len(packed)} bytes")
        wide = numpy.frombuffer(packed[9 + length : end], dtype="<u4")
        told = numpy.frombuffer(packed[end:], dtype=[("weight", "<f8"), ("count", "<u8")])
        if ((wide < OTHER_MARK - ZERO_MARK) | (wide >= classes)).any() or (found[~is_wide] >= ZERO_MARK + classes).any():
            raise InvalidInput(f"settled labels must be those of {classes} classes, got others")
        trials, ones = (told["count"] >> 32).astype(numpy.int64) - 1, (told["count"] & 0xFFFFFFFF).astype(numpy.int64)
        is_count = told["count"] > 0
        good = (told["weight"] >= 0.0) & (told["weight"] <= 1e12) & (~is_count | ((ones <= trials) & (trials <= 10**9)))
        if not good.all() or (is_count.any() and classes > 2):
            raise InvalidInput("settled weights must be in [0, 1e12], with no more ones than trials, got others")
        known = int(is_known.sum()) - int(((told["weight"] == 0.0) | (is_count & (trials == 0))).sum())
        if first + length > events or length > MOST_MARKS or known > outcomes:
            raise InvalidInput(
                f"settled must fit the {outcomes} outcomes of {events} events, got {known} up to event {first + length}"
            )
        made = Ledger(first, keep=keep, classes=classes, known=events)
        made.given_up = given_up
        made.others = dict(zip((first + numpy.flatnonzero(is_wide)).tolist(), wide.tolist())) or None
        if marks:
            made.extend(length, 0, NULL, NULL, 0)
            memcpy(made.marks, PyBytes_AS_STRING(marks), length)
        if has_weights:
            made.tell_all()
            for at, (weight, count) in zip(numpy.flatnonzero(is_known).tolist(), told.tolist()):
                made.told[at] = Told(weight, count)
        return made

    def dump(self):
        """As JSON-able data: what `packed` gives, its bytes in base 64."""
        first, given_up, packed = self.packed()
        return {"first": first, "given_up": given_up, "marks": base64.b64encode(packed).decode()}

    @staticmethod
    def load(data, int64_t events, int64_t outcomes, *, int64_t keep=KEPT_EVENTS, Index classes=2):
        """The inverse of `dump`.

        Raises
        ------
        InvalidInput : the data is not what such a stream can have.
        """
        if not isinstance(data, dict) or set(data) != {"first", "given_up", "marks"}:
            raise InvalidInput(f"settled must be an object with first, given_up, marks, got {data!r:.60}")
        try:
            marks = base64.b64decode(data["marks"], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"settled marks must be in base 64, got {data['marks']!r:.60}") from error
        return Ledger.unpacked(data["first"], data["given_up"], marks, events, outcomes, keep=keep, classes=classes)


cdef inline bint is_open_outcome(const double* y, const int64_t* due, int64_t end, Index i) noexcept nogil:
    return y[i] != y[i] or (due != NULL and due[i] >= end)
