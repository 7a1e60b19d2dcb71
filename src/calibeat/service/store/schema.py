"""The tables, the same for SQLite and PostgreSQL; and what the store knows of itself."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from calibeat.errors import SnapshotMismatch
from calibeat.service.ops import DELETE

VERSION = 5
# The words in braces are the types of the two databases.
_TABLES = (
    "CREATE TABLE meta (name {text} PRIMARY KEY, value TEXT NOT NULL)",
    # The log, the one truth: see `ops`. A stream finds its operations by those of its events, and by this index.
    """CREATE TABLE op (
            position {whole} PRIMARY KEY, stream {whole} NOT NULL, kind {small} NOT NULL, nth {whole} NOT NULL,
            id {text}, at {float} NOT NULL, time {float}, x {float}, told {float}, given {bytes}, issued {bytes},
            corrects {whole}, weight {float}, trials {whole}, band {bytes})""",
    "CREATE INDEX op_other ON op (stream, position) WHERE kind > 1",
    "CREATE INDEX op_wrong ON op (stream, position) WHERE kind IN (6, 7)",  # CORRECT, FORGET
    # Where the replay of a stream begins that was pruned, copied or imported, or of which events were forgotten: its
    # counts and its state behind the operation `position`. Receipts of events that were open then have this version.
    """CREATE TABLE base (
            stream {whole} PRIMARY KEY, position {whole} NOT NULL, events {whole} NOT NULL, outcomes {whole} NOT NULL,
            expired {whole} NOT NULL, receipts {whole} NOT NULL, mode {small} NOT NULL, sums {bytes} NOT NULL,
            state {bytes}, monitor {bytes})""",
    # All tables from here to `rollup` are made of the log, up to the position `flushed` in meta.
    """CREATE TABLE stream (
            number {whole} PRIMARY KEY, name {text} NOT NULL UNIQUE, key {text},
            events {whole} NOT NULL DEFAULT 0, outcomes {whole} NOT NULL DEFAULT 0, pending {whole} NOT NULL DEFAULT 0,
            held {whole} NOT NULL DEFAULT 0, expired {whole} NOT NULL DEFAULT 0, alarms {whole} NOT NULL DEFAULT 0,
            last_time {float}, error {float}, raw_error {float}, deadline {float}, mode {small} NOT NULL DEFAULT 0,
            base {whole} NOT NULL DEFAULT 0, applied {whole} NOT NULL DEFAULT 0, receipts {whole} NOT NULL DEFAULT 0,
            raw_log_loss {float} NOT NULL DEFAULT 0, log_loss {float} NOT NULL DEFAULT 0,
            weights {float} NOT NULL DEFAULT 0)""",
    "CREATE INDEX stream_mode ON stream (mode) WHERE mode <> 0",
    # What a stream knows. It has a table of its own because databases write long rows with many columns slowly.
    """CREATE TABLE body (
            stream {whole} PRIMARY KEY, sums {bytes}, state {bytes}, monitor {bytes}, notice {bytes})""",
    """CREATE TABLE event (
            stream {whole} NOT NULL, nth {whole} NOT NULL, id {text} NOT NULL, position {whole} NOT NULL,
            time {float} NOT NULL, status {small} NOT NULL, outcome {whole}, weight {float}, trials {whole},
            outcome_time {float}, learnt {whole}, own {bytes}, PRIMARY KEY (stream, nth),
            UNIQUE (stream, id)){clustered}""",
    # Of forecasts whose outcome may still come. Those of the state of a stream have the version `stream.receipts`.
    """CREATE TABLE receipt (
            stream {whole} NOT NULL, version {whole} NOT NULL, nth {whole} NOT NULL, receipt {bytes} NOT NULL,
            own {bytes}, status {small}, outcome {whole}, weight {float}, trials {whole}, outcome_time {float},
            PRIMARY KEY (stream, version, nth)){clustered}""",
    # What a stream is, where it is more than one score: see `Shape`; its groups: cells as they are now and at the base
    # of replays, and the values of words.
    "CREATE TABLE shape (stream {whole} PRIMARY KEY, text TEXT NOT NULL)",
    """CREATE TABLE cell (
            stream {whole} NOT NULL, is_base {small} NOT NULL, slot {whole} NOT NULL, held {bytes} NOT NULL,
            PRIMARY KEY (stream, is_base, slot)){clustered}""",
    """CREATE TABLE name (
            stream {whole} NOT NULL, word {whole} NOT NULL, number {whole} NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (stream, word)){clustered}""",
    "CREATE INDEX event_own ON event (stream, nth) WHERE own IS NOT NULL",
    "CREATE INDEX event_pending ON event (time) WHERE status = 0",
    "CREATE INDEX event_pending_of ON event (stream, time) WHERE status = 0",
    "CREATE INDEX event_held ON event (time) WHERE status = 1",
    "CREATE INDEX event_waiting ON event (stream, outcome_time, nth) WHERE status = 5",
    """CREATE TABLE rollup (
            stream {whole} NOT NULL, hour {whole} NOT NULL, kind {small} NOT NULL, tenth {small} NOT NULL,
            forecasts {float} NOT NULL, outcomes {float} NOT NULL, sum_p {float} NOT NULL, sum_y {float} NOT NULL,
            log_loss {float} NOT NULL, weight {float} NOT NULL, PRIMARY KEY (stream, hour, kind, tenth)){clustered}""",
    """CREATE TABLE alarm (
            number {number} PRIMARY KEY, stream {whole} NOT NULL, time {float} NOT NULL, at {whole} NOT NULL,
            since {float} NOT NULL, what TEXT NOT NULL, page {small} NOT NULL, delivered {small} NOT NULL DEFAULT 0,
            message {whole}, ended {float}, acknowledged {float}, acknowledged_by TEXT,
            part {small} NOT NULL DEFAULT 0, detail TEXT)""",
    "CREATE INDEX alarm_waiting ON alarm (page DESC, number) WHERE delivered = 0",
    "CREATE INDEX alarm_sent ON alarm (message) WHERE delivered = 1",
    "CREATE INDEX alarm_open ON alarm (stream, what) WHERE ended IS NULL",
    "CREATE INDEX alarm_time ON alarm (time)",
    "CREATE INDEX alarm_of ON alarm (stream, time)",
    # When no service listened: that is no silence of the streams.
    "CREATE TABLE downtime (begun {float} NOT NULL, ended {float} NOT NULL)",
    "CREATE TABLE mute (streams {text} PRIMARY KEY, until {float}, created {float} NOT NULL)",
    """CREATE TABLE token (
            name {text} PRIMARY KEY, scope TEXT NOT NULL, hash TEXT NOT NULL, created {float} NOT NULL,
            revoked {float}, streams TEXT NOT NULL DEFAULT '[]', expires {float})""",
)
_NAMES = {statement.split()[2] for statement in _TABLES if statement.startswith("CREATE TABLE")}


class Connection(Protocol):
    """A connection, as far as this file needs it. Statements have question marks for their arguments."""

    types: ClassVar[dict[str, str]]

    def all(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""

    def run(self, statement: str, arguments: Any = ()) -> int:
        """Run a statement -> how many rows it changed."""

    def tables(self) -> set[str]:
        """The names of the tables that are there."""


def create_tables(connection: Connection, where: str) -> bool:
    """Make the tables of an empty database, inside a transaction of the caller -> whether it was empty.

    Raises
    ------
    SnapshotMismatch : the store is of another version or lacks a table, or the database is not one of calibeat.
    """
    present = version_of(connection, where)
    if present == 0:
        for statement in _TABLES:
            connection.run(statement.format_map(connection.types))
        set_meta(connection, "schema", str(VERSION))
    elif present != VERSION:
        raise SnapshotMismatch(
            f"store must be of version {VERSION}, got version {present} - at {where}: use the calibeat that made it"
        )
    elif missing := _NAMES - connection.tables():
        raise SnapshotMismatch(
            f"store must have the table {min(missing)}, got none - at {where}: use the calibeat that made it"
        )
    return present == 0


def check_version(connection: Connection, where: str) -> None:
    """Raise unless the store is of this version.

    Raises
    ------
    SnapshotMismatch : it is of another one, or a database of something else.
    """
    if (found := version_of(connection, where)) != VERSION:
        raise SnapshotMismatch(
            f"store must be of version {VERSION}, got version {found} - at {where}: use the calibeat that made it"
        )


def version_of(connection: Connection, where: str) -> int:
    """The version of the tables; 0 for an empty database. A database of something else is refused."""
    tables = connection.tables()
    if not tables:
        return 0
    found = connection.all("SELECT value FROM meta WHERE name = 'schema'") if "meta" in tables else []
    if not found:
        raise SnapshotMismatch(f"store must be a database of calibeat, got one of something else - at {where}")
    return int(found[0][0])


def get_meta(connection: Connection) -> dict[str, str]:
    """What the store knows of itself: method, seed, and how it was changed."""
    return {str(name): str(value) for name, value in connection.all("SELECT name, value FROM meta")}


def last_stream(connection: Connection) -> int:
    """The last number that a stream got, also one that was deleted since: none is given twice."""
    ((last,),) = connection.all(
        "SELECT max(number) FROM (SELECT coalesce(max(number), 0) AS number FROM stream UNION ALL "  # noqa: S608
        f"SELECT coalesce(max(nth), 0) FROM op WHERE stream = 0 AND kind > 1 AND kind = {DELETE}) numbers"
    )
    return int(last)


def last_position(connection: Connection) -> int:
    """The last position that an operation got, also where it was pruned or deleted since: none is given twice."""
    written = int(get_meta(connection).get("flushed", "0"))
    return max(written, connection.all("SELECT coalesce(max(position), 0) FROM op")[0][0])


def set_meta(connection: Connection, name: str, value: str) -> None:
    """Write one of them."""
    connection.run(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )
