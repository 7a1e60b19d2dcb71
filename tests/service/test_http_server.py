"""`calibeat serve` as a process: the line it prints, signals, two of them, and what is refused at the start."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from served import address, request, service_apart, service_here, wait_until

from calibeat.cli.main import main
from calibeat.errors import InvalidInput
from calibeat.service import server
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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_answers_everything_that_was_committed(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as found:
        answers: list[int] = []

        def ask(worker: int) -> None:
            with httpx.Client(base_url=found.url) as http:
                for event in range(10_000):
                    try:
                        body = {"stream": "s", "id": f"{worker}-{event}", "score": 0.5}
                        answers.append(http.post("/v1/forecasts", json=body).status_code)
                    except httpx.TransportError:
                        return

        workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(8)]
        for worker in workers:
            worker.start()
        wait_until(lambda: len(answers) > 50)
        ended = found.end(number)
        for worker in workers:
            worker.join()
    assert ended == (status, "")
    assert set(answers) <= {200, 503}
    with service_apart(tmp_path / "calibeat.db") as again:
        assert httpx.get(f"{again.url}/v1/streams/s").json()["events"] == answers.count(200)


def test_a_second_sigint_does_not_wait_for_slow_clients(tmp_path: Path) -> None:
    with (
        service_apart(tmp_path / "calibeat.db", "--method", "ops") as found,
        socket.create_connection(address(found.url), timeout=10) as slow,
    ):
        slow.sendall(request("/v1/forecasts", json.dumps(EVENT).encode())[:-5])
        assert httpx.get(f"{found.url}/healthz").status_code == 200
        found.process.send_signal(signal.SIGINT)
        wait_until(lambda: not listens(found.url))
        assert found.process.poll() is None  # it waits for the rest of the request
        found.process.send_signal(signal.SIGINT)
        found.process.wait(server.GRACE_SECONDS / 2)  # not until the first one gives up
        assert found.end() == (130, "")


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address(url)) == 0


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
        (["--expire", "100"], "expire must be a time such as 12h or 30d, got '100'"),
        (["--expire", "soon"], "expire must be a number of events or a time"),
        (["--expire-as", "0"], "expire_as must come with expire"),
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
    assert main(["serve", "--store", str(tmp_path / "a.db"), "--port", "1", *typed]) == 130
    settings = seen[0].settings
    assert (settings.expire, settings.expire_as, settings.mature) == (30 * 86_400.0, 0, 7 * 86_400.0)
    assert settings.monitor == 1_000_000 and settings.method == "tops"


def test_options_come_from_the_environment_unless_they_are_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[ServeOptions] = []
    monkeypatch.setattr("calibeat.service.main.serve", seen.append)
    variables = {
        "STORE": "postgresql://a:secret@b/c",
        "PORT": "1",
        "MONITOR": "5000",
        "NOTICE": "off",
        "ACCESS_LOG": "1",
    }
    for name, value in {**variables, "LOG_FORMAT": "json", "METHOD": "", "WEBHOOK_SECRET_FILE": "key"}.items():
        monkeypatch.setenv(f"CALIBEAT_{name}", value)
    assert main(["serve"]) == 0
    assert main(["serve", "--store", "a.db", "--port", "2", "--notice", "--monitor", "--log-format", "text"]) == 0
    first, second = seen
    assert (first.store, first.port, first.access_log, first.log_format) == (variables["STORE"], 1, True, "json")
    assert (first.settings.monitor, first.settings.notice, first.settings.method) == (5000.0, False, None)
    assert first.webhook_secret == second.webhook_secret == Path("key")
    assert (second.store, second.port, second.log_format) == ("a.db", 2, "text")
    assert (second.settings.monitor, second.settings.notice) == (1_000_000, True)
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert "[CALIBEAT_STORE]" in shown and "[CALIBEAT_WEBHOOK_SECRET_FILE]" in shown and "secret@" not in shown
    for name, value, words in (
        ("PORT", "x", "CALIBEAT_PORT must be a number, got 'x'"),
        ("NOTICE", "maybe", "CALIBEAT_NOTICE must be 1 or 0, got 'maybe'"),
        ("LOG_FORMAT", "xml", "CALIBEAT_LOG_FORMAT must be one of text, json, got 'xml'"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"CALIBEAT_{name}", value)
            assert main(["serve"]) == 2
        assert words in capsys.readouterr().err


def test_other_commands_read_the_store_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALIBEAT_STORE", str(tmp_path / "a.db"))
    assert main(["token", "create", "--scope", "read", "--name", "page"]) == 0
    for command in (["store", "info"], ["alarm", "list"], ["token", "list"]):
        assert main(command) == 0
    assert "page  read" in capsys.readouterr().out
    assert main(["store", "info", "--store", str(tmp_path / "none.db")]) == 2


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
        assert server.address(listener).startswith("http://[::1]:")
    assert not server.is_loopback("example.org")
