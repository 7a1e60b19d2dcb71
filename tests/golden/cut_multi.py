"""How `multi.npz` was cut from the golden vectors of MULTI: ``python tests/golden/cut_multi.py golden_open.npz``.

The first events of each case are kept (a forecast depends on the past only, so they stay right), and the final row of
the cases that are kept whole.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

KEEP = {
    "cifar_rot": 300,
    "satimage_rf": 300,
    "letter_mlp": 200,
    "synth3_jump": 400,
    "satimage_nb": 300,
    "flightdelay": 300,
    "synth1000": 8,
    "late_fixed100": 450,
    "late_random": 450,
    "edge4": 600,
    "two": 500,
    "constant": 400,
}


def main() -> None:
    with np.load(sys.argv[1]) as vectors:
        cut = {}
        for name, count in KEEP.items():
            whole = count >= len(vectors[f"{name}/label"])
            for part in ("score", "label", "forecast", "due"):
                if f"{name}/{part}" in vectors.files:
                    cut[f"{name}/{part}"] = vectors[f"{name}/{part}"][:count]
            if whole:
                cut[f"{name}/row"] = vectors[f"{name}/row"]
    np.savez_compressed(Path(__file__).with_name("multi.npz"), **cut)


if __name__ == "__main__":
    main()
