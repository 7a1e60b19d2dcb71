"""Large groups: planned while the group before is written, and the same as if they had been done one by one."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
from services import Desk, desk

from calibeat.service.engine import Engine, Settings
from calibeat.service.group import Plan
from calibeat.service.large import LARGE
from calibeat.service.operate import check, info, replay_check
from calibeat.service.operations import ForecastEvent, OutcomeEvent, Refusal

Requests = list[tuple[Any, list[Any]]]


def forecasts(first: int, count: int = LARGE) -> list[ForecastEvent]:
    return [ForecastEvent(f"s{at % 7}", f"e{at}", at % 10 / 10) for at in range(first, first + count)]


def outcomes(first: int, count: int = LARGE) -> list[OutcomeEvent]:
    return [OutcomeEvent(f"s{at % 7}", f"e{at}", at % 3 % 2) for at in range(first, first + count)]


# A second group that depends on everything in the first: outcomes of its forecasts, repeats, contradictions.
FIRST: Requests = [(0, forecasts(0)), (1, outcomes(0, 20))]
SECOND: Requests = [
    (2, outcomes(0)),
    (3, forecasts(0, 30)),
    (4, [ForecastEvent("s0", "e0", 0.77)]),
    (5, [OutcomeEvent("s1", "e1", 0)]),
    (6, forecasts(LARGE, 50)),
    (7, outcomes(LARGE, 50)),
]


def overlapped(service: Desk, monkeypatch: pytest.MonkeyPatch, *groups: Requests) -> list[Any]:
    """Each group but the first is planned before the one before it is committed -> the answers, as they came."""
    engine = service.engine
    heard: list[Any] = []
    gate, plan, commit = threading.Semaphore(0), engine.plan, engine.store.commit

    def held() -> None:
        assert gate.acquire(timeout=60)
        commit()

    def opened(requests: Requests, before: dict[str, Any]) -> Any:
        try:
            return plan(requests, before)
        finally:
            if requests is not groups[0]:
                gate.release()

    engine._deliver = heard.extend
    monkeypatch.setattr(engine.store, "commit", held)
    monkeypatch.setattr(engine, "plan", opened)
    for group in groups:
        engine._do(group)
    gate.release(100)
    engine._large.close()
    return heard


def shown(answers: list[Any]) -> list[Any]:
    return [(ticket, str(answer) if isinstance(answer, Refusal) else answer) for ticket, answer in answers]


def test_a_group_sees_what_the_one_before_it_has_not_committed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = str(tmp_path / "one.db"), str(tmp_path / "other.db")
    with desk(one) as service:
        answers = overlapped(service, monkeypatch, FIRST, SECOND)
    with desk(other) as service:
        expected = [*service.engine.process(FIRST), *service.engine.process(SECOND)]
    assert shown(answers) == shown(expected)
    assert answers[5][1] == ["conflict"] and "got 'e0'" in str(answers[4][1])
    assert answers[2][1] == ["repeated"] * 20 + ["learnt"] * (LARGE - 20)
    assert replay_check(one).is_same and check(one) == []
    assert {**info(one), "bytes": 0} == {**info(other), "bytes": 0}


def test_a_fault_in_the_plan_refuses_one_request_and_serves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Plan.take

    def faulty(self: Plan, events: list[Any]) -> None:
        if events[0].id == "bad":
            raise ZeroDivisionError("a fault")
        take(self, events)

    monkeypatch.setattr(Plan, "take", faulty)
    url = str(tmp_path / "calibeat.db")
    with desk(url) as service:
        bad: Requests = [*SECOND, (8, [ForecastEvent("s0", "bad", 0.5)])]
        answers = dict(overlapped(service, monkeypatch, FIRST, bad))
    assert isinstance(answers[8], Refusal) and answers[8].status == 500
    assert answers[6] and answers[5] == ["conflict"]
    assert replay_check(url).is_same and info(url)["forecasts"] == LARGE + 50


def test_a_group_that_cannot_be_written_is_done_again_and_so_is_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "calibeat.db")
    with desk(url) as service:
        write, failed = service.engine.store.write, iter([True])

        def faulty(rows: Any) -> None:
            write(rows)
            if next(failed, False):
                raise ZeroDivisionError("a fault")

        monkeypatch.setattr(service.engine.store, "write", faulty)
        heard: list[Any] = []
        service.engine._deliver = heard.extend
        service.engine._do(FIRST)
        service.engine._do(SECOND)
        service.engine._large.close()
    assert [ticket for ticket, _ in heard] == list(range(8))
    assert replay_check(url).is_same and info(url)["forecasts"] == LARGE + 50


def test_a_store_that_fails_under_the_writer_ends_the_process_though_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.open(str(tmp_path / "calibeat.db"), Settings(method="tops"))
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def full(_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(engine.store, "write", full)
    engine.on_failure = done.put
    engine.start(done.put)
    engine.submit("a", forecasts(0))
    assert "no space left on device" in done.get(timeout=60)
    engine.store.close()


def test_many_clients_at_once(tmp_path: Path) -> None:
    """Whatever becomes a group, and whichever way it is written: everything is answered once, and a replay agrees."""
    url = str(tmp_path / "calibeat.db")
    engine = Engine.open(url, Settings(method="tops"))
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.start(done.put)
    steps = {
        client: [make(9_000 * client + 150 * turn, 150) for turn in range(4) for make in (forecasts, outcomes)]
        for client in range(12)
    }
    for client, todo in steps.items():
        engine.submit(client, todo.pop(0))
    answered = 0
    while answered < 12 * 8:
        for client, answer in done.get(timeout=60):
            answered += 1
            assert len(answer) == 150 and not isinstance(answer, Refusal)
            if steps[client]:
                engine.submit(client, steps[client].pop(0))
    engine.stop()
    assert replay_check(url).is_same and check(url) == []
    found = info(url)
    assert found["forecasts"] == 12 * 4 * 150 == found["outcomes"]
