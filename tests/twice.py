"""Kernels twice: as Python on a copy of their arguments, then compiled; results and arrays must have the same bits."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np


def called_twice(plain: Callable[..., Any], compiled: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the compiled function, which is that of the Python; the arguments are as it leaves them."""
    memory: dict[tuple[int, int], Any] = {}
    copies = [copied(argument, memory) for argument in arguments]
    expected = plain(*copies)
    result = compiled(*arguments)
    assert bits(result) == bits(expected), compiled.__name__
    assert [bits(argument) for argument in arguments] == [bits(copy) for copy in copies], compiled.__name__
    return result


def copied(argument: Any, memory: dict[tuple[int, int], Any]) -> Any:
    """An argument of its own for the Python: elements of a memoryview are Python's numbers, as those of C are C's.

    Arrays that share their memory, as numbers of one kind and another, still do; `memory` has those copied before.
    """
    if isinstance(argument, tuple):
        return type(argument)(*(copied(part, memory) for part in argument))
    if is_array(argument):
        array = np.asarray(memoryview(argument))
        where = array.__array_interface__["data"][0], array.nbytes
        kept = memory.setdefault(where, array.copy()) if array.nbytes else array.copy()
        return memoryview(kept.reshape(-1).view(array.dtype).reshape(array.shape))
    return argument


def bits(value: Any) -> Any:
    """What is equal only if all bits are: also the sign of zero."""
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if is_array(value):
        return np.asarray(memoryview(value)).tobytes()
    return (float, value.hex()) if isinstance(value, float) else (type(value), value)  # NumPy's float is one


def is_array(value: Any) -> bool:
    """Whether a kernel takes it as an array."""
    return isinstance(value, np.ndarray | array | memoryview | bytes | bytearray)
