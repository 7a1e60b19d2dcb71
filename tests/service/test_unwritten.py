"""Groups that wait in the journal: what they answer, what is read of them, and what is left after a kill."""

from __future__ import annotations

import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from msgspec import UNSET
from served import service_apart
from services import START, Desk, whole

from calibeat import SnapshotMismatch
from calibeat.service import engine as engine_module
from calibeat.service import shape
from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import (
    Control,
    CorrectionEvent,
    ForecastEvent,
    InvalidEvent,
    OutcomeEvent,
    Refusal,
    StreamSettings,
)
from calibeat.service.maintenance import configure
from calibeat.service.model import Model
from calibeat.service.store import backup, open_reader, reading
from calibeat.service.store.schema import _NAMES
from calibeat.service.store.sqlite import SqliteStore
from calibeat.service.unwritten import checksum, packed, read_journal, unpacked

HIDDEN = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable"  # old and new names
CPU = Path("/proc/cpuinfo")
KILLED = """
import os, sys
from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import ForecastEvent, OutcomeEvent
engine = Engine.open(sys.argv[1], EngineSettings(method="auto"))
engine.listen()
engine.may_defer = True
asked = [ForecastEvent("paris", f"e{at}", at / 100) for at in range(100)]
engine.process([(None, asked), (None, [OutcomeEvent("paris", f"e{at}", at % 2) for at in range(50)])])
os._exit(9)
"""
GROUPS, STEP = 12, 0.05
# A moment of writing, and counts of writes: they depend on how often something was written.
_APART = {"meta", "journal", "rollup"}


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
    unreadable = InvalidEvent("no outcome")
    return [asked, [*told, unreadable], told[:2]]


SHAPED = [ForecastEvent("k", "first", scores=[0.2, 0.3, 0.5]), ForecastEvent("g", "first", 0.5, groups={"land": "a"})]


def play(service: Desk, groups: int = GROUPS, shapes: str = "", *, defers: bool = True) -> list[Any]:
    """The same groups, with or without the journal."""
    service.engine.may_defer = defers
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
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})") if row[1] != "version"]
            found[table] = file.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608
        found["rollup"] = np.round(file.execute("SELECT * FROM rollup ORDER BY 1, 2, 3, 4").fetchall(), 9).tolist()
        assert file.execute("SELECT count(*) FROM journal").fetchall() == [(0,)]
    return found


def journal(url: str) -> int:
    with closing(sqlite3.connect(url)) as file:
        return int(file.execute("SELECT count(*) FROM journal").fetchall()[0][0])


@contextmanager
def killed(url: str, **settings: Any) -> Iterator[Desk]:
    """An engine that ends without a word: what it has not committed is gone."""
    made = Desk(url, **settings)
    yield made
    made.engine.store.connection.database.close()  # not `close`: nothing is written or folded
    made.engine.store.close = lambda: None  # type: ignore[method-assign]
    engine_module.os.close(made.engine.store._lock)  # type: ignore[attr-defined]


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "tops": ({}, ""),
    "watched": ({"monitor": 1e4}, ""),
    "classes and groups": ({"method": "auto", "monitor": 1e4}, "kg"),
    "drawn": ({"method": "hops"}, "k"),
    "mature": ({"mature": 90.0, "notice": False}, ""),
    "expires": ({"expire": 7 * 86_400.0}, ""),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(shape.secrets, "randbits", lambda _: 7)  # stores that have drawn alike can be compared
    return str(tmp_path / "journal.db")


@pytest.mark.parametrize("case", CASES)
def test_tables_that_follow_are_those_of_groups_that_were_written_at_once(
    store: str, tmp_path: Path, case: str
) -> None:
    settings, shapes = CASES[case]
    beside = str(tmp_path / "beside.db")
    with closing(Desk(beside, **settings)) as at_once, closing(Desk(store, **settings)) as later:
        wanted = play(at_once, shapes=shapes, defers=False)
        assert play(later, shapes=shapes) == wanted
        later.engine.write_out()
        assert journal(store) == 0
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
    assert journal(store) > 0
    with closing(Desk(beside, **settings)) as at_once:
        assert play(at_once, groups, shapes, defers=False) == answers
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
        play(at_once, 1, defers=False)
    for url in (store, beside):
        assert configure(url, notice=False, monitor=None, mature=None).monitor is None
        with closing(Desk(url)) as second:
            assert not second.engine.settings.notice and second.engine.settings.mature is None
    assert tables(store) == tables(beside)


def test_ids_in_the_journal_are_known(store: str) -> None:
    with closing(Desk(store)) as service:
        service.engine.may_defer = True
        asked = [ForecastEvent("paris", "e1", 0.83)], [ForecastEvent("paris", "e2", 0.3)]
        told = service.group(*asked)
        assert journal(store) == 1
        assert service.group(*asked) == told
        assert journal(store) == 1  # nothing has happened
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


def test_one_who_waits_for_each_answer_is_written_at_once(store: str) -> None:
    with closing(Desk(store)) as service:
        service.engine.may_defer = True
        service.ask(("paris", "e1", 0.83))
        assert journal(store) == 0
        service.group([ForecastEvent("paris", "e2", 0.3)], [ForecastEvent("paris", "e3", 0.3)])
        service.tell(("paris", "e1", 1))
        assert journal(store) == 2  # behind one that waits, everything does
    assert journal(store) == 2
    with reading(store) as connection:
        assert connection.all("SELECT count(*) FROM event") == [(3,)]


def test_corrections_and_verbs_find_the_tables_as_they_are(store: str) -> None:
    with closing(Desk(store)) as service:
        play(service, 3)
        assert journal(store) == 3
        assert service.do("freeze", "s1") == "frozen"
        assert journal(store) == 0
        service.do("resume", "s1")
        service.tick()
        play(service, 3)
        service.group(*requests_of(5))
        assert journal(store) == 1
        service.engine.write_out()
        ((known,),) = service.engine.store.connection.all("SELECT outcome FROM event WHERE id = '1-1'")
        service.group(*requests_of(8))
        assert service.correct(("s1", "1-1", 1 - known)) == ["corrected"]
        assert journal(store) == 0
        service.group(*requests_of(6))
        assert journal(store) == 0  # as long as a correction waits, its replay reads the tables
        assert service.engine.rework_all()
        service.group(*requests_of(7))
        assert journal(store) == 1
        assert service.forget("s1", "7-1") == 1
    assert whole(store)


def test_an_outcome_that_is_held_in_the_journal_may_be_corrected_there(store: str) -> None:
    with killed(store, mature=90.0) as service:
        service.engine.may_defer = True
        service.group([ForecastEvent("paris", "e1", 0.83)], [OutcomeEvent("paris", "e1", 1)])
        assert service.correct(("paris", "e1", 0)) == ["corrected"]
        assert journal(store) == 2
    with closing(Desk(store, mature=90.0)) as service:
        found = service.engine.store.connection.all("SELECT outcome, status FROM event")
        assert found == [(0, 1)]


def test_an_alarm_is_written_at_once(store: str) -> None:
    raised: list[Any] = []
    with closing(Desk(store, monitor=100.0)) as service:
        service.engine.may_defer, service.engine.on_alarm = True, raised.extend
        for group in range(200):
            events = [ForecastEvent("paris", f"{group}-{at}", 0.9) for at in range(20)]
            service.group(events, [OutcomeEvent("paris", event.id, 0) for event in events])
            if raised:
                break
        assert raised and journal(store) == 0
        assert service.engine.store.connection.all("SELECT count(*) FROM alarm")[0][0] == len(raised)
    assert whole(store)


def test_a_fault_of_ours_leaves_what_was_answered(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a fault")

    with closing(Desk(store)) as service:
        answers = play(service, 3)
        with monkeypatch.context() as patched:
            patched.setattr(Model, "fold", broken)
            with pytest.raises(ValueError, match="a fault"):
                service.group(*requests_of(9))
        service.engine.forget()
        assert service.group(*requests_of(2))[0] == answers[2][0]
        service.engine.write_out()
        assert service.engine.store.connection.all("SELECT count(*) FROM event") == [(36,)]
    assert whole(store)


def test_streams_that_are_ahead_of_the_store_stay_in_memory(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MOST_STREAMS", 2)
    with closing(Desk(store)) as service:
        play(service, 3)
        assert len(service.engine._streams) == 5
        service.engine.write_out()
        assert len(service.engine._streams) == 1
    assert whole(store)


def test_the_tables_follow_when_it_is_much_or_old_or_asked_for(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MOST_UNWRITTEN", 60)
    with closing(Desk(store)) as service:
        engine = service.engine
        play(service, 1)
        since = engine._unwritten.since
        engine.write_in_time(since)
        assert journal(store) == 1
        engine.write_in_time(since, is_idle=True)
        assert journal(store) == 0
        play(service, 6)
        engine.write_in_time(engine._unwritten.since)
        assert journal(store) == 0
        service.group(*requests_of(7))
        engine.write_in_time(engine._unwritten.since + 1.0)
        assert journal(store) == 0


def test_what_was_answered_is_seen_by_whoever_asks_next(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "IDLE_UNWRITTEN", 60.0)
    monkeypatch.setattr(engine_module, "UNWRITTEN_SECONDS", 60.0)
    monkeypatch.setattr(engine_module, "LONGEST_UNWRITTEN", 60.0)
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine.open(store, EngineSettings(method="tops"))
    gate = threading.Event()
    engine.start(lambda answers: (done.put(answers), gate.wait(60))[0])
    engine.submit("a", [ForecastEvent("paris", "e0", 0.5)])
    done.get(timeout=60)
    for at in range(1, 4):  # they wait, and are one group
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    gate.set()
    done.get(timeout=60)
    assert journal(store) == 1
    engine.wait_until_written()
    assert journal(store) == 0
    engine.wait_until_written()  # there is nothing to wait for
    with closing(open_reader(store)) as reader:
        found = reader.stream("paris")
        assert found is not None and found.events == 4
    gate.clear()
    engine.submit("b", [ForecastEvent("paris", "e4", 0.5)])
    done.get(timeout=60)
    for at in range(5, 7):
        engine.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)])
    gate.set()
    done.get(timeout=60)
    engine.stop()
    assert journal(store) == 0
    engine.wait_until_written()
    assert whole(store)


def test_a_store_that_is_locked_is_written_later(store: str) -> None:
    with closing(Desk(store)) as service:
        engine = service.engine
        play(service, 2)
        engine.store.connection.run("PRAGMA busy_timeout = 0")
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            engine.write_in_time(0.0, is_idle=True)
            engine._finish()
        assert journal(store) == 2
        engine.write_in_time(0.0, is_idle=True)
        assert journal(store) == 0


def test_a_command_does_what_a_killed_service_has_left(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with killed(store) as service:
        play(service, 2)
    assert whole(store)
    assert journal(store) == 0
    assert caplog.messages == ["a process before had no time to write 2 groups into the tables: they are there now"]


def test_a_command_beside_a_service_leaves_the_journal_to_it(store: str) -> None:
    with closing(Desk(store)) as service:
        play(service, 2)
        with reading(store) as connection:
            assert connection.all("SELECT count(*) FROM event") == [(0,)]
        assert journal(store) == 2


def test_a_copy_has_the_journal_too(store: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(Desk(store)) as service:
        play(service)
        backup(store, copy)
        service.engine.write_out()
    with closing(Desk(str(copy))):
        pass
    assert tables(str(copy)) == tables(store)


def answer_as_another_machine(url: str, every: int = 1) -> None:
    """Change the last bit of answers in the journal, as if another machine had rounded otherwise."""
    with closing(sqlite3.connect(url)) as file, file:
        for number, requests, told in file.execute("SELECT number, requests, told FROM journal"):
            numbers = np.frombuffer(told, np.int64).copy()
            numbers[::every] ^= 1
            others = numbers.tobytes()
            row = others, checksum(requests, others), number
            file.execute("UPDATE journal SET told = ?, checksum = ? WHERE number = ?", row)


def answered(url: str) -> dict[str, list[float]]:
    """The answers in the journal, by the ids of their events."""
    found, store = dict[str, list[float]](), SqliteStore(Path(url))
    with closing(store):
        for row in read_journal(store):
            told = np.frombuffer(row.told).tolist()
            for event in (e for _, events in unpacked(row.requests) for e in events if type(e) is ForecastEvent):
                if event.id not in found:
                    count = 1 if event.scores is UNSET else 3
                    found[event.id], told = told[:count], told[count:]
            assert told == []
    return found


@pytest.mark.parametrize("case", ["watched", "classes and groups", "drawn", "mature"])
def test_an_answer_of_another_machine_stays_as_it_was_given(
    store: str, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, shapes = CASES[case]
    beside = str(tmp_path / "beside.db")
    with killed(store, **settings) as first:
        answers = play(first, shapes=shapes)
    answer_as_another_machine(store)
    wanted = answered(store)
    with closing(Desk(beside, **settings)) as at_once:
        play(at_once, shapes=shapes, defers=False)
    with closing(Desk(store, **settings)) as second:
        assert f"the journal has {len(wanted)} forecasts that this machine computes otherwise" in caplog.text
        second.now = START + STEP * GROUPS
        for group in range(GROUPS):
            asked = requests_of(group, shapes)[0]
            found = second.group(asked)[0]
            assert found == [each if len(each := wanted[event.id]) > 1 else each[0] for event in asked]
            assert found != answers[group][0]
        states = "SELECT state, monitor FROM body ORDER BY stream"  # they are those of this machine
        with reading(beside) as connection:
            assert second.engine.store.connection.all(states) == connection.all(states)
        assert whole(store)
        ((known,),) = second.engine.store.connection.all("SELECT outcome FROM event WHERE id = '3-1'")
        assert second.correct(("s1", "3-1", 1 - known)) == ["corrected"]
        second.engine.rework_all()
        again = second.group(requests_of(3, shapes)[0])[0]
        assert again == [each if len(each := wanted[event.id]) > 1 else each[0] for event in requests_of(3, shapes)[0]]
    assert whole(store)


def test_only_answers_that_differ_are_reported(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with killed(store) as first:
        play(first)
    answer_as_another_machine(store, every=3)
    wanted = answered(store)
    with closing(Desk(store)) as second:
        assert f"the journal has {len(wanted) // 3} forecasts that this machine computes otherwise" in caplog.text
        second.now = START + STEP * GROUPS
        asked = requests_of(0)[0]
        assert second.group(asked)[0] == [wanted[event.id][0] for event in asked]


@pytest.mark.skipif(not CPU.exists() or " fma " not in CPU.read_text(), reason="needs Linux on a processor with FMA")
@pytest.mark.parametrize("is_other", [False, True])
def test_a_service_on_another_processor_becomes_ready(store: str, tmp_path: Path, *, is_other: bool) -> None:
    command = [sys.executable, "-c", KILLED, store]
    killed_service = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed_service.returncode == 9, killed_service.stderr
    assert journal(store) == 1
    if is_other:
        answer_as_another_machine(store)
    copy = tmp_path / "copy.db"  # reading the answers closes the file, and folds its log
    backup(store, copy)
    wanted = answered(str(copy))
    with service_apart(store, "--method", "auto", GLIBC_TUNABLES=HIDDEN) as service:
        events = [{"stream": "paris", "id": f"e{at}", "score": at / 100} for at in range(100)]
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        found = httpx.post(f"{service.url}/v1/forecasts", json={"events": events}).json()["forecasts"]
        assert [[each["probability"]] for each in found] == [wanted[f"e{at}"] for at in range(100)]
        status, errors = service.end()
        assert status == 0
        assert ("this machine computes otherwise" in errors) == is_other
    assert whole(store)


@pytest.mark.parametrize("column", ["requests", "told", "checksum"])
def test_a_damaged_journal_is_refused_with_its_row(store: str, column: str) -> None:
    with killed(store) as service:
        play(service, 2)
        run = service.engine.store.connection.run
        run(f"UPDATE journal SET {column} = substr({column}, 1, length({column}) - 1) WHERE number = 2")  # noqa: S608
    with pytest.raises(SnapshotMismatch, match=r"must be intact, got a damaged row - at row 1: restore a backup"):
        Engine.open(store, EngineSettings())
    assert journal(store) == 2


def test_a_journal_of_other_events_is_refused(store: str) -> None:
    with killed(store) as service:
        play(service, 1)
        ((requests, told),) = service.engine.store.connection.all("SELECT requests, told FROM journal")
        less = told[:-8], checksum(requests, told[:-8])
        service.engine.store.connection.run("UPDATE journal SET told = ?, checksum = ?", less)
    with pytest.raises(SnapshotMismatch, match=r"must have the forecasts of its events, 12, got 11"):
        Engine.open(store, EngineSettings())
    assert journal(store) == 1


def test_what_is_packed_comes_back() -> None:
    requests: list[list[Any]] = [
        [ForecastEvent("a", "1", 0.5, time=3.0), ForecastEvent("a", "2", scores={"x": 0.5, "y": 0.5})],
        [ForecastEvent("a", "3", 0.1, groups={"land": None, "old": True, "age": 3})],
        [OutcomeEvent("a", "1", True), InvalidEvent("none"), OutcomeEvent("a", "2", label="x", time=2)],
        [InvalidEvent("none")],
        [],
        [CorrectionEvent("a", "1", None), CorrectionEvent("a", "1", label=None)],
        [StreamSettings("b", classes=["x", "y"])],
    ]
    found = [events for _, events in unpacked(packed([(None, each) for each in requests]))]
    wanted = [[event for event in each if type(event) is not InvalidEvent] for each in requests]
    assert found == [each for each in wanted if each]
    assert Control not in {type(event) for each in found for event in each}


def test_a_stream_that_was_heard_of_is_not_asked_before_its_notice_has_heard_it(store: str) -> None:
    with closing(Desk(store)) as service:
        engine = service.engine
        play(service, 2)
        state = engine._streams["s1"]
        engine._deadlines.set(state.number, "s1", service.now - 1.0)
        assert engine._overdue(service.now) == {}
        engine.write_out()
        state.due = service.now - 1.0
        engine._deadlines.set(state.number, "s1", state.due)
        assert engine._overdue(service.now) == {state.number: "s1"}


def test_who_asks_an_engine_that_has_ended_does_not_wait(store: str) -> None:
    with closing(Desk(store)) as service:
        play(service, 1)
        service.engine._has_ended = True
        service.engine.wait_until_written()
        assert journal(store) == 1
