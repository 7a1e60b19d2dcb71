"""The shared store: PostgreSQL, for several processes or machines.

Any process may get any event. A group first locks the rows of its streams, in the order of their names, so that no two
processes wait for each other. What others have changed since is read again. Then ids are looked up: whoever could have
written them has committed. A stream is written only if it has the version that was read: a fault in the locks loses
nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from struct import Struct
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

import numpy as np

from calibeat._util.extras import missing
from calibeat.errors import InvalidInput

from . import schema
from .types import (
    ADD_TO_ROLLUPS,
    INSERT_ALARMS,
    INSERT_BODIES,
    INSERT_CELLS,
    INSERT_CORRECTIONS,
    INSERT_EVENTS,
    INSERT_NAMES,
    INSERT_ROLLUPS,
    INSERT_SAID,
    INSERT_SHAPES,
    OR_BODY,
    OR_CELL,
    OR_NAME,
    OR_SHAPE,
    SETTLE_EVENTS,
    SETTLED,
    SETTLED_COLUMNS,
    STREAM_COLUMNS,
    UPDATE_STREAMS,
    Overtaken,
    Store,
    StoreAway,
    StoreBusy,
    StreamState,
    TableRow,
    check_written,
)

try:
    import psycopg
    from psycopg import errors
    from psycopg.adapt import Dumper
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.generators import send
    from psycopg.pq import Format
except ImportError as error:  # pragma: no cover - only where the extra is missing
    raise missing("psycopg", "postgres", "a store in PostgreSQL") from error

# Advisory locks, which a session loses when it ends, however it ends.
_USED, _CREATING = 0x63616C69_00000001, 0x63616C69_00000002
_REWORK = 0x63616C6D_00000000  # and the number of a stream

# A machine that is gone without a word is noticed within 20 seconds, on both sides, unless the address says otherwise.
_ALIVE = {
    "keepalives_idle": 8,
    "keepalives_interval": 4,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "connect_timeout": 5,
}
_ALIVE_THERE = "SET tcp_keepalives_idle = 8; SET tcp_keepalives_interval = 4; SET tcp_keepalives_count = 3"

# A service that hangs, such as a process that was stopped, holds up nobody for long: PostgreSQL ends its session after
# HUNG seconds in the middle of a group, and nobody waits longer than LOCKED seconds for a row that it has locked.
HUNG, LOCKED = 20.0, 2.0

PATIENCE, SOON = 3.0, 0.05  # seconds in which the session of a process that was killed may end, and between two tries

# What is answered must be on the disk of the server. All values but "off" see to that; those that also wait for other
# servers are left alone. As a value of the session it stays when the configuration is read again.
_DURABLE = (
    "SELECT set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, "
    "false)"
)

_AT_ONCE = 5_000  # rows that a cursor brings
_ALL_OF = "SELECT * FROM "
_EVENT_TYPES = "bigint bigint text bigint float8 float8 float8 bytea int2 int2 bigint float8 int2 bytea bytea"
_SETTLED_TYPES = "bigint bigint bytea int2 int2 bigint float8"
_STREAM_TYPES = "bigint text" + 8 * " bigint" + " float8 float8 float8 float8 int2 float8 float8"
_SETTLED = f" AS new ({', '.join(SETTLED_COLUMNS)}) WHERE {SETTLED}"
_UNCHANGED = (
    f" AS new ({', '.join(STREAM_COLUMNS)}) WHERE stream.number = new.number AND stream.version = new.version - 1"
)
_FORGET_NAMES, _FORGOTTEN = (
    "DELETE FROM name USING ",
    " AS w (stream, word) WHERE name.stream = w.stream AND name.word = w.word",
)
_END_ALARMS, _ENDED = (
    "UPDATE alarm SET ended = w.ended FROM ",
    " AS w (ended, stream, what) WHERE alarm.stream = w.stream AND alarm.what = w.what AND alarm.ended IS NULL",
)
_ROLLUP_TYPES = "bigint bigint int2 int2" + 5 * " float8"

# ---- arrays as PostgreSQL reads them: psycopg would make them number by number in Python, at a third of a group's time

_NUMBERS = {"bigint": (20, ">i8"), "int2": (21, ">i2"), "float8": (701, ">f8")}  # type -> its number, and how it lies
_BYTES = {"bytea": 17, "text": 25}
_SIZE, _ARRAY, _NULL = Struct(">i"), Struct(">iiIii"), b"\xff\xff\xff\xff"


class PackedArray(NamedTuple):
    """An array in the binary format of PostgreSQL."""

    content: bytes


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        """As it is."""
        return bytes(obj.content)


def packed_array(kind: str, column: Sequence[Any]) -> PackedArray:
    """A column as an array; None is NULL.

    >>> packed_array("int2", [1, None]).content[20:].hex(" ", 2)
    '0000 0002 0001 ffff ffff'
    """
    has_null = None in column
    if kind in _BYTES:
        number = _BYTES[kind]
        parts = [None if part is None else part.encode() for part in column] if kind == "text" else column
        cells = [_NULL if part is None else _SIZE.pack(len(part)) + part for part in parts]
        content = b"".join(cells)
    else:
        number, form = _NUMBERS[kind]
        table = np.empty(len(column), dtype=[("size", ">i4"), ("value", form)])
        table["size"] = table.dtype["value"].itemsize
        table["value"] = [0 if part is None else part for part in column] if has_null else column
        content = table.tobytes()
        if has_null:
            size = table.itemsize
            content = b"".join(
                [_NULL if part is None else content[at * size : (at + 1) * size] for at, part in enumerate(column)]
            )
    return PackedArray(_ARRAY.pack(1, int(has_null), number, len(column), 1) + content)


class PostgresConnection:
    """A connection with the few calls that everything but the writing of groups needs."""

    outages: tuple[type[Exception], ...] = (psycopg.OperationalError, psycopg.InterfaceError)

    types: ClassVar[dict[str, str]] = {
        "text": 'TEXT COLLATE "C"',
        "whole": "BIGINT",
        "small": "SMALLINT",
        "float": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "number": "BIGINT GENERATED BY DEFAULT AS IDENTITY",
        "clustered": "",
    }

    def __init__(self, url: str) -> None:
        try:
            given: dict[str, Any] = {**_ALIVE, **conninfo_to_dict(url)}
        except psycopg.Error:  # whose text may have the password in it
            raise InvalidInput(
                "store must be an address that PostgreSQL can read, postgresql://USER:PASSWORD@HOST/DATABASE, got one "
                "that it cannot: marks such as % / @ in a password are written %25 %2F %40"
            ) from None
        try:
            self.database = psycopg.connect(**given, autocommit=True, prepare_threshold=2)
            self.database.adapters.register_dumper(PackedArray, _PackedDumper)
            self.database.execute(_DURABLE)
            self._cursors = 0
        except psycopg.Error as error:
            kind = InvalidInput if _is_refused(str(error)) else StoreAway
            raise kind(f"store must be a PostgreSQL that answers, got: {error}") from error

    def all(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.database.execute(_marked(statement), arguments, binary=True).fetchall()

    def each(self, statement: str, arguments: Any = ()) -> Iterator[tuple[Any, ...]]:
        """The same, some at a time, inside a transaction; other statements may be run meanwhile."""
        self._cursors += 1
        with self.database.cursor(name=f"each_{self._cursors}") as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(_marked(statement), arguments)
            yield from cursor

    def run(self, statement: str, arguments: Any = ()) -> int:
        """Run a statement -> how many rows it changed."""
        return self.database.execute(_marked(statement), arguments).rowcount

    def run_many(self, statement: str, arguments: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement with many sets of arguments."""
        with self.database.cursor() as cursor:
            cursor.executemany(_marked(statement), list(arguments))

    def tables(self) -> set[str]:
        """The names of the tables that are there."""
        return {name for (name,) in self.all("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.database.execute("BEGIN")

    def begin_reading(self) -> None:
        """Everything that is read from now on is of one moment."""
        self.database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def try_lock(self, number: int) -> bool:
        """Whether no other process makes this stream anew; from now on this session does."""
        return bool(self.all("SELECT pg_try_advisory_lock(?)", (_REWORK + number,))[0][0])

    def commit(self) -> None:
        """On the disk when this returns."""
        self.database.execute("COMMIT")

    def rollback(self) -> None:
        """As if nothing had happened since `begin`."""
        self.database.execute("ROLLBACK")

    def interrupt(self) -> None:
        """End the statement that runs now, from another thread."""
        self.database.cancel_safe(timeout=5.0)

    def version(self) -> int:
        """A number that changes with every commit, whoever makes it."""
        text = self.all("SELECT pg_current_snapshot()::text")[0][0]
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")

    def integrity(self) -> list[str]:
        """PostgreSQL looks after its own files (pg_amcheck)."""
        return []

    def size(self) -> int:
        """Bytes of the database."""
        return int(self.all("SELECT pg_database_size(current_database())")[0][0])

    def own(self) -> None:
        """Take exclusive use of the store, or raise `InvalidInput`."""
        if not self.lock_use(shared=False):
            raise InvalidInput("store must not be in use for this, got one that a service writes - stop it first")

    def lock_use(self, *, shared: bool) -> bool:
        """Try to use the store, with others or alone -> whether it may be used.

        A session that has ended may keep its lock for a moment, so this waits a little.
        """
        statement = f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}(?)"
        end = time.monotonic() + PATIENCE
        while not self.all(statement, (_USED,))[0][0]:
            if time.monotonic() > end:
                return False
            time.sleep(SOON)
        return True

    def close(self) -> None:
        """Close it."""
        self.database.close()


# What a server says that will let us in later. libpq gives no code for a connection that was not made, only words.
_LATER = ("starting up", "shutting down", "recovery", "too many", "not yet accepting", "slots are reserved")


def _is_refused(message: str) -> bool:
    """Whether a server has answered, and a further try is of no use: a wrong password, no such database.

    >>> _is_refused('FATAL:  database "x" does not exist'), _is_refused("FATAL:  the database system is starting up")
    (True, False)
    >>> _is_refused("connection refused")
    False
    """
    return "FATAL:" in message and not any(words in message for words in _LATER)


def without_password(url: str) -> str:
    """An address as it may be printed: user, hosts and database, as PostgreSQL itself reads them.

    >>> without_password("postgresql://a:1,[::1]:2/db?user=me&password=x"), without_password("postgresql://me:%@h/db")
    ('postgresql://me@a:1,[::1]:2/db', 'postgresql://...')
    """
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        return "postgresql://..."
    hosts, ports = (found.get(name, "").split(",") for name in ("host", "port"))
    places = [
        (f"[{host}]" if ":" in host else quote(host)) + (f":{port}" if port else "")
        for host, port in zip_longest(hosts, ports, fillvalue="")
        if not host.startswith("/")  # a folder with a socket
    ]
    user = quote(found["user"]) + "@" if "user" in found else ""
    return f"postgresql://{user}{','.join(places)}/{quote(found.get('dbname', ''))}"


def _marked(statement: str) -> Any:
    return statement.replace("?", "%s")


@contextmanager
def _unless_locked() -> Iterator[None]:
    """Say it in our own words when a row stays locked."""
    try:
        yield
    except errors.LockNotAvailable as error:
        raise StoreBusy("rows must be free to be written, got one that another process holds locked") from error


class PostgresStore(Store):
    """The store as one process of several uses it."""

    # Of the session, the server or its disk. Errors of data and statements are faults of ours, and end no session.
    failures: tuple[type[Exception], ...] = (*PostgresConnection.outages, psycopg.InternalError, OSError, Overtaken)
    is_server = True
    retries: tuple[type[Exception], ...] = (
        errors.UniqueViolation,  # another process made the same stream or event at the same time
        errors.DeadlockDetected,
        errors.SerializationFailure,
        Overtaken,
    )
    one_of = "= ANY(?)"

    def __init__(self, url: str) -> None:
        self.connection = PostgresConnection(url)
        self._run = self.connection.database.execute
        try:
            self._set("idle_in_transaction_session_timeout", HUNG)
            with self._alone():
                self.is_new = schema.create_tables(self.connection, "PostgreSQL")
            self._use()
            self._run(_ALIVE_THERE)
            self._set("lock_timeout", LOCKED)  # for groups
        except BaseException:
            self.connection.close()
            raise

    def _set(self, name: str, seconds: float) -> None:
        self._run("SELECT set_config(%s, %s, false)", (name, f"{seconds * 1000:.0f}ms"))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A transaction that only one session has at a time."""
        self.connection.begin()
        self._run("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
        yield
        self.connection.commit()

    def _use(self) -> None:
        """Say that a service writes here, so that no command rewrites the store meanwhile."""
        if not self.connection.lock_use(shared=True):
            raise InvalidInput("store must not be in the hands of a command, got one that is being rewritten")

    # ---- one group --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A group begins with its locks: `streams`."""

    def streams(self, names: Collection[str], cached: dict[str, StreamState]) -> dict[str, StreamState]:
        """Lock the streams of these names, in their order; give those that memory does not have as they are now."""
        with _unless_locked():
            return self._streams(names, cached)

    def _streams(self, names: Collection[str], cached: dict[str, StreamState]) -> dict[str, StreamState]:
        self.connection.begin()
        rows = self._run(
            "SELECT name, number, version FROM stream WHERE name = ANY(%s) ORDER BY name FOR UPDATE", (list(names),)
        ).fetchall()
        found = {name: (number, version) for name, number, version in rows}
        wanted = []
        for name in names:
            known = cached.get(name)
            if known is not None and found.get(name) != (known.number, known.version):
                del cached[name]
            if name in found and name not in cached:
                wanted.append(name)
        return self.read_streams(wanted) if wanted else {}

    def create(self, names: Collection[str]) -> dict[str, int]:
        """Make rows for new streams of these names -> their numbers. `write` fills them.

        A process that makes a stream has all locks of its group. So it can only wait for others that make streams, and
        all make them in the order of the names: no two wait for each other. Python orders text by code point, as the
        collation "C" does.
        """
        with _unless_locked():
            rows = self._run(
                "INSERT INTO stream (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING "
                "RETURNING name, number",
                (sorted(names),),
            ).fetchall()
        if len(rows) < len(names):
            raise Overtaken(f"streams must be new, got {len(names) - len(rows)} that others have made meanwhile")
        return dict(rows)

    def as_list(self, values: Collection[Any]) -> list[Any]:
        """A list as an argument of `one_of`."""
        return list(values)

    def of_ids(self, columns: str, ids: Sequence[tuple[int, str]], more: str = "") -> list[TableRow]:
        """Columns of the events `e` that have these streams and ids; `more` stands behind the tables."""
        return self.connection.all(
            f"SELECT {columns} FROM unnest(?::bigint[], ?::text[]) AS w (stream, id) "  # noqa: S608 - our own text
            f"JOIN event e ON e.stream = w.stream AND e.id = w.id {more}",
            [
                packed_array(kind, column)
                for kind, column in zip(("bigint", "text"), zip(*ids, strict=True), strict=True)
            ],
        )

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """Everything that a group changes, in one go: the server works while the next statement is made."""
        with _unless_locked(), self.connection.database.pipeline() as self._pipeline:
            self._many(INSERT_EVENTS + _ALL_OF, rows["event"], _EVENT_TYPES)
            self._many(SETTLE_EVENTS, rows["settled"], _SETTLED_TYPES, _SETTLED)
            written = self._many(UPDATE_STREAMS, rows["stream"], _STREAM_TYPES, _UNCHANGED)
            self._many(INSERT_BODIES + _ALL_OF, rows["body"], "bigint bytea bytea bytea bytea", OR_BODY)
            self._many(INSERT_ROLLUPS + _ALL_OF, rows["rollup"], _ROLLUP_TYPES, ADD_TO_ROLLUPS)
            self._many(_END_ALARMS, rows["ended"], "float8 bigint text", _ENDED)
            self._many(INSERT_ALARMS + _ALL_OF, rows["alarm"], "bigint float8 bigint float8 text int2 int2 text float8")
            self._many(INSERT_CORRECTIONS + _ALL_OF, rows["correction"], "bigint bigint int2 float8 int2")
            self._many(INSERT_SAID + _ALL_OF, rows["said"], "bigint bigint float8 int2 float8 bytea")
            self._many(INSERT_SHAPES + _ALL_OF, rows["shape"], "bigint text", OR_SHAPE)
            self._many(INSERT_CELLS + _ALL_OF, rows["cell"], "bigint int2 bigint bytea", OR_CELL)
            self._many(INSERT_NAMES + _ALL_OF, rows["name"], "bigint bigint bigint text", OR_NAME)
            self._many(_FORGET_NAMES, rows["forgotten"], "bigint bigint", _FORGOTTEN)
        check_written(0 if written is None else written.rowcount, len(rows["stream"]))

    def alone(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """Run a statement as a group of its own."""
        with _unless_locked():
            self.connection.run(statement, arguments)

    def _many(self, head: str, rows: list[tuple[Any, ...]], types: str, tail: str = "") -> Any:
        """One statement for all rows, a column each as an array -> its cursor; None without rows."""
        if not rows:
            return None
        kinds = types.split()
        arrays = ", ".join(f"%b::{kind}[]" for kind in kinds)
        columns = [packed_array(kind, column) for kind, column in zip(kinds, zip(*rows, strict=True), strict=True)]
        cursor = self._run(f"{head}unnest({arrays}){tail}", columns)
        self._sync()
        return cursor

    def _sync(self) -> None:
        """Tell the session to go on: only then it counts as idle, see HUNG.

        All of a statement is sent first. A pipeline of psycopg waits for the answer also if it has sent only as much as
        the socket took, and then both sides would wait for ever.
        """
        database = self.connection.database
        database.wait(send(database.pgconn))
        self._pipeline.sync()
