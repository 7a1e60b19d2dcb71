"""How `multi.npz` and `multi_late.npz` were cut: ``python tests/golden/cut_multi.py FOLDER``.

FOLDER has the golden vectors of MULTI, `golden_open.npz` and `golden_late_open.npz`. The first events of each case are
kept (a forecast depends on the past only, so they stay right), and the final row of the cases that are kept whole.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

AT_ONCE = {
    "cifar_rot": 300,
    "satimage_rf": 300,
    "letter_mlp": 200,
    "synth3_jump": 400,
    "satimage_nb": 300,
    "flightdelay": 300,
    "synth1000": 8,
    "edge4": 600,
    "two": 500,
    "constant": 400,
}
LATE = {
    "cifar_c100": 400,
    "satimage_exp100": 400,
    "forest_batch200": 450,
    "flight_random": 1000,
    "syn3_c50": 1200,
    "few_late": 900,
    "immediate": 600,
    "letter_c30": 150,
    "edge4": 700,
    "constant": 400,
    "syn100_c20": 120,
}


def cut(source: Path, keep: dict[str, int], target: str) -> None:
    with np.load(source) as vectors:
        kept = {}
        for name, count in keep.items():
            for part in ("score", "label", "forecast", "due"):
                if f"{name}/{part}" in vectors.files:
                    kept[f"{name}/{part}"] = vectors[f"{name}/{part}"][:count]
            if count >= len(vectors[f"{name}/label"]):
                kept[f"{name}/row"] = vectors[f"{name}/row"]
    np.savez_compressed(Path(__file__).with_name(target), **kept)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cut(folder / "golden_open.npz", AT_ONCE, "multi.npz")
    cut(folder / "golden_late_open.npz", LATE, "multi_late.npz")
