"""`python -m benchmarks.segments PNG` draws the flights: calibrated on average, wrong for every hour and carrier.

Every outcome arrives when the flight has landed, as in the demo. Above: AUTO and AUTO with groups, all flights. Below:
the same forecasts, one hour or one carrier at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibeat import Calibrator
from calibeat.examples import flights, read_flights

# Okabe and Ito's colours, told apart by all kinds of colour vision.
WITHOUT, WITH = "#D55E00", "#0072B2"
NAMES = ("carrier", "origin", "hour")
BINS = 20
LEAST = 300  # flights of a segment that is drawn

Vector = NDArray[np.float64]


def forecasts() -> tuple[Any, Vector, dict[str, Vector]]:
    """The attributes and outcomes of the flights that arrived, and what was said of them without and with groups."""
    stream, frame = flights(), read_flights()
    frame = frame[frame["month"] != 1].reset_index(drop=True)
    said = {
        "AUTO": Calibrator().run(stream.scores, stream.outcomes, due=stream.due),
        "AUTO with groups": Calibrator(groups=list(NAMES)).run(
            stream.scores, stream.outcomes, due=stream.due, groups=frame[list(NAMES)]
        ),
    }
    there = stream.labelled
    return frame[there].reset_index(drop=True), stream.outcomes[there], {k: p[there] for k, p in said.items()}


def draw(path: Path) -> None:
    """Reliability over everything above; what happened less what was said, by hour and by carrier, below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    frame, y, said = forecasts()
    figure = Figure(figsize=(9.6, 7.4), dpi=150, facecolor="white")
    figure.set_layout_engine("constrained", h_pad=0.08)
    FigureCanvasAgg(figure)
    panels = figure.subplot_mosaic([["AUTO", "AUTO with groups"], ["hour", "hour"], ["carrier", "carrier"]])
    for (name, p), colour in zip(said.items(), (WITHOUT, WITH), strict=True):
        _reliability(panels[name], p, y, name, colour)
    _by_value(panels["hour"], frame["hour"].to_numpy(), y, said, "hour of scheduled departure")
    _by_value(panels["carrier"], frame["carrier"].to_numpy(), y, said, "carrier")
    panels["hour"].legend(loc="lower right", frameon=False, fontsize=9)
    for axes in panels.values():
        axes.spines[["top", "right"]].set_visible(False)
    for name in said:
        for axis in (panels[name].xaxis, panels[name].yaxis):
            axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    figure.savefig(path, format="png")


def _reliability(axes: Any, p: Vector, y: Vector, name: str, colour: str) -> None:
    """What was said against what happened, in bins with equally many events."""
    parts = np.array_split(np.argsort(p, kind="stable"), BINS)
    axes.plot([0, 0.8], [0, 0.8], color="black", linewidth=0.8, linestyle=":")
    axes.plot([p[part].mean() for part in parts], [y[part].mean() for part in parts], "o-", color=colour, markersize=4)
    axes.set_title(f"{name}, all flights: said against happened", loc="left", fontsize=11)


def _by_value(axes: Any, values: Any, y: Vector, said: dict[str, Vector], label: str) -> None:
    """Happened less said in points for each value, and what luck would explain."""
    kept = [value for value in np.unique(values) if (values == value).sum() >= LEAST]
    at = np.arange(len(kept))
    p = said["AUTO with groups"]
    luck = [1.96 * np.sqrt((p * (1.0 - p))[values == value].sum()) / (values == value).sum() for value in kept]
    axes.fill_between(
        np.repeat(at, 2) + np.tile([-0.5, 0.5], len(at)), -100 * np.repeat(luck, 2), 100 * np.repeat(luck, 2),
        color="#dddddd", linewidth=0, label="what luck explains, 95 %",
    )  # fmt: skip
    for (name, forecast), colour, marker in zip(said.items(), (WITHOUT, WITH), "so", strict=True):
        gaps = [100.0 * (y - forecast)[values == value].mean() for value in kept]
        axes.plot(at, gaps, marker, color=colour, label=name, markersize=5)
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set_xticks(at, [str(value) for value in kept])
    axes.set_ylabel("happened - said, points")
    axes.set_title(f"The same forecasts by {label}", loc="left", fontsize=11)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.segments", description="Draw the flights, segment by segment.")
    parser.add_argument("png", type=Path)
    draw(parser.parse_args().png)
