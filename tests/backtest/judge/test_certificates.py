"""The theorems beside what was observed: what is promised, what is a yardstick."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from streams import drifting, random

import calibeat
from calibeat import GAUTO, GOPS, HOPS, OPS, Guard, bounds, metrics
from calibeat.backtest.judge import certificates as certificates_module
from calibeat.report import html

N = 3000
SCORES, OUTCOMES = drifting(N)
METHODS = ["ops", "tops", "hops"]


def test_certificates_hold_where_outcomes_come_at_once():
    scores, outcomes = random(2000)
    result = calibeat.backtest(
        scores, outcomes, methods=["auto", "ops", "tops", "hops"], warmup=50, keep_forecasts=True
    )
    said = {(entry["method"], entry["what"]): entry for entry in result.payload["certificates"]}
    assert set(said) == {
        ("ops", "regret"),
        ("auto", "log-loss"),
        ("tops", "sharpness"),
        ("hops", "calibration error"),
        ("hops", "sharpness"),
        ("hops", "Brier score"),
    }
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
    late = calibeat.backtest(SCORES[:500], OUTCOMES[:500], methods=["ops", "tops"], delay=10).payload["certificates"]
    assert late and all("late" in entry["applies"] for entry in late)
    other = calibeat.backtest(SCORES[:500], OUTCOMES[:500], methods=["ops", "tops", "hops"], bins=20).payload
    assert [entry["what"] for entry in other["certificates"]] == ["regret"]
    keyed = calibeat.backtest(SCORES[:500], OUTCOMES[:500], [1, 2] * 250, methods=["ops", "tops"]).payload
    assert keyed["certificates"] == []
    assert calibeat.backtest(SCORES[:9], OUTCOMES[:9], methods=["ops"]).payload["certificates"] == []
    assert calibeat.backtest(SCORES[:99], OUTCOMES[:99], methods=["tops"]).payload["certificates"] == []


def test_promises_are_told_from_yardsticks():
    methods = "auto,ops,tops,hops"
    said = calibeat.backtest(SCORES, OUTCOMES, methods=methods).payload["certificates"]
    assert {entry["what"] for entry in said if not entry["promised"]} == {"regret"} and len(said) == 6
    late = calibeat.backtest(SCORES, OUTCOMES, methods=methods, delay=3).payload["certificates"]
    assert len(late) == 6 and not any(entry["promised"] for entry in late)


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


def test_guards_have_certificates_beside_their_experts():
    other = replace(OPS, guard=Guard(bins=7))
    methods = {"ops": OPS, "gops": GOPS, "gauto": GAUTO, "other": other}
    result = calibeat.backtest(SCORES, OUTCOMES, methods=methods, warmup=0, keep_forecasts=True)
    payload = result.payload() if callable(result.payload) else result.payload
    found = {(c["method"], c["what"]): c for c in payload["certificates"] if "Theorem" in c["statement"]}
    T = len(SCORES)
    assert found["gops", "calibration error"]["bound"] == bounds.guard_calibration(T)
    assert found["gauto", "calibration error"]["observed"] == pytest.approx(
        metrics.calibration_error(OUTCOMES, result.forecasts["gauto"])
    )
    excess = T * (
        metrics.log_loss(OUTCOMES, result.forecasts["gops"]) - metrics.log_loss(OUTCOMES, result.forecasts["ops"])
    )
    assert found["gops", "log-loss"]["observed"] == pytest.approx(excess, abs=1e-6)
    assert ("other", "calibration error") not in found and ("other", "log-loss") in found
    assert ("gauto", "log-loss") not in found  # AUTO itself was not replayed
    guarded = [c for (name, _), c in found.items() if name != "ops"]
    assert all(c["holds"] and c["promised"] and c["in_expectation"] for c in guarded)
