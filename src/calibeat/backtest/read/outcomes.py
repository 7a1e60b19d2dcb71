"""Outcomes as 0 and 1: which value counts as 1, and whether a log says -1 where others say 0."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from calibeat._util.times import MISSING
from calibeat._util.types import Vector
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .batch import Batch

_MOST_SHOWN = 10  # values of the column, where the positive one is not among them


@dataclass(eq=False)
class Outcomes:
    """What is known of the outcomes of a log so far."""

    options: Options
    unknown: int = 0  # events without an outcome
    _positive_seen: bool = False
    _values: list[str] = field(default_factory=list)  # where the positive one was not seen yet
    _signs: set[float] = field(default_factory=set)  # which of 0 and -1 were seen

    def read(self, batch: Batch) -> Vector:
        """The outcomes of a batch, with 0 for -1 where the log has -1 and 1."""
        values = batch.outcomes.values
        if self.options.positive is not None:
            self._look_for_positive(batch)
            return values
        rows = {sign: values == sign for sign in (0.0, -1.0)}
        before, self._signs = self._signs, self._signs | {sign for sign, found in rows.items() if found.any()}
        if -1.0 not in self._signs:
            return values
        if 0.0 in self._signs:
            row = max(int(found.argmax()) for sign, found in rows.items() if sign not in before)
            how = self.options.how("--positive VALUE", "positive=VALUE")
            raise InvalidInput(
                f"outcomes must be 0 and 1 or -1 and 1, got 0 and -1 - at {batch.where(row)}; {how} to name the value "
                "that counts as 1"
            )
        return np.where(values == -1.0, 0.0, values)

    def _look_for_positive(self, batch: Batch) -> None:
        self._positive_seen = self._positive_seen or bool((batch.outcomes.values == 1.0).any())
        if not self._positive_seen and len(self._values) < _MOST_SHOWN:
            rows = np.flatnonzero(batch.outcomes.states != MISSING)[:1000].tolist()
            shown = (batch.show("outcome", row) for row in rows)
            self._values = list(dict.fromkeys([*self._values, *shown]))[:_MOST_SHOWN]

    def check_positive(self) -> None:
        """Once the log has ended: the value that counts as 1 must have been there."""
        if self.options.positive is not None and not self._positive_seen:
            raise InvalidInput(
                f"positive must be a value of the outcome column, got {self.options.positive!r:.60}, which is not "
                f"there; there are {', '.join(self._values) or 'none'}"
            )

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the outcomes."""
        if not self.unknown:
            return self.how_read
        events = "One event has" if self.unknown == 1 else f"{self.unknown:,} events have"
        return [f"{events} no outcome. Such events were forecast and not judged.", *self.how_read]

    @property
    def how_read(self) -> list[str]:
        """How the values of the column were read."""
        notes = []
        if -1.0 in self._signs:
            notes.append("Outcomes are -1 and 1. -1 was read as 0.")
        if self.options.positive is not None:
            notes.append(f"An outcome of {self.options.positive!r:.60} counts as 1, every other value as 0.")
        return notes
