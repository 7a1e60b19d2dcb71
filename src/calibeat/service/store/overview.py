"""The first screen of the dashboard: the whole store in numbers, the latest alarms, and streams ranked by what matters.

Everything comes from the rows of streams and the table of alarms, never from a scan of events or roll-ups.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from calibeat.errors import InvalidInput

from .reader import Reader
from .records import LOG_LOSS, RAW_LOG_LOSS

DAY = 86_400.0
FRESH = 7 * DAY  # how long an alarm ranks a stream first
ENOUGH = 100  # outcomes, below which a calibration error is mostly luck
ROWS = 25  # on a page
LATEST = 3  # alarms
MOST_PAGES = 1_000_000

# "attention": fresh alarms, then what miscalibration costs in all: outcomes x squared error, as the Brier score counts.
_COST = "coalesce(error * error * outcomes, 0) DESC"
ORDERS = {
    "attention": f"coalesce(fresh, 0) DESC, {_COST}, pending DESC, name",
    "alarms": "coalesce(fresh, 0) DESC, alarms DESC, name",
    "pending": "pending DESC, name",
    "error": f"CASE WHEN outcomes >= {ENOUGH} THEN 0 ELSE 1 END, coalesce(error, -1) DESC, name",
    "events": "events DESC, name",
    "recent": "coalesce(last_time, 0) DESC, name",
    "name": "name",
}
_ROW = "number, name, events, outcomes, pending, alarms, coalesce(fresh, 0), last_time, error, raw_error, sums"


@dataclass(frozen=True)
class Row:
    """One stream in the list. Losses are means over learnt outcomes; None before the first one."""

    name: str
    events: int
    outcomes: int
    pending: int
    oldest_pending: float | None  # seconds since 1970
    alarms: int
    fresh_alarms: int  # of the last seven days
    last_event: float | None
    error: float | None
    raw_error: float | None
    log_loss: float | None
    raw_log_loss: float | None


@dataclass(frozen=True)
class AlarmRow:
    """An alarm: what is wrong, in which stream, since when, and when it was raised."""

    number: int
    stream: str
    time: float
    at: int  # outcomes read when it was raised
    since: float  # the estimated outcome at which the fault began
    since_time: float | None  # when its forecast was made; None where that event is no longer stored
    what: str
    page: bool


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
    found: int  # streams that the search matches
    page: int
    pages: int
    rows: list[Row]
    needs_token: bool = False  # whether a reader has to log in


def overview(reader: Reader, now: float, order: str = "attention", search: str = "", page: int = 1) -> Overview:
    """The first screen; `page` counts from 1, one behind the last gives the last."""
    if order not in ORDERS:
        raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    meta = dict(reader.select("SELECT name, value FROM meta"))
    counts = reader.select(
        "SELECT count(*), coalesce(sum(events), 0), coalesce(sum(outcomes), 0), coalesce(sum(pending), 0), "
        "sum(error * outcomes), sum(raw_error * outcomes), sum(CASE WHEN error IS NULL THEN 0 ELSE outcomes END) "
        "FROM stream WHERE events > 0"
    )[0]
    streams, events, outcomes, pending = map(int, counts[:4])
    judged = int(counts[6] or 0)  # outcomes of streams whose error is known
    where, arguments = _matching(search)
    found = streams
    if search:
        found = int(reader.select(f"SELECT count(*) FROM stream WHERE {where}", arguments)[0][0])  # noqa: S608
    pages = max(1, -(-found // ROWS))
    page = min(max(1, page), pages)
    rows = reader.select(
        f"SELECT {_ROW} FROM stream LEFT JOIN (SELECT stream AS alarmed, count(*) AS fresh FROM alarm "  # noqa: S608
        f"WHERE time >= ? GROUP BY stream) fresh_alarms ON alarmed = number WHERE {where} "
        f"ORDER BY {ORDERS[order]} LIMIT {ROWS} OFFSET {(page - 1) * ROWS}",
        (now - FRESH, *arguments),
    )
    fresh = reader.select("SELECT count(*) FROM alarm WHERE time >= ?", (now - FRESH,))[0][0]
    return Overview(
        method=meta.get("method", ""),
        monitored=meta.get("monitor", "null") != "null",
        streams=streams,
        events=events,
        outcomes=outcomes,
        pending=pending,
        oldest_pending=reader.select("SELECT min(time) FROM event WHERE status = 0")[0][0],
        fresh_alarms=int(fresh),
        error=counts[4] / judged if judged else None,
        raw_error=counts[5] / judged if judged else None,
        alarms=alarm_rows(reader, "", (), LATEST),
        found=found,
        page=page,
        pages=pages,
        rows=[_row(reader, row) for row in rows],
    )


def alarm_rows(reader: Reader, where: str, arguments: tuple[Any, ...], limit: int) -> list[AlarmRow]:
    """The latest alarms, with the time of the forecast at which the fault began."""
    rows = reader.select(
        "SELECT a.number, s.name, a.time, a.at, a.since, e.time, a.what, a.page FROM alarm a "  # noqa: S608
        "JOIN stream s ON s.number = a.stream "
        # Monitors count outcomes. Forecasts that were given up are spread over them.
        "LEFT JOIN event e ON e.stream = a.stream "
        "AND e.nth = CAST(a.since * (s.events - s.pending - s.held) / nullif(s.outcomes, 0) AS INTEGER) "
        f"{where} ORDER BY a.number DESC LIMIT {limit}",
        arguments,
    )
    return [AlarmRow(*row[:-1], bool(row[-1])) for row in rows]  # type: ignore[call-arg]  # as selected


def _matching(search: str) -> tuple[str, tuple[Any, ...]]:
    """The condition for streams whose names hold this text; LIKE ignores the case of ASCII letters in SQLite only."""
    if not search:
        return "events > 0", ()
    literal = search.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return "events > 0 AND lower(name) LIKE ? ESCAPE '\\'", (f"%{literal}%",)


def _row(reader: Reader, row: tuple[Any, ...]) -> Row:
    number, name, events, outcomes, pending, alarms, fresh, last, error, raw_error, sums = row
    oldest = None
    if pending:
        oldest = reader.select("SELECT min(time) FROM event WHERE status = 0 AND stream = ?", (number,))[0][0]
    losses = array("d", bytes(sums)[: 8 * (max(RAW_LOG_LOSS, LOG_LOSS) + 1)]) if outcomes else None
    return Row(
        name=name,
        events=events,
        outcomes=outcomes,
        pending=pending,
        oldest_pending=oldest,
        alarms=alarms,
        fresh_alarms=int(fresh),
        last_event=last,
        error=error,
        raw_error=raw_error,
        log_loss=losses[LOG_LOSS] / outcomes if losses else None,
        raw_log_loss=losses[RAW_LOG_LOSS] / outcomes if losses else None,
    )
