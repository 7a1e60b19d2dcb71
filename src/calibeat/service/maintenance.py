"""What is done to a store that no service writes to: replay, rebuild, prune, check. The command line calls these."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable
from itertools import takewhile
from math import isclose, nan
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.words import counted
from calibeat.core.stats import EVENTS, STATS, log_loss
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank, first_unread
from calibeat.service.store.schema import get_meta, set_meta
from calibeat.service.store.types import (
    ASSUMED,
    BRIER,
    CALIBRATED,
    EXPIRED,
    HELD,
    HOUR,
    LEARNT,
    LOG_LOSS,
    PENDING,
    RAW,
    RAW_BRIER,
    RAW_LOG_LOSS,
    SUMS,
    TENTHS,
    tenth,
)

from . import replay
from .replay import Forecast, InOrder, Log, Play, Replay, Stream, Structure, pieces, streams_of
from .rollups import Books, errors_of
from .settings import Settings
from .setup import bank_of, check_described, description_of
from .store import open_connection, owned, totals

AT_ONCE = 1000  # corrections
# Of each event the one that came last, whatever time the client gave it.
_LATEST_CORRECTIONS = (
    "SELECT c.stream, c.nth, c.outcome, e.outcome, e.score, e.forecast, e.time FROM correction c "
    "JOIN event e ON e.stream = c.stream AND e.nth = c.nth WHERE c.applied = 0 AND (c.stream, c.nth) > (?, ?) "
    "AND NOT EXISTS (SELECT 1 FROM correction d WHERE d.applied = 0 AND d.stream = c.stream AND d.nth = c.nth "
    "AND d.number > c.number) ORDER BY c.stream, c.nth LIMIT ?"
)

Step = Callable[..., None]


def _nothing(*_: Any) -> None:
    """A step where nobody looks."""


def bank_from(meta: dict[str, str], method: str | None = None) -> Bank:
    """A bank as the store's own, without its streams."""
    whole = meta.get("monitor_whole", "1") == "1"
    monitor = json.loads(meta.get("monitor", "null")) if whole else None
    return bank_of(method or meta["method"], int(meta["seed"]), Settings(monitor=monitor))


def replay_check(url: str, step: Step = _nothing) -> Replay:
    """Replay a store from its log and compare every bit. A service may use the store meanwhile."""
    connection = open_connection(url)
    try:
        connection.begin_reading()
        meta = get_meta(connection)
        check_described(meta)
        return replay.check(connection, lambda: bank_from(meta), step)
    finally:
        connection.close()


# ---- the state made anew --------------------------------------------------------------------------------------------


def rebuild(url: str, method: str | None = None, step: Step = _nothing) -> Replay:
    """Make the state anew from the log: for another method, or with the corrections that wait.

    Forecasts that were told stay as they were told. Pending forecasts get receipts of the new method, so that their
    outcomes are learnt by it.
    """
    result = Replay()
    with owned(url) as connection:
        meta = get_meta(connection)
        chosen = (method or meta["method"]).lower()
        bank_from(meta, chosen)  # a bad name is noticed before the work
        result.corrected = apply_corrections(connection)
        for group in streams_of(connection, with_state=False):
            # Without monitors: one is about the forecasts of one method, so they begin anew.
            bank, log = bank_of(chosen, int(meta["seed"]), Settings()), Log(connection, group)
            for stream in group:
                structure = Structure(stream)
                _rebuild(connection, bank, stream, log, structure, step)
                result.count(structure)
        set_meta(connection, "method", chosen)
        set_meta(connection, "described", description_of(chosen))
        set_meta(connection, "rebuilt", repr(time.time()))
    return result


def _rebuild(connection: Any, bank: Bank, stream: Stream, log: Log, structure: Structure, step: Step) -> None:
    """One stream made anew, with the receipts of those of its events that need them."""
    play, base = Play(bank, stream), stream.base
    is_based = stream.base_seq == 0
    for part in pieces(log.of(stream)):
        for event in part:
            structure.see(event)
        made = play.feed([event for event in part if event.number < stream.base_seq])
        later = [event for event in part if event.number >= stream.base_seq]
        if later and not is_based:
            base, is_based = _new_base(bank, stream, play), True
        made += play.feed(later)
        connection.run_many(
            "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
            [(receipt, stream.number, event.nth) for event, _, receipt in made if _needs(stream, event)],
        )
        step(len(part))
    if not is_based or stream.name not in bank:
        base = _new_base(bank, stream, play)
    connection.run(
        "UPDATE stream SET state = ?, monitor = NULL, base_monitor = NULL, alarms = 0, since = ?, base = ?, "
        "version = version + 1 WHERE number = ?",
        (play.row(), stream.seq, base, stream.number),
    )


def _needs(stream: Stream, event: Forecast) -> bool:
    """Whether an event needs its receipt: for its outcome to come, or for a replay from the base."""
    straddles = event.outcome_seq is not None and event.number < stream.base_seq <= event.outcome_seq
    return event.status in {PENDING, HELD} or straddles


def _new_base(bank: Bank, stream: Stream, play: Play) -> bytes:
    """The base of a pruned stream, of what pruning has left: forecasts whose outcome came later."""
    fresh = np.concatenate([bank.method.initial_row(), np.zeros(STATS)])[None, :]
    row = bank.rows([stream.name]) if stream.name in bank else fresh
    row[:, bank.method.width + EVENTS] = stream.base_events
    bank.set_rows([stream.name], row)
    return play.row()


def apply_corrections(connection: Any) -> int:
    """The latest corrections since the last time take the place of other outcomes -> how many outcomes change."""
    applied, last = 0, (-1, -1)
    while found := connection.all(_LATEST_CORRECTIONS, (*last, AT_ONCE)):
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
    for loss, brier, kind, p in ((LOG_LOSS, BRIER, CALIBRATED, forecast), (RAW_LOG_LOSS, RAW_BRIER, RAW, score)):
        sums[loss] += log_loss(p, new) - log_loss(p, old)
        sums[brier] += (p - new) ** 2 - (p - old) ** 2
        sums[TENTHS + 30 * kind + 3 * tenth(p) + 2] += new - old
    (errors,) = errors_of(np.frombuffer(sums))
    connection.run(
        "UPDATE stream SET sums = ?, error = ?, raw_error = ? WHERE number = ?", (sums.tobytes(), *errors, stream)
    )


# ---- old events go --------------------------------------------------------------------------------------------------


def prune(url: str, older: float, now: float | None = None, step: Step = _nothing) -> int:
    """Delete events that are settled and older than so many seconds -> how many. The state stays as it is.

    What is deleted goes into the base of its stream, from which later replays start. Roll-ups stay. A store with
    corrections that wait is refused: the base would hold what they correct, for ever.
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
        for group in streams_of(connection, with_state=False):
            bank, log = bank_from(meta), Log(connection, group)
            for stream in group:
                deleted += _prune(connection, bank, stream, log, before, step)
        pruned = max(before, float(meta.get("pruned_before", "0")))
        if deleted:
            set_meta(connection, "pruned_before", repr(pruned))
    return deleted


def _prune(connection: Any, bank: Bank, stream: Stream, log: Log, before: float, step: Step) -> int:
    """Move the base of one stream up to the first operation that is too young, and delete what is settled by then."""
    play = Play(bank, stream)
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
    if bank.watched is not None:
        monitor = play.monitor(connection, cut)
        gone += " AND nth < ?"  # what the monitor has not read is kept
        which.append(first_unread(monitor))
    connection.run_many(
        "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
        [(receipt, stream.number, nth) for nth, receipt in play.open.items()],
    )
    deleted: int = connection.run(f"DELETE FROM event WHERE {gone}", which)  # noqa: S608 - our own condition
    connection.run(
        "UPDATE stream SET base_seq = ?, base_events = ?, base = ?, base_monitor = ? WHERE number = ?",
        (cut, events, play.row(), monitor, stream.number),
    )
    return deleted


# ---- is it whole? ---------------------------------------------------------------------------------------------------


def check(url: str, step: Step = _nothing) -> list[str]:
    """What is wrong with a store, as sentences; nothing if it is whole. It replays nothing."""
    connection = open_connection(url)
    try:
        problems = [f"the database is damaged: {found}" for found in connection.integrity()]
        connection.begin_reading()
        meta = get_meta(connection)
        first_hour = 0
        if "pruned_before" in meta:
            first_hour = int(float(meta["pruned_before"]) // HOUR) + 1
        for group in streams_of(connection, with_state=False):
            log, timed = Log(connection, group), InOrder(connection, _TIMED, group, Timed)
            for stream in group:
                structure = Structure(stream)
                for part in pieces(log.of(stream)):
                    for event in part:
                        structure.see(event)
                    step(sum(type(event) is Forecast for event in part))
                problem = structure.problem or structure.counts or _rollups(connection, stream, timed, first_hour)
                if problem:
                    problems.append(f"stream {stream.name!r}: {problem}")
        problems += totals.problems(connection)
    finally:
        connection.close()
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


def _rollups(connection: Any, stream: Stream, timed: InOrder[Timed], first_hour: int) -> str:
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
    made = Books(
        streams=[0] * len(both),
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


def _is_stored(connection: Any, stream: Stream, expected: _Cells, first: int, end: int) -> bool:
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
    connection = open_connection(url)
    try:
        meta = get_meta(connection)
        found = totals.stored(connection)
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
    finally:
        connection.close()
