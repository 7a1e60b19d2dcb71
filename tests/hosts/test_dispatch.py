"""Which way a batch or a single event runs: plain or compiled, with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import JIT_OFF
from fresh import fresh

from calibeat import AUTO, HOPS, OPS, WPS, Calibrator
from calibeat.core import jit, loops
from calibeat.hosts import dispatch

compiling = pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")


def test_importing_and_single_events_do_not_touch_numba() -> None:
    program = """
import sys, calibeat
c = calibeat.Calibrator("hops")
for i in range(50):
    c.update(c.predict(i / 50), i % 2)
c.from_json(c.to_json())
calibeat.metrics.calibration_error([0, 1], [0.1, 0.9])
w = calibeat.Calibrator(calibeat.Method(calibeat.Platt(), calibeat.FTL(every=5000, after=5000)))
for i in range(5000):
    w.update(w.predict(i / 5000), i % 3 == 0)
assert "numba" not in sys.modules
"""
    fresh(program)


@compiling
def test_small_batches_with_nothing_cached_do_not_touch_numba(tmp_path: Path) -> None:
    """They would wait seconds for a compilation, and take milliseconds without it."""
    program = """
import sys
import numpy as np
from calibeat import Calibrator
s = np.linspace(0.01, 0.99, 1000)
y = np.arange(1000) % 3 == 0
for name in ("ops", "hops", "auto"):
    cal = Calibrator(name)
    late = cal.run(s, y, due=np.arange(1000) + 5)
    print(cal.run(s, y).sum().hex(), late.sum().hex(), cal.predict_many(s).sum().hex())
print("numba" in sys.modules)
"""
    plain = fresh(program, NUMBA_CACHE_DIR=str(tmp_path))
    assert plain.endswith("False\n")
    assert plain == fresh(program, NUMBA_DISABLE_JIT="1")


def test_what_plain_python_costs() -> None:
    assert dispatch.plain_seconds(OPS) < dispatch.plain_seconds(HOPS) < dispatch.plain_seconds(AUTO)


def test_a_large_batch_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(jit, "for_cost", lambda loop, seconds: asked.append((loop, seconds)) or "twin")
    assert dispatch.for_batch(loops.run, OPS, 1_000_000) == "twin"
    assert asked == [(loops.run, 1_000_000 * dispatch.plain_seconds(OPS))]
    assert asked[0][1] > 1.0  # more than anybody waits for


@compiling
def test_without_a_folder_to_write_in_it_compiles_and_runs() -> None:
    program = """
import pathlib
def read_only(*arguments, **options):
    raise PermissionError
pathlib.Path.mkdir = read_only
import numpy as np, toy_kernels
from calibeat.core import jit, cache
cache._BESIDE = pathlib.Path("nowhere")
print(jit.compiled(toy_kernels.sum_of_squares)(np.ones(3)))
assert jit.dispatchers()["sum_of_squares"].stats.cache_path is None
"""
    assert fresh(program, unset=("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")) == "3.0\n"


def test_without_numba_everything_still_works() -> None:
    program = """
import sys
sys.modules["numba"] = None
import calibeat
from calibeat.core import jit
jit._PATIENCE = 0.0
c = calibeat.Calibrator("swps")
p = c.run([0.2, 0.7, 0.9], [0, 1, 1])
assert p.tolist() == [0.2, 0.7, 0.9] and c.outcomes == 3
calibeat.warm_up()
assert jit.dispatchers() == {}
"""
    fresh(program)


@pytest.mark.skipif(not JIT_OFF, reason="about plain kernels")
def test_with_the_jit_off_nothing_is_compiled() -> None:
    Calibrator(WPS).run([0.5], [1])
    assert jit.dispatchers() == {}


@compiling
def test_single_events_are_compiled_after_some_thousand_without_a_call_of_warm_up() -> None:
    """Where the kernels lie in the cache. Never before: a process that serves a few would only wait for Numba."""
    fresh("import calibeat; calibeat.warm_up()")
    program = """
import sys
from calibeat import Calibrator
from calibeat.hosts import dispatch
def compiled_after(cal, most):
    for event in range(most):
        cal.update(cal.predict(event % 100 / 100), event % 3 == 0)
        if dispatch.single_is_compiled() and not cal._is_plain:
            return event
cal, twin = Calibrator(), Calibrator()
assert compiled_after(cal, 8 * 1024 - 2) is None and "numba" not in sys.modules
assert compiled_after(cal, 2) == 1
for event in range(100):
    cal.update(cal.predict(0.3), 1)
s = [event % 100 / 100 for event in range(8 * 1024 - 2)] + [0.0, 0.01] + [0.3] * 100
y = [event % 3 == 0 for event in range(8 * 1024 - 2)] + [True, False] + [True] * 100
twin.run(s, y)
assert cal.row.tobytes() == twin.row.tobytes()
assert compiled_after(Calibrator(), 1) == 0
"""
    fresh(program)


def test_looking_costs_nothing_where_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_looked", [False])
    monkeypatch.setattr(dispatch, "_plain_events", [0])
    monkeypatch.setattr(dispatch, "is_cached", lambda *_: False)
    monkeypatch.setattr(dispatch, "single_is_compiled", lambda: False)
    monkeypatch.setattr(dispatch, "_WORTH_LOADING", 2 * dispatch.LOOK_EVERY)
    monkeypatch.delitem(dispatch.sys.modules, "numba", raising=False)
    cal = Calibrator(OPS)
    for event in range(2 * dispatch.LOOK_EVERY):
        assert dispatch._looked == [False]
        cal.predict(event % 2)
    assert dispatch._looked == [True] and dispatch._plain_events == [2 * dispatch.LOOK_EVERY]
    assert cal._is_plain
