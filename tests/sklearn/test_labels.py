"""calibeat in scikit-learn: labels, and what is refused with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from classifiers import Said, events
from sklearn.linear_model import LogisticRegression

from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator


def test_weights_by_position_are_refused_too() -> None:
    X, y = events(100)
    weights = np.ones(100)
    model = OnlineCalibratedClassifier(LogisticRegression()).fit(X, y, None)
    scores = ScoreCalibrator().fit([0.2, 0.8], [0, 1])
    for work in (
        lambda: model.fit(X, y, weights),
        lambda: model.partial_fit(X, y, None, weights),
        lambda: scores.fit([0.2, 0.8], [0, 1], [1, 2]),
        lambda: scores.partial_fit([0.2, 0.8], [0, 1], [0, 1], [1, 2]),
    ):
        with pytest.raises(TypeError, match="does not support sample_weight: each outcome happened once"):
            work()


class Nameless(Said):
    """One that keeps its classes to itself."""

    def fit(self, X: Any, y: Any) -> Nameless:
        self.model_ = LogisticRegression().fit(X, y)
        return self

    def decision_function(self, X: Any) -> Any:
        return self.model_.decision_function(X)


def test_a_base_that_does_not_name_its_classes_has_those_of_y() -> None:
    X, y = events(200)
    assert OnlineCalibratedClassifier(Nameless()).fit(X, y).classes_.tolist() == ["no", "yes"]
