r"""MULTI, for one event of K classes: what each stage says, and how each learns.

::

    READ       f_k = max(score_k, 1e-7) / sum;  x_k = ln max(score_k, 1e-7);  u_k = 1[score_k <= 1e-7];  j = argmax
    LANES      e_l = softmax(a_l x + c_l f + d_l u + b_l), l = 0..3;   o = softmax(A x)
               m = sum_l w_l e_l + w_4 f + w_5 o
    FACTORS    s_k ~ m_k interp(rho_k, m_k), knots (0, .01, .1, .5, .9, 1)
    CONFUSION  r_k ~ s_k kappa[j, k]                                              (K <= 64)
               c = v_0 m + v_1 s + v_2 r
    TOP        i = argmax c;  C = c_i, D = 1 - C;  offset = interp(offsets, 10 C)
               t = C/(C + D e^-offset);  p_i = z_0 C + z_1 t, the others c_k scaled
    GUARD      forecast = (g_0 p + g_1 o + 1e-7) / (1 + K 1e-7)

A label y comes ``lag`` labels after its forecast, as the n-th: alpha = .5/n, tau = 1/(1 + lag/10). Each stage is asked
again at the row of now, so the receipt is small; only the guard judges what was issued. What each stage
says is in `ask`, how it learns in `learn`, where its numbers lie in `layout`.
"""

from __future__ import annotations

from calibeat._util.types import Vector
from calibeat.core.auto import EPS
from calibeat.core.jit import compilable
from calibeat.core.spline import EXPERT_KNOTS, knot, move_knots

from .ask import ask_lanes, ask_stages, ask_top, online_temperature, read
from .layout import (
    HEAD,
    ISSUED_SLOPE,
    KNOWN,
    MULTI,
    OFFSET,
    ONLINE_TEMPERATURE,
    SCORE,
    SEEN,
    SLOPE,
    TOP,
    TOP_SHARE,
    TOP_SPLINE,
    G,
    N,
)
from .learn import compound, learn_biases, learn_factors, learn_shared, slope_step, weigh


@compilable
def ask(method: int, K: int, row: Vector, score: Vector, work: Vector, p: Vector) -> None:
    """Everything that the row of now says of a score, into the scratch; the expert into p."""
    read(K, score, work)
    if method == ONLINE_TEMPERATURE:
        online_temperature(K, row[2], work, HEAD + 7 * K)
    elif method == MULTI:
        ask_lanes(K, row, work)
        ask_stages(K, row, work)
        ask_top(K, row, work, p)


@compilable
def predict(method: int, K: int, row: Vector, score: Vector, receipt: Vector, work: Vector, forecast: Vector) -> None:
    """Forecast one event; the row is read only. What a late label needs goes into the receipt."""
    p = receipt[SCORE + K :]
    receipt[SEEN] = row[N]
    for k in range(K):
        receipt[SCORE + k] = score[k]
    ask(method, K, row, score, work, p)
    if method == MULTI:
        receipt[ISSUED_SLOPE] = row[SLOPE]
        o = work[HEAD + 7 * K : HEAD + 8 * K]
        g0, g1, scale = row[G], row[G + 1], 1.0 / (1.0 + K * EPS)
        for k in range(K):
            forecast[k] = (g0 * p[k] + g1 * o[k] + EPS) * scale
    else:
        receipt[ISSUED_SLOPE] = row[2] if method == ONLINE_TEMPERATURE else 1.0
        at = HEAD + 7 * K if method == ONLINE_TEMPERATURE else HEAD + K
        ours = work[at : at + K]
        for k in range(K):
            forecast[k] = ours[k]


@compilable
def settle(method: int, K: int, row: Vector, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn label y; the scratch holds what the row of now says, `issued` is the forecast that y had."""
    if method == MULTI:
        n = row[N] + 1.0
        lag = row[N] - receipt[SEEN]
        weigh(K, row, n, lag, y, receipt, work)
        for lane in range(4):
            learn_shared(K, row, lane, y, work)
        for lane in range(4):
            learn_biases(K, row, lane, y, work)
        slope_step(K, row, SLOPE, y, work)
        learn_factors(K, row, y, work)
        C, t = work[TOP_SHARE], work[TOP_SPLINE]
        j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
        move_knots(row, OFFSET + j, KNOWN + j, h, t, 1.0 if y == int(work[TOP]) else 0.0)
    elif method == ONLINE_TEMPERATURE:
        slope_step(K, row, 2, y, work)
    given = receipt[SCORE + y]
    compound(row, len(row) - 2, issued / (given if given > EPS else EPS))
    row[N] += 1.0


@compilable
def update(method: int, K: int, row: Vector, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn a label that may be late: everything is asked again at the row of now."""
    # Nobody needs the expert of now; the receipt keeps the issued one.
    ask(method, K, row, receipt[SCORE : SCORE + K], work, work[HEAD + 12 * K : HEAD + 13 * K])
    settle(method, K, row, y, receipt, work, issued)
