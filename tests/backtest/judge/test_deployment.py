"""The code that a page gives is the replay that the backtest did: it runs as it stands, with the same forecasts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from class_logs import NAMES, stream
from group_streams import world

import calibeat
from calibeat import Groups
from calibeat.backtest.judge.deployment import HowReplayed, deployment
from calibeat.backtest.replay.contenders import method_contender, with_key_variants
from calibeat.core.method import AUTO, BM
from calibeat.report.page import html

N = 1500
RNG = np.random.default_rng(5)
SCORES, OUTCOMES, CODES = world(N, 2, 4, seed=2)
SCORES = 0.02 + 0.9 * SCORES**2
MISSING = np.where(np.arange(N) % 17 == 3, np.nan, OUTCOMES)
TIMES = np.datetime64("2024-05-01T00:00:00", "us") + np.arange(N) * np.timedelta64(7, "m")
KNOWN = TIMES + (95e6 * RNG.exponential(30.0, N)).astype("timedelta64[us]")  # many between the same two scores
NEVER = np.where(np.isnan(MISSING), np.datetime64("NaT"), KNOWN)
KEYS = np.array(["one", "two", "three"])[RNG.integers(0, 3, N)]
GROUPS = {"a": CODES[:, 0], "b": CODES[:, 1]}

LOGS = {
    "at once": {},
    "missing outcomes": {"outcomes": MISSING},
    "percent": {"scores": 100.0 * SCORES, "score_kind": "percent"},
    "logits": {"scores": np.log(SCORES / (1.0 - SCORES)), "score_kind": "logit"},
    "late by events": {"delay": 60, "outcomes": MISSING},
    "late by time": {"delay": "2h", "times": TIMES},
    "times of outcomes": {"times": TIMES, "outcome_times": KNOWN},
    "times, some never": {"outcomes": MISSING, "times": TIMES, "outcome_times": NEVER},
    "one age of forecasts": {"mature": 40},
    "one age in time": {"mature": "3h", "times": TIMES, "outcome_times": KNOWN},
    "one age, some never": {"outcomes": MISSING, "mature": "3h", "times": TIMES, "outcome_times": NEVER},
    "groups": {"groups": GROUPS},
    "groups, late": {"groups": GROUPS, "outcomes": MISSING, "times": TIMES, "outcome_times": NEVER},
    "keys": {"keys": KEYS},
    "keys, missing and late": {"keys": KEYS, "outcomes": MISSING, "delay": 30},
    "keys, percent and times": {
        "keys": KEYS,
        "scores": 100.0 * SCORES,
        "score_kind": "percent",
        "times": TIMES,
        "outcome_times": KNOWN,
    },
}


def code_on_page(result):
    """As a reader copies it."""
    page = html(result.payload)
    block = re.search(r'id="deploy".*?<pre><code>(.*?)</code></pre>', page, re.DOTALL)[1]
    return block.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


@pytest.mark.parametrize("name", LOGS)
def test_the_code_on_the_page_is_the_replay(name):
    log = {"scores": SCORES, "outcomes": OUTCOMES} | LOGS[name]
    result = calibeat.backtest(**log, methods="auto", keep_forecasts=True, warmup=0)
    assert result.best != "raw"
    names = {"scores", "outcomes", "keys", "times", "outcome_times", "groups"}
    known = {f"past_{each}": log[each] for each in names & set(log)}
    new = {"score": float(log["scores"][0]), "outcome": 1, "key": "new", "groups": {"a": 1, "b": 2}}
    space = known | new
    exec(code_on_page(result), space)  # noqa: S102 - what the page tells people to run
    np.testing.assert_array_equal(space["forecasts"], result.forecasts[result.best])
    assert 0.0 <= space["forecast"].probability <= 1.0


@pytest.mark.parametrize("log", [{}, {"delay": 50}, {"mature": 30}, {"score_kind": "percent"}])
def test_so_is_that_of_many_classes(log):
    P, y = stream(N)
    labels = [NAMES[k] for k in y]
    given = 100.0 * P if log.get("score_kind") else P
    result = calibeat.backtest(given, labels, classes=list(NAMES), methods="multi", keep_forecasts=True, **log)
    assert result.best == "multi"
    space = {"past_scores": given, "past_labels": labels, "scores": given[0], "label": labels[0]}
    exec(code_on_page(result), space)  # noqa: S102 - as above
    np.testing.assert_array_equal(space["forecasts"], result.forecasts["multi"])


def test_new_keys_are_served_also_with_a_pooled_start():
    pooled = with_key_variants([method_contender("raw", BM), method_contender("auto", AUTO)])[0][-1]
    code, service, _ = deployment(pooled, HowReplayed(keyed=True))
    space = {"past_keys": KEYS, "past_scores": SCORES, "past_outcomes": OUTCOMES, "key": "new", "score": 0.4}
    exec(code, space | {"outcome": 1})  # noqa: S102 - as above
    assert service is None and "bank.predict(key, score)" in code


def test_groups_that_were_chosen_are_deployed_as_they_are():
    frame = {"p": SCORES, "y": OUTCOMES, **GROUPS}
    mine = Groups(["a", "b"], crossings=[], cells=4096)
    result = calibeat.backtest(frame, score="p", outcome="y", groups=mine, methods="ops", keep_forecasts=True)
    assert result.best == "AUTO + groups"
    space = {"past_scores": SCORES, "past_outcomes": OUTCOMES, "past_groups": GROUPS, "groups": (1, 2)}
    exec(code_on_page(result), space | {"score": 0.4, "outcome": 1}, space)  # noqa: S102 - as above
    assert space["cal"].params["groups"]["spread"].keys() == {"a", "b"}
    assert "# past_groups: a data frame or a dict of columns; groups, below: a dict of values" in code_on_page(result)
    np.testing.assert_array_equal(space["forecasts"], result.forecasts["AUTO + groups"])


def test_outcomes_of_one_age_are_asked_for_in_words_too():
    contender = method_contender("auto", AUTO)
    code, service, note = deployment(contender, HowReplayed(mature=40))
    assert "mature=40)" in code and "known and 40 forecasts old" in code and "40 forecasts old" in note
    assert service.splitlines()[-1].endswith("--method auto --mature 40")
    code, service, note = deployment(contender.maturing("7d"), HowReplayed(outcome_times=True))
    call = code.replace("\n", "").replace("    ", " ")
    assert "outcome_times=past_outcome_times, mature='7d', times=past_times,)" in call and "7d old" in note


def test_a_long_call_has_an_argument_a_line():
    past = HowReplayed(keyed=True, score_kind="logit", missing=True, outcome_times=True, mature="7d")
    code, _, _ = deployment(method_contender("auto", AUTO), past)
    lines = code.splitlines()
    at = lines.index("forecasts = bank.run(")
    assert lines[at + 1] == "    past_keys," and "    times=past_times," in lines
