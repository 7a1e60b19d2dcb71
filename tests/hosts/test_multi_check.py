"""Bad input is named by row and column, and nothing is taken."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from calibeat import InvalidInput, MultiCalibrator

GOOD = [[0.2, 0.3, 0.5]] * 3


def with_value(value: Any) -> list[list[Any]]:
    rows: list[list[Any]] = [list(row) for row in GOOD]
    rows[1][2] = value
    return rows


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.array(with_value(np.nan)), r"score must be a finite number, got nan - at row 1, column 2 \('bird'\)"),
        (np.array(with_value(np.inf)), r"score must be a finite number, got inf - at row 1, column 2"),
        (np.array(with_value(-0.5)), r"score must be 0 or more, got -0.5 - at row 1, column 2 .* - logits want"),
        (with_value(0.75), r"scores of an event must sum to 1 within 1e-06, got 1.25 - at row 1"),
        (with_value("0.5"), r"score must be a number, got str '0.5' - at row 1, column 2"),
        (with_value(True), r"score must be a number, got bool True - at row 1, column 2"),
        (with_value(None), r"score must be a number, got NoneType None - at row 1, column 2"),
        (np.array(with_value(None), dtype=object), r"score must be a number, got NoneType None - at row 1, column 2"),
        (np.array(GOOD).astype(str), r"score must be a number, got an array of <U"),
        ([[0.5, 0.5]], r"scores must have 3 columns, one for each class, got 2"),
        ([0.2, 0.3, 0.5], r"scores must be a matrix of 3 columns, one for each class, got shape \(3,\)"),
        ([[0.2, 0.3], [0.5]], r"scores must be a matrix of 3 columns, one for each class, got a ragged list"),
        (np.empty((0, 3)), r"arrays must not be empty, got length 0 for scores"),
    ],
)
def test_scores(scores: Any, message: str) -> None:
    cal = MultiCalibrator(["cat", "dog", "bird"])
    with pytest.raises(InvalidInput, match=message):
        cal.run(scores, ["cat"] * 3)
    with pytest.raises(InvalidInput, match=message):
        cal.predict_many(scores)
    assert cal.events == 0


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.2, 0.3], "scores must have 3 numbers, one for each class, got 2"),
        ([[0.2, 0.3, 0.5]], r"scores must be 3 numbers, one for each class, got shape \(1, 3\)"),
        ([0.2, 0.3, np.nan], "score must be a finite number, got nan - at column 2$"),
        ([0.2, -0.3, 1.1], "score must be 0 or more, got -0.3 - at column 1 - logits want logits=True"),
        ([0.2, 0.3, 0.4], "scores of an event must sum to 1 within 1e-06, got 0.9$"),
        ([0.2, "a", 0.4], "score must be a number, got str 'a' - at column 1"),
        ([0.2, [0.3], 0.5], "scores must be 3 numbers, one for each class, got a ragged list"),
        (0.5, "scores must be 3 numbers, one for each class, got float"),
    ],
)
def test_one_event(scores: Any, message: str) -> None:
    cal = MultiCalibrator(3)
    for ask in (cal.predict, cal.peek):
        with pytest.raises(InvalidInput, match=message):
            ask(scores)
    assert cal.events == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "fox", "dog"], "label must be one of the 3 classes 'cat', 'dog', 'bird', got 'fox' - at row 1$"),
        (["cat", "dgo", "dog"], r"got 'dgo' - at row 1 - did you mean 'dog'\?"),
        (["cat", ["dog"], "dog"], r"label must be one of .*, got \['dog'\] - at row 1"),
        (["cat", 1, "dog"], "got 1 - at row 1"),
        (["cat", None, "dog"], "got None - at row 1"),
        (["cat"], "arrays must have the same length, got scores 3, labels 1"),
        ([["cat"]] * 3, r"labels must be a one-dimensional array, got shape \(3, 1\)"),
    ],
)
def test_labels(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MultiCalibrator(["cat", "dog", "bird"]).run(GOOD, labels)


def test_one_label() -> None:
    cal = MultiCalibrator(["cat", "dog", "bird"])
    forecast = cal.predict(GOOD[0])
    for label in ("fox", 0, None, ["cat"]):
        with pytest.raises(InvalidInput, match="label must be one of the 3 classes 'cat', 'dog', 'bird', got"):
            cal.update(forecast, label)  # type: ignore[arg-type]
    assert cal.outcomes == 0


def test_numbered_labels() -> None:
    cal = MultiCalibrator(7)
    scores = np.full((2, 7), 1 / 7)
    with pytest.raises(InvalidInput, match="label must be one of the column numbers 0 to 6, got 7 - at row 1"):
        cal.run(scores, [0, 7])
    with pytest.raises(InvalidInput, match="got -1 - at row 0"):
        cal.run(scores, np.array([-1, 0]))
    with pytest.raises(InvalidInput, match=r"got 0.5 - at row 1"):
        cal.run(scores, [0.0, 0.5])
    with pytest.raises(InvalidInput, match=r"one of the 7 classes 'a', 'b', 'c', 'd', 'e', \.\.\., got 'z'"):
        MultiCalibrator(list("abcdefg")).run(scores, ["a", "z"])


def test_labels_that_never_arrive_may_be_anything() -> None:
    cal = MultiCalibrator(["cat", "dog", "bird"])
    cal.run(GOOD, ["cat", None, "nonsense"], due=[1, 3, 9])
    assert (cal.events, cal.outcomes) == (3, 1)
    with pytest.raises(InvalidInput, match="got None - at row 1"):
        cal.run(GOOD, ["cat", None, "dog"], due=[1, 2, 3])
    with pytest.raises(InvalidInput, match="due must be later than its own position 1, got 1 - at row 1"):
        cal.run(GOOD, ["cat"] * 3, due=[1, 1, 3])


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (1, "classes must be a whole number in"),
        (True, "classes must be a number of classes, or their labels"),
        ("abc", "classes must be a number of classes, or their labels in the order of the columns, got 'abc'"),
        (2.5, "classes must be a number of classes, or their labels"),
        ({"a", "b"}, "or their labels in the order of the columns"),
        (["a"], "classes must be at least 2 and at most 1000000, got 1"),
        (["a", "b", "a"], "classes must be different from one another, got 'a' again - at column 2"),
        ([1, 1.0], "classes must be different from one another, got 1.0 again - at column 1"),
        (["a", None], "class must be a string or a number, got None - at column 1"),
        ([0.5, float("nan")], "class must be a string or a number, got nan - at column 1"),
    ],
)
def test_classes(classes: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MultiCalibrator(classes)


def test_other_arguments() -> None:
    with pytest.raises(InvalidInput, match="method must be 'raw' or 'ots' or 'multi', got 'tops'"):
        MultiCalibrator(3, "tops")
    with pytest.raises(InvalidInput, match="logits must be True or False, got 'yes'"):
        MultiCalibrator(3, logits="yes")  # type: ignore[arg-type]


def test_whole_numbers_and_objects_are_scores() -> None:
    cal = MultiCalibrator(3)
    np.testing.assert_array_equal(cal.peek([1, 0, 0]), cal.peek(np.array([1.0, 0.0, 0.0])))
    np.testing.assert_array_equal(cal.peek(np.array([1, 0, 0], dtype=object)), cal.peek([1, 0, 0]))
    with pytest.raises(InvalidInput, match="got Decimal"):
        cal.peek([Decimal("0.5"), Decimal("0.5"), Decimal(0)])


def test_logits_beyond_the_largest() -> None:
    """They are finite, so the message names the bound."""
    for logits in ([0.0, 1e300, 2.0], [0.0, -1e308, 2.0]):
        with pytest.raises(
            InvalidInput, match=r"score must be a number between -1e300 and 1e300, got .* - at column 1$"
        ):
            MultiCalibrator(3, logits=True).predict(logits)
        with pytest.raises(InvalidInput, match=r"number between -1e300 and 1e300, got .* - at row 1, column 1$"):
            MultiCalibrator(3, logits=True).run([[0.0, 1e299, -1e299], logits], [0, 1])
    assert MultiCalibrator(3, logits=True).predict([0.0, 1e299, -1e299]).label == 1
