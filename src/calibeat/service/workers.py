"""Several workers: processes that share one socket and one PostgreSQL store; one that dies is started again."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from calibeat.errors import CalibeatError

from .server import stop_signals

log = logging.getLogger("calibeat.service")
MADE = "calibeat made a new store:"  # how a line begins that comes before the one with the address
LOOK = 0.2  # seconds between two looks at the workers
QUICK = 5.0  # seconds: a worker that ends sooner has not served
MOST_QUICK = 12  # so many in a row, and starting another makes no sense
LONGEST_PAUSE = 30.0  # seconds before another is started, after several in a row: the database may come back


class WorkersFailed(CalibeatError):
    """The workers end as soon as they are started."""


class Supervisor:
    """Starts workers, starts them again, and passes on the signal that ends them."""

    def __init__(self, count: int, listener: socket.socket, typed: Sequence[str]) -> None:
        self._count, self._listener, self._typed = count, listener, list(typed)
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self._started: dict[int, float] = {}
        self._stopped_by: int | None = None
        self._quick = 0
        self._due: dict[int, float] = {}  # workers that have ended, and when another is started

    def run(self) -> int | None:
        """Until a signal comes -> the signal."""
        before = {number: signal.signal(number, self._stop) for number in stop_signals()}
        try:
            for index in range(self._count):
                self._start(index)
            lines = [self._line(index) for index in range(self._count)]
            sys.stdout.write(lines[0].rstrip("\n") + f" with {self._count} workers\n")
            sys.stdout.flush()
            while self._stopped_by is None:
                time.sleep(LOOK)
                self._look()
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._stopped_by

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopped_by = self._stopped_by or number

    def _start(self, index: int) -> None:
        """Start a worker."""
        handle = self._listener.fileno()
        more = ["--workers", "1", "--listen-fd", str(handle)] + ([] if index == 0 else ["--no-webhook"])
        worker = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "calibeat", *self._typed, *more],
            pass_fds=[handle],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.workers[index], self._started[index] = worker, time.monotonic()

    def _line(self, index: int) -> str:
        """The line that a worker prints when it is ready. That it has made the store is passed on."""
        pipe = self.workers[index].stdout
        line = "" if pipe is None else pipe.readline()
        if pipe is not None and line.startswith(MADE):
            sys.stdout.write(line)
            line = pipe.readline()
        if not line and self._stopped_by is None:
            raise WorkersFailed("a worker must be able to start, got one that ended; its reason stands above")
        return line

    def _look(self) -> None:
        """Start again what has died."""
        now = time.monotonic()
        for index, worker in list(self.workers.items()):
            if worker.poll() is None:
                continue
            if index not in self._due:
                self._quick = self._quick + 1 if now - self._started[index] < QUICK else 0
                log.warning("worker %d ended with status %d; another is started", worker.pid, worker.returncode)
                if self._quick >= MOST_QUICK:
                    raise WorkersFailed(f"workers must keep running, got {MOST_QUICK} that ended at once")
                self._due[index] = now + (min(LONGEST_PAUSE, LOOK * 2.0**self._quick) if self._quick else 0.0)
            if now >= self._due[index]:
                del self._due[index]
                if worker.stdout is not None:
                    worker.stdout.close()
                self._start(index)

    def _end(self) -> None:
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers.values():
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()
