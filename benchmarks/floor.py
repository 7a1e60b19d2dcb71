"""The floor: floor.c compiled on the spot, called through ctypes, and `Calibrator.run` as a multiple of it.

Both sides read the same float64 arrays and return a fresh array of forecasts. The C side validates nothing and keeps no
history; calibeat's time is everything that `run` does.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.stream import Stream
from benchmarks.timing import Maker, always
from calibeat.core.randomness import stream_key

WIDTH = {"OPS": 7, "TOPS": 27, "HOPS": 207, "AUTO": 7}
FLAGS = {"gcc -O3": (), "gcc -O3 -march=native": ("-march=native",)}

Pointer = ctypes.POINTER(ctypes.c_double)


@cache
def library(flags: tuple[str, ...], name: str = "floor.c") -> ctypes.CDLL:
    """A file in C as a shared library in a temporary folder, which may go as soon as it is loaded."""
    source = Path(__file__).with_name(name)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "floor.so"
        command = [
            "gcc",
            "-O3",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",
            *flags,
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(target),
            "-lm",
        ]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(target))


def address(array: NDArray[np.float64]) -> ctypes._Pointer[ctypes.c_double]:
    """The C view of a float64 array."""
    return array.ctypes.data_as(Pointer)


def run(name: str, stream: Stream, flags: tuple[str, ...] = ()) -> NDArray[np.float64]:
    """The forecasts of a fresh row under the C loop of a method; the draws are those of seed 0."""
    row = np.zeros(WIDTH[name])
    row[2], row[4], row[6] = 1.0, 100.0, 100.0
    forecasts = np.empty(len(stream.scores))
    loop = getattr(library(flags), "auto_" if name == "AUTO" else name.lower())  # `auto` is a word of C
    loop(
        ctypes.c_int64(len(forecasts)),
        address(stream.scores),
        address(stream.outcomes),
        ctypes.c_uint64(stream_key(0, 0)),
        address(row),
        address(forecasts),
    )
    return forecasts


def contenders(name: str, stream: Stream) -> dict[str, Maker]:
    """The C loops of a method, by the flags they were compiled with; compiled here, before anybody's clock runs."""
    for flags in FLAGS.values():
        library(flags)
    return {title: always(run, name, stream, flags) for title, flags in FLAGS.items()}
