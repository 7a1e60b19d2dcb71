"""river's classifiers of more than two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from river import base, checks, datasets, naive_bayes

from calibeat import MultiCalibrator
from calibeat.river import OnlineCalibrated

LABELS = ("cat", "dog", "bird")


class Told(base.Classifier):
    """A classifier that says what it is told."""

    def __init__(self, answer: dict[Any, float]) -> None:
        self.answer = answer
        self.learnt = 0

    def learn_one(self, x: Any, y: Any) -> None:  # noqa: ARG002 - river's signature
        self.learnt += 1

    def predict_proba_one(self, x: Any) -> dict[Any, float]:  # noqa: ARG002 - as above
        return self.answer


def test_it_is_a_multi_calibrator() -> None:
    answers = [{"cat": 0.7, "dog": 0.2, "bird": 0.1}, {"dog": 1.0}, {}]
    model, cal = OnlineCalibrated(Told({}), labels=LABELS), MultiCalibrator(LABELS)
    rows = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [1 / 3] * 3]
    for i in range(60):
        model.model.answer = answers[i % 3]
        y = LABELS[(i * i) % 3]
        want = cal.predict(rows[i % 3])
        said = model.predict_proba_one({"x": i})
        assert list(said) == list(LABELS)
        np.testing.assert_array_equal(list(said.values()), want.probabilities)
        model.learn_one({"x": i}, y)
        cal.update(want, y)
    np.testing.assert_array_equal(model.calibrator.row, cal.row)
    assert model.predict_one({"x": 1}) in LABELS and model._multiclass


def test_late_labels_are_remembered() -> None:
    model = OnlineCalibrated(Told({"cat": 0.5, "dog": 0.25, "bird": 0.25}), labels=LABELS, remember=10)
    cal = MultiCalibrator(LABELS)
    kept = []
    for i in range(8):
        model.predict_proba_one({"x": i})
        kept.append(cal.predict([0.5, 0.25, 0.25]))
    for i in (3, 1, 7):
        model.learn_one({"x": i}, "bird")
        cal.update(kept[i], "bird")
    np.testing.assert_array_equal(model.calibrator.row, cal.row)


SEGMENTS = tuple(sorted({y for _, y in datasets.ImageSegments()}))


@pytest.mark.parametrize("method", ["auto"])
def test_the_checks_of_river(method: str) -> None:
    """They teach phishing (False and True), and, because it takes many classes, segments of images."""
    checks.check_estimator(OnlineCalibrated(naive_bayes.GaussianNB(), method, labels=(False, True, *SEGMENTS)))


def test_it_helps_on_real_data() -> None:
    model, loss, raw = OnlineCalibrated(naive_bayes.GaussianNB(), labels=SEGMENTS), 0.0, 0.0
    for i, (x, y) in enumerate(datasets.ImageSegments().take(1500)):
        score = dict(zip(SEGMENTS, model._score(x), strict=True))[y]
        p = model.predict_proba_one(x)[y]
        model.learn_one(x, y)
        if i >= 300:
            loss -= np.log(max(p, 1e-7))
            raw -= np.log(max(score, 1e-7))
    assert loss < 0.8 * raw


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"fox": 1.0}, "must speak of the labels"),
        ({"cat": 2.0}, "must give probabilities of sum 1"),
        ({"cat": float("nan")}, "must give probabilities of sum 1"),
        ({"cat": 1.5, "dog": -0.5}, "must give probabilities of sum 1"),
    ],
)
def test_bad_answers(answer: dict[Any, float], message: str) -> None:
    model = OnlineCalibrated(Told(answer), labels=LABELS)
    with pytest.raises(ValueError, match=message):
        model.learn_one({"x": 1}, "cat")
    assert model.model.learnt == 0 and model.calibrator.events == 0


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="labels must be two different ones"):
        OnlineCalibrated(Told({}), labels=("a", "b", "a"))
    with pytest.raises(ValueError, match=r"method must be 'auto' .* for 3 classes, got 'tops'"):
        OnlineCalibrated(Told({}), "tops", labels=LABELS)
    with pytest.raises(ValueError, match=r"one of the labels .* got 'fox'"):
        OnlineCalibrated(Told({}), labels=LABELS).learn_one({"x": 1}, "fox")
