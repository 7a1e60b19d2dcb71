"""The service put together, in this process: the line, signals, a store that stalls."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from served import address, receive, request, service_here, talk, wait_until

from calibeat.cli.main import main
from calibeat.service import main as service
from calibeat.service.http import AccessLog
from calibeat.service.main import StoredTokens
from calibeat.service.server import stop_signals

EVENT = {"stream": "s", "id": "i", "score": 0.5}
BODY = json.dumps(EVENT).encode()


class Lines(io.StringIO):
    """Standard output, which tells when it has the line with the address."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def flush(self) -> None:
        if "at http" in self.getvalue() and self._then:
            self._then()
            self._then = None  # type: ignore[assignment]


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal leaves it, also where these tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int) -> None:
    before = signal.getsignal(number)
    output = Lines(lambda: os.kill(os.getpid(), number))
    monkeypatch.setattr(sys, "stdout", output)
    store = str(tmp_path / "calibeat.db")
    assert main(["serve", "--store", store, "--port", "0", "--method", "ops"]) == status
    made, serves = output.getvalue().splitlines()
    assert made == f"calibeat made a new store: {store}"
    assert serves.startswith(f"calibeat serves {store} at http://127.0.0.1:")
    assert "no token yet, so only this machine can connect" in output.getvalue()
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("hangup")
def test_the_end_of_a_terminal_ends_it_unless_it_is_ignored() -> None:
    assert signal.SIGHUP in stop_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM}


def test_every_address_of_this_machine_can_be_served_without_tokens(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db", host="127.0.0.2") as url, httpx.Client(base_url=url) as http:
        assert url.startswith("http://127.0.0.2:")
        assert http.get("/v1/streams").status_code == 200
        assert http.post("/v1/forecasts", json=EVENT).status_code == 200
        assert http.get("/v1/streams", headers={"host": "localhost"}).status_code == 200
        for other in ("127.0.0.3", "evil.example", "127.0.0.2.evil.example", "127.0.0.2@evil.example"):
            assert http.get("/v1/streams", headers={"host": other}).status_code == 421
    with service_here(tmp_path / "calibeat.db", host="::1") as url:
        assert httpx.get(f"{url}/v1/streams").status_code == 200


def test_the_log_of_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(service, "AccessLog", lambda: AccessLog(output))
    with service_here(tmp_path / "calibeat.db", access_log=True) as url, httpx.Client(base_url=url) as http:
        http.post("/v1/forecasts", json=EVENT)
        http.get("/healthz?a=b")
        talk(url, request("/v1/forecasts", BODY) + request("/v1/forecasts", BODY, "connection: close"))
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["path"], line["status"], line["bytes"] > 10, line["seconds"] > 0) for line in lines] == [
        ("/v1/forecasts", 200, True, True),
        ("/healthz", 200, True, True),
        ("/v1/forecasts", 200, True, True),
        ("/v1/forecasts", 200, True, True),
    ]


def test_who_waits_too_long_for_a_store_that_stalls_is_told_so(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    with service_here(store, limits={"answer_seconds": 0.5}) as url, httpx.Client(base_url=url, timeout=20) as http:
        http.post("/v1/forecasts", json=EVENT)
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # as a disk that does not answer
        answer = http.post("/v1/forecasts", json=EVENT | {"id": "late"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
        assert http.get("/healthz").status_code == 200
        other.execute("ROLLBACK")
        other.close()
        again = http.post("/v1/forecasts", json=EVENT | {"id": "late"})
        assert again.status_code == 200  # nothing was lost, and nothing is doubled
        assert http.get("/v1/streams/s").json()["events"] == 2


def test_who_does_not_leave_after_a_refusal_is_cut_off(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as url:
        with socket.create_connection(address(url), timeout=10) as connection:
            connection.sendall(b"\x00 garbage\r\n\r\n")
            assert receive(connection).startswith(b"HTTP/1.1 400")
            wait_until(lambda: _is_cut(connection))
        half = socket.create_connection(address(url), timeout=10)
        half.sendall(b"\x00 garbage\r\n\r\n")
        assert half.recv(100).startswith(b"HTTP/1.1 400")
    half.close()  # the service has stopped while this one lingered


def _is_cut(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"more")
    except OSError:
        return True
    return False


def test_tokens_are_read_again_after_a_failure(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    with service_here(store):
        pass
    stored = StoredTokens(str(store))
    assert stored.read() == []
    stored._reader.close()  # type: ignore[union-attr]
    with pytest.raises(sqlite3.Error):
        stored.read()
    assert stored.read() == []
    stored.close()
    stored.close()


def test_a_service_can_stop_while_clients_hold_connections(tmp_path: Path) -> None:
    done = threading.Event()
    with service_here(tmp_path / "calibeat.db") as url:
        held = [socket.create_connection(address(url), timeout=10) for _ in range(20)]
        for connection in held[:10]:
            connection.sendall(request("/v1/forecasts", BODY))
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        done.set()
    for connection in held:
        connection.close()
    assert done.is_set()
