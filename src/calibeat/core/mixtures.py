"""Mixtures: several learners side by side, weighted by how well each has forecast.

Nobody knows beforehand how fast a stream will drift. `Lanes` runs a learner for each answer and lets the outcomes
choose. In a row, from `THETA` on (`layout`): 36 numbers of the Kalman lanes, 6 weights, theta and A of the paper's ONS,
and three numbers about late outcomes; at the end of the row, 36 numbers of the horizon lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .features import Beta
from .formula import LARGEST_EXPONENT, Expression, Formula, at_the_clip, clamped, not_below, sigmoid_of
from .horizon import HORIZON_CAP, MOST_LANE_LOGIT, MOST_SCORE_LOGIT, SIZE, horizon_initial
from .lanes import CAP_AC, CAP_B, G_ATOM, LN4, MOST_CLIP, ONS_RHO, PRIOR_AC, PRIOR_B, X_ATOM
from .layout import (
    BEND,
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_COVARIANCE,
    HORIZON_THETA,
    HORIZON_WEIGHT,
    HORIZON_WIDTH,
    MEAN_LAG,
    OFFSET,
    OPS_A,
    OPS_B,
    OPS_MATRIX,
    SLOPE,
    STALENESS,
    TEMPER,
    VAR_A,
    VAR_B,
    VAR_C,
    WEIGHT,
)
from .learners import LANES
from .parts import Columns, Features, Learner
from .receipt import EXPERT, LANE, PAPER_LANE
from .weights import EPS, LARGEST

LANE_NAMES = ("still", "slow", "fast", "level only", "raw score", "paper's OPS")
HORIZON_NAME = "horizon"


@dataclass(frozen=True)
class Lanes(Learner):
    r"""Six forecasters at different speeds of drift, mixed by log-loss; nothing to choose.

    With x = logit f and g = log f + log(1 - f) + log 4 (zero at f = 1/2), four lanes forecast
    e_k = sigmoid(a_k x + c_k g + b_k), each with a Gaussian belief about (a, c, b) that an outcome sharpens and
    drift blurs (a Kalman filter for a random walk, one Newton step per outcome):

    K = P (x, g, 1)';  d = 1/(1 + e (1 - e) var);  theta += (y - e) d K;  P -= e (1 - e) d K K';  P_ii += drift

    ===============  ================================================================
    lane             what it believes
    ===============  ================================================================
    ``still``        the relation of score and outcome never changes
    ``slow``         it drifts by 1e-4 of the prior variance per outcome
    ``fast``         it drifts by 1e-3
    ``level only``   the offset drifts by 1e-2, the rest never
    ``raw score``    the score is right as it is
    ``paper's OPS``  ONS on (x, 1), the paper's Algorithm 1
    ===============  ================================================================

    The expert is their mean m = sum w_k e_k. After the n-th outcome w_k <- (1 - alpha) w_k L_k / sum + alpha/6,
    L_k the probability that lane k gave to it and alpha = 0.5/n: so m loses at most ln 6 + (5/12) ln T + 0.425 nats
    to the best lane, whatever happens (`bounds.lanes_loss`).

    **Late outcomes.** A late outcome judges what was issued and moves what is there now. Weights that follow such
    judgements chase the past: they are tempered by what this has cost so far (`calibeat.core.weights`). A seventh
    lane, ``horizon``, wakes with the first late outcome. It regresses the outcome on the logits that the lanes had
    issued with the forecast (`calibeat.core.horizon`). `bounds.auto_late` says what all of this can have lost. With
    outcomes at once, nothing of it happens.

    Parameters
    ----------
    horizon : whether there is a horizon lane. Without it a row is 36 numbers shorter, for banks of many millions;
        the temper stays.

    >>> from calibeat import Beta, Calibrator, Lanes, Method
    >>> cal = Calibrator(Method(Beta(), Lanes()))
    >>> p = cal.run([0.8, 0.6, 0.9, 0.7] * 50, [1, 0, 0, 0] * 50)      # a score that is far too high
    >>> lanes = cal.params["lanes"]
    >>> max(lanes, key=lanes.get), round(lanes["raw score"], 3)
    ('still', 0.001)

    References: Herbster & Warmuth (1998), fixed share; Vovk (1990); Fahrmeir (1992), Kalman filters for logits;
    Gupta & Ramdas (2023), Algorithm 1.
    """

    horizon: bool = True

    code: ClassVar[float] = LANES
    receipt: ClassVar[tuple[int, ...]] = (*range(LANE, LANE + 4), PAPER_LANE, EXPERT)
    later_fields: ClassVar[tuple[str, ...]] = ("horizon",)
    later_numbers: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if not isinstance(self.horizon, (bool, np.bool_)):
            raise InvalidInput(f"Lanes horizon must be True or False, got {self.horizon!r:.60}")
        object.__setattr__(self, "horizon", bool(self.horizon))

    def __repr__(self) -> str:
        """Shorter where there is a horizon lane: it names a stream's receipts, and those of 0.1 must stay known."""
        return f"Lanes({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in self.shown_fields())})"

    def check_features(self, features: Features | None) -> None:
        if type(features) is not Beta or features.start != Beta.start:
            raise InvalidInput(f"Lanes needs Beta features that start at the identity {Beta.start}, got {features}")
        if features.clip > MOST_CLIP:
            raise InvalidInput(f"Lanes needs Beta features with a clip of at most {MOST_CLIP:g}, got {features.clip:g}")

    def initial(self, features: Features) -> list[float]:  # noqa: ARG002 - they all start at the identity
        theta, P = (1.0, 0.0, 0.0), (PRIOR_AC, 0.0, 0.0, PRIOR_AC, 0.0, PRIOR_B)
        kalman = [number for number in (*theta, *P) for _ in range(4)]
        return [*kalman, *[1.0 / 6.0] * 6, 1.0, 0.0, ONS_RHO, 0.0, ONS_RHO, 0.0, 1.0, 0.0]

    def tail(self) -> list[float]:
        return horizon_initial() if self.horizon else []

    def check(self, row: Sequence[float], features: Features, n: float) -> None:  # noqa: ARG002 - one signature
        weights = _weights(row, horizon=self.horizon)
        awake = weights if len(weights) < 7 or weights[6] != 0.0 else weights[:6]
        if not all(0.01 / (n + 1.0) <= w <= 1.0 for w in awake) or abs(math.fsum(awake) - 1.0) > 1e-9:
            raise InvalidInput(
                f"row must have weights of lanes that sum to one, none of them lost, got {list(weights)}"
            )
        if not all(abs(value) <= 1e6 for value in (*row[SLOPE:VAR_A], row[OPS_A], row[OPS_B])):
            raise InvalidInput("row must have lanes with parameters in [-1e+06, 1e+06], got others")
        for k in range(4):
            aa, cc, bb = row[VAR_A + k], row[VAR_C + k], row[VAR_B + k]
            bounded = 0.0 < aa <= 1.1 * CAP_AC and 0.0 < cc <= 1.1 * CAP_AC and 0.0 < bb <= 1.1 * CAP_B
            covariances = ((row[COV_AC + k], aa * cc), (row[COV_AB + k], aa * bb), (row[COV_CB + k], cc * bb))
            if not bounded or not all(c * c <= product * (1.0 + 1e-6) for c, product in covariances):
                raise InvalidInput("row must have lanes with positive variances up to their cap, got others")
        h00, h01, h11 = row[OPS_MATRIX : OPS_MATRIX + 3]
        if not (0.0 < h00 < 1e150 and 0.0 < h11 < 1e150 and h01 * h01 < h00 * h11):
            raise InvalidInput("row must have a lane of OPS with a positive definite matrix, got another")
        check_temper(row[STALENESS], row[TEMPER])
        if not 0.0 <= row[MEAN_LAG] <= n:
            raise InvalidInput(f"row must have a mean lag of at most its {n:g} outcomes, got {row[MEAN_LAG]!r}")
        if self.horizon:
            check_horizon(row[len(row) - HORIZON_WIDTH :])

    def params(self, row: Any, features: Features) -> dict[str, Any]:  # noqa: ARG002 - one signature
        """Weighted means over the first six lanes of slope a, offset b and bend c; the weight of each lane by its name;
        how late outcomes are on average, and by how much the weights are tempered for it (1: not at all)."""
        weights = _weights(row, horizon=self.horizon)
        lanes = {
            "a": [*row[SLOPE : SLOPE + 4], 1.0, row[OPS_A]],
            "b": [*row[OFFSET : OFFSET + 4], 0.0, row[OPS_B]],
            "c": [*row[BEND : BEND + 4], 0.0, 0.0],
        }
        known = _sum(weights[:6])
        means = {
            name: _sum(w * value for w, value in zip(weights, values, strict=False)) / known
            for name, values in lanes.items()
        }
        names = (*LANE_NAMES, HORIZON_NAME)[: len(weights)]
        return {
            **means,
            "lanes": dict(zip(names, weights, strict=True)),
            "mean_lag": row[MEAN_LAG],
            "temper": row[TEMPER],
        }

    def params_of_rows(self, rows: Vector, features: Features) -> Columns:
        """The weight of each lane is a column of its own."""
        params = self.params(rows.T, features)
        lanes = params.pop("lanes")
        return {name: np.array(column) for name, column in (params | lanes).items()}

    def export(self, formula: Formula, row: list[float], features: Features, *, exact: bool) -> None:  # noqa: ARG002
        """`mix` on the frozen row."""
        if not isinstance(features, Beta):  # pragma: no cover - `check_features` has seen to it
            raise TypeError(features)
        clip, weights = features.clip, row[WEIGHT : WEIGHT + 6]
        slope, bend, offset = (row[at : at + 4] for at in (SLOPE, BEND, OFFSET))
        ops_a, ops_b = row[OPS_A], row[OPS_B]
        formula.numbers.update(slope=slope, bend=bend, offset=offset, weight=weights, ops=[ops_a, ops_b], clip=clip)
        formula.add("f", clamped("score", clip, 1.0 - clip))
        formula.add("lf", ("ln", "f"))
        formula.add("lg", ("ln", ("-", 1.0, "f")))
        formula.add("logit", ("-", "lf", "lg"))
        formula.add("x", at_the_clip(clip, -X_ATOM, X_ATOM, "logit"))
        formula.add("g", at_the_clip(clip, G_ATOM, G_ATOM, ("+", "lf", "lg", LN4)))
        logits = [("+", ("*", slope[k], "x"), ("*", bend[k], "g"), offset[k]) for k in range(4)]
        for k, z in enumerate(logits):
            formula.add(f"lane{k}", _squashed(z))
        formula.add("ops", _squashed(("+", ("*", ops_a, "logit"), ops_b)))
        names = ["lane0", "lane1", "lane2", "lane3", "f", "ops"]
        lane = row[len(row) - HORIZON_WIDTH :]
        if self.horizon and lane[HORIZON_WEIGHT] > 0.0:
            _export_horizon(formula, lane, [("+", ("*", ops_a, "logit"), ops_b), *logits])
            weights, names = [*weights, lane[HORIZON_WEIGHT]], [*names, "horizon"]
        mean = ("+", *(("*", w, name) for w, name in zip(weights, names, strict=True)))
        formula.add("expert", clamped(mean, EPS, LARGEST))


def check_temper(stale: float, temper: float) -> None:
    """Raise `InvalidInput` unless the temper is one that this staleness can have left in force."""
    if not (stale >= 0.0 and 1.0 <= temper <= 1.0 + stale):
        raise InvalidInput(f"row must have a temper from 1 to 1 + its staleness {stale!r}, got {temper!r}")


def check_horizon(lane: Sequence[float]) -> None:
    """Raise `InvalidInput` unless the parameters and the covariance of the horizon lane are possible."""
    theta, packed = lane[HORIZON_THETA:HORIZON_COVARIANCE], iter(lane[HORIZON_COVARIANCE:])
    P = {(i, j): next(packed) for i in range(SIZE) for j in range(i, SIZE)}
    bounded = all(0.0 < P[i, i] <= 1.1 * HORIZON_CAP for i in range(SIZE))
    if not all(abs(value) <= 1e6 for value in theta):
        raise InvalidInput("row must have a horizon lane with parameters in [-1e+06, 1e+06], got others")
    if not bounded or not all(c * c <= P[i, i] * P[j, j] * (1.0 + 1e-6) for (i, j), c in P.items()):
        raise InvalidInput("row must have a horizon lane with positive variances up to their cap, got others")


def _weights(row: Any, *, horizon: bool) -> list[Any]:
    """The weights of the lanes, that of the horizon lane last."""
    return [*row[WEIGHT : WEIGHT + 6], *([row[len(row) - HORIZON_WIDTH]] if horizon else ())]


def _export_horizon(formula: Formula, lane: list[float], logits: list[Expression]) -> None:
    """The horizon lane of a frozen row, which looks at the logits of the score, of OPS and of the Kalman lanes."""
    theta = lane[HORIZON_THETA:HORIZON_COVARIANCE]
    formula.numbers.update(horizon=theta, horizon_weight=lane[HORIZON_WEIGHT])
    terms: list[Expression] = [theta[0], ("*", theta[1], clamped("logit", -MOST_SCORE_LOGIT, MOST_SCORE_LOGIT))]
    for parameter, z in zip(theta[2:], logits, strict=True):
        terms.append(("*", parameter, clamped(z, -MOST_LANE_LOGIT, MOST_LANE_LOGIT)))
    formula.add("horizon", _squashed(("+", *terms)))


def _squashed(z: Expression) -> Expression:
    return clamped(sigmoid_of(not_below(z, -LARGEST_EXPONENT)), EPS, LARGEST)


def _sum(terms: Iterable[Any]) -> Any:
    """A sum with its rounding errors added back (Knuth's two-sum): as good as math.fsum here, and good for arrays."""
    total = lost = 0.0
    for term in terms:
        after = total + term
        came = after - total
        lost += (total - (after - came)) + (term - came)
        total = after
    return total + lost
