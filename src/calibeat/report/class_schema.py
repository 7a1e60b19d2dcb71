"""What the page draws of many classes: a part of the payload, see `schema`."""

from __future__ import annotations

from typing import TypedDict

from .schema import Axis, Curve, Number


class ClassMethod(TypedDict):
    """What a method did for each class that is shown."""

    classwise_ce: Number  # the mean over all classes, shown or not
    ce: list[Number]
    mean: list[Number]  # forecast
    curves: list[Curve]


class Priors(TypedDict):
    """Shares of the classes that are shown, over stretches of the log."""

    by: Axis
    x: list[str] | list[int]  # where each stretch begins
    happened: list[list[Number]]  # a list for each class
    scores: list[list[Number]]  # the mean raw score
    forecasts: dict[str, list[list[Number]]]  # the mean forecast of each method
    times: list[list[Number]] | None  # how many times as common as the scores assume, by MULTI's biases


class Classes(TypedDict):
    """Many classes. In the rest of the payload forecasts are confidences of the top class, outcomes its hits."""

    total: int
    names: list[str]  # of those that are shown, the most common first
    count: list[int]  # judged labels
    mean_score: list[Number]
    methods: dict[str, ClassMethod]
    priors: Priors
