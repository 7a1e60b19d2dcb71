"""What every method must do on every host, for two classes and for K. What passes here behaves as all the others do."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import group_streams
import multi_streams
import numpy as np
import several_streams
from numpy.typing import NDArray
from streams import STREAMS

from calibeat import Calibrator, Forecast, Groups, Method, MultiCalibrator, MultiForecast

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A calibrator that has seen nothing, and a stream for it: scores, of classes or models a row of numbers each."""

    make: Callable[[], Calibrator]
    scores: Vector
    outcomes: Vector
    method: Method | None = None  # of two classes

    def load(self, text: str) -> Calibrator:
        return type(self.make()).from_json(text)

    @property
    def receipts(self) -> type[Forecast] | type[MultiForecast]:
        return MultiForecast if isinstance(self.make(), MultiCalibrator) else Forecast


def cases_of(method: Method, seed: int = 5) -> list[Case]:
    """A method of two classes on several streams."""
    streams = [STREAMS[name]() for name in ("drifting", "extreme", "T = 1", "T = 2")]
    return [Case(lambda: Calibrator(method, seed=seed), *stream, method) for stream in streams]


def cases_of_classes(K: int, method: str) -> list[Case]:
    """A method of K classes on several streams."""
    streams = [multi_streams.drifting(120, K), multi_streams.random(40, K), multi_streams.random(1, K)]
    return [Case(lambda: MultiCalibrator(K, method), scores, labels.astype(float)) for scores, labels in streams]


def cases_of_models(k: int) -> list[Case]:
    """So many models on several streams, with missing scores in the first."""
    streams = [several_streams.halves(120, k, missing=0.3), several_streams.extreme(40, k), several_streams.sure(1, k)]
    return [Case(lambda: Calibrator(models=k), scores, outcomes) for scores, outcomes in streams]


# ---- the service ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServedCase:
    """A stream as a service gets it, and the calibrator of the library that must say the same, to the last bit."""

    name: str
    scores: Vector
    outcomes: NDArray[np.int64]
    attributes: NDArray[np.int64] | None = None  # of groups
    names: tuple[str, ...] = ()  # of classes

    def fields(self, i: int) -> dict[str, Any]:
        """What event i gives."""
        score = self.scores[i].tolist()
        if self.attributes is not None:
            return {"score": score, "groups": {f"a{k}": int(v) for k, v in enumerate(self.attributes[i])}}
        if self.scores.ndim == 1:
            return {"score": score}
        return {"scores": dict(zip(self.names, score, strict=True)) if self.names else score}

    def outcome(self, i: int) -> dict[str, Any]:
        """What its outcome is."""
        y = int(self.outcomes[i])
        return {"outcome": y} if self.scores.ndim == 1 else {"label": self.names[y] if self.names else y}

    def calibrator(self, groups: Groups | None) -> Calibrator | MultiCalibrator:
        """The reference; `groups` are those of the stream, with the seed that the service has drawn."""
        if self.scores.ndim == 1:
            return Calibrator(groups=groups)
        return MultiCalibrator(list(self.names) or self.scores.shape[1])

    def predict(self, calibrator: Any, i: int) -> Any:
        """Event i, as the library takes it."""
        if self.attributes is not None:
            return calibrator.predict(float(self.scores[i]), tuple(self.attributes[i].tolist()))
        return calibrator.predict(one(self.scores[i]))

    def told(self, answer: Any) -> list[float]:
        """An answer of the service as a list."""
        return [answer] if isinstance(answer, float) else list(answer.values()) if self.names else answer

    def label(self, i: int) -> Any:
        """The outcome of event i, as the library takes it."""
        return self.outcome(i).get("label", int(self.outcomes[i]))


def served_cases(events: int) -> list[ServedCase]:
    """Two classes, two with names, three, many; and groups, so many values of them that cells are evicted."""
    scores, outcomes, attributes = group_streams.world(events, 2, 60)
    streams = {K: multi_streams.drifting(events, K) for K in (2, 3, 12)}
    return [
        ServedCase("two", scores, outcomes.astype(np.int64)),
        ServedCase("two named", *streams[2], names=("no", "yes")),
        ServedCase("three", *streams[3]),
        ServedCase("three named", *streams[3], names=("bird", "cat", "dog")),
        ServedCase("twelve", *streams[12]),
        ServedCase("groups", scores, outcomes.astype(np.int64), attributes),
    ]


Check = Callable[[Case], None]

CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Register a check."""
    CHECKS.append(function)
    return function


def one(score: Vector) -> float | Vector:
    """A score as a person would give it."""
    return float(score) if np.ndim(score) == 0 else score


def said(forecast: Forecast | MultiForecast) -> float | Vector:
    return forecast.probability if isinstance(forecast, Forecast) else forecast.probabilities


def one_by_one(calibrator: Calibrator, scores: Vector, outcomes: Vector) -> Vector:
    """The loop that a person would write."""
    forecasts = []
    for score, outcome in zip(scores, outcomes, strict=True):
        forecast = calibrator.predict(one(score))
        calibrator.update(forecast, int(outcome))
        forecasts.append(said(forecast))
    return np.array(forecasts)


def one_by_one_late(calibrator: Calibrator, scores: Vector, outcomes: Vector, due: NDArray[np.int64]) -> Vector:
    """The same with outcomes that come late: outcome i just before prediction due[i], in order of (due, i)."""
    waiting: list[Forecast | MultiForecast] = []
    order = np.argsort(due, kind="stable")
    arrived = 0
    for i, score in enumerate(scores):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            calibrator.update(waiting[j], int(outcomes[j]))
            arrived += 1
        waiting.append(calibrator.predict(one(score)))
    return np.array([said(forecast) for forecast in waiting])


def delays(n: int) -> NDArray[np.int64]:
    """Some outcomes at once, some late, some in reverse, some never."""
    rng = np.random.default_rng(n)
    due = np.arange(1, n + 1) + rng.choice([0, 0, 1, 7, 40], n)
    due[rng.random(n) < 0.1] = n + 3
    return due


def same(left: Vector, right: Vector) -> None:
    """Equal to the last bit."""
    assert left.dtype == right.dtype == np.float64
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    np.testing.assert_array_equal(left.view(np.int64), right.view(np.int64))


@check
def batch_equals_events(case: Case) -> None:
    a, b = case.make(), case.make()
    labels = case.outcomes.astype(int)
    same(a.run(case.scores, labels), one_by_one(b, case.scores, labels))
    same(a.row, b.row)
    assert a.to_json() == b.to_json()


@check
def late_batch_equals_late_events(case: Case) -> None:
    a, b = case.make(), case.make()
    due, labels = delays(len(case.scores)), case.outcomes.astype(int)
    same(a.run(case.scores, labels, due=due), one_by_one_late(b, case.scores, labels, due))
    same(a.row, b.row)
    assert a.to_json() == b.to_json()


@check
def zero_delay_equals_immediate(case: Case) -> None:
    labels = case.outcomes.astype(int)
    late = case.make().run(case.scores, labels, due=np.arange(1, len(labels) + 1))
    same(case.make().run(case.scores, labels), late)


@check
def split_and_resume(case: Case) -> None:
    whole, scores, outcomes = case.make(), case.scores, case.outcomes.astype(int)
    expected = whole.run(scores, outcomes)
    for cut in sorted({1, len(scores) // 3, len(scores) - 1} - {0}):
        if cut >= len(scores):
            continue
        first = case.make()
        head = first.run(scores[:cut], outcomes[:cut])
        text = first.to_json()
        second = case.load(text)
        assert second.to_json() == text
        same(np.concatenate([head, second.run(scores[cut:], outcomes[cut:])]), expected)
        same(second.row, whole.row)
        third = case.load(text)
        same(one_by_one(third, scores[cut:], outcomes[cut:]), expected[cut:])


@check
def receipts_survive_a_restart(case: Case) -> None:
    a, outcomes = case.make(), case.outcomes.astype(int)
    first = max(1, len(outcomes) - 1)
    a.run(case.scores[:first], outcomes[:first])
    waiting = [a.predict(one(score)) for score in case.scores[-5:]]
    for at_hand in (waiting[-1:], waiting):  # the latest alone, and many, the latest first
        stayed = case.load(a.to_json())
        receipts = [stayed.predict(receipt.score) for receipt in at_hand]
        snapshot = stayed.to_json()
        restarted, as_text, as_bytes = (case.load(snapshot) for _ in range(3))
        for receipt, outcome in zip(reversed(receipts), outcomes.tolist(), strict=False):
            stayed.update(receipt, outcome)
            restarted.update(receipt, outcome)
            as_text.update(case.receipts.from_json(receipt.to_json()), outcome)
            as_bytes.update(case.receipts.from_bytes(receipt.to_bytes()), outcome)
        for other in (restarted, as_text, as_bytes):
            same(other.row, stayed.row)


@check
def copies_are_independent(case: Case) -> None:
    a = case.make()
    a.run(case.scores, case.outcomes.astype(int))
    receipt = a.predict(one(case.scores[0]))
    for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):  # noqa: S301 - our own bytes
        before = a.to_json()
        twin.update(pickle.loads(pickle.dumps(receipt)), 1)  # noqa: S301
        assert a.to_json() == before
        assert twin.outcomes == a.outcomes + 1


@check
def predict_learns_nothing(case: Case) -> None:
    calibrator = case.make()
    calibrator.run(case.scores, case.outcomes.astype(int))
    before = calibrator.row.copy()
    for score in (
        *case.scores[:3],
        *((0.0, 1e-300, 1.0) if case.scores.ndim == 1 else np.eye(case.scores.shape[1])[:3]),
    ):
        calibrator.predict(one(np.asarray(score)))
    calibrator.predict_many(case.scores)
    same(calibrator.row[1:], before[1:])  # the first number counts forecasts


@check
def predict_many_forecasts_from_the_present_row(case: Case) -> None:
    calibrator = case.make()
    calibrator.run(case.scores, case.outcomes.astype(int))
    many = calibrator.predict_many(case.scores)
    same(many, calibrator.predict_many(case.scores))
    same(many, np.array([said(calibrator.predict(one(score))) for score in case.scores]))


@check
def forecasts_are_probabilities(case: Case) -> None:
    calibrator = case.make()
    forecasts = calibrator.run(case.scores, case.outcomes.astype(int))
    assert np.isfinite(forecasts).all()
    assert ((forecasts >= 0.0) & (forecasts <= 1.0)).all()
    assert np.isfinite(calibrator.row).all()
    if forecasts.ndim == 2:
        np.testing.assert_allclose(forecasts.sum(axis=1), 1.0, rtol=0, atol=1e-12)


@check
def width_never_changes(case: Case) -> None:
    calibrator = case.make()
    width = len(calibrator.row) if case.method is None else case.method.width
    assert calibrator.row.shape == (width,)
    calibrator.run(case.scores, case.outcomes.astype(int))
    assert calibrator.row.shape == (width,)
    assert calibrator.events == calibrator.outcomes == calibrator.row[0] == calibrator.row[1] == len(case.scores)


@check
def candidates_are_a_distribution(case: Case) -> None:
    if case.method is None:
        return  # nothing is drawn
    calibrator = case.make()
    for score, outcome in zip(case.scores, case.outcomes, strict=True):
        forecast = calibrator.predict(float(score))
        assert forecast.probability in [point for point, _ in forecast.candidates]
        assert abs(sum(share for _, share in forecast.candidates) - 1.0) < 1e-15
        assert json.loads(forecast.to_json())["probability"] == forecast.probability
        calibrator.update(forecast, int(outcome))


@check
def method_survives_as_data(case: Case) -> None:
    if case.method is not None:
        assert Method.from_dict(json.loads(json.dumps(case.method.to_dict()))) == case.method


def state_of(calibrator: Calibrator) -> dict[str, object]:
    """A snapshot without what it knows of receipts: a bank's member knows less of them."""
    state = json.loads(calibrator.to_json())
    return {name: value for name, value in state.items() if name not in ("settled", "generations", "checksum")}
