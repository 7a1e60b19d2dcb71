"""Intervals by the moving-block bootstrap: runs of consecutive events are resampled, so that what depends on its
neighbours stays beside them. Intervals that take events for independent are too narrow on a log."""

from __future__ import annotations

import numpy as np

from calibeat._check import Vector

from .tally import BRIER, COUNT, FORECAST, LOSS, OUTCOME, Tally

RESAMPLES = 1000
SEED = 20130  # of the resampling: a report is a function of its log
MEASURES = ("log_loss", "brier", "ce")

Triple = tuple[float, float, float]


class Bootstrap:
    """Measures of every method on the log and on resamples of it, the same resamples for all."""

    def __init__(self, tallies: dict[str, Tally], used: int, length: int) -> None:
        self.run = max(1, round(used**0.5))  # in blocks: as many runs as blocks in a run
        self.run_events = self.run * length
        weights = _weights(used, self.run)
        count = next(iter(tallies.values())).cells(used)[1:, :, COUNT].sum(axis=1)
        total = weights @ count
        self._resampled: dict[str, dict[str, Vector]] = {}
        self._measured: dict[str, dict[str, float]] = {}
        for name, tally in tallies.items():
            sums, cells = tally.sums(used)[1:], tally.cells(used)[1:]
            gaps = cells[:, :, FORECAST] - cells[:, :, OUTCOME]
            self._measured[name] = {
                "log_loss": float(sums[:, LOSS].sum() / count.sum()),
                "brier": float(sums[:, BRIER].sum() / count.sum()),
                "ce": float(np.abs(gaps.sum(axis=0)).sum() / count.sum()),
            }
            self._resampled[name] = {
                "log_loss": weights @ sums[:, LOSS] / total,
                "brier": weights @ sums[:, BRIER] / total,
                "ce": np.abs(weights @ gaps).sum(axis=1) / total,
            }

    def measured(self, name: str, measure: str) -> float:
        """On the log itself."""
        return self._measured[name][measure]

    def difference(self, name: str, other: str, measure: str) -> Triple:
        """By how much `name` is above `other`, with a 95 % interval.

        The spread is that of the resamples, its middle the difference on the log: resampling adds noise to a
        calibration error, which would shift the interval.
        """
        d = self._measured[name][measure] - self._measured[other][measure]
        draws = self._resampled[name][measure] - self._resampled[other][measure]
        low, high = np.quantile(draws - draws.mean(), [0.025, 0.975])
        return d, d + float(low), d + float(high)

    def share_better(self, name: str, other: str, measure: str = "log_loss") -> float:
        """In which share of the resamples `name` is below `other`."""
        return float(np.mean(self._resampled[name][measure] < self._resampled[other][measure]))


def _weights(used: int, run: int) -> Vector:
    """How often each block is in each resample: as many runs as fill the log."""
    rng = np.random.default_rng(SEED)
    starts = rng.integers(0, used - run + 1, (RESAMPLES, -(-used // run)))
    changes = np.zeros((RESAMPLES, used + 1))
    rows = np.arange(RESAMPLES)[:, None]
    np.add.at(changes, (rows, starts), 1.0)
    np.add.at(changes, (rows, starts + run), -1.0)
    return np.cumsum(changes[:, :-1], axis=1)
