"""A member of a bank: its receipts are learnt once, it keeps little, and it does what a calibrator does."""

from __future__ import annotations

import pickle
from math import nan
from pathlib import Path

import numpy as np
import pytest
from conformance import delays, same, state_of

from calibeat import AUTO, OPS, TOPS, Bank, Calibrator, Forecast, OutcomeConflict

pandas = pytest.importorskip("pandas")


def test_receipts_delivered_again_are_learnt_once_also_after_a_restart(tmp_path: Path) -> None:
    bank = Bank(TOPS)
    bank.run(["a", "b", "c"] * 50, np.linspace(0, 1, 150), [0, 1] * 75)
    waiting = {key: [bank.predict(key, 0.5) for _ in range(5)] for key in ("a", "b", "new")}
    for key, receipts in waiting.items():
        bank.update(key, receipts[3], 1)
        bank.update(key, Forecast.from_json(receipts[3].to_json()), 1)
        with pytest.raises(OutcomeConflict, match="already learnt, 1, got 0"):
            bank.update(key, receipts[3], 0)
    bank.run(["a"] * 100, np.linspace(0, 1, 100), [0, 1] * 50)  # a batch in between
    bank.save(tmp_path / "bank")
    for twin in (bank, Bank.load(tmp_path / "bank"), pickle.loads(pickle.dumps(bank))):  # noqa: S301 - our own bytes
        before = twin.table["outcomes"].tolist()
        for key, receipts in waiting.items():
            twin.update(key, receipts[3], 1)
            with pytest.raises(OutcomeConflict):
                twin.update(key, receipts[3], 0)
        assert twin.table["outcomes"].tolist() == before
        for key, receipts in waiting.items():
            for receipt in (receipts[0], receipts[4], receipts[0], receipts[1], receipts[2], receipts[4]):
                twin.update(key, Forecast.from_json(receipt.to_json()), 0)
        assert twin.table["outcomes"].tolist() == [155, 55, 50, 5]
        assert [twin[key].events for key in twin] == [155, 55, 50, 5]


def test_ledgers_of_keys_without_open_events_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.keyed_rows.MOST_LEDGERS", 10)
    bank = Bank(OPS)
    receipts = [bank.predict(key, 0.5) for key in range(40)]
    assert len(bank._rows.ledgers) == 40
    for key in range(30):
        bank.update(key, receipts[key], 1)
    for key in range(40, 140):
        bank.update(key, bank.predict(key, 0.5), 1)
    assert len(bank._rows.ledgers) <= 2 * 40
    for key in range(30):
        assert bank.update(key, receipts[key], 1) == "repeated"  # with a ledger or without one
    for key in range(30, 40):
        assert bank.update(key, receipts[key], 1) == "learnt"
    assert bank.table["outcomes"].tolist() == [1] * 140


def test_many_more_keys_than_are_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.bank._MOST_STREAMS", 8)
    bank, twin = Bank(TOPS), Bank(TOPS)
    waiting = []
    for i in range(100):
        waiting.append((i % 23, bank.predict(i % 23, 0.3)))
        if i % 3:
            key, receipt = waiting.pop(i % len(waiting))
            assert bank.update(key, receipt, 1) == "learnt" and bank.update(key, receipt, 1) == "repeated"
    assert len(bank._streams) <= 8
    for key, receipt in waiting:
        bank.update(key, receipt, 1)
    twin.run([i % 23 for i in range(100)], [0.3] * 100, [nan] * 100)
    assert bank.table["events"].tolist() == bank.table["outcomes"].tolist() == twin.table["events"].tolist()


@pytest.mark.parametrize("prior", [None, "pooled"])
def test_late_outcomes_give_the_type_and_the_bits_of_a_calibrator(prior: str | None) -> None:
    scores, due = pandas.Series(np.linspace(0.1, 0.9, 60)), delays(60)
    outcomes = np.arange(60) % 3 == 0
    bank, alone = Bank(AUTO, prior=prior), Calibrator(AUTO, stream="k")
    bank.predict("k", 0.5)
    alone.predict(0.5)
    member = bank["k"]
    for finish in (False, True):
        found, wanted = (each.run(scores, outcomes, due=due, finish=finish) for each in (member, alone))
        assert type(found) is type(wanted) is type(member.run(scores, outcomes)) is pandas.Series
        alone.run(scores, outcomes)
        same(found.to_numpy(), wanted.to_numpy())
    assert state_of(member) == state_of(alone)
    assert bank.events == bank["k"].events == alone.events
    assert bank.table["outcomes"].tolist() == [alone.outcomes]


@pytest.mark.parametrize("method", ["ops", "tops", "auto"])
def test_single_events_have_the_bits_of_a_batch(method: str) -> None:
    rng = np.random.default_rng(5)
    scores, outcomes = rng.random(60), (rng.random(60) < 0.4).astype(int)
    bank, batch = Bank(method), Bank(method)
    forecasts = []
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        made = bank.predict("paris", score)
        bank.update("paris", made, outcome)
        bank.update("paris", made, outcome)  # a repeat changes nothing
        forecasts.append(made.probability)
    assert forecasts == batch.run(["paris"] * 60, scores, outcomes).tolist()
    assert np.array_equal(bank.rows(["paris"]), batch.rows(["paris"]))
