"""The store: one interface, two databases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from calibeat._util.files import atomic
from calibeat.errors import InvalidInput

from .queries import Reader
from .schema import create_tables, version_of
from .sqlite import SqliteConnection, SqliteStore
from .types import Store, StoreAway, StoreBusy, StoreInUse

__all__ = [
    "Reader",
    "Store",
    "StoreAway",
    "StoreBusy",
    "backup",
    "is_store",
    "open_connection",
    "open_reader",
    "open_store",
    "outages",
    "owned",
    "owned_store",
    "reading",
    "without_password",
]


def open_store(url: str) -> Store:
    """The store at a path, ``sqlite:///path`` or ``postgresql://...``; it is made if there is none.

    Raises
    ------
    InvalidInput : the address cannot be read, the store is in use, or the database refuses to be used.
    StoreAway : the database does not answer now.
    SnapshotMismatch : the file or database is not a store of this format.
    """
    path = sqlite_path(url)
    if path is not None:
        return SqliteStore(path)
    from .postgres import PostgresStore  # psycopg is needed only here

    return PostgresStore(url)


def outages(url: str) -> tuple[type[Exception], ...]:
    """The errors after which a store may answer again later, if it is asked over a new connection."""
    if sqlite_path(url) is not None:
        return SqliteConnection.outages
    from .postgres import PostgresConnection

    return (*PostgresConnection.outages, StoreAway)


def open_connection(url: str, *, write: bool = False) -> Any:
    """A plain connection, for the commands."""
    path = sqlite_path(url)
    if path is not None:
        return SqliteConnection(path, read_only=not write)
    from .postgres import PostgresConnection

    return PostgresConnection(url)


def _follow_journal(url: str) -> None:
    """What a service has answered and not written before it was killed goes into the tables: see `unwritten`."""
    path = sqlite_path(url)
    if path is None or not path.exists():
        return
    with closing(SqliteConnection(path, read_only=True)) as connection:
        if "journal" not in connection.tables() or not connection.all("SELECT 1 FROM journal LIMIT 1"):
            return
    from calibeat.service.engine import recover  # which is built on this

    with suppress(StoreInUse):  # whoever uses it does it soon
        recover(url)


@contextmanager
def reading(url: str) -> Iterator[Any]:
    """A connection to a store as it is at one moment, for the commands. A service may use the store meanwhile."""
    _follow_journal(url)
    with closing(open_connection(url)) as connection:
        connection.begin_reading()
        yield connection


@contextmanager
def owned(url: str, *, create: bool = False) -> Iterator[Any]:
    """An exclusive connection to a store, in a transaction that is committed at the end.

    A store that is not there is an error, or is made first.
    """
    _follow_journal(url)
    path = sqlite_path(url)
    if path is not None:
        if not create and not path.exists():
            raise FileNotFoundError(f"store must exist, got nothing - at {path}")
        store: Any = SqliteStore(path)
        connection = store.connection
    else:
        store = connection = open_connection(url, write=True)
    try:
        if path is None:
            connection.own()
        store.begin()
        if create:
            create_tables(connection, "PostgreSQL" if path is None else str(path))
        yield connection
        store.commit()
    except BaseException:
        store.rollback()
        raise
    finally:
        store.close()


@contextmanager
def owned_store(url: str) -> Iterator[Store]:
    """A store with exclusive use, for a command that writes events.

    All groups within are one transaction. It is committed at the end, or leaves the store as it was.
    """
    _follow_journal(url)
    store = open_store(url)
    connection = store.connection
    try:
        if sqlite_path(url) is None:
            connection.own()
            connection.run("SET idle_in_transaction_session_timeout = 0")  # nobody waits for it
        connection.begin()
        store.connection = _InTransaction(connection)
        yield store
        store.connection = connection
        store.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        store.connection = connection
        store.close()


class _InTransaction:
    """A connection in a transaction that groups neither begin nor end."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def begin(self) -> None:
        """It has begun."""

    commit = rollback = begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def open_reader(url: str) -> Reader:
    """A connection that only reads (and keeps the tokens), for any one thread at a time."""
    return Reader(open_connection(url), lambda: open_connection(url, write=True))


def is_store(url: str) -> bool:
    """Whether there is a store at this address. A database of something else is refused with a sentence."""
    path = sqlite_path(url)
    if path is not None and not path.exists():
        return False
    with closing(open_connection(url)) as connection:
        return version_of(connection, "PostgreSQL" if path is None else str(path)) > 0


def backup(url: str, target: Path, step: Callable[[int], None] = lambda _: None) -> int:
    """Write a copy of an SQLite store, as it is at one moment, into a new file -> its bytes.

    A service may run meanwhile. The file is whole or not there, and only its owner may read it.
    """
    path = sqlite_path(url)
    if path is None:
        raise InvalidInput(
            "store must be an SQLite file to be copied by calibeat, got PostgreSQL - "
            f"use `pg_dump --format=custom --file={target} --dbname=STORE`"
        )

    def check_new(_: object = None) -> None:
        if os.path.lexists(target):
            raise InvalidInput(f"backup must be a new file, got one that is there - at {target}")

    def fill(part: Path) -> None:
        part.chmod(0o600)
        connection.copy_to(part, step)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        check_new()

    check_new()
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"backup must be in a folder that exists, got none - at {target.absolute().parent}")
    if not is_store(url):
        raise FileNotFoundError(f"store must exist, got nothing - at {path}")
    with closing(SqliteConnection(path, read_only=True)) as connection, atomic(target, check=fill):
        pass  # the copy is made under a temporary name
    return target.stat().st_size


def sqlite_path(url: str) -> Path | None:
    """Where the file is, or None if this is PostgreSQL.

    >>> sqlite_path("calibeat.db"), sqlite_path("sqlite:////var/lib/a.db"), sqlite_path("postgresql://localhost/a")
    (PosixPath('calibeat.db'), PosixPath('/var/lib/a.db'), None)
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        if not url:
            raise InvalidInput("store must be a path, sqlite:///PATH or postgresql://..., got nothing")
        return Path(url)
    if scheme in {"postgresql", "postgres"}:
        return None
    if scheme != "sqlite" or not rest.startswith("/") or rest == "/":
        # What is behind the colon may hold a password.
        raise InvalidInput(f"store must be a path, sqlite:///PATH or postgresql://..., got {scheme + '://...'!r}")
    return Path(unquote(rest[1:]))


def without_password(url: str) -> str:
    """A store as it may be printed or stand in a report: an address without its password and parameters.

    >>> without_password("postgresql://me:secret@db.example/calibeat?password=secret"), without_password("calibeat.db")
    ('postgresql://me@db.example/calibeat', 'calibeat.db')
    """
    if sqlite_path(url) is not None:
        return url
    from .postgres import without_password as of_address

    return of_address(url)
