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


@cython.no_gc
@cython.final
cdef class Ledger:
    """The settled events of one stream, and their outcomes: a byte for each event of a bounded past.

    Outcomes of the `keep` events before the oldest open one are remembered, so that a contradiction is noticed. `known`
    is how many forecasts of the stream are accounted for here.

    >>> from calibeat._compiled import Ledger
    >>> ledger = Ledger()
    >>> ledger.settle(0, 1)
    >>> ledger.settle(2, 0)
    >>> [ledger.mark(event) for event in range(4)]
    [3, 0, 2, 0]
    >>> ledger.dump()
    {'first': 0, 'given_up': 0, 'marks': 'Iw=='}
    """

    cdef readonly int64_t first  # the first event that has a mark; those before it are closed
    cdef readonly int64_t given_up  # events before this one may have been given up
    cdef public int64_t known
    cdef readonly int64_t keep
    cdef readonly Index classes
    cdef uint8_t* marks
    cdef Index room  # marks behind the last settled event are 0: open
    cdef int64_t left  # of a call: forecasts that may still get an outcome
    cdef dict others  # the columns of labels that no byte has room for, by event; None while there are none

    def __cinit__(self, int64_t first=0, *, int64_t keep=KEPT_EVENTS, Index classes=2, int64_t known=0):
        self.first, self.keep, self.classes, self.known = first, keep, classes, known

    def __dealloc__(self):
        free(self.marks)

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

    def settle(self, int64_t event, Index column):
        """Mark an open event.

        Raises
        ------
        MemoryError : there is no room for it.
        """
        self.reserve(event)
        self.note(event, column)

    cdef inline int reserve(self, int64_t event) except -1:
        """Have room for the mark of an event."""
        if event - self.first >= self.room:
            self.extend(event - self.first + 1, 0, NULL, NULL, 0)
        return 0

    cdef inline void note(self, int64_t event, Index column):
        """Mark an event, which has room."""
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

    def batch(self, int64_t event, outcomes, due=None, int64_t end=0):
        """Settle the events from `event` on, none of which has a mark yet, by these outcomes.

        NaN leaves an event open, and so does an outcome that is due at `end` or later, if there is `due`.
        """
        cdef F64 y = F64_of(outcomes, "outcomes")
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
        for i in range(max(0, -at), last + 1):
            if not is_open_outcome(y.data, arrives, end, i):
                self.note(event + i, <Index>y.data[i])

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
                self.marks, self.room, self.first, self.others, self.known = NULL, 0, events, None, events
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
        if marks == NULL:
            raise MemoryError
        if kept > 0:
            memcpy(marks, self.marks + stale, kept)
        free(self.marks)
        self.marks, self.room, self.first = marks, room, self.first + stale
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
        return made

    def packed(self):
        """The first event that has a mark, the first that was not given up, and the marks as bytes.

        Of two classes there are two bits a mark, the first mark lowest. Of more there is a byte each, behind how many
        they are, and then the columns that no byte has room for, four bytes each.
        """
        marks = self.written()
        first, oldest = self.first, marks.find(OPEN_MARK)
        stale = (len(marks) if oldest < 0 else oldest) - self.keep
        if stale > 0:
            first, marks = first + stale, marks[stale:]
        if self.classes == 2:
            fours = numpy.frombuffer(marks + bytes((4 - len(marks) % 4) % 4), dtype=numpy.uint8).reshape(-1, 4)
            packed = (fours << numpy.array([0, 2, 4, 6], dtype=numpy.uint8)).sum(axis=1, dtype=numpy.uint8).tobytes()
            return first, self.given_up, packed
        wide = [column for event, column in sorted((self.others or {}).items()) if event >= first]
        return first, self.given_up, b"".join([struct.pack("<q", len(marks)), marks, struct.pack(f"<{len(wide)}I", *wide)])

    @staticmethod
    def unpacked(first, given_up, packed, int64_t events, int64_t outcomes, *, int64_t keep=KEPT_EVENTS, Index classes=2):
        """The inverse of `packed`, for a stream that has made so many forecasts and learnt so many outcomes.

        Raises
        ------
        InvalidInput : it is not what such a stream can have.
        """
        cdef Ledger made
        check_whole("settled first", first, 0, events)
        check_whole("settled given_up", given_up, 0, first)
        others = None
        if classes == 2:
            numbers = numpy.frombuffer(packed, dtype=numpy.uint8)
            marks = ((numbers[:, None] >> numpy.array([0, 2, 4, 6], dtype=numpy.uint8)) & 3).tobytes().rstrip(b"\0")
        else:
            length = struct.unpack_from("<q", packed)[0] if len(packed) >= 8 else -1
            if not 0 <= length <= len(packed) - 8 or (len(packed) - 8 - length) % 4:
                raise InvalidInput(f"settled marks must be as long as they say, got {len(packed)} bytes")
            marks = packed[8 : 8 + length]
            wide = numpy.frombuffer(packed[8 + length :], dtype="<u4").tolist()
            at = [first + place for place, mark in enumerate(marks) if mark == OTHER_MARK]
            if len(at) != len(wide) or not all(OTHER_MARK - ZERO_MARK <= column < classes for column in wide):
                raise InvalidInput(f"settled labels must be those of {classes} classes, got others")
            others = dict(zip(at, wide)) or None
        found = numpy.frombuffer(marks, dtype=numpy.uint8)
        known = int((found >= ZERO_MARK).sum())
        if first + len(marks) > events or len(marks) > MOST_MARKS or known > outcomes:
            raise InvalidInput(
                f"settled must fit the {outcomes} outcomes of {events} events, got {known} up to event {first + len(marks)}"
            )
        if (found[found != OTHER_MARK] >= ZERO_MARK + classes).any():
            raise InvalidInput(f"settled labels must be those of {classes} classes, got others")
        made = Ledger(first, keep=keep, classes=classes, known=events)
        made.given_up, made.others = given_up, others
        if marks:
            made.extend(len(marks), 0, NULL, NULL, 0)
            memcpy(made.marks, PyBytes_AS_STRING(marks), len(marks))
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
