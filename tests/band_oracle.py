"""The interval of a forecast ("band"): a readable scalar reference over the row of `auto_oracle`, the oracle.

read(record, row, score)                    -> Estimate     (pure; only when somebody asks)
learn(record, row, receipt, y, omega=1)     before the row learns y;  receipt: that of `auto_oracle.predict`
run(score, outcome, due, ...)               -> Run          a whole stream, with weights, counts and known thinning

All variances are those of a logit. The record is 68 numbers beside the row.

An outcome that is worth omega events (`auto_oracle.pace`) counts omega times, in blocks and in cells. The scale of the
weights makes the information that outcomes claim, sum omega h, equal to the variance of what they say, so the noise of
a block is 1/H with weights too.
"""

import math
from typing import NamedTuple

import auto_oracle
import numpy as np
from auto_oracle import (
    ATOM,
    ATOM_N0,
    DELAY,
    EPS,
    HP,
    HT,
    KL,
    KNOTS,
    L_CLIP,
    MKNOTS,
    ML,
    OA,
    OB,
    PAA,
    PAB,
    PAC,
    PBB,
    PCB,
    PCC,
    PRIOR,
    R_F,
    R_M,
    R_N,
    R_P,
    R_S,
    R_T,
    S1,
    WH,
    X_CLIP,
    X_MAX,
    A,
    B,
    C,
    N,
    V,
    W,
    clip,
    features,
    knot,
    sigmoid,
    tri,
)

# ---- constants -----------------------------------------------------------------------------------------------------
Z = 1.96  # half of the width, in standard deviations; the promise is 9 of 10
MISS = 0.05  # share of blocks that may lie outside
ETA_FIRST, ETA_LAST = 0.5, 0.1  # step of ln kappa: max(ETA_LAST, ETA_FIRST/(1 + K/10))
K_LOW, K_HIGH = 0.1, 400.0
H_LOW, H_HIGH = 2.5, 6.0  # information of a block: sum p(1-p)
CELLS, CELL, CELLS_MAX = 27, 0.5, 6.0  # on the score's logit, -6..6, and one for each end at the clip
AT_CLIP = 11.5  # the logit of a score at the clip is 11.51
TAU2_MOST, TAU2_LEAST = 4.0, 1e-9  # one surprise at a tiny p is not an infinite doubt
OK_LEAST, OK_SHARE = 20.0, 0.05  # a forecast was made with knowledge if it knew so many outcomes, and this share
RATE_SLOW, RATE_FAST, RATE_LEVEL = 1e-4, 1e-3, 1e-2  # drift of the lanes per event
MOST_LOGIT = 14.0  # of a lane
FEW, FEW_SIDE, UNTESTED, MOVED, MOSTLY = 10.0, 1.0, 10.0, 3.0, 0.5
REASONS = ("", "too few outcomes", "untested", "drifting", "uneven")  # by their numbers in the golden vectors

# ---- record: 68 numbers --------------------------------------------------------------------------------------------
LK, K, KO, MISSED = 0, 1, 2, 3  # ln kappa; blocks judged; of these, forecasts made with knowledge; outside
S, H, NS, OK, A0, C0, B0, S0 = 4, 5, 6, 7, 8, 9, 10, 11  # the open block; NS = -1: none is open
NUM, DEN = 12, 13  # over cells: sum(S^2 - H), sum H^2
CS, CH = 14, 14 + CELLS
WIDTH = 14 + 2 * CELLS


class Estimate(NamedTuple):
    probability: float
    low: float
    high: float
    outcomes: float  # as good as so many outcomes of exactly this score, in a world that stands still
    reason: str


class Parts(NamedTuple):
    x: float
    logit: float  # of the forecast
    base: float  # variance of the logit: lanes, spread, splines
    ahead: float  # drift over the mean lag
    prior: float


def new_record():
    r = np.zeros(WIDTH)
    r[NS] = -1.0
    return r


def logit(p):
    return math.log(p) - math.log1p(-p)


def inside(p):
    return clip(p, EPS, 1.0 - EPS)


def doubt_of_lane(row, k, x, g):
    """x'P x of a Kalman lane"""
    v = row[PAA + k] * x * x + row[PCC + k] * g * g + row[PBB + k]
    v += 2.0 * (row[PAC + k] * x * g + row[PAB + k] * x + row[PCB + k] * g)
    return max(v, 0.0)


def horizon(row, phi):
    """-> logit of the horizon lane and its doubt, phi'P phi"""
    z, v = 0.0, 0.0
    for i in range(7):
        z += row[HT + i] * phi[i]
        for j in range(7):
            v += row[HP + tri(min(i, j), max(i, j))] * phi[i] * phi[j]
    return z, max(v, 0.0)


def parts(row, score):
    """What the row knows about its own error at this score: equations (1) to (4)."""
    x, xk, g, atom = features(clip(score, auto_oracle.LO, auto_oracle.HI))
    z = [row[A + k] * xk + row[C + k] * g + row[B + k] for k in range(4)]
    v = [doubt_of_lane(row, k, xk, g) for k in range(4)]  # (1)
    o = row[OA] * x + row[OB]
    w = [*row[W : W + 6], row[WH]]
    zh = vh = 0.0
    if w[6] > 0.0:
        phi = [1.0, clip(x, -X_CLIP, X_CLIP), *(clip(u, -L_CLIP, L_CLIP) for u in (o, *z))]
        zh, vh = horizon(row, phi)
    zs = [clip(u, -MOST_LOGIT, MOST_LOGIT) for u in (*z, x, o, zh)]
    vs = [*v, v[0], v[0], vh]  # score and OPS: the doubt of the lane that stands still
    receipt = auto_oracle.predict(row, score)
    m, s, r, p = receipt[R_M], receipt[R_S], receipt[R_T], receipt[R_P]
    zm = logit(m)
    lanes = sum(w[k] * (vs[k] + (zs[k] - zm) ** 2) for k in range(7))  # (2) within and between
    if atom >= 0:  # (3)
        doubt_s = 1.0 / ((row[ATOM + 2 * atom + 1] + ATOM_N0) * s * (1.0 - s))
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1.0)
        doubt_s = (1.0 - t) ** 2 / row[KL + j] + t * t / row[KL + j + 1]
    j, t = knot(m * 10.0, MKNOTS - 1.0)
    doubt_r = (1.0 - t) ** 2 / row[ML + j] + t * t / row[ML + j + 1]
    zp = logit(p)
    splines = row[V] * (zm - zp) ** 2
    splines += row[V + 1] * ((logit(s) - zp) ** 2 + doubt_s) + row[V + 2] * ((logit(r) - zp) ** 2 + doubt_r)
    prior = PRIOR[0] * xk * xk + PRIOR[1] * g * g + PRIOR[2]
    ahead = row[DELAY] * ((w[1] * RATE_SLOW + w[2] * RATE_FAST) * prior + w[3] * RATE_LEVEL)  # (4)
    return Parts(x, zp, lanes + splines, ahead, prior)


def doubt(record, q):
    """(5) the variance by the lanes, as the blocks have corrected it"""
    kappa = math.exp(record[LK])
    return max(q.base * max(kappa, 1.0), kappa * (q.base + q.ahead))


def cell(x):
    if x <= -AT_CLIP:
        return 0
    if x >= AT_CLIP:
        return CELLS - 1
    return int((clip(x, -CELLS_MAX, CELLS_MAX - 0.001) + CELLS_MAX) / CELL) + 1


def uneven(record, x):
    """(6) what neighbors in the score leave open: the shrunken residual of the cell"""
    if record[DEN] <= 0.0:
        return 0.0
    tau2 = (record[NUM] - math.sqrt(2.0 * record[DEN])) / record[DEN]
    if tau2 <= TAU2_LEAST:
        return 0.0
    tau2 = min(tau2, TAU2_MOST)
    weight = record[CH + cell(x)] + 1.0 / tau2
    d = record[CS + cell(x)] / weight
    return d * d + 1.0 / weight


def read(record, row, score):
    q = parts(row, score)
    lanes, local = doubt(record, q), uneven(record, q.x)
    var = lanes + local
    half = Z * math.sqrt(var)
    p = sigmoid(q.logit)
    outcomes = clip((1.0 / var - 1.0 / q.prior) / (p * (1.0 - p)), 0.0, row[N])
    kappa = math.exp(record[LK])
    if outcomes < FEW or outcomes * min(p, 1.0 - p) < FEW_SIDE:
        reason = "too few outcomes"
    elif record[KO] < UNTESTED:
        reason = "untested"
    elif kappa > MOVED or kappa * q.ahead > q.base or row[W + 2] + row[W + 3] > MOSTLY:
        reason = "drifting"
    elif local > lanes:
        reason = "uneven"
    else:
        reason = ""
    return Estimate(p, inside(sigmoid(q.logit - half)), inside(sigmoid(q.logit + half)), float(outcomes), reason)


def mean_map(row):
    """The lanes' mean map, logit = a x + c g + b, of the six lanes that are linear."""
    w = row[W : W + 6]
    t = sum(w)
    a = sum(w[k] * row[A + k] for k in range(4)) + w[4] + w[5] * row[OA]
    c = sum(w[k] * row[C + k] for k in range(4))
    b = sum(w[k] * row[B + k] for k in range(4)) + w[5] * row[OB]
    return a / t, c / t, b / t


def learn(record, row, receipt, y, omega=1.0):
    """An outcome worth omega events, with the row as the outcome finds it (before it learns)."""
    n, seen, score = row[N], receipt[R_N], receipt[R_F]
    x, _, g, _ = features(score)
    p = inside(receipt[R_P])
    a, c, b = mean_map(row)
    if record[NS] < 0.0:  # a block opens: what is forecast now is what is judged
        record[S] = record[H] = 0.0
        record[NS], record[OK] = n, 1.0 if seen >= max(OK_LEAST, OK_SHARE * n) else 0.0
        record[A0], record[C0], record[B0] = a, c, b
        record[S0] = math.sqrt(doubt(record, parts(row, score)))
    z = logit(p)
    if seen > record[NS]:  # issued since: take back what was learnt since
        part = (seen - record[NS]) / (n - record[NS])  # 1 when outcomes come at once
        z -= part * ((a - record[A0]) * x + (c - record[C0]) * g + (b - record[B0]))
    e = sigmoid(z)
    record[S] += omega * (y - e)
    record[H] += omega * (e * (1.0 - e))
    if record[H] >= clip(1.0 / record[S0] ** 2, H_LOW, H_HIGH):  # (7) the block is judged
        s = 0.5 * (record[S0] + math.sqrt(doubt(record, parts(row, score))))
        miss = 1.0 if (record[S] / record[H]) ** 2 > Z * Z * (s * s + 1.0 / record[H]) else 0.0
        record[K] += 1.0
        record[KO] += record[OK]
        record[MISSED] += miss
        eta = max(ETA_LAST, ETA_FIRST / (1.0 + record[K] / 10.0))
        record[LK] = clip(record[LK] + eta * (miss - MISS), math.log(K_LOW), math.log(K_HIGH))
        record[NS] = -1.0
    k = cell(x)  # the cells: residuals as issued
    r, h = omega * (y - p), omega * (p * (1.0 - p))
    record[NUM] += 2.0 * record[CS + k] * r + r * r - h
    record[DEN] += 2.0 * record[CH + k] * h + h * h
    record[CS + k] += r
    record[CH + k] += h


# ---- a whole stream ------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    probability: np.ndarray
    low: np.ndarray
    high: np.ndarray
    outcomes: np.ndarray
    reason: np.ndarray  # numbers in REASONS
    record: np.ndarray
    row: np.ndarray


def shifted(p, odds):
    """The odds of p divided by `odds`; 1: as they are"""
    return p / (p + (1.0 - p) * odds)


def worth(row, receipt, y, weight, trials):
    """omega, as `auto_oracle.update` will find it"""
    sums = row[S1:].copy()
    pace = auto_oracle.pace(sums, 0, int(row[N]), weight, trials, auto_oracle.spread(y, receipt[R_P]))
    return pace[0]


def run(score, outcome, due=None, weight=None, trials=None, kept=(1.0, 1.0), asked=None):
    """outcome: share of ones, NaN where it never arrives. due: as in `auto_oracle.run`; None: at once.
    kept: the shares of ones and of zeros that the log has. asked: the events whose interval is read; None: all."""
    T = len(score)
    heavy, counts = auto_oracle.each(weight, T), auto_oracle.each(trials, T)
    row, record, box, j = auto_oracle.new_row(), new_record(), {}, 0
    odds = kept[0] / kept[1]
    columns = np.full((5, T), np.nan)
    at_once = due is None
    due = np.arange(1, T + 1) if due is None else np.asarray(due)
    order = np.argsort(due, kind="stable")
    for t in range(T + 1):
        while j < T and due[order[j]] <= t and (at_once or t < T):
            i = order[j]
            receipt, y = box.pop(i), float(outcome[i])
            if not math.isnan(y) and heavy[i] > 0.0 and counts[i] > 0:
                learn(record, row, receipt, y, worth(row, receipt, y, float(heavy[i]), int(counts[i])))
                auto_oracle.update(row, receipt, y, float(heavy[i]), int(counts[i]))
            j += 1
        if t == T:
            break
        f = shifted(score[t], 1.0 / odds)
        box[t] = auto_oracle.predict(row, f)
        columns[0, t] = shifted(box[t][R_P], odds)
        if asked is None or asked[t]:
            q = read(record, row, f)
            columns[1:, t] = shifted(q.low, odds), shifted(q.high, odds), q.outcomes, REASONS.index(q.reason)
    return Run(*columns, record, row)
