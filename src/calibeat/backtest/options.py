"""Every choice of a backtest in one object, which the function and the command share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import tzinfo
from functools import cached_property
from typing import Any

import numpy as np

from calibeat._util.check import check_choice, check_interval, check_whole
from calibeat._util.times import check_age, in_utc, moment, zone_named
from calibeat.errors import InvalidInput

SCORE_KINDS = ("probability", "percent", "logit")


@dataclass(frozen=True)
class Maturity:
    """The age at which an outcome may be learnt: in further forecasts, or in microseconds.

    >>> Maturity.of("2h")
    Maturity(events=0, microseconds=7200000000)
    """

    events: int = 0
    microseconds: int = 0

    @classmethod
    def of(cls, age: Any) -> Maturity:
        """As a person writes it."""
        value, is_time = check_age("mature", age)
        return cls(microseconds=value) if is_time else cls(events=value)


@dataclass(frozen=True)
class Costs:
    """Act where the forecast is at least the threshold t = fp / (fp + fn): there acting has the lower expected cost."""

    threshold: float
    fp: float  # of an action for nothing
    fn: float  # of an event that was missed; 1 where only a threshold is given
    given: bool  # whether the costs are the user's own


@dataclass(frozen=True)
class Options:
    """How a log is read, replayed and judged: arguments of `calibeat.backtest`, whose docstring explains them.

    Everything is checked when the object is made.

    Raises
    ------
    InvalidInput : if an option cannot be used, or two contradict each other.

    >>> Options(delay="2h").delay_microseconds, Options(delay=100).delay_events
    (7200000000, 100)
    """

    methods: Any = None
    bins: int = 10
    warmup: int | None = None
    delay: int | str = 0
    mature: Any = None
    score_kind: str = "probability"
    insist: bool = False
    positive: Any = None
    decimal: str = "."
    time_zone: str | None = None
    time_format: str | None = None
    split: str | None = None
    blank_key: str | None = None
    skip_bad: bool = False
    sort: bool = False
    seed: int = 0
    title: str = "Backtest"
    threshold: float | None = None
    cost_fp: float | None = None
    cost_fn: float | None = None
    typed: bool = False  # whether a person types options, or writes arguments in Python

    def __post_init__(self) -> None:
        check_choice("score_kind", self.score_kind, SCORE_KINDS)
        check_choice("decimal", self.decimal, (".", ","))
        if self.time_format is not None and "%" not in self.time_format:
            raise InvalidInput(f"time_format must be a format such as %d/%m/%Y %H:%M, got {self.time_format!r:.60}")
        if self.blank_key is not None and not str(self.blank_key).strip():
            raise InvalidInput(f"blank_key must be a name, got {self.blank_key!r}")
        check_whole("bins", self.bins, 1, 100)
        if self.warmup is not None:
            check_whole("warmup", self.warmup, 0, 10**15)
        check_whole("seed", self.seed, -(2**63), 2**63 - 1)
        _ = self._late, self.zone, self.costs, self.split_at
        if self.delay_events and self.maturity is not None and self.maturity.microseconds:
            raise InvalidInput(
                f"mature must be a number of events where delay is one, got {self.mature!r} and {self.delay!r}"
            )

    @cached_property
    def costs(self) -> Costs | None:
        """What decisions cost, if the log is judged by decisions: from a threshold or from the two costs."""
        threshold, false_alarm, missed = self.threshold, self.cost_fp, self.cost_fn
        if threshold is not None:
            if false_alarm is not None or missed is not None:
                raise InvalidInput("threshold must not be set where the two costs make it, got both")
            t = check_interval("threshold", threshold, 1e-6, 1.0 - 1e-6)
            return Costs(t, t / (1.0 - t), 1.0, given=False)
        if false_alarm is None and missed is None:
            return None
        if false_alarm is None or missed is None:
            raise InvalidInput("cost_fp and cost_fn must be set together, got one")
        fp, fn = (
            check_interval(name, cost, 1e-9, 1e12) for name, cost in (("cost_fp", false_alarm), ("cost_fn", missed))
        )
        return Costs(fp / (fp + fn), fp, fn, given=True)

    def check_times(self, times: object, outcome_times: object) -> None:
        """Raise if the columns of times contradict the options on when outcomes arrive.

        Raises
        ------
        InvalidInput : if times of outcomes come without times of events, or with a delay.
        """
        if outcome_times is not None and times is None:
            raise InvalidInput("outcome_times need times to be compared with, got none")
        if outcome_times is not None and (self.delay_events or self.delay_microseconds):
            raise InvalidInput("delay must not be set where outcome_times say when outcomes arrived, got both")

    def call(self, *columns: str) -> str:
        """The call of `calibeat.backtest` that has these options.

        >>> Options(delay="2h", threshold=0.3).call("scores", "outcomes")
        "calibeat.backtest(scores, outcomes, delay='2h', threshold=0.3)"
        """
        changed = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name != "typed" and repr(getattr(self, each.name)) != repr(each.default)
        ]
        return f"calibeat.backtest({', '.join([*columns, *changed])})"

    def how(self, option: str, argument: str) -> str:
        """How a person sets an option here, as the end of a message."""
        return f"say {option if self.typed else argument}"

    @property
    def delay_events(self) -> int:
        """How many events pass before an outcome is known; 0 where the delay is a time."""
        delay, is_time = self._late
        return 0 if is_time else delay

    @property
    def delay_microseconds(self) -> int:
        """How much time passes before an outcome is known, in microseconds; 0 where the delay is a number of events."""
        delay, is_time = self._late
        return delay if is_time else 0

    @cached_property
    def split_at(self) -> int | None:
        """The moment that splits the log, in microseconds since 1970."""
        if self.split is None:
            return None
        found = moment(self.split)
        if found is None:
            raise InvalidInput(f"split must be a date (ISO 8601), such as 2024-06-01, got {self.split!r:.60}")
        at, naive = found
        return int(in_utc(np.array([at]), self.zone)[0]) if naive and self.zone is not None else at

    @cached_property
    def zone(self) -> tzinfo | None:
        """The zone of times that have none, if one was named."""
        return None if self.time_zone is None else zone_named(self.time_zone)

    @cached_property
    def _late(self) -> tuple[int, bool]:
        return check_age("delay", self.delay)

    @cached_property
    def maturity(self) -> Maturity | None:
        """The age at which outcomes are learnt; None: when they arrive."""
        return None if self.mature is None else Maturity.of(self.mature)
