"""Buckets of a stream without Spark: pages in memory, and operations as the table that a bucket takes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from calibeat.spark.bucket import Bucket, Rules

Operation = tuple[Any, ...]  # key, id, time, score or scores (NaN: an outcome), outcome, and a weight where they have


class Memory(dict[int, bytes]):
    """A store of pages, which counts what is written."""

    written = 0

    def __setitem__(self, page: int, content: bytes) -> None:
        super().__setitem__(page, content)
        self.written += 1


def bucket_of(method: str = "tops", **rules: Any) -> Bucket:
    return Bucket(Rules(method, strings=True, **{"pages": 4, "learnt": True, **rules}), Memory(), Memory())


def hash_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def batch(*operations: Operation, collide: bool = False) -> Any:
    """The table of a micro-batch. With `collide` all keys have one hash, and all events."""
    import pyarrow as pa

    key, name, time, score, outcome, *weights = (list(column) for column in zip(*operations, strict=True))
    events = [f"{k}/{i}" for k, i in zip(key, name, strict=True)]
    many = any(isinstance(given, tuple) for given in score)
    lists = [given if isinstance(given, tuple) else None for given in score]
    return pa.table(
        {
            "key": key,
            "id": name,
            "time": np.array(time, dtype=np.int64),
            "score": pa.array(lists, pa.list_(pa.float64())) if many else np.array(score, dtype=float),
            "outcome": np.array(outcome, dtype=float),
            "key_hash": np.array([7 if collide else hash_of(k) for k in key]),
            "event_hash": np.array([8 if collide else hash_of(e) for e in events]),
            **({"weight": np.array(weights[0], dtype=float)} if weights else {}),
        }
    )


def columns_of(told: Any) -> dict[str, list[Any]]:
    """What a bucket tells, as lists."""
    return dict(told.to_pydict())


def stored_rows(bucket: Bucket) -> dict[str, bytes]:
    """The rows of all keys."""
    table = bucket._rows._read(sorted(bucket._rows._store))
    return dict(zip(table["key"].to_pylist(), table["row"].to_pylist(), strict=True))
