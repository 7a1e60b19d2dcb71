"""`calibrate_stream`: two streams in, one of scores and one of outcomes, forecasts out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from calibeat._util.check import check_choice, check_outcome, check_whole
from calibeat._util.times import check_age
from calibeat.core.method import Method
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank

from .bucket import Rules
from .columns import column_of, quoted
from .pages import unpacked
from .session import check_frame, check_libraries
from .state import FORMAT, check_same, check_state, described, from_bank
from .worker import PACKED, Pack, processor

OUTPUT = (
    "key {key}, id string, time timestamp, status string, score double, forecast double, outcome double, reason string"
)
MOST_BUCKETS = 4096


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
    expire : so long after its score an event is forgotten: a time such as ``"30d"``. Until then repeats are recognised.
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

    Returns a streaming frame: key, id, time, status, score, forecast, outcome, reason. Forecasts have the status
    "forecast". All others are the side output: "repeated" and "conflict" (the id came before, with the same score or
    outcome or with another), "expired" (no outcome came), "unknown" (an outcome expired without a score), "late", "bad"
    (with a reason), "held" and "learnt" if asked for.

    Within a micro-batch, operations of a key are taken by time, outcomes before scores of the same time, then by id;
    micro-batches one after the other. What comes of age is learnt after the rows of the micro-batch: by due time, then
    by the time of the outcome, then by id. The session must keep states in RocksDB, as that of `session` does.
    """
    check_libraries("calibeat.spark streaming", stream=True)
    check_frame(scores, "scores", streaming=True)
    check_frame(outcomes, "outcomes", streaming=True)
    check_choice("bad", bad, ("stop", "side"))
    check_whole("buckets", buckets, 1, MOST_BUCKETS)
    check_whole("pages", pages, 1, MOST_BUCKETS)
    bank = Bank(method, seed, independent=independent, threads=1)
    strings = _check_columns(scores, outcomes, key, id, score, outcome, time, outcome_time or time)
    expires, matures = _duration("expire", expire), _duration("mature", mature)
    if expires is not None and matures is not None and expires <= matures:
        raise InvalidInput(f"expire must be longer than mature, got {expire!r} and {mature!r}")
    if expire_as is not None and expires is None:
        raise InvalidInput("expire_as needs expire, got none")
    settled = None if expire_as is None else int(check_outcome(expire_as))
    rules = Rules(described(bank), strings, pages, expires, settled, learnt, matures)
    operations = _operations(scores, outcomes, (key, id, score, outcome), (time, outcome_time or time), strings)
    timed = expires is not None or matures is not None
    if timed:
        operations = operations.withWatermark("time", watermark)
    initial = None if state is None else _initial(scores, state, rules, buckets)
    grouped = _hashed(operations).mapInArrow(Pack(buckets), PACKED).groupBy("bucket")
    schema = OUTPUT.format(key="string" if strings else "bigint")
    worker = processor(rules, stop=bad == "stop")
    return grouped.transformWithStateInPandas(worker, schema, "Append", "EventTime" if timed else "None", initial)


def _duration(name: str, given: Any) -> int | None:
    if given is None:
        return None
    age, is_time = check_age(name, given)
    if not is_time or not age:
        raise InvalidInput(f"{name} must be a time such as 30d, got {given!r}")
    return age


def _check_columns(
    scores: Any, outcomes: Any, key: str, name: str, score: str, outcome: str, time: str, outcome_time: str
) -> bool:
    """Whether keys are strings."""
    whole, numbers = ("byte", "short", "integer", "long"), ("float", "double", "decimal")
    for frame, when in ((scores, time), (outcomes, outcome_time)):
        column_of(frame, "key", key, (*whole, "string"), "whole numbers or strings")
        column_of(frame, "id", name, (*whole, "string"), "whole numbers or strings")
        column_of(frame, "time", when, ("timestamp", "timestamp_ntz"), "timestamps")
    column_of(scores, "score", score, (*whole, *numbers), "numbers")
    column_of(outcomes, "outcome", outcome, (*whole, *numbers, "boolean"), "0 and 1, or booleans")
    kinds = [frame.schema[key].dataType.typeName() == "string" for frame in (scores, outcomes)]
    if kinds[0] != kinds[1]:
        raise InvalidInput("keys must be of one kind, got strings in one stream and numbers in the other")
    return kinds[0]


def _operations(
    scores: Any, outcomes: Any, names: tuple[str, str, str, str], times: tuple[str, str], strings: bool
) -> Any:
    """Both streams as one, with the same columns."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

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
    p, y = F.col("score"), F.col("outcome")
    checks = {
        "key must be there, got nothing": F.col("key").isNull(),
        "id must be there, got nothing": F.col("id").isNull(),
        "time must be there, got nothing": F.col("time").isNull(),
        "score must be in [0, 1], got ": F.col("is_score") & (p.isNull() | ~p.between(0.0, 1.0)),
        "outcome must be 0 or 1, got ": ~F.col("is_score") & (y.isNull() | ~y.isin(0.0, 1.0)),
    }
    reason = F.lit(None).cast("string")
    for sentence, wrong in reversed(checks.items()):
        got = F.coalesce(p.cast("string"), y.cast("string"), F.lit("nothing"))
        text = F.concat(F.lit(sentence), got) if sentence.endswith(" ") else F.lit(sentence)
        reason = F.when(wrong, text).otherwise(reason)
    return both.withColumn("reason", reason)


def _hashed(operations: Any) -> Any:
    """What the workers read. `xxhash64` decides where a key and an event are kept, for the life of a checkpoint."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return operations.select(
        "key",
        "id",
        F.unix_micros("time").alias("time"),
        "score",
        "outcome",
        "reason",
        F.xxhash64("key").alias("key_hash"),
        F.xxhash64("key", "id").alias("event_hash"),
    )


def _initial(scores: Any, state: Any, rules: Rules, buckets: int) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if isinstance(state, (str, os.PathLike, Bank)):
        state = from_bank(state, scores.sparkSession)
    found = check_state(state).select("method", "version").distinct().limit(2).collect()
    check_same([(row["method"], row["version"]) for row in found], rules.described)
    if (state.schema["key"].dataType.typeName() == "string") != rules.strings:
        raise InvalidInput("keys must be of one kind, got strings in one of state and scores and numbers in the other")
    hashed = state.select("key", "row", F.xxhash64("key").alias("key_hash"))
    return hashed.withColumn("bucket", F.pmod(F.col("key_hash"), F.lit(buckets)).cast("int")).groupBy("bucket")


# ---- state out ---------------------------------------------------------------------------------------------------


def stream_state(
    spark: Any, checkpoint: str | os.PathLike[str], *, method: Method | str = "auto", seed: int = 0
) -> Any:
    """The rows of all keys of a stream as a state frame, read from its checkpoint after the last finished micro-batch.

    `method` and `seed` must be those of the stream. Events that wait for outcomes stay in the checkpoint.
    """
    check_libraries("calibeat.spark streaming", stream=True)
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    text = described(Bank(method, seed, threads=1))
    reader = spark.read.format("statestore").option("stateVarName", "rows")
    pages = reader.load(os.fspath(checkpoint)).select(F.col("user_map_value.content").alias("content"))
    first = pages.limit(1).collect()
    if not first:  # pragma: no cover - a checkpoint before its first micro-batch
        raise InvalidInput(f"a stream must have served one key at least, got none - in {checkpoint}")
    strings = str(unpacked(first[0]["content"]).schema.field("key").type) == "string"
    rows = pages.mapInArrow(_unpacked, f"key {'string' if strings else 'bigint'}, row binary")
    return rows.select("key", "row", F.lit(text).alias("method"), F.lit(FORMAT).alias("version"))


def _unpacked(batches: Iterator[Any]) -> Iterator[Any]:  # pragma: no cover - it runs in Spark's workers
    for batch in batches:
        for content in batch["content"].to_pylist():
            yield from unpacked(content).select(["key", "row"]).to_batches()
