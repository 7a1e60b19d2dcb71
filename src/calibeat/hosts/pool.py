"""How a new key starts from what all keys have taught: the pool's parameters, with a new stream's readiness to learn.

A calibrator of the same method, the pool, learns from every outcome of every key. A key that is new then starts

- at the pool's parameters, with the matrix (or, three tenths of the way, the variances) of a new stream,
- with cells of `Tracking` that have seen up to 20 imaginary events of the pool's mean outcome,
- and with everything else as new: hedging and evidence speak of the key's own outcomes alone.
"""

from __future__ import annotations

from typing import NamedTuple

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.kernel import ask, play, settle, start_from
from calibeat.core.layout import N, Spec
from calibeat.core.receipt import MOST_RECEIPT
from calibeat.core.subset import entry, scratch


class Pool(NamedTuple):
    """The pool's row, if it `learns`; the row of a key that has seen nothing; the first slot of a new key."""

    learns: bool
    row: Vector
    fresh: Vector
    opened: int


@entry
def start_row(spec: Spec, pool: Pool, row: Vector) -> None:
    """Make `row`, which may be longer than the state, that of a new key."""
    for i in range(len(row)):
        row[i] = pool.fresh[i] if i < len(pool.fresh) else 0.0
    start_from(spec, pool.row, row)


@entry
def learn(spec: Spec, pool: Vector, score: float, y: float) -> None:
    """The pool forecasts when an outcome arrives, and learns it at once. Its forecasts are not used."""
    receipt = scratch(MOST_RECEIPT)
    asked = ask(spec, pool, score, receipt)
    played = play(spec, pool, asked, 0.0, receipt)
    settle(spec, pool, pool[N] + 1.0, asked, played.cell, y, receipt)


@entry
def pool_rows(
    spec: Spec, pool: Pool, rows: Vector, stride: int, slots: Slots, scores: Vector, outcomes: Vector
) -> None:
    """The pool's way through a batch; each new slot starts when its first event comes."""
    opened = pool.opened
    for i in range(len(scores)):
        if slots[i] == opened:
            start_row(spec, pool, rows[opened * stride : (opened + 1) * stride])
            opened += 1
        if outcomes[i] == outcomes[i]:
            learn(spec, pool.row, scores[i], outcomes[i])


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
    opened = pool.opened
    for i in range(len(arriving)):
        j = arriving[i]
        while j >= 0:
            learn(spec, pool.row, scores[j], outcomes[j])
            j = following[j]
        if i < len(scores) and slots[i] == opened:
            start_row(spec, pool, rows[opened * stride : (opened + 1) * stride])
            opened += 1
