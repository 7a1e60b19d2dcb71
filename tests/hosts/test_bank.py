"""A bank is a calibrator per key, to the last bit, whatever the interleaving, the batches and the threads."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW, OTHERS, as_strings, bytes_of, events
from conformance import delays, one_by_one_late, same, state_of
from hypothesis import given, settings
from hypothesis import strategies as st

import calibeat.hosts.keyed_rows
from calibeat import (
    AIOLI,
    AUTO,
    HOPS,
    OPS,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    Method,
    OutcomeConflict,
    UnknownForecast,
    UnknownKey,
)
from calibeat.core.stats import LOSS_FLOOR

# ---- the same bits -------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("name", IN_A_ROW)
def test_same_bits_as_a_calibrator_per_key(name: str, data: st.DataObject) -> None:
    method = IN_A_ROW[name]
    n = data.draw(st.integers(1, 60))
    keys = data.draw(st.lists(st.integers(-3, 6), min_size=n, max_size=n))
    scores = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    outcomes = data.draw(st.lists(st.sampled_from([0, 1]), min_size=n, max_size=n))
    cuts = sorted(data.draw(st.sets(st.integers(1, n), max_size=4)) | {0, n})
    strings = data.draw(st.booleans())
    seed = data.draw(st.integers(0, 3))
    names: list[Any] = as_strings(keys) if strings else keys
    bank = Bank(method, seed=seed)
    parts = [bank.run(names[a:b], scores[a:b], outcomes[a:b], threads=1 + a % 3) for a, b in pairwise(cuts)]
    forecasts = np.concatenate(parts)
    assert set(bank) == set(names)
    for key in set(names):
        mine = np.array([other == key for other in names])
        alone = Calibrator(method, seed=seed, stream=key)
        same(forecasts[mine], alone.run(np.array(scores)[mine], np.array(outcomes)[mine]))
        same(np.array(bank[key].row), np.array(alone.row))
        assert state_of(bank[key]) == state_of(alone)


@pytest.mark.parametrize("method", [*IN_A_ROW.values(), *OTHERS.values()], ids=[*IN_A_ROW, *OTHERS])
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_events_batches_and_threads_agree(
    method: Method, prior: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "_WORTH_A_THREAD", 10)
    keys, scores, outcomes = events(400, 23)
    whole = Bank(method, seed=5, prior=prior)
    expected = whole.run(keys, scores, outcomes, threads=1)
    for threads in (2, 3, 7):
        other = Bank(method, seed=5, prior=prior, threads=threads)
        same(
            np.concatenate(
                [other.run(keys[i : i + 100], scores[i : i + 100], outcomes[i : i + 100]) for i in range(0, 400, 100)]
            ),
            expected,
        )
        assert bytes_of(other, tmp_path) == bytes_of(whole, tmp_path)
    single = Bank(method, seed=5, prior=prior)
    said = []
    for key, score, outcome in zip(keys.tolist(), scores.tolist(), outcomes, strict=True):
        forecast = single.predict(key, score)
        single.update(key, forecast, int(outcome))
        said.append(forecast.probability)
    same(np.array(said), expected)
    assert bytes_of(single, tmp_path) == bytes_of(whole, tmp_path)


def test_draws_are_those_of_a_named_stream() -> None:
    keys, scores, outcomes = events(300, 4)
    for names in (keys, np.array(as_strings(keys))):
        bank = Bank(HOPS, seed=2)
        forecasts = bank.run(names, scores, outcomes)
        for key in set(names.tolist()):
            alone = Calibrator(HOPS, seed=2, stream=key)
            same(forecasts[names == key], alone.run(scores[names == key], outcomes[names == key]))
            assert state_of(bank[key]) == state_of(alone)


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
def test_predict_many_changes_nothing(method: Method, tmp_path: Path) -> None:
    keys, scores, outcomes = events(300, 9)
    bank = Bank(method, seed=1)
    bank.run(keys, scores, outcomes)
    before = bytes_of(bank, tmp_path)
    asked = np.concatenate([keys, keys + 100, keys])  # half of them are unknown
    answers = bank.predict_many(asked, np.tile(scores, 3))
    same(answers, bank.predict_many(asked, np.tile(scores, 3)))
    assert bytes_of(bank, tmp_path) == before
    for key in {*keys.tolist(), *(keys + 100).tolist()}:
        alone = Calibrator(method, seed=1, stream=key)
        if key < 100:
            alone.run(scores[keys == key], outcomes[keys == key])
        same(answers[asked == key], alone.predict_many(np.tile(scores, 3)[asked == key]))


def test_predict_many_of_an_empty_bank() -> None:
    same(Bank("bm").predict_many(["a", "b"], [0.2, 0.7]), np.array([0.2, 0.7]))


# ---- one stream of it ----------------------------------------------------------------------------------------------


def test_a_member_is_alive() -> None:
    bank = Bank(TOPS)
    bank.run(["a", "b"], [0.3, 0.6], [0, 1])
    member, again = bank["a"], bank["a"]
    assert isinstance(member, Calibrator)
    member.update(member.predict(0.4), 1)
    assert again.events == 2 and bank.table["events"].tolist() == [2, 1]
    bank.run([f"k{i}" for i in range(5000)], np.full(5000, 0.5), np.ones(5000))  # its row has moved meanwhile
    bank.run(["a"], [0.4], [1])
    alone = Calibrator(TOPS, stream="a")
    alone.run([0.3, 0.4, 0.4], [0, 1, 1])
    assert state_of(member) == state_of(again) == state_of(bank["a"]) == state_of(alone)
    assert (member.events, member.outcomes) == (3, 3)
    assert member.params == alone.params
    assert "events=3" in repr(member)
    same(member.predict_many([0.2, 0.4]), alone.predict_many([0.2, 0.4]))


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_late_outcomes_of_a_member(method: Method, prior: str | None, tmp_path: Path) -> None:
    _, scores, outcomes = events(60, 1)
    due = delays(60)
    by_batch, by_event = Bank(method, prior=prior), Bank(method, prior=prior)
    alone = Calibrator(method, stream=1)
    for bank in (by_batch, by_event):
        bank.run([2, 1], [0.5, 0.4], [1, 0])
    alone.run([0.4], [0])
    expected = by_batch[1].run(scores, outcomes, due=due)
    same(one_by_one_late(by_event[1], scores, outcomes, due), expected)
    assert bytes_of(by_batch, tmp_path) == bytes_of(by_event, tmp_path)
    if prior is None:
        same(alone.run(scores, outcomes, due=due), expected)
        same(np.array(by_batch[1].row), np.array(alone.row))


def test_a_member_runs_by_itself() -> None:
    _, scores, outcomes = events(50, 1)
    bank, alone = Bank(OPS), Calibrator(OPS, stream="a")
    bank.predict("a", 0.5)
    alone.predict(0.5)
    same(bank["a"].run(scores, outcomes), alone.run(scores, outcomes))
    assert state_of(bank["a"]) == state_of(alone)
    assert bank.table["idle"].tolist() == [0]


def test_copies_of_a_member_live_alone() -> None:
    bank = Bank(OPS)
    bank.run([1], [0.5], [1])
    for twin in (copy.copy(bank[1]), copy.deepcopy(bank[1]), pickle.loads(pickle.dumps(bank[1]))):  # noqa: S301
        twin.run([0.5], [1])
        assert (twin.events, bank[1].events) == (2, 1)


def test_receipts_belong_to_their_key() -> None:
    bank = Bank(AUTO)
    first, second = bank.predict("a", 0.4), bank.predict("b", 0.4)
    with pytest.raises(UnknownForecast, match="must come from this calibrator"):
        bank.update("a", second, 1)
    bank.predict("c", 0.4)  # another key is served meanwhile
    gc.collect()
    bank.update("a", first, 1)
    bank.update("a", first, 1)  # known: nothing happens
    with pytest.raises(OutcomeConflict):
        bank.update("a", first, 0)
    bank.update("b", Forecast.from_json(second.to_json()), 0)
    assert bank.table["outcomes"].tolist() == [1, 1, 0]


def test_many_keys_one_event_at_a_time() -> None:
    bank = Bank(OPS)
    receipts = [bank.predict(key, 0.4) for key in range(10)]
    for key, receipt in enumerate(receipts):
        bank.update(np.int64(key), receipt, 1)
    assert bank.table["outcomes"].tolist() == [1] * 10


# ---- as a collection -----------------------------------------------------------------------------------------------


def test_collection() -> None:
    bank = Bank(OPS)
    assert len(bank) == 0 and list(bank) == [] and "a" not in bank and repr(bank) == "Bank(OPS, keys=0, events=0)"
    bank.run(["a", "b", "c", "a"], [0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    assert len(bank) == 3 and list(bank) == ["a", "b", "c"] and bank.events == 4
    assert "b" in bank and "d" not in bank and 3 not in bank and None not in bank and 0.5 not in bank
    with pytest.raises(KeyError, match=r"one of the 3 keys of the bank, got 'd' - predict\(key, score\) and run"):
        bank["d"]
    with pytest.raises(UnknownKey):
        bank["d"]
    with pytest.raises(KeyError):
        del bank["d"]
    held = bank["b"]
    del bank["a"]
    assert list(bank) == ["c", "b"] and held.events == 1
    del bank["b"]
    with pytest.raises(KeyError):
        held.predict(0.5)
    del bank["c"]
    assert len(bank) == 0
    bank.run(["z"], [0.5], [1])
    assert list(bank) == ["z"]
    assert repr(Bank(replace(OPS, learner=AIOLI()))).startswith("Bank(Method(")


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


def test_params_and_table() -> None:
    keys, scores, outcomes = events(300, 5)
    for method in (*IN_A_ROW.values(), *OTHERS.values()):
        bank = Bank(method)
        forecasts = bank.run(keys, scores, outcomes)
        table, params = bank.table, bank.params
        assert table["key"].tolist() == list(bank)
        for slot, key in enumerate(bank):
            mine = keys == key
            one = bank[key].params
            one |= one.pop("lanes", {})
            one.pop("guard", None)  # more than a number
            assert {name: column[slot] for name, column in params.items() if name != "key"} == one
            assert {name: table[name][slot] for name in one} == one
            assert table["events"][slot] == table["outcomes"][slot] == mine.sum()
            assert table["idle"][slot] == 299 - np.flatnonzero(mine)[-1]
            for prefix, said in (("raw_", scores), ("", forecasts)):
                p, y = said[mine], outcomes[mine]
                likelihood = np.clip(np.where(y == 1, p, 1 - p), LOSS_FLOOR, None)
                assert table[f"{prefix}log_loss"][slot] == pytest.approx(-np.log(likelihood).mean())
                assert table[f"{prefix}brier"][slot] == pytest.approx(((p - y) ** 2).mean())
    json.dumps({name: column.tolist() for name, column in table.items()})


def test_every_kind_of_column_gives_the_same_bank(tmp_path: Path) -> None:
    words = ["oslo", "rome", "oslo", "", "a longer name", "rome"]
    wide = [*words[:-1], "Århus"]
    many = [f"k{i % 70}" for i in range(200)]
    for names in (words, wide, many):
        columns: list[Any] = [
            names,
            tuple(names),
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


def test_memory_is_what_was_promised() -> None:
    bank = Bank(TOPS)
    assert bank.nbytes == 0
    bank.run(np.arange(20_000), np.full(20_000, 0.5), np.ones(20_000))
    assert 216 + 56 < bank.nbytes / len(bank) <= 216 + 64
    names = Bank(TOPS)
    names.run([f"{i:08d}" for i in range(5000)], np.full(5000, 0.5), np.ones(5000))
    assert names.nbytes / len(names) <= 216 + 64 + 8 + 8


@pytest.mark.parametrize("gone", [0, 1, 3, 7])
def test_streams_survive_a_deletion(gone: int) -> None:
    keys, scores, outcomes = events(300, 4)
    bank = Bank(HOPS, seed=2)
    bank.run(keys, scores, outcomes)
    bank.predict(7, 0.4)  # whose stream nobody has asked for yet
    bank.predict(8, 0.4)
    del bank[gone]
    for key in bank:
        alone = Calibrator(HOPS, seed=2, stream=key)
        if key < 5:
            alone.run(scores[keys == key], outcomes[keys == key])
        else:
            alone.predict(0.4)
        same(bank.run([key] * 50, scores[:50], outcomes[:50]), alone.run(scores[:50], outcomes[:50]))


def test_a_key_without_outcomes_has_no_losses() -> None:
    bank = Bank(OPS)
    bank.predict("a", 0.3)
    table = bank.table
    assert table["events"].tolist() == [1] and np.isnan(table["log_loss"]).all() and np.isnan(table["brier"]).all()


def test_data_frames_take_the_table() -> None:
    pd = pytest.importorskip("pandas")
    bank = Bank(AUTO)
    bank.run(pd.Series(["a", "b", "a"], index=[5, 6, 7]), pd.Series([0.1, 0.2, 0.3]), pd.Series([True, False, True]))
    frame = pd.DataFrame(bank.table)
    assert frame["key"].tolist() == ["a", "b"] and frame["events"].tolist() == [2, 1]
