"""Decisions recomputed with plain NumPy: actions, costs, what was saved and its interval, net benefit, over time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import calibeat
from calibeat import InvalidInput
from calibeat.backtest.judge.decisions import Deciding
from calibeat.backtest.options import Options
from calibeat.backtest.read.rows import Chunk

N, WARM = 9_500, 300
RNG = np.random.default_rng(21)
SCORES = np.round(RNG.random(N), 3)  # with ties, also at thresholds
OUTCOMES = (RNG.random(N) < SCORES**1.7).astype(float)
FP, FN = 2.0, 6.0
T = 0.25
ops_and_tops = "ops,tops"


@pytest.fixture(scope="module")
def result():
    return calibeat.backtest(
        SCORES, OUTCOMES, methods=ops_and_tops, warmup=WARM, cost_fp=FP, cost_fn=FN, keep_forecasts=True
    )


def cost(p, y):
    return np.where(p >= T, (1 - y) * FP, y * FN)


def leader(P, y):
    """The forecast of the method with the least log-loss before each event, warm-up included."""
    loss = -np.log(np.where(y == 1, np.maximum(P, 1e-5), np.maximum(1 - P, 1e-5)))
    return P[(np.cumsum(loss, axis=1) - loss).argmin(axis=0), np.arange(len(y))]


def test_actions_costs_and_what_was_saved(result):
    told, y = result.payload["decisions"], OUTCOMES[WARM:]
    assert told["costs"] == {"threshold": T, "fp": FP, "fn": FN, "given": True}
    P = np.array([result.forecasts[name] for name in ("raw", "ops", "tops")])
    r = leader(P, OUTCOMES)[WARM:]
    raw = P[0, WARM:]
    for action, p in zip(told["actions"], P[:, WARM:], strict=True):
        acts, before = p >= T, raw >= T
        assert action["actions"] == acts.sum() and action["hits"] == y[acts].sum()
        assert action["for_nothing"] == (1 - y[acts]).sum() and action["missed"] == y[~acts].sum()
        new, dropped = acts & ~before, before & ~acts
        assert (action["new"], action["new_hits"]) == (new.sum(), y[new].sum())
        assert (action["dropped"], action["dropped_hits"]) == (dropped.sum(), y[dropped].sum())
        assert action["cost"] == pytest.approx(cost(p, y).sum())
        assert action["cost_per_1000"] == pytest.approx(1000 * cost(p, y).mean())
        saved = 1000 * (cost(raw, y) - cost(p, y)).mean()
        b = np.where(acts != before, FP + FN, 0.0)
        half = 1.959963984540054 * np.sqrt(max(b**2 @ (y - r) ** 2, b**2 @ (r * (1 - r)))) * 1000 / len(y)
        assert action["saved_per_1000"] == pytest.approx([saved, saved - half, saved + half])
    ours = told["actions"][1 + ["ops", "tops"].index(result.best)]
    assert f"{ours['new']:,} more actions" in told["sentence"] and "That saves" in told["sentence"]


def test_over_time(result):
    path, windows = result.payload["decisions"]["over_time"], result.payload["windows"]
    assert path["by"] == "event" and path["x"] == windows["end"]
    y, raw, ours = OUTCOMES, SCORES, result.forecasts["ops"]
    for end, (saved, low, high) in zip(path["x"], path["methods"]["ops"], strict=True):
        part = slice(WARM, end)
        assert saved == pytest.approx((cost(raw, y) - cost(ours, y))[part].sum(), abs=1e-9)
        assert low <= saved <= high
    final = result.payload["decisions"]["actions"][1]["saved_per_1000"]
    assert np.array(path["methods"]["ops"][-1]) * 1000 / (N - WARM) == pytest.approx(final)


def test_net_benefit_at_every_threshold(result):
    curve, y = result.payload["decisions"]["curve"], OUTCOMES[WARM:]
    t = np.array(curve["threshold"])
    assert len(t) == 99 and np.all(np.diff(t) > 0) and np.abs(t - np.arange(1, 100) / 100).max() < 0.003
    odds = t / (1 - t)
    for name in ("raw", "ops", "tops"):
        acts = result.forecasts[name][WARM:, None] >= t
        benefit = (acts * y[:, None]).mean(axis=0) - (acts * (1 - y)[:, None]).mean(axis=0) * odds
        assert curve["methods"][name] == pytest.approx(benefit)
    assert curve["everyone"] == pytest.approx(y.mean() - (1 - y.mean()) * odds)


def test_chunks_of_any_size_give_the_same_bits():
    """The blocks merge twice on the way, in other chunks at other moments."""
    P, whole = {"raw": SCORES, "half": np.where(np.arange(N) % 2, 0.5, 1.5) * SCORES}, None
    for cuts in ((0, N), (0, 1, 400, *range(401, 461, 3), 4000, 4097, 8300, N)):
        deciding = Deciding(Options(cost_fp=FP, cost_fn=FN).costs)
        for a, b in pairwise(cuts):
            part = slice(a, b)
            place = np.where(np.arange(N) < WARM, 0, 1)[part]
            chunk = Chunk(SCORES[part], OUTCOMES[part], np.zeros(b - a, dtype=np.int64))
            deciding.add(chunk, {name: p[part] for name, p in P.items()}, place, np.full(b - a, 0.4))
        found = deciding.action(1, "half", N - WARM, 1.0, 0), deciding.over_time(["raw", "half"], [0, 500, 1000])
        assert whole is None or found == whole
        whole = found
    judged = np.arange(N) >= WARM
    assert found[0]["dropped"] == np.count_nonzero((SCORES >= T) & (P["half"] < T) & judged)
    assert found[0]["new"] == np.count_nonzero((SCORES < T) & (P["half"] >= T) & judged)


def test_a_threshold_alone_counts_in_missed_events():
    told = calibeat.backtest(SCORES, OUTCOMES, methods="ops", threshold=0.2).payload["decisions"]
    assert told["costs"] == {"threshold": 0.2, "fp": pytest.approx(0.25), "fn": 1.0, "given": False}
    assert "missed events per 1,000" in told["sentence"]
    kept = calibeat.backtest(SCORES, OUTCOMES, methods="raw", threshold=0.2).payload["decisions"]
    assert kept["sentence"] == "Act where the forecast is 20 % or more."
    without = calibeat.backtest(SCORES, OUTCOMES, methods="ops").payload["decisions"]
    assert without["costs"] is None and without["actions"] == [] and without["over_time"] is None


def test_what_may_be_luck_is_said_to_be():
    rng = np.random.default_rng(5)
    scores = rng.random(3000)
    told = calibeat.backtest(scores, (rng.random(3000) < scores) * 1.0, methods="ops", threshold=0.5)
    action = told.payload["decisions"]["actions"][1]
    assert action["saved_per_1000"][1] <= 0.0 <= action["saved_per_1000"][2]


def test_late_outcomes_that_move_together_widen_the_interval():
    """A shock shared by each 100 outcomes, learnt 100 events late: runs vary more than single outcomes."""
    rng = np.random.default_rng(6)
    n = 10_000
    scores = rng.random(n)
    z = np.log(scores / (1 - scores)) + 0.8
    halves = []
    for shock in (0.0, 2.0):
        shared = np.repeat(rng.normal(0, shock, n // 100), 100)
        y = (rng.random(n) < 1 / (1 + np.exp(-(z + shared)))).astype(float)
        found = calibeat.backtest(scores, y, methods="ops", threshold=0.5, delay=100).payload["decisions"]
        _, low, high = found["actions"][1]["saved_per_1000"]
        halves.append((high - low) / 2 / np.sqrt(found["actions"][1]["new"] + found["actions"][1]["dropped"]))
    assert halves[1] > 1.4 * halves[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"threshold": 0.0}, "threshold must be in"),
        ({"threshold": 1.5}, "threshold must be in"),
        ({"cost_fp": 1.0}, "must be set together"),
        ({"cost_fp": -1.0, "cost_fn": 1.0}, "cost_fp must be in"),
        ({"cost_fp": 1.0, "cost_fn": 0.0}, "cost_fn must be in"),
        ({"threshold": 0.5, "cost_fn": 1.0}, "got both"),
    ],
)
def test_bad_costs_are_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        Options(**wrong)
    with pytest.raises(InvalidInput, match=said):
        calibeat.backtest(SCORES, OUTCOMES, **wrong)
