"""Events, a calibrator by hand, and models that say what tests want, for the tests of scikit-learn's side."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from calibeat import AUTO, Calibrator


def events(n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no")


def by_hand(scores: Any, outcomes: Any, ask: Any, method: Any = AUTO) -> Any:
    """All the forecasts, then all the outcomes, one by one."""
    cal = Calibrator(method)
    receipts = [cal.predict(score) for score in np.asarray(scores).tolist()]
    for receipt, outcome in zip(receipts, np.asarray(outcomes).tolist(), strict=True):
        cal.update(receipt, int(outcome))
    return cal.predict_many(ask)


class Said(ClassifierMixin, BaseEstimator):
    """A classifier that says what it finds in the first column, by whichever of the two methods it has."""

    def fit(self, _: Any, y: Any) -> Said:
        self.classes_ = np.unique(y)
        return self


class Sure(Said):
    """An over-confident one: probabilities whose logits are twice the truth."""

    def predict_proba(self, X: Any) -> Any:
        p = 1 / (1 + np.exp(-2 * np.asarray(X)[:, 0]))
        return np.column_stack([1 - p, p])


class Disguised(Sure):
    """One whose decision_function is a probability."""

    def decision_function(self, X: Any) -> Any:
        return self.predict_proba(X)[:, 1]
