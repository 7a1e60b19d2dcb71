"""Every method on every host gives the same bits.

The hosts: a calibrator, a key of a bank, a batch of a bank, a fold, a backtest, river and scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from river import base
from streams import drifting, variants

import calibeat
from calibeat import Bank, Calibrator, Method
from calibeat.river import OnlineCalibrated
from calibeat.sklearn import ScoreCalibrator

N = 160
SCORES, OUTCOMES = (column[:N] for column in drifting(400))
METHODS = variants()
IN_A_ROW = {name: method for name, method in METHODS.items() if not method.needs_history}


class Told(base.Classifier):
    """A model that says the score that it is given."""

    def learn_one(self, x: Any, y: Any) -> None:
        """There is nothing to learn."""

    def predict_proba_one(self, x: Any) -> dict[bool, float]:
        return {True: x["score"], False: 1.0 - x["score"]}


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def method(request: pytest.FixtureRequest) -> Method:
    return request.param


@pytest.fixture(params=IN_A_ROW.values(), ids=IN_A_ROW.keys())
def row_method(request: pytest.FixtureRequest) -> Method:
    return request.param


def alone(method: Method, stream: int | str = 0) -> tuple[Any, Any]:
    calibrator = Calibrator(method, seed=3, stream=stream)
    return calibrator.run(SCORES, OUTCOMES), calibrator.row


def test_banks(row_method: Method) -> None:
    forecasts, row = alone(row_method, "a")
    keys = np.where(np.arange(2 * N) % 2, "a", "b")
    bank, member, folded = (Bank(row_method, seed=3) for _ in range(3))
    both = bank.run(keys, np.repeat(SCORES, 2), np.repeat(OUTCOMES, 2))
    np.testing.assert_array_equal(both[keys == "a"], forecasts)
    np.testing.assert_array_equal(bank["a"].row, row)
    half = N // 2
    member.run(["a"] * half, SCORES[:half], OUTCOMES[:half])
    np.testing.assert_array_equal(member["a"].run(SCORES[half:], OUTCOMES[half:]), forecasts[half:])
    np.testing.assert_array_equal(member["a"].row, row)
    for i in range(30):
        asked = folded.fold(["a"], SCORES[i : i + 1], [np.nan])
        assert asked.forecasts[0] == forecasts[i]
        folded.fold(["a"], [np.nan], OUTCOMES[i : i + 1], asked.receipts)


def test_a_backtest(method: Method) -> None:
    forecasts, _ = alone(method)
    result = calibeat.backtest(SCORES, OUTCOMES, methods={"m": method}, warmup=0, seed=3, keep_forecasts=True)
    name = "m" if "m" in result.forecasts else "raw"  # the score as it is has this name everywhere
    np.testing.assert_array_equal(result.forecasts[name], forecasts)


def test_river(method: Method) -> None:
    forecasts, row = alone(method)
    model = OnlineCalibrated(Told(), method=method, seed=3)
    for score, outcome, forecast in zip(SCORES.tolist(), OUTCOMES.tolist(), forecasts.tolist(), strict=True):
        assert model.predict_proba_one({"score": score})[True] == forecast
        model.learn_one({"score": score}, bool(outcome))
    np.testing.assert_array_equal(model.calibrator.row, row)


def test_scikit_learn(method: Method) -> None:
    _, row = alone(method)
    fitted = ScoreCalibrator(method, order="time", delay=0, random_state=3).fit(SCORES, OUTCOMES)
    np.testing.assert_array_equal(fitted.calibrator_.row, row)
