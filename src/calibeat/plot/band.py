"""The interval of forecasts over time."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths, check_outcomes, check_scores, check_whole
from calibeat.errors import InvalidInput

from .calibration import Display, _clock, _numbers

WINDOWS = 50
HAPPENED = "share that happened"


class BandDisplay(Display):
    """Forecasts and their intervals over time, and how often events happened.

    *How to read it.* The line is the mean forecast of each window, the shade the mean of its intervals, from `low` to
    `high`. A dot is the share of the window's events that happened. The shade narrows as outcomes are learned, and it
    widens when the stream drifts. Dots scatter a little more than the shade, because a window has few events. Dots that
    leave it on one side, window after window, show a change that the forecasts have not learned yet.

    Parameters
    ----------
    x : the middle of each window, as numbers of events or as times.
    forecast, low, high : the means of each window.
    happened : the share of its events that happened (NaN where no outcome is known), or None.
    by : "event" or "time".
    name : for the legend.

    Attributes
    ----------
    ax_, figure_, line_, band_, dots_ (None without outcomes) : what was drawn.

    >>> from calibeat import Calibrator
    >>> from calibeat.plot import BandDisplay
    >>> scores, outcomes = [0.2, 0.7, 0.8, 0.4] * 50, [0, 1, 1, 0] * 50
    >>> bands = Calibrator(band=True).run(scores, outcomes, band=True)
    >>> display = BandDisplay.from_run(bands, outcomes, windows=4)
    >>> bool((display.high - display.low)[-1] < (display.high - display.low)[0]), display.happened.tolist()
    (True, [0.5, 0.5, 0.5, 0.5])
    """

    def __init__(
        self,
        x: Any,
        forecast: Any,
        low: Any,
        high: Any,
        happened: Any = None,
        *,
        by: str = "event",
        name: str | None = None,
    ) -> None:
        self.x, self.forecast = np.asarray(x), _numbers(forecast)
        self.low, self.high = _numbers(low), _numbers(high)
        self.happened = None if happened is None else _numbers(happened)
        self.by, self.name = by, name

    @classmethod
    def from_run(
        cls,
        bands: Any,
        y_true: npt.ArrayLike | None = None,
        *,
        times: Any = None,
        windows: int | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """What ``run(..., band=True)`` returned, in windows of equally many events; drawn.

        `y_true` may lack outcomes (None or NaN). There are 50 windows, or fewer if there are fewer events, by default.
        `times` are for the axis: dates, their texts (ISO 8601), or numbers.
        """
        missing = [column for column in ("probabilities", "low", "high") if not hasattr(bands, column)]
        if missing:
            raise InvalidInput(f"bands must come from run(..., band=True), got {type(bands).__name__}")
        columns = [check_scores(column, "forecast") for column in (bands.probabilities, bands.low, bands.high)]
        n = len(columns[0])
        pieces = min(WINDOWS, n) if windows is None else check_whole("windows", windows, 1, n)
        edges = np.linspace(0, n, pieces + 1).astype(np.int64)
        middle = (edges[:-1] + edges[1:]) // 2
        clock = np.arange(n + 1) if times is None else _clock(columns[0], times)
        happened = None
        if y_true is not None:
            y = check_outcomes(y_true, optional=True)
            check_lengths(bands=n, y_true=len(y))
            known = np.add.reduceat(~np.isnan(y), edges[:-1]).astype(np.float64)
            ones = np.add.reduceat(np.nan_to_num(y), edges[:-1])
            happened = np.divide(ones, known, out=np.full(pieces, np.nan), where=known > 0.0)
        forecast, low, high = (np.add.reduceat(column, edges[:-1]) / np.diff(edges) for column in columns)
        by = "event" if times is None else "time"
        return cls(clock[middle], forecast, low, high, happened, by=by, name=name).plot(ax, **kwargs)

    def plot(self, ax: Any = None, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on `ax`, or on a figure of its own; further arguments are those of the line."""
        self._take_axes(ax)
        self._draw_line(self.x, self.forecast, 0, name, kwargs)
        colour = self.line_.get_color()
        self.band_ = self.ax_.fill_between(self.x, self.low, self.high, color=colour, alpha=0.2, linewidth=0)
        self.dots_ = None
        if self.happened is not None:
            label = {} if HAPPENED in self.ax_.get_legend_handles_labels()[1] else {"label": HAPPENED}
            (self.dots_,) = self.ax_.plot(self.x, self.happened, ".", color="0.2", markersize=5, **label)
        if self.x.dtype.kind == "M":
            self._date_axis()
        self.ax_.set_ylim(bottom=0.0)
        self._finish("time" if self.by == "time" else "event", "forecast, from low to high")
        return self
