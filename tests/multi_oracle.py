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


def softmax(z: Vector) -> Vector:
    e = np.exp(z - z.max())
    return e / e.sum()


class Oracle:
    def __init__(self, K: int) -> None:
        self.K, self.n = K, 0
        self.w = np.full(6, 1 / 6)  # lanes 0..3, identity, ONS
        self.confusion = K <= 64
        stages = 3 if self.confusion else 2
        self.v, self.z = np.full(stages, 1 / stages), np.full(2, 0.5)
        self.g = np.full(2, 0.5)  # the guard: expert, ONS
        self.theta = [np.array([1.0, 0.0, 0.0]) for _ in range(4)]
        self.H = [H0.copy() for _ in range(4)]
        self.b = [np.zeros(K) for _ in range(4)]
        self.info_b = [np.full(K, 1 / v) for v in VARIANCE_BIAS]
        self.a, self.A = 1.0, 100.0
        self.rho, self.ell = np.ones((K, 6)), np.full((K, 6), 3.0)
        if self.confusion:
            self.kappa, self.info = np.ones((K, K)), np.full((K, K), 2.0)
        self.offset, self.known = np.zeros(11), np.full(11, 10.0)

    def parts(self, given: Vector) -> dict[str, Any]:
        score = np.asarray(given, float)
        g = np.maximum(score, 1e-7)
        f, x, u = g / g.sum(), np.log(g), (score <= 1e-7).astype(float)
        phi = np.stack([x, f, u], 1)
        e = [softmax(phi @ self.theta[lane] + self.b[lane]) for lane in range(4)]
        lanes = np.array([*e, f, softmax(self.a * x)])
        m = self.w @ lanes
        hats = np.stack([np.interp(m, KNOTS, np.eye(6)[j]) for j in range(6)], 1)
        s = m * (hats * self.rho).sum(1)
        s = s / s.sum()
        named = int(np.argmax(score))
        stages = [m, s]
        if self.confusion:
            r = s * self.kappa[named]
            stages.append(r / r.sum())
        c = self.v @ np.array(stages)
        top = int(np.argmax(c))
        rest = np.delete(c, top).sum()
        ct = np.clip(np.array([c[top], rest]) / (c[top] + rest), 1e-7, 1 - 1e-7)  # top, rest
        hat = np.array([np.interp(10 * ct[0], np.arange(11), line) for line in np.eye(11)])
        odds = np.array([ct[0], ct[1] * np.exp(-(hat @ self.offset))])
        t = np.clip(odds / odds.sum(), 1e-7, 1 - 1e-7)
        said = self.z[0] * ct + self.z[1] * t
        p = c * said[1] / rest
        p[top] = said[0]
        forecast = (self.g @ np.array([p, lanes[5]]) + 1e-7) / (1 + self.K * 1e-7)
        return {
            "forecast": forecast,
            "phi": phi,
            "lanes": lanes,
            "stages": stages,
            "named": named,
            "hats": hats,
            "top": top,
            "ct": ct,
            "t": t,
            "hat": hat,
            "p": p,
        }

    def predict(self, score: Vector) -> tuple[Vector, tuple[int, Vector, Vector, Vector]]:
        q = self.parts(score)
        return q["forecast"], (self.n, np.array(score), q["p"], q["lanes"][5])

    def update(self, receipt: tuple[int, Vector, Vector, Vector], y: int) -> None:
        seen, score, expert, ons = receipt
        q = self.parts(score)
        lag = self.n - seen
        n = self.n + 1
        alpha, temper = 0.5 / n, 1 / (1 + lag / 10)
        pull = min(0.5, 0.05 * lag / n)

        def weigh(w: Vector, likelihood: Vector, home: int) -> Vector:
            u = w * likelihood
            w = (1 - alpha) * u / u.sum() + alpha / len(w)
            return (1 - pull) * w + pull * np.eye(len(w))[home]

        self.w = weigh(self.w, q["lanes"][:, y] ** temper, 5)
        self.v = weigh(self.v, np.array([stage[y] for stage in q["stages"]]), 0)
        ct, t, hit = q["ct"], q["t"], float(y == q["top"])
        self.z = weigh(self.z, np.array([ct[0], t[0]]) if hit else np.array([ct[1], t[1]]), 0)
        u = self.g * np.array([expert[y], ons[y]]) ** temper
        self.g = (1 - alpha) * u / u.sum() + alpha / 2
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
        self.known = self.known + q["hat"] * t[0] * (1 - t[0])
        self.offset = self.offset + q["hat"] * (hit - t[0]) / self.known
        self.n = n

    def row(self, t: int) -> Vector:
        v = [*self.v, *([] if self.confusion else [0.0])]
        out = [float(t), float(self.n), *self.w, *v, *self.z, *self.g, self.a, self.A]
        for theta, H in zip(self.theta, self.H, strict=True):
            out += [*theta, H[0, 0], H[0, 1], H[0, 2], H[1, 1], H[1, 2], H[2, 2]]
        out += [*self.offset, *self.known]
        for b, info in zip(self.b, self.info_b, strict=True):
            out += [*b, *info]
        out += [*self.rho.ravel(), *self.ell.ravel()]
        return np.array(out + ([*self.kappa.ravel(), *self.info.ravel()] if self.confusion else []))


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
