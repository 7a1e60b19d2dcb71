"""Several workers on one PostgreSQL: any of them answers, one that dies is replaced, a signal ends them all."""

from __future__ import annotations

import itertools
import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from postgres import Postgres
from served import service_apart, wait_until

from calibeat.service import workers
from calibeat.service.workers import Supervisor, WorkersFailed

pytestmark = pytest.mark.xdist_group("service processes")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("sharing", ["rows", "own"])
def test_two_workers(server: Postgres, sharing: str) -> None:
    typed = ("--workers", "2", "--method", "ops", "--sharing", sharing)
    with ExitStack() as stack, service_apart(server.database(), *typed) as found:
        assert "with 2 workers" in found.line and "password" not in found.line
        connections = [stack.enter_context(httpx.Client(base_url=found.url)) for _ in range(6)]  # to both of them
        turn = itertools.cycle(connections)
        events = [{"stream": f"s{i % 5}", "id": f"e{i}", "score": i / 100} for i in range(60)]
        answers = [next(turn).post("/v1/forecasts", json=event).json() for event in events]
        assert [next(turn).post("/v1/forecasts", json=event).json() for event in reversed(events)] == answers[::-1]
        told = [{"stream": e["stream"], "id": e["id"], "outcome": 1} for e in events]
        assert {next(turn).post("/v1/outcomes", json=each).json()["status"] for each in told} == {"learnt"}
        assert next(turn).get("/v1/totals").json()["outcomes"] == 60
        before = children(found.process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        for _ in range(2):  # at once, from whoever is left, and from both again
            again = httpx.post(f"{found.url}/v1/outcomes", json={"events": told}, timeout=30).json()["outcomes"]
            assert {each["status"] for each in again} == {"repeated"}
            wait_until(lambda: len(children(found.process.pid)) == 2 and before[0] not in children(found.process.pid))
        if sharing == "own":
            status, errors = found.end(signal.SIGTERM)
            assert status == 0
        else:  # workers whose parent is killed end too: this returns when they have let go of standard error
            status, errors = found.end(signal.SIGKILL)
            assert status == -signal.SIGKILL
        assert f"worker {before[0]} ended with status -9; another is started" in errors


class Fake:
    """Workers that end at once, or as told."""

    def __init__(self, line: str, code: int | None) -> None:
        self.line, self.returncode, self.pid = line, code, 1
        self.lines: list[str] = []  # that come before it
        self.stdout = self

    def __call__(self, *_: Any, **__: Any) -> Fake:
        return self

    def readline(self) -> str:
        return self.lines.pop(0) if self.lines else self.line

    def close(self) -> None: ...

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> None: ...

    def send_signal(self, number: int) -> None:
        self.returncode = -number


def test_workers_that_cannot_start_are_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(workers.subprocess, "Popen", Fake("", 2))
        with pytest.raises(WorkersFailed, match="a worker must be able to start"):
            Supervisor(2, listener, []).run()
        monkeypatch.setattr(workers.subprocess, "Popen", Fake("calibeat serves\n", 70))
        monkeypatch.setattr(workers, "LOOK", 0.001)
        with pytest.raises(WorkersFailed, match="workers must keep running, got 12 that ended at once"):
            Supervisor(1, listener, []).run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    fake = Fake("calibeat serves\n", None)
    fake.lines = ["calibeat serves\n", "calibeat made a new store: x\n"]  # the second worker was the first to open it
    monkeypatch.setattr(workers.subprocess, "Popen", fake)
    monkeypatch.setattr(workers.time, "sleep", lambda _: signal.raise_signal(number))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert Supervisor(2, listener, []).run() == number
    assert fake.returncode == -signal.SIGTERM
    assert capsys.readouterr().out == "calibeat made a new store: x\ncalibeat serves with 2 workers\n"
