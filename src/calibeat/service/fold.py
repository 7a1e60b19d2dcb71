"""What operations do to streams in memory: counts and statuses at once, states in one fold for a whole group.

The engine does this with new operations; a start and a replay do it with those of the log. Nothing here decides
anything, reads a clock or touches a database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import nan
from struct import Struct
from typing import Any

import numpy as np

from . import ops
from .events import Observed
from .model import Folded, Model
from .notices import LIVE
from .ops import Op
from .rollups import class_losses
from .shape import PLAIN, Shape
from .store.types import (
    ASSUMED,
    EXPIRED,
    FROZEN,
    HELD,
    LATE,
    LEARNT,
    PASSTHROUGH,
    PENDING,
    WAITING,
    Changes,
    Record,
    StreamState,
)

_MAY_LEARN = frozenset({PENDING, HELD, WAITING, EXPIRED})
Known = dict[tuple[int, str], Record]  # events by the number of their stream and their id
Right = Mapping[int, Observed | None]  # the right outcome of what was learnt at a position; None: it is unknown again
_NUMBER = Struct("=d")


class GroupFold:
    """A group in the making: operations go in, in order; `run` does them; then `changes` is what they change."""

    def __init__(self, now: float, *, is_noticed: bool = False, live: bool = True, gathers: bool = True) -> None:
        """Without `gathers` the shapes of streams have all first numbers already."""
        self.now, self.live, self.is_noticed, self.gathers = now, live, is_noticed, gathers
        # The columns of the fold. A row is an event, the slot of its stream, its score, its outcome (NaN for a
        # forecast), and the place of its forecast among the rows (-1 if that was made in an earlier group).
        self.rows: list[tuple[Record, int, float, float, int]] = []
        self._receipts: list[bytes] = []
        self._is_weighted = False  # whether an outcome has another weight than 1, or is of many events
        self.changes = Changes()
        # For the notices: what has arrived, as in `GroupArrivals`; and streams of which something should have.
        self.arrived: list[tuple[StreamState, float, float, float]] = []
        self.ends: list[tuple[int, float]] = []
        self.overdue: list[StreamState] = []
        self._settled: dict[tuple[int, int], Record] = {}
        self.learnt = self.held = self.expired = self.late = 0
        self.given_up: list[tuple[int, int]] = []  # slot and number of forecasts whose outcome is not waited for
        self._of_models: list[tuple[int, Record]] = []  # what arrived whose score is not made yet
        self.other_bands: list[Record] = []  # whose band in the log is not what is computed here
        self.differences: list[float] = []  # of answers in the log from what is computed here

    # ---- what happens to an event -----------------------------------------------------------------------------------

    def forecast(self, state: StreamState, record: Record) -> None:
        """A new forecast."""
        shape, score = state.shape, record.score
        record.nth, record.row = state.events, len(self.rows)
        state.events += 1
        state.pending += 1
        state.last_time = max(state.last_time or 0.0, record.time)
        self.rows.append((record, self.slot(state), score, nan, -1))
        self.changes.inserted.append(record)
        if self.is_noticed:
            if shape.models is not None:
                self._of_models.append((len(self.arrived), record))
            if shape is not PLAIN and shape.numbers > 1:
                score = float(np.frombuffer(record.given or b"").max())
            self._arrive(state, record.time, score, nan)

    def _arrive(self, state: StreamState, time: float, score: float, lag: float) -> None:
        """The notice of a stream hears of it: when it came, or at its own time where a history is sent."""
        now = self.now
        is_live = self.live and now - time <= LIVE
        arrived = now if is_live else min(time, now)
        if is_live and state.is_history:
            self.ends.append((len(self.arrived), arrived))
        self.arrived.append((state, arrived, score, lag))
        state.is_history = not is_live and self.live

    def arrive(self, state: StreamState, record: Record, time: float) -> None:
        """The first outcome of an event has come."""
        if self.is_noticed:
            self._arrive(state, time, nan, time - record.time)

    def hold(self, state: StreamState, record: Record) -> None:
        """Its outcome is known and waits: until it is old enough, or until its stream is resumed."""
        if record.status == PENDING:
            state.pending -= 1
            state.held += 1
            self.held += 1
        record.status = WAITING if state.mode & FROZEN else HELD
        self._touch(record, state)

    def release(self, state: StreamState, record: Record) -> None:
        """The outcome of an event that was held is unknown again."""
        record.status = PENDING
        record.observe(None, None)
        state.pending += 1
        state.held -= 1
        self._touch(record, state)

    def learn(self, state: StreamState, record: Record, position: int, *, is_assumed: bool = False) -> None:
        """The outcome of an event is learnt now."""
        status = ASSUMED if is_assumed else LEARNT
        if record.status == PENDING:
            state.pending -= 1
        elif record.status in {HELD, WAITING}:
            state.held -= 1
        else:  # the monitors have given it up
            status = LATE
            self.late += 1
            self.given_up.append((self.slot(state), record.nth))
        record.status, record.learnt = status, position
        state.outcomes += 1
        if is_assumed:
            state.expired += 1
            self.expired += 1
        self.learnt += 1
        if record.row < 0:  # its forecast was made in an earlier group
            if record.receipt is None:  # pragma: no cover - a store whose rows were changed by hand
                raise ValueError(f"an event must have its receipt to be learnt, got none - at id {record.id!r}")
            self._receipts.append(record.receipt)
        self.rows.append((record, self.slot(state), nan, record.share, record.row))
        self._is_weighted |= record.weight is not None or record.trials is not None
        if not record.is_new:
            self._settled[record.stream, record.nth] = record

    def expire(self, state: StreamState, record: Record) -> None:
        """No outcome came in time, or what was held is not wanted."""
        if record.status == PENDING:  # its receipt stays, for an outcome that comes late
            state.pending -= 1
        else:
            state.held -= 1
            record.observe(None, None)
            record.receipt, record.is_final = None, True
        record.status = EXPIRED
        self.given_up.append((self.slot(state), record.nth))
        state.expired += 1
        self.expired += 1
        self._touch(record, state)

    def correct(self, state: StreamState, record: Record, outcome: Observed | None, time: float | None) -> None:
        """Another outcome than before is the right one; None: it is unknown again."""
        if record.status in {LEARNT, LATE}:
            state.waiting[record.nth] = outcome  # until its stream is replayed
            self.slot(state)
        elif record.status in {HELD, WAITING}:
            if outcome is None:
                self.release(state, record)
            else:
                record.observe(outcome, time)
                self._touch(record, state)

    def _touch(self, record: Record, state: StreamState) -> None:
        """The event is written, and its stream."""
        if not record.is_new:
            self._settled[record.stream, record.nth] = record
        self.slot(state)

    # ---- what happens to a stream -----------------------------------------------------------------------------------

    def slot(self, state: StreamState) -> int:
        """The place of a stream in the group. It is written."""
        if state.name not in self.changes.streams:
            state.slot = len(self.changes.streams)
            self.changes.streams[state.name] = state
        return state.slot

    def define(self, state: StreamState, shape: Shape) -> None:
        """What the events of a stream look like."""
        state.shape, state.table, state.state = shape, None, None
        self.slot(state)
        self.changes.shaped[state.name] = state

    def gather(self, state: StreamState, given: bytes | None) -> None:
        """The first numbers of a stream's groups are gathered, until they fix the cells."""
        if (after := state.shape.after(given)) is not state.shape:
            state.shape = after
            self.changes.shaped[state.name] = state

    def name(self, state: StreamState, word: int, value: Any) -> None:
        """The value of a word of a stream's groups; the oldest leaves where there is no room."""
        state.book[word] = value
        self.changes.names.append((state, word, state.named, json.dumps(value)))
        state.named += 1
        if state.shape.groups is not None and len(state.book) > state.shape.groups.cells:
            oldest = next(iter(state.book))
            del state.book[oldest]
            self.changes.forgotten.append((state, oldest))

    def ask(self, state: StreamState) -> None:
        """The notice of a stream is asked, whatever happens to it."""
        self.slot(state)
        self.overdue.append(state)

    # ---- the same from the log --------------------------------------------------------------------------------------

    def do(self, op: Op, state: StreamState, record: Record | None, right: Right) -> None:
        """An operation of the log that is about an event, or defines something; None: the event is no more."""
        kind = op.kind
        if kind == ops.FORECAST and record is not None:
            state.events = op.nth  # the same, unless some were lost
            if self.gathers:
                self.gather(state, record.given)
            self.forecast(state, record)
        elif kind == ops.DEFINE:
            self.define(state, Shape.from_text((op.given or b"").decode()))
        elif kind == ops.NAME:
            self.name(state, op.nth, json.loads(op.id or "null"))
        elif record is not None and kind == ops.CORRECT:
            if op.position > state.applied or op.corrects is None:  # otherwise a replay has done it
                self.correct(state, record, op.observed, op.time)
        elif record is not None and kind == ops.EXPIRE:
            self.expire(state, record)
        elif record is not None:
            self._do_outcome(op, state, record, right)

    def _do_outcome(self, op: Op, state: StreamState, record: Record, right: Right) -> None:
        """An outcome that came, or is learnt."""
        if op.position in right and right[op.position] is None:
            if record.status in {HELD, WAITING}:
                self.release(state, record)
            return
        if op.observed is not None:
            is_first = record.outcome is None and op.kind != ops.ASSUME
            record.observe(op.observed, op.at if op.time is None else op.time)
            if is_first:
                self.arrive(state, record, record.outcome_time or op.at)
        if op.kind == ops.HOLD:
            self.hold(state, record)
            return
        if op.position in right:
            record.observe(right[op.position], record.outcome_time)
        self.learn(state, record, op.position, is_assumed=op.kind == ops.ASSUME)

    # ---- the fold ---------------------------------------------------------------------------------------------------

    def run(self, model: Model) -> Folded:
        """Do it: the streams learn, and the events get their forecasts and receipts.

        An event that has a forecast keeps it: it was answered.
        """
        touched = list(self.changes.streams.values())
        if not touched:
            return Folded([], [], [], {})
        records, slots, scores, outcomes, own = zip(*self.rows, strict=True) if self.rows else ((),) * 5
        given = [record.given for record in records]
        heavy = _weights(records) if self._is_weighted else ((), ())
        columns = slots, scores, outcomes, own, self._receipts, self.given_up, given, *heavy
        made = model.fold(touched, *columns)
        receipts, is_plain = iter(made.receipts), not (made.classes or made.bands)
        for at, (record, slot, _, outcome, _) in enumerate(self.rows):
            if outcome == outcome:  # noqa: PLR0124 - not NaN: it is learnt
                record.receipt = None
                continue
            state = touched[slot]
            if (
                is_plain
                and state.shape is PLAIN
                and not state.mode & PASSTHROUGH
                and record.forecast != record.forecast
            ):
                record.forecast = made.forecasts[at]  # as `_answer` does: most are such
            else:
                self._answer(record, made.forecasts[at], made.classes.get(at), made.bands.get(at), state)
            receipt = next(receipts)
            # A forecast that is learnt in this same group needs none.
            is_open = record.status in _MAY_LEARN and not record.is_final
            record.receipt = receipt if is_open else None
        for arrival, record in self._of_models:
            state, time, _, lag = self.arrived[arrival]
            self.arrived[arrival] = state, time, record.forecast, lag
        for state in touched:
            if state.changed:
                self.changes.cells += [(state.number, 0, *cell) for cell in state.changed]
                state.changed = []
        self.changes.settled = list(self._settled.values())
        return made

    def _answer(
        self, record: Record, forecast: float, classes: tuple[int, bytes] | None, band: bytes | None, state: StreamState
    ) -> None:
        """What the method forecasts is the answer, unless something else was answered, or the score is to be."""
        is_answered = record.forecast == record.forecast
        is_raw = bool(state.mode & PASSTHROUGH)
        if not is_answered:
            record.band = None if is_raw else band  # which is about the forecast
        elif band is not None and record.band is not None and band != record.band:  # bands may be younger than events
            self.other_bands.append(record)
        if classes is None:
            told = record.forecast if is_answered else record.score if is_raw else forecast
            record.own = None if told == forecast else _NUMBER.pack(forecast)
            if is_answered and not is_raw and told != forecast:
                self.differences.append(abs(told - forecast))
            record.forecast = told
            if state.shape.models is not None:
                record.score = told
            return
        _, made = classes
        issued = record.issued if is_answered else record.given if is_raw else made
        record.own = None if issued == made else made
        if is_answered and not is_raw and issued != made:
            self.differences.append(float(np.abs(np.frombuffer(issued or b"") - np.frombuffer(made)).max()))
        if not is_answered:
            numbers = np.frombuffer(issued or b"")
            top = int(numbers.argmax())
            record.issued, record.forecast = issued, float(numbers[top])
            record.score = float(np.frombuffer(record.given or b"")[top])


def _weights(records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """The weights of outcomes, and how many events they are."""
    weights = [1.0 if record.weight is None else record.weight for record in records]
    return weights, [1.0 if record.trials is None else float(record.trials) for record in records]


def record_of(op: Op) -> Record:
    """The event of a forecast of the log."""
    time = op.at if op.time is None else op.time
    made = Record(
        *(op.stream, op.nth, op.id or "", op.position, time, PENDING, None, None, None, None, None, None, op.x or 0.0),
        *(op.told if op.told is not None else nan, _bytes(op.given), _bytes(op.issued), _bytes(op.band), None),
    )
    made.is_new = True
    return made


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def of_named_classes(
    records: Sequence[Any], outcomes: Sequence[float]
) -> tuple[Sequence[float], dict[int, tuple[float, float, float, float]]]:
    """Outcomes as roll-ups count them, and what labels cost, by the number of the operation.

    Of K classes an outcome is whether the class came that was named; others stay as they are. NaN stays NaN.
    """
    wide = [at for at, record in enumerate(records) if record.issued is not None and outcomes[at] == outcomes[at]]
    if not wide:
        return outcomes, {}
    hits, losses = list(outcomes), {}
    for at in wide:
        record, label = records[at], int(outcomes[at])
        issued = np.frombuffer(record.issued or b"")
        hits[at] = float(label == int(issued.argmax()))
        losses[at] = class_losses(record.given or b"", record.issued or b"", label)
    return hits, losses
