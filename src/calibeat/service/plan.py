"""One group of requests as one plan: what is new, what is a repeat, what is learnt, and in which order.

Nothing here touches a database or the state of a stream. Requests are taken in the order in which they came, and each
sees what the ones before it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, cast

from .events import EachStatus, ForecastEvent, OutcomeEvent, Refusal
from .rollups import Rollups
from .store.types import ASSUMED, EXPIRED, HELD, LEARNT, PENDING, Changes, Correction, Record, StreamState, weighted

if TYPE_CHECKING:
    from .engine import EngineSettings

Answer = list[float] | list[EachStatus] | Refusal
Request = tuple[Any, list[ForecastEvent] | list[OutcomeEvent]]  # a ticket, and its events


@dataclass
class GroupColumns:
    """What the streams of a group are asked to do, in order, as the columns of `Model.fold`."""

    records: list[Record] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    receipts: list[bytes] = field(default_factory=list)

    def add(self, record: Record, slot: int, score: float, outcome: float, own: int) -> None:
        """The next operation."""
        self.records.append(record)
        self.slots.append(slot)
        self.scores.append(score)
        self.outcomes.append(outcome)
        self.own.append(own)


class Plan:
    """A group in the making."""

    def __init__(
        self, settings: EngineSettings, streams: Mapping[str, StreamState], known: dict[str, Record], now: float
    ) -> None:
        self._settings, self._streams, self._records, self._now = settings, streams, known, now
        self.operations, self.changes = GroupColumns(), Changes()
        self.answers: list[Answer | list[Record]] = []  # a list of records until the forecasts are made
        self.begun: dict[str, StreamState] = {}  # new streams of the batches that were taken; see `number_streams`
        self._settled: dict[str, Record] = {}
        self.learnt = self.held = self.expired = self.repeated = 0
        self.given_up: list[tuple[int, int]] = []  # slot and number of forecasts whose outcome is not waited for
        self.pending = 0  # more pending events than before
        self.matured = 0  # that were held and are learnt
        self.rejected: dict[str, int] = {}

    def age(self, aged: list[tuple[str, Record]]) -> None:
        """Learn outcomes that were held, and give up forecasts that are pending, where they are so still."""
        for name, found in aged:
            record = self._records.get(found.id)
            if record is not None and record.status == found.status:
                if record.status == HELD:
                    self.learn(self._streams[name], record, LEARNT)
                else:
                    self.give_up(self._streams[name], record)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def take(self, events: list[ForecastEvent] | list[OutcomeEvent]) -> None:
        """The next request."""
        if events and type(events[0]) is ForecastEvent:
            self.answers.append(self._forecasts(events))
        else:
            self.answers.append([self._outcome(event) for event in cast(list[OutcomeEvent], events)])

    def _forecasts(self, events: list[ForecastEvent]) -> list[Record] | Refusal:
        """All of a batch, or none of it."""
        found: list[Record] = []
        new: list[tuple[StreamState, Record]] = []
        begun: dict[str, StreamState] = {}
        for at, event in enumerate(events):
            state = self._streams.get(event.stream)
            if state is None:
                state = self.begun.get(event.stream) or begun.get(event.stream)
            if state is None:
                state = begun[event.stream] = StreamState(event.stream, number=-1 - len(self.begun) - len(begun))
            record = self._records.get(event.id)
            if record is None:
                time = self._now if event.time is None else float(event.time)
                record = Record(state.number, -1, event.id, -1, time, event.score, nan, None, PENDING, None)
                record.is_new = True
                self._records[event.id] = record
                new.append((state, record))
            elif record.stream != state.number or record.score != event.score:
                for _, made in new:
                    del self._records[made.id]
                self._reject("conflict")
                what = "stream" if record.stream != state.number else "score"
                sentence = f"id must be new or have the {what} it had, got {event.id!r} - at event {at}"
                return Refusal("conflict", sentence, at, 409)
            found.append(record)
        self.begun.update(begun)
        for state, record in new:
            self._make(state, record)
        self.repeated += len(events) - len(new)
        return found

    def _make(self, state: StreamState, record: Record) -> None:
        record.nth, record.seq = state.events, state.seq
        state.events += 1
        state.seq += 1
        state.pending += 1
        self.pending += 1
        state.last_time = max(state.last_time, record.time)
        record.operation = len(self.operations.slots)
        self.operations.add(record, self._slot(state), record.score, nan, -1)
        self.changes.inserted.append(record)

    def _slot(self, state: StreamState) -> int:
        """The place of a stream in the group. It is written."""
        if state.name not in self.changes.streams:
            state.slot = len(self.changes.streams)
            self.changes.streams[state.name] = state
        return state.slot

    def number_streams(self, numbers: Mapping[str, int]) -> None:
        """The numbers of the new streams, which had negative ones so far."""
        known: dict[int, int] = {}
        for name, number in numbers.items():
            state = self.begun[name]
            known[state.number] = number
            state.number = number
        for record in self.changes.inserted:
            record.stream = known.get(record.stream, record.stream)

    def _outcome(self, event: OutcomeEvent) -> EachStatus:
        state, record = self._streams.get(event.stream), self._records.get(event.id)
        if state is None:
            state = self.begun.get(event.stream)
        if state is None or record is None or record.stream != state.number:
            return self._reject("unknown")
        time = self._now if event.time is None else float(event.time)
        if record.status == PENDING:
            record.outcome, record.outcome_time = event.outcome, time
            mature = self._settings.mature
            if mature is not None and self._now < record.time + mature:
                self._hold(state, record)
                return "held"
            self.learn(state, record, LEARNT)
            return "learnt"
        if record.status in {EXPIRED, ASSUMED}:
            return self._reject("expired")
        # What the client said last counts, also where a replay has still to apply it.
        if (record.outcome if record.corrected is None else record.corrected) == event.outcome:
            return "repeated"
        if not self._settings.corrections:
            return self._reject("conflict")
        if record.status == HELD:  # nothing was learnt yet
            record.outcome, record.outcome_time = event.outcome, time
            self._touch(record)
            return "corrected"
        record.corrected = event.outcome
        self.changes.corrections.append(Correction(record, event.outcome, time))
        return "corrected"

    # ---- what happens to an event -----------------------------------------------------------------------------------

    def _hold(self, state: StreamState, record: Record) -> None:
        record.status = HELD
        state.pending -= 1
        self.pending -= 1
        state.held += 1
        self.held += 1
        self._touch(record, state)

    def learn(self, state: StreamState, record: Record, status: int) -> None:
        """The outcome of a record is learnt now."""
        if record.status == HELD:
            state.held -= 1
            self.matured += 1
        else:
            state.pending -= 1
            self.pending -= 1
        record.status, record.outcome_seq = status, state.seq
        state.seq += 1
        state.outcomes += 1
        if status == ASSUMED:
            state.expired += 1
            self.expired += 1
        self.learnt += 1
        if record.operation < 0:  # its forecast was made in an earlier group
            if record.receipt is None:  # pragma: no cover - a store whose rows were changed by hand
                raise ValueError(f"a pending event must have its receipt, got none - at id {record.id!r}")
            self.operations.receipts.append(record.receipt)
        self.operations.add(record, self._slot(state), nan, float(record.outcome or 0), record.operation)
        self._touch(record, state)

    def give_up(self, state: StreamState, record: Record) -> None:
        """No outcome came in time: nothing is learnt, or what was agreed for this case."""
        assumed = self._settings.expire_as
        if assumed is not None:
            record.outcome, record.outcome_time = assumed, self._now
            self.learn(state, record, ASSUMED)
            return
        record.status, record.receipt = EXPIRED, None
        self.given_up.append((self._slot(state), record.nth))
        state.pending -= 1
        self.pending -= 1
        state.expired += 1
        self.expired += 1
        self._touch(record, state)

    def _touch(self, record: Record, state: StreamState | None = None) -> None:
        """The record is written, and its stream."""
        if not record.is_new:
            self._settled[record.id] = record
        if state is not None:
            self._slot(state)

    def _reject(self, reason: EachStatus) -> EachStatus:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return reason

    # ---- after the fold ---------------------------------------------------------------------------------------------

    def finish(self, forecasts: list[float], receipts: list[bytes]) -> Changes:
        """Put in what the fold has answered, in the order of the operations -> all that is to be written."""
        made, streams = iter(receipts), list(self.changes.streams.values())
        changes, asked = self.changes, self.operations
        for record, slot, outcome, forecast in zip(asked.records, asked.slots, asked.outcomes, forecasts, strict=True):
            if outcome == outcome:  # noqa: PLR0124 - not NaN
                # A replay that begins behind the forecast, where pruning has ended, needs the receipt.
                if record.is_new or record.seq >= streams[slot].base_seq:
                    record.receipt = None
            else:
                record.forecast = forecast
                receipt = next(made)
                # A forecast that is settled in this same group needs none, unless its outcome is held.
                record.receipt = receipt if record.status in {PENDING, HELD} else None
        self._add_rollups(streams)
        changes.settled = list(self._settled.values())
        return changes

    def _add_rollups(self, streams: list[StreamState]) -> None:
        """The sums of the streams and the hourly roll-ups."""
        changes, records, now = self.changes, self.operations.records, self._now
        if not streams:
            return
        added = Rollups(
            slots=self.operations.slots,
            times=[r.time for r in records],
            scores=[r.score for r in records],
            forecasts=[r.forecast for r in records],
            outcomes=self.operations.outcomes,
            ages=[(r.outcome_time or now) - r.time for r in records],
            numbers=[state.number for state in streams],
            sums=[state.sums for state in streams],
        )
        changes.rollups = added.rollups
        error = raw_error = 0.0
        judged = 0
        # Forecasts change neither the sums nor the errors of a stream.
        for state, sums, errors in zip(streams, added.sums, added.errors, strict=True) if self.learnt else ():
            before = state.weighted
            if before[2] != state.outcomes:  # it has learnt
                after = state.weighted = weighted(*errors, state.outcomes)
                error += after[0] - before[0]
                raw_error += after[1] - before[1]
                judged += after[2] - before[2]
            state.sums, (state.error, state.raw_error) = sums, errors
        raw_log_loss, log_loss = added.losses
        changes.totals = {
            "streams": len(self.begun),
            "events": len(changes.inserted),
            "outcomes": self.learnt,
            "pending": self.pending,
            "held": self.held - self.matured,
            "expired": self.expired,
            "alarms": 0,  # the monitors know them
            "judged": judged,
            "raw_log_loss": raw_log_loss,
            "log_loss": log_loss,
            "error": error,
            "raw_error": raw_error,
        }

    def answer(self, at: int) -> Answer:
        """The answer to a request, once everything is on the disk."""
        found = self.answers[at]
        if isinstance(found, list) and found and isinstance(found[0], Record):
            return [record.forecast for record in found]
        return cast(Answer, found)
