"""Bins of equal mass recomputed with NumPy, and bands that hold for all bins at once on logs that drift."""

from __future__ import annotations

import numpy as np
import pytest

import calibeat
from calibeat.backtest.judge.measures import HALF, curve_of, groups_of, threshold_of
from calibeat.backtest.replay.tally import RANKS, STEPS, rank_of

N, WARM = 6000, 200
RNG = np.random.default_rng(17)
SCORES = RNG.beta(1.0, 6.0, N)
OUTCOMES = (RNG.random(N) < 0.6 * SCORES).astype(float)


@pytest.mark.parametrize("name", ["raw", "ops"])
def test_the_bins_recomputed(name):
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops", warmup=WARM, keep_forecasts=True)
    mass, p, y = result.payload["reliability"]["mass"][name], result.forecasts[name][WARM:], OUTCOMES[WARM:]
    at = np.searchsorted(mass["edge"], p, side="right") - 1
    assert len(mass["edge"]) == 10 and mass["edge"][0] == 0.0
    for k in range(10):
        inside = at == k
        assert mass["count"][k] == inside.sum() == pytest.approx(580, abs=60)
        assert mass["forecast"][k] == pytest.approx(p[inside].mean())
        assert mass["outcome"][k] == pytest.approx(y[inside].mean())
        assert mass["low"][k] < mass["outcome"][k] < mass["high"][k] or mass["outcome"][k] == 0.0


def test_few_values_make_fewer_bins():
    scores = np.repeat([0.1, 0.4, 0.7], 400)
    mass = calibeat.backtest(scores, np.tile([0, 1], 600), methods="raw", warmup=0).payload["reliability"]["mass"]
    assert mass["raw"]["count"] == [400, 400, 400] and mass["raw"]["forecast"] == pytest.approx([0.1, 0.4, 0.7])
    assert groups_of(np.array([3.0, 0.0]), 10).tolist() == [0, 0]


def test_a_threshold_of_ranks_is_exact_everywhere():
    for rank in (1, 2, 257, HALF - 2, HALF - 1, HALF, HALF + 1, RANKS - 300, RANKS - 1):
        t = threshold_of(rank)
        assert rank_of(t, STEPS) >= rank > rank_of(float(np.nextafter(t, 0.0)), STEPS), rank
    assert threshold_of(0) == 0.0


def cells(p, values, y, bins):
    at = np.minimum((p * bins).astype(int), bins - 1)
    return np.column_stack([np.bincount(at, w, minlength=bins) for w in (np.ones(len(p)), values, y)])


@pytest.mark.parametrize("bins", [10, 30])
def test_a_band_holds_for_all_bins_at_once_on_logs_that_drift(bins):
    """400 logs whose chances wander: the mean chance of every bin is inside the band about 95 times in 100."""
    rng = np.random.default_rng(3)
    held = single = 0
    for _ in range(400):
        p = rng.beta(1.5, 4.0, 2000)
        z = np.log(p / (1 - p)) + np.cumsum(rng.normal(0, 0.03, 2000))
        mu = 1 / (1 + np.exp(-z))
        y = (rng.random(2000) < mu).astype(float)
        band = curve_of(cells(p, p, y, bins))
        n, chance, _ = cells(p, mu, y, bins).T
        for k in np.flatnonzero(n >= 5):
            inside = band["low"][k] <= chance[k] / n[k] <= band["high"][k]
            if not inside:
                break
        else:
            held += 1
        at = int(np.argmax(n))
        single += band["low"][at] <= chance[at] / n[at] <= band["high"][at]
    assert 0.94 * 400 <= held < 400 and single >= held


def test_an_empty_bin_has_no_band():
    band = curve_of(np.array([[0.0, 0.0, 0.0], [4.0, 2.0, 4.0]]))
    assert band["low"][0] is None and band["outcome"][0] is None and band["high"][1] == 1.0
