"""Blocks, ranks and e-values of the tallies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import OPS, Beta, Method, Platt, Temperature, metrics
from calibeat.backtest.replay import tally as tally_module
from calibeat.backtest.replay.tally import MOST_BLOCKS, RANKS, STEPS, Blocks, ScoreTally, lost, rank_of
from calibeat.core.calibeating import bin_among, bin_of, edges_of
from calibeat.core.learners import ONS
from calibeat.core.stats import LOSS_FLOOR, log_loss

N = 3000
SCORES, OUTCOMES = drifting(N)


def test_merged_blocks_lose_nothing(monkeypatch):
    """The same log through few blocks and through many: the same sums, and windows that are still consecutive."""
    whole = calibeat.backtest(SCORES, OUTCOMES, methods="ops", warmup=7)
    monkeypatch.setattr(tally_module, "MOST_BLOCKS", 16)
    merged = calibeat.backtest(SCORES, OUTCOMES, methods="ops", warmup=7)
    for column in ("log_loss", "brier", "ce", "shp", "auc", "regret", "log_e_value", "log_e_max"):
        np.testing.assert_allclose(merged.table[column], whole.table[column], rtol=1e-12)
    windows = merged.windows
    np.testing.assert_array_equal(windows["start"][1:], windows["end"][:-1] + 1)
    assert len(windows["start"]) <= 16


def test_times_of_blocks_survive_merging():
    blocks = Blocks(0)
    times = np.arange(3 * MOST_BLOCKS + 5) * 10
    for part in np.array_split(times, 7):
        blocks.place(np.ones(len(part), dtype=bool), part, [])
    assert blocks.length == 4 and blocks.judged == len(times)
    begins = times[::4]
    np.testing.assert_array_equal(blocks.begin[: blocks.used], begins)
    np.testing.assert_array_equal(blocks.end[: blocks.used], np.append(begins[1:] - 10, times[-1]))


def test_ranks_rise_with_the_forecast():
    p = np.r_[0.0, 5e-324, np.logspace(-8, np.log10(0.5), 4000), 1 - np.logspace(np.log10(0.5), -8, 4000), 1.0]
    ranks = [rank_of(float(value), STEPS) for value in p]
    assert ranks == sorted(ranks) and ranks[0] == 0 and ranks[-1] == RANKS - 1
    middle = [rank_of(float(value), STEPS) for value in np.arange(1000) / 1000]
    assert len(set(middle)) == 1000


def test_the_e_value_is_no_winning_bet_against_a_score_that_is_right():
    """Whatever is forecast, also 0, 1 and beyond the clip: in the mean the ratio of an event is at most one."""
    from calibeat.backtest.replay.tally import Counted, TallySums, tally

    for truth in (0.0, 1e-7, 1e-5, 0.3, 1 - 1e-6, 1.0):
        for p in (0.0, 1e-6, 0.2, 1 - 1e-7, 1.0):
            mean = 0.0
            for y, chance in ((1.0, truth), (0.0, 1.0 - truth)):
                raw_loss = np.array([log_loss(truth, y)])
                running, place = np.zeros(3), np.array([1])
                events = Counted.of(np.array([p]), np.array([y]), place, raw_loss)
                sums = TallySums(np.zeros(6), np.zeros(8), np.zeros(3 * RANKS), running)
                tally(1, events, LOSS_FLOOR, edges_of(1), sums)
                mean += chance * math.exp(running[0])
            assert mean <= 1.0 + 1e-12, (truth, p)


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


def test_losses_are_those_of_the_library_to_the_last_place():
    rng = np.random.default_rng(0)
    p = np.r_[rng.random(2000), 1 - 10 ** rng.uniform(-9, 0, 2000), 10 ** rng.uniform(-9, 0, 2000), 0.0, 0.5, 1.0]
    for y in (0.0, 1.0):
        found = lost(p, np.full(len(p), y), np.zeros(len(p), dtype=np.int64))
        came, other = np.maximum(LOSS_FLOOR, [p, 1 - p] if y else [1 - p, p])
        exact = np.array([-math.log(x) for x in came])
        assert (np.abs(found.loss - exact) <= np.spacing(exact)).all()
        slopes = (2 * y - 1) * (np.log(other) - np.log(came))
        assert np.allclose(found.slope, slopes, rtol=1e-14, atol=1e-14)


def test_bins_by_their_edges_are_those_by_division():
    for m in (1, 3, 7, 10, 49, 100):
        edges = edges_of(m)
        for p in {0.0, 1.0, *(x for k in range(m + 1) for x in np.nextafter(k / m, [0.0, k / m, 1.0]).tolist())}:
            assert bin_among(edges, p) == bin_of(p, float(m))


@pytest.mark.parametrize("keys", [None, np.arange(4000) % 3])
def test_a_method_has_the_same_bits_beside_its_expert_and_alone(keys):
    scores, outcomes = np.random.default_rng(3).random((2, 4000))
    outcomes = np.where(outcomes < 0.02, np.nan, outcomes < scores**2)
    together = calibeat.backtest(scores, outcomes, keys=keys, methods="ops, tops, hops", keep_forecasts=True)
    for name in ("tops", "hops"):
        alone = calibeat.backtest(scores, outcomes, keys=keys, methods=name, keep_forecasts=True)
        assert np.array_equal(together.forecasts[name], alone.forecasts[name])
        mine, other = (each.payload["trajectories"]["methods"].get(name) for each in (together, alone))
        assert mine == other
