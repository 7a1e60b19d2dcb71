"""Tallies and verdicts made of plain arrays of losses."""

from __future__ import annotations

from calibeat.backtest.judge.bootstrap import Bootstrap
from calibeat.backtest.judge.verdict import Facts, verdict
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


def said_of(judged=900, log_e=0.0, ce=None, ones=None, learnt=None, **losses):
    labels = {name: name.upper() for name in losses}
    return verdict(tallied(ce, **losses), Facts(labels, judged, dict.fromkeys(losses, log_e), ones, learnt))
