"""A frozen method as a formula: named steps from the score to the forecast, which `calibeat.export` prints.

An expression is a number, the name of an earlier step, or a tuple (operator, argument, ...) such as
``("*", 2.0, ("ln", "f"))``; `calibeat.export` lists the operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Expression = float | str | tuple[Any, ...]

LARGEST_EXPONENT = 700.0  # beyond it e^z is no float any more


@dataclass
class Formula:
    """The numbers of the map by name, and its steps in their order."""

    numbers: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[str, Expression]] = field(default_factory=list)

    def add(self, name: str, expression: Expression) -> None:
        """One more step."""
        self.steps.append((name, expression))

    def has(self, name: str) -> bool:
        """Whether there is a step of this name."""
        return any(known == name for known, _ in self.steps)

    @property
    def last(self) -> str:
        """The name of the last step."""
        return self.steps[-1][0]


def odds(f: str) -> Expression:
    """f / (1 - f)"""
    return ("/", f, ("-", 1.0, f))


def sigmoid_of(z: Expression) -> Expression:
    """1 / (1 + e^-z)"""
    return ("/", 1.0, ("+", 1.0, ("exp", ("-", 0.0, z))))


def clamped(p: Expression, low: float, high: float) -> Expression:
    """p, not below low and not above high."""
    return ("clamp", p, low, high)


def not_below(z: Expression, least: float) -> Expression:
    """z, or the least value that is allowed."""
    return ("if<=", z, least, least, z)


def at_the_clip(clip: float, low: Expression, high: Expression, between: Expression) -> Expression:
    """One expression for scores at the lower clip, one at the upper clip, one for those between."""
    return ("if<=", "f", clip, low, ("if>=", "f", 1.0 - clip, high, between))
