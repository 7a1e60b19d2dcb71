"""What the store tells: streams, reliability, history, alarms and delays, from a connection of its own.

Everything comes from the rows of streams, found by an index, from the totals and from the hourly roll-ups. Neither the
table of events nor that of streams is ever scanned; a search by a part of the name reads all names.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibeat.core.method import method_named, params_of_rows
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import readings
from calibeat.monitor.monitor import Monitor

from .ranking import KEYS, behind, first_key
from .schema import get_meta
from .totals import COUNTS, READ, named
from .types import CALIBRATED, DELAY_COUNT, DELAYS, HOUR, LOG_LOSS, RAW, RAW_LOG_LOSS, SUMS

ORDERS = ("name", "events", "pending", "alarms", "error", "recent")
_OLDEST = "SELECT min(time) FROM event e WHERE e.status = 0 AND e.stream = s.number"
_STREAM = (
    "s.name, s.events, s.outcomes, s.pending, s.held, s.expired, s.alarms, s.last_time, s.error, s.raw_error, s.sums, "
    f"s.state, s.monitor, ({_OLDEST})"
)
# In a list, what only the screen of one stream needs is not read.
_LISTED = _STREAM.replace("s.sums, s.state, s.monitor", "substr(s.sums, 1, 16), NULL, NULL")
MOST = 1000
MOST_HOURS = 10_000  # of one answer: fourteen months


@dataclass(frozen=True)
class StreamInfo:
    """One stream in numbers. Losses are means over learnt outcomes; None before the first one."""

    name: str
    events: int
    outcomes: int
    pending: int
    held: int
    expired: int
    alarms: int
    oldest_pending: float | None  # seconds since 1970
    last_event: float | None
    raw_log_loss: float | None
    log_loss: float | None
    raw_error: float | None  # calibration error over tenths
    error: float | None
    params: dict[str, float] = field(default_factory=dict)
    monitor: dict[str, Any] | None = None


@dataclass(frozen=True)
class Bin:
    """A tenth: how many learnt outcomes, the sum of their forecasts, the sum of the outcomes."""

    tenth: int
    count: int
    sum_p: float
    sum_y: float


@dataclass(frozen=True)
class Reliability:
    """Ten bins each, of what was told and of the scores."""

    calibrated: list[Bin]
    raw: list[Bin]


@dataclass(frozen=True)
class Hour:
    """One hour of a stream, by the time of the forecasts."""

    start: float  # seconds since 1970
    forecasts: int
    outcomes: int
    sum_forecast: float  # of forecasts whose outcome is learnt
    sum_score: float
    sum_outcome: float
    log_loss: float
    raw_log_loss: float


@dataclass(frozen=True)
class AlarmInfo:
    """An alarm as the store has it."""

    number: int
    stream: str
    time: float
    at: int
    since: float
    what: str
    page: bool


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
    revoked: float | None


class Reader:
    """Read-only answers for the GET routes, and the table of tokens.

    Any thread may use it; calls wait for each other.
    """

    def __init__(self, connection: Any, writer: Callable[[], Any]) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self.tokens = Tokens(self._all, writer)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _all(self, statement: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            found: list[tuple[Any, ...]] = self._connection.all(statement, arguments)
            return found

    select = _all  # for what the page asks beyond this class: `overview` and `view`

    # ---- streams ----------------------------------------------------------------------------------------------------

    def streams(
        self, after: str | None = None, limit: int = 100, order: str = "name", search: str | None = None
    ) -> list[StreamInfo]:
        """Some streams in an order of `ORDERS`; `after` is the name of the last one of the page before."""
        if order not in ORDERS:
            raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        limit = max(1, min(MOST, limit))
        if order == "name":
            where, arguments = matching("s.name", search)
            rows = self._all(
                f"SELECT {_LISTED} FROM stream s WHERE s.name > ? AND {where} AND s.events > 0 "  # noqa: S608
                f"ORDER BY s.name LIMIT {limit}",
                (after or "", *arguments),
            )
        else:
            where, arguments = matching("r.name", search)
            rows = self.ranked(_LISTED, order, self._place(after, order), where, arguments, limit)
        return [self._info(row) for row in rows]

    def _place(self, after: str | None, order: str) -> tuple[Any, ...]:
        """The keys of a stream in an order; those of none are before all others."""
        keys = ", ".join(f"r.{key}" for key in KEYS[order])
        rows = self._all(
            f"SELECT {keys}, r.name FROM stream s JOIN ranking r ON r.stream = s.number WHERE s.name = ?",  # noqa: S608
            (after or "",),
        )
        return rows[0] if rows else first_key(order)

    def ranked(
        self,
        columns: str,
        order: str,
        place: tuple[Any, ...],
        where: str,
        arguments: tuple[Any, ...],
        limit: int,
        *of_columns: Any,
    ) -> list[tuple[Any, ...]]:
        """Columns of the streams `s` behind a place in an order of `ranking`, where their rows `r` fit a condition.

        The arguments are those of the condition and those of the columns.
        """
        condition, keys = behind(order)
        return self._all(
            f"SELECT {columns} FROM ranking r JOIN stream s ON s.number = r.stream "  # noqa: S608 - our own columns
            f"WHERE {condition} AND {where} ORDER BY {keys} LIMIT {limit}",
            (*of_columns, *place, *arguments),
        )

    def stream(self, name: str) -> StreamInfo | None:
        """One stream with its parameters, or None."""
        rows = self._all(f"SELECT {_STREAM} FROM stream s WHERE s.name = ? AND s.events > 0", (name,))  # noqa: S608
        return self._info(rows[0], whole=True) if rows else None

    def _info(self, row: tuple[Any, ...], *, whole: bool = False) -> StreamInfo:
        name, events, outcomes, pending, held, expired, alarms, last, error, raw_error, sums = row[:11]
        state, monitor, oldest = row[11:]
        numbers = array("d", bytes(sums))
        return StreamInfo(
            name=name,
            events=events,
            outcomes=outcomes,
            pending=pending,
            held=held,
            expired=expired,
            alarms=alarms,
            oldest_pending=oldest,
            last_event=last,
            raw_log_loss=numbers[RAW_LOG_LOSS] / outcomes if outcomes else None,
            log_loss=numbers[LOG_LOSS] / outcomes if outcomes else None,
            raw_error=raw_error,
            error=error,
            params=self._params(bytes(state)) if whole and state is not None else {},
            monitor=self._monitor(bytes(monitor)) if whole and monitor is not None else None,
        )

    def _params(self, state: bytes) -> dict[str, float]:
        with self._lock:
            method = method_named(get_meta(self._connection)["method"])
        columns = params_of_rows(method, np.frombuffer(state)[None, : method.width])
        return {name: float(column[0]) for name, column in columns.items()}

    def _monitor(self, state: bytes) -> dict[str, Any]:
        with self._lock:
            arl = json.loads(get_meta(self._connection)["monitor"])
        found = readings(Monitor(arl=arl).settings, state) if arl is not None else {}
        return {name: None if value != value else value for name, value in found.items()}  # noqa: PLR0124 - NaN

    def _number(self, name: str) -> int | None:
        rows = self._all("SELECT number FROM stream WHERE name = ?", (name,))
        return int(rows[0][0]) if rows else None

    # ---- over time --------------------------------------------------------------------------------------------------

    def reliability(self, name: str, start: float | None = None, end: float | None = None) -> Reliability | None:
        """Bins of the forecasts made from `start` to `end`, seconds since 1970, by whole hours."""
        number = self._number(name)
        if number is None:
            return None
        rows = self._all(
            "SELECT kind, tenth, sum(outcomes), sum(sum_p), sum(sum_y) FROM rollup "
            "WHERE stream = ? AND hour >= ? AND hour <= ? GROUP BY kind, tenth",
            (number, *_hours(start, end)),
        )
        found = {(kind, tenth): (int(count), sum_p, sum_y) for kind, tenth, count, sum_p, sum_y in rows}
        bins = [[Bin(t, *found.get((kind, t), (0, 0.0, 0.0))) for t in range(10)] for kind in (CALIBRATED, RAW)]
        return Reliability(*bins)

    def history(
        self, name: str, start: float | None = None, end: float | None = None, limit: int = MOST_HOURS
    ) -> list[Hour] | None:
        """The first hours of a stream in order, those without an event left out."""
        number = self._number(name)
        if number is None:
            return None
        rows = self._all(
            "SELECT hour, sum(CASE WHEN kind = 0 THEN forecasts ELSE 0 END), "
            "sum(CASE WHEN kind = 0 THEN outcomes ELSE 0 END), sum(CASE WHEN kind = 0 THEN sum_p ELSE 0 END), "
            "sum(CASE WHEN kind = 1 THEN sum_p ELSE 0 END), sum(CASE WHEN kind = 0 THEN sum_y ELSE 0 END), "
            "sum(CASE WHEN kind = 0 THEN log_loss ELSE 0 END), sum(CASE WHEN kind = 1 THEN log_loss ELSE 0 END) "
            "FROM rollup WHERE stream = ? AND hour >= ? AND hour <= ? GROUP BY hour ORDER BY hour LIMIT ?",
            (number, *_hours(start, end), limit),
        )
        return [Hour(hour * HOUR, int(made), int(learnt), *sums) for hour, made, learnt, *sums in rows]

    def delays(self, name: str) -> list[Delay] | None:
        """How late the outcomes of a stream came, in powers of two seconds."""
        rows = self._all("SELECT sums FROM stream WHERE name = ?", (name,))
        if not rows:
            return None
        counts = array("d", bytes(rows[0][0] or bytes(8 * SUMS)))[DELAYS : DELAYS + DELAY_COUNT]
        return [Delay(2.0**at, int(count)) for at, count in enumerate(counts) if count]

    def alarms(self, limit: int = 100) -> list[AlarmInfo]:
        """The latest alarms, the newest first."""
        rows = self._all(
            "SELECT a.number, s.name, a.time, a.at, a.since, a.what, a.page FROM alarm a "
            "JOIN stream s ON s.number = a.stream ORDER BY a.number DESC LIMIT ?",
            (max(1, min(MOST, limit)),),
        )
        return [AlarmInfo(n, name, time, at, since, what, bool(page)) for n, name, time, at, since, what, page in rows]

    def totals(self) -> Totals:
        """The whole store."""
        found = self.sums()
        counts = [int(found[name]) for name in COUNTS[:7]]
        oldest = self._all("SELECT min(time) FROM event WHERE status = 0")[0][0]
        outcomes = counts[2]
        means = [found[name] / outcomes if outcomes else None for name in ("raw_log_loss", "log_loss")]
        return Totals(*counts, oldest, *means)  # type: ignore[call-arg]  # seven counts, then three

    def sums(self) -> dict[str, float]:
        """The totals as they are kept, by the names of `totals.COLUMNS`."""
        return named(self._all(READ)[0])

    def version(self) -> int:
        """A number that changes with every commit."""
        with self._lock:
            return int(self._connection.version())

    def interrupt(self) -> None:
        """End the statement that runs now, from another thread: whoever waits for it gets an error."""
        self._connection.interrupt()

    def ping(self) -> None:
        """Raise if the store cannot be read."""
        self._all("SELECT 1 FROM meta LIMIT 1")


def matching(column: str, search: str | None) -> tuple[str, tuple[Any, ...]]:
    """The condition for names that hold a text, and its arguments. Where nothing is searched, all do.

    The case of ASCII letters is ignored: LIKE by itself does so in SQLite only, and `lower` does no more than that in
    either.
    """
    if not search:
        return "TRUE", ()
    literal = search.encode().lower().decode().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"lower({column}) LIKE ? ESCAPE '\\'", (f"%{literal}%",)


class Tokens:
    """The table of tokens. Whoever hashes them gives and gets hashes only."""

    def __init__(self, read: Callable[[str], list[tuple[Any, ...]]], writer: Callable[[], Any]) -> None:
        self._read, self._writer = read, writer

    def add(self, name: str, scope: str, hash: str) -> None:  # noqa: A002 - the word of the table
        """A new token; a name that is taken is refused."""
        writer = self._writer()
        try:
            added = writer.run(
                "INSERT INTO token (name, scope, hash, created) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (name, scope, hash, time.time()),
            )
        finally:
            writer.close()
        if added != 1:
            revoked = any(token.name == name and token.revoked is not None for token in self.list())
            taken = "a revoked token has" if revoked else "is taken"
            raise InvalidInput(f"token must have a name of its own, got {name!r}, which {taken}")

    def list(self) -> list[Token]:
        """All tokens, also revoked ones, the oldest first."""
        rows = self._read("SELECT name, scope, hash, created, revoked FROM token ORDER BY created, name")
        return [Token(*row) for row in rows]

    def revoke(self, name: str) -> bool:
        """Revoke a token -> whether there was one that was valid."""
        writer = self._writer()
        try:
            return bool(
                writer.run("UPDATE token SET revoked = ? WHERE name = ? AND revoked IS NULL", (time.time(), name))
            )
        finally:
            writer.close()

    def clear(self) -> int:
        """Remove all tokens, also revoked ones: the store is as if it never had one -> how many there were."""
        writer = self._writer()
        try:
            return int(writer.run("DELETE FROM token"))
        finally:
            writer.close()


def _hours(start: float | None, end: float | None) -> tuple[int, int]:
    return (0 if start is None else int(start // HOUR)), (2**40 if end is None else int(end // HOUR))
