"""The service put together: port, store, engine, tokens, routes; started in this order and stopped in the other.

The port opens first. As long as the store is not there, such as a PostgreSQL that is started later, or another service
leads it, this one is alive and not ready. If the engine loses the lead, everything starts again from there. A store
that can never be used ends the service with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from calibeat._util.words import visible
from calibeat.errors import InvalidInput

from .alarms import AlarmKeeper
from .engine import Engine
from .events import Refusal
from .http import Service
from .logs import AccessLog, LogFormat, say, start_logging
from .routes import StoreReaders
from .server import Server, address, is_loopback, listen, room_for, run
from .settings import EngineSettings, check_settings
from .store import (
    NotLeader,
    Reader,
    StoreAway,
    open_connection,
    open_reader,
    outages,
    sqlite_path,
    stand_by,
    without_password,
)
from .store.queries import Token
from .store.schema import get_meta
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
        closed = TokenBook(open_without_tokens=False)
        self._service = Service(
            StoreReaders(options.store),
            closed,
            limits,
            AccessLog() if options.access_log else None,
            address=listener.getsockname()[0],
        )
        self._stack = ExitStack()  # what was opened
        self._stopping = threading.Event()
        self._epoch = -1  # of the lease that this process had last
        self._lost = threading.Event()  # another service leads, or this one stops
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
            self._service.use(running)
            loop.append(running)

        with self._stack:
            try:
                stopped_by = run(self._service, self._listener, started=started, ready=announce)
            finally:
                self._stopping.set()
                self._lost.set()
                for thread in opening:
                    thread.join()
                self._service.reads.close()
        if self._failed is not None:
            raise self._failed
        return stopped_by

    # ---- on a thread of its own: the store ---------------------------------------------------------------------------

    def _start(self, running: Server, loop: asyncio.AbstractEventLoop) -> None:
        """Open the store, as often as it takes, and again after a loss; a failure stops the server."""
        try:
            self._await_lead(loop, running)
            while True:
                self._lost.wait()
                self._lost.clear()
                if self._stopping.is_set():
                    return
                self._stack.close()
                self._await_lead(loop, running)
                if not self._stopping.is_set():
                    log.warning("requests are answered again")
        except BaseException as error:  # noqa: BLE001 - raised again by `serve`
            self._failed = error
            running.stop()

    def _await_lead(self, loop: asyncio.AbstractEventLoop, running: Server) -> None:
        """Open the store as soon as it is there and no other service leads it."""
        told = set[type[Exception]]()
        while not self._stopping.is_set():
            try:
                try:
                    return self._open(loop, running)
                except NotLeader as error:
                    _soon(loop, self._service.close)
                    is_told, told = NotLeader in told, {NotLeader}
                    self._stand_by(error, is_told=is_told)
            except outages(self._options.store) as error:
                if StoreAway not in told:
                    log.warning("the store is away, the service waits for it: %s", " ".join(str(error).split()))
                told.add(StoreAway)
                self._stopping.wait(AWAY_SECONDS)
        return None

    def _stand_by(self, error: NotLeader, *, is_told: bool) -> None:
        """Wait until nobody leads. What would end this service then ends it now."""
        options = self._options
        with closing(open_connection(options.store)) as connection:
            meta = get_meta(connection)
        if "method" in meta:  # otherwise the leader makes it now
            check_settings(meta, options.settings)
        with closing(StoredTokens(options.store)) as stored:
            token_book(options, stored)
        if not is_told:
            store = without_password(options.store)
            self._say(f"calibeat stands by for {store} at {self._where}; {error.holder} leads")
        stand_by(options.store, self._stopping.wait)

    def _say(self, line: str) -> None:
        if self._ready is None:
            say(line, self._options.log_format)

    def _lose(self, loop: asyncio.AbstractEventLoop, message: str, refusal: Refusal) -> None:
        """The engine has ended. A database that is away cannot be read either, and `/metrics` says so."""
        log.warning("%s", message)
        if refusal.code == "not_ready":  # it can be read, and says less than the new leader has answered
            _soon(loop, self._service.close)
        self._lost.set()

    def _open(self, loop: asyncio.AbstractEventLoop, running: Server) -> None:
        options = self._options
        with ExitStack() as opened:
            engine = Engine.open(options.store, options.settings, epoch=self._epoch)
            self._epoch = engine.store.epoch
            writing = opened.enter_context(ExitStack())  # closed after all who read: then the log goes into the file
            writing.callback(engine.store.close)  # once it has started, the engine does that itself
            engine.counters = self._service.reads.counters  # those of this process
            engine.hooks.on_alarm, engine.hooks.on_loss = _log_alarms, partial(self._lose, loop)
            if engine.store.is_new:
                self._say(f"calibeat made a new store: {without_password(options.store)}")
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
            engine.start(self._service.deliver)
            writing.callback(engine.stop)
            self._stack.push(opened.pop_all())
        kind = "postgresql" if sqlite_path(options.store) is None else "sqlite"
        self._service.build = {"store": kind, "method": str(engine.settings.method)}
        _soon(loop, self._service.open, engine, book)
        _soon(loop, self._announce, running, book)

    def _announce(self, running: Server, book: TokenBook) -> None:
        if self._ready is not None:
            self._ready(self._where, running.stop)
            return
        store = without_password(self._options.store)
        say(f"calibeat serves {store} at {self._where}{book.who_may_connect}", self._options.log_format)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    """Call something on the loop, unless it has ended, as the service has."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


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
