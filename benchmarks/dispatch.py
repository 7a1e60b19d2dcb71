"""Ways to serve one event from Python: plain kernels, compiled ones by Numba's dispatcher, or by their entry points.

The bodies are the same, hence the bits. Plain on an `array` is what `Calibrator` calls at first: predict, then settle
with what predict has worked out. Plain on an ndarray pays for NumPy scalars. Compiled pays for unboxing its arguments,
so there it is cheaper to hand over less and work it out again: predict, then update. The dispatcher also looks at the
type of each argument; an entry point trusts the caller. Loading Numba comes on top, once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.speed import PRESETS, loop
from benchmarks.stream import drifting
from benchmarks.timing import always, interleaved
from calibeat import Method
from calibeat.core import kernel
from calibeat.core.jit import compiled, entry_point

EMPTY = np.empty(0)


def predict_settle(spec: Any, row: Any, scores: list[float], outcomes: list[int]) -> float:
    """The plain kernels alone, without a Calibrator around them; gives the last forecast."""
    predict, settle, forecast = kernel.predict, kernel.settle, 0.0
    for event, (score, outcome) in enumerate(zip(scores, outcomes, strict=True)):
        forecast, cell, x0, x1, x2, p, z, *_ = predict(spec, row, score, 0.5, EMPTY, 0)
        settle(spec, row, event + 1.0, x0, x1, x2, p, z, cell, float(outcome), EMPTY, 0, False)
    return forecast


def predict_update(predict: Any, update: Any, spec: Any, row: Any, scores: list[float], outcomes: list[int]) -> float:
    """Compiled kernels alone, without a Calibrator around them; gives the last forecast."""
    forecast = 0.0
    for event, (score, outcome) in enumerate(zip(scores, outcomes, strict=True)):
        forecast, cell, *_ = predict(spec, row, score, 0.5, EMPTY, 0)
        update(spec, row, event + 1.0, score, cell, float(outcome), EMPTY, 0, EMPTY, EMPTY, EMPTY, 0)
    return forecast


def plain_array(method: Method, scores: list[float], outcomes: list[int]) -> float:
    """Plain kernels on Python floats: a tuple for the spec, an `array` for the row."""
    return predict_settle(tuple(method.spec.tolist()), array("d", method.initial_row()), scores, outcomes)


def plain_ndarray(method: Method, scores: list[float], outcomes: list[int]) -> float:
    """Plain kernels on NumPy scalars."""
    return predict_settle(method.spec, method.initial_row(), scores, outcomes)


def compiled_ndarray(method: Method, scores: list[float], outcomes: list[int]) -> float:
    """Compiled kernels by Numba's dispatcher."""
    kernels = compiled(kernel.predict), compiled(kernel.update)
    return predict_update(*kernels, method.spec, method.initial_row(), scores, outcomes)


def compiled_direct(method: Method, scores: list[float], outcomes: list[int]) -> float:
    """Compiled kernels by their entry points."""
    spec, row = method.spec, method.initial_row()
    predict = entry_point(kernel.predict, spec, row, 0.5, 0.5, EMPTY, 0)
    update = entry_point(kernel.update, spec, row, 1.0, 0.5, 0, 1.0, EMPTY, 0, EMPTY, EMPTY, EMPTY, 0)
    return predict_update(predict, update, spec, row, scores, outcomes)


PATHS = {
    "plain, array": plain_array,
    "plain, ndarray": plain_ndarray,
    "compiled": compiled_ndarray,
    "entry points": compiled_direct,
}


def paths(*, quick: bool) -> None:
    """Table: us per event of predict + update by each path; best of interleaved repeats."""
    events, repeats = (5_000, 2) if quick else (20_000, 7)
    stream, rows = drifting(events), []
    scores, outcomes = stream.scores.tolist(), stream.outcomes.astype(int).tolist()
    for name in ("OPS", "TOPS", "HOPS", "OBS"):
        method = PRESETS[name]
        ends = {path(method, scores, outcomes) for path in PATHS.values()}
        sides: dict[str, Callable[..., object]] = {**PATHS, "Calibrator": loop}
        best = interleaved({title: always(path, method, scores, outcomes) for title, path in sides.items()}, repeats)
        times = [table.microseconds(seconds, events) for seconds in best.values()]
        ratio = best["compiled"] / best["plain, array"]
        rows.append([name, *times, f"{ratio:.2f}", "yes" if len(ends) == 1 else "NO"])
    table.show(
        f"paths of one event from Python, {events:,} events",
        ["method", *PATHS, "Calibrator", "compiled / plain", "same bits"],
        rows,
        [f"CPU us of predict + update, best of {repeats} interleaved; the first four have no host."],
    )
