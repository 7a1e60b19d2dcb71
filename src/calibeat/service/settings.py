"""What an engine is asked to be: one frozen object for the command line, the service and the tests."""

from __future__ import annotations

from dataclasses import dataclass

from calibeat._util.check import check_interval, check_whole, shown
from calibeat.errors import InvalidInput

LONGEST_AGE = 365_250.0 * 86_400.0  # seconds


@dataclass(frozen=True)
class Settings:
    """The settings of an `Engine`.

    Parameters
    ----------
    method : the name of a preset; None takes what the store was made with, AUTO for a new one.
    seed : for the draws of a hedging method; None takes the store's, 0 for a new one.
    monitor : outcomes between false alarms (`Monitor.arl`); None watches nothing.
    expire : age in seconds at which a forecast without an outcome is given up; None waits for ever.
    expire_as : None drops such a forecast; 0 or 1 is learnt in the place of the outcome that did not come.
    mature : age in seconds at which an outcome is learnt, ones and zeros alike; None learns it when it comes.
    corrections : whether another outcome for a forecast that is learnt is recorded, for the next replay.
    group : the most events in one transaction.
    queue, queue_events : the most requests and events that may wait; more are refused with 503.

    >>> Settings(method="tops", expire=30 * 86_400.0).expire_as is None
    True
    """

    method: str | None = None
    seed: int | None = None
    monitor: float | None = None
    expire: float | None = None
    expire_as: int | None = None
    mature: float | None = None
    corrections: bool = False
    group: int = 5_000
    queue: int = 20_000
    queue_events: int = 200_000

    def __post_init__(self) -> None:
        for name in ("expire", "mature"):
            if getattr(self, name) is not None:
                check_interval(name, getattr(self, name), 0.0, LONGEST_AGE)
        for name in ("group", "queue", "queue_events"):
            check_whole(name, getattr(self, name), 1, 2**31)
        if self.expire_as not in {None, 0, 1}:
            raise InvalidInput(f"expire_as must be 0, 1 or None, got {shown(self.expire_as)}")
        if self.expire_as is not None and self.expire is None:
            raise InvalidInput("expire_as must come with expire, got no expire")
        if self.expire is not None and self.mature is not None and self.expire <= self.mature:
            raise InvalidInput(f"expire must be longer than mature, got {self.expire:g} and {self.mature:g} seconds")
