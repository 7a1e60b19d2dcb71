"""What the engine answers: ids, repeats, contradictions, batches, restarts; and how its thread begins and ends."""

from __future__ import annotations

import queue
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, desk, whole

from calibeat import Bank, InvalidInput, SnapshotMismatch
from calibeat.service.engine import Engine
from calibeat.service.events import Control, ForecastEvent, OutcomeEvent, Refusal, StreamSettings
from calibeat.service.intake import PartTicket, joined
from calibeat.service.maintenance import check, replay_check
from calibeat.service.model import Model, all_cells
from calibeat.service.settings import EngineSettings


def test_a_forecast_is_that_of_a_bank_and_an_outcome_moves_it(url: str) -> None:
    bank = Bank("tops")
    with desk(url) as service:
        first = service.ask(("paris", "e1", 0.83), ("rome", "e2", 0.3))
        made = bank.fold(["paris", "rome"], [0.83, 0.3], [nan, nan])
        assert first == made.forecasts.tolist()
        assert service.tell(("paris", "e1", 1)) == ["learnt"]
        bank.fold(["paris"], [nan], [1.0], made.receipts[:1])
        assert service.ask(("paris", "e3", 0.7)) == bank.fold(["paris"], [0.7], [nan]).forecasts.tolist()


def test_the_same_id_again_is_the_stored_forecast(url: str) -> None:
    with desk(url) as service:
        told = service.ask(("paris", "e1", 0.83))
        service.tell(("paris", "e1", 1))
        assert service.ask(("paris", "e1", 0.83)) == told
        assert service.engine.counters.forecasts == 1 and service.engine.counters.repeated_forecasts == 1


def test_the_same_id_with_another_score_is_a_conflict(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.83))
        with pytest.raises(Refusal, match=r"id must be new or have the score it had, got 'e1' - at event 1") as caught:
            service.ask(("paris", "e9", 0.2), ("paris", "e1", 0.5))
        assert (caught.value.code, caught.value.status, caught.value.at) == ("conflict", 409, 1)
        assert service.tell(("paris", "e9", 1)) == ["unknown"]  # a batch is taken whole or refused whole
        assert service.ask(("paris", "e9", 0.4))  # the id is still free


def test_nothing_stays_of_a_refused_batch(url: str) -> None:
    with desk(url) as service:
        engine, connection = service.engine, service.engine.store.connection
        service.ask(("paris", "e1", 0.83))
        ghosts = [ForecastEvent(f"ghost{at}", f"g{at}", 0.5) for at in range(50)]
        taken = ForecastEvent("paris", "e1", 0.9)
        for _ in range(3):
            (answer,) = service.group([*ghosts, taken])
            assert isinstance(answer, Refusal) and answer.status == 409
        answers = service.group([*ghosts[:10], taken], [ForecastEvent("rome", "e2", 0.5)], [ghosts[9], taken])
        assert isinstance(answers[0], Refusal) and len(answers[1]) == 1 and isinstance(answers[2], Refusal)
        assert service.tell(("ghost1", "g1", 1)) == ["unknown"]
        assert connection.all("SELECT name FROM stream ORDER BY name") == [("paris",), ("rome",)]
        assert set(engine.streams) == {"paris", "rome"}
        assert service.group(ghosts[:2], [OutcomeEvent("ghost1", "g1", 1)])[1] == ["learnt"]
        assert set(engine.streams) == {"paris", "rome", "ghost0", "ghost1"}
    assert replay_check(url).is_same and check(url) == []


def test_nothing_stays_of_a_group_that_broke_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a fault")

    with desk(url) as service:
        engine = service.engine
        service.ask(("paris", "e1", 0.83))
        with monkeypatch.context() as patched:
            patched.setattr(engine.store, "write", broken)
            with pytest.raises(ValueError, match="a fault"):
                service.ask(("rome", "e2", 0.83))
            engine.forget()
            patched.setattr(Model, "fold", broken)
            with pytest.raises(ValueError, match="a fault"):
                service.ask(("rome", "e2", 0.83))
            engine.forget()
        assert set(engine.streams) == set()  # they are read again
        assert service.ask(("rome", "e2", 0.83)) and service.ask(("paris", "e3", 0.5))
    assert replay_check(url).is_same and check(url) == []


def test_a_batch_may_repeat_itself_but_not_contradict_itself(url: str) -> None:
    with desk(url) as service:
        once, twice = service.ask(("paris", "e1", 0.83), ("paris", "e1", 0.83))
        assert once == twice
        with pytest.raises(Refusal):
            service.ask(("paris", "e2", 0.1), ("paris", "e2", 0.2))


def test_each_outcome_of_a_batch_has_its_own_status(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.83), ("paris", "e2", 0.2), ("rome", "e3", 0.5))
        service.tell(("paris", "e2", 0))
        statuses = service.tell(
            ("paris", "e1", 1), ("paris", "e1", 1), ("paris", "e2", 0), ("paris", "e2", 1), ("rome", "no", 1)
        )
        assert statuses == ["learnt", "repeated", "repeated", "conflict", "unknown"]
        assert service.tell(("paris", "e3", 1), ("nowhere", "e3", 1)) == ["unknown", "unknown"]
        assert service.engine.counters.rejected == {"conflict": 1, "unknown": 3}


def test_requests_of_a_group_see_what_the_ones_before_did(url: str, tmp_path: Path) -> None:
    with desk(url) as service:
        answers = service.group(
            [ForecastEvent("paris", "e1", 0.83)],
            [OutcomeEvent("paris", "e1", 1)],
            [OutcomeEvent("paris", "e1", 0)],
            [ForecastEvent("paris", "e1", 0.83)],
            [ForecastEvent("paris", "e1", 0.84)],
            [ForecastEvent("paris", "e2", 0.83)],
        )
        assert answers[1:3] == [["learnt"], ["conflict"]]
        assert answers[3] == answers[0] and isinstance(answers[4], Refusal)
    with desk(str(tmp_path / "other.db")) as other:  # the same, one by one
        assert other.ask(("paris", "e1", 0.83)) == answers[0]
        other.tell(("paris", "e1", 1))
        assert other.ask(("paris", "e2", 0.83)) == answers[5]


@pytest.mark.parametrize("method", ["tops", "auto", "hops"])
def test_groups_of_any_size_and_restarts_give_the_same_bits(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(3)
    events = [ForecastEvent(f"s{rng.integers(4)}", f"e{i}", float(rng.random())) for i in range(60)]
    outcomes = [OutcomeEvent(e.stream, e.id, int(rng.random() < e.score)) for e in events]
    todo: list[list[Any]] = []
    for i, event in enumerate(events):
        todo.append([event])
        if i >= 7:
            todo.append([outcomes[i - 7]])
    told: list[list[Any]] = []
    for size in (1, 7, 200):
        url, answers = str(tmp_path / f"{size}.db"), []
        for first in range(0, len(todo), size):
            with desk(url, method=method) as now:  # a restart after each group
                answers += now.group(*todo[first : first + size])
        told.append(answers)
        assert replay_check(url).is_same and check(url) == []
    assert told[0] == told[1] == told[2]


def test_streams_that_were_not_used_for_long_leave_the_memory(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.streams.MOST_STREAMS", 4)
    with desk(url, monitor=100.0) as service:
        for i in range(60):
            service.ask((f"s{i % 7}", f"e{i}", 0.4), ("often", f"e{i}", 0.7))
            if i >= 9:
                assert (
                    service.tell((f"s{(i - 9) % 7}", f"e{i - 9}", 1), ("often", f"e{i - 9}", i % 2)) == ["learnt"] * 2
                )
            assert "often" in service.engine.streams and len(service.engine.streams) <= 4
    assert replay_check(url).is_same and not check(url)


def test_a_store_remembers_its_method_and_seed(url: str) -> None:
    with desk(url, method="OPS", seed=7):
        pass
    with desk(url, method=None) as service:
        assert service.engine.model == Model.named("ops", 7)
    with pytest.raises(InvalidInput, match="method must be that of the store, 'ops', got 'tops' - `calibeat store con"):
        Engine.open(url, EngineSettings(method="tops"))
    with pytest.raises(InvalidInput, match="seed must be that of the store, 7, got 8"):
        Engine.open(url, EngineSettings(seed=8))


def test_a_preset_that_has_changed_is_noticed(url: str) -> None:
    with desk(url) as service:
        service.engine.store.connection.run("UPDATE meta SET value = 'other' WHERE name = 'described'")
    with pytest.raises(SnapshotMismatch, match="store must be used with the 'tops' that it was made with"):
        Engine.open(url, EngineSettings())


def test_a_method_that_needs_its_past_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="method must be one that lives in a row"):
        Engine.open(str(tmp_path / "a.db"), EngineSettings(method="fps"))


# ---- the thread -----------------------------------------------------------------------------------------------------


def test_requests_that_wait_become_one_group_and_stop_finishes_them(tmp_path: Path) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops"))
    for at in range(10):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    heard: list[Any] = []
    engine.start(heard.append)
    engine.stop()
    assert [ticket for ticket, _ in heard[0]] == list(range(10)) and len(heard) == 1
    assert engine.counters.groups == 1 and engine.counters.group_size.sum == 10 and engine.counters.queued == 0
    with pytest.raises(Refusal, match="the service must run") as caught:
        engine.submit(1, [ForecastEvent("paris", "e", 0.5)])
    assert caught.value.status == 503


def test_a_group_is_bounded(tmp_path: Path) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops", group=4))
    for at in range(10):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    heard: list[Any] = []
    engine.start(heard.append)
    engine.stop()
    assert [len(group) for group in heard] == [4, 4, 2]


def test_what_is_done_to_a_stream_is_a_group_of_its_own(tmp_path: Path) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops"))
    for at in range(3):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    engine.submit(3, [Control("freeze", "paris")])
    for at in range(4, 6):
        engine.submit(at, [OutcomeEvent("paris", f"e{at - 4}", 1)])
    heard: list[Any] = []
    engine.start(heard.append)
    engine.stop()
    assert [[ticket for ticket, _ in group] for group in heard] == [[0, 1, 2], [3], [4, 5]]
    assert heard[1] == [(3, ["frozen"])] and heard[2] == [(4, ["held"]), (5, ["held"])]


@pytest.mark.parametrize("limit", [{"queue": 3}, {"queue_events": 3}])
def test_a_full_queue_refuses(tmp_path: Path, limit: dict[str, int]) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops", **limit))
    for at in range(3):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    with pytest.raises(Refusal, match="the queue must have room") as caught:
        engine.submit(4, [ForecastEvent("paris", "e4", 0.5)])
    assert (caught.value.code, caught.value.status) == ("full", 503)
    engine.start(lambda _: None)
    engine.stop()


def test_an_error_of_those_who_answer_does_not_stop_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def deliver(answers: Any) -> None:
        done.put(answers)
        raise ConnectionResetError("the client went away")

    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops"))
    engine.start(deliver)
    for name in ("e1", "e2"):
        engine.submit(name, [ForecastEvent("paris", name, 0.5)])
        assert done.get(timeout=60)[0][0] == name
    engine.stop()
    assert "could not be delivered" in caplog.text


def test_a_failed_commit_ends_it_and_nobody_is_answered(tmp_path: Path) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops"))
    heard: list[Any] = []
    ended = threading.Event()
    messages: list[str] = []

    def failed(message: str) -> None:
        messages.append(message)
        ended.set()

    engine.hooks.on_failure = failed
    engine.start(heard.append)
    engine.store.connection.database.execute("PRAGMA max_page_count = 1")
    engine.submit(0, [ForecastEvent(f"s{i}", f"e{i}" * 20, 0.5) for i in range(500)])
    assert ended.wait(60)
    assert heard == [] and "database or disk is full" in messages[0]


def test_a_file_that_fails_between_groups_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed was answered; a file does not come back as a server does."""
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops"))
    heard: list[Any] = []
    ended = threading.Event()
    messages: list[str] = []

    def failed(message: str) -> None:
        messages.append(message)
        ended.set()

    engine.hooks.on_failure = failed
    for module in ("engine", "listening"):
        monkeypatch.setattr(f"calibeat.service.{module}.BEAT", 0.01)
    engine.store.connection.run(  # a sign of life, between groups
        "CREATE TRIGGER broken BEFORE UPDATE ON meta WHEN new.name = 'alive' AND EXISTS (SELECT 1 FROM event) "
        "BEGIN SELECT raise(ABORT, 'broken'); END"
    )
    engine.submit(0, [ForecastEvent("paris", "e1", 0.5)])
    engine.start(heard.extend)
    assert ended.wait(60)
    assert [ticket for ticket, _ in heard] == [0] and not engine.is_away
    assert messages == ["the store could not be written: broken"]
    engine.stop()
    engine.store.close()


def test_what_several_groups_have_changed_is_written_once(url: str) -> None:
    """Cells of groups, and names that leave and come back; all of it waits in the log."""
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", groups=["who"], names=True, cells=8)])
        service.engine.behind.may_wait = True
        words = [f"w{at % 10}" for at in range(25)]
        for at, word in enumerate(words):
            service.group([ForecastEvent("s", f"e{at}", 0.5, groups={"who": word})])
            service.tell(("s", f"e{at}", at % 2))
        (stream,) = service.engine.streams.values()
        book, held = dict(stream.book), all_cells(stream.table)
        service.engine.write_out()
    with desk(url, method="auto") as service:
        service.engine.streams.load({"s"})
        (stream,) = service.engine.streams.values()
        assert list(stream.book.items()) == list(book.items()) and list(book.values()) == words[-8:]
        assert all_cells(stream.table) == held
    assert whole(url)


def test_a_store_that_stays_locked_refuses_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is in the log alone, and between groups."""
    monkeypatch.setattr("calibeat.service.store.sqlite.BUSY", 0.05)
    url, heard = str(tmp_path / "calibeat.db"), list[Any]()
    with desk(url) as service, closing(sqlite3.connect(url, isolation_level=None)) as other:
        engine = service.engine
        engine.behind.may_wait = True
        told = service.ask(("paris", "e1", 0.5))
        engine.hooks.deliver = heard.extend
        other.execute("BEGIN IMMEDIATE")
        engine._turn([(0, [ForecastEvent("paris", "e2", 0.25)]), (1, [OutcomeEvent("paris", "e1", 1)])])
        assert [(ticket, answer.code, answer.status) for ticket, answer in heard] == [
            (0, "unavailable", 503),
            (1, "unavailable", 503),
        ]
        engine.chores.spent.append((1, 7))  # receipts of a state that is gone
        engine._turn([])
        assert engine.behind.pending and engine.chores.spent and service.ask(("paris", "e1", 0.5)) == told
        other.execute("ROLLBACK")
        engine._turn([(2, [ForecastEvent("paris", "e2", 0.25)]), (3, [OutcomeEvent("paris", "e1", 1)])])
        engine._turn([])
        assert heard[2:] == [(2, heard[2][1]), (3, ["learnt"])] and not engine.behind.pending
        assert not engine.chores.spent
    assert whole(url)


def test_settings_are_checked() -> None:
    for bad, sentence in (
        ({"expire_as": 2, "expire": DAY}, "expire_as must be 0, 1 or None"),
        ({"expire_as": 0}, "expire_as must come with expire"),
        ({"expire": DAY, "mature": 2 * DAY}, "expire must be longer than mature"),
        ({"expire": -1.0}, "expire must be in"),
        ({"queue": 0}, "queue must be a whole number"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            EngineSettings(**bad)  # type: ignore[arg-type]


def test_many_outcomes_of_one_request_do_not_hold_up_the_others(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are learnt in several groups, and answered as one request."""
    monkeypatch.setattr("calibeat.service.intake.OUTCOMES_AT_ONCE", 10)
    sizes: list[int] = []
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(url, EngineSettings(method="ops"))
    processed = engine.process
    monkeypatch.setattr(engine, "process", lambda requests: sizes.append(len(requests)) or processed(requests))
    engine.process([(None, [ForecastEvent("paris", f"e{at}", 0.5) for at in range(34)])])
    engine.submit("many", [OutcomeEvent("paris", f"e{at}", at % 2) for at in range(34)])
    engine.submit("one", [ForecastEvent("rome", "x", 0.5)])
    engine.start(lambda answers: [done.put(answer) for answer in answers])
    assert done.get(timeout=60)[0] == "one"
    assert done.get(timeout=60) == ("many", ["learnt"] * 34)
    engine.stop()
    assert len([size for size in sizes if size]) >= 5 and engine.counters.queued == 0


def test_a_part_that_is_refused_refuses_the_request() -> None:
    part, refusal = PartTicket("many", []), Refusal("full", "later", None, 503)
    assert joined([(part, ["learnt"]), ("other", [0.5]), (part, refusal)]) == [("other", [0.5])]
    assert joined([(replace(part, is_last=True), ["learnt"])]) == [("many", refusal)]
