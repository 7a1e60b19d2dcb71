"""How a new key starts from what all keys have taught: the pool's parameters, with a new stream's readiness to learn.

A calibrator of the same method, the pool, learns from every outcome of every key. A key that is new then starts

- at the pool's parameters, with the matrix (or, three tenths of the way, the variances) of a new stream,
- with cells of `Tracking` that have seen up to 20 imaginary events of the pool's mean outcome,
- and with everything else as new: hedging and evidence speak of the key's own outcomes alone.
"""

from __future__ import annotations

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.jit import compilable
from calibeat.core.kernel import ask, play, settle, start_from
from calibeat.core.layout import N


@compilable
def start_row(spec: Vector, pool: Vector, fresh: Vector, row: Vector) -> None:
    """Make `row`, which may be longer than the state, that of a new key."""
    for i in range(len(row)):
        row[i] = fresh[i] if i < len(fresh) else 0.0
    start_from(spec, pool, row)


@compilable
def pool_rows(
    spec: Vector,
    pool: Vector,
    fresh: Vector,
    rows: Vector,
    stride: int,
    slots: Slots,
    opened: int,
    scores: Vector,
    outcomes: Vector,
    receipt: Vector,
) -> None:
    """The pool's way through a batch; each slot from `opened` on starts when its first event comes."""
    for i in range(len(scores)):
        if slots[i] == opened:
            start_row(spec, pool, fresh, rows[opened * stride : (opened + 1) * stride])
            opened += 1
        if outcomes[i] == outcomes[i]:
            learn(spec, pool, scores[i], outcomes[i], receipt)


@compilable
def learn(spec: Vector, pool: Vector, score: float, y: float, receipt: Vector) -> None:
    """The pool forecasts when an outcome arrives, and learns it at once. Its forecasts are not used."""
    x0, x1, x2, p, z = ask(spec, pool, score, receipt, 0, False)
    _, cell, _, _, _, _ = play(spec, pool, p, x0, x1, 0.0, receipt, 0, False)
    settle(spec, pool, pool[N] + 1.0, x0, x1, x2, p, z, cell, y, receipt, 0, False)


@compilable
def pool_late_rows(
    spec: Vector,
    pool: Vector,
    fresh: Vector,
    rows: Vector,
    stride: int,
    slots: Slots,
    opened: int,
    scores: Vector,
    outcomes: Vector,
    arriving: Ints,
    following: Ints,
    receipt: Vector,
) -> None:
    """The same with outcomes that come late: before event i those of arriving[i], following[arriving[i]], ..."""
    for i in range(len(arriving)):
        j = arriving[i]
        while j >= 0:
            learn(spec, pool, scores[j], outcomes[j], receipt)
            j = following[j]
        if i < len(scores) and slots[i] == opened:
            start_row(spec, pool, fresh, rows[opened * stride : (opened + 1) * stride])
            opened += 1
