"""The golden vectors, read once, and the few places where their conventions and ours have to be brought together.

They lie in the folder `golden` beside this file, cut from a larger set (its README says how). If CALIBEAT_GOLDEN names
the folder of the larger set, that set is read instead. No test needs it.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent / "golden"
LARGER = Path(os.environ["CALIBEAT_GOLDEN"]) if os.environ.get("CALIBEAT_GOLDEN") else None

FOLDER = LARGER / "golden" / "open" if LARGER else HERE / "streams"
STREAMS = sorted(path.stem for path in FOLDER.glob("*.npz") if path.stem != "projection")
BATCHED = [stem for stem in STREAMS if stem.startswith(("real_", "sec1_"))]  # those with a calibration batch

# Where a cell's mean rests exactly on an edge (19 ones of 20 at 0.95, 123 of 410 at 0.3), and the golden run, by its
# rounding, sees it outside and plays another mid-point: that expert bin is compared up to there only.
# (event, cell, ones in the cell, events in the cell)
KNIFE_EDGES = {("edge_scores01_80pct", "hops20"): (209, 19, 19, 20), ("sec1_reg_seed0", "hobs10"): (2620, 2, 123, 410)}

Arrays = dict[str, np.ndarray[Any, Any]]


@cache
def load(stem: str) -> Arrays:
    """One stream with the outputs of the published code."""
    return _read(FOLDER / f"{stem}.npz")


@cache
def multi() -> Arrays:
    """MULTI's reference, labels at once: NAME/score, label, forecast, the last row (without the part for late ones)."""
    found = _read(LARGER / "multi" / "golden_open.npz" if LARGER else HERE / "multi.npz")
    # As late labels were learnt before there was a horizon lane.
    return {key: values for key, values in found.items() if not key.startswith("late_")}


@cache
def multi_late() -> Arrays:
    """The same with late labels: NAME/due says when they come."""
    return _read(LARGER / "multi" / "golden_late_open.npz" if LARGER else HERE / "multi_late.npz")


@cache
def scores(stem: str) -> Arrays:
    """Scores of a published forest, with the sizes of its batches."""
    return _read((FOLDER if LARGER else HERE) / "scores" / f"{stem}.npz")


@cache
def auto() -> dict[str, Arrays]:
    """AUTO's vectors by stream; `idx` holds the events whose forecasts are stored.

    Streams with the reference's residual control are left out, and so are its sums in the rows: calibeat has none.
    """
    streams: dict[str, Arrays] = {}
    now = _read(LARGER / "auto" / "golden_open.npz" if LARGER else HERE / "auto.npz")
    late = _read(LARGER / "auto" / "golden_late2_open.npz" if LARGER else HERE / "auto_late.npz")
    for key, values in [*now.items(), *late.items()]:
        stream, _, array = key.partition("/")
        if stream != "own_abrupt_late":  # as outcomes were learnt before there was a horizon lane
            streams.setdefault(stream, {})[array] = values
    found = {name: arrays for name, arrays in streams.items() if not arrays["ctl"]}
    for arrays in found.values():
        arrays.setdefault("idx", np.arange(len(arrays["score"])))
        arrays["row"][127:147] = 0.0
    return found


@cache
def weights() -> dict[str, Arrays]:
    """AUTO, OPS and TOPS with weights and counts, by stream. `outcome` is the share of ones, NaN where none comes."""
    streams: dict[str, Arrays] = {}
    for key, values in _read(LARGER / "weights" / "golden_open.npz" if LARGER else HERE / "weights.npz").items():
        stream, _, array = key.partition("/")
        streams.setdefault(stream, {})[array] = values
    for arrays in streams.values():
        arrays["row"][127:147] = 0.0  # sums of the reference that calibeat does not keep
    return streams


@cache
def several() -> dict[str, Arrays]:
    """Several models, by stream; the state is that after the last forecast, before its outcome."""
    streams: dict[str, Arrays] = {}
    for key, values in _read(LARGER / "several" / "golden_open.npz" if LARGER else HERE / "several.npz").items():
        stream, _, array = key.partition("/")
        streams.setdefault(stream, {})[array] = values
    return streams


@cache
def band() -> dict[str, Arrays]:
    """The interval of AUTO's forecasts, by stream."""
    streams: dict[str, Arrays] = {}
    for key, values in _read(HERE / "band.npz").items():
        stream, _, array = key.partition("/")
        streams.setdefault(stream, {})[array] = values
    return streams


@cache
def abrupt() -> Arrays:
    """A synthetic stream with abrupt shifts: `score`, `outcome`."""
    return _read(HERE / "abrupt.npz")


@cache
def paper() -> dict[str, Any]:
    """Facts of the paper's text: its numbered floats with their labels, printed numbers, checksums of quoted words."""
    return json.loads((HERE / "paper.json").read_text())


@cache
def cutter() -> Any:
    """The script that cut this folder: how the words of a quotation are compared is written there."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["golden_make"] = module
    spec.loader.exec_module(module)
    return module


def _read(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def places(g: Arrays, array: str, start: int = 0) -> np.ndarray[Any, Any]:
    """The events at which an array is stored that begins at event `start`: all of them, or those of `idx`."""
    total = len(g["y"])
    at = np.arange(start, total) if len(g[array]) == total - start else g["idx"][g["idx"] >= start]
    assert len(at) == len(g[array])
    return at


def stored(g: Arrays, array: str, n: int, start: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Positions below n at which a per-event array is stored, and its values there."""
    at = places(g, array, start)
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

    Two kinds of events are left out. The published code says 0 (which is no mid-point) for a bin that is visited once
    in the whole stream: that needs the future. And what follows a knife edge in its bin.
    """
    g = load(stem)
    expert = ours(g["obs_p" if array == "hobs10" else "ops_p"], m)
    group = np.searchsorted(np.arange(1, m) / m, expert, side="right")
    once = g[array] == 0.0
    assert (np.bincount(group, minlength=m)[group][once] == 1).all()
    keep = ~once
    if (stem, array) in KNIFE_EDGES:
        event = KNIFE_EDGES[stem, array][0]
        keep[event:] &= group[event:] != group[event]
    return expert, np.flatnonzero(keep)


@cache
def groups() -> Arrays:
    """The groups' reference on twelve streams: NAME/score, words, outcome, due where late, and its outputs.

    Nine also have the values of their attributes; those at once have the records of their segments.
    """
    if LARGER is None:
        return _read(HERE / "groups.npz")
    at_once, late = (_read(LARGER / "groups" / f"golden_{kind}.npz") for kind in ("open", "late2_open"))
    return cutter().join_groups(at_once, late)
