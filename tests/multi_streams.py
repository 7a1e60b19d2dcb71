"""Streams of many classes that tests run over: random, drifting, adversarial and on the edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibeat import MultiCalibrator
from calibeat.core import layout, loops, vector
from calibeat.core.weights import Outcome

Matrix = NDArray[np.float64]
Stream = tuple[Matrix, NDArray[np.int64]]


def one(label: int) -> Outcome:
    """One event with this label."""
    return Outcome(float(label), 1.0, 1.0)


def normalised(weights: Matrix) -> Matrix:
    return weights / weights.sum(axis=1, keepdims=True)


def drawn(rng: np.random.Generator, truth: Matrix) -> NDArray[np.int64]:
    return (rng.random(len(truth))[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, truth.shape[1] - 1)


def random(n: int, K: int) -> Stream:
    """Over-confident scores."""
    rng = np.random.default_rng([1, K])
    logits = rng.normal(0, 2, (n, K))
    return normalised(np.exp(logits)), drawn(rng, normalised(np.exp(0.5 * logits)))


def drifting(n: int, K: int) -> Stream:
    """Class priors that rotate, a temperature that falls."""
    rng = np.random.default_rng([2, K])
    logits = rng.normal(0, 1.5, (n, K))
    phase = np.linspace(0, 6, n)[:, None] - np.arange(K) * 2 * np.pi / K
    truth = normalised(np.exp(np.linspace(1.5, 0.5, n)[:, None] * logits + 1.5 * np.sin(phase)))
    return normalised(np.exp(logits)), drawn(rng, truth)


def adversarial(n: int, K: int) -> Stream:
    """The label is always the least probable class of the online temperature."""
    scores = random(n, K)[0]
    method, labels = vector.VectorMethod("ots", K), np.empty(n, dtype=np.int64)
    row, receipt, work, forecast = method.initial_row(), np.zeros(K + 2), vector.scratch(K), np.empty(K)
    for i, score in enumerate(scores):
        vector.predict(*method.code, row, score, receipt, work, forecast)
        labels[i] = forecast.argmin()
        vector.settle(*method.code, row, i + 1.0, one(labels[i]), receipt, work, forecast)
    return scores, labels


def edge(n: int, K: int) -> Stream:
    """Exact 0 and 1, denormals, ties, the floor and its neighbours; labels of probability 0."""
    rng = np.random.default_rng([3, K])
    points = [0.0, 0.0, 1.0, 5e-324, 1e-300, 1e-7, np.nextafter(1e-7, 0), np.nextafter(1e-7, 1), 0.25, 0.5]
    scores = rng.choice(points, (n, K))
    scores[:, 0] += scores.sum(axis=1) == 0.0
    scores[::5] = np.eye(K)[rng.integers(0, K, len(scores[::5]))]
    scores[::7] = 1.0 / K
    return normalised(scores), rng.integers(0, K, n)


def wrong(n: int, K: int) -> Stream:
    """Sure, and always off by one."""
    at = np.arange(n) % K
    return np.eye(K)[at], (at + 1) % K


def constant(n: int, K: int) -> Stream:
    rng = np.random.default_rng([4, K])
    return normalised(np.tile(np.arange(1.0, K + 1.0), (n, 1))), rng.integers(0, K, n)


STREAMS: dict[str, Callable[[int, int], Stream]] = {
    "random": random,
    "drifting": drifting,
    "adversarial": adversarial,
    "edge": edge,
    "wrong": wrong,
    "constant": constant,
}


def delays(n: int, kind: str) -> NDArray[np.int64]:
    """Arrivals: a fixed delay, or one that reorders the labels."""
    rng = np.random.default_rng(5)
    return np.arange(n) + (15 if kind == "fixed" else 1 + rng.geometric(0.06, n))


def by_event(cal: MultiCalibrator, scores: Matrix, labels: NDArray[Any], due: NDArray[Any] | None = None) -> Matrix:
    """What `run` does, one event at a time."""
    n, K = scores.shape
    due = np.arange(n) + 1 if due is None else due
    waiting, out = {}, np.empty((n, K))
    order = sorted(range(n), key=lambda i: (due[i], i))
    last = n + 1 if (due == np.arange(n) + 1).all() else n
    for i in range(last):
        while order and due[order[0]] <= i:
            j = order.pop(0)
            cal.update(waiting.pop(j), cal.classes[labels[j]])
        if i < n:
            waiting[i] = cal.predict(scores[i])
            out[i] = waiting[i].probabilities
    return out


def calibrate(
    scores: NDArray[Any], labels: NDArray[Any], due: NDArray[Any] | None = None, name: str = "multi"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The loops alone, as the hosts call them, on one row: forecasts, and the row without its evidence.

    Also for two classes, which the hosts give to AUTO. A label that is due after the last forecast never comes.
    """
    method = vector.VectorMethod(name, scores.shape[1])
    row = method.initial_row()
    batch, late = batch_of(method, scores, labels, due)
    loops.run_batch(method.spec, loops.one_stream(row, 0), batch, late, loops.place_before(), len(labels))
    return batch.forecasts.reshape(scores.shape), row[:-2]


def as_reference(row: Matrix) -> Matrix:
    """A row as the reference has it: without the sums of weights."""
    return np.delete(row, np.s_[layout.N + 1 : layout.THETA])


def batch_of(
    method: vector.VectorMethod, scores: NDArray[Any], labels: NDArray[Any], due: NDArray[Any] | None = None
) -> tuple[loops.Batch, loops.Late | None]:
    """Events as the loops take them; without `due` labels come at once."""
    n, K = scores.shape
    flat = np.array(scores, dtype=float).ravel()
    assert vector.ready(K, flat, 0)[0] == vector.GOOD
    receipts, late = np.empty(0), None
    if due is not None:
        order = np.argsort(due, kind="stable")
        order = order[: np.searchsorted(due[order], n)]
        order = order[~np.isnan(labels[order])]
        receipts = np.zeros(n * method.receipt_width)
        late = loops.Late(0, np.empty(0, dtype=np.int64), due, order, 0)
    batch = loops.Batch(flat, labels.astype(float), np.empty(0), np.empty(n * K), receipts, vector.scratch(K))
    return batch, late
