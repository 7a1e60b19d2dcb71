"""How each stage of MULTI learns a label."""

from __future__ import annotations

import math

from calibeat._util.types import Vector
from calibeat.core.auto import ONS_GAIN, ONS_RADIUS, SHARE, STEP
from calibeat.core.jit import compilable

from .ask import online_temperature, place
from .layout import (
    BIAS,
    HEAD,
    ISSUED_SLOPE,
    MOST_CONFUSED,
    NAMED,
    REST_SHARE,
    REST_SPLINE,
    SCORE,
    THETA,
    THETA_WIDTH,
    TOP,
    TOP_SHARE,
    TOP_SPLINE,
    G,
    V,
    W,
    Z,
)

LAG_TEMPER, LAG_PULL, MOST_PULL = 10.0, 0.05, 0.5  # late labels: L^(1/(1 + lag/10)), and a pull of 0.05 lag/n
# How much of the past a lane keeps at each label: of the shared numbers, and of the biases.
KEEP_1, KEEP_2, KEEP_BIAS_3 = 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0 - 1.0 / 50.0


@compilable
def pull_of(lag: float, n: float) -> float:
    """How far a late label pulls the weights towards the plain parts: by how few lags fit in the past."""
    pull = LAG_PULL * lag / n
    return pull if pull < MOST_PULL else MOST_PULL


@compilable
def weigh(K: int, row: Vector, n: float, lag: float, y: int, receipt: Vector, work: Vector) -> None:
    """w <- (1 - pull) ((1 - alpha) w L/sum + alpha/6) + pull 1[ONS], L the probability that each part gave to y.

    v, z and g likewise. A late label counts less (L^tau), and pulls towards the plain parts.
    """
    at = HEAD + 3 * K + y
    e0, e1, e2, e3 = work[at], work[at + K], work[at + 2 * K], work[at + 3 * K]
    f, o, issued_o = work[HEAD + K + y], work[at + 4 * K], work[at + 4 * K]
    m, s, r = work[at + 5 * K], work[at + 6 * K], work[at + 7 * K]
    p = receipt[SCORE + K + y]
    alpha, pull = SHARE / n, 0.0
    if lag > 0.0:
        # The mixture c has done its duty: its place holds what ONS said when the forecast was made.
        online_temperature(K, receipt[ISSUED_SLOPE], work, HEAD + 11 * K)
        issued_o = work[HEAD + 11 * K + y]
        tau, pull = 1.0 / (1.0 + lag / LAG_TEMPER), pull_of(lag, n)
        e0, e1, e2, e3 = math.pow(e0, tau), math.pow(e1, tau), math.pow(e2, tau), math.pow(e3, tau)
        f, o, p, issued_o = math.pow(f, tau), math.pow(o, tau), math.pow(p, tau), math.pow(issued_o, tau)
    u0, u1, u2, u3 = row[W] * e0, row[W + 1] * e1, row[W + 2] * e2, row[W + 3] * e3
    u4, u5 = row[W + 4] * f, row[W + 5] * o
    keep = (1.0 - pull) * (1.0 - alpha) / (((u0 + u1) + (u2 + u3)) + (u4 + u5))
    gift = (1.0 - pull) * (alpha / 6.0)
    row[W], row[W + 1], row[W + 2] = keep * u0 + gift, keep * u1 + gift, keep * u2 + gift
    row[W + 3], row[W + 4], row[W + 5] = keep * u3 + gift, keep * u4 + gift, keep * u5 + gift + pull
    if K <= MOST_CONFUSED:
        u0, u1, u2 = row[V] * m, row[V + 1] * s, row[V + 2] * r
        keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1 + u2)
        gift = (1.0 - pull) * (alpha / 3.0)
        row[V], row[V + 1], row[V + 2] = keep * u0 + gift + pull, keep * u1 + gift, keep * u2 + gift
    else:
        weigh_two(row, V, m, s, alpha, pull)
    if y == int(work[TOP]):
        weigh_two(row, Z, work[TOP_SHARE], work[TOP_SPLINE], alpha, pull)
    else:
        weigh_two(row, Z, work[REST_SHARE], work[REST_SPLINE], alpha, pull)
    weigh_two(row, G, p, issued_o, alpha, 0.0)


@compilable
def weigh_two(row: Vector, at: int, first: float, second: float, alpha: float, pull: float) -> None:
    """Two weights by two likelihoods; the pull is towards the first."""
    u0, u1 = row[at] * first, row[at + 1] * second
    keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1)
    gift = (1.0 - pull) * (alpha / 2.0)
    row[at], row[at + 1] = keep * u0 + gift + pull, keep * u1 + gift


@compilable
def moments(
    e: Vector, x: Vector, f: Vector, u: Vector, x_y: float, f_y: float
) -> tuple[float, float, float, float, float, float]:
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


@compilable
def learn_shared(K: int, row: Vector, lane: int, y: int, work: Vector) -> None:
    """H <- keep H + (1 - keep) H_0 + Cov(x, f, u);  theta += H^-1 r min(1, 2/(r H^-1 r)), r = (x, f, u)_y - mean."""
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


@compilable
def learn_biases(K: int, row: Vector, lane: int, y: int, work: Vector) -> None:
    """old = keep I, gift = (1 - keep)/variance;  b *= old/(old+gift);  I = old + gift + e(1-e);  b += (1[y] - e)/I."""
    at = HEAD + (3 + lane) * K
    e = work[at : at + K]
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


@compilable
def solved(
    h00: float, h01: float, h02: float, h11: float, h12: float, h22: float, r0: float, r1: float, r2: float
) -> tuple[float, float, float]:
    """H^-1 r for a symmetric positive definite H, by LDL'."""
    i0 = 1.0 / h00
    l1, l2 = h01 * i0, h02 * i0
    g = h12 - l1 * h02
    i1 = 1.0 / (h11 - l1 * h01)
    l3 = g * i1
    r1 -= l1 * r0
    r2 -= l2 * r0 + l3 * r1
    s2 = r2 / (h22 - l2 * h02 - l3 * g)
    s1 = r1 * i1 - l3 * s2
    return r0 * i0 - l1 * s1 - l2 * s2, s1, s2


@compilable
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


@compilable
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


@compilable
def compound(row: Vector, at: int, ratio: float) -> None:
    """Multiply a likelihood ratio into row[at + 1]; what leaves [1e-100, 1e100] goes to row[at], as a logarithm."""
    product = row[at + 1] * ratio if ratio > 1e-100 else row[at + 1]
    if ratio <= 1e-100:
        row[at] += math.log(ratio)
    if product < 1e-100 or product > 1e100:
        row[at] += math.log(product)
        product = 1.0
    row[at + 1] = product
