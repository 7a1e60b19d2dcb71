"""Which labels a stream of many classes remembers, and for how long."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibeat import InvalidInput, MultiCalibrator, MultiForecast, OutcomeConflict, UnknownForecast
from calibeat.hosts import ledger

SCORE = [0.2, 0.3, 0.5]


def test_old_labels_are_forgotten_and_old_events_stay_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_EVENTS", 8)
    cal = MultiCalibrator(3)
    kept = [cal.predict(SCORE) for _ in range(40)]
    for i, forecast in enumerate(kept):
        cal.update(forecast, i % 3)
    assert len(json.loads(cal.to_json())["settled"]["marks"]) < 60
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


@pytest.mark.parametrize("K", [2, 3, 300])
def test_receipts_travel_as_bytes(K: int) -> None:
    names = [f"class {k}" for k in range(K)]
    cal, other = MultiCalibrator(names), MultiCalibrator(names)
    score = np.random.default_rng(K).dirichlet(np.ones(K), 6)
    for host in (cal, other):
        receipts = [host.predict(s) for s in score]
        for i in (5, 1, 0, 3):
            receipt = receipts[i]
            if host is other:
                receipt = MultiForecast.from_bytes(receipt.to_bytes(), names)
                assert receipt == receipts[i]
                assert MultiForecast.from_bytes(receipt.to_bytes()).label in (receipt.column, receipt.label)
            host.update(receipt, names[(7 * i) % K])
    np.testing.assert_array_equal(cal.row, other.row)
    data = receipts[0].to_bytes()
    for damaged in (data[:-8], data + bytes(8), data[:50], b"", b"\2" + data[1:], "text"):
        with pytest.raises(InvalidInput, match="forecast must"):
            MultiForecast.from_bytes(damaged)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="classes must be those of the forecast"):
        MultiForecast.from_bytes(MultiCalibrator(4).predict([0.25] * 4).to_bytes(), names)
