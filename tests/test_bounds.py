"""The theorems of MULTI on random, drifting and adversarial streams: no violation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import multi_streams
import numpy as np
import pytest
from group_streams import world
from multi_streams import one

from calibeat import Calibrator, InvalidInput, MultiCalibrator, bounds
from calibeat.core import vector

SLACK = 1e-9  # of the sums of logarithms
T = 600


def losses(
    scores: np.ndarray, labels: np.ndarray, due: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Total log-loss of every part of MULTI as it was issued, over the labels that came; and the row at the end."""
    n, K = scores.shape
    method, work = vector.VectorMethod("multi", K), vector.scratch(K)
    row, forecasts, receipts = method.initial_row(), np.empty((n, K)), np.zeros((n, method.receipt_width))
    names = ("lanes", "mean", "stages", "mixture", "top", "expert", "ots", "raw", "forecast")
    said: list[dict[str, np.ndarray]] = []
    due = np.arange(n) + 1 if due is None else due
    order = [i for i in np.argsort(due, kind="stable").tolist() if due[i] <= n]
    arrived = 0
    for i in range(n + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            vector.update(*method.code, row, 0.0, one(int(labels[j])), receipts[j], work, forecasts[j])
            arrived += 1
        if i < n:
            vector.predict(*method.code, row, np.ascontiguousarray(scores[i]), receipts[i], work, forecasts[i])
            said.append(dict(zip(names, parts_of(K, int(labels[i]), work, forecasts[i]), strict=True)))
    return {name: -np.log([said[j][name] for j in order]).sum(axis=0) for name in names}, row


def parts_of(K: int, y: int, work: np.ndarray, forecast: np.ndarray) -> list[np.ndarray]:
    """What each part has just said of the label."""
    parts = work[vector.HEAD :].reshape(-1, K)[:, y].copy()
    hit = int(work[vector.TOP]) == y
    shares = (vector.TOP_SHARE, vector.TOP_SPLINE) if hit else (vector.REST_SHARE, vector.REST_SPLINE)
    mixed = parts[vector.MIXED]
    top = work[list(shares)] * (1.0 if hit else mixed / work[vector.REST_SHARE])
    lanes = parts[[*range(vector.LANE, vector.LANE + 4), vector.F, vector.ONLINE]]
    stages = parts[vector.MEAN : vector.MEAN + (3 if K <= 64 else 2)]
    plain = (parts[[at]] for at in (vector.EXPERT, vector.ONLINE, vector.F))
    return [lanes, parts[[vector.MEAN]], stages, np.array([mixed]), top, *plain, forecast[[y]]]


@pytest.mark.parametrize("K", [2, 3, 10, 65])
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_no_stage_loses_more_than_its_bound(name: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](T, K)
    total, _ = losses(scores, labels)
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


@pytest.mark.parametrize("K", [3, 10, 65])
@pytest.mark.parametrize("delay", [1, 7, 60, "batch", "random"])
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_late_labels_cost_no_more_than_the_certificate(name: str, delay: int | str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](T, K)
    due = np.arange(T) + (1 if isinstance(delay, str) else delay)
    if delay == "batch":
        due = (np.arange(T) // 70 + 1) * 70
    elif delay == "random":
        due += np.random.default_rng(8).geometric(0.03, T)
    total, row = losses(scores, labels, due)
    learnt = int(row[vector.N])
    assert total["forecast"][0] <= total["ots"][0] + bounds.multi_guard_late(row, K) + SLACK
    best = min(total["raw"][0], total["lanes"].min())
    assert total["forecast"][0] <= best + bounds.multi_late(row, K) + SLACK
    late = row[vector.late_at(K) :]
    lanes, stages, top = (
        late[at] + late[at + 1] * bounds.mixture_loss(J, learnt) for at, J in ((0, 7), (2, 3), (4, 2))
    )
    assert total["mean"][0] <= total["lanes"].min() + lanes + SLACK
    assert total["mixture"][0] <= total["stages"].min() + stages + SLACK
    assert total["expert"][0] <= total["top"].min() + top + SLACK
    if delay == 1:
        assert bounds.multi_late(row, K) == pytest.approx(bounds.multi_loss(K, T), rel=1e-12)
        assert bounds.multi_guard_late(row, K) == pytest.approx(bounds.multi_guard(K, T), rel=1e-12)


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
        lanes[i] = parts_of(K, y, work, forecast)[0]
        ours -= math.log(forecast[y])
        vector.settle(*method.code, row, 0.0, one(y), receipt, work, forecast)
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
    with pytest.raises(InvalidInput, match="row must be one of MULTI"):
        bounds.multi_late(np.zeros(20), 3)


def test_bounds_of_groups() -> None:
    scores, outcomes, columns = world(2000, 2, 6)
    cal = Calibrator(groups=["a", "b"])
    p = cal.run(scores, outcomes, groups=columns)
    assert bounds.auto_late(cal) == pytest.approx(bounds.auto_loss(2000) + bounds.groups_loss(2000), abs=0.01)
    safe = np.clip(scores, 0.01, 0.99)
    loss = -np.log(np.where(outcomes == 1, p, 1 - p)).sum()
    assert loss <= -np.log(np.where(outcomes == 1, safe, 1 - safe)).sum() + bounds.auto_late(cal)
    late = Calibrator(groups=["a", "b"])
    late.run(scores, outcomes, groups=columns, due=np.arange(2000) + 300)
    assert bounds.groups_late(late) > bounds.groups_loss(1700)
    for other in (Calibrator(), cal.row, None):
        with pytest.raises(InvalidInput, match="needs a Calibrator with groups"):
            bounds.groups_late(other)
    for T in (0, -1, 1.5):
        with pytest.raises(InvalidInput):
            bounds.groups_loss(T)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.ons_regret(0.5, 100), "B must be in [1, 700], got 0.5"),
        (lambda: bounds.aioli_regret(1.0, 9), "T must be a whole number in [10, 1000000000000000], got 9"),
        (lambda: bounds.hops_calibration(0.0, 9), "eps must be in [1e-12, 1], got 0.0"),
        (lambda: bounds.tops_sharpness(True, 9), "eps must be in [1e-12, 1], got True"),
        (lambda: bounds.hops_brier(0.1, 0), "T must be a whole number in [1, 1000000000000000], got 0"),
        (lambda: bounds.best_epsilon(100, None), "bound must be one of tops_sharpness"),
        (lambda: bounds.best_epsilon(100, "ops"), "bound must be one of tops_sharpness, hops_sharpness"),
    ],
)
def test_wrong_options(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call()
    assert message in str(error.value)
