"""Does calibeat work on the Spark that is installed here? Every call once, its bits compared with one process.

``SPARK_REMOTE=local[2] python -m benchmarks spark-check`` uses Spark Connect (``pip install 'pyspark[connect]'``).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark import served
from benchmarks.table import show
from calibeat import Bank, CalibeatError, MultiBank
from calibeat import spark as on_spark
from calibeat.core.stats import LAST
from calibeat.spark.session import SETTINGS

N, KEYS = 20_000, 50
COLUMNS: dict[str, Any] = {"key": "key", "score": "score", "outcome": "outcome", "order": "number", "method": "tops"}


def check(*, quick: bool) -> None:  # noqa: ARG001 - it is quick
    """One table: what was called, whether it gave the bits of one process, and how long it took."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    connect = "SPARK_REMOTE" in os.environ
    builder = SparkSession.builder if connect else SparkSession.builder.master("local[2]")
    options = {**SETTINGS, "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    for name, value in options.items():
        builder = builder.config(name, value)
    spark, folder = builder.getOrCreate(), Path(tempfile.mkdtemp(prefix="calibeat-check-"))
    try:
        rows = [_row(name, call) for name, call in _Calls(spark, folder).all()]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    how = "Connect" if connect else "a session of its own"
    python = ".".join(map(str, sys.version_info[:2]))
    show(f"Spark {pyspark.__version__}, Python {python}, {how}", ["call", "s", "same bits as one process"], rows)


def _row(name: str, call: Callable[[], bool]) -> list[str]:
    begin = perf_counter()
    try:
        result = "yes" if call() else "NO"
    except CalibeatError as error:
        result = str(error)
    return [name, f"{perf_counter() - begin:.1f}", result]


class _Calls:
    """Each call of calibeat.spark on a small log."""

    def __init__(self, spark: Any, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.spark, self.folder = spark, folder
        self.key, self.score = rng.integers(0, KEYS, N), rng.random(N)
        self.outcome = (rng.random(N) < self.score**2).astype(np.int64)
        columns = {"number": np.arange(N), "key": self.key, "score": self.score, "outcome": self.outcome}
        self.table = pa.table({**columns, "name": [f"k{k}" for k in self.key]})
        pq.write_table(self.table.take(pa.array(rng.permutation(N))), folder / "log.parquet")
        self.frame = spark.read.parquet(str(folder / "log.parquet"))
        self.bank = Bank("tops")
        self.wanted = self.bank.run(self.key, self.score, self.outcome)

    def all(self) -> list[tuple[str, Callable[[], bool]]]:
        """By name."""
        return [
            ("calibrate", self.calibrate),
            ("calibrate, path=, open", self.to_path),
            ("calibrate, classes=", self.classes),
            ("calibrate, state=", self.resume),
            ("to_bank, from_bank", self.banks),
            ("bad_rows", self.bad_rows),
            ("calibrate_stream, stream_state", self.stream),
        ]

    def _forecasts(self, result: Any) -> Any:
        return result.forecasts.orderBy("number").select("forecast").toPandas()["forecast"].to_numpy()

    def _rows(self, bank: Bank) -> Any:
        rows = bank.rows(sorted(bank))
        rows[:, bank.method.width + LAST] = 0.0
        return rows

    def calibrate(self) -> bool:
        return np.array_equal(self._forecasts(on_spark.calibrate(self.frame, **COLUMNS)), self.wanted)

    def to_path(self) -> bool:
        on_spark.calibrate(self.frame, **COLUMNS, path=self.folder / "run")
        result = on_spark.open(self.folder / "run", self.spark)
        same = np.array_equal(self._rows(on_spark.to_bank(result.state)), self._rows(self.bank))
        return same and np.array_equal(self._forecasts(result), self.wanted)

    def classes(self) -> bool:
        scores, names = np.stack([0.7 - 0.7 * self.score, np.full(N, 0.3), 0.7 * self.score], axis=1), ["a", "b", "c"]
        wanted = MultiBank(names).run(self.key, scores, np.array(names)[2 * self.outcome])
        parts = "array(0.7 - 0.7 * score, double(0.3), 0.7 * score) score", "if(outcome = 1, 'c', 'a') outcome"
        frame = self.frame.selectExpr("number", "key", *parts)
        found = on_spark.calibrate(frame, **{**COLUMNS, "method": "multi"}, classes=names)
        return np.array_equal(np.stack(self._forecasts(found)), wanted)

    def resume(self) -> bool:
        half, bank = N // 2, Bank("tops")
        bank.run(self.key[:half], self.score[:half], self.outcome[:half])
        result = on_spark.calibrate(self.frame.where(f"number >= {half}"), **COLUMNS, state=bank)
        return np.array_equal(self._forecasts(result), self.wanted[half:])

    def banks(self) -> bool:
        back = on_spark.to_bank(on_spark.from_bank(self.bank, self.spark))
        return np.array_equal(self._rows(back), self._rows(self.bank))

    def bad_rows(self) -> bool:
        names: dict[str, Any] = {"key": "key", "score": "score", "outcome": "outcome", "order": "number"}
        frame = self.frame.selectExpr("number", "key", "score + 0.5 as score", "outcome")
        return bool(on_spark.bad_rows(frame, **names).count() == int((self.score + 0.5 > 1.0).sum()))

    def stream(self) -> bool:
        time = np.datetime64("2024-01-01", "us") + np.arange(N).astype("m8[s]")
        values = {"score": (self.score, 0), "outcome": (self.outcome, 1)}
        for name, (column, late) in values.items():
            folder = self.folder / f"{name}s"
            folder.mkdir()
            columns = {"key": self.key, "id": np.arange(N), "time": time + np.timedelta64(late, "us"), name: column}
            pq.write_table(pa.table(columns), folder / "0.parquet")
        served(self.spark, self.folder, buckets=4, pages=4)
        told = self.spark.read.parquet(str(self.folder / "out")).where("status = 'forecast'")
        found = told.selectExpr("cast(id as bigint) number", "forecast").orderBy("number").toPandas()
        state = on_spark.stream_state(self.spark, self.folder / "checkpoint", method="tops")
        same = np.array_equal(self._rows(on_spark.to_bank(state)), self._rows(self.bank))
        return same and np.array_equal(found["forecast"].to_numpy(), self.wanted)
