"""The three drifts of Section 1 as tables: accuracy and calibration error of base model and OPS, window by window.

Both are computed from the known probabilities, so no binning comes in. The printed tables of label and regression drift
hold b at its value at the start of the window while a moves; `frozen` rows do the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibeat import OPS, Calibrator, Method, metrics
from calibeat.examples import drifts
from calibeat.examples.stream import FloatArray

from .tasks import Arrays, Task

# (first, last) of t as the paper counts it, from 1; the first 1000 events train.
WINDOWS = ((1501, 2000), (3501, 4000), (5501, 6000))
ROWS = tuple(
    ["1-1000 Base"]
    + [f"{first}-{last} {who}" for first, last in WINDOWS for who in ("Base", "OPS", "OPS, b frozen")]
)  # fmt: skip
GRID = 400  # points of a curve


def task(kind: str, seed: int) -> Task:
    """One run of one drift."""
    return Task(_work, "section1", kind, seed)


def _work(task: Task, _data: Path | None, _cache: Path) -> Arrays:
    return run(str(task.about), task.seed)


def run(kind: str, seed: int) -> dict[str, Any]:
    """One run: the table, the parameters at the start of each window, and the curves to plot."""
    drift = drifts.draw(kind, seed)
    train, test = slice(0, drifts.T_TRAIN), slice(drifts.T_TRAIN, None)
    score = drifts.base_model(kind, drift.x[train], drift.y[train])
    scores = score(drift.x[test])
    a, b = trajectory(OPS, scores, drift.y[test])
    rows = table(score(drift.x[train]), drift.truth[train], scores, drift.truth[test], a, b)
    starts = [first - 1 - drifts.T_TRAIN for first, _ in WINDOWS]
    grid = np.linspace(drift.x.min(), drift.x.max(), GRID)
    return {
        "table": rows, "a": a[starts], "b": b[starts], "x": drift.x, "grid": grid, "base": score(grid),
        "truth": np.stack([drifts.probability(kind, grid, first - 1) for first in (1, *(w[0] for w in WINDOWS))]),
    }  # fmt: skip


def trajectory(method: Method, scores: FloatArray, outcomes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(a_t, b_t): the Platt parameters that forecast event t."""
    calibrator = Calibrator(method)
    a, b = np.empty(len(scores)), np.empty(len(scores))
    for t, (score, outcome) in enumerate(zip(scores.tolist(), outcomes.tolist(), strict=True)):
        params = calibrator.params
        a[t], b[t] = params["a"], params["b"]
        calibrator.update(calibrator.predict(score), int(outcome))
    return a, b


def table(
    train_scores: FloatArray, train_truth: FloatArray, scores: FloatArray, truth: FloatArray,
    a: FloatArray, b: FloatArray,
) -> FloatArray:  # fmt: skip
    """One row of (accuracy in percent, CE) for each of `ROWS`."""
    rows = [measured(train_truth, train_scores)]
    for first, last in WINDOWS:
        window = slice(first - 1 - drifts.T_TRAIN, last - drifts.T_TRAIN)
        at_start = np.full(last - first + 1, b[window.start])
        rows += [
            measured(truth[window], scores[window]),
            measured(truth[window], platt(scores[window], a[window], b[window])),
            measured(truth[window], platt(scores[window], a[window], at_start)),
        ]
    return np.array(rows)


def measured(truth: FloatArray, forecasts: FloatArray) -> tuple[float, float]:
    """Accuracy in percent, and CE, both against the true probabilities."""
    return 100.0 * metrics.true_accuracy(truth, forecasts), metrics.true_calibration_error(truth, forecasts)


def platt(scores: FloatArray, a: FloatArray | float, b: FloatArray | float, clip: float = 1e-5) -> FloatArray:
    """sigmoid(a logit f + b)."""
    f = np.clip(scores, clip, 1.0 - clip)
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * (a * np.log(f / (1.0 - f)) + b))))
