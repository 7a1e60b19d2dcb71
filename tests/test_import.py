"""`import calibeat` loads what `Calibrator` needs. Everything else loads when it is used."""

from __future__ import annotations

import pytest
from fresh import fresh

import calibeat

LOADED = "import sys, calibeat; print(*(name[9:] for name in sys.modules if name.startswith('calibeat.')))"


def test_importing_loads_no_bank_no_classes_no_rivals_and_no_report() -> None:
    loaded = set(fresh(LOADED).split())
    assert {"hosts.calibrator", "core"} <= loaded
    assert not loaded & {"hosts.bank", "hosts.multi", "core.vector", "bank", "rivals", "report", "metrics", "bounds"}
    assert not loaded & {"service", "spark", "cli", "warm"}


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
