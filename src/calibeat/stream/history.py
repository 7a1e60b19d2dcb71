"""The past that refits look at, kept by the host as three growing columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from calibeat._util.check import check_outcomes
from calibeat._util.types import Vector
from calibeat.core.fit import PLAIN_SECONDS
from calibeat.core.jit import for_cost
from calibeat.core.layout import N
from calibeat.core.method import Method
from calibeat.core.refit import FTL, Fixed
from calibeat.errors import InvalidInput

_SLACK = 1024  # with a window, the columns are moved to the front only when this much (or a window more) is stale
_NOTHING = np.empty(0), np.empty(0), np.empty(0), 0


class History:
    """Columns x0, x1 (three parameters only) and y of the outcomes learnt so far, oldest first.

    The kernels write the next event at position n - dropped, where n is the number of outcomes learnt. A method
    that never refits has columns of length zero.
    """

    def __init__(self, method: Method) -> None:
        learner = method.learner
        self._kept = learner if isinstance(learner, (Fixed, FTL)) else None
        self._method = method
        self._wide = method.dimension == 3
        # x0, x1, y, and how many events before the first are gone already: what the kernels take. One attribute, so
        # that an interrupt never finds columns of one time with the number of another.
        self.columns: tuple[Vector, Vector, Vector, int] = _NOTHING

    def reserve(self, learnt: int, more: int) -> None:
        """Make room for `more` outcomes after the first `learnt`."""
        if self._kept is None:
            return
        if isinstance(self._kept, Fixed):
            more = max(0, min(more, self._kept.after - learnt))
        x0, x1, y, dropped = self.columns
        filled = min(learnt - dropped, len(y))
        if filled + more > len(y):
            size = max(filled + more, 2 * len(y), 64)
            self.columns = _grown(x0, size), _grown(x1, size) if self._wide else x1, _grown(y, size), dropped

    def refit(self, row: Any, run: Callable[[Any], Any] | None = None) -> None:
        """Fit what is remembered and put the result in the row; `run` makes the kernel plain, if that is wanted."""
        if self._method.features is not None:
            x0, x1, y, dropped = self.columns
            kernel, filled = self._method.features.refit, int(row[N]) - dropped
            fit = for_cost(kernel, PLAIN_SECONDS * filled) if run is None else run(kernel)
            fit(self._method.spec, row, x0, x1, y, filled)

    def forget(self, learnt: int) -> None:
        """Let go of what no refit will look at again."""
        if isinstance(self._kept, Fixed):
            if learnt >= self._kept.after:
                self.columns = _NOTHING
        elif self._kept is not None and self._kept.window is not None:
            x0, x1, y, dropped = self.columns
            window, filled = self._kept.window, learnt - dropped
            stale = filled - window
            if stale > max(window, _SLACK):
                x0, x1, y = (column[stale:filled].copy() for column in (x0, x1, y))
                self.columns = x0, x1, y, dropped + stale

    def remembered(self, learnt: int) -> dict[str, list[float]]:
        """What a snapshot must hold: exactly the outcomes that a later refit can look at."""
        x0, x1, y, dropped = self.columns
        last = learnt - dropped
        first = last - self._remembered_count(learnt)
        columns = {"x0": x0, "x1": x1, "y": y} if self._wide else {"x0": x0, "y": y}
        return {name: column[first:last].tolist() for name, column in columns.items() if last > first}

    def restore(self, learnt: int, columns: dict[str, list[float]]) -> None:
        """The inverse of `remembered`."""
        count = self._remembered_count(learnt)
        names = {"x0", "x1", "y"} if self._wide else {"x0", "y"}
        if not isinstance(columns, dict) or set(columns) != (names if count else set()):
            raise InvalidInput(f"history must hold the columns {', '.join(sorted(names))}, got {columns!r:.60}")
        for name, column in columns.items():
            if not isinstance(column, list) or len(column) != count or not all(_is_finite(x) for x in column):
                raise InvalidInput(f"history must hold {count} numbers in {name}, got {column!r:.60}")
        if count:
            check_outcomes(columns["y"])
            x0, x1, y = (np.array(columns.get(name, [])) for name in ("x0", "x1", "y"))
            self.columns = x0, x1, y, learnt - count

    def _remembered_count(self, learnt: int) -> int:
        if self._kept is None or (isinstance(self._kept, Fixed) and learnt >= self._kept.after):
            return 0
        return learnt if self._kept.window is None else min(learnt, self._kept.window)


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _grown(column: Vector, size: int) -> Vector:
    grown = np.empty(size)
    grown[: len(column)] = column
    return grown
