"""AUTO, with late labels ("horizon lane", "staleness temper", "beginners"): a readable scalar reference, the oracle.

predict(row, score)         -> receipt      (pure: does not change the row)
update(row, receipt, y)     changes the row; y in {0,1}; receipts may come back late and in any order
The forecast is receipt[R_P], the expert (mixture before the spline) is receipt[R_M].
"""

import math

import numpy as np

from calibeat import AUTO
from calibeat.core import layout
from calibeat.core import spline as spline_layout

# ---- constants -----------------------------------------------------------------------------------------------------
LO, HI = 1e-5, 1.0 - 1e-5  # scores are clipped to [LO, HI]; a clipped score equal to LO or HI is an ATOM
EPS = 1e-7  # lane probabilities and the spline forecast live in [EPS, 1-EPS]
LN4 = math.log(4.0)
X_ATOM = 6.0  # an atom enters the Kalman lanes as x = -6 or +6
G_ATOM = LN4 - 6.0 - 2.0 * math.log(1.0 + math.exp(-6.0))  # the matching g
PRIOR = (0.25, 0.25, 1.0)  # prior variances of (slope a, bend c, offset b)
RATE = ((0.0, 0.0, 0.0), (1e-4, 1e-4, 1e-4), (1e-3, 1e-3, 1e-3), (0.0, 0.0, 1e-2))  # drift per event / prior variance
P_CAP = 4.0  # a variance at or above P_CAP * prior receives no more drift
STEP = 2.0  # a Kalman update moves its own logit by at most STEP
ONS_RHO, ONS_GAIN, ONS_R = 100.0, 10.0, 100.0  # the paper's ONS: A_0 = 100 I, 1/gamma = 10, ball radius 100
SHARE = 0.5  # share SHARE/n of the n-th label
H_PRIOR, H_DRIFT, H_LAG = (
    0.3,
    1e-4,
    30.0,
)  # horizon lane: prior variance, drift per event / prior variance, temper 1/(1+mean lag/30)
DELAY_N = 1000.0  # labels that the mean lag looks back on
X_CLIP, L_CLIP = 6.0, 8.0  # logits that the horizon lane looks at: score, other lanes
BEGINNER = 20.0  # a forecast made before 1/20 of what is known now had been learnt is a beginner's
LAZY = 1.1  # weights are flattened when the temper 1+G has grown by a tenth
KNOTS, X_MAX, L0 = 25, 6.0, 10.0  # spline on x: knots -6, -5.5, .., 6; prior information per knot
MKNOTS = 11  # spline on m: knots 0, .1, .., 1
ATOM_N0 = 10.0  # prior events of an atom cell

# ---- row: 188 doubles ------------------------------------------------------------------------------------------------
A, C, B = 0, 4, 8  # theta of the 4 Kalman lanes, lane-minor: A+k, C+k, B+k
PAA, PAC, PAB, PCC, PCB, PBB = 12, 16, 20, 24, 28, 32  # covariance, upper triangle, lane-minor
W = 36  # 6 lane weights: Kalman 0..3, identity, ONS
V = 42  # 3 weights: mixture m, spline on x, spline on m
OA, OB, H00, H01, H11 = 45, 46, 47, 48, 49  # ONS
N = 50  # labels used so far
ATOM = 51  # S_lo, N_lo, S_hi, N_hi
KC, KL = 55, 80  # spline on x: offsets and information, 25 each
MC, ML = 105, 116  # spline on m: offsets and information, 11 each
# 127, ..., 146: sums of the reference that calibeat does not keep
GW, TW, GV, TV = 147, 148, 149, 150  # nats that stale weights have cost, and the temper in force: lanes, splines
WH = 151  # weight of the horizon lane; 0 while no label was ever late
HT, HP = 152, 159  # horizon lane: 7 parameters, 28 numbers of its covariance (upper triangle, by rows)
DELAY = 187  # mean lag of the last labels
ROW = 188
# ---- receipt: 12 doubles ---------------------------------------------------------------------------------------------
R_N, R_F, R_E, R_ONS, R_M, R_S, R_T, R_P, R_H = 0, 1, 2, 6, 7, 8, 9, 10, 11
RECEIPT = 12


def new_row():
    r = np.zeros(ROW)
    for k in range(4):
        r[A + k] = 1.0
        r[PAA + k], r[PCC + k], r[PBB + k] = PRIOR
    r[W : W + 6] = 1.0 / 6.0
    r[V : V + 3] = 1.0 / 3.0
    r[OA], r[H00], r[H11] = 1.0, ONS_RHO, ONS_RHO
    r[KL : KL + KNOTS] = L0
    r[ML : ML + MKNOTS] = L0
    r[TW] = r[TV] = 1.0
    r[HT + 1 : HT + 7] = 1.0 / 6.0
    for i in range(7):
        r[HP + tri(i, i)] = H_PRIOR
    return r


def tri(i, j):
    """place of (i, j), i <= j, in the packed upper triangle of a 7 x 7 matrix"""
    return i * 7 - i * (i - 1) // 2 + (j - i)


def logit(p):
    return math.log(p / (1.0 - p))


def said(q, x):
    """what the horizon lane looks at: 1 and the logits of the six lanes as they were issued"""
    return [1.0, clip(x, -X_CLIP, X_CLIP), clip(logit(q[R_ONS]), -L_CLIP, L_CLIP)] + [
        clip(logit(q[R_E + k]), -L_CLIP, L_CLIP) for k in range(4)
    ]


def unlearnt(phi):
    """the horizon lane at its prior: the mean logit of the six lanes"""
    z = 0.0
    for i in range(1, 7):
        z += phi[i] * (1.0 / 6.0)
    return clip(sigmoid(z), EPS, 1.0 - EPS)


def horizon(r, phi):
    z = 0.0
    for i in range(7):
        z += r[HT + i] * phi[i]
    return clip(sigmoid(z), EPS, 1.0 - EPS)


def sigmoid(u):
    if u >= 0.0:
        return 1.0 / (1.0 + math.exp(-u))
    e = math.exp(u)
    return e / (1.0 + e)


def clip(p, lo, hi):
    return min(max(p, lo), hi)


def features(f):
    """-> x for ONS and the spline; (xk, g) for the Kalman lanes; atom index -1, 0 (score 0) or 1 (score 1)"""
    x = math.log(f) - math.log(1.0 - f)
    if f <= LO:
        return x, -X_ATOM, G_ATOM, 0
    if f >= HI:
        return x, X_ATOM, G_ATOM, 1
    return x, x, math.log(f) + math.log(1.0 - f) + LN4, -1


def knot(s, last):
    """position s in units of knots -> left knot j and weight t of the right knot"""
    s = clip(s, 0.0, last)
    j = min(int(s), int(last) - 1)
    return j, s - j


def lane(r, k, xk, g):
    return clip(sigmoid(r[A + k] * xk + r[C + k] * g + r[B + k]), EPS, 1.0 - EPS)


def spline(r, m, x, atom):
    if atom >= 0:  # own cell: shrunken frequency
        s = (r[ATOM + 2 * atom] + ATOM_N0 * m) / (r[ATOM + 2 * atom + 1] + ATOM_N0)
    else:  # interpolated logit offset
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1.0)
        s = sigmoid(math.log(m / (1.0 - m)) + (1.0 - t) * r[KC + j] + t * r[KC + j + 1])
    return clip(s, EPS, 1.0 - EPS)


def mspline(r, m):
    j, t = knot(m * 10.0, MKNOTS - 1.0)
    return clip(sigmoid(math.log(m / (1.0 - m)) + (1.0 - t) * r[MC + j] + t * r[MC + j + 1]), EPS, 1.0 - EPS)


def learn(r, c, info, j, t, e, y):
    """one step of the knots j, j+1 (offsets at c, information at info) that issued e"""
    h = e * (1.0 - e)
    r[info + j] += (1.0 - t) * h
    r[c + j] += (1.0 - t) * (y - e) / r[info + j]
    r[info + j + 1] += t * h
    r[c + j + 1] += t * (y - e) / r[info + j + 1]


def around(r, q, x, xk, g):
    """the mixture that the splines learn around: as issued; for a beginner's forecast, what the six lanes would say now

    The row must be as it was when the outcome came: no weight and no lane has moved yet.
    """
    if BEGINNER * q[R_N] >= r[N]:  # always so with lag 0
        return q[R_M]
    m = 0.0
    for k in range(4):
        m += r[W + k] * lane(r, k, xk, g)
    m += r[W + 4] * q[R_F]
    m += r[W + 5] * clip(sigmoid(r[OA] * x + r[OB]), EPS, 1.0 - EPS)
    return clip(m / (1.0 - r[WH]), EPS, 1.0 - EPS)  # the horizon lane is left out


def predict(r, score):
    q = np.empty(RECEIPT)
    f = clip(score, LO, HI)
    x, xk, g, atom = features(f)
    m = 0.0
    for k in range(4):
        q[R_E + k] = lane(r, k, xk, g)
        m += r[W + k] * q[R_E + k]
    q[R_ONS] = clip(sigmoid(r[OA] * x + r[OB]), EPS, 1.0 - EPS)
    m += r[W + 4] * f
    m += r[W + 5] * q[R_ONS]
    q[R_H] = 0.0
    if r[WH] > 0.0:  # some label has been late: the horizon lane speaks
        q[R_H] = horizon(r, said(q, x))
        m += r[WH] * q[R_H]
    m = clip(m, EPS, 1.0 - EPS)
    s = spline(r, m, x, atom)
    t = mspline(r, m)
    p = clip(r[V] * m + r[V + 1] * s + r[V + 2] * t, EPS, 1.0 - EPS)
    q[R_N], q[R_F], q[R_M], q[R_S], q[R_T], q[R_P] = r[N], f, m, s, t, p
    return q


def project(a, b, h00, h01, h11):
    """H-norm projection of (a,b) on the ball of radius ONS_R (the paper's; never active in any test)"""
    if a * a + b * b <= ONS_R * ONS_R:
        return a, b
    c0, c1, lo, hi = h00 * a + h01 * b, h01 * a + h11 * b, 0.0, 1e12
    for _ in range(100):
        mu = 0.5 * (lo + hi)
        d = (h00 + mu) * (h11 + mu) - h01 * h01
        u, v = ((h11 + mu) * c0 - h01 * c1) / d, ((h00 + mu) * c1 - h01 * c0) / d
        if u * u + v * v > ONS_R * ONS_R:
            lo = mu
        else:
            hi = mu
    return u, v


def reweigh(r, at, L, parts, share, issued, lag, g):
    """weights r[at] of parts that gave the outcome the probabilities L; r[g] staleness, r[g + 1] temper in force.
    issued: the probability that the mixture gave to the outcome when the forecast was made"""
    K = len(at)
    stale = 0.0
    if lag > 0.0:  # what the same lanes would have scored under the weights of now
        fresh = 0.0
        for k in range(K):
            fresh += r[at[k]] * L[k]
        stale = max(math.log(fresh / issued), 0.0)
    u, t = [], 0.0
    for k in range(K):
        u.append(r[at[k]] * (L[k] if r[g + 1] == 1.0 else math.pow(L[k], 1.0 / r[g + 1])))
        t += u[k]
    for k in range(K):
        r[at[k]] = (1.0 - share) * (u[k] / t) + share / parts[k]
    r[g] += stale
    if 1.0 + r[g] > LAZY * r[g + 1]:  # the past counts for less: flatten the weights towards the prior
        c, t = r[g + 1] / (1.0 + r[g]), 0.0
        for k in range(K):
            r[at[k]] = math.pow(r[at[k]], c) * math.pow(1.0 / parts[k], 1.0 - c)
            t += r[at[k]]
        for k in range(K):
            r[at[k]] /= t
        r[g + 1] = 1.0 + r[g]


def update(r, q, y, base=None):  # noqa: PLR0915 - the whole rule in one place, to be read from top to bottom
    """base: what the splines learn around, where the caller knows better (groups); None: `around`"""
    f, m, s = q[R_F], q[R_M], q[R_S]
    lag = r[N] - q[R_N]  # updates made between this prediction and its label
    n = r[N] + 1.0
    x, xk, g, atom = features(f)

    def like(e):
        return e if y else 1.0 - e

    base = around(r, q, x, xk, g) if base is None else base
    issued = [q[R_E + k] for k in range(4)] + [f, q[R_ONS]]
    share = SHARE / n
    r[DELAY] += (lag - r[DELAY]) / min(n, DELAY_N)  # 0 while no label was ever late
    if lag > 0.0 and r[WH] == 0.0:  # the first late label wakes the horizon lane
        for k in range(6):
            r[W + k] *= 6.0 / 7.0
        r[WH] = 1.0 / 7.0
    awake = r[WH] > 0.0
    if awake:
        phi = said(q, x)
        issued.append(q[R_H] if q[R_H] > 0.0 else unlearnt(phi))  # asleep when the forecast was made: its prior
    parts = [7.0] * 7 if awake else [6.0] * 6  # prior weights are 1/parts
    reweigh(
        r,
        [W + k for k in range(6)] + ([WH] if awake else []),
        [like(e) for e in issued],
        parts,
        share,
        like(m),
        lag,
        GW,
    )
    reweigh(r, [V, V + 1, V + 2], [like(m), like(s), like(q[R_T])], [3.0] * 3, share, like(q[R_P]), lag, GV)

    # horizon lane: logistic regression of the outcome on what the lanes had said, slower the later the labels are
    if awake:
        e, eta = (
            horizon(r, phi),
            1.0 / (1.0 + r[DELAY] / H_LAG),
        )  # the same for all labels: a label's own lag may tell its outcome
        K = [0.0] * 7
        for i in range(7):
            for j in range(7):
                K[i] += r[HP + tri(min(i, j), max(i, j))] * phi[j]
        var = 0.0
        for i in range(7):
            var += phi[i] * K[i]
        var = max(var, 0.0)
        h = eta * e * (1.0 - e)
        d = 1.0 / (1.0 + h * var)
        step = eta * (y - e) * d
        move = abs(step * var)
        if move > STEP:
            step *= STEP / move
        for i in range(7):
            r[HT + i] += K[i] * step
        d *= h
        for i in range(7):
            for j in range(i, 7):
                r[HP + tri(i, j)] -= d * K[i] * K[j]
            if r[HP + tri(i, i)] < P_CAP * H_PRIOR:
                r[HP + tri(i, i)] += eta * H_DRIFT * H_PRIOR

    # Kalman lanes, at their present parameters
    for k in range(4):
        e = lane(r, k, xk, g)
        ka = r[PAA + k] * xk + r[PAC + k] * g + r[PAB + k]
        kc = r[PAC + k] * xk + r[PCC + k] * g + r[PCB + k]
        kb = r[PAB + k] * xk + r[PCB + k] * g + r[PBB + k]
        var = max(ka * xk + kc * g + kb, 0.0)
        h = e * (1.0 - e)
        d = 1.0 / (1.0 + h * var)
        step = (y - e) * d
        move = abs(step * var)
        if move > STEP:
            step *= STEP / move
        r[A + k] += ka * step
        r[C + k] += kc * step
        r[B + k] += kb * step
        d *= h
        r[PAA + k] -= d * ka * ka
        r[PAC + k] -= d * ka * kc
        r[PAB + k] -= d * ka * kb
        r[PCC + k] -= d * kc * kc
        r[PCB + k] -= d * kc * kb
        r[PBB + k] -= d * kb * kb
        for i, z in ((0, PAA), (1, PCC), (2, PBB)):
            if r[z + k] < P_CAP * PRIOR[i]:
                r[z + k] += RATE[k][i] * PRIOR[i]

    # the paper's ONS lane, at its present parameters
    e = sigmoid(r[OA] * x + r[OB]) - y
    d = e * x
    r[H00] += d * d
    r[H01] += d * e
    r[H11] += e * e
    t = ONS_GAIN / (r[H00] * r[H11] - r[H01] * r[H01])
    a = r[OA] - (r[H11] * d - r[H01] * e) * t
    b = r[OB] - (r[H00] * e - r[H01] * d) * t
    r[OA], r[OB] = project(a, b, r[H00], r[H01], r[H11])

    # splines: around that mixture, at their present offsets
    if atom >= 0:
        r[ATOM + 2 * atom] += y
        r[ATOM + 2 * atom + 1] += 1.0
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1.0)
        learn(r, KC, KL, j, t, spline(r, base, x, atom), y)
    j, t = knot(base * 10.0, MKNOTS - 1.0)
    learn(r, MC, ML, j, t, mspline(r, base), y)

    r[N] = n


def run(score, outcome, delay=None):
    """delay: None (immediate) or due times: label i is applied before prediction due[i] (> i), in order (due, i).
    -> forecast, expert, row"""
    T = len(score)
    r, out, ex = new_row(), np.empty(T), np.empty(T)
    if delay is None:
        for t in range(T):
            q = predict(r, score[t])
            out[t], ex[t] = q[R_P], q[R_M]
            update(r, q, float(outcome[t]))
        return out, ex, r
    order, j, box = np.argsort(delay, kind="stable"), 0, {}
    for t in range(T):
        while j < T and delay[order[j]] <= t:
            i = order[j]
            update(r, box.pop(i), float(outcome[i]))
            j += 1
        box[t] = predict(r, score[t])
        out[t], ex[t] = box[t][R_P], box[t][R_M]
    return out, ex, r


# ---- our row -----------------------------------------------------------------------------------------------------

# Where the reference keeps what calibeat's row has: (first index there, first index here, how many).
THERE = (A, W, OA, GW, DELAY, V, ATOM, KC, GV, WH, N)
CELLS = AUTO.spec.cells
HERE = (
    layout.THETA,
    layout.WEIGHT,
    layout.OPS_A,
    layout.STALENESS,
    layout.MEAN_LAG,
    CELLS + spline_layout.SPLINE_WEIGHT,
    CELLS + spline_layout.ATOMS,
    CELLS + spline_layout.SCORE_OFFSETS,
    CELLS + spline_layout.SPLINE_STALENESS,
    AUTO.spec.horizon,
    layout.N,
)
SAME = tuple(zip(THERE, HERE, (36, 6, 5, 2, 1, 3, 4, 72, 2, 36, 1), strict=True))


def as_reference(row):
    """A row of AUTO in the order of the reference; it also has t, sums of weights, and two numbers of evidence."""
    there = np.zeros(ROW)
    for at, here, count in SAME:
        there[at : at + count] = row[here : here + count]
    return there


def from_reference(there, fresh):
    """The inverse, with t and the evidence of a fresh row."""
    row = np.array(fresh)
    for at, here, count in SAME:
        row[here : here + count] = there[at : at + count]
    row[0] = row[1]
    return row
