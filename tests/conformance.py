"""What every method must do on every host. A host or a method that passes here behaves as all the others do."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibeat import Calibrator, Forecast, Method

Vector = NDArray[np.float64]
Check = Callable[[Method, Vector, Vector], None]

CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Register a check."""
    CHECKS.append(function)
    return function


def one_by_one(calibrator: Calibrator, scores: Vector, outcomes: Vector) -> Vector:
    """The loop that a person would write."""
    forecasts = []
    for score, outcome in zip(scores, outcomes, strict=True):
        forecast = calibrator.predict(float(score))
        calibrator.update(forecast, int(outcome))
        forecasts.append(forecast.probability)
    return np.array(forecasts)


def one_by_one_late(calibrator: Calibrator, scores: Vector, outcomes: Vector, due: NDArray[np.int64]) -> Vector:
    """The same with outcomes that come late: outcome i just before prediction due[i], in order of (due, i)."""
    waiting: list[Forecast] = []
    order = np.argsort(due, kind="stable")
    arrived = 0
    for i, score in enumerate(scores):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            calibrator.update(waiting[j], int(outcomes[j]))
            arrived += 1
        waiting.append(calibrator.predict(float(score)))
    return np.array([float(forecast) for forecast in waiting])


def delays(n: int) -> NDArray[np.int64]:
    """Some outcomes at once, some late, some in reverse, some never."""
    rng = np.random.default_rng(n)
    due = np.arange(1, n + 1) + rng.choice([0, 0, 1, 7, 40], n)
    due[rng.random(n) < 0.1] = n + 3
    return due


def same(left: Vector, right: Vector) -> None:
    """Equal to the last bit."""
    assert left.dtype == right.dtype == np.float64
    np.testing.assert_array_equal(left.view(np.int64), right.view(np.int64))


@check
def batch_equals_events(method: Method, scores: Vector, outcomes: Vector) -> None:
    a, b = Calibrator(method, seed=5), Calibrator(method, seed=5)
    same(a.run(scores, outcomes), one_by_one(b, scores, outcomes))
    same(a.row, b.row)
    assert a.to_json() == b.to_json()


@check
def late_batch_equals_late_events(method: Method, scores: Vector, outcomes: Vector) -> None:
    a, b = Calibrator(method, seed=5), Calibrator(method, seed=5)
    due = delays(len(scores))
    same(a.run(scores, outcomes, due=due), one_by_one_late(b, scores, outcomes, due))
    same(a.row, b.row)
    assert a.to_json() == b.to_json()


@check
def zero_delay_equals_immediate(method: Method, scores: Vector, outcomes: Vector) -> None:
    a, b = Calibrator(method), Calibrator(method)
    same(a.run(scores, outcomes), b.run(scores, outcomes, due=np.arange(1, len(scores) + 1)))


@check
def split_and_resume(method: Method, scores: Vector, outcomes: Vector) -> None:
    whole = Calibrator(method, seed=5)
    expected = whole.run(scores, outcomes)
    for cut in sorted({1, len(scores) // 3, len(scores) - 1} - {0}):
        if cut >= len(scores):
            continue
        first = Calibrator(method, seed=5)
        head = first.run(scores[:cut], outcomes[:cut])
        text = first.to_json()
        second = Calibrator.from_json(text)
        assert second.to_json() == text
        same(np.concatenate([head, second.run(scores[cut:], outcomes[cut:])]), expected)
        same(second.row, whole.row)
        third = Calibrator.from_json(text)
        same(one_by_one(third, scores[cut:], outcomes[cut:]), expected[cut:])


@check
def receipts_survive_a_restart(method: Method, scores: Vector, outcomes: Vector) -> None:
    a = Calibrator(method, seed=5)
    a.run(scores[:-1] if len(scores) > 1 else scores, outcomes[:-1] if len(scores) > 1 else outcomes)
    waiting = [a.predict(float(score)) for score in scores[-5:]]
    for at_hand in (waiting[-1:], waiting):  # the latest alone, and many, the latest first
        stayed = Calibrator.from_json(a.to_json())
        receipts = [stayed.predict(receipt.score) for receipt in at_hand]
        snapshot = stayed.to_json()
        restarted, travelled = Calibrator.from_json(snapshot), Calibrator.from_json(snapshot)
        for receipt, outcome in zip(reversed(receipts), outcomes, strict=False):
            stayed.update(receipt, int(outcome))
            restarted.update(receipt, int(outcome))
            travelled.update(Forecast.from_json(receipt.to_json()), int(outcome))
        same(restarted.row, stayed.row)
        same(travelled.row, stayed.row)


@check
def copies_are_independent(method: Method, scores: Vector, outcomes: Vector) -> None:
    a = Calibrator(method, seed=5)
    a.run(scores, outcomes)
    receipt = a.predict(0.4)
    for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):  # noqa: S301 - our own bytes
        before = a.to_json()
        twin.update(pickle.loads(pickle.dumps(receipt)), 1)  # noqa: S301
        assert a.to_json() == before
        assert twin.outcomes == a.outcomes + 1


@check
def predict_leaves_the_row_unchanged(method: Method, scores: Vector, outcomes: Vector) -> None:
    calibrator = Calibrator(method)
    calibrator.run(scores, outcomes)
    before = calibrator.row.copy()
    for score in (0.0, 1e-300, 0.5, 1.0):
        calibrator.predict(score)
    calibrator.predict_many(scores)
    same(calibrator.row, before)


@check
def predict_many_forecasts_from_the_present_row(method: Method, scores: Vector, outcomes: Vector) -> None:
    calibrator = Calibrator(method, seed=5)
    calibrator.run(scores, outcomes)
    many = calibrator.predict_many(scores)
    same(many, calibrator.predict_many(scores))
    same(many, np.array([calibrator.predict(float(score)).probability for score in scores]))


@check
def forecasts_are_probabilities(method: Method, scores: Vector, outcomes: Vector) -> None:
    calibrator = Calibrator(method)
    forecasts = calibrator.run(scores, outcomes)
    assert np.isfinite(forecasts).all()
    assert ((forecasts >= 0.0) & (forecasts <= 1.0)).all()
    assert np.isfinite(calibrator.row).all()


@check
def width_never_changes(method: Method, scores: Vector, outcomes: Vector) -> None:
    calibrator = Calibrator(method)
    assert calibrator.row.shape == (method.width,)
    calibrator.run(scores, outcomes)
    assert calibrator.row.shape == (method.width,)
    assert calibrator.events == calibrator.outcomes == calibrator.row[0] == calibrator.row[1] == len(scores)


@check
def candidates_are_a_distribution(method: Method, scores: Vector, outcomes: Vector) -> None:
    calibrator = Calibrator(method, seed=5)
    for score, outcome in zip(scores, outcomes, strict=True):
        forecast = calibrator.predict(float(score))
        assert forecast.probability in [point for point, _ in forecast.candidates]
        assert abs(sum(share for _, share in forecast.candidates) - 1.0) < 1e-15
        assert json.loads(forecast.to_json())["probability"] == forecast.probability
        calibrator.update(forecast, int(outcome))


@check
def method_survives_as_data(method: Method, scores: Vector, outcomes: Vector) -> None:  # noqa: ARG001 - one signature
    assert Method.from_dict(json.loads(json.dumps(method.to_dict()))) == method


def state_of(calibrator: Calibrator) -> dict[str, object]:
    """A snapshot without what it knows of receipts: a bank's member knows less of them."""
    state = json.loads(calibrator.to_json())
    return {name: value for name, value in state.items() if name not in ("settled", "lives", "checksum")}
