"""`calibeat bank`: what the command line shows of a bank file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import filled

import calibeat.hosts.bankfile
from calibeat import Bank, MultiBank
from calibeat.cli.main import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    filled().save(tmp_path / "numbers.bank")
    filled(strings=True).save(tmp_path / "strings.bank")
    return tmp_path / "numbers.bank"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["bank", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_info(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank.load(file)
    text = printed(capsys, "info", file)
    assert "tops" in text and str(len(bank)) in text
    found = json.loads(printed(capsys, "info", file, "--json"))
    table = bank.table
    assert (found["keys"], found["events"], found["seed"]) == (len(bank), 500, 4)
    assert found["log-loss"] == pytest.approx((table["log_loss"] * table["outcomes"]).sum() / 500)
    Bank("ops").save(file)
    assert json.loads(printed(capsys, "info", file, "--json"))["log-loss"] is None


def test_show(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank.load(file)
    slot = list(bank).index(-3)
    found = json.loads(printed(capsys, "show", "--json", file, "--", "-3"))
    assert found == {name: column[slot] for name, column in bank.table.items()}
    assert "ключ 7" in printed(capsys, "show", file.with_name("strings.bank"), "ключ 7")


def test_top(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Bank.load(file).table
    gains = dict(zip(table["key"].tolist(), (table["raw_log_loss"] - table["log_loss"]).tolist(), strict=True))
    found = json.loads(printed(capsys, "top", file, "--by", "log-loss-gain", "-n", 4, "--json"))
    assert [row["key"] for row in found] == sorted(gains, key=lambda key: -gains[key])[:4]
    assert [row["log-loss-gain"] for row in found] == sorted(gains.values())[::-1][:4]
    worst = json.loads(printed(capsys, "top", file, "--ascending", "--json"))
    assert len(worst) == 10 and worst[0]["log-loss-gain"] == min(gains.values())
    lines = printed(capsys, "top", file, "--by", "events", "-n", 2, "--least", 5).splitlines()
    assert len(lines) == 4 and lines[0].split()[:2] == ["key", "events"]
    assert lines[3] == "44 keys have fewer than 30 outcomes and come last."
    assert json.loads(printed(capsys, "top", file, "--least", 10**6, "--json")) == []


def test_keys_can_be_typed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank("ops", seed=12345)
    bank.run([1234567, 2], [0.5, 0.5], [1, 0])
    bank.save(tmp_path / "b")
    assert "1234567" in printed(capsys, "top", tmp_path / "b") and "12345\n" in printed(capsys, "info", tmp_path / "b")
    assert "1234567" in printed(capsys, "show", tmp_path / "b", "1234567")
    odd = Bank("ops")
    odd.run(["a\nb", "\x1b[31m"], [0.5, 0.5], [1, 0])
    odd.save(tmp_path / "b")
    shown = printed(capsys, "top", tmp_path / "b")
    assert "'a\\nb'" in shown and "'\\x1b[31m'" in shown and "\x1b" not in shown


def test_pipes_and_narrow_terminals(file: Path) -> None:
    command = [sys.executable, "-m", "calibeat", "bank", "top", str(file.with_name("strings.bank")), "-n", "40"]
    narrow = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=True
    )
    assert "\\u043a" in narrow.stdout and narrow.stderr == ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as leaving:
        assert leaving.stdout is not None and leaving.stderr is not None
        leaving.stdout.close()
        assert leaving.stderr.read() == b""
    assert leaving.returncode == 0


def test_mistakes_on_the_command_line(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no bank")
    os.mkfifo(tmp_path / "pipe")
    for arguments, message in (
        (("info", tmp_path / "none"), "file must be a bank file, got"),
        (("top", tmp_path / "none"), "which does not exist"),
        (("info", tmp_path), "bank file must be a file, got the folder"),
        (("top", tmp_path / "pipe"), "bank file must be a file, got the FIFO"),
        (("info", tmp_path / "text" / "x"), "that can be read, got"),
        (("info", tmp_path / "text"), "must begin with 'calibank'"),
        (("show", file, "77"), "one of the"),
        (("show", file, "x"), "key must be a whole number, as all keys of this bank are, got 'x'"),
    ):
        assert main(["bank", *map(str, arguments)]) in (1, 2)
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == ""
        assert "Traceback" not in captured.err and "Errno" not in captured.err
    with pytest.raises(SystemExit):
        main(["bank", "top", str(file), "--by", "beauty"])


def test_keys_with_few_outcomes_come_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = Bank("ops")
    bank.run(["few"] * 2 + ["many"] * 40 + ["more"] * 50, [0.9] * 92, [0] * 92)
    bank.save(tmp_path / "b")
    for arguments in ((), ("--ascending",), ("--by", "events", "--ascending"), ("--by", "idle")):
        found = json.loads(printed(capsys, "top", tmp_path / "b", "--json", *arguments))
        assert [row["key"] for row in found][-1] == "few" and len(found) == 3
    found = json.loads(printed(capsys, "top", tmp_path / "b", "--json", "--few", 45, "--by", "events"))
    assert [row["key"] for row in found] == ["more", "many", "few"]
    found = json.loads(printed(capsys, "top", tmp_path / "b", "--json", "--few", 0, "--by", "idle"))
    assert [row["key"] for row in found] == ["few", "many", "more"]
    assert printed(capsys, "top", tmp_path / "b").endswith("1 key has fewer than 30 outcomes and comes last.\n")
    assert "last" not in printed(capsys, "top", tmp_path / "b", "--few", 0)


def test_a_file_is_read_whole_only_on_request(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "header and length (--verify: all)" in printed(capsys, "info", file)
    assert json.loads(printed(capsys, "info", file, "--verify", "--json"))["checked"] == "all"
    whole = bytearray(file.read_bytes())
    place = json.loads(whole[48 : 48 + int.from_bytes(whole[12:16], "little")])["arrays"]["rows"]
    whole[place["offset"] + 100] ^= 1
    file.write_bytes(whole)
    for verb in (("info",), ("top",), ("show", "--json")):
        arguments = [verb[0], str(file), *verb[1:], *(["--", "7"] if verb[0] == "show" else [])]
        printed(capsys, *arguments)
    assert main(["bank", "info", str(file), "--verify"]) in (1, 2)
    assert "undamaged" in capsys.readouterr().err

    def never(*_: Any) -> None:
        raise AssertionError("the rows were read")

    monkeypatch.setattr(calibeat.hosts.bankfile, "_check_content", never)
    printed(capsys, "show", "--json", file, "--", "7")


def test_a_damaged_index_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has checked the file, so the index may point anywhere; or have no free place, and a search no end."""
    filled(strings=True).save(tmp_path / "b")
    whole = (tmp_path / "b").read_bytes()
    place = json.loads(whole[48 : 48 + int.from_bytes(whole[12:16], "little")])["arrays"]["table"]
    for value in (10**6, 3):
        table = np.full(place["bytes"] // 4, value, dtype="<i4").tobytes()
        end = place["offset"] + place["bytes"]
        (tmp_path / "b").write_bytes(whole[: place["offset"]] + table + whole[end:])
        assert main(["bank", "show", str(tmp_path / "b"), "ключ 7"]) in (1, 2)
        assert "must find its keys" in capsys.readouterr().err


def test_many_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = MultiBank(["cat", "dog", "bird"])
    bank.run([1, 2, 3], [[0.2, 0.3, 0.5]] * 3, ["cat", "dog", "bird"])
    bank.save(tmp_path / "animals.bank")
    found = json.loads(printed(capsys, "info", tmp_path / "animals.bank", "--json", "--verify"))
    assert (found["method"], found["classes"], found["keys"]) == ("multi", 3, 3)
    assert "log_loss" in printed(capsys, "show", tmp_path / "animals.bank", "3")
