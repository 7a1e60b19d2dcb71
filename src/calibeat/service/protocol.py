"""uvicorn's HTTP protocol with the service's limits, and a short way for the two hot routes.

A hot request needs no task, coroutine or future: `FastCall` stands where uvicorn keeps the cycle of a request, waits
for its group's commit, and is written to the transport. Everything else, pipelined hot requests included, goes
through ASGI as usual. Only `cycle`, `pipeline` and the parser's callbacks of uvicorn's class are relied on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .hot import COULD_NOT, Call
from .wire import error_body

if TYPE_CHECKING:
    from .app import Service

log = logging.getLogger("calibeat.service")
LONGEST_HEAD = 65_536  # bytes of a request's line and headers
MOST_LINGERING = 32  # connections above the limit that are told so
LINGER = 2.0  # seconds in which a client that still sends may read why it is refused
NEVER = math.inf


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
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


_HEADS = Heads()


class _NoEvent:
    """uvicorn wakes a waiting coroutine with this; a `FastCall` has none."""

    def set(self) -> None:
        """Nothing waits."""


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


class FastCall(Call):
    """A hot request on its way. It has what uvicorn asks of a cycle."""

    __slots__ = ("disconnected", "keep_alive", "parts", "path", "protocol", "response_complete", "size", "started")
    message_event = _NoEvent()
    response_started = False  # an answer is written in one go

    def __init__(self, protocol: Protocol, path: str, *, keep_alive: bool) -> None:
        self.protocol, self.path, self.keep_alive = protocol, path, keep_alive
        self.parts: list[bytes] = []  # of the body
        self.size = 0
        self.response_complete = False
        self.disconnected = False
        self.started = 0.0

    def send(self, status: int, body: bytes) -> None:
        """Write the answer, unless the time for it is over or the client has left."""
        if self.response_complete:
            return
        self.response_complete = True
        protocol = self.protocol
        protocol.write(status, body, keep_alive=self.keep_alive)
        if not self.keep_alive:
            protocol.transport.close()
        if protocol.service.access_log is not None:
            seconds = time.perf_counter() - self.started
            protocol.service.access_log.line("POST", self.path, status, len(body), seconds, protocol.client)
        self.parts, self.events = [], []  # an idle connection keeps its last call, but not what it was about
        protocol.on_response_complete()


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
        """Whoever works for this client need not go on."""
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
        return self.scheme == "http" and self.is_owed()  # TLS has no half

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
        path = self.service.hot_paths.get(self.url)
        if path is None or method != b"POST" or self.is_owed():
            self._to_asgi()
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        call = FastCall(self, path, keep_alive=keep_alive)
        self.cycle = self.current = self.running = call  # type: ignore[assignment]
        if self.service.access_log is not None:
            call.started = time.perf_counter()
        refused = self.service.check_hot(headers)
        if refused is not None:
            status, code, body = refused
            if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self.refuse_body()
            else:
                self.service.hot.refuse(call, status, code, body)
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
        call = self.current
        if call is None or self.lingering:
            return
        if not isinstance(call, FastCall):
            super().on_body(body)
        elif not call.response_complete:
            call.parts.append(body)
            call.size += len(body)
            if call.size > self.limits.body:
                self.refuse_body()

    def on_message_complete(self) -> None:
        """The request is whole."""
        call = self.current
        if call is None or self.lingering:  # refused, or to be fed again
            return
        self.receiving = False
        self.wait(self.limits.answer_seconds)
        if not isinstance(call, FastCall):
            super().on_message_complete()
        elif not call.response_complete:
            self.service.hot.take(call, call.path, b"".join(call.parts))
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
            self.wait(LINGER if self.lingering else self.limits.idle_seconds)

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
        refused = self.service.hot.refused
        refused[code] = refused.get(code, 0) + 1

    def _give_up(self, cycle: Any) -> bool:
        """Nobody works for this request any more, and nothing is written for it -> whether its answer has begun."""
        if cycle is None:
            return False
        has_begun = bool(cycle.response_started or cycle.response_complete)
        for waiting in [waiting for waiting in self.pipeline if waiting[0] is cycle]:
            self.pipeline.remove(waiting)
        if cycle is self.running:
            self.running = None
        cycle.disconnected = True
        cycle.message_event.set()
        if isinstance(cycle, FastCall):
            cycle.response_complete = True
        return has_begun

    def _finish(self, status: int, body: bytes | None) -> None:
        """Write the last answer and close, but let the client read it first: it may still be sending."""
        self.wait(LINGER)
        if self.transport.is_closing():
            return
        if body is not None:
            self.write(status, body, keep_alive=False)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()  # TLS

    def expire(self) -> None:
        """The deadline is over."""
        if self.transport.is_closing() or self.flow.write_paused or (self.lingering and not self.is_owed()):
            self.deadline = NEVER
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
            self.deadline = self.loop.time() + LINGER

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
