"""Refits on a growing past: how the time of WPS grows with the stream, beside refits by scikit-learn and SciPy.

The others are too slow to refit at every point: a handful of evenly spread points is timed and scaled to all of them.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from time import thread_time

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import table
from benchmarks.stream import Stream, drifting
from benchmarks.timing import always, interleaved, once
from calibeat import FTL, SWPS, WPS, Calibrator, Method
from reproduction.refits import PEERS, Fit

Array = NDArray[np.float64]

LINEAR_ENOUGH = 3.0  # the goal for the last doubling: half way from linear, 2, to quadratic, 4


def scaled(fit: Fit, stream: Stream, ends: range, sample: int) -> float:
    """Seconds of a fit on the first n events for every n of ends: timed at `sample` even spots, scaled to them all."""
    stride = len(ends) / sample
    spots = [ends[int((k + 0.5) * stride)] for k in range(sample)]
    # On one thread: on busy cores, threads that wait for each other took many times as long as the work.
    with threadpool_limits(1):
        return sum(once(partial(fit, stream.logits[:n], stream.outcomes[:n]), thread_time) for n in spots) * stride


def batch(method: Method, stream: Stream, events: int) -> Calibrator:
    """A fresh Calibrator after one `run` over the first events of the stream."""
    calibrator = Calibrator(method)
    calibrator.run(stream.scores[:events], stream.outcomes[:events])
    return calibrator


def growth(*, quick: bool) -> None:
    """Table: seconds of `run` with WPS and SWPS at doubling lengths, and the ratio of each doubling."""
    lengths = [25_000, 50_000, 100_000] if quick else [25_000, 50_000, 100_000, 200_000]
    repeats, sample = (1, 4) if quick else (3, 8)
    stream, learner = drifting(lengths[-1]), WPS.learner
    if not isinstance(learner, FTL):
        raise TypeError(learner)  # WPS follows the leader
    seconds: dict[str, list[float]] = {}
    optimum: dict[str, Array] = {}
    for name, method in (("WPS", WPS), ("SWPS", SWPS)):
        title = f"calibeat {name}, run"
        optimum[title] = np.array(list(batch(method, stream, lengths[-1]).params.values()))
        sides = {str(n): always(batch, method, stream, n) for n in lengths}
        seconds[title] = list(interleaved(sides, repeats).values())
    for title, fit in PEERS.items():
        optimum[title] = fit(stream.logits, stream.outcomes)
        seconds[title] = [scaled(fit, stream, range(learner.after, n + 1, learner.every), sample) for n in lengths]
    rows = []
    for title, times in seconds.items():
        ratios = [f"{late / early:.2f}" for early, late in pairwise(times)]
        goal = table.verdict(met=times[-1] < LINEAR_ENOUGH * times[-2]) if title not in PEERS else ""
        rows.append([title, *(f"{t:.3f}" for t in times), *ratios, *(f"{v:.6f}" for v in optimum[title]), goal])
    doublings = [f"{late // 1000}k/{early // 1000}k" for early, late in pairwise(lengths)]
    table.show(
        f"run with a refit every {learner.every} events",
        ["contender", *(f"{n // 1000}k s" for n in lengths), *doublings, "a", "b", f"last < {LINEAR_ENOUGH:.0f}"],
        rows,
        [
            "A ratio of 2 is linear, 4 is quadratic. WPS refits on all the past, SWPS more often on a sliding window.",
            f"calibeat: CPU, best of {repeats}. sklearn and SciPy: CPU, {sample} refits at even spots, scaled to all.",
            f"a, b: the parameters after {lengths[-1] // 1000}k events.",
        ],
    )
