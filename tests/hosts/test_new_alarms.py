"""`new_alarms` gives what monitors and notices have raised, each alarm once, also across snapshots and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, InvalidInput, Monitor, MultiBank, MultiCalibrator, Notice
from calibeat.monitor.bets import GIVEN, Settings
from calibeat.monitor.notices import GIVEN as NOTICE_GIVEN
from calibeat.monitor.notices import NoticeSettings

HOUR = 3600.0
START = 1_700_000_000.0


def eager() -> Monitor:
    return Monitor(arl=1000, warm=0, quiet=20)


def wrong(cal: Any, events: int) -> None:
    """So many outcomes that contradict the score."""
    for _ in range(events):
        cal.update(cal.predict(0.9), 0)


def test_each_alarm_is_given_once() -> None:
    cal, seen = Calibrator("bm", monitor=eager()), []
    for _ in range(60):
        wrong(cal, 1)
        seen += cal.new_alarms()
    assert [(alarm.at, alarm.what, alarm.page, alarm.source) for alarm in seen] == [
        (alarm.at, alarm.what, alarm.page, "ours") for alarm in cal.monitor.alarms
    ]
    assert len(seen) > 3 and seen[0].page and seen[0].low == 0.0
    assert cal.new_alarms() == []
    assert Calibrator().new_alarms() == []


def test_a_batch_gives_all_of_its_alarms() -> None:
    cal = Calibrator("bm", monitor={"ours": eager(), "raw": eager()})
    cal.run([0.9] * 60, [0] * 60)
    found = cal.new_alarms()
    assert {alarm.source for alarm in found} == {"ours", "raw"}
    assert len(found) == cal.monitors["ours"].counts[0] + cal.monitors["raw"].counts[0]


def test_a_snapshot_knows_what_was_given() -> None:
    cal = Calibrator("bm", monitor=eager())
    wrong(cal, 12)
    assert len(cal.new_alarms()) == 1
    wrong(cal, 12)
    kept = cal.to_json()
    assert len(cal.new_alarms()) == 1  # given after the snapshot: it comes again
    again = Calibrator.from_json(kept).new_alarms()
    assert [alarm.at for alarm in again] == [cal.monitor.alarms[1].at]


def test_notices_too_with_what_check_has_raised() -> None:
    cal = Calibrator("bm", notice=Notice())
    times = [START + HOUR * hour for hour in range(24 * 30)]
    cal.run([0.3] * 720, [0, 1] * 360, times=times)
    raised = cal.notice.check(times[-1] + 6 * HOUR)
    found = cal.new_alarms()
    assert [alarm.what for alarm in found] == [alarm.what for alarm in raised] == ["no forecasts", "no outcomes"]
    assert {alarm.source for alarm in found} == {"notice"} and [alarm.page for alarm in found] == [True, False]
    assert Calibrator.from_json(cal.to_json()).new_alarms() == []


def test_a_bank_gives_keys(tmp_path: Path) -> None:
    bank = Bank("bm", monitor=eager())
    bank.run(["oslo", "rome"] * 40, [0.9] * 80, [0, 1] * 40)
    (found,) = bank.new_alarms()
    key, alarm = found
    assert key == "oslo" and alarm.source == "ours" and alarm.what == "too high"
    assert alarm.at == bank.table["alarm_at"][0]
    assert alarm.page and bank.table["pages"][0] == 1 < bank.table["alarms"][0]  # one of several paged
    assert bank.new_alarms() == []
    bank.run(["oslo"] * 9, [0.9] * 9, [0] * 9)
    bank.save(tmp_path / "bank.calibeat")
    ((_, again),) = bank.new_alarms()
    assert not again.page
    loaded = Bank.load(tmp_path / "bank.calibeat")
    assert loaded.new_alarms() == [("oslo", again)] and loaded.new_alarms() == []
    with pytest.raises(InvalidInput, match=r"mmap=True cannot be asked"):
        Bank.load(tmp_path / "bank.calibeat", mmap=True).new_alarms()
    assert Bank().new_alarms() == []


def test_single_events_of_a_key() -> None:
    bank, seen = Bank("bm", monitor=eager(), notice=Notice()), []
    for _ in range(30):
        for key, outcome in (("oslo", 0), ("rome", 1)):
            bank.update(key, bank.predict(key, 0.9), outcome)
        seen += bank["oslo"].new_alarms()
    assert len(seen) == bank.table["alarms"][0] == 2
    assert [alarm.page for alarm in seen] == [True, False]
    assert bank.new_alarms() == [] == bank["rome"].new_alarms()


def test_keys_keep_what_was_given_when_rows_move() -> None:
    bank = Bank("bm", monitor=eager())
    bank.run(["a", "b", "c"] * 12, [0.9] * 36, [1, 0, 0] * 12)
    assert [key for key, _ in bank.new_alarms()] == ["b", "c"]
    del bank["a"]  # the row of c takes its place
    other = Bank("bm", monitor=eager())
    other.run(["d"] * 12, [0.9] * 12, [0] * 12)
    bank.merge(other)
    assert [key for key, _ in bank.new_alarms()] == ["d"]
    assert bank.drop_idle(before=0).new_alarms() == []


def test_many_classes() -> None:
    cal = MultiCalibrator(3, method="raw", monitor=eager())
    for _ in range(20):
        cal.update(cal.predict([0.05, 0.05, 0.9]), 0)
    assert {alarm.what for alarm in cal.new_alarms()} == {"too high"}
    bank = MultiBank(3, method="raw", monitor=eager())
    bank.run(["x"] * 20, [[0.05, 0.05, 0.9]] * 20, [0] * 20)
    assert [key for key, _ in bank.new_alarms()] == ["x"] and bank["x"].new_alarms() == []


def test_rows_that_have_given_more_than_was_raised_are_refused() -> None:
    row = Settings().initial_row()
    row[GIVEN] = 1.0
    with pytest.raises(InvalidInput, match="no more alarms given than raised"):
        Settings().check_rows(row[None])
    row = NoticeSettings().initial_row()
    row[NOTICE_GIVEN + 1] = 1.0
    with pytest.raises(InvalidInput, match="no more alarms given than raised"):
        NoticeSettings().check_rows(np.array([row]))
