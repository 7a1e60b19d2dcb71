"""What a backtest measures: the same numbers as `calibeat.metrics`, over windows, periods and keys."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import AUTO, OPS, metrics
from calibeat.backtest.replay.engine import MOST_MARKS, default_warmup

N = 3000
SCORES, OUTCOMES = drifting(N)
METHODS = ["ops", "tops", "hops"]


@pytest.fixture(scope="module")
def result():
    return calibeat.backtest(SCORES, OUTCOMES, methods=METHODS, warmup=100, keep_forecasts=True)


def test_the_measures_are_those_of_metrics(result):
    y = OUTCOMES[100:]
    for at, name in enumerate(result.table["method"]):
        p = result.forecasts[name][100:]
        for column, expected in {
            "log_loss": metrics.log_loss(y, p, clip=1e-5),
            "brier": metrics.brier_score(y, p),
            "ce": metrics.calibration_error(y, p),
            "shp": metrics.sharpness(y, p),
            "refinement": metrics.refinement(y, p),
            "accuracy": metrics.accuracy(y, p),
        }.items():
            assert result.table[column][at] == pytest.approx(expected, abs=1e-12), (name, column)
        ones, zeros = p[y == 1], p[y == 0]
        auc = np.mean(ones[:, None] > zeros) + 0.5 * np.mean(ones[:, None] == zeros)
        assert result.table["auc"][at] == pytest.approx(auc, abs=1e-3)


def test_warm_up_counts_for_nobody_and_the_same_events_for_all(result):
    data = result.payload["data"]
    assert (data["rows"], data["used"], data["warmup"], data["judged"]) == (N, N, 100, N - 100)
    assert data["base_rate"] == pytest.approx(OUTCOMES[100:].mean())
    assert data["mean_score"] == pytest.approx(SCORES[100:].mean())
    assert sum(result.windows["count"]) == N - 100
    for curves in result.payload["reliability"]["methods"].values():
        assert sum(curves[0]["count"]) == N - 100
    assert "are not scored" in data["notes"][0] and "same 2,900" in data["notes"][0]
    assert [default_warmup(n) for n in (1, 19, 20, 19_999, 20_000, 10**9)] == [0, 0, 1, 999, 1000, 1000]


def test_windows_are_the_measures_of_their_events(result):
    windows = result.windows
    assert len(windows["start"]) >= 10
    assert windows["start"][0] == 101 and windows["end"][-1] == N
    for start, end, ce, loss, rate in zip(
        windows["start"],
        windows["end"],
        windows["methods"]["ops"]["ce"],
        windows["methods"]["ops"]["log_loss"],
        windows["base_rate"],
        strict=True,
    ):
        y, p = OUTCOMES[start - 1 : end], result.forecasts["ops"][start - 1 : end]
        assert ce == pytest.approx(metrics.calibration_error(y, p))
        assert loss == pytest.approx(metrics.log_loss(y, p))
        assert rate == pytest.approx(y.mean())


def test_reliability_curves_and_their_periods(result):
    reliability = result.payload["reliability"]
    assert reliability["periods"][0] == {"label": "whole log", "count": N - 100}
    assert 2 <= len(reliability["periods"]) - 1 <= 12
    curve = reliability["methods"]["raw"][0]
    expected = metrics.reliability_curve(OUTCOMES[100:], SCORES[100:])
    np.testing.assert_array_equal(curve["count"], expected.count)
    np.testing.assert_allclose(curve["forecast"], expected.mean_forecast)
    np.testing.assert_allclose(curve["outcome"], expected.mean_outcome)
    for low, rate, high in zip(curve["low"], curve["outcome"], curve["high"], strict=True):
        assert 0 <= low <= rate <= high <= 1
    counts = np.array([c["count"] for c in reliability["methods"]["ops"][1:]]).sum(axis=0)
    np.testing.assert_array_equal(counts, reliability["methods"]["ops"][0]["count"])


def test_wilsons_interval_of_three_in_ten():
    """Against the published example: 3 of 10 at 95 %."""
    from calibeat.backtest.judge.measures import wilson

    low, high = wilson(np.array([0.3]), np.array([10.0]))
    assert (low[0], high[0]) == (pytest.approx(0.1078, abs=1e-4), pytest.approx(0.6032, abs=1e-4))


def test_the_e_value_is_the_likelihood_ratio(result):
    y, p, f = OUTCOMES[100:], result.forecasts["ops"][100:], SCORES[100:]
    ratio = np.where(y == 1, p / f, (1 - p) / (1 - f))
    path = np.cumsum(np.log(ratio))
    at = result.table["method"].tolist().index("ops")
    assert result.table["log_e_value"][at] == pytest.approx(path[-1])
    assert result.table["log_e_max"][at] == pytest.approx(max(0.0, path.max()))
    evidence = result.payload["evalue"]
    assert evidence["x"][-1] == N and evidence["methods"]["ops"][-1] == pytest.approx(path[-1])
    np.testing.assert_allclose(evidence["methods"]["ops"], path[np.array(evidence["x"]) - 101])
    assert "raw" not in evidence["methods"]


def test_trajectories_follow_the_parameters(result):
    paths = result.payload["trajectories"]
    assert len(paths["x"]) <= MOST_MARKS and paths["by"] == "event"
    cal = calibeat.Calibrator(OPS)
    begin = 0
    for k in (1, 57, len(paths["x"]) - 1):
        cal.run(SCORES[begin : paths["x"][k]], OUTCOMES[begin : paths["x"][k]])
        begin = paths["x"][k]
        assert {name: path[k] for name, path in paths["methods"]["ops"]["params"].items()} == cal.params
    assert paths["methods"]["ops"]["lanes"] is None and "raw" not in paths["methods"]
    auto = calibeat.backtest(SCORES[:400], OUTCOMES[:400], methods=[AUTO, "whb", "f99"]).payload["trajectories"]
    assert list(auto["methods"]) == ["auto"]
    lanes = np.array(list(auto["methods"]["auto"]["lanes"].values()))
    np.testing.assert_allclose(lanes.sum(axis=0), 1.0)


def test_keys_are_measured_each_and_the_worst_comes_first():
    rng = np.random.default_rng(3)
    keys = rng.choice(["good", "bad", "rare"], N, p=[0.5, 0.45, 0.05])
    outcomes = np.where(keys == "bad", rng.random(N) < 1 - SCORES, rng.random(N) < SCORES).astype(float)
    result = calibeat.backtest(SCORES, outcomes, keys, methods=["ops"], warmup=100, keep_forecasts=True)
    said = result.payload["keys"]
    assert (said["total"], said["shown"]) == (3, 3) and said["rows"][0]["key"] == "bad"
    judged = np.arange(N) >= 100
    for row in said["rows"]:
        mine = judged & (keys == row["key"])
        y, p = outcomes[mine], result.forecasts["ops"][mine]
        assert row["events"] == mine.sum() and row["base_rate"] == pytest.approx(y.mean())
        assert row["raw_log_loss"] == pytest.approx(metrics.log_loss(y, SCORES[mine]))
        assert row["methods"]["ops"]["log_loss"] == pytest.approx(metrics.log_loss(y, p))
        assert row["methods"]["ops"]["brier"] == pytest.approx(metrics.brier_score(y, p))
        assert row["methods"]["ops"]["ce"] == pytest.approx(metrics.calibration_error(y, p))
    only_raw = calibeat.backtest(SCORES, outcomes, keys, methods=["raw"])
    assert len(only_raw.payload["keys"]["rows"]) == 3


def test_calibration_errors_are_kept_for_so_many_keys(monkeypatch):
    from calibeat.backtest.judge import by_key
    from calibeat.backtest.replay import engine

    monkeypatch.setattr(engine, "MOST_KEYS_WITH_CE", 2)
    monkeypatch.setattr(by_key, "MOST_KEYS_WITH_CE", 2)
    monkeypatch.setattr(by_key, "MOST_KEYS", 4)
    said = calibeat.backtest(SCORES[:600], OUTCOMES[:600], np.arange(600) % 6, methods=["ops"]).payload["keys"]
    assert (said["total"], said["shown"]) == (6, 4) and "first 2 keys" in said["sentence"]
    known = {row["key"]: row["methods"]["ops"]["ce"] is not None for row in said["rows"]}
    assert all(known[key] == (key in {"0", "1"}) for key in known)
