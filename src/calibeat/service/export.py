"""The log of a store as a table: as a Parquet file, as the log of a backtest, and back into a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.extras import need
from calibeat._util.files import atomic
from calibeat._util.types import Ints
from calibeat._util.words import visible
from calibeat.errors import InvalidInput

from .engine import Engine
from .operations import Event, ForecastEvent, OutcomeEvent, Refusal, check_events
from .settings import Settings
from .store import open_connection, open_store, without_password
from .store.records import ASSUMED, EXPIRED, HELD, LEARNT, PENDING
from .store.schema import get_meta

STATUS = {PENDING: "pending", HELD: "held", LEARNT: "learnt", EXPIRED: "expired", ASSUMED: "assumed"}
ROWS = 50_000  # in one batch
_COLUMNS = "s.name, e.id, e.time, e.score, e.forecast, e.outcome, e.outcome_time, e.status"
_FROM = "FROM event e JOIN stream s ON s.number = e.stream"
_ORDER = "ORDER BY e.time, e.stream, e.nth"

Step = Callable[..., None]


def _schema() -> Any:
    pa = need("pyarrow", extra="backtest", what="logs")
    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("stream", pa.string()),
            ("id", pa.string()),
            ("time", moment),
            ("score", pa.float64()),
            ("forecast", pa.float64()),
            ("outcome", pa.int8()),
            ("outcome_time", moment),
            ("status", pa.string()),
        ]
    )


def batches(connection: Any) -> Iterator[Any]:
    """All events in the order of their times, as record batches."""
    import pyarrow as pa

    rows: list[tuple[Any, ...]] = []
    for row in connection.each(f"SELECT {_COLUMNS} {_FROM} {_ORDER}"):
        rows.append(row)
        if len(rows) == ROWS:
            yield _batch(pa, rows)
            rows = []
    if rows:
        yield _batch(pa, rows)


def _batch(pa: Any, rows: list[tuple[Any, ...]]) -> Any:
    stream, name, time, score, forecast, outcome, outcome_time, status = zip(*rows, strict=True)
    columns = [stream, name, _micro(time), score, forecast, outcome, _micro(outcome_time), [STATUS[s] for s in status]]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _schema(), strict=True)], schema=_schema()
    )


def _micro(times: Any) -> list[int | None]:
    return [None if time is None else round(time * 1e6) for time in times]


def export(url: str, path: Path, step: Step = lambda *_: None) -> int:
    """Write the log as Parquet, whole or not at all -> how many events."""
    schema, count = _schema(), 0
    import pyarrow.parquet as pq

    connection = open_connection(url)
    try:
        connection.begin_reading()
        with atomic(path) as file, pq.ParquetWriter(file, schema) as writer:
            for part in batches(connection):
                writer.write_batch(part)
                count += part.num_rows
                step(part.num_rows)
    finally:
        connection.close()
    return count


@dataclass(frozen=True)
class StoreLog:
    """A store as one file of a log, for the backtest: all events, in the order of their times."""

    address: str
    kind: str = "store"
    notes: list[str] = field(default_factory=list, compare=False)

    @property
    def path(self) -> str:
        """What may stand in a report: the address without its password.

        >>> StoreLog("postgresql://host/a?user=me&password=secret").path, StoreLog("calibeat.db").path
        ('postgresql://me@host/a', 'calibeat.db')
        """
        return without_password(self.address)

    @property
    def name(self) -> str:
        """For people: it can do nothing to a terminal."""
        return visible(self.path)

    def rows(self) -> int | None:
        """How many events."""
        connection = open_connection(self.address)
        try:
            return int(connection.all("SELECT count(*) FROM event")[0][0])
        finally:
            connection.close()

    def batches(self, pick: Callable[[list[str], str], list[str]], _: Any) -> Iterator[tuple[Any, Ints]]:
        """Record batches of the columns that `pick` chooses, and the numbers of their rows."""
        columns = pick([name for name in _schema().names if name not in {"forecast", "status"}], self.name)
        connection, first = open_connection(self.address), 0
        try:
            connection.begin_reading()
            for part in batches(connection):
                yield part.select(columns), np.arange(first + 1, first + part.num_rows + 1)
                first += part.num_rows
        finally:
            connection.close()


# ---- the way back ---------------------------------------------------------------------------------------------------


def import_log(url: str, path: Path, settings: Settings, step: Step = lambda *_: None) -> int:
    """Put the events of a Parquet file into a store, forecasts and outcomes in the order of their times -> how many.

    The columns are those of `export`; `forecast` and `status` are not read: the store makes its own forecasts. Events
    that the store knows already change nothing, so an import that was broken off may be done again.
    """
    need("pyarrow", extra="backtest", what="logs")
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["stream", "id", "time", "score", "outcome", "outcome_time"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"log must be a Parquet file with stream, id, time, score, outcome, got: {error}") from error
    events = _events(table)
    engine = Engine.open(url, replace(settings, monitor=_monitor_of(url)))
    try:
        for first in range(0, len(events), settings.group):
            part = events[first : first + settings.group]
            for _, answer in engine.process([(0, run) for run in _runs(part)]):
                if isinstance(answer, Refusal):
                    raise InvalidInput(f"log must fit the store, got: {answer.message}")
            step(len(part))
    finally:
        engine.store.close()
    return table.num_rows


def _monitor_of(url: str) -> float | None:
    """What watches the streams of a store, which is made if there is none."""
    store = open_store(url)
    try:
        found: float | None = json.loads(get_meta(store.connection).get("monitor", "null"))
        return found
    finally:
        store.close()


def _events(table: Any) -> list[Event]:
    """Forecasts and outcomes in the order of their times; an outcome without a time follows its forecast."""
    columns = [table.column(name).to_pylist() for name in ("stream", "id", "score", "outcome")]
    times = [None if t is None else t / 1e6 for t in _microseconds(table, "time")]
    later = [None if t is None else t / 1e6 for t in _microseconds(table, "outcome_time")]
    timed: list[tuple[float, int, Event]] = []
    for stream, name, score, outcome, time, known in zip(*columns, times, later, strict=True):
        timed.append((time or 0.0, 0, ForecastEvent(stream, name, score, time)))
        if outcome is not None:
            when = max(known or 0.0, time or 0.0)
            timed.append((when, 1, OutcomeEvent(stream, name, int(outcome), when)))
    found = [event for _, _, event in sorted(timed, key=lambda entry: entry[:2])]
    check_events(found)
    return found


def _microseconds(table: Any, name: str) -> list[int | None]:
    import pyarrow as pa

    found: list[int | None] = table.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return found


def _runs(events: list[Event]) -> Iterator[Any]:
    """Events that follow each other and are of one kind, as one request."""
    run: list[Event] = []
    for event in events:
        if run and type(run[0]) is not type(event):
            yield run
            run = []
        run.append(event)
    if run:
        yield run
