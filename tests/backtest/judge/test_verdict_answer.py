"""The number that a manager reads, recomputed from the forecasts; and code that runs as it stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import calibeat
from calibeat import AUTO, BM, OPS, TOPS, Tracking
from calibeat.backtest.judge.deployment import HowReplayed, deployment
from calibeat.backtest.judge.verdict import SURE, bins_off, example_of
from calibeat.backtest.replay.contenders import method_contender, with_key_variants, with_others
from calibeat.backtest.replay.engine import Runner
from calibeat.backtest.replay.tally import Counted, Tally
from calibeat.core.method import PRESETS
from calibeat.report import html
from calibeat.report.text import page

RNG = np.random.default_rng(8)
SCORES = RNG.random(4000)
OUTCOMES = (RNG.random(4000) < SCORES**2).astype(float)


def replayed(**more):
    return calibeat.backtest(SCORES, OUTCOMES, keep_forecasts=True, warmup=100, **more)


def test_the_bin_in_which_the_raw_score_is_off_by_the_most_events():
    result = replayed(methods="ops")
    happened = result.payload["answer"]["happened"]
    judged = slice(100, None)
    y = OUTCOMES[judged]
    raw, ours = (result.forecasts[name][judged] for name in ("raw", "ops"))
    of_raw, of_ours = (np.minimum((p * 10).astype(int), 9) for p in (raw, ours))
    off = [abs((y - raw)[of_raw == k].sum()) for k in range(10)]
    worst = int(np.argmax(off))
    for one, p, bin_ in zip(happened, (raw, ours), (of_raw, of_ours), strict=True):
        inside = bin_ == worst
        assert one["count"] == inside.sum()
        assert one["forecast"] == pytest.approx(p[inside].mean()) and one["outcome"] == pytest.approx(y[inside].mean())
    assert [one["method"] for one in happened] == ["raw", "ops"] == ["raw", result.best]


def test_the_rule_of_the_bin_is_kept_where_the_choice_has_nobody_there():
    """Random scores: the raw score is most off at 5 or 95 %, where AUTO has no forecasts; 55 % was told of."""
    rng = np.random.default_rng(0)
    scores, outcomes = rng.random(5000), (rng.random(5000) < 0.5).astype(float)
    result = calibeat.backtest(scores, outcomes, methods="auto", warmup=250, keep_forecasts=True)
    raw, ours = result.payload["answer"]["happened"]
    judged = slice(250, None)
    bins = np.minimum((scores[judged] * 10).astype(int), 9)
    off = [abs((outcomes - scores)[judged][bins == k].sum()) for k in range(10)]
    worst = int(np.argmax(off))
    assert worst in (0, 9) and raw["count"] == (bins == worst).sum()
    assert raw["forecast"] == pytest.approx(scores[judged][bins == worst].mean())
    own = np.bincount(np.minimum((result.forecasts["auto"][judged] * 10).astype(int), 9), minlength=10)
    assert ours["count"] == own[min(np.flatnonzero(own >= 50), key=lambda k: abs(k - worst))]


def test_where_no_bin_has_enough_the_number_is_about_all_events():
    runners = runners_of(SCORES[:30], OUTCOMES[:30], forecasts=[SCORES[:30], SCORES[:30] ** 2])
    raw, ours = example_of(runners, 1, 30)
    assert raw["count"] == ours["count"] == 30 and raw["outcome"] == ours["outcome"] == OUTCOMES[:30].mean()
    assert raw["forecast"] == pytest.approx(SCORES[:30].mean())


def test_a_raw_score_that_is_kept_has_no_bin_that_was_picked_by_luck():
    kept = calibeat.backtest(SCORES, RNG.random(4000) < SCORES, methods="ops").payload
    assert kept["verdict"]["method"] == "raw" and kept["answer"]["happened"] == [] and kept["verdict"]["caveats"] == []


def runners_of(scores, outcomes, forecasts):
    """A raw score and a method with these forecasts, counted in one block."""
    runners = []
    for name, values in zip(("raw", "auto"), forecasts, strict=True):
        contender = method_contender(name, AUTO if name == "auto" else BM)
        tally = Tally(10)
        place = np.ones(len(scores), dtype=np.int64)
        tally.count(Counted.of(values, outcomes, place, np.zeros(len(scores))))
        runners.append(Runner(contender, contender.start(False), tally, None))
    return runners


def off(forecasts, outcomes, **more):
    one = runners_of(forecasts, outcomes, forecasts=[forecasts, forecasts])[1]
    return bins_off(one, 1, **{"many": False, "is_raw": False} | more)


def test_bins_in_which_the_choice_is_clearly_off_are_named():
    """Flights: 221 forecasts above .7, mean .80, of which 24 % happened."""
    rng = np.random.default_rng(3)
    right = rng.random(20_000) * 0.7
    forecasts = np.concatenate([right, np.linspace(0.701, 0.9, 221)])
    outcomes = np.concatenate([rng.random(20_000) < right, np.arange(221) < 53]).astype(float)
    told = "But where AUTO says 70 % or more (221 events, 80 % on average), 24 % happened."
    assert off(forecasts, outcomes) == [told]
    assert off(forecasts, outcomes, is_raw=True) == [told.replace("AUTO", "the raw score")]
    of_classes = told.replace("AUTO says", "the confidence of AUTO is").replace("24 % happened", "it is right in 24 %")
    assert off(forecasts, outcomes, many=True) == [of_classes]
    assert off(1.0 - forecasts, 1.0 - outcomes) == [
        "But where AUTO says less than 30 % (221 events, 20 % on average), 76 % happened."
    ]
    few = np.concatenate([right, np.full(40, 0.75)]), np.concatenate([outcomes[:20_000], np.zeros(40)])
    assert off(*few) == []  # 40 events are no bin to speak of
    middle = np.concatenate([right, np.full(300, 0.75), np.full(300, 0.95)])
    assert off(middle, np.concatenate([outcomes[:20_000], np.zeros(300), np.arange(300) < 285])) == [
        "But where AUTO says 70 to 80 % (300 events, 75 % on average), 0 % happened."
    ]
    near = np.full(100_000, 0.53), (rng.random(100_000) < 0.55).astype(float)
    assert off(*near) == []  # beyond luck, and too small to matter


def test_the_bins_are_named_in_the_verdict_the_terminal_and_the_page():
    rng = np.random.default_rng(4)
    scores = 0.85 * rng.random(6000)
    scores[3000:3300] = 0.999
    outcomes = rng.random(6000) < scores
    outcomes[3000:3300] = np.arange(300) < 72
    made = calibeat.backtest(scores, outcomes, methods="raw", warmup=0).payload
    told = "But where the raw score says 90 % or more (300 events, 100 % on average), 24 % happened."
    assert made["verdict"]["caveats"][-1] == told
    assert told in " ".join(page(made).split()) and told in html(made).replace("\u00a0", " ")


def test_every_verdict_has_its_line():
    assert {confidence for _, confidence in SURE} == {"sure", "likely", "unclear"} and len(SURE) == 6


@pytest.mark.parametrize("method", ["ops", replace(TOPS, calibeater=Tracking(bins=20))])
def test_the_code_runs_as_it_stands(method):
    answer = replayed(methods=[method]).payload["answer"]
    known = {"past_scores": SCORES, "past_outcomes": OUTCOMES, "score": 0.4, "outcome": 1}
    exec("\n".join(answer["library"]), known)  # noqa: S102 - this is what a reader does with it
    assert 0.0 <= known["forecast"].probability <= 1.0 and known["cal"].method == (
        PRESETS[method] if isinstance(method, str) else method
    )
    if isinstance(method, str):
        assert answer["service"][-1] == "calibeat serve --store calibeat.db --method ops" and answer["note"] == ""
    else:
        assert answer["service"] is None and "has none" in answer["note"]


def test_the_code_for_keys_and_for_the_raw_score_runs_too():
    keys = np.arange(4000) % 3
    library, service, _ = told(OPS)
    known = {"past_keys": keys, "past_scores": SCORES, "past_outcomes": OUTCOMES, "key": 1, "score": 0.4, "outcome": 1}
    exec(library, known)  # noqa: S102 - as above
    assert len(known["bank"]) == 3 and service.endswith("--method ops\n")
    kept = replayed(methods="raw").payload["answer"]
    exec("\n".join(kept["library"]), known)  # noqa: S102 - as above
    assert known["alarms"] == [] and kept["service"] is None


def told(method, age="", *, keyed=True):
    contender = method_contender("it", method)
    return deployment(contender.maturing(age) if age else contender, HowReplayed(keyed=keyed))


def test_outcomes_of_one_age_are_asked_for_where_that_was_best():
    library, service, note = told(AUTO, "7d", keyed=False)
    assert "hold each outcome back until it is 7d old" in note and "Calibrator('auto')" in library
    assert service.splitlines()[-1] == "calibeat serve --store calibeat.db --method auto --mature 7d"


def test_a_log_that_is_best_without_its_keys_is_one_stream():
    """Keys say nothing: one stream learns fastest, and the code that is shown has no keys."""
    keys = RNG.integers(0, 400, 4000)
    result = replayed(keys=keys, methods="ops")
    assert result.best == "OPS without keys"
    answer = result.payload["answer"]
    assert "Calibrator('ops')" in "\n".join(answer["library"]) and "one stream" in answer["note"]
    assert answer["service"][-1].endswith("--method ops")


def test_a_pooled_start_is_for_python():
    contenders = [method_contender("raw", BM), method_contender("auto", AUTO)]
    pooled = with_key_variants(contenders)[0][-1]
    assert pooled.name == "AUTO with a pooled start"
    library, service, note = deployment(pooled, HowReplayed(keyed=True))
    assert "Bank('auto', prior=\"pooled\")" in library and service is None and "pooled start is for Python" in note
    known = {"past_keys": [1], "past_scores": [0.3], "past_outcomes": [1], "key": 1, "score": 0.4, "outcome": 1}
    exec(library, known)  # noqa: S102 - as above
    assert len(known["bank"]) == 1


def test_what_is_not_ours_is_watched():
    better = np.clip(SCORES**2, 0.0, 1.0)
    result = calibeat.backtest(SCORES, OUTCOMES, methods="fps", rivals={"theirs": better}, warmup=100)
    assert result.best == "theirs"
    answer = result.payload["answer"]
    known = {"forecast": 0.4, "outcome": 1}
    exec("\n".join(answer["library"]), known)  # noqa: S102 - as above
    assert known["alarms"] == [] and answer["service"] is None
    assert answer["note"].startswith("Forecasts that stand in the log, as 'theirs'.")


def test_a_method_of_other_scores_is_deployed_as_itself():
    contenders = [method_contender("raw", BM), method_contender("auto", AUTO)]
    other = with_others(contenders, {"score 2": "p_new"}, asked=False)[0][-1]
    assert other.name == "AUTO of p_new"
    library, service, note = deployment(other, HowReplayed())
    assert "Calibrator('auto')" in library and service is not None and "'p_new'" in note
