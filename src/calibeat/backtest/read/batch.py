"""What the readers make: batches of columns as they came, and chunks of events that were checked."""

from __future__ import annotations

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
