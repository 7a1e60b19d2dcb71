"""The store: one interface, two databases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from calibeat.errors import InvalidInput

from .ownership import Member, Ownership
from .ranking import refresh
from .reader import Reader
from .records import Record, Rows, StreamState
from .schema import migrate
from .sqlite import SqliteConnection, SqliteStore
from .totals import recount

__all__ = ["Member", "Ownership", "Reader", "Store", "open_connection", "open_reader", "open_store", "owned"]


class Store(Protocol):
    """What an engine needs of a database. All calls come from the engine's own thread."""

    failures: tuple[type[Exception], ...]  # what ends the process: the store is the truth
    retries: tuple[type[Exception], ...]  # what another worker can cause: the group is done once more
    is_shared: bool  # whether others may write to the same streams
    owner: Ownership | None  # what this worker owns; None where any worker may write any stream
    connection: Any

    def begin(self) -> None:
        """Begin a group."""

    def streams(self, names: Collection[str], cached: Mapping[str, StreamState]) -> dict[str, StreamState]:
        """The streams of these names that are there and that memory does not have as they are now."""

    def create(self, names: Collection[str]) -> dict[str, int]:
        """Numbers for new streams of these names."""

    def known(self, ids: Collection[str]) -> dict[str, Record]:
        """The events that are there already, by their id."""

    def corrections(self, ids: Collection[str]) -> dict[str, int]:
        """The latest outcome of those of these events whose corrections wait for a replay, by their id."""

    def due(self, status: int, before: float, limit: int) -> list[tuple[str, Record]]:
        """Events of a status whose forecast was made at this time or before, the earliest first."""

    def read_after(self, stream: int, nth: int) -> dict[int, tuple[float, float, float]]:
        """The learnt events of a stream after one of its forecasts: number -> (forecast, outcome, score)."""

    def write(self, rows: Rows) -> None:
        """Everything that a group changes."""

    def rank(self, numbers: Collection[int]) -> None:
        """Bring the places of some streams in the lists up to date: see `ranking`."""

    def all_ranked(self) -> None:
        """Say that the places of all streams that were written are up to date."""

    def commit(self) -> None:
        """On the disk when this returns."""

    def rollback(self) -> None:
        """As if the group had not been."""

    def close(self) -> None:
        """Let go of the database."""


def open_store(url: str, member: Member | None = None) -> Store:
    """The store at a path, ``sqlite:///path`` or ``postgresql://...``; it is made if there is none.

    Who writes events to a PostgreSQL store is a `Member` of those who share it.
    """
    path = sqlite_path(url)
    if path is not None:
        return SqliteStore(path)
    from .postgres import PostgresStore  # psycopg is needed only here

    return PostgresStore(url, member)


def open_connection(url: str, *, write: bool = False) -> Any:
    """A plain connection, for the commands."""
    path = sqlite_path(url)
    if path is not None:
        return SqliteConnection(path, read_only=not write)
    from .postgres import PostgresConnection

    return PostgresConnection(url)


@contextmanager
def owned(url: str, *, create: bool = False) -> Iterator[Any]:
    """A connection of the only one who uses the store, in a transaction that is committed at the end.

    A store that is not there is an error, or is made first.
    """
    path = sqlite_path(url)
    if path is not None:
        if not create and not path.exists():
            raise FileNotFoundError(f"store must exist, got nothing - at {path}")
        store = SqliteStore(path)
        connection: Any = store.connection
        close = store.close
    else:
        from .postgres import PostgresConnection

        connection = PostgresConnection(url)
        close = connection.close
    try:
        if path is None:
            connection.own()
        connection.begin()
        if create:
            migrate(connection, "PostgreSQL" if path is None else str(path))
        yield connection
        recount(connection)
        refresh(connection)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        close()


def open_reader(url: str) -> Reader:
    """A connection that only reads (and keeps the tokens), for any one thread at a time."""
    path = sqlite_path(url)
    if path is not None:
        return Reader(SqliteConnection(path, read_only=True), lambda: SqliteConnection(path))
    from .postgres import PostgresConnection

    return Reader(PostgresConnection(url), lambda: PostgresConnection(url))


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
        raise InvalidInput(f"store must be a path, sqlite:///PATH or postgresql://..., got {url!r}")
    return Path(unquote(rest[1:]))
