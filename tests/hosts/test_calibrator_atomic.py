"""Every call of a calibrator happens as a whole: for other threads, and when it is interrupted at any moment."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from time import process_time
from typing import Any

import numpy as np
import pytest
from interrupts import Interrupts, interrupted_everywhere

from calibeat import (
    AUTO,
    FTL,
    HOPS,
    OPS,
    TOPS,
    WHB,
    Beta,
    Calibrator,
    Fixed,
    Forecast,
    Method,
    Monitor,
    OutcomeConflict,
)
from calibeat.core import loops
from calibeat.hosts import ledger
from calibeat.monitor.monitors import Monitors

METHODS = {
    "ops": OPS,
    "tops": TOPS,
    "hops": HOPS,
    "auto": AUTO,
    "windowed": Method(Beta(), FTL(every=2, after=4, window=4)),
    "fixed": replace(WHB, learner=Fixed(after=9)),
    "histogram": replace(WHB, learner=FTL(every=2, after=4, window=4)),
}
SCORES, OUTCOMES = [0.2, 0.7, 0.4, 0.6, 0.9, 0.1, 0.5, 0.8], [0, 1, 1, 0, 1, 0, 0, 1]


# ---- interrupts --------------------------------------------------------------------------------------------------


def begun(method: Method, kind: str = "as it is") -> tuple[Calibrator, list[Forecast]]:
    """A calibrator on its way, with some receipts that wait: live ones, or such that have travelled."""
    calibrator = Calibrator(method, seed=3)
    calibrator.run(SCORES, OUTCOMES)
    receipts = [calibrator.predict(score) for score in SCORES[:3]]
    if kind == "restored":
        calibrator = Calibrator.from_json(calibrator.to_json())
    elif kind == "forked":
        calibrator._forked()
    elif kind == "travelled":
        receipts = [Forecast.from_bytes(receipt.to_bytes()) for receipt in receipts]
    return calibrator, receipts


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is remembered, so that the lines that let go are run too; and generations have no random number."""
    monkeypatch.setattr(ledger, "KEPT_EVENTS", 2)
    monkeypatch.setattr(ledger, "_FIRST_ROOM", 1)
    monkeypatch.setattr(ledger, "new_generation", lambda: "5eed5eed")
    monkeypatch.setattr("calibeat.core.refit.STALE_EVENTS", 1)


@pytest.mark.parametrize("name", ["ops", "tops", "hops", "auto"])
def test_a_single_event_is_one_step(name: str) -> None:
    """Python runs no line of calibeat and hears no signal, for a live receipt that comes early, late or last."""
    calibrator, receipts = begun(METHODS[name])
    with Interrupts(0) as interrupts:
        receipts.append(calibrator.predict(0.3))
        for i in (3, 0, 2, 1):
            calibrator.update(receipts[i], 1)
    assert not interrupts.fired and calibrator.outcomes == calibrator.events == len(SCORES) + 4


REFITS = [name for name in METHODS if METHODS[name].needs_history]
UPDATES = [(name, kind) for name in ("auto", "hops", *REFITS) for kind in ("travelled", "restored", "forked")]


@pytest.mark.parametrize("which", [2, 0], ids=["latest", "late"])
@pytest.mark.parametrize(("name", "kind"), [*UPDATES, *((name, "as it is") for name in REFITS)])
@pytest.mark.usefixtures("small")
def test_an_interrupted_update_has_happened_or_not(name: str, kind: str, which: int) -> None:
    done, receipts = begun(METHODS[name], kind)
    before = done.to_json()
    done.update(receipts[which], 1)
    after = done.to_json()
    assert before != after
    seen = set()
    for calibrator, receipts in interrupted_everywhere(
        lambda: begun(METHODS[name], kind), lambda thing: thing[0].update(thing[1][which], 1)
    ):
        state = calibrator.to_json()
        assert state in (before, after)
        seen.add(state)
        calibrator.update(receipts[which], 1)  # who was interrupted tries again
        assert calibrator.to_json() == after
        with pytest.raises(OutcomeConflict):
            calibrator.update(receipts[which], 0)
    assert seen == {before, after}


@pytest.mark.parametrize("kind", ["restored", "forked"])
@pytest.mark.parametrize("name", ["auto", "hops", *REFITS])
@pytest.mark.usefixtures("small")
def test_an_interrupted_forecast_was_made_or_not(name: str, kind: str) -> None:
    done, _ = begun(METHODS[name], kind)
    before, receipt = done.to_json(), done.predict(0.3)
    after = done.to_json()
    done.update(receipt, 1)
    seen = set()
    for calibrator, _ in interrupted_everywhere(
        lambda: begun(METHODS[name], kind), lambda thing: thing[0].predict(0.3)
    ):
        state = calibrator.to_json()
        assert state in (before, after)
        seen.add(state)
        if state == before:
            receipt = calibrator.predict(0.3)
            assert calibrator.to_json() == after
        calibrator.update(receipt, 1)
        assert calibrator.to_json() == done.to_json()
    assert seen == {before, after}


@pytest.mark.parametrize("kind", ["as it is", "restored", "forked"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["auto", "histogram"])  # without and with a past that is kept
@pytest.mark.usefixtures("small")
def test_an_interrupted_run_has_happened_or_not(name: str, late: bool, kind: str) -> None:
    due = np.arange(3) + 2 if late else None

    def work(thing: tuple[Calibrator, list[Forecast]]) -> None:
        thing[0].run(SCORES[:3], OUTCOMES[:3], due=due)

    done, receipts = begun(METHODS[name], kind)
    before = done.to_json()
    work((done, receipts))
    after, seen = done.to_json(), set()
    for calibrator, receipts in interrupted_everywhere(lambda: begun(METHODS[name], kind), work):
        state = calibrator.to_json()
        assert state in (before, after)
        if state not in seen:
            assert Calibrator.from_json(state).to_json() == state
        seen.add(state)
        if state == before:
            work((calibrator, receipts))
        assert calibrator.to_json() == after
    assert seen == {before, after}


CALLS: dict[str, Callable[[Calibrator], Any]] = {
    "run": lambda cal: cal.run(np.full(1000, 0.5), np.ones(1000)),
    "run_late": lambda cal: cal.run(np.full(1000, 0.5), np.ones(1000), due=np.arange(1000) + 3),
    "predict_many": lambda cal: cal.predict_many(np.full(1000, 0.5)),
}


@pytest.mark.parametrize("name", ["ops", "auto", "hops", "windowed"])
@pytest.mark.parametrize("what", CALLS)
def test_ctrl_c_is_heard_in_the_middle_of_a_long_batch(what: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole, _), (calibrator, _) = begun(METHODS[name]), begun(METHODS[name])
    CALLS[what](whole)  # in one piece
    monkeypatch.setattr(loops, "PIECE", 100)
    before, real, calls = calibrator.to_json(), getattr(loops, what), []

    def counted(*arguments: Any) -> Any:
        calls.append(what)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loops, what, counted)
        with pytest.raises(KeyboardInterrupt):
            CALLS[what](calibrator)
    assert len(calls) == 3 and calibrator.to_json() == before
    CALLS[what](calibrator)  # in ten
    assert calibrator.to_json() == whole.to_json()


def test_a_piece_is_short() -> None:
    """It shall take less than 50 milliseconds, some 30 where most is to be done; other programs may take theirs."""
    n = loops.PIECE
    times = []
    for _ in range(3):
        cal, start = Calibrator(), process_time()
        cal.run(np.full(n, 0.5), np.ones(n), due=np.arange(n) + 9)
        times.append(process_time() - start)
    assert min(times) < 0.1


# ---- with monitors -------------------------------------------------------------------------------------------------


class Custom(Exception):
    """What the handler of a signal may raise."""


def monitored() -> tuple[Calibrator, list[Forecast]]:
    """A calibrator whose monitors hold outcomes back, and give up on others."""
    calibrator = Calibrator(OPS, monitor={name: Monitor(arl=100, warm=0, patience=5) for name in ("ours", "raw")})
    calibrator.run(SCORES[:3], OUTCOMES[:3])
    receipts = [calibrator.predict(score) for score in SCORES[:5]]
    calibrator.update(receipts[1], 1)
    calibrator.update(receipts[3], 0)
    return calibrator, receipts


WORK = {
    "update": lambda thing: thing[0].update(thing[1][0], 1),  # the monitors read two outcomes
    "held": lambda thing: thing[0].update(thing[1][2], 1),
    "latest": lambda thing: thing[0].update(thing[1][4], 1),
    "predict": lambda thing: thing[0].predict(0.3),  # the monitors give up on the first receipt
    "run": lambda thing: thing[0].run(SCORES[:3], OUTCOMES[:3]),
    "late": lambda thing: thing[0].run(SCORES[:3], OUTCOMES[:3], due=[2, 3, 4]),
}


@pytest.mark.parametrize(
    ("what", "error"), [*((what, KeyboardInterrupt) for what in WORK), ("held", SystemExit), ("held", Custom)]
)
@pytest.mark.usefixtures("small")
def test_what_a_calibrator_learns_its_monitors_learn(what: str, error: type[BaseException]) -> None:
    work: Any = WORK[what]
    done, receipts = monitored()
    before = done.to_json()
    work((done, receipts))
    after = done.to_json()
    for i, receipt in enumerate(receipts):
        done.update(receipt, i != 3)
    final, seen = done.to_json(), set()
    for calibrator, receipts in interrupted_everywhere(monitored, work, error):
        state = calibrator.to_json()
        assert state in (before, after)
        if state not in seen:
            assert Calibrator.from_json(state).to_json() == state
        seen.add(state)
        if state == before:
            work((calibrator, receipts))
        assert calibrator.to_json() == after
        for i, receipt in enumerate(receipts):  # those that were learnt are repeats
            calibrator.update(receipt, i != 3)
        assert calibrator.to_json() == final
    assert seen == {before, after}


@pytest.mark.usefixtures("small")
def test_monitors_that_are_interrupted_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calibrator has learnt; what its monitors have to be told is broken off each time somebody looks."""
    done, receipts = monitored()
    done.update(receipts[0], 1)
    after = done.to_json()
    calibrator, receipts = monitored()

    def broken(*_: Any) -> None:
        raise Custom

    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "update", broken)
        with pytest.raises(Custom):
            calibrator.update(receipts[0], 1)
    for at in count():
        with Interrupts(at) as interrupts, suppress(KeyboardInterrupt):
            calibrator.to_json()
        if not interrupts.fired:
            break
    assert at > 100
    assert calibrator.to_json() == after
    calibrator.update(receipts[0], 1)
    assert calibrator.to_json() == after


# ---- threads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["as it is", "restored", "forked", "watched"])
@pytest.mark.parametrize("name", ["ops", "auto", "hops", "windowed"])
def test_threads_may_share_a_calibrator(name: str, kind: str) -> None:
    cal, snapshots = Calibrator(METHODS[name], monitor=Monitor() if kind == "watched" else None), list[str]()
    if kind == "restored":
        cal = Calibrator.from_json(cal.to_json())
    elif kind == "forked":
        cal._forked()
    workers, each = 4, 150
    start = threading.Barrier(workers + 1)
    events: list[int] = []

    def serve(worker: int) -> None:
        start.wait()
        waiting: list[Forecast] = []
        for i in range(each):
            forecast = cal.predict((i + worker) % 10 / 10)
            events.append(forecast.event)
            waiting.append(forecast)
            if i % 3 == 0:
                cal.update(waiting.pop(0), i % 2)
                cal.peek(0.3)
        for forecast in waiting:
            cal.update(Forecast.from_json(forecast.to_json()), 1)
            cal.update(forecast, 1)

    def watch() -> None:
        start.wait()
        for _ in range(20):
            snapshots.append(cal.to_json())
            cal.run(SCORES, OUTCOMES)
            assert np.isfinite(cal.row).all() and cal.outcomes <= cal.events

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(workers + 1) as pool:
            for done in [pool.submit(watch), *(pool.submit(serve, worker) for worker in range(workers))]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert cal.events == cal.outcomes == workers * each + 20 * len(SCORES)
    assert len(set(events)) == len(events)  # no two events have one number
    if kind == "watched":
        assert cal.monitor is not None and cal.monitor.outcomes == cal.outcomes
    for text in snapshots:  # each of them of one moment
        assert Calibrator.from_json(text).to_json() == text
