"""Silence, Shift and Notice: the golden vectors, the same bits however they are fed, snapshots, downtime, bad input."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibeat import InvalidInput, Notice, Shift, Silence, SnapshotMismatch
from calibeat._util.sealed import seal
from calibeat.core.subset import plain
from calibeat.monitor import notices, shift, silence
from calibeat.monitor.bets import Alarm
from calibeat.monitor.detector import FORMAT
from calibeat.monitor.notices import Notices, NoticeSettings, heard_of, lags_of
from calibeat.monitor.shift import BET, BETS, PHI, SEEN, UNTIL, WORDS, delay_bin, edges_of, score_bin

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "notice_open.npz")
DAY, HOUR = 86400.0, 3600.0


def cases(kind: str) -> list[str]:
    return sorted({name.split("/")[1] for name in GOLDEN.files if name.startswith(f"{kind}/")})


def golden(kind: str, name: str, column: str) -> Any:
    return GOLDEN[f"{kind}/{name}/{column}"]


# ---- golden vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("score", "delay") for name in cases(kind)])
def test_shift_has_the_alarms_levels_and_dispersions_of_the_reference(kind: str, name: str) -> None:
    detector = Shift() if kind == "score" else Shift(warm=256, of="delay")
    values, levels = golden(kind, name, "value"), []
    for first in range(0, len(values), 100):  # the level behind each hundredth value, from the first on
        detector.run(values[first : first + 1])
        levels.append(detector.level)
        detector.run(values[first + 1 : first + 100])
    found = [[alarm.at, alarm.since, WORDS.index(alarm.what), alarm.page] for alarm in detector.alarms]
    np.testing.assert_allclose(np.array(found).reshape(-1, 4), golden(kind, name, "alarms"), rtol=1e-12)
    np.testing.assert_allclose(levels, golden(kind, name, "level"), rtol=1e-9, atol=1e-300)
    phi = golden(kind, name, "phi")
    np.testing.assert_allclose(detector.row[BETS:].reshape(-1, BET)[:, PHI:], phi, rtol=1e-12)
    assert list(detector.dispersion) == list(WORDS if kind == "score" else WORDS[1:2])
    np.testing.assert_allclose(list(detector.dispersion.values()), np.maximum(phi.max(axis=1), 1.0), rtol=1e-12)


@pytest.mark.parametrize("name", cases("silence"))
def test_silence_has_the_deadlines_and_alarms_of_the_reference(name: str) -> None:
    times, detector, deadlines = golden("silence", name, "time"), Silence(), []
    for time in times:
        detector.arrive(time)
        deadlines.append(detector.deadline)
    detector.check(times[-1] + 1e7)
    np.testing.assert_allclose(deadlines, golden("silence", name, "deadline"), rtol=1e-14)
    found = [[alarm.at, alarm.since] for alarm in detector.alarms]
    np.testing.assert_allclose(found, golden("silence", name, "alarms"), rtol=1e-14)
    assert Silence().run(times) == detector.alarms[: len(detector.alarms) - detector.is_open]


@pytest.mark.parametrize("name", cases("notice"))
def test_notice_has_the_pages_of_the_reference(name: str) -> None:
    columns = [golden("notice", name, column) for column in ("forecast", "score", "outcome")]
    notice = Notice()
    notice.run(*columns)
    wanted = list(zip(golden("notice", name, "page_time"), golden("notice", name, "page_what"), strict=True))
    if name == "forecasts_stop":  # the last of its pages was raised by the clock, after the end of the stream
        assert notice.state == "good"
        notice.check(wanted[-1][0] + 1.0)
    assert [(alarm.at, alarm.what) for alarm in notice.pages] == pytest.approx(wanted)


def test_edges_are_where_the_bins_begin() -> None:
    for bin_of, most in ((score_bin, 1.0), (delay_bin, 2.0**26)):
        for b, edge in enumerate(edges_of(bin_of, most), 1):
            assert bin_of(edge) == b and bin_of(math.nextafter(edge, 0.0)) == b - 1


def test_compiled_kernels_have_the_bits_of_the_python() -> None:
    values = golden("score", "stuck", "value")[2800:3400]
    settings = Shift(warm=100, arl=100).settings
    rows = settings.initial_row(), settings.initial_row()
    for read, row in zip((shift.read_values, plain(shift.read_values)), rows, strict=True):
        at = 0
        while at < len(values):
            at = read(settings.watched, row, values, at)
    np.testing.assert_array_equal(*rows)
    assert rows[0][shift.ALARMS] > 0
    times = golden("silence", "office_stop", "time")[:700]
    rows = Silence().settings.initial_row(), Silence().settings.initial_row()
    for arrive, row in zip((silence.read_arrivals, plain(silence.read_arrivals)), rows, strict=True):
        at = 0
        while at < len(times):
            at = arrive(3e8, row, times, at)
    np.testing.assert_array_equal(*rows)


# ---- the same bits however they are fed ------------------------------------------------------------------------------


def history(n: int = 1500, seed: int = 0) -> tuple[Any, Any, Any]:
    """Forecasts each 20 minutes or so, scores that are stuck in the middle, outcomes half an hour later."""
    rng = np.random.default_rng(seed)
    times = np.round((1.7e9 + np.cumsum(rng.exponential(1200.0, n))) * 1e6) / 1e6
    scores = rng.beta(2.0, 4.0, n)
    scores[n // 2 : n // 2 + 100] = 0.25
    came = np.round((times + rng.exponential(1800.0, n)) * 1e6) / 1e6
    came[rng.random(n) < 0.1] = np.nan
    return times, scores, came


def small(**changes: Any) -> Notice:
    return Notice(**{"arl": 500.0, "warm": 64, "quiet": 100, "every": "30d", **changes})


def test_one_by_one_is_run() -> None:
    times, scores, came = history()
    batch, single = small(), small()
    raised = batch.run(times, scores, came)
    events = [(time, 1, i) for i, time in enumerate(times)] + [
        (time, 0, i)
        for i, time in enumerate(came)
        if time == time  # noqa: PLR0124 - NaN never comes
    ]
    told: list[Alarm] = []
    for time, is_forecast, i in sorted(events):
        told += single.forecast(time, scores[i]) if is_forecast else single.outcome(time, times[i])
    assert raised == told == batch.alarms == single.alarms
    assert {alarm.what for alarm in raised} & {"score stuck", "score narrower"}
    np.testing.assert_array_equal(batch.row, single.row)


@given(st.lists(st.integers(0, 500), max_size=3))
def test_split_anywhere_and_resume(cuts: list[int]) -> None:
    values = golden("score", "stuck", "value")[2800:3300]
    times = golden("silence", "poisson_stop", "time")[:500]
    shift_whole, silence_whole = Shift(arl=200, warm=50), Silence("30d")
    shift_parts, silence_parts = Shift(arl=200, warm=50), Silence("30d")
    shift_whole.run(values)
    silence_whole.run(times)
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), 500], strict=True):
        shift_parts.run(values[first:last])
        silence_parts.run(times[first:last])
        shift_parts, silence_parts = Shift.from_json(shift_parts.to_json()), copy.copy(silence_parts)
    np.testing.assert_array_equal(shift_whole.row, shift_parts.row)
    np.testing.assert_array_equal(silence_whole.row, silence_parts.row)
    assert shift_whole.alarms == shift_parts.alarms
    assert silence_whole.alarms == silence_parts.alarms


def test_rows_of_a_matrix_are_notices() -> None:
    streams = [history(900, seed) for seed in range(3)]
    alone = [small() for _ in streams]
    many = Notices(alone[0].settings)
    many.resize(3)
    raised: list[tuple[int, Alarm]] = []
    slots = np.repeat(np.arange(3, dtype=np.int32), 900)
    times, scores = (np.concatenate([stream[i] for stream in streams]) for i in (0, 1))
    order = np.argsort(times, kind="stable")
    for part in np.array_split(order, 7):
        raised += many.observe(slots[part], times[part], scores[part], np.full(len(slots[part]), np.nan))
        raised += many.observe(slots[part][-5:], times[part][-5:], np.full(5, np.nan), np.full(5, 60.0))
    for part in np.array_split(order, 7):
        for i in part:
            alone[slots[i]].forecast(times[i], scores[i])
        for i in part[-5:]:
            alone[slots[i]].outcome(times[i], times[i] - 60.0)
    for slot, notice in enumerate(alone):
        np.testing.assert_array_equal(many.matrix[slot], notice.row)
        assert [alarm for at, alarm in raised if at == slot] == notice.alarms
    copied = Notices(many.settings)
    copied.resize(3)
    every = np.arange(3, dtype=np.int32)
    copied.set_states(every, many.states(every))
    np.testing.assert_array_equal(copied.matrix, many.matrix)
    late = float(times.max()) + 50 * DAY
    assert sorted({slot for slot, _ in many.check(late)}) == [0, 1, 2]
    assert many.check(late + DAY) == []
    with pytest.raises(InvalidInput, match="bytes each"):
        copied.set_states(every, [b"", b"", b""])


# ---- what they say ---------------------------------------------------------------------------------------------------


def hourly(detector: Silence, days: int = 30, start: float = 1.7e9) -> float:
    times = start + HOUR * np.arange(24 * days)
    detector.run(times)
    return float(times[-1])


def test_a_silence_is_one_alarm_and_an_arrival_ends_it() -> None:
    detector = Silence()
    last = hourly(detector)
    assert detector.check(last + HOUR) is None
    alarm = detector.check(last + DAY)
    assert alarm == Alarm(detector.deadline, last, "silent", True)
    assert detector.check(last + 2 * DAY) is None
    assert detector.is_open
    assert detector.arrive(last + 2 * DAY) is None
    assert not detector.is_open
    assert detector.arrive(last + 2 * DAY - 5.0) is None  # a time before the last arrival is that of the last
    assert detector.last == last + 2 * DAY
    assert detector.count == 1


def test_downtime_is_no_silence() -> None:
    """The night that the service was down neither rings nor teaches, and may be said twice."""
    listening, away = Silence(), Silence()
    last = hourly(listening)
    hourly(away)
    assert away.away(last + 600.0, last + 600.0 + 3 * DAY) is None
    assert away.deadline == pytest.approx(listening.deadline + 3 * DAY, abs=1.0)
    before = away.row
    assert away.away(last + 600.0, last + 600.0 + 3 * DAY) is None
    np.testing.assert_array_equal(away.row, before)
    assert away.check(last + 3 * DAY) is None
    listening.arrive(last + HOUR)
    away.arrive(last + 3 * DAY + HOUR)
    np.testing.assert_allclose(away.row[: silence.START], listening.row[: silence.START], atol=0.05)
    assert away.row[silence.NEW] == pytest.approx(listening.row[silence.NEW], rel=0.05)
    assert away.count == 0


def test_a_silence_before_the_downtime_still_rings() -> None:
    detector = Silence()
    last = hourly(detector)
    alarm = detector.away(last + 2 * DAY, last + 3 * DAY)
    assert alarm is not None and alarm.at < last + 2 * DAY
    assert detector.arrive(last + 3 * DAY + HOUR) is None
    assert detector.count == 1


def test_downtime_is_no_delay_and_no_silence_of_a_stream() -> None:
    notice = Notice()
    times = 1.7e9 + HOUR * np.arange(24 * 30)
    notice.run(times, np.full(len(times), 0.3), times + 60.0)
    notice.forecast(times[-1] + HOUR, 0.3)
    assert notice.away(times[-1] + HOUR + 1.0, times[-1] + 5 * DAY) == []
    assert notice.outcome(times[-1] + 5 * DAY + 30.0) == []
    assert notice.check(times[-1] + 5 * DAY + HOUR) == []
    assert lags_of(np.array([0.0]), np.array([10 * DAY]), [(DAY, 9 * DAY)]).tolist() == [2 * DAY]


def test_states() -> None:
    notice = Notice(warm=100)
    assert notice.state == "learning"
    times, scores, came = history(3000)
    scores[1500:1600] = np.random.default_rng(1).beta(2.0, 4.0, 100)
    notice.run(times, scores, np.where(np.isnan(came), times + 60.0, came))
    assert notice.state == "good"
    assert all(notice.watches.values())
    notice.check(times[-1] + 30 * DAY)
    assert notice.state == "silent"
    never = Notice()
    never.run(times, scores)
    assert never.state == "never an outcome"
    assert never.watches["no outcomes"] is False
    assert [alarm.what for alarm in never.pages] == ["never an outcome"]
    never.outcome(times[-1] + 60.0)
    assert never.state == "learning"


def test_a_new_version_is_not_an_alarm() -> None:
    values = golden("score", "hundredth", "value")
    told, detector = Shift(), Shift()
    told.run(values[:3000])
    told.restart()
    told.run(values[3000:])
    detector.run(values)
    assert told.counts == (0, 0)
    assert detector.counts == (1, 1)
    notice = Notice()
    notice.restart()
    assert notice.counts == (0, 0)


def test_what_they_print() -> None:
    values, times = golden("score", "hundredth", "value"), 1.7e9 + HOUR * np.arange(24 * 30)
    detector, quiet, notice = Shift(), Silence("30d"), Notice()
    detector.run(values)
    assert repr(detector) == f"Shift(arl=1,000,000, scores={len(values):,}, alarms=1, pages=1)"
    last = hourly(quiet)
    assert repr(quiet) == "Silence(every=30 days, alarms=0, open=False)"
    quiet.check(last + DAY)
    assert repr(quiet) == "Silence(every=30 days, alarms=1, open=True)"
    notice.run(times, np.full(len(times), 0.3), times + 60.0)
    notice.check(times[-1] + DAY)
    assert repr(notice) == "Notice(forecasts=720, state='silent', alarms=2, pages=1)"


# ---- hosts that number their events ----------------------------------------------------------------------------------


def one_row() -> Notices:
    many = Notices(NoticeSettings(arl=500.0, warm=64, quiet=100))
    many.resize(1)
    return many


def test_a_batch_that_is_known_changes_nothing() -> None:
    times, scores, _ = history(50)
    many, batch = one_row(), heard_of(np.zeros(50, dtype=np.int32), times, scores, np.ones(50))
    many.run(0, 0, batch)
    once = many.matrix[0].copy()
    assert once[notices.SCORE + SEEN] == 50
    assert many.run(0, 0, batch) == []  # the host says that it had no events before; here are 50
    np.testing.assert_array_equal(many.matrix[0], once)
    assert many.forecast(0, 49, times[-1], 0.5) == []
    np.testing.assert_array_equal(many.matrix[0], once)
    assert not many.queues


def test_of_too_many_open_forecasts_the_times_of_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "PATIENCE", 3)
    many = one_row()
    for event in range(5):
        many.forecast(0, event, 1.7e9 + 60.0 * event, 0.5)
    assert many.queues == {0: {event: 1.7e9 + 60.0 * event for event in (2, 3, 4)}}
    many.outcome(0, 1, 1.7e9 + 600.0)  # came, but nobody knows how late
    assert (many.matrix[0, notices.TOLD], many.matrix[0, notices.DELAY + SEEN]) == (1.0, 0.0)
    many.outcome(0, 2, 1.7e9 + 660.0)
    assert (many.matrix[0, notices.TOLD], many.matrix[0, notices.DELAY + SEEN]) == (2.0, 1.0)


def test_rows_from_elsewhere_begin_anew() -> None:
    times, scores, _ = history(200)
    many, same = one_row(), one_row()
    for made in (many, same):
        made.run(0, 0, heard_of(np.zeros(200, dtype=np.int32), times, scores, np.ones(200)))
        made.forecast(0, 200, times[-1] + 60.0, 0.5)
    slot = np.zeros(1, dtype=np.int32)
    same.restart_changed(slot, np.array([201.0]))  # as many events: it is the same stream
    np.testing.assert_array_equal(same.matrix, many.matrix)
    assert list(same.queues) == [0]
    many.restart_changed(slot, np.array([5000.0]))
    fresh = one_row().matrix[0]
    fresh[notices.SCORE + SEEN], fresh[notices.SCORE + UNTIL] = 5000.0, 5064.0
    np.testing.assert_array_equal(many.matrix[0], fresh)
    assert not many.queues
    assert many.words(slot).tolist() == ["learning"]
    many.forecast(0, 5000, times[-1] + 120.0, 0.5)  # it goes on from there
    assert many.queues == {0: {5000: times[-1] + 120.0}}


# ---- state, threads, bad input ---------------------------------------------------------------------------------------


def test_snapshots_are_whole_and_checked() -> None:
    times, scores, came = history(600)
    for made in (small(), Shift(arl=500, warm=64), Silence("30d")):
        if isinstance(made, Notice):
            made.run(times, scores, came)
        elif isinstance(made, Shift):
            made.run(scores)
        else:
            made.run(times)
        unpickled = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
        for twin in (type(made).from_json(made.to_json()), copy.deepcopy(made), unpickled):
            np.testing.assert_array_equal(twin.row, made.row)
            assert twin.alarms == made.alarms
            assert twin.settings == made.settings
        with pytest.raises(SnapshotMismatch):
            type(made).from_json(made.to_json().replace('"row": [', '"row": [1.5, '))
        with pytest.raises(SnapshotMismatch):
            type(made).from_json('{"format": "else"}')
        bad = made.row
        bad[0] = -1.0
        with pytest.raises(InvalidInput, match="at row 0"):
            made.settings.check_rows(bad[None])
        with pytest.raises(InvalidInput, match=f"row must have {len(bad)} numbers, got {len(bad) - 1}"):
            made.settings.check_rows(made.row[None, :-1])


@pytest.mark.parametrize("alarm", [[3, 1.0, "lower", 1], [3, 1.0, None, True], [3, -1.0, "lower", True], [3, 1.0]])
def test_alarms_of_a_snapshot_are_checked(alarm: list[Any]) -> None:
    state = Shift()._state() | {"alarms": [alarm]}
    with pytest.raises(SnapshotMismatch, match="must"):
        Shift.from_json(seal(Shift.KIND, FORMAT, state))
    state["alarms"] = [[3, 1.0, "lower", True]]
    assert Shift.from_json(seal(Shift.KIND, FORMAT, state)).alarms == [Alarm(3, 1.0, "lower", True)]


def test_a_memory_that_does_not_add_up_is_refused() -> None:
    detector = Shift()
    detector.run(np.random.default_rng(0).random(100))
    state = detector._state()
    state["row"][10] += 7.0
    with pytest.raises(SnapshotMismatch, match="a memory that adds up"):
        Shift.from_json(seal(Shift.KIND, FORMAT, state))


def test_threads_share_one() -> None:
    detector = Shift()
    values = np.random.default_rng(0).random(400)
    threads = [threading.Thread(target=lambda: [detector.update(v) for v in values]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert detector.scores == 1600


@pytest.mark.parametrize(
    "call",
    [
        lambda: Shift(arl=0),
        lambda: Shift(warm=-1),
        lambda: Shift(of="forecast"),
        lambda: Shift().update(1.5),
        lambda: Shift().run([0.5, math.nan]),
        lambda: Shift(of="delay").run(["soon"]),
        lambda: Shift(of="delay").run([1.0, math.inf]),
        lambda: Shift(of="delay").run([[1.0]]),
        lambda: Silence("soon"),
        lambda: Silence("100"),
        lambda: Silence(0),
        lambda: Silence().arrive(-1.0),
        lambda: Silence().arrive(math.nan),
        lambda: Silence().run(["today"]),
        lambda: Silence().run([[1.0, 2.0]]),
        lambda: Silence().check("now"),
        lambda: Silence().away(10.0, 5.0),
        lambda: Notice(arl="many"),
        lambda: Notice().forecast(1e12, 0.5),
        lambda: Notice().forecast(1e9, 5.0),
        lambda: Notice().run([2.0, 1.0], [0.5, 0.5]),
        lambda: Notice().run([1.0, 2.0], [0.5, 0.5], [0.5, 3.0]),
        lambda: Notice().run([1.0], [0.5], ["later"]),
        lambda: Notice().outcome(1.0, "then"),
    ],
)
def test_bad_input_is_a_sentence(call: Any) -> None:
    with pytest.raises(InvalidInput, match="must"):
        call()


def test_every_in_any_kind() -> None:
    assert Silence("10y").settings == Silence(timedelta(days=3650)).settings == Silence(3650 * DAY).settings
    assert NoticeSettings().every == 3650 * DAY
    assert NoticeSettings().width == notices.WIDTH == len(Notice().row)
