"""Monitors of a bank as bytes: out of one bank and into another, which continues with the same bits."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from calibeat import Bank, InvalidInput, Monitor, UnknownKey
from calibeat.hosts.bank import alarms_of, give_up, monitor_states, set_monitor_states
from calibeat.monitor.monitors import first_unread, readings


def watched() -> Bank:
    return Bank("ops", monitor=Monitor(arl=60, warm=10, quiet=30, patience=1000))


def test_bytes_out_and_in_continue_the_same() -> None:
    rng = np.random.default_rng(1)
    one, scores = watched(), rng.random(300)
    made = one.fold(["a"] * 300, scores, np.full(300, nan))
    receipts, outcomes = made.receipts.tolist(), (rng.random(300) < 0.2).astype(float)
    order = [*range(1, 200), 0]  # the first one comes last: the others are held
    one.fold(["a"] * 199, np.full(199, nan), outcomes[order[:199]], [receipts[at] for at in order[:199]])
    (state,) = monitor_states(one, ["a"])
    assert first_unread(state) == 0
    two = watched()
    two.set_rows(["a"], one.rows(["a"]))
    held = {at: (float(made.forecasts[at]), float(outcomes[at]), float(scores[at])) for at in order[:199]}
    set_monitor_states(two, ["a"], [state], [held])
    assert monitor_states(two, ["a"]) == [state]
    for bank in (one, two):
        bank.fold(["a"], [nan], outcomes[:1], receipts[:1])
    assert monitor_states(one, ["a"]) == monitor_states(two, ["a"]) != [state]
    assert first_unread(monitor_states(two, ["a"])[0]) == 200
    ours, theirs = alarms_of(one, ["a"]), alarms_of(two, ["a"])
    assert ours == theirs and ours[0].alarms >= ours[0].pages > 0 and ours[0].last is not None
    assert one.watched is not None
    found = readings(one.watched, monitor_states(one, ["a"])[0])
    assert (found["alarms"], found["pages"], found["what"]) == (ours[0].alarms, ours[0].pages, ours[0].last.what)


def test_what_never_comes_holds_up_nothing() -> None:
    bank = watched()
    made = bank.fold(["a", "a"], [0.5, 0.5], [nan, nan])
    bank.fold(["a"], [nan], [1.0], made.receipts[1:])
    assert first_unread(monitor_states(bank, ["a"])[0]) == 0
    give_up(bank, [("a", 0)])
    assert first_unread(monitor_states(bank, ["a"])[0]) == 2
    give_up(Bank("ops"), [("a", 0)])  # without monitors there is nothing to do


def test_what_is_refused() -> None:
    bank = watched()
    bank.run(["a"], [0.5], [1])
    with pytest.raises(UnknownKey):
        monitor_states(bank, ["b"])
    with pytest.raises(InvalidInput, match="bytes each"):
        set_monitor_states(bank, ["a"], [b""], [{}])
    with pytest.raises(InvalidInput, match="a bank must have monitors"):
        monitor_states(Bank("ops"), ["a"])
    bad = bytearray(monitor_states(bank, ["a"])[0])
    bad[:8] = np.float64(-1.0).tobytes()
    with pytest.raises(InvalidInput, match="monitor row must have"):
        set_monitor_states(bank, ["a"], [bytes(bad)], [{}])
