"""A store made anew from its log: for a later version of calibeat, or because its tables were damaged.

The log, the bases of its streams, the settings, tokens, mutes, alarms and downtimes are copied into a new store. All
other tables are made of them. The old store is only read, and stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from calibeat._util.progress import Step, no_progress
from calibeat.errors import InvalidInput

from . import ops
from .controls import give_up_all
from .fold import record_of
from .listening import Listening
from .model import Model
from .ops import OP_COLUMNS, Op
from .pending import Pending
from .replay import BASE_COLUMNS, Base, Replay, last_verb, operations_of, right_outcomes, rollups_of
from .settings import check_described, model_of, stored_settings
from .shape import Shape
from .store import Store, is_store, open_connection, owned_store, sqlite_path, without_password
from .store.schema import check_version, get_meta, last_position, set_meta
from .store.types import (
    ASSUMED,
    DELETING,
    DROPPING,
    EXPIRED,
    HOUR,
    LATE,
    LEARNT,
    PENDING,
    RECEIPT_COLUMNS,
    RESUMING,
    ROLLUP_COLUMNS,
    WAITING,
    Changes,
    Record,
    StreamState,
    TableRow,
    receipt_row,
    replace_cells,
    rows_of,
)
from .watch import RAW

AT_ONCE = 5_000  # rows
# What is no table made of the log, beside the log itself: its columns, and which rows.
_KEPT: dict[str, tuple[tuple[str, ...], str]] = {
    "base": (("stream", *BASE_COLUMNS), ""),
    "receipt": (RECEIPT_COLUMNS, "WHERE (stream, version) IN (SELECT stream, receipts FROM base)"),
    "cell": (("stream", "is_base", "slot", "held"), "WHERE is_base = 1"),
    "meta": (("name", "value"), "WHERE name NOT IN ('schema', 'opened', 'flushed', 'spent')"),
    "token": (("name", "scope", "hash", "created", "revoked", "streams", "expires"), ""),
    "mute": (("streams", "until", "created"), ""),
    "downtime": (("begun", "ended"), ""),
    "alarm": (
        (
            *("number", "stream", "time", "at", "since", "what", "page", "delivered", "message", "ended"),
            *("acknowledged", "acknowledged_by", "part", "detail"),
        ),
        "",
    ),
}


@dataclass
class Upgraded:
    """What was copied, and what could not be read."""

    operations: int = 0
    streams: int = 0
    lost: list[str] = field(default_factory=list)  # sentences


def upgrade(source: str, target: str, step: Step = no_progress, *, salvage: bool = False) -> Upgraded:
    """Make a new store of the log of another -> what was copied.

    With `salvage` what cannot be read is left out, and named; otherwise it is an error, and nothing is made.

    Raises
    ------
    FileNotFoundError, InvalidInput : there is no such store, or the new one is there already.
    SnapshotMismatch : the store is of a version that this calibeat does not know.
    """
    if not salvage and not is_store(source):
        raise FileNotFoundError(f"store must exist, got nothing - at {source}")
    if is_store(target):
        raise InvalidInput("target must be a new store, got one that is there")
    result = Upgraded()
    with closing(open_connection(source)) as old:
        old.begin_reading()
        _check_settings(old, source)
        try:
            with owned_store(target, create=True) as store:
                _copy_all(old, store, result, step, salvage=salvage)
                make_tables(store, result, step)
        except BaseException:
            _remove(target)
            raise
    return result


def _check_settings(old: Any, source: str) -> None:
    """Nothing can be made of a store whose settings cannot be read."""
    try:
        check_version(old, without_password(source))
        get_meta(old)
    except old.faults as error:
        raise InvalidInput(f"settings of the store must be readable, got: {error} - restore a backup") from error


def _remove(target: str) -> None:
    """A store that could not be made is not there, so that the next try can make it."""
    if (path := sqlite_path(target)) is not None:
        for end in ("", "-wal", "-shm", ".lock"):
            path.with_name(path.name + end).unlink(missing_ok=True)


def _copy_all(old: Any, store: Store, result: Upgraded, step: Step, *, salvage: bool) -> None:
    """The log, and the tables that are not made of it."""
    for rows in _log_of(old, result, salvage=salvage):
        store.append(rows)
        result.operations += len(rows)
        step(len(rows))
    kept = dict(_KEPT)
    if "pruned_before" in (meta := get_meta(old)):  # the roll-ups of what was pruned are not in the log
        kept["rollup"] = (ROLLUP_COLUMNS, f"WHERE hour < {_first_hour(meta)}")
    for table, (columns, where) in kept.items():
        marks = ", ".join("?" * len(columns))
        conflict = "ON CONFLICT (name) DO UPDATE SET value = excluded.value" if table == "meta" else ""
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {conflict}"  # noqa: S608
        try:
            found = old.all(f"SELECT {', '.join(columns)} FROM {table} {where}")  # noqa: S608 - our own tables
        except Exception as error:
            if not salvage:
                raise
            result.lost.append(f"table {table}: {error}")
            continue
        store.connection.run_many(insert, found)
    if store.is_server:  # it numbers alarms by itself, from the last one on
        store.connection.all(
            "SELECT setval(pg_get_serial_sequence('alarm', 'number'), coalesce(max(number), 0) + 1, false) FROM alarm"
        )


def _log_of(old: Any, result: Upgraded, *, salvage: bool) -> Iterator[list[Any]]:
    """The operations, some at a time. Those on a damaged page are skipped, if that is wanted."""
    columns, last, most = ", ".join(OP_COLUMNS), 0, AT_ONCE
    statement = f"SELECT {columns} FROM op WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608
    while True:
        try:
            rows = old.all(statement, (last, most))
        except Exception:
            if not salvage:
                raise
            if most > 1:
                most //= 10
                most = max(1, most)
                continue
            after = _next_readable(old, last)
            result.lost.append(
                f"operations from position {last + 1} " + (f"to {after}" if after is not None else "to the end")
            )
            if after is None:
                return
            last, most = after, AT_ONCE
            continue
        if not rows:
            return
        last, most = rows[-1][0], AT_ONCE
        yield rows


def _next_readable(old: Any, last: int) -> int | None:
    """A position behind which the log can be read again; None if there is none."""

    def is_readable(position: int) -> bool:
        try:
            return bool(old.all("SELECT * FROM op WHERE position > ? ORDER BY position LIMIT 1", (position,)))
        except Exception:  # noqa: BLE001 - whatever is wrong with it
            return False

    skip = 1
    while not is_readable(last + skip):
        skip *= 2
        if skip > 2**40:
            return None
    low, high = skip // 2, skip
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_readable(last + middle) else (middle, high)
    return last + high


# ---- the tables that are made of the log ----------------------------------------------------------------------------


def make_tables(store: Store, result: Upgraded, step: Step = no_progress) -> None:
    """Make all tables of a store that has a log and bases, and nothing else yet."""
    connection, meta = store.connection, get_meta(store.connection)
    if "method" not in meta:  # it was made for a token, and never served
        return
    check_described(meta)
    settings = stored_settings(meta)
    listening = Listening(store, time.time, notice=bool(settings.notice))
    listening.read_downtimes(time.time())
    connection.run("CREATE INDEX op_of ON op (stream, position)")
    for number in [row[0] for row in connection.all("SELECT DISTINCT stream FROM op WHERE stream > 0 ORDER BY stream")]:
        _Stream(store, model_of(settings), listening, number, meta).make(step)
        result.streams += 1
    connection.run("DROP INDEX op_of")
    set_meta(connection, "flushed", str(last_position(connection)))


class _Stream:
    """One stream whose tables are made."""

    def __init__(self, store: Store, model: Model, listening: Listening, number: int, meta: dict[str, str]) -> None:
        self._store, self._connection, self._model, self._listening = store, store.connection, model, listening
        self._number = number
        self._first_hour = _first_hour(meta)

    def make(self, step: Step) -> None:
        """Replay it, and write what comes of it."""
        connection, number = self._connection, self._number
        stream = self._stream()
        base = Base.of(connection, stream)
        stream.base = base.position
        stream.receipts = base.receipts + 2
        if base.position:
            stream.last_time = self._write_before(stream, base)
        right = right_outcomes(connection, number, stream.applied)
        replay = Replay(self._model, stream, right, write=self._write, on_reset=lambda: self._give_up(replay))
        replay.start(connection)
        state = replay.state
        state.applied, state.receipts, state.alarms = stream.applied, stream.receipts, 0
        state.last_time = stream.last_time
        for part in replay.whole_log(connection):
            replay.feed(part)
            step(len(part))
        replay.finish()
        if state.mode & (RESUMING | DROPPING) and all(each.status != WAITING for each in replay.open.values()):
            state.mode &= ~(RESUMING | DROPPING)
        alarms = f"SELECT count(*) FROM alarm WHERE stream = ? AND part <> {RAW}"  # noqa: S608 - our own number
        state.alarms = int(connection.all(alarms, (number,))[0][0])
        self._store.write(rows_of(Changes(streams={state.name: state}, shaped=self._shaped(state))))
        # What the method had forecast of events whose past was changed since, only an unread monitor knows.
        since = last_verb(connection, number, ops.APPLY, ops.METHOD, ops.RESET)
        connection.run(
            "UPDATE event SET own = NULL WHERE stream = ? AND own IS NOT NULL AND position > ? AND position <= ?",
            (number, base.position, since),
        )
        own = [(each, number, nth) for nth, each in replay.unread().items() if nth not in replay.open]
        connection.run_many("UPDATE event SET own = ? WHERE stream = ? AND nth = ?", own)
        if self._is_deleted():
            hidden = (f"\x7f{number}", DELETING, number)
            connection.run("UPDATE stream SET name = ?, mode = ?, events = 0 WHERE number = ?", hidden)

    def _stream(self) -> StreamState:
        """Its name and shape, and what is applied."""
        number, shape, applied = self._number, Shape(), 0
        stream = StreamState(f"recovered-{number}", number=number)
        kinds = (ops.BEGIN, ops.RENAME, ops.DEFINE, ops.JOIN, ops.APPLY, ops.COPY)
        for op in self._ops(f"kind IN ({', '.join(map(str, kinds))})"):
            if op.kind == ops.BEGIN:
                stream.name = op.id or stream.name
            elif op.kind == ops.RENAME:
                stream.key = stream.key or stream.name
                stream.name = (op.given or b"").decode()
            elif op.kind == ops.DEFINE:
                shape, first = Shape.from_text((op.given or b"").decode()), op.position
            elif op.kind == ops.JOIN:
                shape = shape.joined(op.id)
            else:
                applied = op.position if op.corrects is None else op.corrects
        if shape.groups is not None and shape.groups.numbers:
            for op in self._ops(f"kind = {ops.FORECAST} AND position > {first}"):
                shape = shape.after(op.given)
        stream.shape, stream.applied = shape, applied
        return stream

    def _ops(self, where: str) -> Iterator[Op]:
        columns = ", ".join(OP_COLUMNS)
        statement = f"SELECT {columns} FROM op WHERE stream = ? AND {where} ORDER BY position"  # noqa: S608
        return map(Op._make, self._connection.all(statement, (self._number,)))

    def _is_deleted(self) -> bool:
        statement = "SELECT 1 FROM op WHERE stream = 0 AND kind > 1 AND kind = ? AND nth = ?"
        return bool(self._connection.all(statement, (ops.DELETE, self._number)))

    @staticmethod
    def _shaped(state: StreamState) -> dict[str, StreamState]:
        return {} if state.shape.is_like(Shape()) else {state.name: state}

    def _write_before(self, stream: StreamState, base: Base) -> float:
        """The events before the base that are still there: as they were then -> the time of the last one."""
        events: dict[int, Record] = {}
        right = right_outcomes(self._connection, self._number, stream.applied)
        for op in self._ops(f"position <= {base.position} AND kind < {ops.CORRECT}"):
            if op.kind == ops.FORECAST:
                events[op.nth] = record_of(op)
            elif (record := events.get(op.nth)) is not None:
                _settle(op, record, right)
        columns = ", ".join(RECEIPT_COLUMNS[2:])
        rows = self._connection.all(
            f"SELECT {columns} FROM receipt WHERE stream = ? AND version = ?",  # noqa: S608 - our own columns
            (self._number, base.receipts),
        )
        opened = []
        for nth, receipt, own, status, outcome, weight, trials, outcome_time in rows:
            if (record := events.get(nth)) is None:
                continue
            record.own = None if own is None else bytes(own)
            if not bytes(receipt):  # it was settled then, and the monitor had still to read it
                continue
            record.status, record.learnt = status, None
            record.outcome, record.weight, record.trials, record.outcome_time = outcome, weight, trials, outcome_time
            record.receipt = bytes(receipt)
            opened.append(receipt_row(record, stream.receipts))
        known = [each for record in events.values() for each in operations_of(record)]
        rollups = self._of_whole_hours(rollups_of(stream, known).rollups)
        changes = Changes(inserted=list(events.values()), streams={stream.name: stream}, rollups=rollups)
        self._store.write(rows_of(changes))
        if stream.shape.groups is not None:
            replace_cells(self._connection, self._number, base.cells)
        return max((record.time for record in events.values()), default=0.0)

    def _write(self, pending: Pending) -> None:
        """What some operations change. Alarms are those that were raised then."""
        self._listening.hear(pending, live=False)
        changes = pending.finish()
        changes.alarms, changes.ended = [], []
        changes.rollups = self._of_whole_hours(changes.rollups)
        self._store.write(rows_of(changes))

    def _of_whole_hours(self, rollups: list[TableRow]) -> list[TableRow]:
        return [row for row in rollups if row[1] >= self._first_hour]

    def _give_up(self, replay: Replay) -> None:
        give_up_all(self._connection, replay.state)


def _first_hour(meta: dict[str, str]) -> int:
    """The first hour of which the log has all events."""
    return int(float(meta["pruned_before"]) // HOUR) + 1 if "pruned_before" in meta else -(2**62)


def _settle(op: Op, record: Record, right: Any) -> None:
    """What an operation before a base has made of an event."""
    if op.kind == ops.EXPIRE:
        record.status = EXPIRED
        return
    time = record.outcome_time if op.observed is None else op.at if op.time is None else op.time
    outcome = right.get(op.position, op.observed or record.observed)
    record.observe(outcome, time)
    if op.kind != ops.HOLD:
        is_late = record.status == EXPIRED
        record.status = (
            PENDING if outcome is None else ASSUMED if op.kind == ops.ASSUME else LATE if is_late else LEARNT
        )
        record.learnt = None if outcome is None else op.position
