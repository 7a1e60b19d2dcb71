"""Martingale intervals of many classes: the sums of their definition, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from class_logs import softmax

from calibeat.backtest.judge.intervals import BRIER, LOG_LOSS, MODEL, RESID, Intervals


def forecasts(rng, n, K):
    """Raw scores, two other methods, and labels of a truth that is none of them."""
    z = rng.normal(0.0, 1.5, (n, K))
    P = np.array([softmax(z), softmax(0.6 * z), softmax(0.3 * z + 0.1)])
    mu = softmax(0.7 * z)
    y = (rng.random(n)[:, None] > mu.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    return P, y.astype(float), mu


def losses(P, measure):
    """What each method would lose at each label: methods x events x classes."""
    if measure == LOG_LOSS:
        return -np.log(P)
    return (P**2).sum(axis=2, keepdims=True) - 2.0 * P + 1.0


@pytest.mark.parametrize("K", [2, 3, 6])
def test_sums_are_those_of_the_definition(K):
    P, y, _ = forecasts(np.random.default_rng(K), 300, K)
    place = np.where(np.arange(300) < 20, 0, 1)
    place[7] = place[200] = -1
    sums = Intervals(3, numbers=K)
    sums.add(P[:, :90].copy(), y[:90], place[:90])
    sums.add(P[:, 90:].copy(), y[90:], place[90:])
    lead, resid, model = np.zeros(3), np.zeros((2, 3, 3)), np.zeros((2, 3, 3))
    for t in np.flatnonzero(place >= 0):
        r = P[int(lead.argmin()), t]
        if place[t] > 0:
            for m in (LOG_LOSS, BRIER):
                D = losses(P[:, t : t + 1], m)[:, 0]
                D = D - D[0]
                centred = D - (D @ r)[:, None]
                resid[m] += np.outer(centred[:, int(y[t])], centred[:, int(y[t])])
                model[m] += (centred * r) @ centred.T
        lead -= np.log(P[:, t, int(y[t])])
    for m in (LOG_LOSS, BRIER):
        lower = np.tril(np.ones((3, 3), dtype=bool))
        assert np.allclose(sums.sums.products[RESID, m][:, :3][lower], resid[m][lower], rtol=1e-10)
        assert np.allclose(sums.sums.products[MODEL, m][:, :3][lower], model[m][lower], rtol=1e-10)
    judged = place > 0
    mean = losses(P, LOG_LOSS)[:, judged, y[judged].astype(int)].mean(axis=1)
    assert sums.difference(LOG_LOSS, 1)[0] == pytest.approx(mean[1] - mean[0])
    assert sums.events == judged.sum()


def test_two_classes_are_the_binary_intervals():
    P, y, _ = forecasts(np.random.default_rng(0), 500, 2)
    place = np.ones(500, dtype=np.int64)
    many, binary = Intervals(3, runs=10, numbers=2), Intervals(3, runs=10)
    many.add(P, y, place)
    binary.add(np.ascontiguousarray(P[:, :, 1]), y.astype(float), place)
    for method in (1, 2):
        assert np.allclose(many.difference(LOG_LOSS, method), binary.difference(LOG_LOSS, method))
        assert np.allclose(many.difference(BRIER, method), 2.0 * np.array(binary.difference(BRIER, method)))
        assert many.effective(LOG_LOSS, method) == pytest.approx(binary.effective(LOG_LOSS, method))
    assert many.simultaneous(LOG_LOSS) == pytest.approx(binary.simultaneous(LOG_LOSS))


def test_intervals_hold_the_difference_in_expectation():
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        P, y, mu = forecasts(rng, 250, 4)
        sums = Intervals(3, numbers=4)
        sums.add(P, y, np.ones(250, dtype=np.int64))
        expected = (mu * (losses(P, LOG_LOSS)[1] - losses(P, LOG_LOSS)[0])).sum(axis=1).mean()
        _, low, high = sums.difference(LOG_LOSS, 1)
        held += low <= expected <= high
    assert 182 <= held <= 199  # 95 % of 200 is 190


def test_luck_is_the_error_of_perfect_confidences():
    rng, errors, luck = np.random.default_rng(2), [], []
    for _ in range(100):
        _, _, mu = forecasts(rng, 400, 3)
        y = (rng.random(400)[:, None] > mu.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        sums = Intervals(2, numbers=3)
        sums.add(np.array([mu, mu]), y.astype(float), np.ones(400, dtype=np.int64))
        errors.append(np.abs(sums.sums.gaps[0]).sum() / 400)
        luck.append(sums.luck(0))
        assert abs(sums.error_difference(1)[0]) < 1e-15
    assert np.mean(luck) == pytest.approx(np.mean(errors), rel=0.1)


def test_less_error_is_told_beyond_luck_only():
    rng = np.random.default_rng(4)
    P, y, mu = forecasts(rng, 4000, 3)
    sums = Intervals(2, numbers=3)
    sums.add(np.array([softmax(4.0 * np.log(P[0])), mu]), y, np.ones(4000, dtype=np.int64))
    d, low, high = sums.error_difference(1)
    assert low < d < high < 0.0
