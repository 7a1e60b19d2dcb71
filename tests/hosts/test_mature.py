"""`run(mature=)` on every host: outcomes are learnt at one age; until the first is, forecasts are the raw scores."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import group_streams
import multi_streams
import numpy as np
import pandas as pd
import pytest
from banks import IN_A_ROW, Kind, events, kinds
from conformance import same
from streams import drifting, variants

from calibeat import HOPS, TOPS, Bank, Calibrator, Groups, InvalidInput, Monitor, MultiBank, MultiCalibrator
from calibeat.core import layout

N, AGE = 160, 23
HOSTS: dict[str, Any] = {name: partial(Calibrator, method, seed=5) for name, method in variants().items()}
HOSTS |= {"groups": lambda: Calibrator(groups=Groups(["country", "device"], cells=64, seed=11))}
HOSTS |= {f"{K} classes": partial(MultiCalibrator, K) for K in (2, 3, 70)}
HOSTS |= {"ots": partial(MultiCalibrator, 3, "ots"), "raw": partial(MultiCalibrator, 3, "raw")}


def stream_of(host: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Scores, outcomes, and the groups of the events."""
    if isinstance(host, MultiCalibrator):
        return *multi_streams.drifting(N, len(host.classes)), {}
    if "groups" in host.params:
        scores, outcomes, columns = group_streams.world(N, 2, 12, seed=4)
        return scores, outcomes, {"groups": columns}
    return *drifting(N), {}


def state_of(host: Any) -> Any:
    """The row. Of K classes it also sums what the forecasts that were issued left open: raw scores here, not there."""
    row = host.row.copy()
    if isinstance(host, MultiCalibrator) and len(host.classes) > 2:
        row[[layout.SUM, layout.SUM_BEFORE]] = 0.0
    return row


@pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
def test_it_is_a_due_computed_for_them_from_the_first_maturity_on(make: Any) -> None:
    scores, outcomes, more = stream_of(make())
    for due in (None, np.arange(1, N + 1) + np.random.default_rng(3).choice([0, 2, 5, 40, 90], N)):
        mature, plain = make(), make()
        computed = np.arange(N) + 1 + AGE if due is None else np.maximum(due, np.arange(N) + 1 + AGE)
        forecasts = mature.run(scores, outcomes, due=due, mature=AGE, **more)
        first = computed.min()
        np.testing.assert_allclose(forecasts[:first], scores[:first], rtol=0, atol=1e-15)
        same(forecasts[first:], plain.run(scores, outcomes, due=computed, **more)[first:])
        same(state_of(mature), state_of(plain))


@pytest.mark.parametrize("mature", ["30min", "1800s", timedelta(minutes=30), np.timedelta64(30, "m")])
def test_an_age_in_time(mature: Any) -> None:
    scores, outcomes = drifting(N)
    times = np.datetime64("2024-01-01") + np.cumsum(np.arange(N) % 5).astype("timedelta64[m]")
    due = np.maximum(np.searchsorted(times, times + np.timedelta64(30, "m")), np.arange(N) + 1)
    expected = Calibrator(TOPS).run(scores, outcomes, due=due)[due.min() :]
    for column in (times, pd.Series(times)):
        same(Calibrator(TOPS).run(scores, outcomes, mature=mature, times=column)[due.min() :], expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [*IN_A_ROW, "three classes"])
def test_each_key_is_a_calibrator_alone(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.keyed_rows._WORTH_A_THREAD", 10)
    keys, scores, outcomes = events(300, 7)
    times = np.datetime64("2024-01-01") + np.cumsum(np.arange(300) % 4).astype("timedelta64[m]")
    if name == "three classes":
        scores, outcomes = multi_streams.drifting(300, 3)
    method = IN_A_ROW.get(name)
    bank = Bank(method, seed=4, threads=threads) if method else MultiBank(3, threads=threads)
    forecasts = bank.run(keys, scores, outcomes, mature="2h", times=times)
    for key in set(keys.tolist()):
        mine = keys == key
        alone = Calibrator(method, seed=4, stream=key) if method else MultiCalibrator(3)
        same(forecasts[mine], alone.run(scores[mine], outcomes[mine], mature="2h", times=times[mine]))


def test_an_age_in_events_counts_positions_of_the_batch() -> None:
    keys, scores, outcomes = events(300, 7)
    due = np.random.default_rng(0).integers(1, 90, 300) + np.arange(300)
    computed = np.maximum(due, np.arange(300) + 41)
    forecasts = Bank(HOPS).run(keys, scores, outcomes, due=due, mature=40)
    plain = Bank(HOPS).run(keys, scores, outcomes, due=computed)
    for key in set(keys.tolist()):
        at = np.flatnonzero(keys == key)
        raw = at < computed[at].min()
        assert raw.any() and not raw.all()
        same(forecasts[at[raw]], scores[at[raw]])
        same(forecasts[at[~raw]], plain[at[~raw]])


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


@kinds
def test_what_is_counted_is_what_was_issued(kind: Kind) -> None:
    """The statistics of a key, and its monitor, are of the raw scores while nothing has matured."""
    keys, scores, outcomes = kind.events(60, 3)
    bank = kind.bank()
    np.testing.assert_allclose(bank.run(keys, scores, outcomes, mature=100, finish=True), scores, rtol=0, atol=1e-15)
    table = bank.table
    assert table["outcomes"].sum() == 60
    np.testing.assert_allclose(table["log_loss"], table["raw_log_loss"], rtol=1e-12)
    cal, raw = Calibrator(HOPS, monitor=Monitor()), Monitor()
    scores, outcomes = drifting(N)
    cal.run(scores[:AGE], outcomes[:AGE], mature=AGE, finish=True)
    raw.run(scores[:AGE], outcomes[:AGE], scores=scores[:AGE])
    assert cal.monitor is not None and cal.monitor.evidence == raw.evidence


def test_a_raw_score_of_zero_while_nothing_has_matured_leaves_the_evidence_finite() -> None:
    scores, labels = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]] * 30), np.array([0, 1] * 30)
    cal = MultiCalibrator(3)
    forecasts = cal.run(scores, labels, mature=5)
    assert forecasts[0].tolist() == [0.0, 1.0, 0.0]  # the label is 0
    assert np.isfinite(cal.evidence)


def test_a_member_has_it_too() -> None:
    scores, outcomes = np.linspace(0.1, 0.9, 30), np.arange(30) % 2
    bank = Bank(TOPS)
    bank.predict("a", 0.5)
    times = np.arange(30) * 60
    same(bank["a"].run(scores, outcomes, mature="5min", times=times)[:5], scores[:5])


def test_keys_that_start_from_a_pool_forecast_what_it_has_learnt() -> None:
    """A key whose first event comes before the pool has learnt anything forecasts the raw score; others do not."""
    keys, scores, outcomes = np.arange(40), np.full(40, 0.3), np.ones(40)
    forecasts = Bank(TOPS, prior="pooled").run(keys, scores, outcomes, mature=20)
    same(forecasts[:21], scores[:21])
    assert (forecasts[22:] > 0.31).all()
    bank = Bank(TOPS, prior="pooled")
    bank.run(keys, scores, outcomes)
    assert bank.run([99], [0.3], [1], mature=5)[0] > 0.31
    same(Bank(TOPS, prior="pooled").run(keys, scores, outcomes, mature=100), scores)


def test_nothing_happens_if_the_age_is_wrong() -> None:
    cal = Calibrator(TOPS)
    with pytest.raises(InvalidInput, match="mature must be"):
        cal.run([0.5], [1], mature="soon")
    assert cal.events == 0
