"""Threads that share the slots of a bank: all the work is done or none, and no error is lost."""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.processes import usable_cores
from calibeat._util.types import Slots
from calibeat.errors import CalibeatError

SlotRange = tuple[int, int]  # the slots from the first to before the second
Serve = Callable[[SlotRange], None]


def thread_count(threads: int | None) -> int:
    """The number of threads, checked; if none is given, as many as this process may use processors."""
    if threads is None:
        return usable_cores()
    return check_whole("threads", threads, 1, 1024)


def slot_ranges(slots: Slots, count: int, workers: int) -> list[SlotRange]:
    """Ranges of slots, one a worker, with about as many events in each."""
    if workers == 1:
        return [(0, count)]
    sample = np.sort(slots[:: 1 + len(slots) // 65_536])
    cuts = [0, *(int(sample[len(sample) * i // workers]) for i in range(1, workers)), count]
    return [(first, last) for first, last in pairwise(cuts) if first < last]


def retry_interrupted(work: Callable[[], None]) -> None:
    """Repeat work that ends by itself until it has ended without an interrupt. Errors and signals are swallowed."""
    while True:
        try:
            work()
        except BaseException:  # noqa: BLE001, S112 - the caller has an interrupt to raise already
            continue
        return


class Barrier:
    """A one-shot barrier for threads. The first decision, open or shut, wins."""

    def __init__(self) -> None:
        # A turnstile: who takes the token puts it back. An `Event` would not do: a signal inside of its `set` can leave
        # its lock taken for ever, while a queue of C is whole between any two signals.
        self._decided: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._decision: dict[str, bool] = {}
        self.threads: list[Thread] = []
        # A mark and a token from each thread that has ended. `Thread.join` is of no use here: interrupted once, it
        # takes a running thread for one that has ended (Python 3.11).
        self.ended: list[bool] = []
        self.tokens: SimpleQueue[bool] = SimpleQueue()
        self.served: list[SlotRange] = []
        self.failures: list[BaseException] = []  # of ranges that could not be served
        self._process = os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether the work has begun. Asking shuts a barrier that is not decided yet."""
        return self._decision.setdefault("open", False)

    def decide(self, *, is_open: bool) -> None:
        """Open or shut, and let the threads go."""
        self._decision.setdefault("open", is_open)
        self._decided.put(True)

    def wait(self) -> bool:
        """Wait for the decision; whether it is open."""
        self._decided.put(self._decided.get())
        return self.is_open

    @property
    def is_lost(self) -> bool:
        """Whether this process was forked while the threads ran: they do not run here."""
        return os.getpid() != self._process and len(self.ended) < len(self.threads)

    @property
    def is_at_work(self) -> bool:
        """Whether threads of this process are at work behind it."""
        return self.is_open and len(self.ended) < len(self.threads) and not self.is_lost

    def finish(self) -> None:
        """Wait until the threads have ended. Behind a shut barrier they do nothing, and there is no need to wait."""
        self.decide(is_open=False)  # if nothing was decided
        if self.is_lost:
            self.failures.append(CalibeatError("the process was forked while threads were at work"))
        elif self.is_open:
            while len(self.ended) < len(self.threads):
                self.tokens.get()


def run_in_threads(serve: Serve, ranges: list[SlotRange], barrier: Barrier) -> bool:
    """Serve all ranges, in as many threads as there are ranges, if the system has as many to give.

    Before the barrier opens nothing is served: an error or Ctrl-C changes nothing. Once it is open every range is
    served, whatever happens to the caller: an interrupt is raised at once, and the threads go on without him;
    ``barrier.finish`` waits for them. An error of a thread is raised here, and stands in ``barrier.failures``. Returns
    False if no thread could be started; then nothing was served.
    """
    left = deque(ranges)
    try:
        for _ in ranges:
            thread = Thread(target=_work, args=(serve, left, barrier), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads to give
                break
            except KeyError as error:  # an interrupt: Python 3.11 then fails to forget a thread that has begun
                raise (error.__context__ or error) from None
            barrier.threads.append(thread)
        barrier.decide(is_open=bool(barrier.threads))
        barrier.finish()
    except BaseException:
        retry_interrupted(lambda: barrier.decide(is_open=False))  # if nothing was decided
        raise
    if barrier.failures:
        raise barrier.failures[0]
    return barrier.is_open


def _work(serve: Serve, left: deque[SlotRange], barrier: Barrier) -> None:
    """What each thread does."""
    while barrier.wait() and left:
        try:
            part = left.popleft()
        except IndexError:  # pragma: no cover - another thread has taken the last range in this moment
            break
        try:
            serve(part)
        except BaseException as error:  # noqa: BLE001 - it is raised by the caller
            barrier.failures.append(error)
        else:
            barrier.served.append(part)
    barrier.ended.append(True)
    barrier.tokens.put(True)
