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
from calibeat.core.kernel import as_auto, ask, is_auto, play, settle, start_from
from calibeat.core.layout import N, Spec
from calibeat.core.loops import Batch, outcome_of
from calibeat.core.receipt import MOST_RECEIPT
from calibeat.core.subset import entry, kernel, loop, scratch
from calibeat.core.vector import FORECAST, block
from calibeat.core.vector import play as play_classes
from calibeat.core.vector import start_from as start_classes
from calibeat.core.weights import Outcome

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
def learn_label(method: int, K: int, row: Vector, score: Vector, outcome: Outcome, work: Vector) -> None:
    """`learn` for K classes."""
    play_classes(method, K, row, row[N] + 1.0, score, outcome, work, block(K, work, FORECAST))


@kernel
def learn(spec: Spec, pool: Pool, score: Vector, outcome: Outcome) -> float:
    """The pool forecasts when an outcome arrives, and learns it at once, unless it is NaN -> the forecast.

    A score is an array of one number, or of K, whose forecasts nobody reads: it is 0 then.
    """
    row = pool.row
    receipt = scratch(MOST_RECEIPT)
    if spec.classes > 0:
        learn_label(spec.vector, spec.classes, row, score, outcome, pool.work)
        return 0.0
    asked = ask(spec, row, score[0], receipt)
    played = play(spec, row, asked, 0.0, receipt)
    if outcome.y == outcome.y:
        settle(spec, row, row[N] + 1.0, asked, played.cell, outcome, receipt)
    return played.forecast


@loop
def pool_rows(
    spec: Spec, pool: Pool, rows: Vector, stride: int, slots: Slots, batch: Batch, arriving: Ints, following: Ints
) -> None:
    """The pool's way through a batch; each new slot starts when its first event comes.

    Outcomes come at once; or late, before event i those of arriving[i], following[arriving[i]], ...
    """
    if len(arriving) > 0:
        pool_loop(spec, pool, rows, stride, slots, batch, arriving, following, True)
    elif spec.classes == 0 and is_auto(spec):
        auto = as_auto(spec)._replace(classes=0)
        pool_loop(auto, pool, rows, stride, slots, batch, arriving, following, False)
    else:
        pool_loop(spec, pool, rows, stride, slots, batch, arriving, following, False)


@kernel
def pool_loop(
    spec: Spec,
    pool: Pool,
    rows: Vector,
    stride: int,
    slots: Slots,
    batch: Batch,
    arriving: Ints,
    following: Ints,
    delayed: bool,
) -> None:
    """The loop of `pool_rows`; `delayed` is a constant."""
    opened, size, said, events = pool.opened, max(1, spec.classes), pool.said, len(batch.outcomes)
    weighted = len(batch.weights) > 0 or len(batch.trials) > 0
    for i in range(len(arriving) if delayed else events):
        if delayed:
            j = arriving[i]
            while j >= 0:
                learn(spec, pool, batch.scores[j * size : (j + 1) * size], outcome_of(batch, j, weighted))
                j = following[j]
        if i < events and slots[i] == opened:
            start_row(spec, pool, rows[opened * stride : (opened + 1) * stride])
            opened += 1
        if not delayed:
            outcome, asked_for = outcome_of(batch, i, weighted), i < len(said)
            if asked_for or outcome.y == outcome.y:
                forecast = learn(spec, pool, batch.scores[i * size : (i + 1) * size], outcome)
                if asked_for:
                    said[i] = forecast
