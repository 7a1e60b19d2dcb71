"""Operations that are in the log, and not in the tables yet.

To write a group into the tables takes most of its time: every event is in another stream, and so every row, sum and
roll-up lies on another page. So a group is answered once it is in the log. The tables follow for many groups at once:
soon, and before anybody reads them. What an event changed twice meanwhile is written once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from .fold import GroupFold, Known, of_named_classes
from .notices import GroupArrivals
from .rollups import Rollups, weights_of
from .store.types import Changes, Record, StreamState


@dataclass
class Pending:
    """The changes of some groups, and the events among them, as they are now."""

    changes: Changes = field(default_factory=Changes)
    size: int = 0  # operations
    since: float = 0.0  # when the first one was added
    time: float = 0.0  # of the last one, by the clock of the engine
    overdue: list[StreamState] = field(default_factory=list)  # as in `GroupFold`
    is_urgent: bool = False  # somebody else has to read what is here
    _arrived: list[tuple[StreamState, float, float, float]] = field(default_factory=list)
    _ends: list[tuple[int, float]] = field(default_factory=list)
    _records: Known = field(default_factory=dict)
    _settled: dict[tuple[int, int], Record] = field(default_factory=dict)
    _learnt: bool = False
    _asked: list[Record] = field(default_factory=list)  # what was done: events, and
    _outcomes: list[float] = field(default_factory=list)  # what was learnt, NaN for a forecast

    def __bool__(self) -> bool:
        return bool(self.changes)

    def find(self, ids: list[tuple[int, str]]) -> tuple[Known, list[tuple[int, str]]]:
        """Those of some events that are here, and the ids of the others, which the tables may have."""
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

    def add(self, fold: GroupFold, now: float) -> None:
        """Another group, which has learnt: later ones see its events here."""
        new, all_ = fold.changes, self.changes
        if not self:
            self.since = now
        self.time = fold.now
        self._ends += [(len(self._arrived) + at, moment) for at, moment in fold.ends]
        self._arrived += fold.arrived
        self.overdue += fold.overdue
        all_.inserted += new.inserted
        all_.streams |= new.streams
        all_.alarms += new.alarms
        all_.ended += new.ended
        all_.shaped |= new.shaped
        all_.cells += new.cells
        all_.names += new.names
        all_.forgotten += new.forgotten
        for record in new.inserted:
            record.row = -1
            self._records[record.stream, record.id] = record
        for record in new.settled:
            self._settled[record.stream, record.nth] = record
            self._records[record.stream, record.id] = record
        if fold.rows:
            records, _, _, outcomes, _ = zip(*fold.rows, strict=True)
            self._asked += records
            self._outcomes += outcomes
        self._learnt |= fold.learnt > 0
        self.size += len(fold.rows) + 1

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
        if not records:
            return changes
        streams = list(changes.streams.values())
        places = {state.number: place for place, state in enumerate(streams)}
        outcomes, losses = of_named_classes(records, self._outcomes)
        odds: list[float] = []
        if any(state.shape.odds != 1.0 for state in streams):
            odds = [streams[places[record.stream]].shape.odds for record in records]
        added = Rollups(
            slots=[places[r.stream] for r in records],
            times=[r.time for r in records],
            scores=[r.score for r in records],
            forecasts=[r.forecast for r in records],
            outcomes=outcomes,
            losses=losses,
            weights=weights_of(records, outcomes, odds),
            ages=[0.0 if r.outcome_time is None else r.outcome_time - r.time for r in records],
            numbers=[state.number for state in streams],
            sums=[state.sums for state in streams],
        )
        changes.rollups = added.rollups
        # Forecasts change neither the sums nor the errors of a stream.
        for state, sums, errors in zip(streams, added.sums, added.errors, strict=True) if self._learnt else ():
            state.sums, (state.error, state.raw_error) = sums, errors
        return changes
