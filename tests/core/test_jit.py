"""Kernels run plain and compiled, with the same bits, whatever was imported or called before."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import JIT_OFF
from fresh import fresh

from calibeat import AUTO
from calibeat.core import cache, jit, kernel, loops

compiling = pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")

# Each first use of the library that compiles; each prints the bits that it gave.
FIRST_USES = {
    "run": "Calibrator().run(s, y)",
    "predict_many": "Calibrator('tops').predict_many(s)",
    "bank": "Bank('ops', prior='pooled').run(keys, s, y)",
    "backtest": "list(backtest(s, y, keys=keys).table['log_loss'])",
    "metrics": "metrics.best_parameters('ops', s, y)",
    "warm_up": "warm_up()",
}
PROGRAM = """
import sys
import numpy as np
from calibeat import Bank, Calibrator, backtest, metrics, warm_up
from calibeat.core import jit
jit._PATIENCE = 0.0
rng = np.random.default_rng(0)
s = rng.random(300)
y = (rng.random(300) < 0.3 + 0.4 * s) * 1.0
keys = rng.integers(0, 5, 300)
"""

TOY = """
import sys
import numpy as np
import toy_kernels as toy
from calibeat.core import jit
def use(kernel):
    assert jit.compiled(kernel)(np.arange(4.0)) == kernel(np.arange(4.0))
"""


def first_uses(*names: str) -> str:
    """A program that makes these uses in this order, and prints the bits of each."""
    uses = "\n".join(
        f"print({name!r}, np.asarray({FIRST_USES[name]}, dtype=object).astype(str).tolist())" for name in names
    )
    return PROGRAM + uses


@compiling
def test_a_run_and_then_a_backtest_with_nothing_cached(tmp_path: Path) -> None:
    """The order of the README: it was an error of Numba's, in every process until a backtest came first."""
    bits = fresh(first_uses("run", "backtest"), NUMBA_CACHE_DIR=str(tmp_path))
    assert bits == fresh(first_uses("run", "backtest"), NUMBA_DISABLE_JIT="1")


@compiling
@pytest.mark.slow
@pytest.mark.parametrize("shift", range(6) if os.environ.get("CALIBEAT_EVERY_ORDER") else (0, 3))
def test_every_order_of_first_use_with_nothing_cached(shift: int, tmp_path: Path) -> None:
    """A Williams design: in the six orders each use comes first once, and each directly after each other one once.

    Each order compiles everything anew, so the suite takes two of them; CALIBEAT_EVERY_ORDER=1 takes all.
    """
    names = list(FIRST_USES)
    order = [names[(shift + place) % 6] for place in (0, 1, 5, 2, 4, 3)]
    lines = fresh(first_uses(*order), NUMBA_CACHE_DIR=str(tmp_path)).splitlines()
    plain = fresh(first_uses(*order), NUMBA_DISABLE_JIT="1").splitlines()
    assert lines == plain
    assert len(list(tmp_path.iterdir())) == 1  # one folder, whatever was imported when it was made


@compiling
def test_what_one_process_compiled_the_next_one_loads_whatever_it_imports_first(tmp_path: Path) -> None:
    program = f"{TOY}\nuse(toy.sum_of_squares)"
    fresh(program, NUMBA_CACHE_DIR=str(tmp_path))
    program = f"import reproduction.replay\n{program}\nprint(jit.dispatchers()['sum_of_squares'].stats.cache_misses)"
    assert fresh(program, NUMBA_CACHE_DIR=str(tmp_path)) == "Counter()\n"


@compiling
def test_linked_kernels_are_shared_by_what_is_compiled_later(tmp_path: Path) -> None:
    """In the same process and in another one; and they need nothing of the process that made them."""
    program = f"""{TOY}
use(toy.sum_of_squares)
linked = jit._linker._linked[toy.square]
before = list(linked.overloads.values())
use(toy.largest_square)
assert list(linked.overloads.values()) == before and len(before) == 1
text = str(before[0].library._final_module)
assert not [line for line in text.splitlines() if "load" in line and "NumbaEnv" in line]
"""
    fresh(program, NUMBA_CACHE_DIR=str(tmp_path))
    (folder,) = tmp_path.iterdir()
    names = sorted(path.name.split("-")[1] for path in folder.iterdir())
    assert names == ["largest_square", "square", "sum_of_squares"]
    for path in folder.glob("entry-*"):
        path.unlink()
    stamp = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    fresh(program, NUMBA_CACHE_DIR=str(tmp_path))
    assert all(path.stat().st_mtime_ns == time for path, time in stamp.items())  # read, not made again
    assert len(list(folder.iterdir())) == 3


@compiling
def test_numbas_own_settings_are_left_alone(tmp_path: Path) -> None:
    program = f"""{TOY}
import numba
before = dict(vars(numba.config))
seen = []
class Config(type(numba.config)):
    def __setattr__(self, name, value):
        seen.append(name)
numba.config.__class__ = Config
use(toy.sum_of_squares)
print(seen, before == dict(vars(numba.config)))
"""
    assert fresh(program, NUMBA_CACHE_DIR=str(tmp_path)) == "[] True\n"


def test_an_entry_point_gives_the_bits_of_the_kernel() -> None:
    spec, row = AUTO.spec, AUTO.initial_row()
    receipts = np.zeros(AUTO.receipt_width), np.zeros(AUTO.receipt_width)
    predict = jit.entry_point(kernel.predict, spec, row, 0.5, 0.0, receipts[0], 0)
    assert predict(spec, row, 0.25, 0.0, receipts[0], 0) == kernel.predict(spec, row, 0.25, 0.0, receipts[1], 0)
    assert receipts[0].tobytes() == receipts[1].tobytes()
    assert JIT_OFF or jit.is_compiled(kernel.predict)


@compiling
def test_an_entry_point_is_not_the_dispatcher() -> None:
    arguments = AUTO.spec, AUTO.initial_row(), 0.5, 0.0, np.zeros(AUTO.receipt_width), 0
    point = jit.entry_point(kernel.predict, *arguments)
    assert point is not jit.compiled(kernel.predict)
    assert point is jit.entry_point(kernel.predict, *arguments)


# ---- plain or compiled -------------------------------------------------------------------------------------------


@compiling
def test_small_batches_run_plain_until_compiling_pays(tmp_path: Path) -> None:
    program = f"""{TOY}
f = toy.sum_of_squares
enough = jit._PATIENCE * jit._SECONDS_PER_BYTE * jit._linker.missing(f)
assert 0.0 < enough < 0.1
for _ in range(9):
    assert jit.for_cost(f, 0.1 * enough).__name__ == "run" and not jit.is_compiled(f)
assert "numba" not in sys.modules
with jit.compiling_at_once():
    assert hasattr(jit.for_cost(toy.square, 0.0), "signatures")
assert not hasattr(jit.for_cost(f, 0.0), "signatures")
twin = jit.for_cost(f, 0.2 * enough)     # now plain Python has taken too long
assert jit.is_compiled(f) and twin is jit.compiled(f) is jit.for_cost(f, 0.0)
assert jit.for_size(toy.largest_square, 64).__name__ == "run" and not jit.is_compiled(toy.largest_square)
assert jit.for_size(toy.largest_square, 10**9) is jit.compiled(toy.largest_square)
"""
    fresh(program, NUMBA_CACHE_DIR=str(tmp_path))


@compiling
def test_what_lies_in_the_cache_is_loaded_for_any_batch(tmp_path: Path) -> None:
    fresh(f"{TOY}\nuse(toy.sum_of_squares)", NUMBA_CACHE_DIR=str(tmp_path))
    program = f"""{TOY}
print(jit.is_cached(toy.sum_of_squares), jit.is_cached(toy.sum_of_squares, toy.largest_square), "numba" in sys.modules)
print(hasattr(jit.for_cost(toy.sum_of_squares, 1e-6), "signatures"))
"""
    assert fresh(program, NUMBA_CACHE_DIR=str(tmp_path)) == "True False False\nTrue\n"
    off = fresh(program, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="1")
    assert off == "False False False\nFalse\n"
    # What another Python or Numba has made is not believed.
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "kernels-0123456789abcdef")
    assert fresh(program, NUMBA_CACHE_DIR=str(tmp_path)) == "False False False\nFalse\n"


def test_the_account_of_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whatever is compiled in it: what counts is the share of the time of a compilation."""
    cached = [False]
    monkeypatch.setattr(jit, "_disabled", lambda: False)
    monkeypatch.setattr(jit, "is_cached", lambda _: cached[0])
    monkeypatch.setattr(jit, "is_compiled", lambda _: False)
    monkeypatch.setattr(jit, "compiled", lambda _: "compiled")
    monkeypatch.setattr(jit, "_left", {})
    monkeypatch.setattr(jit, "_PATIENCE", 0.1)
    monkeypatch.setattr(jit, "_SECONDS_PER_BYTE", 1.0)
    monkeypatch.setattr(jit._linker, "missing", lambda _: 100)  # it takes 100 seconds
    assert jit.for_cost(kernel.ask_again, 9.0) != "compiled"
    assert jit.for_cost(kernel.update, 9.0) != "compiled"  # each kernel has an account of its own
    with jit.compiling_at_once():
        assert jit.for_cost(kernel.update, 0.0) == "compiled"
    assert jit.for_cost(kernel.ask_again, 2.0) == "compiled"
    cached[0] = True
    assert jit.for_cost(kernel.settle, 0.0) == "compiled"
    assert jit.for_size(kernel.settle, 65) == "compiled" != jit.for_size(kernel.settle, 64)
    monkeypatch.setattr(jit, "_disabled", lambda: True)
    assert not jit.can_load(kernel.settle)


def test_with_the_jit_off_the_plain_body_runs() -> None:
    program = """
from calibeat.core import jit, loops
assert jit.for_cost(loops.run, 1e9).__name__ == "run" and jit.dispatchers() == {}
assert not jit.is_cached(loops.run) and not jit.is_compiled(loops.run) and not jit.can_load(loops.run, 1.0)
"""
    fresh(program, NUMBA_DISABLE_JIT="1")


# ---- saying that it compiles -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_it_says_once_that_it_compiles(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "_chosen_by_user", lambda: str(tmp_path))
    monkeypatch.setattr(jit, "_announced", set())
    monkeypatch.setattr(jit._linker, "_linked", {})
    stream = Terminal(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    jit.announce(loops.run, kernel.predict)
    jit.announce(loops.run)
    jit.announce(kernel.wants_refit)  # takes no second
    expected = "\rcalibeat compiles its kernels, once for this machine and environment: about "
    said = stream.getvalue()
    if not terminal:
        assert said == ""
        return
    assert said.startswith(expected) and said.endswith(" seconds\n") and said.count("\n") == 1
    assert 2 <= int(said.removeprefix(expected).split()[0]) <= 20
    monkeypatch.setattr(cache, "writable", lambda: None)
    jit.announce(loops.run_late)
    assert "in each process (no folder for them): about" in stream.getvalue()
    monkeypatch.setattr(sys, "stderr", None)  # a program without a console
    jit.announce(kernel.update)


@compiling
def test_it_is_announced_before_it_begins(tmp_path: Path) -> None:
    program = f"""{TOY}
import io
import os
class Terminal(io.StringIO):
    def isatty(self): return TERMINAL
    def write(self, text): print(repr(text), jit.dispatchers()["sum_of_squares"].signatures)
jit._WORTH_SAYING = 0.0
sys.stderr = Terminal()
use(toy.sum_of_squares)
use(toy.sum_of_squares)
"""
    pipe, terminal = (f"TERMINAL = {terminal}\n{program}" for terminal in (False, True))
    assert fresh(pipe, NUMBA_CACHE_DIR=str(tmp_path / "pipe")) == ""
    said = fresh(terminal, NUMBA_CACHE_DIR=str(tmp_path / "terminal"))
    assert "calibeat compiles its kernels, once" in said and said.endswith("[]\n") and said.count("\n") == 1
    assert fresh(terminal, NUMBA_CACHE_DIR=str(tmp_path / "terminal")) == ""  # it is in the cache now
