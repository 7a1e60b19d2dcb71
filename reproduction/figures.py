"""The paper's figures, drawn on Figure objects of their own: matplotlib's global state stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .summary import Summary

# Okabe and Ito's colours, told apart by all kinds of colour vision; lines and markers differ too.
STYLES: dict[str, tuple[str, str, str]] = {
    "BM": ("#000000", "--", "x"),
    "FPS": ("#999999", "--", "s"),
    "WPS": ("#E69F00", "--", "^"),
    "OPS": ("#0072B2", "-", "o"),
    "TOPS": ("#009E73", "-", "D"),
    "HOPS": ("#D55E00", "-", "v"),
    "WBS": ("#A6761D", "--", "<"),
    "OBS": ("#56B4E9", "-", "o"),
    "TOBS": ("#CC79A7", "-", "D"),
    "HOBS": ("#882255", "-", "v"),
    "WHB": ("#E69F00", ":", "s"),
    "TWHB": ("#E69F00", "-", "P"),
    "AUTO": ("#332288", "-", "*"),
}


def new_figure(width: float, height: float) -> Any:
    """An empty figure with a canvas of its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=90, facecolor="white")
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Any) -> None:
    """Less ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


# ---- over time: Figures 5 to 9 and 12 to 15 ----------------------------------------------------------------------


def over_time(
    rows: Sequence[tuple[str, Sequence[Summary]]],
    methods: Sequence[str],
    metric: str,
    epsilon: float = 0.1,
    dotted: Sequence[str] = (),
) -> Any:
    """One panel for each stream, one line for each method, bars of one standard deviation over the runs."""
    columns = max(len(summaries) for _, summaries in rows)
    figure = new_figure(2.9 * columns, 2.6 * len(rows) + 0.5)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    label = {"ce": "expected CE", "shp": "expected SHP"}[metric]
    for (title, summaries), line in zip(rows, grid, strict=True):
        for summary, axes in zip(summaries, line, strict=True):
            for i, method in enumerate(methods):
                colour, style, marker = STYLES[method]
                mean, std = summary.mean(metric, method, epsilon), summary.std(metric, method, epsilon)
                every = max(1, len(mean) // 6)
                axes.errorbar(
                    summary.points,
                    mean,
                    yerr=std if summary.runs > 1 else None,
                    color=colour,
                    linewidth=1.4,
                    linestyle=":" if method in dotted else style,
                    marker=marker,
                    markersize=4,
                    elinewidth=0.7,
                    markevery=(i % every, every),
                    errorevery=(i % every, every),
                    label=method,
                )
            axes.set_title(summary.stream.title + (f", {title}" if title else ""), fontsize=9)
            axes.set_xlabel("t", fontsize=8)
            axes.set_ylim(bottom=0 if metric == "ce" else None)
            tidy(axes)
        line[0].set_ylabel(label, fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods), fontsize=9, frameon=False)
    return figure
