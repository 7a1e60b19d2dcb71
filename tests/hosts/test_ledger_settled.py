"""The memory of settled events against a dictionary that forgets nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibeat import InvalidInput
from calibeat.hosts import ledger
from calibeat.hosts.ledger import CLOSED, ONE, OPEN, ZERO, SettledEvents


@pytest.mark.parametrize(("keep", "most"), [(4096, 4_194_304), (3, 4_194_304), (3, 40)])
@pytest.mark.parametrize("seed", range(5))
def test_it_knows_what_a_dictionary_knows(keep: int, most: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_MARKS", most)
    rng = np.random.default_rng(seed)
    settled, known, events = SettledEvents(keep=keep), dict[int, int](), 0
    for _ in range(300):
        if rng.random() < 0.1:  # a batch, of which some outcomes never come
            marks = rng.choice([OPEN, ZERO, ONE], 20, p=[0.2, 0.4, 0.4]).astype(np.uint8)
            known |= {events + i: int(mark) for i, mark in enumerate(marks) if mark}
            settled = settled.after(events, marks)
            events += 20
        events += int(rng.integers(0, 3))
        event = max(0, events - 1 - int(rng.exponential(10)))
        if event < events and event not in known and settled.mark(event) == OPEN:
            outcome = int(rng.integers(0, 2))
            settled.settle(event, outcome)
            known[event] = ZERO + outcome
        if rng.random() < 0.1:
            settled = SettledEvents.load(settled.dump(), events, len(known), keep=keep)
        oldest = next(event for event in range(settled.given_up, events + 1) if event not in known)
        top = max(known, default=-1) + 1
        for event in range(events):
            mark = settled.mark(event)
            if event >= max(oldest - keep, top - most):  # what the docs promise
                assert mark == known.get(event, OPEN)
            elif mark == CLOSED:
                assert event in known or event < settled.given_up
            else:
                assert mark == known.get(event, OPEN)
        assert settled.is_open_before(events) == any(settled.mark(event) == OPEN for event in range(events))
        assert len(settled.span[1]) <= 2 * min(most, top - max(oldest - keep, 0)) + 2 * keep + 64


def test_it_does_not_matter_how_the_marks_came() -> None:
    marks = np.array([ZERO, ONE, OPEN, ONE, OPEN, ZERO] * 50, dtype=np.uint8)
    whole, single = SettledEvents(keep=4).after(0, marks), SettledEvents(keep=4)
    for event, mark in enumerate(marks):
        if mark:
            single.settle(event, int(mark) - ZERO)
    assert whole.dump() == single.dump() == SettledEvents.load(single.dump(), 300, 200, keep=4).dump()
    assert whole.overtaken() and not SettledEvents().overtaken()
    assert single.with_outcome(5000, 1).mark(5000) == ONE and single.mark(5000) == OPEN
    single.reopen(299)
    single.reopen(10**6)
    assert single.mark(299) == OPEN and single.dump() != whole.dump()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("before", ["", "2", "23232323", "2320", "20323233", "0"])
@pytest.mark.parametrize("unknown", [0, 50])  # forecasts after those without a mark
def test_of_a_long_batch_only_the_end_is_looked_at(length: int, before: str, unknown: int) -> None:
    settled = SettledEvents(2, keep=4).after(2, np.array([int(mark) for mark in before], dtype=np.uint8))
    settled.given_up = 1
    event, outcomes = 2 + len(before) + unknown, np.resize([1.0, 0.0, 1.0], length)
    marks = (outcomes + ZERO).astype(np.uint8)
    assert settled.after_all(event, outcomes).dump() == settled.after(event, marks).dump()


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
