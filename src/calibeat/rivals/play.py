"""The loop of every rival: ask, and learn each outcome when it has arrived, in the order of arrival."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from calibeat._util.check import shown
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput


@runtime_checkable
class Rival(Protocol):
    """What a method of your own must have.

    >>> class Nothing:
    ...     def predict(self, score): return score
    ...     def update(self, score, outcome): pass
    >>> isinstance(Nothing(), Rival), isinstance("ops", Rival)
    (True, False)
    """

    def predict(self, score: float) -> float:
        """The probability that the outcome is 1, from a score in [0, 1]."""

    def update(self, score: float, outcome: float) -> None:
        """Learn the outcome, 0.0 or 1.0, of an event that had this score. It may come long after `predict`."""


def is_rival(thing: Any) -> bool:
    """An object with both methods, or something that makes one when it is called."""
    return isinstance(thing, Rival) or (callable(thing) and not isinstance(thing, str))


def maker_of(thing: Any, name: str = "rival") -> Callable[[], Rival]:
    """A function that makes a new rival: of a class or a function it is the call, of an object a deep copy.

    The object itself is never changed.
    """
    if isinstance(thing, type) or not isinstance(thing, Rival):
        if not callable(thing):
            raise InvalidInput(f"{name} must have predict(score) and update(score, outcome), got {shown(thing)}")

        def make() -> Rival:
            made = thing()
            if not isinstance(made, Rival):
                raise InvalidInput(
                    f"{name} must make an object with predict(score) and update(score, outcome), got {shown(made)}"
                )
            return made

        return make
    return lambda: copy.deepcopy(thing)


def probability_of(rival: Rival, score: float, name: str, event: int) -> float:
    """What a rival forecasts, which must be a probability."""
    answer = rival.predict(score)
    try:
        p = float(answer)
    except (TypeError, ValueError):
        p = -1.0
    if not 0.0 <= p <= 1.0:
        raise InvalidInput(f"{name} must predict a probability in [0, 1], got {shown(answer)} - at event {event}")
    return p


def play(
    rival_of: Callable[[int], Rival],
    slots: Sequence[int],
    scores: Vector,
    outcomes: Vector,
    due: Sequence[int],
    order: Sequence[int],
    *,
    first: int = 0,
    name: str = "rival",
    begin: int = 0,
    on_learnt: Callable[[int], None] | None = None,
) -> Vector:
    """Forecast the events from `first` on; outcome j of `order` is learnt just before prediction due[j].

    `order` is in the order of arrival. An outcome that is due one step behind the last event is learnt too. `begin` is
    the number of the event at `first`, for messages. `on_learnt` is told of each outcome.
    """
    asked, known = scores.tolist(), outcomes.tolist()
    n, arrived = len(asked), 0
    forecasts = np.empty(n - first)
    for i in range(first, n + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            rival_of(slots[j]).update(asked[j], known[j])
            if on_learnt is not None:
                on_learnt(j)
        if i < n:
            forecasts[i - first] = probability_of(rival_of(slots[i]), asked[i], name, begin + i - first)
    return forecasts
