"""Kernels loaded at a time of the user's choice, in a process of its own: what is warm stays warm."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

JIT_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")
def test_many_classes_can_be_warmed_up() -> None:
    program = """
import calibeat
from calibeat.core import jit
calibeat.warm_up()
assert "run_rows" not in jit.dispatchers() and "ready" not in jit.dispatchers()
calibeat.warm_up(multi=True)
from calibeat.core import vector
assert jit.is_compiled(vector.predict, vector.settle, vector.update, vector.run, vector.run_late, vector.predict_many)
assert not jit.is_compiled(vector.run_rows)
assert not calibeat.MultiCalibrator(7, "ots")._stream._plain
calibeat.warm_up(bank=True, multi=True)
assert jit.is_compiled(vector.run_rows, vector.run_rows_late)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_it_runs_without_the_jit_too() -> None:
    import calibeat

    calibeat.warm_up(bank=True, multi=True)
    assert calibeat.MultiCalibrator(3).predict([0.2, 0.3, 0.5]).label == 2
