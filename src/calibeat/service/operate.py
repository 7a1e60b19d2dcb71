"""What is done to a store that no service writes to: replay, rebuild, prune, check. The command line calls these."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable
from math import isclose, nan
from typing import Any

import numpy as np

from calibeat.bank.bank import Bank
from calibeat.bank.monitors import first_unread, give_up, monitor_states
from calibeat.core.stats import EVENTS, LAST, STATS, log_loss

from . import replay
from .books import Books, errors_of
from .replay import Logged, Replay, Stream, streams_of
from .settings import Settings
from .setup import bank_of, check_described, description_of
from .store import open_connection, owned, totals
from .store.records import (
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
from .store.schema import get_meta, set_meta

AT_ONCE = 1000  # corrections
# Of each event the one that came last, whatever time the client gave it.
_LATEST_CORRECTIONS = (
    "SELECT c.stream, c.nth, c.outcome, e.outcome, e.score, e.forecast, e.time FROM correction c "
    "JOIN event e ON e.stream = c.stream AND e.nth = c.nth WHERE c.applied = 0 AND (c.stream, c.nth) > (?, ?) "
    "AND NOT EXISTS (SELECT 1 FROM correction d WHERE d.applied = 0 AND d.stream = c.stream AND d.nth = c.nth "
    "AND d.number > c.number) ORDER BY c.stream, c.nth LIMIT ?"
)

Step = Callable[..., None]
Todo = list[tuple[int, Logged, bool]]


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
        for group in streams_of(connection):
            bank = bank_from(meta, chosen)
            receipts: list[tuple[bytes | None, int, int]] = []
            rows: list[tuple[Any, ...]] = []
            for stream in group:
                todo = replay.operations(stream)
                _new_base(bank, stream, [operation for operation in todo if operation[0] < stream.base_seq])
                replay.run(bank, stream, [operation for operation in todo if operation[0] >= stream.base_seq])
                state, _ = replay.finish(bank, stream)
                rows.append((state, stream.seq, stream.base, stream.number))
                receipts += [(event.receipt, stream.number, event.nth) for event in stream.log if _needs(stream, event)]
                result.streams += 1
                result.forecasts += len(stream.log)
                result.outcomes += sum(is_outcome for _, _, is_outcome in todo)
                step(len(todo))
            # A monitor is about the forecasts of one method: it begins anew.
            connection.run_many(
                "UPDATE stream SET state = ?, monitor = NULL, base_monitor = NULL, alarms = 0, since = ?, base = ?, "
                "version = version + 1 WHERE number = ?",
                rows,
            )
            connection.run_many("UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?", receipts)
        set_meta(connection, "method", chosen)
        set_meta(connection, "described", description_of(chosen))
        set_meta(connection, "rebuilt", repr(time.time()))
    return result


def _needs(stream: Stream, event: Logged) -> bool:
    """Whether an event needs its receipt: for its outcome to come, or for a replay from the base."""
    straddles = event.seq < stream.base_seq and event.outcome_seq is not None and event.outcome_seq >= stream.base_seq
    return event.status in {PENDING, HELD} or straddles


def _new_base(bank: Bank, stream: Stream, before: Todo) -> None:
    """The base of a pruned stream, of what pruning has left: forecasts whose outcome came later."""
    if stream.base_seq == 0:
        return
    replay.run(bank, stream, before)
    fresh = np.concatenate([bank.method.initial_row(), np.zeros(STATS)])[None, :]
    row = bank.rows([stream.name]) if before else fresh
    row[:, bank.method.width + EVENTS] = stream.base_events
    row[:, bank.method.width + LAST] = 0.0
    bank.set_rows([stream.name], row)
    stream.base = row.tobytes()


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

    What is deleted goes into the base of its stream, from which later replays start. Roll-ups stay.
    """
    before = (time.time() if now is None else now) - older
    deleted = 0
    with owned(url) as connection:
        meta = get_meta(connection)
        check_described(meta)
        for group in streams_of(connection):
            bank = bank_from(meta)
            for stream in group:
                todo = replay.operations(stream)
                cut = _cut(stream, todo, before)
                if cut > stream.base_seq:
                    deleted += _prune(connection, bank, stream, todo, cut)
                step(len(todo))
        pruned = max(before, float(meta.get("pruned_before", "0")))
        if deleted:
            set_meta(connection, "pruned_before", repr(pruned))
    return deleted


def _cut(stream: Stream, todo: Todo, before: float) -> int:
    """How many operations of a stream come before the first one that is too young."""
    for number, event, is_outcome in todo:
        when = event.outcome_time if is_outcome else event.time
        if number >= stream.base_seq and (when is None or when >= before):
            return number
    return stream.seq


def _prune(connection: Any, bank: Bank, stream: Stream, todo: Todo, cut: int) -> int:
    replay.start(bank, stream)
    replay.run(bank, stream, [operation for operation in todo if stream.base_seq <= operation[0] < cut])
    gone = [event for event in stream.log if event.seq < cut and _is_over(event, cut)]
    monitor = None
    if bank.watched is not None:
        give_up(bank, [(stream.name, event.nth) for event in gone if event.status == EXPIRED])
        monitor = monitor_states(bank, [stream.name])[0]
        gone = [event for event in gone if event.nth < first_unread(monitor)]
    row = bank.rows([stream.name])
    row[:, bank.method.width + LAST] = 0.0
    kept = {event.nth for event in stream.log} - {event.nth for event in gone}
    connection.run_many(
        "UPDATE event SET receipt = ? WHERE stream = ? AND nth = ?",
        [
            (event.receipt, stream.number, event.nth)
            for event in stream.log
            if event.nth in kept and event.seq < cut and event.outcome_seq is not None and event.outcome_seq >= cut
        ],
    )
    connection.run_many(
        "DELETE FROM event WHERE stream = ? AND nth = ?", [(stream.number, event.nth) for event in gone]
    )
    events = sum(event.seq < cut for event in stream.log if event.seq >= stream.base_seq) + stream.base_events
    connection.run(
        "UPDATE stream SET base_seq = ?, base_events = ?, base = ?, base_monitor = ? WHERE number = ?",
        (cut, events, row.tobytes(), monitor, stream.number),
    )
    return len(gone)


def _is_over(event: Logged, cut: int) -> bool:
    return event.status == EXPIRED or (event.outcome_seq is not None and event.outcome_seq < cut)


# ---- is it whole? ---------------------------------------------------------------------------------------------------


def check(url: str, step: Step = _nothing) -> list[str]:
    """What is wrong with a store, as sentences; nothing if it is whole. It replays nothing."""
    connection = open_connection(url)
    try:
        problems = [f"the database is damaged: {found}" for found in connection.integrity()]
        connection.begin_reading()
        problems += totals.problems(connection)
        meta = get_meta(connection)
        first_hour = int(float(meta.get("pruned_before", "0")) // HOUR) + 1
        if "pruned_before" not in meta:
            first_hour = 0
        for group in streams_of(connection):
            for stream in group:
                problem = replay.structure(stream, replay.operations(stream)) or _counts(stream)
                problem = problem or _rollups(connection, stream, first_hour)
                if problem:
                    problems.append(f"stream {stream.name!r}: {problem}")
                step(len(stream.log))
    finally:
        connection.close()
    return problems


def _counts(stream: Stream) -> str:
    learnt = sum(event.status in {LEARNT, ASSUMED} for event in stream.log)
    expired = sum(event.status in {EXPIRED, ASSUMED} for event in stream.log)
    if stream.base_seq == 0 and (learnt, expired) != (stream.outcomes, stream.expired):
        return f"outcomes and expired must be {stream.outcomes} and {stream.expired}, got {learnt} and {expired}"
    return ""


def _rollups(connection: Any, stream: Stream, first_hour: int) -> str:
    """Whether the hourly sums are those of the events, as far as rounding lets them."""
    learnt = [e for e in stream.log if e.status in {LEARNT, ASSUMED}]
    both = [*stream.log, *learnt]
    expected = Books(
        streams=[stream.number] * len(both),
        times=[e.time for e in both],
        scores=[e.score for e in both],
        forecasts=[e.forecast for e in both],
        outcomes=[nan] * len(stream.log) + [float(e.outcome or 0) for e in learnt],
        ages=[0.0] * len(both),
        numbers=[stream.number],
        sums=[bytes(8 * SUMS)],
    )
    rows = connection.all(
        "SELECT hour, kind, tenth, forecasts, outcomes, sum_p, sum_y, log_loss FROM rollup WHERE stream = ?",
        (stream.number,),
    )
    stored = {(stream.number, *row[:3]): row[3:] for row in rows if row[0] >= first_hour}
    wanted = {row[:4]: row[4:] for row in expected.rollups if row[1] >= first_hour}
    same = stored.keys() == wanted.keys() and all(
        isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        for key, numbers in wanted.items()
        for a, b in zip(numbers, stored[key], strict=True)
    )
    return "" if same else "the hourly roll-ups must be the sums of the events, got others"


def info(url: str) -> dict[str, Any]:
    """A store in a few numbers."""
    connection = open_connection(url)
    try:
        meta = get_meta(connection)
        totals = connection.all(
            "SELECT count(*), coalesce(sum(events), 0), coalesce(sum(outcomes), 0), coalesce(sum(pending), 0), "
            "coalesce(sum(held), 0), coalesce(sum(expired), 0), coalesce(sum(alarms), 0) FROM stream WHERE events > 0"
        )[0]
        stored = connection.all("SELECT count(*), min(time), max(time) FROM event")[0]
        waiting = connection.all("SELECT count(*) FROM correction WHERE applied = 0")[0][0]
        names = ("streams", "forecasts", "outcomes", "pending", "held", "expired", "alarms")
        return {
            "version": int(meta["schema"]),
            "method": meta.get("method"),
            "seed": int(meta.get("seed", "0")),
            "monitor": json.loads(meta.get("monitor", "null")),
            **dict(zip(names, map(int, totals), strict=True)),
            "events stored": int(stored[0]),
            "first": stored[1],
            "last": stored[2],
            "corrections that wait": int(waiting),
            "pruned before": float(meta["pruned_before"]) if "pruned_before" in meta else None,
            "bytes": connection.size(),
        }
    finally:
        connection.close()
