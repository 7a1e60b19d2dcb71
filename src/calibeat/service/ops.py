"""The log of a store: what has happened to its streams, as it was answered, in one order.

Each row of the table `op` is an operation. The log is append-only, and it is the truth: every other table is made of
it, later and for many operations at once, and can be made of it again. An answer that was given stays in it, also
where this machine would compute another last bit.

    FORECAST    told for x (score) of an event; `nth` counts the forecasts of a stream
    OUTCOME     x is learnt for the event nth
    HOLD        the outcome x is known, and not learnt yet: its stream is frozen, or its forecast too young
    LEARN       the outcome that was held is learnt now
    EXPIRE      nothing came in time, or what was held is not wanted
    ASSUME      nothing came in time, and x is learnt in its place
    CORRECT     the outcome is x, or unknown again; `corrects` is the position at which another one was learnt
    FORGET      the event is to be deleted; `corrects` is the position of its forecast
    APPLY       from here on forecasts are of a state that has learnt all corrections up to the position `corrects`
    BEGIN       a new stream, whose name is the id
    DEFINE      what its events look like: see `Shape`
    NAME        the value (id, as JSON) of the word nth of its groups
    FREEZE ...  what was done to a stream; of JOIN the id is the name of a model that has joined
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .events import Observed

FORECAST, OUTCOME, HOLD, LEARN, EXPIRE, ASSUME, CORRECT, FORGET, APPLY, BEGIN, DEFINE, NAME = range(12)
FREEZE, RESUME, PASSTHROUGH, RESET, RENAME, COPY, DELETE, METHOD, JOIN = range(12, 21)
OP_COLUMNS = (
    *("position", "stream", "kind", "nth", "id", "at", "time", "x", "told", "given", "issued", "corrects", "weight"),
    *("trials", "band"),
)


class Op(NamedTuple):
    """An operation."""

    position: int
    stream: int
    kind: int
    nth: int  # which event of the stream; -1: none
    id: str | None
    at: float  # when it was done, by the clock of the service
    time: float | None  # the event's own time; None: the same
    x: float | None
    told: float | None
    given: bytes | None
    issued: bytes | None
    corrects: int | None = None
    weight: float | None = None  # of an outcome; None: 1
    trials: int | None = None  # how many events an outcome is, of which x are ones; None: 1
    band: bytes | None = None  # of a forecast: low, high, outcomes and the reason, as they were told

    @property
    def observed(self) -> Observed | None:
        """The outcome of an operation that has one."""
        return None if self.x is None else Observed.of_stored(int(self.x), self.weight, self.trials)


def row_of(
    position: int,
    stream: int,
    kind: int,
    nth: int = -1,
    *,
    at: float,
    id: str | None = None,  # noqa: A002 - the word of the service
    time: float | None = None,
    x: float | None = None,
    given: bytes | None = None,
    corrects: int | None = None,
    weight: float | None = None,
    trials: int | None = None,
) -> tuple[Any, ...]:
    """An operation as a row of the table, which is no forecast."""
    return (position, stream, kind, nth, id, at, time, x, None, given, None, corrects, weight, trials, None)
