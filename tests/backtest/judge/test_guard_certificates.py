"""The theorems beside what was observed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from streams import drifting

import calibeat
from calibeat import AUTO, GAUTO, GOPS, OPS, Guard, bounds, metrics

SCORES, OUTCOMES = drifting(3000)


def test_guards_have_certificates_beside_their_experts():
    strict = replace(AUTO, guard=Guard(strict=40))
    other = replace(OPS, guard=Guard(bins=7))
    methods = {"ops": OPS, "gops": GOPS, "gauto": GAUTO, "strict": strict, "other": other}
    result = calibeat.backtest(SCORES, OUTCOMES, methods=methods, warmup=0, keep_forecasts=True)
    payload = result.payload() if callable(result.payload) else result.payload
    found = {(c["method"], c["what"]): c for c in payload["certificates"] if "Theorem" in c["statement"]}
    T = len(SCORES)
    assert found["gops", "calibration error"]["bound"] == bounds.guard_calibration(T)
    assert found["strict", "calibration error"]["bound"] == bounds.guard_strict_calibration(T, 40)
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
