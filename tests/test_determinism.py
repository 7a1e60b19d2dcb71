"""The bits do not depend on which of its variants of `exp`, `log` and the like the C library takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F"  # what glibc chooses by
CPU = Path("/proc/cpuinfo")

# What the library computes, of each sort, as one digest a line; then that of the C library's own functions.
PROGRAM = """
import hashlib
import math
import numpy as np
from conformance import delays
from streams import STREAMS, guarded, mixtures, variants
from calibeat import AUTO, Bank, Calibrator, Monitor, MultiBank, MultiCalibrator, Shift

def show(name, *found):
    whole = hashlib.sha256()
    for one in found:
        whole.update(one.encode() if isinstance(one, str) else np.ascontiguousarray(one).tobytes())
    print(name, whole.hexdigest())

for method_name, method in (variants() | guarded() | mixtures()).items():
    for stream_name in ("drifting", "extreme"):
        scores, outcomes = STREAMS[stream_name]()
        once, late = Calibrator(method, seed=1), Calibrator(method, seed=1)
        forecasts = once.run(scores, outcomes), late.run(scores, outcomes, due=delays(len(scores)))
        show(f"{method_name}, {stream_name}", *forecasts, once.row, late.row)
scores, outcomes = STREAMS["drifting"](3000)
grouped = Calibrator(AUTO, groups=["place", "hour"])
groups = {"place": np.arange(3000) % 7, "hour": np.arange(3000) % 24}
show("groups", grouped.run(scores, outcomes, groups=groups, due=delays(3000)), grouped.row)
bank = Bank(AUTO, prior="pooled")
show("bank", bank.run(np.arange(3000) % 11, scores, outcomes))
rng = np.random.default_rng(0)
for K in (2, 3, 10, 70):
    matrix, labels = rng.dirichlet(np.ones(K), 600), rng.integers(0, K, 600)
    many = MultiCalibrator(K)
    show(f"{K} classes", many.run(matrix, labels, due=delays(600)), many.row)
monitor, shift = Monitor(), Shift()
monitor.run(scores, outcomes, np.clip(scores * 0.9, 0.0, 1.0))
shift.run(np.sqrt(scores))
show("monitor", monitor.to_json(), repr(monitor.evidence), shift.to_json())
numbers = rng.normal(0.0, 10.0, 20_000).tolist()
show("C library", *(repr([f(abs(x)) for x in numbers]) for f in (math.exp, math.log, math.tanh, math.sin)))
"""


def digests(**environment: str) -> dict[str, str]:
    """What the program prints in a fresh process."""
    tests = str(Path(__file__).parent)
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, check=True, capture_output=True, text=True
    )
    lines = (line.rpartition(" ") for line in found.stdout.splitlines())
    return {name: digest for name, _, digest in lines}


def test_variants_of_the_c_library() -> None:
    """glibc has several of each function, and takes one by the processor. With FMA and AVX2 hidden, it takes others."""
    if not CPU.exists() or " fma " not in CPU.read_text():
        pytest.skip("needs Linux on a processor with FMA")
    ours, theirs = digests(), digests(GLIBC_TUNABLES=HIDDEN)
    assert ours.pop("C library") != theirs.pop("C library")  # or nothing was hidden
    assert len(ours) > 80
    assert ours == theirs
