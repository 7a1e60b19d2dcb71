"""`Bank.run(mature=)`: each key as `Calibrator.run(mature=)` alone."""

from __future__ import annotations

import numpy as np
import pytest
from banks import IN_A_ROW, events
from conformance import same

import calibeat.hosts.keyed_rows
from calibeat import HOPS, TOPS, Bank, Calibrator, Method

TIMES = np.datetime64("2024-01-01") + np.cumsum(np.arange(300) % 4).astype("timedelta64[m]")


@pytest.mark.parametrize("method", IN_A_ROW.values(), ids=IN_A_ROW)
def test_each_key_is_a_calibrator_alone(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "_WORTH_A_THREAD", 10)
    keys, scores, outcomes = events(300, 7)
    for threads in (1, 3):
        bank = Bank(method, seed=4, threads=threads)
        forecasts = bank.run(keys, scores, outcomes, mature="2h", times=TIMES)
        for key in set(keys.tolist()):
            mine = keys == key
            alone = Calibrator(method, seed=4, stream=key)
            same(forecasts[mine], alone.run(scores[mine], outcomes[mine], mature="2h", times=TIMES[mine]))


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


def test_the_statistics_are_of_what_was_issued() -> None:
    keys, scores, outcomes = events(60, 3)
    bank = Bank(HOPS)
    same(bank.run(keys, scores, outcomes, mature=100, finish=True), scores)
    table = bank.table
    assert table["outcomes"].sum() == 60
    same(table["log_loss"], table["raw_log_loss"])


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
