"""The picture of forecasts with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from calibeat import Calibrator, InvalidInput
from calibeat.plot import BandDisplay


def went(n: int = 2000) -> tuple[Any, Any]:
    """A run with the band, and its outcomes."""
    rng = np.random.default_rng(0)
    scores = rng.beta(2, 3, n)
    outcomes = (rng.random(n) < scores**1.5).astype(float)
    return Calibrator(band=True).run(scores, outcomes, band=True), outcomes


def test_each_window_has_the_means_of_its_events() -> None:
    bands, outcomes = went()
    outcomes[:200], outcomes[300] = np.nan, np.nan
    display = BandDisplay.from_run(bands, outcomes, windows=10, name="AUTO", color="red")
    for k, window in enumerate(np.arange(2000).reshape(10, 200)):
        assert display.forecast[k] == pytest.approx(bands.probabilities[window].mean(), rel=1e-12)
        assert display.low[k] == pytest.approx(bands.low[window].mean(), rel=1e-12)
        assert display.high[k] == pytest.approx(bands.high[window].mean(), rel=1e-12)
        if k:
            assert display.happened[k] == pytest.approx(np.nanmean(outcomes[window]), rel=1e-12)
    assert np.isnan(display.happened[0])
    assert display.x.tolist() == list(range(100, 2000, 200))
    assert np.array_equal(display.line_.get_ydata(), display.forecast)
    assert np.array_equal(display.dots_.get_ydata(), display.happened, equal_nan=True)
    assert display.line_.get_label() == "AUTO" and display.line_.get_color() == "red"
    corners = display.band_.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(display.high.max()) and corners[:, 1].min() == display.low.min()


def test_two_displays_share_axes_and_outcomes_may_be_left_out(tmp_path: Path) -> None:
    bands, outcomes = went()
    ax = Figure().add_subplot()
    first = BandDisplay.from_run(bands, outcomes, ax=ax)
    second = BandDisplay.from_run(bands, ax=ax, name="again")
    assert first.ax_ is second.ax_ is ax and second.dots_ is None and len(first.x) == 50
    BandDisplay.from_run(bands, outcomes, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["share that happened", "again"]
    assert ax.get_ylim()[0] == 0.0 and ax.get_xlabel() == "event"
    first.figure_.savefig(tmp_path / "band.png")
    assert (tmp_path / "band.png").stat().st_size > 10_000


def test_times_on_the_axis() -> None:
    bands, outcomes = went(300)
    times = np.datetime64("2026-03-01") + np.arange(300) * np.timedelta64(1, "D")
    display = BandDisplay.from_run(bands, outcomes, times=times, windows=3)
    assert display.x.tolist() == times[[50, 150, 250]].astype("datetime64[us]").tolist()
    assert display.ax_.get_xlabel() == "time"
    assert BandDisplay.from_run(bands, times=np.arange(300) * 2.0, windows=3).x.tolist() == [100.0, 300.0, 500.0]


def test_what_is_refused() -> None:
    bands, outcomes = went(50)
    for message, work in (
        (r"bands must come from run\(..., band=True\), got ndarray", lambda: BandDisplay.from_run(bands.low)),
        ("same length", lambda: BandDisplay.from_run(bands, outcomes[:49])),
        ("same length", lambda: BandDisplay.from_run(bands, times=[1, 2])),
        ("windows must be a whole number", lambda: BandDisplay.from_run(bands, windows=51)),
        ("outcome must be 0 or 1", lambda: BandDisplay.from_run(bands, outcomes + 0.5)),
    ):
        with pytest.raises(InvalidInput, match=message):
            work()
