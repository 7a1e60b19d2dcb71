"""Where receipts of a stream are kept: one entry each in Spark's state, pages of them, or one value for all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark import connected, run_stream, served
from benchmarks.table import show

SIZE, PAGES, FEW = 104, 16, 100  # bytes of a receipt, pages, receipts that a small micro-batch changes


def layouts(*, quick: bool) -> None:
    """Two tables: what each receipt costs, and what a small micro-batch writes where many events wait."""
    _receipts(2_000 if quick else 10_000)
    _pages(100_000 if quick else 500_000)


def _receipts(count: int) -> None:
    """Microseconds for each receipt, of the clock and of Python's CPU, on one core."""
    folder = Path(tempfile.mkdtemp(prefix="calibeat-state-"))
    try:
        (folder / "in").mkdir()
        pq.write_table(pa.table({"bucket": [0]}), folder / "in" / "0.parquet")
        with connected("local[1]", partitions=1) as spark:
            stream = spark.readStream.schema("bucket long").parquet(str(folder / "in")).groupBy("bucket")
            schema = "layout string, what string, wall double, cpu double, receipts long"
            told = stream.transformWithStateInPandas(_measuring(count), schema, "Append", "None")
            writer = told.writeStream.format("parquet").option("path", str(folder / "out"))
            query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
            rows = spark.read.parquet(str(folder / "out")).toArrow().to_pylist()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    names = ("one entry each", f"{PAGES} pages", "one value")
    whats = ("write all", "read all", "change")
    by = {(row["layout"], row["what"]): row for row in rows}

    def shown(row: dict[str, Any]) -> str:
        wall, cpu = (1e6 * row[name] / row["receipts"] for name in ("wall", "cpu"))
        return f"{wall:.1f} ({cpu:.1f})"

    show(
        f"State: {count:,} receipts of {SIZE} bytes in RocksDB, us for each receipt (CPU of Python)",
        ["", "write all", "read all", f"change {FEW}"],
        [[name, *(shown(by[name, what]) for what in whats)] for name in names],
    )


def _measuring(count: int) -> Any:  # noqa: C901 - it holds a class
    """Made here: its base class comes from Spark, and Spark's workers need not know this module."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    size, pages, few = SIZE, PAGES, FEW

    class Measuring(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.each = handle.getMapState("each", "id long", "content binary")
            self.paged = handle.getMapState("pages", "page int", "content binary")
            self.value = handle.getValueState("value", "content binary")
            self.receipts = [bytes([i % 251]) * size for i in range(count)]

        def write_each(self, numbers: Any) -> None:
            for i in numbers:
                self.each.updateValue((i,), (self.receipts[i],))

        def read_each(self, numbers: Any) -> None:
            for i in numbers:
                self.each.getValue((i,))

        def write_pages(self, numbers: Any) -> None:
            for page in sorted({i % pages for i in numbers}):
                self.paged.updateValue((page,), (b"".join(self.receipts[page::pages]),))

        def read_pages(self, numbers: Any) -> None:
            for page in sorted({i % pages for i in numbers}):
                self.paged.getValue((page,))

        def write_value(self, numbers: Any) -> None:  # noqa: ARG002 - it is written whole
            self.value.update((b"".join(self.receipts),))

        def read_value(self, numbers: Any) -> None:  # noqa: ARG002 - it is read whole
            self.value.get()

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, ARG002
            from time import perf_counter, process_time

            import pandas as pd

            list(rows)
            found: list[tuple[str, str, float, float, int]] = []
            for layout, write, read in (
                ("one entry each", self.write_each, self.read_each),
                (f"{pages} pages", self.write_pages, self.read_pages),
                ("one value", self.write_value, self.read_value),
            ):
                every, some = range(count), range(0, count, count // few)
                steps = (("write all", [write], every), ("read all", [read], every), ("change", [read, write], some))
                for what, work, numbers in steps:
                    wall, cpu = perf_counter(), process_time()
                    for call in work:
                        call(numbers)
                    found.append((layout, what, perf_counter() - wall, process_time() - cpu, len(numbers)))
            yield pd.DataFrame(found, columns=["layout", "what", "wall", "cpu", "receipts"])

        def close(self) -> None:
            pass

    return Measuring()


def _pages(pending: int) -> None:
    """Many events wait; then a small micro-batch comes. One page a bucket is one value that is rewritten whole."""
    rows: list[list[str]] = []
    folder = Path(tempfile.mkdtemp(prefix="calibeat-pages-"))
    try:
        with connected("local[2]", partitions=4) as spark:
            for count in (1, 16, 64):
                place = folder / f"pages-{count}"
                told = run_stream(spark, place, pending, 10_000, 1, pending, pages=count)
                before = _written(place / "checkpoint")
                _few_outcomes(place, pending)
                small = served(spark, place, pages=count)
                more = (_written(place / "checkpoint") - before) / 1e6
                rows.append([str(count), f"{told[0][2]:.1f}", f"{small[0][2]:.1f}", f"{more:.1f}"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(
        f"Pages: {pending:,} events wait, then one micro-batch of 1,000 outcomes, 64 buckets",
        ["pages a bucket", "first batch s", "small batch s", "MB written to the checkpoint"],
        rows,
    )


def _few_outcomes(folder: Path, pending: int) -> None:
    first = pq.read_table(folder / "scores" / "0000.parquet").slice(0, 1000)
    few = first.drop_columns(["score"]).append_column("outcome", pa.array(np.ones(1000, dtype="i1")))
    few = few.set_column(2, "time", pa.array(first["time"].to_numpy() + np.timedelta64(2 * pending, "ms")))
    pq.write_table(few, folder / "outcomes" / "0001.parquet")


def _written(checkpoint: Path) -> int:
    """Bytes that lie in the state of a checkpoint."""
    return sum(file.stat().st_size for file in (checkpoint / "state").rglob("*") if file.is_file())
