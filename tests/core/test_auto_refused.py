"""What AUTO refuses: parts that do not fit, receipts that are damaged, and rows that cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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
from calibeat.core.limits import check_row


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
    with pytest.raises(InvalidInput, match=r"forecast (must be as it was issued|lane|seen)"):
        cal.update(Forecast.from_dict(change(receipt)), 1)
    assert cal.to_json() == before
    for lanes in (["x"], "x", 3, None):
        with pytest.raises(InvalidInput, match="forecast lane"):
            Forecast.from_dict(receipt | {"lanes": lanes})


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (38, 0.0, "row must have weights of lanes in [1e-18, 1], got 0.0"),
        (38, 0.5, "row must have weights of lanes that sum to 1, got 1.33"),
        (2, 1e300, "row must have parameters of lanes in [-1e+09, 1e+09], got 1e+300"),
        (14, -1.0, "row must have covariances of lanes in [0, 1.1], got -1.0"),
        (14, 1e300, "row must have covariances of lanes in [0, 1.1], got 1e+300"),
        (30, 1000.0, "row must have covariances of lanes in [-4.4, 4.4], got 1000.0"),
        (48, 0.0, "row must have A of OPS in [100, 100], got 0.0"),
        (52, 2.0, "row must have weights of splines in [1e-18, 1], got 2.0"),
        (88, 0.0, "row must have information of knots in [10, 10], got 0.0"),
        (59, -1000.0, "row must have knots in [-700, 700], got -1000.0"),
        (55, 1.0, "row must have a sum of outcomes in [0, 0], got 1.0"),
        (134, 0.0, "row must have evidence in [1e-100, 1e+100], got 0.0"),
    ],
)
def test_a_row_that_cannot_be_is_refused(at: int, value: float, message: str) -> None:
    row = AUTO.initial_row()
    check_row(AUTO, row, 0.0)
    row[at] = value
    with pytest.raises(InvalidInput) as error:
        check_row(AUTO, row, 0.0)
    assert message in str(error.value)
