"""The theorems of MULTI on random, drifting and adversarial streams: no violation."""

from __future__ import annotations

import math

import multi_streams
import numpy as np
import pytest

from calibeat import InvalidInput, MultiCalibrator, bounds
from calibeat.core import vector

SLACK = 1e-9  # of the sums of logarithms
T = 600


def losses(scores: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Total log-loss of every part of MULTI, label after label at once."""
    K = scores.shape[1]
    method, work = vector.VectorMethod("multi", K), vector.scratch(K)
    row, receipt, forecast = method.initial_row(), np.zeros(method.receipt_width), np.empty(K)
    names = ("lanes", "mean", "stages", "mixture", "top", "expert", "ots", "raw", "forecast")
    said: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for score, y in zip(scores, labels.tolist(), strict=True):
        vector.predict(*method.code, row, np.ascontiguousarray(score), receipt, work, forecast)
        parts = work[vector.HEAD : vector.HEAD + 13 * K].reshape(13, K)
        hit = int(work[vector.TOP]) == y
        shares = (vector.TOP_SHARE, vector.TOP_SPLINE) if hit else (vector.REST_SHARE, vector.REST_SPLINE)
        top = work[list(shares)]
        plain = parts[11, y] if hit else parts[11, y] / work[vector.REST_SHARE]
        said["lanes"].append(np.array([*parts[3:7, y], parts[1, y], parts[7, y]]))
        said["mean"].append(parts[8, y : y + 1].copy())
        said["stages"].append(parts[8 : 11 if K <= 64 else 10, y].copy())
        said["mixture"].append(parts[11, y : y + 1].copy())
        said["top"].append(top if hit else plain * top)
        said["expert"].append(receipt[2 + K + y : 3 + K + y].copy())
        said["ots"].append(parts[7, y : y + 1].copy())
        said["raw"].append(parts[1, y : y + 1].copy())
        said["forecast"].append(forecast[y : y + 1].copy())
        vector.settle(*method.code, row, 0.0, y, receipt, work, float(forecast[y]))
    return {name: -np.log(np.array(values)).sum(axis=0) for name, values in said.items()}


@pytest.mark.parametrize("K", [2, 3, 10, 65])
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_no_stage_loses_more_than_its_bound(name: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](T, K)
    total = losses(scores, labels)
    stages = 3 if K <= 64 else 2
    assert total["mean"][0] <= total["lanes"].min() + bounds.mixture_loss(6, T) + SLACK
    assert total["mixture"][0] <= total["stages"].min() + bounds.mixture_loss(stages, T) + SLACK
    assert total["expert"][0] <= total["top"].min() + bounds.mixture_loss(2, T) + SLACK
    assert total["forecast"][0] <= total["ots"][0] + bounds.multi_guard(K, T) + SLACK
    best = min(total["raw"][0], total["lanes"].min())
    assert total["forecast"][0] <= best + bounds.multi_loss(K, T) + SLACK


@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_the_public_methods_keep_the_promise(name: str) -> None:
    K = 4
    scores, labels = multi_streams.STREAMS[name](T, K)
    at = np.arange(T)
    multi, ots, raw = (
        -np.log(MultiCalibrator(K, method).run(scores, labels)[at, labels]).sum() for method in ("multi", "ots", "raw")
    )
    assert multi <= ots + bounds.multi_guard(K, T) + SLACK
    assert multi <= raw + bounds.multi_loss(K, T) + SLACK


def test_against_sequences_of_lanes() -> None:
    """The best sequence with one change: found by trying every moment."""
    scores, labels = multi_streams.drifting(T, 3)
    half = T // 2
    scores[half:] = scores[half:, ::-1]
    K, method, work = 3, vector.VectorMethod("multi", 3), vector.scratch(3)
    row, receipt, forecast = method.initial_row(), np.zeros(method.receipt_width), np.empty(3)
    lanes, ours = np.empty((T, 6)), 0.0
    for i, y in enumerate(labels.tolist()):
        vector.predict(*method.code, row, np.ascontiguousarray(scores[i]), receipt, work, forecast)
        parts = work[vector.HEAD : vector.HEAD + 13 * K].reshape(13, K)
        lanes[i] = [*parts[3:7, y], parts[1, y], parts[7, y]]
        ours -= math.log(forecast[y])
        vector.settle(*method.code, row, 0.0, y, receipt, work, float(forecast[y]))
    loss = -np.log(lanes).cumsum(axis=0)
    before, after = loss, loss[-1] - loss
    best = (before.min(axis=1) + after.min(axis=1)).min()
    assert ours <= best + bounds.multi_loss(3, T, changes=1) + SLACK


def test_the_numbers_of_the_specification() -> None:
    for J, factor, constant in ((6, 5 / 12, 0.425), (3, 1 / 3, 0.304), (2, 1 / 4, 0.204)):
        expected = math.log(J) + factor * math.log(5000) + constant
        assert bounds.mixture_loss(J, 5000) == pytest.approx(expected, abs=1e-3)
    assert bounds.mixture_loss(6, 5000) == pytest.approx(bounds.lanes_loss(5000), abs=1e-3)
    assert bounds.mixture_loss(3, 5000) == pytest.approx(bounds.spline_loss(5000), abs=1e-3)
    assert bounds.multi_guard(10, 10_000) == pytest.approx(3.2, abs=0.05)
    assert bounds.multi_loss(10, 10_000) == pytest.approx(math.log(72) + 1.25 * math.log(1e4) + 1.14, abs=0.02)
    assert bounds.multi_loss(100, 10_000) == pytest.approx(
        math.log(48) + 7 / 6 * math.log(1e4) + 1.04 + 101 * 1e4 * 1e-7, abs=0.02
    )
    for arguments in ((1, 10), (3, 0)):
        with pytest.raises(InvalidInput):
            bounds.multi_loss(*arguments)
