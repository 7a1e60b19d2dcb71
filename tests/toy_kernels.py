"""Kernels that compile in a moment, for tests of the compiler."""

from __future__ import annotations

from calibeat._util.types import Vector
from calibeat.core.jit import compilable


@compilable
def square(x: float) -> float:
    """x^2."""
    return x * x


@compilable
def sum_of_squares(column: Vector) -> float:
    """Of all numbers."""
    total = 0.0
    for x in column:
        total += square(x)
    return total


@compilable
def largest_square(column: Vector) -> float:
    """Of all numbers."""
    largest = 0.0
    for x in column:
        largest = max(largest, square(x))
    return largest
