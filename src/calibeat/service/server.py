"""uvicorn as the service runs it: one socket that is already bound, our protocol, our signals, a look a second."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from calibeat.errors import InvalidInput

from .app import Service
from .protocol import MOST_LINGERING, Protocol, sweep

BACKLOG = 2048
GRACE = 15  # seconds for the answers of the last group after SIGTERM
SPARE_FILES = 64  # descriptors that are not connections


HANDSHAKE = 5.0  # seconds for the handshake of TLS
AT_ONCE = 16  # connections that are accepted before the others get their turn


def stop_signals() -> list[signal.Signals]:
    """The signals that end the service gently: also the end of its terminal, unless `nohup` says otherwise."""
    found = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


class TlsDoor:
    """Accepts connections of TLS. A socket counts from the moment when it is accepted.

    asyncio tells a protocol of its connection only after the handshake: sockets without one would take all descriptors.
    Here the oldest of them has to go when there are too many, so that silent ones shut nobody out.
    """

    def __init__(self, listener: socket.socket, make: Callable[[], Protocol], tls: Any, server: Server) -> None:
        self._listener, self._make, self._tls, self._server = listener, make, tls, server
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
        listener.setblocking(False)
        self._open()

    def _open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):  # the client has left
                return
            except OSError:  # no descriptor is left: others end in a moment
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(1.0, self._open)
                return
            self._make_room()
            task = self._loop.create_task(self._shake_hands(client))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._end, client))

    def _end(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():  # before it began: otherwise asyncio has closed the socket
            client.close()

    def _make_room(self) -> None:
        """The oldest handshake ends when there are too many connections."""
        taken = len(self._server.server_state.connections) + len(self._handshakes)
        if self._handshakes and taken >= self._server.most:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()

    async def _shake_hands(self, client: socket.socket) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # no TLS, too slow, gone, or in the way
            await self._loop.connect_accepted_socket(self._make, client, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE)

    def close(self) -> None:
        """Accept nothing more."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
        for task in list(self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Until the last handshake has ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)


class Server(uvicorn.Server):
    """Stops on a signal after the last answers, and tells which one it was."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[Server], None]) -> None:
        super().__init__(config)
        self.service: Service = config.app  # type: ignore[assignment]
        self.most = self.service.limits.connections + MOST_LINGERING
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
        if self.config.ssl is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self.servers += [TlsDoor(listener, self._protocol, self.config.ssl, self) for listener in sockets or []]  # type: ignore[misc]
        self._ready(self)

    def _protocol(self) -> Protocol:
        return Protocol(config=self.config, server_state=self.server_state, app_state={})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Nobody waits for a page that takes long."""
        self.service.reads.stop()
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
    tls: tuple[str, str] | None = None,
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
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"TLS needs a certificate and its key as PEM files: {error}") from None
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


def address(listener: socket.socket, *, tls: bool) -> str:
    """The address to print."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


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
