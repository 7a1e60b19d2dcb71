"""Displays: their numbers, what they draw, and that they leave matplotlib as it was."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import binomtest

from calibeat import AUTO, BM, TOPS, Calibrator, InvalidInput, MissingExtra, Monitor, backtest, metrics
from calibeat.backtest import BacktestResult
from calibeat.plot import CalibrationOverTimeDisplay, MonitorDisplay, ReliabilityDisplay, wilson


def events(n: int = 2000) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    forecasts = rng.beta(2, 3, n)
    return (rng.random(n) < forecasts**1.5).astype(int), forecasts


@cache
def replayed(*, dated: bool = True) -> BacktestResult:
    """A real backtest."""
    y, p = events()
    times = pd.Series(pd.date_range("2026-01-01", periods=2000, freq="h", tz="Europe/Oslo")) if dated else None
    return backtest(p, y, times=times, methods={"auto": AUTO, "mine": TOPS}, warmup=200, bins=8)


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
    assert len(axes.texts) == 1  # there is one scale
    again = second.plot(name="by another name")
    assert again is second and second.ax_ is not axes and second.line_.get_label() == "by another name"


def test_the_counts_on_shared_axes_have_one_scale() -> None:
    rng = np.random.default_rng(0)
    axes = Figure().add_subplot()
    displays = []
    for n in (100, 50_000, 3000):
        p = rng.random(n)
        displays.append(ReliabilityDisplay.from_predictions(rng.random(n) < p, p, ax=axes, name=f"{n}"))
        most = max(int(display.count.max()) for display in displays)
        for display in displays:
            heights = [bar.get_height() for bar in display.bars_]
            assert np.allclose(heights, 0.13 * display.count / most)
        assert [text.get_text() for text in axes.texts] == [f"tallest bar: {most:,} events"]


def test_other_names_of_the_arguments_of_a_line() -> None:
    y, p = events(100)
    for display in (
        ReliabilityDisplay.from_predictions(y, p, ms=10, ls="--", c="red", lw=3),
        CalibrationOverTimeDisplay.from_predictions(y, p, ms=10, ls="--", c="red", lw=3),
    ):
        line = display.line_
        assert (line.get_markersize(), line.get_linestyle(), line.get_linewidth()) == (10, "--", 3)
        assert line.get_color() == "red"


def test_a_notebook_shows_a_display() -> None:
    y, p = events(100)
    display = ReliabilityDisplay.from_predictions(y, p)
    picture = display._repr_png_()
    assert picture is not None and picture.startswith(b"\x89PNG") and len(picture) > 5000
    part = Figure().subfigures(1, 2)[0].add_subplot()
    whole = CalibrationOverTimeDisplay.from_predictions(y, p, ax=part)._repr_png_()
    assert whole is not None and whole.startswith(b"\x89PNG")
    assert CalibrationOverTimeDisplay([1, 2], [0.1, 0.2], [5, 5])._repr_png_() is None  # nothing is drawn yet
    figure = Figure()
    manager = FigureManagerBase(FigureCanvasAgg(figure), 1)
    assert ReliabilityDisplay.from_predictions(y, p, ax=figure.add_subplot())._repr_png_() is None  # pyplot shows it
    assert figure.canvas.manager is manager


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


HOURS = pd.date_range("2026-01-01", periods=400, freq="h")
UTC = HOURS.tz_localize("UTC")


@pytest.mark.parametrize(
    "times",
    [
        HOURS,
        pd.Series(HOURS),
        pl.Series(HOURS),
        pa.array(HOURS),
        HOURS.to_numpy(),
        list(HOURS.to_pydatetime()),
        [str(hour) for hour in HOURS],
        [hour.isoformat() + "+00:00" for hour in HOURS],
        UTC,
        pd.Series(UTC),
        pl.Series(UTC),
        pd.Series(HOURS.tz_localize("UTC").tz_convert("Asia/Tokyo")),
        list(UTC.to_pydatetime()),
        pd.period_range("2026-01-01", periods=400, freq="h"),
        pd.Series(pd.period_range("2026-01-01", periods=400, freq="h")),
    ],
    ids=lambda times: f"{type(times).__module__}.{type(times).__name__}"[:40],
)
def test_times_on_the_axis(times: Any) -> None:
    y, p = events(400)
    display = CalibrationOverTimeDisplay.from_predictions(y, p, times=times, windows=4)
    assert display.by == "time" and display.ax_.get_xlabel() == "time" and display.x.dtype.kind == "M"
    assert np.array_equal(display.x, HOURS.to_numpy()[50::100]) and np.array_equal(display.start, HOURS[::100])
    assert display.end[-1] == HOURS[-1]
    display.figure_.canvas.draw()


@pytest.mark.parametrize("times", [np.arange(400) * 5, np.arange(400) + 1_700_000_000, (np.arange(400) / 7).tolist()])
def test_times_that_are_numbers_stay_numbers(times: Any) -> None:
    y, p = events(400)
    display = CalibrationOverTimeDisplay.from_predictions(y, p, times=times, windows=4)
    assert display.x.tolist() == np.asarray(times)[50::100].tolist()
    assert type(display.ax_.xaxis.get_major_formatter()).__name__ == "ScalarFormatter"
    widths = [bar.get_width() for bar in display.bars_]
    assert np.allclose(widths, display.end - display.start) and display.ax_.get_xlabel() == "time"


def test_windows_are_as_wide_as_their_time() -> None:
    y, p = events(400)
    burst = np.concatenate([np.arange(300) / 3600, 1000.0 + np.arange(100)])  # 300 events in 5 minutes, weeks later 100
    display = CalibrationOverTimeDisplay.from_predictions(y, p, times=burst, windows=4)
    widths = [bar.get_width() for bar in display.bars_]
    assert np.allclose(widths, [100 / 3600, 100 / 3600, 1000.0 - 200 / 3600, 99.0])
    assert all(bar.get_linewidth() > 0 for bar in display.bars_)  # there, however narrow
    same = CalibrationOverTimeDisplay.from_predictions(y, p, times=[HOURS[0]] * 400)
    same.figure_.canvas.draw()
    assert CalibrationOverTimeDisplay.from_predictions(y, p, windows=1).line_ is not None
    assert len(CalibrationOverTimeDisplay.from_predictions(y[:7], p[:7]).x) == 7


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([3, 1, 2], r"time must not go back, got 1 after 3 - at row 1"),
        (["2026-01-02", "2026-01-03", "2026-01-01"], "must not go back, got 2026-01-01 after 2026-01-03 - at row 2"),
        (pd.Series([HOURS[0], pd.NaT, HOURS[1]]), "must be a date or a number, got nothing - at row 1"),
        ([1.0, 2.0, np.nan], "must be a date or a number, got nothing - at row 2"),
        (["2026-01-02", "soon", "2026-01-03"], "must be a date or a number, got 'soon' - at row 1"),
        ([[1], [2], [3]], "must be a one-dimensional array"),
    ],
)
def test_times_that_are_none(times: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CalibrationOverTimeDisplay.from_predictions([0, 1, 1], [0.1, 0.2, 0.3], times=times)


@pytest.mark.parametrize("dated", [True, False])
def test_from_a_backtest(dated: bool) -> None:
    result = replayed(dated=dated)
    payload: Any = result.payload
    display = ReliabilityDisplay.from_backtest(result)
    assert display.line_.get_label() == next(m["label"] for m in payload["methods"] if m["name"] == result.best)
    shown = ReliabilityDisplay.from_backtest(result, method="raw", period=1, name="mine")
    bins = payload["reliability"]["methods"]["raw"][1]
    assert shown.line_.get_label() == "mine" and shown.count.tolist() == bins["count"]
    used = shown.count > 0
    want = [value for value in bins["outcome"] if value is not None]
    assert shown.line_.get_ydata().tolist() == want and shown.low[used].tolist() == [
        v for v in bins["low"] if v is not None
    ]
    over_time = CalibrationOverTimeDisplay.from_backtest(result, method="auto")
    windows = result.windows
    assert np.array_equal(over_time.error, windows["methods"]["auto"]["ce"], equal_nan=True)
    assert np.array_equal(over_time.count, windows["count"]) and over_time.by == ("time" if dated else "event")
    assert over_time.noise is not None and (over_time.noise > 0).all()
    assert np.array_equal(over_time.start, windows["start"]) and np.array_equal(over_time.end, windows["end"])
    assert ((over_time.x >= over_time.start) & (over_time.x <= over_time.end)).all()
    over_time.figure_.canvas.draw()


def test_a_method_goes_by_its_name_or_its_label_in_any_case() -> None:
    labels = {m["name"]: m["label"] for m in replayed().payload["methods"]}
    for name, label in labels.items():
        for asked in (name, name.upper(), label, label.lower()):
            assert ReliabilityDisplay.from_backtest(replayed(), method=asked).line_.get_label() == label


def test_a_backtest_with_more_bins_than_a_window_has_events_has_no_shade() -> None:
    y, p = events(60)
    few = CalibrationOverTimeDisplay.from_backtest(backtest(p, y, methods="ops", warmup=0, bins=100), method="ops")
    assert few.noise is not None and np.isnan(few.noise).all() and few.count.sum() == 60
    few.figure_.canvas.draw()


def test_without_noise_or_windows_that_are_known() -> None:
    plain = CalibrationOverTimeDisplay([1, 2], [0.1, None], [5, 5]).plot()
    assert plain.band_ is None and plain.ax_.get_legend() is None
    assert [bar.get_width() for bar in plain.bars_] == pytest.approx([0.9, 0.9])


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    y, p = events()
    for display in (ReliabilityDisplay.from_predictions(y, p), CalibrationOverTimeDisplay.from_backtest(replayed())):
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
        (
            "must be one of those replayed, raw, auto, mine, got 'ops'",
            lambda: ReliabilityDisplay.from_backtest(replayed(), method="ops"),
        ),
        (
            "must be one of those replayed, raw, auto, mine, got 3",
            lambda: ReliabilityDisplay.from_backtest(replayed(), method=3),
        ),
        ("period must be", lambda: ReliabilityDisplay.from_backtest(replayed(), period=700)),
    ):
        with pytest.raises(InvalidInput, match=message):
            work()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[plot\]'"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.8])


# ---- the monitor -------------------------------------------------------------------------------------------------


def broken(n: int = 3000) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    forecasts = rng.random(n)
    return (rng.random(n) < np.where(np.arange(n) < 2000, forecasts, forecasts**3)).astype(int), forecasts


def test_a_monitor_shows_its_detector_its_alarms_the_gain_and_the_regions(tmp_path: Path) -> None:
    y, p = broken()
    display = MonitorDisplay.from_predictions(
        y, p, scores=np.sqrt(p), monitor=Monitor(arl=5000, quiet=80), points=60, name="model"
    )
    assert display.went.alarms[0].at > 2000
    assert sum(alarm.page for alarm in display.went.alarms) < len(display.went.alarms)
    assert display.line_.get_label() == "model"
    assert display.line_.get_xdata().max() == 3000 and display.line_.get_ydata().min() > 0
    texts = [text.get_text().strip() for text in display.ax_.texts]
    assert texts == [alarm.what for alarm in display.went.alarms if alarm.page]
    assert len(display.axes_) == 3 and display.axes_[1].get_ylabel() == "Brier gain over raw"
    display.figure_.savefig(tmp_path / "monitor.png")
    assert (tmp_path / "monitor.png").stat().st_size > 10_000
    assert display._repr_png_() is not None


def test_a_monitor_without_scores_shows_the_evidence_and_draws_where_it_is_told() -> None:
    y, p = events(300)
    figure = Figure()
    axes = figure.subplots(3)
    display = MonitorDisplay.from_predictions(y, p, points=10, ax=axes)
    assert display.figure_ is figure and axes[1].get_ylabel() == "evidence since the start"
    assert (display.went.level == 0.0).all()  # nothing is bet before the warm-up is over
    alone = Figure().add_subplot()
    one = MonitorDisplay(display.went, display.regions).plot(alone)
    MonitorDisplay(display.went, display.regions).plot(alone, name="again")
    assert one.ax_ is alone and one.axes_ == ()
    assert alone.get_legend_handles_labels()[1] == ["alarm line", "again"]
    with pytest.raises(InvalidInput, match="one of matplotlib's axes or three, got 2"):
        one.plot(axes[:2])
    with pytest.raises(InvalidInput, match="monitor must be a Monitor, got int"):
        MonitorDisplay.from_predictions(y, p, monitor=3)
