"""A bank: batches in threads, `bank[key]`, keys that come and go, tables, columns, and the pool where keys begin.

That each key is a calibrator alone, by every verb and in every order, is in `test_all_hosts_agree`.
"""

from __future__ import annotations

import copy
import json
import pickle
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pandas as pd
import polars as pl
import pytest
from banks import IN_A_ROW, OTHERS, Kind, as_strings, bytes_of, content, events, kinds
from conformance import same

from calibeat import (
    AIOLI,
    AUTO,
    HOPS,
    OGD,
    OPS,
    TOPS,
    Bank,
    Calibrator,
    InvalidInput,
    Method,
    MultiBank,
    MultiCalibrator,
    OutcomeConflict,
    Temperature,
    UnknownForecast,
    UnknownKey,
)
from calibeat.core.stats import LOSS_FLOOR, STATS

# ---- the same bits -------------------------------------------------------------------------------------------------

N = 400
TWO: dict[str, Callable[..., Any]] = {name: partial(Bank, m, seed=5) for name, m in (IN_A_ROW | OTHERS).items()}
MANY: dict[str, Callable[..., Any]] = {
    f"{K} {method}": partial(MultiBank, K, method)
    for K, method in [(2, "multi"), (3, "multi"), (3, "ots"), (3, "raw"), (70, "multi")]
}


def stream_of(bank: Any) -> tuple[Any, Any, Any]:
    """Keys, scores and outcomes for a bank."""
    keys, scores, outcomes = events(N, 23)
    if isinstance(bank, MultiBank):
        scores, outcomes = multi_streams.drifting(N, len(bank.classes))
    return keys, scores, outcomes


@pytest.mark.parametrize("make", (TWO | MANY).values(), ids=TWO | MANY)
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_batches_threads_and_single_events_agree(
    make: Callable[..., Any], prior: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.hosts.keyed_rows._WORTH_A_THREAD", 10)
    whole, late = (make(prior=prior, threads=1) for _ in range(2))
    keys, scores, outcomes = stream_of(whole)
    due = np.arange(1, N + 1) + np.random.default_rng(0).choice([0, 0, 1, 5, 30, 200], N)
    expected, expected_late = whole.run(keys, scores, outcomes), late.run(keys, scores, outcomes, due=due)
    for threads in (2, 3, 7):
        pieces = make(prior=prior, threads=threads)
        parts = [pieces.run(keys[i : i + 100], scores[i : i + 100], outcomes[i : i + 100]) for i in range(0, N, 100)]
        same(np.concatenate(parts), expected)
        assert content(pieces) == content(whole)
        other = make(prior=prior, threads=threads)
        same(other.run(keys, scores, outcomes, due=due), expected_late)
        assert content(other) == content(late)
    single = make(prior=prior)
    for key, score, outcome, forecast in zip(keys.tolist(), scores, outcomes.tolist(), expected, strict=True):
        made = single.predict(key, score)
        single.update(key, made, int(outcome))
        same(np.array(made.probabilities if np.ndim(forecast) else made.probability), np.array(forecast))
    assert content(single) == content(whole)


@kinds
def test_missing_outcomes_are_forecast_and_not_learnt(kind: Kind) -> None:
    keys, scores, outcomes = kind.events(300, 13)
    missing = np.random.default_rng(1).random(300) < 0.3
    with_nan = np.where(missing, nan, outcomes)
    banks = []
    for column in (with_nan, with_nan.tolist(), with_nan.astype(object), np.where(missing, None, outcomes)):
        banks.append((bank := kind.bank(), bank.run(keys, scores, column)))
        same(banks[0][1], banks[-1][1])
        assert content(bank) == content(banks[0][0])
    assert bank.table["outcomes"].sum() == 300 - missing.sum()
    due = np.arange(300) + 3
    for column in (with_nan, with_nan.tolist()):
        bank = kind.bank()
        bank.run(keys, scores, column, due=due)
        assert bank.table["outcomes"].sum() == (~missing & (due < 300)).sum()


# ---- one stream of it ----------------------------------------------------------------------------------------------


@kinds
def test_a_member_is_alive(kind: Kind) -> None:
    bank, alone = kind.bank(), kind.alone(stream="a")
    bank.run(["a", "b"], [kind.score] * 2, [0, 1])
    member, again = bank["a"], bank["a"]
    assert type(member) is type(alone)
    member.update(member.predict(kind.score), 1)
    assert again.events == 2 and bank.table["events"].tolist() == [2, 1]
    bank.run([f"k{i}" for i in range(5000)], [kind.score] * 5000, np.ones(5000))
    bank.run(["a"], [kind.score], [1])
    alone.run([kind.score] * 3, [0, 1, 1])
    assert (member.events, member.outcomes, member.params) == (3, 3, alone.params)
    assert repr(member) == repr(alone)
    same(member.row, alone.row)
    same(again.predict_many([kind.score]), alone.predict_many([kind.score]))
    for twin in (copy.copy(member), copy.deepcopy(member), pickle.loads(pickle.dumps(member))):  # noqa: S301 - ours
        twin.run([kind.score], [1])
        assert (type(twin), twin.events, bank["a"].events) == (type(alone), 4, 3)
    assert type(type(member).from_json(member.to_json())) is type(alone)


def test_a_member_gives_a_column_for_a_column() -> None:
    scores, outcomes = pd.Series([0.1, 0.2, 0.3], index=[7, 8, 9]), pd.Series([1, 0, 1])
    bank = Bank(OPS)
    bank.predict("a", 0.5)
    for more in ({}, {"due": [2, 3, 3]}, {"due": [2, 3, 3], "finish": True}):
        found = bank["a"].run(scores, outcomes, **more)
        assert type(found) is pd.Series and found.index.tolist() == [7, 8, 9]
        assert type(bank.run(["a"] * 3, scores, outcomes, **more)) is pd.Series


@kinds
def test_a_member_whose_key_has_gone(kind: Kind) -> None:
    """It is bank[key], whoever that is; while there is none, it says so."""
    bank = kind.bank()
    old = bank.predict(1, kind.score)
    held = bank[1]
    del bank[1]
    with pytest.raises(UnknownKey, match="which it has forgotten"):
        held.predict(kind.score)
    bank.predict(1, kind.score)
    with pytest.raises(UnknownForecast):
        bank.update(1, old, 1)
    assert held.events == 1 and held.predict(kind.score).event == 1
    assert list(bank.drop_idle(before=0)) == [1]
    with pytest.raises(UnknownKey, match="which it has forgotten"):
        held.predict(kind.score)
    bank.predict("another kind now", kind.score)
    assert list(bank) == ["another kind now"]


# ---- receipts ------------------------------------------------------------------------------------------------------


@kinds
def test_a_receipt_belongs_to_its_key_and_is_learnt_once(kind: Kind, tmp_path: Path) -> None:
    """A bank remembers which outcome it was while the key has open events."""
    bank = kind.bank()
    receipts = {key: [bank.predict(key, kind.score) for _ in range(3)] for key in ("a", "b")}
    for key, other in (("a", "b"), ("b", "a")):
        with pytest.raises(UnknownForecast, match="must come from this calibrator"):
            bank.update(key, receipts[other][0], 1)
        assert bank.update(key, receipts[key][1], 1) == "learnt"
    bank.run(["a"] * 100, [kind.score] * 100, [0, 1] * 50)
    bank.save(tmp_path / "bank")
    for twin in (bank, type(bank).load(tmp_path / "bank"), pickle.loads(pickle.dumps(bank))):  # noqa: S301 - ours
        for key in "ab":
            assert twin.update(key, receipts[key][1], 1) == "repeated"
            with pytest.raises(OutcomeConflict, match="already learnt, 1, got 0"):
                twin.update(key, receipts[key][1], 0)
        assert twin.table["outcomes"].tolist() == [101, 1]


@kinds
def test_what_is_known_of_keys_without_open_events_is_let_go(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.hosts.keyed_rows.MOST_LEDGERS", 10)
    monkeypatch.setattr("calibeat.hosts.bank._MOST_STREAMS", 8)
    bank = kind.bank()
    receipts = [bank.predict(key, kind.score) for key in range(40)]
    for key in range(30):
        assert bank.update(np.int64(key), receipts[key], 1) == "learnt"
    for key in range(40, 140):
        assert bank.update(key, bank.predict(key, kind.score), 1) == "learnt"
    assert len(bank._rows.ledgers) <= 2 * 40 and len(bank._streams) <= 8
    for key in range(30):
        assert bank.update(key, receipts[key], 1) == "repeated"
    for key in range(30, 40):
        assert bank.update(key, receipts[key], 1) == "learnt"
    assert bank.table["outcomes"].tolist() == [1] * 140


# ---- as a collection -----------------------------------------------------------------------------------------------


@kinds
def test_collection(kind: Kind) -> None:
    bank = kind.bank()
    assert len(bank) == 0 and list(bank) == [] and "a" not in bank and 7 not in bank
    bank.run(["a", "b", "c", "a"], [kind.score] * 4, [0, 0, 1, 1])
    assert len(bank) == 3 and list(bank) == ["a", "b", "c"] and bank.events == 4
    assert "b" in bank and "d" not in bank and 3 not in bank and None not in bank and 0.5 not in bank
    for call in (lambda: bank["d"], lambda: bank.__delitem__("d"), lambda: bank.rows(["d"])):
        with pytest.raises(UnknownKey, match="one of the 3 keys of the bank") as error:
            call()
        assert isinstance(error.value, KeyError)
    del bank["a"]
    assert list(bank) == ["c", "b"] and bank["b"].events == 1
    del bank["b"], bank["c"]
    bank.run([7], [kind.score], [1])
    assert list(bank) == [7] and np.int64(7) in bank and 2**70 not in bank and "7" not in bank


def test_repr() -> None:
    assert repr(Bank(OPS)) == "Bank(OPS, keys=0, events=0)"
    assert repr(Bank(replace(OPS, learner=AIOLI()))).startswith("Bank(Method(")
    with pytest.raises(UnknownKey, match=r"one of the 0 keys of the bank, got 'd' - predict\(key, score\) and run"):
        Bank(OPS)["d"]


@pytest.mark.parametrize("strings", [False, True])
def test_keys_come_and_go(strings: bool) -> None:
    """A dictionary is the oracle, through growth, deletions and keys that hash to the same place."""
    rng = np.random.default_rng(4)
    bank = Bank("bm")
    known: dict[Any, int] = {}
    for _ in range(30):
        keys = rng.integers(-200, 200, 60)
        names: list[Any] = as_strings(keys) if strings else keys.tolist()
        bank.run(names, np.full(60, 0.5), np.ones(60))
        for name in names:
            known[name] = known.get(name, 0) + 1
        for name in rng.choice(np.array([*known, None], dtype=object)[:-1], 15, replace=False):
            del bank[name]
            del known[name]
        assert set(bank) == set(known) and len(bank) == len(known)
        table = bank.table
        assert dict(zip(table["key"].tolist(), table["events"].tolist(), strict=True)) == known
        assert all(bank[name].events == count for name, count in known.items())


@pytest.mark.parametrize("make", (TWO | MANY).values(), ids=TWO | MANY)
def test_params_and_table(make: Callable[..., Any]) -> None:
    bank = make()
    keys, scores, outcomes = stream_of(bank)
    forecasts = bank.run(keys, scores, outcomes)
    table, params = bank.table, bank.params
    assert table["key"].tolist() == list(bank) == params["key"].tolist()
    for slot, key in enumerate(bank):
        mine = np.flatnonzero(keys == key)
        if not isinstance(bank, MultiBank):
            one = bank[key].params
            one |= one.pop("lanes", {})
            one.pop("guard", None)  # more than a number
            assert {name: column[slot] for name, column in params.items() if name != "key"} == one
            assert {name: table[name][slot] for name in one} == one
        else:
            assert table["evidence"][slot] == bank[key].evidence
        assert table["events"][slot] == table["outcomes"][slot] == len(mine)
        assert table["idle"][slot] == N - 1 - mine[-1]
        y = outcomes[mine].astype(int)
        for prefix, said in (("raw_", scores), ("", forecasts)):
            p = said[mine] if said.ndim == 2 else np.stack([1.0 - said[mine], said[mine]], axis=1)
            likelihood = np.maximum(p[np.arange(len(y)), y], LOSS_FLOOR)
            assert table[f"{prefix}log_loss"][slot] == pytest.approx(-np.log(likelihood).mean())
            brier = ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()
            assert table[f"{prefix}brier"][slot] == pytest.approx(brier / 2 if p.shape[1] == 2 else brier)
    some = bank.table_of([3, 1])
    assert list(some["events"]) == [bank[3].events, bank[1].events]
    json.dumps({name: column.tolist() for name, column in table.items()})


def test_a_key_without_outcomes_has_no_losses() -> None:
    bank = Bank(OPS)
    bank.predict("a", 0.3)
    table = bank.table
    assert table["events"].tolist() == [1] and np.isnan(table["log_loss"]).all() and np.isnan(table["brier"]).all()


def test_memory_is_what_was_promised() -> None:
    bank = Bank(TOPS)
    assert bank.nbytes == 0
    bank.run(np.arange(20_000), np.full(20_000, 0.5), np.ones(20_000))
    row = 8 * (TOPS.width + STATS)
    assert row + 8 < bank.nbytes / len(bank) <= row + 16
    names = Bank(TOPS)
    names.run([f"{i:08d}" for i in range(5000)], np.full(5000, 0.5), np.ones(5000))
    assert names.nbytes / len(names) <= row + 16 + 8 + 8


def test_the_forgotten_leave_no_trace(tmp_path: Path) -> None:
    bank = Bank(OPS)
    bank.run(["alice@example.com", "bob"], [0.5, 0.5], [1, 1])
    del bank["alice@example.com"]
    assert b"alice" not in bytes_of(bank, tmp_path)
    for i in range(1, 500):
        bank.predict(f"key {i}", 0.5)
        del bank[f"key {i}"]
    assert list(bank) == ["bob"] and bank.nbytes < 1000
    assert bank["bob"].events == 1


# ---- columns -------------------------------------------------------------------------------------------------------


def test_every_kind_of_column_gives_the_same_bank(tmp_path: Path) -> None:
    words = ["oslo", "rome", "oslo", "", "a longer name", "rome"]
    wide = [*words[:-1], "Århus"]
    many = [f"k{i % 70}" for i in range(200)]
    for names in (words, wide, many):
        columns: list[Any] = [
            names,
            tuple(names),
            deque(names),
            np.array(names),
            np.array(names).astype(">U20"),
            np.array(names, dtype=object),
            np.array(names, dtype=np.dtypes.StringDType()),
            [np.str_(name) for name in names],
        ]
        assert len({column_bytes(column, tmp_path) for column in columns}) == 1
    for numbers in ([3, 1, 3, -7, 2**62, 1], [i % 70 for i in range(200)]):
        columns = [
            numbers,
            tuple(numbers),
            array("q", numbers),
            np.array(numbers),
            np.array(numbers, dtype=object),
            np.array(numbers)[::-1][::-1],
        ]
        columns += [[np.int64(number) for number in numbers], np.array(numbers, dtype=">i8")]
        if min(numbers) >= 0:
            columns += [np.array(numbers, dtype=kind) for kind in ("u1", "i4", "u8")]
        assert len({column_bytes(column, tmp_path) for column in columns}) == 1


def column_bytes(column: Any, folder: Path) -> bytes:
    bank = Bank(TOPS)
    n = len(column)
    bank.run(column, np.linspace(0, 1, n), np.arange(n) % 2)
    return bytes_of(bank, folder)


def test_words_that_are_more_than_words() -> None:
    class Colour(str, Enum):  # noqa: UP042 - StrEnum would be what it says
        RED = "red"

    bank = Bank(OPS)
    bank.run([Colour.RED], [0.5], [1])
    bank.predict(Colour.RED, 0.5)
    assert list(bank) == ["red"] and Colour.RED in bank


def test_frames_in_and_out() -> None:
    bank = Bank(AUTO)
    bank.run(pd.Series(["a", "b", "a"], index=[5, 6, 7]), pd.Series([0.1, 0.2, 0.3]), pd.Series([True, False, True]))
    frame = pd.DataFrame(bank.table)
    assert frame["key"].tolist() == ["a", "b"] and frame["events"].tolist() == [2, 1]
    keys, (scores, labels) = events(N, 4)[0], multi_streams.drifting(N, 3)
    P = MultiBank(3).run(keys, scores, labels)
    frame = pd.DataFrame(scores, columns=["a", "b", "c"], index=np.arange(N) + 5)
    out = MultiBank(3).run(pd.Series(keys), frame, pd.Series(labels))
    pd.testing.assert_frame_equal(out, pd.DataFrame(P, columns=["a", "b", "c"], index=frame.index))
    words = pl.Series(np.array(list("abc"))[labels])
    same(MultiBank(list("abc")).run(pl.Series(keys), pl.DataFrame(frame), words).to_numpy(), P)


# ---- banks that are merged, copied, emptied ------------------------------------------------------------------------


@kinds
def test_idle_keys_are_dropped_and_returned(kind: Kind) -> None:
    bank = kind.bank()
    bank.run([1, 2, 1, 3, 4, 4], [kind.score] * 6, np.ones(6))
    states = {key: bank[key].to_json() for key in bank}
    dropped = bank.drop_idle(before=3)
    assert (sorted(dropped), sorted(bank)) == ([1, 2], [3, 4])
    assert {key: which[key].to_json() for which in (bank, dropped) for key in which} == states
    assert len(bank.drop_idle(before=3)) == 0
    idle = dict(zip([*bank, *dropped], [*bank.table["idle"], *dropped.table["idle"]], strict=True))
    bank.merge(dropped)
    assert dict(zip(bank, bank.table["idle"], strict=True)) == idle
    assert sorted(bank.drop_idle(before=3)) == [1, 2]
    assert sorted(bank.drop_idle(before=0)) == [3, 4] and len(bank) == 0
    assert len(kind.bank().drop_idle(before=5)) == 0


@pytest.mark.parametrize("method", [TOPS, HOPS], ids=["tops", "hops"])
def test_copies_of_a_bank_live_alone(method: Method, tmp_path: Path) -> None:
    keys, scores, outcomes = events(100, 7)
    bank = Bank(method, seed=3, prior="pooled", threads=2)
    bank.run(keys, scores, outcomes)
    waiting = bank.predict(2, 0.4)
    before = bytes_of(bank, tmp_path)
    bank.save(tmp_path / "file")
    mapped = Bank.load(tmp_path / "file", mmap=True)
    for twin in (copy.copy(bank), copy.deepcopy(bank), pickle.loads(pickle.dumps(bank)), copy.copy(mapped)):  # noqa: S301
        assert bytes_of(twin, tmp_path) == before
        twin.update(2, waiting, 1)  # what was under way is under way in the copy too
        twin.run([1, 2, 99], [0.2, 0.3, 0.4], [1, 0, 1])
        assert bytes_of(bank, tmp_path) == before and 99 in twin and 99 not in bank


# ---- a pooled start ------------------------------------------------------------------------------------------------


def test_a_new_key_starts_where_the_pool_is() -> None:
    keys, scores, outcomes = events(600, 30)
    for method in (OPS, replace(OPS, learner=AIOLI()), replace(OPS, learner=OGD()), Method(Temperature(), AIOLI())):
        bank, pool = Bank(method, prior="pooled"), Calibrator(method)
        bank.run(keys, scores, outcomes)
        pool.run(scores, outcomes)
        bank.predict(99, 0.5)
        assert bank[99].params == pytest.approx(pool.params)
        assert bank[99].outcomes == 0
        same(bank.predict_many([100], [0.3]), np.array([bank.predict(100, 0.3).probability]))


@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
def test_a_new_key_of_many_classes_starts_where_the_pool_is(method: str) -> None:
    bank = MultiBank(3, method, prior="pooled")
    keys, scores, labels = stream_of(bank)
    bank.run(keys, scores, labels)
    started, fresh = bank.predict(99, scores[0]), MultiCalibrator(3, method).predict(scores[0])
    assert (started.probabilities == fresh.probabilities).all() == (method == "raw")
    same(bank.predict_many([100], scores[:1])[0], started.probabilities)


def test_the_pooled_start_helps_young_keys() -> None:
    rng = np.random.default_rng(1)
    keys = rng.permutation(np.repeat(np.arange(300), 20))
    x = rng.normal(0, 1.5, len(keys))
    truth = 1 / (1 + np.exp(-(rng.normal(0.6, 0.2, 300)[keys] * x + rng.normal(-0.5, 0.5, 300)[keys])))
    scores, outcomes = 1 / (1 + np.exp(-x)), (rng.random(len(keys)) < truth).astype(float)
    for method in (OPS, TOPS, AUTO):
        alone, pooled = Bank(method), Bank(method, prior="pooled")
        alone.run(keys, scores, outcomes)
        pooled.run(keys, scores, outcomes)
        assert pooled.table["log_loss"].mean() < alone.table["log_loss"].mean()


def test_rows_of_a_pooled_start_are_sound() -> None:
    keys, scores, outcomes = events(300, 5)
    for name, method in {**IN_A_ROW, **OTHERS}.items():
        bank = Bank(method, prior="pooled")
        bank.run(keys, scores, outcomes)
        bank.predict(99, 0.5)
        for key in (99, int(keys[0])):
            twin = Calibrator.from_json(bank[key].to_json())
            assert twin.to_json() == bank[key].to_json(), name


@kinds
def test_the_pool_learns_outcomes_as_they_arrive(kind: Kind) -> None:
    """With every outcome late by the same number of events, the order of arrival is that of the events."""
    keys, scores, outcomes = kind.events(200, 60)
    batch, single = kind.bank(prior="pooled"), kind.bank(prior="pooled")
    batch.run(keys, scores, outcomes, due=np.arange(200) + 5)
    receipts: list[Any] = []
    for i in range(200):
        if i >= 5:
            single.update(int(keys[i - 5]), receipts[i - 5], int(outcomes[i - 5]))
        receipts.append(single.predict(int(keys[i]), scores[i]))
    assert content(batch) == content(single)


def test_a_pool_without_keys_is_merged_too(tmp_path: Path) -> None:
    pooled, empty = Bank(OPS, prior="pooled"), Bank(OPS, prior="pooled")
    pooled.run([1], [0.5], [1])
    pooled.drop_idle(before=0)
    empty.merge(pooled)
    assert bytes_of(empty, tmp_path) == bytes_of(pooled, tmp_path)


@kinds
def test_the_pool_and_rows_travel(kind: Kind) -> None:
    bank, other = kind.bank(prior="pooled"), kind.bank(prior="pooled")
    keys, scores, outcomes = kind.events(60, 4)
    bank.run(keys, scores, outcomes)
    other.pool = bank.pool
    other.set_rows(list(bank), bank.rows(list(bank)))
    assert content(bank) == content(other)
    same(bank.predict_many([99], scores[:1]), other.predict_many([99], scores[:1]))
    for wrong, message in (([1.0], "numbers, got shape"), (bank.pool * nan, "got nan"), (-1.0 - bank.pool, "row must")):
        with pytest.raises(InvalidInput, match=message):
            other.pool = wrong


def test_a_key_that_a_broken_off_call_has_left_gives_its_draws_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    rng = np.random.default_rng(4)
    scores, outcomes = rng.random(60), rng.integers(0, 2, 60)
    bank = Bank(HOPS, seed=3)
    bank.run(["a"], [0.5], [1])
    monkeypatch.setattr(bank._rows, "_do", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bank.run(["b"] * 60, scores, outcomes)
    monkeypatch.undo()
    expected = Calibrator(HOPS, seed=3, stream="c").run(scores, outcomes)
    assert bank.run(["c"] * 60, scores, outcomes).tolist() == expected.tolist()


@pytest.mark.parametrize("names", [["a", "b", "c"], [1, -2, 3]])
def test_few_events_of_a_bank_with_many_keys_draw_as_in_one_call(names: list[Any]) -> None:
    rng = np.random.default_rng(5)
    keys, scores, outcomes = [names[i] for i in rng.integers(0, 3, 90)], rng.random(90), rng.integers(0, 2, 90)
    at_once, in_pairs = Bank(HOPS, seed=2), Bank(HOPS, seed=2)
    forecasts = at_once.run(keys, scores, outcomes).tolist()
    by_two = [in_pairs.run(keys[i : i + 2], scores[i : i + 2], outcomes[i : i + 2]) for i in range(0, 90, 2)]
    assert np.concatenate(by_two).tolist() == forecasts
    for name in names:
        own = np.array([key == name for key in keys])
        alone = Calibrator(HOPS, seed=2, stream=name).run(scores[own], outcomes[own])
        assert np.array(forecasts)[own].tolist() == alone.tolist()
