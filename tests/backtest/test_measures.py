"""What a backtest measures: the same numbers as `calibeat.metrics`, intervals, evidence, guarantees and a verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting, random
from tallies import said_of, tallied

import calibeat
from calibeat import AUTO, OPS, Beta, Method, Platt, Temperature, bounds, metrics
from calibeat.backtest.replay import tally as tally_module
from calibeat.backtest.replay.delays import Sizes
from calibeat.backtest.replay.engine import MOST_MARKS, default_warmup
from calibeat.backtest.replay.hindsight import ScoreTally
from calibeat.backtest.replay.tally import FINE, MOST_BLOCKS, RANKS, Blocks, rank_of
from calibeat.core.learners import ONS
from calibeat.core.losses import LOSS_FLOOR
from calibeat.report.page import html

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
    data = result.payload()["data"]
    assert (data["rows"], data["used"], data["warmup"], data["judged"]) == (N, N, 100, N - 100)
    assert data["base_rate"] == pytest.approx(OUTCOMES[100:].mean())
    assert data["mean_score"] == pytest.approx(SCORES[100:].mean())
    assert sum(result.windows["count"]) == N - 100
    for curves in result.payload()["reliability"]["methods"].values():
        assert sum(curves[0]["count"]) == N - 100
    assert "count for nobody" in data["notes"][0] and "same 2,900" in data["notes"][0]
    assert [default_warmup(n) for n in (1, 19, 20, 19_999, 20_000, 10**9)] == [0, 0, 1, 999, 1000, 1000]


def test_windows_are_the_measures_of_their_events(result):
    windows = result.windows
    assert len(windows["start"]) >= 10
    assert windows["start"][0] == 101 and windows["end"][-1] == N
    for start, end, ce, loss, rate in zip(
        windows["start"], windows["end"], windows["methods"]["ops"]["ce"], windows["methods"]["ops"]["log_loss"],
        windows["base_rate"], strict=True,
    ):  # fmt: skip
        y, p = OUTCOMES[start - 1 : end], result.forecasts["ops"][start - 1 : end]
        assert ce == pytest.approx(metrics.calibration_error(y, p))
        assert loss == pytest.approx(metrics.log_loss(y, p))
        assert rate == pytest.approx(y.mean())


def test_reliability_curves_and_their_periods(result):
    reliability = result.payload()["reliability"]
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


# ---- blocks ------------------------------------------------------------------------------------------------------


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
    ranks = [rank_of(float(value), FINE) for value in p]
    assert ranks == sorted(ranks) and ranks[0] == 0 and ranks[-1] == RANKS - 1
    middle = [rank_of(float(value), FINE) for value in np.arange(1000) / 1000]
    assert len(set(middle)) == 1000


# ---- regret ------------------------------------------------------------------------------------------------------


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


# ---- intervals ---------------------------------------------------------------------------------------------------


def test_intervals_hold_the_difference_and_are_the_same_every_time():
    rng = np.random.default_rng(0)
    raw = rng.exponential(1.0, 900)
    boot, again = (tallied(raw=raw, it=raw - 0.1 + rng.normal(0, 1e-9, 900)) for _ in range(2))
    d, low, high = boot.difference("it", "raw", "log_loss")
    assert d == pytest.approx(-0.1) and low <= d <= high < 0
    assert boot.difference("raw", "it", "log_loss")[0] == -d
    assert again.difference("it", "raw", "ce")[1:] == pytest.approx(boot.difference("it", "raw", "ce")[1:], abs=1e-6)
    assert boot.run == 30 and boot.share_better("it", "raw") == 1.0


def test_intervals_are_wider_where_events_depend_on_their_neighbours():
    """And the naive interval lies: the mean of a slow wave, taken for independent, is far too sure."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 1, 2500)
    wave = np.repeat(rng.normal(0, 1, 50), 50)
    _, low, high = tallied(raw=np.zeros(2500), it=wave).difference("it", "raw", "log_loss")
    naive = 2 * 1.96 * wave.std() / 50
    assert high - low > 2.5 * naive
    _, low, high = tallied(raw=np.zeros(2500), it=noise).difference("it", "raw", "log_loss")
    assert high - low == pytest.approx(2 * 1.96 * noise.std() / 50, rel=0.3)


def test_intervals_cover_as_often_as_they_say():
    """Independent events, a known difference of zero: about 95 % of the intervals hold it."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        _, low, high = tallied(raw=np.zeros(400), it=rng.normal(0, 1, 400)).difference("it", "raw", "log_loss")
        covered += low <= 0 <= high
    assert covered >= 51


# ---- evidence and guarantees -------------------------------------------------------------------------------------


def test_the_e_value_is_the_likelihood_ratio(result):
    y, p, f = OUTCOMES[100:], result.forecasts["ops"][100:], SCORES[100:]
    ratio = np.where(y == 1, p / f, (1 - p) / (1 - f))
    path = np.cumsum(np.log(ratio))
    at = result.table["method"].tolist().index("ops")
    assert result.table["log_e_value"][at] == pytest.approx(path[-1])
    assert result.table["log_e_max"][at] == pytest.approx(max(0.0, path.max()))
    evidence = result.payload()["evalue"]
    assert evidence["x"][-1] == N and evidence["methods"]["ops"][-1] == pytest.approx(path[-1])
    np.testing.assert_allclose(evidence["methods"]["ops"], path[np.array(evidence["x"]) - 101])
    assert "raw" not in evidence["methods"]


def test_the_e_value_is_no_winning_bet_against_a_score_that_is_right():
    """Whatever is forecast, also 0, 1 and beyond the clip: in the mean the ratio of an event is at most one."""
    from calibeat.backtest.replay.tally import tally

    for truth in (0.0, 1e-7, 1e-5, 0.3, 1 - 1e-6, 1.0):
        for p in (0.0, 1e-6, 0.2, 1 - 1e-7, 1.0):
            mean = 0.0
            for y, chance in ((1.0, truth), (0.0, 1.0 - truth)):
                raw_loss = np.array([tally_module.log_loss(truth, y)])
                running, place = np.array([0.0, 0.0]), np.array([1])
                tally(
                    np.array([p]), np.array([y]), place, raw_loss, 1, np.zeros(6), np.zeros(8), np.zeros(2 * RANKS),
                    running,
                )  # fmt: skip
                mean += chance * math.exp(running[0])
            assert mean <= 1.0 + 1e-12, (truth, p)


def test_certificates_hold_where_outcomes_come_at_once():
    scores, outcomes = random(2000)
    result = calibeat.backtest(
        scores, outcomes, methods=["auto", "ops", "tops", "hops"], warmup=50, keep_forecasts=True
    )
    said = {(entry["method"], entry["what"]): entry for entry in result.payload()["certificates"]}
    assert set(said) == {("ops", "regret"), ("auto", "log-loss"), ("tops", "sharpness"), ("hops", "calibration error"),
                         ("hops", "sharpness"), ("hops", "Brier score")}  # fmt: skip
    assert all(entry["holds"] for entry in said.values())
    p = result.forecasts
    tops = said["tops", "sharpness"]
    assert tops["bound"] == bounds.tops_sharpness(0.1, 2000)
    assert tops["observed"] == pytest.approx(
        metrics.sharpness(outcomes, p["ops"]) - metrics.sharpness(outcomes, p["tops"])
    )
    assert said["hops", "calibration error"]["observed"] == pytest.approx(
        metrics.calibration_error(outcomes, p["hops"])
    )
    gap = 2000 * (metrics.log_loss(outcomes, p["auto"]) - metrics.log_loss(outcomes, p["ops"]))
    assert said["auto", "log-loss"]["observed"] == pytest.approx(gap, abs=1e-6)
    assert "at once, as here" in tops["applies"]


def test_certificates_say_where_they_do_not_apply():
    late = calibeat.backtest(SCORES[:500], OUTCOMES[:500], methods=["ops", "tops"], delay=10).payload()["certificates"]
    assert late and all("late" in entry["applies"] for entry in late)
    other = calibeat.backtest(SCORES[:500], OUTCOMES[:500], methods=["ops", "tops", "hops"], bins=20).payload()
    assert [entry["what"] for entry in other["certificates"]] == ["regret"]
    keyed = calibeat.backtest(SCORES[:500], OUTCOMES[:500], [1, 2] * 250, methods=["ops", "tops"]).payload()
    assert keyed["certificates"] == []
    assert calibeat.backtest(SCORES[:9], OUTCOMES[:9], methods=["ops"]).payload()["certificates"] == []
    assert calibeat.backtest(SCORES[:99], OUTCOMES[:99], methods=["tops"]).payload()["certificates"] == []


# ---- trajectories, keys, delays ----------------------------------------------------------------------------------


def test_trajectories_follow_the_parameters(result):
    paths = result.payload()["trajectories"]
    assert len(paths["x"]) <= MOST_MARKS and paths["by"] == "event"
    cal = calibeat.Calibrator(OPS)
    begin = 0
    for k in (1, 57, len(paths["x"]) - 1):
        cal.run(SCORES[begin : paths["x"][k]], OUTCOMES[begin : paths["x"][k]])
        begin = paths["x"][k]
        assert {name: path[k] for name, path in paths["methods"]["ops"]["params"].items()} == cal.params
    assert paths["methods"]["ops"]["lanes"] is None and "raw" not in paths["methods"]
    auto = calibeat.backtest(SCORES[:400], OUTCOMES[:400], methods=[AUTO, "whb", "f99"]).payload()["trajectories"]
    assert list(auto["methods"]) == ["auto"]
    lanes = np.array(list(auto["methods"]["auto"]["lanes"].values()))
    np.testing.assert_allclose(lanes.sum(axis=0), 1.0)


def test_keys_are_measured_each_and_the_worst_comes_first():
    rng = np.random.default_rng(3)
    keys = rng.choice(["good", "bad", "rare"], N, p=[0.5, 0.45, 0.05])
    outcomes = np.where(keys == "bad", rng.random(N) < 1 - SCORES, rng.random(N) < SCORES).astype(float)
    result = calibeat.backtest(SCORES, outcomes, keys, methods=["ops"], warmup=100, keep_forecasts=True)
    said = result.payload()["keys"]
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
    assert len(only_raw.payload()["keys"]["rows"]) == 3


def test_calibration_errors_are_kept_for_so_many_keys(monkeypatch):
    from calibeat.backtest.judge import summary
    from calibeat.backtest.replay import engine

    monkeypatch.setattr(engine, "MOST_KEYS_WITH_CE", 2)
    monkeypatch.setattr(summary, "MOST_KEYS_WITH_CE", 2)
    monkeypatch.setattr(summary, "MOST_KEYS", 4)
    said = calibeat.backtest(SCORES[:600], OUTCOMES[:600], np.arange(600) % 6, methods=["ops"]).payload()["keys"]
    assert (said["total"], said["shown"]) == (6, 4) and "first 2 keys" in said["sentence"]
    known = {row["key"]: row["methods"]["ops"]["ce"] is not None for row in said["rows"]}
    assert all(known[key] == (key in {"0", "1"}) for key in known)


def test_delays_are_counted():
    times = np.arange(N) * 60
    result = calibeat.backtest(
        SCORES, OUTCOMES, times=times, outcome_times=times + 3600, methods=["ops"], warmup=100
    ).payload()["delay"]  # fmt: skip
    assert result["unit"] == "time" and set(result["quantiles"].values()) == {3600.0}
    assert set(result["events_quantiles"].values()) == {59.0}
    assert (result["never"], result["too_late"]) == (0, 60) and "60 arrived after the last" in result["sentence"]
    assert sum(result["histogram"]["count"]) == N
    assert len(result["histogram"]["edges"]) == len(result["histogram"]["count"]) + 1
    at_once = calibeat.backtest(SCORES, OUTCOMES, methods=["ops"], warmup=100)
    assert result["immediate"]["ops"]["log_loss"] == at_once.table["log_loss"][1]
    assert result["immediate"]["ops"]["ce"] == at_once.table["ce"][1]
    assert at_once.payload()["delay"] is None
    never = calibeat.backtest(SCORES[:50], OUTCOMES[:50], delay=10_000, methods=["ops"]).payload()["delay"]
    assert never["too_late"] == 50 and never["quantiles"]["50%"] is None and "No outcome arrived" in never["sentence"]
    assert never["histogram"] == {"edges": [0.0], "count": []}


def test_sizes_know_quantiles_to_a_percent_or_two():
    values = np.random.default_rng(0).lognormal(6, 2, 10_000).astype(np.int64)
    sizes = Sizes()
    for part in np.array_split(values, 3):
        sizes.count(part)
    for name, found in sizes.quantiles().items():
        assert found == pytest.approx(np.quantile(values, float(name[:-1]) / 100), rel=0.02, abs=1)
    edges, counts = sizes.by_octave()
    np.testing.assert_array_equal(np.histogram(values, [*edges[:-1], np.inf])[0], counts)


# ---- the verdict -------------------------------------------------------------------------------------------------


def test_the_verdict_keeps_the_raw_score_when_that_is_the_answer():
    rng = np.random.default_rng(5)
    raw = rng.exponential(1.0, 900)
    worse = said_of(raw=raw, ops=raw + 0.1)
    assert worse["method"] == "raw" and worse["confidence"] == "sure" and "no method improves it" in worse["headline"]
    same = said_of(raw=raw, ops=raw + rng.normal(0.001, 1, 900))
    assert same["method"] == "raw" and same["confidence"] in {"unclear", "likely"}
    perhaps = said_of(raw=raw, ops=raw + rng.normal(-0.03, 1, 900))
    assert perhaps["method"] == "raw" and perhaps["confidence"] == "unclear"
    assert any("may be chance" in sentence for sentence in perhaps["sentences"])
    tiny = said_of(raw=raw, ops=raw - 0.0001)
    assert tiny["method"] == "raw" and "hardly better" in tiny["headline"]
    few = said_of(judged=150, raw=raw, ops=raw - 0.5)
    assert few["method"] == "raw" and few["confidence"] == "unclear" and "150 events were" in few["sentences"][0]
    assert "one event was" in said_of(judged=1, raw=raw, ops=raw)["sentences"][0]
    alone = said_of(raw=raw)
    assert alone["method"] == "raw" and "Only the raw score" in alone["headline"]


def test_the_verdict_names_a_method_and_those_it_cannot_tell_apart():
    rng = np.random.default_rng(6)
    raw = 1.0 + rng.exponential(1.0, 900)
    sure = said_of(raw=raw, ops=raw - 0.3, tops=raw - 0.2)
    assert sure["method"] == "ops" and sure["confidence"] == "sure" and sure["headline"].startswith("Use OPS: 1")
    assert any("next best, TOPS" in sentence for sentence in sure["sentences"])
    tied = said_of(log_e=50.0, raw=raw, ops=raw - 0.3, tops=raw - 0.3 + rng.normal(0.0, 0.3, 900), auto=raw - 0.29999)
    assert tied["confidence"] == "likely"
    assert any("cannot be told apart" in sentence for sentence in tied["sentences"])
    assert any("1e-21" in sentence for sentence in tied["sentences"])
    some = said_of(log_e=4.0, raw=raw, ops=raw - 0.3)
    assert any("at most 0.018" in sentence for sentence in some["sentences"])
    assert "beats the raw score in all" in some["sentences"][1]


def test_calibration_error_alone_may_speak_for_another():
    raw = 1.0 + np.random.default_rng(8).exponential(1.0, 900)
    said = said_of(ce={"raw": 0.2, "ops": 0.1, "tops": 0.05}, raw=raw, ops=raw - 0.3, tops=raw - 0.2)
    assert said["method"] == "ops"
    assert any("TOPS has the least: 0.0500" in sentence for sentence in said["sentences"])


def test_a_calibrated_score_is_kept():
    rng = np.random.default_rng(7)
    scores = rng.random(3000)
    result = calibeat.backtest(scores, rng.random(3000) < scores, methods=["auto", "ops", "tops"])
    assert result.best == "raw" and result.verdict.startswith("Keep the raw score")


def test_every_payload_makes_a_page():
    for n in (1, 2, 30):
        page = html(calibeat.backtest(SCORES[:n], OUTCOMES[:n], methods=["auto", "hops"]).payload())
        assert page.lower().startswith("<!doctype html>")
    assert LOSS_FLOOR == 1e-5


def test_versions_are_told_also_without_numba(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    from calibeat.backtest.judge import summary

    def absent(name):
        raise PackageNotFoundError(name)

    def told():
        return calibeat.backtest(SCORES[:20], OUTCOMES[:20], methods="ops").payload()["versions"]

    assert told()["calibeat"] == calibeat.__version__ and told()["numba"][0].isdigit()
    monkeypatch.setattr(summary, "version", absent)
    assert told()["numba"] == "not installed"
