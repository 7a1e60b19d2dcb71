"""The leaderboard's numbers, recomputed with plain NumPy from the forecasts of the same backtest."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat.backtest.judge.verdict import Counting
from calibeat.backtest.read.rows import FIRST_EVENTS, Chunk
from calibeat.backtest.replay.late import typical_delay

N, WARM_UP, BINS = 1500, 75, 10
SCORES, OUTCOMES = drifting(N)
METHODS = ["auto", "ops", "tops", "fps"]
Z = 1.959963984540054


@pytest.fixture(scope="module")
def result():
    return calibeat.backtest(SCORES, OUTCOMES, methods=METHODS, keep_forecasts=True)


def contrasts(forecasts, y, measure):
    """Losses, and by how much more each forecast loses if the outcome is 1."""
    p = np.array(list(forecasts.values()))
    if measure == "brier":
        return (y - p) ** 2, (1 - p) ** 2 - p**2
    one, zero = -np.log(np.maximum(p, 1e-5)), -np.log(np.maximum(1 - p, 1e-5))
    return np.where(y == 1, one, zero), one - zero


def leader(forecasts, y):
    """The forecast of the method with the least log-loss before each event, warm-up included."""
    losses, _ = contrasts(forecasts, y, "log_loss")
    before = np.cumsum(losses, axis=1) - losses
    return np.array(list(forecasts.values()))[before.argmin(axis=0), np.arange(len(y))]


@pytest.mark.parametrize("measure", ["log_loss", "brier"])
def test_intervals_of_the_table_by_numpy(result, measure):
    y = np.asarray(OUTCOMES, dtype=float)
    losses, slopes = contrasts(result.forecasts, y, measure)
    r = leader(result.forecasts, y)
    names = list(result.forecasts)
    n = N - WARM_UP
    judged = slice(WARM_UP, None)

    def interval(j, i):
        b = (slopes[j] - slopes[i])[judged]
        v = max(np.sum((b * (y - r)[judged]) ** 2), np.sum(b**2 * (r * (1 - r))[judged]))
        d = np.mean((losses[j] - losses[i])[judged])
        return d, d - Z * np.sqrt(v) / n, d + Z * np.sqrt(v) / n

    table = result.table
    assert names == table["method"].tolist() == ["raw", *METHODS]
    for j, name in enumerate(names):
        if j:
            found = [table[f"{measure}_{end}"][j] for end in ("vs_raw", "low", "high")]
            assert found == pytest.approx(interval(j, 0), rel=1e-9, abs=1e-12), name
        other = names.index(table["best_other"][j])
        assert (
            table["best_other"][j]
            == names[min((k for k in range(len(names)) if k != j), key=lambda k: table["log_loss"][k])]
        )
        ends = ("vs_best_other", "vs_best_other_low", "vs_best_other_high")
        found = [table[f"{measure}_{end}"][j] for end in ends]
        assert found == pytest.approx(interval(j, other), rel=1e-9, abs=1e-12), name


def test_the_luck_floor_by_numpy(result):
    y = np.asarray(OUTCOMES, dtype=float)
    r = leader(result.forecasts, y)[WARM_UP:]
    for at, p in enumerate(result.forecasts.values()):
        cell = np.minimum((p[WARM_UP:] * BINS).astype(int), BINS - 1)
        resid = np.bincount(cell, (y[WARM_UP:] - r) ** 2, BINS)
        model = np.bincount(cell, r * (1 - r), BINS)
        luck = np.sqrt(2 / np.pi) * np.sqrt(np.maximum(resid, model)).sum() / (N - WARM_UP)
        assert result.table["ce_luck"][at] == pytest.approx(luck, rel=1e-9)


def test_the_quantile_of_the_best_by_numpy(result):
    """Draws from the correlations of the contrasts: the 97.5 % quantile of the largest of four."""
    y = np.asarray(OUTCOMES, dtype=float)
    _, slopes = contrasts(result.forecasts, y, "log_loss")
    b = ((slopes[1:] - slopes[0]) * (y - leader(result.forecasts, y)))[:, WARM_UP:]
    spread = np.sqrt((b**2).sum(axis=1))
    draws = np.random.default_rng(5).multivariate_normal(np.zeros(4), b @ b.T / np.outer(spread, spread), 200_000)
    expected = np.quantile(draws.max(axis=1), 0.975)
    assert result.payload["intervals"]["quantile_of_best"] == pytest.approx(expected, abs=0.1)


def test_calibration_errors_have_an_envelope_against_raw_and_no_interval_in_the_table(result):
    table = result.table
    for row in result.payload["table"][1:]:
        difference, low, high = row["vs_raw"]["ce"]
        assert low <= difference <= high
    assert table["ce_vs_raw"][1:] == pytest.approx(table["ce"][1:] - table["ce"][0])
    assert np.all(np.isfinite(table["ce_vs_best_other"]))
    assert [name for name in table if name.startswith("ce")] == ["ce", "ce_luck", "ce_vs_raw", "ce_vs_best_other"]


def test_the_eighths_and_elsewhere_are_in_the_payload(result):
    row = next(row for row in result.payload["table"] if row["method"] == "auto")["elsewhere"]
    losses, _ = contrasts(result.forecasts, np.asarray(OUTCOMES, dtype=float), "log_loss")
    parts = np.array_split((losses[1] - losses[0])[WARM_UP:], 8)
    assert row["eighths"] == pytest.approx([part.mean() for part in parts], rel=1e-9)
    assert row["low"] < row["high"] and isinstance(row["outlived"], bool)
    assert result.payload["table"][0]["elsewhere"] is None


def test_however_the_log_is_cut_the_sums_are_the_same():
    rng = np.random.default_rng(0)
    p = {"raw": rng.random(900), "ops": rng.random(900)}
    y, slots = (rng.random(900) < 0.5).astype(float), np.zeros(900, dtype=np.int64)
    whole, cut = Counting(10), Counting(10)
    whole.add(Chunk(p["raw"], y, slots), p, np.ones(900, dtype=np.int64))
    for part in (slice(0, 100), slice(100, 101), slice(101, 900)):
        chunk = Chunk(p["raw"][part], y[part], slots[part])
        cut.add(chunk, {name: values[part] for name, values in p.items()}, np.ones(len(chunk), dtype=np.int64))
    assert np.array_equal(whole.sums.sums.products, cut.sums.sums.products) and whole.sums.events == 900


def late(n, delay):
    clock = np.arange(n)
    return Chunk(np.full(n, 0.5), np.zeros(n), np.zeros(n, dtype=np.int64), clock, clock + delay)


def test_runs_are_as_long_as_the_median_delay():
    assert typical_delay(late(500, 0)) == 1 and typical_delay(late(500, 40)) == 40
    assert typical_delay(late(100, 1000)) == 50  # what arrives after the end counts up to there
    assert typical_delay(late(3 * FIRST_EVENTS, 70)) == typical_delay(late(FIRST_EVENTS, 70)) == 70
    at_once = Chunk(np.full(5, 0.5), np.zeros(5), np.zeros(5, dtype=np.int64))
    assert typical_delay(at_once) == 0
    silent = late(5, 3)
    assert typical_delay(Chunk(silent.scores, np.full(5, np.nan), silent.slots, silent.clock, silent.arrivals)) == 0


def test_outcomes_that_move_together_are_allowed_for():
    """All events of a day share a shock, and outcomes come a day later: the interval is wider, and says so."""
    rng = np.random.default_rng(4)
    day, days = 50, 60
    shock = np.repeat(rng.normal(0.0, 1.5, days), day)
    scores = rng.random(day * days) * 0.6 + 0.2
    outcomes = rng.random(day * days) < 1 / (1 + np.exp(-(np.log(scores / (1 - scores)) + shock)))
    told = calibeat.backtest(scores, outcomes, methods="auto", delay=day)
    assert told.payload["intervals"]["run_events"] == day + 1  # so many forecasts later it is learnt
    assert any("moved together; the interval allows for it" in s for s in told.payload["verdict"]["sentences"])
    at_once = calibeat.backtest(scores, outcomes, methods="auto")
    assert at_once.payload["intervals"]["run_events"] == 0
    assert not any("moved together" in s for s in at_once.payload["verdict"]["sentences"])
