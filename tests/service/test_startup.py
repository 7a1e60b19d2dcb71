"""The port opens first: alive and not ready without the store; 503, not death, when PostgreSQL goes and comes."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import postgres
import pytest
from postgres import cut
from served import Process, service_apart, service_here, wait_until
from services import desk, stream_of, whole

from calibeat import InvalidInput
from calibeat.cli.main import main
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import check, replay_check
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_store

EVENT = {"stream": "s", "id": "a", "score": 0.5}
OUTCOME = {"stream": "s", "id": "a", "outcome": 1}


@pytest.fixture
def own_server() -> Iterator[postgres.Postgres]:
    """A PostgreSQL that a test may stop."""
    made = postgres.start()
    yield made
    made.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def starting(url: str, port: int, *more: str) -> Iterator[list[Process]]:
    """A service whose line may take long to come."""
    found: list[Process] = []
    thread = threading.Thread(target=lambda: found.append(Process(url, *more, port=port)))
    thread.start()
    try:
        yield found
    finally:
        thread.join(60)
        for process in found:
            process.end(9)


def alive(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_alive_and_not_ready_until_the_database_is_there(own_server: postgres.Postgres) -> None:
    url, port = own_server.database(), free_port()
    open_store(url).close()
    own_server.stop()
    with starting(url, port, "--method", "ops", "--log-format", "json") as found:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            wait_until(lambda: alive(http), 60)
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
            for answer in (
                http.post("/v1/forecasts", json=EVENT),
                http.put("/v1/outcomes", json={}),
                http.get("/v1/streams"),
                http.get("/metrics"),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
                assert answer.headers["retry-after"] == "1"
            assert http.get("/openapi.json").status_code == http.get("/docs").status_code == 200
            assert not found  # no line yet
            own_server.start()
            wait_until(lambda: http.get("/readyz").status_code == 200, 30)
            assert http.post("/v1/forecasts", json=EVENT).status_code == 200
            wait_until(lambda: found)
        status, errors = found[0].end()
    assert status == 0
    for line in [json.loads(line) for line in errors.splitlines()]:  # none where the first attempt came late
        assert abs(line["time"] - time.time()) < 600 and line["level"] == "warning"
        assert line["message"].startswith("the store is away, the service waits for it: store must be a PostgreSQL")
    said = json.loads(found[0].line)
    assert said["message"].startswith("calibeat serves postgresql://") and said["time"] > 1e9


def test_a_store_that_can_never_be_used_ends_the_service(own_server: postgres.Postgres) -> None:
    url = own_server.database()
    nowhere = re.sub(r"test_\w+", "no_such_database", url)
    with pytest.raises(InvalidInput, match=r'that answers.*"no_such_database" does not exist'), service_here(nowhere):
        pass
    everywhere = service_here(url, host="0.0.0.0")  # noqa: S104
    with pytest.raises(InvalidInput, match="host must be loopback as long as there is no token"), everywhere:
        pass


def http_refusals(http: httpx.Client) -> int:
    """How many forecasts `/metrics` says were refused with 503."""
    line = r'calibeat_http_requests_total\{method="POST",route="/v1/forecasts",status="503"\} (\d+)'
    return sum(int(count) for count in re.findall(line, http.get("/metrics").text))


def test_postgres_goes_and_comes_and_the_service_stays(own_server: postgres.Postgres) -> None:
    """Nothing that was answered is lost, nothing is doubled, and nobody is answered while it is away."""
    url = own_server.database()
    with service_apart(url, "--method", "tops") as service, httpx.Client(base_url=service.url, timeout=30) as http:
        told: dict[str, float] = {}

        def ask(first: int, count: int) -> list[int]:
            statuses = []
            for at in range(first, first + count):
                answer = http.post("/v1/forecasts", json={"stream": f"s{at % 3}", "id": f"e{at}", "score": 0.3})
                statuses.append(answer.status_code)
                if answer.status_code == 200:
                    told[f"e{at}"] = answer.json()["probability"]
                    outcome = {"stream": f"s{at % 3}", "id": f"e{at}", "outcome": at % 2}
                    assert http.post("/v1/outcomes", json=outcome).json() == {"status": "learnt"}
            return statuses

        assert set(ask(0, 30)) == {200}
        own_server.stop()
        own_server.start()
        wait_until(lambda: http.get("/readyz").status_code == 200, 30)
        # The engine may notice only now that its old session is gone; it has a new one within half a second.
        wait_until(lambda: set(ask(30, 1)) == {200}, 30)
        assert set(ask(31, 5)) == {200}
        own_server.kill()
        # The session of a server that was killed may still commit: it ends when it notices.
        before = http_refusals(http)
        wait_until(lambda: set(ask(36, 1)) != {200}, 30)
        refused = http.post("/v1/forecasts", json={"stream": "s0", "id": "e90", "score": 0.3})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"] == "1"
        assert http.get("/healthz").status_code == 200 and http.get("/readyz").status_code == 503
        reading = http.get("/v1/streams")
        assert (reading.status_code, reading.json()["error"]["code"]) == (503, "unavailable")
        metrics = http.get("/metrics")
        assert metrics.status_code == 200 and "\ncalibeat_store_up 0.0\n" in metrics.text
        assert http_refusals(http) == before + 2
        own_server.start()
        wait_until(lambda: http.get("/readyz").status_code == 200, 30)
        assert set(ask(90, 5)) == {200}
        again = [http.post("/v1/forecasts", json={"stream": f"s{int(i[1:]) % 3}", "id": i, "score": 0.3}) for i in told]
        assert [answer.json()["probability"] for answer in again] == list(told.values())
        assert "\ncalibeat_store_up 1.0\n" in http.get("/metrics").text
        status, errors = service.end()
    assert status == 0
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z calibeat: WARNING: ", e) for e in errors.splitlines())
    assert "the store is away, requests are refused until it answers" in errors
    assert errors.count("requests are answered again") == 2
    assert replay_check(url).is_same and check(url) == []


def test_a_service_on_a_thread_waits_for_its_database_and_outlives_it(
    own_server: postgres.Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url, port, seen = own_server.database(), free_port(), list[tuple[int, str]]()
    open_store(url).close()
    own_server.stop()

    def look_and_start() -> None:
        wait_until(lambda: "the store is away, the service waits for it" in caplog.text, 30)
        for path in ("/readyz", "/v1/streams"):
            answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=20)
            seen.append((answer.status_code, answer.json()["error"]["code"]))
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/forecasts", json=EVENT, timeout=20)
        seen.append((answer.status_code, answer.json()["error"]["code"]))
        own_server.start()

    starter = threading.Thread(target=look_and_start)
    starter.start()
    with service_here(url, port=port) as where, httpx.Client(base_url=where, timeout=30) as http:
        starter.join(60)
        assert seen == [(503, "not_ready"), (503, "not_ready"), (503, "not_ready")]
        assert http.get("/v1/streams").status_code == 200
        told = http.post("/v1/forecasts", json=EVENT).json()
        own_server.stop()
        for _ in range(2):  # over the connection that was there, and over a new one
            for away in (http.get("/v1/streams"), http.post("/v1/forecasts", json={**EVENT, "id": "b"})):
                assert (away.status_code, away.json()["error"]["code"]) == (503, "unavailable")
        assert "\ncalibeat_store_up 0.0\n" in http.get("/metrics").text
        own_server.start()
        wait_until(lambda: http.get("/v1/streams").status_code == 200, 30)
        wait_until(lambda: http.get("/readyz").status_code == 200, 30)
        assert http.post("/v1/forecasts", json=EVENT).json() == told
        assert http.post("/v1/outcomes", json=OUTCOME).json() == {"status": "learnt"}
        assert http.put("/v1/outcomes", json={**OUTCOME, "outcome": 0}).json() == {"status": "corrected"}
        wait_until(lambda: http.get("/v1/streams/s").json()["corrections"] == 0)
    assert replay_check(url).is_same and check(url) == []


def test_nobody_is_answered_as_long_as_the_server_is_away(own_server: postgres.Postgres) -> None:
    url, heard, lost = own_server.database(), list[Any](), threading.Event()
    with desk(url) as service:
        told = service.ask(("paris", "e1", 0.5))
    engine = Engine.open(url, EngineSettings())
    engine.hooks.on_loss = lambda *_: lost.set()
    engine.start(heard.extend)
    own_server.stop()

    def submit(ticket: int, event: Any) -> None:
        try:
            engine.submit(ticket, [event])
        except Refusal as refusal:
            heard.append((ticket, refusal))

    submit(0, ForecastEvent("paris", "e2", 0.5))
    submit(1, OutcomeEvent("paris", "e1", 1))
    assert lost.wait(60) and engine.is_away
    submit(2, ForecastEvent("paris", "e2", 0.5))
    engine.stop()
    submit(3, ForecastEvent("paris", "e2", 0.5))  # the reason is still that
    assert sorted(ticket for ticket, _ in heard) == [0, 1, 2, 3]
    assert {(refusal.code, refusal.status) for _, refusal in heard} == {("unavailable", 503)}
    assert all("the store must answer, got a database that is away" in refusal.message for _, refusal in heard)
    own_server.start()
    with desk(url) as service:
        assert service.ask(("paris", "e1", 0.5)) == told
        assert service.tell(("paris", "e2", 1), ("paris", "e1", 1)) == ["unknown", "learnt"]
    assert whole(url)


@pytest.mark.parametrize("moment", ["before the commit", "after it"])
def test_a_session_that_ends_refuses_a_group_that_may_be_committed(server: postgres.Postgres, moment: str) -> None:
    """It is asked once more, with the same ids."""
    url, heard = server.database(), list[Any]()
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        engine = service.engine
        engine.hooks.deliver = heard.extend
        commit = engine.store.commit

        def commits_and_is_gone() -> None:
            if moment == "after it":
                commit()
            cut(engine)
            engine.store.connection.all("SELECT 1")

        engine.store.commit = commits_and_is_gone  # type: ignore[method-assign]
        with pytest.raises(engine.store.failures):
            engine._do([(0, [ForecastEvent("paris", "e2", 0.25)]), (1, [OutcomeEvent("paris", "e1", 1)])])
    assert [(ticket, refusal.code, refusal.status) for ticket, refusal in heard] == [
        (0, "unavailable", 503),
        (1, "unavailable", 503),
    ]
    with desk(url) as service:
        assert service.tell(("paris", "e1", 1)) == ["learnt" if moment == "before the commit" else "repeated"]
        service.ask(("paris", "e2", 0.25))
        assert stream_of(url).events == 2 and stream_of(url).outcomes == 1
    assert whole(url)


def test_counts_go_on_where_the_database_was_away(server: postgres.Postgres) -> None:
    url = server.database()

    def count(http: httpx.Client) -> float:
        (found,) = re.findall(r"\ncalibeat_forecasts_total (\S+)", http.get("/metrics").text)
        return float(found)

    with service_apart(url, "--method", "ops") as service, httpx.Client(base_url=service.url, timeout=30) as http:
        for at in range(3):
            assert http.post("/v1/forecasts", json={**EVENT, "id": f"e{at}"}).status_code == 200
        server.cut_sessions()
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT).status_code == 200, 30)
        assert count(http) == 4
    assert whole(url)


def test_a_store_whose_method_was_changed_meanwhile_ends_the_service(server: postgres.Postgres) -> None:
    url = server.database()
    with service_apart(url, "--method", "ops") as service:
        assert httpx.post(f"{service.url}/v1/forecasts", json=EVENT, timeout=30).status_code == 200
        service.process.send_signal(signal.SIGSTOP)
        assert main(["store", "replay", "--method", "tops", "--store", url]) == 0
        service.process.send_signal(signal.SIGCONT)
        service.process.wait(60)
        status, errors = service.end()
    assert status == 2 and "method must be that of the store, 'tops', got 'ops'" in errors
