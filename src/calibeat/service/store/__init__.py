"""The store: one interface, two databases."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from calibeat._util.files import atomic
from calibeat.errors import InvalidInput

from .lease import STANDBY_LOOK, NotLeader, is_free
from .queries import Reader
from .schema import check_version, get_meta, version_of
from .sqlite import SqliteConnection, SqliteStore, owned_file
from .types import Store, StoreAway, StoreBusy, StoreInUse

__all__ = [
    "NotLeader",
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
    "owned_store",
    "reading",
    "restore",
    "stand_by",
    "without_password",
]

_log = logging.getLogger("calibeat.service")


def open_store(url: str, epoch: int = -1) -> Store:
    """The store at a path, ``sqlite:///path`` or ``postgresql://...``; it is made if there is none.

    `epoch` is that of the lease which this process had before.

    Raises
    ------
    StoreInUse : another process writes it; it is a `NotLeader` where this one may wait for its end.
    InvalidInput : the address cannot be read, or the database refuses to be used.
    StoreAway : the database does not answer now.
    SnapshotMismatch : the file or database is not a store of this format.
    """
    path = sqlite_path(url)
    if path is not None:
        return SqliteStore(path)
    from .postgres import PostgresStore  # psycopg is needed only here

    return PostgresStore(url, epoch)


def stand_by(url: str, wait: Callable[[float], bool]) -> None:
    """Return when the leader has ended, or when `wait` says so, which is called with seconds."""
    with closing(open_connection(url)) as connection:
        while not is_free(connection) and not wait(STANDBY_LOOK):
            pass


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


def _catch_up(url: str) -> None:
    """What a service has answered before it was killed, and had no time to write, goes into the tables."""
    if not is_store(url):
        return
    with closing(open_connection(url)) as connection:
        last = connection.all("SELECT coalesce(max(position), 0) FROM op")[0][0]
        if int(get_meta(connection).get("flushed", "0")) >= last:
            return
    from calibeat.service.engine import catch_up  # which is built on this

    with suppress(StoreInUse):  # whoever uses it does it soon
        catch_up(url)


@contextmanager
def reading(url: str) -> Iterator[Any]:
    """A connection to a store as it is at one moment, for the commands. A service may use the store meanwhile.

    If the store is damaged, the tables may be behind the log: what can be read is read all the same.
    """
    with closing(open_connection(url)) as connection:
        check_version(connection, without_password(url))
    try:
        _catch_up(url)
    except connection.faults as error:
        _log.warning("the tables could not follow the log: %s - `calibeat store check` says what is wrong", error)
    with closing(open_connection(url)) as connection:
        connection.begin_reading()
        yield connection


@contextmanager
def owned_store(url: str, *, create: bool = False) -> Iterator[Store]:
    """A store with exclusive use, for a command that writes. One that is not there is an error, or is made first.

    Everything inside runs in one transaction; on an error nothing is written.
    """
    if not create and not is_store(url):
        raise FileNotFoundError(f"store must exist, got nothing - at {without_password(url)}")
    _catch_up(url)
    store = open_store(url)
    connection = store.connection
    try:
        if sqlite_path(url) is None:
            connection.run("SET idle_in_transaction_session_timeout = 0")  # nobody waits for it
        store.begin()
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


def restore(url: str, source: Path) -> int:
    """Put a backup in the place of an SQLite store -> its bytes. Nobody may serve the store.

    Raises
    ------
    InvalidInput, SnapshotMismatch : the file is no store of this version, or the store is in use.
    """
    path = sqlite_path(url)
    if path is None:
        raise InvalidInput("store must be an SQLite file to be restored by calibeat, got PostgreSQL - use `pg_restore`")
    if not is_store(str(source)):
        raise FileNotFoundError(f"backup must exist, got nothing - at {source}")
    with closing(SqliteConnection(source, read_only=True)) as connection:
        check_version(connection, str(source))
        if problems := connection.integrity():
            raise InvalidInput(f"backup must be whole, got: {problems[0]} - at {source}")
    with owned_file(path), atomic(path) as file, source.open("rb") as content:
        os.fchmod(file.fileno(), 0o600)
        shutil.copyfileobj(content, file)
        for end in ("-wal", "-shm"):  # of the store that was there
            path.with_name(path.name + end).unlink(missing_ok=True)
    return path.stat().st_size


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
