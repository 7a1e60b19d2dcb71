"""Receipts in columns: the statuses of `learn`, and a batch is data.

That `issue` and `learn` are `predict` and `update` of many events is in `test_all_hosts_agree`.
"""

from __future__ import annotations

import io
import pickle
from math import nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibeat import Bank, Calibrator, InvalidInput, MultiCalibrator, UnknownForecast
from calibeat.hosts.receipts import LEAST, Receipts

N = 60
RNG = np.random.default_rng(40)
SCORES = RNG.random(N)
MATRIX = RNG.dirichlet([1.0] * 3, N)
PAIRS = np.stack([1.0 - SCORES, SCORES], axis=1)
OUTCOMES = RNG.integers(0, 2, N)
LABELS = RNG.integers(0, 3, N)
GROUPS = {"country": [f"c{i % 4}" for i in range(N)], "device": [i % 3 for i in range(N)]}
KEYS = [f"key {i % 7}" for i in range(N)]


# of each host: how it is made, the arguments of a forecast of all events, and the outcomes
STREAMS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "ops": (lambda: Calibrator("ops"), {"scores": SCORES}, OUTCOMES),
    "refits": (lambda: Calibrator("fps"), {"scores": SCORES}, OUTCOMES),
    "groups": (lambda: Calibrator(groups=list(GROUPS)), {"scores": SCORES, "groups": GROUPS}, OUTCOMES),
    "pair": (lambda: MultiCalibrator(["a", "b"]), {"scores": PAIRS}, None),
    "classes": (lambda: MultiCalibrator(list("abc")), {"scores": MATRIX}, None),
    "logits": (lambda: MultiCalibrator(3, "ots", True), {"scores": np.log(MATRIX)}, LABELS),
}


def labels_of(host: Any, given: Any) -> Any:
    """The outcomes, or labels by their columns."""
    if given is not None:
        return given.tolist()
    classes = host.classes
    return [classes[int(label) % len(classes)] for label in LABELS]


def predicted(host: Any, given: dict[str, Any], event: int) -> Any:
    groups = {"groups": {name: column[event] for name, column in GROUPS.items()}} if "groups" in given else {}
    return host.predict(given["scores"][event], **groups)


# ---- statuses ------------------------------------------------------------------------------------------------------


def damaged(receipt: bytes, at: int) -> bytes:
    return receipt[:at] + bytes([receipt[at] ^ 1]) + receipt[at + 1 :]


@pytest.mark.parametrize("method", ["ops", "auto", "fps"])
def test_statuses_of_a_stream(method: str) -> None:
    cal, other = Calibrator(method, stream="a"), Calibrator(method, stream="b")
    batch, foreign = cal.issue(SCORES[:6]), other.issue(SCORES[:6])
    cal.learn(batch[:2], [0, 1])
    copy = Calibrator.from_json(cal.to_json())
    made_by_copy = copy.issue([0.5])
    receipts = [batch[at].to_bytes() for at in range(6)]
    given = [
        (receipts[0], 0, "repeated"),
        (receipts[1], 0, "conflict"),
        (receipts[2], 1, "learnt"),
        (receipts[2], 1, "repeated"),
        (foreign[3].to_bytes(), 1, "unknown"),
        (damaged(foreign[3].to_bytes(), 45), 1, "invalid"),
        (damaged(receipts[3], 50), 1, "invalid"),
        (damaged(receipts[3], 0), 1, "invalid"),
        (damaged(receipts[3], 44), 1, "invalid"),
        (made_by_copy[0].to_bytes(), 1, "unknown"),
        (receipts[5], 0, "learnt"),
    ]
    joined = Receipts.from_bytes(b"".join(receipt for receipt, _, _ in given))
    assert cal.learn(joined, [y for _, y, _ in given]).tolist() == [status for _, _, status in given]
    assert cal.outcomes == 4


def test_statuses_of_a_bank() -> None:
    bank, other = Bank("ops", stream="a"), Bank("ops", stream="b")
    batch, foreign = bank.issue(["x", "y", "x", "z"], SCORES[:4]), other.issue(["x"], [0.5])
    assert bank.learn(batch[:1], [1]).tolist() == ["learnt"]
    receipts = [batch[at].to_bytes() for at in range(4)]
    del bank["z"]
    given = [
        (receipts[0], 1, "repeated"),
        (receipts[0], 0, "conflict"),
        (foreign[0].to_bytes(), 1, "unknown"),
        (receipts[3], 1, "unknown"),
        (damaged(receipts[3], 60), 1, "invalid"),
        (damaged(receipts[1], 41), 1, "invalid"),
        (receipts[2], 0, "learnt"),
        (receipts[1], 0, "learnt"),
    ]
    joined = Receipts.from_bytes(b"".join(receipt for receipt, _, _ in given))
    assert bank.learn(joined, [y for _, y, _ in given]).tolist() == [status for _, _, status in given]
    assert Bank("ops", stream="a").learn(batch, [0] * 4).tolist() == ["unknown"] * 4
    assert bank.learn(batch[3:], [0]).tolist() == ["unknown"]


def test_receipts_of_another_method_are_unknown_and_damaged_ones_invalid() -> None:
    ops, auto, bank = Calibrator("ops"), Calibrator("auto"), Bank("tops")
    batch = auto.issue(SCORES[:2])
    data = batch.to_bytes()
    broken = Receipts.from_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for host in (ops, bank):
        assert host.learn(batch, [0, 1]).tolist() == ["unknown", "unknown"]
        assert host.learn(broken, [0, 1]).tolist() == ["unknown", "invalid"]
    assert Calibrator("tops").learn(ops.issue([0.5]), [1]).tolist() == ["unknown"]


@pytest.mark.parametrize("method", ["ops", "fps"])
def test_an_outcome_that_comes_too_late_is_unknown(method: str) -> None:
    cal = Calibrator(method)
    batch = cal.issue([0.5, 0.6])
    cal.run(np.full(4_194_310, 0.5), np.ones(4_194_310))
    later = cal.issue([0.5])
    cal.learn(later, [1])
    assert cal.learn(batch, [1, 0]).tolist() == ["unknown", "unknown"]
    with pytest.raises(UnknownForecast):
        cal.update(batch[0], 1)


# ---- one by one, and many ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_a_batch_is_made_of_forecasts(name: str) -> None:
    make, given, outcomes = STREAMS[name]
    host = make()
    batch, labels = host.issue(**given), labels_of(host, outcomes)
    one = batch[3]
    read = type(one).from_bytes(one.to_bytes(), *([batch._classes] if batch._classes else []))
    assert read == one
    assert host.update(one, labels[3]) == "learnt"
    assert host.learn(batch[3:5], labels[3:5]).tolist() == ["repeated", "learnt"]
    single = predicted(host, given, 5)
    assert host.learn(Receipts.from_bytes(single.to_bytes()), [labels[5]]).tolist() == ["learnt"]
    assert host.update(single, labels[5]) == "repeated"
    assert batch[-1] == batch[N - 1]
    with pytest.raises(IndexError):
        batch[N]


def test_a_key_of_a_bank_issues_and_learns() -> None:
    bank = Bank("ops", stream=1)
    bank.predict("x", 0.5)
    batch = bank["x"].issue([0.2, 0.3])
    assert bank["x"].learn(batch[:1], [1]).tolist() == ["learnt"]
    assert bank.learn(batch, [1, 0]).tolist() == ["repeated", "learnt"]
    elsewhere = bank.issue(["y"], [0.5])
    assert bank["x"].learn(elsewhere, [1]).tolist() == ["unknown"]
    assert bank.update("y", elsewhere[0], 1) == "learnt"
    assert (bank["x"].events, bank["x"].outcomes) == (3, 2)


def test_many_keys_of_one_call_keep_their_open_events() -> None:
    bank = Bank("ops")
    bank._rows._most_ledgers = 4
    keys = [f"k{i % 10}" for i in range(30)]
    batch = bank.issue(keys, np.full(30, 0.5))
    assert bank.learn(batch, [1] * 30).tolist() == ["learnt"] * 30
    assert bank.table["outcomes"].tolist() == [3] * 10


# ---- as data -------------------------------------------------------------------------------------------------------


def test_a_batch_is_data() -> None:
    cal = Calibrator("auto")
    batch = cal.issue(SCORES)
    assert (len(batch), batch.size) == (N, len(batch[0].to_bytes()))
    assert batch.to_bytes() == b"".join(batch[at].to_bytes() for at in range(N))
    assert [forecast.probability for forecast in batch] == batch.probabilities.tolist()
    for again in (
        Receipts.from_bytes(batch.to_bytes()),
        Receipts.from_bytes(bytearray(batch.to_bytes()), size=batch.size),
        pickle.loads(pickle.dumps(batch)),  # noqa: S301
        Receipts.from_arrow(batch.to_arrow()),
    ):
        assert again == batch
        assert again[7] == batch[7]
    assert batch != batch[:-1]
    assert batch[:2] != batch[1:3]
    assert batch != batch.to_bytes()
    assert repr(batch) == f"Receipts({N} of {batch.size} bytes)"
    with pytest.raises(TypeError):
        hash(batch)
    empty = batch[:0]
    assert (len(empty), empty.probabilities.tolist()) == (0, [])
    for again in (Receipts.from_bytes(b""), pickle.loads(pickle.dumps(empty)), Receipts.from_arrow(empty.to_arrow())):  # noqa: S301
        assert again == empty


def test_a_batch_of_classes_keeps_its_labels() -> None:
    cal = MultiCalibrator(["cat", "dog", "bird"])
    batch = cal.issue(MATRIX)
    assert batch[2].label in cal.classes
    assert pickle.loads(pickle.dumps(batch))[2] == batch[2]  # noqa: S301
    assert Receipts.from_bytes(batch.to_bytes(), cal.classes)[2] == batch[2]
    assert Receipts.from_arrow(batch.to_arrow(), cal.classes)[2] == batch[2]
    assert Receipts.from_bytes(batch.to_bytes())[2].label == batch[2].column
    assert batch.probabilities.shape == (N, 3)
    assert cal.learn(Receipts.from_bytes(batch.to_bytes()), ["cat"] * N).tolist() == ["learnt"] * N


def test_a_column_survives_parquet_and_comes_from_others() -> None:
    import pandas as pd
    import polars as pl

    cal = Calibrator("ops")
    batch = cal.issue(SCORES)
    file = io.BytesIO()
    pq.write_table(pa.table({"receipt": batch.to_arrow(), "p": batch.probabilities}), file, row_group_size=17)
    file.seek(0)
    column = pq.read_table(file)["receipt"]
    assert column.type == pa.binary(LEAST)
    assert Receipts.from_arrow(column) == batch
    assert Receipts.from_arrow(column.slice(5, 9)) == batch[5:14]
    assert Receipts.from_arrow(batch.to_arrow().slice(5, 9)) == batch[5:14]
    chunks = pa.chunked_array([batch[:4].to_arrow(), batch[4:].to_arrow()]).cast(pa.binary())
    assert Receipts.from_arrow(pd.Series(pd.arrays.ArrowExtensionArray(chunks))) == batch
    assert Receipts.from_arrow(pl.Series([batch[at].to_bytes() for at in range(N)])) == batch
    assert Receipts.from_arrow(pa.array([batch[0].to_bytes()], type=pa.large_binary())) == batch[:1]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([b"x"], "receipts must be a column of binary values, got"),
        (pa.array([1, 2]), "receipts must be a column of binary values, got int64"),
        (pa.array([bytes(112), None], type=pa.binary(112)), "got a missing value - at row 1"),
        (pa.array([bytes(112), bytes(120)]), "receipts must have one size, got others than 112 bytes"),
        (pa.array([bytes(24)], type=pa.binary(24)), "receipts must be bytes of a whole number of receipts"),
    ],
)
def test_columns_that_are_none(column: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Receipts.from_arrow(column)


@pytest.mark.parametrize(("data", "size"), [(bytes(113), None), ("text", None), (bytes(240), 120 + 112), (bytes(8), 8)])
def test_bytes_that_are_none(data: Any, size: int | None) -> None:
    with pytest.raises(InvalidInput, match="receipts must be bytes"):
        Receipts.from_bytes(data, size=size)


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_what_is_wrong_with_a_call_changes_nothing() -> None:
    for host, keys in ((Calibrator("ops"), ()), (Bank("ops"), (["a", "a", "b"],))):
        batch = host.issue(*keys, [0.1, 0.2, 0.3])
        for outcomes, message in (
            ([0, nan, 1], "outcome must be 0 or 1, got nan - at row 1"),
            ([0, 1, None], "outcome must be 0 or 1, got .* - at row 2"),
            ([0, 2, 1], "outcome must be 0 or 1, got 2.0 - at row 1"),
            ([0, 1], "arrays must have the same length, got receipts 3, outcomes 2"),
        ):
            with pytest.raises(InvalidInput, match=message):
                host.learn(batch, outcomes)
        with pytest.raises(InvalidInput, match=r"receipts must be a batch made by issue .* - use update for one"):
            host.learn(batch[0], [1])
        with pytest.raises(InvalidInput, match="receipts must be a batch made by issue"):
            host.learn(batch.to_bytes(), [1])
        with pytest.raises(InvalidInput, match="at row 1"):
            host.issue(*keys, [0.1, 1.2, 0.3])
        with pytest.raises(InvalidInput, match="groups"):
            host.issue(*keys, [0.1, 0.2, 0.3], groups={"a": [1, 2, 3]})
        assert host.learn(batch, [0, 1, 0]).tolist() == ["learnt"] * 3
    cal = MultiCalibrator(["cat", "dog", "bird"])
    two = cal.issue(MATRIX[:2])
    with pytest.raises(InvalidInput, match=r"label must be one of .*, got 'cow' - at row 1"):
        cal.learn(two, ["cat", "cow"])
    with pytest.raises(InvalidInput, match="keys 2, scores 3"):
        Bank("ops").issue(["a", "b"], [0.1, 0.2, 0.3])
    with pytest.raises(InvalidInput, match="groups must be country, device, got none"):
        Calibrator(groups=list(GROUPS)).issue([0.5])


def test_a_bank_of_a_mapped_file_issues_and_learns_nothing(tmp_path: Any) -> None:
    bank = Bank("ops")
    batch = bank.issue(["a"], [0.5])
    bank.save(tmp_path / "bank")
    mapped = Bank.load(tmp_path / "bank", mmap=True)
    for call in (lambda: mapped.issue(["a"], [0.5]), lambda: mapped["a"].issue([0.5])):
        with pytest.raises(InvalidInput, match="mmap=True cannot issue receipts"):
            call()
    for call in (lambda: mapped.learn(batch, [1]), lambda: mapped["a"].learn(batch, [1])):
        with pytest.raises(InvalidInput, match="mmap=True cannot learn"):
            call()
