"""The golden vectors, read once, and the few places where their conventions and ours have to be brought together."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import SHARED

FOLDER = SHARED / "golden" / "open"
STREAMS = sorted(path.stem for path in FOLDER.glob("*.npz") if path.stem != "projection")
BATCHED = [stem for stem in STREAMS if stem.startswith(("real_", "sec1_"))]  # those with a calibration batch

# Where a cell's mean rests exactly on an edge (19 ones of 20 at 0.95, 123 of 410 at 0.3), and the golden run, by its
# rounding, sees it outside and plays another mid-point: that expert bin is compared up to there only.
# (event, cell, ones in the cell, events in the cell)
KNIFE_EDGES = {("edge_scores01_80pct", "hops20"): (209, 19, 19, 20), ("sec1_reg_seed0", "hobs10"): (2620, 2, 123, 410)}

needed = pytest.mark.skipif(not STREAMS, reason="the golden vectors are not beside this checkout")


@cache
def load(stem: str) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(FOLDER / f"{stem}.npz") as file:
        return dict(file)


def stored(g: dict[str, np.ndarray[Any, Any]], array: str, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Positions below n at which a per-event array is stored, and its values there."""
    at = np.arange(len(g["y"])) if len(g[array]) == len(g["y"]) else g["idx"]
    assert len(at) == len(g[array])
    return at[at < n], g[array][at < n]


def ours(p: np.ndarray[Any, Any], m: int) -> np.ndarray[Any, Any]:
    """Probabilities moved, by some units in the last place, to where our [a, b) bins say what the golden bins say of p.

    The golden bin is the number of edges below p with edges linspace(1/m, 1, m): (a, b], and some edges are a unit away
    from the float k/m (for m = 20 the edge at 0.5, where the first expert is, is below 0.5).
    """
    k = np.searchsorted(np.linspace(1 / m, 1, m), p, side="left")
    return np.clip(p, k / m, np.nextafter((k + 1) / m, 0))


def hedgeable(stem: str, array: str, m: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Experts in our bins, and the events of a hedging run that can be compared; expert bins do not see one another.

    Left out are a bin visited once in the whole stream, where the published code says 0, which needs the future, and
    what follows a knife edge in its bin.
    """
    g = load(stem)
    expert = ours(g["obs_p" if array == "hobs10" else "ops_p"], m)
    group = np.searchsorted(np.arange(1, m) / m, expert, side="right")
    once = np.bincount(group, minlength=m)[group] == 1
    np.testing.assert_array_equal(g[array][once], 0.0)
    keep = ~once
    if (stem, array) in KNIFE_EDGES:
        event = KNIFE_EDGES[stem, array][0]
        keep[event:] &= group[event:] != group[event]
    return expert, np.flatnonzero(keep)
