"""Many streams in one matrix: a row for each, and behind its state the six numbers of `stats`.

The loops here only choose the row; what happens to it is `kernel.predict` and `kernel.settle`, as for one stream.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector
from calibeat.core.calibeating import HEDGE
from calibeat.core.jit import compiled, kernel
from calibeat.core.kernel import CALIBEATER, predict, settle
from calibeat.core.prefetch import prefetch

from .stats import CLIP, EVENTS, LAST, STATS, add_losses, log_loss

__all__ = ["CLIP", "Slots", "log_loss", "number_events", "numbered", "predict_rows", "run_rows"]

Slots = npt.NDArray[np.int32]

LINE = 8  # numbers in a cache line
AHEAD = 6  # how many events before its turn a row is asked for
MOST_FETCHED = 160  # numbers of a row: of a longer one (HOPS) an event needs only a part


@kernel
def run_rows(
    spec: Vector, rows: Vector, stride: int, slots: Slots, first: int, last: int, clock: float,
    scores: Vector, outcomes: Vector, u: Vector, forecasts: Vector, q: Vector,
) -> None:  # fmt: skip
    """Predict, then learn, event after event, each on the row of its slot; only the slots from first to last.

    An outcome that is missing (NaN) is not learnt.
    """
    hedged = spec[CALIBEATER] == HEDGE
    reach = min(stride, MOST_FETCHED)
    stats = stride - STATS
    for i in range(len(scores)):
        ahead = slots[i + AHEAD] if i + AHEAD < len(scores) else -1
        if first <= ahead < last:
            for at in range(ahead * stride, ahead * stride + reach, LINE):
                prefetch(rows, at)
            prefetch(rows, ahead * stride + stride - 1)
        if first <= slots[i] < last:
            row = rows[slots[i] * stride : (slots[i] + 1) * stride]
            score, y = scores[i], outcomes[i]
            forecast, cell, x0, x1, x2, p, z, _, _, _, _ = predict(spec, row, score, u[i] if hedged else 0.0, q, 0)
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock + i + 1.0
            forecasts[i] = forecast
            if y == y:  # noqa: PLR0124 - NaN is not
                settle(spec, row, row[stats + EVENTS], x0, x1, x2, p, z, cell, y, q, 0)
                add_losses(row, stats, score, forecast, y)


@kernel
def predict_rows(
    spec: Vector, rows: Vector, stride: int, fresh: Vector, slots: Slots,
    scores: Vector, u: Vector, forecasts: Vector, q: Vector,
) -> None:  # fmt: skip
    """Forecast each score from the row of its slot, or from the fresh row where it has none."""
    hedged = spec[CALIBEATER] == HEDGE
    for i in range(len(scores)):
        row = rows[slots[i] * stride : (slots[i] + 1) * stride] if slots[i] >= 0 else fresh
        forecasts[i] = predict(spec, row, scores[i], u[i] if hedged else 0.0, q, 0)[0]


@kernel
def number_events(counts: Vector, slots: Slots, numbers: npt.NDArray[np.int64]) -> None:
    """Which event of its own stream each event is; `counts` says how many each stream has had, and is counted on."""
    for i in range(len(slots)):
        numbers[i] = int(counts[slots[i]])
        counts[slots[i]] += 1.0


def numbered(counts: Vector, slots: Slots) -> npt.NDArray[np.uint64]:
    """The numbers of events, as counter-based randomness wants them."""
    numbers = np.empty(len(slots), dtype=np.int64)
    compiled(number_events)(counts, slots, numbers)
    return numbers.view(np.uint64)
