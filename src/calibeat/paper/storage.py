"""Files that are whole or not there: what was computed once is found again after a kill."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import calibeat


def cache_folder() -> Path:
    """Where scores and finished runs are kept: `calibeat/reproduce` of XDG_CACHE_HOME, else of ~/.cache."""
    try:
        home = Path.home() / ".cache"
    except RuntimeError:
        home = Path(tempfile.gettempdir())
    return Path(os.environ.get("XDG_CACHE_HOME") or home) / "calibeat" / "reproduce"


def save_arrays(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Write a compressed .npz beside its place and move it there in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=".npz")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays of a file, or None if it is not there or cannot be read: it is then made again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def write_text(path: Path, text: str) -> None:
    """Write a text in one step, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)


@cache
def source_digest() -> str:
    """A checksum of calibeat's own source: a run made by other code is not a run of this one."""
    digest = hashlib.sha256()
    root = Path(calibeat.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
