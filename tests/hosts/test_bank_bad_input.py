"""Whatever is wrong with an input of a bank is named, and the bank is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import bytes_of

import calibeat.hosts.bank
import calibeat.hosts.rows
from calibeat import OPS, TOPS, WPS, Bank, InvalidInput
from calibeat.core.method import PRESETS

# ---- bad input -----------------------------------------------------------------------------------------------------


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
]


@pytest.mark.parametrize(("keys", "scores", "outcomes", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input_leaves_the_bank_as_it_was(
    keys: Any, scores: Any, outcomes: Any, message: str, tmp_path: Path
) -> None:
    bank = Bank(TOPS, prior="pooled")
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


def test_bad_single_events_leave_the_bank_as_it_was(tmp_path: Path) -> None:
    bank = Bank(TOPS)
    receipt = bank.predict("a", 0.5)
    before = bytes_of(bank, tmp_path)
    for key, score, message in (
        ("n", 1.5, "score must be in"),
        (None, 0.5, "key must be an int or a string"),
        (1, 0.5, "strings like those"),
        ("\ud800", 0.5, "UTF-8"),
        (2**70, 0.5, "64 bits"),
        ([1], 0.5, "got list"),
        (True, 0.5, "got bool"),
    ):
        with pytest.raises(InvalidInput, match=message):
            bank.predict(key, score)  # type: ignore[arg-type]
    for key, what, outcome in (("a", receipt, 2), ("a", "receipt", 1), ("a", receipt.__replace__(score=3.0), 1)):
        with pytest.raises(InvalidInput):
            bank.update(key, what, outcome)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        bank.update("n", receipt, 1)
    with pytest.raises(InvalidInput):
        bank["a"].run([0.5, 2.0], [1, 1])
    with pytest.raises(InvalidInput):
        bank["a"].run([0.5, 0.5], [1, 1], due=[0, 0])
    assert bytes_of(bank, tmp_path) == before


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
