"""Threads that share the slots of a bank among them: all the work is done or none, and no error is lost."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Thread

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.processes import usable_cores
from calibeat._util.types import Slots
from calibeat.errors import CalibeatError

from .undo import insist

Part = tuple[int, int]  # the slots from the first to before the second
Serve = Callable[[Part], None]


def thread_count(threads: int | None) -> int:
    """How many threads somebody asked for; if nobody did, as many as this process may use processors."""
    if threads is None:
        return usable_cores()
    return check_whole("threads", threads, 1, 1024)


def parts_of(slots: Slots, count: int, workers: int) -> list[Part]:
    """Ranges of slots, one a worker, with about as many events in each."""
    if workers == 1:
        return [(0, count)]
    sample = np.sort(slots[:: 1 + len(slots) // 65_536])
    cuts = [0, *(int(sample[len(sample) * i // workers]) for i in range(1, workers)), count]
    return [(first, last) for first, last in pairwise(cuts) if first < last]


class Gate:
    """Behind it threads wait. It is opened or shut once and for all; who comes second changes nothing."""

    def __init__(self) -> None:
        self._decided = Event()
        self._decision: dict[str, bool] = {}
        self.threads: list[Thread] = []
        # Who has ended, and a token from each. `Thread.join` is of no use here: interrupted once, it takes a thread
        # that is at work for one that has ended (Python 3.11).
        self.ended: list[bool] = []
        self.tokens: SimpleQueue[bool] = SimpleQueue()
        self.served: list[Part] = []
        self.failures: list[BaseException] = []  # of parts that could not be served
        self._process = os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether the work has begun. Asking shuts a gate about which nothing was decided."""
        return self._decision.setdefault("open", False)

    def decide(self, *, is_open: bool) -> None:
        """Open or shut, and let the threads go."""
        self._decision.setdefault("open", is_open)
        self._decided.set()

    def wait(self) -> bool:
        """Wait for the decision; whether it is open."""
        self._decided.wait()
        return self.is_open

    @property
    def is_lost(self) -> bool:
        """Whether this process was forked while the threads were at work: here nobody goes on with it."""
        return os.getpid() != self._process and len(self.ended) < len(self.threads)

    def finish(self) -> None:
        """Wait until the threads have ended; those behind a gate that is shut do nothing, and need no waiting for."""
        self.decide(is_open=False)  # if nothing was decided
        if self.is_lost:
            self.failures.append(CalibeatError("the process was forked while threads were at work"))
        elif self.is_open:
            while len(self.ended) < len(self.threads):
                self.tokens.get()


def run_in_threads(serve: Serve, parts: list[Part], gate: Gate) -> bool:
    """Serve all parts, in as many threads as there are parts, if the system has as many to give.

    Before the gate opens nothing is served: an error, or Ctrl-C, leaves things as they were. Once it is open every part
    is served, whatever happens to the caller: an interrupt is raised when they are done. An error of a thread is raised
    here, and stands in ``gate.failures``. The answer is False if no thread could be started; then nothing was served.
    """
    left = deque(parts)
    try:
        for _ in parts:
            thread = Thread(target=_work, args=(serve, left, gate), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads to give
                break
            gate.threads.append(thread)
        gate.decide(is_open=bool(gate.threads))
        gate.finish()
    except BaseException:
        insist(gate.finish)
        raise
    if gate.failures:
        raise gate.failures[0]
    return gate.is_open


def _work(serve: Serve, left: deque[Part], gate: Gate) -> None:
    """What each thread does."""
    while gate.wait() and left:
        try:
            part = left.popleft()
        except IndexError:  # pragma: no cover - another thread has taken the last part in this moment
            break
        try:
            serve(part)
        except BaseException as error:  # noqa: BLE001 - it is raised by the caller
            gate.failures.append(error)
        else:
            gate.served.append(part)
    gate.ended.append(True)
    gate.tokens.put(True)
