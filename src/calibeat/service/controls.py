"""What is done to a stream as a whole: freeze, pass through, resume, reset, copy, rename, delete; and one event of it.

Each is a group of its own, which goes into the log and into the tables in one commit. A replay does it again at the
same place.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from calibeat.errors import InvalidInput

from . import ops
from .events import Control, Refusal, bad_name
from .model import Model
from .ops import row_of
from .replay import Base
from .shape import PLAIN, Shape
from .store import Store
from .store.types import (
    DELETING,
    DROPPING,
    EXPIRED,
    FROZEN,
    HELD,
    PASSTHROUGH,
    PENDING,
    RESUMING,
    WAITING,
    Changes,
    StreamState,
    TableRow,
    rows_of,
)

ANSWERS = {"copy": "copied", "rename": "renamed", "delete": "deleted"}
FORGETTING = "forgetting"  # it is recorded, and answered when it is done
RETRIED_WITHIN = 600.0  # seconds: a request that comes once more within them is a retry, and gets the same answer
_DONE_BEFORE = "SELECT 1 FROM op WHERE kind = ? AND stream = ? AND id = ? AND at >= ? AND kind > 1 LIMIT 1"
_VERBS = {"copy": ops.COPY, "rename": ops.RENAME, "delete": ops.DELETE}  # what leaves a name taken or gone
_NOBODY = 0  # the stream of what was done to one that is no longer there


class Controls:
    """The verbs. The store is in a group, and the streams that a control names are loaded."""

    def __init__(
        self, store: Store, model: Model, streams: dict[str, StreamState], now: float, position: int, number: int
    ) -> None:
        self._store, self._connection, self._model, self._streams = store, store.connection, model, streams
        self._now = now
        self.position, self.number = position, number  # the next ones
        self.log: list[TableRow] = []
        self.deleted: list[int] = []
        self.is_forgetting = False

    def do(self, control: Control) -> str:
        """Do it -> a word for it. `Refusal` if it cannot be done; then nothing has changed."""
        state = self._streams.get(control.stream)
        is_there = state is not None and state.events > 0
        if self._is_retry(control, is_there=is_there):
            return ANSWERS[control.verb]
        if state is None or not is_there:
            raise unknown_stream(control.stream)
        done: str = getattr(self, f"_{control.verb}")(state, control)
        return done

    def _is_retry(self, control: Control, *, is_there: bool) -> bool:
        """Whether this was done a short while ago: a client whose answer was lost asks once more."""
        if control.verb not in _VERBS or is_there != (control.verb == "copy"):
            return False
        made = self._streams.get(control.to)
        if control.to and made is None:
            return False
        number = _NOBODY if made is None else made.number
        done = (_VERBS[control.verb], number, control.stream, self._now - RETRIED_WITHIN)
        return bool(self._connection.all(_DONE_BEFORE, done))

    def _note(
        self,
        stream: int,
        kind: int,
        nth: int = -1,
        detail: str | None = None,
        given: Any = None,
        corrects: int | None = None,
    ) -> None:
        """Put an operation into the log."""
        self.log.append(
            row_of(self.position, stream, kind, nth, id=detail, at=self._now, given=given, corrects=corrects)
        )
        self.position += 1

    # ---- how it forecasts and learns --------------------------------------------------------------------------------

    def _freeze(self, state: StreamState, _: Control) -> str:
        if not state.mode & FROZEN:
            self._change(state, ops.FREEZE, mode=(state.mode & PASSTHROUGH) | FROZEN)
        return "frozen"

    def _passthrough(self, state: StreamState, _: Control) -> str:
        if state.shape.models is not None:
            sentence = "stream must have one score to answer, or one for each class, got one of several models"
            raise Refusal("invalid", sentence, "stream", 400)
        if not state.mode & PASSTHROUGH:
            self._change(state, ops.PASSTHROUGH, mode=state.mode | PASSTHROUGH)
        return "passthrough"

    def _resume(self, state: StreamState, control: Control) -> str:
        if state.mode & (FROZEN | PASSTHROUGH):
            rest = DROPPING if control.outcomes == "drop" else RESUMING
            mode = rest if state.mode & FROZEN else state.mode & (RESUMING | DROPPING)
            self._change(state, ops.RESUME, control.outcomes, mode=mode)
        return "resumed"

    def _reset(self, state: StreamState, _: Control) -> str:
        give_up_all(self._connection, state)
        state.expired += state.pending + state.held
        state.pending = state.held = 0
        self._model.begin_anew(state)
        self._change(state, ops.RESET, mode=state.mode & (FROZEN | PASSTHROUGH))
        return "reset"

    def _join(self, state: StreamState, control: Control) -> str:
        """Models join a stream of several, each as an operation of its own."""
        if problem := next(filter(None, (bad_name("model", name) for name in control.models)), ""):
            raise Refusal("invalid", problem, "models", 400)
        try:
            reduce(Shape.joined, control.models, state.shape)
        except InvalidInput as error:
            raise Refusal("invalid", str(error), "models", 400) from None
        for name in control.models:
            self._model.join(state, name)
            self._change(state, ops.JOIN, name, mode=state.mode)
        self._store.write(rows_of(Changes(shaped={state.name: state})))
        return "joined"

    def _change(self, state: StreamState, kind: int, detail: str | None = None, *, mode: int) -> None:
        """Put a verb into the log, and write the stream."""
        self._note(state.number, kind, detail=detail)
        state.mode = mode
        self._write(state)

    def _write(self, state: StreamState) -> None:
        self._store.write(rows_of(Changes(streams={state.name: state})))

    # ---- its name ---------------------------------------------------------------------------------------------------

    def _check_new(self, name: str) -> None:
        if name in self._streams:
            raise Refusal("conflict", f"to must be the name of no stream, got {name!r:.60}", "to", 409)

    def _copy(self, state: StreamState, control: Control) -> str:
        """Another stream with the same state, which begins where this one is. The events stay where they are."""
        self._check_new(control.to)
        if state.waiting or state.forgetting:
            count = len(state.waiting) + len(state.forgetting)
            sentence = f"stream must have no corrections that wait when it is copied, got {count} - try again soon"
            raise Refusal("conflict", sentence, "stream", 409)
        made = StreamState(control.to, number=self.number)
        self.number += 1
        copied = ("shape", "state", "events", "outcomes", "expired", "last_time", "sums", "error", "raw_error")
        for name in copied:
            setattr(made, name, getattr(state, name))
        self._note(made.number, ops.BEGIN, detail=made.name)
        if made.shape is not PLAIN:
            self._note(made.number, ops.DEFINE, given=made.shape.to_text().encode())
        for word, value in state.book.items():
            self._note(made.number, ops.NAME, word, detail=json.dumps(value))
        self._note(made.number, ops.COPY, detail=control.stream)
        made.base = made.applied = self.position - 1
        self._write(made)
        if made.shape is not PLAIN:
            self._store.write(rows_of(Changes(shaped={made.name: made})))
        for is_base in (0, 1):
            self._connection.run(
                "INSERT INTO cell (stream, is_base, slot, held) SELECT ?, ?, slot, held FROM cell "
                "WHERE stream = ? AND is_base = 0",
                (made.number, is_base, state.number),
            )
        self._connection.run(
            "INSERT INTO name (stream, word, number, value) SELECT ?, word, number, value FROM name WHERE stream = ?",
            (made.number, state.number),
        )
        Base.of_present(made).write(self._connection, made.number)
        return ANSWERS["copy"]

    def _rename(self, state: StreamState, control: Control) -> str:
        """The same stream under another name. What it draws stays what it was."""
        self._check_new(control.to)
        self._note(state.number, ops.RENAME, detail=control.stream, given=control.to.encode())
        self._connection.run(
            "UPDATE stream SET name = ?, key = ? WHERE number = ?", (control.to, state.key or state.name, state.number)
        )
        del self._streams[control.stream]
        return ANSWERS["rename"]

    def _delete(self, state: StreamState, control: Control) -> str:
        """It has no name any more and is in no list. Its events are deleted in later groups, some at a time."""
        self._connection.run(
            "UPDATE stream SET name = ?, mode = ?, events = 0, outcomes = 0, pending = 0, held = 0, expired = 0, "
            "alarms = 0, deadline = NULL WHERE number = ?",
            (f"\x7f{state.number}", DELETING, state.number),  # no stream can have such a name
        )
        self._connection.run("DELETE FROM body WHERE stream = ?", (state.number,))
        self._note(_NOBODY, ops.DELETE, state.number, detail=control.stream)
        del self._streams[control.stream]
        self.deleted.append(state.number)
        return ANSWERS["delete"]

    # ---- its events -------------------------------------------------------------------------------------------------

    def _forget(self, state: StreamState, control: Control) -> str:
        """Record what is to be forgotten. Nobody sees them from now on; a replay of their stream deletes them."""
        known = self._store.known([(state.number, name) for name in control.ids]).values()
        if not known:
            raise unknown_event(control)
        for record in known:
            if record.nth not in state.forgetting:  # otherwise it was asked before, and is not done yet
                self._note(state.number, ops.FORGET, record.nth, corrects=record.position)
                state.forgetting.add(record.nth)
        self.is_forgetting = True
        return FORGETTING


def give_up_all(connection: Any, state: StreamState) -> None:
    """Outcomes of forecasts that were made so far are not learnt any more: their receipts are of another state."""
    give_up = (
        f"UPDATE event SET status = {EXPIRED}, outcome = NULL, outcome_time = NULL, weight = NULL, "  # noqa: S608
        "trials = NULL WHERE stream = ? AND "
    )
    for status in (PENDING, HELD, WAITING):
        # The status stands in the text, so that the index over part of the table is used.
        connection.run(f"{give_up}status = {status}", (state.number,))
    connection.run("DELETE FROM receipt WHERE stream = ? AND version = ?", (state.number, state.receipts))
    connection.run("UPDATE event SET own = NULL WHERE stream = ? AND own IS NOT NULL", (state.number,))
    connection.run("DELETE FROM cell WHERE stream = ? AND is_base = 0", (state.number,))


def unknown_stream(name: str) -> Refusal:
    """There is no such stream."""
    return Refusal("unknown_stream", f"stream must be one that has events, got {name!r:.60}", "stream", 404)


def unknown_event(control: Control) -> Refusal:
    """There is no such event."""
    which = control.ids[0] if len(control.ids) == 1 else f"{len(control.ids)} others"
    sentence = f"id must be that of an event of this stream, got {which!r:.60} of {control.stream!r:.60}"
    return Refusal("unknown", sentence, "id", 404)


def delete_some(store: Store, number: int, at_once: int) -> bool:
    """Delete some events of a stream that was deleted; in the end the rest of it, too -> whether all is gone."""
    some = store.connection.all("SELECT nth, position, learnt FROM event WHERE stream = ? LIMIT ?", (number, at_once))
    store.begin()
    if some:
        positions = [position for _, *both in some for position in both if position is not None]
        within = store.one_of
        store.connection.run(f"DELETE FROM op WHERE position {within}", (store.as_list(positions),))  # noqa: S608
        numbers = store.as_list([nth for nth, *_ in some])
        store.connection.run(f"DELETE FROM event WHERE stream = ? AND nth {within}", (number, numbers))  # noqa: S608
    else:
        for table in ("rollup", "alarm", "shape", "cell", "name", "receipt", "base"):
            store.connection.run(f"DELETE FROM {table} WHERE stream = ?", (number,))  # noqa: S608 - our own tables
        store.connection.run("DELETE FROM op WHERE stream = ? AND kind > 1", (number,))
        store.connection.run("DELETE FROM stream WHERE number = ?", (number,))
    store.commit()
    return not some
