"""The loops that every host shares: many rows at once are many streams, and a loop can be stopped anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import delays, same
from streams import STREAMS

from calibeat import AUTO, FTL, HOPS, TOPS, Calibrator, Method, Platt
from calibeat.core import loops
from calibeat.core.groups import NO_CELLS
from calibeat.core.method import PRESETS
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.refit import Refitter
from calibeat.core.stats import BRIER, EVENTS, LAST, LOG_LOSS, STATS


def play(method: Method, slots: Any, batch: loops.Batch, stops: list[int], late: loops.Late | None = None) -> Any:
    count, width = int(slots.max()) + 1, method.width + STATS
    rows = np.zeros((count, width))
    rows[:, : method.width] = method.initial_row()
    streams = loops.Streams(rows.reshape(-1), width, slots.astype(np.int32), 0, count, method.width, 0.0)
    place = loops.place_before()
    for stop in stops:
        loops.run_batch(method.spec, streams, batch, late, place, stop)
        assert place[0] == stop
    return rows


def draws(slots: Any, seed: int) -> Any:
    counts = np.zeros(int(slots.max()) + 1)
    return uniforms_at(np.uint64(stream_key(seed, 0)), numbered(counts, slots.astype(np.int32)))


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
def test_many_rows_are_many_streams(method: Method) -> None:
    scores, outcomes = STREAMS["drifting"]()
    outcomes = np.where(np.arange(300) % 11 == 5, np.nan, outcomes)
    slots = np.random.default_rng(2).integers(0, 4, 300)
    forecasts = np.empty(300)
    batch = loops.Batch(scores, outcomes, draws(slots, 3), forecasts, np.empty(0))
    rows = play(method, slots, batch, [100, 101, 300])
    for slot in range(4):
        cal, mine = Calibrator(method, seed=3), np.flatnonzero(slots == slot)
        expected = []
        for i in mine.tolist():  # a missing outcome is a forecast that nothing is learnt from
            forecast = cal.predict(float(scores[i]))
            expected.append(forecast.probability)
            if not np.isnan(outcomes[i]):
                cal.update(forecast, int(outcomes[i]))
        same(forecasts[mine], np.array(expected))
        same(rows[slot, 1 : method.width].copy(), cal.row[1:].copy())
        stats = rows[slot, method.width :]
        known = mine[~np.isnan(outcomes[mine])]
        assert (stats[EVENTS], stats[LAST]) == (len(mine), mine[-1] + 1.0)
        assert stats[BRIER] == pytest.approx(float(((forecasts - outcomes)[known] ** 2).sum()))


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
def test_many_late_rows_are_many_late_streams(method: Method) -> None:
    """Every outcome of a stream arrives before the same forecast of that stream as it does alone."""
    scores, outcomes = STREAMS["drifting"]()
    slots, due = np.arange(300) % 2, np.arange(300) // 2 * 2 + 2 + 2 * (delays(300) - np.arange(300) - 1)
    due = np.where(slots == 1, due + 1, due)
    order = np.argsort(due, kind="stable")
    order = order[: np.searchsorted(due[order], 300)]
    forecasts, receipts = np.empty(300), np.empty(300 * method.receipt_width)
    batch = loops.Batch(scores, outcomes, draws(slots, 3), forecasts, receipts)
    late = loops.Late(0, np.empty(300, dtype=np.int64), due, order, 0)
    rows = play(method, slots, batch, [7, 150, 300], late)
    for slot in range(2):
        cal = Calibrator(method, seed=3)
        expected = cal.run(scores[slot::2], outcomes[slot::2], due=due[slot::2] // 2)
        same(forecasts[slot::2], expected)
        same(rows[slot, 1 : method.width].copy(), cal.row[1:].copy())
        assert rows[slot, method.width + EVENTS] == 150.0
        assert rows[slot, method.width + LOG_LOSS] > 0.0


def test_only_the_slots_of_a_thread_are_played() -> None:
    scores, outcomes = STREAMS["random"]()
    slots = (np.arange(300) % 3).astype(np.int32)
    rows, forecasts = np.tile(TOPS.initial_row(), 3), np.full(300, -1.0)
    streams = loops.Streams(rows, TOPS.width, slots, 1, 2, 0, 0.0)
    batch = loops.Batch(scores, outcomes, np.empty(0), forecasts, np.empty(0))
    loops.run_batch(TOPS.spec, streams, batch, None, loops.place_before(), 300)
    assert (forecasts[slots != 1] == -1.0).all()
    same(forecasts[slots == 1], Calibrator(TOPS).run(scores[1::3], outcomes[1::3]))


def served_by(method: Method) -> list[Any]:
    """The specs that a loop for one stream may have in place of the method's own, with what it never does left out."""
    spec = method.spec
    if loops.is_auto(spec):
        return [spec, loops.as_auto(spec)]
    return [spec] if spec.receipt else [spec, spec._replace(receipt=0, mixes=False, guard=0)]


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_left_out_for_a_method_changes_nothing(name: str) -> None:
    """Every instance of a loop that may serve a method moves its row in the same way: as Python, and compiled."""
    method = PRESETS[name]
    scores, outcomes = STREAMS["drifting"]()
    outcomes = np.where(np.arange(300) % 11 == 5, np.nan, outcomes)
    learnt = np.flatnonzero(~np.isnan(outcomes))
    u, due = uniforms_at(np.uint64(3), np.arange(300, dtype=np.uint64)), np.arange(300) + 5
    late = loops.Late(0, np.zeros(300, dtype=np.int64), due, learnt, 0)
    instances: list[tuple[Any, Any]] = [(spec, many) for spec in served_by(method) for many in (False, True)]
    found = []
    for spec, many in [(method.spec, None), *instances]:  # None: the compiled loop chooses
        for is_late in (False, True):
            row, forecasts, place = method.initial_row(), np.empty(300), loops.place_before()
            slots = np.zeros(300, dtype=np.int32) if many else loops.NO_SLOTS
            streams = loops.Streams(row, len(row), slots, 0, 1, 0, 0.0)
            receipts = np.zeros(300 * method.receipt_width)
            batch = loops.Batch(scores, outcomes, u, forecasts, receipts)
            when = late if is_late else None
            if many is None:
                loops.run_batch(spec, streams, batch, when, place, 300)
            else:
                given = spec, NO_CELLS, streams, batch, when or loops.AT_ONCE, place, 300
                loops.event_loop(*given, many, False, is_late, False)
            found.append((is_late, forecasts.tobytes(), row.tobytes()))
    assert len(set(found)) == 2


def test_which_loop_serves_a_method() -> None:
    small = {name for name, method in PRESETS.items() if method.spec.receipt == 0}
    assert small == set(PRESETS) - {"auto", "gauto", "gops", "gtops"}
    assert {name for name, method in PRESETS.items() if loops.is_auto(method.spec)} == {"auto"}


@pytest.mark.parametrize("room", [41, 57, 299, 300])
def test_receipts_may_be_a_ring_as_long_as_the_longest_delay(room: int) -> None:
    scores, outcomes = STREAMS["drifting"]()
    due = delays(300)
    order = np.argsort(due, kind="stable")
    order = order[: np.searchsorted(due[order], 300)]
    assert loops.receipts_under_way(due, order, 300) == 41
    row, forecasts = AUTO.initial_row(), np.empty(300)
    receipts = np.full(room * AUTO.receipt_width, np.nan)
    batch = loops.Batch(scores, outcomes, np.empty(0), forecasts, receipts)
    late = loops.Late(0, np.empty(300, dtype=np.int64), due, order, 0)
    loops.run_batch(AUTO.spec, loops.one_stream(row, 0), batch, late, loops.place_before(), 300)
    cal = Calibrator(AUTO)
    same(forecasts, cal.run(scores, outcomes, due=due))
    same(row, cal.row.copy())


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_stretches_end_where_a_fit_is_due(late: bool) -> None:
    """Before the forecast that follows the outcome; where several arrive at once, one fit follows another."""
    method = Method(Platt(), FTL(every=25, after=40))
    scores, outcomes = STREAMS["random"]()
    due = (np.arange(300) // 60 + 1) * 60  # sixty outcomes at a time
    when = loops.Late(0, np.empty(300, dtype=np.int64), due, np.arange(300), 0) if late else None
    row = method.initial_row()
    stops, fitted = [], []
    for stop in Refitter(method).stretches(row, scores, outcomes, when, 300 + late):
        stops.append(stop)
        fitted.append(row[2])
    at_once = [40, 65, 90, 115, 140, 165, 190, 215, 240, 265, 290, 300]
    assert stops == ([60, 120, 120, 120, 180, 180, 240, 240, 240, 300, 300, 301] if late else at_once)
    assert len(set(fitted)) == len(fitted)
    alone = Calibrator(method)
    alone.run(scores, outcomes)
    assert fitted[-1] == alone.params["a"]
