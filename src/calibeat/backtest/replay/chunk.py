"""Which outcomes are under way from one chunk to the next, and when each is learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibeat._util.times import NEVER
from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Maturity
from calibeat.backtest.read.batch import Chunk

__all__ = ["NEVER", "Chunk", "Plan", "Underway"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What is learnt when, within one chunk. Events still under way come first, then those of the chunk.

    Outcome i is learnt just before prediction ``due[i]``. `order` lists the outcomes that are due in this chunk in the
    order in which they are learnt: by `due`, then by arrival, then by row. `left` are the events that are still under
    way when the chunk ends.
    """

    first: int
    scores: Vector
    outcomes: Vector
    slots: Ints
    due: Ints
    order: Ints
    left: Ints


class Underway:
    """The events whose outcomes have not arrived yet, or are not old enough. Every method keeps its own receipts."""

    def __init__(self, maturity: Maturity | None = None) -> None:
        self._maturity = maturity or Maturity()
        self._scores, self._outcomes = np.empty(0), np.empty(0)
        self._slots, self._arrivals, self._numbers = (np.empty(0, dtype=np.int64) for _ in range(3))
        self._seen = 0
        self.waited = np.empty(0, dtype=np.int64)  # of the outcomes that arrived in the latest chunk: in events

    def __len__(self) -> int:
        return len(self._scores)

    def plan(self, chunk: Chunk) -> Plan:
        """When the outcomes under way and those of the chunk arrive. The next call continues from here."""
        if chunk.clock is None or chunk.arrivals is None:
            raise TypeError("a chunk without a clock has nothing under way")
        first, n = len(self), len(chunk)
        scores = np.concatenate([self._scores, chunk.scores])
        outcomes = np.concatenate([self._outcomes, chunk.outcomes])
        slots = np.concatenate([self._slots, chunk.slots])
        known = chunk.arrivals
        if self._maturity.microseconds:
            known = np.where(known == NEVER, NEVER, np.maximum(known, chunk.clock + self._maturity.microseconds))
        arrivals = np.concatenate([self._arrivals, known])
        numbers = np.concatenate([self._numbers, np.arange(self._seen, self._seen + n)])
        # The first prediction at or after the arrival, and later than the event's own.
        due = first + np.searchsorted(chunk.clock, arrivals, side="left").astype(np.int64)
        np.maximum(due[first:], np.arange(first + 1, first + n + 1), out=due[first:])
        moment = arrivals  # at which an outcome is learnt, for the order
        if self._maturity.events and n:
            ripe = first + numbers - self._seen + 1 + self._maturity.events
            at = chunk.clock[np.clip(ripe - first, 0, n - 1)]
            moment = np.where(ripe > due, at, arrivals)
            due = np.maximum(due, ripe)
        arrives = arrivals != NEVER
        soon = np.flatnonzero(arrives & (due < first + n))
        order = soon[np.lexsort((moment[soon], due[soon]))]  # stable: equal arrivals stay in the order of the rows
        left = np.flatnonzero(arrives & (due >= first + n))
        self.waited = due[order] - first + self._seen - numbers[order]
        self._scores, self._outcomes, self._slots = scores[left], outcomes[left], slots[left]
        self._arrivals, self._numbers = arrivals[left], numbers[left]
        self._seen += n
        return Plan(first, scores, outcomes, slots, due, order, left)
