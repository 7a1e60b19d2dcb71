"""The part of a report's data that is about decisions: actions and cost at a threshold, net benefit by threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from .schema import Axis, Number, Triple


class Prices(TypedDict):
    """Act where the forecast is at least the threshold fp / (fp + fn)."""

    threshold: float
    fp: float  # what an action for nothing costs
    fn: float  # what a missed event costs; 1 where only the threshold was given
    given: bool


class Action(TypedDict):
    method: str
    actions: int
    hits: int  # actions where it happened
    for_nothing: int
    missed: int
    new: int  # actions where the raw score does not act, and how many of them were right
    new_hits: int
    dropped: int  # the other way round
    dropped_hits: int
    cost: float
    cost_per_1000: float
    saved_per_1000: Triple  # against the raw score, with its 95 % interval


class ActionsOverTime(TypedDict):
    by: Axis
    x: list[str | int]
    methods: dict[str, list[list[float]]]  # saved against the raw score so far, low, high


class DecisionCurve(TypedDict):
    threshold: list[float]
    everyone: list[Number]  # net benefit of acting on every event
    methods: dict[str, list[Number]]


class Decisions(TypedDict):
    curve: DecisionCurve
    costs: Prices | None  # nothing below without them
    actions: list[Action]
    over_time: ActionsOverTime | None
    sentence: str
