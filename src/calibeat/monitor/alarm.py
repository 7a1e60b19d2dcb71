"""An alarm in words."""

from __future__ import annotations

from typing import NamedTuple

from .layout import Settings

_WORDS = ("too low", "too high", "not sure enough", "too sure")


class Alarm(NamedTuple):
    """One alarm of a monitor.

    Attributes
    ----------
    at : how many outcomes had been read when it was raised, that one included.
    since : the estimated outcome number at which the fault began.
    what : which bet won: "too low", "too high", "too sure", "not sure enough", or "too low from 0.8 to 0.95".
    page : False if another alarm was raised within the last `quiet` outcomes: the same episode.
    low, high : the forecasts that it concerns, [low, high).
    cell : 2 x scope + direction. Scopes: 0 all events, 1 "sure", 2 and up the regions. Direction 0 is "too low".
    """

    at: int
    since: float
    what: str
    page: bool
    low: float
    high: float
    cell: int


def alarm_of(settings: Settings, at: int, since: float, cell: int, page: bool) -> Alarm:
    """An alarm as the row notes it."""
    if cell < len(_WORDS):
        return Alarm(at, since, _WORDS[cell], page, 0.0, 1.0, cell)
    low, high = settings.edges[cell // 2 - 2 : cell // 2]
    return Alarm(at, since, f"{_WORDS[cell % 2]} from {low:g} to {high:g}", page, low, high, cell)
