"""Logs of many classes for the tests of backtests: scores of a model, labels of a world that differs from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("cat", "dog", "bird")


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def stream(n: int = 3000, K: int = 3, seed: int = 0, slope: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident scores, and priors that jump in the middle."""
    rng = np.random.default_rng([seed, K])
    z = rng.normal(0.0, 2.0, (n, K))
    shift = np.where(np.arange(n)[:, None] < n // 2, 0.0, np.linspace(-1.0, 1.0, K))
    labels = (rng.random(n)[:, None] > softmax(slope * z + shift).cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    return softmax(z), labels.astype(np.int64)


def columns(n: int = 3000, names: tuple[str, ...] = NAMES, seed: int = 0) -> dict[str, Any]:
    """The columns of a log: p_cat, p_dog, ..., y and a time."""
    P, y = stream(n, len(names), seed)
    moments = np.datetime64("2024-01-01", "s") + 600 * np.arange(n)
    scores = {f"p_{name}": P[:, k].copy() for k, name in enumerate(names)}
    return {**scores, "y": np.array(names, dtype=object)[y].tolist(), "at": moments}


def write(path: Path, log: dict[str, Any]) -> Path:
    """As Parquet or CSV, by the suffix."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table(log)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)
    return path
