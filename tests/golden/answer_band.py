"""Write `band.npz`: PYTHONPATH=tests python tests/golden/answer_band.py FOLDER

FOLDER holds the larger set, of which `band/golden_open.npz` is read. The stream whose outcomes come at once is copied.
The streams with late outcomes were answered before there were beginners (`calibeat.core.auto`), so their inputs are
copied and `tests/band_oracle.py` answers them anew; on a row without beginners it gives the old answers. `atoms`, six
stated confidences at once, is made and answered here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import band_oracle
import numpy as np

HERE = Path(__file__).parent
GIVEN = ("score", "outcome", "due")
STATED = np.array([[0.5, 0.55], [0.7, 0.4], [0.8, 0.75], [0.9, 0.6], [0.95, 0.97], [1.0, 0.8]])  # confidence, truth

Arrays = dict[str, np.ndarray[Any, Any]]


def answered(given: Arrays) -> Arrays:
    """A stream with the oracle's answers."""
    score, outcome, due = (given[name] for name in GIVEN)
    found = band_oracle.run(score, outcome.astype(float), due)._asdict()
    del found["row"]
    return {**given, **found, "reason": found["reason"].astype(np.uint8)}


def atoms(n: int = 2000) -> Arrays:
    """Six stated confidences, the truths not in their order."""
    rng = np.random.default_rng(6)
    score, truth = STATED[rng.integers(0, len(STATED), n)].T
    return {"score": score, "outcome": (rng.random(n) < truth).astype(np.uint8), "due": np.arange(1, n + 1)}


def main(folder: Path) -> None:
    """Read the larger set, write the file."""
    streams: dict[str, Arrays] = {}
    with np.load(folder / "band" / "golden_open.npz") as file:
        for key in file.files:
            name, _, array = key.partition("/")
            streams.setdefault(name, {})[array] = file[key]
    made = {"atoms": answered(atoms())}
    for name, arrays in streams.items():
        late = (arrays["due"] != np.arange(1, len(arrays["due"]) + 1)).any()
        made[name] = answered({each: arrays[each] for each in GIVEN}) if late else arrays
    flat = {f"{name}/{array}": values for name, arrays in sorted(made.items()) for array, values in arrays.items()}
    np.savez_compressed(HERE / "band.npz", **flat)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
