"""Reliability diagrams, of two classes and of many, and the calibration error over time."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat import metrics
from calibeat._util.check import check_labelled, check_lengths, check_outcomes, check_scores, check_whole
from calibeat._util.columns import read_column
from calibeat._util.extras import need
from calibeat._util.times import MISSING, OK, read_times
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput
from calibeat.metrics import wilson

COUNTED = "calibeat-count"  # marks the text that says how many events the tallest bar stands for
PERFECT = "perfectly calibrated"
WINDOWS = 20
DRAWS = 400  # of the counts that a calibrated forecaster could have seen
MOST_PANELS = 12  # classes that are drawn by default: the most common ones


def _figure(width: float, height: float) -> Any:
    return need("matplotlib.figure", "plot", "pictures").Figure(figsize=(width, height), layout="constrained")


class Display:
    """What the displays share: the axes, the legend, bars for the counts, and the picture in a notebook."""

    name: str | None
    ax_: Any
    figure_: Any
    line_: Any
    bars_: Any

    def _take_axes(self, ax: Any) -> None:
        if ax is None:
            ax = _figure(6.4, 4.8).add_subplot()
        self.ax_, self.figure_ = ax, ax.figure

    def _draw_line(self, x: Any, y: Vector, size: int, name: str | None, kwargs: dict[str, Any]) -> None:
        from matplotlib.cbook import normalize_kwargs
        from matplotlib.lines import Line2D

        label = name or self.name
        given = normalize_kwargs(kwargs, Line2D)  # ms and markersize are one argument
        style = {"marker": "o", "markersize": size, **({"label": label} if label else {}), **given}
        (self.line_,) = self.ax_.plot(x, y, **style)

    def _draw_counts(self, start: Any, width: Any, count: npt.NDArray[np.int64], height: float) -> None:
        """Bars along the bottom, up to `height` of the axes; the largest count is written above them.

        All the displays on the same axes have one scale: those drawn before are drawn to it again. A further display
        gets outlines, so that neither hides the other.
        """
        others = [bars for bars in self.ax_.containers if hasattr(bars, "calibeat_count")]
        colour, below = self.line_.get_color(), self.ax_.get_xaxis_transform()  # x of the data, y of the axes
        # A line around it, or a bar that is narrower than a dot of the picture would not be there.
        style = {"fill": False, "alpha": 0.6, "linewidth": 1} if others else {"alpha": 0.25, "linewidth": 0.8}
        self.bars_ = self.ax_.bar(
            start, 0.0 * count, width, align="edge", color=colour, edgecolor=colour, transform=below, zorder=1, **style
        )
        self.bars_.calibeat_count, self.bars_.calibeat_height = count, height
        drawn = [*others, self.bars_]
        tallest = max(int(bars.calibeat_count.max()) for bars in drawn)
        for bars in drawn:
            for bar, events in zip(bars, bars.calibeat_count.tolist(), strict=True):
                bar.set_height(bars.calibeat_height * events / max(1, tallest))
        label = f"tallest bar: {tallest:,} events"
        for text in self.ax_.texts:
            if text.get_gid() == COUNTED:
                text.set_text(label)
                return
        text = self.ax_.text(0.99, height + 0.01, label, transform=self.ax_.transAxes, gid=COUNTED)
        text.set(ha="right", va="bottom", fontsize="x-small", color="0.35")

    def _date_axis(self) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib's dates have no types yet
        self.ax_.xaxis.set_major_locator(locator)
        self.ax_.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # as above

    def _finish(self, xlabel: str, ylabel: str) -> None:
        self.ax_.set(xlabel=xlabel, ylabel=ylabel)
        if self.ax_.get_legend_handles_labels()[1]:
            self.ax_.legend(loc="best", fontsize="small")

    def _repr_png_(self) -> bytes | None:
        """For notebooks; None if nothing is drawn yet, or pyplot has the figure and shows it anyway."""
        figure = getattr(self, "figure_", None)
        while figure is not None and not hasattr(figure, "savefig"):
            figure = figure.figure  # that of which it is a part
        if figure is None or getattr(figure.canvas, "manager", None) is not None:
            return None
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        return picture.getvalue()


class ReliabilityDisplay(Display):
    """A reliability diagram: how often events happened, by what was forecast.

    *How to read it.* Events are put into bins by their forecast; each point is a bin, its mean forecast to the right
    and the share of its events that happened upwards. On the dotted diagonal the forecasts were right; a point below
    it was promised more often than it came. The shade is where the true probability of a bin may lie (Wilson's 95 %
    interval): a diagonal inside it is no evidence of a fault. The bars at the bottom count the events of each bin.

    Parameters
    ----------
    mean_forecast, mean_outcome, count : per bin, as `metrics.reliability_curve` gives them.
    low, high : the interval of each bin.
    name : for the legend.

    Attributes
    ----------
    ax_, figure_, line_, band_, bars_ : what was drawn.

    >>> from calibeat.plot import ReliabilityDisplay
    >>> display = ReliabilityDisplay.from_predictions([0, 1, 1, 0], [0.2, 0.7, 0.8, 0.4], bins=2, name="model")
    >>> display.count.tolist(), display.line_.get_label()
    ([2, 2], 'model')
    """

    _axis_labels = ("mean forecast", "share that happened")

    def __init__(
        self, mean_forecast: Any, mean_outcome: Any, count: Any, low: Any, high: Any, *, name: str | None = None
    ) -> None:
        self.mean_forecast, self.mean_outcome = _numbers(mean_forecast), _numbers(mean_outcome)
        self.count = np.asarray(count, dtype=np.int64)
        self.low, self.high = _numbers(low), _numbers(high)
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: npt.ArrayLike,
        y_prob: npt.ArrayLike,
        *,
        bins: int = 10,
        confidence: float = 0.95,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Outcomes (0 or 1) and forecasts, drawn; further arguments are those of the line."""
        curve = metrics.reliability_curve(y_true, y_prob, bins)
        return cls(*_with_interval(curve, confidence), name=name).plot(ax, **kwargs)

    @classmethod
    def from_backtest(
        cls,
        result: Any,
        *,
        method: str | None = None,
        period: int = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """One method of a backtest (by default the one that it recommends), over a period (0: the whole log)."""
        payload, method = _method_of(result, method)
        drawn = payload["reliability"]["methods"][method]
        bins = drawn[check_whole("period", period, 0, len(drawn) - 1)]
        shown = (bins[column] for column in ("forecast", "outcome", "count", "low", "high"))
        return cls(*shown, name=name or _label(payload, method)).plot(ax, **kwargs)

    def plot(self, ax: Any = None, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on `ax`, or on a figure of its own; further arguments are those of the line."""
        self._take_axes(ax)
        used = self.count > 0
        x, y = self.mean_forecast[used], self.mean_outcome[used]
        if PERFECT not in self.ax_.get_legend_handles_labels()[1]:
            self.ax_.plot([0, 1], [0, 1], color="0.3", linestyle=":", linewidth=1.2, label=PERFECT)
        self._draw_line(x, y, 4, name, kwargs)
        colour = self.line_.get_color()
        self.band_ = self.ax_.fill_between(x, self.low[used], self.high[used], color=colour, alpha=0.2, linewidth=0)
        m = len(self.count)
        self._draw_counts((np.arange(m) + 0.05) / m, 0.9 / m, self.count, 0.13)
        self.ax_.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        self._finish(*self._axis_labels)
        return self


class ConfidenceReliabilityDisplay(ReliabilityDisplay):
    """A reliability diagram of the top class: how often it was right, by its confidence.

    It reads like a `ReliabilityDisplay`: a point below the diagonal is a model that is too sure of itself.

    >>> from calibeat.plot import ConfidenceReliabilityDisplay
    >>> P = [[0.75, 0.25, 0.0], [0.25, 0.0, 0.75], [0.5, 0.3, 0.2], [0.9, 0.1, 0.0]]
    >>> display = ConfidenceReliabilityDisplay.from_predictions([0, 1, 0, 0], P, bins=2, name="model")
    >>> display.count.tolist()
    [0, 4]
    """

    _axis_labels = ("confidence of the top class", "share that was right")

    @classmethod
    def from_predictions(  # type: ignore[override]  # labels and a matrix, where the parent takes outcomes and a column
        cls,
        labels: Any,
        forecasts: Any,
        *,
        classes: Sequence[Any] | None = None,
        bins: int = 10,
        confidence: float = 0.95,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Labels (column numbers, or those of `classes`) and an (n, K) matrix of forecasts, drawn."""
        curve = metrics.confidence_reliability_curve(labels, forecasts, bins, classes=classes)
        return cls(*_with_interval(curve, confidence), name=name).plot(ax, **kwargs)


class ClasswiseReliabilityDisplay(Display):
    """Small multiples: a reliability diagram of "is it this class?" for each class, the most common ones first.

    Parameters
    ----------
    names : the classes that are drawn.
    panels : a `ReliabilityDisplay` for each.

    Attributes
    ----------
    axes_, figure_ : what was drawn.

    >>> import numpy as np
    >>> from calibeat.plot import ClasswiseReliabilityDisplay
    >>> labels, P = ["dog"] * 20 + ["cat"] * 10, np.full((30, 3), 1 / 3)
    >>> ClasswiseReliabilityDisplay.from_predictions(labels, P, classes=["cat", "dog", "ox"]).names
    ['dog', 'cat', 'ox']
    """

    def __init__(self, names: list[str], panels: list[ReliabilityDisplay]) -> None:
        self.names, self.panels = names, panels

    @classmethod
    def from_predictions(
        cls,
        labels: Any,
        forecasts: Any,
        *,
        classes: Sequence[Any] | None = None,
        bins: int = 10,
        confidence: float = 0.95,
        most: int = MOST_PANELS,
        figure: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Labels and an (n, K) matrix of forecasts, drawn; of more than `most` classes the most common ones."""
        y, P = check_labelled(labels, forecasts, classes)
        K = P.shape[1]
        shown = np.argsort(-np.bincount(y, minlength=K), kind="stable")[: check_whole("most", most, 1, 10**6)]
        names, panels = [], []
        for k in shown.tolist():
            curve = metrics.reliability_curve((y == k).astype(float), np.minimum(P[:, k], 1.0), bins)
            names.append(str(k if classes is None else classes[k]))
            panels.append(ReliabilityDisplay(*_with_interval(curve, confidence)))
        return cls(names, panels).plot(figure, **kwargs)

    def plot(self, figure: Any = None, **kwargs: Any) -> Self:
        """Draw on an empty figure, or on one of its own; further arguments are those of the lines."""
        columns = min(4, math.ceil(math.sqrt(len(self.panels))))
        rows = math.ceil(len(self.panels) / columns)
        if figure is None:
            figure = _figure(2.6 * columns, 2.4 * rows)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for at, (name, panel, ax) in enumerate(zip(self.names, self.panels, grid.flat, strict=False)):
            panel.plot(ax, **kwargs)
            ax.set_title(name, fontsize="small")
            if ax.get_legend() is not None:
                ax.get_legend().remove()
            if at + columns < len(self.panels):
                ax.set_xlabel("")
            if at % columns:
                ax.set_ylabel("")
        for ax in grid.flat[len(self.panels) :]:
            ax.set_visible(False)
        self.axes_, self.figure_ = grid, figure
        return self


class CalibrationOverTimeDisplay(Display):
    """The calibration error of one stretch of time after the other.

    *How to read it.* The line is the calibration error of each window: how far, on average, its forecasts were from
    what happened to events forecast alike. It is never 0, not even for the true probabilities, because windows are
    small: the shade is what they would show 95 times in 100. A line inside the shade is no evidence of a fault; a line
    that climbs out of it and stays says when the forecasts went wrong. The bars at the bottom count the events.

    Parameters
    ----------
    x : the middle of each window, as numbers of events or as times.
    error : the calibration error of each window.
    count : its events.
    noise : the upper end of the shade, or None.
    start, end : where each window begins and ends; if not given, the bars are as wide as the closest x are apart.
    by : "event" or "time".
    name : for the legend.

    Attributes
    ----------
    ax_, figure_, line_, band_ (None without noise), bars_ : what was drawn.

    >>> from calibeat.plot import CalibrationOverTimeDisplay
    >>> display = CalibrationOverTimeDisplay.from_predictions([0, 1, 1, 0] * 50, [0.2, 0.7, 0.8, 0.4] * 50, windows=4)
    >>> display.count.tolist(), display.error.round(3).tolist()
    ([50, 50, 50, 50], [0.274, 0.276, 0.274, 0.276])
    """

    def __init__(
        self,
        x: Any,
        error: Any,
        count: Any,
        noise: Any = None,
        *,
        start: Any = None,
        end: Any = None,
        by: str = "event",
        name: str | None = None,
    ) -> None:
        self.x, self.error = np.asarray(x), _numbers(error)
        self.count = np.asarray(count, dtype=np.int64)
        self.noise = None if noise is None else _numbers(noise)
        if start is None or end is None:
            half = 0.45 * np.min(np.diff(self.x)) if len(self.x) > 1 else 0.25
            start, end = self.x - half, self.x + half
        self.start, self.end = np.asarray(start), np.asarray(end)
        self.by, self.name = by, name

    @classmethod
    def from_predictions(
        cls,
        y_true: npt.ArrayLike,
        y_prob: npt.ArrayLike,
        *,
        times: Any = None,
        windows: int | None = None,
        bins: int = 10,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Outcomes and forecasts in the order of time, in windows of equally many events; `times` are for the axis.

        There are 20 windows, or fewer if there are fewer events, by default. Times are dates, their texts (ISO 8601;
        UTC unless they say otherwise), or numbers, which stay numbers; they are all there and never go back.
        """
        y, p = check_outcomes(y_true), check_scores(y_prob, "forecast")
        check_lengths(y_true=len(y), y_prob=len(p))
        pieces = min(WINDOWS, len(y)) if windows is None else check_whole("windows", windows, 1, len(y))
        edges = np.linspace(0, len(y), pieces + 1).astype(np.int64)
        errors, noise = [], []
        for first, last in pairwise(edges):
            errors.append(metrics.calibration_error(y[first:last], p[first:last], bins))
            curve = metrics.reliability_curve(y[first:last], p[first:last], bins)
            noise.append(_noise(curve.mean_forecast, curve.count))
        middle = (edges[:-1] + edges[1:]) // 2
        by = "event" if times is None else "time"
        clock = np.arange(len(y) + 1) if times is None else _clock(y, times)
        start, end = clock[edges[:-1]], clock[edges[1:]]
        made = cls(clock[middle], errors, np.diff(edges), noise, start=start, end=end, by=by, name=name)
        return made.plot(ax, **kwargs)

    @classmethod
    def from_backtest(
        cls, result: Any, *, method: str | None = None, name: str | None = None, ax: Any = None, **kwargs: Any
    ) -> Self:
        """One method of a backtest (by default the one that it recommends).

        The shade takes the forecasts of each window to be spread over the bins as they are over the whole log.
        """
        payload, method = _method_of(result, method)
        windows, whole = payload["windows"], payload["reliability"]["methods"][method][0]
        count = np.asarray(windows["count"], dtype=np.int64)
        share = np.asarray(whole["count"], dtype=np.float64)
        share /= max(1.0, float(share.sum()))
        forecast = np.nan_to_num(_numbers(whole["forecast"]))
        noise = [_noise(forecast, np.round(share * n).astype(np.int64)) for n in count]
        kind = "datetime64[us]" if windows["by"] == "time" else np.int64
        start, end = (np.array(_without_zone(windows[side]), dtype=kind) for side in ("start", "end"))
        error, middle = windows["methods"][method]["ce"], start + (end - start) // 2
        shown = {"start": start, "end": end, "by": windows["by"], "name": name or _label(payload, method)}
        return cls(middle, error, count, noise, **shown).plot(ax, **kwargs)

    def plot(self, ax: Any = None, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on `ax`, or on a figure of its own; further arguments are those of the line."""
        self._take_axes(ax)
        self._draw_line(self.x, self.error, 3, name, kwargs)
        colour = self.line_.get_color()
        self.band_ = None
        if self.noise is not None:
            self.band_ = self.ax_.fill_between(self.x, 0.0, self.noise, color=colour, alpha=0.15, linewidth=0)
        self._draw_counts(self.start, self.end - self.start, self.count, 0.06)
        if self.x.dtype.kind == "M":
            self._date_axis()
        self.ax_.set_ylim(bottom=0.0)
        self._finish("time" if self.by == "time" else "event", "calibration error")
        return self


# ---- numbers ------------------------------------------------------------------------------------------------------


def _with_interval(curve: metrics.ReliabilityCurve, confidence: float) -> tuple[npt.NDArray[Any], ...]:
    return (*curve[:3], *wilson(curve.mean_outcome, curve.count, confidence))


def _noise(forecast: Vector, count: npt.NDArray[np.int64]) -> float:
    """The calibration error that forecasts which are the true probabilities stay below 95 times in 100."""
    total = int(count.sum())
    if total == 0:
        return math.nan
    used = count > 0
    n, p = count[used], forecast[used]
    # Seeded here, so that a picture of the same numbers is the same picture.
    ones = np.random.default_rng(0).binomial(n, p, size=(DRAWS, len(n)))
    return float(np.quantile(np.abs(ones - n * p).sum(axis=1) / total, 0.95))


def _numbers(values: Any) -> Vector:
    """As an array; what is missing (None) as NaN."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _clock(y: Vector, times: Any) -> npt.NDArray[Any]:
    """When each event was, read as a backtest reads its times, and once more the last: where the last window ends."""
    column = read_column("times", times)
    array = column.as_array()
    check_lengths(y_true=len(y), times=len(array))
    if array.dtype.kind == "O":  # periods of pandas count by their beginnings
        array[:] = [getattr(moment, "start_time", moment) for moment in array]
    read = read_times(array, zoned=column.zoned)
    if (bad := read.states != OK).any():
        row = int(bad.argmax())
        got = "nothing" if read.states[row] == MISSING else repr(array[row])[:60]
        raise InvalidInput(f"time must be a date or a number, got {got} - at row {row}")
    clock: npt.NDArray[Any] = read.values
    if (back := np.diff(clock) < 0).any():
        row = int(back.argmax()) + 1
        raise InvalidInput(f"time must not go back, got {array[row]} after {array[row - 1]} - at row {row}")
    clock = np.append(clock, clock[-1])
    return clock.astype("datetime64[us]") if read.dated else clock


def _without_zone(moments: list[Any]) -> list[Any]:
    """Times in UTC without a zone, which NumPy's times cannot have."""
    from datetime import UTC, datetime

    parsed = [datetime.fromisoformat(moment) if isinstance(moment, str) else moment for moment in moments]
    return [m.astimezone(UTC).replace(tzinfo=None) if getattr(m, "tzinfo", None) else m for m in parsed]


def _method_of(result: Any, method: str | None) -> tuple[dict[str, Any], str]:
    if not hasattr(result, "payload"):
        raise InvalidInput(f"result must be a BacktestResult, got {type(result).__name__}")
    payload: dict[str, Any] = result.payload
    known = list(payload["reliability"]["methods"])
    if method is None:
        return payload, payload["verdict"]["method"]
    # By its name or by its label, in any case; a name goes before a label that is spelt alike.
    called = {str(m["label"]).casefold(): m["name"] for m in payload["methods"]}
    called |= {name.casefold(): name for name in known} | {name: name for name in known}
    found = called.get(str(method), called.get(str(method).casefold()))
    if found is None:
        raise InvalidInput(f"method must be one of those replayed, {', '.join(known)}, got {method!r:.60}")
    return payload, found


def _label(payload: dict[str, Any], method: str) -> str:
    return next((str(m["label"]) for m in payload["methods"] if m["name"] == method), method)
