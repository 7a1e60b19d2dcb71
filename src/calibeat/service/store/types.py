"""What the store holds, as the engine sees it: streams, events, and the changes of one group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from calibeat.core.jit import compilable

from .totals import COLUMNS

# ---- the life of an event -----------------------------------------------------------------------------------------
PENDING = 0  # forecast, no outcome yet
HELD = 1  # the outcome is known and waits until the forecast is old enough
LEARNT = 2
EXPIRED = 3  # no outcome came in time; nothing was learnt
ASSUMED = 4  # no outcome came in time; one was assumed and learnt

# ---- the sums of a stream, over learnt outcomes and the forecasts that were told ----------------------------------
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = range(4)
TENTHS = 4  # 2 kinds x 10 tenths x (count, sum of forecasts, sum of outcomes)
DELAYS = TENTHS + 60  # outcomes by the power of two of their delay in seconds: below 1, below 2, below 4, ...
DELAY_COUNT = 32
SUMS = DELAYS + DELAY_COUNT
CALIBRATED, RAW = 0, 1
Errors = tuple[float | None, float | None]  # calibration errors of forecasts and of scores; None before any outcome
HOUR = 3600.0


@compilable
def tenth(probability: float) -> int:
    """Which tenth of [0, 1] a probability is in.

    >>> tenth(0.0), tenth(0.37), tenth(1.0)
    (0, 3, 9)
    """
    return min(9, int(probability * 10.0))


class Record:
    """One event: a forecast, and its outcome once there is one."""

    __slots__ = (
        "corrected",
        "forecast",
        "id",
        "is_new",
        "nth",
        "operation",
        "outcome",
        "outcome_seq",
        "outcome_time",
        "receipt",
        "score",
        "seq",
        "status",
        "stream",
        "time",
    )

    def __init__(
        self,
        stream: int,
        nth: int,
        id: str,  # noqa: A002 - the word of the API
        seq: int,
        time: float,
        score: float,
        forecast: float,
        receipt: bytes | None,
        status: int,
        outcome: int | None,
        outcome_time: float | None = None,
    ) -> None:
        self.stream, self.nth, self.id, self.seq, self.time = stream, nth, id, seq, time
        self.score, self.forecast, self.receipt, self.status, self.outcome = score, forecast, receipt, status, outcome
        self.outcome_seq: int | None = None
        self.outcome_time = outcome_time
        self.is_new = False  # not in the store yet
        self.corrected: int | None = None  # the latest correction of its learnt outcome that no replay has applied
        self.operation = -1  # the place of its forecast in the present group


class StreamState:
    """One stream: how far it is, and what it was worth."""

    __slots__ = (
        "alarms",
        "base_seq",
        "errors",
        "events",
        "expired",
        "held",
        "last_time",
        "monitor",
        "name",
        "number",
        "outcomes",
        "pages",
        "pending",
        "row",
        "seq",
        "sums",
        "version",
        "weighted",
    )

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.seq = 0  # operations so far: forecasts and learnt outcomes in one order, without a gap
        self.events = self.outcomes = self.pending = self.held = self.expired = self.alarms = 0
        self.pages = 0  # alarms that paged; the monitor's bytes have it too
        self.version = 0  # how often it was written
        self.base_seq = 0  # operations before this one were pruned: a replay begins here
        self.last_time = 0.0
        self.sums = bytes(8 * SUMS)
        self.errors: Errors = (None, None)
        self.weighted = (0.0, 0.0, 0)  # what it adds to the totals: see `weighted`
        self.row: bytes | None = None  # the bank's row, between the store and the bank only
        self.monitor: bytes | None = None


def weighted(errors: Errors, outcomes: int) -> tuple[float, float, int]:
    """The errors of a stream times its outcomes, and those outcomes: what a mean over streams needs."""
    error, raw_error = errors
    return (0.0, 0.0, 0) if error is None or raw_error is None else (error * outcomes, raw_error * outcomes, outcomes)


class Alarm(NamedTuple):
    """An alarm of a stream's monitor, as it is stored."""

    stream: int
    name: str
    time: float
    at: int
    since: float
    what: str
    page: bool


class Correction(NamedTuple):
    """Another outcome for a forecast whose outcome was learnt."""

    record: Record
    outcome: int
    time: float


Row = tuple[Any, ...]
FORECASTS, OUTCOMES, SUM_P, SUM_Y, SUM_LOG_LOSS = range(5)  # of a roll-up: of a stream, hour, kind and tenth
NUMBERS = 5  # how many they are


@dataclass
class Changes:
    """What one group changes in the store; all of it is written in one transaction."""

    inserted: list[Record] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)  # were in the store before
    streams: dict[str, StreamState] = field(default_factory=dict)
    rollups: list[Row] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)  # what is to be added to the totals, by their names

    def __bool__(self) -> bool:
        return bool(self.inserted or self.settled or self.streams or self.corrections)


class Rows(NamedTuple):
    """The changes of a group as rows of the tables, the same for both databases."""

    inserted: list[Row]
    settled: list[Row]
    streams: list[Row]
    rollups: list[Row]
    alarms: list[Row]
    corrections: list[Row]
    totals: Row | None  # the columns of `totals`


def rows_of(changes: Changes) -> Rows:
    """What is to be written."""
    return Rows(
        [event_row(r) for r in changes.inserted],
        [(r.stream, r.nth, r.receipt, r.status, r.outcome, r.outcome_seq, r.outcome_time) for r in changes.settled],
        [stream_row(state) for state in changes.streams.values()],
        changes.rollups,
        [(a.stream, a.time, a.at, a.since, a.what, int(a.page)) for a in changes.alarms],
        [(c.record.stream, c.record.nth, c.outcome, c.time) for c in changes.corrections],
        tuple(changes.totals.get(name, 0) for name in COLUMNS) if changes.totals else None,
    )


def event_row(r: Record) -> Row:
    """An event as its columns."""
    return (
        r.stream,
        r.nth,
        r.id,
        r.seq,
        r.time,
        r.score,
        r.forecast,
        r.receipt,
        r.status,
        r.outcome,
        r.outcome_seq,
        r.outcome_time,
    )


def stream_row(s: StreamState) -> Row:
    """A stream as its columns."""
    return (
        s.number,
        s.name,
        s.seq,
        s.events,
        s.outcomes,
        s.pending,
        s.held,
        s.expired,
        s.alarms,
        s.version,
        s.last_time,
        *s.errors,
        s.sums,
        s.row,
        s.monitor,
    )
