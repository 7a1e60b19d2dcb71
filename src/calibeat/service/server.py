"""The server: uvicorn with the limits of the service, from the port to the signal that ends it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from calibeat.errors import InvalidInput

from .counters import OTHER
from .wire import error_body

if TYPE_CHECKING:
    from .http import Service

LONGEST_HEAD = 65_536  # bytes of a request's line and headers, give or take what arrives at once
END_SECONDS = 2.0  # for a client to read why its connection ends
BACKLOG = 2048
GRACE_SECONDS = 15  # for the answers of the last group after SIGTERM
SPARE_FILES = 64  # descriptors that are not connections
_CLOSE = [(b"connection", b"close")]


# ---- an answer -------------------------------------------------------------------------------------------------------


def json_headers(status: int) -> list[tuple[bytes, bytes]]:
    """The headers of a JSON answer, but for its length."""
    headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return [*headers, (b"retry-after", b"1")] if status == 503 else headers


def write_at_once(cycle: RequestResponseCycle, status: int, body: bytes) -> bool:
    """Answer with JSON in one go, as two calls of uvicorn's `send` do in four times the time -> whether it could."""
    if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete:
        return False
    cycle.response_started = cycle.response_complete = True
    if cycle.more_body:  # refused by its head: the client should stop to send, and has a moment to read why
        cycle.keep_alive = False
    head = _head(status, *cycle.default_headers, *([] if cycle.keep_alive else _CLOSE))
    cycle.transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))
    if not cycle.keep_alive and not cycle.more_body:
        cycle.transport.close()
    cycle.on_response()
    return True


@lru_cache(maxsize=64)  # the date is new every second
def _head(status: int, *more: tuple[bytes, bytes]) -> bytes:
    """Everything before the length of a JSON answer."""
    lines = [b"%s: %s\r\n" % header for header in (*more, *json_headers(status))]
    return b"".join([STATUS_LINE[status], *lines, b"content-length: "])


# ---- a connection ----------------------------------------------------------------------------------------------------


class Flow(FlowControl):
    """Reads on only when no request waits in the pipeline, so that its length is bounded."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """uvicorn calls this after each answer, and whenever an application asks for the body."""
        if not self._connection.pipeline:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection with a deadline, limits of what it may send, and errors as everywhere; without `Upgrade`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse more connections than the limit."""
        super().connection_made(transport)
        self.flow = Flow(self)
        self.service: Service = self.config.app  # type: ignore[assignment]
        self.limits = self.service.limits
        self.running: RequestResponseCycle | None = None  # the request that is being answered
        self.in_body = False  # a request has a head, and is not whole
        self.received = 0  # bytes since it began
        self.wait(self.limits.request_seconds)
        if len(self.connections) > self.limits.connections:
            sentence = f"there are {self.limits.connections} connections already; try again"
            self.refuse(503, "too_many_connections", sentence)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; uvicorn tells the last one that was read."""
        if self.running is not None:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection for a client that has sent its last request and waits for the answer."""
        if self.cycle is None or self.cycle.response_complete or self.in_body:
            return False
        self.cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and limit what it holds. The first bytes after a pause set the deadline of a request."""
        if not self.received and not self.in_body:
            self.wait(self.limits.request_seconds)
        self.received += len(data)
        left: list[bytes | memoryview] = [data]
        while left and not self.transport.is_closing():
            piece = left.pop()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as stop:
                left = [memoryview(piece)[stop.args[0] :], self._without_upgrade()]
            except httptools.HttpParserError as error:
                cause = error.__context__ if isinstance(error.__context__, ValueError) else error
                reason = " ".join(str(cause).split())[:100]
                self.refuse(400, "malformed", f"request must be HTTP/1.1: {reason}")
        if self.received > LONGEST_HEAD:
            if not self.in_body:
                self.refuse(431, "too_large", f"headers must be {LONGEST_HEAD} bytes at most")
            elif self.received > self.limits.body + LONGEST_HEAD:
                self.refuse(413, "too_large", f"body must be {self.limits.body} bytes at most")

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

    # ---- the parser's callbacks -----------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        """Start to answer, unless the request will be fed again without `Upgrade`."""
        version, hosts = self.parser.get_http_version(), [name for name, _ in self.headers].count(b"host")
        if version not in {"1.0", "1.1"}:
            raise ValueError(f"got HTTP/{version}")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise ValueError(f"one Host header is needed, got {hosts}")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("CONNECT is for proxies")
            return
        super().on_headers_complete()
        self.scope["calibeat.cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]
        self.in_body, self.headers = True, []  # trailers, which come after the body, are not read

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer a request. Nobody keeps a list of these tasks: the end waits for the connections."""
        self.running = cycle
        self.loop.create_task(cycle.run_asgi(app))  # what it waits for holds it

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.parser.should_upgrade():
            return
        self.in_body, self.received = False, 0
        self.wait(self.limits.idle_seconds if self.cycle.response_complete else self.limits.answer_seconds)
        super().on_message_complete()
        if self.cycle.response_complete and not self.cycle.keep_alive:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with the next request, as uvicorn does, but without a timer for each: the deadline is one already."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            self.wait(self.limits.answer_seconds)
        elif not self.in_body:
            self.wait(self.limits.idle_seconds)
        elif self.cycle.response_complete and not self.cycle.keep_alive:
            self.wait(END_SECONDS)
        self.flow.resume_reading()

    def wait(self, seconds: float) -> None:
        """Set the deadline of what comes next."""
        self.deadline = self.loop.time() + seconds

    # ---- the end --------------------------------------------------------------------------------------------------

    def refuse(self, status: int, code: str, message: str) -> None:
        """End the connection with an error about what is being read.

        Whole requests before it get their answers first, and nothing follows: the error would be taken for one of them.
        """
        cycle = self.cycle
        is_answered = cycle is None or cycle.response_complete
        if not self.pipeline and is_answered != self.in_body and (is_answered or not cycle.response_started):
            self.end(status, code, message)
        elif self.in_body:
            self.transport.close()
        else:
            cycle.keep_alive = False

    def end(self, status: int, code: str, message: str) -> None:
        """Close it with an error in place of the next answer."""
        self.service.refused[code] += 1
        self.service.traffic.add(OTHER, "", status, 0.0)
        head, body = _head(status, *self.server_state.default_headers, *_CLOSE), error_body(code, message)
        self.transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))
        self.transport.close()

    def expire(self) -> None:
        """The deadline is over."""
        cycle = self.cycle
        self.wait(END_SECONDS)
        if self.transport.is_closing():  # and yet it is here: its client does not read
            self.transport.abort()
        elif self.in_body or self.received:
            self.refuse(408, "timeout", f"request must be sent within {self.limits.request_seconds:g} seconds")
        elif cycle is not None and not cycle.response_started and not self.pipeline:
            sentence = f"no answer within {self.limits.answer_seconds:g} seconds; ask again with the same id"
            self.end(504, "timeout", sentence)
        else:
            self.transport.close()


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
        if self.service.engine is not None:
            self.service.engine.hurry()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop as a signal would; any thread may call it."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second. One look a second at all connections costs less than a timer for each request."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in [each for each in self.server_state.connections if each.deadline < now]:  # type: ignore[union-attr]
                connection.expire()  # type: ignore[union-attr]
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
        http=HttpConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # the service has a log of its own
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
