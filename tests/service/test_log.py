"""Groups that are in the log alone: what they answer, what is read of them, and what is left after a kill."""

from __future__ import annotations

import queue
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from crashes import killed
from served import service_apart
from services import DAY, KILLED, START, Desk, whole

from calibeat.service import engine as engine_module
from calibeat.service import shape
from calibeat.service import streams as streams_module
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, InvalidEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import configure
from calibeat.service.model import Model
from calibeat.service.settings import EngineSettings
from calibeat.service.store import backup, open_reader, reading
from calibeat.service.store.schema import _NAMES

HIDDEN = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable"  # old and new names
CPU = Path("/proc/cpuinfo")
GROUPS, STEP = 12, 0.05
_APART = {"meta", "rollup"}  # a moment of opening; and sums, which depend on how often something was written


def requests_of(group: int, shapes: str = "") -> list[list[Any]]:
    """Forecasts of some streams; outcomes of the group before, and some of the group itself; a doubled one."""
    rng = np.random.default_rng(group)
    asked, told = list[Any](), list[Any]()
    for at in range(12):
        name, number = f"s{at % 5}", f"{group}-{at}"
        score = float(rng.random())
        asked.append(ForecastEvent(name, number, score))
        if at % 3:
            earlier = group - 1 if at % 2 else group
            told.append(OutcomeEvent(name, f"{earlier}-{at}", int(rng.random() < score)))
        if "k" in shapes:
            scores = rng.dirichlet(np.ones(3)).tolist()
            asked.append(ForecastEvent("k", f"k{number}", scores=scores))
            told.append(OutcomeEvent("k", f"k{number}", label=int(rng.integers(3))))
        if "g" in shapes:
            value = "abcdef"[int(rng.integers(6))]
            asked.append(ForecastEvent("g", f"g{number}", score, groups={"land": value}))
            told.append(OutcomeEvent("g", f"g{number}", int(rng.random() < score)))
    return [asked, [*told, InvalidEvent("no outcome")], told[:2]]


SHAPED = [ForecastEvent("k", "first", scores=[0.2, 0.3, 0.5]), ForecastEvent("g", "first", 0.5, groups={"land": "a"})]


def play(service: Desk, groups: int = GROUPS, shapes: str = "", *, may_wait: bool = True) -> list[Any]:
    """The same groups; the tables follow at once, or later."""
    service.engine.behind.may_wait = may_wait
    if shapes:
        service.group([event for event in SHAPED if event.stream in shapes])
    answers = []
    for group in range(groups):
        answers.append(service.group(*requests_of(group, shapes)))
        service.now += STEP
    return answers


def tables(url: str) -> dict[str, Any]:
    """All that a store holds."""
    found: dict[str, Any] = {}
    with closing(sqlite3.connect(url)) as file:
        for table in sorted(_NAMES - _APART):
            found[table] = file.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 - our own names
        found["rollup"] = np.round(file.execute("SELECT * FROM rollup ORDER BY 1, 2, 3, 4").fetchall(), 9).tolist()
    assert behind(url) == 0
    return found


def behind(url: str) -> int:
    """How many operations are in the log alone."""
    with closing(sqlite3.connect(url)) as file:
        ((last, flushed),) = file.execute(
            "SELECT (SELECT coalesce(max(position), 0) FROM op), (SELECT value FROM meta WHERE name = 'flushed')"
        )
    return int(last) - int(flushed or 0)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "tops": ({}, ""),
    "watched": ({"monitor": 1e4}, ""),
    "classes and groups": ({"method": "auto", "monitor": 1e4}, "kg"),
    "drawn": ({"method": "hops"}, "k"),
    "mature": ({"mature": 90.0, "notice": False}, ""),
    "expires": ({"expire": 7 * DAY}, ""),
    "bands": ({"method": "auto", "band": True}, ""),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(shape.secrets, "randbits", lambda _: 7)  # stores that have drawn alike can be compared
    return str(tmp_path / "log.db")


# ---- the tables follow ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_tables_that_follow_are_those_of_groups_that_were_written_at_once(
    store: str, tmp_path: Path, case: str
) -> None:
    settings, shapes = CASES[case]
    beside = str(tmp_path / "beside.db")
    with closing(Desk(beside, **settings)) as at_once, closing(Desk(store, **settings)) as later:
        wanted = play(at_once, shapes=shapes, may_wait=False)
        assert play(later, shapes=shapes) == wanted
        assert behind(store) > 100
        later.engine.write_out()
    assert tables(store) == tables(beside)
    assert whole(store)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("groups", [1, GROUPS])
def test_what_a_killed_process_has_answered_is_in_the_tables_of_the_next(
    store: str, tmp_path: Path, case: str, groups: int
) -> None:
    settings, shapes = CASES[case]
    beside = str(tmp_path / "beside.db")
    with killed(store, **settings) as first:
        answers = play(first, groups, shapes)
    assert behind(store) > 0
    with closing(Desk(beside, **settings)) as at_once:
        assert play(at_once, groups, shapes, may_wait=False) == answers
    with closing(Desk(store, **settings)) as second:
        second.now = START + STEP * groups
        assert second.group(*requests_of(0, shapes))[0] == answers[0][0]  # what was told is told again
    assert tables(store) == tables(beside)
    assert whole(store)


def test_the_settings_may_be_changed_before_the_next_process(store: str, tmp_path: Path) -> None:
    settings = {"monitor": 1e4, "mature": 90.0}
    beside = str(tmp_path / "beside.db")
    with killed(store, **settings) as first:
        play(first, 1)
    with closing(Desk(beside, **settings)) as at_once:
        play(at_once, 1, may_wait=False)
    for url in (store, beside):
        assert configure(url, notice=False, monitor=None, mature=None).monitor is None
        with closing(Desk(url)) as second:
            assert not second.engine.settings.notice and second.engine.settings.mature is None
    assert tables(store) == tables(beside)


def test_ids_in_the_log_are_known(store: str) -> None:
    with closing(Desk(store)) as service:
        service.engine.behind.may_wait = True
        asked = [ForecastEvent("paris", "e1", 0.83)], [ForecastEvent("paris", "e2", 0.3)]
        told = service.group(*asked)
        written = behind(store)
        assert service.group(*asked) == told
        assert behind(store) == written > 0  # nothing has happened
        again, contradiction = service.group([OutcomeEvent("paris", "e1", 1)], [ForecastEvent("paris", "e2", 0.4)])
        assert again == ["learnt"] and isinstance(contradiction, Refusal) and contradiction.status == 409
        repeated = service.group([OutcomeEvent("paris", "e1", 1)], [OutcomeEvent("paris", "e1", 0)])
        assert repeated == [["repeated"], ["conflict"]]
        with closing(open_reader(store)) as reader:
            assert reader.stream("paris") is None
        service.engine.write_out()
        with closing(open_reader(store)) as reader:
            found = reader.stream("paris")
            assert found is not None and (found.events, found.outcomes, found.pending) == (2, 1, 1)
    assert whole(store)


def test_corrections_and_verbs_follow_what_is_in_the_log_alone(store: str) -> None:
    with closing(Desk(store)) as service:
        play(service, 3)
        assert behind(store) > 0
        assert service.do("freeze", "s1") == "frozen"
        assert behind(store) == 0
        service.do("resume", "s1")
        service.tick()
        play(service, 3)
        service.group(*requests_of(5))
        service.engine.write_out()
        ((known,),) = service.engine.store.connection.all("SELECT outcome FROM event WHERE id = '1-1'")
        service.group(*requests_of(8))
        assert service.correct(("s1", "1-1", 1 - known)) == ["corrected"]
        assert behind(store) > 0
        assert service.engine.corrections.do_all() == 1
        service.group(*requests_of(7))
        assert service.forget("s1", "7-1") == 1
    assert whole(store)


def test_an_outcome_that_is_held_in_the_log_alone_may_be_corrected_there(store: str) -> None:
    with killed(store, mature=90.0) as service:
        service.group([ForecastEvent("paris", "e1", 0.83)], [OutcomeEvent("paris", "e1", 1)])
        assert service.correct(("paris", "e1", 0)) == ["corrected"]
    assert behind(store) > 0
    with closing(Desk(store, mature=90.0)) as service:
        found = service.engine.store.connection.all("SELECT outcome, status FROM event")
        assert found == [(0, 1)]
    assert whole(store)


def test_a_group_that_fails_leaves_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a fault")

    with closing(Desk(store)) as service:
        answers = play(service, 3)
        written = behind(store)
        with monkeypatch.context() as patched:
            patched.setattr(Model, "fold", broken)
            with pytest.raises(ValueError, match="a fault"):
                service.group(*requests_of(9))
        assert behind(store) == written
        service.engine.forget()
        assert service.group(*requests_of(2))[0] == answers[2][0]
        service.engine.write_out()
        assert service.engine.store.connection.all("SELECT count(*) FROM event") == [(36,)]
    assert whole(store)


def test_a_group_that_cannot_be_logged_leaves_nothing(store: str) -> None:
    """The operations of a group are in the log all together, or none of them."""
    with killed(store) as service:
        play(service, 3)
        written = behind(store)
        connection = service.engine.store.connection
        run, lost = connection.run, list[str]()

        def run_half(statement: str, arguments: Any = ()) -> Any:
            if statement.startswith("INSERT INTO op"):
                lost.append(statement)
                run(statement, arguments)
                raise sqlite3.OperationalError("disk I/O error")
            return run(statement, arguments)

        connection.run = run_half
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            service.group(*requests_of(9))
        assert lost
    assert behind(store) == written
    assert whole(store)


def test_streams_that_are_ahead_of_the_store_stay_in_memory(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "MOST_STREAMS", 2)
    with closing(Desk(store)) as service:
        play(service, 3)
        assert len(service.engine.streams) == 5
        service.engine.write_out()
        assert len(service.engine.streams) == 1
    assert whole(store)


def test_what_was_answered_is_seen_by_whoever_asks_next(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "IDLE_SECONDS", 60.0)
    monkeypatch.setattr(engine_module, "LONGEST_PENDING", 60.0)
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(store, EngineSettings(method="tops"))
    engine.behind.patience = 60.0
    gate = threading.Event()
    engine.start(lambda answers: (done.put(answers), gate.wait(60))[0])
    for at in range(4):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    gate.set()
    while done.get(timeout=60)[-1][0] != 3:
        pass
    engine.wait_until_written()
    assert behind(store) == 0
    engine.wait_until_written()  # there is nothing to wait for
    with closing(open_reader(store)) as reader:
        found = reader.stream("paris")
        assert found is not None and found.events == 4
    engine.submit("b", [ForecastEvent("paris", "e4", 0.5)])
    engine.stop()
    assert behind(store) == 0
    engine.wait_until_written()
    assert whole(store)


def test_the_tables_follow_in_time(store: str) -> None:
    """Nobody asks for it, and requests never cease."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(store, EngineSettings(method="tops"))
    engine.start(done.put)
    seen = 0
    for at in range(100_000):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
        if at % 20 == 19:
            for _ in range(5):
                engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
            with closing(sqlite3.connect(store)) as file:
                ((seen,),) = file.execute("SELECT count(*) FROM event")
            if seen > 40:
                break
    engine.stop()
    assert seen > 40
    assert whole(store)


def test_a_store_that_is_locked_is_written_later(store: str) -> None:
    with closing(Desk(store)) as service:
        engine = service.engine
        play(service, 2)
        written = behind(store)
        engine.store.connection.run("PRAGMA busy_timeout = 0")
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            engine._turn([])
        assert behind(store) == written > 0
        engine._turn([])
        assert behind(store) == 0


# ---- commands -------------------------------------------------------------------------------------------------------


def test_a_command_does_what_a_killed_service_has_left(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with killed(store) as service:
        play(service, 2)
    left = behind(store)
    assert whole(store)
    assert behind(store) == 0
    assert caplog.messages == [f"a process before had no time to write {left} operations into the tables"]


def test_a_command_beside_a_service_leaves_the_tables_to_it(store: str) -> None:
    with closing(Desk(store)) as service:
        play(service, 2)
        written = behind(store)
        with reading(store) as connection:
            assert connection.all("SELECT count(*) FROM event") == [(0,)]
        assert behind(store) == written


def test_a_copy_has_what_is_in_the_log_alone(store: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(Desk(store)) as service:
        play(service)
        backup(store, copy)
        service.engine.write_out()
    with closing(Desk(str(copy))):
        pass
    assert tables(str(copy)) == tables(store)


# ---- answers of another machine -------------------------------------------------------------------------------------


def answer_as_another_machine(url: str) -> None:
    """Change the last bit of each answer in the log, as if another machine had rounded otherwise."""
    with closing(sqlite3.connect(url)) as file, file:
        rows = file.execute("SELECT position, told, issued FROM op WHERE kind = 0").fetchall()
        for position, told, issued in rows:
            other = None if issued is None else (np.frombuffer(issued, np.int64) ^ 1).tobytes()
            number = float((np.array([told]).view(np.int64) ^ 1).view(float)[0])
            file.execute("UPDATE op SET told = ?, issued = ? WHERE position = ?", (number, other, position))


def answered(url: str) -> dict[str, Any]:
    """The answers in the log, by the ids of their events."""
    with closing(sqlite3.connect(url)) as file:
        rows = file.execute("SELECT id, told, issued FROM op WHERE kind = 0").fetchall()
    return {name: told if issued is None else np.frombuffer(issued).tolist() for name, told, issued in rows}


@pytest.mark.parametrize("case", ["watched", "classes and groups", "drawn", "mature"])
def test_an_answer_of_another_machine_stays_as_it_was_given(
    store: str, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, shapes = CASES[case]
    beside = str(tmp_path / "beside.db")
    with killed(store, **settings) as first:
        answers = play(first, shapes=shapes)
    answer_as_another_machine(store)
    wanted, count = answered(store), 12 * GROUPS * (1 + len(shapes)) + len(shapes)
    with closing(Desk(beside, **settings)) as at_once:
        play(at_once, shapes=shapes, may_wait=False)
    with closing(Desk(store, **settings)) as second:
        assert f"the log has {count} forecasts that this machine computes otherwise" in caplog.text
        second.now = START + STEP * GROUPS
        for group in range(GROUPS):
            asked = requests_of(group, shapes)[0]
            found = second.group(asked)[0]
            assert found == [wanted[event.id] for event in asked] != answers[group][0]
        states = "SELECT state, monitor FROM body ORDER BY stream"  # they are those of this machine
        with reading(beside) as connection:
            assert second.engine.store.connection.all(states) == connection.all(states)
        assert whole(store)
        ((known,),) = second.engine.store.connection.all("SELECT outcome FROM event WHERE id = '3-1'")
        assert second.correct(("s1", "3-1", 1 - known)) == ["corrected"]
        second.engine.corrections.do_all()
        asked = requests_of(3, shapes)[0]
        assert second.group(asked)[0] == [wanted[event.id] for event in asked]
    assert whole(store)


@pytest.mark.skipif(not CPU.exists() or " fma " not in CPU.read_text(), reason="needs Linux on a processor with FMA")
@pytest.mark.parametrize("is_other", [False, True])
def test_a_service_on_another_processor_becomes_ready(store: str, *, is_other: bool) -> None:
    killed_service = subprocess.run([sys.executable, "-c", KILLED, store], capture_output=True, text=True, check=False)
    assert killed_service.returncode == 9, killed_service.stderr
    assert behind(store) > 0
    if is_other:
        answer_as_another_machine(store)
    wanted = answered(store)
    with service_apart(store, "--method", "auto", GLIBC_TUNABLES=HIDDEN) as service:
        events = [{"stream": "paris", "id": f"e{at}", "score": at / 100} for at in range(100)]
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        found = httpx.post(f"{service.url}/v1/forecasts", json={"events": events}).json()["forecasts"]
        assert [each["probability"] for each in found] == [wanted[f"e{at}"] for at in range(100)]
        status, errors = service.end()
        assert status == 0
        assert ("this machine computes otherwise" in errors) == is_other
    assert whole(store)


# ---- notices --------------------------------------------------------------------------------------------------------


def test_notices_hear_once_of_what_a_killed_process_has_answered(store: str, tmp_path: Path) -> None:
    """Silence is noticed at the moment at which it would have been, and once."""
    beside, found = str(tmp_path / "beside.db"), []
    for url, ends in ((store, killed), (beside, lambda url: closing(Desk(url)))):
        with ends(url) as service:
            engine = service.engine
            engine.behind.may_wait = True
            engine.listening.begin(service.now)
            for at in range(20 * 24):  # what came before
                service.ask(("paris", f"p{at}", 0.5, START - 3600.0 * (20 * 24 - at)))
            for at in range(3):
                service.now += 3600.0
                service.ask(("paris", f"e{at}", 0.5))
            if url == beside:
                engine.write_out()
            engine.listening.beat()
            now = service.now
        with closing(Desk(url)) as service:
            service.now = now + 1.0
            service.engine.listening.begin(service.now)
            for _ in range(12):
                service.now += 3600.0
                service.tick()
            service.engine.write_out()
            every = service.engine.store.connection.all
            found.append((every("SELECT what, time, since, ended FROM alarm"), every("SELECT notice FROM body")))
        assert whole(url)
    assert found[0] == found[1] and [what for what, *_ in found[0][0]] == ["no forecasts"]


def test_alarms_of_the_log_are_raised_once(store: str) -> None:
    raised: list[Any] = []
    with killed(store, monitor=100.0) as service:
        service.engine.hooks.on_alarm = raised.extend
        for group in range(60):
            events = [ForecastEvent("paris", f"{group}-{at}", 0.9) for at in range(20)]
            service.group(events, [OutcomeEvent("paris", event.id, 0) for event in events])
    assert not raised and behind(store) > 0
    with closing(Desk(store, monitor=100.0)) as service:
        ((count,),) = service.engine.store.connection.all("SELECT count(*) FROM alarm")
    assert count > 0
    with closing(Desk(store, monitor=100.0)) as service:
        assert service.engine.store.connection.all("SELECT count(*) FROM alarm") == [(count,)]
    assert whole(store)


def test_a_stream_that_was_heard_of_is_not_asked_before_its_notice_has_heard_it(store: str) -> None:
    with closing(Desk(store)) as service:
        engine, listening = service.engine, service.engine.listening
        play(service, 2)
        state = engine.streams["s1"]
        listening._deadlines.set(state.number, "s1", service.now - 1.0)
        assert listening.overdue(service.now, engine.streams, engine.behind.pending) == {}
        engine.write_out()
        state.due = service.now - 1.0
        listening._deadlines.set(state.number, "s1", state.due)
        assert listening.overdue(service.now, engine.streams, engine.behind.pending) == {state.number: "s1"}
