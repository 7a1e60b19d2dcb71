"""What a stream does in Spark's workers: rows packed by bucket, and each bucket served from its state.

Spark hands the rows of a group to Python one by one. So the rows of a bucket travel as one: tables of Arrow, as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from calibeat.errors import InvalidInput

from .bucket import Bucket, Rules
from .eventtable import BAD, COLUMNS, LATE, one_array, statuses
from .pages import packed, unpacked

PACKED = "bucket int, content binary"
EXPIRY_TICKS = 16  # timers in the time after which an event expires
_PIECE = 262_144  # rows that are packed at once


class Pack:
    """For `mapInArrow`: operations in, one row for each bucket out."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Tables of many rows, cut by bucket."""
        import pyarrow as pa

        for table in _in_tables(batches, _PIECE):
            bucket = np.mod(table["key_hash"].to_numpy(), self._buckets)
            order = np.argsort(bucket, kind="stable")
            used, begin = np.unique(bucket[order], return_index=True)
            ends = [*begin[1:].tolist(), len(bucket)]
            placed = table.take(pa.array(order)).cast(_short(table.schema)).combine_chunks()
            parts = [placed.slice(i, j - i) for i, j in zip(begin.tolist(), ends, strict=True)]
            columns = [pa.array(used.astype(np.int32)), pa.array([packed(part) for part in parts], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["bucket", "content"])


def _in_tables(batches: Iterator[Any], size: int) -> Iterator[Any]:
    """Batches of Arrow as tables of `size` rows; the last may be shorter."""
    import pyarrow as pa

    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= size:
            table = pa.Table.from_batches(waiting).combine_chunks()
            yield table.slice(0, size).combine_chunks()
            rest = table.slice(size)
            waiting, count = rest.to_batches(), len(rest)
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _short(schema: Any) -> Any:
    """The same with strings as the pages have them; Spark may be set to send long ones."""
    import pyarrow as pa

    return pa.schema([(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in schema])


class MapPages:
    """A `pages.Store` in a MapState of Spark."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, page: int) -> bytes | None:
        """The content of a page, None if there is none."""
        found = self._state.getValue((page,))
        return None if found is None else bytes(found[0])

    def put(self, page: int, content: bytes) -> None:
        """Replace the content of a page."""
        self._state.updateValue((page,), (content,))

    def remove(self, page: int) -> None:
        """Forget a page."""
        self._state.removeKey((page,))

    def pages(self) -> list[int]:
        """Which there are."""
        return sorted(key[0] for key in self._state.keys())  # noqa: SIM118 - not a mapping


def processor(rules: Rules, *, stop: bool) -> Any:
    """The part that Spark calls, made here because its base class comes from Spark."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    timed = rules.expire is not None or rules.mature is not None

    class Processor(StatefulProcessor):  # pragma: no cover - it runs in Spark's workers; what it calls is tested
        def init(self, handle: Any) -> None:
            self.handle = handle
            states = [handle.getMapState(name, "page int", "content binary") for name in ("rows", "events")]
            self.bucket = Bucket(rules, *(MapPages(state) for state in states))
            self.swept: set[Any] = set()

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, ARG002
            now = timerValues.getCurrentWatermarkInMs() * 1000 if timed else None
            yield from serve(self.bucket, self.handle, rows, now, stop=stop)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, ARG002
            if key not in self.swept:  # once in a micro-batch, however many timers fire
                self.swept.add(key)
                yield from framed(self.bucket.aged(timerValues.getCurrentWatermarkInMs() * 1000))

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, ARG002
            start(self.bucket, initialState)

        def close(self) -> None:
            pass

    return Processor()


def serve(bucket: Bucket, handle: Any, frames: Iterable[Any], now: int | None, *, stop: bool) -> Iterator[Any]:
    """One micro-batch of a bucket: packed rows in, frames of pandas out. Sets the timers of its events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = pa.concat_tables([unpacked(content) for frame in frames for content in frame["content"]]).combine_chunks()
    if batch["reason"].null_count < len(batch):
        wrong = pc.is_valid(batch["reason"])
        bad = batch.filter(wrong)
        if stop:
            first = bad.sort_by([("time", "ascending"), ("id", "ascending")]).slice(0, 1).to_pylist()[0]
            raise InvalidInput(f"{first['reason']} - at key {first['key']!r:.60}, id {first['id']!r:.60}")
        yield from framed(_aside(bad, BAD))
        batch = batch.filter(pc.invert(wrong))
    if now is not None and len(batch):
        late = pa.array(batch["time"].to_numpy() < now)
        yield from framed(_aside(batch.filter(late), LATE))
        batch = batch.filter(pc.invert(late))
    if not len(batch):
        return
    columns = {name: batch[name].fill_null(float("nan")) for name in ("score", "outcome")}
    columns |= {name: batch[name] for name in ("key", "id", "time", "key_hash", "event_hash")}
    output, due = bucket.serve(pa.table(columns), now)
    moments = set((due // 1000).tolist())
    expire = bucket.rules.expire
    if expire is not None:
        grain = max(1, expire // EXPIRY_TICKS)
        ticks = np.unique((batch["time"].to_numpy() + expire) // grain)
        moments |= {(tick + 1) * grain // 1000 + 1 for tick in ticks.tolist()}
    for moment in sorted(moments):
        handle.registerTimer(moment)
    yield from framed(output)


def _aside(rows: Any, status: int) -> Any:
    """Rows that are not served."""
    import pyarrow as pa

    columns = {name: rows[name] for name in ("key", "id", "time", "score", "outcome", "reason")}
    columns["status"] = statuses(np.full(len(rows), status))
    columns["forecast"] = pa.nulls(len(rows), pa.float64())
    return pa.table([columns[name] for name in COLUMNS], names=list(COLUMNS))


def framed(output: Any) -> Iterator[Any]:
    """What a bucket tells, as a frame of pandas; none if it tells nothing."""
    import pyarrow as pa

    if output is not None and len(output):
        at = COLUMNS.index("time")
        moments = one_array(output["time"]).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        # Whole numbers stay whole where some are missing.
        yield output.set_column(at, "time", moments).to_pandas(integer_object_nulls=True)


def start(bucket: Bucket, frame: Any) -> None:
    """Rows of a state frame into their bucket."""
    if len(frame):
        rows = [bytes(row) for row in frame["row"]]
        bucket.start(frame["key"].tolist(), frame["key_hash"].to_numpy().astype("int64"), rows)
