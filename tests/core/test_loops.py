"""The loops that every host shares. That many rows are many streams is what `tests/test_all_hosts_agree.py` proves."""

from __future__ import annotations

from typing import Any

import multi_streams
import numpy as np
import pytest
from conformance import delays, same
from streams import STREAMS

from calibeat import AUTO, FTL, Calibrator, Method, MultiCalibrator, Platt
from calibeat.core import loops
from calibeat.core.groups import NO_CELLS
from calibeat.core.layout import THETA
from calibeat.core.method import PRESETS
from calibeat.core.randomness import uniforms_at
from calibeat.core.refit import Refitter
from calibeat.core.vector import VectorMethod


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
                loops.event_loop(*given, many, False, is_late, False, False)
            found.append((is_late, forecasts.tobytes(), row.tobytes()))
    assert len(set(found)) == 2


@pytest.mark.parametrize("room", [41, 57, 299, 300])
@pytest.mark.parametrize("K", [2, 3])
def test_a_loop_can_be_stopped_anywhere_and_its_receipts_be_a_ring(K: int, room: int) -> None:
    """As long as the longest delay."""
    due = delays(300)
    order = np.argsort(due, kind="stable")
    order = order[: np.searchsorted(due[order], 300)]
    assert loops.receipts_under_way(due, order, 300) == 41
    if K == 2:
        method: Any = AUTO
        cal: Any = Calibrator(AUTO)
        scores, outcomes = STREAMS["drifting"]()
        batch = loops.Batch(scores, outcomes, np.empty(0), np.empty(300), np.empty(0))
        expected = cal.run(scores, outcomes, due=due)
    else:
        method, cal = VectorMethod("multi", K), MultiCalibrator(K)
        scores, labels = multi_streams.drifting(300, K)
        batch, _ = multi_streams.batch_of(method, scores, labels)
        expected = cal.run(scores, labels, due=due).reshape(-1)
    batch = batch._replace(receipts=np.full(room * method.receipt_width, np.nan))
    late = loops.Late(0, np.empty(300, dtype=np.int64), due, order, 0)
    row, place = method.initial_row(), loops.place_before()
    for stop in (7, 150, 300):
        loops.run_batch(method.spec, loops.one_stream(row, 0), batch, late, place, stop)
        assert place[0] == stop
    same(batch.forecasts, expected)
    same(row[1 : len(cal.row)].copy(), cal.row[1:].copy())  # the first counts forecasts


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_stretches_end_where_a_fit_is_due(late: bool) -> None:
    """Before the forecast that follows the outcome; where several arrive at once, one fit follows another."""
    method = Method(Platt(), FTL(every=25, after=40))
    scores, outcomes = STREAMS["random"]()
    due = (np.arange(300) // 60 + 1) * 60  # sixty outcomes at a time
    when = loops.Late(0, np.empty(300, dtype=np.int64), due, np.arange(300), 0) if late else None
    row = method.initial_row()
    stops, fitted = [], []
    batch = loops.Batch(scores, outcomes, np.empty(0), np.empty(300), np.empty(0))
    for stop in Refitter(method).stretches(row, batch, when, 300 + late):
        stops.append(stop)
        fitted.append(row[THETA])
    at_once = [40, 65, 90, 115, 140, 165, 190, 215, 240, 265, 290, 300]
    assert stops == ([60, 120, 120, 120, 180, 180, 240, 240, 240, 300, 300, 301] if late else at_once)
    assert len(set(fitted)) == len(fitted)
    alone = Calibrator(method)
    alone.run(scores, outcomes)
    assert fitted[-1] == alone.params["a"]
