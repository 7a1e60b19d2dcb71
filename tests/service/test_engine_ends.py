"""How an engine ends: the lead is lost, the store goes away, a fault of ours; and how a service goes on after that."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from postgres import Postgres, cut
from served import address, receive, request, service_here, wait_until
from services import desk, living, stream_of, whole

from calibeat import InvalidInput
from calibeat.errors import SnapshotMismatch
from calibeat.service.engine import Engine
from calibeat.service.events import Control, ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.http import _wake
from calibeat.service.main import ServeOptions, StoredTokens, serve
from calibeat.service.routes import Routes
from calibeat.service.settings import EngineSettings
from calibeat.service.store import StoreAway, open_store

EVENT = {"stream": "paris", "id": "e1", "score": 0.5}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that end soon, and are looked at often."""
    monkeypatch.setattr("calibeat.service.store.lease.LEASE", 1.2)
    monkeypatch.setattr("calibeat.service.store.lease.RENEWAL", 0.1)
    monkeypatch.setattr("calibeat.service.engine.RENEWAL", 0.1)
    monkeypatch.setattr("calibeat.service.store.STANDBY_LOOK", 0.05)


def overtake(url: str, seconds: float = 1.0) -> int:
    """Take the lease as another process does -> its epoch."""
    with psycopg.connect(url, autocommit=True) as database:
        statement = (
            "UPDATE leader SET epoch = epoch + 1, holder = 'another', "
            "until = clock_timestamp() + %s * interval '1 second' RETURNING epoch"
        )
        ((epoch,),) = database.execute(statement, (seconds,)).fetchall()
    return int(epoch)


class Running:
    """An engine on its thread, and what it says."""

    def __init__(self, url: str, clock: Any = None) -> None:
        self.engine = Engine.open(url, EngineSettings(method="tops"), clock)
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.failed: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.engine.hooks.on_failure = self.failed.append
        self.engine.hooks.on_loss = lambda sentence, refusal: self.lost.append((sentence, refusal.code))
        self.engine.start(self._hear)

    def _hear(self, answers: list[Any]) -> None:
        for answer in answers:
            self.heard.put(answer)

    def ask(self, name: str) -> Any:
        """The answer to a forecast."""
        self.engine.submit(name, [ForecastEvent("paris", name, 0.5)])
        ticket, answer = self.heard.get(timeout=30)
        assert ticket == name
        return answer

    def wait_for_end(self) -> None:
        """Until its thread has ended, by itself."""
        thread = self.engine._thread
        assert thread is not None
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def running(url: str, clock: Any = None) -> Iterator[Running]:
    """An engine that is stopped at the end, however it ended."""
    made = Running(url, clock)
    try:
        yield made
    finally:
        made.engine.stop()
        if made.failed:  # the process would have ended; otherwise the engine has closed it
            made.engine.store.close()


# ---- the engine's thread --------------------------------------------------------------------------------------------


def test_all_that_wait_are_refused_when_another_leads(server: Postgres) -> None:
    """Also groups behind the one that noticed it, and who comes later."""
    url = server.database()
    with running(url) as one:
        told = one.ask("e0")

        def lose() -> None:
            one.engine.submit(1, [ForecastEvent("paris", "e1", 0.5)])
            one.engine.submit(2, [Control("reset", "paris")])  # a group of its own
            one.engine.submit(3, [OutcomeEvent("paris", "e0", 1)])
            overtake(url, 0.0)

        one.engine.between(lose)
        one.wait_for_end()
        answers = dict(one.heard.get(timeout=30) for _ in range(3))
        assert {ticket: (answer.code, answer.status) for ticket, answer in answers.items()} == dict.fromkeys(
            (1, 2, 3), ("not_ready", 503)
        )
        assert [code for _, code in one.lost] == ["not_ready"] and "another has taken over" in one.lost[0][0]
        assert one.engine.is_away and one.failed == []
        with pytest.raises(Refusal, match="the service must lead the store"):
            one.engine.submit(4, [ForecastEvent("paris", "e4", 0.5)])
        with pytest.raises(InterruptedError, match="the engine has ended"):
            one.engine.between(lambda: 1)
    with desk(url) as service:  # only what was answered
        assert service.ask(("paris", "e0", 0.5)) == told
        assert service.tell(("paris", "e0", 1), ("paris", "e1", 1)) == ["learnt", "unknown"]
    assert whole(url)


def test_a_session_that_was_cut_ends_the_engine(server: Postgres) -> None:
    url = server.database()
    with running(url) as one:
        told = one.ask("e0")
        cut(one.engine)
        refusal = one.ask("e1")
        assert (refusal.code, refusal.status) == ("unavailable", 503)
        one.wait_for_end()
        assert [code for _, code in one.lost] == ["unavailable"] and one.failed == []
        assert one.lost[0][0].startswith("the store is away, requests are refused until it answers: ")
        with pytest.raises(Refusal, match="the store must answer"):
            one.engine.submit(2, [ForecastEvent("paris", "e2", 0.5)])
        epoch = one.engine.store.epoch
    open_store(url, epoch).close()  # at once, as the service does
    with desk(url) as service:
        assert service.ask(("paris", "e0", 0.5)) == told
    assert whole(url)


def test_a_job_with_a_fault_stops_nobody(url: str) -> None:
    with running(url) as one:
        told = one.ask("e0")
        with pytest.raises(ZeroDivisionError):
            one.engine.between(lambda: 1 / 0)
        assert one.engine.between(lambda: 7) == 7
        assert one.ask("e0") == told  # from the store: memory was forgotten
        one.ask("e1")
        one.engine.wait_until_written()
        assert stream_of(url).events == 2
        assert one.failed == [] and one.lost == []
    with desk(url) as service:
        assert service.engine.between(lambda: 8) == 8  # without a thread
    assert whole(url)


def test_a_job_that_finds_the_server_away_ends_the_engine(server: Postgres) -> None:
    with running(server.database()) as one:
        connection = one.engine.store.connection

        def asked() -> Any:
            cut(one.engine)
            return connection.all("SELECT 1")

        with pytest.raises(one.engine.store.failures):
            one.engine.between(asked)
        one.wait_for_end()
        assert [code for _, code in one.lost] == ["unavailable"] and one.failed == []


def test_a_job_that_finds_a_broken_file_ends_the_process(tmp_path: Path) -> None:
    with running(str(tmp_path / "a.db")) as one:
        connection = one.engine.store.connection
        with pytest.raises(one.engine.store.failures, match="no such table"):
            one.engine.between(lambda: connection.all("SELECT * FROM absent"))
        one.wait_for_end()
        assert one.failed == ["the store could not be written: no such table: absent"]
        assert one.lost == [] and not one.engine.is_away


def test_a_fault_between_groups_ends_the_process(tmp_path: Path) -> None:
    """Nobody knows what is right then; who waits for the tables does not wait for ever."""
    is_broken = threading.Event()

    def clock() -> float:
        if is_broken.is_set():
            raise ZeroDivisionError("no time")
        return time.time()

    url = str(tmp_path / "a.db")
    with running(url, clock) as one:
        told = one.ask("e0")
        written = threading.Event()

        def fail() -> None:
            one.engine.behind.readers.append(written)
            is_broken.set()

        one.engine.between(fail)
        one.wait_for_end()
        assert written.is_set()
        assert one.failed == ["the store could not be written: no time"] and one.lost == []
    with desk(url) as service:
        assert service.ask(("paris", "e0", 0.5)) == told
    assert whole(url)


# ---- services that lead, and stand by -------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def service_later(url: str) -> Iterator[tuple[httpx.Client, threading.Event]]:
    """A service that may have to wait before it leads -> a client of it, and whether it leads. It must lead once."""
    leads, over, port = threading.Event(), threading.Event(), free_port()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with service_here(url, port=port):
                leads.set()
                over.wait(60)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            yield http, leads
    finally:
        over.set()
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def readiness(http: httpx.Client) -> tuple[int, str]:
    """What a load balancer sees."""
    try:
        answer = http.get("/readyz")
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["code"]


NOT_READY = (503, "not_ready")


@pytest.mark.usefixtures("hasty")
def test_a_second_service_leads_when_the_first_stops(server: Postgres) -> None:
    url, first = server.database(), ExitStack()
    with first:
        leader = first.enter_context(httpx.Client(base_url=first.enter_context(service_here(url)), timeout=30))
        told = leader.post("/v1/forecasts", json=EVENT).json()
        with service_later(url) as (http, leads):
            wait_until(lambda: readiness(http) == NOT_READY)
            assert not leads.wait(1.3)  # longer than a lease: the first renews it
            answer = http.post("/v1/forecasts", json=EVENT)
            assert (answer.status_code, answer.json()["error"]["code"]) == NOT_READY
            assert readiness(leader)[0] == 200
            first.close()
            assert leads.wait(30)
            assert readiness(http)[0] == 200
            assert http.post("/v1/forecasts", json=EVENT).json() == told
    assert whole(url)


@pytest.mark.usefixtures("hasty")
def test_a_leader_that_is_overtaken_stands_by_and_leads_again(
    server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.database()
    with service_here(url) as where, httpx.Client(base_url=where, timeout=30) as http:
        told = http.post("/v1/forecasts", json=EVENT).json()
        message = request("/v1/forecasts", b'{"stream": "paris", "id": "e2", "score": 0.5}', "connection: close")
        with socket.create_connection(address(where), timeout=30) as slow:
            slow.sendall(message[:-5])  # the rest comes when it no longer leads
            assert readiness(http)[0] == 200
            with closing(open_store(url, overtake(url))) as other, living(other):
                wait_until(lambda: readiness(http) == NOT_READY)
                answer = http.post("/v1/forecasts", json=EVENT)
                assert (answer.status_code, answer.json()["error"]["code"]) == NOT_READY
                slow.sendall(message[-5:])
                assert b'"not_ready"' in receive(slow)
        wait_until(lambda: readiness(http)[0] == 200)
        assert http.post("/v1/forecasts", json=EVENT).json() == told
        wait_until(lambda: "requests are answered again" in caplog.text)
    assert "got one that process " in caplog.text or "got one that another has taken over" in caplog.text
    assert whole(url)


@pytest.mark.usefixtures("hasty")
def test_a_service_stops_while_it_stands_by(server: Postgres) -> None:
    url = server.database()
    with ExitStack() as other:
        with service_here(url) as where, httpx.Client(base_url=where, timeout=30) as http:
            other.enter_context(living(other.enter_context(closing(open_store(url, overtake(url))))))
            wait_until(lambda: readiness(http) == NOT_READY)
        with psycopg.connect(url) as database:  # it has taken nothing from the other
            assert database.execute("SELECT until > clock_timestamp() FROM leader").fetchall() == [(True,)]
    assert whole(url)


@pytest.mark.usefixtures("hasty")
def test_a_standby_that_no_longer_fits_the_store_ends(server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as when a command has made its state anew, with another method."""
    url, port, failed = server.database(), free_port(), list[BaseException]()

    def run() -> None:
        try:
            serve(ServeOptions(url, EngineSettings(method="ops"), port=port))
        except SnapshotMismatch as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
        wait_until(lambda: readiness(http)[0] == 200)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("UPDATE meta SET value = 'tops' WHERE name = 'method'")
    with closing(open_store(url, overtake(url))) as other, living(other):
        thread.join(30)
        assert not thread.is_alive()
    assert [str(error).partition(",")[0] for error in failed] == [
        "store must be used with the 'tops' that it was made with"
    ]
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" postgresql://")[0] for line in said] == ["calibeat made a new store:", "calibeat serves"]


def test_tokens_are_read_again_after_a_session_was_cut(server: Postgres) -> None:
    url = server.database()
    open_store(url).close()
    with closing(StoredTokens(url)) as stored, psycopg.connect(url, autocommit=True) as database:
        assert stored.read() == []
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(psycopg.OperationalError):
            stored.read()
        assert stored.read() == []


def test_a_server_that_may_only_be_read_is_waited_for(server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """Such as a replica that is about to become the first server."""
    url = server.database()
    with psycopg.connect(url, autocommit=True) as database:
        name = database.info.dbname
        database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreAway, match="store must be a PostgreSQL that can be written, got: "):
            Engine.open(url, EngineSettings(method="ops"))
        with service_later(url) as (http, leads):
            wait_until(lambda: "the store is away, the service waits for it: " in caplog.text)
            assert readiness(http) == NOT_READY and not leads.is_set()
            database.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            assert leads.wait(30)
            assert http.post("/v1/forecasts", json=EVENT).status_code == 200


def test_a_service_that_may_not_serve_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    with pytest.raises(InvalidInput, match="host must be loopback as long as there is no token"):
        serve(ServeOptions(str(store), EngineSettings(method="ops"), host="0.0.0.0", port=0))  # noqa: S104
    assert f"calibeat made a new store: {store}" in capsys.readouterr().out


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def test_an_answer_to_a_client_that_left_does_not_hold_up_the_others() -> None:
    async def answered() -> list[Any]:
        loop = asyncio.get_running_loop()
        left, refused, waits = (loop.create_future() for _ in range(3))
        left.cancel()
        _wake([(left, [0.1]), (refused, Refusal("full", "there is no room", None, 503)), (waits, [0.2])])
        return list(await asyncio.gather(refused, waits, return_exceptions=True))

    refusal, answer = asyncio.run(answered())
    assert isinstance(refusal, Refusal) and refusal.code == "full" and answer == [0.2]


def test_a_fault_of_a_route_is_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(*_: Any) -> None:
        raise ZeroDivisionError("a fault inside")

    with service_here(tmp_path / "a.db") as where, httpx.Client(base_url=where, timeout=30) as http:
        with monkeypatch.context() as patched:
            patched.setattr(Routes, "serve", faulty)
            answer = http.get("/v1/streams")
            assert answer.status_code == 500 and "a fault inside" not in answer.text
            wait_until(lambda: "a fault inside" in caplog.text)  # it is logged when the answer is on its way
        assert "GET /v1/streams failed" in caplog.text
        assert http.get("/v1/streams").status_code == 200
