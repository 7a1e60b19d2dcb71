"""What a bucket tells of its events: forecasts, and the side output, as columns in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Vector

from .events import Events

COLUMNS = ("key", "id", "time", "status", "score", "forecast", "outcome", "reason")
STATUSES = ("forecast", "learnt", "held", "repeated", "conflict", "expired", "unknown", "late", "bad")
FORECAST, LEARNT, HOLDS, REPEATED, CONFLICT, EXPIRED, UNKNOWN, LATE, BAD = range(len(STATUSES))


class Told:
    """Rows about events, each with its place among the others."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pieces: list[tuple[Ints, Ints, Ints, Ints, Vector, Vector, Vector]] = []

    def forecasts(self) -> None:
        """Each score that is new."""
        e = self._events
        of, nothing = e.asked, np.full(len(e.asked), np.nan)
        self._add(of, 2 * e.score_at[of], e.time[of], FORECAST, e.score[of], e.forecast[of], nothing)

    def outcomes(self, of: Ints, status: int) -> None:
        """Outcomes of the batch that are learnt or held."""
        e = self._events
        early = e.outcome_at[of] < e.score_at[of]
        time = np.where(early, np.maximum(e.time[of], e.known[of]), e.known[of])
        self._add(of, e.place(of), time, status, e.score[of], e.forecast[of], e.outcome[of])

    def again(self) -> None:
        """Scores and outcomes that came before."""
        e = self._events
        at, same = e.again()
        of, is_score = e.of[at], e.is_score[at]
        known = is_score | (e.score_at[of] < at)
        score = np.where(is_score, e.op_score[at], np.where(known, e.score[of], np.nan))
        forecast, outcome = np.where(known, e.forecast[of], np.nan), np.where(is_score, np.nan, e.op_outcome[at])
        self._add(of, 2 * at, e.op_time[at], np.where(same, REPEATED, CONFLICT), score, forecast, outcome)

    def aged(self, of: Ints, time: Ints, status: npt.NDArray[Any]) -> None:
        """Events that have come of age, in this order."""
        e, place = self._events, np.arange(len(of))
        self._add(of, place, time, status, e.score[of], e.forecast[of], e.outcome[of])

    def _add(self, of: Ints, place: Ints, time: Ints, status: Any, *values: Vector) -> None:
        if len(of):
            score, forecast, outcome = values
            codes = np.full(len(of), status) if isinstance(status, int) else status
            self._pieces.append((of, place, time, codes, score, forecast, outcome))

    def table(self) -> Any:
        """All rows, in order."""
        import pyarrow as pa

        if not self._pieces:
            return None
        columns = [np.concatenate(parts) for parts in zip(*self._pieces, strict=True)]
        order = np.argsort(columns[1], kind="stable")
        of, _, time, status, score, forecast, outcome = (column[order] for column in columns)
        names = self._events.names.select(["key", "id"]).take(pa.array(of))
        told = [names["key"], names["id"], time, statuses(status), score, forecast, outcome]
        return pa.table([*told, pa.nulls(len(of), pa.string())], names=list(COLUMNS))


def statuses(codes: npt.NDArray[Any]) -> Any:
    """Codes as the words they stand for."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), list(STATUSES)).cast(pa.string())
