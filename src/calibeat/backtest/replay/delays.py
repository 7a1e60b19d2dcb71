"""How late outcomes were, counted by size: quantiles to within a percent or two, whatever the length of the log."""

from __future__ import annotations

import numpy as np

from calibeat._util.times import NEVER
from calibeat._util.types import Ints, Vector
from calibeat.backtest.read.batch import Chunk

_STEPS = 64  # in an octave
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


class Sizes:
    """A histogram of numbers >= 0 in steps of at most 1/64 of their size."""

    def __init__(self) -> None:
        self._count = np.zeros(65 * _STEPS, dtype=np.int64)
        self._least, self._most = np.inf, -np.inf

    def count(self, values: Ints) -> None:
        """Count whole numbers; negative ones count as 0."""
        values = np.maximum(values, 0)
        self._least = min(self._least, values.min(initial=2**63 - 1))
        self._most = max(self._most, values.max(initial=-1))
        mantissa, exponent = np.frexp(values + 1.0)  # from 0.5 and 1
        place = (exponent - 1) * _STEPS + ((mantissa - 0.5) * 2 * _STEPS).astype(np.int64)
        self._count += np.bincount(place, minlength=len(self._count))

    @property
    def total(self) -> int:
        """How many were counted."""
        return int(self._count.sum())

    def share_above(self, other: Sizes) -> float:
        """Of all pairs of a number of these and one of the others, the share in which the former is larger.

        Pairs within a step count half.
        """
        below = np.cumsum(other._count) - other._count / 2.0
        return float(self._count @ below) / max(1.0, float(self.total) * other.total)

    def quantiles(self) -> dict[str, float | None]:
        """By name: the number that so many percent do not exceed, up to the width of a step."""
        total = self._count.sum()
        steps = np.cumsum(self._count)
        edges = np.clip(self._edges(), self._least, self._most)
        at = [int(np.searchsorted(steps, q * total, side="left")) for q in QUANTILES]
        return {f"{q:.0%}": float(edges[i]) if total else None for q, i in zip(QUANTILES, at, strict=True)}

    def by_octave(self) -> tuple[list[float], list[int]]:
        """Edges 0, 1, 3, 7, ... from the least to the largest number counted, and the counts between them."""
        counts = self._count.reshape(-1, _STEPS).sum(axis=1)
        used = np.flatnonzero(counts)
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        return [float(2.0**k - 1.0) for k in range(first, last + 1)], counts[first:last].tolist()

    def _edges(self) -> Vector:
        octave, step = np.divmod(np.arange(len(self._count)), _STEPS)
        return np.floor(2.0**octave * (1.0 + step / _STEPS)) - 1.0


class Delays:
    """Delays in events, and in microseconds where there are times."""

    def __init__(self, *, timed: bool) -> None:
        self.timed = timed
        self.learnt = 0
        self.events, self.time = Sizes(), Sizes()

    def count(self, chunk: Chunk, waited: Ints) -> None:
        """Count the outcomes that arrived in this chunk, and when those of its events will."""
        self.learnt += len(waited)
        self.events.count(waited - 1)  # forecasts in between: the next event's is none
        if self.timed and chunk.clock is not None and chunk.arrivals is not None:
            known = chunk.arrivals != NEVER
            self.time.count(chunk.arrivals[known] - chunk.clock[known])
