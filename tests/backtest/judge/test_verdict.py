"""Verdicts, intervals and legends that agree with one another and with what is possible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streams import drifting
from tallies import said_of, tallied

import calibeat
from calibeat import F99, HOPS, OPS
from calibeat.backtest.judge import certificates as certificates_module
from calibeat.backtest.judge.verdict import legend
from calibeat.report import html
from calibeat.report.text import page

N = 1200
SCORES, OUTCOMES = drifting(N)


def steps(rng, parts=9):
    """A gain that changes slowly and is always there, but now large and now small."""
    raw = 1.2 + rng.exponential(0.01, 900)
    return raw, raw - np.repeat(0.01 + rng.random(parts) ** 6, 900 // parts)


def test_no_interval_leaves_the_possible_range():
    """Neither loss is below zero: a difference is not below what the other lost, nor above what this one lost."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        raw = np.repeat(rng.exponential(1.0, 9) ** 3, 100)
        boot = tallied(raw=raw, it=0.1 * raw)
        d, low, high = boot.difference("it", "raw", "log_loss")
        assert -boot.measured("raw", "log_loss") <= low <= d <= high <= boot.measured("it", "log_loss")
        back = boot.difference("raw", "it", "log_loss")
        assert back[0] == -d and -boot.measured("it", "log_loss") <= back[1] <= back[2] <= boot.measured(
            "raw", "log_loss"
        )


def test_the_table_of_a_drifting_log_stays_in_range():
    rng = np.random.default_rng(3)
    scores = rng.random(4000)
    outcomes = rng.random(4000) < np.where(np.arange(4000) < 2000, scores, 1.0 - scores)
    table = calibeat.backtest(scores, outcomes).table
    for measure in ("log_loss", "brier", "ce"):
        assert np.all(table[f"{measure}_low"][1:] >= -table[measure][0] - 1e-12)
        assert np.all(table[f"{measure}_high"][1:] <= table[measure][1:] + 1e-12)


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


# ---- F99 ---------------------------------------------------------------------------------------------------------


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


# ---- a reversed score --------------------------------------------------------------------------------------------


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


# ---- certificates ------------------------------------------------------------------------------------------------


def test_a_promise_in_expectation_is_not_broken_by_one_draw(monkeypatch):
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops,hops")
    rows = [row for row in result.payload["certificates"] if row["method"] == "hops"]
    assert rows and all(row["in_expectation"] and row["promised"] for row in rows)
    monkeypatch.setattr(certificates_module.bounds, "hops_calibration", lambda *_: 0.0)
    above = calibeat.backtest(SCORES, OUTCOMES, methods={"ops": OPS, "hops": HOPS})
    text = html(above.payload)
    assert "above, in this draw" in text and ">broken<" not in text


def test_auto_and_ops_are_compared_without_the_clip():
    """OPS may give an outcome less than 1e-5; the theorem counts all of that loss."""
    rng = np.random.default_rng(7)
    scores = np.full(6000, 1e-5)
    outcomes = rng.random(6000) < 0.5
    outcomes[:5000] = False
    result = calibeat.backtest(scores, outcomes.astype(int), methods="auto,ops", keep_forecasts=True, warmup=0)
    row = next(row for row in result.payload["certificates"] if row["method"] == "auto")
    y, losses = outcomes.astype(float), {}
    for name in ("auto", "ops"):
        p = result.forecasts[name]
        losses[name] = -np.log(np.where(y == 1.0, p, 1.0 - p)).sum()
    assert (np.where(y == 1.0, result.forecasts["ops"], 1.0) < 1e-5).any()  # the clip has something to hide
    assert row["observed"] == pytest.approx(losses["auto"] - losses["ops"], rel=1e-9)
    assert row["holds"] and row["promised"] and math.isfinite(row["observed"])
