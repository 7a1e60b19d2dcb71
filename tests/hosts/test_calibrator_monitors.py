"""A calibrator with monitors: they see what they would see alone, in batches, one by one, late and after a restart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from streams import mixtures

from calibeat import AUTO, TOPS, Calibrator, Forecast, InvalidInput, Monitor, SnapshotMismatch
from calibeat._util.sealed import checksum
from calibeat.monitor.bets import FORECASTS
from calibeat.monitor.monitors import Monitors

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def events(n: int = 300) -> tuple[Vector, Vector]:
    rng = np.random.default_rng(3)
    scores = rng.random(n)
    return scores, (rng.random(n) < scores**2).astype(float)


def new(patience: int = 60) -> Monitor:
    return Monitor(arl=50, warm=20, quiet=40, patience=patience)


def both() -> dict[str, Monitor]:
    return {"ours": new(), "raw": new()}


def same(one: Calibrator, other: Calibrator) -> None:
    assert list(one.monitors) == list(other.monitors)
    for column, monitor in one.monitors.items():
        np.testing.assert_array_equal(monitor.row, other.monitors[column].row, err_msg=column)
        assert monitor.alarms == other.monitors[column].alarms
        assert monitor.waiting[:3] == other.monitors[column].waiting[:3]


def test_a_monitor_sees_the_forecasts() -> None:
    scores, outcomes = events()
    monitor, alone = new(), new()
    cal = Calibrator(TOPS, monitor=monitor)
    forecasts = cal.run(scores, outcomes)
    alone.run(forecasts, outcomes, scores)
    assert cal.monitor is monitor and cal.monitors == {"ours": monitor}
    np.testing.assert_array_equal(monitor.row, alone.row)
    assert monitor.alarms == alone.alarms
    np.testing.assert_array_equal(forecasts, Calibrator(TOPS).run(scores, outcomes))
    assert Calibrator(TOPS).monitor is None


def test_ours_and_raw() -> None:
    scores, outcomes = events()
    cal = Calibrator(AUTO, monitor=both())
    forecasts = cal.run(scores, outcomes)
    np.testing.assert_array_equal(forecasts, Calibrator(AUTO).run(scores, outcomes))
    single = Calibrator(AUTO, monitor=both())
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        single.update(single.predict(score), int(outcome))
    same(cal, single)
    raw = new()
    raw.run(scores, outcomes)
    np.testing.assert_array_equal(cal.monitors["raw"].row, raw.row)


def test_late_outcomes_are_read_in_the_order_of_forecasts() -> None:
    scores, outcomes = events(200)
    rng = np.random.default_rng(4)
    batch, single = (Calibrator(AUTO, monitor=both()) for _ in range(2))
    for part in (slice(0, 120), slice(120, 200)):
        s, y = scores[part], outcomes[part]
        due = np.minimum(np.arange(len(s)) + rng.integers(1, 30, len(s)), len(s))
        batch.run(s, y, due=due, finish=True)
        receipts: list[Forecast] = []
        for i in range(len(s) + 1):
            for j in np.flatnonzero(due == i).tolist():
                single.update(receipts[j], int(y[j]))
            if i < len(s):
                receipts.append(single.predict(float(s[i])))
    same(batch, single)
    assert batch.monitors["raw"].outcomes == 200


def test_an_outcome_that_a_batch_never_gets_holds_nobody_up() -> None:
    """A batch gives no receipts: what does not come in it never comes."""
    scores, outcomes = events(100)
    due = np.arange(100) + 1
    due[::10] = 1000
    cal, alone = Calibrator("ops", monitor=new(patience=1000)), new()
    forecasts = cal.run(scores, np.where(due < 100, outcomes, np.nan), due=due)
    came = due < 100
    alone.run(forecasts[came], outcomes[came], scores[came])
    assert cal.monitor is not None
    assert cal.monitor.waiting[:3] == (100, 89, 0) and cal.monitor.waiting.given_up == 11
    np.testing.assert_array_equal(np.delete(cal.monitor.row, FORECASTS), np.delete(alone.row, FORECASTS))
    waiting = cal.predict(0.5)
    cal.run(scores, np.where(due < 100, outcomes, np.nan), due=due)  # behind one that waits
    assert cal.monitor.waiting[:3] == (201, 178, 1) and cal.monitor.waiting.held == 89
    twin = Calibrator.from_json(cal.to_json())
    for one in (cal, twin):
        one.update(waiting, 1)
        assert one.monitor is not None
        assert one.monitor.outcomes == 179 and one.monitor.waiting.given_up == 22
    same(cal, twin)


def test_a_repeat_is_not_read_twice_and_forecasts_without_an_outcome_wait() -> None:
    cal = Calibrator("ops", monitor=new())
    first, second = cal.predict(0.3), cal.predict(0.6)
    cal.update(second, 1)
    assert cal.monitor is not None
    assert cal.monitor.outcomes == 0 and cal.monitor.waiting.waiting == 1
    cal.update(second, 1)
    cal.update(Forecast.from_json(first.to_json()), 0)
    cal.update(first, 0)
    assert cal.monitor.outcomes == 2 and cal.monitor.waiting.waiting == 0


@pytest.mark.parametrize("name", list(mixtures()))
def test_every_method_can_be_watched(name: str) -> None:
    scores, outcomes = events(120)
    method = mixtures()[name]
    cal = Calibrator(method, monitor=new())
    forecasts = cal.run(scores, outcomes)
    alone = new()
    alone.run(forecasts, outcomes, scores)
    assert cal.monitor is not None
    np.testing.assert_array_equal(cal.monitor.row, alone.row)


def test_snapshots_hold_the_monitors() -> None:
    scores, outcomes = events()
    cal = Calibrator(AUTO, monitor=both())
    cal.run(scores[:150], outcomes[:150])
    waiting = cal.predict(0.7)
    twin = Calibrator.from_json(cal.to_json())
    same(cal, twin)
    for one in (cal, twin):
        one.run(scores[150:], outcomes[150:])
    cal.update(waiting, 1)
    twin.update(waiting, 1)
    same(cal, twin)
    plain = Calibrator(AUTO)
    assert json.loads(plain.to_json())["monitors"] == {}
    assert Calibrator.from_json(plain.to_json()).monitors == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(theirs=m.pop("raw")), "'ours', 'raw', got 'theirs'"),
        (lambda m: m["ours"].pop("row"), "monitor can hold|row"),
        (lambda m: m["ours"]["row"].__setitem__(1, 0.5), "phi of at least 1"),
        (lambda m: m["ours"].update(settings=3), "calibrator can hold"),
    ],
)
def test_a_snapshot_with_damaged_monitors_is_refused(change: Any, message: str) -> None:
    cal = Calibrator(AUTO, monitor={"ours": new(), "raw": new()})
    cal.run(*events(50))
    state = json.loads(cal.to_json())
    state.pop("checksum")
    change(state["monitors"])
    with pytest.raises(SnapshotMismatch, match=message):
        Calibrator.from_json(json.dumps({**state, "checksum": checksum(state)}))


def test_a_snapshot_whose_monitor_has_seen_more_than_the_calibrator_is_refused() -> None:
    cal, other = Calibrator("ops", monitor=new()), Calibrator("ops", monitor=new())
    cal.run(*events(50))
    state, more = json.loads(other.to_json()), json.loads(cal.to_json())["monitors"]
    state.pop("checksum")
    for monitors, message in ((more, "at most 0 forecasts, got 50"), ([], "must be an object")):
        state["monitors"] = monitors
        with pytest.raises(SnapshotMismatch, match=message):
            Calibrator.from_json(json.dumps({**state, "checksum": checksum(state)}))


def test_a_monitor_belongs_to_one_calibrator_and_is_fed_by_it_alone() -> None:
    monitor = new()
    Calibrator("ops", monitor=monitor)
    for work in (monitor.announce, lambda: monitor.update(0, 0.5, 1), lambda: monitor.run([0.5], [1])):
        with pytest.raises(InvalidInput, match="fed by its calibrator"):
            work()
    with pytest.raises(InvalidInput, match="must be new"):
        Calibrator("ops", monitor=monitor)
    used = new()
    used.announce()
    with pytest.raises(InvalidInput, match="must be new"):
        Calibrator("ops", monitor=used)


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        (3, "must be a Monitor or a mapping of Monitors, got 3"),
        ({"ours": 3}, "must be a Monitor or a mapping"),
        ({"theirs": Monitor()}, "must watch 'ours', 'raw', got 'theirs'"),
        ({"still": Monitor()}, "must watch 'ours', 'raw', got 'still'"),
        (dict.fromkeys(("ours", "raw"), Monitor()), "different objects"),
    ],
)
def test_what_is_refused(monitor: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Calibrator("ops", monitor=monitor)


@pytest.mark.parametrize("what", ["predict", "update", "run"])
def test_what_a_monitor_was_not_told_the_next_call_tells_it(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works: dict[str, Any] = {
        "predict": lambda cal, _: cal.predict(0.6),
        "update": lambda cal, receipt: cal.update(receipt, 1),
        "run": lambda cal, _: cal.run([0.3, 0.6], [0, 1]),
    }
    pairs = []
    for _ in range(2):
        cal = Calibrator("ops", monitor=Monitor(arl=100, warm=0))
        cal.run([0.2, 0.9], [0, 1])
        pairs.append((cal, cal.predict(0.4)))
    (cal, receipt), (done, theirs) = pairs
    works[what](done, theirs)

    def broken(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "_keep", broken)
        patch.setattr(Monitors, "run", broken)
        for _ in range(2):  # the second time it does not get as far
            with pytest.raises(MemoryError):
                works[what](cal, receipt)
    works["update"](done, theirs)
    works["update"](cal, receipt)
    assert cal.to_json() == done.to_json()
