"""`fold_on_rows`: the bits of `Bank.fold` on rows alone, whatever the method, with receipts of earlier calls."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW

from calibeat import Bank, InvalidInput
from calibeat.core.stats import LAST
from calibeat.hosts.rows import fold_on_rows, new_rows, receipt_type


# Where a method draws, the host of the rows does: see tests/spark/test_bucket.py.
@pytest.mark.parametrize("name", [name for name, method in IN_A_ROW.items() if not method.draws])
def test_the_bits_of_a_bank(name: str) -> None:
    method, rng = IN_A_ROW[name], np.random.default_rng(0)
    bank, rows = Bank(method), new_rows(method, 3)
    brought: Any = np.empty(0, dtype=np.void)
    waiting: list[int] = []  # the keys of receipts that were issued in the call before
    for call in range(4):
        asked = [int(k) for k in rng.integers(0, 3, 40)] if call else [0, 1, 2, 0, 1, 2]
        slots = np.array([*waiting, *asked], dtype=np.int32)
        scores = np.concatenate([np.full(len(waiting), nan), rng.random(len(asked))])
        outcomes = np.concatenate([rng.integers(0, 2, len(waiting)).astype(float), np.full(len(asked), nan)])
        wanted = bank.fold(slots.tolist(), scores, outcomes, brought if waiting else ())
        own = np.full(len(slots), -1)
        got = fold_on_rows(method, rows, slots, scores, outcomes, own, brought if waiting else (), np.empty(0))
        assert np.array_equal(got.forecasts, wanted.forecasts, equal_nan=True)
        brought, waiting = wanted.receipts, asked  # those of a bank are taken as well
    own_rows = bank.rows([0, 1, 2])
    own_rows[:, method.width + LAST] = 0.0
    assert np.array_equal(rows, own_rows)


@pytest.mark.parametrize("cell", [-1, 10**6])
def test_receipts_that_would_write_behind_a_row_are_refused(cell: int) -> None:
    method, rows = Bank("tops").method, new_rows(Bank("tops").method, 1)
    slots, none = np.zeros(1, dtype=np.int32), np.full(1, -1)
    made = fold_on_rows(method, rows, slots, np.array([0.4]), np.array([nan]), none, (), np.empty(0)).receipts
    damaged = made.copy().view(receipt_type(method))
    damaged["cell"] = cell
    with pytest.raises(InvalidInput, match="receipt must be as it was issued, got a damaged one"):
        fold_on_rows(method, rows, slots, np.array([nan]), np.array([1.0]), none, damaged, np.empty(0))
    with pytest.raises(InvalidInput, match="receipt must be"):
        fold_on_rows(method, rows, slots, np.array([nan]), np.array([1.0]), none, [b"short"], np.empty(0))
