"""Would it hold elsewhere? The moving-block bootstrap resamples runs of consecutive events, so that what depends on its
neighbours stays beside them. It tells how other stretches of a log differ. The printed intervals are those of
`intervals`, which are for this log."""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Vector
from calibeat.backtest.replay.tally import BRIER, COUNT, FORECAST, LOSS, OUTCOME, Tally
from calibeat.metrics import calibration_error_of_gaps

from .dependence import stretch

RESAMPLES = 1000
SEED = 20130  # of the resampling: a report is a function of its log
MEASURES = ("log_loss", "brier", "ce")

Triple = tuple[float, float, float]


class Bootstrap:
    """Measures of every method on the log and on resamples of it, the same resamples for all."""

    def __init__(self, tallies: dict[str, Tally], used: int, length: int) -> None:
        self.run = max(1, round(used**0.5))  # in blocks: as many runs as blocks in a run
        self.run_events = self.run * length
        count = next(iter(tallies.values())).cells(used)[1:, :, COUNT].sum(axis=1)
        self._count = count
        columns = [count[:, None]]
        for tally in tallies.values():
            sums, cells = tally.sums(used)[1:], tally.cells(used)[1:]
            columns += [sums[:, [LOSS, BRIER]], cells[:, :, FORECAST] - cells[:, :, OUTCOME]]
        blocks = np.hstack(columns)
        resampled, log = _weights(used, self.run) @ blocks, blocks.sum(axis=0, keepdims=True)
        width = 2 + next(iter(tallies.values())).bins
        self._blocks: dict[str, Vector] = {}
        self._stretched: dict[tuple[str, str, str], tuple[float, bool]] = {}
        self._resampled: dict[str, dict[str, Vector]] = {}
        self._measured: dict[str, dict[str, float]] = {}
        for at, name in enumerate(tallies):
            part = slice(1 + at * width, 1 + (at + 1) * width)
            self._resampled[name] = _measures(resampled[:, 0], resampled[:, part])
            found = _measures(log[:, 0], log[:, part])
            self._blocks[name] = _linear(blocks[:, part])
            self._measured[name] = {measure: float(values[0]) for measure, values in found.items()}

    def measured(self, name: str, measure: str) -> float:
        """On the log itself."""
        return self._measured[name][measure]

    def difference(self, name: str, other: str, measure: str) -> Triple:
        """By how much `name` is above `other`, with a 95 % interval.

        The spread is that of the resamples, its middle the difference on the log: resampling adds noise to a
        calibration error, which would shift the interval. It is stretched where dependence outlives a run. It never
        leaves the possible range: no measure is below zero, so neither can fall by more than it was.
        """
        mine, theirs = self._measured[name][measure], self._measured[other][measure]
        d = mine - theirs
        draws = self._resampled[name][measure] - self._resampled[other][measure]
        low, high = np.quantile(draws - draws.mean(), [0.025, 0.975]) * self._stretch(name, other, measure)[0]
        return d, max(d + float(low), -theirs), min(d + float(high), mine)

    def outlived(self, name: str, other: str, measure: str = "log_loss") -> bool:
        """Whether the difference depends on its past for longer than a run."""
        return self._stretch(name, other, measure)[1]

    def eighths(self, name: str, other: str) -> list[float]:
        """By how much the log-loss of `name` is above the other's in each eighth; empty for fewer than eight blocks."""
        series = self._blocks[name][0] - self._blocks[other][0]
        if len(series) < 8:
            return []
        parts = zip(np.array_split(series, 8), np.array_split(self._count, 8), strict=True)
        return [float(sums.sum() / count.sum()) for sums, count in parts]

    def _stretch(self, name: str, other: str, measure: str) -> tuple[float, bool]:
        wanted = min(name, other), max(name, other), measure
        if wanted not in self._stretched:
            at = MEASURES.index(measure)
            self._stretched[wanted] = stretch(self._blocks[name][at] - self._blocks[other][at], self.run)
        return self._stretched[wanted]


def _linear(sums: Vector) -> Vector:
    """What each block adds to log-loss, Brier and calibration error: the gap of a bin with the sign of its total."""
    return np.array([sums[:, 0], sums[:, 1], sums[:, 2:] @ np.sign(sums[:, 2:].sum(axis=0))])


def _measures(count: Vector, sums: Vector) -> dict[str, Vector]:
    """From the sums of log-loss, Brier and forecast - outcome of each bin, one row a log."""
    ce = calibration_error_of_gaps(sums[:, 2:], count)
    return {"log_loss": sums[:, 0] / count, "brier": sums[:, 1] / count, "ce": ce}


def _weights(used: int, run: int) -> Vector:
    """How often each block is in each resample: as many runs as fill the log."""
    rng = np.random.default_rng(SEED)
    starts = rng.integers(0, used - run + 1, (RESAMPLES, -(-used // run)))
    changes = np.zeros((RESAMPLES, used + 1))
    rows = np.arange(RESAMPLES)[:, None]
    np.add.at(changes, (rows, starts), 1.0)
    np.add.at(changes, (rows, starts + run), -1.0)
    return np.cumsum(changes[:, :-1], axis=1)
