"""calibeat on Spark beside one process, a batch and a stream: a master and two workers on loopback."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster import Cluster, python_seconds
from benchmarks.table import show, verdict
from calibeat import Bank
from calibeat import spark as on_spark
from calibeat.hosts.bank import rows_out
from calibeat.spark.state import to_bytes

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.executor.memory": "1500m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",  # one core has none to spare for G1's own threads
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


GOAL = 150_000  # events of a stream in a second


def scale(*, quick: bool) -> None:
    """Two tables: batch and stream. Ten minutes or less on two quiet cores."""
    events, keys = (2_000_000, 100_000) if quick else (20_000_000, 1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="calibeat-spark-"))
    try:
        with Cluster(folder) as cluster, connected(cluster.address, partitions=4) as spark:
            batch(spark, folder, events, keys)
            stream(spark, folder, 1_000_000 if quick else 4_000_000, 100_000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def connected(address: str, partitions: int) -> Iterator[Any]:
    """A session on the cluster, which ends with its Java process."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    spark = on_spark.session(address, "benchmark", {**QUIET, "spark.sql.shuffle.partitions": partitions})
    context = spark.sparkContext
    context.setLogLevel("OFF")
    java = context._gateway.proc
    try:
        yield spark
    finally:
        spark.stop()
        java.stdin.close()
        java.terminate()
        java.wait()
        type(context)._gateway = type(context)._jvm = None  # so that the next session starts a process of its own


# ---- batch ---------------------------------------------------------------------------------------------------------


def batch(spark: Any, folder: Path, events: int, keys: int) -> None:
    """The same input and output: a log of Parquet in; forecasts and final rows as Parquet out."""
    rng = np.random.default_rng(0)
    source = folder / "log"
    source.mkdir()
    for part, begin in enumerate(range(0, events, 1_000_000)):
        n = min(1_000_000, events - begin)
        score = rng.random(n)
        columns = {"seq": np.arange(begin, begin + n), "key": rng.integers(0, keys, n), "score": score}
        columns["outcome"] = (rng.random(n) < score**2).astype(np.int8)
        pq.write_table(pa.table(columns), source / f"{part:04d}.parquet")
    wall, cpu = perf_counter(), process_time()
    bank = Bank("tops", threads=1)
    writer = None
    for file in sorted(source.iterdir()):
        table = pq.read_table(file)
        keys_, scores, outcomes = (table[name].to_numpy() for name in ("key", "score", "outcome"))
        made = table.append_column("forecast", pa.array(bank.run(keys_, scores, outcomes, threads=1)))
        writer = writer or pq.ParquetWriter(folder / "one.parquet", made.schema)
        writer.write_table(made)
    assert writer is not None  # noqa: S101 - there are events
    writer.close()
    names, rows = rows_out(bank)
    pq.write_table(pa.table({"key": names, "row": pa.array(to_bytes(rows), pa.binary())}), folder / "rows.parquet")
    one = perf_counter() - wall, process_time() - cpu
    table_rows: list[list[str]] = [["one process", f"{one[0]:.1f}", f"{one[1]:.1f}", "1", "1", ""]]
    frame = spark.read.parquet(str(source))
    for run in ("first", "second"):
        path = folder / f"out-{run}"
        wall, cpu = perf_counter(), python_seconds()
        result = on_spark.calibrate(
            frame, key="key", score="score", outcome="outcome", order="seq", method="tops", path=path
        )
        took, python = perf_counter() - wall, python_seconds() - cpu
        state = result.state.select("key", "row").toArrow()
        own = dict(zip(names.tolist(), to_bytes(rows), strict=True))
        differ = sum(own[key] != row for key, row in zip(*(state[c].to_pylist() for c in ("key", "row")), strict=True))
        factor = f"{took / one[0]:.1f}", f"{python / one[1]:.1f}"
        table_rows.append([f"Spark, {run} run", f"{took:.1f}", f"{python:.1f}", *factor, f"{differ} of {len(state):,}"])
    show(
        f"Batch: {events:,} events, {keys:,} keys, TOPS, 4 partitions, master and two workers of one core",
        ["", "wall s", "CPU s of Python", "wall", "CPU", "rows that differ"],
        table_rows,
        [
            f"Goal: at most 3 times the wall of one process: {took / one[0]:.1f}, {verdict(met=took <= 3 * one[0])}",
            f"Goal: at most 2 times its CPU in Python: {python / one[1]:.1f}, {verdict(met=python <= 2 * one[1])}",
        ],
    )


# ---- stream --------------------------------------------------------------------------------------------------------


def stream(spark: Any, folder: Path, events: int, keys: int, batches: int = 8) -> None:
    """Scores and their outcomes, 100,000 events later, in micro-batches. The second half of them are warm."""
    cpu = python_seconds()
    told = run_stream(spark, folder / "stream", events, keys, batches, 100_000, buckets=16, pages=4)
    python = 1e6 * (python_seconds() - cpu) / sum(n for _, n, _ in told)
    warm = told[len(told) // 2 :]
    rate = sum(n for _, n, _ in warm) / sum(s for _, _, s in warm)
    found = pq.read_table(_files(folder / "stream" / "out"), columns=["status"])["status"].value_counts().to_pylist()
    counts = ", ".join(f"{entry['counts']:,} {entry['values']}" for entry in found)
    show(
        f"Stream: {events:,} events, {keys:,} keys, outcomes 100,000 events later, TOPS, 16 buckets of 4 pages",
        ["micro-batch", "rows", "s", "rows per s"],
        [[str(number), f"{n:,}", f"{s:.1f}", f"{n / s:,.0f}"] for number, n, s in told],
        [
            f"Warm: {rate:,.0f} rows a second, which are {rate / 2:,.0f} scores with their outcomes",
            f"Goal: {GOAL:,} rows a second or more: {verdict(met=rate >= GOAL)}",
            f"Goal: {GOAL:,} scores with their outcomes a second or more: {verdict(met=rate >= 2 * GOAL)}",
            f"CPU of Python: {python:.1f} us a row; told: {counts}",
        ],
    )


def _files(folder: Path) -> list[Path]:
    """What a sink has written; there is nothing else in the folder of a query that was never killed."""
    return sorted(folder.glob("*.parquet"))


def run_stream(
    spark: Any, folder: Path, events: int, keys: int, batches: int, late: int, **options: Any
) -> list[tuple[int, int, float]]:
    """-> number, rows and seconds of each micro-batch."""
    rng = np.random.default_rng(1)
    time = np.datetime64("2024-01-01", "us") + np.arange(events).astype("m8[ms]")
    score = rng.random(events)
    scores = pa.table({"key": rng.integers(0, keys, events), "id": np.arange(events), "time": time, "score": score})
    label = pa.array((rng.random(events) < score).astype("i1"))
    outcomes = scores.drop_columns(["score"]).append_column("outcome", label)
    outcomes = outcomes.set_column(2, "time", pa.array(time + np.timedelta64(late, "ms")))
    size = -(-events // batches)
    for name, table in (("scores", scores), ("outcomes", outcomes)):
        (folder / name).mkdir(parents=True)
        for part in range(batches):
            begin = max(0, part * size - (late if name == "outcomes" else 0))
            end = max(0, (part + 1) * size - (late if name == "outcomes" else 0))
            file = folder / name / f"{part:04d}.parquet"
            pq.write_table(table.slice(begin, end - begin), file)
            os.utime(file, (1e9 + part, 1e9 + part))
    return served(spark, folder, **options)


def served(spark: Any, folder: Path, **options: Any) -> list[tuple[int, int, float]]:
    """Serve the files of both streams to their end, from the checkpoint on; -> as `run_stream`."""
    frames = [
        spark.readStream.schema(spark.read.parquet(str(folder / name)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in ("scores", "outcomes")
    ]
    names = {"key": "key", "id": "id", "score": "score", "outcome": "outcome", "time": "time"}
    told = on_spark.calibrate_stream(frames[0], frames[1], **{**names, "method": "tops", **options})
    writer = told.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        (p["batchId"], p["numInputRows"], p["durationMs"]["triggerExecution"] / 1000.0)
        for p in query.recentProgress
        if p["numInputRows"]
    ]
