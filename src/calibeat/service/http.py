"""The ASGI application. `server` runs it.

Two routes carry the traffic: forecasts and outcomes. `Service` answers them itself, without Starlette: it reads a body,
submits its events to the engine and waits for their commit. Everything else goes to `routes`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from .counters import Traffic
from .engine import Engine
from .events import InvalidEvent, Refusal
from .logs import AccessLog
from .route_table import READERS, application, route_of
from .routes import StoreReaders
from .server import json_headers, write_at_once
from .tokens import Holder, TokenBook
from .wire import (
    ENCODED,
    FORBIDDEN,
    INTERNAL,
    LINES,
    NOT_JSON,
    PACKED,
    STARTING,
    UNAUTHORIZED,
    WRONG_HOST,
    AskedEvents,
    ForecastAnswer,
    ForecastAnswers,
    Limits,
    OutcomeAnswer,
    OutcomeAnswerOfMany,
    OutcomeAnswers,
    error_body,
    read_forecasts,
    refusal_body,
)

log = logging.getLogger("calibeat.service")
_encode = msgspec.json.Encoder().encode

OUTCOME_REFUSALS = {
    "unknown": (404, "id must be that of a forecast of this stream, got {id!r} of {stream!r}, which is unknown"),
    "conflict": (
        409,
        "outcome must be the one that is known already, got another for {id!r} of {stream!r} - PUT corrects it",
    ),
    "final": (409, "outcome must be behind what was forgotten or pruned to be corrected, got {id!r} of {stream!r}"),
    "expired": (410, "the forecast has expired without an outcome, got one for {id!r} of {stream!r}"),
}
VALUE_BYTES = 256  # of memory for a value of a body: decoded, calibrated, in the answer (`benchmarks serve-memory`)
LARGE_ANSWER = 65_536  # bytes; a larger one counts as memory until the client has read it
Headers = dict[bytes, bytes]
EventReader = Callable[[bytes, int], AskedEvents]
Refused = tuple[int, str, bytes]  # status, code, body
_JSON_LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/json-lines",
    "application/x-jsonlines",
)
_ONE_A_LINE = re.compile(rb"\s*\{[^\n]*\}[ \t\r]*\n\s*\{")
_LOCAL = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


# ---- answers ---------------------------------------------------------------------------------------------------------


def render(events: Sequence[Any], answer: Sequence[Any], *, forecasts: bool, single: bool) -> tuple[int, bytes]:
    """The status and body of what the engine answers to some events."""
    if forecasts:
        answers = [
            ForecastAnswer(e.stream, e.id, p) if type(p) is float else ForecastAnswer(e.stream, e.id, UNSET, p)
            for e, p in zip(events, answer, strict=True)
        ]
        return 200, _encode(answers[0] if single else ForecastAnswers(answers))
    if not single:
        each = [
            OutcomeAnswerOfMany(e.stream, e.id, "invalid", status.message)
            if isinstance(status, InvalidEvent)
            else OutcomeAnswerOfMany(e.stream, e.id, status)
            for e, status in zip(events, answer, strict=True)
        ]
        return 200, _encode(OutcomeAnswers(each))
    status = answer[0]
    if isinstance(status, InvalidEvent):
        raise Refusal("invalid", status.message, status.message.partition(" ")[0], 400)
    if status in OUTCOME_REFUSALS:
        code, sentence = OUTCOME_REFUSALS[status]
        return code, error_body(status, sentence.format(id=events[0].id, stream=events[0].stream), "id")
    return 200, _encode(OutcomeAnswer(status))


def check_streams(token: Holder, events: Sequence[Any]) -> None:
    """Raise unless the token may be used for the streams of all events."""
    for at, event in enumerate(events):
        # What is no event and names no stream reaches none: it is `invalid`.
        if event.stream is not None and not token.covers(event.stream):
            own = ", ".join(token.streams)
            sentence = f"stream must be one of this token's, {own}, got {event.stream!r:.60} - at event {at}"
            raise Refusal("forbidden", sentence, at, 403)


def _not_json(body: bytes) -> bytes | None:
    """What a body that cannot be read is instead: packed, or an object a line."""
    if body.startswith(b"\x1f\x8b"):
        return PACKED
    return LINES if _ONE_A_LINE.match(body) else None


def _wake(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for ticket, answer in answers:
        if ticket.done():  # cancelled
            continue
        if isinstance(answer, Refusal):
            ticket.set_exception(answer)
        else:
            ticket.set_result(answer)


# ---- the ASGI application --------------------------------------------------------------------------------------------


class Service:
    """Everything that answers HTTP."""

    def __init__(
        self,
        reads: StoreReaders,
        tokens: TokenBook,
        limits: Limits,
        access_log: AccessLog | None = None,
        *,
        address: str = "127.0.0.1",
    ) -> None:
        """`address` is the one it listens on: without tokens, one of this machine."""
        self.reads, self.tokens, self.limits, self.access_log = reads, tokens, limits, access_log
        self.engine: Any = None  # there is no store yet: alive, not ready
        self.held = 0  # bytes of memory that requests hold
        self.traffic = Traffic()
        self.refused: Counter[str] = Counter()  # by code, for /metrics
        self.build: dict[str, str] = {}  # what `/metrics` says of the service besides its version
        self._names = _LOCAL | {f"[{address}]".encode() if ":" in address else address.encode()}
        self._other_routes = application(self)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, engine: Engine, tokens: TokenBook) -> None:
        """The store is there: from now on events are taken."""
        self.engine, self.tokens = engine, tokens
        self.reads.open(engine)

    def close(self) -> None:
        """Another service leads: this one stands by until `open` is called again."""
        self.engine = None

    @property
    def has_store(self) -> bool:
        """Whether there is a store, and the engine can reach it."""
        return self.engine is not None and not self.engine.is_away

    # ---- the engine -----------------------------------------------------------------------------------------------

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop on which answers are awaited."""
        self._loop = loop

    def ask(self, events: Any) -> asyncio.Future[Any]:
        """What the engine answers, or its `Refusal`, after its commit.

        Raises
        ------
        Refusal : the queue is full, or the engine stops.
        """
        if self.engine is None:
            raise Refusal("not_ready", "the service must lead its store, got one that stands by - try again", None, 503)
        ticket = asyncio.get_running_loop().create_future()
        self.engine.submit(ticket, events)
        return ticket

    def deliver(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Hand a group's answers to the loop, in one call; on the engine's thread."""
        assert self._loop is not None  # noqa: S101 - `use` comes before the engine starts
        try:
            self._loop.call_soon_threadsafe(_wake, answers)
        except RuntimeError:  # the loop is closed: the process is ending, and the clients will ask again
            log.warning("a group was committed after the last connection was closed")

    # ---- checks that need only the headers ------------------------------------------------------------------------

    def check_host(self, headers: Headers) -> Refused | None:
        """Without tokens, only names of this machine: a web page could make its own name lead here."""
        if not self.tokens.is_open:
            return None
        host = headers.get(b"host", b"localhost").lower()
        name = host[: host.find(b"]") + 1] if host.startswith(b"[") else host.partition(b":")[0]
        return None if name in self._names else (421, "misdirected", WRONG_HOST)

    def check_token(self, token: Holder | None, *, write: bool) -> Refused | None:
        """Why somebody with this token is refused, or None."""
        if token is None:
            return 401, "unauthorized", UNAUTHORIZED
        return (403, "forbidden", FORBIDDEN) if write and not token.may("write") else None

    def check_content(self, headers: Headers) -> Refused | None:
        """Why a body of this kind is refused, or None."""
        kind = headers.get(b"content-type", b"")
        is_json = kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"
        # A web page elsewhere can send other types without asking first. Browsers then name its origin. Programs, such
        # as `curl -d`, do not, and may leave the type out.
        if not is_json:
            if b"origin" in headers or b"sec-fetch-site" in headers:
                return 415, "unsupported_media_type", NOT_JSON
            if kind.partition(b";")[0].strip().lower().decode("latin-1") in _JSON_LINES:
                return 415, "unsupported_media_type", LINES
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            return 415, "unsupported_media_type", ENCODED
        length = headers.get(b"content-length")
        if length is not None and int(length) > self.limits.body:
            return 413, "too_large", error_body("too_large", f"body must be {self.limits.body} bytes at most")
        return None

    # ---- memory ---------------------------------------------------------------------------------------------------

    async def read_body(self, scope: Scope, receive: Receive, most: int) -> bytes:
        """The body of a request, or `Refusal`. A part of a body is none, even where it can be read as JSON."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal("malformed", "body must be sent whole, got a client that left", None, 400)
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise Refusal("too_large", f"body must be {most} bytes at most", None, 413)
            self.hold(scope, len(part))
            if not message.get("more_body"):
                return b"".join([*parts, part]) if parts else part
            parts.append(part)

    def hold(self, scope: Scope, size: int) -> None:
        """Count bytes of memory until a request is answered, or raise. A request alone may have as many as it needs."""
        if self.held + size > self.limits.memory and self.held > scope["calibeat.held"]:
            what = f"the memory for requests must have room, got {self.held >> 20} MiB that wait - try again"
            raise Refusal("full", what, None, 503)
        self.held += size
        scope["calibeat.held"] += size

    # ---- ASGI -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # there is no lifespan: the command line starts and stops the engine
        started, headers = time.perf_counter(), dict(scope["headers"])
        written = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = path = written.decode("latin-1")  # a slash in a name is %2F
        scope["calibeat.token"], scope["calibeat.held"] = None, 0
        read = READERS.get((scope["method"], path))
        cycle = scope.pop("calibeat.cycle", None)  # which has the scope: left there, only the collector would free both
        try:
            if read is None:
                status, size = await self._other(scope, receive, send)
            else:
                status, answer = await self._events(read, scope, headers, receive, cycle)
                size = len(answer)
                if cycle is None or size > LARGE_ANSWER or not write_at_once(cycle, status, answer):
                    await send_json(send, status, answer)
        except Exception:
            log.exception("%s %s failed", scope["method"], path)
            raise
        finally:
            self.held -= scope["calibeat.held"]
        seconds = time.perf_counter() - started
        self.traffic.add(path if read else route_of(written), scope["method"], status, seconds)
        if self.access_log is not None:
            token, name = scope["calibeat.token"], headers.get(b"x-request-id")
            holder = None if token is None else token.name
            self.access_log.line(scope["method"], path, status, size, seconds, scope.get("client"), holder, name)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, int]:
        """Let Starlette answer -> the status, and the bytes of the answer."""
        status = size = 0

        async def watched(message: Any) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        await self._other_routes(scope, receive, watched)
        return status, size

    async def _events(
        self, read: EventReader, scope: Scope, headers: Headers, receive: Receive, cycle: RequestResponseCycle | None
    ) -> tuple[int, bytes]:
        """Do what the events of a request ask for, or say why not -> the status and body of the answer."""
        body = b""
        try:
            if refused := self._check_events(scope, headers):
                return self._refuse(*refused)
            if cycle is None or cycle.more_body or cycle.disconnected or len(cycle.body) > self.limits.body:
                body = await self.read_body(scope, receive, self.limits.body)
            else:  # it came with its head: the usual case, and no need to await it
                body = bytes(cycle.body)
            self.hold(scope, len(body) + VALUE_BYTES * body.count(b","))
            events, single = read(body, self.limits.events)
            token = scope["calibeat.token"]
            if token is not None and token.streams:
                check_streams(token, events)
            return render(events, await self.ask(events), forecasts=read is read_forecasts, single=single)
        except Refusal as refusal:
            if refusal.code == "malformed" and (kind := _not_json(body)):
                return self._refuse(415, "unsupported_media_type", kind)
            return self._refuse(refusal.status, refusal.code, refusal_body(refusal))
        except Exception:  # a fault of ours
            log.exception("a request failed")
            return self._refuse(500, "internal", INTERNAL)

    def _check_events(self, scope: Scope, headers: Headers) -> Refused | None:
        """Why events are refused before their body is read, or None."""
        if self.engine is None:
            return 503, "not_ready", STARTING
        if self.tokens.is_open:
            refused = self.check_host(headers)
        else:
            scope["calibeat.token"] = token = self.tokens.find(headers.get(b"authorization"))
            refused = self.check_token(token, write=True)
        return refused or self.check_content(headers)

    def _refuse(self, status: int, code: str, body: bytes) -> tuple[int, bytes]:
        self.refused[code] += 1
        return status, body


async def send_json(send: Send, status: int, body: bytes) -> None:
    """Answer with JSON, as any ASGI application does."""
    headers = [*json_headers(status), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body"})  # waits until the client has read: till then the answer holds memory
