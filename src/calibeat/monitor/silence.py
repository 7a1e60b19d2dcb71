"""Should something have come by now? `Silence` learns the rhythm of arrivals and knows when a silence is too long.

The row::

    24 arrivals an hour by hour of the day, 7 factors by weekday (UTC)      the rhythm
    start, last, hour, in hour, in day, hours, days, is whole               first and last arrival; what is counted
    old, new, old count, new count, epoch, before                           the longest silences of two epochs
    line, deadline, open, alarms                                            when it is too long; whether it is
    from, missed                                                            where it counts from; what came before

Times are seconds since 1970. A silence is measured in arrivals that were expected: an hour at night counts little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, shown
from calibeat._util.times import check_age
from calibeat._util.types import Vector
from calibeat.core.algebra import ln
from calibeat.core.subset import entry, kernel, large_kernel
from calibeat.errors import InvalidInput

from .bets import Alarm
from .detector import KEPT, Detector, check_sound

# ---- the row -------------------------------------------------------------------------------------------------------
HOURS, DAYS = 0, 24
START, LAST, HOUR, IN_HOUR, IN_DAY, HOUR_COUNT, DAY_COUNT, IS_WHOLE = range(31, 39)
OLD, NEW, OLD_COUNT, NEW_COUNT, EPOCH, BEFORE, LINE, DEADLINE, OPEN, ALARMS, FROM, MISSED = range(39, 51)
WIDTH = 51

HOUR_LONG, DAY_LONG = 3600.0, 86400.0
FLOOR = 0.05  # of the rate is spread over all hours
DAYS_KEPT, WEEKS_KEPT = 28, 8
LONGEST_EPOCH, LIVE, SAFETY, FEW, LEARN = 180.0 * DAY_LONG, 8.0 * DAY_LONG, 3.0, 8.0, 1.25
LONGEST = 56 * 24  # hours: a longer silence teaches nothing
SAME = 1.0  # seconds: arrivals closer than this are one
NONE, NEVER = -1.0, 1e300
LATEST = 1e11  # the largest time, in the year 5138


@dataclass(frozen=True)
class SilenceSettings:
    """The parameters of `Silence`, in seconds."""

    every: float = 3650.0 * DAY_LONG

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_every(self.every))

    def initial_row(self) -> Vector:
        """The row before the first arrival."""
        row = np.zeros(WIDTH)
        row[DAYS : DAYS + 7] = 1.0
        row[START], row[LAST], row[DEADLINE] = NONE, NONE, NEVER
        return row

    def check_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """Raise unless a silence with these settings can hold each of the rows."""
        if rows.ndim != 2 or rows.shape[1] != WIDTH:
            raise InvalidInput(f"row must have {WIDTH} numbers, got {rows.shape[-1]}")
        counts = rows[:, [HOUR, IN_HOUR, IN_DAY, HOUR_COUNT, DAY_COUNT, OLD_COUNT, NEW_COUNT, ALARMS]]
        flags, times = rows[:, [IS_WHOLE, OPEN]], rows[:, [START, LAST]]
        check_sound(
            "silence",
            rows,
            {
                "finite numbers": np.isfinite(rows).all(axis=1),
                "a rhythm that is not negative": (rows[:, :START] >= 0.0).all(axis=1),
                "counts that are whole numbers": (
                    (counts >= 0.0) & (counts <= 2.0**53) & (counts == np.floor(counts))
                ).all(axis=1),
                "flags of 0 or 1": ((flags == 0.0) | (flags == 1.0)).all(axis=1),
                "times since 1970": ((times == NONE) | ((times >= 0.0) & (times <= LATEST))).all(axis=1),
                "silences that are not negative": (rows[:, [OLD, NEW, LINE, DEADLINE, MISSED]] >= 0.0).all(axis=1),
            },
        )


def check_every(every: Any) -> float:
    """A time between alarms, in seconds: a number of them, a timedelta, or text such as "10y"."""
    if isinstance(every, (int, float, np.floating, np.integer)) and not isinstance(every, bool):
        return check_interval("every", every, 1.0, LATEST)
    age, is_time = check_age("every", every)
    if not is_time:
        raise InvalidInput(f"every must be a time such as '10y', got {every!r:.40}")
    return check_interval("every", age / 1e6, 1.0, LATEST)


def check_time(what: str, time: Any) -> float:
    """Seconds since 1970."""
    return check_interval(what, time, 0.0, LATEST)


# ---- kernels -------------------------------------------------------------------------------------------------------


@kernel
def mean_rate(row: Vector) -> float:
    """What is expected at any hour, however quiet it is: 5 % of the mean."""
    total = 0.0
    for h in range(24):
        total += row[HOURS + h]
    return FLOOR * total / 24.0


@kernel
def rate(row: Vector, hour: int, least: float) -> float:
    """Expected arrivals a second in an hour since 1970."""
    return ((1.0 - FLOOR) * row[HOURS + hour % 24] * row[DAYS + (hour // 24 + 3) % 7] + least) / HOUR_LONG


@kernel
def expected(row: Vector, a: float, b: float) -> float:
    """Expected arrivals from a to b."""
    x, t, least = 0.0, a, mean_rate(row)
    for _ in range(LONGEST):
        if t >= b:
            break
        hour = int(t / HOUR_LONG)
        e = min(b, (hour + 1) * HOUR_LONG)
        x += rate(row, hour, least) * (e - t)
        t = e
    return x


@kernel
def moment_of(row: Vector, a: float, target: float) -> float:
    """When so many arrivals after a are expected, at most 56 days later."""
    x, t, least = 0.0, a, mean_rate(row)
    for _ in range(LONGEST):
        hour = int(t / HOUR_LONG)
        e, r = (hour + 1) * HOUR_LONG, rate(row, hour, least)
        if r > 0.0 and x + r * (e - t) >= target:
            return t + (target - x) / r
        x += r * (e - t)
        t = e
    return a + LONGEST * HOUR_LONG if target > 0.0 else NEVER


@kernel
def ring(row: Vector, now: float) -> bool:
    """Whether a silence is too long now that was not before."""
    if row[OPEN] == 1.0 or not now > row[DEADLINE]:
        return False
    row[OPEN] = 1.0
    row[ALARMS] += 1.0
    return True


@large_kernel
def learn_hours(row: Vector, until: int) -> None:
    """The hours before `until` have ended: how many arrivals each had."""
    while int(row[HOUR]) < until:
        hour = int(row[HOUR])
        h = hour % 24
        row[HOURS + h] += (row[IN_HOUR] - row[HOURS + h]) / min(int(row[HOUR_COUNT]) // 24 + 1, DAYS_KEPT)
        row[HOUR_COUNT] += 1.0
        row[IN_HOUR] = 0.0
        if h == 23:
            total, d = 0.0, DAYS + (hour // 24 + 3) % 7
            for i in range(24):
                total += row[HOURS + i]
            if row[IS_WHOLE] == 1.0 and total > 0.0:
                row[d] += (min(row[IN_DAY] / total, 7.0) - row[d]) / min(int(row[DAY_COUNT]) // 7 + 2, WEEKS_KEPT)
                row[DAY_COUNT] += 1.0
            row[IS_WHOLE] = 1.0
            row[IN_DAY] = 0.0
        row[HOUR] += 1.0


@kernel
def skip_hours(row: Vector, until: int) -> None:
    """Hours that teach nothing, and neither does their day."""
    row[HOUR] = until
    row[IN_HOUR] = 0.0
    row[IN_DAY] = 0.0
    row[IS_WHOLE] = 0.0


@kernel
def arrive(every: float, row: Vector, t: float) -> None:
    """Something came at t. The caller has asked `ring` before."""
    hour = int(t / HOUR_LONG)
    if row[LAST] == NONE:
        row[START] = row[LAST] = row[EPOCH] = row[BEFORE] = row[FROM] = t
        row[HOUR] = hour
        row[IN_HOUR] = 1.0
        row[IN_DAY] = 1.0
        return
    if t - row[LAST] < SAME:
        return
    odd = row[OPEN] == 1.0 or hour - int(row[HOUR]) > LONGEST
    # 1. How long was it silent, in arrivals that were expected.
    x = row[MISSED] + expected(row, row[FROM], t)
    if odd:
        x = min(x, LEARN * row[LINE])
    if mean_rate(row) > 0.0:
        row[NEW] = max(row[NEW], x)
        row[NEW_COUNT] += 1.0
    # 2. The rhythm; a fault teaches nothing.
    if odd and hour > int(row[HOUR]):
        skip_hours(row, hour)
    learn_hours(row, hour)
    row[IN_HOUR] += 1.0
    row[IN_DAY] += 1.0
    row[LAST] = row[FROM] = t
    row[MISSED] = row[OPEN] = 0.0
    # 3. Epochs.
    age = t - row[START]
    if t - row[EPOCH] >= min(LONGEST_EPOCH, max(7.0 * DAY_LONG, age / 2.0)) and row[NEW_COUNT] >= FEW:
        row[OLD] = row[NEW]
        row[OLD_COUNT] = row[NEW_COUNT]
        row[NEW] = row[NEW_COUNT] = 0.0
        row[BEFORE] = row[EPOCH]
        row[EPOCH] = t
    # 4. The line, and the moment at which it would be crossed.
    n, r = row[OLD_COUNT] + row[NEW_COUNT], max(row[OLD], row[NEW])
    row[LINE] = r
    row[DEADLINE] = NEVER
    if age >= LIVE and n >= FEW and r > 0.0:
        y = SAFETY * max(every * n / max(t - row[BEFORE], 1.0), n)
        row[LINE] = r * ln(y + math.e) / ln(n + math.e)
        row[DEADLINE] = moment_of(row, t, row[LINE])


@large_kernel
def leave(row: Vector, a: float, b: float) -> None:
    """Nobody listened from a to b: that is no silence, and its hours teach nothing. The caller has asked `ring` at a.

    An hour of which only a part was missed counts as it is. Ages and epochs go on at b as if it were a.
    """
    if row[LAST] == NONE:
        return
    a = max(a, row[FROM])
    if b <= a:
        return
    if row[OPEN] == 0.0:
        row[MISSED] += expected(row, row[FROM], a)
        row[FROM] = b
        if row[DEADLINE] < NEVER:
            row[DEADLINE] = moment_of(row, b, max(row[LINE] - row[MISSED], 0.0))
        first, last = int(a / HOUR_LONG), int(b / HOUR_LONG)
        if first * HOUR_LONG < a:
            first += 1
        if first < last and int(row[HOUR]) < last:
            learn_hours(row, first)
            skip_hours(row, last)
    else:
        row[FROM] = b  # so that the same downtime again changes nothing
    row[START] += b - a
    row[EPOCH] += b - a
    row[BEFORE] += b - a


@entry
def read_arrivals(every: float, row: Vector, times: Vector, first: int) -> int:
    """Read arrivals from `first` on, up to one that finds a silence too long -> its position, or the length.

    That one is not read yet.
    """
    n = len(times)
    for i in range(first, n):
        if times[i] - row[LAST] >= SAME and ring(row, times[i]):
            return i
        arrive(every, row, times[i])
    return n


@entry
def ring_now(row: Vector, now: float) -> bool:
    """Whether a silence is too long now that was not before."""
    return ring(row, now)


@entry
def leave_from(row: Vector, a: float, b: float) -> None:
    """As `leave`."""
    leave(row, a, b)


# ---- one stream ----------------------------------------------------------------------------------------------------


class Silence(Detector):
    r"""Learns how often something comes, by hour and weekday, and raises an alarm when it should have come by now.

    It is asked by a clock: `check(now)`. The moment from which the answer is yes is known at each arrival, `deadline`,
    so nothing needs to be polled. docs/explanation/notice.md says what is proved and where it fails (holidays).

    Parameters
    ----------
    every : about one false alarm in so long, if silences have no heavier tail than exponential: text such as ``"10y"``,
        a timedelta, or seconds.

    Raises
    ------
    InvalidInput : `every` is no time.

    >>> from calibeat import Silence
    >>> silence = Silence()
    >>> for number in range(24 * 30):                    # one each hour, for a month
    ...     alarm = silence.arrive(1_700_000_000 + 3600 * number)
    >>> hours = (silence.deadline - silence.last) / 3600
    >>> round(hours, 1), silence.check(silence.last + 3600)
    (2.1, None)
    >>> alarm = silence.check(silence.last + 5 * 3600)   # nothing has come: once for each silence
    >>> alarm.what, (alarm.at, alarm.since) == (silence.deadline, silence.last), silence.is_open
    ('silent', True, True)

    Times are seconds since 1970, in UTC. Several threads may use one. `to_json`, copies and pickles continue with the
    same bits.
    """

    KIND = "calibeat/silence"
    SETTINGS = SilenceSettings

    def __init__(self, every: Any = "10y") -> None:
        self._begin(SilenceSettings(every))

    def arrive(self, time: float) -> Alarm | None:
        """Something came -> the alarm, if the silence before it was too long and nobody has asked.

        Arrivals less than a second apart are one; a time before the last arrival is taken as that of the last.

        Raises
        ------
        InvalidInput : the time is not in [0, 1e11] seconds since 1970.
        """
        raised = self.run([time])
        return raised[0] if raised else None

    def run(self, times: npt.ArrayLike) -> list[Alarm]:
        """Many arrivals; the same bits as one by one -> the alarms raised.

        Raises
        ------
        InvalidInput : a time is not in [0, 1e11]. No arrival is read then.
        """
        column = check_times(times)
        with self._lock:
            row, raised, first = self._row.copy(), list[Alarm](), 0
            while first < len(column):
                alarms = row[ALARMS]
                first = read_arrivals(self.settings.every, row, column, first)
                if row[ALARMS] > alarms:
                    raised.append(_alarm(row))
            self._row, self._alarms = row, [*self._alarms, *raised][-KEPT:]
            return raised

    def check(self, now: float) -> Alarm | None:
        """Ask the clock -> the alarm, once for each silence: at = the deadline, since = the last arrival.

        Raises
        ------
        InvalidInput : the time is not in [0, 1e11].
        """
        now = check_time("now", now)
        with self._lock:
            row = self._row.copy()
            if not ring_now(row, now):
                return None
            alarm = _alarm(row)
            self._row, self._alarms = row, [*self._alarms, alarm][-KEPT:]
            return alarm

    def away(self, a: float, b: float) -> Alarm | None:
        """Say that nobody listened from a to b: it is no silence -> the alarm, if there was one before a.

        The hours in between teach nothing, and ages go on at b as if it were a. The same downtime may be said again.

        Raises
        ------
        InvalidInput : a or b is not in [0, 1e11], or b is before a.

        >>> from calibeat import Silence
        >>> silence = Silence()
        >>> alarms = silence.run([1_700_000_000 + 3600 * number for number in range(24 * 30)])
        >>> before = silence.deadline
        >>> silence.away(silence.last + 600, silence.last + 86_400 + 600)
        >>> round((silence.deadline - before) / 3600, 2)
        24.0
        """
        a, b = check_away(a, b)
        alarm = self.check(a)
        with self._lock:
            row = self._row.copy()
            leave_from(row, a, b)
            self._row = row
        return alarm

    @property
    def deadline(self) -> float:
        """The moment from which `check` says that it is too long; infinity while it is not known."""
        return seconds_of(self._row[DEADLINE])

    @property
    def last(self) -> float | None:
        """The last arrival."""
        last = float(self._row[LAST])
        return None if last == NONE else last

    @property
    def is_open(self) -> bool:
        """Whether it is silent now, for too long."""
        return bool(self._row[OPEN])

    @property
    def count(self) -> int:
        """How many alarms were raised ever."""
        return int(self._row[ALARMS])

    def __repr__(self) -> str:
        return f"Silence(every={self.settings.every / DAY_LONG:g} days, alarms={self.count}, open={self.is_open})"


def _alarm(row: Vector) -> Alarm:
    return Alarm(float(row[DEADLINE]), float(row[LAST]), "silent", True)


def seconds_of(deadline: Any) -> float:
    """A deadline as people know it."""
    return math.inf if deadline >= NEVER else float(deadline)


def check_away(a: Any, b: Any) -> tuple[float, float]:
    """From when to when nobody listened."""
    a, b = check_time("away from", a), check_time("away to", b)
    if b < a:
        raise InvalidInput(f"away must end after it began, got {a!r} to {b!r}")
    return a, b


def check_times(times: Any) -> Vector:
    """A column of seconds since 1970."""
    try:
        column = np.array(times, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"times must be seconds since 1970, got {shown(times)}") from None
    if column.ndim != 1:
        raise InvalidInput(f"times must be a column, got {column.ndim} dimensions")
    bad = ~((column >= 0.0) & (column <= LATEST))
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"time must be in [0, 1e11] seconds since 1970, got {column[row].item()!r} - at row {row}")
    return column
