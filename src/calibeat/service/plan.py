"""What a group of requests does: what is new, what is a repeat, what is learnt, and in which order.

Requests are taken in the order in which they came, and each sees what the ones before it did. What is decided here
goes into the log, with the answers, so that nobody has to decide it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET

from calibeat.errors import InvalidInput

from . import ops
from .events import (
    CorrectionEvent,
    EachStatus,
    ForecastEvent,
    InvalidEvent,
    Observed,
    OutcomeEvent,
    Refusal,
    StreamSettings,
)
from .fold import GroupFold, Known
from .model import Folded, Model
from .shape import PLAIN, Answered, Shape
from .store.types import (
    ASSUMED,
    DROPPING,
    EXPIRED,
    FROZEN,
    HELD,
    LATE,
    LEARNT,
    PENDING,
    RESUMING,
    Record,
    StreamState,
    TableRow,
)

if TYPE_CHECKING:
    from .settings import EngineSettings

Answer = list[Answered] | list[EachStatus | InvalidEvent] | list[str] | dict[str, Any] | Refusal
# A ticket and its events: forecasts; outcomes, corrections, and what should be some (`InvalidEvent`); `StreamSettings`;
# or one `Control`.
Request = tuple[Any, list[Any]]


_GIVEN_UP = frozenset({EXPIRED, ASSUMED})
_PLAIN_OUTCOMES: Any = {0: Observed(0), 1: Observed(1)}  # False and True are 0 and 1


def too_old(event: ForecastEvent) -> str:
    """Why a forecast that would be given up at once is refused."""
    return (
        f"time must be younger than --expire by the clock of the service, got {event.time} for {event.id!r} (`calibeat "
        "store import` takes a history, with the times of its events as the clock)"
    )


def _read(shape: Shape, event: ForecastEvent) -> tuple[float, bytes | None]:
    """The score of an event, and what it gives beside it; most are plain."""
    if shape is PLAIN and event.scores is UNSET and event.groups is UNSET and event.score is not UNSET:
        return event.score, None
    return shape.read(event)


@dataclass
class _Batch:
    """What the events of a batch have made so far."""

    found: list[tuple[Shape, Record]] = field(default_factory=list)
    new: list[tuple[StreamState, Record, ForecastEvent]] = field(default_factory=list)
    begun: dict[str, StreamState] = field(default_factory=dict)
    shapes: dict[StreamState, Shape] = field(default_factory=dict)  # before first numbers were gathered


class Plan(GroupFold):
    """A group in the making. Its operations are numbered from `position` on, its new streams from `number` on."""

    def __init__(
        self,
        settings: EngineSettings,
        streams: Mapping[str, StreamState],
        known: Known,
        now: float,
        model: Model,
        *,
        position: int,
        number: int,
        live: bool = True,
    ) -> None:
        super().__init__(now, is_noticed=bool(settings.notice), live=live)
        self._settings, self._streams, self._records, self._model = settings, streams, known, model
        self.position, self.number = position, number  # the next ones
        self.log: list[Record | TableRow] = []  # the operations, as rows; that of a forecast once it is made
        self.answers: list[Answer | list[tuple[Shape, Record]]] = []  # records until the forecasts are made
        self.begun: dict[str, StreamState] = {}  # new streams of the batches that were taken
        self.repeated = self.corrected = 0
        self.rejected: dict[str, int] = {}

    def _note(self, state: StreamState, kind: int, nth: int = -1, **more: Any) -> int:
        """Put an operation into the log -> its position."""
        position = self.position
        self.position += 1
        self.log.append(ops.row_of(position, state.number, kind, nth, at=self.now, **more))
        return position

    def _note_outcome(self, state: StreamState, kind: int, record: Record) -> int:
        """The same of an event and its outcome."""
        position, time = self.position, record.outcome_time
        self.position += 1
        self.log.append(
            (position, state.number, kind, record.nth, None, self.now, None if time == self.now else time,
             record.outcome, None, None, None, None, record.weight, record.trials, None)
        )  # fmt: skip
        return position

    def age(self, aged: list[tuple[str, Record]], resumed: Iterable[StreamState] = ()) -> None:
        """Learn outcomes that were held, and give up forecasts that are pending, where they are so still.

        What has waited for its stream to be resumed is learnt, held until it is mature, or dropped. In `resumed`
        streams nothing waits afterwards.
        """
        for name, found in aged:
            record, state = self._records[found.stream, found.id], self._streams[name]
            if record.status == HELD:
                self.learn(state, record, self._note(state, ops.LEARN, record.nth))
            elif record.status == PENDING:
                self._give_up(state, record)
            elif state.mode & DROPPING:
                self._note(state, ops.EXPIRE, record.nth)
                self.expire(state, record)
            elif state.mode & RESUMING:
                self._settle(state, record, is_known=True)
        for state in resumed:
            if state.mode & (RESUMING | DROPPING):
                state.mode &= ~(RESUMING | DROPPING)
                self.slot(state)

    def _give_up(self, state: StreamState, record: Record) -> None:
        """No outcome came in time: nothing is learnt, or what was agreed for this case, which only two classes have."""
        assumed = self._settings.expire_as
        if assumed is not None and state.shape.numbers == 1:
            record.observe(Observed(assumed), self.now)
            self.learn(state, record, self._note_outcome(state, ops.ASSUME, record), is_assumed=True)
        else:
            self._note(state, ops.EXPIRE, record.nth)
            self.expire(state, record)

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
        batch = _Batch()
        for at, event in enumerate(events):
            try:
                batch.found.append(self._forecast(event, batch))
            except InvalidInput as error:
                return self._refused(batch, Refusal("invalid", str(error)), at)
            except Refusal as refusal:
                return self._refused(batch, refusal, at)
        for state in batch.begun.values():
            self._begin(state)
            if state.shape is not PLAIN:
                shape = batch.shapes.get(state, state.shape)  # a replay gathers the first numbers again
                self._note(state, ops.DEFINE, given=shape.to_text().encode())
                self.changes.shaped[state.name] = state
        self.changes.shaped.update({state.name: state for state in batch.shapes})
        self._make(batch.new)
        self.repeated += len(events) - len(batch.new)
        return batch.found

    def _forecast(self, event: ForecastEvent, batch: _Batch) -> tuple[Shape, Record]:
        """The event of a batch, which may be known.

        Raises
        ------
        InvalidInput, Refusal : the event cannot be one of its stream.
        """
        state = self._streams.get(event.stream)
        if state is None:
            state = self.begun.get(event.stream) or batch.begun.get(event.stream)
            if state is None:
                state = batch.begun[event.stream] = self._new_stream(event, len(batch.begun))
        shape = state.shape
        score, given = _read(shape, event)
        record = self._records.get((state.number, event.id))
        if record is None:
            record = self._new_record(state, event, score, given)
            if self._is_too_old(record.time):
                raise Refusal("too_old", too_old(event))
            self._records[state.number, event.id] = record
            batch.new.append((state, record, event))
            if given is not None and (after := shape.after(given)) is not shape:
                batch.shapes.setdefault(state, shape)
                state.shape = after
        elif what := self._difference(state, record, score, given):
            raise Refusal("conflict", f"id must be {what}, got {event.id!r}", None, 409)
        return shape, record

    def _new_stream(self, event: ForecastEvent, begun: int) -> StreamState:
        """The stream that an event begins; others are begun beside it."""
        shape = Shape.of_event(event, self._model.method)
        return StreamState(event.stream, number=self.number + begun, shape=shape)

    def _new_record(self, state: StreamState, event: ForecastEvent, score: float, given: bytes | None) -> Record:
        time = self.now if event.time is None else float(event.time)
        return Record(
            state.number, -1, event.id, -1, time, PENDING, None, None, None, None, None, None, score, nan, given,
            None, None, None, True,
        )  # fmt: skip

    def _difference(self, state: StreamState, record: Record, score: float, given: bytes | None) -> str:
        """What the id of a repeated event would have to be, or nothing."""
        if record.nth in state.forgetting:
            return "one that is not being forgotten"
        what = state.shape.difference(record, score, given)
        return f"new or have the {what} it had" if what else ""

    def _begin(self, state: StreamState) -> None:
        """A new stream."""
        self.begun[state.name] = state
        self.number += 1
        self._note(state, ops.BEGIN, id=state.name)

    def _refused(self, batch: _Batch, why: Refusal, at: int) -> Refusal:
        """A batch is refused: what its first events have made goes again."""
        for state, shape in batch.shapes.items():
            state.shape = shape
        for _, record, _ in batch.new:
            del self._records[record.stream, record.id]
        self._reject(why.code)
        return Refusal(why.code, f"{why.message} - at event {at}", at, why.status)

    def _is_too_old(self, time: float) -> bool:
        """Whether a forecast of this time would be given up at once: its outcome could never be learnt."""
        expire = self._settings.expire
        return expire is not None and self.now - time >= expire

    def _define(self, settings: StreamSettings) -> dict[str, Any] | Refusal:
        """What a stream is to be, before its first event."""
        name = settings.stream
        state = self._streams.get(name) or self.begun.get(name)
        try:
            shape = Shape.of_settings(settings, self._model.method)
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
            state = StreamState(name, number=self.number)
            self._begin(state)
        self._note(state, ops.DEFINE, given=shape.to_text().encode())
        self.define(state, shape)
        return {"stream": name, **shape.described()}

    def _make(self, new: list[tuple[StreamState, Record, ForecastEvent]]) -> None:
        """New forecasts, in order."""
        for state, record, event in new:
            groups = state.shape.groups
            if record.given is not None and groups is not None and groups.names:
                for word, value in state.shape.names_of(event, record.given):
                    if word not in state.book:
                        self._note(state, ops.NAME, word, id=json.dumps(value))
                        self.name(state, word, value)
            record.position = self.position
            self.position += 1
            self.log.append(record)
            self.forecast(state, record)

    def _outcome(self, event: OutcomeEvent | CorrectionEvent | InvalidEvent) -> EachStatus | InvalidEvent:
        """An outcome, or another one in its place."""
        if isinstance(event, InvalidEvent):
            self._reject("invalid")
            return event
        state = self._streams.get(event.stream) or self.begun.get(event.stream)
        record = None if state is None else self._records.get((state.number, event.id))
        if state is None or record is None or record.nth in state.forgetting:
            return self._reject("unknown")
        try:
            outcome = self._observed(state.shape, event)
        except InvalidInput as error:
            self._reject("invalid")
            return InvalidEvent(str(error), event.stream, event.id)
        status, is_late = record.status, False
        if status in _GIVEN_UP:
            is_late = status == EXPIRED and record.receipt is not None and not state.mode & FROZEN
            if not is_late:
                return self._reject("expired")
        # What the client said last counts, also where it has still to be applied.
        latest = state.latest(record) if record.outcome is not None or state.waiting else None
        if latest == outcome:
            return "repeated"
        if latest is not None and not isinstance(event, CorrectionEvent):
            return self._reject("conflict")
        time = self.now if event.time is None else float(event.time)
        if status != PENDING and not is_late:
            return self._say(state, record, outcome, time)
        record.observe(outcome, time)
        self.arrive(state, record, time)
        return self._settle(state, record, is_known=False)

    def _observed(self, shape: Shape, event: OutcomeEvent | CorrectionEvent) -> Observed | None:
        """The outcome that an event brings; None: it is unknown again.

        Raises
        ------
        InvalidInput : it is none that the stream can have or learn.
        """
        if event.ones is UNSET and event.of is UNSET:
            if event.outcome is None or event.label is None:
                return None
            if shape is PLAIN and event.weight is UNSET and event.label is UNSET and event.outcome is not UNSET:
                return _PLAIN_OUTCOMES[event.outcome]
        outcome = shape.outcome(event)
        self._model.check_outcome(shape, outcome)
        return outcome

    def _say(self, state: StreamState, record: Record, outcome: Observed | None, time: float) -> EachStatus:
        """Another outcome than before is the right one; None: it is unknown again."""
        if record.status in {LEARNT, LATE} and record.learnt is not None and record.learnt <= state.base:
            return self._reject("final")
        corrects = record.learnt if record.status in {LEARNT, LATE} else None
        x, weight, trials = (None, None, None) if outcome is None else outcome.stored
        more = {"x": x, "weight": weight, "trials": trials}
        self._note(state, ops.CORRECT, record.nth, time=time, corrects=corrects, **more)
        self.correct(state, record, outcome, time)
        self.corrected += 1
        return "corrected"

    def _settle(self, state: StreamState, record: Record, *, is_known: bool) -> EachStatus:
        """The outcome of an event is known now, or (`is_known` before) its stream was resumed."""
        mature = self._settings.mature
        is_young = mature is not None and self.now < record.time + mature
        if state.mode & FROZEN or (is_young and record.status != EXPIRED):
            self._note_outcome(state, ops.HOLD, record)
            self.hold(state, record)
            return "held"
        if is_known:
            self.learn(state, record, self._note(state, ops.LEARN, record.nth))
        else:
            self.learn(state, record, self._note_outcome(state, ops.OUTCOME, record))
        return "learnt"

    def _reject(self, reason: Any) -> Any:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return reason

    # ---- after the fold ---------------------------------------------------------------------------------------------

    def run(self, model: Model) -> Folded:
        """Do it, and put the answers into the log."""
        made = super().run(model)
        now = self.now
        self.log = [
            (op.position, op.stream, ops.FORECAST, op.nth, op.id, now, None if op.time == now else op.time, op.score,
             op.forecast, op.given, op.issued, None, None, None, op.band) if type(op) is Record else op
            for op in self.log
        ]  # fmt: skip
        return made

    def answer(self, at: int) -> Answer:
        """The answer to a request, once everything is on the disk."""
        found = self.answers[at]
        if isinstance(found, list) and found and isinstance(found[0], tuple):
            return [shape.answer(record) for shape, record in found]
        return cast(Answer, found)
