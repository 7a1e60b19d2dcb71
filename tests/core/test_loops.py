"""The loops that every host shares: many rows at once are many streams, and a loop can be stopped anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import delays, same
from streams import STREAMS

from calibeat import AUTO, FTL, HOPS, TOPS, Calibrator, Method, Platt
from calibeat.core import loops
from calibeat.core.jit import compiled
from calibeat.core.kernel import is_small
from calibeat.core.method import PRESETS
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.stats import BRIER, EVENTS, LAST, LOG_LOSS, STATS


def play(loop: Any, method: Method, slots: Any, events: tuple[Any, ...], stops: list[int], *late: Any) -> Any:
    streams, stats, width = int(slots.max()) + 1, method.width, method.width + STATS
    rows = np.zeros((streams, width))
    rows[:, : method.width] = method.initial_row()
    place = loops.place_before()
    for stop in stops:
        due = compiled(loop)(
            method.spec,
            rows.reshape(-1),
            width,
            slots.astype(np.int32),
            0,
            streams,
            stats,
            0.0,
            *events,
            *loops.NO_HISTORY,
            place,
            stop,
            *late,
        )
        assert not due and place[0] == stop
    return rows


def draws(slots: Any, seed: int) -> Any:
    counts = np.zeros(int(slots.max()) + 1)
    return uniforms_at(np.uint64(stream_key(seed, 0)), numbered(counts, slots.astype(np.int32)))


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
def test_many_rows_are_many_streams(method: Method) -> None:
    scores, outcomes = STREAMS["drifting"]()
    outcomes = np.where(np.arange(300) % 11 == 5, np.nan, outcomes)
    slots = np.random.default_rng(2).integers(0, 4, 300)
    forecasts, receipt = np.empty(300), np.empty(method.receipt_width)
    events = scores, outcomes, draws(slots, 3), forecasts, receipt
    rows = play(loops.run, method, slots, events, [100, 101, 300])
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
    events = scores, outcomes, draws(slots, 3), forecasts, receipts
    cells = np.empty(300, dtype=np.int64)
    rows = play(loops.run_late, method, slots, events, [7, 150, 300], 0, cells, due, order, 0)
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
    place = loops.place_before()
    compiled(loops.run)(
        TOPS.spec,
        rows,
        TOPS.width,
        slots,
        1,
        2,
        0,
        0.0,
        scores,
        outcomes,
        np.empty(0),
        forecasts,
        np.empty(0),
        *loops.NO_HISTORY,
        place,
        300,
    )
    assert (forecasts[slots != 1] == -1.0).all()
    same(forecasts[slots == 1], Calibrator(TOPS).run(scores[1::3], outcomes[1::3]))


def test_a_loop_stops_where_a_refit_is_due() -> None:
    method = Method(Platt(), FTL(every=25, after=40))
    scores, outcomes = STREAMS["random"]()
    row, forecasts, place, stops = method.initial_row(), np.empty(300), loops.place_before(), []
    history = np.empty(300), np.empty(0), np.empty(300)
    batch = scores, outcomes, np.empty(0), forecasts, np.empty(0), *history, 0, place, 300
    while compiled(loops.run)(method.spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, 0.0, *batch):
        stops.append(int(place[0]))
    assert stops == [40, 65, 90, 115, 140, 165, 190, 215, 240, 265, 290]


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_left_out_for_a_small_method_changes_nothing(name: str) -> None:
    """Every instance of a loop that may serve a method moves its row in the same way."""
    method = PRESETS[name]
    scores, outcomes = STREAMS["drifting"]()
    outcomes = np.where(np.arange(300) % 11 == 5, np.nan, outcomes)
    learnt = np.flatnonzero(~np.isnan(outcomes))
    history = [np.empty(300) for _ in range(3)]
    u, cells, due = uniforms_at(np.uint64(3), np.arange(300, dtype=np.uint64)), [0] * 300, np.arange(300) + 5
    found = []
    for many, small in [(False, False), (True, False), *[(False, True), (True, True)][: 2 * is_small(method.spec)]]:
        for late in ((), ((0, cells, due, learnt, 0),)):
            row, forecasts, place = method.initial_row(), np.empty(300), loops.place_before()
            stream: Any = method.spec, row.data, len(row), [0] * 300, 0, 1, 0, 0.0
            receipts = np.zeros(300 * method.receipt_width).data
            batch: Any = scores, outcomes, u, forecasts, receipts, *history, 0, place, 300
            loop: Any = loops.late_loop if late else loops.event_loop
            while loop(stream, batch, *late, many, small):
                pass  # a refit that changes nothing
            found.append((bool(late), forecasts.tobytes(), row.tobytes()))
    assert len(set(found)) == 2


def test_a_method_is_small_if_its_events_have_no_receipt() -> None:
    small = {name for name, method in PRESETS.items() if is_small(method.spec)}
    assert small == set(PRESETS) - {"auto", "gauto", "gops", "gtops"}


@pytest.mark.parametrize("room", [41, 57, 299, 300])
def test_receipts_may_be_a_ring_as_long_as_the_longest_delay(room: int) -> None:
    scores, outcomes = STREAMS["drifting"]()
    due = delays(300)
    order = np.argsort(due, kind="stable")
    order = order[: np.searchsorted(due[order], 300)]
    assert loops.receipts_under_way(due, order, 300) == 41
    row, forecasts, cells = AUTO.initial_row(), np.empty(300), np.empty(300, dtype=np.int64)
    stream = AUTO.spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, 0.0
    batch = scores, outcomes, np.empty(0), forecasts, np.full(room * AUTO.receipt_width, np.nan)
    late = loops.place_before(), 300, 0, cells, due, order, 0
    compiled(loops.run_late)(*stream, *batch, *loops.NO_HISTORY, *late)
    cal = Calibrator(AUTO)
    same(forecasts, cal.run(scores, outcomes, due=due))
    same(row, cal.row.copy())
