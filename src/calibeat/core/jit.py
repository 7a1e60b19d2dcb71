"""One body, two ways to run it: plain Python for one event, Numba for a batch.

A kernel is an ordinary module-level function marked with :func:`kernel`. Called by its name it is plain Python, so
importing calibeat and serving single events never waits for Numba. :func:`compiled` gives the same body compiled
(``njit(cache=True, nogil=True)``, no fastmath: the bits must not change), or the plain function when Numba is
absent or ``NUMBA_DISABLE_JIT=1``.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from . import prefetch as _prefetch

F = TypeVar("F", bound=Callable[..., Any])

_KERNELS: dict[Callable[..., Any], dict[str, Any]] = {}  # -> how Numba is to compile it
_COMPILED: dict[Callable[..., Any], Callable[..., Any]] = {}
_LOCK = threading.Lock()


def kernel(function: F) -> F:
    """Mark a function that compiled code may call; it stays the plain function that it is.

    A kernel makes no arrays, so Numba need not count references (``_nrt``), which would cost more than the arithmetic
    of an event; and it is inlined into the loop that calls it.
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


def compiled(function: F) -> F:
    """The compiled twin of a kernel, made at the first call of this function and kept."""
    with _LOCK:
        if function not in _COMPILED:
            numba = None if _disabled() else _import_numba()
            _COMPILED[function] = plain(function) if numba is None else _njit(numba, function)
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
    if not hasattr(twin, "signatures"):
        return twin  # type: ignore[no-any-return]  # the plain function
    return _overload(twin, examples).entry_point  # type: ignore[no-any-return]  # pragma: no cover - see _import_numba


def _overload(twin: Any, examples: tuple[Any, ...]) -> Any:  # pragma: no cover - see _import_numba
    from numba import typeof

    types = tuple(typeof(example) for example in examples)
    twin.compile(types)
    return twin.overloads[types]


def for_size(function: F, size: int, few: int = 64) -> F:
    """The compiled twin for many elements; for a few the plain body, so that single events never wait for Numba."""
    return plain(function) if size <= few else compiled(function)


def is_compiled(*functions: Callable[..., Any]) -> bool:
    """Whether the compiled twins of these kernels are in memory."""
    return all(hasattr(_COMPILED.get(function), "signatures") for function in functions)


def is_cached(*functions: Callable[..., Any]) -> bool:
    """Whether the compiled twins of these kernels lie on the disk: to read them takes a moment, to make them many."""
    return not _disabled() and _are_on_disk([function.__name__ for function in functions])


def dispatchers() -> dict[str, Any]:
    """Name -> Numba dispatcher of every kernel compiled so far."""
    return {name.__name__: twin for name, twin in _COMPILED.items() if hasattr(twin, "signatures")}


def _disabled() -> bool:
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def _are_on_disk(names: list[str]) -> bool:  # pragma: no cover - see _import_numba
    folder = _cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))
    return folder is not None and all(any(folder.rglob(f"*.{name}-*.nbi")) for name in names)


def _import_numba() -> ModuleType | None:  # pragma: no cover - the leg that measures coverage has the JIT off
    try:
        import numba
    except ImportError:
        return None
    return numba


def plain(function: F) -> F:
    """The plain body on arrays: a memoryview hands out Python floats, several times faster than NumPy scalars."""

    def run(*arguments: Any) -> Any:
        return function(*(a.data if isinstance(a, np.ndarray) else a for a in arguments))

    return run  # type: ignore[return-value]  # same signature, arrays wrapped


def _njit(numba: ModuleType, function: F) -> F:  # pragma: no cover - see _import_numba
    from numba.extending import register_jitable

    if not _COMPILED:
        _prefetch.teach()
        for helper, options in _KERNELS.items():
            register_jitable(**options)(helper)
    options = {name: value for name, value in _KERNELS[function].items() if name != "forceinline"}
    folder = _cache_folder(numba.config.CACHE_DIR)
    # Numba's cache notices a change of the file that holds the entry point only, not of the files it calls into.
    # A folder named after all the sources cannot serve stale machine code.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
    try:
        return numba.njit(cache=folder is not None, nogil=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def _cache_folder(chosen: str) -> Path | None:  # pragma: no cover - see _import_numba
    """A folder that can be written, or None: a read-only installation without a home still works, and compiles anew."""
    files = sorted({__file__, *(inspect.getfile(helper) for helper in _KERNELS)})
    fingerprint = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]
    places = [Path(chosen)] if chosen else [Path(__file__).parent / "__pycache__", *_user_caches()]
    for place in places:
        folder = place / f"kernels-{fingerprint}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


def _user_caches() -> list[Path]:  # pragma: no cover - see _import_numba
    try:
        home = Path.home() / ".cache"
    except RuntimeError:
        home = Path(tempfile.gettempdir())
    return [Path(os.environ.get("XDG_CACHE_HOME") or home) / "calibeat"]
