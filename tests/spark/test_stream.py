"""Streams on a real session: the bits of one process, restarts from the checkpoint, repeats, expiry, states."""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import pairwise, repeat
from math import nan
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest
from naive_stream import NaiveBucket

from calibeat import Bank, MultiBank
from calibeat.core.stats import LAST, STATS
from calibeat.spark import calibrate_stream, stream_state, to_bank
from calibeat.spark.stream import AHEAD

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = {"key": "key", "id": "id", "score": "score", "outcome": "outcome", "time": "time"}
START = pd.Timestamp("2024-01-01")


def events(n: int, keys: int, seed: int = 0) -> tuple[Any, Any]:
    """Scores, a second apart, and outcomes that come up to two hours later; some come twice, some never."""
    rng = np.random.default_rng(seed)
    time = START + pd.to_timedelta(np.arange(n), unit="s")
    scores = pd.DataFrame(
        {"key": rng.integers(0, keys, n), "id": np.arange(n), "score": rng.random(n), "time": time.astype("M8[us]")}
    )
    outcomes = scores[["key", "id"]].assign(outcome=(rng.random(n) < scores["score"] ** 2).astype(np.int64))
    delay = pd.to_timedelta(rng.integers(1, 7200, n), unit="s")
    outcomes["time"] = (time + delay).astype("M8[us]")
    outcomes = outcomes[rng.random(n) < 0.9]
    again = outcomes[rng.random(len(outcomes)) < 0.02]
    again = again.assign(time=again["time"] + pd.Timedelta(seconds=900))
    return scores, pd.concat([outcomes, again]).sort_values("time")


class Folder:
    """Files that arrive one after the other, and a query over them."""

    def __init__(self, spark: Any, path: Path, **options: Any) -> None:
        self.spark, self.path, self.options, self.files = spark, path, options, 0
        for name in ("scores", "outcomes"):
            (path / name).mkdir(parents=True)

    def arrive(self, scores: Any, outcomes: Any) -> None:
        for name, table in (("scores", scores), ("outcomes", outcomes)):
            file = self.path / name / f"{self.files:03d}.parquet"
            pq.write_table(pa.Table.from_pandas(table, preserve_index=False), file)
            os.utime(file, (1e9 + self.files,) * 2)
        self.files += 1

    def run(self, progress: list[Any] | None = None) -> Any:
        """Serve what has arrived, file by file; -> all that was told so far."""
        frames = [
            self.spark.readStream.schema(self.spark.read.parquet(str(self.path / name)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.path / name))
            for name in ("scores", "outcomes")
        ]
        stream = calibrate_stream(*frames, **COLUMNS, buckets=4, pages=4, **self.options)
        writer = stream.writeStream.format("parquet").option("path", str(self.path / "out"))
        query = writer.option("checkpointLocation", str(self.path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        if progress is not None:
            progress += query.recentProgress
        return self.spark.read.parquet(str(self.path / "out")).toArrow().to_pandas()


def in_one_process(bank: Bank, scores: Any, outcomes: Any) -> tuple[dict[str, float], int]:
    """Forecasts by id, and how many outcomes came again."""
    operations = pd.concat([scores.assign(outcome=nan, second=1), outcomes.assign(score=nan, second=0)])
    operations["text"] = operations["id"].astype(str)
    operations = operations.sort_values(["time", "second", "text"])
    first = ~operations.duplicated(["id", "second"])
    operations = operations[first]
    at: dict[str, int] = {}
    own = []
    for i, (name, second) in enumerate(zip(operations["text"], operations["second"], strict=True)):
        own.append(-1 if second else at[name])
        if second:
            at[name] = i
    columns = operations["key"].to_numpy(), operations["score"].to_numpy(), operations["outcome"].to_numpy()
    made = bank.fold(*columns, of=own)
    return {name: float(made.forecasts[i]) for name, i in at.items()}, int((~first).sum())


def test_the_bits_of_one_process_and_a_restart_in_mid_stream(spark: Any, tmp_path: Path) -> None:
    scores, outcomes = events(20_000, keys=500)
    outcomes = outcomes[outcomes["time"] < scores["time"].iloc[-1]]
    bank = Bank("tops")
    wanted, repeats = in_one_process(bank, scores, outcomes)
    folder = Folder(spark, tmp_path, method="tops")
    edges = START + pd.to_timedelta(np.linspace(0, 20_000, 4), unit="s")
    parts = [
        tuple(table[(table["time"] >= begin) & (table["time"] < end)] for table in (scores, outcomes))
        for begin, end in pairwise(edges)
    ]
    for part in parts[:2]:
        folder.arrive(*part)
    folder.run()
    # As if the driver had died after the second batch was written and before it was noted: it runs again.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    folder.arrive(*parts[2])
    got = folder.run()
    forecasts = got[got["status"] == "forecast"]
    assert len(forecasts) == len(scores) and dict(zip(forecasts["id"], forecasts["forecast"], strict=True)) == wanted
    assert got["status"].value_counts().to_dict() == {"forecast": len(scores), "repeated": repeats}
    found = to_bank(stream_state(spark, tmp_path / "checkpoint", method="tops"))
    assert np.array_equal(rows_of(found), rows_of(bank))


def in_micros(table: Any) -> Any:
    return pd.to_datetime(table["time"], utc=True).to_numpy("M8[us]").astype(np.int64)


def operations_of(scores: Any, outcomes: Any) -> list[Any]:
    """As the naive bucket takes them."""
    ids = [[str(name) for name in table["id"]] for table in (scores, outcomes)]
    first = zip(scores["key"], ids[0], in_micros(scores).tolist(), scores["score"], repeat(nan))
    second = zip(outcomes["key"], ids[1], in_micros(outcomes).tolist(), repeat(nan), outcomes["outcome"].astype(float))
    return [*first, *second]


def test_maturity_expiry_and_a_state_to_start_from_across_a_restart(spark: Any, tmp_path: Path) -> None:
    scores, outcomes = events(3000, keys=20, seed=1)
    second = 1_000_000
    bank, naive = Bank("ops"), NaiveBucket("ops", expire=3600 * second, expire_as=0, mature=600 * second)
    for own in (bank, naive.bank):
        own.run(scores["key"].to_numpy(), scores["score"].to_numpy(), np.ones(len(scores)))
    ages = {"mature": "10min", "expire": "1h", "expire_as": 0, "watermark": "60 seconds"}
    folder = Folder(spark, tmp_path, method="ops", state=bank, bad="side", learnt=True, **ages)
    edges = START + pd.to_timedelta([0, 1500, 3000, 12_000], unit="s")
    parts = [
        tuple(table[(table["time"] >= begin) & (table["time"] < end)] for table in (scores, outcomes))
        for begin, end in pairwise(edges)
    ]
    much_later = scores[:1].assign(id=99_999, time=START + pd.Timedelta(days=1))
    parts.append((much_later, outcomes[:0]))
    bad, late = scores[:1].assign(id=77_777, score=1.5), scores[:1].assign(id=88_888)
    wanted: list[Any] = []
    now = latest = 0
    for number, part in enumerate(parts):
        arrives = (pd.concat([part[0], bad]), part[1]) if number == 0 else part
        folder.arrive(*((pd.concat([part[0], late]), part[1]) if number == 2 else arrives))
        wanted += [*naive.serve(operations_of(*part), now), *naive.aged(now)]
        latest = max([latest, *in_micros(part[0]).tolist(), *in_micros(part[1]).tolist()])
        now = latest - 60 * second  # for the next one
        if number == 1:
            wanted += naive.aged(now)  # before it stops Spark runs a batch without rows
            folder.run()
    wanted += naive.aged(now)
    got = folder.run()
    columns = got["key"], got["id"], in_micros(got), *(got[c] for c in ("status", "score", "forecast", "outcome"))
    rows = list(zip(*columns, strict=True))
    aside = [row for row in rows if row[3] in ("bad", "late")]
    assert sorted(row[1:4:2] for row in aside) == [("77777", "bad"), ("88888", "late")]
    assert got[got["status"] == "bad"]["reason"].tolist() == ["score must be in [0, 1], got 1.5"]
    rest = [row for row in rows if row[3] not in ("bad", "late")]
    assert Counter(row[3] for row in rest) == Counter(row[3] for row in wanted)
    assert {"held", "learnt", "expired", "repeated", "forecast"} <= {row[3] for row in rest}
    assert sorted(map(repr, map(plain, rest))) == sorted(map(repr, map(plain, wanted)))
    found = to_bank(stream_state(spark, tmp_path / "checkpoint", method="ops"))
    assert np.array_equal(rows_of(found), rows_of(naive.bank))


def plain(row: Any) -> tuple[Any, ...]:
    key, name, time, status, *numbers = row
    return int(key), name, int(time), status, *map(float, numbers)


def rows_of(bank: Bank) -> Any:
    rows = bank.rows(sorted(bank))
    rows[:, bank.method.width + LAST] = 0.0  # no clock spans many machines
    return rows


def test_what_a_stream_refuses(spark: Any) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("value as key", "value as id", "timestamp as time")
    scores, outcomes = rate.selectExpr("*", "0.5 as score"), rate.selectExpr("*", "1 as outcome")

    def refused(sentence: str, first: Any = scores, second: Any = outcomes, **changed: Any) -> None:
        with pytest.raises(Exception, match=sentence):
            calibrate_stream(first, second, **{**COLUMNS, **changed})

    refused("scores must be a stream, got none", spark.range(1))
    refused("outcomes must be a stream, got none", second=spark.range(1))
    refused("a bank needs a method that lives in a row", method="wps")
    refused("expire must be a time such as 30d, got 5", expire=5)
    refused("expire_as needs expire", expire_as=0)
    refused("mature must be a time such as 30d, got 5", mature=5)
    refused("expire must be longer than mature, got '1d' and '7d'", expire="1d", mature="7d")
    refused("outcome must be 0 or 1", expire="1d", expire_as=2)
    refused("outcome must be a column of the frame, got 'label'", outcome="label")
    refused("time column must hold timestamps, got long", time="id")
    refused("buckets must be a whole number", buckets=0)
    refused(
        "keys must be of one kind, got long in scores and string in outcomes",
        second=outcomes.withColumn("key", outcomes["key"].cast("string")),
    )
    refused("keys must be of one kind, got long in the frame and string in the state", state=_strings())
    refused("state must be of auto, got rows of ops", state=_strings("ops"))


def _strings(method: str = "auto") -> Bank:
    bank = Bank(method)
    bank.run(["a"], [0.5], [1])
    return bank


# ---- clocks that are wrong ----------------------------------------------------------------------------------------


def days(n: int, day: int) -> tuple[Any, Any]:
    """A day of scores, and their outcomes an hour later."""
    rng = np.random.default_rng(day)
    time = START + pd.to_timedelta(day, unit="D") + pd.to_timedelta(np.arange(n) * 10, unit="s")
    scores = pd.DataFrame({"key": np.arange(n) % 5, "id": np.arange(n) + 1000 * day, "score": rng.random(n)})
    scores["time"] = time.astype("M8[us]")
    outcomes = scores[["key", "id"]].assign(outcome=(rng.random(n) < 0.5).astype(np.int64))
    return scores, outcomes.assign(time=scores["time"] + pd.Timedelta(hours=1))


@pytest.mark.parametrize("wrong", ["2031-05-01", "2024-06-01"])
def test_one_row_with_a_wrong_clock_moves_nothing(
    wrong: str, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """2031 is ahead of the clock of this machine, half a year of the others in its file."""
    folder = Folder(spark, tmp_path, method="ops", expire="30d", watermark="1 day")
    n = 200
    for day in range(3):
        scores, outcomes = days(n, day)
        if day == 0:
            outcomes.loc[7, "time"] = pd.Timestamp(wrong)
        folder.arrive(scores, outcomes)
    got = folder.run()
    counts = got["status"].value_counts().to_dict()
    assert counts == {"forecast": 3 * n, **({"bad": 1} if wrong > "2026" else {})}
    if wrong > "2026":
        (row,) = got[got["status"] == "bad"].to_dict("records")
        assert row["id"] == "7" and row["reason"].startswith(f"{AHEAD}, got 2031-05-01")
    found = to_bank(stream_state(spark, tmp_path / "checkpoint", method="ops"))
    assert found.table["outcomes"].sum() == 3 * n - (wrong > "2026")
    assert caplog.text == ""


def test_many_late_rows_are_told(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(spark, tmp_path, method="ops", expire="30d", watermark="1 hour")
    for day in (5, 0, 1):
        folder.arrive(*days(100, day))
    seen: list[Any] = []
    with caplog.at_level("WARNING", "calibeat.spark"):
        got = folder.run(seen)
        deadline = time.monotonic() + 60
        while caplog.text.count("were late") < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert (got["status"] == "late").sum() == 400
    assert "micro-batch 1: 200 of 200 rows (100 %) were late: older than the watermark, and not served" in caplog.text
    metrics = [progress["observedMetrics"] for progress in seen]
    told = [(each["calibeat_in"]["rows"], each["calibeat_out"]["late"]) for each in metrics if each]
    assert [pair for pair in told if pair[0]] == [(200, 0), (200, 200), (200, 200)]


# ---- many classes -------------------------------------------------------------------------------------------------


def test_many_classes_in_a_stream(spark: Any, tmp_path: Path) -> None:
    names = ["bird", "cat", "dog"]
    scores, outcomes = days(300, 0)
    matrix, labels = multi_streams.drifting(300, 3)
    scores["score"] = list(matrix)
    outcomes["outcome"] = np.array(names)[labels]
    bank = MultiBank(names)
    start = MultiBank(names)
    for own in (bank, start):
        own.run(scores["key"].to_numpy(), matrix, outcomes["outcome"].to_numpy())
    operations = pd.concat([scores.assign(second=1), outcomes.assign(second=0)]).sort_values(["time", "second"])
    wanted, waiting = {}, {}
    for row in operations.itertuples():
        if row.second:
            waiting[row.id] = bank.predict(row.key, row.score)
            wanted[str(row.id)] = waiting[row.id].probabilities.tolist()
        else:
            bank.update(row.key, waiting[row.id], row.outcome)
    wrong = outcomes[:1].assign(outcome="dgo")
    folder = Folder(spark, tmp_path, classes=names, state=start, bad="side", learnt=True, expire="30d", expire_as="cat")
    folder.arrive(scores, pd.concat([outcomes, wrong]))
    got = folder.run()
    forecasts = got[got["status"] == "forecast"]
    assert {row.id: row.forecast.tolist() for row in forecasts.itertuples()} == wanted
    learnt = got[got["status"] == "learnt"]
    assert dict(zip(learnt["id"], learnt["outcome"], strict=True)) == dict(
        zip(outcomes["id"].astype(str), outcomes["outcome"], strict=True)
    )
    (bad,) = got[got["status"] == "bad"]["reason"]
    assert bad == "label must be one of the 3 classes 'bird', 'cat', 'dog', got dgo"
    found = to_bank(stream_state(spark, tmp_path / "checkpoint", classes=names))
    rows = [b.rows(sorted(b)) for b in (found, bank)]
    for each in rows:
        each[:, each.shape[1] - STATS + LAST] = 0.0
    assert np.array_equal(*rows)


def test_weights_have_the_bits_of_one_process(spark: Any, tmp_path: Path) -> None:
    scores, outcomes = events(6000, keys=100, seed=4)
    outcomes = outcomes[outcomes["time"] < scores["time"].iloc[-1]]
    drawn = np.random.default_rng(9).choice([nan, 1.0, 20.0, 0.0, 2.5], len(scores))  # by id, so repeats have the same
    outcomes = outcomes.assign(w=drawn[outcomes["id"].to_numpy()])
    other = outcomes[outcomes["w"] == 20.0].iloc[:1].assign(w=21.0, time=scores["time"].iloc[-1])
    bad = outcomes.iloc[:1].assign(id=10**6, w=-1.0)
    folder = Folder(spark, tmp_path, method="tops", weight="w", bad="side")
    half = scores["time"].iloc[3000]
    folder.arrive(scores[scores["time"] < half], outcomes[outcomes["time"] < half])
    folder.run()
    folder.arrive(scores[scores["time"] >= half], pd.concat([outcomes[outcomes["time"] >= half], other, bad]))
    told = folder.run()
    told_bad = told[told["status"] == "bad"]
    assert told_bad["reason"].tolist() == ["weight must be in [0, 1e12], or null for 1, got -1.0"]
    assert (told["status"] == "conflict").sum() == 1

    bank = Bank("tops")
    operations = pd.concat([scores.assign(outcome=nan, second=1), outcomes.assign(score=nan, second=0)])
    operations["text"] = operations["id"].astype(str)
    operations = operations.sort_values(["time", "second", "text"])
    operations = operations[~operations.duplicated(["id", "second"])]
    at: dict[str, int] = {}
    own = []
    for i, (name, second) in enumerate(zip(operations["text"], operations["second"], strict=True)):
        own.append(-1 if second else at[name])
        if second:
            at[name] = i
    columns = operations["key"].to_numpy(), operations["score"].to_numpy(), operations["outcome"].to_numpy()
    made = bank.fold(*columns, of=own, weights=operations["w"].fillna(1.0).to_numpy())
    wanted = {name: float(made.forecasts[i]) for name, i in at.items()}
    forecast = told[told["status"] == "forecast"]
    assert dict(zip(forecast["id"], forecast["forecast"], strict=True)) == wanted
    state = to_bank(stream_state(spark, tmp_path / "checkpoint", method="tops"))
    keys = sorted(bank)
    stats = slice(0, -STATS)
    assert np.array_equal(state.rows(keys)[:, stats], bank.rows(keys)[:, stats])
