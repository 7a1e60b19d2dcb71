"""The requests that wait for an engine, and the groups that it takes of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from .events import Control, ForecastEvent, Refusal, StreamSettings
from .plan import Answer, Request
from .settings import EngineSettings

OUTCOMES_AT_ONCE = 1000  # of one request, in one group


class Intake:
    """A queue that any thread fills and the engine's thread empties."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._waiting: deque[Request] = deque()
        self.events = 0  # that wait
        self._wake = threading.Condition()
        self._closed: Refusal | None = None  # why no more are taken
        self._is_woken = False
        self.is_lost = False  # nobody will ever take what waits

    def add(self, ticket: object, events: Any) -> None:
        """Queue a request. It never waits.

        Raises
        ------
        Refusal : the queue is full or closed.
        """
        settings = self._settings
        with self._wake:
            if self._closed is not None:
                raise self._closed
            if len(self._waiting) >= settings.queue or self.events >= settings.queue_events:
                raise Refusal(
                    "full", f"the queue must have room, got {self.events} events that wait - try again", None, 503
                )
            self._waiting.append((ticket, events))
            self.events += len(events)
            self._wake.notify()

    def wake(self) -> None:
        """There is something else to do than requests."""
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def close(self, refusal: Refusal) -> None:
        """Take no more. What waits is still given out. The first reason is the one that is told."""
        with self._wake:
            self._closed = self._closed or refusal
            self._wake.notify()

    def take(self, seconds: Callable[[], float]) -> list[Request] | None:
        """What waits, as one group; an empty one after some seconds, or if it was woken; None at the end."""
        with self._wake:
            if not self._waiting and not self._is_woken and self._closed is None:
                self._wake.wait(seconds())
            self._is_woken = False
            if not self._waiting:
                return None if self._closed is not None else []
            taken: list[Request] = []
            size = 0
            while self._waiting and (not taken or size + len(self._waiting[0][1]) <= self._settings.group):
                if is_control(self._waiting[0]) and taken:
                    break
                request, rest = in_two(self._waiting.popleft())
                taken.append(request)
                size += len(request[1])
                if rest is not None:  # the others come first
                    self._waiting.append(rest)
                    break
                if is_control(request):  # a group of its own
                    break
            self.events -= size
            return taken


@dataclass(frozen=True)
class PartTicket:
    """The ticket of a part of a request, which is answered with its last part."""

    ticket: Any
    answers: list[Any]  # of the parts so far
    is_last: bool = False


def in_two(request: Request) -> tuple[Request, Request | None]:
    """A request, or what is done of it now and what is done later.

    Many outcomes are found at as many places of a large store. They need not be learnt together, so others do not have
    to wait for all of them.
    """
    ticket, events = request
    if len(events) <= OUTCOMES_AT_ONCE or isinstance(events[0], (ForecastEvent, Control)):
        if not isinstance(ticket, PartTicket):
            return request, None
        return (replace(ticket, is_last=True), events), None
    part = ticket if isinstance(ticket, PartTicket) else PartTicket(ticket, [])
    return (part, events[:OUTCOMES_AT_ONCE]), (part, events[OUTCOMES_AT_ONCE:])


def joined(answers: Sequence[tuple[Any, Answer]]) -> list[tuple[Any, Answer]]:
    """Answers, with the parts of a request as one: what was refused refuses all of it."""
    whole: list[tuple[Any, Answer]] = []
    for ticket, answer in answers:
        if not isinstance(ticket, PartTicket):
            whole.append((ticket, answer))
            continue
        ticket.answers.append(answer)
        if ticket.is_last:
            refused = [each for each in ticket.answers if isinstance(each, Refusal)]
            whole.append((ticket.ticket, refused[0] if refused else [told for each in ticket.answers for told in each]))
    return whole


def is_control(request: tuple[Any, Any]) -> bool:
    """Whether a request is something that is done to a stream, or may be: that a model joins it."""
    event = request[1][0] if request[1] else None
    return type(event) is Control or (type(event) is StreamSettings and event.models is not UNSET)
