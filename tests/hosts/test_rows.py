"""Rows, stats, keys and index of a file get the checks that a snapshot gets, all rows at once."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import filled, rewritten, with_array

from calibeat import AUTO, HOPS, OPS, TOPS, Bank, SnapshotMismatch
from calibeat.core.layout import N, T
from calibeat.core.stats import EVENTS, LAST, STATS


def changed(rows: Any, at: tuple[int, int], value: float) -> Any:
    rows = rows.copy()
    rows[at] = value
    return rows


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (T, 0.5, "events at the last outcome as a whole number"),
        (N, -1.0, "outcomes in"),
        (T, 1e9, "events at the last outcome in"),
        (EVENTS - STATS, 1e300, "events in"),
        (EVENTS - STATS, -3.0, "events in"),
        (EVENTS - STATS, 2.5, "events as a whole number"),
        (LAST - STATS, 1e9, "a last event in"),
        (LAST - STATS, 0.5, "a last event as a whole number"),
        (LAST - STATS, -1.0, "a last event in"),
        (-1, -0.1, "brier in"),
        (-1, np.inf, "brier in"),
        (4, 1e308, "A in"),
        (5, 1e140, "A in"),
        (4, -5.0, "A in"),
        (TOPS.spec.cells, 3e9, "a sum of outcomes in"),
    ],
)
def test_a_file_that_no_bank_wrote(column: int, value: float, message: str, tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    rows = bank._rows.matrix[: len(bank)]
    (tmp_path / "other").write_bytes(with_array(whole, "rows", changed(rows, (2, column), value)))
    with pytest.raises(SnapshotMismatch, match=message):
        Bank.load(tmp_path / "other")


def test_sums_of_hedging_are_checked(tmp_path: Path) -> None:
    """A forecast of -0.15 came of such a file."""
    bank = filled(HOPS)
    bank.save(tmp_path / "bank")
    rows = bank._rows.matrix[: len(bank)].copy()
    cells = HOPS.spec.cells
    used = int(np.flatnonzero(rows[0, cells + 1 : HOPS.width : 2])[0])
    rows[0, cells + 2 * used] = rows[0, cells + 2 * used + 1] + 4.0
    (tmp_path / "other").write_bytes(with_array((tmp_path / "bank").read_bytes(), "rows", rows))
    with pytest.raises(SnapshotMismatch, match="a sum of outcomes in"):
        Bank.load(tmp_path / "other")


def test_weights_of_lanes_are_checked(tmp_path: Path) -> None:
    bank = filled(AUTO)
    bank.save(tmp_path / "bank")
    rows = bank._rows.matrix[: len(bank)].copy()
    rows[3, 38] += 0.5
    (tmp_path / "other").write_bytes(with_array((tmp_path / "bank").read_bytes(), "rows", rows))
    with pytest.raises(SnapshotMismatch, match=r"weights of lanes .* - at row 3"):
        Bank.load(tmp_path / "other")


def test_the_pool_is_checked(tmp_path: Path) -> None:
    bank = filled(prior="pooled")
    bank.save(tmp_path / "bank")
    pool = bank.pool
    pool[N] -= 0.5
    (tmp_path / "other").write_bytes(with_array((tmp_path / "bank").read_bytes(), "pool", pool))
    with pytest.raises(SnapshotMismatch, match="outcomes as a whole number"):
        Bank.load(tmp_path / "other")


@pytest.mark.parametrize("strings", [False, True])
def test_keys_that_are_there_twice_or_not_found(strings: bool, tmp_path: Path) -> None:
    bank = filled(strings=strings)
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    arrays = bank._rows.arrays()
    cases = {"not found": with_array(whole, "table", np.roll(arrays["table"], 5))}
    if strings:
        marks = arrays["marks"].copy()
        marks[2:4] = marks[0:2]
        cases["the same key twice|not found"] = with_array(whole, "marks", marks)
        hashes = arrays["marks"].copy()
        hashes[5] ^= 1
        cases["a key that is not found"] = with_array(whole, "marks", hashes)
        cut = arrays["marks"].copy()
        cut[4] += 1
        cases["whole characters"] = with_array(whole, "marks", cut)
    else:
        keys = arrays["keys"].copy()
        keys[1] = keys[0]
        cases["the same key twice|not found"] = with_array(whole, "keys", keys)
    for message, content in cases.items():
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(SnapshotMismatch, match=message):
            Bank.load(tmp_path / "other")


def signed(text: bytes, version: int = 2) -> bytes:
    """A file with this header and its right checksum."""
    start = struct.pack("<8sII32s", b"calibank", version, len(text), hashlib.sha256(text).digest())
    return (start + text).ljust(4096 * (1 + len(text) // 4096), b"\0")


def test_hostile_headers_are_sentences(tmp_path: Path) -> None:
    filled().save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    header = json.loads(whole[48 : 48 + struct.unpack_from("<I", whole, 12)[0]])
    nested: Any = 1
    for _ in range(400):
        nested = [nested]
    cases = [
        signed(b'{"arrays":' + b"[" * 100_000),
        signed(b'{"arrays":' + b'{"a":' * 100_000),
        signed(b'{"a":' * 5000 + b"1" + b"}" * 5000),
        signed(b"[" * 500 + b"]" * 500),
        signed(b"null"),
        signed(b"1" * 10_000),
        signed(b"{}"),
        signed(b'{"arrays": {}}'),
        rewritten(whole, method=nested),
        rewritten(whole, seed=nested),
        rewritten(whole, arrays={**header["arrays"], "rows": {"offset": 10**30, "bytes": 1, "checksum": ""}}),
        rewritten(whole, arrays={**header["arrays"], "rows": {"offset": -4096, "bytes": 4096, "checksum": ""}}),
        rewritten(whole, arrays={**header["arrays"], "rows": 7}),
        rewritten(whole, hash_seed=-1),
        rewritten(whole, hash_seed=None),
        rewritten(whole, hash_seed="x"),
        rewritten(whole, clock=0.5),
        rewritten(whole, count=1.5),
        rewritten(whole, count=True),
        rewritten(whole, keys=[]),
    ]
    for content in cases:
        (tmp_path / "other").write_bytes(content)
        for verify in (False, True):
            for mmap in (False, True):
                with pytest.raises(SnapshotMismatch):
                    Bank.load(tmp_path / "other", verify=verify, mmap=mmap)


def test_a_table_without_a_free_place_is_refused_in_any_case(tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    header = json.loads(whole[48 : 48 + struct.unpack_from("<I", whole, 12)[0]])
    places = header["arrays"]
    places["table"]["bytes"] = 4 * len(bank)
    (tmp_path / "other").write_bytes(rewritten(whole, arrays=places))
    with pytest.raises(SnapshotMismatch, match="table must have more than"):
        Bank.load(tmp_path / "other", verify=False)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ledgers", [-1, 0, 0, 1]),
        ("ledgers", [10**6, 0, 0, 1]),
        ("ledgers", [0, -1, 0, 1]),
        ("ledgers", [0, 10**6, 0, 1]),
        ("ledgers", [0, 0, 7, 1]),
        ("ledgers", [0, 0, 0, 0]),
        ("ledgers", [0, 0, 0, 2]),
        ("ledgers", [0, 0, 0, -1]),
        ("ledgers", [0, 0, 0, 2**62]),
        ("settled", [0b10_10_10_10]),  # more than it has learnt
    ],
)
def test_ledgers_that_cannot_be_are_refused(name: str, values: list[int], tmp_path: Path) -> None:
    bank = Bank(OPS)
    receipts = [bank.predict("a", 0.5) for _ in range(4)]
    bank.update("a", receipts[1], 1)
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    assert bank._rows.open_ledgers()["ledgers"].tolist() == [0, 0, 0, 1]
    (tmp_path / "other").write_bytes(
        with_array(whole, name, np.array(values, dtype="<i8" if name == "ledgers" else "u1"))
    )
    with pytest.raises(SnapshotMismatch, match="must hold what a bank can hold"):
        Bank.load(tmp_path / "other")
