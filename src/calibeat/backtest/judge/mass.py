"""Bins of equal mass: as many events in each, up to the events of one rank. Made of the ranks of a tally."""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.replay.tally import OCTAVES, RANKS, STEPS, Tally
from calibeat.report.schema import MassCurve

from .measures import curve_of

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
    """The group of each rank, from 0 without gaps: so many of about equal mass, fewer where many are in one rank.

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
