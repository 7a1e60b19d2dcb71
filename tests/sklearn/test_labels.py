"""calibeat in scikit-learn: labels, and what is refused with them."""

from __future__ import annotations

from typing import Any

from classifiers import Said, events
from sklearn.linear_model import LogisticRegression

from calibeat.sklearn import OnlineCalibratedClassifier


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
