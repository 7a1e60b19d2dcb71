"""What happens between the bytes and the engine, where a real service does not easily go."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import request, service_here, talk

from calibeat.service.counters import EngineCounters
from calibeat.service.events import OutcomeEvent, Refusal
from calibeat.service.http import Service, render
from calibeat.service.routes import StoreReaders
from calibeat.service.settings import EngineSettings
from calibeat.service.tokens import TokenBook
from calibeat.service.wire import Limits

EVENT = {"stream": "s", "id": "i", "score": 0.5}


class Echo:
    """An engine that answers at once with the scores, or refuses."""

    is_away = False

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.refusal = refusal

    def submit(self, ticket: Any, events: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        ticket.set_result([e.score for e in events])


def application(store: Path, refusal: Refusal | None = None) -> Service:
    tokens, limits = TokenBook(open_without_tokens=True), Limits(body=1000)
    made = Service(StoreReaders(str(store), EngineCounters()), tokens, limits)
    made.engine = Echo(refusal)
    return made


def ask(app: Service, method: str, path: str, **more: Any) -> httpx.Response:
    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, **more)

    try:
        return asyncio.run(asking())
    finally:
        app.reads.close()


def test_any_asgi_server_can_serve_it(tmp_path: Path) -> None:
    app = application(tmp_path / "none.db")
    assert ask(app, "POST", "/v1/forecasts", json=EVENT).json()["probability"] == 0.5
    too_large = ask(application(tmp_path / "none.db"), "POST", "/v1/forecasts", json=EVENT | {"id": "x" * 2000})
    assert too_large.status_code == 413

    async def parts() -> Any:
        yield b"x" * 800
        yield b"x" * 800

    json_body = {"content-type": "application/json"}
    grows = ask(application(tmp_path / "none.db"), "POST", "/v1/forecasts", content=parts(), headers=json_body)
    assert grows.status_code == 413
    plain = ask(
        application(tmp_path / "none.db"),
        "POST",
        "/v1/forecasts",
        content=b"{}",
        headers={"origin": "https://elsewhere.example"},
    )
    assert plain.status_code == 415


def test_other_scopes_are_let_go(tmp_path: Path) -> None:
    asyncio.run(application(tmp_path / "none.db")({"type": "lifespan"}, None, None))  # type: ignore[arg-type]


def test_a_client_that_leaves_in_mid_body_is_no_error(tmp_path: Path) -> None:
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/forecasts", "headers": headers}
    app = application(tmp_path / "none.db")
    asyncio.run(app(scope, receive, send))
    app.reads.close()
    assert sent[0]["status"] == 400


def test_back_pressure_is_503_with_a_time(tmp_path: Path) -> None:
    full = Refusal("full", "the queue must have room - try again", None, 503)
    answer = ask(application(tmp_path / "none.db", full), "POST", "/v1/forecasts", json=EVENT)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "full"


def test_a_full_queue_over_real_http(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db", settings=EngineSettings(method="ops", queue_events=1)) as url:

        async def storm() -> list[int]:
            async with httpx.AsyncClient(base_url=url) as http:
                bodies = [
                    {"events": [{"stream": "s", "id": f"{i}-{j}", "score": 0.5} for j in range(50)]} for i in range(40)
                ]
                answers = await asyncio.gather(*(http.post("/v1/forecasts", json=body) for body in bodies))
                assert all(a.headers["retry-after"] == "1" for a in answers if a.status_code == 503)
                return [answer.status_code for answer in answers]

        statuses = asyncio.run(storm())
        assert set(statuses) <= {200, 503} and 200 in statuses


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (gzip.compress(json.dumps(EVENT).encode()), {}, "got gzip"),
        (gzip.compress(json.dumps(EVENT).encode()), {"content-encoding": "gzip"}, "without content-encoding"),
        (2 * (json.dumps(EVENT).encode() + b"\n"), {}, "got one a line"),
        (json.dumps(EVENT).encode() + b"\n", {"content-type": "application/x-ndjson"}, "got one a line"),
        (json.dumps(EVENT).encode(), {"content-type": "application/jsonl; charset=utf-8"}, "got one a line"),
    ],
    ids=["gzip", "gzip, said", "lines", "lines, said", "one line, said"],  # a packed body has its time in it
)
def test_packed_bodies_and_lines_are_415(tmp_path: Path, body: bytes, headers: dict[str, str], words: str) -> None:
    answer = ask(application(tmp_path / "none.db"), "POST", "/v1/forecasts", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert words in answer.json()["error"]["message"]


def test_a_store_that_cannot_be_read_is_not_ready(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(application(tmp_path / "none.db"), "GET", "/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert "store must exist" in caplog.text
    caplog.clear()
    answer = ask(application(tmp_path / "none.db"), "GET", "/v1/streams")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "GET /v1/streams failed" in caplog.text
    assert ask(application(tmp_path / "none.db"), "GET", "/healthz").status_code == 200


def faulty(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a secret of the store")


@pytest.mark.parametrize("where", ["engine.Engine.submit", "http.render"])
@pytest.mark.parametrize("path", ["/v1/forecasts", "http://localhost/v1/forecasts"])
def test_a_fault_of_ours_is_a_logged_500_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str, path: str
) -> None:
    """On both ways, at once, and the connection goes on."""
    monkeypatch.setattr(f"calibeat.service.{where}", faulty)
    with service_here(tmp_path / "calibeat.db") as url:
        body = json.dumps(EVENT).encode()
        found = talk(url, request(path, body) + b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    first, second = found.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"500") and b'"internal"' in first and b"its log says why" in first
    assert second.startswith(b"421") and b"secret" not in found
    assert "a secret of the store" in caplog.text


@pytest.mark.parametrize("path", ["/v1/forecasts", "http://localhost/v1/forecasts"])
def test_a_fault_in_the_checks_of_a_head_is_a_logged_500(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with service_here(tmp_path / "calibeat.db") as url:
        monkeypatch.setattr(Service, "_check_events", faulty)
        found = talk(url, request(path, json.dumps(EVENT).encode(), "connection: close"))
    assert found.count(b"HTTP/1.1 500") == 1 and b'"internal"' in found and b"secret" not in found
    assert "a secret of the store" in caplog.text


def test_a_group_that_comes_after_the_end_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = application(tmp_path / "none.db")
    loop = asyncio.new_event_loop()
    app.use(loop)
    loop.close()
    app.deliver([])
    app.reads.close()
    assert "after the last connection was closed" in caplog.text


@pytest.mark.parametrize(
    ("status", "http", "words"),
    [("expired", 410, "expired"), ("unknown", 404, "unknown"), ("conflict", 409, "another"), ("held", 200, "held")],
)
def test_what_a_single_outcome_is_told(status: str, http: int, words: str) -> None:
    found, body = render([OutcomeEvent("s", "i", 1)], [status], forecasts=False, single=True)
    assert found == http and words.encode() in body
