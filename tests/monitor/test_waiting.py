"""Late outcomes are read in the order of forecasts, whatever their delays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interrupts import interrupted_everywhere
from monitors import Vector, same, small, stream

from calibeat import Monitor, OutcomeConflict
from calibeat.monitor.bets import FORECASTS, WAITING, read
from calibeat.monitor.waiting import Queue


def test_no_delay_is_immediate() -> None:
    p, y, s = stream()
    now, due = small(), small()
    assert now.run(p, y, s) == due.run(p, y, s, due=np.arange(1, 401))
    same(now, due)


@given(st.integers(0, 10**6), st.integers(1, 400))
def test_any_delay_gives_the_row_of_reading_in_order(seed: int, longest: int) -> None:
    p, y, s = stream(300)
    due = np.arange(300) + np.random.default_rng(seed).integers(1, longest + 1, 300)
    late, in_order = small(), small()
    outcomes = np.where(due <= 300, y, np.nan)  # what has not come yet may hold anything
    late.run(p, outcomes, s, due=due)
    read = int(np.argmax(due > 300)) if (due > 300).any() else 300
    if read:
        in_order.run(p[:read], y[:read], s[:read])
    np.testing.assert_array_equal(
        np.delete(late.row, [FORECASTS, WAITING]), np.delete(in_order.row, [FORECASTS, WAITING])
    )
    for number in np.flatnonzero(due > 300)[::-1].tolist():
        late.update(number, p[number], y[number], s[number])
    whole = small()
    whole.run(p, y, s)
    same(late, whole)


def by_arrival(monitor: Monitor, p: Vector, y: Vector, s: Vector, due: Any) -> list[Any]:
    """What `run` means by `due`, one call at a time."""
    base = monitor.waiting.forecasts
    told = []
    for i in range(len(p) + 1):
        for j in np.flatnonzero(due == i).tolist():
            told += monitor.update(base + j, p[j], y[j], s[j])
        if i < len(p):
            monitor.announce()
    return told


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 90))
def test_patience_gives_up_alike_in_batch_and_one_by_one(seed: int, patience: int, longest: int) -> None:
    p, y, s = stream(260)
    rng = np.random.default_rng(seed)
    due = np.arange(260) + rng.integers(1, longest + 1, 260)
    due[rng.random(260) < 0.1] = 10**6  # some never come
    due[130:] -= 130  # two batches: positions in the second
    batch, single = small(patience=patience), small(patience=patience)
    for half in (slice(0, 130), slice(130, 260)):
        told = batch.run(p[half], y[half], s[half], due=due[half])
        pending = by_arrival(single, p[half], y[half], s[half], due[half])
        assert told == pending
        same(batch, single)
        assert batch.waiting == single.waiting
        assert batch.waiting.given_up > 0 or longest <= patience
        copied = Monitor.from_json(batch.to_json())
        assert copied.waiting == batch.waiting
        same(batch, copied)
    waiting = batch.waiting
    assert waiting.forecasts == waiting.outcomes + waiting.waiting + waiting.given_up
    assert waiting.held <= patience


def test_waiting_is_counted() -> None:
    monitor = Monitor(patience=5)
    assert monitor.waiting[:3] == (0, 0, 0)
    assert math.isnan(monitor.waiting.mean_age)
    numbers = [monitor.announce() for _ in range(5)]
    assert numbers == [0, 1, 2, 3, 4]
    monitor.update(3, 0.5, 1)
    monitor.update(1, 0.5, 1)
    waiting = monitor.waiting
    assert (waiting.forecasts, waiting.outcomes, waiting.waiting, waiting.held) == (5, 2, 3, 2)
    assert waiting.mean_age == pytest.approx(4 - (0 + 2 + 4) / 3)
    assert waiting.oldest == 4
    assert monitor.outcomes == 0
    monitor.announce()  # five forecasts after number 0: it is given up, and number 1 is read
    assert monitor.outcomes == 1
    assert (monitor.waiting.given_up, monitor.waiting.waiting, monitor.waiting.oldest) == (1, 3, 3)
    assert monitor.waiting.mean_age == pytest.approx(5 - (2 + 4 + 5) / 3)
    assert monitor.update(0, 0.5, 1) == []  # too late: ignored and counted
    assert (monitor.waiting.too_late, monitor.outcomes) == (1, 1)
    for _ in range(10):
        monitor.announce()
    monitor.update(2, 0.5, 1)  # so old that nobody remembers whether it was given up or read
    assert monitor.waiting.too_late == 2


def test_an_alarm_that_a_given_up_outcome_lets_through_is_told_by_the_next_call() -> None:
    monitor = Monitor(arl=1, warm=0, patience=30)
    first = monitor.announce()
    for _ in range(29):
        assert monitor.update(monitor.announce(), 0.9, 0) == []
    monitor.announce()
    assert monitor.counts[0] > 0
    told = monitor.update(monitor.announce(), 0.9, 0)
    assert told == monitor.alarms
    assert first == 0


def test_order_of_arrival_does_not_matter_where_outcomes_decide_when_they_come() -> None:
    """Ones at once, zeros after 300: read by arrival it would be a fault of the forecasts."""
    rng = np.random.default_rng(8)
    n = 3_000
    p = rng.random(n)
    y = (rng.random(n) < p).astype(float)
    due = np.arange(n) + np.where(y == 1, 1, 300)
    monitor, arrival = Monitor(arl=10_000, warm=0), Monitor(arl=10_000, warm=0)
    assert monitor.run(p, np.where(due <= n, y, np.nan), due=due) == []
    order = np.argsort(due, kind="stable")
    assert len(arrival.run(p[order], y[order])) > 1


@pytest.mark.parametrize("reads", [False, True])
def test_a_call_that_is_broken_off_has_not_happened(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before the bets, or behind them."""
    p, y, s = stream(80)
    monitor = small(patience=9)
    monitor.run(p[:20], y[:20], s[:20])
    numbers = [monitor.announce() for _ in range(8)]
    for number in numbers[1:]:
        monitor.update(number, 0.9, 0, 0.5)
    before = monitor.to_json()

    def broken(*arguments: Any) -> None:
        if reads:
            read(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("calibeat.monitor.monitors.read", broken)
        for work in (lambda: monitor.update(numbers[0], 0.9, 0, 0.5), lambda: monitor.run(p, y, s, due=range(1, 81))):
            with pytest.raises(KeyboardInterrupt):
                work()
            assert monitor.to_json() == before
        monitor.announce()
        state = monitor.to_json()
        with pytest.raises(KeyboardInterrupt):
            monitor.announce()  # gives up number 0, and would read the others
        assert monitor.to_json() == state
    monitor.update(numbers[0], 0.9, 0, 0.5)
    assert monitor.outcomes == 28


WORK: dict[str, Any] = {
    "hold": lambda monitor: monitor.update(2, 0.9, 0),
    "give up": lambda monitor: monitor.announce(),
    "read": lambda monitor: monitor.update(3, 0.9, 0),
    "batch": lambda monitor: monitor.run([0.5], [1]),
    "look": lambda _: None,
}


@pytest.mark.parametrize("then", WORK)
@pytest.mark.parametrize("first", ["hold", "give up"])
def test_what_is_left_of_an_event_is_done_by_the_next_call(
    first: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C when the event has happened, and the queue does not know yet what it holds."""
    monitor, twin = small(patience=4), small(patience=4)
    for each in (monitor, twin):
        for _ in range(4):
            each.announce()
        each.update(1, 0.8, 1)

    def broken(_: Queue) -> None:
        raise KeyboardInterrupt

    WORK[first](twin)
    with monkeypatch.context() as patched:
        patched.setattr(Queue, "finish", broken)
        with pytest.raises(KeyboardInterrupt):
            WORK[first](monitor)
    for each in (monitor, twin):
        if first == then == "hold":
            with pytest.raises(OutcomeConflict):
                WORK[then](each)
        else:
            WORK[then](each)
    assert monitor.to_json() == twin.to_json() and monitor.waiting == twin.waiting


@pytest.mark.parametrize(
    "work",
    [
        lambda monitor: monitor.announce(),  # gives up the first, and reads the others
        lambda monitor: monitor.update(0, 0.9, 0, 0.5),
        lambda monitor: monitor.run([0.9] * 9, [0] * 9),
        lambda monitor: monitor.run([0.9] * 9, [0] * 9, due=range(3, 12)),
    ],
)
def test_interrupted_at_every_line_a_call_has_happened_or_has_not(work: Any) -> None:
    def made() -> Monitor:
        monitor = Monitor(arl=1, warm=0, patience=6)
        for _ in range(6):
            monitor.announce()
        for number in range(1, 6):
            monitor.update(number, 0.9, 0)
        return monitor

    done = made()
    before = done.to_json()
    work(done)
    after, seen = done.to_json(), set()
    for monitor in interrupted_everywhere(made, work):
        state = monitor.to_json()
        seen.add(state)
        if state == before:
            work(monitor)
        assert monitor.to_json() == after
    assert seen == {before, after} and done.counts[0] > 0
