"""The service put together: store, engine, tokens, routes, server; started in this order and stopped in the other."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibeat._util.words import visible
from calibeat.errors import InvalidInput

from .engine import Engine, EngineSettings
from .http import AccessLog, Endpoints, Server, Service, address, is_loopback, listen, room_for, run
from .routes import StoreReaders
from .store import Reader, open_reader, without_password
from .store.types import AlarmInfo
from .tokens import Refresher, Scope, TokenBook
from .webhook import Webhook, read_secret
from .wire import DEFAULT_LIMITS

log = logging.getLogger("calibeat.service")


@dataclass(frozen=True)
class ServeOptions:
    """The options of `calibeat serve`."""

    store: str
    settings: EngineSettings = field(default_factory=EngineSettings)
    host: str = "127.0.0.1"
    port: int = 8377
    tls: tuple[str, str] | None = None
    access_log: bool = False
    webhook: str | None = None
    webhook_secret: Path | None = None
    limits: dict[str, Any] = field(default_factory=dict)


Ready = Callable[[str, Callable[[], None]], None]


def serve(options: ServeOptions, ready: Ready | None = None) -> int | None:
    """Serve until a signal comes, and return it.

    `ready` is called with the address and with a function that stops the service, as SIGTERM would; without it, one
    line with the address is printed.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="calibeat: %(levelname)s: %(message)s")
    with listen(options.host, options.port) as listener:
        return _serve_at(listener, options, ready)


def _serve_at(listener: socket.socket, options: ServeOptions, ready: Ready | None) -> int | None:
    limits = replace(DEFAULT_LIMITS, **options.limits)
    limits = replace(limits, connections=room_for(limits.connections))
    secret = read_secret(options.webhook_secret)
    webhook = Webhook(options.store, options.webhook, secret) if options.webhook else None
    with ExitStack() as stack:
        engine = Engine.open(options.store, options.settings)
        engine.on_alarm = _log_alarms
        writing = stack.enter_context(ExitStack())  # closed after all who read: then the log goes into the file
        writing.callback(engine.store.close)  # once it has started, the engine does that itself
        if engine.store.is_new and ready is None:
            sys.stdout.write(f"calibeat made a new store: {without_password(options.store)}\n")
            sys.stdout.flush()
        stored = stack.enter_context(closing(StoredTokens(options.store)))
        book = token_book(options, stored)
        refresher = Refresher(book, stored.read)
        endpoints = Endpoints(engine, limits)
        reads = stack.enter_context(closing(StoreReaders(options.store, engine.counters)))
        access_log = AccessLog() if options.access_log else None
        service = Service(endpoints, reads, book, limits, access_log, address=listener.getsockname()[0])

        def started(loop: asyncio.AbstractEventLoop) -> None:
            endpoints.use(loop)
            writing.pop_all()
            engine.start(endpoints.deliver)
            writing.callback(engine.stop)
            refresher.start()
            stack.callback(refresher.stop)
            if webhook is not None:
                webhook.start()
                stack.callback(webhook.stop)

        def announce(running: Server) -> None:
            where = address(listener, tls=options.tls is not None)
            if ready is not None:
                ready(where, running.stop)
                return
            sys.stdout.write(f"calibeat serves {without_password(options.store)} at {where}{book.who_may_connect}\n")
            sys.stdout.flush()

        return run(service, listener, started=started, ready=announce, tls=options.tls)


def _log_alarms(alarms: Sequence[AlarmInfo]) -> None:
    for alarm in alarms:
        kind = "page" if alarm.page else "alarm"
        log.warning("%s: %s in stream %s, at outcome %d", kind, alarm.what, visible(alarm.stream), alarm.at)


def token_book(options: ServeOptions, stored: StoredTokens) -> TokenBook:
    """The tokens of the store. As long as it never had one, only this machine may connect."""
    rows = stored.read()
    loopback = is_loopback(options.host)
    if not loopback and not rows:
        raise InvalidInput(
            f"host must be loopback as long as there is no token, got {options.host}: "
            "`calibeat token create --store STORE --scope write --name NAME` makes one"
        )
    book = TokenBook(open_without_tokens=loopback)
    book.refresh(rows)
    return book


class StoredTokens:
    """The tokens as the store has them, over a connection that is opened again when it fails."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._reader: Reader | None = None

    def read(self) -> list[tuple[bytes, Scope | None]]:
        """The hashes and scopes of all tokens; no scope for those that are revoked."""
        if self._reader is None:
            self._reader = open_reader(self._store)
        try:
            found = self._reader.tokens.list()
        except Exception:
            self.close()
            raise
        scopes: dict[str, Scope] = {"write": "write"}
        return [(bytes.fromhex(t.hash), scopes.get(t.scope, "read") if t.revoked is None else None) for t in found]

    def close(self) -> None:
        """Close the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
