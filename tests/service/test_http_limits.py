"""What one client may take, and what happens to the rest: sizes, numbers, times, and bytes that are no HTTP."""

from __future__ import annotations

import gc
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import address, receive, request, service_here, talk, wait_until
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from calibeat.service.http import VALUE_BYTES

GOOD = json.dumps({"stream": "s", "id": "i", "score": 0.5}).encode()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    limits = {"body": 20_000, "events": 50, "connections": 40, "request_seconds": 0.5, "idle_seconds": 1.0}
    with service_here(tmp_path_factory.mktemp("limits") / "calibeat.db", limits=limits) as where:
        yield where


def refusal(data: bytes) -> tuple[int, str]:
    """The status and the code of a refusal, as bytes came; the connection ends with it."""
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head, data
    assert b"connection: close" in head, data
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_a_body_that_is_too_large_is_refused_by_its_length(url: str) -> None:
    head = request("/v1/forecasts", b"", f"content-length: {10**12}").replace(b"content-length: 0\r\n", b"")
    assert refusal(talk(url, head)) == (413, "too_large")
    answer = httpx.post(f"{url}/v1/forecasts", content=b"x" * 5_000_000, headers={"content-type": "application/json"})
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "too_large"


def test_a_body_of_unknown_length_is_refused_when_it_gets_too_large(url: str) -> None:
    head = b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    chunks = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    assert refusal(talk(url, head + b"transfer-encoding: chunked\r\n\r\n" + chunks * 3)) == (413, "too_large")
    tiny = b"1\r\nx\r\n" * 15_000  # more overhead than body
    assert refusal(talk(url, head + b"transfer-encoding: chunked\r\n\r\n" + tiny)) == (413, "too_large")


def test_a_chunked_body_is_read(url: str) -> None:
    head = b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (GOOD[:7], GOOD[7:])) + b"0\r\n\r\n"
    answer = talk(url, head + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    assert answer.startswith(b"HTTP/1.1 200") and b'"probability"' in answer


def test_too_many_events_are_refused(url: str) -> None:
    events = [{"stream": "s", "id": f"many-{i}", "score": 0.5} for i in range(51)]
    answer = httpx.post(f"{url}/v1/forecasts", json={"events": events})
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("too_many", "events must be 50 at most, got 51")
    assert httpx.post(f"{url}/v1/forecasts", json={"events": events[1:]}).status_code == 200


def test_headers_that_do_not_end_are_refused(url: str) -> None:
    assert refusal(talk(url, b"GET / HTTP/1.1\r\n" + b"x-a: b\r\n" * 20_000)) == (431, "too_large")
    assert refusal(talk(url, b"GET /" + b"a" * 200_000)) == (431, "too_large")


@pytest.mark.parametrize(
    "start",
    [
        b"",  # a connection without a word
        b"P",
        b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\n",
        request("/v1/forecasts", GOOD)[:-5],
        request("/login", GOOD)[:-5],
    ],
    ids=["silent", "letter", "headers", "hot body", "cold body"],
)
def test_who_does_not_send_in_time_is_refused(url: str, start: bytes) -> None:
    answer = talk(url, start)
    if start:
        assert refusal(answer) == (408, "timeout")
    else:
        assert answer == b""


def test_a_slow_drip_does_not_keep_a_connection(url: str) -> None:
    with socket.create_connection(address(url), timeout=10) as connection:
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(receive(connection)))
        reader.start()
        connection.sendall(request("/v1/forecasts", GOOD)[:-30])
        while reader.is_alive():
            try:
                connection.sendall(b" ")
            except OSError:
                break
            reader.join(0.1)
        reader.join()
    assert refusal(found[0]) == (408, "timeout")


def test_an_idle_connection_is_closed(url: str) -> None:
    with socket.create_connection(address(url), timeout=10) as connection:
        connection.sendall(request("/v1/forecasts", GOOD))
        assert receive(connection).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # the start of TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/forecasts HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/forecasts HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /v1/forecasts HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://[bad/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=range(9),
)
def test_garbage_is_answered_with_an_error_and_an_end(url: str, garbage: bytes) -> None:
    answer = talk(url, garbage)
    assert answer.count(b"\r\n\r\n{") == 1
    if b"415" not in answer:  # which is known before the garbage begins
        assert refusal(answer) == (400, "malformed")
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_wish_for_a_websocket_is_not_granted(url: str) -> None:
    upgrade = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert talk(url, upgrade, seconds=3).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    bodies = [json.dumps({"stream": "pipe", "id": f"pipe-{i}", "score": 0.5}).encode() for i in range(5)]
    data = b"".join(request("/v1/forecasts", body) for body in bodies[:3])
    data += b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    data += request("/v1/forecasts", bodies[3]) + request("/v1/forecasts", bodies[4], "connection: close")
    answer = talk(url, data)
    found = [answer.index(b"pipe-%d" % i) for i in range(3)] + [answer.index(b"alive")]
    found += [answer.index(b"pipe-%d" % i) for i in (3, 4)]
    assert found == sorted(found) and answer.count(b"HTTP/1.1 200") == 6


def test_garbage_behind_a_request_does_not_take_its_answer_away(url: str) -> None:
    answer = talk(url, request("/v1/forecasts", GOOD) + b"\x00\x01garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and b'"probability"' in answer


def test_who_expects_to_be_told_to_continue_is(url: str) -> None:
    for path in ("/v1/forecasts", "/login"):
        with socket.create_connection(address(url), timeout=10) as connection:
            connection.sendall(request(path, GOOD, "expect: 100-continue", "connection: close")[: -len(GOOD)])
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(GOOD)
            assert receive(connection).split()[1] in {b"200", b"303"}


def test_more_connections_than_allowed_are_refused_and_go(url: str) -> None:
    held = [socket.create_connection(address(url), timeout=10) for _ in range(60)]
    try:
        refused = [receive(connection) for connection in held[45:]]
        assert all(refusal(data) == (503, "too_many_connections") for data in refused)
        assert b"retry-after: 1" in refused[0]
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: _healthy(url))


def test_a_thousand_abandoned_connections_leave_nothing(url: str) -> None:
    for number in range(1000):
        connection = socket.create_connection(address(url), timeout=10)
        connection.sendall(request("/v1/forecasts", GOOD)[: number % 150])
        if number % 2:  # a reset, not a proper end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()
    wait_until(lambda: _healthy(url))
    assert httpx.post(f"{url}/v1/forecasts", json={"stream": "s", "id": "after", "score": 0.5}).status_code == 200


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_who_leaves_before_the_answer_harms_nobody(url: str) -> None:
    for number in range(30):  # fewer than may connect: each has its place until its answer is written
        with socket.create_connection(address(url), timeout=10) as connection:
            body = json.dumps({"stream": "left", "id": f"left-{number}", "score": 0.5}).encode()
            connection.sendall(request("/v1/forecasts", body))
    wait_until(lambda: httpx.get(f"{url}/v1/streams/left").json().get("events") == 30)


def scores(name: str, events: int) -> bytes:
    """A request with 1,000 scores an event."""
    each = [{"stream": name, "id": f"{name}-{i}", "scores": [1.0] + 999 * [0.0]} for i in range(events)]
    return json.dumps({"events": each}).encode()


def test_requests_that_wait_share_a_memory(tmp_path: Path) -> None:
    """What one has not sent to its end is refused to others, until it leaves; alone it may have more than there is."""
    with (
        service_here(tmp_path / "calibeat.db", limits={"memory": 1_000_000}) as url,
        httpx.Client(base_url=url) as http,
    ):
        large = scores("large", 30)
        assert len(large) * 4 < 1_000_000 < large.count(b",") * VALUE_BYTES
        assert http.post("/v1/forecasts", content=large).status_code == 200
        half = request("/v1/forecasts", large)[:-5]
        with unfinished(url, half) as slow:
            answer = wait_until(lambda: refused_as_full(http, "/v1/forecasts", scores("small", 4)))
            assert answer.headers["retry-after"] == "1" and "memory" in answer.json()["error"]["message"]
            settings = json.dumps({"classes": ["c" * 190 + f"{i}" for i in range(5000)]}).encode()
            assert refused_as_full(http, "/v1/streams/s", settings, "PUT")
            assert http.post("/v1/forecasts", content=GOOD).status_code == 200  # there is room for it
            slow.sendall(request("/v1/forecasts", large)[-5:])
            assert receive_one(slow).startswith(b"HTTP/1.1 200")  # it waits for nobody
        assert http.post("/v1/forecasts", content=scores("small", 4)).status_code == 200
        (refused,) = re.findall(r'calibeat_requests_refused_total{code="full"} (\d+)', http.get("/metrics").text)
        assert int(refused) >= 2


def unfinished(url: str, half: bytes) -> socket.socket:
    """A request that goes on; once more if it was refused, as the answer before it was still in memory."""
    while True:
        connection = socket.create_connection(address(url), timeout=1)
        connection.sendall(half)
        try:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 503")
        except TimeoutError:
            connection.settimeout(10)
            return connection
        connection.close()


def refused_as_full(http: httpx.Client, path: str, body: bytes, method: str = "POST") -> httpx.Response | None:
    answer = http.request(method, path, content=body)
    return answer if answer.status_code == 503 and answer.json()["error"]["code"] == "full" else None


def receive_one(connection: socket.socket) -> bytes:
    """An answer that has a length."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(65_536)
    head, _, body = found.partition(b"\r\n\r\n")
    left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
    while left > 0:
        part = connection.recv(65_536)
        body, left = body + part, left - len(part)
    return head + body


def test_large_answers_hold_memory_until_they_are_read(tmp_path: Path) -> None:
    with (
        service_here(tmp_path / "calibeat.db", limits={"memory": 3_000_000}) as url,
        httpx.Client(base_url=url) as http,
    ):
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect(address(url))
            unread.sendall(
                request("/v1/forecasts", scores("unread", 400))
            )  # the answer is 4 MB, more than the system keeps
            wait_until(lambda: http.get("/v1/streams/unread").status_code == 200)
            assert refused_as_full(http, "/v1/forecasts", scores("small", 12))
        wait_until(lambda: http.post("/v1/forecasts", content=scores("small", 12)).status_code == 200)


def test_two_thousand_silent_connections(tmp_path: Path) -> None:
    """Idle, half a head, half a body: others do not notice, and all are ended in time."""
    limits = {"connections": 4_000, "request_seconds": 3.0, "idle_seconds": 3.0}
    starts = [b"", b"POST /v1/fore", request("/v1/forecasts", GOOD)[:-5], request("/v1/forecasts", GOOD)]
    with service_here(tmp_path / "calibeat.db", limits=limits) as url, httpx.Client(base_url=url) as http:
        held = []
        for number in range(2_000):
            held.append(socket.create_connection(address(url), timeout=20))
            held[-1].sendall(starts[number % len(starts)])
        for number in range(50):
            assert http.post("/v1/forecasts", json={"stream": "s", "id": f"{number}", "score": 0.5}).status_code == 200
        answers = [receive(connection) for connection in held]
        for connection in held:
            connection.close()
    assert not any(answers[0::4])
    assert all(refusal(answer) == (408, "timeout") for answer in answers[1::4] + answers[2::4])
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers[3::4])


def test_calls_do_not_pile_up(url: str) -> None:
    with httpx.Client(base_url=url) as http:
        for number in range(300):
            assert http.post("/v1/forecasts", json={"stream": "pile", "id": f"pile-{number}", "score": 0.5}).is_success
    gc.collect()
    assert sum(isinstance(thing, RequestResponseCycle) for thing in gc.get_objects()) < 20


def test_metrics_count_refusals(url: str) -> None:
    httpx.post(f"{url}/v1/forecasts", json={})
    httpx.post(f"{url}/v1/forecasts", content=b"x" * 20_001)
    text = httpx.get(f"{url}/metrics").text
    assert 'calibeat_requests_refused_total{code="too_large"}' in text
    assert 'calibeat_requests_refused_total{code="invalid"} 0' not in text
