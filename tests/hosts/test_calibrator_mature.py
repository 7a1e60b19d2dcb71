"""`run(mature=)`: outcomes are learnt at one age, and until the first is learnt the forecasts are the raw scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import same
from streams import drifting, variants

from calibeat import HOPS, TOPS, Calibrator, InvalidInput, Method, Monitor

N, AGE = 160, 23


def random_due(n: int) -> Any:
    return np.arange(1, n + 1) + np.random.default_rng(3).choice([0, 2, 5, 40, 90], n)


@pytest.mark.parametrize("method", variants().values(), ids=variants())
def test_it_is_a_due_computed_for_them_from_the_first_maturity_on(method: Method) -> None:
    scores, outcomes = drifting(N)
    for due in (None, random_due(N)):
        mature, plain = Calibrator(method, seed=5), Calibrator(method, seed=5)
        computed = np.arange(N) + 1 + AGE if due is None else np.maximum(due, np.arange(N) + 1 + AGE)
        forecasts = mature.run(scores, outcomes, due=due, mature=AGE)
        first = computed.min()
        same(forecasts[:first], scores[:first])
        same(forecasts[first:], plain.run(scores, outcomes, due=computed)[first:])
        same(np.array(mature.row), np.array(plain.row))


def test_an_age_in_time() -> None:
    scores, outcomes = drifting(N)
    times = np.datetime64("2024-01-01") + np.cumsum(np.arange(N) % 5).astype("timedelta64[m]")
    due = np.maximum(np.searchsorted(times, times + np.timedelta64(30, "m")), np.arange(N) + 1)
    forecasts = Calibrator(TOPS).run(scores, outcomes, mature="30min", times=times)
    same(forecasts[due.min() :], Calibrator(TOPS).run(scores, outcomes, due=due)[due.min() :])


def test_a_stream_that_has_learnt_something_forecasts_from_the_start() -> None:
    scores, outcomes = drifting(N)
    cal, twin = Calibrator(HOPS), Calibrator(HOPS)
    for one in (cal, twin):
        one.run(scores[:50], outcomes[:50])
    same(cal.run(scores[50:], outcomes[50:], mature=7), twin.run(scores[50:], outcomes[50:], due=np.arange(110) + 8))


def test_outcomes_that_never_mature_are_never_learnt() -> None:
    scores, outcomes = drifting(N)
    cal = Calibrator(TOPS)
    same(cal.run(scores, np.full(N, np.nan), mature=N), scores)
    assert cal.outcomes == 0 and cal.events == N
    ending = Calibrator(TOPS)
    same(ending.run(scores, outcomes, mature=N, finish=True), scores)
    assert ending.outcomes == N


def test_a_monitor_watches_what_was_issued() -> None:
    scores, outcomes = drifting(N)
    cal = Calibrator(HOPS, monitor=Monitor())
    raw = Monitor()
    cal.run(scores[:AGE], outcomes[:AGE], mature=AGE, finish=True)
    raw.run(scores[:AGE], outcomes[:AGE], scores=scores[:AGE])
    assert cal.monitor.evidence == raw.evidence


def test_nothing_happens_if_the_age_is_wrong() -> None:
    cal = Calibrator(TOPS)
    with pytest.raises(InvalidInput, match="mature must be"):
        cal.run([0.5], [1], mature="soon")
    assert cal.events == 0
