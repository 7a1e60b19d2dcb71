"""Alarms: in the log, in the metrics, over HTTP, and to a web address that may be away for a while."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from served import service_here, wait_until

from calibeat.errors import InvalidInput
from calibeat.service.settings import Settings
from calibeat.service.store import open_store
from calibeat.service.webhook import Webhook, read_secret, signature

SECRET = b"a secret of 16 bytes or more"


class Receiver(ThreadingHTTPServer):
    """Takes alarms, after it has failed as often as it is told."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.taken = list(statuses), list[tuple[dict[str, str], bytes]]()
        self.tries = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/alarms"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One delivery."""

    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.tries += 1
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        if status == 204:
            self.server.taken.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(status)
        if status == 302:
            self.send_header("location", "http://127.0.0.1:9/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silence."""


def alarm(store: Path, number: int) -> None:
    """Put an alarm into a store, as the engine would."""
    with sqlite3.connect(store) as database:
        database.execute("INSERT OR IGNORE INTO stream (number, name) VALUES (1, 'paris')")
        database.execute(
            "INSERT INTO alarm (number, stream, time, at, since, what, page) VALUES (?, 1, 1.5, 70, 40, 'too high', 1)",
            (number,),
        )


def test_alarms_arrive_signed_in_order_and_after_failures(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    alarm(store, 1)  # before there was a webhook
    with Receiver(500, 302, 503) as receiver:
        hook = Webhook(str(store), receiver.url, SECRET, pause=0.01)
        hook.start()
        for number in (2, 3):
            alarm(store, number)
        wait_until(lambda: len(receiver.taken) == 2)
        hook.stop()
        assert receiver.tries == 5
        assert [headers["x-calibeat-delivery"] for headers, _ in receiver.taken] == ["2", "3"]
        headers, body = receiver.taken[0]
        assert headers["x-calibeat-signature"] == signature(SECRET, headers["x-calibeat-timestamp"], body)
        assert json.loads(body)["alarm"] == {
            "number": 2,
            "stream": "paris",
            "time": 1.5,
            "at": 70,
            "since": 40.0,
            "what": "too high",
            "page": True,
        }
        alarm(store, 4)  # while no service runs
        again = Webhook(str(store), receiver.url, None, pause=0.01)
        again.start()
        wait_until(lambda: len(receiver.taken) == 3)
        again.stop()
        assert receiver.taken[2][0]["x-calibeat-delivery"] == "4"
        assert "x-calibeat-signature" not in receiver.taken[2][0]


def test_secrets(tmp_path: Path) -> None:
    assert read_secret(None) is None
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    assert read_secret(file) == SECRET
    file.write_bytes(b"short\n")
    with pytest.raises(InvalidInput, match="webhook secret must be 16 bytes or more, got 5"):
        read_secret(file)


def test_a_stream_that_goes_wrong_is_told_everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    settings = Settings(method="ops", monitor=1000.0)
    with (
        Receiver() as receiver,
        service_here(tmp_path / "calibeat.db", settings=settings, webhook=receiver.url, webhook_secret=secret) as url,
        caplog.at_level(logging.WARNING),
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        for turn in range(12):
            events = [{"stream": "paris", "id": f"{turn}-{i}", "score": 0.5} for i in range(500)]
            assert http.post("/v1/forecasts", json={"events": events}).status_code == 200
            told = [
                {"stream": e["stream"], "id": e["id"], "outcome": i % 2 if turn < 6 else 1}
                for i, e in enumerate(events)
            ]
            assert http.post("/v1/outcomes", json={"events": told}).status_code == 200
        alarms = http.get("/v1/alarms").json()["alarms"]
        assert alarms and alarms[0]["stream"] == "paris"
        assert http.get("/v1/streams/paris").json()["alarms"] >= 1
        assert "calibeat_alarms_total 0" not in http.get("/metrics").text
        assert "in stream paris" in caplog.text
        wait_until(lambda: receiver.taken)
        assert json.loads(receiver.taken[0][1])["alarm"]["stream"] == "paris"
