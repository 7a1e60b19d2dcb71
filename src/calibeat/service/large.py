"""Large groups: one is written on a thread of its own while the engine plans the next one.

SQLite works without the interpreter's lock, so the two run at the same time. At most one group is being written. Groups
are written in the order in which they were planned, and nobody is answered before the commit of his group.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from .group import Answer, Plan, Request
from .store import Store
from .store.records import Record, Rows

LARGE = 256  # events: below that the threads cost more than they win

_log = logging.getLogger(__name__)


class Planned(NamedTuple):
    """A group that is ready to be written."""

    requests: list[Request]
    plan: Plan
    rows: Rows


class Host(Protocol):
    """The engine, as far as large groups need it."""

    store: Store

    def plan(self, requests: list[Request], before: dict[str, Record]) -> Planned:
        """A group up to what is to be written. `before` are the events of a group that may not be committed yet."""

    def write(self, planned: Planned) -> list[tuple[Any, Answer]]:
        """Put a group on the disk, in the transaction that was begun -> the answers."""

    def tell(self, answers: list[tuple[Any, Answer]]) -> None:
        """Hand over the answers of a group that is committed."""

    def forget(self) -> None:
        """A group was broken off: memory may be ahead of the store, and is read anew."""

    def do_now(self, requests: list[Request]) -> None:
        """A group that is answered when this returns."""


class LargeGroups:
    """One thread, and the group that it writes. All calls come from the engine's own thread."""

    def __init__(self, host: Host, wake: threading.Condition) -> None:
        self._host, self._wake = host, wake
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="calibeat-writer")
        self._writing: tuple[Planned, Future[None]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a group is being written now."""
        return self._writing is not None and not self._writing[1].done()

    @property
    def has_failed(self) -> bool:
        """Whether the group was broken off; `wait` does what follows."""
        return self._writing is not None and self._writing[1].done() and self._writing[1].exception() is not None

    def do(self, requests: list[Request]) -> None:
        """Plan a group while the one before it is written; then have it written."""
        host, planned = self._host, None
        try:
            host.store.read_beside(beside=self.is_busy)
            planned = host.plan(requests, {} if self._writing is None else self._writing[0].plan.records)
        except host.store.failures:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours: the requests are done one by one
            _log.exception("a group could not be planned")
        finally:
            host.store.read_beside(beside=False)
        if self.wait() and planned is not None:
            writing = self._threads.submit(self._write, planned)
            self._writing = planned, writing
            writing.add_done_callback(self._notify)
        else:
            host.forget()
            host.do_now(requests)

    def wait(self) -> bool:
        """Until nothing is being written. False if that group was broken off: then it has been done request by request,
        and what was planned after it is void."""
        if self._writing is None:
            return True
        (planned, writing), self._writing = self._writing, None
        error = writing.exception()
        if error is None:
            return True
        if isinstance(error, self._host.store.failures):
            raise error
        _log.error("a group could not be written", exc_info=error)
        self._host.forget()
        for request in planned.requests:
            self._host.do_now([request])
        return False

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        self._threads.shutdown()

    def _write(self, planned: Planned) -> None:
        """On the thread."""
        self._host.store.begin()
        self._host.tell(self._host.write(planned))

    def _notify(self, _: Future[None]) -> None:
        with self._wake:
            self._wake.notify_all()
