"""Many streams in one matrix: a row for each, and behind its state six numbers of book-keeping.

The loops here only choose the row; what happens to it is `kernel.predict` and `kernel.settle`, as for one stream.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector
from calibeat.core.calibeating import HEDGE
from calibeat.core.jit import compiled, kernel
from calibeat.core.kernel import CALIBEATER, predict, settle
from calibeat.core.prefetch import prefetch

Slots = npt.NDArray[np.int32]

# ---- behind the state of a stream --------------------------------------------------------------------------------
EVENTS = 0  # forecasts made
LAST = 1  # the bank's own count of events when the last of them was made
RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER = 2, 3, 4, 5  # sums over the outcomes learnt, of the scores and the forecasts
BOOKS = 6

LINE = 8  # numbers in a cache line
AHEAD = 6  # how many events before its turn a row is asked for
MOST_FETCHED = 160  # numbers of a row: of a longer one (HOPS) an event needs only a part

CLIP = 1e-5  # no logarithm sees a probability nearer to 0 or 1: a bin that has seen one outcome says just that


@kernel
def log_loss(p: float, y: float) -> float:
    """-log of the probability that p, clipped, gave to y."""
    p = p if y == 1.0 else 1.0 - p
    return -math.log(max(CLIP, p))


@kernel
def book(row: Vector, at: int, score: float, forecast: float, y: float) -> None:
    """Add what an outcome cost the score and the forecast."""
    row[at + RAW_LOG_LOSS] += log_loss(score, y)
    row[at + LOG_LOSS] += log_loss(forecast, y)
    row[at + RAW_BRIER] += (score - y) * (score - y)
    row[at + BRIER] += (forecast - y) * (forecast - y)


@kernel
def run_rows(
    spec: Vector, rows: Vector, stride: int, slots: Slots, first: int, last: int, clock: float,
    scores: Vector, outcomes: Vector, u: Vector, forecasts: Vector, q: Vector,
) -> None:  # fmt: skip
    """Predict, then learn, event after event, each on the row of its slot; only the slots from first to last."""
    hedged = spec[CALIBEATER] == HEDGE
    reach = min(stride, MOST_FETCHED)
    books = stride - BOOKS
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
            row[books + EVENTS] += 1.0
            settle(spec, row, row[books + EVENTS], x0, x1, x2, p, z, cell, y, q, 0)
            row[books + LAST] = clock + i + 1.0
            book(row, books, score, forecast, y)
            forecasts[i] = forecast


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


@kernel
def book_late(
    books: Vector, scores: Vector, forecasts: Vector, outcomes: Vector, order: npt.NDArray[np.int64]
) -> None:  # fmt: skip
    """The outcomes of one stream that came late, in the order in which they came."""
    for i in order:
        book(books, 0, scores[i], forecasts[i], outcomes[i])
