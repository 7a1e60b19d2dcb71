"""Figures 1 and 2: what Platt scaling, online logistic regression and calibeating are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .figures import new_figure, tidy
from .section import Section, Verdict
from .section1 import platt
from .settings import Settings
from .tasks import Results

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


def figure1(_settings: Settings, _results: Results) -> Section:
    """Figure 1."""
    f = np.linspace(0.1, 0.9, 9)
    rows = [
        [f"{a:g}", f"{b:g}", f"{x:.1f}", f"{value:.6f}"]
        for a, b in CURVES
        for x, value in zip(f, platt(f, a, b), strict=True)
    ]
    flipped = platt(f, -1.0, 0.0)
    tempered = np.abs(platt(f, 0.5, 0.0) - 0.5) <= np.abs(f - 0.5)
    return Section(
        words=["Panel (a) is drawn from the formula; (b) and (c) are the paper's protocol and its picture, in words."],
        figures={"figure-1": draw_figure1()},
        captions={"figure-1": "Figure 1: Platt scaling, online logistic regression, calibeating"},
        csv_head=["a", "b", "score", "m(score)"],
        csv_rows=rows,
        verdicts=[
            Verdict(
                "is the identity mapping",
                "Section 1, of a = 1, b = 0",
                bool(np.allclose(platt(f, 1.0, 0.0), f, atol=1e-12)),
                "on a grid of scores",
                "to 1e-12",
            ),
            Verdict(
                "if f is overconfident, that is if f(x) values are skewed towards 0 or 1, we can pick a",
                "Section 1, of a between 0 and 1",
                bool(tempered.all()),
                "a = 0.5 moves every score of a grid towards one half",
                "no score moves away from it",
            ),
            Verdict(
                "The counter-intuitive choice a < 0 can also make sense if f's predictions oppose reality",
                "Section 1",
                bool(np.allclose(flipped, 1.0 - f, atol=1e-12)),
                "a = -1 turns f into 1 - f",
                "to 1e-12 on a grid of scores",
            ),
        ],
    )


def figure2(_settings: Settings, _results: Results) -> Section:
    """Figure 2."""
    return Section(
        words=[
            "A diagram without numbers. `Calibrator(TOPS)` is its second and third box; `paper/forests.py` its first."
        ],
        figures={"figure-2": draw_figure2()},
        captions={"figure-2": "Figure 2: online adversarial post-hoc calibration"},
        csv_head=["step", "what"],
        csv_rows=[["1", "train"], ["2", "online post-hoc calibration"], ["3", "calibeating"], ["4", "outcome"]],
    )


# ---- pictures ----------------------------------------------------------------------------------------------------


def draw_figure1() -> Any:
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
    boxes(
        right,
        (
            "score f(x)",
            "OPS: expert p",
            "bin of p: [0.7, 0.8)",
            "past outcomes of the bin: 85 % ones",
            "TOPS says 0.85, HOPS hedges",
        ),
    )
    return figure


def draw_figure2() -> Any:
    """Figure 2: a model trained once, and what learns behind it from every outcome."""
    figure = new_figure(10.4, 1.1)
    axes = figure.subplots()
    steps = (
        "train the base model f\non some of the data",
        "online post-hoc calibration\nof the stream's f(x): OPS",
        "calibeating of the expert:\nTOPS, HOPS",
        "forecast p, then outcome y,\nwhich teaches both",
    )
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
