"""Results on disk: a file is whole or not there, so that what was computed once is found again after a kill."""

from __future__ import annotations

import hashlib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import calibeat
from calibeat._util.files import atomic


def save_arrays(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Write a compressed .npz in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays of a file, or None if it is not there or cannot be read: it is then made again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def write_text(path: Path, text: str) -> None:
    """Write a text in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path, "w") as file:
        file.write(text)


@cache
def source_digest() -> str:
    """A checksum of all source, calibeat's and the experiments': runs of other code are not used."""
    digest = hashlib.sha256()
    for root in (Path(calibeat.__file__).parent, Path(__file__).parent):
        for path in sorted(path for path in root.rglob("*.p*") if path.suffix in {".py", ".pyx", ".pxi"}):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
