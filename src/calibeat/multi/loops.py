"""Batches: scores and forecasts are matrices by rows, laid out flat, K numbers for each event."""

from __future__ import annotations

from calibeat._util.types import Ints, Vector
from calibeat.core.jit import compilable

from .kernel import predict, settle, update
from .layout import T
from .softmax import softmax, total

TOLERANCE = 1e-6  # how far from 1 the sum of given probabilities may be
ROUNDING = 1e-12  # a sum this near to 1 is 1: the scores stay as they came, to the last bit
GOOD, NOT_A_NUMBER, NEGATIVE, WRONG_SUM = 0, 1, 2, 3


@compilable
def ready(K: int, scores: Vector, logits: int) -> tuple[int, int, int]:
    """Turn rows of logits, or of almost normalised probabilities, into probabilities, in place.

    Returns what is wrong with the first bad row, that row, and the column. Rows before it are changed already.
    """
    for i in range(len(scores) // K):
        score = scores[i * K : (i + 1) * K]
        for k in range(K):
            if not -1e300 < score[k] < 1e300:
                return NOT_A_NUMBER, i, k
        if logits == 1:
            softmax(score)
        else:
            for k in range(K):
                if score[k] < 0.0:
                    return NEGATIVE, i, k
            mass = total(score)
            if not -TOLERANCE <= mass - 1.0 <= TOLERANCE:
                return WRONG_SUM, i, 0
            if not -ROUNDING <= mass - 1.0 <= ROUNDING:
                for k in range(K):
                    score[k] /= mass
    return GOOD, 0, 0


@compilable
def run(
    method: int,
    K: int,
    row: Vector,
    t: float,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    receipt: Vector,
    work: Vector,
) -> None:
    """Predict, then learn, event after event; t forecasts were made before."""
    for i in range(len(labels)):
        forecast = forecasts[i * K : (i + 1) * K]
        predict(method, K, row, scores[i * K : (i + 1) * K], receipt, work, forecast)
        settle(method, K, row, labels[i], receipt, work, forecast[labels[i]])
        row[T] = t + i + 1.0


@compilable
def run_late(
    method: int,
    K: int,
    row: Vector,
    t: float,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    receipts: Vector,
    work: Vector,
    due: Ints,
    order: Ints,
    first: int,
    begin: int,
    stop: int,
    arrived: int,
) -> int:
    """Predict the events from `begin` to `stop`; label i is learnt just before prediction due[i].

    `order` sorts by (due, i). Those in it that are due after the last prediction are learnt at the end. Events before
    `first` were predicted earlier: their receipts and forecasts are there, their scores are not. t forecasts were made
    before event `first`. `arrived` labels of `order` were learnt already; the number of now is given back.
    """
    width = len(receipts) // len(labels)
    for i in range(begin, len(labels) + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            y = labels[j]
            update(method, K, row, y, receipts[j * width : (j + 1) * width], work, forecasts[j * K + y])
            arrived += 1
        if i >= stop:
            break
        receipt, forecast, at = receipts[i * width : (i + 1) * width], forecasts[i * K : (i + 1) * K], (i - first) * K
        predict(method, K, row, scores[at : at + K], receipt, work, forecast)
        row[T] = t + i - first + 1.0
    return arrived


@compilable
def predict_many(
    method: int, K: int, row: Vector, scores: Vector, forecasts: Vector, receipt: Vector, work: Vector
) -> None:
    """Forecast every score from the same row."""
    for i in range(len(scores) // K):
        predict(method, K, row, scores[i * K : (i + 1) * K], receipt, work, forecasts[i * K : (i + 1) * K])


# ---- many streams: rows one behind the other, `slots` says which is whose -------------------------------------------


@compilable
def run_rows(
    method: int,
    K: int,
    rows: Vector,
    stride: int,
    slots: Ints,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    receipt: Vector,
    work: Vector,
) -> None:
    """Predict, then learn, each event on the row of its key; a label of -1 is not known, and not learnt."""
    for i in range(len(labels)):
        row, forecast = rows[slots[i] * stride : (slots[i] + 1) * stride], forecasts[i * K : (i + 1) * K]
        predict(method, K, row, scores[i * K : (i + 1) * K], receipt, work, forecast)
        if labels[i] >= 0:
            settle(method, K, row, labels[i], receipt, work, forecast[labels[i]])
        row[T] += 1.0


@compilable
def run_rows_late(
    method: int,
    K: int,
    rows: Vector,
    stride: int,
    slots: Ints,
    scores: Vector,
    labels: Ints,
    forecasts: Vector,
    receipts: Vector,
    work: Vector,
    moments: Ints,
    order: Ints,
) -> None:
    """Predict every event; label i is learnt just before event moments[i]. `order` sorts by (moment, i)."""
    width = len(receipts) // len(labels)
    arrived = 0
    for i in range(len(labels) + 1):
        while arrived < len(order) and moments[order[arrived]] <= i:
            j = order[arrived]
            row, y = rows[slots[j] * stride : (slots[j] + 1) * stride], labels[j]
            update(method, K, row, y, receipts[j * width : (j + 1) * width], work, forecasts[j * K + y])
            arrived += 1
        if i == len(labels):
            break
        row, receipt = rows[slots[i] * stride : (slots[i] + 1) * stride], receipts[i * width : (i + 1) * width]
        predict(method, K, row, scores[i * K : (i + 1) * K], receipt, work, forecasts[i * K : (i + 1) * K])
        row[T] += 1.0
