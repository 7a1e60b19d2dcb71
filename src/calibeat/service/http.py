"""HTTP, from the socket to the engine and back: uvicorn's server and protocol with the service's limits.

Two routes carry the traffic: forecasts and outcomes. `Endpoints` takes the bytes of their bodies to the engine and its
answers back. A `PendingRequest` waits for its group's commit. It is a small object: the answers of a group are written
in one callback of the event loop. `Protocol` serves these two routes without a task, coroutine or future. Everything
else goes through ASGI, `Service`, pipelined requests of these two routes included. The checks, limits and answers are
the same either way. Of uvicorn's class only `cycle`, `pipeline` and the parser's callbacks are relied on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from types import FrameType
from typing import Any, ClassVar

import httptools
import msgspec
import uvicorn
from msgspec import UNSET
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from calibeat.errors import InvalidInput

from .counters import OTHER, Traffic
from .engine import Engine
from .events import InvalidEvent, Refusal
from .logs import AccessLog
from .route_table import READERS, application, route_of
from .routes import StoreReaders, read_body
from .tokens import Holder, TokenBook
from .wire import (
    COULD_NOT,
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
LONGEST_HEAD = 65_536  # bytes of a request's line and headers
MOST_LINGERING = 32  # connections above the limit that get a refusal
LINGER_SECONDS = 2.0  # in which a client that still sends may read why it is refused
BACKLOG = 2048
GRACE_SECONDS = 15  # for the answers of the last group after SIGTERM
SPARE_FILES = 64  # descriptors that are not connections
Refused = tuple[int, str, bytes]  # status, code, body
BodyReader = Callable[[bytes, int], AskedEvents]
_JSON_LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/json-lines",
    "application/x-jsonlines",
)
_ONE_A_LINE = re.compile(rb"\s*\{[^\n]*\}[ \t\r]*\n\s*\{")
_LOCAL = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


# ---- forecasts and outcomes ------------------------------------------------------------------------------------------


class PendingRequest:
    """A request that waits for its group's commit. Subclasses implement `send`."""

    __slots__ = ("events", "forecasts", "single", "token")

    events: list[Any]
    forecasts: bool
    single: bool
    token: Holder | None

    def send(self, status: int, body: bytes) -> None:
        """Answer with JSON. A client that has left is no error."""
        raise NotImplementedError


class AsgiRequest(PendingRequest):
    """A request that came through ASGI: a coroutine waits for its answer."""

    __slots__ = ("answer",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self.token = None

    def send(self, status: int, body: bytes) -> None:
        """Wake the coroutine."""
        if not self.answer.done():
            self.answer.set_result((status, body))


class _NoEvent:
    """uvicorn wakes a waiting coroutine with this; a `DirectRequest` has none."""

    def set(self) -> None:
        """Nothing waits."""


class DirectRequest(PendingRequest):
    """A request that the protocol answers itself. It has what uvicorn asks of a cycle."""

    __slots__ = (
        "disconnected",
        "keep_alive",
        "name",
        "parts",
        "path",
        "protocol",
        "response_complete",
        "size",
        "started",
    )
    message_event = _NoEvent()
    response_started = False  # an answer is written in one go

    def __init__(self, protocol: Protocol, path: str, *, keep_alive: bool) -> None:
        self.protocol, self.path, self.keep_alive = protocol, path, keep_alive
        self.token = None
        self.name: bytes | None = None  # what the client calls the request
        self.parts: list[bytes] = []  # of the body
        self.size = 0
        self.response_complete = False
        self.disconnected = False
        self.started = time.perf_counter()

    def send(self, status: int, body: bytes) -> None:
        """Write the answer, unless the time for it is over or the client has left."""
        if self.response_complete:
            return
        self.response_complete = True
        protocol = self.protocol
        protocol.write(status, body, keep_alive=self.keep_alive)
        if not self.keep_alive:
            protocol.transport.close()
        seconds, token, service = time.perf_counter() - self.started, self.token, protocol.service
        service.traffic.add(self.path, "POST", status, seconds)
        if service.access_log is not None:
            name = None if token is None else token.name
            service.access_log.line("POST", self.path, status, len(body), seconds, protocol.client, name, self.name)
        self.parts, self.events = [], []  # an idle connection keeps its last request, but not its content
        protocol.on_response_complete()


class Endpoints:
    """Checks, reads and submits; renders what the engine answers."""

    def __init__(self, engine: Engine | None, limits: Limits) -> None:
        """Without an engine, as long as the service starts, everything is refused before it comes here."""
        self.engine: Any = engine
        self.limits = limits
        self.refused: dict[str, int] = {}  # by code, for /metrics
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, request: PendingRequest, read: BodyReader, body: bytes) -> None:
        """Read a body and submit its events. Refusals are answered at once; all else after the commit."""
        try:
            request.forecasts = read is read_forecasts
            request.events, request.single = read(body, self.limits.events)
            if request.token is not None and request.token.streams:
                check_streams(request.token, request.events)
            self.engine.submit(request, request.events)
        except Refusal as refusal:
            if refusal.code == "malformed" and (kind := _not_json(body)):
                self.refuse(request, 415, "unsupported_media_type", kind)
            else:
                self.refuse(request, refusal.status, refusal.code, refusal_body(refusal))
        except Exception:  # a fault of ours: the client must not wait for an answer that never comes
            log.exception("a request failed")
            self.refuse(request, 500, "internal", INTERNAL)

    async def ask(self, event: Any) -> tuple[int, bytes]:
        """What the engine answers to something that is neither a forecast nor an outcome.

        Raises
        ------
        Refusal : the queue is full, or the engine stops.
        """
        request = AsgiRequest(asyncio.get_running_loop())
        request.events, request.forecasts, request.single = [event], False, True
        self.engine.submit(request, request.events)
        return await request.answer

    def refuse(self, request: PendingRequest, status: int, code: str, body: bytes) -> None:
        """Answer with an error, and count it."""
        self.refused[code] = self.refused.get(code, 0) + 1
        request.send(status, body)

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
        """Answer every request of a group. An error with one of them must not stop the others."""
        for request, answer in answers:
            try:
                status, body = self.render(request, answer)
                request.send(status, body)
            except Exception:
                log.exception("an answer could not be sent")
                with contextlib.suppress(Exception):
                    self.refuse(request, 500, "internal", INTERNAL)

    def render(self, request: PendingRequest, answer: Any) -> tuple[int, bytes]:
        """The status and body of an answer."""
        if isinstance(answer, Refusal):
            self.refused[answer.code] = self.refused.get(answer.code, 0) + 1
            return answer.status, refusal_body(answer)
        if isinstance(answer, dict):
            return 200, _encode(answer)
        if request.forecasts:
            answers = [
                ForecastAnswer(e.stream, e.id, p) if type(p) is float else ForecastAnswer(e.stream, e.id, UNSET, p)
                for e, p in zip(request.events, answer, strict=True)
            ]
            return 200, _encode(answers[0] if request.single else ForecastAnswers(answers))
        if not request.single:
            each = [
                OutcomeAnswerOfMany(e.stream, e.id, "invalid", status.message)
                if isinstance(status, InvalidEvent)
                else OutcomeAnswerOfMany(e.stream, e.id, status)
                for e, status in zip(request.events, answer, strict=True)
            ]
            return 200, _encode(OutcomeAnswers(each))
        status = answer[0]
        if isinstance(status, InvalidEvent):
            self.refused["invalid"] = self.refused.get("invalid", 0) + 1
            return 400, error_body("invalid", status.message, status.message.partition(" ")[0])
        if status in OUTCOME_REFUSALS:
            event = request.events[0]
            http, sentence = OUTCOME_REFUSALS[status]
            return http, error_body(status, sentence.format(id=event.id, stream=event.stream), "id")
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


# ---- the ASGI application --------------------------------------------------------------------------------------------


class Service:
    """Everything that answers HTTP."""

    direct_paths: ClassVar[dict[bytes, str]] = {path.encode(): path for method, path in READERS if method == "POST"}

    def __init__(
        self,
        endpoints: Endpoints,
        reads: StoreReaders,
        tokens: TokenBook,
        limits: Limits,
        access_log: AccessLog | None = None,
        *,
        address: str = "127.0.0.1",
    ) -> None:
        """`address` is the one it listens on: without tokens, one of this machine."""
        self.endpoints, self.reads, self.tokens, self.limits = endpoints, reads, tokens, limits
        self.access_log = access_log
        self.traffic = Traffic()
        self.build: dict[str, str] = {}  # what `/metrics` says of the service besides its version
        self.is_starting = False  # there is no store yet: alive, not ready
        self._names = _LOCAL | {f"[{address}]".encode() if ":" in address else address.encode()}
        self._other_routes = application(self)

    def open(self, engine: Engine, tokens: TokenBook) -> None:
        """The store is there: from now on events are taken."""
        self.endpoints.engine, self.tokens = engine, tokens
        self.reads.open(engine)
        self.is_starting = False

    @property
    def has_store(self) -> bool:
        """Whether there is a store, and the engine can reach it."""
        return not self.is_starting and not self.endpoints.engine.is_away

    # ---- checks that need only the headers ------------------------------------------------------------------------

    def check_host(self, headers: dict[bytes, bytes]) -> Refused | None:
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

    def check_event_request(self, headers: dict[bytes, bytes], request: PendingRequest) -> Refused | None:
        """Why a forecast or an outcome is refused before its body is read, or None. The request gets its token."""
        if self.is_starting:
            return 503, "starting", STARTING
        if self.tokens.is_open:
            if refused := self.check_host(headers):
                return refused
        else:
            request.token = self.tokens.find(headers.get(b"authorization"))
            if refused := self.check_token(request.token, write=True):
                return refused
        return self.check_content(headers)

    def check_content(self, headers: dict[bytes, bytes]) -> Refused | None:
        """Why a body of this kind is refused, or None."""
        kind = headers.get(b"content-type", b"")
        is_json = kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"
        # A web page elsewhere can send other types without asking first. Browsers then name its origin. Programs, such
        # as `curl -d`, do not, and may leave the type out.
        if not is_json and (b"origin" in headers or b"sec-fetch-site" in headers):
            return 415, "unsupported_media_type", NOT_JSON
        if not is_json and kind.partition(b";")[0].strip().lower().decode("latin-1") in _JSON_LINES:
            return 415, "unsupported_media_type", LINES
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return 415, "unsupported_media_type", ENCODED
        length = headers.get(b"content-length")
        if length is not None and int(length) > self.limits.body:
            return 413, "too_large", error_body("too_large", f"body must be {self.limits.body} bytes at most")
        return None

    # ---- ASGI -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # there is no lifespan: the command line starts and stops the engine
        started = time.perf_counter()
        status = [500]
        length = [0]

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            else:
                length[0] += len(message.get("body", b""))
            await send(message)

        path, method = scope["path"], scope["method"]
        written = (scope.get("raw_path") or path.encode()).partition(b"?")[0]
        scope["calibeat.token"] = None
        scope["path"] = written.decode("latin-1")  # a slash in a name is %2F
        if read := READERS.get((method, scope["path"])):
            await self._answer_events(read, scope, receive, watched)
        else:
            await self._other_routes(scope, receive, watched)
        seconds = time.perf_counter() - started
        self.traffic.add(route_of(written), method, status[0], seconds)
        if self.access_log is not None:
            token, name = scope["calibeat.token"], dict(scope["headers"]).get(b"x-request-id")
            holder = None if token is None else token.name
            self.access_log.line(method, path, status[0], length[0], seconds, scope.get("client"), holder, name)

    async def _answer_events(self, read: BodyReader, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(asyncio.get_running_loop())
        try:
            refused = self.check_event_request(dict(scope["headers"]), request)
            scope["calibeat.token"] = request.token
            body = b"" if refused else await read_body(receive, self.limits.body)
        except Refusal as refusal:
            refused = refusal.status, refusal.code, refusal_body(refusal)
        except Exception:  # a fault of ours, as in `Endpoints.take`
            log.exception("a request failed")
            refused = 500, "internal", INTERNAL
        if refused is not None:
            status, code, content = refused
            self.endpoints.refuse(request, status, code, content)
        else:
            self.endpoints.take(request, read, body)
        status, content = await request.answer
        headers = [*extra_headers(status), (b"content-length", b"%d" % len(content))]
        if status == 413:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


# ---- a connection ----------------------------------------------------------------------------------------------------


class Heads:
    """The first lines of an answer, made once a second for each status."""

    def __init__(self) -> None:
        self._date: object = None
        self._made: dict[tuple[int, bool], bytes] = {}

    def head(self, status: int, default_headers: list[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
        """Everything before the length of the body."""
        if self._date is not default_headers:  # uvicorn makes a new list every second
            self._date, self._made = default_headers, {}
        found = self._made.get((status, keep_alive))
        if found is None:
            lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
            lines += [b"%s: %s" % header for header in default_headers]
            lines += [b"%s: %s" % header for header in extra_headers(status)]
            lines += [] if keep_alive else [b"connection: close"]
            found = self._made[status, keep_alive] = b"\r\n".join(lines) + b"\r\ncontent-length: "
        return found


def extra_headers(status: int) -> list[tuple[bytes, bytes]]:
    """The headers of a JSON answer with this status."""
    headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        headers.append((b"retry-after", b"1"))
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


_HEADS = Heads()


class Flow(FlowControl):
    """Nothing is read while requests wait in the pipeline, or while the client does not read its answers."""

    def __init__(self, protocol: Protocol) -> None:
        super().__init__(protocol.transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Read on, if nothing speaks against it: uvicorn asks for it after every answer."""
        protocol = self._protocol
        if self.read_paused and not (self.write_paused or protocol.pipeline or protocol.transport.is_closing()):
            super().resume_reading()

    def pause_writing(self) -> None:
        """The transport holds more than its mark."""
        super().pause_writing()
        self.pause_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self.resume_reading()


class _Enough(Exception):
    """Raised in a callback to stop the parser: what follows the last request of a connection is not read."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse more connections than the limit; give the others a time to begin."""
        super().connection_made(transport)
        self.flow = Flow(self)
        self.service: Service = self.config.app  # type: ignore[assignment]
        self.limits = self.service.limits
        self.lingering = False  # nothing more is read
        self.last: tuple[int, bytes | None] | None = None  # what is written before the connection ends
        self.half_closed = False  # the client has sent everything, and may still read
        self.in_head, self.received, self.fed, self.segment, self.uncounted = True, 0, 0, 0, 0
        self.receiving = False
        self.headers = []
        self.current: Any = None  # the cycle whose request is not whole yet
        self.running: Any = None  # the cycle that is answered next
        self.deadline = self.loop.time() + self.limits.request_seconds
        if len(self.connections) > self.limits.connections + MOST_LINGERING:
            transport.abort()  # no descriptor is left for explanations
        elif len(self.connections) > self.limits.connections:
            self.refuse(
                503, "too_many_connections", f"there are {self.limits.connections} connections already; try again"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the work for this client."""
        self.pipeline.clear()
        if self.running is not None:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection for a client that has sent its last request and waits for the answer."""
        self.half_closed = True
        self._give_up(self.current)
        self.current = None
        return self.is_owed()

    def is_owed(self) -> bool:
        """Whether a request waits for its answer."""
        return bool(self.pipeline) or (self.running is not None and not self.running.response_complete)

    def wait(self, seconds: float) -> None:
        """Give the next step so much time. While the client does not read, `pause_writing` has set the time."""
        if not self.flow.write_paused:
            self.deadline = self.loop.time() + seconds

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser; explain what is no HTTP."""
        if self.lingering or self.parser is None:
            return
        self.segment = len(data)
        self.received += self.segment
        self.fed = 0 if self.receiving else self.segment
        self._feed(data)
        if self.in_head and self.received > LONGEST_HEAD:
            self.refuse_head()
        elif self.receiving and self.received > self.limits.body + LONGEST_HEAD:
            self.refuse_body()

    def _feed(self, data: bytes) -> None:
        left: list[bytes | memoryview] = [data]
        while left and not self.lingering:
            piece = left.pop()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as stop:
                left += [memoryview(piece)[stop.args[0] :], self._without_upgrade()]
            except httptools.HttpParserCallbackError as error:
                if not isinstance(error.__context__, _Enough):
                    log.exception("a request failed")
                    self.refuse(500, "internal", COULD_NOT)
            except httptools.HttpParserError as error:
                self.refuse(400, "malformed", f"request must be HTTP/1.1: {' '.join(str(error).split())[:100]}")

    def _without_upgrade(self) -> bytes:
        """The head of a request that asks for another protocol, as if it did not (RFC 9110, 7.8: it may be ignored).

        llhttp cannot be told to: it ends such a request behind its head, and would take the body for the next request.
        So a new parser gets the same head without `Upgrade`, then what follows.
        """
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """A request begins; its scope is made only for ASGI."""
        if self.lingering or self.transport.is_closing():
            raise _Enough
        self.url = b""
        self.headers = []
        self.in_head = self.receiving = True
        # What is fed now counts for the first request in it. How much of it belongs to another one is not known.
        self.uncounted = 0 if self.fed else self.segment
        self.received, self.fed = self.fed, 0
        self.current = None
        self.wait(self.limits.request_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers, which come after the body, are not read."""
        if self.in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Decide which way the request goes."""
        self.in_head = False
        headers, method, version = dict(self.headers), self.parser.get_method(), self.parser.get_http_version()
        self._check_head(headers, method, version)
        if self.lingering or self.parser.should_upgrade():  # the latter comes again: `_without_upgrade`
            return
        path = self.service.direct_paths.get(self.url)
        if path is None or method != b"POST" or self.is_owed():
            self._to_asgi()
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        request = DirectRequest(self, path, keep_alive=keep_alive)
        self.cycle = self.current = self.running = request  # type: ignore[assignment]
        request.name = headers.get(b"x-request-id")
        refused = self.service.check_event_request(headers, request)
        if refused is not None:
            status, code, body = refused
            if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self.refuse_body()
            else:
                self.service.endpoints.refuse(request, status, code, body)
        elif headers.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_head(self, headers: dict[bytes, bytes], method: bytes, version: str) -> None:
        """Refuse a request that cannot be done whatever it asks for."""
        if max(self.received + self.uncounted, self.segment) > LONGEST_HEAD:  # otherwise the head cannot be longer
            length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if length > LONGEST_HEAD:
                self.refuse_head()
        if len(headers) != len(self.headers) and sum(name == b"host" for name, _ in self.headers) > 1:
            self.refuse(400, "malformed", "request must have one Host header, got several")
        elif version not in {"1.0", "1.1"}:
            self.refuse(400, "malformed", f"request must be HTTP/1.1, got HTTP/{version}")
        elif b"host" not in headers and version == "1.1":
            self.refuse(400, "malformed", "request must have a Host header, got none")
        elif method == b"CONNECT":
            self.refuse(501, "not_implemented", "method must be one of those in /openapi.json, got CONNECT")

    def _to_asgi(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        self.headers.extend(headers)  # the list that is in the scope
        self.expect_100_continue = any(n == b"expect" and v.lower() == b"100-continue" for n, v in headers)
        try:
            super().on_headers_complete()
            self.current = self.cycle
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            self.refuse(400, "malformed", "request must have a path of ASCII characters, others as %XX")

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        request = self.current
        if request is None or self.lingering:
            return
        if not isinstance(request, DirectRequest):
            super().on_body(body)
        elif not request.response_complete:
            request.parts.append(body)
            request.size += len(body)
            if request.size > self.limits.body:
                self.refuse_body()

    def on_message_complete(self) -> None:
        """The request is whole."""
        request = self.current
        if request is None or self.lingering:  # refused, or to be fed again
            return
        self.receiving = False
        self.wait(self.limits.answer_seconds)
        if not isinstance(request, DirectRequest):
            super().on_message_complete()
        elif not request.response_complete:
            self.service.endpoints.take(request, READERS["POST", request.path], b"".join(request.parts))
        self.current = None

    # ---- bytes out ------------------------------------------------------------------------------------------------

    def write(self, status: int, body: bytes, *, keep_alive: bool) -> None:
        """One JSON answer. Nothing happens when the connection is closed already."""
        if self.transport.is_closing():
            return
        head = _HEADS.head(status, self.server_state.default_headers, keep_alive=keep_alive)
        self.transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))

    def pause_writing(self) -> None:
        """The client does not read: nothing more is taken from it, and it has the time of an answer to read again."""
        self.wait(self.limits.answer_seconds)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self.receiving:
            self.wait(self.limits.request_seconds)
        elif self.is_owed():
            self.wait(self.limits.answer_seconds)
        else:
            self.wait(LINGER_SECONDS if self.lingering else self.limits.idle_seconds)

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.last is not None:
            self._finish(*self.last)
        elif self.half_closed:
            self.transport.close()
        elif not self.receiving:
            self.wait(self.limits.idle_seconds)
        self.flow.resume_reading()

    # ---- refusals -------------------------------------------------------------------------------------------------

    def refuse_head(self) -> None:
        """The line and the headers are too long."""
        self.refuse(431, "too_large", f"headers must be {LONGEST_HEAD} bytes at most")

    def refuse_body(self) -> None:
        """The body is too large."""
        self.refuse(413, "too_large", f"body must be {self.limits.body} bytes at most")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer the request that is being read with an error, after those before it, and read no other."""
        if self.lingering:
            return
        self._count(code)
        self.service.traffic.add(OTHER, "", status, 0.0)
        self.lingering = True
        self.receiving = self.in_head = False
        is_answered = self._give_up(self.current)
        self.current = None
        self.last = status, None if is_answered else error_body(code, message)
        if self.is_owed():
            self.wait(self.limits.answer_seconds)
        else:
            self._finish(*self.last)

    def _count(self, code: str) -> None:
        refused = self.service.endpoints.refused
        refused[code] = refused.get(code, 0) + 1

    def _give_up(self, cycle: Any) -> bool:
        """Cancel a request: nothing more is written for it -> whether its answer has begun."""
        if cycle is None:
            return False
        has_begun = bool(cycle.response_started or cycle.response_complete)
        for waiting in [waiting for waiting in self.pipeline if waiting[0] is cycle]:
            self.pipeline.remove(waiting)
        if cycle is self.running:
            self.running = None
        cycle.disconnected = True
        cycle.message_event.set()
        if isinstance(cycle, DirectRequest):
            cycle.response_complete = True
        return has_begun

    def _finish(self, status: int, body: bytes | None) -> None:
        """Write the last answer and close, but let the client read it first: it may still be sending."""
        self.wait(LINGER_SECONDS)
        if self.transport.is_closing():
            return
        if body is not None:
            self.write(status, body, keep_alive=False)
        self.transport.write_eof()

    def expire(self) -> None:
        """The deadline is over."""
        if self.transport.is_closing() or self.flow.write_paused or (self.lingering and not self.is_owed()):
            self.deadline = math.inf
            self.transport.abort()
        elif self.receiving:
            self.refuse(408, "timeout", f"request must be sent within {self.limits.request_seconds:g} seconds")
        elif self.is_owed():
            self._count("timeout")
            self.lingering = True
            self.pipeline.clear()
            has_begun = self._give_up(self.running)
            sentence = f"no answer within {self.limits.answer_seconds:g} seconds; ask again with the same id"
            self._finish(504, None if has_begun else error_body("timeout", sentence))
        else:  # nothing to read, nothing to answer
            self.transport.close()
            self.deadline = self.loop.time() + LINGER_SECONDS

    def shutdown(self) -> None:
        """The server stops: connections without a request are closed."""
        if self.lingering:
            if not self.is_owed():
                self.transport.abort()
        else:
            super().shutdown()


def sweep(connections: Any, now: float) -> None:
    """End what has taken too long. One look a second at all connections costs less than a timer for each."""
    for connection in list(connections):
        if connection.deadline < now:
            connection.expire()


# ---- the server ------------------------------------------------------------------------------------------------------


def stop_signals() -> list[signal.Signals]:
    """The signals that end the service gently: also the end of its terminal, unless `nohup` says otherwise."""
    found = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


class Server(uvicorn.Server):
    """Stops on a signal after the last answers, and tells which one it was."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[Server], None]) -> None:
        super().__init__(config)
        self.service: Service = config.app  # type: ignore[assignment]
        self.stopped_by: int | None = None
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, but the signal is not raised again: the exit code is ours."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        before = {number: signal.signal(number, self.handle_exit) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops gently, a second SIGINT at once."""
        self.stopped_by = self.stopped_by or sig
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that the service is ready when it is."""
        await super().startup(sockets)
        self._ready(self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop without waiting for slow pages, nor until something is forgotten."""
        self.service.reads.stop()
        if self.service.endpoints.engine is not None:
            self.service.endpoints.engine.hurry()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop as a signal would; any thread may call it."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


def run(
    service: Service,
    listener: socket.socket,
    *,
    started: Callable[[asyncio.AbstractEventLoop], None],
    ready: Callable[[Server], None],
) -> int | None:
    """Serve until a signal comes, and return it. `started` is called with the loop before the first connection."""
    config = uvicorn.Config(
        service,
        http=Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = Server(config, ready)

    async def serve() -> None:
        started(asyncio.get_running_loop())
        await server.serve(sockets=[listener])

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve())
    return server.stopped_by


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:  # pragma: no cover - Windows
        return None
    return uvloop.new_event_loop


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, or a sentence."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"host and port must be free to listen on, got {host}:{port}: {reason}") from None


def address(listener: socket.socket) -> str:
    """The address to print."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def room_for(connections: int) -> int:
    """As many connections as asked for, or as the system's limit of open files allows; the limit is raised first."""
    if sys.platform == "win32":  # pragma: no cover - has no such limit
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - SPARE_FILES))
