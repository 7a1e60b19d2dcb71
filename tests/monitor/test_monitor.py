"""The host: the same bits however it is fed, snapshots, threads, bad input."""

from __future__ import annotations

import copy
import json
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitors import same, small, stream

from calibeat import InvalidInput, Monitor, OutcomeConflict, SnapshotMismatch, UnknownForecast
from calibeat._util.sealed import seal
from calibeat.monitor.bets import ALARMS, BRIER, PHI, REGIONS, WHOLE, Alarm, N

# ---- the same bits however it is fed -----------------------------------------------------------------------------


def test_one_by_one_is_run() -> None:
    p, y, s = stream()
    batch, single = small(), small()
    alarms = batch.run(p, y, s)
    told = []
    for event in zip(p.tolist(), y.tolist(), s.tolist(), strict=True):
        told += single.update(single.announce(), *event)
    assert alarms == told == batch.alarms
    assert len(alarms) > 3
    same(batch, single)


@given(st.lists(st.integers(0, 300), max_size=4))
def test_split_anywhere_and_resume(cuts: list[int]) -> None:
    p, y, s = stream(300)
    whole, parts = small(), small()
    whole.run(p, y, s)
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), 300], strict=True):
        if first < last:
            parts.run(p[first:last], y[first:last], s[first:last])
            parts = Monitor.from_json(parts.to_json())
    same(whole, parts)


def test_without_scores_there_is_no_gain() -> None:
    p, y, s = stream()
    monitor = small()
    monitor.run(p, y)
    assert math.isnan(monitor.gain.mean)
    assert monitor.gain[1:] == (-math.inf, math.inf)
    monitor.run(p, y, s)
    assert monitor.gain.low < monitor.gain.mean < monitor.gain.high
    assert monitor.gain.mean == pytest.approx(np.mean((s - y) ** 2 - (p - y) ** 2))
    clipped = np.clip(s, 1e-5, 1 - 1e-5)
    losses = [-np.log(np.where(y == 1, q, 1 - q)) for q in (clipped, np.clip(p, 1e-5, 1 - 1e-5))]
    assert monitor.log_gain.mean == pytest.approx(np.mean(losses[0] - losses[1]))


# ---- what it says ------------------------------------------------------------------------------------------------


def test_alarms_within_quiet_do_not_page_and_the_level_starts_again() -> None:
    monitor = Monitor(arl=20, warm=0, quiet=30)
    alarms = monitor.run(np.full(400, 0.9), np.zeros(400))
    gaps = np.diff([alarm.at for alarm in alarms])
    assert alarms[0].page
    assert [alarm.page for alarm in alarms[1:]] == (gaps > 30).tolist()
    assert monitor.counts == (len(alarms), sum(alarm.page for alarm in alarms))
    assert 0.0 <= monitor.level < 1.0
    assert monitor.alarm(1e-9)
    assert monitor.alarm()


def test_only_the_last_alarms_are_kept_and_all_are_counted() -> None:
    monitor = Monitor(arl=1, warm=0)
    told = monitor.run(np.ones(9_000), np.zeros(9_000))
    assert len(told) > 1000
    assert monitor.alarms == told[-1000:]
    assert monitor.counts[0] == len(told)


def test_table() -> None:
    p, y, _ = stream(2_000)
    for regions in (2, 6):
        monitor = Monitor(regions=regions)
        empty = monitor.table
        assert len(empty["count"]) == regions
        assert np.isnan(empty["gap"]).all()
        monitor.run(p, y)
        table = monitor.table
        assert monitor.table().keys() == table.keys()  # either way
        assert table["low"][0] == 0.0 and table["high"][-1] == 1.0
        for low, high, count, forecast, outcome in zip(
            *(table[name] for name in ("low", "high", "count", "forecast", "outcome")), strict=True
        ):
            inside = (p >= low) & (p < high)
            assert count == inside.sum()
            assert forecast == pytest.approx(p[inside].mean())
            assert outcome == pytest.approx(y[inside].mean())
        assert (table["gap_low"] < table["gap"]).all() and (table["gap"] < table["gap_high"]).all()
        assert table["log_e_too_high"][regions // 2 - 1] > 3 > table["log_e_too_low"].max()


def test_an_alarm_says_which_forecasts_it_concerns() -> None:
    for settings in (Monitor().settings, Monitor(regions=2).settings):
        spans = [(alarm.low, alarm.high) for alarm in (Alarm(1, 0.0, what, page=True) for what in settings.cells)]
        regions = zip(settings.edges[:-1], settings.edges[1:], strict=True)
        assert spans == [(0.0, 1.0)] * 4 + [region for region in regions for _ in range(2)]


def test_repr_and_width() -> None:
    assert repr(Monitor()) == "Monitor(arl=1,000,000, outcomes=0, alarms=0, pages=0)"
    assert len(Monitor().row) == 142
    assert len(Monitor(regions=2).row) == 78


# ---- state -------------------------------------------------------------------------------------------------------


def test_copies_go_their_own_way() -> None:
    p, y, s = stream()
    monitor = small()
    monitor.run(p, y, s)
    for twin in (copy.deepcopy(monitor), pickle.loads(pickle.dumps(monitor))):  # noqa: S301 - our own
        same(monitor, twin)
        assert twin.settings == monitor.settings
        before = monitor.outcomes
        twin.run(p, y)
        assert monitor.outcomes == before


def damaged(change: Any) -> str:
    monitor = small(patience=3)
    p, y, s = stream()
    monitor.run(p, y, s)
    for _ in range(5):
        monitor.announce()
    monitor.update(403, 0.5, 1, 0.3)
    monitor.update(404, 0.5, 1)
    state = json.loads(monitor.to_json())
    assert state["queue"]["held"] and state["queue"]["lost"] and state["alarms"]
    change(state)
    inner = {name: state[name] for name in ("settings", "row", "queue", "alarms")}
    return seal("calibeat/monitor", 1, inner)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["settings"].update(arl=-1.0), "arl must be in"),
        (lambda s: s["settings"].update(speed=1.0), "speed"),
        (lambda s: s.update(row=s["row"][:-1]), "142 numbers, got 141"),
        (lambda s: s["row"].__setitem__(3, "x"), r"row\[3\] must be a finite number"),
        (lambda s: s["row"].__setitem__(N, 0.5), "counts that are whole numbers"),
        (lambda s: s["row"].__setitem__(PHI, 0.5), "phi of at least 1"),
        (lambda s: s["row"].__setitem__(ALARMS, 0), "pages <= alarms"),
        (lambda s: s["row"].__setitem__(WHOLE, -1.0), "detectors"),
        (lambda s: s["row"].__setitem__(WHOLE, 1e200), "finite numbers below 1e150"),
        (lambda s: s["row"].__setitem__(REGIONS, 9.0), "regions"),
        (lambda s: s["row"].__setitem__(REGIONS + 1, 1e9), "sums from 0 to their counts"),
        (lambda s: s["row"].__setitem__(BRIER + 2, 3.0), "gains that are possible"),
        (lambda s: s["row"].__setitem__(BRIER + 1, 1e6), "gains that are possible"),
        (lambda s: s.update(queue=3), "queue must have"),
        (lambda s: s["queue"].update(held=3), "held must be a list"),
        (lambda s: s["queue"].update(held=[[1]]), "lists of number"),
        (lambda s: s["queue"]["held"][0].__setitem__(0, 1), "held number"),
        (lambda s: s["queue"]["held"][0].__setitem__(1, 1.5), "held forecast"),
        (lambda s: s["queue"]["held"][0].__setitem__(2, 2), "outcome must be 0 or 1"),
        (lambda s: s["queue"].update(lost=[10**9]), "lost number"),
        (lambda s: s["queue"].update(given_up=7), "queue must fit"),
        (lambda s: s["alarms"][0].__setitem__(0, 10**9), "alarm at"),
        (lambda s: s["alarms"][0].__setitem__(2, 99), "alarm cell"),
        (lambda s: s["alarms"].__setitem__(0, [1]), "monitor can hold"),
    ],
)
def test_a_snapshot_that_no_monitor_can_have_made_is_refused(change: Any, said: str) -> None:
    with pytest.raises(SnapshotMismatch, match=said):
        Monitor.from_json(damaged(change))


def test_a_sound_snapshot_with_everything_in_it_is_taken() -> None:
    monitor = Monitor.from_json(damaged(lambda _: None))
    assert monitor.waiting.held == 2
    assert Monitor.from_json(monitor.to_json()).to_json() == monitor.to_json()


def test_a_damaged_text_is_refused() -> None:
    text = Monitor().to_json()
    for broken in (text[:-5], text.replace("1024", "1025"), text.replace("monitor", "moniteur"), "[]", 7):
        with pytest.raises(SnapshotMismatch):
            Monitor.from_json(broken)  # type: ignore[arg-type]


def test_several_threads() -> None:
    p, y, _ = stream(200)
    monitor = small(patience=10_000)

    def work() -> None:
        for event in zip(p.tolist(), y.tolist(), strict=True):
            monitor.update(monitor.announce(), *event)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.waiting[:4] == (800, 800, 0, pytest.approx(math.nan, nan_ok=True))
    assert monitor.outcomes == 800


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"arl": 0.5}, "arl must be in"),
        ({"arl": math.nan}, "arl must be in"),
        ({"alpha": 0.0}, "alpha must be in"),
        ({"tolerance": -0.1}, "tolerance must be in"),
        ({"quiet": 1.5}, "quiet must be a whole number"),
        ({"warm": -1}, "warm must be a whole number"),
        ({"patience": 0}, "patience must be a whole number"),
        ({"regions": 3}, "regions must be 2 or 6, got 3"),
        ({"regions": True}, "regions must be 2 or 6, got True"),
    ],
)
def test_bad_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Monitor(**settings)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((0, 1.3, 1), InvalidInput, "forecast must be in"),
        ((0, math.nan, 1), InvalidInput, "forecast must be in"),
        ((0, "x", 1), InvalidInput, "forecast must be in"),
        ((0, 0.5, 2), InvalidInput, "outcome must be 0 or 1"),
        ((0, 0.5, 1, -1.0), InvalidInput, "score must be in"),
        ((-1, 0.5, 1), InvalidInput, "number must be a whole number"),
        ((0.0, 0.5, 1), InvalidInput, "number must be a whole number"),
        ((9, 0.5, 1), UnknownForecast, "announced before its outcome, got number 9 after 3"),
        ((1, 0.5, 1), OutcomeConflict, "first of its forecast"),
        ((2, 0.5, 1), OutcomeConflict, "first of its forecast"),
    ],
)
def test_a_bad_update_changes_nothing(arguments: tuple[Any, ...], error: type[Exception], said: str) -> None:
    monitor = Monitor()
    for _ in range(3):
        monitor.announce()
    monitor.update(1, 0.5, 1)
    monitor.update(2, 0.5, 1)
    if arguments[0] == 1:  # one conflict with an outcome that is held, one with an outcome that is read
        monitor.update(0, 0.5, 1)
    before = monitor.to_json()
    with pytest.raises(error, match=said):
        monitor.update(*arguments)
    assert monitor.to_json() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.5, 1.5], [0, 1]), r"forecast must be in \[0, 1\], got 1.5 - at row 1"),
        (([0.5, math.nan], [0, 1]), "forecast must be in .* at row 1"),
        (([0.5, 0.5], [0, 2]), "outcome must be 0 or 1, got 2.0 - at row 1"),
        (([0.5, 0.5], [0]), "same length"),
        (([], []), "must not be empty"),
        (([], [], None, []), "must not be empty"),
        (([0.5, 0.5], [0, 1], [0.5]), "same length"),
        (([0.5, 0.5], [0, 1], [0.5, -1.0]), "score must be in .* at row 1"),
        (([0.5, 0.5], [0, 1], None, [1]), "same length"),
        (([0.5, 0.5], [0, 1], None, [1, 1]), "later than its own position 1"),
        (([0.5, 0.5], [0, math.nan], None, [1, 2]), "outcome must be 0 or 1"),
    ],
)
def test_a_bad_batch_is_not_taken(arguments: tuple[Any, ...], said: str) -> None:
    monitor = Monitor()
    before = monitor.to_json()
    with pytest.raises(InvalidInput, match=said):
        monitor.run(*arguments)
    assert monitor.to_json() == before
