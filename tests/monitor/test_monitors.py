"""Many monitors in one matrix: the same bits as one each, slots that come and go, lists with their bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibeat import InvalidInput, Monitor
from calibeat.monitor.bets import ALARM_AT, ALARMS, FORECASTS, PHI, N, Settings
from calibeat.monitor.monitors import Monitors

SETTINGS = Settings(arl=100, warm=10, quiet=30, patience=8)
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def alone(**changes: float) -> Monitor:
    return Monitor(arl=100, warm=10, quiet=30, **{"patience": 8, **changes})


def batch(n: int, keys: int, seed: int) -> tuple[Vector, ...]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return rng.integers(0, keys, n).astype(np.int32), p, (rng.random(n) < p**2).astype(float), np.clip(p + 0.1, 0, 1)


def feed(monitors: Monitors, slots: Vector, p: Vector, y: Vector, s: Vector, due: Vector | None = None) -> None:
    """As a bank does it."""
    monitors.after(lambda _: None, slots, lambda: (p, y, s), due)((0, monitors.count))


def same(monitors: Monitors, slot: int, monitor: Monitor) -> None:
    np.testing.assert_array_equal(monitors.matrix[slot], monitor.row)


def test_the_same_bits_as_one_each() -> None:
    slots, p, y, s = batch(3_000, 7, 1)
    monitors = Monitors(SETTINGS)
    monitors.resize(7)
    for part in (slice(0, 1), slice(1, 2_000), slice(2_000, 3_000)):
        feed(monitors, slots[part], p[part], y[part], s[part])
    assert not monitors.queues
    columns = monitors.columns(np.arange(7, dtype=np.int32))
    for slot in range(7):
        monitor, own = alone(), slots == slot
        monitor.run(p[own], y[own], s[own])
        same(monitors, slot, monitor)
        last = monitor.alarms[-1]
        assert (columns["alarms"][slot], columns["pages"][slot]) == monitor.counts
        assert columns["alarm_at"][slot] == last.at and columns["since"][slot] == last.since
        assert columns["what"][slot] == last.what
        assert columns["level"][slot] == monitor.level and columns["log_e"][slot] == monitor.evidence
        assert (columns["gain_low"][slot], columns["gain_high"][slot]) == monitor.gain[1:]


def test_columns_of_a_slot_that_has_seen_nothing() -> None:
    monitors = Monitors(SETTINGS)
    monitors.resize(1)
    columns = monitors.columns(np.array([0], dtype=np.int32))
    assert columns["what"].tolist() == [""] and math.isnan(columns["since"][0])
    assert columns["gain_low"].tolist() == [-math.inf] and columns["level"].tolist() == [0.0]


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(0, 2), st.sampled_from([5, 40, 10_000]))
def test_late_outcomes_are_those_of_one_each(seed: int, longest: int, single: int, patience: int) -> None:
    """Batches with outcomes that are late or never come, and between them events one by one whose outcomes wait."""
    keys, n = 4, 160
    slots, p, y, s = batch(n, keys, seed)
    rng = np.random.default_rng(seed)
    y[rng.random(n) < 0.1] = np.nan  # some never come
    monitors = Monitors(replace(SETTINGS, patience=patience))
    monitors.resize(keys)
    each = [alone(patience=patience)._serve() for _ in range(keys)]
    waiting = []
    for part in (np.arange(80), np.arange(80, 160)):
        m = len(part)
        due = np.where(rng.random(m) < 0.5, np.arange(1, m + 1), np.arange(m) + rng.integers(1, longest + 1, m))
        due = np.minimum(due, m)  # at the end of a batch everything has come that ever will
        feed(monitors, slots[part], p[part], y[part], s[part], due)
        for slot in range(keys):
            own = np.flatnonzero(slots[part] == slot)
            # The outcome arrives before the key's own event that is the first at or after the due position.
            mine = np.where(np.isnan(y[part][own]), 10**6, np.searchsorted(own, due[own]))
            if len(own):
                each[slot]._rows.run(0, p[part][own], y[part][own], s[part][own], mine, closed=True)
        for slot in rng.integers(0, keys, single).tolist():
            waiting.append((slot, monitors.announce(slot)))
            assert each[slot]._rows.announce(0) == waiting[-1][1]
    for slot, number in waiting[::-1]:
        if rng.random() < 0.7:
            monitors.update(slot, number, (0.4, 1.0, 0.5))
            each[slot]._rows.update(0, number, (0.4, 1.0, 0.5))
    for slot in range(keys):
        same(monitors, slot, each[slot])
        if slot in monitors.queues:
            assert monitors.queues[slot].count(monitors.matrix[slot])[:7] == each[slot].waiting[:7]
    saved = monitors.matrix[:keys].reshape(-1), monitors.queues_as_bytes()
    twin = Monitors.restored(monitors.settings, *saved, keys)
    monitors.settings.check_rows(twin.matrix)
    assert {slot: queue.to_dict() for slot, queue in twin.queues.items()} == {
        slot: queue.to_dict() for slot, queue in monitors.queues.items()
    }


def test_rows_from_elsewhere_begin_anew() -> None:
    slots, p, y, s = batch(60, 3, 1)
    monitors = Monitors(SETTINGS)
    monitors.resize(3)
    feed(monitors, slots, p, y, s)
    before = monitors.matrix[:3].copy()
    monitors.announce(2)
    monitors.restart_changed(np.array([0, 1, 2], dtype=np.int32), np.array([before[0, FORECASTS], 7.0, 9.0]))
    np.testing.assert_array_equal(monitors.matrix[0], before[0])
    assert monitors.matrix[1, FORECASTS] == 7 and monitors.matrix[1, N] == 0 and not monitors.queues
    monitors.catch_up(1, 9)
    assert monitors.queues[1].announced == 9 and monitors.queues[1].given_up == 7
    monitors.update(1, 7, None)  # never comes
    monitors.update(1, 8, (0.5, 1.0, 0.5))
    assert monitors.matrix[1, N] == 1 and not monitors.queues


def test_one_by_one_and_a_second_outcome_changes_nothing() -> None:
    monitors = Monitors(SETTINGS)
    monitors.resize(2)
    first, second = monitors.announce(1), monitors.announce(1)
    monitors.update(1, second, (0.4, 1.0, 0.5))
    monitors.update(1, second, (0.4, 0.0, 0.5))
    assert monitors.matrix[1, N] == 0
    monitors.update(1, first, (0.3, 0.0, 0.5))
    assert monitors.matrix[1, N] == 2 and not monitors.queues
    before = monitors.matrix[1].copy()
    for number in (first, second, 2):
        monitors.update(1, number, (0.4, 1.0, 0.5))
    np.testing.assert_array_equal(monitors.matrix[1], before)
    assert not monitors.queues


def test_slots_come_and_go() -> None:
    slots, p, y, s = batch(500, 5, 3)
    monitors = Monitors(SETTINGS)
    monitors.resize(5)
    feed(monitors, slots, p, y, s)
    for slot in (1, 4):
        monitors.announce(slot)
    rows = monitors.matrix[:5].copy()
    chosen = monitors.selected(np.array([False, True, True, False, True]))
    np.testing.assert_array_equal(chosen.matrix, rows[[1, 2, 4]])
    assert sorted(chosen.queues) == [0, 2]
    both = Monitors(SETTINGS)
    both.resize(1)
    both.take(chosen)
    np.testing.assert_array_equal(both.matrix[1:4], rows[[1, 2, 4]])
    assert sorted(both.queues) == [1, 3]
    both.announce(1)
    assert chosen.queues[0].announced == both.queues[1].announced - 1  # copies
    monitors.remove(0)  # the last takes its place
    np.testing.assert_array_equal(monitors.matrix[: monitors.count], rows[[4, 1, 2, 3]])
    assert sorted(monitors.queues) == [0, 1]
    monitors.remove(3)
    monitors.remove(1)
    assert sorted(monitors.queues) == [0] and monitors.count == 2
    assert monitors.nbytes == 2 * 144 * 8


def test_saved_and_restored() -> None:
    slots, p, y, s = batch(500, 5, 3)
    monitors = Monitors(SETTINGS)
    monitors.resize(5)
    feed(monitors, slots, p, y, s)
    monitors.announce(3)
    rows, queues = monitors.matrix[:5].reshape(-1), monitors.queues_as_bytes()
    twin = Monitors.restored(SETTINGS, rows, queues, 5)
    np.testing.assert_array_equal(twin.matrix, monitors.matrix[:5])
    assert twin.queues[3].to_dict() == monitors.queues[3].to_dict()
    with pytest.raises(InvalidInput, match="must have 710 numbers, got 709"):
        Monitors.restored(SETTINGS, rows[:-1], queues, 5)
    rows[3 * 142 + N] += 1
    with pytest.raises(InvalidInput, match=r"queue must fit .* at row 3"):
        Monitors.restored(SETTINGS, rows, queues, 5)
    rows[2 * 142 + PHI] = 0.0
    with pytest.raises(InvalidInput, match=r"phi of at least 1.* at row 2"):
        SETTINGS.check_rows(rows.reshape(5, 142))
    with pytest.raises(InvalidInput, match="row must have 142 numbers, got 3"):
        SETTINGS.check_rows(np.zeros((1, 3)))


def test_the_list_of_broken_streams() -> None:
    monitors = Monitors(Settings(arl=1e5, warm=0, quiet=200))
    assert len(monitors.broken().keys) == 0
    assert len(monitors.miscalibrated(0.05)) == 0
    keys, n = 40, 500
    rng = np.random.default_rng(9)
    monitors.resize(keys)
    slots = np.tile(np.arange(keys, dtype=np.int32), n)
    p = rng.random(keys * n)
    truth = np.where(slots % 10 == 3, p**2.5, p)  # four keys are broken
    y = (rng.random(keys * n) < truth).astype(float)
    feed(monitors, slots, p, y, p)
    found = monitors.broken()
    assert sorted(found.keys.tolist()) == [3, 13, 23, 33]
    assert (np.diff(found.levels) <= 0).all() and found.levels[-1] >= 1 / 4
    assert found.bound == pytest.approx(keys * n / 1e5)
    assert sorted(monitors.miscalibrated(0.05).tolist()) == [3, 13, 23, 33]
    # An alarm starts the detector again, but its key stays on the list for `quiet` outcomes.
    recent = monitors.matrix[:keys, ALARMS] > 0
    assert recent[3]
    monitors.matrix[:keys, ALARM_AT] = np.where(recent, 1.0, 0.0)
    assert len(monitors.broken().keys) < 4


def test_false_pages_of_a_whole_bank_stay_below_the_promise() -> None:
    """2,000 keys x 100 outcomes, nothing is wrong: arl counts the outcomes of all, so 200,000 / 20,000 = 10 alarms."""
    rng = np.random.default_rng(12)
    monitors = Monitors(Settings(arl=20_000, warm=0))
    keys = 2_000
    monitors.resize(keys)
    for _ in range(10):
        slots = rng.integers(0, keys, 20_000).astype(np.int32)
        p = rng.random(20_000)
        feed(monitors, slots, p, (rng.random(20_000) < p).astype(float), p)
    assert monitors.matrix[:keys, ALARMS].sum() <= 10


def test_a_call_that_is_broken_off_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monitors = Monitors(replace(SETTINGS, patience=4))
    monitors.resize(1)
    numbers = [monitors.announce(0) for _ in range(4)]
    for number in numbers[1:]:
        monitors.update(0, number, (0.4, 1.0, 0.5))
    before, queue = monitors.matrix.copy(), monitors.queues[0].to_dict()

    def broken(*_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("calibeat.monitor.monitors.read", broken)
        for work in (lambda: monitors.update(0, numbers[0], (0.4, 1.0, 0.5)), lambda: monitors.announce(0)):
            with pytest.raises(KeyboardInterrupt):
                work()
            np.testing.assert_array_equal(monitors.matrix, before)
            assert monitors.queues[0].to_dict() == queue
    monitors.announce(0)  # gives up the first, and reads the others
    assert monitors.matrix[0, N] == 3 and monitors.queues[0].given_up == 1


def test_slots_behind_the_first_are_forgotten() -> None:
    monitors = Monitors(SETTINGS)
    monitors.resize(3)
    monitors.announce(2)
    monitors.resize(2)
    assert not monitors.queues
    monitors.resize(3)
    monitors.announce(2)
    monitors.truncate(2)
    assert not monitors.queues and monitors.count == 2


def test_what_never_comes_is_remembered_behind_what_waits() -> None:
    monitor = alone(patience=100)._serve()
    monitor._rows.announce(0)
    nothing = np.full(3, np.nan)
    for _ in range(2):
        monitor._rows.run(0, np.full(3, 0.5), np.array([1.0, np.nan, 0.0]), nothing, np.array([1, 9, 3]), closed=True)
    assert monitor.waiting[:3] == (7, 4, 1) and monitor.waiting.given_up == 2
    monitor._rows.update(0, 0, (0.5, 1.0, np.nan))
    assert monitor.outcomes == 5 and monitor.waiting.waiting == 0 and monitor.waiting.given_up == 2
