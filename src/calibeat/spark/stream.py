"""`calibrate_stream`: two streams in, one of scores and one of outcomes, forecasts out.

Spark hands the rows of a group to Python one by one. So the rows of a bucket travel as one: a table of Arrow, as bytes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakSet

import numpy as np

from calibeat._util.check import check_choice, check_outcome, check_whole
from calibeat._util.extras import LazyModule
from calibeat.core.method import Method
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import check_takes_weights

from .bucket import BAD, COLUMNS, LATE, STATUSES, Bucket, PageStore, Rules, one_array, packed, statuses, unpacked
from .columns import (
    TIMESTAMPS,
    WEIGHT_RULE,
    Many,
    check_column,
    check_one_kind,
    duration,
    first_wrong,
    in_tables,
    quoted,
    wrong_values,
    wrong_weight,
)
from .folder import state_to_resume
from .session import check_frame, check_libraries, without_pandas_warning
from .state import as_state, described, door_of, new_bank

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")
F = LazyModule("pyspark.sql.functions")

OUTPUT = (
    "key {key}, id string, time timestamp, status string, score {score}, forecast {score}, outcome double, "
    "reason string"
)
PACKED = "bucket int, content binary, clock timestamp"
MOST_BUCKETS = 4096
EXPIRY_TICKS = 16  # timers in the time after which an event expires
AHEAD = "time must not be ahead of the clock of the cluster by more than max_ahead"
TRUSTED = 100  # one row in so many may have a clock that is wrong
MUCH = 0.05  # the share of rows that were not served which is told
ROWS_IN, ROWS_OUT = "calibeat_in", "calibeat_out"  # what Spark's progress of a query calls the counts
_PIECE = 262_144  # rows that are packed at once
_log = logging.getLogger("calibeat.spark")


@without_pandas_warning()
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
    state: Any = None,
    expire: Any = None,
    expire_as: Any = None,
    mature: Any = None,
    watermark: str = "10 minutes",
    max_ahead: Any = "1h",
    learnt: bool = False,
    bad: str = "stop",
    buckets: int = 64,
    pages: int = 16,
    classes: Any = None,
    logits: bool = False,
    groups: Any = None,
    weight: str | None = None,
) -> Any:
    """Forecast every score of a stream as it comes, and learn outcomes from another stream whenever they come.

    Parameters
    ----------
    scores, outcomes : streaming DataFrames. An event is known by key and id in both.
    key, id, score, outcome : names of columns; ids are compared as text.
    time, outcome_time : when a score was issued and when an outcome was known, timestamps. `outcome_time` is the name
        in `outcomes`, if it is another.
    method, seed : as in `Bank`.
    state : where to start from, in the first micro-batch of a new checkpoint; as of `calibrate`.
    expire : the age at which an event is forgotten: a time such as ``"30d"``. Until then repeats are recognised.
        Without it nothing is ever forgotten, and nothing is dropped by a watermark.
    expire_as : 0 or 1: learn this for an event whose outcome has not come by then. If not given it is not learnt.
    mature : the age at which outcomes are learnt, a time such as ``"7d"``, shorter than `expire`. An outcome that comes
        before is held until its event is so old by the watermark. So ones and zeros are learnt at the same age.
    watermark : with `expire` or `mature`, how late rows may be. Rows that are older than the latest time of earlier
        micro-batches less this are late: they are reported and not served.
    max_ahead : a row whose time is further ahead of the time at which its micro-batch began has a wrong clock. It is
        reported as "bad" and not served, also with ``bad="stop"``. Nor can the latest hundredth of the rows that are
        packed together move the watermark further than this beyond the others. None: every clock is believed.
    learnt : also report every outcome that is held or learnt.
    bad : "stop": the query fails at the first row that cannot be used, and names it. "side": such rows are reported.
    buckets : of keys, the unit of state. Fixed for the life of a checkpoint.
    pages : of a bucket, the unit of writing. Fixed as well.
    classes, logits : many classes, as of `calibrate`: `score` is a column of arrays, `outcome` holds labels, and so do
        `score`, `forecast` and `outcome` of the result. Scores are then reported as probabilities.
    groups : refused, as by `Bank`: every key learns alone here.
    weight : a column of `outcomes` with their weights, where the log kept only some events. Null is 1. An outcome that
        comes again with another weight is a "conflict".

    Returns a streaming frame: key, id, time, status, score, forecast, outcome, reason. Forecasts have the status
    "forecast". All others are the side output: "repeated" and "conflict" (the id came before, with the same score or
    outcome or with another), "expired" (no outcome came), "unknown" (an outcome expired without a score), "late", "bad"
    (with a reason), "held" and "learnt" if asked for. How many rows came, and how many of each status went out, is in
    the progress of the query, under ``observedMetrics``: ``calibeat_in`` and ``calibeat_out``. Where more than a
    twentieth of the rows of a micro-batch is late or bad, a warning is logged.

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
    bank = new_bank(method, classes, logits=logits, seed=seed, groups=groups)
    door = door_of(bank)
    many = Many.of(door)
    check_frame(scores, "scores", streaming=True)
    check_frame(outcomes, "outcomes", streaming=True)
    check_choice("bad", bad, ("stop", "side"))
    check_whole("buckets", buckets, 1, MOST_BUCKETS)
    check_whole("pages", pages, 1, MOST_BUCKETS)
    times = time, outcome_time or time
    for frame, when, role, name in ((scores, times[0], "score", score), (outcomes, times[1], "outcome", outcome)):
        for column in (("key", key), ("id", id), ("time", when, TIMESTAMPS), (role, name)):
            check_column(frame, *(column if many is None or column[0] != role else (role, name, many.holds[role])))
    if weight is not None:
        check_takes_weights(bank)
        check_column(outcomes, "weight", weight)
    strings = check_one_kind((scores, key, "scores"), (outcomes, key, "outcomes"))
    expires, matures = duration("expire", expire, least=1), duration("mature", mature, least=1)
    ahead = duration("max_ahead", max_ahead)
    if expires is not None and matures is not None and expires <= matures:
        raise InvalidInput(f"expire must be longer than mature, got {expire!r} and {mature!r}")
    if expire_as is not None and expires is None:
        raise InvalidInput("expire_as needs expire, got none")
    settled = None
    if expire_as is not None:
        settled = int(check_outcome(expire_as)) if door is None else door.classes.column(expire_as)
    rules = Rules(described(bank), strings, pages, expires, settled, learnt, matures, weight is not None)
    timed = expires is not None or matures is not None
    both = _operations(scores, outcomes, (key, id, score, outcome), times, strings, ahead, many, weight)
    both = both.observe(ROWS_IN, F.count(F.lit(1)).alias("rows"))
    initial = None if state is None else _initial(state_to_resume(state, scores, key, rules.described), buckets)
    packed_rows = both.mapInArrow(Pack(buckets, ahead), PACKED)
    if timed:
        packed_rows = packed_rows.withWatermark("clock", watermark)
    # Without the column of the watermark: Spark would drop rows that are late, and nobody would hear of them.
    grouped = packed_rows.select("bucket", "content").groupBy("bucket")
    kinds = {"key": "string" if strings else "bigint", "score": "double" if many is None else "array<double>"}
    worker = processor(rules, stop=bad == "stop")
    mode = "EventTime" if timed else "None"
    told = grouped.transformWithStateInPandas(worker, OUTPUT.format(**kinds), "Append", mode, initial)
    if many is not None:
        told = told.withColumn("outcome", many.label_at(F.col("outcome")))
    _tell_shares(scores.sparkSession)
    return told.observe(ROWS_OUT, *(F.count(F.when(F.col("status") == name, 1)).alias(name) for name in STATUSES))


def _operations(
    scores: Any,
    outcomes: Any,
    names: tuple[str, str, str, str],
    times: tuple[str, str],
    strings: bool,
    ahead: int | None,
    many: Many | None,
    weight: str | None,
) -> Any:
    """Both streams as one. `xxhash64` decides where a key and an event are kept, for the life of a checkpoint."""
    key, name, score, outcome = (quoted(given) for given in names)
    kind = "string" if strings else "bigint"
    label = "string" if many is not None and many.named else "double"

    def columns(frame: Any, when: str, p: Any, y: Any, w: Any) -> Any:
        shared = F.col(key).cast(kind).alias("key"), F.col(name).cast("string").alias("id")
        moment = F.col(quoted(when)).cast("timestamp").alias("time")
        scores = p.cast("double" if many is None else "array<double>").alias("score")
        heavy = [] if weight is None else [w.cast("double").alias("weight")]
        return frame.select(*shared, moment, scores, y.cast(label).alias("outcome"), *heavy)

    nothing = F.lit(None)
    heavy = nothing if weight is None else F.col(quoted(weight))
    asked = columns(scores, times[0], F.col(score), nothing, nothing).withColumn("is_score", F.lit(True))
    known = columns(outcomes, times[1], nothing, F.col(outcome), heavy).withColumn("is_score", F.lit(False))
    both = asked.unionByName(known)
    p, y, is_score = F.col("score"), F.col("outcome"), F.col("is_score")
    checks = [(F.col(name).isNull(), name, f"{name} must be there") for name in ("key", "id", "time")]
    wrong_scores, (wrong_outcome, rule) = wrong_values(p, y, many)
    checks += [(is_score & wrong, "score", required) for wrong, required in wrong_scores]
    checks.append((~is_score & (y.isNull() | wrong_outcome), "outcome", rule))
    if weight is not None:
        checks.append((wrong_weight(F.col("weight")), "weight", WEIGHT_RULE))
    moment = F.unix_micros("time").alias("time")
    if ahead is not None:  # the time at which the micro-batch began: the same where it runs again
        checks.append((moment > F.unix_micros(F.current_timestamp()) + ahead, "time", AHEAD))
    both = both.withColumn("reason", first_wrong(checks))
    if many is not None:
        both = both.withColumn("outcome", many.position(y))
    hashes = F.xxhash64("key").alias("key_hash"), F.xxhash64("key", "id").alias("event_hash")
    own = ["weight"] if weight is not None else []
    return both.select("key", "id", moment, "score", "outcome", *own, "reason", *hashes)


# ---- what is told of rows that are not served ---------------------------------------------------------------------

_told: WeakSet[Any] = WeakSet()  # sessions that have a listener


def _tell_shares(spark: Any) -> None:
    """Log a warning, in this session, where many rows of a micro-batch are late or bad."""
    if spark in _told or type(spark).__module__.startswith("pyspark.sql.connect"):  # there is no Java to listen to
        return
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Shares(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            told = not_served(event.progress.observedMetrics)
            if told:
                _log.warning("micro-batch %s: %s", event.progress.batchId, told)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    spark.streams.addListener(Shares())
    _told.add(spark)


def not_served(counts: Any) -> str:
    """What is to be said of the counts of a micro-batch, as ``observedMetrics`` has them; nothing if all is well.

    >>> not_served({"calibeat_in": {"rows": 2000}, "calibeat_out": {"late": 400, "bad": 1}})
    '400 of 2,000 rows (20 %) were late: older than the watermark, and not served - see watermark= and the clocks'
    """
    if ROWS_IN not in counts or ROWS_OUT not in counts:
        return ""
    rows, out = counts[ROWS_IN]["rows"], counts[ROWS_OUT]
    causes = {
        "late": "older than the watermark, and not served - see watermark= and the clocks",
        "bad": "not served - the output has their reasons",
    }
    found = [
        f"{out[name]:,} of {rows:,} rows ({out[name] / rows:.0%}) were {name}: {cause}".replace("%)", " %)")
        for name, cause in causes.items()
        if rows and out[name] > MUCH * rows
    ]
    return "; ".join(found)


def _initial(state: Any, buckets: int) -> Any:
    hashed = state.select("key", "row", F.xxhash64("key").alias("key_hash"))
    return hashed.withColumn("bucket", F.pmod(F.col("key_hash"), F.lit(buckets)).cast("int")).groupBy("bucket")


@without_pandas_warning()
def stream_state(
    spark: Any,
    checkpoint: str | os.PathLike[str],
    *,
    method: Method | str = "auto",
    seed: int = 0,
    classes: Any = None,
    logits: bool = False,
) -> Any:
    """The rows of all keys of a stream as a state frame, read from its checkpoint after the last finished micro-batch.

    `method`, `seed`, `classes` and `logits` must be those of the stream. Events that wait for outcomes stay in the
    checkpoint.

    Raises
    ------
    InvalidInput : the stream has served no key yet.
    MissingExtra : pyspark 4.0 or later, pyarrow, pandas or protobuf is not installed.
    """
    check_libraries("calibeat.spark streaming", stream=True)
    text = described(new_bank(method, classes, logits=logits, seed=seed))
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
    """For `mapInArrow`: operations in, one row for each bucket out, with the time that all of them have reached.

    `ahead` is how far, in microseconds, the latest of them may move the clock.
    """

    def __init__(self, buckets: int, ahead: int | None = None) -> None:
        self._buckets, self._ahead = buckets, ahead

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
            clock = np.full(len(used), clock_of(table, self._ahead))
            columns.append(pa.array(clock).cast(pa.timestamp("us", tz="UTC")))
            yield pa.RecordBatch.from_arrays(columns, names=["bucket", "content", "clock"])


def clock_of(table: Any, ahead: int | None) -> int:
    """The latest time of rows that can be used, in microseconds; 0 if there is none.

    One row in a hundred, and one at least, may be wrong: such rows move it by `ahead` at most, if others are there.
    """
    times = table.filter(pc.is_null(table["reason"]))["time"].to_numpy()
    if not len(times):
        return 0
    others = len(times) - max(1, len(times) // TRUSTED)
    latest = int(times.max())
    if ahead is None or others < 1:
        return latest
    return min(latest, int(np.partition(times, others - 1)[others - 1]) + ahead)


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
        ours = bad.filter(pc.invert(pc.starts_with(bad["reason"], AHEAD)))  # a wrong clock elsewhere stops nobody
        if stop and len(ours):
            first = ours.sort_by([("time", "ascending"), ("id", "ascending")]).slice(0, 1).to_pylist()[0]
            raise InvalidInput(f"{first['reason']} - at key {first['key']!r:.60}, id {first['id']!r:.60}")
        yield from framed(_aside(bad, BAD))
        batch = batch.filter(pc.invert(wrong))
    if now is not None and len(batch):
        late = pa.array(batch["time"].to_numpy() < now)
        yield from framed(_aside(batch.filter(late), LATE))
        batch = batch.filter(pc.invert(late))
    if not len(batch):
        return
    columns = {name: batch[name] for name in ("key", "id", "time", "score", "key_hash", "event_hash")}
    columns["outcome"] = batch["outcome"].fill_null(float("nan"))
    if "weight" in batch.column_names:
        columns["weight"] = batch["weight"].fill_null(1.0)
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
    columns["forecast"] = pa.nulls(len(rows), rows["score"].type)
    return pa.table([columns[name] for name in COLUMNS], names=list(COLUMNS))


def framed(output: Any) -> Iterator[Any]:
    """What a bucket tells, as a frame of pandas; none if it tells nothing."""
    if len(output):
        at = COLUMNS.index("time")
        moments = one_array(output["time"]).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        # Whole numbers stay whole where some are missing.
        yield output.set_column(at, "time", moments).to_pandas(integer_object_nulls=True)
