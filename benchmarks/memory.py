"""Memory: what a Calibrator keeps after few and after many events, by `run` in slices and by predict + update.

`tracemalloc` counts what Python and NumPy hold; the row and the JSON text are the state itself; the resident size of
the process is read while one Calibrator takes slice after slice, so that the arrays passed in always weigh the same.
"""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize
from typing import NamedTuple

import calibeat
from benchmarks import table
from benchmarks.stream import Stream, drifting
from calibeat import FTL, Calibrator, Fixed, Histogram, Method

PRESETS = (
    "AUTO",
    "BM",
    "OPS",
    "TOPS",
    "HOPS",
    "OBS",
    "TOBS",
    "HOBS",
    "F99",
    "FPS",
    "FBS",
    "WPS",
    "WBS",
    "SWPS",
    "SWBS",
    "WHB",
    "TWHB",
)
SLICE = 1_000
FEW = 10_000

# An interpreter grows and frees small things of its own; a stream that is kept shows as megabytes.
SLACK = 4_096

Feed = Callable[[Calibrator, Stream, int, int], None]


class Size(NamedTuple):
    """Bytes of one Calibrator: held (tracemalloc), its row, its JSON; and resident bytes of the process."""

    held: int
    row: int
    text: int
    resident: int


def looks_back(method: Method) -> bool:
    """Whether a part has to see past events again: Fixed, FTL or Histogram."""
    return any(isinstance(part, Fixed | FTL | Histogram) for part in (method.learner, method.features))


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


def by_slices(calibrator: Calibrator, stream: Stream, begin: int, end: int) -> None:
    """`run` over slices of 1,000 events."""
    for i in range(begin, end, SLICE):
        calibrator.run(stream.scores[i : i + SLICE], stream.outcomes[i : i + SLICE])


def by_events(calibrator: Calibrator, stream: Stream, begin: int, end: int) -> None:
    """Predict + update, the forecasts thrown away."""
    for i in range(begin, end):
        calibrator.update(calibrator.predict(float(stream.scores[i])), int(stream.outcomes[i]))


def sizes(method: Method, stream: Stream, many: int, feed: Feed) -> tuple[Size, Size]:
    """What one Calibrator weighs once it has seen few and once it has seen many events."""
    feed(Calibrator(method), stream, 0, FEW)  # whatever is loaded at first use is not the stream's
    notes = array("q", [0] * 8)  # made before the counting begins, so that the notes do not count themselves
    gc.collect()
    tracemalloc.start()
    try:
        calibrator = Calibrator(method)
        for at, begin, end in ((0, 0, FEW), (4, FEW, many)):
            feed(calibrator, stream, begin, end)
            notes[at + 2] = len(calibrator.to_json())
            gc.collect()
            notes[at] = tracemalloc.get_traced_memory()[0]
            notes[at + 1] = calibrator.row.nbytes
            notes[at + 3] = resident()
    finally:
        tracemalloc.stop()
    return Size(*notes[:4]), Size(*notes[4:])


def growth(*, quick: bool) -> None:
    """Table: bytes of every preset after few and after many events."""
    many, lagging, single = (100_000, 20_000, 20_000) if quick else (1_000_000, 100_000, 100_000)
    stream, rows = drifting(many), []
    presets = {name: getattr(calibeat, name) for name in PRESETS if hasattr(calibeat, name)}
    for name, method in presets.items():
        slow = isinstance(method.learner, FTL) and method.learner.window is None
        early, late = sizes(method, stream, lagging if slow else many, by_slices)
        first, last = sizes(method, stream, single, by_events)
        mark = "*" if slow else ""
        constant = (
            late.held <= early.held + SLACK
            and last.held <= first.held + SLACK
            and late.row == early.row
            and late.text <= early.text + SLACK
        )
        rows.append(
            [
                name,
                str(late.row),
                str(early.text),
                f"{late.text}{mark}",
                str(early.held),
                f"{late.held}{mark}",
                f"{(late.resident - early.resident) / 1024:.0f}{mark}",
                str(first.held),
                str(last.held),
                "yes" if constant else "no",
                "" if looks_back(method) else table.verdict(met=constant),
            ]
        )
    few, lots, ones = (f"{n:,}" for n in (FEW, many, single))
    table.show(
        "bytes kept",
        [
            "preset",
            "row",
            f"JSON {few}",
            f"JSON {lots}",
            f"run {few}",
            f"run {lots}",
            "RSS growth KiB",
            f"events {few}",
            f"events {ones}",
            "constant",
            "goal",
        ],
        rows,
        [
            f"run, events: bytes held (tracemalloc) after run in slices of {SLICE:,} and after predict + update.",
            "RSS growth: of the process between the two points of run. The goal exempts Fixed, FTL and Histogram.",
            f"* at {lagging:,} events: refits on all the past are not worth waiting for.",
        ],
    )
