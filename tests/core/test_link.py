"""A stored kernel is used only if everything that it was made from is still the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibeat.core.jit import _KERNELS, _linker
from calibeat.core.link import Linker

SCALE = 2.0
TABLE = np.array([1.0, 2.0])
PAIR = (1, (2.5, "x"))
OPTIONS = {"forceinline": True}


def inner(x: float) -> float:
    return x * SCALE


def outer(x: float) -> float:
    """Doc."""
    return inner(x) + math.pi + TABLE[0] + PAIR[0] + (x in {1.0, 2.0}) + len([x for _ in range(2)])


def digest(function: Callable[..., Any] = outer, **options: Any) -> str:
    """In a fresh linker, which remembers nothing."""
    return Linker({inner: OPTIONS, outer: OPTIONS | options}, lambda _: None).digest(function)


def test_what_a_kernel_calls() -> None:
    linker = Linker({inner: OPTIONS, outer: OPTIONS}, lambda _: None)
    assert linker.calls(outer) == {"inner": inner} and linker.calls(inner) == {}


def test_the_digest_changes_with_all_that_a_kernel_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    assert digest() == before
    for name, value in (
        ("SCALE", 2.0000000000000004),
        ("SCALE", 2),
        ("TABLE", TABLE + 1),
        ("PAIR", (1, (2.5, "y"))),
        ("PAIR", [1]),
        ("inner", lambda x: x),
        ("len", Linker),
        ("math", np),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            assert digest() != before, name
    assert digest(forceinline=False) != before
    with monkeypatch.context() as patch:
        patch.setattr(inner, "__code__", (lambda x: x + SCALE).__code__)
        assert digest() != before
    with monkeypatch.context() as patch:
        patch.setattr(outer, "__doc__", "Another sentence.")
        consts = tuple("Another sentence." if each == "Doc." else each for each in outer.__code__.co_consts)
        patch.setattr(outer, "__code__", outer.__code__.replace(co_firstlineno=1, co_consts=consts))
        patch.setitem(globals(), "unrelated", 1)
        assert digest() == before


def test_no_kernel_calls_another_one_in_a_way_that_is_not_followed() -> None:
    """As an attribute of a module it would stay a plain function, which compiled code cannot call."""
    names = {function.__name__ for function in _KERNELS}
    for function in _KERNELS:
        attributes = set(function.__code__.co_names) - set(function.__globals__)
        assert not attributes & names, function
        assert len(_linker.digest(function)) == 16


def test_how_much_there_is_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    linker = Linker({inner: OPTIONS, outer: OPTIONS}, lambda _: None)
    of_inner, of_both = linker.missing(inner), linker.missing(outer)
    assert 0 < of_inner < of_both == linker.missing(outer, inner) - of_inner  # inner is called by Python, too
    monkeypatch.setattr("calibeat.core.cache.holds", lambda name: name.startswith("linked-inner"))
    assert linker.missing(outer) == of_both - of_inner
    monkeypatch.setattr("calibeat.core.cache.holds", lambda _: True)
    assert linker.missing(outer, inner) == 0
