"""The embedded store: one SQLite file, written by one process, with a write-ahead log and a sync of every commit."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from calibeat.errors import CalibeatError, InvalidInput, SnapshotMismatch

from . import ranking, schema, totals
from .ownership import Ownership
from .records import Record, Rows, StreamState, weighted

BUSY = 10.0  # seconds to wait for a token command that writes
EVENT_COLUMNS = "stream, nth, id, seq, time, score, forecast, receipt, status, outcome"
RECORD_COLUMNS = EVENT_COLUMNS + ", outcome_time"  # of a `Record`
STREAM_COLUMNS = "number, name, seq, events, outcomes, pending, held, expired, alarms, version, last_time, "
STREAM_COLUMNS += "error, raw_error, base_seq, sums, state, monitor"
WAITING = "SELECT e.id, c.outcome FROM event e JOIN correction c ON c.stream = e.stream AND c.nth = e.nth"
_WRITER = 0  # of the totals: one process writes
_MOST_ARGUMENTS = 32_766  # in one statement of SQLite
_CHECKPOINT = 8_192  # pages of the write-ahead log, 32 MiB, before they go into the file: pages are written many times


class StoreGone(CalibeatError):
    """The file under the store was moved, replaced or deleted."""


class SqliteConnection:
    """A connection with the few calls that everything but the writing of groups needs."""

    types: ClassVar[dict[str, str]] = {
        "text": "TEXT",
        "whole": "INTEGER",
        "small": "INTEGER",
        "float": "REAL",
        "bytes": "BLOB",
        "number": "INTEGER",
        "clustered": " WITHOUT ROWID",
    }

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise FileNotFoundError(f"store must exist, got nothing - at {path}")
        mode = "ro" if read_only else "rwc"
        self.path = path
        try:
            self.database = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=BUSY,
                cached_statements=256,
            )
            self.database.execute("PRAGMA query_only = 1" if read_only else "PRAGMA synchronous = FULL")
            self.database.execute("PRAGMA cache_size = -65536")
            self.database.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.Error as error:
            raise _readable(error, path) from error

    def all(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.database.execute(statement, arguments).fetchall()

    def each(self, statement: str, arguments: Any = ()) -> Iterator[tuple[Any, ...]]:
        """The same, one by one."""
        return iter(self.database.execute(statement, arguments))

    def run(self, statement: str, arguments: Any = ()) -> int:
        """Run a statement -> how many rows it changed."""
        return self.database.execute(statement, arguments).rowcount

    def run_many(self, statement: str, arguments: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement with many sets of arguments."""
        self.database.executemany(statement, arguments)

    def tables(self) -> set[str]:
        """The names of the tables that are there."""
        return {name for (name,) in self.all("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.database.execute("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        """Everything that is read from now on is of one moment."""
        self.database.execute("BEGIN")

    def commit(self) -> None:
        """On the disk when this returns."""
        self.database.execute("COMMIT")

    def rollback(self) -> None:
        """As if nothing had happened since `begin`."""
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")

    def integrity(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        return [str(found) for (found,) in self.all("PRAGMA integrity_check") if found != "ok"]

    def size(self) -> int:
        """Bytes on the disk, with the write-ahead log."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def version(self) -> int:
        """A number that changes whenever another connection commits."""
        return int(self.all("PRAGMA data_version")[0][0])

    def close(self) -> None:
        """Close it."""
        self.database.close()


def _readable(error: sqlite3.Error, path: Path) -> CalibeatError:
    """What SQLite says of a file that it cannot use, as a sentence."""
    text = str(error)
    if "not a database" in text:
        return SnapshotMismatch(f"store must be an SQLite file of calibeat, got another file - at {path}")
    return InvalidInput(f"store must be a file that can be read and written, got: {text} - at {path}")


class SqliteStore:
    """The store that an engine owns: nobody else writes events to it as long as this object is open."""

    failures: tuple[type[Exception], ...] = (sqlite3.Error, OSError, StoreGone)
    retries: tuple[type[Exception], ...] = ()  # nobody else writes, so nothing is worth another try
    is_shared = False
    owner: Ownership | None = None  # one process has all streams

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _lock(path)
        try:
            self.connection = SqliteConnection(path)
            try:
                self._prepare()
            except sqlite3.Error as error:
                raise _readable(error, path) from error
            self._identity = _identity(path)
            found = self.connection.all("SELECT coalesce(max(number), 0) FROM stream")
            self._numbers = int(found[0][0])
        except BaseException:
            os.close(self._lock)
            raise

    def _prepare(self) -> None:
        run = self.connection.run
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        self.connection.begin()
        try:
            schema.migrate(self.connection, str(self.path))
            # A file that cannot be written is noticed now, not at the first event.
            schema.set_meta(self.connection, "opened", repr(time.time()))
            if not ranking.is_whole(self.connection):
                ranking.refresh(self.connection)
            run(totals.BEGIN, (_WRITER,))
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    # ---- one group --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a group."""
        if _identity(self.path) != self._identity:
            raise StoreGone(f"store must stay where it is while it is used, got another file or none - at {self.path}")
        self.connection.begin()

    def streams(self, names: Collection[str], cached: Mapping[str, StreamState]) -> dict[str, StreamState]:
        """The streams of these names that are there and not in memory."""
        wanted = [name for name in names if name not in cached]
        if not wanted:
            return {}
        rows = self.connection.all(
            f"SELECT {STREAM_COLUMNS} FROM stream WHERE name IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(wanted, ensure_ascii=False),),
        )
        return {state.name: state for state in map(stream_state, rows)}

    def create(self, names: Collection[str]) -> dict[str, int]:
        """Numbers for new streams of these names; `write` makes their rows."""
        first = self._numbers + 1
        self._numbers += len(names)
        return {name: first + at for at, name in enumerate(names)}

    def known(self, ids: Collection[str]) -> dict[str, Record]:
        """The events that are there already, by their id."""
        rows = self.connection.all(
            f"SELECT {RECORD_COLUMNS} FROM event WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608 - our own columns
            (json.dumps(list(ids), ensure_ascii=False),),
        )
        return {row[2]: Record(*row) for row in rows}

    def corrections(self, ids: Collection[str]) -> dict[str, int]:
        """The latest outcome of those of these events whose corrections wait for a replay, by their id."""
        ours = "IN (SELECT value FROM json_each(?))"
        asked = f"{WAITING} WHERE e.id {ours} AND c.applied = 0 ORDER BY c.number"
        return dict(self.connection.all(asked, (json.dumps(list(ids), ensure_ascii=False),)))

    def due(self, status: int, before: float, limit: int) -> list[tuple[str, Record]]:
        """Events of a status whose forecast was made at this time or before, the earliest first: (stream, event)."""
        columns = ", ".join(f"e.{column}" for column in RECORD_COLUMNS.split(", "))
        rows = self.connection.all(
            # The status stands in the text, not in an argument, so that the index over part of the table is used.
            f"SELECT s.name, {columns} FROM event e JOIN stream s ON s.number = e.stream "  # noqa: S608
            f"WHERE e.status = {int(status)} AND e.time <= ? ORDER BY e.time, e.stream, e.nth LIMIT ?",
            (before, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]

    def read_after(self, stream: int, nth: int) -> dict[int, tuple[float, float, float]]:
        """The learnt events of a stream after one of its forecasts: number -> (forecast, outcome, score)."""
        rows = self.connection.all(
            "SELECT nth, forecast, outcome, score FROM event WHERE stream = ? AND nth > ? AND outcome_seq IS NOT NULL",
            (stream, nth),
        )
        return {number: (forecast, float(outcome), score) for number, forecast, outcome, score in rows}

    def write(self, rows: Rows) -> None:
        """Everything that a group changes."""
        self._many(
            "INSERT INTO event (stream, nth, id, seq, time, score, forecast, receipt, status, outcome, outcome_seq, "
            "outcome_time) VALUES ",
            rows.inserted,
        )
        self._many(
            "WITH new (stream, nth, receipt, status, outcome, outcome_seq, outcome_time) AS (VALUES ",
            rows.settled,
            ") UPDATE event SET receipt = new.receipt, status = new.status, outcome = new.outcome, "
            "outcome_seq = new.outcome_seq, outcome_time = new.outcome_time "
            "FROM new WHERE event.stream = new.stream AND event.nth = new.nth",
        )
        self._many(
            "INSERT INTO stream (number, name, seq, events, outcomes, pending, held, expired, alarms, version, "
            "last_time, error, raw_error, sums, state, monitor) VALUES ",
            rows.streams,
            " ON CONFLICT (number) DO UPDATE SET seq = excluded.seq, events = excluded.events, "
            "outcomes = excluded.outcomes, pending = excluded.pending, held = excluded.held, "
            "expired = excluded.expired, alarms = excluded.alarms, version = excluded.version, "
            "last_time = excluded.last_time, error = excluded.error, raw_error = excluded.raw_error, "
            "sums = excluded.sums, state = excluded.state, monitor = excluded.monitor",
        )
        self._many(
            "INSERT INTO rollup (stream, hour, kind, tenth, forecasts, outcomes, sum_p, sum_y, log_loss) VALUES ",
            rows.rollups,
            " ON CONFLICT (stream, hour, kind, tenth) DO UPDATE SET forecasts = forecasts + excluded.forecasts, "
            "outcomes = outcomes + excluded.outcomes, sum_p = sum_p + excluded.sum_p, "
            "sum_y = sum_y + excluded.sum_y, log_loss = log_loss + excluded.log_loss",
        )
        self._many("INSERT INTO alarm (stream, time, at, since, what, page) VALUES ", rows.alarms)
        self._many("INSERT INTO correction (stream, nth, outcome, time) VALUES ", rows.corrections)
        if rows.totals is not None:
            self.connection.run(totals.ADD, (*rows.totals, _WRITER))

    def rank(self, numbers: Collection[int]) -> None:
        """Bring the places of some streams in the lists up to date."""
        which = "number IN (SELECT value FROM json_each(?))"
        self.connection.run(ranking.statement(which), (json.dumps(list(numbers)),))

    def all_ranked(self) -> None:
        """Say that the places of all streams that were written are up to date."""
        self.connection.run("UPDATE total SET unranked = 0 WHERE writer = ?", (_WRITER,))

    def commit(self) -> None:
        """On the disk when this returns."""
        self.connection.commit()

    def rollback(self) -> None:
        """As if the group had not been."""
        self.connection.rollback()

    def close(self) -> None:
        """Let go of the file; the write-ahead log goes into it."""
        self.connection.close()
        os.close(self._lock)

    def _many(self, head: str, rows: list[tuple[Any, ...]], tail: str = "") -> None:
        """One statement for many rows, in pieces of a power of two rows: few statements, and each is compiled once.

        A statement for each row would hand over the interpreter's lock as often as there are rows.
        """
        first, count = 0, len(rows)
        if not rows:
            return
        marks = "(" + ",".join("?" * len(rows[0])) + ")"
        most = 1 << ((_MOST_ARGUMENTS // len(rows[0])).bit_length() - 1)
        while first < count:
            size = min(most, 1 << ((count - first).bit_length() - 1))
            arguments = [value for row in rows[first : first + size] for value in row]
            self.connection.database.execute(head + ",".join([marks] * size) + tail, arguments)
            first += size


def stream_state(row: tuple[Any, ...]) -> StreamState:
    """The inverse, of the columns that an engine reads."""
    state = StreamState(row[0], row[1])
    state.seq, state.events, state.outcomes, state.pending, state.held, state.expired, state.alarms, state.version = (
        row[2:10]
    )
    state.last_time, state.errors, state.base_seq = row[10] or 0.0, (row[11], row[12]), row[13]
    state.weighted = weighted(state.errors, state.outcomes)
    state.sums, state.row = bytes(row[14]), bytes(row[15])
    state.monitor = None if row[16] is None else bytes(row[16])
    return state


def _lock(path: Path) -> int:
    """A lock that only one process has, and that goes with it, however it ends.

    It is on a file of its own: SQLite's own locks on the database would be lost if anybody here closed that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".lock")
    handle = os.open(beside, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InvalidInput(
            f"store must be used by one service at a time, got one that another process writes - at {path}"
        ) from None
    return handle


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
