"""Many streams of many classes: the same bits as each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pandas as pd
import polars as pl
import pytest

from calibeat import Bank, InvalidInput, MultiBank, MultiCalibrator, SnapshotMismatch, UnknownKey
from calibeat.hosts import bankfile

N = 120
CITIES = np.array(["paris", "rome", "oslo", "a very long name of a city, longer than most"])


def stream(K: int) -> tuple[Any, Any, Any]:
    scores, labels = multi_streams.drifting(N, K)
    return np.random.default_rng(K).integers(0, 4, N), scores, labels


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
@pytest.mark.parametrize("K", [2, 3, 65])
def test_each_key_has_the_bits_of_its_own_calibrator(K: int, method: str, names: bool) -> None:
    at, scores, labels = stream(K)
    keys = CITIES[at] if names else at * 7
    bank = MultiBank(K, method)
    P = np.concatenate([bank.run(keys[:50], scores[:50], labels[:50]), bank.run(keys[50:], scores[50:], labels[50:])])
    for key in np.unique(keys):
        own = keys == key
        alone = MultiCalibrator(K, method)
        np.testing.assert_array_equal(P[own], alone.run(scores[own], labels[own]))
        np.testing.assert_array_equal(bank.row(key.item()), alone.row)
        place = list(bank).index(key.item())
        assert bank.table["evidence"][place] == alone.evidence
        assert bank.table["events"][place] == bank.table["outcomes"][place] == own.sum()
        same_key = np.full(N, key)
        np.testing.assert_array_equal(bank.predict_many(same_key, scores), alone.predict_many(scores))


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize("K", [2, 3, 65])
def test_late_labels(K: int, finish: bool) -> None:
    keys, scores, labels = stream(K)
    due = multi_streams.delays(N, "reordered")
    bank = MultiBank(K)
    P = bank.run(keys, scores, labels, due=due, finish=finish)
    alone = {key: MultiCalibrator(K) for key in range(4)}
    receipts: dict[int, Any] = {}
    for i in range(N + 1):
        last = i == N
        for j in sorted(receipts, key=lambda j: (max(due[j], N), j)):  # behind the end in the order of `due`
            arrived = due[j] <= (N - 1 if last and not finish else i) or (last and finish)
            if arrived and (last or keys[j] == keys[i]):
                alone[int(keys[j])].update(receipts.pop(j), int(labels[j]))
        if not last:
            receipts[i] = alone[int(keys[i])].predict(scores[i])
            np.testing.assert_array_equal(P[i], receipts[i].probabilities)
    for key, cal in alone.items():
        np.testing.assert_array_equal(bank.row(key), cal.row)


@pytest.mark.parametrize("K", [2, 3])
def test_unknown_labels_are_forecast_and_not_learnt(K: int) -> None:
    bank = MultiBank(K)
    scores = np.full((4, K), 1.0 / K)
    bank.run([1, 1, 1, 1], scores, [0, None, 1, None])
    bank.run([1, 1], scores[:2], np.array([np.nan, 1.0]))
    assert bank.table["events"].tolist() == [6] and bank.table["outcomes"].tolist() == [3]


def test_frames_in_and_out() -> None:
    keys, scores, labels = stream(3)
    P = MultiBank(3).run(keys, scores, labels)
    frame = pd.DataFrame(scores, columns=["a", "b", "c"], index=np.arange(N) + 5)
    out = MultiBank(3).run(pd.Series(CITIES[keys]), frame, pd.Series(labels))
    pd.testing.assert_frame_equal(out, pd.DataFrame(P, columns=["a", "b", "c"], index=frame.index))
    other = MultiBank(list("abc")).run(pl.Series(keys), pl.DataFrame(frame), pl.Series(np.array(list("abc"))[labels]))
    np.testing.assert_array_equal(other.to_numpy(), P)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize(("K", "method"), [(2, "multi"), (3, "multi"), (65, "multi"), (3, "ots"), (2, "raw")])
def test_save_and_load(K: int, method: str, names: bool, tmp_path: Path) -> None:
    at, scores, labels = stream(K)
    keys = CITIES[at] if names else at
    bank = MultiBank([f"class {k}" for k in range(K)], method, logits=True)
    words = [f"class {y}" for y in labels]
    bank.run(keys[:60], np.log(scores[:60]), words[:60])
    bank.save(tmp_path / "a.bank")
    twin = MultiBank.load(tmp_path / "a.bank")
    assert (list(twin), twin.classes, twin.method, repr(twin)) == (list(bank), bank.classes, method, repr(bank))
    rest = keys[60:], np.log(scores[60:]), words[60:]
    np.testing.assert_array_equal(twin.run(*rest), bank.run(*rest))
    twin.save(tmp_path / "a.bank")
    assert MultiBank.load(tmp_path / "a.bank").table["events"].sum() == N


def test_an_empty_bank(tmp_path: Path) -> None:
    bank = MultiBank(3)
    assert (len(bank), list(bank), 7 in bank) == (0, [], False)
    np.testing.assert_allclose(bank.predict_many([7], [[0.2, 0.3, 0.5]]), [[0.2, 0.3, 0.5]], atol=1e-6)
    bank.save(tmp_path / "empty.bank")
    assert len(MultiBank.load(tmp_path / "empty.bank")) == 0
    with pytest.raises(UnknownKey, match="one of the 0 keys of the bank, got 7"):
        bank.row(7)


def test_files_that_are_no_such_bank(tmp_path: Path) -> None:
    path = tmp_path / "b.bank"
    Bank().save(path)
    with pytest.raises(SnapshotMismatch, match="a bank of two classes, which Bank"):
        MultiBank.load(path)
    bank = MultiBank(3)
    bank.run([1, 2], [[0.2, 0.3, 0.5]] * 2, [None, None])
    bank.save(path)
    with pytest.raises(SnapshotMismatch, match="a bank of many classes, which MultiBank"):
        Bank.load(path)
    content = bytearray(path.read_bytes())
    rows = content.rfind(np.full(6, 1 / 6).tobytes()[:8])  # a number of the second row
    content[rows] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(SnapshotMismatch, match="undamaged"):
        MultiBank.load(path)


@pytest.mark.parametrize("K", [2, 3])
def test_impossible_content(K: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = MultiBank(K)
    bank.run(["x", "y"], np.full((2, K), 1 / K), [0, 1])
    bank._rows.matrix[1, 3] = 1e12
    bank.save(tmp_path / "odd.bank")
    monkeypatch.undo()
    with pytest.raises(SnapshotMismatch, match=r"must hold what a bank can hold.* - at row 1"):
        MultiBank.load(tmp_path / "odd.bank")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 3}, "must have .* numbers, got"),
        ({"hash_seed": -1}, "hash_seed must be"),
        ({"multi": {"classes": 4, "method": "multi", "logits": False}}, "must have"),
        ({"multi": {"classes": 3, "method": "best", "logits": False}}, "method must be"),
    ],
)
def test_impossible_headers(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = MultiBank(3)
    bank.run(["x", "y"], np.full((2, 3), 1 / 3), [0, 1])
    header = {**bankfile.header_of(bank), **change}
    monkeypatch.setattr(bankfile, "header_of", lambda _: header)
    monkeypatch.setattr(bankfile, "_load", lambda *_, **__: None)
    bank.save(tmp_path / "odd.bank")
    monkeypatch.undo()
    with pytest.raises(SnapshotMismatch, match=message):
        MultiBank.load(tmp_path / "odd.bank")


@pytest.mark.parametrize("K", [2, 3])
def test_bad_input_changes_nothing(K: int) -> None:
    bank = MultiBank(K)
    scores = np.full((2, K), 1 / K)
    bank.run(["x", "y"], scores, [0, 1])
    before = bank.row("x")
    for keys, given, labels, message in (
        (["x"], scores, [0, 1], "same length, got keys 1, scores 2"),
        ([1, 2], scores, [0, 1], "keys must be strings like those of the bank, got ints"),
        (["x", "z"], scores, [0, 9], "got 9 - at row 1"),
        (["x", "z"], scores, [0], "same length, got keys 2, scores 2, outcomes 1"),
        (["x", "z"], 2 * scores, [0, 1], "sum to 1"),
        (["x", None], scores, [0, 1], "key must be"),
    ):
        with pytest.raises(InvalidInput, match=message):
            bank.run(keys, given, labels)
    with pytest.raises(InvalidInput, match="same length, got keys 1, scores 2"):
        bank.predict_many(["x"], scores)
    with pytest.raises(InvalidInput, match="logits must be True or False"):
        MultiBank(3, logits=1)  # type: ignore[arg-type]
    with pytest.raises(UnknownKey):
        bank.row("z")
    np.testing.assert_array_equal(bank.row("x"), before)
    assert len(bank) == 2 and "z" not in bank and 7 not in bank and 1.5 not in bank
