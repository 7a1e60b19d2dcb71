"""`calibrate` on a real session: the bits of one bank in one process, whatever the number of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, InvalidInput, Monitor
from calibeat.core.stats import LAST
from calibeat.spark import Calibrated, bad_rows, calibrate, from_bank, to_bank
from calibeat.spark.state import FORMAT

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

N = 50_000
COLUMNS = {"key": "key", "score": "score", "outcome": "outcome", "order": "number"}


def log(n: int = N, keys: int = 3000, seed: int = 1, *, strings: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    key = rng.zipf(1.3, n) % keys
    score = rng.random(n)
    frame = pd.DataFrame({"number": np.arange(n), "key": key, "score": score})
    frame["outcome"] = (rng.random(n) < score**2).astype(np.int64)
    if strings:
        frame["key"] = [f"stadt-{k}-Ü" for k in key]
    return frame


@pytest.fixture(scope="session")
def big(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A log as a frame of pandas, and as one of Spark with its rows in another order."""
    made = log()
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    made.sample(frac=1.0, random_state=0).to_parquet(path)
    return made, spark.read.parquet(str(path))


def in_spark(spark: Any, table: Any) -> Any:
    """Not a number is nothing, as Arrow has it."""
    return spark.createDataFrame(pa.Table.from_pandas(table, preserve_index=False))


def collected(frame: Any) -> Any:
    return frame.toArrow().to_pandas()


def forecasts(result: Calibrated, order: str = "number") -> Any:
    return collected(result.forecasts).sort_values(order)["forecast"].to_numpy()


def rows(bank: Bank, keys: Any = None) -> Any:
    found = bank.rows(sorted(bank) if keys is None else keys)
    found[:, bank.method.width + LAST] = 0.0  # no clock spans many machines
    return found


def test_the_bits_of_one_bank_whatever_the_number_of_partitions(big: tuple[Any, Any]) -> None:
    table, frame = big
    bank = Bank("tops")
    wanted = bank.run(table["key"].to_numpy(), table["score"].to_numpy(), table["outcome"].to_numpy())
    # Three events share a far moment, and orders that far from 0 share places with their neighbours.
    far = frame.selectExpr("*", "number div 3 * 100 + if(number < 25000, -7, 7) * 1000000000000000000 far")
    for given, order, partitions in ((frame, "number", 1), (far, ["far", "number"], 3)):
        result = calibrate(given, **{**COLUMNS, "order": order}, method="tops", partitions=partitions)
        assert result.forecasts.columns == [*given.columns, "forecast", "judged"]
        assert np.array_equal(forecasts(result), wanted)
        assert np.array_equal(rows(to_bank(result.state)), rows(bank))


def test_it_goes_on_from_a_state_a_bank_and_a_file(big: tuple[Any, Any], spark: Any, tmp_path: Path) -> None:
    table, frame = big
    few, rest = table[:30_000], table[30_000:40_000]
    whole = Bank("auto", seed=3)
    both = table[:40_000]
    wanted = whole.run(both["key"].to_numpy(), both["score"].to_numpy(), both["outcome"].to_numpy())
    half = Bank("auto", seed=3)
    half.run(few["key"].to_numpy(), few["score"].to_numpy(), few["outcome"].to_numpy())
    half.save(tmp_path / "half.bank")
    later = frame.where("number >= 30000 and number < 40000")
    first = calibrate(frame.where("number < 30000"), **COLUMNS, method="auto", seed=3, path=tmp_path / "first")
    as_text = later.selectExpr("lpad(number, 9, '0') number", "key", "score", "outcome")  # is sorted key by key
    for given, state in ((later, first.state), (as_text, half), (later, tmp_path / "half.bank")):
        second = calibrate(given, **COLUMNS, method="auto", seed=3, state=state)
        assert np.array_equal(forecasts(second), wanted[len(few) :])
    assert np.array_equal(rows(to_bank(second.state)), rows(whole))
    assert len(rest) == 10_000
    kept = collected(first.state)
    assert kept["method"].unique().tolist() == ['{"method": "auto", "monitor": null, "seed": 3}']
    assert kept["version"].unique().tolist() == [FORMAT] and kept["key"].is_unique
    # Written once, both are read from the folder: the same forecasts as those computed when asked for.
    assert np.array_equal(forecasts(first), wanted[: len(few)])
    back = to_bank(from_bank(half, spark))
    assert np.array_equal(rows(back), rows(half)) and back.seed == 3


def weigh(table: Any, seed: int = 5) -> Any:
    """A log that kept a part of its zeros; a weight that is missing is 1, and that of no outcome is not read."""
    rng = np.random.default_rng(seed)
    n = len(table)
    table["y"] = np.where(rng.random(n) < 0.2, np.nan, table["outcome"].astype(float))
    table["w"] = np.where(table["outcome"] == 0, 20.0, 1.0) * rng.choice([1.0, 1.0, 0.5, 0.0], n)
    table.loc[rng.random(n) < 0.1, "w"] = np.nan
    table.loc[table["y"].isna() & (rng.random(n) < 0.5), "w"] = -7.0
    return table


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_weights_have_the_bits_of_one_bank(spark: Any, late: bool) -> None:
    table = weigh(log(8000, keys=200))
    rng = np.random.default_rng(2)
    table["time"] = np.cumsum(rng.integers(0, 3, len(table))).astype(float)
    table["known"] = np.where(table["y"].isna(), np.nan, table["time"] + rng.integers(0, 2000, len(table)))
    table["weight"] = np.where(table["y"].isna(), 1.0, table["w"].fillna(1.0))
    names, times = {**COLUMNS, "outcome": "y", "weight": "w"}, {"time": "time", "outcome_time": "known"}
    bank, later, wanted = Bank("auto"), times if late else {}, np.empty(len(table))
    for key, part in table.groupby("key"):
        due = np.searchsorted(part["time"], part["known"].fillna(np.inf), side="left")
        given = {"due": np.maximum(due, np.arange(1, len(part) + 1))} if late else {}
        columns = [key] * len(part), part["score"].to_numpy(), part["y"].to_numpy()
        wanted[part.index] = bank.run(*columns, weights=part["weight"].to_numpy(), **given)
    for partitions in (1, 3):
        result = calibrate(in_spark(spark, table), **names, **later, method="auto", partitions=partitions)
        assert np.array_equal(forecasts(result), wanted)
        assert np.array_equal(rows(to_bank(result.state)), rows(bank))
    assert not np.array_equal(
        forecasts(calibrate(in_spark(spark, table), **{**names, "weight": None}, **later)), wanted
    )


def test_weights_that_cannot_be_used(spark: Any, tmp_path: Path) -> None:
    table = weigh(log(300, keys=5))
    for row, weight in ((7, -1.0), (9, np.inf), (11, 2e12)):
        table.loc[row, ["y", "w"]] = 1.0, weight
    frame, names = in_spark(spark, table), {**COLUMNS, "outcome": "y", "weight": "w"}
    bad = collected(bad_rows(frame, **names))
    assert sorted(bad["number"]) == [7, 9, 11]
    assert bad["reason"].str.startswith("weight must be in [0, 1e12], or null for 1, got ").all()
    with pytest.raises(InvalidInput, match=r"weight must be in \[0, 1e12\]"):
        calibrate(frame, **names, path=tmp_path / "stopped")
    kept = forecasts(calibrate(frame, **names, method="ops", bad="skip"))
    good = table.drop(index=[7, 9, 11])
    weights = np.where(good["y"].isna(), 1.0, good["w"].fillna(1.0))
    bank = Bank("ops")
    wanted = bank.run(good["key"].to_numpy(), good["score"].to_numpy(), good["y"].to_numpy(), weights=weights)
    assert np.array_equal(kept, wanted)
    with pytest.raises(InvalidInput, match="weight must be left out with hops"):
        calibrate(frame, **names, method="hops")
    with pytest.raises(InvalidInput, match="a monitor cannot judge weighted outcomes"):
        calibrate(frame, **names, method="ops", monitor=Monitor())
    with pytest.raises(InvalidInput, match="weight must be a column of the frame, got 'weigth'"):
        calibrate(frame, **{**names, "weight": "weigth"})
    with pytest.raises(InvalidInput, match="weight column must hold numbers, got string"):
        calibrate(frame.selectExpr("* except (w)", "string(w) w"), **names)


def test_late_outcomes_have_the_bits_of_a_calibrator_with_due(spark: Any) -> None:
    table = log(6000, keys=40, strings=True)
    rng = np.random.default_rng(2)
    table["time"] = np.cumsum(rng.integers(0, 3, len(table)))  # equal times occur
    table["known"] = table["time"] + rng.integers(0, 2000, len(table)).astype(float)
    table["y"] = table["outcome"].astype(float)
    table.loc[rng.random(len(table)) < 0.1, ["known", "y"]] = np.nan
    frame = in_spark(spark, table)
    names = {"key": "key", "score": "score", "outcome": "y", "order": "number"}
    for method in ("tops", "auto"):
        result = calibrate(frame, **names, method=method, time="time", outcome_time="known", partitions=3)
        got = collected(result.forecasts).sort_values("number")
        assert np.array_equal(got["judged"].to_numpy(), ~np.isnan(table["y"].to_numpy()))
        bank = to_bank(result.state)
        for key, part in table.groupby("key"):
            due = np.searchsorted(part["time"], part["known"].fillna(np.inf), side="left")
            due = np.maximum(due, np.arange(1, len(part) + 1))
            alone = Calibrator(method)
            wanted = alone.run(part["score"].to_numpy(), part["y"].to_numpy(), due=due)
            assert np.array_equal(got["forecast"][got["key"] == key].to_numpy(), wanted)
            assert bank[str(key)].row.tolist() == alone.row.tolist()
    finished = to_bank(calibrate(frame, **names, time="time", outcome_time="known", finish=True).state)
    assert int(finished.table["outcomes"].sum()) == int(np.sum(~np.isnan(table["y"])))


def test_hedging_methods_monitors_and_maturity(spark: Any) -> None:
    table = log(20_000, keys=50)
    frame = in_spark(spark, table)
    timed = frame.selectExpr("timestamp_seconds(number) number", "key", "score", "outcome = 1 outcome")
    exact = frame.selectExpr("number", "key", "score", "cast(outcome as decimal(2, 1)) outcome")
    columns = table["key"].to_numpy(), table["score"].to_numpy(), table["outcome"].to_numpy()
    bank = Bank("hops", seed=5, monitor=Monitor(arl=1e5, warm=0))
    wanted = bank.run(*columns)
    result = calibrate(timed, **COLUMNS, method="hops", seed=5, monitor=Monitor(arl=1e5, warm=0), partitions=3)
    assert np.array_equal(forecasts(result), wanted)
    back = to_bank(result.state)
    assert np.array_equal(rows(back), rows(bank))
    assert sorted(back.miscalibrated().tolist()) == sorted(bank.miscalibrated().tolist()) != []
    mature = Bank("ops").run(*columns, mature="500s", times=np.arange(len(table)))
    got = calibrate(exact, **COLUMNS, method="ops", time="number", mature="500s")
    assert np.array_equal(forecasts(got), mature)


def test_bad_rows_stop_the_job_by_name_or_go_aside_with_a_reason(spark: Any) -> None:
    rows = [
        (0, "a", 0.5, 1, 0, 5),
        (1, None, 0.5, 1, 1, 5),
        (2, "a", 1.5, 1, 2, 5),
        (3, "a", float("nan"), 1, 3, 5),
        (4, "a", None, 1, 4, 5),
        (5, "a", 0.5, 2, 5, 9),
        (6, "a", 0.5, 1, 6, 2),
        (7, "a", 0.5, 1, 7, None),
        (8, "a", 0.5, None, 8, None),
    ]
    frame = spark.createDataFrame(rows, "number int, key string, score double, outcome int, time int, known int")
    found = bad_rows(frame, **COLUMNS, time="time", outcome_time="known").orderBy("number").collect()
    assert [(row["number"], row["reason"]) for row in found] == [
        (1, "key must be there, got nothing"),
        (2, "score must be in [0, 1], got 1.5"),
        (3, "score must be in [0, 1], got NaN"),
        (4, "score must be in [0, 1], got nothing"),
        (5, "outcome must be 0 or 1, or null where it is not known, got 2"),
        (6, "outcome time must not be before the time of its event, got 2"),
        (7, "outcome time must be there with an outcome, got nothing"),
    ]
    times = "timestamp_seconds(time) time", "timestamp_seconds(known) known"
    dated = frame.selectExpr("number", "key", "score", "outcome", *times)
    assert bad_rows(dated, **COLUMNS, time="time", outcome_time="known").count() == len(found)
    kept = calibrate(frame, **COLUMNS, time="time", outcome_time="known", bad="skip")
    assert [row["number"] for row in kept.forecasts.orderBy("number").collect()] == [0, 8]
    with pytest.raises(Exception, match=r"InvalidInput: score must be in \[0, 1\], got 1\.5 - at key 'a', number 2"):
        calibrate(frame.where("number = 0 or number = 2"), **COLUMNS).forecasts.collect()


def test_what_is_refused_before_a_job_starts(spark: Any) -> None:
    frame = spark.createDataFrame([(0, "a", 0.5, 1)], "number int, key string, score double, outcome int")

    def refused(sentence: str, given: Any = frame, **changed: Any) -> None:
        with pytest.raises(Exception, match=sentence):
            calibrate(given, **{**COLUMNS, **changed})

    refused("a bank needs a method that lives in a row", method="fps")
    refused("method must be one of the presets", method="topps")
    refused("score must be a column of the frame, got 'skore' - did you mean 'score'", score="skore")
    refused("outcome column must hold 0 and 1, or booleans, got string", outcome="key")
    refused("key must be the name of a column, got int 3", key=3)
    refused("order must name one column at least", order=[])
    refused("outcome_time needs time", outcome_time="number")
    refused("mature needs the time", mature="7d")
    refused("mature must be a time", mature=7, time="number")
    refused("bad must be 'stop' or 'skip', got 'drop'", bad="drop")
    refused("columns must not be named 'forecast'", frame.withColumnRenamed("number", "forecast"))
    refused("columns must have different names, got 'key' twice", frame.select("*", "key"))
    refused(r"frame must be a DataFrame of Spark, got builtins\.list", [1])
    refused("keys must be of one kind", method="ops", state=from_bank(_bank([7]), spark))
    refused("state must be of auto, got rows of ops", state=from_bank(_bank(["a"]), spark))
    refused("state must have the columns key, row, method, version, got none named 'row'", state=frame)
    with pytest.raises(InvalidInput, match="prior"):
        from_bank(Bank("ops", prior="pooled"), spark)
    with pytest.raises(InvalidInput, match="bank must be a Bank"):
        from_bank(7, spark)
    with pytest.raises(InvalidInput, match="state must hold one key at least"):
        to_bank(from_bank(_bank(["a"]), spark).where("key = 'b'"))


def _bank(keys: list[Any]) -> Bank:
    bank = Bank("ops")
    bank.run(keys, [0.5] * len(keys), [1] * len(keys))
    return bank
