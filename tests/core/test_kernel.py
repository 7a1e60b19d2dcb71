"""The kernels of single events: what they refuse, they leave as it was."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat import OPS
from calibeat.core import kernel


@pytest.mark.parametrize("spoilt", ["marked already", "marks not in use", "shut", "not the latest", "outcome between"])
def test_an_outcome_that_cannot_be_settled_at_once_changes_nothing(spoilt: str) -> None:
    spec, row, asked, none = OPS.spec, OPS.initial_row(), np.zeros(kernel.ASKED), np.empty(0)
    *_, event = kernel.predict_one(spec, row, 0.7, asked, none)
    marks = np.zeros(4, dtype=np.uint8)
    if spoilt == "marked already":
        marks[event] = 2
    elif spoilt == "marks not in use":
        marks[-1] = 1
    elif spoilt == "shut":
        asked[kernel.SHUT] = 1.0
    elif spoilt == "outcome between":
        row[1] += 1.0
    before = row.copy(), marks.copy()
    late = event + (spoilt == "not the latest")
    assert not kernel.settle_one(spec, row, late, 1.0, asked, none, marks, 0)
    assert (row == before[0]).all() and (marks == before[1]).all()


def test_the_outcome_of_the_latest_event_is_settled() -> None:
    spec, row, asked, none = OPS.spec, OPS.initial_row(), np.zeros(kernel.ASKED), np.empty(0)
    *_, event = kernel.predict_one(spec, row, 0.7, asked, none)
    marks = np.zeros(4, dtype=np.uint8)
    assert kernel.settle_one(spec, row, event, 1.0, asked, none, marks, 0)
    assert marks.tolist() == [3, 0, 0, 0] and row[1] == 1.0
