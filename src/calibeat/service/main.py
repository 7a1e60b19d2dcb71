"""The service put together: store, engine, tokens, routes, server; started in this order and stopped in the other."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibeat.errors import InvalidInput

from . import server
from .accesslog import AccessLog
from .app import Service
from .engine import Engine
from .hot import Hot
from .limits import DEFAULT
from .reads import Reads
from .settings import Settings
from .store import open_reader, sqlite_path
from .tokens import Refresher, TokenBook
from .webhook import Webhook, read_secret
from .workers import Supervisor


@dataclass(frozen=True)
class Options:
    """Everything that `calibeat serve` can be told."""

    store: str
    settings: Settings = field(default_factory=Settings)
    host: str = "127.0.0.1"
    port: int = 8377
    workers: int = 1
    tls: tuple[str, str] | None = None
    access_log: bool = False
    webhook: str | None = None
    webhook_secret: Path | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    listen_fd: int | None = None
    typed: tuple[str, ...] = ()  # the command line, for workers


def serve(options: Options) -> int | None:
    """Serve until a signal comes, and return it."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="calibeat: %(levelname)s: %(message)s")
    if options.workers > 1 and sqlite_path(options.store) is not None:
        raise InvalidInput(
            f"workers must be 1 with SQLite, whose file belongs to one process, got {options.workers}: "
            "several workers need a store postgresql://..."
        )
    if options.workers < 1:
        raise InvalidInput(f"workers must be 1 or more, got {options.workers}")
    if options.listen_fd is not None:
        return _serve_one(options, socket.socket(fileno=options.listen_fd))
    listener = server.listen(options.host, options.port)
    if options.workers > 1:
        tokens(options)
        return Supervisor(options.workers, listener, options.typed).run()
    return _serve_one(options, listener)


def _serve_one(options: Options, listener: socket.socket) -> int | None:
    """One process: an engine, its routes, its signals."""
    limits = replace(DEFAULT, **options.limits)
    limits = replace(limits, connections=server.room_for(limits.connections))
    secret = read_secret(options.webhook_secret)
    webhook = Webhook(options.store, options.webhook, secret) if options.webhook else None
    engine = Engine.open(options.store, options.settings)
    try:
        book = tokens(options)
    except BaseException:
        engine.stop()
        raise
    refresher = Refresher(book, lambda: _read_tokens(options.store))
    hot = Hot(engine, book, limits)
    reads = Reads(options.store, engine.numbers)
    access_log = AccessLog() if options.access_log else None
    service = Service(hot, reads, book, limits, access_log)

    def started(loop: asyncio.AbstractEventLoop) -> None:
        hot.use(loop)
        engine.start(hot.deliver)
        refresher.start()
        if webhook is not None:
            webhook.start()

    try:
        return server.run(
            service, listener, started=started, ready=lambda: _announce(options, listener), tls=options.tls
        )
    finally:
        engine.stop()
        refresher.stop()
        reads.close()
        if webhook is not None:
            webhook.stop()


def tokens(options: Options) -> TokenBook:
    """The tokens of the store. Without any, only this machine may connect."""
    loopback = server.is_loopback(options.host)
    book = TokenBook(open_without_tokens=loopback)
    book.refresh(_read_tokens(options.store))
    if not loopback and not book.scopes:
        raise InvalidInput(
            f"host must be loopback as long as there is no token, got {options.host}: "
            f"`calibeat token create --store {options.store} --scope write --name NAME` makes one"
        )
    return book


def _read_tokens(store: str) -> list[tuple[bytes, Any]]:
    """The hashes and scopes of the tokens that are not revoked."""
    reader = open_reader(store)
    try:
        return [(bytes.fromhex(token.hash), token.scope) for token in reader.tokens.list() if token.revoked is None]
    finally:
        reader.close()


def _announce(options: Options, listener: socket.socket) -> None:
    """The one line that says where the service is."""
    where = server.address(listener, tls=options.tls is not None)
    open_to = "" if _read_tokens(options.store) else "; no token yet, so only this machine can connect"
    sys.stdout.write(f"calibeat serves {options.store} at {where}{open_to}\n")
    sys.stdout.flush()
