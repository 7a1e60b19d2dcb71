"""The replay of many classes: the bits of `MultiCalibrator`, in chunks of any size, with labels at any time."""

from __future__ import annotations

import numpy as np
import pytest
from class_logs import softmax, stream

import calibeat
from calibeat import Monitor, MultiBank, MultiCalibrator, bounds, metrics
from calibeat.backtest.judge.classes import MOST_STRETCHES, Stretches
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay import engine
from calibeat.backtest.replay.contenders import MOST_SLOPE, fit_slope

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
    monkeypatch.setattr(engine, "NUMBERS_IN_PART", part)
    monkeypatch.setattr(engine, "LEAST_IN_PART", 1)
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
    monkeypatch.setattr(engine, "NUMBERS_IN_PART", 300)
    monkeypatch.setattr(engine, "LEAST_IN_PART", 1)
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
    stretches, at = Stretches(), 0
    for size in (1, 5, 250, 300, 9999):
        part = values[at : at + size]
        stretches.add(Chunk(part, np.zeros(len(part)), np.zeros(len(part), dtype=np.int64)), {"raw": 2.0 * part})
        at += len(part)
    assert stretches.length == 8 and stretches.begin == list(range(1, len(values) + 1, 8))
    expected = np.add.reduceat(values, np.arange(0, len(values), 8), axis=0)
    used = len(stretches.begin)
    assert np.allclose(stretches.sums[1, :used], expected) and np.allclose(stretches.sums[2, :used], 2.0 * expected)
    assert stretches.sums[0, :, 0].sum() == len(values)


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


# ---- keys, ages and monitors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("late", [False, True])
def test_keys_have_the_bits_of_a_bank(monkeypatch, K, late):
    monkeypatch.setattr(engine, "NUMBERS_IN_PART", 100 * K)
    monkeypatch.setattr(engine, "LEAST_IN_PART", 1)
    P, y = stream(700, K)
    keys = np.random.default_rng(K).integers(0, 2 + np.arange(700) // 150)  # some come when others have learnt
    result = calibeat.backtest(P, y, keys, methods="ots,multi", delay=25 if late else 0, keep_forecasts=True)
    due = np.arange(700) + 26 if late else None
    for method in ("raw", "ots", "multi"):
        assert np.array_equal(result.forecasts[method], MultiBank(K, method).run(keys, P, y, due=due))
    alone = calibeat.backtest(P, y, methods="multi", delay=25 if late else 0, keep_forecasts=True)
    assert np.array_equal(result.forecasts["MULTI without keys"], alone.forecasts["multi"])
    pooled = result.forecasts["MULTI with a pooled start"]
    assert np.array_equal(pooled, MultiBank(K, prior="pooled").run(keys, P, y, due=due))
    assert not np.array_equal(pooled, result.forecasts["multi"])
    assert "FTS, SWTS left out" in " ".join(calibeat.backtest(P, y, keys).payload["data"]["notes"])


def test_the_table_of_keys_is_about_the_top_class():
    P, y = stream(1200, 3)
    keys = np.arange(1200) % 3
    result = calibeat.backtest(P, y, keys, methods="multi", warmup=0, keep_forecasts=True)
    told = result.payload["keys"]
    assert told["total"] == 3 and result.best != "raw"
    Q = result.forecasts[told["differ"]["method"]]
    for row in told["rows"]:
        rows = keys == int(row["key"])
        assert row["events"] == 400
        assert row["base_rate"] == pytest.approx(np.mean(P[rows].argmax(axis=1) == y[rows]))
        for method, forecasts in result.forecasts.items():
            mine = row["methods"][method]
            assert mine["log_loss"] == pytest.approx(metrics.log_loss(y[rows], forecasts[rows], clip=1e-7))
            assert mine["brier"] == pytest.approx(metrics.brier_score(y[rows], forecasts[rows]))
            assert mine["ce"] == pytest.approx(metrics.top_label_calibration_error(y[rows], forecasts[rows]))
    for row in told["differ"]["rows"]:
        rows = keys == int(row["key"])
        hits, confidence = Q[rows].argmax(axis=1) == y[rows], Q[rows].max(axis=1)
        assert row["outcome"] == pytest.approx(hits.mean()) and row["forecast"] == pytest.approx(confidence.mean())
        half = (row["gap"][2] - row["gap"][1]) / 2.0
        assert half == pytest.approx(2.394 * np.sqrt(np.square(hits - confidence).sum()) / 400, rel=1e-3)


@pytest.mark.parametrize("delay", [0, 40])
def test_a_monitor_reads_confidence_and_hits(delay):
    P, y = stream(4000, 4, slope=0.3)
    result = calibeat.backtest(P, y, methods="ots,multi", delay=delay, keep_forecasts=True)
    told = result.payload["paging"]
    assert set(told["methods"]) >= {"raw", "multi"} and told["outcomes"] == 4000
    assert told["methods"]["raw"]["pages"] >= 1 and "would have paged" in told["sentence"]
    for method, found in told["methods"].items():
        Q = result.forecasts[method]
        top = Q.argmax(axis=1)
        monitor = Monitor(arl=told["arl"])
        alarms = monitor.run(Q.max(axis=1), (top == y).astype(float), P[np.arange(4000), top])
        assert found["alarms"] == len(alarms) and found["gain"] == pytest.approx(list(monitor.gain))
        if alarms:
            assert found["shown"][0]["at"] == alarms[0].at
    assert told["methods"]["raw"]["gain"][0] == pytest.approx(0.0, abs=1e-6)


def test_labels_are_learnt_at_an_age():
    P, y = stream(900, 3)
    result = calibeat.backtest(P, y, methods="multi", mature=50, keep_forecasts=True)
    late = MultiCalibrator(3).run(P, y, due=np.arange(900) + 51)
    assert np.array_equal(result.forecasts["multi"][51:], late[51:])
    assert np.array_equal(result.forecasts["multi"][:51], P[:51])  # raw until the first label is learnt
    assert "the age that was asked for" in " ".join(result.payload["data"]["notes"])


def test_two_periods_and_the_data_over_time_are_about_the_top_class():
    P, y = stream(1000, 3)
    times = np.datetime64("2024-01-01", "s") + 3600 * np.arange(1000)
    result = calibeat.backtest(P, y, None, times, split="2024-01-21", warmup=0, keep_forecasts=True)
    before = result.payload["periods"][0]
    assert before["judged"] == 480
    assert before["base_rate"] == pytest.approx(np.mean(P[:480].argmax(axis=1) == y[:480]))
    for method, found in before["methods"].items():
        Q = result.forecasts[method][:480]
        assert found["log_loss"] == pytest.approx(metrics.log_loss(y[:480], Q, clip=1e-7))
        assert found["brier"] == pytest.approx(metrics.brier_score(y[:480], Q))
        assert found["ce"] == pytest.approx(metrics.top_label_calibration_error(y[:480], Q))
    history = result.payload["history"]
    assert sum(history["count"]) == 1000
    assert history["periods"][0]["mean_score"] == pytest.approx(P[: history["periods"][0]["count"]].max(axis=1).mean())
