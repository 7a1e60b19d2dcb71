"""What the readers make: batches of columns as they came, and chunks of events that were checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.times import States, Times
from calibeat._util.types import Ints, Vector

CHUNK = 131_072  # rows in a batch: enough that a call costs nothing, few enough to stay in the cache
FIRST_EVENTS = 20_000  # the first chunk of a log has at least so many events, or all of them


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers, and the state of each: OK, MISSING or UNREADABLE."""

    values: Vector
    states: States


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of keys: an index into `names` for each row, negative where there is no key."""

    indices: Ints
    names: list[Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as they came. `show` tells what stands in a column (by its role) at a row, `where` names the row."""

    scores: Numbers
    outcomes: Numbers
    show: Callable[[str, int], str]
    where: Callable[[int], str]
    rows: Ints  # the number of each row in its file
    file: int = 0
    times: Times | None = None
    outcome_times: Times | None = None
    keys: Codes | None = None
    ids: list[Any] | None = None
    others: dict[str, Numbers] = field(default_factory=dict)  # by role: forecasts of rivals, scores of other models

    def __len__(self) -> int:
        return len(self.scores.values)


@dataclass(frozen=True, eq=False)
class Trace:
    """Where events stand in the log: row and file of each, and its id where there are ids."""

    rows: Ints
    files: Ints
    ids: npt.NDArray[np.object_] | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive events, all checked.

    `outcomes` is NaN where none ever arrives. `slots` is the stream of each event (one stream: all 0).
    `clock` rises with the events. `arrivals` tells, on the same clock, when an outcome is known (`NEVER`: not at all).
    Both are None where every outcome arrives at once. `clock_is_time` tells whether the clock counts microseconds or
    events. `times` are microseconds since 1970, for people. `trace` is there on request. `others` has a column for each
    rival's forecasts and each other model's scores.
    """

    scores: Vector
    outcomes: Vector
    slots: Ints
    clock: Ints | None = None
    arrivals: Ints | None = None
    times: Ints | None = None
    trace: Trace | None = None
    clock_is_time: bool = False
    others: Vector | None = None

    def __len__(self) -> int:
        return len(self.scores)


WORDS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0, "f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}


def name_of(value: Any) -> str:
    """A key, an id or an outcome as it reads: 1, "1" and 1.0 are one.

    >>> name_of(1.0), name_of("1"), name_of(np.int8(1)), name_of(True)
    ('1', '1', '1', 'True')
    """
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def number_of(value: Any, *, decimal: str = ".", percent: bool = False) -> float | None:
    """A number, also as text; None for anything else. With `percent` text may end in its sign.

    >>> number_of("0,25", decimal=","), number_of("63.7%", percent=True), number_of("high"), number_of(True)
    (0.25, 63.7, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, str):
        value = value.strip().removesuffix("%") if percent else value
        value = value.replace(decimal, ".") if decimal != "." else value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def outcome_of(value: Any, positive: Any = None, decimal: str = ".") -> float | None:
    """A number, a boolean, or a word such as yes and no; None for anything else.

    With `positive` that value is 1, and every other is 0.

    >>> outcome_of("yes"), outcome_of("-1"), outcome_of("fraud"), outcome_of("fraud", "fraud"), outcome_of(2, "1")
    (1.0, -1.0, None, 1.0, 0.0)
    """
    if positive is not None:
        return float(same(value, positive))
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS[word] if word in WORDS else number_of(word, decimal=decimal)
    return float(value) if isinstance(value, (bool, np.bool_)) else number_of(value)


def same(value: Any, positive: Any) -> bool:
    """Whether a value is the one that was named; booleans in any spelling.

    >>> same(True, "true"), same("Fraud ", "Fraud"), same("fraud", "Fraud"), same(1.0, "1")
    (True, True, False, True)
    """
    one, other = name_of(value).strip(), name_of(positive).strip()
    if isinstance(value, (bool, np.bool_)) or isinstance(positive, (bool, np.bool_)):
        return one.lower() == other.lower()
    return one == other
