"""Which labels a stream of many classes remembers, and for how long."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibeat import MultiCalibrator, MultiForecast, OutcomeConflict, UnknownForecast
from calibeat.hosts import ledger

SCORE = [0.2, 0.3, 0.5]


def test_old_labels_are_forgotten_and_old_events_stay_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_EVENTS", 8)
    cal = MultiCalibrator(3)
    kept = [cal.predict(SCORE) for _ in range(40)]
    for i, forecast in enumerate(kept):
        cal.update(forecast, i % 3)
    assert len(json.loads(cal.to_json())["settled"]["labels"]) < 60
    for twin in (cal, MultiCalibrator.from_json(cal.to_json())):
        twin.update(kept[0], 2)  # forgotten: any label is a repeat
        twin.update(kept[39], 0)
        with pytest.raises(OutcomeConflict):
            twin.update(kept[39], 1)
        assert twin.outcomes == 40


def test_labels_out_of_order_are_remembered_in_place() -> None:
    cal = MultiCalibrator(3)
    kept = [cal.predict(SCORE) for _ in range(6)]
    for i in (4, 1, 5):
        cal.update(kept[i], i % 3)
    cal.run([SCORE] * 3, [2, 1, 0], due=[1, 9, 3])
    twin = MultiCalibrator.from_json(cal.to_json())
    for host in (cal, twin):
        for i in (4, 1, 5):
            host.update(kept[i], i % 3)
            with pytest.raises(OutcomeConflict):
                host.update(kept[i], (i + 1) % 3)
        host.update(kept[0], 0)
        assert host.outcomes == 5


def test_events_far_behind_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_MARKS", 16)
    cal = MultiCalibrator(3)
    first = cal.predict(SCORE)
    cal.run([SCORE] * 40, [0] * 40)
    with pytest.raises(UnknownForecast, match="young enough to know whether its label was learnt"):
        cal.update(first, 0)


def test_a_restart_begins_a_new_generation() -> None:
    cal = MultiCalibrator(3)
    text = cal.to_json()
    after = cal.predict(SCORE)
    twin = MultiCalibrator.from_json(text)
    twin.predict(SCORE)
    with pytest.raises(UnknownForecast, match="after the snapshot from which it continues"):
        twin.update(MultiForecast.from_json(after.to_json()), 0)


@pytest.mark.parametrize("K", [2, 3])
def test_an_interrupt_leaves_nothing_half_done(K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cal = MultiCalibrator(K)
    forecast = cal.predict(np.full(K, 1 / K))
    row = cal.row

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cal._stream, "update", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                cal.update(forecast, 1)
    np.testing.assert_array_equal(cal.row, row)
    cal.update(forecast, 0)
    assert cal.outcomes == 1
