"""Numbers as attributes of groups: which cell of a few a number is in.

`Number` says how an attribute is cut. `Cuts` has the edges of the cells. They are given, or taken from the first
numbers of the stream, and then fixed: a cell that moved would lose what it has learnt.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from calibeat._compiled import numbers_of
from calibeat._util.check import check_number, check_numbers, check_whole, shown
from calibeat._util.columns import Column, is_absent
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

MOST_CELLS_OF_NUMBER = 64
MOST_FIRST = 10_000
MISSING, NOT_YET = -1, -2  # codes beside those of cells
OUTSIDE = 100  # the code of the first octave above; those below are negative
OCTAVES = 2 * 2100  # more half octaves than there are between any two floats
_ROOTS = (0.5**0.5, 1.0, 2.0**0.5)

# What a stream knows of a number: its cells, or as many of its first values as have come.
Known: TypeAlias = "Cuts | tuple[float, ...]"


@dataclass(frozen=True)
class Number:
    """A numeric attribute of `Groups`, such as age: it is cut into cells, whose edges come from its first values.

    Parameters
    ----------
    name : of the attribute.
    first : after so many numbers the edges are fixed; until then the value of each event is "not yet". Those of an
        event count when it is forecast, in the order of the events (`predict`, `run`, `issue`). `peek`, `predict_many`
        and missing values do not count.
    cells : how many cells the first numbers are cut into, each with about as many of them. Equal numbers are never
        cut, so there may be fewer. Beyond the smallest and the largest of them, a new cell begins whenever the distance
        from the other end has grown by a factor of sqrt(2).
    edges : increasing numbers, if you know them: then the cells are fixed from the start, `first` and `cells` do not
        matter, and the two outer cells have no end.

    A number that is an edge is in the cell above it. A missing one (None, NaN) has a cell of its own.

    Raises
    ------
    InvalidInput : the name is no string, `first` or `cells` is out of range, or the edges do not increase.

    >>> from calibeat import Calibrator, Groups
    >>> cal = Calibrator(groups=Groups(["country", Number("age")], seed=7))
    >>> ages = [18 + i % 60 for i in range(1000)]
    >>> p = cal.run([0.5] * 1000, [age > 40 for age in ages], groups={"country": ["fr"] * 1000, "age": ages})
    >>> table = cal.segments(least=20)
    >>> sorted(table["value"][table["attribute"] == "age"].tolist())[:3]
    ['18 to 24', '24 to 31', '31 to 38']
    """

    name: str
    first: int = 500
    cells: int = 8
    edges: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInput(f"name of a number must be a string that is not empty, got {shown(self.name)}")
        checked: dict[str, Any] = {
            "name": str(self.name),
            "first": check_whole(f"first of {self.name}", self.first, 1, MOST_FIRST),
            "cells": check_whole(f"cells of {self.name}", self.cells, 2, MOST_CELLS_OF_NUMBER),
            "edges": None if self.edges is None else _check_edges(self.name, self.edges),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def start(self) -> Known:
        """What a stream knows of it before its first event: its cuts, or none of its first numbers."""
        return () if self.edges is None else Cuts(tuple(self.edges))

    def codes(self, known: Known, numbers: Vector) -> Ints:
        """The codes of numbers (NaN: missing) by what is known now."""
        codes = known.codes(numbers) if isinstance(known, Cuts) else np.full(len(numbers), NOT_YET)
        codes[np.isnan(numbers)] = MISSING
        return codes

    def codes_in_turn(self, known: Known, numbers: Vector) -> tuple[Ints, Known]:
        """The codes of numbers that come one after the other, and what is known after them."""
        if isinstance(known, Cuts):
            return self.codes(known, numbers), known
        there = np.flatnonzero(~np.isnan(numbers))[: self.first - len(known)]
        gathered = (*known, *numbers[there].tolist())
        if len(gathered) < self.first:
            return self.codes(known, numbers), gathered
        cuts, turn = Cuts.of_first(gathered, self.cells), int(there[-1]) + 1
        return np.concatenate([self.codes(known, numbers[:turn]), self.codes(cuts, numbers[turn:])]), cuts

    def state(self, known: Known) -> Any:
        """What is known as JSON-able data; `read_state` is the inverse."""
        if isinstance(known, Cuts):
            return {"edges": list(known.edges), "low": known.low, "high": known.high}
        return list(known)

    def read_state(self, data: Any) -> Known:
        """The inverse of `state`.

        Raises
        ------
        InvalidInput : it is what no stream can know of this number.
        """
        what = f"numbers of {self.name}"
        if isinstance(data, list):
            if len(data) >= self.first:
                raise InvalidInput(f"{what} must be fewer than {self.first}, got {len(data)}")
            return tuple(check_numbers(what, data).tolist())
        if not isinstance(data, dict) or set(data) != {"edges", "low", "high"} or not isinstance(data["edges"], list):
            raise InvalidInput(f"{what} must be a list, or edges with low and high, got {shown(data)}")
        low, *edges, high = check_numbers(what, [data["low"], *data["edges"], data["high"]]).tolist()
        ordered = [low, *edges]
        if not (ordered == sorted(set(ordered)) and ordered[-1] <= high and len(edges) < self.cells):
            raise InvalidInput(f"edges of {self.name} must increase from low to high, got {shown(data)}")
        return Cuts(tuple(edges), low, high)


@dataclass(frozen=True)
class Cuts:
    """The edges of cells. Where these come from first numbers, `low` and `high` are the range of those."""

    edges: tuple[float, ...]
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of_first(cls, numbers: Iterable[float], cells: int) -> Cuts:
        """Cells with about as many of these numbers each. Edges are among the numbers: nothing is rounded.

        >>> Cuts.of_first([1.0, 1.0, 1.0, 2.0, 3.0, 4.0], 3)
        Cuts(edges=(3.0,), low=1.0, high=4.0)
        """
        ranked = sorted(numbers)
        edges = {ranked[i * len(ranked) // cells] for i in range(1, cells)} - {ranked[0]}
        return cls(tuple(sorted(edges)), ranked[0], ranked[-1])

    def code(self, number: float) -> int:
        """The number of edges that are not larger; of a number outside the range, which octave it is in.

        >>> [Cuts((5.0,), 0.0, 10.0).code(v) for v in (0.0, 5.0, 10.0, 10.5, 19.0, 20.0, -10.0)]
        [0, 1, 1, 100, 101, 102, -102]
        """
        if number > self.high:
            return OUTSIDE + self._half_octaves(number, self.low)
        if number < self.low:
            return -OUTSIDE - self._half_octaves(self.high, number)
        return bisect_right(self.edges, number)

    def codes(self, numbers: Vector) -> Ints:
        """The codes of many numbers, that of a NaN aside."""
        found = np.searchsorted(self.edges, numbers, side="right")
        outside = np.flatnonzero((numbers > self.high) | (numbers < self.low))
        found[outside] = [self.code(number) for number in numbers[outside].tolist()]
        return found

    def _half_octaves(self, upper: float, lower: float) -> int:
        """floor(2 log2((upper - lower)/(high - low))); 0 where all first numbers were equal.

        A logarithm could be rounded otherwise on another machine, so powers of 2 are taken apart.
        """
        if self.low == self.high:
            return 0
        (m, e), (unit, e_unit) = _distance(upper, lower), _distance(self.high, self.low)
        return 2 * (e - e_unit) + bisect_right(_ROOTS, m / unit) - 2

    def name_of(self, code: int) -> str:
        """What `segments` shows of a cell."""
        if code >= OUTSIDE:
            ends = [self.low + self._times(code - OUTSIDE + i) for i in (0, 1)]
            return f"above {self.high:.6g}" + (f": {_between(*ends)}" if self.low < self.high else "")
        if code <= -OUTSIDE:
            ends = [self.high - self._times(-code - OUTSIDE + i) for i in (1, 0)]
            return f"below {self.low:.6g}" + (f": {_between(*ends)}" if self.low < self.high else "")
        return _between(*(self.low, *self.edges, self.high)[code : code + 2])

    def _times(self, half_octaves: int) -> float:
        return (self.high - self.low) * (2.0 ** (half_octaves / 2) if half_octaves < 2000 else math.inf)


def _distance(upper: float, lower: float) -> tuple[float, int]:
    """upper - lower as m 2^e with m in [1/2, 1), also where it is larger than any float."""
    if math.isinf(upper - lower):
        m, e = math.frexp(upper / 2.0 - lower / 2.0)
        return m, e + 1
    return math.frexp(upper - lower)


def _between(low: float, high: float) -> str:
    if math.isinf(low) or math.isinf(high):
        return f"below {high:.6g}" if math.isinf(low) else f"{low:.6g} or more"
    return f"{low:.6g} to {high:.6g}" if low < high else f"{low:.6g}"


def _check_edges(name: str, edges: Any) -> tuple[float, ...]:
    if isinstance(edges, (str, bytes)) or not isinstance(edges, (Sequence, np.ndarray)):
        raise InvalidInput(f"edges of {name} must be a list of numbers, got {shown(edges)}")
    found = tuple(check_number(f"edges[{i}] of {name}", edge) + 0.0 for i, edge in enumerate(edges))
    if not 1 <= len(found) < MOST_CELLS_OF_NUMBER:
        raise InvalidInput(f"edges of {name} must be 1 to {MOST_CELLS_OF_NUMBER - 1} numbers, got {len(found)}")
    for i in range(1, len(found)):
        if found[i] <= found[i - 1]:
            raise InvalidInput(f"edges of {name} must increase, got {found[i]!r} after {found[i - 1]!r}")
    return found


# ---- values as floats ------------------------------------------------------------------------------------------------


def plain_number(name: str, value: Any) -> float:
    """A value of a numeric attribute as a finite float; NaN for a missing one.

    Raises
    ------
    InvalidInput : it is no number, or infinite.
    """
    if type(value) is not float:
        if is_absent(value):
            return math.nan
        if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(value, (Real, Decimal)):
            raise InvalidInput(f"{name} must be a number or None, got {type(value).__name__} {shown(value)}")
        try:
            value = float(value)
        except (OverflowError, ValueError):  # the latter of a NaN of decimal that signals
            raise InvalidInput(f"{name} must be a finite number or None, got {shown(value)}") from None
    if math.isinf(value):
        raise InvalidInput(f"{name} must be a finite number or None, got {value!r}")
    return value + 0.0  # without a minus before 0: of equal numbers it would matter which came first


def plain_numbers(name: str, column: Column) -> Vector:
    """The values of a column as `plain_number` has them.

    Raises
    ------
    InvalidInput : one is no number, or infinite; the message names its row.
    """
    values, numbers = column.values, np.empty(len(column))
    if isinstance(values, np.ndarray):
        are_plain = values.dtype.kind in "iuf"
        numbers[:] = values if are_plain else math.nan
    else:
        are_plain = numbers_of(values, numbers, False)
    if are_plain and not np.isinf(numbers).any():
        numbers[slice(0) if column.missing is None else column.missing] = math.nan
        return numbers + 0.0
    for row in range(len(column)):
        try:
            numbers[row] = plain_number(name, column.value(row))
        except InvalidInput as error:
            raise InvalidInput(f"{error} - at row {row}") from None
    return numbers
