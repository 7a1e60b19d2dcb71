"""A seeded stream that drifts, the same for every contender."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CLIP = 1e-5


class Stream(NamedTuple):
    """Scores, outcomes and the logit of the clipped score, all float64."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.float64]
    logits: NDArray[np.float64]


def drifting(events: int, seed: int = 0) -> Stream:
    """Scores sigmoid(N(0, 1.5)), Pr(y = 1) = sigmoid(a_t logit(score) + b_t), where a_t and b_t wander slowly."""
    rng = np.random.default_rng(seed)
    scores = 1.0 / (1.0 + np.exp(-rng.normal(0.0, 1.5, events)))
    clipped = np.clip(scores, CLIP, 1.0 - CLIP)
    logits = np.log(clipped / (1.0 - clipped))
    phase = np.linspace(0.0, 4.0 * np.pi, events)
    truth = (1.0 + 0.4 * np.sin(phase)) * logits + 0.5 * np.cos(phase)
    outcomes = (rng.random(events) < 1.0 / (1.0 + np.exp(-truth))).astype(np.float64)
    return Stream(scores, outcomes, logits)
