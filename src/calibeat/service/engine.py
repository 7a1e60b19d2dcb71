"""The engine: one thread that owns the streams and the store. What waits becomes one group, one transaction, one sync.

Nobody is answered before the commit. The store is the truth: if a commit to a file fails, the process ends, and the
next one continues from the store. If a database server goes away, requests are refused until it is back, and the
engine continues with what the store says then.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.times import duration_named
from calibeat.core.method import method_named
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.monitor.monitors import first_unread
from calibeat.monitor.notices import NoticeSettings

from .clock import ServiceClock
from .controls import FORGETTING, Controls, delete_some
from .counters import EngineCounters
from .events import Control, ForecastEvent, InvalidEvent, Refusal
from .model import Folded, Model
from .notices import (
    BEAT,
    FEWEST,
    GRACE,
    SHARE,
    SILENCES,
    TOGETHER,
    Deadlines,
    Downtime,
    Listener,
    Noticed,
    beat,
    downtimes,
    due_at,
    forget_downtimes,
    note_downtime,
)
from .plan import Answer, Plan, Request
from .store import Store, StoreBusy, is_store, open_connection, open_store
from .store.schema import Connection, get_meta, set_meta
from .store.types import (
    DELETING,
    DROPPING,
    HELD,
    PENDING,
    RESUMING,
    AlarmInfo,
    Changes,
    Record,
    StreamState,
    rows_of,
    settled_after,
    stored_cells,
    stored_names,
)
from .unwritten import JournalRow, Unwritten, read_journal, unpacked
from .watch import NOTICED

if TYPE_CHECKING:
    from .rework import Rework, Reworker

Deliver = Callable[[list[tuple[Any, Answer]]], None]
OnAlarm = Callable[[list[AlarmInfo]], None]

DEFAULT_METHOD = "auto"
LONGEST_AGE = 365_250.0 * 86_400.0  # seconds
AGED_AT_ONCE = 1000  # events that expire or mature in one group
OUTCOMES_AT_ONCE = 1000  # of one request, in one group
DELETED_AT_ONCE = 5000  # events of a stream that was deleted
MOST_STREAMS = 100_000  # in memory, of 3 to 6 KB each; others are read again when something happens to them
MOST_UNWRITTEN = 40_000  # operations that may be in the journal alone
UNWRITTEN_SECONDS = 0.2  # for which a group may be in the journal alone
LONGEST_UNWRITTEN = 0.5  # the same where writing takes long: see `WRITING_SHARE`
WRITING_SHARE = 0.2  # of the time, in which the tables follow the journal
IDLE_UNWRITTEN = 0.02  # seconds without a request after which they do
MOST_TABLES = 256  # streams with groups whose tables are in memory, of 3 MB each at most
AGE_SECONDS = 1.0  # seconds from one look for what has come of age to the next
AWAY_SECONDS = 0.5  # seconds from one attempt to reach a database that is away to the next
ERASE_SECONDS = 0.5  # seconds from one attempt to erase what was deleted to the next
FATAL = 70  # the exit status after a failed commit
TRIES = 20
ASKED_AT_ONCE = 1000  # streams that are overdue, in one group
LIST_SECONDS = 600.0  # seconds from one reading of all deadlines of a server to the next: others serve streams too
SHORT = 1.0  # seconds: a session that is opened again within them was not away
SOON = 0.001  # seconds after a deadline
LOOK_SECONDS = 10.0  # from one look for what another process on the same server has left to the next
FORGETTING_SECONDS = 0.2  # the same while somebody waits until something is forgotten
_NAME_OF = f"SELECT name FROM stream WHERE number = ? AND mode <> {DELETING}"  # noqa: S608
# Streams that have fallen silent since a moment, and whether somebody was paged for all of them.
_SILENT = (
    "SELECT count(DISTINCT stream), count(CASE WHEN page = 1 AND substr(detail, 1, 8) = 'upstream' THEN 1 END) "
    "FROM alarm WHERE time > ? AND time <= ? AND what = ?"
)
_IS_RESUMING = f"SELECT name FROM stream WHERE number = ? AND (mode & {RESUMING | DROPPING}) <> 0"  # noqa: S608
_IS_FORGETTING = "SELECT DISTINCT stream FROM correction WHERE applied = 0 AND is_forgetting = 1"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSettings:
    """The settings of an `Engine`. All but the last three belong to the store: None takes the store's.

    Parameters
    ----------
    method : the name of a preset; AUTO for a new store.
    seed : for the draws of a hedging method; 0 for a new store.
    monitor : outcomes between false alarms (`Monitor.arl`); a new store watches nothing.
    notice : whether silence, late outcomes and a score that has moved are noticed (see `notices`); a new store does.
    expire : age in seconds at which a forecast without an outcome is given up; a new store waits for ever.
    expire_as : 0 or 1 is learnt in the place of the outcome that did not come; a new store drops such a forecast.
    mature : age in seconds at which an outcome is learnt, ones and zeros alike; a new store learns it when it comes.
    group : the most events in one transaction.
    queue, queue_events : the most requests and events that may wait; more are refused with 503.

    >>> EngineSettings(method="tops", expire=30 * 86_400.0).expire_as is None
    True
    """

    method: str | None = None
    seed: int | None = None
    monitor: float | None = None
    notice: bool | None = None
    expire: float | None = None
    expire_as: int | None = None
    mature: float | None = None
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
    >>> from calibeat.service.events import ForecastEvent, OutcomeEvent
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
        self, store: Store, settings: EngineSettings, model: Model, clock: Callable[[], float] | None = None
    ) -> None:
        self.store, self.settings, self.model, self.clock = store, settings, model, clock or ServiceClock()
        self.counters = EngineCounters()
        self.on_alarm: OnAlarm | None = None
        self.on_failure: Callable[[str], None] = _end_process
        self._streams: dict[str, StreamState] = {}  # the one used last at the end
        self._tables: dict[str, None] = {}  # streams with groups among them, the one used last at the end
        self._unwritten = Unwritten()
        self.may_defer = False  # whether groups may wait in the journal, where nobody else writes the store
        self._patience = UNWRITTEN_SECONDS  # until the tables follow
        self._to_tell: list[threading.Event] = []  # who waits until nothing is unwritten
        self._has_ended = False  # the thread
        self._waiting: deque[Request] = deque()
        self._events = 0  # that wait
        self._wake = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._deliver: Deliver = lambda _: None
        self._listener = Listener(NoticeSettings()) if settings.notice else None
        self.is_live = True  # False: the events of a log happen once more, and its times are the clock
        self._deadlines = Deadlines()
        self._downtimes: list[Downtime] = []
        self._next_beat = self._next_list = -np.inf  # when to leave a sign of life, and to read all deadlines again
        self._has_ages = settings.mature is not None or settings.expire is not None  # something happens as time passes
        self._looked = -np.inf  # when it was looked for what has come of age
        self._expires_from = -np.inf  # nothing expires before: see `look_at_clock`
        self._is_warned = False  # that the system's clock is not believed
        self._next_look = -np.inf  # see `_look_for_rest`
        # Numbers of streams that learn or drop what has waited while they were frozen: names may change meanwhile.
        self._resuming: dict[int, None] = {}
        self._deleting: list[int] = []  # numbers of streams whose events are being deleted
        self.reworks: dict[int, Rework] = {}  # streams that are made anew, by their numbers
        self._finished: deque[Rework] = deque()  # those whose new state is there
        self._forgetting: dict[int, list[Any]] = {}  # tickets that wait until something is forgotten, by stream
        self._is_erasing = False  # something was deleted of which the store may have copies
        self._is_leaving = False  # nobody is to wait any longer: see `hurry`
        self._reworker: Reworker | None = None
        self.is_away = False  # the database does not answer: requests are refused
        self._left: float | None = None  # since when
        self._url: str | None = None  # where a new session is opened

    @classmethod
    def open(cls, store_url: str, settings: EngineSettings, clock: Callable[[], float] | None = None) -> Engine:
        """Open a store, or make one.

        Raises
        ------
        InvalidInput : the settings contradict the store, or the store cannot be used.
        StoreAway : the database does not answer now.
        SnapshotMismatch : the store has another format, or its preset had other numbers.
        """
        store = open_store(store_url)
        try:
            follow_journal(store)
            settings = settle_meta(store, settings)
            engine = cls(store, settings, model_of(settings), clock)
            engine._url = store_url
            engine._look_for_rest()
        except BaseException:
            store.close()
            raise
        return engine

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver) -> None:
        """Start the thread; `deliver` is called on it once for each committed group, with (ticket, answer) pairs."""
        self._deliver, self.may_defer = deliver, not self.store.is_server
        self.listen()
        self._thread = threading.Thread(target=self._run, name="calibeat-engine", daemon=True)
        self._thread.start()
        from .rework import Reworker  # which replays with what is built on engines

        if self._url is not None:
            self._reworker = Reworker(self, self._url)
            self._reworker.start()

    def submit(self, ticket: object, events: Any) -> None:
        """Queue a request, which `wire` has checked: see `plan.Request`. It never waits.

        Raises
        ------
        Refusal : the queue is full, or the engine stops.
        """
        with self._wake:
            if self._stopping:
                raise Refusal("stopping", "the service must run to take events, got one that stops", None, 503)
            if self.is_away:
                raise _away()
            if len(self._waiting) >= self.settings.queue or self._events >= self.settings.queue_events:
                raise Refusal(
                    "full", f"the queue must have room, got {self._events} events that wait - try again", None, 503
                )
            self._waiting.append((ticket, events))
            self._events += len(events)
            self.counters.queued = self._events
            self._wake.notify()

    def wait_until_written(self) -> None:
        """Wait until everything that was answered can be read in the tables."""
        if not self._unwritten:
            return
        written = threading.Event()
        with self._wake:
            if self._has_ended:
                return
            self._to_tell.append(written)
            self._wake.notify()
        written.wait()

    def hurry(self) -> None:
        """The service is about to stop: who waits until something is forgotten is told so, now and from now on."""
        with self._wake:
            self._is_leaving = True
            self._wake.notify()

    def stop(self) -> None:
        """Finish what waits, commit, deliver, close."""
        if self._reworker is not None:
            self._reworker.stop()
            self._reworker = None
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
                self._look_around()
                if requests or self._is_due():
                    self._do(requests)
                while self._finished and not self.is_away:
                    self._guard(partial(self._put_in_place, self._finished.popleft()))
                if self._deleting and not self.is_away:
                    self._guard(self.delete_some)
                if self._is_leaving:
                    self._refuse_forgetting()
                self._keep_house(is_idle=not requests)
            self._refuse_forgetting()
            if not self.is_away:
                self._guard(self._finish)
            self.store.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may be answered from now on
            self.on_failure(f"the store could not be written: {error}")
        finally:
            with self._wake:
                self._has_ended = True
            self._tell_written(len(self._to_tell))

    def _look_around(self) -> None:
        """What is found out before each group."""
        if self.is_away:
            self._return()
        self._guard(self.look_at_clock)

    def _keep_house(self, *, is_idle: bool) -> None:
        """What is done now and then between groups."""
        now = time.monotonic()
        waiting = len(self._to_tell)
        self.write_in_time(now, is_idle=is_idle or waiting > 0)
        self._tell_written(waiting)
        if self.store.is_server and now >= self._next_look and not self.is_away:
            self._guard(self._look_for_rest)
        if self._is_erasing and not self.is_away:
            self._guard(self._erase)
        if self._listener is not None and now >= self._next_beat and not self.is_away:
            self._guard(self._beat)

    def _next(self) -> list[Request] | None:
        """What waits, as one group; an empty one where only time has passed; None at the end."""
        with self._wake:
            while not self._waiting:
                if self._stopping:
                    return None
                if self._to_tell or (self._finished and not self.is_away) or (self._is_leaving and self._forgetting):
                    return []
                if self._wake.wait(self._idle()):
                    continue
                return []
            taken: list[Request] = []
            size = 0
            while self._waiting and (not taken or size + len(self._waiting[0][1]) <= self.settings.group):
                if is_control(self._waiting[0]) and taken:
                    break
                request, rest = in_two(self._waiting.popleft())
                taken.append(request)
                size += len(request[1])
                if rest is not None:  # the others come first
                    self._waiting.append(rest)
                    break
                if is_control(request):  # a group of its own
                    break
            self._events -= size
            self.counters.queued = self._events
            return taken

    def _do(self, requests: list[Request], *, again: bool = False) -> None:
        """One group, from the requests to their answers."""
        if self.is_away:
            self._tell(self._deliver, [(ticket, _away()) for ticket, _ in requests])
            return
        try:
            answers = self._try(requests)
        except self.store.failures as error:
            if not self.store.is_server:
                raise
            # A session that was idle may be gone though the server is there: a new one does the group once more. If
            # the group was committed after all, its ids are known, and nothing is done twice.
            self._leave(error)
            if not again:
                self._return()
            self._do(requests, again=True)
            return
        except StoreBusy as error:
            _log.warning("a group was refused: %s", error)
            self._guard(self.forget)
            refusal = Refusal("unavailable", "the store must be free to be written, got a lock - try again", None, 503)
            answers = [(ticket, refusal) for ticket, _ in requests]
        except Exception:  # noqa: BLE001 - a fault of ours: whose request it is must not stop the others
            _log.exception("a group could not be done")
            self._guard(self.forget)
            if len(requests) > 1:
                for request in requests:
                    self._do([request])
                return
            self.counters.rejected["internal"] += 1
            refusal = Refusal("internal", "the service could not answer; its log says why", None, 500)
            answers = [(ticket, refusal) for ticket, _ in requests]
        if answers or not requests:  # what is to be forgotten is answered later
            self._tell(self._deliver, answers)

    # ---- a database that goes and comes -----------------------------------------------------------------------------

    def _leave(self, error: Exception) -> None:
        """The session is given up, with all that memory has."""
        _log.warning("the store is away, requests are refused until it answers: %s", _one_line(error))
        self.is_away = True
        if self._left is None:
            self._left = self.clock()
        self._unwritten = Unwritten()
        self._streams.clear()
        self._tables.clear()
        self._resuming.clear()
        self._deleting.clear()
        self.reworks.clear()  # a group may have been committed that they have not noted: they begin again
        with suppress(Exception):
            self.store.close()

    def _return(self) -> None:
        """Try to open a new session. The store must still be the one that this engine was started for."""
        assert self._url is not None  # noqa: S101 - it was opened
        failures: tuple[type[Exception], ...] = (*self.store.failures, InvalidInput)
        with ExitStack() as opened:
            try:
                store = open_store(self._url)
                opened.callback(store.close)
                meta = get_meta(store.connection)
            except failures:  # still away, or in the hands of a command
                return
            if not self._is_as_it_was(meta):
                return
            opened.pop_all()
        self.store, self.is_away = store, False
        self._guard(self._look_for_rest)
        if not self.is_away:
            self._guard(self._come_back)
        if not self.is_away:
            _log.warning("the store answers again")

    def _is_as_it_was(self, meta: dict[str, str]) -> bool:
        """Whether the store has kept its settings; otherwise the process ends, and the next one takes the new ones."""
        try:
            found = check_settings(meta, self.settings)
        except (InvalidInput, SnapshotMismatch) as error:
            self.on_failure(str(error))
            return False
        if found != self.settings:
            self.on_failure("the store must keep its settings while it is served, got others")
        return found == self.settings

    def _come_back(self) -> None:
        """Nobody could be heard while the database was away."""
        now = self.clock()
        self._check_alive(now)
        if self._listener is not None and self._left is not None and now - self._left > SHORT:
            with suppress(*self.store.retries, StoreBusy):
                note_downtime(self.store, self._left, now)
            self._downtimes = downtimes(self.store.connection, now)
        self._left = None

    def _guard(self, work: Callable[[], None]) -> None:
        """Do something between two groups; a server may go away meanwhile."""
        try:
            work()
        except self.store.failures as error:
            if not self.store.is_server:
                raise
            self._leave(error)

    def _finish(self) -> None:
        """The last thing before the end."""
        with suppress(StoreBusy):  # the next start does it
            self.write_out()
        self._beat()

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
        if requests and is_control(requests[0]):
            (request,) = requests
            return self._control(*request)
        if self._unwritten and (self._resuming or self._is_age_due()):
            self.write_out()  # the tables are asked what is to be done
        now, store = self.clock(), self.store
        store.begin()
        passed = Passed(*self._come_of_age(now), self._overdue(now))
        plan = self._learn(requests, now, passed)
        started = time.perf_counter()
        if not plan.changes:
            store.rollback()
        else:
            self._unwritten.add(plan, now)
            if self._may_wait(plan, requests, passed):
                store.note(JournalRow.of(now, requests, plan.changes.inserted))
                store.commit()
                self._unwritten.keep(plan, time.monotonic())
            else:
                self._write()
                self._note(plan)
            self.counters.commit_seconds.add(time.perf_counter() - started)
        for number in passed.resumed:
            self._resuming.pop(number, None)
        self._drop_unused(plan.names)
        self.counters.count(plan, sum(len(events) for _, events in requests))
        return [(ticket, plan.answer(at)) for at, (ticket, _) in enumerate(requests)]

    def _learn(self, requests: list[Request], now: float, passed: Passed) -> Plan:
        """What a group does to the streams in memory, and has still to be written."""
        store, asked = self.store, [e for _, events in requests for e in events if type(e) is not InvalidEvent]
        names = {event.stream for event in asked}
        names.update(name for name, _ in passed.aged)
        names.update(passed.resumed.values())
        names.update(passed.overdue.values())
        if loaded := store.streams(names, self._streams):
            self._load(loaded)
        streams = self._streams
        # Another process may have renamed one since: then it is done in the next group.
        aged = [(name, record) for name, record in passed.aged if _is(streams.get(name), record.stream)]
        passed.resumed = {number: name for number, name in passed.resumed.items() if _is(streams.get(name), number)}
        ids = [(state.number, event.id) for event in asked if (state := streams.get(event.stream)) is not None]
        ids += [(record.stream, record.id) for _, record in aged]
        known, others = self._unwritten.find(ids)
        if others:
            known |= store.known(others)
        plan = Plan(self.settings, streams, known, now, self.model.method, live=self.is_live)
        plan.names = names
        plan.age(aged, [streams[name] for name in passed.resumed.values()])
        for state in self._still_overdue(passed.overdue, now):
            plan.ask(state)
        for _, events in requests:
            plan.take(events)
        if plan.begun:
            plan.number_streams(store.create(list(plan.begun)))
            self._streams.update(plan.begun)
        self._fold(plan, now)
        return plan

    # ---- groups that are answered and not in their tables yet: see `unwritten` --------------------------------------

    def _may_wait(self, plan: Plan, requests: list[Request], passed: Passed) -> bool:
        """Whether a group may be in the journal alone, for now.

        Not if it does more than it was asked, such as to draw the secret of a new shape; or if somebody else has to
        read what it does: alarms, and corrections, which are replayed from the tables. And not if its client sends a
        request, waits, and sends the next.
        """
        changes = plan.changes
        return (
            self.may_defer
            and (bool(self._unwritten) or len(requests) > 1 or bool(self._waiting))
            and not (passed.aged or passed.resumed or passed.overdue)
            and not (changes.shaped or changes.forgotten or changes.alarms or changes.ended or changes.corrections)
            and not (self.reworks or self.store.has_corrections)
            and len(self._tables) <= MOST_TABLES
        )

    def _write(self) -> None:
        """Write and commit everything that is unwritten, inside a group."""
        if self._listener is not None and self._unwritten.is_to_be_heard:
            self._hear()
        changes = self._unwritten.finish()
        self.store.write(rows_of(changes))
        if self._unwritten:
            self.store.clear_journal()
        self.store.commit()
        self._unwritten = Unwritten()
        if changes.alarms and self.on_alarm is not None:
            self._tell(self.on_alarm, changes.alarms)

    def write_out(self) -> None:
        """Write everything that is in the journal alone into the tables."""
        if self._unwritten:
            began = time.monotonic()
            self.store.begin()
            self._write()
            self._drop_unused(set())
            took = time.monotonic() - began
            self._patience = min(max(UNWRITTEN_SECONDS, took / WRITING_SHARE), LONGEST_UNWRITTEN)

    def write_in_time(self, now: float, *, is_idle: bool = False) -> None:
        """Do so if nothing else is to be done, if much is unwritten, or for long."""
        behind = self._unwritten
        if behind and (is_idle or now >= behind.since + self._patience or behind.size >= MOST_UNWRITTEN):
            with suppress(StoreBusy):  # later again: the journal has it
                self._guard(self.write_out)

    def _tell_written(self, count: int) -> None:
        """Let the first of those go on who wait until nothing is unwritten."""
        with self._wake:
            told, self._to_tell = self._to_tell[:count], self._to_tell[count:]
        for written in told:
            written.set()

    def do_again(self, groups: list[JournalRow]) -> None:
        """Do the groups of the journal once more, on the streams as the tables have them.

        The answers that were given stay, also where this machine computes others.
        """
        if groups and self._listener is not None:
            self._downtimes = downtimes(self.store.connection, groups[0].time)
        differences = list[float]()
        for now, requests, told, _ in groups:
            plan = self._learn(unpacked(requests), now, Passed([], {}, {}))
            differences += plan.keep_told(told)
            self._unwritten.add(plan, now)
            self._unwritten.keep(plan, time.monotonic())
        if differences:
            _log.warning(
                "the journal has %d forecasts that this machine computes otherwise, by %.3g at most: the answers that "
                "were given stay",
                *(len(differences), max(differences)),
            )

    def _load(self, loaded: dict[str, StreamState]) -> None:
        """Streams from the store."""
        connection, watched, streams = self.store.connection, self.model.watched, list(loaded.values())
        unread = [
            settled_after(connection, state.number, first_unread(state.monitor)) if watched and state.monitor else {}
            for state in streams
        ]
        if self._listener is not None:
            self._listener.check([state.notice for state in streams if state.notice is not None])
        else:
            for state in streams:  # it would not know what has come meanwhile
                state.notice = state.deadline = None
        grouped = [state for state in streams if state.shape.groups is not None]
        self.model.load(streams, unread, {state.name: stored_cells(connection, state.number) for state in grouped})
        for state in grouped:
            if state.shape.groups is not None and state.shape.groups.names:
                names = stored_names(connection, state.number)
                state.book = {word: value for word, _, value in names}
                state.named = names[-1][1] + 1 if names else 0
        self._streams.update(loaded)

    def _drop_unused(self, names: set[str]) -> None:
        """Forget the streams that were not used for longest, where there are too many of them or of their tables."""
        streams, is_half_full = self._streams, len(self._streams) > MOST_STREAMS // 2
        for name in names:
            state = streams.get(name)
            if state is None:
                continue
            if is_half_full:  # the order takes time, and is needed only where some have to leave
                del streams[name]
                streams[name] = state
            if state.table is not None:
                self._tables.pop(name, None)
                self._tables[name] = None
        if self._unwritten:  # some are ahead of the store
            return
        if len(streams) > MOST_STREAMS:  # many at once: to look for the first one passes all that are gone
            kept = max(len(names), MOST_STREAMS * 3 // 4)
            for name in list(islice(streams, len(streams) - kept)):
                del streams[name]
                self._tables.pop(name, None)
        while len(self._tables) > MOST_TABLES and (oldest := next(iter(self._tables))) not in names:
            del self._tables[oldest]
            self._streams.pop(oldest, None)

    def _fold(self, plan: Plan, now: float) -> None:
        """The streams of a group learn. Their new state is beside the other changes, and so are new alarms."""
        asked, touched = plan.operations, list(plan.changes.streams.values())
        asked.close()
        made = Folded([], [], [], {})
        if touched:
            columns = asked.slots, asked.scores, asked.outcomes, asked.own, asked.receipts
            made = self.model.fold(touched, *columns, plan.given_up, asked.given)
        changes = plan.finish(made)
        changes.alarms += [AlarmInfo.of(raised, touched[raised.slot], now) for raised in made.raised]

    # ---- what is noticed without outcomes: see `notices` ------------------------------------------------------------

    def listen(self) -> None:
        """From now on somebody listens. What came before this process is known, and when nobody did."""
        if self._listener is None:
            return
        now, connection = self.clock(), self.store.connection
        alive = get_meta(connection).get("alive")
        self._check_alive(now)
        # Other processes on a server leave signs of life too, from time to time.
        if alive is not None and now - float(alive) > (2.0 * BEAT if self.store.is_server else 0.0):
            note_downtime(self.store, float(alive), now)
        self._downtimes = downtimes(connection, now)
        self.list_deadlines()
        self._beat()

    def look_at_clock(self) -> None:
        """Note the time that this process has not lived through: stopped, asleep, or before the clock was set.

        Streams were not silent then. And nothing expires for a while: outcomes that have waited for the service come
        first.
        """
        if not isinstance(self.clock, ServiceClock):  # a clock that is set by hand
            return
        gap, ahead = self.clock.look(), self.clock.disbelieved
        if self.is_away:  # `_come_back` does the rest
            return
        if ahead is not None and not self._is_warned:
            _log.warning(
                "the system's clock has jumped by %.0f seconds: the time goes on as before if it jumps back", ahead
            )
        self._is_warned = ahead is not None
        if gap is None:
            return
        now = self.clock()
        if gap.ended < gap.begun:
            self._set_back(now, gap.begun)
            return
        _log.warning("%.0f seconds have passed without this process, or the clock was set", gap.ended - gap.begun)
        self._expires_from = now + GRACE
        if self._listener is not None:
            with suppress(*self.store.retries, StoreBusy):
                note_downtime(self.store, gap.begun, gap.ended)
            self._downtimes = downtimes(self.store.connection, now)
            self._beat()

    def _check_alive(self, now: float) -> None:
        """Whether the last sign of life is one of the future."""
        alive = float(get_meta(self.store.connection).get("alive", 0.0))
        if alive - now > BEAT:
            self._set_back(now, alive)

    def _set_back(self, now: float, before: float) -> None:
        """The clock was ahead, and is right now: what the store has of the time ahead must not hold up what comes."""
        _log.warning("the clock was set back by %.0f seconds", before - now)
        if self._listener is None:
            return
        with suppress(*self.store.retries, StoreBusy):
            forget_downtimes(self.store, now)
        for state in self._streams.values():
            state.due = min(state.due, now)
        self._downtimes = downtimes(self.store.connection, now)
        self.list_deadlines()
        self._beat()

    def leave_sign(self, now: float) -> None:
        """Somebody has listened until now, at least."""
        if now > float(get_meta(self.store.connection).get("alive", 0.0)):
            beat(self.store, now)

    def list_deadlines(self) -> None:
        """Read when which stream is to be asked."""
        select = "SELECT deadline, number, name FROM stream WHERE deadline IS NOT NULL"
        self._deadlines.replace(self.store.connection.all(select))
        self._next_list = time.monotonic() + LIST_SECONDS

    def _beat(self) -> None:
        """Leave a sign of life; on a server also see what others have done."""
        if self._listener is None:
            return
        now = self.clock()
        self._next_beat = time.monotonic() + BEAT
        with suppress(*self.store.retries, StoreBusy):
            beat(self.store, now)
            if self.store.is_server and time.monotonic() >= self._next_list:
                self._downtimes = downtimes(self.store.connection, now)
                self.list_deadlines()

    def _overdue(self, now: float) -> dict[int, str]:
        """Streams of which something should have come by now, as far as memory knows: numbers and names."""
        found = {}
        for number, name in self._deadlines.take(now, ASKED_AT_ONCE) if self._listener is not None else ():
            if self._unwritten.is_to_be_heard and name in self._unwritten.changes.streams:
                continue  # what has come is heard soon, and says when it is to be asked
            state = self._streams.get(name)
            if state is None or state.number != number:  # it may have another name now
                names = self.store.connection.all(_NAME_OF, (number,))
                name = names[0][0] if names else ""  # noqa: PLW2901
            elif state.due > now:
                self._deadlines.set(number, name, state.due)
                continue
            if name:
                found[number] = name
        return found

    def _still_overdue(self, found: dict[int, str], now: float) -> Iterator[StreamState]:
        """Those of them that are so by the store, too."""
        for number, name in found.items():
            state = self._streams.get(name)
            if state is None or state.number != number:
                continue
            if state.due < now:
                yield state
            else:
                self._deadlines.set(number, name, state.due)

    def _hear(self) -> None:
        """The notices of streams hear what has arrived. Alarms and their ends go to the other changes."""
        assert self._listener is not None  # noqa: S101 - it is asked for
        behind, changes, now = self._unwritten, self._unwritten.changes, self._unwritten.time
        arrivals, touched = behind.arrivals(), list(changes.streams.values())
        overdue = [state.slot for state in behind.overdue]
        heard = self._listener.hear(
            [state.notice for state in touched], arrivals, self._downtimes, overdue, now, live=self.is_live
        )
        for state, row, deadline in zip(touched, heard.rows, heard.deadlines, strict=True):
            state.notice, state.deadline = row, deadline
            state.due = due_at(deadline, now, is_history=state.is_history)
            self._deadlines.set(state.number, state.name, state.due)
        for slot, what in heard.ended:
            changes.ended.append((touched[slot].name, what, now))
        if heard.alarms:
            self._raise(heard.alarms, changes, touched, now)

    def _raise(self, found: list[Noticed], changes: Changes, touched: list[StreamState], now: float) -> None:
        """New alarms. If many streams fall silent within an hour, one of them pages for all."""
        upstream = {what: self._upstream(what, found, now) for what in SILENCES}
        for slot, alarm, detail, is_over in found:
            state, page = touched[slot], alarm.page
            if page and (cause := upstream.get(alarm.what)) is not None:
                page, detail = bool(cause), cause  # noqa: PLW2901
                upstream[alarm.what] = ""
            state.alarms += 1
            ended = now if is_over else None
            changes.alarms.append(
                AlarmInfo(
                    *(alarm.at, alarm.since, alarm.what, page, 0, state.name, now, None, ended, NOTICED, detail or None)
                )
            )

    def _upstream(self, what: str, found: list[Noticed], now: float) -> str | None:
        """What the page says that stands for many streams; "" if there was one; None if each pages for itself."""
        new = sum(alarm.what == what and alarm.page for _, alarm, *_ in found)
        if not new:
            return None
        streams, paged = self.store.connection.all(_SILENT, (now - TOGETHER, now, what))[0]
        total = int(self.store.connection.all("SELECT count(*) FROM stream WHERE events > 0")[0][0])
        silent = new + streams
        if silent < FEWEST or silent <= SHARE * total:
            return None
        return "" if paged else f"upstream: {silent} of {total} streams within an hour"

    # ---- what is done to streams ------------------------------------------------------------------------------------

    def _look_for_rest(self) -> None:
        """What another process has left, or a process before: streams that are being resumed or deleted.

        Another process may also have forgotten what this one was asked to forget.
        """
        rows = self.store.connection.all("SELECT number, mode FROM stream WHERE mode <> 0")
        self._deleting = [number for number, mode in rows if mode == DELETING]
        self._resuming = dict.fromkeys(number for number, mode in rows if mode & (RESUMING | DROPPING))
        if self._forgetting:
            waiting = self.store.connection.all(_IS_FORGETTING)
            for number in self._forgetting.keys() - {number for (number,) in waiting}:
                self._answer_forgetting(number)
        self._next_look = time.monotonic() + (LOOK_SECONDS if not self._forgetting else FORGETTING_SECONDS)

    def _control(self, ticket: Any, events: list[Any]) -> list[tuple[Any, Answer]]:
        """A control, as a group of its own."""
        (control,) = events
        self.write_out()
        now, store = self.clock(), self.store
        store.begin()
        names = {control.stream, control.to} - {""}
        if loaded := store.streams(names, self._streams):
            self._load(loaded)
        state = self._streams.get(control.stream)
        controls = Controls(store, self.model, self._streams, now)
        try:
            done = controls.do(control)
        except Refusal as refusal:
            store.rollback()
            return [(ticket, refusal)]
        if controls.is_changed:
            store.commit()
        else:
            store.rollback()
        self._follow(controls, now)
        if state is not None and state.mode & (RESUMING | DROPPING):
            self._resuming[state.number] = None
        if done == FORGETTING and state is not None:  # it is answered when it is done
            self._forgetting.setdefault(state.number, []).append(ticket)
            self._next_look = time.monotonic() + FORGETTING_SECONDS
            if self._reworker is not None:
                self._reworker.wake()
            return []
        return [(ticket, [done])]

    def _follow(self, controls: Controls, now: float) -> None:
        """What is still to do after a control."""
        self._deleting += controls.deleted
        for number in controls.deleted:
            self._answer_forgetting(number)
        for changed, seq, verb in controls.noted:
            if rework := self.reworks.get(changed.number):
                rework.note(seq, verb, now)

    def _come_of_age(self, now: float) -> tuple[list[tuple[str, Record]], dict[int, str]]:
        """What happens without a request; and the streams that are being resumed and have this as their rest."""
        aged, done = self._aged(now) if self._has_ages else [], dict[int, str]()
        for number in list(self._resuming):
            found = self.store.waiting(number, AGED_AT_ONCE)
            aged += found
            if len(found) < AGED_AT_ONCE:
                names = self.store.connection.all(_IS_RESUMING, (number,))
                if names:
                    done[number] = names[0][0]
                else:  # another process has done it
                    del self._resuming[number]
        return aged, done

    def finish_all(self) -> None:
        """Learn, drop or delete what is to be, for an engine without a thread."""
        while self._resuming:
            self.process([])
        while self._deleting:
            self.delete_some()

    def delete_some(self) -> None:
        """Delete some events of a stream that was deleted."""
        with suppress(*self.store.retries, StoreBusy):
            if delete_some(self.store, self._deleting[0], DELETED_AT_ONCE):
                del self._deleting[0]
                self._erase()

    def _erase(self) -> None:
        """What was deleted is gone from the files of the store too, once nobody reads them."""
        self._is_erasing = not self.store.erase()

    # ---- streams that are made anew: see `rework` -------------------------------------------------------------------

    def _note(self, plan: Plan) -> None:
        """What a group has done to streams that are being made anew, or are to be."""
        if plan.changes.corrections and self._reworker is not None:
            self._reworker.wake()
        if not self.reworks:
            return
        from .rework import operations_of

        slots = {slot: state.number for slot, state in enumerate(plan.changes.streams.values())}
        for number, rework in list(self.reworks.items()):
            rework.tail.extend(operations_of(plan, number))
            rework.given_up += [nth for slot, nth in plan.given_up if slots[slot] == number]

    def finish(self, rework: Rework) -> None:
        """The new state of a stream is there; the engine puts it in its place. From any thread."""
        self._finished.append(rework)
        with self._wake:
            self._wake.notify()

    def _put_in_place(self, rework: Rework) -> None:
        """One group: before it nothing has changed, after it everything has."""
        try:
            self._apply(rework)
        except self.store.retries + (StoreBusy,):  # noqa: RUF005 - later again
            self.forget()
        except self.store.failures:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours, which must not stop the service
            _log.exception("stream %d could not be made anew", rework.number)
            self.forget()
        finally:
            self.reworks.pop(rework.number, None)
            rework.ended.set()

    def _apply(self, rework: Rework) -> None:
        if self.reworks.get(rework.number) is not rework:  # the store was away meanwhile
            return
        store, now = self.store, self.clock()
        store.begin()
        found = store.connection.all("SELECT name, mode FROM stream WHERE number = ?", (rework.number,))
        names = [name for name, mode in found if mode != DELETING]
        for name in names:  # one that was renamed or deleted is not there under its name
            self._streams.pop(name, None)
        state = store.streams(names, {}).get(names[0]) if names else None
        if state is not None and rework.apply(store, state, now):
            store.commit()
            store.look_for_corrections()
            if rework.forgets:
                self._erase()
        else:
            store.rollback()
        if rework.is_applied or state is None:
            self._answer_forgetting(rework.number)

    def _answer_forgetting(self, number: int) -> None:
        """What was to be forgotten of a stream is, or it is gone with its stream."""
        if tickets := self._forgetting.pop(number, []):
            self._tell(self._deliver, [(ticket, ["forgotten"]) for ticket in tickets])

    def _refuse_forgetting(self) -> None:
        """At the end: who waits until something is forgotten is told that the next start does it."""
        sentence = "the service must run to forget, got one that stops - it is done after the next start"
        refusal = Refusal("stopping", sentence, None, 503)
        waiting = [(ticket, refusal) for tickets in self._forgetting.values() for ticket in tickets]
        self._forgetting.clear()
        if waiting:
            self._tell(self._deliver, waiting)

    def progress(self, name: str) -> float | None:
        """How much of a stream is replayed that is being made anew; None if this process does not do it."""
        found = [rework for rework in list(self.reworks.values()) if rework.name == name]
        return found[0].done / max(1, found[0].total) if found else None

    def rework_all(self) -> int:
        """Apply all corrections that wait, and forget what is to be forgotten -> how many events.

        For an engine without a thread; one that was started does it by itself.
        """
        from .rework import Rework, waiting_streams

        changed = 0
        assert self._url is not None  # noqa: S101 - it was opened
        connection = open_connection(self._url)
        try:
            for number, name in waiting_streams(connection):
                rework = self.reworks[number] = Rework(number, name)
                connection.begin_reading()
                rework.start(connection, self.model)
                for _ in rework.replay(connection):
                    pass
                connection.rollback()
                self._put_in_place(rework)
                changed += rework.changed
        finally:
            connection.close()
        return changed

    # ---- outcomes that are old enough, forecasts that are too old ---------------------------------------------------

    def _idle(self) -> float:
        """Seconds to wait for a request; a minute at most, so that the clock is looked at."""
        if self.is_away:
            return AWAY_SECONDS
        if self._resuming or self._deleting:
            return 0.0
        if self._unwritten:
            return IDLE_UNWRITTEN
        waits = [AGE_SECONDS if self._has_ages else BEAT]
        if self.store.is_server:
            waits.append(max(0.0, self._next_look - time.monotonic()))
        waits += [ERASE_SECONDS] if self._is_erasing else []
        if self._listener is not None:
            waits.append(max(0.0, self._deadlines.first - self.clock()) + SOON)
        return min(waits)

    def _is_due(self) -> bool:
        """Whether there is something to do without a request."""
        return bool(self._resuming) or self._is_age_due() or self._deadlines.first < self.clock()

    def _is_age_due(self) -> bool:
        """Whether it is time to look for what has come of age; also after the clock has gone back."""
        return self._has_ages and not self._looked <= self.clock() < self._looked + AGE_SECONDS

    def _aged(self, now: float) -> list[tuple[str, Record]]:
        """Outcomes that are old enough to be learnt, then forecasts that are given up: (stream, event)."""
        if not self._is_age_due():
            return []
        aged, is_all = list[tuple[str, Record]](), True
        for status, age in ((HELD, self.settings.mature), (PENDING, self.settings.expire)):
            if age is not None and (status == HELD or now >= self._expires_from):
                found = self.store.due(status, now - age, AGED_AT_ONCE)
                aged += found
                is_all &= len(found) < AGED_AT_ONCE
        self._looked = now if is_all else -np.inf
        return aged

    # ---- inner ------------------------------------------------------------------------------------------------------

    def _tell(self, listener: Callable[[Any], None], what: Any) -> None:
        """Call a listener. Its errors are logged and do not stop the engine."""
        if listener is self._deliver:
            what = joined(what)
        try:
            listener(what)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("what was committed could not be delivered")

    def forget(self) -> None:
        """A group was aborted: drop the cached streams, which may be ahead of the store. They are read again."""
        self.store.rollback()
        self._streams.clear()
        self._tables.clear()
        self._unwritten = Unwritten()
        if self.may_defer:
            self.do_again(read_journal(self.store))


@dataclass
class Passed:
    """What happens because time has passed."""

    aged: list[tuple[str, Record]]  # outcomes that are learnt now, and forecasts that are given up: (stream, event)
    resumed: dict[int, str]  # streams of which nothing waits any more, and
    overdue: dict[int, str]  # those of which something should have come by now: numbers and names


@dataclass(frozen=True)
class PartTicket:
    """The ticket of a part of a request, which is answered with its last part."""

    ticket: Any
    answers: list[Any]  # of the parts so far
    is_last: bool = False


def in_two(request: Request) -> tuple[Request, Request | None]:
    """A request, or what is done of it now and what is done later.

    Many outcomes are found at as many places of a large store. They need not be learnt together, so others do not have
    to wait for all of them.
    """
    ticket, events = request
    if len(events) <= OUTCOMES_AT_ONCE or isinstance(events[0], (ForecastEvent, Control)):
        if not isinstance(ticket, PartTicket):
            return request, None
        return (replace(ticket, is_last=True), events), None
    part = ticket if isinstance(ticket, PartTicket) else PartTicket(ticket, [])
    return (part, events[:OUTCOMES_AT_ONCE]), (part, events[OUTCOMES_AT_ONCE:])


def joined(answers: list[tuple[Any, Answer]]) -> list[tuple[Any, Answer]]:
    """Answers, with the parts of a request as one: what was refused refuses all of it."""
    whole: list[tuple[Any, Answer]] = []
    for ticket, answer in answers:
        if not isinstance(ticket, PartTicket):
            whole.append((ticket, answer))
            continue
        ticket.answers.append(answer)
        if ticket.is_last:
            refused = [each for each in ticket.answers if isinstance(each, Refusal)]
            whole.append((ticket.ticket, refused[0] if refused else [told for each in ticket.answers for told in each]))
    return whole


def _is(state: StreamState | None, number: int) -> bool:
    """Whether this is the stream of that number."""
    return state is not None and state.number == number


def is_control(request: tuple[Any, Any]) -> bool:
    """Whether a request is something that is done to a stream."""
    return bool(request[1]) and type(request[1][0]) is Control


def follow_journal(store: Store) -> None:
    """Do what a process that was killed had answered and not yet written, with the settings that it had."""
    groups = read_journal(store)
    if not groups:
        return
    settings = settle_meta(store, EngineSettings())
    engine = Engine(store, settings, model_of(settings))
    engine.do_again(groups)
    engine.write_out()
    _log.warning("a process before had no time to write %d groups into the tables: they are there now", len(groups))


def recover(url: str) -> None:
    """The same for a store that nobody uses."""
    with closing(open_store(url)) as store:
        follow_journal(store)


@contextmanager
def on_store(url: str) -> Iterator[Engine]:
    """An engine without a thread, for a command: with the method, the seed and the monitors that the store has.

    Raises
    ------
    FileNotFoundError, InvalidInput : there is no store, or a service writes to it.
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    if not is_store(url):
        raise FileNotFoundError(f"store must exist, got nothing - at {url}")
    engine = Engine.open(url, EngineSettings())
    try:
        yield engine
    finally:
        engine.store.close()


def _end_process(message: str) -> None:  # pragma: no cover - the process ends, and with it what is measured
    """The store is the truth, and memory is ahead of it: nothing may be answered any more."""
    _log.critical("%s - the service ends; nothing was answered before its commit", message)
    sys.stderr.flush()
    os._exit(FATAL)


def _away() -> Refusal:
    return Refusal("unavailable", "the store must answer, got a database that is away - try again", None, 503)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ---- a store and the settings it is opened with: what a replay depends on is written once, and must stay ------------


# Those that are changed by `configure`, and what a new store has.
CONFIGURED: dict[str, Any] = {"monitor": None, "notice": True, "expire": None, "expire_as": None, "mature": None}


def settle_meta(store: Store, settings: EngineSettings) -> EngineSettings:
    """Return the settings of a store; a new store takes those that are given.

    Raises
    ------
    InvalidInput : a setting is given that is not the store's.
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    meta = get_meta(store.connection)
    if "method" not in meta:
        made = replace(
            settings,
            method=(settings.method or DEFAULT_METHOD).lower(),
            seed=settings.seed or 0,
            notice=settings.notice is not False,
        )
        model_of(made)  # a bad name is noticed before it is written
        claim_meta(store.connection, made)
        meta = get_meta(store.connection)  # another process may have been first
    return check_settings(meta, settings)


def check_settings(meta: dict[str, str], settings: EngineSettings) -> EngineSettings:
    """Return settings with everything that belongs to the store; raise if one is given that is not the store's."""
    check_described(meta)
    known = stored_settings(meta)
    given = settings.method and settings.method.lower()
    if given not in {None, known.method}:
        raise InvalidInput(
            f"method must be that of the store, {known.method!r}, got {settings.method!r} - "
            f"`calibeat store configure --method {settings.method}` moves the store to it"
        )
    if settings.seed not in {None, known.seed}:
        raise InvalidInput(f"seed must be that of the store, {known.seed}, got {settings.seed}")
    for name in CONFIGURED:
        value, wanted = getattr(known, name), getattr(settings, name)
        if wanted is not None and wanted != value:
            option = f"--{name.replace('_', '-')}"
            typed = setting_text(name, wanted)
            raise InvalidInput(
                f"{option} must be that of the store, {setting_text(name, value)}, got {typed} - leave it out, or "
                f"change it for all who serve the store: `calibeat store configure {option} {typed}`"
            )
    return replace(settings, method=known.method, seed=known.seed, **{n: getattr(known, n) for n in CONFIGURED})


def stored_settings(meta: dict[str, str]) -> EngineSettings:
    """Return the settings that a store has: those of a new one, if it was made for a token and never served."""
    if "method" not in meta:
        return EngineSettings(method=DEFAULT_METHOD, seed=0, **CONFIGURED)
    configured = {name: json.loads(meta[name]) for name in CONFIGURED}
    return EngineSettings(method=meta["method"], seed=int(meta["seed"]), **configured)


def setting_text(name: str, value: Any) -> str:
    """A setting as people type it.

    >>> setting_text("expire", 30 * 86_400.0), setting_text("monitor", 1e6), setting_text("notice", False)
    ('30d', '1000000', 'off')
    """
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return duration_named(round(value * 1e6)) if name in {"expire", "mature"} else f"{value:.15g}"


def write_settings(connection: Connection, settings: EngineSettings) -> None:
    """Give a store other settings, where no service runs."""
    known = stored_settings(get_meta(connection))
    for name in CONFIGURED:
        set_meta(connection, name, json.dumps(getattr(settings, name)))
    if known.monitor != settings.monitor:  # monitors that begin, end or change in the middle cannot be replayed
        set_meta(connection, "monitor_whole", "0")


def claim_meta(connection: Connection, settings: EngineSettings) -> None:
    """Record what belongs to a new store, in one statement. The first process wins."""
    method = settings.method or DEFAULT_METHOD
    known = {"method": method, "seed": str(settings.seed or 0), "described": description_of(method)}
    known |= {name: json.dumps(getattr(settings, name)) for name in CONFIGURED}
    marks = ", ".join(["(?, ?)"] * len(known))
    connection.run(
        f"INSERT INTO meta (name, value) VALUES {marks} ON CONFLICT (name) DO NOTHING",  # noqa: S608 - only marks
        [part for pair in known.items() for part in pair],
    )


def model_of(settings: EngineSettings) -> Model:
    """How the streams of a store learn."""
    return Model.named(settings.method or DEFAULT_METHOD, settings.seed or 0, settings.monitor)


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
