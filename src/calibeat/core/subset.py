"""The Python that kernels are written in: numbers, arrays, `math`, loops, and functions of these.

A kernel is an ordinary function with types. It works in place, makes no arrays, raises nothing, draws nothing, and
calls other kernels by their names. The build translates all kernels into extension modules
(`compiling/join_kernels.py`), where the C compiler inlines them into each other; docs/compiled.md says how. As they
stand here they are Python, for readers, tests and debuggers: `plain` gives the Python of one that is called compiled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from calibeat._util.types import Vector

from .units import unit_of

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN: dict[Any, Callable[..., Any]] = {}


def kernel(function: F) -> F:
    """Mark a kernel that other kernels call: it is inlined there."""
    return function


def large_kernel(function: F) -> F:
    """Mark a kernel that only some methods need: not inlined, or its bulk would slow the loops of the others."""
    return function


def entry(function: F) -> F:
    """Mark a kernel that Python calls: its name is that of the compiled function, which runs without the GIL."""
    name = f"{function.__module__.partition('.')[2].replace('.', '_')}_{function.__name__}"
    found: Any = getattr(_unit(unit_of(function.__module__)), name, None)
    if found is None:  # pragma: no cover - a kernel in a file that had none
        raise ImportError(f"{name} is not in calibeat's compiled core yet: run `make build`")
    _PLAIN[found] = function
    return found  # it has the signature of the original


def loop(function: F) -> F:
    """Mark an entry in which most time is spent: where the compiler can, it is made for newer processors as well."""
    return entry(function)


def _unit(name: str) -> Any:
    try:
        return import_module(f"calibeat.{name}")
    except ImportError as error:  # pragma: no cover - nothing else can be tested then
        raise ImportError(
            f"calibeat needs its compiled core: run `make build` in a checkout, or install calibeat again ({error})"
        ) from error


def plain(function: F) -> F:
    """The Python of an entry."""
    return _PLAIN[function]  # type: ignore[return-value]  # the same signature


def scratch(size: int) -> Vector:
    """So many zeros that nothing outside of the kernel sees: in C an array on the stack."""
    return np.zeros(size)


def blank(size: int) -> Vector:
    """As `scratch`, without the zeros: numbers that are written before anything depends on them."""
    return np.full(size, np.nan)


unrolled = range  # a loop that is written out: its bounds are constants, and so is its variable


def small_int(number: float) -> int:
    """The whole part of a number below 2^31: processors convert many such at once."""
    return int(number)


def bits_of(number: float) -> int:
    """The bits of a float, as a whole number."""
    return int.from_bytes(struct.pack(">d", number), signed=True)


def float_of(bits: int) -> float:
    """The float that has these bits."""
    return float(struct.unpack(">d", bits.to_bytes(8, signed=True))[0])


def prefetch(array: Any, at: int) -> None:
    """Have the cache line of array[at] brought near, to be written: one instruction that never waits."""
