"""One body, two ways to run it: plain Python for one event, Numba for a batch.

A kernel is an ordinary module-level function marked with :func:`compilable`. Called by its name it is plain Python, so
importing calibeat and serving single events never waits for Numba. :func:`compiled` gives the same body compiled, with
the same bits (no fastmath), or the plain function when Numba is absent or ``NUMBA_DISABLE_JIT=1``.

Compiled kernels are kept on the disk (`cache`). Where there are none, a first compilation takes seconds: it is said on
a terminal, and small batches run as plain Python instead (:func:`for_cost`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from calibeat._util.processes import new_lock

from . import cache, compiler
from . import prefetch as _prefetch
from .link import Linker

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE = 0.1  # a kernel is compiled when plain Python has taken this share of the time that compiling takes
_in_a_hurry = [0]  # how many blocks of `compiling_at_once` are open
_SECONDS_PER_BYTE = 0.25e-3  # to compile a byte of bytecode
_WORTH_SAYING = 1.0  # seconds

_KERNELS: dict[Callable[..., Any], dict[str, Any]] = {}  # -> how Numba is to compile it
_COMPILED: dict[Callable[..., Any], Callable[..., Any]] = {}
_LOCK = new_lock()
_announced: set[Callable[..., Any]] = set()
_left: dict[Callable[..., Any], float] = {}  # seconds of plain Python until a kernel, which is not cached, is compiled


# ---- marks -------------------------------------------------------------------------------------------------------


def compilable(function: F) -> F:
    """Mark a function that compiled code may call; it stays the plain function that it is.

    A kernel makes no arrays, so Numba need not count references (``_nrt``), which would cost more than the arithmetic
    of an event; and it is inlined into the loop that calls it. It raises nothing, and it calls other kernels by their
    names (not as attributes of a module).
    """
    _KERNELS[function] = {"error_model": "numpy", "forceinline": True, "_nrt": False}
    return function


def large_kernel(function: F) -> F:
    """Mark a kernel that only some methods need: not inlined, or its bulk would slow the loop of those that do not."""
    _KERNELS[function] = {"error_model": "numpy", "forceinline": False, "_nrt": False}
    return function


def rare_kernel(function: F) -> F:
    """Mark a kernel that is called once in many events: it may make arrays, and it is not inlined."""
    _KERNELS[function] = {"error_model": "numpy", "forceinline": False, "_nrt": True}
    return function


def single_kernel(function: F) -> F:
    """Mark a kernel that Python calls for one event: it keeps the interpreter's lock, so no other thread comes between.

    To give the lock back and to take it again would cost as much as the event.
    """
    _KERNELS[function] = {"error_model": "numpy", "forceinline": True, "_nrt": False, "nogil": False}
    return function


# ---- the compiled twin -------------------------------------------------------------------------------------------


def compiled(function: F) -> F:
    """The compiled twin of a kernel. For new types of arguments it compiles, or loads from the cache, when called."""
    with _LOCK:
        if function not in _COMPILED:
            numba = None if _disabled() else _import_numba()
            _COMPILED[function] = plain(function) if numba is None else _linker.entry(function)
        return _COMPILED[function]  # type: ignore[return-value]  # the twin has the signature of the original


def entry_point(function: F, *examples: Any) -> F:
    """The compiled kernel for arguments of exactly these types, without Numba's look at the types of each call.

    A call costs half of what a call through :func:`compiled` costs (82 ns instead of 164 for an array and a float).
    Nothing is checked, so the caller guarantees for every call what held for the `examples`:

    - the same number of arguments, by position;
    - an array has the same dtype and dimension, is contiguous (C order) and aligned, and may be written to if the
      example could: a strided view or another dtype of the same size is read as garbage, without an error;
    - a float is a Python float, an int a Python int below 2**63;
    - the arrays are long enough: a kernel checks no index.

    It compiles, or loads from the cache, if that has not happened. Where nothing is compiled (no Numba, or
    ``NUMBA_DISABLE_JIT=1``) it is the function :func:`compiled` gives.
    """
    twin: Any = compiled(function)
    return _overload(twin, examples).entry_point if hasattr(twin, "py_func") else twin


def for_cost(function: F, seconds: float) -> F:
    """The compiled twin where it is in memory or in the cache, or pays; else the plain body. The same bits.

    `seconds` is about what the call will take as plain Python. The calls of a kernel run plain as long as all of them
    together take less than a tenth of the time that it would take to compile it.
    """
    if is_compiled(function):  # asked first: a refit asks every hundred events
        return _COMPILED[function]  # type: ignore[return-value]  # as in `compiled`
    if _disabled() or _in_a_hurry[0]:
        return compiled(function)
    if function not in _left:
        if is_cached(function):
            return compiled(function)
        _left[function] = _PATIENCE * _SECONDS_PER_BYTE * _linker.missing(function)
    _left[function] -= seconds
    return plain(function) if _left[function] > 0.0 else compiled(function)


@contextmanager
def compiling_at_once() -> Iterator[None]:
    """Within this block everything that can be compiled is, however small: for `warm_up`."""
    _in_a_hurry[0] += 1
    try:
        yield
    finally:
        _in_a_hurry[0] -= 1


def for_size(function: F, size: int, few: int = 64) -> F:
    """The twin for so many elements, each about a microsecond of plain Python; for a few always the plain body."""
    return plain(function) if size <= few else for_cost(function, 1e-6 * size)


def plain(function: F) -> F:
    """The plain body on arrays: a memoryview hands out Python floats, several times faster than NumPy scalars."""

    def run(*arguments: Any) -> Any:
        return function(*(a.data if isinstance(a, np.ndarray) else a for a in arguments))

    return run  # type: ignore[return-value]  # same signature, arrays wrapped


# ---- what is there -----------------------------------------------------------------------------------------------


def is_compiled(*functions: Callable[..., Any]) -> bool:
    """Whether the compiled twins of these kernels are in memory."""
    return all(hasattr(_COMPILED.get(function), "py_func") for function in functions)


def is_cached(*functions: Callable[..., Any]) -> bool:
    """Whether the compiled twins of these kernels lie in the cache: to load them takes a moment, to make them seconds.

    Only files of these very kernels count, made by this Python and this Numba. Numba is not imported to find out.
    """
    return not _disabled() and all(_linker.is_cached(function) for function in functions)


def can_load(function: Callable[..., Any], *examples: Any) -> bool:
    """Whether the cache has the compiled kernel for arguments of these types and for this processor.

    This is exact where :func:`is_cached` is not, but it imports Numba.
    """
    return not _disabled() and _import_numba() is not None and _linker.can_load(function, examples)


def dispatchers() -> dict[str, Any]:
    """Name -> Numba dispatcher of every kernel that Python has called compiled so far."""
    return {name.__name__: twin for name, twin in _COMPILED.items() if hasattr(twin, "py_func")}


def announce(*functions: Callable[..., Any]) -> None:
    """Say on a terminal that these kernels will be compiled, if that takes a second or more, and about how long."""
    seconds = _SECONDS_PER_BYTE * _linker.missing(*functions)
    new = not _announced.issuperset(functions)
    _announced.update(functions)
    if new and seconds >= _WORTH_SAYING and sys.stderr is not None and sys.stderr.isatty():
        once = "once for this machine and environment" if cache.writable() else "in each process (no folder for them)"
        # A progress bar may stand on this line.
        sys.stderr.write(f"\rcalibeat compiles its kernels, {once}: about {seconds:.0f} seconds\n")


_linker = Linker(_KERNELS, announce)


def _disabled() -> bool:
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def _import_numba() -> ModuleType | None:  # pragma: no cover - the leg that measures coverage has the JIT off
    try:
        import numba
    except ImportError:
        return None
    _prefetch.teach()
    return numba


def _overload(twin: Any, examples: tuple[Any, ...]) -> Any:  # pragma: no cover - see _import_numba
    types = compiler.types_of(examples)
    twin.compile(types)
    return twin.overloads[types]
