"""`fold` on rows alone, for hosts that keep keys and receipts themselves: no index, no records, nothing by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.method import Method
from calibeat.core.stats import LAST, STATS

from .fold import Fold, Operations, check_receipts, read_receipts


def new_rows(method: Method, count: int) -> npt.NDArray[np.float64]:
    """Rows of streams that have seen nothing: state, and stats behind it."""
    rows = np.zeros((count, method.width + STATS))
    rows[:, : method.width] = method.initial_row()
    return rows


def fold_on_rows(
    method: Method,
    rows: npt.NDArray[np.float64],
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    own: Ints,
    receipts: Any,
    draws: Vector,
) -> Fold:
    """What `Bank.fold` does, on a matrix of rows, in place; the caller has looked at the values.

    `slots` is the row of each operation. `own` is where in this call the forecast of an outcome is; -1: it comes with a
    receipt. `draws` are those of the forecasts in order, if the method draws. Receipts name no issuer: the host knows
    whose they are. Rows are left without the moment of their last event, as rows that travel are.
    """
    operations = Operations(method, slots, scores, outcomes, own)
    brought = operations.brought
    given = read_receipts(method, receipts, len(brought))
    check_receipts(method, rows[slots[brought]], given, brought, np.ones(len(brought), dtype=np.bool_))
    operations.bring(given)
    operations.run(rows.reshape(-1), 0, draws, None, np.empty(0), 0)
    made = operations.made()
    rows[:, method.width + LAST] = 0.0
    operations.forecasts[~operations.asked] = np.nan
    return Fold(operations.forecasts, made.view(f"V{made.itemsize}"))
