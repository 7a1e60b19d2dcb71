"""Which events of a stream have their outcome: one byte for each event of a bounded past.

A receipt may be delivered twice, by a queue or by a person. The host learns it once, because it remembers here which
events are settled. What is remembered, for a stream whose oldest event without an outcome is ``o`` and whose newest
event with one is ``s``:

==========================  =========================================================================================
event                       what is known
==========================  =========================================================================================
from ``o - KEEP`` on        whether it is settled, and its outcome: a repeat changes nothing, a contradiction is noticed
before ``o - KEEP``         it is settled, its outcome is forgotten: any outcome counts as a repeat
before ``s - MOST``         given up: if it had no outcome by then, a late one is refused
==========================  =========================================================================================

Memory: `KEEP` bytes when outcomes come in the order of the events, however late; at most `MOST` bytes if not.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.types import Bytes, Vector
from calibeat.errors import InvalidInput

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

    >>> from calibeat.stream.settled import Settled
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
