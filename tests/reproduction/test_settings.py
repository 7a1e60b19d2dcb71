"""What `python -m reproduction` takes where nothing is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.settings import Settings


def test_the_cache_is_below_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Settings().cache == tmp_path / "calibeat" / "reproduce"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().cache == tmp_path / ".cache" / "calibeat" / "reproduce"

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert Settings().cache is None  # never a folder that others may write to
