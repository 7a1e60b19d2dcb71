"""Corrections, retractions and forgetting: the stream is made anew, as if what is right had been learnt at once."""

from __future__ import annotations

import queue
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from served import wait_until
from services import DAY, Desk, desk, desk_beside, feed, stream_of, told, whole

from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import Control, CorrectionEvent, ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import configure, info, prune, rebuild
from calibeat.service.rework import Rework, Reworker, waiting_streams
from calibeat.service.store import open_connection


def outcome(at: int) -> int:
    return int(at % 3 == 0)


@pytest.mark.parametrize(("method", "monitor"), [("tops", 1000.0), ("hops", None), ("auto", None)])
def test_corrected_outcomes_give_the_state_that_the_right_ones_had_given(
    url: str, tmp_path: Path, method: str, monitor: float | None
) -> None:
    scores = np.random.default_rng(3).random(80).tolist()
    with desk(url, method=method, monitor=monitor) as service, desk_beside(tmp_path, method=method) as other:
        for here, wrong in ((service, range(30, 50)), (other, range(0))):
            requests: list[list[Any]] = []
            for at, score in enumerate(scores):
                requests.append([ForecastEvent("paris", f"e{at}", score)])
                if at >= 4:
                    requests.append([OutcomeEvent("paris", f"e{at - 4}", outcome(at) ^ (at - 4 in wrong))])
            here.group(*requests)
        before = service.ask(*(("paris", f"e{at}", scores[at]) for at in range(80)))
        assert service.correct(*(("paris", f"e{at}", outcome(at + 4)) for at in range(30, 50))) == ["corrected"] * 20
        assert stream_of(url).corrections == 20
        assert service.engine.rework_all() == 20
        assert whole(url) and info(url)["corrections that wait"] == 0 and stream_of(url).corrections == 0
        assert service.ask(*(("paris", f"e{at}", scores[at]) for at in range(80))) == before
        assert told(service, "after") == told(other, "after")
        for here in (service, other):  # with the receipts of what was pending
            here.tell(*(("paris", f"e{at}", 1) for at in range(76, 80)))
        assert told(service, "end") == told(other, "end")
        assert stream_of(url).outcomes == 80
        feed(service, 30, seed=1)
    assert whole(url)


@pytest.mark.parametrize("monitor", [None, 1000.0])
def test_a_retracted_outcome_is_unknown_again(url: str, tmp_path: Path, monitor: float | None) -> None:
    with desk(url, monitor=monitor) as service, desk_beside(tmp_path) as other:
        for here, never in ((service, set[int]()), (other, {7, 20})):
            requests: list[list[Any]] = []
            for at in range(40):
                requests.append([ForecastEvent("paris", f"e{at}", at / 40)])
                requests.append([OutcomeEvent("paris", f"e{at}", outcome(at))] if at not in never else [])
            here.group(*filter(None, requests))
        assert service.correct(("paris", "e7", None), ("paris", "e20", None)) == ["corrected", "corrected"]
        assert service.correct(("paris", "e7", None)) == ["repeated"]
        assert service.engine.rework_all() == 2
        stream = stream_of(url)
        assert (stream.outcomes, stream.pending) == (38, 2) and whole(url)
        assert told(service, "after") == told(other, "after")
        assert service.correct(("paris", "e20", None)) == ["repeated"]
        assert service.tell(("paris", "e20", 1), ("paris", "e20", 0)) == ["learnt", "conflict"]
        other.tell(("paris", "e20", 1))
        assert told(service, "end") == told(other, "end")
        assert service.correct(("paris", "e30", None)) == ["corrected"]
        assert service.tell(("paris", "e30", outcome(30))) == ["corrected"]  # before it was applied
        assert service.engine.rework_all() == 0 and stream_of(url).outcomes == 39
    assert whole(url)
    rebuild(url, "ops")
    assert whole(url)


def test_corrections_and_what_is_done_to_streams_come_in_any_order(url: str) -> None:
    with desk(url, monitor=1000.0, expire=5000.0) as service:
        feed(service, 40)
        service.do("passthrough", "paris")
        feed(service, 20, seed=1)
        service.do("freeze", "paris")
        feed(service, 10, seed=2)
        service.correct(("paris", "paris-0-3", None), ("paris", "paris-1-5", 1), ("paris", "paris-2-1", None))
        service.engine.rework_all()
        assert whole(url)
        service.do("resume", "paris")
        service.tick(100.0)
        service.do("reset", "paris")
        feed(service, 20, seed=3)
        service.correct(("paris", "paris-0-9", None), ("paris", "paris-0-10", 1), ("paris", "paris-3-5", 1))
        service.do("rename", "paris", to="lutetia")
        service.engine.rework_all()
        assert whole(url)
        service.tick(6000.0)
        feed(service, 10, stream="lutetia", seed=4)
        service.correct(("lutetia", "paris-3-6", 1), ("lutetia", "paris-3-7", 1))
        service.engine.rework_all()
        now = service.now
        service.play(30)
        service.play(30, seed=1)
    assert whole(url)
    prune(url, 3000.0, now=now)
    assert whole(url)


# ---- forgetting -----------------------------------------------------------------------------------------------------


def traces(url: str, name: str) -> int:
    with closing(open_connection(url)) as connection:
        found = connection.all("SELECT count(*) FROM event WHERE id = ?", (name,))[0][0]
    if not url.startswith("postgresql"):
        for file in Path(url).parent.glob(Path(url).name + "*"):
            found += file.read_bytes().count(name.encode())
    return int(found)


@pytest.mark.parametrize(("method", "monitor"), [("tops", 1000.0), ("hops", None)])
def test_a_forgotten_event_is_gone_and_what_was_learnt_stays(
    url: str, tmp_path: Path, method: str, monitor: float | None
) -> None:
    with desk(url, method=method, monitor=monitor) as service, desk_beside(tmp_path, method=method) as other:
        for here in (service, other):
            feed(here, 40)
            here.ask(("paris", "person-7-order", 0.73))
            here.tell(("paris", "person-7-order", 1))
            here.ask(("paris", "person-7-open", 0.21))
            feed(here, 40, seed=1)
        before = stream_of(url)
        assert service.forget("paris", "person-7-order", "person-7-open") == 2
        stream = stream_of(url)
        assert (stream.events, stream.outcomes, stream.pending) == (
            before.events,
            before.outcomes - 1,
            before.pending - 1,
        )
        assert whole(url)
        assert service.tell(("paris", "person-7-order", 1)) == ["unknown"]
        assert told(service, "after") == told(other, "after")  # the row that was learnt stays
        # What was learnt later can be corrected, what was learnt before cannot.
        assert service.correct(("paris", "paris-0-3", None), ("paris", "paris-1-20", None)) == ["final", "corrected"]
        assert service.engine.rework_all() == 1 and whole(url)
        feed(service, 30, seed=2)
    assert whole(url) and traces(url, "person-7") == 0
    rebuild(url, "ops")
    assert whole(url)
    assert prune(url, DAY, now=service.now + 2 * DAY) > 90
    assert whole(url)


def test_the_only_event_of_a_stream_is_forgotten(url: str) -> None:
    with desk(url, monitor=1000.0) as service:
        service.ask(("paris", "e1", 0.3), ("rome", "r1", 0.5))
        service.tell(("paris", "e1", 1))
        assert service.forget("paris", "e1") == 1
        assert whole(url) and stream_of(url).outcomes == 0 and stream_of(url).log_loss is None
        service.ask(("paris", "e1", 0.7))  # an id like another
        service.tell(("paris", "e1", 1))
        assert service.forget("paris", "e1") == 1 and service.forget("rome", "r1") == 1
        service.play(20)
    assert whole(url)


def test_forgetting_twice_before_it_is_done_is_forgetting_once(url: str) -> None:
    with desk(url) as service:
        feed(service, 30)
        for _ in range(2):
            service.engine.process([(None, [Control("forget", "paris", ids=("paris-0-9",))])])
            assert info(url)["corrections that wait"] == 1
        assert service.engine.rework_all() == 1
        assert service.tell(("paris", "paris-0-9", 1)) == ["unknown"]
    assert whole(url)


def test_forgetting_waits_for_corrections_of_the_past(url: str) -> None:
    with desk(url) as service:
        feed(service, 30)
        engine = service.engine
        engine.process([(None, [Control("forget", "paris", ids=("paris-0-20",))])])
        assert service.correct(("paris", "paris-0-20", 1)) == ["unknown"]
        assert service.tell(("paris", "paris-0-20", 1)) == ["unknown"]
        assert service.correct(("paris", "paris-0-5", None)) == ["corrected"]
        assert engine.rework_all() == 2
        assert stream_of(url).pending == 4
    assert whole(url)


def test_an_outcome_that_comes_while_it_is_retracted_is_not_lost(url: str) -> None:
    with desk(url) as service, closing(open_connection(url)) as connection:
        service.ask(*(("paris", f"e{at}", at / 40) for at in range(40)))
        service.tell(*(("paris", f"e{at}", outcome(at)) for at in range(40)))
        assert service.correct(("paris", "e30", None)) == ["corrected"]
        ((number, name),) = waiting_streams(connection)
        rework = service.engine.reworks[number] = Rework(number, name)
        connection.begin_reading()
        rework.start(connection, service.engine.model)
        assert sum(rework.replay(connection)) == 80
        connection.rollback()
        assert service.tell(("paris", "e30", 0)) == ["corrected"]
        service.engine._put_in_place(rework)
        assert not rework.is_applied and stream_of(url).corrections == 2
        assert service.engine.rework_all() == 1 and stream_of(url).outcomes == 40
        assert service.tell(("paris", "e30", 1 - outcome(30)), ("paris", "e30", outcome(30))) == [
            "repeated",
            "conflict",
        ]
    assert whole(url)


# ---- while the service goes on --------------------------------------------------------------------------------------


def test_a_stream_is_served_while_it_is_made_anew(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens meanwhile is in the new state, too."""
    monkeypatch.setattr("calibeat.service.rework.OPERATIONS_AT_ONCE", 10)
    monkeypatch.setattr("calibeat.service.rework.TAIL", 5)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(url, EngineSettings(method="tops", monitor=1000.0))
    engine.start(lambda group: [answers.put(answer) for answer in group])

    def ask(events: list[Any]) -> Any:
        engine.submit(0, events)
        return answers.get(timeout=60)[1]

    rng, at = np.random.default_rng(0), 0
    for _ in range(30):
        scores = rng.random(10).tolist()
        ask([ForecastEvent("paris", f"e{at + i}", score) for i, score in enumerate(scores)])
        ask([OutcomeEvent("paris", f"e{at + i}", int(rng.random() < score)) for i, score in enumerate(scores[:9])])
        at += 10
    progress = []
    for number in range(60):
        if number % 20 == 0:
            assert ask([CorrectionEvent("paris", f"e{number}", None)]) == ["corrected"]
        if number == 30:
            assert ask([Control("passthrough", "paris")]) == ["passthrough"]
        if number == 40:
            assert ask([Control("forget", "paris", ids=("e5",))]) == ["forgotten"]
        ask([ForecastEvent("paris", f"f{number}", 0.3), ForecastEvent("rome", f"r{number}", 0.3)])
        ask([OutcomeEvent("paris", f"f{number}", 1)])
        progress += [(rework.done, rework.total) for rework in engine.reworks.values()]
    assert ask([Control("forget", "paris", ids=("e7",))]) == ["forgotten"]
    engine.stop()
    assert whole(url) and stream_of(url).outcomes == 30 * 9 + 60 - 5 and info(url)["corrections that wait"] == 0
    assert all(0 <= done <= total for done, total in progress)


def replayed(service: Desk, url: str) -> Rework:
    """The only stream that waits, made anew up to now; the engine has still to put it in its place."""
    with closing(open_connection(url)) as connection:
        ((number, name),) = waiting_streams(connection)
        rework = service.engine.reworks[number] = Rework(number, name)
        connection.begin_reading()
        rework.start(connection, service.engine.model)
        for _ in rework.replay(connection):
            pass
        connection.rollback()
    return rework


@pytest.mark.parametrize("is_much", [True, False])
def test_what_is_done_to_a_stream_meanwhile_is_done_to_its_new_state(
    url: str, monkeypatch: pytest.MonkeyPatch, is_much: bool
) -> None:
    """Most of much is replayed by the thread that reads, and the rest by the engine."""
    monkeypatch.setattr("calibeat.service.rework.TAIL", 8 if is_much else 200)
    monkeypatch.setattr("calibeat.service.rework.OPERATIONS_AT_ONCE", 10)
    with desk(url, monitor=1000.0) as service:
        feed(service, 40)
        service.correct(("paris", "paris-0-3", None))
        rework = replayed(service, url)
        assert service.do("passthrough", "paris") == "passthrough"
        feed(service, 10, seed=1)
        assert service.do("reset", "paris") == "reset"
        fresh = stream_of(url)
        feed(service, 10, seed=2)
        noted = len(rework.tail)
        with closing(open_connection(url)) as connection:
            rework.catch_up(connection)
        assert len(rework.tail) == (6 if is_much else noted) and noted == 34 + 2
        service.engine._put_in_place(rework)
        assert rework.is_applied and rework.ended.is_set() and service.engine.reworks == {}
        stream = stream_of(url)
        assert stream.passthrough and (stream.events, stream.outcomes) == (60, fresh.outcomes + 7 - 1)
    assert whole(url)


def test_the_first_one_that_is_ready_is_put_in_place_and_no_other(url: str) -> None:
    with desk(url) as service:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        first, second = replayed(service, url), replayed(service, url)
        service.engine.reworks[first.number] = first
        service.engine._put_in_place(first)
        before = stream_of(url)
        service.engine.reworks[second.number] = second
        service.engine._put_in_place(second)
        assert (first.is_applied, second.is_applied) == (True, False) and second.ended.is_set()
        assert stream_of(url) == before
    assert whole(url)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_log_with_a_hole_makes_no_new_state(url: str, is_seen: bool) -> None:
    """The end of the log is lost: before it was replayed, or after it."""
    with desk(url) as service:
        feed(service, 30, late=0)
        service.correct(("paris", "paris-0-3", None))
        rework = None if is_seen else replayed(service, url)
        service.engine.reworks.clear()  # nothing is noted, as if another process did the rest
        service.ask(("paris", "x", 0.5), ("paris", "y", 0.5))
        service.engine.store.connection.run("DELETE FROM event WHERE id = 'y'")
        rework = rework or replayed(service, url)
        before = stream_of(url)
        service.engine.reworks[rework.number] = rework
        service.engine._put_in_place(rework)
        assert not rework.is_applied and rework.ended.is_set()
        assert stream_of(url) == before and before.corrections == 1


def test_a_correction_of_an_event_that_is_gone_is_done_with(url: str) -> None:
    with desk(url) as service:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None), ("paris", "paris-0-4", None))
        before = stream_of(url)
        service.engine.store.connection.run("DELETE FROM event WHERE id = 'paris-0-3'")
        assert service.engine.rework_all() == 1
        stream = stream_of(url)
        assert stream.corrections == 0 and stream.outcomes == before.outcomes - 1
        assert waits(url) == []


def waits(url: str) -> list[tuple[int, str]]:
    with closing(open_connection(url)) as connection:
        return waiting_streams(connection)


def test_a_monitor_that_began_in_the_middle_stays_what_it_is(url: str) -> None:
    """It cannot be replayed, and the forecasts can."""
    with desk(url) as service:
        feed(service, 40)
    configure(url, monitor=1000.0)
    with desk(url, monitor=1000.0) as service:
        feed(service, 40, seed=1)
        monitor = "SELECT monitor FROM body"
        before = service.engine.store.connection.all(monitor)
        assert before != [(None,)]
        service.correct(("paris", "paris-0-3", None), ("paris", "paris-1-3", None))
        outcomes = stream_of(url).outcomes
        assert service.engine.rework_all() == 2
        assert stream_of(url).outcomes == outcomes - 2
        assert service.engine.store.connection.all(monitor) == before
        feed(service, 20, seed=2)
    assert whole(url)


def test_forecasts_that_nobody_reads_any_more_are_not_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.maintenance.MOST_SAID", 3)
    monkeypatch.setattr("calibeat.service.rework.OPERATIONS_AT_ONCE", 10)
    with desk(url, monitor=1000.0) as service:
        feed(service, 80)
        service.correct(("paris", "paris-0-3", 0), ("paris", "paris-0-4", None))
        rework = replayed(service, url)
        assert 0 < len(rework.play._said) < 40  # of more than 70 that are others now
        service.engine._put_in_place(rework)
        assert rework.is_applied
        feed(service, 20, seed=1)
    assert whole(url)


def test_what_waits_when_a_service_stops_is_done_by_the_next(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with desk(url) as service:
        service.ask(("paris", "person-7", 0.5))
        service.tell(("paris", "person-7", 1))
        feed(service, 60)
    monkeypatch.setattr("calibeat.service.rework.OPERATIONS_AT_ONCE", 1)
    monkeypatch.setattr("calibeat.service.rework.PAUSE", 0.05)
    for is_stopped in (True, False):
        engine = Engine.open(url, EngineSettings(method="tops"))
        engine.start(lambda group: [answers.put(answer) for answer in group])
        if is_stopped:
            engine.submit("forget", [Control("forget", "paris", ids=("person-7",))])
            wait_until(lambda: [rework for rework in engine.reworks.values() if rework.done])  # noqa: B023
        else:
            monkeypatch.setattr("calibeat.service.rework.PAUSE", 0.0)
            wait_until(lambda: not waits(url))
        engine.stop()
        assert len(waits(url)) == is_stopped
    ticket, refusal = answers.get_nowait()
    assert (ticket, refusal.code, refusal.status) == ("forget", "stopping", 503) and answers.empty()
    assert refusal.message.endswith("it is done after the next start")
    assert whole(url) and traces(url, "person-7") == 0


def test_a_new_state_waits_for_an_engine_that_has_other_things_to_do(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.rework.AGAIN_SECONDS", 0.01)
    with desk(url) as service:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        reworker = Reworker(service.engine, url)
        reworker.start()
        wait_until(lambda: service.engine._finished)
        time.sleep(0.1)  # it looks several times
        assert len(service.engine.reworks) == 1 and stream_of(url).corrections == 1
        service.engine._put_in_place(service.engine._finished.popleft())
        wait_until(lambda: not service.engine.reworks)
        assert stream_of(url).corrections == 0
        reworker.stop()
    assert whole(url)


def test_a_stream_that_is_gone_keeps_no_other_waiting(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with desk(url) as service, closing(open_connection(url)) as connection:
        for name in ("paris", "rome"):
            feed(service, 30, stream=name)
            service.correct((name, f"{name}-0-3", None))
        (number, name), _ = waiting_streams(connection)
        assert service.do("delete", name) == "deleted"
        service.engine.finish_all()
        reworker = Reworker(service.engine, url)
        assert reworker._try(connection, number, name) is False
        assert f"stream {number} could not be made anew" in caplog.text
        assert f"stream must be there, got none of number {number}" in caplog.text
        assert service.engine.reworks == {}
        assert service.engine.rework_all() == 1 and stream_of(url, "rome").corrections == 0
    assert whole(url)


def test_a_fault_of_ours_leaves_the_old_state_and_the_service(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes late, when half of the new state is written."""

    def fails(*_: Any) -> None:
        raise ArithmeticError("no such number")

    with desk(url) as service:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        before = stream_of(url)
        with monkeypatch.context() as patched:
            patched.setattr(Rework, "_state", fails)
            assert service.engine.rework_all() == 0
        assert "could not be made anew" in caplog.text and "no such number" in caplog.text
        assert stream_of(url) == before and service.engine.reworks == {}
        feed(service, 10, seed=1)
        assert service.engine.rework_all() == 1 and stream_of(url).corrections == 0
    assert whole(url)


# ---- a server that goes away ----------------------------------------------------------------------------------------


def test_a_session_that_ends_while_a_stream_is_read_ends_the_round(server: Any) -> None:
    url = server.database()
    with desk(url) as service, closing(open_connection(url)) as connection:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        ((number, name),) = waiting_streams(connection)
        end_session(url, connection)
        with pytest.raises(connection.outages):
            Reworker(service.engine, url)._try(connection, number, name)
        assert service.engine.reworks == {} and service.engine.rework_all() == 1
    assert whole(url)


def test_a_session_that_ends_before_the_new_state_is_there_leaves_the_old_one(server: Any) -> None:
    url = server.database()
    with desk(url) as service:
        engine = service.engine
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        early, late = replayed(service, url), replayed(service, url)
        end_session(url, engine.store.connection)
        engine._guard(lambda: engine._put_in_place(late))
        assert engine.is_away and late.ended.is_set() and not late.is_applied
        engine._return()
        assert not engine.is_away and stream_of(url).corrections == 1
        engine._put_in_place(early)  # which has not heard what came meanwhile
        assert early.ended.is_set() and not early.is_applied and stream_of(url).corrections == 1
        assert engine.rework_all() == 1
    assert whole(url)


def test_rows_that_another_holds_get_their_new_state_later(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.postgres.LOCKED", 0.1)
    url = server.database()
    with desk(url) as service, psycopg.connect(url) as other:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        rework = replayed(service, url)
        other.execute("SELECT * FROM stream FOR UPDATE")
        service.engine._put_in_place(rework)
        assert rework.ended.is_set() and not rework.is_applied and service.engine.reworks == {}
        other.rollback()
        assert service.engine.rework_all() == 1
        feed(service, 10, seed=1)
    assert whole(url)


@pytest.mark.parametrize("what", ["outcome", "forecast", "control"])
def test_what_another_process_does_in_between_is_in_the_new_state(server: Any, what: str) -> None:
    """The engine notes what it has done itself: there may be gaps in it."""
    url = server.database()
    with desk(url, monitor=1000.0) as one, desk(url, monitor=1000.0) as two:
        feed(one, 40)
        one.correct(("paris", "paris-0-3", None))
        rework = replayed(one, url)
        one.ask(("paris", "a", 0.3))
        if what == "outcome":
            assert two.tell(("paris", "a", 1), ("paris", "paris-0-39", 0)) == ["learnt", "learnt"]
        elif what == "forecast":
            two.ask(("paris", "b", 0.3))
            assert one.tell(("paris", "b", 1)) == ["learnt"]
        else:
            assert two.do("reset", "paris") == "reset"
        one.ask(("paris", "c", 0.3))
        one.engine._put_in_place(rework)
        assert rework.is_applied and stream_of(url).corrections == 0
        assert whole(url)
        feed(two, 20, seed=1)
    assert whole(url)


def end_session(url: str, connection: Any) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SELECT pg_terminate_backend(%s)", (connection.database.info.backend_pid,))


def test_two_engines_do_it_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.rework.LOOK_SECONDS", 0.05)
    url = server.database()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engines = [Engine.open(url, EngineSettings(method="tops", monitor=1000.0)) for _ in range(2)]
    for engine in engines:
        engine.start(lambda group: [answers.put(answer) for answer in group])

    def ask(which: int, events: list[Any]) -> Any:
        engines[which % 2].submit(0, events)
        return answers.get(timeout=60)[1]

    for at in range(120):
        ask(at, [ForecastEvent("paris", f"e{at}", at / 120)])
        ask(at // 2, [OutcomeEvent("paris", f"e{at}", outcome(at))])
        if at % 30 == 29:
            assert ask(at // 3, [CorrectionEvent("paris", f"e{at - 20}", None)]) == ["corrected"]
        if at == 60:
            assert ask(0, [Control("rename", "paris", to="rome")]) == ["renamed"]
            assert ask(1, [ForecastEvent("paris", "other", 0.5)])
            assert ask(1, [Control("rename", "paris", to="bern")]) == ["renamed"]
            assert ask(0, [Control("rename", "rome", to="paris")]) == ["renamed"]
    assert ask(1, [Control("forget", "paris", ids=("e100",))]) == ["forgotten"]
    for engine in engines:
        engine.stop()
    assert whole(url) and stream_of(url).events == 120


def test_what_is_given_up_after_something_was_forgotten_does_not_change_the_monitor(url: str) -> None:
    """The base of later replays was written when the monitor still waited for it."""
    with desk(url, monitor=1000.0) as service:
        feed(service, 40)
        service.do("freeze", "paris")
        assert service.tell(*(("paris", f"paris-0-{at}", 1) for at in (37, 38))) == ["held", "held"]
        service.ask(("paris", "person", 0.5))
        assert service.forget("paris", "person") == 1 and whole(url)
        service.do("resume", "paris", outcomes="drop")
        service.engine.finish_all()
        assert whole(url)
        feed(service, 20, seed=1)
        service.correct(("paris", "paris-1-3", None))
        assert service.engine.rework_all() == 1
    assert whole(url)


def test_what_the_method_said_of_events_before_the_base_is_kept_until_the_monitor_has_read_it(url: str) -> None:
    """The score was told instead, and an earlier outcome is missing."""
    with desk(url, monitor=1000.0) as service:
        feed(service, 40, late=1, invert=True)
        service.do("passthrough", "paris")
        service.ask(*(("paris", f"raw-{at}", at / 10) for at in range(1, 10)))
        service.do("resume", "paris")
        service.tell(*(("paris", f"raw-{at}", 1) for at in range(2, 6)))
        for name in ("one", "two"):
            service.ask(("paris", name, 0.5))
            assert service.forget("paris", name) == 1 and whole(url)
        service.tell(*(("paris", f"raw-{at}", 1) for at in range(6, 10)))
        feed(service, 10, seed=1)
        service.correct(("paris", "paris-1-3", None))
        assert service.engine.rework_all() == 1 and whole(url)
    with desk(url, monitor=1000.0) as service:  # which reads what is held
        service.tell(("paris", "raw-1", 0), ("paris", "paris-0-39", 1))
    assert whole(url)


def test_nothing_is_left_of_a_forgotten_event_in_the_files_of_a_store(tmp_path: Path) -> None:
    url, person = str(tmp_path / "calibeat.db"), "somebody@example"

    def is_left() -> bool:
        return any(person.encode() in path.read_bytes() for path in tmp_path.iterdir())

    with desk(url) as service:
        feed(service, 20)
        for stream in ("paris", "rome"):
            service.ask((stream, person, 0.5))
            service.tell((stream, person, 1))
        assert is_left() and service.forget("paris", person) == 1 and is_left()
        service.do("delete", "rome")
        with closing(open_connection(url)) as reader:
            reader.begin_reading()
            reader.tables()  # somebody reads the store as it was
            service.engine.finish_all()
            assert is_left() and service.engine._is_erasing
            reader.rollback()
        service.engine._keep_house(is_idle=True)
        assert not is_left() and not service.engine._is_erasing
        feed(service, 20, seed=1)
    assert whole(url)


def test_what_could_not_be_erased_is_erased_soon(tmp_path: Path) -> None:
    url = str(tmp_path / "calibeat.db")
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(url, EngineSettings(method="ops"))
    engine.start(answers.put)
    try:
        with closing(open_connection(url)) as reader:
            engine.submit("ask", [ForecastEvent("paris", "e1", 0.5)])
            answers.get(timeout=60)
            reader.begin_reading()
            reader.tables()
            engine.submit("forget", [Control("forget", "paris", ids=("e1",))])
            assert answers.get(timeout=60) == [("forget", ["forgotten"])] and engine._is_erasing
            reader.rollback()
        wait_until(lambda: not engine._is_erasing)
    finally:
        engine.stop()
