"""The tables, the same for SQLite and PostgreSQL; and what the store knows of itself."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from calibeat.errors import SnapshotMismatch

VERSION = 4
# The words in braces are the types of the two databases.
_TABLES = (
    "CREATE TABLE meta (name {text} PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE stream (
            number {number} PRIMARY KEY, name {text} NOT NULL UNIQUE, seq {whole} NOT NULL DEFAULT 0,
            events {whole} NOT NULL DEFAULT 0, outcomes {whole} NOT NULL DEFAULT 0, pending {whole} NOT NULL DEFAULT 0,
            held {whole} NOT NULL DEFAULT 0, expired {whole} NOT NULL DEFAULT 0, alarms {whole} NOT NULL DEFAULT 0,
            version {whole} NOT NULL DEFAULT 0,
            last_time {float}, error {float}, raw_error {float}, deadline {float}, mode {small} NOT NULL DEFAULT 0,
            raw_log_loss {float} NOT NULL DEFAULT 0, log_loss {float} NOT NULL DEFAULT 0,
            origin {text}, since {whole} NOT NULL DEFAULT 0, watched_from {whole} NOT NULL DEFAULT 0,
            base_seq {whole} NOT NULL DEFAULT 0, base_events {whole} NOT NULL DEFAULT 0, base {bytes},
            base_monitor {bytes})""",
    "CREATE INDEX stream_mode ON stream (mode) WHERE mode <> 0",
    # What a stream knows. It has a table of its own because databases write long rows with many columns slowly.
    """CREATE TABLE body (
            stream {whole} PRIMARY KEY, sums {bytes}, state {bytes}, monitor {bytes}, notice {bytes})""",
    """CREATE TABLE event (
            stream {whole} NOT NULL, nth {whole} NOT NULL, id {text} NOT NULL, seq {whole} NOT NULL,
            time {float} NOT NULL, score {float} NOT NULL, forecast {float} NOT NULL, receipt {bytes},
            status {small} NOT NULL, outcome {small}, outcome_seq {whole}, outcome_time {float},
            named {small}, given {bytes}, issued {bytes}, PRIMARY KEY (stream, nth), UNIQUE (stream, id))""",
    # What a stream is, where it is more than one score: see `Shape`; its groups: cells as they are now and at the base
    # of replays, and the values of words.
    "CREATE TABLE shape (stream {whole} PRIMARY KEY, text TEXT NOT NULL)",
    """CREATE TABLE cell (
            stream {whole} NOT NULL, is_base {small} NOT NULL, slot {whole} NOT NULL, held {bytes} NOT NULL,
            PRIMARY KEY (stream, is_base, slot)){clustered}""",
    """CREATE TABLE name (
            stream {whole} NOT NULL, word {whole} NOT NULL, number {whole} NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (stream, word)){clustered}""",
    "CREATE INDEX event_pending ON event (time) WHERE status = 0",
    "CREATE INDEX event_pending_of ON event (stream, time) WHERE status = 0",
    "CREATE INDEX event_held ON event (time) WHERE status = 1",
    "CREATE INDEX event_waiting ON event (stream, outcome_time, nth) WHERE status = 5",
    """CREATE TABLE rollup (
            stream {whole} NOT NULL, hour {whole} NOT NULL, kind {small} NOT NULL, tenth {small} NOT NULL,
            forecasts {float} NOT NULL, outcomes {float} NOT NULL, sum_p {float} NOT NULL, sum_y {float} NOT NULL,
            log_loss {float} NOT NULL, PRIMARY KEY (stream, hour, kind, tenth)){clustered}""",
    """CREATE TABLE correction (
            number {number} PRIMARY KEY, stream {whole} NOT NULL, nth {whole} NOT NULL, outcome {small},
            time {float} NOT NULL, is_forgetting {small} NOT NULL DEFAULT 0, applied {small} NOT NULL DEFAULT 0)""",
    "CREATE INDEX correction_waiting ON correction (stream, nth) WHERE applied = 0",
    # What was done to a stream, in the order of its operations; `seq` is its number among them. The rest is in `verb`:
    # "retracted" is where an outcome was learnt that is unknown again, "forgotten" an event that is no longer here.
    """CREATE TABLE control (
            number {number} PRIMARY KEY, stream {whole} NOT NULL, seq {whole}, time {float} NOT NULL,
            verb TEXT NOT NULL, detail TEXT, nth {whole})""",
    "CREATE INDEX control_of ON control (stream, seq)",
    # What the method says of events for which something else was told: the score, or what a corrected state had said.
    """CREATE TABLE said (
            stream {whole} NOT NULL, nth {whole} NOT NULL, forecast {float} NOT NULL, named {small},
            score {float} NOT NULL, issued {bytes}, PRIMARY KEY (stream, nth)){clustered}""",
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
    # What groups were asked that are answered and not in the other tables yet: see `unwritten`.
    """CREATE TABLE journal (
            number {number} PRIMARY KEY, time {float} NOT NULL, requests {bytes} NOT NULL, told {bytes} NOT NULL,
            checksum {whole} NOT NULL)""",
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


def set_meta(connection: Connection, name: str, value: str) -> None:
    """Write one of them."""
    connection.run(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )
