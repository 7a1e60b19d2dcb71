"""`python -m benchmarks.lanes PNG` draws which lane AUTO trusts through the year of flights: drift made visible.

Every outcome arrives when the flight has landed, as in the demo; the weights are read once a day.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibeat import AUTO, Calibrator, Forecast
from calibeat.core.auto import HORIZON_NAME, LANE_NAMES
from calibeat.examples import ExampleStream, flights

# Okabe and Ito's colours, told apart by all kinds of colour vision.
COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#999999", "#009E73", "#CC79A7")
SHORTER = 1000  # events from one look at the weights to the next: about a day of flights


def watched(stream: ExampleStream, *, at_once: bool) -> NDArray[np.float64]:
    """The weights of the lanes after every `SHORTER` events, as columns."""
    cal, looks = Calibrator(AUTO), []
    n = len(stream.scores)
    due = np.where(stream.labelled, np.arange(1, n + 1), n) if at_once or stream.due is None else stream.due
    order = np.argsort(due, kind="stable")
    waiting: dict[int, Forecast] = {}
    arrived = 0
    for i, score in enumerate(stream.scores.tolist()):
        while arrived < n and due[order[arrived]] <= i:
            j = int(order[arrived])
            cal.update(waiting.pop(j), int(stream.outcomes[j]))
            arrived += 1
        waiting[i] = cal.predict(score)
        if i % SHORTER == 0:
            looks.append(list(cal.params["lanes"].values()))
    return np.array(looks).T


def draw(stream: ExampleStream, path: Path) -> None:
    """What happened above, whom AUTO trusted below: when outcomes come at once, and when they really came."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    n = len(stream.scores)
    x = np.arange(0, n, SHORTER)
    known = stream.labelled.astype(float)
    happened = np.add.reduceat(np.nan_to_num(stream.outcomes), x) / np.maximum(np.add.reduceat(known, x), 1.0)
    panels = {
        "if every outcome were known at once": watched(stream, at_once=True),
        "with outcomes known when the flight has landed": watched(stream, at_once=False),
    }
    figure = Figure(figsize=(9.6, 7.2), dpi=150, facecolor="white")
    figure.set_layout_engine("constrained", h_pad=0.08)
    FigureCanvasAgg(figure)
    rate, *below = figure.subplots(3, 1, sharex=True, height_ratios=[1.0, 1.6, 1.6])
    rate.plot(x, happened, color="black", linewidth=0.9)
    rate.set_title("Late flights, by the thousand: the world moves from day to day", loc="left", fontsize=11)
    rate.set_ylim(0, None)
    for axes, (title, weights) in zip(below, panels.items(), strict=True):
        axes.stackplot(x, weights, colors=COLOURS, labels=(*LANE_NAMES, HORIZON_NAME), linewidth=0)
        axes.set_title(f"Whom AUTO trusts, {title}", loc="left", fontsize=11)
        axes.set_ylim(0, 1)
    below[0].legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, reverse=True, fontsize=10)
    first = [int(np.argmax(stream.group == g)) for g in range(len(stream.group_names))]
    below[-1].set_xticks(first, stream.group_names, ha="left")
    below[-1].set_xlim(0, n)
    for axes in (rate, *below):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.lanes", description="Draw the weights of AUTO's lanes.")
    parser.add_argument("png", type=Path)
    draw(flights(), parser.parse_args().png)
