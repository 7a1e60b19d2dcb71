"""What is done to a store that no service writes to: replay, rebuild, prune, check. The command line calls these."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice, takewhile
from math import isclose, nan
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibeat._util.progress import Step, no_progress
from calibeat._util.words import counted
from calibeat.core.stats import EVENTS, log_loss
from calibeat.errors import InvalidInput
from calibeat.monitor.monitors import first_unread

from .engine import check_described, description_of
from .model import Model, StreamBytes
from .rollups import Rollups, errors_of, tenth
from .store import owned, reading
from .store.queries import stored_totals, totals_problems
from .store.schema import get_meta, set_meta
from .store.types import (
    ASSUMED,
    BRIER,
    CALIBRATED_KIND,
    EXPIRED,
    HELD,
    HOUR,
    LEARNT,
    LOG_LOSS,
    PENDING,
    RAW_BRIER,
    RAW_KIND,
    RAW_LOG_LOSS,
    SUMS,
    TENTHS,
    settled_after,
)

OPERATIONS_AT_ONCE = 5_000  # in one fold
STREAMS_AT_ONCE = 500
CORRECTIONS_AT_ONCE = 1000
# Of each event the one that came last, whatever time the client gave it.
_LATEST_CORRECTIONS = (
    "SELECT c.stream, c.nth, c.outcome, e.outcome, e.score, e.forecast, e.time FROM correction c "
    "JOIN event e ON e.stream = c.stream AND e.nth = c.nth WHERE c.applied = 0 AND (c.stream, c.nth) > (?, ?) "
    "AND NOT EXISTS (SELECT 1 FROM correction d WHERE d.applied = 0 AND d.stream = c.stream AND d.nth = c.nth "
    "AND d.number > c.number) ORDER BY c.stream, c.nth LIMIT ?"
)
_STREAM = (
    "number, name, seq, events, outcomes, pending, held, expired, since, base_seq, base_events, base, base_monitor"
)
_WITHIN = "FROM event WHERE stream >= ? AND stream <= ?"
_FORECASTS = (
    f"SELECT stream, seq, nth, time, NULL, seq, outcome_seq, NULL, receipt IS NULL, score, forecast, status {_WITHIN} "
    "ORDER BY stream, nth"
)
_OUTCOMES = (
    f"SELECT stream, outcome_seq, nth, outcome_time, outcome, seq, outcome_seq, receipt {_WITHIN} "
    f"AND status IN ({LEARNT}, {ASSUMED}) AND outcome_seq IS NOT NULL ORDER BY stream, outcome_seq"
)

T = TypeVar("T")

# ---- the log --------------------------------------------------------------------------------------------------------
#
# A stream is replayed from its base (nothing, what pruning has left, or a state that was imported) through its
# forecasts and learnt outcomes, in the order of their numbers. The database reads both in order, and they are merged
# here. So only a piece of the log is in memory, and the receipts of forecasts whose outcome comes in a later piece.


class Logged(NamedTuple):
    """An operation of the log: a forecast, or a learnt outcome."""

    number: int  # among the operations of its stream
    nth: int
    time: float | None
    outcome: int | None  # None: it is a forecast
    seq: int  # the number of the forecast
    outcome_seq: int | None
    receipt: Any  # of outcomes, where a replay needs it
    is_bare: bool = False  # of forecasts: without a receipt
    score: float = nan
    forecast: float = nan
    status: int = LEARNT


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
    base_seq: int
    base_events: int
    base: bytes | None
    base_monitor: bytes | None
    state: bytes | None
    monitor: bytes | None


def streams_of(connection: Any, with_state: bool = True) -> Iterator[list[LoggedStream]]:
    """All streams, some hundred at a time, in the order of their numbers."""
    columns = f"{_STREAM}, state, monitor" if with_state else f"{_STREAM}, NULL, NULL"
    last = -1
    while True:
        rows = connection.all(
            f"SELECT {columns} FROM stream WHERE number > ? ORDER BY number LIMIT {STREAMS_AT_ONCE}",  # noqa: S608
            (last,),
        )
        if not rows:
            return
        found = [LoggedStream(*row[:11], *map(_bytes, row[11:])) for row in rows]
        last = found[-1].number
        yield found


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
    return InOrder(connection, group, Logged, _FORECASTS, _OUTCOMES)


def pieces(items: Iterator[T]) -> Iterator[list[T]]:
    """Some at a time."""
    while piece := list(islice(items, OPERATIONS_AT_ONCE)):
        yield piece


# ---- one stream ---------------------------------------------------------------------------------------------------


class Play:
    """A stream that is replayed: operations go in, forecasts and receipts come out.

    The receipts of forecasts whose outcome is still to come are kept: about 300 bytes each, and 500 of AUTO.
    """

    def __init__(self, model: Model, stream: LoggedStream) -> None:
        self._model, self._stream = model, stream
        self.replayed = StreamBytes(stream.name)
        self.open: dict[int, bytes] = {}  # receipts, by the number of the forecast

    def start(self, connection: Any) -> None:
        """Begin with the base of the stream."""
        stream, replayed = self._stream, self.replayed
        replayed.state, replayed.monitor = stream.base, stream.base_monitor
        if stream.base is not None:
            begun = 0 if stream.base_monitor is None else first_unread(stream.base_monitor)
            self._model.load([replayed], [settled_after(connection, stream.number, begun, stream.base_seq)])

    def feed(self, part: list[Logged]) -> list[tuple[Logged, float, bytes]]:
        """The next operations -> each forecast among them, what the method says, and its receipt."""
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
        scores = [event.score for event in part]
        made = self._model.fold([self.replayed], [0] * len(part), scores, outcomes, own, receipts)
        asked = [(event, p) for event, p in zip(part, made.forecasts, strict=True) if event.outcome is None]
        found = [(event, p, receipt) for (event, p), receipt in zip(asked, made.receipts, strict=True)]
        settled = {part[at].nth for at in own if at >= 0}
        for event, _, receipt in found:
            if event.outcome_seq is not None and event.nth not in settled:
                self.open[event.nth] = receipt
        return found

    def monitor(self, connection: Any, before: int) -> bytes | None:
        """The monitor, once it knows which of the forecasts before an operation were given up."""
        given_up = connection.each(
            "SELECT nth FROM event WHERE stream = ? AND seq < ? AND status = ? ORDER BY nth",
            (self._stream.number, before, EXPIRED),
        )
        self._model.fold([self.replayed], [], [], [], [], given_up=((0, nth) for (nth,) in given_up))
        return self.replayed.monitor


class Structure:
    """Whether the numbers of a stream are right, as its operations come by."""

    def __init__(self, stream: LoggedStream) -> None:
        self._stream = stream
        self._number, self._nth = stream.base_seq, stream.base_events  # the next ones
        self._statuses = [0] * (ASSUMED + 1)
        self._gap = self._forecast_gap = False
        self._early = self._bare = self._lost = 0
        self.outcomes = 0

    def see(self, event: Logged) -> None:
        """The next operation."""
        stream, number = self._stream, event.number
        if number >= stream.base_seq:
            self._gap |= number != self._number
            self._number += 1
        if event.outcome is None:
            if event.nth >= stream.base_events:
                self._forecast_gap |= event.nth != self._nth
                self._nth += 1
            self._statuses[event.status] += 1
            self._bare += event.status in {PENDING, HELD} and event.is_bare
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
        for what, status in (("pending", PENDING), ("held", HELD)):
            counted = self._statuses[status]
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
        learnt, expired = statuses[LEARNT] + statuses[ASSUMED], statuses[EXPIRED] + statuses[ASSUMED]
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
            for event, replayed, _ in play.feed([event for event in part if event.number >= stream.base_seq]):
                if event.number >= first_kept and replayed != event.forecast:
                    count += 1
                    first = first or f"the first {event.forecast!r} for {replayed!r} - at {event.nth}"
        step(len(part))
    if structure.problem:
        return structure.problem
    if count:
        return f"{count} forecasts differ, {first}"
    if play.replayed.state != stream.state:
        return "the row differs"
    # The monitor of a stream whose state was imported begins with the first event here.
    if model.watched is not None and (structure.events or stream.base_monitor) and stream.since == 0:
        return "" if play.monitor(connection, stream.seq) == stream.monitor else "the monitor differs"
    return ""


# ---- rebuild --------------------------------------------------------------------------------------------------------


def rebuild(url: str, method: str | None = None, step: Step = no_progress) -> Replay:
    """Rebuild the state from the log: for another method, or with the corrections that wait.

    Forecasts that were answered stay as they are. Pending forecasts get receipts of the new method, so that their
    outcomes are learnt by it.

    Raises
    ------
    UnknownMethod, InvalidInput : the method does not exist or does not live in a row, or the store is in use.
    """
    result = Replay()
    with owned(url) as connection:
        meta = get_meta(connection)
        chosen = (method or meta["method"]).lower()
        # Without monitors: one is about the forecasts of one method, so they start fresh.
        model = Model.named(chosen, int(meta["seed"]))
        result.corrected = apply_corrections(connection)
        for group in streams_of(connection, with_state=False):
            log = log_of(connection, group)
            for stream in group:
                structure = Structure(stream)
                _rebuild(connection, model, stream, log, structure, step)
                result.count(structure)
        set_meta(connection, "method", chosen)
        set_meta(connection, "described", description_of(chosen))
        set_meta(connection, "rebuilt", repr(time.time()))
    return result


def _rebuild(connection: Any, model: Model, stream: LoggedStream, log: Log, structure: Structure, step: Step) -> None:
    """Rebuild one stream, and the receipts of those of its events that need them."""
    play, base = Play(model, stream), stream.base
    is_based = stream.base_seq == 0
    for part in pieces(log.of(stream)):
        for event in part:
            structure.see(event)
        made = play.feed([event for event in part if event.number < stream.base_seq])
        later = [event for event in part if event.number >= stream.base_seq]
        if later and not is_based:
            base, is_based = _new_base(model, stream, play.replayed), True
        made += play.feed(later)
        connection.run_many(
            "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
            [(receipt, stream.number, event.nth) for event, _, receipt in made if _needs(stream, event)],
        )
        step(len(part))
    if not is_based or play.replayed.state is None:
        base = _new_base(model, stream, play.replayed)
    connection.run(
        "UPDATE stream SET state = ?, monitor = NULL, base_monitor = NULL, alarms = 0, since = ?, base = ?, "
        "version = version + 1 WHERE number = ?",
        (play.replayed.state, stream.seq, base, stream.number),
    )


def _needs(stream: LoggedStream, event: Logged) -> bool:
    """Whether an event needs its receipt: for its outcome to come, or for a replay from the base."""
    straddles = event.outcome_seq is not None and event.number < stream.base_seq <= event.outcome_seq
    return event.status in {PENDING, HELD} or straddles


def _new_base(model: Model, stream: LoggedStream, replayed: StreamBytes) -> bytes:
    """The base of a pruned stream, of what pruning has left: forecasts whose outcome came later."""
    row = model.rows([replayed])
    row[:, model.method.width + EVENTS] = stream.base_events
    replayed.state = row.tobytes()
    return replayed.state


def apply_corrections(connection: Any) -> int:
    """The latest corrections since the last time take the place of other outcomes -> how many outcomes change."""
    applied, last = 0, (-1, -1)
    while found := connection.all(_LATEST_CORRECTIONS, (*last, CORRECTIONS_AT_ONCE)):
        last = found[-1][:2]
        for stream, nth, new, old, *others in found:
            if new != old:
                _correct(connection, stream, nth, new, old, *others)
                applied += 1
    connection.run("UPDATE correction SET applied = 1 WHERE applied = 0")
    return applied


def _correct(
    connection: Any, stream: int, nth: int, new: int, old: int, score: float, forecast: float, made: float
) -> None:
    """One outcome takes the place of another, in the event and in all sums."""
    connection.run("UPDATE event SET outcome = ? WHERE stream = ? AND nth = ?", (new, stream, nth))
    _correct_sums(connection, stream, score, forecast, new, old)
    for kind, p in ((0, forecast), (1, score)):
        connection.run(
            "UPDATE rollup SET sum_y = sum_y + ?, log_loss = log_loss + ? "
            "WHERE stream = ? AND hour = ? AND kind = ? AND tenth = ?",
            (float(new - old), log_loss(p, new) - log_loss(p, old), stream, int(made // HOUR), kind, tenth(p)),
        )


def _correct_sums(connection: Any, stream: int, score: float, forecast: float, new: int, old: int) -> None:
    sums = array("d", bytes(connection.all("SELECT sums FROM stream WHERE number = ?", (stream,))[0][0]))
    for loss, brier, kind, p in (
        (LOG_LOSS, BRIER, CALIBRATED_KIND, forecast),
        (RAW_LOG_LOSS, RAW_BRIER, RAW_KIND, score),
    ):
        sums[loss] += log_loss(p, new) - log_loss(p, old)
        sums[brier] += (p - new) ** 2 - (p - old) ** 2
        sums[TENTHS + 30 * kind + 3 * tenth(p) + 2] += new - old
    (errors,) = errors_of(np.frombuffer(sums))
    connection.run(
        "UPDATE stream SET sums = ?, error = ?, raw_error = ? WHERE number = ?", (sums.tobytes(), *errors, stream)
    )


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
    play = Play(model, stream)
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
        return 0
    gone = f"stream = ? AND seq < ? AND (status = {EXPIRED} OR outcome_seq < ?)"
    which = [stream.number, cut, cut]
    monitor = None
    if model.watched is not None and (monitor := play.monitor(connection, cut)) is not None:
        gone += " AND nth < ?"  # what the monitor has not read is kept
        which.append(first_unread(monitor))
    connection.run_many(
        "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
        [(receipt, stream.number, nth) for nth, receipt in play.open.items()],
    )
    deleted: int = connection.run(f"DELETE FROM event WHERE {gone}", which)  # noqa: S608 - our own condition
    connection.run(
        "UPDATE stream SET base_seq = ?, base_events = ?, base = ?, base_monitor = ? WHERE number = ?",
        (cut, events, play.replayed.state, monitor, stream.number),
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
                if problem:
                    problems.append(f"stream {stream.name!r}: {problem}")
        problems += totals_problems(connection)
    return problems


class Timed(NamedTuple):
    """What the roll-ups know of an event."""

    time: float
    score: float
    forecast: float
    outcome: int | None  # if it is learnt


_TIMED = (
    f"SELECT stream, time, score, forecast, CASE WHEN status IN ({LEARNT}, {ASSUMED}) THEN outcome END FROM event "  # noqa: S608
    "WHERE stream >= ? AND stream <= ? ORDER BY stream, time"
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
    made = Rollups(
        slots=[0] * len(both),
        times=[event.time for event in both],
        scores=[event.score for event in both],
        forecasts=[event.forecast for event in both],
        outcomes=[nan] * len(part) + [float(event.outcome or 0) for event in learnt],
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
        found = stored_totals(connection)
        stored = connection.all("SELECT count(*), min(time), max(time) FROM event")[0]
        waiting = connection.all("SELECT count(*) FROM correction WHERE applied = 0")[0][0]
        return {
            "version": int(meta["schema"]),
            "method": meta.get("method"),
            "seed": int(meta.get("seed", "0")),
            "monitor": json.loads(meta.get("monitor", "null")),
            "streams": int(found["streams"]),
            "forecasts": int(found["events"]),
            **{name: int(found[name]) for name in ("outcomes", "pending", "held", "expired", "alarms")},
            "events stored": int(stored[0]),
            "first": stored[1],
            "last": stored[2],
            "corrections that wait": int(waiting),
            "pruned before": float(meta["pruned_before"]) if "pruned_before" in meta else None,
            "bytes": connection.size(),
        }
