"""Corrections, retractions and forgetting: the stream is made anew, as if what is right had been learnt at once."""

from __future__ import annotations

import queue
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, desk, desk_beside, feed, stream_of, told, whole

from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import Control, CorrectionEvent, ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import info, prune, rebuild
from calibeat.service.rework import Rework, waiting_streams
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
