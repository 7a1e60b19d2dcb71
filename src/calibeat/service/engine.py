"""The engine: one thread that owns the streams and the store. What waits becomes one group, one transaction, one sync.

Nobody is answered before the commit. The store is the truth: if a commit fails, the process ends, and the next one
continues from the store.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from calibeat._util.check import check_interval, check_whole, shown
from calibeat.core.method import method_named
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.monitor.monitors import first_unread

from .counters import EngineCounters
from .events import ForecastEvent, OutcomeEvent, Refusal
from .model import Folded, Model
from .plan import Answer, Plan, Request
from .store import Store, StoreBusy, open_store, queries
from .store.schema import Connection, get_meta, set_meta
from .store.types import HELD, PENDING, AlarmInfo, Changes, Record, StreamState, rows_of, settled_after

Deliver = Callable[[list[tuple[Any, Answer]]], None]
OnAlarm = Callable[[list[AlarmInfo]], None]

DEFAULT_METHOD = "auto"
LONGEST_AGE = 365_250.0 * 86_400.0  # seconds
AGED_AT_ONCE = 1000  # events that expire or mature in one group
AGE_SECONDS = 1.0  # seconds from one look for what has come of age to the next
FATAL = 70  # the exit status after a failed commit
TRIES = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSettings:
    """The settings of an `Engine`.

    Parameters
    ----------
    method : the name of a preset; None takes what the store was made with, AUTO for a new one.
    seed : for the draws of a hedging method; None takes the store's, 0 for a new one.
    monitor : outcomes between false alarms (`Monitor.arl`); None watches nothing.
    expire : age in seconds at which a forecast without an outcome is given up; None waits for ever.
    expire_as : None drops such a forecast; 0 or 1 is learnt in the place of the outcome that did not come.
    mature : age in seconds at which an outcome is learnt, ones and zeros alike; None learns it when it comes.
    corrections : whether another outcome for a forecast that is learnt is recorded, for the next replay.
    group : the most events in one transaction.
    queue, queue_events : the most requests and events that may wait; more are refused with 503.

    >>> EngineSettings(method="tops", expire=30 * 86_400.0).expire_as is None
    True
    """

    method: str | None = None
    seed: int | None = None
    monitor: float | None = None
    expire: float | None = None
    expire_as: int | None = None
    mature: float | None = None
    corrections: bool = False
    group: int = 5_000
    queue: int = 20_000
    queue_events: int = 200_000

    def __post_init__(self) -> None:
        for name in ("expire", "mature"):
            if getattr(self, name) is not None:
                check_interval(name, getattr(self, name), 0.0, LONGEST_AGE)
        for name in ("group", "queue", "queue_events"):
            check_whole(name, getattr(self, name), 1, 2**31)
        if self.expire_as not in {None, 0, 1}:
            raise InvalidInput(f"expire_as must be 0, 1 or None, got {shown(self.expire_as)}")
        if self.expire_as is not None and self.expire is None:
            raise InvalidInput("expire_as must come with expire, got no expire")
        if self.expire is not None and self.mature is not None and self.expire <= self.mature:
            raise InvalidInput(f"expire must be longer than mature, got {self.expire:g} and {self.mature:g} seconds")


class Engine:
    """Forecasts and outcomes of many streams, durable and exactly once.

    >>> import queue, tempfile
    >>> folder, done = tempfile.TemporaryDirectory(), queue.SimpleQueue()
    >>> engine = Engine.open(f"{folder.name}/calibeat.db", EngineSettings(method="ops"))
    >>> engine.start(done.put)
    >>> engine.submit("a", [ForecastEvent("paris", "e1", 0.83)])
    >>> done.get(timeout=60)
    [('a', [0.83])]
    >>> engine.submit("b", [OutcomeEvent("paris", "e1", 1)])
    >>> done.get(timeout=60)
    [('b', ['learnt'])]
    >>> engine.stop()
    >>> folder.cleanup()
    """

    def __init__(
        self, store: Store, settings: EngineSettings, model: Model, clock: Callable[[], float] = time.time
    ) -> None:
        self.store, self.settings, self.model, self.clock = store, settings, model, clock
        self.counters = EngineCounters()
        self.on_alarm: OnAlarm | None = None
        self.on_failure: Callable[[str], None] = _end_process
        self._streams: dict[str, StreamState] = {}
        self._waiting: deque[Request] = deque()
        self._events = 0  # that wait
        self._wake = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._deliver: Deliver = lambda _: None
        self._has_ages = settings.mature is not None or settings.expire is not None  # something happens as time passes
        self._looked = -np.inf  # when it was looked for what has come of age
        self._unranked: dict[int, None] = {}  # streams that were written and have not their new places in the lists
        self._next_rank = -np.inf

    @classmethod
    def open(cls, store_url: str, settings: EngineSettings, clock: Callable[[], float] = time.time) -> Engine:
        """Open a store, or make one.

        Raises
        ------
        InvalidInput : the settings contradict the store, or the store cannot be used.
        SnapshotMismatch : the store has another format, or its preset had other numbers.
        """
        store = open_store(store_url)
        try:
            method, seed = settle_meta(store, settings)
            engine = cls(store, settings, Model.named(method, seed, settings.monitor), clock)
            engine.counters.pending = int(queries.stored_totals(store.connection)["pending"])
        except BaseException:
            store.close()
            raise
        return engine

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver) -> None:
        """Start the thread; `deliver` is called on it once for each committed group, with (ticket, answer) pairs."""
        self._deliver = deliver
        self._thread = threading.Thread(target=self._run, name="calibeat-engine", daemon=True)
        self._thread.start()

    def submit(self, ticket: object, events: list[ForecastEvent] | list[OutcomeEvent]) -> None:
        """Queue a request: one or more forecasts or outcomes, not both, which `wire` has checked. It never waits.

        Raises
        ------
        Refusal : the queue is full, or the engine stops.
        """
        with self._wake:
            if self._stopping:
                raise Refusal("stopping", "the service must run to take events, got one that stops", None, 503)
            if len(self._waiting) >= self.settings.queue or self._events >= self.settings.queue_events:
                raise Refusal(
                    "full", f"the queue must have room, got {self._events} events that wait - try again", None, 503
                )
            self._waiting.append((ticket, events))
            self._events += len(events)
            self.counters.queued = self._events
            self._wake.notify()

    def stop(self) -> None:
        """Finish what waits, commit, deliver, close."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                requests = self._next()
                if requests is None:
                    break
                if requests or self._is_due():
                    self._do(requests)
                if self._unranked and (not requests or time.monotonic() >= self._next_rank):
                    self.rank()
            self.rank()
            if not self._unranked:
                with suppress(StoreBusy):  # the next start brings all places up to date
                    self.store.alone(queries.ALL_RANKED, (self.store.writer,))
            self.store.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may be answered from now on
            self.on_failure(f"the store could not be written: {error}")

    def _next(self) -> list[Request] | None:
        """What waits, as one group; an empty one where only time has passed; None at the end."""
        with self._wake:
            while not self._waiting:
                if self._stopping:
                    return None
                if not self._wake.wait(self._idle()) and (self._unranked or self._is_due()):
                    return []
            taken: list[Request] = []
            size = 0
            while self._waiting and (not taken or size + len(self._waiting[0][1]) <= self.settings.group):
                taken.append(self._waiting.popleft())
                size += len(taken[-1][1])
            self._events -= size
            self.counters.queued = self._events
            return taken

    def _do(self, requests: list[Request]) -> None:
        """One group, from the requests to their answers."""
        try:
            answers = self._try(requests)
        except self.store.failures:
            raise
        except StoreBusy as error:
            _log.warning("a group was refused: %s", error)
            self.forget()
            refusal = Refusal("unavailable", "the store must be free to be written, got a lock - try again", None, 503)
            answers = [(ticket, refusal) for ticket, _ in requests]
        except Exception:  # noqa: BLE001 - a fault of ours: whose request it is must not stop the others
            _log.exception("a group could not be done")
            self.forget()
            if len(requests) > 1:
                for request in requests:
                    self._do([request])
                return
            self.counters.rejected["internal"] += 1
            refusal = Refusal("internal", "the service could not answer; its log says why", None, 500)
            answers = [(ticket, refusal) for ticket, _ in requests]
        self._tell(self._deliver, answers)

    def _try(self, requests: list[Request]) -> list[tuple[Any, Answer]]:
        """A group, once more where another process was there first."""
        for _ in range(TRIES - 1):
            try:
                return self.process(requests)
            except self.store.retries:
                self.forget()
        return self.process(requests)

    def process(self, requests: list[Request]) -> list[tuple[Any, Answer]]:
        """Do a group and commit it -> the answers. Only the engine's thread, or a test without one, may call it."""
        now, store = self.clock(), self.store
        store.begin()
        aged = self._aged(now) if self._has_ages else []
        names = {event.stream for _, events in requests for event in events}
        ids = {event.id for _, events in requests for event in events}
        names.update(name for name, _ in aged)
        ids.update(record.id for _, record in aged)
        if loaded := store.streams(names, self._streams):
            self._load(loaded)
        plan = Plan(self.settings, self._streams, store.known(ids) if ids else {}, now)
        if aged:
            plan.age(aged)
        for _, events in requests:
            plan.take(events)
        if plan.begun:
            plan.number_streams(store.create(list(plan.begun)))
            self._streams.update(plan.begun)
        changes = self._fold(plan, now)
        started = time.perf_counter()
        if changes:
            store.write(rows_of(changes))
            store.commit()
            self.counters.commit_seconds.add(time.perf_counter() - started)
            self._unranked.update(dict.fromkeys([state.number for state in changes.streams.values()]))
        else:
            store.rollback()
        self.counters.count(plan, sum(len(events) for _, events in requests))
        if changes.alarms and self.on_alarm is not None:
            self._tell(self.on_alarm, changes.alarms)
        return [(ticket, plan.answer(at)) for at, (ticket, _) in enumerate(requests)]

    def _load(self, loaded: dict[str, StreamState]) -> None:
        """Streams from the store."""
        connection, watched, streams = self.store.connection, self.model.watched, list(loaded.values())
        unread = [
            settled_after(connection, state.number, first_unread(state.monitor)) if watched and state.monitor else {}
            for state in streams
        ]
        self.model.load(streams, unread)
        self._streams.update(loaded)

    def _fold(self, plan: Plan, now: float) -> Changes:
        """The streams of a group learn. Their new state is beside the other changes, and so are new alarms."""
        asked, touched = plan.operations, list(plan.changes.streams.values())
        before = sum(state.alarms for state in touched)
        made = Folded([], [], [])
        if touched:
            columns = asked.slots, asked.scores, asked.outcomes, asked.own, asked.receipts
            made = self.model.fold(touched, *columns, plan.given_up)
        changes = plan.finish(made.forecasts, made.receipts)
        for state in touched:
            state.version += 1
        for slot, last, page in made.raised:
            changes.alarms.append(AlarmInfo(last.at, last.since, last.what, page, 0, touched[slot].name, now))
        if touched:
            changes.totals["alarms"] = sum(state.alarms for state in touched) - before
        return changes

    def rank(self) -> None:
        """The streams that were written get their places in the lists, some at a time."""
        started, piece = time.monotonic(), list(islice(self._unranked, queries.RANKED_AT_ONCE))
        with suppress(*self.store.retries, StoreBusy):  # another one was there first, or holds the lock: later again
            self.store.alone(queries.ranking_statement(f"number {self.store.one_of}"), (self.store.as_list(piece),))
            for number in piece:
                del self._unranked[number]
        ended = time.monotonic()
        self._next_rank = ended + max(queries.RANK_SECONDS, (ended - started) / queries.RANK_SHARE)

    # ---- outcomes that are old enough, forecasts that are too old ---------------------------------------------------

    def _idle(self) -> float | None:
        """Seconds to wait for a request; None without a limit."""
        if self._unranked:
            return queries.QUIET_SECONDS
        return AGE_SECONDS if self._has_ages else None

    def _is_due(self) -> bool:
        """Whether it is time to look for what has come of age; also after the clock has gone back."""
        return self._has_ages and not self._looked <= self.clock() < self._looked + AGE_SECONDS

    def _aged(self, now: float) -> list[tuple[str, Record]]:
        """Outcomes that are old enough to be learnt, then forecasts that are given up: (stream, event)."""
        if not self._is_due():
            return []
        aged, is_all = list[tuple[str, Record]](), True
        for status, age in ((HELD, self.settings.mature), (PENDING, self.settings.expire)):
            if age is not None:
                found = self.store.due(status, now - age, AGED_AT_ONCE)
                aged += found
                is_all &= len(found) < AGED_AT_ONCE
        self._looked = now if is_all else -np.inf
        return aged

    # ---- inner ------------------------------------------------------------------------------------------------------

    def _tell(self, listener: Callable[[Any], None], what: Any) -> None:
        """Call a listener. Its errors are logged and do not stop the engine."""
        try:
            listener(what)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("what was committed could not be delivered")

    def forget(self) -> None:
        """A group was aborted: drop the cached streams, which may be ahead of the store. They are read again."""
        self.store.rollback()
        self._streams.clear()


def _end_process(message: str) -> None:  # pragma: no cover - the process ends, and with it what is measured
    """The store is the truth, and memory is ahead of it: nothing may be answered any more."""
    sys.stderr.write(f"calibeat: {message} - the service ends; nothing was answered before its commit\n")
    sys.stderr.flush()
    os._exit(FATAL)


# ---- a store and the settings it is opened with: what a replay depends on is written once, and must stay ------------


def settle_meta(store: Store, settings: EngineSettings) -> tuple[str, int]:
    """The method and the seed of a store; a new store takes those of the settings."""
    meta = get_meta(store.connection)
    if "method" not in meta:
        method, seed = (settings.method or DEFAULT_METHOD).lower(), settings.seed or 0
        Model.named(method)  # a bad name is noticed before it is written
        claim_meta(store.connection, method, seed, settings.monitor)
        meta = get_meta(store.connection)  # another process may have been first
    elif json.loads(meta.get("monitor", "null")) != settings.monitor:
        # Monitors that begin, end or change in the middle cannot be replayed.
        set_meta(store.connection, "monitor", json.dumps(settings.monitor))
        set_meta(store.connection, "monitor_whole", "0")
    method, seed = meta["method"], int(meta["seed"])
    check_described(meta)
    if settings.method is not None and settings.method.lower() != method:
        raise InvalidInput(
            f"method must be that of the store, {method!r}, got {settings.method!r} - "
            f"`calibeat store replay --method {settings.method}` moves the store to it"
        )
    if settings.seed is not None and settings.seed != seed:
        raise InvalidInput(f"seed must be that of the store, {seed}, got {settings.seed}")
    return method, seed


def claim_meta(connection: Connection, method: str, seed: int, monitor: float | None) -> None:
    """Record what a replay needs, in one statement. The first process wins."""
    known = {"method": method, "seed": str(seed), "described": description_of(method), "monitor": json.dumps(monitor)}
    connection.run(
        "INSERT INTO meta (name, value) VALUES (?, ?), (?, ?), (?, ?), (?, ?) ON CONFLICT (name) DO NOTHING",
        [part for pair in known.items() for part in pair],
    )


def description_of(method: str) -> str:
    """A method with all its numbers, so that a preset that has changed is noticed."""
    return repr(method_named(method))


def check_described(meta: dict[str, str]) -> None:
    """Raise if the preset of this name is not the one that the store was made with."""
    if meta.get("described") != description_of(meta["method"]):
        raise SnapshotMismatch(
            f"store must be used with the {meta['method']!r} that it was made with, got one with other numbers - "
            f"`calibeat store replay --method {meta['method']}` makes its state anew"
        )
