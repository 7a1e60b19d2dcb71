"""Alarms as people deal with them: one message for one cause, open or over, acknowledged, muted.

A monitor raises alarms; `calibeat.service.engine` stores them. An alarm is open until its stream has read as many
outcomes without another alarm as the monitor calls quiet. `AlarmKeeper` notes when that was.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from calibeat._util.check import check_interval
from calibeat._util.words import counted, visible
from calibeat.monitor.bets import ALARM_AT, ALARMS, N, Settings

from . import notices
from .patterns import check_pattern, condition
from .shape import Shape
from .store import open_connection, open_reader
from .store.queries import AlarmRow, Reader
from .store.types import END_ALARMS
from .watch import NOTICED, RAW_SCORE, SEGMENT

log = logging.getLogger("calibeat.service")
QUIET = Settings(1e6).quiet  # outcomes without an alarm after which an episode is over
TOGETHER = 60.0  # seconds: alarms that are raised within them are one message
CLOSE_SECONDS = 5.0  # seconds from one look for episodes that are over to the next
CLOSED_AT_ONCE = 1000
SEGMENT_SECONDS = 60.0  # seconds from one look at the segments to the next
ALPHA = 0.05  # the chance that a segment of a stream is ever named by luck
_SHAPED = (
    "SELECT s.number, s.name, s.outcomes, f.text FROM stream s JOIN shape f ON f.stream = s.number WHERE s.events > 0"
)
_IS_OPEN_SEGMENT = f"stream = ? AND part = {SEGMENT} AND ended IS NULL"
_OPEN_SEGMENTS = f"SELECT detail FROM alarm WHERE {_IS_OPEN_SEGMENT}"  # noqa: S608 - our own condition
_END_SEGMENT = f"UPDATE alarm SET ended = ? WHERE {_IS_OPEN_SEGMENT} AND detail = ?"  # noqa: S608
_NAME_SEGMENT = (
    "INSERT INTO alarm (stream, time, at, since, what, page, part, detail) "  # noqa: S608 - our own text
    f"VALUES (?, ?, ?, ?, ?, 0, {SEGMENT}, ?)"
)
LONGEST_MUTE = 366 * 86_400.0
FORECASTS = "forecasts "
NAMED = 3  # streams that a message names
_OPEN = (
    "SELECT DISTINCT a.stream, a.what, a.part, b.monitor, b.notice "  # noqa: S608 - our own text
    "FROM alarm a JOIN body b ON b.stream = a.stream "
    f"WHERE a.ended IS NULL AND a.part <> {SEGMENT}"
)
# What to look at first, by the beginning of what a monitor says.
LOOK_FIRST = {
    "too low from": "events of that region since then",
    "too high from": "events of that region since then",
    "too low": "the rate of outcomes by segment",
    "too high": "the pipeline of outcomes: some may be lost",
    "too sure": "the inputs of the model; then train it again",
    "not sure enough": "whether the model was trained again since then",
    notices.NO_FORECASTS: "whoever asks for them, and at the calendar",
    notices.NO_OUTCOMES: "the pipeline of outcomes",
    notices.LATER: "the pipeline of outcomes",
    notices.NEVER_AN_OUTCOME: "whether anybody sends outcomes under these names",
    notices.MOVED: "the unit, the version and the inputs of the model",
}


@dataclass(frozen=True)
class AlarmGroup:
    """Alarms that were raised within a minute: one cause, as far as anybody can tell.

    `ended` is when the last of them was over, and null as long as one is open.
    """

    numbers: list[int]
    streams: int
    page: bool
    time: float
    since_time: float | None
    ended: float | None
    acknowledged: bool
    text: str


@dataclass(frozen=True)
class Mute:
    """Streams whose alarms are sent to nobody. They are stored and shown all the same."""

    streams: str
    until: float | None
    created: float


# ---- one message for one cause --------------------------------------------------------------------------------------


def grouped(alarms: Iterable[AlarmRow]) -> list[AlarmGroup]:
    """Alarms as groups, the newest first; pages and follow-ups apart."""
    groups: list[list[AlarmRow]] = []
    latest: dict[bool, list[AlarmRow]] = {}
    for alarm in sorted(alarms, key=lambda alarm: (alarm.time, alarm.number)):
        group = latest.get(alarm.page)
        if group is None or alarm.time - group[0].time > TOGETHER:
            group = latest[alarm.page] = []
            groups.append(group)
        group.append(alarm)
    return [group_of(group) for group in reversed(groups)]


def group_of(alarms: Sequence[AlarmRow]) -> AlarmGroup:
    """Some alarms as one."""
    starts = [alarm.since_time for alarm in alarms if alarm.since_time is not None]
    ends = [alarm.ended for alarm in alarms if alarm.ended is not None]
    ended = max(ends) if len(ends) == len(alarms) else None
    return AlarmGroup(
        numbers=[alarm.number for alarm in alarms],
        streams=len({alarm.stream for alarm in alarms}),
        page=any(alarm.page for alarm in alarms),
        time=min(alarm.time for alarm in alarms),
        since_time=min(starts, default=None),
        ended=ended,
        acknowledged=all(alarm.acknowledged is not None for alarm in alarms),
        text=sentence(alarms, min(starts, default=None), ended),
    )


def sentence(alarms: Sequence[AlarmRow], since_time: float | None, ended: float | None) -> str:
    """What has happened, for a person who was just woken up.

    >>> alarm = AlarmRow(70, 40.0, "too sure", True, 1, "paris", 1.5, None)
    >>> sentence([alarm], 1_790_000_000.0, None)  # doctest: +ELLIPSIS
    'paris: forecasts too sure, since about 2026-09-21 14:13 UTC. Look first at the inputs of the model; then ...'
    >>> silent = AlarmRow(1, 1.0, "no forecasts", True, 3, "rome", 1.5, part=NOTICED)
    >>> sentence([silent], 1_790_000_000.0, None)
    'rome: no forecasts, since about 2026-09-21 14:13 UTC. Look first at whoever asks for them, and at the calendar.'
    >>> sentence([alarm, AlarmRow(70, 40.0, "too low", True, 2, "rome", 1.5, None)], None, 1_790_000_000.0)
    'over since 2026-09-21 14:13 UTC: 2 streams, paris, rome: forecasts too sure in 1, too low in 1.'
    """
    streams = list(dict.fromkeys(visible(alarm.stream) for alarm in alarms))
    kinds = Counter(map(in_words, alarms)).most_common()
    more = len(streams) - NAMED
    names = ", ".join(streams[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
    where = names if len(streams) == 1 else f"{counted(len(streams), 'stream')}, {names}"
    what = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{kind} in {count:,}" for kind, count in kinds[:NAMED])
    if what.startswith(FORECASTS):
        what = FORECASTS + what.replace(FORECASTS, "")  # once is enough
    since = f", since about {_moment(since_time)}" if since_time is not None and ended is None else ""
    upstream = next((f" ({alarm.detail})" for alarm in alarms if (alarm.detail or "").startswith("upstream")), "")
    text = f"{where}: {what}{upstream}{since}."
    if ended is not None:
        return f"over since {_moment(ended)}: {text}"
    first = max(alarms, key=lambda alarm: kinds[0][0] == in_words(alarm)).what.removeprefix(RAW_SCORE)
    look = next((words for kind, words in LOOK_FIRST.items() if first.startswith(kind)), None)
    return f"{text} Look first at {look}." if look else text


def in_words(alarm: AlarmRow) -> str:
    """What an alarm says, in some words."""
    if alarm.part != NOTICED:
        what = alarm.what if alarm.what.startswith(RAW_SCORE) else f"{FORECASTS}{alarm.what}"
        return f"{what} {'in' if alarm.part == SEGMENT else 'of'} {alarm.detail}" if alarm.detail else what
    return f"{alarm.what} ({alarm.detail})" if alarm.what == notices.MOVED and alarm.detail else alarm.what


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def page_of(base: str, streams: Sequence[str]) -> str:
    """The address of the dashboard's screen of a stream, or of its list.

    >>> page_of("https://calibration.example/", ["paris/orly"])
    'https://calibration.example/#/stream/paris%2Forly'
    """
    where = f"stream/{quote(streams[0], safe='')}" if len(streams) == 1 else ""
    return f"{base.rstrip('/')}/#/{where}"


# ---- what people do with them: in a transaction of the caller --------------------------------------------------------


def acknowledge(connection: Any, streams: str, who: str | None) -> int:
    """Somebody looks after the open alarms of some streams: their follow-ups are not sent -> how many there were.

    Raises
    ------
    InvalidInput : `streams` is no pattern.
    """
    where, arguments = condition("s.name", [check_pattern(streams)])
    return int(
        connection.run(
            "UPDATE alarm SET acknowledged = ?, acknowledged_by = ? WHERE ended IS NULL AND acknowledged IS NULL "  # noqa: S608
            f"AND stream IN (SELECT s.number FROM stream s WHERE {where})",
            (time.time(), who, *arguments),
        )
    )


def mute(connection: Any, streams: str, seconds: float | None) -> Mute:
    """Send no alarms of some streams, for so many seconds or until `unmute`.

    Raises
    ------
    InvalidInput : `streams` is no pattern, or the time is none.
    """
    check_pattern(streams)
    if seconds is not None:
        check_interval("seconds", seconds, 1.0, LONGEST_MUTE)
    now = time.time()
    made = Mute(streams, None if seconds is None else now + seconds, now)
    connection.run(
        "INSERT INTO mute (streams, until, created) VALUES (?, ?, ?) "
        "ON CONFLICT (streams) DO UPDATE SET until = excluded.until, created = excluded.created",
        (made.streams, made.until, made.created),
    )
    return made


def unmute(connection: Any, streams: str) -> bool:
    """Send alarms again -> whether these streams were muted."""
    return bool(connection.run("DELETE FROM mute WHERE streams = ?", (streams,)))


def mutes(select: Callable[[str, Any], list[tuple[Any, ...]]]) -> list[Mute]:
    """What is muted now."""
    statement = "SELECT streams, until, created FROM mute WHERE until IS NULL OR until > ? ORDER BY streams"
    rows = select(statement, (time.time(),))
    return [Mute(*row) for row in rows]


# ---- open or over ---------------------------------------------------------------------------------------------------


def is_quiet(monitor: bytes | None, part: int = 0) -> bool:
    """Whether the episode of a stream is over, by the bytes of its monitors, of which one is asked.

    One that is not watched has none. One that was reset has raised no alarm.
    """
    width = Settings(1e6).width + 1  # behind a row is a whole number
    row = np.frombuffer(monitor or b"")[part * width : (part + 1) * width][:-1]
    if not len(row):
        return True
    return bool(row[ALARMS] == 0.0 or row[N] - row[ALARM_AT] > QUIET)


def close_quiet(connection: Any) -> int:
    """Note of the alarms that are over that they are -> how many there were."""
    over = []
    for number, what, part, *states in connection.all(f"{_OPEN} LIMIT {CLOSED_AT_ONCE}"):
        monitor, notice = (None if state is None else bytes(state) for state in states)
        if notices.is_over(what, notice) if part == NOTICED else is_quiet(monitor, part):
            over.append((time.time(), number, what, part))
    for ended in over:
        connection.run(f"{END_ALARMS} AND part = ?", ended)
    return len(over)


# ---- segments: the evidence is in the table of the groups, and needs no monitor --------------------------------------


class SegmentWatch:
    """Names segments whose forecasts are wrong: of a stream with M segments those with an e-value of M / ALPHA.

    Each e-value ever gets there by luck with a chance of ALPHA / M at most. It is evidence since the segment began, so
    an alarm says when it was found, not since when. It is over when the evidence is below the line again.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # outcomes of a stream at the last look

    def look(self, reader: Reader, connection: Any) -> None:
        """Look at the streams with groups that have learnt since the last time, if monitors are on."""
        if reader.meta().get("monitor", "null") == "null":
            return
        for number, name, outcomes, text in reader.select(_SHAPED, ()):
            if self._seen.get(number) != outcomes:
                self._seen[number] = outcomes
                if Shape.from_text(text).groups is not None:
                    self._look_at(reader, connection, number, name, outcomes)

    def _look_at(self, reader: Reader, connection: Any, number: int, name: str, outcomes: int) -> None:
        found = reader.segments(name) or []
        line = math.log(max(1, len(found)) / ALPHA)
        wrong = {
            f"{each.attribute} = {_of_pair(each.value)}": "too low" if each.rate > each.mean_forecast else "too high"
            for each in found
            if each.log_e >= line
        }
        known = {detail for (detail,) in connection.all(_OPEN_SEGMENTS, (number,))}
        now = time.time()
        for detail in wrong.keys() - known:
            connection.run(_NAME_SEGMENT, (number, now, outcomes, float(outcomes), wrong[detail], detail))
        for detail in known - wrong.keys():
            connection.run(_END_SEGMENT, (now, number, detail))


def _of_pair(value: Any) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class AlarmKeeper:
    """A thread that notes which alarms are over, and names segments that are wrong."""

    def __init__(self, store: str, seconds: float = CLOSE_SECONDS, segment_seconds: float = SEGMENT_SECONDS) -> None:
        self._store, self._seconds = store, seconds
        self._segments, self._every, self._next = SegmentWatch(), segment_seconds, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-alarms", daemon=True)

    def start(self) -> None:
        """Look every few seconds."""
        self._thread.start()

    def stop(self) -> None:
        """Wait for the thread's end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            with suppress(Exception), closing(open_connection(self._store, write=True)) as connection:  # later again
                close_quiet(connection)
                if time.monotonic() >= self._next:
                    self._next = time.monotonic() + self._every
                    with closing(open_reader(self._store)) as reader:
                        self._segments.look(reader, connection)
