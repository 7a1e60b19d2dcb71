"""The two hot routes, apart from how HTTP reaches them: from the bytes of a body to the engine and back.

A `Call` is one request that waits for its group's commit. It is a small object, not a coroutine: the group's answers
are written in one callback of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from .engine import Engine
from .events import Refusal
from .limits import Limits
from .tokens import TokenBook
from .wire import (
    Asked,
    ForecastAnswer,
    ForecastAnswers,
    OutcomeAnswer,
    OutcomeAnswerOfMany,
    OutcomeAnswers,
    error_body,
    read_forecasts,
    read_outcomes,
    refusal_body,
)

log = logging.getLogger("calibeat.service")
_encode = msgspec.json.Encoder().encode

Reader = Callable[[bytes, int], Asked]
READERS: dict[str, Reader] = {"/v1/forecasts": read_forecasts, "/v1/outcomes": read_outcomes}

UNAUTHORIZED = error_body("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN")
FORBIDDEN = error_body("forbidden", "this token may read only; writing needs one of scope write")
COULD_NOT = "the service could not answer; its log says why"
INTERNAL = error_body("internal", COULD_NOT)
ENCODED = error_body("unsupported_media_type", "body must be plain, without content-encoding", "content-encoding")
NOT_JSON = error_body("unsupported_media_type", "content-type must be application/json from a web page", "content-type")
WRONG_HOST = error_body(
    "misdirected",
    "without tokens the Host header must be localhost, 127.0.0.1, [::1] or the address that the service listens on",
    "host",
)


class Call:
    """A request that waits. Subclasses say how the answer leaves."""

    __slots__ = ("events", "forecasts", "single")

    events: list[Any]
    forecasts: bool
    single: bool

    def send(self, status: int, body: bytes) -> None:
        """Answer with JSON. A client that has left is no error."""
        raise NotImplementedError


class Hot:
    """Checks, reads and submits; renders what the engine answers."""

    def __init__(self, engine: Engine, tokens: TokenBook, limits: Limits) -> None:
        self.engine, self.tokens, self.limits = engine, tokens, limits
        self.refused: dict[str, int] = {}  # by code, for /metrics
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, call: Call, path: str, body: bytes) -> None:
        """Read a body and submit its events. Refusals are answered at once; all else after the commit."""
        try:
            call.forecasts = path == "/v1/forecasts"
            call.events, call.single = READERS[path](body, self.limits.events)
            self.engine.submit(call, call.events, checked=True)
        except Refusal as refusal:
            self.refuse(call, refusal.status, refusal.code, refusal_body(refusal))
        except Exception:  # a fault of ours: the client must not wait for an answer that never comes
            log.exception("a request failed")
            self.refuse(call, 500, "internal", INTERNAL)

    def refuse(self, call: Call, status: int, code: str, body: bytes) -> None:
        """Answer with an error, and count it."""
        self.refused[code] = self.refused.get(code, 0) + 1
        call.send(status, body)

    # ---- answers: `deliver` runs on the engine's thread, `answer` on the loop's ------------------------------------

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop on which answers are written."""
        self._loop = loop

    def deliver(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Hand a group's answers to the loop: one call for all of them."""
        assert self._loop is not None  # noqa: S101 - `use` comes before the engine starts
        try:
            self._loop.call_soon_threadsafe(self.answer, answers)
        except RuntimeError:  # the loop is closed: the process is ending, and the clients will ask again
            log.warning("a group was committed after the last connection was closed")

    def answer(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Answer every call of a group. An error with one of them must not stop the others."""
        for call, answer in answers:
            try:
                status, body = self.render(call, answer)
                call.send(status, body)
            except Exception:
                log.exception("an answer could not be sent")
                with suppress(Exception):
                    self.refuse(call, 500, "internal", INTERNAL)

    def render(self, call: Call, answer: Any) -> tuple[int, bytes]:
        """The status and body of an answer."""
        if isinstance(answer, Refusal):
            self.refused[answer.code] = self.refused.get(answer.code, 0) + 1
            return answer.status, refusal_body(answer)
        if call.forecasts:
            answers = [ForecastAnswer(e.stream, e.id, p) for e, p in zip(call.events, answer, strict=True)]
            return 200, _encode(answers[0] if call.single else ForecastAnswers(answers))
        if not call.single:
            each = [OutcomeAnswerOfMany(e.stream, e.id, status) for e, status in zip(call.events, answer, strict=True)]
            return 200, _encode(OutcomeAnswers(each))
        status = answer[0]
        if status in OUTCOME_REFUSALS:
            event = call.events[0]
            http, sentence = OUTCOME_REFUSALS[status]
            return http, error_body(status, sentence.format(id=event.id, stream=event.stream), "id")
        return 200, _encode(OutcomeAnswer(status))


OUTCOME_REFUSALS = {
    "unknown": (404, "id must be that of a forecast of this stream, got {id!r} of {stream!r}, which is unknown"),
    "conflict": (409, "outcome must be the one that is known already, got another for {id!r} of {stream!r}"),
    "expired": (410, "the forecast has expired without an outcome, got one for {id!r} of {stream!r}"),
}
