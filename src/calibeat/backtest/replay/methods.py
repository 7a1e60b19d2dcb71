"""Which methods are replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from calibeat.core.method import BM, Method, method_named, name_of
from calibeat.errors import InvalidInput
from calibeat.rivals.play import is_rival
from calibeat.rivals.ready import ABOUT, READY

from .outside import rival_method

# Constant cost per event and constant memory; FPS, which most people deploy, keeps its first 1,000 outcomes.
DEFAULT = ("raw", "auto", "fps", "ops", "tops", "hops", "obs", "tobs", "hobs", "f99")


def chosen(methods: Any, *, keyed: bool) -> tuple[list[tuple[str, Method]], list[str]]:
    """Names and methods, the raw score first and none twice; and notes on what was left out.

    >>> [name for name, _ in chosen("tops, ops", keyed=False)[0]]
    ['raw', 'tops', 'ops']
    """
    picked: dict[str, Method] = {"raw": BM}
    picked |= {name: method for name, method in _pairs(DEFAULT if methods is None else methods) if method != BM}
    if not keyed:
        return list(picked.items()), []
    kept = {name: method for name, method in picked.items() if not method.needs_history}
    left = [name.upper() for name in picked if name not in kept]
    notes = []
    if left:
        notes.append(
            f"{', '.join(left)} left out: with keys each stream lives in a row of numbers, and these methods keep past "
            "outcomes besides."
        )
    return list(kept.items()), notes


def _pairs(methods: Any) -> list[tuple[str, Method]]:
    if isinstance(methods, Mapping):
        named = list(methods.items())
    elif isinstance(methods, str):
        named = [_named(name.strip()) for name in methods.split(",") if name.strip()]
    elif isinstance(methods, Method):
        named = [_named(methods)]
    elif isinstance(methods, Iterable):
        named = [_named(method) for method in methods]
    else:
        raise InvalidInput(f"methods must be names of presets or methods, got {type(methods).__name__} {methods!r:.60}")
    named = [(name, _method(name, method)) for name, method in named]
    for name, method in named:
        if name.lower() == "raw" and method != BM:
            raise InvalidInput(f"methods must not give the name of the raw score to another, got {name!r}: {method}")
    if not named:
        raise InvalidInput("methods must name one at least, got none")
    return named


def _method(name: Any, method: Any) -> Method:
    """A method as it is, or a rival: an object with `predict` and `update`, or what makes one."""
    if isinstance(name, str) and not isinstance(method, Method) and is_rival(method):
        return rival_method(method, name)
    if not isinstance(name, str) or not isinstance(method, Method):
        raise InvalidInput(
            f"methods must map names to methods or to objects with predict and update, got {name!r:.60}: {method!r:.60}"
        )
    return method


def _named(method: Any) -> tuple[str, Method]:
    if isinstance(method, Method):
        return name_of(method) or str(method), method
    if isinstance(method, str) and method.lower() == "raw":
        return "raw", BM
    if isinstance(method, str) and method.lower() in READY:
        return method.lower(), rival_method(READY[method.lower()], method.lower(), ABOUT[method.lower()])
    found = method_named(method)
    return str(method).lower(), found
