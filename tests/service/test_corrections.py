"""Corrections, retractions and forgetting: the stream is made anew, as if what is right had been learnt at once."""

from __future__ import annotations

import queue
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import wait_until
from services import DAY, Desk, desk, desk_beside, feed, stream_of, told, whole

from calibeat.service.corrections import _STREAMS, Correction, Corrections, Swap
from calibeat.service.engine import Engine
from calibeat.service.events import Control, CorrectionEvent, ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import configure, info, prune, rebuild
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection, open_reader


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
        assert service.engine.corrections.do_all() == 20
        assert whole(url) and info(url)["corrections that wait"] == 0 and stream_of(url).corrections == 0
        assert service.ask(*(("paris", f"e{at}", scores[at]) for at in range(80))) == before
        assert told(service, "after") == told(other, "after")
        for here in (service, other):  # with the receipts of what was pending
            here.tell(*(("paris", f"e{at}", 1) for at in range(76, 80)))
        assert told(service, "end") == told(other, "end")
        assert stream_of(url).outcomes == 80
        feed(service, 30, seed=1)
    assert whole(url)


def test_receipts_of_a_state_that_is_gone_are_deleted_some_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.engine.SPENT_AT_ONCE", 3)
    with desk(url) as service:
        service.ask(*(("paris", f"e{at}", 0.5) for at in range(5)))
        store, chores = service.engine.store, service.engine.chores
        receipts = [(1, version, nth, b"r", *(None,) * 6) for version in (7, 8) for nth in (0, 1, 10, 500, 501, 502, 9)]
        store.begin()
        store.add_receipts(receipts)
        chores.spend(store.connection, [(1, 7)])
        store.commit()
        left = list[tuple[Any, ...]]()
        while chores.spent:
            chores.delete_spent(store)
            left += store.connection.all("SELECT count(*), min(nth) FROM receipt WHERE version = 7")
        assert left == [(4, 10), (1, 502), (0, None)]
        kept = "SELECT version, count(*) FROM receipt GROUP BY version ORDER BY version"
        assert store.connection.all(kept) == [(0, 5), (8, 7)]


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
        assert service.engine.corrections.do_all() == 2
        stream = stream_of(url)
        assert (stream.outcomes, stream.pending) == (38, 2) and whole(url)
        assert told(service, "after") == told(other, "after")
        assert service.correct(("paris", "e20", None)) == ["repeated"]
        assert service.tell(("paris", "e20", 1), ("paris", "e20", 0)) == ["learnt", "conflict"]
        other.tell(("paris", "e20", 1))
        assert told(service, "end") == told(other, "end")
        assert service.correct(("paris", "e30", None)) == ["corrected"]
        assert service.tell(("paris", "e30", outcome(30))) == ["corrected"]  # before it was applied
        assert service.engine.corrections.do_all() == 0 and stream_of(url).outcomes == 39
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
        service.engine.corrections.do_all()
        assert whole(url)
        service.do("resume", "paris")
        service.tick(100.0)
        service.do("reset", "paris")
        feed(service, 20, seed=3)
        service.correct(("paris", "paris-0-9", None), ("paris", "paris-0-10", 1), ("paris", "paris-3-5", 1))
        service.do("rename", "paris", to="lutetia")
        service.engine.corrections.do_all()
        assert whole(url)
        service.tick(6000.0)
        feed(service, 10, stream="lutetia", seed=4)
        service.correct(("lutetia", "paris-3-6", 1), ("lutetia", "paris-3-7", 1))
        service.engine.corrections.do_all()
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
        assert service.engine.corrections.do_all() == 1 and whole(url)
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
        assert service.engine.corrections.do_all() == 1
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
        assert engine.corrections.do_all() == 2
        assert stream_of(url).pending == 4
    assert whole(url)


def test_an_outcome_that_comes_while_it_is_retracted_is_not_lost(url: str) -> None:
    with desk(url) as service, closing(open_connection(url)) as connection:
        service.ask(*(("paris", f"e{at}", at / 40) for at in range(40)))
        service.tell(*(("paris", f"e{at}", outcome(at)) for at in range(40)))
        assert service.correct(("paris", "e30", None)) == ["corrected"]
        made = prepared(service, connection)
        assert service.tell(("paris", "e30", 0)) == ["corrected"]
        assert service.engine.corrections.put_in_place(made) == 0 and stream_of(url).corrections == 2
        assert service.engine.corrections.do_all() == 1 and stream_of(url).outcomes == 40
        assert service.tell(("paris", "e30", 1 - outcome(30)), ("paris", "e30", outcome(30))) == [
            "repeated",
            "conflict",
        ]
    assert whole(url)


# ---- while the service goes on --------------------------------------------------------------------------------------


def test_a_stream_is_served_while_it_is_made_anew(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens meanwhile is in the new state, too."""
    monkeypatch.setattr("calibeat.service.replay.OPERATIONS_AT_ONCE", 10)
    monkeypatch.setattr("calibeat.service.corrections.TAIL", 5)
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
        progress += [engine.corrections.progress("paris")]
    assert ask([Control("forget", "paris", ids=("e7",))]) == ["forgotten"]
    engine.stop()
    assert whole(url) and stream_of(url).outcomes == 30 * 9 + 60 - 5 and info(url)["corrections that wait"] == 0
    assert all(share is None or 0 <= share <= 1 for share in progress)


def prepared(service: Desk, connection: Any) -> Correction:
    """The only stream that waits, made anew up to now; the engine has still to put it in its place."""
    made = service.engine.corrections.prepare(connection, 1)
    assert made is not None
    return made


@pytest.mark.parametrize("is_much", [True, False])
def test_what_is_done_to_a_stream_meanwhile_is_done_to_its_new_state(
    url: str, monkeypatch: pytest.MonkeyPatch, is_much: bool
) -> None:
    """Most of much is replayed by the thread that reads, and the rest by the engine."""
    monkeypatch.setattr("calibeat.service.replay.OPERATIONS_AT_ONCE", 10)
    with desk(url, monitor=1000.0) as service:
        feed(service, 40)
        service.correct(("paris", "paris-0-3", None))
        with closing(open_connection(url)) as connection:
            made = prepared(service, connection)
            assert service.do("passthrough", "paris") == "passthrough"
            feed(service, 10, seed=1)
            assert service.do("reset", "paris") == "reset"
            fresh = stream_of(url)
            feed(service, 10, seed=2)
            if is_much:
                service.engine.corrections._catch_up(connection, made)
        assert service.engine.corrections.put_in_place(made) == 1
        stream = stream_of(url)
        assert stream.passthrough and (stream.events, stream.outcomes) == (60, fresh.outcomes + 7 - 1)
    assert whole(url)


def waits(url: str) -> list[tuple[int, str]]:
    with closing(open_connection(url)) as connection:
        return connection.all(_STREAMS)


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
        assert service.engine.corrections.do_all() == 2
        assert stream_of(url).outcomes == outcomes - 2
        assert service.engine.store.connection.all(monitor) == before
        feed(service, 20, seed=2)
    assert whole(url)


def test_what_waits_when_a_service_stops_is_done_by_the_next(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with desk(url) as service:
        service.ask(("paris", "person-7", 0.5))
        service.tell(("paris", "person-7", 1))
        feed(service, 60)
    monkeypatch.setattr("calibeat.service.replay.OPERATIONS_AT_ONCE", 1)
    monkeypatch.setattr("calibeat.service.corrections.PAUSE", 0.05)
    for is_stopped in (True, False):
        engine = Engine.open(url, EngineSettings(method="tops"))
        engine.start(lambda group: [answers.put(answer) for answer in group])
        if is_stopped:
            engine.submit("forget", [Control("forget", "paris", ids=("person-7",))])
            wait_until(lambda: engine.corrections.progress("paris"))  # noqa: B023
        else:
            monkeypatch.setattr("calibeat.service.corrections.PAUSE", 0.0)
            wait_until(lambda: not waits(url))
        engine.stop()
        assert len(waits(url)) == is_stopped
    ticket, refusal = answers.get_nowait()
    assert (ticket, refusal.code, refusal.status) == ("forget", "stopping", 503) and answers.empty()
    assert refusal.message.endswith("it is done after the next start")
    assert whole(url) and traces(url, "person-7") == 0


def test_a_fault_of_ours_leaves_the_old_state_and_the_service(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes late, when half of the new state is written."""

    def fails(*_: Any) -> None:
        raise ArithmeticError("no such number")

    with desk(url) as service:
        feed(service, 30)
        service.correct(("paris", "paris-0-3", None))
        before = stream_of(url)
        with monkeypatch.context() as patched:
            patched.setattr(Swap, "_stream", fails)
            with pytest.raises(ArithmeticError, match="no such number"):
                service.engine.corrections.do_all()
        service.engine.forget()
        assert stream_of(url) == before
        feed(service, 10, seed=1)
        assert service.engine.corrections.do_all() == 1 and stream_of(url).corrections == 0
    assert whole(url)


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
        assert service.engine.corrections.do_all() == 1
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
        assert service.engine.corrections.do_all() == 1 and whole(url)
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
            assert is_left() and service.engine.chores.is_erasing
            reader.rollback()
        service.engine._turn([])
        assert not is_left() and not service.engine.chores.is_erasing
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
            assert answers.get(timeout=60) == [("forget", ["forgotten"])] and engine.chores.is_erasing
            reader.rollback()
        wait_until(lambda: not engine.chores.is_erasing)
    finally:
        engine.stop()


def test_the_last_event_is_forgotten_while_others_wait(url: str) -> None:
    """The new base is made behind everything, with receipts of what is open."""
    with desk(url, monitor=1000.0) as service:
        feed(service, 40, late=5)
        service.ask(("paris", "person", 0.5))
        assert service.forget("paris", "person") == 1 and whole(url)
        feed(service, 10, seed=1)
        service.tell(("paris", "paris-0-39", 1))
    assert whole(url)


def test_what_is_being_forgotten_or_corrected_is_told(url: str) -> None:
    with desk(url) as service:
        feed(service, 20)
        service.correct(("paris", "paris-0-3", None), ("paris", "paris-0-4", 1), ("paris", "paris-0-4", 0))
        with closing(open_reader(url)) as reader:
            event = reader.event("paris", "paris-0-3")
            assert event is not None and (event.corrected, event.outcome) == (True, None)
            event = reader.event("paris", "paris-0-4")
            assert event is not None and event.corrected and event.outcome in {0, 1}
        service.engine.process([(None, [Control("forget", "paris", ids=("paris-0-9",))])])
        with pytest.raises(Refusal, match="id must be one that is not being forgotten"):
            service.ask(("paris", "paris-0-9", 0.5))
        service.engine.corrections.do_all()
    assert whole(url)


def test_forecasts_that_nobody_reads_any_more_are_not_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.replay.MOST_OWN", 3)
    monkeypatch.setattr("calibeat.service.replay.OPERATIONS_AT_ONCE", 10)
    with desk(url, monitor=1000.0) as service:
        feed(service, 80)
        service.correct(("paris", "paris-0-3", 0), ("paris", "paris-0-4", None))
        service.engine.corrections.do_all()
        feed(service, 20, seed=1)
    assert whole(url)


def test_the_log_goes_into_a_file_while_rows_are_unread(tmp_path: Path) -> None:
    with desk(str(tmp_path / "a.db")) as service:
        feed(service, 20)
        connection = service.engine.store.connection
        rows = connection.each("SELECT * FROM op")
        assert next(rows) is not None and connection.fold()


def running(url: str) -> Engine:
    """A service with two streams that wait for a correction, whose thread has not begun with them."""
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.start(lambda _: None)
    return engine


@pytest.mark.parametrize("error", [ArithmeticError("no such number"), InterruptedError("the database is away")])
def test_what_fails_is_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr("calibeat.service.corrections.AGAIN_SECONDS", 0.01)
    with desk(url) as service:
        for stream in ("paris", "rome"):
            feed(service, 20, stream=stream)
            service.correct((stream, f"{stream}-0-3", None))
    prepare, failures = Corrections.prepare, [error]

    def fails(self: Any, *asked: Any) -> Any:
        if failures:
            raise failures.pop()
        return prepare(self, *asked)

    monkeypatch.setattr(Corrections, "prepare", fails)
    engine = running(url)
    wait_until(lambda: not waits(url))
    engine.stop()
    wanted = "could not be made anew" if isinstance(error, ArithmeticError) else "are tried again: the database is away"
    assert wanted in caplog.text and whole(url)


@pytest.mark.parametrize("how", ["returns", "fails"])
def test_a_service_that_stops_begins_nothing_new(url: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with desk(url) as service:
        for stream in ("paris", "rome"):
            feed(service, 20, stream=stream)
            service.correct((stream, f"{stream}-0-3", None))
    begun = list[int]()

    def stops(self: Any, _: Any, number: int) -> None:
        begun.append(number)
        self._stopping.set()
        if how == "fails":
            raise InterruptedError("the engine has ended")

    monkeypatch.setattr(Corrections, "prepare", stops)
    engine = running(url)
    wait_until(lambda: begun)
    engine.stop()
    assert begun == [1] and len(waits(url)) == 2


def test_there_may_be_nothing_to_do_or_no_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(url) as service, closing(open_connection(url)) as connection:
        feed(service, 20)
        history = service.engine.corrections
        assert history._do(connection, 99) == 0 and history._do(connection, 1) == 0
        service.correct(("paris", "paris-0-3", None))
        between = service.engine.between

        def stops(job: Any) -> Any:
            history._stopping.set()
            return between(job)

        monkeypatch.setattr(service.engine, "between", stops)
        assert history._do(connection, 1) == 0 and len(waits(url)) == 1
    with desk(url) as service:
        assert service.engine.corrections.do_all() == 1
    assert whole(url)
