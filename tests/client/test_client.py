"""Both clients against a real service, and against one that fails in every way."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from served import service_apart, service_here

from calibeat.cli.main import main
from calibeat.client import AsyncClient, Busy, Client, NotAllowed, ServiceError, Unreachable, asynchronous, synchronous
from calibeat.client.conversation import Conversation
from calibeat.client.errors import error_of
from calibeat.client.shared import Retries
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey

QUICK = Retries(3, first=0.01, longest=0.05)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("client") / "calibeat.db") as where:
        yield where


# ---- a real service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [synchronous, asynchronous])
def test_the_examples_of_the_docstrings_run(module: Any, tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as where:
        found = 0
        for test in doctest.DocTestFinder().find(module, globs=dict(vars(module))):
            for example in test.examples:
                found += "8377" in example.source
                example.source = example.source.replace("http://127.0.0.1:8377", where)
                example.options.pop(doctest.SKIP, None)
            assert doctest.DocTestRunner().run(test).failed == 0
        assert found


def test_forecasts_and_outcomes(url: str) -> None:
    with Client(url) as client:
        answer = client.predict("paris", 0.83, id="c1", time=1_790_000_000)
        assert (answer.stream, answer.id, float(answer)) == ("paris", "c1", pytest.approx(0.83))
        assert client.predict("paris", 0.83, id="c1") == answer
        assert client.outcome("paris", "c1", 1, time=1_790_000_100.5) == "learnt"
        assert client.outcome("paris", "c1", 1) == "repeated"
        made = [client.predict("paris", 0.5).id for _ in range(2)]
        assert len(set(made)) == 2
        assert client.stream("paris")["events"] == 3
        assert "paris" in [stream["name"] for stream in client.streams()]
        assert client.streams(after="zzzz", limit=5) == []


def test_batches(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.client.shared.LARGEST_BATCH", 4)
    with Client(url) as client:
        answers = client.predict_many([{"stream": "many", "score": i / 10} for i in range(10)])
        assert [float(answer) for answer in answers] == pytest.approx([i / 10 for i in range(10)], abs=2e-5)
        events = [{"stream": "many", "id": answer.id, "outcome": 1} for answer in answers]
        assert client.outcomes([*events, {"stream": "many", "id": "nobody", "outcome": 1}]) == ["learnt"] * 10 + [
            "unknown"
        ]
        assert client.outcomes([events[0] | {"outcome": 0}, events[1]]) == ["conflict", "repeated"]


def test_refusals_are_calibeats_own_errors(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(InvalidInput, match=r"score must be a number in \[0, 1\], got 1.3"):
            client.predict("s", 1.3)
        with pytest.raises(InvalidInput, match="outcome must be 0 or 1, got 2"):
            client.outcome("s", "x", 2)
        with pytest.raises(InvalidInput, match="plain text and numbers"):
            client.predict(object(), 0.5)  # type: ignore[arg-type]
        with pytest.raises(UnknownForecast, match="which is unknown"):
            client.outcome("s", "nobody", 1)
        with pytest.raises(UnknownKey, match="stream must be one that has events"):
            client.stream("nobody/at all")
        client.predict("s", 0.5, id="conflict")
        client.outcome("s", "conflict", 1)
        with pytest.raises(OutcomeConflict, match="got another"):
            client.outcome("s", "conflict", 0)
        with pytest.raises(ServiceError, match="path must be one of"):
            client._run(client._say.get("/nothing"))
    with pytest.raises(InvalidInput, match="url must begin with http"):
        Client("127.0.0.1:8377")


def test_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    main(["token", "create", "--store", str(store), "--scope", "read", "--name", "page"])
    token = capsys.readouterr().out.strip()
    with service_here(store) as where, Client(where, token) as client:
        assert client.streams() == []
        with pytest.raises(NotAllowed, match="may read only") as caught:
            client.predict("s", 0.5)
        assert (caught.value.status, caught.value.code, caught.value.at) == (403, "forbidden", None)


def test_the_other_client(url: str) -> None:
    async def everything() -> None:
        async with AsyncClient(url) as client:
            answers = await asyncio.gather(*(client.predict("async", 0.5) for _ in range(20)))
            assert await client.outcome("async", answers[0].id, 1) == "learnt"
            many = await client.predict_many([{"stream": "async", "score": 0.1}] * 3)
            assert (
                await client.outcomes([{"stream": "async", "id": a.id, "outcome": 0} for a in many]) == ["learnt"] * 3
            )
            assert (await client.stream("async"))["outcomes"] == 4
            assert len(await client.streams(limit=1)) == 1
            with pytest.raises(UnknownForecast):
                await client.outcome("async", "nobody", 1)

    asyncio.run(everything())


def test_both_clients_have_the_same_calls() -> None:
    for name, function in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            other = inspect.signature(getattr(AsyncClient, name))
            assert other == inspect.signature(function), name


def test_a_service_that_is_killed_and_comes_back_loses_no_outcome(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as first:
        port = int(first.url.rpartition(":")[2])
        client = Client(first.url, retries=Retries(1, first=0.01))
        answers = [client.predict("s", 0.5) for _ in range(3)]
    assert [client.outcome("s", answers[0].id, 1) for _ in range(2)] == ["buffered"] * 2  # also the same one twice
    assert client.outcomes([{"stream": "s", "id": answers[1].id, "outcome": 0}]) == ["buffered"]
    assert (client.buffered, client.dropped) == (3, 0)
    with pytest.raises(Unreachable, match="the service must be reachable"):
        client.flush()
    with pytest.raises(Unreachable):
        client.predict("s", 0.5)
    assert client.buffered == 3
    with service_here(tmp_path / "calibeat.db", port=port):
        time.sleep(0.1)
        assert client.outcome("s", answers[2].id, 1) == "learnt"
        assert client.buffered == 0
        assert client.stream("s")["outcomes"] == 3
        client.close()


# ---- a service that fails ------------------------------------------------------------------------------------------


class Failing(ThreadingHTTPServer):
    """Answers as it is told, in order; the last answer stays. 0 hangs up without a word."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Failing

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        if status == 0:
            self.close_connection = True
            return
        body = b'{"stream":"s","id":"e","probability":0.5,"status":"learnt","outcomes":[{"id":"e","status":"learnt"}]}'
        if status != 200:
            body = b'{"error":{"code":"full","message":"the queue is full","at":null}}'
        self.send_response(status)
        if status == 503:
            self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


def test_retries_have_the_same_id() -> None:
    with Failing(503, 0, 504, 200) as server, Client(server.url, retries=QUICK) as client:
        assert client.predict("s", 0.5).probability == 0.5
        assert len(server.bodies) == 4 and len(set(server.bodies)) == 1


def test_retries_end() -> None:
    with Failing(503) as server, Client(server.url, retries=QUICK) as client:
        with pytest.raises(Busy, match="the queue is full") as caught:
            client.predict("s", 0.5)
        assert (caught.value.status, len(server.bodies)) == (503, 4)


def test_what_is_wrong_is_not_tried_again() -> None:
    with Failing(400) as server, Client(server.url, retries=QUICK) as client:
        with pytest.raises(InvalidInput):
            client.predict("s", 0.5)
        assert len(server.bodies) == 1


def test_a_buffer_that_is_full_drops_the_oldest() -> None:
    with Failing(503) as server:
        client = Client(server.url, retries=Retries(0, first=60.0, longest=60.0), buffer=2)
        assert [client.outcome("s", f"e{i}", 1) for i in range(4)] == ["buffered"] * 4
        assert (client.buffered, client.dropped) == (2, 2)
        assert len(server.bodies) == 1  # during an outage a caller does not wait for every outcome anew
        with pytest.raises(Busy):
            client.close()
    with Failing(503) as server, Client(server.url, retries=Retries(0), buffer=0) as client:
        with pytest.raises(Busy):
            client.outcome("s", "e", 1)
        with pytest.raises(Busy):
            client.outcomes([{"stream": "s", "id": "e", "outcome": 1}])
        assert client.buffered == 0


def test_a_buffer_is_emptied_when_the_service_is_back() -> None:
    async def everything(server: Failing) -> None:
        client = AsyncClient(server.url, retries=Retries(0, first=0.0))
        assert await client.outcome("s", "e", 1) == "buffered"
        assert await client.outcomes([{"stream": "s", "id": "e", "outcome": 1}]) == ["buffered"]
        assert (client.buffered, client.dropped) == (2, 0)
        server.statuses[:] = [200]
        assert await client.flush() == {"e": "learnt"}
        assert await client.outcome("s", "e", 1) == "learnt"
        server.statuses[:] = [0]
        assert await client.outcome("s", "e", 1) == "buffered"
        server.statuses[:] = [503, 200]
        assert await client.outcome("s", "f", 1) == "buffered"
        await client.close()
        assert client.buffered == 0

    async def patient(server: Failing) -> None:
        async with AsyncClient(server.url, retries=QUICK) as client:
            assert float(await client.predict("s", 0.5)) == 0.5

    with Failing(503) as server:
        asyncio.run(everything(server))
    with Failing(503, 0, 200) as server:
        asyncio.run(patient(server))
    with Failing(503) as server:
        client = Client(server.url, retries=Retries(0, first=0.0))
        assert client.outcomes([{"stream": "s", "id": "e", "outcome": 1}]) == ["buffered"]
        server.statuses[:] = [200]
        assert client.outcomes([{"stream": "s", "id": "e", "outcome": 1}]) == ["learnt"]
        server.statuses[:] = [503, 200]
        client.outcome("s", "e", 1)
        client.close()


def test_an_answer_that_is_none_of_ours() -> None:
    error = error_of(500, b"<html>")
    assert isinstance(error, ServiceError)
    assert str(error) == "the service answered 500 without a reason"
    with pytest.raises(Unreachable):
        next(Conversation(Retries(0), 1)._request(None, 0))  # type: ignore[arg-type]


def test_waits_grow_and_are_random() -> None:
    retries = Retries(first=1.0, longest=6.0)
    for attempt, most in enumerate([1.0, 2.0, 4.0, 6.0, 6.0]):
        waits = {retries.wait(attempt) for _ in range(20)}
        assert len(waits) > 1 and most / 2 <= min(waits) <= max(waits) <= most
    assert retries.wait(0, "100") == 6.0
    assert retries.wait(0, "soon") <= 1.0
