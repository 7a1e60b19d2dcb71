"""Rows that cannot be used: the message tells how to go on."""

from __future__ import annotations

import pytest

import calibeat
from calibeat import InvalidInput
from calibeat.cli import main as cli


def test_missing_values_mention_how_to_skip_them(tmp_path, monkeypatch, capsys):
    with pytest.raises(
        InvalidInput, match=r"outcome must be 0 or 1, got nothing - at row 1; say skip_bad=True to skip"
    ):
        calibeat.backtest([0.5, 0.5], [1, None])
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got nothing - at row 0; say skip_bad=True"):
        calibeat.backtest([None, 0.5], [1, 1])
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("p,y\n0.5,1\n0.5,\n")
    assert cli.main(["backtest", "log.csv"]) == 2
    said = "outcome must be 0 or 1, got nothing - at row 2 of log.csv; say --skip-bad to skip such rows and count them"
    assert capsys.readouterr().err == f"calibeat: {said}\n"
