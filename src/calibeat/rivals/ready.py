"""Rivals of other libraries: scikit-learn's isotonic and sigmoid on a window of the past, river's logistic regression.

Those of scikit-learn forecast the raw score until they have learnt 50 outcomes with both kinds among them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from calibeat._util.check import check_scale, check_whole
from calibeat._util.extras import need

LEAST = 50  # outcomes before the first fit
CLIP = 1e-5  # no logit sees a score nearer to 0 or 1, as in our methods


def logit(score: float) -> float:
    """The logit of a score that is clipped to [1e-5, 1 - 1e-5]."""
    f = min(1.0 - CLIP, max(CLIP, score))
    return math.log(f / (1.0 - f))


class _Window(ABC):
    """The last outcomes, and a fit to them now and then."""

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        self.window, self.every = check_whole("window", window, 2, 10**7), check_whole("every", every, 1, 10**7)
        self._past: deque[tuple[float, float]] = deque(maxlen=self.window)
        self._learnt, self._early = 0, LEAST  # a first fit, and others at twice as many until `every` is reached
        self._fitted = False

    def update(self, score: float, outcome: float) -> None:
        """Keep the outcome; fit after 50, 100, 200, ... outcomes, and after every `every`."""
        self._past.append((score, outcome))
        self._learnt += 1
        early = self._learnt == self._early
        if early:
            self._early *= 2
        if (early and self._learnt < self.every) or self._learnt % self.every == 0:
            x, y = np.array(self._past).T
            if 0.0 < y.mean() < 1.0:
                self._fit(x, y)
                self._fitted = True

    @abstractmethod
    def _fit(self, x: Any, y: Any) -> None:
        """Fit to scores x and outcomes y."""


class Isotonic(_Window):
    """scikit-learn's `IsotonicRegression`, fitted to the last `window` outcomes after every `every` outcomes.

    >>> from calibeat.rivals import Host
    >>> Host(Isotonic).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.48, 1.  ])
    """

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        super().__init__(window, every)
        self._regression = need("sklearn.isotonic", extra="sklearn", what="the rival isotonic").IsotonicRegression
        self._at, self._to = np.zeros(1), np.zeros(1)

    def predict(self, score: float) -> float:
        """Between two steps of the fit, a straight line, as scikit-learn has it."""
        return float(np.interp(score, self._at, self._to)) if self._fitted else score

    def _fit(self, x: Any, y: Any) -> None:
        fitted = self._regression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
        self._at, self._to = fitted.X_thresholds_, fitted.y_thresholds_


class Sigmoid(_Window):
    """scikit-learn's sigmoid calibration of the logit, fitted to the last `window` outcomes after every `every`.

    It is `CalibratedClassifierCV(method="sigmoid")` around a model whose decision function is the logit of the score.

    >>> from calibeat.rivals import Host
    >>> Host(Sigmoid).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.5 , 0.97])
    """

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        super().__init__(window, every)
        self._calibration = need("sklearn.calibration", extra="sklearn", what="the rival sigmoid")
        self._a, self._b = -1.0, 0.0

    def predict(self, score: float) -> float:
        """1 / (1 + exp(a logit(score) + b)), Platt's letters."""
        if not self._fitted:
            return score
        z = self._a * logit(score) + self._b
        return 1.0 / (1.0 + math.exp(min(700.0, z)))

    def _fit(self, x: Any, y: Any) -> None:
        frozen = need("sklearn.frozen", extra="sklearn", what="the rival sigmoid").FrozenEstimator
        logits = np.log(np.clip(x, CLIP, 1.0 - CLIP)) - np.log1p(-np.clip(x, CLIP, 1.0 - CLIP))
        all_at_once = [(np.arange(len(y)), np.arange(len(y)))]  # a frozen model needs no folds
        base = frozen(_logits_as_they_are())
        model = self._calibration.CalibratedClassifierCV(base, method="sigmoid", cv=all_at_once)
        fitted = model.fit(logits.reshape(-1, 1), y).calibrated_classifiers_[0].calibrators[0]
        self._a, self._b = float(fitted.a_), float(fitted.b_)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_calibration"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._calibration = need("sklearn.calibration", extra="sklearn", what="the rival sigmoid")


def _logits_as_they_are() -> Any:
    """A fitted classifier whose decision function is its only feature."""
    linear = need("sklearn.linear_model", extra="sklearn", what="the rival sigmoid").LogisticRegression()
    linear.classes_, linear.n_features_in_ = np.array([0.0, 1.0]), 1
    linear.coef_, linear.intercept_ = np.ones((1, 1)), np.zeros(1)
    return linear


class RiverSGD:
    """river's logistic regression on the logit of the score, by stochastic gradient descent, from the raw score on.

    >>> from calibeat.rivals import Host
    >>> Host(RiverSGD).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.23, 0.81])
    """

    def __init__(self, rate: float = 0.01) -> None:
        linear = need("river.linear_model", extra="river", what="the rival river-sgd")
        optim = need("river.optim", extra="river", what="the rival river-sgd")
        self.rate = check_scale("rate", rate)
        one = optim.initializers.Constant(1.0)  # the raw score: river would start from nothing
        self._model = linear.LogisticRegression(optim.SGD(self.rate), intercept_lr=self.rate, initializer=one)
        self._began = False

    def predict(self, score: float) -> float:
        """The probability of the outcome True; before the first step, the score."""
        if not self._began:
            return score
        return float(self._model.predict_proba_one({"logit": logit(score)})[True])

    def update(self, score: float, outcome: float) -> None:
        """One gradient step."""
        self._began = True
        self._model.learn_one({"logit": logit(score)}, outcome == 1.0)


READY: dict[str, Callable[[], Any]] = {"isotonic": Isotonic, "sigmoid": Sigmoid, "river-sgd": RiverSGD}

ABOUT = {
    "isotonic": "scikit-learn's isotonic regression, fitted every 500 outcomes to the last 5,000.",
    "sigmoid": "scikit-learn's sigmoid calibration, fitted every 500 outcomes to the last 5,000.",
    "river-sgd": "river's logistic regression on the logit of the score, one gradient step per outcome.",
}
