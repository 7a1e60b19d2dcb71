"""Outcomes that wait for the service: one leaves only when it was answered, or when there is no room for it."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from . import shared

log = logging.getLogger("calibeat.client")
KEPT_REFUSALS = 1_000  # the latest ones; `refused` counts all


@dataclass(frozen=True)
class Refusal:
    """An outcome that the service will never take, and the service's reason."""

    event: dict[str, Any]
    reason: str


class Turn:
    """The right to send what waits, which one call has at a time."""

    __slots__ = ("__weakref__",)


class Buffer:
    """The outcomes that wait, the oldest first. Any thread may use it; no call waits for the network.

    Those that are being sent stay here until they are answered. When it is full, the oldest one that is not being sent
    goes; `dropped` counts these.

    >>> buffer = Buffer(2)
    >>> buffer.add({"id": id} for id in "abc")
    >>> part = buffer.oldest(10)
    >>> [event["id"] for event in part], buffer.dropped, len(buffer)
    (['b', 'c'], 1, 2)
    >>> buffer.answered(len(part))
    >>> len(buffer)
    0
    """

    def __init__(self, most: int) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._sending = 0  # how many of the oldest are being sent
        self._lock = threading.Lock()
        # A weak reference: if an interrupt hits a call before it can give its turn back, the turn ends with the call.
        self._turn: weakref.ref[Turn] | None = None
        self.most = most
        self.dropped = 0
        self.refused = 0
        self.refusals: deque[Refusal] = deque(maxlen=KEPT_REFUSALS)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        """Keep outcomes for later."""
        with self._lock:
            for event in events:
                self._events.append(event)
                self._make_room()

    def _make_room(self) -> None:
        """Those that are being sent count only if they come back: whoever is answered needs no room."""
        while len(self._events) - self._sending > self.most:
            del self._events[self._sending]
            self.dropped += 1

    def holds(self, ids: set[str]) -> bool:
        """Whether an outcome of one of these events waits."""
        with self._lock:
            return any(event["id"] in ids for event in self._events)

    # ---- sending ----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no call is sending."""
        return self._turn is None or self._turn() is None

    def take_turn(self) -> Turn | None:
        """Become the call that sends; None if there is one."""
        with self._lock:
            if not self.is_idle:
                return None
            turn = Turn()
            self._turn = weakref.ref(turn)
            return turn

    def end_turn(self) -> None:
        """What was being sent and not answered waits again."""
        with self._lock:
            self._sending = 0
            self._make_room()
            self._turn = None

    def oldest(self, most: int) -> list[dict[str, Any]]:
        """The oldest outcomes, as many as fit into one request; they are being sent from now on."""
        with self._lock:
            part = next(shared.batches(list(islice(self._events, most))), [])
            self._sending = len(part)
            return part

    def answered(self, count: int) -> None:
        """The oldest ones were answered."""
        with self._lock:
            for _ in range(count):
                self._events.popleft()
                self._sending -= 1

    def reason(self, event: dict[str, Any]) -> str:
        """Why an outcome was refused."""
        with self._lock:
            found = (refusal.reason for refusal in reversed(self.refusals) if refusal.event is event)
            return next(found, "the service refused it")  # one of so many that its reason was let go

    def refuse(self, at: int, reason: str) -> None:
        """One of those that were sent is set aside: the service said that it will never take it."""
        with self._lock:
            event = self._events[at]
            self.refusals.append(Refusal(event, reason))
            self.refused += 1
            del self._events[at]
            self._sending -= 1
        log.warning("an outcome was refused and set aside: %s - stream %r, id %r", reason, event["stream"], event["id"])
