"""The guard, slowly and literally, from its definition (docs/guard.md): the oracle of core/guard.py."""

from __future__ import annotations

import math


class Oracle:
    """Bins are given by their inner edges."""

    def __init__(self, edges, c=1.0, lam=10.0, mu=10.0, delta=1e-6, floor=1e-4):
        self.edges, self.m = edges, len(edges) + 1
        self.c, self.lam, self.mu, self.delta, self.floor = c, lam, mu, delta, floor
        self.M = self.N = 1.0
        self.S, self.V = [0.0] * self.m, [0.0] * self.m

    def bin(self, q):
        return sum(q >= edge for edge in self.edges)

    def debt(self, b):
        return math.copysign(max(abs(self.S[b]) - self.c * math.sqrt(self.V[b]), 0.0), self.S[b])

    def h(self, b, q, p):
        return self.debt(b) - (q - p) * (self.lam * self.M / (q * (1.0 - q)) + self.mu * self.N)

    def zero(self, b, p, low, high):
        """h falls in q inside a bin: halve until nothing lies between."""
        while True:
            q = 0.5 * (low + high)
            if not low < q < high:
                return q
            low, high = (q, high) if self.h(b, q, p) > 0.0 else (low, q)

    def say(self, p):
        """-> (clipped expert, low, high, probability of low): where h, from p on, first comes down through zero."""
        p = min(max(p, 1e-7), 1.0 - 1e-7)
        b, at = self.bin(p), p
        if self.debt(b) == 0.0:
            return p, p, p, 1.0
        up = self.debt(b) > 0.0
        while True:
            if b == (self.m - 1 if up else 0):
                q = self.zero(b, p, at, 1.0) if up else self.zero(b, p, 0.0, at)
                return p, q, q, 1.0
            edge = self.edges[b] if up else self.edges[b - 1]
            below = max(edge - self.delta, at) if up else edge - self.delta
            left, right = (b, b + 1) if up else (b - 1, b)
            hl, hr = self.h(left, below, p), self.h(right, edge, p)
            if (up and hl <= 0.0) or (not up and hr >= 0.0):
                q = self.zero(b, p, at, below) if up else self.zero(b, p, edge, at)
                return p, q, q, 1.0
            if hl >= 0.0 >= hr:
                return p, below, edge, -hr / (hl - hr)
            b, at = (right, edge) if up else (left, below)

    def learn(self, p, q, y):
        b = self.bin(q)
        self.S[b] += y - q
        self.V[b] += q * (1.0 - q)
        self.M = max(self.M * (p / q if y else (1.0 - p) / (1.0 - q)), self.floor)
        self.N = max(self.N * (1.0 + (q - p) * (q - y)), self.floor)

    def potential(self):
        return sum(self.debt(b) ** 2 for b in range(self.m)) + 2.0 * (self.lam * self.M + self.mu * self.N)


def even_edges(m):
    return [k / m for k in range(1, m)]
