"""Verdicts that do not claim too much, and that agree with their intervals and legends."""

from __future__ import annotations

import math
from html import escape

import numpy as np
import pytest
from streams import drifting
from tallies import compared, said_of, tallied

import calibeat
from calibeat import F99, OPS
from calibeat.backtest.judge.intervals import Intervals
from calibeat.backtest.judge.measures import ranks_of_classes
from calibeat.backtest.judge.verdict import LEGEND, Comparison, Facts, verdict
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
    raw += 3.0
    noise = rng.normal(0, 1, 900)
    same = said_of(raw=raw, ops=raw + noise - noise.mean() + 0.001)
    assert same["method"] == "raw" and same["confidence"] == "likely"
    perhaps = said_of(raw=raw, ops=raw + noise - noise.mean() - 0.03)
    assert perhaps["method"] == "raw" and perhaps["confidence"] == "unclear"
    assert any("may be chance" in sentence for sentence in perhaps["sentences"])
    raw -= 2.0
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
    assert tied["confidence"] == "sure"  # of the gain against the raw score
    assert any("cannot be told apart" in sentence for sentence in tied["sentences"])
    assert any("1e-21" in sentence for sentence in tied["sentences"])
    some = said_of(log_e=4.0, raw=raw, ops=raw - 0.3)
    assert any("at most 0.018" in sentence for sentence in some["sentences"])
    assert "Resampled stretches of the log show it too: it is sure" in some["sentences"][2]
    assert not any("resampled logs" in sentence for sentence in some["sentences"])


def test_calibration_error_alone_may_speak_for_another_beyond_luck():
    """OPS has the least log-loss and TOPS the least calibration error; HOPS has less than OPS, but within luck."""
    rng = np.random.default_rng(8)
    truth = rng.choice([0.15, 0.35, 0.55, 0.75, 0.85], 4000)
    y = (rng.random(4000) < truth).astype(float)
    sharp = truth + 0.07
    flat = np.full(4000, y.mean())

    def least(**forecasts):
        sums = Intervals(len(forecasts))
        sums.add(np.array(list(forecasts.values())), y)
        losses = {name: -np.log(np.where(y == 1.0, p, 1.0 - p)) for name, p in forecasts.items()}
        ce = {name: calibeat.metrics.calibration_error(y, p, bins=10) for name, p in forecasts.items()}
        facts = Facts({name: name.upper() for name in forecasts}, 4000, dict.fromkeys(forecasts, 0.0))
        found = verdict(Comparison(list(forecasts), tallied(ce, **losses), sums), facts)
        return found["method"], " ".join(found["sentences"])

    method, said = least(raw=truth + 0.14, ops=sharp, tops=flat)
    assert method == "ops" and "TOPS has the least, beyond luck: 0.00" in said and "less, beyond luck" in said
    method, said = least(raw=truth + 0.14, ops=sharp, hops=np.where(truth < 0.5, sharp, sharp + 0.001))
    assert method in {"ops", "hops"} and "has the least" not in said


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
    assert any("changes slowly" in s and "in all eight eighths of the log" in s for s in slow["sentences"])
    trend = np.linspace(0.1, 1.2, 900) ** 3  # large at the end only, and yet always there
    always = said_of(raw=raw + 2, ops=raw + 2 - trend, tops=raw + 2 - trend * 0.5)
    assert always["method"] == "ops" and always["confidence"] == "likely"
    assert any("in all eight eighths of the log" in s and "to -1." in s for s in always["sentences"])
    parts = np.repeat([0.4, -0.4, 0.4, -0.5, 0.4, -0.6, 0.4, -0.7, 0.1], 100)
    here = said_of(raw=raw, ops=raw - 0.05 + parts)
    assert here["method"] == "raw" and here["confidence"] == "unclear"
    assert here["headline"] == "Keep the raw score: better on this log, not throughout"
    assert "eighth of the log it lost to the raw score, by +0.2" in here["sentences"][-1]
    worse = said_of(raw=raw, ops=raw + 0.5 + 0.1 * steps)
    assert worse["method"] == "raw" and worse["confidence"] == "sure"


def test_a_gain_that_resampled_stretches_show_is_likely_where_an_eighth_lacks_it():
    """Independent differences: beyond both intervals, and one eighth is unlucky. It is sure; slow ones are likely."""
    rng = np.random.default_rng(3)
    raw = 1.0 + rng.exponential(0.01, 1600)
    parts = np.repeat(np.tile([0.02, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3], 1), 200)
    found = said_of(judged=1600, raw=raw, ops=raw + parts)
    compare = compared(raw=raw, ops=raw + parts)
    assert compare.elsewhere("ops")[2] < 0.0 and not compare.throughout("ops")
    assert found["method"] == "ops"
    assert any("in 7 of the eight eighths" in s for s in found["sentences"])


def test_the_best_of_many_needs_more_than_the_method_chosen_beforehand():
    """A gain between 1.96 and the max-t quantile is one for AUTO, and none for the best of many."""
    rng = np.random.default_rng(2)
    raw = 0.7 + rng.exponential(0.01, 2000)
    noise = rng.normal(0.0, 0.3, (4, 2000))
    noise -= noise.mean(axis=1, keepdims=True)
    lost = {name: raw + part + 0.05 for name, part in zip(("tops", "hops", "obs"), noise[1:], strict=True)}
    for gain in np.linspace(0.0, 0.05, 200):  # until it is just beyond the printed interval
        near = {"raw": raw, "ops": raw + noise[0] - gain, **lost}
        if compared(**near).difference("ops", "raw", "log_loss")[2] < 0.0:
            break
    assert compared(**near).claim("ops")[2] > 0.0
    assert 2.1 < compared(**near).most < 2.7
    many = said_of(judged=2000, **near)
    assert many["method"] == "raw" and any("the best of 4 methods" in s for s in many["sentences"])
    renamed = {"auto" if name == "ops" else name: values for name, values in near.items()}
    assert compared(**renamed).claim("auto")[2] < 0.0
    # AUTO is chosen too where a better one of many does not get there.
    better = {**renamed, "ops": near["ops"] - 1e-5}
    assert not any("the best of" in s for s in said_of(judged=2000, **better)["sentences"])
    assert "AUTO" in said_of(judged=2000, **better)["sentences"][0]
    assert compared(raw=raw, ops=raw - 0.1).quantile("ops") == pytest.approx(1.959964)


def test_a_difference_that_rests_on_a_few_events_settles_nothing():
    raw = np.full(900, 0.7)
    ops = raw.copy()
    ops[[100, 300, 500]] -= 0.65
    found = said_of(raw=raw, ops=ops)
    assert (found["method"], found["confidence"]) == ("raw", "unclear")
    assert found["headline"].startswith("Too few events decide") and "rests on about one event" in found["sentences"][0]


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
    assert "by 0.0000250" in said["sentences"][0] and "+0.0000 " not in said["sentences"][0]


def test_verdict_interval_and_legend_say_the_same():
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(30):
        raw, it = steps(rng)
        found, compare = said_of(raw=raw, it=it), compared(raw=raw, it=it)
        _, _, high = compare.claim("it")
        text = " ".join(found["sentences"])
        elsewhere = compare.elsewhere("it")[2] < 0.0
        if found["method"] == "it":
            assert high < 0.0 and (elsewhere or compare.throughout("it"))
            sure = elsewhere and not compare.outlived("it")
            assert found["confidence"] == ("sure" if sure else "likely")
            assert ("it is sure" in text) == sure and ("likely, not sure" in text) == (not sure)
        else:
            assert high >= 0.0 or "not throughout" in text
        seen.add((found["method"], found["confidence"]))
    assert ("it", "likely") in seen
    assert '"Sure": the gain is beyond the interval, and resampled stretches of the log show it too' in LEGEND
    assert '"Likely": it is beyond the interval, and either they show it or each eighth of the log does' in LEGEND


def test_the_legend_and_the_sentence_are_printed():
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops")
    told = result.payload["intervals"]
    assert told["legend"] == LEGEND and "not for other times" in told["sentence"]
    assert "No interval is printed for calibration error" in told["sentence"]
    assert escape(told["legend"], quote=False).replace("95 %", "95\u00a0%") in html(result.payload)
    assert " ".join(told["sentence"].split()) in " ".join(page(result.payload).split())


def test_a_method_that_ignores_the_score_is_never_recommended_for_its_calibration():
    rng = np.random.default_rng(4)
    scores = rng.beta(0.5, 0.5, 30_000)
    outcomes = rng.random(30_000) < 0.1 + 0.8 * scores**3
    result = calibeat.backtest(scores, outcomes, methods="ops,f99")
    errors = dict(zip(result.table["method"].tolist(), result.table["ce"].tolist(), strict=True))
    assert errors["f99"] < errors["ops"]  # it has the least error, and is of no use
    assert result.best == "ops" and not any("F99 has" in s for s in result.payload["verdict"]["sentences"])
    assert "If you care about calibration error alone" not in page(result.payload)
    named = calibeat.backtest(scores, outcomes, methods={"base rate": F99, "ops": OPS})
    assert "base rate has the least" not in page(named.payload)


def test_a_method_that_ignores_the_score_is_never_the_verdict():
    rng = np.random.default_rng(5)
    scores = rng.beta(0.3, 0.3, 3000)
    for outcomes in (rng.random(3000) < 0.5, rng.random(3000) < scores):
        result = calibeat.backtest(scores, outcomes, methods="f99, base rate")
        assert result.best == "raw" and result.table["method"].tolist() == ["raw", "f99", "base rate"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [300, 5000])
def test_noise_is_called_so_whatever_is_compared(seed, n):
    """Random scores and outcomes: 300 rows said "Use F99: 26.6 % less", 5,000 rows "Use AUTO: 32.5 % less"."""
    rng = np.random.default_rng(seed)
    scores, outcomes = rng.random(n), rng.random(n) < 0.5
    for methods in (None, "auto", "ops,tops"):
        result = calibeat.backtest(scores, outcomes, methods=methods)
        said = result.payload["verdict"]
        assert result.best not in ("f99", "base rate")
        assert said["headline"].startswith("The score carries no information")
        assert "%" not in said["headline"]
        assert said["confidence"] == "unclear" and "later" not in result.payload
        assert "The AUC of the raw score is 0." in said["caveats"][0] and "luck alone may show" in said["caveats"][0]
        assert " ".join(page(result.payload).split()).index(said["caveats"][0]) < page(result.payload).index("judged")


def test_noise_of_many_classes_is_called_so_and_a_model_is_not():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), 3000)
    noise = calibeat.backtest(P, rng.integers(0, 4, 3000))
    assert noise.verdict.startswith("The score carries no information") and "base rate" in noise.table["method"]
    assert "single classes" in noise.payload["verdict"]["caveats"][0]
    shares = np.cumsum(P / P.sum(axis=1, keepdims=True), axis=1)
    drawn = (shares < rng.random(3000)[:, None]).sum(axis=1)
    told = calibeat.backtest(P**3 / (P**3).sum(axis=1, keepdims=True), drawn).payload["verdict"]
    assert told["headline"].startswith("Use ") and "of the gain is only the base rate" in " ".join(told["caveats"])


def test_a_score_that_ranks_is_not_said_to_say_nothing():
    rng = np.random.default_rng(1)
    p = rng.random(3000)
    for outcomes in (rng.random(3000) < p, rng.random(3000) < p**3, rng.random(3000) < 0.4 + 0.2 * p):
        assert "no information" not in calibeat.backtest(p, outcomes, methods="auto").verdict


def test_what_is_gained_beside_a_score_that_says_nothing():
    """The rate changes: AUTO follows it, the base rate of all the past does not, and the score has no part in it."""
    rng = np.random.default_rng(2)
    scores, outcomes = rng.random(8000), rng.random(8000) < np.where(np.arange(8000) < 4000, 0.1, 0.9)
    said = calibeat.backtest(scores, outcomes, methods="auto").payload["verdict"]
    assert said["headline"].startswith("Use AUTO") and "the rest is no merit of the score" in said["caveats"][0]


def test_a_score_that_ranks_where_the_base_rate_does_as_well():
    rng = np.random.default_rng(2)
    few = rng.random(260)
    weak = calibeat.backtest(few**4, rng.random(260) < 0.3 + 0.4 * few, methods="auto").payload["verdict"]
    assert weak["headline"] == "The base rate does as well as AUTO: this log does not show what the score adds"
    assert weak["confidence"] == "unclear"


def test_a_raw_score_that_is_kept_and_says_nothing():
    """A model of noise that knows the base rate: there is nothing to mend, and nothing to be had."""
    rng = np.random.default_rng(3)
    kept = calibeat.backtest(rng.normal(0.2, 0.01, 4000), rng.random(4000) < 0.2, methods="auto").payload["verdict"]
    assert kept["method"] == "raw" and kept["headline"].startswith("Keep the raw score")
    assert kept["caveats"][0].startswith("The score carries no information that this log shows: to forecast")


def test_a_raw_score_that_is_kept_though_the_base_rate_does_better():
    """The score turns round half-way: OPS follows it, but not throughout."""
    kept = calibeat.backtest(*drifting(1000), methods="ops").payload["verdict"]
    assert kept["headline"].startswith("Keep the raw score: better on this log, not throughout")
    assert kept["caveats"][0].startswith("The base rate does better: to forecast the share of ones so far")


def test_one_class_alone_ranks_nothing():
    assert ranks_of_classes(np.array([[[5.0, 2.0, 5.0]], [[5.0, 2.0, 0.0]]])).in_words == ""


def test_a_reversed_score_is_no_triumph():
    rng = np.random.default_rng(6)
    p = rng.random(3000)
    result = calibeat.backtest(1.0 - p, rng.random(3000) < p, methods="auto")
    said = result.payload["verdict"]
    assert said["headline"].startswith("The score seems reversed: check its column first. As it is: use AUTO:")
    assert said["confidence"] == "unclear" and "(AUC 0.1" in said["caveats"][0]
    assert "the score seems reversed" in page(result.payload).lower()
    right = calibeat.backtest(p, rng.random(3000) < p, methods="auto").payload["verdict"]
    assert "reversed" not in right["headline"]
    chance = calibeat.backtest(rng.random(40), rng.random(40) < 0.5, methods="ops", warmup=0)
    assert "reversed" not in chance.verdict


def test_a_score_that_says_nothing_is_no_triumph():
    rng = np.random.default_rng(7)
    p, rare = rng.random(3000), rng.random(3000) < 0.1
    made = calibeat.backtest(p, rare, methods="auto").payload
    said, shown = made["verdict"], calibeat.backtest(p, rare, methods=["auto", "base rate"]).table["log_loss"]
    assert said["headline"].startswith("The score carries no information: the base rate does as well.")
    told = f"costs a log-loss of {shown[2]:.4f}; the raw score has {shown[0]:.4f}, and AUTO {shown[1]:.4f}: all that it"
    assert told in said["caveats"][0]


def test_of_a_gain_the_share_of_the_base_rate_is_told():
    rng = np.random.default_rng(8)
    p = rng.random(3000)
    shifted = calibeat.backtest(p, rng.random(3000) < p**6, methods=["auto", "base rate"]).payload
    losses = {row["method"]: row["log_loss"] for row in shifted["table"]}
    said = shifted["verdict"]
    share = (losses["raw"] - losses["base rate"]) / (losses["raw"] - losses["auto"])
    assert said["headline"].startswith("Use AUTO:") and 0.0 < share < 1.0
    assert said["caveats"][0].startswith(
        f"{100 * share:.0f} % of the gain is only the base rate: to forecast the share"
    )
    useful = calibeat.backtest(p, rng.random(3000) < p**2, methods="auto").payload["verdict"]
    assert useful["sentences"][0].startswith("None of the gain is only the base rate") and useful["caveats"] == []
