"""Two periods of a log, recomputed with the metrics."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import InvalidInput, metrics
from calibeat.backtest.read import rows as row_reader

N = 400
SCORES, OUTCOMES = drifting(N)
TIMES = np.datetime64("2024-05-30T00:00", "m") + np.arange(N) * np.timedelta64(15, "m")
LATE = np.datetime64("2024-06-01") <= TIMES


@pytest.mark.parametrize("cut", [None, 90])
def test_each_period_is_judged_apart(cut, monkeypatch):
    if cut is not None:
        monkeypatch.setattr(row_reader, "CHUNK", cut)
        monkeypatch.setattr(row_reader, "FIRST_EVENTS", 0)
    result = calibeat.backtest(
        SCORES,
        OUTCOMES,
        None,
        TIMES,
        methods=["ops", "tops"],
        split="2024-06-01",
        warmup=20,
        bins=7,
        keep_forecasts=True,
    )
    before, after = result.payload["periods"]
    assert (before["name"], after["name"]) == ("before 2024-06-01T00:00:00", "from 2024-06-01T00:00:00")
    for period, rows in ((before, ~LATE & (np.arange(N) >= 20)), (after, LATE)):
        assert period["judged"] == rows.sum() and period["base_rate"] == pytest.approx(OUTCOMES[rows].mean())
        for name, forecasts in result.forecasts.items():
            y, p = OUTCOMES[rows], forecasts[rows]
            found = period["methods"][name]
            assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p, clip=1e-5))
            assert found["brier"] == pytest.approx(metrics.brier_score(y, p))
            assert found["ce"] == pytest.approx(metrics.calibration_error(y, p, bins=7))
    told = [note for note in result.payload["data"]["notes"] if note.startswith(("Before 2024", "From 2024"))]
    assert len(told) == 2 and f"{before['judged']} judged events: log-loss " in told[0] and "TOPS 0." in told[1]


def test_a_period_may_be_empty_and_a_moment_may_have_a_zone():
    one = calibeat.backtest(SCORES, OUTCOMES, None, TIMES, methods="ops", split="2030-01-01").payload
    assert [period["judged"] for period in one["periods"]] == [N - N // 20, 0]
    assert one["periods"][1]["methods"]["ops"] == {"log_loss": None, "brier": None, "ce": None}
    assert any("0 judged events: log-loss nothing to compare" in note for note in one["data"]["notes"])
    zoned = {"time_zone": "+02:00", "split": "2024-06-01", "methods": "ops", "warmup": 0}
    two = calibeat.backtest(SCORES, OUTCOMES, None, TIMES, **zoned).payload["periods"]
    assert two[1]["judged"] == LATE.sum()


def test_a_moment_that_is_none_or_has_nothing_to_split():
    with pytest.raises(InvalidInput, match=r"split must be a date .* got 'soon'"):
        calibeat.backtest(SCORES, OUTCOMES, None, TIMES, split="soon")
    with pytest.raises(InvalidInput, match="two periods need dates of the events, got none; say times="):
        calibeat.backtest(SCORES, OUTCOMES, split="2024-06-01")
    assert calibeat.backtest(SCORES, OUTCOMES, methods="ops").payload["periods"] == []
