"""The real score of a scikit-learn model, in the form that calibeat takes.

Of two classes that is a probability of the second one, of more a matrix with a column for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import _num_samples

from calibeat._util.types import Vector

ROUNDING = 1e-6  # a sum of probabilities may miss 1, and a certain event be forecast at 1.0000001, by as much
STRAIGHT = 1e-3  # a margin no further than this share of its spread off a line through p, as half floats are, is p
TOLERATED, USUAL = 10.0, 6.0  # sizes of logits; the clip of the scores is at 11.5


def score_method(model: Any, X: Any, K: int = 2) -> str:
    """Which method gives the model's real score: a margin, unless there is none, or it only repeats the probability.

    Of more than two classes the probabilities, if there are some: margins of one class against the rest, or of one
    against one, are no logits of a softmax.
    """
    margins, probabilities = hasattr(model, "decision_function"), hasattr(model, "predict_proba")
    if margins and probabilities and K > 2:
        return "predict_proba"
    if margins and probabilities:
        margin, p = np.asarray(model.decision_function(X)), np.asarray(model.predict_proba(X))
        usable = margin.ndim == 1 and not (p.ndim == 2 and looks_like_probability(margin, p[:, -1]))
        return "decision_function" if usable else "predict_proba"
    if margins or probabilities:
        return "decision_function" if margins else "predict_proba"
    raise AttributeError(
        f"{type(model).__name__} has none of the following attributes: decision_function, predict_proba."
    )


def looks_like_probability(margin: npt.NDArray[Any], p: npt.NDArray[Any]) -> bool:
    """Whether the margin is p, or lies on a line through it, such as 2p - 1, and not on one through the logit of p."""
    m, p = margin.astype(np.float64), p.astype(np.float64)
    if not (np.isfinite(m).all() and np.isfinite(p).all()):
        return False  # refused later, with a sentence
    if np.allclose(m, p) or np.allclose(m, 2.0 * p - 1.0) or np.allclose(m, p - 0.5):
        return True  # also of one row, through which every line goes
    inside = np.clip(p, 1e-12, 1.0 - 1e-12)
    off = _off_the_line(p, m)
    return off <= STRAIGHT * float(np.ptp(m)) and off < 0.5 * _off_the_line(np.log(inside / (1.0 - inside)), m)


def _off_the_line(x: Vector, y: Vector) -> float:
    """The largest distance of y from its straight line of least squares through x."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy) / max(float(dx @ dx), 1e-300)
    return float(np.abs(dy - slope * dx).max())


def outputs(model: Any, method: str, X: Any, K: int = 2) -> Vector:
    """What the model's score method says of the second class, or of each of K: margins, or probabilities."""
    output = np.asarray(getattr(model, method)(X), dtype=np.float64)
    wanted = (_num_samples(X),) if method == "decision_function" and K == 2 else (_num_samples(X), K)
    if output.shape != wanted:
        raise ValueError(f"{type(model).__name__}.{method} must give an array of shape {wanted}, got {output.shape}")
    score = output if method == "decision_function" or K > 2 else output[:, 1]
    missing = np.isnan(score) if score.ndim == 1 else np.isnan(score).any(axis=1)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"The output of {type(model).__name__}.{method} contains NaN - at row {row}")
    return score


def as_probability(score: Vector, *, margin: bool, scale: float) -> Vector:
    """The score as calibeat takes it, so that its logit is the margin divided by its scale."""
    if score.ndim == 2:
        return softmax(score / scale) if margin else shares(score)
    return sigmoid(score / scale) if margin else rounded(score)


def margin_scale(margins: Vector) -> float:
    """1 for margins of the size of logits; if more than 1 in 100 is beyond 10, what brings 99 in 100 of them within 6.

    Scores are clipped at a logit of 11.5: margins in the hundreds would all become one score.
    """
    if margins.ndim == 2:
        margins = margins - margins.mean(axis=1, keepdims=True)
    sizes = np.abs(margins[np.isfinite(margins)])
    most = float(np.quantile(sizes, 0.99)) if len(sizes) else 0.0
    return most / USUAL if most > TOLERATED else 1.0


def sigmoid(margin: Vector) -> Vector:
    """1 / (1 + exp(-margin)), for margins of any size."""
    tame = np.exp(-np.abs(margin))
    return np.where(margin >= 0.0, 1.0, tame) / (1.0 + tame)


def softmax(margins: Vector) -> Vector:
    """Rows of sum 1, for finite margins of any size."""
    e = np.exp(margins - margins.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def shares(p: Vector) -> Vector:
    """Rows of sum 1 from those that miss it by rounding (of single precision); more is left, to be complained about."""
    p = rounded(p)
    total = p.sum(axis=1, keepdims=True)
    return np.where(np.abs(total - 1.0) < 1e-3, p / np.where(total > 0.0, total, 1.0), p)


def rounded(p: Vector) -> Vector:
    """Without what rounding has put outside [0, 1]; more than that is left, for others to complain about."""
    return np.where((p > -ROUNDING) & (p < 1.0 + ROUNDING), np.clip(p, 0.0, 1.0), p)
