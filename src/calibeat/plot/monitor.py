"""A monitor along a stream: its detector and alarms, the gain over the raw score, the gaps of the regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat.errors import InvalidInput
from calibeat.monitor.monitor import Monitor, Trace, trace

from .calibration import Display

ALARM_LINE = "alarm line"


class MonitorDisplay(Display):
    """How a monitor went.

    *How to read it.* Above: the detector as a share of the alarm line, on a logarithmic scale. It climbs when outcomes
    speak against the forecasts; at 1 an alarm is raised and it starts again. A red mark is an alarm that pages, with
    what it found; a grey one belongs to the same episode. Below left: the mean gain over the raw score with the
    interval that holds at every moment (without raw scores: the evidence since the start, in nats). Below right: for
    each region of the forecast, how much more often events happened than forecast, with its band. A band that does
    not touch 0 is a proven fault.

    Parameters
    ----------
    went : a `Trace`, as `calibeat.monitor.monitor.trace` makes it.
    regions : a table, as `Monitor.table` makes it.
    name : for the title.

    Attributes
    ----------
    ax_, figure_, line_ : the detector. axes_ : all three axes, if they were drawn. bands_ : what was drawn below.

    >>> from calibeat import Monitor
    >>> from calibeat.plot import MonitorDisplay
    >>> display = MonitorDisplay.from_predictions([0] * 40, [0.9] * 40, monitor=Monitor(arl=100, warm=0))
    >>> len(display.went.alarms), display.ax_.get_yscale()
    (5, 'log')
    """

    def __init__(self, went: Trace, regions: Mapping[str, npt.NDArray[Any]], *, name: str | None = None) -> None:
        self.went, self.regions, self.name = went, regions, name
        self.axes_: tuple[Any, ...] = ()
        self.bands_: tuple[Any, ...] = ()

    @classmethod
    def from_predictions(
        cls,
        y_true: npt.ArrayLike,
        y_prob: npt.ArrayLike,
        *,
        scores: npt.ArrayLike | None = None,
        monitor: Monitor | None = None,
        points: int = 300,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Outcomes and forecasts in order, and the raw scores if the gain is wanted; drawn.

        The monitor is one with the default parameters, if not given. It is run over the stream and so has read it.
        """
        watch = Monitor() if monitor is None else monitor
        if not isinstance(watch, Monitor):
            raise InvalidInput(f"monitor must be a Monitor, got {type(watch).__name__}")
        went = trace(watch, y_prob, y_true, scores, points)
        return cls(went, watch.table, name=name).plot(ax)

    def plot(self, ax: Any = None, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on three axes (detector, gain, regions), the detector alone on one, or all on a figure of its own.

        Further arguments are those of the detector's line.
        """
        if ax is None:
            self._take_axes(None)
            figure = self.figure_
            figure.set_size_inches(9.0, 6.4)
            self.ax_.remove()
            grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
            ax = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
        axes = tuple(ax) if isinstance(ax, (Sequence, np.ndarray)) else (ax,)
        if len(axes) not in (1, 3):
            raise InvalidInput(f"ax must be one of matplotlib's axes or three, got {len(axes)}")
        self._take_axes(axes[0])
        self._draw_detector(name, kwargs)
        if len(axes) == 3:
            self.axes_ = axes
            self.bands_ = self._draw_gain(axes[1]), self._draw_regions(axes[2])
        return self

    def _draw_detector(self, name: str | None, kwargs: dict[str, Any]) -> None:
        went, axes = self.went, self.ax_
        above = went.level[went.level > 0.0]
        floor = float(above.min()) if len(above) else 0.5
        label = name or self.name
        style = {"linewidth": 1.0, **({"label": label} if label else {}), **kwargs}
        (self.line_,) = axes.plot(went.at, np.maximum(went.level, floor), **style)
        if ALARM_LINE not in axes.get_legend_handles_labels()[1]:
            axes.axhline(1.0, color="0.3", linestyle=":", linewidth=1.2, label=ALARM_LINE)
        for alarm in went.alarms:
            axes.axvline(alarm.at, color="C3" if alarm.page else "0.7", linewidth=1.0, alpha=0.7, zorder=1)
            if alarm.page:
                text = axes.text(alarm.at, 0.98, f" {alarm.what}", transform=axes.get_xaxis_transform(), rotation=90)
                text.set(va="top", ha="right", fontsize="x-small", color="C3")
        axes.set_yscale("log")
        axes.set_ylim(top=4.0)
        self._finish("outcomes read", "detector / alarm line")

    def _draw_gain(self, axes: Any) -> Any:
        went = self.went
        if np.isnan(went.gain).all():
            axes.set(xlabel="outcomes read", ylabel="evidence since the start")
            return axes.plot(went.at, went.evidence, linewidth=1.0)[0]
        colour = axes.plot(went.at, went.gain, linewidth=1.0)[0].get_color()
        axes.axhline(0.0, color="0.3", linestyle=":", linewidth=1.2)
        reach = 3.0 * np.nanmax(np.abs(went.gain[len(went.gain) // 4 :])) + 1e-6  # early intervals are very wide
        axes.set(xlabel="outcomes read", ylabel="Brier gain over raw", ylim=(-reach, reach))
        return axes.fill_between(went.at, went.gain_low, went.gain_high, color=colour, alpha=0.2, linewidth=0)

    def _draw_regions(self, axes: Any) -> Any:
        table = self.regions
        used = np.asarray(table["count"]) > 0
        x, gap = table["forecast"][used], table["gap"][used]
        bounds = np.clip([table["gap_low"][used], table["gap_high"][used]], -1.0, 1.0)
        axes.axhline(0.0, color="0.3", linestyle=":", linewidth=1.2)
        axes.set(xlabel="mean forecast of the region", ylabel="outcome - forecast", xlim=(-0.02, 1.02))
        return axes.errorbar(x, gap, yerr=np.abs(bounds - gap), fmt="o", markersize=4, capsize=3)
