"""The log replayed: the same rows and forecasts, bit for bit; or a state made anew, for another method or corrections.

A stream is replayed from its base (nothing, what pruning has left, or a state that was imported) through its forecasts
and learnt outcomes, in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from calibeat.bank.bank import Bank
from calibeat.bank.monitors import give_up, monitor_states, set_monitor_states
from calibeat.core.stats import LAST

from .store.records import ASSUMED, EXPIRED, HELD, LEARNT, PENDING

AT_ONCE = 20_000  # operations in one call of the bank
STREAMS = 500  # read at once
_STREAM = (
    "number, name, seq, events, outcomes, pending, held, expired, since, base_seq, base_events, base, base_monitor"
)
_EVENT = "stream, nth, seq, score, forecast, receipt, status, outcome, outcome_seq, time, outcome_time"


@dataclass
class Logged:
    """An event of the log."""

    nth: int
    seq: int
    score: float
    forecast: float
    receipt: bytes | None
    status: int
    outcome: int | None
    outcome_seq: int | None
    time: float
    outcome_time: float | None
    replayed: float = nan  # what the replay says


@dataclass
class Stream:
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
    log: list[Logged] = field(default_factory=list)


def streams_of(connection: Any, with_state: bool = True) -> Iterator[list[Stream]]:
    """All streams with their events, some hundred at a time, in the order of their numbers."""
    columns = f"{_STREAM}, state, monitor" if with_state else f"{_STREAM}, NULL, NULL"
    last = -1
    while True:
        rows = connection.all(
            f"SELECT {columns} FROM stream WHERE number > ? ORDER BY number LIMIT {STREAMS}",  # noqa: S608
            (last,),
        )
        if not rows:
            return
        found = [Stream(*row[:11], *map(_bytes, row[11:])) for row in rows]
        by_number = {stream.number: stream for stream in found}
        last = found[-1].number
        for row in connection.each(
            f"SELECT {_EVENT} FROM event WHERE stream >= ? AND stream <= ? ORDER BY stream, nth",  # noqa: S608
            (found[0].number, last),
        ):
            if row[0] in by_number:
                by_number[row[0]].log.append(_logged(*row[1:]))
        yield found


def _logged(nth: int, seq: int, score: float, forecast: float, receipt: Any, *others: Any) -> Logged:
    return Logged(nth, seq, score, forecast, _bytes(receipt), *others)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


# ---- one stream ---------------------------------------------------------------------------------------------------


def operations(stream: Stream) -> list[tuple[int, Logged, bool]]:
    """(number, event, whether it is the outcome) of all that the log has, in order."""
    found = [(event.seq, event, False) for event in stream.log]
    found += [
        (event.outcome_seq, event, True)
        for event in stream.log
        if event.status in {LEARNT, ASSUMED} and event.outcome_seq is not None
    ]
    return sorted(found, key=lambda operation: operation[0])


def run(bank: Bank, stream: Stream, todo: list[tuple[int, Logged, bool]]) -> None:
    """Run operations of one stream on a bank that has its row; receipts stay with the events that need them."""
    for first in range(0, len(todo), AT_ONCE):
        part = todo[first : first + AT_ONCE]
        places = {event.nth: at for at, (_, event, is_outcome) in enumerate(part) if not is_outcome}
        own = [places.get(event.nth, -1) if is_outcome else -1 for _, event, is_outcome in part]
        receipts = [
            event.receipt for (_, event, is_outcome), at in zip(part, own, strict=True) if is_outcome and at < 0
        ]
        made = bank.fold(
            [stream.name] * len(part),
            [nan if is_outcome else event.score for _, event, is_outcome in part],
            [float(event.outcome or 0) if is_outcome else nan for _, event, is_outcome in part],
            receipts,
            of=own,
        )
        fresh = iter(made.receipts.tolist())
        for (_, event, is_outcome), forecast in zip(part, made.forecasts.tolist(), strict=True):
            if not is_outcome:
                event.replayed, event.receipt = forecast, next(fresh)


def start(bank: Bank, stream: Stream) -> None:
    """Put the base of a stream into the bank."""
    if stream.base is not None:
        bank.set_rows([stream.name], np.frombuffer(stream.base)[None, :])
        if stream.base_monitor is not None and bank.watched is not None:
            held = {
                event.nth: (event.forecast, float(event.outcome or 0), event.score)
                for event in stream.log
                if event.nth < stream.base_events
                and event.outcome_seq is not None
                and event.outcome_seq < stream.base_seq
            }
            set_monitor_states(bank, [stream.name], [stream.base_monitor], [held])


def finish(bank: Bank, stream: Stream) -> tuple[bytes | None, bytes | None]:
    """The row and the monitor after the replay, as the store keeps them."""
    if stream.name not in bank:
        return None, None
    # The monitor of a stream whose state was imported begins with the first event here.
    watched = bank.watched is not None and bool(stream.log or stream.base_monitor)
    if watched:
        give_up(bank, [(stream.name, event.nth) for event in stream.log if event.status == EXPIRED])
    row = bank.rows([stream.name])
    row[:, bank.method.width + LAST] = 0.0
    return row.tobytes(), monitor_states(bank, [stream.name])[0] if watched else None


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


def check(connection: Any, make_bank: Callable[[], Bank], step: Callable[..., None] = lambda *_: None) -> Replay:
    """Replay all streams from their base and compare every bit: forecasts that were told, rows, monitors, numbers."""
    result = Replay()
    for group in streams_of(connection):
        bank = make_bank()
        for stream in group:
            todo = operations(stream)
            result.streams += 1
            result.forecasts += len(stream.log)
            result.outcomes += sum(is_outcome for _, _, is_outcome in todo)
            difference = structure(stream, todo) or _compare(bank, stream, todo)
            if difference:
                result.differences.append(f"stream {stream.name!r}: {difference}")
            step(len(todo))
    return result


def structure(stream: Stream, todo: list[tuple[int, Logged, bool]]) -> str:
    """What is wrong with the numbers of a stream, or nothing."""
    later = [number for number, _, _ in todo if number >= stream.base_seq]
    if later != list(range(stream.base_seq, stream.seq)):
        return f"operations must be numbered from {stream.base_seq} to {stream.seq} without a gap"
    forecasts = [event.nth for event in stream.log if event.nth >= stream.base_events]
    if forecasts != list(range(stream.base_events, stream.events)):
        return f"forecasts must be numbered from {stream.base_events} to {stream.events} without a gap"
    for what, status in (("pending", PENDING), ("held", HELD)):
        counted = sum(event.status == status for event in stream.log)
        if counted != getattr(stream, what):
            return f"{what} events must be {getattr(stream, what)}, got {counted}"
    missing = sum(event.receipt is None for event in stream.log if event.status in {PENDING, HELD})
    return f"pending events must have receipts, got {missing} without" if missing else ""


def _compare(bank: Bank, stream: Stream, todo: list[tuple[int, Logged, bool]]) -> str:
    start(bank, stream)
    run(bank, stream, [operation for operation in todo if operation[0] >= stream.base_seq])
    told = [event for event in stream.log if event.seq >= max(stream.since, stream.base_seq)]
    wrong = [event for event in told if event.replayed != event.forecast]
    if wrong:
        first = wrong[0]
        return f"{len(wrong)} forecasts differ, the first {first.forecast!r} for {first.replayed!r} - at {first.nth}"
    row, monitor = finish(bank, stream)
    if row != stream.state:
        return "the row differs"
    if monitor is not None and stream.since == 0 and monitor != stream.monitor:
        return "the monitor differs"
    return ""
