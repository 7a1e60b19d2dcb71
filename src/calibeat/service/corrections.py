"""The past of a stream is changed while it is served: outcomes are corrected or retracted, events are forgotten.

A thread replays the stream with what is right, and only reads. The receipts of its open events are stored beside the
old ones, some at a time, so that other streams never wait. Then the engine plays what has come since, and puts the new
state in the place of the old one, in one commit: before it nothing has changed, after it everything has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from . import ops
from .events import Refusal
from .replay import Replay, new_version, operations_of, right_outcomes, rollups_of
from .store import Store, open_connection
from .store.schema import get_meta, set_meta
from .store.types import (
    ADD_TO_ROLLUPS,
    DELETING,
    INSERT_ROLLUPS,
    Record,
    StreamState,
    TableRow,
    receipt_row,
    replace_cells,
    stream_of,
)
from .watch import alarms_of

if TYPE_CHECKING:
    from .engine import Engine

RECEIPTS_AT_ONCE = 1_000  # that are stored between two groups
TAIL = 200  # operations that the engine may replay itself, at the end
PAUSE = 0.001  # seconds after each piece of a replay, for the others
AGAIN_SECONDS = 1.0  # after something has failed
# A correction of what was not learnt yet needs no replay.
_WRONG = f"kind IN ({ops.CORRECT}, {ops.FORGET}) AND corrects IS NOT NULL"
_WAITING = (
    f"SELECT position, kind, nth, corrects FROM op WHERE stream = ? AND position > ? AND {_WRONG} "  # noqa: S608
    "ORDER BY position"
)
_STREAMS = (
    f"SELECT DISTINCT s.number FROM op c JOIN stream s ON s.number = c.stream WHERE c.{_WRONG} "  # noqa: S608
    f"AND c.position > s.applied AND s.mode <> {DELETING} ORDER BY s.number"
)
_TAIL = f"SELECT {', '.join(ops.OP_COLUMNS)} FROM op WHERE position > ? AND stream = ? ORDER BY position"  # noqa: S608

_log = logging.getLogger("calibeat.service")


@dataclass(eq=False)
class Correction:
    """One stream that is made anew: what waits to be applied, and the replay with it."""

    replay: Replay
    applied: int  # the position up to which corrections are in it
    version: int  # of the new receipts
    total: int  # operations to be replayed
    numbers: frozenset[int]  # of the events that are corrected
    prepared: dict[int, Record] = field(default_factory=dict)  # events whose new receipts are stored

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.replay.stream.name


class Corrections:
    """Makes streams anew, one after another: on a thread of its own, or at once where the engine has none."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.url = ""
        self.current: Correction | None = None
        self._forgetting: dict[int, list[Any]] = {}  # tickets that wait until something is forgotten, by stream
        self._done: list[Any] = []  # of them: those that are
        self._is_hurrying = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for what a process before has left, then wait."""
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name="calibeat-history", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to be done."""
        self._wake.set()

    def stop(self) -> None:
        """End. What is not done is done after the next start."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def progress(self, name: str) -> float | None:
        """How much of a stream is replayed that is being made anew; None if it is not."""
        current = self.current
        if current is None or current.name != name:
            return None
        return min(1.0, current.replay.operations / max(1, current.total))

    # ---- who waits until something is forgotten, on the engine's thread ----------------------------------------------

    def wait_for(self, number: int, ticket: Any) -> None:
        """Somebody is answered once it is done."""
        self._forgetting.setdefault(number, []).append(ticket)
        self.wake()

    def answered(self, number: int) -> list[tuple[Any, Any]]:
        """What was to be forgotten of a stream is, or it is gone with its stream -> answers."""
        return [(ticket, ["forgotten"]) for ticket in self._forgetting.pop(number, [])]

    def hurry(self) -> None:
        """Nobody is to wait any longer."""
        self._is_hurrying = True

    def refused(self) -> list[tuple[Any, Any]]:
        """Answers to whoever is not to wait any longer: the next start does it."""
        if not self._is_hurrying or not self._forgetting:
            return []
        sentence = "the service must run to forget, got one that stops - it is done after the next start"
        return self.refused_by(Refusal("stopping", sentence, None, 503))

    def refused_by(self, refusal: Refusal) -> list[tuple[Any, Any]]:
        """The same, with a reason."""
        tickets = [ticket for each in self._forgetting.values() for ticket in each]
        self._forgetting.clear()
        return [(ticket, refusal) for ticket in tickets]

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause: float | None = None
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                pause = None if self._do_all() else AGAIN_SECONDS
            except Exception as error:  # noqa: BLE001 - such as a database that is away: it is tried again
                if self._stopping.is_set():
                    return
                _log.warning("corrections could not be applied, and are tried again: %s", " ".join(str(error).split()))
                pause = AGAIN_SECONDS

    def do_all(self) -> int:
        """Apply everything that waits, where no thread does -> how many events were changed."""
        engine, changed = self._engine, 0
        engine.write_out()
        while True:
            with closing(open_connection(self.url)) as connection:
                numbers = [number for (number,) in connection.all(_STREAMS)]
                for number in numbers:
                    changed += self._do(connection, number)
            if not numbers:
                return changed

    def _do_all(self) -> bool:
        """All streams of which something waits -> whether all of it was done."""
        is_done = True
        self._engine.wait_until_written()
        with closing(open_connection(self.url)) as connection:
            for (number,) in connection.all(_STREAMS):
                if self._stopping.is_set():
                    return True
                try:
                    self._do(connection, number)
                except (InterruptedError, *connection.outages):
                    raise
                except Exception:  # noqa: BLE001 - a fault with one must not keep the others waiting
                    _log.exception("stream %d could not be made anew", number)
                    is_done = False
            return is_done and not connection.all(_STREAMS)

    def _do(self, connection: Any, number: int) -> int:
        try:
            made = self.prepare(connection, number)
            return 0 if made is None else int(self._engine.between(partial(self.put_in_place, made)))
        finally:
            self.current = None
            connection.rollback()

    def prepare(self, connection: Any, number: int) -> Correction | None:
        """Replay a stream, and store the receipts of its new state; None if there is nothing to do, or no time."""
        engine = self._engine
        connection.begin_reading()
        made = self.current = self._begin(connection, number)
        if made is None:
            return None
        until = int(get_meta(connection)["flushed"])
        for operations in made.replay.log(connection, until):
            made.replay.feed(operations)
            if engine.behind.may_wait:
                time.sleep(PAUSE)
            if self._stopping.is_set():
                return None
        made.replay.position = max(made.replay.position, until)
        connection.rollback()
        self._catch_up(connection, made)
        for part in _pieces(made):
            engine.between(partial(self._store_receipts, part))
            if self._stopping.is_set():
                return None
        self._catch_up(connection, made)
        return made

    def _begin(self, connection: Any, number: int) -> Correction | None:
        """What waits for a stream, and its replay."""
        stream = stream_of(connection, number)
        if stream is None:
            return None
        waiting = connection.all(_WAITING, (number, stream.applied))
        if not waiting:
            return None
        applied = waiting[-1][0]
        forgotten = frozenset(nth for _, kind, nth, _ in waiting if kind == ops.FORGET)
        numbers = frozenset(nth for _, kind, nth, _ in waiting if kind == ops.CORRECT) - forgotten
        model = self._engine.model
        if get_meta(connection).get("monitor_whole", "1") != "1":
            model = replace(model, watched=None)  # a monitor that has changed in the middle cannot be replayed
        replay = Replay(
            model,
            stream,
            right_outcomes(connection, number, applied),
            numbers,
            forgotten,
            self._cut(connection, number, forgotten, stream.base),
        )
        replay.start(connection)
        version, unfinished = new_version(connection, stream, replay.base)
        if unfinished:
            self._engine.between(partial(self._spend, [(number, each) for each in unfinished]))
        return Correction(replay, applied, version, stream.events + stream.outcomes, numbers)

    @staticmethod
    def _cut(connection: Any, number: int, forgotten: frozenset[int], base: int) -> float:
        """The position behind which nothing remembers the events that are to be forgotten."""
        last = -inf
        for nth in forgotten:
            for position, learnt in connection.all(
                "SELECT position, learnt FROM event WHERE stream = ? AND nth = ?", (number, nth)
            ):
                last = max(last, position, learnt or 0, base)
        return inf if last == -inf else last

    def _catch_up(self, connection: Any, made: Correction) -> None:
        """Replay what has come meanwhile, as long as it is much."""
        while True:
            rest = _tail(connection, made)
            made.replay.feed(rest)
            if len(rest) <= TAIL:
                return

    # ---- on the engine's thread -------------------------------------------------------------------------------------

    def _is_late(self, made: Correction) -> bool:
        """Whether something came meanwhile that could not be corrected any more behind this.

        Behind a new base nothing is; and an outcome that is retracted here cannot be corrected afterwards.
        """
        newer = self._engine.store.connection.all(_WAITING, (made.replay.stream.number, made.applied))
        gone = {position for position, outcome in made.replay.right.items() if outcome is None}
        return any(
            kind == ops.CORRECT and corrects is not None and (corrects in gone or corrects <= made.replay.cut < inf)
            for _, kind, _, corrects in newer
        )

    def _spend(self, receipts: list[tuple[int, int]]) -> None:
        store = self._engine.store
        store.begin()
        self._engine.chores.spend(store.connection, receipts)
        store.commit()

    def _store_receipts(self, rows: list[TableRow]) -> None:
        store = self._engine.store
        store.begin()
        store.add_receipts(rows)
        store.commit()

    def put_in_place(self, made: Correction) -> int:
        """Put the new state in the place of the old one -> how many events have changed."""
        engine = self._engine
        engine.write_out()
        store, replay, number = engine.store, made.replay, made.replay.stream.number
        state = stream_of(store.connection, number)
        if state is None or state.mode == DELETING or state.applied != replay.stream.applied:
            return 0
        if self._is_late(made):
            return 0
        replay.feed(_tail(store.connection, made))
        replay.finish()
        store.begin()
        for name in [name for name, each in engine.streams.items() if each.number == number]:
            del engine.streams[name]  # it is read again
        swap = Swap(store, made, state)
        changed = swap.do(engine.end.position + 1, engine.clock())
        spent = [(number, state.receipts)]
        if replay.new_base is not None and replay.base.receipts >= 0:
            spent.append((number, replay.base.receipts))
        engine.chores.spend(store.connection, spent)
        store.commit()
        engine.end.position = swap.position
        if replay.forgotten:
            engine.chores.is_erasing = not store.erase()
            engine.hooks.deliver(self.answered(number))
        return changed


def _tail(connection: Any, made: Correction) -> list[ops.Op]:
    rows = connection.all(_TAIL, (made.replay.position, made.replay.stream.number))
    return [ops.Op(*row) for row in rows]


def _pieces(made: Correction) -> Iterator[list[TableRow]]:
    """The receipts of the events that are open now, some at a time; of a new base too."""
    made.prepared = {nth: record for nth, record in made.replay.open.items() if record.receipt is not None}
    rows = [receipt_row(record, made.version) for record in made.prepared.values()]
    for first in range(0, len(rows), RECEIPTS_AT_ONCE):
        yield rows[first : first + RECEIPTS_AT_ONCE]
    base = made.replay.new_base
    if base is not None:
        base.receipts = made.version + 1
        rows = [(row[0], base.receipts, *row[2:]) for row in base.open]
        for first in range(0, len(rows), RECEIPTS_AT_ONCE):
            yield rows[first : first + RECEIPTS_AT_ONCE]
        base.open = []


class Swap:
    """The new state of a stream takes the place of the old one."""

    def __init__(self, store: Store, made: Correction, state: Any) -> None:
        self._store, self._connection, self._made, self._replay = store, store.connection, made, made.replay
        self._state, self._number = state, state.number
        self.position = 0  # of the last operation

    def do(self, position: int, now: float) -> int:
        """Write it, and that it was done, into the log -> how many events have changed."""
        replay, run = self._replay, self._connection.run
        rows = [ops.row_of(position, self._number, ops.APPLY, at=now, corrects=self._made.applied)]
        if replay.new_base is not None:
            rows += shape_rows(self._state, position + 1, now)
            position = rows[-1][0]
        self._store.append(rows)
        changed = self._events()
        self._receipts()
        self._base()
        self._stream()
        run("DELETE FROM rollup WHERE stream = ? AND forecasts = 0 AND outcomes = 0", (self._number,))
        set_meta(self._connection, "flushed", str(position))
        self.position = position
        if replay.stream.shape.groups is not None:
            replace_cells(self._connection, self._number, replay.cells)
        return changed

    def _events(self) -> int:
        """The events that were corrected, those that are forgotten, and the sums of both."""
        store, number, replay = self._store, self._number, self._replay
        asked = [(number, nth) for nth in [*self._made.numbers, *replay.forgotten]]
        before = store.numbered(asked) if asked else {}
        after = {nth: record for nth in self._made.numbers if (record := self._now(nth)) is not None}
        wrong = [each for record in before.values() for each in operations_of(record)]
        right = [each for record in after.values() for each in operations_of(record)]
        less, more = rollups_of(replay.state, wrong).rollups, rollups_of(replay.state, right).rollups
        rows = [*more, *((*row[:4], *(-value for value in row[4:])) for row in less)]
        marks = ", ".join("?" * 10)
        self._connection.run_many(f"{INSERT_ROLLUPS}VALUES ({marks}){ADD_TO_ROLLUPS}", rows)
        self._connection.run_many(
            "UPDATE event SET status = ?, outcome = ?, weight = ?, trials = ?, outcome_time = ?, learnt = ? "
            "WHERE stream = ? AND nth = ?",
            [
                (r.status, r.outcome, r.weight, r.trials, r.outcome_time, r.learnt, number, nth)
                for nth, r in after.items()
            ],
        )
        for _, nth in [key for key in before if key[1] in replay.forgotten]:
            record = before[number, nth]
            forget_event(self._connection, record)
        kept = [nth for _, nth in before if nth in after]
        same = sum(
            (before[number, nth].status, before[number, nth].observed) == (after[nth].status, after[nth].observed)
            for nth in kept
        )
        return len(before) - same

    def _now(self, nth: int) -> Record | None:
        return self._replay.open.get(nth) or self._replay.changed.get(nth)

    def _receipts(self) -> None:
        """Those that were stored have grown old by what has come since."""
        made, replay, number = self._made, self._replay, self._number
        current = {nth: record for nth, record in replay.open.items() if record.receipt is not None}
        gone = [(number, made.version, nth) for nth in made.prepared.keys() - current.keys()]
        self._connection.run_many("DELETE FROM receipt WHERE stream = ? AND version = ? AND nth = ?", gone)
        new = [receipt_row(current[nth], made.version) for nth in current.keys() - made.prepared.keys()]
        self._store.add_receipts(new)
        own = replay.unread()
        if replay.new_base is not None:
            own |= replay.own_at_base
        run = self._connection.run
        run(
            "UPDATE event SET own = NULL WHERE stream = ? AND own IS NOT NULL AND position > ?",
            (number, replay.base.position),
        )
        rows = [(each, number, nth) for nth, each in own.items() if nth not in current]
        self._connection.run_many("UPDATE event SET own = ? WHERE stream = ? AND nth = ?", rows)

    def _base(self) -> None:
        base = self._replay.new_base
        if base is not None:
            base.write(self._connection, self._number)
            if self._replay.stream.shape.groups is not None:
                replace_cells(self._connection, self._number, base.cells, is_base=True)

    def _stream(self) -> None:
        """The row of the stream."""
        replay, new, old = self._replay, self._replay.state, self._state
        alarms, monitor = old.alarms, old.monitor
        if replay.model.watched is not None:
            alarms += alarms_of(new.monitor) - alarms_of(old.monitor)
            monitor = new.monitor
        base = old.base if replay.new_base is None else replay.new_base.position
        self._connection.run(
            "UPDATE stream SET outcomes = ?, pending = ?, held = ?, expired = ?, alarms = ?, error = ?, raw_error = ?, "
            "raw_log_loss = ?, log_loss = ?, weights = ?, base = ?, applied = ?, receipts = ? WHERE number = ?",
            (
                *(new.outcomes, new.pending, new.held, new.expired, alarms, new.error, new.raw_error),
                *(
                    new.raw_log_loss,
                    new.log_loss,
                    new.weights,
                    base,
                    self._made.applied,
                    self._made.version,
                    self._number,
                ),
            ),
        )
        self._connection.run(
            "UPDATE body SET sums = ?, state = ?, monitor = ? WHERE stream = ?",
            (new.sums, new.state, monitor, self._number),
        )


def forget_event(connection: Any, record: Record) -> None:
    """Delete an event, and its operations."""
    which = (record.stream, record.nth)
    connection.run("DELETE FROM event WHERE stream = ? AND nth = ?", which)
    connection.run("DELETE FROM op WHERE position = ? OR position = ?", (record.position, record.learnt))
    connection.run(
        f"DELETE FROM op WHERE stream = ? AND nth = ? AND kind > 1 AND kind < {ops.FORGET}",  # noqa: S608
        which,
    )


def shape_rows(stream: StreamState, position: int, now: float) -> list[TableRow]:
    """What the events of a stream look like, as an operation: the first numbers of its groups may not be kept."""
    if stream.shape.groups is None or not stream.shape.groups.numbers:
        return []
    return [ops.row_of(position, stream.number, ops.DEFINE, at=now, given=stream.shape.to_text().encode())]
