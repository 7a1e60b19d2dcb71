"""The demo: a year of flights replayed through the methods, as a table, a picture and a report."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import IO, NamedTuple, TextIO

import numpy as np

from calibeat import AUTO, BM, FPS, HOPS, OPS, SWPS, TOPS, WPS, BacktestResult, backtest, metrics
from calibeat._util.extras import need
from calibeat._util.progress import progress
from calibeat._util.types import Flags, Ints, Vector
from calibeat.errors import MissingExtra
from calibeat.examples import ExampleStream, covariate_drift, flights
from calibeat.report.page import html

from .stop import Stop, check_place, outputs

METHODS = {"raw": BM, "AUTO": AUTO, "FPS": FPS, "WPS": WPS, "SWPS": SWPS, "OPS": OPS, "TOPS": TOPS, "HOPS": HOPS}
GROUPED = "AUTO + groups"  # also replayed, where events have attributes
UNSCORED = 1000  # outcomes: FPS, WPS and SWPS say nothing of their own before they have seen this many outcomes
LOG_LOSS_FLOOR = 1e-5
PICTURE, REPORT = "calibeat-demo.png", "calibeat-report.html"

TITLE = "The model stands still, the world moves: calibration narrows the gap"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat demo`."""
    parser.description = (
        "Train a model on January, replay its scores through February to December with every outcome applied when that "
        "flight had landed, and compare the methods in a table, a picture and a report."
    )
    where = "the folder for the picture and the report (default: this one)"
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help=where)


def run(args: argparse.Namespace) -> None:
    """Run `calibeat demo`."""
    run_demo(args.out, stop=args.stop)


# Label, colour, line and marker. Okabe and Ito's colours are told apart by all kinds of colour vision.
DRAWN = {
    "raw": ("raw scores", "#D55E00", "--", "s"),
    "OPS": ("OPS, the paper's", "#0072B2", "-", "^"),
    "AUTO": ("AUTO", "#009E73", "-", "D"),
}


class MethodErrors(NamedTuple):
    """One line of the table: lower is better in every column."""

    method: str
    ce: float
    group_ce: float
    brier: float
    log_loss: float


class Demo(NamedTuple):
    """What a demo leaves behind."""

    stream: ExampleStream
    rows: list[MethodErrors]
    picture: Path
    page: Path


def run_demo(
    out: Path,
    *,
    stream: ExampleStream | None = None,
    to: TextIO | None = None,
    log: TextIO | None = None,
    stop: Stop | None = None,
) -> Demo:
    """Replay the flights (or `stream`) through `METHODS`; a table goes to `to`, a picture and a report into `out`.

    `to` is standard output by default, and `log`, which shows the progress, standard error. Without the data of the
    flights the paper's covariate drift takes their place; without scikit-learn or matplotlib it raises `MissingExtra`.
    """
    to, log = to or sys.stdout, log or sys.stderr
    need("matplotlib", extra="demo", what="the demo")  # now, not when the work is done
    picture, page = out / PICTURE, out / REPORT
    for path in (picture, page):
        check_place("--out", path)
    with progress(4, log) as step:
        step(0, "reading the flights of 2013, training on January" if stream is None else stream.name)
        notice = ""
        try:
            stream = stream or flights()
        except MissingExtra as error:
            stream = covariate_drift()  # needs scikit-learn like the flights: if that is what is missing, it says so
            notice = f"No flights here ({error}).\nThe covariate drift of the paper takes their place.\n"
        step(1, f"replaying {len(stream.scores):,} events through {', '.join(METHODS)}")
        result = backtested(stream)
        forecasts = {name: result.forecasts[name.lower()] for name in METHODS}
        segments = result.payload.get("segments")
        if segments is not None:
            forecasts[GROUPED] = result.forecasts[GROUPED]
        step(1, "counting and drawing")
        counted = counted_events(stream)
        rows = [evaluate(name, stream, forecast, counted) for name, forecast in forecasts.items()]
        happened = group_means(stream, stream.outcomes, counted)
        means = {name: group_means(stream, forecasts[name], counted) for name in DRAWN}
        with outputs([picture, page], stop or Stop()) as opened:
            draw(stream, np.unique(stream.group[counted]), happened, means, opened[picture])
            step(1, "writing the report")
            opened[page].write(html(result.payload).encode())
    gaps = ", ".join(f"{name} {100 * np.abs(mean - happened).mean():.1f}" for name, mean in means.items())
    to.write(f"\n{notice}{report(stream, rows, counted, gaps)}\n")
    if segments is not None:
        told = textwrap.fill(segments["sentence"], 118)
        to.write(f"\nSegments by {', '.join(segments['attributes'])}, and by two of them:\n{told}\n\n")
    to.write(f"Picture written to {picture.resolve()}\nReport written to {page.resolve()}\n")
    return Demo(stream, rows, picture, page)


def backtested(stream: ExampleStream) -> BacktestResult:
    """The stream through `METHODS`, outcomes at once or when they were known."""
    return backtest(
        stream.scores,
        stream.outcomes,
        times=stream.times,
        outcome_times=stream.known,
        groups=stream.attributes,
        methods={name.lower(): method for name, method in METHODS.items()} | {"base rate": "base rate"},
        warmup=min(UNSCORED, int(stream.labelled.sum()) - 1),
        keep_forecasts=True,
        title=f"{stream.name}: the probability that {stream.event}",
    )


def counted_events(stream: ExampleStream, warm_up: int = UNSCORED) -> Flags:
    """The events that are judged, the same for every method: those with an outcome, but for the first `warm_up`."""
    return stream.labelled & (np.cumsum(stream.labelled) > warm_up)


def evaluate(name: str, stream: ExampleStream, forecasts: Vector, counted: Flags) -> MethodErrors:
    """The errors of one method. CE by group is the mean over events of their group's own CE."""
    y, p, group = stream.outcomes[counted], forecasts[counted], stream.group[counted]
    group_ce = sum(
        np.mean(group == g) * metrics.calibration_error(y[group == g], p[group == g]) for g in np.unique(group)
    )
    losses = metrics.brier_score(y, p), metrics.log_loss(y, p, clip=LOG_LOSS_FLOOR)
    return MethodErrors(name, metrics.calibration_error(y, p), float(group_ce), *losses)


def group_means(stream: ExampleStream, values: Vector, counted: Flags) -> Vector:
    """The mean of `values` over the counted events of each group that has any."""
    group = stream.group[counted]
    size = np.bincount(group)
    return np.bincount(group, weights=values[counted])[size > 0] / size[size > 0]


# ---- words -------------------------------------------------------------------------------------------------------


def report(stream: ExampleStream, rows: list[MethodErrors], counted: Flags, gaps: str) -> str:
    """The table, with what it counts above it and how to read it and the picture below."""
    raw, known = next(row for row in rows if row.method == "raw"), "at once"
    if stream.due is not None:
        waited = (stream.due - np.arange(len(stream.scores)))[stream.labelled]
        known = f"only after {int(np.median(waited)):,} further forecasts (median)"
    best = min(rows, key=lambda row: row.group_ce)
    return f"""\
{stream.name}: the probability that {stream.event}.
{np.count_nonzero(stream.labelled):,} of {len(stream.scores):,} events have an outcome, known {known}.
The first {UNSCORED:,} of these are not scored. All methods are scored on the same {np.count_nonzero(counted):,}.

{table(rows, stream.group_adjective)}

* best; lower is better everywhere.
CE: events forecast at about 10 %, 20 %, ... should happen that often; this is the average gap (0.05 = 5 points).
{stream.group_adjective} CE: the same for each stretch of time alone, where too high and too low cannot cancel: raw
scores are off by {100 * raw.group_ce:.1f} points, {best.method} by {100 * best.group_ce:.1f}.
Brier and log-loss also reward telling events apart. In the log-loss what happened counts as forecast with at least
{LOG_LOSS_FLOOR:g}.

The picture: how far each {stream.group_adjective} mean forecast is from what happened, on average in points: {gaps}.
A mean can be right while high forecasts are too high and low ones too low; that is what CE adds."""


def table(rows: list[MethodErrors], group_adjective: str) -> str:
    """Rows as aligned plain text, four decimals, the best of each column marked with a star."""
    names, *values = zip(*rows, strict=True)
    columns = []
    for head, column in zip(("CE", f"{group_adjective} CE", "Brier", "log-loss"), values, strict=True):
        shown = [f"{value:.4f}" for value in column]
        best = min(shown, key=float)  # of what is shown, so that two rows that read the same are marked the same
        width = max(len(head), 6) + 2
        marked = [text + ("*" if text == best else " ") for text in shown]
        columns.append([cell.rjust(width) for cell in (f"{head} ", *marked)])
    longest = max(6, *map(len, names))
    lines = ["  " + "".join([name.ljust(longest), *cells]) for name, *cells in zip(["", *names], *columns, strict=True)]
    return "\n".join(line.rstrip() for line in lines)


# ---- picture -----------------------------------------------------------------------------------------------------


def draw(stream: ExampleStream, groups: Ints, happened: Vector, lines: dict[str, Vector], file: IO[bytes]) -> None:
    """Mean forecast of each group against its outcome rate, as a PNG; matplotlib's global state stays untouched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(9.6, 5.4), dpi=150, facecolor="white")
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    x = np.arange(len(groups))
    axes.fill_between(x, happened, lines["raw"], color=DRAWN["raw"][1], alpha=0.12, linewidth=0)
    axes.plot(x, happened, color="black", linewidth=3.2, marker="o", markersize=7, zorder=3)
    ends = [(float(happened[-1]), "what happened", "black")]
    for name, values in lines.items():
        label, colour, line, marker = DRAWN[name]
        axes.plot(x, values, color=colour, linestyle=line, linewidth=2.2, marker=marker, markersize=5)
        ends.append((float(values[-1]), label, colour))

    # Names stand at the ends of their lines, moved apart where these come close, instead of in a legend.
    top = min(1.12 * max(float(values.max()) for values in [happened, *lines.values()]), 1.05)
    heights = _apart([height for height, _, _ in ends], 0.075 * top)
    for height, (_, label, colour) in zip(heights, ends, strict=True):
        weight = "bold" if colour == "black" else "normal"
        text = axes.annotate(label, (x[-1], height), (12, 0), textcoords="offset points", va="center")
        text.set(color=colour, fontsize=11, fontweight=weight)

    axes.set_title(TITLE, loc="left", pad=26, fontsize=14, fontweight="bold")
    means_of_what = f"{stream.group_adjective.capitalize()} mean probability that {stream.event}"
    axes.text(0, 1.03, f"{stream.name}. {means_of_what}.", transform=axes.transAxes, fontsize=10, color="0.25")
    axes.set_xticks(x, [stream.group_names[g] for g in groups])
    axes.set(xlabel=stream.time_label, ylabel="probability", xlim=(-0.5, len(groups) - 0.5), ylim=(0, top))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    figure.savefig(file, format="png")


def _apart(heights: list[float], gap: float) -> list[float]:
    """Heights moved as little as need be so that neighbours are at least `gap` apart, in the same order."""
    order = np.argsort(heights, kind="stable")
    moved = np.array(heights)[order]
    for _ in range(100):
        for i in range(len(moved) - 1):
            short = gap - (moved[i + 1] - moved[i])
            if short > 1e-9:
                moved[i] -= short / 2
                moved[i + 1] += short / 2
    return [float(height) for height in moved[np.argsort(order)]]
