"""What is done to a store that no service writes to: replay, rebuild, prune, check. The command line calls these."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isclose, nan
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calibeat._util.progress import Step, no_progress
from calibeat._util.words import counted
from calibeat.core.band import new_record
from calibeat.core.method import method_named
from calibeat.core.stats import STATS
from calibeat.errors import InvalidInput
from calibeat.hosts.groups import GroupTable
from calibeat.monitor.monitors import first_unread

from . import ops
from .corrections import shape_rows
from .engine import on_store
from .events import Observed
from .fold import of_named_classes
from .model import Model
from .replay import Base, Replay, last_verb, new_version, right_outcomes
from .rollups import Rollups, weights_of
from .settings import (
    CONFIGURED,
    EngineSettings,
    check_described,
    claim_meta,
    description_of,
    model_of,
    stored_settings,
    write_settings,
)
from .shape import Shape
from .store import owned_store, reading
from .store.queries import totals_of
from .store.schema import get_meta, last_position, set_meta
from .store.types import (
    ASSUMED,
    DELETING,
    EXPIRED,
    HELD,
    HOUR,
    LATE,
    LEARNT,
    PENDING,
    SUMS,
    WAITING,
    Record,
    Store,
    StreamState,
    numbered,
    receipt_row,
    replace_cells,
    stored_cells,
    stream_of,
)

STREAMS_AT_ONCE = 500
EVENTS_AT_ONCE = 5_000
T = TypeVar("T")


def streams_of(connection: Any) -> Iterator[StreamState]:
    """All streams, in the order of their numbers."""
    last = -1
    while True:
        rows = connection.all(
            f"SELECT number FROM stream WHERE number > ? AND mode <> {DELETING} ORDER BY number "  # noqa: S608
            f"LIMIT {STREAMS_AT_ONCE}",
            (last,),
        )
        if not rows:
            return
        for (number,) in rows:
            last = number
            if (stream := stream_of(connection, number)) is not None:
                yield stream


def pieces(items: Iterator[T]) -> Iterator[list[T]]:
    """Some at a time."""
    while piece := list(islice(items, EVENTS_AT_ONCE)):
        yield piece


def _played(connection: Any, replay: Replay, until: int, step: Step) -> Replay:
    """Replay a stream up to a position of the log."""
    replay.start(connection)
    for part in replay.log(connection, until):
        replay.feed(part)
        step(len(part))
    replay.finish()
    return replay


# ---- does a replay give the same? -----------------------------------------------------------------------------------


@dataclass
class ReplayCheck:
    """What a replay of all streams has found."""

    streams: int = 0
    forecasts: int = 0
    outcomes: int = 0
    corrected: int = 0  # outcomes that took the place of others
    differences: list[str] = field(default_factory=list)  # sentences, one for each stream that differs

    @property
    def is_same(self) -> bool:
        """Whether store and replay agree in every bit."""
        return not self.differences

    def count(self, replay: Replay) -> None:
        """One more stream."""
        self.streams += 1
        self.forecasts += replay.state.events - replay.base.events
        self.outcomes += replay.state.outcomes - replay.base.outcomes


def model_from(meta: dict[str, str]) -> Model:
    """The model of a store."""
    whole = meta.get("monitor_whole", "1") == "1"
    monitor = json.loads(meta.get("monitor", "null")) if whole else None
    return Model.named(meta["method"], int(meta["seed"]), monitor, band=json.loads(meta["band"]))


def replay_check(url: str, step: Step = no_progress) -> ReplayCheck:
    """Replay all streams of a store from their base and compare every bit: forecasts, rows, monitors, numbers.

    A service may use the store meanwhile.

    Raises
    ------
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    result = ReplayCheck()
    with reading(url) as connection:
        meta = get_meta(connection)
        check_described(meta)
        model = model_from(meta)
        for stream in streams_of(connection):
            right = right_outcomes(connection, stream.number, stream.applied)
            since = last_verb(connection, stream.number, ops.APPLY, ops.METHOD)
            replay = Replay(model, stream, right, compares_after=since)
            _played(connection, replay, int(meta.get("flushed", "0")), step)
            difference = _difference(connection, stream, replay)
            if difference:
                result.differences.append(f"stream {stream.name!r}: {difference}")
            result.count(replay)
    return result


def _difference(connection: Any, stream: StreamState, replay: Replay) -> str:
    """What of a stream is not that of its replay, or nothing."""
    # What another machine has answered stays, and what this service had computed is beside it.
    other = [record for record in replay.differences if _own(connection, record) != [record.own]]
    if other:
        return f"{len(other)} forecasts differ, the first {other[0].forecast!r} - at {other[0].nth}"
    if replay.other_bands:
        return f"{replay.other_bands} bands differ"
    state = replay.state
    for name in ("events", "outcomes", "pending", "held", "expired"):
        if getattr(stream, name) != getattr(state, name):
            return f"{name} must be {getattr(state, name)}, got {getattr(stream, name)}"
    if state.state != stream.state:
        return "the row differs"
    if stream.shape.groups is not None and replay.cells != stored_cells(connection, stream.number):
        return "the cells of its groups differ"
    # The monitor of a stream whose state was imported begins with the first event here.
    if replay.model.watched is not None and stream.monitor is not None and state.monitor != stream.monitor:
        return "the monitor differs"
    return ""


def _own(connection: Any, record: Record) -> list[bytes | None]:
    """What the service has computed of an event, where something else was answered."""
    return [each.own for each in numbered(connection, record.stream, record.nth)]


# ---- another method -------------------------------------------------------------------------------------------------


def rebuild(url: str, method: str | None = None, step: Step = no_progress) -> ReplayCheck:
    """Rebuild the state from the log: for another method, or with the corrections that wait.

    Forecasts that were answered stay as they are. Pending forecasts get receipts of the new method, so that their
    outcomes are learnt by it. Monitors begin anew.

    Raises
    ------
    UnknownMethod, InvalidInput : the method does not exist or does not live in a row, or the store is in use.
    """
    result = ReplayCheck(corrected=apply_waiting(url))
    with owned_store(url) as store:
        connection = store.connection
        meta = get_meta(connection)
        chosen = (method or meta["method"]).lower()
        # A monitor is about the forecasts of one method: it begins anew.
        model = Model.named(chosen, int(meta["seed"]), band=json.loads(meta["band"]))
        position = last_position(connection)
        for stream in streams_of(connection):
            if stream.shape.groups is not None and not model.has_groups:
                raise InvalidInput(
                    f"method must be auto or gauto, as stream {stream.name!r} has groups, got {chosen!r}"
                )
            if stream.shape.models is not None and chosen != "auto":
                raise InvalidInput(f"method must be auto, as stream {stream.name!r} has models, got {chosen!r}")
            right = right_outcomes(connection, stream.number, stream.applied)
            replay = _played(connection, Replay(model, stream, right, is_anew=True), position, step)
            _write_anew(store, stream, replay, chosen)
            result.count(replay)
        set_meta(connection, "method", chosen)
        set_meta(connection, "described", description_of(chosen))
        set_meta(connection, "rebuilt", repr(time.time()))
    return result


def _write_anew(store: Store, stream: StreamState, replay: Replay, method: str) -> None:
    """The state of a stream by another method."""
    connection, number = store.connection, stream.number
    position = last_position(connection) + 1
    store.append([ops.row_of(position, number, ops.METHOD, id=method, at=time.time())])
    set_meta(connection, "flushed", str(position))
    connection.run("DELETE FROM receipt WHERE stream = ?", (number,))
    store.add_receipts(
        [receipt_row(each, stream.receipts) for each in replay.open.values() if each.receipt is not None]
    )
    connection.run("UPDATE event SET own = NULL WHERE stream = ? AND own IS NOT NULL", (number,))
    if stream.base:
        replay.base.receipts, _ = new_version(connection, stream, replay.base)
        store.add_receipts([(row[0], replay.base.receipts, *row[2:]) for row in replay.base.open])
        replay.base.write(connection, number)
    if stream.shape.groups is not None:
        replace_cells(connection, number, replay.cells)
        if stream.base:
            replace_cells(connection, number, replay.base.cells, is_base=True)
    connection.run("UPDATE stream SET alarms = 0 WHERE number = ?", (number,))
    connection.run("UPDATE body SET state = ?, monitor = NULL WHERE stream = ?", (replay.state.state, number))


def configure(url: str, step: Step = no_progress, *, method: str | None = None, **changes: Any) -> EngineSettings:
    """Change settings that belong to a store -> its settings. Another method makes the state anew from the log.

    Raises
    ------
    UnknownMethod, InvalidInput : a store cannot have such settings, or it is in use.
    """
    if method is None and not changes:
        with reading(url) as connection:
            return stored_settings(get_meta(connection))
    with owned_store(url) as store:
        if "method" not in get_meta(store.connection):  # it was made for a token, and never served
            claim_meta(store.connection, stored_settings({}))
    if method is not None:
        rebuild(url, method, step)
    with owned_store(url) as store:
        known = stored_settings(get_meta(store.connection))
        settings = replace(known, **changes)
        model = model_of(settings)  # which checks the monitor
        if settings.band != known.band:
            _change_band(store, replace(model, watched=None), step)
        write_settings(store.connection, settings)
        return stored_settings(get_meta(store.connection))


def _change_band(store: Store, model: Model, step: Step) -> None:
    """Forecasts are to say how sure they are, or no longer: the record of that is the end of each row.

    It moves no forecast, so receipts and monitors stay. It begins with the base of a stream.
    """
    connection, record, stats = store.connection, len(new_record()) * 8, 8 * STATS
    for stream in streams_of(connection):
        if stream.shape.numbers > 1 or stream.shape.models is not None:
            kind = "classes" if stream.shape.models is None else "models"
            raise InvalidInput(f"band must be off, as stream {stream.name!r} has {kind}, which have none yet")
        if stream.shape.groups is not None:
            raise InvalidInput(f"band must be off, as stream {stream.name!r} has groups, which have none yet")
        base = Base.of(connection, stream)
        if base.state is not None:
            row, behind = base.state[:-stats], base.state[-stats:]
            fresh = np.array(new_record()).tobytes()
            base.state = (row + fresh if model.method.band else row[:-record]) + behind
            base.write(connection, stream.number)
        right = right_outcomes(connection, stream.number, stream.applied)
        replay = _played(connection, Replay(model, stream, right), last_position(connection), step)
        connection.run("UPDATE body SET state = ? WHERE stream = ?", (replay.state.state, stream.number))


def apply_waiting(url: str) -> int:
    """Apply the corrections that a service has left, and forget what it was to forget -> how many events."""
    with on_store(url) as engine:
        return engine.corrections.do_all()


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
    with owned_store(url) as store:
        connection = store.connection
        meta = get_meta(connection)
        check_described(meta)
        waiting = _waiting(connection)
        if waiting:
            raise InvalidInput(
                f"store must have no corrections that wait, got {counted(waiting, 'correction')}: "
                "`calibeat store replay` applies them"
            )
        model = model_from(meta)
        for stream in streams_of(connection):
            deleted += _prune(store, model, stream, before, step)
        pruned = max(before, float(meta.get("pruned_before", "0")))
        if deleted:
            set_meta(connection, "pruned_before", repr(pruned))
    return deleted


def _waiting(connection: Any) -> int:
    """How many corrections wait to be applied."""
    kinds = f"{ops.CORRECT}, {ops.FORGET}"
    statement = f"SELECT count(*) FROM op c JOIN stream s ON s.number = c.stream WHERE c.kind IN ({kinds}) AND c.corrects IS NOT NULL AND c.position > s.applied"  # noqa: S608, E501
    return int(connection.all(statement)[0][0])


_FIRST_YOUNG = (
    "SELECT min(position) FROM (SELECT position FROM event WHERE stream = ? AND time >= ? UNION ALL "  # noqa: S608
    "SELECT learnt FROM event WHERE stream = ? AND learnt IS NOT NULL AND outcome_time >= ? UNION ALL "
    f"SELECT position FROM op WHERE stream = ? AND kind > 1 AND kind <> {ops.BEGIN} AND kind <> {ops.DEFINE} "
    "AND at >= ?) young"
)


def _prune(store: Store, model: Model, stream: StreamState, before: float, step: Step) -> int:
    """Move the base of one stream up to the first operation that is too young, and delete what is settled by then."""
    connection, number = store.connection, stream.number
    (first,) = connection.all(_FIRST_YOUNG, (number, before) * 3)[0]
    cut = last_position(connection) if first is None else int(first) - 1
    base = Base.of(connection, stream)
    if cut > base.position and connection.all(
        "SELECT 1 FROM event WHERE stream = ? AND position > ? AND position <= ? LIMIT 1", (number, base.position, cut)
    ):
        right = right_outcomes(connection, number, stream.applied)
        replay = _played(connection, Replay(model, stream, right, cut=cut), cut, step)
        assert replay.new_base is not None  # noqa: S101 - there is a cut
        base = replay.new_base
        base.receipts, _ = new_version(connection, stream, replay.base)
        connection.run("DELETE FROM receipt WHERE stream = ? AND version <> ?", (number, stream.receipts))
        # Outcomes that would come late are not waited for any more, unless the event stays or they have come since.
        unread, since = first_unread(base.monitor) if base.monitor else 2**62, _learnt_since(connection, base, number)
        kept = {
            nth: record
            for nth, record in replay.open.items()
            if record.status != EXPIRED or nth >= unread or nth in since
        }
        store.add_receipts([receipt_row(each, base.receipts, is_base=True) for each in kept.values()])
        settled = [row for row in base.open if not row[3]]
        store.add_receipts([(number, base.receipts, *row[2:]) for row in settled])
        base.write(connection, number)
        if rows := shape_rows(stream, last_position(connection) + 1, time.time()):
            store.append(rows)
            set_meta(connection, "flushed", str(rows[-1][0]))
        connection.run("UPDATE stream SET base = ? WHERE number = ?", (base.position, number))
        connection.run_many(
            "UPDATE event SET own = ? WHERE stream = ? AND nth = ?",
            [(own, number, nth) for nth, own in replay.own_at_base.items()],
        )
        if stream.shape.groups is not None:
            replace_cells(connection, number, base.cells, is_base=True)
    return _delete_settled(store, number, base, before)


def _learnt_since(connection: Any, base: Base, number: int) -> set[int]:
    """The numbers of the events before a base whose outcome is learnt behind it."""
    statement = "SELECT nth FROM event WHERE stream = ? AND position <= ? AND learnt > ?"
    return {nth for (nth,) in connection.all(statement, (number, base.position, base.position))}


def _delete_settled(store: Store, number: int, base: Base, before: float) -> int:
    """Delete the old events of which nothing remembers anything but the base."""
    unread = 2**62 if base.monitor is None else first_unread(base.monitor)
    run, within, deleted = store.connection.run, store.one_of, 0
    last = -1
    while True:
        rows = store.connection.all(
            "SELECT e.nth, e.position, e.learnt FROM event e "
            "LEFT JOIN receipt r ON r.stream = e.stream AND r.version = ? AND r.nth = e.nth "
            "WHERE e.stream = ? AND e.position <= ? AND e.time < ? AND e.nth > ? AND e.nth < ? AND r.nth IS NULL "
            "ORDER BY e.nth LIMIT ?",
            (base.receipts, number, base.position, before, last, unread, EVENTS_AT_ONCE),
        )
        if not rows:
            return deleted
        last = rows[-1][0]
        numbers = store.as_list([nth for nth, *_ in rows])
        positions = store.as_list([position for _, *both in rows for position in both if position is not None])
        run(f"DELETE FROM op WHERE position {within}", (positions,))  # noqa: S608 - our own condition
        run(f"DELETE FROM op WHERE stream = ? AND kind > 1 AND kind < {ops.FORGET} AND nth {within}", (number, numbers))  # noqa: S608
        run(f"DELETE FROM receipt WHERE stream = ? AND nth {within}", (number, numbers))  # noqa: S608
        run(f"DELETE FROM event WHERE stream = ? AND nth {within}", (number, numbers))  # noqa: S608
        deleted += len(rows)


# ---- is it whole? ---------------------------------------------------------------------------------------------------


def check(url: str, step: Step = no_progress) -> list[str]:
    """What is wrong with a store, as sentences; nothing if it is whole. It replays nothing."""
    with reading(url) as connection:
        problems = [f"the database is damaged: {found}" for found in connection.integrity()]
        meta = get_meta(connection)
        first_hour = 0
        if "pruned_before" in meta:
            first_hour = int(float(meta["pruned_before"]) // HOUR) + 1
        for stream in _listed(connection, problems):
            try:
                problems += _problems(connection, stream, first_hour, meta["method"], step)
            except connection.faults as error:
                problems.append(f"stream {stream.name!r}: it cannot be read: {error}")
    return problems


def _listed(connection: Any, problems: list[str]) -> Iterator[StreamState]:
    """The streams of a store, as far as they can be read."""
    try:
        yield from streams_of(connection)
    except connection.faults as error:
        problems.append(f"streams cannot be listed: {error}")


def _problems(connection: Any, stream: StreamState, first_hour: int, method: str, step: Step) -> Iterator[str]:
    """What is wrong with a stream."""
    problem = _events(connection, stream, step) or _rollups(connection, stream, first_hour)
    problem = problem or _cells(connection, stream, method) or _losses(connection, stream)
    if problem:
        yield f"stream {stream.name!r}: {problem}"


_EVENTS = (
    "SELECT e.nth, e.status, e.learnt, e.position, r.nth, o.stream, o.nth, o.kind, l.stream, l.nth FROM event e "
    "LEFT JOIN op o ON o.position = e.position LEFT JOIN op l ON l.position = e.learnt "
    "LEFT JOIN receipt r ON r.stream = e.stream AND r.version = ? AND r.nth = e.nth "
    "WHERE e.stream = ? ORDER BY e.nth"
)


def _events(connection: Any, stream: StreamState, step: Step) -> str:
    """Whether the events of a stream are those of its operations, and as many as it counts."""
    base = Base.of(connection, stream)
    statuses, first, bare, lost, position = [0] * (LATE + 1), base.events, 0, 0, 0
    for part in pieces(iter(connection.each(_EVENTS, (stream.receipts, stream.number)))):
        for nth, status, learnt, at, receipt, *found in part:
            statuses[status] += 1
            if at > base.position and nth != first:
                return f"forecasts must be numbered from {base.events} to {stream.events} without a gap"
            first += at > base.position
            bare += status in {PENDING, HELD, WAITING} and receipt is None
            lost += found[:3] != [stream.number, nth, ops.FORECAST] or at <= position
            lost += learnt is not None and (found[3:] != [stream.number, nth] or learnt <= at)
            position = at
        step(len(part))
    if lost:
        return f"events must be those of the log, got {lost} others"
    if bare:
        return f"pending events must have receipts, got {bare} without"
    if first != stream.events and not stream.base:
        return f"forecasts must be numbered from 0 to {stream.events} without a gap"
    return _counts(stream, statuses)


def _counts(stream: StreamState, statuses: list[int]) -> str:
    """Whether a stream counts its events as they are; what was pruned it counts, too."""
    counts = {"pending": statuses[PENDING], "held": statuses[HELD] + statuses[WAITING]}
    if not stream.base:
        counts["outcomes"] = statuses[LEARNT] + statuses[ASSUMED] + statuses[LATE]
        counts["expired"] = statuses[EXPIRED] + statuses[ASSUMED] + statuses[LATE]
    for name, count in counts.items():
        if getattr(stream, name) != count:
            return f"{name} events must be {getattr(stream, name)}, got {count}"
    return ""


def _losses(connection: Any, stream: StreamState) -> str:
    """Whether the log-losses that lists show are those of the sums."""
    listed = connection.all("SELECT raw_log_loss, log_loss, weights FROM stream WHERE number = ?", (stream.number,))
    is_same = listed == [(stream.raw_log_loss, stream.log_loss, stream.weights)]
    return "" if is_same else "its log-losses must be those of its sums, got others"


def _cells(connection: Any, stream: StreamState, method: str) -> str:
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
    given: Any
    issued: Any
    weight: float | None
    trials: int | None


_TIMED = (
    f"SELECT e.time, o.x, o.told, CASE WHEN e.status IN ({LEARNT}, {ASSUMED}, {LATE}) THEN e.outcome END, "  # noqa: S608
    "o.given, o.issued, e.weight, e.trials FROM event e JOIN op o ON o.position = e.position "
    "WHERE e.stream = ? ORDER BY e.time"
)
_Cells = dict[tuple[int, int, int], list[float]]  # hour, kind, tenth -> the numbers of a roll-up


def _rollups(connection: Any, stream: StreamState, first_hour: int) -> str:
    """Whether the hourly sums are those of the events, as far as rounding lets them; hour by hour."""
    expected: _Cells = {}
    first = first_hour
    for part in pieces(map(Timed._make, connection.each(_TIMED, (stream.number,)))):
        _add(expected, part, stream.shape)
        last = max(first, int(part[-1].time // HOUR))  # of this hour there may be more
        if not _is_stored(connection, stream, expected, first, last):
            return _OTHERS
        first = last
    return "" if _is_stored(connection, stream, expected, first, _END) else _OTHERS


_OTHERS = "the hourly roll-ups must be the sums of the events, got others"
_END = 2**40  # behind every hour


def _add(cells: _Cells, part: list[Timed], shape: Shape) -> None:
    """Forecasts and outcomes of some events."""
    learnt = [event for event in part if event.outcome is not None]
    both = [*part, *learnt]
    shares = [Observed.of_stored(event.outcome or 0, event.weight, event.trials).share for event in learnt]
    outcomes, losses = of_named_classes(both, [nan] * len(part) + shares)
    made = Rollups(
        slots=[0] * len(both),
        times=[event.time for event in both],
        scores=[event.score for event in both],
        forecasts=[event.forecast for event in both],
        outcomes=outcomes,
        losses=losses,
        weights=weights_of(both, outcomes, shape.odds_of(len(both))),
        ages=[0.0] * len(both),
        numbers=[0],
        sums=[bytes(8 * SUMS)],
    )
    for _, hour, kind, of, *numbers in made.rollups:
        before = cells.get((hour, kind, of))
        cells[hour, kind, of] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]


def _is_stored(connection: Any, stream: StreamState, expected: _Cells, first: int, end: int) -> bool:
    """Whether the store has the same in these hours; up to their end, nothing is expected afterwards."""
    rows = connection.all(
        "SELECT hour, kind, tenth, forecasts, outcomes, sum_p, sum_y, log_loss, weight FROM rollup "
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
    """A store in a few numbers. What cannot be read is None, and `damaged` says why."""
    with reading(url) as connection:
        meta = get_meta(connection)
        settings = stored_settings(meta)
        damaged = list[str]()

        def read(what: str, made: Callable[[], Any], otherwise: Any) -> Any:
            try:
                return made()
            except connection.faults as error:
                damaged.append(f"{what}: {error}")
                return otherwise

        found = read("streams", lambda: totals_of(connection.all), {})
        select = "SELECT count(*), min(time), max(time) FROM event"
        count, first, last = read("events", lambda: connection.all(select)[0], (None, None, None))
        texts = read("shapes", lambda: connection.all("SELECT text FROM shape"), [])
        shapes = [Shape.from_text(text) for (text,) in texts]
        return {
            "version": int(meta["schema"]),
            **{name: getattr(settings, name) for name in ("method", "seed", *CONFIGURED)},
            "streams": found.get("streams"),
            "with many classes": sum(shape.numbers > 1 for shape in shapes),
            "with models": sum(shape.models is not None for shape in shapes),
            "with groups": sum(shape.groups is not None for shape in shapes),
            "forecasts": found.get("events"),
            **{name: found.get(name) for name in ("outcomes", "pending", "held", "expired", "alarms")},
            "events stored": count,
            "first": first,
            "last": last,
            "corrections that wait": read("corrections", lambda: _waiting(connection), None),
            "pruned before": float(meta["pruned_before"]) if "pruned_before" in meta else None,
            "bytes": connection.size(),
            **({"damaged": damaged} if damaged else {}),
        }
