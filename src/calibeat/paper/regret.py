"""Table 1 measured: regret of OGD, ONS and AIOLI against their bounds, and their running time against T."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from calibeat import AIOLI, OGD, ONS, Calibrator, Method, Platt, bounds, metrics
from calibeat.examples.stream import FloatArray

from .tasks import Arrays, Task

LEARNERS = ("OGD", "ONS", "AIOLI", "ONS as used")
RADII = (1.0, 2.0, 4.0)  # B
LENGTHS = (1_000, 4_000, 16_000, 64_000)  # T
STREAMS = ("stationary", "flip", "adversary")
FLIP = 500  # so many events until the curve of the second stream turns round
REPEATS = 5
START = (0.0, 0.0)  # of (a, b): the centre of the ball, from which the bounds count
BOUNDS = {
    "OGD": bounds.ogd_regret, "ONS": bounds.ons_regret, "AIOLI": bounds.aioli_regret, "ONS as used": bounds.ons_regret,
}  # fmt: skip


def learner(name: str, radius: float) -> OGD | ONS | AIOLI:
    """A learner with the hyper-parameters under which its bound is proved; or those of the paper's experiments."""
    if name == "OGD":
        return OGD(radius=radius, diameter=2.0 * radius)
    if name == "ONS as used":
        return ONS()
    return ONS.of_theorem(radius) if name == "ONS" else AIOLI.of_theorem(radius)


def lengths(small: int = 0) -> tuple[int, ...]:
    """T; shorter ones for a trial."""
    return (small // 4, small // 2, small) if small else LENGTHS


def regret_task(seed: int, small: int = 0) -> Task:
    """One run of every learner on every stream."""
    return Task(_regret_work, "regret", "", seed, small)


def clock_task(seed: int, small: int = 0) -> Task:
    """The same, timed."""
    return Task(_clock_work, "clock", "", seed, small, kept=False)


def _regret_work(task: Task, _data: Path | None, _cache: Path) -> Arrays:
    return run(task.seed, lengths(task.small))


def _clock_work(task: Task, _data: Path | None, _cache: Path) -> Arrays:
    return clock(task.seed, lengths(task.small))


def run(seed: int, lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """Regret by [learner, B, stream, T]."""
    regrets = np.empty((len(LEARNERS), len(RADII), len(STREAMS), len(lengths)))
    for (i, name), (j, radius), (k, stream) in product(enumerate(LEARNERS), enumerate(RADII), enumerate(STREAMS)):
        method = Method(Platt(start=START), learner(name, radius))
        scores, outcomes = events(stream, method, lengths[-1], seed)
        forecasts = Calibrator(method).run(scores, outcomes)
        for m, length in enumerate(lengths):
            part = slice(0, length)
            regrets[i, j, k, m] = metrics.regret(
                Platt(), scores[part], outcomes[part], forecasts[part], radius=radius
            )  # fmt: skip
    return {"regret": regrets, "lengths": np.array(lengths)}


def clock(seed: int, lengths: tuple[int, ...] = LENGTHS, repeats: int = REPEATS) -> dict[str, Any]:
    """CPU seconds by [turn, learner, B, stream, T]; the adversary answers event by event, so it is not timed."""
    seconds = np.full((repeats, len(LEARNERS), len(RADII), len(STREAMS), len(lengths)), np.nan)
    for (i, name), (j, radius), (k, stream) in product(enumerate(LEARNERS), enumerate(RADII), enumerate(STREAMS)):
        if stream == "adversary":
            continue
        method = Method(Platt(start=START), learner(name, radius))
        scores, outcomes = events(stream, method, lengths[-1], seed)
        Calibrator(method).run(scores, outcomes)  # compiled, if it is to be
        for turn, (m, length) in product(range(repeats), enumerate(lengths)):
            seconds[turn, i, j, k, m] = timed(method, scores[:length], outcomes[:length])
    return {"seconds": seconds}


def events(stream: str, method: Method, length: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Scores in [0.01, 0.99] and outcomes: of one Platt curve, of one that turns round, or of an adversary."""
    rng = np.random.default_rng(seed)
    edge = np.log(99.0)
    logits = rng.uniform(-edge, edge, length)
    scores = np.clip(1.0 / (1.0 + np.exp(-logits)), 0.01, 0.99)
    if stream == "adversary":
        return scores, against(method, scores)
    a = np.full(length, 0.6)
    if stream == "flip":
        a[np.arange(length) // FLIP % 2 == 1] = -0.6
    return scores, (rng.random(length) < 1.0 / (1.0 + np.exp(-(a * logits + 0.4)))).astype(np.float64)


def against(method: Method, scores: FloatArray) -> FloatArray:
    """y_t = 1{p_t <= 0.5}: the paper's strategy against any deterministic forecaster."""
    calibrator, outcomes = Calibrator(method), np.empty(len(scores))
    for t, score in enumerate(scores.tolist()):
        forecast = calibrator.predict(score)
        outcome = int(forecast.probability <= 0.5)
        calibrator.update(forecast, outcome)
        outcomes[t] = outcome
    return outcomes


def timed(method: Method, scores: FloatArray, outcomes: FloatArray) -> float:
    """CPU seconds of one run; what other programs do counts little."""
    calibrator = Calibrator(method)
    begin = process_time()
    calibrator.run(scores, outcomes)
    return process_time() - begin
