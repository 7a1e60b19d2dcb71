"""The command line as a person types it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from calibeat import InvalidInput, MissingExtra, __version__
from calibeat.cli import main as cli


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--version"], f"calibeat {__version__}"),
        (["--help"], "demo"),
        (["demo", "-h"], "--out"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 0
        assert said in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["dmeo"], ["demo", "--nope"]])
def test_what_cannot_be_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: calibeat" in capsys.readouterr().err


def test_demo_gets_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("calibeat.cli.demo.run_demo", lambda out, **_: asked.append(out))
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    assert asked == [tmp_path]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MissingExtra("needs the extra"), 2, "calibeat: needs the extra"),
        (KeyboardInterrupt(), 130, "calibeat: stopped"),
        (PermissionError(13, "not here"), 2, "calibeat: [Errno 13] not here"),
    ],
)
def test_errors_are_sentences(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Path, **__: object) -> None:
        raise error

    monkeypatch.setattr("calibeat.cli.demo.run_demo", fail)
    assert cli.main(["demo"]) == code
    assert capsys.readouterr().err.strip() == said


def test_what_a_person_has_to_do_has_lines_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Path, **__: object) -> None:
        error = InvalidInput("a\nb must hold the data")
        error.add_note("Get it:\n  from\there")
        raise error

    monkeypatch.setattr("calibeat.cli.demo.run_demo", fail)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "calibeat: a\\nb must hold the data\nGet it:\n  from\\there\n"


def test_module_and_script_are_the_same() -> None:
    assert importlib.import_module("calibeat.__main__").main is cli.main
    script = Path(sys.executable).with_name("calibeat")
    for command in ([sys.executable, "-m", "calibeat"], [str(script)]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"calibeat {__version__}\n"


def test_a_reader_that_leaves_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def leave(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("calibeat.cli.demo.run", leave)
    stdout = sys.stdout
    try:
        assert cli.main(["demo"]) == 0
        assert sys.stdout is not stdout
        sys.stdout.close()
    finally:
        sys.stdout = stdout
    assert capsys.readouterr().err == ""
