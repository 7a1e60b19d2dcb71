"""The gallery's script runs from end to end, in the session of the tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from calibeat import spark as on_spark

SCRIPT = Path(__file__).parents[2] / "docs" / "gallery" / "with_spark.py"


class Lent:
    """The session of the tests, which a script cannot end."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        """Nothing."""


def test_the_script_runs(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(on_spark, "session", lambda *_, **__: Lent(spark))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().out
    assert "the bits of one process: True; keys in the state: 24" in said
    assert "10,000 forecast" in said
