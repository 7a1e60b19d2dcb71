"""What tests of the monitor share: a stream that breaks often, and when two monitors are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat import Monitor

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def stream(n: int = 400, seed: int = 5) -> tuple[Vector, Vector, Vector]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, (rng.random(n) < p**2).astype(float), np.clip(p + 0.1, 0, 1)


def small(**changes: Any) -> Monitor:
    return Monitor(**{"arl": 200, "warm": 20, "quiet": 50, **changes})


def same(a: Monitor, b: Monitor) -> None:
    np.testing.assert_array_equal(a.row, b.row)
    assert a.alarms == b.alarms
    assert a.waiting[:3] == b.waiting[:3]
