"""uvicorn's HTTP protocol with the service's limits, and a short way for the two hot routes.

A hot request needs no task, coroutine or future: `FastCall` stands where uvicorn keeps the cycle of a request, waits
for its group's commit, and is written to the transport. Everything else, pipelined hot requests included, goes
through ASGI as usual. Only `cycle`, `pipeline` and the parser's callbacks of uvicorn's class are relied on.
"""

from __future__ import annotations

import asyncio
import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .hot import Call
from .wire import error_body

if TYPE_CHECKING:
    from .app import Service

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


class FastCall(Call):
    """A hot request on its way. It has what uvicorn asks of a cycle."""

    __slots__ = ("body", "complete", "disconnected", "keep_alive", "path", "protocol", "response_complete", "started")
    message_event = _NoEvent()

    def __init__(self, protocol: Protocol, path: str, *, keep_alive: bool) -> None:
        self.protocol, self.path, self.keep_alive = protocol, path, keep_alive
        self.body = b""
        self.complete = False  # the whole body is here
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
        protocol.on_response_complete()


class Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse more connections than the limit; give the others a time to begin."""
        super().connection_made(transport)
        self.service: Service = self.config.app  # type: ignore[assignment]
        self.limits = self.service.limits
        self.lingering = False
        self.in_head, self.received, self.fed = True, 0, 0
        self.receiving = False
        self.headers = []
        self.current: Any = None  # the cycle whose request is not whole yet
        self.deadline = self.loop.time() + self.limits.request_seconds
        if len(self.connections) > self.limits.connections + MOST_LINGERING:
            transport.abort()  # no descriptor is left for explanations
        elif len(self.connections) > self.limits.connections:
            self.refuse(
                503, "too_many_connections", f"there are {self.limits.connections} connections already; try again"
            )

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser; explain what is no HTTP."""
        if self.lingering or self.parser is None:
            return
        self.received += len(data)
        self.fed = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request itself was taken as any other
            return
        except httptools.HttpParserError as error:
            self.refuse(400, "malformed", f"request must be HTTP/1.1: {' '.join(str(error).split())[:100]}")
            return
        if self.in_head and self.received > LONGEST_HEAD:
            self.refuse(431, "too_large", f"headers must be {LONGEST_HEAD} bytes at most")
        elif self.receiving and self.received > self.limits.body + LONGEST_HEAD:
            self.refuse_body()

    def on_message_begin(self) -> None:
        """A request begins; its scope is made only for ASGI."""
        self.url = b""
        self.headers = []
        self.in_head = self.receiving = True
        self.received, self.fed = self.fed, 0  # what is fed now counts for the first request in it
        self.current = None
        self.deadline = self.loop.time() + self.limits.request_seconds

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Decide which way the request goes."""
        self.in_head = False
        path = self.service.hot_paths.get(self.url)
        busy = self.cycle is not None and not self.cycle.response_complete
        if path is None or busy or self.parser.get_method() != b"POST" or self.parser.should_upgrade():
            self._to_asgi()
            return
        keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        call = FastCall(self, path, keep_alive=keep_alive)
        self.cycle = self.current = call  # type: ignore[assignment]
        if self.service.access_log is not None:
            call.started = time.perf_counter()
        headers = dict(self.headers)
        refused = self.service.check_hot(headers)
        if refused is not None:
            status, code, body = refused
            if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self.refuse_body()
            else:
                self.service.hot.refuse(call, status, code, body)
        elif headers.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        call: Any = self.cycle
        if not isinstance(call, FastCall):
            if call is not None and not self.lingering:
                super().on_body(body)
            return
        if call.response_complete:
            return
        call.body = call.body + body if call.body else body
        if len(call.body) > self.limits.body:
            self.refuse_body()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self.receiving, self.current = False, None
        self.deadline = self.loop.time() + self.limits.answer_seconds
        call: Any = self.cycle
        if not isinstance(call, FastCall):
            if call is not None and not self.lingering:
                super().on_message_complete()
            return
        if not call.response_complete:
            call.complete = True
            self.service.hot.take(call, call.path, call.body)

    # ---- bytes out ------------------------------------------------------------------------------------------------

    def write(self, status: int, body: bytes, *, keep_alive: bool) -> None:
        """One JSON answer. Nothing happens when the connection is closed already."""
        if self.transport.is_closing():
            return
        head = _HEADS.head(status, self.server_state.default_headers, keep_alive=keep_alive)
        self.transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        self.server_state.total_requests += 1
        if self.transport.is_closing() or self.lingering:
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif not self.receiving:
            self.deadline = self.loop.time() + self.limits.idle_seconds

    # ---- refusals -------------------------------------------------------------------------------------------------

    def refuse_body(self) -> None:
        """The body is too large."""
        self.refuse(413, "too_large", f"body must be {self.limits.body} bytes at most")

    def refuse(self, status: int, code: str, message: str, *, force: bool = False) -> None:
        """Answer with an error and close, but let the client read it first: it may still be sending."""
        hot = self.service.hot
        hot.refused[code] = hot.refused.get(code, 0) + 1
        cycle: Any = self.cycle
        unfinished = self.current
        self.lingering = True  # whatever else comes is not read
        self.receiving = self.in_head = False
        if cycle is not None and cycle is not unfinished and not cycle.response_complete and not force:
            cycle.keep_alive = False  # an earlier request waits for its commit: it is answered, then the end
            self.deadline = self.loop.time() + self.limits.answer_seconds
            return
        answered = unfinished is not None and (
            unfinished.response_complete or getattr(unfinished, "response_started", False)
        )
        if isinstance(cycle, FastCall):
            cycle.response_complete = True
        self.deadline = self.loop.time() + LINGER
        if not answered:
            self.write(status, error_body(code, message), keep_alive=False)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()  # TLS

    def expire(self) -> None:
        """The deadline is over."""
        self.deadline = NEVER
        if self.transport.is_closing() or self.lingering:
            self.transport.abort()
        elif self.receiving:
            self.refuse(408, "timeout", f"request must be sent within {self.limits.request_seconds:g} seconds")
        elif self.cycle is not None and not self.cycle.response_complete:
            sentence = f"no answer within {self.limits.answer_seconds:g} seconds; ask again with the same id"
            self.refuse(504, "timeout", sentence, force=True)
        else:  # nothing to read, nothing to answer
            self.transport.close()
            self.deadline = self.loop.time() + LINGER

    def shutdown(self) -> None:
        """The server stops: connections without a request are closed."""
        if self.lingering:
            self.transport.abort()
        else:
            super().shutdown()


def sweep(connections: Any, now: float) -> None:
    """End what has taken too long. One look a second at all connections costs less than a timer for each."""
    for connection in list(connections):
        if connection.deadline < now:
            connection.expire()
