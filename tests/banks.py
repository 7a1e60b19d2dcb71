"""What the tests of the bank share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibeat import AIOLI, OGD, ONS, OPS, TOBS, Bank, Method, Temperature
from calibeat.bank.file import header_of, sections_of
from calibeat.core.presets import PRESETS

IN_A_ROW = {name: method for name, method in PRESETS.items() if not method.needs_history}
OTHERS = {
    "aioli": replace(OPS, learner=AIOLI()),
    "ogd": replace(OPS, learner=OGD()),
    "temperature": Method(Temperature(), ONS()),
    "temperature aioli": Method(Temperature(), AIOLI()),
    "beta aioli": replace(TOBS, learner=AIOLI()),
}


def events(n: int, keys: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    return rng.integers(0, keys, n), scores, (rng.random(n) < 0.2 + 0.5 * scores).astype(float)


def as_strings(keys: Any) -> list[str]:
    return [f"käse {key}" if key % 3 else f"k{key}" for key in keys]


def bytes_of(bank: Bank, folder: Path) -> bytes:
    """All that a file of the bank holds, but for the seed of its hash table, which is another for every bank."""
    bank.save(folder / "b")
    return content(bank)


def content(bank: Bank) -> bytes:
    header, sections = header_of(bank), sections_of(bank)
    del header["hash_seed"]
    sections.pop("table", None)
    if "marks" in sections:
        sections["marks"] = sections["marks"] >> np.array([0, 31] * len(bank))
    return json.dumps(header).encode() + b"".join(array.tobytes() for array in sections.values())
