"""What AUTO refuses: parts that do not fit, receipts that are damaged, and rows that cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibeat import (
    AUTO,
    FTL,
    HOPS,
    OPS,
    Beta,
    Calibrator,
    Forecast,
    Histogram,
    InvalidInput,
    Lanes,
    Method,
    Platt,
    Spline,
    bounds,
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Method(Platt(), Lanes()),
            "Lanes needs Beta features that start at the identity (1.0, -1.0, 0.0), got Pl",
        ),
        (lambda: Method(Beta(start=(1.0, 1.0, 0.0)), Lanes()), "identity (1.0, -1.0, 0.0), got Beta(start=(1.0, 1.0"),
        (
            lambda: Method(None, Lanes()),
            "Lanes needs Beta features that start at the identity (1.0, -1.0, 0.0), got None",
        ),
        (lambda: Method(Beta(clip=0.1), Lanes()), "Lanes needs Beta features with a clip of at most 0.002, got 0.1"),
        (
            lambda: Method(None, None, Spline()),
            "Spline needs a scaling to correct (Platt, Beta or Temperature), got None",
        ),
        (lambda: Method(Histogram(), FTL(), Spline()), "(Platt, Beta or Temperature), got Histogram"),
        (lambda: Method(Beta(), Spline()), "Spline belongs in the calibeater of a method, got it as learner"),
        (
            lambda: Calibrator(HOPS).evidence,
            "evidence must be kept by a method with Lanes or a Spline, such as AUTO, got",
        ),
        (lambda: Calibrator(OPS).evidence, "such as AUTO, got ops"),
        (lambda: bounds.auto_loss(0), "T must be a whole number"),
        (lambda: bounds.lanes_loss(1.5), "T must be a whole number"),
        (lambda: bounds.spline_loss(-1), "T must be a whole number"),
    ],
)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda receipt: receipt | {"lanes": []},
        lambda receipt: receipt | {"lanes": receipt["lanes"][:-1]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:4], math.nan, *receipt["lanes"][5:]]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:1], 0.0, *receipt["lanes"][2:]]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:7], 1.0, *receipt["lanes"][8:]]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:7], 5e-324, 0.0, 0.0, *receipt["lanes"][10:]]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:1], 1e-300, *receipt["lanes"][2:]]},
        lambda receipt: receipt | {"lanes": [*receipt["lanes"][:2], *[5e-324] * 5, *receipt["lanes"][7:]]},
        lambda receipt: receipt | {"score": 0.31},
        lambda receipt: receipt | {"seen": 7},
        lambda receipt: receipt | {"seen": 7, "lanes": [7.0, *receipt["lanes"][1:]]},
        lambda receipt: receipt | {"probability": 0.123},
    ],
)
def test_a_damaged_receipt_is_refused(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    cal = Calibrator(AUTO)
    receipt = cal.predict(0.3).to_dict()
    before = cal.to_json()
    with pytest.raises(InvalidInput, match=r"forecast (must remember the 12 numbers of its mixture|lane|seen)"):
        cal.update(Forecast.from_dict(change(receipt)), 1)
    assert cal.to_json() == before
    for lanes in (["x"], "x", 3, None):
        with pytest.raises(InvalidInput, match="forecast lane"):
            Forecast.from_dict(receipt | {"lanes": lanes})


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (38, 0.0, "row must have weights of lanes that sum to one, none of them lost, got"),
        (38, 0.5, "row must have weights of lanes that sum to one, none of them lost, got"),
        (2, 1e300, "row must have lanes with parameters in [-1e+06, 1e+06]"),
        (14, -1.0, "row must have lanes with positive variances up to their cap"),
        (14, 1e300, "row must have lanes with positive variances up to their cap"),
        (30, 1000.0, "row must have lanes with positive variances up to their cap"),
        (48, 0.0, "row must have a lane of OPS with a positive definite matrix"),
        (52, 2.0, "row must have weights of splines that sum to one"),
        (88, 0.0, "row must have knots with an information of 10 or more"),
        (59, -1000.0, "row must have knots with offsets in [-700, 700]"),
        (55, 1.0, "row must have sums of outcomes within their"),
        (134, 0.0, "row must hold its evidence as a ratio in [1e-100, 1e+100], got 0.0"),
    ],
)
def test_a_row_that_cannot_be_is_refused(at: int, value: float, message: str) -> None:
    rows, events = AUTO.initial_row()[None], np.zeros(1)
    AUTO.check_rows(rows, events)
    rows[0, at] = value
    with pytest.raises(InvalidInput) as error:
        AUTO.check_rows(rows, events)
    assert message in str(error.value)
