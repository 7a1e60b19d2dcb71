"""A stream whose outcomes do not come, or come very late: no call takes longer for it, and no memory grows."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from calibeat import Calibrator, UnknownForecast
from calibeat._util.sealed import checksum

MANY = 5_000_000  # forecasts: more than those that a stream remembers one by one


def peak_of(call: Callable[[], object]) -> int:
    """The memory that a call takes, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_forecasts_without_an_outcome_cost_nothing() -> None:
    cal = Calibrator("ops")
    old = cal.predict(0.4)
    last, outcome = [], []
    scores, outcomes, never = np.full(MANY, 0.3), np.zeros(MANY), np.full(MANY, MANY)
    for _ in range(3):
        cal.run(scores, outcomes, due=never)
        assert peak_of(lambda: cal.run([0.3], [0], due=[1])) < 100_000
        last.append(peak_of(lambda: cal.predict(0.3)))
        outcome.append(peak_of(lambda: cal.update(cal.predict(0.3), 1)))
    assert max(last) < 10_000
    assert outcome[2] < 1.2 * outcome[1] and outcome[1] < 1.2 * outcome[0]
    assert cal.outcomes == 3
    with pytest.raises(UnknownForecast, match="young enough"):
        cal.update(old, 1)
    twin = Calibrator.from_json(cal.to_json())
    for host in (cal, twin):
        with pytest.raises(UnknownForecast, match="young enough"):
            host.update(old, 1)


@pytest.mark.parametrize("verb", ["single", "run", "late"])
def test_a_snapshot_of_many_events(verb: str) -> None:
    """A number of events, however large, takes no memory."""
    cal = Calibrator("ops")
    cal.predict(0.3)
    state = json.loads(cal.to_json())
    state["events"] = 2**53 - 10
    del state["checksum"]
    cal = Calibrator.from_json(json.dumps({**state, "checksum": checksum(state)}))
    match verb:
        case "single":
            assert cal.update(cal.predict(0.3), 1) == "learnt"
        case "run":
            cal.run([0.3, 0.4], [0, 1])
        case "late":
            cal.run([0.3, 0.4], [0, 1], due=[2, 2])
            cal.run([0.3, 0.4], [0, 1], due=[2, 2], finish=True)
    assert Calibrator.from_json(cal.to_json()).to_json() == cal.to_json()
