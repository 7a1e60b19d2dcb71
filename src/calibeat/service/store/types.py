"""What a store holds, as the engine sees it: streams, events, the changes of a group; and the interface of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from calibeat.errors import CalibeatError
from calibeat.monitor.bets import Alarm
from calibeat.service.model import StreamBytes

# ---- the status of an event ---------------------------------------------------------------------------------------
PENDING = 0  # forecast, no outcome yet
HELD = 1  # the outcome is known and waits until the forecast is old enough
LEARNT = 2
EXPIRED = 3  # no outcome came in time; nothing was learnt
ASSUMED = 4  # no outcome came in time; one was assumed and learnt

# ---- the sums of a stream, over learnt outcomes and the forecasts that were answered ------------------------------
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = range(4)
TENTHS = 4  # 2 kinds x 10 tenths x (count, sum of forecasts, sum of outcomes)
DELAYS = TENTHS + 60  # outcomes by the power of two of their delay in seconds: below 1, below 2, below 4, ...
DELAY_COUNT = 32
SUMS = DELAYS + DELAY_COUNT
CALIBRATED_KIND, RAW_KIND = 0, 1  # of forecasts, and of scores
Errors = tuple[float | None, float | None]  # calibration errors of forecasts and of scores; None before any outcome
HOUR = 3600.0

# ---- the columns that a group writes -------------------------------------------------------------------------------
EVENT_COLUMNS = (
    *("stream", "nth", "id", "seq", "time", "score", "forecast", "receipt", "status", "outcome", "outcome_seq"),
    "outcome_time",
)
SETTLED_COLUMNS = ("stream", "nth", "receipt", "status", "outcome", "outcome_seq", "outcome_time")
STREAM_COLUMNS = (
    *("number", "name", "seq", "events", "outcomes", "pending", "held", "expired", "alarms", "version", "last_time"),
    *("error", "raw_error", "sums", "state", "monitor"),
)
FORECASTS, OUTCOMES, SUM_P, SUM_Y, SUM_LOG_LOSS = range(5)  # the numbers of a roll-up: of a stream, hour, kind, tenth
ROLLUP_NUMBERS = ("forecasts", "outcomes", "sum_p", "sum_y", "log_loss")
ROLLUP_COLUMNS = ("stream", "hour", "kind", "tenth", *ROLLUP_NUMBERS)
ALARM_COLUMNS = ("stream", "time", "at", "since", "what", "page")
CORRECTION_COLUMNS = ("stream", "nth", "outcome", "time")
TOTAL_COUNTS = ("streams", "events", "outcomes", "pending", "held", "expired", "alarms", "judged")
# Of all learnt outcomes; the errors are those of the streams, times the outcomes that each stream has.
TOTAL_SUMS = ("raw_log_loss", "log_loss", "error", "raw_error")
TOTAL_COLUMNS = (*TOTAL_COUNTS, *TOTAL_SUMS)


class StoreBusy(CalibeatError):
    """Another program holds a lock that a group needs. Nothing of the group was done, and it may be tried again."""


class Overtaken(CalibeatError):
    """Another process has written a stream of the group in the meantime."""


def check_written(written: int, count: int) -> None:
    """Raise unless all streams of a group were written: one is written only if it is as it was read."""
    if written < count:
        raise Overtaken(f"streams must be as they were read, got {count - written} that others have written since")


@dataclass(slots=True, eq=False)
class Record:
    """One event: a forecast, and its outcome once there is one."""

    stream: int
    nth: int
    id: str
    seq: int
    time: float
    score: float
    forecast: float
    receipt: bytes | None
    status: int
    outcome: int | None
    outcome_seq: int | None = None
    outcome_time: float | None = None
    is_new: bool = False  # not in the store yet
    corrected: int | None = None  # the latest correction of its learnt outcome that no replay has applied
    operation: int = -1  # the place of its forecast in the present group


@dataclass(slots=True, eq=False)
class StreamState(StreamBytes):
    """One stream: its counts, its sums and its state."""

    number: int = -1
    seq: int = 0  # operations so far: forecasts and learnt outcomes in one order, without a gap
    events: int = 0
    outcomes: int = 0
    pending: int = 0
    held: int = 0
    expired: int = 0
    version: int = 0  # how often it was written
    base_seq: int = 0  # operations before this one were pruned: a replay begins here
    last_time: float = 0.0
    sums: bytes = bytes(8 * SUMS)
    error: float | None = None
    raw_error: float | None = None
    weighted: tuple[float, float, int] = (0.0, 0.0, 0)  # what it adds to the totals: see `weighted`
    slot: int = -1  # its place among the streams of the present group


def weighted(error: float | None, raw_error: float | None, outcomes: int) -> tuple[float, float, int]:
    """The errors of a stream times its outcomes, and those outcomes: what a mean over streams needs."""
    return (0.0, 0.0, 0) if error is None or raw_error is None else (error * outcomes, raw_error * outcomes, outcomes)


@dataclass(frozen=True)
class AlarmInfo(Alarm):
    """An alarm as the store has it."""

    number: int  # 0 before it is stored
    stream: str
    time: float


class Correction(NamedTuple):
    """Another outcome for a forecast whose outcome was learnt."""

    record: Record
    outcome: int
    time: float


TableRow = tuple[Any, ...]


@dataclass
class Changes:
    """What one group changes in the store; all of it is written in one transaction."""

    inserted: list[Record] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)  # were in the store before
    streams: dict[str, StreamState] = field(default_factory=dict)
    rollups: list[TableRow] = field(default_factory=list)
    alarms: list[AlarmInfo] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)  # what is to be added to the totals, by their names

    def __bool__(self) -> bool:
        return bool(self.inserted or self.settled or self.streams or self.corrections)


_event_row, _settled_row, _stream_row = (attrgetter(*c) for c in (EVENT_COLUMNS, SETTLED_COLUMNS, STREAM_COLUMNS))


def rows_of(changes: Changes) -> dict[str, list[TableRow]]:
    """What is to be written, as rows of the tables; "settled" are events that are there."""
    totals, streams = tuple(changes.totals.get(name, 0) for name in TOTAL_COLUMNS), changes.streams
    return {
        "event": [_event_row(record) for record in changes.inserted],
        "settled": [_settled_row(record) for record in changes.settled],
        "stream": [_stream_row(state) for state in changes.streams.values()],
        "rollup": changes.rollups,
        "alarm": [(streams[a.stream].number, a.time, a.at, a.since, a.what, int(a.page)) for a in changes.alarms],
        "correction": [(c.record.stream, c.record.nth, c.outcome, c.time) for c in changes.corrections],
        "total": [totals] if changes.totals else [],
    }


def _stream_state(row: TableRow) -> StreamState:
    """A stream of the columns that an engine reads."""
    state = StreamState(**dict(zip(_READ_COLUMNS, row, strict=True)))
    state.last_time = state.last_time or 0.0
    state.weighted = weighted(state.error, state.raw_error, state.outcomes)
    return state


# ---- the statements that both databases share ----------------------------------------------------------------------


def assigned(columns: tuple[str, ...], source: str) -> str:
    """What stands behind SET, for columns that have the same names in `source`."""
    return ", ".join(f"{column} = {source}.{column}" for column in columns)


INSERT_EVENTS, INSERT_STREAMS, INSERT_ROLLUPS, INSERT_ALARMS, INSERT_CORRECTIONS = (
    f"INSERT INTO {table} ({', '.join(columns)}) "
    for table, columns in (
        ("event", EVENT_COLUMNS),
        ("stream", STREAM_COLUMNS),
        ("rollup", ROLLUP_COLUMNS),
        ("alarm", ALARM_COLUMNS),
        ("correction", CORRECTION_COLUMNS),
    )
)
UPDATE_STREAMS = f"UPDATE stream SET {assigned(STREAM_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLE_EVENTS = f"UPDATE event SET {assigned(SETTLED_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLED = "event.stream = new.stream AND event.nth = new.nth"
ADD_TO_ROLLUPS = " ON CONFLICT (stream, hour, kind, tenth) DO UPDATE SET " + ", ".join(
    f"{name} = rollup.{name} + excluded.{name}" for name in ROLLUP_NUMBERS
)
_EVENTS = ", ".join(f"e.{column}" for column in EVENT_COLUMNS)
_READ_COLUMNS = (*STREAM_COLUMNS, "base_seq")


def settled_after(
    connection: Any, stream: int, nth: int, before: int = 2**62
) -> dict[int, tuple[float, float, float] | None]:
    """What a monitor holds that has read the forecasts of a stream before one of them: number -> event.

    These are learnt events, (forecast, outcome, score), and None for those that were given up; only of the operations
    before one.
    """
    rows = connection.all(
        "SELECT nth, forecast, outcome, score FROM event WHERE stream = ? AND nth > ? "  # noqa: S608 - our own number
        f"AND (outcome_seq < ? OR (status = {EXPIRED} AND seq < ?))",
        (stream, nth, before, before),
    )
    return {
        number: None if outcome is None else (forecast, float(outcome), score)
        for number, forecast, outcome, score in rows
    }


class Store(Protocol):
    """What an engine needs of a database. All calls come from the engine's own thread."""

    failures: tuple[type[Exception], ...]  # what ends the process: the store is the truth
    retries: tuple[type[Exception], ...]  # what another process can cause: the group is done once more
    is_new: bool  # whether this one made it
    connection: Any
    writer: int  # its row of the totals
    one_of: str  # the condition that a value is one of a list, which is one argument: see `as_list`

    def begin(self) -> None:
        """Begin a group."""

    def streams(self, names: Collection[str], cached: Mapping[str, StreamState]) -> dict[str, StreamState]:
        """The streams of these names that are there and that memory does not have as they are now."""

    def create(self, names: Collection[str]) -> dict[str, int]:
        """Numbers for new streams of these names."""

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """Everything that a group changes: see `rows_of`."""

    def alone(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """Run a statement as a group of its own; `StoreBusy` if another program holds the lock."""

    def as_list(self, values: Collection[Any]) -> Any:
        """A list as an argument of `one_of`."""

    # ---- the same in both databases -------------------------------------------------------------------------------

    def commit(self) -> None:
        """On the disk when this returns."""
        self.connection.commit()

    def rollback(self) -> None:
        """As if the group had not been."""
        self.connection.rollback()

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def read_streams(self, names: Collection[str]) -> dict[str, StreamState]:
        """The streams of these names, as they are now."""
        columns = ", ".join(_READ_COLUMNS)
        rows = self.connection.all(f"SELECT {columns} FROM stream WHERE name {self.one_of}", (self.as_list(names),))  # noqa: S608
        return {state.name: state for state in map(_stream_state, rows)}

    def known(self, ids: Collection[str]) -> dict[str, Record]:
        """The events that are there already, by their id, with the corrections of those that are learnt."""
        rows = self.connection.all(f"SELECT {_EVENTS} FROM event e WHERE e.id {self.one_of}", (self.as_list(ids),))  # noqa: S608
        found = {row[2]: Record(*row) for row in rows}
        learnt = [name for name, record in found.items() if record.status == LEARNT]
        for name, outcome in self._corrections(learnt) if learnt else ():
            found[name].corrected = outcome
        return found

    def _corrections(self, ids: Collection[str]) -> list[TableRow]:
        """The outcomes of corrections that wait for a replay, with the id of their event; the latest last."""
        return self.connection.all(
            "SELECT e.id, c.outcome FROM event e JOIN correction c ON c.stream = e.stream AND c.nth = e.nth "  # noqa: S608
            f"WHERE e.id {self.one_of} AND c.applied = 0 ORDER BY c.number",
            (self.as_list(ids),),
        )

    def due(self, status: int, before: float, limit: int) -> list[tuple[str, Record]]:
        """Events of a status whose forecast was made at this time or before, the earliest first: (stream, event)."""
        rows = self.connection.all(
            # The status stands in the text, not in an argument, so that the index over part of the table is used.
            f"SELECT s.name, {_EVENTS} FROM event e JOIN stream s ON s.number = e.stream "  # noqa: S608
            f"WHERE e.status = {int(status)} AND e.time <= ? ORDER BY e.time, e.stream, e.nth LIMIT ?",
            (before, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]
