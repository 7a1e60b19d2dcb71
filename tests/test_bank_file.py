"""A bank as a file: exact, atomic, and every kind of damage is named; the command line looks into it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import same

import calibeat.bankfile
from calibeat import AUTO, HOPS, TOPS, Bank, InvalidInput, Method, SnapshotMismatch
from calibeat.cli import main


def filled(method: Method = TOPS, *, strings: bool = False, **arguments: Any) -> Bank:
    rng = np.random.default_rng(3)
    keys = rng.integers(-5, 40, 500)
    scores = rng.random(500)
    bank = Bank(method, seed=4, **arguments)
    bank.run([f"ключ {key}" for key in keys] if strings else keys, scores, rng.random(500) < 0.2 + 0.5 * scores)
    return bank


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"prior": "pooled"}, {"independent": True}])
def test_round_trip(method: Method, strings: bool, arguments: dict[str, Any], tmp_path: Path) -> None:
    bank = filled(method, strings=strings, **arguments)
    path = tmp_path / "bank"
    bank.save(path)
    twin, mapped = Bank.load(path), Bank.load(str(path), mmap=True)
    twin.save(tmp_path / "twin")
    assert (tmp_path / "twin").read_bytes() == path.read_bytes()
    assert list(twin) == list(mapped) == list(bank)
    keys, scores = list(bank) * 3, np.linspace(0, 1, 3 * len(bank))
    strangers = [f"n{i}" for i in range(9)] if strings else list(range(900, 909))
    for other in (twin, mapped):
        same(other.predict_many(keys, scores), bank.predict_many(keys, scores))
        same(other.predict_many(strangers, scores[:9]), bank.predict_many(strangers, scores[:9]))
    same(twin.run(keys, scores, scores > 0.3), bank.run(keys, scores, scores > 0.3))
    same(twin.run(strangers, scores[:9], scores[:9] > 0.3), bank.run(strangers, scores[:9], scores[:9] > 0.3))
    assert {key: twin[key].to_json() for key in twin} == {key: bank[key].to_json() for key in bank}
    assert twin.predict(keys[0], 0.4).probability == bank.predict(keys[0], 0.4).probability


def test_a_mapped_bank_is_for_reading(tmp_path: Path) -> None:
    bank = filled()
    path = tmp_path / "bank"
    bank.save(path)
    mapped = Bank.load(path, mmap=True)
    before = path.read_bytes()
    key = next(iter(bank))
    said = mapped.predict(key, 0.3)
    assert said[:5] == bank.predict(key, 0.3)[:5] == mapped.predict(key, 0.3)[:5]
    assert mapped.predict(999, 0.3).probability == bank.predict_many([999], [0.3])[0] and 999 not in mapped
    assert mapped[key].params == bank[key].params
    for action in (
        lambda: mapped.run([key], [0.5], [1]), lambda: mapped.update(key, said, 1), lambda: mapped.merge(Bank(TOPS)),
        lambda: mapped.drop_idle(before=3), lambda: mapped.__delitem__(key), lambda: mapped[key].update(said, 1),
        lambda: mapped[key].run([0.5], [1]),
    ):  # fmt: skip
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
    bank = filled()
    path = tmp_path / "bank"
    bank.save(path)
    path.chmod(0o640)
    before = path.read_bytes()

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(calibeat.bankfile.os, "fsync", crash)
        bank.run([1], [0.5], [1])
        with pytest.raises(KeyboardInterrupt):
            bank.save(path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["bank"]
    bank.save(path)
    assert path.read_bytes() != before and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        bank.save(tmp_path / "no" / "bank")


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    filled(strings=True).save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    length = struct.unpack_from("<I", whole, 12)[0]
    header = json.loads(whole[48 : 48 + length])
    filled_bytes = sorted(
        {*range(48 + length)[:: max(1, length // 60)]}
        | {
            place["offset"] + i
            for place in header["arrays"].values()
            for i in (0, place["bytes"] // 2, place["bytes"] - 1)
        }
    )
    damaged = tmp_path / "damaged"
    for at in filled_bytes:
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        for mmap in (False, True):
            with pytest.raises(SnapshotMismatch):
                Bank.load(damaged, mmap=mmap)
    for size in (0, 7, 47, 60, 4096, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:size])
        for verify in (False, True):
            with pytest.raises(SnapshotMismatch):
                Bank.load(damaged, verify=verify)
    damaged.write_bytes(whole + b"more")
    with pytest.raises(SnapshotMismatch, match=f"must have {len(whole)} bytes, got {len(whole) + 4}"):
        Bank.load(damaged)


def rewritten(whole: bytes, **changes: Any) -> bytes:
    """A file with another header, whose checksum is right: what a forger or another version would write."""
    length = struct.unpack_from("<I", whole, 12)[0]
    text = json.dumps({**json.loads(whole[48 : 48 + length]), **changes}).encode()
    start = struct.pack("<8sII32s", b"calibank", 1, len(text), hashlib.sha256(text).digest())
    return (start + text).ljust(4096, b"\0") + whole[4096:]


def with_array(whole: bytes, name: str, values: Any) -> bytes:
    """A file with another array of the same length, checksums included."""
    length = struct.unpack_from("<I", whole, 12)[0]
    arrays = json.loads(whole[48 : 48 + length])["arrays"]
    place = arrays[name]
    content = np.asarray(values).tobytes()
    assert len(content) == place["bytes"]
    place["sha256"] = hashlib.sha256(content).hexdigest()
    end = place["offset"] + place["bytes"]
    return rewritten(whole[: place["offset"]] + content + whole[end:], arrays=arrays)


def test_what_a_bank_cannot_hold_is_refused(tmp_path: Path) -> None:
    bank = filled()
    bank.save(tmp_path / "bank")
    whole = (tmp_path / "bank").read_bytes()
    rows = bank._store.matrix[: len(bank)]
    rotten, ahead = rows.copy(), rows.copy()
    rotten[3, 5] = np.nan
    ahead[2, 1] += 1.0
    table = bank._store.keys.table.copy()  # type: ignore[union-attr]  # it has keys
    table[table.argmax()] = len(bank)
    cases = {
        "version 1, got 2": whole[:8] + struct.pack("<I", 2) + whole[12:],
        "method that this version knows": rewritten(whole, method={"features": None}),
        "keys must be": rewritten(whole, keys="dates"),
        "count must be": rewritten(whole, count=-1),
        "numbers, got": rewritten(whole, count=3),
        "clock must be": rewritten(whole, clock="noon"),
        "prior must be": rewritten(whole, prior="full"),
        "lives in a row": rewritten(whole, method=calibeat.WPS.to_dict()),
        "finite numbers": with_array(whole, "rows", rotten),
        "no more outcomes than forecasts": with_array(whole, "rows", ahead),
        "point at slots": with_array(whole, "table", table),
    }
    for message, content in cases.items():
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(SnapshotMismatch, match=message):
            Bank.load(tmp_path / "other")
    (tmp_path / "other").write_bytes(with_array(whole, "rows", rotten))
    assert len(Bank.load(tmp_path / "other", mmap=True, verify=False)) == len(bank)  # who trusts a file sees no more


# ---- the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    filled().save(tmp_path / "numbers.bank")
    filled(strings=True).save(tmp_path / "strings.bank")
    return tmp_path / "numbers.bank"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["bank", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_info(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank.load(file)
    text = said(capsys, "info", file)
    assert "tops" in text and str(len(bank)) in text
    found = json.loads(said(capsys, "info", file, "--json"))
    table = bank.table()
    assert (found["keys"], found["events"], found["seed"]) == (len(bank), 500, 4)
    assert found["log-loss"] == pytest.approx((table["log_loss"] * table["outcomes"]).sum() / 500)
    Bank("ops").save(file)
    assert json.loads(said(capsys, "info", file, "--json"))["log-loss"] is None


def test_show(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank.load(file)
    slot = list(bank).index(-3)
    found = json.loads(said(capsys, "show", "--json", file, "--", "-3"))
    assert found == {name: column[slot] for name, column in bank.table().items()}
    assert "ключ 7" in said(capsys, "show", file.with_name("strings.bank"), "ключ 7")


def test_top(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Bank.load(file).table()
    gains = dict(zip(table["key"].tolist(), (table["raw_log_loss"] - table["log_loss"]).tolist(), strict=True))
    found = json.loads(said(capsys, "top", file, "--by", "log-loss-gain", "-n", 4, "--json"))
    assert [row["key"] for row in found] == sorted(gains, key=lambda key: -gains[key])[:4]
    assert [row["log-loss-gain"] for row in found] == sorted(gains.values())[::-1][:4]
    worst = json.loads(said(capsys, "top", file, "--ascending", "--json"))
    assert len(worst) == 10 and worst[0]["log-loss-gain"] == min(gains.values())
    lines = said(capsys, "top", file, "--by", "events", "-n", 2, "--least", 5).splitlines()
    assert len(lines) == 3 and lines[0].split()[:2] == ["key", "events"]
    assert json.loads(said(capsys, "top", file, "--least", 10**6, "--json")) == []


def test_mistakes_on_the_command_line(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no bank")
    for arguments, message in (
        (("info", tmp_path / "none"), "No such file"),
        (("info", tmp_path / "text"), "must begin with 'calibank'"),
        (("show", file, "77"), "one of the"),
        (("show", file, "x"), "key must be a whole number, as all keys of this bank are, got 'x'"),
    ):
        assert main(["bank", *map(str, arguments)]) == 1
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == "" and "Traceback" not in captured.err
    with pytest.raises(SystemExit):
        main(["bank", "top", str(file), "--by", "beauty"])
