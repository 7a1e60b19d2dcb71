"""Banks that are merged, copied, emptied, interrupted; receipts that travel; keys that come back."""

from __future__ import annotations

import copy
import pickle
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import bytes_of, events
from conformance import same

from calibeat import HOPS, OPS, TOPS, Bank, Calibrator, Forecast, InvalidInput, Method, UnknownForecast, UnknownKey

# ---- merge and drop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [TOPS, HOPS], ids=["tops", "hops"])
def test_shards_come_together(method: Method) -> None:
    keys, scores, outcomes = events(400, 20)
    east = keys < 8
    whole = Bank(method, seed=3)
    expected = whole.run(keys, scores, outcomes)
    one, two = Bank(method, seed=3), Bank(method, seed=3)
    same(one.run(keys[east], scores[east], outcomes[east]), expected[east])
    same(two.run(keys[~east], scores[~east], outcomes[~east]), expected[~east])
    idle = {**dict(zip(one, one.table["idle"], strict=True)), **dict(zip(two, two.table["idle"], strict=True))}
    one.merge(two)
    assert set(one) == set(whole) and dict(zip(one, one.table["idle"], strict=True)) == idle
    same(one.run(keys, scores, outcomes), whole.run(keys, scores, outcomes))


def test_merge_refuses(tmp_path: Path) -> None:
    bank, other = Bank(OPS), Bank(OPS)
    bank.run(["a", "b"], [0.5, 0.5], [1, 0])
    other.run(["c", "b"], [0.5, 0.5], [1, 0])
    before = bytes_of(bank, tmp_path)
    wrong: list[tuple[Any, str]] = [
        (other, "no key in common, got 'b' in both"),
        (bank, "no key in common, got 'a'"),
        (Bank(TOPS), "same method"),
        (Bank(OPS, seed=1), "same seed"),
        (Bank(OPS, prior="pooled"), "same prior"),
        ({"d": 1}, "merged with a Bank, got dict"),
    ]
    numbers = Bank(OPS)
    numbers.run([1], [0.5], [1])
    for what, message in [*wrong, (numbers, "strings like those of the bank, got ints")]:
        with pytest.raises(InvalidInput, match=message):
            bank.merge(what)
        assert bytes_of(bank, tmp_path) == before
    bank.merge(Bank(OPS))
    assert bytes_of(bank, tmp_path) == before
    fresh = Bank(OPS)
    fresh.merge(bank)
    assert bytes_of(fresh, tmp_path) == before


def test_idle_keys_are_dropped_and_returned() -> None:
    bank = Bank(OPS)
    bank.run([1, 2, 1, 3, 4, 4], np.full(6, 0.5), np.ones(6))
    held = bank[1]
    states = {key: bank[key].to_json() for key in bank}
    dropped = bank.drop_idle(before=3)
    assert (sorted(dropped), sorted(bank)) == ([1, 2], [3, 4])
    assert {key: which[key].to_json() for which in (bank, dropped) for key in which} == states
    with pytest.raises(KeyError):
        held.predict(0.5)
    assert len(bank.drop_idle(before=3)) == 0
    bank.merge(dropped)
    assert sorted(bank) == [1, 2, 3, 4]
    assert sorted(bank.drop_idle(before=3)) == [1, 2]
    assert sorted(bank.drop_idle(before=0)) == [3, 4] and len(bank) == 0
    assert len(Bank(OPS).drop_idle(before=5)) == 0
    for bad in (-1, 2.5, None, "3"):
        with pytest.raises(InvalidInput, match="before must be a whole number"):
            bank.drop_idle(before=bad)  # type: ignore[arg-type]


# ---- copies, namesakes, unknown keys -----------------------------------------------------------------------------


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


def test_receipts_of_a_copy_are_refused(tmp_path: Path) -> None:
    bank = Bank(OPS)
    early = bank.predict(1, 0.9)
    bank.save(tmp_path / "bank")
    loaded, copied = Bank.load(tmp_path / "bank"), copy.copy(bank)
    late = bank.predict(1, 0.7)
    for twin in (loaded, copied):
        twin.predict(1, 0.7)
        for receipt in (late, Forecast.from_json(late.to_json())):
            with pytest.raises(UnknownForecast, match="a copy of it has made"):
                twin.update(1, receipt, 1)
        twin.update(1, Forecast.from_json(early.to_json()), 1)
        twin.update(1, early, 1)
        assert twin[1].outcomes == 1


def test_receipts_follow_merge_drop_and_deletion() -> None:
    bank, other = Bank(OPS), Bank(OPS)
    receipts = {key: bank.predict(key, 0.5) for key in (1, 2, 3)}
    others = {key: other.predict(key, 0.5) for key in (7, 8)}
    bank.merge(other)
    del bank[1]  # the last row takes its place
    assert sorted(bank) == [2, 3, 7, 8]
    bank.update(8, others[8], 1)
    bank.run([2], [0.5], [1])
    dropped = bank.drop_idle(before=1)
    assert sorted(dropped) == [3, 7, 8] and list(bank) == [2]
    dropped.update(7, others[7], 1)
    dropped.update(3, receipts[3], 0)
    bank.update(2, receipts[2], 0)
    bank.merge(dropped)
    bank.update(3, bank.predict(3, 0.5), 0)
    assert dict(zip(bank, bank.table["outcomes"], strict=True)) == {2: 2, 3: 2, 7: 1, 8: 1}


def test_a_namesake_is_another_stream() -> None:
    bank = Bank(OPS)
    old = bank.predict(1, 0.9)
    held = bank[1]
    del bank[1]
    bank.predict(1, 0.3)
    with pytest.raises(UnknownForecast):
        bank.update(1, old, 1)
    assert held.events == 1 and held.predict(0.5).event == 1  # bank[1], whoever that is
    bank.drop_idle(before=0)
    with pytest.raises(UnknownKey, match="which it has forgotten"):
        held.predict(0.5)
    bank.predict("another kind now", 0.5)
    assert list(bank) == ["another kind now"]


def test_a_member_of_a_bank_that_dropped_all_is_dead() -> None:
    bank = Bank(OPS)
    bank.run([7], [0.5], [1])
    held = bank[7]
    assert list(bank.drop_idle(before=0)) == [7]
    with pytest.raises(UnknownKey):
        held.predict(0.4)


def test_a_member_as_text_is_a_calibrator() -> None:
    bank = Bank(TOPS)
    bank.run(["a"], [0.5], [1])
    assert type(type(bank["a"]).from_json(bank["a"].to_json())) is Calibrator


def test_a_pool_without_keys_is_merged_too(tmp_path: Path) -> None:
    pooled, empty = Bank(OPS, prior="pooled"), Bank(OPS, prior="pooled")
    pooled.run([1], [0.5], [1])
    pooled.drop_idle(before=0)
    empty.merge(pooled)
    assert bytes_of(empty, tmp_path) == bytes_of(pooled, tmp_path)


def test_words_that_are_more_than_words() -> None:
    class Colour(str, Enum):  # noqa: UP042 - StrEnum would be what it says
        RED = "red"

    bank = Bank(OPS)
    bank.run([Colour.RED], [0.5], [1])
    bank.predict(Colour.RED, 0.5)
    assert list(bank) == ["red"] and Colour.RED in bank
    bank.run(deque(["red", "blue"]), [0.5, 0.5], [1, 0])
    numbers = Bank(OPS)
    numbers.run(range(3), [0.5] * 3, [1] * 3)
    numbers.run(array("q", [1, 2]), [0.5] * 2, [1] * 2)
    assert list(numbers) == [0, 1, 2]
    for keys, message in (
        (deque(["a", 1]), "got int 1 after str 'a' - at row 1"),
        (deque([2, True]), "got bool True - at row 1"),
        (bytearray(b"ab"), "got bytearray"),
        (memoryview(b"ab"), "got memoryview"),
        (b"ab", "got bytes"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Bank(OPS).run(keys, [0.5, 0.5], [1, 1])


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


def test_a_wrong_kind_stays_wrong(tmp_path: Path) -> None:
    bank = Bank(OPS)
    bank.run([1], [0.5], [1])
    bank.save(tmp_path / "bank")
    mapped = Bank.load(tmp_path / "bank", mmap=True)
    for which in (bank, bank, mapped):
        with pytest.raises(InvalidInput, match="ints like those of the bank"):
            which.predict("x", 0.5)
    del bank[1]
    bank.predict("x", 0.5)
    assert list(bank) == ["x"]


def test_several_threads_may_ask() -> None:
    keys, scores, outcomes = events(2000, 400)
    bank = Bank(HOPS)
    bank.run(keys, scores, outcomes)
    expected = bank.predict_many(keys, scores)
    fresh = pickle.loads(pickle.dumps(bank))  # noqa: S301 - our own bytes
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: fresh.predict_many(keys, scores), range(8)):
            same(answer, expected)
