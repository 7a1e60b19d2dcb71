"""Replay a stream through every method of the paper, and its metrics at every point of the plots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from calibeat import (
    AIOLI,
    AUTO,
    BM,
    FTL,
    OBS,
    OPS,
    Beta,
    Calibrator,
    Fixed,
    Hedging,
    Histogram,
    Method,
    Platt,
    Tracking,
    metrics,
)
from calibeat._util.types import Ints, Vector

from .forests import ForestStream, scored
from .tasks import Arrays, Task

EPSILONS = (0.05, 0.1, 0.2)
CALIBEATEN = {
    "TOPS": ("OPS", Tracking),
    "HOPS": ("OPS", Hedging),
    "TOBS": ("OBS", Tracking),
    "HOBS": ("OBS", Hedging),
    "TWHB": ("WHB", Tracking),
}
EXPERTS = ("BM", "FPS", "WPS", "SWPS", "OPS", "OPS (AIOLI)", "FBS", "WBS", "SWBS", "OBS", "WHB", "AUTO")
METHODS = (*EXPERTS, *CALIBEATEN)
LOG_LOSS_CLIP = 1e-5


def experts(calibration: int, window: int) -> dict[str, Method]:
    """The methods that do not bin, with the stream's T_cal and W."""
    every, sliding = FTL(every=window, after=calibration), FTL(max(1, window // 5), calibration, window=calibration)
    return {
        "BM": BM,
        "FPS": Method(Platt(), Fixed(calibration)),
        "WPS": Method(Platt(), every),
        "SWPS": Method(Platt(), sliding),
        "OPS": OPS,
        "OPS (AIOLI)": replace(OPS, learner=AIOLI()),
        "FBS": Method(Beta(), Fixed(calibration)),
        "WBS": Method(Beta(), every),
        "SWBS": Method(Beta(), sliding),
        "OBS": OBS,
        "WHB": Method(Histogram(), every),
        "AUTO": AUTO,
    }


@dataclass(frozen=True, eq=False)
class Replayed:
    """Metrics of one run, by [method, epsilon] and, over time, [method, epsilon, point]."""

    points: Ints  # t: T_cal + 2W, T_cal + 3W, ..., T
    ce: Vector
    shp: Vector
    brier: Vector  # at the end
    log_loss: Vector


def task(stream: ForestStream, seed: int) -> Task:
    """One run of a stream."""
    return Task(_work, "replay", stream, seed)


def _work(task: Task, data: Path | None, cache: Path) -> Arrays:
    return dict(run(cast("ForestStream", task.about), task.seed, data, cache))


def run(stream: ForestStream, seed: int, data: Path | None, cache: Path) -> dict[str, Vector | Ints]:
    """One run of a stream, its scores from the cache or from a new forest."""
    scores, outcomes = scored(stream, seed, data, cache)
    return vars(replay(scores, outcomes, stream.calibration, stream.window, seed, stream.name)).copy()


def replay(scores: Vector, outcomes: Vector, calibration: int, window: int, seed: int = 0, name: str = "") -> Replayed:
    """Every method on one stream; metrics are over the events from T_cal on."""
    at = points(len(scores), calibration, window)
    shape = len(METHODS), len(EPSILONS)
    result = Replayed(at, *(np.empty((*shape, len(at))) for _ in range(2)), *(np.empty(shape) for _ in range(2)))
    forecasts = {
        expert: Calibrator(method, seed=seed, stream=name).run(scores, outcomes)
        for expert, method in experts(calibration, window).items()
    }
    y = outcomes[calibration:]
    for i, method in enumerate(METHODS):
        for j, epsilon in enumerate(EPSILONS):
            bins = round(1 / epsilon)
            if method in CALIBEATEN:  # the same forecasts as one method of three parts, and its expert runs only once
                expert, calibeater = CALIBEATEN[method]
                binned = Method(None, None, calibeater(bins=bins))
                series = Calibrator(binned, seed=seed, stream=name).run(forecasts[expert], outcomes)
            else:
                series = forecasts[method]
            p = series[calibration:]
            result.ce[i, j], result.shp[i, j] = over_time(y, p, at - calibration, bins)
            if j == 0 or method in CALIBEATEN:
                result.brier[i, j:], result.log_loss[i, j:] = np.mean((y - p) ** 2), log_loss(y, p)
    return result


def points(events: int, calibration: int, window: int) -> Ints:
    """Where the plots have a point: T_cal + 2W, every W from there, and the end."""
    every = np.arange(calibration + 2 * window, events + 1, window)
    return np.unique(np.append(every, events))


def over_time(y: Vector, p: Vector, ends: Ints, bins: int) -> tuple[Vector, Vector]:
    """CE and SHP of the first n events for every n of `ends`, from sums that are made once."""
    b = np.searchsorted(np.arange(1, bins) / bins, p, side="right")  # an edge falls to the right
    cell = np.searchsorted(ends, np.arange(len(y)), side="right") * bins + b
    shape = len(ends), bins
    count, sum_p, sum_y = (
        np.bincount(cell, weights, shape[0] * bins)[: shape[0] * bins].reshape(shape).cumsum(axis=0)
        for weights in (None, p, y)
    )
    binned = metrics.of_bins(count, sum_p, sum_y)
    return binned.calibration_error, binned.sharpness


def log_loss(y: Vector, p: Vector) -> float:
    """Mean log-loss of forecasts clipped to [1e-5, 1 - 1e-5]."""
    likelihood = np.where(y == 1.0, p, 1.0 - p)
    return float(-np.log(np.maximum(likelihood, LOG_LOSS_CLIP)).mean())
