"""Displays: their numbers, what they draw, and that they leave matplotlib as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from scipy.stats import binomtest

from calibeat import BM, Calibrator, InvalidInput, MissingExtra, metrics
from calibeat.plot import CalibrationOverTimeDisplay, ReliabilityDisplay, wilson


def events(n: int = 2000) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    forecasts = rng.beta(2, 3, n)
    return (rng.random(n) < forecasts**1.5).astype(int), forecasts


class Result:
    """A backtest of two methods in the shape of its payload."""

    def __init__(self, by: str = "time") -> None:
        self.by = by

    def payload(self) -> dict[str, Any]:
        times = [f"2026-0{m}-01T00:00:00+00:00" for m in range(1, 5)]
        bins = {
            "count": [100, 0, 50], "forecast": [0.2, None, 0.8], "outcome": [0.3, None, 0.7],
            "low": [0.22, None, 0.56], "high": [0.4, None, 0.81],
        }  # fmt: skip
        windows = {
            "by": self.by, "count": [60, 0, 90], "methods": {
                "raw": {"ce": [0.1, None, 0.2]}, "auto": {"ce": [0.05, None, 0.02]},
            },
            "start": times[:-1] if self.by == "time" else [0, 60, 60],
            "end": times[1:] if self.by == "time" else [60, 60, 150],
        }  # fmt: skip
        labels = [{"name": "raw", "label": "raw score"}, {"name": "auto", "label": "AUTO"}]
        reliability = {"bins": 3, "methods": {"raw": [bins, bins], "auto": [bins]}}
        return {"verdict": {"method": "auto"}, "methods": labels, "windows": windows, "reliability": reliability}


def test_wilson_is_that_of_scipy() -> None:
    for k, n in ((0, 10), (3, 10), (10, 10), (1, 1), (500, 1000)):
        for confidence in (0.9, 0.95):
            want = binomtest(k, n).proportion_ci(confidence, method="wilson")
            low, high = wilson(k / n, n, confidence)
            assert float(low) == pytest.approx(want.low, abs=1e-12)
            assert float(high) == pytest.approx(want.high, abs=1e-12)
    assert np.isnan(wilson(np.nan, 0)).all()


def test_a_reliability_diagram_shows_the_curve() -> None:
    y, p = events()
    display = ReliabilityDisplay.from_predictions(y, p, bins=8, name="model", color="red")
    curve = metrics.reliability_curve(y, p, bins=8)
    used = curve.count > 0
    assert np.array_equal(display.line_.get_xdata(), curve.mean_forecast[used])
    assert np.array_equal(display.line_.get_ydata(), curve.mean_outcome[used])
    assert display.line_.get_label() == "model" and display.line_.get_color() == "red"
    assert (display.low[used] <= curve.mean_outcome[used]).all() and (
        display.high[used] >= curve.mean_outcome[used]
    ).all()
    heights = np.array([bar.get_height() for bar in display.bars_])
    assert np.allclose(heights / heights.max(), curve.count / curve.count.max())
    assert display.ax_.figure is display.figure_ and isinstance(display.figure_, Figure)
    assert display.ax_.get_xlabel() == "mean forecast" and display.ax_.get_legend() is not None
    assert f"tallest bar: {curve.count.max():,} events" in [text.get_text() for text in display.ax_.texts]


def test_two_displays_share_axes() -> None:
    y, p = events()
    axes = Figure().add_subplot()
    first = ReliabilityDisplay.from_predictions(y, p, name="one", ax=axes)
    second = ReliabilityDisplay.from_predictions(y, p**1.5, name="two", ax=axes)
    assert first.ax_ is second.ax_ is axes
    assert axes.get_legend_handles_labels()[1] == ["perfectly calibrated", "one", "two"]
    assert len(axes.texts) == 1  # the counts of the second would lie upon those of the first
    again = second.plot(name="by another name")
    assert again is second and second.ax_ is not axes and second.line_.get_label() == "by another name"


def test_the_error_of_each_window() -> None:
    y, p = events()
    display = CalibrationOverTimeDisplay.from_predictions(pl.Series(y), pl.Series(p), windows=4, name="model")
    want = [metrics.calibration_error(y[i : i + 500], p[i : i + 500]) for i in range(0, 2000, 500)]
    assert np.allclose(display.line_.get_ydata(), want)
    assert display.count.tolist() == [500] * 4 and display.x.tolist() == [250, 750, 1250, 1750]
    assert display.ax_.get_xlabel() == "event" and display.ax_.get_ylim()[0] == 0.0


def test_the_shade_is_what_true_probabilities_show_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(20):
        p = rng.random(1000)
        display = CalibrationOverTimeDisplay.from_predictions(rng.random(1000) < p, p, windows=10)
        assert display.noise is not None
        inside += (display.error <= display.noise).tolist()
    assert 0.90 <= np.mean(inside) <= 1.0


def test_times_on_the_axis() -> None:
    y, p = events()
    hours = pd.date_range("2026-01-01", periods=2000, freq="h")
    for times in (hours, pd.Series(hours), pl.Series(hours)):
        display = CalibrationOverTimeDisplay.from_predictions(y, p, times=times)
        assert display.by == "time" and display.ax_.get_xlabel() == "time"
        assert display.x.dtype.kind == "M"
        display.figure_.canvas.draw()
    assert CalibrationOverTimeDisplay.from_predictions(y, p, windows=1).line_ is not None
    assert len(CalibrationOverTimeDisplay.from_predictions(y[:7], p[:7]).x) == 7


def test_from_a_backtest() -> None:
    display = ReliabilityDisplay.from_backtest(Result())
    assert display.line_.get_label() == "AUTO" and display.line_.get_xdata().tolist() == [0.2, 0.8]
    assert display.low[[0, 2]].tolist() == [0.22, 0.56] and display.count.tolist() == [100, 0, 50]
    assert ReliabilityDisplay.from_backtest(Result(), method="raw", period=1, name="mine").line_.get_label() == "mine"
    over_time = CalibrationOverTimeDisplay.from_backtest(Result(), method="raw")
    assert over_time.x.astype(str).tolist()[0] == "2026-01-16T12:00:00.000000"
    assert np.isnan(over_time.error[1]) and over_time.error[[0, 2]].tolist() == [0.1, 0.2]
    assert over_time.noise is not None and np.isnan(over_time.noise[1]) and (over_time.noise[[0, 2]] > 0).all()
    assert CalibrationOverTimeDisplay.from_backtest(Result("event")).x.tolist() == [30, 60, 105]
    plain = CalibrationOverTimeDisplay([1, 2], [0.1, None], [5, 5]).plot()
    assert plain.band_ is None and plain.ax_.get_legend() is None


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    y, p = events()
    for display in (ReliabilityDisplay.from_predictions(y, p), CalibrationOverTimeDisplay.from_backtest(Result())):
        path = tmp_path / "picture.png"
        display.figure_.savefig(path)
        assert path.stat().st_size > 5000


def test_matplotlib_is_left_as_it_was() -> None:
    y, p = events()
    before = dict(mpl.rcParams)
    ReliabilityDisplay.from_predictions(y, p)
    CalibrationOverTimeDisplay.from_predictions(y, p)
    assert dict(mpl.rcParams) == before
    program = (
        "import sys; from calibeat.plot import ReliabilityDisplay as R; assert 'matplotlib' not in sys.modules;"
        "R.from_predictions([0, 1], [0.2, 0.8]); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_is_refused() -> None:
    y, p = events(50)
    for message, work in (
        ("outcome must be 0 or 1, got 2.0 - at row 1", lambda: ReliabilityDisplay.from_predictions([0, 2], [0.1, 0.2])),
        ("forecast must be in", lambda: CalibrationOverTimeDisplay.from_predictions([0, 1], [0.1, 1.2])),
        ("same length", lambda: CalibrationOverTimeDisplay.from_predictions([0, 1], [0.1])),
        ("same length", lambda: CalibrationOverTimeDisplay.from_predictions(y, p, times=[1, 2])),
        ("windows must be a whole number", lambda: CalibrationOverTimeDisplay.from_predictions(y, p, windows=51)),
        ("bins must be", lambda: ReliabilityDisplay.from_predictions(y, p, bins=0)),
        ("confidence must be", lambda: ReliabilityDisplay.from_predictions(y, p, confidence=95)),
        ("must be a BacktestResult, got Calibrator", lambda: ReliabilityDisplay.from_backtest(Calibrator(BM))),
        ("must be one of those replayed, raw, auto, got 'ops'",
         lambda: ReliabilityDisplay.from_backtest(Result(), method="ops")),
        ("period must be", lambda: ReliabilityDisplay.from_backtest(Result(), period=7)),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=message):
            work()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[plot\]'"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.8])
