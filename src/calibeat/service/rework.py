"""A stream is made anew while it is served: outcomes are corrected or retracted, events are forgotten.

What was learnt cannot be unlearnt: the state has moved on. So the stream is replayed from its base with what is right,
on a thread of its own that only reads. What happens to the stream meanwhile is noted by the engine and replayed last.
Then the engine puts the new state in the place of the old one, in one group: before it nothing has changed, after it
everything has.

An event that is forgotten is deleted. The row that has learnt from it stays, and is the new base of the stream right
behind the event: later replays begin there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .controls import note
from .maintenance import Logged, LoggedStream, Play, Said, log_of, pieces, stream_of
from .model import Model, StoredCell
from .plan import Plan, of_named_classes
from .rollups import Rollups, errors_of
from .store import Store, open_connection, sqlite_path
from .store.schema import get_meta
from .store.types import (
    ADD_TO_ROLLUPS,
    ASSUMED,
    DELETING,
    EXPIRED,
    HELD,
    INSERT_ROLLUPS,
    INSERT_SAID,
    LATE,
    LEARNT,
    PENDING,
    SUMS,
    WAITING,
    StreamState,
    TableRow,
    replace_cells,
)
from .watch import alarms_of

if TYPE_CHECKING:
    from .engine import Engine

OPERATIONS_AT_ONCE = 500  # a fold of so many holds up the others for about a millisecond
PAUSE = 0.001  # seconds after each, for the others
TAIL = 200  # operations that the engine may replay itself, at the end
LOOK_SECONDS = 10.0  # from one look for what another process has left to the next
AGAIN_SECONDS = 1.0  # after something has failed

_WAITING = (
    "SELECT c.number, c.nth, c.outcome, c.is_forgetting, e.seq, e.outcome_seq, e.status, e.outcome FROM correction c "
    "LEFT JOIN event e ON e.stream = c.stream AND e.nth = c.nth WHERE c.stream = ? AND c.applied = 0 ORDER BY c.number"
)
_EVENT = (
    "SELECT nth, time, score, forecast, outcome, outcome_time, status, seq, outcome_seq, named, given, issued "
    "FROM event "
)

_CORRECTED = (
    f"{_EVENT}WHERE stream = ? AND nth IN "  # noqa: S608 - our own text
    "(SELECT c.nth FROM correction c WHERE c.stream = ? AND c.applied = 0 AND c.is_forgetting = 0)"
)

_log = logging.getLogger("calibeat.service")


class Event(NamedTuple):
    """An event that changes, as it is in the store."""

    nth: int
    time: float
    score: float
    forecast: float
    outcome: int | None
    outcome_time: float | None
    status: int
    seq: int
    outcome_seq: int | None
    named: int | None
    given: Any
    issued: Any

    @property
    def is_learnt(self) -> bool:
        """Whether its outcome is."""
        return self.status in {LEARNT, ASSUMED, LATE}


@dataclass
class Base:
    """Where later replays begin."""

    seq: int
    events: int
    state: bytes | None
    monitor: bytes | None
    cells: list[StoredCell] | None  # None: as they were
    open: dict[int, bytes]  # receipts of forecasts whose outcome came later, or comes
    said: dict[int, Said]  # what the method had said of events that the monitor had not read


@dataclass(eq=False)
class Rework:
    """One stream that is made anew."""

    number: int
    name: str
    done: int = 0  # operations that are replayed
    total: int = 0
    is_applied: bool = False  # the new state is in the store
    changed: int = 0  # events
    ended: threading.Event = field(default_factory=threading.Event)
    tail: deque[Logged] = field(default_factory=deque)  # what has happened since
    given_up: list[int] = field(default_factory=list)
    _items: list[int] = field(default_factory=list)  # the corrections that are applied
    _outcomes: dict[int, int | None] = field(default_factory=dict)  # what is right, by the number of the event
    _forgotten: set[int] = field(default_factory=set)
    _cut: int = -1  # the operation behind the last of these
    _reset: int = 0  # the operation that has begun the stream anew
    _base: Base | None = None
    _known: dict[int, Event] = field(default_factory=dict)  # the events that are corrected
    _next: int = 0  # the number of the next operation
    _forecasts: int = 0  # before it

    @property
    def forgets(self) -> bool:
        """Whether it deletes events."""
        return bool(self._forgotten)

    # ---- on a thread that only reads --------------------------------------------------------------------------------

    def start(self, connection: Any, model: Model) -> None:
        """Read what is to be done. The connection must read at one moment, and the engine must note what comes."""
        stream = stream_of(connection, self.number)
        if stream is None:
            raise LookupError(f"stream must be there, got none of number {self.number}")
        if get_meta(connection).get("monitor_whole", "1") != "1":
            model = replace(model, watched=None)  # a monitor that has changed in the middle cannot be replayed
        self._stream, self._model = stream, model
        for number, nth, outcome, is_forgetting, *event in connection.all(_WAITING, (self.number,)):
            self._items.append(number)
            if event[0] is None:  # it is gone already
                continue
            seq, outcome_seq, status, known = event
            if is_forgetting:
                self._forgotten.add(nth)
                last = outcome_seq if status in {LEARNT, ASSUMED, LATE} else seq
                self._cut = max(self._cut, last + 1, stream.base_seq)
            elif status in {LEARNT, LATE} and outcome_seq >= stream.base_seq:
                self._outcomes[nth] = outcome
                if outcome == known:
                    del self._outcomes[nth]
        for nth in self._forgotten:
            self._outcomes.pop(nth, None)
        self.play = Play(model, stream, keeps_all=True)
        self.play.start(connection)
        self._next, self._forecasts, self.total = stream.base_seq, stream.base_events, stream.seq - stream.base_seq

    def replay(self, connection: Any, at_once: int = OPERATIONS_AT_ONCE) -> Iterator[int]:
        """Replay the log, some operations at a time -> how many."""
        events = log_of(connection, [self._stream]).of(self._stream)
        for part in pieces((event for event in events if event.number >= self._stream.base_seq), at_once):
            self.feed(part, connection)
            self.done += len(part)
            yield len(part)
        self._reach_base(connection)  # behind the last operation
        # What the engine needs of the events that change, so that it does not have to read them. They are learnt, and
        # nobody but this changes them.
        self._known = {row[0]: Event(*row) for row in connection.all(_CORRECTED, (self.number, self.number))}
        if self._model.watched is not None and self.play.replayed.monitor is not None:
            self.play.monitor(connection, self._next)

    def feed(self, part: list[Logged], connection: Any) -> None:
        """The next operations, with what is right."""
        if not part:
            return
        right = [self._right(event) for event in part]
        self._reset = max([self._reset, *(event.number for event in part if event.verb == "reset")])
        at = next((i for i, event in enumerate(right) if event.number >= self._cut), len(right))
        if at:
            self._forecasts += len(self.play.feed(right[:at]))
        self._next = right[-1].number + 1 if at == len(right) else right[at].number
        if at < len(right):
            self._reach_base(connection)
            self._forecasts += len(self.play.feed(right[at:]))
            self._next = right[-1].number + 1

    def _right(self, event: Logged) -> Logged:
        if event.outcome is None or event.nth not in self._outcomes:
            return event
        outcome = self._outcomes[event.nth]
        return event._replace(outcome=outcome, verb="retracted" if outcome is None else "")

    def _reach_base(self, connection: Any) -> None:
        """What is forgotten is learnt by now: the row of this moment is the new base."""
        if self._cut < 0 or self._base is not None or self._next < self._cut:
            return
        play = self.play
        monitor = None
        if self._model.watched is not None and play.replayed.monitor is not None:
            if (queue := play.replayed.queue) is not None:
                queue.finish()
                for nth in self._forgotten & queue.held.keys():
                    queue.held[nth] = None
            play.give_up(sorted(self._forgotten))
            monitor = play.monitor(connection, self._cut)
        opened = {nth: receipt for nth, receipt in play.open.items() if nth not in self._forgotten}
        cells = play.cells if self._stream.shape.groups is not None else None
        said = play.unread_said()
        self._base = Base(self._cut, self._forecasts, play.replayed.state, monitor, cells, opened, said)

    def catch_up(self, connection: Any) -> None:
        """Replay what was noted meanwhile, as long as it is much. The log may be behind it."""
        while len(self.tail) > TAIL:
            self.feed_tail(connection, OPERATIONS_AT_ONCE)

    def feed_tail(self, connection: Any, most: int) -> None:
        """Some of what was noted, up to where another process has done something: from there on the log is read."""
        part = [self.tail.popleft() for _ in range(min(most, len(self.tail)))]
        part = [event for event in part if event.number >= self._next]
        self.feed([event for at, event in enumerate(part, self._next) if event.number == at], connection)

    def note(self, number: int, verb: str, now: float) -> None:
        """Something was done to the stream."""
        self.tail.append(Logged(number, -1, now, None, number, None, None, None, verb=verb))

    # ---- on the engine's thread -------------------------------------------------------------------------------------

    def apply(self, store: Store, state: StreamState, now: float) -> bool:
        """Put the new state in the place of the old one, inside a group that has the stream -> whether it could."""
        connection, stream = store.connection, stream_of(store.connection, self.number)
        known, self._is_shared = self._stream, bool(store.retries)
        if stream is None or (stream.base_seq, stream.since) != (known.base_seq, known.since):
            return False  # somebody else was first
        if self._is_late(connection):
            return False
        self.feed_tail(connection, len(self.tail))
        if self._next != stream.seq:  # another process has written it
            rest = log_of(connection, [stream]).of(stream)
            self.feed([event for event in rest if event.number >= self._next], connection)
        if self._next != stream.seq:
            return False
        self._reach_base(connection)
        changed = self._changed(store)
        self._sums(connection, state, changed.values())
        self._events(store, stream, changed, now)
        self._state(connection, stream, state)
        applied = f"UPDATE correction SET applied = 1 WHERE number {store.one_of}"  # noqa: S608 - our own condition
        connection.run(applied, (store.as_list(self._items),))
        connection.run_many(
            "DELETE FROM correction WHERE stream = ? AND nth = ?", [(self.number, nth) for nth in self._forgotten]
        )
        self.is_applied, self.changed = True, len(changed)
        return True

    def _is_late(self, connection: Any) -> bool:
        """Whether something came meanwhile that could not be corrected any more behind this.

        Behind a new base nothing is; and an outcome that is retracted here cannot be corrected afterwards.
        """
        (count,) = connection.all("SELECT count(*) FROM correction WHERE stream = ? AND applied = 0", (self.number,))[0]
        if count == len(self._items):
            return False
        newer = connection.all(
            "SELECT c.number, c.nth, e.outcome_seq FROM correction c "
            "JOIN event e ON e.stream = c.stream AND e.nth = c.nth "
            "WHERE c.stream = ? AND c.applied = 0 AND c.is_forgetting = 0",
            (self.number,),
        )
        retracted = {nth for nth, outcome in self._outcomes.items() if outcome is None}
        late = {number for number, nth, seq in newer if nth in retracted or (seq is not None and seq < self._cut)}
        return not late <= set(self._items)

    def _changed(self, store: Store) -> dict[int, Event]:
        """The events that change, as they are now."""
        known = {nth: self._known[nth] for nth in self._outcomes}
        rows = store.connection.all(
            f"{_EVENT}WHERE stream = ? AND nth {store.one_of}", (self.number, store.as_list(self._forgotten))
        )
        return known | {row[0]: Event(*row) for row in rows}

    def _sums(self, connection: Any, state: StreamState, changed: Iterable[Event]) -> None:
        """Take what was wrong out of the sums and roll-ups, and put in what is right."""
        wrong, right = list[tuple[Event, float]](), list[tuple[Event, float]]()  # an event, and its outcome or NaN
        for event in changed:
            if event.is_learnt:
                wrong.append((event, float(event.outcome or 0)))
            if event.nth in self._forgotten:
                wrong.append((event, nan))
            elif (outcome := self._outcomes[event.nth]) is not None:
                right.append((event, float(outcome)))
        less, more = self._rolled(wrong), self._rolled(right)
        sums = np.frombuffer(state.sums) + np.frombuffer(more.sums[0]) - np.frombuffer(less.sums[0])
        rows: list[TableRow] = [*more.rollups, *((*row[:4], *(-number for number in row[4:])) for row in less.rollups)]
        marks = ", ".join("?" * 9)
        connection.run_many(f"{INSERT_ROLLUPS}VALUES ({marks}){ADD_TO_ROLLUPS}", rows)
        connection.run("DELETE FROM rollup WHERE stream = ? AND forecasts = 0 AND outcomes = 0", (self.number,))
        for event in changed:
            if event.nth in self._forgotten:
                state.outcomes -= event.is_learnt
                state.expired -= event.status in {EXPIRED, ASSUMED, LATE}
                state.pending -= event.status == PENDING
                state.held -= event.status in {HELD, WAITING}
            elif self._outcomes[event.nth] is None:
                state.outcomes -= 1
                if event.status != LATE:  # it is among the expired
                    state.pending += event.seq >= self._reset
                    state.expired += event.seq < self._reset
        state.sums = sums.tobytes() if state.outcomes else bytes(8 * SUMS)
        (errors,) = errors_of(np.frombuffer(state.sums))
        state.error, state.raw_error = errors

    def _rolled(self, operations: list[tuple[Event, float]]) -> Rollups:
        events = [event for event, _ in operations]
        outcomes, losses = of_named_classes(events, [outcome for _, outcome in operations])
        return Rollups(
            slots=[0] * len(events),
            times=[event.time for event in events],
            scores=[event.score for event in events],
            forecasts=[event.forecast for event in events],
            outcomes=outcomes,
            losses=losses,
            ages=[(event.outcome_time or event.time) - event.time for event in events],
            numbers=[self.number],
            sums=[bytes(8 * SUMS)],
        )

    def _events(self, store: Store, stream: LoggedStream, changed: dict[int, Event], now: float) -> None:
        """The events themselves, and the receipts that later outcomes or replays need."""
        connection = store.connection
        receipts = dict(self._base.open if self._base is not None else {}) | self.play.open
        by_outcome = defaultdict[int, list[int]](list)
        for nth, outcome in self._outcomes.items():
            if outcome is not None:
                by_outcome[outcome].append(nth)
        for outcome, which in by_outcome.items():  # a statement for each event would hold up the others
            connection.run(
                f"UPDATE event SET outcome = ? WHERE stream = ? AND nth {store.one_of}",  # noqa: S608
                (outcome, stream.number, store.as_list(which)),
            )
        retracted = [changed[nth] for nth, outcome in self._outcomes.items() if outcome is None]
        connection.run_many(
            "UPDATE event SET status = ?, outcome = NULL, outcome_time = NULL, outcome_seq = NULL "
            "WHERE stream = ? AND nth = ?",
            # Forecasts that were made before a reset are not waited for.
            [
                (PENDING if event.seq >= self._reset and event.status != LATE else EXPIRED, stream.number, event.nth)
                for event in retracted
            ],
        )
        for event in retracted:
            note(connection, stream.number, event.outcome_seq, now, "retracted", nth=event.nth)
        connection.run_many(
            "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
            [(receipt, stream.number, nth) for nth, receipt in receipts.items() if nth not in self._forgotten],
        )
        connection.run_many(  # nor are their outcomes learnt late: the base may have needed their receipts
            "UPDATE event SET receipt = NULL WHERE stream = ? AND nth = ?",
            [(stream.number, event.nth) for event in retracted if event.seq < self._reset],
        )
        for nth in self._forgotten & changed.keys():
            connection.run("DELETE FROM event WHERE stream = ? AND nth = ?", (stream.number, nth))
            note(connection, stream.number, changed[nth].seq, now, "forgotten", nth=nth)
        # What the method says is needed of events that the monitor has not read, or had not at the base. The replay has
        # not made those before the base that it began with.
        said = (self._base.said if self._base is not None else {}) | self.play.unread_said()
        rows = [(stream.number, nth, *of) for nth, of in said.items() if nth not in self._forgotten]
        connection.run("DELETE FROM said WHERE stream = ? AND nth >= ?", (stream.number, stream.base_events))
        forgotten = f"DELETE FROM said WHERE stream = ? AND nth {store.one_of}"  # noqa: S608 - our own condition
        connection.run(forgotten, (stream.number, store.as_list(self._forgotten)))
        connection.run_many(f"{INSERT_SAID}VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _state(self, connection: Any, stream: LoggedStream, state: StreamState) -> None:
        """The row of the stream."""
        play = self.play
        if self._model.watched is not None:
            if play.replayed.monitor is not None:
                play.give_up([*self.given_up, *sorted(self._forgotten)])
            if self._is_shared and play.replayed.monitor is not None:  # another process may have given up others
                play.monitor(connection, stream.seq)
            state.alarms += alarms_of(play.replayed.monitor) - alarms_of(state.monitor)
            state.monitor = play.replayed.monitor
        state.state = play.replayed.state
        base = self._base
        if base is None:
            base = Base(stream.base_seq, stream.base_events, stream.base, stream.base_monitor, None, {}, {})
        if stream.shape.groups is not None:
            replace_cells(connection, stream.number, play.cells)
        if base.cells is not None:
            replace_cells(connection, stream.number, base.cells, is_base=True)
        connection.run(
            "UPDATE stream SET outcomes = ?, pending = ?, held = ?, expired = ?, alarms = ?, error = ?, raw_error = ?, "
            "raw_log_loss = ?, log_loss = ?, since = ?, base_seq = ?, base_events = ?, base = ?, base_monitor = ?, "
            "version = version + 1 WHERE number = ?",
            (
                *(state.outcomes, state.pending, state.held, state.expired, state.alarms, state.error, state.raw_error),
                *(state.raw_log_loss, state.log_loss),
                # What was told before is not what the new state says.
                stream.seq if self._outcomes else stream.since,
                *(base.seq, base.events, base.state, base.monitor, stream.number),
            ),
        )
        connection.run(
            "UPDATE body SET sums = ?, state = ?, monitor = ? WHERE stream = ?",
            (state.sums, state.state, state.monitor, stream.number),
        )


def operations_of(plan: Plan, number: int) -> Iterator[Logged]:
    """What a group has done to a stream, as its log has it."""
    asked = plan.operations
    for record, outcome in zip(asked.records, asked.outcomes, strict=True):
        if record.stream != number:
            continue
        if outcome == outcome:  # noqa: PLR0124 - not NaN
            assert record.outcome_seq is not None  # noqa: S101 - it is learnt
            yield Logged(
                *(record.outcome_seq, record.nth, record.outcome_time, int(outcome), record.seq, record.outcome_seq),
                *(record.receipt, record.given),
                status=record.status,
            )
        else:
            yield Logged(
                *(record.seq, record.nth, record.time, None, record.seq, record.outcome_seq, None, record.given, False),
                *(record.score, record.forecast, record.issued, record.status),
            )


# ---- who does it ----------------------------------------------------------------------------------------------------


def waiting_streams(connection: Any) -> list[tuple[int, str]]:
    """The streams that have something to be applied: number and name."""
    return [
        (int(number), str(name))
        for number, name in connection.all(
            f"SELECT s.number, s.name FROM stream s WHERE s.mode <> {DELETING} AND s.number IN "  # noqa: S608
            "(SELECT c.stream FROM correction c WHERE c.applied = 0) ORDER BY s.number"
        )
    ]


class Reworker:
    """A thread that makes streams anew, one after another."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine, self._url = engine, url
        self._is_stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-rework", daemon=True)
        # Other processes write to a server, and may leave something behind.
        self._look = None if sqlite_path(url) is not None else LOOK_SECONDS

    def start(self) -> None:
        """Look for what a process before has left, then wait."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """There is something to be done."""
        self._wake.set()

    def stop(self) -> None:
        """End. What is not done is done after the next start."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._look
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._is_stopping:
                return
            pause = self._look
            try:
                if not self._do_all():
                    pause = AGAIN_SECONDS
            except Exception as error:  # noqa: BLE001 - such as a database that is away: it is tried again
                _log.warning("corrections could not be applied, and are tried again: %s", " ".join(str(error).split()))
                pause = AGAIN_SECONDS

    def _do_all(self) -> bool:
        """All streams that have something to be applied -> whether all of it was."""
        is_done = True
        with closing(open_connection(self._url)) as connection:
            for number, name in waiting_streams(connection):
                # If another process does it, look again soon: it may be killed.
                is_done &= bool(connection.try_lock(number)) and self._try(connection, number, name)
                if self._is_stopping:
                    break
        return is_done

    def _try(self, connection: Any, number: int, name: str) -> bool:
        """One stream. A fault with it must not keep the others waiting."""
        try:
            return self._do(connection, number, name)
        except connection.outages:
            raise
        except Exception:  # noqa: BLE001 - whatever it is: it is tried again
            _log.exception("stream %d could not be made anew", number)
            return False

    def _do(self, connection: Any, number: int, name: str) -> bool:
        rework = Rework(number, name)
        self._engine.reworks[number] = rework  # from now on it notes what happens
        try:
            connection.begin_reading()
            try:
                rework.start(connection, self._engine.model)
                for _ in rework.replay(connection):
                    time.sleep(PAUSE)
                    if self._is_stopping:
                        return False
                rework.catch_up(connection)
            finally:
                connection.rollback()
            self._engine.finish(rework)
            while not rework.ended.wait(AGAIN_SECONDS) and not self._is_stopping:
                pass
        finally:
            self._engine.reworks.pop(number, None)
        return rework.is_applied
