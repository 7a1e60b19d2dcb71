"""Many streams whose outcomes come late: when each is learnt, and the loop that does it.

Event i has position i in the batch. Its outcome arrives at position due[i], before the event there. It is learnt before
the next event of its own key, or at the end of the batch if there is none. Several outcomes that a key learns at the
same moment are learnt in the order of their positions. So a key learns just what `Calibrator.run` would learn, had it
the key's events alone, with the arrivals counted in the key's own events.
"""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.calibeating import HEDGE
from calibeat.core.jit import compiled, kernel
from calibeat.core.kernel import CALIBEATER, RECEIPT, ask_again, predict, settle

from .stats import EVENTS, LAST, STATS, add_losses


@kernel
def learn_late(
    spec: Vector, row: Vector, stats: int, score: float, forecast: float, cell: int, y: float, q: Vector, at: int
) -> None:
    """Learn an outcome at the parameters of now; the cell is the one that was played, q[at:] the receipt."""
    x0, x1, x2, p, z = ask_again(spec, row, score)
    settle(spec, row, row[stats + EVENTS], x0, x1, x2, p, z, cell, y, q, at)
    add_losses(row, stats, score, forecast, y)


@kernel
def arrivals(due: Ints, outcomes: Vector, heads: Ints, following: Ints) -> None:
    """For each position a list of the outcomes that arrive there, in order: heads[position], following[it], ..., -1."""
    n = len(due)
    for i in range(n - 1, -1, -1):
        if due[i] < n and outcomes[i] == outcomes[i]:
            following[i] = heads[due[i]]
            heads[due[i]] = i


@kernel
def wait_for_key(
    slots: Slots, heads: Ints, following: Ints, next_event: Ints, moments: Ints, own_heads: Ints, own_following: Ints
) -> None:
    """From lists by arrival to lists by the position of the key's next event (n: the end of the batch)."""
    n = len(slots)
    for i in range(n - 1, -1, -1):
        next_event[slots[i]] = i
        j = heads[i]
        while j >= 0:
            moments[j] = next_event[slots[j]]
            j = following[j]
    for i in range(n - 1, -1, -1):
        if moments[i] >= 0:
            own_following[i] = own_heads[moments[i]]
            own_heads[moments[i]] = i


class Arrivals:
    """When each outcome of a batch arrives, and when its key learns it."""

    def __init__(self, due: Ints, outcomes: Vector, slots: Slots, count: int) -> None:
        n = len(due)
        self.heads, self.following = np.full(n + 1, -1), np.full(n, -1)
        self.own_heads, self.own_following = np.full(n + 1, -1), np.full(n, -1)
        compiled(arrivals)(due, outcomes, self.heads, self.following)
        compiled(wait_for_key)(
            slots, self.heads, self.following, np.full(count, n), np.full(n, -1), self.own_heads, self.own_following
        )


@kernel
def run_late_rows(
    spec: Vector, rows: Vector, stride: int, slots: Slots, first: int, last: int, clock: float,
    scores: Vector, outcomes: Vector, u: Vector, forecasts: Vector, q: Vector, cells: Ints,
    heads: Ints, following: Ints,
) -> None:  # fmt: skip
    """Predict every event, each on the row of its slot, and learn what is to be learnt before; slots first to last."""
    hedged = spec[CALIBEATER] == HEDGE
    width = int(spec[RECEIPT])
    stats = stride - STATS
    n = len(scores)
    for i in range(n):
        if first <= slots[i] < last:
            row = rows[slots[i] * stride : (slots[i] + 1) * stride]
            j = heads[i]
            while j >= 0:
                learn_late(spec, row, stats, scores[j], forecasts[j], cells[j], outcomes[j], q, j * width)
                j = following[j]
            forecast, cell, _, _, _, _, _, _, _, _, _ = predict(
                spec, row, scores[i], u[i] if hedged else 0.0, q, i * width
            )
            forecasts[i], cells[i] = forecast, cell
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock + i + 1.0
    j = heads[n]
    while j >= 0:
        if first <= slots[j] < last:
            row = rows[slots[j] * stride : (slots[j] + 1) * stride]
            learn_late(spec, row, stats, scores[j], forecasts[j], cells[j], outcomes[j], q, j * width)
        j = following[j]
