"""A bank with monitors: the same bits as one monitor per key, however the events come; files, merges, lists."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import AUTO, TOPS, Bank, Calibrator, InvalidInput, Monitor, SnapshotMismatch

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def template(**changes: Any) -> Monitor:
    return Monitor(**{"arl": 60, "warm": 10, "quiet": 30, "patience": 1000, **changes})


def watched(**changes: Any) -> Bank:
    return Bank(TOPS, monitor=template(), **changes)


def events(n: int = 900, keys: int = 5, seed: int = 1) -> tuple[Any, Vector, Vector]:
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    return rng.integers(0, keys, n), scores, (rng.random(n) < scores**2).astype(float)


def same(bank: Bank, key: Any, cal: Calibrator) -> None:
    ours, alone = bank[key].monitor, cal.monitor
    assert ours is not None and alone is not None
    np.testing.assert_array_equal(ours.row, alone.row, err_msg=str(key))
    assert ours.waiting[:7] == alone.waiting[:7] or math.isnan(ours.waiting.mean_age)
    assert ours.alarms[-1:] == alone.alarms[-1:] or ours.alarms[-1][:3] == alone.alarms[-1][:3]


def same_as_calibrators(bank: Bank, keys: Any, scores: Vector, outcomes: Vector) -> None:
    for key in np.unique(keys).tolist():
        cal = Calibrator(TOPS, monitor=template())
        own = keys == key
        cal.run(scores[own], outcomes[own])
        same(bank, key, cal)


def test_the_same_bits_as_one_each_in_batches() -> None:
    keys, scores, outcomes = events()
    bank = watched()
    forecasts = np.concatenate(
        [bank.run(keys[part], scores[part], outcomes[part]) for part in (slice(0, 1), slice(1, 500), slice(500, 900))]
    )
    np.testing.assert_array_equal(forecasts, Bank(TOPS).run(keys, scores, outcomes))
    same_as_calibrators(bank, keys, scores, outcomes)
    assert Bank(TOPS).watched is None and bank.watched == template().settings


@pytest.mark.parametrize("threads", [1, 3])
def test_large_batches_in_threads(threads: int) -> None:
    keys, scores, outcomes = events(45_000, 40)
    bank = watched(threads=threads)
    bank.run(keys, scores, outcomes)
    one = watched()
    for part in np.array_split(np.arange(45_000), 9):
        one.run(keys[part], scores[part], outcomes[part])
    np.testing.assert_array_equal(bank._rows.watching.monitors.matrix[:40], one._rows.watching.monitors.matrix[:40])


def test_late_and_missing_outcomes_of_batches() -> None:
    keys, scores, outcomes = events(300)
    rng = np.random.default_rng(2)
    outcomes[rng.random(300) < 0.1] = np.nan
    due = np.arange(300) + rng.integers(1, 60, 300)
    for finish in (False, True):
        bank, plain = watched(), watched()
        bank.run(keys, scores, outcomes, due=due, finish=finish)
        for key in range(5):
            own = np.flatnonzero(keys == key)
            came = ~np.isnan(outcomes[own]) & (finish | (due[own] < 300))
            monitor = bank[key].monitor
            assert monitor is not None
            assert monitor.outcomes == came.sum() == bank[key].outcomes
            assert monitor.waiting.waiting == 0 and monitor.waiting.given_up == (~came).sum()
        plain.run(keys, scores, outcomes)
        assert plain[0].monitor.outcomes == (~np.isnan(outcomes[keys == 0])).sum()  # type: ignore[union-attr]


def test_events_one_by_one_and_folded_wait_for_their_outcomes() -> None:
    keys, scores, outcomes = events(200, 3)
    single, folded, each = watched(), watched(), {k: Calibrator(TOPS, monitor=template()) for k in range(3)}
    waiting: list[tuple[int, Any, Any, Any, int]] = []
    rng = np.random.default_rng(3)
    for i, (key, score, y) in enumerate(zip(keys.tolist(), scores.tolist(), outcomes.tolist(), strict=True)):
        receipt = folded.fold([key], [score], [math.nan]).receipts.tolist()[0]
        waiting.append((key, single.predict(key, score), each[key].predict(score), receipt, int(y)))
        if i == 100:  # a batch among them
            batch = events(50, 3, seed=9)
            single.run(*batch)
            folded.run(*batch)
            for k, cal in each.items():
                cal.run(batch[1][batch[0] == k], batch[2][batch[0] == k])
        for _ in range(int(rng.integers(0, 3))):
            if waiting:
                place = int(rng.integers(0, len(waiting)))
                k, mine, alone, brought, label = waiting.pop(place)
                single.update(k, mine, label)
                each[k].update(alone, label)
                folded.fold([k], [math.nan], [label], [brought])
    for key, cal in each.items():
        same(single, key, cal)
        same(folded, key, cal)


def test_a_batch_that_is_refused_changes_no_monitor() -> None:
    keys, scores, outcomes = events(100)
    bank = watched()
    bank.run(keys, scores, outcomes)
    before = bank._rows.watching.monitors.matrix[:5].copy()  # type: ignore[union-attr]
    with pytest.raises(InvalidInput):
        bank.run([*keys[:9], "a"], scores[:10], outcomes[:10])
    with pytest.raises(InvalidInput):
        bank.run(keys[:2], [0.5, 1.5], [0, 1])
    np.testing.assert_array_equal(bank._rows.watching.monitors.matrix[:5], before)  # type: ignore[union-attr]


# ---- keys come and go --------------------------------------------------------------------------------------------


def test_merge_drop_and_delete_keep_each_key_its_monitor() -> None:
    keys, scores, outcomes = events(400, 6)
    whole = watched()
    whole.run(keys, scores, outcomes)
    east, west = watched(), watched()
    for bank, own in ((east, keys < 3), (west, keys >= 3)):
        bank.run(keys[own], scores[own], outcomes[own])
    east.merge(west)
    del east[1]
    rest = keys != 1
    same_as_calibrators(east, keys[rest], scores[rest], outcomes[rest])
    east.run([0] * 200, [0.5] * 200, [1, 0] * 100)
    dropped = east.drop_idle(before=150)
    assert sorted(dropped) == [2, 3, 4, 5] and list(east) == [0]
    others = (keys > 1) & rest
    same_as_calibrators(dropped, keys[others], scores[others], outcomes[others])
    assert east.watched == dropped.watched == whole.watched
    with pytest.raises(InvalidInput, match="same watched"):
        whole.merge(Bank(TOPS))
    with pytest.raises(InvalidInput, match="same watched"):
        Bank(TOPS).merge(whole)


def test_rows_in_begin_a_new_monitor() -> None:
    keys, scores, outcomes = events(100)
    east, west = watched(), watched()
    east.run(keys, scores, outcomes)
    west.set_rows([0, 1], east.rows([0, 1]))
    monitor = west[0].monitor
    assert monitor is not None and monitor.outcomes == 0
    west.run([0], [0.5], [1])
    assert west[0].monitor.outcomes == 1  # type: ignore[union-attr]
    forecast = west.predict(0, 0.5)
    west.update(0, forecast, 0)
    assert west[0].monitor.outcomes == 2  # type: ignore[union-attr]


# ---- files -------------------------------------------------------------------------------------------------------


def test_files_and_copies_hold_the_monitors(tmp_path: Path) -> None:
    keys, scores, outcomes = events(300)
    bank = watched()
    bank.run(keys, scores, outcomes)
    waiting = bank.predict(3, 0.6)
    bank.run(keys, scores, outcomes)
    bank.save(tmp_path / "bank")
    copies = [Bank.load(tmp_path / "bank"), pickle.loads(pickle.dumps(bank))]  # noqa: S301 - our own
    mapped = Bank.load(tmp_path / "bank", mmap=True)
    assert mapped.table["alarms"].tolist() == bank.table["alarms"].tolist()
    for twin in copies:
        assert twin.watched == bank.watched
        twin.update(3, waiting, 1)
        twin.run(keys, scores, outcomes)
    bank.update(3, waiting, 1)
    bank.run(keys, scores, outcomes)
    for twin in copies:
        for key in range(5):
            assert twin[key].monitor.to_json() == bank[key].monitor.to_json()  # type: ignore[union-attr]


def test_a_file_whose_monitors_are_damaged_is_refused(tmp_path: Path) -> None:
    bank = watched()
    bank.run(*events(100))
    bank._rows.watching.monitors.matrix[1, 1] = 0.0  # type: ignore[union-attr]  # phi
    bank.save(tmp_path / "bank")
    with pytest.raises(SnapshotMismatch, match="phi of at least 1"):
        Bank.load(tmp_path / "bank")


def test_files_say_whether_there_are_monitors(tmp_path: Path) -> None:
    Bank(TOPS).save(tmp_path / "empty")
    assert Bank.load(tmp_path / "empty").watched is None
    watched().save(tmp_path / "new")
    assert Bank.load(tmp_path / "new").watched == template().settings


# ---- what it says ------------------------------------------------------------------------------------------------


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


def test_what_is_refused_without_monitors() -> None:
    bank = Bank("ops")
    bank.run([1], [0.5], [1])
    assert bank[1].monitor is None and "level" not in bank.table
    for work in (bank.broken, bank.miscalibrated):
        with pytest.raises(InvalidInput, match="must have monitors"):
            work()
    with pytest.raises(InvalidInput, match="alpha must be"):
        watched().miscalibrated(0.0)
    with pytest.raises(InvalidInput, match="monitor must be a Monitor, got 3"):
        Bank("ops", monitor=3)  # type: ignore[arg-type]
    assert len(watched().broken().keys) == 0 and len(watched().miscalibrated()) == 0
