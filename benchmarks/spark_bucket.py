"""The Python side of a stream without Spark: rows packed by bucket, buckets served, from pages in memory."""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.table import show
from calibeat.spark.bucket import Bucket, Rules
from calibeat.spark.stream import Pack, serve

KEYS, BUCKETS, LATE = 100_000, 64, 100_000


class _Memory(dict[int, bytes]):
    """Pages in memory."""

    def put(self, page: int, content: bytes) -> None:
        self[page] = content

    def remove(self, page: int) -> None:
        self.pop(page, None)

    def pages(self) -> list[int]:
        return sorted(self)


def cost(*, quick: bool) -> None:
    """CPU of each step, by micro-batch."""
    events, batches = (400_000, 4) if quick else (2_000_000, 4)
    rows: list[list[str]] = []
    for method in ("tops", "auto"):
        buckets = [Bucket(Rules(method, strings=False), _Memory(), _Memory()) for _ in range(BUCKETS)]
        for number, table in enumerate(micro_batches(events, batches)):
            begin = process_time()
            packets = list(Pack(BUCKETS)(iter(table.to_batches(max_chunksize=10_000))))
            packing = process_time() - begin
            by_bucket = pa.Table.from_batches(packets).to_pandas().groupby("bucket")
            begin, told = process_time(), 0
            for bucket, frame in by_bucket:
                told += sum(len(out) for out in serve(buckets[bucket], None, [frame], None, stop=True))
            serving = process_time() - begin
            per_row = [f"{1e6 * seconds / len(table):.2f}" for seconds in (packing, serving)]
            rows.append([method, str(number), f"{len(table):,}", f"{told:,}", *per_row])
    show(
        f"Bucket: {KEYS:,} keys in {BUCKETS} buckets, outcomes {LATE:,} events later, one thread, without Spark",
        ["method", "micro-batch", "rows", "told", "packing us", "serving us"],
        rows,
    )


def micro_batches(events: int, batches: int) -> list[Any]:
    """Scores and outcomes as Spark hands them over: with hashes, in no order."""
    rng = np.random.default_rng(1)
    key, score = rng.integers(0, KEYS, events), rng.random(events)
    number = np.arange(events)
    ids = pc.cast(pa.array(number), pa.string())
    key_hash, event_hash = rng.integers(-(2**63), 2**63 - 1, KEYS)[key], rng.integers(-(2**63), 2**63 - 1, events)
    outcome = (rng.random(events) < score).astype(float)
    nothing = np.full(events, np.nan)
    parts = [(number * 1000, score, nothing), ((number + LATE) * 1000 + 1, nothing, outcome)]
    tables = [
        pa.table(
            {
                "key": key,
                "id": ids,
                "time": time,
                "score": p,
                "outcome": y,
                "reason": pa.nulls(events, pa.string()),
                "key_hash": key_hash,
                "event_hash": event_hash,
            }
        )
        for time, p, y in parts
    ]
    both = pa.concat_tables(tables)
    at = np.minimum(both["time"].to_numpy() // 1000 * batches // events, batches)
    return [both.filter(pa.array(at == batch)).combine_chunks() for batch in range(batches)]
