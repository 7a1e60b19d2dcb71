"""Numba, as far as kernels need it: what is compiled, and what is read from and written to the disk.

There are two compiled twins of a kernel. Python calls the *entry*: machine code with a wrapper, stored as such. Other
kernels call the *linked* one. It is only ever built into them, so it stays LLVM's intermediate code: no wrapper, no
machine code, and no optimisation of its own where it is inlined. That halves the time of a first compilation, and
what is stored of it serves kernels that are compiled later. The bits are the same, for nothing here may reorder
arithmetic.

Numba is imported inside the functions: single events never wait for it. Coverage is measured with the JIT off, where
nothing of this runs.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import cache as once
from importlib import import_module
from typing import Any

from . import cache

Kernel = Callable[..., Any]
Options = dict[str, Any]


def entry(
    twin: Kernel, options: Options, title: str, before_compiling: Callable[[], None]
) -> Any:  # pragma: no cover - no JIT
    """The compiled twin that Python calls; its files' names begin with the title."""
    dispatcher: Any = import_module("numba.core.registry").CPUDispatcher
    made = dispatcher(twin, targetoptions={"nopython": True, "nogil": True, **options})
    made._cache = _Store(title, before_compiling)
    made._compiler._customize_flags = _flags()
    return made


def linked(twin: Kernel, options: Options, title: str) -> Any:  # pragma: no cover - no JIT
    """The compiled twin that other kernels call."""
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    made = _linked()(twin, targetoptions={"nopython": True, **wrappers, **options}, pipeline_class=_pipeline())
    made._cache = _LinkedStore(title)
    made._compiler._customize_flags = _without_machine_code
    return made


def types_of(examples: tuple[Any, ...]) -> tuple[Any, ...]:  # pragma: no cover - no JIT
    """Numba's types of these arguments."""
    typeof: Any = import_module("numba").typeof
    return tuple(typeof(example) for example in examples)


def is_stored(title: str, examples: tuple[Any, ...]) -> bool:  # pragma: no cover - no JIT
    """Whether the cache has an entry of this title for such arguments and for this processor."""
    codegen = import_module("numba.core.registry").cpu_target.target_context.codegen()
    return cache.holds(_Store(title)._name(types_of(examples), codegen))


class _Store:  # pragma: no cover - no JIT
    """Where Numba looks for a compiled kernel and puts a new one: its `_Cache`, on the files of `cache`."""

    def __init__(self, title: str, before_compiling: Callable[[], None] | None = None) -> None:
        self._title = title
        self._before_compiling = before_compiling

    @property
    def cache_path(self) -> str | None:
        """The folder, for Numba's statistics."""
        folder = cache.writable()
        return None if folder is None else str(folder)

    def load_overload(self, types: Any, target: Any) -> Any:
        """The kernel for arguments of these types, or None."""
        target.refresh()
        data = cache.read(self._name(types, target.codegen()))
        if data is not None:
            return self._rebuild(target, pickle.loads(data))  # noqa: S301 - a file of our own, see `cache`
        if self._before_compiling is not None:
            self._before_compiling()
        return None

    def save_overload(self, types: Any, result: Any) -> None:
        """Keep a compiled kernel, unless it holds addresses that are of this process only."""
        dumps: Any = import_module("numba.core.serialize").dumps
        if not result.library.has_dynamic_globals and self._is_complete(result):
            cache.write(self._name(types, result.codegen), dumps(self._reduced(result)))

    def _name(self, types: Any, codegen: Any) -> str:
        """The title, and a hash of the argument types and of the processor with its features."""
        key = repr((str(types), codegen.magic_tuple()))
        return f"{self._title}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def _is_complete(self, result: Any) -> bool:  # noqa: ARG002 - of linked kernels there is something to ask
        return True

    def _reduced(self, result: Any) -> Any:
        return result._reduce()

    def _rebuild(self, target: Any, data: Any) -> Any:
        return import_module("numba.core.compiler").CompileResult._rebuild(target, *data)


class _LinkedStore(_Store):  # pragma: no cover - no JIT
    """The same for linked kernels: intermediate code instead of machine code."""

    def _is_complete(self, result: Any) -> bool:
        """Whether it needs no initialisation when it is loaded; no kernel has needed one."""
        return not (result.reload_init or getattr(result.library, "_reload_init", ()))

    def _reduced(self, result: Any) -> Any:
        described = result.fndesc
        described.typemap = described.calltypes = None  # large, and of use only while it is compiled
        bitcode = result.library._get_module_for_linking().as_bitcode()
        return result.library.name, bitcode, described, result.signature

    def _rebuild(self, target: Any, data: Any) -> Any:
        compile_result: Any = import_module("numba.core.compiler").compile_result
        parse_bitcode: Any = import_module("llvmlite.binding").parse_bitcode
        name, bitcode, described, signature = data
        library = _library()(target.codegen(), name)
        library._final_module = parse_bitcode(bitcode)
        library._finalize_final_module()
        return compile_result(
            typing_context=target.typing_context,
            target_context=target,
            library=library,
            fndesc=described,
            signature=signature,
            objectmode=False,
            lifted=(),
            reload_init=(),
        )


# ---- Numba's classes, each with a method that is different --------------------------------------------------------


@once
def _flags() -> Any:  # pragma: no cover - no JIT
    """The flags of a compilation. Numba compares them ten thousands of times, and lists them all each time."""
    numba: Any = import_module("numba.core.compiler")
    number = hash(numba.Flags())  # Numba hashes the names of the flags, not their values

    class Flags(numba.Flags):  # type: ignore[misc]  # Numba has no types
        def __init__(self, copy_from: Any = None) -> None:
            super().__init__(copy_from)
            self._values = self.values()

        def __hash__(self) -> int:
            return number

        def __eq__(self, other: object) -> bool:
            return self._values == other._values if isinstance(other, Flags) else bool(super().__eq__(other))

    return Flags


@once
def _library() -> Any:  # pragma: no cover - no JIT
    """Code that is only ever built into other libraries."""
    numba: Any = import_module("numba.core.codegen")

    class Library(numba.JITCodeLibrary):  # type: ignore[misc]
        inlined = True

        def _optimize_final_module(self) -> None:
            """What is inlined is optimised there. Of another function LLVM must know, before that, what it touches."""
            if not self.inlined:
                super()._optimize_final_module()

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._verify_declare_only_symbols()
            self._finalized = True

    return Library


@once
def _pipeline() -> Any:  # pragma: no cover - no JIT
    """The compiler of linked kernels: it stops where machine code would begin."""
    numba: Any = import_module("numba.core.compiler")

    class Pipeline(numba.Compiler):  # type: ignore[misc]
        def compile_extra(self, function: Kernel) -> Any:
            self.state.library = _library()(self.state.targetctx.codegen(), function.__qualname__)
            self.state.library.inlined = bool(self.state.flags.forceinline)
            return super().compile_extra(function)

    return Pipeline


@once
def _linked() -> Any:  # pragma: no cover - no JIT
    """The dispatcher of linked kernels."""
    numba: Any = import_module("numba.core.registry")
    types: Any = import_module("numba.core.types")
    lock: Any = import_module("numba.core.compiler_lock").global_compiler_lock

    class Linked(numba.CPUDispatcher):  # type: ignore[misc]
        def get_call_template(self, args: Any, kws: Any) -> Any:
            """A kernel that is called with constants is not compiled for each of them."""
            return super().get_call_template([types.unliteral(each) for each in args], kws)

        def compile(self, sig: Any) -> Any:
            """As Numba does it. But what other kernels know it by is not a function in machine code."""
            with lock:
                known = self.overloads.get(sig)
                if known is not None:
                    return known.entry_point
                stored = self._cache.load_overload(sig, self.targetctx)
                result = self._compiler.compile(sig, None) if stored is None else stored
                result = result._replace(entry_point=object())
                self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
                self.overloads[sig] = result
                if stored is None:
                    self._cache.save_overload(sig, result)
                return result.entry_point

    return Linked


def _without_machine_code(flags: Any) -> Any:  # pragma: no cover - no JIT
    flags = _flags()(flags)
    flags.no_compile = True
    return flags
