"""One group of requests as one plan: what is new, what is a repeat, what is learnt, and in which order.

Nothing here touches a database or the state of a stream. Requests are taken in the order in which they came, and each
sees what the ones before it did.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET

from calibeat.core.method import Method
from calibeat.errors import InvalidInput, SnapshotMismatch

from .events import CorrectionEvent, EachStatus, ForecastEvent, InvalidEvent, OutcomeEvent, Refusal, StreamSettings
from .model import Folded
from .notices import LIVE
from .rollups import class_losses
from .shape import PLAIN, Answered, Shape
from .store.types import (
    ASSUMED,
    DROPPING,
    EXPIRED,
    FROZEN,
    HELD,
    LATE,
    LEARNT,
    PASSTHROUGH,
    PENDING,
    RESUMING,
    WAITING,
    Changes,
    Correction,
    Record,
    StreamState,
)

if TYPE_CHECKING:
    from .engine import EngineSettings

Answer = list[Answered] | list[EachStatus | InvalidEvent] | list[str] | dict[str, Any] | Refusal
# A ticket and its events: forecasts; outcomes, corrections, and what should be some (`InvalidEvent`); `StreamSettings`;
# or one `Control`.
Request = tuple[Any, list[Any]]
Known = dict[tuple[int, str], Record]  # events by the number of their stream and their id


@dataclass
class GroupColumns:
    """What the streams of a group are asked to do, in order; once it is closed, as the columns of `Model.fold`.

    A row is an event, the slot of its stream, its score, its outcome (NaN for a forecast), and the place of its
    forecast among the rows (-1 if that was made in an earlier group).
    """

    rows: list[tuple[Record, int, float, float, int]] = field(default_factory=list)
    receipts: list[bytes] = field(default_factory=list)
    records: Sequence[Record] = ()
    slots: Sequence[int] = ()
    scores: Sequence[float] = ()
    outcomes: Sequence[float] = ()
    own: Sequence[int] = ()

    def close(self) -> None:
        """No more come."""
        if self.rows:
            self.records, self.slots, self.scores, self.outcomes, self.own = zip(*self.rows, strict=True)

    @property
    def given(self) -> list[bytes | None]:
        """What events have beside their scores."""
        return [record.given for record in self.records]


def too_old(event: ForecastEvent) -> str:
    """Why a forecast that would be given up at once is refused."""
    return (
        f"time must be younger than --expire by the clock of the service, got {event.time} for {event.id!r} (`calibeat "
        "store import` takes a history, with the times of its events as the clock)"
    )


class Plan:
    """A group in the making."""

    def __init__(
        self,
        settings: EngineSettings,
        streams: Mapping[str, StreamState],
        known: Known,
        now: float,
        method: Method,
        *,
        live: bool = True,
    ) -> None:
        self._settings, self._streams, self._records, self._now = settings, streams, known, now
        self._method, self.live = method, live
        self.operations, self.changes = GroupColumns(), Changes()
        # For the notices: what has arrived, as in `GroupArrivals`; and streams of which something should have.
        self.arrived: list[tuple[StreamState, float, float, float]] = []
        self.ends: list[tuple[int, float]] = []
        self.overdue: list[StreamState] = []
        self.answers: list[Answer | list[tuple[Shape, Record]]] = []  # records until the forecasts are made
        self.names: set[str] = set()  # of the streams that it is about
        self.begun: dict[str, StreamState] = {}  # new streams of the batches that were taken; see `number_streams`
        self._settled: Known = {}
        self.learnt = self.held = self.expired = self.repeated = 0
        self.given_up: list[tuple[int, int]] = []  # slot and number of forecasts whose outcome is not waited for
        self.rejected: dict[str, int] = {}

    def age(self, aged: list[tuple[str, Record]], resumed: Iterable[StreamState] = ()) -> None:
        """Learn outcomes that were held, and give up forecasts that are pending, where they are so still.

        What has waited for its stream to be resumed is learnt, held until it is mature, or dropped. In `resumed`
        streams nothing waits afterwards.
        """
        for name, found in aged:
            record, state = self._records.get((found.stream, found.id)), self._streams[name]
            if record is not None and record.status == found.status:
                if record.status == HELD:
                    self.learn(state, record, LEARNT)
                elif record.status == PENDING:
                    self.give_up(state, record)
                elif state.mode & DROPPING:
                    self.drop(state, record)
                elif state.mode & RESUMING:
                    self._settle(state, record)
        for state in resumed:
            if state.mode & (RESUMING | DROPPING):
                state.mode &= ~(RESUMING | DROPPING)
                self._slot(state)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def take(self, events: Any) -> None:
        """The next request."""
        kind = type(events[0]) if events else OutcomeEvent
        if kind is ForecastEvent:
            self.answers.append(self._forecasts(events))
        elif kind is StreamSettings:
            self.answers.append(self._define(events[0]))
        else:
            self.answers.append([self._outcome(event) for event in events])

    def _forecasts(self, events: list[ForecastEvent]) -> list[tuple[Shape, Record]] | Refusal:
        """All of a batch, or none of it."""
        found: list[tuple[Shape, Record]] = []
        new: list[tuple[StreamState, Record, ForecastEvent]] = []
        begun: dict[str, StreamState] = {}
        for at, event in enumerate(events):
            state = self._streams.get(event.stream)
            if state is None:
                state = self.begun.get(event.stream) or begun.get(event.stream)
            try:
                if state is None:
                    shape = Shape.of_event(event, self._method)
                    number = -1 - len(self.begun) - len(begun)
                    state = begun[event.stream] = StreamState(event.stream, number=number, shape=shape)
                shape = state.shape
                if shape is PLAIN and event.scores is UNSET and event.groups is UNSET and event.score is not UNSET:
                    score, given = event.score, None
                else:
                    score, given = shape.read(event)
            except InvalidInput as error:
                return self._refused(new, "invalid", str(error), at, 400)
            name = state.number, event.id
            record = self._records.get(name)
            if record is None:
                time = self._now if event.time is None else float(event.time)
                if self._is_too_old(time):
                    return self._refused(new, "too_old", too_old(event), at, 400)
                record = Record(state.number, -1, event.id, -1, time, score, nan, None, PENDING, None)
                record.is_new, record.given = True, given
                self._records[name] = record
                new.append((state, record, event))
            elif what := "event" if record.is_forgetting else shape.difference(record, score, given):
                wanted = "one that is not being forgotten" if record.is_forgetting else f"new or have the {what} it had"
                return self._refused(new, "conflict", f"id must be {wanted}, got {event.id!r}", at, 409)
            found.append((shape, record))
        self.begun.update(begun)
        self._make(new)
        self.repeated += len(events) - len(new)
        return found

    def _refused(self, new: list[Any], code: Any, sentence: str, at: int, status: int) -> Refusal:
        """A batch is refused: what its first events have made goes again."""
        for _, record, _ in new:
            del self._records[record.stream, record.id]
        self._reject(code)
        return Refusal(code, f"{sentence} - at event {at}", at, status)

    def _is_too_old(self, time: float) -> bool:
        """Whether a forecast of this time would be given up at once: its outcome could never be learnt."""
        expire = self._settings.expire
        return expire is not None and self._now - time >= expire

    def _define(self, settings: StreamSettings) -> dict[str, Any] | Refusal:
        """What a stream is to be, before its first event."""
        name = settings.stream
        state = self._streams.get(name) or self.begun.get(name)
        try:
            shape = Shape.of_settings(settings, self._method)
        except InvalidInput as error:
            self._reject("invalid")
            return Refusal("invalid", str(error), None, 400)
        if state is not None and state.shape.is_like(shape):
            return {"stream": name, **state.shape.described()}
        if state is not None and state.events:
            self._reject("conflict")
            sentence = f"stream must stay as its first event has made it, got other settings for {name!r}"
            return Refusal("conflict", sentence, "stream", 409)
        if state is None:
            state = self.begun[name] = StreamState(name, number=-1 - len(self.begun))
        state.shape, state.table, state.state = shape, None, None
        self._slot(state)
        self.changes.shaped[name] = state
        return {"stream": name, **shape.described()}

    def _make(self, new: list[tuple[StreamState, Record, ForecastEvent]]) -> None:
        """New forecasts, in order."""
        rows, is_noticed = self.operations.rows, self._settings.notice
        for state, record, event in new:
            shape, score = state.shape, record.score
            if state.events == 0 and shape is not PLAIN:
                self.changes.shaped[state.name] = state
            if record.given is not None and shape.groups is not None and shape.groups.names:
                self._note_names(state, event, record.given, shape.groups.cells)
            record.nth, record.seq, record.operation = state.events, state.seq, len(rows)
            state.events += 1
            state.seq += 1
            state.pending += 1
            state.last_time = max(state.last_time, record.time)
            rows.append((record, self._slot(state), score, nan, -1))
            if is_noticed:
                if shape is not PLAIN and shape.numbers > 1:
                    score = float(np.frombuffer(record.given or b"").max())
                self._arrive(state, record.time, score, nan)
        self.changes.inserted += [record for _, record, _ in new]

    def _arrive(self, state: StreamState, time: float, score: float, lag: float) -> None:
        """The notice of a stream hears of it: when it came, or at its own time where a history is sent."""
        now = self._now
        is_live = self.live and now - time <= LIVE
        arrived = now if is_live else min(time, now)
        if is_live and state.is_history:
            self.ends.append((len(self.arrived), arrived))
        self.arrived.append((state, arrived, score, lag))
        state.is_history = not is_live and self.live

    def _note_names(self, state: StreamState, event: ForecastEvent, given: bytes, most: int) -> None:
        """Put the values of an event's groups into the book of its stream; the oldest leave where there is no room."""
        for word, value in state.shape.names_of(event, given):
            if word not in state.book:
                state.book[word] = value
                self.changes.names.append((state, word, state.named, json.dumps(value)))
                state.named += 1
                if len(state.book) > most:
                    oldest = next(iter(state.book))
                    del state.book[oldest]
                    self.changes.forgotten.append((state, oldest))

    def ask(self, state: StreamState) -> None:
        """The notice of a stream is asked, whatever happens to it."""
        self._slot(state)
        self.overdue.append(state)

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

    def _outcome(self, event: OutcomeEvent | CorrectionEvent | InvalidEvent) -> EachStatus | InvalidEvent:
        """An outcome, or another one in its place."""
        if isinstance(event, InvalidEvent):
            self._reject("invalid")
            return event
        state = self._streams.get(event.stream) or self.begun.get(event.stream)
        record = None if state is None else self._records.get((state.number, event.id))
        if state is None or record is None or record.is_forgetting:
            return self._reject("unknown")
        is_corrected = isinstance(event, CorrectionEvent)
        try:
            is_unknown = is_corrected and (event.outcome is None or event.label is None)
            outcome = None if is_unknown else state.shape.outcome(event)
        except InvalidInput as error:
            self._reject("invalid")
            return InvalidEvent(str(error), event.stream, event.id)
        is_late = record.status == EXPIRED and record.receipt is not None and not state.mode & FROZEN
        if record.status in {EXPIRED, ASSUMED} and not is_late:
            return self._reject("expired")
        # What the client said last counts, also where it has still to be applied.
        if record.latest == outcome:
            return "repeated"
        if record.latest is not None and not is_corrected:
            return self._reject("conflict")
        time = self._now if event.time is None else float(event.time)
        if record.status != PENDING and not is_late:
            return self._say(state, record, outcome, time)
        record.outcome, record.outcome_time = outcome, time
        self._slot(state)
        if self._settings.notice:
            self._arrive(state, time, nan, time - record.time)
        if is_late:
            self.learn(state, record, LATE)
            return "learnt"
        return self._settle(state, record)

    def _say(self, state: StreamState, record: Record, outcome: int | None, time: float) -> EachStatus:
        """Another outcome than before is the right one; None: it is unknown again."""
        if record.status in {LEARNT, LATE}:
            if record.outcome_seq is not None and record.outcome_seq < state.base_seq:
                return self._reject("final")
            record.corrected = outcome  # its stream is replayed: see `rework`
            self.changes.corrections.append(Correction(record, outcome, time))
            return "corrected"
        if outcome is None:  # nothing was learnt yet
            self._release(state, record)
            return "corrected"
        record.outcome, record.outcome_time = outcome, time
        self._touch(record, state)
        return "corrected"

    # ---- what happens to an event -----------------------------------------------------------------------------------

    def _settle(self, state: StreamState, record: Record) -> EachStatus:
        """The outcome of a record is known now, or its stream was resumed."""
        mature = self._settings.mature
        if state.mode & FROZEN:
            self._hold(state, record, WAITING)
            return "held"
        if mature is not None and self._now < record.time + mature:
            self._hold(state, record, HELD)
            return "held"
        self.learn(state, record, LEARNT)
        return "learnt"

    def _hold(self, state: StreamState, record: Record, status: int) -> None:
        if record.status == PENDING:
            state.pending -= 1
            state.held += 1
            self.held += 1
        record.status = status
        self._touch(record, state)

    def _release(self, state: StreamState, record: Record) -> None:
        """The outcome of a record that was held is unknown again."""
        record.status, record.outcome, record.outcome_time = PENDING, None, None
        state.pending += 1
        state.held -= 1
        self._touch(record, state)

    def drop(self, state: StreamState, record: Record) -> None:
        """An outcome that has waited for its stream to be resumed is not wanted: the forecast is given up."""
        record.status, record.receipt, record.outcome, record.outcome_time = EXPIRED, None, None, None
        self.given_up.append((self._slot(state), record.nth))
        state.held -= 1
        state.expired += 1
        self.expired += 1
        self._touch(record, state)

    def learn(self, state: StreamState, record: Record, status: int) -> None:
        """The outcome of a record is learnt now."""
        if record.status in {HELD, WAITING}:
            state.held -= 1
        elif record.status == PENDING:
            state.pending -= 1
        else:  # the monitors have given it up
            self.given_up.append((self._slot(state), record.nth))
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
        self.operations.rows.append((record, self._slot(state), nan, float(record.outcome or 0), record.operation))
        if not record.is_new:
            self._settled[record.stream, record.id] = record

    def give_up(self, state: StreamState, record: Record) -> None:
        """No outcome came in time: nothing is learnt, or what was agreed for this case, which only two classes have."""
        assumed = self._settings.expire_as
        if assumed is not None and state.shape.numbers == 1:
            record.outcome, record.outcome_time = assumed, self._now
            self.learn(state, record, ASSUMED)
            return
        record.status = EXPIRED  # its receipt stays, for an outcome that comes late
        self.given_up.append((self._slot(state), record.nth))
        state.pending -= 1
        state.expired += 1
        self.expired += 1
        self._touch(record, state)

    def _touch(self, record: Record, state: StreamState) -> None:
        """The record is written, and its stream."""
        if not record.is_new:
            self._settled[record.stream, record.id] = record
        self._slot(state)

    def _reject(self, reason: Any) -> Any:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return reason

    # ---- after the fold ---------------------------------------------------------------------------------------------

    def finish(self, folded: Folded) -> Changes:
        """Put in what the fold has answered, in the order of the operations -> what has changed."""
        made, streams, forecasts = iter(folded.receipts), list(self.changes.streams.values()), folded.forecasts
        changes, asked = self.changes, self.operations
        for at, (named, issued) in folded.classes.items():
            record = asked.records[at]
            record.named, record.issued = named, issued
            record.score = float(np.frombuffer(record.given or b"")[named])
        for record, slot, outcome, forecast in zip(asked.records, asked.slots, asked.outcomes, forecasts, strict=True):
            if outcome == outcome:  # noqa: PLR0124 - not NaN
                # A replay that begins behind the forecast, where pruning has ended, needs the receipt.
                if record.is_new or record.seq >= streams[slot].base_seq:
                    record.receipt = None
            else:
                record.forecast = forecast
                if streams[slot].mode & PASSTHROUGH:
                    changes.said.append((record, forecast, record.named, record.score, record.issued))
                    tell_scores(record)
                receipt = next(made)
                # A forecast that is settled in this same group needs none, unless its outcome is held.
                record.receipt = receipt if record.status in {PENDING, HELD, WAITING} else None
        changes.said = [(record.stream, record.nth, *said) for record, *said in changes.said]
        for state in streams:
            if state.changed:
                changes.cells += [(state.number, 0, *cell) for cell in state.changed]
                state.changed = []
        changes.settled = list(self._settled.values())
        return changes

    def keep_told(self, told: bytes) -> list[float]:
        """Put in the forecasts that were answered when this group was done before -> by how much those here differ.

        What is computed here stays beside an answer that differs: the monitors have read it.

        Raises
        ------
        SnapshotMismatch : this calibeat makes other events of the group.
        """
        records, numbers = self.changes.inserted, np.frombuffer(told)
        if forecasts_of(records) == told:
            return []
        counts = [1 if record.issued is None else len(record.issued) // 8 for record in records]
        if sum(counts) != len(numbers):
            raise SnapshotMismatch(
                f"journal of the store must have the forecasts of its events, {sum(counts)}, got {len(numbers)} - "
                "start the calibeat that has written it once, and stop it"
            )
        differences, end = list[float](), 0
        for record, count in zip(records, counts, strict=True):
            answered, end = numbers[end : end + count], end + count
            made = np.array([record.forecast]) if record.issued is None else np.frombuffer(record.issued)
            if answered.tobytes() == made.tobytes():
                continue
            differences.append(float(np.abs(answered - made).max()))
            self.changes.said.append(
                (record.stream, record.nth, record.forecast, record.named, record.score, record.issued)
            )
            if record.issued is not None:
                record.issued, record.named = answered.tobytes(), int(answered.argmax())
                record.score = float(np.frombuffer(record.given or b"")[record.named])
            record.forecast = float(answered.max()) if record.issued is not None else float(answered[0])
        return differences

    def answer(self, at: int) -> Answer:
        """The answer to a request, once everything is on the disk."""
        found = self.answers[at]
        if isinstance(found, list) and found and isinstance(found[0], tuple):
            return [shape.answer(record) for shape, record in found]
        return cast(Answer, found)


def forecasts_of(records: Iterable[Record]) -> bytes:
    """Return the answered forecasts of events, to the last bit."""
    told = array("d")
    for record in records:
        if record.issued is None:
            told.append(record.forecast)
        else:
            told.frombytes(record.issued)
    return told.tobytes()


def tell_scores(record: Record) -> None:
    """What is told is the score, or the scores of all classes."""
    if record.given is not None and record.issued is not None:
        scores = np.frombuffer(record.given)
        record.named, record.issued = int(scores.argmax()), record.given
        record.score = float(scores[record.named])
    record.forecast = record.score


def of_named_classes(
    records: Sequence[Any], outcomes: Sequence[float]
) -> tuple[Sequence[float], dict[int, tuple[float, float, float, float]]]:
    """Outcomes as roll-ups count them, and what labels cost, by the number of the operation.

    Of K classes an outcome is whether the class came that was named; others stay as they are. NaN stays NaN.
    """
    wide = [at for at, record in enumerate(records) if record.named is not None and outcomes[at] == outcomes[at]]
    if not wide:
        return outcomes, {}
    hits, losses = list(outcomes), {}
    for at in wide:
        record, label = records[at], int(outcomes[at])
        hits[at], losses[at] = float(label == record.named), class_losses(record.given, record.issued, label)
    return hits, losses
