"""A missing library: one sentence that says what needs it and how to get it."""

from __future__ import annotations

import pickle
import sys

import pytest

from calibeat import CalibeatError, MissingExtra
from calibeat._util.extras import LazyModule, missing, need


def test_a_library_that_is_there_is_given() -> None:
    assert need("json", extra="backtest", what="logs") is sys.modules["json"]
    assert need("os.path", extra="backtest", what="logs").join("a", "b")


def test_a_missing_library_is_an_import_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingExtra) as error:
        need("tqdm", extra="demo", what="demo")
    assert str(error.value) == "demo needs tqdm: pip install 'calibeat[demo]'"
    assert isinstance(error.value, ImportError) and isinstance(error.value, CalibeatError)
    assert isinstance(error.value.__cause__, ImportError)


def test_a_part_of_a_library_is_named_after_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "no_such_library", None)
    with pytest.raises(MissingExtra, match=r"^figures need no_such_library: pip install 'calibeat\[plot\]'$"):
        need("no_such_library.parts", extra="plot", what="figures")


@pytest.mark.parametrize(("what", "verb"), [("logs", "need"), ("demo", "needs"), ("calibeat.sklearn", "needs")])
def test_one_needs_and_many_need(what: str, verb: str) -> None:
    assert str(missing("x", "y", what)) == f"{what} {verb} x: pip install 'calibeat[y]'"


def test_a_lazy_module_is_imported_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = LazyModule("colorsys")
    copied = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    assert "colorsys" not in sys.modules and not hasattr(module, "__file__")
    assert copied.rgb_to_hsv(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0) and "colorsys" in sys.modules
