"""How late outcomes were."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat.backtest.replay.delays import Sizes

N = 1200
SCORES, OUTCOMES = drifting(N)
METHODS = ["ops", "tops", "hops"]


def test_delays_are_counted():
    times = np.arange(N) * 60
    result = calibeat.backtest(
        SCORES, OUTCOMES, times=times, outcome_times=times + 3600, methods=["ops"], warmup=100
    ).payload["delay"]
    assert result["unit"] == "time" and set(result["quantiles"].values()) == {3600.0}
    assert set(result["events_quantiles"].values()) == {59.0}
    assert (result["never"], result["too_late"]) == (0, 60) and "60 arrived after the last" in result["sentence"]
    assert sum(result["histogram"]["count"]) == N
    assert len(result["histogram"]["edges"]) == len(result["histogram"]["count"]) + 1
    at_once = calibeat.backtest(SCORES, OUTCOMES, methods=["ops"], warmup=100)
    assert result["immediate"]["ops"]["log_loss"] == at_once.table["log_loss"][1]
    assert result["immediate"]["ops"]["ce"] == at_once.table["ce"][1]
    assert at_once.payload["delay"] is None
    never = calibeat.backtest(SCORES[:50], OUTCOMES[:50], delay=10_000, methods=["ops"]).payload["delay"]
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
