"""The ledger of a stream: who issues its receipts, which events are settled, and by which label.

A stream that continues from a snapshot, or in a forked process, begins a new **generation**: a number on its receipts,
which tells them from those that other copies of the stream issue.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat._compiled import Forecast, LedgerOfStream, Marks, MultiForecast
from calibeat._util.check import check_interval, check_score, check_whole
from calibeat._util.types import Bytes, Ints, Vector
from calibeat.core.method import Method
from calibeat.core.randomness import stream_key
from calibeat.core.subset import entry
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast

AnyMethod = Any  # a `Method` or, of many classes, a `VectorMethod`
AnyForecast = Forecast | MultiForecast

DIGITS = 16  # of a name
MOST_GENERATIONS = 64

# The first event of a generation, and its number: 8 hexadecimal digits, nothing for the very first generation, None for
# one that has issued no receipt yet.
Generation = tuple[int, str | None]


NO_DUE: Ints = np.empty(0, dtype=np.int64)


class Issuer:
    """The name of one stream and its generations, in the order of their first events.

    >>> from calibeat.hosts.ledger import Issuer
    >>> issuer = Issuer("00c0ffee00c0ffee")
    >>> issuer.signature
    '00c0ffee00c0ffee'
    >>> issuer.begin_generation(100)                 # restored from a snapshot that was taken after 100 forecasts
    >>> signature = issuer.ensure_signature()        # such as '00c0ffee00c0ffee-5eed5eed'
    >>> issuer.issued(99, issuer.name), issuer.issued(100, issuer.name), issuer.issued(100, signature)
    (True, False, True)
    """

    __slots__ = ("generations", "name")

    def __init__(self, name: str, generations: tuple[Generation, ...] = ((0, ""),)) -> None:
        self.name = name
        self.generations = generations

    @property
    def signature(self) -> str:
        """What receipts of the present generation carry; empty while it has issued none."""
        return self._signature(self.generations[-1][1])

    def _signature(self, number: str | None) -> str:
        return "" if number is None else f"{self.name}-{number}" if number else self.name

    def ensure_signature(self, number: str | None = None) -> str:
        """The signature of the present generation. If it has no number yet, it gets this one, or a random one."""
        first, known = self.generations[-1]
        if known is None:
            self.generations = (*self.generations[:-1], (first, number or new_generation()))
        return self.signature

    def copy(self, event: int) -> Issuer:
        """For a copy of the stream, which begins a new generation with this event."""
        issuer = Issuer(self.name, self.generations)
        issuer.begin_generation(event)
        return issuer

    def begin_generation(self, event: int) -> None:
        """Begin a new generation, whose first event is this one. A generation without an event leaves no trace."""
        kept = self.generations if self.generations[-1][0] < event else self.generations[:-1]
        self.generations = (*kept[1 - MOST_GENERATIONS :], (event, None))

    def is_own(self, signature: str) -> bool:
        """Whether a receipt is of this stream, in whatever generation."""
        return signature[:DIGITS] == self.name

    def issued(self, event: int, signature: str) -> bool:
        """Whether the receipt of this event may carry this signature. Before the first known generation, any may be."""
        for first, number in reversed(self.generations):
            if first <= event:
                return signature == self._signature(number)
        return True

    def dump(self, events: int, settled: int) -> list[list[Any]]:
        """The generations that matter: those with an event that is made, and not settled for sure."""
        begun = [generation for generation in self.generations if generation[0] < events]
        if not begun and settled < events:  # none of the events is of a known generation, so that any may be
            return [[events, None]]
        ends = [first for first, _ in begun[1:]] + [events]
        kept = [list(generation) for generation, end in zip(begun, ends, strict=False) if end > settled]
        return [] if kept == [[0, ""]] else kept

    @classmethod
    def load(cls, name: str, data: Any, events: int) -> Issuer:
        """The inverse of `dump`, in a new generation after so many events."""
        if not isinstance(data, list) or len(data) > MOST_GENERATIONS or not all(map(_is_generation, data)):
            raise InvalidInput(f"generations must be pairs of a first event and a number, got {data!r:.60}")
        firsts = [check_whole("first event of a generation", first, 0, events) for first, _ in data]
        if firsts != sorted(set(firsts)):
            raise InvalidInput(f"generations must be in the order of their first events, got {data!r:.60}")
        return cls(name, tuple((first, number) for first, number in data) or ((0, ""),)).copy(events)


def issuer_name(method: Method, seed: int, stream: int | str, groups: str = "") -> str:
    """The name of a stream: 16 hexadecimal digits of its method, as `repr` shows it, its seed, its name and its groups.

    >>> from calibeat import TOPS
    >>> issuer_name(TOPS, 0, 0)
    'd9169e331ae0b5d7'
    """
    return f"{stream_key(stream_key(seed, stream), repr(method) + groups):016x}"


def new_generation() -> str:
    """A random number, 0 left out, as 8 hexadecimal digits."""
    return f"{secrets.randbelow(2**32 - 1) + 1:08x}"


def _is_generation(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return pair[1] in (None, "") or (isinstance(pair[1], str) and re.fullmatch("[0-9a-f]{8}", pair[1]) is not None)


# ---- which events are settled --------------------------------------------------------------------------------------

KEPT_EVENTS = 4096  # before the oldest open event, whose outcomes are remembered
MOST_MARKS = 4_194_304  # of a stream; open events before them are given up

OPEN = 0  # no outcome yet
CLOSED = 1  # no outcome will be learnt any more; which one was learnt is not known
ZERO = 2  # outcome 0 was learnt, or the label of column 0; the columns behind it have the next numbers
OTHER = 255  # a label was learnt whose column is so large that it stands in `others`

_FIRST_ROOM = 32  # marks that there is room for at first


@entry
def mark_outcomes(outcomes: Vector, due: Ints, end: int, marks: Bytes) -> None:
    """The mark of each outcome, as `SettledEvents.after` says."""
    for i in range(len(marks)):
        y = outcomes[i]
        if y != y or (len(due) > 0 and due[i] >= end):  # noqa: PLR0124 - NaN
            marks[i] = OPEN
        else:
            marks[i] = min(ZERO + int(y), OTHER)


class SettledEvents(Marks):
    """The settled events of one stream, and by which label: a byte for each event of a bounded past.

    Every change is one assignment or one call into C, so that an interrupt finds all of it or nothing.

    >>> from calibeat.hosts.ledger import SettledEvents
    >>> settled = SettledEvents()
    >>> settled.settle(0, 1)
    >>> settled.settle(2, 0)
    >>> [settled.mark(event) for event in range(4)]
    [3, 0, 2, 0]
    >>> settled.dump()
    {'first': 0, 'given_up': 0, 'marks': 'Iw=='}
    """

    __slots__ = ("classes", "given_up", "keep")

    def __init__(self, first: int = 0, *, keep: int | None = None, classes: int = 2) -> None:
        self.keep = KEPT_EVENTS if keep is None else keep
        self.classes = classes
        self.given_up = 0  # events before this one may have been given up
        # The first event that has a mark, and the marks. Events that have no mark yet are open.
        self.span = first, bytearray(_FIRST_ROOM)
        self.others = {}

    def mark(self, event: int) -> int:
        """What is known of an event."""
        first, marks = self.span
        at = event - first
        if at < 0:
            return CLOSED
        return marks[at] if at < len(marks) else OPEN

    def column(self, event: int) -> int:
        """The column of the label that an event has learnt."""
        mark = self.mark(event)
        return mark - ZERO if mark < OTHER else self.others[event]

    def settle(self, event: int, column: int) -> None:
        """Mark an event that is open."""
        first, marks = self.span
        at, mark = event - first, min(ZERO + column, OTHER)
        if mark == OTHER:
            self.others[event] = column
        if at < len(marks):
            marks[at] = mark
        else:
            first, before = _up_to(event, first, marks)
            self._replace(first, before + bytes((mark,)), self.others)

    def with_room(self, event: int) -> SettledEvents:
        """A copy in which an event, which is open, has room for its mark."""
        first, before = _up_to(event, *self.span)
        made = self._with_marks(first, before + b"\1", dict(self.others))
        made.span[1][event - made.span[0]] = OPEN
        return made

    def _with_marks(self, first: int, marks: bytes, others: dict[int, int]) -> SettledEvents:
        made = SettledEvents(keep=self.keep, classes=self.classes)
        made.given_up = self.given_up
        made._replace(first, marks, others)
        return made

    def after(self, event: int, outcomes: Vector, due: Ints = NO_DUE, end: int = 0) -> SettledEvents:
        """A copy in which the events from `event` on, none of which has a mark yet, have these outcomes.

        NaN leaves an event open, and so does an outcome that is due at `end` or later, if there is `due`. Of a long
        batch without such only the end is read. Where all stay open, nothing is copied.
        """
        skipped = 0
        long = len(outcomes) > self.keep and not len(due)
        if long and not self.is_open_before(event) and not math.isnan(outcomes.sum()):
            skipped = len(outcomes) - self.keep
        known = outcomes[skipped:]
        others: dict[int, int] = {}
        if self.classes > OTHER - ZERO:
            wide = np.flatnonzero(known >= OTHER - ZERO if not len(due) else (known >= OTHER - ZERO) & (due < end))
            others = dict(zip((wide + (event + skipped)).tolist(), known[wide].astype(int).tolist(), strict=True))
        marks = np.empty(len(known), dtype=np.uint8)
        mark_outcomes(known, due, end, marks)
        if skipped:
            return self._with_marks(event + skipped, marks.tobytes(), others)
        return self._extended(event, marks, {**self.others, **others})

    def copy(self) -> SettledEvents:
        """The same, on its own."""
        return self._with_marks(self.span[0], bytes(self.span[1]), dict(self.others))

    def closed_until(self, event: int, events: int) -> SettledEvents:
        """A copy in which the events from `event` up to `events` are closed."""
        return self._extended(event, np.full(events - event, CLOSED, dtype=np.uint8), dict(self.others))

    def _extended(self, event: int, marks: Bytes, others: dict[int, int]) -> SettledEvents:
        new = marks.tobytes().rstrip(b"\0")
        if not new:  # nothing to note
            return self
        first, before = _up_to(event, *self.span)
        return self._with_marks(first, before + new, others)

    def is_open_before(self, event: int) -> bool:
        """Whether some event before this one has no outcome yet."""
        first, marks = self.span
        return first + len(marks) < event or marks.find(OPEN, 0, max(0, event - first)) >= 0

    def _replace(self, first: int, marks: bytes, others: dict[int, int]) -> None:
        """Take these marks, without those that are too old, and with room for some more."""
        marks = marks.rstrip(b"\0")
        oldest = marks.find(OPEN)
        stale = (len(marks) if oldest < 0 else oldest) - self.keep
        if len(marks) - MOST_MARKS > stale:
            stale = len(marks) - MOST_MARKS
            self.given_up = max(self.given_up, first + marks.rfind(OPEN, 0, stale) + 1)
        stale = max(stale, 0)
        kept = marks[stale:]
        room = len(kept) + min(max(len(kept), _FIRST_ROOM), self.keep)
        if others:
            others = {event: column for event, column in others.items() if event >= first + stale}
        self.others, self.span = others, (first + stale, bytearray(kept.ljust(room, b"\0")))

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """As JSON-able data, in base 64: a byte for each mark; of two classes two bits, the first mark lowest."""
        copy = self.copy()
        first, marks = copy.span[0], copy.span[1].rstrip(b"\0")
        if self.classes == 2:
            fours = np.frombuffer(marks + bytes(-len(marks) % 4), dtype=np.uint8).reshape(-1, 4)
            marks = (fours << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=1, dtype=np.uint8).tobytes()
        data = {"first": first, "given_up": copy.given_up, "marks": base64.b64encode(marks).decode()}
        if copy.others:
            data["others"] = [list(pair) for pair in sorted(copy.others.items())]
        return data

    @classmethod
    def load(cls, data: Any, events: int, outcomes: int, *, keep: int | None = None, classes: int = 2) -> SettledEvents:
        """The inverse of `dump`, for a stream that has made so many forecasts and learnt so many outcomes."""
        if not isinstance(data, dict) or set(data) - {"others"} != {"first", "given_up", "marks"}:
            raise InvalidInput(f"settled must be an object with first, given_up, marks, got {data!r:.60}")
        settled = cls(check_whole("settled first", data["first"], 0, events), keep=keep, classes=classes)
        settled.given_up = check_whole("settled given_up", data["given_up"], 0, settled.span[0])
        try:
            marks = base64.b64decode(data["marks"], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"settled marks must be in base 64, got {data['marks']!r:.60}") from error
        if classes == 2:
            packed = np.frombuffer(marks, dtype=np.uint8)
            marks = ((packed[:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3).tobytes()
        first, marks = settled.span[0], marks.rstrip(b"\0")
        found = np.frombuffer(marks, dtype=np.uint8)
        known = int((found >= ZERO).sum())
        if first + len(marks) > events or len(marks) > MOST_MARKS or known > outcomes:
            raise InvalidInput(
                f"settled must fit the {outcomes} outcomes of {events} events, got {known} up to event "
                f"{first + len(marks)}"
            )
        others = _pairs(data.get("others", []), classes)
        wide = (first + np.flatnonzero(found == OTHER)).tolist()
        if (found[found != OTHER] >= ZERO + classes).any() or sorted(others) != wide:
            raise InvalidInput(f"settled labels must be those of {classes} classes, got others")
        settled._replace(first, marks, others)
        return settled

    @classmethod
    def unknown(cls, events: int, outcomes: int, *, keep: int | None = None, classes: int = 2) -> SettledEvents:
        """Of a stream that has kept no record: all events are settled if there are as many outcomes as events.

        If not, each of the last `MOST_MARKS` events may still get an outcome, once; the host counts them.
        """
        first = events if outcomes >= events else max(0, events - MOST_MARKS)
        return cls(first, keep=keep, classes=classes)


def _up_to(event: int, first: int, marks: bytes | bytearray) -> tuple[int, bytes]:
    """The first event and the marks from it up to `event`; events that are behind the marks are open.

    Open events that are too old are given up as soon as a mark follows, so they get no byte.
    """
    if event - MOST_MARKS > first + len(marks):
        return event - MOST_MARKS, bytes(MOST_MARKS)
    before = bytes(marks[: event - first])
    return first, before + bytes(event - first - len(before))


def _pairs(data: Any, classes: int) -> dict[int, int]:
    """Events and the columns of their labels."""
    if not isinstance(data, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in data):
        raise InvalidInput(f"settled others must be pairs of an event and a column, got {data!r:.60}")
    return {
        check_whole("settled event", event, 0, 2**53): check_whole("settled column", column, OTHER - ZERO, classes - 1)
        for event, column in data
    }


# ---- what is known of a stream's receipts --------------------------------------------------------------------------


def check_receipt(method: AnyMethod, forecast: AnyForecast, table: Any = None) -> None:
    """Raise `InvalidInput` unless a receipt holds what this method, with the groups of this table, can have issued."""
    event, numbers = forecast.event, method.receipt_width
    given: Any = forecast
    if isinstance(method, Method):
        given = forecast.binary if isinstance(forecast, MultiForecast) else forecast
        if given is None or (given.event, given.seen) != (event, forecast.seen):
            raise InvalidInput(f"forecast must hold the receipt of AUTO, got none - at event {event}")
        check_score(given.score)
        check_interval("forecast probability", given.probability, 0.0, 1.0)
        if method.cells:  # a cell that was damaged on the way must not reach the row
            check_whole("forecast cell", given.cell, 0, method.cells - 1)
        own = given.lanes if table is None else given.lanes[:numbers]
        sound = method.receipt_is_sound(own, given.score, given.seen, given.probability)
        if table is not None:
            sound, numbers = sound and table.receipt_is_sound(given.lanes, given.words), table.receipt_width
        elif given.words:
            raise InvalidInput(f"forecast must have no words of groups, got {len(given.words)} - at event {event}")
    else:
        if len(given.probabilities) != method.classes or not (given.probabilities > 0.0).all():
            got = f"{given.probabilities!r:.60}"
            raise InvalidInput(
                f"forecast must have {method.classes} positive probabilities, got {got} - at event {event}"
            )
        sound = len(given.lanes) == numbers and len(given.score) == method.classes
        sound = (
            sound
            and method.receipts_are_sound(
                given.lanes[None], given.score[None], np.array([given.seen]), given.probabilities[None]
            )[0]
        )
    if not sound:
        raise InvalidInput(
            f"forecast must remember the {numbers} numbers of its mixture as they were issued, "
            f"got {given.lanes!r:.60} - at event {event}"
        )


class Ledger(LedgerOfStream):
    """The receipts of one stream: which were issued here, and which events are settled by which label.

    `labels` are those of the columns; None where outcomes are 0 and 1.
    """

    __slots__ = ("_method", "issuer", "known", "labels")

    def __init__(
        self,
        method: AnyMethod,
        issuer: Issuer,
        settled: SettledEvents,
        known: int = 0,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self._method, self.labels = method, labels
        self.issuer = issuer
        self.settled = settled
        self.known = known  # of a bank's member: how many of its forecasts are accounted for here

    def check(self, forecast: AnyForecast, events: int, outcomes: int, table: Any = None) -> None:
        """Raise unless a receipt was issued for one of the events and says nothing impossible.

        The kernels trust a receipt blindly, so one that has travelled is looked at here. `events` forecasts have been
        made, and `outcomes` of them learnt; `table` is that of the groups, if there are any.
        """
        event = forecast.event
        if not self.issuer.is_own(forecast.issuer):
            others = (
                "by another method, seed or stream"
                if self.labels is None
                else "with other classes or by another method"
            )
            raise UnknownForecast(
                f"forecast must come from this calibrator, got one that was made {others} - at event {event}"
            )
        if not self.issuer.issued(event, forecast.issuer):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
                f"after the snapshot from which it continues - at event {event}"
            )
        if not 0 <= event < events:
            raise UnknownForecast(
                f"forecast must be one of the {events} that this calibrator has made, got event {event}"
            )
        check_whole("forecast seen", forecast.seen, 0, outcomes)
        check_receipt(self._method, forecast, table)

    def is_repeat(self, event: int, y: float) -> bool:
        """Whether the outcome of an event is known already; raise if another one is, or if nobody knows any more."""
        mark = self.settled.mark(event)
        what = "outcome" if self.labels is None else "label"
        if mark == CLOSED and event < self.settled.given_up:
            raise UnknownForecast(
                f"forecast must be young enough to know whether its {what} was learnt, got one from before event "
                f"{self.settled.given_up} - at event {event}"
            )
        if mark not in (OPEN, CLOSED) and (known := self.settled.column(event)) != y:
            learnt, got = self._shown(known), self._shown(int(y))
            raise OutcomeConflict(f"{what} must be the one already learnt, {learnt}, got {got} - at event {event}")
        return mark != OPEN

    def _shown(self, column: int) -> str:
        return str(column) if self.labels is None else repr(self.labels[column])

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.closed_until(self.known, events)
            self.known = events

    def is_open(self, events: int) -> bool:
        """Whether a receipt among so many events waits for its outcome."""
        return self.settled.is_open_before(min(events, self.known))

    def copy(self, events: int) -> Ledger:
        """For a copy of the stream, which begins a new generation after so many events."""
        self.catch_up(events)
        settled = self.settled.copy()
        return Ledger(self._method, self.issuer.copy(events), settled, events, self.labels)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        return {"settled": settled, "generations": self.issuer.dump(events, settled["first"])}

    def load(self, data: dict[str, Any], events: int, outcomes: int) -> Ledger:
        """What `dump` gave of a stream of the same method and name, in a new generation."""
        if not isinstance(data, dict) or not {"settled", "generations"} <= set(data):
            raise InvalidInput(f"record must be an object with settled and generations, got {data!r:.60}")
        issuer = Issuer.load(self.issuer.name, data["generations"], events)
        like = {"keep": self.settled.keep, "classes": self.settled.classes}
        settled = SettledEvents.load(data["settled"], events, outcomes, **like)
        return Ledger(self._method, issuer, settled, events, self.labels)
