"""Many streams whose outcomes come late: when each is learnt.

Event i has position i in the batch. Its outcome arrives at position due[i], before the event there. It is learnt before
the next event of its own key, or at the end of the batch if there is none. Several outcomes that a key learns at the
same moment are learnt in the order of their positions. So a key learns just what `Calibrator.run` would learn, had it
the key's events alone, with the arrivals counted in the key's own events.
"""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.jit import compilable, for_size


@compilable
def arrivals(due: Ints, outcomes: Vector, heads: Ints, following: Ints) -> None:
    """For each position a list of the outcomes that arrive there, in order: heads[position], following[it], ..., -1."""
    for i in range(len(due) - 1, -1, -1):
        if due[i] < len(heads) and outcomes[i] == outcomes[i]:
            following[i] = heads[due[i]]
            heads[due[i]] = i


@compilable
def wait_for_key(slots: Slots, heads: Ints, following: Ints, next_event: Ints, moments: Ints) -> None:
    """When each outcome is learnt: at the next event of its key after its arrival, or at the end of the batch, n."""
    n = len(slots)
    for i in range(n, -1, -1):
        if i < n:
            next_event[slots[i]] = i
        j = heads[i]
        while j >= 0:
            moments[j] = next_event[slots[j]]
            j = following[j]


@compilable
def in_order(moments: Ints, heads: Ints, following: Ints, order: Ints) -> int:
    """The outcomes that are learnt, by (moment, position) -> how many they are."""
    for i in range(len(moments) - 1, -1, -1):
        if moments[i] >= 0:
            following[i] = heads[moments[i]]
            heads[moments[i]] = i
    count = 0
    for moment in range(len(heads)):
        j = heads[moment]
        while j >= 0:
            order[count] = j
            count += 1
            j = following[j]
    return count


class Arrivals:
    """When each outcome of a batch arrives (lists by position), and when its key learns it (moments, in order)."""

    def __init__(self, due: Ints, outcomes: Vector, slots: Slots, count: int) -> None:
        n = len(due)
        self.heads, self.following = np.full(n + 1, -1), np.full(n, -1)
        for_size(arrivals, n)(due, outcomes, self.heads, self.following)
        self.moments = np.full(n, -1)
        for_size(wait_for_key, n)(slots, self.heads, self.following, np.full(count, n), self.moments)
        order = np.empty(n, dtype=np.int64)
        self.order = order[: for_size(in_order, n)(self.moments, np.full(n + 1, -1), np.full(n, -1), order)]
