"""The log of a store as a table: as a Parquet file, and as the log of a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.extras import need
from calibeat._util.files import atomic
from calibeat._util.types import Ints
from calibeat._util.words import visible

from .store import open_connection, without_password
from .store.types import ASSUMED, EXPIRED, HELD, LEARNT, PENDING

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
