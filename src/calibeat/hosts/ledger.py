"""The ledger of a stream: who issues its receipts, which events are settled, and by which label.

A stream that continues from a snapshot, or in a forked process, begins a new **generation**: a number on its receipts,
which tells them from those that other copies of the stream issue.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat._compiled import Forecast, LedgerOfStream, Marks
from calibeat._util.check import check_interval, check_score, check_whole
from calibeat._util.types import Bytes, Ints, Vector
from calibeat.core.method import Method
from calibeat.core.randomness import stream_key
from calibeat.core.receipt import MultiForecast
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast

DIGITS = 16  # of a name
MOST_GENERATIONS = 64

# The first event of a generation, and its number: 8 hexadecimal digits, nothing for the very first generation, None for
# one that has issued no receipt yet.
Generation = tuple[int, str | None]


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
        ends = [first for first, _ in begun[1:]] + [events]
        kept = [list(generation) for generation, end in zip(begun, ends, strict=False) if end > settled]
        return [] if kept == [[0, ""]] else kept

    @classmethod
    def load(cls, name: str, data: Any, events: int) -> Issuer:
        """The inverse of `dump`, in a new generation after so many events."""
        if not isinstance(data, list) or len(data) > MOST_GENERATIONS or not all(map(_is_generation, data)):
            raise InvalidInput(f"lives must be pairs of a first event and a number, got {data!r:.60}")
        firsts = [check_whole("first event of a life", first, 0, events) for first, _ in data]
        if firsts != sorted(set(firsts)):
            raise InvalidInput(f"lives must be in the order of their first events, got {data!r:.60}")
        return cls(name, tuple((first, number) for first, number in data) or ((0, ""),)).copy(events)


def issuer_name(method: Method, seed: int, stream: int | str) -> str:
    """The name of a stream: 16 hexadecimal digits of its method, as `repr` shows it, its seed and its name.

    >>> from calibeat import TOPS
    >>> issuer_name(TOPS, 0, 0)
    'd9169e331ae0b5d7'
    """
    return f"{stream_key(stream_key(seed, stream), repr(method)):016x}"


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
ZERO, ONE = 2, 3  # this outcome was learnt

_FIRST_ROOM = 32  # marks that there is room for at first


class SettledEvents(Marks):
    """The settled events of one stream.

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

    __slots__ = ("given_up", "keep")

    def __init__(self, first: int = 0, *, keep: int | None = None) -> None:
        self.keep = KEPT_EVENTS if keep is None else keep
        self.given_up = 0  # events before this one may have been given up
        # The first event that has a mark, and the marks. Events that have no mark yet are open.
        self.span = first, bytearray(_FIRST_ROOM)

    def mark(self, event: int) -> int:
        """What is known of an event."""
        first, marks = self.span
        at = event - first
        if at < 0:
            return CLOSED
        return marks[at] if at < len(marks) else OPEN

    def settle(self, event: int, outcome: int) -> None:
        """Mark an event that is open."""
        first, marks = self.span
        at = event - first
        if at < len(marks):
            marks[at] = ZERO + outcome
        else:
            self._replace(first, self._longer(at, outcome))

    def with_outcome(self, event: int, outcome: int) -> SettledEvents:
        """A copy in which an event has this outcome, for whose mark there is no room here."""
        first, _ = self.span
        return self._with_marks(first, self._longer(event - first, outcome))

    def _with_marks(self, first: int, marks: bytes) -> SettledEvents:
        made = SettledEvents(keep=self.keep)
        made.given_up = self.given_up
        made._replace(first, marks)
        return made

    def _longer(self, at: int, outcome: int) -> bytes:
        marks = self.span[1]
        return bytes(marks) + bytes(at - len(marks)) + bytes((ZERO + outcome,))

    def reopen(self, event: int) -> None:
        """Take `settle` back, whether or not it came to pass; the event was open before."""
        first, marks = self.span
        if 0 <= event - first < len(marks):
            marks[event - first] = OPEN

    def after(self, event: int, marks: Bytes) -> SettledEvents:
        """A copy in which the events from `event` on, none of which has a mark yet, have these."""
        first, known = self.span
        before = bytes(known[: event - first]) if event >= first else b""
        return self._with_marks(first, before + bytes(event - first - len(before)) + marks.tobytes())

    def after_all(self, event: int, outcomes: Vector) -> SettledEvents:
        """A copy in which all events from `event` on have these outcomes. Of a long batch only the end is read."""
        skipped = 0 if self.is_open_before(event) else max(0, len(outcomes) - self.keep)
        marks = outcomes[skipped:].astype(np.uint8)
        marks += ZERO
        return self.after(event, marks) if skipped == 0 else self._with_marks(event + skipped, marks.tobytes())

    def is_open_before(self, event: int) -> bool:
        """Whether some event before this one has no outcome yet."""
        first, marks = self.span
        return first + len(marks) < event or marks.find(OPEN, 0, max(0, event - first)) >= 0

    def overtaken(self) -> bool:
        """Whether an outcome was learnt before that of an earlier event."""
        return OPEN in self.span[1].rstrip(b"\0") or self.given_up > 0

    def _replace(self, first: int, marks: bytes) -> None:
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
        self.span = first + stale, bytearray(kept.ljust(room, b"\0"))

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """As JSON-able data: two bits for each mark, four to a byte, the first one lowest, in base 64."""
        copy = self._with_marks(self.span[0], bytes(self.span[1]))
        first, marks = copy.span[0], copy.span[1].rstrip(b"\0")
        fours = np.frombuffer(marks + bytes(-len(marks) % 4), dtype=np.uint8).reshape(-1, 4)
        packed = (fours << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
        return {"first": first, "given_up": copy.given_up, "marks": base64.b64encode(packed.tobytes()).decode()}

    @classmethod
    def load(cls, data: Any, events: int, outcomes: int, *, keep: int | None = None) -> SettledEvents:
        """The inverse of `dump`, for a stream that has made so many forecasts and learnt so many outcomes."""
        if not isinstance(data, dict) or set(data) != {"first", "given_up", "marks"}:
            raise InvalidInput(f"settled must be an object with first, given_up, marks, got {data!r:.60}")
        settled = cls(check_whole("settled first", data["first"], 0, events), keep=keep)
        settled.given_up = check_whole("settled given_up", data["given_up"], 0, settled.span[0])
        try:
            packed = np.frombuffer(base64.b64decode(data["marks"], validate=True), dtype=np.uint8)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"settled marks must be in base 64, got {data['marks']!r:.60}") from error
        fours = (packed[:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
        first, marks = settled.span[0], fours.tobytes().rstrip(b"\0")
        known = marks.count(ZERO) + marks.count(ONE)
        if first + len(marks) > events or len(marks) > MOST_MARKS or known > outcomes:
            raise InvalidInput(
                f"settled must fit the {outcomes} outcomes of {events} events, got {known} up to event "
                f"{first + len(marks)}"
            )
        settled._replace(first, marks)
        return settled

    @classmethod
    def unknown(cls, events: int, outcomes: int, *, keep: int | None = None) -> SettledEvents:
        """Of a stream that has kept no record: all events are settled if there are as many outcomes as events.

        If not, each of the last `MOST_MARKS` events may still get an outcome, once; the host counts them.
        """
        return cls(events if outcomes >= events else max(0, events - MOST_MARKS), keep=keep)


# ---- what is known of a stream's receipts --------------------------------------------------------------------------


class Ledger(LedgerOfStream):
    """The receipts of one stream of two classes."""

    __slots__ = ("_method", "issuer", "known")

    def __init__(self, method: Method, issuer: Issuer, settled: SettledEvents, known: int = 0) -> None:
        self._method = method
        self.issuer = issuer
        self.settled = settled
        self.known = known  # of a bank's member: how many of its forecasts are accounted for here

    def check(self, forecast: Forecast, events: int, outcomes: int) -> Forecast:
        """The receipt, if it was issued for one of the events and says nothing impossible; raise if not.

        The kernels trust a receipt blindly, so one that has travelled is looked at here. `events` forecasts have been
        made, and `outcomes` of them learnt.
        """
        _check_issued(self.issuer, forecast, events, outcomes, "by another method, seed or stream")
        if not self._method.receipt_is_sound(forecast.lanes, forecast.score, forecast.seen, forecast.probability):
            raise InvalidInput(
                f"forecast must remember the {self._method.receipt_width} numbers of its mixture as they were issued, "
                f"got {forecast.lanes!r:.60} - at event {forecast.event}"
            )
        check_score(forecast.score)
        check_interval("forecast probability", forecast.probability, 0.0, 1.0)
        if self._method.cells:  # a cell that was damaged on the way must not reach the row
            check_whole("forecast cell", forecast.cell, 0, self._method.cells - 1)
        return forecast

    def is_repeat(self, event: int, y: float) -> bool:
        """Whether the outcome of an event is known already; raise if another one is."""
        mark = _mark(self.settled, event, "outcome")
        if mark not in (OPEN, CLOSED) and mark - ZERO != y:
            raise OutcomeConflict(
                f"outcome must be the one already learnt, {mark - ZERO}, got {y:.0f} - at event {event}"
            )
        return mark != OPEN

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.after(self.known, np.full(events - self.known, CLOSED, dtype=np.uint8))
            self.known = events

    def is_open(self, events: int) -> bool:
        """Whether a receipt among so many events waits for its outcome."""
        return self.settled.is_open_before(min(events, self.known))

    def copy(self, events: int) -> Ledger:
        """For a copy of the stream, which begins a new generation after so many events."""
        self.catch_up(events)
        settled = self.settled.after(events, np.empty(0, dtype=np.uint8))
        return Ledger(self._method, self.issuer.copy(events), settled, events)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        return {"settled": settled, "lives": self.issuer.dump(events, settled["first"])}

    @classmethod
    def load(
        cls, method: Method, name: str, data: dict[str, Any], events: int, outcomes: int, *, keep: int | None = None
    ) -> Ledger:
        """The inverse of `dump`, in a new generation."""
        issuer = Issuer.load(name, data["lives"], events)
        return cls(method, issuer, SettledEvents.load(data["settled"], events, outcomes, keep=keep), events)


def _check_issued(
    issuer: Issuer, forecast: Forecast | MultiForecast, events: int, outcomes: int, otherwise: str
) -> None:
    """Raise unless a receipt was issued for one of the events; `otherwise` is how those of other streams are made."""
    event = forecast.event
    if not issuer.is_own(forecast.issuer):
        raise UnknownForecast(
            f"forecast must come from this calibrator, got one that was made {otherwise} - at event {event}"
        )
    if not issuer.issued(event, forecast.issuer):
        raise UnknownForecast(
            "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
            f"after the snapshot from which it continues - at event {event}"
        )
    if not 0 <= event < events:
        raise UnknownForecast(f"forecast must be one of the {events} that this calibrator has made, got event {event}")
    check_whole("forecast seen", forecast.seen, 0, outcomes)


def _mark(settled: SettledEvents, event: int, what: str) -> int:
    """What is known of an event; raise if it is so old that nobody knows."""
    mark = settled.mark(event)
    if mark == CLOSED and event < settled.given_up:
        raise UnknownForecast(
            f"forecast must be young enough to know whether its {what} was learnt, got one from before event "
            f"{settled.given_up} - at event {event}"
        )
    return mark


PENDING = -1  # no label yet


class LabelLedger:
    """The receipts of one stream of many classes.

    `SettledEvents` remembers which events have a label, for a bounded past (see there). Beside each of its marks stands
    the column of the label, so that a repeat is told from a contradiction.
    """

    def __init__(self, issuer: Issuer, labels: Sequence[Any], events: int = 0, *, keep: int | None = None) -> None:
        self.issuer = issuer
        self.known = events  # events that are accounted for; those that a batch of a bank made have no receipts
        self.settled = SettledEvents(events, keep=keep)
        self._labels = labels  # of the classes, by column
        self._first, self._columns = events, array("i")  # the columns of the labels from this event on

    def check(self, forecast: MultiForecast, events: int, outcomes: int, *, expert: bool) -> None:
        """Raise unless the receipt was issued for one of the events and says nothing impossible."""
        _check_issued(self.issuer, forecast, events, outcomes, "with other classes or by another method")
        event, K = forecast.event, len(self._labels)
        if len(forecast.probabilities) != K or not (forecast.probabilities > 0.0).all():
            got = f"{forecast.probabilities!r:.60}"
            raise InvalidInput(f"forecast must have {K} positive probabilities, got {got} - at event {event}")
        if expert and (forecast.expert is None or not (forecast.expert > 0.0).all()):
            raise InvalidInput(f"forecast must hold what its expert said, got none - at event {event}")

    def is_repeat(self, event: int, column: int) -> bool:
        """Whether the label of an event is known already; raise if another one is."""
        mark = _mark(self.settled, event, "label")
        if mark not in (OPEN, CLOSED) and (known := self._columns[event - self._first]) != column:
            raise OutcomeConflict(
                f"label must be the one already learnt, {self._labels[known]!r}, got {self._labels[column]!r} - "
                f"at event {event}"
            )
        return mark != OPEN

    def settle(self, event: int, column: int) -> None:
        """An open event has learnt this label."""
        self.settled.settle(event, 1)
        self._extend(event + 1)
        self._columns[event - self._first] = column
        self._trim()

    def reopen(self, event: int) -> None:
        """Take `settle` back, whether or not it came to pass; the event was open before."""
        self.settled.reopen(event)
        if 0 <= event - self._first < len(self._columns):
            self._columns[event - self._first] = PENDING

    def after(self, first: int, columns: Ints) -> LabelLedger:
        """A copy in which new events from `first` on have learnt these labels; `PENDING` where none came."""
        made = LabelLedger(self.issuer, self._labels)
        made.settled = self.settled.after(first, np.where(columns == PENDING, OPEN, ONE).astype(np.uint8))
        made._first, made._columns = self._first, array("i", self._columns)
        made._extend(first)
        made._columns.frombytes(columns.astype(np.int32).tobytes())
        made._trim()
        return made

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.after(self.known, np.full(events - self.known, CLOSED, dtype=np.uint8))
            self._extend(events)
            self._trim()
            self.known = events

    def is_open(self) -> bool:
        """Whether a receipt waits for its label."""
        return self.settled.is_open_before(self.known)

    def copy(self, events: int) -> LabelLedger:
        """For a copy of the stream, which begins a new generation after so many events."""
        self.catch_up(events)
        made = LabelLedger(self.issuer.copy(events), self._labels, events)
        made.settled = self.settled.after(events, np.empty(0, dtype=np.uint8))
        made._first, made._columns = self._first, array("i", self._columns)
        made._trim()
        return made

    def _extend(self, end: int) -> None:
        self._columns.extend([PENDING] * (end - self._first - len(self._columns)))

    def _trim(self) -> None:
        first = self.settled.span[0]
        if first > self._first:  # one line, without a call: an interrupt comes before all of it or after all of it
            self._first, self._columns = first, self._columns[first - self._first :]

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        first, marks = self.settled.span
        size = first + len(marks.rstrip(b"\0")) - settled["first"]
        kept = np.array(self._columns[settled["first"] - self._first :][: max(0, size)], dtype="<i4")
        settled["labels"] = base64.b64encode(kept.tobytes()).decode()
        return {"settled": settled, "lives": self.issuer.dump(events, settled["first"])}

    @classmethod
    def load(
        cls,
        name: str,
        labels: Sequence[Any],
        data: dict[str, Any],
        events: int,
        outcomes: int,
        *,
        keep: int | None = None,
    ) -> LabelLedger:
        """The inverse of `dump`, in a new generation."""
        ledger = cls(Issuer.load(name, data["lives"], events), labels, events, keep=keep)
        if not isinstance(data["settled"], dict) or "labels" not in data["settled"]:
            raise InvalidInput(f"settled must be an object with labels, got {data['settled']!r:.60}")
        settled = dict(data["settled"])
        try:
            columns = np.frombuffer(base64.b64decode(settled.pop("labels"), validate=True), dtype="<i4")
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"settled labels must be in base 64, got {data['settled']!r:.60}") from error
        ledger.settled = SettledEvents.load(settled, events, outcomes, keep=keep)
        first, marks = ledger.settled.span
        known = np.frombuffer(marks.rstrip(b"\0"), dtype=np.uint8) == ONE
        if len(known) != len(columns) or not ((columns >= 0) == known).all() or (columns >= len(labels)).any():
            raise InvalidInput(f"settled labels must be those of the {int(known.sum())} settled events, got others")
        ledger._first, ledger._columns = first, array("i", columns.tolist())
        return ledger
