"""Martingale intervals for many classes: the sums of `judge.intervals`, with residuals over K labels.

Letters: s_j(k) is the loss that method j has if the label is k, r the forecast of the method with the least log-loss so
far, y the label, D_j = s_j - s_raw::

    d_j - E[d_j | past] = D_j(y) - sum_k mu_k D_j(k)
    V_resid(i, j) = sum (D_i(y) - E_r D_i) (D_j(y) - E_r D_j)          V_model(i, j) = sum Cov_r(D_i, D_j)

E[(D(y) - E_r D)^2 | past] = Var_mu D + (E_mu D - E_r D)^2, so V_resid errs on the safe side for every r. For two
classes these are the sums of the binary intervals.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.judge.intervals import BRIER, LOG_LOSS, MODEL, RESID, Intervals, close_run
from calibeat.core.auto import EPS
from calibeat.core.calibeating import bin_of
from calibeat.core.jit import compilable, for_size


@compilable
def count_classes(
    K: int,
    P: Vector,
    labels: Ints,
    place: Ints,
    clip: float,
    bins: int,
    run: int,
    lead: Vector,
    L: Vector,
    S: Vector,
    B4: Vector,
    G: Vector,
    C: Vector,
    own: Vector,
    Q: Vector,
    T: Vector,
    state: Vector,
    s: Vector,
    e: Vector,
    gap: Vector,
    cell: Ints,
) -> None:
    """Add a chunk of events. P[j, t, k] are forecasts, the raw scores first.

    `place` < 0: the event does not count; 0: it is of the warm-up and counts for `lead` only.
    """
    methods = P.shape[0]
    for t in range(len(labels)):
        if place[t] < 0:
            continue
        y, best = labels[t], 0
        for j in range(1, methods):
            if lead[j] < lead[best]:
                best = j
        for j in range(methods):
            loss = -math.log(max(P[j, t, y], clip))
            lead[j] += loss
            if place[t] > 0:
                L[LOG_LOSS, j] += loss
        if place[t] == 0:
            continue
        state[0] += 1.0
        count_tops(K, P, t, y, best, bins, L, G, C, own, gap, cell)
        losses_by_class(K, P, t, y, best, clip, s, e)
        add_products(K, P, t, best, s, e, S, B4, Q)
        if run > 0 and state[0] % run == 0.0:
            close_run(methods, Q, T, state)


@compilable
def count_tops(
    K: int,
    P: Vector,
    t: int,
    y: int,
    best: int,
    bins: int,
    L: Vector,
    G: Vector,
    C: Vector,
    own: Vector,
    gap: Vector,
    cell: Ints,
) -> None:
    """The Brier score of each method, and its top class: the bin of its confidence, whether it was right, r of it."""
    for j in range(P.shape[0]):
        top, squares = 0, 0.0
        for k in range(K):
            p = P[j, t, k]
            squares += p * p
            if p > P[j, t, top]:
                top = k
        L[BRIER, j] += squares - 2.0 * P[j, t, y] + 1.0
        hit, chance = 1.0 if top == y else 0.0, P[best, t, top]
        cell[j] = bin_of(P[j, t, top], float(bins))
        G[j, cell[j]] += P[j, t, top] - hit
        gap[j] = hit - chance
        own[RESID, j, cell[j]] += gap[j] * gap[j]
        own[MODEL, j, cell[j]] += chance * (1.0 - chance)
        C[RESID, j, cell[0], cell[j]] += gap[0] * gap[j]


@compilable
def losses_by_class(K: int, P: Vector, t: int, y: int, best: int, clip: float, s: Vector, e: Vector) -> None:
    """s <- D_j(k) - E_r D_j of both measures, and e <- its value at the label."""
    for j in range(P.shape[0]):
        for k in range(K):
            s[LOG_LOSS, j, k] = -math.log(max(P[j, t, k], clip))
            s[BRIER, j, k] = -2.0 * P[j, t, k]  # without what is the same for every label
            if j > 0:
                s[LOG_LOSS, j, k] -= s[LOG_LOSS, 0, k]
                s[BRIER, j, k] -= s[BRIER, 0, k]
    for m in range(2):
        for j in range(1, P.shape[0]):
            mean = 0.0
            for k in range(K):
                mean += P[best, t, k] * s[m, j, k]
            for k in range(K):
                s[m, j, k] -= mean
            e[m, j] = s[m, j, y]


@compilable
def add_products(K: int, P: Vector, t: int, best: int, s: Vector, e: Vector, S: Vector, B4: Vector, Q: Vector) -> None:
    """The products of the contrasts of one event: at its label, and in the mean if r were right."""
    methods = P.shape[0]
    for m in range(2):
        for j in range(1, methods):
            Q[m, j] += e[m, j]
            B4[m, j] += e[m, j] * e[m, j] * e[m, j] * e[m, j]
            for i in range(1, j + 1):
                v = 0.0
                for k in range(K):
                    v += P[best, t, k] * s[m, i, k] * s[m, j, k]
                S[RESID, m, i, j] += e[m, i] * e[m, j]
                S[MODEL, m, i, j] += v


class ClassIntervals(Intervals):
    """`Intervals` over forecasts of K classes; the calibration error is that of the top class's confidence."""

    def __init__(self, methods: int, K: int, bins: int = 10, runs: int = 0, clip: float = EPS) -> None:
        super().__init__(methods, bins, runs, clip)
        self.K = K
        self.own = np.zeros((2, methods, bins))  # variance of the hits in each bin of a method

    def add_classes(self, forecasts: Vector, labels: Ints, place: Ints) -> None:
        """Count a chunk; forecasts[j, t, k] of method j for event t and class k."""
        for_size(count_classes, 10 * forecasts.size)(
            self.K,
            forecasts,
            labels,
            place,
            self.clip,
            self.bins,
            self.runs,
            self.lead,
            self.losses,
            self.products,
            self.fourths,
            self.gaps,
            self.cells,
            self.own,
            self._run,
            self.run_products,
            self._state,
            np.empty((2, self.methods, self.K)),
            np.empty((2, self.methods)),
            np.empty(self.methods),
            np.empty(self.methods, dtype=np.int64),
        )

    def luck(self, method: int) -> float:
        """The calibration error that perfectly calibrated confidences in these bins show on average by luck."""
        variance = np.maximum(self.own[RESID, method], self.own[MODEL, method])
        return math.sqrt(2.0 / math.pi) * float(np.sqrt(variance).sum()) / max(1, self.events)

    def spread(self, method: int) -> Vector:
        """The covariance of the gaps of the raw scores' bins and of a method's."""
        both = self.cells[RESID, method]
        return np.block([[np.diag(self.own[RESID, 0]), both], [both.T, np.diag(self.own[RESID, method])]])
