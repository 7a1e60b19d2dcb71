"""What is noticed of streams without their outcomes: that nothing comes, and that a score has moved. See `Notice`.

Each stream has a row, which is stored with the commit that changes it. It hears when forecasts and outcomes arrive.
That does not depend on what was learnt, so freezes, corrections and replays leave it as it is. An arrival also says
when the next one is overdue: `Deadlines` has the earliest of these moments, and nothing is polled. When nobody
listened, because no service ran or the database was away, it is not a silence: the store remembers these times.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.types import Slots, Vector
from calibeat.monitor.bets import Alarm
from calibeat.monitor.notices import (
    FIRST,
    FORECASTS,
    OUTCOMES,
    SILENCE,
    TOLD,
    WIDTH,
    Notices,
    NoticeSettings,
    ask_rows,
    find_deadlines,
    hear_rows,
    lags_of,
    leave_rows,
    logged,
    room_for,
)
from calibeat.monitor.silence import (
    BEFORE,
    DEADLINE,
    EPOCH,
    FROM,
    HOUR,
    IN_DAY,
    IN_HOUR,
    IS_WHOLE,
    LAST,
    NEVER,
    OPEN,
    START,
)

NO_FORECASTS, NO_OUTCOMES, LATER, NEVER_AN_OUTCOME, MOVED = WORDS = (
    "no forecasts",
    "no outcomes",
    "outcomes later",
    "never an outcome",
    "score moved",
)
SILENCES = (NO_FORECASTS, NO_OUTCOMES, NEVER_AN_OUTCOME)  # over with the next arrival
_FLAGS, _IS_COUNT = [FORECASTS + OPEN, OUTCOMES + OPEN, TOLD], np.array([False, False, True])  # of the silences
TOGETHER = 3600.0  # seconds: streams that fall silent within them may have one cause
SHARE, FEWEST = 0.1, 5  # of the streams, and how many, so that it has
# An event arrives when the service gets it, whatever time it has: some send what they have once a day. One that is
# older than this, in seconds, belongs to a history that is sent. It arrived at its own time.
LIVE = 2 * 86_400.0
GRACE = 600.0  # seconds that a stream whose history is sent may be quiet
BEAT = 60.0  # seconds from one sign of life in the store to the next
REMEMBERED = 60 * 86_400.0  # seconds: a longer silence teaches nothing

Downtime = tuple[float, float]


class GroupArrivals(NamedTuple):
    """What has arrived in a group, in order, by the slots of its streams. The score of an outcome is NaN."""

    slots: Sequence[int]
    times: Sequence[float]
    scores: Sequence[float]
    lags: Sequence[float]  # seconds from a forecast to its outcome
    # Before which arrivals a history ends, and when: from its last event until then nobody has listened.
    ends: Sequence[tuple[int, float]] = ()


class Noticed(NamedTuple):
    """What is noticed of a stream."""

    slot: int
    alarm: Alarm
    detail: str
    is_over: bool  # the arrival that has found it has also ended it


class HeardGroup(NamedTuple):
    """New rows, their deadlines, new alarms, and the silences that are over: (slot, what)."""

    rows: list[bytes]
    deadlines: list[float | None]
    alarms: list[Noticed]
    ended: list[tuple[int, str]]


class Listener:
    """Hears what arrives in streams, which are bytes."""

    def __init__(self, settings: NoticeSettings) -> None:
        self.settings = settings
        self._fresh = settings.initial_row().tobytes()
        self._specs = settings.every, settings.score.watched, settings.delay.watched

    def check(self, rows: Sequence[bytes]) -> None:
        """Check rows that come from a store.

        Raises
        ------
        InvalidInput : a row is not one of a notice.
        """
        if rows:
            notices = Notices(self.settings)
            notices.resize(len(rows))
            notices.set_states(np.arange(len(rows), dtype=np.int32), rows)

    def hear(
        self,
        rows: Sequence[bytes | None],
        arrivals: GroupArrivals,
        downtimes: Sequence[Downtime] = (),
        asked: Sequence[int] = (),
        now: float = 0.0,
        *,
        live: bool = False,
    ) -> HeardGroup:
        """Rows hear arrivals. First the clock is asked of those slots that are overdue.

        `live`: no row has heard anything later than `now`, unless the clock was ahead.
        """
        whole = np.frombuffer(bytearray().join([row or self._fresh for row in rows]))
        matrix = whole.reshape(len(rows), WIDTH)
        silent = matrix[:, _FLAGS]
        if live:
            _set_back(matrix, now)
        log = room_for(len(arrivals.slots) + len(asked) + len(rows) * len(downtimes))
        slots = np.array(arrivals.slots, dtype=np.int32)
        times, scores, lags = (np.array(part, dtype=np.float64) for part in arrivals[1:4])
        if downtimes:
            last = downtimes[-1][1]
            if (matrix[:, FORECASTS + FROM] < last).any():
                first = np.full(len(rows), now)  # when each row is told something
                first[slots[::-1]] = times[::-1]  # of equal slots the last one is kept
                self._leave(whole, matrix, downtimes, first, log)
            if (times - lags < last).any():
                lags = lags_of(times - lags, times, downtimes)
        if asked:
            ask_rows(whole, WIDTH, np.array(asked, dtype=np.int32), now, log)
        begin = 0
        for end, moment in (*arrivals.ends, (len(slots), 0.0)):
            part = slice(begin, end)
            hear_rows(*self._specs, whole, WIDTH, slots[part], times[part], scores[part], lags[part], log)
            if end < len(slots):
                leave_rows(whole, WIDTH, slots[end : end + 1], 0.0, moment, log)
            begin = end
        every, found = np.arange(len(rows), dtype=np.int32), np.empty(len(rows))
        find_deadlines(whole, WIDTH, every, found)
        made, size = whole.tobytes(), 8 * WIDTH
        still = matrix[:, _FLAGS]
        ended = _are_open(silent) & ~_are_open(still)
        return HeardGroup(
            [made[at : at + size] for at in range(0, len(made), size)],
            [None if deadline >= NEVER else deadline for deadline in found.tolist()],
            [_noticed(slot, alarm, still[slot]) for slot, alarm in logged(log, every)] if log[0] else [],
            [(slot, SILENCES[which]) for slot, which in np.argwhere(ended).tolist()],
        )

    def _leave(self, whole: Vector, matrix: Any, downtimes: Sequence[Downtime], first: Vector, log: Vector) -> None:
        """Take out the times when nobody listened, of the rows that do not know of them yet.

        A history that is sent later has events of these times, and of times before: to these they are nothing.
        """
        for begun, ended in downtimes:
            chosen = np.flatnonzero((matrix[:, FORECASTS + FROM] < ended) & (ended <= first)).astype(np.int32)
            if len(chosen):
                leave_rows(whole, WIDTH, chosen, begun, ended, log)


def _set_back(matrix: Any, now: float) -> None:
    """Rows that count from a moment in the future, because the clock was ahead, count from now on."""
    for part in (FORECASTS, OUTCOMES):
        silence = matrix[:, part : part + SILENCE]
        late = np.flatnonzero(silence[:, FROM] > now + BEAT)
        if len(late):
            times = np.ix_(late, np.array([START, LAST, FROM, EPOCH, BEFORE, DEADLINE]))
            less = (silence[late, FROM] - now)[:, None]
            silence[times] = np.where(silence[times] < NEVER, np.maximum(silence[times] - less, 0.0), silence[times])
            silence[late, HOUR] = now // 3600.0
            silence[np.ix_(late, np.array([IN_HOUR, IN_DAY, IS_WHOLE]))] = 0.0
    matrix[:, FIRST] = np.minimum(matrix[:, FIRST], now)


def _noticed(slot: int, alarm: Alarm, flags: Vector) -> Noticed:
    """An alarm in the words of the service."""
    kind, _, which = alarm.what.partition(" ")
    if kind == "score":
        return Noticed(slot, Alarm(int(alarm.at), alarm.since, MOVED, alarm.page), which, False)
    is_over = alarm.what in SILENCES and not _is_open(alarm.what, flags)
    return Noticed(slot, Alarm(int(alarm.at), alarm.since, alarm.what, alarm.page), "", is_over)


def _are_open(flags: Vector) -> Any:
    """Which silences go on, in the order of `SILENCES`: `flags` are two open silences, and outcomes so far or -1."""
    return np.where(_IS_COUNT, flags < 0.0, flags == 1.0)


def _is_open(what: str, flags: Vector) -> bool:
    """Whether a silence goes on."""
    return bool(_are_open(flags)[SILENCES.index(what)])


# ---- the clock ------------------------------------------------------------------------------------------------------


class Deadlines:
    """The moments at which streams are to be asked, the earliest first. A moment may be stale: look at the stream."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._known: dict[int, float] = {}  # the earliest moment of each stream, by its number

    def replace(self, found: Iterable[tuple[float, int, str]]) -> None:
        """Begin anew, with what a store has."""
        self._heap = list(found)
        heapq.heapify(self._heap)
        self._known = {number: moment for moment, number, _ in self._heap}

    def set(self, number: int, name: str, moment: float) -> None:
        """A stream is to be asked then. That it is to be asked earlier already is found out when it is."""
        if moment < self._known.get(number, inf):
            self._known[number] = moment
            heapq.heappush(self._heap, (moment, number, name))

    @property
    def first(self) -> float:
        """The earliest moment."""
        return self._heap[0][0] if self._heap else inf

    def take(self, now: float, most: int) -> list[tuple[int, str]]:
        """The streams whose moment has passed, so many at most: numbers, and the names that they had."""
        found: list[tuple[int, str]] = []
        while self._heap and self._heap[0][0] < now and len(found) < most:
            moment, number, name = heapq.heappop(self._heap)
            if self._known.get(number) == moment:
                del self._known[number]
                found.append((number, name))
        return found


def due_at(deadline: float | None, now: float, *, is_history: bool) -> float:
    """When a stream is to be asked that was heard now."""
    if deadline is None:
        return inf
    return max(deadline, now + GRACE) if is_history else deadline


# ---- when nobody listened -------------------------------------------------------------------------------------------

_BEAT = "INSERT INTO meta (name, value) VALUES ('alive', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def beat(store: Any, now: float) -> None:
    """Leave a sign of life."""
    store.alone(_BEAT, (repr(now),))


def note_downtime(store: Any, begun: float, ended: float) -> None:
    """Nobody listened from then until now."""
    store.alone("INSERT INTO downtime (begun, ended) VALUES (?, ?)", (begun, ended))


def forget_downtimes(store: Any, now: float) -> None:
    """The clock was ahead: no downtime ends later than now, and each stream is asked now when it is due."""
    store.alone("DELETE FROM downtime WHERE ended > ?", (now,))
    store.alone("UPDATE stream SET deadline = ? WHERE deadline > ?", (now, now))


def downtimes(connection: Any, now: float) -> list[Downtime]:
    """The last times when nobody listened, in order."""
    rows = connection.all("SELECT begun, ended FROM downtime WHERE ended > ? ORDER BY ended", (now - REMEMBERED,))
    return [(begun, ended) for begun, ended in rows]


# ---- what is said of a stream ---------------------------------------------------------------------------------------

_SEEN = ("forecasts", "outcomes", "the score", "the delay of outcomes")  # in the order of `Notices.watching`


def readings(state: bytes) -> dict[str, Any]:
    """What the row of a stream says: its state in a word, and what is watched by now."""
    notices, slots = _one(state)
    deadline = float(notices.deadlines(slots)[0])
    return {
        "state": str(notices.words(slots)[0]),
        "watches": dict(zip(_SEEN, notices.watching(slots)[0].tolist(), strict=True)),
        "next_check": None if deadline == inf else deadline,
    }


def watch_over(notice: dict[str, Any] | None, monitor: dict[str, Any] | None, outcomes: int) -> tuple[bool, str]:
    """Whether anything could be noticed of a stream by now, and what, in words.

    >>> watch_over(None, None, 10)
    (False, 'nothing is watched: no event has come while --notice or --monitor was on')
    >>> watch_over(None, {"level": 0.0}, 0)
    (False, 'nothing can be seen yet: no outcome has come')
    >>> watches = {"forecasts": True, "outcomes": False, "the score": True, "the delay of outcomes": False}
    >>> watch_over({"watches": watches}, {"level": 0.0}, 10)
    (True, 'watched: calibration, forecasts, the score; not yet: outcomes, the delay of outcomes')
    """
    if notice is None and monitor is None:
        return False, "nothing is watched: no event has come while --notice or --monitor was on"
    parts = {} if monitor is None else {"calibration": outcomes > 0}
    parts |= {} if notice is None else notice["watches"]
    seen = [part for part, is_seen in parts.items() if is_seen]
    rest = [part for part, is_seen in parts.items() if not is_seen]
    if not seen:
        missing = "no outcome has come" if notice is None else "silence takes 8 days to learn, a score 1,024 events"
        return False, f"nothing can be seen yet: {missing}"
    return True, f"watched: {', '.join(seen)}" + (f"; not yet: {', '.join(rest)}" if rest else "")


def is_over(what: str, state: bytes | None) -> bool:
    """Whether an alarm is over, by the row of its stream, which has none where nothing is noticed any more."""
    if state is None:
        return True
    notices, slots = _one(state)
    if what in SILENCES:
        return not _is_open(what, notices.matrix[0, _FLAGS])
    return not notices.moved(slots)[0, (MOVED, LATER).index(what)]


def _one(state: bytes) -> tuple[Notices, Slots]:
    """The row of a stream as notices of one slot, and this slot."""
    notices = Notices(NoticeSettings())
    notices.resize(1)
    notices.matrix[0] = np.frombuffer(state)
    return notices, np.zeros(1, dtype=np.int32)
