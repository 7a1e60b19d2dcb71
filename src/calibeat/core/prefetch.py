"""Asking the processor for memory before it is needed: what a loop over rows in no order cannot do without.

In plain Python it does nothing; compiled it is one instruction that never waits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy.typing as npt


def prefetch(array: npt.NDArray[Any], at: int) -> None:
    """Have the cache line of array[at] brought near, to be written."""


@cache
def teach() -> None:  # pragma: no cover - the leg that measures coverage has the JIT off
    """Tell Numba what `prefetch` is, once."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic, overload

    word = ir.IntType(32)
    pointer = ir.IntType(8).as_pointer()

    @intrinsic
    def fetch(context: Any, address: Any) -> Any:  # noqa: ARG001 - Numba passes the typing context
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - likewise
            kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
            module = builder.module
            function = module.globals.get("llvm.prefetch.p0") or ir.Function(module, kind, "llvm.prefetch.p0")
            how = [ir.Constant(word, value) for value in (1, 3, 1)]  # for writing, to the nearest cache, data
            builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])
            return context.get_dummy_value()

        return types.void(types.uintp), code

    @overload(prefetch, jit_options={"_nrt": False, "forceinline": True})  # type: ignore[typeddict-unknown-key]
    def compiled_prefetch(array: Any, at: Any) -> Any:  # noqa: ARG001 - the types do not matter
        def body(array: Any, at: Any) -> None:
            fetch(array.ctypes.data + array.itemsize * at)  # type: ignore[call-arg]  # Numba fills in the context

        return body
