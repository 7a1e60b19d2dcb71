"""The one damped Newton method: weights count as repetitions do, and the optimum is an optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibeat.backtest.replay.tally import ScoreTally
from calibeat.core.fit import derivatives, fit
from calibeat.core.method import OBS, OPS, PRESETS
from calibeat.metrics import best_parameters

EMPTY = np.empty(0)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.booleans(), st.integers(1, 5)), min_size=2, max_size=12),
    st.sampled_from([1, 2, 3]),
)
def test_a_weight_of_three_is_three_events(events: list[tuple[float, bool, int]], d: int) -> None:
    x, y, w = (np.array(column, dtype=float) for column in zip(*events, strict=True))
    times = w.astype(int)
    bend = np.cos(x)
    weighted = fit(d, x, bend, y, w, 0, len(x), 0.0, 0.0, 0.0, 5.0)
    many = [np.repeat(column, times) for column in (x, bend, y)]
    repeated = fit(d, *many, EMPTY, 0, int(times.sum()), 0.0, 0.0, 0.0, 5.0)
    at = [derivatives(d, x, bend, y, w, 0, len(x), *theta)[:3] for theta in (weighted, repeated)]
    if np.linalg.norm(weighted) < 4.9:
        np.testing.assert_allclose(at, 0.0, atol=1e-6)
    else:
        assert np.linalg.norm(repeated) == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize("name", ["ops", "obs"])
def test_hindsight_by_ranks_is_hindsight(name: str) -> None:
    """Scores counted by rank give the parameters and the loss that all the scores give, within the stated error."""
    rng = np.random.default_rng(1)
    f = 1.0 / (1.0 + np.exp(-rng.normal(0.0, 2.0, 4000)))
    y = (rng.random(4000) < f**1.5).astype(float)
    tally, method = ScoreTally(), PRESETS[name]
    tally.count(f, y, np.ones(4000, dtype=np.int64))
    found = tally.least_loss(method)
    assert found is not None
    np.testing.assert_allclose(found[1], best_parameters(name, f, y), atol=2e-3)
    assert tally.distinct > 1000


def test_hindsight_without_events_or_features() -> None:
    assert ScoreTally().least_loss(OPS) is None
    assert ScoreTally().least_loss(PRESETS["bm"]) is None
    tally = ScoreTally()
    tally.count(np.array([0.3, 0.7]), np.array([0.0, 1.0]), np.array([0, -1]))
    assert tally.least_loss(OBS) is None
    assert tally.least_loss(OBS, warmup=True) is not None
