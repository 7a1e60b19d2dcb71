"""The time of day as an engine uses it, without the jumps of the system's clock.

The system's clock may be wrong for a while: a virtual machine resumes with an old one, or a time server corrects it.
A few seconds in the wrong year would expire every forecast. So the time of day is compared with a steady clock, which
counts seconds and is never set. A jump is believed only after it has lasted; until then the time goes on as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

SMALL = 1.0  # seconds: a step as small as this is followed at once
SETTLE = 60.0  # seconds for which a jump must last
STOPPED = 120.0  # seconds between two looks after which the process was stopped meanwhile


def steady_time() -> float:
    """Return seconds that also count while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(_STEADY) if _STEADY is not None else time.monotonic()


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Gap(NamedTuple):
    """Time that was not lived through: from the last moment before it to the first one behind it.

    Where the clock was set back, `ended` is before `begun`.
    """

    begun: float
    ended: float


class ServiceClock:
    """The time of day, in seconds since 1970, that does not jump.

    Parameters
    ----------
    wall : the system's clock, which may jump.
    steady : seconds since any moment, which never do.

    >>> wall, steady = [1_800_000_000.0], [0.0]
    >>> clock = ServiceClock(lambda: wall[0], lambda: steady[0])
    >>> wall[0] += 86_400.0                      # it is wrong by a day
    >>> clock() - 1_800_000_000.0, clock.look()
    (0.0, None)
    >>> wall[0], steady[0] = wall[0] + 61.0, steady[0] + 61.0
    >>> clock.look(), clock() - wall[0]          # and stays so: it was right
    (Gap(begun=1800000061.0, ended=1800086461.0), 0.0)
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_time) -> None:
        self._wall, self._steady = wall, steady
        self._seen = steady()
        self._ahead = wall() - self._seen  # of the steady clock, as far as it is believed
        self._jump: tuple[float, float] | None = None  # another difference, and since when

    def __call__(self) -> float:
        """Return the time."""
        wall, steady = self._wall(), self._steady()
        return wall if abs(wall - steady - self._ahead) <= SMALL else steady + self._ahead

    def look(self) -> Gap | None:
        """Compare the two clocks -> the time that has passed without this process, or that a clock was set by.

        Call it at least once a minute; otherwise the process counts as stopped meanwhile.
        """
        wall, steady = self._wall(), self._steady()
        passed, self._seen = steady - self._seen, steady
        difference, before = wall - steady, steady + self._ahead
        if abs(difference - self._ahead) <= SMALL:
            self._ahead, self._jump = difference, None
        elif self._jump is None or abs(difference - self._jump[0]) > SMALL:
            self._jump = difference, steady
        elif steady - self._jump[1] >= SETTLE:
            self._ahead, self._jump = difference, None
            return Gap(before, wall)
        return Gap(before - passed, before) if passed > STOPPED else None

    @property
    def disbelieved(self) -> float | None:
        """By how many seconds the system's clock differs, as long as that is not believed."""
        return None if self._jump is None else self._jump[0] - self._ahead
