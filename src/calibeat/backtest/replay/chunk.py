"""A stretch of the log as the replay takes it, and which outcomes are under way from one stretch to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector

Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Trace:
    """Where events stand in the log: row and file of each, and its id where there are ids."""

    rows: Whole
    files: Whole
    ids: npt.NDArray[np.object_] | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive events, all checked.

    `outcomes` is NaN where none ever arrives. `slots` says which stream an event belongs to (one stream: all 0).
    `clock` rises with the events and `arrivals` says, on the same clock, when an outcome is known (`NEVER`: not at
    all); both are None where every outcome arrives at once. `times` are microseconds since 1970, for people;
    `trace` is there where it was asked for.
    """

    scores: Vector
    outcomes: Vector
    slots: Whole
    clock: Whole | None = None
    arrivals: Whole | None = None
    times: Whole | None = None
    trace: Trace | None = None

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is learnt when, within one chunk: events still under way come first, then those of the chunk.

    Outcome i is learnt just before prediction ``due[i]``; `order` sorts those that are due in this chunk by (due, i);
    `left` are the events that are under way when the chunk ends.
    """

    first: int
    scores: Vector
    outcomes: Vector
    slots: Whole
    due: Whole
    order: Whole
    left: Whole


class Underway:
    """The events whose outcomes have not arrived yet; every method remembers its own receipts of them."""

    def __init__(self) -> None:
        self._scores, self._outcomes = np.empty(0), np.empty(0)
        self._slots, self._arrivals, self._numbers = (np.empty(0, dtype=np.int64) for _ in range(3))
        self._seen = 0
        self.waited = np.empty(0, dtype=np.int64)  # of the outcomes that arrived in the latest chunk: in events

    def __len__(self) -> int:
        return len(self._scores)

    def plan(self, chunk: Chunk) -> Plan:
        """When the outcomes under way and those of the chunk arrive; the next call continues from here."""
        if chunk.clock is None or chunk.arrivals is None:
            raise TypeError("a chunk without a clock has nothing under way")
        first, n = len(self), len(chunk)
        scores = np.concatenate([self._scores, chunk.scores])
        outcomes = np.concatenate([self._outcomes, chunk.outcomes])
        slots = np.concatenate([self._slots, chunk.slots])
        arrivals = np.concatenate([self._arrivals, chunk.arrivals])
        numbers = np.concatenate([self._numbers, np.arange(self._seen, self._seen + n)])
        # The first prediction at or after the arrival, and later than the event's own.
        due = first + np.searchsorted(chunk.clock, arrivals, side="left").astype(np.int64)
        np.maximum(due[first:], np.arange(first + 1, first + n + 1), out=due[first:])
        arrives = arrivals != NEVER
        soon = np.flatnonzero(arrives & (due < first + n))
        order = soon[np.argsort(due[soon], kind="stable")]
        left = np.flatnonzero(arrives & (due >= first + n))
        self.waited = due[order] - first + self._seen - numbers[order]
        self._scores, self._outcomes, self._slots = scores[left], outcomes[left], slots[left]
        self._arrivals, self._numbers = arrivals[left], numbers[left]
        self._seen += n
        return Plan(first, scores, outcomes, slots, due, order, left)
