"""Would it hold elsewhere? The moving-block bootstrap resamples runs of consecutive events, so that events which depend
on each other stay together. It shows how other stretches of a log differ. The printed intervals are those of
`intervals`, which are for this log."""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Vector
from calibeat.backtest.replay.tally import BRIER, COUNT, FORECAST, LOSS, OUTCOME, Tally
from calibeat.metrics import calibration_error_of_gaps

from .intervals import GROWS, Z, student

RESAMPLES = 1000
SEED = 20130  # of the resampling: a report is a function of its log
MEASURES = ("log_loss", "brier", "ce")
FEWEST_RUNS, SEEN_RUNS = 4, 8

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


# ---- dependence --------------------------------------------------------------------------------------------------
#
# A moving-block bootstrap is right when a run is long beside the dependence between events. Where it is not, the spread
# of the mean is larger in longer runs. Then the interval is stretched to the largest, with Student's quantile for the
# few runs there are. Dependence as long as the log itself cannot be seen from it.


def stretch(series: Vector, run: int) -> tuple[float, bool]:
    """By how much to stretch an interval from runs of `run` blocks, and whether dependence outlives them.

    >>> rng = np.random.default_rng(0)
    >>> stretch(rng.normal(size=2500), 50)[1], stretch(np.repeat(rng.normal(size=10), 250), 50)[1]
    (False, True)
    """
    n = len(series)
    if n < SEEN_RUNS * run:
        return 1.0, False
    base = _spread(series, run)
    if base <= 1e-12 * max(1.0, float(np.abs(series).max())):  # the same difference everywhere, up to rounding
        return 1.0, False
    whitened = _whitened(series, run)
    lengths = {run * 2**k for k in range(1, 12)} | {n // 4}
    longer = {length: _spread(series, length) for length in lengths if run < length <= n // FEWEST_RUNS}
    seen = [spread for length, spread in longer.items() if length <= n // SEEN_RUNS]
    half = max(Z * base, student(n / run - 2.0) * whitened)
    grows = max([whitened, *seen]) > GROWS * base
    if grows:
        half = max([half, *(student(n / length - 1.0) * spread for length, spread in longer.items())])
    return half / (Z * base), grows


def _spread(series: Vector, run: int) -> float:
    """The standard error of the mean as runs of a length show it; runs of one log miss what they share."""
    n = len(series)
    path = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    means = (path[run:] - path[:-run]) / run
    return float(np.sqrt(np.mean(means**2) * run / n / (1.0 - run / n)))


def _whitened(series: Vector, run: int) -> float:
    """The standard error if the means of runs follow an autoregression of first order.

    Its coefficient is that of least squares with Kendall's correction for the few runs, and 0.97 at most.
    """
    runs = len(series) // run
    means = series[: runs * run].reshape(runs, run).mean(axis=1)
    means -= means.mean()
    squares = float(means[:-1] @ means[:-1])
    if squares == 0.0:
        return 0.0
    rho = float(means[1:] @ means[:-1]) / squares
    rho = min(0.97, rho + (1.0 + 3.0 * rho) / runs)
    left = means[1:] - rho * means[:-1]
    return math.sqrt(float(left @ left) / (runs - 2) / runs) / (1.0 - rho)
