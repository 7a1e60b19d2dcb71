"""How compiled kernels find the kernels that they call, and how a stored kernel is known to be the right one.

A kernel is a plain function, and so are the kernels that it calls. Numba must see its own objects in their place. So
each kernel gets a twin: the same code object, with a copy of its module's globals in which the names of kernels are
bound to their compiled twins. This follows the calls. Nothing has to be registered, and the order in which modules
are imported or kernels are first used does not matter.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from . import cache, compiler

Kernel = Callable[..., Any]
Options = dict[str, Any]


class Linker:
    """Makes compiled twins; `kernels` are all that are marked, with how Numba is to compile each of them.

    `before_compiling` is called with a kernel that Python calls and that neither memory nor the cache has.
    """

    def __init__(self, kernels: dict[Kernel, Options], before_compiling: Callable[[Kernel], None]) -> None:
        self._kernels = kernels
        self._before_compiling = before_compiling
        self._digests: dict[Kernel, str] = {}
        self._linked: dict[Kernel, Any] = {}

    def entry(self, function: Kernel) -> Any:  # pragma: no cover - the leg that measures coverage has the JIT off
        """The twin that Python calls."""
        options = {name: value for name, value in self._kernels[function].items() if name != "forceinline"}
        twin = self._twin(function, function.__name__)
        return compiler.entry(twin, options, self._title("entry", function), lambda: self._before_compiling(function))

    def linked(self, function: Kernel) -> Any:  # pragma: no cover - see entry
        """The twin that other kernels call."""
        if function not in self._linked:
            twin = self._twin(function, f"linked_{function.__name__}")
            self._linked[function] = compiler.linked(twin, self._kernels[function], self._title("linked", function))
        return self._linked[function]

    def _twin(self, function: Kernel, name: str) -> Kernel:  # pragma: no cover - see entry
        links = {called: self.linked(callee) for called, callee in self.calls(function).items()}
        scope = function.__globals__ | links
        twin = FunctionType(function.__code__, scope, name, function.__defaults__, function.__closure__)
        twin.__qualname__ = name
        return twin

    def calls(self, function: Kernel) -> dict[str, Kernel]:
        """The kernels that a kernel calls itself, by their names there."""
        values: dict[str, Any] = {name: function.__globals__.get(name) for name in _names(function.__code__)}
        return {name: value for name, value in values.items() if self._is_kernel(value)}

    def is_cached(self, function: Kernel) -> bool:
        """Whether the cache has this kernel (though it may be for other types, or for another processor)."""
        return cache.holds(f"{self._title('entry', function)}-")

    def can_load(self, function: Kernel, examples: tuple[Any, ...]) -> bool:  # pragma: no cover - see entry
        """Whether the cache has this kernel for arguments of these types and for this processor."""
        return compiler.is_stored(self._title("entry", function), examples)

    def missing(self, *functions: Kernel) -> int:
        """How much there is to compile for these kernels: bytes of bytecode that neither memory nor the cache has."""
        entries = {function for function in functions if not self.is_cached(function)}
        linked: set[Kernel] = set()
        for function in entries:
            self._collect(function, linked)
        wanted = [*entries, *(each for each in linked if not self._has_linked(each))]
        return sum(len(each.__code__.co_code) for each in wanted)

    def _collect(self, function: Kernel, linked: set[Kernel]) -> None:
        for callee in self.calls(function).values():
            if callee not in linked:
                linked.add(callee)
                self._collect(callee, linked)

    def _has_linked(self, function: Kernel) -> bool:
        made = self._linked.get(function)
        return bool(made is not None and made.overloads) or cache.holds(f"{self._title('linked', function)}-")

    def _title(self, kind: str, function: Kernel) -> str:
        """How the names of its files begin."""
        return f"{kind}-{function.__name__}-{self.digest(function)}"

    def digest(self, function: Kernel) -> str:
        """A hash of all that decides what a kernel does: its code, the values that it reads, the kernels it calls."""
        if function not in self._digests:
            parts = [function.__module__, function.__name__, repr(sorted(self._kernels[function].items()))]
            parts += [repr(function.__defaults__), *self._described(function, function.__code__)]
            self._digests[function] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return self._digests[function]

    def _described(self, function: Kernel, code: CodeType) -> Iterator[str]:
        yield repr((code.co_code, code.co_varnames, code.co_names, code.co_argcount, code.co_flags))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._described(function, constant)
            elif constant != function.__doc__:
                yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)
        for name in code.co_names:
            if name in function.__globals__:
                yield f"{name}: {self._value(function.__globals__[name], code)}"

    def _value(self, value: Any, code: CodeType) -> str:
        """A value that a kernel reads, such that values with the same description compile to the same code."""
        if self._is_kernel(value):
            return self.digest(value)
        if value is None or isinstance(value, bool | int | float | complex | str | np.generic):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, np.ndarray):
            return f"{value.dtype} {value.shape} {value.tobytes()!r}"
        if isinstance(value, tuple):
            return f"{type(value).__qualname__} {[self._value(each, code) for each in value]}"
        if isinstance(value, ModuleType):
            read = (getattr(value, name, None) for name in code.co_names)
            return f"{value.__name__} {[each for each in read if isinstance(each, bool | int | float)]}"
        return f"{getattr(value, '__qualname__', value)} {_source_of(value)}"

    def _is_kernel(self, value: Any) -> bool:
        return isinstance(value, FunctionType) and value in self._kernels


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source_of(value: Any) -> str:
    """A hash of the file that defines a class or a function."""
    file = getattr(sys.modules.get(getattr(value, "__module__", "")), "__file__", None)
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
