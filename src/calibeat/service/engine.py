"""The engine: one thread that owns the streams and the store. What waits becomes one group, one commit of the log.

A group is decided (`plan`), the streams learn (`fold`), its operations and answers go into the log, and then it is
answered. The tables follow, for many groups at once (`pending`). If the log cannot be written, nobody is answered: the
process ends, or, where a database server went away, this engine does, and the next one continues from the log.
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
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibeat.errors import InvalidInput

from . import ops
from .clock import ServiceClock
from .controls import Controls, delete_some
from .corrections import Corrections
from .counters import EngineCounters
from .events import Control, InvalidEvent, Refusal, StreamSettings
from .fold import GroupFold, record_of
from .intake import Intake, is_control, joined
from .listening import Listening
from .model import Model
from .notices import BEAT
from .ops import Op
from .pending import Pending
from .plan import Answer, Plan, Request
from .settings import EngineSettings, model_of, settle_meta
from .store import NotLeader, Store, StoreBusy, is_store, open_store
from .store.lease import RENEWAL
from .store.schema import get_meta, last_position, last_stream, set_meta
from .store.types import DELETING, DROPPING, HELD, PENDING, RESUMING, AlarmInfo, Record, StreamState, rows_of
from .streams import StreamCache

Deliver = Callable[[list[tuple[Any, Answer]]], None]
OnAlarm = Callable[[list[AlarmInfo]], None]

AGED_AT_ONCE = 1000  # events that expire or mature in one group
DELETED_AT_ONCE = 5000  # events of a stream that was deleted
SPENT_AT_ONCE = 1000  # receipts of a state that is gone
MOST_PENDING = 40_000  # operations that may be in the log alone
PENDING_SECONDS = 0.2  # for which a group may be in the log alone
LONGEST_PENDING = 0.5  # the same where writing takes long: see `WRITING_SHARE`
WRITING_SHARE = 0.2  # of the time, in which the tables follow the log
IDLE_SECONDS = 0.02  # without a request after which they do
AGE_SECONDS = 1.0  # from one look for what has come of age to the next
ERASE_SECONDS = 0.5  # from one attempt to erase what was deleted to the next
PLAYED_AT_ONCE = 5_000  # operations of the log, in one fold
FATAL = 70  # the exit status after a failed commit
_IS_RESUMING = f"SELECT name FROM stream WHERE number = ? AND (mode & {RESUMING | DROPPING}) <> 0"  # noqa: S608

_log = logging.getLogger(__name__)


def _end_process(message: str) -> None:  # pragma: no cover - the process ends, and with it what is measured
    """The log is the truth, and memory is ahead of it: nothing may be answered any more."""
    _log.critical("%s - the service ends; nothing was answered before its commit", message)
    sys.stderr.flush()
    os._exit(FATAL)


@dataclass
class Hooks:
    """Who is told what."""

    deliver: Deliver = lambda _: None
    on_alarm: OnAlarm = lambda _: None
    on_failure: Callable[[str], None] = _end_process
    # A database went away, or another process leads: the engine has ended, and refuses what comes with this.
    on_loss: Callable[[str, Refusal], None] = lambda *_: None


@dataclass
class LogEnd:
    """The end of the log, where the next operation and the next stream get their numbers."""

    position: int = 0
    stream: int = 0


@dataclass
class Behind:
    """How far the tables are behind the log, and who waits for them."""

    pending: Pending = field(default_factory=Pending)
    may_wait: bool = False  # whether groups may be in the log alone: while a thread runs
    patience: float = PENDING_SECONDS  # until the tables follow
    readers: deque[threading.Event] = field(default_factory=deque)  # wait until they have

    def is_due(self, *, is_idle: bool, is_full: bool) -> bool:
        """Whether to write them now."""
        pending = self.pending
        return bool(pending) and (
            is_idle
            or is_full
            or bool(self.readers)
            or time.monotonic() >= pending.since + self.patience
            or pending.size >= MOST_PENDING
        )

    def learn(self, seconds: float) -> None:
        """To write them took so long."""
        self.patience = min(max(PENDING_SECONDS, seconds / WRITING_SHARE), LONGEST_PENDING)


@dataclass
class Chores:
    """What is done between groups, some at a time, until nothing is left."""

    resuming: dict[int, None] = field(default_factory=dict)  # streams that learn or drop what waited while frozen
    deleting: list[int] = field(default_factory=list)  # streams whose events are being deleted
    is_erasing: bool = False  # something was deleted of which the store may have copies
    looked: float = -np.inf  # when it was looked for what has come of age
    jobs: deque[tuple[Callable[[], Any], Future[Any]]] = field(default_factory=deque)  # of other threads
    spent: list[tuple[int, int]] = field(default_factory=list)  # receipts of states that are gone: stream, version
    spent_from: int = 0  # the number of the event from which those of the first one are left

    def read(self, connection: Any) -> None:
        """What a process before has left."""
        self.spent = [tuple(each) for each in json.loads(get_meta(connection).get("spent", "[]"))]
        rows = connection.all("SELECT number, mode FROM stream WHERE mode <> 0")
        self.deleting = [number for number, mode in rows if mode == DELETING]
        self.resuming = dict.fromkeys(
            number for number, mode in rows if mode != DELETING and mode & (RESUMING | DROPPING)
        )

    def spend(self, connection: Any, receipts: list[tuple[int, int]]) -> None:
        """These receipts are to be deleted, soon."""
        self.spent += receipts
        set_meta(connection, "spent", json.dumps(self.spent))

    def delete_spent(self, store: Store) -> None:
        """Delete some."""
        # From a border to the next: PostgreSQL, which may not have counted the rows yet, might look for each of a list
        # among all, and finds no first one without passing all that are gone.
        connection, which = store.connection, (*self.spent[0], self.spent_from)
        of = "stream = ? AND version = ? AND nth >= ?"
        rest = f"SELECT nth FROM receipt WHERE {of} ORDER BY nth LIMIT 1 OFFSET ?"  # noqa: S608
        found = connection.all(rest, (*which, SPENT_AT_ONCE))
        border = found[0][0] if found else 2**62
        store.begin()
        connection.run(f"DELETE FROM receipt WHERE {of} AND nth < ?", (*which, border))  # noqa: S608
        if not found:
            del self.spent[0]
            set_meta(connection, "spent", json.dumps(self.spent))
        store.commit()
        self.spent_from = border if found else 0


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
        self.counters, self.hooks, self.intake = EngineCounters(), Hooks(), Intake(settings)
        self.listening = Listening(store, self.clock, notice=bool(settings.notice))
        self.streams = StreamCache(store, model, self.listening)
        self.behind, self.chores, self.corrections = Behind(), Chores(), Corrections(self)
        self.end = LogEnd()
        self.is_live = True  # False: the events of a log happen once more, and its times are the clock
        self._thread: threading.Thread | None = None

    @classmethod
    def open(
        cls, store_url: str, settings: EngineSettings, clock: Callable[[], float] | None = None, epoch: int = -1
    ) -> Engine:
        """Open a store, or make one. `epoch` is that of the lease which this process had before.

        Raises
        ------
        InvalidInput : the settings contradict the store, or the store cannot be used.
        NotLeader : another process writes the store.
        StoreAway : the database does not answer now.
        SnapshotMismatch : the store has another format, or its preset had other numbers.
        """
        store = open_store(store_url, epoch)
        try:
            settings = settle_meta(store, settings)
            engine = cls(store, settings, model_of(settings), clock)
            engine.corrections.url = store_url
            engine.recover()
        except BaseException as error:
            store.close()
            if isinstance(error, store.connection.faults) and not store.is_server:
                raise InvalidInput(
                    f"store must be readable, got: {error} - `calibeat store check` names what is damaged, and "
                    "`calibeat store upgrade --salvage` makes a new store of the rest"
                ) from error
            raise
        return engine

    # ---- from any thread --------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        """Whether it has ended, as its database is not there, or another process leads."""
        return self.intake.is_lost

    def start(self, deliver: Deliver) -> None:
        """Start the thread; `deliver` is called on it once for each committed group, with (ticket, answer) pairs."""
        self.hooks.deliver, self.behind.may_wait = deliver, True
        self.listening.begin(self.clock())
        self._thread = threading.Thread(target=self._run, name="calibeat-engine", daemon=True)
        self._thread.start()
        self.corrections.start()

    def submit(self, ticket: object, events: Any) -> None:
        """Queue a request, which `wire` has checked: see `plan.Request`. It never waits.

        Raises
        ------
        Refusal : the queue is full, or the engine stops.
        """
        self.intake.add(ticket, events)
        self.counters.queued = self.intake.events

    def wait_until_written(self) -> None:
        """Wait until everything that was answered can be read in the tables."""
        thread = self._thread
        if not self.behind.pending or thread is None:
            return
        written = threading.Event()
        self.behind.readers.append(written)
        self.intake.wake()
        while not written.wait(1.0) and thread.is_alive():
            pass

    def between(self, job: Callable[[], Any]) -> Any:
        """Do something on the engine's thread, between two groups -> what it returns."""
        if self._thread is None:
            return job()
        done: Future[Any] = Future()
        self.chores.jobs.append((job, done))
        self.intake.wake()
        while True:
            with suppress(TimeoutError):
                return done.result(timeout=1.0)
            if not self._thread.is_alive() and not done.done():
                raise InterruptedError("the engine has ended")

    def hurry(self) -> None:
        """The service is about to stop: who waits until something is forgotten is told so, now and from now on."""
        self.corrections.hurry()
        self.intake.wake()

    def stop(self) -> None:
        """Finish what waits, commit, deliver, close."""
        self.corrections.stop()
        self.intake.close(Refusal("stopping", "the service must run to take events, got one that stops", None, 503))
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (requests := self.intake.take(self._idle)) is not None:
                self._turn(requests)
            self._turn([])
            self.corrections.hurry()
            self._tell(self.corrections.refused())
            with suppress(StoreBusy):  # the next start does it
                self.write_out()
            self.listening.beat()
            self.store.close()
        except NotLeader as error:
            self._leave(str(error), _lost())
        except self.store.failures as error:
            sentence = " ".join(str(error).split()) or type(error).__name__
            if self.store.is_server:
                self._leave(f"the store is away, requests are refused until it answers: {sentence}", _away())
            else:
                self.hooks.on_failure(f"the store could not be written: {error}")
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may be answered from now on
            self.hooks.on_failure(f"the store could not be written: {error}")
        finally:
            for reader in list(self.behind.readers):
                reader.set()

    def _turn(self, requests: list[Request]) -> None:
        """Some requests, and what is to be done beside them."""
        self.counters.queued = self.intake.events
        self.listening.look_at_clock(self.streams)
        if requests or self._is_due():
            self._do(requests)
        chores, waiting = self.chores, len(self.behind.readers)
        with suppress(StoreBusy):  # later again: the log has it
            self.write_in_time(is_idle=not requests)
        if not self.behind.pending:
            for _ in range(waiting):
                self.behind.readers.popleft().set()
        if chores.jobs:
            self._do_job(*chores.jobs.popleft())
        if chores.deleting:
            self.delete_some()
        if chores.spent:
            with suppress(StoreBusy):
                chores.delete_spent(self.store)
        self._tell(self.corrections.refused())
        if chores.is_erasing:
            chores.is_erasing = not self.store.erase()
        self.listening.beat_in_time()
        self.store.stay()

    def _idle(self) -> float:
        """Seconds to wait for a request; a minute at most, so that the clock is looked at."""
        chores = self.chores
        if chores.resuming or chores.deleting or chores.jobs or chores.spent:
            return 0.0
        if self.behind.pending:
            return IDLE_SECONDS
        waits = [AGE_SECONDS if self._has_ages else BEAT, self.listening.wait]
        waits += [ERASE_SECONDS] if chores.is_erasing else []
        waits += [RENEWAL] if self.store.is_server else []
        return min(waits)

    def _do_job(self, job: Callable[[], Any], done: Future[Any]) -> None:
        try:
            done.set_result(job())
        except self.store.failures as error:
            done.set_exception(error)
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked for it hears of it
            self.forget()
            done.set_exception(error)

    def _do(self, requests: list[Request]) -> None:
        """One group, from the requests to their answers."""
        try:
            answers = self.process(requests)
        except NotLeader:
            self._refuse(requests, _lost())
            raise
        except self.store.failures:
            if self.store.is_server:
                self._refuse(requests, _away())
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
                self._do_each(requests)
                return
            self.counters.rejected["internal"] += 1
            refusal = Refusal("internal", "the service could not answer; its log says why", None, 500)
            answers = [(ticket, refusal) for ticket, _ in requests]
        self._tell(answers)

    def _do_each(self, requests: list[Request]) -> None:
        """One by one, for one of them has a fault."""
        for at, request in enumerate(requests):
            try:
                self._do([request])
            except BaseException as error:
                self._refuse(requests[at + 1 :], _lost() if isinstance(error, NotLeader) else _away())
                raise

    def _tell(self, answers: list[tuple[Any, Answer]]) -> None:
        """Deliver answers. An error of whoever gets them is logged and does not stop the engine."""
        if not answers:
            return
        try:
            self.hooks.deliver(joined(answers))
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("what was committed could not be delivered")

    def _refuse(self, requests: list[Request], refusal: Refusal) -> None:
        self._tell([(ticket, refusal) for ticket, _ in requests])

    def _leave(self, sentence: str, refusal: Refusal) -> None:
        """The database went away, or another process leads: the next engine goes on from the log."""
        self.intake.is_lost = True
        self.intake.close(refusal)
        while waiting := self.intake.take(lambda: 0.0):
            self._refuse(waiting, refusal)
        self._tell(self.corrections.refused_by(refusal))
        with suppress(Exception):
            self.store.close()
        self.hooks.on_loss(sentence, refusal)

    # ---- one group --------------------------------------------------------------------------------------------------

    def process(self, requests: list[Request]) -> list[tuple[Any, Answer]]:
        """Do a group and commit it -> the answers. Only the engine's thread, or a test without one, may call it."""
        if requests and is_control(requests[0]):
            (request,) = requests
            joins = type(request[1][0]) is StreamSettings
            if (done := self._join(*request) if joins else self._control(*request)) is not None:
                return done
        chores = self.chores
        if self.behind.pending and (chores.resuming or self._is_age_due()):
            self.write_out()  # the tables are asked what is to be done
        now = self.clock()
        aged, resumed = self._come_of_age(now)
        overdue = self.listening.overdue(now, self.streams, self.behind.pending)
        plan = self._decide(requests, now, aged, resumed, overdue)
        started = time.perf_counter()
        if plan.changes:
            self._commit(plan)
            self.counters.commit_seconds.add(time.perf_counter() - started)
        if not plan.log:  # the answers were read: another process may have led meanwhile, and have others
            self.store.stay()
        for number in resumed:
            chores.resuming.pop(number, None)
        self.counters.count(plan, sum(len(events) for _, events in requests))
        if plan.corrected:
            self.corrections.wake()
        return [(ticket, plan.answer(at)) for at, (ticket, _) in enumerate(requests)]

    def _decide(
        self,
        requests: list[Request],
        now: float,
        aged: list[tuple[str, Record]],
        resumed: dict[int, str],
        overdue: dict[int, str],
    ) -> Plan:
        """What a group does to the streams in memory, and has still to be written."""
        events = [event for _, events in requests for event in events if type(event) is not InvalidEvent]
        names = {event.stream for event in events}
        names.update(name for name, _ in aged)
        names.update(resumed.values())
        names.update(overdue.values())
        streams = self.streams
        streams.load(names)
        ids = [(state.number, event.id) for event in events if (state := streams.get(event.stream)) is not None]
        ids += [(record.stream, record.id) for _, record in aged]
        known, others = self.behind.pending.find(ids)
        if others:
            known |= self.store.known(others)
        first = self.end.position + 1, self.end.stream + 1
        plan = Plan(
            self.settings, streams, known, now, self.model, position=first[0], number=first[1], live=self.is_live
        )
        plan.age(aged, [streams[name] for name in resumed.values()])
        for state in self.listening.still_overdue(overdue, now, streams):
            plan.ask(state)
        for _, asked in requests:
            plan.take(asked)
        self._learn(plan)
        streams.update(plan.begun)
        streams.use(names)
        return plan

    def _learn(self, fold: GroupFold) -> None:
        """The streams of a group learn; new alarms are beside the other changes."""
        made, touched = fold.run(self.model), list(fold.changes.streams.values())
        fold.changes.alarms += [AlarmInfo.of(raised, touched[raised.slot], fold.now) for raised in made.raised]

    def _commit(self, plan: Plan) -> None:
        """Put a group into the log, and into the tables too if they may not wait."""
        store, is_now = self.store, not self.behind.may_wait
        if plan.log or is_now:
            store.begin()
            store.append(plan.log)
        self.end = LogEnd(plan.position - 1, plan.number - 1)
        self.behind.pending.add(plan, time.monotonic())
        if is_now:
            self._write()
        elif plan.log:
            store.commit()

    def _write(self) -> None:
        """Write everything that is in the log alone into the tables, and commit."""
        pending = self.behind.pending
        self.listening.hear(pending, live=self.is_live)
        changes = pending.finish()
        self.store.write(rows_of(changes))
        set_meta(self.store.connection, "flushed", str(self.end.position))
        self.store.commit()
        self.behind.pending = Pending()
        self.streams.drop_unused()
        if changes.alarms:
            try:
                self.hooks.on_alarm(changes.alarms)
            except Exception:  # noqa: BLE001 - whatever it is
                _log.exception("alarms could not be told")

    def write_out(self) -> None:
        """The tables follow the log."""
        if self.behind.pending:
            began = time.monotonic()
            self.store.begin()
            self._write()
            self.behind.learn(time.monotonic() - began)

    def write_in_time(self, *, is_idle: bool = False) -> None:
        """They do so if nothing else is to be done, if they are far behind, or for long."""
        if self.behind.is_due(is_idle=is_idle, is_full=self.streams.is_full):
            self.write_out()

    def forget(self) -> None:
        """A group was aborted: memory may be ahead of the store. What is in the log alone happens once more."""
        self.store.rollback()
        self.streams.clear()
        self.behind.pending = Pending()
        with suppress(StoreBusy):  # the tables follow later: the log has it
            self.recover(is_start=False)

    # ---- what is in the log alone -----------------------------------------------------------------------------------

    def recover(self, *, is_start: bool = True) -> None:
        """Go on from the log: what is behind the tables happens once more, with the answers that were given."""
        connection = self.store.connection
        flushed = int(get_meta(connection).get("flushed", "0"))
        self.end = LogEnd(last_position(connection), last_stream(connection))
        self.chores.read(connection)
        if self.end.position > flushed:
            rest = self.store.ops(flushed)
            self.listening.read_downtimes(rest[0].at)
            self._play(rest)
            if is_start:
                _log.warning("a process before had no time to write %d operations into the tables", len(rest))
            self.write_out()

    def _play(self, rest: list[Op]) -> None:
        """Operations of the log, on the streams as the tables have them."""
        events: dict[tuple[int, int], Record] = {}
        differences = list[float]()
        for first in range(0, len(rest), PLAYED_AT_ONCE):
            part = rest[first : first + PLAYED_AT_ONCE]
            fold = GroupFold(part[0].at, is_noticed=self.listening.listener is not None, live=self.is_live)
            for op in part:
                if op.kind == ops.BEGIN:
                    self.streams[op.id or ""] = StreamState(op.id or "", number=op.stream)
                    self.end.stream = max(self.end.stream, op.stream)
            streams = self.streams.load_numbers({op.stream for op in part})
            events |= {(op.stream, op.nth): record_of(op) for op in part if op.kind == ops.FORECAST}
            asked = {(op.stream, op.nth) for op in part if op.nth >= 0 and op.kind != ops.NAME}
            events |= self.store.numbered([event for event in asked if event not in events])
            for op in part:
                fold.now = op.at
                if op.kind != ops.BEGIN:
                    fold.do(op, streams[op.stream], events.get((op.stream, op.nth)), {})
            self._learn(fold)
            differences += fold.differences
            self.behind.pending.add(fold, time.monotonic())
        if differences:
            _log.warning(
                "the log has %d forecasts that this machine computes otherwise, by %.3g at most: the answers that "
                "were given stay",
                *(len(differences), max(differences)),
            )

    # ---- what happens without a request -----------------------------------------------------------------------------

    @property
    def _has_ages(self) -> bool:
        return self.settings.mature is not None or self.settings.expire is not None

    def _is_due(self) -> bool:
        """Whether there is something to do without a request."""
        return bool(self.chores.resuming) or self._is_age_due() or self.listening.is_due

    def _is_age_due(self) -> bool:
        """Whether it is time to look for what has come of age; also after the clock has gone back."""
        looked = self.chores.looked
        return self._has_ages and not looked <= self.clock() < looked + AGE_SECONDS

    def _come_of_age(self, now: float) -> tuple[list[tuple[str, Record]], dict[int, str]]:
        """What is old enough, and what has waited in streams that are resumed; and those that have this as their rest.

        Outcomes are learnt, then forecasts are given up: (stream, event).
        """
        aged, is_all, done = list[tuple[str, Record]](), True, dict[int, str]()
        if self._is_age_due():
            for status, age in ((HELD, self.settings.mature), (PENDING, self.settings.expire)):
                if age is not None and (status == HELD or now >= self.listening.expires_from):
                    found = self.store.due(status, now - age, AGED_AT_ONCE)
                    aged += found
                    is_all &= len(found) < AGED_AT_ONCE
            self.chores.looked = now if is_all else -np.inf
        for number in list(self.chores.resuming):
            found = self.store.waiting(number, AGED_AT_ONCE)
            aged += found
            if len(found) < AGED_AT_ONCE:
                names = self.store.connection.all(_IS_RESUMING, (number,))
                if names:
                    done[number] = names[0][0]
                else:
                    del self.chores.resuming[number]
        return aged, done

    # ---- what is done to streams ------------------------------------------------------------------------------------

    def _control(self, ticket: Any, events: list[Any]) -> list[tuple[Any, Answer]]:
        """A control, as a group of its own, which is in the tables at once."""
        (control,) = events
        self.write_out()
        now, store = self.clock(), self.store
        self.streams.load({control.stream, control.to} - {""})
        state = self.streams.get(control.stream)
        controls = Controls(store, self.model, self.streams, now, self.end.position + 1, self.end.stream + 1)
        store.begin()
        try:
            done = controls.do(control)
        except Refusal as refusal:
            store.rollback()
            return [(ticket, refusal)]
        if controls.log:
            store.append(controls.log)
            set_meta(store.connection, "flushed", str(controls.position - 1))
            store.commit()
        else:
            store.rollback()
        self.end = LogEnd(controls.position - 1, controls.number - 1)
        self.chores.deleting += controls.deleted
        answers = [answer for number in controls.deleted for answer in self.corrections.answered(number)]
        if state is not None and state.mode & (RESUMING | DROPPING):
            self.chores.resuming[state.number] = None
        if controls.is_forgetting and state is not None:  # it is answered when it is done
            self.corrections.wait_for(state.number, ticket)
            return answers
        return [*answers, (ticket, [done])]

    def _join(self, ticket: Any, events: list[Any]) -> list[tuple[Any, Answer]] | None:
        """A stream of models is asked to have another one -> the answer; None if this is something else."""
        (settings,) = events
        self.streams.load({settings.stream})
        state = self.streams.get(settings.stream)
        if state is None or not state.events or state.shape.models is None:
            return None
        known = list(state.shape.models.names)
        if len(settings.models) <= len(known) or settings.models[: len(known)] != known:
            return None
        control = Control("join", settings.stream, models=tuple(settings.models[len(known) :]))
        ((_, answer),) = self._control(ticket, [control])
        if not isinstance(answer, Refusal):
            answer = {"stream": settings.stream, **self.streams[settings.stream].shape.described()}
        return [(ticket, answer)]

    def finish_all(self) -> None:
        """Learn, drop, delete, correct and forget what is to be, for an engine without a thread."""
        while self.chores.resuming:
            self.process([])
        while self.chores.deleting:
            self.delete_some()
        self.corrections.do_all()
        while self.chores.spent:
            self.chores.delete_spent(self.store)

    def delete_some(self) -> None:
        """Delete some events of a stream that was deleted."""
        with suppress(StoreBusy):
            if delete_some(self.store, self.chores.deleting[0], DELETED_AT_ONCE):
                del self.chores.deleting[0]
                self.chores.is_erasing = not self.store.erase()


def catch_up(url: str) -> None:
    """Write into the tables of a store, which nobody serves, what a process that was killed had no time to write."""
    with closing(open_store(url)) as store:
        settings = settle_meta(store, EngineSettings())
        Engine(store, settings, model_of(settings)).recover()


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


def _lost() -> Refusal:
    return Refusal("not_ready", "the service must lead the store, got one that stands by - try again", None, 503)


def _away() -> Refusal:
    return Refusal("unavailable", "the store must answer, got a database that is away - try again", None, 503)
