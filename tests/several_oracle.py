"""Several models, slowly and literally: k scores into one probability. The oracle of core/several.py, on AUTO's.

row = Row(2)
q = predict(row, [0.83, math.nan])     # pure; q.p is the forecast, q.m the expert. NaN: this score is missing
update(row, q, 1)                      # now or later, in any order

A row is k rows of AUTO (one for each score, each with its own count of outcomes) and one row of this layer. Where a
comment says "as AUTO" the step is AUTO's with other numbers.
"""

import math

import auto_oracle as auto
import numpy as np
from auto_oracle import EPS, HI, LO, MC, ML, R_P, N, clip, logit, sigmoid

RATES = (0.0, 1e-3)  # two lanes over all scores, still and fast: drift per outcome / prior variance
PRIOR = 0.3  # prior variance of every coefficient
Z_CLIP, X_CLIP = 8.0, 6.0  # logits of the calibrated scores, logits of the raw scores
STACK_LAG = 100.0  # steps of the lanes are slower by 1/(1 + mean lag/100)


class Row:
    def __init__(self, k):
        self.k, self.d, self.parts = k, 3 * k + 1, k + len(RATES)
        self.autos = [auto.new_row() for _ in range(k)]
        # weights of the k scores and of the lanes, G and T of them | v of m and of the spline, G and T of v
        self.w = np.array([1.0 / self.parts] * self.parts + [0.0, 1.0])
        self.v = np.array([0.5, 0.5, 0.0, 1.0])
        self.theta = np.zeros((len(RATES), self.d))
        self.theta[:, 1 : k + 1] = 1.0 / k  # the lanes start at the mean of the calibrated logits
        self.P = np.array([np.eye(self.d) * PRIOR for _ in RATES])
        self.spline = auto.new_row()  # of it only the spline on m is used
        self.n = self.delay = 0.0

    def layer(self):
        """The weights with their G and T, as the golden vectors have them."""
        return np.concatenate([self.w, self.v])


class Receipt:
    """n, scores, autos (receipts), e (what the parts said), m, t, p"""


def features(k, said, scores):
    """1; calibrated logits, of a missing score the mean of those given; raw logits, 0 if missing; 1 where missing"""
    given = [j for j in range(k) if said[j] is not None]
    z = {j: clip(logit(said[j]), -Z_CLIP, Z_CLIP) for j in given}
    mean = sum(z.values()) / len(given)
    x = {j: clip(auto.features(clip(scores[j], LO, HI))[0], -X_CLIP, X_CLIP) for j in given}
    return np.array(
        [1.0]
        + [z.get(j, mean) for j in range(k)]
        + [x.get(j, 0.0) for j in range(k)]
        + [0.0 if j in z else 1.0 for j in range(k)]
    )


def lane(row, at, phi):
    return clip(sigmoid(sum(row.theta[at][i] * phi[i] for i in range(row.d))), EPS, 1.0 - EPS)


def mixture(row, e):
    """e: what each part says, None where it sleeps"""
    awake = [i for i in range(row.parts) if e[i] is not None]
    return clip(sum(row.w[i] * e[i] for i in awake) / sum(row.w[i] for i in awake), EPS, 1.0 - EPS)


def predict(row, scores):
    q, k = Receipt(), row.k
    assert not all(math.isnan(score) for score in scores)
    q.n, q.scores = row.n, list(scores)
    q.autos = [None if math.isnan(scores[j]) else auto.predict(row.autos[j], scores[j]) for j in range(k)]
    said = [None if a is None else a[R_P] for a in q.autos]
    phi = features(k, said, scores)
    q.e = said + [lane(row, at, phi) for at in range(len(RATES))]
    q.m = mixture(row, q.e)
    q.t = auto.mspline(row.spline, q.m)
    q.p = clip(row.v[0] * q.m + row.v[1] * q.t, EPS, 1.0 - EPS)
    return q


def update(row, q, y):
    k, K = row.k, row.parts
    like = auto.like_of(y)
    lag, n = row.n - q.n, row.n + 1.0
    beginner = auto.BEGINNER * q.n < row.n
    share = auto.SHARE / n
    row.delay += (lag - row.delay) / min(n, auto.DELAY_N)

    # what the lanes learn from: what was issued; of a beginner's forecast what AUTO says now, before it learns
    said = [None if a is None else a[R_P] for a in q.autos]
    if beginner:
        now = [None if a is None else auto.predict(row.autos[j], q.scores[j]) for j, a in enumerate(q.autos)]
        said = [None if a is None else a[R_P] for a in now]
    phi = features(k, said, q.scores)

    # 1 weights: those that sleep keep theirs, those awake share what they had together
    reweigh_awake(row.w, K, q.e, like, share, like(q.m), lag)
    auto.reweigh(row.v, [0, 1], [like(q.m), like(q.t)], [2.0, 2.0], share, like(q.p), lag, 2, 1.0)

    # 2 spline on m, as AUTO; of a beginner's forecast around what the parts say now
    b = mixture(row, said + [lane(row, at, phi) for at in range(len(RATES))]) if beginner else q.m
    j, t = auto.knot(b * 10.0, 10.0)
    auto.learn(row.spline, MC, ML, j, t, auto.mspline(row.spline, b), y, 1.0)

    # 3 lanes: one Newton step, as AUTO's horizon lane
    eta = 1.0 / (1.0 + row.delay / STACK_LAG)
    for at, rate in enumerate(RATES):
        e, P = lane(row, at, phi), row.P[at]
        gain = P @ phi
        var = max(float(phi @ gain), 0.0)
        h = eta * e * (1.0 - e)
        d = 1.0 / (1.0 + h * var)
        step = eta * (y - e) * d
        if abs(step * var) > auto.STEP:
            step *= auto.STEP / abs(step * var)
        row.theta[at] += step * gain
        P -= d * h * np.outer(gain, gain)
        for i in range(row.d):
            if P[i, i] < auto.P_CAP * PRIOR:
                P[i, i] += eta * rate * PRIOR

    # 4 AUTO of each score that was there
    for j, a in enumerate(q.autos):
        if a is not None:
            auto.update(row.autos[j], a, y)
    row.n = n


def with_model(row):
    """The row with one model more, as if its score had been missing so far: forecasts jump only by its weight"""
    k, K = row.k, row.parts
    more = Row(k + 1)
    old = [i + (i > k) + (i > 2 * k) for i in range(row.d)]  # z, x and u of the new one come behind those of the others
    more.autos[:k] = row.autos
    more.w = np.concatenate([row.w[:k], [0.0], row.w[k:]])
    more.w[: K + 1] *= K / (K + 1)
    more.w[k] = 1.0 / (K + 1)
    more.v, more.spline, more.n, more.delay = row.v, row.spline, row.n, row.delay
    more.theta[:] = 0.0
    more.theta[:, old] = row.theta
    for at in range(len(RATES)):
        more.P[at][np.ix_(old, old)] = row.P[at]
    return more


def widened(q):
    """A receipt from before `with_model`: the score of the new model is missing"""
    k = len(q.autos)
    q.autos, q.scores, q.e = [*q.autos, None], [*q.scores, math.nan], [*q.e[:k], None, *q.e[k:]]
    return q


def reweigh_awake(w, K, e, like, share, issued, lag):
    """AUTO's reweigh for those awake: their weights relative to what they have together. w[K], w[K + 1]: G and T"""
    awake = [i for i in range(K) if e[i] is not None]
    mass = sum(w[i] for i in awake)
    fresh = sum(w[i] * like(e[i]) for i in awake) / mass
    stale = max(math.log(fresh / issued), 0.0) if lag > 0.0 else 0.0
    u = {i: w[i] * auto.power(like(e[i]), 1.0 / w[K + 1]) for i in awake}
    total = sum(u.values())
    for i in awake:
        w[i] = u[i] / total * mass
    for i in range(K):
        w[i] = (1.0 - share) * w[i] + share / K
    w[K] += stale
    if 1.0 + w[K] > auto.LAZY * w[K + 1]:
        c = w[K + 1] / (1.0 + w[K])
        flat = [math.pow(w[i], c) * math.pow(1.0 / K, 1.0 - c) for i in range(K)]
        w[:K] = np.array(flat) / sum(flat)
        w[K + 1] = 1.0 + w[K]


def run(scores, outcome, due=None):
    """due: None, or due times: outcome i is learned before prediction due[i] (> i), in order of (due, i); one whose due
    time is the end or later is not learned. -> forecasts, experts, row"""
    T, k = scores.shape
    row, out, expert, box = Row(k), np.empty(T), np.empty(T), {}
    at_once = due is None
    due = np.arange(1, T + 1) if at_once else np.asarray(due)
    order, j = np.argsort(due, kind="stable"), 0
    for t in range(T + 1):
        while j < T and due[order[j]] <= t and (at_once or t < T):
            i = order[j]
            update(row, box.pop(i), float(outcome[i]))
            j += 1
        if t < T:
            box[t] = predict(row, scores[t])
            out[t], expert[t] = box[t].p, box[t].m
    return out, expert, row


# ---- our row -------------------------------------------------------------------------------------------------------


def check_parts(parts, row, rtol=1e-9, atol=1e-9):
    """Compare the parts of a row (`calibeat.core.several.parts_of`) with a row of this oracle."""
    near = {"rtol": rtol, "atol": atol}
    k = row.k
    np.testing.assert_allclose(parts.weights, row.w[: k + 2], **near)
    np.testing.assert_allclose([parts.stale, parts.temper], row.w[k + 2 :], **near)
    np.testing.assert_allclose(parts.spline_weights, row.v[:2], **near)
    np.testing.assert_allclose([parts.spline_stale, parts.spline_temper], row.v[2:], **near)
    np.testing.assert_allclose(parts.mean_lag, row.delay, **near)
    np.testing.assert_allclose(parts.offsets, row.spline[MC : MC + auto.MKNOTS], **near)
    np.testing.assert_allclose(parts.information, row.spline[ML : ML + auto.MKNOTS], **near)
    np.testing.assert_allclose(parts.theta, row.theta, **near)
    np.testing.assert_allclose(parts.covariance, row.P, **near)
    for ours, theirs in zip(parts.autos, row.autos, strict=True):
        reference = auto.as_reference(ours)
        np.testing.assert_allclose(reference[: N + 1], theirs[: N + 1], **near)
        np.testing.assert_allclose(reference, theirs, **near)
