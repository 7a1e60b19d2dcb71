"""How an engine hears its streams: what arrives, what is overdue, and when nobody listened. See `notices`.

Silence is measured by a clock that may be wrong and by a process that may be stopped. Both are noticed here, so that
nobody is paged for them, and nothing expires because of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from calibeat.monitor.notices import NoticeSettings

from .clock import ServiceClock
from .notices import (
    BEAT,
    FEWEST,
    GRACE,
    SHARE,
    SILENCES,
    TOGETHER,
    Deadlines,
    Downtime,
    Listener,
    Noticed,
    beat,
    downtimes,
    due_at,
    forget_downtimes,
    note_downtime,
)
from .pending import Pending
from .store import Store, StoreBusy
from .store.schema import get_meta
from .store.types import DELETING, AlarmInfo, Changes, StreamState
from .watch import NOTICED

ASKED_AT_ONCE = 1000  # streams that are overdue, in one group
SOON = 0.001  # seconds after a deadline
_NAME_OF = f"SELECT name FROM stream WHERE number = ? AND mode <> {DELETING}"  # noqa: S608
# Streams that have fallen silent since a moment, and whether somebody was paged for all of them.
_SILENT = (
    "SELECT count(DISTINCT stream), count(CASE WHEN page = 1 AND substr(detail, 1, 8) = 'upstream' THEN 1 END) "
    "FROM alarm WHERE time > ? AND time <= ? AND what = ?"
)

_log = logging.getLogger("calibeat.service.engine")


class Listening:
    """What an engine knows of silence. Without a listener only the clock is looked at."""

    def __init__(self, store: Store, clock: Callable[[], float], *, notice: bool) -> None:
        self._store, self._clock = store, clock
        self.listener = Listener(NoticeSettings()) if notice else None
        self._deadlines = Deadlines()
        self._downtimes: list[Downtime] = []
        self._next_beat = -np.inf
        self.expires_from = -np.inf  # nothing expires before
        self._is_warned = False  # that the system's clock is not believed

    def begin(self, now: float) -> None:
        """From now on somebody listens. What came before this process is known, and when nobody did."""
        if self.listener is None:
            return
        alive = get_meta(self._store.connection).get("alive")
        if alive is not None and float(alive) - now > BEAT:  # the last sign of life is one of the future
            self._set_back(now, float(alive), {})
        if alive is not None and now - float(alive) > 0.0:
            note_downtime(self._store, float(alive), now)
        self.read_downtimes(now)
        self.list_deadlines()
        self.beat()

    def read_downtimes(self, now: float) -> None:
        """Read when nobody listened."""
        if self.listener is not None:
            self._downtimes = downtimes(self._store.connection, now)

    def list_deadlines(self) -> None:
        """Read when which stream is to be asked."""
        select = "SELECT deadline, number, name FROM stream WHERE deadline IS NOT NULL"
        self._deadlines.replace(self._store.connection.all(select))

    # ---- the clock --------------------------------------------------------------------------------------------------

    def look_at_clock(self, streams: Mapping[str, StreamState]) -> None:
        """Note the time that this process has not lived through: stopped, asleep, or before the clock was set.

        Streams were not silent then. And nothing expires for a while: outcomes that have waited for the service come
        first.
        """
        if not isinstance(self._clock, ServiceClock):  # a clock that is set by hand
            return
        gap, ahead = self._clock.look(), self._clock.disbelieved
        if ahead is not None and not self._is_warned:
            _log.warning(
                "the system's clock has jumped by %.0f seconds: the time goes on as before if it jumps back", ahead
            )
        self._is_warned = ahead is not None
        if gap is None:
            return
        now = self._clock()
        if gap.ended < gap.begun:
            self._set_back(now, gap.begun, streams)
            return
        _log.warning("%.0f seconds have passed without this process, or the clock was set", gap.ended - gap.begun)
        self.expires_from = now + GRACE
        if self.listener is not None:
            with suppress(StoreBusy):
                note_downtime(self._store, gap.begun, gap.ended)
            self.read_downtimes(now)
            self.beat()

    def _set_back(self, now: float, before: float, streams: Mapping[str, StreamState]) -> None:
        """The clock was ahead, and is right now: what the store has of the time ahead must not hold up what comes."""
        _log.warning("the clock was set back by %.0f seconds", before - now)
        if self.listener is None:
            return
        with suppress(StoreBusy):
            forget_downtimes(self._store, now)
        for state in streams.values():
            state.due = min(state.due, now)
        self.read_downtimes(now)
        self.list_deadlines()
        self.beat()

    def leave_sign(self, now: float) -> None:
        """Somebody has listened until now, at least."""
        if now > float(get_meta(self._store.connection).get("alive", 0.0)):
            beat(self._store, now)

    def beat(self) -> None:
        """Leave a sign of life."""
        if self.listener is not None:
            self._next_beat = time.monotonic() + BEAT
            with suppress(StoreBusy):
                beat(self._store, self._clock())

    def beat_in_time(self) -> None:
        """Leave one if the last one is old."""
        if time.monotonic() >= self._next_beat:
            self.beat()

    # ---- what is overdue --------------------------------------------------------------------------------------------

    @property
    def wait(self) -> float:
        """Seconds until a stream is to be asked."""
        return np.inf if self.listener is None else max(0.0, self._deadlines.first - self._clock()) + SOON

    @property
    def is_due(self) -> bool:
        """Whether one is to be asked now."""
        return self._deadlines.first < self._clock()

    def overdue(self, now: float, streams: Mapping[str, StreamState], pending: Pending) -> dict[int, str]:
        """Streams of which something should have come by now, as far as memory knows: numbers and names."""
        found = {}
        for number, name in self._deadlines.take(now, ASKED_AT_ONCE) if self.listener is not None else ():
            if pending.is_to_be_heard and name in pending.changes.streams:
                continue  # what has come is heard soon, and says when it is to be asked
            state = streams.get(name)
            if state is None or state.number != number:  # it may have another name now
                names = self._store.connection.all(_NAME_OF, (number,))
                name = names[0][0] if names else ""  # noqa: PLW2901
            elif state.due > now:
                self._deadlines.set(number, name, state.due)
                continue
            if name:
                found[number] = name
        return found

    def still_overdue(self, found: dict[int, str], now: float, streams: Mapping[str, StreamState]) -> Iterator[Any]:
        """Those of them that are so by the tables, too."""
        for number, name in found.items():
            state = streams.get(name)
            if state is None or state.number != number:
                continue
            if state.due < now:
                yield state
            else:
                self._deadlines.set(number, name, state.due)

    # ---- what has arrived -------------------------------------------------------------------------------------------

    def check(self, states: Iterable[StreamState]) -> None:
        """Check the rows of streams that come from a store."""
        if self.listener is not None:
            self.listener.check([state.notice for state in states if state.notice is not None])
            return
        for state in states:  # it would not know what has come meanwhile
            state.notice = state.deadline = None

    def hear(self, pending: Pending, *, live: bool) -> None:
        """The notices of streams hear what has arrived. Alarms and their ends go to the other changes."""
        if self.listener is None or not pending.is_to_be_heard:
            return
        changes, now = pending.changes, pending.time
        arrivals, touched = pending.arrivals(), list(changes.streams.values())
        overdue = [state.slot for state in pending.overdue]
        rows = [state.notice for state in touched]
        heard = self.listener.hear(rows, arrivals, self._downtimes, overdue, now, live=live)
        for state, row, deadline in zip(touched, heard.rows, heard.deadlines, strict=True):
            state.notice, state.deadline = row, deadline
            state.due = due_at(deadline, now, is_history=state.is_history)
            self._deadlines.set(state.number, state.name, state.due)
        for slot, what in heard.ended:
            changes.ended.append((touched[slot].name, what, now))
        if heard.alarms:
            self._raise(heard.alarms, changes, touched, now)

    def _raise(self, found: list[Noticed], changes: Changes, touched: list[StreamState], now: float) -> None:
        """New alarms. If many streams fall silent within an hour, one of them pages for all."""
        upstream = {what: self._upstream(what, found, now) for what in SILENCES}
        for slot, alarm, detail, is_over in found:
            state, page = touched[slot], alarm.page
            if page and (cause := upstream.get(alarm.what)) is not None:
                page, detail = bool(cause), cause  # noqa: PLW2901
                upstream[alarm.what] = ""
            state.alarms += 1
            ended = now if is_over else None
            changes.alarms.append(
                AlarmInfo(
                    *(alarm.at, alarm.since, alarm.what, page, 0, state.name, now, None, ended, NOTICED, detail or None)
                )
            )

    def _upstream(self, what: str, found: list[Noticed], now: float) -> str | None:
        """What the page says that stands for many streams; "" if there was one; None if each pages for itself."""
        new = sum(alarm.what == what and alarm.page for _, alarm, *_ in found)
        if not new:
            return None
        streams, paged = self._store.connection.all(_SILENT, (now - TOGETHER, now, what))[0]
        total = int(self._store.connection.all("SELECT count(*) FROM stream WHERE events > 0")[0][0])
        silent = new + streams
        if silent < FEWEST or silent <= SHARE * total:
            return None
        return "" if paged else f"upstream: {silent} of {total} streams within an hour"
