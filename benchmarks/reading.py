"""How fast logs are read and checked before the replay: CSV, JSON Lines and Parquet, with text keys and times."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks import table
from benchmarks.stream import drifting
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import Columns, files_of, read_log
from calibeat.backtest.read.rows import RowReader

KEYS = 5000
LEAST = 1.0  # million rows a second, of CSV with a text key and text times


def log_of(rows: int) -> pa.Table:
    """A log whose key, time and outcome time are text."""
    stream, rng = drifting(rows), np.random.default_rng(0)
    times = np.datetime64("2024-01-01", "ms") + np.cumsum(rng.integers(0, 2000, rows)).astype("timedelta64[ms]")
    known = times + rng.integers(1000, 7_200_000, rows).astype("timedelta64[ms]")
    return pa.table(
        {
            "score": stream.scores.round(6),
            "outcome": stream.outcomes.astype("int8"),
            "key": pa.array(np.char.add("key-", rng.integers(0, KEYS, rows).astype(str))),
            "time": pa.array(np.char.add(np.datetime_as_string(times), "Z")),
            "known_at": pa.array(np.char.add(np.datetime_as_string(known), "Z")),
            "day": pa.array(np.datetime_as_string(times, unit="D").tolist()).cast(pa.string()),
        }
    )


def seconds(path: Path, columns: dict[str, str], options: Options) -> float:
    """CPU seconds of reading and checking all of a log."""
    reader = RowReader(options)
    chosen = Columns({"score": "score", "outcome": "outcome", "time": "none", "outcome time": "none", **columns})
    began = process_time()
    for _ in reader.chunks(read_log(files_of(str(path)), chosen, options, reader, lambda _: None)):
        pass
    return process_time() - began


def reading(folder: Path, rows: int) -> None:
    """A table: million rows a second by the kind of file and by what is read of it."""
    log = log_of(rows)
    files = {"CSV": folder / "log.csv", "JSON Lines": folder / "log.jsonl", "Parquet": folder / "text.parquet"}
    pa_csv.write_csv(log, files["CSV"])
    pq.write_table(log, files["Parquet"])
    log.to_pandas().to_json(files["JSON Lines"], orient="records", lines=True)
    asked = {
        "score and outcome": ({}, Options(typed=True)),
        "... and a text key": ({"key": "key"}, Options(typed=True)),
        "... and a text time": ({"key": "key", "time": "time"}, Options(typed=True)),
        "... and the time of the outcome": (
            {"key": "key", "time": "time", "outcome time": "known_at"},
            Options(typed=True),
        ),
        "key, and time by --time-format": ({"key": "key", "time": "day"}, Options(typed=True, time_format="%Y-%m-%d")),
    }
    seconds(files["CSV"], {}, Options(typed=True))  # loads Arrow
    lines, met = [], True
    for what, (columns, options) in asked.items():
        found = {kind: rows / seconds(path, columns, options) / 1e6 for kind, path in files.items()}
        met = met and found["CSV"] >= LEAST
        lines.append([what, *(f"{speed:.2f}" for speed in found.values())])
    table.show(
        f"Reading and checking {rows:,} rows with {KEYS:,} keys: million rows a second of CPU",
        ["what is read", *files],
        lines,
        [f"CSV at {LEAST:.0f} million rows a second or more: {table.verdict(met=met)}."],
    )
    for path in files.values():
        path.unlink()
