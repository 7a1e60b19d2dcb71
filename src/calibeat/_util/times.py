"""Times as microseconds: of dates as they are, of numbers by the unit they look like."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from calibeat.backtest.replay.chunk import NEVER, Flags, Whole
from calibeat.errors import InvalidInput

from .types import Vector

FINE, MISSING, UNREADABLE = 0, 1, 2
States = npt.NDArray[np.int8]

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
SECONDS = "seconds"
_UNITS = (SECONDS, "seconds since 1970", "milliseconds since 1970", "microseconds since 1970", "nanoseconds since 1970")
_MICROSECONDS = dict(zip(_UNITS, (1e6, 1e6, 1e3, 1.0, 1e-3), strict=True))
_DAYS, _MOMENTS = "dates written as YYYYMMDD", "dates written as YYYYMMDDHHMMSS"


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times: microseconds since 1970 where it has dates, numbers of an unknown unit where not."""

    values: Whole | Vector
    states: States
    dated: bool


@dataclass(frozen=True, eq=False)
class Moments:
    """A column of times in microseconds, `NEVER` where there is none."""

    values: Whole
    states: States


@dataclass(eq=False)
class Clock:
    """The units of the columns of times: each is settled by the first batch that has any number in it."""

    dated: bool = False  # whether the times of the events are dates
    units: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What was taken for what."""
        return [
            f"The column of {role}s holds numbers; they were taken for {unit}." for role, unit in self.units.items()
        ]

    def read(self, role: str, column: Times) -> Moments:
        """The column in microseconds; what is no moment becomes unreadable."""
        fine = column.states == FINE
        if not fine.any():
            return Moments(np.full(len(fine), NEVER), column.states)
        if column.dated:
            whole, good, dated = np.where(fine, column.values, NEVER).astype(np.int64), fine, True
        else:
            whole, good, dated = self._numbers(role, np.where(fine, column.values, 0.0), fine)
        if dated:
            good = good & (whole >= FIRST) & (whole <= LAST)
        if role == "time":
            self.dated = dated
        whole[~good] = NEVER
        return Moments(whole, np.where(fine & ~good, UNREADABLE, column.states).astype(np.int8))

    def _numbers(self, role: str, values: Vector, fine: Flags) -> tuple[Whole, Flags, bool]:
        if role not in self.units:
            same = self.units.get("time") == SECONDS  # a clock without a calendar is one for both columns
            self.units[role] = SECONDS if same else _unit_of(values[fine])
        unit = self.units[role]
        if unit in (_DAYS, _MOMENTS):
            whole, good = _written(values, unit)
            return whole, good & fine, True
        scaled = values * _MICROSECONDS[unit]
        if unit == SECONDS and np.abs(scaled).max() > 4e18:
            raise InvalidInput(f"times must be dates or seconds, got numbers as large as {np.abs(values).max():g}")
        good = fine & (np.abs(scaled) <= 4e18)
        return np.where(good, scaled, 0.0).round().astype(np.int64), good, unit != SECONDS


def _unit_of(values: Vector) -> str:
    """What the numbers look like; small ones count as seconds from anywhere."""
    for unit in (_DAYS, _MOMENTS):
        if bool(_written(values, unit)[1].all()):
            return unit
    largest = float(np.abs(values).max())
    return _UNITS[int(np.searchsorted([1e8, 1e11, 1e14, 1e17], largest, side="right"))]


def _written(values: Vector, unit: str) -> tuple[Whole, Flags]:
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
