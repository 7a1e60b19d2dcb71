"""What is done to a store that no service writes to: replay, rebuild, prune, check. The command line calls these."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain, islice, takewhile
from math import isclose, nan
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibeat._util.progress import Step, no_progress
from calibeat._util.words import counted
from calibeat.core.method import method_named
from calibeat.core.stats import EVENTS
from calibeat.errors import InvalidInput
from calibeat.hosts.groups import GroupTable
from calibeat.monitor.monitors import first_unread

from .engine import (
    CONFIGURED,
    EngineSettings,
    check_described,
    claim_meta,
    description_of,
    model_of,
    stored_settings,
    write_settings,
)
from .model import Model, StoredCell, StreamBytes, all_cells
from .plan import of_named_classes
from .rollups import Rollups
from .shape import Shape
from .store import owned, reading
from .store.queries import totals_of
from .store.schema import get_meta, set_meta
from .store.types import (
    ASSUMED,
    DELETING,
    EXPIRED,
    GIVEN_UP,
    HELD,
    HOUR,
    INSERT_SAID,
    LATE,
    LEARNT,
    PENDING,
    SUMS,
    WAITING,
    replace_cells,
    settled_after,
    stored_cells,
)

OPERATIONS_AT_ONCE = 5_000  # in one fold
MOST_SAID = 10_000  # forecasts that are remembered beside those that wait
STREAMS_AT_ONCE = 500
_STREAM = (
    "number, name, seq, events, outcomes, pending, held, expired, since, watched_from, origin, base_seq, base_events, "
    "text, base, base_monitor"
)
_BODY = "LEFT JOIN body ON body.stream = stream.number"
_WITHIN = "FROM event WHERE stream >= ? AND stream <= ?"
_FORECASTS = (
    "SELECT stream, seq, nth, time, NULL, seq, outcome_seq, NULL, given, receipt IS NULL, score, forecast, issued, "
    f"status {_WITHIN} ORDER BY stream, nth"
)
_OUTCOMES = (
    "SELECT stream, outcome_seq, nth, outcome_time, outcome, seq, outcome_seq, receipt, given, FALSE, 0.0, 0.0, NULL, "
    f"status {_WITHIN} AND status IN ({LEARNT}, {ASSUMED}, {LATE}) AND outcome_seq IS NOT NULL "
    "ORDER BY stream, outcome_seq"
)
_CONTROLS = (
    "SELECT stream, seq, coalesce(nth, -1), time, NULL, seq, NULL, NULL, NULL, FALSE, 0.0, 0.0, NULL, 0, verb "
    "FROM control "
    "WHERE stream >= ? AND stream <= ? AND seq IS NOT NULL AND verb <> 'forgotten' ORDER BY stream, seq"
)
_WAS_RAW = (
    "SELECT verb FROM control WHERE stream = ? AND seq < ? AND verb IN ('passthrough', 'resume') "
    "ORDER BY seq DESC LIMIT 1"
)


Said = tuple[float, int | None, float, bytes | None]  # forecast, the class that is named, its score, all forecasts
T = TypeVar("T")

# ---- the log --------------------------------------------------------------------------------------------------------
#
# A stream is replayed from its base (nothing, what pruning or forgetting has left, or a state that was imported)
# through its forecasts, its learnt outcomes and what was done to it, in the order of their numbers. The database reads
# all three in order, and they are merged here. So only a piece of the log is in memory, and the receipts of forecasts
# whose outcome comes in a later piece.


class Logged(NamedTuple):
    """An operation of the log: a forecast, a learnt outcome, or something that was done to the stream."""

    number: int  # among the operations of its stream
    nth: int
    time: float | None
    outcome: int | None  # None: it is no outcome
    seq: int  # the number of the forecast
    outcome_seq: int | None
    receipt: Any  # of outcomes, where a replay needs it
    given: Any  # beside the score: see `Record`
    is_bare: bool = False  # of forecasts: without a receipt
    score: float = nan
    forecast: float = nan
    issued: Any = None
    status: int = LEARNT
    verb: str = ""  # what was done; empty for forecasts and outcomes


@dataclass
class LoggedStream:
    """A stream of the log, and what the store says of it."""

    number: int
    name: str
    seq: int
    events: int
    outcomes: int
    pending: int
    held: int
    expired: int
    since: int
    watched_from: int
    origin: str | None
    base_seq: int
    base_events: int
    shape: Shape
    base: bytes | None
    base_monitor: bytes | None
    state: bytes | None
    monitor: bytes | None


def streams_of(connection: Any, with_state: bool = True) -> Iterator[list[LoggedStream]]:
    """All streams, some hundred at a time, in the order of their numbers."""
    columns, body = (f"{_STREAM}, state, monitor", _BODY) if with_state else (f"{_STREAM}, NULL, NULL", "")
    last = -1
    while True:
        rows = connection.all(
            f"SELECT {columns} FROM stream {body} LEFT JOIN shape ON shape.stream = stream.number "  # noqa: S608
            f"WHERE number > ? AND mode <> {DELETING} ORDER BY number LIMIT {STREAMS_AT_ONCE}",
            (last,),
        )
        if not rows:
            return
        found = [_logged_stream(*row) for row in rows]
        last = found[-1].number
        yield found


def stream_of(connection: Any, number: int) -> LoggedStream | None:
    """One stream."""
    rows = connection.all(
        f"SELECT {_STREAM}, state, monitor FROM stream {_BODY} "  # noqa: S608 - our own text
        "LEFT JOIN shape ON shape.stream = stream.number "
        f"WHERE number = ? AND mode <> {DELETING}",
        (number,),
    )
    return _logged_stream(*rows[0]) if rows else None


def _logged_stream(*row: Any) -> LoggedStream:
    shape, blobs = Shape.from_text(row[13]), map(_bytes, row[14:])
    return LoggedStream(*row[:13], shape, *blobs)  # type: ignore[call-arg]  # as selected


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class InOrder(Generic[T]):
    """Rows of some streams: those of several statements, merged by stream and by the column behind it."""

    def __init__(self, connection: Any, group: list[LoggedStream], make: Callable[..., T], *statements: str) -> None:
        within = (group[0].number, group[-1].number)
        # `chain`, because `merge` would close a cursor that is left over, perhaps after its connection.
        cursors = [chain(connection.each(statement, within)) for statement in statements]
        self._rows = merge(*cursors, key=itemgetter(0, 1))
        self._make = make
        self._next: Any = next(self._rows, None)

    def of(self, stream: LoggedStream) -> Iterator[T]:
        """Those of a stream; streams are asked for in their order, and what was left of the ones before is skipped."""
        number = stream.number
        while self._next is not None and self._next[0] <= number:
            row = self._next
            self._next = next(self._rows, None)
            if row[0] == number:
                yield self._make(*row[1:])


Log = InOrder[Logged]


def log_of(connection: Any, group: list[LoggedStream]) -> Log:
    """The operations of some streams, in the order of their numbers."""
    return InOrder(connection, group, Logged, _FORECASTS, _OUTCOMES, _CONTROLS)


def pieces(items: Iterator[T], size: int | None = None) -> Iterator[list[T]]:
    """Some at a time."""
    while piece := list(islice(items, size or OPERATIONS_AT_ONCE)):
        yield piece


# ---- one stream ---------------------------------------------------------------------------------------------------


class ReplayedEvent(NamedTuple):
    """A forecast of the log as a replay makes it; of K classes also all K of them, as bytes, and which was named."""

    event: Logged
    forecast: float
    receipt: bytes
    issued: bytes | None
    named: int | None
    is_raw: bool  # the score was told instead

    @property
    def is_as_told(self) -> bool:
        """Whether the log has what was to be told."""
        event, issued = self.event, _bytes(self.event.issued)
        if self.is_raw:
            return bool(event.forecast == event.score and (self.issued is None or issued == _bytes(event.given)))
        return bool(event.forecast == self.forecast and issued == self.issued)


class Play:
    """A stream that is replayed: operations go in, forecasts and receipts come out.

    The receipts of forecasts whose outcome is still to come are kept: about 300 bytes each, and 500 of AUTO. With
    `keeps_all` so are those of forecasts whose outcome may come after the end of the log, and what the method says of
    events that the monitor has still to read.
    """

    def __init__(self, model: Model, stream: LoggedStream, *, keeps_all: bool = False) -> None:
        self._model, self._stream, self._keeps_all = model, stream, keeps_all
        self._unwatched = replace(model, watched=None)
        self.replayed = StreamBytes(stream.name, origin=stream.origin, shape=stream.shape)
        self.open: dict[int, bytes] = {}  # receipts, by the number of the forecast
        self._said: dict[int, Said] = {}  # what the method says where something else was told, by number of the event
        self._is_raw = False  # the score is told

    def start(self, connection: Any) -> None:
        """Begin with the base of the stream."""
        stream, replayed = self._stream, self.replayed
        replayed.state, replayed.monitor = stream.base, stream.base_monitor
        self._is_raw = connection.all(_WAS_RAW, (stream.number, stream.base_seq)) == [("passthrough",)]
        if stream.base is not None:
            begun = 0 if stream.base_monitor is None else first_unread(stream.base_monitor)
            unread = settled_after(connection, stream.number, begun, stream.base_seq)
            grouped = stream.shape.groups is not None
            cells = {stream.name: stored_cells(connection, stream.number, is_base=True)} if grouped else {}
            self._model.load([replayed], [unread], cells)

    @property
    def cells(self) -> list[StoredCell]:
        """The cells of its groups as they are now."""
        return [] if self.replayed.table is None else all_cells(self.replayed.table)

    def feed(self, part: list[Logged]) -> list[ReplayedEvent]:
        """The next operations -> the forecasts among them."""
        made, first = list[ReplayedEvent](), 0
        is_watched = bool(part) and part[0].number >= self._stream.watched_from
        for at, event in enumerate(part):
            if event.verb or is_watched != (event.number >= self._stream.watched_from):
                made += self._fold(part[first:at], is_watched=is_watched)
                is_watched = event.number >= self._stream.watched_from
                first = at + bool(event.verb)
                self._do(event.verb)
        made += self._fold(part[first:], is_watched=is_watched)
        if self._keeps_all:
            self._note(made)
        return made

    def _note(self, made: list[ReplayedEvent]) -> None:
        """What the method says of events whose outcome the monitor has still to read."""
        for event, forecast, _, issued, named, _ in made:
            score = event.score if named is None else float(np.frombuffer(event.given)[named])
            if forecast != event.forecast or (issued is not None and issued != bytes(event.issued)):
                self._said[event.nth] = forecast, named, score, issued
        if len(self._said) > 2 * len(self.open) + MOST_SAID:
            self._said = self.unread_said()

    def unread_said(self) -> dict[int, Said]:
        """What it says of those of them that still count."""
        unread = 2**62 if self.replayed.monitor is None else first_unread(self.replayed.monitor)
        return {nth: said for nth, said in self._said.items() if nth in self.open or nth >= unread}

    def _do(self, verb: str) -> None:
        """What was done to the stream."""
        if verb in {"passthrough", "resume"}:
            self._is_raw = verb == "passthrough"
        elif verb == "reset":
            self._model.begin_anew(self.replayed)
            self.open.clear()

    def _fold(self, part: list[Logged], *, is_watched: bool) -> list[ReplayedEvent]:
        if not part:
            return []
        places = {event.nth: at for at, event in enumerate(part) if event.outcome is None}
        own = [-1 if event.outcome is None else places.get(event.nth, -1) for event in part]
        receipts: list[Any] = [
            self.open.pop(event.nth, None) or _bytes(event.receipt)
            for event, at in zip(part, own, strict=True)
            if at < 0 and event.outcome is not None
        ]
        outcomes = [nan if event.outcome is None else float(event.outcome) for event in part]
        scores, given = [event.score for event in part], [_bytes(event.given) for event in part]
        model = self._model if is_watched else self._unwatched
        given_up = {(0, event.nth) for event in part if event.status == LATE}
        made = model.fold([self.replayed], [0] * len(part), scores, outcomes, own, receipts, given_up, given)
        self.replayed.changed = []
        asked = [at for at, event in enumerate(part) if event.outcome is None]
        found = []
        for at, receipt in zip(asked, made.receipts, strict=True):
            named, issued = made.classes.get(at, (None, None))
            found.append(ReplayedEvent(part[at], made.forecasts[at], receipt, issued, named, self._is_raw))
        settled = {part[at].nth for at in own if at >= 0}
        for event, _, receipt, *_ in found:
            is_expected = event.outcome_seq is not None or (self._keeps_all and not _is_final(event))
            if is_expected and event.nth not in settled:
                self.open[event.nth] = receipt
        return found

    def monitor(self, connection: Any, before: int) -> bytes | None:
        """The monitor, once it knows which of the forecasts before an operation were given up or forgotten."""
        which = (self._stream.number, -1, before) * 2
        self.give_up(nth for (nth,) in connection.each(GIVEN_UP, which))
        return self.replayed.monitor

    def give_up(self, forecasts: Iterable[int]) -> None:
        """The monitor waits no longer for the outcomes of these."""
        self._model.fold([self.replayed], [], [], [], [], given_up=[(0, nth) for nth in forecasts])


def _is_final(event: Logged) -> bool:
    """Whether a forecast was given up for good: its receipt is gone."""
    return event.status == EXPIRED and event.is_bare


class Structure:
    """Whether the numbers of a stream are right, as its operations come by."""

    def __init__(self, stream: LoggedStream) -> None:
        self._stream = stream
        self._number, self._nth = stream.base_seq, stream.base_events  # the next ones
        self._statuses = [0] * (LATE + 1)
        self._gap = self._forecast_gap = False
        self._early = self._bare = self._lost = 0
        self.outcomes = 0

    def see(self, event: Logged) -> None:
        """The next operation."""
        stream, number = self._stream, event.number
        if number >= stream.base_seq:
            self._gap |= number != self._number
            self._number += 1
        if event.verb:
            return
        if event.outcome is None:
            if event.nth >= stream.base_events:
                self._forecast_gap |= event.nth != self._nth
                self._nth += 1
            self._statuses[event.status] += 1
            self._bare += event.status in {PENDING, HELD, WAITING} and event.is_bare
            return
        self.outcomes += 1
        self._early += event.seq >= number
        self._lost += event.seq < stream.base_seq <= number and event.receipt is None

    @property
    def events(self) -> int:
        """Forecasts that came by."""
        return sum(self._statuses)

    @property
    def is_sound(self) -> bool:
        """Whether what came by so far can be replayed."""
        return not (self._gap or self._early or self._lost)

    @property
    def problem(self) -> str:
        """What is wrong with the numbers of the stream, all of which came by; or nothing."""
        stream = self._stream
        if self._gap or self._number != stream.seq:
            return f"operations must be numbered from {stream.base_seq} to {stream.seq} without a gap"
        if self._forecast_gap or self._nth != stream.events:
            return f"forecasts must be numbered from {stream.base_events} to {stream.events} without a gap"
        if self._early:
            return f"outcomes must come after their forecasts, got {self._early} before"
        for what, statuses in (("pending", {PENDING}), ("held", {HELD, WAITING})):
            counted = sum(self._statuses[status] for status in statuses)
            if counted != getattr(stream, what):
                return f"{what} events must be {getattr(stream, what)}, got {counted}"
        if self._bare:
            return f"pending events must have receipts, got {self._bare} without"
        if self._lost:
            return f"outcomes of forecasts before the base must have receipts, got {self._lost} without"
        return ""

    @property
    def counts(self) -> str:
        """What is wrong with the counts of the stream, or nothing."""
        stream, statuses = self._stream, self._statuses
        learnt = statuses[LEARNT] + statuses[ASSUMED] + statuses[LATE]
        expired = statuses[EXPIRED] + statuses[ASSUMED] + statuses[LATE]
        if stream.base_seq == 0 and (learnt, expired) != (stream.outcomes, stream.expired):
            return f"outcomes and expired must be {stream.outcomes} and {stream.expired}, got {learnt} and {expired}"
        return ""


# ---- the check ----------------------------------------------------------------------------------------------------


@dataclass
class Replay:
    """What a replay has found."""

    streams: int = 0
    forecasts: int = 0
    outcomes: int = 0
    corrected: int = 0  # outcomes that took the place of others
    differences: list[str] = field(default_factory=list)  # sentences, one for each stream that differs

    @property
    def is_same(self) -> bool:
        """Whether store and replay agree in every bit."""
        return not self.differences

    def count(self, structure: Structure) -> None:
        """One more stream."""
        self.streams += 1
        self.forecasts += structure.events
        self.outcomes += structure.outcomes


def model_from(meta: dict[str, str]) -> Model:
    """The model of a store."""
    whole = meta.get("monitor_whole", "1") == "1"
    monitor = json.loads(meta.get("monitor", "null")) if whole else None
    return Model.named(meta["method"], int(meta["seed"]), monitor)


def replay_check(url: str, step: Step = no_progress) -> Replay:
    """Replay all streams of a store from their base and compare every bit: forecasts, rows, monitors, numbers.

    A service may use the store meanwhile.

    Raises
    ------
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    result = Replay()
    with reading(url) as connection:
        meta = get_meta(connection)
        check_described(meta)
        model = model_from(meta)
        for group in streams_of(connection):
            log = log_of(connection, group)
            for stream in group:
                structure = Structure(stream)
                difference = _compare(connection, model, stream, log, structure, step)
                if difference:
                    result.differences.append(f"stream {stream.name!r}: {difference}")
                result.count(structure)
    return result


def _compare(connection: Any, model: Model, stream: LoggedStream, log: Log, structure: Structure, step: Step) -> str:
    play, first_kept = Play(model, stream), max(stream.since, stream.base_seq)
    play.start(connection)
    count, first = 0, ""
    for part in pieces(log.of(stream)):
        for event in part:
            structure.see(event)
        if structure.is_sound:
            for made in play.feed([event for event in part if event.number >= stream.base_seq]):
                event, told = made.event, made.event.score if made.is_raw else made.forecast
                if event.number >= first_kept and not made.is_as_told and not _is_as_said(connection, stream, made):
                    count += 1
                    first = first or f"the first {event.forecast!r} for {told!r} - at {event.nth}"
        step(len(part))
    if structure.problem:
        return structure.problem
    if count:
        return f"{count} forecasts differ, {first}"
    return _state_difference(connection, model, stream, play)


def _is_as_said(connection: Any, stream: LoggedStream, made: ReplayedEvent) -> bool:
    """Whether the service has computed the same as a replay, where another machine had answered: see `unwritten`."""
    rows = connection.all(
        "SELECT forecast, issued FROM said WHERE stream = ? AND nth = ?", (stream.number, made.event.nth)
    )
    return not made.is_raw and [(p, _bytes(issued)) for p, issued in rows] == [(made.forecast, made.issued)]


def _state_difference(connection: Any, model: Model, stream: LoggedStream, play: Play) -> str:
    """What of the state is not that of the replay, or nothing."""
    if play.replayed.state != stream.state:
        return "the row differs"
    if stream.shape.groups is not None and play.cells != stored_cells(connection, stream.number):
        return "the cells of its groups differ"
    # The monitor of a stream whose state was imported begins with the first event here.
    if model.watched is not None and stream.monitor is not None:
        return "" if play.monitor(connection, stream.seq) == stream.monitor else "the monitor differs"
    return ""


# ---- rebuild --------------------------------------------------------------------------------------------------------


def rebuild(url: str, method: str | None = None, step: Step = no_progress) -> Replay:
    """Rebuild the state from the log: for another method, or with the corrections that wait.

    Forecasts that were answered stay as they are. Pending forecasts get receipts of the new method, so that their
    outcomes are learnt by it. Monitors begin anew.

    Raises
    ------
    UnknownMethod, InvalidInput : the method does not exist or does not live in a row, or the store is in use.
    """
    result = Replay(corrected=apply_waiting(url))
    with owned(url) as connection:
        meta = get_meta(connection)
        chosen = (method or meta["method"]).lower()
        model = Model.named(chosen, int(meta["seed"]))  # a monitor is about the forecasts of one method: it begins anew
        for group in streams_of(connection, with_state=False):
            log = log_of(connection, group)
            for stream in group:
                structure = Structure(stream)
                if stream.shape.groups is not None and not model.has_groups:
                    raise InvalidInput(
                        f"method must be auto or gauto, as stream {stream.name!r} has groups, got {chosen!r}"
                    )
                _rebuild(connection, model, stream, log, structure, step)
                result.count(structure)
        set_meta(connection, "method", chosen)
        set_meta(connection, "described", description_of(chosen))
        set_meta(connection, "rebuilt", repr(time.time()))
    return result


def configure(url: str, step: Step = no_progress, *, method: str | None = None, **changes: Any) -> EngineSettings:
    """Change settings that belong to a store -> its settings. Another method makes the state anew from the log.

    Raises
    ------
    UnknownMethod, InvalidInput : a store cannot have such settings, or it is in use.
    """
    if method is None and not changes:
        with reading(url) as connection:
            return stored_settings(get_meta(connection))
    with owned(url) as connection:
        if "method" not in get_meta(connection):  # it was made for a token, and never served
            claim_meta(connection, stored_settings({}))
    if method is not None:
        rebuild(url, method, step)
    with owned(url) as connection:
        settings = replace(stored_settings(get_meta(connection)), **changes)
        model_of(settings)  # which checks the monitor
        write_settings(connection, settings)
        return stored_settings(get_meta(connection))


def _rebuild(connection: Any, model: Model, stream: LoggedStream, log: Log, structure: Structure, step: Step) -> None:
    """Rebuild one stream, and the receipts of those of its events that need them."""
    play, base = Play(model, stream), stream.base
    base_cells: list[StoredCell] | None = None  # None: as they were
    is_based = stream.base_seq == 0
    for part in pieces(log.of(stream)):
        for event in part:
            structure.see(event)
        made = play.feed([event for event in part if event.number < stream.base_seq])
        later = [event for event in part if event.number >= stream.base_seq]
        if later and not is_based:
            base, is_based, base_cells = _new_base(model, stream, play.replayed), True, play.cells
        made += play.feed(later)
        connection.run_many(
            "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
            [(receipt, stream.number, event.nth) for event, _, receipt, *_ in made if _needs(stream, event)],
        )
        step(len(part))
    if not is_based or play.replayed.state is None:
        base, base_cells = _new_base(model, stream, play.replayed), play.cells
    if stream.shape.groups is not None:
        replace_cells(connection, stream.number, play.cells)
        if base_cells is not None:
            replace_cells(connection, stream.number, base_cells, is_base=True)
    connection.run("DELETE FROM said WHERE stream = ?", (stream.number,))  # monitors begin anew
    connection.run(
        "UPDATE stream SET base_monitor = NULL, alarms = 0, since = ?, watched_from = ?, base = ?, "
        "version = version + 1 WHERE number = ?",
        (stream.seq, stream.seq, base, stream.number),
    )
    connection.run("UPDATE body SET state = ?, monitor = NULL WHERE stream = ?", (play.replayed.state, stream.number))


def _keep_said(connection: Any, number: int, play: Play) -> None:
    """Store what the method says of events that a monitor has still to read, where something else was told."""
    said = [(number, nth, *of) for nth, of in play.unread_said().items()]
    connection.run_many("DELETE FROM said WHERE stream = ? AND nth = ?", [row[:2] for row in said])
    connection.run_many(f"{INSERT_SAID}VALUES (?, ?, ?, ?, ?, ?)", said)


def _needs(stream: LoggedStream, event: Logged) -> bool:
    """Whether an event needs its receipt: for its outcome to come, or for a replay from the base."""
    straddles = event.outcome_seq is not None and event.number < stream.base_seq <= event.outcome_seq
    return straddles or event.status in {PENDING, HELD, WAITING} or (event.status == EXPIRED and not event.is_bare)


def _new_base(model: Model, stream: LoggedStream, replayed: StreamBytes) -> bytes:
    """The base of a pruned stream, of what pruning has left: forecasts whose outcome came later."""
    row = model.rows([replayed])
    row[:, model.method_of(replayed).width + EVENTS] = stream.base_events
    replayed.state = row.tobytes()
    return replayed.state


def apply_waiting(url: str) -> int:
    """Apply the corrections that a service has left, and forget what it was to forget -> how many events."""
    from .engine import on_store  # which replays with what is here

    with reading(url) as connection:
        if not connection.all("SELECT 1 FROM correction WHERE applied = 0 LIMIT 1"):
            return 0
    with on_store(url) as engine:
        return engine.rework_all()


# ---- old events go --------------------------------------------------------------------------------------------------


def prune(url: str, older: float, now: float | None = None, step: Step = no_progress) -> int:
    """Delete events that are settled and older than `older` seconds -> how many. The state stays as it is.

    What is deleted goes into the base of its stream, from which later replays start. Roll-ups stay.

    Raises
    ------
    InvalidInput : the store is in use, or has corrections that wait (the base would keep what they correct).
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    before = (time.time() if now is None else now) - older
    deleted = 0
    with owned(url) as connection:
        meta = get_meta(connection)
        check_described(meta)
        waiting = connection.all("SELECT count(*) FROM correction WHERE applied = 0")[0][0]
        if waiting:
            raise InvalidInput(
                f"store must have no corrections that wait, got {counted(waiting, 'correction')}: "
                "`calibeat store replay` applies them"
            )
        model = model_from(meta)
        for group in streams_of(connection, with_state=False):
            log = log_of(connection, group)
            for stream in group:
                deleted += _prune(connection, model, stream, log, before, step)
        pruned = max(before, float(meta.get("pruned_before", "0")))
        if deleted:
            set_meta(connection, "pruned_before", repr(pruned))
    return deleted


def _prune(connection: Any, model: Model, stream: LoggedStream, log: Log, before: float, step: Step) -> int:
    """Move the base of one stream up to the first operation that is too young, and delete what is settled by then."""
    play = Play(model, stream, keeps_all=model.watched is not None)
    cut, events = stream.base_seq, stream.base_events
    later = (event for event in log.of(stream) if event.number >= stream.base_seq)
    for part in pieces(later):
        step(len(part))
        old = list(takewhile(lambda event: event.time is not None and event.time < before, part))
        if old:
            if cut == stream.base_seq:
                play.start(connection)
            events += len(play.feed(old))
            cut = old[-1].number + 1
        if len(old) < len(part):
            break
    if cut == stream.base_seq:
        return _prune_before_base(connection, stream, before)
    gone = f"stream = ? AND seq < ? AND (status = {EXPIRED} OR outcome_seq < ?)"
    which = [stream.number, cut, cut]
    monitor = None
    if model.watched is not None and (monitor := play.monitor(connection, cut)) is not None:
        gone += " AND nth < ?"  # what the monitor has not read is kept
        which.append(first_unread(monitor))
        _keep_said(connection, stream.number, play)
    connection.run_many(
        "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
        [(receipt, stream.number, nth) for nth, receipt in play.open.items()],
    )
    deleted: int = connection.run(f"DELETE FROM event WHERE {gone}", which)  # noqa: S608 - our own condition
    unused = "DELETE FROM said WHERE stream = ? AND nth NOT IN (SELECT nth FROM event WHERE stream = ?)"
    connection.run(unused, (stream.number, stream.number))
    connection.run(
        "UPDATE stream SET base_seq = ?, base_events = ?, base = ?, base_monitor = ? WHERE number = ?",
        (cut, events, play.replayed.state, monitor, stream.number),
    )
    if stream.shape.groups is not None:
        replace_cells(connection, stream.number, play.cells, is_base=True)
    return deleted


def _prune_before_base(connection: Any, stream: LoggedStream, before: float) -> int:
    """Delete what forgetting has left before the base."""
    unread = 2**62 if stream.base_monitor is None else first_unread(stream.base_monitor)
    deleted: int = connection.run(
        f"DELETE FROM event WHERE stream = ? AND seq < ? AND (status = {EXPIRED} OR outcome_seq < ?) AND time < ? "  # noqa: S608
        "AND nth < ?",
        (stream.number, stream.base_seq, stream.base_seq, before, unread),
    )
    return deleted


# ---- is it whole? ---------------------------------------------------------------------------------------------------


def check(url: str, step: Step = no_progress) -> list[str]:
    """What is wrong with a store, as sentences; nothing if it is whole. It replays nothing."""
    with reading(url) as connection:
        problems = [f"the database is damaged: {found}" for found in connection.integrity()]
        meta = get_meta(connection)
        first_hour = 0
        if "pruned_before" in meta:
            first_hour = int(float(meta["pruned_before"]) // HOUR) + 1
        for group in streams_of(connection, with_state=False):
            log, timed = log_of(connection, group), InOrder(connection, group, Timed, _TIMED)
            for stream in group:
                structure = Structure(stream)
                for part in pieces(log.of(stream)):
                    for event in part:
                        structure.see(event)
                    step(sum(event.outcome is None for event in part))
                problem = structure.problem or structure.counts or _rollups(connection, stream, timed, first_hour)
                problem = problem or _cells(connection, stream, meta["method"])
                if problem:
                    problems.append(f"stream {stream.name!r}: {problem}")
        problems += _losses(connection)
    return problems


def _losses(connection: Any) -> Iterator[str]:
    """Whether the log-losses that lists show are those of the sums."""
    stored = "SELECT name, raw_log_loss, log_loss, substr(sums, 1, 16) FROM stream JOIN body ON stream = number"
    for name, *losses, sums in connection.each(f"{stored} WHERE sums IS NOT NULL"):
        if losses != np.frombuffer(bytes(sums)).tolist():
            yield f"stream {name!r}: its log-losses must be those of its sums, got others"


def _cells(connection: Any, stream: LoggedStream, method: str) -> str:
    """Whether the cells of its groups are all that its row counts."""
    if stream.shape.groups is None or stream.events == 0:
        return ""
    state, count = connection.all(
        "SELECT state, (SELECT count(*) FROM cell c WHERE c.stream = b.stream AND is_base = 0) FROM body b "
        "WHERE b.stream = ?",
        (stream.number,),
    )[0]
    table = GroupTable(stream.shape.groups, method_named(method))
    cells = table.params(np.frombuffer(bytes(state))[: table.width])["cells"]
    return "" if cells == count else f"cells of groups must be {cells}, got {count}"


class Timed(NamedTuple):
    """What the roll-ups know of an event."""

    time: float
    score: float
    forecast: float
    outcome: int | None  # if it is learnt
    named: int | None
    given: Any
    issued: Any


_TIMED = (
    f"SELECT stream, time, score, forecast, CASE WHEN status IN ({LEARNT}, {ASSUMED}, {LATE}) THEN outcome END, "  # noqa: S608
    "named, given, issued FROM event WHERE stream >= ? AND stream <= ? ORDER BY stream, time"
)
_Cells = dict[tuple[int, int, int], list[float]]  # hour, kind, tenth -> the numbers of a roll-up


def _rollups(connection: Any, stream: LoggedStream, timed: InOrder[Timed], first_hour: int) -> str:
    """Whether the hourly sums are those of the events, as far as rounding lets them; hour by hour."""
    expected: _Cells = {}
    first = first_hour
    for part in pieces(timed.of(stream)):
        _add(expected, part)
        last = max(first, int(part[-1].time // HOUR))  # of this hour there may be more
        if not _is_stored(connection, stream, expected, first, last):
            return _OTHERS
        first = last
    return "" if _is_stored(connection, stream, expected, first, _END) else _OTHERS


_OTHERS = "the hourly roll-ups must be the sums of the events, got others"
_END = 2**40  # behind every hour


def _add(cells: _Cells, part: list[Timed]) -> None:
    """Forecasts and outcomes of some events."""
    learnt = [event for event in part if event.outcome is not None]
    both = [*part, *learnt]
    outcomes, losses = of_named_classes(both, [nan] * len(part) + [float(event.outcome or 0) for event in learnt])
    made = Rollups(
        slots=[0] * len(both),
        times=[event.time for event in both],
        scores=[event.score for event in both],
        forecasts=[event.forecast for event in both],
        outcomes=outcomes,
        losses=losses,
        ages=[0.0] * len(both),
        numbers=[0],
        sums=[bytes(8 * SUMS)],
    )
    for _, hour, kind, of, *numbers in made.rollups:
        before = cells.get((hour, kind, of))
        cells[hour, kind, of] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]


def _is_stored(connection: Any, stream: LoggedStream, expected: _Cells, first: int, end: int) -> bool:
    """Whether the store has the same in these hours; up to their end, nothing is expected afterwards."""
    rows = connection.all(
        "SELECT hour, kind, tenth, forecasts, outcomes, sum_p, sum_y, log_loss FROM rollup "
        "WHERE stream = ? AND hour >= ? AND hour < ?",
        (stream.number, first, end),
    )
    stored = {row[:3]: row[3:] for row in rows}
    passed = [key for key in expected if key[0] < end]
    wanted = {key: numbers for key in passed if (numbers := expected.pop(key)) and key[0] >= first}
    return stored.keys() == wanted.keys() and all(
        isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        for key, numbers in wanted.items()
        for a, b in zip(numbers, stored[key], strict=True)
    )


def info(url: str) -> dict[str, Any]:
    """A store in a few numbers."""
    with reading(url) as connection:
        meta = get_meta(connection)
        settings = stored_settings(meta)
        found = totals_of(connection.all)
        stored = connection.all("SELECT count(*), min(time), max(time) FROM event")[0]
        waiting = connection.all("SELECT count(*) FROM correction WHERE applied = 0")[0][0]
        shapes = [Shape.from_text(text) for (text,) in connection.all("SELECT text FROM shape")]
        return {
            "version": int(meta["schema"]),
            **{name: getattr(settings, name) for name in ("method", "seed", *CONFIGURED)},
            "streams": int(found["streams"]),
            "with many classes": sum(shape.numbers > 1 for shape in shapes),
            "with groups": sum(shape.groups is not None for shape in shapes),
            "forecasts": int(found["events"]),
            **{name: int(found[name]) for name in ("outcomes", "pending", "held", "expired", "alarms")},
            "events stored": int(stored[0]),
            "first": stored[1],
            "last": stored[2],
            "corrections that wait": int(waiting),
            "pruned before": float(meta["pruned_before"]) if "pruned_before" in meta else None,
            "bytes": connection.size(),
        }
