"""The shape that every part of a method has.

A part is a frozen dataclass of hyper-parameters beside its kernel functions. It says the same few things about itself:

=======================  =============================================================================================
``code``                 the number by which the kernels know it
``initial``              its numbers in the row of a stream that has seen nothing
``numbers``              its code and hyper-parameters, by their names in `Spec`
``limits``               what its numbers in a row can be, as blocks of `limits.Limit`
``params``               its parameters in a row, by name
``export``               its steps of the frozen formula
``check_features``       raises unless it can work with these features
=======================  =============================================================================================

A class with a `code` registers itself in `PARTS` under its name in lower case, so nothing else has to list it.

A frozen method is a `Formula`: named steps from the score to the forecast. `calibeat.export` prints them, and lists the
operators. An expression is a number, the name of an earlier step, or a tuple such as ``("*", 2.0, ("ln", "f"))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .layout import THETA
from .limits import Block

Columns = dict[str, npt.NDArray[Any]]
Expression = float | str | tuple[Any, ...]

PARTS: dict[str, dict[str, type[Part]]] = {"features": {}, "learner": {}, "calibeater": {}, "guard": {}}
READ: dict[str, Any] = {}  # the methods that were read from data lately, by the data as text
LARGEST_EXPONENT = 700.0  # beyond it e^z is no float any more


# ---- the frozen formula ---------------------------------------------------------------------------------------------


@dataclass
class Formula:
    """The numbers of the map by name, and its steps in their order."""

    numbers: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[str, Expression]] = field(default_factory=list)

    def add(self, name: str, expression: Expression) -> None:
        """One more step."""
        self.steps.append((name, expression))


def sigmoid_of(z: Expression) -> Expression:
    """1 / (1 + e^-z)"""
    return ("/", 1.0, ("+", 1.0, ("exp", ("-", 0.0, z))))


def at_the_clip(clip: float, low: Expression, high: Expression, between: Expression) -> Expression:
    """One expression for scores at the lower clip, one at the upper clip, one for those between."""
    return ("if<=", "f", clip, low, ("if>=", "f", 1.0 - clip, high, between))


# ---- the parts ------------------------------------------------------------------------------------------------------


class Part:
    """What features, learners and calibeaters share."""

    slot: ClassVar[str]  # which argument of `Method` it is
    code: ClassVar[int]
    receipt: ClassVar[tuple[int, ...]] = ()  # the places of the receipt that it looks at again, all probabilities
    no_formula: ClassVar[str] = ""  # why it cannot be exported; the name of the method goes in {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in vars(cls):
            PARTS[cls.slot][cls.__name__.lower()] = cls
            READ.clear()  # the same name may mean another part now

    def numbers(self) -> dict[str, float]:
        """Its code and its hyper-parameters, by their names in `Spec`."""
        return {self.slot: self.code}


class Features(Part):
    """What the learner sees of a score."""

    slot = "features"
    names: ClassVar[tuple[str, ...]] = ()  # of the parameters of a scaling
    refit: ClassVar[Callable[..., None]]  # the kernel that fits them to a history, for `Fixed` and `FTL`

    @property
    def dimension(self) -> int:
        """d, the number of parameters; 0 where there is no theta."""
        return len(self.names)

    def check_learner(self, learner: Learner | None) -> None:
        """Raise `InvalidInput` unless these features can go with this learner."""

    def initial(self) -> list[float]:
        """The numbers in the row of a stream that has seen nothing, where the learner needs no others."""
        raise NotImplementedError  # pragma: no cover - every part has its own

    @property
    def reach(self) -> tuple[float, ...]:
        """How far each of the features can be from 0, and a hundredth more for rounding."""
        return ()

    def limits(self, radius: float) -> list[Block]:
        """What its parameters can be, whose learner keeps them this near to 0, or leaves them at their start."""
        raise NotImplementedError  # pragma: no cover - every part has its own

    def params(self, row: Any) -> dict[str, Any]:
        """The parameters by their names in the paper."""
        return dict(zip(self.names, row[THETA : THETA + self.dimension], strict=True))

    def export(self, formula: Formula, params: dict[str, Any], *, exact: bool) -> None:
        """The steps from the score to the expert; `exact`: what follows may need the bits of the kernel."""
        raise NotImplementedError  # pragma: no cover - every part has its own


class Learner(Part):
    """What moves the parameters."""

    slot = "learner"
    refits: ClassVar[bool] = False  # whether the host has to keep past events for it

    @property
    def ball(self) -> float | None:
        """The radius of the ball that the parameters must not leave, if there is one."""
        return None

    def check_features(self, features: Features | None) -> None:
        """Raise `InvalidInput` unless it can learn parameters of these features."""
        if features is None:
            name = type(self).__name__
            raise InvalidInput(f"{name} needs features to learn parameters for (Platt, Beta or Temperature), got None")

    def initial(self, features: Features) -> list[float]:
        """The learner's numbers in the row of a stream that has seen nothing: theta, then what else it keeps."""
        return features.initial()

    def tail(self) -> list[float]:
        """More of its numbers, for the end of the row: those that most events do not touch."""
        return []

    def limits(self, features: Features) -> list[Block]:
        """What its numbers can be."""
        raise NotImplementedError  # pragma: no cover - every part has its own

    def tail_limits(self) -> list[Block]:
        """What the numbers of `tail` can be."""
        return []

    def params(self, row: Any, features: Features) -> dict[str, Any]:
        """The parameters by their names; of a matrix with a stream in each column: arrays."""
        return features.params(row)

    def params_of_rows(self, rows: Vector, features: Features) -> Columns:
        """The parameters of many rows, a column for each."""
        return {name: np.array(column) for name, column in self.params(rows.T, features).items()}

    def export(self, formula: Formula, row: list[float], features: Features, *, exact: bool) -> None:
        """The steps from the score to the expert."""
        features.export(formula, self.params(row, features), exact=exact)


class Calibeater(Part):
    """What the past outcomes of a bin do to the expert."""

    slot = "calibeater"
    bins: int
    draws: ClassVar[bool] = False  # whether the forecast is drawn at random

    def check_features(self, features: Features | None) -> None:
        """Raise `InvalidInput` unless it can work with these features."""

    def initial(self) -> list[float]:
        """Its numbers in the row of a stream that has seen nothing."""
        raise NotImplementedError  # pragma: no cover - every part has its own

    def limits(self) -> list[Block]:
        """What its numbers can be."""
        raise NotImplementedError  # pragma: no cover - every part has its own

    def export(self, formula: Formula, cells: list[float], features: Features | None, scale: float) -> None:
        """The steps from the expert to the forecast. `scale` is that of the weights of outcomes: `weights`."""
        raise NotImplementedError  # pragma: no cover - every part has its own
