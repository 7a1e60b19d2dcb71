"""What is read from the store: for the GET routes, the dashboard, `/metrics` and the tokens. The SQL of both databases.

Everything comes from the rows of streams, found by an index, from the totals and from the hourly roll-ups. Neither the
table of events nor that of streams is ever scanned; a search by a part of the name reads all names.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import numpy as np

from calibeat._util.types import Vector
from calibeat.core.band import Estimate
from calibeat.core.method import Method, method_named, params_of, params_of_rows
from calibeat.errors import InvalidInput
from calibeat.hosts.calibrator import with_band
from calibeat.hosts.groups import SLOT, Groups, GroupTable
from calibeat.metrics import calibration_error_of_gaps, wilson
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import readings as monitor_readings
from calibeat.service import notices
from calibeat.service.events import Refusal
from calibeat.service.model import Model
from calibeat.service.ops import CORRECT, FORGET
from calibeat.service.patterns import condition, matches
from calibeat.service.shape import Shape, estimate_of
from calibeat.service.states import (
    ALARMED,
    CORRECTING,
    NEED_A_PERSON,
    base_sql,
    is_about_us,
    severity_sql,
    state_of,
    state_sql,
)
from calibeat.service.watch import NOTICED, SEGMENT

from .types import (
    ASSUMED,
    CALIBRATED_KIND,
    DELAY_COUNT,
    DELAYS,
    EXPIRED,
    FROZEN,
    HELD,
    HOUR,
    LATE,
    LEARNT,
    PASSTHROUGH,
    PENDING,
    RAW_KIND,
    SUMS,
    TENTHS,
    WAITING,
    AlarmInfo,
    stored_cells,
    stored_names,
)

# ---- the whole store, and lists of streams --------------------------------------------------------------------------
#
# Both read the rows of all streams, which are narrow for that. What is large, such as states, is in other tables.

# Corrections, and requests to forget, of which the state of their stream does not know yet.
_IS_WAITING = f"c.kind IN ({CORRECT}, {FORGET}) AND c.corrects IS NOT NULL AND c.position > {{}}.applied"
_NOTED = (
    f"(SELECT n.stream, min(n.severity) AS severity FROM (SELECT a.stream, {severity_sql('a.what')} AS severity "  # noqa: S608
    f"FROM alarm a WHERE a.ended IS NULL AND {is_about_us('a.what')} UNION ALL "
    f"SELECT c.stream, {CORRECTING} FROM op c JOIN stream t ON t.number = c.stream WHERE {_IS_WAITING.format('t')}) n "
    "GROUP BY n.stream)"
)
_STREAMS = f"stream s LEFT JOIN {_NOTED} n ON n.stream = s.number"
_BASE = base_sql("s.")
ORDERS = ("name", "events", "attention")
# Order -> its keys, smallest first; streams with equal keys are in the order of their names. "attention" is open
# alarms, the worst first, then streams without a single outcome, then what miscalibration costs: outcomes x squared
# error, as the Brier score counts it.
_KEYS: dict[str, tuple[str, ...]] = {
    "name": (),
    "events": ("-s.events",),
    "attention": (
        f"CASE WHEN n.severity <= {ALARMED} THEN n.severity WHEN {_BASE} <> 'no outcomes' THEN 99 ELSE 98 END",
        "-coalesce(s.error * s.error * s.outcomes, 0)",
        "-s.pending",
    ),
}
_COUNTS = ("streams", "events", "outcomes", "pending", "held", "expired", "alarms", "judged")
# The losses are sums over the events that outcomes stand for. The errors are those of the streams, times the outcomes
# that each stream has.
_SUMS = ("raw_log_loss", "log_loss", "weights", "raw_error", "error")
_TOTALS = (
    "SELECT count(*), coalesce(sum(events), 0), coalesce(sum(outcomes), 0), coalesce(sum(pending), 0), "
    "coalesce(sum(held), 0), coalesce(sum(expired), 0), coalesce(sum(alarms), 0), "
    "coalesce(sum(CASE WHEN error IS NULL THEN 0 ELSE outcomes END), 0), coalesce(sum(raw_log_loss), 0), "
    "coalesce(sum(log_loss), 0), coalesce(sum(weights), 0), "
    "coalesce(sum(raw_error * outcomes), 0), coalesce(sum(error * outcomes), 0) "
    "FROM stream WHERE events > 0"
)
_BASES = f"SELECT {_BASE}, count(*) FROM stream s WHERE s.events > 0 GROUP BY 1"  # noqa: S608 - our own text
_OF_NOTED = (
    f"SELECT {_BASE}, n.severity, count(*) FROM {_NOTED} n JOIN stream s ON s.number = n.stream "  # noqa: S608
    "WHERE s.events > 0 GROUP BY 1, 2"
)


def totals_of(select: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, float]:
    """The sums over all streams, by their names."""
    row = select(_TOTALS)[0]
    return {
        name: float(value) if name in _SUMS else int(value) for name, value in zip(_COUNTS + _SUMS, row, strict=True)
    }


def state_counts(reader: Reader, *, is_monitored: bool) -> Counter[str]:
    """How many streams are in each state. Few have a note: they are taken out of those without one."""
    counts = Counter[str]()
    for base, count in reader.select(_BASES):
        counts[state_of(base, None, is_monitored=is_monitored)] += count
    for base, severity, count in reader.select(_OF_NOTED):
        counts[state_of(base, None, is_monitored=is_monitored)] -= count
        counts[state_of(base, severity, is_monitored=is_monitored)] += count
    return +counts


# ---- answers --------------------------------------------------------------------------------------------------------

MAX_LIMIT = 1000
MAX_HOURS = 10_000  # of one answer: fourteen months
DAY_SECONDS = 86_400.0
CLASS_EVENTS = 5_000  # outcomes that the classes of a stream are judged by,
CLASS_REACH = 50_000  # among so many forecasts
_NOTE = (
    f"coalesce((SELECT min({severity_sql('n.what')}) FROM alarm n "  # noqa: S608
    f"WHERE n.stream = s.number AND n.ended IS NULL AND {is_about_us('n.what')}), "
    f"(SELECT min({CORRECTING}) FROM op c WHERE c.stream = s.number AND {_IS_WAITING.format('s')}))"
)
_COUNTED_OF_STREAM = (
    "s.name, s.events, s.outcomes, s.pending, s.alarms, s.last_time, s.error, s.raw_error, s.raw_log_loss, s.log_loss, "
    "(SELECT min(time) FROM event e WHERE e.status = 0 AND e.stream = s.number), s.held, s.expired, s.mode, "
    "s.weights"
)
_NUMBERS = f"{_COUNTED_OF_STREAM}, {_BASE}, {_NOTE}"  # see `_numbers_of` and `_mode_of`
_WAITING = f"(SELECT count(*) FROM op c WHERE c.stream = s.number AND {_IS_WAITING.format('s')})"  # noqa: S608
# What is to be forgotten is seen by nobody any more.
_OF_EVENT = f"FROM op c WHERE c.stream = e.stream AND c.nth = e.nth AND {_IS_WAITING.format('s')}"
_IS_KEPT = f"NOT EXISTS (SELECT 1 {_OF_EVENT} AND c.kind = {FORGET})"
_EVENT_INFO = (
    "SELECT e.id, e.time, e.status, o.x, o.told, o.given, o.issued, e.outcome, e.weight, e.trials, "  # noqa: S608
    "e.outcome_time, h.text, o.band, k.position, k.x, k.weight, k.trials "
    "FROM event e JOIN op o ON o.position = e.position JOIN stream s ON s.number = e.stream "
    "LEFT JOIN shape h ON h.stream = e.stream "
    f"LEFT JOIN op k ON k.position = (SELECT max(c.position) {_OF_EVENT} AND c.kind = {CORRECT}) "
)
STATUS = {
    PENDING: "pending",
    HELD: "held",
    LEARNT: "learnt",
    EXPIRED: "expired",
    ASSUMED: "assumed",
    LATE: "late",
    WAITING: "held",  # as its sender was told
}
SELECT_ALARMS = (
    "SELECT a.at, a.since, a.what, a.page, a.number, s.name, a.time, "  # noqa: S608 - our own text
    f"CASE WHEN a.part = {NOTICED} THEN a.since ELSE e.time END, a.ended, a.part, a.detail, a.acknowledged, "
    "a.acknowledged_by FROM alarm a JOIN stream s ON s.number = a.stream "
)


@dataclass(frozen=True, kw_only=True)
class StreamNumbers:
    """One stream in a list. Losses are means over learnt outcomes; None before the first one."""

    name: str
    events: int
    outcomes: int
    pending: int
    oldest_pending: float | None  # seconds since 1970
    alarms: int
    last_event: float | None
    raw_log_loss: float | None
    log_loss: float | None
    raw_error: float | None  # calibration error over tenths
    error: float | None


@dataclass(frozen=True, kw_only=True)
class StreamInfo(StreamNumbers):
    """One stream in numbers. Losses are means over learnt outcomes; None before the first one."""

    held: int
    expired: int
    state: str = "learning"  # one of `states.STATES`
    frozen: bool = False
    passthrough: bool = False
    corrections: int = 0  # that wait to be applied
    progress: float | None = None  # of what is being applied now: the share that is done
    params: dict[str, float] = field(default_factory=dict)
    monitor: dict[str, Any] | None = None
    notice: dict[str, Any] | None = None  # its state in a word, what is watched by now, when it is asked next
    watched: bool = False  # whether anything could be noticed by now
    watching: str = ""  # what, and what not, in words
    classes: int | list[str] | None = None  # how many, or their names; None: two, without names
    groups: dict[str, Any] | None = None  # attributes, crossings, cells, names
    models: list[str] | None = None  # of several models their names
    kept: dict[str, float] | None = None  # the shares of ones and zeros that the log kept


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The events of a stream that share the value of an attribute, or of a pair of them."""

    attribute: str
    value: Any  # of a pair a list; the hash of the value, where names are not kept
    events: int
    ones: int
    rate: float
    mean_score: float
    mean_forecast: float
    offset: float  # in logits, beside what all events share
    sd: float
    log_e: float  # the evidence that forecasts are wrong there, as the logarithm of an e-value
    flagged: bool  # shown to be miscalibrated, at a false discovery rate of 5 %
    whole: bool  # False: cells were forgotten, and this one may have begun late


@dataclass(frozen=True, kw_only=True)
class ClassInfo:
    """One of many classes, over the latest outcomes of its stream: what was said of it, and how often it came."""

    label: Any  # its name, or its number
    events: int
    labels: int  # how often it came
    rate: float
    mean_score: float
    mean_forecast: float
    raw_error: float  # calibration error over tenths
    error: float
    count: list[int]  # by the tenth of the forecast, and the means there
    forecast: list[float | None]
    outcome: list[float | None]


@dataclass(frozen=True)
class Bin:
    """A tenth: how many learnt outcomes, the sum of their forecasts, the sum of the outcomes.

    The sums are over the events that the outcomes stand for, `weight` in all.
    """

    tenth: int
    count: int
    sum_p: float
    sum_y: float
    weight: float = 0.0


@dataclass(frozen=True)
class Reliability:
    """Ten bins each, of what was told and of the scores."""

    calibrated: list[Bin]
    raw: list[Bin]


@dataclass(frozen=True)
class Hour:
    """One hour of a stream, by the time of the forecasts. The sums are over the events that outcomes stand for."""

    start: float  # seconds since 1970
    forecasts: int
    outcomes: int
    sum_forecast: float  # of forecasts whose outcome is learnt
    sum_score: float
    sum_outcome: float
    log_loss: float
    raw_log_loss: float
    weight: float = 0.0  # how many these are


@dataclass(frozen=True)
class AlarmRow(AlarmInfo):
    """An alarm: what is wrong, in which stream, since when, and when it was raised."""

    acknowledged: float | None = None  # when somebody began to look after it
    acknowledged_by: str | None = None


@dataclass(frozen=True)
class EventInfo:
    """One event: the score, what was told for it, and what is known since.

    `status` is pending, learnt, held (until it is mature, or its stream is resumed), expired, late or assumed.
    `corrected` says that the outcome stands here as it was corrected, and that the stream has still to learn it so.
    Of classes there are scores, probabilities and a label in the place of score, probability and outcome. Of several
    models there are scores, and of an outcome of many events `ones` and `of`. With a band the forecast has `low`,
    `high`, `outcomes` and `reason`.
    """

    id: str
    time: float  # seconds since 1970
    status: str
    score: float | None = None
    probability: float | None = None
    outcome: int | None = None
    outcome_time: float | None = None
    corrected: bool = False
    scores: list[float] | dict[str, float] | None = None
    probabilities: list[float] | dict[str, float] | None = None
    label: Any = None
    weight: float | None = None
    ones: int | None = None
    of: int | None = None
    low: float | None = None
    high: float | None = None
    outcomes: float | None = None
    reason: str | None = None


def _event_info(row: tuple[Any, ...]) -> EventInfo:
    """A row of `_EVENT_INFO`."""
    name, time, status, score, forecast, given, issued, y, weight, trials, outcome_time, text, band, *later = row
    correction, *corrected = later
    shape, is_corrected = Shape.from_text(text), correction is not None
    if is_corrected:
        y, weight, trials = corrected
        y = None if y is None else int(y)
    known: dict[str, Any] = {"weight": weight}
    if trials is not None:
        y, known = None, {"weight": weight, "ones": y, "of": trials}
    if band is not None:
        known |= vars_of(estimate_of(forecast, bytes(band)))
    if shape.models is not None:
        found = np.frombuffer(bytes(given)).tolist()
        known["scores"] = {
            model: None if s != s else s  # noqa: PLR0124 - NaN
            for model, s in zip_longest(shape.models.names, found, fillvalue=np.nan)
        }
        score = None
    if shape.classes is None:
        return EventInfo(name, time, STATUS[status], score, forecast, y, outcome_time, is_corrected, **known)
    told, scores = [1.0 - forecast, forecast], [1.0 - score, score]
    if issued is not None:
        told, scores = np.frombuffer(bytes(issued)).tolist(), np.frombuffer(bytes(given)).tolist()
    is_list = isinstance(shape.classes.given, int)
    return EventInfo(
        *(name, time, STATUS[status], None, None, None, outcome_time, is_corrected),
        scores=scores if is_list else shape.by_class(scores),
        probabilities=told if is_list else shape.by_class(told),
        label=shape.label(y),
        **known,
    )


def vars_of(estimate: Estimate) -> dict[str, Any]:
    """What a forecast says of how sure it is, by name."""
    return {name: getattr(estimate, name) for name in ("low", "high", "outcomes", "reason")}


@dataclass(frozen=True)
class Delay:
    """How many outcomes came within so many seconds and not within half of it."""

    within: float
    count: int


@dataclass(frozen=True)
class Totals:
    """The whole store in numbers."""

    streams: int
    events: int
    outcomes: int
    pending: int
    held: int
    expired: int
    alarms: int
    oldest_pending: float | None
    raw_log_loss: float | None  # means over all learnt outcomes
    log_loss: float | None


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    name: str
    scope: str
    hash: str
    created: float
    revoked: float | None = None
    streams: tuple[str, ...] = ()  # patterns; none: all streams
    expires: float | None = None


class Reader:
    """Read-only answers for the GET routes, and the table of tokens.

    Any thread may use it; calls wait for each other.
    """

    def __init__(self, connection: Any, writer: Callable[[], Any]) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.outages: tuple[type[Exception], ...] = connection.outages
        self.tokens = Tokens(self.select, writer)
        self._writer = writer
        self._trends: dict[int, tuple[float, Trend]] = {}  # number of a stream -> when it was made, and the trend

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def select(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        with self._lock:
            found: list[tuple[Any, ...]] = self._connection.all(statement, arguments)
            return found

    def change(self, change: Callable[[Any], Any]) -> Any:
        """Change what is no event, such as who looks after an alarm, over a connection of its own."""
        with closing(self._writer()) as writer:
            return change(writer)

    def meta(self) -> dict[str, str]:
        """What the store knows of itself, as `schema.get_meta`."""
        return {str(name): str(value) for name, value in self.select("SELECT name, value FROM meta")}

    # ---- streams ----------------------------------------------------------------------------------------------------

    def streams(
        self,
        after: str | None = None,
        limit: int = 100,
        order: str = "name",
        search: str | None = None,
        among: Sequence[str] = (),
        state: str | None = None,
    ) -> list[StreamInfo]:
        """Some streams in an order of `ORDERS`; `after` is the name of the last one of the page before.

        `among` are patterns of names; without any, all streams are listed; with a `state` those that are in it.
        """
        if order not in ORDERS:
            raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        limit, is_monitored = max(1, min(MAX_LIMIT, limit)), self.is_monitored()
        where, arguments = _fitting(search, state, among, is_monitored=is_monitored)
        rows = self.listed(_NUMBERS, order, where, arguments, limit, after=after)
        return [
            StreamInfo(**_numbers_of(row), held=row[11], expired=row[12], **_mode_of(row, is_monitored=is_monitored))
            for row in rows
        ]

    def is_monitored(self) -> bool:
        """Whether streams have monitors."""
        return self.meta().get("monitor", "null") != "null"

    def listed(
        self,
        columns: str,
        order: str,
        where: str,
        arguments: tuple[Any, ...],
        limit: int,
        *of_columns: Any,
        after: str | None = None,
        skip: int = 0,
    ) -> list[tuple[Any, ...]]:
        """Columns of the streams `s` that fit a condition, in an order, behind a stream or behind so many of them.

        The condition may ask for the note `n` of a stream. Its arguments come behind those of the columns.
        """
        keys = (*_KEYS[order], "s.name")
        # Without the notes the names come from their index.
        source = _STREAMS if any("n.severity" in text for text in (where, *keys)) else "stream s"
        if after is not None:
            every = ", ".join(keys)
            place = [(after,)]
            if len(keys) > 1:
                place = self.select(f"SELECT {every} FROM {source} WHERE s.name = ?", (after,))  # noqa: S608
            if place:  # an unknown name is the start
                where = f"{where} AND ({every}) > ({', '.join('?' for _ in keys)})"
                arguments = (*arguments, *place[0])
        marked = ", ".join(f"{key} AS k{at}" for at, key in enumerate(keys))
        names = ", ".join(f"k{at}" for at in range(len(keys)))
        # The columns are looked up for the page alone.
        return self.select(
            f"SELECT {columns} FROM (SELECT s.number, {marked} FROM {source} WHERE s.events > 0 AND {where} "  # noqa: S608
            f"ORDER BY {names} LIMIT {limit} OFFSET {skip}) p JOIN stream s ON s.number = p.number ORDER BY {names}",
            (*of_columns, *arguments),
        )

    def stream(self, name: str) -> StreamInfo | None:
        """One stream with its parameters, or None."""
        wanted = (
            f"SELECT {_NUMBERS}, b.state, b.monitor, b.notice, f.text, {_WAITING} FROM stream s "  # noqa: S608
            "LEFT JOIN body b ON b.stream = s.number LEFT JOIN shape f ON f.stream = s.number "
            "WHERE s.name = ? AND (s.events > 0 OR f.text IS NOT NULL)"
        )
        rows = self.select(wanted, (name,))
        if not rows:
            return None
        held, expired, *_, state, monitor, notice, text, corrections = rows[0][11:]
        shape, numbers = Shape.from_text(text), _numbers_of(rows[0])
        readings = None if monitor is None else self._monitor(bytes(monitor))
        noticed = None if notice is None else notices.readings(bytes(notice))
        if shape.models is not None:  # there is no raw score
            numbers |= {"raw_log_loss": None, "raw_error": None}
        is_seen, words = notices.watch_over(noticed, readings, numbers["outcomes"])
        return StreamInfo(
            **numbers,
            held=held,
            expired=expired,
            **_mode_of(rows[0], is_monitored=self.is_monitored()),
            corrections=corrections,
            params={} if state is None else self._params(bytes(state), shape),
            monitor=readings,
            notice=noticed,
            watched=is_seen,
            watching=words,
            **shape.described(),
        )

    def _params(self, state: bytes, shape: Shape) -> dict[str, float]:
        method: Any = shape.method_of(_method_in(self.meta()))
        row = np.frombuffer(state)
        if shape.models is not None:
            return _params_of(method, shape, row)
        columns = params_of_rows(method, row[None, : method.width])
        params = {name: float(column[0]) for name, column in columns.items()}
        if shape.is_wide:
            found = _params_of(method, shape, row)
            params |= {part: found[part] for part in found if part.startswith(("bias ", "groups "))}
        return params

    def segments(self, name: str, least: int = 100) -> list[Segment] | None:
        """The segments of a stream with groups that have so many outcomes, best evidence first; None: no such stream.

        Raises
        ------
        Refusal : the stream has no groups.
        """
        rows = self.select(
            "SELECT s.number, b.state, f.text FROM stream s LEFT JOIN body b ON b.stream = s.number "
            "LEFT JOIN shape f ON f.stream = s.number WHERE s.name = ?",
            (name,),
        )
        if not rows:
            return None
        number, state, text = rows[0]
        shape = Shape.from_text(text)
        if shape.groups is None:
            raise Refusal(
                "no_groups", f"segments must be those of groups, got {name!r:.60}, which has none", "stream", 404
            )
        return self._segments(number, bytes(state), shape, shape.groups, least)

    def _segments(self, number: int, state: bytes, shape: Shape, groups: Groups, least: int) -> list[Segment]:
        table = GroupTable(groups, shape.method_of(_method_in(self.meta())))
        if shape.known:
            table.maker._know(shape.known)  # noqa: SLF001 - as a calibrator does it
        with self._lock:
            cells = stored_cells(self._connection, number)
            names = stored_names(self._connection, number) if groups.names else []
        slots = np.array([slot for slot, _ in cells], dtype=np.int64)
        table.write_slots(slots, np.frombuffer(b"".join(held for _, held in cells), dtype=SLOT))
        table.maker.book = {word & _WORD: value for word, _, value in names}
        found = table.segments(np.frombuffer(state)[: table.width], least)
        columns = [part.name for part in fields(Segment)]
        rows = zip(*(_plain(found[column]) for column in columns), strict=True)
        return [Segment(**dict(zip(columns, row, strict=True))) for row in rows]

    def classes(self, name: str) -> list[ClassInfo] | None:
        """The classes of a stream over its latest outcomes, the commonest first; None: no such stream, or one score."""
        rows = self.select(
            "SELECT s.number, s.events, f.text FROM stream s LEFT JOIN shape f ON f.stream = s.number WHERE s.name = ?",
            (name,),
        )
        if not rows:
            return None
        number, events, text = rows[0]
        shape = Shape.from_text(text)
        if shape.numbers <= 1 or shape.classes is None:
            return None
        latest = self.select(
            "SELECT given, issued, outcome FROM event e JOIN op o ON o.position = e.position "  # noqa: S608 - our own numbers
            "WHERE e.stream = ? AND e.nth >= ? "
            f"AND status IN ({LEARNT}, {ASSUMED}, {LATE}) ORDER BY e.nth DESC LIMIT {CLASS_EVENTS}",
            (number, events - CLASS_REACH),
        )
        return _class_infos(shape.classes.labels, latest)

    def _monitor(self, state: bytes) -> dict[str, Any]:
        arl = json.loads(self.meta()["monitor"])
        found = monitor_readings(Settings(arl), state) if arl is not None else {}
        return {name: None if value != value else value for name, value in found.items()}  # noqa: PLR0124 - NaN

    def _number(self, name: str) -> int | None:
        rows = self.select("SELECT number FROM stream WHERE name = ?", (name,))
        return int(rows[0][0]) if rows else None

    # ---- over time --------------------------------------------------------------------------------------------------

    def reliability(self, name: str, start: float | None = None, end: float | None = None) -> Reliability | None:
        """Bins of the forecasts made from `start` to `end`, seconds since 1970, by whole hours."""
        number = self._number(name)
        if number is None:
            return None
        rows = self.select(
            "SELECT kind, tenth, sum(outcomes), sum(sum_p), sum(sum_y), sum(weight) FROM rollup "
            "WHERE stream = ? AND hour >= ? AND hour <= ? GROUP BY kind, tenth",
            (number, *_hours(start, end)),
        )
        found = {(kind, tenth): (int(count), *sums) for kind, tenth, count, *sums in rows}
        none = 0, 0.0, 0.0, 0.0
        bins = [[Bin(t, *found.get((kind, t), none)) for t in range(10)] for kind in (CALIBRATED_KIND, RAW_KIND)]
        return Reliability(*bins)

    def history(
        self, name: str, start: float | None = None, end: float | None = None, limit: int = MAX_HOURS
    ) -> list[Hour] | None:
        """The first hours of a stream in order, those without an event left out."""
        number = self._number(name)
        if number is None:
            return None
        rows = self.select(
            "SELECT hour, sum(CASE WHEN kind = 0 THEN forecasts ELSE 0 END), "
            "sum(CASE WHEN kind = 0 THEN outcomes ELSE 0 END), sum(CASE WHEN kind = 0 THEN sum_p ELSE 0 END), "
            "sum(CASE WHEN kind = 1 THEN sum_p ELSE 0 END), sum(CASE WHEN kind = 0 THEN sum_y ELSE 0 END), "
            "sum(CASE WHEN kind = 0 THEN log_loss ELSE 0 END), sum(CASE WHEN kind = 1 THEN log_loss ELSE 0 END), "
            "sum(CASE WHEN kind = 0 THEN weight ELSE 0 END) "
            "FROM rollup WHERE stream = ? AND hour >= ? AND hour <= ? GROUP BY hour ORDER BY hour LIMIT ?",
            (number, *_hours(start, end), limit),
        )
        return [Hour(hour * HOUR, int(made), int(learnt), *sums) for hour, made, learnt, *sums in rows]

    def trends(self, streams: Sequence[int], now: float) -> dict[int, Trend]:
        """The last days of some streams, at most a minute old: late outcomes change all of them."""
        kept = self._trends
        due = [number for number in streams if number not in kept or not 0 <= now - kept[number][0] < TREND_SECONDS]
        first, rows = int(now // DAY_SECONDS) - TREND_DAYS + 1, list[tuple[Any, ...]]()
        if due:
            rows = self.select(
                "SELECT stream, hour / 24, sum(forecasts), sum(outcomes), sum(log_loss), sum(weight) FROM rollup "  # noqa: S608
                f"WHERE stream IN ({', '.join('?' for _ in due)}) AND hour >= ? AND hour < ? "
                f"AND kind = {CALIBRATED_KIND} GROUP BY 1, 2",
                (*due, 24 * first, 24 * (first + TREND_DAYS)),
            )
        days = {(stream, day): numbers for stream, day, *numbers in rows}
        for number in due:
            found = [days.get((number, first + at), (0, 0, 0.0, 0.0)) for at in range(TREND_DAYS)]
            trend = Trend(
                [int(made) for made, *_ in found],
                [int(learnt) for _, learnt, *_ in found],
                [loss / weight if weight else None for *_, loss, weight in found],
            )
            kept[number] = (now, trend)
        trends = {number: kept[number][1] for number in streams}
        while len(kept) > TRENDS_KEPT:
            del kept[next(iter(kept))]
        return trends

    def delays(self, name: str) -> list[Delay] | None:
        """How late the outcomes of a stream came, in powers of two seconds."""
        rows = self.select("SELECT sums FROM stream LEFT JOIN body ON stream = number WHERE name = ?", (name,))
        if not rows:
            return None
        counts = array("d", bytes(rows[0][0] or bytes(8 * SUMS)))[DELAYS : DELAYS + DELAY_COUNT]
        return [Delay(2.0**at, int(count)) for at, count in enumerate(counts) if count]

    def alarms(
        self,
        limit: int = 100,
        stream: str | None = None,
        open: bool | None = None,  # noqa: A002 - the word of the parameter
        among: Sequence[str] = (),
    ) -> list[AlarmRow]:
        """The latest alarms, the newest first: of one stream, those that are open or over, of some streams."""
        where, arguments = condition("s.name", among)
        if stream is not None:
            where, arguments = f"{where} AND s.name = ?", (*arguments, stream)
        if open is not None:
            where += f" AND a.ended IS {'' if open else 'NOT '}NULL"
        return alarm_rows(self.select, f"WHERE {where}", arguments, max(1, min(MAX_LIMIT, limit)))

    # ---- events -----------------------------------------------------------------------------------------------------

    def event(self, name: str, id: str) -> EventInfo | None:  # noqa: A002 - the word of the service
        """One event, or None: what was told, and what is known since."""
        rows = self.select(f"{_EVENT_INFO}WHERE s.name = ? AND e.id = ? AND {_IS_KEPT}", (name, id))
        return _event_info(rows[0]) if rows else None

    def events(self, name: str, after: str | None = None, limit: int = 100) -> list[EventInfo] | None:
        """Some events of a stream in the order of their forecasts, behind that of the id `after`; None: no stream."""
        number, first = self._number(name), -1
        if number is None:
            return None
        if after is not None:
            found = self.select("SELECT nth FROM event WHERE stream = ? AND id = ?", (number, after))
            if not found:
                raise Refusal(
                    "unknown", f"after must be the id of an event of this stream, got {after!r:.60}", "after", 404
                )
            first = int(found[0][0])
        rows = self.select(
            f"{_EVENT_INFO}WHERE e.stream = ? AND e.nth > ? AND {_IS_KEPT} ORDER BY e.nth LIMIT ?",
            (number, first, max(1, min(MAX_LIMIT, limit))),
        )
        return [_event_info(row) for row in rows]

    def known(self, events: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of some events that there are: (stream, id)."""
        found = "SELECT 1 FROM event e JOIN stream s ON s.number = e.stream WHERE s.name = ? AND e.id = ?"
        return {event for event in events if self.select(found, event)}

    def oldest_pending(self) -> float | None:
        """When the oldest forecast without an outcome was made, in seconds since 1970."""
        found: float | None = self.select("SELECT min(time) FROM event WHERE status = 0")[0][0]
        return found

    def totals(self) -> Totals:
        """The whole store."""
        found = totals_of(self.select)
        weights = found["weights"]
        counts = {name: int(found[name]) for name in _COUNTS if name != "judged"}
        means = {name: found[name] / weights if weights else None for name in ("raw_log_loss", "log_loss")}
        return Totals(**counts, **means, oldest_pending=self.oldest_pending())  # type: ignore[arg-type]

    def version(self) -> int:
        """A number that changes with every commit."""
        with self._lock:
            return int(self._connection.version())

    def interrupt(self) -> None:
        """End the statement that runs now, from another thread: its caller gets an error."""
        self._connection.interrupt()

    def ping(self) -> None:
        """Raise if the store cannot be read."""
        self.select("SELECT 1 FROM meta LIMIT 1")


_WORD = 0xFFFFFFFFFFFFFFFF


def _method_in(meta: Mapping[str, str]) -> Method:
    """The method of a store."""
    return with_band(method_named(meta["method"]), json.loads(meta["band"]))


def _plain(column: Any) -> list[Any]:
    """A column of segments as JSON has it: pairs are lists."""
    return [list(value) if isinstance(value, tuple) else value for value in column.tolist()]


def _class_infos(labels: Sequence[Any], rows: list[tuple[Any, ...]]) -> list[ClassInfo]:
    """Scores, forecasts and labels of some events, class by class."""
    if not rows:
        return []
    given, issued = (np.frombuffer(b"".join(bytes(row[at]) for row in rows)).reshape(len(rows), -1) for at in (0, 1))
    came = np.array([row[2] for row in rows])[:, None] == np.arange(len(labels))
    made = []
    for at, label in enumerate(labels):
        said, hit, tenth = issued[:, at], came[:, at].astype(float), np.minimum(9, (10 * issued[:, at]).astype(int))
        count = np.bincount(tenth, minlength=10)
        made.append(
            ClassInfo(
                label=label,
                events=len(rows),
                labels=int(hit.sum()),
                rate=float(hit.mean()),
                mean_score=float(given[:, at].mean()),
                mean_forecast=float(said.mean()),
                raw_error=_error(given[:, at], hit),
                error=_error(said, hit),
                count=count.tolist(),
                forecast=_means(np.bincount(tenth, said, 10), count),
                outcome=_means(np.bincount(tenth, hit, 10), count),
            )
        )
    return sorted(made, key=lambda one: -one.labels)


def _means(sums: Any, count: Any) -> list[float | None]:
    return [float(total) / int(n) if n else None for total, n in zip(sums, count, strict=True)]


def _error(said: Vector, hit: Vector) -> float:
    """The calibration error over tenths."""
    gaps = np.bincount(np.minimum(9, (10 * said).astype(int)), said - hit, 10)
    return float(calibration_error_of_gaps(gaps, np.array(float(len(said)))))


def matching(column: str, search: str | None, among: Sequence[str] = ()) -> tuple[str, tuple[Any, ...]]:
    """The condition for names that hold a text, among some patterns, and its arguments. Without a text, all do.

    The case of ASCII letters is ignored: LIKE by itself does so in SQLite only, and `lower` does no more than that in
    either.
    """
    wanted, arguments = condition(column, among)
    if not search:
        return wanted, arguments
    literal = search.encode().lower().decode().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{wanted} AND lower({column}) LIKE ? ESCAPE '\\'", (*arguments, f"%{literal}%")


def _numbers_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row of `_NUMBERS` as the fields that a list and the screen of one stream share."""
    name, events, outcomes, pending, alarms, last, error, raw_error, raw_log_loss, log_loss, oldest = row[:11]
    weights = row[14]
    return {
        "name": name,
        "events": events,
        "outcomes": outcomes,
        "pending": pending,
        "alarms": alarms,
        "oldest_pending": oldest,
        "last_event": last or None if events else None,
        "raw_log_loss": raw_log_loss / weights if weights else None,
        "log_loss": log_loss / weights if weights else None,
        "raw_error": raw_error,
        "error": error,
    }


def _mode_of(row: tuple[Any, ...], *, is_monitored: bool) -> dict[str, Any]:
    """A row of `_NUMBERS`: the state of the stream, and how it forecasts and learns now."""
    mode, _, base, severity = row[13:17]
    state = state_of(base, severity, is_monitored=is_monitored)
    return {"state": state, "frozen": bool(mode & FROZEN), "passthrough": bool(mode & PASSTHROUGH)}


def _hours(start: float | None, end: float | None) -> tuple[int, int]:
    return (0 if start is None else int(start // HOUR)), (2**40 if end is None else int(end // HOUR))


class Tokens:
    """The table of tokens. It takes and gives hashes only."""

    def __init__(self, read: Callable[[str], list[tuple[Any, ...]]], writer: Callable[[], Any]) -> None:
        self._read, self._writer = read, writer

    def _run(self, statement: str, arguments: tuple[Any, ...] = ()) -> int:
        with closing(self._writer()) as writer:
            return int(writer.run(statement, arguments))

    def add(
        self,
        name: str,
        scope: str,
        hash: str,  # noqa: A002 - the word of the table
        streams: Sequence[str] = (),
        expires: float | None = None,
    ) -> None:
        """A new token: for some streams only, until a time.

        Raises
        ------
        InvalidInput : the name is taken.
        """
        columns = "name, scope, hash, created, streams, expires"
        insert = f"INSERT INTO token ({columns}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"  # noqa: S608
        if self._run(insert, (name, scope, hash, time.time(), json.dumps(list(streams)), expires)) != 1:
            revoked = any(token.name == name and token.revoked is not None for token in self.list())
            taken = "a revoked token has" if revoked else "is taken"
            raise InvalidInput(f"token must have a name of its own, got {name!r}, which {taken}")

    def list(self) -> list[Token]:
        """All tokens, also revoked ones, the oldest first."""
        columns = "name, scope, hash, created, revoked, streams, expires"
        rows = self._read(f"SELECT {columns} FROM token ORDER BY created, name")  # noqa: S608 - our own columns
        return [
            Token(name, scope, digest, created, revoked, tuple(json.loads(streams)), expires)
            for name, scope, digest, created, revoked, streams, expires in rows
        ]

    def revoke(self, name: str) -> bool:
        """Revoke a token -> whether there was one that was valid."""
        update = "UPDATE token SET revoked = ? WHERE name = ? AND revoked IS NULL"
        return bool(self._run(update, (time.time(), name)))


def _fitting(
    search: str | None, state: str | None, among: Sequence[str] = (), *, is_monitored: bool
) -> tuple[str, tuple[Any, ...]]:
    """The condition for streams whose names hold a text, and that are in a state; and its arguments."""
    where, arguments = matching("s.name", search, among)
    if state is None:
        return where, arguments
    return f"{where} AND {state_sql('s.', 'n.severity', is_monitored=is_monitored)} = ?", (*arguments, state)


# ---- the first screen of the dashboard ------------------------------------------------------------------------------

FRESH_SECONDS = 7 * 86_400.0  # how long an alarm ranks a stream first in the order of alarms
PAGE_ROWS = 25
MAX_PAGES = 1_000_000
LATEST_ALARMS = 3
TREND_DAYS = 28
TREND_SECONDS = 60.0  # how old the trend of a stream may be
TRENDS_KEPT = 1_000
_FRESH = f"a.time >= ? AND {is_about_us('a.what')}"
_PAGE_ROW = f"{_NUMBERS}, s.number, (SELECT count(*) FROM alarm a WHERE a.stream = s.number AND {_FRESH})"  # noqa: S608


@dataclass(frozen=True)
class Trend:
    """The last days of a stream, by the time of the forecasts; the last one is today. Days are those of UTC."""

    forecasts: list[int]
    outcomes: list[int]
    log_loss: list[float | None]  # means of what was told


@dataclass(frozen=True, kw_only=True)
class StreamRow(StreamNumbers):
    """One stream in the list. Losses are means over learnt outcomes; None before the first one."""

    fresh_alarms: int  # of the last seven days
    state: str
    what: str | None  # the worst of its open alarms
    since: float | None  # when that began, in seconds since 1970
    acknowledged: bool  # somebody looks after all of its open alarms
    trend: Trend


@dataclass(frozen=True)
class Look:
    """What to look at first: a stream that needs a person, what has happened, and what to do."""

    stream: str
    state: str
    what: str | None
    since: float | None
    where: str = ""  # the segment or the class, if it is about one
    text: str = ""
    do: str = ""


@dataclass(frozen=True)
class Overview:
    """What the first screen shows."""

    method: str
    monitored: bool
    streams: int
    events: int
    outcomes: int
    pending: int
    oldest_pending: float | None
    fresh_alarms: int
    error: float | None  # means over streams, weighted by outcomes
    raw_error: float | None
    alarms: list[AlarmRow]
    states: dict[str, int]  # streams in each state
    first: Look | None  # the stream that needs a person most
    found: int  # streams that the search and the state match
    page: int
    pages: int
    rows: list[StreamRow]
    needs_token: bool = False  # whether a reader has to log in
    may_write: bool = True  # whether this reader may look after alarms


def overview(
    reader: Reader, now: float, order: str = "attention", search: str = "", page: int = 1, state: str | None = None
) -> Overview:
    """The first screen; `page` counts from 1, one behind the last gives the last."""
    if order not in ORDERS:
        raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    meta, is_monitored, since = reader.meta(), reader.is_monitored(), now - FRESH_SECONDS
    sums, counts = totals_of(reader.select), state_counts(reader, is_monitored=is_monitored)
    judged = sums["judged"]
    where, arguments = _fitting(search, state, is_monitored=is_monitored)
    found = int(sums["streams"]) if state is None else counts[state]
    if search:
        among = f"SELECT count(*) FROM {_STREAMS} WHERE s.events > 0 AND {where}"  # noqa: S608 - our own text
        found = int(reader.select(among, arguments)[0][0])
    pages = max(1, -(-found // PAGE_ROWS))
    page = min(max(1, page), pages)
    rows = reader.listed(_PAGE_ROW, order, where, arguments, PAGE_ROWS, since, skip=(page - 1) * PAGE_ROWS)
    listed = _stream_rows(reader, rows, now, is_monitored=is_monitored)
    fresh = reader.select(f"SELECT count(*) FROM alarm a WHERE {_FRESH}", (since,))[0][0]  # noqa: S608
    return Overview(
        method=meta.get("method", ""),
        monitored=is_monitored,
        streams=int(sums["streams"]),
        events=int(sums["events"]),
        outcomes=int(sums["outcomes"]),
        pending=int(sums["pending"]),
        oldest_pending=reader.oldest_pending(),
        fresh_alarms=int(fresh),
        error=sums["error"] / judged if judged else None,
        raw_error=sums["raw_error"] / judged if judged else None,
        alarms=alarm_rows(reader.select, f"WHERE {is_about_us('a.what')}", (), LATEST_ALARMS),
        states=dict(counts),
        first=_first(reader, counts, now, is_monitored=is_monitored),
        found=found,
        page=page,
        pages=pages,
        rows=listed,
    )


def _stream_rows(reader: Reader, rows: list[tuple[Any, ...]], now: float, *, is_monitored: bool) -> list[StreamRow]:
    trends, alarms = reader.trends([row[-2] for row in rows], now), _open_alarms(reader, [row[-2] for row in rows])
    made = []
    for row in rows:
        numbers, state = _numbers_of(row), _mode_of(row, is_monitored=is_monitored)["state"]
        open_ones = alarms.get(numbers["name"], [])
        worst = open_ones[0] if open_ones else None
        made.append(
            StreamRow(
                **numbers,
                fresh_alarms=int(row[-1]),
                state=state,
                what=worst.what if worst else None,
                since=_since(worst, state, numbers),
                acknowledged=bool(open_ones) and all(alarm.acknowledged is not None for alarm in open_ones),
                trend=trends[row[-2]],
            )
        )
    return made


def _open_alarms(reader: Reader, streams: Sequence[int]) -> dict[str, list[AlarmRow]]:
    """The open alarms of some streams by their names, the worst and oldest first."""
    found: dict[str, list[AlarmRow]] = defaultdict(list)
    if streams:
        where = f"WHERE a.ended IS NULL AND {is_about_us('a.what')} AND a.stream IN ({', '.join('?' for _ in streams)})"
        order = f"{severity_sql('a.what')}, a.number"
        for alarm in alarm_rows(reader.select, where, tuple(streams), MAX_LIMIT, order=order):
            found[alarm.stream].append(alarm)
    return found


def _since(worst: AlarmRow | None, state: str, numbers: dict[str, Any]) -> float | None:
    """Since when a stream is in a state that needs a person."""
    since: float | None = None
    if worst is not None:
        since = worst.time if worst.since_time is None else min(worst.time, worst.since_time)
    elif state == "no outcomes":
        since = numbers["oldest_pending"]
    return numbers["last_event"] if worst is not None and worst.what == "no forecasts" else since


def _first(reader: Reader, counts: Mapping[str, int], now: float, *, is_monitored: bool) -> Look | None:
    """The stream that comes first of those that need a person."""
    if not any(counts[state] > 0 for state in NEED_A_PERSON):
        return None
    rows = reader.listed(_PAGE_ROW, "attention", "TRUE", (), 1, now)
    (row,) = _stream_rows(reader, rows, now, is_monitored=is_monitored)
    return _look(row.name, row.state, row.since, _open_alarms(reader, [rows[0][-2]])[row.name])


def _look(name: str, state: str, since: float | None, alarms: list[AlarmRow]) -> Look:
    """What to look at first in a stream with some open alarms, the worst first."""
    if not alarms:
        return Look(name, state, None, since)
    detail, part = alarms[0].detail, alarms[0].part
    where = "" if detail is None or part == NOTICED else f" {'in' if part == SEGMENT else 'of'} {detail}"
    return Look(name, state, alarms[0].what, since, where)


def alarm_rows(
    select: Callable[[str, Any], list[tuple[Any, ...]]],
    where: str,
    arguments: tuple[Any, ...],
    limit: int,
    *,
    order: str = "a.number DESC",
) -> list[AlarmRow]:
    """Some alarms, the latest first, with the time of the forecast at which the fault began."""
    rows = select(
        SELECT_ALARMS
        # Monitors count outcomes. Forecasts that were given up are spread over them. A notice says the time itself.
        + f"LEFT JOIN event e ON e.stream = a.stream AND e.nth = CASE WHEN a.part = {NOTICED} THEN -1 "
        "ELSE CAST(a.since * (s.events - s.pending - s.held) / nullif(s.outcomes, 0) AS INTEGER) END "
        f"{where} ORDER BY {order} LIMIT {limit}",
        arguments,
    )
    return [AlarmRow(*row[:3], bool(row[3]), *row[4:]) for row in rows]  # type: ignore[call-arg]  # as selected


# ---- the screen of a stream -----------------------------------------------------------------------------------------

SPANS = {"day": 24, "week": 168, "month": 30 * 24, "all": None}  # in hours
WIDTHS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 2688, 8736)  # hours of a point
MOST_POINTS, FEWEST_POINTS = 168, 14  # of a picture
OUTCOMES_PER_POINT = 40  # outcomes of a point, on average
WEEK = 168
MONDAY = 72  # 1970 began on a Thursday: so many hours after a Monday
MOST_WEEKS = 10
MOST_ALARMS = 50
MOST_SEGMENTS = 20
MOST_CLASSES = 24
_MUTED = "SELECT streams FROM mute WHERE until IS NULL OR until > ?"
BINS = 10
GRID = 51
KINDS = {"raw": RAW_KIND, "calibrated": CALIBRATED_KIND}

Number = float | None


@dataclass
class Series:
    """Points in time, those without an event left out. Means are over forecasts whose outcome is learnt."""

    seconds: float  # that a point stands for
    start: list[float] = field(default_factory=list)
    forecasts: list[int] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    forecast: list[Number] = field(default_factory=list)
    score: list[Number] = field(default_factory=list)
    happened: list[Number] = field(default_factory=list)
    low: list[Number] = field(default_factory=list)  # Wilson's 95 % interval of what happened
    high: list[Number] = field(default_factory=list)
    log_loss: list[Number] = field(default_factory=list)
    raw_log_loss: list[Number] = field(default_factory=list)


@dataclass
class Period:
    """A part of the time."""

    label: str
    count: int


@dataclass
class Curve:
    """Ten bins of one kind of forecast in one period."""

    count: list[int]
    forecast: list[Number]
    outcome: list[Number]
    low: list[Number]
    high: list[Number]


@dataclass
class Curves:
    """Reliability as the report draws it: periods, and for each kind a curve in each period."""

    bins: int
    periods: list[Period]
    methods: dict[str, list[Curve]]


@dataclass
class Map:
    """What a score becomes now."""

    score: list[float]
    forecast: list[float]


@dataclass
class View:
    """Everything that the screen of a stream shows."""

    stream: StreamInfo
    method: str
    monitored: bool
    span: str
    series: Series
    reliability: Curves
    params: dict[str, float]
    lanes: dict[str, float]  # weights of the experts that AUTO mixes; empty for other methods
    map: Map | None  # None where a score alone does not say it: of draws, many classes and groups
    delays: list[Delay]
    alarms: list[AlarmRow]
    segments: list[Segment]  # of groups, best evidence first
    classes: list[ClassInfo]  # of more than two, over the latest outcomes, the commonest first
    muted: bool  # its alarms are sent to nobody
    first: Look | None  # what to look at first, if it needs a person
    may_write: bool = True  # whether this reader may look after alarms


def view(reader: Reader, now: float, name: str, span: str = "month") -> View | None:
    """One stream, or None if there is no such stream."""
    if span not in SPANS:
        raise InvalidInput(f"span must be one of {', '.join(SPANS)}, got {span!r}")
    info = reader.stream(name)
    if info is None:
        return None
    meta = reader.meta()
    number, sums, state, text = reader.select(
        "SELECT number, sums, state, text FROM stream LEFT JOIN body ON body.stream = number "
        "LEFT JOIN shape ON shape.stream = number WHERE name = ?",
        (name,),
    )[0]
    shape = Shape.from_text(text)
    first, last = reader.select("SELECT min(hour), max(hour) FROM rollup WHERE stream = ?", (number,))[0]
    if first is None:  # its state came from elsewhere, and nothing has happened since
        first = last = now // HOUR
    # A client's clock may be wrong by years: what lies ahead of this one's does not decide what "the last week" is.
    end = min(int(last), max(int(first), int(now // HOUR)))
    length = SPANS[span]
    start = int(first) if length is None else max(int(first), end - length + 1)
    params, lanes = _learnt(_method_in(meta), shape, bytes(state))
    return View(
        stream=info,
        method="multi" if shape.numbers > 1 else meta["method"],
        monitored=meta.get("monitor", "null") != "null",
        span=span,
        series=_series(reader, number, start, end),
        reliability=_reliability(reader, number, int(first), end, array("d", bytes(sums))),
        params=params,
        lanes=lanes,
        map=None if shape.is_wide else _map(_method_in(meta), shape, bytes(state)),
        delays=reader.delays(name) or [],
        alarms=alarm_rows(reader.select, "WHERE a.stream = ?", (number,), MOST_ALARMS),
        segments=[] if shape.groups is None else (reader.segments(name) or [])[:MOST_SEGMENTS],
        classes=(reader.classes(name) or [])[:MOST_CLASSES] if shape.numbers > 1 else [],
        muted=any(matches([streams], name) for (streams,) in reader.select(_MUTED, (now,))),
        first=_look_at(reader, number, info),
    )


def _look_at(reader: Reader, number: int, info: StreamInfo) -> Look | None:
    """What to look at first in a stream."""
    alarms = _open_alarms(reader, [number])[info.name]
    if not alarms and info.state not in NEED_A_PERSON:
        return None
    since = _since(alarms[0] if alarms else None, info.state, vars(info))
    return _look(info.name, info.state, since, alarms)


def _series(reader: Reader, number: int, start: int, end: int) -> Series:
    within = (number, start, end)
    where = "FROM rollup WHERE stream = ? AND hour >= ? AND hour <= ?"
    learnt = reader.select(f"SELECT sum(outcomes) {where} AND kind = {CALIBRATED_KIND}", within)[0][0]
    points = min(
        MOST_POINTS, max(FEWEST_POINTS, int(learnt or 0) // OUTCOMES_PER_POINT)
    )  # a point of few outcomes shows luck
    width = next((w for w in WIDTHS if (end - start) // w < points), WIDTHS[-1])
    sums = "sum(forecasts), sum(outcomes), sum(weight), sum(sum_p), sum(sum_y), sum(log_loss)"
    rows = reader.select(f"SELECT (hour + {MONDAY}) / {width}, kind, {sums} {where} GROUP BY 1, 2 ORDER BY 1", within)
    kinds = {(at, kind): numbers for at, kind, *numbers in rows}
    made = Series(width * HOUR)
    for at in sorted({at for at, _ in kinds}):
        forecasts, outcomes, weight, *calibrated = kinds[at, CALIBRATED_KIND]
        raw = kinds[at, RAW_KIND][3:]
        forecast, happened, log_loss = (v / weight if weight else None for v in calibrated)
        score, _, raw_log_loss = (v / weight if weight else None for v in raw)
        made.start.append((at * width - MONDAY) * HOUR)
        made.forecasts.append(int(forecasts))
        made.outcomes.append(int(outcomes))
        made.forecast.append(forecast)
        made.score.append(score)
        made.happened.append(happened)
        made.log_loss.append(log_loss)
        made.raw_log_loss.append(raw_log_loss)
    made.low, made.high = _interval(made.happened, made.outcomes)
    return made


def _interval(share: list[Number], count: list[int]) -> tuple[list[Number], list[Number]]:
    ends = wilson([np.nan if v is None else v for v in share], count)
    low, high = ([None if np.isnan(v) else float(v) for v in end] for end in ends)
    return low, high


# ---- reliability ----------------------------------------------------------------------------------------------------

# kind, tenth -> how many events outcomes stand for, sum of forecasts, sum of outcomes
Cells = dict[tuple[int, int], tuple[float, float, float]]


def _reliability(reader: Reader, number: int, first: int, end: int, sums: array[float]) -> Curves:
    """All time from the stream's own sums; the last seven days and each week from the roll-ups."""
    at = {(kind, t): TENTHS + 30 * kind + 3 * t for kind in (CALIBRATED_KIND, RAW_KIND) for t in range(BINS)}
    parts: list[tuple[str, Cells]] = [
        ("All time", {cell: (sums[i], sums[i + 1], sums[i + 2]) for cell, i in at.items()})
    ]
    if end - first >= WEEK:
        select = "SELECT {what}, kind, tenth, sum(weight), sum(sum_p), sum(sum_y) FROM rollup WHERE stream = ? "
        within = "AND hour >= ? AND hour <= ? GROUP BY 1, 2, 3 ORDER BY 1"
        days = reader.select(select.format(what="0") + within, (number, end - WEEK + 1, end))
        parts.insert(0, ("Last 7 days", _cells(days)))
        since = ((end + MONDAY) // WEEK - MOST_WEEKS + 1) * WEEK - MONDAY
        found: dict[int, list[Any]] = defaultdict(list)
        for row in reader.select(select.format(what=f"(hour + {MONDAY}) / {WEEK}") + within, (number, since, end)):
            found[int(row[0])].append(row)
        year = _day(end).year
        parts += [
            (_week_label(week, year), _cells(found[week]))
            for week in sorted(found, reverse=True)
            if sum(row[3] for row in found[week])
        ]
    curves = {name: [_curve(cells, kind) for _, cells in parts] for name, kind in KINDS.items()}
    periods = [Period(label, sum(curves["raw"][i].count)) for i, (label, _) in enumerate(parts)]
    return Curves(BINS, periods, curves)


def _cells(rows: Iterable[Any]) -> Cells:
    return {(kind, tenth): (count, sum_p, sum_y) for _, kind, tenth, count, sum_p, sum_y in rows}


def _curve(cells: Cells, kind: int) -> Curve:
    tenths = [cells.get((kind, t), (0.0, 0.0, 0.0)) for t in range(BINS)]
    count = [int(n) for n, _, _ in tenths]
    outcome = [sum_y / n if n else None for n, _, sum_y in tenths]
    low, high = _interval(outcome, count)
    return Curve(count, [sum_p / n if n else None for n, sum_p, _ in tenths], outcome, low, high)


def _day(hour: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


def _week_label(week: int, year: int) -> str:
    """
    >>> _week_label((datetime(2026, 11, 16, tzinfo=UTC) - datetime(1969, 12, 29, tzinfo=UTC)).days // 7, 2026)
    '16–22 Nov'
    """
    monday = _day(week * WEEK - MONDAY)
    sunday = monday + timedelta(days=6)
    end = f"{sunday.day} {sunday:%b}" + ("" if sunday.year == year else f" {sunday.year}")
    return f"{monday.day}–{end}" if monday.month == sunday.month else f"{monday.day} {monday:%b} – {end}"


# ---- what was learnt ------------------------------------------------------------------------------------------------


def _learnt(method: Method, shape: Shape, state: bytes) -> tuple[dict[str, float], dict[str, float]]:
    """Parameters by their names in the paper, and the weights of the lanes."""
    chosen: Any = shape.method_of(method)
    params = _params_of(chosen, shape, np.frombuffer(state))
    lanes = {name.removeprefix("lanes "): params.pop(name) for name in list(params) if name.startswith("lanes ")}
    return params, lanes


def _params_of(method: Any, shape: Shape, row: Vector) -> dict[str, float]:
    """All parameters of a row as numbers by their names; what has parts is "name part"."""
    if shape.models is not None:
        found = method.params(row[: method.width], shape.models.names)
        return {f"{part} {name}": float(v) for part in ("weights", "spline") for name, v in found[part].items()}
    found = dict(params_of(method, row[: method.width].tolist()))
    if shape.groups is not None:
        groups = GroupTable(shape.groups, method).params(row[: method.width + shape.groups.row_width])
        found |= {"groups": {"weight of " + part: weight for part, weight in groups["weights"].items()}}
        found["groups"] |= {"spread of " + column: spread for column, spread in groups["spread"].items()}
        found["groups"] |= {"cells": float(groups["cells"]), "evicted": float(groups["evicted"])}
    params = dict[str, float]()
    for name, value in found.items():
        if name == "bias" and shape.classes is not None:
            params |= {f"bias {label}": float(v) for label, v in zip(shape.classes.labels, value, strict=True)}
        elif isinstance(value, dict):
            params |= {f"{name} {part}": float(v) for part, v in value.items() if isinstance(v, float)}
        else:
            params[name] = float(value)
    return params


def _map(method: Method, shape: Shape, state: bytes) -> Map | None:
    """Forecasts of a grid of scores from the present state; nothing is learnt or changed."""
    return None if method.draws else Map(*Model(method).map(state, GRID, shape))
