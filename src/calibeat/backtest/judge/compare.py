"""Methods compared on this log: differences with martingale intervals, and the check whether they would hold elsewhere.

The printed interval is for the mean difference in expectation on this log's events, given their past (`intervals`).
It allows for the luck of the outcomes and for nothing else. The moving-block bootstrap (`bootstrap`) tells how other
stretches of the log differ. It is a check, never the printed interval.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.read.batch import FIRST_EVENTS, Chunk
from calibeat.report.schema import DifferencesTo, Elsewhere, Number

from .bootstrap import Bootstrap, Triple
from .dependence import Z
from .intervals import BRIER, LOG_LOSS, Intervals
from .measures import number

NUMBERED = {"log_loss": LOG_LOSS, "brier": BRIER}


def typical_delay(chunk: Chunk) -> int:
    """The median delay in events among the first 20,000 events; 0 where outcomes arrive at once.

    A delay that ends beyond those events counts as if it ended with them.
    """
    if chunk.clock is None or chunk.arrivals is None:
        return 0
    clock, arrivals = chunk.clock[:FIRST_EVENTS], chunk.arrivals[:FIRST_EVENTS]
    known = np.flatnonzero(~np.isnan(chunk.outcomes[:FIRST_EVENTS]))
    if not len(known):
        return 0
    due = np.searchsorted(clock, arrivals[known], side="left")
    return int(np.median(np.maximum(due - known, 1)))


class Counting:
    """Adds the chunks of a replay to `Intervals`; a run of late labels is as long as their median delay in events."""

    def __init__(self, bins: int) -> None:
        self.sums = Intervals(1, bins)  # until the first chunk tells how many methods there are, and how late labels
        self._began = False

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> Vector:
        """Take the forecasts of all methods for a chunk, the raw score first -> those of the leader."""
        if not self._began:
            self.sums, self._began = Intervals(len(forecasts), self.sums.bins, typical_delay(chunk)), True
        return self.sums.add(np.array(list(forecasts.values())), chunk.outcomes, place)


class Comparison:
    """What is known of each method against the raw score and against the others.

    Parameters
    ----------
    names : of the methods, the raw score first.
    named : the method that was chosen before the log was seen (AUTO), if it is among them.
    """

    def __init__(self, names: list[str], bootstrap: Bootstrap, sums: Intervals, named: str | None = None) -> None:
        self._at = {name: at for at, name in enumerate(names)}
        self.raw, self.named, self.bootstrap, self.sums = names[0], named, bootstrap, sums

    def measured(self, name: str, measure: str) -> float:
        """On the log itself."""
        return self.bootstrap.measured(name, measure)

    # ---- on this log ----------------------------------------------------------------------------------------------

    def difference(self, name: str, other: str, measure: str, z: float = Z) -> Triple:
        """By how much the log-loss or Brier score of `name` is above that of `other`, with its martingale interval."""
        return self.sums.difference(NUMBERED[measure], self._at[name], self._at[other], z)

    def shared(self, name: str) -> bool:
        """Whether the interval against the raw score allows for late outcomes that moved together."""
        return self.sums.half_width(LOG_LOSS, self._at[name])[1]

    @cached_property
    def most(self) -> float:
        """The quantile for a claim about the best of many: one-sided 97.5 %, for all methods at once (max-t)."""
        return max(Z, self.sums.simultaneous(LOG_LOSS, 0.975, one_sided=True))

    def quantile(self, name: str) -> float:
        """1.96 for the method that was chosen beforehand and where there is only one; max-t for the best of many."""
        return Z if name == self.named or len(self._at) == 2 else self.most

    def claim(self, name: str) -> Triple:
        """Log-loss against the raw score, with the interval that a claim about the chosen method goes by."""
        return self.difference(name, self.raw, "log_loss", self.quantile(name))

    def effective(self, name: str) -> float:
        """As how many events of equal weight the difference to the raw score rests on."""
        return self.sums.effective(LOG_LOSS, self._at[name])

    # ---- elsewhere ------------------------------------------------------------------------------------------------

    def elsewhere(self, name: str) -> Triple:
        """Log-loss against the raw score, with the interval of the stretched block bootstrap."""
        return self.bootstrap.difference(name, self.raw, "log_loss")

    def eighths(self, name: str) -> list[float]:
        """The mean difference in log-loss to the raw score in each eighth of the log; empty if it is too short."""
        return self.bootstrap.eighths(name, self.raw)

    def throughout(self, name: str) -> bool:
        """Whether the log-loss is below the raw score's in each eighth."""
        parts = self.eighths(name)
        return bool(parts) and max(parts) < 0.0

    def outlived(self, name: str) -> bool:
        """Whether the difference depends on its past for longer than a run of the bootstrap."""
        return self.bootstrap.outlived(name, self.raw)

    # ---- calibration error ----------------------------------------------------------------------------------------

    def luck(self, name: str) -> float:
        """The calibration error that a perfectly calibrated forecast in these bins would show by luck."""
        return self.sums.luck(self._at[name])

    def envelope(self, name: str) -> Triple:
        """Calibration error less that of the raw score, and an envelope that errs on the safe side."""
        return (0.0, 0.0, 0.0) if name == self.raw else self.sums.error_difference(self._at[name])

    def less_error(self, name: str, other: str) -> bool:
        """Whether `name` has less calibration error beyond luck: its envelope ends below where the other's begins."""
        return self.envelope(name)[2] < self.envelope(other)[1]


def differences(compared: Comparison, name: str, other: str) -> DifferencesTo:
    """For the leaderboard. A calibration error has its envelope against the raw score, and no interval else."""
    ce = compared.measured(name, "ce") - compared.measured(other, "ce")
    return {
        "method": other,
        "log_loss": _triple(compared.difference(name, other, "log_loss")),
        "brier": _triple(compared.difference(name, other, "brier")),
        "ce": _triple(compared.envelope(name)) if other == compared.raw else [number(ce), None, None],
    }


def elsewhere(compared: Comparison, name: str) -> Elsewhere:
    """For the leaderboard: how the difference in log-loss to the raw score varies along the log."""
    _, low, high = compared.elsewhere(name)
    return {
        "low": number(low),
        "high": number(high),
        "outlived": compared.outlived(name),
        "eighths": [number(part) for part in compared.eighths(name)],
    }


def _triple(difference: Triple) -> list[Number]:
    return [number(value) for value in difference]
