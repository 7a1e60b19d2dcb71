"""The kernels of many classes, run as Python: the same bits as compiled."""

from __future__ import annotations

import numpy as np
import pytest
from class_logs import stream

from calibeat.backtest.judge.classes import count_classes
from calibeat.backtest.replay.manyclass import MOST_SLOPE, replay_temperature, tally_classes
from calibeat.core.subset import plain

K = 3


def both(function, make):
    """The arrays that a kernel was given, after it ran as Python and compiled."""
    slow, fast = make(), make()
    plain(function)(*slow)
    function(*fast)
    return [(a, b) for a, b in zip(slow, fast, strict=True) if isinstance(a, np.ndarray)]


def same(function, make):
    return all(np.array_equal(a, b) for a, b in both(function, make))


def temperatures_of(P, y):
    due, order = np.arange(130) + 4, np.arange(0, 126)

    def make():
        return [
            K,
            np.array([1.0, 0.0]),
            np.zeros(40 * K),
            np.zeros(40, dtype=np.int64),
            30,
            50,
            P.reshape(-1).copy(),
            y.copy(),
            np.zeros(130 * K),
            0,
            due,
            order,
            np.zeros(2 * K),
        ]  # fmt: skip - arguments as they are named in the kernel

    assert same(replay_temperature, make)
    return both(replay_temperature, make)[0][0][0]


def test_temperatures():
    assert temperatures_of(*stream(130)) != 1.0


def test_a_fit_without_a_slope_halves_its_bracket():
    _, y = stream(130)
    assert temperatures_of(np.full((130, K), 1 / K), y) == pytest.approx(MOST_SLOPE, abs=1e-8)


def test_tallies():
    P, y = stream(40)
    place = np.where(np.arange(40) < 5, 0, 1)
    place[9] = -1
    Q = P.copy()
    Q[20, y[20]] = 1e-12

    def make():
        return [
            K,
            Q.reshape(-1).copy(),
            y.copy(),
            place,
            P.reshape(-1).copy(),
            10,
            np.zeros(2 * 10 * 3),
            np.zeros(8),
            np.zeros(K * 10 * 3),
            np.zeros(3),
        ]  # fmt: skip - as above

    assert same(tally_classes, make)


def test_intervals():
    P, y = stream(60)
    place = np.where(np.arange(60) < 5, 0, 1)
    place[9] = -1
    both_methods = np.array([P, 0.5 * P + 0.5 / K])

    def make():
        return [
            K,
            both_methods.copy(),
            y.copy(),
            place,
            1e-7,
            10,
            7,
            np.zeros(2),
            np.zeros((2, 2)),
            np.zeros((2, 2, 2, 2)),
            np.zeros((2, 2)),
            np.zeros((2, 10)),
            np.zeros((2, 2, 10, 10)),
            np.zeros((2, 2, 10)),
            np.zeros((2, 2)),
            np.zeros((2, 2, 2)),
            np.zeros(2),
            np.zeros((2, 2, K)),
            np.zeros((2, 2)),
            np.zeros(2),
            np.zeros(2, dtype=np.int64),
        ]  # fmt: skip - as above

    assert same(count_classes, make)
