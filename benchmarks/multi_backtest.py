"""A backtest of many classes from the disk: CPU time and memory, for a log and for one that is five times as long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import table
from benchmarks.multi import stream

K, PART = 10, 100_000
PROGRAM = """
import io, resource, sys, time
from calibeat.cli.main import main
out, sys.stdout = sys.stdout, io.StringIO()
main(["backtest", sys.argv[1], "--scores", "p_*", "--label", "y", "--json"])
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=out)
"""


def write(path: Path, events: int) -> None:
    """Over-confident scores of ten classes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for at in range(0, events, PART):
        scores, labels = stream(K, PART, seed=at)
        part = pa.table({**{f"p_{k}": scores[:, k] for k in range(K)}, "y": labels})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def backtest(*, quick: bool) -> None:
    """Table: seconds and megabytes of the whole command."""
    rows = []
    with TemporaryDirectory() as folder:
        for events in (PART, 2 * PART) if quick else (2 * PART, 10 * PART):
            log = Path(folder) / f"{events}.parquet"
            write(log, events)
            done = subprocess.run([sys.executable, "-c", PROGRAM, str(log)], check=True, capture_output=True, text=True)
            seconds, megabytes = map(float, done.stdout.split())
            rows.append([f"{events:,}", f"{seconds:.1f}", f"{megabytes:.0f}"])
    table.show(
        f"calibeat backtest of {K} classes, five methods",
        ["events", "CPU seconds", "MB at most"],
        rows,
        ["The whole command, with imports."],
    )
