"""The drifts of the paper's Section 1, each a one-dimensional x with a model fitted on its first thousand events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibeat._util.extras import missing
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

from .stream import Stream

T = 6000
T_TRAIN = 1000
BLOCK = 500
Score = Callable[[Vector], Vector]

KINDS = ("covariate", "label", "regression")


@dataclass(frozen=True, eq=False)
class Drift:
    """What was drawn: x_t, the true probability Pr(Y_t = 1 | X_t = x_t), and y_t, for t = 1, ..., 6000."""

    kind: str
    x: Vector
    truth: Vector
    y: Vector


def draw(kind: str, seed: int) -> Drift:
    """One of `KINDS` as the paper's equations say."""
    if kind not in KINDS:
        raise InvalidInput(f"drift must be one of {', '.join(KINDS)}, got {kind!r:.60}")
    rng = np.random.default_rng(seed)
    t = np.arange(T)  # the paper's t - 1
    if kind == "label":
        y = (rng.random(T) < _label_rate(t)).astype(np.float64)
        x = rng.normal(2.0 * y, 1.0)
        return Drift(kind, x, probability(kind, x, t), y)
    x = rng.normal(t / 250, 2.0) if kind == "covariate" else rng.normal(0.0, np.sqrt(10.0), T)
    truth = probability(kind, x, t)
    return Drift(kind, x, truth, (rng.random(T) < truth).astype(np.float64))


def probability(kind: str, x: Vector, t: Ints | int) -> Vector:
    """Pr(Y = 1 | X = x) after t events."""
    if kind == "label":
        rate = _label_rate(np.asarray(t))
        # Bayes: the logit of the rate, and the log ratio of N(2, 1) and N(0, 1) at x.
        return 1.0 / (1.0 + (1.0 - rate) / rate * np.exp(2.0 - 2.0 * x))
    alpha = np.asarray(t) / 5000 if kind == "regression" else np.zeros_like(x)
    return np.where(np.floor(x / 5) % 2 == 1, 0.9, 0.1) * (1.0 - alpha) + 0.5 * alpha


def _label_rate(t: Ints) -> Vector:
    return 0.95 * (1.0 - t / 6000) + 0.05 * t / 6000


def features(kind: str, x: Vector) -> Vector:
    """What the base model sees of x: 48 sinusoids, for the label drift x itself."""
    return x[:, None] if kind == "label" else sinusoids(x)


def base_model(kind: str, x: Vector, y: Vector) -> Score:
    """A logistic regression on the training events, as a function from x to scores."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise missing("scikit-learn", extra="demo", what="the model") from error
    model = LogisticRegression(max_iter=1000).fit(features(kind, x), y)
    return lambda x: np.asarray(model.predict_proba(features(kind, x))[:, 1], dtype=np.float64)


def covariate_drift(seed: int = 0) -> Stream:
    """X_t ~ N((t-1)/250, 4), Pr(Y_t = 1 | X_t) = 0.9 if floor(X_t/5) is odd, else 0.1; t = 1001..6000 is replayed.

    The truth never changes, but X walks out of what the model has seen. Raises `MissingExtra` without scikit-learn.
    """
    drift = draw("covariate", seed)
    score = base_model(drift.kind, drift.x[:T_TRAIN], drift.y[:T_TRAIN])
    starts = range(T_TRAIN, T, BLOCK)
    return Stream(
        name="Covariate drift, section 1 of the paper",
        event="the outcome is 1",
        scores=score(drift.x[T_TRAIN:]),
        outcomes=drift.y[T_TRAIN:],
        due=None,
        group=np.repeat(np.arange(len(starts)), BLOCK),
        group_names=tuple(f"{start + 1}-{start + BLOCK}" for start in starts),
        group_adjective="blockwise",
        time_label="event t",
    )


def sinusoids(x: Vector) -> Vector:
    """The paper's 48 features of x: sin(x/freq + translation), freq in 1..6, translation in 0, pi/4, ..., 7 pi/4."""
    freq = np.arange(1, 7)[:, None]
    translation = np.arange(8) * np.pi / 4
    return np.sin(x[:, None, None] / freq + translation).reshape(len(x), -1)
