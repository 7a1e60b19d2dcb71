"""The embedded store: one SQLite file, written by one process, with a write-ahead log and a sync of every commit."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import msgspec

from calibeat.errors import CalibeatError, InvalidInput, SnapshotMismatch
from calibeat.service.ops import FORECAST

from . import schema
from .types import (
    ADD_TO_ROLLUPS,
    END_ALARMS,
    FORGET_NAME,
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
    SPEND_RECEIPTS,
    STREAM_COLUMNS,
    Store,
    StoreBusy,
    StoreInUse,
    TableRow,
    assigned,
)

BUSY = 10.0  # seconds to wait for a token command that writes
LAST_READERS = 2.0  # seconds to wait, at the end, for those who are reading
COPIED_AT_ONCE = 4_096  # pages of a backup
_SETTLE, _SETTLED = f"WITH new ({', '.join(SETTLED_COLUMNS)}) AS (", f") {SETTLE_EVENTS}new WHERE {SETTLED}"
_OR_UPDATE = f" ON CONFLICT (number) DO UPDATE SET {assigned(STREAM_COLUMNS[1:], 'excluded')}"
_MOST_ARGUMENTS = 32_766  # in one statement of SQLite
_NOTHING = {None}
_CHECKPOINT = 8_192  # pages of the write-ahead log, 32 MiB, before they go into the file: pages are written many times

DAMAGED = "damaged"  # instead of the stamp of a file

_json = msgspec.json.encode
_log = logging.getLogger("calibeat.service")


class StoreGone(CalibeatError):
    """A file of the store was moved, replaced or deleted."""


class SqliteConnection:
    """A connection with the few calls that everything but the writing of groups needs."""

    outages: tuple[type[Exception], ...] = ()  # a file is never away for a while
    faults: tuple[type[Exception], ...] = (sqlite3.Error,)  # such as a page that cannot be read

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
            _create(path)  # SQLite gives its other files the same permissions
        elif not path.exists():
            raise FileNotFoundError(f"store must exist, got nothing - at {path}")
        _check_file(path)
        mode = "ro" if read_only else "rw"
        self.path, self._writes = path, not read_only
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
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
            self.database.execute("PRAGMA secure_delete = ON")  # what is forgotten is gone, also from unused pages
            self.database.execute("PRAGMA cache_size = -65536")
            self.database.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.Error as error:
            raise _readable(error, path) from error

    def all(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.database.execute(statement, arguments).fetchall()

    def each(self, statement: str, arguments: Any = ()) -> Iterator[tuple[Any, ...]]:
        """The same, one by one."""
        cursor = self.database.execute(statement, arguments)
        self._cursors.add(cursor)
        return iter(cursor)

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
        try:
            self.database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise StoreBusy(
                f"store must be free to be written, got one that another program holds locked - at {self.path}"
            ) from error

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
        try:
            return [str(found) for (found,) in self.all("PRAGMA integrity_check") if found != "ok"]
        except sqlite3.DatabaseError as error:
            return [str(error)]

    def size(self) -> int:
        """Bytes on the disk, with the write-ahead log."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def interrupt(self) -> None:
        """End the statement that runs now, from another thread."""
        self.database.interrupt()

    def version(self) -> int:
        """A number that changes whenever another connection commits."""
        return int(self.all("PRAGMA data_version")[0][0])

    def fold(self, how: str = "TRUNCATE") -> bool:
        """Put the write-ahead log into the file -> whether all of it is there. PASSIVE waits for nobody."""
        for cursor in list(self._cursors):  # rows that nobody read to the end would be in the way
            cursor.close()
        busy, frames, done = self.all(f"PRAGMA wal_checkpoint({how})")[0]
        return not busy and frames == done

    def copy_to(self, target: Path, step: Callable[[int], None]) -> None:
        """Copy everything, as it is at one moment, into an empty file. Others may write meanwhile."""
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            copy.execute("PRAGMA journal_mode = OFF")  # half a copy is thrown away
            self.begin_reading()
            self.tables()  # the moment; without it a copy would start again after every commit
            (copies,) = self.all("PRAGMA user_version")[0]
            self.database.backup(copy, pages=COPIED_AT_ONCE, progress=lambda *_: step(COPIED_AT_ONCE))
            copy.execute(f"PRAGMA user_version = {copies + 1}")  # so that it is known when it is put over the store
        finally:
            self.rollback()
            copy.close()

    def close(self) -> None:
        """Close it. What it has written goes into the file, unless others are busy with the log."""
        try:
            if self._writes and self.database.total_changes and not self.database.in_transaction:
                self.database.execute("PRAGMA busy_timeout = 0")
                self.fold()
        finally:
            self.database.close()


def _readable(error: sqlite3.Error, path: Path) -> CalibeatError:
    """What SQLite says of a file that it cannot use, as a sentence."""
    text = str(error)
    if "not a database" in text:
        return SnapshotMismatch(f"store must be an SQLite file of calibeat, got another file - at {path}")
    return InvalidInput(f"store must be a file that can be read and written, got: {text} - at {path}")


class SqliteStore(Store):
    """The store that an engine owns: nobody else writes events to it as long as this object is open."""

    failures: tuple[type[Exception], ...] = (sqlite3.Error, OSError, StoreGone)
    is_server = False
    one_of = "IN (SELECT value FROM json_each(?))"

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # links to it are the same store
        beside = [self.path.with_name(self.path.name + end) for end in ("-wal", "-shm", ".lock")]
        self._wal = beside[0]
        with ExitStack() as opened:
            self._lock = _lock(beside[-1], path)
            opened.callback(os.close, self._lock)
            known = self._check_log()
            self.connection = SqliteConnection(self.path)
            opened.callback(self.connection.close)
            try:
                self._prepare()
                self._stamp_file(known)
            except sqlite3.Error as error:
                raise _readable(error, path) from error
            opened.pop_all()
        # SQLite keeps its files from the first commit until the last connection is closed.
        self._names = str(self.path), str(self._wal)
        self._files = {str(file): _identity(file) for file in (path.absolute(), self.path, *beside)}
        self._files[str(beside[-1])] = _which(os.fstat(self._lock))
        self._wal_size, self._seen = 0, (0, 0)

    def _prepare(self) -> None:
        run = self.connection.run
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        self.connection.begin()
        try:
            self.is_new = schema.create_tables(self.connection, str(self.path))
            # A file that cannot be written is noticed now, not at the first event.
            schema.set_meta(self.connection, "opened", repr(time.time()))
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    # ---- one group --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a group."""
        self._check_files()
        self.connection.begin()

    def _check_files(self) -> None:
        """Raise if a file of the store is not the one that was opened: what is committed to it now would be lost.

        This process has the files open, whatever their names are now. So the log goes into the database first. Then
        nothing is lost with the log, and a file in the place of the database finds no log of another.
        """
        gone = next((file for file, known in self._files.items() if _identity(file) != known), None)
        path, wal = self._names
        if gone is None or gone == wal:
            self._check_content()
        if gone is not None:
            if gone == wal or _identity(path) != self._files[path]:
                self.connection.fold()
            raise StoreGone(f"store must keep its files while it is used, got another file or none - at {gone}")
        size = os.stat(wal).st_size  # noqa: PTH116
        if size < self._wal_size:
            # Another program has folded the log, and then this does nothing. Or it was cut off, and then this fails.
            self.connection.fold("PASSIVE")
        self._wal_size = size

    # ---- a file that is overwritten where it is ---------------------------------------------------------------------
    #
    # The pages of a log are put over the pages of its file. Over those of another file they make a third one, which
    # nobody wrote. So the file has a stamp of its last opening, and the lock file says what it was.

    def _check_log(self) -> list[str]:
        """Raise if the log belongs to another file -> the stamps that the file may have."""
        known = os.pread(self._lock, 1000, 0).decode(errors="replace").split()
        is_left = self._wal.exists() and self._wal.stat().st_size > 0
        # Half a checkpoint may have damaged the file, and the log mends it.
        if known and is_left and _stamp(self.path) not in {*known, DAMAGED, None}:
            raise SnapshotMismatch(
                "store and its write-ahead log must belong together, got a file that was put in the place of another "
                f"- at {self.path}: remove its -wal and -shm to go on with the file, or its .lock if the log is its own"
            )
        return known[-1:]

    def _stamp_file(self, known: list[str]) -> None:
        """Put the stamp of this opening into the file. Until it is there, the one before it is right too."""
        new = _stamp_of(self.connection.database)
        self._stamps = {new, *known}
        self._note([*known, new])
        if self.connection.fold("PASSIVE"):
            self._stamps = {new}
            self._note([new])

    def _note(self, stamps: list[str]) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, "\n".join(stamps).encode(), 0)

    def _check_content(self) -> None:
        """Raise if the file was overwritten. A checkpoint writes to it too, and leaves the stamp as it is."""
        found = os.stat(self._names[0])  # noqa: PTH116
        seen = found.st_mtime_ns, found.st_size
        if seen != self._seen and _stamp(self.path) not in {*self._stamps, None}:
            raise StoreGone(f"store must not be overwritten while it is used, got another content - at {self.path}")
        self._seen = seen

    def as_list(self, values: Collection[Any]) -> str:
        """A list as an argument of `one_of`."""
        return _json(list(values)).decode()

    def of_ids(self, columns: str, ids: Sequence[tuple[int, Any]], more: str = "", by: str = "id") -> list[TableRow]:
        """Columns of the events `e` that have these streams and ids (or numbers); `more` stands behind the tables."""
        found: list[TableRow] = []
        # A cross join keeps the order: for each id its event by the index, never all events of a stream.
        tables = more.replace("JOIN op", "CROSS JOIN op").replace("JOIN stream", "CROSS JOIN stream")
        for part, marks in _pieces(ids, 2):
            found += self.connection.all(
                f"WITH w (stream, {by}) AS (VALUES {marks}) SELECT {columns} FROM w "  # noqa: S608 - our own text
                f"CROSS JOIN event e ON e.stream = w.stream AND e.{by} = w.{by} {tables}",
                part,
            )
        return found

    def append(self, ops: list[TableRow]) -> None:
        """Add operations to the log."""
        for is_forecast in (True, False):  # which have other columns
            self._many(INSERT_OPS, [op for op in ops if (op[2] == FORECAST) is is_forecast])

    def add_receipts(self, rows: list[TableRow]) -> None:
        """Receipts of a stream, with their version."""
        self._many(INSERT_RECEIPTS, rows)

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """What follows of some operations."""
        self._many(INSERT_EVENTS, rows["event"])
        self._many(_SETTLE, rows["settled"], _SETTLED)
        self._many(INSERT_RECEIPTS, rows["receipt"])
        if rows["spent"]:
            self.connection.run_many(SPEND_RECEIPTS, rows["spent"])
        named = sorted(rows["stream"], key=itemgetter(1))  # the index of names is the one that grows in no order
        self._many(INSERT_STREAMS, named, _OR_UPDATE)
        self._many(INSERT_BODIES, rows["body"], OR_BODY)
        self._many(INSERT_ROLLUPS, rows["rollup"], ADD_TO_ROLLUPS)
        if rows["ended"]:
            self.connection.run_many(END_ALARMS, rows["ended"])
        self._many(INSERT_ALARMS, rows["alarm"])
        self._many(INSERT_SHAPES, rows["shape"], OR_SHAPE)
        self._many(INSERT_CELLS, rows["cell"], OR_CELL)
        self._many(INSERT_NAMES, rows["name"], OR_NAME)
        if rows["forgotten"]:
            self.connection.run_many(FORGET_NAME, rows["forgotten"])

    def erase(self) -> bool:
        """Empty the write-ahead log, which has pages as they were, without waiting for those who read -> whether."""
        self._check_files()
        self.connection.run("PRAGMA busy_timeout = 0")
        try:
            return self.connection.fold()
        finally:
            self.connection.run(f"PRAGMA busy_timeout = {BUSY * 1000:.0f}")

    def commit(self) -> None:
        """On the disk when this returns, and in files that are still there."""
        self.connection.commit()
        self._check_files()

    def close(self) -> None:
        """Put the write-ahead log into the file, which is then the whole store, and close it."""
        self.rollback()
        path = self._names[0]
        if _identity(path) == self._files[path]:
            self._check_content()  # if it raises, the process must end without closing: SQLite would use the log
        try:
            self.connection.run(f"PRAGMA busy_timeout = {LAST_READERS * 1000:.0f}")
            if not self.connection.fold():
                _log.warning("another program reads the store: %s belongs to it until the next start", self._wal)
        finally:
            self.connection.close()
            os.close(self._lock)

    def _many(self, head: str, rows: list[tuple[Any, ...]], tail: str = "") -> None:
        """One statement for many rows.

        A statement for each row would hand over the interpreter's lock as often as there are rows.
        """
        if not rows:
            return
        # Whole columns of None stand in the text: as an argument it is the slowest, Python looks for an adapter of it.
        kept = [at for at, value in enumerate(rows[0]) if value is not None or _has_some(rows, at)]
        mark = f"({','.join('?' if at in kept else 'NULL' for at in range(len(rows[0])))})"
        if len(kept) < len(rows[0]):  # keys are left, two at least
            rows = list(map(itemgetter(*kept), rows))
        for part, marks in _pieces(rows, len(kept), mark):
            self.connection.run(f"{head}VALUES {marks}{tail}", part)


def _has_some(rows: Sequence[tuple[Any, ...]], at: int) -> bool:
    """Whether a column has more than None."""
    return set(map(itemgetter(at), rows)) != _NOTHING


def _pieces(rows: Sequence[tuple[Any, ...]], width: int, mark: str = "") -> Iterator[tuple[list[Any], str]]:
    """The arguments of a statement for many rows, and their marks, in pieces of a power of two rows.

    So there are few statements, and each is compiled once.
    """
    first, count, mark = 0, len(rows), mark or f"({','.join('?' * width)})"
    most = 1 << ((_MOST_ARGUMENTS // width).bit_length() - 1)
    while first < count:
        size = min(most, 1 << ((count - first).bit_length() - 1))
        yield list(chain.from_iterable(rows[first : first + size])), ",".join([mark] * size)
        first += size


def _create(path: Path) -> None:
    """Make an empty file if there is none. Only its owner may read it, whatever the umask is."""
    whole = path.resolve()
    if not whole.parent.is_dir():
        raise InvalidInput(f"store must be in a folder that exists, got none - at {whole.parent}")
    with suppress(FileExistsError):
        handle = os.open(whole, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.fchmod(handle, 0o600)
        os.close(handle)


def _check_file(path: Path) -> None:
    """Raise if this is no file that SQLite can look after."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"store must be a file, got something else - at {path}")
    if found.st_nlink > 1:  # the names of the log and of the lock come from the name of the file
        raise InvalidInput(f"store must have one name, got a file with {found.st_nlink} hard links - at {path}")


def _lock(beside: Path, path: Path) -> int:
    """A lock that only one process has, and that goes with it, however it ends.

    It is on a file of its own: SQLite's own locks on the database would be lost if anybody here closed that file.
    """
    _create(beside)
    handle = os.open(beside, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StoreInUse(
            f"store must be used by one service at a time, got one that another process writes - at {path}"
        ) from None
    return handle


@contextmanager
def owned_file(path: Path) -> Iterator[None]:
    """The place of a store, which nobody else uses meanwhile, whatever is there."""
    whole = path.resolve()
    handle = _lock(whole.with_name(whole.name + ".lock"), path)
    try:
        yield
        os.ftruncate(handle, 0)  # another file has no stamp yet
    finally:
        os.close(handle)


def _stamp(path: Path) -> str | None:
    """The stamp in the file itself, whatever its log says; None if it cannot be opened now.

    SQLite opens it, because closing a file by other means would end all locks of this process on it.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            return _stamp_of(file)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
            return None
        return "none" if "no such table" in str(error) else DAMAGED


def _stamp_of(database: sqlite3.Connection) -> str:
    """Which opening of which copy this is."""
    (copies,) = database.execute("PRAGMA user_version").fetchone()
    found = database.execute("SELECT value FROM meta WHERE name = 'opened'").fetchall()
    return f"{found[0][0] if found else 'never'}/{copies}"


def _identity(path: Path | str) -> tuple[int, int] | None:
    """Which file has this name; None where there is none."""
    try:
        return _which(os.stat(path))  # noqa: PTH116 - twice a group for each file: a name is faster than a Path
    except FileNotFoundError:
        return None


def _which(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
