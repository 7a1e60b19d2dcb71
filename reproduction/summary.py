"""Means and standard deviations over the runs of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector

from .forests import ForestStream
from .replay import EPSILONS, METHODS
from .section import number

PLAIN = EPSILONS.index(0.1)


class Summary:
    """What the runs of a stream say, by method and epsilon."""

    def __init__(self, stream: ForestStream, runs: Sequence[Mapping[str, Any]]) -> None:
        self.stream = stream
        self.runs = len(runs)
        self.points: Ints = runs[0]["points"]
        self._values = {name: np.stack([run[name] for run in runs]) for name in ("ce", "shp", "brier", "log_loss")}

    def values(self, metric: str, method: str, epsilon: float = 0.1) -> Vector:
        """By [run] or, over time, [run, point]."""
        return self._values[metric][:, METHODS.index(method), EPSILONS.index(epsilon)]

    def mean(self, metric: str, method: str, epsilon: float = 0.1) -> Any:
        """Over the runs."""
        return self.values(metric, method, epsilon).mean(axis=0)

    def std(self, metric: str, method: str, epsilon: float = 0.1) -> Any:
        """Over the runs; one run has none."""
        values = self.values(metric, method, epsilon)
        return values.std(axis=0, ddof=1) if self.runs > 1 else np.full(values.shape[1:], np.nan)

    def final(self, metric: str, method: str, epsilon: float = 0.1) -> tuple[float, float]:
        """Mean and standard deviation at the end of the stream."""
        mean, std = self.mean(metric, method, epsilon), self.std(metric, method, epsilon)
        return (float(mean[-1]), float(std[-1])) if mean.ndim else (float(mean), float(std))

    def csv_rows(self, methods: Sequence[str], epsilons: Sequence[float]) -> list[list[str]]:
        """One row for each method, epsilon and point: CE and SHP."""
        rows = []
        for method in methods:
            for epsilon in epsilons:
                columns = [f(metric, method, epsilon) for metric in ("ce", "shp") for f in (self.mean, self.std)]
                for t, *numbers in zip(self.points, *columns, strict=True):
                    shown = [number(value) for value in numbers]
                    rows.append([self.stream.name, method, f"{epsilon:g}", str(t), *shown, str(self.runs)])
        return rows


CSV_HEAD = ["stream", "method", "epsilon", "t", "ce_mean", "ce_std", "shp_mean", "shp_std", "runs"]
