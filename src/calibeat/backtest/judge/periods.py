"""Two periods side by side: the same measures before a moment and from it on."""

from __future__ import annotations

import numpy as np

from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import counted, decimals
from calibeat.backtest.options import Options
from calibeat.backtest.read.batch import Chunk
from calibeat.core.stats import LOSS_FLOOR
from calibeat.errors import InvalidInput
from calibeat.report.schema import SplitPeriod

from .measures import iso, number

BEFORE, AFTER = 0, 1


class Periods:
    """Sums over the judged events of two periods, for each method."""

    def __init__(self, options: Options) -> None:
        self._options, self._bins, self._split = options, options.bins, options.split_at
        self._edges = np.arange(1, self._bins) / self._bins  # an edge falls to the right
        self._judged = np.zeros((2, 2))  # by period: events, ones
        self._sums: dict[str, Vector] = {}  # by method: period x (log-loss, Brier)
        self._gaps: dict[str, Vector] = {}  # by method: period x bin, the sum of forecast - outcome

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Count a chunk."""
        if self._split is None:
            return
        if chunk.times is None:
            how = self._options.how("--time NAME", "times=")
            raise InvalidInput(f"two periods need dates of the events, got none; {how}")
        late = chunk.times >= self._split
        for period, within in ((BEFORE, ~late), (AFTER, late)):
            self._count(period, within & (place > 0), chunk.outcomes, forecasts)

    def _count(self, period: int, rows: Flags, outcomes: Vector, forecasts: dict[str, Vector]) -> None:
        y = outcomes[rows]
        self._judged[period] += len(y), y.sum()
        for name, values in forecasts.items():
            p = values[rows]
            loss = -np.log(np.maximum(np.where(y == 1.0, p, 1.0 - p), LOSS_FLOOR))
            sums = self._sums.setdefault(name, np.zeros((2, 2)))
            sums[period] += loss.sum(), np.square(y - p).sum()
            gaps = self._gaps.setdefault(name, np.zeros((2, self._bins)))
            gaps[period] += np.bincount(np.searchsorted(self._edges, p, side="right"), p - y, minlength=self._bins)

    @property
    def found(self) -> list[SplitPeriod]:
        """The two periods, if a moment was given."""
        if self._split is None:
            return []
        names = f"before {iso(self._split)}", f"from {iso(self._split)}"
        return [self._period(period, names[period]) for period in (BEFORE, AFTER)]

    def _period(self, period: int, name: str) -> SplitPeriod:
        n, ones = self._judged[period].tolist()
        of = max(1.0, n)
        return {
            "name": name,
            "judged": int(n),
            "base_rate": number(ones / n) if n else None,
            "methods": {
                method: {
                    "log_loss": number(sums[period, 0] / of) if n else None,
                    "brier": number(sums[period, 1] / of) if n else None,
                    "ce": number(np.abs(self._gaps[method][period]).sum() / of) if n else None,
                }
                for method, sums in self._sums.items()
            },
        }


def sentences_on_periods(periods: list[SplitPeriod], labels: dict[str, str]) -> list[str]:
    """Each period in a sentence: log-loss of every method, the least first."""
    told = []
    for period in periods:
        losses = {labels[name]: m["log_loss"] for name, m in period["methods"].items() if m["log_loss"] is not None}
        ranked = sorted(losses, key=losses.__getitem__)
        digits = decimals(losses.values())
        shown = ", ".join(f"{label} {losses[label]:.{digits}f}" for label in ranked) or "nothing to compare"
        name = period["name"]
        told.append(f"{name[0].upper()}{name[1:]}, {counted(period['judged'], 'judged event')}: log-loss {shown}.")
    return told
