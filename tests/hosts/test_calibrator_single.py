"""One event at a time: by plain kernels, by the short way, and without making an event."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from conformance import same
from streams import STREAMS, variants

from calibeat import AUTO, HOPS, OPS, Calibrator, Forecast
from calibeat.core import kernel
from calibeat.hosts.dispatch import SINGLE, box


def short_way(calibrator: Calibrator) -> None:
    """Serve single events as if the kernels were compiled: by one call each, here of the plain bodies."""
    spec, row, shared, receipt = calibrator._spec, calibrator._row, calibrator._shared, calibrator._receipt
    calibrator._fast_predict = box(SINGLE), spec, row, shared, receipt, tuple if len(receipt) else None
    calibrator._fast_update = box(SINGLE), spec, row, shared, receipt
    calibrator._is_plain = False


@pytest.mark.parametrize("method", [OPS, AUTO], ids=["ops", "auto"])
def test_the_short_way_has_the_same_bits(method: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.calibrator.single_kernels", lambda: SINGLE)
    scores, outcomes = (column[:150] for column in STREAMS["drifting"]())
    long, short = Calibrator(method), Calibrator(method)
    short_way(short)
    late: list[tuple[Forecast, Forecast, int]] = []
    for i, (score, y) in enumerate(zip(scores.tolist(), outcomes.astype(int).tolist(), strict=True)):
        ours, theirs = long.predict(score), short.predict(score)
        assert tuple(ours) == tuple(theirs)
        if i % 7 == 3:
            late.append((ours, theirs, y))
            continue
        long.update(ours, y)
        short.update(theirs, y)
        if i % 20 == 0 and late:
            ours, theirs, z = late.pop(0)
            long.update(ours, z)
            short.update(theirs, z)
            short.update(theirs, z)
    same(long.row, short.row)
    assert long.to_json() == short.to_json()


def test_the_short_way_is_shut_while_others_are_at_work() -> None:
    cal = Calibrator(AUTO)
    short_way(cal)
    forecast = cal.predict(0.3)
    cal._shared[kernel.SHUT] = 1.0
    answer = SINGLE[0](cal._spec, cal._row, 0.3, cal._shared, cal._receipt)
    assert answer[-1] == -1 and cal.events == 1
    first, marks, _ = cal._receipts.settled.span
    assert not SINGLE[1](cal._spec, cal._row, 0, 1.0, cal._shared, cal._receipt, marks, first)
    done = threading.Event()

    def work() -> None:
        assert cal.predict(0.3).event == 1  # by the long way
        cal.update(forecast, 1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done.is_set() and cal.outcomes == 1 and cal.events == 2


def test_a_forecast_that_another_thread_wrote_over_is_made_again() -> None:
    cal, alone = Calibrator(AUTO), Calibrator(AUTO)
    short_way(cal)
    made = []

    def meddling(receipt: object) -> tuple[float, ...]:
        if not made:
            made.append(None)
            made[0] = cal.predict(0.9)  # as another thread might, between the forecast and this line
        return tuple(receipt)  # type: ignore[arg-type]

    cal._fast_predict = *cal._fast_predict[:-1], meddling
    forecast = cal.predict(0.3)
    first, second = alone.predict(0.3), alone.predict(0.9)
    assert tuple(forecast) == tuple(first) and tuple(made[0]) == tuple(second) and cal.events == 2
    for receipt, y in ((forecast, 1), (made[0], 0)):
        cal.update(receipt, y)
    alone.update(first, 1)
    alone.update(second, 0)
    same(cal.row, alone.row)


@pytest.mark.parametrize("name", variants())
def test_peek_says_what_predict_will_say(name: str) -> None:
    cal = Calibrator(variants()[name], seed=4)
    cal.run(*(column[:60] for column in STREAMS["random"]()))
    receipt = cal.predict(0.4)
    before = cal.to_json()
    for score in (0.0, 0.3, 1, np.float32(0.5)):
        said = cal.peek(score)
        assert type(said) is float and said == float(Calibrator.from_json(before).predict(score))
        assert cal.to_json() == before
    twin = Calibrator.from_json(before)
    cal.update(receipt, 1)  # asking in between does no harm
    twin.update(receipt, 1)
    same(cal.row, twin.row)


def test_without_the_interpreters_lock_the_long_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.calibrator._ONE_AT_A_TIME", False)
    monkeypatch.setattr(Calibrator, "_is_plain", False, raising=False)
    cal = Calibrator(HOPS)
    assert cal._fast_predict is None
    cal.update(cal.predict(0.5), 1)
    assert cal.outcomes == 1


@pytest.mark.parametrize("method", ["ops", "auto", "hops", "swps"])
def test_outcomes_that_are_learnt_at_the_end(method: str) -> None:
    """`finish` is a loop that predicts everything and then learns what is left, in order of (due, event)."""
    scores, outcomes = (column[:80] for column in STREAMS["random"]())
    due = np.arange(80) + 1 + np.arange(80) % 30
    batch, loop = Calibrator(method), Calibrator(method)
    forecasts = batch.run(scores, outcomes, due=due, finish=True)
    waiting = [(int(min(d, 80)), i) for i, d in enumerate(due)]
    receipts: list[Forecast] = []
    for i in range(81):
        for _, j in sorted(pair for pair in waiting if pair[0] == i):
            loop.update(receipts[j], int(outcomes[j]))
        if i < 80:
            receipts.append(loop.predict(float(scores[i])))
    same(forecasts, np.array([float(receipt) for receipt in receipts]))
    same(batch.row, loop.row)
    assert batch.to_json() == loop.to_json() and batch.outcomes == batch.events == 80
