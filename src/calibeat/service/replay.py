"""The log replayed: the same rows and forecasts, bit for bit; or a state made anew, for another method or corrections.

A stream is replayed from its base (nothing, what pruning has left, or a state that was imported) through its forecasts
and learnt outcomes, in the order of their numbers. The database reads both in order, and they are merged here. So only
a piece of the log is in memory, and the receipts of forecasts whose outcome comes in a later piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from math import nan
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibeat.core.stats import LAST
from calibeat.hosts.bank import Bank, give_up, monitor_states, set_monitor_states

from .store.types import ASSUMED, EXPIRED, HELD, LEARNT, PENDING

AT_ONCE = 5_000  # operations in one call of the bank
STREAMS = 500  # read at once
_STREAM = (
    "number, name, seq, events, outcomes, pending, held, expired, since, base_seq, base_events, base, base_monitor"
)
_WITHIN = "FROM event WHERE stream >= ? AND stream <= ?"
_FORECASTS = (
    f"SELECT stream, seq, nth, time, score, forecast, status, outcome_seq, receipt IS NULL {_WITHIN} "
    "ORDER BY stream, nth"
)
_OUTCOMES = (
    f"SELECT stream, outcome_seq, nth, outcome_time, outcome, seq, receipt {_WITHIN} "
    f"AND status IN ({LEARNT}, {ASSUMED}) AND outcome_seq IS NOT NULL ORDER BY stream, outcome_seq"
)

T = TypeVar("T")


class Forecast(NamedTuple):
    """A forecast of the log."""

    number: int  # among the operations of its stream
    nth: int
    time: float
    score: float
    forecast: float
    status: int
    outcome_seq: int | None
    is_bare: bool  # without a receipt


class Outcome(NamedTuple):
    """A learnt outcome of the log."""

    number: int
    nth: int
    time: float | None
    outcome: int
    seq: int  # the number of its forecast
    receipt: Any  # only where a replay needs it


Operation = Forecast | Outcome


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


def streams_of(connection: Any, with_state: bool = True) -> Iterator[list[Stream]]:
    """All streams, some hundred at a time, in the order of their numbers."""
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
        last = found[-1].number
        yield found


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class InOrder(Generic[T]):
    """Rows of some streams, which come stream by stream."""

    def __init__(self, connection: Any, statement: str, group: list[Stream], make: Callable[..., T]) -> None:
        self._rows: Iterator[Any] = connection.each(statement, (group[0].number, group[-1].number))
        self._make = make
        self._next: Any = next(self._rows, None)

    def of(self, stream: Stream) -> Iterator[T]:
        """Those of a stream; streams are asked for in their order, and what was left of the ones before is skipped."""
        number = stream.number
        while self._next is not None and self._next[0] <= number:
            row = self._next
            self._next = next(self._rows, None)
            if row[0] == number:
                yield self._make(*row[1:])


class Log:
    """The operations of some streams."""

    def __init__(self, connection: Any, group: list[Stream]) -> None:
        self._forecasts = InOrder(connection, _FORECASTS, group, Forecast)
        self._outcomes = InOrder(connection, _OUTCOMES, group, Outcome)

    def of(self, stream: Stream) -> Iterator[Operation]:
        """Those of a stream, in the order of their numbers; streams are asked for in their order."""
        return merge(self._forecasts.of(stream), self._outcomes.of(stream), key=itemgetter(0))


def pieces(items: Iterator[T]) -> Iterator[list[T]]:
    """Some at a time."""
    while piece := list(islice(items, AT_ONCE)):
        yield piece


# ---- one stream ---------------------------------------------------------------------------------------------------


class Play:
    """A stream on a bank: operations go in, forecasts and receipts come out.

    The receipts of forecasts whose outcome is still to come are kept: about 300 bytes each, and 500 of AUTO.
    """

    def __init__(self, bank: Bank, stream: Stream) -> None:
        self._bank, self._stream = bank, stream
        self.open: dict[int, bytes] = {}  # receipts, by the number of the forecast

    def start(self, connection: Any) -> None:
        """Put the base of the stream into the bank."""
        bank, stream = self._bank, self._stream
        if stream.base is None:
            return
        bank.set_rows([stream.name], np.frombuffer(stream.base)[None, :])
        if stream.base_monitor is not None and bank.watched is not None:
            rows = connection.all(
                "SELECT nth, forecast, outcome, score FROM event "
                "WHERE stream = ? AND nth < ? AND outcome_seq IS NOT NULL AND outcome_seq < ?",
                (stream.number, stream.base_events, stream.base_seq),
            )
            held = {nth: (forecast, float(outcome or 0), score) for nth, forecast, outcome, score in rows}
            set_monitor_states(bank, [stream.name], [stream.base_monitor], [held])

    def feed(self, part: list[Operation]) -> list[tuple[Forecast, float, bytes]]:
        """The next operations -> each forecast among them, what the bank says, and its receipt."""
        if not part:
            return []
        places = {event.nth: at for at, event in enumerate(part) if type(event) is Forecast}
        scores, outcomes, own, receipts = list[float](), list[float](), list[int](), list[Any]()
        for event in part:
            if type(event) is Forecast:
                scores.append(event.score)
                outcomes.append(nan)
                own.append(-1)
                continue
            scores.append(nan)
            outcomes.append(float(event.outcome))  # type: ignore[union-attr]  # it is one
            at = places.get(event.nth, -1)
            own.append(at)
            if at < 0:
                receipts.append(self.open.pop(event.nth, None) or _bytes(event.receipt))  # type: ignore[union-attr]
        made = self._bank.fold([self._stream.name] * len(part), scores, outcomes, receipts, of=own)
        settled, fresh = set(own), iter(made.receipts.tolist())
        found: list[tuple[Forecast, float, bytes]] = []
        for at, (event, forecast) in enumerate(zip(part, made.forecasts.tolist(), strict=True)):
            if type(event) is Forecast:
                receipt = next(fresh)
                found.append((event, forecast, receipt))
                if event.outcome_seq is not None and at not in settled:
                    self.open[event.nth] = receipt
        return found

    def row(self) -> bytes:
        """The row of the stream, as the store keeps it."""
        row = self._bank.rows([self._stream.name])
        row[:, self._bank.method.width + LAST] = 0.0
        return row.tobytes()

    def monitor(self, connection: Any, before: int) -> bytes:
        """The monitor, once it knows which of the forecasts before an operation were given up."""
        given_up = connection.each(
            "SELECT nth FROM event WHERE stream = ? AND seq < ? AND status = ? ORDER BY nth",
            (self._stream.number, before, EXPIRED),
        )
        give_up(self._bank, ((self._stream.name, nth) for (nth,) in given_up))
        return monitor_states(self._bank, [self._stream.name])[0]


class Structure:
    """Whether the numbers of a stream are right, as its operations come by."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._number, self._nth = stream.base_seq, stream.base_events  # the next ones
        self._statuses = [0] * (ASSUMED + 1)
        self._gap = self._forecast_gap = False
        self._early = self._bare = self._lost = 0
        self.outcomes = 0

    def see(self, event: Operation) -> None:
        """The next operation."""
        stream, number = self._stream, event.number
        if number >= stream.base_seq:
            self._gap |= number != self._number
            self._number += 1
        if type(event) is Forecast:
            if event.nth >= stream.base_events:
                self._forecast_gap |= event.nth != self._nth
                self._nth += 1
            self._statuses[event.status] += 1
            self._bare += event.status in {PENDING, HELD} and event.is_bare
            return
        self.outcomes += 1
        self._early += event.seq >= number  # type: ignore[union-attr]  # it is an outcome
        self._lost += event.seq < stream.base_seq <= number and event.receipt is None  # type: ignore[union-attr]

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


def check(connection: Any, make_bank: Callable[[], Bank], step: Callable[..., None] = lambda *_: None) -> Replay:
    """Replay all streams from their base and compare every bit: forecasts that were told, rows, monitors, numbers."""
    result = Replay()
    for group in streams_of(connection):
        bank, log = make_bank(), Log(connection, group)
        for stream in group:
            structure = Structure(stream)
            difference = _compare(connection, bank, stream, log, structure, step)
            if difference:
                result.differences.append(f"stream {stream.name!r}: {difference}")
            result.count(structure)
    return result


def _compare(
    connection: Any, bank: Bank, stream: Stream, log: Log, structure: Structure, step: Callable[..., None]
) -> str:
    play, told = Play(bank, stream), max(stream.since, stream.base_seq)
    play.start(connection)
    count, first = 0, ""
    for part in pieces(log.of(stream)):
        for event in part:
            structure.see(event)
        if structure.is_sound:
            for event, replayed, _ in play.feed([event for event in part if event.number >= stream.base_seq]):
                if event.number >= told and replayed != event.forecast:
                    count += 1
                    first = first or f"the first {event.forecast!r} for {replayed!r} - at {event.nth}"
        step(len(part))
    if structure.problem:
        return structure.problem
    if count:
        return f"{count} forecasts differ, {first}"
    if (play.row() if stream.name in bank else None) != stream.state:
        return "the row differs"
    # The monitor of a stream whose state was imported begins with the first event here.
    if bank.watched is not None and (structure.events or stream.base_monitor) and stream.since == 0:
        return "" if play.monitor(connection, stream.seq) == stream.monitor else "the monitor differs"
    return ""
