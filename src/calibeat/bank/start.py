r"""How a new key starts from what all keys have taught: the pool's parameters, with a new stream's readiness to learn.

A calibrator of the same method, the pool, learns from every outcome of every key. A key that is new then starts

- at the pool's parameters, with the matrix (or, three tenths of the way, the variances) of a new stream,
- with cells of `Tracking` that have seen up to 20 imaginary events of the pool's mean outcome,
- and with everything else as new: hedging and evidence speak of the key's own outcomes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.calibeating import MOST_IMAGINED, TRACK
from calibeat.core.jit import kernel, plain
from calibeat.core.kernel import BINS, CALIBEATER, CELLS, LEARNER, D, N, predict, settle
from calibeat.core.learners import AIOLI_STEP, LANES, THETA, matrix, solve, store_theta
from calibeat.core.mixtures import OA, OB, PAA, SLOPE, WEIGHT

if TYPE_CHECKING:
    from .bank import Bank

WIDTH = 0.3  # of the way from the pool's variances, which are too small for a key, to those of a new stream


@kernel
def start_row(spec: Vector, pool: Vector, fresh: Vector, row: Vector) -> None:
    """Make `row`, which may be longer than the state, that of a new key."""
    for i in range(len(row)):
        row[i] = fresh[i] if i < len(fresh) else 0.0
    if spec[LEARNER] == LANES:
        for i in range(SLOPE, PAA):
            row[i] = pool[i]
        for i in range(PAA, WEIGHT):
            row[i] = pool[i] + WIDTH * (fresh[i] - pool[i])
        row[OA], row[OB] = pool[OA], pool[OB]
    elif spec[LEARNER] == AIOLI_STEP:
        start_aioli(spec[D], pool, fresh, row)
    else:
        for i in range(THETA, THETA + int(spec[D])):
            row[i] = pool[i]
    if spec[CALIBEATER] == TRACK:
        cells = int(spec[CELLS])
        for at in range(cells, cells + 2 * int(spec[BINS]), 2):
            count = pool[at + 1]
            if count > 0.0:
                seen = min(MOST_IMAGINED, count)
                row[at] = seen * (pool[at] / count)
                row[at + 1] = seen


@kernel
def start_aioli(d: float, pool: Vector, fresh: Vector, row: Vector) -> None:
    """Its parameters are -Q^-1 c: take the c that gives those of the pool with the Q = scale I of a new stream."""
    a00, a01, a02, a11, a12, a22 = matrix(pool, d)
    c1 = pool[THETA + 1] if d > 1.0 else 0.0
    c2 = pool[THETA + 2] if d > 2.0 else 0.0
    w0, w1, w2 = solve(d, a00, a01, a02, a11, a12, a22, pool[THETA], c1, c2)
    scale = fresh[THETA + int(d)]
    store_theta(row, d, scale * w0, scale * w1, scale * w2)


@kernel
def pool_rows(
    spec: Vector, pool: Vector, fresh: Vector, rows: Vector, stride: int, slots: Slots, opened: int,
    scores: Vector, outcomes: Vector, q: Vector,
) -> None:  # fmt: skip
    """The pool's way through a batch; each slot from `opened` on starts when its first event comes."""
    for i in range(len(scores)):
        if slots[i] == opened:
            start_row(spec, pool, fresh, rows[opened * stride : (opened + 1) * stride])
            opened += 1
        if outcomes[i] == outcomes[i]:
            learn(spec, pool, scores[i], outcomes[i], q)


@kernel
def learn(spec: Vector, pool: Vector, score: float, y: float, q: Vector) -> None:
    """The pool forecasts when an outcome arrives, and learns it at once: nobody is served by its forecasts."""
    _, cell, x0, x1, x2, p, z, _, _, _, _ = predict(spec, pool, score, 0.0, q, 0)
    settle(spec, pool, pool[N] + 1.0, x0, x1, x2, p, z, cell, y, q, 0)


@kernel
def pool_late_rows(
    spec: Vector, pool: Vector, fresh: Vector, rows: Vector, stride: int, slots: Slots, opened: int,
    scores: Vector, outcomes: Vector, arriving: Ints, following: Ints, q: Vector,
) -> None:  # fmt: skip
    """The same with outcomes that come late: before event i those of arriving[i], following[arriving[i]], ..."""
    for i in range(len(scores)):
        j = arriving[i]
        while j >= 0:
            learn(spec, pool, scores[j], outcomes[j], q)
            j = following[j]
        if slots[i] == opened:
            start_row(spec, pool, fresh, rows[opened * stride : (opened + 1) * stride])
            opened += 1


# ---- by a bank ---------------------------------------------------------------------------------------------------


def fresh_row(bank: Bank) -> Vector:
    """The row that a new key would get now."""
    row = np.empty(bank._method.width)
    if bank._prior:
        plain(start_row)(bank._method.spec, bank._pool, bank._store.fresh, row)
    else:
        row[:] = bank._store.fresh
    return row


def pool_after(bank: Bank, score: float, y: float) -> Vector:
    """The pool when it has learnt an outcome that came alone; the bank's own stays as it is."""
    if not bank._prior:
        return bank._pool
    pool = bank._pool.copy()
    plain(learn)(bank._method.spec, pool, score, y, np.empty(bank._method.receipt_width))
    return pool
