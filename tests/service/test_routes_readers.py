"""Pages that take long hold up neither `/readyz` nor the end of the service, and end when nobody waits for them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from postgres import Postgres
from served import address, receive, request, service_here, wait_until

from calibeat.service import routes
from calibeat.service.store.queries import Reader

pytestmark = pytest.mark.xdist_group("service processes")
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(600)",
}


@pytest.fixture
def begun(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """`/metrics` takes for ever; whether somebody has asked for it."""
    event = threading.Event()
    statement = ENDLESS["postgres" if url.startswith("postgres") else "sqlite"]

    def totals(reader: Reader) -> object:
        event.set()
        return reader.select(statement)

    monkeypatch.setattr(Reader, "totals", totals)
    yield event
    monkeypatch.undo()


def test_a_page_that_takes_long_ends_with_its_504_and_does_not_hold_up_readiness(
    url: str, begun: threading.Event
) -> None:
    with service_here(url, limits={"answer_seconds": 1.0}) as where, ThreadPoolExecutor(4) as pool:
        pages = [pool.submit(httpx.get, f"{where}/metrics", timeout=30) for _ in range(3)]
        assert begun.wait(20)
        assert httpx.get(f"{where}/readyz").status_code == 200
        answers = [page.result() for page in pages]
        assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(504, "timeout")] * 3
        wait_until(lambda: httpx.get(f"{where}/v1/streams").status_code == 200)


def test_a_page_whose_client_has_left_ends(url: str, begun: threading.Event) -> None:
    with service_here(url) as where:
        with socket.create_connection(address(where), timeout=10) as connection:
            connection.sendall(request("/metrics", b"unread", method="GET"))
            assert begun.wait(20)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        assert httpx.get(f"{where}/v1/streams", timeout=20).status_code == 200


def test_the_end_of_the_service_waits_for_no_page(url: str, begun: threading.Event) -> None:
    with ThreadPoolExecutor(4) as pool:
        with service_here(url) as where:
            pages = [pool.submit(httpx.get, f"{where}/metrics", timeout=30) for _ in range(4)]
            assert begun.wait(20)
            time.sleep(2)  # the other three are connected by then
        answers = [page.result() for page in pages]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(503, "stopping")] * 4
    assert {answer.headers["retry-after"] for answer in answers} == {"1"}


def test_a_store_that_does_not_answer_in_time_is_not_ready(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statement = ENDLESS["postgres" if url.startswith("postgres") else "sqlite"]
    monkeypatch.setattr(routes, "READY_SECONDS", 0.2)
    with service_here(url) as where:
        assert httpx.get(f"{where}/readyz").status_code == 200
        monkeypatch.setattr(Reader, "ping", lambda reader: reader.select(statement))
        answer = httpx.get(f"{where}/readyz")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert "the store cannot be read: no answer within 0.2 seconds" in caplog.text
        monkeypatch.undo()
        wait_until(lambda: httpx.get(f"{where}/readyz").status_code == 200)


def test_questions_that_nobody_waits_for_are_not_asked(url: str) -> None:
    """Neither one that waits behind another, nor one that is given up in the moment when it begins."""
    with service_here(url):
        pass
    thread = routes.ReaderThread(url, "test")
    question = routes.Question(lambda reader: reader.ping())
    assert thread._answer(question) is None
    thread._give_up(question)
    with pytest.raises(routes.Refusal, match="got one that stops"):
        thread._answer(question)
    thread.close()
    with pytest.raises(routes.Refusal, match="got one that stops"):
        thread._answer(routes.Question(lambda reader: reader.ping()))


def test_metrics_of_a_service_that_stops_do_not_say_that_the_store_is_away(url: str) -> None:
    with service_here(url):
        pass
    readers = routes.StoreReaders(url)
    service: Any = SimpleNamespace(reads=readers)
    readers.stop()
    with pytest.raises(routes.Refusal, match="got one that stops") as caught:
        asyncio.run(routes.Routes(service).get_metrics(None))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.status) == ("stopping", 503)
    readers.close()


def test_an_interrupt_that_comes_too_late_harms_nobody(url: str) -> None:
    """A question that was given up takes its connection with it; the next one has a new one."""
    with service_here(url):
        pass
    thread = routes.ReaderThread(url, "test")
    asked: list[Reader] = []

    def first(reader: Reader) -> None:
        asked.append(reader)
        thread._give_up(question)
        reader.ping()

    question = routes.Question(first)
    assert thread._answer(question) is None
    assert thread._answer(routes.Question(asked.append)) is None
    assert asked[0] is not asked[1]
    thread.close()


@pytest.mark.parametrize("body", ["token=%00%ff", "token=%C3%A9", "token=a%0d%0ab", "token=%E2%82%AC"])
def test_a_token_that_cannot_stand_in_a_cookie_is_refused(
    tmp_path_factory: pytest.TempPathFactory, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    with service_here(tmp_path_factory.mktemp("login") / "calibeat.db") as where:
        answer = httpx.post(f"{where}/login", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
    assert caplog.text == ""


def test_who_leaves_while_logging_in_is_no_fault_of_ours(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with service_here(tmp_path_factory.mktemp("login") / "calibeat.db") as where:
        with socket.create_connection(address(where), timeout=10) as connection:
            connection.sendall(request("/login", b"token=abc")[:-3])
            connection.shutdown(socket.SHUT_WR)
            assert receive(connection) == b""
        assert httpx.post(f"{where}/login", content=b"x" * 5000).status_code == 413
    assert caplog.text == ""


def test_a_database_that_was_started_anew_between_two_questions_is_asked_once_more(server: Postgres) -> None:
    url = server.database()
    with service_here(url):
        pass
    thread = routes.ReaderThread(url, "test")
    try:
        for _ in range(2):
            assert thread._answer(routes.Question(lambda reader: reader.ping())) is None
            server.cut_sessions()
        asked: list[Reader] = []

        def fail(reader: Reader) -> None:
            asked.append(reader)
            raise reader.outages[0]("away")

        for count in (2, 1):  # with the connection that is there and a new one; without one, once
            with pytest.raises(routes.Refusal, match="a database that is away"):
                thread._answer(routes.Question(fail))
            assert len({id(reader) for reader in asked}) == len(asked) == count
            asked.clear()
    finally:
        thread.close()
