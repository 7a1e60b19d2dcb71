"""The three drifts of Section 1 as the paper's equations say. The covariate drift is an example of the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibeat import examples
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput
from calibeat.examples import T, draw_covariate, sinusoids, steps

KINDS = ("covariate", "label", "regression")


@dataclass(frozen=True, eq=False)
class Drift:
    """What was drawn: x_t, the true probability Pr(Y_t = 1 | X_t = x_t), and y_t, for t = 1, ..., 6000."""

    x: Vector
    truth: Vector
    y: Vector


def draw(kind: str, seed: int) -> Drift:
    """One of `KINDS`."""
    if kind not in KINDS:
        raise InvalidInput(f"drift must be one of {', '.join(KINDS)}, got {kind!r:.60}")
    if kind == "covariate":
        return Drift(*draw_covariate(seed))
    rng = np.random.default_rng(seed)
    t = np.arange(T)  # the paper's t - 1
    if kind == "label":
        y = (rng.random(T) < _label_rate(t)).astype(np.float64)
        x = rng.normal(2.0 * y, 1.0)
        return Drift(x, probability(kind, x, t), y)
    x = rng.normal(0.0, np.sqrt(10.0), T)
    truth = probability(kind, x, t)
    return Drift(x, truth, (rng.random(T) < truth).astype(np.float64))


def probability(kind: str, x: Vector, t: Ints | int) -> Vector:
    """Pr(Y = 1 | X = x) after t events."""
    if kind == "label":
        rate = _label_rate(np.asarray(t))
        # Bayes: the logit of the rate, and the log ratio of N(2, 1) and N(0, 1) at x.
        return 1.0 / (1.0 + (1.0 - rate) / rate * np.exp(2.0 - 2.0 * x))
    alpha = np.asarray(t) / 5000 if kind == "regression" else np.zeros_like(x)
    return steps(x) * (1.0 - alpha) + 0.5 * alpha


def _label_rate(t: Ints) -> Vector:
    return 0.95 * (1.0 - t / 6000) + 0.05 * t / 6000


def features(kind: str, x: Vector) -> Vector:
    """What the base model sees of x: 48 sinusoids, for the label drift x itself."""
    return x[:, None] if kind == "label" else sinusoids(x)


def base_model(kind: str, x: Vector, y: Vector) -> examples.Score:
    """A logistic regression on the training events, as a function from x to scores."""
    return examples.base_model(lambda x: features(kind, x), x, y)
