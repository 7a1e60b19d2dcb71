"""The loops of K classes: many rows at once are many streams, and a loop can be stopped anywhere."""

from __future__ import annotations

import math
from typing import Any

import multi_streams
import numpy as np
import pytest
from conformance import same

from calibeat import InvalidInput, UnknownMethod, metrics
from calibeat.core import loops, vector
from calibeat.core.groups import NO_CELLS
from calibeat.core.layout import N, T
from calibeat.core.limits import check_row, check_rows
from calibeat.core.stats import BRIER, EVENTS, LAST, LOG_LOSS, RAW_BRIER, STATS
from calibeat.core.vector import CODES, VectorMethod, predict, scratch, update
from calibeat.hosts import pool
from calibeat.hosts.rows import FoldWork, fold_rows, receipt_type

EVENTS_MADE, K = 240, 4
METHODS = [VectorMethod(name, K) for name in CODES]

NOT_LATE = loops.NO_INTS, loops.NO_INTS


def by_event(method: VectorMethod, scores: Any, labels: Any, due: Any = None) -> tuple[Any, Any]:
    """One event at a time through the single entries, each label by its receipt: what all loops must do."""
    n = len(scores)
    row, work, forecasts = method.initial_row(), scratch(method.classes), np.empty((n, method.classes))
    receipts = np.zeros((n, method.receipt_width))
    due = np.arange(n) + 1 if due is None else due
    order = [i for i in sorted(range(n), key=lambda i: (due[i], i)) if not np.isnan(labels[i])]
    for i in range(n + 1):
        while order and due[order[0]] <= i:
            j = order.pop(0)
            y = int(labels[j])
            update(*method.code, row, float(i), y, receipts[j], work, float(forecasts[j, y]))
        if i < n:
            predict(*method.code, row, np.ascontiguousarray(scores[i]), receipts[i], work, forecasts[i])
    return forecasts, row


def stream(n: int = EVENTS_MADE) -> tuple[Any, Any]:
    scores, labels = multi_streams.drifting(n, K)
    return scores, np.where(np.arange(n) % 11 == 5, np.nan, labels)


def streams_of(method: VectorMethod, slots: Any, count: int) -> tuple[Any, loops.Streams]:
    width = method.width + STATS
    rows = np.zeros((count, width))
    rows[:, : method.width] = method.initial_row()
    return rows, loops.Streams(rows.reshape(-1), width, slots.astype(np.int32), 0, count, method.width, 0.0)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_row_is_a_stream_in_pieces_too(method: VectorMethod, late: bool) -> None:
    scores, labels = stream()
    due = multi_streams.delays(EVENTS_MADE, "reordered") if late else None
    expected, row = by_event(method, scores, labels, due)
    for stops in ([EVENTS_MADE + late], [1, 17, 100, EVENTS_MADE, EVENTS_MADE + late]):
        batch, lateness = multi_streams.batch_of(method, scores, labels, due)
        if lateness:  # those that arrive behind the last event as well
            order = np.argsort(due, kind="stable")
            lateness = lateness._replace(order=order[~np.isnan(labels[order]) & (due[order] <= EVENTS_MADE)])
        mine, place = method.initial_row(), loops.place_before()
        for stop in stops:
            loops.run_batch(method.spec, loops.one_stream(mine, 0), batch, lateness, place, min(stop, stops[-1]))
        same(batch.forecasts.reshape(-1, K), expected)
        same(mine, row)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_many_rows_are_many_streams(method: VectorMethod, late: bool) -> None:
    """With stats, and served by two ranges of slots, as two threads do it."""
    scores, labels = stream()
    slots = np.arange(EVENTS_MADE) % 3
    alone = multi_streams.delays(EVENTS_MADE // 3, "reordered") if late else None
    due = 3 * np.repeat(alone, 3) + slots if alone is not None else None
    batch, lateness = multi_streams.batch_of(method, scores, labels, due)
    rows, streams = streams_of(method, slots, 3)
    for first, last in ((0, 2), (2, 3)):
        part = streams._replace(first=first, last=last)
        loops.run_batch(method.spec, part, batch, lateness, loops.place_before(), EVENTS_MADE)
        assert np.isfinite(rows[first:last]).all()
    forecasts = batch.forecasts.reshape(-1, K)
    for slot in range(3):
        mine = scores[slot::3], labels[slot::3]
        known, last = ~np.isnan(mine[1]), EVENTS_MADE // 3
        if alone is not None:
            known &= alone < last
            mine = mine[0], np.where(known, mine[1], np.nan)
        expected, row = by_event(method, *mine, alone)
        same(forecasts[slot::3], expected)
        same(rows[slot, 1 : method.width].copy(), row[1:])
        stats, y = rows[slot, method.width :], mine[1][known].astype(int)
        assert (stats[EVENTS], stats[LAST]) == (last, EVENTS_MADE - 2 + slot)
        assert stats[LOG_LOSS] == pytest.approx(known.sum() * metrics.log_loss(y, expected[known], clip=1e-5))
        assert stats[BRIER] == pytest.approx(known.sum() * metrics.brier_score(y, expected[known]))
        assert stats[RAW_BRIER] == pytest.approx(known.sum() * metrics.brier_score(y, mine[0][known]))


@pytest.mark.parametrize("room", [15, 16, 101, EVENTS_MADE])
def test_receipts_may_be_a_ring(room: int) -> None:
    method, (scores, labels) = VectorMethod("multi", K), stream()
    due = np.arange(EVENTS_MADE) + 15
    batch, late = multi_streams.batch_of(method, scores, labels, due)
    ring = batch._replace(receipts=np.empty(room * method.receipt_width), forecasts=np.empty(EVENTS_MADE * K))
    row = method.initial_row()
    loops.run_batch(method.spec, loops.one_stream(row, 0), ring, late, loops.place_before(), EVENTS_MADE)
    same(ring.forecasts.reshape(-1, K), multi_streams.calibrate(scores, labels, due)[0])


def test_the_row_counts_forecasts_when_it_moves() -> None:
    """As for two classes: t is the number of forecasts when the last label was learnt."""
    scores, labels = stream(40)
    row = multi_streams.calibrate(scores, labels, np.arange(40) + 6)[1]
    assert (row[T], row[N]) == (39.0, 31.0)  # before the last forecast came label 33; three of the 34 are unknown


def test_young_streams_may_forecast_the_raw_scores() -> None:
    method, (scores, labels) = VectorMethod("multi", K), stream()
    batch, late = multi_streams.batch_of(method, scores, labels, np.arange(EVENTS_MADE) + 15)
    assert late is not None
    row = method.initial_row()
    late = late._replace(raw_below=1)
    loops.run_batch(method.spec, loops.one_stream(row, 0), batch, late, loops.place_before(), 40)
    forecasts = batch.forecasts.reshape(-1, K)
    same(forecasts[:15], batch.scores.reshape(-1, K)[:15])
    assert not np.array_equal(forecasts[15:40], scores[15:40])


def test_predict_many_reads_the_row_of_each_slot() -> None:
    method, (scores, labels) = VectorMethod("multi", K), stream()
    slots = np.arange(EVENTS_MADE) % 3
    batch, _ = multi_streams.batch_of(method, scores, labels)
    rows, streams = streams_of(method, slots, 3)
    loops.run_batch(method.spec, streams, batch, None, loops.place_before(), EVENTS_MADE)
    asked = np.array([2, -1, 0, 1], dtype=np.int32)
    forecasts, flat, nothing = np.empty(4 * K), np.ascontiguousarray(scores[:4]).reshape(-1), loops.NO_NUMBERS
    batch = loops.Batch(flat, nothing, nothing, forecasts, nothing, scratch(K))
    loops.predict_many(method.spec, NO_CELLS, streams._replace(slots=asked), method.initial_row(), batch)
    for i, slot in enumerate(asked):
        row = method.initial_row() if slot < 0 else rows[slot]
        expected = np.empty(K)
        predict(*method.code, row, flat[i * K : (i + 1) * K], np.zeros(method.receipt_width), scratch(K), expected)
        same(forecasts[i * K : (i + 1) * K], expected)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_fold_is_a_late_run(method: VectorMethod) -> None:
    scores, labels = stream(60)
    due = multi_streams.delays(60, "reordered")
    expected, row = by_event(method, scores, np.where(due <= 60, labels, np.nan), due)
    operations = []
    order = [j for j in np.argsort(due, kind="stable").tolist() if not np.isnan(labels[j]) and due[j] <= 60]
    place = {}
    for i in range(61):
        while order and due[order[0]] <= i:
            j = order.pop(0)
            operations.append((j, labels[j], place[j]))
        if i < 60:
            place[i] = len(operations)
            operations.append((i, np.nan, len(operations)))
    n = len(operations)
    event, outcomes, sources = (np.array(column) for column in zip(*operations, strict=True))
    receipts = np.zeros(n, dtype=receipt_type(method))
    receipts["scores"] = scores[event]
    memory = receipts.view(np.float64), receipts.view(np.int64), receipts.itemsize // 8
    work = FoldWork(np.zeros(n, dtype=np.int32), outcomes, np.empty(0), sources, *memory, scratch(K))
    rows, _ = streams_of(method, np.zeros(1), 1)
    none = pool.Pool(False, np.empty(0), np.empty(0), 0)
    assert fold_rows(method.spec, NO_CELLS, rows.reshape(-1), rows.shape[1], 0.0, work, none) == -1
    same(receipts["probabilities"][np.isnan(outcomes)], expected)
    same(rows[0, : method.width].copy(), row)
    assert receipts["event"][np.isnan(outcomes)].tolist() == list(range(60))


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_new_key_starts_where_the_pool_is(method: VectorMethod) -> None:
    scores, labels = stream()
    slots = (np.arange(EVENTS_MADE) // 30).astype(np.int32)
    rows, _ = streams_of(method, slots, 8)
    shared = pool.Pool(True, method.initial_row(), method.initial_row(), 0, scratch(K))
    flat = np.ascontiguousarray(scores).reshape(-1)
    pool.pool_rows(method.spec, shared, rows.reshape(-1), rows.shape[1], slots, flat, labels, *NOT_LATE)
    same(shared.row[1:], by_event(method, scores, labels)[1][1:])
    last = by_event(method, scores[:210], labels[:210])[1]  # what the pool knew when the last key came
    expected = method.initial_row()
    pool.start_row(method.spec, shared._replace(row=last), expected)
    same(rows[7, : method.width].copy(), expected)
    check_rows(method, rows, math.inf)

    at_once = np.full(EVENTS_MADE + 1, -1), np.full(EVENTS_MADE, -1)
    at_once[0][1:] = np.where(np.isnan(labels), -1, np.arange(EVENTS_MADE))
    again, late_rows = shared._replace(row=method.initial_row()), np.zeros_like(rows)
    where = late_rows.reshape(-1), rows.shape[1], slots, flat, labels
    pool.pool_rows(method.spec, again, *where, *at_once)
    same(again.row, shared.row)
    same(late_rows, rows)


def test_the_pooled_start_helps_young_keys() -> None:
    rng, keys = np.random.default_rng(3), 60
    method, n = VectorMethod("multi", K), keys * 20
    slots = rng.permutation(np.repeat(np.arange(keys), 20))
    slots = np.unique(slots, return_index=True)[1].argsort().argsort()[slots].astype(np.int32)
    logits = rng.normal(0, 1.5, (n, K))
    truth = multi_streams.normalised(np.exp(0.5 * logits + np.array([1.0, 0.0, -1.0, 0.0])))
    scores, labels = multi_streams.normalised(np.exp(logits)), multi_streams.drawn(rng, truth)
    losses = []
    for pooled in (False, True):
        batch, _ = multi_streams.batch_of(method, scores, labels)
        rows, streams = streams_of(method, slots, keys)
        if pooled:
            # A pool learns an outcome when it comes, so key after key starts in the midst of the batch.
            shared = pool.Pool(True, method.initial_row(), method.initial_row(), 0, scratch(K))
            where = rows.reshape(-1), rows.shape[1], slots, batch.scores, batch.outcomes
            pool.pool_rows(method.spec, shared, *where, *NOT_LATE)
        loops.run_batch(method.spec, streams, batch, None, loops.place_before(), n)
        losses.append(rows[:, method.width + LOG_LOSS].sum() / n)
    assert losses[1] < losses[0] - 0.05


def settled_late(name: str = "multi", classes: int = K) -> tuple[VectorMethod, Any, Any]:
    """A method, its row, and its receipts, after labels that were late."""
    method = VectorMethod(name, classes)
    scores, labels = multi_streams.drifting(120, classes)
    batch, late = multi_streams.batch_of(method, scores, labels, multi_streams.delays(120, "reordered"))
    row = method.initial_row()
    loops.run_batch(method.spec, loops.one_stream(row, 0), batch, late, loops.place_before(), 120)
    return method, row, batch.receipts.reshape(120, -1)


@pytest.mark.parametrize(("name", "classes"), [(name, classes) for name in CODES for classes in (2, 3, 64, 65)])
def test_rows_of_streams_are_sound(name: str, classes: int) -> None:
    method, row, receipts = settled_late(name, classes)
    check_row(method, row, 120)
    check_row(method, method.initial_row(), 0)
    assert receipts.shape[1] == method.receipt_width
    if name == "multi":
        confused = classes <= 64
        assert method.receipt_width == 22 + (6 + confused) * classes
        assert method.width == 107 + 20 * classes + 2 * classes**2 * confused


LATE = vector.late_at(K)
END = VectorMethod("multi", K).width


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (N, 80.5, "outcomes as a whole number"),
        (T, 121.0, "events at the last outcome in"),
        (vector.W, 0.9, "weights of lanes that sum to 1"),
        (vector.V, 0.0, "weights of stages"),
        (vector.Z, 2.0, "weights of the spline in"),
        (vector.G, -1.0, "weights of the guard in"),
        (vector.SLOPE, 101.0, "a slope in"),
        (vector.SLOPE_INFORMATION, 1.0, "information of the slope"),
        (vector.THETA, 1e10, "shared parameters in"),
        (vector.THETA + 3, -1.0, "H in"),
        (vector.OFFSET, 1e3, "knots in"),
        (vector.KNOWN, 1.0, "information of knots in"),
        (vector.BIAS, 1e10, "biases in"),
        (vector.BIAS + K, 0.0, "information of biases"),
        (vector.BIAS + 8 * K, 0.0, "factors in"),
        (vector.BIAS + 14 * K, 1.0, "information of factors"),
        (vector.BIAS + 20 * K, -1.0, "factors in"),
        (vector.BIAS + 20 * K + K * K, 1.0, "information of confusions"),
        (LATE + vector.TEMPER, 0.5, "temper in"),
        (LATE + vector.STALENESS, 1e6, "staleness in"),
        (LATE + vector.HORIZON_WEIGHT, 0.0, "weights of lanes that sum to 1"),
        (LATE + vector.HORIZON_WEIGHT, -0.1, "weights of lanes in"),
        (LATE + vector.MEAN_LAG, 121.0, "a mean lag in"),
        (LATE + vector.ETA, 1e10, "eta in"),
        (LATE + vector.ETA_INFORMATION, -1.0, "information of eta"),
        (END - 1, 0.0, "evidence"),
        (END - 1, np.nan, "evidence"),
    ],
)
def test_rows_that_no_stream_has_are_refused(at: int, value: float, what: str) -> None:
    method, row, _ = settled_late()
    check_row(method, row, 120)
    row[at] = value
    with pytest.raises(InvalidInput, match=f"row must have {what}"):
        check_row(method, row, 120)


def test_a_late_label_that_is_not_late_is_learnt_as_one_at_once() -> None:
    """Also after the horizon lane has woken."""
    method, row, _ = settled_late()
    scores, twin, work = multi_streams.drifting(40, K)[0], row.copy(), scratch(K)
    receipt, forecast = np.zeros(method.receipt_width), np.empty(K)
    for i, score in enumerate(scores):
        for mine, learn in ((row, vector.settle), (twin, update)):
            predict(*method.code, mine, np.ascontiguousarray(score), receipt, work, forecast)
            learn(*method.code, mine, float(i), i % K, receipt, work, float(forecast[i % K]))
        same(row, twin)


def test_a_method_of_many_classes() -> None:
    method = VectorMethod("multi", 3)
    assert (method.numbers, method.draws, method.needs_history, method.mixes, method.cells) == (
        3,
        False,
        False,
        True,
        0,
    )
    assert VectorMethod.from_dict(method.to_dict()) == method
    assert (method.spec.classes, method.spec.vector, method.spec.evidence) == (3, CODES["multi"], method.width - 2)
    assert len(method.initial_row()) == method.width
    with pytest.raises(UnknownMethod, match="must be one of raw, ots, multi, got 'mult'"):
        VectorMethod("mult", 3)
    with pytest.raises(InvalidInput, match="classes must be a whole number"):
        VectorMethod("multi", 1)
    with pytest.raises(InvalidInput, match="object with name, classes"):
        VectorMethod.from_dict({"name": "multi"})
