"""The best fixed parameters in hindsight."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import OPS, Beta, Method, Platt, Temperature, metrics
from calibeat.backtest.replay.hindsight import ScoreTally
from calibeat.core.learners import ONS

N = 3000
SCORES, OUTCOMES = drifting(N)
METHODS = ["ops", "tops", "hops"]


@pytest.mark.parametrize("family", [Platt(), Beta(), Temperature()])
def test_regret_is_that_of_metrics(family):
    method = Method(family, ONS())
    result = calibeat.backtest(SCORES, OUTCOMES, methods={"it": method}, warmup=0, keep_forecasts=True)
    exact = metrics.regret(family, SCORES, OUTCOMES, result.forecasts["it"])
    # n (|theta| / 512)^2 / 32, as hindsight promises
    assert 0.0 <= result.table["regret"][1] - exact + 1e-6 < N * (2.0 / 512) ** 2 / 32 + 2e-6
    assert math.isnan(result.table["regret"][0])


def test_parameters_of_separable_scores_stay_on_the_ball():
    scores = ScoreTally()
    f, y = np.array([0.2, 0.8] * 50), np.array([0.0, 1.0] * 50)
    scores.count(f, y, np.ones(100, dtype=np.int64))
    loss, theta = scores.least_loss(OPS)
    assert math.hypot(*theta) <= 100.0 * (1 + 1e-9) and loss < 1e-6
    assert scores.least_loss(OPS, warmup=True) == (loss, theta)
    scores = ScoreTally()  # the same, but nearly equal scores: the way to certainty is longer than the ball allows
    f = np.array([0.4999, 0.5001] * 50)
    scores.count(f, y, np.ones(100, dtype=np.int64))
    assert math.hypot(*scores.least_loss(OPS)[1]) == pytest.approx(100.0)
    assert ScoreTally().least_loss(OPS) is None
    assert scores.least_loss(Method()) is None
