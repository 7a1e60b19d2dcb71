"""calibeat in river: its own checks, its protocols, and what it says when it is misused."""

from __future__ import annotations

import datetime as dt
import importlib
import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from river import (
    base,
    checks,
    compose,
    datasets,
    evaluate,
    feature_extraction,
    linear_model,
    naive_bayes,
    optim,
    preprocessing,
    tree,
    utils,
)
from river import metrics as river_metrics

from calibeat import AUTO, HOPS, OPS, TOPS, Calibrator, Groups, InvalidInput, MissingExtra, Number, Platt, metrics
from calibeat.river import Brier, CalibrationError, OnlineCalibrated, Sharpness

# ---- the wrapper -------------------------------------------------------------------------------------------------

MODELS = [OnlineCalibrated(**params) for params in OnlineCalibrated._unit_test_params()]
MODELS += [OnlineCalibrated(preprocessing.StandardScaler() | linear_model.LogisticRegression(), OPS)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.method}"[:20])
def test_the_checks_of_river(model: OnlineCalibrated) -> None:
    checks.check_estimator(model)


def test_no_check_is_skipped() -> None:
    assert MODELS[0]._unit_test_skips() == set()
    assert isinstance(MODELS[0], base.Wrapper) and isinstance(MODELS[0], base.Classifier)


def used(model: OnlineCalibrated) -> int:
    """What river says that the model takes, after some events."""
    for i in range(50):
        model.learn_one({"x": float(i % 7)}, i % 3 == 0)
    return model._raw_memory_usage


def test_the_memory_of_the_model_is_that_of_a_stream() -> None:
    """Neither the compiled core nor any module counts, and it does not grow with the events."""
    model = OnlineCalibrated(linear_model.LogisticRegression())
    before = used(model)
    assert 8 * AUTO.width < before < 100_000 and used(model) - before < 10_000


class Recorder(base.Classifier):
    """A model that notes in which order it is asked and taught."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def predict_proba_one(self, x: dict[Any, Any], **_: Any) -> dict[Any, float]:
        self.log.append("asked")
        return {False: 1.0 - x["p"], True: x["p"]}

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:  # noqa: ARG002 - river's signature
        self.log.append("taught")


def test_the_score_is_read_before_the_base_learns() -> None:
    base_model = Recorder()
    model = OnlineCalibrated(base_model)
    model.learn_one({"p": 0.7}, True)
    assert base_model.log == ["asked", "taught"]


@pytest.mark.parametrize("method", [AUTO, OPS, TOPS, HOPS])
def test_the_forecasts_are_those_of_a_calibrator(method: Any) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(300)
    outcomes = rng.random(300) < scores**2
    model = OnlineCalibrated(Recorder(), method, seed=3)
    said = []
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        said.append(model.predict_proba_one({"p": score})[True])
        assert model.predict_proba_one({"p": score})[True] == said[-1]  # asking changes nothing
        model.learn_one({"p": score}, outcome)
    assert np.array_equal(said, Calibrator(method, seed=3).run(scores, outcomes))


def test_asking_between_a_forecast_and_its_outcome_does_no_harm() -> None:
    model, twin = OnlineCalibrated(Recorder()), Calibrator()
    f, g = model.calibrator.predict(0.3), twin.predict(0.3)
    model.predict_proba_one({"p": 0.9})
    model.calibrator.update(f, 1)
    twin.update(g, 1)
    assert np.array_equal(model.calibrator.row, twin.row)


@pytest.mark.parametrize("method", [AUTO, TOPS, HOPS])
def test_late_labels_teach_by_what_was_said(method: Any) -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(200).tolist()
    outcomes = (rng.random(200) < np.square(scores)).tolist()
    model = OnlineCalibrated(Recorder(), method, remember=30)
    said = []
    for i in range(230):
        if i >= 30:
            model.learn_one({"p": scores[i - 30], "id": i - 30}, outcomes[i - 30])
        if i < 200:
            said.append(model.predict_proba_one({"p": scores[i], "id": i})[True])
    due = np.minimum(np.arange(200) + 30, 200)
    assert np.array_equal(said, Calibrator(method).run(scores, outcomes, due=due))
    assert len(model._waiting) == 0
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    for one in (model, twin):
        one.predict_proba_one({"p": 0.5})
        one.learn_one({"p": 0.5}, True)
    assert np.array_equal(model.calibrator.row, twin.calibrator.row)


def test_no_more_forecasts_are_kept_than_asked_for() -> None:
    model = OnlineCalibrated(Recorder(), remember=3)
    for i in range(10):
        model.predict_proba_one({"p": 0.5, "id": i})
    assert len(model._waiting) == 3
    model.learn_one({"p": 0.5, "id": 0}, True)  # forgotten: it is asked again
    model.learn_one({"p": 0.5, "id": 9}, True)
    assert len(model._waiting) == 2 and model.calibrator.outcomes == 2


def test_what_is_asked_again_is_the_newest() -> None:
    model = OnlineCalibrated(Recorder(), remember=2)
    for i in (1, 2, 1, 3):  # 2 was asked for longest ago
        model.predict_proba_one({"p": 0.5, "id": i})
    assert [dict(key)["id"] for key in model._waiting] == [1, 3]


def test_texts_are_remembered_and_what_cannot_be_is_said() -> None:
    words = feature_extraction.BagOfWords() | naive_bayes.MultinomialNB()
    model = OnlineCalibrated(words, remember=10)
    for x, y in [("hello world", False), ("win cash now", True)] * 5:
        model.predict_proba_one(x)
        assert list(model._waiting) == [x]
        model.learn_one(x, y)
    assert not model._waiting and model.calibrator.outcomes == model.calibrator.events == 10
    for x in ({"p": 0.5, "list": [1]}, [0.5]):
        with pytest.raises(ValueError, match="x must be hashable, or a dict of what is, to be remembered, got"):
            OnlineCalibrated(Holes(), remember=5).predict_proba_one({"p": 0.5, "x": x})


class Stubborn(Recorder):
    """A model that refuses to learn."""

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:  # noqa: ARG002 - river's signature
        raise RuntimeError("no")


@pytest.mark.parametrize("remember", [0, 5])
def test_if_the_base_refuses_nothing_is_learnt(remember: int) -> None:
    model = OnlineCalibrated(Stubborn(), remember=remember)
    model.predict_proba_one({"p": 0.7})
    before = model.calibrator.to_json()
    with pytest.raises(RuntimeError, match="no"):
        model.learn_one({"p": 0.7}, True)
    assert model.calibrator.to_json() == before and len(model._waiting) == min(remember, 1)


def test_other_labels_and_models_that_know_nothing_yet() -> None:
    model = OnlineCalibrated(naive_bayes.GaussianNB(), labels=("ham", "spam"))
    assert model.predict_proba_one({"x": 1.0}) == pytest.approx({"ham": 0.5, "spam": 0.5})
    model.learn_one({"x": 1.0}, "ham")
    assert model.predict_one({"x": 1.0}) == "ham"  # the base knows one class only so far
    for i in range(60):
        model.learn_one({"x": float(i % 2)}, "spam" if i % 2 else "ham")
    assert model.predict_one({"x": 1.0}) == "spam"
    trees = OnlineCalibrated(tree.HoeffdingTreeClassifier())
    for x, y in datasets.Phishing().take(50):
        assert 0.0 <= trees.predict_proba_one(x)[True] <= 1.0
        trees.learn_one(x, np.bool_(y))
    assert trees.calibrator.outcomes == 50


def test_progressive_validation_with_late_labels() -> None:
    model = preprocessing.StandardScaler() | OnlineCalibrated(linear_model.LogisticRegression())
    together = CalibrationError() + Sharpness() + Brier() + river_metrics.LogLoss() + river_metrics.Accuracy()
    start, minute = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.timedelta(minutes=1)
    events = (({**x, "t": start + i * minute}, y) for i, (x, y) in enumerate(datasets.Phishing().take(300)))
    model = compose.Discard("t") | model
    result = evaluate.progressive_val_score(events, model, together, moment="t", delay=40 * minute)
    ce, sharpness, brier, log_loss, accuracy = result.get()
    assert 0.0 < ce < 0.2 and 0.3 < sharpness < 0.6 and 0.0 < brier < 0.2 and 0.0 < log_loss < 0.7 and accuracy > 0.7
    assert model["OnlineCalibrated"].calibrator.outcomes == 300
    assert "CalibrationError: 0." in str(result)


def test_the_same_parameters_as_rivers_newton() -> None:
    """Started where calibeat starts, river's Newton logistic is OPS: the same parameters to 4 decimals, and more."""
    rng = np.random.default_rng(5)
    scores = rng.random(500)
    outcomes = rng.random(500) < scores**2
    model = OnlineCalibrated(Recorder(), OPS)
    newton = linear_model.LogisticRegression(optim.Newton(lr=10.0, eps=100.0), intercept_lr=0.0)
    newton._weights["logit"] = 1.0
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        model.learn_one({"p": score}, outcome)
        f = min(max(score, Platt().clip), 1.0 - Platt().clip)
        newton.learn_one({"logit": math.log(f / (1.0 - f)), "1": 1.0}, outcome)
    params = model.calibrator.params
    assert abs(params["a"] - newton.weights["logit"]) < 1e-9
    assert abs(params["b"] - newton.weights["1"]) < 1e-9


def test_clone_pickle_and_mutate() -> None:
    model = OnlineCalibrated(naive_bayes.GaussianNB(), TOPS, labels=("no", "yes"))
    model.learn_one({"x": 1.0}, "yes")
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert twin.predict_proba_one({"x": 1.0}) == model.predict_proba_one({"x": 1.0})
    fresh = model.clone({"method": "ops"})
    assert fresh.labels == ("no", "yes") and fresh.calibrator.method == OPS and fresh.calibrator.outcomes == 0


# ---- weights -----------------------------------------------------------------------------------------------------


def weighted(n: int = 300) -> tuple[list[float], list[bool], list[float]]:
    rng = np.random.default_rng(6)
    scores = rng.random(n)
    return scores.tolist(), (rng.random(n) < scores**2).tolist(), np.exp(rng.normal(size=n)).tolist()


class Weighed(Recorder):
    """A model that notes the weights."""

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:  # noqa: ARG002 - river's signature
        self.log.append(f"taught {w}")


@pytest.mark.parametrize("method", [AUTO, OPS, TOPS])
def test_weights_are_those_of_a_calibrator(method: Any) -> None:
    scores, outcomes, w = weighted()
    model, said = OnlineCalibrated(Weighed(), method), []
    for score, outcome, weight in zip(scores, outcomes, w, strict=True):
        said.append(model.predict_proba_one({"p": score})[True])
        model.learn_one({"p": score}, outcome, w=weight)
    assert np.array_equal(said, Calibrator(method).run(scores, outcomes, weights=w))
    assert not np.array_equal(said, Calibrator(method).run(scores, outcomes))
    assert model.model.log[-1] == f"taught {w[-1]}"  # the model learns with it too


def test_weights_of_late_labels_and_of_many_classes() -> None:
    scores, outcomes, w = weighted(100)
    model, twin, receipts = OnlineCalibrated(Weighed(), remember=200), Calibrator(), []
    for i, score in enumerate(scores):
        model.predict_proba_one({"p": score, "id": i})
        receipts.append(twin.predict(score))
    for i, score in enumerate(scores):
        model.learn_one({"p": score, "id": i}, outcomes[i], w=w[i])
        twin.update(receipts[i], int(outcomes[i]), w[i])
    assert model.calibrator.peek(0.3) == twin.peek(0.3)
    many = OnlineCalibrated(linear_model.SoftmaxRegression(), labels=("a", "b", "c"))
    said = r"learn_one of SoftmaxRegression takes no w: the model learns without the weights, and only the calibration"
    with pytest.warns(UserWarning, match=said):
        many.learn_one({"x": 1.0}, "b", w=3.0)
    assert many.calibrator.outcomes == 1


def test_a_weight_of_1_is_no_weight_and_one_of_0_teaches_nothing() -> None:
    scores, outcomes, _ = weighted(50)
    plain, ones = OnlineCalibrated(Recorder()), OnlineCalibrated(Recorder())  # which takes no w, and need not
    for score, outcome in zip(scores, outcomes, strict=True):
        plain.learn_one({"p": score}, outcome)
        ones.learn_one({"p": score}, outcome, w=1)
    assert plain.calibrator.peek(0.4) == ones.calibrator.peek(0.4)
    model = OnlineCalibrated(Weighed())
    for score, outcome in zip(scores, outcomes, strict=True):
        model.learn_one({"p": score}, outcome)
    before = model.calibrator.peek(0.4)
    model.learn_one({"p": 0.7}, False, w=0.0)
    assert model.calibrator.peek(0.4) == before and model.model.log[-1] == "taught 0.0"


def test_weights_of_a_stream_reach_the_model_behind_a_pipeline() -> None:
    stream = [(x, y, {"w": 20.0 if y else 1.0}) for x, y in datasets.Phishing().take(200)]
    base_model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    model, twin = OnlineCalibrated(base_model), base_model.clone()
    evaluate.progressive_val_score([(x, y, dict(more)) for x, y, more in stream], model, Brier())
    for x, y, more in stream:
        twin.predict_proba_one(x)
        twin.learn_one(x, y, **more)
    assert model.calibrator.outcomes == 200
    assert model.model["LogisticRegression"].weights == pytest.approx(twin["LogisticRegression"].weights)
    outer = preprocessing.StandardScaler() | OnlineCalibrated(linear_model.LogisticRegression())
    with pytest.warns(UserWarning, match="GaussianNB takes no w"):
        OnlineCalibrated(preprocessing.StandardScaler() | naive_bayes.GaussianNB()).learn_one({"x": 1.0}, True, w=2.0)
    outer.learn_one({"x": 1.0}, True, w=20.0)
    assert outer["OnlineCalibrated"].calibrator.outcomes == 1


@pytest.mark.parametrize("method", [HOPS, "gauto"])
def test_a_method_without_weights_refuses_before_anybody_has_learnt(method: Any) -> None:
    model = OnlineCalibrated(Weighed(), method)
    with pytest.raises(InvalidInput, match="weight"):
        model.learn_one({"p": 0.7}, True, w=2.0)
    assert "taught 2.0" not in model.model.log and model.calibrator.events == 0


# ---- the metrics -------------------------------------------------------------------------------------------------


PAIRS = [(CalibrationError, metrics.calibration_error), (Sharpness, metrics.sharpness), (Brier, metrics.brier_score)]


def many(n: int = 400) -> tuple[list[bool], list[float]]:
    rng = np.random.default_rng(4)
    forecasts = np.round(rng.random(n), 2)  # many of them on the edge of a bin
    return (rng.random(n) < forecasts).tolist(), forecasts.tolist()


@pytest.mark.parametrize(("kind", "batch"), PAIRS)
def test_metrics_are_those_of_calibeat(kind: Any, batch: Any) -> None:
    outcomes, forecasts = many()
    metric = kind()
    assert metric.get() == 0.0
    for y, p in zip(outcomes, forecasts, strict=True):
        metric.update(y, {False: 1.0 - p, True: p})
    assert abs(metric.get() - batch(outcomes, forecasts)) < 1e-12
    for y, p in zip(outcomes[:-1], forecasts[:-1], strict=True):
        metric.revert(y, p)
    assert abs(metric.get() - batch(outcomes[-1:], forecasts[-1:])) < 1e-12
    metric.revert(outcomes[-1], forecasts[-1])
    assert metric.get() == 0.0
    assert not metric.requires_labels and metric.works_with(MODELS[0]) and metric.works_with_weights
    assert metric.bigger_is_better == (kind is Sharpness)


@pytest.mark.parametrize(("kind", "batch"), PAIRS)
def test_metrics_roll(kind: Any, batch: Any) -> None:
    outcomes, forecasts = many()
    rolling = utils.Rolling(kind, window_size=50)
    times = utils.TimeRolling(kind, period=dt.timedelta(seconds=50))
    for i, (y, p) in enumerate(zip(outcomes, forecasts, strict=True)):
        rolling.update(y, p)
        times.update(y, p, t=dt.datetime(2026, 1, 1) + dt.timedelta(seconds=i))  # noqa: DTZ001 - river compares naive
    assert abs(rolling.get() - batch(outcomes[-50:], forecasts[-50:])) < 1e-12
    assert abs(times.get() - batch(outcomes[-50:], forecasts[-50:])) < 1e-12


def test_weights_bins_and_positive_label() -> None:
    outcomes, forecasts = many(60)
    twice, weighted = CalibrationError(bins=7), CalibrationError(bins=7, pos_val="yes")
    for y, p in zip(outcomes, forecasts, strict=True):
        twice.update(y, p)
        twice.update(y, p)
        weighted.update("yes" if y else "no", {"yes": p, "no": 1.0 - p}, w=2.0)
    assert abs(twice.get() - weighted.get()) < 1e-12
    assert abs(twice.get() - metrics.calibration_error(outcomes, forecasts, bins=7)) < 1e-12
    clone = weighted.clone()
    assert (clone.bins, clone.pos_val, clone.get()) == (7, "yes", 0.0)
    assert twice.is_better_than(twice) is False


@pytest.mark.parametrize(("kind", "batch"), PAIRS)
def test_weights_can_be_taken_back(kind: Any, batch: Any) -> None:
    metric, weights = kind(), [0.1, 0.7, 0.3, 1e-3, 0.2]
    metric.update(True, 0.9, w=0.3)
    for w in weights:
        metric.update(True, 0.3, w=w)
        metric.update(False, 0.3, w=0)  # no weight, no event
    for w in weights:
        metric.revert(True, 0.3, w=w)
    metric.revert(False, 0.3, w=0)
    assert metric.get() == pytest.approx(batch([True], [0.9]), abs=1e-12)
    metric.revert(True, 0.9, w=0.3)
    assert metric.get() == 0.0 and not getattr(metric, "_sums", {})
    metric.update(False, 0.6)
    assert metric.get() == pytest.approx(batch([False], [0.6]), abs=1e-12)


@pytest.mark.parametrize("kind", [CalibrationError, Sharpness, Brier])
def test_a_positive_label_that_is_never_spoken_of(kind: Any) -> None:
    metric = kind()
    with pytest.raises(ValueError, match=rf"positive label True, got .*'spam'.* name it by {kind.__name__}\(pos_val="):
        metric.update("spam", {"ham": 0.1, "spam": 0.9})
    metric.update(False, {False: 1.0})  # a model that knows one class only so far, or none
    metric.update(False, {})
    assert metric.get() == 0.0


# ---- bad input ---------------------------------------------------------------------------------------------------


class Holes(Recorder):
    """A model whose answer is not a number."""

    def predict_proba_one(self, x: dict[Any, Any], **_: Any) -> dict[Any, float]:
        return {False: 0.5, True: x["p"]}


class LabelsOnly(base.Classifier):
    """A model without probabilities."""

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Nothing to learn."""


def test_what_is_refused() -> None:
    model = OnlineCalibrated(linear_model.LogisticRegression())
    x = {"x": 1.0}
    for error, message, work in (
        (
            ValueError,
            r"one of the labels \(False, True\), got 'spam' - name them by",
            lambda: model.learn_one(x, "spam"),
        ),
        (
            ValueError,
            r"must speak of the labels \('no', 'yes'\), got {False: 0.5, True: 0.5}",
            lambda: OnlineCalibrated(linear_model.LogisticRegression(), labels=("no", "yes")).learn_one(x, "yes"),
        ),
        (ValueError, "got 2 .* name all of them if there are more", lambda: model.learn_one(x, 2)),
        (ValueError, "got None", lambda: model.learn_one(x, None)),
        (ValueError, "weight must be a finite number >= 0, got -1.0", lambda: model.learn_one(x, True, w=-1.0)),
        (ValueError, "weight must be a finite number >= 0, got nan", lambda: model.learn_one(x, True, w=math.nan)),
        (ValueError, "weight must be a finite number >= 0, got bool", lambda: model.learn_one(x, True, w=True)),
        (ValueError, "weight must be a finite number >= 0, got str", lambda: model.learn_one(x, True, w="2")),
        (ValueError, "sample_weight must be given as w", lambda: model.learn_one(x, True, sample_weight=2.0)),
        (
            ValueError,
            "must have predict_proba_one, got LinearRegression",
            lambda: OnlineCalibrated(linear_model.LinearRegression()),
        ),
        (ValueError, "two different ones", lambda: OnlineCalibrated(Recorder(), labels=(1, True))),
        (ValueError, "did you mean 'tops'", lambda: OnlineCalibrated(linear_model.LogisticRegression(), "topps")),
        (NotImplementedError, "has no predict_proba_one", lambda: OnlineCalibrated(LabelsOnly()).predict_proba_one(x)),
        (
            ValueError,
            "must give probabilities, got .*nan",
            lambda: OnlineCalibrated(Holes()).learn_one({"p": math.nan}, True),
        ),
        (ValueError, r"score must be in \[0, 1\], got 1.5", lambda: OnlineCalibrated(Holes()).predict_one({"p": 1.5})),
        (ValueError, "remember must be a whole number", lambda: OnlineCalibrated(Recorder(), remember=-1)),
        (ValueError, "bins must be a whole number", lambda: CalibrationError(bins=0)),
        (ValueError, r"must be in \[0, 1\], got nan", lambda: Brier().update(True, math.nan)),
        (ValueError, "w must be a weight of 0 or more, got -1", lambda: Brier().update(True, 0.5, w=-1)),
        (ValueError, "w must be a weight of 0 or more, got nan", lambda: Sharpness().update(True, 0.5, w=math.nan)),
    ):
        with pytest.raises(error, match=message):
            work()
    assert model.calibrator.outcomes == 0
    assert OnlineCalibrated(Holes()).predict_proba_one({"p": 1.0 + 1e-9})[True] > 0.99


def test_without_river(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "calibeat.river")
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[river\]'"):
        importlib.import_module("calibeat.river")


# ---- groups ------------------------------------------------------------------------------------------------------


def grouped_events(n: int = 300) -> tuple[list[dict[str, Any]], list[bool]]:
    rng = np.random.default_rng(4)
    x = [
        {"p": float(p), "country": c, "device": d, "other": 1.5}
        for p, c, d in zip(
            rng.random(n), rng.choice(["fr", "it"], n).tolist(), rng.integers(0, 3, n).tolist(), strict=True
        )
    ]
    return x, [bool(rng.random() < min(1.0, e["p"] + 0.3 * (e["country"] == "fr"))) for e in x]


def columns(x: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [e[name] for e in x] for name in ("country", "device")}


@pytest.mark.parametrize("groups", [["country", "device"], Groups(["country", "device"], crossings=[], seed=1)])
def test_groups_are_features_by_name_with_the_bits_of_a_calibrator(groups: Any) -> None:
    x, y = grouped_events()
    model, said = OnlineCalibrated(Recorder(), groups=groups), []
    for event, label in zip(x, y, strict=True):
        said.append(model.predict_proba_one(event)[True])
        model.learn_one(event, label)
    scores = [e["p"] for e in x]
    assert said == Calibrator(groups=groups).run(scores, y, groups=columns(x)).tolist()
    assert said != Calibrator().run(scores, y).tolist()
    assert model.clone().groups == groups
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert twin.predict_proba_one(x[0]) == model.predict_proba_one(x[0])


def test_numbers_are_features_with_the_bits_of_a_calibrator() -> None:
    groups = Groups(["country", Number("age", first=50)], seed=1)
    x, y = grouped_events()
    x = [{**event, "age": None if i % 11 == 5 else 20.0 + 1.5 * (i * i % 37)} for i, event in enumerate(x)]
    model, said = OnlineCalibrated(Recorder(), groups=groups), []
    for event, label in zip(x, y, strict=True):
        said.append(model.predict_proba_one(event)[True])
        model.learn_one(event, label)
    values = {name: [event[name] for event in x] for name in ("country", "age")}
    assert said == Calibrator(groups=groups).run([e["p"] for e in x], y, groups=values).tolist()


def test_late_labels_teach_the_groups_of_their_event() -> None:
    x, y = grouped_events(200)
    model, said = OnlineCalibrated(Recorder(), remember=30, groups=["country", "device"]), []
    for i in range(230):
        if i >= 30:
            model.learn_one(x[i - 30], y[i - 30])
        if i < 200:
            said.append(model.predict_proba_one(x[i])[True])
    due = np.minimum(np.arange(200) + 30, 200)
    expected = Calibrator(groups=["country", "device"]).run([e["p"] for e in x], y, due=due, groups=columns(x))
    assert said == expected.tolist()


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ({"p": 0.5, "country": "fr"}, "x must have the features country, device, got "),
        ("a text", "x must have the features country, device, got 'a text'"),
        (
            {"p": 0.5, "country": "fr", "device": 1.5},
            "device must be a string, a whole number, a bool or None, got 1.5",
        ),
        (
            {"p": 0.5, "country": "fr", "device": []},
            "device must be a string, a whole number, a bool or None, got list",
        ),
    ],
)
def test_bad_groups_are_said_before_anybody_has_learnt(x: Any, said: str) -> None:
    class Blind(Recorder):
        def predict_proba_one(self, x: Any, **_: Any) -> dict[Any, float]:  # noqa: ARG002 - it knows nothing
            return {True: 0.5}

    base_model = Blind()
    model = OnlineCalibrated(base_model, groups=["country", "device"])
    for call in (lambda: model.learn_one(x, True), lambda: model.predict_proba_one(x)):
        with pytest.raises(InvalidInput, match=said):
            call()
    assert base_model.log == [] and model.calibrator.events == 0


def test_groups_of_many_labels_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"many classes have no groups - use a Calibrator\(groups=\[...\]\)"):
        OnlineCalibrated(Recorder(), labels=("a", "b", "c"), groups=["country"])
