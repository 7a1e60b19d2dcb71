"""What is done to a stream as a whole: freeze, pass through, resume, reset, copy, rename, delete; and one event of it.

Each is a group of its own. It has a number among the operations of its stream and a row in the table `control`, so that
a replay does it again at the same place.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .events import Control, Refusal
from .model import Model
from .shape import PLAIN
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
    Correction,
    StreamState,
    rows_of,
)

ANSWERS = {"copy": "copied", "rename": "renamed", "delete": "deleted"}
FORGETTING = "forgetting"  # it is recorded, and answered when it is done
_INSERT = "INSERT INTO control (stream, seq, time, verb, detail, nth) VALUES (?, ?, ?, ?, ?, ?)"
_NOBODY = 0  # the stream of what was done to one that is no longer there
RETRIED_WITHIN = 600.0  # seconds: a request that comes once more within them is a retry, and gets the same answer
_DONE_BEFORE = "SELECT 1 FROM control WHERE stream = ? AND verb = ? AND detail = ? AND time >= ? LIMIT 1"
_PAST = {"copy": "copied", "rename": "rename", "delete": "delete"}  # how the log calls what leaves a name taken or gone


def note(connection: Any, stream: int, seq: int | None, now: float, verb: str, detail: str = "", nth: int = -1) -> None:
    """Write what was done into the log."""
    connection.run(_INSERT, (stream, seq, now, verb, detail or None, None if nth < 0 else nth))


class Controls:
    """The verbs. The store is in a group, and the streams that a control names are loaded."""

    def __init__(self, store: Store, model: Model, streams: dict[str, StreamState], now: float) -> None:
        self._store, self._connection, self._model, self._streams = store, store.connection, model, streams
        self._now = now
        self.noted: list[tuple[StreamState, int, str]] = []  # stream, number of the operation and what it was
        self.deleted: list[int] = []
        self.is_changed = False

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
        if control.verb not in _PAST or is_there != (control.verb == "copy"):
            return False
        made = self._streams.get(control.to)
        if control.to and made is None:
            return False
        number = _NOBODY if made is None else made.number
        what = (number, _PAST[control.verb], control.stream, self._now - RETRIED_WITHIN)
        return bool(self._connection.all(_DONE_BEFORE, what))

    # ---- how it forecasts and learns --------------------------------------------------------------------------------

    def _freeze(self, state: StreamState, _: Control) -> str:
        if not state.mode & FROZEN:
            self._change(state, "freeze", mode=(state.mode & PASSTHROUGH) | FROZEN)
        return "frozen"

    def _passthrough(self, state: StreamState, _: Control) -> str:
        if not state.mode & PASSTHROUGH:
            self._change(state, "passthrough", mode=state.mode | PASSTHROUGH)
        return "passthrough"

    def _resume(self, state: StreamState, control: Control) -> str:
        if state.mode & (FROZEN | PASSTHROUGH):
            rest = DROPPING if control.outcomes == "drop" else RESUMING
            mode = rest if state.mode & FROZEN else state.mode & (RESUMING | DROPPING)
            self._change(state, "resume", control.outcomes, mode=mode)
        return "resumed"

    def _reset(self, state: StreamState, _: Control) -> str:
        for status in (PENDING, HELD, WAITING):
            # The status stands in the text, so that the index over part of the table is used.
            self._connection.run(
                f"UPDATE event SET status = {EXPIRED}, outcome = NULL, outcome_time = NULL, receipt = NULL "  # noqa: S608
                f"WHERE stream = ? AND status = {status}",
                (state.number,),
            )
        # Late outcomes of forecasts that expired before are not learnt any more: their receipts are of another state.
        self._connection.run(
            f"UPDATE event SET receipt = NULL WHERE stream = ? AND status = {EXPIRED} AND receipt IS NOT NULL",  # noqa: S608
            (state.number,),
        )
        for table in ("said", "cell"):
            of_now = " AND is_base = 0" if table == "cell" else ""
            self._connection.run(f"DELETE FROM {table} WHERE stream = ?{of_now}", (state.number,))  # noqa: S608
        state.expired += state.pending + state.held
        state.pending = state.held = 0
        self._model.begin_anew(state)
        self._change(state, "reset", mode=state.mode & (FROZEN | PASSTHROUGH))
        return "reset"

    def _change(self, state: StreamState, verb: str, detail: str = "", *, mode: int) -> None:
        """Put a verb into the log, and write the stream."""
        note(self._connection, state.number, state.seq, self._now, verb, detail)
        self.noted.append((state, state.seq, verb))
        state.seq += 1
        state.mode = mode
        state.version += 1
        self._write(state)

    def _write(self, state: StreamState) -> None:
        self._store.write(rows_of(Changes(streams={state.name: state})))
        self.is_changed = True

    # ---- its name ---------------------------------------------------------------------------------------------------

    def _check_new(self, name: str) -> None:
        if name in self._streams:
            raise Refusal("conflict", f"to must be the name of no stream, got {name!r:.60}", "to", 409)

    def _copy(self, state: StreamState, control: Control) -> str:
        """Another stream with the same state, which begins where this one is. The events stay where they are."""
        self._check_new(control.to)
        waiting = "SELECT count(*) FROM correction WHERE stream = ? AND applied = 0"
        if count := self._connection.all(waiting, (state.number,))[0][0]:
            sentence = f"stream must have no corrections that wait when it is copied, got {count} - try again soon"
            raise Refusal("conflict", sentence, "stream", 409)
        number = self._store.create([control.to])[control.to]
        made = StreamState(control.to, number=number, version=1)
        for name in (
            "shape",
            "state",
            "seq",
            "events",
            "outcomes",
            "expired",
            "last_time",
            "sums",
            "error",
            "raw_error",
        ):
            setattr(made, name, getattr(state, name))
        self._write(made)
        if made.shape is not PLAIN:
            self._store.write(rows_of(Changes(shaped={made.name: made})))
        for is_base in (0, 1):
            self._connection.run(
                "INSERT INTO cell (stream, is_base, slot, held) SELECT ?, ?, slot, held FROM cell "
                "WHERE stream = ? AND is_base = 0",
                (number, is_base, state.number),
            )
        self._connection.run(
            "INSERT INTO name (stream, word, number, value) SELECT ?, word, number, value FROM name WHERE stream = ?",
            (number, state.number),
        )
        self._connection.run(
            "UPDATE stream SET since = seq, watched_from = seq, base_seq = seq, base_events = events, base = ? "
            "WHERE number = ?",
            (made.state, number),
        )
        note(self._connection, number, None, self._now, "copied", control.stream)
        return ANSWERS["copy"]

    def _rename(self, state: StreamState, control: Control) -> str:
        """The same stream under another name. What it draws stays what it was."""
        self._check_new(control.to)
        self._change(state, "rename", control.stream, mode=state.mode)
        origin = state.origin or state.name
        self._connection.run(
            "UPDATE stream SET name = ?, origin = ? WHERE number = ?", (control.to, origin, state.number)
        )
        del self._streams[control.stream]
        return ANSWERS["rename"]

    def _delete(self, state: StreamState, control: Control) -> str:
        """It has no name any more and is in no list. Its events are deleted in later groups, some at a time."""
        written = self._connection.run(
            "UPDATE stream SET name = ?, mode = ?, events = 0, outcomes = 0, pending = 0, held = 0, expired = 0, "
            "alarms = 0, deadline = NULL, base = NULL, base_monitor = NULL, version = version + 1 WHERE number = ?",
            (f"\x7f{state.number}", DELETING, state.number),  # no stream can have such a name
        )
        assert written == 1  # noqa: S101 - it is locked
        self._connection.run("DELETE FROM body WHERE stream = ?", (state.number,))
        note(self._connection, _NOBODY, None, self._now, "delete", control.stream)
        del self._streams[control.stream]
        self.deleted.append(state.number)
        self.is_changed = True
        return ANSWERS["delete"]

    # ---- its events -------------------------------------------------------------------------------------------------

    def _forget(self, state: StreamState, control: Control) -> str:
        """Record what is to be forgotten. Nobody sees them from now on; a replay of their stream deletes them."""
        known = self._known(state, control.ids)
        if not known:
            raise unknown_event(control)
        records = [record for record in known if not record.is_forgetting]
        if not records:  # asked again, before it is done
            return FORGETTING
        changes = Changes(corrections=[Correction(record, None, self._now, is_forgetting=True) for record in records])
        self._store.write(rows_of(changes))
        self.is_changed = True
        return FORGETTING

    def _known(self, state: StreamState, ids: Collection[str]) -> list[Any]:
        return list(self._store.known([(state.number, name) for name in ids]).values())


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
    some = "SELECT nth FROM event WHERE stream = ? ORDER BY nth LIMIT ?"
    if store.connection.all(some, (number, 1)):
        store.alone(f"DELETE FROM event WHERE stream = ? AND nth IN ({some})", (number, number, at_once))  # noqa: S608
        return False
    for table in ("rollup", "alarm", "correction", "said", "control", "shape", "cell", "name"):
        store.alone(f"DELETE FROM {table} WHERE stream = ?", (number,))  # noqa: S608 - our own tables
    store.alone("DELETE FROM stream WHERE number = ?", (number,))
    return True
