"""Threads that share the slots of a bank among them, and finish what they have begun."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import Thread

import numpy as np

from calibeat._util.types import Slots

Part = tuple[int, int]  # the slots from the first to before the second
Serve = Callable[[Part], None]


def parts_of(slots: Slots, count: int, workers: int) -> list[Part]:
    """Ranges of slots, one a worker, with about as many events in each."""
    sample = np.sort(slots[:: 1 + len(slots) // 65_536])
    cuts = [0, *(int(sample[len(sample) * i // workers]) for i in range(1, workers)), count]
    return [(first, last) for first, last in pairwise(cuts) if first < last]


class Crew:
    """Serve each part in a thread of its own, which no Ctrl-C reaches.

    Once the first has begun, the work will be finished: by this thread, if another cannot be started or if somebody
    interrupts (who then waits until it is done).
    """

    def __init__(self, serve: Serve, parts: list[Part]) -> None:
        self._serve, self._left = serve, list(parts)
        self._threads: list[Thread] = []
        self.begun = False

    def run(self) -> None:
        """All parts."""
        while self._left:
            thread = Thread(target=self._serve, args=(self._left[-1],))
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads to give
                break
            self.begun = True
            self._threads.append(thread)
            self._left.pop()
        self.finish()

    def finish(self) -> None:
        """What is left, here; then wait for the others."""
        self.begun = True
        while self._left:
            self._serve(self._left[-1])
            self._left.pop()
        for thread in self._threads:
            thread.join()
