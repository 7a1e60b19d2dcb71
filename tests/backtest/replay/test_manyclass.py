"""The replay of many classes: the bits of `MultiCalibrator`, in chunks of any size, with labels at any time."""

from __future__ import annotations

import numpy as np
import pytest
from class_logs import softmax, stream

import calibeat
from calibeat import MultiCalibrator, bounds, metrics
from calibeat.backtest.replay import manyclass
from calibeat.backtest.replay.manyclass import MOST_SLOPE, MOST_STRETCHES, Stretches, fit_slope

MEASURES = ("log_loss", "brier", "ce", "classwise_ce")


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
def test_the_same_bits_as_a_calibrator(K, method):
    P, y = stream(600, K)
    result = calibeat.backtest(P, y, methods=[method], keep_forecasts=True)
    assert np.array_equal(result.forecasts[method], MultiCalibrator(K, method).run(P, y))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("part", [50, 10**6])
def test_late_labels_have_the_same_bits_however_the_log_is_cut(monkeypatch, K, part):
    monkeypatch.setattr(manyclass, "NUMBERS_IN_PART", part)
    monkeypatch.setattr(manyclass, "LEAST_IN_PART", 1)
    P, y = stream(500, K)
    result = calibeat.backtest(P, y, delay=30, keep_forecasts=True, warmup=50)
    for method in ("ots", "multi"):
        due = np.arange(500) + 31
        expected = MultiCalibrator(K, method).run(P, y, due=due)
        assert np.array_equal(result.forecasts[method], expected)
    assert result.payload["delay"]["events_quantiles"]["50%"] == 30.0
    assert set(result.payload["delay"]["immediate"]) == set(result.forecasts)


def test_a_log_in_parts_is_the_log_in_one(monkeypatch):
    P, y = stream(900)
    whole = calibeat.backtest(P, y, keep_forecasts=True)
    monkeypatch.setattr(manyclass, "NUMBERS_IN_PART", 300)
    monkeypatch.setattr(manyclass, "LEAST_IN_PART", 1)
    cut = calibeat.backtest(P, y, keep_forecasts=True)
    for method, forecasts in whole.forecasts.items():
        assert np.array_equal(forecasts, cut.forecasts[method])
    one, other = whole.payload["classes"]["priors"], cut.payload["classes"]["priors"]
    assert one["x"] == other["x"] and one["happened"] == other["happened"]
    assert np.allclose(one["times"], other["times"], rtol=1e-12)
    assert np.allclose(one["forecasts"]["multi"], other["forecasts"]["multi"], rtol=1e-12)
    for name in MEASURES:
        assert np.allclose(whole.table[name], cut.table[name], rtol=1e-12)


def test_measures_are_those_of_metrics():
    P, y = stream(2000, 4)
    result = calibeat.backtest(P, y, warmup=300, keep_forecasts=True)
    for at, (method, forecasts) in enumerate(result.forecasts.items()):
        Q, t = forecasts[300:], y[300:]
        assert result.table["log_loss"][at] == pytest.approx(metrics.log_loss(t, Q, clip=1e-7), rel=1e-12)
        assert result.table["brier"][at] == pytest.approx(metrics.brier_score(t, Q), rel=1e-12)
        assert result.table["ce"][at] == pytest.approx(metrics.top_label_calibration_error(t, Q), abs=1e-12)
        assert result.table["classwise_ce"][at] == pytest.approx(metrics.classwise_calibration_error(t, Q), abs=1e-12)
        assert result.table["accuracy"][at] == pytest.approx(np.mean(Q.argmax(axis=1) == t))
        assert method in result.table["method"]


def test_events_without_a_label_are_forecast_and_not_learnt():
    P, y = stream(400)
    labels = [None if i % 3 == 0 else int(label) for i, label in enumerate(y)]
    moments = np.arange(400, dtype=float)
    arrivals = [None if label is None else float(i) for i, label in enumerate(labels)]
    result = calibeat.backtest(P, labels, times=moments, outcome_times=arrivals, keep_forecasts=True)
    at_once = calibeat.backtest(P, labels, keep_forecasts=True)
    assert np.array_equal(at_once.forecasts["multi"], result.forecasts["multi"])
    assert "134 events have no outcome" in " ".join(at_once.payload["data"]["notes"])
    cal = MultiCalibrator(3)
    for i, label in enumerate(labels):
        forecast = cal.predict(P[i])
        assert np.array_equal(forecast.probabilities, result.forecasts["multi"][i])
        if label is not None:
            cal.update(forecast, label)
    assert result.payload["delay"]["never"] == 134


# ---- temperatures ------------------------------------------------------------------------------------------------


def by_grid(P, y):
    x = np.log(np.maximum(P, 1e-7))
    grid = np.linspace(0.0, 3.0, 3001)
    return grid[int(np.argmin([-np.log(softmax(a * x)[np.arange(len(y)), y]).mean() for a in grid]))]


def test_a_fit_has_the_least_log_loss():
    P, y = stream(1000, 4)
    x = np.log(np.maximum(P, 1e-7)).reshape(-1)
    for start in (1.0, 0.01, 90.0):
        found = fit_slope(4, x, y, 1000, start, np.empty(4))
        assert found == pytest.approx(by_grid(P, y), abs=2e-3)


def test_a_fit_ends_where_every_label_is_the_top_class_and_where_none_is():
    P, _ = stream(200, 3)
    x = np.log(np.maximum(P, 1e-7)).reshape(-1)
    right, wrong = P.argmax(axis=1), P.argmin(axis=1)
    assert 20.0 < fit_slope(3, x, right, 200, 1.0, np.empty(3)) <= MOST_SLOPE
    assert 0.0 <= fit_slope(3, x, wrong, 200, 1.0, np.empty(3)) < 1e-6


def test_fixed_and_sliding_temperatures_are_fitted_when_they_say():
    P, y = stream(2600, 3)
    result = calibeat.backtest(P, y, methods="fts,swts", keep_forecasts=True)
    fixed, sliding = result.forecasts["fts"], result.forecasts["swts"]
    x = np.log(np.maximum(P, 1e-7))

    def slope(forecasts, i):
        ratios = np.log(forecasts[i])
        return (ratios[0] - ratios[1]) / (x[i, 0] - x[i, 1])

    assert slope(fixed, 999) == pytest.approx(1.0) and slope(sliding, 999) == pytest.approx(1.0)
    assert slope(fixed, 1000) == slope(sliding, 1000) == pytest.approx(by_grid(P[:1000], y[:1000]), abs=2e-3)
    assert slope(fixed, 2599) == pytest.approx(slope(fixed, 1000))
    assert slope(sliding, 2500) == pytest.approx(by_grid(P[500:2500], y[500:2500]), abs=2e-3)


# ---- stretches ---------------------------------------------------------------------------------------------------


def test_stretches_hold_every_event_however_they_come():
    rng = np.random.default_rng(0)
    values = rng.random((MOST_STRETCHES * 4 + 77, 2))
    stretches, at = Stretches(1, 2), 0
    for size in (1, 5, 250, 300, 9999):
        part = values[at : at + size]
        stretches.room_for(at + len(part))
        stretches.begin += (at + stretches.starts(at, len(part))).tolist()
        stretches.add(0, at, part)
        at += len(part)
    assert stretches.length == 8 and stretches.begin == list(range(0, len(values), 8))
    assert np.allclose(stretches.sums[0, : stretches.used], np.add.reduceat(values, stretches.begin, axis=0))


# ---- what is told ------------------------------------------------------------------------------------------------


def test_priors_are_told_by_class():
    P, y = stream(3000, 3)
    told = calibeat.backtest(P, y).payload["classes"]
    times = np.array(told["priors"]["times"])
    assert told["total"] == 3 and sorted(told["names"]) == ["0", "1", "2"]
    assert sum(told["count"]) == 3000 - 150
    assert told["count"] == sorted(told["count"], reverse=True)
    last = dict(zip(told["names"], times[:, -1], strict=True))
    assert last["2"] > 1.2 and last["0"] < 1.0
    share = np.array(told["priors"]["happened"]).sum(axis=0)
    assert np.allclose(share, 1.0)


def test_the_theorems_are_held_against_the_log():
    P, y = stream(1500, 3)
    rows = calibeat.backtest(P, y).payload["certificates"]
    assert [row["bound"] for row in rows] == [bounds.multi_guard(3, 1500), bounds.multi_loss(3, 1500)]
    assert all(row["holds"] and row["promised"] for row in rows)
    late = calibeat.backtest(P, y, delay=5).payload["certificates"]
    assert not any(row["promised"] for row in late)


def test_two_classes_are_the_binary_backtest():
    P, y = stream(1500, 2)
    many = calibeat.backtest(P, y, methods="multi")
    binary = calibeat.backtest(np.ascontiguousarray(P[:, 1]), y, methods="auto")
    assert many.table["log_loss"][1] == pytest.approx(binary.table["log_loss"][1], rel=1e-9)
    assert many.table["brier"][1] == pytest.approx(2.0 * binary.table["brier"][1], rel=1e-9)
    for end in ("low", "high"):
        assert many.table[f"log_loss_{end}"][1] == pytest.approx(binary.table[f"log_loss_{end}"][1], rel=1e-6)
        assert many.table[f"brier_{end}"][1] == pytest.approx(2.0 * binary.table[f"brier_{end}"][1], rel=1e-6)
    assert "AUTO" in many.payload["methods"][1]["about"] and many.payload["certificates"] == []


def test_a_thousand_events_of_one_class_settle_nothing():
    P, _ = stream(1200, 3)
    result = calibeat.backtest(P, [1] * 1200)
    assert result.best == "raw" and result.verdict == "One class only: keep the raw scores"


def test_scores_that_are_right_are_kept():
    rng = np.random.default_rng(3)
    P = rng.dirichlet([1.0, 1.0, 1.0], 4000)
    y = (rng.random(4000)[:, None] > P.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    result = calibeat.backtest(P, y)
    assert result.best == "raw"
    assert result.table["ce"][0] < 2.0 * result.table["ce_luck"][0]
