"""MULTI, transcribed naively from its specification: plain NumPy, general solvers. Slow, and meant to be read.

oracle = Oracle(K);  forecast, receipt = oracle.predict(score);  oracle.update(receipt, label).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

WINDOW_THETA = (np.inf, 1000.0, 300.0, np.inf)
WINDOW_BIAS = (np.inf, 1000.0, 300.0, 50.0)
VARIANCE_BIAS = (0.1, 1.0, 1.0, 1.0)
H0 = np.diag([4.0, 1.0, 0.25])
KNOTS = np.array([0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
EPS = 1e-7
# The horizon lane: prior variance, temper 1/(1 + D/100), window, clip of the logits that it looks at, start.
H_PRIOR, H_LAG, H_WINDOW, H_CLIP, H_START = 0.3, 100.0, 1000.0, 8.0, np.full(5, 0.2)
D_WINDOW, LAZY = 1000.0, 1.1


def softmax(z: Vector) -> Vector:
    e = np.exp(np.maximum(z - z.max(), -700.0))
    return e / e.sum()


def looked_at(e: Vector, x: Vector) -> Vector:
    """K x 5: the logits of lanes 0-3 and of the score, each with its largest at 0, clipped from below."""
    phi = np.stack([*np.log(np.maximum(e[:4], 1e-300)), x], 1)
    return np.maximum(phi - phi.max(0), -H_CLIP)


def horizon(eta: Vector, phi: Vector) -> Vector:
    return (softmax(phi @ eta) + EPS) / (1 + len(phi) * EPS)


class Weights:
    """Weights of parts, tempered by what stale weights have cost (G, signed); T is the largest 1 + G so far, lazily."""

    def __init__(self, J: int) -> None:
        self.w, self.G, self.T = np.full(J, 1 / J), 0.0, 1.0

    def learn(self, L: Vector, issued: float, lag: int, alpha: float) -> None:
        """L: what each part gave to the label when it was issued; issued: what the mixture gave to it then."""
        J = len(self.w)
        stale = np.log(self.w @ L / issued) if lag > 0 else 0.0
        u = self.w * (L if self.T == 1.0 else L ** (1 / self.T))
        self.w = (1 - alpha) * u / u.sum() + alpha / J
        self.G += stale
        if 1 + self.G > LAZY * self.T:
            c = self.T / (1 + self.G)
            u = self.w**c * (1 / J) ** (1 - c)
            self.w, self.T = u / u.sum(), 1 + self.G


class Oracle:
    def __init__(self, K: int) -> None:
        self.K, self.n = K, 0
        self.confusion = K <= 64
        self.W, self.V, self.Z, self.guard = Weights(6), Weights(2 + self.confusion), Weights(2), Weights(2)
        self.theta = [np.array([1.0, 0.0, 0.0]) for _ in range(4)]
        self.H = [H0.copy() for _ in range(4)]
        self.b = [np.zeros(K) for _ in range(4)]
        self.info_b = [np.full(K, 1 / v) for v in VARIANCE_BIAS]
        self.a, self.A = 1.0, 100.0
        self.rho, self.ell = np.ones((K, 6)), np.full((K, 6), 3.0)
        if self.confusion:
            self.kappa, self.info = np.ones((K, K)), np.full((K, K), 2.0)
        self.offset, self.known = np.zeros(11), np.full(11, 10.0)
        self.D, self.eta, self.P = 0.0, H_START.copy(), np.eye(5) / H_PRIOR

    @property
    def awake(self) -> bool:
        return len(self.W.w) == 7

    def predict(self, given: Vector) -> tuple[Vector, dict[str, Any]]:
        """The forecast, and the receipt: everything that the row of now says of a score."""
        score = np.asarray(given, float)
        g = np.maximum(score, EPS)
        f, x, u = g / g.sum(), np.log(g), (score <= EPS).astype(float)
        phi = np.stack([x, f, u], 1)
        e = np.array([softmax(phi @ self.theta[lane] + self.b[lane]) for lane in range(4)])
        lanes = np.array([*e, f, softmax(self.a * x), *([horizon(self.eta, looked_at(e, x))] if self.awake else [])])
        m = self.W.w @ lanes
        hats = np.stack([np.interp(m, KNOTS, np.eye(6)[j]) for j in range(6)], 1)
        s = m * (hats * self.rho).sum(1)
        s = s / s.sum()
        named = int(np.argmax(score))
        stages = [m, s]
        if self.confusion:
            r = s * self.kappa[named]
            stages.append(r / r.sum())
        c = self.V.w @ np.array(stages)
        top = int(np.argmax(c))
        rest = np.delete(c, top).sum()
        ct = np.clip(np.array([c[top], rest]) / (c[top] + rest), EPS, 1 - EPS)  # top, rest
        hat = np.array([np.interp(10 * ct[0], np.arange(11), line) for line in np.eye(11)])
        odds = np.array([ct[0], ct[1] * np.exp(-(hat @ self.offset))])
        t = np.clip(odds / odds.sum(), EPS, 1 - EPS)
        said = self.Z.w[0] * ct + self.Z.w[1] * t
        p = c * said[1] / rest
        p[top] = said[0]
        mixed = self.guard.w @ np.array([p, lanes[5]])
        receipt = {"n": self.n, "score": score, "mixed": mixed, "phi": phi, "lanes": lanes, "stages": stages, "c": c}
        receipt |= {"named": named, "hats": hats, "top": top, "ct": ct, "t": t, "said": said, "hat": hat, "p": p}
        return (mixed + EPS) / (1 + self.K * EPS), receipt

    def update(self, q: dict[str, Any], y: int) -> None:
        lag = self.n - q["n"]
        now = self.predict(q["score"])[1]  # lag 0: the receipt itself, to the bit
        n = self.n + 1
        self.D += (lag - self.D) / min(n, D_WINDOW)
        self.judge(q, y, lag, 0.5 / n)
        self.move(now, y)
        self.n = n

    def judge(self, q: dict[str, Any], y: int, lag: int, alpha: float) -> None:
        """The weights judge what was issued."""
        if lag > 0 and not self.awake:  # the first late label wakes the horizon lane
            self.W.w = np.append(self.W.w * (6 / 7), 1 / 7)
        issued, look = q["lanes"][:, y], looked_at(q["lanes"], q["phi"][:, 0])
        if self.awake and len(issued) == 6:  # asleep when the forecast was made: its start
            issued = np.append(issued, horizon(H_START, look)[y])
        self.W.learn(issued, q["stages"][0][y], lag, alpha)
        self.V.learn(np.array([stage[y] for stage in q["stages"]]), q["c"][y], lag, alpha)
        side = 0 if y == q["top"] else 1
        self.Z.learn(np.array([q["ct"][side], q["t"][side]]), q["said"][side], lag, alpha)
        self.guard.learn(np.array([q["p"][y], q["lanes"][5][y]]), q["mixed"][y], lag, alpha)

        # The horizon lane: what the lanes had said against the label; not from forecasts before the lanes had learnt.
        if self.awake and q["n"] >= self.D:
            temper = 1 / (1 + self.D / H_LAG)
            h = horizon(self.eta, look)
            mean = h @ look
            keep, spread = 1 - temper / H_WINDOW, ((look - mean) * h[:, None]).T @ (look - mean)
            self.P = keep * self.P + (1 - keep) * np.eye(5) / H_PRIOR + temper * spread
            r = look[y] - mean
            step = np.linalg.solve(self.P, temper * r)
            self.eta = self.eta + step * (2 / max(2.0, step @ r))

    def move(self, q: dict[str, Any], y: int) -> None:
        """Everything that moves moves from now."""
        phi, onehot = q["phi"], np.eye(self.K)[y]
        for lane in range(4):
            p = q["lanes"][lane]
            centred = phi - p @ phi
            keep = 1 - 1 / WINDOW_THETA[lane]
            self.H[lane] = keep * self.H[lane] + (1 - keep) * H0 + (centred * p[:, None]).T @ centred
            r = centred[y]
            step = np.linalg.solve(self.H[lane], r)
            self.theta[lane] = self.theta[lane] + step * (2 / max(2.0, step @ r))
            keep = 1 - 1 / WINDOW_BIAS[lane]
            old, gift = keep * self.info_b[lane], (1 - keep) / VARIANCE_BIAS[lane]
            self.b[lane] = self.b[lane] * old / (old + gift)
            self.info_b[lane] = old + gift + p * (1 - p)
            self.b[lane] = self.b[lane] + (onehot - p) / self.info_b[lane]
        x = phi[:, 0]
        g = q["lanes"][5] @ x - x[y]
        self.A += g * g
        self.a = float(np.clip(self.a - 10 * g / self.A, -100, 100))
        s = q["stages"][1]
        self.ell = self.ell + q["hats"] * (s * (1 - s))[:, None]
        self.rho = self.rho * (1 + q["hats"] * (onehot - s)[:, None] / self.ell)
        if self.confusion:
            r, j = q["stages"][2], q["named"]
            self.info[j] = self.info[j] + r * (1 - r)
            self.kappa[j] = self.kappa[j] * (1 + (onehot - r) / self.info[j])
        t, hit = q["t"][0], float(y == q["top"])
        self.known = self.known + q["hat"] * t * (1 - t)
        self.offset = self.offset + q["hat"] * (hit - t) / self.known

    def row(self, t: int) -> Vector:
        w, v = self.W.w, [*self.V.w, *([] if self.confusion else [0.0])]
        out = [float(t), float(self.n), *w[:6], *v, *self.Z.w, *self.guard.w, self.a, self.A]
        for theta, H in zip(self.theta, self.H, strict=True):
            out += [*theta, H[0, 0], H[0, 1], H[0, 2], H[1, 1], H[1, 2], H[2, 2]]
        out += [*self.offset, *self.known]
        for b, info in zip(self.b, self.info_b, strict=True):
            out += [*b, *info]
        out += [*self.rho.ravel(), *self.ell.ravel()]
        if self.confusion:
            out += [*self.kappa.ravel(), *self.info.ravel()]
        for weights in (self.W, self.V, self.Z, self.guard):
            out += [weights.G, weights.T]
        return np.array([*out, w[6] if self.awake else 0.0, self.D, *self.eta, *self.P[np.triu_indices(5)]])


def calibrate(scores: Vector, labels: NDArray[Any], due: NDArray[Any] | None = None) -> tuple[Vector, Vector]:
    """Forecasts and the final row; a label due at n or later never arrives."""
    n, K = scores.shape
    oracle, out, receipts = Oracle(K), np.empty((n, K)), [None] * n
    immediate = due is None
    due = np.arange(n) + 1 if due is None else np.asarray(due)
    order = sorted(range(n), key=lambda i: (due[i], i))
    arrived = 0
    for i in range(n + 1):
        while arrived < n and due[order[arrived]] <= i and (i < n or immediate):
            j = order[arrived]
            oracle.update(receipts[j], int(labels[j]))  # type: ignore[arg-type]
            receipts[j] = None
            arrived += 1
        if i < n:
            out[i], receipts[i] = oracle.predict(scores[i])  # type: ignore[call-overload]
    return out, oracle.row(n)


def online_temperature(scores: Vector, labels: NDArray[Any]) -> Vector:
    """ONS-T alone."""
    a, A, out = 1.0, 100.0, np.empty(scores.shape)
    for i, (score, y) in enumerate(zip(scores, labels, strict=True)):
        x = np.log(np.maximum(score, 1e-7))
        out[i] = softmax(a * x)
        g = out[i] @ x - x[y]
        A += g * g
        a = float(np.clip(a - 10 * g / A, -100, 100))
    return out
