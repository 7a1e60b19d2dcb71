"""The memory of settled events against a dictionary that forgets nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibeat import InvalidInput
from calibeat.hosts import ledger
from calibeat.hosts.ledger import CLOSED, OPEN, ZERO, SettledEvents


@pytest.mark.parametrize(("keep", "most"), [(4096, 4_194_304), (3, 4_194_304), (3, 40)])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_it_knows_what_a_dictionary_knows(
    keep: int, most: int, seed: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_MARKS", most)
    rng = np.random.default_rng(seed)
    settled, known, events = SettledEvents(keep=keep, classes=classes), dict[int, int](), 0
    for _ in range(300):
        if rng.random() < 0.1:  # a batch, of which some outcomes never come
            outcomes = np.where(rng.random(20) < 0.2, np.nan, rng.integers(0, classes, 20))
            known |= {events + i: int(y) for i, y in enumerate(outcomes) if not np.isnan(y)}
            settled = settled.after(events, outcomes)
            events += 20
        events += int(rng.integers(0, 3))
        event = max(0, events - 1 - int(rng.exponential(10)))
        if event < events and event not in known and settled.mark(event) == OPEN:
            outcome = int(rng.integers(0, classes))
            if event - settled.span[0] >= len(settled.span[1]):
                settled = settled.with_room(event)
            settled.settle(event, outcome)
            known[event] = outcome
        if rng.random() < 0.1:
            settled = SettledEvents.load(settled.dump(), events, len(known), keep=keep, classes=classes)
        oldest = next(event for event in range(settled.given_up, events + 1) if event not in known)
        top = max(known, default=-1) + 1
        for event in range(events):
            mark = settled.mark(event)
            if mark == CLOSED:
                assert event < max(oldest - keep, top - most)  # what the docs promise
                assert event in known or event < settled.given_up
            elif event in known:
                assert settled.column(event) == known[event]
            else:
                assert mark == OPEN
        assert settled.is_open_before(events) == any(settled.mark(event) == OPEN for event in range(events))
        assert len(settled.span[1]) <= 2 * min(most, top - max(oldest - keep, 0)) + 2 * keep + 64


def test_it_does_not_matter_how_the_marks_came() -> None:
    outcomes = np.array([0.0, 1.0, np.nan, 1.0, np.nan, 0.0] * 50)
    whole, single = SettledEvents(keep=4).after(0, outcomes), SettledEvents(keep=4)
    for event, y in enumerate(outcomes):
        if not np.isnan(y):
            single.settle(event, int(y))
    assert whole.dump() == single.dump() == SettledEvents.load(single.dump(), 300, 200, keep=4).dump()
    room = single.with_room(5000)
    assert len(room.span[1]) > 5000 - room.span[0] and room.mark(5000) == single.mark(5000) == OPEN
    assert room.dump() == single.dump()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("before", ["", "2", "23232323", "2320", "20323233", "0"])
@pytest.mark.parametrize("unknown", [0, 50])  # forecasts after those without a mark
def test_of_a_long_batch_only_the_end_is_looked_at(length: int, before: str, unknown: int) -> None:
    known = [np.nan if mark == "0" else float(mark) - ZERO for mark in before]
    settled = SettledEvents(2, keep=4).after(2, np.array(known))
    settled.given_up = 1
    event, outcomes = 2 + len(before) + unknown, np.resize([1.0, 0.0, 1.0], length)
    single = SettledEvents(2, keep=4).after(2, np.array(known))
    single.given_up = 1
    for i, y in enumerate(outcomes.tolist()):
        single.settle(event + i, int(y))
    assert settled.after(event, outcomes).dump() == single.dump()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"first": 0},
        {"first": 0, "given_up": 0, "marks": 7},
        {"first": 0, "given_up": 0, "marks": "?"},
        {"first": -1, "given_up": 0, "marks": ""},
        {"first": 11, "given_up": 0, "marks": ""},
        {"first": 0, "given_up": 1, "marks": ""},
        {"first": 8, "given_up": 0, "marks": "qqo="},
        {"first": 0, "given_up": 0, "marks": "qqo="},
        {"first": 0.5, "given_up": 0, "marks": ""},
    ],
)
def test_what_cannot_be(data: Any) -> None:
    with pytest.raises(InvalidInput, match="settled"):
        SettledEvents.load(data, events=10, outcomes=3)


@pytest.mark.parametrize("others", [7, [[0]], [[0, 1]], [[0, 300]], [[5, 1000]], []])
def test_labels_that_cannot_be(others: Any) -> None:
    """One byte has room for the first 253 labels. The others stand beside it, for just the events that have one."""
    settled = SettledEvents(classes=1000)
    settled.settle(1, 400)
    data = settled.dump()
    assert data["others"] == [[1, 400]] and SettledEvents.load(data, 2, 1, classes=1000).column(1) == 400
    with pytest.raises(InvalidInput, match="settled"):
        SettledEvents.load({**data, "others": others}, 2, 1, classes=1000)
    with pytest.raises(InvalidInput, match="settled labels must be those of 3 classes"):
        SettledEvents.load({"first": 0, "given_up": 0, "marks": "Bw=="}, 2, 1, classes=3)
