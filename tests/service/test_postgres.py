"""A PostgreSQL store: what is answered is on the disk, a session that hangs holds up nobody, two processes agree."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from postgres import Postgres
from served import service_apart, service_here, wait_until
from services import DAY, Desk, desk

from calibeat import Bank
from calibeat.cli.main import main
from calibeat.service.events import ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.store import StoreBusy, is_store, open_connection, open_store, owned, postgres
from calibeat.service.store.postgres import Overtaken

SESSION = "calibeat.service.store.postgres"


def session(store: Any, name: str) -> str:
    """A setting of the session that writes."""
    return str(store.connection.all(f"SHOW {name}")[0][0])


@pytest.mark.parametrize(
    ("given", "used"), [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_commits_are_on_the_disk_whatever_the_database_says(server: Postgres, given: str, used: str) -> None:
    url = server.database()
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"ALTER DATABASE {database.info.dbname} SET synchronous_commit = {given}")
    with closing(open_store(url)) as store:
        assert session(store, "synchronous_commit") == used
        source = "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'"
        assert store.connection.all(source) == [("session",)]  # which no new configuration changes
    with closing(open_connection(url, write=True)) as connection:  # of a command, such as a token that is revoked
        assert connection.all("SHOW synchronous_commit") == [(used,)]


def test_a_session_that_writes_groups_has_time_limits(server: Postgres) -> None:
    with closing(open_store(server.database())) as store:
        assert session(store, "lock_timeout") == "2s"
        assert session(store, "idle_in_transaction_session_timeout") == "20s"


def test_rows_that_stay_locked_are_503_and_served_later(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.1)
    url = server.database()
    with desk(url) as one, desk(url) as two:
        one.ask(("paris", "e1", 0.5))
        held: Any = one.engine.store
        held.streams({"paris"}, {})  # as a process that was stopped in the middle of a group
        heard: list[Any] = []
        two.engine._deliver = heard.extend
        two.engine._do([(0, [ForecastEvent("paris", "e2", 0.5)]), (1, [ForecastEvent("rome", "e3", 0.5)])])
        refused = [answer for _, answer in heard]
        assert all(isinstance(answer, Refusal) and answer.status == 503 for answer in refused) and len(refused) == 2
        assert refused[0].code == "unavailable" and "try again" in refused[0].message
        assert two.ask(("rome", "e3", 0.5))  # a stream that nobody has locked
        held.rollback()
        assert two.ask(("paris", "e2", 0.5))
    assert replay_check(url).is_same and check(url) == []


def test_a_stream_that_another_is_about_to_make_is_waited_for_no_longer(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.1)
    url = server.database()
    with desk(url) as one, desk(url) as two:
        commit: Any = one.engine.store.commit
        one.engine.store.commit = lambda: None  # type: ignore[method-assign]
        one.ask(("paris", "e1", 0.5))
        with pytest.raises(StoreBusy, match="rows must be free to be written, got one that another process holds"):
            two.ask(("paris", "e2", 0.5))
        two.engine.forget()
        assert two.ask(("rome", "e1", 0.5))  # the same id in another stream is another event
        commit()
    assert info(url)["forecasts"] == 2


def test_a_stream_that_another_has_made_meanwhile_is_read_again(server: Postgres) -> None:
    url = server.database()
    with desk(url) as one, desk(url) as two:
        store: Any = two.engine.store
        create, tries = store.create, list[int]()

        def late(names: Any) -> Any:
            tries.append(1)
            if len(tries) == 1:
                one.ask(("paris", "e1", 0.5))
            return create(names)

        store.create = late
        with pytest.raises(Overtaken, match="streams must be new, got 1 that others have made meanwhile"):
            two.engine.process([(0, [ForecastEvent("paris", "e2", 0.5)])])
        two.engine.forget()
        assert two.ask(("paris", "e2", 0.5)) and tries == [1]
    assert info(url)["forecasts"] == 2 and info(url)["streams"] == 1


@pytest.mark.parametrize("place", ["after its locks", "between two statements"])
def test_a_session_that_hangs_in_a_group_is_ended(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The other one goes on. The one that hung has written nothing, and ends when it wakes up."""
    url = server.database()
    monkeypatch.setattr(f"{SESSION}.HUNG", 0.3)
    with desk(url) as one:
        one.ask(("paris", "e1", 0.5))
        monkeypatch.setattr(f"{SESSION}.LOCKED", 30.0)
        with desk(url) as two:
            store: Any = one.engine.store
            many, hung = store._many, []

            def hang(*statement: Any) -> Any:
                done = many(*statement) if place == "between two statements" else None
                if not hung:
                    hung.append(True)
                    assert two.ask(("paris", "e2", 0.5))  # as long as this one is stopped
                    assert two.tell(("paris", "e1", 1)) == ["learnt"]
                return done or many(*statement)

            store._many = hang
            with pytest.raises(store.failures) as caught:
                one.ask(("paris", "e3", 0.5), ("rome", "e4", 0.5))
            assert hung and not isinstance(caught.value, Overtaken)
            with pytest.raises(store.failures):
                one.ask(("rome", "e5", 0.5))
    assert info(url)["forecasts"] == 2 and replay_check(url).is_same and check(url) == []


def test_a_service_stops_while_another_holds_its_rows(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.5)
    url = server.database()
    statuses: list[int] = []

    def ask(where: str) -> None:
        answer = httpx.post(f"{where}/v1/forecasts", json={"stream": "s", "id": "b", "score": 0.5}, timeout=60)
        statuses.append(answer.status_code)

    with psycopg.connect(url) as stopped:
        with service_here(url) as where:
            made = httpx.post(f"{where}/v1/forecasts", json={"stream": "s", "id": "a", "score": 0.5}, timeout=60)
            assert made.status_code == 200
            stopped.execute("SELECT * FROM stream FOR UPDATE")
            asking = threading.Thread(target=ask, args=(where,))
            asking.start()
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            wait_until(lambda: stopped.execute(waiting).fetchall())
        asking.join()
    assert statuses == [503] and info(url)["forecasts"] == 1


def test_a_new_store_is_told_of(server: Postgres) -> None:
    url = server.database()
    assert not is_store(url)
    with service_apart(url, "--method", "ops") as service:
        assert service.made.startswith("calibeat made a new store: postgresql://calibeat@")
    assert is_store(url)
    with closing(open_store(url)) as store:
        assert not store.is_new


def test_an_import_makes_a_store_only_if_it_is_told_to(server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "import", "log.parquet", "--store", server.database()]) == 2
    assert "store must exist, got none - at PostgreSQL: --create makes one" in capsys.readouterr().err


# ---- several processes ----------------------------------------------------------------------------------------------


def test_two_services_answer_for_any_stream(server: Postgres) -> None:
    url = server.database()
    with ExitStack() as stack:
        found = [stack.enter_context(service_apart(url, "--method", "ops")) for _ in range(2)]
        one, two = [stack.enter_context(httpx.Client(base_url=service.url)) for service in found]
        events = [{"stream": f"s{i % 5}", "id": f"e{i}", "score": i / 100} for i in range(60)]
        answers = [(one, two)[i % 2].post("/v1/forecasts", json=event).json() for i, event in enumerate(events)]
        assert [(two, one)[i % 2].post("/v1/forecasts", json=e).json() for i, e in enumerate(events)] == answers
        told = [{"stream": e["stream"], "id": e["id"], "outcome": 1} for e in events]
        posted = [(one, two)[i // 7 % 2].post("/v1/outcomes", json=each).json() for i, each in enumerate(told)]
        assert {answer["status"] for answer in posted} == {"learnt"}
        assert one.get("/v1/overview").json()["outcomes"] == 60
        found[0].process.kill()
        again = two.post("/v1/outcomes", json={"events": told}, timeout=30).json()["outcomes"]
        assert {each["status"] for each in again} == {"repeated"}
    assert replay_check(url).is_same and check(url) == []


def test_a_stream_that_changes_hands_goes_on_where_it_was(server: Postgres) -> None:
    url, bank, rng = server.database(), Bank("tops"), np.random.default_rng(1)

    def work(process: Desk, name: str, first: int) -> None:
        for at in range(first, first + 5):
            score, outcome = float(rng.random()), int(rng.random() < 0.3)
            made = bank.fold([name], [score], [np.nan])
            assert process.ask((name, f"{name}-{at}", score)) == made.forecasts.tolist()
            assert process.tell((name, f"{name}-{at}", outcome)) == ["learnt"]
            bank.fold([name], [np.nan], [float(outcome)], made.receipts)

    names = [f"s{i}" for i in range(8)]
    with desk(url) as one:
        with desk(url) as two:
            for name in names:
                work(one, name, 0)
            for name in names[::2]:
                work(two, name, 100)
        for name in names:  # and back
            work(one, name, 200)
    assert replay_check(url).is_same and check(url) == []


def test_a_process_that_loses_its_session_can_write_nothing(server: Postgres) -> None:
    url = server.database()
    with desk(url) as one, desk(url) as two:
        one.ask(("paris", "e1", 0.5))
        with psycopg.connect(url) as database:
            lost = one.engine.store.connection.database.info.backend_pid
            database.execute("SELECT pg_terminate_backend(%s)", (lost,))
        assert two.tell(("paris", "e1", 1)) == ["learnt"]
        with pytest.raises(one.engine.store.failures):  # which ends the process
            one.ask(("paris", "e2", 0.5))
    assert replay_check(url).is_same


def test_what_comes_of_age_is_done_once(server: Postgres) -> None:
    url, ages = server.database(), {"expire": 30 * DAY, "mature": DAY}
    with desk(url, **ages) as one, desk(url, **ages) as two:
        for name, process in (("paris", one), ("rome", two)):
            process.ask((name, f"{name}-a", 0.5), (name, f"{name}-b", 0.5))
            assert process.tell((name, f"{name}-a", 1)) == ["held"]
        one.tick(2 * DAY)
        assert info(url)["outcomes"] == 2
        two.tick(40 * DAY)
        one.tick(40 * DAY)
        assert (one.engine.counters.outcomes, two.engine.counters.outcomes) == (2, 0)
        assert (one.engine.counters.expired, two.engine.counters.expired) == (0, 2)
        assert (info(url)["outcomes"], info(url)["expired"]) == (2, 2)
    assert replay_check(url).is_same and check(url) == []


def test_two_processes_take_the_same_id_at_the_same_time(server: Postgres) -> None:
    url = server.database()
    with desk(url) as one, desk(url) as two:
        one.ask(("paris", "e1", 0.5))
        known, store = two.engine.store.known, two.engine.store
        answers = iter([{}])  # as if both had looked at one moment
        store.known = lambda ids: next(answers, None) or known(ids)  # type: ignore[method-assign]
        (answer,) = two.engine._try([(0, [ForecastEvent("paris", "e1", 0.9)])])
        assert isinstance(answer[1], Refusal) and answer[1].status == 409
        assert two.ask(("rome", "e1", 0.5), ("paris", "e1", 0.5))
    assert replay_check(url).is_same and check(url) == []


def test_a_stream_that_somebody_else_has_written_is_read_again(server: Postgres) -> None:
    """It cannot happen as long as PostgreSQL keeps its locks. If it did, nothing would be lost."""
    url = server.database()
    with desk(url) as one, desk(url) as two:
        one.ask(("paris", "e1", 0.5))
        two.ask(("paris", "e2", 0.5))
        store: Any = one.engine.store
        locked = store.streams
        store.streams = lambda *_: store.connection.begin() or {}  # without locks
        with pytest.raises(store.retries, match="streams must be as they were read, got 1 that others"):
            one.tell(("paris", "e1", 1))
        store.streams = locked
        one.engine.forget()
        assert one.engine._try([(0, [OutcomeEvent("paris", "e1", 1)])]) == [(0, ["learnt"])]
        assert two.engine._try([(0, [ForecastEvent("paris", "e3", 0.5)])])
    assert replay_check(url).is_same and check(url) == []


def test_a_session_that_ends_late_does_not_keep_a_command_out(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of a service that was killed may end a moment after it."""
    url = server.database()
    with desk(url) as first, psycopg.connect(url, autocommit=True) as database:
        pid = first.engine.store.connection.database.info.backend_pid
        sleep = postgres.time.sleep

        def end_the_first(seconds: float) -> None:
            database.execute("SELECT pg_terminate_backend(%s)", (pid,))
            sleep(seconds)

        monkeypatch.setattr(postgres.time, "sleep", end_the_first)
        with owned(url):
            pass


def test_a_group_that_fills_the_socket_is_sent_whole(server: Postgres) -> None:
    """Otherwise this waits for ever: the server for the rest of a statement, the client for the answer."""
    url = server.database()
    with desk(url) as service:
        for turn in range(4):  # statements are prepared meanwhile
            events = [ForecastEvent(f"s{at}", f"{turn}-{at}", 0.5) for at in range(2_000)]
            assert len(service.group(events)[0]) == 2_000
    assert info(url)["forecasts"] == 8_000


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("bigint", [0, -1, 2**63 - 1, -(2**63)]),
        ("bigint", [None, 5, None]),
        ("int2", [1, None, -32_768, 32_767]),
        ("float8", [0.1, -0.0, 1e308, float("inf"), None, 5e-324]),
        ("float8", [1.0]),
        ("text", ["", "ä€😀", None, "x" * 300]),
        ("bytea", [b"", None, bytes(range(256))]),
    ],
)
def test_arrays_are_read_as_they_were_packed(server: Postgres, kind: str, column: list[Any]) -> None:
    with closing(open_connection(server.database())) as connection:
        ((found,),) = connection.all(f"SELECT ?::{kind}[]", (postgres.packed_array(kind, column),))
    assert found == column
    assert [str(each) for each in found] == [str(each) for each in column]
