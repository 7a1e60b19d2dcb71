"""The private line between the workers of one service: Unix sockets in a folder that only their user can open.

A message is a length and msgpack. It carries everything that waits for the other side, and so do the answers: there is
no task or future for a request. Whoever asks keeps what was asked until it is answered, and asks again if the line
breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from .group import Answer
from .operations import ForecastEvent, OutcomeEvent, Refusal

_LENGTH = 4  # bytes


class Question(msgspec.Struct, array_like=True, gc=False):
    """Forecasts or outcomes that another worker is asked for."""

    number: int
    forecasts: list[ForecastEvent]
    outcomes: list[OutcomeEvent]


class Reply(msgspec.Struct, array_like=True, gc=False):
    """The answer to one of them; `refusal` has the arguments of a `Refusal`."""

    number: int
    forecasts: list[float] = []
    statuses: list[str] = []
    refusal: tuple[str, str, int | str | None, int] | None = None


_encode = msgspec.msgpack.Encoder().encode
_questions = msgspec.msgpack.Decoder(list[Question]).decode
_replies = msgspec.msgpack.Decoder(list[Reply]).decode


class Line(asyncio.Protocol):
    """One end of a connection: whole messages in, whole messages out."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._out: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """What waits goes out."""
        self.transport = transport  # type: ignore[assignment]
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Give on every message that is whole."""
        received = self._received
        received += data
        while len(received) >= _LENGTH:
            end = _LENGTH + int.from_bytes(received[:_LENGTH], "big")
            if len(received) < end:
                return
            message = bytes(received[_LENGTH:end])
            del received[:end]
            self.take(message)

    def take(self, message: bytes) -> None:
        """A message has come."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what waits, as one message."""
        if self._out and self.transport is not None and not self.transport.is_closing():
            message = _encode(self._out)
            self._out = []
            self.transport.write(len(message).to_bytes(_LENGTH, "big") + message)

    def close(self) -> None:
        """End the connection after what was sent."""
        if self.transport is not None:
            self.transport.close()


class Peer(Line):
    """The line to another worker, from the side that asks."""

    def __init__(self, hear: Callable[[list[tuple[Any, Answer]]], None], lost: Callable[[Peer], None]) -> None:
        super().__init__()
        self._hear, self._lost = hear, lost
        self._numbers = count()
        self.asked: dict[int, Any] = {}  # what has no answer yet
        self.is_lost = False

    async def connect(self, path: str) -> None:
        """Connect; a worker that is not there is one that was lost."""
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, path)
        except OSError:
            self.connection_lost(None)

    def ask(self, ticket: Any, events: list[Any]) -> None:
        """Ask something; it goes out with everything else that is asked in this turn of the loop."""
        number = next(self._numbers)
        self.asked[number] = ticket
        is_forecast = type(events[0]) is ForecastEvent
        if not self._out:
            asyncio.get_running_loop().call_soon(self.flush)
        self._out.append(Question(number, events if is_forecast else [], [] if is_forecast else events))

    def take(self, message: bytes) -> None:
        """Answers have come."""
        self._hear([(self.asked.pop(reply.number), _answer(reply)) for reply in _replies(message)])

    def connection_lost(self, _: Exception | None) -> None:
        """Nothing more will come; whoever asked asks somebody else."""
        if not self.is_lost:
            self.is_lost = True
            self._lost(self)


class Guest(Line):
    """The line from another worker, at the side that answers."""

    def __init__(self, submit: Callable[[Any, list[Any]], None], guests: set[Guest]) -> None:
        super().__init__()
        self._submit, self._guests = submit, guests
        self.waiting = 0  # questions without an answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Another worker has come."""
        self._guests.add(self)
        super().connection_made(transport)

    def connection_lost(self, _: Exception | None) -> None:
        """It has gone; what it asked for is done all the same."""
        self._guests.discard(self)

    def take(self, message: bytes) -> None:
        """Questions have come. A refusal is answered at once, all else after the commit."""
        for question in _questions(message):
            self.waiting += 1
            try:
                self._submit((self, question.number), question.forecasts or question.outcomes)
            except Refusal as refusal:
                self.answer(question.number, refusal)
        self.flush()

    def answer(self, number: int, answer: Answer) -> None:
        """Answer a question; `flush` sends it."""
        self.waiting -= 1
        if isinstance(answer, Refusal):
            reply = Reply(number, refusal=(answer.code, answer.message, answer.at, answer.status))
        elif answer and isinstance(answer[0], str):
            reply = Reply(number, statuses=answer)
        else:
            reply = Reply(number, forecasts=answer)  # type: ignore[arg-type]
        self._out.append(reply)


def _answer(reply: Reply) -> Answer:
    if reply.refusal is not None:
        return Refusal(*reply.refusal)
    return reply.forecasts or reply.statuses
