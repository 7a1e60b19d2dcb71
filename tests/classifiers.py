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
    """What `fit` does in the order of time: each outcome comes a quarter of the rows after its forecast."""
    cal = Calibrator(method)
    known, late = np.asarray(outcomes).tolist(), max(1, len(scores) // 4)
    receipts = []
    for i, score in enumerate(np.asarray(scores).tolist()):
        if i > late:
            cal.update(receipts[i - late - 1], int(known[i - late - 1]))
        receipts.append(cal.predict(score))
    for receipt, outcome in list(zip(receipts, known, strict=True))[max(0, len(known) - late - 1) :]:
        cal.update(receipt, int(outcome))
    return cal.predict_many(ask)


def last_rows(rows: int, n: int) -> list[tuple[Any, Any]]:
    """A `cv` of one fold: the first rows fit the base that scores the others."""
    return [(np.arange(rows), np.arange(rows, n))]


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
