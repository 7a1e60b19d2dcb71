"""The backtest of a frame of Spark: every number of the backtest in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibeat
from calibeat.backtest.options import Options
from calibeat.backtest.read.arrow import batch_of
from calibeat.core.presets import OPS
from calibeat.errors import CalibeatError, InvalidInput
from calibeat.spark import backtest
from calibeat.spark.backtest import parcels
from calibeat.spark.columns import unpacked
from calibeat.spark.replays import Made, PartitionReplay

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

START = np.datetime64("2024-01-01T00:00:00", "us")


def log(n: int, keys: int = 12, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    time = START + np.cumsum(rng.integers(1, 60, n)).astype("timedelta64[s]")
    frame = pd.DataFrame({"time": time, "key": [f"k{k}" for k in rng.integers(0, keys, n)], "p": score})
    frame["y"] = (rng.random(n) < score**2).astype(np.int64)
    # Ones are known soon, zeros late.
    wait = np.where(frame["y"] == 1, rng.integers(1, 600, n), rng.integers(6000, 9000, n))
    frame["known"] = time + wait.astype("timedelta64[s]")
    return frame


def in_spark(spark: Any, table: Any, path: Path) -> Any:
    pa.parquet.write_table(pa.Table.from_pandas(table.sample(frac=1.0, random_state=1), preserve_index=False), path)
    return spark.read.parquet(str(path))


def numbers(result: Any) -> Any:
    """All of a payload but when and how it was made, how long it took, and where rows were read from."""
    payload = dict(result.payload)
    methods = [{k: v for k, v in method.items() if k != "seconds"} for method in payload["methods"]]
    skipped = [(entry["reason"], entry["count"]) for entry in payload["data"]["skipped"]]
    data = {**payload["data"], "source": None, "skipped": skipped}
    return {**payload, "created": None, "command": None, "methods": methods, "data": data}


def test_every_number_of_one_process_with_late_outcomes_and_keys(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    table = log(135_000, keys=40)
    names = {"score": "p", "outcome": "y", "key": "key", "time": "time", "outcome_time": "known"}
    wanted = calibeat.backtest(table, **names, methods="ops,hops", title="Log")
    frame = in_spark(spark, table, tmp_path / "log.parquet")
    got = backtest(frame, **names, methods="ops,hops", title="Log", partitions=3)
    assert any("mature" in name for name in got.table["method"])  # ones and zeros come at different ages
    assert numbers(got) == numbers(wanted)
    got.to_html(tmp_path / "report.html")
    assert "Log" in (tmp_path / "report.html").read_text()


def test_without_keys_with_bad_rows_and_with_delays_in_events(spark: Any, tmp_path: Path) -> None:
    table = log(30_000)
    table.loc[[7, 9000], "p"] = 1.5
    frame = in_spark(spark, table, tmp_path / "log.parquet")
    for keys, more in (
        ({}, {}),
        ({"key": "key"}, {}),
        ({"key": "key"}, {"delay": 50}),
        ({"key": "key"}, {"delay": "1h"}),
    ):
        names = {"score": "p", "outcome": "y", "time": "time", **keys}
        wanted = calibeat.backtest(table, **names, methods="ops", skip_bad=True, **more)
        assert numbers(backtest(frame, **names, methods="ops", skip_bad=True, **more)) == numbers(wanted)
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got 1\.5 - at row 7"):
        backtest(frame, score="p", outcome="y", key="key", time="time", methods="ops")


def test_what_is_refused(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 0.5, 1)], "t int, p double, y int")
    for sentence, changed in (
        ("order must name the columns that sort the log", {}),
        ("outcome_time needs time", {"outcome_time": "t", "order": "t"}),
        ("delay must not be set", {"outcome_time": "t", "time": "t", "delay": 3}),
        ("key must be a column of the frame, got 'k'", {"key": "k", "order": "t"}),
        ("bins must be", {"bins": 0, "order": "t"}),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            backtest(frame, score="p", outcome="y", **changed)


def test_a_partition_without_spark_in_any_cut() -> None:
    table = pa.Table.from_pandas(log(4000), preserve_index=False)
    columns = {"score": "p", "outcome": "y", "key": "key", "time": "time", "outcome time": "known"}
    work = PartitionReplay(Options(), columns, (OPS,), late=True)
    whole = pa.Table.from_batches(list(work(iter(table.to_batches()))))
    cut = pa.Table.from_batches(list(work(iter(table.to_batches(max_chunksize=77)))))
    assert whole.equals(cut) and whole.num_columns == table.num_columns + 2
    long = pa.Table.from_pandas(log(135_000), preserve_index=False)  # more than one table
    made = pa.Table.from_batches(list(work(iter(long.to_batches()))))
    assert made.num_rows == 135_000 and made.slice(0, 100)["__calibeat_forecast_0"].null_count == 0
    made_parcels = [parcel["content"][0].as_py() for parcel in parcels(iter(whole.to_batches(max_chunksize=99)))]
    assert [unpacked(content).equals(whole) for content in made_parcels] == [True]


def test_a_forecast_that_is_missing_is_an_error() -> None:
    reader = Made(Options(), trace=True, methods=("ops",))
    table = pa.table({"p": [0.5], "y": [1], "__calibeat_forecast_0": [float("nan")]})
    reader.add(0, table)
    columns = {"score": table["p"].combine_chunks(), "outcome": table["y"].combine_chunks()}
    list(reader.chunks([batch_of(columns, "the frame", np.arange(1), 0, reader.options)]))
    with pytest.raises(CalibeatError, match="every row must have its forecast from the workers, got none - at row 0"):
        reader.forecasts("__calibeat_forecast_0")
