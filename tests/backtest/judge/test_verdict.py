"""Verdicts that do not claim too much, and that agree with their intervals and legends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting
from tallies import said_of, tallied

import calibeat
from calibeat import F99, OPS
from calibeat.backtest.judge.verdict import legend
from calibeat.report import html
from calibeat.report.text import page

N = 1200
SCORES, OUTCOMES = drifting(N)


def steps(rng, parts=9):
    """A gain that changes slowly and is always there, but now large and now small."""
    raw = 1.2 + rng.exponential(0.01, 900)
    return raw, raw - np.repeat(0.01 + rng.random(parts) ** 6, 900 // parts)


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


def test_verdict_interval_and_legend_say_the_same():
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(40):
        raw, it = steps(rng)
        found = said_of(raw=raw, it=it)
        boot = tallied(raw=raw, it=it)
        _, _, high = boot.difference("it", "raw", "log_loss")
        text, words = " ".join(found["sentences"]), legend(boot, "raw", ["it"])
        assert "settles nothing." not in words
        if found["method"] == "it" and high >= 0.0:
            assert found["confidence"] == "likely" and "reaches past zero and settles nothing by itself" in text
            assert "in each eighth of the log, which makes it likely, but not sure" in text
            assert "counts as likely if it is there in each eighth" in words and "resampled logs" not in text
        elif found["method"] == "it":
            assert "counts as likely" not in words and "past zero" not in text
        seen.add((found["method"], high >= 0.0))
    assert ("it", True) in seen


def test_the_legend_is_printed():
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops")
    words = result.payload["bootstrap"]["legend"]
    assert "does not settle by itself" in words
    assert words.replace("95 %", "95\u00a0%") in html(result.payload)


def test_a_method_that_ignores_the_score_is_never_recommended_for_its_calibration():
    rng = np.random.default_rng(4)
    scores = rng.beta(0.5, 0.5, 30_000)
    outcomes = rng.random(30_000) < 0.1 + 0.8 * scores**2
    result = calibeat.backtest(scores, outcomes, methods="ops,f99")
    errors = dict(zip(result.table["method"].tolist(), result.table["ce"].tolist(), strict=True))
    assert errors["f99"] < errors["ops"]  # it has the least error, and is of no use
    assert result.best == "ops" and not any("F99 has" in s for s in result.payload["verdict"]["sentences"])
    assert "If you care about calibration error alone" not in page(result.payload)
    named = calibeat.backtest(scores, outcomes, methods={"base rate": F99, "ops": OPS})
    assert "base rate has the least" not in page(named.payload)


def test_where_the_score_is_of_no_use_that_is_told():
    rng = np.random.default_rng(5)
    scores = rng.beta(0.3, 0.3, 3000)
    result = calibeat.backtest(scores, rng.random(3000) < 0.5, methods="f99")
    assert result.best == "f99"
    assert "F99 ignores the score: on this log the score is of no use." in result.payload["verdict"]["sentences"]


def test_a_reversed_score_is_no_triumph():
    rng = np.random.default_rng(6)
    p = rng.random(3000)
    result = calibeat.backtest(1.0 - p, rng.random(3000) < p, methods="auto")
    said = result.payload["verdict"]
    assert said["headline"].startswith("The score seems reversed: check its column first. As it is: use AUTO:")
    assert said["confidence"] == "unclear" and "(AUC 0.1" in said["sentences"][0]
    assert "the score seems reversed" in page(result.payload).lower()
    right = calibeat.backtest(p, rng.random(3000) < p, methods="auto").payload["verdict"]
    assert "reversed" not in right["headline"]
    chance = calibeat.backtest(rng.random(40), rng.random(40) < 0.5, methods="ops", warmup=0)
    assert "reversed" not in chance.verdict
