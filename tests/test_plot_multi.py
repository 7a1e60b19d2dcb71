"""Displays of many classes: their numbers, and what they draw."""

from __future__ import annotations

import multi_streams
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibeat import InvalidInput, metrics
from calibeat.plot import ClasswiseReliabilityDisplay, ConfidenceReliabilityDisplay


def test_confidence() -> None:
    P, y = multi_streams.random(2000, 5)
    display = ConfidenceReliabilityDisplay.from_predictions(y, P, bins=8, name="model", color="red")
    curve = metrics.confidence_reliability_curve(y, P, bins=8)
    used = curve.count > 0
    assert np.array_equal(display.line_.get_xdata(), curve.mean_forecast[used])
    assert np.array_equal(display.line_.get_ydata(), curve.mean_outcome[used])
    assert display.ax_.get_xlabel() == "confidence of the top class" and display.line_.get_color() == "red"
    again = ConfidenceReliabilityDisplay.from_predictions(
        [list("abcde")[k] for k in y], P, classes=list("abcde"), bins=8, ax=display.ax_
    )
    assert again.ax_ is display.ax_ and np.array_equal(again.count, display.count)


def test_small_multiples() -> None:
    P, y = multi_streams.random(2000, 5)
    y[y == 3] = 1
    display = ClasswiseReliabilityDisplay.from_predictions(np.array(list("abcde"))[y], P, classes=list("abcde"))
    assert display.names[0] == "b" and display.names[-1] == "d" and len(display.panels) == 5
    assert display.axes_.shape == (2, 3) and not display.axes_[1, 2].get_visible()
    first = metrics.reliability_curve(y == 1, P[:, 1])
    assert np.array_equal(display.panels[0].count, first.count)
    assert display.axes_[0, 0].get_title() == "b" and display.axes_[0, 1].get_ylabel() == ""
    assert display._repr_png_()[:4] == b"\x89PNG"


def test_only_the_most_common_classes() -> None:
    P, y = multi_streams.random(500, 65)
    figure = Figure()
    display = ClasswiseReliabilityDisplay.from_predictions(y, P, most=4, figure=figure)
    assert display.figure_ is figure and len(display.panels) == 4
    assert display.names[0] == str(np.bincount(y).argmax())
    assert len(ClasswiseReliabilityDisplay.from_predictions(y, P).panels) == 12
    with pytest.raises(InvalidInput, match="most must be"):
        ClasswiseReliabilityDisplay.from_predictions(y, P, most=0)
