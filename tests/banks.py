"""What the tests of the bank share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibeat import AIOLI, OGD, ONS, OPS, TOBS, Bank, Method, Temperature
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
    bank.save(folder / "b")
    return (folder / "b").read_bytes()
