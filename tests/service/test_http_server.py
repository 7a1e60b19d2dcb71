"""`calibeat serve` as a process: the line it prints, signals, two of them, and what is refused at the start."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from served import address, descriptors, receive, request, service_apart, service_here, wait_until
from uvicorn.server import ServerState

from calibeat.cli.main import main
from calibeat.errors import InvalidInput
from calibeat.service import http as server
from calibeat.service import main as service_main
from calibeat.service.http import MOST_LINGERING
from calibeat.service.main import ServeOptions, serve

EVENT = {"stream": "s", "id": "i", "score": 0.5}
FIXTURES = Path(__file__).parents[1] / "fixtures"
pytestmark = pytest.mark.xdist_group("service processes")


def test_it_prints_one_line_and_ends_with_0_after_sigterm(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops", "--access-log") as found:
        assert re.fullmatch(
            r"calibeat serves \S+calibeat\.db at http://127\.0\.0\.1:\d+; no token yet, so only this machine can "
            r"connect\n",
            found.line,
        )
        assert httpx.post(f"{found.url}/v1/forecasts", json=EVENT).status_code == 200
        httpx.get(f"{found.url}/v1/streams?search=secret", headers={"authorization": "Bearer calibeat_secret"})
        status, errors = found.end(signal.SIGTERM)
    assert status == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/v1/forecasts", 200),
        ("GET", "/v1/streams", 200),
    ]
    assert set(lines[0]) == {"time", "client", "method", "path", "status", "bytes", "seconds", "token", "request"}
    assert "secret" not in errors


def test_sigterm_answers_what_waits_and_sigint_is_130(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as found:
        answers: list[int] = []

        def ask(worker: int) -> None:
            with httpx.Client(base_url=found.url) as http:
                for number in range(10_000):
                    try:
                        body = {"stream": "s", "id": f"{worker}-{number}", "score": 0.5}
                        answers.append(http.post("/v1/forecasts", json=body).status_code)
                    except httpx.TransportError:
                        return

        workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(8)]
        for worker in workers:
            worker.start()
        wait_until(lambda: len(answers) > 50)
        status, errors = found.end(signal.SIGINT)
        for worker in workers:
            worker.join()
    assert (status, errors) == (130, "")
    acknowledged = answers.count(200)
    assert set(answers) <= {200, 503}
    with service_apart(tmp_path / "calibeat.db") as again:
        assert httpx.get(f"{again.url}/v1/streams/s").json()["events"] >= acknowledged


def test_after_kill_everything_that_was_answered_is_there(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as found:
        first = httpx.post(f"{found.url}/v1/forecasts", json=EVENT).json()
        found.end(signal.SIGKILL)
    with service_here(tmp_path / "calibeat.db") as url:
        assert httpx.post(f"{url}/v1/forecasts", json=EVENT).json() == first
        outcome = {"stream": "s", "id": "i", "outcome": 1}
        assert httpx.post(f"{url}/v1/outcomes", json=outcome).json() == {"status": "learnt"}


def test_a_second_service_on_the_same_file_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "calibeat.db"
    with service_here(store) as url:
        done = subprocess.run(
            [sys.executable, "-m", "calibeat", "serve", "--store", str(store), "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "store must be used by one service at a time" in done.stderr
        assert httpx.post(f"{url}/v1/forecasts", json=EVENT).status_code == 200


def test_the_port_must_be_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"host and port must be free to listen on, got 127.0.0.1:{port}"):
            serve(ServeOptions(str(tmp_path / "calibeat.db"), port=port))
    with pytest.raises(InvalidInput, match="free to listen on"):
        server.listen("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--host", "192.0.2.1"], "free to listen on"),
        (["--host", "0.0.0.0"], "host must be loopback as long as there is no token"),  # noqa: S104
        (["--tls-cert", "x.pem"], "tls-cert and tls-key must come together"),
        (["--tls-cert", "x.pem", "--tls-key", "x.pem"], "TLS needs a certificate and its key"),
        (["--expire", "100"], "expire must be a time such as 12h or 30d, got '100'"),
        (["--expire", "soon"], "expire must be a number of events or a time"),
        (["--expire-as", "0"], "expire_as must come with expire"),
        (["--max-body", "0"], "body must be more than 0, got 0"),
        (["--method", "nothing"], "nothing"),
        (["--webhook", "ftp://x"], "webhook must begin with http:// or https://"),
        (["--webhook", "http://x", "--webhook-secret-file", "nothing.txt"], "nothing.txt"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], words: str
) -> None:
    store = str(tmp_path / "calibeat.db")
    assert main(["serve", "--store", store, "--port", "0", *typed]) == 2
    printed = capsys.readouterr()
    assert printed.out in {"", f"calibeat made a new store: {store}\n"}  # some are found with the store open
    assert words in printed.err and printed.err.count("\n") == 1


def test_everything_that_can_be_set_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ServeOptions] = []
    monkeypatch.setattr("calibeat.service.main.serve", lambda options: seen.append(options) or signal.SIGINT)
    typed = ["--expire", "30d", "--expire-as", "0", "--mature", "7d", "--monitor", "--method", "tops"]
    typed += ["--max-body", "1000", "--max-events", "5", "--max-connections", "7", "--max-request-time", "1.5"]
    assert main(["serve", "--store", str(tmp_path / "a.db"), "--port", "1", *typed]) == 130
    settings, limits = seen[0].settings, seen[0].limits
    assert (settings.expire, settings.expire_as, settings.mature) == (30 * 86_400.0, 0, 7 * 86_400.0)
    assert settings.monitor == 1_000_000 and settings.method == "tops"
    assert limits == {"body": 1000, "events": 5, "connections": 7, "request_seconds": 1.5}


def test_tls(tmp_path: Path) -> None:
    certificate, key = FIXTURES / "tls-cert.pem", FIXTURES / "tls-key.pem"  # for 127.0.0.1, and for nothing but this
    with service_here(tmp_path / "calibeat.db", tls=(str(certificate), str(key))) as url:
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=url, verify=trusted) as http:
            assert http.post("/v1/forecasts", json=EVENT).json()["id"] == "i"
            assert http.post("/v1/forecasts", content=b"x" * 10, headers={"origin": "https://x"}).status_code == 415
            assert "secure" in http.post("/login", data={"token": ""}).headers["set-cookie"].lower()
        with socket.create_connection(address(url), timeout=10) as connection:  # plain HTTP on a TLS port
            connection.sendall(request("/v1/forecasts", b"{}"))
            assert not connection.recv(100).startswith(b"HTTP")
        with ssl.create_default_context(cafile=str(certificate)).wrap_socket(
            socket.create_connection(address(url), timeout=10), server_hostname="127.0.0.1"
        ) as connection:
            connection.sendall(b"\x00\x01\x02\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def silent(url: str, number: int) -> list[socket.socket]:
    """Connections without a word."""
    return [socket.create_connection(address(url), timeout=10) for _ in range(number)]


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


TLS = (str(FIXTURES / "tls-cert.pem"), str(FIXTURES / "tls-key.pem"))


def test_connections_without_a_handshake_are_counted_and_shut_nobody_out(tmp_path: Path) -> None:
    trusted = ssl.create_default_context(cafile=TLS[0])
    with (
        service_here(tmp_path / "calibeat.db", tls=TLS, limits={"connections": 10}) as url,
        httpx.Client(base_url=url, verify=trusted, timeout=30) as http,
    ):
        assert http.get("/healthz").status_code == 200
        before = descriptors()
        held = silent(url, 200)
        assert httpx.get(f"{url}/healthz", verify=trusted, timeout=30).status_code == 200
        assert http.post("/v1/forecasts", json=EVENT).status_code == 200
        wait_until(lambda: descriptors() < before + 200 + 10 + MOST_LINGERING + 10)
        wait_until(lambda: sum(map(is_closed, held)) > 150)
        for connection in held:
            connection.close()
        wait_until(lambda: descriptors() <= before + 5)


def test_a_handshake_has_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.3)
    with service_here(tmp_path / "calibeat.db", tls=TLS) as url:
        (connection,) = silent(url, 1)
        assert receive(connection) == b""
        connection.close()


def test_a_handshake_that_has_not_begun_can_be_in_the_way() -> None:
    """Three connect in one moment where one may."""

    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*TLS)
        one = SimpleNamespace(server_state=ServerState(), most=1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            clients = [socket.create_connection(listener.getsockname(), timeout=10) for _ in range(3)]
            door = server.TlsListener(listener, asyncio.Protocol, context, one)  # type: ignore[arg-type]
            door._accept()
            await asyncio.sleep(0.1)
            assert [is_closed(client) for client in clients] == [True, True, False]
            door.close()
            await door.wait_closed()
            wait_until(lambda: is_closed(clients[2]))
            for client in clients:
                client.close()

    asyncio.run(main())


def test_no_descriptor_for_a_connection_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = ssl.create_default_context(cafile=TLS[0])
    failing = iter([True])

    class Listener(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if next(failing, False):
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    listen = server.listen
    monkeypatch.setattr(service_main, "listen", lambda *where: Listener(fileno=listen(*where).detach()))
    with service_here(tmp_path / "calibeat.db", tls=TLS) as url:
        assert httpx.get(f"{url}/healthz", verify=trusted, timeout=30).status_code == 200


def test_a_service_can_stop_while_handshakes_wait(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db", tls=TLS) as url:
        held = silent(url, 5)
        trusted = ssl.create_default_context(cafile=TLS[0])
        assert httpx.get(f"{url}/healthz", verify=trusted).status_code == 200
    for connection in held:
        assert receive(connection) == b""
        connection.close()


def test_the_limit_of_open_files_is_raised_or_respected() -> None:
    assert server.room_for(10) == 10
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert server.room_for(400) == 400  # the soft limit was raised
        assert server.room_for(2**40) < 2**40  # nobody can have so many
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_addresses() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        assert server.address(listener, tls=True).startswith("https://[::1]:")
    assert not server.is_loopback("example.org")
