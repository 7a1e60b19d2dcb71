"""Runs on disk: `forecasts/` and `state/`, read again; what a killed job leaves is refused, in one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, InvalidInput, SnapshotMismatch
from calibeat import spark as on_spark
from calibeat.spark.folder import our_sentence

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

COLUMNS: dict[str, Any] = {"key": "key", "score": "score", "outcome": "outcome", "order": "number", "method": "tops"}


def log(n: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    score = rng.random(n)
    outcome = (rng.random(n) < score**2).astype(np.int64)
    return {"number": np.arange(n), "key": rng.integers(0, 7, n), "score": score, "outcome": outcome}


def in_spark(spark: Any, columns: dict[str, Any], rows: slice = slice(None)) -> Any:
    return spark.createDataFrame(pa.table({name: values[rows] for name, values in columns.items()}))


def sorted_forecasts(frame: Any) -> list[float]:
    return [row["forecast"] for row in frame.orderBy("number").collect()]


def test_two_folders_that_others_read_and_that_the_next_day_goes_on_from(spark: Any, tmp_path: Path) -> None:
    columns, bank = log(), Bank("tops")
    wanted = bank.run(columns["key"], columns["score"], columns["outcome"]).tolist()
    first, second = in_spark(spark, columns, slice(250)), in_spark(spark, columns, slice(250, 400))
    written = on_spark.calibrate(first, **COLUMNS, path=tmp_path / "day-1")
    read = spark.read.parquet(str(tmp_path / "day-1" / "forecasts"))
    assert read.columns == [*first.columns, "forecast", "judged"] and read.count() == 250
    assert sorted_forecasts(read) == sorted_forecasts(written.forecasts) == wanted[:250]
    keys = [row["key"] for row in spark.read.parquet(str(tmp_path / "day-1" / "state")).collect()]
    assert sorted(keys) == sorted(set(columns["key"][:250].tolist()))
    opened = on_spark.open(tmp_path / "day-1")
    by = {"path": tmp_path / "day-1", "text": str(tmp_path / "day-1"), "run": opened, "frame": opened.state}
    for state in by.values():
        assert sorted_forecasts(on_spark.calibrate(second, **COLUMNS, state=state).forecasts) == wanted[250:]
    on_spark.calibrate(second, **COLUMNS, state=tmp_path / "day-1", path=tmp_path / "day-2")
    final = on_spark.to_bank(on_spark.open(tmp_path / "day-2", spark).state)
    assert final.table["events"].sum() == 400 and sorted(final) == sorted(bank)


def test_what_a_killed_job_leaves_is_no_run(spark: Any, tmp_path: Path) -> None:
    frame = in_spark(spark, log(60))
    on_spark.calibrate(frame, **COLUMNS, path=tmp_path / "whole")
    for name, gone in (("no-mark", ["finished"]), ("no-state", ["finished", "state"])):
        shutil.copytree(tmp_path / "whole", tmp_path / name)
        for folder in gone:
            shutil.rmtree(tmp_path / name / folder)
        with pytest.raises(SnapshotMismatch, match=r"must hold a finished run.*got one whose job did not finish - at"):
            on_spark.open(tmp_path / name)
    with pytest.raises(SnapshotMismatch, match=r"must hold a finished run.*got nothing - at"):
        on_spark.calibrate(frame, **COLUMNS, state=tmp_path / "none")
    lost = next(file for file in (tmp_path / "whole" / "state").glob("*.parquet") if len(rows_of(file)) > 0)
    count = len(rows_of(lost))
    lost.unlink()
    with pytest.raises(SnapshotMismatch, match=f"state must hold 7 keys, as it did, got {7 - count} - at"):
        on_spark.open(tmp_path / "whole")
    with pytest.raises(InvalidInput, match=r"path must be new, got one that exists - at .*: remove it or name another"):
        on_spark.calibrate(frame, **COLUMNS, path=tmp_path / "whole")


def rows_of(file: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(file)


def test_a_mistake_in_the_rows_is_one_sentence_on_the_driver(spark: Any, tmp_path: Path) -> None:
    schema = "number int, key string, score double, outcome int"
    tied = spark.createDataFrame([(0, "a", 0.5, 1), (0, "a", 0.6, 1)], schema)
    percent = spark.createDataFrame([(0, "a", 50.0, 1)], schema)
    with pytest.raises(InvalidInput) as error:
        on_spark.calibrate(tied, **COLUMNS, path=tmp_path / "tied")
    assert str(error.value) == "order must tell the events of a key apart, got the same twice - at key 'a', number 0"
    with pytest.raises(InvalidInput) as error:
        on_spark.calibrate(percent, **COLUMNS, path=tmp_path / "percent")
    assert str(error.value) == "score must be in [0, 1], got 50.0 - at key 'a', number 0"
    # Where Spark raises it, the sentence stands behind one frame of a worker.
    with pytest.raises(Exception, match=r"InvalidInput: order must tell the events of a key apart") as lazily:
        on_spark.calibrate(tied, **COLUMNS).forecasts.collect()
    assert str(lazily.value).split("InvalidInput")[0].count("  File ") == 1


def test_only_our_own_errors_become_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"^score must be there$"), our_sentence():
        raise RuntimeError("File x.py\ncalibeat.errors.InvalidInput: score must be there\n\nat java.lang")
    with pytest.raises(RuntimeError, match="disk full"), our_sentence():
        raise RuntimeError("disk full")
    with pytest.raises(InvalidInput, match=r"^as it is$"), our_sentence():
        raise InvalidInput("as it is")
