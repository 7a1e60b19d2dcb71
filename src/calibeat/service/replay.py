"""The replay of a stream: its operations once more, from its base, with what is right.

What was learnt cannot be unlearnt, because the state has moved on. So whatever changes the past of a stream replays
it: corrections and forgetting, pruning, another method, an upgrade; and a check compares a replay with what is there.
A base is nothing at first. Pruning and forgetting move it forward, to a state behind the events that are gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np

from calibeat.core.stats import EVENTS
from calibeat.monitor.monitors import first_unread

from . import ops
from .events import Observed
from .fold import GroupFold, Right, of_named_classes, record_of
from .model import Model, StoredCell, all_cells
from .ops import OP_COLUMNS, Op
from .pending import Pending
from .rollups import Rollups, errors_of, weights_of
from .shape import Shape
from .store.schema import get_meta
from .store.types import (
    ASSUMED,
    DROPPING,
    EXPIRED,
    FROZEN,
    HELD,
    LATE,
    LEARNT,
    PASSTHROUGH,
    PENDING,
    RESUMING,
    SUMS,
    WAITING,
    Record,
    StreamState,
    TableRow,
    numbered,
    receipt_row,
    settled_after,
    stored_cells,
)

OPERATIONS_AT_ONCE = 5_000  # in one fold
MOST_OWN = 10_000  # forecasts that are remembered beside those that wait
_COLUMNS = ", ".join(f"o.{column}" for column in OP_COLUMNS)
_FORECASTS = (
    f"SELECT {_COLUMNS} FROM event e JOIN op o ON o.position = e.position "  # noqa: S608 - our own text
    "WHERE e.stream = ? AND e.position > ? AND e.position <= ? ORDER BY e.nth"
)
_OUTCOMES = (
    f"SELECT {_COLUMNS} FROM event e JOIN op o ON o.position = e.learnt "  # noqa: S608 - our own text
    f"WHERE e.stream = ? AND e.learnt > ? AND e.learnt <= ? AND o.kind = {ops.OUTCOME} ORDER BY e.learnt"
)
_OTHERS = (
    f"SELECT {_COLUMNS} FROM op o "  # noqa: S608 - our own text
    "WHERE o.stream = ? AND o.position > ? AND o.position <= ? AND o.kind > 1 ORDER BY o.position"
)
_WHOLE = f"SELECT {_COLUMNS} FROM op o WHERE o.stream = ? AND o.position > ? ORDER BY o.position LIMIT ?"  # noqa: S608
_RIGHT = (
    "SELECT corrects, x, weight, trials FROM op WHERE stream = ? AND position <= ? AND "  # noqa: S608 - our own numbers
    f"kind = {ops.CORRECT} AND corrects IS NOT NULL ORDER BY position"
)
_OPEN = (
    "SELECT e.stream, e.nth, e.id, e.position, e.time, r.status, r.outcome, r.weight, r.trials, r.outcome_time, NULL, "
    "r.own, o.x, o.told, o.given, o.issued, o.band, r.receipt "
    "FROM receipt r JOIN event e ON e.stream = r.stream AND e.nth = r.nth "
    "JOIN op o ON o.position = e.position WHERE r.stream = ? AND r.version = ? AND length(r.receipt) > 0"
)
IS_LEARNT = {LEARNT, ASSUMED, LATE}
_SKIPPED = {ops.BEGIN, ops.APPLY, ops.FORGET}  # a replay knows of them from the start


def right_outcomes(connection: Any, stream: int, until: int) -> dict[int, Observed | None]:
    """The outcomes that corrections up to a position have put in the place of others: see `Right`."""
    rows = connection.all(_RIGHT, (stream, until))
    return {
        corrects: None if x is None else Observed.of_stored(int(x), weight, trials)
        for corrects, x, weight, trials in rows
    }


def last_verb(connection: Any, stream: int, *kinds: int) -> int:
    """The position of the last operation of these kinds; 0 if there is none."""
    kind = ", ".join(map(str, kinds))
    statement = f"SELECT coalesce(max(position), 0) FROM op WHERE stream = ? AND kind IN ({kind}) AND kind > 1"  # noqa: S608
    return int(connection.all(statement, (stream,))[0][0])


BASE_COLUMNS = ("position", "events", "outcomes", "expired", "receipts", "mode", "sums", "state", "monitor")


@dataclass
class Base:
    """Where replays of a stream begin: behind an operation."""

    position: int = 0
    events: int = 0
    outcomes: int = 0
    expired: int = 0
    receipts: int = -1  # the version of the receipts of events that were open then
    mode: int = 0
    sums: bytes = bytes(8 * SUMS)
    state: bytes | None = None
    monitor: bytes | None = None
    cells: list[StoredCell] = field(default_factory=list)
    open: list[TableRow] = field(default_factory=list)  # of a new base: the rows of those receipts

    @classmethod
    def of(cls, connection: Any, stream: StreamState) -> Base:
        """That of a stream."""
        rows = connection.all(f"SELECT {', '.join(BASE_COLUMNS)} FROM base WHERE stream = ?", (stream.number,))  # noqa: S608
        if not rows:
            return cls()
        made = cls(*rows[0][:6], *map(_bytes, rows[0][6:]))
        if stream.shape.groups is not None:
            made.cells = stored_cells(connection, stream.number, is_base=True)
        return made

    @classmethod
    def of_present(cls, stream: StreamState) -> Base:
        """The present state of a stream, which waits for no outcome."""
        counts = stream.base, stream.events, stream.outcomes, stream.expired
        return cls(*counts, -1, stream.mode, stream.sums, stream.state, stream.monitor)

    def write(self, connection: Any, number: int) -> None:
        """Let replays of a stream begin here; its cells and receipts are written beside."""
        connection.run("DELETE FROM base WHERE stream = ?", (number,))
        values = (getattr(self, name) for name in BASE_COLUMNS)
        marks = ", ".join("?" * (len(BASE_COLUMNS) + 1))
        connection.run(f"INSERT INTO base (stream, {', '.join(BASE_COLUMNS)}) VALUES ({marks})", (number, *values))  # noqa: S608


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def new_version(connection: Any, stream: StreamState, base: Base) -> tuple[int, list[int]]:
    """The version of receipts that are to be stored, and those that somebody stored and could not finish.

    A version that is about to be deleted is not used again, also where nothing of it is left.
    """
    last = max(stream.receipts, base.receipts)
    found = connection.all(
        "SELECT DISTINCT version FROM receipt WHERE stream = ? AND version > ?", (stream.number, last)
    )
    stored = {version for (version,) in found}
    spent = {
        version for number, version in json.loads(get_meta(connection).get("spent", "[]")) if number == stream.number
    }
    return 1 + max({last} | stored | spent), sorted(stored - spent)


@dataclass
class Replay:
    """A stream that is replayed: operations go in, a state comes out.

    In memory are a piece of the log, and the events whose outcome is still to come, with their receipts.
    """

    model: Model
    stream: StreamState  # as it is in the store
    right: Right = field(default_factory=dict)
    corrected: frozenset[int] = frozenset()  # numbers of events, of which `changed` has the end
    forgotten: frozenset[int] = frozenset()  # numbers of events that are to be deleted
    cut: float = inf  # the position behind which a new base is made
    is_anew: bool = False  # by another method than that of the base
    write: Callable[[Pending], None] | None = None  # takes what each piece changes in the tables
    on_reset: Callable[[], None] = lambda: None
    compares_after: float = inf  # the position behind which forecasts are compared with those that were answered
    position: int = 0  # of the last operation
    operations: int = 0  # so far
    state: StreamState = field(init=False)
    open: dict[int, Record] = field(default_factory=dict)  # events whose outcome may come, by their numbers
    changed: dict[int, Record] = field(default_factory=dict)  # corrected events to which nothing happens any more
    base: Base = field(default_factory=Base)  # where it begins
    new_base: Base | None = None
    own_at_base: dict[int, bytes] = field(default_factory=dict)  # as `unread`, at the new base
    differences: list[Record] = field(default_factory=list)  # forecasts that are not those that were answered
    other_bands: int = 0  # bands that are not
    _own: dict[int, bytes] = field(default_factory=dict)  # what the method forecasts where something else was answered
    _watched_from: int = 0
    _wrong: list[tuple[Record, float]] = field(default_factory=list)  # what the forgotten events were in the sums

    def start(self, connection: Any) -> None:
        """Begin with the base of the stream."""
        stream, base = self.stream, Base.of(connection, self.stream)
        self.base, self.position = base, base.position
        self._watched_from = last_verb(connection, stream.number, ops.METHOD)
        self.state = StreamState(
            stream.name,
            key=stream.key,
            number=stream.number,
            shape=self._first_shape(connection),
            state=base.state,
            monitor=base.monitor,
            events=base.events,
            outcomes=base.outcomes,
            expired=base.expired,
            mode=base.mode,
            sums=base.sums,
            base=base.position,
            applied=2**62,
        )
        for row in connection.all(_OPEN, (stream.number, base.receipts)):
            record = Record(*row)
            self.open[record.nth] = record
            self.state.pending += record.status == PENDING
            self.state.held += record.status in {HELD, WAITING}
        for nth in self.forgotten - self.open.keys():  # what was settled before the base is not played again
            for record in numbered(connection, stream.number, nth):
                if record.position <= base.position:
                    self._close(record)
        if self.is_anew and base.position:
            self._begin_anew()
        elif base.position:
            begun = 0 if base.monitor is None else first_unread(base.monitor)
            unread = settled_after(connection, stream, begun, base.position + 1)
            self.model.load([self.state], [unread], {stream.name: base.cells} if stream.shape.groups else {})

    def _first_shape(self, connection: Any) -> Shape:
        """The shape of the stream at its base: models that have joined since do so again."""
        shape = self.stream.shape
        if shape.models is None:
            return shape
        joins = f"SELECT count(*) FROM op WHERE stream = ? AND position > ? AND kind = {ops.JOIN} AND kind > 1"  # noqa: S608
        ((count,),) = connection.all(joins, (self.stream.number, self.base.position))
        return shape.of_first_models(len(shape.models) - count)

    def _begin_anew(self) -> None:
        """The state of another method knows of what is gone only how many forecasts there were."""
        state, base = self.state, self.base
        counts = state.pending, state.held
        state.state = state.monitor = None
        fold = GroupFold(0.0)
        for nth, record in sorted(self.open.items()):  # their outcomes are learnt by the new method
            state.events = nth
            fold.forecast(state, record)
        fold.run(self.model)
        rows, width = self.model.rows([state]), self.model.method_of(state).width
        rows[:, width + EVENTS] = base.events
        state.state, state.events = rows.tobytes(), base.events
        state.pending, state.held = counts
        for record in self.open.values():
            record.row, record.own = -1, None
        base.state, base.monitor, base.cells = state.state, None, self.cells
        base.open = [receipt_row(each, 0, is_base=True) for each in self.open.values()]

    def log(self, connection: Any, until: int) -> Iterator[list[Op]]:
        """The operations behind what was played, up to a position of the tables, some at a time."""
        which = (self.stream.number, self.position, until)
        cursors = [map(Op._make, connection.each(statement, which)) for statement in (_FORECASTS, _OUTCOMES, _OTHERS)]
        found = merge(*cursors, key=attrgetter("position"))
        while part := list(islice(found, OPERATIONS_AT_ONCE)):
            yield part

    def whole_log(self, connection: Any) -> Iterator[list[Op]]:
        """The same from the log alone, which has an index for that now."""
        while True:
            rows = connection.all(_WHOLE, (self.stream.number, self.position, OPERATIONS_AT_ONCE))
            if not rows:
                return
            yield [Op(*row) for row in rows]

    # ---- operations -------------------------------------------------------------------------------------------------

    def feed(self, part: list[Op]) -> None:
        """The next operations."""
        first = 0
        for at, op in enumerate(part):
            if op.position > self.cut and self.new_base is None:
                self._fold(part[first:at])
                self._make_base()
                first = at
            is_border = op.kind >= ops.FREEZE or (op.position > self._watched_from >= self.position)
            if is_border:
                self._fold(part[first:at])
                first = at
            if op.kind >= ops.FREEZE:
                self._do(op)
                first = at + 1
            self.position = op.position
        self._fold(part[first:])
        self.operations += len(part)

    def finish(self) -> None:
        """No more come."""
        if self.cut < inf and self.new_base is None:
            self._make_base()
        state = self.state
        (state.error, state.raw_error), *_ = errors_of(np.frombuffer(state.sums))
        if self.stream.shape.groups is not None:
            state.changed = []

    def _do(self, op: Op) -> None:
        """What was done to the stream."""
        state = self.state
        if op.kind == ops.FREEZE:
            state.mode = (state.mode & PASSTHROUGH) | FROZEN
        elif op.kind == ops.PASSTHROUGH:
            state.mode |= PASSTHROUGH
        elif op.kind == ops.RESUME:
            rest = DROPPING if op.id == "drop" else RESUMING
            state.mode = rest if state.mode & FROZEN else state.mode & (RESUMING | DROPPING)
        elif op.kind == ops.JOIN:
            self.model.join(state, op.id)
        elif op.kind == ops.RESET:
            state.mode &= FROZEN | PASSTHROUGH
            self.model.begin_anew(state)
            state.expired += state.pending + state.held
            state.pending = state.held = 0
            for record in self.open.values():
                record.status = EXPIRED
                record.observe(None, None)
                record.receipt, record.is_final, record.own = None, True, None
                self._close(record)
            self.open.clear()
            self._own.clear()
            self.on_reset()

    def _fold(self, part: list[Op]) -> None:
        if not part:
            return
        state, fold = self.state, self._new_fold(part[0].at)
        for op in part:
            fold.now = op.at
            if op.kind == ops.FORECAST:
                self.open[op.nth] = record_of(op)
            if op.kind == ops.DEFINE:
                fold.slot(state)  # it has a state from then on
            elif op.kind not in _SKIPPED:
                fold.do(op, state, self.open.get(op.nth), self.right)
        is_watched = part[0].position > self._watched_from
        fold.run(self.model if is_watched else replace(self.model, watched=None))
        pending = Pending()
        pending.add(fold, 0.0)
        if self.write is None:
            pending.finish()  # which adds to the sums of the stream
        else:
            self.write(pending)
        self._see(fold)
        if len(self._own) > 2 * len(self.open) + MOST_OWN:
            self._own = self.unread()

    def _new_fold(self, now: float) -> GroupFold:
        return GroupFold(now, is_noticed=self.write is not None, live=False, gathers=False)

    def _see(self, fold: GroupFold) -> None:
        """The events of a fold."""
        is_compared = self.compares_after < inf and not self.state.mode & PASSTHROUGH
        self.other_bands += sum(record.position > self.compares_after for record in fold.other_bands)
        for record in fold.changes.inserted:
            record.is_new, record.row = False, -1
            if is_compared and record.own is not None and record.position > self.compares_after:
                self.differences.append(record)
        for record in [*fold.changes.inserted, *fold.changes.settled]:
            if record.status in IS_LEARNT or record.is_final:
                self.open.pop(record.nth, None)
                self._close(record)

    def _close(self, record: Record) -> None:
        """Nothing happens to an event any more."""
        if record.own is not None:
            self._own[record.nth] = record.own
        if record.nth in self.corrected:
            self.changed[record.nth] = record
        if record.nth in self.forgotten:
            self._wrong += operations_of(record)
            self.state.outcomes -= record.status in IS_LEARNT
            self.state.expired -= record.status in {EXPIRED, ASSUMED, LATE}

    def unread(self) -> dict[int, bytes]:
        """What the method forecasts of events that the monitor has still to read, where something else was answered."""
        first = 2**62 if self.state.monitor is None else first_unread(self.state.monitor)
        return {nth: own for nth, own in self._own.items() if nth >= first}

    def _give_up(self, numbers: Mapping[int, Any] | frozenset[int]) -> None:
        """The monitor waits no longer for the outcomes of these."""
        self.model.fold([self.state], [], [], [], [], given_up=[(0, nth) for nth in sorted(numbers)])

    # ---- a new base -------------------------------------------------------------------------------------------------

    @property
    def cells(self) -> list[StoredCell]:
        """The cells of its groups as they are now."""
        return [] if self.state.table is None else all_cells(self.state.table)

    def _make_base(self) -> None:
        """Everything up to the cut is learnt: the state of this moment is where later replays begin."""
        state = self.state
        for nth in self.forgotten & self.open.keys():
            record = self.open.pop(nth)
            state.pending -= record.status == PENDING
            state.held -= record.status in {HELD, WAITING}
            record.learnt = None
            self._close(record)
        if self.forgotten:
            if (queue := state.queue) is not None:
                queue.finish()
                for nth in self.forgotten & queue.held.keys():
                    queue.held[nth] = None
            if self.model.watched is not None and state.monitor is not None:
                self._give_up(self.forgotten)
            less = rollups_of(state, self._wrong)
            sums = np.frombuffer(state.sums) - np.frombuffer(less.sums[0])
            state.sums = sums.tobytes() if state.outcomes else bytes(8 * SUMS)
            for nth in self.forgotten:
                self._own.pop(nth, None)
        self.new_base = Base(
            position=int(self.cut),
            events=state.events,
            outcomes=state.outcomes,
            expired=state.expired,
            mode=state.mode,
            sums=state.sums,
            state=state.state,
            monitor=state.monitor,
            cells=self.cells,
            open=[receipt_row(each, 0, is_base=True) for each in self.open.values() if each.receipt is not None],
        )
        self.own_at_base = {nth: own for nth, own in self.unread().items() if nth not in self.open}
        settled = (LEARNT, None, None, None, None)
        self.new_base.open += [(state.number, 0, nth, b"", own, *settled) for nth, own in self.own_at_base.items()]


def rollups_of(stream: StreamState, operations: list[tuple[Record, float]]) -> Rollups:
    """The sums and roll-ups of some operations of a stream: events, with their outcomes or NaN."""
    records = [record for record, _ in operations]
    outcomes, losses = of_named_classes(records, [outcome for _, outcome in operations])
    return Rollups(
        slots=[0] * len(records),
        times=[record.time for record in records],
        scores=[record.score for record in records],
        forecasts=[record.forecast for record in records],
        outcomes=outcomes,
        losses=losses,
        weights=weights_of(records, outcomes, stream.shape.odds_of(len(records))),
        ages=[(record.outcome_time or record.time) - record.time for record in records],
        numbers=[stream.number],
        sums=[bytes(8 * SUMS)],
    )


def operations_of(record: Record) -> list[tuple[Record, float]]:
    """What an event is in the sums: its forecast, and its outcome if that is learnt."""
    known = record.observed
    learnt = [(record, known.share)] if record.status in IS_LEARNT and known is not None else []
    return [(record, np.nan), *learnt]
