"""Whatever is wrong with an input of a bank is named, and the bank is as it was."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import Kind, bytes_of, content, kinds

import calibeat.hosts.bank
import calibeat.hosts.rows
from calibeat import OPS, TOPS, WPS, Bank, InvalidInput, Monitor, MultiBank, UnknownForecast, UnknownKey
from calibeat.core.method import PRESETS

BAD: list[tuple[Any, Any, Any, str]] = [
    ([1, "a", 2], [0.5] * 3, [1] * 3, r"all ints or all strings, got str 'a' after int 1 - at row 1"),
    (["a", 1], [0.5] * 2, [1] * 2, r"all ints or all strings, got int 1 after str 'a' - at row 1"),
    ([1, None], [0.5] * 2, [1] * 2, r"key must be an int or a string, got NoneType None - at row 1"),
    (["a", None], [0.5] * 2, [1] * 2, r"got NoneType None - at row 1"),
    (np.array([1.0, np.nan]), [0.5] * 2, [1] * 2, r"got float64 nan - at row 1"),
    (np.array([1.0, 2.0]), [0.5] * 2, [1] * 2, r"got float64 1.0 - at row 0"),
    (["a", float("nan")], [0.5] * 2, [1] * 2, r"got float nan - at row 1"),
    ([True, False], [0.5] * 2, [1] * 2, r"got bool True - at row 0"),
    (np.array([True]), [0.5], [1], r"got bool True - at row 0"),
    (np.array([b"a"]), [0.5], [1], r"got \|S1 b'a' - at row 0"),
    ([1, 2**63], [0.5] * 2, [1] * 2, r"key must fit into 64 bits, got 9223372036854775808 - at row 1"),
    (
        np.array([1, 2**63], dtype=np.uint64),
        [0.5] * 2,
        [1] * 2,
        r"64 bits with a sign, got 9223372036854775808 - at row 1",
    ),
    (np.ma.array([1, 2], mask=[0, 1]), [0.5] * 2, [1] * 2, r"got a missing value - at row 1"),
    ([[1], [2]], [0.5] * 2, [1] * 2, r"one-dimensional array of ints or strings, got shape \(2, 1\)"),
    (np.zeros((2, 1), dtype=int), [0.5] * 2, [1] * 2, r"one-dimensional array of ints or strings, got shape \(2, 1\)"),
    ("ab", [0.5] * 2, [1] * 2, r"one-dimensional array of ints or strings, got str"),
    (["a", "\ud800"], [0.5] * 2, [1] * 2, r"written as UTF-8, got '\\ud800' - at row 1"),
    (np.array(["a", "\ud800"]), [0.5] * 2, [1] * 2, r"written as UTF-8, got '\\ud800' - at row 1"),
    (np.array([]), [], [], r"must not be empty, got length 0 for keys"),
    ([], [], [], r"must not be empty"),
    (["a", "b"], [0.5], [1], r"same length, got keys 2, scores 1, outcomes 1"),
    (["a", "b"], [0.5] * 2, [1], r"same length, got keys 2, scores 2, outcomes 1"),
    (["a", "b", "n"], [0.5, 1.3, 0.5], [1] * 3, r"score must be in \[0, 1\], got 1.3 - at row 1"),
    (["a", "b", "n"], [0.5, 0.5, float("nan")], [1] * 3, r"got nan - at row 2"),
    (["a", "b"], [0.5, 0.5], [1, 2], r"outcome must be 0 or 1, got 2.0 - at row 1"),
    ([7], [0.5], [1], r"keys must be strings like those of the bank, got ints - at row 0"),
    (deque(["a", 1]), [0.5] * 2, [1] * 2, "got int 1 after str 'a' - at row 1"),
    (deque([2, True]), [0.5] * 2, [1] * 2, "got bool True - at row 1"),
    (bytearray(b"ab"), [0.5] * 2, [1] * 2, "got bytearray"),
    (memoryview(b"ab"), [0.5] * 2, [1] * 2, "got memoryview"),
    (b"ab", [0.5] * 2, [1] * 2, "got bytes"),
    (["a", "b"], [0.5] * 2, [1, 0.5], "outcome must be 0 or 1, got 0.5 - at row 1"),
    (["a", "b"], [0.5] * 2, [1, "no"], "outcome must be 0 or 1, got str 'no' - at row 1"),
    (["a", "b"], [0.5] * 2, [[1], [0]], "one-dimensional"),
    (["a", "b"], [0.5] * 2, [np.zeros((2, 2)), np.zeros((2, 3))], "one-dimensional"),
]
DUE: list[tuple[Any, Any, str]] = [
    ([1, 0], [0, 2], "due must be later than its own position 0, got 0 - at row 0"),
    ([1, 0], [1], "same length, got scores 2, due 1"),
    ([1, 0], [1.0, 2.0], "whole numbers"),
    ([1], [1, 2], "same length"),
    ([2, 1], [1, 2], "outcome must be 0 or 1, got 2"),
]
MANY: list[tuple[Any, Any, Any, str]] = [
    (["x"], 1, [0, 1], "same length, got keys 1, scores 2"),
    ([1, 2], 1, [0, 1], "keys must be strings like those of the bank, got ints"),
    (["x", "z"], 1, [0, 9], "got 9 - at row 1"),
    (["x", "z"], 1, [0], "same length, got keys 2, scores 2, outcomes 1"),
    (["x", "z"], 2, [0, 1], "sum to 1"),
    (["x", None], 1, [0, 1], "key must be"),
]


@pytest.mark.parametrize(("keys", "scores", "outcomes", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input_leaves_the_bank_as_it_was(
    keys: Any, scores: Any, outcomes: Any, message: str, tmp_path: Path
) -> None:
    bank = Bank(TOPS, prior="pooled", monitor=Monitor())
    bank.run(["a", "b", "a"], [0.2, 0.4, 0.6], [0, 1, 1])
    before = bytes_of(bank, tmp_path)
    with pytest.raises(InvalidInput, match=message):
        bank.run(keys, scores, outcomes)
    assert bytes_of(bank, tmp_path) == before
    empty = Bank(TOPS)
    if "like those of the bank" not in message:
        with pytest.raises(InvalidInput, match=message):
            empty.run(keys, scores, outcomes)
    assert len(empty) == 0


@pytest.mark.parametrize(("outcomes", "due", "message"), DUE)
def test_late_outcomes(outcomes: Any, due: Any, message: str) -> None:
    bank = Bank(OPS)
    with pytest.raises(InvalidInput, match=message):
        bank.run(["a", "a"], [0.5, 0.5], outcomes, due=due)
    assert len(bank) == 0
    bank.run(["a", "b"], [0.5, 0.5], [1, 2], due=[1, 2])  # an outcome that is not needed may be anything


@pytest.mark.parametrize("K", [2, 3])
def test_many_classes(K: int) -> None:
    bank, scores = MultiBank(K), np.full((2, K), 1 / K)
    bank.run(["x", "y"], scores, [0, 1])
    before = content(bank)
    for keys, factor, labels, message in MANY:
        with pytest.raises(InvalidInput, match=message):
            bank.run(keys, factor * scores, labels)
    with pytest.raises(InvalidInput, match="same length, got keys 1, scores 2"):
        bank.predict_many(["x"], scores)
    rows = bank.rows(["x"])
    rows[0, 1] = 1e9
    with pytest.raises(InvalidInput, match="row"):
        bank.set_rows(["x"], rows)
    assert content(bank) == before
    with pytest.raises(InvalidInput, match="logits must be True or False"):
        MultiBank(3, logits=1)  # type: ignore[arg-type]


@kinds
def test_bad_single_events_leave_the_bank_as_it_was(kind: Kind) -> None:
    bank = kind.bank()
    receipt = bank.predict("a", kind.score)
    before = content(bank, receipts=True)
    wrong = [0.5, 0.6, 0.7] if kind.classes else 1.5
    for key, score, message in (
        ("n", wrong, "must sum to 1" if kind.classes else "score must be in"),
        (None, kind.score, "key must be an int or a string"),
        (1, kind.score, "keys must be strings like those of the bank, got ints"),
        ("\ud800", kind.score, "UTF-8"),
        (2**70, kind.score, "64 bits"),
        ([1], kind.score, "got list"),
        (True, kind.score, "got bool"),
    ):
        with pytest.raises(InvalidInput, match=message):
            bank.predict(key, score)
    for what, outcome, message in (
        (receipt, 9, "outcome must be 0 or 1|label must be one of"),
        ("receipt", 1, "forecast must be a (Multi)?Forecast"),
        (type(receipt).from_dict({**receipt.to_dict(), "event": 7}), 1, "got a damaged one"),
    ):
        with pytest.raises(InvalidInput, match=message):
            bank.update("a", what, outcome)
    with pytest.raises(UnknownKey, match="one of the 1 keys of the bank, got 'n'"):
        bank.update("n", receipt, 1)
    with pytest.raises(UnknownForecast):
        bank.update("a", kind.bank().predict("a", kind.score), 1)
    for scores, more in (([kind.score, wrong], {}), ([kind.score] * 2, {"due": [0, 0]})):
        with pytest.raises(InvalidInput):
            bank["a"].run(scores, [1, 1], **more)
    for before_ in (-1, 2.5, None, "3"):
        with pytest.raises(InvalidInput, match="before must be a whole number"):
            bank.drop_idle(before=before_)
    assert content(bank, receipts=True) == before


@kinds
def test_merge_refuses(kind: Kind) -> None:
    bank, other, numbers = (kind.bank() for _ in range(3))
    bank.run(["a", "b"], [kind.score] * 2, [1, 0])
    other.run(["c", "b"], [kind.score] * 2, [1, 0])
    numbers.run([1], [kind.score], [1])
    before = content(bank)
    wrong: list[tuple[Any, str]] = [
        (other, "no key in common, got 'b' in both"),
        (bank, "no key in common, got 'a'"),
        (kind.bank(prior="pooled"), "same prior"),
        (numbers, "strings like those of the bank, got ints"),
        ({"d": 1}, f"merged with a {type(bank).__name__}, got dict"),
    ]
    if kind.classes:
        wrong += [(MultiBank(4, "ots"), "same classes"), (MultiBank(3), "same method")]
        wrong += [(MultiBank(3, "ots", logits=True), "same logits")]
    else:
        wrong += [(Bank(TOPS), "same method"), (Bank(OPS, seed=1), "same seed")]
        wrong += [(Bank(OPS, monitor=Monitor()), "same watched")]
    for what, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            bank.merge(what)
        assert content(bank) == before
    bank.merge(kind.bank())
    fresh = kind.bank()
    fresh.merge(bank)
    assert content(fresh) == content(bank) == before


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


def test_a_row_that_cannot_be_made_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank(OPS)

    def full(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(calibeat.hosts.rows, "with_room", full)
        with pytest.raises(MemoryError):
            bank.predict("a", 0.5)
    assert len(bank) == 0 and "a" not in bank


def test_bad_arguments() -> None:
    for name, method in PRESETS.items():
        if method.needs_history:
            with pytest.raises(InvalidInput, match=f"lives in a row, got '{name}', .* use AUTO"):
                Bank(method)
    with pytest.raises(InvalidInput, match="lives in a row"):
        Bank(replace(WPS, learner=replace(WPS.learner, every=7)))
    for arguments, message in (
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"prior": "pool"}, "prior must be 'pooled', got 'pool'"),
        ({"threads": 0}, "threads must be a whole number"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Bank(OPS, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="threads"):
        Bank(OPS).run([1], [0.5], [1], threads=-2)


@pytest.mark.parametrize("path", [3, None, b"a.bank", 1.5])
def test_what_is_no_path(path: Any) -> None:
    for call in (Bank.load, Bank().save):
        with pytest.raises(InvalidInput, match=r"path must be a string or a pathlib.Path, got \w+ "):
            call(path)  # type: ignore[arg-type, operator]
