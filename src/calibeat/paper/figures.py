"""The paper's figures, drawn on Figure objects of their own: matplotlib's global state stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibeat.examples.drifts import T_TRAIN
from calibeat.examples.stream import FloatArray

from .section1 import WINDOWS, platt
from .summary import Summary

BARS = 40  # of a histogram of x
# Okabe and Ito's colours, told apart by all kinds of colour vision; lines and markers differ too.
STYLES: dict[str, tuple[str, str, str]] = {
    "BM": ("#000000", "--", "x"), "FPS": ("#999999", "--", "s"), "WPS": ("#E69F00", "--", "^"),
    "OPS": ("#0072B2", "-", "o"), "TOPS": ("#009E73", "-", "D"), "HOPS": ("#D55E00", "-", "v"),
    "WBS": ("#A6761D", "--", "<"), "OBS": ("#56B4E9", "-", "o"), "TOBS": ("#CC79A7", "-", "D"),
    "HOBS": ("#882255", "-", "v"), "WHB": ("#E69F00", ":", "s"), "TWHB": ("#E69F00", "-", "P"),
    "AUTO": ("#332288", "-", "*"),
}  # fmt: skip


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
    rows: Sequence[tuple[str, Sequence[Summary]]], methods: Sequence[str], metric: str, epsilon: float = 0.1,
    dotted: Sequence[str] = (),
) -> Any:  # fmt: skip
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
                    summary.points, mean, yerr=std if summary.runs > 1 else None, color=colour, linewidth=1.4,
                    linestyle=":" if method in dotted else style, marker=marker, markersize=4, elinewidth=0.7,
                    markevery=(i % every, every), errorevery=(i % every, every), label=method,
                )  # fmt: skip
            axes.set_title(summary.stream.title + (f", {title}" if title else ""), fontsize=9)
            axes.set_xlabel("t", fontsize=8)
            axes.set_ylim(bottom=0 if metric == "ce" else None)
            tidy(axes)
        line[0].set_ylabel(label, fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods), fontsize=9, frameon=False)
    return figure


# ---- Section 1 ---------------------------------------------------------------------------------------------------


def histogram(axes: Any, x: FloatArray) -> None:
    """Where x lies, the highest bar of height 1."""
    count, edges = np.histogram(x, bins=BARS)
    axes.bar(edges[:-1], count / count.max(), np.diff(edges), align="edge", color="0.85", label="histogram of x")


def four_times(run: Mapping[str, FloatArray]) -> Any:
    """x, the truth, the base model and OPS in four stretches of time, OPS as it is where the stretch begins."""
    figure = new_figure(9.2, 5.2)
    stretches = ((1, T_TRAIN), *WINDOWS)
    for i, (axes, (first, last)) in enumerate(zip(figure.subplots(2, 2).flat, stretches, strict=True)):
        histogram(axes, run["x"][first - 1 : last])
        axes.plot(run["grid"], run["truth"][i], color="#E69F00", linewidth=2, label="Pr(Y = 1 | X = x)")
        axes.plot(run["grid"], run["base"], color="#56B4E9", linestyle=":", linewidth=1.8, label="base model")
        if i:
            ops = platt(run["base"], float(run["a"][i - 1]), float(run["b"][i - 1]))
            axes.plot(run["grid"], ops, color="#D55E00", linestyle="--", linewidth=1.6, label="OPS")
        axes.set_title(f"t = {first} to {last}", fontsize=9)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("x", fontsize=8)
        tidy(axes)
        if i == 1:
            handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    return figure


def both_small(runs: Mapping[str, Mapping[str, FloatArray]]) -> Any:
    """Figure 4: label and regression drift side by side, at the last stretch of time and at the first of the test."""
    figure = new_figure(9.2, 2.9)
    panels = figure.subplots(1, 4)
    for k, (kind, run) in enumerate(runs.items()):
        for j, i in enumerate((1, 3)):
            axes, (first, last) = panels[2 * k + j], WINDOWS[i - 1]
            histogram(axes, run["x"][first - 1 : last])
            axes.plot(run["grid"], run["truth"][i], color="#E69F00", linewidth=2, label="Pr(Y = 1 | X = x)")
            axes.plot(run["grid"], run["base"], color="#56B4E9", linestyle=":", linewidth=1.8, label="base model")
            ops = platt(run["base"], float(run["a"][i - 1]), float(run["b"][i - 1]))
            axes.plot(run["grid"], ops, color="#D55E00", linestyle="--", linewidth=1.6, label="OPS")
            axes.set_title(f"{kind} drift, t = {first} to {last}", fontsize=8)
            axes.set_ylim(0, 1.05)
            axes.set_xlabel("x", fontsize=8)
            tidy(axes)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    return figure
