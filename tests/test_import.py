"""`import calibeat` loads what `Calibrator` needs. Everything else loads when it is used."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from fresh import fresh

import calibeat

LOADED = "import sys, calibeat; print(*(name[9:] for name in sys.modules if name.startswith('calibeat.')))"
BEYOND = """
import sys, numpy
before = set(sys.modules)
import calibeat
print(*(name for name in set(sys.modules) - before if not name.startswith("calibeat")))
"""


def test_importing_loads_no_bank_no_classes_no_rivals_and_no_report() -> None:
    loaded = set(fresh(LOADED).split())
    assert {"hosts.calibrator", "core", "_compiled"} <= loaded and len(loaded) <= 57
    assert not loaded & {"hosts.bank", "hosts.multi", "rivals", "report", "metrics", "bounds"}
    assert not loaded & {"service", "spark", "cli", "client", "plot", "sklearn", "river", "examples"}
    assert {name for name in loaded if name.startswith("backtest")} <= {"backtest", "backtest.result"}


def test_importing_needs_numpy_and_little_else() -> None:
    """No compiler, nothing that one system has and another has not, no processes, no network."""
    loaded = set(fresh(BEYOND).split())
    assert len(loaded) <= 60
    assert not loaded & {"Cython", "setuptools", "ctypes"}
    assert not loaded & {"fcntl", "resource", "grp", "pwd", "termios", "msvcrt", "winreg"}
    assert not loaded & {"multiprocessing", "subprocess", "socket", "ssl", "asyncio", "http", "sqlite3", "email"}


ON_WINDOWS = """
import os, sys, tempfile
for name in ("fcntl", "resource", "grp", "pwd", "termios"):
    sys.modules[name] = None          # as where there is none
del os.fork, os.register_at_fork, os.sched_getaffinity
import calibeat
from calibeat import Bank, Calibrator, MultiBank, MultiCalibrator, bounds, late, metrics
cal = Calibrator()
cal.update(cal.predict(0.3), 1)
assert MultiCalibrator(3).run([[0.2, 0.3, 0.5]], [1]).shape == (1, 3)
with tempfile.TemporaryDirectory() as folder:
    for bank, scores in ((Bank(), [0.2, 0.7]), (MultiBank(2), [[0.2, 0.8], [0.7, 0.3]])):
        bank.run(["a", "b"], scores, [0, 1])
        bank.save(folder + "/bank")
        assert len(type(bank).load(folder + "/bank")) == 2
print(calibeat.backtest([0.2, 0.7] * 300, [0, 1] * 300, methods="ops"))
"""


def test_a_system_without_what_unix_has() -> None:
    assert "OPS" in fresh(ON_WINDOWS)


def test_every_public_name_is_there_and_listed() -> None:
    for name in calibeat.__all__:
        assert getattr(calibeat, name) is not None
        assert name in dir(calibeat)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'calibeat' has no attribute 'Calibratr'"):
        calibeat.Calibratr  # noqa: B018 - the look-up is the test


def test_a_lazy_name_is_looked_up_once() -> None:
    program = "import calibeat; first = calibeat.Bank; print('Bank' in vars(calibeat), first is calibeat.Bank)"
    assert fresh(program).split() == ["True", "True"]


def test_no_noun_twice() -> None:
    """A class has a name of its own: who reads `Ledger` need not ask which."""
    folder = Path(calibeat.__file__).parent
    names = Counter(
        name
        for file in folder.rglob("*.py")
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert len(names) > 200
    assert [name for name, times in names.items() if times > 1] == []
