"""Stores that no service writes to: a replay, a move to another method, pruning, and checks that find what is wrong."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, START, desk

from calibeat import Bank, InvalidInput, UnknownMethod
from calibeat.core.stats import STATS
from calibeat.service import maintenance, replay
from calibeat.service.engine import Engine
from calibeat.service.maintenance import check, info, prune, rebuild, replay_check
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection
from calibeat.service.transfer import import_bank


def forecast_of(url: str, stream: str, name: str, score: float, **settings: Any) -> float:
    with desk(url, **{"method": None, **settings}) as service:
        (told,) = service.ask((stream, name, score))
        return float(told)


# ---- replay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tops", "auto", "hops"])
def test_the_replay_gives_the_same_rows(url: str, method: str) -> None:
    with desk(url, method=method) as service:
        service.play(120)
    found = replay_check(url)
    assert found.is_same and found.streams == 3 and found.forecasts == 120 and found.outcomes > 80
    assert check(url) == []


def test_long_streams_are_replayed_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "OPERATIONS_AT_ONCE", 7)
    monkeypatch.setattr(maintenance, "EVENTS_AT_ONCE", 7)
    monkeypatch.setattr(maintenance, "STREAMS_AT_ONCE", 2)
    with desk(url) as service:
        service.play(80)
    assert replay_check(url).is_same
    rebuild(url, "ops")
    assert replay_check(url).is_same


DAMAGE = {
    "the row differs": "UPDATE body SET state = (SELECT state FROM body WHERE stream = 2) WHERE stream = 1",
    "forecasts differ": "UPDATE op SET told = 0.123 WHERE kind = 0 AND nth = 3",
    "forecasts differ, the first": "UPDATE op SET x = 0.9 * x WHERE kind = 0 AND nth = 3",
    "events must be those": "UPDATE event SET learnt = learnt + 1000 WHERE nth = 2",
    "events must be those of the log": "DELETE FROM op WHERE kind = 0 AND nth = 2",
    "events must be those of the log, got 1": "DELETE FROM op WHERE kind = 1 AND nth = 2",
    "without a gap": "DELETE FROM event WHERE nth = 1",
    "forecasts must be numbered": "UPDATE stream SET events = events + 1",
    "pending events must be": "UPDATE stream SET pending = pending + 1",
    "pending events must have receipts": "DELETE FROM receipt",
}


@pytest.mark.parametrize("sentence", DAMAGE)
def test_a_changed_store_is_noticed(url: str, sentence: str) -> None:
    with desk(url) as service:
        service.play(60)
        service.engine.store.connection.run(DAMAGE[sentence])
    found = [*replay_check(url).differences, *check(url)]
    assert any(sentence in difference for difference in found), found


def test_an_outcome_before_its_forecast_is_noticed(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        service.tell(("paris", "e1", 1))
        service.engine.store.connection.run("UPDATE event SET position = learnt, learnt = position")
    assert check(url) == ["stream 'paris': events must be those of the log, got 2 others"]
    assert not replay_check(url).is_same


def test_an_outcome_without_the_receipt_that_its_replay_needs_is_noticed(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5), ("paris", "e2", 0.5))
        service.tell(("paris", "e2", 1))
        now = service.now
    prune(url, DAY, now=now + 2 * DAY)
    with desk(url) as service:
        service.tell(("paris", "e1", 1))
        service.engine.store.connection.run("DELETE FROM receipt")
    assert replay_check(url).differences == ["stream 'paris': outcomes must be 1, got 2"]


ROLLUP_DAMAGE = {
    "before all events": "UPDATE rollup SET hour = hour - 1000 WHERE hour = (SELECT min(hour) FROM rollup)",
    "in the middle": "UPDATE rollup SET sum_y = sum_y + 1 WHERE hour = (SELECT min(hour) + 2 FROM rollup)",
    "the last": "DELETE FROM rollup WHERE hour = (SELECT max(hour) FROM rollup)",
    "behind all events": "UPDATE rollup SET hour = hour + 1000 WHERE hour = (SELECT max(hour) FROM rollup)",
}


@pytest.mark.parametrize("where", ROLLUP_DAMAGE)
def test_roll_ups_are_compared_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(maintenance, "EVENTS_AT_ONCE", 3)
    with desk(url) as service:
        service.play(80, streams=1)  # hours of several pieces, and pieces of several hours
        for hour in range(8):
            service.now += 3600.0
            service.ask(("s0", f"hour{hour}", 0.5))
        assert check(url) == []
        assert service.engine.store.connection.run(ROLLUP_DAMAGE[where]) > 0
    assert check(url) == ["stream 's0': the hourly roll-ups must be the sums of the events, got others"]


def test_a_stream_without_events_is_made_anew(url: str, tmp_path: Path) -> None:
    bank = Bank("tops")
    bank.set_rows(["unused"], np.concatenate([bank.method.initial_row(), np.zeros(STATS)])[None, :])
    bank.save(tmp_path / "a.bank")
    import_bank(url, tmp_path / "a.bank")
    rebuild(url, "ops")
    assert replay_check(url).is_same and check(url) == []


# ---- memory ---------------------------------------------------------------------------------------------------------


def peak(work: Any) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_a_stream(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all but the receipts of forecasts whose outcome comes later: here there are at most 600 of them."""
    monkeypatch.setattr(replay, "OPERATIONS_AT_ONCE", 200)
    monkeypatch.setattr(maintenance, "EVENTS_AT_ONCE", 200)
    monkeypatch.setattr("calibeat.service.store.postgres._AT_ONCE", 200)
    peaks: list[list[int]] = []
    done = 0
    for events in (1_000, 6_000):
        with desk(url) as service:
            while done < events:
                made = range(done, done + 500)
                service.ask(*(("one", f"e{i}", i % 97 / 97, START + 60.0 * i) for i in made))
                service.tell(*(("one", f"e{i - 100}", i % 2, START + 60.0 * i) for i in made if i >= 100))
                done += 500
        peaks.append([peak(partial(work, url)) for work in (replay_check, check, rebuild)])
    small, large = peaks
    large.append(peak(lambda: prune(url, 1.0, now=START + 60.0 * (done - 300))))
    assert all(b < 1.5 * a for a, b in zip([*small, small[0]], large, strict=True)), peaks
    assert info(url)["events stored"] < 1_000 and replay_check(url).is_same and check(url) == []


def test_sums_that_are_not_those_of_the_events_are_noticed(url: str) -> None:
    with desk(url) as service:
        service.play(60)
        assert check(url) == []
        service.engine.store.connection.run("UPDATE rollup SET sum_y = sum_y + 1 WHERE kind = 1")
        assert "the hourly roll-ups must be the sums" in check(url)[0]
        service.engine.store.connection.run("UPDATE stream SET outcomes = outcomes + 1")
        assert "outcomes events must be" in check(url)[0]


def test_a_service_may_run_while_its_store_is_replayed(url: str) -> None:
    with desk(url) as service:
        service.play(30)
        assert replay_check(url).is_same


# ---- another method -------------------------------------------------------------------------------------------------


def test_a_store_moves_to_another_method(url: str) -> None:
    with desk(url) as service:
        service.play(100, streams=1)
        told = service.ask(("s0", "before", 0.6))
        log = service.engine.store.connection.all(
            "SELECT o.x, e.outcome, e.position, e.learnt FROM event e JOIN op o ON o.position = e.position "
            "ORDER BY e.nth"
        )
    assert rebuild(url, "OPS").streams == 1
    assert replay_check(url).is_same and info(url)["method"] == "ops"
    # The new state is that of a bank that had served all events from the start.
    bank, receipts = Bank("ops"), {}
    todo = [(seq, at, None) for at, (_, _, seq, _) in enumerate(log)]
    todo += [(later, at, outcome) for at, (_, outcome, _, later) in enumerate(log) if later is not None]
    for _, at, outcome in sorted(todo):
        if outcome is None:
            receipts[at] = bank.fold(["s0"], [log[at][0]], [float("nan")]).receipts
        else:
            bank.fold(["s0"], [float("nan")], [float(outcome)], receipts[at])
    with desk(url, method=None) as service:
        assert service.ask(("s0", "before", 0.6)) == told  # what was told stays told
        after = service.ask(("s0", "after", 0.6))
        assert after == bank.fold(["s0"], [0.6], [float("nan")]).forecasts.tolist()
        assert service.tell(("s0", "before", 1)) == ["learnt"]  # pending events are learnt by the new method
        service.play(30, seed=1)
    assert replay_check(url).is_same and check(url) == []


def test_a_store_that_a_service_writes_is_left_alone(url: str) -> None:
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.start(lambda _: None)
    try:
        for work in (lambda: rebuild(url, "ops"), lambda: prune(url, 0.0)):
            with pytest.raises(InvalidInput, match="store must"):
                work()
    finally:
        engine.stop()
    assert info(url)["method"] == "tops"


def test_a_bad_method_changes_nothing(url: str) -> None:
    with desk(url) as service:
        service.play(10)
    with pytest.raises(UnknownMethod):
        rebuild(url, "topz")
    assert replay_check(url).is_same and info(url)["method"] == "tops"


# ---- pruning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitor", [None, 1000.0])
@pytest.mark.parametrize("method", ["tops", "hops"])
def test_old_events_go_and_the_state_stays(url: str, method: str, monitor: float | None) -> None:
    settings = {"method": method, "monitor": monitor, "expire": 3000.0}
    with desk(url, **settings) as service:
        service.play(150)
        middle = service.now
        service.play(60, seed=1)
        service.play(20, seed=2, streams=2)
        now = service.now
    before, expected = info(url), forecast_of(url, "s0", "next", 0.6, monitor=monitor)
    assert replay_check(url).is_same
    deleted = prune(url, now - middle, now=now)
    after = info(url)
    assert 50 < deleted <= 150
    assert after["events stored"] == before["events stored"] + 1 - deleted and after["forecasts"] == 231
    assert replay_check(url).is_same and check(url) == []
    with desk(url, **settings) as service:
        service.now = now
        assert service.ask(("s0", "next", 0.6)) == [expected]
        service.play(60, seed=3)
        later = service.now
    assert replay_check(url).is_same and check(url) == []
    assert prune(url, later - now, now=later) > 0  # once more, from the base of the first time
    assert replay_check(url).is_same and check(url) == []
    if monitor is None:
        rebuild(url, "ops")  # of what is left
        assert replay_check(url).is_same and check(url) == []
        with desk(url, method=None) as service:
            service.play(30, seed=4)
        assert replay_check(url).is_same


def test_everything_old_is_pruned(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        service.tell(("paris", "e1", 1))
        expected = service.ask(("paris", "e2", 0.5))
        service.tell(("paris", "e2", 1))
        now = service.now
    assert prune(url, DAY, now=now + 2 * DAY) == 2
    assert replay_check(url).is_same and check(url) == []
    rebuild(url)  # nothing is left to learn from
    assert replay_check(url).is_same
    with desk(url) as service:
        assert service.ask(("paris", "e1", 0.5)) == service.ask(("oslo", "e3", 0.5)) != expected


def test_what_waited_when_the_store_was_pruned_is_replayed(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5), ("paris", "e2", 0.5))
        service.tell(("paris", "e2", 1))
        now = service.now
    assert prune(url, DAY, now=now + 2 * DAY) == 1
    with desk(url) as service:
        assert service.tell(("paris", "e1", 1)) == ["learnt"]
        service.ask(("paris", "e3", 0.5))
    assert replay_check(url).is_same and check(url) == []
    rebuild(url, "ops")
    assert replay_check(url).is_same and check(url) == []


def test_a_correction_that_waits_is_not_pruned_away(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        service.tell(("paris", "e1", 1))
        assert service.correct(("paris", "e1", 0)) == ["corrected"]
        now = service.now
    with pytest.raises(InvalidInput, match="no corrections that wait, got 1 correction: `calibeat store replay`"):
        prune(url, DAY, now=now + 2 * DAY)
    assert rebuild(url).corrected == 1
    assert prune(url, DAY, now=now + 2 * DAY) == 1
    assert replay_check(url).is_same and check(url) == []


def test_nothing_young_is_pruned(url: str) -> None:
    with desk(url) as service:
        service.play(20)
        now = service.now
    assert prune(url, 365 * DAY, now=now) == 0
    assert info(url)["pruned before"] is None


# ---- info -----------------------------------------------------------------------------------------------------------


def test_a_store_in_numbers(url: str) -> None:
    with desk(url, monitor=1e6, seed=3) as service:
        service.play(20)
    found = info(url)
    assert (found["method"], found["seed"], found["monitor"], found["forecasts"]) == ("tops", 3, 1e6, 20)
    assert found["bytes"] > 10_000 and found["streams"] == 3 and found["first"] < found["last"]


def test_a_store_that_is_not_there(tmp_path: Any) -> None:
    for work in (replay_check, check, info, rebuild):
        with pytest.raises(FileNotFoundError, match="store must exist, got nothing"):
            work(str(tmp_path / "no.db"))
    for bad in ("mysql://localhost/a", "", "sqlite://", "sqlite:///"):
        with pytest.raises(InvalidInput, match="store must be a path, sqlite:///PATH or postgresql://"):
            open_connection(bad)
