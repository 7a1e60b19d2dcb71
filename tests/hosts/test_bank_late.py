"""`Bank.run(due=)`: each key as `Calibrator.run(due=)` alone, on its own positions; missing outcomes are not learnt."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW, OTHERS, as_strings, content, events
from conformance import same
from hypothesis import given, settings
from hypothesis import strategies as st

import calibeat.hosts.keyed_rows
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, Calibrator, InvalidInput, Method

ALL = {**IN_A_ROW, **OTHERS}


def own_due(mine: Any, due: Any) -> Any:
    """How many of the key's own events come before position `due`."""
    return np.searchsorted(np.flatnonzero(mine), due[mine])


def random_due(n: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    due = np.arange(1, n + 1) + rng.choice([0, 0, 1, 5, 30, 200], n)
    due[rng.random(n) < 0.1] = n + 3
    return due


@pytest.mark.parametrize("method", ALL.values(), ids=ALL)
@pytest.mark.parametrize("strings", [False, True])
def test_each_key_is_a_calibrator_alone(method: Method, strings: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "_WORTH_A_THREAD", 10)
    keys, scores, outcomes = events(300, 13)
    due = random_due(300)
    names = np.array(as_strings(keys)) if strings else keys
    for threads in (1, 3):
        bank = Bank(method, seed=4, threads=threads)
        forecasts = bank.run(names, scores, outcomes, due=due)
        for key in set(names.tolist()):
            mine = names == key
            alone = Calibrator(method, seed=4, stream=key)
            same(forecasts[mine], alone.run(scores[mine], outcomes[mine], due=own_due(mine, due)))
            assert bank[key].events == mine.sum()
            assert bank[key].outcomes == (due[mine] < 300).sum()


def one_by_one(bank: Bank, keys: Any, scores: Any, outcomes: Any, due: Any) -> Any:
    """What a person would write: before an event, its key learns what has arrived, in the order of the events."""
    receipts: list[Any] = []
    waiting = list(range(len(keys)))
    for i, (key, score) in enumerate(zip(keys.tolist(), scores.tolist(), strict=True)):
        for j in [j for j in waiting if j < i and due[j] <= i and keys[j] == key]:
            bank.update(key, receipts[j], int(outcomes[j]))
            waiting.remove(j)
        receipts.append(bank.predict(key, score))
    for j in [j for j in waiting if due[j] < len(keys)]:
        bank.update(int(keys[j]), receipts[j], int(outcomes[j]))
    return np.array([receipt.probability for receipt in receipts])


@pytest.mark.parametrize("method", [OPS, TOPS, HOPS, AUTO], ids=["ops", "tops", "hops", "auto"])
def test_events_and_batch_agree(method: Method) -> None:
    keys, scores, outcomes = events(120, 7)
    due = random_due(120)
    batch, single = Bank(method), Bank(method)
    same(batch.run(keys, scores, outcomes, due=due), one_by_one(single, keys, scores, outcomes, due))
    assert content(batch) == content(single)


def test_the_pool_learns_outcomes_as_they_arrive() -> None:
    """With every outcome late by the same number of events, the order of arrival is that of the events."""
    keys, scores, outcomes = events(200, 60)
    batch, single = Bank(TOPS, prior="pooled"), Bank(TOPS, prior="pooled")
    due = np.arange(200) + 5
    forecasts = batch.run(keys, scores, outcomes, due=due)
    receipts: list[Any] = []
    for i in range(200):
        if i >= 5:
            single.update(int(keys[i - 5]), receipts[i - 5], int(outcomes[i - 5]))
        receipts.append(single.predict(int(keys[i]), float(scores[i])))
    same(forecasts, np.array([receipt.probability for receipt in receipts]))
    assert content(batch) == content(single)


def test_no_delay_is_no_delay() -> None:
    keys, scores, outcomes = events(300, 13)
    now, late = Bank(AUTO, prior="pooled"), Bank(AUTO, prior="pooled")
    same(now.run(keys, scores, outcomes)[:-1], late.run(keys, scores, outcomes, due=np.arange(1, 301))[:-1])
    assert now.table["outcomes"].sum() == late.table["outcomes"].sum() + 1


@settings(max_examples=40)
@given(data=st.data())
def test_any_delays(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    keys = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    scores = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    outcomes = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, nan]), min_size=n, max_size=n)))
    due = np.arange(n) + np.array(data.draw(st.lists(st.integers(1, 50), min_size=n, max_size=n)))
    bank = Bank(HOPS, seed=1)
    forecasts = bank.run(keys, scores, outcomes, due=due)
    for key in set(keys.tolist()):
        mine = keys == key
        own = np.where(np.isnan(outcomes[mine]), n, own_due(mine, due))
        alone = Calibrator(HOPS, seed=1, stream=key)
        same(forecasts[mine], alone.run(scores[mine], outcomes[mine], due=own))
        assert bank[key].outcomes == ((due < n) & ~np.isnan(outcomes) & mine).sum()


@pytest.mark.parametrize("method", [OPS, HOPS, AUTO], ids=["ops", "hops", "auto"])
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_missing_outcomes_are_forecast_and_not_learnt(method: Method, prior: str | None) -> None:
    keys, scores, outcomes = events(300, 13)
    outcomes[np.random.default_rng(1).random(300) < 0.3] = nan
    bank, single = Bank(method, prior=prior), Bank(method, prior=prior)
    forecasts = bank.run(keys, scores, outcomes)
    said = []
    for key, score, outcome in zip(keys.tolist(), scores.tolist(), outcomes.tolist(), strict=True):
        receipt = single.predict(key, score)
        said.append(receipt.probability)
        if outcome == outcome:  # noqa: PLR0124 - NaN is not
            single.update(key, receipt, int(outcome))
    same(forecasts, np.array(said))
    assert content(bank) == content(single)
    lists = Bank(method, prior=prior)
    same(lists.run(keys.tolist(), scores.tolist(), outcomes.tolist()), forecasts)
    objects = Bank(method, prior=prior)
    same(objects.run(keys, scores, np.array(outcomes.tolist(), dtype=object)), forecasts)


def test_a_member_gives_a_column_for_a_column() -> None:
    pd = pytest.importorskip("pandas")
    scores, outcomes = pd.Series([0.1, 0.2, 0.3], index=[7, 8, 9]), pd.Series([1, 0, 1])
    bank = Bank(OPS)
    bank.predict("a", 0.5)
    found = bank["a"].run(scores, outcomes, due=[2, 3, 3])
    assert type(found) is pd.Series and found.index.tolist() == [7, 8, 9]
    assert type(bank.run(["a"] * 3, scores, outcomes, due=[2, 3, 3])) is pd.Series


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"due": [0, 2]}, "due must be later than its own position 0, got 0 - at row 0"),
        ({"due": [1]}, "same length, got scores 2, due 1"),
        ({"due": [1.0, 2.0]}, "whole numbers"),
        ({"outcomes": [1, 2], "due": [1, 2]}, r"outcome must be 0 or 1, got 2.0|none"),
        ({"outcomes": [1, 0.5]}, "outcome must be 0 or 1, got 0.5 - at row 1"),
        ({"outcomes": [1, "no"]}, "outcome must be 0 or 1, got str 'no' - at row 1"),
        ({"outcomes": [[1], [0]]}, "one-dimensional"),
        ({"outcomes": [np.zeros((2, 2)), np.zeros((2, 3))]}, "one-dimensional"),
        ({"outcomes": [1]}, "same length"),
        ({"outcomes": [1], "due": [1, 2]}, "same length"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    bank = Bank(OPS)
    given_ = {"outcomes": [1, 0], **arguments}
    if message.endswith("none"):  # an outcome that is not needed may be anything
        bank.run(["a", "b"], [0.5, 0.5], **given_)
        return
    with pytest.raises(InvalidInput, match=message):
        bank.run(["a", "b"], [0.5, 0.5], **given_)
    assert len(bank) == 0
