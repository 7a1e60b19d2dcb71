"""Keys on which the forecasts are off, recomputed with NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import norm

import calibeat
from calibeat import metrics

N = 6000
RNG = np.random.default_rng(13)
SCORES = RNG.random(N)
KEYS = np.array([f"k{i}" for i in RNG.integers(0, 12, N)])
KEYS[-5:] = "rare"
CHANCE = np.where(KEYS == "k3", 0.5 * SCORES, SCORES)
OUTCOMES = (RNG.random(N) < CHANCE).astype(float)


def test_the_keys_that_differ_most():
    result = calibeat.backtest(SCORES, OUTCOMES, keys=KEYS, methods="raw", warmup=0)
    found = result.payload["keys"]["differ"]
    assert found["method"] == "raw" and found["tested"] == 12 and found["beyond"] == 1
    z = norm.ppf(1 - 0.025 / 12)
    score = {}
    for key in np.unique(KEYS):
        inside = key == KEYS
        e = OUTCOMES[inside] - SCORES[inside]
        if inside.sum() >= 30:
            score[key] = abs(e.sum()) / np.sqrt(e @ e)
    assert [row["key"] for row in found["rows"]] == sorted(score, key=lambda key: -score[key])[:10]
    first = found["rows"][0]
    inside = KEYS == "k3"
    e = OUTCOMES[inside] - SCORES[inside]
    half = z * np.sqrt(e @ e) / inside.sum()
    assert first["key"] == "k3" and first["events"] == inside.sum()
    assert first["forecast"] == pytest.approx(SCORES[inside].mean())
    assert first["outcome"] == pytest.approx(OUTCOMES[inside].mean())
    assert first["gap"] == pytest.approx([e.mean(), e.mean() - half, e.mean() + half])
    assert first["gap"][2] < 0.0


def test_one_key_has_nobody_to_differ_from():
    alone = calibeat.backtest(SCORES, OUTCOMES, keys=np.repeat("a", N), methods="ops")
    assert alone.payload["keys"]["differ"] is None


FEWER = 3000
OTHER_RNG = np.random.default_rng(0)
OTHER_SCORES = OTHER_RNG.random(FEWER)
OTHER_KEYS = OTHER_RNG.integers(0, 60, FEWER)


def sentence(keys, outcomes):
    result = calibeat.backtest(OTHER_SCORES, outcomes, keys, methods="auto", warmup=500, keep_forecasts=True)
    return result, next(s for s in result.payload["verdict"]["sentences"] if "without keys" in s and "Log-loss of" in s)


def test_keys_that_say_nothing_are_not_worth_it():
    outcomes = OTHER_RNG.random(FEWER) < 0.3 + 0.4 * OTHER_SCORES
    result, said = sentence(OTHER_KEYS, outcomes)
    assert "Best is AUTO without keys" in said
    shown = [float(number) for number in re.findall(r"0\.\d+", said)]
    names = ("auto", "AUTO with a pooled start", "AUTO without keys")
    losses = [metrics.log_loss(outcomes[500:], result.forecasts[name][500:]) for name in names]
    np.testing.assert_allclose(shown, losses, atol=1e-4)


def test_keys_that_differ_are_worth_it():
    outcomes = OTHER_RNG.random(FEWER) < np.where(OTHER_KEYS % 2 == 0, 0.9, 0.1)
    _, said = sentence(OTHER_KEYS % 4, outcomes)
    assert said.endswith("beyond the 95 % interval.") or "not to be told apart from AUTO with" in said
    assert "Best is AUTO with" in said and "Best is AUTO without" not in said
