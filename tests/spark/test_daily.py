"""The daily jobs of docs/scale.md, as they stand there: two days, and the bits of one process."""

from __future__ import annotations

import re
from datetime import date
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_stream import NaiveBucket

from calibeat import Bank, SnapshotMismatch

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
DAY = 86_400
FIRST = date(2024, 1, 1)
START = 1_704_067_200  # of it, in seconds


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    """What the blocks of code under "Every day" define."""
    section = PAGE.read_text().split("\n## Every day\n")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, names)  # noqa: S102 - the page's own code
    return names


def table(columns: dict[str, Any]) -> Any:
    moments = pa.array(np.asarray(columns["time"]) * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({**columns, "time": moments})


def write(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(columns), path)


def a_day(day: int, n: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(day)
    score = rng.random(n)
    time = START + DAY * day + np.sort(rng.integers(0, DAY, n))
    names = {"shop": [f"shop-{k}" for k in rng.integers(0, 6, n)], "id": [f"{day}-{i:04}" for i in range(n)]}
    return {**names, "p": score, "y": (rng.random(n) < score**2).astype(np.int32), "time": time}


def test_a_batch_for_each_day(spark: Any, tmp_path: Path, jobs: dict[str, Any]) -> None:
    run_day, bank = jobs["run_day"], Bank("auto")
    days = [FIRST, date(2024, 1, 2)]
    for number, day in enumerate(days):
        columns = a_day(number)
        write(tmp_path / "log" / str(day) / "events.parquet", columns)
        forecasts, state = run_day(spark, str(tmp_path), day, FIRST)
        order = np.lexsort((columns["id"], columns["time"]))
        wanted = bank.run(np.array(columns["shop"])[order], columns["p"][order], columns["y"][order])
        found = {row["id"]: row["forecast"] for row in forecasts.collect()}
        assert found == dict(zip(np.array(columns["id"])[order].tolist(), wanted.tolist(), strict=True))
    assert state.count() == len(bank)
    write(tmp_path / "log" / "2024-01-04" / "events.parquet", a_day(3))
    with pytest.raises(SnapshotMismatch, match="must hold a finished run"):  # yesterday has not run
        run_day(spark, str(tmp_path), date(2024, 1, 4), FIRST)


def test_outcomes_of_yesterday(spark: Any, tmp_path: Path, jobs: dict[str, Any]) -> None:
    """Outcomes come half a day later: those of the evening are in the file of the next day."""
    naive, wanted = NaiveBucket("auto"), {}
    events = [a_day(number) for number in range(2)]
    outcomes = {name: np.concatenate([np.asarray(day[name]) for day in events]) for name in ("shop", "id", "y", "time")}
    outcomes["time"] = outcomes["time"] + DAY // 2
    for number, scores in enumerate(events):
        now = (outcomes["time"] // DAY) == (START // DAY + number)
        write(tmp_path / "scores" / f"{number}.parquet", {name: scores[name] for name in ("shop", "id", "p", "time")})
        write(tmp_path / "outcomes" / f"{number}.parquet", {name: values[now] for name, values in outcomes.items()})
        jobs["run_day_with_late_outcomes"](spark, str(tmp_path))
        asked = zip(*(np.asarray(scores[name]).tolist() for name in ("shop", "id", "time", "p")), strict=True)
        known = zip(*(outcomes[name][now].tolist() for name in ("shop", "id", "time", "y")), strict=True)
        operations: list[Any] = [(*row, nan) for row in asked] + [(*row[:3], nan, float(row[3])) for row in known]
        wanted |= {row[1]: row[5] for row in naive.serve(operations, 0) if row[3] == "forecast"}
    told = spark.read.parquet(str(tmp_path / "told")).collect()
    assert {row["status"] for row in told} == {"forecast"}
    assert {row["id"]: row["forecast"] for row in told} == wanted
