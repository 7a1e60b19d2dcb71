"""A PostgreSQL store: what is answered is on the disk, one process writes, a session that hangs holds up nobody."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import numpy as np
import psycopg
import pytest
from postgres import Postgres, cut
from served import Process, service_apart, service_here, wait_until
from services import KILLED, Desk, desk, living, whole

from calibeat import Bank
from calibeat.cli.main import main
from calibeat.client import Client
from calibeat.service.events import Control, ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.plan import Plan
from calibeat.service.store import NotLeader, is_store, lease, open_connection, open_store, owned_store, postgres

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
        assert session(store, "idle_in_transaction_session_timeout") == "5s"


def test_plans_of_empty_tables_are_not_used_for_full_ones(server: Postgres) -> None:
    with desk(server.database()) as service:
        service.play(300)
        plans = "SELECT sum(custom_plans), sum(generic_plans) FROM pg_prepared_statements WHERE parameter_types <> '{}'"
        ((custom, generic),) = service.engine.store.connection.all(plans)
        assert custom > 0 and generic == 0


def test_rows_that_stay_locked_hold_up_the_tables_and_lose_nothing(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered is in the log. What cannot be is refused with 503, and served later."""
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.1)
    url = server.database()
    with service_here(url) as where, httpx.Client(base_url=where, timeout=60) as http, psycopg.connect(url) as person:
        told = {"a": http.post("/v1/forecasts", json=EVENT).json()}
        assert http.get("/v1/streams/s").json()["events"] == 1  # it is in the tables
        person.execute("SELECT * FROM stream FOR UPDATE")
        answer = http.post("/v1/forecasts", json={**EVENT, "id": "b"})
        told |= {"b": answer.json()} if answer.status_code == 200 else {}
        wait_until(lambda: status(http) == 503)
        refused = http.post("/v1/forecasts", json={**EVENT, "id": "c"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert "try again" in refused.json()["error"]["message"] and refused.headers["retry-after"] == "1"
        person.rollback()
        wait_until(lambda: status(http) == 200)
        assert {name: http.post("/v1/forecasts", json={**EVENT, "id": name}).json() for name in told} == told
        assert http.post("/v1/forecasts", json={**EVENT, "id": "c"}).status_code == 200
    assert whole(url) and info(url)["forecasts"] == len(told) + 1


@pytest.mark.parametrize("place", ["after the lease", "between two statements"])
def test_a_leader_that_hangs_in_a_group_is_ended(server: Postgres, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Another one leads. The one that hung has written nothing, and is told so when it wakes up."""
    url = server.database()
    monkeypatch.setattr(f"{SESSION}.HUNG", 0.3)
    monkeypatch.setattr("calibeat.service.store.lease.LEASE", 0.6)
    monkeypatch.setattr("calibeat.service.store.lease.RENEWAL", 0.1)
    with desk(url) as one, ExitStack() as stack:
        one.ask(("paris", "e1", 0.5))
        store: Any = one.engine.store
        many, others = store._many, list[Desk]()

        def hang(*statement: Any) -> Any:
            done = many(*statement) if place == "between two statements" else None
            if not others:
                others.append(stack.enter_context(desk(url)))  # as long as this one is stopped
                assert others[0].ask(("paris", "e2", 0.5))
                assert others[0].tell(("paris", "e1", 1)) == ["learnt"]
                stack.enter_context(living(others[0].engine.store))
            return done or many(*statement)

        store._many = hang
        heard: list[Any] = []
        one.engine.hooks.deliver = heard.extend
        with pytest.raises(store.failures):
            one.engine._do([(0, [ForecastEvent("paris", "e3", 0.5), ForecastEvent("rome", "e4", 0.5)])])
        assert [answer.status for _, answer in heard] == [503] and others
        with pytest.raises(NotLeader, match=r"one service at a time, got one that process \d+ on .* writes"):
            open_store(url, store.epoch)
    assert info(url)["forecasts"] == 2 and replay_check(url).is_same and check(url) == []


def test_a_service_stops_while_another_holds_its_rows(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has answered is in the log alone, and with the next one in the tables."""
    monkeypatch.setattr(f"{SESSION}.LOCKED", 0.5)
    url = server.database()
    with psycopg.connect(url) as stopped, service_here(url) as where:
        made = httpx.post(f"{where}/v1/forecasts", json={"stream": "s", "id": "a", "score": 0.5}, timeout=60)
        assert made.status_code == 200
        assert httpx.get(f"{where}/v1/streams/s").json()["events"] == 1  # it is in the tables
        stopped.execute("SELECT * FROM stream FOR UPDATE")
        answer = httpx.post(f"{where}/v1/forecasts", json={"stream": "s", "id": "b", "score": 0.5}, timeout=60)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: stopped.execute(waiting).fetchall())
    assert answer.status_code == 200 and info(url)["forecasts"] == 2 and whole(url)


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


# ---- one leads ------------------------------------------------------------------------------------------------------


def lapse(url: str, until: str = "-infinity") -> None:
    """Let the lease end in the past, or so much later than now."""
    with psycopg.connect(url, autocommit=True) as database:
        end = "'-infinity'" if until == "-infinity" else f"clock_timestamp() + '{until}'"
        database.execute(f"UPDATE leader SET until = {end}")  # noqa: S608 - our own text


def leader(url: str) -> tuple[int, str, bool]:
    """Epoch and holder, and whether the lease is free."""
    with closing(open_connection(url)) as connection:
        ((epoch, holder),) = connection.all("SELECT epoch, holder FROM leader")
        return epoch, holder, lease.is_free(connection)


def test_a_lease_is_taken_by_one_and_given_back(server: Postgres) -> None:
    url = server.database()
    with closing(open_store(url)):
        assert leader(url) == (1, f"process {os.getpid()} on {socket.gethostname()}", False)
    assert leader(url)[::2] == (1, True)
    with closing(open_store(url)):
        lapse(url, "1 day")  # as where the server's clock was set back since
        with closing(open_store(url)):
            assert leader(url)[::2] == (3, False)
    assert leader(url)[::2] == (3, True)


def test_a_lease_that_nobody_renews_is_waited_for_and_one_that_lives_is_not(server: Postgres) -> None:
    url = server.database()
    first = open_connection(url, write=True)
    open_store(url).close()
    with closing(first), ExitStack() as stack:
        held = lease.Lease()
        held.take(first)
        lapse(url, "1 second")
        later = stack.enter_context(closing(open_store(url)))
        assert (held.epoch, later.epoch) == (2, 3)
        first.begin()
        with pytest.raises(lease.NotLeader, match=r"got one that process .* has taken over") as caught:
            held.check(first)
        assert caught.value.holder == f"process {os.getpid()} on {socket.gethostname()}"
        first.rollback()
        held.release(first)  # of what it has not
        assert not leader(url)[2]
        with living(later), pytest.raises(lease.NotLeader, match="store must be used by one service at a time"):
            held.take(first)
        again = lease.Lease(later.epoch)
        again.take(first)  # at once, as a leader whose session was cut
        assert again.epoch == 4
        first.begin()
        again.check(first)
        with psycopg.connect(url, autocommit=True) as database:  # inside a transaction it does not lapse
            database.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                database.execute("UPDATE leader SET until = '-infinity'")
        first.rollback()


def test_a_leader_that_was_overtaken_writes_nothing(server: Postgres) -> None:
    url = server.database()
    with desk(url) as one:
        told = one.ask(("paris", "e1", 0.5))
        lapse(url)
        with desk(url) as two:
            assert two.ask(("paris", "e1", 0.5)) == told and two.tell(("paris", "e1", 1)) == ["learnt"]
            heard: list[Any] = []
            one.engine.hooks.deliver = heard.extend
            works: list[Any] = [
                lambda: one.engine._do([(0, [OutcomeEvent("paris", "e1", 0)])]),  # which nothing has to be written for
                lambda: one.engine._do([(1, [Control("reset", "paris")])]),
                lambda: one.engine._do([(2, [ForecastEvent("paris", "e9", 0.5)])]),
                one.engine.listening.beat,
                lambda: one.engine.store.alone("DELETE FROM event", ()),
            ]
            for work in works:
                one.engine.store.lease._renewed = -math.inf  # it was stopped
                with pytest.raises(NotLeader):
                    work()
                one.engine.store.rollback()
            assert [(ticket, answer.code, answer.status) for ticket, answer in heard] == [
                (0, "not_ready", 503),
                (1, "not_ready", 503),
                (2, "not_ready", 503),
            ]
            one.engine.store.close()
            assert not leader(url)[2]  # it was not its own
    assert replay_check(url).is_same and check(url) == []


def test_all_of_a_group_are_told_that_another_leads(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are done one by one, because one of them has a fault, and the lease is lost meanwhile."""
    url, take = server.database(), Plan.take

    def faulty(self: Plan, events: list[ForecastEvent]) -> None:
        if events[0].id == "e0":
            raise ZeroDivisionError("a fault")
        take(self, events)

    with desk(url) as one:
        heard: list[Any] = []
        one.engine.hooks.deliver = heard.extend
        forget = one.engine.forget

        def overtaken() -> None:
            forget()
            lapse(url)
            open_store(url).close()

        monkeypatch.setattr(one.engine, "forget", overtaken)
        monkeypatch.setattr(Plan, "take", faulty)
        with pytest.raises(NotLeader):
            one.engine._do([(at, [ForecastEvent("s0", f"e{at}", 0.5)]) for at in range(3)])
    assert [(ticket, answer.code) for ticket, answer in heard] == [(0, "internal"), (1, "not_ready"), (2, "not_ready")]


def test_a_stream_goes_on_where_it_was_under_the_next_leader(server: Postgres) -> None:
    url, bank, rng = server.database(), Bank("tops"), np.random.default_rng(1)

    def work(process: Desk, name: str, first: int) -> None:
        for at in range(first, first + 5):
            score, outcome = float(rng.random()), int(rng.random() < 0.3)
            made = bank.fold([name], [score], [np.nan])
            assert process.ask((name, f"{name}-{at}", score)) == made.forecasts.tolist()
            assert process.tell((name, f"{name}-{at}", outcome)) == ["learnt"]
            bank.fold([name], [np.nan], [float(outcome)], made.receipts)

    names = [f"s{i}" for i in range(8)]
    for first, of in ((0, names), (100, names[::2]), (200, names)):
        with desk(url) as process:
            for name in of:
                work(process, name, first)
    assert replay_check(url).is_same and check(url) == []


def test_a_leader_that_loses_its_session_writes_nothing_over_it(server: Postgres) -> None:
    url = server.database()
    with desk(url) as one:
        one.ask(("paris", "e1", 0.5))
        cut(one.engine)
        with pytest.raises(one.engine.store.failures):
            one.ask(("paris", "e2", 0.5))
        open_store(url, one.engine.store.epoch).close()  # at once
        with desk(url) as service:
            assert service.tell(("paris", "e2", 1), ("paris", "e1", 1)) == ["unknown", "learnt"]
    assert whole(url)


def test_commands_that_own_the_store_name_its_leader(
    server: Postgres, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = server.database()
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        with living(service.engine.store):
            for command in (["replay"], ["prune", "--older", "1d"], ["configure", "--monitor", "1000"]):
                assert main(["store", *command, "--store", url]) == 2
                assert f"process {os.getpid()} on {socket.gethostname()} writes" in capsys.readouterr().err
            assert main(["token", "create", "--name", "web", "--scope", "read", "--store", url]) == 0
            assert main(["store", "export", str(tmp_path / "log.parquet"), "--store", url]) == 0
    assert main(["store", "configure", "--monitor", "1000", "--store", url]) == 0
    with owned_store(url), closing(open_connection(url)) as connection:
        assert not connection.all("SELECT 1 FROM leader FOR UPDATE SKIP LOCKED")  # nobody else can take it
    assert leader(url)[2]


# ---- two services ---------------------------------------------------------------------------------------------------

EVENT = {"stream": "s", "id": "a", "score": 0.5}


def status(http: httpx.Client, path: str = "/readyz") -> int:
    return http.get(path).status_code


def test_a_standby_says_so_and_takes_over(server: Postgres) -> None:
    url = server.database()
    with ExitStack() as stack:
        first = stack.enter_context(service_apart(url, "--method", "ops"))
        second = stack.enter_context(service_apart(url, "--method", "ops"))
        one, two = (stack.enter_context(httpx.Client(base_url=each.url, timeout=60)) for each in (first, second))
        assert re.fullmatch(
            rf"calibeat stands by for postgresql://\S+ at {second.url}; process {first.process.pid} on \S+ leads\n",
            second.line,
        )
        for wrong, sentence in (
            (["--method", "tops"], "method must be that of the store, 'ops', got 'tops'"),
            (["--host", "0.0.0.0"], "host must be loopback as long as there is no token"),  # noqa: S104
        ):
            with pytest.raises(RuntimeError, match=sentence):
                Process(url, *wrong)
        told = one.post("/v1/forecasts", json=EVENT).json()
        assert (status(two, "/healthz"), status(two)) == (200, 503)
        for answer in (
            two.get("/readyz"),
            two.post("/v1/forecasts", json=EVENT),
            two.put("/v1/outcomes", json={}),
            two.get("/v1/streams"),
            two.get("/metrics"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert two.post("/v1/forecasts", json=EVENT).headers["retry-after"] == "1"
        assert first.end()[0] == 0  # it lets the other one lead
        wait_until(lambda: status(two) == 200)
        assert two.post("/v1/forecasts", json=EVENT).json() == told
        third = stack.enter_context(service_apart(url, "--method", "ops"))
        second.process.kill()
        with httpx.Client(base_url=third.url, timeout=60) as http:
            wait_until(lambda: status(http) == 200)
            assert http.post("/v1/forecasts", json=EVENT).json() == told
        assert third.end()[0] == 0
    assert replay_check(url).is_same and check(url) == []


def test_a_leader_that_was_stopped_stands_by_when_it_wakes_up(server: Postgres) -> None:
    url = server.database()
    with ExitStack() as stack:
        first = stack.enter_context(service_apart(url, "--method", "ops"))
        second = stack.enter_context(service_apart(url, "--method", "ops"))
        one, two = (stack.enter_context(httpx.Client(base_url=each.url, timeout=60)) for each in (first, second))
        told = one.post("/v1/forecasts", json=EVENT).json()
        first.process.send_signal(signal.SIGSTOP)
        waiting = stack.enter_context(ThreadPoolExecutor(1)).submit(
            one.post, "/v1/outcomes", json={"stream": "s", "id": "a", "outcome": 0}
        )
        wait_until(lambda: status(two) == 200)
        assert two.post("/v1/outcomes", json={"stream": "s", "id": "a", "outcome": 1}).json() == {"status": "learnt"}
        first.process.send_signal(signal.SIGCONT)
        refused = waiting.result(60)
        assert (refused.status_code, refused.json()["error"]["code"]) in {(503, "not_ready"), (503, "unavailable")}
        wait_until(lambda: status(one) == 503)
        assert second.end()[0] == 0
        wait_until(lambda: status(one) == 200)  # its turn again
        assert one.post("/v1/forecasts", json=EVENT).json() == told
        again = one.post("/v1/outcomes", json={"stream": "s", "id": "a", "outcome": 1})
        assert again.json() == {"status": "repeated"}
        ended, errors = first.end()
        assert ended == 0 and "has taken over" in errors
    assert replay_check(url).is_same and check(url) == []


def test_a_database_that_takes_no_writes_for_a_while(server: Postgres) -> None:
    url = server.database()
    with ExitStack() as stack:
        service = stack.enter_context(service_apart(url, "--method", "ops"))
        standby = stack.enter_context(service_apart(url, "--method", "ops"))
        one, two = (stack.enter_context(httpx.Client(base_url=each.url, timeout=60)) for each in (service, standby))
        told = one.post("/v1/forecasts", json=EVENT).json()
        server.set("default_transaction_read_only", "on")
        try:
            refused = wait_until(lambda: (a := one.post("/v1/forecasts", json=EVENT)).status_code != 200 and a)
            assert (refused.status_code, refused.json()["error"]["code"]) in {(503, "unavailable"), (503, "not_ready")}
            wait_until(lambda: status(one) == 503)
        finally:
            server.set("default_transaction_read_only", "off")
        both = [one, two]
        wait_until(lambda: [status(each) for each in both].count(200) == 1)
        http = one if status(one) == 200 else two
        assert http.post("/v1/forecasts", json=EVENT).json() == told
    assert replay_check(url).is_same and check(url) == []


def test_streams_are_divided_among_two_services_by_their_names(server: Postgres, tmp_path: Path) -> None:
    """As docs/service-store.md does it: each shard has a store of its own, and nobody can see how many there are."""
    stores, bank = [server.database(), str(tmp_path / "calibeat.db")], Bank("tops")
    with ExitStack() as stack:
        found = [stack.enter_context(service_apart(store, "--method", "tops")) for store in stores]
        shards = [stack.enter_context(Client(each.url)) for each in found]

        def shard_of(stream: str) -> Client:
            return shards[crc32(stream.encode()) % len(shards)]

        for at in range(80):
            stream, score = f"s{at % 8}", at / 80
            made = bank.fold([stream], [score], [np.nan])
            assert float(shard_of(stream).predict(stream, score, f"e{at}")) == made.forecasts[0]
            assert shard_of(stream).outcome(stream, f"e{at}", at % 2) == "learnt"
            bank.fold([stream], [np.nan], [float(at % 2)], made.receipts)
    counts = [info(store)["streams"] for store in stores]
    assert sum(counts) == 8 and min(counts) > 0
    assert all(replay_check(store).is_same and check(store) == [] for store in stores)


# ---- the session ----------------------------------------------------------------------------------------------------


def test_what_a_killed_leader_has_answered_is_there_for_a_command(server: Postgres) -> None:
    url = server.database()
    assert subprocess.run([sys.executable, "-c", KILLED, url], check=False).returncode == 9
    with closing(open_connection(url)) as connection:
        assert connection.all("SELECT count(*) FROM op") == [(151,)]  # and one that begins the stream
        assert connection.all("SELECT count(*) FROM event") == [(0,)]
    assert info(url)["forecasts"] == 100 and info(url)["outcomes"] == 50
    assert replay_check(url).is_same and check(url) == []


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
