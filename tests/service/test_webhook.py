"""Alarms: in the log, in the metrics, over HTTP, and to a web address that may be away for a while."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import Receiver
from served import service_apart, service_here, wait_until

from calibeat.errors import InvalidInput
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection, open_store
from calibeat.service.webhook import Webhook, read_secret, signature

SECRET = b"a secret of 16 bytes or more"


@contextmanager
def dripping() -> Iterator[tuple[str, list[int]]]:
    """A receiver that sends its answer byte by byte and never ends -> its address, and a list of its connections."""
    taken: list[int] = []
    is_over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65_536)
                taken.append(1)
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not is_over.wait(0.02):
                    connection.sendall(b"y")
            except OSError:  # the other side has had enough
                pass

    def accept(listener: socket.socket) -> None:
        while not is_over.is_set():
            try:
                drip(listener.accept()[0])
            except TimeoutError:
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/alarms", taken
        finally:
            is_over.set()
            thread.join()


def alarm(store: Path | str, number: int, *, page: int = 1) -> None:
    """Put an alarm into a store, as the engine would."""
    with closing(open_connection(str(store), write=True)) as connection:
        insert_alarm(connection, number, page=page)


def insert_alarm(connection: Any, number: int, *, page: int = 1) -> None:
    """The same, within a transaction of the caller. Each is raised in another hour: a cause of its own."""
    connection.run("INSERT INTO stream (number, name) VALUES (1, 'paris') ON CONFLICT DO NOTHING")
    connection.run(
        "INSERT INTO alarm (number, stream, time, at, since, what, page) VALUES (?, 1, ?, 70, 40, 'too high', ?)",
        (number, 3600.0 * number, page),
    )


def numbers(receiver: Receiver) -> list[int]:
    """The alarms that were taken, in their order."""
    return [alarm["number"] for _, body in receiver.taken for alarm in json.loads(body)["alarms"]]


def test_alarms_arrive_signed_in_order_and_after_failures(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    alarm(store, 1)  # before there was a webhook
    with Receiver(500, 302, 503) as receiver:
        hook = Webhook(str(store), receiver.url, SECRET, pause=0.01, page="https://calibration.example/")
        hook.start()
        for number in (2, 3):
            alarm(store, number)
        wait_until(lambda: len(receiver.taken) == 2)
        hook.stop()
        assert receiver.tries == 5
        assert [headers["x-calibeat-delivery"] for headers, _ in receiver.taken] == ["2", "3"]
        headers, body = receiver.taken[0]
        assert headers["x-calibeat-signature"] == signature(SECRET, headers["x-calibeat-timestamp"], body)
        alarm_2 = {"number": 2, "stream": "paris", "time": 7200.0, "at": 70, "since": 40.0, "what": "too high"}
        more = {"page": True, "since_time": None, "ended": None, "acknowledged": None, "acknowledged_by": None}
        more |= {"part": 0, "detail": None}
        page = "https://calibration.example/#/stream/paris"
        assert json.loads(body) == {
            "text": "calibeat: paris: forecasts too high. Look first at the pipeline of outcomes: some may be lost.",
            "url": page,
            "state": "open",
            "page": True,
            "streams": 1,
            "since_time": None,
            "ended": None,
            "alarms": [{**alarm_2, **more, "url": page}],
        }
        alarm(store, 4)  # while no service runs
        again = Webhook(str(store), receiver.url, None, pause=0.01)
        again.start()
        wait_until(lambda: len(receiver.taken) == 3)
        again.stop()
        assert receiver.taken[2][0]["x-calibeat-delivery"] == "4"
        assert "x-calibeat-signature" not in receiver.taken[2][0]


def test_alarms_that_commit_out_of_order_all_arrive(url: str) -> None:
    open_store(url).close()
    with Receiver() as receiver:
        hook = Webhook(url, receiver.url, None, pause=0.01)
        hook.start()
        if url.startswith("postgresql"):  # a number is given out when an alarm is written, not when it is committed
            with closing(open_connection(url, write=True)) as slow:
                alarm(url, 1)
                slow.begin()
                insert_alarm(slow, 2)
                alarm(url, 3)
                wait_until(lambda: len(receiver.taken) == 2)
                slow.commit()
        else:
            alarm(url, 1)
            alarm(url, 3)
            wait_until(lambda: len(receiver.taken) == 2)
            alarm(url, 2)
        wait_until(lambda: len(receiver.taken) == 3)
        hook.stop()
        assert numbers(receiver) == [1, 3, 2]


def test_the_second_process_to_start_does_not_take_new_alarms_for_old_ones(url: str) -> None:
    open_store(url).close()
    alarm(url, 1)
    with Receiver(500) as receiver:
        first, second = (Webhook(url, receiver.url, None, pause=0.01) for _ in range(2))
        first._with_connection(first._begin)
        alarm(url, 2)
        second.start()
        wait_until(lambda: receiver.taken)
        second.stop()
        assert numbers(receiver) == [2]


def test_pages_go_first(url: str) -> None:
    open_store(url).close()
    with Receiver() as receiver:
        hook = Webhook(url, receiver.url, None, pause=0.01)
        hook._with_connection(hook._begin)
        for number, page in enumerate([0, 1, 0, 1], 1):
            alarm(url, number, page=page)
        hook.start()
        wait_until(lambda: len(receiver.taken) == 4)
        hook.stop()
        assert numbers(receiver) == [2, 4, 1, 3]


class Waits(threading.Event):
    """An event that notes how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return super().wait(timeout)


def test_alarms_of_a_wrong_year_hold_up_nothing(tmp_path: Path) -> None:
    """The clock was ahead when the first was raised; messages are about what happened together."""
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    with Receiver() as receiver:
        hook = Webhook(str(store), receiver.url, SECRET, pause=0.01)
        hook.start()
        alarm(store, int(time.time() / 3600.0) + 24 * 365)
        alarm(store, 2)
        wait_until(lambda: len(receiver.taken) == 2)
        hook.stop()
        assert len(numbers(receiver)) == 2


def test_the_pause_grows_with_failures_and_begins_anew_after_a_success(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    with Receiver(*[500] * 4, 204, *[500, 204] * 6) as receiver:
        hook = Webhook(str(store), receiver.url, None, pause=0.01)
        hook._stop = waits = Waits()
        hook._with_connection(hook._begin)
        for number in range(1, 8):
            alarm(store, number)
        hook.start()
        wait_until(lambda: len(receiver.taken) == 7)
        hook.stop()
        assert waits.waits[1:11] == [0.01, 0.02, 0.04, 0.08, *[0.01] * 6]


def test_a_receiver_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.webhook.PATIENCE", 0.6)
    with dripping() as (url, taken):
        hook = Webhook(str(tmp_path / "calibeat.db"), url, None)
        with pytest.raises(TimeoutError, match="timed out"):
            hook.post(b"{}", "1")
        assert taken == [1]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("http", "https"):
            hook = Webhook("", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", None)
            with pytest.raises(OSError, match="timed out"):
                hook.post(b"{}", "1")


def test_finding_the_address_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.webhook.PATIENCE", 0.05)
    find = socket.getaddrinfo

    def slowly(*args: Any, **more: Any) -> Any:  # as a name server that does not answer
        time.sleep(0.2)
        return find(*args, **more)

    with Receiver() as receiver:
        hook = Webhook(str(tmp_path / "calibeat.db"), receiver.url.replace("127.0.0.1", "localhost"), None)
        monkeypatch.setattr(socket, "getaddrinfo", slowly)
        with pytest.raises(TimeoutError, match="the receiver timed out within"):
            hook.post(b"{}", "1")
        assert not receiver.taken


def test_the_address_of_the_receiver_is_in_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That of Slack is a secret."""
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    with Receiver(404) as receiver, caplog.at_level(logging.WARNING):
        hook = Webhook(str(store), f"{receiver.url}/T0/secret", None, pause=0.01)
        hook.start()
        alarm(store, 1)
        wait_until(lambda: receiver.taken)
        hook.stop()
    assert "the receiver answered with status 404" in caplog.text and "secret" not in caplog.text


def test_an_answer_that_comes_after_the_stop_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.webhook.STOP", 0.01)
    store = tmp_path / "calibeat.db"
    open_store(str(store)).close()
    with Receiver() as receiver:
        receiver.hold = threading.Event()
        hook = Webhook(str(store), receiver.url, None, pause=0.01)
        hook.start()
        alarm(store, 1)
        wait_until(lambda: receiver.tries)
        hook.stop()
        receiver.hold.set()
        hook._thread.join()
        assert numbers(receiver) == [1]
    with sqlite3.connect(store) as database:
        assert database.execute("SELECT delivered FROM alarm").fetchall() == [(0,)]


def test_a_service_ends_while_a_receiver_drips(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    with dripping() as (url, taken), service_apart(store, "--webhook", url, "--method", "ops") as service:
        alarm(store, 1)
        wait_until(lambda: taken)
        assert service.end(signal.SIGTERM) == (0, "")
    with sqlite3.connect(store) as database:
        assert database.execute("SELECT delivered FROM alarm").fetchall() == [(0,)]  # the next process sends it


def test_secrets(tmp_path: Path) -> None:
    assert read_secret(None) is None
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    assert read_secret(file) == SECRET
    file.write_bytes(b"short\n")
    with pytest.raises(InvalidInput, match="webhook secret must be 16 bytes or more, got 5"):
        read_secret(file)


def test_a_stream_that_goes_wrong_is_told_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.service.webhook.GATHER", 0.0)
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    settings = EngineSettings(method="ops", monitor=1000.0)
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
        assert "calibeat_alarms_total 0.0" not in http.get("/metrics").text
        assert "in stream paris" in caplog.text
        wait_until(lambda: receiver.taken)
        assert json.loads(receiver.taken[0][1])["alarms"][0]["stream"] == "paris"
