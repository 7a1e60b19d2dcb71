"""How a new key starts from what all keys have taught: the pool's parameters, with a new stream's readiness to learn.

A calibrator of the same method, the pool, learns from every outcome of every key. A key that is new then starts

- at the pool's parameters, with the matrix (or, three tenths of the way, the variances) of a new stream,
- with cells of `Tracking` that have seen up to 20 imaginary events of the pool's mean outcome,
- and with everything else as new: hedging and evidence speak of the key's own outcomes alone.

Of K classes, a key takes the parameters of the four lanes and the slope of the online temperature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.kernel import ask, play, settle, start_from
from calibeat.core.layout import N, Spec
from calibeat.core.loops import as_auto, is_auto
from calibeat.core.receipt import MOST_RECEIPT
from calibeat.core.subset import entry, kernel, loop, scratch
from calibeat.core.vector import FORECAST, block
from calibeat.core.vector import play as play_classes
from calibeat.core.vector import start_from as start_classes

NO_WORK: Vector = np.empty(0)


class Pool(NamedTuple):
    """The pool's row, if it `learns`; the row of a key that has seen nothing; the first slot of a new key.

    `work` is scratch for K classes, as that of `Batch`. Of two classes, `pool_rows` leaves in `said` what the pool
    forecasts, where there is room: it is a stream that learns from all events.
    """

    learns: bool
    row: Vector
    fresh: Vector
    opened: int
    work: Vector = NO_WORK
    said: Vector = NO_WORK


@entry
def start_row(spec: Spec, pool: Pool, row: Vector) -> None:
    """Make `row`, which may be longer than the state, that of a new key."""
    for i in range(len(row)):
        row[i] = pool.fresh[i] if i < len(pool.fresh) else 0.0
    if spec.classes > 0:
        start_classes(spec.vector, spec.classes, pool.row, row)
    else:
        start_from(spec, pool.row, row)


@loop
def learn_label(method: int, K: int, row: Vector, score: Vector, y: float, work: Vector) -> None:
    """`learn` for K classes."""
    play_classes(method, K, row, row[N] + 1.0, score, y, work, block(K, work, FORECAST))


@entry
def learn(spec: Spec, pool: Pool, score: Vector, y: float) -> None:
    """The pool forecasts when an outcome arrives, and learns it at once. Its forecasts are not used.

    A score is an array of one number, or of K.
    """
    row = pool.row
    receipt = scratch(MOST_RECEIPT)
    if spec.classes > 0:
        learn_label(spec.vector, spec.classes, row, score, y, pool.work)
    else:
        asked = ask(spec, row, score[0], receipt)
        played = play(spec, row, asked, 0.0, receipt)
        settle(spec, row, row[N] + 1.0, asked, played.cell, y, receipt)


@loop
def pool_rows(
    spec: Spec, pool: Pool, rows: Vector, stride: int, slots: Slots, scores: Vector, outcomes: Vector
) -> None:
    """The pool's way through a batch; each new slot starts when its first event comes."""
    if spec.classes == 0 and is_auto(spec):
        pool_loop(as_auto(spec), pool, rows, stride, slots, scores, outcomes)
    else:
        pool_loop(spec, pool, rows, stride, slots, scores, outcomes)


@kernel
def pool_loop(
    spec: Spec, pool: Pool, rows: Vector, stride: int, slots: Slots, scores: Vector, outcomes: Vector
) -> None:
    """The loop of `pool_rows`."""
    opened, K, row, said = pool.opened, spec.classes, pool.row, pool.said
    receipt = scratch(MOST_RECEIPT)
    for i in range(len(outcomes)):
        y = outcomes[i]
        known = y == y  # noqa: PLR0124 - not NaN
        if slots[i] == opened:
            start_row(spec, pool, rows[opened * stride : (opened + 1) * stride])
            opened += 1
        if K > 0:
            if known:
                learn_label(spec.vector, K, row, scores[i * K : (i + 1) * K], y, pool.work)
        elif known or i < len(said):
            asked = ask(spec, row, scores[i], receipt)
            played = play(spec, row, asked, 0.0, receipt)
            if i < len(said):
                said[i] = played.forecast
            if known:
                settle(spec, row, row[N] + 1.0, asked, played.cell, y, receipt)


@entry
def pool_late_rows(
    spec: Spec,
    pool: Pool,
    rows: Vector,
    stride: int,
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    arriving: Ints,
    following: Ints,
) -> None:
    """The same with outcomes that come late: before event i those of arriving[i], following[arriving[i]], ..."""
    opened, size = pool.opened, max(1, spec.classes)
    for i in range(len(arriving)):
        j = arriving[i]
        while j >= 0:
            learn(spec, pool, scores[j * size : (j + 1) * size], outcomes[j])
            j = following[j]
        if i < len(outcomes) and slots[i] == opened:
            start_row(spec, pool, rows[opened * stride : (opened + 1) * stride])
            opened += 1
