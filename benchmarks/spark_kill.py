"""kill -9 of workers and of the driver in mid-batch: no row may differ, no forecast be doubled, no outcome lost.

The driver is a process of its own, ``python -m benchmarks.spark_kill batch FOLDER ADDRESS`` (or stream). The parent
kills it or a worker at random moments, and starts it again from the checkpoint.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster import Cluster
from benchmarks.spark import connected, served
from benchmarks.table import show
from calibeat import Bank
from calibeat import spark as on_spark
from calibeat.hosts.bank import rows_out
from calibeat.spark.state import to_bytes

BATCHES = 24  # micro-batches of the stream


def kills(*, quick: bool) -> None:
    """A batch with kills of workers, a stream with kills of workers and of the driver."""
    batch_kills, stream_kills, events = (2, 4, 60_000) if quick else (6, 14, 240_000)
    folder = Path(tempfile.mkdtemp(prefix="calibeat-kill-"))
    try:
        with Cluster(folder) as cluster:
            rows = [killed(cluster, folder / "batch", "batch", batch_kills, 10 * events, seed=1)]
            rows.append(killed(cluster, folder / "stream", "stream", stream_kills, events, seed=2))
        head = ["", "events", "kills of workers", "of the driver", "in mid-batch", "rows that differ", "forecasts"]
        head += ["doubled", "wrong", "outcomes lost", "s"]
        show("kill -9, master and two workers of one core, TOPS", head, rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def killed(cluster: Cluster, folder: Path, what: str, count: int, events: int, seed: int) -> list[str]:
    """Run the job to its end, with so many kills on the way; -> a row of the table."""
    folder.mkdir()
    wanted, state, outcomes = written(folder, what, events)
    begin = time.monotonic()
    done, middle = _run_with_kills(cluster, folder, what, count, random.Random(seed))  # noqa: S311 - when to kill
    took = time.monotonic() - begin
    found = pq.read_table(folder / "result.parquet")
    names, values = (found[name].to_pylist() for name in ("id", "forecast"))
    wrong = sum(wanted[name] != p for name, p in zip(names, values, strict=True))
    rows = dict(zip(*(pq.read_table(folder / "state.parquet")[c].to_pylist() for c in ("key", "row")), strict=True))
    differ = sum(rows.get(key) != row for key, row in state.items()) + len(rows.keys() - state.keys())
    learnt = sum(np.frombuffer(row)[1] for row in rows.values())
    doubled = len(names) - len(set(names))
    numbers = (done["worker"], done["driver"], middle, differ, len(set(names)), doubled, wrong, outcomes - int(learnt))
    return [what, f"{events:,}", *(f"{number:,}" for number in numbers), f"{took:.0f}"]


def _run_with_kills(
    cluster: Cluster, folder: Path, what: str, count: int, dice: random.Random
) -> tuple[dict[str, int], int]:
    """-> kills of each kind, and how many of them came while a batch was under way."""
    done, middle, open_batch = {"worker": 0, "driver": 0}, 0, -1
    while True:
        (folder / "running").unlink(missing_ok=True)
        driver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_kill", what, str(folder), cluster.address], start_new_session=True
        )
        while driver.poll() is None:
            now = _open_batch(folder, what)
            if sum(done.values()) >= count or now is None or now == open_batch:
                time.sleep(0.1)
                continue
            time.sleep(dice.uniform(0.0, 3.0) if what == "stream" else dice.uniform(1.0, 8.0))
            if driver.poll() is not None:
                break
            # A batch begins anew when its driver dies, so only its workers are killed.
            target = "worker" if what == "batch" or done["driver"] > done["worker"] else "driver"
            open_batch, middle = now if what == "stream" else -1, middle + (_open_batch(folder, what) == now)
            if target == "driver":
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
            else:
                number = dice.randrange(cluster.workers)
                cluster.kill(number)
                cluster.start(number)
            done[target] += 1
            sys.stderr.write(f"{what}: killed {target}, {sum(done.values())} of {count}\n")
        if driver.returncode == 0 and sum(done.values()) >= count:
            return done, middle
        if driver.returncode == 0:  # finished before all kills were done: once more, from the beginning
            open_batch = -1
            for name in ("out", "checkpoint", "state"):
                shutil.rmtree(folder / name, ignore_errors=True)


def _open_batch(folder: Path, what: str) -> int | None:
    """The micro-batch that is under way: it has been noted as begun and not as done. Of a batch 0 while it runs."""
    if not (folder / "running").exists():
        return None
    if what == "batch":
        return 0
    begun, ended = (
        max((int(file.name) for file in (folder / "checkpoint" / name).glob("[0-9]*")), default=-1)
        for name in ("offsets", "commits")
    )
    return begun if begun > ended else None


def written(folder: Path, what: str, events: int) -> tuple[dict[str, float], dict[int, bytes], int]:
    """Write the input; -> the forecasts by id, the final rows and the number of outcomes of one process."""
    rng = np.random.default_rng(3)
    score, key = rng.random(events), rng.integers(0, 20_000, events)
    outcome = (rng.random(events) < score**2).astype(np.float64)
    bank = Bank("tops")
    if what == "batch":
        (folder / "log").mkdir()
        columns = {"key": key, "id": np.arange(events), "score": score, "outcome": outcome}
        for part in range(8):
            rows = slice(part * events // 8, (part + 1) * events // 8)
            table = pa.table({name: column[rows] for name, column in columns.items()})
            pq.write_table(table, folder / "log" / f"{part}.parquet")
        forecasts = bank.run(key, score, outcome)
        count = events
    else:
        forecasts, count = _streamed(folder, bank, key, score, outcome, rng)
    names, rows_ = rows_out(bank)
    wanted = {str(number): float(p) for number, p in enumerate(forecasts)}
    return wanted, dict(zip(names.tolist(), to_bytes(rows_), strict=True)), count


def _streamed(folder: Path, bank: Bank, key: Any, score: Any, outcome: Any, rng: Any) -> tuple[Any, int]:
    """Outcomes come late, a tenth never, some twice."""
    events = len(key)
    when = np.concatenate([2 * np.arange(events), 2 * (np.arange(events) + rng.integers(1, events // 4, events)) + 1])
    number = np.tile(np.arange(events), 2)
    is_outcome = np.arange(2 * events) >= events
    keep = ~is_outcome | ((rng.random(2 * events) < 0.9) & (when < 2 * events))
    again = np.flatnonzero(is_outcome & keep & (rng.random(2 * events) < 0.02) & (when + 500 < 2 * events))
    order = np.argsort(when, kind="stable")
    order = order[keep[order]]
    own = np.where(is_outcome[order], 0, -1)
    place = np.empty(events, dtype=np.int64)
    place[number[order][own < 0]] = np.flatnonzero(own < 0)
    own = np.where(own < 0, -1, place[number[order]])
    scores = np.where(is_outcome[order], nan, score[number[order]])
    labels = np.where(is_outcome[order], outcome[number[order]], nan)
    made = bank.fold(key[number[order]], scores, labels, of=own).forecasts
    start = np.datetime64("2024-01-01", "us")
    for name in ("scores", "outcomes"):
        (folder / name).mkdir()
    rows = np.concatenate([np.flatnonzero(keep), again])
    time_ = np.concatenate([when[keep], when[again] + 500])
    part_of = time_ * BATCHES // (2 * events)
    for part in range(BATCHES):
        here, at = rows[part_of == part], time_[part_of == part]
        for name, mine in (("scores", ~is_outcome[here]), ("outcomes", is_outcome[here])):
            n = number[here][mine]
            columns = {"key": key[n], "id": n, "time": start + at[mine].astype("m8[ms]")}
            columns |= {"score": score[n]} if name == "scores" else {"outcome": outcome[n]}
            file = folder / name / f"{part:02d}.parquet"
            pq.write_table(pa.table(columns), file)
            os.utime(file, (1e9 + part, 1e9 + part))
    return made[place], int((keep & is_outcome).sum())


# ---- the driver ----------------------------------------------------------------------------------------------------


def drive(what: str, folder: Path, address: str) -> None:
    """The job itself."""
    with connected(address, partitions=4) as spark:
        (folder / "running").touch()
        if what == "batch":
            log = spark.read.parquet(str(folder / "log"))
            shutil.rmtree(folder / "out", ignore_errors=True)
            names: dict[str, Any] = {"key": "key", "score": "score", "outcome": "outcome", "order": "id"}
            result = on_spark.calibrate(log, **names, method="tops", path=folder / "out")
            forecasts, state = result.forecasts.selectExpr("cast(id as string) id", "forecast"), result.state
        else:
            served(spark, folder, buckets=16)
            told = spark.read.parquet(str(folder / "out")).where("status = 'forecast'")
            forecasts = told.select("id", "forecast")
            state = on_spark.stream_state(spark, folder / "checkpoint", method="tops")
        pq.write_table(forecasts.toArrow(), folder / "result.parquet")
        pq.write_table(state.select("key", "row").toArrow(), folder / "state.parquet")


if __name__ == "__main__":
    drive(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
