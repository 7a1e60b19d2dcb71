"""The events that one micro-batch of a bucket touches, as columns: what was known of them, and what becomes of them.

An event has one score and one outcome: the first of each that comes. All others are repeats or contradictions. So what
happens to it follows from where its first score and its first outcome stand, and no row is looked at by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Flags, Ints, Vector

from .columns import bytes_of, matrix_of, numbered, one_array

OPEN, SETTLED, EARLY, HELD = 0, 1, 2, 3  # waits for its outcome; has it; has no score yet; waits to be mature
NEW = -1
NAMES = ("hash", "key", "key_hash", "id")


def in_order(batch: Any) -> Any:
    """Operations by time; at one time outcomes before scores; equals by id, then by value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    time, score = batch["time"].to_numpy(), batch["score"].to_numpy()
    is_score = ~np.isnan(score)
    order = np.lexsort((is_score, time))
    same = (np.diff(time[order]) == 0) & (np.diff(is_score[order].view(np.int8)) == 0)
    if same.any():
        rank = np.asarray(pc.rank(one_array(batch["id"]), tiebreaker="dense"))
        value = np.where(is_score, score, batch["outcome"].to_numpy())
        order = np.lexsort((value, rank, is_score, time))
    return batch.take(pa.array(order))


class Events:
    """Columns with a value for each event. `score_at` and `outcome_at` are positions in the micro-batch.

    A position is -1 for what was known before, and the length of the batch for what has not come.
    """

    def __init__(self, found: Any, batch: Any, size: int) -> None:
        """Stored events and the operations of a batch, in order; `size` is that of a receipt."""
        import pyarrow as pa

        m, n = len(found), len(batch)
        named = [batch[name] for name in ("event_hash", "key", "key_hash", "id")]
        both = pa.concat_tables([found.select(NAMES), pa.table(named, names=NAMES)]).combine_chunks()
        first, codes = numbered(both["hash"].to_numpy(), [both["key"], both["id"]])
        self.names = both.take(pa.array(first)).combine_chunks()
        self.stored, self.of = codes[:m], codes[m:]  # the event of each stored row, and of each operation
        count = len(first)
        self.state = self._spread(found["state"].to_numpy(), count, NEW)
        self.time = self._spread(found["time"].to_numpy(), count, 0)  # of the score; while there is none, the outcome's
        self.score, self.forecast, self.outcome = (
            self._spread(found[name].to_numpy(), count, np.nan) for name in ("score", "forecast", "outcome")
        )
        self.known = self.time.copy()  # the time of the outcome
        if "known" in found.column_names:
            known = found["known"].fill_null(0).to_numpy()
            self.known = np.where(self.state == HELD, self._spread(known, count, 0), self.known)
        self.receipts, row = matrix_of(found["receipt"], size, "a receipt of the state")
        self.receipt = self._spread(row, count, -1)  # its row in `receipts`
        self._take(batch, n)

    def _spread(self, values: npt.NDArray[Any], count: int, missing: float) -> npt.NDArray[Any]:
        spread = np.full(count, missing, dtype=values.dtype)
        spread[self.stored] = values
        return spread

    def _take(self, batch: Any, n: int) -> None:
        """The first score and the first outcome of each event."""
        self.op_time, self.op_score = batch["time"].to_numpy(), batch["score"].to_numpy()
        self.op_outcome = batch["outcome"].to_numpy()
        self.is_score: Flags = ~np.isnan(self.op_score)
        had_score = (self.state == OPEN) | (self.state == SETTLED) | (self.state == HELD)
        had_outcome = (self.state == SETTLED) | (self.state == EARLY) | (self.state == HELD)
        self.score_at = np.where(had_score, -1, self._first(self.is_score))
        self.outcome_at = np.where(had_outcome, -1, self._first(~self.is_score))
        self.asked = np.flatnonzero((self.score_at >= 0) & (self.score_at < n))
        came = np.flatnonzero((self.outcome_at >= 0) & (self.outcome_at < n))
        self.outcome[came] = self.op_outcome[self.outcome_at[came]]
        self.known[came] = self.op_time[self.outcome_at[came]]
        only = (self.state == NEW) & (self.score_at == n)
        self.time[only] = self.known[only]
        self.score[self.asked] = self.op_score[self.score_at[self.asked]]
        self.time[self.asked] = self.op_time[self.score_at[self.asked]]
        both = (self.score_at < n) & (self.outcome_at < n)
        # Those that have all they need now, and had not before.
        self.complete = np.flatnonzero(both & (self.state != SETTLED) & (self.state != HELD))
        self.state = np.where(both, self.state, np.where(self.score_at < n, OPEN, EARLY)).astype(np.int8)

    def _first(self, mask: Flags) -> Ints:
        """The position of the first such operation of each event."""
        found, at = np.full(len(self.state), len(mask)), np.flatnonzero(mask)[::-1]
        found[self.of[at]] = at  # the last that is written is the first in order
        return found

    def place(self, events: Ints) -> Ints:
        """Where these become complete: in the middle between two operations if the outcome came before the score."""
        score, outcome = self.score_at[events], self.outcome_at[events]
        return 2 * np.maximum(score, outcome) + (outcome < score)

    def again(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Positions of operations that are not the first of their event, and whether they bring the same value."""
        at = np.arange(len(self.of))
        others = np.flatnonzero(np.where(self.is_score, self.score_at[self.of], self.outcome_at[self.of]) != at)
        of, is_score = self.of[others], self.is_score[others]
        value = np.where(is_score, self.op_score[others], self.op_outcome[others])
        return others, value == np.where(is_score, self.score[of], self.outcome[of])

    def table(self, schema: Any) -> Any:
        """All of them, as they are stored."""
        import pyarrow as pa

        waits = (self.state == OPEN) | (self.state == HELD)
        columns = {name: self.names[name] for name in NAMES}
        columns |= {"state": self.state, "time": self.time}
        columns |= {"score": self.score, "forecast": self.forecast, "outcome": self.outcome}
        columns["receipt"] = bytes_of(self.receipts[self.receipt[waits]], waits)
        if "known" in schema.names:
            columns["known"] = pa.array(self.known, mask=self.state != HELD)
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def keep_receipts(self, made: npt.NDArray[np.void], forecasts: Vector) -> None:
        """The forecasts that were asked for, in the order of `asked`."""
        fresh = made.view(np.uint8).reshape(len(made), self.receipts.shape[1])
        self.receipt[self.asked] = len(self.receipts) + np.arange(len(made))
        self.receipts = np.concatenate([self.receipts, fresh])
        self.forecast[self.asked] = forecasts
