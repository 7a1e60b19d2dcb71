"""Intervals that hold the truth as often as they say, also where events depend on their neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting
from tallies import tallied

import calibeat
from calibeat.backtest.judge.intervals import stretch, student

N = 1200
SCORES, OUTCOMES = drifting(N)


def test_intervals_hold_the_difference_and_are_the_same_every_time():
    rng = np.random.default_rng(0)
    raw = rng.exponential(1.0, 900)
    boot, again = (tallied(raw=raw, it=raw - 0.1 + rng.normal(0, 1e-9, 900)) for _ in range(2))
    d, low, high = boot.difference("it", "raw", "log_loss")
    assert d == pytest.approx(-0.1) and low <= d <= high < 0
    assert boot.difference("raw", "it", "log_loss")[0] == -d
    assert again.difference("it", "raw", "ce")[1:] == pytest.approx(boot.difference("it", "raw", "ce")[1:], abs=1e-6)
    assert boot.run == 30 and boot.eighths("it", "raw") == pytest.approx([-0.1] * 8)
    assert tallied(raw=raw[:7], it=raw[:7] - 0.1).eighths("it", "raw") == []


def test_intervals_are_wider_where_events_depend_on_their_neighbours():
    """And the naive interval lies: the mean of a slow wave, taken for independent, is far too sure."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 1, 2500)
    wave = np.repeat(rng.normal(0, 1, 50), 50)
    _, low, high = tallied(raw=np.full(2500, 9.0), it=9.0 + wave).difference("it", "raw", "log_loss")
    naive = 2 * 1.96 * wave.std() / 50
    assert high - low > 2.5 * naive
    _, low, high = tallied(raw=np.full(2500, 9.0), it=9.0 + noise).difference("it", "raw", "log_loss")
    assert high - low == pytest.approx(2 * 1.96 * noise.std() / 50, rel=0.3)


def test_intervals_cover_as_often_as_they_say():
    """Independent events, a known difference of zero: about 95 % of the intervals hold it."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        it = 9.0 + rng.normal(0, 1, 400)
        _, low, high = tallied(raw=np.full(400, 9.0), it=it).difference("it", "raw", "log_loss")
        covered += low <= 0 <= high
    assert covered >= 51


def wave(rng, n, rho):
    """An autoregression of first order with a variance of one."""
    z, now = np.empty(n), rng.normal()
    for i, step in enumerate(rng.normal(size=n) * math.sqrt(1 - rho * rho)):
        now = rho * now + step
        z[i] = now
    return z


def test_intervals_cover_where_dependence_outlives_a_run():
    """Runs of 32 events, dependence over 200: without the stretch the interval holds the truth in 56 % of logs."""
    rng = np.random.default_rng(4)
    covered = told = 0
    for _ in range(60):
        boot = tallied(raw=np.full(1000, 9.0), it=9.0 + wave(rng, 1000, 0.99) + rng.normal(size=1000))
        _, low, high = boot.difference("it", "raw", "log_loss")
        covered += low <= 0 <= high
        told += boot.outlived("it", "raw")
    assert covered >= 49 and told >= 54


def test_independent_events_keep_their_interval():
    rng = np.random.default_rng(5)
    factors = [stretch(rng.normal(size=2500), 50) for _ in range(60)]
    assert np.median([factor for factor, _ in factors]) < 1.15
    assert sum(told for _, told in factors) <= 18
    assert stretch(np.ones(2500), 50) == (1.0, False) and stretch(rng.normal(size=7), 1) == (1.0, False)
    assert stretch(np.tile([1.0, -1.0], 500), 10) == (1.0, False)
    same_in_each_run = rng.permuted(np.tile([1.0, -1.0], (100, 5)), axis=1).ravel()
    assert stretch(same_in_each_run, 10)[0] >= 1.0
    assert stretch(np.r_[np.zeros(990), np.ones(10)], 10)[0] >= 1.0


def test_students_quantiles():
    """Against the printed tables."""
    for freedom, expected in ((0.5, 12.706), (1, 12.706), (5, 2.571), (10, 2.228), (20, 2.086), (120, 1.980)):
        assert student(freedom) == pytest.approx(expected, abs=3e-3)


def test_the_bootstrap_says_what_it_cannot_know():
    sentence = calibeat.backtest(SCORES, OUTCOMES, methods="ops").payload["bootstrap"]["sentence"]
    assert "elsewhere" in sentence and "stretched" in sentence and "as long as the log" in sentence


def test_no_interval_leaves_the_possible_range():
    """Neither loss is below zero: a difference is not below what the other lost, nor above what this one lost."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        raw = np.repeat(rng.exponential(1.0, 9) ** 3, 100)
        boot = tallied(raw=raw, it=0.1 * raw)
        d, low, high = boot.difference("it", "raw", "log_loss")
        assert -boot.measured("raw", "log_loss") <= low <= d <= high <= boot.measured("it", "log_loss")
        back = boot.difference("raw", "it", "log_loss")
        assert back[0] == -d and -boot.measured("it", "log_loss") <= back[1] <= back[2] <= boot.measured(
            "raw", "log_loss"
        )


def test_the_check_of_a_drifting_log_stays_in_range():
    rng = np.random.default_rng(3)
    scores = rng.random(4000)
    outcomes = rng.random(4000) < np.where(np.arange(4000) < 2000, scores, 1.0 - scores)
    table = calibeat.backtest(scores, outcomes, methods="auto,ops,tops").table
    assert np.all(table["elsewhere_low"][1:] >= -table["log_loss"][0] - 1e-12)
    assert np.all(table["elsewhere_high"][1:] <= table["log_loss"][1:] + 1e-12)
