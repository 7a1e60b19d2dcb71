"""Groups that are answered and are not in their tables yet.

To write a group into its tables takes most of its time: every event is in another stream, and so every row, sum and
roll-up lies on another page. So an engine that alone writes its store may put what it was asked into the journal, as
one row, and commit that. The tables follow for many groups at once: soon, and before anybody reads them. What an event
changed twice meanwhile is written once.

The journal is the truth until then. A process that finds one there, because the one before it was killed, does what is
in it once more, from the same tables and with the same clock. The forecasts that were answered are in the journal too:
they stay as they were given, even if this machine computes another last bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from calibeat.errors import SnapshotMismatch

from .events import CorrectionEvent, ForecastEvent, InvalidEvent, OutcomeEvent, StreamSettings
from .notices import GroupArrivals
from .plan import Known, Plan, Request, forecasts_of, of_named_classes
from .rollups import Rollups
from .store.types import Changes, Record, Store, StreamState


class JournalRequest(msgspec.Struct, array_like=True, omit_defaults=True):
    """One request, as the journal has it. What was no event is left out: it did nothing."""

    forecasts: list[ForecastEvent] = []
    outcomes: list[OutcomeEvent] = []
    corrections: list[CorrectionEvent] = []
    settings: list[StreamSettings] = []


_FIELD_OF: dict[Any, int] = {ForecastEvent: 0, OutcomeEvent: 1, CorrectionEvent: 2, StreamSettings: 3}
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[JournalRequest]).decode


class JournalRow(NamedTuple):
    """A group in the journal."""

    time: float  # by the clock of the engine
    requests: bytes
    told: bytes  # the forecasts as they were answered, 8 bytes each; K of them for an event of K classes
    checksum: int  # of both

    @classmethod
    def of(cls, time: float, requests: Sequence[Request], records: Iterable[Record]) -> JournalRow:
        """A group that was done: its requests, and the new events that it has made."""
        asked, told = packed(requests), forecasts_of(records)
        return cls(time, asked, told, checksum(asked, told))


def read_journal(store: Store) -> list[JournalRow]:
    """Return the groups in the journal, in order.

    Raises
    ------
    SnapshotMismatch : a row is damaged.
    """
    groups = []
    for at, (time, requests, told, sealed) in enumerate(store.journal()):
        row = JournalRow(time, bytes(requests), bytes(told), sealed)
        if checksum(row.requests, row.told) != sealed:
            raise SnapshotMismatch(
                f"journal of the store must be intact, got a damaged row - at row {at}: restore a backup"
            )
        groups.append(row)
    return groups


def packed(requests: Sequence[Request]) -> bytes:
    """What a group was asked.

    >>> [events for _, events in unpacked(packed([("a", [OutcomeEvent("paris", "e1", 1)])]))]
    [[OutcomeEvent(stream='paris', id='e1', outcome=1, time=None, label=UNSET)]]
    """
    made = []
    for _, events in requests:
        valid = [event for event in events if type(event) is not InvalidEvent]
        if valid:
            made.append([*[()] * _FIELD_OF[type(valid[0])], valid])
    return _pack(made)


def unpacked(requests: bytes) -> list[Request]:
    """The same, as the engine takes it."""
    return [(None, a.forecasts or a.outcomes or a.corrections or a.settings) for a in _unpack(requests)]


def checksum(requests: bytes, told: bytes) -> int:
    """Return the checksum of a row of the journal."""
    return zlib.crc32(told, zlib.crc32(requests))


@dataclass
class Unwritten:
    """The changes of some groups, and the events among them that are not in the store as they are now."""

    changes: Changes = field(default_factory=Changes)
    size: int = 0  # operations
    groups: int = 0  # that are in the journal
    since: float = 0.0  # when the first one was added
    time: float = 0.0  # of the last one, by the clock of the engine
    overdue: list[StreamState] = field(default_factory=list)  # as in `Plan`
    _arrived: list[tuple[StreamState, float, float, float]] = field(default_factory=list)
    _ends: list[tuple[int, float]] = field(default_factory=list)
    _records: Known = field(default_factory=dict)
    _settled: Known = field(default_factory=dict)
    _learnt: bool = False
    _asked: list[Record] = field(default_factory=list)  # the operations: their events, and
    _outcomes: list[float] = field(default_factory=list)  # what was learnt, NaN for a forecast

    def __bool__(self) -> bool:
        return self.groups > 0

    def find(self, ids: list[tuple[int, str]]) -> tuple[Known, list[tuple[int, str]]]:
        """Those of some events that are here, and the ids of the others, which the store may have."""
        records, others = self._records, list[tuple[int, str]]()
        known: Known = {}
        if not records:
            return known, ids
        for name in ids:
            record = records.get(name)
            if record is None:
                others.append(name)
            else:
                known[name] = record
        return known, others

    def add(self, plan: Plan, now: float) -> None:
        """Another group, which has learnt."""
        new, all_ = plan.changes, self.changes
        self.time = now
        self._ends += [(len(self._arrived) + at, moment) for at, moment in plan.ends]
        self._arrived += plan.arrived
        self.overdue += plan.overdue
        all_.inserted += new.inserted
        all_.streams |= new.streams
        all_.alarms += new.alarms
        all_.ended += new.ended
        all_.corrections += new.corrections
        all_.said += new.said
        all_.shaped |= new.shaped
        all_.cells += new.cells
        all_.names += new.names
        all_.forgotten += new.forgotten
        self._settled.update({(record.stream, record.id): record for record in new.settled})
        self._asked += plan.operations.records
        self._outcomes += plan.operations.outcomes
        self._learnt |= plan.learnt > 0
        self.size += len(plan.operations.records)

    def keep(self, plan: Plan, now: float) -> None:
        """The group that was added is in the journal: later ones see its events here."""
        if not self.groups:
            self.since = now
        self.groups += 1
        for record in plan.changes.inserted:
            record.operation = -1
            self._records[record.stream, record.id] = record
        for record in plan.changes.settled:
            self._records[record.stream, record.id] = record

    @property
    def is_to_be_heard(self) -> bool:
        """Whether notices have something to hear."""
        return bool(self._arrived or self.overdue)

    def arrivals(self) -> GroupArrivals:
        """What has arrived, by the places of the streams among those that have changed."""
        for slot, state in enumerate(self.changes.streams.values()):
            state.slot = slot
        states, times, scores, lags = zip(*self._arrived, strict=True) if self._arrived else ((), (), (), ())
        return GroupArrivals([state.slot for state in states], times, scores, lags, self._ends)

    def finish(self) -> Changes:
        """All that is to be written, with the sums of the streams and the hourly roll-ups."""
        changes, records = self.changes, self._asked
        # Rows of a stream lie on the same pages.
        changes.inserted.sort(key=attrgetter("stream"))
        changes.settled = sorted(self._settled.values(), key=attrgetter("stream"))
        streams = list(changes.streams.values())
        for state in streams:
            state.version += 1
        if not records:
            return changes
        places = {state.number: place for place, state in enumerate(streams)}
        outcomes, losses = of_named_classes(records, self._outcomes)
        added = Rollups(
            slots=[places[r.stream] for r in records],
            times=[r.time for r in records],
            scores=[r.score for r in records],
            forecasts=[r.forecast for r in records],
            outcomes=outcomes,
            losses=losses,
            ages=[0.0 if r.outcome_time is None else r.outcome_time - r.time for r in records],
            numbers=[state.number for state in streams],
            sums=[state.sums for state in streams],
        )
        changes.rollups = added.rollups
        # Forecasts change neither the sums nor the errors of a stream.
        for state, sums, errors in zip(streams, added.sums, added.errors, strict=True) if self._learnt else ():
            state.sums, (state.error, state.raw_error) = sums, errors
        return changes
