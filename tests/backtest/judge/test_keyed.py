"""The sentence on keys: which kind is best, and whether that is settled."""

from __future__ import annotations

import re

import numpy as np

import calibeat
from calibeat import metrics

N = 3000
RNG = np.random.default_rng(0)
SCORES = RNG.random(N)
KEYS = RNG.integers(0, 60, N)


def sentence(keys, outcomes):
    result = calibeat.backtest(SCORES, outcomes, keys, methods="auto", warmup=500, keep_forecasts=True)
    return result, next(s for s in result.payload["verdict"]["sentences"] if "without keys" in s and "Log-loss of" in s)


def test_keys_that_say_nothing_are_not_worth_it():
    outcomes = RNG.random(N) < 0.3 + 0.4 * SCORES
    result, said = sentence(KEYS, outcomes)
    assert "Best is AUTO without keys" in said
    shown = [float(number) for number in re.findall(r"0\.\d+", said)]
    names = ("auto", "AUTO with a pooled start", "AUTO without keys")
    losses = [metrics.log_loss(outcomes[500:], result.forecasts[name][500:]) for name in names]
    np.testing.assert_allclose(shown, losses, atol=1e-4)


def test_keys_that_differ_are_worth_it():
    outcomes = RNG.random(N) < np.where(KEYS % 2 == 0, 0.9, 0.1)
    _, said = sentence(KEYS % 4, outcomes)
    assert said.endswith("beyond the 95 % interval.") or "not to be told apart from" in said
    assert "Best is AUTO with" in said and "Best is AUTO without" not in said
