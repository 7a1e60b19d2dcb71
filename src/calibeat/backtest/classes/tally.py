"""Tallies of forecasts of many classes. Memory does not grow with the log.

Blocks, bins and sums are those of the binary `Tally`, with the confidence of the top class as the forecast and "it was
right" as the outcome. Beside them stands what each class got, over the whole log and in stretches of it.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.replay.tally import Tally
from calibeat.core.auto import EPS
from calibeat.core.calibeating import bin_of
from calibeat.core.jit import compilable, for_size
from calibeat.metrics import calibration_error_of_gaps

MOST_STRETCHES = 256  # of the log: an even number, because neighbours are merged


@compilable
def tally_classes(
    K: int,
    P: Vector,
    labels: Ints,
    place: Ints,
    raw: Vector,
    bins: int,
    cells: Vector,
    sums: Vector,
    by_class: Vector,
    running: Vector,
) -> None:
    """Count each event in the block `place` (none if negative). `raw` are the scores as they came.

    `running` is the log e-value, its maximum, and what the clip took off the log-loss.
    """
    m = float(bins)
    for i in range(len(labels)):
        block = place[i]
        if block < 0:
            continue
        p, y = P[i * K : (i + 1) * K], labels[i]
        top, squares = 0, 0.0
        for k in range(K):
            squares += p[k] * p[k]
            if p[k] > p[top]:
                top = k
        hit = 1.0 if top == y else 0.0
        at = 3 * (block * bins + bin_of(p[top], m))
        cells[at] += 1.0
        cells[at + 1] += p[top]
        cells[at + 2] += hit
        loss = -math.log(p[y])
        # Against true probabilities a score that counts as at least 1e-7 makes no bet that wins in the mean.
        log_e = -math.log(max(raw[i * K + y], EPS)) - loss
        clipped = min(loss, -math.log(EPS))
        running[2] += loss - clipped
        at = 4 * block
        sums[at] += clipped
        sums[at + 1] += squares - 2.0 * p[y] + 1.0
        sums[at + 2] += hit
        sums[at + 3] += log_e
        if block > 0:
            running[0] += log_e
            running[1] = max(running[0], running[1])
            for k in range(K):
                at = 3 * (k * bins + bin_of(p[k], m))
                by_class[at] += 1.0
                by_class[at + 1] += p[k]
            by_class[3 * (y * bins + bin_of(p[y], m)) + 2] += 1.0


class ClassTally(Tally):
    """The tally of one method; `by_class` is classes x bins x (count, sum of forecasts, labels), of judged events."""

    def __init__(self, bins: int, K: int) -> None:
        super().__init__(bins)
        self.K = K
        self._by_class = np.zeros(K * bins * 3)

    def count_classes(self, P: Vector, labels: Ints, place: Ints, raw: Vector) -> None:
        """Count a chunk: forecasts and scores are matrices of K columns."""
        for_size(tally_classes, P.size)(
            self.K,
            P.reshape(-1),
            labels,
            place,
            raw.reshape(-1),
            self.bins,
            self._cells,
            self._sums,
            self._by_class,
            self.running,
        )

    @property
    def by_class(self) -> Vector:
        return self._by_class.reshape(self.K, self.bins, 3)

    @property
    def errors(self) -> Vector:
        """The calibration error of "is it this class?" for each class."""
        count, forecast, outcome = np.moveaxis(self.by_class, 2, 0)
        return np.asarray(calibration_error_of_gaps(forecast - outcome, np.maximum(count.sum(axis=1), 1.0)))

    @property
    def classwise_error(self) -> float:
        """The mean of `errors`."""
        return float(self.errors.mean())


class Stretches:
    """Sums by class over stretches of as many events each, which double when there are too many of them.

    `sums` is rows x stretches x classes: the labels, the raw scores, then the forecasts of each method.
    """

    def __init__(self, rows: int, K: int) -> None:
        self.length = 1
        self.sums = np.zeros((rows, MOST_STRETCHES, K))
        self.begin: list[int] = []  # number or time of the first event of each

    def room_for(self, events: int) -> int:
        """How often neighbours had to be merged so that so many events have room."""
        merged = 0
        while events > self.length * MOST_STRETCHES:
            half = MOST_STRETCHES // 2
            self.sums[:, :half] = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums[:, half:] = 0.0
            self.begin = self.begin[::2]
            self.length *= 2
            merged += 1
        return merged

    def starts(self, first: int, count: int) -> Ints:
        """Which events of a chunk, the first of which has the number `first`, begin a stretch."""
        return np.arange(-(-first // self.length) * self.length, first + count, self.length) - first

    def add(self, row: int, first: int, values: Vector) -> None:
        """Add a matrix with a row for each event from number `first` on."""
        if len(values):
            cuts = np.union1d([0], self.starts(first, len(values))).astype(np.int64)
            stretch = (first + cuts) // self.length
            self.sums[row, stretch] += np.add.reduceat(values, cuts, axis=0)

    @property
    def used(self) -> int:
        return len(self.begin)
