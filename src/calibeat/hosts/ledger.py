"""What a stream knows of its receipts: who issues them, which are settled, and what one from outside must look like."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from typing import Any

import numpy as np

from calibeat._util.check import check_interval, check_score, check_whole
from calibeat._util.types import Bytes, Vector
from calibeat.core.method import Method
from calibeat.core.randomness import stream_key
from calibeat.core.receipt import Forecast
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast

DIGITS = 16  # of a name
MOST_LIVES = 64

# The first event of a life, and its number: 8 hexadecimal digits, nothing for the very first life, None for one that
# has issued no receipt yet.
Life = tuple[int, str | None]


class Issuer:
    """The name of one stream and its lives, in the order of their first events.

    >>> from calibeat.hosts.ledger import Issuer
    >>> issuer = Issuer("00c0ffee00c0ffee")
    >>> issuer.signature
    '00c0ffee00c0ffee'
    >>> issuer.begin(100)                            # restored from a snapshot that was taken after 100 forecasts
    >>> signature = issuer.sign()                    # such as '00c0ffee00c0ffee-5eed5eed'
    >>> issuer.issued(99, issuer.name), issuer.issued(100, issuer.name), issuer.issued(100, signature)
    (True, False, True)
    """

    __slots__ = ("lives", "name")

    def __init__(self, name: str, lives: tuple[Life, ...] = ((0, ""),)) -> None:
        self.name = name
        self.lives = lives

    @property
    def signature(self) -> str:
        """What receipts of the present life carry; empty while it has issued none."""
        return self._signature(self.lives[-1][1])

    def _signature(self, life: str | None) -> str:
        return "" if life is None else f"{self.name}-{life}" if life else self.name

    def sign(self, life: str | None = None) -> str:
        """Give the present life a number, this one or a random one, if it has none."""
        first, number = self.lives[-1]
        if number is None:
            self.lives = (*self.lives[:-1], (first, life or new_life()))
        return self.signature

    def begin(self, event: int) -> None:
        """Begin a new life, whose first event is this one."""
        lives = self.lives if self.lives[-1][0] < event else self.lives[:-1]  # one without an event leaves no trace
        self.lives = (*lives[1 - MOST_LIVES :], (event, None))

    def is_own(self, signature: str) -> bool:
        """Whether a receipt is of this stream, in whatever life."""
        return signature[:DIGITS] == self.name

    def issued(self, event: int, signature: str) -> bool:
        """Whether this signature may be on the receipt of this event: before the first life that is known, any may."""
        for first, life in reversed(self.lives):
            if first <= event:
                return signature == self._signature(life)
        return True

    def dump(self, events: int, settled: int) -> list[list[Any]]:
        """The lives that matter: those with an event that is made, and not settled for sure."""
        lives = [life for life in self.lives if life[0] < events]
        ends = [first for first, _ in lives[1:]] + [events]
        kept = [list(life) for life, end in zip(lives, ends, strict=False) if end > settled]
        return [] if kept == [[0, ""]] else kept

    def load(self, data: Any, events: int) -> None:
        """The inverse of `dump`."""
        if not isinstance(data, list) or len(data) > MOST_LIVES or not all(map(_is_life, data)):
            raise InvalidInput(f"lives must be pairs of a first event and a number, got {data!r:.60}")
        firsts = [check_whole("first event of a life", first, 0, events) for first, _ in data]
        if firsts != sorted(set(firsts)):
            raise InvalidInput(f"lives must be in the order of their first events, got {data!r:.60}")
        if data:
            self.lives = tuple((first, life) for first, life in data)


def issuer_name(method: Method, seed: int, stream: int | str) -> str:
    """The name of a stream: 16 hexadecimal digits of its method, as `repr` shows it, its seed and its name.

    >>> from calibeat import TOPS
    >>> issuer_name(TOPS, 0, 0)
    'd9169e331ae0b5d7'
    """
    return f"{stream_key(stream_key(seed, stream), repr(method)):016x}"


def new_life() -> str:
    """A random number, 0 left out, as 8 hexadecimal digits."""
    return f"{secrets.randbelow(2**32 - 1) + 1:08x}"


def _is_life(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return pair[1] in (None, "") or (isinstance(pair[1], str) and re.fullmatch("[0-9a-f]{8}", pair[1]) is not None)


KEEP = 4096
MOST = 4_194_304

OPEN = 0  # no outcome yet
CLOSED = 1  # none will be learnt any more, and nobody knows which one was
ZERO, ONE = 2, 3  # this outcome was learnt

Span = tuple[int, bytearray, Bytes]

_LEAST = 32  # marks that there is room for at first


class Settled:
    """The settled events of one stream.

    Every change is one assignment or one call into C, so that an interrupt finds all of it or nothing.

    >>> from calibeat.hosts.ledger import Settled
    >>> settled = Settled()
    >>> settled.settle(0, 1)
    >>> settled.settle(2, 0)
    >>> [settled.mark(event) for event in range(4)]
    [3, 0, 2, 0]
    >>> settled.dump()
    {'first': 0, 'given_up': 0, 'marks': 'Iw=='}
    """

    __slots__ = ("given_up", "keep", "span")

    def __init__(self, first: int = 0, *, keep: int | None = None) -> None:
        self.keep = KEEP if keep is None else keep
        self.given_up = 0  # events before this one may have been given up
        # The first event that has a mark, and the marks: as bytes, and as the array that compiled kernels write in.
        # Their last byte is 0 as long as they are in use. It is 1 once others have taken their place: then no kernel
        # that still holds them writes there. Events that have no mark yet are open.
        self.span = _span(first, b"", _LEAST)

    def mark(self, event: int) -> int:
        """What is known of an event."""
        first, marks, _ = self.span
        at = event - first
        if at < 0:
            return CLOSED
        return marks[at] if at < len(marks) - 1 else OPEN

    def settle(self, event: int, outcome: int) -> None:
        """Mark an event that is open."""
        first, marks, _ = self.span
        at = event - first
        if at < len(marks) - 1:
            marks[at] = ZERO + outcome
        else:
            self._replace(first, self._longer(at, outcome))

    def with_outcome(self, event: int, outcome: int) -> Settled:
        """A copy in which an event has this outcome, for whose mark there is no room here."""
        first, _, _ = self.span
        made = Settled(keep=self.keep)
        made.given_up = self.given_up
        made._replace(first, self._longer(event - first, outcome))
        return made

    def _longer(self, at: int, outcome: int) -> bytes:
        marks = self.span[1]
        return bytes(marks[:-1]) + bytes(at + 1 - len(marks)) + bytes((ZERO + outcome,))

    def reopen(self, event: int) -> None:
        """Take `settle` back, whether or not it came to pass; the event was open before."""
        first, marks, _ = self.span
        if 0 <= event - first < len(marks) - 1:
            marks[event - first] = OPEN

    def after(self, event: int, marks: Bytes) -> Settled:
        """A copy in which the events from `event` on, none of which has a mark yet, have these."""
        first, known, _ = self.span
        before = bytes(known[: event - first]) if event >= first else b""
        made = Settled(keep=self.keep)
        made.given_up = self.given_up
        made._replace(first, before + bytes(event - first - len(before)) + marks.tobytes())
        return made

    def after_all(self, event: int, outcomes: Vector) -> Settled:
        """A copy in which all events from `event` on have these outcomes; of a long batch only the end is looked at."""
        skipped = 0 if self.is_open_before(event) else max(0, len(outcomes) - self.keep)
        marks = outcomes[skipped:].astype(np.uint8)
        marks += ZERO
        if skipped == 0:
            return self.after(event, marks)
        last = Settled(event + skipped, keep=self.keep)
        last.given_up = self.given_up
        return last.after(event + skipped, marks)

    def is_open_before(self, event: int) -> bool:
        """Whether some event before this one has no outcome yet."""
        first, marks, _ = self.span
        return first + len(marks) - 1 < event or marks.find(OPEN, 0, max(0, event - first)) >= 0

    def overtaken(self) -> bool:
        """Whether an outcome was learnt before that of an earlier event."""
        return OPEN in self.span[1].rstrip(b"\0") or self.given_up > 0

    def _replace(self, first: int, marks: bytes) -> None:
        """Take these marks, without those that are too old, and with room for some more."""
        marks = marks.rstrip(b"\0")
        oldest = marks.find(OPEN)
        stale = (len(marks) if oldest < 0 else oldest) - self.keep
        if len(marks) - MOST > stale:
            stale = len(marks) - MOST
            self.given_up = max(self.given_up, first + marks.rfind(OPEN, 0, stale) + 1)
        stale = max(stale, 0)
        kept = marks[stale:]
        room = len(kept) + min(max(len(kept), _LEAST), self.keep)
        old, self.span = self.span, _span(first + stale, kept, room)
        old[1][-1] = 1  # who still holds them must not write there any more

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """As JSON-able data: two bits for each mark, four to a byte, the first one lowest, in base 64."""
        copy = Settled(keep=self.keep)
        copy.given_up = self.given_up
        copy._replace(self.span[0], bytes(self.span[1][:-1]))
        first, marks = copy.span[0], copy.span[1].rstrip(b"\0")
        fours = np.frombuffer(marks + bytes(-len(marks) % 4), dtype=np.uint8).reshape(-1, 4)
        packed = (fours << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
        return {"first": first, "given_up": copy.given_up, "marks": base64.b64encode(packed.tobytes()).decode()}

    @classmethod
    def load(cls, data: Any, events: int, outcomes: int, *, keep: int | None = None) -> Settled:
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
        if first + len(marks) > events or len(marks) > MOST or known > outcomes:
            raise InvalidInput(
                f"settled must fit the {outcomes} outcomes of {events} events, got {known} up to event "
                f"{first + len(marks)}"
            )
        settled._replace(first, marks)
        return settled

    @classmethod
    def unknown(cls, events: int, outcomes: int, *, keep: int | None = None) -> Settled:
        """Of a stream whose settled events nobody has written down: all, if there are as many outcomes as events.

        If not, each of the last `MOST` events may still get an outcome, once; the host counts them.
        """
        return cls(events if outcomes >= events else max(0, events - MOST), keep=keep)


def _span(first: int, marks: bytes, room: int) -> Span:
    content = bytearray(room + 1)
    content[: len(marks)] = marks
    return first, content, np.frombuffer(content, dtype=np.uint8)


class Receipts:
    """The receipts of one stream."""

    __slots__ = ("_method", "issuer", "known", "settled")

    def __init__(self, method: Method, issuer: Issuer, settled: Settled, known: int = 0) -> None:
        self._method = method
        self.issuer = issuer
        self.settled = settled
        self.known = known  # of a bank's member: how many of its forecasts are accounted for here

    def check(self, forecast: Forecast, events: int, outcomes: int) -> Forecast:
        """The receipt, if it was issued for one of the events and says nothing impossible; raise if not.

        The kernels trust a receipt blindly, so one that has travelled is looked at here. `events` forecasts have been
        made, and `outcomes` of them learnt.
        """
        if not _is_typed(forecast):
            forecast = Forecast.from_dict(forecast.to_dict())
        event, signature = forecast.event, forecast.issuer
        if not self.issuer.is_own(signature):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that was made by another method, seed or stream - "
                f"at event {event}"
            )
        if not self.issuer.issued(event, signature):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
                f"after the snapshot from which it continues - at event {event}"
            )
        if not 0 <= event < events:
            raise UnknownForecast(
                f"forecast must be one of the {events} that this calibrator has made, got event {event}"
            )
        check_whole("forecast seen", forecast.seen, 0, outcomes)
        if not self._method.receipt_is_sound(forecast.lanes, forecast.score, forecast.seen, forecast.probability):
            raise InvalidInput(
                f"forecast must remember the {self._method.receipt_width} numbers of its mixture as they were issued, "
                f"got {forecast.lanes!r:.60} - at event {event}"
            )
        check_score(forecast.score)
        check_interval("forecast probability", forecast.probability, 0.0, 1.0)
        if self._method.cells:  # a cell that was damaged on the way must not reach the row
            check_whole("forecast cell", forecast.cell, 0, self._method.cells - 1)
        return forecast

    def is_repeat(self, event: int, y: float) -> bool:
        """Whether the outcome of an event is known already; raise if another one is."""
        mark = self.settled.mark(event)
        if mark == OPEN:
            return False
        if mark == CLOSED and event < self.settled.given_up:
            raise UnknownForecast(
                "forecast must be young enough to know whether its outcome was learnt, got one from before event "
                f"{self.settled.given_up} - at event {event}"
            )
        if mark != CLOSED and mark - ZERO != y:
            raise OutcomeConflict(
                f"outcome must be the one already learnt, {mark - ZERO}, got {y:.0f} - at event {event}"
            )
        return True

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.after(self.known, np.full(events - self.known, CLOSED, dtype=np.uint8))
            self.known = events

    def is_open(self, events: int) -> bool:
        """Whether a receipt among so many events waits for its outcome."""
        return self.settled.is_open_before(min(events, self.known))

    def copy(self, events: int) -> Receipts:
        """For a copy of the stream, which begins a new life after so many events."""
        self.catch_up(events)
        issuer = Issuer(self.issuer.name, self.issuer.lives)
        issuer.begin(events)
        return Receipts(self._method, issuer, self.settled.after(events, np.empty(0, dtype=np.uint8)), events)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        return {"settled": settled, "lives": self.issuer.dump(events, settled["first"])}

    @classmethod
    def load(
        cls, method: Method, name: str, data: dict[str, Any], events: int, outcomes: int, *, keep: int | None = None
    ) -> Receipts:
        """The inverse of `dump`, in a new life."""
        issuer = Issuer(name)
        issuer.load(data["lives"], events)
        issuer.begin(events)
        return cls(method, issuer, Settled.load(data["settled"], events, outcomes, keep=keep), events)


def _is_typed(forecast: Forecast) -> bool:
    """Whether the fields have the types that `predict` gives them; a receipt made by hand may have others."""
    probability, score, _, _, cell, event, seen, issuer, lanes, _ = forecast
    return (
        type(probability) is type(score) is float
        and type(cell) is type(event) is type(seen) is int
        and type(issuer) is str
        and type(lanes) is tuple
        and all(type(number) is float for number in lanes)
    )
