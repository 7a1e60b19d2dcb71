"""Notices on every host: what they hear with times of their own, by key and late; the clock, files, and refusals.

That they hear the same by every verb, and after restarts and merges, is in `test_all_hosts_agree`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, InvalidInput, MultiBank, MultiCalibrator, Notice, SnapshotMismatch
from calibeat._util.sealed import checksum
from calibeat.monitor.notices import DELAY
from calibeat.monitor.shift import BINS

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


def small(clock: Any = None) -> Notice:
    settings: dict[str, Any] = {"arl": 500.0, "warm": 64, "quiet": 100, "every": "30d"}
    return Notice(**settings) if clock is None else Notice(**settings, clock=clock)


def events(n: int = 600) -> tuple[Vector, Vector, Vector]:
    rng = np.random.default_rng(1)
    scores = rng.beta(2.0, 4.0, n)
    scores[n // 2 :] /= 100.0
    times = np.round((1.7e9 + np.cumsum(rng.exponential(3600.0, n))) * 1e6) / 1e6
    return scores, (rng.random(n) < scores).astype(float), times


def due_of(n: int) -> Any:
    return np.arange(n) + np.random.default_rng(2).integers(1, 9, n)


def one_by_one(host: Any, clock: Clock, scores: Any, outcomes: Any, times: Any, due: Any = None) -> None:
    """As `run` says it: outcome i just before forecast due[i]; at once if there is no due."""
    n, waiting = len(scores), dict[int, list[Any]]()
    for i in range(n):
        clock.now = float(times[i])
        for forecast, outcome in waiting.pop(i, []):
            host.update(forecast, outcome)
        forecast = host.predict(scores[i])
        if due is None:
            host.update(forecast, outcomes[i])
        elif due[i] < n:
            waiting.setdefault(int(due[i]), []).append((forecast, outcomes[i]))


def same(one: Notice | None, other: Notice | None) -> None:
    assert one is not None and other is not None
    np.testing.assert_array_equal(one.row, other.row)


@pytest.mark.parametrize("late", [False, True])
def test_single_events_are_the_batch(late: bool) -> None:
    scores, outcomes, times = events()
    due, clock = due_of(600) if late else None, Clock()
    batch, single = Calibrator("ops", notice=small()), Calibrator("ops", notice=small(clock))
    forecasts = batch.run(scores, outcomes, times=times, due=due)
    one_by_one(single, clock, scores.tolist(), outcomes.astype(int).tolist(), times, due)
    same(batch.notice, single.notice)
    assert batch.notice is not None and single.notice is not None
    assert batch.notice.alarms == single.notice.alarms
    assert any(alarm.what == "score lower" for alarm in batch.notice.pages)
    since = next(alarm.since for alarm in batch.notice.pages if alarm.what == "score lower")
    assert abs(since - times[300]) < 20 * 3600.0
    np.testing.assert_array_equal(forecasts, Calibrator("ops").run(scores, outcomes, due=due))


def test_alone_it_hears_the_same() -> None:
    scores, outcomes, times = events()
    cal, alone = Calibrator("ops", notice=small()), small()
    cal.run(scores, outcomes, times=times)
    for score, time in zip(scores, times, strict=True):
        alone.forecast(time, score)
        alone.outcome(time, time)
    same(cal.notice, alone)


def test_without_times_a_batch_happens_now() -> None:
    scores, outcomes, _ = events()
    clock = Clock()
    cal, twin = Calibrator("ops", notice=small(clock)), Calibrator("ops", notice=small())
    cal.run(scores, outcomes)
    twin.run(scores, outcomes, times=np.full(600, clock.now))
    same(cal.notice, twin.notice)


@pytest.mark.parametrize("late", [False, True])
def test_a_key_has_the_bits_of_a_calibrator(late: bool, tmp_path: Path) -> None:
    scores, outcomes, times = events()
    keys = np.random.default_rng(5).integers(0, 3, 600)
    bank, alone = Bank("ops", notice=small(), threads=2), [Calibrator("ops", notice=small()) for _ in range(3)]
    for part in (slice(0, 200), slice(200, 600)):
        due = due_of(part.stop - part.start) if late else None
        bank.run(keys[part], scores[part], outcomes[part], times=times[part], due=due, finish=late)
        for key, cal in enumerate(alone):
            mine = np.flatnonzero(keys[part] == key)
            own = None if due is None else np.searchsorted(mine, due[mine]) + np.maximum(due[mine] - len(due), 0)
            cal.run(scores[part][mine], outcomes[part][mine], times=times[part][mine], due=own, finish=late)
    for key, cal in enumerate(alone):
        same(bank[key].notice, cal.notice)
    bank.save(tmp_path / "a.bank")
    assert Bank.load(tmp_path / "a.bank").noticed == bank.noticed
    assert set(bank.table) >= {"state", "notices", "noticed", "noticed_at", "noticed_since", "next_check"}


def test_rows_in_begin_a_new_notice() -> None:
    """Rows of another bank come without their notices; the number of their events goes on."""
    scores, outcomes, times = events(100)
    east, west = Bank("ops", notice=small()), Bank("ops", notice=small())
    east.run([0, 1] * 50, scores, outcomes, times=times)
    west.set_rows([0, 1], east.rows([0, 1]))
    notice = west[0].notice
    assert notice is not None
    assert (notice.forecasts, notice.state, notice.deadline) == (50, "learning", np.inf)
    before = east[1].notice
    east.set_rows([1], east.rows([1]))  # its own row: it is known
    same(east[1].notice, before)
    west.run([0] * 10, scores[:10], outcomes[:10], times=times[:10])
    notice = west[0].notice
    assert notice is not None and notice.forecasts == 60


def test_a_bank_one_by_one_and_folded_is_the_batch() -> None:
    scores, outcomes, times = events(300)
    keys = (np.arange(300) % 2).tolist()
    clock = Clock()
    batch, single, folded = Bank("ops", notice=small()), Bank("ops", notice=small(clock)), Bank("ops", notice=small())
    batch.run(keys, scores, outcomes, times=times)
    for key, score, outcome, time in zip(keys, scores.tolist(), outcomes.astype(int).tolist(), times, strict=True):
        clock.now = float(time)
        single.update(key, single.predict(key, score), outcome)
    both = np.repeat(np.arange(300), 2)
    asked = np.arange(600) % 2 == 0
    folded.fold(
        np.array(keys)[both],
        np.where(asked, scores[both], np.nan),
        np.where(asked, np.nan, outcomes[both]),
        of=np.where(asked, -1, np.arange(600) - 1),
        times=times[both],
    )
    for key in (0, 1):
        same(batch[key].notice, single[key].notice)
        same(batch[key].notice, folded[key].notice)


def test_a_bank_is_asked_by_the_clock() -> None:
    scores, outcomes, times = events(300)
    bank = Bank("ops", notice=small())
    bank.run(["oslo", "rome"] * 150, scores, outcomes, times=times)
    end = float(times[-1])
    assert bank.check(end) == []
    assert bank.away(end, end + 1e6) == []
    assert bank.check(end + 1e6) == []
    found = bank.check(end + 1e6 + 3e6)
    assert {key for key, _ in found} == {"oslo", "rome"}
    assert {alarm.what for _, alarm in found if alarm.page} == {"no forecasts"}
    assert bank.table["state"].tolist() == ["silent", "silent"]
    last = bank["oslo"].notice
    assert [(alarm.what, alarm.page) for alarm in last.alarms] == [("no outcomes", False)] and last.pages == []
    assert bank.check(end + 9e6) == []
    dropped = bank.drop_idle(before=1)
    assert dropped.table["state"].tolist() == ["silent"]
    del bank["rome"]
    assert len(bank) == 0


def test_many_classes() -> None:
    rng = np.random.default_rng(0)
    scores, labels, times = rng.dirichlet([1.0, 1.0, 1.0], 200), rng.integers(0, 3, 200), events(200)[2]
    clock = Clock()
    batch, single = MultiCalibrator(3, notice=small()), MultiCalibrator(3, notice=small(clock))
    bank, alone = MultiBank(3, notice=small()), small()
    batch.run(scores, labels, times=times)
    bank.run(["a"] * 200, scores, labels, times=times)
    one_by_one(single, clock, scores, labels, times)
    for row, time in zip(scores, times, strict=True):
        alone.forecast(time, row.max())
        alone.outcome(time, time)
    twin = MultiCalibrator.from_json(batch.to_json())
    for notice in (single.notice, bank["a"].notice, alone, twin.notice):
        same(batch.notice, notice)


def test_a_notice_belongs_to_one_host() -> None:
    notice = small()
    cal = Calibrator("ops", notice=notice)
    assert cal.notice is notice
    for call in (
        lambda: Calibrator("ops", notice=notice),
        lambda: notice.forecast(1.0, 0.5),
        lambda: notice.outcome(1.0, 0.5),
        lambda: Calibrator("ops", notice="yes"),
        lambda: Bank("ops", notice=3),
        lambda: Bank("ops").check(),
        lambda: Bank("ops").away(1.0, 2.0),
        lambda: Bank("ops").fold(["a"], [0.5], [np.nan], times=[1.7e9]),
        lambda: Calibrator("ops").run([0.5], [1], times=[1.7e9]),
        lambda: cal.run([0.5, 0.5], [1, 1], times=[1.7e9, 1.6e9]),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert notice.forecasts == 0


def test_downtime_is_taken_out_of_the_delays_of_open_forecasts_once() -> None:
    clock = Clock()
    cal, twin = Calibrator("ops", notice=small(clock)), Calibrator("ops", notice=small(clock))
    assert cal.notice is not None and twin.notice is not None
    forecasts = cal.predict(0.3), twin.predict(0.3)
    begun = clock.now
    for _ in range(2):  # said twice it is the same
        cal.notice.away(begun + 10.0, begun + 5010.0)
    clock.now = begun + 5030.0
    cal.update(forecasts[0], 1)
    clock.now = begun + 30.0
    twin.update(forecasts[1], 1)
    delays = [host.row[DELAY : DELAY + BINS] for host in (cal.notice, twin.notice)]
    np.testing.assert_array_equal(*delays)


def test_a_snapshot_whose_notice_knows_other_forecasts_is_refused() -> None:
    cal = Calibrator("ops", notice=small(Clock()))
    cal.predict(0.5)
    other = Calibrator("ops", notice=small(Clock()))
    text, stranger = json.loads(cal.to_json()), json.loads(other.to_json())
    text["notice"] = stranger["notice"]
    del text["checksum"]
    text["checksum"] = checksum(text)
    with pytest.raises((InvalidInput, SnapshotMismatch), match="notice must know of 1 forecasts, got 0"):
        Calibrator.from_json(json.dumps(text))
