"""Measures from tallies: of the whole log, of windows and periods of it, in bins of equal width or equal mass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.replay.engine import Replayed
from calibeat.backtest.replay.tally import (
    BRIER,
    COUNT,
    FORECAST,
    HITS,
    LOG_E,
    LOSS,
    OCTAVES,
    OUTCOME,
    RANKS,
    STEPS,
    Tally,
)
from calibeat.metrics import of_bins, wilson
from calibeat.report.schema import BinnedCurve, MassCurve, Number, PeriodInfo, ReliabilityInfo, Windows, WindowScores

MOST_WINDOWS, MOST_PERIODS, MOST_POINTS = 200, 12, 300
EVENTS_PER_WINDOW = 500


def iso(microseconds: int) -> str:
    """Microseconds since 1970 as ISO text, UTC."""
    moment = np.datetime64(microseconds, "us")
    return str(np.datetime_as_string(moment, unit="s"))


def number(value: float) -> Number:
    """The number, or None where there is none."""
    return float(value) if math.isfinite(value) else None


def overall(cells: Vector, sums: Vector) -> dict[str, float]:
    """The measures of some blocks together."""
    count, forecast, outcome = cells.sum(axis=0).T
    n, total = float(count.sum()), sums.sum(axis=0)
    binned = of_bins(count, forecast, outcome)
    return {
        "log_loss": float(total[LOSS] / n),
        "brier": float(total[BRIER] / n),
        "accuracy": float(total[HITS] / n),
        "ce": float(binned.calibration_error),
        "shp": float(binned.sharpness),
        "refinement": float(binned.refinement),
    }


def auc(tally: Tally) -> tuple[float, float]:
    """The area under the ROC curve and by how much it may be off: forecasts of one rank count as equal."""
    zeros, ones = tally.ranks[:RANKS], tally.ranks[RANKS : 2 * RANKS]
    pairs = float(zeros.sum() * ones.sum())
    if pairs == 0.0:
        return math.nan, math.nan
    return _area(zeros, ones), float((ones * zeros).sum() / 2.0 / pairs)


def _area(zeros: Vector, ones: Vector) -> float:
    """The area under the ROC curve of counts by rank."""
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + 0.5 * zeros)).sum() / (zeros.sum() * ones.sum()))


MOST_BY_LUCK = 2.5  # standard errors of an AUC


@dataclass(frozen=True)
class Ranks:
    """How well the raw score ranks, and whether luck explains it."""

    auc: float = math.nan  # of two classes
    says_nothing: bool = False
    in_words: str = ""

    @classmethod
    def of(cls, auc: float, judged: int, ones: float) -> Ranks:
        """Of two classes.

        >>> Ranks.of(0.51, 1000, 300.0).in_words
        'The AUC of the raw score is 0.510; luck alone may show 0.450 to 0.550'
        >>> Ranks.of(0.51, 10**6, 3e5).says_nothing, Ranks.of(math.nan, 100, 0.0).says_nothing
        (False, False)
        """
        if math.isnan(auc):
            return cls()
        luck = MOST_BY_LUCK * error_of_auc(judged, ones)
        words = f"The AUC of the raw score is {auc:.3f}; luck alone may show {0.5 - luck:.3f} to {0.5 + luck:.3f}"
        return cls(auc, abs(auc - 0.5) <= luck, words)


def error_of_auc(judged: int, ones: float) -> float:
    """The standard error of Mann and Whitney's statistic where the score says nothing."""
    return math.sqrt((judged + 1.0) / (12.0 * ones * (judged - ones)))


def ranks_of_classes(by_class: Vector) -> Ranks:
    """Of many classes, each against the others, by the bins of its raw scores; luck has as many chances as classes."""
    found, most = [], math.sqrt(MOST_BY_LUCK**2 + 2.0 * math.log(len(by_class)))
    nothing = True
    for cells in by_class:
        ones, judged = cells[:, OUTCOME], float(cells[:, COUNT].sum())
        came = float(ones.sum())
        if 0.0 < came < judged:
            found.append(_area(cells[:, COUNT] - ones, ones))
            nothing = nothing and abs(found[-1] - 0.5) <= most * error_of_auc(int(judged), came)
    if not found:
        return Ranks()
    words = f"The AUC of the raw scores of single classes is {min(found):.3f} to {max(found):.3f}"
    return Ranks(says_nothing=nothing, in_words=f"{words}, no more than luck alone may show" if nothing else words)


# ---- windows -----------------------------------------------------------------------------------------------------


def windows(replayed: Replayed) -> Windows:
    """Windows of as many events each, at most 200, with the errors of every method in each."""
    blocks, used, edges = replayed.blocks, replayed.blocks.used, cuts_of(replayed)
    timed = replayed.span is not None
    start: list[str] | list[int]
    end: list[str] | list[int]
    if timed:
        start = [iso(int(blocks.begin[a])) for a in edges[:-1]]
        end = [iso(int(blocks.end[b - 1])) for b in edges[1:]]
    else:
        start = [int(blocks.begin[a]) for a in edges[:-1]]  # events counted from 1, also those without an outcome
        end = [int(blocks.end[b - 1]) for b in edges[1:]]
    pairs = list(pairwise(edges))
    raw = replayed.runners[0].tally.cells(used)[1:]
    whole = [raw[a:b].sum(axis=(0, 1)) for a, b in pairs]
    return {
        "by": "time" if timed else "event",
        "start": start,
        "end": end,
        "count": [int(total[COUNT]) for total in whole],
        "base_rate": [number(total[OUTCOME] / total[COUNT]) for total in whole],
        "mean_score": [number(total[FORECAST] / total[COUNT]) for total in whole],
        "methods": {r.name: _window_scores(r.tally, used, pairs) for r in replayed.runners},
    }


def cuts_of(replayed: Replayed) -> list[int]:
    """The blocks at which windows begin, and the end of the last."""
    most = min(MOST_WINDOWS, replayed.blocks.used)
    windows = max(min(10, most), min(most, replayed.blocks.judged // EVENTS_PER_WINDOW))
    return cuts(replayed.blocks.used, windows)


def _window_scores(tally: Tally, used: int, pairs: Sequence[tuple[int, int]]) -> WindowScores:
    cells, sums = tally.cells(used)[1:], tally.sums(used)[1:]
    scores = [overall(cells[a:b], sums[a:b]) for a, b in pairs]
    return {
        "ce": [number(s["ce"]) for s in scores],
        "log_loss": [number(s["log_loss"]) for s in scores],
        "brier": [number(s["brier"]) for s in scores],
    }


def cuts(used: int, parts: int) -> list[int]:
    """Where to cut `used` blocks into parts of about equal length: the beginnings, and the end."""
    return np.unique(np.linspace(0, used, parts + 1).round().astype(int)).tolist() if used else [0]


# ---- reliability -------------------------------------------------------------------------------------------------


def reliability(replayed: Replayed) -> ReliabilityInfo:
    """Counts, mean forecasts and mean outcomes per bin with their bands: the whole log, then its periods."""
    used = replayed.blocks.used
    parts = periods(replayed)
    raw = replayed.runners[0].tally.cells(used)[1:]
    listed: list[PeriodInfo] = [{"label": label, "count": int(raw[a:b, :, COUNT].sum())} for label, a, b in parts]
    methods = {
        r.name: [curve_of(r.tally.cells(used)[1:][a:b].sum(axis=0)) for _, a, b in parts] for r in replayed.runners
    }
    mass = {runner.name: mass_curve(runner.tally, replayed.bins) for runner in replayed.runners}
    return {"bins": replayed.bins, "periods": listed, "methods": methods, "mass": mass}


def periods(replayed: Replayed) -> list[tuple[str, int, int]]:
    """(label, first block, last block + 1): the whole log, and up to twelve stretches of the calendar or of events."""
    blocks, used = replayed.blocks, replayed.blocks.used
    parts = [("whole log", 0, used)]
    if blocks.judged < 2 * EVENTS_PER_WINDOW:
        return parts
    if replayed.span is not None:
        found = calendar([int(t) for t in blocks.begin[:used]])
        if found is not None:
            return parts + found
    edges = cuts(used, min(MOST_PERIODS, blocks.judged // EVENTS_PER_WINDOW))
    for a, b in pairwise(edges):
        if replayed.span is not None:
            label = f"{iso(int(blocks.begin[a]))} to {iso(int(blocks.end[b - 1]))}".replace("T", " ")
        else:
            label = f"events {int(blocks.begin[a]):,}–{int(blocks.end[b - 1]):,}"
        parts.append((label, a, b))
    return parts


_UNITS = (
    ("datetime64[h]", "%d %b %Y, %H h"),
    ("datetime64[D]", "%d %b %Y"),
    ("datetime64[M]", "%b %Y"),
    ("quarter", ""),
    ("datetime64[Y]", "%Y"),
)


def calendar(begins: list[int]) -> list[tuple[str, int, int]] | None:
    """Blocks by the hour, day, month, quarter or year in which they begin: the finest unit that makes 2 to 12 parts."""
    moments = np.array(begins, dtype="datetime64[us]")
    for unit, pattern in _UNITS:
        if unit == "quarter":
            group = moments.astype("datetime64[M]").astype(np.int64) // 3
        else:
            group = moments.astype(unit).astype(np.int64)
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        if 2 <= len(starts) <= MOST_PERIODS:
            ends = [*starts[1:].tolist(), len(begins)]
            return [(_label(begins[a], pattern), a, b) for a, b in zip(starts.tolist(), ends, strict=True)]
        if len(starts) < 2:
            return None
    return None


def _label(microseconds: int, pattern: str) -> str:
    moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    return moment.strftime(pattern) if pattern else f"Q{(moment.month + 2) // 3} {moment.year}"


def curve_of(cells: Vector) -> BinnedCurve:
    """From bins x (count, sum of forecasts, sum of outcomes), with a band that holds for all bins at once (95 %).

    In a bin the mean outcome is off the mean chance by at most a normal deviation of variance m (1 - m) / n, m the mean
    chance: chances that differ vary less. No stationarity is needed. So the band is Wilson's, with the level of
    Bonferroni for as many bins as hold events.
    """
    count, forecast, outcome = cells.T
    some = np.where(count > 0, count, np.nan)
    rate = outcome / some
    low, high = wilson(rate, some, 1.0 - 0.05 / max(1, int(np.count_nonzero(count))))
    return {
        "count": count.astype(int).tolist(),
        "forecast": [number(v) for v in forecast / some],
        "outcome": [number(v) for v in rate],
        "low": [number(v) for v in low],
        "high": [number(v) for v in high],
    }


def log_e_values(tally: Tally, used: int, at: Sequence[int]) -> list[Number]:
    """The log e-value after each number of blocks in `at`."""
    path = np.cumsum(tally.sums(used)[1:, LOG_E])
    return [number(path[k - 1]) for k in at]


# ---- bins of equal mass, made of the ranks of a tally ---------------------------------------------------------------

HALF = RANKS // 2


def threshold_of(rank: int) -> float:
    """The least forecast of a rank or a higher one: rank_of(p) >= rank where p >= threshold_of(rank).

    >>> from calibeat.backtest.replay.tally import rank_of
    >>> rank = rank_of(0.3, STEPS)
    >>> t = threshold_of(rank)
    >>> t <= 0.3, rank_of(t, STEPS) == rank, rank_of(np.nextafter(t, 0.0), STEPS) == rank - 1
    (True, True, True)
    """

    def least(k: int) -> float:
        octave, step = divmod(k - 1, STEPS)
        return (0.5 + step / (2.0 * STEPS)) * 2.0 ** (octave - OCTAVES)

    if rank < HALF:
        return least(rank) if rank else 0.0
    below = RANKS - 1 - rank  # of 1 - p, which is in that rank or a lower one
    edge = 0.5 if below == HALF - 1 else 1.0 - least(below + 1)
    return float(np.nextafter(edge, 1.0))


def groups_of(counts: Vector, groups: int) -> Ints:
    """The group of each rank, from 0 without gaps: `groups` of about equal mass, fewer where many are in one rank.

    A rank without events goes with the one below it that has some.

    >>> groups_of(np.array([0.0, 5.0, 0.0, 5.0, 9.0, 1.0]), 2)
    array([0, 0, 0, 0, 1, 1])
    """
    path, some = np.cumsum(counts), np.flatnonzero(counts)
    place = np.minimum((path - 0.5 * counts) / path[-1] * groups, groups - 1).astype(np.int64)
    below = some[np.maximum(np.searchsorted(some, np.arange(len(counts)), side="right") - 1, 0)]
    return np.asarray(np.unique(place[below], return_inverse=True)[1], dtype=np.int64)


def mass_curve(tally: Tally, bins: int) -> MassCurve:
    """The reliability curve of the judged events in bins of equal mass; `edge` is the least forecast of each bin."""
    zeros, ones, forecast = tally.ranks.reshape(3, RANKS)
    count = zeros + ones
    group = groups_of(count, bins)
    cells = np.column_stack([np.bincount(group, values) for values in (count, forecast, ones)]).astype(np.float64)
    first = np.searchsorted(group, np.arange(len(cells)))
    edges = [0.0, *(threshold_of(int(rank)) for rank in first[1:])]
    return {**curve_of(cells), "edge": edges}
