"""Reliability diagrams, and the calibration error over time."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat import metrics
from calibeat._util.check import check_lengths, check_outcomes, check_scores, check_whole
from calibeat._util.columns import read_column, to_array
from calibeat._util.times import MISSING, OK, read_times
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput
from calibeat.metrics import wilson

from .base import Display

PERFECT = "perfectly calibrated"
WINDOWS = 20
DRAWS = 400  # of the counts that a calibrated forecaster could have seen


class ReliabilityDisplay(Display):
    """A reliability diagram: what happened when so much was forecast.

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
        low, high = wilson(curve.mean_outcome, curve.count, confidence)
        return cls(*curve, low, high, name=name).plot(ax, **kwargs)

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
        """One method of a backtest (the one that it recommends, if not told), over a period (0: the whole log)."""
        payload, method = _method_of(result, method)
        drawn = payload["reliability"]["methods"][method]
        whole = check_whole("period", period, 0, len(drawn) - 1)
        bins = drawn[whole]
        shown = (bins["forecast"], bins["outcome"], bins["count"], bins["low"], bins["high"])
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
        self._finish("mean forecast", "share that happened")
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

        There are 20 windows, or fewer if there are fewer events, unless told. Times are dates, their texts (ISO 8601;
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
        """One method of a backtest (the one that it recommends, if not told).

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
        error = windows["methods"][method]["ce"]
        made = cls(
            start + (end - start) // 2,
            error,
            count,
            noise,
            start=start,
            end=end,
            by=windows["by"],
            name=name or _label(payload, method),
        )
        return made.plot(ax, **kwargs)

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
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib's dates have no types yet
            self.ax_.xaxis.set_major_locator(locator)
            self.ax_.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # as above
        self.ax_.set_ylim(bottom=0.0)
        self._finish("time" if self.by == "time" else "event", "calibration error")
        return self


# ---- inner -------------------------------------------------------------------------------------------------------


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
    array = to_array(times)
    if not isinstance(array, (list, tuple)):
        array = np.asarray(array)
    if not isinstance(array, np.ndarray) or array.dtype.kind == "O":  # periods of pandas are told by their beginnings
        array = [getattr(moment, "start_time", moment) for moment in array]
    check_lengths(y_true=len(y), times=len(array))
    column, zoned = read_column("times", array)
    read = read_times(column, zoned=zoned)
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
    """NumPy's times have no zone: those that say UTC lose the word, others are told in UTC."""
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
