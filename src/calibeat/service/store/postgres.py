"""The store in PostgreSQL. One process writes it, others stand by: see `lease`. Every group begins with the lease."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from struct import Struct
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

import numpy as np

from calibeat._util.extras import missing
from calibeat.errors import InvalidInput

from . import lease, schema
from .types import (
    ADD_TO_ROLLUPS,
    INSERT_ALARMS,
    INSERT_BODIES,
    INSERT_CELLS,
    INSERT_EVENTS,
    INSERT_NAMES,
    INSERT_OPS,
    INSERT_RECEIPTS,
    INSERT_ROLLUPS,
    INSERT_SHAPES,
    INSERT_STREAMS,
    OR_BODY,
    OR_CELL,
    OR_NAME,
    OR_SHAPE,
    SETTLE_EVENTS,
    SETTLED,
    SETTLED_COLUMNS,
    STREAM_COLUMNS,
    Store,
    StoreAway,
    TableRow,
    assigned,
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

_CREATING = 0x63616C69_00000002  # an advisory lock, which a session loses when it ends, however it ends

# A machine that is gone without a word is noticed within 20 seconds, on both sides, unless the address says otherwise.
_ALIVE = {
    "keepalives_idle": 8,
    "keepalives_interval": 4,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "connect_timeout": 5,
}
_ALIVE_THERE = "SET tcp_keepalives_idle = 8; SET tcp_keepalives_interval = 4; SET tcp_keepalives_count = 3"

# A leader that hangs in the middle of a group, such as a process that was stopped, still holds the row of the lease:
# PostgreSQL ends its session after HUNG seconds. And no group waits longer than LOCKED seconds for a row that somebody
# else has locked, such as a person.
HUNG, LOCKED = 5.0, 2.0

# What is answered must be on the disk of the server. All values but "off" see to that; those that also wait for other
# servers are left alone. As a value of the session it stays when the configuration is read again.
# And statements are planned each time: a plan that was made when the tables were empty looks for every event among all
# of its stream, until PostgreSQL analyzes the tables.
_SESSION = (
    "SELECT set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, "
    "false), set_config('plan_cache_mode', 'force_custom_plan', false)"
)

_AT_ONCE = 5_000  # rows that a cursor brings
_ALL_OF = "SELECT * FROM "
_OP_TYPES = "bigint bigint int2 bigint text float8 float8 float8 float8 bytea bytea bigint float8 bigint bytea"
_EVENT_TYPES = "bigint bigint text bigint float8 int2 bigint float8 bigint float8 bigint bytea"
_SETTLED_TYPES = "bigint bigint int2 bigint float8 bigint float8 bigint bytea"
_RECEIPT_TYPES = "bigint bigint bigint bytea bytea int2 bigint float8 bigint float8"
_STREAM_TYPES = (
    "bigint text text bigint bigint bigint bigint bigint bigint float8 float8 float8 float8 int2 bigint bigint bigint "
    "float8 float8 float8"
)
_SPEND, _SPENT = (
    "DELETE FROM receipt USING ",
    (
        " AS w (stream, version, nth) WHERE receipt.stream = w.stream AND receipt.version = w.version "
        "AND receipt.nth = w.nth"
    ),
)
_SETTLED = f" AS new ({', '.join(SETTLED_COLUMNS)}) WHERE {SETTLED}"
_OR_STREAM = f" ON CONFLICT (number) DO UPDATE SET {assigned(STREAM_COLUMNS[1:], 'excluded')}"
_FORGET_NAMES, _FORGOTTEN = (
    "DELETE FROM name USING ",
    " AS w (stream, word) WHERE name.stream = w.stream AND name.word = w.word",
)
_END_ALARMS, _ENDED = (
    "UPDATE alarm SET ended = w.ended FROM ",
    " AS w (ended, stream, what) WHERE alarm.stream = w.stream AND alarm.what = w.what AND alarm.ended IS NULL",
)
_ROLLUP_TYPES = "bigint bigint int2 int2" + 6 * " float8"

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
    faults: tuple[type[Exception], ...] = (psycopg.Error,)  # such as a page that cannot be read

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
            self.database.execute(_SESSION)
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


class PostgresStore(Store):
    """The store as the process that leads uses it."""

    # Of the session, the server or its disk. Errors of data and statements are faults of ours, and end no session.
    failures: tuple[type[Exception], ...] = (*PostgresConnection.outages, psycopg.InternalError, OSError)
    is_server = True
    one_of = "= ANY(?)"

    def __init__(self, url: str, epoch: int = -1) -> None:
        self.connection = PostgresConnection(url)
        self._run = self.connection.database.execute
        self.lease = lease.Lease(epoch)
        try:
            self._set("idle_in_transaction_session_timeout", HUNG)
            with self._alone():
                self.is_new = schema.create_tables(self.connection, "PostgreSQL")
                lease.make(self.connection)
            self.lease.take(self.connection)
            self.epoch = self.lease.epoch
            self._run(_ALIVE_THERE)
            self._set("lock_timeout", LOCKED)  # for groups
        except errors.ReadOnlySqlTransaction as error:  # such as a replica that is about to be the first server
            self.connection.close()
            raise StoreAway(f"store must be a PostgreSQL that can be written, got: {error}") from error
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

    # ---- one group --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a group: from here to its end nobody else can take the lease."""
        self.connection.begin()
        self.lease.check(self.connection)

    def commit(self) -> None:
        """On the disk when this returns."""
        self.lease.renew(self.connection)
        self.connection.commit()

    def stay(self) -> None:
        """Renew the lease while nothing is written."""
        if self.lease.is_due:
            self.begin()
            self.commit()

    def as_list(self, values: Collection[Any]) -> list[Any]:
        """A list as an argument of `one_of`."""
        return list(values)

    def of_ids(self, columns: str, ids: Sequence[tuple[int, Any]], more: str = "", by: str = "id") -> list[TableRow]:
        """Columns of the events `e` that have these streams and ids (or numbers); `more` stands behind the tables."""
        kinds = "bigint", "text" if by == "id" else "bigint"
        return self.connection.all(
            f"SELECT {columns} FROM unnest(?::bigint[], ?::{kinds[1]}[]) AS w (stream, {by}) "  # noqa: S608
            f"JOIN event e ON e.stream = w.stream AND e.{by} = w.{by} {more}",
            [packed_array(kind, column) for kind, column in zip(kinds, zip(*ids, strict=True), strict=True)],
        )

    def append(self, ops: list[TableRow]) -> None:
        """Add operations to the log."""
        with self.connection.database.pipeline() as self._pipeline:
            self._many(INSERT_OPS + _ALL_OF, ops, _OP_TYPES)

    def add_receipts(self, rows: list[TableRow]) -> None:
        """Receipts of a stream, with their version."""
        with self.connection.database.pipeline() as self._pipeline:
            self._many(INSERT_RECEIPTS + _ALL_OF, rows, _RECEIPT_TYPES)

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """What follows of some operations, in one go: the server works while the next statement is made."""
        with self.connection.database.pipeline() as self._pipeline:
            self._many(INSERT_EVENTS + _ALL_OF, rows["event"], _EVENT_TYPES)
            self._many(SETTLE_EVENTS, rows["settled"], _SETTLED_TYPES, _SETTLED)
            self._many(INSERT_RECEIPTS + _ALL_OF, rows["receipt"], _RECEIPT_TYPES)
            self._many(_SPEND, rows["spent"], "bigint bigint bigint", _SPENT)
            self._many(INSERT_STREAMS + _ALL_OF, rows["stream"], _STREAM_TYPES, _OR_STREAM)
            self._many(INSERT_BODIES + _ALL_OF, rows["body"], "bigint bytea bytea bytea bytea", OR_BODY)
            self._many(INSERT_ROLLUPS + _ALL_OF, rows["rollup"], _ROLLUP_TYPES, ADD_TO_ROLLUPS)
            self._many(_END_ALARMS, rows["ended"], "float8 bigint text", _ENDED)
            self._many(INSERT_ALARMS + _ALL_OF, rows["alarm"], "bigint float8 bigint float8 text int2 int2 text float8")
            self._many(INSERT_SHAPES + _ALL_OF, rows["shape"], "bigint text", OR_SHAPE)
            self._many(INSERT_CELLS + _ALL_OF, rows["cell"], "bigint int2 bigint bytea", OR_CELL)
            self._many(INSERT_NAMES + _ALL_OF, rows["name"], "bigint bigint bigint text", OR_NAME)
            self._many(_FORGET_NAMES, rows["forgotten"], "bigint bigint", _FORGOTTEN)

    def close(self) -> None:
        """Let another process lead, and close it."""
        try:
            with suppress(*self.failures):  # then the lease ends by itself
                self.rollback()
                self.lease.release(self.connection)
        finally:
            self.connection.close()

    def _many(self, head: str, rows: list[tuple[Any, ...]], types: str, tail: str = "") -> None:
        """One statement for all rows, a column each as an array."""
        if not rows:
            return
        kinds = types.split()
        arrays = ", ".join(f"%b::{kind}[]" for kind in kinds)
        columns = [packed_array(kind, column) for kind, column in zip(kinds, zip(*rows, strict=True), strict=True)]
        self._run(f"{head}unnest({arrays}){tail}", columns)
        self._sync()

    def _sync(self) -> None:
        """Tell the session to go on: only then it counts as idle, see HUNG.

        All of a statement is sent first. A pipeline of psycopg waits for the answer also if it has sent only as much as
        the socket took, and then both sides would wait for ever.
        """
        database = self.connection.database
        database.wait(send(database.pgconn))
        self._pipeline.sync()
