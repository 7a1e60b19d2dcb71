"""The service put together: port, store, engine, tokens, routes; started in this order and stopped in the other.

The port opens first. As long as the store is not there, such as a PostgreSQL that is started later, the service is
alive and not ready. A store that can never be used ends it with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibeat._util.words import visible
from calibeat.errors import InvalidInput

from .alarms import AlarmKeeper
from .engine import Engine, EngineSettings
from .http import Endpoints, Server, Service, address, is_loopback, listen, room_for, run
from .logs import AccessLog, LogFormat, say, start_logging
from .routes import StoreReaders
from .store import Reader, open_reader, outages, sqlite_path, without_password
from .store.queries import Token
from .store.types import AlarmInfo
from .tokens import Refresher, TokenBook
from .watch import NOTICED
from .webhook import Webhook, WebhookFormat, read_secret
from .wire import DEFAULT_LIMITS

log = logging.getLogger("calibeat.service")
AWAY_SECONDS = 0.5  # seconds from one attempt to reach a store that is away to the next


@dataclass(frozen=True)
class ServeOptions:
    """The options of `calibeat serve`."""

    store: str
    settings: EngineSettings = field(default_factory=EngineSettings)
    host: str = "127.0.0.1"
    port: int = 8377
    access_log: bool = False
    log_format: LogFormat = "text"
    webhook: str | None = None
    webhook_secret: Path | None = None
    webhook_format: WebhookFormat = "json"
    public_url: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)


Ready = Callable[[str, Callable[[], None]], None]


def serve(options: ServeOptions, ready: Ready | None = None) -> int | None:
    """Serve until a signal comes, and return it.

    `ready` is called with the address and with a function that stops the service, as SIGTERM would, as soon as it has
    its store; without it, one line with the address is printed then.

    Raises
    ------
    InvalidInput : the port is taken, or the store cannot be used with these settings.
    SnapshotMismatch : the store has another format.
    """
    start_logging(options.log_format)
    with listen(options.host, options.port) as listener:
        return Startup(listener, options, ready).serve()


class Startup:
    """A service from its port to its end."""

    def __init__(self, listener: socket.socket, options: ServeOptions, ready: Ready | None) -> None:
        self._listener, self._options, self._ready = listener, options, ready
        self._where = address(listener)
        limits = replace(DEFAULT_LIMITS, **options.limits)
        limits = replace(limits, connections=room_for(limits.connections))
        self._make_webhook()  # a bad address or secret is noticed before the port is served
        self._endpoints = Endpoints(None, limits)
        closed = TokenBook(open_without_tokens=False)
        self._service = Service(
            self._endpoints,
            StoreReaders(options.store),
            closed,
            limits,
            AccessLog() if options.access_log else None,
            address=listener.getsockname()[0],
        )
        self._service.is_starting = True
        self._stack = ExitStack()  # what was opened
        self._stopping = threading.Event()
        self._failed: BaseException | None = None

    def _make_webhook(self) -> Webhook | None:
        options = self._options
        secret = read_secret(options.webhook_secret)
        if options.webhook is None:
            return None
        page = options.public_url or self._where
        return Webhook(options.store, options.webhook, secret, kind=options.webhook_format, page=page)

    def serve(self) -> int | None:
        """Until a signal comes, or the store turns out to be one that cannot be used."""
        opening: list[threading.Thread] = []

        def announce(running: Server) -> None:
            thread = threading.Thread(target=self._start, args=(running, loop[0]), name="calibeat-start", daemon=True)
            opening.append(thread)
            thread.start()

        loop: list[asyncio.AbstractEventLoop] = []

        def started(running: asyncio.AbstractEventLoop) -> None:
            self._endpoints.use(running)
            loop.append(running)

        with self._stack:
            try:
                stopped_by = run(self._service, self._listener, started=started, ready=announce)
            finally:
                self._stopping.set()
                for thread in opening:
                    thread.join()
                self._service.reads.close()
        if self._failed is not None:
            raise self._failed
        return stopped_by

    # ---- on a thread of its own: the store ---------------------------------------------------------------------------

    def _start(self, running: Server, loop: asyncio.AbstractEventLoop) -> None:
        """Open the store, as often as it takes; a failure stops the server."""
        is_told = False
        try:
            while not self._stopping.is_set():
                try:
                    self._open(loop, running)
                except outages(self._options.store) as error:
                    if not is_told:
                        log.warning("the store is away, the service waits for it: %s", " ".join(str(error).split()))
                    is_told = True
                    self._stopping.wait(AWAY_SECONDS)
                else:
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by `serve`
            self._failed = error
            running.stop()

    def _open(self, loop: asyncio.AbstractEventLoop, running: Server) -> None:
        options = self._options
        with ExitStack() as opened:
            engine = Engine.open(options.store, options.settings)
            writing = opened.enter_context(ExitStack())  # closed after all who read: then the log goes into the file
            writing.callback(engine.store.close)  # once it has started, the engine does that itself
            engine.on_alarm = _log_alarms
            if engine.store.is_new and self._ready is None:
                say(f"calibeat made a new store: {without_password(options.store)}", options.log_format)
            stored = opened.enter_context(closing(StoredTokens(options.store)))
            book = token_book(options, stored)
            refresher = Refresher(book, stored.read)
            refresher.start()
            opened.callback(refresher.stop)
            keeper = AlarmKeeper(options.store)
            keeper.start()
            opened.callback(keeper.stop)
            webhook = self._make_webhook()
            if webhook is not None:
                webhook.start()
                opened.callback(webhook.stop)
            writing.pop_all()
            engine.start(self._endpoints.deliver)
            writing.callback(engine.stop)
            self._stack.push(opened.pop_all())
        kind = "postgresql" if sqlite_path(options.store) is None else "sqlite"
        self._service.build = {"store": kind, "method": str(engine.settings.method)}
        loop.call_soon_threadsafe(self._service.open, engine, book)
        loop.call_soon_threadsafe(self._announce, running, book)

    def _announce(self, running: Server, book: TokenBook) -> None:
        if self._ready is not None:
            self._ready(self._where, running.stop)
            return
        store = without_password(self._options.store)
        say(f"calibeat serves {store} at {self._where}{book.who_may_connect}", self._options.log_format)


def _log_alarms(alarms: Sequence[AlarmInfo]) -> None:
    for alarm in alarms:
        kind = "page" if alarm.page else "alarm"
        where = "" if alarm.part == NOTICED else f", at outcome {alarm.at}"
        log.warning("%s: %s in stream %s%s", kind, alarm.what, visible(alarm.stream), where)


def token_book(options: ServeOptions, stored: StoredTokens) -> TokenBook:
    """The tokens of the store. As long as it never had one, only this machine may connect."""
    tokens = stored.read()
    loopback = is_loopback(options.host)
    if not loopback and not tokens:
        raise InvalidInput(
            f"host must be loopback as long as there is no token, got {options.host}: "
            "`calibeat token create --store STORE --scope write --name NAME` makes one"
        )
    book = TokenBook(open_without_tokens=loopback)
    book.refresh(tokens)
    return book


class StoredTokens:
    """The tokens as the store has them, over a connection that is opened again when it fails."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._reader: Reader | None = None

    def read(self) -> list[Token]:
        """All tokens, revoked ones too."""
        if self._reader is None:
            self._reader = open_reader(self._store)
        try:
            return self._reader.tokens.list()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
