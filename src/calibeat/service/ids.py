"""Ids of a batch that goes to several owners, looked up before any of them does its part.

A batch is taken whole or refused whole. One owner sees to that for its own events. Where there are several, a thread
with a connection of its own looks for ids that are taken, for all batches that wait in one statement.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from .operations import ForecastEvent, Refusal, taken
from .store import open_connection

log = logging.getLogger("calibeat.service")

Asked = tuple[Any, list[ForecastEvent]]  # a ticket, and a batch
Checked = list[tuple[Any, Refusal | None]]


def conflict(events: list[ForecastEvent], known: dict[str, tuple[str, float]]) -> Refusal | None:
    """Why a batch is refused: the first id that another stream or score has, in the store or in the batch itself.

    >>> conflict([ForecastEvent("paris", "e1", 0.5)], {"e1": ("rome", 0.5)}).message
    "id must be new or have the stream it had, got 'e1' - at event 0"
    """
    seen = dict(known)
    for at, event in enumerate(events):
        stream, score = seen.setdefault(event.id, (event.stream, event.score))
        if (stream, score) != (event.stream, event.score):
            return taken("stream" if stream != event.stream else "score", event.id, at)
    return None


class IdCheck:
    """Looks up ids on a thread of its own. `done` is called there, once for all batches of a look."""

    def __init__(self, store: str, done: Callable[[Checked], None]) -> None:
        self._store, self._done = store, done
        self._queue: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="calibeat-ids", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self, ticket: Any, events: list[ForecastEvent]) -> None:
        """Ask about a batch. Never waits."""
        self._queue.put((ticket, events))

    def stop(self) -> None:
        """Finish what waits and close."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_running = True
        while is_running:
            asked = [self._queue.get()]
            while not self._queue.empty():
                asked.append(self._queue.get())
            is_running = None not in asked
            batches = [batch for batch in asked if batch is not None]
            if batches:
                self._done(self._look(batches))
        self._close()

    def _look(self, asked: list[Asked]) -> Checked:
        try:
            if self._connection is None:
                self._connection = open_connection(self._store)
            rows = self._connection.all(
                "SELECT e.id, s.name, e.score FROM event e JOIN stream s ON s.number = e.stream WHERE e.id = ANY(?)",
                ([event.id for _, events in asked for event in events],),
            )
        except Exception as error:  # noqa: BLE001 - such as a database that is restarted: the next look connects again
            log.warning("ids could not be looked up: %s", error)
            self._close()
            refusal = Refusal("unavailable", "the store must answer, got nothing - try again", None, 503)
            return [(ticket, refusal) for ticket, _ in asked]
        known = {name: (stream, score) for name, stream, score in rows}
        return [(ticket, conflict(events, known)) for ticket, events in asked]

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
