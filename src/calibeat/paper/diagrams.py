"""Figures 1, 2 and 16 and the picture of Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from calibeat.examples.stream import FloatArray

from .figures import new_figure, tidy
from .rain import AIRPORTS, RECORDS
from .regret import BOUNDS, LEARNERS, RADII, STREAMS
from .section1 import platt

CURVES = ((1.0, 0.0), (0.5, 0.0), (2.0, 0.0), (1.0, 1.0), (1.0, -1.0), (-1.0, 0.0))  # (a, b)
SHADES = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999")
PROTOCOL = """\
Initialise w
at time t = 1, 2, ..., T
   observe features x
   predict p = sigmoid(w . x)
   observe y in {0, 1}
   compute the next w

Goal: little regret,
sum of l(y, p) against
the best fixed w"""


def platt_curves() -> Any:
    """Figure 1: Platt's maps, online logistic regression, and calibeating."""
    figure = new_figure(10.6, 3.1)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    f = np.linspace(0.001, 0.999, 400)
    for (a, b), colour in zip(CURVES, SHADES, strict=True):
        left.plot(f, platt(f, a, b), color=colour, linewidth=1.6, label=f"a = {a:g}, b = {b:g}")
    left.set_title("(a) Platt scaling", fontsize=10)
    left.set_xlabel("score f(x)", fontsize=8)
    left.set_ylabel("sigmoid(a logit f(x) + b)", fontsize=8)
    left.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    tidy(left)
    middle.set_title("(b) Online logistic regression", fontsize=10)
    middle.set_axis_off()
    middle.text(0.02, 0.97, PROTOCOL, va="top", family="monospace", fontsize=8, transform=middle.transAxes)
    right.set_title("(c) Calibeating applied to OPS", fontsize=10)
    boxes(right, ("score f(x)", "OPS: expert p", "bin of p: [0.7, 0.8)", "past outcomes of the bin: 85 % ones",
                  "TOPS says 0.85, HOPS hedges"))  # fmt: skip
    return figure


def pipeline() -> Any:
    """Figure 2: a model trained once, and what learns behind it from every outcome."""
    figure = new_figure(10.4, 1.1)
    axes = figure.subplots()
    steps = (
        "train the base model f\non some of the data", "online post-hoc calibration\nof the stream's f(x): OPS",
        "calibeating of the expert:\nTOPS, HOPS", "forecast p, then outcome y,\nwhich teaches both",
    )  # fmt: skip
    boxes(axes, steps, across=True)
    return figure


def boxes(axes: Any, words: Sequence[str], *, across: bool = False) -> None:
    """Boxes in a row or in a column, with arrows from one to the next."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    places = (np.arange(len(words)) + 0.5) / len(words)
    frame = {"boxstyle": "round,pad=0.4", "facecolor": "#EAF3FA", "edgecolor": "#0072B2"}
    arrow = {"arrowstyle": "->", "color": "0.3"}
    centres = [(place, 0.5) if across else (0.5, 1.0 - place) for place in places]
    for (x, y), text in zip(centres, words, strict=True):
        axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=frame)
    for (x0, y0), (x1, y1) in pairwise(centres):
        start = (x0 + 0.1, y0) if across else (x0, y0 - 0.06)
        end = (x1 - 0.1, y1) if across else (x1, y1 + 0.06)
        axes.annotate("", end, start, arrowprops=arrow)


def regrets(mean: FloatArray, lengths: FloatArray) -> Any:
    """Table 1: regret against T for each stream at B = 2, the bounds as thin lines."""
    figure = new_figure(9.6, 3.0)
    j = RADII.index(2.0)
    for axes, (k, stream) in zip(figure.subplots(1, len(STREAMS)), enumerate(STREAMS), strict=True):
        for i, name in enumerate(LEARNERS):
            colour, marker = ("#E69F00", "#0072B2", "#009E73", "#56B4E9")[i], "^oDs"[i]
            axes.plot(lengths, mean[i, j, k], color=colour, marker=marker, linewidth=1.6, label=name)
            bound = [BOUNDS[name](RADII[j], int(length)) for length in lengths]
            axes.plot(lengths, bound, color=colour, linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=10)
        axes.set_title(f"{stream}, B = 2", fontsize=9)
        axes.set_xlabel("T", fontsize=8)
        tidy(axes)
    figure.axes[0].set_ylabel("regret (dotted: bound)", fontsize=8)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def rain(run: Mapping[str, FloatArray]) -> Any:
    """Figure 16: what F99 says hour after hour, and how often it has rained so far."""
    figure = new_figure(9.6, 4.6)
    panels = figure.subplots(len(RECORDS), len(AIRPORTS))
    for axes, (record, airport) in zip(panels.flat, product(RECORDS, AIRPORTS), strict=True):
        said, rained = run[f"forecasts {record}, {airport}"], run[f"outcomes {record}, {airport}"]
        hours = np.arange(1, len(said) + 1)
        axes.plot(hours, said, ".", markersize=2, color="#0072B2", label="F99 says", rasterized=True)
        axes.plot(hours, np.cumsum(rained) / hours, color="#D55E00", linewidth=1.2, label="share of rainy hours so far")
        axes.set_title(f"{airport}, {record}", fontsize=9)
        axes.set_ylim(0, 0.7)
        axes.set_xlabel("hour", fontsize=8)
        tidy(axes)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure
