"""Kernels run plain and compiled, with the same bits, whatever was imported or called before."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import JIT_OFF

from calibeat import AUTO
from calibeat.core import jit, kernel


def test_an_entry_point_gives_the_bits_of_the_kernel() -> None:
    spec, row = AUTO.spec, AUTO.initial_row()
    receipts = np.zeros(AUTO.receipt_width), np.zeros(AUTO.receipt_width)
    predict = jit.entry_point(kernel.predict, spec, row, 0.5, 0.0, receipts[0], 0)
    assert predict(spec, row, 0.25, 0.0, receipts[0], 0) == kernel.predict(spec, row, 0.25, 0.0, receipts[1], 0)
    assert receipts[0].tobytes() == receipts[1].tobytes()
    assert JIT_OFF or jit.is_compiled(kernel.predict)


@pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")
def test_an_entry_point_is_not_the_dispatcher() -> None:
    arguments = AUTO.spec, AUTO.initial_row(), 0.5, 0.0, np.zeros(AUTO.receipt_width), 0
    point = jit.entry_point(kernel.predict, *arguments)
    assert point is not jit.compiled(kernel.predict)
    assert point is jit.entry_point(kernel.predict, *arguments)
