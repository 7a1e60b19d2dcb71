"""AUTO, with late labels ("horizon lane", "staleness temper", "beginners"): a readable scalar reference, the oracle.

predict(row, score)         -> receipt      (pure: does not change the row)
update(row, receipt, y, weight=1, trials=1)     changes the row; receipts may come back late and in any order
    y        the share of ones in [0, 1]: 0 or 1 for one event, k/n for k ones among n trials
    weight   how many events like each of these the sample stands for. Only ratios within a stream matter
    trials   how many events this outcome is; they count n times, whatever the weights
The forecast is receipt[R_P], the expert (mixture before the spline) is receipt[R_M].
OPS and TOPS with weights: ops_predict, ops_update, ops_run.
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
W_CLIP, W_BLOCK, V_MIN = 10.0, 1000, 1e-12  # a weight tells at most W_CLIP times ...; outcomes in a block; least v
DRIFT_MAX = 100.0  # a row of n trials brings the drift of at most so many events
SPENT = 1e-9  # a part of omega this small is joined to the last

# ---- row: 192 doubles ------------------------------------------------------------------------------------------------
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
S1, S2, Z1, Z2 = 188, 189, 190, 191  # sums of w v and w^2 v: this block of outcomes, the block before
ROW = 192
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


def learn(r, c, info, j, t, e, y, part):
    """one step of the knots j, j+1 (offsets at c, information at info) that issued e"""
    h = part * (e * (1.0 - e))
    r[info + j] += (1.0 - t) * h
    r[c + j] += (1.0 - t) * (part * (y - e)) / r[info + j]
    r[info + j + 1] += t * h
    r[c + j + 1] += t * (part * (y - e)) / r[info + j + 1]


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


def drift(r, at, prior, rate, trials):
    if r[at] < P_CAP * prior:
        r[at] = min(r[at] + min(trials, DRIFT_MAX) * (rate * prior), P_CAP * prior + rate * prior)


def ons(a, b, h00, h01, h11, x, y, omega):
    """the paper's ONS step for a loss that counts omega times: A += omega g g' summed over the events behind y"""
    e = sigmoid(a * x + b) - y
    d = e * x
    if y in (0.0, 1.0):
        h00, h01, h11 = h00 + omega * (d * d), h01 + omega * (d * e), h11 + omega * (e * e)
    else:
        v = omega * spread(y, e + y)
        h00, h01, h11 = h00 + v * (x * x), h01 + v * x, h11 + v
    t = ONS_GAIN / (h00 * h11 - h01 * h01)
    d, e = omega * d, omega * e
    a, b = a - (h11 * d - h01 * e) * t, b - (h00 * e - h01 * d) * t
    return *project(a, b, h00, h01, h11), h00, h01, h11


def power(likelihood, a):
    return likelihood if a == 1.0 else math.pow(likelihood, a)


def like_of(y):
    """-> the probability that a forecast gives to y, as a function"""
    if y in (0.0, 1.0):
        return lambda e: e if y else 1.0 - e
    return lambda e: math.exp(y * math.log(e) + (1.0 - y) * math.log(1.0 - e))


def lump(u, top, fresh, temper, omega):
    """more than one event's worth of evidence at once: what that may cost. u = w (L/top)^(omega/temper)"""
    return max(temper * (math.log(sum(u)) + omega / temper * math.log(top)) - omega * math.log(fresh), 0.0)


def reweigh(r, at, L, parts, share, issued, lag, g, omega):
    """weights r[at] of parts that gave the outcome the probabilities L; r[g] nats lost to staleness and lumps, r[g + 1]
    temper in force. issued: the probability that the mixture gave to the outcome when the forecast was made"""
    K = len(at)
    lost = fresh = 0.0
    for k in range(K):
        fresh += r[at[k]] * L[k]
    if lag > 0.0:  # what the same lanes would have scored under the weights of now
        lost = omega * max(math.log(fresh / issued), 0.0)
    a = omega / r[g + 1]
    top = max(L) if a > 1.0 else 1.0  # L^a may underflow
    u, t = [], 0.0
    for k in range(K):
        u.append(r[at[k]] * power(L[k] / top if a > 1.0 else L[k], a))
        t += u[k]
    if a > 1.0:
        lost += lump(u, top, fresh, r[g + 1], omega)
    for k in range(K):
        r[at[k]] = (1.0 - share) * (u[k] / t) + share / parts[k]
    r[g] += lost
    if 1.0 + r[g] > LAZY * r[g + 1]:  # the past counts for less: flatten the weights towards the prior
        c, t = r[g + 1] / (1.0 + r[g]), 0.0
        for k in range(K):
            r[at[k]] = math.pow(r[at[k]], c) * math.pow(1.0 / parts[k], 1.0 - c)
            t += r[at[k]]
        for k in range(K):
            r[at[k]] /= t
        r[g + 1] = 1.0 + r[g]


def spread(y, p):
    """mean squared residual of the events behind y"""
    return max(y * (1.0 - p) * (1.0 - p) + (1.0 - y) * p * p, V_MIN)


def pace(r, at, n, weight, trials, v):
    """-> omega, the events' worth of this outcome, and the weight after clipping. at: where S1, S2, Z1, Z2 are; n:
    outcomes learnt before"""
    if n > 0 and n % W_BLOCK == 0:
        r[at + 2], r[at + 3], r[at], r[at + 1] = r[at], r[at + 1], 0.0, 0.0
    s1, s2 = r[at] + r[at + 2], r[at + 1] + r[at + 3]
    if s2 > 0.0:  # no outcome tells much more than all the others together
        kappa = s1 / s2
        weight = min(weight, W_CLIP * max(1.0, math.sqrt(s1 * kappa / (trials * v))) / kappa)
    r[at] += weight * v * trials
    r[at + 1] += weight * weight * v * trials
    kappa = (r[at] + r[at + 2]) / (r[at + 1] + r[at + 3])
    return trials * (weight * kappa), weight


def portions(omega):
    """omega in portions of 1, 1, 2, 4, ...: none tells more than the ones before it together"""
    done = 0.0
    while omega > 0.0:
        step = min(omega, max(1.0, done))
        if omega - step < SPENT:
            step = omega
        omega -= step
        done += step
        yield step


def update(r, q, y, weight=1.0, trials=1, around_this=None, issued_p=None):  # noqa: PLR0915 - the whole rule in one place
    """around_this: what the splines learn around, where the caller knows better (groups); None: `around`.
    issued_p: the forecast whose residual sets the pace, where it is another than this receipt's (groups)
    -> omega and the weight after clipping"""
    if weight == 0.0 or trials == 0:  # settled, nothing learnt
        return 0.0, 0.0
    f, m, s = q[R_F], q[R_M], q[R_S]
    omega, clipped = pace(r, S1, int(r[N]), weight, trials, spread(y, q[R_P] if issued_p is None else issued_p))
    steps = list(portions(omega))
    lag = r[N] - q[R_N]  # updates made between this prediction and its label
    n = r[N] + 1.0
    x, xk, g, atom = features(f)
    like = like_of(y)

    base = around(r, q, x, xk, g) if around_this is None else around_this  # once, before any portion
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
    lanes = [W + k for k in range(6)] + ([WH] if awake else [])
    reweigh(r, lanes, [like(e) for e in issued], parts, share, like(m), lag, GW, omega)
    said_by_splines = [like(m), like(s), like(q[R_T])]
    reweigh(r, [V, V + 1, V + 2], said_by_splines, [3.0] * 3, share, like(q[R_P]), lag, GV, omega)

    # horizon lane: logistic regression of the outcome on what the lanes had said, slower the later the labels are
    if awake:
        eta = 1.0 / (1.0 + r[DELAY] / H_LAG)  # the same for all labels: a label's own lag may tell its outcome
        for part in steps:
            e, K, var = horizon(r, phi), [0.0] * 7, 0.0
            for i in range(7):
                for j in range(7):
                    K[i] += r[HP + tri(min(i, j), max(i, j))] * phi[j]
            for i in range(7):
                var += phi[i] * K[i]
            var = max(var, 0.0)
            h = eta * part * e * (1.0 - e)
            d = 1.0 / (1.0 + h * var)
            step = eta * part * (y - e) * d
            move = abs(step * var)
            if move > STEP:
                step *= STEP / move
            for i in range(7):
                r[HT + i] += K[i] * step
            d *= h
            for i in range(7):
                for j in range(i, 7):
                    r[HP + tri(i, j)] -= d * K[i] * K[j]
        for i in range(7):
            drift(r, HP + tri(i, i), H_PRIOR, eta * H_DRIFT, trials)

    # Kalman lanes, at their present parameters
    for k in range(4):
        for part in steps:
            e = lane(r, k, xk, g)
            ka = r[PAA + k] * xk + r[PAC + k] * g + r[PAB + k]
            kc = r[PAC + k] * xk + r[PCC + k] * g + r[PCB + k]
            kb = r[PAB + k] * xk + r[PCB + k] * g + r[PBB + k]
            var = max(ka * xk + kc * g + kb, 0.0)
            h = part * e * (1.0 - e)
            d = 1.0 / (1.0 + h * var)
            step = part * (y - e) * d
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
            drift(r, z + k, PRIOR[i], RATE[k][i], trials)

    # the paper's ONS lane, at its present parameters
    r[OA], r[OB], r[H00], r[H01], r[H11] = ons(r[OA], r[OB], r[H00], r[H01], r[H11], x, y, omega)

    # splines: around that mixture, at their present offsets
    for part in steps:
        if atom >= 0:
            r[ATOM + 2 * atom] += part * y
            r[ATOM + 2 * atom + 1] += part
        else:
            j, t = knot((x + X_MAX) * 2.0, KNOTS - 1.0)
            learn(r, KC, KL, j, t, spline(r, base, x, atom), y, part)
        j, t = knot(base * 10.0, MKNOTS - 1.0)
        learn(r, MC, ML, j, t, mspline(r, base), y, part)

    r[N] = n
    return omega, clipped


def each(value, T):
    return np.broadcast_to(np.asarray(1.0 if value is None else value, float), T)


def run(score, outcome, delay=None, weight=None, trials=None, note=None):
    """outcome: share of ones, NaN where it never arrives. weight, trials: None, a number or one per event.
    delay: None (immediate) or due times: label i is applied before prediction due[i] (> i), in order (due, i).
    note(receipt, y, omega) is called after each outcome that is learnt.
    -> forecast, expert, row"""
    T = len(score)
    heavy, counts = each(weight, T), each(trials, T)
    r, out, ex = new_row(), np.empty(T), np.empty(T)
    due = np.arange(1, T + 1) if delay is None else np.asarray(delay)
    order, j, box = np.argsort(due, kind="stable"), 0, {}
    for t in range(T + 1):
        while j < T and due[order[j]] <= t and (delay is None or t < T):
            i = order[j]
            q = box.pop(i)
            if not math.isnan(outcome[i]):
                omega, _ = update(r, q, float(outcome[i]), float(heavy[i]), int(counts[i]))
                if note is not None and omega > 0.0:
                    note(q, float(outcome[i]), omega)
            j += 1
        if t == T:
            break
        box[t] = predict(r, score[t])
        out[t], ex[t] = box[t][R_P], box[t][R_M]
    return out, ex, r


# ---- OPS and TOPS: a, b, H00, H01, H11, n, S1, S2, Z1, Z2, then S and N of 10 bins ---------------------------------


def ops_new():
    r = np.zeros(30)
    r[0], r[2], r[4] = 1.0, ONS_RHO, ONS_RHO
    return r


def ops_predict(r, score):
    """-> receipt (x, expert, bin), TOPS forecast"""
    f = clip(score, LO, HI)
    x = math.log(f) - math.log(1.0 - f)
    e = sigmoid(r[0] * x + r[1])
    b = min(int(e * 10.0), 9)
    return (x, e, b), (r[10 + b] / r[20 + b] if r[20 + b] > 0.0 else (b + 0.5) / 10.0)


def ops_update(r, q, y, weight=1.0, trials=1):
    if weight == 0.0 or trials == 0:
        return
    x, e, b = q
    omega, w = pace(r, 6, int(r[5]), weight, trials, spread(y, e))
    r[0], r[1], r[2], r[3], r[4] = ons(r[0], r[1], r[2], r[3], r[4], x, y, omega)
    r[10 + b] += w * trials * y  # tracking: plain weighted means
    r[20 + b] += w * trials
    r[5] += 1.0


def ops_run(score, outcome, weight=None, trials=None):
    """-> forecasts of OPS, of TOPS, row"""
    T = len(score)
    heavy, counts = each(weight, T), each(trials, T)
    r, ops, tops = ops_new(), np.empty(T), np.empty(T)
    for t in range(T):
        q, tops[t] = ops_predict(r, score[t])
        ops[t] = q[1]
        if not math.isnan(outcome[t]):
            ops_update(r, q, float(outcome[t]), float(heavy[t]), int(counts[t]))
    return ops, tops, r


# ---- our row -----------------------------------------------------------------------------------------------------

CELLS = AUTO.spec.cells  # where the spline's numbers begin
# Where the reference keeps what calibeat's row has: (first index there, first index here, how many).
SAME = (
    (A, layout.THETA, 36),
    (W, layout.WEIGHT, 6),
    (OA, layout.OPS_A, 5),
    (GW, layout.STALENESS, 2),
    (DELAY, layout.MEAN_LAG, 1),
    (V, CELLS + spline_layout.SPLINE_WEIGHT, 3),
    (ATOM, CELLS + spline_layout.ATOMS, 4),
    (KC, CELLS + spline_layout.SCORE_OFFSETS, 72),
    (GV, CELLS + spline_layout.SPLINE_STALENESS, 2),
    (WH, AUTO.spec.horizon, 36),
    (N, layout.N, 1),
)
SUMS = (layout.SUM, layout.SUM_SQUARED, layout.SUM_BEFORE, layout.SUM_SQUARED_BEFORE)


def sums_of(row):
    """S1, S2, Z1, Z2 of a row of any method; while all weights are 1 it does not write the squares"""
    s1, s2, z1, z2 = row[list(SUMS)]
    return np.array([s1, s2, z1, z2] if row[layout.TOTAL] else [s1, s1, z1, z1])


def as_reference(row):
    """A row of AUTO in the order of the reference; it also has t, more sums of weights, and two numbers of evidence."""
    there = np.zeros(ROW)
    for at, here, count in SAME:
        there[at : at + count] = row[here : here + count]
    there[S1:] = sums_of(row)
    return there


# OPS and TOPS in `ops_row`, and in our rows of TOPS: two parameters, their matrix, n.
OPS_SAME = ((0, layout.THETA, 5), (5, layout.N, 1))
