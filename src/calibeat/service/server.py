"""uvicorn as the service runs it: one socket that is already bound, our protocol, our signals, a look a second."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from calibeat.errors import InvalidInput

from .app import Service
from .protocol import Protocol, sweep

BACKLOG = 2048
GRACE = 15  # seconds for the answers of the last group after SIGTERM
SPARE_FILES = 64  # descriptors that are not connections


class Server(uvicorn.Server):
    """Stops on SIGTERM and SIGINT after the last answers, and tells which of the two it was.

    A worker stops also when its parent, which would start it again, is gone.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[Server], None], parent: int | None = None) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        self._ready, self._parent = ready, parent

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, but the signal is not raised again: the exit code is ours."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in wanted}
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

    def stop(self) -> None:
        """Stop as a signal would; any thread may call it."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        is_orphan = self._parent not in {None, os.getppid()}
        return await super().on_tick(counter) or is_orphan


def run(
    service: Service,
    listener: socket.socket,
    *,
    started: Callable[[asyncio.AbstractEventLoop], None],
    ready: Callable[[Server], None],
    finish: Callable[[], Awaitable[None]] | None = None,
    tls: tuple[str, str] | None = None,
    parent: int | None = None,
) -> int | None:
    """Serve until a signal comes, and return it; or until the parent is gone, for a worker that has one.

    `started` is called with the loop before the first connection, `finish` is awaited after the last one.
    """
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
    server = Server(config, ready, parent)

    async def serve() -> None:
        started(asyncio.get_running_loop())
        await server.serve(sockets=[listener])
        if finish is not None:
            await finish()

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
