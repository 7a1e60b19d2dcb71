"""Every choice of a backtest in one object: the function, the command and whoever else replays a log share it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from typing import Any

from calibeat._util.check import check_choice, check_whole
from calibeat._util.times import zone_named
from calibeat.errors import InvalidInput

SCORE_KINDS = ("probability", "percent", "logit")
_SECOND = 1_000_000
_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": _SECOND,
    "min": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}
_LONGEST = 365_250 * _MICROSECONDS["d"]


@dataclass(frozen=True)
class Options:
    """How a log is read, replayed and judged. Everything is checked when the object is made.

    >>> Options(delay="2h").delay_microseconds, Options(delay=100).delay_events
    (7200000000, 100)
    """

    methods: Any = None  # names of presets, methods, or a mapping; None: ten of constant cost
    bins: int = 10
    warmup: int | None = None
    delay: int | str = 0
    score_kind: str = "probability"
    time_zone: str | None = None  # of times that have none
    skip_bad: bool = False
    sort: bool = False
    seed: int = 0
    title: str = "Backtest"
    typed: bool = False  # whether a person types options, or writes arguments in Python

    def __post_init__(self) -> None:
        check_choice("score_kind", self.score_kind, SCORE_KINDS)
        check_whole("bins", self.bins, 1, 100)
        if self.warmup is not None:
            check_whole("warmup", self.warmup, 0, 10**15)
        check_whole("seed", self.seed, -(2**63), 2**63 - 1)
        _ = self._late, self.zone

    def how(self, option: str, argument: str) -> str:
        """How a person sets an option here, as the end of a message."""
        return f"say {option if self.typed else argument}"

    @property
    def delay_events(self) -> int:
        """So many events pass before an outcome is known; 0 where the delay is a time."""
        delay, is_time = self._late
        return 0 if is_time else delay

    @property
    def delay_microseconds(self) -> int:
        """So much time passes before an outcome is known; 0 where the delay is a number of events."""
        delay, is_time = self._late
        return delay if is_time else 0

    @cached_property
    def zone(self) -> tzinfo | None:
        """The zone of times that have none, if one was named."""
        return None if self.time_zone is None else zone_named(self.time_zone)

    @cached_property
    def _late(self) -> tuple[int, bool]:
        return parse_delay(self.delay)


def parse_delay(delay: Any) -> tuple[int, bool]:
    """A delay in events, or in microseconds; and whether it is the latter.

    >>> parse_delay("2h"), parse_delay("100")
    ((7200000000, True), (100, False))
    """
    if not isinstance(delay, str):
        return check_whole("delay", delay, 0, 10**15), False
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", delay.lower())
    if match and not match[2] and "." not in match[1]:
        return check_whole("delay", int(match[1]), 0, 10**15), False
    if match and match[2] in _MICROSECONDS:
        microseconds = float(match[1]) * _MICROSECONDS[match[2]]
        if microseconds > _LONGEST:
            raise InvalidInput(f"delay must be 1,000 years at most, got {delay!r}")
        return int(microseconds), True
    raise InvalidInput(f"delay must be a number of events or a time such as 30s, 30min, 2h or 7d, got {delay!r}")
