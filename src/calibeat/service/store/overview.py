"""The first screen of the dashboard: the whole store in numbers, the latest alarms, and streams ranked by what matters.

Everything comes from the totals, the rows of the streams that are shown, and the table of alarms. Events, roll-ups and
streams are never scanned. A page is found by its number in an index; a search reads all names.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from calibeat.errors import InvalidInput

from .ranking import behind, first_key
from .reader import Reader, matching
from .types import LOG_LOSS, RAW_LOG_LOSS

DAY = 86_400.0
FRESH = 7 * DAY  # how long an alarm ranks a stream first
ROWS = 25  # on a page
LATEST = 3  # alarms
MOST_PAGES = 1_000_000

ORDERS = ("attention", "alarms", "pending", "error", "events", "recent", "name")
FRESH_FIRST = ("attention", "alarms")  # in these, streams with alarms of the last days come first
_ROW = (
    "s.name, s.events, s.outcomes, s.pending, s.alarms, s.last_time, s.error, s.raw_error, substr(s.sums, 1, 16), "
    "(SELECT min(time) FROM event e WHERE e.status = 0 AND e.stream = s.number), "
    "(SELECT count(*) FROM alarm a WHERE a.stream = s.number AND a.time >= ?)"
)


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
    sums, since = reader.sums(), now - FRESH
    found, judged = int(sums["streams"]), sums["judged"]
    if search:
        where, arguments = matching("r.name", search)
        found = int(reader.select(f"SELECT count(*) FROM ranking r WHERE {where}", arguments)[0][0])  # noqa: S608
    pages = max(1, -(-found // ROWS))
    page = min(max(1, page), pages)
    rows = _page(reader, order, search, since, (page - 1) * ROWS)
    fresh = reader.select("SELECT count(*) FROM alarm WHERE time >= ?", (since,))[0][0]
    return Overview(
        method=meta.get("method", ""),
        monitored=meta.get("monitor", "null") != "null",
        streams=int(sums["streams"]),
        events=int(sums["events"]),
        outcomes=int(sums["outcomes"]),
        pending=int(sums["pending"]),
        oldest_pending=reader.select("SELECT min(time) FROM event WHERE status = 0")[0][0],
        fresh_alarms=int(fresh),
        error=sums["error"] / judged if judged else None,
        raw_error=sums["raw_error"] / judged if judged else None,
        alarms=alarm_rows(reader, "", (), LATEST),
        found=found,
        page=page,
        pages=pages,
        rows=[_row(row) for row in rows],
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


def _page(reader: Reader, order: str, search: str, since: float, skip: int) -> list[tuple[Any, ...]]:
    """The rows of a page, behind `skip` streams."""
    where, arguments = matching("r.name", search)
    if order not in FRESH_FIRST:
        return _behind(reader, order, where, arguments, skip, ROWS, since)
    # First those with fresh alarms, which are few, then all others. The plus signs keep SQLite to the index over times.
    alarmed = "(SELECT +stream AS stream, count(*) AS fresh FROM alarm WHERE time >= ? GROUP BY +stream) f"
    joined = f"FROM {alarmed} JOIN ranking r ON r.stream = f.stream WHERE {where}"
    few = int(reader.select(f"SELECT count(*) {joined}", (since, *arguments))[0][0])
    first = reader.select(
        f"SELECT {_ROW} FROM {alarmed} JOIN ranking r ON r.stream = f.stream "  # noqa: S608
        f"JOIN stream s ON s.number = f.stream WHERE {where} "
        f"ORDER BY f.fresh DESC, {behind(order)[1]} LIMIT {ROWS} OFFSET {skip}",
        (since, since, *arguments),
    )
    if len(first) == ROWS:
        return first
    where += " AND NOT EXISTS (SELECT 1 FROM alarm a WHERE a.stream = r.stream AND a.time >= ?)"
    rest = _behind(reader, order, where, (*arguments, since), max(0, skip - few), ROWS - len(first), since)
    return [*first, *rest]


def _behind(
    reader: Reader, order: str, where: str, arguments: tuple[Any, ...], skip: int, limit: int, since: float
) -> list[tuple[Any, ...]]:
    """Streams of an order of `ranking` behind the first `skip` that fit: their keys are found in the index alone."""
    place = first_key(order)
    if skip:
        condition, keys = behind(order)
        found = reader.select(
            f"SELECT {keys} FROM ranking r WHERE {condition} AND {where} ORDER BY {keys} LIMIT 1 OFFSET {skip - 1}",  # noqa: S608
            (*place, *arguments),
        )
        if not found:
            return []
        place = found[0]
    return reader.ranked(_ROW, order, place, where, arguments, limit, since)


def _row(row: tuple[Any, ...]) -> Row:
    name, events, outcomes, pending, alarms, last, error, raw_error, sums, oldest, fresh = row
    losses = array("d", bytes(sums)) if outcomes else None  # the first two sums
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
