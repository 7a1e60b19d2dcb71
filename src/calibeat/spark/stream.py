"""`calibrate_stream`: two streams in, one of scores and one of outcomes, forecasts out.

Spark hands the rows of a group to Python one by one. So the rows of a bucket travel as one: a table of Arrow, as bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from calibeat._util.check import check_choice, check_outcome, check_whole
from calibeat._util.extras import LazyModule
from calibeat.core.method import Method
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank

from .bucket import BAD, COLUMNS, LATE, Bucket, PageStore, Rules, one_array, packed, statuses, unpacked
from .columns import TIMESTAMPS, check_column, check_one_kind, duration, first_wrong, in_tables, quoted
from .folder import state_to_resume
from .session import check_frame, check_libraries
from .state import as_state, described

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")
F = LazyModule("pyspark.sql.functions")

OUTPUT = (
    "key {key}, id string, time timestamp, status string, score double, forecast double, outcome double, reason string"
)
PACKED = "bucket int, content binary"
MOST_BUCKETS = 4096
EXPIRY_TICKS = 16  # timers in the time after which an event expires
_PIECE = 262_144  # rows that are packed at once


def calibrate_stream(
    scores: Any,
    outcomes: Any,
    *,
    key: str,
    id: str,  # noqa: A002 - what everybody calls it
    score: str,
    outcome: str,
    time: str,
    outcome_time: str | None = None,
    method: Method | str = "auto",
    seed: int = 0,
    independent: bool = False,
    state: Any = None,
    expire: Any = None,
    expire_as: Any = None,
    mature: Any = None,
    watermark: str = "10 minutes",
    learnt: bool = False,
    bad: str = "stop",
    buckets: int = 64,
    pages: int = 16,
    groups: Any = None,
) -> Any:
    """Forecast every score of a stream as it comes, and learn outcomes from another stream whenever they come.

    Parameters
    ----------
    scores, outcomes : streaming DataFrames. An event is known by key and id in both.
    key, id, score, outcome : names of columns; ids are compared as text.
    time, outcome_time : when a score was issued and when an outcome was known, timestamps. `outcome_time` is the name
        in `outcomes`, if it is another.
    method, seed, independent : as in `Bank`.
    state : a state frame, a bank or the path of its file to start from, in the first micro-batch of a new checkpoint.
    expire : the age at which an event is forgotten: a time such as ``"30d"``. Until then repeats are recognised.
        Without it nothing is ever forgotten, and nothing is dropped by a watermark.
    expire_as : 0 or 1: learn this for an event whose outcome has not come by then. If not given it is not learnt.
    mature : the age at which outcomes are learnt, a time such as ``"7d"``, shorter than `expire`. An outcome that comes
        before is held until its event is so old by the watermark. So ones and zeros are learnt at the same age.
    watermark : with `expire` or `mature`, how late rows may be. Rows that are older than the latest time of earlier
        micro-batches less this are late: they are reported and not served.
    learnt : also report every outcome that is held or learnt.
    bad : "stop": the query fails at the first row that cannot be used, and names it. "side": such rows are reported.
    buckets : of keys, the unit of state. Fixed for the life of a checkpoint.
    pages : of a bucket, the unit of writing. Fixed as well.
    groups : refused, as by `Bank`: every key learns alone here.

    Returns a streaming frame: key, id, time, status, score, forecast, outcome, reason. Forecasts have the status
    "forecast". All others are the side output: "repeated" and "conflict" (the id came before, with the same score or
    outcome or with another), "expired" (no outcome came), "unknown" (an outcome expired without a score), "late", "bad"
    (with a reason), "held" and "learnt" if asked for.

    Within a micro-batch, operations of a key are taken by time, outcomes before scores of the same time, then by id;
    micro-batches one after the other. What comes of age is learnt after the rows of the micro-batch: by due time, then
    by the time of the outcome, then by id. The session must keep states in RocksDB, as that of `session` does.

    Raises
    ------
    InvalidInput : an argument or a column is wrong; when the query runs, a row that cannot be used and ``bad="stop"``.
    SnapshotMismatch : `state` is of another method, seed or version.
    UnknownMethod : there is no preset of that name.
    MissingExtra : pyspark 4.0 or later, pyarrow, pandas or protobuf is not installed.
    """
    check_libraries("calibeat.spark streaming", stream=True)
    bank = Bank(method, seed, independent=independent, threads=1, groups=groups)
    check_frame(scores, "scores", streaming=True)
    check_frame(outcomes, "outcomes", streaming=True)
    check_choice("bad", bad, ("stop", "side"))
    check_whole("buckets", buckets, 1, MOST_BUCKETS)
    check_whole("pages", pages, 1, MOST_BUCKETS)
    times = time, outcome_time or time
    for frame, when, role, name in ((scores, times[0], "score", score), (outcomes, times[1], "outcome", outcome)):
        for column in (("key", key), ("id", id), ("time", when, TIMESTAMPS), (role, name)):
            check_column(frame, *column)
    strings = check_one_kind((scores, key, "scores"), (outcomes, key, "outcomes"))
    expires, matures = duration("expire", expire, least=1), duration("mature", mature, least=1)
    if expires is not None and matures is not None and expires <= matures:
        raise InvalidInput(f"expire must be longer than mature, got {expire!r} and {mature!r}")
    if expire_as is not None and expires is None:
        raise InvalidInput("expire_as needs expire, got none")
    settled = None if expire_as is None else int(check_outcome(expire_as))
    rules = Rules(described(bank), strings, pages, expires, settled, learnt, matures)
    timed = expires is not None or matures is not None
    both = _operations(scores, outcomes, (key, id, score, outcome), times, strings, watermark if timed else None)
    initial = None if state is None else _initial(state_to_resume(state, scores, key, rules.described), buckets)
    grouped = both.mapInArrow(Pack(buckets), PACKED).groupBy("bucket")
    schema = OUTPUT.format(key="string" if strings else "bigint")
    worker = processor(rules, stop=bad == "stop")
    return grouped.transformWithStateInPandas(worker, schema, "Append", "EventTime" if timed else "None", initial)


def _operations(
    scores: Any,
    outcomes: Any,
    names: tuple[str, str, str, str],
    times: tuple[str, str],
    strings: bool,
    watermark: str | None,
) -> Any:
    """Both streams as one. `xxhash64` decides where a key and an event are kept, for the life of a checkpoint."""
    key, name, score, outcome = (quoted(given) for given in names)
    kind = "string" if strings else "bigint"

    def columns(frame: Any, when: str, p: Any, y: Any) -> Any:
        shared = F.col(key).cast(kind).alias("key"), F.col(name).cast("string").alias("id")
        moment = F.col(quoted(when)).cast("timestamp").alias("time")
        return frame.select(*shared, moment, p.cast("double").alias("score"), y.cast("double").alias("outcome"))

    nothing = F.lit(None)
    asked = columns(scores, times[0], F.col(score), nothing).withColumn("is_score", F.lit(True))
    known = columns(outcomes, times[1], nothing, F.col(outcome)).withColumn("is_score", F.lit(False))
    both = asked.unionByName(known)
    p, y, is_score = F.col("score"), F.col("outcome"), F.col("is_score")
    checks = [(F.col(name).isNull(), name, f"{name} must be there") for name in ("key", "id", "time")]
    checks.append((is_score & (p.isNull() | ~p.between(0.0, 1.0)), "score", "score must be in [0, 1]"))
    checks.append((~is_score & (y.isNull() | ~y.isin(0.0, 1.0)), "outcome", "outcome must be 0 or 1"))
    both = both.withColumn("reason", first_wrong(checks))
    if watermark is not None:
        both = both.withWatermark("time", watermark)
    moment = F.unix_micros("time").alias("time")
    hashes = F.xxhash64("key").alias("key_hash"), F.xxhash64("key", "id").alias("event_hash")
    return both.select("key", "id", moment, "score", "outcome", "reason", *hashes)


def _initial(state: Any, buckets: int) -> Any:
    hashed = state.select("key", "row", F.xxhash64("key").alias("key_hash"))
    return hashed.withColumn("bucket", F.pmod(F.col("key_hash"), F.lit(buckets)).cast("int")).groupBy("bucket")


def stream_state(
    spark: Any, checkpoint: str | os.PathLike[str], *, method: Method | str = "auto", seed: int = 0
) -> Any:
    """The rows of all keys of a stream as a state frame, read from its checkpoint after the last finished micro-batch.

    `method` and `seed` must be those of the stream. Events that wait for outcomes stay in the checkpoint.

    Raises
    ------
    InvalidInput : the stream has served no key yet.
    MissingExtra : pyspark 4.0 or later, pyarrow, pandas or protobuf is not installed.
    """
    check_libraries("calibeat.spark streaming", stream=True)
    text = described(Bank(method, seed, threads=1))
    reader = spark.read.format("statestore").option("stateVarName", "rows")
    pages = reader.load(os.fspath(checkpoint)).select(F.col("user_map_value.content").alias("content"))
    first = pages.limit(1).collect()
    if not first:  # pragma: no cover - a checkpoint before its first micro-batch
        raise InvalidInput(f"a stream must have served one key at least, got none - in {checkpoint}")
    strings = str(unpacked(first[0]["content"]).schema.field("key").type) == "string"
    rows = pages.mapInArrow(_unpacked, f"key {'string' if strings else 'bigint'}, row binary")
    return as_state(rows, text)


def _unpacked(batches: Iterator[Any]) -> Iterator[Any]:  # pragma: no cover - it runs in Spark's workers
    for batch in batches:
        for content in batch["content"].to_pylist():
            yield from unpacked(content).select(["key", "row"]).to_batches()


# ---- in the workers -----------------------------------------------------------------------------------------------


class Pack:
    """For `mapInArrow`: operations in, one row for each bucket out."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Tables of many rows, cut by bucket."""
        for table in in_tables(batches, _PIECE):
            bucket = np.mod(table["key_hash"].to_numpy(), self._buckets)
            order = np.argsort(bucket, kind="stable")
            used, begin = np.unique(bucket[order], return_index=True)
            ends = [*begin[1:].tolist(), len(bucket)]
            placed = table.take(pa.array(order)).cast(_short(table.schema)).combine_chunks()
            parts = [placed.slice(i, j - i) for i, j in zip(begin.tolist(), ends, strict=True)]
            columns = [pa.array(used.astype(np.int32)), pa.array([packed(part) for part in parts], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["bucket", "content"])


def _short(schema: Any) -> Any:
    """The same with strings as the pages have them; Spark may be set to send long ones."""
    return pa.schema([(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in schema])


class MapPages(PageStore):
    """Pages in a MapState of Spark."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, page: int) -> bytes:
        found = self._state.getValue((page,))
        if found is None:
            raise KeyError(page)
        return bytes(found[0])

    def __setitem__(self, page: int, content: bytes) -> None:
        self._state.updateValue((page,), (content,))

    def __delitem__(self, page: int) -> None:
        self._state.removeKey((page,))

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(key[0] for key in self._state.keys()))  # noqa: SIM118 - not a mapping

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
            self.bucket.start(initialState)

        def close(self) -> None:
            pass

    return Processor()


def serve(bucket: Bucket, handle: Any, frames: Iterable[Any], now: int | None, *, stop: bool) -> Iterator[Any]:
    """One micro-batch of a bucket: packed rows in, frames of pandas out. Sets the timers of its events."""
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
    columns = {name: rows[name] for name in ("key", "id", "time", "score", "outcome", "reason")}
    columns["status"] = statuses(np.full(len(rows), status))
    columns["forecast"] = pa.nulls(len(rows), pa.float64())
    return pa.table([columns[name] for name in COLUMNS], names=list(COLUMNS))


def framed(output: Any) -> Iterator[Any]:
    """What a bucket tells, as a frame of pandas; none if it tells nothing."""
    if len(output):
        at = COLUMNS.index("time")
        moments = one_array(output["time"]).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        # Whole numbers stay whole where some are missing.
        yield output.set_column(at, "time", moments).to_pandas(integer_object_nulls=True)
