r"""MULTI, for one event of K classes: what each stage says, and how each learns. The only copy of the equations.

::

    READ       f_k = max(score_k, 1e-7) / sum;  x_k = ln max(score_k, 1e-7);  u_k = 1[score_k <= 1e-7];  j = argmax score
    LANES      e_l = softmax(a_l x + c_l f + d_l u + b_l), l = 0..3;   o = softmax(A x);   m = sum_l w_l e_l + w_4 f + w_5 o
    FACTORS    s_k ~ m_k interp(rho_k, m_k), knots (0, .01, .1, .5, .9, 1)
    CONFUSION  r_k ~ s_k kappa[j, k]                                              (K <= 64)
               c = v_0 m + v_1 s + v_2 r
    TOP        i = argmax c;  C = c_i, D = 1 - C;  offset = interp(offsets, 10 C)
               t = C/(C + D e^-offset);  p_i = z_0 C + z_1 t, the others c_k scaled
    GUARD      forecast = (g_0 p + g_1 o + 1e-7) / (1 + K 1e-7)

A label y comes ``lag`` labels after its forecast, as the n-th: alpha = .5/n, tau = 1/(1 + lag/10). Each stage is asked
again at the row of now, so the receipt is small; only the guard judges what was issued. The steps of each stage stand
at its function below. `layout` says where the numbers lie.
"""

from __future__ import annotations

import math

from calibeat._util.types import Vector
from calibeat.core.jit import kernel, large_kernel
from calibeat.core.mixtures import EPS, LAG_TEMPER, ONS_GAIN, ONS_RADIUS, SHARE, STEP, inside, pull_of
from calibeat.core.spline import EXPERT_KNOTS, knot, move_knots

from .layout import (
    BIAS,
    HEAD,
    ISSUED_SLOPE,
    KNOWN,
    MOST_CONFUSED,
    MULTI,
    NAMED,
    OFFSET,
    ONLINE_TEMPERATURE,
    REST_SHARE,
    REST_SPLINE,
    SCORE,
    SEEN,
    SLOPE,
    SLOPE_INFORMATION,
    THETA,
    THETA_WIDTH,
    TOP,
    TOP_SHARE,
    TOP_SPLINE,
    G,
    N,
    V,
    W,
    Z,
)
from .softmax import exponentials, largest, lower_to_zero, softmax, total

# How much of the past a lane keeps at each label: of the shared numbers, and of the biases.
KEEP_1, KEEP_2, KEEP_BIAS_3 = 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0 - 1.0 / 50.0


# ---- forecast -----------------------------------------------------------------------------------------------------


@large_kernel
def read(K: int, score: Vector, work: Vector) -> None:
    """f, x, u and the named class of a score."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    named, best = 0, -1.0
    for k in range(K):
        given = score[k]
        if given > best:
            best, named = given, k
        floored = given if given > EPS else EPS
        f[k] = floored
        u[k] = 1.0 if given <= EPS else 0.0
        x[k] = math.log(floored)
    scale = 1.0 / total(f)
    for k in range(K):
        f[k] *= scale
    work[NAMED] = named


@kernel
def online_temperature(K: int, A: float, work: Vector, at: int) -> None:
    """softmax(A x), into work from `at` on."""
    x, o = work[HEAD : HEAD + K], work[at : at + K]
    for k in range(K):
        o[k] = A * x[k]
    softmax(o)


@large_kernel
def ask_lanes(K: int, row: Vector, work: Vector) -> None:
    """e_0, ..., e_3, o and their mixture m."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    first = HEAD + 3 * K
    for lane in range(4):
        at = THETA + THETA_WIDTH * lane
        a, c, d = row[at], row[at + 1], row[at + 2]
        at = BIAS + 2 * lane * K
        b, z = row[at : at + K], work[first + lane * K : first + (lane + 1) * K]
        for k in range(K):
            z[k] = a * x[k] + c * f[k] + d * u[k] + b[k]
        lower_to_zero(z)
    a, z = row[SLOPE], work[first + 4 * K : first + 5 * K]
    for k in range(K):
        z[k] = a * x[k]
    lower_to_zero(z)
    exponentials(work[first : first + 5 * K])
    m, w = work[first + 5 * K : first + 6 * K], row[W + 4]
    for k in range(K):
        m[k] = w * f[k]
    for lane in range(5):
        e, w = work[first + lane * K : first + (lane + 1) * K], row[W + lane if lane < 4 else W + 5]
        scale = 1.0 / total(e)
        for k in range(K):
            p = e[k] * scale
            e[k] = p
            m[k] += w * p


@kernel
def place(m: float) -> tuple[int, float]:
    """The knot to the left of m among (0, .01, .1, .5, .9, 1), and the weight of the one to its right."""
    j, left, per_width = 0, 0.0, 100.0
    if m > 0.01:
        j, left, per_width = 1, 0.01, 1.0 / 0.09
    if m > 0.1:
        j, left, per_width = 2, 0.1, 2.5
    if m > 0.5:
        j, left, per_width = 3, 0.5, 2.5
    if m > 0.9:
        j, left, per_width = 4, 0.9, 10.0
    h = (m - left) * per_width
    return j, h if h < 1.0 else 1.0


@large_kernel
def ask_stages(K: int, row: Vector, work: Vector) -> None:
    """s, r and their mixture c with m."""
    at = HEAD + 8 * K
    m, s, r, c = work[at : at + K], work[at + K : at + 2 * K], work[at + 2 * K : at + 3 * K], work[at + 3 * K :]
    rho = row[BIAS + 8 * K : BIAS + 14 * K]
    for k in range(K):
        j, h = place(m[k])
        s[k] = m[k] * ((1.0 - h) * rho[6 * k + j] + h * rho[6 * k + j + 1])
    scale = 1.0 / total(s)
    v0, v1, v2 = row[V], row[V + 1], row[V + 2]
    if K <= MOST_CONFUSED:
        at = BIAS + 20 * K + int(work[NAMED]) * K
        kappa = row[at : at + K]
        for k in range(K):
            s[k] *= scale
            r[k] = s[k] * kappa[k]
        scale = 1.0 / total(r)
        for k in range(K):
            r[k] *= scale
            c[k] = v0 * m[k] + v1 * s[k] + v2 * r[k]
    else:
        for k in range(K):
            s[k] *= scale
            c[k] = v0 * m[k] + v1 * s[k]


@large_kernel
def ask_top(K: int, row: Vector, work: Vector, p: Vector) -> None:
    """The expert p, from c: the share of the top class by the spline, the others scaled."""
    c = work[HEAD + 11 * K : HEAD + 12 * K]
    best = largest(c)
    i = 0
    while c[i] != best:
        i += 1
    c[i] = 0.0
    rest = total(c)
    c[i] = best
    # 1 - C would have lost the digits of a small rest.
    C, D = inside(best / (best + rest)), inside(rest / (best + rest))
    j, h = knot(10.0 * C, EXPERT_KNOTS - 1)
    odds = D * math.exp(-((1.0 - h) * row[OFFSET + j] + h * row[OFFSET + j + 1]))
    t, t_rest = inside(C / (C + odds)), inside(odds / (C + odds))
    scale = (row[Z] * D + row[Z + 1] * t_rest) / rest
    for k in range(K):
        p[k] = c[k] * scale
    p[i] = row[Z] * C + row[Z + 1] * t
    work[TOP] = i
    work[TOP_SHARE], work[TOP_SPLINE], work[REST_SHARE], work[REST_SPLINE] = C, t, D, t_rest


@kernel
def ask(method: int, K: int, row: Vector, score: Vector, work: Vector, p: Vector) -> None:
    """Everything that the row of now says of a score, into the scratch; the expert into p."""
    read(K, score, work)
    if method == ONLINE_TEMPERATURE:
        online_temperature(K, row[2], work, HEAD + 7 * K)
    elif method == MULTI:
        ask_lanes(K, row, work)
        ask_stages(K, row, work)
        ask_top(K, row, work, p)


@kernel
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
        said = work[at : at + K]
        for k in range(K):
            forecast[k] = said[k]


# ---- learn --------------------------------------------------------------------------------------------------------


@kernel
def settle(method: int, K: int, row: Vector, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn label y; the scratch holds what the row of now says, `issued` is the forecast that y had."""
    if method == MULTI:
        n = row[N] + 1.0
        lag = row[N] - receipt[SEEN]
        weigh(K, row, n, lag, y, receipt, work)
        for lane in range(4):
            learn_lane(K, row, lane, y, work)
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


@kernel
def update(method: int, K: int, row: Vector, y: int, receipt: Vector, work: Vector, issued: float) -> None:
    """Learn a label that may be late: everything is asked again at the row of now."""
    # The expert of now is needed by nobody: it goes where the scratch is free, the receipt keeps the issued one.
    ask(method, K, row, receipt[SCORE : SCORE + K], work, work[HEAD + 2 * K : HEAD + 3 * K])
    if method == MULTI:
        u = work[HEAD + 2 * K : HEAD + 3 * K]
        for k in range(K):
            u[k] = 1.0 if receipt[SCORE + k] <= EPS else 0.0
    settle(method, K, row, y, receipt, work, issued)


@large_kernel
def weigh(K: int, row: Vector, n: float, lag: float, y: int, receipt: Vector, work: Vector) -> None:
    """w, v, z and g, by the probability that each part gave to y; late labels count less and pull towards ONS."""
    alpha, pull, tau = SHARE / n, 0.0, 1.0
    at = HEAD + 3 * K + y
    issued_slope = work[at + 4 * K]
    if lag > 0.0:
        tau, pull = 1.0 / (1.0 + lag / LAG_TEMPER), pull_of(lag, n)
    for lane in range(4):
        row[W + lane] *= tempered(work[at + lane * K], tau)
    row[W + 4] *= tempered(work[HEAD + K + y], tau)
    row[W + 5] *= tempered(work[at + 4 * K], tau)
    share(row, W, 6, alpha, pull, W + 5)
    stages = 3 if K <= MOST_CONFUSED else 2
    for stage in range(stages):
        row[V + stage] *= work[HEAD + (8 + stage) * K + y]
    share(row, V, stages, alpha, pull, V)
    hit = y == int(work[TOP])
    row[Z] *= work[TOP_SHARE] if hit else work[REST_SHARE]
    row[Z + 1] *= work[TOP_SPLINE] if hit else work[REST_SPLINE]
    share(row, Z, 2, alpha, pull, Z)
    if lag > 0.0:  # the mixture c has done its duty: its place holds what ONS said when the forecast was made
        at = HEAD + 11 * K
        online_temperature(K, receipt[ISSUED_SLOPE], work, at)
        issued_slope = work[at + y]
    row[G] *= tempered(receipt[SCORE + K + y], tau)
    row[G + 1] *= tempered(issued_slope, tau)
    share(row, G, 2, alpha, 0.0, G)


@kernel
def tempered(likelihood: float, tau: float) -> float:
    """likelihood^tau."""
    return likelihood if tau == 1.0 else math.pow(likelihood, tau)


@kernel
def share(row: Vector, at: int, count: int, alpha: float, pull: float, home: int) -> None:
    """Weights that were multiplied by their likelihoods -> (1 - pull) ((1 - alpha) w/sum + alpha/count) + pull 1[home]."""
    mass = 0.0
    for part in range(at, at + count):
        mass += row[part]
    keep, gift = (1.0 - pull) * (1.0 - alpha) / mass, (1.0 - pull) * (alpha / count)
    for part in range(at, at + count):
        row[part] = keep * row[part] + gift
    row[home] += pull


@kernel
def moments(e: Vector, x: Vector, f: Vector, u: Vector, x_y: float, f_y: float) -> tuple[float, float, float, float, float, float]:
    """Means over e of X, F, XX, XF, FF and u, with X = x - x_y and F = f - f_y: around the label nothing cancels."""
    mx = mf = mxx = mxf = mff = mu = 0.0
    for k in range(len(e)):
        p, X, F = e[k], x[k] - x_y, f[k] - f_y
        pX, pF = p * X, p * F
        mx += pX
        mf += pF
        mxx += pX * X
        mxf += pX * F
        mff += pF * F
        mu += p * u[k]
    return mx, mf, mxx, mxf, mff, mu


@large_kernel
def learn_lane(K: int, row: Vector, lane: int, y: int, work: Vector) -> None:
    """H <- keep H + (1 - keep) H_0 + Cov(x, f, u);  theta += H^-1 r min(1, 2/(r H^-1 r)), r = (x, f, u)_y - mean;
    old = keep I, gift = (1 - keep)/variance;  b *= old/(old + gift);  I = old + gift + e(1 - e);  b += (1[y] - e)/I."""
    x, f, u = work[HEAD : HEAD + K], work[HEAD + K : HEAD + 2 * K], work[HEAD + 2 * K : HEAD + 3 * K]
    at = HEAD + (3 + lane) * K
    e = work[at : at + K]
    x_y, f_y, u_y = x[y], f[y], u[y]
    mx, mf, mxx, mxf, mff, mu = moments(e, x, f, u, x_y, f_y)
    # All classes at the floor have the same x and f, so the moments of u - u_y follow from those at hand.
    if u_y == 0.0:
        mux, muf, muu = 0.0, 0.0, mu
        if mu > 0.0:
            k = 0
            while u[k] == 0.0:
                k += 1
            mux, muf = mu * (x[k] - x_y), mu * (f[k] - f_y)
    else:
        muu = 1.0 - mu
        mu, mux, muf = -muu, -mx, -mf
    at = THETA + THETA_WIDTH * lane
    keep = KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else 1.0
    h00 = keep * row[at + 3] + (1.0 - keep) * 4.0 + (mxx - mx * mx)
    h01 = keep * row[at + 4] + (mxf - mx * mf)
    h02 = keep * row[at + 5] + (mux - mx * mu)
    h11 = keep * row[at + 6] + (1.0 - keep) + (mff - mf * mf)
    h12 = keep * row[at + 7] + (muf - mf * mu)
    h22 = keep * row[at + 8] + (1.0 - keep) * 0.25 + (muu - mu * mu)
    row[at + 3], row[at + 4], row[at + 5] = h00, h01, h02
    row[at + 6], row[at + 7], row[at + 8] = h11, h12, h22
    s0, s1, s2 = solved(h00, h01, h02, h11, h12, h22, -mx, -mf, -mu)
    gain = -(s0 * mx + s1 * mf + s2 * mu)
    gain = STEP / (gain if gain > STEP else STEP)
    row[at] += s0 * gain
    row[at + 1] += s1 * gain
    row[at + 2] += s2 * gain

    at = BIAS + 2 * lane * K
    b, information = row[at : at + K], row[at + K : at + 2 * K]
    if lane == 0:
        for k in range(K):
            p = e[k]
            known = information[k] + p * (1.0 - p)
            information[k] = known
            b[k] -= p / known
    else:
        keep = KEEP_1 if lane == 1 else KEEP_2 if lane == 2 else KEEP_BIAS_3
        gift = 1.0 - keep
        for k in range(K):
            p = e[k]
            old = keep * information[k]
            anchored = old + gift
            known = anchored + p * (1.0 - p)
            information[k] = known
            # b * old/anchored - p/known, with one division
            b[k] = (b[k] * (old * known) - p * anchored) / (anchored * known)
    b[y] += 1.0 / information[y]


@kernel
def solved(
    h00: float, h01: float, h02: float, h11: float, h12: float, h22: float, r0: float, r1: float, r2: float
) -> tuple[float, float, float]:
    """H^-1 r for a symmetric positive definite H, by LDL'."""
    l1, l2 = h01 / h00, h02 / h00
    d1 = h11 - l1 * h01
    g = h12 - l1 * h02
    l3 = g / d1
    d2 = h22 - l2 * h02 - l3 * g
    r1 -= l1 * r0
    r2 -= l2 * r0 + l3 * r1
    s2 = r2 / d2
    s1 = r1 / d1 - l3 * s2
    return r0 / h00 - l1 * s1 - l2 * s2, s1, s2


@large_kernel
def slope_step(K: int, row: Vector, at: int, y: int, work: Vector) -> None:
    """Online Newton on the temperature: g = mean of x under o, minus x_y;  H += g^2;  A = clip(A - 10 g/H)."""
    x, o = work[HEAD : HEAD + K], work[HEAD + 7 * K : HEAD + 8 * K]
    x_y, g = x[y], 0.0
    for k in range(K):
        g += o[k] * (x[k] - x_y)
    row[at + 1] += g * g
    A = row[at] - ONS_GAIN * g / row[at + 1]
    A = A if A < ONS_RADIUS else ONS_RADIUS
    row[at] = A if A > -ONS_RADIUS else -ONS_RADIUS


@large_kernel
def learn_factors(K: int, row: Vector, y: int, work: Vector) -> None:
    """At the two knots around m_k, with weight h: ell += h s(1 - s), rho *= 1 + h (1[y] - s)/ell; kappa likewise."""
    at = HEAD + 8 * K
    m, s, r = work[at : at + K], work[at + K : at + 2 * K], work[at + 2 * K : at + 3 * K]
    rho, ell = row[BIAS + 8 * K : BIAS + 14 * K], row[BIAS + 14 * K : BIAS + 20 * K]
    for k in range(K):
        j, h = place(m[k])
        p = s[k]
        j += 6 * k
        left, variance, error = 1.0 - h, p * (1.0 - p), (1.0 if k == y else 0.0) - p
        known, known_right = ell[j] + left * variance, ell[j + 1] + h * variance
        ell[j], ell[j + 1] = known, known_right
        rho[j] *= 1.0 + left * error / known
        rho[j + 1] *= 1.0 + h * error / known_right
    if K <= MOST_CONFUSED:
        at = BIAS + 20 * K + int(work[NAMED]) * K
        kappa, info = row[at : at + K], row[at + K * K : at + K * K + K]
        for k in range(K):
            p = r[k]
            known = info[k] + p * (1.0 - p)
            info[k] = known
            kappa[k] *= 1.0 + ((1.0 if k == y else 0.0) - p) / known


@kernel
def compound(row: Vector, at: int, ratio: float) -> None:
    """Multiply the likelihood ratio of forecast over score into row[at + 1]; what grows or shrinks goes to row[at] as a log."""
    product = row[at + 1] * ratio if ratio > 1e-100 else row[at + 1]
    if ratio <= 1e-100:
        row[at] += math.log(ratio)
    if product < 1e-100 or product > 1e100:
        row[at] += math.log(product)
        product = 1.0
    row[at + 1] = product
