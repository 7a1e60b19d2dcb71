"""Services for tests: on a thread of this process, where lines are counted, or as a process of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from calibeat.service.main import ServeOptions, serve
from calibeat.service.settings import EngineSettings


@contextmanager
def service_here(store: object, *, settings: EngineSettings | None = None, **options: Any) -> Iterator[str]:
    """A service on a thread -> its address."""
    ready: list[tuple[str, Callable[[], None]]] = []
    failed: list[BaseException] = []
    is_ready = threading.Event()

    def announce(where: str, stop: Callable[[], None]) -> None:
        ready.append((where, stop))
        is_ready.set()

    def run() -> None:
        try:
            serve(
                ServeOptions(str(store), settings or EngineSettings(method="ops"), **{"port": 0, **options}), announce
            )
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)
            is_ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    is_ready.wait(60)
    if failed:
        raise failed[0]
    try:
        yield ready[0][0]
    finally:
        ready[0][1]()
        thread.join(60)
        assert not thread.is_alive()
        if failed:
            raise failed[0]


class Process:
    """`calibeat serve` as a user starts it."""

    def __init__(self, store: object, *more: str, port: int = 0, **environment: str) -> None:
        command = [sys.executable, "-m", "calibeat", "serve", "--store", str(store), "--port", str(port), *more]
        env = {**os.environ, **environment}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.made = self.line if self.line.startswith("calibeat made a new store: ") else ""
        if self.made:
            self.line = self.process.stdout.readline()
        self.url = next((word.rstrip(";") for word in self.line.split() if word.startswith("http")), "")
        if not self.url:
            raise RuntimeError(self.end(signal.SIGKILL)[1])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal -> the exit status and what was written to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def service_apart(store: object, *more: str, port: int = 0, **environment: str) -> Iterator[Process]:
    """A service in a process of its own; it is killed in the end if it still runs."""
    found = Process(store, *more, port=port, **environment)
    try:
        yield found
    finally:
        found.end(signal.SIGKILL)


def address(url: str) -> tuple[str, int]:
    """The host and port of an address."""
    parts = httpx.URL(url)
    return parts.host, parts.port or 80


def talk(url: str, data: bytes, *, seconds: float = 10.0) -> bytes:
    """Send bytes as they are -> everything that comes back until the other side closes or is silent."""
    with socket.create_connection(address(url), timeout=seconds) as connection:
        connection.sendall(data)
        return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except (ConnectionResetError, TimeoutError):
        pass
    return b"".join(parts)


def request(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of a condition that is looked at again and again."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.02)
    return found


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
