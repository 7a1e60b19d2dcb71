"""The section on classes: each class by itself, and their shares along the log. Memory does not grow with the log."""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.backtest.replay.tally import OUTCOME
from calibeat.core.method import Method, params_of
from calibeat.report.schema import ClassesInfo, Priors

from .measures import curve_of, iso, number

MOST_STRETCHES = 256  # of the log: an even number, because neighbours are merged
CAME, SCORES, FORECASTS = 0, 1, 2  # rows of `Stretches`: labels, raw scores, and a row for each method
MOST_CLASSES = 24  # with panels of their own
MOST_POINTS = 96  # of a line over time ...
LABELS_IN_POINT = 50  # ... each of at least so many labels
LEAST_PRIOR = 1e-12


def class_section(replayed: Replayed, stretches: Stretches, names: list[str]) -> ClassesInfo:
    """The section: each class by itself, and their shares along the log."""
    counts = label_counts(replayed)
    shown = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    raw = stretches.sums[SCORES].sum(axis=0)
    labelled = max(1, replayed.blocks.labelled)
    return {
        "total": replayed.numbers,
        "names": [names[k] for k in shown],
        "count": [int(counts[k]) for k in shown],
        "mean_score": [number(raw[k] / labelled) for k in shown],
        "methods": {
            runner.name: {
                "classwise_ce": number(float(runner.tally.errors.mean())),
                "ce": [number(runner.tally.errors[k]) for k in shown],
                "mean": [number(v) for v in _means(runner)[shown]],
                "curves": [curve_of(runner.tally.by_class[k]) for k in shown],
            }
            for runner in replayed.runners
        },
        "priors": _priors(replayed, stretches, shown.tolist()),
    }


def label_counts(replayed: Replayed) -> Vector:
    """How many judged labels each class has."""
    return np.asarray(replayed.runners[0].tally.by_class[:, :, OUTCOME].sum(axis=1))


def _means(runner: Runner) -> Vector:
    """The mean forecast of each class."""
    counts, forecasts, _ = np.moveaxis(runner.tally.by_class, 2, 0)
    return np.asarray(forecasts.sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0))


def _priors(replayed: Replayed, stretches: Stretches, shown: list[int]) -> Priors:
    used = len(stretches.begin)
    points = max(1, min(MOST_POINTS, used, replayed.blocks.labelled // LABELS_IN_POINT))
    starts = np.arange(0, used, -(-used // points))
    events = np.add.reduceat(stretches.sums[CAME, :used].sum(axis=1), starts)
    some = np.where(events > 0.0, events, np.nan)

    def shares(row: int) -> list[list[float | None]]:
        means = np.add.reduceat(stretches.sums[row, :used][:, shown], starts, axis=0) / some[:, None]
        return [[number(v) for v in column] for column in means.T]

    timed = replayed.span is not None
    begin = [stretches.begin[at] for at in starts]
    x: list[str] | list[int] = [iso(t) for t in begin] if timed else begin
    return {
        "by": "time" if timed else "event",
        "x": x,
        "happened": shares(CAME),
        "scores": shares(SCORES),
        "forecasts": {runner.name: shares(FORECASTS + at) for at, runner in enumerate(replayed.runners)},
        "times": _times_as_common(replayed, stretches, shown, starts * stretches.length),
    }


def _times_as_common(
    replayed: Replayed, stretches: Stretches, shown: list[int], events: Ints
) -> list[list[float | None]] | None:
    """How many times as common each class is as the scores assume: exp(bias), scaled so that priors sum to one."""
    multi = next((runner for runner in replayed.runners if runner.name == "multi"), None)
    if multi is None or not multi.trail:
        return None
    assumed = stretches.sums[SCORES].sum(axis=0)
    assumed = np.maximum(assumed / max(1.0, assumed.sum()), LEAST_PRIOR)
    trail = [multi.trail[at] for at in np.searchsorted(replayed.marks, events)]  # each stretch begins at a mark
    if isinstance(multi.method, Method):  # of two classes
        trail = [np.array([0.0, float(params_of(multi.method, row.tolist())["b"])]) for row in trail]
    bias = np.array(trail)
    times = np.exp(bias - bias.max(axis=1, keepdims=True))
    times /= (times @ assumed)[:, None]
    return [[number(v) for v in times[:, k]] for k in shown]


class Stretches:
    """Sums by class over stretches of as many events each, which double when there are too many of them.

    `sums` is rows x stretches x classes: the labels, the raw scores, then the forecasts of each method.
    """

    def __init__(self) -> None:
        self.length = 1
        self.sums = np.zeros((0, MOST_STRETCHES, 0))
        self.begin: list[int] = []  # number or time of the first event of each
        self._events = 0

    def add(self, chunk: Chunk, forecasts: dict[str, Vector]) -> None:
        """Count a chunk. Events without a label are left out: shares are compared with those of the labels."""
        if not len(self.sums):
            self.sums = np.zeros((FORECASTS + len(forecasts), MOST_STRETCHES, chunk.numbers))
        first, n = self._events, len(chunk)
        while first + n > self.length * MOST_STRETCHES:
            self._merge()
        starts = np.arange(-(-first // self.length) * self.length, first + n, self.length) - first
        axis = np.arange(first + 1, first + n + 1) if chunk.times is None else chunk.times
        self.begin += axis[starts].tolist()
        labelled = ~np.isnan(chunk.outcomes)
        came = np.zeros(chunk.scores.shape)
        came[np.flatnonzero(labelled), chunk.outcomes[labelled].astype(np.int64)] = 1.0
        cuts = np.union1d([0], starts).astype(np.int64)
        for row, matrix in enumerate([came, chunk.scores, *forecasts.values()]):
            self.sums[row, (first + cuts) // self.length] += np.add.reduceat(matrix * labelled[:, None], cuts, axis=0)
        self._events += n

    def _merge(self) -> None:
        half = MOST_STRETCHES // 2
        self.sums[:, :half] = self.sums[:, ::2] + self.sums[:, 1::2]
        self.sums[:, half:] = 0.0
        self.begin = self.begin[::2]
        self.length *= 2
