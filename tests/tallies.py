"""Tallies, comparisons and verdicts made of plain arrays of losses."""

from __future__ import annotations

import numpy as np

from calibeat.backtest.judge.intervals import Bootstrap, Intervals
from calibeat.backtest.judge.verdict import Comparison, Facts, verdict
from calibeat.backtest.replay.tally import Tally


def tallied(ce=None, **losses):
    """Tallies of one bin whose blocks hold one event each; with `ce` the calibration error of each method."""
    tallies, n = {}, 0
    for name, values in losses.items():
        tally, n = Tally(1), len(values)
        tally.sums(n)[1:, 0] = values
        tally.sums(n)[1:, 1] = values
        tally.cells(n)[1:, 0, 0] = 1.0
        tally.cells(n)[1:, 0, 1] = values if ce is None else ce[name]
        tallies[name] = tally
    return Bootstrap(tallies, n, 1)


def compared(ce=None, named="auto", **losses):
    """Forecasts that have these losses for outcomes of fair coins: exp(-loss) was given to what happened."""
    n = len(next(iter(losses.values())))
    y = (np.random.default_rng(99).random(n) < 0.5).astype(float)
    held = {name: np.clip(values, 1e-6, 11.0) for name, values in losses.items()}
    told = np.exp(-np.array(list(held.values())))
    sums = Intervals(len(held))
    sums.add(np.where(y == 1.0, told, 1.0 - told), y)
    return Comparison(list(held), tallied(ce, **held), sums, named if named in held else None)


def said_of(judged=900, log_e=0.0, ce=None, ones=None, learnt=None, **losses):
    labels = {name: name.upper() for name in losses}
    return verdict(compared(ce, **losses), Facts(labels, judged, dict.fromkeys(losses, log_e), ones, learnt))
