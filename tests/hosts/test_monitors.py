"""Monitors on every host: what they read, what waits, files and tables, and what is refused.

That they read the same by every verb, late, after restarts and merges, is in `test_all_hosts_agree` and `test_fold`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest
from banks import Kind, kinds
from streams import mixtures

from calibeat import (
    AUTO,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    InvalidInput,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    SnapshotMismatch,
)
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


# ---- what they read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [TOPS, *mixtures().values()], ids=["tops", *mixtures()])
def test_a_monitor_sees_the_forecasts_or_the_raw_scores(method: Method) -> None:
    scores, outcomes = events()
    monitors, alone, raw = {"ours": new(), "raw": new()}, new(), new()
    cal = Calibrator(method, monitor=monitors)
    forecasts = cal.run(scores, outcomes)
    np.testing.assert_array_equal(forecasts, Calibrator(method).run(scores, outcomes))
    alone.run(forecasts, outcomes, scores)
    raw.run(scores, outcomes)
    assert cal.monitor is monitors["ours"] and cal.monitors == monitors
    for monitor, expected in zip(monitors.values(), (alone, raw), strict=True):
        np.testing.assert_array_equal(monitor.row, expected.row)
        assert monitor.alarms == expected.alarms


@pytest.mark.parametrize("K", [2, 4])
def test_monitors_watch_the_class_that_is_named(K: int) -> None:
    scores, labels = multi_streams.random(1500, K)
    batch, single = (MultiCalibrator(K, "raw", monitor=Monitor(arl=2000)) for _ in range(2))
    batch.run(scores, labels)
    for score, label in zip(scores, labels.tolist(), strict=True):
        single.update(single.predict(score), label)
    alone = Monitor(arl=2000)
    named = scores.argmax(axis=1)
    best = batch.predict_many(scores).max(axis=1)
    alone.run(best, (labels == named).astype(float), scores=scores.max(axis=1))
    assert batch.monitor is not None and single.monitor is not None
    assert batch.monitor.alarms == single.monitor.alarms == alone.alarms and alone.alarms
    bank = MultiBank(K, "raw", monitor=Monitor(arl=2000))
    bank.run([7] * 1500, scores, labels)
    assert bank.table["alarms"].tolist() == [len(alone.alarms)]
    assert bank.broken().keys.tolist() == bank.miscalibrated().tolist() == [7]
    late = MultiBank(K, "raw", monitor=Monitor(arl=2000))
    late.run([7] * 1500, scores, labels, due=np.arange(1500) + 9, finish=True)
    assert late.table["alarms"].tolist() == [len(alone.alarms)]
    restored = MultiCalibrator.from_json(batch.to_json())
    assert restored.monitor is not None and restored.monitor.alarms == alone.alarms


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
    assert cal.monitor is not None and twin.monitor is not None
    np.testing.assert_array_equal(cal.monitor.row, twin.monitor.row)


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


@kinds
def test_late_and_missing_outcomes_of_keys(kind: Kind) -> None:
    keys, scores, outcomes = kind.events(300, 5)
    rng = np.random.default_rng(2)
    outcomes = np.where(rng.random(300) < 0.1, np.nan, outcomes)
    due = np.arange(300) + rng.integers(1, 60, 300)
    for finish in (False, True):
        bank = kind.bank(monitor=new(1000))
        bank.run(keys, scores, outcomes, due=due, finish=finish)
        for key in range(5):
            own = np.flatnonzero(keys == key)
            came = ~np.isnan(outcomes[own]) & (finish | (due[own] < 300))
            monitor = bank[key].monitor
            assert monitor.outcomes == came.sum() == bank[key].outcomes
            assert monitor.waiting.waiting == 0 and monitor.waiting.given_up == (~came).sum()


@pytest.mark.parametrize("threads", [1, 3])
def test_large_batches_in_threads(threads: int) -> None:
    rng = np.random.default_rng(1)
    keys, (scores, outcomes) = rng.integers(0, 40, 45_000), events(45_000)
    whole, one = Bank(TOPS, monitor=new(), threads=threads), Bank(TOPS, monitor=new())
    whole.run(keys, scores, outcomes)
    for part in np.array_split(np.arange(45_000), 9):
        one.run(keys[part], scores[part], outcomes[part])
    for key in range(40):
        np.testing.assert_array_equal(whole[key].monitor.row, one[key].monitor.row)  # type: ignore[union-attr]


@kinds
def test_rows_in_begin_a_new_monitor(kind: Kind) -> None:
    keys, scores, outcomes = kind.events(100, 2)
    east, west = kind.bank(monitor=new()), kind.bank(monitor=new())
    east.run(keys, scores, outcomes)
    west.set_rows([0, 1], east.rows([0, 1]))
    assert west[0].monitor.outcomes == 0
    west.run([0], scores[:1], [1])
    assert west[0].monitor.outcomes == 1
    west.update(0, west.predict(0, scores[0]), 0)
    assert west[0].monitor.outcomes == 2


def test_what_a_batch_did_not_tell_its_monitor_the_next_call_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise MemoryError

    pairs = []
    for _ in range(2):
        cal = Calibrator("ops", monitor=Monitor(arl=100, warm=0))
        cal.run([0.2, 0.9], [0, 1])
        pairs.append((cal, cal.predict(0.4)))
    (cal, receipt), (done, theirs) = pairs
    done.run([0.3, 0.6], [0, 1])
    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "_keep", broken)
        patch.setattr(Monitors, "run", broken)
        for _ in range(2):  # the second time it does not get as far
            with pytest.raises(MemoryError):
                cal.run([0.3, 0.6], [0, 1])
    done.update(theirs, 1)
    cal.update(receipt, 1)
    assert cal.to_json() == done.to_json()


# ---- snapshots and files -------------------------------------------------------------------------------------------


def test_a_snapshot_with_damaged_monitors_is_refused() -> None:
    cal, other = (Calibrator(AUTO, monitor={"ours": new(), "raw": new()}) for _ in range(2))
    cal.run(*events(50))
    other.run(*events(60))
    more = json.loads(other.to_json())["monitors"]
    changes: list[tuple[Callable[[Any], Any], str]] = [
        (lambda state: state["monitors"].update(theirs=state["monitors"].pop("raw")), "'ours', 'raw', got 'theirs'"),
        (lambda state: state["monitors"]["ours"].pop("row"), "monitor can hold|row"),
        (lambda state: state["monitors"]["ours"]["row"].__setitem__(1, 0.5), "phi of at least 1"),
        (lambda state: state["monitors"]["ours"].update(settings=3), "calibrator can hold"),
        (lambda state: state.update(monitors=more), "at most 50 forecasts, got 60"),
        (lambda state: state.update(monitors=[]), "must be an object"),
    ]
    for change, message in changes:
        state = json.loads(cal.to_json())
        del state["checksum"]
        change(state)
        with pytest.raises(SnapshotMismatch, match=message):
            Calibrator.from_json(json.dumps({**state, "checksum": checksum(state)}))


def test_a_file_whose_monitors_are_damaged_is_refused(tmp_path: Path) -> None:
    bank = Bank(TOPS, monitor=new())
    bank.run([0, 1] * 50, *events(100))
    bank._rows.watching.monitors.matrix[1, 1] = 0.0  # type: ignore[union-attr]  # phi
    bank.save(tmp_path / "bank")
    with pytest.raises(SnapshotMismatch, match="phi of at least 1"):
        Bank.load(tmp_path / "bank")


def test_files_say_whether_there_are_monitors(tmp_path: Path) -> None:
    for bank, watched in ((Bank(TOPS), None), (Bank(TOPS, monitor=new()), new().settings)):
        bank.save(tmp_path / "bank")
        assert bank.watched == Bank.load(tmp_path / "bank").watched == watched
    assert Calibrator.from_json(Calibrator(AUTO).to_json()).monitors == {}


# ---- what they say -------------------------------------------------------------------------------------------------


def test_the_table_and_the_lists() -> None:
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 30, 15_000)
    scores = rng.random(15_000)
    truth = np.where(keys == 7, scores**4, scores)
    bank = Bank(AUTO, monitor=Monitor(arl=100_000, warm=0))
    raw = Bank("bm", monitor=Monitor(arl=100_000, warm=0))
    outcomes = rng.random(15_000) < truth
    for one in (bank, raw):
        one.run(keys, scores, outcomes)
    found = raw.broken()
    assert found.keys.tolist() == [7] and found.bound == pytest.approx(0.15)
    assert raw.miscalibrated().tolist() == [7]
    assert 7 not in bank.broken().keys  # AUTO has mended it
    table = raw.table
    for name in ("alarms", "pages", "alarm_at", "since", "what", "level", "log_e", "gain_low", "gain_high"):
        assert len(table[name]) == 30
    place = table["key"].tolist().index(7)
    assert table["alarms"][place] > 0 and table["what"][place] in {"too high", "too sure"}
    assert bank.table["gain_low"][place] > 0.05
    some = raw.table_of([7, 3])
    assert some["level"].tolist() == [table["level"][place], table["level"][table["key"].tolist().index(3)]]
    assert raw.nbytes > Bank("bm").nbytes + 30 * 142 * 8 - 1


# ---- refusals ------------------------------------------------------------------------------------------------------


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


def test_what_is_refused_without_monitors() -> None:
    bank = Bank("ops")
    bank.run([1], [0.5], [1])
    assert bank[1].monitor is None and "level" not in bank.table
    for work in (bank.broken, bank.miscalibrated):
        with pytest.raises(InvalidInput, match="must have monitors"):
            work()
    with pytest.raises(InvalidInput, match="alpha must be"):
        Bank(TOPS, monitor=new()).miscalibrated(0.0)
    with pytest.raises(InvalidInput, match="monitor must be a Monitor, got 3"):
        Bank("ops", monitor=3)  # type: ignore[arg-type]
    assert len(Bank(TOPS, monitor=new()).broken().keys) == 0 and len(Bank(TOPS, monitor=new()).miscalibrated()) == 0
