"""What the store holds, as the engine sees it: streams, events, and the changes of one group."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from calibeat.core.losses import log_loss

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
HOUR = 3600.0


def tenth(probability: float) -> int:
    """Which tenth of [0, 1] a probability is in.

    >>> tenth(0.0), tenth(0.37), tenth(1.0)
    (0, 3, 9)
    """
    return min(9, int(probability * 10.0))


class Record:
    """One event: a forecast, and its outcome once there is one."""

    __slots__ = (
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
    ) -> None:
        self.stream, self.nth, self.id, self.seq, self.time = stream, nth, id, seq, time
        self.score, self.forecast, self.receipt, self.status, self.outcome = score, forecast, receipt, status, outcome
        self.outcome_seq: int | None = None
        self.outcome_time: float | None = None
        self.is_new = False  # not in the store yet
        self.operation = -1  # the place of its forecast in the present group


class StreamState:
    """One stream: how far it is, and what it was worth."""

    __slots__ = (
        "alarms",
        "events",
        "expired",
        "gaps",
        "held",
        "is_new",
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
    )

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.seq = 0  # operations so far: forecasts and learnt outcomes in one order, without a gap
        self.events = self.outcomes = self.pending = self.held = self.expired = self.alarms = 0
        self.pages = 0  # alarms that paged; the monitor's bytes have it too
        self.version = 0  # how often it was written
        self.last_time = 0.0
        self.sums = array("d", bytes(8 * SUMS))
        self.gaps = [0.0, 0.0]  # sum over tenths of |forecasts - outcomes|, of both kinds
        self.row: bytes | None = None  # the bank's row, between the store and the bank only
        self.monitor: bytes | None = None
        self.is_new = True

    def learn(self, record: Record, now: float) -> None:
        """Add a learnt outcome to the sums."""
        sums, y = self.sums, float(record.outcome or 0)
        score, forecast = record.score, record.forecast
        sums[RAW_LOG_LOSS] += log_loss(score, y)
        sums[LOG_LOSS] += log_loss(forecast, y)
        sums[RAW_BRIER] += (score - y) ** 2
        sums[BRIER] += (forecast - y) ** 2
        for kind, p in ((CALIBRATED, forecast), (RAW, score)):
            at = TENTHS + 30 * kind + 3 * tenth(p)
            before = abs(sums[at + 1] - sums[at + 2])
            sums[at] += 1.0
            sums[at + 1] += p
            sums[at + 2] += y
            self.gaps[kind] += abs(sums[at + 1] - sums[at + 2]) - before
        sums[DELAYS + min(DELAY_COUNT - 1, int(max(0.0, now - record.time)).bit_length())] += 1.0

    def restore(self, sums: bytes) -> None:
        """The sums as they are stored."""
        self.sums = array("d", sums)
        self.gaps = [gap_of(self.sums, CALIBRATED), gap_of(self.sums, RAW)]

    def error(self, kind: int) -> float | None:
        """The calibration error over tenths, of the forecasts (CALIBRATED) or the scores (RAW); None if unknown."""
        return max(0.0, self.gaps[kind]) / self.outcomes if self.outcomes else None


def gap_of(sums: array[float], kind: int) -> float:
    """The sum over tenths of the distance between forecasts and outcomes."""
    first = TENTHS + 30 * kind
    return sum(abs(sums[at + 1] - sums[at + 2]) for at in range(first, first + 30, 3))


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


Rollups = dict[tuple[int, int, int, int], list[float]]  # stream, hour, kind, tenth -> the five numbers below
FORECASTS, OUTCOMES, SUM_P, SUM_Y, SUM_LOG_LOSS = range(5)


@dataclass
class Changes:
    """What one group changes in the store; all of it is written in one transaction."""

    inserted: list[Record] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)  # were in the store before
    streams: dict[str, StreamState] = field(default_factory=dict)
    rollups: Rollups = field(default_factory=lambda: defaultdict(lambda: [0.0] * 5))
    alarms: list[Alarm] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.inserted or self.settled or self.streams or self.corrections)


def roll_up_forecast(rollups: Rollups, record: Record) -> None:
    """Count a forecast in its hour, under the tenth of the score and of what was told."""
    hour = int(record.time // HOUR)
    rollups[record.stream, hour, CALIBRATED, tenth(record.forecast)][FORECASTS] += 1.0
    rollups[record.stream, hour, RAW, tenth(record.score)][FORECASTS] += 1.0


def roll_up_outcome(rollups: Rollups, record: Record) -> None:
    """Count a learnt outcome in the hour of its forecast."""
    hour, y = int(record.time // HOUR), float(record.outcome or 0)
    for kind, p in ((CALIBRATED, record.forecast), (RAW, record.score)):
        sums = rollups[record.stream, hour, kind, tenth(p)]
        sums[OUTCOMES] += 1.0
        sums[SUM_P] += p
        sums[SUM_Y] += y
        sums[SUM_LOG_LOSS] += log_loss(p, y)
