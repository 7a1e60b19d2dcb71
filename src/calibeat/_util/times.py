"""Times of any kind as microseconds since 1970: dates with and without a zone, ISO 8601 text, numbers of a unit.

A date that has no zone is taken for UTC unless a zone is named. Numbers since 1970 count in UTC by definition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from calibeat.errors import InvalidInput

from .check import check_whole
from .types import Flags, Ints, Vector

OK, MISSING, UNREADABLE = 0, 1, 2
States = npt.NDArray[np.int8]

NEVER = np.iinfo(np.int64).max
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
SECONDS = "seconds"
_UNITS = (SECONDS, "seconds since 1970", "milliseconds since 1970", "microseconds since 1970", "nanoseconds since 1970")
_MICROSECONDS = dict(zip(_UNITS, (1e6, 1e6, 1e3, 1.0, 1e-3), strict=True))
_DAYS, _MOMENTS = "dates written as YYYYMMDD", "dates written as YYYYMMDDHHMMSS"
# The years 1990 to 2100 in each unit since 1970. No two overlap: a column with numbers in two of them has two units.
_RECENT = {unit: (631_152_000e6 / size, 4_102_444_800e6 / size) for unit, size in list(_MICROSECONDS.items())[1:]}
_ANY = "any"  # numbers that are recent times in no unit
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUARTER = 900_000_000  # microseconds: within a quarter of an hour no zone changes its offset


_SECOND = 1_000_000
_DURATIONS = {
    "us": 1,
    "ms": 1_000,
    "s": _SECOND,
    "min": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
    "y": 365 * 86_400 * _SECOND,
}
LONGEST = 365_250 * _DURATIONS["d"]  # age, in microseconds


class ZoneMismatch(InvalidInput):
    """One column of times has zones and the other has none."""


class UnitMismatch(InvalidInput):
    """The numbers of one column of times are of two units."""


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times: microseconds since 1970 where it has dates, numbers of an unknown unit where not.

    `naive` says which dates have no zone: a flag for each row, or one for all.
    """

    values: Ints | Vector
    states: States
    dated: bool
    naive: Flags | bool = True


@dataclass(frozen=True, eq=False)
class Moments:
    """A column of times in microseconds, `NEVER` where there is none.

    `twice` are the rows in an hour that came twice, because a clock was set back; None: it is not known.
    """

    values: Ints
    states: States
    twice: Flags | None = None


# ---- one value ---------------------------------------------------------------------------------------------------


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, the NA of pandas, or empty text.

    >>> is_missing(" "), is_missing(float("nan")), is_missing(0)
    (True, True, False)
    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def moment(value: Any) -> tuple[int, bool] | None:
    """A date as microseconds since 1970, and whether it has no zone; None for what is no date.

    >>> moment("1970-01-01T01:00:00+01:00"), moment("1970-01-01 00:00:01"), moment("soon")
    ((0, False), (1000000, True), None)
    """
    if not isinstance(value, datetime):
        try:
            value = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
    naive = value.tzinfo is None
    since = (value.replace(tzinfo=UTC) if naive else value) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, naive


def zone_named(name: Any) -> tzinfo:
    """A time zone: ``"UTC"``, an offset such as ``"+02:00"``, or a name such as ``"Europe/Paris"``.

    >>> zone_named("+02:00").utcoffset(None)
    datetime.timedelta(seconds=7200)
    """
    text = str(name).strip()
    if text.upper() in {"UTC", "Z", "GMT"}:
        return UTC
    if match := re.fullmatch(r"([+-])(\d\d):?(\d\d)", text):
        shift = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if shift < timedelta(days=1):
            return timezone(-shift if match[1] == "-" else shift)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            f"time zone must be UTC, an offset such as +02:00, or a name such as Europe/Paris, got {name!r:.60}"
        ) from None


def check_age(what: str, age: Any) -> tuple[int, bool]:
    """A number of events, or a time in microseconds; and whether it is the latter.

    >>> check_age("delay", "2h"), check_age("delay", "100"), check_age("delay", timedelta(seconds=1))
    ((7200000000, True), (100, False), (1000000, True))
    """
    if isinstance(age, np.timedelta64):
        if np.isnat(age) or _is_too_long(age):
            raise InvalidInput(f"{what} must be a time from 0 to 1,000 years, got {age!r}")
        age = age.astype("timedelta64[us]").item()
    if isinstance(age, timedelta):
        if not timedelta(0) <= age <= timedelta(microseconds=LONGEST):
            raise InvalidInput(f"{what} must be a time from 0 to 1,000 years, got {age!r}")
        return age // timedelta(microseconds=1), True
    if not isinstance(age, str):
        return check_whole(what, age, 0, 10**15), False
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", age.lower())
    if match and not match[2] and "." not in match[1]:
        return check_whole(what, int(match[1]), 0, 10**15), False
    if match and match[2] in _DURATIONS:
        microseconds = float(match[1]) * _DURATIONS[match[2]]
        if microseconds > LONGEST:
            raise InvalidInput(f"{what} must be 1,000 years at most, got {age!r}")
        return int(microseconds), True
    raise InvalidInput(f"{what} must be a number of events or a time such as 30s, 30min, 2h or 7d, got {age!r}")


def _is_too_long(age: np.timedelta64) -> bool:
    """Whether a time is so long, or so negative, that it may not fit in microseconds."""
    if np.datetime_data(age.dtype)[0] in {"ns", "ps", "fs", "as"}:  # 300 years at most
        return False
    longest = np.timedelta64(LONGEST, "us").astype(age.dtype)
    return abs(int(age.astype(np.int64))) > int(longest.astype(np.int64))


def duration_named(microseconds: int) -> str:
    """A time as a person types it, in the largest unit that leaves a whole number.

    >>> duration_named(7 * 86_400_000_000), duration_named(90 * 60_000_000)
    ('7d', '90min')
    """
    unit = next(name for name in ("d", "h", "min", "s", "ms", "us") if microseconds % _DURATIONS[name] == 0)
    return f"{microseconds // _DURATIONS[unit]}{unit}"


# ---- a column ----------------------------------------------------------------------------------------------------


def read_dates(values: list[Any]) -> Times:
    """Dates, date objects or ISO 8601 text, one by one."""
    whole, states = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.int8)
    naive = np.zeros(len(values), dtype=bool)
    for row, value in enumerate(values):
        if is_missing(value):
            states[row] = MISSING
        elif (found := moment(value)) is not None:
            whole[row], naive[row] = found
        else:
            states[row] = UNREADABLE
    return Times(whole, states, dated=True, naive=naive)


def read_times(column: npt.NDArray[Any], *, zoned: bool = False) -> Times:
    """Times in any array: NumPy's dates (`zoned` if they are known to be UTC), numbers, date objects or text.

    Text that is all numbers is read as numbers, as in a CSV.

    >>> read_times(np.array(["1700000000", "1700000060"])).dated
    False
    """
    if column.dtype.kind == "M":
        return _numpy_dates(column, zoned=zoned)
    if column.dtype.kind in "iuf":
        values = column.astype(np.float64)
        return Times(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8), dated=False)
    listed = column.tolist()
    return _numbers_of_text(listed) or read_dates(listed)


def _numbers_of_text(values: list[Any]) -> Times | None:
    """The values as numbers, if there is one and all that are there are numbers."""
    numbers, states = np.zeros(len(values)), np.zeros(len(values), dtype=np.int8)
    for row, value in enumerate(values):
        if is_missing(value):
            states[row] = MISSING
            continue
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            return None
        try:
            numbers[row] = float(value)
        except (ValueError, OverflowError):
            return None
    return Times(numbers, states, dated=False) if (states == OK).any() else None


def _numpy_dates(column: npt.NDArray[Any], *, zoned: bool) -> Times:
    years = column.astype("datetime64[Y]").astype(np.int64) + 1970  # microseconds overflow where years do not
    missing, far = np.isnat(column), (years < 1) | (years > 9999)
    whole = np.where(far, np.datetime64(0, "us"), column.astype("datetime64[us]")).astype(np.int64)
    states = np.where(missing, MISSING, np.where(far, UNREADABLE, OK)).astype(np.int8)
    return Times(whole, states, dated=True, naive=not zoned)


@dataclass(eq=False)
class Clock:
    """The units and zones of the columns of times. The first batch that has a number in a column settles its unit.

    `zone` is that of dates without one. `how` tells a person how to state it.
    """

    zone: tzinfo | None = None
    how: str = "say --time-zone NAME"
    dated: bool = False  # whether the times of the events are dates
    units: dict[str, str] = field(default_factory=dict)
    _zoned: dict[str, set[bool]] = field(default_factory=dict)  # by role: dates with a zone, dates without, or both
    _recent: dict[str, str] = field(default_factory=dict)  # by role: the unit in which its numbers are recent times
    _twice: int = 0  # dates of hours that came twice

    @property
    def notes(self) -> list[str]:
        """How the columns were read."""
        numbers = [
            f"The column of {role}s holds numbers. They were read as {unit}." for role, unit in self.units.items()
        ]
        if self._twice:
            numbers.append(
                f"{self._twice:,} times are in an hour that came twice, when the clock was set back. They were read as "
                "those of the first."
            )
        mixed = [role for role, kinds in self._zoned.items() if len(kinds) == 2 and self.zone is None]
        return numbers + [
            f"In the column of {role}s some dates have a zone and some have none. Those without were read as UTC."
            for role in mixed
        ]

    def read(self, role: str, column: Times, where: Callable[[int], str] | None = None) -> Moments:
        """The column in microseconds; what is no moment becomes unreadable. `where` names a row, for messages."""
        ok, twice = column.states == OK, None
        if not ok.any():
            return Moments(np.full(len(ok), NEVER), column.states)
        if column.dated:
            whole, good, dated = np.where(ok, column.values, NEVER).astype(np.int64, copy=False), ok, True
            naive = np.broadcast_to(np.asarray(column.naive), ok.shape)
        else:
            self._compare_units(role, column.values, ok, where)
            whole, good, dated = self._numbers(role, np.where(ok, column.values, 0.0), ok)
            naive = np.broadcast_to(np.asarray(self.units[role] in {_DAYS, _MOMENTS}), ok.shape)
        if dated:
            good = good & (whole >= EARLIEST) & (whole <= LATEST)
            self._compare_zones(role, naive, good)
            if self.zone is not None:
                shifted = np.flatnonzero(good & naive)
                first = _offsets(whole[shifted], self.zone, fold=0)
                twice = np.zeros(len(ok), dtype=bool)
                twice[shifted] = first > _offsets(whole[shifted], self.zone, fold=1)
                self._twice += int(np.count_nonzero(twice))
                whole[shifted] -= first
                good = good & (whole >= EARLIEST) & (whole <= LATEST)
        if role == "time":
            self.dated = dated
        whole[~good] = NEVER
        return Moments(whole, np.where(ok & ~good, UNREADABLE, column.states).astype(np.int8), twice)

    def _compare_zones(self, role: str, naive: Flags, good: Flags) -> None:
        """Refuse two columns of which one has zones and the other has none: their differences would be wrong."""
        there = {True: (good & ~naive).any(), False: (good & naive).any()}
        self._zoned.setdefault(role, set()).update(zoned for zoned, some in there.items() if some)
        kinds = {name: kind for name, kind in self._zoned.items() if kind}
        bare = next((name for name, kind in kinds.items() if kind == {False}), None)
        zoned = next((name for name, kind in kinds.items() if kind == {True}), None)
        if self.zone is None and bare is not None and zoned is not None:
            raise ZoneMismatch(
                f"{zoned}s and {bare}s must both have a zone or both have none, got {zoned}s with one and {bare}s "
                f"without; {self.how} for the zone of the {bare}s"
            )

    def _compare_units(self, role: str, values: Vector | Ints, ok: Flags, where: Callable[[int], str] | None) -> None:
        """Refuse a column of which some numbers are recent times in one unit, some in another, and none lie between."""
        found = {unit: ok & (values >= first) & (values <= last) for unit, (first, last) in _RECENT.items()}
        large = ok & (values >= _RECENT[_UNITS[1]][0])
        if (large & ~np.any(list(found.values()), axis=0)).any():
            self._recent[role] = _ANY  # a clock that counts from anywhere
        for unit, rows in found.items():
            before = self._recent.setdefault(role, unit) if rows.any() else unit
            if before not in {unit, _ANY}:
                row = int(rows.argmax())
                place = "" if where is None else f" - at {where(row)}"
                raise UnitMismatch(f"{role}s must be of one unit, got {before} and {unit}, {values[row]:.0f}{place}")

    def _numbers(self, role: str, values: Vector, ok: Flags) -> tuple[Ints, Flags, bool]:
        if role not in self.units:
            same = self.units.get("time") == SECONDS  # a clock without a calendar is one for both columns
            self.units[role] = SECONDS if same else _unit_of(values[ok])
        unit = self.units[role]
        if unit in (_DAYS, _MOMENTS):
            whole, good = _written(values, unit)
            return whole, good & ok, True
        scaled = values * _MICROSECONDS[unit]
        if unit == SECONDS and np.abs(scaled).max() > 4e18:
            raise InvalidInput(f"times must be dates or seconds, got numbers as large as {np.abs(values).max():g}")
        good = ok & (np.abs(scaled) <= 4e18)
        return np.where(good, scaled, 0.0).round().astype(np.int64), good, unit != SECONDS


def in_utc(local: Ints, zone: tzinfo) -> Ints:
    """Microseconds of a local clock in UTC; of an hour that comes twice, the first.

    >>> in_utc(np.array([7200 * 10**6]), zone_named("+02:00")).tolist()
    [0]
    """
    return local - _offsets(local, zone, fold=0)


PARTS_OF_TIME = ("hour", "weekday", "month")


def part_of_time(part: str, moments: Ints, zone: tzinfo) -> Ints:
    """The hour (0 to 23), the weekday (0: Monday) or the month (1 to 12) of microseconds since 1970, in a zone.

    >>> noon = np.array([12 * 3600 * 10**6])
    >>> [part_of_time(part, noon, zone_named("+02:00")).tolist() for part in PARTS_OF_TIME]
    [[14], [3], [1]]
    """
    quarters, which = np.unique(moments // _QUARTER, return_inverse=True)
    local = quarters * _QUARTER + np.array(
        [_offset_at(at * _QUARTER, zone) for at in quarters.tolist()], dtype=np.int64
    )
    dates = local.astype("datetime64[us]")
    days = dates.astype("datetime64[D]").astype(np.int64)
    if part == "hour":
        found = local // (3600 * _SECOND) % 24
    elif part == "weekday":
        found = (days + 3) % 7  # 1970 began on a Thursday
    else:
        found = dates.astype("datetime64[M]").astype(np.int64) % 12 + 1
    return np.asarray(found[which.reshape(-1)])


def _offset_at(moment: int, zone: tzinfo) -> int:
    """The offset of a zone in microseconds, at a moment in UTC."""
    inside = min(max(moment, EARLIEST + _DURATIONS["w"]), LATEST - _DURATIONS["w"])  # Python's years end at 9999
    offset = (_EPOCH + timedelta(microseconds=inside)).astimezone(zone).utcoffset()
    return (offset or timedelta()) // timedelta(microseconds=1)


def _offsets(local: Ints, zone: tzinfo, *, fold: int) -> Ints:
    """The offset of a zone in microseconds, at moments of its local clock."""
    quarters, which = np.unique(local // _QUARTER, return_inverse=True)
    offsets = [_offset(int(quarter) * _QUARTER, zone, fold) for quarter in quarters.tolist()]
    return np.array(offsets, dtype=np.int64)[which]


def _offset(local: int, zone: tzinfo, fold: int) -> int:
    offset = zone.utcoffset((_EPOCH + timedelta(microseconds=local)).replace(tzinfo=zone, fold=fold))
    return (offset or timedelta()) // timedelta(microseconds=1)


def _unit_of(values: Vector) -> str:
    """What the numbers look like; small ones count as seconds from anywhere."""
    for unit in (_DAYS, _MOMENTS):
        if bool(_written(values, unit)[1].all()):
            return unit
    largest = float(np.abs(values).max())
    return _UNITS[int(np.searchsorted([1e8, 1e11, 1e14, 1e17], largest, side="right"))]


def _written(values: Vector, unit: str) -> tuple[Ints, Flags]:
    """Numbers whose digits are a date of the years 1900 to 2199, in microseconds; and which of them are."""
    digits = np.where(np.abs(values) < 1e15, values, 0.0).astype(np.int64)
    good = digits == values
    seconds = np.zeros(len(values), dtype=np.int64)
    if unit == _MOMENTS:
        digits, clock = np.divmod(digits, 10**6)
        hour, minute, second = clock // 10**4, clock // 100 % 100, clock % 100
        good &= (hour < 24) & (minute < 60) & (second < 60)
        seconds = hour * 3600 + minute * 60 + second
    year, month, day = digits // 10**4, digits // 100 % 100, digits % 100
    good &= (year >= 1900) & (year < 2200) & (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(good, day - 1, 0)
    good &= days.astype("datetime64[M]") == months
    return days.astype(np.int64) * 86_400_000_000 + seconds * 1_000_000, good
