"""The theorems of MULTI and of several models on random, drifting and adversarial streams: no violation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import multi_streams
import numpy as np
import pytest
import several_streams
from group_streams import world
from multi_streams import one
from several_streams import Due, Vector, holes, play

from calibeat import AUTO, Calibrator, InvalidInput, MultiCalibrator, bounds
from calibeat.core import receipt, several, vector

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


# ---- several models --------------------------------------------------------------------------------------------------


def check_several(scores: Vector, outcomes: Vector, due: Due | None) -> None:
    """The expert against AUTO of each model, as issued, where its score was given; the forecast against the expert.

    At once the bound holds at every prefix; of late outcomes the certificate holds when all of them were learned.
    """
    n, k = scores.shape
    cal = Calibrator(models=k)
    issued, learned = play(cal, scores, outcomes, due)
    said, ones = np.array([issued[i].lanes for i in learned]), outcomes[learned] == 1.0
    autos = said[:, 6:].reshape(len(learned), k, AUTO.receipt_width)[:, :, receipt.FORECAST]
    own = ~np.isnan(scores[learned])

    def nats(p: Vector) -> Vector:
        return -np.log(np.where(ones, p, 1.0 - p))

    over_autos = [
        np.where(own[:, j], nats(said[:, 1]) - nats(np.where(own[:, j], autos[:, j], 0.5)), 0.0).cumsum()
        for j in range(k)
    ]
    over_expert = (nats(said[:, 3]) - nats(said[:, 1])).cumsum()
    assert (said[:, 3] == [issued[i].probability for i in learned]).all()
    if due is None:
        first, second = ([bounds.mixture_loss(J, T) for T in range(1, n + 1)] for J in (k + 2, 2))
        for over in over_autos:
            assert (over <= np.array(first) + SLACK * n).all()
            assert (over + over_expert <= [bounds.several(k, T) + SLACK * n for T in range(1, n + 1)]).all()
        assert (over_expert <= np.array(second) + SLACK * n).all()
        return
    parts, T = several.parts_of(cal.row, k), len(learned)
    splines = (1.0 + parts.spline_stale) * bounds.mixture_loss(2, T) + parts.spline_stale
    for over in over_autos:
        assert over[-1] <= bounds.several_late(cal) - splines + SLACK * n
        assert over[-1] + over_expert[-1] <= bounds.several_late(cal) + SLACK * n
    assert over_expert[-1] <= splines + SLACK * n


@pytest.mark.parametrize("delay", [0, 50, 500])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("name", several_streams.STREAMS)
def test_several_models_lose_no_more_than_the_bound(name: str, missing: float, delay: int) -> None:
    for k in (2, 3):
        scores, outcomes = several_streams.STREAMS[name](1500, k)
        check_several(holes(scores, missing), outcomes, np.arange(1500) + 1 + delay if delay else None)


@pytest.mark.parametrize("pattern", ["batches", "random", "some never"])
@pytest.mark.parametrize("name", several_streams.STREAMS)
def test_several_models_keep_their_certificate_in_any_order(name: str, pattern: str) -> None:
    rng, at = np.random.default_rng(1), np.arange(600)
    delay = rng.geometric(0.02, 600)
    due = {
        "batches": at // 70 * 70 + 70,
        "random": at + delay,
        "some never": np.where(rng.random(600) < 0.4, 600, at + delay),
    }
    scores, outcomes = several_streams.STREAMS[name](600, 2)
    check_several(holes(scores, 0.4), outcomes, due[pattern])


@pytest.mark.parametrize("delay", [0, 50, 500])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("name", several_streams.STREAMS)
def test_several_models_keep_the_bound_in_the_long_run(name: str, missing: float, delay: int) -> None:
    for k in (2, 3, 8):
        scores, outcomes = several_streams.STREAMS[name](20_000, k)
        check_several(holes(scores, missing), outcomes, np.arange(20_000) + 1 + delay if delay else None)


def test_several_models_against_their_best_sequence() -> None:
    """The best sequence with one change: found by trying every moment."""
    n = 800
    scores, outcomes = several_streams.halves(n, 2)
    scores[n // 2 :] = scores[n // 2 :, ::-1]
    issued, _ = play(Calibrator(models=2), scores, outcomes)
    said = np.array([f.lanes for f in issued])
    autos = said[:, 6:].reshape(n, 2, AUTO.receipt_width)[:, :, receipt.FORECAST]
    loss = -np.log(np.where(outcomes[:, None] == 1.0, autos, 1.0 - autos)).cumsum(axis=0)
    ours = -np.log(np.where(outcomes == 1.0, said[:, 3], 1.0 - said[:, 3])).sum()
    best = (loss.min(axis=1) + (loss[-1] - loss).min(axis=1)).min()
    assert ours <= best + bounds.several(2, n, changes=1) + SLACK


def test_the_numbers_of_several_models() -> None:
    for k, expected in ((2, (8.4, 9.8, 11.3)), (3, (8.9, 10.4, 11.9)), (8, (10.1, 11.7, 13.3))):
        for T, nats in zip((10_000, 100_000, 1_000_000), expected, strict=True):
            assert bounds.several(k, T) == pytest.approx(nats, abs=0.05)
    assert bounds.several(2, 100, changes=3) == bounds.several(2, 100) + 3 * math.log(800.0)
    assert bounds.several_late(Calibrator(models=3)) == 0.0
    scores, outcomes = several_streams.halves(300, 3)
    cal = Calibrator(models=3)
    cal.run(scores, outcomes)
    assert bounds.several_late(cal) == pytest.approx(bounds.several(3, 300), rel=1e-12)
    cal.run(scores, outcomes, due=np.arange(300) + 50)
    assert bounds.several_late(cal) > bounds.several(3, 550)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.ons_regret(0.5, 100), "B must be in [1, 700], got 0.5"),
        (lambda: bounds.aioli_regret(1.0, 9), "T must be a whole number in [10, 1000000000000000], got 9"),
        (lambda: bounds.hops_calibration(0.0, 9), "eps must be in [1e-12, 1], got 0.0"),
        (lambda: bounds.tops_sharpness(True, 9), "eps must be in [1e-12, 1], got True"),
        (lambda: bounds.hops_brier(0.1, 0), "T must be a whole number in [1, 1000000000000000], got 0"),
        (lambda: bounds.best_epsilon(100, None), "bound must be one of tops_sharpness"),
        (lambda: bounds.several(1, 100), "k must be a whole number in [2, 16], got 1"),
        (lambda: bounds.several(2, 0), "T must be a whole number in [1, 1000000000000000], got 0"),
        (lambda: bounds.several(2, 9, -1), "changes must be a whole number in [0, 1000000000000000], got -1"),
        (
            lambda: bounds.several_late(Calibrator()),
            "several_late needs a Calibrator with models, got Calibrator without",
        ),
        (lambda: bounds.several_late(None), "several_late needs a Calibrator with models, got NoneType without"),
        (lambda: bounds.auto_late(Calibrator(models=2)), "bounds of AUTO need a Calibrator without models"),
        (lambda: bounds.best_epsilon(100, "ops"), "bound must be one of tops_sharpness, hops_sharpness"),
    ],
)
def test_wrong_options(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call()
    assert message in str(error.value)
