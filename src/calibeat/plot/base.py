"""What the displays share: the axes, the legend, bars for the counts, and the picture in a notebook."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector
from calibeat.errors import MissingExtra

COUNTED = "calibeat-count"  # marks the text that says how many events the tallest bar stands for


class Display:
    """The root of the displays."""

    name: str | None
    ax_: Any
    figure_: Any
    line_: Any
    bars_: Any

    def _take_axes(self, ax: Any) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtra("pictures need matplotlib: pip install 'calibeat[plot]'") from error
        if ax is None:
            figure = Figure(figsize=(6.4, 4.8), layout="constrained")
            ax = figure.add_subplot()
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
        self.ax_.text(
            0.99,
            height + 0.01,
            label,
            ha="right",
            va="bottom",
            transform=self.ax_.transAxes,
            fontsize="x-small",
            color="0.35",
            gid=COUNTED,
        )

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
