"""A bank as a file: exact, atomic, and every kind of damage is named; the command line looks into it."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import multiprocessing
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import checksum_of_part, filled, naive_checksum, rewritten, with_array

import calibeat.hosts.bankfile
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, InvalidInput, Method, MultiBank, SnapshotMismatch
from calibeat._compiled import OPEN, ZERO, checksum
from calibeat.core.layout import CLIPPED, SUM, THETA, WEIGHT, N, T
from calibeat.core.stats import BRIER, EVENTS, LAST, STATS, WEIGHTS
from calibeat.hosts.bankfile import FORMAT


def test_a_mapped_bank_is_for_reading(tmp_path: Path) -> None:
    bank = filled()
    path = tmp_path / "bank"
    bank.save(path)
    mapped = Bank.load(path, mmap=True)
    before = path.read_bytes()
    key = next(iter(bank))
    said = mapped.predict(key, 0.3)
    for again in (bank.predict(key, 0.3), mapped.predict(key, 0.3)):
        for field in ("probability", "score", "expert", "bin", "cell"):
            assert getattr(again, field) == getattr(said, field)
    assert mapped.predict(999, 0.3).probability == bank.predict_many([999], [0.3])[0] and 999 not in mapped
    assert mapped[key].params == bank[key].params
    for action in (
        lambda: mapped.run([key], [0.5], [1]),
        lambda: mapped.update(key, said, 1),
        lambda: mapped.merge(Bank(TOPS)),
        lambda: mapped.drop_idle(before=3),
        lambda: mapped.__delitem__(key),
        lambda: mapped[key].update(said, 1),
        lambda: mapped[key].run([0.5], [1]),
    ):
        with pytest.raises(InvalidInput, match="opened with mmap=True cannot"):
            action()
    mapped.save(tmp_path / "copy")
    assert path.read_bytes() == before == (tmp_path / "copy").read_bytes()


def forecasts_of(path: str, scores: list[float]) -> list[float]:
    bank = Bank.load(path, mmap=True)
    return bank.predict_many(list(bank)[: len(scores)], scores).tolist()


def test_processes_share_a_file(tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    scores = np.linspace(0.1, 0.9, 20).tolist()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(forecasts_of, [(str(tmp_path / "bank"), scores)] * 2)
    assert found == [forecasts_of(str(tmp_path / "bank"), scores)] * 2


def test_banks_without_keys_and_with_the_empty_key(tmp_path: Path) -> None:
    empty, odd = Bank(TOPS, seed=9), Bank("bm")
    odd.run([""], [0.5], [1])
    for bank in (empty, odd):
        bank.save(tmp_path / "bank")
        for mmap in (False, True):
            twin = Bank.load(tmp_path / "bank", mmap=mmap)
            assert list(twin) == list(bank) and repr(twin) == repr(bank)
    twin = Bank.load(tmp_path / "bank")
    twin.run(["", "a"], [0.5, 0.5], [1, 1])
    del twin[""]
    twin.save(tmp_path / "bank")
    assert list(Bank.load(tmp_path / "bank")) == ["a"]


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all that `_util.files` writes: see tests/util/test_files.py."""
    bank = filled()
    path = tmp_path / "bank"
    bank.save(path)
    before = path.read_bytes()

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    bank.run([1], [0.5], [1])
    with monkeypatch.context() as patch:
        patch.setattr(calibeat.hosts.bankfile.os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            bank.save(path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["bank"]
    (tmp_path / "link").symlink_to(path)
    bank.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and path.read_bytes() != before
    os.mkfifo(tmp_path / "pipe")
    for target, what in ((tmp_path, "folder"), (tmp_path / "pipe", "FIFO"), ("/dev/stdout", "open stream")):
        with pytest.raises(InvalidInput, match=f"output must be a file, got the {what}"):
            bank.save(target)
    with pytest.raises(InvalidInput, match="bank file must be a file, got the FIFO"):
        Bank.load(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        bank.save(tmp_path / "no" / "bank")
    with pytest.raises(InvalidInput, match="threads"):
        Bank.load(path, threads=0)


def refused(path: Path, content: bytes, message: str = "bank file must") -> None:
    path.write_bytes(content)
    for mmap in (False, True):
        with pytest.raises(SnapshotMismatch, match=message):
            Bank.load(path, mmap=mmap)


def header_in(whole: bytes) -> dict[str, Any]:
    """The header of a file."""
    found: dict[str, Any] = json.loads(whole[48 : 48 + struct.unpack_from("<I", whole, 12)[0]])
    return found


def signed(text: bytes) -> bytes:
    """A file with this header and its right checksum, and no arrays."""
    start = struct.pack("<8sII32s", b"calibank", FORMAT, len(text), hashlib.sha256(text).digest())
    return (start + text).ljust(4096 * (1 + len(text) // 4096), b"\0")


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    filled(AUTO, strings=True).save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    damaged = tmp_path / "damaged"
    rng = np.random.default_rng(0)
    header = header_in(whole)
    edges = {
        place["offset"] + i for place in header["arrays"].values() for i in (0, place["bytes"] - 1, place["bytes"])
    }
    for at in sorted({0, 8, 12, 16, 47, 48, 4095, len(whole) - 1, *edges, *rng.integers(0, len(whole), 150).tolist()}):
        refused(damaged, whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1 :])
    pages = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    assert len(pages) > 10
    for i in range(len(pages)):
        other = (i + 1) % len(pages)
        swapped = pages.copy()
        swapped[i], swapped[other] = pages[other], pages[i]
        for content in (
            swapped,
            [*pages[:i], bytes(4096), *pages[i + 1 :]],
            [*pages[:i], *pages[i + 1 :], bytes(4096)],
        ):
            if content != pages:
                refused(damaged, b"".join(content))
    for size in (0, 7, 47, 60, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        damaged.write_bytes(whole[:size])
        for verify in (False, True):
            with pytest.raises(SnapshotMismatch):
                Bank.load(damaged, verify=verify)
    for more in (b"more", bytes(4096)):
        refused(damaged, whole + more, f"must have {len(whole)} bytes, got {len(whole) + len(more)}")


def test_damage_where_one_checksum_goes_on_from_another(tmp_path: Path) -> None:
    keys = np.arange(33_000)
    bank = Bank(TOPS)
    bank.run(keys, np.linspace(0.1, 0.9, len(keys)), keys % 2)
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    place = header_in(whole)["arrays"]["rows"]
    first, part = place["offset"], place["offset"] + 2**23
    assert part + 4096 < first + place["bytes"]
    assert place["checksum"] == naive_checksum(whole[first : first + -(-place["bytes"] // 4096) * 4096])
    before, behind = whole[part - 4096 : part], whole[part : part + 4096]
    refused(tmp_path / "damaged", whole[: part - 4096] + behind + before + whole[part + 4096 :], "rows undamaged")
    for at in (first, part - 1, part, first + place["bytes"] - 1):
        refused(tmp_path / "damaged", whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :], "rows undamaged")


def test_the_checksum_is_what_it_says() -> None:
    rng = np.random.default_rng(1)
    found = {}
    for size in (0, 1, 7, 8, 63, 64, 65, 127, 128, 200, 4096):
        random = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
        for content in (random, random + b"\0", bytes(size)):
            for before in (0, 1, 2**64 - 1):
                found[content, before] = checksum(content, before)
                assert found[content, before] == checksum_of_part(content, before)
    assert len(set(found.values())) == len(found)
    content = rng.integers(0, 256, 200, dtype=np.uint8)
    flipped = {checksum(content, 0)}
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        flipped.add(checksum(content, 0))
        content[bit // 8] ^= 1 << bit % 8
    assert len(flipped) == 1 + 8 * len(content)
    changes = [(one ^ checksum(content, 0)).bit_count() for one in flipped]
    assert 30 < np.mean(changes) < 34  # half of the bits, whichever was flipped
    with pytest.raises(ValueError, match="contiguous"):
        checksum(content[::2], 0)


def test_what_a_bank_cannot_hold_is_refused(tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    header = header_in(whole)
    table = bank._rows.index.table.copy()  # type: ignore[union-attr]  # it has keys
    outside, full = table.copy(), np.zeros_like(table)
    outside[table.argmax()] = len(bank)
    few = {**header["arrays"], "table": {**header["arrays"]["table"], "bytes": 4 * len(bank)}}
    renamed = {name: {**place, "sha256": ""} for name, place in header["arrays"].items()}
    for place in renamed.values():
        del place["checksum"]
    without_method = {name: value for name, value in header.items() if name != "method"}
    cases = {
        "header that can be read": rewritten(whole, arrays=None),
        "'method'": signed(json.dumps(without_method).encode()) + whole[4096:],
        "must be of version 3, got 2": whole[:8] + struct.pack("<I", 2) + whole[12:],
        "method that this version does not know": rewritten(whole, method={"features": None}),
        "keys must be": rewritten(whole, keys="dates"),
        "count must be": rewritten(whole, count=-1),
        "numbers, got": rewritten(whole, count=3),
        "monitors must be there where the header has a monitor": rewritten(whole, monitor={}),
        "clock must be": rewritten(whole, clock="noon"),
        "prior must be": rewritten(whole, prior="full"),
        "lives in a row": rewritten(whole, method=calibeat.WPS.to_dict()),
        "arrays must have an offset, bytes and a checksum, got 'offset, bytes, sha256'": rewritten(
            whole, arrays=renamed
        ),
        "table must have more than": rewritten(whole, arrays=few),
        "point once at each": with_array(whole, "table", outside),
        "have places left": with_array(whole, "table", full),
        "not found": with_array(whole, "table", np.roll(table, 5)),
        "got inf": with_array(whole, "pool", np.full(TOPS.width, np.inf)),
        "outcomes as a whole number": with_array(whole, "pool", [0.0, 0.5, *bank.pool[2:]]),
        "undamaged header": whole[:12] + b"\xff\xff\xff\xff" + whole[16:],  # costs nothing
    }
    for message, content in cases.items():
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(SnapshotMismatch, match=message):
            Bank.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("method", "column", "value", "message"),
    [
        (TOPS, THETA + 3, np.nan, "got nan"),
        (TOPS, T, 0.5, "events at the last outcome as a whole number"),
        (TOPS, N, -1.0, "outcomes in"),
        (TOPS, T, 1e9, "events at the last outcome in"),
        (TOPS, EVENTS - STATS, 1e300, "events in"),
        (TOPS, EVENTS - STATS, -3.0, "events in"),
        (TOPS, EVENTS - STATS, 2.5, "events as a whole number"),
        (TOPS, LAST - STATS, 1e9, "a last event in"),
        (TOPS, LAST - STATS, 0.5, "a last event as a whole number"),
        (TOPS, LAST - STATS, -1.0, "a last event in"),
        (TOPS, BRIER - STATS, -0.1, "brier in"),
        (TOPS, BRIER - STATS, np.inf, "brier in"),
        (TOPS, WEIGHTS - STATS, -1.0, "a sum of weights in"),
        (TOPS, SUM, -1.0, "sums of weights in"),
        (TOPS, CLIPPED, 0.5, "clipped weights as a whole number"),
        (TOPS, THETA + 2, 1e308, "A in"),
        (TOPS, THETA + 3, 1e140, "A in"),
        (TOPS, THETA + 2, -5.0, "A in"),
        (TOPS, TOPS.spec.cells, 3e15, "a sum of outcomes in"),
        (HOPS, HOPS.spec.cells, 4.0, "a sum of outcomes in"),
        (AUTO, WEIGHT, 1.5, "weights of lanes"),
    ],
)
def test_a_row_that_no_bank_wrote(method: Method, column: int, value: float, message: str, tmp_path: Path) -> None:
    bank = filled(method)
    bank.save(tmp_path / "bank")
    rows = bank._rows.matrix[: len(bank)].copy()
    rows[3, column] = value
    (tmp_path / "other").write_bytes(with_array((tmp_path / "bank").read_bytes(), "rows", rows))
    with pytest.raises(SnapshotMismatch, match=f"{message}.* - at row 3"):
        Bank.load(tmp_path / "other")
    assert len(Bank.load(tmp_path / "other", mmap=True, verify=False)) == len(bank)  # who trusts a file sees no more


@pytest.mark.parametrize("K", [2, 3])
def test_a_row_of_many_classes_that_no_bank_wrote(K: int, tmp_path: Path) -> None:
    bank = MultiBank(K)
    bank.run(["x", "y"], np.full((2, K), 1 / K), [0, 1])
    bank._rows.matrix[1, THETA + 1] = 1e12
    bank.save(tmp_path / "odd.bank")
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
def test_a_header_of_many_classes_that_no_bank_wrote(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    bank = MultiBank(3)
    bank.run(["x", "y"], np.full((2, 3), 1 / 3), [0, 1])
    bank.save(tmp_path / "odd.bank")
    (tmp_path / "odd.bank").write_bytes(rewritten((tmp_path / "odd.bank").read_bytes(), **change))
    with pytest.raises(SnapshotMismatch, match=message):
        MultiBank.load(tmp_path / "odd.bank")


def test_each_class_loads_its_own_files(tmp_path: Path) -> None:
    Bank().save(tmp_path / "two.bank")
    MultiBank(3).save(tmp_path / "many.bank")
    with pytest.raises(SnapshotMismatch, match="a bank of two classes, which Bank"):
        MultiBank.load(tmp_path / "two.bank")
    with pytest.raises(SnapshotMismatch, match="a bank of many classes, which MultiBank"):
        Bank.load(tmp_path / "many.bank")


def test_strings_that_no_bank_wrote(tmp_path: Path) -> None:
    bank = filled(strings=True)
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    arrays = bank._rows.arrays()

    def marks(at: int | slice, value: Any) -> bytes:
        changed = arrays["marks"].copy()
        changed[at] = value
        return with_array(whole, "marks", changed)

    text = arrays["text"].copy()
    text[0] = 0xFF
    for message, content in (
        ("marks must point into the text", marks(4, 2**45)),
        ("decode byte 0xff", with_array(whole, "text", text)),
        ("not found", with_array(whole, "table", np.roll(arrays["table"], 5))),
        ("the same key twice|not found", marks(slice(2, 4), arrays["marks"][:2])),
        ("a key that is not found", marks(5, arrays["marks"][5] ^ 1)),
        ("whole characters", marks(4, arrays["marks"][4] + 1)),
    ):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(SnapshotMismatch, match=message):
            Bank.load(tmp_path / "other")


def test_numbers_that_are_there_twice(tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    keys = bank._rows.arrays()["keys"].copy()
    keys[1] = keys[0]
    (tmp_path / "other").write_bytes(with_array((tmp_path / "bank").read_bytes(), "keys", keys))
    with pytest.raises(SnapshotMismatch, match=r"the same key twice|not found"):
        Bank.load(tmp_path / "other")


def test_hostile_headers_are_sentences(tmp_path: Path) -> None:
    filled().save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    header = header_in(whole)
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


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ledgers", [-1, 0, 0, 11]),
        ("ledgers", [10**6, 0, 0, 11]),
        ("ledgers", [0, -1, 0, 11]),
        ("ledgers", [0, 10**6, 0, 11]),
        ("ledgers", [0, 0, 7, 11]),
        ("ledgers", [0, 0, 0, 0]),
        ("ledgers", [0, 0, 0, 10]),
        ("ledgers", [0, 0, 0, 12]),
        ("ledgers", [0, 0, 0, -1]),
        ("ledgers", [0, 0, 0, 2**62]),
        ("settled", [2, *[0] * 8, ZERO, ZERO]),  # more than it has learnt
        ("settled", [2, *[0] * 7, 2, OPEN, ZERO]),  # with weights or without
        ("settled", [2, *[0] * 7, 1, OPEN, ZERO]),  # the weight is not there
    ],
)
def test_ledgers_that_cannot_be_are_refused(name: str, values: list[int], tmp_path: Path) -> None:
    bank = Bank(OPS)
    receipts = [bank.predict("a", 0.5) for _ in range(4)]
    bank.update("a", receipts[1], 1)
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    assert bank._rows.open_ledgers()["ledgers"].tolist() == [0, 0, 0, 11]  # two marks, and nine bytes before them
    (tmp_path / "other").write_bytes(
        with_array(whole, name, np.array(values, dtype="<i8" if name == "ledgers" else "u1"))
    )
    with pytest.raises(SnapshotMismatch, match="must hold what a bank can hold"):
        Bank.load(tmp_path / "other")


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[:1000]) or 0

    path = tmp_path / "bank"
    filled(TOPS).save(path)
    monkeypatch.setattr(calibeat.hosts.bankfile, "open_regular", lambda path, _: Cut(path))
    for verify in (True, False):
        with pytest.raises(SnapshotMismatch, match="a file that is being cut"):
            Bank.load(path, verify=verify)


def test_a_bank_larger_than_memory_can_be_opened(tmp_path: Path) -> None:
    """A sparse file: rows of zeros for twice the memory of the machine, which take no room on the disk."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = 2 * memory // (8 * (TOPS.width + STATS))
    bank = Bank(TOPS)
    bank.run([5], [0.5], [1])
    header = {**calibeat.hosts.bankfile.header_of(bank), "count": count}
    table = 4096 * 2
    keys = table + 4096 * -(-4 * 2 * count // 4096)
    rows = keys + 4096 * -(-8 * count // 4096)
    sizes = {
        "pool": (4096, 8 * TOPS.width),
        "keys": (keys, 8 * count),
        "table": (table, 8 * count),
        "rows": (rows, 8 * count * (TOPS.width + STATS)),
    }
    arrays = {name: {"offset": at, "bytes": size, "checksum": ""} for name, (at, size) in sizes.items()}
    text = json.dumps({**header, "arrays": arrays}).encode()
    with (tmp_path / "large").open("wb") as file:
        file.write(struct.pack("<8sII32s", b"calibank", FORMAT, len(text), hashlib.sha256(text).digest()) + text)
        file.truncate(4096 * -(-(rows + 8 * count * (TOPS.width + STATS)) // 4096))
    if (tmp_path / "large").stat().st_blocks * 512 > 2**20:
        pytest.skip("this file system has no sparse files")
    large = Bank.load(tmp_path / "large", mmap=True, verify=False)
    assert len(large) == count and large._rows.matrix[count // 2, 3] == 0.0


def test_a_file_that_cannot_be_read_never_takes_the_place_of_one_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong while writing, the new file is read again before the old one goes."""
    bank = filled()
    bank.save(tmp_path / "bank")
    before = (tmp_path / "bank").read_bytes()
    written = calibeat.hosts.bankfile._written

    def garbled(file: Any, array: Any) -> str:
        digest = written(file, array)
        file.seek(-1, os.SEEK_CUR)
        file.write(b"\xee")
        return digest

    for name, value in (("_written", garbled), ("_pages", lambda size: size + 1)):
        with monkeypatch.context() as patch:
            patch.setattr(calibeat.hosts.bankfile, name, value)
            with pytest.raises(SnapshotMismatch):
                bank.save(tmp_path / "bank")
        assert (tmp_path / "bank").read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["bank"]
    bank._rows.matrix[0, 1] = -1.0  # a state that no bank can have: `load` looks at what the numbers mean
    bank.save(tmp_path / "bank")
    with pytest.raises(SnapshotMismatch, match="at row 0"):
        Bank.load(tmp_path / "bank")


KILLED = """
import os, signal, sys
import calibeat.hosts.bankfile
from calibeat import Bank
written = calibeat.hosts.bankfile._written
def killed(file, array):
    written(file, array)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
bank = Bank("ops")
bank.run(["a", "b"], [0.2, 0.7], [0, 1])
bank.save(sys.argv[1])
calibeat.hosts.bankfile._written = killed
bank.run(["c"], [0.2], [0])
bank.save(sys.argv[1])
"""


def test_a_writer_that_is_killed_leaves_the_old_file_and_a_part_that_goes(tmp_path: Path) -> None:
    path = tmp_path / "bank"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    bank = Bank.load(path)
    assert list(bank) == ["a", "b"]
    (part,) = set(tmp_path.iterdir()) - {path}
    os.utime(part, (1e9, 1e9))
    bank.save(path)
    assert list(tmp_path.iterdir()) == [path]


@contextmanager
def two_gigabytes() -> Iterator[None]:
    """No more memory than that can be had beyond what is used now, whatever the machine has."""
    gc.collect()  # what earlier tests have left, such as a mapped bank, would be given back meanwhile
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_file_larger_than_memory_is_a_sentence(tmp_path: Path) -> None:
    """Sparse files of 10 GB, with headers that somebody signed anew."""
    bank = filled()
    bank.save(tmp_path / "bank")
    whole, large = (tmp_path / "bank").read_bytes(), 10 * 2**30
    rows = 8 * len(bank) * (TOPS.width + STATS)
    sizes = {"pool": 8 * TOPS.width, "keys": 8 * len(bank), "rows": rows, "table": 4 * 128}

    def write(name: str, sizes: dict[str, int], gap: int = 0) -> None:
        places, end = {}, 4096
        for array, size in sizes.items():
            places[array] = {"offset": end, "bytes": size, "checksum": ""}
            end += -(-size // 4096) * 4096 + gap
        with (tmp_path / name).open("wb") as file:
            file.write(rewritten(whole, arrays=places)[:4096])
            file.truncate(end - gap)

    write("0", {**sizes, "rows": large})
    write("1", {**sizes, "holes": large})
    write("2", sizes, gap=large // 4096 * 4096)
    write("3", {**sizes, "table": large})
    for name, message in {
        "0": rf"rows must have {sizes['rows'] // 8} numbers, got {large // 8} - in .*/0$",
        "1": "arrays must be of pool, rows, .* got 'holes'",
        "2": "arrays must follow one another, got one at",
    }.items():
        with two_gigabytes(), pytest.raises(SnapshotMismatch, match=message):
            Bank.load(tmp_path / name)
    message = r"must fit in memory, got 1\d{10} bytes - in .*/3, open it with mmap=True$"
    with two_gigabytes(), pytest.raises(InvalidInput, match=message):
        Bank.load(tmp_path / "3")
