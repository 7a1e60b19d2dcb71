"""What a store holds, as the engine sees it: streams, events, the changes of a group; and the interface of a store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from math import inf
from operator import attrgetter
from struct import Struct
from typing import Any, Protocol

import msgspec

from calibeat.errors import CalibeatError, InvalidInput
from calibeat.monitor.bets import Alarm
from calibeat.service.events import Observed
from calibeat.service.model import StreamBytes
from calibeat.service.ops import FORGET, OP_COLUMNS, Op
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
WEIGHTS = DELAYS + DELAY_COUNT  # how many events these outcomes stand for: the losses are sums over them
SUMS = WEIGHTS + 1
CALIBRATED_KIND, RAW_KIND = 0, 1  # of forecasts, and of scores
Errors = tuple[float | None, float | None]  # calibration errors of forecasts and of scores; None before any outcome
HOUR = 3600.0

# ---- the columns that a group writes -------------------------------------------------------------------------------
_KNOWN = ("status", "outcome", "weight", "trials", "outcome_time", "learnt", "own")
EVENT_COLUMNS = ("stream", "nth", "id", "position", "time", *_KNOWN)
SETTLED_COLUMNS = ("stream", "nth", *_KNOWN)
STREAM_COLUMNS = (
    *("number", "name", "key", "events", "outcomes", "pending", "held", "expired", "alarms", "last_time", "error"),
    *("raw_error", "deadline", "mode", "base", "applied", "receipts", "raw_log_loss", "log_loss", "weights"),
)
RECEIPT_COLUMNS = (
    *("stream", "version", "nth", "receipt", "own", "status", "outcome", "weight", "trials", "outcome_time"),
)
BODY_COLUMNS = ("sums", "state", "monitor", "notice")
# The numbers of a roll-up, of a stream, hour, kind, tenth. The sums are over the events that outcomes stand for.
FORECASTS, OUTCOMES, SUM_P, SUM_Y, SUM_LOG_LOSS, WEIGHT = range(6)
ROLLUP_NUMBERS = ("forecasts", "outcomes", "sum_p", "sum_y", "log_loss", "weight")
ROLLUP_COLUMNS = ("stream", "hour", "kind", "tenth", *ROLLUP_NUMBERS)
ALARM_COLUMNS = ("stream", "time", "at", "since", "what", "page", "part", "detail", "ended")
CELL_COLUMNS = ("stream", "is_base", "slot", "held")
NAME_COLUMNS = ("stream", "word", "number", "value")


class StoreBusy(CalibeatError):
    """Another program holds a lock that a group needs. Nothing of the group was done, and it may be tried again."""


class StoreInUse(InvalidInput):
    """Another process writes the store."""


class StoreAway(InvalidInput):
    """The database does not answer now. It may answer later."""


class Record(msgspec.Struct, eq=False, gc=False):  # made four times as fast as a dataclass
    """One event: a forecast, and its outcome once there is one.

    Of K classes the outcome is the column of the label; score and forecast are those of the class with the largest
    probability. Of several models the score is the forecast. Of `trials` events the outcome is how many are ones.
    """

    stream: int
    nth: int
    id: str
    position: int  # of its forecast in the log
    time: float
    status: int
    outcome: int | None
    weight: float | None  # of the outcome; None: 1
    trials: int | None  # how many events the outcome is; None: 1
    outcome_time: float | None
    learnt: int | None  # the position at which its outcome was learnt
    own: bytes | None  # what the method forecasts, where something else was answered
    score: float
    forecast: float  # as it was answered
    given: bytes | None  # beside the score: K scores, or the words and numbers of its groups
    issued: bytes | None  # the forecasts of K classes
    band: bytes | None  # low, high, outcomes, reason
    receipt: bytes | None
    is_new: bool = False  # not in the tables yet
    is_final: bool = False  # it was given up for good: its receipt is not kept
    row: int = -1  # the place of its forecast in the present group

    @property
    def observed(self) -> Observed | None:
        """The outcome."""
        if self.outcome is None:
            return None
        return Observed.of_stored(self.outcome, self.weight, self.trials)

    @property
    def share(self) -> float:
        """The outcome as kernels take it; 0 where it is unknown."""
        if self.trials is None:
            return float(self.outcome or 0)
        return (self.outcome or 0) / max(self.trials, 1)

    def observe(self, outcome: Observed | None, time: float | None) -> None:
        """The outcome is known; None: it is unknown again."""
        self.outcome, self.weight, self.trials = (None, None, None) if outcome is None else outcome.stored
        self.outcome_time = time


@dataclass(slots=True, eq=False)
class StreamState(StreamBytes):
    """One stream: its counts, its sums and its state."""

    number: int = -1
    events: int = 0
    outcomes: int = 0
    pending: int = 0
    held: int = 0
    expired: int = 0
    base: int = 0  # operations up to this position were pruned or forgotten: a replay begins behind it
    applied: int = 0  # corrections up to this position are in its state
    receipts: int = 0  # which of the stored receipts belong to its state
    mode: int = 0  # FROZEN, ...
    last_time: float | None = None  # of its latest event; None: its state was imported, without events
    sums: bytes = bytes(8 * SUMS)
    error: float | None = None
    raw_error: float | None = None
    book: dict[int, Any] = field(default_factory=dict)  # word -> value of its groups, where names are kept
    named: int = 0  # names that were ever put into the book
    waiting: dict[int, Observed | None] = field(default_factory=dict)  # corrections that wait, by number of the event
    forgetting: set[int] = field(default_factory=set)  # numbers of events that are about to be deleted
    slot: int = -1  # its place among the streams of the present group
    due: float = inf  # when its notice is to be asked
    is_history: bool = False  # its last event was an old one: a history is being sent

    def latest(self, record: Record) -> Observed | None:
        """The outcome of an event as it was said last, also where that has still to be applied."""
        return self.waiting.get(record.nth, record.observed) if self.waiting else record.observed

    @property
    def raw_log_loss(self) -> float:
        """The sum of the log-losses of its scores."""
        return _LOSS.unpack_from(self.sums, 8 * RAW_LOG_LOSS)[0]

    @property
    def log_loss(self) -> float:
        """The sum of the log-losses of its forecasts."""
        return _LOSS.unpack_from(self.sums, 8 * LOG_LOSS)[0]

    @property
    def weights(self) -> float:
        """How many events its outcomes stand for."""
        return _LOSS.unpack_from(self.sums, 8 * WEIGHTS)[0]


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


TableRow = tuple[Any, ...]


@dataclass
class Changes:
    """What some groups change in the tables; all of it is written in one transaction."""

    inserted: list[Record] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)  # were in the tables before
    streams: dict[str, StreamState] = field(default_factory=dict)
    rollups: list[TableRow] = field(default_factory=list)
    alarms: list[AlarmInfo] = field(default_factory=list)
    ended: list[tuple[str, str, float]] = field(default_factory=list)  # alarms that are over: (stream, what, when)
    shaped: dict[str, StreamState] = field(default_factory=dict)  # streams whose shape is new
    cells: list[TableRow] = field(default_factory=list)  # of groups, that have changed
    names: list[tuple[StreamState, int, int, str]] = field(default_factory=list)  # (stream, word, number, value)
    forgotten: list[tuple[StreamState, int]] = field(default_factory=list)  # names that had to leave: (stream, word)

    def __bool__(self) -> bool:
        return bool(self.inserted or self.settled or self.streams)


_event_row, _settled_row, _stream_row, _body_row = (
    attrgetter(*columns)
    for columns in (EVENT_COLUMNS[:-1], SETTLED_COLUMNS[:-1], STREAM_COLUMNS, ("number", *BODY_COLUMNS))
)


def _own(record: Record) -> tuple[bytes | None]:
    """What stands in the row of an event; as long as it has a receipt, it stands there."""
    return (None if record.receipt is not None else record.own,)


def receipt_row(record: Record, version: int, *, is_base: bool = False) -> TableRow:
    """The receipt of an event. At the base of replays it also has what was known of the event then."""
    known: TableRow = (None,) * 5
    if is_base:
        known = record.status, record.outcome, record.weight, record.trials, record.outcome_time
    return (record.stream, version, record.nth, record.receipt, record.own, *known)


def rows_of(changes: Changes) -> dict[str, list[TableRow]]:
    """What is to be written, as rows of the tables; "settled" are events that are there."""
    streams = changes.streams
    version = {state.number: state.receipts for state in streams.values()}
    return {
        "event": [_event_row(record) + _own(record) for record in changes.inserted],
        "settled": [_settled_row(record) + _own(record) for record in changes.settled],
        "receipt": [receipt_row(r, version[r.stream]) for r in changes.inserted if r.receipt is not None],
        "spent": [(r.stream, version[r.stream], r.nth) for r in changes.settled if r.receipt is None],
        "stream": [_stream_row(state) for state in streams.values()],
        "body": [_body_row(state) for state in streams.values()],
        "rollup": changes.rollups,
        "alarm": [alarm.row(streams[alarm.stream].number) for alarm in changes.alarms],
        "ended": [(ended, streams[name].number, what) for name, what, ended in changes.ended],
        "shape": [(state.number, state.shape.to_text()) for state in changes.shaped.values()],
        # Several groups may have changed the same: what is now is written.
        "cell": list({row[:3]: row for row in changes.cells}.values()),
        "name": list({(s.number, word): (s.number, word, *of) for s, word, *of in changes.names}.values()),
        "forgotten": [(state.number, word) for state, word in changes.forgotten if word not in state.book],
    }


def _stream_state(row: TableRow) -> StreamState:
    """A stream of the columns that an engine reads."""
    state = StreamState(**dict(zip(_READ_COLUMNS, row[:-1], strict=True)))
    state.shape = Shape.from_text(row[-1])
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
    INSERT_CELLS,
    INSERT_NAMES,
    INSERT_OPS,
    INSERT_RECEIPTS,
) = (
    f"INSERT INTO {table} ({', '.join(columns)}) "
    for table, columns in (
        ("event", EVENT_COLUMNS),
        ("stream", STREAM_COLUMNS),
        ("body", ("stream", *BODY_COLUMNS)),
        ("rollup", ROLLUP_COLUMNS),
        ("alarm", ALARM_COLUMNS),
        ("cell", CELL_COLUMNS),
        ("name", NAME_COLUMNS),
        ("op", OP_COLUMNS),
        ("receipt", RECEIPT_COLUMNS),
    )
)
INSERT_SHAPES, OR_SHAPE = (
    "INSERT INTO shape (stream, text) ",
    " ON CONFLICT (stream) DO UPDATE SET text = excluded.text",
)
OR_CELL = " ON CONFLICT (stream, is_base, slot) DO UPDATE SET held = excluded.held"
OR_NAME = " ON CONFLICT (stream, word) DO NOTHING"
END_ALARMS = "UPDATE alarm SET ended = ? WHERE stream = ? AND what = ? AND ended IS NULL"
SPEND_RECEIPTS = "DELETE FROM receipt WHERE stream = ? AND version = ? AND nth = ?"
FORGET_NAME = "DELETE FROM name WHERE stream = ? AND word = ?"
OR_BODY = f" ON CONFLICT (stream) DO UPDATE SET {assigned(BODY_COLUMNS, 'excluded')}"
UPDATE_STREAMS = f"UPDATE stream SET {assigned(STREAM_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLE_EVENTS = f"UPDATE event SET {assigned(SETTLED_COLUMNS[2:], 'new')} FROM "  # noqa: S608 - our own columns
SETTLED = "event.stream = new.stream AND event.nth = new.nth"
ADD_TO_ROLLUPS = " ON CONFLICT (stream, hour, kind, tenth) DO UPDATE SET " + ", ".join(
    f"{name} = rollup.{name} + excluded.{name}" for name in ROLLUP_NUMBERS
)
_OWN = "CASE WHEN r.nth IS NULL THEN e.own ELSE r.own END"
_RECORD = ", ".join(
    [*(f"e.{name}" for name in EVENT_COLUMNS[:-1]), _OWN, "o.x, o.told, o.given, o.issued, o.band, r.receipt"]
)
# The operation of the forecast of an event `e`, and its receipt, if it has one.
_WITH_OP = (
    "JOIN op o ON o.position = e.position JOIN stream s ON s.number = e.stream "
    "LEFT JOIN receipt r ON r.stream = e.stream AND r.version = s.receipts AND r.nth = e.nth"
)
_READ_COLUMNS = (*STREAM_COLUMNS[:-3], *BODY_COLUMNS)  # the losses are among the sums
_SELECT_STREAMS = (
    f"SELECT {', '.join(_READ_COLUMNS)}, text FROM stream LEFT JOIN body ON body.stream = number "  # noqa: S608
    "LEFT JOIN shape ON shape.stream = number"
)
# Forecasts of a stream behind one of them, made before a position, whose outcome a monitor does not wait for: the three
# are arguments, twice. Of what is to be forgotten it does so until that is applied.
GIVEN_UP = (
    f"SELECT nth FROM event WHERE stream = ? AND nth > ? AND position < ? AND status IN ({EXPIRED}, {LATE}) "  # noqa: S608
    f"UNION ALL SELECT nth FROM op WHERE stream = ? AND nth > ? AND corrects < ? AND kind = {FORGET} "
    "AND position <= (SELECT applied FROM stream WHERE number = op.stream) ORDER BY 1"
)


def settled_after(connection: Any, of: StreamState, nth: int, before: int = 2**62) -> dict[int, Settled | None]:
    """What monitors hold that have read the forecasts of a stream before one of them: number -> event.

    These are learnt events, and None for those that were given up; only of the operations before one.
    """
    stream = of.number
    rows = connection.all(
        "SELECT e.nth, o.told, e.outcome, o.x, o.issued, o.given, e.own "  # noqa: S608
        "FROM event e JOIN op o ON o.position = e.position "
        f"WHERE e.stream = ? AND e.nth > ? AND e.learnt < ? AND e.status <> {LATE}",
        (stream, nth, before),
    )
    given_up = connection.all(GIVEN_UP, (stream, nth, before) * 2)
    held: dict[int, Settled | None] = {number: None for (number,) in given_up}
    for number, told, outcome, score, issued, given, own in rows:
        if own is not None:
            told, issued = (_LOSS.unpack(own)[0], None) if issued is None else (told, own)  # noqa: PLW2901
            score = told if of.shape.models is not None else score  # noqa: PLW2901
        held[number] = Settled(told, outcome, score, issued, given)
    return held


def stream_of(connection: Any, number: int) -> StreamState | None:
    """The stream of a number, as the tables have it."""
    rows = connection.all(f"{_SELECT_STREAMS} WHERE number = ?", (number,))
    return _stream_state(rows[0]) if rows else None


def numbered(connection: Any, stream: int, nth: int) -> list[Record]:
    """The event of a stream that has this number, if there is one."""
    rows = connection.all(f"SELECT {_RECORD} FROM event e {_WITH_OP} WHERE e.stream = ? AND e.nth = ?", (stream, nth))  # noqa: S608
    return [Record(*row) for row in rows]


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
    is_new: bool  # whether this one made it
    epoch: int = -1  # of the lease that it has, where it needs one
    connection: Any
    one_of: str  # the condition that a value is one of a list, which is one argument: see `as_list`

    def erase(self) -> bool:
        """Get rid of copies of what was deleted, without waiting for others -> whether none is left in our hands."""
        return True

    def begin(self) -> None:
        """Begin a group."""

    def append(self, ops: list[Any]) -> None:
        """Add operations to the log."""

    def write(self, rows: dict[str, list[TableRow]]) -> None:
        """What follows of some operations: see `rows_of`."""

    def stay(self) -> None:
        """Keep the right to write the store, while nothing is written."""
        return  # a file stays locked

    def as_list(self, values: Collection[Any]) -> Any:
        """A list as an argument of `one_of`."""

    def of_ids(self, columns: str, ids: Sequence[tuple[int, Any]], more: str = "", by: str = "id") -> list[TableRow]:
        """Columns of the events `e` that have these streams and ids (or numbers); `more` stands behind the tables."""

    def add_receipts(self, rows: list[TableRow]) -> None:
        """Receipts of a stream, with their version."""

    # ---- the same in both databases -------------------------------------------------------------------------------

    def alone(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """Run a statement as a group of its own; `StoreBusy` if another program holds the lock."""
        self.begin()
        self.connection.run(statement, arguments)
        self.commit()

    def commit(self) -> None:
        """On the disk when this returns."""

    def rollback(self) -> None:
        """As if the group had not been."""
        self.connection.rollback()

    def close(self) -> None:
        """Close the database."""

    def streams(self, names: Collection[Any], by: str = "name") -> dict[str, StreamState]:
        """The streams of these names (or numbers), as the tables have them."""
        rows = self.connection.all(f"{_SELECT_STREAMS} WHERE {by} {self.one_of}", (self.as_list(names),))
        return {state.name: state for state in map(_stream_state, rows)}

    def known(self, ids: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Record]:
        """The events that are there already, by their stream and id."""
        return {(row[0], row[2]): Record(*row) for row in self.of_ids(_RECORD, ids, _WITH_OP)}

    def numbered(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Record]:
        """The same by stream and number."""
        found = self.of_ids(_RECORD, events, _WITH_OP, "nth") if events else []
        return {(row[0], row[1]): Record(*row) for row in found}

    def ops(self, after: int) -> list[Op]:
        """The operations behind a position, in order."""
        columns = ", ".join(OP_COLUMNS)
        statement = f"SELECT {columns} FROM op WHERE position > ? ORDER BY position"  # noqa: S608 - our own columns
        return list(starmap(Op, self.connection.all(statement, (after,))))

    def due(self, status: int, before: float, limit: int) -> list[tuple[str, Record]]:
        """Events of a status whose forecast was made at this time or before, the earliest first: (stream, event)."""
        rows = self.connection.all(
            # The status stands in the text, not in an argument, so that the index over part of the table is used.
            f"SELECT s.name, {_RECORD} FROM event e {_WITH_OP} "  # noqa: S608
            f"WHERE e.status = {int(status)} AND e.time <= ? AND (s.mode & {FROZEN}) = 0 "
            "ORDER BY e.time, e.stream, e.nth LIMIT ?",
            (before, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]

    def waiting(self, number: int, limit: int) -> list[tuple[str, Record]]:
        """Outcomes that came while a stream was frozen, in the order of their times: (stream, event)."""
        rows = self.connection.all(
            f"SELECT s.name, {_RECORD} FROM event e {_WITH_OP} "  # noqa: S608
            f"WHERE e.stream = ? AND e.status = {WAITING} ORDER BY e.outcome_time, e.nth LIMIT ?",
            (number, limit),
        )
        return [(row[0], Record(*row[1:])) for row in rows]
