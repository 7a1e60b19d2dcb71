"""Verdicts that do not claim too much: chance, dependence, choice among many, outcomes that teach nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting
from tallies import said_of, tallied

import calibeat
from calibeat import OPS, TOPS, InvalidInput
from calibeat.backtest.judge.dependence import stretch, student

N = 1200
SCORES, OUTCOMES = drifting(N)


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


def test_a_gain_that_changes_slowly_is_likely_at_best():
    rng = np.random.default_rng(6)
    raw = 1.0 + rng.exponential(0.01, 900)
    steps = np.repeat(rng.random(9), 100)
    slow = said_of(raw=raw, ops=raw - 0.3 - 0.2 * steps)
    assert slow["method"] == "ops" and slow["confidence"] == "likely"
    assert any("changes slowly" in s and "in each eighth of the log" in s for s in slow["sentences"])
    trend = np.linspace(0.001, 1.2, 900) ** 3  # large at the end only, and yet always there
    always = said_of(raw=raw + 2, ops=raw + 2 - trend, tops=raw + 2 - trend * 0.5)
    assert always["method"] == "ops" and always["confidence"] == "likely"
    assert any("in each eighth of the log" in s for s in always["sentences"])
    chance = said_of(raw=raw, ops=raw - 0.05 + np.repeat([0.4, -0.4, 0.4, -0.5, 0.4, -0.4, 0.4, -0.5, 0.1], 100))
    assert chance["method"] == "raw" and any("of eight parts of the log" in s for s in chance["sentences"])
    worse = said_of(raw=raw, ops=raw + 0.5 + 0.1 * steps)
    assert worse["method"] == "raw" and worse["confidence"] == "likely"


def test_the_bootstrap_says_what_it_cannot_know():
    sentence = calibeat.backtest(SCORES, OUTCOMES, methods="ops").payload["bootstrap"]["sentence"]
    assert "stretched" in sentence and "as long as the log" in sentence


def test_the_choice_among_many_methods_is_allowed_for():
    raw = 1.0 + np.random.default_rng(7).exponential(1.0, 900)
    three = {"raw": raw, "ops": raw - 0.3, "tops": raw - 0.2, "hops": raw - 0.1}
    assert not any("is not calibrated" in s for s in said_of(log_e=math.log(59), **three)["sentences"])
    said = said_of(log_e=math.log(300), **three)["sentences"]
    assert any("at most 0.01 (this allows for the choice among 3 methods)" in s for s in said)
    threshold = calibeat.backtest(SCORES, OUTCOMES, methods="ops,tops").payload["evalue"]["threshold"]
    assert threshold == pytest.approx(math.log(40))


def test_some_method_crosses_the_threshold_in_few_calibrated_logs():
    """With a single bar of 20 to 1 for each of many methods some method crosses it in 13 to 22 % of such logs."""
    crossed = 0
    for seed in range(40):
        rng = np.random.default_rng(7000 + seed)
        s = rng.beta(2, 2, 300)
        result = calibeat.backtest(s, rng.random(300) < s, methods="ops,tops,hops,obs,f99", seed=seed)
        crossed += np.nanmax(result.table["log_e_max"]) > result.payload["evalue"]["threshold"]
    assert crossed <= 6


def test_nothing_learnt_is_a_verdict_of_its_own():
    none = calibeat.backtest(SCORES, OUTCOMES, methods="ops,fps,f99", delay=100_000).payload
    assert none["verdict"]["headline"] == "Nothing could be learnt: keep the raw score"
    assert (none["verdict"]["method"], none["verdict"]["confidence"]) == ("raw", "unclear")
    assert "nothing was learnt" in none["delay"]["sentence"] and "1,200 arrived after" in none["delay"]["sentence"]
    few = calibeat.backtest(SCORES, OUTCOMES, methods="ops", delay=N - 101).payload["verdict"]
    assert few["confidence"] == "unclear" and few["sentences"][0].startswith("Only 100 outcomes arrived before")
    one = calibeat.backtest(SCORES, OUTCOMES, methods="ops", delay=N - 2).payload["verdict"]
    assert one["sentences"][0].startswith("Only one outcome arrived")
    unfitted = calibeat.backtest(SCORES[:900], OUTCOMES[:900], methods="fps").payload["verdict"]
    assert unfitted["headline"] == "Keep the raw score: no method differs from it"


def test_rounding_is_no_gain():
    raw = 1.0 + np.random.default_rng(8).exponential(1.0, 900)
    said = said_of(ce={"raw": 0.2, "ops": 0.1}, raw=raw, ops=raw - 1e-12)
    assert said["method"] == "raw"
    ranked = said_of(raw=raw, fps=raw, ops=raw + 0.1)
    assert "OPS" in ranked["sentences"][0] and not any("FPS" in s for s in ranked["sentences"])


@pytest.mark.parametrize("y", [0, 1])
def test_one_kind_of_outcome_settles_nothing(y):
    said = calibeat.backtest(SCORES, np.full(N, y), methods="ops,tops").payload["verdict"]
    assert (said["method"], said["confidence"]) == ("raw", "unclear")
    assert said["headline"].startswith("One kind of outcome only") and f"is {y}." in said["sentences"][0]


def test_small_differences_are_shown_with_the_digits_they_need():
    raw = 1.0 + np.random.default_rng(9).exponential(1e-9, 900)
    said = said_of(raw=raw, ops=raw - 2.5e-5)
    assert "-0.0000250" in said["sentences"][0] and "+0.0000 " not in said["sentences"][0]


def test_the_raw_score_is_nobody_elses_name():
    for name in ("raw", "RAW"):
        with pytest.raises(InvalidInput, match="name of the raw score"):
            calibeat.backtest(SCORES, OUTCOMES, methods={name: OPS, "ops": TOPS})
    named = calibeat.backtest(SCORES, OUTCOMES, methods={"raw": calibeat.BM, "o": OPS})
    assert named.table["method"].tolist() == ["raw", "o"]


def test_promises_are_told_from_yardsticks():
    methods = "auto,ops,tops,hops"
    said = calibeat.backtest(SCORES, OUTCOMES, methods=methods).payload["certificates"]
    assert {entry["what"] for entry in said if not entry["promised"]} == {"regret"} and len(said) == 6
    late = calibeat.backtest(SCORES, OUTCOMES, methods=methods, delay=3).payload["certificates"]
    assert len(late) == 6 and not any(entry["promised"] for entry in late)


def test_delays_count_the_forecasts_in_between():
    for delay, said in ((1, "half did so with one forecast or fewer"), (20, "with 20 forecasts or fewer made")):
        found = calibeat.backtest(SCORES, OUTCOMES, methods="ops", delay=delay).payload["delay"]
        assert found["events_quantiles"]["50%"] == delay and said in found["sentence"]
        assert f"{delay + 1} arrived after the last forecast" in found["sentence"]
    times = np.arange(N)
    known, outcomes = times + 0.5, OUTCOMES.copy()
    known[-3:], outcomes[-3:] = np.nan, np.nan
    found = calibeat.backtest(SCORES, outcomes, times=times, outcome_times=known, methods="ops").payload["delay"]
    assert "with no forecast made meanwhile" in found["sentence"] and "3 have not arrived at all" in found["sentence"]
    assert (found["never"], found["too_late"]) == (3, 0)


def test_axes_count_all_events_alike():
    """Windows and evidence end where the log does, also where outcomes are missing in between."""
    known, outcomes = np.arange(N) + 1.0, OUTCOMES.copy()
    gone = np.arange(N) % 3 == 1
    known[gone], outcomes[gone] = np.nan, np.nan
    found = calibeat.backtest(SCORES, outcomes, times=np.arange(N), outcome_times=known, methods="ops", warmup=10)
    windows, evidence = found.windows, found.payload["evalue"]
    assert windows["start"][0] == 16 and windows["end"][-1] == evidence["x"][-1] == N
    assert windows["count"].sum() == N - 400 - 10


def test_the_table_has_the_best_other():
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops,tops")
    table, rows = result.table, result.payload["table"]
    for at, row in enumerate(rows):
        assert table["best_other"][at] == row["vs_best_other"]["method"] != row["method"]
        ends = [table[f"ce_vs_best_other{end}"][at] for end in ("", "_low", "_high")]
        assert ends == row["vs_best_other"]["ce"] and ends[1] <= ends[0] <= ends[2]
    assert calibeat.backtest(SCORES, OUTCOMES, methods="raw").table["best_other"].tolist() == [""]


def test_keys_are_called_as_they_are():
    keyed = calibeat.backtest(SCORES, OUTCOMES, np.arange(N) % 2, methods={"my_method": OPS}).payload
    assert "loses most to my_method" in keyed["keys"]["sentence"]
