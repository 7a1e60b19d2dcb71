"""What a store holds, as the engine sees it: streams, events, the changes of a group; and the interface of a store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, Protocol

import msgspec

from calibeat.errors import CalibeatError, InvalidInput
from calibeat.monitor.bets import Alarm
from calibeat.service.model import StreamBytes
from calibeat.service.shape import Shape
from calibeat.service.watch import CLASS, RAW, RAW_SCORE, Raised, Settled

# ---- the status of an event ---------------------------------------------------------------------------------------
PENDING = 0  # forecast, no outcome yet
HELD = 1  # the outcome is known and waits until the forecast is old enough
LEARNT = 2
EXPIRED = 3  # no outcome came in time; it is learnt late if it comes, as long as there is a receipt
ASSUMED = 4  # no outcome came in time; one was assumed and learnt
WAITING = 5  # the outcome is known and waits until the stream, which is frozen, is resumed
LATE = 6  # learnt after the forecast had been given up; monitors leave it out

# ---- the mode of a stream, as bits --------------------------------------------------------------------------------
FROZEN = 1  # outcomes are stored and not learnt
PASSTHROUGH = 2  # the answer is the score
RESUMING = 4  # outcomes that have waited are being learnt,
DROPPING = 8  # or given up
DELETING = 16  # it has no name any more, and its events are being deleted

# ---- the sums of a stream, over learnt outcomes and the forecasts that were answered ------------------------------
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = range(4)
_LOSS = Struct("=d")
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
    *("outcome_time", "named", "given", "issued"),
)
SETTLED_COLUMNS = ("stream", "nth", "receipt", "status", "outcome", "outcome_seq", "outcome_time")
STREAM_COLUMNS = (
    *("number", "name", "seq", "events", "outcomes", "pending", "held", "expired", "alarms", "version", "last_time"),
    *("error", "raw_error", "deadline", "mode", "raw_log_loss", "log_loss"),
)
BODY_COLUMNS = ("sums", "state", "monitor", "notice")
FORECASTS, OUTCOMES, SUM_P, SUM_Y, SUM_LOG_LOSS = range(5)  # the numbers of a roll-up: of a stream, hour, kind, tenth
ROLLUP_NUMBERS = ("forecasts", "outcomes", "sum_p", "sum_y", "log_loss")
ROLLUP_COLUMNS = ("stream", "hour", "kind", "tenth", *ROLLUP_NUMBERS)
ALARM_COLUMNS = ("stream", "time", "at", "since", "what", "page", "part", "detail", "ended")
CORRECTION_COLUMNS = ("stream", "nth", "outcome", "time", "is_forgetting")
SAID_COLUMNS = ("stream", "nth", "forecast", "named", "score", "issued")
NOT_CORRECTED = -1
CELL_COLUMNS = ("stream", "is_base", "slot", "held")
NAME_COLUMNS = ("stream", "word", "number", "value")
JOURNAL_COLUMNS = ("time", "requests", "told", "checksum")


class StoreBusy(CalibeatError):
    """Another program holds a lock that a group needs. Nothing of the group was done, and it may be tried again."""


class StoreInUse(InvalidInput):
    """Another process writes the store."""


class StoreAway(InvalidInput):
    """The database does not answer now. It may answer later."""


class Overtaken(CalibeatError):
    """Another process has written a stream of the group in the meantime."""


def check_written(written: int, count: int) -> None:
    """Raise unless all streams of a group were written: one is written only if it is as it was read."""
    if written < count:
        raise Overtaken(f"streams must be as they were read, got {count - written} that others have written since")


class Record(msgspec.Struct, eq=False, gc=False):  # made four times as fast as a dataclass
    """One event: a forecast, and its outcome once there is one.

    Of K classes the outcome is the column of the label. `named` is the class with the largest probability; score and
    forecast are those of this class.
    """

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
    named: int | None = None
    given: bytes | None = None  # beside the score: K scores, or the words of its groups
    issued: bytes | None = None  # the forecasts of K classes
    is_new: bool = False  # not in the store yet
    corrected: int | None = NOT_CORRECTED  # the latest correction that waits to be applied; None: there is no outcome
    is_forgetting: bool = False  # it is about to be deleted
    operation: int = -1  # the place of its forecast in the present group

    @property
    def latest(self) -> int | None:
        """The outcome as it was said last, also where that has still to be applied."""
        return self.outcome if self.corrected == NOT_CORRECTED else self.corrected


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
    base_seq: int = 0  # operations before this one were pruned or forgotten: a replay begins here
    mode: int = 0  # FROZEN, ...
    last_time: float = 0.0
    sums: bytes = bytes(8 * SUMS)
    error: float | None = None
    raw_error: float | None = None
    book: dict[int, Any] = field(default_factory=dict)  # word -> value of its groups, where names are kept
    named: int = 0  # names that were ever put into the book
    slot: int = -1  # its place among the streams of the present group
    due: float = inf  # when its notice is to be asked
    is_history: bool = False  # its last event was an old one: a history is being sent

    @property
    def raw_log_loss(self) -> float:
        """The sum of the log-losses of its scores."""
        return _LOSS.unpack_from(self.sums, 8 * RAW_LOG_LOSS)[0]

    @property
    def log_loss(self) -> float:
        """The sum of the log-losses of its forecasts."""
        return _LOSS.unpack_from(self.sums, 8 * LOG_LOSS)[0]


@dataclass(frozen=True)
class AlarmInfo(Alarm):
    """An alarm as the store has it."""

    number: int  # 0 before it is stored
    stream: str
    time: float
    since_time: float | None = None  # when the fault began; None where that event is not stored
    ended: float | None = None  # when it was over; None as long as it is open
    part: int = 0  # which monitor of the stream has raised it: see `watch`
    detail: str | None = None  # which way a score has moved, which class, how many streams at once

    @classmethod
    def of(cls, raised: Raised, stream: StreamBytes, now: float) -> AlarmInfo:
        """What a monitor of a stream has raised."""
        part, last = raised.part, raised.alarm
        what = f"{RAW_SCORE}{last.what}" if part == RAW else last.what
        detail = None if part < CLASS else f"class {stream.shape.label(part - CLASS)}"
        return cls(last.at, last.since, what, raised.page, 0, stream.name, now, None, None, part, detail)

    def row(self, number: int) -> TableRow:
        """The same as a row of the table, for the stream of this number."""
        return number, self.time, self.at, self.since, self.what, int(self.page), self.part, self.detail, self.ended


class Correction(NamedTuple):
    """Another outcome for a forecast whose outcome was learnt, or none; or the event is to be forgotten."""

    record: Record
    outcome: int | None
    time: float
    is_forgetting: bool = False


TableRow = tuple[Any, ...]


@dataclass
class Changes:
    """What one group changes in the store; all of it is written in one transaction."""

    inserted: list[Record] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)  # were in the store before
    streams: dict[str, StreamState] = field(default_factory=dict)
    rollups: list[TableRow] = field(default_factory=list)
    alarms: list[AlarmInfo] = field(default_factory=list)
    ended: list[tuple[str, str, float]] = field(default_factory=list)  # alarms that are over: (stream, what, when)
    corrections: list[Correction] = field(default_factory=list)
    said: list[TableRow] = field(default_factory=list)  # what the method says, where the score was told
    shaped: dict[str, StreamState] = field(default_factory=dict)  # streams whose shape is new
    cells: list[TableRow] = field(default_factory=list)  # of groups, that have changed
    names: list[tuple[StreamState, int, int, str]] = field(default_factory=list)  # (stream, word, number, value)
    forgotten: list[tuple[StreamState, int]] = field(default_factory=list)  # names that had to leave: (stream, word)

    def __bool__(self) -> bool:
        return bool(self.inserted or self.settled or self.streams or self.corrections)


_event_row, _settled_row, _stream_row, _body_row = (
    attrgetter(*columns) for columns in (EVENT_COLUMNS, SETTLED_COLUMNS, STREAM_COLUMNS, ("number", *BODY_COLUMNS))
)


def rows_of(changes: Changes) -> dict[str, list[TableRow]]:
    """What is to be written, as rows of the tables; "settled" are events that are there."""
    streams = changes.streams
    return {
        "event": [_event_row(record) for record in changes.inserted],
        "settled": [_settled_row(record) for record in changes.settled],
        "stream": [_stream_row(state) for state in changes.streams.values()],
        "body": [_body_row(state) for state in changes.streams.values()],
        "rollup": changes.rollups,
        "alarm": [alarm.row(streams[alarm.stream].number) for alarm in changes.alarms],
        "ended": [(ended, streams[name].number, what) for name, what, ended in changes.ended],
        "correction": [(c.record.stream, c.record.nth, *c[1:3], int(c.is_forgetting)) for c in changes.corrections],
        "said": changes.said,
        "shape": [(state.number, state.shape.to_text()) for state in changes.shaped.values()],
        "cell": changes.cells,
        "name": [(state.number, *named) for state, *named in changes.names],
        "forgotten": [(state.number, word) for state, word in changes.forgotten],
    }


def _stream_state(row: TableRow) -> StreamState:
    """A stream of the columns that an engine reads."""
    state = StreamState(**dict(zip(_READ_COLUMNS, row[:-1], strict=True)))
    state.shape = Shape.from_text(row[-1])
    state.last_time = state.last_time or 0.0
    state.due = inf if state.deadline is None else state.deadline
    return state


# ---- the statements that both databases share ----------------------------------------------------------------------


def assigned(columns: tuple[str, ...], source: str) -> str:
    """What stands behind SET, for columns that have the same names in `source`."""
    return ", ".join(f"{column} = {source}.{column}" for column in columns)


(
    INSERT_EVENTS,
    INSERT_STREAMS,
    INSERT_BODIES,
    INSERT_ROLLUPS,
    INSERT_ALARMS,
    INSERT_CORRECTIONS,
    INSERT_SAID,
    INSERT_CELLS,
    INSERT_NAMES,
) = (
    f"INSERT INTO {table} ({', '.join(columns)}) "
    for table, columns in (
        ("event", EVENT_COLUMNS),
        ("stream", STREAM_COLUMNS),
        ("body", ("stream", *BODY_COLUMNS)),
        ("rollup", ROLLUP_COLUMNS),
        ("alarm", ALARM_COLUMNS),
        ("correction", CORRECTION_COLUMNS),
        ("said", SAID_COLUMNS),
        ("cell", CELL_COLUMNS),
        ("name", NAME_COLUMNS),
    )
)
_JOURNAL = ", ".join(JOURNAL_COLUMNS)
INSERT_SHAPES, OR_SHAPE = (
    "INSERT INTO shape (stream, text) ",
    " ON CONFLICT (stream) DO UPDATE SET text = excluded.text",
)
OR_CELL = " ON CONFLICT (stream, is_base, slot) DO UPDATE SET held = excluded.held"
OR_NAME = " ON CONFLICT (stream, word) DO NOTHING"
END_ALARMS = "UPDATE alarm SET ended = ? WHERE stream = ? AND what = ? AND ended IS NULL"
FORGET_NAME = "DELETE FROM name WHERE stream = ? AND word = ?"
OR_BODY = f" ON CONFLICT (stream) DO UPDATE SET {assigned(BODY_COLUMNS, 'excluded')}"
UPDATE_STREAMS = f"UPDATE stream SET {assigned(STREAM_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLE_EVENTS = f"UPDATE event SET {assigned(SETTLED_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLED = "event.stream = new.stream AND event.nth = new.nth"
ADD_TO_ROLLUPS = " ON CONFLICT (stream, hour, kind, tenth) DO UPDATE SET " + ", ".join(
    f"{name} = rollup.{name} + excluded.{name}" for name in ROLLUP_NUMBERS
)
_EVENTS = ", ".join(f"e.{column}" for column in EVENT_COLUMNS)
_READ_COLUMNS = (*STREAM_COLUMNS[:-2], *BODY_COLUMNS, "base_seq", "origin")  # the losses are among the sums
# Forecasts of a stream behind one of them, made before an operation, whose outcome a monitor does not wait for: the
# three are arguments, twice.
GIVEN_UP = (
    f"SELECT nth FROM event WHERE stream = ? AND nth > ? AND seq < ? AND status IN ({EXPIRED}, {LATE}) "  # noqa: S608
    "UNION ALL SELECT nth FROM control WHERE stream = ? AND nth > ? AND seq < ? AND verb = 'forgotten' ORDER BY 1"
)


def settled_after(connection: Any, stream: int, nth: int, before: int = 2**62) -> dict[int, Settled | None]:
    """What monitors hold that have read the forecasts of a stream before one of them: number -> event.

    These are learnt events, and None for those that were given up; only of the operations before one.
    """
    rows = connection.all(
        "SELECT e.nth, coalesce(d.forecast, e.forecast), e.outcome, coalesce(d.score, e.score), "  # noqa: S608
        "coalesce(d.issued, e.issued), e.given FROM event e LEFT JOIN said d ON d.stream = e.stream AND d.nth = e.nth "
        f"WHERE e.stream = ? AND e.nth > ? AND e.outcome_seq < ? AND e.status <> {LATE}",
        (stream, nth, before),
    )
    given_up = connection.all(GIVEN_UP, (stream, nth, before) * 2)
    held: dict[int, Settled | None] = {number: None for (number,) in given_up}
    return held | {number: Settled(*event) for number, *event in rows}


def stored_cells(connection: Any, stream: int, *, is_base: bool = False) -> list[tuple[int, bytes]]:
    """The cells of a stream with groups: slot, and what it holds."""
    rows = connection.all(
        "SELECT slot, held FROM cell WHERE stream = ? AND is_base = ? ORDER BY slot", (stream, int(is_base))
    )
    return [(slot, bytes(held)) for slot, held in rows]


def replace_cells(connection: Any, stream: int, cells: Iterable[tuple[int, bytes]], *, is_base: bool = False) -> None:
    """Write all cells of a stream anew: those of now, or those at the base of its replays."""
    connection.run("DELETE FROM cell WHERE stream = ? AND is_base = ?", (stream, int(is_base)))
    rows = [(stream, int(is_base), slot, held) for slot, held in cells]
    if rows:
        connection.run_many(f"{INSERT_CELLS}VALUES (?, ?, ?, ?)", rows)


def stored_names(connection: Any, stream: int) -> list[tuple[int, int, Any]]:
    """The book of names of a stream, the oldest first: (word, number, value)."""
    rows = connection.all("SELECT word, number, value FROM name WHERE stream = ? ORDER BY number", (stream,))
    return [(word, number, json.loads(value)) for word, number, value in rows]


class Store(Protocol):
    """What an engine needs of a database. All calls come from the engine's own thread."""

    failures: tuple[type[Exception], ...]  # a group that fails with one of these was not done, as far as is known
    is_server: bool  # whether a new session may follow one that has failed; otherwise the process ends
    retries: tuple[type[Exception], ...]  # what another process can cause: the group is done once more
    is_new: bool  # whether this one made it
    connection: Any
    has_corrections: bool = True  # that wait to be applied, as far as is known
    one_of: str  # the condition that a value is one of a list, which is one argument: see `as_list`

    def look_for_corrections(self) -> None:
        """Find out whether corrections wait. Where others may write them, they are always looked for."""
        self.has_corrections = True

    def erase(self) -> bool:
        """Get rid of copies of what was deleted, without waiting for others -> whether none is left in our hands."""
        return True

    def begin(self) -> None:
        """Begin a group."""

    def streams(self, names: Collection[str], cached: dict[str, StreamState]) -> dict[str, StreamState]:
        """The streams of these names that are there and that memory does not have as they are now.

        What memory has of a stream that another process has renamed or deleted is taken out of it.
        """

    def create(self, names: Collection[str]) -> dict[str, int]:
        """Numbers for new streams of these names."""

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """Everything that a group changes: see `rows_of`."""

    def alone(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """Run a statement as a group of its own; `StoreBusy` if another program holds the lock."""

    def as_list(self, values: Collection[Any]) -> Any:
        """A list as an argument of `one_of`."""

    def of_ids(self, columns: str, ids: Sequence[tuple[int, str]], more: str = "") -> list[TableRow]:
        """Columns of the events `e` that have these streams and ids; `more` stands behind the tables."""

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
        rows = self.connection.all(
            f"SELECT {columns}, text FROM stream LEFT JOIN body ON body.stream = number "  # noqa: S608 - our own text
            f"LEFT JOIN shape ON shape.stream = number WHERE name {self.one_of}",
            (self.as_list(names),),
        )
        return {state.name: state for state in map(_stream_state, rows)}

    def known(self, ids: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Record]:
        """The events that are there already, by their stream and id, with what waits to be applied to them."""
        found = {(row[0], row[2]): Record(*row) for row in self.of_ids(_EVENTS, ids)}
        for stream, name, outcome, is_forgetting in (
            self._corrections(list(found)) if found and self.has_corrections else ()
        ):
            found[stream, name].corrected = outcome
            found[stream, name].is_forgetting |= bool(is_forgetting)
        return found

    def _corrections(self, ids: Sequence[tuple[int, str]]) -> list[TableRow]:
        """The outcomes of corrections that wait for a replay, with stream and id of their event; the latest last."""
        return self.of_ids(
            "e.stream, e.id, c.outcome, c.is_forgetting",
            ids,
            "JOIN correction c ON c.stream = e.stream AND c.nth = e.nth WHERE c.applied = 0 ORDER BY c.number",
        )

    def note(self, group: tuple[float, bytes, bytes, int]) -> None:
        """Put a group into the journal: see `unwritten`."""
        self.connection.run(f"INSERT INTO journal ({_JOURNAL}) VALUES (?, ?, ?, ?)", group)  # noqa: S608

    def journal(self) -> list[TableRow]:
        """The groups that are in the journal, in order."""
        return self.connection.all(f"SELECT {_JOURNAL} FROM journal ORDER BY number")  # noqa: S608

    def clear_journal(self) -> None:
        """Everything that is in the journal is in the tables."""
        self.connection.run("DELETE FROM journal")

    def due(self, status: int, before: float, limit: int) -> list[tuple[str, Record]]:
        """Events of a status whose forecast was made at this time or before, the earliest first: (stream, event)."""
        rows = self.connection.all(
            # The status stands in the text, not in an argument, so that the index over part of the table is used.
            f"SELECT s.name, {_EVENTS} FROM event e JOIN stream s ON s.number = e.stream "  # noqa: S608
            f"WHERE e.status = {int(status)} AND e.time <= ? AND (s.mode & {FROZEN}) = 0 "
            "ORDER BY e.time, e.stream, e.nth LIMIT ?",
            (before, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]

    def waiting(self, number: int, limit: int) -> list[tuple[str, Record]]:
        """Outcomes that came while a stream was frozen, in the order of their times: (stream, event)."""
        rows = self.connection.all(
            f"SELECT s.name, {_EVENTS} FROM stream s JOIN event e ON e.stream = s.number "  # noqa: S608
            f"WHERE s.number = ? AND e.status = {WAITING} ORDER BY e.outcome_time, e.nth LIMIT ?",
            (number, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]
