"""The sessions of a PostgreSQL store: what is answered is on the disk, and one that hangs holds up nobody for long."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import httpx
import psycopg
import pytest
from postgres import Postgres
from served import service_apart, service_here, wait_until
from services import desk

from calibeat.cli.main import main
from calibeat.service.operate import check, info, replay_check
from calibeat.service.operations import ForecastEvent, Refusal
from calibeat.service.store import StoreBusy, is_store, open_connection, open_store
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


def test_an_id_that_another_is_about_to_take_is_waited_for_no_longer(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.1)
    url = server.database()
    with desk(url) as one, desk(url) as two:
        commit: Any = one.engine.store.commit
        one.engine.store.commit = lambda: None  # type: ignore[method-assign]
        one.ask(("paris", "e1", 0.5))
        with pytest.raises(StoreBusy, match="rows must be free to be written, got one that another process holds"):
            two.ask(("rome", "e1", 0.5))
        two.engine.forget()
        commit()
    assert info(url)["forecasts"] == 1


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
