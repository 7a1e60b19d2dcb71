"""Monitors as bytes: out of one matrix and into another, which continues with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat import InvalidInput
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import Monitors, first_unread, readings

SETTINGS = Settings(arl=60, warm=10, quiet=30, patience=1000)
ONE = np.zeros(1, dtype=np.int32)


def watched(announced: int = 0) -> Monitors:
    monitors = Monitors(SETTINGS)
    monitors.resize(1)
    monitors.catch_up(0, announced)
    return monitors


def test_bytes_out_and_in_continue_the_same() -> None:
    rng = np.random.default_rng(1)
    p, y = rng.random(300), rng.random(300) < 0.2
    events = {at: (float(p[at]), float(y[at]), float(p[at])) for at in range(200)}
    one, two = watched(300), watched()
    held = {at: None if at % 7 == 3 else events[at] for at in range(1, 200)}  # the first one comes last
    for at, event in held.items():
        one.update(0, at, event)
    (state,) = one.states(ONE)
    assert first_unread(state) == 0
    two.set_states(ONE, [state], [held])
    assert two.states(ONE) == [state]
    for monitors in (one, two):
        monitors.update(0, 0, events[0])
        monitors.update(0, 3, events[3])  # it was given up
    assert one.states(ONE) == two.states(ONE) != [state]
    assert first_unread(two.states(ONE)[0]) == 200
    (ours,), (theirs,) = one.alarms(ONE), two.alarms(ONE)
    assert ours == theirs and ours.alarms >= ours.pages > 0 and ours.last is not None
    found = readings(SETTINGS, one.states(ONE)[0])
    assert (found["alarms"], found["pages"], found["what"]) == (ours.alarms, ours.pages, ours.last.what)
    assert watched().alarms(ONE) == [(0, 0, None)]


def test_what_is_refused() -> None:
    monitors = watched(1)
    with pytest.raises(InvalidInput, match="bytes each"):
        monitors.set_states(ONE, [b""], [{}])
    bad = bytearray(monitors.states(ONE)[0])
    bad[:8] = np.float64(-1.0).tobytes()
    with pytest.raises(InvalidInput, match="monitor row must have"):
        monitors.set_states(ONE, [bytes(bad)], [{}])
