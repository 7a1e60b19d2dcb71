"""The best fixed parameters in hindsight, from scores counted by rank: the log is not looked at twice.

Scores of one rank and one outcome (whose logits are within 1/512 of one another) are taken at their mean x, with their
number as a weight. The logistic function bends by at most 1/4, so this understates the loss, and overstates a regret,
by at most n (|theta| / 512)^2 / 32 nats, n the number of events: 0.12 for a million events and |theta| = 1.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.core.features import Beta, Scaling
from calibeat.core.fit import PLAIN_SECONDS, fit
from calibeat.core.jit import compilable, for_cost, for_size
from calibeat.core.method import Method

from .tally import OCTAVES, rank_of

HINDSIGHT_RADIUS = 100.0  # as the learners and `metrics.regret` have it
SCORE_CLIP = 1e-5  # as the features have it
STEPS = 1024  # in an octave
RANKS = 2 * (2 + OCTAVES * STEPS)


@compilable
def tally_scores(scores: Vector, outcomes: Vector, place: Ints, cells: Vector) -> None:
    """Count, sum of log f and sum of log(1 - f) of each rank: warm-up and the rest, zeros and ones apart."""
    for i in range(len(scores)):
        if place[i] < 0:
            continue
        part = (0 if place[i] == 0 else 2) + int(outcomes[i])
        f = max(SCORE_CLIP, scores[i])
        f = min(1.0 - SCORE_CLIP, f)
        at = 3 * (part * RANKS + rank_of(f, STEPS))
        cells[at] += 1.0
        cells[at + 1] += math.log(f)
        cells[at + 2] += math.log1p(-f)


class ScoreTally:
    """Scores by rank with the sums of their features, apart for the warm-up and for what is judged."""

    def __init__(self) -> None:
        self._cells = np.zeros(4 * RANKS * 3)
        self._found: dict[tuple[type, bool], tuple[float, tuple[float, ...]] | None] = {}

    def count(self, scores: Vector, outcomes: Vector, place: Ints) -> None:
        """Count a chunk: place 0 is the warm-up, a negative one is left out."""
        for_size(tally_scores, len(scores))(scores, outcomes, place, self._cells)

    @property
    def distinct(self) -> int:
        """How many ranks of scores were seen: 1 if the score is all but constant."""
        return int(np.count_nonzero(self._cells.reshape(4, RANKS, 3)[:, :, 0].sum(axis=0)))

    def least_loss(self, method: Method, *, warmup: bool = False) -> tuple[float, tuple[float, ...]] | None:
        """The least total log-loss of fixed parameters of the method's features, and the parameters.

        Over the judged events, or with `warmup` over all, once the log has ended; None for a method without such
        features.
        """
        family = method.features
        if not isinstance(family, Scaling):
            return None
        wanted = type(family), warmup
        if wanted not in self._found:
            self._found[wanted] = self._fit(family, warmup=warmup)
        return self._found[wanted]

    def _fit(self, family: Scaling, *, warmup: bool) -> tuple[float, tuple[float, ...]] | None:
        cells = self._cells.reshape(2, 2 * RANKS, 3)[slice(0, 2) if warmup else slice(1, 2)].reshape(-1, 3)
        used = cells[:, 0] > 0
        if not used.any():
            return None
        y = np.resize(np.repeat([0.0, 1.0], RANKS), len(cells))[used]
        weight, x0, x1 = cells[used].T.copy()
        x0, x1 = x0 / weight, x1 / weight
        if not isinstance(family, Beta):
            x0 = x0 - x1
        d = family.dimension
        start = 0.0, 0.0, 0.0
        best = for_cost(fit, PLAIN_SECONDS * len(y))
        theta = best(float(d), x0, x1, y, weight, 0, len(y), *start, HINDSIGHT_RADIUS)[:d]
        z = theta[0] * x0
        if d > 1:
            z += theta[1] * x1 + theta[2] if d == 3 else theta[1]
        return float((weight * np.logaddexp(0.0, np.where(y == 1.0, -z, z))).sum()), theta
